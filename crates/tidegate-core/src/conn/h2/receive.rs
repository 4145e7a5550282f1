//! Reading: frames to events, requests to the engine, content to whoever takes it.

use super::super::decide::{Decision, RequestHead};
use super::super::send::Told;
use super::super::{Connection, Request, faults, is_https, kind_of};
use super::send::Output;
use super::{Http2, Incoming, StreamWork, Unread, WIDE_WINDOW, kind_of_error};
use crate::answer;
use crate::body::RequestBodyError;
use crate::conn::deadlines::reading_terms;
use crate::context::Ctx;
use crate::interim::{Interim, InterimQueue};
use crate::limits::say_too_large;
use crate::log;
use crate::rate::Held;
use crate::reply::Reply;
use std::io;
use std::time::Duration;
use tidegate_http::FieldLines;
use tidegate_http::{Method, Status, Version};
use tidegate_io::clock::step_ns;
use tidegate_stats::series::SeriesId;
use tidegate_stats::{ConnectionFault, ParseError, StreamReset};
use tidegate_wire::h1::FieldSpace;
use tidegate_wire::h2::{ErrorCode, Event, FieldSource, Section, StreamError, StreamKey};

/// Answers wait in the batch up to here; behind it they wait where they come from.
pub(super) const BATCH_MAX: usize = 128 << 10;

impl Connection {
    /// Takes all whole frames. Returns the bytes used.
    pub(super) fn read_frames(&mut self, h2: &mut Http2, cx: &mut Ctx, data: &[u8]) -> io::Result<usize> {
        let mut section = cx.section.take().unwrap_or_default();
        let second = cx.second();
        let mut at = 0;
        let result = loop {
            match h2.wire.read(&data[at..], second, &mut section, &mut h2.batch) {
                Ok(read) => {
                    at += read.consumed;
                    let Some(event) = read.event else { break Ok(()) };
                    cx.decoded = cx.decoded.saturating_add(1);
                    if let Err(error) = self.on_event(h2, cx, &section, event) {
                        break Err(error);
                    }
                }
                Err(error) => {
                    cx.stats.http2_faults.add(kind_of_error(&error), 1);
                    at = data.len();
                    self.abandon_streams(h2, cx); // whoever floods gets nothing more done
                    break Ok(());
                }
            }
        };
        cx.section = Some(section);
        result.map(|()| at)
    }

    fn on_event(
        &mut self,
        h2: &mut Http2,
        cx: &mut Ctx,
        section: &Section,
        event: Event<'_>,
    ) -> io::Result<()> {
        match event {
            Event::Request { stream, is_end } => self.begin_stream(h2, cx, section, stream, is_end, None),
            Event::Refused { stream, status, is_end } => {
                self.begin_stream(h2, cx, section, stream, is_end, Some(status))
            }
            Event::Data { stream, data, is_end } => {
                let end = is_end.then(FieldLines::new);
                self.take_content(h2, cx, stream, data, end)
            }
            Event::Trailers { stream } => {
                let mut space = FieldSpace::new();
                let mut lines = FieldLines::new();
                for field in section.fields(&mut space).iter() {
                    lines.push(field.name, field.value);
                }
                self.take_content(h2, cx, stream, &[], Some(lines))
            }
            Event::Reset { stream, .. } => {
                cx.stats.http2_resets.add(StreamReset::Client, 1);
                let was_under_way = h2.work(stream).is_some();
                self.abandon_stream(h2, stream, cx);
                if was_under_way && cx.admission.on_reset(self.peer, cx.second()) {
                    cx.stats.http2_faults.add(ConnectionFault::Reset, 1);
                    let why = "too many requests are cancelled from this address";
                    h2.wire.fail(ErrorCode::ENHANCE_YOUR_CALM, why, &mut h2.batch);
                    self.abandon_streams(h2, cx);
                }
                Ok(())
            }
            Event::Broken { stream, error } => {
                let kind = match error {
                    StreamError::TooManyStreams => StreamReset::Refused,
                    _ => StreamReset::Fault,
                };
                cx.stats.http2_resets.add(kind, 1);
                if let StreamError::Malformed(malformed) = error {
                    cx.stats.parse_errors.add(faults::kind_of_malformed(malformed), 1);
                    self.count_unread(cx, Status::BAD_REQUEST);
                    log::info(format_args!("a stream of {} is reset: {malformed}", self.peer));
                }
                if let Some(stream) = stream {
                    self.abandon_stream(h2, stream, cx);
                }
                Ok(())
            }
            // The client takes no pushes anyway; what it has asked for is still answered.
            Event::GoAway { .. } | Event::Response { .. } | Event::Interim { .. } => Ok(()),
        }
    }

    /// A complete head: decide, answer, and set up what is left of it.
    fn begin_stream(
        &mut self,
        h2: &mut Http2,
        cx: &mut Ctx,
        section: &Section,
        stream: StreamKey,
        is_end: bool,
        refused: Option<u16>,
    ) -> io::Result<()> {
        let engine = cx.engine.clone();
        self.count_request(cx);
        cx.stats.http2_streams.add(1);
        let mut space = FieldSpace::new();
        let head = section.request(&mut space);
        // An extended CONNECT is an upgrade in other words (RFC 8441 section 4).
        let protocol = head.protocol;
        let sent = Method::from_token(head.method);
        let (method, method_token) =
            if protocol.is_some() { (Method::Get, "GET") } else { (sent, head.method) };
        let request = Request {
            kind: kind_of(sent, Version::Http2),
            version: Version::Http2,
            expects_continue: head.expects_continue && !is_end,
            is_upgrade: protocol.is_some(),
            ends_with_client: false,
            series: SeriesId::NONE,
            listener: self.listener,
            started: step_ns(),
            received: section.size() as u64,
            discard_size: 0,
        };
        cx.admission.on_request(request.started);
        let (sent_method, sent_target) = (head.method, head.target);
        let head = RequestHead {
            version: request.version,
            method,
            method_token,
            target: head.target,
            scheme: Some(head.scheme),
            authority: head.authority,
            fields: head.fields,
            protocol,
            has_content: !is_end && protocol.is_none(),
            content_length: head.content_length,
            refused: refused.map(Status).or_else(|| is_foreign(head.scheme).then_some(Status::BAD_REQUEST)),
            size: section.size(),
            started: request.started,
        };
        let mut entry = head.entry();
        (entry.method, entry.target) = (or_dash(sent_method), or_dash(sent_target));
        let decision = self.decide(cx, &engine, &head, &mut entry);
        // The connection stays, whatever has become of the request: what it has under way is not lost for that.
        let Decision { reply, content_sink, content, account, is_exempt, log: sink, .. } = decision;
        let Decision { ends_with_client, interim, signals, tls, identity, trace, limits, held, .. } =
            decision;
        let Decision { series, about, .. } = decision;
        (entry.tls, entry.identity, entry.trace) = (tls.as_ref(), identity.as_ref(), trace.as_ref());
        self.limits.clone_from(&limits);
        let is_last = self.is_last_request(&engine.settings.limits.request, cx.now);
        if is_last && !h2.is_closing {
            h2.is_closing = true;
            cx.stats.keep_alive_refusals.add(1);
            h2.wire.drain(&mut h2.batch);
        } else if is_last {
            h2.late += 1;
            if h2.late > u64::from(engine.settings.limits.streams) {
                h2.wire.drain(&mut h2.batch); // more than can have been on their way when it was told
            }
        }
        let own = self.limits(&engine);
        let terms = reading_terms(own);
        let is_alone = h2.wire.open_streams() <= 1; // it is open itself
        h2.wanted = if is_alone { terms } else { h2.wanted.or(terms) };
        // The settings have 1 GiB at most.
        let discard_size = u32::try_from(own.discard_size).unwrap_or(u32::MAX);
        let grace = own.rate_grace;
        drop(content); // nobody reads what the handler has left
        let kind = request.kind.with_https(is_https(entry.scheme));
        let request = Request { kind, ends_with_client, discard_size, series, ..request };
        let ready = match reply {
            Reply::Ready(response) => Ok(response),
            // Polled when all that has come is read: what is cancelled there must not reach an application.
            waiting => {
                let mut later = cx.admission.later(waiting, account, is_exempt);
                later.hears(signals);
                later.traces(trace.as_ref());
                Err(later)
            }
        };
        let incoming =
            content_sink.filter(|sink| sink.has_reader()).map(|sink| Incoming::content(sink, about));
        let output = match ready {
            Ok(response) => {
                if held.as_ref().is_some_and(|held| held.on_answer(response.status)) {
                    return self.sever(cx, response.status, &request, Told::AtHand(sink, &entry));
                }
                let pace = held.as_ref().and_then(Held::take_pace);
                let output = self.start_stream(h2, cx, stream, response, &request, pace);
                if output.is_complete() {
                    if let Some(incoming) = incoming {
                        incoming.sink.fail(RequestBodyError::Interrupted); // nobody reads after the answer
                    }
                    output.count(cx, Told::AtHand(sink, &entry), &request);
                    end_stream(h2, cx, stream, &request);
                    return self.flush_if_full(h2);
                }
                output
            }
            Err(later) => Output::later(later),
        };
        let record = cx.capture(&entry, sink, output.is_awaited());
        let mut work = StreamWork::new(stream, request, output, grace);
        (work.incoming, work.interim, work.record, work.limits) = (incoming, interim, record, limits);
        work.held = held;
        if is_end && work.request.is_upgrade {
            work.early.get_or_insert_default().is_end = true;
        }
        work.open_tunnel();
        work.invite(h2, cx);
        h2.begin(work);
        self.flush_if_full(h2)
    }

    fn flush_if_full(&mut self, h2: &mut Http2) -> io::Result<()> {
        if h2.batch.len() >= BATCH_MAX { self.flush_frames(h2) } else { Ok(()) }
    }

    /// Content, and its end with what comes behind it.
    fn take_content(
        &mut self,
        h2: &mut Http2,
        cx: &mut Ctx,
        stream: StreamKey,
        data: &[u8],
        end: Option<FieldLines>,
    ) -> io::Result<()> {
        let engine = cx.engine.clone();
        let Some(work) = h2.work(stream) else {
            drop_content(h2, cx, stream, data.len());
            return Ok(());
        };
        let limits = work.limits.as_deref().unwrap_or(&engine.settings.limits.request);
        let (limit, discard) = (limits.body_size, limits.discard_size);
        work.pace.moves(data.len());
        work.request.received += data.len() as u64;
        let Some(incoming) = work.incoming.as_mut().filter(|incoming| incoming.sink.has_reader()) else {
            work.incoming = None;
            if work.request.is_upgrade && !work.output.has_begun() {
                let early = work.early.get_or_insert_default();
                early.data.extend_from_slice(data);
                early.is_end |= end.is_some();
                h2.weigh_anew(stream.slot());
                return Ok(());
            }
            // Nobody reads it. What is too much is not taken: its window stays closed until the answer is out.
            if work.request.received <= discard {
                h2.wire.release(stream, data.len(), &mut h2.batch);
            }
            return Ok(());
        };
        incoming.received += data.len() as u64;
        if incoming.received > limit && !incoming.is_tunnel {
            cx.stats.parse_errors.add(ParseError::BodyTooLarge, 1);
            if let Some(about) = incoming.about.as_deref() {
                say_too_large(limits, about);
            }
            incoming.sink.fail(RequestBodyError::TooLarge);
            work.incoming = None;
            h2.wire.release(stream, data.len(), &mut h2.batch);
            return self.refuse_stream_content(h2, cx, stream);
        }
        incoming.sink.push(data);
        incoming.unreleased += data.len();
        if let Some(trailers) = end {
            incoming.sink.complete(trailers);
        }
        h2.make_due(stream.slot()); // whoever reads it
        h2.weigh_anew(stream.slot());
        Ok(())
    }

    /// More content than is allowed: 413 where nothing has been answered yet.
    fn refuse_stream_content(&mut self, h2: &mut Http2, cx: &mut Ctx, stream: StreamKey) -> io::Result<()> {
        let Some(mut work) = h2.remove(stream) else { return Ok(()) };
        if work.output.has_begun() {
            h2.begin(work); // whoever reads it learns that it is not complete
            return Ok(());
        }
        if let Err(error) = self.answer(h2, cx, &mut work, answer::error(Status::CONTENT_TOO_LARGE)) {
            work.count(cx);
            return Err(error);
        }
        if work.output.is_complete() {
            work.count(cx);
            end_stream(h2, cx, stream, &work.request);
        } else {
            h2.insert(work);
        }
        Ok(())
    }
}

/// For a log: a request that could be read may still lack what it is refused for.
fn or_dash(word: &str) -> &str {
    if word.is_empty() { "-" } else { word }
}

/// Appends what is to be told before the answer.
pub(super) fn push_interim(h2: &mut Http2, cx: &mut Ctx, stream: StreamKey, queue: &InterimQueue) {
    while let Some(Interim { status, lines }) = queue.pop() {
        cx.stats.responses.add(status.0);
        h2.wire.send_interim(stream, status.0, FieldSource::Lines(&lines), &mut h2.batch);
    }
}

/// A response is sent, and whoever reads content is gone with it.
pub(super) fn end_stream(h2: &mut Http2, cx: &mut Ctx, stream: StreamKey, request: &Request) {
    if !h2.wire.is_open(stream) {
        return;
    }
    // What nobody has taken lies in the client's window. Where that is used up the client could neither go on nor be told
    // to stop.
    h2.wire.release_all(stream, &mut h2.batch);
    let left = request.discard_size.into();
    h2.unread.push(Unread { key: stream, left, waited: Duration::ZERO });
    // A client that was not told to go on may not send it at all, and waits for a word.
    if request.expects_continue {
        h2.stop_reading(cx, |unread| unread.key == stream);
    }
}

/// Whether a scheme is none of HTTP's. CONNECT has none at all.
fn is_foreign(scheme: &str) -> bool {
    !scheme.is_empty() && !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Content that comes behind its answer.
fn drop_content(h2: &mut Http2, cx: &mut Ctx, stream: StreamKey, count: usize) {
    h2.stop_reading(cx, |unread| {
        if unread.key != stream {
            return false;
        }
        let left = unread.left.checked_sub(count as u64);
        unread.left = left.unwrap_or(0);
        left.is_none()
    });
    h2.wire.release(stream, count, &mut h2.batch);
}

impl StreamWork {
    /// Asks for content once a handler does, and gives back what the handler has taken.
    pub(super) fn invite(&mut self, h2: &mut Http2, cx: &mut Ctx) {
        let Some(incoming) = &mut self.incoming else { return };
        if !incoming.sink.has_reader() {
            h2.wire.release(self.key, std::mem::take(&mut incoming.unreleased), &mut h2.batch);
            self.incoming = None;
            return;
        }
        if !incoming.sink.is_wanted() {
            return;
        }
        if std::mem::take(&mut self.request.expects_continue) && !self.output.has_begun() {
            cx.stats.responses.add(Status::CONTINUE.0);
            let fields = FieldLines::new();
            h2.wire.send_interim(self.key, Status::CONTINUE.0, FieldSource::Lines(&fields), &mut h2.batch);
        }
        if !incoming.is_wide {
            incoming.is_wide = true;
            h2.wire.widen(self.key, WIDE_WINDOW, &mut h2.batch);
        }
        let taken = incoming.unreleased.saturating_sub(incoming.sink.len());
        if taken > 0 {
            incoming.unreleased -= taken;
            h2.wire.release(self.key, taken, &mut h2.batch);
        }
    }
}
