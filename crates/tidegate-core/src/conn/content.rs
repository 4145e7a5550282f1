//! Content of a request over HTTP/1: decoded as it arrives and given to whoever reads it, or dropped within a limit.

use super::deadlines::Timer;
use super::{Connection, DECODED_PER_TURN, Request, Work};
use crate::body::{BodySink, RequestBodyError};
use crate::context::Ctx;
use crate::limits::say_too_large;
use crate::log;
use std::io;
use tidegate_http::{FieldLines, Status};
use tidegate_stats::ParseError;
use tidegate_wire::h1::{self, BodyDecoder, BodyError};

/// Content of a request that is still arriving.
pub(super) enum Incoming {
    /// A handler reads it. `about` is what the log says of the request where it turns out to be too much.
    Pipe { decoder: BodyDecoder, sink: BodySink, received: u64, about: Option<Box<str>> },
    /// Not content of a request at all: what a client sends through a tunnel.
    Tunnel(BodySink),
    /// Nobody does: read and dropped to keep the connection, within a limit.
    Discard { decoder: BodyDecoder, left: u64 },
}

impl Incoming {
    /// Bytes held for the handler.
    pub(super) fn held(&self) -> usize {
        match self {
            Incoming::Pipe { sink, .. } | Incoming::Tunnel(sink) => sink.held(),
            Incoming::Discard { .. } => 0,
        }
    }

    /// Whether bytes from the client are waited for, and not a handler that has enough for now.
    pub(super) fn wants_more(&self) -> bool {
        match self {
            Incoming::Pipe { sink, .. } => sink.room() > 0 && sink.is_wanted() && sink.has_reader(),
            Incoming::Tunnel(sink) => sink.room() > 0 && sink.has_reader(),
            Incoming::Discard { .. } => true,
        }
    }

    /// Whether the handler that it is for has let go of it.
    fn is_left(&self) -> bool {
        matches!(self, Incoming::Pipe { sink, .. } if !sink.has_reader())
    }

    /// Whether a client that sends too slowly is given up. One that has nothing to say in a tunnel is not.
    pub(super) fn has_least_rate(&self) -> bool {
        !matches!(self, Incoming::Tunnel(_))
    }
}

impl Connection {
    pub(super) fn is_receiving(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.incoming.is_some())
    }

    /// Whether reading goes on while a response is under way.
    pub(super) fn takes_more(&self) -> bool {
        let incoming = self.work.as_ref().and_then(|work| work.incoming.as_deref());
        incoming.is_some_and(Incoming::wants_more) && (self.readable || !self.input.is_empty())
    }

    /// Tells the handler that the content will not be complete.
    pub(super) fn fail_receiving(&mut self, error: RequestBodyError) {
        let incoming = self.work.as_mut().and_then(|work| work.incoming.take());
        if let Some(Incoming::Pipe { sink, .. }) = incoming.map(|incoming| *incoming) {
            sink.fail(error);
        }
    }

    /// The client has finished sending.
    pub(super) fn on_end(&mut self) {
        let incoming = self.work.as_mut().and_then(|work| work.incoming.as_deref_mut());
        if let Some(Incoming::Tunnel(sink)) = incoming {
            sink.complete(FieldLines::new());
        } else if self.is_receiving() {
            self.fail_receiving(RequestBodyError::Interrupted);
            self.keep_alive = false;
        }
    }

    /// What becomes of announced content after the handler has seen the request.
    pub(super) fn receive_content(
        &mut self,
        cx: &mut Ctx,
        decoder: BodyDecoder,
        sink: Option<BodySink>,
        about: Option<Box<str>>,
        request: &Request,
    ) -> Option<Box<Incoming>> {
        match sink {
            Some(sink) if sink.has_reader() => {
                Some(Box::new(Incoming::Pipe { decoder, sink, received: 0, about }))
            }
            _ => self.discard(cx, decoder, request.expects_continue),
        }
    }

    /// Content that nobody reads: dropped to keep the connection, where that is safe and not too much.
    fn discard(&mut self, cx: &Ctx, decoder: BodyDecoder, expects_continue: bool) -> Option<Box<Incoming>> {
        let left = self.limits(&cx.engine).discard_size;
        // Whether a client that was told the answer instead of `100 Continue` still sends its content is its
        // choice; what follows could be content or a request, so nothing more is read as one.
        if expects_continue || !self.keep_alive || decoder.remaining().is_some_and(|length| length > left) {
            (self.keep_alive, self.unread) = (false, true);
            return None;
        }
        Some(Box::new(Incoming::Discard { decoder, left }))
    }

    /// The response is there: content that its handler has let go of is dropped from here on; content that
    /// the response goes on reading is asked for, before the client takes the answer for a refusal.
    pub(super) fn settle_content(&mut self, cx: &mut Ctx) {
        let most = self.limits(&cx.engine).discard_size;
        let Some(work) = &mut self.work else { return };
        let mut incoming = work.incoming.take();
        match incoming.take_if(|incoming| incoming.is_left()).map(|incoming| *incoming) {
            Some(Incoming::Pipe { decoder, received, .. }) => {
                // More has come than is dropped, and who knows how much will: the answer can still say so.
                let is_too_much = decoder.remaining().is_none() && !decoder.is_complete() && received > most;
                let expects_continue = work.request.expects_continue || is_too_much;
                let incoming = self.discard(cx, decoder, expects_continue);
                if let Some(work) = &mut self.work {
                    work.incoming = incoming;
                }
            }
            _ => {
                if incoming.is_some() && std::mem::take(&mut work.request.expects_continue) {
                    cx.stats.responses.add(Status::CONTINUE.0);
                    self.batch.extend_from_slice(h1::CONTINUE);
                }
                work.incoming = incoming;
            }
        }
    }

    /// The response is sent: nobody reads content after it.
    pub(super) fn end_content(&mut self, cx: &mut Ctx) {
        let Some(work) = &mut self.work else { return };
        let is_read = |incoming: &mut Box<Incoming>| matches!(**incoming, Incoming::Pipe { .. });
        let read = work.incoming.take_if(is_read).map(|incoming| *incoming);
        if let Some(Incoming::Pipe { decoder, sink, .. }) = read {
            sink.fail(RequestBodyError::Interrupted);
            let incoming = self.discard(cx, decoder, false);
            if let Some(work) = &mut self.work {
                work.incoming = incoming;
            }
        }
    }

    /// Gives arriving bytes to the content of the present request. Returns the bytes used.
    pub(super) fn feed(&mut self, cx: &mut Ctx, data: &[u8]) -> io::Result<usize> {
        let most = self.limits(&cx.engine).body_size;
        let mut at = 0;
        while at < data.len() && cx.decoded < DECODED_PER_TURN {
            let Some(Work { request, incoming: Some(incoming), .. }) = self.work.as_deref_mut() else {
                break;
            };
            let room = incoming.room();
            if room == 0 {
                break; // the handler is behind, or has not said yet what becomes of it; the kernel holds the rest
            }
            let piece = &data[at..data.len().min(at.saturating_add(room))];
            cx.decoded += 1;
            match incoming.take(piece, most) {
                Ok((used, content)) => {
                    at += used;
                    self.window = self.window.wrapping_add(content as u32); // the framing of chunks is no progress
                    request.received += used as u64;
                }
                Err(refusal) => {
                    (self.keep_alive, self.unread) = (false, true);
                    self.refuse_content(cx, refusal)?;
                    return Ok(data.len());
                }
            }
            if incoming.is_complete()
                && let Some(work) = &mut self.work
            {
                work.incoming = None;
                if self.timer == Timer::Body {
                    self.timer = Timer::Off; // the next content begins with all of its time
                }
                if work.output.is_none() {
                    self.work = None;
                    self.end_if_idle_ends(cx);
                }
            }
        }
        Ok(at)
    }

    fn refuse_content(&mut self, cx: &mut Ctx, refusal: Refusal) -> io::Result<()> {
        let (status, error) = match refusal {
            Refusal::Malformed(error) => {
                cx.stats.parse_errors.add(ParseError::Chunk, 1);
                log::info(format_args!("400 for {}: {error}, in the content of a request", self.peer));
                (Status::BAD_REQUEST, RequestBodyError::Malformed)
            }
            Refusal::TooLarge => {
                cx.stats.parse_errors.add(ParseError::BodyTooLarge, 1);
                let incoming = self.work.as_ref().and_then(|work| work.incoming.as_deref());
                if let Some(Incoming::Pipe { about: Some(about), .. }) = incoming {
                    say_too_large(self.limits(&cx.engine), about);
                }
                (Status::CONTENT_TOO_LARGE, RequestBodyError::TooLarge)
            }
            Refusal::TooMuchToDiscard => (Status::CONTENT_TOO_LARGE, RequestBodyError::TooLarge),
        };
        self.fail_receiving(error);
        match &mut self.work {
            Some(work) if work.output.as_ref().is_some_and(|output| !output.has_begun()) => {
                self.refuse(cx, status, None, false)
            }
            Some(work) => {
                work.incoming = None;
                if work.output.is_none() {
                    self.work = None;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Incoming {
    /// Bytes that may be taken now.
    fn room(&self) -> usize {
        match self {
            Incoming::Pipe { sink, .. } | Incoming::Tunnel(sink) if !sink.has_reader() => 0,
            Incoming::Pipe { sink, .. } | Incoming::Tunnel(sink) => sink.room(),
            Incoming::Discard { .. } => usize::MAX,
        }
    }

    fn is_complete(&self) -> bool {
        match self {
            Incoming::Pipe { decoder, .. } | Incoming::Discard { decoder, .. } => decoder.is_complete(),
            Incoming::Tunnel(_) => false,
        }
    }

    /// Decodes the front of `data`, which is not empty; the bytes used, and those of content among them.
    fn take(&mut self, data: &[u8], limit: u64) -> Result<(usize, usize), Refusal> {
        let decoder = match self {
            Incoming::Pipe { decoder, .. } | Incoming::Discard { decoder, .. } => decoder,
            Incoming::Tunnel(sink) => {
                sink.push(data);
                return Ok((data.len(), data.len()));
            }
        };
        let decoded = decoder.decode(data).map_err(Refusal::Malformed)?;
        match self {
            Incoming::Pipe { decoder, sink, received, .. } => {
                *received += decoded.data.len() as u64;
                if *received > limit {
                    return Err(Refusal::TooLarge);
                }
                sink.push(decoded.data);
                if decoder.is_complete() {
                    let mut lines = FieldLines::new();
                    if let Some(trailers) = decoder.take_trailers() {
                        lines.append_lines(trailers.as_lines());
                    }
                    sink.complete(lines);
                }
            }
            Incoming::Tunnel(_) => {}
            Incoming::Discard { left, .. } => {
                *left = left.checked_sub(decoded.consumed as u64).ok_or(Refusal::TooMuchToDiscard)?;
            }
        }
        Ok((decoded.consumed, decoded.data.len()))
    }
}

/// Why content is not read to its end.
enum Refusal {
    Malformed(BodyError),
    TooLarge,
    TooMuchToDiscard,
}
