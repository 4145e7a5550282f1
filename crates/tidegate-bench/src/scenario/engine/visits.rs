//! Users that come at a rate: who is due is let in, or waits where as many are there as may be. How long that takes the server
//! decides, when they are due it does not.

use super::worker::Worker;
use crate::plan::Plan;
use crate::scenario::load::Arriving;
use crate::scenario::user::User;
use crate::scenario::{Phases, Visits};
use std::collections::VecDeque;

/// Who waits at one worker at most. Beyond that nobody would ever be let in: they are due, and do not begin.
const MOST_WAITING: usize = 1 << 20;

/// Arrivals that are counted at the end at most, where the worker has not even looked at them.
const MOST_UNSEEN: u32 = 1 << 24;

/// Those who come to one worker.
pub(super) struct Arrivals {
    arriving: Arriving,
    /// Monotonic nanoseconds of the beginning.
    start: u64,
    /// Places of users that have gone.
    vacant: Vec<u32>,
    /// Who is due and finds no place: when, and its number.
    waiting: VecDeque<(u64, u32)>,
    /// Places at most.
    most: usize,
}

impl Arrivals {
    /// Of the worker of this number in a run that begins at `start`.
    pub fn new(load: &Visits, phases: Phases, plan: &Plan, (worker, start): (u32, u64)) -> Arrivals {
        let (part, of) = (plan.part, u64::from(plan.part.of.max(1)));
        let threads = plan.threads.max(1);
        // As `users_of` deals users out: to the parts of a run in turn, and there to its threads in turn.
        let first = u64::from(worker) * of + u64::from(part.index);
        let places = part.share(u64::from(load.most_users)) as u32;
        let most = places / threads + u32::from(worker < places % threads);
        Arrivals {
            arriving: Arriving::new(load, phases, plan.seed, first, u64::from(threads) * of),
            start,
            vacant: Vec::new(),
            waiting: VecDeque::new(),
            most: most.max(1) as usize,
        }
    }

    /// Room for users, of which more is made when they come.
    pub fn places(&self) -> Vec<User> {
        Vec::with_capacity(self.most.min(1 << 14))
    }

    fn next(&self) -> u64 {
        self.start.saturating_add(self.arriving.next())
    }
}

impl Worker<'_> {
    /// When the next user is due; `u64::MAX`: none is any more.
    pub(super) fn next_arrival(&self) -> u64 {
        self.arrivals.as_ref().map_or(u64::MAX, Arrivals::next)
    }

    /// Whether somebody waits who may still begin.
    pub(super) fn has_waiting(&self, now: u64) -> bool {
        now < self.end && self.arrivals.as_ref().is_some_and(|arrivals| !arrivals.waiting.is_empty())
    }

    /// Whether somebody waits for whom there is a place.
    pub(super) fn can_let_in(&self, now: u64) -> bool {
        self.has_waiting(now) && self.arrivals.as_ref().is_some_and(|arrivals| !arrivals.vacant.is_empty())
    }

    /// The next user is due.
    pub(super) fn arrive(&mut self, now: u64) {
        let Some(arrivals) = &mut self.arrivals else { return };
        let due = arrivals.next();
        let number = arrivals.arriving.take();
        let has_place = !arrivals.vacant.is_empty() || self.users.len() < arrivals.most;
        let is_measured = (self.steady.0..self.steady.1).contains(&due);
        self.visits.due += u64::from(is_measured);
        self.visits.all_due += 1;
        let is_over = now >= self.end;
        if has_place && arrivals.waiting.is_empty() {
            if is_over {
                // Nobody was in its way.
                self.visits.too_late += u64::from(is_measured);
                return;
            }
            return self.visit(number, (due, due), now);
        }
        if !is_over && arrivals.waiting.len() < MOST_WAITING {
            arrivals.waiting.push_back((due, number));
        }
    }

    /// Counts who was due and was not even looked at, at the end of a worker that had too much to do.
    pub(super) fn count_unseen(&mut self, now: u64) {
        let until = self.steady.1.min(now);
        let Some(arrivals) = &mut self.arrivals else { return };
        for _ in 0..MOST_UNSEEN {
            let due = arrivals.next();
            if due >= until {
                return;
            }
            arrivals.arriving.take();
            let is_measured = u64::from(due >= self.steady.0);
            self.visits.due += is_measured;
            self.visits.all_due += 1;
            self.visits.too_late += is_measured;
        }
    }

    /// Lets those in who have waited longest, as many as there is place for and not more than `most`.
    pub(super) fn let_in(&mut self, most: usize, now: u64) {
        for _ in 0..most {
            if !self.can_let_in(now) {
                return;
            }
            let waiting = self.arrivals.as_mut().and_then(|arrivals| arrivals.waiting.pop_front());
            let Some((due, number)) = waiting else { return };
            self.visits.waited += u64::from(self.is_measured(due));
            // That it had to wait is not the generator's fault.
            self.visit(number, (due, now), now);
        }
    }

    /// A user that was due at the first time and could be let in at the second.
    fn visit(&mut self, number: u32, (due, free_since): (u64, u64), now: u64) {
        let Some(arrivals) = &mut self.arrivals else { return };
        let mut user = User::new(self.scenario, number, self.shared.plan.seed, (due, self.end));
        user.free_since = free_since;
        let vacant = arrivals.vacant.pop();
        let place = match vacant.and_then(|place| Some((place, self.users.get_mut(place as usize)?))) {
            Some((place, known)) => {
                *known = user;
                place as usize
            }
            None => {
                self.users.push(user);
                self.users.len() - 1
            }
        };
        self.visits.begun += u64::from(self.is_measured(due));
        self.visits.all_begun += 1;
        self.begin(place, now);
    }

    /// A user has gone: its place is another's. Who waits for it is let in by the loop, not here, where the stack may be that of
    /// a request that has just failed.
    pub(super) fn vacate(&mut self, place: usize) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.vacant.push(place as u32);
        }
    }
}
