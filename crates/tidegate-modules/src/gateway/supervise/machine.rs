//! What a pool does when: how many processes there are, which of them get requests, which have to go.
//!
//! A state machine on the caller's clock. It starts nothing and kills nothing: it says so in [`Action`]s,
//! and is told what became of them. The driver carries them out; the tests do not, and run in no time.
//!
//! A process is started, serves, is drained (it gets no further requests and ends those it has), is told to
//! end, and is killed when it does not. One that is worn out, by its number of requests or since the
//! settings say something else now, is drained once another serves in its place. New settings are on trial until a
//! process of theirs has accepted a connection and lived for a while from then on; until then the old processes serve. Where
//! the user has changed nothing of the old is kept: all are drained at once, and requests wait for the new ones.

mod demand;
mod process;
mod report;
#[cfg(test)]
mod tests;

pub(super) use demand::Usage;

use super::pace::{Bucket, pause};
use crate::gateway::pool_directory::PoolPhase;
use crate::status::printable;
use process::{Process, Stage};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a process has ended that got SIGKILL: somebody's order, or the kernel's want of memory.
pub(super) const KILLED: &str = "was ended by signal 9";
/// A process that takes requests for so long has proved that its program works.
const PROOF: Duration = Duration::from_secs(1);
/// The same of new settings where processes share a socket: which of them accepts a connection is not known.
const SHARED_PROOF: Duration = Duration::from_secs(10);
/// How long requests of the server's own may hold up a process that starts. They end earlier by themselves.
const WARM_UP_PATIENCE: Duration = Duration::from_secs(60);
/// How long requests under way may hold up a process that is to go.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);
/// How long a start waits that the system has had no room for.
const POSTPONED: Duration = Duration::from_secs(5);
/// One start in so long, beyond those that the bucket holds.
const START_EACH: Duration = Duration::from_millis(125);

/// The place of a process in its pool. Its socket goes with it, so that what waits in the socket's backlog
/// is served by the successor.
pub(super) type Slot = usize;

/// What the settings say.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rules {
    pub min: usize,
    pub max: usize,
    /// Requests that one process takes at once.
    pub places: usize,
    pub idle: Duration,
    pub grow_after: Duration,
    /// Requests after which a process is replaced.
    pub requests: Option<u64>,
    /// How long a process may take until it takes requests.
    pub start_timeout: Duration,
    /// How long one may take to end when told to.
    pub stop_timeout: Duration,
    /// All processes share a socket: who takes which request is not known.
    pub is_shared: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Start a process by the newest definition.
    Start(Slot),
    /// Tell it to end.
    Terminate(Slot),
    /// Kill it and all that it has started.
    Kill(Slot),
    /// Tell the workers how things are.
    Publish,
    /// Tell the operator.
    Say(String),
}

/// Why requests are refused while no process serves, though one is wanted. Otherwise they wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Down {
    /// Processes have ended early, one after the other: they are refused until one has proved itself.
    Failing,
    /// The system had no room for a process that is wanted, which has been said: they are refused until one is started.
    NoRoom,
    /// It was one of these when nobody wanted a process any more: they are refused until one is started.
    Untried,
}

/// One pool.
#[derive(Debug)]
pub(super) struct Machine {
    rules: Rules,
    processes: BTreeMap<Slot, Process>,
    /// How many current processes there should be.
    target: usize,
    /// A process of the newest definition has proved itself.
    works: bool,
    /// Ended early, one after the other.
    failures: u32,
    /// No start before this, after failures and where there was no room.
    next_start: Duration,
    /// A start that is only waiting for the time.
    start_due: Option<Duration>,
    bucket: Bucket,
    down: Option<Down>,
    chance: fastrand::Rng,
    /// How many the workers had use for when they last told; those that wait want all there are.
    needed: usize,
    surplus_since: Option<Duration>,
    /// Of the last update.
    sequence: u64,
    /// What that one has said.
    told: PoolPhase,
    is_changed: bool,
    is_stopping: bool,
    restarts: u64,
    /// Requests of the whole pool at the last report.
    requests_seen: u64,
    last_failure: Option<String>,
}

impl Machine {
    pub(super) fn new(rules: Rules, seed: u64, now: Duration) -> Machine {
        let size = u32::try_from(rules.min.clamp(8, 10_000)).unwrap_or(8);
        Machine {
            target: rules.min,
            rules,
            processes: BTreeMap::new(),
            works: false,
            failures: 0,
            next_start: now,
            start_due: None,
            bucket: Bucket::new(size, START_EACH, now),
            down: None,
            chance: fastrand::Rng::with_seed(seed),
            needed: 0,
            surplus_since: None,
            sequence: 0,
            told: PoolPhase::Starting,
            is_changed: true,
            is_stopping: false,
            restarts: 0,
            requests_seen: 0,
            last_failure: None,
        }
    }

    /// The settings say something else: processes are replaced one by one.
    pub(super) fn replace(&mut self, rules: Rules, now: Duration, out: &mut Vec<Action>) {
        self.target = self.target.clamp(rules.min, rules.max.max(rules.min));
        self.rules = rules;
        self.works = false;
        self.failures = 0;
        self.down = None;
        self.next_start = now;
        for process in self.processes.values_mut() {
            process.is_worn = true;
            process.is_former = true;
        }
        self.is_changed = true;
        self.advance(now, out);
    }

    /// The settings give it another user: no process of the one before gets another request, whether the new ones work
    /// or not.
    pub(super) fn restart(&mut self, rules: Rules, now: Duration, out: &mut Vec<Action>) {
        for slot in self.slots(|process| process.is_serving() || process.is_starting()) {
            self.retire(slot, now, out);
        }
        self.replace(rules, now, out);
    }

    /// Ends all processes: those with requests once they are done.
    pub(super) fn stop(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.is_stopping = true;
        self.is_changed = true;
        self.advance(now, out);
    }

    /// Ends all processes at once.
    pub(super) fn stop_now(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.is_stopping = true;
        for slot in self.slots(|process| !matches!(process.stage, Stage::Stopping { .. })) {
            self.terminate(slot, now, out);
        }
        self.is_changed = true;
        self.advance(now, out);
    }

    /// It is wanted again.
    pub(super) fn resume(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.is_stopping = false;
        self.is_changed = true;
        self.advance(now, out);
    }

    /// Whether all have ended that were to.
    pub(super) fn has_ended(&self) -> bool {
        self.is_stopping && self.processes.is_empty()
    }

    /// A process takes connections, and gets requests of the server's own first: its patience begins anew.
    pub(super) fn opened(&mut self, slot: Slot, now: Duration) {
        if let Some(process) = self.processes.get_mut(&slot) {
            process.patience_until = now + WARM_UP_PATIENCE;
            process.has_opened = true;
        }
    }

    /// Whether a process is ready only when it has accepted a connection, also on a socket that it was passed: until then
    /// others serve.
    pub(super) fn must_accept(&self) -> bool {
        self.is_on_trial() && !self.rules.is_shared
    }

    /// Whether the settings have yet to show that they work, while processes of those before serve.
    fn is_on_trial(&self) -> bool {
        !self.works && self.count(|process| process.is_former && process.is_serving()) > 0
    }

    /// A process takes requests: its socket was its own before it began, or it was asked and has answered.
    pub(super) fn ready(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        if let Some(process) = self.processes.get_mut(&slot) {
            process.ready_at.get_or_insert(now);
        }
        self.advance(now, out);
    }

    /// The system has no room for a process, which is no fault of its program: it is tried again later. `why` is a sentence.
    pub(super) fn postponed(&mut self, slot: Slot, why: &str, now: Duration, out: &mut Vec<Action>) {
        self.processes.remove(&slot);
        self.next_start = now + POSTPONED;
        self.last_failure = Some(why.to_owned());
        if self.down.replace(Down::NoRoom) != Some(Down::NoRoom) {
            out.push(Action::Say(why.to_owned()));
        }
        self.is_changed = true;
        self.advance(now, out);
    }

    /// A process has ended, or could not be started; `how` is a sentence's end: `ended with status 1`. `is_awaited`:
    /// connections wait in the backlog of its socket.
    pub(super) fn exited(
        &mut self,
        slot: Slot,
        how: &str,
        is_awaited: bool,
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        let Some(process) = self.processes.remove(&slot) else { return };
        self.is_changed = true; // requests may wait for it, whether it was to get further ones or not
        let was_asked = matches!(process.stage, Stage::Draining { .. } | Stage::Stopping { .. });
        if !was_asked && !self.is_stopping {
            self.restarts += 1;
            self.last_failure = Some(printable(how)); // with what the application has written last
            let age = now.saturating_sub(process.started);
            // Killed from outside, while others of its kind serve, says nothing about the program.
            let is_no_fault =
                how.starts_with(KILLED) && self.count(|other| other.is_current() && other.is_serving()) > 0;
            // However long it has lived, of some it is known that they have not begun to do what they are there for.
            let failed = if is_no_fault || process.is_former {
                None
            } else if is_awaited && !process.has_answered {
                Some("before it has answered a request")
            } else if !process.is_proved && age < PROOF {
                Some("soon after its start")
            } else if process.ready_at.is_none() {
                Some("before it took requests")
            } else if !process.is_proved && self.is_on_trial() {
                Some("soon after it took requests")
            } else {
                None
            };
            match failed {
                Some(when) => {
                    self.failures = self.failures.max(process.failures_before);
                    self.fail(&format!("{how} {when}"), now, out);
                }
                None => {
                    let next = if process.is_former {
                        "a new definition takes its place"
                    } else {
                        "another is started"
                    };
                    out.push(Action::Say(format!("a process {how} after {} s; {next}", age.as_secs())));
                }
            }
        }
        self.advance(now, out);
    }

    fn fail(&mut self, how: &str, now: Duration, out: &mut Vec<Action>) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > 1 {
            self.down = Some(Down::Failing);
        }
        let pause = pause(self.failures, self.chance.u8(..));
        self.next_start = now + pause;
        self.is_changed = true;
        let meanwhile = if self.is_on_trial() { "; those before it go on serving" } else { "" };
        out.push(Action::Say(match pause {
            Duration::ZERO => format!("a process {how}{meanwhile}; another is started"),
            _ => format!(
                "a process {how}, {} times in a row{meanwhile}; next attempt in {} ms",
                self.failures,
                pause.as_millis()
            ),
        }));
    }

    /// Does what is due by now.
    pub(super) fn advance(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.pass_time(now, out);
        self.shrink(now);
        if self.is_stopping {
            for slot in self.slots(|process| process.is_serving() || process.is_starting()) {
                self.retire(slot, now, out);
            }
        } else {
            self.start_missing(now, out);
            self.drain_surplus(now, out);
        }
        if std::mem::take(&mut self.is_changed) || self.told != self.phase() {
            self.told = self.phase();
            self.sequence += 1;
            out.push(Action::Publish);
        }
    }

    fn pass_time(&mut self, now: Duration, out: &mut Vec<Action>) {
        for slot in self.slots(|_| true) {
            let (is_on_trial, proof) = (self.is_on_trial(), self.proof());
            let Some(process) = self.processes.get_mut(&slot) else { continue };
            if let Stage::Starting { not_before } = process.stage
                && process.ready_at.is_some()
                && now >= not_before
            {
                process.stage = Stage::Serving { since: self.sequence + 1 };
                self.is_changed = true;
                process.trial_since = is_on_trial.then_some(now);
            }
            if process.proving_since().is_some_and(|since| now.saturating_sub(since) >= proof) {
                process.is_proved = true;
                self.works = true;
                self.failures = 0;
                self.down = self.down.filter(|down| *down == Down::NoRoom); // for others there may still be none
            }
            match process.stage {
                Stage::Starting { .. } if process.ready_at.is_none() && now >= process.patience_until => {
                    self.restarts += 1;
                    let how = match process.has_opened {
                        true => format!("was held up by `warm-up` for {WARM_UP_PATIENCE:?}"),
                        false => {
                            let patience = self.rules.start_timeout;
                            format!("took no requests within {patience:?} (`start-timeout`)")
                        }
                    };
                    self.fail(&how, now, out);
                    self.last_failure = Some(how);
                    self.terminate(slot, now, out);
                }
                Stage::Draining { until, .. } if now >= until => self.terminate(slot, now, out),
                Stage::Stopping { kill_at: Some(at) } if now >= at => {
                    process.stage = Stage::Stopping { kill_at: None };
                    out.push(Action::Say("a process did not end when told to; it is killed".into()));
                    out.push(Action::Kill(slot));
                }
                _ => {}
            }
        }
    }

    /// How long a process has to take requests.
    fn proof(&self) -> Duration {
        if self.rules.is_shared && self.is_on_trial() { SHARED_PROOF } else { PROOF }
    }

    /// Wants one process less where more than are needed have been there for long. Workers that want nothing tell nothing,
    /// so the clock alone has to bring this about.
    fn shrink(&mut self, now: Duration) {
        if !self.has_surplus() {
            self.surplus_since = None;
            return;
        }
        let since = *self.surplus_since.get_or_insert(now);
        if now.saturating_sub(since) >= self.rules.idle {
            self.target -= 1;
            if self.target == 0 {
                self.down = self.down.map(|_| Down::Untried);
            }
            // The next one follows soon: the surplus has lasted as long already.
            self.surplus_since = self.has_surplus().then_some(now.saturating_sub(self.rules.idle * 7 / 8));
        }
    }

    fn has_surplus(&self) -> bool {
        self.needed.max(self.rules.min) < self.target
    }

    fn start_missing(&mut self, now: Duration, out: &mut Vec<Action>) {
        let current = self.count(Process::is_current);
        let worn = self.count(|process| process.is_worn && (process.is_serving() || process.is_starting()));
        // While old ones are replaced there may be one more than wanted.
        let room = if worn > 0 { (self.target + 1).saturating_sub(current + worn) } else { usize::MAX };
        let mut missing = self.target.saturating_sub(current).min(room);
        if self.failures > 1 {
            // One tries for all.
            missing = missing.min(usize::from(self.count(Process::is_starting) == 0));
        }
        self.start_due = None;
        if missing == 0 {
            self.down = self.down.filter(|down| *down != Down::NoRoom);
            return;
        }
        if now < self.next_start {
            self.start_due = Some(self.next_start);
            return;
        }
        while missing > 0 && self.bucket.take(now) {
            missing -= 1;
            let slot = (0..).find(|slot| !self.processes.contains_key(slot));
            let Some(slot) = slot else { return };
            let not_before = if self.failures > 1 { now + PROOF } else { now };
            let process = Process {
                stage: Stage::Starting { not_before },
                started: now,
                ready_at: None,
                trial_since: None,
                patience_until: now + self.rules.start_timeout,
                has_opened: false,
                is_proved: false,
                is_worn: false,
                is_former: false,
                failures_before: self.failures,
                answered: None,
                has_answered: false,
                is_shared: self.rules.is_shared,
                requests: 0,
                in_use: 0,
            };
            self.processes.insert(slot, process);
            out.push(Action::Start(slot));
        }
        if missing > 0 {
            self.start_due = Some(self.bucket.next());
        }
    }

    fn drain_surplus(&mut self, now: Duration, out: &mut Vec<Action>) {
        // Worn ones first, as soon as enough others serve: others that work, where the definition is new.
        loop {
            let works = self.works;
            let serving = self.count(|process| process.is_serving() && (works || process.is_worn));
            let worn = self.slots(|process| process.is_worn && process.is_serving());
            let oldest = worn.into_iter().min_by_key(|slot| self.processes[slot].started);
            let Some(slot) = oldest.filter(|_| serving > self.target) else { break };
            self.retire(slot, now, out);
        }
        for slot in self.slots(|process| process.is_worn && process.is_starting()) {
            self.retire(slot, now, out);
        }
        loop {
            let current = self.slots(Process::is_current);
            if current.len() <= self.target {
                return;
            }
            // The one with the least to do, the youngest among those.
            let least = current.into_iter().min_by_key(|slot| {
                let process = &self.processes[slot];
                (process.is_serving(), process.in_use, std::cmp::Reverse(process.started))
            });
            let Some(slot) = least else { return };
            self.retire(slot, now, out);
        }
    }

    /// Gives it no further requests, and tells it to end once it has none.
    fn retire(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        let Some(process) = self.processes.get_mut(&slot) else { return };
        if process.is_serving() {
            self.is_changed = true;
        }
        if process.is_shared || process.is_starting() {
            return self.terminate(slot, now, out);
        }
        process.stage = Stage::Draining { since: self.sequence + 1, until: now + DRAIN_PATIENCE };
    }

    fn terminate(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        let Some(process) = self.processes.get_mut(&slot) else { return };
        if process.is_serving() {
            self.is_changed = true;
        }
        process.stage = Stage::Stopping { kill_at: Some(now + self.rules.stop_timeout) };
        out.push(Action::Terminate(slot));
    }

    fn count(&self, is_counted: impl Fn(&Process) -> bool) -> usize {
        self.processes.values().filter(|process| is_counted(process)).count()
    }

    fn slots(&self, is_meant: impl Fn(&Process) -> bool) -> Vec<Slot> {
        self.processes.iter().filter(|(_, process)| is_meant(process)).map(|(slot, _)| *slot).collect()
    }
}
