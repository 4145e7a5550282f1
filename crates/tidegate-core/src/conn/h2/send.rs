//! Writing: responses to frames in the batch, stream by stream, a frame at a time.
//!
//! What is small is complete at once. The rest waits where it comes from (a file, a shared message, a
//! stream) and is moved when the client's windows, the socket and its turn allow it; so what a slow client
//! costs does not depend on what it has asked for.

use super::super::output::{self, FRONT, Framer, HeadParts, Piece, Pieces, Source, Step};
use super::super::send::Told;
use super::super::{Connection, Request};
use super::receive::{BATCH_MAX, end_stream, push_interim};
use super::{Http2, StreamWork};
use crate::answer;
use crate::body::BodySink;
use crate::context::Ctx;
use crate::rate::{Held, Pace};
use crate::response::{Body, FilePiece, Head, Response};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::task::{Context, Poll, Waker};
use tidegate_http::{FieldLines, Status};
use tidegate_io::{Key, file, runtime};
use tidegate_stats::StreamReset;
use tidegate_wire::h2::{self, ErrorCode, FRAME_HEADER, FieldSource, ResponseParts, StreamKey};

/// Bytes of content in one frame, which is also a stream's share of a round.
const FRAME: usize = 16 << 10;
/// Bytes of content moved in one turn of the connection.
const TURN: usize = 1 << 20;

/// A response under way.
pub(super) type Output = output::Output<()>;

/// How HTTP/2 frames a message on one of its streams.
struct Http2Framer<'w> {
    wire: &'w mut h2::Connection,
    stream: StreamKey,
}

impl Framer for Http2Framer<'_> {
    const MARKS_LAST: bool = true;
    const COUNTS_FRAMING: bool = false;

    #[inline]
    fn head(&mut self, parts: &HeadParts<'_>, is_end: bool, out: &mut Vec<u8>) {
        let (server, fields, content_length) = match parts.head {
            Head::Prebuilt(message) => (
                parts.server.filter(|_| message.names_server()),
                FieldSource::Block(message.block()),
                None, // it is in the block
            ),
            Head::Fields(lines) | Head::Final(lines) => (parts.server, FieldSource::Lines(lines), parts.len),
        };
        let (status, date) = (parts.status.0, parts.date);
        let parts = ResponseParts { status, date, server, fields, content_length };
        self.wire.send_response(self.stream, &parts, is_end, out);
    }

    fn room(&self) -> usize {
        self.wire.room(self.stream).min(FRAME)
    }

    fn data(&mut self, buffer: &mut [u8], count: usize, is_last: bool) -> io::Result<Range<usize>> {
        let header = self.wire.begin_frame(self.stream, count, is_last).ok_or(io::ErrorKind::InvalidData)?;
        buffer[FRONT - FRAME_HEADER..FRONT].copy_from_slice(&header);
        Ok(FRONT - FRAME_HEADER..FRONT + count)
    }

    fn trailers(&mut self, lines: &FieldLines, out: &mut Vec<u8>) {
        if !lines.is_empty() {
            self.wire.send_trailers(self.stream, lines.as_bytes(), out);
        } else if let Some(header) = self.wire.begin_frame(self.stream, 0, true) {
            out.extend_from_slice(&header);
        }
    }
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
    pub(super) fn count(&mut self, cx: &mut Ctx) {
        self.output.count(cx, Told::of(self.record.as_deref()), &self.request);
        if let Some(record) = self.record.take() {
            cx.log.take_back(record);
        }
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
        pace: Option<Box<Pace>>,
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
        // Trailers come behind an end of the content, also where there is none.
        let has_trailers = matches!(response.body, Body::Stream { has_trailers: true, .. });
        let is_empty = len == Some(0) && !has_trailers;
        let has_content = status.has_body() && !request.kind.is_head() && !is_empty;
        let begin = h2.batch.len();
        let parts = HeadParts {
            status,
            head: &response.head,
            len: len.filter(|_| status.has_body()),
            server: cx.engine.settings.server_field.as_deref(),
            now: cx.now,
            date: (!response.is_dated()).then_some(&cx.date),
        };
        Http2Framer { wire: &mut h2.wire, stream }.head(&parts, !has_content, &mut h2.batch);
        let head = h2.batch.len() - begin;
        let mut output = Output::begun(status, head, head);
        output.show_fields(cx.log.shows_responses().then(|| response.head.lines().clone()));
        output.expect_tunnel(tunnel);
        output.note_author(response.author);
        response.head.recycle();
        output.keep_pace(pace);
        output.spend(head as u64);
        if !has_content {
            return output;
        }
        // The common case: one frame, and the stream is done.
        let whole = match &response.body {
            _ if output.pace().is_some() => None,
            Body::Bytes(bytes) => self.send_whole(h2, stream, bytes),
            Body::Prebuilt(message) => self.send_whole(h2, stream, message.encoded().body()),
            Body::Shared(piece) => piece.whole().and_then(|bytes| self.send_whole(h2, stream, bytes)),
            _ => None,
        };
        if let Some(count) = whole {
            output.sent += count as u64;
            return output;
        }
        output.take_body(response.body);
        output.time_first_byte(cx, request);
        h2.wire.set_may_end(stream, output.may_end());
        h2.wire.set_ready(stream, true);
        output
    }

    /// All content of a response, where it is small and may be sent at once. Returns how much that was.
    #[inline]
    fn send_whole(&self, h2: &mut Http2, stream: StreamKey, bytes: &[u8]) -> Option<usize> {
        if bytes.len() > FRAME || h2.batch.len() >= BATCH_MAX || self.is_stuck() {
            return None;
        }
        let header = h2.wire.begin_frame(stream, bytes.len(), true)?;
        h2.batch.extend_from_slice(&header);
        h2.batch.extend_from_slice(bytes);
        Some(bytes.len())
    }

    /// Moves on what can move: streams that were woken, and those with content that the client takes. Returns whether
    /// there is more to do without waiting.
    pub(super) fn pump_h2(&mut self, h2: &mut Http2, key: Key, cx: &mut Ctx) -> io::Result<bool> {
        let is_stuck = self.is_stuck() && !self.send_held(false)?;
        if is_stuck {
            self.take_share(cx);
        }
        self.ask_due(h2, key, cx);
        if !is_stuck && self.send_ready(h2, key, cx)? {
            return Ok(true);
        }
        self.read_ahead(h2, key, cx);
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
            h2.wire.set_may_end(stream, work.output.may_end());
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

    /// Begins the answer of a stream at work, whoever has made it: bans hear of it, and bandwidths hold it up.
    ///
    /// # Errors
    /// The connection is closed in place of it.
    pub(super) fn answer(
        &mut self,
        h2: &mut Http2,
        cx: &mut Ctx,
        work: &mut StreamWork,
        response: Response,
    ) -> io::Result<()> {
        if work.held.as_ref().is_some_and(|held| held.on_answer(response.status)) {
            work.output = Output::begun(response.status, 0, 0);
            return Err(self.severed());
        }
        let pace = work.held.as_ref().and_then(Held::take_pace);
        work.output = self.start_stream(h2, cx, work.key, response, &work.request, pace);
        Ok(())
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
            if !self.peer_closed {
                cx.admission.on_answer(&response, || work.record.as_ref().map(|record| record.entry()));
            }
            work.invite(h2, cx);
            if self.answer(h2, cx, &mut work, response).is_err() {
                return work.count(cx); // the next flush returns the error
            }
            work.open_tunnel();
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
    fn read_ahead(&mut self, h2: &mut Http2, key: Key, cx: &mut Ctx) {
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
            let Source::Stream(source) = &mut work.output.source else { continue };
            source.poll_ahead(&mut Context::from_waker(&waker));
            if let Some(mut work) = h2.remove_at(stream.slot()) {
                work.invite(h2, cx); // it may have taken content of the request
                h2.insert(work);
            }
        }
    }
}

impl Output {
    /// Moves one frame into the batch. Without a waker nothing may wait.
    fn advance(&mut self, h2: &mut Http2, stream: StreamKey, waker: Option<&Waker>) -> Moved {
        let paced = match waker {
            Some(waker) if self.pace().is_some() && self.is_sending() => self.poll_pace(waker),
            _ => Poll::Ready(u64::MAX),
        };
        let Poll::Ready(paced) = paced else { return self.wait_for_turn(h2, stream, waker) };
        let moved = match (&mut self.source, waker) {
            (Source::None, _) => return Moved::End,
            (Source::Later(_) | Source::Made(_), _) | (Source::Stream(_), None) => return Moved::Waiting,
            (Source::Pieces(pieces), _) => {
                let room = h2.wire.room(stream).min(FRAME).min(usize::try_from(paced).unwrap_or(FRAME));
                pieces.advance(self.left.unwrap_or(0), room, h2, stream, waker)
            }
            (Source::Stream(_), Some(waker)) => return self.advance_stream(h2, stream, waker),
        };
        match moved {
            Ok(Frame::Content { count, is_end }) => {
                self.sent += count as u64;
                self.spend(count as u64);
                self.left = self.left.map(|left| left.saturating_sub(count as u64));
                if is_end {
                    self.source = Source::None;
                    return Moved::End;
                }
                Moved::Some
            }
            Ok(Frame::Waiting) => {
                self.interrupt();
                Moved::Waiting
            }
            Ok(Frame::Nothing) => Moved::Some,
            Err(_) => {
                self.is_cut = true;
                Moved::Broken
            }
        }
    }

    /// Its content has to wait for its part of a bandwidth, which is no reason to keep an application waiting. What may be
    /// the end is asked for all the same.
    fn wait_for_turn(&mut self, h2: &mut Http2, stream: StreamKey, waker: Option<&Waker>) -> Moved {
        let Some(waker) = waker else { return Moved::Waiting };
        if self.may_end() {
            return self.advance_stream(h2, stream, waker);
        }
        if let Source::Stream(source) = &mut self.source {
            source.poll_ahead(&mut Context::from_waker(waker));
        }
        Moved::Waiting
    }

    /// Pulls a stream into a frame, by way of a lent buffer: a source that has nothing costs no frame.
    fn advance_stream(&mut self, h2: &mut Http2, stream: StreamKey, waker: &Waker) -> Moved {
        runtime::with_scratch(|buffer| {
            let mut framer = Http2Framer { wire: &mut h2.wire, stream };
            match self.pull(&mut framer, &mut Context::from_waker(waker), buffer, &mut h2.batch) {
                Err(_) => Moved::Broken,
                // For the client, whose window the next byte needs.
                Ok(Step::Waiting) if self.has_early_byte() && !self.is_held_up() => Moved::Some,
                Ok(Step::Waiting) => {
                    self.interrupt();
                    Moved::Waiting
                }
                Ok(Step::Ended) => Moved::End,
                Ok(Step::Framed(range)) => {
                    let count = (range.len() - FRAME_HEADER) as u64;
                    self.sent += count;
                    self.spend(count);
                    h2.batch.extend_from_slice(&buffer[range]);
                    if self.is_complete() { Moved::End } else { Moved::Some }
                }
            }
        })
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

impl Pieces {
    /// Moves a frame of the piece whose turn it is.
    fn advance(
        &mut self,
        left: u64,
        room: usize,
        h2: &mut Http2,
        stream: StreamKey,
        waker: Option<&Waker>,
    ) -> io::Result<Frame> {
        let send = |bytes: &[u8], at: &mut usize, h2: &mut Http2| -> io::Result<Frame> {
            let rest = bytes.get(*at..).unwrap_or_default();
            let count = rest.len().min(room);
            let is_end = count as u64 >= left;
            let Some(header) = h2.wire.begin_frame(stream, count, is_end) else { return Ok(Frame::Waiting) };
            h2.batch.extend_from_slice(&header);
            h2.batch.extend_from_slice(&rest[..count]);
            *at += count;
            Ok(Frame::Content { count, is_end })
        };
        match self.now() {
            Some(Piece::Bytes(bytes, at)) if *at < bytes.len() => return send(bytes, at, h2),
            Some(Piece::Message(message, at)) if *at < message.body_len() => {
                return send(message.encoded().body(), at, h2);
            }
            Some(Piece::Shared(piece)) if !piece.is_empty() => {
                let mut count = 0;
                let frame = send(piece.run(), &mut count, h2);
                piece.advance(count as u64);
                return frame;
            }
            Some(Piece::File(piece)) if !piece.is_empty() => {
                return match piece.poll_warm(waker) {
                    Poll::Pending => Ok(Frame::Waiting),
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Ready(Ok(until)) => {
                        let room = room.min((until - piece.offset) as usize);
                        read_file(piece, left, room, h2, stream)
                    }
                };
            }
            None => return Err(io::ErrorKind::UnexpectedEof.into()), // less than was announced
            Some(_) => drop(self.next()),
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
