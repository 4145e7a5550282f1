//! Trouble with a back end, as the error log tells of it: once for each reason, and again when it has lasted.
//!
//! Whoever asks the same back end again and again has one: a collector, a store of limits, a name.

use std::time::{Duration, Instant};

/// How often the same reason is told.
const TOLD_AGAIN: Duration = Duration::from_secs(600);
/// Reasons that are remembered: those of a back end that answers now this, now that.
const REASONS: usize = 8;

/// What is wrong with one back end.
#[derive(Debug, Default)]
pub struct Trouble {
    told: Vec<(String, Instant)>,
}

impl Trouble {
    /// Whether this reason is to be told: it was not within the last ten minutes.
    pub fn is_news(&mut self, reason: &str) -> bool {
        self.is_news_at(reason, Instant::now())
    }

    fn is_news_at(&mut self, reason: &str, now: Instant) -> bool {
        self.told.retain(|(_, at)| now.saturating_duration_since(*at) < TOLD_AGAIN);
        if self.told.iter().any(|(told, _)| told == reason) {
            return false;
        }
        if self.told.len() == REASONS {
            self.told.remove(0);
        }
        self.told.push((reason.to_owned(), now));
        true
    }

    /// It is over. Whether there was any.
    pub fn is_over(&mut self) -> bool {
        !std::mem::take(&mut self.told).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once_and_again_when_it_has_lasted() {
        let (mut trouble, began) = (Trouble::default(), Instant::now());
        for (seconds, reason, is_news) in [
            (0, "is away", true),
            (1, "is away", false),
            (2, "wants a password", true),
            (3, "is away", false),
            (4, "wants a password", false),
            (599, "is away", false),
            (601, "is away", true),
        ] {
            let now = began + Duration::from_secs(seconds);
            assert_eq!(trouble.is_news_at(reason, now), is_news, "{seconds} {reason}");
        }
        assert!(trouble.is_over() && !trouble.is_over());
        assert!(trouble.is_news_at("is away", began + Duration::from_secs(602)));
        let many = (0..100).filter(|reason| trouble.is_news_at(&reason.to_string(), began)).count();
        assert_eq!((many, trouble.told.len()), (100, REASONS));
    }
}
