//! A response on its way out, whatever the protocol: where its content comes from, how much of it is still to come, and
//! what is counted at its end.
//!
//! [`Framer`] is what a protocol has to do with it: frame the head, say how much may be sent, frame content, and end the
//! message with or without trailers. HTTP/1 (`stream`) and HTTP/2 (`h2/send`) each have one. What moves content without
//! framing it byte by byte (files, pipes, shared messages) is theirs alone.

use super::Request;
use super::send::{Done, Told, tally};
use crate::admission;
use crate::body::BodySink;
use crate::body_stream::{BodyStream, Chunk};
use crate::context::Ctx;
use crate::rate::Pace;
use crate::response::{Author, Body, FilePiece, Head, Message, Part, Response};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tidegate_http::{FieldLines, Status};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::pipe::Pipe;
use tidegate_io::shared_bytes::SharedPiece;
use tidegate_stats::Elapsed;
use tidegate_stats::series::Phase;

/// What is logged for a client that left before it was answered, as nginx does; never sent.
pub(super) const CLIENT_CLOSED: Status = Status(499);

/// Room in front of content for what a framer puts there.
pub(super) const FRONT: usize = 18;
/// Room behind it.
pub(super) const BACK: usize = 2;

/// A response under way. `F` is what its protocol remembers of the framing.
pub(super) struct Output<F> {
    pub(super) status: Status,
    pub(super) source: Source,
    /// Bytes of content still to come; `None` where nobody knows.
    pub(super) left: Option<u64>,
    /// Trailers may come behind the last of them.
    pub(super) has_trailers: bool,
    pub(super) framing: F,
    pub(super) extras: Option<Box<Extras>>,
    has_begun: bool,
    /// Content that has come where an end might have, and for which there was no room.
    early_byte: Option<u8>,
    /// Bytes of the head, and of what frames content where that counts as sent: no content.
    overhead: u32,
    /// Bytes of head and content that have left the source.
    pub(super) sent: u64,
    /// A file could not be read as far as was announced.
    pub(super) is_cut: bool,
    pub(super) timing: Timing,
}

/// What few responses have, in a box: each download under way has room for the rest.
#[derive(Default)]
pub(super) struct Extras {
    /// How fast it is sent; `None`: as fast as the client takes it.
    pace: Option<Box<Pace>>,
    /// Takes what the client sends, where the response opens a tunnel; until the request does.
    tunnel: Option<BodySink>,
    /// For a log that shows fields of responses.
    fields: Option<FieldLines>,
    /// HTTP/1: content on its way from socket to socket.
    pub(super) pipe: Option<Pipe>,
}

impl Extras {
    /// Whether its pace is not the client's.
    pub(super) fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    /// Bytes of memory that it holds, itself included.
    fn held(&self) -> usize {
        let pace = self.pace.as_ref().map_or(0, |pace| pace.held());
        size_of::<Extras>() + pace + self.fields.as_ref().map_or(0, FieldLines::capacity)
    }
}

/// What is timed of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// All of it: what is sent in one step has no first byte of its own.
    Whole,
    /// The time to its first byte was counted already.
    FirstByte,
    /// Nothing: it goes on for as long as somebody listens ([`Author::Live`]).
    Live,
    /// The same, and the time to its first byte was counted already.
    LiveFirstByte,
}

impl Timing {
    pub(super) fn has_first_byte(self) -> bool {
        matches!(self, Timing::FirstByte | Timing::LiveFirstByte)
    }

    pub(super) fn is_live(self) -> bool {
        matches!(self, Timing::Live | Timing::LiveFirstByte)
    }
}

/// Where content comes from.
pub(super) enum Source {
    None,
    /// The response is still being made.
    Later(admission::Later),
    /// Made, and kept back for who has got the place that its making took.
    Made(Box<Response>),
    /// Of known length.
    Pieces(Pieces),
    Stream(Box<dyn BodyStream>),
}

/// What lies there to be sent, piece by piece.
pub(super) struct Pieces {
    now: Option<Piece>,
    rest: std::vec::IntoIter<Part>,
}

/// With how much of it has left.
pub(super) enum Piece {
    Bytes(Vec<u8>, usize),
    /// The body of a shared message.
    Message(Rc<Message>, usize),
    Shared(SharedPiece),
    File(FilePiece),
}

/// The head of a response, as far as protocols differ in how they write it.
pub(super) struct HeadParts<'r> {
    pub status: Status,
    pub head: &'r Head,
    /// Bytes of content, where they are known and the status has any.
    pub len: Option<u64>,
    pub server: Option<&'r str>,
    /// Wall clock, seconds, and the same as `Date` has it.
    pub now: i64,
    /// `None` where the head has one.
    pub date: Option<&'r [u8; 29]>,
}

/// How a protocol puts a message on the wire.
pub(super) trait Framer {
    /// The last frame of content can say that it is the last.
    const MARKS_LAST: bool;
    /// What frames content is counted among the bytes that are sent.
    const COUNTS_FRAMING: bool;

    /// Appends the head. `is_end`: nothing follows.
    fn head(&mut self, parts: &HeadParts<'_>, is_end: bool, out: &mut Vec<u8>);

    /// Bytes of content that one frame may have now.
    fn room(&self) -> usize;

    /// Frames `count` bytes of content, at least one and at most [`Framer::room`], which lie at [`FRONT`] in `buffer`: where
    /// the frame lies in it.
    fn data(&mut self, buffer: &mut [u8], count: usize, is_last: bool) -> io::Result<Range<usize>>;

    /// Ends the message behind its content, with these fields where the framing has a place for them.
    fn trailers(&mut self, lines: &FieldLines, out: &mut Vec<u8>);
}

/// A step of a stream.
pub(super) enum Step {
    /// It has nothing yet.
    Waiting,
    /// Content, framed, in the buffer.
    Framed(Range<usize>),
    /// The message has been ended.
    Ended,
}

impl<F: Default> Output<F> {
    /// A response of which nothing is known yet.
    #[inline]
    pub(super) fn unbegun() -> Output<F> {
        Output::of(Source::None)
    }

    #[inline]
    fn of(source: Source) -> Output<F> {
        Output {
            status: Status::OK,
            source,
            left: None,
            has_trailers: false,
            framing: F::default(),
            extras: None,
            has_begun: false,
            early_byte: None,
            overhead: 0,
            sent: 0,
            is_cut: false,
            timing: Timing::Whole,
        }
    }

    /// A response that found nobody.
    pub(super) fn unsent() -> Output<F> {
        Output { status: CLIENT_CLOSED, ..Output::unbegun() }
    }

    /// A response that is still being made.
    pub(super) fn later(later: admission::Later) -> Output<F> {
        Output::of(Source::Later(later))
    }

    /// A response of which so many bytes have left, the first of them its head.
    #[inline]
    pub(super) fn begun(status: Status, head: usize, sent: usize) -> Output<F> {
        Output { status, has_begun: true, overhead: head as u32, sent: sent as u64, ..Output::unbegun() }
    }
}

impl<F> Output<F> {
    /// With this content, still to be sent.
    #[inline]
    pub(super) fn take_body(&mut self, body: Body) {
        self.left = body.len();
        self.has_trailers = matches!(body, Body::Stream { has_trailers: true, .. });
        self.source = match body {
            Body::Empty => Source::None,
            Body::Bytes(bytes) => Source::Pieces(Pieces::one(Piece::Bytes(bytes, 0))),
            Body::Prebuilt(message) => Source::Pieces(Pieces::one(Piece::Message(message, 0))),
            Body::Shared(piece) if piece.is_empty() => Source::None,
            Body::Shared(piece) => Source::Pieces(Pieces::one(Piece::Shared(piece))),
            Body::File(piece) if piece.is_empty() => Source::None,
            Body::File(piece) => Source::Pieces(Pieces::one(Piece::File(piece))),
            Body::Parts(parts) => Source::Pieces(Pieces::of(parts)),
            Body::Stream { stream, .. } => Source::Stream(stream),
            Body::Tunnel { stream, sink } => {
                self.expect_tunnel(Some(sink));
                Source::Stream(stream)
            }
        };
    }

    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        let source = match &self.source {
            Source::Pieces(pieces) => pieces.held(),
            Source::Stream(stream) => stream.held(),
            Source::Later(later) => later.held(),
            Source::Made(response) => response.held(),
            Source::None => 0,
        };
        source + self.extras.as_ref().map_or(0, |extras| extras.held())
    }

    /// How fast it is sent, where that is not as fast as the client takes it.
    #[inline]
    pub(super) fn pace(&self) -> Option<&Pace> {
        self.extras.as_ref()?.pace.as_deref()
    }

    #[inline]
    fn pace_mut(&mut self) -> Option<&mut Pace> {
        self.extras.as_mut()?.pace.as_deref_mut()
    }

    /// Sent as fast as this, from here on.
    #[inline]
    pub(super) fn keep_pace(&mut self, pace: Option<Box<Pace>>) {
        if pace.is_some() {
            self.extras.get_or_insert_default().pace = pace;
        }
    }

    /// Nothing is on its way from socket to socket.
    pub(super) fn give_up_pipe(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.pipe = None;
        }
    }

    /// With the fields of its head, for a log that shows some.
    #[inline]
    pub(super) fn show_fields(&mut self, fields: Option<FieldLines>) {
        if fields.is_some() {
            self.extras.get_or_insert_default().fields = fields;
        }
    }

    /// How many bytes of content may be sent now; the waker is woken when it may be more.
    #[inline]
    pub(super) fn poll_pace(&mut self, waker: &Waker) -> Poll<u64> {
        let left = self.left;
        match self.pace_mut() {
            None => Poll::Ready(u64::MAX),
            Some(pace) => pace.poll(left, &mut Context::from_waker(waker)),
        }
    }

    /// How fast the kernel is to send it, where it is to be told.
    pub(super) fn spread(&mut self) -> Option<u64> {
        self.pace_mut().and_then(Pace::spread)
    }

    /// Whether the kernel was told so, and is to be let go.
    pub(super) fn ends_spreading(&mut self) -> bool {
        self.pace_mut().is_some_and(Pace::ends_spreading)
    }

    /// So many bytes of it have been sent.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        if let Some(pace) = self.pace_mut() {
            pace.spend(bytes);
        }
    }

    /// Something else than its part of a bandwidth is waited for.
    pub(super) fn interrupt(&mut self) {
        if let Some(pace) = self.pace_mut() {
            pace.interrupt();
        }
    }

    /// Whether it waits for its part of a bandwidth, and not for the client.
    pub(super) fn is_held_up(&self) -> bool {
        self.pace().is_some_and(Pace::is_waiting)
    }

    /// What is being done for it, in a word.
    pub(super) fn phase(&self) -> &'static str {
        match &self.source {
            Source::Later(later) => later.phase(),
            Source::Made(_) => "answering",
            Source::None | Source::Pieces(_) | Source::Stream(_) => "sending",
        }
    }

    /// Whether it is still being made.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(&self.source, Source::Later(_))
    }

    /// Whether it waits for a place to be made at.
    pub(super) fn is_queued(&self) -> bool {
        matches!(&self.source, Source::Later(later) if later.is_queued())
    }

    /// Whether an answer that is still being made is given up with its client.
    pub(super) fn ends_with_client(&self) -> bool {
        matches!(&self.source, Source::Later(later) if later.ends_with_client())
    }

    /// Whether that is so already when the client has finished sending.
    pub(super) fn ends_when_finished(&self) -> bool {
        matches!(&self.source, Source::Later(later) if later.ends_when_finished())
    }

    /// Whether any of it may have been sent.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Content is on its way.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.source, Source::Pieces(_) | Source::Stream(_))
    }

    /// Whether its end or trailers may come next, for which no framing needs room. Of what has no known length nobody
    /// knows before it is asked.
    #[inline]
    pub(super) fn may_end(&self) -> bool {
        let may = matches!(self.left, None | Some(0)) && self.early_byte.is_none();
        may && matches!(self.source, Source::Stream(_))
    }

    /// Counts bytes that were sent and are no content.
    #[inline]
    pub(super) fn count_overhead(&mut self, bytes: usize) {
        self.overhead = self.overhead.saturating_add(bytes as u32);
    }

    /// Whether content has come where an end might have.
    pub(super) fn has_early_byte(&self) -> bool {
        self.early_byte.is_some()
    }

    /// Whether all of it is out of its source.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.source, Source::None)
    }

    /// With what takes the bytes of the client, where the body does not say it.
    pub(super) fn expect_tunnel(&mut self, tunnel: Option<BodySink>) {
        if tunnel.is_some() {
            self.extras.get_or_insert_default().tunnel = tunnel;
        }
    }

    /// What takes the bytes of the client from now on.
    pub(super) fn take_tunnel(&mut self) -> Option<BodySink> {
        self.extras.as_mut()?.tunnel.take()
    }

    /// The client is gone before it was answered.
    pub(super) fn give_up(&mut self) {
        if !self.has_begun {
            self.status = CLIENT_CLOSED;
        }
    }

    /// Counts the time to the first byte of a response that takes several steps: as soon as its head is ready to be sent.
    #[inline]
    pub(super) fn time_first_byte(&mut self, cx: &Ctx, request: &Request) {
        if self.has_begun && !self.is_complete() && !self.timing.has_first_byte() {
            self.timing = if self.timing.is_live() { Timing::LiveFirstByte } else { Timing::FirstByte };
            let elapsed = Elapsed::nanos(monotonic_ns().saturating_sub(request.started));
            cx.stats.series.took(request.series, Phase::FirstByte, elapsed);
        }
    }

    /// Notes whose words these are, as soon as its head is made.
    #[inline]
    pub(super) fn note_author(&mut self, author: Author) {
        if author == Author::Live {
            self.timing = Timing::Live;
        }
    }

    /// Exactly once for each response: counters, histogram, access line.
    #[inline]
    pub(super) fn count(&self, cx: &mut Ctx, told: Told<'_>, request: &Request) {
        tally(
            cx,
            told,
            request,
            &Done {
                status: self.status,
                sent: self.sent,
                overhead: self.overhead.into(),
                is_cut: self.is_cut,
                timing: self.timing,
                fields: self.extras.as_ref().and_then(|extras| extras.fields.as_ref()),
            },
        );
    }

    /// Pulls the stream and frames what it gives: content stays in `buffer`, the end is appended to `out`. Without room
    /// nothing is pulled but what may be the end. An error cuts the message short: the client must see that it broke.
    pub(super) fn pull<M: Framer>(
        &mut self,
        framer: &mut M,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        out: &mut Vec<u8>,
    ) -> io::Result<Step> {
        let may_end = self.may_end();
        let Source::Stream(source) = &mut self.source else { return Ok(Step::Ended) };
        let paced = self.extras.as_ref().and_then(|extras| extras.pace.as_ref());
        let paced = paced.map_or(u64::MAX, |pace| pace.allowance());
        let room = framer.room().min(buffer.len().saturating_sub(FRONT + BACK));
        let room = usize::try_from(paced).map_or(room, |paced| room.min(paced));
        if let Some(byte) = self.early_byte.filter(|_| room > 0) {
            buffer[FRONT] = byte;
            self.early_byte = None;
            return framer.data(buffer, 1, false).map(Step::Framed);
        }
        let is_for_end = room == 0;
        if is_for_end && !may_end {
            return Ok(Step::Waiting);
        }
        let Some(place) = buffer.get_mut(FRONT..FRONT + room.max(1)) else { return Ok(Step::Waiting) };
        let chunk = match source.poll_chunk(cx, place) {
            Poll::Pending => return Ok(Step::Waiting),
            Poll::Ready(Ok(chunk)) => chunk,
            // All that was announced is here: what becomes of its source now is nothing to the client.
            Poll::Ready(Err(_)) if self.left == Some(0) => Chunk::End,
            Poll::Ready(Err(error)) => return Err(error),
        };
        let count = chunk.len();
        if let Some(left) = &mut self.left {
            // It gives more or less than it has announced.
            let after = left.checked_sub(count as u64).ok_or(io::ErrorKind::InvalidData)?;
            if count == 0 && after > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            *left = after;
        }
        let lines = match chunk {
            Chunk::Data(_) if is_for_end => {
                self.early_byte = buffer.get(FRONT).copied();
                return Ok(Step::Waiting);
            }
            Chunk::Data(_) => {
                let is_last = M::MARKS_LAST && self.left == Some(0) && !self.has_trailers;
                if is_last {
                    self.source = Source::None;
                }
                let framed = framer.data(buffer, count, is_last)?;
                if M::COUNTS_FRAMING {
                    self.count_overhead(framed.len().saturating_sub(count));
                }
                return Ok(Step::Framed(framed));
            }
            Chunk::Trailers(lines) => lines,
            Chunk::End => FieldLines::new(),
        };
        framer.trailers(&lines, out);
        self.source = Source::None;
        Ok(Step::Ended)
    }
}

impl Pieces {
    /// A single one.
    #[inline]
    pub(super) fn one(piece: Piece) -> Pieces {
        Pieces { now: Some(piece), rest: Vec::new().into_iter() }
    }

    fn of(parts: Vec<Part>) -> Pieces {
        let mut pieces = Pieces { now: None, rest: parts.into_iter() };
        pieces.next();
        pieces
    }

    /// The piece whose turn it is; `None` behind the last.
    #[inline]
    pub(super) fn now(&mut self) -> Option<&mut Piece> {
        self.now.as_mut()
    }

    /// Goes on with the next one, and gives back the one before.
    pub(super) fn next(&mut self) -> Option<Piece> {
        let next = self.rest.next().map(|part| match part {
            Part::Bytes(bytes) => Piece::Bytes(bytes, 0),
            Part::Shared(piece) => Piece::Shared(piece),
            Part::File(piece) => Piece::File(piece),
        });
        std::mem::replace(&mut self.now, next)
    }

    /// Whether the next bytes are those of a file.
    pub(super) fn is_at_file(&self) -> bool {
        matches!(self.now, Some(Piece::File(_)))
    }

    /// Whether the next bytes are sent from memory that others send from as well.
    pub(super) fn is_at_shared(&self) -> bool {
        matches!(self.now, Some(Piece::Shared(_)))
    }

    /// Whether bytes are left that are made for this response.
    pub(super) fn is_at_bytes(&self) -> bool {
        matches!(self.now, Some(Piece::Bytes(..)))
    }

    /// Bytes of memory that it holds; of a message what falls to each of those that share it. The cache is one of them until
    /// it has let go of the message: then those who read it slowly hold all of it.
    fn held(&self) -> usize {
        let now = match &self.now {
            Some(Piece::Bytes(bytes, _)) => bytes.capacity(),
            Some(Piece::Message(message, _)) => message.footprint() / Rc::strong_count(message),
            Some(Piece::Shared(_) | Piece::File(_)) | None => 0,
        };
        now + self.rest.as_slice().iter().map(Part::held).sum::<usize>()
    }
}
