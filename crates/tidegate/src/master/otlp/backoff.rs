//! How long a collector that takes nothing is left alone: twice as long each time, with a part that is random, so that many
//! servers do not come back at once.

use std::time::Duration;

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// However many there were.
const MOST: Duration = Duration::from_secs(60);
/// Most that a collector may ask for.
const MOST_ASKED: Duration = Duration::from_secs(3600);

/// The failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// After one more failure: how long to wait. What the collector asks for is kept to.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let mut random = [0];
        let _ = tidegate_tls::fill_random(&mut random); // without it nothing is random, and nothing is wrong
        self.next_with(asked, random[0])
    }

    fn next_with(&mut self, asked: Option<Duration>, random: u8) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        match asked {
            Some(asked) => asked.min(MOST_ASKED),
            // Half of it is certain.
            None => doubled / 2 + doubled.mul_f64(f64::from(random) / 512.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..10).map(|_| backoff.next_with(None, 0).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000]);
        assert_eq!(backoff.next_with(Some(Duration::from_secs(7)), 9), Duration::from_secs(7));
        assert_eq!(backoff.next_with(Some(Duration::MAX), 9), MOST_ASKED);
        assert!(backoff.next_with(None, 255) < MOST && backoff.next_with(None, 255) > MOST / 2);
    }
}
