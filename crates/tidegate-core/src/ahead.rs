//! A look at the beginning of a body of unknown length, for filters that decide by how long a body is.
//!
//! Called by the Filter phase of `phase`, for routes that have such a filter. It waits a few milliseconds at most: whoever
//! makes a short body is about to end it, and an event stream must not be held up for the sake of its length.

use crate::body_stream::{BodyStream, Chunk, Splice};
use crate::reply::Reply;
use crate::response::{Body, Response};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
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
        Reply::Preparing(need, future) => {
            Reply::Preparing(need, Box::pin(async move { look_ahead(future.await, least) }))
        }
        reply => reply,
    }
}

async fn look(mut response: Response, least: usize) -> Response {
    if !response.status.has_body() || !matches!(response.body, Body::Stream { len: None, .. }) {
        return response;
    }
    let Body::Stream { mut stream, has_trailers, .. } = std::mem::replace(&mut response.body, Body::Empty)
    else {
        return response;
    };
    let (mut front, mut buffer) = (Vec::new(), vec![0; PIECE.min(least)]);
    let mut patience = pin!(timer::after(PATIENCE));
    let mut end = None;
    std::future::poll_fn(|cx| {
        while front.len() < least {
            match stream.poll_chunk(cx, &mut buffer) {
                Poll::Ready(Ok(Chunk::Data(count))) => front.extend_from_slice(&buffer[..count.get()]),
                Poll::Ready(ended) => {
                    end = Some(ended);
                    return Poll::Ready(());
                }
                Poll::Pending => return patience.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    })
    .await;
    response.body = match end {
        Some(Ok(Chunk::End)) => Body::Bytes(front),
        end => {
            let len = matches!(end, Some(Ok(_))).then_some(front.len() as u64);
            let has_trailers = has_trailers || len.is_some();
            Body::Stream {
                len,
                has_trailers,
                stream: Box::new(Resumed { front, taken: 0, end, stream: Some(stream) }),
            }
        }
    };
    response
}

/// A stream of which the beginning has been taken already.
struct Resumed {
    front: Vec<u8>,
    taken: usize,
    /// How it has ended, if it has.
    end: Option<io::Result<Chunk>>,
    /// Gone behind the end.
    stream: Option<Box<dyn BodyStream>>,
}

impl Resumed {
    /// What is left of the stream, while nothing else comes first.
    fn rest(&mut self) -> Option<&mut dyn BodyStream> {
        match &mut self.stream {
            Some(stream) if self.taken >= self.front.len() && self.end.is_none() => Some(stream.as_mut()),
            _ => None,
        }
    }
}

impl BodyStream for Resumed {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        let rest = self.front.get(self.taken..).unwrap_or_default();
        if !rest.is_empty() {
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.taken += count;
            return Poll::Ready(Ok(Chunk::of(count)));
        }
        (self.front, self.taken) = (Vec::new(), 0);
        if let Some(end) = self.end.take() {
            self.stream = None;
            return Poll::Ready(end);
        }
        self.rest().map_or(Poll::Ready(Ok(Chunk::End)), |stream| stream.poll_chunk(cx, buffer))
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if let Some(stream) = self.stream.as_mut().filter(|_| self.end.is_none()) {
            stream.poll_ahead(cx);
        }
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        self.rest()?.splice()
    }

    fn held(&self) -> usize {
        let end = if let Some(Ok(Chunk::Trailers(lines))) = &self.end { lines.capacity() } else { 0 };
        let stream = self.stream.as_ref().map_or(0, |stream| stream.held());
        size_of::<Resumed>() + self.front.capacity() + end + stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::Waker;
    use tidegate_http::{FieldLines, Status};
    use tidegate_io::Poller;
    use tidegate_io::runtime::Runtime;

    /// Gives what it is told; `None` is a wait.
    struct Script(VecDeque<Option<&'static [u8]>>, FieldLines);

    impl BodyStream for Script {
        fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
            match self.0.pop_front() {
                None => Poll::Ready(Ok(Chunk::end(std::mem::take(&mut self.1)))),
                Some(None) => Poll::Pending,
                Some(Some(bytes)) => {
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    Poll::Ready(Ok(Chunk::of(bytes.len())))
                }
            }
        }

        fn poll_ahead(&mut self, _: &mut Context<'_>) {}

        fn splice(&mut self) -> Option<&mut dyn Splice> {
            None
        }

        fn held(&self) -> usize {
            self.0.iter().flatten().map(|bytes| bytes.len()).sum()
        }
    }

    fn reply(
        script: &[Option<&'static [u8]>],
        trailers: Option<&str>,
    ) -> Pin<Box<dyn Future<Output = Response>>> {
        let mut lines = FieldLines::new();
        lines.append_lines(trailers.unwrap_or_default().as_bytes());
        let stream = Box::new(Script(script.iter().copied().collect(), lines));
        let body = Body::Stream { len: None, has_trailers: false, stream };
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
        let Poll::Ready(Response { body: Body::Stream { len, has_trailers, mut stream }, .. }) =
            with_trailers.as_mut().poll(&mut cx)
        else {
            panic!("it has ended")
        };
        let mut buffer = [0; 32];
        let mut next = |stream: &mut Box<dyn BodyStream>| match stream.poll_chunk(&mut cx, &mut buffer) {
            Poll::Ready(chunk) => Some(chunk.unwrap()),
            Poll::Pending => None,
        };
        assert_eq!((len, has_trailers), (Some(5), true));
        assert_eq!(next(&mut stream), Some(Chunk::of(5)));
        let Some(Chunk::Trailers(lines)) = next(&mut stream) else { panic!("trailers come behind it") };
        assert_eq!(lines.as_bytes(), b"a: b\r\n");
        // What is long enough is not waited for, and nothing of it is lost.
        let mut long = reply(&[Some(b"0123456789"), None, Some(b"more")], None);
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Response { body: Body::Stream { len, mut stream, .. }, .. }) =
            long.as_mut().poll(&mut cx)
        else {
            panic!("it is long enough")
        };
        assert_eq!(len, None);
        assert!(stream.held() >= 14, "what is within weighs as well");
        assert_eq!(next(&mut stream), Some(Chunk::of(10)));
        assert_eq!(next(&mut stream), None);
        assert_eq!(next(&mut stream), Some(Chunk::of(4)));
        assert_eq!(next(&mut stream), Some(Chunk::End));
    }
}
