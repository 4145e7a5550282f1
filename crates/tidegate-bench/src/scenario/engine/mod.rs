//! Drives the users of a scenario: threads with a reactor each, users that are moved on by answers and by their clocks.
//!
//! `worker` is the loop and what time brings; `visits` lets in users that come at a rate; `operate` moves users on; `script` calls
//! functions of the scenario's script; `request` writes what they ask; `connection`, `drive` and `streams` are their connections;
//! `resources` is what pages share. Nothing is awaited and no user has a stack.
//!
//! What workers tell goes to a [`Gathering`], from this process or from agents on other machines (`crate::agent`).

mod connection;
mod drive;
mod operate;
mod request;
mod resources;
mod script;
mod streams;
mod visits;
mod worker;

pub(super) use resources::is_known;

use script::UnderWay;

use super::Scenario;
use super::record::{Arrived, FAILED_KEPT, FailedOperation, Outcome, Second, Tally, Throughput};
use crate::clock::ns;
use crate::host;
use crate::plan::Plan;
use crate::record::Sample;
use crate::run::{Ending, Progress, Stop, add};
use crate::workers::{Ends, PATIENCE, fault_of_worker, with_workers};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The length of an interval of the records, nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// What all workers of a run share.
pub(super) struct Shared {
    pub scenario: Scenario,
    /// How connections are made; its mix has the one server.
    pub plan: Plan,
    /// Monotonic nanoseconds of the beginning.
    pub start: u64,
    /// The run is to end now.
    pub stop: AtomicBool,
    /// Since a worker has given the target up, and nobody has interrupted it.
    pub has_given_up: AtomicBool,
    /// What each worker has the script do.
    calls: Box<[UnderWay]>,
}

/// What a worker tells.
#[derive(Debug)]
pub(crate) enum Message {
    /// A second.
    Second(Box<SecondOfWorker>),
    /// It has ended.
    End { worker: u32, gave_up: bool, unsent: u64, failed: Vec<FailedOperation>, fault: Option<io::Error> },
}

/// What a worker saw in a second.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecondOfWorker {
    pub worker: u32,
    pub requests: Sample,
    pub operations: Vec<Tally>,
    pub others: u64,
    pub others_failed: u64,
    pub users: u32,
    pub visits: Arrived,
    pub throughput: Throughput,
}

/// For who does not want to be told how it goes.
pub fn observe_nothing(_: Progress, _: &Second) {}

/// Runs a scenario whose zero is at `start`, monotonic nanoseconds. `plan` says how connections are made, how many threads
/// there are, and the seed. `observe` is called after each second, with it.
///
/// # Errors
/// No thread could be started. Everything else is in the [`Outcome`].
pub fn run_at(
    scenario: &Scenario,
    plan: &Plan,
    start: u64,
    stop: &Stop,
    observe: impl FnMut(Progress, &Second),
) -> io::Result<Outcome> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut gathering = Gathering::new(scenario, plan.threads, started, observe);
    run_part(scenario, plan, start, stop, |message| gathering.take(message))?;
    Ok(gathering.finish(scenario, stop.is_stopped(), false))
}

/// Runs the users of `plan.part`, and gives what their workers tell to `take`. Whether all of them have ended: one that is in a call
/// of the script that cannot be ended is left behind, and its end told for it.
///
/// # Errors
/// As [`run_at`].
pub(crate) fn run_part(
    scenario: &Scenario,
    plan: &Plan,
    start: u64,
    stop: &Stop,
    mut take: impl FnMut(Message),
) -> io::Result<bool> {
    let shared = Arc::new(Shared {
        scenario: scenario.clone(),
        plan: plan.clone(),
        start,
        stop: AtomicBool::new(false),
        has_given_up: AtomicBool::new(false),
        calls: (0..plan.threads).map(|_| UnderWay::default()).collect(),
    });
    let of_workers = shared.clone();
    let work = move |number, sender| worker::run(&of_workers, number, sender);
    let latest = start.saturating_add(ns(scenario.phases.whole() + plan.drain));
    // A call may take so much of the processor, and the machine be busy with others.
    let of_call = scenario.script.as_ref().map_or(Duration::ZERO, |script| script.within * 4);
    let ends = Ends { stop, is_over: &shared.stop, latest: Some(latest), patience: PATIENCE + of_call };
    let left = with_workers("scenario", plan.threads, ends, work, &mut take)?;
    for worker in &left {
        let call = shared.calls.get(*worker as usize).and_then(|call| call.shown(scenario));
        let fault = call.unwrap_or_else(|| "it does not answer; its last figures are missing".to_owned());
        let (failed, fault) = (Vec::new(), Some(io::Error::other(fault)));
        take(Message::End { worker: *worker, gave_up: false, unsent: 0, failed, fault });
    }
    Ok(left.is_empty())
}

/// The records of all workers, by second.
pub(crate) struct Gathering<O> {
    outcome: Outcome,
    by_number: BTreeMap<u32, Second>,
    threads: usize,
    operations: usize,
    told: u32,
    progress: Progress,
    observe: O,
}

impl<O: FnMut(Progress, &Second)> Gathering<O> {
    /// For so many workers in all.
    pub(crate) fn new(scenario: &Scenario, threads: u32, started: f64, observe: O) -> Self {
        Gathering {
            outcome: Outcome {
                started,
                seconds: Vec::new(),
                failed: Vec::new(),
                ending: Ending::Done,
                faults: Vec::new(),
                unsent: 0,
                measured: 0.0,
                memory: 0,
                threads,
                tls: None,
                agents: Vec::new(),
                notes: Vec::new(),
                is_cut_short: false,
            },
            by_number: BTreeMap::new(),
            threads: threads as usize,
            operations: scenario.operations.len(),
            told: 0,
            progress: Progress::default(),
            observe,
        }
    }

    pub(crate) fn take(&mut self, message: Message) {
        match message {
            Message::Second(part) => {
                let number = part.requests.interval;
                let (threads, operations) = (self.threads, self.operations);
                let place = self.by_number.entry(number).or_insert_with(|| {
                    let mut second =
                        Second { operations: vec![Tally::default(); operations], ..Second::default() };
                    second.requests.number = number;
                    second.requests.cpu = vec![0; threads];
                    second
                });
                add(&mut place.requests, part.requests, part.worker);
                for (whole, part) in place.operations.iter_mut().zip(&part.operations) {
                    whole.add(part);
                }
                place.others += part.others;
                place.others_failed += part.others_failed;
                place.users += part.users;
                place.visits.add(&part.visits);
                place.throughput.add(part.throughput);
                while self.told + 1 < number {
                    self.tell(self.told);
                    self.told += 1;
                }
            }
            Message::End { gave_up, unsent, failed, fault, .. } => {
                self.outcome.unsent += unsent;
                self.outcome.failed.extend(failed);
                if gave_up {
                    self.outcome.ending = Ending::GaveUp;
                }
                if let Some(fault) = fault {
                    let fault = fault_of_worker(&fault);
                    if !self.outcome.faults.contains(&fault) {
                        self.outcome.faults.push(fault);
                    }
                }
            }
        }
    }

    fn tell(&mut self, number: u32) {
        let Some(second) = self.by_number.get(&number) else { return };
        let ended: u64 = second.operations.iter().map(|tally| tally.ended).sum::<u64>() + second.others;
        let failed: u64 = second.operations.iter().map(Tally::failed).sum::<u64>() + second.others_failed;
        self.progress.elapsed = Duration::from_secs(u64::from(number) + 1);
        self.progress.requests += ended;
        self.progress.failed += failed;
        self.progress.rate = ended as f64;
        self.progress.bytes_rate = second.requests.counts.bytes as f64;
        self.progress.open = second.requests.open;
        (self.observe)(self.progress, second);
    }

    /// What the run gave. `is_stopped`: somebody interrupted it; `is_cut_short`: a fault has ended it before its time.
    pub(crate) fn finish(mut self, scenario: &Scenario, is_stopped: bool, is_cut_short: bool) -> Outcome {
        let mut outcome = self.outcome;
        outcome.is_cut_short = is_cut_short;
        if is_stopped && outcome.ending == Ending::Done {
            outcome.ending = Ending::Interrupted;
        }
        outcome.seconds = std::mem::take(&mut self.by_number).into_values().collect();
        outcome.memory = host::peak_resident();
        outcome.measured = measured(scenario, &outcome);
        outcome.failed.sort_by(|a, b| a.at.total_cmp(&b.at));
        let mut kept: HashMap<String, usize> = HashMap::new();
        outcome.failed.retain(|failed| {
            let count = kept.entry(failed.operation.clone()).or_default();
            *count += 1;
            *count <= FAILED_KEPT
        });
        outcome
    }
}

/// The steady time in seconds, or as much of it as there was. A run that ended as it was to has had all of it, though its last operation
/// has ended before.
fn measured(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let steady = scenario.phases.steady.as_secs_f64();
    if outcome.ending == Ending::Done && !outcome.is_cut_short && outcome.faults.is_empty() {
        return steady;
    }
    let ran: u64 = outcome.seconds.iter().map(|second| second.requests.length).sum();
    (ran as f64 / 1e9 - scenario.phases.ramp_up.as_secs_f64()).clamp(0.0, steady)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sample;
    use crate::scenario::load_text;
    use std::path::Path;
    use tidegate_config::ProcessEnvironment;

    /// A worker has nothing left to do once the last visit is over, which comes before the end of the steady time.
    #[test]
    fn rates_are_of_the_steady_time() {
        let text =
            "target \"http://127.0.0.1:1\"; rate \"40/s\" arrivals=constant { ramp-up \"1s\"; steady \"5s\" }
            mix { a 1 }; op a { get \"/\" }";
        let scenario = load_text("test", text, Path::new("."), &ProcessEnvironment).scenario.unwrap();
        let outcome = |is_stopped: bool, is_cut_short: bool, fault: Option<io::Error>| {
            let mut gathering = Gathering::new(&scenario, 1, 0.0, observe_nothing);
            for (interval, length) in [(0, SECOND), (1, 4 * SECOND + 979_000_000)] {
                let requests = Sample { interval, length, ..Sample::default() };
                let second = SecondOfWorker { requests, ..SecondOfWorker::default() };
                gathering.take(Message::Second(Box::new(second)));
            }
            gathering.take(Message::End { worker: 0, gave_up: false, unsent: 0, failed: Vec::new(), fault });
            gathering.finish(&scenario, is_stopped, is_cut_short).measured
        };
        assert_eq!(outcome(false, false, None), 5.0);
        // What ended before its time had 5.979 s, one of them of the ramp-up.
        let short = [outcome(true, false, None), outcome(false, true, None)];
        let broken = outcome(false, false, Some(io::ErrorKind::Other.into()));
        assert!(short.iter().chain([&broken]).all(|time| (time - 4.979).abs() < 1e-9), "{short:?}, {broken}");
    }
}
