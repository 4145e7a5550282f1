//! The law of overload: when a worker turns away, and how much.
//!
//! The worker says how long what was ready had to wait for its turn; this says what to turn away. The signal
//! is that of CoDel (RFC 8289): the least wait of a tenth of a second, since a burst makes waits long but a
//! queue that never empties makes even the least of them long. A crowd of clients that each wait for their
//! answer also keeps a worker busy, but its queue does not grow; so shedding begins late, at `patience`, then
//! drains the queue to a tenth of that, and lets go slowly, so that the queue stays short while more comes
//! than can be served.
//!
//! Pure: no clock, no socket. Nanoseconds come from the caller, so tests run on a clock of their own.
//! Called by the worker loop and, for each request while it sheds, by connections and streams.

use std::time::Duration;

/// The least wait is taken over this long, nanoseconds.
pub const INTERVAL: u64 = 100_000_000;
/// Everything of a kind.
const ALL: u32 = 1024;
/// The last of the requests are never turned away: somebody must tell whether it has become better.
const REQUESTS_MOST: u32 = ALL - ALL / 16;
/// What is added to the severity in a tenth of a second.
const STEP: u32 = ALL / 8;

/// Decides what a worker turns away.
///
/// The severity rises from 0 to twice `ALL`: the first half is the share of new connections that are
/// turned away, the second half the share of new requests on open ones (FAULTS 54). Idle connections are
/// closed as soon as it is above 0.
#[derive(Debug)]
pub struct Overload {
    /// Waits above this are too long.
    patience: u64,
    /// Where waits are brought to while shedding.
    target: u64,
    /// When the present interval began; `None` before the first.
    began: Option<u64>,
    /// The least waits of this interval, by [`Queue`].
    least: [Option<u64>; 2],
    /// The least wait of the interval before.
    last: u64,
    /// The least wait since severity was raised last.
    lowest: u64,
    severity: u32,
    /// Intervals in which hardly anybody waited.
    calm: u32,
    /// The queue that has grown is being worked off.
    is_draining: bool,
    /// New connections in this interval.
    offered: u32,
    owed_connections: u32,
    owed_requests: u32,
}

/// What may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Events of connections, for their turn.
    Ready = 0,
    /// New connections in the kernel, to be accepted.
    Accept = 1,
}

/// What the end of an interval has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The least wait, nanoseconds.
    pub least: u64,
    /// Shedding has begun with it.
    pub has_begun: bool,
    /// Shedding goes on.
    pub is_shedding: bool,
}

impl Overload {
    /// Turns away when waits stay above `patience`; `None` never does.
    pub fn new(patience: Option<Duration>) -> Overload {
        let mut overload = Overload {
            patience: u64::MAX,
            target: u64::MAX,
            began: None,
            least: [None; 2],
            last: 0,
            lowest: 0,
            severity: 0,
            calm: 0,
            is_draining: false,
            offered: 0,
            owed_connections: 0,
            owed_requests: 0,
        };
        overload.set_patience(patience);
        overload
    }

    /// Follows new settings; what is being shed stays.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.patience = patience.map_or(u64::MAX, nanos);
        self.target = self.patience / 10;
        if patience.is_none() {
            self.severity = 0;
        }
    }

    /// Something has waited this long, or is waiting this long already.
    #[inline]
    pub fn observe(&mut self, queue: Queue, waited: u64) {
        let least = &mut self.least[queue as usize];
        *least = Some(least.map_or(waited, |least| least.min(waited)));
    }

    /// Waits above this are too long, nanoseconds.
    pub fn patience(&self) -> u64 {
        self.patience
    }

    /// The time is `now`, which never falls. Says so when an interval has ended.
    #[inline]
    pub fn tick(&mut self, now: u64) -> Option<Change> {
        let began = *self.began.get_or_insert(now);
        let elapsed = now.saturating_sub(began);
        if elapsed < INTERVAL { None } else { Some(self.end_interval(now, elapsed / INTERVAL)) }
    }

    #[cold]
    fn end_interval(&mut self, now: u64, count: u64) -> Change {
        // A worker that had nothing to do has had nobody wait.
        let least = std::mem::take(&mut self.least).into_iter().flatten().max().unwrap_or(0);
        let was_shedding = self.severity > 0;
        if was_shedding {
            // One with long turns ends fewer intervals; it must not let go slower for it.
            for _ in 0..count.min(100) {
                self.adjust(least);
            }
        } else if least > self.patience && self.last > self.patience && least >= self.last - self.last / 32 {
            // Twice in a row and not falling: a worker that was held up once finds a heap, but works it off.
            (self.severity, self.is_draining) = (STEP, true);
        }
        self.last = least;
        self.began = Some(now);
        self.offered = 0;
        let is_shedding = self.severity > 0;
        Change { least, has_begun: is_shedding && !was_shedding, is_shedding }
    }

    fn adjust(&mut self, least: u64) {
        let is_falling = least < self.last - self.last / 32;
        if least > self.patience {
            self.is_draining = true;
        } else if least <= self.target {
            self.is_draining = false;
        }
        self.lowest = self.lowest.min(least);
        if least > self.target / 8 {
            self.calm = 0;
        }
        if self.is_draining {
            if !is_falling {
                self.raise(STEP);
            }
            self.lowest = least;
        } else if least <= self.target / 8 {
            // The longer it lasts that hardly anybody waits, the faster.
            self.calm = self.calm.saturating_add(1);
            self.severity -= (self.severity >> 4_u32.saturating_sub(self.calm / 8)).max(1);
        } else if least <= self.target {
            self.severity -= self.severity / 64 + 1;
        } else if least - self.lowest > self.target / 4 {
            // It grows again, however slowly. A queue that only stays where it is belongs to a crowd.
            self.raise(STEP / 4);
            self.lowest = least;
        }
    }

    fn raise(&mut self, step: u32) {
        // A kind of which nothing comes cannot be turned away: on to the next.
        if self.offered == 0 && self.severity < ALL {
            self.severity = ALL;
        }
        self.severity = (self.severity + step).min(ALL + REQUESTS_MOST);
    }

    /// Whether anything is turned away at present.
    #[inline]
    pub fn is_shedding(&self) -> bool {
        self.severity > 0
    }

    /// A connection has come: whether to turn it away. Evenly spread, not drawn by lot.
    #[inline]
    pub fn sheds_connection(&mut self) -> bool {
        self.offered = self.offered.saturating_add(1);
        self.severity > 0 && owes(&mut self.owed_connections, self.severity.min(ALL))
    }

    /// Whether requests are turned away at all at present.
    #[inline]
    pub fn may_shed_request(&self) -> bool {
        self.severity > ALL
    }

    /// A request has come on an open connection: whether to turn it away.
    #[inline]
    pub fn sheds_request(&mut self) -> bool {
        self.may_shed_request() && owes(&mut self.owed_requests, self.severity - ALL)
    }
}

/// Adds a share to what is owed; whether that makes a whole one.
fn owes(owed: &mut u32, share: u32) -> bool {
    *owed += share;
    let is_due = *owed >= ALL;
    if is_due {
        *owed -= ALL;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;
    /// What serving takes; so the capacity is 1,000 in a second.
    const SERVE: u64 = MS;
    /// What turning away takes.
    const REFUSE: u64 = SERVE / 25;

    /// A worker on a clock of its own: one queue, turns of at most 64.
    struct Model {
        now: u64,
        queue: VecDeque<u64>,
        overload: Overload,
        /// New connections, or requests on open ones.
        by_connection: bool,
        /// When it was served, and how long it took.
        served: Vec<(u64, u64)>,
        refused: Vec<u64>,
    }

    impl Model {
        fn new(by_connection: bool) -> Model {
            Model {
                now: 0,
                queue: VecDeque::new(),
                overload: Overload::new(Some(Duration::from_millis(500))),
                by_connection,
                served: Vec::new(),
                refused: Vec::new(),
            }
        }

        /// One turn; how many were answered.
        fn turn(&mut self) -> usize {
            let began = self.now;
            let count = self.queue.len().min(64);
            for came in self.queue.drain(..count) {
                self.overload.observe(Queue::Ready, self.now - came);
                let sheds = if self.by_connection {
                    self.overload.sheds_connection()
                } else {
                    self.overload.sheds_request()
                };
                self.now += if sheds { REFUSE } else { SERVE };
                if sheds {
                    self.refused.push(self.now);
                } else {
                    self.served.push((self.now, self.now - came));
                }
            }
            if self.now == began {
                self.now += MS;
            }
            self.overload.tick(self.now);
            count
        }

        /// Arrivals that do not wait for answers, so many in a second, until a time.
        fn offer(&mut self, rate: u64, until: u64) {
            let mut next = self.now;
            while self.now < until {
                while next <= self.now {
                    self.queue.push_back(next);
                    next += SECOND / rate;
                }
                self.turn();
            }
        }

        /// So many clients that each wait for their answer and ask again.
        fn crowd(&mut self, clients: usize, until: u64) {
            self.queue.extend(std::iter::repeat_n(self.now, clients));
            while self.now < until {
                let count = self.turn();
                self.queue.extend(std::iter::repeat_n(self.now, count));
            }
            self.queue.clear();
        }

        fn goodput(&self, from: u64) -> f64 {
            let count = self.served.iter().filter(|(at, _)| *at >= from).count() as f64;
            count * SERVE as f64 / (self.now - from) as f64
        }

        fn p99(&self, from: u64) -> u64 {
            let mut times: Vec<u64> =
                self.served.iter().filter(|(at, _)| *at >= from).map(|(_, time)| *time).collect();
            times.sort_unstable();
            times[times.len() * 99 / 100]
        }
    }

    #[test]
    fn twice_the_capacity_leaves_the_goodput_and_the_waits_as_they_were() {
        for by_connection in [true, false] {
            for factor in [2, 4] {
                let mut model = Model::new(by_connection);
                model.offer(1000 * factor, 40 * SECOND);
                let (goodput, p99) = (model.goodput(10 * SECOND), model.p99(10 * SECOND) / MS);
                assert!(goodput > if factor == 2 { 0.95 } else { 0.86 }, "{goodput}");
                assert!(p99 <= 200, "{by_connection} {factor}: {p99} ms");
            }
        }
    }

    #[test]
    fn within_the_capacity_nobody_is_turned_away() {
        for rate in [500, 900, 990] {
            let mut model = Model::new(true);
            model.offer(rate, 20 * SECOND);
            assert!(model.refused.is_empty());
        }
    }

    #[test]
    fn a_crowd_that_waits_for_its_answers_is_no_overload() {
        let mut model = Model::new(false);
        for burst in 0..6 {
            // 400 clients wait 400 ms each; 10 wait 10 ms.
            model.crowd(400, (burst * 10 + 5) * SECOND);
            model.crowd(10, (burst + 1) * 10 * SECOND);
        }
        assert!(model.refused.is_empty());
        assert!(model.goodput(0) > 0.99);
    }

    #[test]
    fn a_worker_held_up_once_works_off_its_heap() {
        let mut model = Model::new(true);
        model.offer(500, SECOND);
        for _ in 0..3 {
            let from = model.now;
            model.now += 900 * MS; // not scheduled, or waiting for a disk
            model.queue.extend((from..model.now).step_by(2 * MS as usize));
            let until = model.now + 5 * SECOND;
            model.offer(500, until);
        }
        assert!(model.refused.is_empty());
    }

    #[test]
    fn what_has_passed_is_forgotten() {
        let mut model = Model::new(true);
        model.offer(3000, 10 * SECOND);
        assert!(!model.refused.is_empty());
        model.refused.clear();
        model.queue.clear();
        model.offer(500, 13 * SECOND);
        assert!(!model.overload.is_shedding());
        model.refused.clear();
        model.offer(500, 15 * SECOND);
        assert!(model.refused.is_empty());
    }

    #[test]
    fn connections_are_turned_away_before_requests() {
        let mut overload = Overload::new(Some(Duration::from_millis(100)));
        let mut now = 0;
        let mut orders = Vec::new();
        for _ in 0..40 {
            now += INTERVAL;
            overload.sheds_connection();
            overload.observe(Queue::Accept, 200 * MS);
            overload.tick(now);
            let connections = (0..64).filter(|_| overload.sheds_connection()).count();
            let requests = (0..64).filter(|_| overload.sheds_request()).count();
            orders.push((connections, requests));
        }
        assert!(orders.iter().all(|(connections, requests)| *requests == 0 || *connections == 64));
        assert!(orders.is_sorted());
        assert_eq!(orders.last(), Some(&(64, 60)), "somebody always gets through");
    }

    #[test]
    fn one_queue_that_is_empty_does_not_hide_the_other() {
        let mut overload = Overload::new(Some(Duration::from_millis(100)));
        for now in 0..4 {
            overload.observe(Queue::Ready, 0);
            overload.observe(Queue::Accept, 200 * MS);
            overload.tick(now * INTERVAL);
        }
        assert!(overload.is_shedding());
    }

    #[test]
    fn off_is_off() {
        let mut overload = Overload::new(None);
        for now in 0..100 {
            overload.observe(Queue::Ready, u64::MAX - 1);
            overload.tick(now * INTERVAL);
            assert!(!overload.sheds_connection() && !overload.sheds_request());
        }
    }
}
