//! Bytes both ways behind a 101, such as a WebSocket: back-pressure in each direction, and an end when both
//! are silent for too long.
//!
//! It is opened by the application's 101 and by nothing else (FAULTS 11). The connection of the client keeps it
//! across a reload, and a stop or an upgrade drains it to its deadline (FAULTS 46).

use super::answer::AnswerHead;
use super::stream::{Checkout, Silence};
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::body::{self, RequestBody};
use tidegate_core::body_stream::Splice;
use tidegate_core::response::Head;
use tidegate_core::{Body, BodyStream, Chunk, Response};

/// The response that opens a tunnel. `early` is what the application has sent behind its head.
pub(super) fn open(head: AnswerHead, early: Vec<u8>, line: Checkout, timeout: Duration) -> Response {
    let (sink, from_client) = body::pipe(None);
    let tunnel = Tunnel {
        line,
        early,
        from_client,
        up: Vec::new(),
        sent: 0,
        is_client_done: false,
        silence: Silence::new(timeout),
    };
    Response {
        status: head.status,
        head: Head::Final(head.lines),
        body: Body::Tunnel { stream: Box::new(tunnel), sink },
        author: head.author,
    }
}

struct Tunnel {
    line: Checkout,
    early: Vec<u8>,
    from_client: RequestBody,
    /// What the client has sent and the application has not taken.
    up: Vec<u8>,
    /// Bytes of `up` that it has.
    sent: usize,
    is_client_done: bool,
    silence: Silence,
}

impl Tunnel {
    /// Moves what the client sends.
    fn send_on(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            while self.sent < self.up.len() {
                let rest = self.up.get(self.sent..).unwrap_or_default();
                match self.line.connection.poll_send(cx, rest) {
                    Poll::Ready(Ok(count)) => {
                        self.sent += count;
                        self.silence.ends();
                    }
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending => return Ok(()),
                }
            }
            (self.up, self.sent) = (Vec::new(), 0); // an idle tunnel holds no buffer
            if self.is_client_done {
                return Ok(());
            }
            match self.from_client.poll_read(&mut self.up) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => {
                    self.is_client_done = true;
                    self.line.connection.finish_sending()?;
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl BodyStream for Tunnel {
    fn held(&self) -> usize {
        size_of::<Tunnel>() + self.up.capacity() + self.early.capacity()
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        self.send_on(cx)?;
        if !self.early.is_empty() {
            let count = self.early.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.early[..count]);
            self.early.drain(..count);
            return Poll::Ready(Ok(Chunk::of(count)));
        }
        match self.line.connection.poll_recv(cx, buffer) {
            Poll::Ready(received) => {
                self.silence.ends();
                Poll::Ready(received.map(Chunk::of))
            }
            Poll::Pending => match self.silence.poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(Chunk::End)),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        // A failure shows when the client has taken what there is.
        let _ = self.send_on(cx);
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }
}
