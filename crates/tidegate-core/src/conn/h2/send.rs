//! Writing: responses to frames in the batch, stream by stream, a frame at a time.
//!
//! What is small is complete at once. The rest waits where it comes from (a file, a shared message, a
//! stream) and is moved when the client's windows, the socket and its turn allow it; so what a slow client
//! costs does not depend on what it has asked for.

use super::super::Connection;
use super::super::send::{Done, tally};
use super::super::{CLIENT_CLOSED, Request};
use super::receive::{BATCH_MAX, end_stream, push_interim};
use super::{Http2, Incoming, StreamWork};
use crate::admission;
use crate::answer;
use crate::body::BodySink;
use crate::body_stream::{BodyStream, Chunk};
use crate::context::Ctx;
use crate::log::{Entry, Sink};
use crate::response::{Body, FilePiece, Head, Message, Part, Response};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tidegate_http::FieldLines;
use tidegate_http::Status;
use tidegate_io::{Key, file, runtime};
use tidegate_stats::StreamReset;
use tidegate_wire::h2::{ErrorCode, FRAME_HEADER, FieldSource, ResponseParts, StreamKey};

/// Bytes of content in one frame, which is also a stream's share of a round.
const FRAME: usize = 16 << 10;
/// Bytes of content moved in one turn of the connection.
const TURN: usize = 1 << 20;

/// A response under way.
pub(super) struct Output {
    status: Status,
    source: Source,
    /// Bytes of content still to come; `None` where nobody knows.
    left: Option<u64>,
    /// Trailers may come behind the last of them.
    has_trailers: bool,
    has_begun: bool,
    /// Bytes of the head.
    head: u32,
    /// Bytes of head and content that have left the source.
    sent: u64,
    /// A file could not be read as far as was announced.
    is_cut: bool,
    /// Takes what the client sends, where the response opens a tunnel; until the stream does.
    tunnel: Option<BodySink>,
    /// For a log that shows fields of responses.
    fields: Option<Box<FieldLines>>,
}

enum Source {
    None,
    /// Still being made.
    Later(admission::Later),
    /// Pieces of known length.
    Pieces {
        now: Piece,
        rest: std::vec::IntoIter<Part>,
    },
    Stream(Box<dyn BodyStream>),
}

enum Piece {
    Bytes(Vec<u8>, usize),
    Message(Rc<Message>, usize),
    File(FilePiece),
}

/// What became of a stream's share.
enum Moved {
    /// A frame, or a step towards one.
    Some,
    /// The source has nothing yet.
    Waiting,
    /// That was the end.
    End,
    /// The source broke.
    Broken,
}

impl Output {
    /// A response that is still being made.
    pub(super) fn later(later: admission::Later) -> Output {
        Output {
            status: Status::OK,
            source: Source::Later(later),
            left: None,
            has_trailers: false,
            has_begun: false,
            head: 0,
            sent: 0,
            is_cut: false,
            tunnel: None,
            fields: None,
        }
    }

    /// Whether an answer that is still being made is given up with its client.
    pub(super) fn ends_with_client(&self) -> bool {
        matches!(&self.source, Source::Later(later) if later.ends_with_client())
    }

    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        let source = match &self.source {
            Source::Pieces { now, rest } => {
                let now = if let Piece::Bytes(bytes, _) = now { bytes.capacity() } else { 0 };
                now + rest.as_slice().iter().map(Part::held).sum::<usize>()
            }
            Source::Stream(stream) => stream.held(),
            Source::Later(later) => later.held(),
            Source::None => 0,
        };
        source + self.fields.as_ref().map_or(0, |fields| fields.as_bytes().len())
    }

    /// Whether any of it was sent.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether all of it is out of its source.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.source, Source::None)
    }

    /// What takes the bytes of the client from now on.
    pub(super) fn take_tunnel(&mut self) -> Option<Incoming> {
        let sink = self.tunnel.take()?;
        Some(Incoming { sink, is_tunnel: true, received: 0, unreleased: 0, is_wide: false })
    }

    /// Content is on its way.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.source, Source::Pieces { .. } | Source::Stream(_))
    }

    /// The client is gone: what is logged for it, as nginx does; never sent.
    pub(super) fn give_up(&mut self) {
        if !self.has_begun {
            self.status = CLIENT_CLOSED;
        }
    }

    pub(super) fn count(&self, cx: &mut Ctx, entry: Option<(Sink, Entry<'_>)>, request: &Request) {
        tally(
            cx,
            entry,
            request,
            &Done {
                status: self.status,
                sent: self.sent,
                head: self.head.into(),
                is_cut: self.is_cut,
                fields: self.fields.as_deref(),
            },
        );
    }
}

/// A tunnel in the words of HTTP/2: what is a 101 to HTTP/1 is a 200 here (RFC 8441 section 5).
#[cold]
fn opened(mut response: Response) -> (Response, Option<BodySink>) {
    response.fields_mut().remove("Sec-WebSocket-Accept");
    let Body::Tunnel { stream, sink } = response.body else { return (response, None) };
    (
        Response {
            status: Status::OK,
            body: Body::Stream { len: None, has_trailers: false, stream },
            ..response
        },
        Some(sink),
    )
}

impl StreamWork {
    /// Exactly once for each response.
    pub(super) fn count(&self, cx: &mut Ctx) {
        let entry = self.record.as_ref().map(|record| (record.sink, record.entry()));
        self.output.count(cx, entry, &self.request);
    }
}

impl Connection {
    /// Begins a response: its head, and as much content as is small and may be sent at once.
    #[inline]
    pub(super) fn start_stream(
        &mut self,
        h2: &mut Http2,
        cx: &mut Ctx,
        stream: StreamKey,
        mut response: Response,
        request: &Request,
    ) -> Output {
        let mut tunnel = None;
        response = cx.admission.unless_busy(response);
        if let Body::Tunnel { .. } = response.body
            && request.is_upgrade
        {
            (response, tunnel) = opened(response);
        } else if matches!(response.body, Body::Tunnel { .. }) || response.status.is_informational() {
            response = answer::error(Status::BAD_GATEWAY); // HTTP/2 switches no protocols like this
        } else if request.is_upgrade && response.status.is_success() {
            response = answer::error(Status::NOT_IMPLEMENTED); // it would be taken for a tunnel
        }
        let status = response.status;
        let len = response.body.len();
        let has_content = status.has_body() && !request.head_only && len != Some(0);
        let begin = h2.batch.len();
        let none = FieldLines::new();
        let parts = ResponseParts {
            status: status.0,
            date: Some(&cx.date),
            server: cx.engine.settings.server_field.as_deref(),
            fields: FieldSource::Lines(&none),
            content_length: len.filter(|_| status.has_body()),
        };
        match &response.head {
            Head::Prebuilt(message) => {
                let parts = ResponseParts {
                    server: parts.server.filter(|_| message.names_server()),
                    fields: FieldSource::Block(message.block()),
                    content_length: None,
                    ..parts
                };
                h2.wire.send_response(stream, &parts, !has_content, &mut h2.batch);
            }
            Head::Fields(lines) | Head::Final(lines) => {
                let parts = ResponseParts { fields: FieldSource::Lines(lines), ..parts };
                h2.wire.send_response(stream, &parts, !has_content, &mut h2.batch);
            }
        }
        let head = h2.batch.len() - begin;
        let mut output = Output {
            status,
            source: Source::None,
            left: len,
            has_trailers: matches!(response.body, Body::Stream { has_trailers: true, .. }),
            has_begun: true,
            head: head as u32,
            sent: head as u64,
            is_cut: false,
            tunnel,
            fields: cx.log.shows_responses().then(|| Box::new(response.head.lines().clone())),
        };
        if !has_content {
            return output;
        }
        let no_more = || Vec::new().into_iter();
        let now = match response.body {
            Body::Empty => return output,
            Body::Bytes(bytes) => Piece::Bytes(bytes, 0),
            Body::Prebuilt(message) => Piece::Message(message, 0),
            Body::File(piece) => Piece::File(piece),
            Body::Parts(parts) => {
                output.source = Source::Pieces { now: Piece::Bytes(Vec::new(), 0), rest: parts.into_iter() };
                h2.wire.set_ready(stream, true);
                return output;
            }
            Body::Stream { stream: source, .. } | Body::Tunnel { stream: source, .. } => {
                output.source = Source::Stream(source);
                h2.wire.set_ready(stream, true);
                return output;
            }
        };
        output.source = Source::Pieces { now, rest: no_more() };
        let is_small =
            output.left.is_some_and(|left| left <= FRAME as u64 && left <= h2.wire.room(stream) as u64);
        let is_at_hand =
            matches!(&output.source, Source::Pieces { now: Piece::Bytes(..) | Piece::Message(..), .. });
        if is_small && is_at_hand && h2.batch.len() < BATCH_MAX && !self.is_stuck() {
            // The common case: one frame, and the stream is done.
            output.advance(h2, stream, None);
        }
        if !output.is_complete() {
            h2.wire.set_ready(stream, true);
        }
        output
    }

    /// Moves on what can move: streams that were woken, and those with content that the client takes. Returns whether
    /// there is more to do without waiting.
    pub(super) fn pump_h2(&mut self, h2: &mut Http2, key: Key, cx: &mut Ctx) -> io::Result<bool> {
        let is_stuck = self.is_stuck() && !self.send_held(false)?;
        self.ask_due(h2, key, cx);
        if !is_stuck && self.send_ready(h2, key, cx)? {
            return Ok(true);
        }
        self.read_ahead(h2, key);
        Ok(false)
    }

    /// Sends of all streams that have content and may send, frame by frame. Whether its share of the turn is used up.
    fn send_ready(&mut self, h2: &mut Http2, key: Key, cx: &mut Ctx) -> io::Result<bool> {
        let mut moved = 0;
        while let Some(stream) = h2.wire.next_ready() {
            let Some(mut work) = h2.remove(stream) else {
                h2.wire.set_ready(stream, false);
                continue;
            };
            let before = h2.batch.len();
            work.reads_ahead = false;
            let waker = work.waker(&mut h2.parts, key);
            let result = work.output.advance(h2, stream, Some(&waker));
            let count = h2.batch.len() - before;
            moved += count;
            work.pace.moves(count);
            h2.moved = h2.moved.saturating_add(count as u32);
            match result {
                // The source may have passed content of the request on: the client may wait for just that.
                Moved::Some => {
                    work.invite(h2, cx);
                    h2.insert(work);
                }
                Moved::Waiting => {
                    h2.wire.set_ready(stream, false);
                    work.invite(h2, cx);
                    h2.insert(work);
                }
                Moved::End => {
                    work.count(cx);
                    end_stream(h2, cx, stream, &work.request);
                }
                Moved::Broken => {
                    cx.stats.http2_resets.add(StreamReset::Unfinished, 1);
                    h2.wire.reset(stream, ErrorCode::INTERNAL_ERROR, &mut h2.batch);
                    work.count(cx);
                }
            }
            if h2.batch.len() >= BATCH_MAX / 2 {
                self.flush_frames(h2)?;
                if self.is_stuck() {
                    return Ok(false);
                }
            }
            if moved >= TURN {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks the streams that were woken, and new ones, for their answers; those that have one send from now on.
    fn ask_due(&mut self, h2: &mut Http2, key: Key, cx: &mut Ctx) {
        let mut due = std::mem::take(&mut h2.due);
        if let Some(parts) = &h2.parts {
            parts.take_woken(&mut due);
        }
        // Who waits for a place gives it up to those who are there.
        if self.peer_closed && !std::mem::replace(&mut h2.has_told_end, true) {
            due = (0..h2.streams.len() as u32).collect();
        }
        for slot in due.drain(..) {
            if let Some(work) = h2.remove_at(slot as usize) {
                self.ask(h2, work, key, cx);
            }
        }
        due.append(&mut h2.due);
        h2.due = due;
    }

    fn ask(&mut self, h2: &mut Http2, mut work: Box<StreamWork>, key: Key, cx: &mut Ctx) {
        work.is_due = false;
        let stream = work.key;
        let waker = work.waker(&mut h2.parts, key);
        let Source::Later(later) = &mut work.output.source else {
            // Woken perhaps; asking is how to find out.
            h2.wire.set_ready(stream, true);
            work.reads_ahead = false;
            work.invite(h2, cx);
            return h2.insert(work);
        };
        let polled = later.poll(&mut Context::from_waker(&waker), self.peer_closed);
        work.request.ends_with_client |= later.ends_with_client();
        let is_told = !self.is_stuck() || polled.is_ready();
        if let Some(interim) = work.interim.as_ref().filter(|_| is_told) {
            push_interim(h2, cx, stream, interim);
        }
        if let Poll::Ready(response) = polled {
            work.invite(h2, cx);
            work.output = self.start_stream(h2, cx, stream, response, &work.request);
            work.incoming = work.incoming.take().or(work.output.take_tunnel());
            if work.output.is_complete() {
                if let Some(incoming) = work.incoming.take() {
                    incoming.sink.fail(crate::body::RequestBodyError::Interrupted);
                }
                work.count(cx);
                return end_stream(h2, cx, stream, &work.request);
            }
        }
        work.invite(h2, cx);
        let is_untold = work.interim.as_ref().is_some_and(|interim| !interim.is_empty());
        h2.insert(work);
        if is_untold {
            h2.make_due(stream.slot()); // it is told as soon as there is room
        }
    }

    /// Tells sources whose content the client does not take, once for each time that they begin to wait, and again when
    /// they were woken.
    fn read_ahead(&mut self, h2: &mut Http2, key: Key) {
        let is_stuck = self.is_stuck();
        let mut at = 0;
        while let Some(&stream) = h2.wire.ready().get(at) {
            at += 1;
            if !is_stuck && h2.wire.room(stream) > 0 {
                continue;
            }
            let Some(work) = h2.streams.get_mut(stream.slot()).and_then(Option::as_deref_mut) else {
                continue;
            };
            if std::mem::replace(&mut work.reads_ahead, true) {
                continue;
            }
            let waker = work.waker(&mut h2.parts, key);
            if let Source::Stream(source) = &mut work.output.source {
                source.poll_ahead(&mut Context::from_waker(&waker));
                h2.weigh_anew(stream.slot());
            }
        }
    }
}

impl Output {
    /// Moves one frame into the batch. Without a waker nothing may wait.
    fn advance(&mut self, h2: &mut Http2, stream: StreamKey, waker: Option<&Waker>) -> Moved {
        let room = h2.wire.room(stream).min(FRAME);
        let moved = match &mut self.source {
            Source::None => return Moved::End,
            Source::Later(_) => return Moved::Waiting,
            Source::Pieces { now, rest } => {
                let left = self.left.unwrap_or(0);
                now.advance(rest, left, room, h2, stream, waker)
            }
            Source::Stream(source) => {
                let Some(waker) = waker else { return Moved::Waiting };
                pull(source.as_mut(), self.left, self.has_trailers, room, h2, stream, waker)
            }
        };
        match moved {
            Ok(Frame::Content { count, is_end }) => {
                self.sent += count as u64;
                self.left = self.left.map(|left| left.saturating_sub(count as u64));
                if is_end {
                    self.source = Source::None;
                    return Moved::End;
                }
                Moved::Some
            }
            Ok(Frame::Waiting) => Moved::Waiting,
            Ok(Frame::Nothing) => Moved::Some,
            Err(_) => {
                self.is_cut = matches!(self.source, Source::Pieces { .. });
                Moved::Broken
            }
        }
    }
}

/// A step of a source.
enum Frame {
    Content {
        count: usize,
        is_end: bool,
    },
    Waiting,
    /// No bytes yet, but the next step may give some.
    Nothing,
}

impl Piece {
    fn advance(
        &mut self,
        rest: &mut std::vec::IntoIter<Part>,
        left: u64,
        room: usize,
        h2: &mut Http2,
        stream: StreamKey,
        waker: Option<&Waker>,
    ) -> io::Result<Frame> {
        let send = |bytes: &[u8], h2: &mut Http2| -> io::Result<Frame> {
            let count = bytes.len().min(room);
            let is_end = count as u64 >= left;
            let Some(header) = h2.wire.begin_frame(stream, count, is_end) else { return Ok(Frame::Waiting) };
            h2.batch.extend_from_slice(&header);
            h2.batch.extend_from_slice(&bytes[..count]);
            Ok(Frame::Content { count, is_end })
        };
        match self {
            Piece::Bytes(bytes, at) if *at < bytes.len() => {
                let frame = send(&bytes[*at..], h2)?;
                if let Frame::Content { count, .. } = frame {
                    *at += count;
                }
                return Ok(frame);
            }
            Piece::Message(message, at) if *at < message.body_len() => {
                let frame = send(message.encoded().body().get(*at..).unwrap_or_default(), h2)?;
                if let Frame::Content { count, .. } = frame {
                    *at += count;
                }
                return Ok(frame);
            }
            Piece::File(piece) if !piece.is_empty() => {
                return match piece.poll_warm(waker) {
                    Poll::Pending => Ok(Frame::Waiting),
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Ready(Ok(until)) => {
                        let room = room.min((until - piece.offset) as usize);
                        read_file(piece, left, room, h2, stream)
                    }
                };
            }
            Piece::Bytes(..) | Piece::Message(..) | Piece::File(_) => {
                *self = match rest.next() {
                    Some(Part::Bytes(bytes)) => Piece::Bytes(bytes, 0),
                    Some(Part::File(piece)) => Piece::File(piece),
                    None => return Err(io::ErrorKind::UnexpectedEof.into()), // less than was announced
                };
            }
        }
        Ok(Frame::Nothing)
    }
}

/// Reads a file straight into a frame. Its pages are in memory.
fn read_file(
    piece: &mut FilePiece,
    left: u64,
    room: usize,
    h2: &mut Http2,
    stream: StreamKey,
) -> io::Result<Frame> {
    let start = h2.batch.len();
    let count = piece.len().min(room as u64) as usize;
    h2.batch.resize(start + FRAME_HEADER + count, 0);
    let place = &mut h2.batch[start + FRAME_HEADER..];
    let frame = match file::read_at(piece.file.as_fd(), place, piece.offset, file::Patience::Wait) {
        // The file is shorter than it was. Its length is announced: only a reset tells the client.
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) => Err(error),
        Ok(count) => {
            let is_end = count as u64 >= left;
            match h2.wire.begin_frame(stream, count, is_end) {
                Some(header) => {
                    h2.batch.truncate(start + FRAME_HEADER + count);
                    h2.batch[start..start + FRAME_HEADER].copy_from_slice(&header);
                    piece.offset += count as u64;
                    return Ok(Frame::Content { count, is_end });
                }
                None => Ok(Frame::Waiting),
            }
        }
    };
    h2.batch.truncate(start);
    frame
}

/// Pulls a stream into a frame, by way of a lent buffer: a source that has nothing costs no frame.
fn pull(
    source: &mut dyn BodyStream,
    left: Option<u64>,
    has_trailers: bool,
    room: usize,
    h2: &mut Http2,
    stream: StreamKey,
    waker: &Waker,
) -> io::Result<Frame> {
    runtime::with_scratch(|buffer| {
        let room = room.min(buffer.len());
        let chunk = match source.poll_chunk(&mut Context::from_waker(waker), &mut buffer[..room]) {
            Poll::Pending => return Ok(Frame::Waiting),
            Poll::Ready(Ok(chunk)) => chunk,
            // All that was announced is here: what becomes of its source now is nothing to the client.
            Poll::Ready(Err(_)) if left == Some(0) => Chunk::End,
            Poll::Ready(Err(error)) => return Err(error),
        };
        let count = chunk.len();
        // A source that gives more or less than it announced: the client must see that it broke.
        if left.is_some_and(|left| count as u64 > left || (count == 0 && left > 0)) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Chunk::Trailers(lines) = chunk {
            h2.wire.send_trailers(stream, lines.as_bytes(), &mut h2.batch);
            return Ok(Frame::Content { count, is_end: true });
        }
        let is_end = count == 0 || (left == Some(count as u64) && !has_trailers);
        let Some(header) = h2.wire.begin_frame(stream, count, is_end) else { return Ok(Frame::Waiting) };
        h2.batch.extend_from_slice(&header);
        h2.batch.extend_from_slice(&buffer[..count]);
        Ok(Frame::Content { count, is_end })
    })
}
