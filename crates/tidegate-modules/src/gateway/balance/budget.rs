//! How many requests may be sent a second time: a share of those that are sent a first time.
//!
//! Retries help while one member is ill and hurt when all are: then each adds load where there is too much
//! of it. The budget bounds the added load to a tenth by default (FAULTS 48), whatever happens. What is not
//! used is there for a while, so that a member that dies under load loses nobody: all that it had in hand is
//! tried again at once.

use std::time::Duration;

/// Unused shares of so long may be used at once.
const MEMORY: Duration = Duration::from_secs(10);
/// Retries at once that a quiet group has.
const LEAST: f64 = 10.0;

/// A bucket that requests fill and retries empty.
#[derive(Debug, Clone)]
pub struct Budget {
    /// What each request puts in, in retries.
    share: f64,
    held: f64,
    /// Requests of late: each counts for less the longer ago it was.
    recent: f64,
    /// When the last one came; monotonic, nanoseconds.
    last: u64,
}

impl Budget {
    /// Retries up to this share of requests, in percent; with 0 none.
    pub fn new(percent: u32) -> Budget {
        let held = if percent == 0 { 0.0 } else { LEAST };
        Budget { share: f64::from(percent) / 100.0, held, recent: 0.0, last: 0 }
    }

    /// A request is sent for the first time.
    pub fn on_request(&mut self, now: u64) {
        if self.share == 0.0 {
            return;
        }
        let since = Duration::from_nanos(now.saturating_sub(self.last));
        self.last = now;
        self.recent = self.recent * (-since.as_secs_f64() / MEMORY.as_secs_f64()).exp() + 1.0;
        self.held = (self.held + self.share).min((self.recent * self.share).max(LEAST));
    }

    /// Takes what one retry costs, where it is there.
    pub fn try_retry(&mut self) -> bool {
        let may = self.held >= 1.0;
        if may {
            self.held -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn retries_stay_within_their_share() {
        for (percent, expected) in [(0, 0), (1, 10 + 10), (10, 10 + 100), (100, 10 + 1_000)] {
            let mut budget = Budget::new(percent);
            let mut retries = 0;
            for request in 0..1_000 {
                budget.on_request(request * SECOND / 100);
                // Every request fails, and so does every retry.
                while budget.try_retry() {
                    retries += 1;
                }
            }
            // The bucket is full when the first request comes: what that one adds is lost.
            assert!((expected - 1..=expected).contains(&retries), "{percent} %: {retries}");
        }
    }

    #[test]
    fn all_that_a_dying_member_had_in_hand_is_tried_again() {
        let mut budget = Budget::new(10);
        (0..20_000).for_each(|request| budget.on_request(request * SECOND / 2_000));
        let at_once = std::iter::repeat_with(|| budget.try_retry()).take_while(|&may| may).count();
        assert!((1_000..2_000).contains(&at_once), "{at_once}");
    }

    #[test]
    fn quiet_times_do_not_save_up() {
        let mut budget = Budget::new(10);
        (0..20_000).for_each(|request| budget.on_request(request * SECOND / 2_000));
        budget.on_request(200 * SECOND);
        let at_once = std::iter::repeat_with(|| budget.try_retry()).take_while(|&may| may).count();
        assert_eq!(at_once, 10);
    }
}
