//! What a request, or its connection, holds of limits while it is under way, and gives back when it is dropped.

use super::ban_gate::Watch;
use super::pace::{Pace, Share};
use super::queue::Line;
use super::{Counts, Place};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_http::Status;
use tidegate_io::socket::Peer;

/// One that a limit counts at present.
#[derive(Debug)]
pub struct Permit {
    counts: Arc<Counts>,
    place: Place,
    /// Who waits for it.
    line: Option<Box<Line>>,
}

impl Permit {
    /// Counts one more of a key; `None` where there are `most` of it.
    pub(crate) fn take(counts: &Arc<Counts>, key: &[u8], most: u32) -> Option<Permit> {
        let (place, _) = counts.enter(key, most)?;
        Some(Permit { counts: counts.clone(), place, line: None })
    }

    /// What has been counted there. Where it ends, the first of this line has it.
    pub(super) fn of_line(counts: &Arc<Counts>, place: Place, line: Line) -> Permit {
        Permit { counts: counts.clone(), place, line: Some(Box::new(line)) }
    }

    /// How many there are of its key. Where that has no place of its own nobody knows, and it counts as alone.
    pub(crate) fn count(&self) -> u32 {
        if self.place.is_crowd() { 1 } else { self.counts.count(self.place).max(1) }
    }

    /// Whether it is of this table.
    fn is_of(&self, counts: &Arc<Counts>) -> bool {
        Arc::ptr_eq(&self.counts, counts)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match self.line.take() {
            Some(line) => line.pass_on(&self.counts, self.place),
            None => self.counts.leave(self.place),
        }
    }
}

/// What a request holds, for all of its parts: those that the server asks on its behalf hold with it.
#[derive(Debug)]
pub(crate) struct Holds {
    permits: RefCell<SmallVec<[Permit; 2]>>,
    /// Who counts its answer.
    watches: RefCell<SmallVec<[Watch; 1]>>,
    /// It is not answered: its connection is closed.
    severs: Cell<bool>,
    /// How fast its answer is sent.
    pace: RefCell<Option<Box<Pace>>>,
    /// Of its connection.
    pub(crate) connection: Rc<ConnectionHolds>,
}

impl Holds {
    pub(crate) fn hold(&self, permit: Permit) {
        self.permits.borrow_mut().push(permit);
    }

    /// Its answer is counted by this.
    pub(crate) fn watch(&self, watch: Watch) {
        self.watches.borrow_mut().push(watch);
    }

    /// It gets no answer: its connection is closed.
    pub(crate) fn sever(&self) {
        self.severs.set(true);
    }

    /// Whether it gets none.
    pub(crate) fn is_severed(&self) -> bool {
        self.severs.get()
    }

    /// Its answer is sent by this, too.
    pub(crate) fn pace_by(&self, share: Share) {
        self.pace.borrow_mut().get_or_insert_default().add(share);
    }
}

/// Whoever sends the answer has this, and gives back with it what the request holds, whoever else still knows of that.
#[derive(Debug)]
pub(crate) struct Held(Rc<Holds>);

impl Held {
    /// For a request on this connection.
    #[cold]
    pub(crate) fn new(connection: &Rc<ConnectionHolds>) -> Held {
        Held(Rc::new(Holds {
            permits: RefCell::default(),
            watches: RefCell::default(),
            severs: Cell::default(),
            pace: RefCell::default(),
            connection: connection.clone(),
        }))
    }

    /// The request is answered. Whether the answer is kept back, and the connection closed instead.
    pub(crate) fn on_answer(&self, status: Status) -> bool {
        for watch in self.0.watches.take() {
            watch.on_answer(status);
        }
        self.0.severs.get()
    }

    /// Whether the answer is sent by what a bandwidth allows.
    pub(crate) fn is_paced(&self) -> bool {
        self.0.pace.borrow().is_some()
    }

    /// How fast the answer is sent that begins now; `None` where nothing holds it up.
    pub(crate) fn take_pace(&self) -> Option<Box<Pace>> {
        let mut pace = self.0.pace.take()?;
        pace.follow(&self.0.connection);
        Some(pace)
    }

    /// For those who make the answer.
    pub(crate) fn holds(&self) -> Rc<Holds> {
        self.0.clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.permits.take();
        self.0.pace.take();
    }
}

/// What a connection holds until it closes.
#[derive(Debug, Default)]
pub(crate) struct ConnectionHolds {
    permits: RefCell<Vec<(SmallVec<[u8; 64]>, Permit)>>,
    /// The largest piece that its last answer could have, and when that ended.
    paced: Cell<(u64, u64)>,
    /// As whom it was let in, where that is not its peer: behind a load balancer the client is another.
    admitted: Cell<Option<Peer>>,
}

/// A connection counts by so many keys of one limit at most: whoever shows itself as more than these is refused.
const KEYS_OF_ONE: usize = 8;

impl ConnectionHolds {
    pub(crate) fn paced(&self) -> (u64, u64) {
        self.paced.get()
    }

    pub(crate) fn set_paced(&self, most: u64, now: u64) {
        self.paced.set((most, now));
    }

    pub(crate) fn admit_as(&self, admitted: Peer) {
        self.admitted.set(Some(admitted));
    }

    pub(crate) fn admitted(&self) -> Option<Peer> {
        self.admitted.get()
    }

    /// Counts the connection for a key, once; `false` where there are `most` of it.
    pub(crate) fn count(&self, counts: &Arc<Counts>, key: &[u8], most: u32) -> bool {
        let mut held = self.permits.borrow_mut();
        let of_table = || held.iter().filter(|(_, permit)| permit.is_of(counts));
        if of_table().any(|(known, _)| known[..] == *key) {
            return true;
        }
        if of_table().count() >= KEYS_OF_ONE {
            return false;
        }
        let Some(permit) = Permit::take(counts, key, most) else { return false };
        held.push((SmallVec::from_slice(key), permit));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;

    fn counts(keys: usize) -> Arc<Counts> {
        let [words] = memory_of(Counts::length(keys, 1).unwrap());
        Arc::new(Counts::new(words, 1, [1, 2]).unwrap())
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let counts = counts(8);
        let held = Held::new(&Rc::default());
        let known_elsewhere = held.holds();
        for _ in 0..3 {
            known_elsewhere.hold(Permit::take(&counts, b"a", 3).unwrap());
        }
        assert!(Permit::take(&counts, b"a", 3).is_none());
        assert!(Permit::take(&counts, b"b", 3).is_some());
        drop(held);
        assert_eq!(counts.total(), 0);
    }

    #[test]
    fn a_connection_counts_once_by_each_key() {
        let counts = counts(100);
        let (one, other) = (ConnectionHolds::default(), ConnectionHolds::default());
        for _ in 0..3 {
            assert!(one.count(&counts, b"a", 1));
            assert!(!other.count(&counts, b"a", 1));
        }
        let counted = (0..20u8).filter(|key| one.count(&counts, &[*key], 1)).count();
        assert_eq!(counted, KEYS_OF_ONE - 1, "nobody may hold more than these");
        drop(one);
        assert!(other.count(&counts, b"a", 1));
    }
}
