//! How long what is ready waits on a worker, without a clock reading for each event.
//!
//! A turn of the worker begins with one reading of the clock. When the poller gave all that was ready, what
//! was served last in the turn has waited since it began, and the reading that its request took anyway says
//! how long. When the poller gave as much as it could hold, more is behind it in the kernel: then the worker
//! wakes itself through its own descriptor, which takes its place at the end of the kernel's list, and how
//! long that takes is the wait. The queue of a listening socket is measured alike: its length is read once,
//! and the time until as many connections have been accepted is what the last of them has waited.

use super::overload::{INTERVAL, Overload, Queue};

/// The measurements under way on one worker. Times are monotonic nanoseconds.
#[derive(Debug, Default)]
pub struct Waits {
    turn: u64,
    /// When the last request of the turn began.
    request: u64,
    /// What waited in this turn is known already.
    is_told: bool,
    /// There is more in the kernel than the poller gave.
    is_full: bool,
    /// When the worker woke itself.
    probe: Option<u64>,
    /// A queue of connections being counted off.
    accept: Option<Mark>,
}

#[derive(Debug)]
struct Mark {
    listener: usize,
    left: u32,
    since: u64,
}

impl Waits {
    /// A request was begun at this time.
    #[inline]
    pub fn on_request(&mut self, at: u64) {
        self.request = at;
    }

    /// Whether the turn has lasted for more than a whole interval.
    #[inline]
    pub fn is_late(&self, at: u64) -> bool {
        at.saturating_sub(self.turn) > INTERVAL && self.turn > 0
    }

    /// What is served in such a turn has waited at least since it began.
    pub fn on_late_request(&mut self, at: u64, overload: &mut Overload) {
        self.is_told = true;
        overload.observe(Queue::Ready, at.saturating_sub(self.turn));
    }

    /// Nanoseconds from the beginning of the turn to its last request.
    #[inline]
    pub fn progress(&self) -> u64 {
        self.request.saturating_sub(self.turn)
    }

    /// The poller has returned. `is_full`: with as much as it can hold. `true` asks the caller to wake the
    /// worker by its own descriptor.
    #[inline]
    pub fn begin_turn(&mut self, now: u64, is_full: bool, overload: &mut Overload) -> bool {
        if !self.is_full && !self.is_told && self.request >= self.turn && self.turn > 0 {
            overload.observe(Queue::Ready, self.request - self.turn);
        }
        (self.turn, self.is_full, self.is_told) = (now, is_full, false);
        for (queue, since) in
            [(Queue::Ready, self.probe), (Queue::Accept, self.accept.as_ref().map(|mark| mark.since))]
        {
            // Not there yet: only worth saying when it is too long already.
            if let Some(since) = since
                && now.saturating_sub(since) > overload.patience()
            {
                overload.observe(queue, now.saturating_sub(since));
            }
        }
        let sends = is_full && self.probe.is_none();
        if sends {
            self.probe = Some(now);
        }
        sends
    }

    /// The worker's own descriptor was ready in the turn that has begun.
    pub fn on_wake(&mut self, overload: &mut Overload) {
        // The one that asks for it is sent in this turn and cannot be here yet.
        if let Some(since) = self.probe
            && since < self.turn
        {
            self.probe = None;
            overload.observe(Queue::Ready, self.turn - since);
        }
    }

    /// Whether the queue of a listener is to be measured, of which not all was accepted.
    pub fn wants_length(&self) -> bool {
        self.accept.is_none()
    }

    /// So many connections wait there.
    pub fn on_length(&mut self, listener: usize, length: u32) {
        if length > 0 {
            self.accept = Some(Mark { listener, left: length, since: self.turn });
        }
    }

    /// One was accepted.
    #[inline]
    pub fn on_accept(&mut self, listener: usize, overload: &mut Overload) {
        if let Some(mark) = &mut self.accept
            && mark.listener == listener
        {
            mark.left -= 1;
            if mark.left == 0 {
                overload.observe(Queue::Accept, self.turn - mark.since);
                self.accept = None;
            }
        }
    }

    /// Nobody waits there any more, or the listeners are others.
    pub fn on_empty(&mut self, listener: Option<usize>) {
        if self.accept.as_ref().is_some_and(|mark| listener.is_none_or(|listener| listener == mark.listener))
        {
            self.accept = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::overload::INTERVAL;
    use super::*;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    fn overload() -> Overload {
        let mut overload = Overload::new(Some(Duration::from_millis(50)));
        overload.tick(0);
        overload
    }

    fn least(overload: &mut Overload) -> u64 {
        overload.tick(INTERVAL).unwrap().least
    }

    #[test]
    fn the_last_request_of_a_turn_has_waited_since_it_began() {
        let (mut waits, mut overload) = (Waits::default(), overload());
        assert!(!waits.begin_turn(10, false, &mut overload));
        waits.on_request(12);
        waits.on_request(17);
        waits.begin_turn(20, false, &mut overload);
        assert_eq!(least(&mut overload), 7);
        // A turn without requests says nothing.
        waits.begin_turn(30, false, &mut overload);
        assert_eq!(overload.tick(2 * INTERVAL).unwrap().least, 0);
    }

    #[test]
    fn a_long_turn_is_not_waited_for() {
        let (mut waits, mut overload) = (Waits::default(), overload());
        waits.begin_turn(10, false, &mut overload);
        assert!(!waits.is_late(INTERVAL));
        let at = 10 + 2 * INTERVAL;
        assert!(waits.is_late(at));
        waits.on_request(at);
        waits.on_late_request(at, &mut overload);
        assert_eq!((waits.progress(), overload.tick(at).unwrap().least), (2 * INTERVAL, 2 * INTERVAL));
    }

    #[test]
    fn a_full_turn_is_measured_by_what_comes_behind_it() {
        let (mut waits, mut overload) = (Waits::default(), overload());
        assert!(waits.begin_turn(10, true, &mut overload));
        waits.on_wake(&mut overload); // of another thread
        waits.on_request(11);
        assert!(!waits.begin_turn(20, true, &mut overload), "one at a time");
        assert!(!waits.begin_turn(30, false, &mut overload));
        waits.on_wake(&mut overload);
        assert_eq!(least(&mut overload), 20);
    }

    #[test]
    fn what_has_not_come_yet_counts_once_it_is_late() {
        let (mut waits, mut overload) = (Waits::default(), overload());
        waits.begin_turn(1, true, &mut overload);
        waits.begin_turn(40 * MS, true, &mut overload);
        waits.begin_turn(60 * MS, true, &mut overload);
        waits.begin_turn(90 * MS, true, &mut overload);
        assert_eq!(least(&mut overload), 60 * MS - 1);
    }

    #[test]
    fn a_queue_is_counted_off() {
        let (mut waits, mut overload) = (Waits::default(), overload());
        waits.begin_turn(5, false, &mut overload);
        assert!(waits.wants_length());
        waits.on_length(1, 3);
        assert!(!waits.wants_length());
        waits.begin_turn(9, false, &mut overload);
        waits.on_accept(0, &mut overload);
        waits.on_accept(1, &mut overload);
        waits.on_accept(1, &mut overload);
        assert!(!waits.wants_length());
        waits.on_accept(1, &mut overload);
        assert!(waits.wants_length());
        assert_eq!(least(&mut overload), 4);
        waits.on_length(1, 3);
        waits.on_empty(Some(0));
        assert!(!waits.wants_length());
        waits.on_empty(Some(1));
        assert!(waits.wants_length());
    }
}
