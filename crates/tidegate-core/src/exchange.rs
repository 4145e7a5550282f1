//! One request as modules see it, free of protocol version, and the traits that answer it.

use crate::body::RequestBody;
use crate::response::Response;
use tidegate_http::{Field, Fields, Method, Status};
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
    /// When the head was complete: monotonic, nanoseconds.
    pub started: u64,
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

impl Exchange<'_> {
    /// A copy that outlives the worker's read buffer, without the content: for answers that come later.
    pub fn keep(&self) -> Kept {
        let own = |field: &Field<'_>| (field.name.to_owned(), field.value.to_owned());
        Kept {
            method: self.method,
            method_token: self.method_token.to_owned(),
            target: self.target.to_owned(),
            path: self.path.to_owned(),
            query: self.query.map(str::to_owned),
            scheme: self.scheme,
            authority: self.authority.to_owned(),
            fields: self.fields.iter().map(own).collect(),
            minor_version: self.minor_version,
            peer: self.peer,
            now: self.now,
            started: self.started,
        }
    }
}

/// A request that has been kept.
pub struct Kept {
    method: Method,
    method_token: String,
    target: String,
    path: Vec<u8>,
    query: Option<String>,
    scheme: &'static str,
    authority: String,
    fields: Vec<(String, Vec<u8>)>,
    minor_version: u8,
    peer: Peer,
    now: i64,
    started: u64,
}

impl Kept {
    /// Lends it as the exchange it was.
    pub fn lend<R>(&self, f: impl FnOnce(&Exchange<'_>) -> R) -> R {
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| Field { name, value }).collect();
        f(&Exchange {
            method: self.method,
            method_token: &self.method_token,
            target: &self.target,
            path: &self.path,
            query: self.query.as_deref(),
            scheme: self.scheme,
            authority: &self.authority,
            fields: Fields::new(&fields),
            minor_version: self.minor_version,
            peer: self.peer,
            now: self.now,
            started: self.started,
            body: None,
        })
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
    /// The answer, later. The connection polls it; its waker is the connection's. It may have to wait for a
    /// place among the requests in flight, and is not polled before: what costs belongs inside the future.
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
