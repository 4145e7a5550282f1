//! The side that makes the load: does what a controller says, and tells it what its workers see. It owns no socket: frames come in as
//! events and go out by a closure. A link that is lost under load may be replaced by another, over which is sent what was not
//! acknowledged; without a sign of life from its controller it stops within ten seconds. It ends well when all that it told is
//! acknowledged, and says so last. A link that is lost before the start ends this attempt, and nothing else.

use super::messages::{Bye, Figures, Frame, Hello, Kind, Pong, Prepare, Ready, Reason, Totals};
use super::outbox::Outbox;
use super::{BEAT, LOST, MOST_SCENARIO, PREPARING, PROTOCOL, SUSPECT, fingerprints, record};
use crate::clock::{monotonic_ns, ns};
use crate::host::peak_resident;
use crate::plan::Plan;
use crate::quantity::show_duration;
use crate::run::Stop;
use crate::scenario::{Message, Scenario, run_part};
use crate::systems::{self, Watched, monitor_while};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// How far ahead a start may lie.
const FURTHEST_START: Duration = Duration::from_secs(600);

/// How long a controller may gather others before it says what to do.
const GATHERING: Duration = Duration::from_secs(3_600);

/// How a part of a run ended that was not carried out, or not to its end.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The link was lost before the start; nothing was done, and it may be made again.
    #[error("the link to the controller was lost before the start: {0}")]
    Unstarted(String),
    /// The controller is gone, under load.
    #[error("the controller is gone: {0}")]
    Gone(String),
    /// The controller says why.
    #[error("the controller refuses: {0}")]
    Refused(String),
    /// This machine cannot do it.
    #[error("{0}")]
    Unable(String),
    /// Somebody wanted this agent to end.
    #[error("interrupted")]
    Interrupted,
    /// A thread of this process is in something that does not end. The part was carried out as far as that goes.
    #[error(
        "a call of the script of the run cannot be ended, and would go on at the cost of the next run: this agent ends"
    )]
    Stuck,
}

/// A way to send frames to the controller; false where it takes no more. Dropped, it ends.
pub type Link = Box<dyn FnMut(Frame) -> bool + Send>;

/// What an agent is told: by its controller, by its own workers.
pub struct Event(Told);

enum Told {
    /// And what is let go of once it is taken in.
    Frame(Frame, Box<dyn Send>),
    Closed(String),
    Linked(Link),
    Worker(Message),
    /// Of this machine, at so many nanoseconds of the run.
    Host(u64, systems::Figures),
    Over(io::Result<()>),
}

impl Event {
    /// A frame of the controller, and what is dropped once it is taken in, so that the link brings no more than can be.
    pub fn frame(frame: Frame, hold: Box<dyn Send>) -> Event {
        Event(Told::Frame(frame, hold))
    }

    /// The link has ended.
    pub fn closed(reason: String) -> Event {
        Event(Told::Closed(reason))
    }

    /// There is another link that goes on with the run, in place of the one that there was.
    pub fn linked(link: Link) -> Event {
        Event(Told::Linked(link))
    }
}

/// What an agent needs of its machine.
pub trait Machine {
    /// Reads the scenario, decides on threads and connections, and reaches the target: the scenario, the plan with the part that
    /// is this agent's, and what was agreed upon with the target.
    ///
    /// # Errors
    /// A sentence for the controller.
    fn prepare(&self, prepare: &Prepare) -> Result<(Scenario, Plan, Option<String>), String>;

    /// The link was lost under load: who has dialled dials again, and names this session.
    fn dial_again(&self, session: u64);

    /// For who looks at this machine.
    fn say(&self, sentence: &str);
}

/// Carries out a part of one run. `inbox` has what comes by the link and what is sent to `outbox`, its other end.
///
/// # Errors
/// There was no run, or not to its end; no load goes on.
pub fn run(
    machine: &impl Machine,
    hello: Hello,
    link: Link,
    (outbox, inbox): (&Sender<Event>, &Receiver<Event>),
    stop: &Stop,
) -> Result<Totals, AgentError> {
    let mut link = Some(link);
    let result = carry_out(machine, hello, &mut link, (outbox, inbox), stop);
    let reason = match &result {
        Err(AgentError::Unable(reason)) => reason.clone(),
        Err(AgentError::Interrupted) => "it was interrupted".to_owned(),
        _ => return result,
    };
    // A controller that is gone need not be told.
    let _ = link.is_some_and(|mut link| link(Kind::Refuse(Reason { reason }).into()));
    result
}

fn carry_out(
    machine: &impl Machine,
    hello: Hello,
    link: &mut Option<Link>,
    (outbox, inbox): (&Sender<Event>, &Receiver<Event>),
    stop: &Stop,
) -> Result<Totals, AgentError> {
    let program = hello.program.clone();
    let mut before = Before { link: &mut *link, inbox, stop };
    before.send(Kind::Hello(hello))?;
    let prepare = before.wait(GATHERING, |kind| match kind {
        Kind::Prepare(prepare) => Some(prepare),
        _ => None,
    })?;
    if prepare.protocol != PROTOCOL || prepare.program != program {
        return Err(AgentError::Unable(format!(
            "it is of version {program} (protocol {PROTOCOL}), and the controller of version {} (protocol {}); use one version \
             on all machines",
            record::text(prepare.program),
            prepare.protocol
        )));
    }
    if prepare.text.len() > MOST_SCENARIO || prepare.of == 0 || prepare.index >= prepare.of {
        return Err(AgentError::Unable("the controller sent no scenario that could be run".to_owned()));
    }
    let (scenario, plan, tls) = machine.prepare(&prepare).map_err(AgentError::Unable)?;
    if let Some(other) = fingerprints(&scenario).into_iter().find(|mine| !prepare.fingerprints.contains(mine))
    {
        return Err(AgentError::Unable(format!(
            "its scenario is not that of the controller: {} is another one there; make it the same on all machines",
            other.what
        )));
    }
    before.send(Kind::Ready(Ready { threads: plan.threads, tls }))?;
    let at = before.wait(PREPARING + PREPARING, |kind| match kind {
        Kind::Start(start) => Some(start.at),
        _ => None,
    })?;
    let now = monotonic_ns();
    if at <= now {
        let late = show_duration(Duration::from_nanos(now - at));
        return Err(AgentError::Unable(format!("the time to start had passed {late} ago when it was told")));
    }
    if at - now > ns(FURTHEST_START) {
        return Err(AgentError::Unable("the time to start lies too far ahead".to_owned()));
    }
    machine.say(&format!("the load starts in {}", show_duration(Duration::from_nanos(at - now))));
    let telling = Telling {
        machine,
        scenario: &scenario,
        session: prepare.session,
        link,
        since: now,
        is_open: true,
        lost: None,
        heard: now,
        totals: Totals::default(),
        outbox: Outbox::default(),
        is_over: false,
    };
    under_load(telling, &plan, at, (outbox, inbox), stop)
}

/// What is said before the load.
struct Before<'l> {
    link: &'l mut Option<Link>,
    inbox: &'l Receiver<Event>,
    stop: &'l Stop,
}

impl Before<'_> {
    fn send(&mut self, kind: Kind) -> Result<(), AgentError> {
        if self.link.as_mut().is_some_and(|link| link(kind.into())) {
            return Ok(());
        }
        Err(AgentError::Unstarted("it takes no more messages".to_owned()))
    }

    /// Waits for something that the controller says, and answers its pings.
    fn wait<T>(&mut self, patience: Duration, wanted: impl Fn(Kind) -> Option<T>) -> Result<T, AgentError> {
        let until = monotonic_ns().saturating_add(ns(patience));
        let mut heard = monotonic_ns();
        loop {
            if self.stop.is_stopped() {
                return Err(AgentError::Interrupted);
            }
            let now = monotonic_ns();
            if now > until {
                let time = show_duration(patience);
                return Err(AgentError::Unstarted(format!("the controller did not begin within {time}")));
            }
            if now.saturating_sub(heard) > ns(LOST) {
                return Err(AgentError::Unstarted(format!("nothing came over it for {} s", LOST.as_secs())));
            }
            let frame = match self.inbox.recv_timeout(Duration::from_millis(100)) {
                Ok(Event(Told::Frame(frame, _))) => frame,
                Ok(Event(Told::Closed(reason))) => return Err(AgentError::Unstarted(reason)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(AgentError::Unstarted("the link has ended".to_owned()));
                }
            };
            heard = monotonic_ns();
            match frame.kind {
                Some(Kind::Ping(ping)) => {
                    self.send(Kind::Pong(Pong { sent: ping.sent, received: monotonic_ns() }))?;
                }
                Some(Kind::Refuse(reason) | Kind::Stop(reason)) => {
                    return Err(AgentError::Refused(record::text(reason.reason)));
                }
                Some(kind) => {
                    if let Some(found) = wanted(kind) {
                        return Ok(found);
                    }
                }
                None => {}
            }
        }
    }
}

/// The load, and the telling of it.
fn under_load<M: Machine>(
    mut telling: Telling<'_, M>,
    plan: &Plan,
    at: u64,
    (outbox, inbox): (&Sender<Event>, &Receiver<Event>),
    stop: &Stop,
) -> Result<Totals, AgentError> {
    let engine = Stop::default();
    let scenario = telling.scenario;
    thread::scope(|scope| {
        let (end, tell) = (engine.clone(), outbox.clone());
        let work = move || {
            let told = run_part(scenario, plan, at, &end, |message| {
                // The receiver lives longer than this thread.
                let _ = tell.send(Event(Told::Worker(message)));
            });
            let is_stuck = matches!(told, Ok(false));
            let _ = tell.send(Event(Told::Over(told.map(drop))));
            is_stuck
        };
        let begun = thread::Builder::new().name("agent".to_owned()).spawn_scoped(scope, work);
        let (watching, watched) = channel();
        let tell = outbox.clone();
        let watch =
            move || watch_host(at, &watched, |at, figures| tell.send(Event(Told::Host(at, figures))).is_ok());
        let watch = thread::Builder::new().name("agent-host".to_owned()).spawn_scoped(scope, watch);
        let result = match begun.as_ref().and(watch.as_ref()) {
            Ok(_) => telling.run(inbox, stop, &engine),
            Err(error) => Err(AgentError::Unable(format!("it cannot start a thread: {error}"))),
        };
        // Whatever has happened: no load goes on.
        engine.stop();
        drop(watching);
        let is_stuck =
            begun.is_ok_and(|load| load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        if is_stuck && !matches!(result, Err(AgentError::Interrupted)) {
            Err(AgentError::Stuck)
        } else {
            result
        }
    })
}

/// Tells the figures of this machine each second from `start` on, with nanoseconds from there, until the other end of `watched` is gone.
fn watch_host(start: u64, watched: &Receiver<()>, tell: impl Fn(u64, systems::Figures) -> bool) {
    let wait = |time| matches!(watched.recv_timeout(time), Err(RecvTimeoutError::Timeout));
    if !wait(Duration::from_nanos(start.saturating_sub(monotonic_ns()))) {
        return;
    }
    let all = Watched { interval: BEAT, processes: Vec::new(), services: Vec::new() };
    let tell = |figures: &systems::Figures| {
        let at = monotonic_ns().saturating_sub(start);
        if tell(at, figures.clone()) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // No service is asked, so that nothing fails but the telling.
    let _ = monitor_while(&all, wait, tell, drop);
}

/// What was told, and what of it has arrived.
struct Telling<'m, M> {
    machine: &'m M,
    scenario: &'m Scenario,
    /// What another link names.
    session: u64,
    link: &'m mut Option<Link>,
    /// Monotonic nanoseconds since which there is this link.
    since: u64,
    /// The controller has said over this link what it wants.
    is_open: bool,
    /// Why there is no link.
    lost: Option<String>,
    /// Monotonic nanoseconds at which the controller was heard last.
    heard: u64,
    totals: Totals,
    outbox: Outbox,
    /// The workers have ended, and the totals are told.
    is_over: bool,
}

impl<M: Machine> Telling<'_, M> {
    fn run(&mut self, inbox: &Receiver<Event>, stop: &Stop, engine: &Stop) -> Result<Totals, AgentError> {
        loop {
            self.watch(monotonic_ns())?;
            if stop.is_stopped() {
                return Err(AgentError::Interrupted);
            }
            let told = match inbox.recv_timeout(BEAT / 10) {
                Ok(Event(told)) => Some(told),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(AgentError::Gone("the link has ended".to_owned()));
                }
            };
            match told {
                Some(Told::Closed(reason)) => self.lose(reason),
                Some(Told::Linked(link)) => {
                    *self.link = Some(link);
                    (self.since, self.is_open) = (monotonic_ns(), false);
                }
                Some(Told::Worker(message)) => self.tell(message)?,
                Some(Told::Host(at, figures)) => self.figures(at, figures)?,
                Some(Told::Over(Err(error))) => {
                    return Err(AgentError::Unable(format!("it cannot start its threads: {error}")));
                }
                Some(Told::Over(Ok(()))) => {
                    self.is_over = true;
                    self.totals.memory = peak_resident();
                    self.push(Kind::Totals(self.totals))?;
                }
                Some(Told::Frame(frame, _hold)) => self.take(frame, engine)?,
                None => {}
            }
            self.flush();
            if self.is_over && self.outbox.is_empty() {
                self.send(Kind::Bye(Bye {}));
                return Ok(self.totals);
            }
        }
    }

    /// Silence of the controller.
    fn watch(&mut self, now: u64) -> Result<(), AgentError> {
        if now.saturating_sub(self.heard) > ns(LOST) {
            let mut known = format!("it has been silent for {} s", LOST.as_secs());
            if let Some(reason) = &self.lost {
                known.push_str(&format!(", and the link was not made again ({reason})"));
            }
            if self.is_over {
                known.push_str("; this part of the load was carried out to its end, and whether all of it was taken in is not known");
            }
            return Err(AgentError::Gone(known));
        }
        if self.link.is_some() && now.saturating_sub(self.heard.max(self.since)) > ns(SUSPECT) {
            self.lose("nothing comes over it".to_owned());
        }
        Ok(())
    }

    fn lose(&mut self, reason: String) {
        if self.link.take().is_none() {
            return;
        }
        let how =
            if self.is_over { "what was not taken in is told over the next" } else { "the load goes on" };
        self.machine.say(&format!("the link to the controller is lost: {reason}; {how}"));
        self.lost = Some(reason);
        self.machine.dial_again(self.session);
    }

    /// A frame of the controller.
    fn take(&mut self, frame: Frame, engine: &Stop) -> Result<(), AgentError> {
        self.heard = monotonic_ns();
        match frame.kind {
            Some(Kind::Ping(ping)) => self.send(Kind::Pong(Pong { sent: ping.sent, received: self.heard })),
            Some(Kind::Ack(ack)) if self.is_open => self.outbox.acknowledge(ack.next),
            Some(Kind::Ack(ack)) => {
                let again =
                    self.outbox.resume(ack.next).map_err(|error| AgentError::Unable(error.to_string()))?;
                (self.is_open, self.lost) = (true, None);
                let messages =
                    if again == 1 { "1 message is".to_owned() } else { format!("{again} messages are") };
                self.machine.say(&format!("the link to the controller is back; {messages} sent again"));
            }
            Some(Kind::Stop(_)) => engine.stop(),
            Some(Kind::Refuse(reason)) => return Err(AgentError::Refused(record::text(reason.reason))),
            _ => {}
        }
        Ok(())
    }

    /// What is not numbered: it is of no use over another link.
    fn send(&mut self, kind: Kind) {
        // A link that takes nothing brings nothing either, and is lost by that.
        let _ = self.link.as_mut().is_some_and(|link| link(kind.into()));
    }

    fn push(&mut self, kind: Kind) -> Result<(), AgentError> {
        self.outbox.push(kind.into()).map_err(|error| AgentError::Gone(error.to_string()))
    }

    /// Sends what was not sent, as far as the link takes it.
    fn flush(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|_| self.is_open) {
            self.outbox.flush(link);
        }
    }

    fn figures(&mut self, at: u64, figures: systems::Figures) -> Result<(), AgentError> {
        if self.is_over || figures.is_empty() {
            return Ok(());
        }
        let sequence = self.totals.frames;
        self.totals.frames += 1;
        let (names, values) = figures.into_iter().unzip();
        self.push(Kind::Figures(Figures { sequence, at, names, values }))
    }

    fn tell(&mut self, message: Message) -> Result<(), AgentError> {
        let sequence = self.totals.frames;
        let kind = match message {
            Message::Second(second) => {
                self.totals
                    .add(&second)
                    .ok_or_else(|| AgentError::Unable("it has done too much".to_owned()))?;
                Kind::Delta(Box::new(record::delta(sequence, &second)))
            }
            Message::End { worker, gave_up, unsent, failed, fault } => {
                self.totals.frames += 1;
                let ended = record::ended(
                    (sequence, worker),
                    (gave_up, unsent),
                    failed,
                    fault.as_ref(),
                    self.scenario,
                );
                Kind::Ended(ended)
            }
        };
        self.push(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::messages::{Prepare, Start};

    /// A machine that is never to be asked for anything.
    struct Nothing;

    impl Machine for Nothing {
        fn prepare(&self, _: &Prepare) -> Result<(Scenario, Plan, Option<String>), String> {
            Err("it has no scenario".to_owned())
        }

        fn dial_again(&self, _: u64) {}

        fn say(&self, _: &str) {}
    }

    #[test]
    fn what_an_agent_does_not_carry_out_it_says_to_both() {
        let prepare = |program: &str, change: fn(&mut Prepare)| {
            let (program, of) = (program.to_owned(), 1);
            let mut prepare = Prepare { protocol: PROTOCOL, program, of, ..Prepare::default() };
            change(&mut prepare);
            Kind::Prepare(Box::new(prepare))
        };
        let version = "it is of version 1.0 (protocol 4), and the controller of version";
        let table = [
            ("another version", prepare("0.9", |_| {}), format!("{version} 0.9 (protocol 4)")),
            ("another protocol", prepare("1.0", |of| of.protocol = 1), format!("{version} 1.0 (protocol 1)")),
            ("no such agent", prepare("1.0", |of| of.index = 1), "sent no scenario that could be run".into()),
            ("no scenario", prepare("1.0", |_| {}), "it has no scenario".into()),
        ];
        for (name, kind, reason) in table {
            let (outbox, inbox) = channel();
            // What is not due is passed over.
            for kind in [Kind::Start(Start { at: 1 }), kind] {
                outbox.send(Event::frame(kind.into(), Box::new(()))).unwrap();
            }
            let (sender, sent) = channel();
            let link: Link = Box::new(move |frame| sender.send(frame).is_ok());
            let hello = Hello { protocol: PROTOCOL, program: "1.0".into(), ..Hello::default() };
            let told =
                run(&Nothing, hello, link, (&outbox, &inbox), &Stop::default()).unwrap_err().to_string();
            assert!(told.contains(&reason), "{name}: {told}");
            let sent: Vec<Kind> = sent.try_iter().filter_map(|frame| frame.kind).collect();
            assert!(
                matches!(&sent[..], [Kind::Hello(_), Kind::Refuse(refused)] if refused.reason.contains(&reason)),
                "{name}: {sent:?}"
            );
        }
    }
}
