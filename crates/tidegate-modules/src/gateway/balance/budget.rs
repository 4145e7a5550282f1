//! How many requests may be sent a second time: a share of those that are sent a first time.
//!
//! Retries help while one member is ill and hurt when all are: then each adds load where there is too much
//! of it. The budget bounds the added load to a tenth by default (FAULTS 48), whatever happens.

/// Thousandths of a retry.
const WHOLE: u32 = 1_000;

/// A bucket that requests fill and retries empty.
#[derive(Debug, Clone)]
pub struct Budget {
    /// What each request puts in, thousandths of a retry.
    share: u32,
    most: u32,
    held: u32,
}

impl Budget {
    /// Retries up to this share of requests, in percent. A quiet group may retry up to ten at once.
    pub fn new(percent: u32) -> Budget {
        let most = if percent == 0 { 0 } else { 10 * WHOLE };
        Budget { share: percent.saturating_mul(WHOLE / 100), most, held: most }
    }

    /// A request has been sent for the first time.
    pub fn on_request(&mut self) {
        self.held = self.held.saturating_add(self.share).min(self.most);
    }

    /// Takes what one retry costs, where it is there.
    pub fn try_retry(&mut self) -> bool {
        match self.held.checked_sub(WHOLE) {
            Some(left) => {
                self.held = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_stay_within_their_share() {
        for (percent, expected) in [(0, 0), (1, 10 + 10), (10, 10 + 100), (100, 10 + 1_000)] {
            let mut budget = Budget::new(percent);
            let mut retries = 0;
            for _ in 0..1_000 {
                budget.on_request();
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
    fn quiet_times_do_not_save_up() {
        let mut budget = Budget::new(10);
        (0..100_000).for_each(|_| budget.on_request());
        let at_once = std::iter::repeat_with(|| budget.try_retry()).take_while(|&may| may).count();
        assert_eq!(at_once, 10);
    }
}
