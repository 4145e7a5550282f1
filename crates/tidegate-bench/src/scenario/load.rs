//! Who comes to the server and when: users that stay (a closed load), or visits on a schedule that the server cannot slow
//! down (an open load). Pure: it knows no clock but the numbers it is given.

use crate::quantity::{show_duration, show_number};
use crate::schedule::{Arrivals, Schedule};
use std::time::Duration;

/// Who comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// A number of users, each of whom does one operation after the other to the end of the run.
    Users(Users),
    /// New users at a rate, each of whom does some operations and goes.
    Visits(Visits),
}

/// Users that stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Users {
    /// At least 1.
    pub count: u32,
    /// Time between the first operations of two users, where it is said in place of a spread over the ramp-up.
    pub stagger: Option<Duration>,
}

/// Users that come and go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Visits {
    /// Visits a second in the steady time, above 0.
    pub rate: f64,
    /// How they follow each other.
    pub arrivals: Arrivals,
    /// Operations of a visit, at least 1.
    pub operations: u32,
    /// Visits at once at most. One that comes when so many are there waits, which counts as response time.
    pub most_users: u32,
}

/// The phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// The first operations of users are spread over this time; a rate rises over it evenly from nothing.
    pub ramp_up: Duration,
    /// What is due in this time is measured.
    pub steady: Duration,
    /// Users go, spread over this time; a rate falls over it evenly to nothing.
    pub ramp_down: Duration,
}

impl Load {
    /// Users at once at most.
    pub fn most_users(&self) -> u32 {
        match self {
            Load::Users(users) => users.count,
            Load::Visits(visits) => visits.most_users,
        }
    }

    /// Whether the server cannot slow it down.
    pub fn is_open(&self) -> bool {
        matches!(self, Load::Visits(_))
    }

    /// In words, without the phases.
    pub fn sentence(&self) -> String {
        match self {
            Load::Users(users) => format!("{} users", users.count),
            Load::Visits(visits) => {
                let word = if visits.operations == 1 { "operation" } else { "operations" };
                let arrivals = match visits.arrivals {
                    Arrivals::Poisson => "poisson",
                    Arrivals::Constant => "constant",
                };
                format!(
                    "{} visits/s ({arrivals}) of {} {word}, at most {} users at once",
                    show_rate(visits.rate),
                    visits.operations,
                    visits.most_users
                )
            }
        }
    }
}

/// Visits a second, as they were written where that is a whole number.
pub(super) fn show_rate(rate: f64) -> String {
    if rate.fract() == 0.0 { format!("{rate}") } else { show_number(rate) }
}

impl Users {
    /// When user `number` begins, from the start of the run.
    pub fn begins(&self, number: u32, phases: &Phases) -> Duration {
        match self.stagger {
            Some(stagger) => stagger.saturating_mul(number),
            None => phases.ramp_up.mul_f64(f64::from(number) / f64::from(self.count.max(1))),
        }
    }

    /// When user `number` starts nothing any more.
    pub fn ends(&self, number: u32, phases: &Phases) -> Duration {
        phases.ramp_up
            + phases.steady
            + phases.ramp_down.mul_f64(f64::from(number + 1) / f64::from(self.count.max(1)))
    }
}

impl Phases {
    /// From the first operation to the last one's intended start.
    pub fn whole(&self) -> Duration {
        self.ramp_up + self.steady + self.ramp_down
    }

    /// In words.
    pub fn sentence(&self) -> String {
        format!(
            "ramp-up {}, steady {}, ramp-down {}",
            show_duration(self.ramp_up),
            show_duration(self.steady),
            show_duration(self.ramp_down)
        )
    }

    /// When what would come at `at`, were the rate the full one from the beginning on, comes with a rate that rises and falls
    /// evenly. Nanoseconds from the start; `None`: not any more.
    fn ramped(&self, at: u64) -> Option<u64> {
        let [up, steady, down] =
            [self.ramp_up, self.steady, self.ramp_down].map(|time| time.as_nanos() as f64);
        // In a ramp there come half as many as in the same time at the full rate.
        let at = at as f64;
        if at < up / 2.0 {
            return Some((2.0 * at * up).sqrt() as u64);
        }
        let in_steady = at - up / 2.0;
        if in_steady < steady {
            return Some((up + in_steady) as u64);
        }
        let in_down = in_steady - steady;
        (in_down < down / 2.0)
            .then(|| (up + steady + down - (down * down - 2.0 * down * in_down).sqrt()) as u64)
    }
}

/// The arrivals of one worker: of all visits of a run every `step`th, so that which visit comes when depends on the seed alone,
/// not on how many workers or agents there are.
#[derive(Debug, Clone)]
pub(super) struct Arriving {
    schedule: Schedule,
    phases: Phases,
    step: u64,
    /// Of the next one, among all visits.
    number: u64,
    /// When it comes, from the start of the run; `u64::MAX` when there is none.
    next: u64,
}

impl Arriving {
    pub fn new(visits: &Visits, phases: Phases, seed: u64, first: u64, step: u64) -> Arriving {
        let mut schedule = Schedule::new(visits.arrivals, visits.rate, 0, 1, seed);
        (0..first).for_each(|_| schedule.advance());
        let next = phases.ramped(schedule.next()).unwrap_or(u64::MAX);
        Arriving { schedule, phases, step: step.max(1), number: first, next }
    }

    /// When the next visit comes, nanoseconds from the start of the run; `u64::MAX`: there is none.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes it: its number among all visits.
    pub fn take(&mut self) -> u32 {
        let number = self.number as u32;
        self.number += self.step;
        (0..self.step).for_each(|_| self.schedule.advance());
        self.next = self.phases.ramped(self.schedule.next()).unwrap_or(u64::MAX);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn phases(up: u64, steady: u64, down: u64) -> Phases {
        let time = Duration::from_secs;
        Phases { ramp_up: time(up), steady: time(steady), ramp_down: time(down) }
    }

    fn all(mut arriving: Arriving) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        while arriving.next() != u64::MAX {
            let at = arriving.next();
            all.push((at, arriving.take()));
        }
        all
    }

    #[test]
    fn a_rate_rises_stays_and_falls() {
        let visits = Visits { rate: 100.0, arrivals: Arrivals::Constant, operations: 1, most_users: 1 };
        let came = all(Arriving::new(&visits, phases(10, 20, 4), 1, 0, 1));
        let between =
            |from: u64, to: u64| came.iter().filter(|(at, _)| (from * S..to * S).contains(at)).count();
        // Half as many in the ramps; in the first half of a ramp a quarter of those.
        assert_eq!([between(0, 10), between(10, 30), between(30, 34)], [500, 2_000, 200]);
        assert_eq!([between(0, 5), between(32, 34)], [125, 50]);
        assert!(came.windows(2).all(|pair| pair[0].0 <= pair[1].0) && came.len() == 2_700);
        let bare = Arriving::new(&visits, phases(0, 3, 0), 1, 0, 1);
        assert_eq!(all(bare).len(), 300);
    }

    #[test]
    fn workers_deal_the_visits_of_one_schedule_out() {
        for arrivals in [Arrivals::Poisson, Arrivals::Constant] {
            let visits = Visits { rate: 50.0, arrivals, operations: 1, most_users: 1 };
            let one = all(Arriving::new(&visits, phases(2, 5, 1), 7, 0, 1));
            assert!((250..400).contains(&one.len()), "{}", one.len());
            for step in [2, 3, 7] {
                let mut dealt: Vec<_> = (0..step)
                    .flat_map(|first| all(Arriving::new(&visits, phases(2, 5, 1), 7, first, step)))
                    .collect();
                dealt.sort_unstable();
                assert_eq!(dealt, one, "{arrivals:?} by {step}");
            }
            let other = all(Arriving::new(&visits, phases(2, 5, 1), 8, 0, 1));
            assert_eq!(other == one, arrivals == Arrivals::Constant);
        }
    }
}
