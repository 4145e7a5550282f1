//! Messages that repeat: a disk that fails would write a line for every request.
//!
//! `error` asks for each message, by the place in the source that it comes from. A place may speak ten times
//! a second; what it says beyond that is counted, and the count is said with its last message when the second
//! is over. The clock is the caller's.

use super::Level;
use std::panic::Location;
use std::time::Duration;

/// Messages of one place in one second.
const MOST: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// What every place has said of late.
#[derive(Debug, Default)]
pub(super) struct Thinning {
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    location: &'static Location<'static>,
    level: Level,
    /// When its second began, monotonic nanoseconds.
    since: u64,
    said: u32,
    left_out: u64,
    last: String,
}

/// A message that was left out several times.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Of the message.
    pub(super) level: Level,
    /// How often.
    pub(super) count: u64,
    /// The last one of its kind that was written.
    pub(super) like: String,
}

impl Thinning {
    /// Const, for a static.
    pub(super) const fn new() -> Thinning {
        Thinning { places: Vec::new() }
    }

    /// Whether a message may be written; otherwise it is counted. `message` is asked for only if it may.
    pub(super) fn admit(
        &mut self,
        location: &'static Location<'static>,
        level: Level,
        now: u64,
        message: impl FnOnce() -> String,
    ) -> Option<String> {
        let index = self.places.iter().position(|place| place.location == location).unwrap_or_else(|| {
            let last = String::new();
            self.places.push(Place { location, level, since: now, said: 0, left_out: 0, last });
            self.places.len() - 1
        });
        let place = &mut self.places[index];
        // While some are left out, `take` ends the second: their count is said before the next message.
        if place.is_over(now) && place.left_out == 0 {
            (place.since, place.said) = (now, 0);
        }
        if place.said >= MOST {
            place.left_out += 1;
            return None;
        }
        place.said += 1;
        place.last = message();
        Some(place.last.clone())
    }

    /// What was left out in the seconds that are over; the places may speak again.
    pub(super) fn take(&mut self, now: u64) -> Vec<LeftOut> {
        let over = self.places.iter_mut().filter(|place| place.left_out > 0 && place.is_over(now));
        over.map(|place| {
            (place.since, place.said) = (now, 0);
            LeftOut {
                level: place.level,
                count: std::mem::take(&mut place.left_out),
                like: std::mem::take(&mut place.last),
            }
        })
        .collect()
    }

    /// Whether anything has been left out and not been said.
    pub(super) fn leaves_out(&self) -> bool {
        self.places.iter().any(|place| place.left_out > 0)
    }
}

impl Place {
    fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.since) >= SECOND.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn a_place_speaks_ten_times_a_second_and_the_rest_is_counted() {
        let (here, there) = (Location::caller(), elsewhere());
        let mut thinning = Thinning::default();
        let mut now = 5 * SECOND.as_nanos() as u64;
        let mut written = 0;
        for number in 0..500 {
            let said = thinning.admit(here, Level::Error, now, || format!("message {number}"));
            written += u32::from(said.is_some());
            now += MILLISECOND;
        }
        assert_eq!(written, MOST);
        assert_eq!(thinning.admit(there, Level::Warn, now, || "other".into()).as_deref(), Some("other"));
        assert!(thinning.leaves_out());
        assert_eq!(thinning.take(now), []);
        now += 500 * MILLISECOND;
        let left_out = LeftOut { level: Level::Error, count: 490, like: "message 9".into() };
        assert_eq!(thinning.take(now), [left_out]);
        assert!(!thinning.leaves_out());
        assert!(thinning.admit(here, Level::Error, now, String::new).is_some());
    }

    #[test]
    fn what_is_rare_is_never_left_out() {
        let mut thinning = Thinning::default();
        for number in 0..100 {
            let now = number * 150 * MILLISECOND;
            assert!(thinning.admit(Location::caller(), Level::Warn, now, String::new).is_some(), "{number}");
        }
        assert_eq!(thinning.take(u64::MAX), []);
    }

    #[track_caller]
    fn elsewhere() -> &'static Location<'static> {
        Location::caller()
    }
}
