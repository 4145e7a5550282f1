//! Writing: responses to bytes, bytes to the socket, and what a full socket leaves for later.
//!
//! Small answers are joined in the connection's batch and leave in one `send(2)`; what the socket refuses is
//! kept in `held`, and nothing overtakes it. Files and shared memory are in `pieces`, streams in `stream`.

use super::backlog::Backlog;
use super::content::Incoming;
use super::output::{self, Framer, HeadParts, Piece, Pieces, Source, Timing};
use super::pieces::Turn;
use super::receive::push_interim;
use super::stream::Http1Framer;
use super::{Connection, Request, Work};
use crate::context::Ctx;
use crate::log::{AccessRecord, Ending, Record, Sink};
use crate::rate::{Held, Pace};
use crate::response::{Body, Head, Message, Response};
use crate::slow::SlowEnd;
use crate::tail::TailEnd;
use crate::{answer, buffer_pool};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use tidegate_http::{FieldLines, Status, Version};
use tidegate_io::clock::{monotonic_ns, wall};
use tidegate_io::{Key, runtime};
use tidegate_stats::Elapsed;
use tidegate_stats::series::{AnswerKey, Answered, SampledRequest, SeriesId};
use tidegate_wire::h1::{self, ConnectionField, ResponseFraming};

/// Bytes of a file sent in one turn.
pub(super) const FILE_TURN: u64 = 1 << 20;
/// Larger prebuilt messages are never copied to join a batch.
const COPY_MAX: usize = 4 << 10;
/// A batch this large is sent on.
const BATCH_MAX: usize = 32 << 10;
/// Bytes that leave the kernel without an acknowledgement: ten segments (RFC 6928).
const IN_ONE_FLIGHT: u64 = 14_600;

/// How far pumping came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// All is with the kernel.
    Done,
    /// This turn's share is used up.
    Again,
    /// The socket is full.
    Blocked,
    /// The source has nothing yet.
    Waiting,
}

/// A response under way.
pub(super) type Output = output::Output<Framing>;

/// What is remembered of how it is framed.
#[derive(Default)]
pub(super) struct Framing {
    pub(super) is_chunked: bool,
    /// The head of a stream is held back, to leave together with the first chunk.
    pub(super) keeps_head: bool,
    /// It was asked for in this turn already, and has to be waited for: whatever wakes it runs the connection again.
    pub(super) was_asked: bool,
}

/// A message that has been begun.
struct Begun {
    /// Bytes of the head, and bytes in all that have left the message.
    head: usize,
    sent: usize,
    is_complete: bool,
}

impl Begun {
    fn into_output(self, status: Status, message: &Rc<Message>) -> Output {
        let mut output = Output::begun(status, self.head, self.sent);
        if !self.is_complete {
            let rest = Piece::Message(message.clone(), self.sent - self.head);
            output.source = Source::Pieces(Pieces::one(rest));
        }
        output
    }
}

/// A response that cannot be sent on: why, and what has become of it until then.
struct Broken {
    error: io::Error,
    output: Box<Output>,
}

impl From<io::Error> for Broken {
    /// None of it is known to have been sent.
    fn from(error: io::Error) -> Broken {
        Broken { error, output: Box::new(Output::unsent()) }
    }
}

impl Work {
    /// The connection ends before the response does: it is logged with what was sent of it.
    pub(super) fn abandon(&mut self, cx: &mut Ctx) {
        if let Some(mut output) = self.output.take() {
            output.give_up();
            output.count(cx, Told::of(self.record.as_deref()), &self.request);
        }
    }
}

/// A response that is over, whatever the protocol was.
pub(super) struct Done<'a> {
    pub status: Status,
    /// Bytes of head and content that left.
    pub sent: u64,
    /// Bytes of that head, and of what frames the content among them.
    pub overhead: u64,
    /// A file could not be read as far as was announced.
    pub is_cut: bool,
    /// What was timed of it.
    pub timing: Timing,
    /// For a log that shows fields of responses.
    pub fields: Option<&'a FieldLines>,
}

/// What may be told of a request, and the log that it is told to.
#[derive(Clone, Copy)]
pub(super) enum Told<'a> {
    /// Nobody would be.
    Nothing,
    /// Its head is still at hand.
    AtHand(Option<Sink>, &'a AccessRecord<'a>),
    /// It was captured, and is read only where somebody is told.
    Captured(&'a Record),
}

impl<'a> Told<'a> {
    /// Of what was captured, if it was.
    pub(super) fn of(record: Option<&'a Record>) -> Told<'a> {
        record.map_or(Told::Nothing, Told::Captured)
    }

    fn log(self) -> Option<Sink> {
        match self {
            Told::Nothing => None,
            Told::AtHand(log, _) => log,
            Told::Captured(record) => record.sink,
        }
    }

    #[inline]
    fn read(self, read: impl FnOnce(Option<&AccessRecord<'_>>)) {
        match self {
            Told::Nothing => read(None),
            Told::AtHand(_, entry) => read(Some(entry)),
            Told::Captured(record) => read(Some(&record.entry())),
        }
    }
}

#[inline]
pub(super) fn tally(cx: &mut Ctx, told: Told<'_>, request: &Request, done: &Done<'_>) {
    let nanos = monotonic_ns().saturating_sub(request.started);
    cx.stats.sent_bytes.add(done.sent);
    cx.stats.responses.add(done.status.0);
    let counted = if done.timing.is_live() { 0 } else { nanos };
    let elapsed = Elapsed::nanos(counted);
    let Request { series, received, kind, listener, .. } = *request;
    let Done { status, sent, timing, .. } = *done;
    if let Some(listener) = cx.listener(listener) {
        listener.answered(received, sent, elapsed);
    }
    let has_first_byte = timing.has_first_byte();
    let answered = Answered { kind, status: status.0, received, sent, elapsed, has_first_byte };
    let is_slow = cx.stats.series.answered(series, &answered);
    // How long a tunnel is open says nothing about anybody.
    if is_slow && !status.is_informational() {
        let (status, now) = (status.0, cx.now);
        let end = SlowEnd { series, now, nanos: counted, status, received, sent };
        told.read(|entry| cx.slow.remember(&end, entry));
    }
    if cx.tails.is_active() {
        let end = TailEnd { series, status: status.0, received, sent, nanos };
        told.read(|entry| cx.tails.tell(&cx.engine, &end, entry));
    }
    if cx.spans.is_active() {
        let end = TailEnd { series, status: status.0, received, sent, nanos };
        told.read(|entry| cx.spans.tell(&end, entry));
    }
    if cx.samples {
        let key = AnswerKey::new(kind, status.0);
        told.read(|entry| tell_sampled(cx, series, key, counted, entry));
    }
    if done.is_cut {
        cx.stats.responses_cut.add(1);
    }
    let Some(sink) = told.log() else { return };
    let Done { status, sent, overhead, fields, .. } = *done;
    let end = Ending { status: status.0, received: request.received, sent, overhead, nanos, fields };
    told.read(|entry| {
        if let Some(entry) = entry {
            cx.log.line(sink, entry, &end);
        }
    });
}

/// Tells the statistics of a route of a request that is sampled.
fn tell_sampled(cx: &Ctx, series: SeriesId, key: AnswerKey, nanos: u64, entry: Option<&AccessRecord<'_>>) {
    let trace = entry.and_then(|entry| entry.trace);
    let Some(context) = trace.and_then(|trace| trace.context()).filter(|context| context.is_sampled()) else {
        return;
    };
    let (seconds, subsecond) = wall();
    let at = u64::try_from(seconds).unwrap_or(0) * 1000 + u64::from(subsecond / 1_000_000);
    let (trace_id, span_id) = (context.trace_id(), context.span_id());
    cx.stats.series.sampled(series, &SampledRequest { trace_id, span_id, at, nanos, key });
}

impl Connection {
    /// Begins a response. What is small is complete on return: in the batch, with the kernel, or
    /// held.
    #[inline]
    fn start(
        &mut self,
        cx: &mut Ctx,
        response: Response,
        request: &Request,
        is_last: bool,
        pace: Option<Box<Pace>>,
    ) -> Result<Output, Broken> {
        let fields = cx.log.shows_responses().then(|| response.head.lines().clone());
        let mut started = self.start_plain(cx, response, request, is_last, pace);
        match &mut started {
            Ok(output) => {
                output.show_fields(fields);
                output.time_first_byte(cx, request);
            }
            Err(broken) => broken.output.show_fields(fields),
        }
        started
    }

    #[inline]
    fn start_plain(
        &mut self,
        cx: &mut Ctx,
        response: Response,
        request: &Request,
        is_last: bool,
        pace: Option<Box<Pace>>,
    ) -> Result<Output, Broken> {
        // It is closed behind this answer, which is the last that can tell the client (RFC 9112 section 9.6).
        self.end_if_idle_ends(cx);
        if pace.is_none()
            && let Some(message) = self.as_it_is(&response, request)
        {
            let begun = self.send_prebuilt(cx, message, is_last)?;
            return Ok(begun.into_output(response.status, message));
        }
        let response = cx.admission.unless_busy(response);
        self.start_encoded(cx, response, request, pace)
    }

    /// The message that is all of a response, where nothing has to be added to it.
    #[inline]
    fn as_it_is<'r>(&self, response: &'r Response, request: &Request) -> Option<&'r Rc<Message>> {
        match (&response.head, &response.body) {
            (Head::Prebuilt(head), Body::Prebuilt(body))
                if self.keep_alive
                    && !request.kind.is_head()
                    && request.version == Version::Http11
                    && Rc::ptr_eq(head, body) =>
            {
                Some(head)
            }
            _ => None,
        }
    }

    /// Begins a response and counts it where it is complete; what is left of it otherwise.
    #[inline]
    pub(super) fn start_and_count(
        &mut self,
        cx: &mut Ctx,
        response: Response,
        request: &Request,
        is_last: bool,
        sink: Option<Sink>,
        entry: &AccessRecord<'_>,
    ) -> io::Result<Option<Output>> {
        let told = Told::AtHand(sink, entry);
        let started = match self.as_it_is(&response, request) {
            // The hot path: there is nothing to keep of it.
            Some(message) if !cx.log.shows_responses() => match self.send_prebuilt(cx, message, is_last) {
                Ok(Begun { head, sent, is_complete: true }) => {
                    let (sent, overhead) = (sent as u64, head as u64);
                    let (is_cut, timing) = (false, Timing::Whole);
                    let status = response.status;
                    let done = Done { status, sent, overhead, is_cut, timing, fields: None };
                    tally(cx, told, request, &done);
                    return Ok(None);
                }
                begun => {
                    let begun = begun.map(|begun| {
                        let mut output = begun.into_output(response.status, message);
                        output.time_first_byte(cx, request);
                        output
                    });
                    begun.map_err(Broken::from)
                }
            },
            _ => self.start(cx, response, request, is_last, None),
        };
        match started {
            Ok(output) if output.is_complete() => {
                output.count(cx, told, request);
                self.unread |= !self.keep_alive && output.sent > IN_ONE_FLIGHT;
                Ok(None)
            }
            Ok(output) => Ok(Some(output)),
            Err(Broken { error, output }) => {
                output.count(cx, told, request);
                Err(error)
            }
        }
    }

    /// The hot path: one buffer, one `send(2)`.
    #[inline]
    fn send_prebuilt(&mut self, cx: &mut Ctx, message: &Message, is_last: bool) -> io::Result<Begun> {
        let encoded = message.stamped(cx.now, &cx.date);
        let (bytes, head) = (encoded.as_bytes(), encoded.head().len());
        let is_alone = is_last && self.batch.is_empty();
        if !self.held.is_empty() || (bytes.len() <= COPY_MAX && !is_alone) {
            self.batch.extend_from_slice(bytes);
            if self.batch.len() >= BATCH_MAX {
                self.flush_batch()?;
            }
            return Ok(Begun { head, sent: bytes.len(), is_complete: true });
        }
        self.flush_batch()?;
        let sent = if self.held.is_empty() { self.transport.send(bytes, false)? } else { 0 };
        if sent == bytes.len() {
            return Ok(Begun { head, sent, is_complete: true });
        }
        self.is_blocked = true;
        if sent < head {
            // Heads are stamped anew every second: what remains of this one must not change under way.
            self.held.extend_from_slice(&bytes[sent..]);
            return Ok(Begun { head, sent: bytes.len(), is_complete: true });
        }
        Ok(Begun { head, sent, is_complete: false })
    }

    fn start_encoded(
        &mut self,
        cx: &mut Ctx,
        response: Response,
        request: &Request,
        pace: Option<Box<Pace>>,
    ) -> Result<Output, Broken> {
        let status = response.status;
        let len = response.body.len();
        let is_tunnel = matches!(response.body, Body::Tunnel { .. });
        self.keep_alive &= !is_tunnel;
        let has_trailers = matches!(response.body, Body::Stream { has_trailers: true, .. });
        let framing = match len {
            _ if !status.has_body() => ResponseFraming::None,
            // Only chunks have a place for trailers (RFC 9112 section 7.1.2).
            Some(_) if has_trailers && request.version != Version::Http10 => ResponseFraming::Chunked,
            Some(len) => ResponseFraming::Length(len),
            None if request.version == Version::Http10 => ResponseFraming::UntilClose,
            None => ResponseFraming::Chunked,
        };
        self.keep_alive &= framing != ResponseFraming::UntilClose;
        let connection = match (self.keep_alive, request.version) {
            _ if is_tunnel => ConnectionField::None, // its maker says `Connection: upgrade`
            (false, _) => ConnectionField::Close,
            (true, Version::Http10) => ConnectionField::KeepAlive,
            (true, _) => ConnectionField::None,
        };
        let begin = self.batch.len();
        let parts = HeadParts {
            status,
            head: &response.head,
            len,
            server: cx.engine.settings.server_field.as_deref(),
            now: cx.now,
            date: (!response.is_dated()).then_some(&cx.date),
        };
        let mut framer = Http1Framer { framing, connection };
        framer.head(&parts, framing == ResponseFraming::None, &mut self.batch);
        let mut output = Output::begun(status, self.batch.len() - begin, 0);
        output.note_author(response.author);
        if is_tunnel || (!request.kind.is_head() && framing != ResponseFraming::None) {
            output.framing.is_chunked = !is_tunnel && framing == ResponseFraming::Chunked;
            match response.body {
                body if pace.is_some() => output.take_body(body),
                Body::Bytes(bytes) if bytes.len() <= BATCH_MAX => {
                    self.batch.extend_from_slice(&bytes);
                    buffer_pool::give_back(bytes);
                }
                Body::Prebuilt(message) if message.body_len() <= COPY_MAX => {
                    self.batch.extend_from_slice(message.encoded().body());
                }
                body => output.take_body(body),
            }
        }
        response.head.recycle();
        output.sent = (self.batch.len() - begin) as u64;
        if pace.is_some() {
            output.keep_pace(pace);
            output.spend(output.sent);
        }
        match &output.source {
            Source::None if self.batch.len() < BATCH_MAX => {}
            Source::None => self.flush_batch()?,
            // Its content may have to wait for its turn.
            _ if output.pace().is_some() => self.flush_batch()?,
            // The head waits for the first chunk, and they leave together.
            Source::Stream(_) => {
                output.framing.keeps_head = self.held.is_empty();
                self.held.extend_from_slice(&self.batch);
                self.batch.clear();
            }
            // Sealed together with the first bytes of the file.
            Source::Pieces(pieces) if pieces.is_at_file() && self.transport.is_tls() => {
                self.held.extend_from_slice(&self.batch);
                self.batch.clear();
            }
            _ => {
                if len.is_some_and(|len| cx.share.is_exceeded_by(len)) {
                    self.take_share(cx);
                }
                let goes_on = match &mut output.source {
                    Source::Pieces(pieces) if pieces.is_at_shared() && self.held.is_empty() => {
                        self.start_shared(pieces, &mut output.sent)?
                    }
                    _ => {
                        self.write_batch(true)?;
                        self.held.is_empty()
                    }
                };
                // What may have reached the client is not counted as if it had not.
                if goes_on && let Err(error) = self.advance(&mut output, None) {
                    return Err(Broken { error, output: Box::new(output) });
                }
            }
        }
        Ok(output)
    }

    /// Counts an answer that is not given, and closes the connection instead.
    #[cold]
    pub(super) fn sever(
        &mut self,
        cx: &mut Ctx,
        status: Status,
        request: &Request,
        told: Told<'_>,
    ) -> io::Result<()> {
        Output::begun(status, 0, 0).count(cx, told, request);
        Err(self.severed())
    }

    /// The connection is closed, and nothing more is said on it.
    #[cold]
    pub(super) fn severed(&mut self) -> io::Error {
        self.transport.reset_on_close();
        io::ErrorKind::ConnectionAborted.into()
    }

    /// Starts the response of the work in hand.
    pub(super) fn respond(&mut self, cx: &mut Ctx, response: Response) -> io::Result<()> {
        self.settle_content(cx);
        let Some(request) = self.work.as_ref().map(|work| work.request) else { return Ok(()) };
        let held = self.work.as_ref().and_then(|work| work.held.as_ref());
        let severs = held.is_some_and(|held| held.on_answer(response.status));
        let pace = held.and_then(Held::take_pace);
        if let Some(work) = self.work.as_mut().filter(|_| severs) {
            work.output = Some(Output::begun(response.status, 0, 0)); // counted when the connection closes
            return Err(self.severed());
        }
        let started = self.start(cx, response, &request, true, pace);
        let Some(work) = &mut self.work else {
            return started.map_or_else(|broken| Err(broken.error), |_| Ok(()));
        };
        match started {
            Ok(mut output) => {
                if let Some(sink) = output.take_tunnel() {
                    work.incoming = Some(Box::new(Incoming::Tunnel(sink)));
                }
                work.output = Some(output);
                self.flush_batch()
            }
            Err(Broken { error, output }) => {
                // There is still a response to be counted, when the connection closes.
                work.output = Some(*output);
                Err(error)
            }
        }
    }

    /// What it sends does not go at once: no more than its share of it waits in the kernel.
    #[inline]
    pub(super) fn take_share(&mut self, cx: &Ctx) {
        if cx.share.replaces(self.share) {
            let own = cx.engine.send_buffer(cx.engine.place_of(self.listener));
            let unsent_size = cx.engine.settings.limits.unsent_size;
            cx.share.apply(self.share, self.fd(), unsent_size, cx.wide, own);
            self.share = cx.share;
        }
    }

    /// Moves output on. `Waiting` and `Blocked` have arranged to be woken.
    pub(super) fn pump(&mut self, key: Key, cx: &mut Ctx) -> io::Result<Progress> {
        if self.is_blocked {
            self.take_share(cx);
        }
        if let Some(Work { request, output: Some(Output { source, framing, .. }), interim, record, .. }) =
            self.work.as_deref_mut()
        {
            let made = match source {
                Source::Later(later) => {
                    let polled = match std::mem::take(&mut framing.was_asked) {
                        true => Poll::Pending,
                        false => later.poll(&mut Context::from_waker(&runtime::waker(key)), false),
                    };
                    if let Some(interim) = interim
                        && (self.held.is_empty() || polled.is_ready())
                    {
                        push_interim(cx, interim, &mut self.batch);
                    }
                    request.ends_with_client |= later.ends_with_client();
                    if let Poll::Ready(response) = &polled {
                        cx.admission.on_answer(response, || record.as_ref().map(|record| record.entry()));
                    }
                    match polled {
                        Poll::Pending => {
                            self.invite(cx)?;
                            self.flush_batch()?;
                            let is_flushed = self.send_held(false)?;
                            return Ok(if is_flushed { Progress::Waiting } else { Progress::Blocked });
                        }
                        // They go first: an application must not stand idle while its last answer is written.
                        Poll::Ready(response) if runtime::with(|runtime| runtime.has_woken()) => {
                            *source = Source::Made(Box::new(response));
                            return Ok(Progress::Again);
                        }
                        Poll::Ready(response) => Some(response),
                    }
                }
                Source::Made(response) => {
                    Some(std::mem::replace(&mut **response, Response::empty(Status::OK)))
                }
                _ => None,
            };
            if let Some(response) = made {
                self.respond(cx, response)?;
            }
        }
        if self.work.as_ref().and_then(|work| work.output.as_ref()).is_none_or(Output::is_complete) {
            let is_done = self.send_held(false)?;
            self.is_blocked = !is_done;
            return Ok(if is_done { Progress::Done } else { Progress::Blocked });
        }
        let mut output = self.work.as_mut().and_then(|work| work.output.take());
        let progress = match &mut output {
            None => Ok(Progress::Done),
            Some(stream @ Output { source: Source::Stream(_), .. }) => self.pull(key, stream),
            Some(paced) if paced.pace().is_some() => self.advance_paced(paced, key),
            Some(rest) => self.advance(rest, Some(key)),
        };
        if let Err(error) = &progress
            && let Some(unsent) = output.take_if(|output| output.framing.keeps_head)
        {
            return self.answer_instead(cx, unsent, error);
        }
        self.put_back(output);
        let progress = progress?;
        self.is_blocked = progress == Progress::Blocked;
        Ok(progress)
    }

    /// The content of an answer has failed before anything of it was sent: the client gets this in its place, and not an end
    /// that says nothing.
    #[cold]
    fn answer_instead(&mut self, cx: &mut Ctx, unsent: Output, error: &io::Error) -> io::Result<Progress> {
        self.held.remove_back(unsent.sent as usize); // its head
        let timing = unsent.timing;
        drop(unsent); // the content of the request, if it was still read, has no reader any more
        let status = match error.kind() {
            io::ErrorKind::TimedOut => Status::GATEWAY_TIMEOUT,
            _ => Status::BAD_GATEWAY,
        };
        self.respond(cx, answer::error(status))?;
        if let Some(output) = self.work.as_mut().and_then(|work| work.output.as_mut()) {
            output.timing = timing; // a first byte is counted once
        }
        Ok(Progress::Again)
    }

    fn put_back(&mut self, output: Option<Output>) {
        if let Some(work) = &mut self.work {
            work.output = output;
        }
    }

    /// Moves what is held, then messages, files and parts. `key` is whom to wake for what has to come from
    /// a disk; without it the caller comes again.
    fn advance(&mut self, output: &mut Output, key: Option<Key>) -> io::Result<Progress> {
        let mut turn = Turn { bytes: 0, key, is_cut: &mut output.is_cut };
        loop {
            let Source::Pieces(pieces) = &mut output.source else { return self.held_progress() };
            let takes_held = pieces.is_at_shared() || (self.transport.is_tls() && pieces.is_at_file());
            let more = pieces.is_at_file() || pieces.is_at_bytes();
            if !takes_held && !self.send_held(more)? {
                return Ok(Progress::Blocked);
            }
            let before = output.sent;
            let progress = match pieces.now() {
                None => {
                    output.source = Source::None;
                    continue;
                }
                Some(Piece::Message(message, at)) => {
                    let encoded = message.encoded();
                    let rest = encoded.body().get(*at..).unwrap_or_default();
                    let sent = self.transport.send(rest, false)?;
                    *at += sent;
                    output.sent += sent as u64;
                    if sent == rest.len() { Progress::Done } else { Progress::Blocked }
                }
                Some(Piece::Shared(piece)) => self.send_shared(piece, &mut output.sent, &mut turn)?,
                Some(Piece::File(piece)) => self.send_file(piece, &mut output.sent, &mut turn)?,
                Some(Piece::Bytes(bytes, _)) => {
                    output.sent += bytes.len() as u64;
                    self.held = Backlog::from(std::mem::take(bytes));
                    pieces.next();
                    continue;
                }
            };
            self.window = self.window.wrapping_add((output.sent - before) as u32);
            if progress != Progress::Done {
                self.is_blocked = progress == Progress::Blocked;
                return Ok(progress);
            }
            pieces.next();
        }
    }

    /// All is out of its source: how far the kernel has taken it.
    fn held_progress(&mut self) -> io::Result<Progress> {
        let is_done = self.send_held(false)?;
        self.is_blocked = !is_done;
        Ok(if is_done { Progress::Done } else { Progress::Blocked })
    }

    /// A response is with the kernel.
    pub(super) fn finish_response(&mut self, cx: &mut Ctx) {
        let Some(work) = &mut self.work else { return };
        if let Some(output) = work.output.take() {
            output.count(cx, Told::of(work.record.as_deref()), &work.request);
            // A client that says anything behind its last request would lose what the kernel still has.
            self.unread |= !self.keep_alive && output.sent > IN_ONE_FLIGHT;
        }
        self.end_content(cx);
        let is_receiving = self.is_receiving();
        if !is_receiving || !self.keep_alive {
            self.unread |= is_receiving;
            if let Some(work) = self.work.take() {
                work.recycle(cx);
            }
            self.end_if_idle_ends(cx);
        }
    }

    /// A worker that ends keeps no connection between requests; the client has not been told.
    pub(super) fn end_if_idle_ends(&mut self, cx: &Ctx) {
        if cx.closes_idle && self.keep_alive {
            self.end_keep_alive();
        }
    }

    /// Sends `100 Continue` once a handler asks for the content.
    pub(super) fn invite(&mut self, cx: &mut Ctx) -> io::Result<()> {
        let Some(work) = &mut self.work else { return Ok(()) };
        let is_wanted =
            matches!(work.incoming.as_deref(), Some(Incoming::Pipe { sink, .. }) if sink.is_wanted());
        if is_wanted && std::mem::take(&mut work.request.expects_continue) {
            cx.stats.responses.add(Status::CONTINUE.0);
            self.batch.extend_from_slice(h1::CONTINUE);
            self.flush_batch()?;
        }
        Ok(())
    }

    /// Sends the batch; what the socket refuses is held. Where the connection ends with it, the kernel keeps it for the end,
    /// which [`Connection::finish`] sends next: one segment in place of two, and one acknowledgement. So end answers that are whole at once.
    #[inline]
    pub(super) fn flush_batch(&mut self) -> io::Result<()> {
        if self.batch.is_empty() { Ok(()) } else { self.write_batch(self.is_ending()) }
    }

    /// Nothing of a request or response is left to do, and no other is to come: [`Connection::finish`] is next. Not with TLS,
    /// whose clients may say goodbye unasked: unread, that makes the close a reset, which would destroy what was kept.
    #[inline]
    fn is_ending(&self) -> bool {
        !self.keep_alive && self.work.is_none() && self.transport.is_bare()
    }

    fn write_batch(&mut self, more: bool) -> io::Result<()> {
        let sent = if self.held.is_empty() { self.transport.send(&self.batch, more)? } else { 0 };
        self.window = self.window.wrapping_add(sent as u32);
        if sent < self.batch.len() {
            self.held.extend_from_slice(&self.batch[sent..]);
            self.is_blocked = true;
        }
        self.batch.clear();
        Ok(())
    }

    /// Sends what is held; whether all of it is gone.
    pub(super) fn send_held(&mut self, more: bool) -> io::Result<bool> {
        if self.held.is_empty() {
            return self.flush_transport();
        }
        let sent = self.transport.send(&self.held, more)?;
        self.window = self.window.wrapping_add(sent as u32);
        if sent < self.held.len() {
            self.held.remove_front(sent);
            self.is_blocked = true;
            return Ok(false);
        }
        self.held = Backlog::new();
        self.is_blocked = self.transport.is_blocked();
        Ok(!self.is_blocked)
    }

    /// Sends what waits below; whether all of it is gone.
    #[inline]
    pub(super) fn flush_transport(&mut self) -> io::Result<bool> {
        let (sent, is_done) = self.transport.flush()?;
        self.window = self.window.wrapping_add(sent as u32);
        self.is_blocked = !is_done;
        Ok(is_done)
    }
}
