//! Admission: who is let in, who waits, and who is turned away when the server is busy.
//!
//! | what | file | setting |
//! | --- | --- | --- |
//! | connections, and the reserve for the status page | this one | `limits connections` |
//! | connections of one address | `addresses` | `limits connections-per-address`, `exempt-addresses` |
//! | requests that wait for something, and their queue | `in_flight` | `limits in-flight`, `queue`, `incoming-bodies` |
//! | whose turn it is, of all that waits for a place | `turns` | |
//! | who may take how many places | `shares` | |
//! | overload: the law, and what it is told | `overload`, `waits` | `limits overload-delay` |
//! | requests of one address that are cancelled | `resets` | `exempt-addresses` |
//! | memory that connections own | `memory` | `limits memory` |
//! | requests that were refused and come again too soon | `put_off` | |
//! | the answer to who is turned away | `busy` | `busy-answer` |
//!
//! One [`Admission`] for each worker, in its `Ctx`; what all workers of a process count together is in
//! [`Shared`]. A request that is answered at once costs a store and two comparisons here: no clock, no lock,
//! no allocation. What concerns requests knows no connection, so that streams can share one.

mod addresses;
mod busy;
mod in_flight;
mod memory;
mod overload;
mod put_off;
mod resets;
pub mod shares;
pub mod turns;
mod waits;

pub use in_flight::{Account, Later};
pub use memory::{save_address_space, shortage_of_address_space};
pub use overload::{Change, Overload, Queue};

use crate::log::{self, AccessRecord};
use crate::placement::Placement;
use crate::remote::UNNAMED;
use crate::reply::{Need, Reply};
use crate::response::{Author, Response};
use addresses::Addresses;
use busy::Busy;
use in_flight::InFlight;
use memory::{Bound, Retention};
use put_off::PutOff;
use resets::Resets;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tidegate_config::settings::{LimitOrigins, Network, NetworkSet, Settings};
use tidegate_io::socket::Peer;
use tidegate_io::{Remote, allocator, blocking, clock};
use tidegate_stats::{ConnectionRefusal, QueueRefusal, Worker as Stats};
use turns::Bounds;
use waits::Waits;

/// Connections over a limit that are let in because they seem to ask for the status page.
const RESERVE: u32 = 16;

/// What the workers of a process count together.
#[derive(Default)]
pub struct Shared {
    /// Open connections.
    open: AtomicU32,
    /// Those of them beyond the limits.
    reserved: AtomicU32,
    addresses: Addresses,
    resets: Resets,
    put_off: PutOff,
    in_flight: InFlight,
    /// The workers, to be woken.
    workers: Mutex<Vec<Weak<Remote>>>,
    /// Who of them has which connections.
    pub(crate) placement: Placement,
}

impl Shared {
    /// For so many workers, with the numbers from 0 on, which hand connections over to each other.
    pub fn of(workers: usize) -> Arc<Shared> {
        Arc::new(Shared { placement: Placement::of(workers), ..Shared::default() })
    }
}

/// Tells the log which limit a connection is beyond.
#[cold]
pub(crate) fn say_turned_away(settings: &Settings, peer: Peer, why: ConnectionRefusal) {
    let limit = match why {
        ConnectionRefusal::Address => "connections-per-address",
        ConnectionRefusal::Connections => "connections",
        ConnectionRefusal::Memory => "memory",
        ConnectionRefusal::Overload => "overload-delay",
        _ => return, // said where it is found out
    };
    let limit = settings.limits.origins.said(limit);
    log::info(format_args!("a connection of {peer} is turned away: {limit} allows no more"));
}

/// What a request needs while it waits.
pub struct Ledger {
    shared: Arc<Shared>,
    stats: Arc<Stats>,
    limits: Cell<FlightLimits>,
    busy: RefCell<Busy>,
    /// Where the limits are written.
    origins: RefCell<LimitOrigins>,
}

#[derive(Clone, Copy)]
struct FlightLimits {
    in_flight: u32,
    queue_length: u32,
    queue_age: Duration,
    incoming_bodies: u32,
}

impl FlightLimits {
    /// Of those in flight.
    fn running(&self) -> Bounds<QueueRefusal> {
        Bounds {
            places: self.in_flight,
            length: self.queue_length,
            age: Some(self.queue_age),
            too_old: QueueRefusal::Age,
        }
    }

    /// The setting that bounds those that cannot run yet.
    fn of_preparing(&self, need: Need) -> &'static str {
        match need {
            Need::Decision | Need::Turn if self.in_flight > self.incoming_bodies => "in-flight",
            Need::Content | Need::Decision | Need::Turn => "incoming-bodies",
        }
    }

    /// Of those that cannot run yet: nobody waits for a turn.
    fn preparing(&self, need: Need) -> Bounds<QueueRefusal> {
        let places = match need {
            Need::Content => self.incoming_bodies,
            // A small `in-flight` is for slow applications: it is no reason to turn away who logs in.
            Need::Decision | Need::Turn => self.incoming_bodies.max(self.in_flight),
        };
        Bounds { places, length: 0, age: None, too_old: QueueRefusal::Age }
    }
}

impl Ledger {
    fn limits(&self) -> FlightLimits {
        self.limits.get()
    }

    fn enter_flight(&self) {
        self.stats.in_flight.add(1);
        self.stats.sessions_created.add(1);
    }

    fn busy(&self) -> Response {
        self.busy.borrow().response()
    }

    /// Counts a request that was answered so, where it is put off.
    #[cold]
    fn put_off(&self, response: &Response, request: Option<AccessRecord<'_>>) {
        let (Some(wait), Some(request)) = (put_off::wait_of(response.head.lines()), request) else { return };
        self.stats.requests_put_off.add(1);
        let put_off = &self.shared.put_off;
        let key = put_off.key(request.client, request.authority, request.target);
        let is_repeated = put_off.note(key, clock::monotonic_ns(), wait);
        self.stats.requests_repeated.add(is_repeated.into());
    }

    /// Counts a request that is turned away, and tells the log by which limit.
    #[cold]
    fn refuse(&self, why: QueueRefusal, client: Peer, limit: &str) {
        self.stats.queue_refusals.add(why, 1);
        self.say_refused(why, client, limit);
    }

    /// The same of one that is counted elsewhere.
    fn say_refused(&self, why: QueueRefusal, client: Peer, limit: &str) {
        let origins = self.origins.borrow();
        let limit = origins.said(limit);
        let reason = match why {
            QueueRefusal::Full => "as many requests as it allows are under way or wait",
            QueueRefusal::Age => "the request has waited for its turn as long as it allows",
            QueueRefusal::Client => return,
        };
        log::info(format_args!("busy answer for {client}: {limit}: {reason}"));
    }
}

/// As what a connection was let in; it is given back when the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// Within the limits.
    Plain,
    /// Within the limits, and counted for its address.
    Counted,
    /// Beyond this limit, to ask for the status page and nothing else.
    Reserved(ConnectionRefusal),
}

/// Admission on one worker.
pub struct Admission {
    ledger: Rc<Ledger>,
    overload: Overload,
    waits: Waits,
    /// Processor time of the worker when the turn began, nanoseconds; known of turns that begin while it
    /// sheds.
    turn_cpu: Option<u64>,
    connections: u32,
    per_address: Option<u32>,
    exempt: NetworkSet,
    /// This worker's share of the idle connections.
    keep_alive: u64,
    /// This worker's share of the bytes that connections may own.
    memory: u64,
    /// The kernel finds memory short.
    is_pressed: bool,
    retention: Retention,
}

impl Admission {
    /// Of worker `number`.
    pub fn new(shared: Arc<Shared>, stats: Arc<Stats>, settings: &Settings, number: usize) -> Admission {
        let ledger = Rc::new(Ledger {
            shared,
            stats,
            limits: Cell::new(FlightLimits {
                in_flight: 0,
                queue_length: 0,
                queue_age: Duration::ZERO,
                incoming_bodies: 0,
            }),
            busy: RefCell::new(Busy::new(settings)),
            origins: RefCell::default(),
        });
        let mut admission = Admission {
            ledger,
            overload: Overload::new(None),
            turn_cpu: None,
            waits: Waits::default(),
            connections: 0,
            per_address: None,
            exempt: NetworkSet::default(),
            keep_alive: 0,
            memory: 0,
            is_pressed: false,
            retention: Retention::default(),
        };
        admission.adopt(settings, number);
        admission
    }

    /// Follows new settings; who is in stays in.
    pub fn adopt(&mut self, settings: &Settings, number: usize) {
        let (limits, ledger) = (&settings.limits, &self.ledger);
        let share = |all: u64| share(all, number, settings);
        ledger.limits.set(FlightLimits {
            in_flight: limits.in_flight,
            queue_length: limits.queue_length,
            queue_age: limits.queue_age,
            incoming_bodies: limits.incoming_bodies,
        });
        ledger.busy.replace(Busy::new(settings));
        ledger.origins.replace(limits.origins.clone());
        self.overload.set_patience(limits.overload_delay);
        self.connections = limits.connections;
        self.per_address = limits.connections_per_address;
        // A proxy of one's own is one address for all of its clients, too.
        let mut trusted: Vec<_> = settings.sites.iter().map(|site| &site.trusted_proxies).collect();
        trusted.dedup_by(|next, site| next == site); // most sites have those of the server
        let proxies = trusted.iter().flat_map(|site| site.iter()).filter(|proxy| **proxy != Network::All);
        self.exempt = limits.exempt_addresses.iter().chain(proxies).copied().collect();
        self.keep_alive = share(limits.keep_alive_connections.into()).max(1);
        self.memory = share(memory_for_connections(limits.memory)).max(1);
        crate::memory::adopt(&ledger.stats, self.memory);
        // Each worker states its share, so that the sum over the workers is what the settings say.
        let stats = &ledger.stats;
        stats.connections.set_limit(share(limits.connections.into()));
        stats.in_flight.set_limit(share(limits.in_flight.into()));
        stats.queued.set_limit(share(limits.queue_length.into()));
        stats.keep_alive.set_limit(self.keep_alive);
        stats.buffer.set_limit(self.memory);
    }

    /// This worker is one of those that share, and may be woken for it.
    pub(crate) fn join(&self, remote: &Arc<Remote>) {
        let mut workers = self.ledger.shared.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Arc::downgrade(remote));
    }

    /// Wakes all workers that share: what is short for one of them is short for all.
    #[cold]
    pub(crate) fn wake_others(&self) {
        let workers = self.ledger.shared.workers.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in workers.iter().filter_map(Weak::upgrade) {
            worker.notify();
        }
    }

    /// A connection has come: how it is counted where it may stay.
    ///
    /// # Errors
    /// It may not stay: the server is overloaded or short of memory, or its address or all clients together
    /// have as many as they may.
    #[inline]
    pub fn connection(&mut self, peer: Peer) -> Result<Admitted, ConnectionRefusal> {
        if self.overload.is_shedding() && self.overload.sheds_connection(self.spent()) {
            return Err(ConnectionRefusal::Overload);
        }
        if self.is_short_of_memory() {
            return Err(ConnectionRefusal::Memory);
        }
        let shared = &self.ledger.shared;
        let entry = match (self.per_address, peer) {
            (Some(most), Peer::Tcp(address)) if !self.is_exempt(peer) => {
                if !shared.addresses.enter(address, most) {
                    return Err(ConnectionRefusal::Address);
                }
                Admitted::Counted
            }
            _ => Admitted::Plain,
        };
        if shared.open.fetch_add(1, Relaxed) < self.connections {
            return Ok(entry);
        }
        self.leave(entry, peer);
        Err(ConnectionRefusal::Connections)
    }

    /// A connection that was let in for a balancer, as this, is that of a client which the balancer has named: whether it
    /// may stay.
    ///
    /// # Errors
    /// [`ConnectionRefusal::Address`]: the client's address has as many as it may.
    pub fn named(&self, entry: Admitted, client: Peer) -> Result<Admitted, ConnectionRefusal> {
        match (entry, self.per_address, client) {
            (Admitted::Plain, Some(most), Peer::Tcp(address)) if !self.is_exempt(client) => {
                match self.ledger.shared.addresses.enter(address, most) {
                    true => Ok(Admitted::Counted),
                    false => Err(ConnectionRefusal::Address),
                }
            }
            _ => Ok(entry),
        }
    }

    fn is_exempt(&self, peer: Peer) -> bool {
        // Those whom a balancer does not name are many, and have no address of their own.
        peer == UNNAMED || self.exempt.covers(peer.ip())
    }

    /// Which client this is, where it is one and not a proxy that speaks for many.
    pub fn who(&self, peer: Peer) -> Option<u64> {
        match peer {
            Peer::Tcp(address) if !self.is_exempt(peer) => Some(addresses::subscriber(address)),
            _ => None,
        }
    }

    /// Lets in a connection beyond the limits, for the status page; a few at a time.
    pub fn reserve(&self, why: ConnectionRefusal) -> Option<Admitted> {
        let shared = &self.ledger.shared;
        if shared.reserved.fetch_add(1, Relaxed) < RESERVE {
            shared.open.fetch_add(1, Relaxed);
            return Some(Admitted::Reserved(why));
        }
        shared.reserved.fetch_sub(1, Relaxed);
        None
    }

    /// A connection that was let in has ended.
    #[inline]
    pub fn leave(&self, entry: Admitted, peer: Peer) {
        let shared = &self.ledger.shared;
        shared.open.fetch_sub(1, Relaxed);
        match (entry, peer) {
            (Admitted::Counted, Peer::Tcp(address)) => shared.addresses.leave(address),
            (Admitted::Reserved(_), _) => drop(shared.reserved.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// A client has cancelled a request that was under way; whether its address does so too often.
    pub fn on_reset(&self, peer: Peer, second: u32) -> bool {
        let Peer::Tcp(address) = peer else { return false };
        !self.is_exempt(peer) && self.ledger.shared.resets.add(address, second)
    }

    /// A request has its answer: notes it where it is put off.
    #[inline]
    pub(crate) fn on_answer<'r>(
        &self,
        response: &Response,
        request: impl FnOnce() -> Option<AccessRecord<'r>>,
    ) {
        if put_off::is_refusal(response.status) {
            self.ledger.put_off(response, request());
        }
    }

    /// A request has begun at this time, monotonic nanoseconds.
    #[inline]
    pub fn on_request(&mut self, at: u64) {
        self.waits.on_request(at);
        if self.waits.is_late(at) {
            self.on_late_request(at);
        }
    }

    /// A turn takes so long that waiting for its end would be deciding on what was long ago.
    #[cold]
    fn on_late_request(&mut self, at: u64) {
        self.waits.on_late_request(at, &mut self.overload);
        self.tick(at);
    }

    /// How far the present turn has come, as far as is known without a clock: nanoseconds.
    #[inline]
    pub fn progress(&self) -> u64 {
        self.waits.progress()
    }

    /// Processor time of this turn. Not the time that has passed: while somebody else had the processor the
    /// worker could do no work, and turning away for that would leave it idle afterwards.
    fn spent(&self) -> u64 {
        self.turn_cpu.map_or(0, |began| clock::thread_cpu_ns().saturating_sub(began))
    }

    /// Whether anything is turned away because of overload at present.
    pub fn is_shedding(&self) -> bool {
        self.overload.is_shedding()
    }

    /// Whether requests are turned away at all at present.
    #[inline]
    pub fn may_shed_request(&self) -> bool {
        self.overload.may_shed_request()
    }

    /// Whether a request that has come is turned away because of overload. Not to be asked for the status
    /// page, which is always served.
    #[inline]
    pub fn sheds_request(&mut self) -> bool {
        self.may_shed_request() && self.overload.sheds_request(self.spent())
    }

    /// A reply that waits for something. `is_exempt`: it needs no place among those in flight.
    #[inline]
    pub fn later(&self, reply: Reply, account: Account, is_exempt: bool) -> Later {
        Later::new(&self.ledger, reply, account, is_exempt)
    }

    /// The response, or the busy answer in its place.
    #[inline]
    pub fn unless_busy(&self, response: Response) -> Response {
        match response.author {
            Author::Busy => self.ledger.busy.borrow().instead_of(response),
            _ => response,
        }
    }

    /// The busy answer to a request.
    pub fn busy(&self) -> Response {
        self.ledger.busy()
    }

    /// Calls `send` with the busy answer to a connection.
    pub fn with_busy_bytes<R>(
        &self,
        date: &[u8; 29],
        is_head: bool,
        why: ConnectionRefusal,
        send: impl FnOnce(&[u8]) -> R,
    ) -> R {
        send(self.ledger.busy.borrow_mut().bytes(date, is_head, why == ConnectionRefusal::Address))
    }

    /// The bytes that a connection owns are others than before.
    #[cold]
    pub fn account(&self, before: u32, now: u32) {
        let buffer = &self.ledger.stats.buffer;
        if now > before {
            buffer.add((now - before).into());
            self.retention.grows(buffer.current());
        } else {
            buffer.sub((before - now).into());
        }
    }

    /// Whether connections own more than they may, or the kernel finds memory short.
    #[inline]
    pub fn is_short_of_memory(&self) -> bool {
        self.is_pressed || self.excess() > 0
    }

    /// Bytes that connections own beyond what they may.
    #[inline]
    pub fn excess(&self) -> u64 {
        self.ledger.stats.buffer.current().saturating_sub(self.memory)
    }

    /// What connections may own on this worker, bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Idle connections beyond what there may be.
    #[inline]
    pub fn idle_excess(&self) -> u64 {
        self.ledger.stats.keep_alive.current().saturating_sub(self.keep_alive)
    }

    /// Idle connections that go at once when there are too many: a share, so that looking for the oldest is
    /// not done for each.
    pub fn idle_batch(&self) -> u64 {
        self.idle_excess() + self.keep_alive / 64
    }

    /// The poller has returned; `true` asks the caller to wake the worker by its own descriptor.
    #[inline]
    pub fn begin_turn(&mut self, now: u64, is_full: bool) -> bool {
        self.turn_cpu = self.overload.is_shedding().then(clock::thread_cpu_ns);
        self.waits.begin_turn(now, is_full, &mut self.overload)
    }

    /// The worker's own descriptor was ready.
    pub fn on_wake(&mut self) {
        self.waits.on_wake(&mut self.overload);
    }

    /// A connection was accepted on this listener.
    #[inline]
    pub fn on_accept(&mut self, listener: usize) {
        self.waits.on_accept(listener, &mut self.overload);
    }

    /// Nobody waits at this listener any more; `None`: the listeners are others.
    pub fn on_empty(&mut self, listener: Option<usize>) {
        self.waits.on_empty(listener);
    }

    /// Not all were accepted on this listener, so many wait, where the kernel tells that.
    pub fn on_more(&mut self, listener: usize, length: Option<u32>) {
        if let Some(length) = length.filter(|_| self.waits.wants_length()) {
            self.waits.on_length(listener, length);
        }
    }

    /// The time is `now`; says so when a tenth of a second has ended, and whether to shed.
    #[inline]
    pub fn tick(&mut self, now: u64) -> Option<Change> {
        let change = self.overload.tick(now)?;
        self.report(change);
        Some(change)
    }

    #[cold]
    fn report(&mut self, change: Change) {
        let stats = &self.ledger.stats;
        stats.turn_delay.record_nanos(change.least);
        stats.shedding.set(change.is_shedding.into());
        if change.has_begun {
            stats.overloads.add(1);
            let waited = Duration::from_nanos(change.least).as_millis();
            log::warn(format_args!(
                "overloaded: what is ready has to wait {waited} ms; turning away until it is less"
            ));
        }
    }

    /// Once a second while [`Admission::keeps_what_is_free`], and whenever else the second changes.
    pub fn on_second(&mut self) {
        self.is_pressed = Bound::of_process().is_pressed();
        crate::memory::press(self.is_pressed);
        let stats = &self.ledger.stats;
        if self.retention.on_second(stats.buffer.current(), stats.connections.current()) {
            // On a thread that may take its time; where all of those are busy it is for the next second.
            let _ = blocking::start(blocking::QueueKey::NO_DISK, allocator::trim);
        }
    }

    /// Much has been given back, and the allocator has not been told yet.
    #[inline]
    pub fn keeps_what_is_free(&self) -> bool {
        let stats = &self.ledger.stats;
        self.retention.is_worth_a_trim(stats.buffer.current(), stats.connections.current())
    }
}

/// What all connections of the server may own where `limits memory` says `configured` (`None`: `auto`), bytes.
pub fn memory_for_connections(configured: Option<u64>) -> u64 {
    Bound::of_process().for_connections(configured)
}

/// Bytes that this process may have at all: what its cgroup, its address space or the machine bounds it to.
pub fn memory_of_process() -> u64 {
    Bound::of_process().memory
}

/// The share of worker `number` in what all workers have together.
fn share(all: u64, number: usize, settings: &Settings) -> u64 {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = settings.workers.map_or_else(available, usize::from).max(1) as u64;
    all / workers + u64::from((number as u64) < all % workers)
}

#[cfg(test)]
mod tests;
