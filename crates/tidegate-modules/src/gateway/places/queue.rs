//! The rules of the queue, without lock and clock: who is let in, who waits, who is turned away.
//!
//! Three promises, which the property tests hold it to: places are given in the order of arrival, never
//! more at once than there are, and whoever waits is told in the end: a place, or why not. Where the routes of several
//! sites lead here, each site has a line and a share of its own (`admission/shares`), so that the requests of one that
//! hang leave the others theirs (FAULTS 58).

use super::{Demand, PlaceLimits, Refused};
use std::collections::HashMap;
use std::task::Waker;
use std::time::Duration;
use tidegate_core::admission::shares::{self, Claim, Key, Shares, Sharing};
use tidegate_stats::{Distribution, Histogram, Metric};

/// Of places that several sites share, one may hold eight ninths.
const SITE: u32 = 8;

/// Who is to be woken once the lock is released.
#[derive(Default)]
pub(super) struct Woken(Vec<Waker>);

impl Woken {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// What became of an arrival.
pub(super) enum Entry {
    Granted,
    Refused(Refused),
    Queued {
        ticket: u64,
        /// When it has waited too long, monotonic nanoseconds.
        expires: Option<u64>,
        /// Nobody waited before it.
        is_first: bool,
    },
}

struct Waiting {
    since: u64,
    waker: Waker,
}

/// Everything that a queue has counted, and how it stands.
#[derive(Debug, Clone, Default)]
pub struct PlacesReport {
    /// Places.
    pub places: usize,
    /// Places in use.
    pub in_use: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// How long the first of them has waited.
    pub oldest_wait: Duration,
    /// Most that ever waited at once.
    pub peak_waiting: usize,
    /// Requests that were given a place.
    pub granted: u64,
    /// Refused since the queue was full.
    pub refused_full: u64,
    /// Refused since they had waited too long.
    pub refused_too_old: u64,
    /// Refused since the application was down.
    pub refused_down: u64,
    /// Requests whose client went away while they waited.
    pub abandoned: u64,
    /// How long those waited that were given a place after waiting.
    pub waited: Distribution,
}

pub(super) struct Queue {
    limits: PlaceLimits,
    down: Option<Duration>,
    /// Who holds a place, and who waits: the lines of the sites.
    shares: Shares<1, Waiting>,
    /// Sites whose routes lead here, and how many of their links do.
    sites: HashMap<u64, usize>,
    /// Told, but not yet heard: the request polls next. A place given is counted as taken already.
    settled: HashMap<u64, Result<(), Refused>>,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    peak_waiting: usize,
    granted: u64,
    refused_full: u64,
    refused_too_old: u64,
    refused_down: u64,
    abandoned: u64,
    waited: Box<Histogram>,
    /// Since the last report of demand.
    longest_wait: u64,
    peak_in_use: usize,
}

fn claim(site: u64) -> Claim<1> {
    [Key { party: site, weight: SITE }]
}

fn bound(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Queue {
    pub(super) fn new(limits: PlaceLimits) -> Queue {
        let mut shares = Shares::default();
        shares.set_sharing(Sharing::Among(0));
        Queue {
            limits,
            down: None,
            shares,
            sites: HashMap::new(),
            settled: HashMap::new(),
            counted: Counted::default(),
        }
    }

    pub(super) fn limits(&self) -> PlaceLimits {
        self.limits
    }

    pub(super) fn in_use(&self) -> usize {
        self.shares.taken() as usize
    }

    fn waiting(&self) -> usize {
        self.shares.waiting() as usize
    }

    /// Another link of this site leads here.
    pub(super) fn join(&mut self, site: u64) {
        *self.sites.entry(site).or_insert(0) += 1;
        self.shares.set_sharing(Sharing::Among(bound(self.sites.len())));
    }

    /// One link less does. What was kept for the site is free.
    pub(super) fn part(&mut self, site: u64, now: u64, woken: &mut Woken) {
        if let Some(links) = self.sites.get_mut(&site) {
            *links -= 1;
            if *links == 0 {
                self.sites.remove(&site);
            }
        }
        self.shares.set_sharing(Sharing::Among(bound(self.sites.len())));
        self.hand_out(now, woken);
    }

    /// Takes a place if one is free for this site and nobody of it is before.
    pub(super) fn try_enter(&mut self, site: u64) -> bool {
        let is_free = self.down.is_none() && self.shares.try_enter(&claim(site), bound(self.limits.places));
        if is_free {
            self.count_grant();
        }
        is_free
    }

    /// An arrival. The clock is read only for who has to wait.
    pub(super) fn enter(&mut self, site: u64, now: impl FnOnce() -> u64, waker: &Waker) -> Entry {
        if let Some(retry_after) = self.down {
            self.counted.refused_down += 1;
            return Entry::Refused(Refused::Down { retry_after });
        }
        let is_first = self.shares.waiting() == 0;
        let mut since = 0;
        let who = || {
            since = now();
            Waiting { since, waker: waker.clone() }
        };
        let (places, length) = (bound(self.limits.places), bound(self.limits.queue_length));
        match self.shares.enter(&claim(site), places, length, who) {
            shares::Entry::Place => {
                self.count_grant();
                Entry::Granted
            }
            shares::Entry::Full => {
                self.counted.refused_full += 1;
                Entry::Refused(Refused::Full { retry_after: self.patience() })
            }
            shares::Entry::Turn(ticket) => {
                self.counted.peak_waiting = self.counted.peak_waiting.max(self.waiting());
                let expires = self.limits.queue_age.map(|age| since.saturating_add(nanos(age)));
                Entry::Queued { ticket, expires, is_first }
            }
        }
    }

    /// What has become of a request that waits; `None` as long as it has to.
    pub(super) fn settled(&mut self, site: u64, ticket: u64, waker: &Waker) -> Option<Result<(), Refused>> {
        if let Some(waiting) = self.shares.find(&claim(site), ticket) {
            waiting.waker.clone_from(waker);
            return None;
        }
        self.settled.remove(&ticket)
    }

    /// Its time is up. A place that was given in the meantime is still good.
    pub(super) fn expire(&mut self, site: u64, ticket: u64) -> Result<(), Refused> {
        if let Some(settled) = self.settled.remove(&ticket) {
            return settled;
        }
        self.shares.withdraw(&claim(site), ticket);
        self.counted.refused_too_old += 1;
        Err(Refused::TooOld { retry_after: self.patience() })
    }

    /// A request goes away: out of the queue, or with a place that it never used.
    pub(super) fn leave(&mut self, site: u64, ticket: u64, now: impl FnOnce() -> u64, woken: &mut Woken) {
        if self.shares.withdraw(&claim(site), ticket).is_some() {
            self.counted.abandoned += 1;
        } else if let Some(Ok(())) = self.settled.remove(&ticket) {
            self.counted.abandoned += 1;
            self.release(site, now, woken);
        }
    }

    /// A place is free again: the first who waits and may have it gets it.
    pub(super) fn release(&mut self, site: u64, now: impl FnOnce() -> u64, woken: &mut Woken) {
        self.shares.leave(&claim(site));
        if self.shares.waiting() > 0 {
            self.hand_out(now(), woken);
        }
    }

    pub(super) fn set_limits(&mut self, limits: PlaceLimits, now: u64, woken: &mut Woken) {
        self.limits = limits;
        self.hand_out(now, woken);
        let retry_after = self.patience();
        while self.waiting() > limits.queue_length
            && let Some((ticket, last)) = self.shares.pop_last()
        {
            self.counted.refused_full += 1;
            self.settle(ticket, last, Err(Refused::Full { retry_after }), woken);
        }
    }

    pub(super) fn set_down(&mut self, retry_after: Option<Duration>, woken: &mut Woken) {
        self.down = retry_after;
        let Some(retry_after) = retry_after else { return };
        while let Some((ticket, who)) = self.shares.pop_last() {
            self.counted.refused_down += 1;
            self.settle(ticket, who, Err(Refused::Down { retry_after }), woken);
        }
    }

    /// Gives free places to the first who wait and may have them. Who has waited too long is told so, and not served.
    fn hand_out(&mut self, now: u64, woken: &mut Woken) {
        while let Some((claim, ticket, first)) = self.shares.next(bound(self.limits.places)) {
            let waited = now.saturating_sub(first.since);
            let is_too_old = self.limits.queue_age.is_some_and(|age| waited >= nanos(age));
            let outcome = if is_too_old {
                self.counted.refused_too_old += 1;
                Err(Refused::TooOld { retry_after: self.patience() })
            } else {
                self.counted.waited.record_nanos(waited);
                self.counted.longest_wait = self.counted.longest_wait.max(waited);
                self.shares.take(&claim);
                self.count_grant();
                Ok(())
            };
            self.settle(ticket, first, outcome, woken);
        }
    }

    fn count_grant(&mut self) {
        self.counted.granted += 1;
        self.counted.peak_in_use = self.counted.peak_in_use.max(self.in_use());
    }

    fn settle(&mut self, ticket: u64, who: Waiting, outcome: Result<(), Refused>, woken: &mut Woken) {
        self.settled.insert(ticket, outcome);
        woken.0.push(who.waker);
    }

    /// What a client turned away is told to wait: as long as one may wait here, since the queue that
    /// refused it is served by then.
    fn patience(&self) -> Duration {
        self.limits.queue_age.unwrap_or(Duration::from_secs(1))
    }

    fn oldest_wait(&self, now: u64) -> Duration {
        let first = self.shares.first_of_lines().map(|first| first.since).min();
        first.map_or(Duration::ZERO, |since| Duration::from_nanos(now.saturating_sub(since)))
    }

    pub(super) fn report(&self, now: u64) -> PlacesReport {
        PlacesReport {
            places: self.limits.places,
            in_use: self.in_use(),
            waiting: self.waiting(),
            oldest_wait: self.oldest_wait(now),
            peak_waiting: self.counted.peak_waiting,
            granted: self.counted.granted,
            refused_full: self.counted.refused_full,
            refused_too_old: self.counted.refused_too_old,
            refused_down: self.counted.refused_down,
            abandoned: self.counted.abandoned,
            waited: self.counted.waited.read(),
        }
    }

    pub(super) fn demand(&mut self, now: u64) -> Demand {
        let in_use = self.in_use();
        Demand {
            waiting: self.waiting(),
            oldest_wait: self.oldest_wait(now),
            longest_wait: Duration::from_nanos(std::mem::take(&mut self.counted.longest_wait)),
            in_use: self.in_use(),
            peak_in_use: std::mem::replace(&mut self.counted.peak_in_use, in_use),
            requests: self.counted.granted,
            refused_full: self.counted.refused_full,
            refused_too_old: self.counted.refused_too_old,
            refused_down: self.counted.refused_down,
            abandoned: self.counted.abandoned,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const ONE: u64 = 1;

    /// What may happen to a queue. Numbers choose among those who wait or hold a place.
    #[derive(Debug, Clone)]
    enum Step {
        Arrive,
        Leave(usize),
        Release,
        Poll(usize),
        Expire,
        Places(usize),
        Length(usize),
        Down(bool),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => Just(Step::Arrive),
            2 => any::<usize>().prop_map(Step::Leave),
            4 => Just(Step::Release),
            3 => any::<usize>().prop_map(Step::Poll),
            1 => Just(Step::Expire),
            1 => (0..5usize).prop_map(Step::Places),
            1 => (0..9usize).prop_map(Step::Length),
            1 => any::<bool>().prop_map(Step::Down),
            3 => (0..40u64).prop_map(Step::Pass),
        ];
        proptest::collection::vec(step, 0..120)
    }

    /// The plainest thing that keeps the promises: a list of who waits, in order, with their times.
    #[derive(Default)]
    struct Model {
        line: VecDeque<(u64, u64)>,
        holding: usize,
        outcomes: HashMap<u64, Result<(), Refused>>,
    }

    impl Model {
        fn hand_out(&mut self, places: usize, age: u64, now: u64) {
            while self.holding < places
                && let Some((ticket, since)) = self.line.pop_front()
            {
                let is_served = now - since < age;
                self.holding += usize::from(is_served);
                let too_old = Refused::TooOld { retry_after: Duration::from_nanos(age) };
                self.outcomes.insert(ticket, if is_served { Ok(()) } else { Err(too_old) });
            }
        }
    }

    proptest! {
        #[test]
        fn keeps_the_order_and_the_bounds_and_loses_nobody(steps in steps()) {
            let age = 100;
            let mut limits =
                PlaceLimits { places: 2, queue_length: 4, queue_age: Some(Duration::from_nanos(age)) };
            let (mut queue, mut model) = (Queue::new(limits), Model::default());
            let (mut now, mut down, mut unheard) = (0, false, Vec::new());
            // Behind the places there are as many as have heard of theirs: those can be released.
            let mut heard = 0;
            for step in steps {
                let mut woken = Woken::default();
                match step {
                    Step::Arrive => match queue.enter(ONE, || now, Waker::noop()) {
                        Entry::Granted => {
                            prop_assert!(!down && model.line.is_empty() && model.holding < limits.places);
                            model.holding += 1;
                            heard += 1;
                        }
                        Entry::Refused(Refused::Down { .. }) => prop_assert!(down),
                        Entry::Refused(_) => prop_assert!(!down && model.line.len() >= limits.queue_length),
                        Entry::Queued { ticket, expires, is_first } => {
                            prop_assert!(!down && model.line.len() < limits.queue_length);
                            prop_assert_eq!(expires, Some(now + age));
                            prop_assert_eq!(is_first, model.line.is_empty());
                            model.line.push_back((ticket, now));
                            unheard.push(ticket);
                        }
                    },
                    Step::Leave(which) if !unheard.is_empty() => {
                        let ticket = unheard.remove(which % unheard.len());
                        queue.leave(ONE, ticket, || now, &mut woken);
                        model.line.retain(|(waiting, _)| *waiting != ticket);
                        if let Some(Ok(())) = model.outcomes.remove(&ticket) {
                            model.holding -= 1;
                            model.hand_out(limits.places, age, now);
                        }
                    }
                    Step::Release if heard > 0 => {
                        heard -= 1;
                        queue.release(ONE, || now, &mut woken);
                        model.holding -= 1;
                        model.hand_out(limits.places, age, now);
                    }
                    Step::Poll(which) if !unheard.is_empty() => {
                        let which = which % unheard.len();
                        let outcome = queue.settled(ONE, unheard[which], Waker::noop());
                        prop_assert_eq!(outcome, model.outcomes.remove(&unheard[which]));
                        if let Some(outcome) = outcome {
                            heard += usize::from(outcome.is_ok());
                            unheard.remove(which);
                        }
                    }
                    Step::Expire => {
                        // The deadlines of those fire who have waited too long.
                        let old: Vec<u64> = model.line.iter().filter(|(_, since)| now - since >= age)
                            .map(|(ticket, _)| *ticket).collect();
                        for ticket in old {
                            let is_too_old = matches!(queue.expire(ONE, ticket), Err(Refused::TooOld { .. }));
                            prop_assert!(is_too_old);
                            model.line.retain(|(waiting, _)| *waiting != ticket);
                            unheard.retain(|waiting| *waiting != ticket);
                        }
                    }
                    Step::Places(places) => {
                        limits.places = places;
                        queue.set_limits(limits, now, &mut woken);
                        model.hand_out(places, age, now);
                    }
                    Step::Length(length) => {
                        limits.queue_length = length;
                        queue.set_limits(limits, now, &mut woken);
                        model.hand_out(limits.places, age, now);
                        while model.line.len() > length {
                            let (ticket, _) = model.line.pop_back().expect("longer than the bound");
                            let retry_after = Duration::from_nanos(age);
                            model.outcomes.insert(ticket, Err(Refused::Full { retry_after }));
                        }
                    }
                    Step::Down(is_down) => {
                        down = is_down;
                        let retry_after = Duration::from_secs(3);
                        queue.set_down(is_down.then_some(retry_after), &mut woken);
                        if is_down {
                            for (ticket, _) in model.line.drain(..) {
                                model.outcomes.insert(ticket, Err(Refused::Down { retry_after }));
                            }
                        }
                    }
                    Step::Pass(time) => now += time,
                    Step::Leave(_) | Step::Release | Step::Poll(_) => {}
                }
                prop_assert_eq!(queue.in_use(), model.holding);
                prop_assert_eq!(queue.waiting(), model.line.len());
                for (ticket, _) in &model.line {
                    prop_assert!(queue.shares.find(&claim(ONE), *ticket).is_some());
                }
                // Nobody waits before a free place, and whoever was told is woken.
                prop_assert!(queue.waiting() == 0 || queue.in_use() >= limits.places);
                prop_assert_eq!(queue.settled.len(), model.outcomes.len());
            }
        }
    }

    #[test]
    fn demand_is_told_once() {
        let limits = PlaceLimits { places: 1, queue_length: 9, queue_age: None };
        let mut queue = Queue::new(limits);
        assert!(queue.try_enter(ONE));
        assert!(!queue.try_enter(ONE));
        assert!(matches!(
            queue.enter(ONE, || 10, Waker::noop()),
            Entry::Queued { ticket: 1, is_first: true, .. }
        ));
        assert!(matches!(
            queue.enter(ONE, || 20, Waker::noop()),
            Entry::Queued { ticket: 2, is_first: false, .. }
        ));
        queue.release(ONE, || 50, &mut Woken::default());
        let demand = queue.demand(60);
        let expected = Demand {
            waiting: 1,
            oldest_wait: Duration::from_nanos(40),
            longest_wait: Duration::from_nanos(40),
            in_use: 1,
            peak_in_use: 1,
            requests: 2,
            ..Demand::default()
        };
        assert_eq!(demand, expected);
        assert_eq!(queue.demand(60).longest_wait, Duration::ZERO);
        queue.leave(ONE, 1, || 70, &mut Woken::default());
        assert_eq!(queue.report(80).waited.count(), 2);
        assert_eq!(queue.report(80).abandoned, 1);
    }

    #[test]
    fn requests_of_one_site_that_hang_leave_places_to_another() {
        let limits = PlaceLimits { places: 4, queue_length: 9, queue_age: None };
        let (hung, well, mut queue) = (1, 2, Queue::new(limits));
        queue.join(hung);
        queue.join(hung);
        queue.join(well);
        assert_eq!((0..9).filter(|_| queue.try_enter(hung)).count(), 3);
        let Entry::Queued { ticket, .. } = queue.enter(hung, || 0, Waker::noop()) else { panic!("it waits") };
        assert!(queue.try_enter(well));
        let Entry::Queued { ticket: second, .. } = queue.enter(well, || 0, Waker::noop()) else { panic!() };
        queue.release(well, || 0, &mut Woken::default());
        assert_eq!(queue.settled(well, second, Waker::noop()), Some(Ok(())), "the later, for it has none");
        assert_eq!(queue.settled(hung, ticket, Waker::noop()), None);
        // Nobody else leads here any more.
        queue.release(well, || 0, &mut Woken::default());
        queue.part(well, 0, &mut Woken::default());
        assert_eq!(queue.settled(hung, ticket, Waker::noop()), Some(Ok(())));
        queue.part(hung, 0, &mut Woken::default());
        assert_eq!((queue.sites.len(), queue.in_use()), (1, 4));
    }
}
