//! A client connection: a plain state machine driven by edges, wake-ups and timers.
//!
//! It borrows the worker's memory while it runs and owns bytes only when stuck: `input` holds a request
//! that is incomplete or not yet its turn, `work` what cannot be finished at once, `held` what a full
//! socket refused. An idle connection has none of them. Output is in its own `batch` until it is sent. `receive` reads requests, `send` writes responses;
//! this file decides when.

mod backlog;
mod content;
mod deadlines;
mod decide;
mod faults;
mod h2;
pub(crate) mod in_flight;
mod output;
mod paced;
mod pieces;
mod preface;
mod progress;
mod receive;
mod send;
mod stream;
mod transport;

use crate::admission::Admitted;
use crate::batch::Batch;
use crate::context::Ctx;
use crate::crowd::Share;
use crate::engine::Engine;
use crate::exchange::LocalAddress;
use crate::interim::InterimQueue;
use crate::log;
use crate::memory;
use crate::opening::Opening;
use crate::rate::{ConnectionHolds, Held};
use backlog::Backlog;
use content::Incoming;
use deadlines::Timer;
use h2::Http2;
use progress::Reader;
use send::{Output, Progress};
use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use tidegate_config::settings::RequestLimits;
use tidegate_http::{Method, Version};
use tidegate_io::socket::{Peer, Received, Stream};
use tidegate_io::{Key, clock};
use tidegate_stats::ListenerNumber;
use tidegate_stats::series::{RequestKind, SeriesId};
use tidegate_wire::h1::HeadScanner;
use transport::Transport;

/// Reads, or chunks of a stream, in one turn: fairness between connections.
const TURNS: usize = 16;
/// Chunks and frames that are decoded in one turn: 16 reads may hold a hundred thousand of them, of a byte each. Frames of one read
/// stay together.
const DECODED_PER_TURN: u32 = 1024;
/// Of these a request is so many, by the time that it takes.
const DECODED_BY_REQUEST: u32 = 16;

/// What the worker does with a connection that has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Leave it until an edge, a wake-up or its timer.
    Wait,
    /// Its share of this turn is used up: run it again after the others.
    Again,
    /// Drop it.
    Close,
}

/// What the end of sending counts for in the kernel's queue; a client that has gone never takes it.
const FIN: u64 = 1;

/// One client connection.
pub struct Connection {
    transport: Transport,
    peer: Peer,
    /// Where it is counted, once that is said by more than `peer` and `entry`. In a box, since most have none.
    holds: OnceCell<Rc<ConnectionHolds>>,
    local: LocalAddress,
    listener: ListenerNumber,
    /// As what it was let in.
    entry: Admitted,
    timer: Timer,
    /// Bytes may be there to read.
    readable: bool,
    /// The poller has seen the peer's end; bytes may be in front of it.
    peer_closed: bool,
    /// The peer's end has been read.
    eof: bool,
    keep_alive: bool,
    lingering: bool,
    /// The worker runs it again without an event.
    pub(crate) is_queued: bool,
    /// The client may still be sending what nobody will read.
    unread: bool,
    /// It was found out whether the client is there, as far as that can be.
    is_probed: bool,
    /// The client has finished sending, and not with its request.
    has_left_late: bool,
    is_idle: bool,
    /// The client is waited for to take what is sent.
    is_blocked: bool,
    /// Requests begun on this connection.
    served: u32,
    /// Bytes that have moved since its timer began: received since the last look ([`Timer::Body`]), else accepted by the kernel.
    window: u32,
    /// The client, while a full socket waits for it.
    reader: Reader,
    /// The worker's turn in which it was idle last.
    idle_since: u32,
    /// Bytes that are accounted to it.
    owned: u32,
    /// Since when it has owned any, seconds of the monotonic clock.
    stuck_since: u32,
    /// What the kernel may hold of what it sends, once that was more than fits.
    share: Share,
    /// Bytes of a request that is not complete, or not yet its turn.
    input: Backlog<HeadScanner>,
    /// Bytes that a full socket refused; nothing overtakes them.
    held: Backlog,
    /// Bytes that leave in one call. Empty unless it runs.
    batch: Batch,
    work: Option<Box<Work>>,
    /// Those of the request that was begun last, where its site or route has its own.
    limits: Option<Rc<RequestLimits>>,
    protocol: Protocol,
}

/// What is spoken on a connection, above its transport.
enum Protocol {
    /// HTTP/1, which needs nothing but `work` and `input`.
    H1,
    /// HTTP/2, which uses neither of them. While it runs its state is lent to it, and `H1` stands here.
    H2(Box<Http2>),
}

impl Protocol {
    #[inline]
    fn h2(&self) -> Option<&Http2> {
        match self {
            Protocol::H1 => None,
            Protocol::H2(h2) => Some(h2),
        }
    }

    #[inline]
    fn is_h2(&self) -> bool {
        matches!(self, Protocol::H2(_))
    }
}

/// A request that could not be finished at once.
pub(crate) struct Work {
    request: Request,
    /// `None` when only the rest of the content is still to be read and dropped.
    output: Option<Output>,
    /// In a box, since most requests have no content.
    incoming: Option<Box<Incoming>>,
    /// What may have to be told before the answer.
    interim: Option<InterimQueue>,
    record: Option<Box<log::Record>>,
    /// Given back with it.
    held: Option<Held>,
}

/// What the response needs to know of its request.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// What it counts as. `HEAD` gets everything but the content.
    kind: RequestKind,
    version: Version,
    /// The client waits for `100 Continue` before it sends the content.
    expects_continue: bool,
    /// An upgrade in the words of HTTP/2: only a tunnel can be its success.
    is_upgrade: bool,
    /// Nobody else is to be answered: given up when the client has gone.
    ends_with_client: bool,
    /// What it counts for.
    series: SeriesId,
    listener: ListenerNumber,
    /// Monotonic, nanoseconds.
    started: u64,
    /// Bytes of head and content that have come.
    received: u64,
    /// HTTP/2: bytes of content behind its answer that are dropped.
    discard_size: u32,
}

/// What a request counts as, before its scheme is known.
#[inline]
fn kind_of(method: Method, version: Version) -> RequestKind {
    RequestKind::new(method as usize, version as usize, false)
}

/// Whether a scheme is `https`; there is no other than that and `http`.
#[inline]
fn is_https(scheme: &str) -> bool {
    scheme.len() == "https".len()
}

impl Work {
    /// Lets go of all that it holds, and gives back what is left of it.
    fn recycle(mut self: Box<Self>, cx: &mut Ctx) {
        let Work { request: _, output, incoming, interim, record, held } = &mut *self;
        (*output, *incoming, *interim, *held) = (None, None, None, None);
        if let Some(record) = record.take() {
            cx.log.take_back(record);
        }
        cx.works.give_back(self);
    }

    /// Bytes.
    fn held(&self) -> usize {
        size_of::<Work>()
            + self.incoming.as_ref().map_or(0, |incoming| size_of::<Incoming>() + incoming.held())
            + self.output.as_ref().map_or(0, Output::held)
            + self.interim.as_ref().map_or(0, InterimQueue::held)
            + self.record.as_ref().map_or(0, |record| record.held())
    }
}

impl Connection {
    /// A connection that has just been accepted.
    pub(crate) fn new(stream: Stream, peer: Peer, listener: ListenerNumber, opening: Opening) -> Self {
        Connection {
            transport: Transport::new(stream, opening),
            peer,
            holds: OnceCell::new(),
            local: LocalAddress::new(),
            listener,
            entry: Admitted::Plain,
            timer: Timer::Off,
            readable: true, // read once right after accepting
            peer_closed: false,
            eof: false,
            keep_alive: true,
            lingering: false,
            is_queued: false,
            unread: false,
            is_probed: false,
            has_left_late: false,
            is_idle: false,
            is_blocked: false,
            served: 0,
            window: 0,
            reader: Reader::new(),
            idle_since: 0,
            owned: 0,
            stuck_since: 0,
            share: Share::INHERITED,
            input: Backlog::new(),
            held: Backlog::new(),
            batch: Batch::default(),
            work: None,
            limits: None,
            protocol: Protocol::H1,
        }
    }

    /// By which it has come.
    pub(crate) fn listener(&self) -> ListenerNumber {
        self.listener
    }

    /// The same, let in as this.
    pub fn admitted_as(self, entry: Admitted, admitted: Peer) -> Self {
        let mut connection = Connection { entry, ..self };
        connection.admit_as(admitted);
        connection
    }

    /// The same, with the first bytes of what the client has sent.
    pub fn with_input(self, input: &[u8]) -> Self {
        Connection { input: Backlog::from(input.to_vec()), ..self }
    }

    /// As what it was let in.
    pub fn entry(&self) -> Admitted {
        self.entry
    }

    /// As whom it was let in.
    pub fn admitted(&self) -> Peer {
        self.holds.get().and_then(|holds| holds.admitted()).unwrap_or(self.peer)
    }

    fn admit_as(&mut self, admitted: Peer) {
        if admitted != self.peer || self.holds.get().is_some() {
            self.holds.get_or_init(Rc::default).admit_as(admitted);
        }
    }

    /// The socket, for registration.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }

    /// Takes note of an edge.
    #[inline]
    pub fn on_edge(&mut self, readable: bool, read_closed: bool) {
        self.readable |= readable | read_closed;
        self.peer_closed |= read_closed;
    }

    /// Whether an edge is worth a run: every new socket raises a bare writable one.
    #[inline]
    pub fn wants(&self, readable: bool) -> bool {
        readable || !self.is_free()
    }

    /// Between requests, with nothing of one here.
    #[inline]
    pub fn is_between_requests(&self) -> bool {
        self.is_free() && self.input.is_empty() && !self.lingering
    }

    /// Idle, and nothing that was seen to come.
    pub(crate) fn is_resting(&self) -> bool {
        self.is_idle && !self.is_queued && self.is_between_requests()
    }

    /// Whether it has served nothing yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.served == 0
    }

    /// Turns of the worker since it was used last.
    pub(crate) fn idle_for(&self, turn: u32) -> u32 {
        turn.wrapping_sub(self.idle_since)
    }

    /// Whether nothing has come that was not read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.transport.stream().is_quiet()
    }

    /// Whether the client has all that was sent. Closing before would lose what it has not read yet as soon as it sends
    /// anything: the kernel answers that with a reset.
    pub(crate) fn is_delivered(&self) -> bool {
        self.transport.stream().send_queue().waiting <= FIN
    }

    /// No other request is answered on it: when it runs, it closes once the client has what it was sent, or says that it has.
    pub(crate) fn end_keep_alive(&mut self) {
        match &mut self.protocol {
            Protocol::H2(h2) => h2.dismiss(),
            Protocol::H1 => (self.keep_alive, self.unread) = (false, true),
        }
    }

    /// Bytes accounted to it, and seconds since it has owned any.
    pub(crate) fn owned(&self, now: u32) -> (u32, u32) {
        (self.owned, now.wrapping_sub(self.stuck_since))
    }

    /// Closing it will leave nothing in the kernel.
    pub(crate) fn reset_on_close(&mut self) {
        self.transport.reset_on_close();
    }

    /// The limits in force: those of the request that was begun last.
    #[inline]
    fn limits<'a>(&'a self, engine: &'a Engine) -> &'a RequestLimits {
        self.limits.as_deref().unwrap_or(&engine.settings.limits.request)
    }

    /// From here on these limits are in force.
    #[inline]
    fn goes_by(&mut self, limits: Option<Rc<RequestLimits>>) {
        if limits.is_none() && self.limits.is_none() {
            return;
        }
        if limits != self.limits && self.timer == Timer::Write {
            self.timer = Timer::Off; // whoever is waited for is waited for on other terms
        }
        self.limits = limits;
    }

    /// Whether the connection has served as many requests as it may, or its client has to show its certificate anew. `now` is
    /// the wall clock, seconds.
    #[inline]
    fn is_last_request(&self, of_server: &RequestLimits, now: i64) -> bool {
        let limits = self.limits.as_deref().unwrap_or(of_server);
        limits.keep_alive_requests.is_some_and(|most| self.served >= most)
            || matches!(self.entry, Admitted::Reserved(_))
            || self.has_expired(now)
    }

    /// Nothing of a request or response is under way.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.work.is_none()
            && self.held.is_empty()
            && !self.transport.has_pending()
            && self.protocol.h2().is_none_or(Http2::is_idle)
    }

    /// Nothing keeps the next request from being read.
    #[inline]
    fn is_ready_for_more(&self) -> bool {
        self.work.is_none() && self.held.is_empty() && !self.transport.is_blocked()
    }

    /// Runs until it has to wait.
    #[inline]
    pub fn drive(&mut self, key: Key, cx: &mut Ctx) -> Next {
        clock::begin_step();
        self.batch.borrow_memory(&mut cx.batch_memory);
        let next = self.take_turn(key, cx);
        self.batch.return_memory(&mut cx.batch_memory);
        next
    }

    /// Its deadline has passed.
    pub fn on_timer(&mut self, key: Key, cx: &mut Ctx) -> Next {
        clock::begin_step();
        self.batch.borrow_memory(&mut cx.batch_memory);
        let next = self.time_out(key, cx);
        if self.transport.resets_on_close() || self.flush_batch().is_err() {
            self.batch.discard();
        }
        self.batch.return_memory(&mut cx.batch_memory);
        next
    }

    /// Runs, and leaves nothing in the batch, however the turn has ended.
    #[inline]
    fn take_turn(&mut self, key: Key, cx: &mut Ctx) -> Next {
        match self.run(key, cx).and_then(|next| self.flush_batch().map(|()| next)) {
            Ok(Next::Close) => Next::Close,
            Ok(next) if self.is_idle_again() => {
                let after = self.limits(&cx.engine).keep_alive_timeout;
                self.arm_for(Timer::Idle, after, key, cx);
                next
            }
            Ok(next) => {
                self.arm(key, cx); // also before another turn: an old deadline must not end a transfer
                self.account(cx);
                next
            }
            Err(_) => {
                self.batch.discard();
                Next::Close // the peer is gone
            }
        }
    }

    fn run(&mut self, key: Key, cx: &mut Ctx) -> io::Result<Next> {
        cx.decoded = 0;
        for _ in 0..TURNS {
            if self.protocol.is_h2() {
                return self.run_h2(key, cx);
            }
            if cx.decoded >= DECODED_PER_TURN {
                break;
            }
            if self.lingering {
                return self.linger(cx);
            }
            if !self.is_free() {
                match self.pump(key, cx)? {
                    Progress::Done => self.finish_response(cx),
                    Progress::Again => return Ok(Next::Again),
                    Progress::Blocked | Progress::Waiting if !self.takes_more() => return Ok(Next::Wait),
                    // Content for the handler goes on arriving while its response does not move.
                    Progress::Blocked | Progress::Waiting => {}
                }
            }
            if !self.keep_alive
                && !self.is_answering()
                && self.held.is_empty()
                && !self.transport.has_pending()
            {
                return self.finish(cx);
            }
            if !self.input.is_empty() && self.work_off_input(key, cx)? > 0 {
                continue;
            }
            if !self.readable {
                return Ok(if self.eof && self.is_free() { Next::Close } else { Next::Wait });
            }
            if self.is_backed_up(cx) {
                return Ok(Next::Wait); // a flood of pipelined requests waits in the kernel
            }
            let mut buffer = std::mem::take(&mut cx.read_buffer);
            let received = self.receive(cx, &mut buffer);
            let result = match received {
                Ok(Received::Bytes { count, drained }) => {
                    cx.stats.received_bytes.add(count as u64);
                    if drained && !self.peer_closed {
                        self.readable = false;
                    }
                    match count {
                        0 => Ok(()),
                        _ if self.protocol.is_h2() => self.take_first_frames(cx, &buffer[..count]),
                        _ => self.accept_bytes(key, cx, &buffer[..count]),
                    }
                }
                Ok(Received::End) => {
                    (self.eof, self.readable) = (true, false);
                    self.on_end();
                    Ok(())
                }
                Ok(Received::WouldBlock) => {
                    self.readable = false;
                    Ok(())
                }
                Err(e) => Err(e),
            };
            cx.read_buffer = buffer;
            result?;
            if self.protocol.is_h2() {
                continue;
            }
            if cx.decoded >= DECODED_PER_TURN {
                break; // what is left of the input is no news to wait for
            }
            // The common case ends here: answered at once, socket drained.
            if !self.readable && self.is_free() && self.keep_alive && !self.eof {
                return Ok(Next::Wait);
            }
        }
        Ok(Next::Again)
    }

    fn is_answering(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.output.is_some())
    }

    /// Close now, or first wait for the client where it may still be sending: closing on unread bytes
    /// makes the kernel send a reset, which can destroy the response on its way (RFC 9112 section 9.6).
    fn finish(&mut self, cx: &mut Ctx) -> io::Result<Next> {
        let may_send = self.unread || self.readable || !self.input.is_empty() || self.is_receiving();
        debug_assert!(
            self.batch.is_empty(),
            "invariant: whoever ends a request has sent what it was answered"
        );
        if self.eof || !may_send {
            // What the kernel has kept for the end leaves with it before the socket is closed: bytes that come just then, unread,
            // make that a reset, which destroys what has not left.
            if self.transport.is_bare() {
                self.transport.finish_sending()?;
            }
            return Ok(Next::Close); // `on_close` says goodbye where TLS does
        }
        self.transport.finish_sending()?;
        self.lingering = true;
        self.input = Backlog::new();
        self.work = None;
        self.linger(cx)
    }

    fn linger(&mut self, cx: &mut Ctx) -> io::Result<Next> {
        for _ in 0..TURNS {
            match self.transport.discard(&mut cx.read_buffer)? {
                Received::End => return Ok(Next::Close),
                Received::Bytes { .. } => {}
                Received::WouldBlock => return Ok(Next::Wait),
            }
        }
        Ok(Next::Again)
    }

    /// Between requests, as when it ran last: only its deadline is to be moved. It owned nothing then, and does not now.
    #[inline]
    fn is_idle_again(&self) -> bool {
        self.timer == Timer::Idle
            && self.owned == 0
            && !self.is_blocked
            && !self.protocol.is_h2()
            && self.transport.is_bare()
            && self.is_between_requests()
    }

    /// Tells what it owns, which is nothing unless it is stuck.
    #[inline]
    fn account(&mut self, cx: &Ctx) {
        let is_bare = !self.protocol.is_h2() && !self.transport.is_tls();
        let owned = if is_bare && self.is_free() && self.input.is_empty() { 0 } else { self.weigh() };
        if owned != self.owned {
            if self.owned == 0 {
                self.stuck_since = cx.second();
            }
            cx.admission.account(self.owned, owned);
            self.owned = owned;
        }
        memory::settle(); // what a turn took is weighed, or has been given back
    }

    /// Bytes that its client has made it hold: buffers, what is under way, and what the protocols remember.
    fn weigh(&self) -> u32 {
        let work = self.work.as_ref().map_or(0, |work| work.held());
        let streams = self.protocol.h2().map_or(0, Http2::weigh);
        let buffers = self.input.owned() + self.held.owned() + self.transport.owned();
        u32::try_from(buffers + work + streams).unwrap_or(u32::MAX)
    }

    /// The worker is about to drop it.
    pub fn on_close(&mut self, key: Key, cx: &mut Ctx) {
        self.batch.borrow_memory(&mut cx.batch_memory);
        cx.wheel.cancel(key.index());
        self.abandon_h2(cx);
        self.transport.say_goodbye();
        if self.is_idle {
            cx.stats.keep_alive.sub(1);
        }
        if self.owned > 0 {
            cx.admission.account(std::mem::take(&mut self.owned), 0);
        }
        if let Some(mut work) = self.work.take() {
            work.abandon(cx);
        }
        self.batch.return_memory(&mut cx.batch_memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_io::{Slab, Wheel};

    /// An idle connection is this and nothing else: it owns no buffer.
    #[test]
    fn size_of_an_idle_connection() {
        let parts = [Slab::<Connection>::SLOT_SIZE, <Wheel>::NODE_SIZE];
        assert!(parts.iter().sum::<usize>() <= 232, "in the slab and on the wheel: {parts:?} bytes");
    }

    /// What a download holds beside that, as the allocator counts it: with eight bytes of its own, in steps of 16.
    #[test]
    fn size_of_a_request_under_way() {
        assert!((size_of::<Work>() + 8).next_multiple_of(16) <= 240, "{} bytes", size_of::<Work>());
    }

    /// What is counted by a number has the name of the method and version that it was.
    #[test]
    fn kinds_have_the_names_of_methods_and_versions() {
        use Method::*;
        let methods = [Get, Head, Post, Put, Delete, Connect, Options, Trace, Patch, Other];
        let names = methods.map(|method| if method == Other { "_OTHER" } else { method.as_str() });
        assert_eq!(methods.map(|method| method as usize), std::array::from_fn(|at| at));
        assert_eq!(names, RequestKind::METHODS);
        let versions = [Version::Http10, Version::Http11, Version::Http2];
        for (version, name) in versions.into_iter().zip(RequestKind::VERSIONS) {
            assert!(version.name().starts_with(&format!("HTTP/{name}")));
            assert_eq!(kind_of(Post, version), RequestKind::new(2, version as usize, false));
        }
        assert!(is_https("https") && !is_https("http") && !is_https(""));
    }
}
