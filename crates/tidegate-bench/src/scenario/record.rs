//! What a run of a scenario gives, by operation and second, before anything is concluded from it.
//!
//! Times are those of `crate::record`: histograms of one layout that add up exactly over workers and seconds. Measured is
//! what is due in the steady time, whenever it ends.

use crate::quantity::show_duration;
use crate::record::{Failure, Pairs, Times};
use crate::run::{Ending, Interval};
use crate::scenario::Load;
use crate::verdict::REACHED;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// An operation in one second, or over the whole of a run; all sums.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Ended, well or not.
    pub ended: u64,
    /// Ended well.
    pub succeeded: u64,
    /// From the intended start to the end, of all that asked for something, well or not: to the last byte of the last step, or to the moment that
    /// it failed or was given up. Nanoseconds and counts.
    pub response: Pairs,
    /// The same of those alone that ended well.
    pub expected: Pairs,
    /// Starts whose next start of the same user is known.
    pub cycles: u64,
    /// The sum of their cycle times by the clock, nanoseconds.
    pub cycle_due: u64,
    /// The same as they came out.
    pub cycle_achieved: u64,
    /// For each `count` of its steps, in their order: right answers, and elements in all of them.
    pub counts: Vec<(u64, u64)>,
    /// Answers of steps that say how fast they have to come.
    pub paced: u64,
    /// Of those, the ones that were right and came as fast.
    pub conforming: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Tally) {
        self.ended += other.ended;
        self.succeeded += other.succeeded;
        self.response.extend(&other.response);
        self.expected.extend(&other.expected);
        self.cycles += other.cycles;
        self.cycle_due = self.cycle_due.saturating_add(other.cycle_due);
        self.cycle_achieved = self.cycle_achieved.saturating_add(other.cycle_achieved);
        for (place, (answers, elements)) in other.counts.iter().enumerate() {
            self.count(place, *answers, *elements);
        }
        self.paced += other.paced;
        self.conforming += other.conforming;
    }

    /// The share of answers that came as fast as they had to, 0 to 1, where there was one.
    pub fn conforming_share(&self) -> Option<f64> {
        (self.paced > 0).then(|| self.conforming as f64 / self.paced as f64)
    }

    /// Adds to what the `count` at a place has found.
    pub(crate) fn count(&mut self, place: usize, answers: u64, elements: u64) {
        if self.counts.len() <= place {
            self.counts.resize(place + 1, (0, 0));
        }
        if let Some(sum) = self.counts.get_mut(place) {
            *sum = (sum.0.saturating_add(answers), sum.1.saturating_add(elements));
        }
    }

    /// The mean of the `count` at a place, where there was an answer.
    pub fn mean_count(&self, place: usize) -> Option<f64> {
        let (answers, elements) = self.counts.get(place).copied().unwrap_or_default();
        (answers > 0).then(|| elements as f64 / answers as f64)
    }

    /// The same for people: not rounded up to what it has not reached.
    pub fn conforming_shown(&self) -> String {
        let share = self.conforming_share().unwrap_or(0.0);
        format!("{:.2} %", (share * 1e4 + 1e-9).floor() / 1e2)
    }

    /// Those that did not end well.
    pub fn failed(&self) -> u64 {
        self.ended - self.succeeded.min(self.ended)
    }

    /// The response times of all that asked for something.
    pub fn times(&self) -> Times {
        let mut times = Times::default();
        times.add(&self.response);
        times
    }

    /// The response times of those that ended well.
    pub fn expected_times(&self) -> Times {
        let mut times = Times::default();
        times.add(&self.expected);
        times
    }

    /// What a percentile has to be within a target: that of all, or of those that ended well where that is longer. Neither failures that
    /// come fast nor operations that are given up make a server fast. `None`: none has ended well.
    pub fn judged(&self, rank: f64) -> Option<Duration> {
        let (all, expected) = (self.times(), self.expected_times());
        (expected.count() > 0).then(|| all.percentile(rank).max(expected.percentile(rank)))
    }
}

/// Visits of an open load, in a second or over the whole of a run; all sums. What is not said to be of all is of those that were due
/// in the steady time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Arrived {
    /// By the schedule.
    pub due: u64,
    /// Of those, the ones that have begun.
    pub begun: u64,
    /// Of those that have begun, the ones that had to wait for another visit to end.
    pub waited: u64,
    /// Of those that have not begun, the ones that the generator came to when the run was over.
    pub too_late: u64,
    /// Of all: due by the schedule, in the steady time or not.
    pub all_due: u64,
    /// Of all: begun.
    pub all_begun: u64,
}

impl Arrived {
    /// Adds another.
    pub fn add(&mut self, other: &Arrived) {
        self.due += other.due;
        self.begun += other.begun;
        self.waited += other.waited;
        self.too_late += other.too_late;
        self.all_due += other.all_due;
        self.all_begun += other.all_begun;
    }
}

/// Operations that ended well while the steady time lasted, due in it or before; sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Throughput {
    /// In all of it.
    pub whole: u64,
    /// In its second half.
    pub second_half: u64,
}

impl Throughput {
    /// Adds another.
    pub fn add(&mut self, other: Throughput) {
        self.whole += other.whole;
        self.second_half += other.second_half;
    }
}

/// One second of a run, all workers together.
#[derive(Debug, Clone, Default)]
pub struct Second {
    /// The requests of what is measured.
    pub requests: Interval,
    /// The operations of what is measured, in the order of the scenario.
    pub operations: Vec<Tally>,
    /// Operations that ended and are not measured.
    pub others: u64,
    /// Of those, the ones that failed.
    pub others_failed: u64,
    /// Users at its end.
    pub users: u32,
    /// Visits of what is measured.
    pub visits: Arrived,
    /// What the server did in the steady time.
    pub throughput: Throughput,
}

/// An operation that failed, kept for the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedOperation {
    /// Seconds from the start of the run.
    pub at: f64,
    /// Of the scenario.
    pub operation: String,
    /// The number of the user.
    pub user: u32,
    /// Method and path of the request that failed it.
    pub request: String,
    /// What happened.
    pub failure: Failure,
    /// In words: what was expected and what came.
    pub reason: String,
    /// The beginning of the answer, escaped, where there was one.
    pub answer: Option<String>,
}

/// So many failed operations are kept of each operation, the first of the run.
pub const FAILED_KEPT: usize = 3;

/// A machine that made a part of the load.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Its number, its name and where it is.
    pub title: String,
    /// The first of its workers, among those of all agents.
    pub first_worker: u32,
    /// So many it has.
    pub threads: u32,
    /// Operations of the steady time that ended.
    pub operations: u64,
    /// The shortest round trip to it before the start.
    pub round_trip: Duration,
    /// How late its starts were behind the users' clocks.
    pub lateness: Times,
    /// Requests that failed for want of its descriptors or ports.
    pub starved: u64,
    /// What its machine was like, where it has told.
    pub host: Option<AgentHost>,
}

/// The machine of an agent during a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AgentHost {
    /// Busy share of all processors, 0 to 1.
    pub busy: f64,
    /// The longest run queue.
    pub run_queue: u64,
    /// TCP segments sent again.
    pub retransmits: u64,
}

/// In one line.
impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads =
            if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        let (trip, late) = (show_duration(self.round_trip), show_duration(self.lateness.percentile(99.0)));
        let (title, operations) = (&self.title, self.operations);
        write!(f, "{title}: {threads}, {operations} operations, round trip {trip}, late by {late} at p99")?;
        if let Some(AgentHost { busy, run_queue, retransmits }) = self.host {
            let busy = busy * 100.0;
            write!(
                f,
                "; processors {busy:.0} % busy, run queue {run_queue}, {retransmits} segments sent again"
            )?;
        }
        Ok(())
    }
}

/// With fewer operations nobody can tell whether a rate was reached.
const LEAST_TELLING: f64 = 100.0;

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Wall-clock seconds since 1970 of the start.
    pub started: f64,
    /// In order, from the start of the run.
    pub seconds: Vec<Second>,
    /// The first that failed, in order.
    pub failed: Vec<FailedOperation>,
    /// How it ended.
    pub ending: Ending,
    /// Faults of the generator itself.
    pub faults: Vec<String>,
    /// Operations that were due in the steady time and never began: by a cycle time all that a user was behind with at its end, by a think
    /// time one of a user at most.
    pub unsent: u64,
    /// The steady time, which all rates are of, seconds: that of the scenario; of a run that ended before its time as much of it as there was.
    pub measured: f64,
    /// The most bytes that this process held resident.
    pub memory: u64,
    /// Workers.
    pub threads: u32,
    /// Version, cipher suite and key exchange, where TLS was spoken.
    pub tls: Option<String>,
    /// The machines that made the load; empty where it was this process.
    pub agents: Vec<Agent>,
    /// What is worth knowing of how the load was made.
    pub notes: Vec<String>,
    /// A fault has ended it before its time: it has not the mix of the whole.
    pub is_cut_short: bool,
}

impl Outcome {
    /// Each operation over the steady time.
    pub fn operations(&self, count: usize) -> Vec<Tally> {
        let mut all = vec![Tally::default(); count];
        for second in &self.seconds {
            for (whole, part) in all.iter_mut().zip(&second.operations) {
                whole.add(part);
            }
        }
        all
    }

    /// All visits of the steady time.
    pub fn visits(&self) -> Arrived {
        let mut all = Arrived::default();
        self.seconds.iter().for_each(|second| all.add(&second.visits));
        all
    }

    /// Operations that were due in the steady time and ended well.
    fn succeeded(&self) -> u64 {
        self.seconds.iter().flat_map(|second| &second.operations).map(|tally| tally.succeeded).sum()
    }

    fn throughput(&self) -> Throughput {
        let mut all = Throughput::default();
        self.seconds.iter().for_each(|second| all.add(second.throughput));
        all
    }

    /// Whether the server fell behind users that come at a rate: of what was due and ended well it did fewer than 95 % within the steady
    /// time, in all of it and in its second half, which one that takes long for each and keeps up has all answers in.
    pub fn has_fallen_behind(&self, load: &Load) -> bool {
        let (due, done) = (self.succeeded() as f64, self.throughput());
        let is_whole = self.ending == Ending::Done && !self.is_cut_short;
        let is_telling = load.is_open() && is_whole && due >= LEAST_TELLING;
        is_telling && (done.whole as f64) < due * REACHED && (done.second_half as f64) < due / 2.0 * REACHED
    }

    /// The time that rates of answers are of, seconds: that which the server needed for what is measured, at the pace of the steady time.
    /// It is the steady time itself where users come at a rate and the server keeps up.
    pub fn rate_time(&self, load: &Load) -> f64 {
        let (due, done) = (self.succeeded() as f64, self.throughput().whole as f64);
        let is_schedule = load.is_open() && !self.has_fallen_behind(load);
        if is_schedule || due <= 0.0 || done <= 0.0 { self.measured } else { self.measured * due / done }
    }

    /// The measured requests as an outcome of part one: counts and times, processors of the generator.
    pub fn requests(&self) -> crate::run::Outcome {
        crate::run::Outcome {
            started: self.started,
            interval: 1_000_000_000,
            intervals: self.seconds.iter().map(|second| second.requests.clone()).collect(),
            warmup_requests: 0,
            elapsed: (self.measured * 1e9) as u64,
            last_end: (self.measured * 1e9) as u64,
            schedule: None,
            ending: self.ending,
            digests: Default::default(),
            failed: Vec::new(),
            faults: self.faults.clone(),
            processes: 1,
            threads: self.threads,
            memory: self.memory,
            tls: self.tls.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::load_text;
    use crate::scenario::report::Report;
    use crate::scenario::{Gathering, SecondOfWorker, observe_nothing};
    use std::collections::BTreeMap;
    use std::path::Path;

    const SECOND: u64 = 1_000_000_000;

    /// Operations that end in each, those that are measured and others.
    type Seconds = Vec<(u64, u64)>;

    /// What is said of a load by a server whose operations end in these seconds, those that are measured and others; of the former,
    /// so many had failed at the end.
    fn report(load: &str, ended: &[(u64, u64)], failed: u64) -> Report {
        let text = format!("target \"http://127.0.0.1:1\"\n{load}\nflow {{ get \"/\" }}");
        let loaded = load_text("test", &text, Path::new("."), &BTreeMap::new());
        let scenario = loaded.scenario.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let (up, steady) = (scenario.phases.ramp_up.as_secs(), scenario.phases.steady.as_secs());
        let mut gathering = Gathering::new(&scenario, 1, 0.0, observe_nothing);
        for (second, (measured, others)) in (0..).zip(ended) {
            let mut part = SecondOfWorker { others: *others, ..SecondOfWorker::default() };
            (part.requests.interval, part.requests.length) = (second, SECOND);
            let failed = if second as usize + 1 == ended.len() { failed } else { 0 };
            part.operations =
                vec![Tally { ended: measured + failed, succeeded: *measured, ..Tally::default() }];
            let second = u64::from(second);
            if (up..up + steady).contains(&second) {
                part.throughput.whole = measured + others;
                let is_late = second - up >= steady / 2;
                part.throughput.second_half = if is_late { measured + others } else { 0 };
            }
            gathering.take(crate::scenario::Message::Second(Box::new(part)));
        }
        Report::new(scenario.clone(), gathering.finish(&scenario, false, false))
    }

    /// A server that does 100 a second, whatever it is asked for.
    #[test]
    fn rates_are_those_of_the_server() {
        let visits = "rate \"200/s\" arrivals=constant most-users=1000 { steady \"4s\" }";
        let ramp = "users 50 { ramp-up \"1s\"; steady \"4s\" }\nthink fixed \"1ms\"";
        let all = |count| vec![(100, 0); count];
        let table: [(&str, Seconds, u64, f64); 5] = [
            (visits, all(8), 0, 100.0),
            // With a grace of one second.
            (visits, all(5), 300, 100.0),
            // Fifty are under way at the end, and are answered within half a second.
            ("users 50 { steady \"4s\" }\nthink fixed \"1ms\"", [all(4), vec![(50, 0)]].concat(), 0, 100.0),
            (ramp, [vec![(0, 100), (50, 50)], all(3), vec![(50, 0)]].concat(), 0, 100.0),
            // It keeps up, and takes half a second for each: the rate is that of the schedule.
            (visits, vec![(100, 0), (200, 0), (200, 0), (200, 0), (100, 0)], 0, 200.0),
        ];
        for (load, ended, failed, rate) in table {
            let report = report(load, &ended, failed);
            assert_eq!(report.rate(), rate, "{load}, {ended:?}");
            let told = "the rate was not reached: 100.0 operations/s of 200.0 asked for";
            let is_told = report.judgement.reasons.iter().any(|reason| reason == told);
            assert_eq!(is_told, load == visits && rate < 200.0, "{:?}", report.judgement.reasons);
        }
    }
}
