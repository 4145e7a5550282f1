//! What a peer does too much of (FAULTS 17 to 21): one leaky bucket for each kind.
//!
//! A bucket holds what an honest client may do at once, and empties with time and with honest work, so that
//! a client that is busy may also be busy with frames of this kind. Nothing here depends on a clock: the
//! caller says which second it is.

use super::error::Flood;

/// What is too much at once; and how much of it a second makes good.
const BUCKETS: [(u16, u16); Flood::COUNT] = [
    (200, 20),   // Reset
    (100, 10),   // ProvokedReset
    (0, 0),      // Continuation: a limit for each block
    (20, 1),     // FieldSection
    (100, 10),   // Ping
    (50, 5),     // Settings
    (100, 10),   // EmptyData
    (500, 50),   // Priority
    (2000, 500), // WindowUpdate
    (500, 50),   // Ignored
];

/// The buckets of one connection.
#[derive(Debug, Default)]
pub(super) struct Floods {
    second: u32,
    levels: [u16; Flood::COUNT],
}

impl Floods {
    /// Takes note of the present second.
    #[inline]
    pub(super) fn tick(&mut self, second: u32) {
        if second == self.second {
            return;
        }
        let passed = u16::try_from(second.saturating_sub(self.second)).unwrap_or(u16::MAX);
        self.second = second;
        for (level, (_, each_second)) in self.levels.iter_mut().zip(BUCKETS) {
            *level = level.saturating_sub(passed.saturating_mul(each_second));
        }
    }

    /// Counts; whether it is too much.
    #[inline]
    pub(super) fn add(&mut self, kind: Flood, count: u16) -> Result<(), Flood> {
        let (Some(level), Some((most, _))) = (self.levels.get_mut(kind as usize), BUCKETS.get(kind as usize))
        else {
            return Ok(());
        };
        *level = level.saturating_add(count);
        if *level > *most { Err(kind) } else { Ok(()) }
    }

    /// Honest work of the peer makes up for some of it.
    #[inline]
    pub(super) fn forgive(&mut self, kind: Flood, count: u16) {
        if let Some(level) = self.levels.get_mut(kind as usize) {
            *level = level.saturating_sub(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_runs_over_and_empties() {
        let mut floods = Floods::default();
        floods.tick(7);
        for _ in 0..100 {
            floods.add(Flood::Ping, 1).unwrap();
        }
        assert_eq!(floods.add(Flood::Ping, 1), Err(Flood::Ping));
        assert_eq!(floods.add(Flood::Reset, 1), Ok(()));
        floods.tick(8);
        for _ in 0..9 {
            floods.add(Flood::Ping, 1).unwrap();
        }
        assert_eq!(floods.add(Flood::Ping, 1), Err(Flood::Ping));
        floods.forgive(Flood::Ping, 2);
        assert_eq!(floods.add(Flood::Ping, 1), Ok(()));
        floods.tick(u32::MAX);
        assert_eq!(floods.add(Flood::Ping, 100), Ok(()));
        floods.tick(0); // a clock that ran backwards forgives nothing
        assert_eq!(floods.add(Flood::Ping, 1), Err(Flood::Ping));
    }
}
