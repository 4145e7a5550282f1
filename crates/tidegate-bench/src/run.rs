//! Runs a plan: starts the workers, gathers what they record, tells an observer how it goes.

use crate::clock::{monotonic_ns, ns};
use crate::host;
use crate::plan::{Load, Plan};
use crate::record::{Counts, FAILED_KEPT, FailedExchange, Sample, Times};
use crate::verdict::REACHED;
use crate::worker::{self, Claims, Message, Shared};
use crate::workers::{Ends, PATIENCE, fault_of_worker, with_workers};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Ends a run from outside, as an interrupt does. What was measured is kept.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// What a signal handler sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Asks the run to end.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was to end.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// As planned.
    Done,
    /// Somebody interrupted it.
    Interrupted,
    /// The target had stopped to accept connections.
    GaveUp,
}

/// One interval of a run, all workers together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Number from the start, the warm-up's included.
    pub number: u32,
    /// What ended in it, all sums.
    pub counts: Counts,
    /// Times, as pairs.
    pub response: Vec<(u64, u64)>,
    /// Times, as pairs.
    pub expected: Vec<(u64, u64)>,
    /// Times, as pairs.
    pub service: Vec<(u64, u64)>,
    /// Times, as pairs.
    pub wait: Vec<(u64, u64)>,
    /// Times, as pairs.
    #[serde(default)]
    pub interrupted: Vec<(u64, u64)>,
    /// Times, as pairs.
    pub connect: Vec<(u64, u64)>,
    /// Times, as pairs.
    #[serde(default)]
    pub handshake: Vec<(u64, u64)>,
    /// Times, as pairs.
    pub lateness: Vec<(u64, u64)>,
    /// Bytes per second, as pairs.
    pub speed: Vec<(u64, u64)>,
    /// Connections open at its end.
    pub open: u32,
    /// The most that were open at one moment of it. Of several workers, processes or agents the sum of what each had at most: their
    /// moments may differ, so that it is never less than what there was, and may be more.
    #[serde(default)]
    pub most_open: u32,
    /// Processor time of each worker in it, nanoseconds.
    pub cpu: Vec<u64>,
    /// Its length, nanoseconds.
    pub length: u64,
}

/// The schedule of a run whose requests come at a rate for a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Requests a second, of all processes.
    pub rate: f64,
    /// Its length without the warm-up, nanoseconds.
    pub length: u64,
}

/// What a run gave, before anything is concluded from it. Outcomes of several processes add up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Wall-clock seconds since 1970 of the start.
    pub started: f64,
    /// Intended length of an interval, nanoseconds.
    pub interval: u64,
    /// In order, without the warm-up.
    pub intervals: Vec<Interval>,
    /// Requests that the warm-up took.
    pub warmup_requests: u64,
    /// From the end of the warm-up to the last answer, nanoseconds, or to the last request that was given up, as far as that was before
    /// the end of the time of the load: a server that answers nothing any more does not make the run shorter.
    pub elapsed: u64,
    /// From the end of the warm-up to the end of the last request, whatever became of it, nanoseconds.
    #[serde(default)]
    pub last_end: u64,
    /// Where requests came at a rate, for a time.
    #[serde(default)]
    pub schedule: Option<Schedule>,
    /// How it ended.
    pub ending: Ending,
    /// For each request of the mix: CRC-32 of bodies and how many had it, where that was asked for.
    pub digests: BTreeMap<u32, BTreeMap<u32, u64>>,
    /// The first that failed.
    #[serde(default)]
    pub failed: Vec<FailedExchange>,
    /// Faults of the generator itself; empty when it worked.
    pub faults: Vec<String>,
    /// Processes that generated the load.
    pub processes: u32,
    /// Workers in each.
    pub threads: u32,
    /// The most that those held resident, bytes (`VmHWM` of proc(5)).
    #[serde(default)]
    pub memory: u64,
    /// Version, cipher suite and key exchange of a first connection, where TLS was spoken.
    #[serde(default)]
    pub tls: Option<String>,
}

/// How a run goes, told after each interval.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// From the start of the run.
    pub elapsed: Duration,
    /// Requests that ended so far.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Requests per second in the last interval.
    pub rate: f64,
    /// Bytes per second in the last interval.
    pub bytes_rate: f64,
    /// Connections open.
    pub open: u32,
}

/// Runs a plan from now to its end. `observe` is called after each interval.
///
/// # Errors
/// No thread could be started. Everything else is in the [`Outcome`].
pub fn run(plan: Plan, stop: &Stop, observe: impl FnMut(Progress)) -> io::Result<Outcome> {
    let start = monotonic_ns().saturating_add(lead_time(&plan));
    run_at(plan, start, stop, observe)
}

/// Time before the schedule begins: workers start, open loops open their connections.
pub fn lead_time(plan: &Plan) -> u64 {
    let connections = match plan.load {
        Load::Open { .. } if plan.keep_alive => u64::from(plan.connections) * 50_000,
        _ => 0,
    };
    5_000_000 + connections.min(5_000_000_000)
}

/// Runs a plan whose zero is at `start`, monotonic nanoseconds.
///
/// # Errors
/// As [`run`].
pub fn run_at(plan: Plan, start: u64, stop: &Stop, observe: impl FnMut(Progress)) -> io::Result<Outcome> {
    let shared = Arc::new(Shared {
        claims: Claims::new(plan.requests, plan.threads, plan.connections),
        plan,
        start,
        stop: AtomicBool::new(false),
    });
    let threads = shared.plan.threads;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut gathering = Gathering::new(&shared.plan, started, observe);
    let of_workers = shared.clone();
    let work = move |number, sender| worker::run(&of_workers, number, sender);
    // None of them ever does anything that does not end.
    let ends = Ends { stop, is_over: &shared.stop, latest: None, patience: PATIENCE };
    let left = with_workers("bench", threads, ends, work, |message| gathering.take(message))?;
    let told =
        |number| format!("worker {number} of the generator does not answer; its last figures are missing");
    gathering.outcome.faults.extend(left.into_iter().map(told));
    Ok(gathering.finish(start, stop.is_stopped()))
}

fn schedule(plan: &Plan) -> Option<Schedule> {
    match (&plan.load, plan.time, plan.requests) {
        (Load::Open { rate, .. }, Some(time), None) => Some(Schedule { rate: *rate, length: ns(time) }),
        _ => None,
    }
}

/// The records of all workers, by interval.
struct Gathering<O> {
    outcome: Outcome,
    by_number: BTreeMap<u32, Interval>,
    threads: usize,
    warmup_intervals: u32,
    warmup: u64,
    told: u32,
    progress: Progress,
    last: u64,
    last_end: u64,
    observe: O,
}

impl<O: FnMut(Progress)> Gathering<O> {
    fn new(plan: &Plan, started: f64, observe: O) -> Self {
        let interval = plan.interval().as_nanos() as u64;
        let warmup = plan.warmup.as_nanos() as u64;
        Gathering {
            outcome: Outcome {
                started,
                interval,
                intervals: Vec::new(),
                warmup_requests: 0,
                elapsed: 0,
                last_end: 0,
                schedule: schedule(plan),
                ending: Ending::Done,
                digests: BTreeMap::new(),
                failed: Vec::new(),
                faults: Vec::new(),
                processes: 1,
                threads: plan.threads,
                memory: 0,
                tls: None,
            },
            by_number: BTreeMap::new(),
            threads: plan.threads as usize,
            // Which requests are the warm-up's, their intended starts say; what else an interval tells of belongs to it as a
            // whole.
            warmup_intervals: (warmup / interval) as u32,
            warmup,
            told: 0,
            progress: Progress::default(),
            last: 0,
            last_end: 0,
            observe,
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Sample { worker, sample } => {
                let number = sample.interval;
                let threads = self.threads;
                let place = self.by_number.entry(number).or_insert_with(|| Interval {
                    number,
                    cpu: vec![0; threads],
                    ..Interval::default()
                });
                add(place, *sample, worker);
                // All workers have told of an interval when they tell of the next but one.
                while self.told + 1 < number {
                    self.tell(self.told);
                    self.told += 1;
                }
            }
            Message::Digests(digests) => {
                for ((request, crc), count) in digests {
                    *self.outcome.digests.entry(request).or_default().entry(crc).or_default() += count;
                }
            }
            Message::Failed(failed) => self.outcome.keep_failed(failed),
            Message::End { gave_up, last, last_end, fault } => {
                self.last = self.last.max(last);
                self.last_end = self.last_end.max(last_end);
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
        let Some(interval) = self.by_number.get(&number) else { return };
        let seconds = interval.length.max(1) as f64 / 1e9;
        self.progress.elapsed =
            Duration::from_nanos(self.outcome.interval.saturating_mul(u64::from(number) + 1));
        self.progress.requests += interval.counts.requests + interval.counts.warmup;
        self.progress.failed += interval.counts.failed();
        self.progress.rate = (interval.counts.requests + interval.counts.warmup) as f64 / seconds;
        self.progress.bytes_rate = (interval.counts.bytes + interval.counts.warmup_bytes) as f64 / seconds;
        self.progress.open = interval.open;
        (self.observe)(self.progress);
    }

    fn finish(mut self, start: u64, is_stopped: bool) -> Outcome {
        for (number, interval) in self.by_number {
            self.outcome.warmup_requests += interval.counts.warmup;
            if number < self.warmup_intervals {
                self.outcome.warmup_requests += interval.counts.requests;
            } else {
                self.outcome.intervals.push(interval);
            }
        }
        if is_stopped && self.outcome.ending == Ending::Done {
            self.outcome.ending = Ending::Interrupted;
        }
        self.outcome.memory = host::peak_resident();
        let measured = |until: u64| until.saturating_sub(start.saturating_add(self.warmup));
        (self.outcome.elapsed, self.outcome.last_end) = (measured(self.last), measured(self.last_end));
        self.outcome
    }
}

pub(crate) fn add(interval: &mut Interval, sample: Sample, worker: u32) {
    interval.counts.add(&sample.counts);
    for (into, pairs) in [
        (&mut interval.response, sample.response),
        (&mut interval.expected, sample.expected),
        (&mut interval.service, sample.service),
        (&mut interval.wait, sample.wait),
        (&mut interval.interrupted, sample.interrupted),
        (&mut interval.connect, sample.connect),
        (&mut interval.handshake, sample.handshake),
        (&mut interval.lateness, sample.lateness),
        (&mut interval.speed, sample.speed),
    ] {
        into.extend(pairs);
    }
    interval.open += sample.open;
    interval.most_open += sample.most_open;
    if let Some(cpu) = interval.cpu.get_mut(worker as usize) {
        *cpu += sample.cpu;
    }
    interval.length = interval.length.max(sample.length);
}

impl Interval {
    fn merge(&mut self, other: Interval) {
        self.counts.add(&other.counts);
        self.response.extend(other.response);
        self.expected.extend(other.expected);
        self.service.extend(other.service);
        self.wait.extend(other.wait);
        self.interrupted.extend(other.interrupted);
        self.connect.extend(other.connect);
        self.handshake.extend(other.handshake);
        self.lateness.extend(other.lateness);
        self.speed.extend(other.speed);
        self.open += other.open;
        self.most_open += other.most_open;
        self.cpu.extend(other.cpu);
        self.length = self.length.max(other.length);
    }
}

/// The times of a whole run.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Sums.
    pub counts: Counts,
    /// From the intended start to the last byte, or to the moment that the request was given up. One of each request that ended.
    pub response: Times,
    /// The response times of those answered as expected alone.
    pub expected: Times,
    /// From the first byte sent to the last received, or to the moment that the request was given up.
    pub service: Times,
    /// From the first byte sent to the first received, or to the moment that the request was given up without one.
    pub wait: Times,
    /// Of requests that had not ended when somebody interrupted: how long they had taken by then.
    pub interrupted: Times,
    /// Of connects.
    pub connect: Times,
    /// Of TLS handshakes.
    pub handshake: Times,
    /// Of the generator, behind its schedule.
    pub lateness: Times,
    /// Bytes per second of each answer, not a time.
    pub speed: Times,
}

impl Totals {
    /// Requests that ended without a complete answer; their times are those that they were waited for.
    pub fn without_answer(&self) -> u64 {
        self.response.count().saturating_sub(self.counts.answered)
    }
}

impl Outcome {
    /// Everything added up.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for interval in &self.intervals {
            totals.counts.add(&interval.counts);
            totals.response.add(&interval.response);
            totals.expected.add(&interval.expected);
            totals.service.add(&interval.service);
            totals.wait.add(&interval.wait);
            totals.interrupted.add(&interval.interrupted);
            totals.connect.add(&interval.connect);
            totals.handshake.add(&interval.handshake);
            totals.lateness.add(&interval.lateness);
            totals.speed.add(&interval.speed);
        }
        totals
    }

    /// Adds what another process did in the same run.
    pub fn merge(&mut self, other: Outcome) {
        let workers = (self.processes * self.threads) as usize;
        let mut by_number: BTreeMap<u32, Interval> = std::mem::take(&mut self.intervals)
            .into_iter()
            .map(|interval| (interval.number, interval))
            .collect();
        for theirs in other.intervals {
            let number = theirs.number;
            let ours = by_number.entry(number).or_insert_with(|| Interval { number, ..Interval::default() });
            ours.cpu.resize(workers, 0);
            ours.merge(theirs);
        }
        self.intervals = by_number.into_values().collect();
        self.started = self.started.min(other.started);
        self.warmup_requests += other.warmup_requests;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.last_end = self.last_end.max(other.last_end);
        if self.ending == Ending::Done {
            self.ending = other.ending;
        }
        for (request, digests) in other.digests {
            let ours = self.digests.entry(request).or_default();
            for (crc, count) in digests {
                *ours.entry(crc).or_default() += count;
            }
        }
        self.keep_failed(other.failed);
        self.faults.extend(other.faults);
        self.processes += other.processes;
        self.memory += other.memory;
    }

    /// Keeps the first that failed of these and its own.
    fn keep_failed(&mut self, failed: Vec<FailedExchange>) {
        self.failed.extend(failed);
        self.failed.sort_by(|a, b| a.at.total_cmp(&b.at));
        self.failed.truncate(FAILED_KEPT);
    }

    /// The answers per second of a schedule that were fewer than the share `least` of `rate`; `None` where the
    /// rate was reached, or too little was asked to tell. From the first answer to the last, so that a server
    /// that takes long for each and keeps up is not blamed; an interval at either end is forgiven.
    pub fn rate_not_reached(&self, rate: f64, least: f64) -> Option<f64> {
        let answered = |interval: &&Interval| interval.counts.answered > 0;
        let first = self.intervals.iter().position(|interval| answered(&interval))?;
        let before: u64 = self.intervals.iter().take(first).map(|interval| interval.length).sum();
        let span = self.elapsed.saturating_sub(before) as f64 / 1e9;
        let count = self.answered() as f64;
        let forgiven = 2.0 * self.interval as f64 / 1e9;
        let is_telling = rate * span >= 100.0 && span > forgiven;
        let is_missed = is_telling && count < rate * least * (span - forgiven);
        is_missed.then(|| count / self.seconds_to_the_last().max(1e-9))
    }

    fn answered(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.counts.answered).sum()
    }

    /// From the end of the warm-up to the last answer, seconds, without the share of it that the server needed for requests of the
    /// warm-up.
    fn seconds_to_the_last(&self) -> f64 {
        let of_warmup: u64 = self.intervals.iter().map(|interval| interval.counts.warmup_answered).sum();
        let answered = self.answered() as f64;
        let share = if answered > 0.0 { answered / (answered + of_warmup as f64) } else { 1.0 };
        self.elapsed as f64 / 1e9 * share
    }

    /// Takes the first intervals out, as the warm-up.
    pub fn cut(&mut self, count: usize) {
        let count = count.min(self.intervals.len().saturating_sub(1));
        for interval in self.intervals.drain(..count) {
            self.warmup_requests += interval.counts.requests;
            self.elapsed = self.elapsed.saturating_sub(interval.length);
            self.last_end = self.last_end.saturating_sub(interval.length);
            if let Some(schedule) = &mut self.schedule {
                schedule.length = schedule.length.saturating_sub(interval.length);
            }
        }
    }

    /// The steady time, which all rates are of: of a schedule that was kept its length; else from the end of the warm-up to the last
    /// answer, as where requests follow answers, somebody interrupted, or the server fell behind (see [`Outcome::rate_not_reached`]).
    /// Of the latter the share is left out in which the server still answered the warm-up: it answers as many per second as before.
    pub fn seconds(&self) -> f64 {
        let is_kept = |schedule: &Schedule| self.rate_not_reached(schedule.rate, REACHED).is_none();
        let kept = self.schedule.filter(|_| self.ending == Ending::Done).filter(is_kept);
        kept.map_or_else(|| self.seconds_to_the_last(), |schedule| schedule.length as f64 / 1e9)
    }

    /// The most connections that were open at one moment of the run: see [`Interval::most_open`].
    pub fn most_open(&self) -> u32 {
        self.intervals.iter().map(|interval| interval.most_open).max().unwrap_or(0)
    }

    /// The highest share of a processor that one worker used over the run, 0 to 1.
    pub fn busiest_worker(&self) -> f64 {
        self.busy_workers().into_iter().fold(0.0, f64::max)
    }

    /// Share of a processor that each worker used.
    pub fn busy_workers(&self) -> Vec<f64> {
        let length: u64 = self.intervals.iter().map(|interval| interval.length).sum();
        let workers = self.intervals.iter().map(|interval| interval.cpu.len()).max().unwrap_or(0);
        let of = |worker| {
            self.intervals.iter().map(|interval| interval.cpu.get(worker).copied().unwrap_or(0)).sum::<u64>()
        };
        (0..workers).map(|worker| of(worker) as f64 / length.max(1) as f64).collect()
    }

    /// Processor time of all workers, seconds.
    pub fn cpu(&self) -> f64 {
        self.intervals.iter().flat_map(|interval| &interval.cpu).sum::<u64>() as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Failure;
    use crate::request::{Description, Mix};
    use crate::schedule::Arrivals;

    fn outcome(requests: u64, elapsed: f64, ending: Ending) -> Outcome {
        let target = crate::target::Url::parse("http://127.0.0.1:1/").unwrap();
        let mut plan = Plan::new(Mix::build(&[Description::get(target)], true, None).unwrap());
        plan.load = Load::Open { rate: 40.0, arrivals: Arrivals::Constant };
        plan.time = Some(Duration::from_secs(5));
        let mut gathering = Gathering::new(&plan, 0.0, |_| {});
        let seconds = elapsed.ceil() as u32;
        for interval in 0..seconds {
            let count = requests / u64::from(seconds);
            let counts = Counts { requests: count, answered: count, succeeded: count, ..Counts::default() };
            let sample = Box::new(Sample { interval, counts, length: 1_000_000_000, ..Sample::default() });
            gathering.take(Message::Sample { worker: 0, sample });
        }
        let last = (elapsed * 1e9) as u64;
        gathering.take(Message::End { gave_up: false, last, last_end: last, fault: None });
        gathering.finish(0, ending == Ending::Interrupted)
    }

    /// The last request of a schedule is due before its end, and its answer comes at any time.
    #[test]
    fn the_rate_of_a_schedule_that_was_kept_is_of_its_length() {
        let rate = |requests: u64, of: &Outcome| requests as f64 / of.seconds();
        let early = outcome(200, 4.979, Ending::Done);
        assert_eq!(rate(200, &early), 40.0);
        assert_eq!(rate(200, &outcome(200, 5.2, Ending::Done)), 40.0);
        // One that fell behind is told what it reached; of one that was cut off there is no more than there is.
        assert_eq!(rate(200, &outcome(200, 10.0, Ending::Done)), 20.0);
        assert_eq!(rate(160, &outcome(160, 4.0, Ending::Interrupted)), 40.0);
        let mut cut = early;
        cut.cut(1);
        assert_eq!(cut.seconds(), 4.0);
    }

    /// A server of 20 answers a second, asked 40 a second for 5 s, with 2 s of grace.
    #[test]
    fn a_server_that_falls_behind_is_told_what_it_gives() {
        let url = crate::target::Url::parse("http://127.0.0.1:1/").unwrap();
        let load = Load::Open { rate: 40.0, arrivals: Arrivals::Constant };
        let mix = Mix::build(&[Description::get(url)], true, None).unwrap();
        let plan = Plan { load, time: Some(Duration::from_secs(5)), ..Plan::new(mix) };
        let outcome = |warmup: u64| {
            let plan = Plan { warmup: Duration::from_secs(warmup), ..plan.clone() };
            let mut gathering = Gathering::new(&plan, 0.0, |_| {});
            gathering.warmup_intervals = warmup as u32;
            let (mut of_warmup, mut of_time) = (40 * warmup, 200);
            for interval in 0..7 + warmup as u32 {
                let late = of_warmup.min(20);
                let answered = 20 - late;
                (of_warmup, of_time) = (of_warmup - late, of_time - answered);
                let mut counts = Counts { warmup: late, warmup_answered: late, ..Counts::default() };
                (counts.requests, counts.answered, counts.succeeded) = (answered, answered, answered);
                if u64::from(interval) == 6 + warmup {
                    counts.requests += of_time;
                    counts.failures.insert(Failure::Unanswered, of_time);
                }
                let sample = Sample { interval, counts, length: 1_000_000_000, ..Sample::default() };
                gathering.take(Message::Sample { worker: 0, sample: Box::new(sample) });
            }
            let last = (7 + warmup) * 1_000_000_000;
            gathering.take(Message::End { gave_up: false, last, last_end: last, fault: None });
            (plan, gathering.finish(0, false))
        };
        for warmup in [0, 1] {
            let (plan, outcome) = outcome(warmup);
            let totals = outcome.totals();
            assert_eq!(totals.counts.answered as f64 / outcome.seconds(), 20.0, "{warmup}");
            let judgement = crate::verdict::judge(&plan, &outcome, &totals, &[]);
            let told = "the rate was not reached: 20.0 answers/s of 40 asked for";
            assert!(judgement.reasons.iter().any(|reason| reason == told), "{:?}", judgement.reasons);
        }
    }

    #[test]
    fn a_fault_of_all_workers_is_told_once_with_what_to_do() {
        let url = crate::target::Url::parse("http://127.0.0.1:1/").unwrap();
        let plan = Plan::new(Mix::build(&[Description::get(url)], true, None).unwrap());
        let mut gathering = Gathering::new(&plan, 0.0, |_| {});
        for _ in 0..3 {
            let fault = Some(rustix::io::Errno::MFILE.into());
            gathering.take(Message::End { gave_up: false, last: 0, last_end: 0, fault });
        }
        let faults = gathering.finish(0, false).faults;
        assert!(faults.len() == 1 && faults[0].contains("raise `ulimit -n`"), "{faults:?}");
    }
}
