//! The side that has the scenario: gathers its agents, starts them at one time, takes in what they tell, and says which were lost.
//! It owns no socket and reads no clock: events and times come in, frames to be sent go out of [`Controller::sends`].

use super::messages::{Ack, Delta, Ended, Frame, Hello, Kind, Ping, Prepare, Reason, Start, Totals};
use super::offset::Offset;
use super::record::{self, Bounds};
use super::{BEAT, LOST, PINGS, PREPARING, PROTOCOL, SUSPECT, fingerprint};
use crate::clock::ns;
use crate::quantity::show_duration;
use crate::run::Progress;
use crate::scenario::record::{Outcome, Second};
use crate::scenario::{Gathering, Message, Operation, Scenario, SecondOfWorker, estimate};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The least time from the last measurement of clocks to the start.
const LEAD: Duration = Duration::from_secs(3);

/// Clocks that lie apart by this are worth a note, and by this spoil the run.
const SKEW: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Time over what the scenario takes that agents have to end.
const OVERTIME: Duration = Duration::from_secs(10);

/// Workers of one agent at most.
const MOST_THREADS: u32 = 1_024;

/// Why there was no run.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// One of them is at fault, before the load.
    #[error("{agent}: {reason}; nothing was run")]
    Agent {
        /// Its name and address.
        agent: String,
        /// What is wrong.
        reason: String,
    },
    /// They did not come.
    #[error("{there} of {wanted} agents were there after {}; nothing was run", show_duration(*.after))]
    Missing {
        /// So many came.
        there: usize,
        /// So many are wanted.
        wanted: usize,
        /// The time they had.
        after: Duration,
    },
    /// Somebody wanted it to end before it began.
    #[error("interrupted before the start; nothing was run")]
    Interrupted,
}

/// What is to be sent.
#[derive(Debug, PartialEq)]
pub enum Send {
    /// To the agent of a link.
    Frame(u64, Frame),
    /// The link is of no more use; what was sent before is to arrive.
    Close(u64),
}

/// What all agents do.
pub struct Orders<'s> {
    /// As the controller has it, with users and times in force.
    pub scenario: &'s Scenario,
    /// What all of them are told; the controller fills in index, number and fingerprint.
    pub prepare: Prepare,
    /// So many.
    pub agents: usize,
    /// The time that they have to come.
    pub patience: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Connected, and has said nothing.
    Silent,
    /// Has said who it is.
    There,
    Preparing,
    Pinged(u32),
    Measured,
    Running,
    /// Has told everything.
    Done,
    Lost,
}

/// An agent.
struct Member {
    link: u64,
    /// Where it is.
    peer: String,
    name: String,
    index: Option<u32>,
    stage: Stage,
    threads: u32,
    tls: Option<String>,
    /// Monotonic nanoseconds at which it was heard last.
    heard: u64,
    is_suspect: bool,
    offset: Offset,
    bounds: Bounds,
    totals: Totals,
    memory: u64,
}

impl Member {
    fn title(&self) -> String {
        let number = self.index.map_or_else(|| "agent".to_owned(), |index| format!("agent {}", index + 1));
        if self.name.is_empty() {
            return format!("{number} at {}", self.peer);
        }
        format!("{number} ({}, {})", self.name, self.peer)
    }

    fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }
}

/// What there is of a run.
enum Phase<O> {
    /// Since when, monotonic nanoseconds.
    Joining(u64, O),
    /// Ready, pinged, started.
    Running { gathering: Box<Gathering<O>>, start: u64 },
    /// Between two of them, or after the last.
    Over,
}

/// A run over several agents.
pub struct Controller<'s, O> {
    orders: Orders<'s>,
    members: Vec<Member>,
    phase: Phase<O>,
    /// Seconds that not all have told of.
    held: BTreeMap<u32, Vec<SecondOfWorker>>,
    sends: Vec<Send>,
    beat: u64,
    faults: Vec<String>,
    notes: Vec<String>,
    /// For the terminal.
    said: Vec<String>,
    is_stopped: bool,
    is_cut_short: bool,
    /// When those that were stopped must have ended.
    deadline: u64,
}

impl<'s, O: FnMut(Progress, &Second)> Controller<'s, O> {
    /// A run that waits for its agents from `now` on. `observe` is called after each second.
    pub fn new(mut orders: Orders<'s>, now: u64, observe: O) -> Self {
        orders.prepare.protocol = PROTOCOL;
        orders.prepare.of = orders.agents as u32;
        orders.prepare.fingerprint = fingerprint(orders.scenario);
        Controller {
            orders,
            members: Vec::new(),
            phase: Phase::Joining(now, observe),
            held: BTreeMap::new(),
            sends: Vec::new(),
            beat: now,
            faults: Vec::new(),
            notes: Vec::new(),
            said: Vec::new(),
            is_stopped: false,
            is_cut_short: false,
            deadline: u64::MAX,
        }
    }

    /// What is to be sent, in order.
    pub fn sends(&mut self) -> Vec<Send> {
        std::mem::take(&mut self.sends)
    }

    /// What somebody at the terminal wants to know.
    pub fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// Monotonic nanoseconds of the start, once it is known.
    pub fn start(&self) -> Option<u64> {
        match &self.phase {
            Phase::Running { start, .. } => Some(*start),
            _ => None,
        }
    }

    /// Somebody has connected, or was connected to.
    pub fn joined(&mut self, link: u64, peer: String, now: u64) {
        if self.members.len() >= self.orders.agents || !matches!(self.phase, Phase::Joining(..)) {
            let reason = format!("the run has its {} agents", self.orders.agents);
            self.refuse(link, reason);
            return;
        }
        self.members.push(Member {
            link,
            peer,
            name: String::new(),
            index: None,
            stage: Stage::Silent,
            threads: 0,
            tls: None,
            heard: now,
            is_suspect: false,
            offset: Offset::default(),
            bounds: Bounds {
                first_worker: 0,
                seconds: Vec::new(),
                operations: self.orders.scenario.operations.iter().map(Operation::counts).collect(),
                users: 0,
                open: 0,
                length: 0,
            },
            totals: Totals::default(),
            memory: 0,
        });
    }

    /// A link has ended.
    ///
    /// # Errors
    /// It was needed for the start.
    pub fn closed(&mut self, link: u64, reason: &str, now: u64) -> Result<(), ControllerError> {
        match self.place(link) {
            Some(place) => self.fail(place, reason, now),
            None => Ok(()),
        }
    }

    /// A frame has come.
    ///
    /// # Errors
    /// An agent will not or must not take part.
    pub fn frame(&mut self, link: u64, frame: Frame, now: u64) -> Result<(), ControllerError> {
        let Some(place) = self.place(link) else { return Ok(()) };
        match self.take(place, frame, now) {
            Ok(()) => Ok(()),
            Err(reason) => self.fail(place, &reason, now),
        }
    }

    /// Time has passed; `is_stopped` says whether somebody wants the run to end.
    ///
    /// # Errors
    /// The agents did not come, or are silent, before the start; or it was not to be.
    pub fn tick(&mut self, now: u64, is_stopped: bool) -> Result<(), ControllerError> {
        let is_joining = matches!(self.phase, Phase::Joining(..));
        if is_stopped && is_joining {
            self.stop_all("the run was interrupted before its start");
            return Err(ControllerError::Interrupted);
        }
        if is_stopped && !self.is_stopped {
            self.is_stopped = true;
            self.stop_running("interrupted", now);
        }
        if let Phase::Joining(since, _) = &self.phase {
            let there = self.members.iter().filter(|member| member.stage != Stage::Silent).count();
            let after = self.orders.patience;
            if there < self.orders.agents && now.saturating_sub(*since) > ns(after) {
                self.stop_all("not all agents came");
                return Err(ControllerError::Missing { there, wanted: self.orders.agents, after });
            }
        }
        for place in 0..self.members.len() {
            self.watch(place, now)?;
        }
        if now.saturating_sub(self.beat) >= ns(BEAT) {
            self.beat = now;
            let started = self.members.iter().filter(|member| member.is_running());
            let pings = started.map(|member| Send::Frame(member.link, Kind::Ping(Ping { sent: now }).into()));
            self.sends.extend(pings);
        }
        Ok(())
    }

    /// Whether all have told everything, or were lost.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Running { .. }) && !self.members.iter().any(Member::is_running)
    }

    /// What the run gave; nothing where it has not begun.
    pub fn finish(mut self) -> Option<Outcome> {
        self.release(true);
        let Phase::Running { gathering, .. } = std::mem::replace(&mut self.phase, Phase::Over) else {
            return None;
        };
        let mut outcome = gathering.finish(self.orders.scenario, self.is_stopped);
        outcome.is_cut_short = self.is_cut_short;
        outcome.faults.append(&mut self.faults);
        outcome.notes.append(&mut self.notes);
        outcome.memory += self.members.iter().map(|member| member.memory).sum::<u64>();
        outcome.tls = self.members.iter().find_map(|member| member.tls.clone());
        for member in &self.members {
            let skew = member.offset.skew();
            let (title, apart) = (member.title(), show_duration(skew));
            if skew > SKEW.1 {
                outcome.faults.push(format!(
                    "the clock of {title} may be {apart} off: its seconds are not those of the others; use a network with \
                     shorter round trips"
                ));
            } else if skew > SKEW.0 {
                outcome.notes.push(format!("the clock of {title} may be {apart} off"));
            }
            let threads = if member.threads == 1 {
                "1 thread".to_owned()
            } else {
                format!("{} threads", member.threads)
            };
            let trip = show_duration(member.offset.round_trip());
            outcome.agents.push(format!(
                "{title}: {threads}, {} operations, round trip {trip}",
                member.totals.operations
            ));
        }
        Some(outcome)
    }

    fn place(&self, link: u64) -> Option<usize> {
        self.members.iter().position(|member| member.link == link)
    }

    fn refuse(&mut self, link: u64, reason: String) {
        self.sends.push(Send::Frame(link, Kind::Refuse(Reason { reason }).into()));
        self.sends.push(Send::Close(link));
    }

    /// An agent that says what it must not, or is gone.
    fn fail(&mut self, place: usize, reason: &str, now: u64) -> Result<(), ControllerError> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        match member.stage {
            Stage::Done | Stage::Lost => return Ok(()),
            // Somebody who came and went again without a word: a port scan, a check of health.
            Stage::Silent => {
                let member = self.members.remove(place);
                self.said.push(format!("{} left again: {reason}", member.title()));
                self.refuse(member.link, reason.to_owned());
                return Ok(());
            }
            Stage::Running => {}
            _ => {
                let error = ControllerError::Agent { agent: member.title(), reason: reason.to_owned() };
                let link = member.link;
                self.refuse(link, reason.to_owned());
                self.stop_all("another agent could not take part");
                return Err(error);
            }
        }
        member.stage = Stage::Lost;
        let (title, link) = (member.title(), member.link);
        let start = self.start().unwrap_or(now);
        let after = show_duration(Duration::from_nanos(now.saturating_sub(start)));
        let sentence =
            format!("{title} was lost {after} after the start: {reason}; the other agents were stopped");
        self.said.push(sentence.clone());
        self.faults.push(sentence);
        self.is_cut_short = true;
        self.refuse(link, format!("this agent counts as lost: {reason}"));
        self.stop_running("another agent was lost", now);
        self.release(false);
        Ok(())
    }

    /// Those that run end, and say what there is.
    fn stop_running(&mut self, reason: &str, now: u64) {
        for member in self.members.iter().filter(|member| member.is_running()) {
            let stop = Kind::Stop(Reason { reason: reason.to_owned() });
            self.sends.push(Send::Frame(member.link, stop.into()));
        }
        self.deadline = self.deadline.min(now.saturating_add(ns(OVERTIME)));
    }

    /// Nobody is needed any more.
    fn stop_all(&mut self, reason: &str) {
        for member in &self.members {
            let refusal = Kind::Refuse(Reason { reason: reason.to_owned() });
            self.sends.push(Send::Frame(member.link, refusal.into()));
            self.sends.push(Send::Close(member.link));
        }
    }

    /// Silence, and what takes too long.
    fn watch(&mut self, place: usize, now: u64) -> Result<(), ControllerError> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        let silence = Duration::from_nanos(now.saturating_sub(member.heard));
        let patience = match member.stage {
            // Others may still be on their way; who is there keeps quiet.
            Stage::There | Stage::Measured | Stage::Done | Stage::Lost => return Ok(()),
            Stage::Preparing => PREPARING,
            Stage::Silent | Stage::Pinged(_) | Stage::Running => LOST,
        };
        if silence > patience {
            return self.fail(place, &format!("it has been silent for {}", show_duration(patience)), now);
        }
        if !member.is_running() {
            return Ok(());
        }
        if silence > SUSPECT && !member.is_suspect {
            member.is_suspect = true;
            let sentence = format!("{} has been silent for {}", member.title(), show_duration(SUSPECT));
            self.said.push(sentence.clone());
            self.notes.push(sentence);
        }
        if now > self.deadline {
            return self.fail(place, "it has not ended in time", now);
        }
        Ok(())
    }

    /// One frame of an agent that is known.
    fn take(&mut self, place: usize, frame: Frame, now: u64) -> Result<(), String> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        member.heard = now;
        let stage = member.stage;
        match (stage, frame.kind) {
            (Stage::Done | Stage::Lost, _) => Ok(()),
            (_, Some(Kind::Refuse(Reason { reason }))) => {
                // Whoever says so is one, though it has not said which.
                member.stage = if stage == Stage::Silent { Stage::There } else { stage };
                Err(record::text(reason))
            }
            (Stage::Silent, Some(Kind::Hello(hello))) => self.hello(place, hello),
            (Stage::Preparing, Some(Kind::Ready(ready))) => {
                if ready.threads == 0 || ready.threads > MOST_THREADS {
                    return Err(format!(
                        "it has {} threads; 1 to {MOST_THREADS} are possible",
                        ready.threads
                    ));
                }
                member.threads = ready.threads;
                member.tls = ready.tls.map(record::text);
                member.stage = Stage::Pinged(0);
                self.ping(place, now);
                Ok(())
            }
            (Stage::Pinged(count), Some(Kind::Pong(pong))) => {
                member.offset.add(pong.sent.min(now), pong.received, now);
                if count + 1 < PINGS {
                    member.stage = Stage::Pinged(count + 1);
                    self.ping(place, now);
                } else {
                    member.stage = Stage::Measured;
                    self.start_all(now)?;
                }
                Ok(())
            }
            (Stage::Running, Some(Kind::Pong(pong))) => {
                member.offset.add(pong.sent.min(now), pong.received, now);
                Ok(())
            }
            (Stage::Running, Some(Kind::Delta(delta))) => self.delta(place, *delta),
            (Stage::Running, Some(Kind::Ended(ended))) => self.ended(place, ended, now),
            (Stage::Running, Some(Kind::Totals(totals))) => self.totals(place, totals),
            // What a newer version says beside.
            (_, None) => Ok(()),
            (_, Some(_)) => Err("it sent a message that is not due".to_owned()),
        }
    }

    fn hello(&mut self, place: usize, hello: Hello) -> Result<(), String> {
        let prepare = &self.orders.prepare;
        let name = record::text(hello.name).chars().take(64).collect();
        let is_taken = |index| self.members.iter().any(|other| other.index == Some(index));
        let is_known = hello.index.is_some_and(is_taken);
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        member.name = name;
        member.stage = Stage::There;
        if hello.protocol != PROTOCOL || hello.program != prepare.program {
            return Err(format!(
                "it is of version {} (protocol {}), and this controller of version {} (protocol {PROTOCOL}); use one version \
                 on all machines",
                record::text(hello.program),
                hello.protocol,
                prepare.program
            ));
        }
        if let Some(index) = hello.index {
            if index >= prepare.of {
                return Err(format!(
                    "its index is {index}, and the run has {} agents, from 0 on",
                    prepare.of
                ));
            }
            if is_known {
                return Err(format!("its index {index} is that of another agent"));
            }
        }
        member.index = hello.index;
        let there = self.members.iter().filter(|member| member.stage == Stage::There).count();
        if there == self.orders.agents {
            self.prepare();
        }
        Ok(())
    }

    /// All are there: who is which, and what they do.
    fn prepare(&mut self) {
        let taken: Vec<u32> = self.members.iter().filter_map(|member| member.index).collect();
        let mut free = (0..self.orders.prepare.of).filter(|index| !taken.contains(index));
        for member in &mut self.members {
            member.index = member.index.or_else(|| free.next());
            member.stage = Stage::Preparing;
            let prepare = Prepare { index: member.index.unwrap_or(0), ..self.orders.prepare.clone() };
            self.sends.push(Send::Frame(member.link, Kind::Prepare(Box::new(prepare)).into()));
        }
        self.members.sort_by_key(|member| member.index);
        let titles: Vec<String> = self.members.iter().map(Member::title).collect();
        self.said.push(format!("all agents are there: {}", titles.join(", ")));
    }

    fn ping(&mut self, place: usize, now: u64) {
        if let Some(member) = self.members.get(place) {
            self.sends.push(Send::Frame(member.link, Kind::Ping(Ping { sent: now }).into()));
        }
    }

    /// Where all clocks are measured: the start.
    fn start_all(&mut self, now: u64) -> Result<(), String> {
        if self.members.iter().any(|member| member.stage != Stage::Measured) {
            return Ok(());
        }
        let longest = self.members.iter().map(|member| member.offset.longest()).max().unwrap_or_default();
        let start = now.saturating_add(ns(LEAD.max(longest * 10)));
        let scenario = self.orders.scenario;
        let length = scenario.phases.whole() + Duration::from_nanos(self.orders.prepare.grace);
        let mut workers = 0;
        for member in &mut self.members {
            let at = member.offset.fix(start).ok_or("its clock cannot be reckoned with")?;
            let users =
                scenario.load.most_users().div_ceil(self.orders.prepare.of.max(1)).div_ceil(member.threads);
            member.bounds.first_worker = workers;
            member.bounds.seconds = vec![0; member.threads as usize];
            member.bounds.users = users + 1;
            member.bounds.open = (users + 1).saturating_mul(scenario.client.most_connections());
            member.bounds.length = u32::try_from((length + OVERTIME).as_secs()).unwrap_or(u32::MAX);
            member.stage = Stage::Running;
            workers += member.threads;
            self.sends.push(Send::Frame(member.link, Kind::Start(Start { at }).into()));
        }
        self.deadline = start.saturating_add(ns(length + OVERTIME));
        let lead = Duration::from_nanos(start.saturating_sub(now));
        let started = (SystemTime::now() + lead).duration_since(UNIX_EPOCH).unwrap_or_default();
        let Phase::Joining(_, observe) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Ok(());
        };
        let gathering = Box::new(Gathering::new(scenario, workers, started.as_secs_f64(), observe));
        self.phase = Phase::Running { gathering, start };
        let rate = estimate(scenario, workers).rate;
        self.said.push(format!(
            "they start in {}, with {rate:.1} operations a second by the clocks",
            show_duration(lead)
        ));
        Ok(())
    }

    fn delta(&mut self, place: usize, delta: Delta) -> Result<(), String> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        let sequence = delta.sequence;
        in_order(sequence, &member.totals)?;
        let second = record::second(delta, &mut member.bounds).map_err(|error| error.to_string())?;
        member.totals.add(&second).ok_or("it tells of more than any machine could do")?;
        let (link, number) = (member.link, second.requests.interval);
        self.held.entry(number).or_default().push(second);
        self.sends.push(Send::Frame(link, Kind::Ack(Ack { sequence }).into()));
        self.release(false);
        Ok(())
    }

    fn ended(&mut self, place: usize, ended: Ended, now: u64) -> Result<(), String> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        let sequence = ended.sequence;
        in_order(sequence, &member.totals)?;
        member.totals.frames += 1;
        let (link, title, gave_up) = (member.link, member.title(), ended.gave_up);
        let mut end = record::end(ended, self.orders.scenario, &mut member.bounds)
            .map_err(|error| error.to_string())?;
        if let Message::End { fault, .. } = &mut end
            && let Some(error) = fault.take()
        {
            self.faults.push(format!("a worker of {title} ended: {error}"));
            self.is_cut_short = true;
        }
        self.gather(end);
        self.sends.push(Send::Frame(link, Kind::Ack(Ack { sequence }).into()));
        if gave_up {
            self.stop_running("the target accepts no more connections", now);
        }
        Ok(())
    }

    fn totals(&mut self, place: usize, told: Totals) -> Result<(), String> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        if member.bounds.seconds.iter().any(|told| *told != record::ENDED) {
            return Err("it ended before its workers did".to_owned());
        }
        member.stage = Stage::Done;
        // 64 TiB, so that the sum is one.
        member.memory = told.memory.min(1 << 46);
        let (link, title) = (member.link, member.title());
        if let Some(difference) = member.totals.difference(&told) {
            self.faults.push(format!("the records of {title} are not whole: {difference}"));
        }
        self.sends.push(Send::Frame(link, Kind::Ack(Ack { sequence: told.frames }).into()));
        self.sends.push(Send::Close(link));
        self.release(false);
        Ok(())
    }

    fn gather(&mut self, message: Message) {
        if let Phase::Running { gathering, .. } = &mut self.phase {
            gathering.take(message);
        }
    }

    /// Hands over the seconds of which all that still run have told, in order.
    fn release(&mut self, is_all: bool) {
        let running = self.members.iter().filter(|member| member.is_running());
        let told = running.flat_map(|member| member.bounds.seconds.iter()).min().copied();
        while let Some(entry) = self.held.first_entry() {
            if !is_all && told.is_some_and(|told| *entry.key() >= told) {
                return;
            }
            for second in entry.remove() {
                self.gather(Message::Second(Box::new(second)));
            }
        }
    }
}

fn in_order(sequence: u64, totals: &Totals) -> Result<(), String> {
    if sequence == totals.frames {
        return Ok(());
    }
    Err(record::RecordError::Sequence { told: sequence, before: totals.frames }.to_string())
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
