//! How long each application has kept requests waiting, as a worker has seen it: a pool, a group, or an address, and each member
//! of a group. Names are those of the settings; nothing that a client sends makes one.
//!
//! A worker asks for the times of an application once ([`ApplicationTable::of`]) and counts without a lock; whoever reports adds up
//! what all workers say ([`add_applications`]).

use crate::histogram::{Distribution, Elapsed, Histogram};
use crate::series::Phase;
use crate::table::{Metric, Reading};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// Applications and members that are timed apart, by a worker and in a report. What is used no more makes room.
const MOST: usize = 256;

/// What a worker has timed of an application. Only its thread writes.
#[derive(Debug, Default)]
pub struct ApplicationTimes {
    application: String,
    member: String,
    queue: Histogram,
    connect: Histogram,
    response: Histogram,
}

/// The times of all applications that a worker has asked.
#[derive(Debug, Default)]
pub struct ApplicationTable(Mutex<Vec<Arc<ApplicationTimes>>>);

/// What was timed of an application, by one worker or by many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApplicationFigures {
    /// A pool or a group by its name, or an address.
    pub application: String,
    /// Of a group the member, as it is written; empty for all of it.
    pub member: String,
    /// How long requests waited for a place, where they had to.
    pub queue: Distribution,
    /// How long new connections took.
    pub connect: Distribution,
    /// From the first byte sent to the head of the answer.
    pub response: Distribution,
}

impl ApplicationTimes {
    /// Counts how long a phase of a request took. The first byte is nothing of the application's.
    #[inline]
    pub fn took(&self, phase: Phase, elapsed: Elapsed) {
        match phase {
            Phase::Queue => self.queue.record_elapsed(elapsed),
            Phase::Connect => self.connect.record_elapsed(elapsed),
            Phase::Application => self.response.record_elapsed(elapsed),
            Phase::FirstByte => {}
        }
    }
}

impl ApplicationTable {
    /// The times of an application, or of its member where one is named: those that it had before, where it is known. `None`:
    /// too many others are in use.
    pub fn of(&self, application: &str, member: &str) -> Option<Arc<ApplicationTimes>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) =
            known.iter().find(|times| times.application == application && times.member == member)
        {
            return Some(times.clone());
        }
        if known.len() >= MOST {
            let unused = known.iter().position(|times| Arc::strong_count(times) == 1)?;
            known.remove(unused);
        }
        let (application, member) = (application.to_owned(), member.to_owned());
        let times = Arc::new(ApplicationTimes { application, member, ..ApplicationTimes::default() });
        known.push(times.clone());
        Some(times)
    }

    /// What was timed of each so far.
    pub fn figures(&self) -> Vec<ApplicationFigures> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let figures = |times: &Arc<ApplicationTimes>| ApplicationFigures {
            application: times.application.clone(),
            member: times.member.clone(),
            queue: times.queue.read(),
            connect: times.connect.read(),
            response: times.response.read(),
        };
        known.iter().map(figures).collect()
    }
}

/// Adds what others have timed, by application and member. Beyond a number of them, those that are new are left out.
pub fn add_applications(sum: &mut Vec<ApplicationFigures>, more: &[ApplicationFigures]) {
    for of in more {
        let is_same =
            |known: &ApplicationFigures| known.application == of.application && known.member == of.member;
        match sum.iter().position(is_same) {
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

    fn counts(figures: &ApplicationFigures) -> (&str, &str, u64, u64, u64) {
        let ApplicationFigures { application, member, queue, connect, response } = figures;
        (application, member, queue.count(), connect.count(), response.count())
    }

    #[test]
    fn members_are_told_apart_and_workers_add_up() {
        let table = ApplicationTable::default();
        let elapsed = Elapsed::nanos(1_000_000);
        table.of("app", "").unwrap().took(Phase::Application, elapsed);
        table.of("app", "10.0.0.1:3000").unwrap().took(Phase::Connect, elapsed);
        table.of("app", "").unwrap().took(Phase::Queue, elapsed);
        let told = table.figures();
        let expected = [("app", "", 1, 0, 1), ("app", "10.0.0.1:3000", 0, 1, 0)];
        assert_eq!(told.iter().map(counts).collect::<Vec<_>>(), expected);
        let mut sum = told.clone();
        add_applications(&mut sum, &told);
        assert_eq!(counts(&sum[0]), ("app", "", 2, 0, 2));
    }

    #[test]
    fn those_of_earlier_settings_make_room_and_those_in_use_do_not() {
        let table = ApplicationTable::default();
        let held: Vec<_> = (0..MOST).map(|number| table.of(&number.to_string(), "").unwrap()).collect();
        assert!(table.of("one more", "").is_none());
        drop(held);
        assert!(table.of("one more", "").is_some());
        assert_eq!(table.figures().len(), MOST);
    }
}
