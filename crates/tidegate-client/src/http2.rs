//! HTTP/2 with a backend: many exchanges on one connection (RFC 9113), which a task of its own drives.
//!
//! An [`Http2Pool`] holds the connections of one worker to one address and gives an [`Http2Stream`] for each
//! request; whoever holds one sends content into it and takes the answer out of it. Nothing here knows a route or
//! a setting. Content that is not taken waits within the windows of flow control, so nothing grows without bound.

use crate::connection::{Connection, PeerTls};
use crate::peer::Peer;
use crate::pool::{Pool, PoolLimits};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use thiserror::Error;
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
/// Bytes that wait to be sent before content of requests has to.
const OUT_MAX: usize = 128 << 10;
/// Reads in one turn.
const TURNS: usize = 16;
/// Interim answers that wait; further ones are left out.
const INTERIM_MAX: usize = 16;
/// Interim answers to one request, whether they are waited for or not; an answer that needs more is none.
const INTERIM_ALL: u32 = 256;

/// Why an exchange has failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Http2Error {
    /// The peer has not looked at the request: it may be sent again, whatever it is.
    #[error("it has turned the request away unread")]
    Unprocessed,
    /// The peer has given the stream up.
    #[error("it has reset the stream with {0:?}")]
    Reset(ErrorCode),
    /// The peer broke the protocol.
    #[error("it has answered with {0}")]
    Misbehaved(String),
    /// The peer broke the protocol on the connection, for all that share it.
    #[error("it has answered with {0}")]
    Broken(String),
    /// The connection is gone.
    #[error("{0}")]
    Lost(String),
}

/// The head of an answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// 100 to 599, never 101. Below 200 the final head follows.
    pub status: u16,
    /// The fields, in lower case.
    pub lines: FieldLines,
    /// As announced.
    pub content_length: Option<u64>,
    /// There is no content.
    pub is_end: bool,
}

/// Connections of one worker to one address.
pub struct Http2Pool {
    /// Makes the connections; none is idle there.
    connector: Rc<Pool>,
    sessions: RefCell<Vec<Rc<Session>>>,
    is_connecting: Cell<bool>,
    /// Connects that were begun, those that were handed on counted once more.
    connects: Cell<u64>,
    /// The last of them that came to nothing, and why: what waited for it is told the same.
    failed: RefCell<(u64, io::ErrorKind, String)>,
    waiting: RefCell<Vec<Waker>>,
}

impl Http2Pool {
    /// An empty pool. With `tls` the peer must choose `h2` by ALPN; without, it is known to speak HTTP/2.
    pub fn new(peer: Arc<Peer>, limits: PoolLimits, tls: Option<PeerTls>) -> Rc<Http2Pool> {
        Rc::new(Http2Pool {
            connector: Pool::with_tls(peer, limits, tls),
            sessions: RefCell::default(),
            is_connecting: Cell::new(false),
            connects: Cell::new(0),
            failed: RefCell::new((0, io::ErrorKind::Other, String::new())),
            waiting: RefCell::default(),
        })
    }

    /// How TLS is spoken with it.
    pub fn tls(&self) -> Option<&PeerTls> {
        self.connector.tls()
    }

    /// Takes up other bounds.
    pub fn set_limits(&self, limits: PoolLimits) {
        self.connector.set_limits(limits);
    }

    /// Sends the head of a request, on a connection that is there or on a new one. One that was being made for a request
    /// that is gone is handed to the next (FAULTS 59), as in [`Pool::connect`].
    ///
    /// # Errors
    /// What the system says of a new connection, or `TimedOut`.
    pub async fn open(self: &Rc<Self>, parts: &RequestParts<'_>, is_end: bool) -> io::Result<Http2Stream> {
        loop {
            if let Some(stream) = self.try_open(parts, is_end) {
                return Ok(stream);
            }
            if self.is_connecting.get() {
                // One connection carries many: who comes meanwhile waits for it.
                let awaited = self.connects.get();
                std::future::poll_fn(|cx| {
                    if !self.is_connecting.get() || self.connects.get() != awaited {
                        return Poll::Ready(());
                    }
                    self.waiting.borrow_mut().push(cx.waker().clone());
                    Poll::Pending
                })
                .await;
                let failed = self.failed.borrow();
                if failed.0 == awaited {
                    return Err(io::Error::new(failed.1, failed.2.clone()));
                }
                continue;
            }
            let connecting = Connecting::begin(self);
            // A server may have sent its SETTINGS before anybody looked.
            let made = self.connector.connect_unless(Connection::is_closed_now).await;
            let speaks = |connection: &Connection| self.tls().is_none() || connection.has_chosen(b"h2");
            let made = match made {
                Ok(connection) if !speaks(&connection) => {
                    let why = "it does not speak HTTP/2 over TLS";
                    Err(io::Error::new(io::ErrorKind::InvalidData, why))
                }
                made => made,
            };
            let connection = made.inspect_err(|error| {
                *self.failed.borrow_mut() = (self.connects.get(), error.kind(), error.to_string());
            })?;
            let session = Session::begin(connection);
            self.sessions.borrow_mut().push(session.clone());
            let driver = Driver { session, pool: Rc::downgrade(self), idle: None };
            runtime::with(|runtime| runtime.spawn(driver));
            drop(connecting);
        }
    }

    fn try_open(&self, parts: &RequestParts<'_>, is_end: bool) -> Option<Http2Stream> {
        let sessions = self.sessions.borrow();
        sessions.iter().find_map(|session| session.open(parts, is_end))
    }

    fn remove(&self, session: &Rc<Session>) {
        let gone: Vec<_> =
            self.sessions.borrow_mut().extract_if(.., |known| Rc::ptr_eq(known, session)).collect();
        drop(gone); // not while the cell is borrowed
    }
}

impl Drop for Http2Pool {
    fn drop(&mut self) {
        self.sessions.take().iter().for_each(|session| session.wake()); // they end with their streams
    }
}

/// A connection that is being made.
struct Connecting<'p>(&'p Http2Pool);

impl<'p> Connecting<'p> {
    fn begin(pool: &'p Http2Pool) -> Connecting<'p> {
        pool.is_connecting.set(true);
        pool.connects.set(pool.connects.get() + 1);
        Connecting(pool)
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.is_connecting.set(false);
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }
}

/// One connection.
struct Session {
    connection: Connection,
    state: RefCell<State>,
    /// Of the task that drives it.
    driver: RefCell<Option<Waker>>,
}

struct State {
    wire: h2::Connection,
    section: Section,
    /// To be sent, and how much of it is.
    out: Vec<u8>,
    sent: usize,
    /// Bytes sent in all.
    sent_in_all: u64,
    /// Of a frame that is not complete.
    input: Vec<u8>,
    streams: BTreeMap<u32, StreamState>,
    /// No further streams.
    is_closing: bool,
    over: Option<Http2Error>,
}

#[derive(Default)]
struct StreamState {
    /// Bytes that are sent before its first one.
    begins: u64,
    heads: VecDeque<Answer>,
    interims: u32,
    data: Vec<u8>,
    trailers: FieldLines,
    has_ended: bool,
    error: Option<Http2Error>,
    /// Who waits for the answer, and for room to send.
    waker: Option<Waker>,
    waits_for_room: bool,
}

impl StreamState {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Session {
    fn begin(connection: Connection) -> Rc<Session> {
        let mut out = Vec::new();
        let limits = Limits {
            connection_window: STREAMS * INITIAL_WINDOW, // no stream that is not read holds up the others
            stream_window: INITIAL_WINDOW,
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
                is_closing: false,
                over: None,
            }),
            driver: RefCell::default(),
        })
    }

    fn open(self: &Rc<Self>, parts: &RequestParts<'_>, is_end: bool) -> Option<Http2Stream> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if state.is_closing || state.over.is_some() || state.wire.open_streams() >= STREAMS as usize {
            return None;
        }
        let begins = state.sent_in_all + (state.out.len() - state.sent) as u64;
        match state.wire.send_request(parts, is_end, &mut state.out) {
            Ok(key) => {
                state.streams.insert(key.id(), StreamState { begins, ..StreamState::default() });
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

    fn wake(&self) {
        let driver = self.driver.borrow().clone();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl State {
    fn take(&mut self, new: &[u8]) {
        let mut held = std::mem::take(&mut self.input);
        let data = if held.is_empty() {
            new
        } else {
            held.extend_from_slice(new);
            &held
        };
        let second = (monotonic_ns() / 1_000_000_000) as u32;
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
        match event {
            Event::Response { stream, is_end } => self.take_head(stream, section, is_end),
            Event::Interim { stream } => self.take_head(stream, section, false),
            Event::Data { stream, data, is_end } => match self.streams.get_mut(&stream.id()) {
                Some(state) => {
                    state.data.extend_from_slice(data);
                    state.has_ended |= is_end;
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
                unread.into_iter().for_each(|id| self.fail(id, Http2Error::Unprocessed));
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
struct Driver {
    session: Rc<Session>,
    pool: Weak<Http2Pool>,
    idle: Option<Deadline>,
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

    /// Whether it has to go, now that no stream is open.
    fn is_done(&mut self, cx: &mut Context<'_>) -> bool {
        let state = self.session.state.borrow();
        let Some(pool) = self.pool.upgrade().filter(|_| !state.is_closing) else { return true };
        let lifetime = pool.connector.limits().idle_timeout;
        let idle = self.idle.get_or_insert_with(|| timer::after(lifetime));
        Pin::new(idle).poll(cx).is_ready()
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        *self.session.driver.borrow_mut() = Some(cx.waker().clone());
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

/// One exchange. Dropped before its end, it is reset.
pub struct Http2Stream {
    session: Rc<Session>,
    key: StreamKey,
}

impl Http2Stream {
    /// The next head: interim ones first.
    pub fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<Answer, Http2Error>> {
        self.poll(cx, |_, state, _, _| state.heads.pop_front())
    }

    /// Content, moved to the front of `buffer`; 0 at the end.
    pub fn poll_data(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, Http2Error>> {
        let polled = self.poll(cx, |key, state, wire, out| {
            let count = state.data.len().min(buffer.len());
            if count == 0 {
                return state.has_ended.then_some(0);
            }
            buffer[..count].copy_from_slice(&state.data[..count]);
            state.data.drain(..count);
            if state.data.is_empty() {
                state.data = Vec::new();
            }
            wire.release(key, count, out);
            Some(count)
        });
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.session.wake(); // it gives back the window
        }
        polled
    }

    /// The trailer fields, once the content has ended.
    pub fn take_trailers(&self) -> FieldLines {
        let mut state = self.session.state.borrow_mut();
        state
            .streams
            .get_mut(&self.key.id())
            .map(|stream| std::mem::take(&mut stream.trailers))
            .unwrap_or_default()
    }

    /// Ends the request with trailer fields, behind all of its content. They are sent within no window.
    pub fn send_trailers(&self, trailers: &FieldLines) {
        let mut state = self.session.state.borrow_mut();
        let State { wire, out, .. } = &mut *state;
        wire.send_trailers(self.key, trailers.as_bytes(), out);
        self.session.wake();
    }

    /// Sends content, and with `is_end` its end. Returns the bytes taken: at least one, unless there is none. A peer
    /// that has answered and wants no more gets no more, and that is no error.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
        is_end: bool,
    ) -> Poll<Result<usize, Http2Error>> {
        let mut state = self.session.state.borrow_mut();
        let State { wire, streams, out, sent, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&self.key.id()) else { return Poll::Ready(Ok(data.len())) };
        if let Some(error) = &stream.error {
            return Poll::Ready(Err(error.clone()));
        }
        if !wire.is_open(self.key) {
            return Poll::Ready(Ok(data.len()));
        }
        let has_room = out.len() - *sent <= OUT_MAX;
        let before = out.len();
        let count = if has_room { wire.send_data(self.key, data, is_end, out) } else { 0 };
        if out.len() > before {
            self.session.wake();
        }
        if count == 0 && (!data.is_empty() || !has_room) {
            stream.waits_for_room = true;
            stream.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(count))
    }

    /// Bytes of content that have come and were not taken.
    pub fn held(&self) -> usize {
        let state = self.session.state.borrow();
        state.streams.get(&self.key.id()).map_or(0, |stream| stream.data.capacity())
    }

    fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        take: impl FnOnce(StreamKey, &mut StreamState, &mut h2::Connection, &mut Vec<u8>) -> Option<R>,
    ) -> Poll<Result<R, Http2Error>> {
        let mut state = self.session.state.borrow_mut();
        let State { wire, streams, out, over, .. } = &mut *state;
        let lost = || over.clone().unwrap_or(Http2Error::Lost("the stream is gone".to_owned()));
        let Some(stream) = streams.get_mut(&self.key.id()) else { return Poll::Ready(Err(lost())) };
        if let Some(taken) = take(self.key, stream, wire, out) {
            return Poll::Ready(Ok(taken));
        }
        if let Some(error) = &stream.error {
            return Poll::Ready(Err(error.clone()));
        }
        stream.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let mut state = self.session.state.borrow_mut();
        let state = &mut *state;
        state.streams.remove(&self.key.id());
        state.wire.reset(self.key, ErrorCode::CANCEL, &mut state.out); // nothing, where it has ended
        self.session.wake();
    }
}

#[cfg(test)]
mod tests;
