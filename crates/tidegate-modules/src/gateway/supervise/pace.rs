//! How fast processes are started: a token bucket for all starts, and a growing pause after failures.
//!
//! Pure: the caller brings the time and the randomness.

use std::time::Duration;

/// The pause after the second failure in a row; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So many starts at once, and so many a second after that.
#[derive(Debug)]
pub(super) struct Bucket {
    size: u32,
    refill: Duration,
    /// What is in it, as the time it took to come in.
    held: Duration,
    at: Duration,
}

impl Bucket {
    /// A full one of `size`, which gets one each `refill`.
    pub(super) fn new(size: u32, refill: Duration, now: Duration) -> Bucket {
        Bucket { size, refill, held: refill * size, at: now }
    }

    /// Takes one out if there is one.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        self.held = (self.held + now.saturating_sub(self.at)).min(self.refill * self.size);
        self.at = now;
        match self.held.checked_sub(self.refill) {
            Some(rest) => {
                self.held = rest;
                true
            }
            None => false,
        }
    }

    /// When there will be one.
    pub(super) fn next(&self) -> Duration {
        self.at + self.refill.saturating_sub(self.held)
    }
}

/// The pause after so many failures in a row. A single one has none: whoever is killed is replaced at once.
/// `chance` (0 to 255) takes away up to half, so that pools do not try again in step.
pub(super) fn pause(failures: u32, chance: u8) -> Duration {
    let Some(doublings) = failures.checked_sub(2) else { return Duration::ZERO };
    let whole = FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE);
    whole - whole * u32::from(chance) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_vary_by_half() {
        let cases =
            [(0, 0), (1, 0), (2, 250), (3, 500), (4, 1000), (8, 16_000), (9, 30_000), (4_000_000, 30_000)];
        for (failures, most) in cases {
            assert_eq!(pause(failures, 0), Duration::from_millis(most), "{failures}");
            assert!(pause(failures, 255) * 2 >= Duration::from_millis(most), "{failures}");
            assert!(pause(failures, 255) <= Duration::from_millis(most), "{failures}");
        }
    }

    #[test]
    fn a_bucket_gives_its_size_at_once_and_then_its_rate() {
        let second = Duration::from_secs(1);
        let mut bucket = Bucket::new(3, second, Duration::ZERO);
        assert!(bucket.take(Duration::ZERO) && bucket.take(Duration::ZERO) && bucket.take(Duration::ZERO));
        assert!(!bucket.take(Duration::ZERO));
        assert_eq!(bucket.next(), second);
        assert!(!bucket.take(second / 2));
        assert!(bucket.take(second));
        assert!(!bucket.take(second));
        // It holds no more than its size, however long nobody asks.
        let given = (0..9).filter(|_| bucket.take(second * 1000)).count();
        assert_eq!(given, 3);
    }
}
