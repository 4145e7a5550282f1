//! The content of an answer on its way to the client, and what is left of the request on its way to the
//! application.
//!
//! The client's connection pulls. While it does not take more, the rest of the answer is read ahead into a
//! bounded buffer, so that a slow client holds the application only for what does not fit.

use super::abandon::{finish, give_up};
use super::about::About;
use super::answer::{AnswerError, Content};
use super::link::Link;
use super::upload::{Taken, Upload, UploadError};
use super::upstream::Selection;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_client::{Connection, Pool};
use tidegate_core::body_stream::Splice;
use tidegate_core::{BodyStream, Chunk, memory};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::pipe::Pipe;
use tidegate_io::runtime;
use tidegate_io::timer::{self, Deadline};
use tidegate_stats::GatewayFailure;

/// Read at once when reading ahead.
const PIECE: usize = 32 << 10;

/// Less room than this is not worth a read.
const WORTHWHILE: usize = 4 << 10;
/// From so many bytes on a pipe costs less than copies do.
const SPLICED: u64 = 32 << 10;

/// A connection to an application that carries an exchange, and the place that it takes.
pub(super) struct Checkout {
    pub(super) connection: Connection,
    pub(super) pool: Rc<Pool>,
    /// Its place.
    pub(super) pick: Option<Selection>,
}

/// Content that flows.
pub(super) struct Relay {
    /// Gone once the application has done its part.
    line: Option<Checkout>,
    content: Content,
    upload: Option<Upload>,
    /// Of a request that is sent in full.
    pub(super) taken: Taken,
    /// Content that is here and the client has not taken yet.
    ready: Vec<u8>,
    /// Bytes of `ready` that it has.
    passed: usize,
    buffer: usize,
    silence: Silence,
    about: About,
    wants_trailers: bool,
    failure: Option<io::Error>,
}

impl Relay {
    pub(super) fn new(
        line: Checkout,
        content: Content,
        upload: Option<Upload>,
        early: Vec<u8>,
        link: &Link,
        about: About,
        wants_trailers: bool,
    ) -> Relay {
        Relay {
            line: Some(line),
            content,
            upload,
            taken: Taken::default(),
            ready: early,
            passed: 0,
            buffer: link.buffer,
            silence: Silence::new(link.timeout),
            about,
            wants_trailers,
            failure: None,
        }
    }

    /// Sends on what is left of the request. What goes wrong with it shows in the answer.
    fn send_on(&mut self, cx: &mut Context<'_>) {
        if let (Some(line), Some(upload)) = (&self.line, &mut self.upload) {
            let sent = upload.poll_send(cx, &line.connection);
            if upload.taken.is_alive() {
                self.silence.ends();
                upload.taken.leaves(line.connection.send_queue_len());
            }
            match sent {
                Poll::Pending => {}
                Poll::Ready(Ok(()) | Err(UploadError::Application(_))) => {
                    self.taken = std::mem::take(&mut upload.taken);
                    self.upload = None;
                }
                Poll::Ready(Err(UploadError::Client(error))) => {
                    self.failure = Some(io::Error::other(error));
                }
            }
        }
    }

    /// Receives into `buffer`, and takes the framing off: the bytes of content, 0 at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let received = self.poll_content(cx, buffer);
        if let Poll::Ready(Err(error)) = &received {
            self.broke_off(error);
            if let Some(line) = self.line.take().filter(|_| self.upload.is_none()) {
                give_up(line, self.content.take());
            }
        }
        received
    }

    /// Whether the client keeps the application waiting for content.
    fn is_owed(&self) -> bool {
        self.upload.as_ref().is_some_and(Upload::waits_for_client)
    }

    /// Says that the application has failed, unless all that it had announced is here.
    #[cold]
    fn broke_off(&self, error: &io::Error) {
        if self.content.remaining() == Some(0) {
            return;
        }
        let timeout = self.silence.timeout;
        match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(AnswerError::Truncated) => self.about.broke_off(GatewayFailure::Closed, error),
            Some(_) => self.about.broke_off(GatewayFailure::Malformed, error),
            None if error.kind() == io::ErrorKind::TimedOut && self.is_owed() => {
                self.about.was_given_up(&format_args!("nothing for {timeout:?}"));
            }
            None if error.kind() == io::ErrorKind::TimedOut => {
                self.about.broke_off(GatewayFailure::Silent, &format_args!("nothing for {timeout:?}"));
            }
            None => self.about.broke_off(GatewayFailure::Closed, error),
        }
    }

    fn poll_content(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if self.content.is_complete() {
                return Poll::Ready(self.finish());
            }
            let Some(line) = &self.line else { return Poll::Ready(Ok(0)) };
            match line.connection.poll_recv(cx, buffer) {
                Poll::Pending => return self.poll_silence(cx),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => {
                    self.content.close()?;
                    self.line = None;
                    return Poll::Ready(Ok(0));
                }
                Poll::Ready(Ok(count)) => {
                    self.silence.ends();
                    let count = self.content.decode_in_place(buffer, count)?;
                    if self.content.is_complete() {
                        self.finish()?;
                    }
                    if count > 0 {
                        return Poll::Ready(Ok(count));
                    }
                }
            }
        }
    }

    /// Nothing has come. An error where that was so for too long, and the application has taken nothing of the request either.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while self.silence.poll(cx).is_ready() {
            let taken = self.upload.as_mut().map_or(&mut self.taken, |upload| &mut upload.taken);
            let line = self.line.as_ref();
            if !line.is_some_and(|line| taken.has_drained(|| line.connection.send_queue_len())) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.silence.ends();
        }
        Poll::Pending
    }

    /// The application has done its part.
    fn finish(&mut self) -> io::Result<usize> {
        if let Some(line) = self.line.take() {
            self.content.check_announced()?;
            if self.upload.is_none() && line.connection.awaits_end_mark() {
                finish(line, self.content.take(), self.silence.timeout);
                return Ok(0);
            }
            // Where the request was not sent to its end, the next one would be taken for the rest of it.
            if self.content.may_keep() && self.upload.is_none() {
                line.pool.put(line.connection, monotonic_ns());
            }
            drop(line.pick);
            self.upload = None; // nobody takes the rest of it
        }
        Ok(0)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let Some(line) = self.line.take().filter(|_| self.upload.is_none()) else { return };
        // Over HTTP/2 nobody asks for more than was announced.
        if self.content.remaining() == Some(0) {
            finish(line, self.content.take(), self.silence.timeout);
        } else {
            give_up(line, self.content.take());
        }
    }
}

impl BodyStream for Relay {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        if self.upload.is_some() {
            self.send_on(cx);
        }
        let rest = self.ready.get(self.passed..).unwrap_or_default();
        if !rest.is_empty() {
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.passed += count;
            if self.passed < self.ready.len() {
                return Poll::Ready(Ok(Chunk::of(count)));
            }
            (self.ready, self.passed) = (Vec::new(), 0);
            // What is here already goes with it: the first of it came with the head.
            let more = match &mut buffer[count..] {
                room if room.len() < WORTHWHILE || self.failure.is_some() || self.is_spliced() => 0,
                room => match self.poll_receive(cx, room) {
                    Poll::Ready(Ok(more)) => more,
                    Poll::Ready(Err(error)) => {
                        self.failure = Some(error);
                        0
                    }
                    Poll::Pending => 0,
                },
            };
            return Poll::Ready(Ok(Chunk::of(count + more)));
        }
        if let Some(failure) = self.failure.take() {
            self.line = None;
            return Poll::Ready(Err(failure));
        }
        match self.poll_receive(cx, buffer) {
            Poll::Ready(Ok(0)) => Poll::Ready(Ok(self.end())),
            received => received.map_ok(Chunk::of),
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.send_on(cx);
        if self.passed > 0 {
            self.ready.drain(..self.passed);
            self.passed = 0;
        }
        while self.line.is_some() && self.failure.is_none() && self.ready.len() < self.buffer {
            // Where memory is short the application waits, as it does when the buffer is full.
            if !memory::take(PIECE.min(self.buffer - self.ready.len())) {
                break;
            }
            let mut ready = std::mem::take(&mut self.ready);
            let room = PIECE.min(self.buffer - ready.len());
            let received = runtime::with_scratch(|scratch| {
                let room = room.min(scratch.len());
                let received = self.poll_receive(cx, &mut scratch[..room]);
                if let Poll::Ready(Ok(count)) = received {
                    ready.extend_from_slice(&scratch[..count]);
                }
                received
            });
            self.ready = ready;
            match received {
                Poll::Pending => return,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    self.line = None;
                    self.failure = Some(error);
                }
            }
        }
        if self.line.is_some() {
            self.silence.ends(); // it is the client that is waited for
        }
    }

    fn held(&self) -> usize {
        let upload = self.upload.as_ref().map_or(0, Upload::held);
        size_of::<Relay>() + self.ready.capacity() + upload
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        if self.is_spliced() { Some(self) } else { None }
    }
}

impl Splice for Relay {
    fn poll_splice(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        let spliced = self.poll_spliced(cx, pipe);
        if let Poll::Ready(Err(error)) = &spliced {
            self.broke_off(error);
        }
        spliced
    }
}

impl Relay {
    /// What comes behind all of the content.
    fn end(&mut self) -> Chunk {
        let trailers = self.content.take_trailers();
        if self.wants_trailers { Chunk::end(trailers) } else { Chunk::End }
    }

    /// Whether what comes next is worth a pipe.
    fn is_spliced(&self) -> bool {
        self.ready.is_empty()
            && self.failure.is_none()
            && self.upload.is_none()
            && self.content.plain() >= SPLICED
            && self.line.as_ref().is_some_and(|line| line.connection.is_plain())
    }

    fn poll_spliced(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        let Some(line) = &self.line else { return Poll::Ready(Ok(0)) };
        let most = usize::try_from(self.content.plain()).unwrap_or(usize::MAX);
        match line.connection.poll_splice(cx, pipe, most) {
            Poll::Pending => self.poll_silence(cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(0)) => {
                self.content.close()?;
                self.line = None;
                Poll::Ready(Ok(0))
            }
            Poll::Ready(Ok(count)) => {
                self.silence.ends();
                self.content.skip(count as u64);
                if self.content.is_complete() {
                    self.finish()?;
                }
                Poll::Ready(Ok(count))
            }
        }
    }
}

/// How long an application has been silent. Armed once for a silence, and moved when it has ended only where
/// it begins anew.
pub(super) struct Silence {
    timeout: Duration,
    deadline: Option<Deadline>,
    /// When the present silence began; 0 when none has.
    since: u64,
}

impl Silence {
    pub(super) fn new(timeout: Duration) -> Silence {
        Silence { timeout, deadline: None, since: 0 }
    }

    /// How long it may be.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Something has come.
    pub(super) fn ends(&mut self) {
        self.since = 0;
    }

    /// Nothing has come. Ready when that was so for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        if self.since == 0 {
            self.since = monotonic_ns();
        }
        let due = self.since.saturating_add(timeout);
        // The first silence is looked at in the turn that it begins in.
        let mut now = self.since;
        if let Some(deadline) = &mut self.deadline {
            std::task::ready!(Pin::new(deadline).poll(cx));
            now = monotonic_ns();
            if now >= due {
                return Poll::Ready(());
            }
            // That was the end of an earlier one.
        }
        self.deadline.insert(timer::at(due)).arm(cx, now)
    }
}
