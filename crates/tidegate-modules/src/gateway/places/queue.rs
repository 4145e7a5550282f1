//! The queue before an application, without lock and clock: the queue of turns of `core/admission/turns`, with limits that
//! change, a time when nobody can be served, the sites that share the places, and what is counted of all that. Where the
//! routes of several sites lead here, each site has a line and a share of its own, so that the requests of one that hang
//! leave the others theirs (FAULTS 58).

use super::{Demand, PlaceLimits, Refused};
use std::collections::HashMap;
use std::task::Waker;
use std::time::Duration;
use tidegate_core::admission::shares::{Claim, Key, Sharing};
use tidegate_core::admission::turns::{self, Bounds, Tally, Turn, TurnQueue, Woken};
use tidegate_stats::{Distribution, Histogram, Metric};

/// Of places that several sites share, one may hold eight ninths.
const SITE: u32 = 8;

/// What became of an arrival.
pub(super) enum PlaceArrival {
    Granted,
    Refused(Refused),
    Queued {
        turn: Turn,
        /// Nobody waited before it.
        is_first: bool,
    },
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
    turns: TurnQueue<1, Refused, Counted>,
    /// Sites whose routes lead here, and how many of their links do.
    sites: HashMap<u64, usize>,
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

impl Tally for Counted {
    fn granted(&mut self, taken: u32, waited: Option<u64>) {
        self.granted += 1;
        self.peak_in_use = self.peak_in_use.max(taken as usize);
        if let Some(waited) = waited {
            self.waited.record_nanos(waited);
            self.longest_wait = self.longest_wait.max(waited);
        }
    }

    fn too_old(&mut self) {
        self.refused_too_old += 1;
    }
}

fn claim(site: u64) -> Claim<1> {
    [Key { party: site, weight: SITE }]
}

fn bound(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Queue {
    pub(super) fn new(limits: PlaceLimits) -> Queue {
        let mut turns = TurnQueue::default();
        turns.set_sharing(Sharing::Among);
        turns.prefer_here(); // where the connection is that was used in it
        Queue { limits, down: None, turns, sites: HashMap::new() }
    }

    fn bounds(&self) -> Bounds<Refused> {
        Bounds {
            places: bound(self.limits.places),
            length: bound(self.limits.queue_length),
            age: self.limits.queue_age,
            too_old: Refused::TooOld { retry_after: self.patience() },
        }
    }

    pub(super) fn limits(&self) -> PlaceLimits {
        self.limits
    }

    pub(super) fn in_use(&self) -> usize {
        self.turns.taken() as usize
    }

    fn waiting(&self) -> usize {
        self.turns.waiting() as usize
    }

    /// Another link of this site leads here.
    pub(super) fn join(&mut self, site: u64) {
        *self.sites.entry(site).or_insert(0) += 1;
        self.turns.join(site);
    }

    /// One link less does. What was kept for the site is free.
    pub(super) fn part(&mut self, site: u64, now: u64, woken: &mut Woken) {
        if let Some(links) = self.sites.get_mut(&site) {
            *links -= 1;
            if *links == 0 {
                self.sites.remove(&site);
                self.turns.part(site);
            }
        }
        self.turns.hand_out(&self.bounds(), now, woken);
    }

    /// Takes a place if one is free for this site and nobody of it is before.
    pub(super) fn try_enter(&mut self, site: u64) -> bool {
        self.down.is_none() && self.turns.try_enter(&claim(site), &self.bounds())
    }

    /// An arrival. The clock is read only for who has to wait.
    pub(super) fn enter(&mut self, site: u64, now: impl FnOnce() -> u64, waker: &Waker) -> PlaceArrival {
        if let Some(retry_after) = self.down {
            self.turns.tally.refused_down += 1;
            return PlaceArrival::Refused(Refused::Down { retry_after });
        }
        match self.turns.enter(&claim(site), &self.bounds(), now, waker) {
            turns::Arrival::Granted => PlaceArrival::Granted,
            turns::Arrival::Full => {
                self.turns.tally.refused_full += 1;
                PlaceArrival::Refused(Refused::Full { retry_after: self.patience() })
            }
            turns::Arrival::Queued { turn, is_first } => {
                let waiting = self.waiting();
                let peak = &mut self.turns.tally.peak_waiting;
                *peak = (*peak).max(waiting);
                PlaceArrival::Queued { turn, is_first }
            }
        }
    }

    /// What has become of a request that waits; `None` as long as it has to.
    pub(super) fn settled(&mut self, site: u64, ticket: u64, waker: &Waker) -> Option<Result<(), Refused>> {
        self.turns.settled(&claim(site), ticket, waker)
    }

    /// Its time is up. A place that was given in the meantime is still good.
    pub(super) fn expire(&mut self, site: u64, ticket: u64) -> Result<(), Refused> {
        let too_old = self.bounds().too_old;
        self.turns.expire(&claim(site), ticket, too_old)
    }

    /// A request goes away: out of the queue, or with a place that it never used.
    pub(super) fn leave(&mut self, site: u64, ticket: u64, now: impl FnOnce() -> u64, woken: &mut Woken) {
        let has_gone = self.turns.leave(&claim(site), ticket, &self.bounds(), now, woken);
        self.turns.tally.abandoned += u64::from(has_gone);
    }

    /// A place is free again: the first who waits and may have it gets it.
    pub(super) fn release(&mut self, site: u64, now: impl FnOnce() -> u64, woken: &mut Woken) {
        self.turns.release(&claim(site), &self.bounds(), now, woken);
    }

    pub(super) fn set_limits(&mut self, limits: PlaceLimits, now: u64, woken: &mut Woken) {
        self.limits = limits;
        self.turns.hand_out(&self.bounds(), now, woken);
        let retry_after = self.patience();
        while self.waiting() > limits.queue_length
            && self.turns.refuse_last(Refused::Full { retry_after }, woken)
        {
            self.turns.tally.refused_full += 1;
        }
    }

    pub(super) fn set_down(&mut self, retry_after: Option<Duration>, woken: &mut Woken) {
        self.down = retry_after;
        let Some(retry_after) = retry_after else { return };
        while self.turns.refuse_last(Refused::Down { retry_after }, woken) {
            self.turns.tally.refused_down += 1;
        }
    }

    /// What a client turned away is told to wait: as long as one may wait here, since the queue that
    /// refused it is served by then.
    fn patience(&self) -> Duration {
        self.limits.queue_age.unwrap_or(Duration::from_secs(1))
    }

    pub(super) fn report(&self, now: u64) -> PlacesReport {
        let counted = &self.turns.tally;
        PlacesReport {
            places: self.limits.places,
            in_use: self.in_use(),
            waiting: self.waiting(),
            oldest_wait: self.turns.oldest_wait(now),
            peak_waiting: counted.peak_waiting,
            granted: counted.granted,
            refused_full: counted.refused_full,
            refused_too_old: counted.refused_too_old,
            refused_down: counted.refused_down,
            abandoned: counted.abandoned,
            waited: counted.waited.read(),
        }
    }

    pub(super) fn demand(&mut self, now: u64) -> Demand {
        let (in_use, waiting) = (self.in_use(), self.waiting());
        let oldest_wait = self.turns.oldest_wait(now);
        let counted = &mut self.turns.tally;
        Demand {
            waiting,
            oldest_wait,
            longest_wait: Duration::from_nanos(std::mem::take(&mut counted.longest_wait)),
            in_use,
            peak_in_use: std::mem::replace(&mut counted.peak_in_use, in_use),
            requests: counted.granted,
            refused_full: counted.refused_full,
            refused_too_old: counted.refused_too_old,
            refused_down: counted.refused_down,
            abandoned: counted.abandoned,
        }
    }
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
                        PlaceArrival::Granted => {
                            prop_assert!(!down && model.line.is_empty() && model.holding < limits.places);
                            model.holding += 1;
                            heard += 1;
                        }
                        PlaceArrival::Refused(Refused::Down { .. }) => prop_assert!(down),
                        PlaceArrival::Refused(_) => prop_assert!(!down && model.line.len() >= limits.queue_length),
                        PlaceArrival::Queued { turn, is_first } => {
                            let (ticket, expires) = (turn.ticket(), turn.expires());
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
                    prop_assert!(queue.settled(ONE, *ticket, Waker::noop()).is_none());
                }
                // Nobody waits before a free place, and whoever was told is woken.
                prop_assert!(queue.waiting() == 0 || queue.in_use() >= limits.places);
                prop_assert_eq!(queue.turns.unheard(), model.outcomes.len());
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
            PlaceArrival::Queued { turn, is_first: true } if turn.ticket() == 1
        ));
        assert!(matches!(
            queue.enter(ONE, || 20, Waker::noop()),
            PlaceArrival::Queued { turn, is_first: false } if turn.ticket() == 2
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
        let PlaceArrival::Queued { turn, .. } = queue.enter(hung, || 0, Waker::noop()) else {
            panic!("it waits")
        };
        let ticket = turn.ticket();
        assert!(queue.try_enter(well));
        let PlaceArrival::Queued { turn, .. } = queue.enter(well, || 0, Waker::noop()) else { panic!() };
        let second = turn.ticket();
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
