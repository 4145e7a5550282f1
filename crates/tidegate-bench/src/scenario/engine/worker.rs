//! One thread of the engine: its reactor, its users, and what time brings.

use super::connection::UserConnection;
use super::resources::Resources;
use super::visits::Arrivals;
use super::{Message, SECOND, SecondOfWorker, Shared};
use crate::clock::{Alarm, TICK, Wheel, monotonic_ns, ns, thread_cpu};
use crate::plan::Part;
use crate::record::{Recorder, Times};
use crate::scenario::record::{Arrived, FailedOperation, Tally, Throughput};
use crate::scenario::script;
use crate::scenario::user::User;
use crate::scenario::{Load, Scenario};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::Sender;
use std::time::Duration;
use tidegate_io::{Key, Kind, Poller, Ready, Registry, Slab};
use tidegate_wire::h2::Section;

/// Bytes for one `recv`.
const BUFFER: usize = 256 << 10;

/// Starts in one turn, so that answers are read between.
const STARTS_IN_A_ROW: usize = 256;

/// An operation as a worker counts it.
#[derive(Default)]
pub(super) struct Counter {
    pub tally: Tally,
    pub response: Times,
    pub expected: Times,
}

/// A thread's state.
pub(super) struct Worker<'s> {
    pub shared: &'s Shared,
    pub scenario: &'s Scenario,
    pub number: u32,
    collector: Sender<Message>,
    poller: Poller,
    pub registry: Registry,
    ready: Vec<Ready>,
    alarm: Alarm,
    pub wheel: Wheel,
    expired: Vec<u32>,
    pub connections: Slab<UserConnection>,
    /// Connections that were interrupted while there was more to read.
    pub more: Vec<Key>,
    /// Connections of HTTP/2 that were given something to send.
    pub unflushed: Vec<Key>,
    pub users: Vec<User>,
    /// Users that wait, by the time of their next start.
    pub due: BinaryHeap<Reverse<(u64, u32)>>,
    /// Those who come at a rate.
    pub arrivals: Option<Arrivals>,
    pub visits: Arrived,
    pub active: u32,
    pub busy: u32,
    pub resources: Resources,
    /// Where the scenario has a script: its own of this thread.
    pub script: Option<script::Engine>,
    pub recorder: Recorder,
    pub counters: Vec<Counter>,
    pub others: u64,
    pub others_failed: u64,
    pub throughput: Throughput,
    pub failed: Vec<FailedOperation>,
    pub failed_of: Vec<usize>,
    pub buffer: Vec<u8>,
    /// The head that was read last (HTTP/2).
    pub section: Section,
    pub opened: u64,
    second: u32,
    second_began: u64,
    cpu: Duration,
    /// When the first connect began that failed since anything was answered, monotonic nanoseconds.
    pub failing_since: Option<u64>,
    /// When the last one failed.
    pub failed_last: u64,
    has_given_up: bool,
    pub unsent: u64,
    /// Between these what is due is measured; then nothing starts; then nothing is waited for. Monotonic nanoseconds.
    pub steady: (u64, u64),
    pub end: u64,
    cut: u64,
}

/// The users of a worker: user k belongs to part k mod N of a run, and they go round its threads in turn.
fn users_of(part: Part, worker: u32, threads: u32, count: u32) -> impl Iterator<Item = u32> {
    let of = part.of.max(1);
    let first = u64::from(worker) * u64::from(of) + u64::from(part.index);
    let step = (threads.max(1) as usize).saturating_mul(of as usize);
    (first..u64::from(count)).step_by(step).map(|user| user as u32)
}

/// The engine of a thread.
fn engine_of(script: &script::Script) -> io::Result<script::Engine> {
    script::Engine::new(&script.name, &script.text, script.within)
        .map_err(|mistake| io::Error::other(format!("{}: {mistake}", script.name)))
}

/// Runs one worker to its end.
pub(super) fn run(shared: &Shared, number: u32, collector: Sender<Message>) {
    let report = collector.clone();
    let end = match Worker::new(shared, number, collector) {
        Ok(mut worker) => {
            let fault = worker.run().err();
            worker.finish();
            let failed = std::mem::take(&mut worker.failed);
            Message::End {
                worker: number,
                gave_up: worker.has_given_up,
                unsent: worker.unsent,
                failed,
                fault,
            }
        }
        Err(error) => {
            Message::End { worker: number, gave_up: false, unsent: 0, failed: Vec::new(), fault: Some(error) }
        }
    };
    // A collector that has gone away has lost interest.
    let _ = report.send(end);
}

impl<'s> Worker<'s> {
    fn new(shared: &'s Shared, number: u32, collector: Sender<Message>) -> io::Result<Self> {
        let (scenario, plan) = (&shared.scenario, &shared.plan);
        let poller = Poller::new()?;
        let registry = poller.registry()?;
        let at = |time: Duration| shared.start.saturating_add(ns(time));
        let phases = &scenario.phases;
        let end = at(phases.whole());
        let (users, arrivals, rate) = match &scenario.load {
            Load::Users(load) => {
                let mine = users_of(plan.part, number, plan.threads, load.count);
                let times = |user| (at(load.begins(user, phases)), at(load.ends(user, phases)));
                let users: Vec<User> =
                    mine.map(|user| User::new(scenario, user, plan.seed, times(user))).collect();
                let rate = users.len() as f64 / scenario.mean_cycle().max(1e-3);
                (users, None, rate)
            }
            Load::Visits(load) => {
                let arrivals = Arrivals::new(load, *phases, plan, (number, shared.start));
                let rate = load.rate * f64::from(load.operations) / f64::from(plan.global_threads().max(1));
                (arrivals.places(), Some(arrivals), rate)
            }
        };
        let due =
            users.iter().enumerate().map(|(place, user)| Reverse((user.intended, place as u32))).collect();
        Ok(Worker {
            shared,
            scenario,
            number,
            collector,
            poller,
            registry,
            ready: Vec::with_capacity(512),
            alarm: Alarm::new(rate)?,
            wheel: Wheel::default(),
            expired: Vec::new(),
            connections: Slab::default(),
            more: Vec::new(),
            unflushed: Vec::new(),
            active: 0,
            busy: 0,
            users,
            due,
            arrivals,
            visits: Arrived::default(),
            resources: Resources::default(),
            script: scenario.script.as_ref().map(engine_of).transpose()?,
            recorder: Recorder::new(),
            counters: scenario.operations.iter().map(|_| Counter::default()).collect(),
            others: 0,
            others_failed: 0,
            throughput: Throughput::default(),
            failed: Vec::new(),
            failed_of: vec![0; scenario.operations.len()],
            buffer: vec![0; BUFFER],
            section: Section::new(),
            opened: u64::from(number),
            second: 0,
            second_began: shared.start,
            cpu: Duration::ZERO,
            failing_since: None,
            failed_last: 0,
            has_given_up: false,
            unsent: 0,
            steady: (at(phases.ramp_up), at(phases.ramp_up + phases.steady)),
            end,
            cut: end.saturating_add(ns(plan.drain)),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        // Any slab key will do for the alarm: its kind tells it apart.
        let alarm = Slab::default().insert(());
        self.registry.add_readable(self.alarm.as_fd(), Kind::Io, alarm)?;
        self.cpu = thread_cpu();
        // The 50 µs by which timers may be late would count as response time. What cannot be set is as it was.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            let now = monotonic_ns();
            self.turn(now);
            if self.is_over(now) {
                return Ok(());
            }
            let timeout = self.patience(now);
            let next = self.next_start();
            if next != u64::MAX && !timeout.is_zero() {
                self.alarm.set(next, now)?;
            }
            let mut ready = std::mem::take(&mut self.ready);
            ready.clear();
            let waited = self.poller.wait(Some(timeout), &mut ready);
            for event in ready.iter().filter(|event| event.kind() == Kind::Connection) {
                self.on_event(event);
                self.flush_given();
            }
            self.ready = ready;
            for key in std::mem::take(&mut self.more) {
                self.read(key);
                self.flush_given();
            }
            waited?;
        }
    }

    /// All that time brings.
    fn turn(&mut self, now: u64) {
        let mut now = now;
        for _ in 0..STARTS_IN_A_ROW {
            if self.next_start() > now {
                break;
            }
            match self.due.peek().copied() {
                Some(Reverse((at, user))) if at <= self.next_arrival() => {
                    self.due.pop();
                    self.begin(user as usize, now);
                }
                _ => self.arrive(now),
            }
            self.flush_given();
            now = monotonic_ns();
        }
        self.let_in(STARTS_IN_A_ROW, now);
        let tick = (now.saturating_sub(self.shared.start) / TICK) as u32;
        let mut expired = std::mem::take(&mut self.expired);
        self.wheel.advance(tick, &mut expired);
        for index in expired.drain(..) {
            self.on_timer(index, now);
        }
        self.expired = expired;
        self.flush_given();
        while now >= self.second_end() {
            self.hand_over(self.second_end());
        }
        // One connect that failed proves nothing where the next one is due much later.
        let failing = self.failing_since.map_or(0, |since| self.failed_last.saturating_sub(since));
        if failing > ns(self.shared.plan.give_up) && !self.has_given_up {
            self.has_given_up = true;
            self.shared.has_given_up.store(true, Relaxed);
            self.shared.stop.store(true, Release); // who sees this sees that it was given up
        }
    }

    fn is_over(&self, now: u64) -> bool {
        let is_done = self.next_start() == u64::MAX && self.busy == 0 && !self.has_waiting(now);
        is_done || now >= self.cut || self.shared.stop.load(Relaxed)
    }

    /// When the next operation of a user, or the next user, is due.
    fn next_start(&self) -> u64 {
        let of_users = self.due.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        of_users.min(self.next_arrival())
    }

    fn second_end(&self) -> u64 {
        self.shared.start.saturating_add(SECOND * (u64::from(self.second) + 1))
    }

    /// How long to wait for events at most.
    fn patience(&mut self, now: u64) -> Duration {
        if !self.more.is_empty() || self.next_start() <= now || self.can_let_in(now) {
            return Duration::ZERO;
        }
        let mut until = self.second_end().min(self.cut);
        if let Some(ticks) = self.wheel.next() {
            let tick = now.saturating_sub(self.shared.start) / TICK + u64::from(ticks);
            until = until.min(self.shared.start.saturating_add(tick * TICK));
        }
        Duration::from_nanos(until.saturating_sub(now))
    }

    /// What is left at the end is counted, and the last second handed over.
    fn finish(&mut self) {
        let now = monotonic_ns();
        if self.shared.stop.load(Relaxed) {
            (0..self.users.len()).for_each(|user| self.count_unanswered(user, now));
        } else {
            for user in 0..self.users.len() {
                self.leave_unanswered(user, now);
            }
            self.count_unseen(now);
        }
        self.hand_over(monotonic_ns());
    }

    fn hand_over(&mut self, at: u64) {
        let cpu = thread_cpu();
        let mut sample = self.recorder.take();
        sample.interval = self.second;
        sample.cpu = ns(cpu.saturating_sub(self.cpu));
        sample.length = at.saturating_sub(self.second_began);
        (self.cpu, self.second_began) = (cpu, at);
        self.second += 1;
        let operations = self.counters.iter_mut().map(|counter| {
            let mut tally = std::mem::take(&mut counter.tally);
            tally.response = counter.response.take();
            tally.expected = counter.expected.take();
            tally
        });
        let second = SecondOfWorker {
            worker: self.number,
            operations: operations.collect(),
            requests: sample,
            others: std::mem::take(&mut self.others),
            others_failed: std::mem::take(&mut self.others_failed),
            users: self.active,
            visits: std::mem::take(&mut self.visits),
            throughput: std::mem::take(&mut self.throughput),
        };
        if self.collector.send(Message::Second(Box::new(second))).is_err() {
            self.shared.stop.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20,000 users with three idle connections each are to be below 200 MiB with all that belongs to the process.
    #[test]
    fn a_user_that_thinks_takes_little() {
        let (user, connection) = (size_of::<User>(), size_of::<UserConnection>());
        let place = size_of::<Reverse<(u64, u32)>>() + 3 * Wheel::NODE_SIZE;
        let sum = user + 3 * connection + place;
        assert!(sum <= 2_048, "user {user}, connection {connection}, places {place}");
    }

    #[test]
    fn parts_and_threads_have_each_user_once() {
        for (of, threads, count) in
            [(1, 1, 5), (1, 4, 10), (3, 1, 10), (3, 2, 11), (3, 4, 2), (256, 3, 1_000)]
        {
            let mut all = Vec::new();
            for index in 0..of {
                for worker in 0..threads {
                    let users: Vec<u32> = users_of(Part { index, of }, worker, threads, count).collect();
                    assert!(users.iter().all(|user| user % of == index));
                    all.extend(users);
                }
            }
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>(), "{of} parts, {threads} threads");
        }
    }
}
