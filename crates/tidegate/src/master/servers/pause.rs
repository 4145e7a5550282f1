//! How long the next process of a place waits when one after the other has ended.

use std::time::Duration;

/// The pause before the third try of a series; it doubles with each.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// None after the first failure, then longer and longer.
pub(super) fn pause(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => PAUSE.saturating_mul(1 << (more - 2).min(10)).min(LONGEST_PAUSE),
    }
}

pub(super) fn ordinal(count: u32) -> String {
    let ending = match (count % 10, count % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{count}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_growing() {
        assert_eq!([0, 1, 2, 3, 4].map(|n| pause(n).as_millis()), [0, 0, 100, 200, 400]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
