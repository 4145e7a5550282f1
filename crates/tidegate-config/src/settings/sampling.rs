//! Which of the traces that begin at this server are sampled (`trace-context`).

use serde::{Deserialize, Serialize};

/// A share of all traces. Which ones those are depends on their ids alone, so that servers with the same share choose the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sampling {
    millionths: u32,
}

impl Sampling {
    /// All of them.
    const WHOLE: u32 = 1_000_000;

    /// Of so many in a million; more than all is all.
    pub fn of_millionths(millionths: u64) -> Sampling {
        Sampling { millionths: u32::try_from(millionths).unwrap_or(u32::MAX).min(Sampling::WHOLE) }
    }

    /// Whether a trace is sampled, by the last seven bytes of its id, which are random.
    pub fn takes(self, trace_id: &[u8; 16]) -> bool {
        let random = trace_id.iter().skip(9).fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte));
        u128::from(random) * u128::from(Sampling::WHOLE) < u128::from(self.millionths) << 56
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_taken_by_the_end_of_the_id() {
        let id = |end: u8| {
            let mut id = [0xff; 16];
            (id[9], id[10]) = (end, 0);
            id
        };
        for (millionths, end, is_taken) in [
            (0, 0, false),
            (1, 0, false),
            (1_000_000, 0xff, true),
            (9_000_000_000_000, 0xff, true),
            (500_000, 0x7f, true),
            (500_000, 0x80, false),
            (250_000, 0x3f, true),
            (250_000, 0x40, false),
        ] {
            assert_eq!(Sampling::of_millionths(millionths).takes(&id(end)), is_taken, "{millionths} {end:x}");
        }
        assert!(!Sampling::of_millionths(0).takes(&[0; 16]) && Sampling::of_millionths(1).takes(&[0; 16]));
    }
}
