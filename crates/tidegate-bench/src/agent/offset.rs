//! How far the monotonic clocks of two machines lie apart, by round trips: the shortest of them bounds the error by its half
//! (Cristian, 1989). Pure.

use std::collections::VecDeque;
use std::time::Duration;

/// Round trips that are looked back at while a run goes on.
const KEPT: usize = 20;

/// One round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trip {
    /// Nanoseconds.
    round: u64,
    /// Their clock less ours, nanoseconds.
    offset: i128,
}

/// What is known of another clock.
#[derive(Debug, Clone, Default)]
pub struct Offset {
    trips: VecDeque<Trip>,
    /// What the start was reckoned with.
    fixed: Option<Trip>,
}

impl Offset {
    /// Takes in a round trip: sent and answered by our clock, received by theirs. Nanoseconds.
    pub fn add(&mut self, sent: u64, received: u64, answered: u64) {
        let round = answered.saturating_sub(sent);
        let middle = i128::from(sent) + i128::from(round / 2);
        if self.trips.len() == KEPT {
            self.trips.pop_front();
        }
        self.trips.push_back(Trip { round, offset: i128::from(received) - middle });
    }

    fn best(&self) -> Option<Trip> {
        self.trips.iter().min_by_key(|trip| trip.round).copied()
    }

    /// The longest round trip of those that are kept.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.trips.iter().map(|trip| trip.round).max().unwrap_or(0))
    }

    /// The time of their clock when ours says `at`; later measurements are compared with this one. Nothing is known before the
    /// first round trip.
    pub fn fix(&mut self, at: u64) -> Option<u64> {
        let trip = self.best()?;
        self.trips.clear();
        self.fixed = Some(trip);
        u64::try_from(i128::from(at) + trip.offset).ok()
    }

    /// The shortest round trip that the start was reckoned with.
    pub fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.fixed.map_or(0, |trip| trip.round))
    }

    /// How far the intervals of the two may be shifted: by the error of the first measurement, or by how far the clocks have
    /// since drifted, whichever is more.
    pub fn skew(&self) -> Duration {
        let Some(fixed) = self.fixed else { return Duration::ZERO };
        let drift = self.best().map_or(0, |trip| {
            // What both measurements may be wrong by is no drift.
            let error = u128::from(trip.round / 2) + u128::from(fixed.round / 2);
            trip.offset.abs_diff(fixed.offset).saturating_sub(error)
        });
        let drift = u64::try_from(drift).unwrap_or(u64::MAX);
        Duration::from_nanos(drift.max(fixed.round / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_shortest_round_trip_decides() {
        type Row = (&'static str, &'static [(u64, u64, u64)], Option<u64>, u64);
        let table: [Row; 4] = [
            // Sent, received, answered (ms); their clock when ours is 1,000 ms; the error (ms).
            ("ahead", &[(100, 5_101, 102)], Some(6_000), 1),
            ("behind", &[(5_000, 201, 5_002)], None, 1),
            (
                "one way is slow in most",
                &[(10, 1_050, 60), (70, 1_072, 74), (80, 1_095, 100)],
                Some(2_000),
                2,
            ),
            ("no time passes", &[(7, 7, 7)], Some(1_000), 0),
        ];
        for (name, trips, expected, error) in table {
            let mut offset = Offset::default();
            for (sent, received, answered) in trips {
                offset.add(sent * MS, received * MS, answered * MS);
            }
            let told = offset.fix(1_000 * MS);
            assert_eq!(told, expected.map(|ms| ms * MS), "{name}");
            assert_eq!(offset.skew(), Duration::from_millis(error), "{name}");
        }
        assert_eq!(Offset::default().fix(5), None);
    }

    #[test]
    fn drift_is_what_measurements_cannot_explain() {
        let mut offset = Offset::default();
        offset.add(0, 1_000 * MS, 0);
        offset.fix(0);
        assert_eq!(offset.skew(), Duration::ZERO);
        // 100 ms of a round trip explain 50 of them.
        offset.add(10_000 * MS, 11_100 * MS, 10_100 * MS);
        assert_eq!(offset.skew(), Duration::ZERO);
        offset.add(20_000 * MS, 21_060 * MS, 20_000 * MS);
        assert_eq!(offset.skew(), Duration::from_millis(60));
        // What a broken peer says is a number as well.
        for (sent, received, answered) in [(u64::MAX, 0, 0), (0, u64::MAX, u64::MAX), (0, 0, u64::MAX)] {
            offset.add(sent, received, answered);
            offset.skew();
        }
    }
}
