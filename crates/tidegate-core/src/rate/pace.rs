//! `bandwidth`: how fast an answer is sent.
//!
//! Of a bandwidth, as of a rate, only the time is kept at which it will have caught up. An answer reserves its next piece
//! behind everybody else's and sends it when its time has come, so that all who share a bandwidth, in whatever worker and
//! process, have their turns one behind the other: a round robin without anybody who would have to know them all. What is
//! reserved is what is sent, so the sum is exact.
//!
//! Pieces make the shares. A client with several connections has as many turns in a round, so its pieces are smaller by
//! that number, which all processes count together. With many who wait pieces become smaller, so that a round stays short;
//! the first pieces of an answer are small, so that those who come all at once begin alike.
//!
//! A piece that is large is spread by the kernel ([`Pace::spread`]), which else sends it as fast as the wire is: every 16 ms a
//! burst of a hundred packets and more, too many for small buffers on the way. Reserving pieces stays what is exact, so the kernel is told
//! a quarter more than that, and only spreads. A connection of HTTP/2 carries several answers, each with a pace of its own, and is left alone.
//!
//! [`Pace`] knows no clock and no socket: whoever sends asks it how much may be sent, tells it how much was, and waits
//! until it is told to ask again. What a full socket has not taken is not reserved anew, so a slow client has no more of a
//! bandwidth than it uses.

use super::gate::Key;
use super::holds::{ConnectionHolds, Permit};
use super::{Buckets, Counts, Identity, RateStore, Table};
use crate::exchange::Exchange;
use crate::gate::{Gate, Verdict};
use crate::notes;
use crate::template::Scope;
use smallvec::SmallVec;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_config::settings::{Bandwidth, Shared};
use tidegate_io::clock;
use tidegate_io::timer::{self, Deadline};

/// A piece takes so much of the time of its bandwidth, where nobody else waits. Whole ones make a second, as they do when they
/// are doubled: so one second holds as many as the other, whenever it begins.
const PIECE: u64 = millis(1000) / 64;
/// From so many answers on pieces take twice as long, and from twice as many on again, where each client has a bandwidth of its
/// own: the sum of many is steady whatever its parts are, and a piece costs the same whatever its size.
const CROWD: usize = 16;
const MULTIPLE: u64 = 8;
/// A round that takes longer has its pieces made smaller, unless they are small already.
const ROUND: u64 = millis(100);
const LONGEST_ROUND: u64 = millis(400);
const COMFORTABLE: u64 = 8 << 10;
/// Nor does it take less: whoever has some hundred connections has more than others, which is less than serving it in
/// ever smaller pieces would cost everybody.
const SHORTEST: u64 = millis(1) / 20;
/// Bytes of a piece.
const SMALLEST: u64 = 64;
const LARGEST: u64 = 1 << 20;
/// Least bytes of the first piece of an answer; each further one may have twice as many. An answer that follows another one of its
/// connection so soon goes on where that has ended: else who asks for much in parts would have less than who asks once.
const FIRST: u64 = 512;
const SOON: u64 = millis(1000);
/// What is spread, bytes: of fewer a burst is no longer than many senders' first.
const SPREAD: u64 = 64 << 10;
/// Timers are late. Whoever was told to wait and comes no later than this has lost nothing.
const LATE: u64 = millis(250);
/// What begins so soon begins now: no timer is more exact.
const EARLY: u64 = millis(1);

const fn millis(count: u64) -> u64 {
    count * 1_000_000
}

/// A bandwidth on one worker: the gate that has answers of its route sent by it.
pub struct BandwidthGate(Rc<Channel>);

struct Channel {
    settings: Shared<Bandwidth>,
    /// `None`: all share it.
    by: Option<Key>,
    times: Arc<Buckets>,
    clients: Arc<Counts>,
    /// Moves on with each answer.
    begun: Cell<u32>,
}

impl BandwidthGate {
    /// The gate of a bandwidth, over the tables that all of its name share.
    ///
    /// # Errors
    /// There is no descriptor or no memory left for them.
    pub fn new(
        settings: &Shared<Bandwidth>,
        scope: Scope<'_>,
        tables: &RateStore,
    ) -> io::Result<BandwidthGate> {
        let [times, clients] = Identity::of_bandwidth(settings).map(|identity| tables.table(identity));
        let (Table::Rate(times), Table::Count(clients)) = (times?, clients?) else {
            return Err(io::Error::other("the table of a bandwidth is of another kind"));
        };
        let by = (!settings.by.is_empty()).then(|| Key::new(&settings.by, scope));
        Ok(BandwidthGate(Rc::new(Channel {
            settings: settings.clone(),
            by,
            times,
            clients,
            begun: Cell::new(0),
        })))
    }
}

impl Gate for BandwidthGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let settings = &self.0.settings;
        if notes::takes_reason(&|| format!("sent within {}", **settings)) {
            return Verdict::Pass;
        }
        if !exchange.state.counts_first(Arc::as_ptr(&self.0.times) as usize) {
            return Verdict::Pass;
        }
        if let Some(holds) = &exchange.state.holds {
            let key = self.0.by.as_ref().map(|by| by.of(exchange)).unwrap_or_default();
            holds.pace_by(Share::new(&self.0, key, &exchange.state.remote.customer()));
        }
        Verdict::Pass
    }
}

impl Channel {
    /// The time that so many bytes take, nanoseconds.
    fn time(&self, bytes: u64) -> u64 {
        let time = u128::from(bytes) * 1_000_000_000 / u128::from(self.settings.speed.get());
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Bytes that fit into a time.
    fn bytes(&self, time: u64) -> u64 {
        let bytes = u128::from(time) * u128::from(self.settings.speed.get()) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Channel {
    /// How much of the time of its bandwidth a piece of somebody takes who is alone there.
    fn longest(self: &Rc<Self>) -> u64 {
        // Each answer on this worker has it.
        if self.by.is_some() { piece_among(Rc::strong_count(self)) } else { PIECE }
    }
}

fn piece_among(answers: usize) -> u64 {
    let times = u64::try_from(answers / CROWD).unwrap_or(MULTIPLE).clamp(1, MULTIPLE);
    PIECE << times.ilog2()
}

/// The part of an answer in one bandwidth.
pub(crate) struct Share {
    channel: Rc<Channel>,
    key: SmallVec<[u8; 64]>,
    /// By which its clients are counted.
    all: SmallVec<[u8; 64]>,
    /// Of which there is one for each client: who has it counts it.
    stand: SmallVec<[u8; 64]>,
    /// Counts the connections of its client.
    permit: Option<Permit>,
    /// Counts its client among all, for all answers to it: the first of them has this, and when it ends another one does.
    client: Option<[Permit; 2]>,
    /// Bytes that are still free.
    free: u64,
    /// When the last piece began, and how long pieces have to wait for that.
    start: u64,
    delay: u64,
    /// Time that is reserved for bytes which have not been sent.
    reserved: u64,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").field("name", &self.channel.settings.name).finish_non_exhaustive()
    }
}

impl Share {
    fn new(channel: &Rc<Channel>, key: SmallVec<[u8; 64]>, client: &[u8]) -> Share {
        let mut who = key.clone();
        who.push(0);
        who.extend_from_slice(client);
        let permit = Permit::take(&channel.clients, &who, super::counts::MOST);
        let mut all = key.clone();
        all.push(1);
        let mut stand = who.clone();
        stand.push(2);
        let free = channel.settings.after;
        Share {
            channel: channel.clone(),
            key,
            all,
            stand,
            permit,
            client: None,
            free,
            start: 0,
            delay: 0,
            reserved: 0,
        }
    }

    /// Bytes of the next piece, as far as this bandwidth has a say.
    fn piece(&mut self) -> u64 {
        if self.client.is_none() {
            let counts = &self.channel.clients;
            let all = || Permit::take(counts, &self.all, super::counts::MOST);
            self.client = Permit::take(counts, &self.stand, 1).and_then(|stand| Some([stand, all()?]));
        }
        let clients = match &self.client {
            Some([_, all]) => all.count(),
            None => self.channel.clients.look(&self.all),
        };
        let (clients, connections) =
            (u64::from(clients.max(1)), u64::from(self.permit.as_ref().map_or(1, Permit::count)));
        let round =
            |waiting: u64| self.channel.time(COMFORTABLE.saturating_mul(waiting)).clamp(ROUND, LONGEST_ROUND);
        let (round, mut time, parts) = match clients {
            // There is nobody to be fair to.
            1 => (round(connections), self.channel.longest().min(round(connections) / connections), 1),
            _ => (round(clients), PIECE.min(round(clients) / clients), connections),
        };
        if self.delay > round {
            let shrink = |time: u64| u128::from(time) * u128::from(round) / u128::from(self.delay);
            time = u64::try_from(shrink(u64::try_from(shrink(time)).unwrap_or(0))).unwrap_or(0);
        }
        let piece = self.channel.bytes(time).min(LARGEST) / parts;
        piece.max(self.channel.bytes(SHORTEST).min(LARGEST / 16)).max(self.free)
    }

    /// Reserves the time of so many bytes, and says when it begins. `is_continued`: this bandwidth was waited for, and
    /// its time has not been let pass.
    fn reserve(&mut self, bytes: u64, is_continued: bool, now: u64) -> u64 {
        let free = self.free.min(bytes);
        self.free -= free;
        let bytes = bytes - free;
        if bytes == 0 {
            return now;
        }
        let cost = self.channel.time(bytes).max(1);
        let rested = now.saturating_sub(self.channel.time(self.channel.settings.burst));
        let since = if is_continued { self.start.max(now.saturating_sub(LATE)).min(rested) } else { rested };
        let start = self.channel.times.reserve(&self.key, cost, since, now);
        if start > now + EARLY {
            self.channel.times.count_refused(bytes);
            if self.channel.settings.is_tracked {
                self.channel.times.give_back(&self.key, cost, now);
                return now;
            }
        }
        // Smoothed, since all who wait see the same round: otherwise they would make their pieces large and small in turns.
        let delay = start.saturating_sub(now);
        self.delay = if self.start == 0 { delay } else { self.delay - self.delay / 4 + delay / 4 };
        (self.start, self.reserved) = (start, cost);
        start
    }

    fn give_back(&mut self, part: u64, of: u64, now: u64) {
        let unused = u128::from(self.reserved) * u128::from(part) / u128::from(of.max(1));
        self.channel.times.give_back(&self.key, u64::try_from(unused).unwrap_or(0), now);
    }
}

/// How fast one answer is sent: by all bandwidths that hold for it, of which the slowest counts.
#[derive(Default)]
pub(crate) struct Pace {
    shares: SmallVec<[Share; 2]>,
    /// Bytes that may be sent now.
    allowance: u64,
    /// Bytes that may be sent at `ready_at`.
    waiting: u64,
    ready_at: u64,
    /// Something else was waited for since the last piece: the client, or who makes the content.
    is_interrupted: bool,
    /// Bytes of the last piece, and those that were sent without having been asked for.
    piece: u64,
    debt: u64,
    /// The next piece has no more than this.
    most: u64,
    /// Some of the last piece was free.
    is_free: bool,
    /// The kernel has been told to spread it.
    is_spread: bool,
    /// What it is sent on.
    connection: Option<Rc<ConnectionHolds>>,
    deadline: Option<Deadline>,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("shares", &self.shares).finish_non_exhaustive()
    }
}

/// What may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// So many bytes, at least one.
    Now(u64),
    /// Nothing before this time.
    At(u64),
}

impl Pace {
    pub(crate) fn add(&mut self, share: Share) {
        // Those who begin together do not go on in step: each first piece is another one (golden section).
        let begun = share.channel.begun.get().wrapping_add(0x9E37_79B9);
        share.channel.begun.set(begun);
        self.most = FIRST + u64::from(begun) * FIRST / (1 << 32);
        self.shares.push(share);
    }

    /// The answer is sent on this connection.
    pub(crate) fn follow(&mut self, connection: &Rc<ConnectionHolds>) {
        let (most, ended) = connection.paced();
        if clock::monotonic_ns().saturating_sub(ended) < SOON {
            self.most = most.max(FIRST);
        }
        self.connection = Some(connection.clone());
    }

    /// How much may be sent now of what is left, as far as that is known.
    pub(crate) fn next(&mut self, left: Option<u64>, now: u64) -> Grant {
        if self.allowance > 0 {
            return Grant::Now(self.allowance);
        }
        if self.waiting == 0 {
            let piece = self.shares.iter_mut().map(Share::piece).min().unwrap_or(LARGEST);
            let free = self.shares.iter().map(|share| share.free).min().unwrap_or(0);
            let piece =
                piece.min(self.most.max(free)).clamp(SMALLEST, LARGEST).min(left.unwrap_or(LARGEST)).max(1);
            self.most = (self.most * 2).min(LARGEST);
            self.is_free = self.shares.iter().any(|share| share.free > 0);
            let bytes = piece.saturating_add(std::mem::take(&mut self.debt));
            let (last, is_at_once) = (self.ready_at, !std::mem::take(&mut self.is_interrupted));
            self.ready_at = 0;
            for share in &mut self.shares {
                let is_continued = is_at_once && share.start == last && last > 0;
                self.ready_at = share.reserve(bytes, is_continued, now).max(self.ready_at);
            }
            (self.waiting, self.piece) = (piece, piece);
        }
        if self.ready_at > now + EARLY {
            return Grant::At(self.ready_at);
        }
        self.allowance = std::mem::take(&mut self.waiting);
        Grant::Now(self.allowance)
    }

    /// The same for whoever is woken when there is more.
    pub(crate) fn poll(&mut self, left: Option<u64>, cx: &mut Context<'_>) -> Poll<u64> {
        match self.next(left, clock::monotonic_ns()) {
            Grant::Now(bytes) => {
                self.deadline = None;
                Poll::Ready(bytes)
            }
            Grant::At(at) => {
                if self.deadline.as_ref().is_none_or(|deadline| deadline.time() != at) {
                    self.deadline = Some(timer::at(at));
                }
                let deadline = self.deadline.as_mut().map(Pin::new);
                match deadline.map_or(Poll::Pending, |deadline| deadline.poll(cx)) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => self.poll(left, cx),
                }
            }
        }
    }

    /// How fast the kernel is to send, bytes a second, where it is to be told: once its pieces are large, and nothing of it may be
    /// sent at once, as what is free or a burst may.
    pub(crate) fn spread(&mut self) -> Option<u64> {
        if self.is_spread || self.is_free || self.piece < SPREAD {
            return None;
        }
        let settings = self.shares.iter().map(|share| &*share.channel.settings);
        let slowest =
            settings.filter(|settings| !settings.is_tracked).min_by_key(|settings| settings.speed)?;
        // A burst is sent at once.
        let speed = Some(slowest.speed.get()).filter(|_| slowest.burst == 0)?;
        self.is_spread = true;
        Some(speed.saturating_add(speed / 4))
    }

    /// Whether the kernel spreads it, for the last time.
    pub(crate) fn ends_spreading(&mut self) -> bool {
        std::mem::take(&mut self.is_spread)
    }

    /// So many bytes were sent. More than was allowed is made good with the next piece.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.debt = self.debt.saturating_add(bytes.saturating_sub(self.allowance));
        self.allowance = self.allowance.saturating_sub(bytes);
    }

    /// What may be sent could not be. The time that goes by meanwhile is the others'.
    pub(crate) fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// Bytes that may be sent without asking again.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance
    }

    /// Whether its time has not come: nobody waits for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Bytes of memory.
    pub(crate) fn held(&self) -> usize {
        size_of::<Pace>()
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        let (unused, now) = (self.allowance + self.waiting, clock::monotonic_ns());
        if let Some(connection) = &self.connection {
            connection.set_paced(self.most, now);
        }
        if self.debt > 0 {
            // What was sent all the same is paid by who comes next.
            for share in &mut self.shares {
                share.reserve(self.debt, true, now);
            }
        } else if unused > 0 {
            for share in &mut self.shares {
                share.give_back(unused, self.piece, now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
