//! One connection of HTTP/2 and the task that drives it: bytes to events, events to the streams that wait for them.

use super::liveness::Liveness;
use super::stream::Http2Stream;
use super::{Answer, Http2Error, Http2Pool};
use crate::connection::Connection;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use tidegate_http::{FieldLines, Fields};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::runtime;
use tidegate_io::timer::{self, Deadline};
use tidegate_wire::h1::FieldSpace;
use tidegate_wire::h2::{
    self, CannotOpen, ErrorCode, Event, INITIAL_WINDOW, Limits, RequestParts, Section, StreamKey,
};

/// Streams on one connection, whatever the peer would take.
const STREAMS: u32 = 100;
/// What the peer may send of an answer before anybody takes any of it.
const FIRST_WINDOW: u32 = 16 << 10;
/// What it may send of one that is taken as fast as it comes.
pub(super) const MOST_WINDOW: u32 = INITIAL_WINDOW;
/// Bytes that wait to be sent before content of requests has to.
pub(super) const OUT_MAX: usize = 128 << 10;
/// Reads in one turn.
const TURNS: usize = 16;
/// Interim answers that wait; further ones are left out.
const INTERIM_MAX: usize = 16;
/// Interim answers to one request, whether they are waited for or not; an answer that needs more is none.
const INTERIM_ALL: u32 = 256;

/// One connection.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) state: RefCell<State>,
    /// Of the task that drives it.
    driver: RefCell<Option<Waker>>,
}

pub(super) struct State {
    pub(super) wire: h2::Connection,
    section: Section,
    /// To be sent, and how much of it is.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// Bytes sent in all.
    sent_in_all: u64,
    /// Of a frame that is not complete.
    input: Vec<u8>,
    pub(super) streams: BTreeMap<u32, StreamState>,
    /// Something has come: somebody has accepted the connection.
    pub(super) is_accepted: bool,
    pub(super) liveness: Liveness,
    /// No further streams.
    is_closing: bool,
    pub(super) over: Option<Http2Error>,
}

pub(super) struct StreamState {
    /// Bytes that are sent before its first one.
    begins: u64,
    pub(super) heads: VecDeque<Answer>,
    interims: u32,
    pub(super) data: Vec<u8>,
    /// Bytes of content that the peer may have us hold.
    pub(super) window: u32,
    /// Bytes of content that were taken.
    pub(super) taken: u64,
    pub(super) trailers: FieldLines,
    pub(super) has_ended: bool,
    pub(super) error: Option<Http2Error>,
    /// Who waits for the answer, and for room to send.
    pub(super) waker: Option<Waker>,
    pub(super) waits_for_room: bool,
}

impl StreamState {
    fn new(begins: u64) -> StreamState {
        StreamState {
            begins,
            heads: VecDeque::new(),
            interims: 0,
            data: Vec::new(),
            window: FIRST_WINDOW,
            taken: 0,
            trailers: FieldLines::new(),
            has_ended: false,
            error: None,
            waker: None,
            waits_for_room: false,
        }
    }

    /// Bytes that it holds, or may hold before anybody is asked: what the window promises counts as if it had come.
    pub(super) fn held(&self) -> usize {
        let promised = if self.has_ended || self.error.is_some() { 0 } else { self.window as usize };
        let heads: usize = self.heads.iter().map(|answer| answer.lines.capacity()).sum();
        size_of::<StreamState>() + self.data.capacity().max(promised) + self.trailers.capacity() + heads
    }

    /// Takes content in. Room is made for no more than what the window lets come.
    fn push(&mut self, data: &[u8]) {
        let len = self.data.len() + data.len();
        if len > self.data.capacity() {
            let room = if self.has_ended { len } else { (2 * len).min(self.window as usize).max(len) };
            self.data.reserve_exact(room - self.data.len());
        }
        self.data.extend_from_slice(data);
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Session {
    pub(super) fn begin(connection: Connection) -> Rc<Session> {
        let mut out = Vec::new();
        let limits = Limits {
            connection_window: STREAMS * MOST_WINDOW, // no stream that is not read holds up the others
            stream_window: FIRST_WINDOW,
            ..Limits::default()
        };
        let wire = h2::Connection::client(limits, &mut out);
        Rc::new(Session {
            connection,
            state: RefCell::new(State {
                wire,
                section: Section::new(),
                out,
                sent: 0,
                sent_in_all: 0,
                input: Vec::new(),
                streams: BTreeMap::new(),
                is_accepted: false,
                liveness: Liveness::new(monotonic_ns()),
                is_closing: false,
                over: None,
            }),
            driver: RefCell::default(),
        })
    }

    /// Whether nothing has come where something was due: another connection may do better.
    pub(super) fn is_doubtful(&self) -> bool {
        !self.state.borrow().liveness.is_usable()
    }

    /// Sends the head of a request, where it takes one more, doubtful or not.
    pub(super) fn open(self: &Rc<Self>, parts: &RequestParts<'_>, is_end: bool) -> Option<Http2Stream> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let takes_none = state.is_closing || state.over.is_some();
        if takes_none || state.wire.open_streams() >= STREAMS as usize {
            return None;
        }
        let begins = state.sent_in_all + (state.out.len() - state.sent) as u64;
        match state.wire.send_request(parts, is_end, &mut state.out) {
            Ok(key) => {
                state.streams.insert(key.id(), StreamState::new(begins));
                state.liveness.asks(monotonic_ns());
                self.wake();
                Some(Http2Stream { session: self.clone(), key })
            }
            Err(CannotOpen::TooManyStreams) => None,
            Err(CannotOpen::Closing) => {
                state.is_closing = true;
                None
            }
        }
    }

    pub(super) fn wake(&self) {
        let driver = self.driver.borrow().clone();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl State {
    fn take(&mut self, new: &[u8]) {
        let now = monotonic_ns();
        if !new.is_empty() {
            self.is_accepted = true;
            self.liveness.hears(now);
        }
        let mut held = std::mem::take(&mut self.input);
        let data = if held.is_empty() {
            new
        } else {
            held.extend_from_slice(new);
            &held
        };
        let second = (now / 1_000_000_000) as u32;
        let mut section = std::mem::take(&mut self.section);
        let mut at = 0;
        loop {
            match self.wire.read(&data[at..], second, &mut section, &mut self.out) {
                Ok(read) => {
                    at += read.consumed;
                    let Some(event) = read.event else { break };
                    self.on_event(event, &section);
                }
                Err(error) => {
                    let is_http1 = data.get(at..).is_some_and(|rest| rest.starts_with(b"HTTP/1."));
                    self.end(&match is_http1 {
                        // It would say the same again.
                        true => Http2Error::Misbehaved("HTTP/1, and speaks no HTTP/2".to_owned()),
                        false => Http2Error::Broken(error.to_string()),
                    });
                    at = data.len();
                    break;
                }
            }
        }
        self.section = section;
        self.input = data[at..].to_vec();
        self.offer_room();
    }

    fn on_event(&mut self, event: Event<'_>, section: &Section) {
        if matches!(event, Event::Response { .. } | Event::Interim { .. } | Event::Data { .. }) {
            self.liveness.is_answered();
        }
        match event {
            Event::Response { stream, is_end } => self.take_head(stream, section, is_end),
            Event::Interim { stream } => self.take_head(stream, section, false),
            Event::Data { stream, data, is_end } => match self.streams.get_mut(&stream.id()) {
                Some(state) => {
                    state.has_ended |= is_end;
                    state.push(data);
                    state.wake();
                }
                None => self.wire.release(stream, data.len(), &mut self.out),
            },
            Event::Trailers { stream } => {
                let mut space = FieldSpace::new();
                let lines = lines_of(&section.fields(&mut space));
                if let Some(state) = self.streams.get_mut(&stream.id()) {
                    state.trailers = lines;
                    state.has_ended = true;
                    state.wake();
                }
            }
            Event::Reset { stream, code } => {
                let error = match code {
                    ErrorCode::REFUSED_STREAM => Http2Error::Unprocessed,
                    code => Http2Error::Reset(code),
                };
                self.fail(stream.id(), error);
            }
            Event::Broken { stream: Some(stream), error } => {
                self.fail(stream.id(), Http2Error::Misbehaved(error.to_string()));
            }
            Event::GoAway { last_stream, .. } => {
                self.is_closing = true;
                let unread: Vec<u32> =
                    self.streams.range(last_stream.saturating_add(1)..).map(|(id, _)| *id).collect();
                let gets_on = last_stream > 0;
                let error = if gets_on { Http2Error::PassedOver } else { Http2Error::Unprocessed };
                unread.into_iter().for_each(|id| self.fail(id, error.clone()));
            }
            // A server opens no streams.
            Event::Broken { stream: None, .. } | Event::Request { .. } | Event::Refused { .. } => {}
        }
    }

    fn take_head(&mut self, stream: StreamKey, section: &Section, is_end: bool) {
        let Some(state) = self.streams.get_mut(&stream.id()) else { return };
        let mut space = FieldSpace::new();
        let head = section.response(&mut space);
        if head.status < 200 {
            state.interims += 1;
            if state.interims > INTERIM_ALL {
                let what = format!("more than {INTERIM_ALL} interim answers");
                self.wire.reset(stream, ErrorCode::ENHANCE_YOUR_CALM, &mut self.out);
                return self.fail(stream.id(), Http2Error::Misbehaved(what));
            }
        }
        if head.status >= 200 || state.heads.len() < INTERIM_MAX {
            let (status, content_length) = (head.status, head.content_length);
            state.heads.push_back(Answer { status, lines: lines_of(&head.fields), content_length, is_end });
        }
        state.has_ended |= is_end;
        state.wake();
    }

    fn fail(&mut self, id: u32, error: Http2Error) {
        // Behind the end of an answer a reset only says that the rest of the request is not wanted.
        if let Some(state) = self.streams.get_mut(&id).filter(|state| !state.has_ended) {
            state.error.get_or_insert(error);
            state.wake();
        }
    }

    /// The connection is of no use any more.
    fn end(&mut self, error: &Http2Error) {
        self.over.get_or_insert_with(|| error.clone());
        // Of which nothing was sent, nobody has begun with.
        let is_unsent = |stream: &StreamState| stream.begins >= self.sent_in_all;
        let all: Vec<(u32, bool)> =
            self.streams.iter().map(|(id, stream)| (*id, is_unsent(stream))).collect();
        for (id, is_unsent) in all {
            self.fail(id, if is_unsent { Http2Error::Unprocessed } else { error.clone() });
        }
    }

    /// Wakes who waits to send.
    fn offer_room(&mut self) {
        if self.out.len() - self.sent <= OUT_MAX {
            for state in self.streams.values_mut().filter(|state| state.waits_for_room) {
                state.waits_for_room = false;
                state.wake();
            }
        }
    }
}

fn lines_of(fields: &Fields<'_>) -> FieldLines {
    let mut lines = FieldLines::with_capacity(256);
    for field in fields.iter() {
        lines.push(field.name, field.value);
    }
    lines
}

/// Moves bytes for as long as there is anything to do on a connection.
pub(super) struct Driver {
    pub(super) session: Rc<Session>,
    pub(super) pool: Weak<Http2Pool>,
    pub(super) idle: Option<Deadline>,
    /// When to look whether the other end listens, and what wakes then.
    pub(super) watch: Option<(u64, Deadline)>,
}

impl Driver {
    /// Sends what there is.
    fn send(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut state = self.session.state.borrow_mut();
        let state = &mut *state;
        while state.sent < state.out.len() {
            match self.session.connection.poll_send(cx, &state.out[state.sent..]) {
                Poll::Ready(Ok(count)) => {
                    state.sent += count;
                    state.sent_in_all += count as u64;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
        (state.out, state.sent) = (Vec::new(), 0); // an idle connection holds no buffer
        state.offer_room();
        Ok(())
    }

    fn turn(&self, cx: &mut Context<'_>) -> io::Result<()> {
        for _ in 0..TURNS {
            self.send(cx)?;
            let polled = runtime::with_scratch(|buffer| {
                self.session.connection.poll_recv(cx, buffer).map(|received| {
                    received.inspect(|count| self.session.state.borrow_mut().take(&buffer[..*count]))
                })
            });
            match polled {
                Poll::Ready(Ok(0)) => return Err(io::Error::other("it has closed the connection")),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return self.send(cx),
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Asks the other end whether it listens, where it is time to.
    fn watch(&mut self, cx: &mut Context<'_>) {
        let mut state = self.session.state.borrow_mut();
        let State { liveness, wire, out, .. } = &mut *state;
        while let Some(due) = liveness.due() {
            // One that passes before only has to be armed anew.
            let (_, deadline) = match self.watch.take() {
                Some(watch) if watch.0 <= due => self.watch.insert(watch),
                _ => self.watch.insert((due, timer::at(due))),
            };
            if Pin::new(deadline).poll(cx).is_pending() {
                return;
            }
            self.watch = None;
            if liveness.check(monotonic_ns()) {
                wire.ping(out);
            }
        }
    }

    /// Whether it has to go, now that no stream is open.
    fn is_done(&mut self, cx: &mut Context<'_>) -> bool {
        let state = self.session.state.borrow();
        let is_of_use = !state.is_closing && !state.liveness.is_given_up();
        let Some(pool) = self.pool.upgrade().filter(|_| is_of_use) else { return true };
        let lifetime = pool.connector.limits().idle_timeout;
        let idle = self.idle.get_or_insert_with(|| timer::after(lifetime));
        Pin::new(idle).poll(cx).is_ready()
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        *self.session.driver.borrow_mut() = Some(cx.waker().clone());
        self.watch(cx);
        let turn = self.turn(cx);
        let is_over = match turn {
            Err(error) => {
                self.session.state.borrow_mut().end(&Http2Error::Lost(error.to_string()));
                true
            }
            Ok(()) => self.session.state.borrow().over.is_some(),
        };
        let is_quiet = self.session.state.borrow().streams.is_empty();
        if !is_quiet {
            self.idle = None;
        }
        let ends = is_over || (is_quiet && self.is_done(cx));
        if !ends {
            return Poll::Pending;
        }
        {
            let mut state = self.session.state.borrow_mut();
            let state = &mut *state;
            state.is_closing = true;
            state.wire.drain(&mut state.out);
        }
        let _ = self.send(cx); // what it is told, if it still listens
        let session = self.session.clone();
        if let Some(pool) = self.pool.upgrade() {
            pool.remove(&session);
        }
        Poll::Ready(())
    }
}
