//! What each listener of a worker has counted, the times of its requests among it: those of the whole worker are their sum, so
//! that a request is timed once. Names are addresses of the settings; nothing that a client sends makes one.
//!
//! A worker asks for the counts of an address when it begins to listen ([`ListenerTable::of`]) and counts without a lock; whoever
//! reports adds up what all workers say ([`add_listeners`]).

use crate::cell::{Counter, Gauge, Level};
use crate::histogram::{Distribution, Elapsed, Histogram};
use crate::table::{Metric, Reading};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Addresses that a worker remembers, unless more are listened on or have open connections. One of earlier settings makes room
/// for a new one.
const USUAL: usize = 256;

/// Which address a connection has come by: it stays the same when settings change, as long as anything goes by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerNumber(pub u16);

/// What a worker has counted of an address. Only its thread writes.
#[derive(Debug)]
pub struct ListenerCounts {
    address: String,
    number: ListenerNumber,
    is_open: AtomicBool,
    /// Connections accepted.
    pub accepted: Counter,
    /// Of these, those that were answered and closed at once, since a limit allowed no more.
    pub refused: Counter,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections that wait to be accepted, as last seen. Its limit is the backlog.
    pub waiting: Gauge,
    received: Counter,
    sent: Counter,
    latency: Histogram,
}

/// The counts of all addresses that a worker has listened on. Read as a metric it is the times of all requests.
#[derive(Debug, Default)]
pub struct ListenerTable(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    counts: Vec<Arc<ListenerCounts>>,
    /// Times at addresses that have made room for others.
    past: Distribution,
}

/// What was counted of an address, by one worker or by many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerFigures {
    /// As the worker listens on it, such as `127.0.0.1:80` or `unix:/run/http.sock`.
    pub address: String,
    /// Connections accepted.
    pub accepted: u64,
    /// Of these, those that were answered and closed at once.
    pub refused: u64,
    /// Connections that are open.
    pub connections: Level,
    /// Connections that wait to be accepted, as last seen; the peak is the sum of those of the workers, the limit that of their backlogs.
    pub waiting: Level,
    /// Bytes of requests that have been answered, and of their answers.
    pub received: u64,
    /// See there.
    pub sent: u64,
    /// Times of requests, and how many were answered.
    pub latency: Distribution,
}

impl ListenerCounts {
    fn new(address: &str, number: ListenerNumber) -> ListenerCounts {
        ListenerCounts {
            address: address.to_owned(),
            number,
            is_open: AtomicBool::new(true),
            accepted: Counter::new(),
            refused: Counter::new(),
            connections: Gauge::new(),
            waiting: Gauge::new(),
            received: Counter::new(),
            sent: Counter::new(),
            latency: Histogram::default(),
        }
    }

    /// What its connections remember.
    pub fn number(&self) -> ListenerNumber {
        self.number
    }

    /// A request that has come by it has ended: bytes of head and content, of the answer, and how long all of it took.
    #[inline]
    pub fn answered(&self, received: u64, sent: u64, elapsed: Elapsed) {
        self.received.add(received);
        self.sent.add(sent);
        self.latency.record_elapsed(elapsed);
    }

    /// It is listened on, and so many connections may wait at it.
    pub fn open(&self, backlog: u64) {
        self.is_open.store(true, Relaxed);
        self.waiting.set_limit(backlog);
    }

    /// It is not listened on any more; connections may still be open.
    pub fn close(&self) {
        self.is_open.store(false, Relaxed);
        self.waiting.set(0);
    }

    fn is_in_use(&self) -> bool {
        self.is_open.load(Relaxed) || self.connections.current() > 0
    }

    fn figures(&self) -> ListenerFigures {
        ListenerFigures {
            address: self.address.clone(),
            accepted: self.accepted.value(),
            refused: self.refused.value(),
            connections: self.connections.read(),
            waiting: self.waiting.read(),
            received: self.received.value(),
            sent: self.sent.value(),
            latency: self.latency.read(),
        }
    }
}

impl ListenerTable {
    /// The counts of an address: those that it had before, where it was listened on earlier. `None`: there are 65,536 others in
    /// use.
    pub fn of(&self, address: &str) -> Option<Arc<ListenerCounts>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { counts, past } = &mut *known;
        if let Some(counts) = counts.iter().find(|counts| counts.address == address) {
            counts.is_open.store(true, Relaxed);
            return Some(counts.clone());
        }
        let unused = counts.iter().position(|counts| !counts.is_in_use()).filter(|_| counts.len() >= USUAL);
        let number = ListenerNumber(u16::try_from(unused.unwrap_or(counts.len())).ok()?);
        let new = Arc::new(ListenerCounts::new(address, number));
        match unused {
            Some(unused) => past.merge(&std::mem::replace(&mut counts[unused], new.clone()).latency.read()),
            None => counts.push(new.clone()),
        }
        Some(new)
    }

    /// Counts a request without a listener, for tests of what is read.
    #[doc(hidden)]
    pub fn time(&self, duration: std::time::Duration) {
        let elapsed = Elapsed::nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        self.of("-").expect("invariant: a test has few").answered(0, 0, elapsed);
    }

    /// The counts of all numbers, in their order.
    pub fn all(&self) -> Vec<Arc<ListenerCounts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    /// What was counted of each so far.
    pub fn figures(&self) -> Vec<ListenerFigures> {
        self.all().iter().map(|counts| counts.figures()).collect()
    }
}

impl Metric for ListenerTable {
    type Reading = Distribution;

    fn read(&self) -> Distribution {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = known.past.clone();
        known.counts.iter().for_each(|counts| sum.merge(&counts.latency.read()));
        sum
    }
}

impl ListenerFigures {
    /// What a process leaves behind that has ended: what was open there is not any more.
    pub fn retire(&mut self) {
        self.connections.retire();
        self.waiting.retire();
    }

    /// Adds what others have counted of the same address.
    pub fn add(&mut self, more: &ListenerFigures) {
        self.accepted = self.accepted.wrapping_add(more.accepted);
        self.refused = self.refused.wrapping_add(more.refused);
        self.connections.merge(&more.connections);
        self.waiting.merge(&more.waiting);
        self.received = self.received.wrapping_add(more.received);
        self.sent = self.sent.wrapping_add(more.sent);
        self.latency.merge(&more.latency);
    }
}

/// Adds what others have counted, by address.
pub fn add_listeners(sum: &mut Vec<ListenerFigures>, more: &[ListenerFigures]) {
    for of in more {
        match sum.iter_mut().find(|known| known.address == of.address) {
            Some(known) => known.add(of),
            None => sum.push(of.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(address: &str, accepted: u64, refused: u64) -> ListenerFigures {
        ListenerFigures { address: address.into(), accepted, refused, ..ListenerFigures::default() }
    }

    #[test]
    fn an_address_that_comes_again_goes_on_and_workers_add_up() {
        let table = ListenerTable::default();
        let of = |address| table.of(address).unwrap();
        of("a:1").accepted.add(3);
        of("b:2").refused.add(1);
        of("a:1").close();
        of("a:1").accepted.add(4);
        assert_eq!(table.figures(), [figures("a:1", 7, 0), figures("b:2", 0, 1)]);
        let mut sum = vec![figures("b:2", 5, 5)];
        add_listeners(&mut sum, &table.figures());
        assert_eq!(sum, [figures("b:2", 5, 6), figures("a:1", 7, 0)]);
    }

    #[test]
    fn requests_of_the_worker_are_those_of_all_its_listeners() {
        let table = ListenerTable::default();
        table.of("a:1").unwrap().answered(10, 100, Elapsed::nanos(1_000_000));
        table.of("b:2").unwrap().answered(20, 200, Elapsed::nanos(3_000_000));
        let told = table.figures();
        assert_eq!((told[1].received, told[1].sent, told[1].latency.count()), (20, 200, 1));
        assert_eq!((table.read().count(), table.read().mean()), (2, std::time::Duration::from_millis(2)));
    }

    /// A number is not another address's as long as a connection that goes by it is open, and no time is lost.
    #[test]
    fn addresses_of_earlier_settings_make_room() {
        let table = ListenerTable::default();
        let held = table.of("held").unwrap();
        held.connections.add(1);
        held.close();
        for number in 0..USUAL * 2 {
            let counts = table.of(&number.to_string()).unwrap();
            counts.answered(1, 1, Elapsed::nanos(1));
            counts.close();
        }
        assert_eq!((table.all().len(), table.read().count()), (USUAL, 2 * USUAL as u64));
        assert_eq!(table.of("held").unwrap().number(), held.number());
        table.of("held").unwrap().close();
        held.connections.sub(1);
        let next = table.of("next").unwrap();
        assert!(table.all().iter().enumerate().all(|(at, counts)| usize::from(counts.number().0) == at));
        assert_eq!((next.number(), next.latency.read().count()), (held.number(), 0));
    }
}
