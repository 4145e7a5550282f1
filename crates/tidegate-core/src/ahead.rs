//! A look at the beginning of a body of unknown length, for filters that decide by how long a body is.
//!
//! Called by the Filter phase of `phase`, for routes that have such a filter. It waits a few milliseconds at most: whoever
//! makes a short body is about to end it, and an event stream must not be held up for the sake of its length.

use crate::reply::Reply;
use crate::response::{Body, BodyStream, Response};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_io::pipe::Pipe;
use tidegate_io::timer;

/// How long the end is waited for.
const PATIENCE: Duration = Duration::from_millis(5);
/// Bytes taken at once.
const PIECE: usize = 4 << 10;
/// Bytes looked at, whatever a filter asks for.
const MOST: usize = 64 << 10;

/// Has a body of unknown length that ends before `least` bytes come with its length.
pub(crate) fn look_ahead(reply: Reply, least: usize) -> Reply {
    let least = least.min(MOST);
    match reply {
        Reply::Later(future) if least > 0 => {
            Reply::Later(Box::pin(async move { look(future.await, least).await }))
        }
        Reply::Preparing(future) => {
            Reply::Preparing(Box::pin(async move { look_ahead(future.await, least) }))
        }
        reply => reply,
    }
}

async fn look(mut response: Response, least: usize) -> Response {
    if !response.status.has_body() || !matches!(response.body, Body::Stream { len: None, .. }) {
        return response;
    }
    let Body::Stream { mut stream, .. } = std::mem::replace(&mut response.body, Body::Empty) else {
        return response;
    };
    let (mut front, mut buffer) = (Vec::new(), vec![0; PIECE.min(least)]);
    let mut patience = pin!(timer::after(PATIENCE));
    let mut error = None;
    let has_ended = std::future::poll_fn(|cx| {
        while front.len() < least {
            match stream.poll_chunk(cx, &mut buffer) {
                Poll::Ready(Ok(0)) => return Poll::Ready(true),
                Poll::Ready(Ok(count)) => front.extend_from_slice(&buffer[..count]),
                Poll::Ready(Err(failed)) => {
                    error = Some(failed);
                    return Poll::Ready(false);
                }
                Poll::Pending => return patience.as_mut().poll(cx).map(|()| false),
            }
        }
        Poll::Ready(false)
    })
    .await;
    let trailers = if has_ended { stream.trailers() } else { None };
    response.body = match (has_ended, trailers) {
        (true, None) => Body::Bytes(front),
        (has_ended, trailers) => Body::Stream {
            len: has_ended.then_some(front.len() as u64),
            stream: Box::new(Resumed { front, taken: 0, error, has_ended, trailers, stream }),
        },
    };
    response
}

/// A stream of which the beginning has been taken already.
struct Resumed {
    front: Vec<u8>,
    taken: usize,
    error: Option<io::Error>,
    has_ended: bool,
    trailers: Option<Vec<u8>>,
    stream: Box<dyn BodyStream>,
}

impl BodyStream for Resumed {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let rest = self.front.get(self.taken..).unwrap_or_default();
        if !rest.is_empty() {
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.taken += count;
            return Poll::Ready(Ok(count));
        }
        self.front = Vec::new();
        match self.error.take() {
            Some(error) => Poll::Ready(Err(error)),
            None if self.has_ended => Poll::Ready(Ok(0)),
            None => self.stream.poll_chunk(cx, buffer),
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if !self.has_ended && self.error.is_none() {
            self.stream.poll_ahead(cx);
        }
    }

    fn held(&self) -> usize {
        let trailers = self.trailers.as_ref().map_or(0, Vec::capacity);
        size_of::<Resumed>() + self.front.capacity() + trailers + self.stream.held()
    }

    fn splices(&self) -> bool {
        self.taken >= self.front.len() && self.error.is_none() && !self.has_ended && self.stream.splices()
    }

    fn poll_splice(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        self.stream.poll_splice(cx, pipe)
    }

    fn trailers(&mut self) -> Option<Vec<u8>> {
        self.trailers.take().or_else(|| if self.has_ended { None } else { self.stream.trailers() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::Waker;
    use tidegate_http::Status;
    use tidegate_io::Poller;
    use tidegate_io::runtime::Runtime;

    /// Gives what it is told; `None` is a wait.
    struct Script(VecDeque<Option<&'static [u8]>>, Option<Vec<u8>>);

    impl BodyStream for Script {
        fn held(&self) -> usize {
            self.0.iter().flatten().map(|bytes| bytes.len()).sum()
        }

        fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
            match self.0.pop_front() {
                None => Poll::Ready(Ok(0)),
                Some(None) => Poll::Pending,
                Some(Some(bytes)) => {
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    Poll::Ready(Ok(bytes.len()))
                }
            }
        }

        fn trailers(&mut self) -> Option<Vec<u8>> {
            self.1.take()
        }
    }

    fn reply(
        script: &[Option<&'static [u8]>],
        trailers: Option<&str>,
    ) -> Pin<Box<dyn Future<Output = Response>>> {
        let stream =
            Script(script.iter().copied().collect(), trailers.map(|lines| lines.as_bytes().to_vec()));
        let body = Body::Stream { len: None, stream: Box::new(stream) };
        let made = async move { Response { body, ..Response::empty(Status::OK) } };
        match look_ahead(Reply::Later(Box::pin(made)), 10) {
            Reply::Later(future) => future,
            _ => panic!("it waits"),
        }
    }

    #[test]
    fn what_ends_early_comes_with_its_length() {
        let poller = Poller::new().unwrap();
        let _runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        // The end comes a moment behind the content.
        let mut short = reply(&[Some(b"short"), None], None);
        assert!(short.as_mut().poll(&mut cx).is_pending());
        let Poll::Ready(Response { body: Body::Bytes(bytes), .. }) = short.as_mut().poll(&mut cx) else {
            panic!("all of it is here")
        };
        assert_eq!(bytes, b"short");
        // With trailers it stays a stream, of known length.
        let mut with_trailers = reply(&[Some(b"short")], Some("a: b\r\n"));
        let Poll::Ready(Response { body: Body::Stream { len, mut stream }, .. }) =
            with_trailers.as_mut().poll(&mut cx)
        else {
            panic!("it has ended")
        };
        let mut buffer = [0; 32];
        assert_eq!(len, Some(5));
        assert!(matches!(stream.poll_chunk(&mut cx, &mut buffer), Poll::Ready(Ok(5))));
        assert!(matches!(stream.poll_chunk(&mut cx, &mut buffer), Poll::Ready(Ok(0))));
        assert_eq!(stream.trailers().as_deref(), Some(&b"a: b\r\n"[..]));
        // What is long enough is not waited for, and nothing of it is lost.
        let mut long = reply(&[Some(b"0123456789"), None, Some(b"more")], None);
        let Poll::Ready(Response { body: Body::Stream { len, mut stream }, .. }) =
            long.as_mut().poll(&mut cx)
        else {
            panic!("it is long enough")
        };
        assert_eq!(len, None);
        assert!(stream.held() >= 14, "what is within weighs as well");
        assert!(matches!(stream.poll_chunk(&mut cx, &mut buffer), Poll::Ready(Ok(10))));
        assert!(stream.poll_chunk(&mut cx, &mut buffer).is_pending());
        assert!(matches!(stream.poll_chunk(&mut cx, &mut buffer), Poll::Ready(Ok(4))));
        assert!(matches!(stream.poll_chunk(&mut cx, &mut buffer), Poll::Ready(Ok(0))));
    }
}
