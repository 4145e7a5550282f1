//! When requests are meant to start: arrivals on a schedule that the server cannot slow down (open loop).
//!
//! Pure: it knows no clock. The worker asks for the next time and compares it with its own. A closed loop has
//! no schedule; there each answer brings the next request.

use crate::random::Random;

/// How arrivals follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances.
    Constant,
    /// At random and independent of each other, as those of many users are: exponential gaps.
    Poisson,
}

/// The intended starts of one worker, nanoseconds from the start of the run.
#[derive(Debug, Clone)]
pub struct Schedule {
    kind: Kind,
    next: u64,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Arrivals `first`, `first + workers`, … of all arrivals at `rate`.
    Constant {
        rate: f64,
        number: u64,
        workers: u64,
    },
    Poisson {
        mean_gap: f64,
        at: f64,
        random: Random,
    },
}

impl Schedule {
    /// The share of worker `worker` of `workers` in `rate` arrivals per second. Constant arrivals are dealt
    /// out in turn, so that all together are at equal distances; Poisson arrivals of several workers are
    /// Poisson together.
    pub fn new(arrivals: Arrivals, rate: f64, worker: u32, workers: u32, seed: u64) -> Self {
        let kind = match arrivals {
            Arrivals::Constant => {
                Kind::Constant { rate, number: u64::from(worker), workers: u64::from(workers) }
            }
            Arrivals::Poisson => Kind::Poisson {
                mean_gap: 1e9 * f64::from(workers) / rate,
                at: 0.0,
                random: Random::new(seed, u64::from(worker)),
            },
        };
        let mut schedule = Schedule { kind, next: 0 };
        schedule.advance();
        schedule
    }

    /// The next intended start.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Goes on to the one after it.
    #[inline]
    pub fn advance(&mut self) {
        self.next = match &mut self.kind {
            // From its number, not from the one before: errors do not add up.
            Kind::Constant { rate, number, workers } => {
                let at = *number as f64 * 1e9 / *rate;
                *number += *workers;
                at as u64
            }
            Kind::Poisson { mean_gap, at, random } => {
                *at -= random.unit().ln() * *mean_gap;
                *at as u64
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(schedule: &mut Schedule, until: u64) -> Vec<u64> {
        let mut all = Vec::new();
        while schedule.next() < until {
            all.push(schedule.next());
            schedule.advance();
        }
        all
    }

    #[test]
    fn constant_arrivals_of_all_workers_are_at_equal_distances() {
        let mut all: Vec<u64> = (0..3)
            .flat_map(|worker| {
                starts(&mut Schedule::new(Arrivals::Constant, 1_000.0, worker, 3, 0), 1_000_000_000)
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all.len(), 1_000);
        assert!(all.iter().enumerate().all(|(n, at)| at.abs_diff(n as u64 * 1_000_000) <= 1), "{all:?}");
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let mut schedule = Schedule::new(Arrivals::Constant, 3.0, 0, 1, 0);
        assert_eq!(starts(&mut schedule, 10_000 * 1_000_000_000).len(), 30_000);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_their_kind() {
        let seconds = 200;
        let mut schedule = Schedule::new(Arrivals::Poisson, 1_000.0, 1, 2, 42);
        let all = starts(&mut schedule, seconds * 1_000_000_000);
        let expected = seconds as f64 * 500.0;
        assert!((all.len() as f64 - expected).abs() < 4.0 * expected.sqrt(), "{}", all.len());
        // The gaps of an exponential distribution have a standard deviation equal to their mean.
        let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((0.97..1.03).contains(&(deviation / mean)), "{}", deviation / mean);
        let again = starts(&mut Schedule::new(Arrivals::Poisson, 1_000.0, 1, 2, 42), seconds * 1_000_000_000);
        assert_eq!(all, again);
    }
}
