//! The law of overload: when a worker turns away, and whom.
//!
//! The worker says how long what was ready had to wait for its turn; this says what to turn away. The signal
//! is that of CoDel (RFC 8289): the least wait of a tenth of a second, since a burst makes waits long but a
//! queue that never empties makes even the least of them long. A crowd of clients that each wait for their
//! answer also keeps a worker busy, but its queue does not grow; so shedding begins late, at `patience`.
//!
//! Once it sheds, a turn of the worker has a budget of processor time, a 250th of `patience`. What comes up
//! within it is served; what comes up later in the turn is turned away, which costs little. So whoever is
//! served has waited for a turn and a budget at most, however much more is offered, and a worker is never
//! without work while it turns away. New connections go first; requests on open ones only when that is not
//! enough (FAULTS 54). It is over when nobody had to be turned away for a second.
//!
//! Pure: no clock, no socket. Nanoseconds come from the caller, so tests run on a clock of their own.
//! Called by the worker loop and, for each request while it sheds, by connections and streams.

use std::time::Duration;

/// The least wait is taken over this long, nanoseconds.
pub const INTERVAL: u64 = 100_000_000;
/// The budget of a turn: one in so many parts of the patience.
const BUDGET: u64 = 250;
/// So many intervals make a step up, or a step down.
const STEP_UP: u32 = 3;
const STEP_DOWN: u32 = 10;

/// Decides what a worker turns away.
#[derive(Debug)]
pub struct Overload {
    /// Waits above this are too long.
    patience: u64,
    /// What is served of a turn while shedding.
    budget: u64,
    /// When the present interval began; `None` before the first.
    began: Option<u64>,
    /// The least waits of this interval, by [`Queue`].
    least: [Option<u64>; 2],
    /// The least wait of the interval before.
    last: u64,
    sheds: Sheds,
    /// Intervals in a row in which turning away connections did not help.
    helpless: u32,
    /// Intervals in a row in which nobody was turned away.
    calm: u32,
    /// New connections in this interval.
    offered: u32,
    /// Turned away in this interval.
    refused: u32,
}

/// What is turned away. Idle connections are closed as soon as it is anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sheds {
    Nothing,
    Connections,
    Requests,
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
            budget: u64::MAX,
            began: None,
            least: [None; 2],
            last: 0,
            sheds: Sheds::Nothing,
            helpless: 0,
            calm: 0,
            offered: 0,
            refused: 0,
        };
        overload.set_patience(patience);
        overload
    }

    /// Follows new settings; what is being shed stays.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.patience = patience.map_or(u64::MAX, nanos);
        self.budget = patience.map_or(u64::MAX, |_| self.patience / BUDGET);
        if patience.is_none() {
            self.sheds = Sheds::Nothing;
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
        let was_shedding = self.is_shedding();
        if was_shedding {
            // One with long turns ends fewer intervals; it must not let go slower for it.
            self.adjust(least, u32::try_from(count).unwrap_or(u32::MAX));
        } else if least > self.patience && self.last > self.patience && least >= self.last - self.last / 32 {
            // Twice in a row and not falling: a worker that was held up once finds a heap, but works it off.
            (self.sheds, self.helpless, self.calm) = (Sheds::Connections, 0, 0);
        }
        self.last = least;
        self.began = Some(now);
        (self.offered, self.refused) = (0, 0);
        let is_shedding = self.is_shedding();
        Change { least, has_begun: is_shedding && !was_shedding, is_shedding }
    }

    /// A step up when those who wait still wait long, and not less than before; a step down after a calm while.
    fn adjust(&mut self, least: u64, count: u32) {
        let is_falling = least < self.last - self.last / 32;
        let is_helpless = least > 2 * self.budget && !is_falling;
        self.calm = if self.refused == 0 && !is_helpless { self.calm.saturating_add(count) } else { 0 };
        self.helpless = if is_helpless { self.helpless + 1 } else { 0 };
        if self.calm >= STEP_DOWN {
            self.calm = 0;
            self.sheds = if self.sheds == Sheds::Requests { Sheds::Connections } else { Sheds::Nothing };
        } else if self.helpless >= STEP_UP || (is_helpless && self.offered == 0) {
            // A kind of which nothing comes cannot be turned away: on to the next at once.
            self.sheds = Sheds::Requests;
        }
    }

    /// Whether anything is turned away at present.
    #[inline]
    pub fn is_shedding(&self) -> bool {
        self.sheds > Sheds::Nothing
    }

    /// A connection has come while it sheds, when the turn had `spent` so many nanoseconds of processor time:
    /// whether to turn it away.
    pub fn sheds_connection(&mut self, spent: u64) -> bool {
        self.offered = self.offered.saturating_add(1);
        self.is_refused(self.is_shedding() && spent > self.budget)
    }

    /// Whether requests are turned away at all at present.
    #[inline]
    pub fn may_shed_request(&self) -> bool {
        self.sheds == Sheds::Requests
    }

    /// The same of a request on an open connection.
    pub fn sheds_request(&mut self, spent: u64) -> bool {
        self.is_refused(self.may_shed_request() && spent > self.budget)
    }

    fn is_refused(&mut self, is: bool) -> bool {
        self.refused = self.refused.saturating_add(is.into());
        is
    }
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
                let spent = self.now - began;
                let sheds = if self.by_connection {
                    self.overload.sheds_connection(spent)
                } else {
                    self.overload.sheds_request(spent)
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
                assert!(p99 <= 10, "{by_connection} {factor}: {p99} ms");
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
        let mut orders = Vec::new();
        for now in 1..10 {
            overload.sheds_connection(0);
            overload.observe(Queue::Accept, 200 * MS);
            overload.tick(now * INTERVAL);
            let within = MS / 4;
            assert!(!overload.sheds_connection(within) && !overload.sheds_request(within));
            orders.push((overload.sheds_connection(3 * MS), overload.sheds_request(3 * MS)));
        }
        assert!(orders.is_sorted());
        assert_eq!(orders[..3], [(false, false), (false, false), (true, false)]);
        assert_eq!(orders.last(), Some(&(true, true)));
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
            assert!(!overload.sheds_connection(u64::MAX) && !overload.sheds_request(u64::MAX));
        }
    }
}
