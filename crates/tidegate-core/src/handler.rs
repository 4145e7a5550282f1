//! What answers requests. What changes responses is in `filter`.

use crate::exchange::Exchange;
use crate::gate::Pass;
use crate::reply::Reply;
use crate::response::Response;
use tidegate_http::Status;

/// Answers requests. One for each route on each worker, so it may hold `Rc` and `RefCell`.
pub trait Handler {
    /// Answers at once, or says that it has to wait for something. The pass says that the request has been let in.
    fn handle(&self, exchange: &mut Exchange<'_>, pass: Pass) -> Reply;

    /// Says in one sentence each what this handler would do and why, for `tidegate explain`, and who would answer in
    /// the end. Touches files, never the network.
    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen;
}

/// Who answers in the end.
pub enum Foreseen {
    /// The handler, as it would any request.
    Handler,
    /// The handler, with this status.
    Status(Status),
    /// The handler, with this status and these fields; the content depends on a server that runs.
    Head(Box<Response>),
    /// An application.
    Application,
}
