//! One request as modules see it, free of protocol version, and the traits that answer it.

use crate::body::RequestBody;
use crate::response::Response;
use tidegate_http::{Fields, Method, Status};
use tidegate_io::LocalFuture;
use tidegate_io::socket::Peer;

/// One request. It borrows from the worker's read buffer: a handler that answers later copies what it
/// needs before it returns.
pub struct Exchange<'a> {
    /// Method.
    pub method: Method,
    /// The method as sent, for extension methods.
    pub method_token: &'a str,
    /// The request target as sent.
    pub target: &'a str,
    /// Decoded once and normalised: begins with `/`, holds no dot segment, no `//` and no NUL.
    pub path: &'a [u8],
    /// Behind the first `?`, as sent.
    pub query: Option<&'a str>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host and port as sent; empty for an HTTP/1.0 client that named none.
    pub authority: &'a str,
    /// Field section.
    pub fields: Fields<'a>,
    /// Minor version of HTTP/1: 0 or 1.
    pub minor_version: u8,
    /// The other end.
    pub peer: Peer,
    /// Wall clock, seconds since 1970.
    pub now: i64,
    /// Content of the request, until a handler takes it.
    pub body: Option<RequestBody>,
}

impl Exchange<'_> {
    /// The value of the first field of this name.
    #[inline]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.first(name)
    }
}

/// Answers requests. One for each route on each worker, so it may hold `Rc` and `RefCell`.
pub trait Handler {
    /// Answers at once, or says that it has to wait for something.
    fn handle(&self, exchange: &mut Exchange<'_>) -> Reply;

    /// Says in one sentence each what this handler would do and why, for `tidegate explain`. Touches
    /// files, never the network.
    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String));
}

/// What a handler returns. Only what waits pays for a future.
pub enum Reply {
    /// The answer.
    Ready(Response),
    /// The answer, later. The connection polls it; its waker is the connection's.
    Later(LocalFuture<Response>),
}

impl Reply {
    /// An answer without fields or content.
    pub fn status(status: Status) -> Reply {
        Reply::Ready(Response::empty(status))
    }

    /// Changes the response, now or when it comes.
    pub fn map(self, change: impl FnOnce(Response) -> Response + 'static) -> Reply {
        match self {
            Reply::Ready(response) => Reply::Ready(change(response)),
            Reply::Later(future) => Reply::Later(Box::pin(async move { change(future.await) })),
        }
    }
}

/// Changes responses on their way out.
pub trait Filter {
    /// Looks at the request while it is there. `None`: nothing to do whatever the response is.
    fn prepare(&self, exchange: &Exchange<'_>) -> Option<Box<dyn FnOnce(Response) -> Response>>;
}
