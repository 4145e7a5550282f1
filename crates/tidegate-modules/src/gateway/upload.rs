//! The way of a request to its application: the head, then content as it comes from the client, framed as the
//! protocol wants it.

use super::fields::RequestTrailers;
use super::spill::Spilled;
use std::io;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::task::{Context, Poll};
use tidegate_client::Connection;
use tidegate_core::body::{RequestBody, RequestBodyError};
use tidegate_core::memory::{self, Weight};
use tidegate_http::FieldLines;
use tidegate_wire::{fastcgi, h1};

/// The number of the one request on a FastCGI connection.
pub(super) const REQUEST: u16 = 1;

/// Bytes that wait to be sent before more is asked of the client.
pub(super) const AHEAD: usize = 16 << 10;

/// How the application finds the end of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// By its length, which the head has told.
    Length,
    /// The same, and by the end of what is sent: a script may read on until there is no more.
    LengthAndEnd,
    /// Chunks.
    Chunked,
    /// STDIN records.
    FastCgi,
}

/// Where content comes from.
enum Source {
    /// There is none, or all of it is in `out`.
    None,
    Client(RequestBody),
    Spilled(Spilled),
}

/// Why a request could not be sent in full.
pub(super) enum UploadError {
    /// The client's content ended badly; the engine answers.
    Client(RequestBodyError),
    /// The application takes no more. It may have answered already.
    Application(io::Error),
}

/// What the application has taken of a request. While it takes content it is not silent, although it says nothing.
#[derive(Default)]
pub(super) struct Taken {
    bytes: u32,
    waits_for_room: bool,
    /// Bytes that the kernel held for it at the last sign of life.
    queued: u64,
}

impl Taken {
    /// So many bytes are a sign of life. Less may lie in buffers before a process that hangs.
    const PIECE: u32 = 64 << 10;

    /// So many bytes have gone.
    #[inline]
    pub(super) fn add(&mut self, count: usize) {
        let is_given = std::mem::take(&mut self.waits_for_room);
        let count = if is_given { Taken::PIECE } else { u32::try_from(count).unwrap_or(u32::MAX) };
        self.bytes = self.bytes.saturating_add(count);
    }

    /// There is no room for more: what goes next is a sign of life, for the application has made some.
    #[inline]
    pub(super) fn waits_for_room(&mut self) {
        self.waits_for_room = true;
    }

    /// Whether it has given a sign of life since this was asked last.
    #[inline]
    pub(super) fn is_alive(&mut self) -> bool {
        let is_alive = self.bytes >= Taken::PIECE;
        if is_alive {
            self.bytes = 0;
        }
        is_alive
    }

    /// The kernel holds so many bytes for it, behind a sign of life: what it takes of them is one as well.
    pub(super) fn leaves(&mut self, queued: u64) {
        self.queued = queued;
    }

    /// It has been silent for too long, unless it has taken enough of what the kernel held, which holds `queued` bytes now.
    /// Asked only where that much was held.
    pub(super) fn has_drained(&mut self, queued: impl FnOnce() -> u64) -> bool {
        let piece = u64::from(Taken::PIECE);
        if self.queued < piece {
            return false;
        }
        let before = std::mem::replace(&mut self.queued, queued());
        before.saturating_sub(self.queued) >= piece
    }
}

/// One request on its way.
pub(super) struct Upload {
    /// What is sent next: the head, and content behind it.
    out: Vec<u8>,
    /// Bytes of `out` that are sent.
    at: usize,
    source: Source,
    framing: Framing,
    /// What of trailers goes on, where the framing has a place for them.
    trailers: Option<Rc<RequestTrailers>>,
    /// Content that has been read from the client, not yet framed.
    piece: Vec<u8>,
    /// What was sent first is still in `out`: it can be sent once more.
    is_whole: bool,
    is_complete: bool,
    /// A part of it is on its way.
    has_begun: bool,
    /// All that the client has sent so far is with the application.
    waits_for_client: bool,
    pub(super) taken: Taken,
    weight: Weight,
}

impl Upload {
    /// A request without content, or whose content is in `head` already.
    #[inline]
    pub(super) fn whole(head: Vec<u8>) -> Upload {
        Upload {
            out: head,
            at: 0,
            source: Source::None,
            framing: Framing::Length,
            trailers: None,
            piece: Vec::new(),
            is_whole: true,
            is_complete: false,
            has_begun: false,
            waits_for_client: false,
            taken: Taken::default(),
            weight: Weight::default(),
        }
    }

    /// The same, ended as the protocol wants it.
    #[inline]
    pub(super) fn framed(self, framing: Framing) -> Upload {
        Upload { framing, ..self }
    }

    /// A request with content.
    pub(super) fn with_body(head: Vec<u8>, body: RequestBody, framing: Framing) -> Upload {
        Upload { source: Source::Client(body), framing, ..Upload::whole(head) }
    }

    /// The same, with what may come behind its content.
    pub(super) fn with_trailers(self, rules: Rc<RequestTrailers>) -> Upload {
        Upload { trailers: Some(rules), ..self }
    }

    /// A request whose content lies in a file.
    pub(super) fn with_spilled(head: Vec<u8>, spilled: Spilled, framing: Framing) -> Upload {
        Upload { source: Source::Spilled(spilled), framing, ..Upload::whole(head) }
    }

    /// Waits until all content is here, or more than `limit` bytes of it, so that a slow client does not hold
    /// the application. Of content that is announced to be longer it waits for the beginning only. A spilled file is
    /// here already.
    pub(super) async fn collect(&mut self, limit: usize) -> Result<(), RequestBodyError> {
        while let Source::Client(body) = &mut self.source {
            if self.out.len() > limit.saturating_add(AHEAD) || self.piece.len() > limit {
                break;
            }
            // More than fits in any case is not waited for, once it has begun to come.
            if body.len.is_some_and(|len| len > limit as u64) && !self.piece.is_empty() {
                break;
            }
            // Where memory is short the application gets it as it comes.
            if !memory::take(AHEAD) {
                break;
            }
            let read = body.read(&mut self.piece).await?;
            self.weight.set(self.out.capacity() + self.piece.capacity());
            if read == 0 {
                let piece = std::mem::take(&mut self.piece);
                self.frame(&piece);
                self.end();
            }
        }
        Ok(())
    }

    /// The memory of what has been sent, empty, once all of it has. It cannot be sent once more then.
    pub(super) fn take_memory(&mut self) -> Vec<u8> {
        if !self.is_complete {
            return Vec::new();
        }
        self.is_whole = false;
        self.at = 0;
        self.out.clear();
        std::mem::take(&mut self.out)
    }

    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        self.out.capacity() + self.piece.capacity()
    }

    /// Whether content is still to come from the client.
    #[inline]
    pub(super) fn waits_for_content(&self) -> bool {
        matches!(self.source, Source::Client(_))
    }

    /// Whether it could be sent once more from the start.
    pub(super) fn is_repeatable(&self) -> bool {
        self.is_whole
    }

    /// What is sent next, from the start of the head on where nothing is sent.
    pub(super) fn unsent(&mut self) -> &mut [u8] {
        self.out.get_mut(self.at..).unwrap_or_default()
    }

    /// Begins anew.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
        (self.is_complete, self.has_begun) = (false, false);
        self.taken = Taken::default();
    }

    /// Whether anything of it was sent since it began: otherwise nobody can have begun with it.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether all was sent.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether it is the client that keeps the application waiting.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client
    }

    /// Sends what there is. Ready when all of it is sent.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
    ) -> Poll<Result<(), UploadError>> {
        self.waits_for_client = false;
        loop {
            while self.at < self.out.len() {
                match connection.poll_send(cx, self.out.get(self.at..).unwrap_or_default()) {
                    Poll::Ready(Ok(sent)) => {
                        self.at += sent;
                        self.taken.add(sent);
                        self.has_begun |= sent > 0;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(UploadError::Application(error))),
                    Poll::Pending => {
                        self.taken.waits_for_room();
                        return Poll::Pending;
                    }
                }
            }
            if matches!(self.source, Source::None) && self.piece.is_empty() {
                self.is_complete = true;
                if self.framing == Framing::LengthAndEnd {
                    // What comes of it shows when the answer is read.
                    let _ = connection.finish_sending();
                }
                return Poll::Ready(Ok(()));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(UploadError::Client(error))),
                Poll::Pending => {
                    self.waits_for_client = true;
                    return Poll::Pending;
                }
            }
        }
    }

    /// Frames the next piece of content in place of what has been sent.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestBodyError>> {
        let mut piece = std::mem::take(&mut self.piece);
        let mut is_end = false;
        if piece.is_empty() {
            let count = match &mut self.source {
                Source::None => Poll::Ready(Ok(0)),
                Source::Client(body) => body.poll_read(&mut piece),
                Source::Spilled(spilled) => spilled.poll_read(cx, &mut piece),
            };
            match count {
                Poll::Ready(Ok(count)) => is_end = count == 0,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.is_whole = false;
        self.out.clear();
        self.at = 0;
        self.frame(&piece);
        piece.clear();
        if is_end {
            self.end();
        }
        Poll::Ready(Ok(()))
    }

    fn frame(&mut self, piece: &[u8]) {
        match self.framing {
            Framing::Length | Framing::LengthAndEnd => self.out.extend_from_slice(piece),
            Framing::FastCgi => fastcgi::append_stdin(&mut self.out, REQUEST, piece),
            Framing::Chunked => {
                if NonZeroUsize::new(piece.len()).is_some() {
                    h1::append_chunk(&mut self.out, piece);
                }
            }
        }
    }

    fn end(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::None);
        match self.framing {
            Framing::Length | Framing::LengthAndEnd => {}
            Framing::FastCgi => fastcgi::end_stdin(&mut self.out, REQUEST),
            Framing::Chunked => {
                let trailers = match (source, &self.trailers) {
                    (Source::Client(mut body), Some(rules)) => rules.pass(&body.take_trailers()),
                    _ => FieldLines::new(),
                };
                h1::end_of_chunks(&mut self.out, trailers.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_a_sign_of_life_and_what_lies_in_buffers_is_not() {
        let mut taken = Taken::default();
        taken.add(60_000);
        assert!(!taken.is_alive());
        taken.add(6_000);
        assert!(taken.is_alive() && !taken.is_alive());
        taken.waits_for_room();
        assert!(!taken.is_alive());
        taken.add(1);
        assert!(taken.is_alive());
        taken.add(1);
        assert!(!taken.is_alive());
    }

    #[test]
    fn what_the_kernel_gets_rid_of_is_a_sign_of_life() {
        let mut taken = Taken::default();
        let unasked = || panic!("the kernel holds too little");
        assert!(!taken.has_drained(unasked));
        taken.leaves(300_000);
        assert!(taken.has_drained(|| 200_000) && taken.has_drained(|| 100_000));
        assert!(!taken.has_drained(|| 100_000), "it has taken nothing since");
        assert!(!taken.has_drained(|| 40_000), "so much may go into other buffers");
        assert!(!taken.has_drained(unasked));
        taken.leaves(100_000);
        assert!(!taken.has_drained(|| 150_000), "more was sent");
        assert!(taken.has_drained(|| 0));
    }
}
