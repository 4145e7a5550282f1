//! When a user's next operation starts. Pure: it knows no clock but the numbers it is given.
//!
//! A cycle time counts from the intended start of one operation to that of the next, as Faban has it: the server cannot slow
//! a user down, and an operation that overruns its cycle makes the next one late, which counts as response time. A
//! think time counts from the end.

use crate::random::Random;
use std::time::Duration;

/// What the time between two operations counts from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// From the intended start of one to that of the next.
    Cycle(Distribution),
    /// From the end of one to the start of the next.
    Think(Distribution),
}

impl Clock {
    /// How the time is distributed.
    pub fn distribution(&self) -> Distribution {
        match self {
            Clock::Cycle(distribution) | Clock::Think(distribution) => *distribution,
        }
    }

    /// The next intended start, nanoseconds, and the time drawn. `least` holds from start to start.
    pub(crate) fn next(&self, intended: u64, ended: u64, least: Duration, random: &mut Random) -> (u64, u64) {
        let drawn = self.distribution().draw(random);
        let least = least.as_nanos() as u64;
        match self {
            Clock::Cycle(_) => {
                let cycle = drawn.max(least);
                (intended.saturating_add(cycle), cycle)
            }
            Clock::Think(_) => {
                let next = ended.saturating_add(drawn).max(intended.saturating_add(least));
                (next, next.saturating_sub(intended))
            }
        }
    }

    /// In words.
    pub fn sentence(&self) -> String {
        if *self == Clock::Think(Distribution::Fixed(Duration::ZERO)) {
            return "no pause".to_owned();
        }
        let kind = if matches!(self, Clock::Cycle(_)) { "cycle" } else { "think" };
        format!("{kind} {}", self.distribution().sentence())
    }
}

/// How long, at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Fixed(Duration),
    /// Each time between two is as likely.
    Uniform(Duration, Duration),
    /// Negative exponential, as between independent decisions. What is longer than the most is the most: clipped, not
    /// drawn again.
    Exponential {
        /// Of the distribution before it is clipped.
        mean: Duration,
        /// The longest.
        most: Duration,
    },
}

impl Distribution {
    /// The mean of what is drawn, seconds.
    pub fn mean(&self) -> f64 {
        self.mean_at_least(Duration::ZERO)
    }

    /// The mean where what is shorter than `least` is `least`, seconds.
    pub fn mean_at_least(&self, least: Duration) -> f64 {
        let least = least.as_secs_f64();
        match self {
            Distribution::Fixed(time) => time.as_secs_f64().max(least),
            Distribution::Uniform(low, high) => {
                let (low, high) = (low.as_secs_f64(), high.as_secs_f64());
                if least <= low {
                    return (low + high) / 2.0;
                }
                if least >= high {
                    return least;
                }
                // Below `least` it is that; above it is uniform again.
                let below = (least - low) / (high - low);
                below * least + (1.0 - below) * (least + high) / 2.0
            }
            Distribution::Exponential { mean, most } => {
                let (mean, most) = (mean.as_secs_f64(), most.as_secs_f64());
                if least >= most {
                    return least;
                }
                // E[clip(X, a, b)] = a + mean * (e^(-a/mean) - e^(-b/mean)).
                least + mean * ((-least / mean).exp() - (-most / mean).exp())
            }
        }
    }

    /// One time, nanoseconds.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Distribution::Fixed(time) => time.as_nanos() as u64,
            Distribution::Uniform(low, high) => {
                let span = high.saturating_sub(*low).as_nanos() as f64;
                low.as_nanos() as u64 + (random.unit() * span) as u64
            }
            Distribution::Exponential { mean, most } => {
                let drawn = -random.unit().ln() * mean.as_nanos() as f64;
                (drawn as u64).min(most.as_nanos() as u64)
            }
        }
    }

    /// In words.
    pub fn sentence(&self) -> String {
        use crate::quantity::show_duration as show;
        match self {
            Distribution::Fixed(time) => format!("fixed {}", show(*time)),
            Distribution::Uniform(low, high) => format!("uniform {} to {}", show(*low), show(*high)),
            Distribution::Exponential { mean, most } => {
                format!("exponential, mean {}, at most {}", show(*mean), show(*most))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn means_are_those_of_what_is_drawn() {
        let table = [
            (Distribution::Fixed(S(2)), S(0), 2.0),
            (Distribution::Fixed(S(2)), S(3), 3.0),
            (Distribution::Uniform(S(2), S(8)), S(0), 5.0),
            (Distribution::Uniform(S(2), S(8)), S(5), 5.75),
            // The documents' clock: 5 (1 - e^-5).
            (Distribution::Exponential { mean: S(5), most: S(25) }, S(0), 4.966_310),
            (Distribution::Exponential { mean: S(5), most: S(25) }, S(3), 5.710_368),
        ];
        for (distribution, least, mean) in table {
            let computed = distribution.mean_at_least(least);
            assert!((computed - mean).abs() < 1e-5, "{distribution:?}: {computed}");
            let mut random = Random::new(1, 2);
            let least = least.as_nanos() as u64;
            let drawn =
                (0..200_000).map(|_| distribution.draw(&mut random).max(least) as f64 / 1e9).sum::<f64>();
            assert!((drawn / 200_000.0 / mean - 1.0).abs() < 0.01, "{distribution:?}: {}", drawn / 200_000.0);
        }
    }

    #[test]
    fn a_cycle_counts_from_the_intended_start_and_a_thought_from_the_end() {
        let mut random = Random::new(1, 1);
        let two = Distribution::Fixed(S(2));
        let second = 1_000_000_000;
        let table = [
            // Ended in time, ended late: the next is due when it was due.
            (Clock::Cycle(two), 11, 0, 12),
            (Clock::Cycle(two), 15, 0, 12),
            (Clock::Cycle(two), 11, 3, 13),
            (Clock::Think(two), 11, 0, 13),
            (Clock::Think(two), 11, 5, 15),
        ];
        for (clock, ended, least, expected) in table {
            let (next, _) = clock.next(10 * second, ended * second, S(least), &mut random);
            assert_eq!(next, expected * second, "{clock:?}, ended {ended}, least {least}");
        }
    }
}
