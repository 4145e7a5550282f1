//! The side that makes the load: does what a controller says, and tells it what its workers see. It owns no socket: frames come in as
//! events and go out by a closure. Without a sign of life from its controller it stops within ten seconds.

use super::messages::{Frame, Hello, Kind, Pong, Prepare, Ready, Reason, Totals};
use super::{BEAT, LOST, MOST_SCENARIO, PREPARING, PROTOCOL, fingerprint, record};
use crate::clock::{monotonic_ns, ns};
use crate::host::peak_resident;
use crate::plan::Plan;
use crate::run::Stop;
use crate::scenario::{Message, Scenario, run_part};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// Messages that a controller may leave without an acknowledgement.
const MOST_UNACKNOWLEDGED: u64 = 1 << 16;

/// How far ahead a start may lie.
const FURTHEST_START: Duration = Duration::from_secs(600);

/// How long a controller may gather others before it says what to do.
const GATHERING: Duration = Duration::from_secs(3_600);

/// How a part of a run ended that was not carried out, or not to its end.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The link is gone.
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
}

/// What an agent is told: by its controller, by its own workers.
pub struct Event(Told);

enum Told {
    /// And what is let go of once it is taken in.
    Frame(Frame, Box<dyn Send>),
    Closed(String),
    Worker(Message),
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
}

/// What an agent needs of its machine.
pub trait Machine {
    /// Sends a frame; false where that cannot be done any more.
    fn send(&self, frame: Frame) -> bool;

    /// Reads the scenario, decides on threads and connections, and reaches the target: the scenario, the plan with the part that
    /// is this agent's, and what was agreed upon with the target.
    ///
    /// # Errors
    /// A sentence for the controller.
    fn prepare(&self, prepare: &Prepare) -> Result<(Scenario, Plan, Option<String>), String>;
}

/// Carries out a part of one run. `inbox` has what comes by the link and what is sent to `outbox`, its other end.
///
/// # Errors
/// There was no run, or not to its end; no load goes on.
pub fn run(
    machine: &impl Machine,
    hello: Hello,
    (outbox, inbox): (&Sender<Event>, &Receiver<Event>),
    stop: &Stop,
) -> Result<Totals, AgentError> {
    let result = carry_out(machine, hello, (outbox, inbox), stop);
    if let Err(AgentError::Unable(reason)) = &result {
        // A controller that is gone need not be told.
        let _ = machine.send(Kind::Refuse(Reason { reason: reason.clone() }).into());
    } else if let Err(AgentError::Interrupted) = &result {
        let _ = machine.send(Kind::Refuse(Reason { reason: "it was interrupted".to_owned() }).into());
    }
    result
}

fn carry_out(
    machine: &impl Machine,
    hello: Hello,
    (outbox, inbox): (&Sender<Event>, &Receiver<Event>),
    stop: &Stop,
) -> Result<Totals, AgentError> {
    let program = hello.program.clone();
    let before = Before { machine, inbox, stop };
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
    if fingerprint(&scenario) != prepare.fingerprint {
        return Err(AgentError::Unable(
            "its scenario is not that of the controller: a file of data, or a variable of the environment, that it names is \
             another one there; make them alike on all machines"
                .to_owned(),
        ));
    }
    before.send(Kind::Ready(Ready { threads: plan.threads, tls }))?;
    let at = before.wait(PREPARING + PREPARING, |kind| match kind {
        Kind::Start(start) => Some(start.at),
        _ => None,
    })?;
    let now = monotonic_ns();
    if at <= now {
        let late = crate::quantity::show_duration(Duration::from_nanos(now - at));
        return Err(AgentError::Unable(format!("the time to start had passed {late} ago when it was told")));
    }
    if at - now > ns(FURTHEST_START) {
        return Err(AgentError::Unable("the time to start lies too far ahead".to_owned()));
    }
    under_load(machine, &scenario, &plan, at, (outbox, inbox), stop)
}

/// What is said before the load.
struct Before<'m, M> {
    machine: &'m M,
    inbox: &'m Receiver<Event>,
    stop: &'m Stop,
}

impl<M: Machine> Before<'_, M> {
    fn send(&self, kind: Kind) -> Result<(), AgentError> {
        send(self.machine, kind)
    }

    /// Waits for something that the controller says, and answers its pings.
    fn wait<T>(&self, patience: Duration, wanted: impl Fn(Kind) -> Option<T>) -> Result<T, AgentError> {
        let until = monotonic_ns().saturating_add(ns(patience));
        loop {
            if self.stop.is_stopped() {
                return Err(AgentError::Interrupted);
            }
            if monotonic_ns() > until {
                return Err(AgentError::Gone("it is silent".to_owned()));
            }
            let frame = match self.inbox.recv_timeout(Duration::from_millis(100)) {
                Ok(Event(Told::Frame(frame, _))) => frame,
                Ok(Event(Told::Closed(reason))) => return Err(AgentError::Gone(reason)),
                Ok(Event(Told::Worker(_) | Told::Over(_))) | Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(AgentError::Gone("the link has ended".to_owned()));
                }
            };
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

fn send(machine: &impl Machine, kind: Kind) -> Result<(), AgentError> {
    if machine.send(kind.into()) {
        return Ok(());
    }
    Err(AgentError::Gone("it takes no more messages".to_owned()))
}

/// The load, and the telling of it.
fn under_load(
    machine: &impl Machine,
    scenario: &Scenario,
    plan: &Plan,
    at: u64,
    (outbox, inbox): (&Sender<Event>, &Receiver<Event>),
    stop: &Stop,
) -> Result<Totals, AgentError> {
    let engine = Stop::default();
    thread::scope(|scope| {
        let (end, tell) = (engine.clone(), outbox.clone());
        let work = move || {
            let told = run_part(scenario, plan, at, &end, |message| {
                // The receiver lives longer than this thread.
                let _ = tell.send(Event(Told::Worker(message)));
            });
            let _ = tell.send(Event(Told::Over(told)));
        };
        if let Err(error) = thread::Builder::new().name("agent".to_owned()).spawn_scoped(scope, work) {
            return Err(AgentError::Unable(format!("it cannot start a thread: {error}")));
        }
        let mut telling = Telling { machine, scenario, totals: Totals::default(), acknowledged: 0 };
        let result = telling.run(inbox, stop, &engine);
        // Whatever has happened: no load goes on.
        engine.stop();
        result
    })
}

/// What was told, and what of it has arrived.
struct Telling<'m, M> {
    machine: &'m M,
    scenario: &'m Scenario,
    totals: Totals,
    acknowledged: u64,
}

impl<M: Machine> Telling<'_, M> {
    fn run(&mut self, inbox: &Receiver<Event>, stop: &Stop, engine: &Stop) -> Result<Totals, AgentError> {
        let mut heard = monotonic_ns();
        let mut is_over = false;
        loop {
            let now = monotonic_ns();
            if now.saturating_sub(heard) > ns(LOST) {
                return Err(AgentError::Gone(format!("it has been silent for {} s", LOST.as_secs())));
            }
            if stop.is_stopped() {
                return Err(AgentError::Interrupted);
            }
            if self.totals.frames.saturating_sub(self.acknowledged) > MOST_UNACKNOWLEDGED {
                return Err(AgentError::Gone("it takes in nothing".to_owned()));
            }
            let told = match inbox.recv_timeout(BEAT / 10) {
                Ok(Event(told)) => told,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(AgentError::Gone("the link has ended".to_owned()));
                }
            };
            match told {
                Told::Closed(reason) => return Err(AgentError::Gone(reason)),
                Told::Worker(message) => self.tell(message)?,
                Told::Over(Err(error)) => {
                    return Err(AgentError::Unable(format!("it cannot start its threads: {error}")));
                }
                Told::Over(Ok(())) => {
                    is_over = true;
                    self.totals.memory = peak_resident();
                    send(self.machine, Kind::Totals(self.totals))?;
                }
                Told::Frame(frame, _hold) => {
                    heard = monotonic_ns();
                    match frame.kind {
                        Some(Kind::Ping(ping)) => {
                            send(self.machine, Kind::Pong(Pong { sent: ping.sent, received: heard }))?;
                        }
                        // The totals are acknowledged by the number that would come next.
                        Some(Kind::Ack(ack)) if is_over && ack.sequence == self.totals.frames => {
                            return Ok(self.totals);
                        }
                        Some(Kind::Ack(ack)) => self.acknowledged = ack.sequence.min(self.totals.frames),
                        Some(Kind::Stop(_)) => engine.stop(),
                        Some(Kind::Refuse(reason)) => {
                            return Err(AgentError::Refused(record::text(reason.reason)));
                        }
                        _ => {}
                    }
                }
            }
        }
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
        send(self.machine, kind)
    }
}
