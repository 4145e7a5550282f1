//! What a server has done, second by second: the figures that a console draws, kept in memory of a fixed size.
//!
//! [`History`] owns neither a clock nor a thread. The master records an [`Observation`] once a second and says what time it is
//! ([`Moment`]); status pages and commands read a [`Span`] of it. Three levels of resolution hold the same series; beside them
//! are totals of each day (UTC), and marks of what has changed the server.
//!
//! What nobody has looked at is a gap, and no zero. A count that goes back, since whoever has counted is gone, is no negative
//! rate. What arrives from elsewhere, a predecessor's history or a file, is checked and bounded when it is read.

mod day;
mod level;
mod observation;
mod sent;

#[cfg(test)]
mod tests;

pub use day::{Day, DayTotals, STATUSES_OF_A_DAY};
pub use observation::Observation;
pub use sent::{SentHistory, Unusable};

use day::Days;
use level::Level;
use std::collections::VecDeque;
use std::time::Duration;

/// Marks that are kept; the oldest go first.
const MARKS: usize = 512;
/// Characters of what a mark says.
const MARK_LENGTH: usize = 120;

/// Seconds of a slot and number of slots: ten minutes, six hours, fourteen days.
const LEVELS: [(u64, usize); 3] = [(1, 600), (10, 2160), (300, 4032)];

/// When something was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970 by the clock on the wall.
    pub wall: u64,
    /// By a clock that only goes forward, from any beginning.
    pub monotonic: Duration,
}

/// How far back, and how finely: the levels in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// The last ten minutes by seconds.
    Minutes,
    /// The last six hours by ten seconds.
    Hours,
    /// The last fourteen days by five minutes.
    Days,
}

/// Something that has changed the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Seconds since 1970.
    pub at: u64,
    /// Such as `revision 3`.
    pub what: String,
}

/// What was asked of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Seconds of a slot.
    pub resolution: u64,
    /// When the first slot begins, seconds since 1970.
    pub from: u64,
    /// When the last one ends.
    pub until: u64,
    /// What has happened meanwhile, the oldest first.
    pub marks: Vec<Mark>,
    /// Each series by its name: a value for each slot, the oldest first; `None` is a gap. All are of the same length.
    pub series: Vec<level::Series>,
}

impl Span {
    /// Of which nothing is known.
    pub fn empty(range: Range) -> Span {
        let (resolution, _) = LEVELS[range as usize];
        let series = level::names().map(|name| (name, Vec::new())).collect();
        Span { resolution, from: 0, until: 0, marks: Vec::new(), series }
    }
}

/// What a server has done. About 640 KiB once it has run for fourteen days.
#[derive(Debug)]
pub struct History {
    levels: [Level; 3],
    days: Days,
    marks: VecDeque<Mark>,
    /// What the next rise is counted from.
    last: Option<(Moment, Observation)>,
}

impl History {
    /// Of a server that begins at `now`, and has counted nothing yet.
    pub fn new(now: Moment) -> History {
        History {
            levels: LEVELS.map(|(resolution, slots)| Level::new(resolution, slots)),
            days: Days::default(),
            marks: VecDeque::new(),
            last: Some((now, Observation::default())),
        }
    }

    /// Of a server that has counted before anybody looked: the first observation is where it begins.
    pub fn of_one_that_runs(now: Moment) -> History {
        History { last: None, ..History::new(now) }
    }

    /// Takes in what was observed. Rates are of the time since the observation before.
    pub fn record(&mut self, now: Moment, observed: Observation) {
        let Some((last, before)) = &self.last else {
            self.last = Some((now, observed));
            return;
        };
        let elapsed = now.monotonic.saturating_sub(last.monotonic);
        if elapsed.is_zero() {
            return; // what it has more comes with the next
        }
        if now.wall < last.wall {
            self.marks.retain(|mark| mark.at <= now.wall); // the clock was set back
        }
        let rise = observed.since(before);
        for level in &mut self.levels {
            level.record(now.wall, elapsed, &rise, &observed);
        }
        self.days.add(now.wall.saturating_sub(1), &rise.totals());
        self.last = Some((now, observed));
    }

    /// Adds what was counted elsewhere between two moments, the clock on the wall: nobody knows how it was spread over them.
    pub fn spread(&mut self, from: u64, until: u64, before: &Observation, after: &Observation) {
        let rise = after.since(before);
        let (from, until) = (from.min(until.saturating_sub(1)), until);
        self.levels.iter_mut().for_each(|level| level.spread(from, until, &rise));
        self.days.add(until.saturating_sub(1), &rise.totals());
    }

    /// Notes what has changed the server.
    pub fn mark(&mut self, at: u64, what: &str) {
        let what = what.chars().filter(|letter| !letter.is_control()).take(MARK_LENGTH).collect();
        self.marks.push_back(Mark { at, what });
        self.bound_marks();
    }

    fn bound_marks(&mut self) {
        let more = self.marks.len().saturating_sub(MARKS);
        self.marks.drain(..more);
    }

    /// What is known of a range. It begins with the first slot of which anything is known.
    pub fn span(&self, range: Range) -> Span {
        let level = &self.levels[range as usize];
        let (from, until, series) = level.read();
        // That of this very second is in no slot yet.
        let marks = self.marks.iter().filter(|mark| mark.at >= from);
        Span { resolution: level.resolution(), from, until, marks: marks.cloned().collect(), series }
    }

    /// The totals of days, the oldest first.
    pub fn days(&self) -> impl ExactSizeIterator<Item = &Day> {
        self.days.iter()
    }

    /// Goes on with the history of a predecessor, which may have served at the same time.
    pub fn inherit(&mut self, predecessor: History) {
        for (own, theirs) in self.levels.iter_mut().zip(&predecessor.levels) {
            own.inherit(theirs);
        }
        self.days.merge(predecessor.days);
        let mut marks: Vec<Mark> = predecessor.marks.into_iter().chain(self.marks.drain(..)).collect();
        marks.sort_by_key(|mark| mark.at);
        self.marks = marks.into();
        self.bound_marks();
    }

    /// Adds totals of days that a server before has kept.
    pub fn inherit_days(&mut self, days: impl IntoIterator<Item = Day>) {
        self.days.merge(days.into_iter().collect());
    }

    /// Takes in totals of days that may tell of the same requests, from another place that they are kept in.
    pub fn reconcile_days(&mut self, days: impl IntoIterator<Item = Day>) {
        self.days.reconcile(days);
    }
}
