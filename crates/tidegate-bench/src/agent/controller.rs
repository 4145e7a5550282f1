//! The side that has the scenario: gathers its agents, starts them at one time, takes in what they tell, and says which were lost.
//! It owns no socket and reads no clock: events and times come in, frames to be sent go out of [`Controller::sends`]. What agents say is
//! taken in by `take`. A link that is lost is no lost agent: it may be made again until the agent was silent for too long. Nobody is
//! left before it knows that all it told was taken in, or was silent for too long.

mod take;

use super::member::{Link, Member, Stage};
use super::messages::{Ack, Frame, Kind, Ping, Prepare, Reason};
use super::{BEAT, LOST, MOST_REJOINS, PREPARING, PROTOCOL, REJOINING, SUSPECT, fingerprints};
use crate::clock::ns;
use crate::quantity::show_duration;
use crate::run::Progress;
use crate::scenario::record::{Outcome, Second};
use crate::scenario::{Gathering, Operation, Scenario, SecondOfWorker};
use crate::systems::Figures;
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

/// Clocks that lie apart by this are worth a note, and by this spoil the run.
const SKEW: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Time over what the scenario takes that agents have to end.
const OVERTIME: Duration = Duration::from_secs(10);

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
    #[error("{there} of {wanted} agents were there after {}{}; nothing was run", show_duration(*.after), missing(.who))]
    Missing {
        /// So many came.
        there: usize,
        /// So many are wanted.
        wanted: usize,
        /// The time they had.
        after: Duration,
        /// Those that were dialled and have said nothing.
        who: Vec<String>,
    },
    /// Somebody wanted it to end before it began.
    #[error("interrupted before the start; nothing was run")]
    Interrupted,
}

fn missing(who: &[String]) -> String {
    if who.is_empty() { String::new() } else { format!(", all but {}", who.join(", ")) }
}

/// What is to be done with links.
#[derive(Debug, PartialEq)]
pub enum Send {
    /// To the agent of a link.
    Frame(u64, Frame),
    /// The link is of no more use; what was sent before is to arrive.
    Close(u64),
    /// This peer is to be dialled again.
    Dial {
        /// As it was called when it joined.
        peer: String,
        /// What the call names, where the link goes on with a session: without one it is a first link, before the start.
        session: Option<u64>,
    },
}

/// Figures of an agent's machine, for the folder of the run.
#[derive(Debug, PartialEq)]
pub struct Watched {
    /// What files call the machine; not yet fit for a file name.
    pub system: String,
    /// Seconds from the start of the run.
    pub at: f64,
    /// By name.
    pub figures: Figures,
}

/// What all agents do.
pub struct Orders<'s> {
    /// As the controller has it, with users and times in force.
    pub scenario: &'s Scenario,
    /// What all of them are told; the controller fills in index, number, fingerprints and session.
    pub prepare: Prepare,
    /// So many.
    pub agents: usize,
    /// The time that they have to come.
    pub patience: Duration,
    /// Those that this side dials, as they are called when they join, in the order of their numbers; empty where agents dial.
    pub dialled: Vec<String>,
    /// Drawn at random for this run: what sessions are made of.
    pub secret: u64,
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

/// Somebody who has dialled this side and has not said who it is: it takes nobody's place.
struct Newcomer {
    link: u64,
    peer: String,
    /// Monotonic nanoseconds.
    since: u64,
}

/// A run over several agents.
pub struct Controller<'s, O> {
    orders: Orders<'s>,
    members: Vec<Member>,
    newcomers: Vec<Newcomer>,
    /// Since when everybody who is there has to have been heard before they prepare, monotonic nanoseconds.
    called: u64,
    phase: Phase<O>,
    /// Seconds that not all have told of.
    held: BTreeMap<u32, Vec<SecondOfWorker>>,
    sends: Vec<Send>,
    /// When time passed last, and when pings were sent.
    ticked: u64,
    beat: u64,
    faults: Vec<String>,
    notes: Vec<String>,
    /// For the terminal.
    said: Vec<String>,
    watched: Vec<Watched>,
    /// Somebody wants the run to end.
    is_stopped: bool,
    /// Why those that run were told to end, if they were.
    stopping: Option<String>,
    is_cut_short: bool,
    /// When those that were stopped must have ended.
    deadline: u64,
}

impl<'s, O: FnMut(Progress, &Second)> Controller<'s, O> {
    /// A run that waits for its agents from `now` on. `observe` is called after each second.
    pub fn new(mut orders: Orders<'s>, now: u64, observe: O) -> Self {
        orders.prepare.protocol = PROTOCOL;
        orders.prepare.of = orders.agents as u32;
        orders.prepare.fingerprints = fingerprints(orders.scenario);
        Controller {
            orders,
            members: Vec::new(),
            newcomers: Vec::new(),
            called: now,
            phase: Phase::Joining(now, observe),
            held: BTreeMap::new(),
            sends: Vec::new(),
            ticked: now,
            beat: now,
            faults: Vec::new(),
            notes: Vec::new(),
            said: Vec::new(),
            watched: Vec::new(),
            is_stopped: false,
            stopping: None,
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

    /// Figures of agents' machines that came since the last call.
    pub fn watched(&mut self) -> Vec<Watched> {
        std::mem::take(&mut self.watched)
    }

    /// Monotonic nanoseconds of the start, once it is known.
    pub fn start(&self) -> Option<u64> {
        match &self.phase {
            Phase::Running { start, .. } => Some(*start),
            _ => None,
        }
    }

    /// Somebody has connected, or was connected to; with a session, to go on with it.
    pub fn joined(&mut self, link: u64, peer: String, session: Option<u64>, now: u64) {
        if let Some(session) = session {
            return self.joined_again(link, session, now);
        }
        let has_place = matches!(self.phase, Phase::Joining(..)) && self.has_place();
        if !has_place {
            let reason = self.has_all();
            return self.refuse(link, reason);
        }
        if !self.dials() {
            self.newcomers.push(Newcomer { link, peer, since: now });
            return;
        }
        let is_back = |member: &&mut Member| member.stage == Stage::Away && member.peer == peer;
        if let Some(member) = self.members.iter_mut().find(is_back) {
            return member.rejoin(link, peer, now);
        }
        self.add(link, peer, now);
    }

    /// Whether this side dials its agents.
    fn dials(&self) -> bool {
        !self.orders.dialled.is_empty()
    }

    /// Whether an agent is wanted still, or in the place of one that is away.
    fn has_place(&self) -> bool {
        self.members.len() < self.orders.agents
            || self.members.iter().any(|member| member.stage == Stage::Away)
    }

    fn has_all(&self) -> String {
        format!("the run has all of its agents ({})", self.orders.agents)
    }

    fn add(&mut self, link: u64, peer: String, now: u64) {
        let operations = self.orders.scenario.operations.iter().map(Operation::counts).collect();
        self.members.push(Member::new(link, peer, operations, now));
    }

    /// A newcomer has a place once it says who it is: that of one that is away, by its number if it has one, or its own.
    fn seat(&mut self, newcomer: Newcomer, index: Option<u32>, now: u64) {
        let Newcomer { link, peer, .. } = newcomer;
        if !self.has_place() {
            let reason = self.has_all();
            return self.refuse(link, reason);
        }
        // Agents that dial come from any port.
        let is_away = |member: &Member| member.stage == Stage::Away;
        let own = self
            .members
            .iter()
            .position(|member| is_away(member) && index.is_some() && member.index == index);
        let place = own.or_else(|| self.members.iter().position(is_away));
        match place.and_then(|place| self.members.get_mut(place)) {
            Some(member) => member.rejoin(link, peer, now),
            None => self.add(link, peer, now),
        }
    }

    /// Somebody who has not said who it is goes, or is sent away: a port scan, a check of health.
    fn turn_away(&mut self, newcomer: Newcomer, reason: &str) {
        self.said.push(format!("agent at {} left again: {reason}", newcomer.peer));
        self.refuse(newcomer.link, reason.to_owned());
    }

    fn newcomer(&mut self, link: u64) -> Option<Newcomer> {
        let place = self.newcomers.iter().position(|newcomer| newcomer.link == link)?;
        Some(self.newcomers.remove(place))
    }

    /// Another link to an agent under load: from what was taken in, the agent tells again.
    fn joined_again(&mut self, link: u64, session: u64, now: u64) {
        let is_known = |member: &&mut Member| {
            member.session == session && (member.needs_link() || member.stage == Stage::Left)
        };
        let Some(member) = self.members.iter_mut().find(is_known) else {
            self.refuse(link, "the run does not go on with it: it counts as lost".to_owned());
            return;
        };
        if let Some(old) = member.link() {
            // The agent has noticed first that it is of no use.
            member.breaks += u32::from(member.is_running());
            self.sends.push(Send::Close(old));
        } else {
            let away = Duration::from_nanos(now.saturating_sub(member.heard));
            self.said.push(format!("the link to {} is back after {}", member.title(), show_duration(away)));
        }
        member.link = Link::Up(link, now);
        let ack = Kind::Ack(Ack { next: member.taken });
        self.sends.push(Send::Frame(link, ack.into()));
        if member.stage == Stage::Left {
            member.link = Link::Down("it has told everything".to_owned());
            self.sends.push(Send::Close(link));
        } else if let Some(reason) = self.stopping.as_ref().filter(|_| member.is_running()) {
            let stop = Kind::Stop(Reason { reason: reason.clone() });
            self.sends.push(Send::Frame(link, stop.into()));
        }
    }

    /// A link has ended.
    ///
    /// # Errors
    /// Its link was lost too often before the start.
    pub fn closed(&mut self, link: u64, reason: &str, now: u64) -> Result<(), ControllerError> {
        if let Some(newcomer) = self.newcomer(link) {
            self.turn_away(newcomer, reason);
        }
        let Some(place) = self.place(link) else { return Ok(()) };
        match self.members.get(place) {
            Some(member) if member.needs_link() => {
                self.lose_link(place, reason);
                Ok(())
            }
            // Whoever was dialled and got here is an agent, though it may not have said which.
            Some(member) if member.stage != Stage::Left => self.leave(place, reason, now),
            _ => self.fail(place, reason, now),
        }
    }

    /// The link to an agent that was there is lost before the start. Nothing is lost with it: the agent may join again.
    fn leave(&mut self, place: usize, reason: &str, now: u64) -> Result<(), ControllerError> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        if member.rejoins >= MOST_REJOINS {
            let times = member.rejoins + 1;
            return self.fail(
                place,
                &format!("its link was lost {times} times before the start: {reason}"),
                now,
            );
        }
        // A link on which it has not said who it is was none.
        if member.away.is_none() {
            member.rejoins += 1;
            member.away = Some(now);
        }
        member.stage = Stage::Away;
        self.drop_link(place, reason, None);
        Ok(())
    }

    /// A link under load is of no use any more; who has dialled dials again.
    fn lose_link(&mut self, place: usize, reason: &str) {
        let Some(member) = self.members.get_mut(place) else { return };
        if member.link().is_none() {
            return;
        }
        member.breaks += u32::from(member.is_running());
        let session = Some(member.session);
        self.drop_link(place, reason, session);
    }

    /// Closes a link that is to be made again.
    fn drop_link(&mut self, place: usize, reason: &str, session: Option<u64>) {
        let dials = self.dials();
        let Some(member) = self.members.get_mut(place) else { return };
        let Some(link) = member.link() else { return };
        member.link = Link::Down(reason.to_owned());
        let how = if dials { "it is made again" } else { "it may dial again" };
        self.said.push(format!("the link to {} is lost: {reason}; {how}", member.title()));
        self.sends.push(Send::Close(link));
        if dials {
            self.sends.push(Send::Dial { peer: member.peer.clone(), session });
        }
    }

    /// A frame has come.
    ///
    /// # Errors
    /// An agent will not or must not take part.
    pub fn frame(&mut self, link: u64, frame: Frame, now: u64) -> Result<(), ControllerError> {
        if let Some(newcomer) = self.newcomer(link) {
            let Some(Kind::Hello(hello)) = &frame.kind else {
                self.turn_away(newcomer, "it has not said who it is");
                return Ok(());
            };
            self.seat(newcomer, hello.index, now);
        }
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
            let there = self.members.iter().filter(|member| member.has_come()).count();
            let after = self.orders.patience;
            if there < self.orders.agents && now.saturating_sub(*since) > ns(after) {
                let has_come = |peer: &String| {
                    self.members.iter().any(|member| member.peer == *peer && member.has_come())
                };
                let who = self.orders.dialled.iter().filter(|peer| !has_come(peer)).cloned().collect();
                self.stop_all("not all agents came");
                return Err(ControllerError::Missing { there, wanted: self.orders.agents, after, who });
            }
        }
        // What was not heard while this side stood still is no silence of the others.
        let away = now.saturating_sub(self.ticked).saturating_sub(ns(BEAT));
        self.ticked = now;
        if away > 0 {
            self.called = self.called.saturating_add(away).min(now);
            self.members.iter_mut().for_each(|member| member.heard = member.heard.saturating_add(away));
            self.newcomers
                .iter_mut()
                .for_each(|newcomer| newcomer.since = newcomer.since.saturating_add(away));
        }
        let is_silent = |newcomer: &mut Newcomer| now.saturating_sub(newcomer.since) > ns(LOST);
        for newcomer in self.newcomers.extract_if(.., is_silent).collect::<Vec<_>>() {
            self.turn_away(newcomer, &format!("it has not said who it is in {}", show_duration(LOST)));
        }
        for place in 0..self.members.len() {
            self.watch(place, now)?;
        }
        if now.saturating_sub(self.beat) >= ns(BEAT) {
            self.beat = now;
            // Those that are being measured have pings of their own, and who prepares cannot answer.
            let is_idle = |member: &&Member| {
                member.needs_link() || matches!(member.stage, Stage::There | Stage::Measured)
            };
            let idle = self.members.iter().filter(is_idle);
            let pings = idle.filter_map(|member| member.frame(Kind::Ping(Ping { sent: now })));
            self.sends.extend(pings.map(|(link, frame)| Send::Frame(link, frame)));
        }
        Ok(())
    }

    /// Whether all have told everything and know that it was taken in, or were lost.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Running { .. }) && !self.members.iter().any(Member::needs_link)
    }

    /// What the run gave; nothing where it has not begun.
    pub fn finish(mut self) -> Option<Outcome> {
        self.release(true);
        let Phase::Running { gathering, .. } = std::mem::replace(&mut self.phase, Phase::Over) else {
            return None;
        };
        let mut outcome = gathering.finish(self.orders.scenario, self.is_stopped, self.is_cut_short);
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
            let times = match member.breaks {
                1 => "was lost".to_owned(),
                breaks => format!("was lost {breaks} times"),
            };
            if member.breaks > 0 && matches!(member.stage, Stage::Done | Stage::Left) {
                outcome.notes.push(format!("the link to {title} {times} and made again; nothing is missing"));
            }
            outcome.agents.push(member.told());
        }
        Some(outcome)
    }

    fn place(&self, link: u64) -> Option<usize> {
        self.members.iter().position(|member| member.link() == Some(link))
    }

    fn refuse(&mut self, link: u64, reason: String) {
        self.sends.push(Send::Frame(link, Kind::Refuse(Reason { reason }).into()));
        self.sends.push(Send::Close(link));
    }

    /// An agent that says what it must not, or is gone.
    fn fail(&mut self, place: usize, reason: &str, now: u64) -> Result<(), ControllerError> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        let link = member.link();
        match member.stage {
            Stage::Done | Stage::Left | Stage::Lost => return Ok(()),
            Stage::Running => {}
            stage => {
                let reason = match stage {
                    Stage::Silent => format!("it has not said who it is ({reason}); is it an agent?"),
                    _ => reason.to_owned(),
                };
                let agent = member.title();
                self.refuse_member(link, &reason);
                self.stop_all("another agent could not take part");
                return Err(ControllerError::Agent { agent, reason });
            }
        }
        member.stage = Stage::Lost;
        let title = member.title();
        let start = self.start().unwrap_or(now);
        let after = show_duration(Duration::from_nanos(now.saturating_sub(start)));
        let sentence =
            format!("{title} was lost {after} after the start: {reason}; the other agents were stopped");
        self.said.push(sentence.clone());
        self.faults.push(sentence);
        self.is_cut_short = true;
        self.refuse_member(link, &format!("this agent counts as lost: {reason}"));
        self.stop_running("another agent was lost", now);
        self.release(false);
        Ok(())
    }

    fn refuse_member(&mut self, link: Option<u64>, reason: &str) {
        if let Some(link) = link {
            self.refuse(link, reason.to_owned());
        }
    }

    /// Those that run end, and say what there is; whose link is away is told on the next.
    fn stop_running(&mut self, reason: &str, now: u64) {
        self.stopping.get_or_insert_with(|| reason.to_owned());
        for member in self.members.iter().filter(|member| member.is_running()) {
            let stop = member.frame(Kind::Stop(Reason { reason: reason.to_owned() }));
            self.sends.extend(stop.map(|(link, frame)| Send::Frame(link, frame)));
        }
        self.deadline = self.deadline.min(now.saturating_add(ns(OVERTIME)));
    }

    /// Nobody is needed any more.
    fn stop_all(&mut self, reason: &str) {
        let newcomers = self.newcomers.drain(..).map(|newcomer| newcomer.link);
        for link in self.members.iter().filter_map(Member::link).chain(newcomers) {
            let refusal = Kind::Refuse(Reason { reason: reason.to_owned() });
            self.sends.push(Send::Frame(link, refusal.into()));
            self.sends.push(Send::Close(link));
        }
    }

    /// Silence, and what takes too long.
    fn watch(&mut self, place: usize, now: u64) -> Result<(), ControllerError> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        let silence = Duration::from_nanos(now.saturating_sub(member.heard));
        let patience = match member.stage {
            Stage::Left | Stage::Lost => return Ok(()),
            Stage::Preparing => PREPARING,
            Stage::Away => REJOINING,
            Stage::Silent
            | Stage::There
            | Stage::Pinged(_)
            | Stage::Measured
            | Stage::Running
            | Stage::Done => LOST,
        };
        let silence = match (member.stage, member.away) {
            (Stage::Away, Some(since)) => Duration::from_nanos(now.saturating_sub(since)),
            _ => silence,
        };
        if member.stage == Stage::Done && (silence > patience || now > self.deadline) {
            member.stage = Stage::Left;
            self.said.push(format!(
                "{} has told everything, and may not know that it was taken in: it is silent",
                member.title()
            ));
            return Ok(());
        }
        if silence > patience && matches!(member.stage, Stage::There | Stage::Pinged(_) | Stage::Measured) {
            let reason = format!("nothing came over it for {}", show_duration(patience));
            return self.leave(place, &reason, now);
        }
        if silence > patience {
            let reason = match &member.link {
                Link::Down(why) if member.is_running() => {
                    let patience = show_duration(patience);
                    format!("it has been silent for {patience}, its link was lost and not made again ({why})")
                }
                Link::Down(why) => {
                    format!(
                        "its link was lost before the start and not made again in {} ({why})",
                        show_duration(patience)
                    )
                }
                Link::Up(..) => format!("it has been silent for {}", show_duration(patience)),
            };
            return self.fail(place, &reason, now);
        }
        if !member.needs_link() {
            return Ok(());
        }
        if now > self.deadline {
            return self.fail(place, "it has not ended in time", now);
        }
        if silence > SUSPECT && member.is_running() && !member.is_suspect {
            member.is_suspect = true;
            let sentence = format!("{} has been silent for {}", member.title(), show_duration(SUSPECT));
            self.said.push(sentence.clone());
            self.notes.push(sentence);
        }
        let quiet = Duration::from_nanos(now.saturating_sub(member.quiet_since()));
        if quiet > SUSPECT {
            self.lose_link(place, "nothing comes over it");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
