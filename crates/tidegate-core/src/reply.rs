//! What a handler returns: the answer, or what it is waited for.

use crate::response::Response;
use tidegate_http::Status;
use tidegate_io::LocalFuture;

/// What a handler returns. Only what waits pays for a future.
pub enum Reply {
    /// The answer.
    Ready(Response),
    /// The answer, later. The connection polls it; its waker is the connection's. It may have to wait for a
    /// place among the requests in flight, and is not polled before: what costs belongs inside the future.
    Later(LocalFuture<Response>),
    /// What the request needs before it can run is still to come. It is polled at once and takes no place among the
    /// requests in flight; what it becomes does. How many requests may be in this state is bounded for each [`Need`].
    Preparing(Need, LocalFuture<Reply>),
}

/// What a request needs before it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Its content, from the client: bounded by `limits incoming-bodies`.
    Content,
    /// What the server finds out: whether a gate lets it in, where its file lies. As many again, or as `limits in-flight`
    /// says where that is more.
    Decision,
    /// That a gate lets it in later: its turn in the queue of a limit. As many again.
    Turn,
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
            Reply::Preparing(need, future) => {
                Reply::Preparing(need, Box::pin(async move { future.await.map(change) }))
            }
        }
    }

    /// The answer, for who has a place in flight and waits for it there.
    pub async fn settled(mut self) -> Response {
        loop {
            self = match self {
                Reply::Ready(response) => return response,
                Reply::Later(future) => return future.await,
                Reply::Preparing(_, future) => future.await,
            };
        }
    }
}
