//! What the modules are to the engine: [`Handler`] answers requests, [`Filter`] changes responses.

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

/// Changes responses on their way out.
pub trait Filter {
    /// Looks at the request while it is there. `None`: nothing to do whatever the response is.
    fn prepare(&self, exchange: &Exchange<'_>) -> Option<Box<dyn FnOnce(Response) -> Response>>;

    /// How many bytes of content of unknown length decide what it does: a body that ends before comes with its length,
    /// where that can be known within a few milliseconds.
    fn looks_ahead(&self) -> usize {
        0
    }
}

/// Who answers in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreseen {
    /// The handler, as it would any request.
    Handler,
    /// The handler, with this status; what it would tell depends on a server that runs.
    Status(Status),
    /// An application.
    Application,
}
