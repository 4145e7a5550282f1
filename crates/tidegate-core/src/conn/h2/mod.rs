//! A client connection that speaks HTTP/2: the same socket, buffers and timers, another protocol on them.
//!
//! [`Connection`] hands over here once a client has said that it speaks HTTP/2. Each stream becomes an
//! `Exchange` (`receive`), and all responses leave through the batch (`send`): many frames are read
//! and many answers written in one call each. A stream owns memory only while it is under way.

mod in_flight;
mod receive;
mod send;

use super::deadlines::{Timer, reading_terms, sending_terms};
use super::progress::{self, Reader, StreamPace, Terms, Waits};
use super::{Connection, DECODED_PER_TURN, Next, Protocol, Request, TURNS};
use crate::batch::Batch;
use crate::body::{BodySink, RequestBodyError};
use crate::context::Ctx;
use crate::interim::InterimQueue;
use crate::log;
use crate::rate::Held;
use send::Output;
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use tidegate_config::settings::RequestLimits;
use tidegate_http::FieldLines;
use tidegate_io::Key;
use tidegate_io::parts::{Part, Parts};
use tidegate_io::socket::Received;
use tidegate_stats::{ConnectionFault, StreamReset, Timeout};
use tidegate_wire::h1::MAX_FIELDS;
use tidegate_wire::h2::{self, ConnectionError, ErrorCode, Flood, Limits, StreamKey};

/// What the socket has not taken yet; with more of it nothing is read, so that a client which does not read
/// its acknowledgements cannot pile them up.
const HELD_MAX: usize = 64 << 10;
/// The window of a stream whose content a handler reads.
const WIDE_WINDOW: u32 = 256 << 10;
/// Slots of streams that a quiet connection keeps.
const SLOTS_KEPT: usize = 4;

/// The protocol's state.
pub(super) struct Http2 {
    wire: h2::Connection,
    /// The connection's, while the protocol runs: frames that leave in one call.
    batch: Batch,
    /// What is under way, by the slot of the stream.
    streams: Vec<Option<Box<StreamWork>>>,
    /// Bytes that it holds: the sum of what was told when each was touched last.
    held: usize,
    /// The streams as parts of the connection that are woken apart, once one has had to wait.
    parts: Option<Parts>,
    /// Slots of streams that are to be asked: new ones, those that were woken, those that content has come for. The
    /// others cost nothing.
    due: Vec<u32>,
    /// All streams were told that the client has finished sending.
    has_told_end: bool,
    /// Answered, while the client is still sending content that nobody reads.
    unread: Vec<Unread>,
    /// For how long a frame has not been complete.
    stalled: Duration,
    /// The client, as the reader of the connection.
    reader: Reader,
    /// It was waited for when streams were looked at last.
    is_awaited: bool,
    /// What the reader is judged by while the timer runs.
    terms: Terms,
    /// The same for all requests that are under way, from the next time on.
    wanted: Terms,
    /// Bytes of all answers since streams were looked at last.
    moved: u32,
    /// Requests when it was idle last.
    served: u32,
    idle: IdleSince,
    is_closing: bool,
    /// It is closed as soon as no stream is open: nobody waits for requests that are on their way.
    is_dismissed: bool,
    linger: Linger,
    /// Requests that came after the client was told that it may make no more.
    late: u64,
}

/// How often a client that still reads is given the time of `linger-timeout`: ten seconds with its default. One that only sends
/// looks the same.
const LINGERS: u8 = 5;

/// What comes while nothing but the client's end is waited for. A client may hold answers that were acknowledged for it and that it
/// has not read; as it reads them it opens windows, and where the kernel answers those with a reset it gives up what is unread.
#[derive(Default)]
struct Linger {
    has_moved: bool,
    times: u8,
}

/// Since when a connection is idle: the end of its last request, or its beginning. Whatever else its client says, in whichever
/// pieces, leaves it so.
struct IdleSince {
    /// As [`progress::now`].
    now: u32,
    /// Of the worker.
    turn: u32,
}

/// A request that could not be answered at once.
struct StreamWork {
    key: StreamKey,
    request: Request,
    output: Output,
    incoming: Option<Incoming>,
    /// What may have to be told before the answer.
    interim: Option<InterimQueue>,
    record: Option<Box<log::Record>>,
    /// What the client has sent into a tunnel that is not there yet.
    early: Option<Box<Early>>,
    pace: StreamPace,
    /// Those of its site or route; `None`: those of the server.
    limits: Option<Rc<RequestLimits>>,
    /// Given back with it.
    held: Option<Held>,
    /// What is woken for it, once it has had to wait.
    part: Option<Part>,
    is_due: bool,
    /// Its source was told that the client takes no more for now, and has not been pulled since.
    reads_ahead: bool,
    /// Bytes that it held when it was touched last.
    weight: usize,
    /// Its window is closed, and the client has not taken all of it that was sent.
    is_under_way: bool,
}

/// Bytes for a tunnel that the application has not agreed to yet. Their window stays used up until then, which bounds them.
#[derive(Default)]
struct Early {
    data: Vec<u8>,
    is_end: bool,
}

/// Content behind its answer: dropped, within a limit and for a while, since a client that is told to stop
/// may take it for a failure.
struct Unread {
    key: StreamKey,
    /// Bytes that may still come.
    left: u64,
    /// For how long it has been waited for.
    waited: Duration,
}

/// Content that a handler reads, or what goes into a tunnel.
struct Incoming {
    sink: BodySink,
    /// What the log says of the request where it turns out to be too much.
    about: Option<Box<str>>,
    /// Endless, and silent for as long as it likes.
    is_tunnel: bool,
    received: u64,
    /// Given to the sink and not yet given back to the client's window.
    unreleased: usize,
    is_wide: bool,
}

impl Incoming {
    fn content(sink: BodySink, about: Option<Box<str>>) -> Incoming {
        Incoming { sink, about, is_tunnel: false, received: 0, unreleased: 0, is_wide: false }
    }

    fn tunnel(sink: BodySink) -> Incoming {
        Incoming { is_tunnel: true, ..Incoming::content(sink, None) }
    }
}

impl StreamWork {
    fn new(key: StreamKey, request: Request, output: Output, grace: Duration) -> Box<StreamWork> {
        Box::new(StreamWork {
            key,
            request,
            output,
            limits: None,
            held: None,
            incoming: None,
            interim: None,
            record: None,
            early: None,
            pace: StreamPace::new(grace, progress::now()),
            part: None,
            is_due: false,
            reads_ahead: false,
            weight: 0,
            is_under_way: false,
        })
    }

    /// Bytes.
    fn held(&self) -> usize {
        let incoming = self.incoming.as_ref().map_or(0, |incoming| incoming.sink.held());
        let interim = self.interim.as_ref().map_or(0, InterimQueue::held);
        let record = self.record.as_ref().map_or(0, |record| record.held());
        let early = self.early.as_ref().map_or(0, |early| early.data.capacity());
        size_of::<StreamWork>() + incoming + self.output.held() + interim + record + early
    }

    /// Where the answer is a tunnel, content goes there from now on, beginning with what has come already.
    fn open_tunnel(&mut self) {
        let Some(sink) = self.output.take_tunnel().filter(|_| self.incoming.is_none()) else { return };
        let mut incoming = Incoming::tunnel(sink);
        if let Some(early) = self.early.take() {
            incoming.sink.push(&early.data);
            incoming.unreleased = early.data.len();
            if early.is_end {
                incoming.sink.complete(FieldLines::new());
            }
        }
        self.incoming = Some(incoming);
    }

    /// Wakes this stream and no other. `key` is the connection's.
    fn waker(&mut self, parts: &mut Option<Parts>, key: Key) -> Waker {
        let slot = self.key.slot() as u32;
        self.part.get_or_insert_with(|| parts.get_or_insert_with(|| Parts::of(key)).add(slot)).waker()
    }

    /// Waits for the client to open a window: there is content for it, which an answer of unknown length that has used its
    /// window up may be without. What has come of that all the same is held, and asked for whatever the window is.
    fn is_starved(&self, wire: &h2::Connection) -> bool {
        let output = &self.output;
        output.is_sending() && !output.is_held_up() && !output.may_end() && wire.room(self.key) == 0
    }

    /// Waits for the client to send content.
    fn wants_content(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| {
            // Once there is an answer, both sides may be silent: a stream of messages, perhaps.
            let sink = &incoming.sink;
            !incoming.is_tunnel
                && !self.output.has_begun()
                && sink.is_wanted()
                && sink.has_reader()
                && sink.is_empty()
                && !sink.is_complete()
        })
    }
}

impl Http2 {
    fn work(&mut self, key: StreamKey) -> Option<&mut StreamWork> {
        self.streams.get_mut(key.slot())?.as_deref_mut().filter(|work| work.key == key)
    }

    /// Takes in a stream that is under way from now on. It is asked soon.
    fn begin(&mut self, work: Box<StreamWork>) {
        let slot = work.key.slot();
        self.insert(work);
        self.make_due(slot);
    }

    fn insert(&mut self, mut work: Box<StreamWork>) {
        let slot = work.key.slot();
        if self.streams.len() <= slot {
            self.streams.resize_with(slot + 1, || None);
        }
        work.weight = work.held();
        self.held += work.weight;
        self.streams[slot] = Some(work);
    }

    fn remove(&mut self, key: StreamKey) -> Option<Box<StreamWork>> {
        let slot = self.streams.get_mut(key.slot())?;
        slot.as_ref().filter(|work| work.key == key)?;
        self.remove_at(key.slot())
    }

    fn remove_at(&mut self, slot: usize) -> Option<Box<StreamWork>> {
        let work = self.streams.get_mut(slot)?.take()?;
        self.held = self.held.saturating_sub(work.weight);
        Some(work)
    }

    /// The stream in this slot is asked with the next turn.
    fn make_due(&mut self, slot: usize) {
        if let Some(work) = self.streams.get_mut(slot).and_then(Option::as_deref_mut)
            && !std::mem::replace(&mut work.is_due, true)
        {
            self.due.push(slot as u32);
        }
    }

    /// Weighs a stream anew, which has been touched where it is.
    fn weigh_anew(&mut self, slot: usize) {
        if let Some(work) = self.streams.get_mut(slot).and_then(Option::as_deref_mut) {
            let weight = work.held();
            self.held = (self.held + weight).saturating_sub(std::mem::replace(&mut work.weight, weight));
        }
    }

    /// Bytes were used. A trickle that completes nothing is no progress.
    fn goes_on(&mut self, used: usize) {
        if used > 0 && !self.wire.is_inside_block() {
            self.stalled = Duration::ZERO;
        }
    }

    /// Tells the client to send no more of what nobody reads, without blame (RFC 9113 section 8.1).
    fn stop_reading(&mut self, cx: &mut Ctx, mut which: impl FnMut(&mut Unread) -> bool) {
        let (wire, batch) = (&mut self.wire, &mut self.batch);
        self.unread.retain_mut(|unread| {
            if !wire.is_open(unread.key) {
                return false;
            }
            let stops = which(unread);
            if stops {
                cx.stats.http2_resets.add(StreamReset::Unread, 1);
                wire.reset(unread.key, ErrorCode::NO_ERROR, batch);
            }
            !stops
        });
    }

    /// The last request is over.
    pub(super) fn dismiss(&mut self) {
        self.is_dismissed = true;
    }

    /// Whether no other request is answered on it.
    pub(super) fn is_dismissed(&self) -> bool {
        self.is_dismissed
    }

    /// Whether its client has gone on reading since this was asked last, and may go on.
    pub(super) fn lingers_on(&mut self) -> bool {
        self.linger.times += 1;
        std::mem::take(&mut self.linger.has_moved) && self.linger.times < LINGERS
    }

    /// Tells the client that nothing more is answered. One that is told has not to wonder which of its requests were looked at.
    fn say_last(&mut self) {
        match self.wire.is_draining() {
            true => self.wire.drain(&mut self.batch), // it was told that we go, and not yet after which
            false => self.wire.fail(ErrorCode::NO_ERROR, "", &mut self.batch),
        }
    }

    /// Lets go of memory that only a busy connection needs.
    fn relax(&mut self) {
        self.wire.relax();
        if self.streams.len() > SLOTS_KEPT {
            (self.streams, self.due, self.parts) = (Vec::new(), Vec::new(), None);
        }
    }

    /// Bytes of what is under way.
    pub(super) fn weigh(&self) -> usize {
        let slots =
            self.streams.capacity() * size_of::<usize>() + self.unread.capacity() * size_of::<Unread>();
        let due = self.due.capacity() * size_of::<u32>() + self.parts.as_ref().map_or(0, Parts::held);
        self.held + slots + due + self.wire.memory()
    }

    /// No stream is open.
    pub(super) fn is_idle(&self) -> bool {
        self.wire.is_idle()
    }
}

fn limits(cx: &Ctx) -> Limits {
    let streams = cx.engine.settings.limits.streams;
    let mut head = cx.head_limits;
    head.fields = head.fields.min(MAX_FIELDS);
    Limits { head, streams, extended_connect: true, ..Limits::default() }
}

impl Connection {
    /// Whether HTTP/2 is spoken on it.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.protocol.is_h2()
    }

    /// From here on HTTP/2 is spoken. The client's preface is still to be read.
    pub(super) fn begin_h2(&mut self, cx: &mut Ctx) {
        cx.stats.http2_connections.add(1);
        let wire = h2::Connection::server(limits(cx), &mut self.batch);
        let mut reader = Reader::new();
        let terms = reading_terms(self.limits(&cx.engine));
        reader.begin(terms.grace, progress::now());
        self.protocol = Protocol::H2(Box::new(Http2 {
            wire,
            batch: Batch::default(),
            streams: Vec::new(),
            held: 0,
            parts: None,
            due: Vec::new(),
            has_told_end: false,
            unread: Vec::new(),
            stalled: Duration::ZERO,
            moved: 0,
            reader,
            is_awaited: false,
            terms,
            wanted: terms,
            served: 0,
            idle: IdleSince { now: progress::now(), turn: cx.turn },
            is_closing: false,
            is_dismissed: false,
            linger: Linger::default(),
            late: 0,
        }));
        self.timer = Timer::Off;
    }

    /// The bytes that the client has begun with.
    pub(super) fn take_first_frames(&mut self, cx: &mut Ctx, data: &[u8]) -> io::Result<()> {
        let Some(mut h2) = self.take_h2() else { return Ok(()) };
        let result = self.take_frames(&mut h2, cx, data);
        self.put_h2(h2);
        result?;
        self.flush_batch()
    }

    /// The protocol, with the batch, which is where its frames go.
    #[inline]
    fn take_h2(&mut self) -> Option<Box<Http2>> {
        let Protocol::H2(mut h2) = std::mem::replace(&mut self.protocol, Protocol::H1) else { return None };
        std::mem::swap(&mut h2.batch, &mut self.batch);
        Some(h2)
    }

    #[inline]
    fn put_h2(&mut self, mut h2: Box<Http2>) {
        std::mem::swap(&mut h2.batch, &mut self.batch);
        self.protocol = Protocol::H2(h2);
    }

    /// Sends the batch while the protocol has it; what the socket refuses is held.
    #[inline]
    pub(super) fn flush_frames(&mut self, h2: &mut Http2) -> io::Result<()> {
        std::mem::swap(&mut h2.batch, &mut self.batch);
        let result = match self.transport.resets_on_close() {
            false => self.flush_batch(),
            true => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        std::mem::swap(&mut h2.batch, &mut self.batch);
        result
    }

    /// The socket is full: what is to be sent waits here or below.
    #[inline]
    pub(super) fn is_stuck(&self) -> bool {
        !self.held.is_empty() || self.transport.has_pending()
    }

    /// Runs until it has to wait.
    pub(super) fn run_h2(&mut self, key: Key, cx: &mut Ctx) -> io::Result<Next> {
        let Some(mut h2) = self.take_h2() else { return Ok(Next::Wait) };
        let next = self.turn_h2(&mut h2, key, cx);
        self.put_h2(h2);
        match next {
            // Told and flushed: close, or first wait until the client has read it.
            Ok(Next::Close) if !self.lingering => {
                self.unread = true;
                self.finish(cx)
            }
            next => next,
        }
    }

    fn turn_h2(&mut self, h2: &mut Http2, key: Key, cx: &mut Ctx) -> io::Result<Next> {
        if self.lingering {
            h2.linger.has_moved |= std::mem::take(&mut self.readable);
            return self.linger(cx);
        }
        if cx.draining && !h2.is_closing {
            h2.is_closing = true;
            h2.wire.drain(&mut h2.batch);
        }
        for _ in 0..TURNS {
            let has_more = self.pump_h2(h2, key, cx)?;
            if h2.is_closing && h2.wire.open_streams() == h2.unread.len() {
                h2.stop_reading(cx, |_| true);
            }
            if h2.wire.is_idle() {
                if h2.is_dismissed || (cx.closes_idle && h2.is_closing) {
                    h2.say_last(); // nobody is waited for any more
                }
                h2.relax();
            }
            self.flush_frames(h2)?;
            if self.eof && !has_more && !self.is_stuck() {
                self.give_up_blocked(h2, cx);
                self.flush_frames(h2)?;
            }
            if !self.is_stuck() && (h2.wire.is_over() || (self.eof && h2.wire.open_streams() == 0)) {
                return Ok(Next::Close);
            }
            if !self.readable || self.held.len() > HELD_MAX {
                return Ok(if has_more { Next::Again } else { Next::Wait });
            }
            let mut buffer = std::mem::take(&mut cx.read_buffer);
            let result = match self.receive(cx, &mut buffer) {
                Ok(Received::Bytes { count, drained }) => {
                    cx.stats.received_bytes.add(count as u64);
                    if drained && !self.peer_closed {
                        self.readable = false;
                    }
                    self.take_frames(h2, cx, &buffer[..count])
                }
                Ok(Received::End) => {
                    (self.eof, self.readable) = (true, false);
                    self.on_client_end(h2, cx);
                    Ok(())
                }
                Ok(Received::WouldBlock) => {
                    self.readable = false;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            cx.read_buffer = buffer;
            result?;
            if has_more || cx.decoded >= DECODED_PER_TURN {
                break; // its share of sending is used up; answers to what was read leave at the end of the turn
            }
        }
        Ok(Next::Again)
    }

    /// The client has finished sending, which with HTTP/2 nobody does who wants an answer; but who can tell.
    fn on_client_end(&mut self, h2: &mut Http2, cx: &mut Ctx) {
        for slot in 0..h2.streams.len() {
            h2.make_due(slot); // what it reads has ended
            let Some(work) = h2.streams[slot].as_deref_mut() else { continue };
            if let Some(incoming) = work.incoming.take() {
                if incoming.is_tunnel {
                    incoming.sink.complete(FieldLines::new());
                    continue;
                }
                incoming.sink.fail(RequestBodyError::Interrupted);
            }
            if work.request.ends_with_client || work.output.ends_with_client() {
                let key = work.key;
                h2.wire.reset(key, ErrorCode::CANCEL, &mut h2.batch);
                self.abandon_stream(h2, key, cx);
            }
        }
    }

    /// No window grows any more, since the client has finished sending: what is blocked by one stays so.
    fn give_up_blocked(&mut self, h2: &mut Http2, cx: &mut Ctx) {
        if h2.wire.next_ready().is_some() {
            return; // the socket was full meanwhile
        }
        while let Some(&key) = h2.wire.ready().first() {
            h2.wire.set_ready(key, false);
            h2.wire.reset(key, ErrorCode::CANCEL, &mut h2.batch);
            self.abandon_stream(h2, key, cx);
        }
    }

    /// Gives bytes to the protocol; what belongs to a frame that is not complete is kept.
    pub(super) fn take_frames(&mut self, h2: &mut Http2, cx: &mut Ctx, new: &[u8]) -> io::Result<()> {
        if self.input.is_empty() {
            let used = self.read_frames(h2, cx, new)?;
            h2.goes_on(used);
            if used < new.len() {
                self.input.extend_from_slice(&new[used..]);
            }
            return Ok(());
        }
        let mut held = std::mem::take(&mut self.input);
        held.extend_from_slice(new);
        let used = self.read_frames(h2, cx, &held)?;
        h2.goes_on(used);
        if used < held.len() {
            held.remove_front(used);
            self.input = held;
        }
        Ok(())
    }

    /// Sets the timer.
    pub(super) fn arm_h2(&mut self, key: Key, cx: &mut Ctx) {
        let is_stuck = self.is_stuck() || !self.input.is_empty();
        let keep_alive_timeout = self.limits(&cx.engine).keep_alive_timeout;
        let is_new = self.timer != Timer::Streams;
        let Protocol::H2(h2) = &mut self.protocol else { return };
        if is_new {
            h2.reader.resume(progress::now());
        }
        if is_new && h2.terms != h2.wanted {
            h2.terms = h2.wanted;
            h2.reader.restore(h2.terms.grace);
        }
        let (timer, after) = if h2.is_idle() && !is_stuck {
            let now = progress::now();
            let has_served = std::mem::replace(&mut h2.served, self.served) != self.served;
            if has_served {
                h2.idle = IdleSince { now, turn: cx.turn };
            }
            if self.timer == Timer::Idle && !has_served {
                return;
            }
            h2.reader.begin(h2.terms.grace, now);
            let idle_for = Duration::from_millis(now.wrapping_sub(h2.idle.now).into());
            let left = keep_alive_timeout.saturating_sub(idle_for);
            // A part of another frame may take the timer's place again before it fires.
            if left.is_zero() && self.timer == Timer::Streams && !has_served && !h2.is_dismissed {
                cx.stats.keep_alive_timeouts.add(1);
                h2.dismiss();
            }
            (Timer::Idle, left)
        } else {
            (Timer::Streams, h2.reader.span(h2.terms))
        };
        let turn = h2.idle.turn;
        self.arm_anew(timer, after, key, cx);
        if timer == Timer::Idle {
            self.idle_since = turn;
        }
    }

    /// The timer has come while something was under way: whoever has moved too little for too long is given
    /// up, streams one by one (FAULTS 20, 27, 28).
    pub(super) fn check_streams(&mut self, key: Key, cx: &mut Ctx) -> Next {
        let Some(mut h2) = self.take_h2() else { return Next::Wait };
        let engine = cx.engine.clone();
        let of_server = &engine.settings.limits;
        let (head_timeout, grace) = (of_server.head_timeout, h2.terms.grace);
        let now = progress::now();
        let waited = h2.reader.waited(now);
        let (taken, waiting) = self.delivery();
        let end = taken.wrapping_add(waiting + (self.transport.pending() + self.held.len()) as u64);
        let is_blocked = self.is_stuck();
        let mut is_awaited = is_blocked;
        for slot in 0..h2.streams.len() {
            let Some(work) = h2.streams[slot].as_deref_mut() else { continue };
            let is_under_way = work.pace.is_under_way(taken, end);
            let is_starved = work.is_starved(&h2.wire) && !is_blocked;
            work.is_under_way = is_under_way && is_starved;
            is_awaited |= work.is_under_way;
        }
        // The socket itself: nothing can be said to a client that does not read.
        // Since when it is waited for nobody knows who has not seen it at the last look.
        let is_awaited_longer = std::mem::replace(&mut h2.is_awaited, is_awaited) && is_awaited;
        let is_lost = h2.reader.look(taken, now, h2.terms).is_none() && is_awaited_longer;
        if !is_awaited_longer {
            h2.reader.restore(grace);
        }
        if is_lost {
            self.give_up_reader(cx);
        } else if !self.input.is_empty() || h2.wire.is_inside_block() {
            h2.stalled = if is_blocked { Duration::ZERO } else { h2.stalled + waited };
            if h2.stalled >= head_timeout {
                cx.stats.timeouts.add(Timeout::Head, 1);
                h2.wire.fail(ErrorCode::PROTOCOL_ERROR, "a frame took too long", &mut h2.batch);
            }
        }
        let moved = std::mem::take(&mut h2.moved);
        for slot in 0..h2.streams.len() {
            let Some(work) = h2.streams[slot].as_deref_mut() else { continue };
            let limits = work.limits.as_deref().unwrap_or(&of_server.request);
            let (sending, receiving) = (reading_terms(limits), sending_terms(limits));
            let (waits, terms) = if work.is_under_way {
                (Waits::No, sending)
            } else if work.is_starved(&h2.wire) && !is_blocked {
                let is_own = h2.wire.stream_room(work.key) == 0;
                (if is_own { Waits::Window } else { Waits::Connection(moved) }, sending)
            } else if work.wants_content() {
                (Waits::Content, receiving)
            } else {
                (Waits::No, sending)
            };
            if !work.pace.look(waits, now, terms) {
                let key = work.key;
                let wait = if waits == Waits::Content { Timeout::Body } else { Timeout::Write };
                cx.stats.timeouts.add(wait, 1);
                cx.stats.http2_resets.add(StreamReset::Slow, 1);
                h2.wire.reset(key, ErrorCode::CANCEL, &mut h2.batch);
                self.abandon_stream(&mut h2, key, cx);
            }
            h2.weigh_anew(slot); // what waits may have grown where nobody was woken for it
        }
        h2.stop_reading(cx, |unread| {
            unread.waited += waited;
            unread.waited >= grace
        });
        self.put_h2(h2);
        self.timer = Timer::Off;
        if is_lost { Next::Close } else { self.take_turn(key, cx) }
    }

    /// The connection ends before its streams do.
    pub(super) fn abandon_h2(&mut self, cx: &mut Ctx) {
        let Some(mut h2) = self.take_h2() else { return };
        if !self.is_stuck() && !self.eof && !self.transport.resets_on_close() {
            h2.say_last();
            if !h2.batch.is_empty() {
                let _ = self.transport.send(&h2.batch, false);
            }
        }
        self.abandon_streams(&mut h2, cx);
        h2.batch.discard();
        std::mem::swap(&mut h2.batch, &mut self.batch); // its memory is the worker's
    }

    /// Nothing that is under way is finished.
    fn abandon_streams(&mut self, h2: &mut Http2, cx: &mut Ctx) {
        for slot in 0..h2.streams.len() {
            if let Some(work) = &h2.streams[slot] {
                let key = work.key;
                self.abandon_stream(h2, key, cx);
            }
        }
    }

    /// A stream has ended before its answer did: it is logged with what was sent of it.
    fn abandon_stream(&mut self, h2: &mut Http2, key: StreamKey, cx: &mut Ctx) {
        if let Some(mut work) = h2.remove(key) {
            if let Some(incoming) = work.incoming.take() {
                incoming.sink.fail(RequestBodyError::Interrupted);
            }
            work.output.give_up();
            work.count(cx);
        }
    }
}

/// The slot that an error of the connection is counted in.
fn kind_of_error(error: &ConnectionError) -> ConnectionFault {
    match error {
        ConnectionError::Flood(flood) => match flood {
            Flood::Reset => ConnectionFault::Reset,
            Flood::ProvokedReset => ConnectionFault::ProvokedReset,
            Flood::Continuation => ConnectionFault::Continuation,
            Flood::FieldSection => ConnectionFault::FieldSection,
            Flood::Ping => ConnectionFault::Ping,
            Flood::Settings => ConnectionFault::Settings,
            Flood::EmptyData => ConnectionFault::EmptyData,
            Flood::Priority => ConnectionFault::Priority,
            Flood::WindowUpdate => ConnectionFault::WindowUpdate,
            Flood::Ignored => ConnectionFault::Ignored,
        },
        ConnectionError::Compression(_) => ConnectionFault::Compression,
        ConnectionError::WindowOverflow
        | ConnectionError::WindowExceeded
        | ConnectionError::InitialWindowTooLarge => ConnectionFault::FlowControl,
        _ => ConnectionFault::Protocol,
    }
}
