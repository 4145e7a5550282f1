//! What agents say, taken in: who they are, that they can begin, how far their clocks lie apart, and what their workers and machines
//! saw, in the order of its numbers. Whatever is wrong with it is the agent's fault, as a sentence.

use super::super::member::{Member, Stage, session};
use super::super::messages::{
    Ack, Delta, Ended, Figures, Frame, Hello, Kind, Ping, Prepare, Reason, Start, Totals,
};
use super::super::{PINGS, PROTOCOL, record};
use super::{Controller, OVERTIME, Phase, Send, Watched};
use crate::clock::ns;
use crate::quantity::show_duration;
use crate::run::Progress;
use crate::scenario::record::Second;
use crate::scenario::{Gathering, Message, estimate};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The least time from the last measurement of clocks to the start.
const LEAD: Duration = Duration::from_secs(3);

/// Workers of one agent at most.
const MOST_THREADS: u32 = 1_024;

impl<O: FnMut(Progress, &Second)> Controller<'_, O> {
    /// One frame of an agent that is known.
    pub(super) fn take(&mut self, place: usize, frame: Frame, now: u64) -> Result<(), String> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        member.heard = now;
        let stage = member.stage;
        match (stage, frame.kind) {
            (Stage::Left | Stage::Lost, _) => Ok(()),
            // Who refuses to go on after its end has gone on to something else.
            (Stage::Done, Some(Kind::Bye(_) | Kind::Refuse(_))) => {
                member.stage = Stage::Left;
                let link = member.link();
                self.sends.extend(link.map(Send::Close));
                Ok(())
            }
            (Stage::Done, _) => Ok(()),
            // It has not noticed yet that the link before is of no use.
            (Stage::Silent, Some(Kind::Refuse(Reason { reason }))) if member.away.is_some() => {
                self.leave(place, &record::text(reason), now).map_err(|error| error.to_string())
            }
            (_, Some(Kind::Refuse(Reason { reason }))) => {
                // Whoever says so is one, though it has not said which.
                member.stage = if stage == Stage::Silent { Stage::There } else { stage };
                Err(record::text(reason))
            }
            (Stage::Silent, Some(Kind::Hello(hello))) => self.hello(place, hello, now),
            (Stage::There, Some(Kind::Pong(_))) => {
                self.prepare_if_all_are_awake();
                Ok(())
            }
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
            (Stage::Preparing | Stage::Measured, Some(Kind::Pong(_))) => Ok(()),
            (Stage::Running, Some(Kind::Pong(pong))) => {
                member.offset.add(pong.sent.min(now), pong.received, now);
                Ok(())
            }
            (Stage::Running, Some(Kind::Delta(delta))) => self.delta(place, *delta),
            (Stage::Running, Some(Kind::Ended(ended))) => self.ended(place, ended, now),
            (Stage::Running, Some(Kind::Figures(figures))) => self.figures(place, figures),
            (Stage::Running, Some(Kind::Totals(totals))) => self.totals(place, totals),
            // What a newer version says beside.
            (_, None) => Ok(()),
            (_, Some(_)) => Err("it sent a message that is not due".to_owned()),
        }
    }

    fn hello(&mut self, place: usize, hello: Hello, now: u64) -> Result<(), String> {
        let prepare = &self.orders.prepare;
        let name = record::text(hello.name).chars().take(64).collect();
        let mut others = self.members.iter().enumerate().filter(|(other, _)| *other != place);
        let is_known = hello.index.is_some() && others.any(|(_, other)| other.index == hello.index);
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        member.name = name;
        (member.stage, member.away) = (Stage::There, None);
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
        member.index = hello.index.or(member.index);
        let (there, wanted) = (self.there(), self.orders.agents);
        if there == wanted {
            self.called = now;
            for place in 0..self.members.len() {
                self.ping_if_it_waits(place, now);
            }
            self.prepare_if_all_are_awake();
        } else if let Some(member) = self.members.get(place) {
            let title = member.title();
            self.said
                .push(format!("{there} of {wanted} agents are there: {title}; the others are waited for"));
        }
        Ok(())
    }

    /// How many have said who they are, over links that there are.
    fn there(&self) -> usize {
        let is_there = |member: &&Member| !matches!(member.stage, Stage::Silent | Stage::Away);
        self.members.iter().filter(is_there).count()
    }

    /// Asks one that waits whether it is awake, unless it was heard just now.
    fn ping_if_it_waits(&mut self, place: usize, now: u64) {
        if self.members.get(place).is_some_and(|member| member.stage == Stage::There && member.heard < now) {
            self.ping(place, now);
        }
    }

    /// Who prepares may be silent for long, so one that stands still must not begin with it: the others would wait for nothing.
    fn prepare_if_all_are_awake(&mut self) {
        let is_awake = |member: &Member| member.stage != Stage::There || member.heard >= self.called;
        if self.there() == self.orders.agents && self.members.iter().all(is_awake) {
            self.prepare();
        }
    }

    /// All are there: who is which, and what they do. Who has joined again is told alone.
    fn prepare(&mut self) {
        // Who was dialled is numbered as in the list, whoever was there first.
        let dialled = &self.orders.dialled;
        self.members.sort_by_key(|member| dialled.iter().position(|peer| *peer == member.peer));
        let taken: Vec<u32> = self.members.iter().filter_map(|member| member.index).collect();
        let mut free = (0..self.orders.prepare.of).filter(|index| !taken.contains(index));
        for member in self.members.iter_mut().filter(|member| member.stage == Stage::There) {
            member.index = member.index.or_else(|| free.next());
            member.stage = Stage::Preparing;
            let index = member.index.unwrap_or(0);
            member.session = session(self.orders.secret, index);
            let prepare = Prepare { index, session: member.session, ..self.orders.prepare.clone() };
            let frame = member.frame(Kind::Prepare(Box::new(prepare)));
            self.sends.extend(frame.map(|(link, frame)| Send::Frame(link, frame)));
        }
        self.members.sort_by_key(|member| member.index);
        let titles: Vec<String> = self.members.iter().map(Member::title).collect();
        self.said.push(format!("all agents are there: {}", titles.join(", ")));
    }

    fn ping(&mut self, place: usize, now: u64) {
        self.send(place, Kind::Ping(Ping { sent: now }));
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
            let frame = member.frame(Kind::Start(Start { at }));
            self.sends.extend(frame.map(|(link, frame)| Send::Frame(link, frame)));
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
        in_order(delta.sequence, member.taken)?;
        let second = record::second(delta, &mut member.bounds).map_err(|error| error.to_string())?;
        member.add(&second).ok_or("it tells of more than any machine could do")?;
        self.held.entry(second.requests.interval).or_default().push(second);
        self.acknowledge(place);
        self.release(false);
        Ok(())
    }

    fn ended(&mut self, place: usize, ended: Ended, now: u64) -> Result<(), String> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        in_order(ended.sequence, member.taken)?;
        member.totals.frames += 1;
        let (title, gave_up) = (member.title(), ended.gave_up);
        let mut end = record::end(ended, self.orders.scenario, &mut member.bounds)
            .map_err(|error| error.to_string())?;
        if let Message::End { fault, .. } = &mut end
            && let Some(error) = fault.take()
        {
            self.faults.push(format!("a worker of {title} failed: {error}"));
            self.is_cut_short = true;
        }
        self.gather(end);
        self.acknowledge(place);
        if gave_up {
            self.stop_running("the target accepts no more connections", now);
        }
        Ok(())
    }

    fn figures(&mut self, place: usize, figures: Figures) -> Result<(), String> {
        let Some(member) = self.members.get_mut(place) else { return Ok(()) };
        in_order(figures.sequence, member.taken)?;
        member.totals.frames += 1;
        let (at, figures) = member.watch(figures).map_err(|error| error.to_string())?;
        self.watched.push(Watched { system: member.system(), at, figures });
        self.acknowledge(place);
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
        let title = member.title();
        if let Some(difference) = member.totals.difference(&told) {
            self.faults.push(format!("the records of {title} are not whole: {difference}"));
        }
        // What it waits for, whatever number it has come to.
        member.taken = told.frames;
        self.acknowledge(place);
        self.release(false);
        Ok(())
    }

    /// One of what is numbered was taken in.
    fn acknowledge(&mut self, place: usize) {
        let Some(member) = self.members.get_mut(place) else { return };
        member.taken = member.taken.saturating_add(1);
        let ack = Kind::Ack(Ack { next: member.taken });
        self.send(place, ack);
    }

    fn send(&mut self, place: usize, kind: Kind) {
        let frame = self.members.get(place).and_then(|member| member.frame(kind));
        self.sends.extend(frame.map(|(link, frame)| Send::Frame(link, frame)));
    }

    fn gather(&mut self, message: Message) {
        if let Phase::Running { gathering, .. } = &mut self.phase {
            gathering.take(message);
        }
    }

    /// Hands over the seconds of which all that still run have told, in order.
    pub(super) fn release(&mut self, is_all: bool) {
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

fn in_order(sequence: u64, taken: u64) -> Result<(), String> {
    if sequence == taken {
        return Ok(());
    }
    Err(record::RecordError::Sequence { told: sequence, before: taken }.to_string())
}
