//! How long parts of a server have kept requests waiting, as a worker has seen it: applications and the members of their groups,
//! stores of responses, limits with a queue. Names are those of the settings; nothing that a client sends makes one.
//!
//! A worker asks for the times of a part once ([`TimesTable::of`]) and counts without a lock; whoever reports adds up what all
//! workers say ([`add_times`]).

use crate::histogram::{Distribution, Elapsed, Histogram};
use crate::series::Phase;
use crate::table::{Metric, Reading};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Parts that are timed apart, by a worker and in a report. What is used no more makes room.
const MOST: usize = 256;

/// What keeps requests waiting, by its name in the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timed {
    /// A pool or a group by its name, or an address.
    Application(String),
    /// A member of a group, as it is written, and the name of the group.
    Member {
        /// The group.
        of: String,
        /// See there.
        member: String,
    },
    /// A store of responses.
    Cache(String),
    /// A limit.
    Limit(String),
}

/// What a worker has timed of a part. Only its thread writes.
#[derive(Debug)]
pub struct PartTimes {
    what: Timed,
    queue: Lazy,
    connect: Lazy,
    response: Lazy,
}

/// A histogram that takes memory once something is timed.
#[derive(Debug, Default)]
struct Lazy(OnceLock<Box<Histogram>>);

/// The times of all parts that a worker has timed.
#[derive(Debug, Default)]
pub struct TimesTable(Mutex<Vec<Arc<PartTimes>>>);

/// What was timed of a part, by one worker or by many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimesFigures {
    /// The part.
    pub what: Timed,
    /// How long requests waited for their turn, where they had to: for a place on an application, for one within a limit, for
    /// what somebody else fetches into a store.
    #[serde(default)]
    pub queue: Distribution,
    /// How long new connections took.
    #[serde(default)]
    pub connect: Distribution,
    /// From the first byte sent to an application to the head of its answer; of a store, how long it took to have one fetched.
    #[serde(default)]
    pub response: Distribution,
}

impl Lazy {
    #[inline]
    fn record(&self, elapsed: Elapsed) {
        self.0.get_or_init(Box::default).record_elapsed(elapsed);
    }

    fn read(&self) -> Distribution {
        self.0.get().map(|histogram| histogram.read()).unwrap_or_default()
    }
}

impl PartTimes {
    /// Counts how long a phase of a request took. The first byte is nothing of a part's.
    #[inline]
    pub fn took(&self, phase: Phase, elapsed: Elapsed) {
        match phase {
            Phase::Queue => self.queue.record(elapsed),
            Phase::Connect => self.connect.record(elapsed),
            Phase::Application => self.response.record(elapsed),
            Phase::FirstByte => {}
        }
    }
}

impl TimesTable {
    /// The times of a part: those that it had before, where it is known. `None`: too many others are in use.
    pub fn of(&self, what: Timed) -> Option<Arc<PartTimes>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = known.iter().find(|times| times.what == what) {
            return Some(times.clone());
        }
        if known.len() >= MOST {
            let unused = known.iter().position(|times| Arc::strong_count(times) == 1)?;
            known.remove(unused);
        }
        let [queue, connect, response] = Default::default();
        let times = Arc::new(PartTimes { what, queue, connect, response });
        known.push(times.clone());
        Some(times)
    }

    /// What was timed of each so far. Stores and limits that nobody holds are those of earlier settings, and are not told of.
    pub fn figures(&self) -> Vec<TimesFigures> {
        let is_told = |times: &&Arc<PartTimes>| {
            !matches!(times.what, Timed::Cache(_) | Timed::Limit(_)) || Arc::strong_count(times) > 1
        };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<_> = known.iter().filter(is_told).cloned().collect();
        let figures = |times: &Arc<PartTimes>| TimesFigures {
            what: times.what.clone(),
            queue: times.queue.read(),
            connect: times.connect.read(),
            response: times.response.read(),
        };
        known.iter().map(figures).collect()
    }
}

/// Adds what others have timed, part by part. Beyond a number of them, those that are new are left out.
pub fn add_times(sum: &mut Vec<TimesFigures>, more: &[TimesFigures]) {
    for of in more {
        match sum.iter().position(|known| known.what == of.what) {
            Some(at) => {
                sum[at].queue.merge(&of.queue);
                sum[at].connect.merge(&of.connect);
                sum[at].response.merge(&of.response);
            }
            None if sum.len() < MOST => sum.push(of.clone()),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(name: &str) -> Timed {
        Timed::Application(name.into())
    }

    fn counts(figures: &TimesFigures) -> (Timed, u64, u64, u64) {
        let TimesFigures { what, queue, connect, response } = figures;
        (what.clone(), queue.count(), connect.count(), response.count())
    }

    #[test]
    fn parts_are_told_apart_and_workers_add_up() {
        let table = TimesTable::default();
        let elapsed = Elapsed::nanos(1_000_000);
        let member = Timed::Member { of: "app".into(), member: "10.0.0.1:3000".into() };
        table.of(application("app")).unwrap().took(Phase::Application, elapsed);
        table.of(member.clone()).unwrap().took(Phase::Connect, elapsed);
        table.of(application("app")).unwrap().took(Phase::Queue, elapsed);
        let cache = table.of(Timed::Cache("app".into())).unwrap();
        cache.took(Phase::Queue, elapsed);
        let told = table.figures();
        let expected =
            [(application("app"), 1, 0, 1), (member, 0, 1, 0), (Timed::Cache("app".into()), 1, 0, 0)];
        assert_eq!(told.iter().map(counts).collect::<Vec<_>>(), expected);
        let mut sum = told.clone();
        add_times(&mut sum, &told);
        assert_eq!(counts(&sum[0]), (application("app"), 2, 0, 2));
        drop(cache);
        assert_eq!(table.figures().len(), 2, "a store of earlier settings");
    }

    #[test]
    fn those_of_earlier_settings_make_room_and_those_in_use_do_not() {
        let table = TimesTable::default();
        let of = |number: usize| table.of(application(&number.to_string()));
        let held: Vec<_> = (0..MOST).map(|number| of(number).unwrap()).collect();
        assert!(of(MOST).is_none());
        drop(held);
        assert!(of(MOST).is_some());
        assert_eq!(table.figures().len(), MOST);
    }
}
