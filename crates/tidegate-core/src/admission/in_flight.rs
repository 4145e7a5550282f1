//! Requests that wait for something: `limits in-flight` and `limits queue`, and those that cannot run yet: whose content is
//! still to come, `limits incoming-bodies`, or of whom a gate has not decided, as many as `in-flight`.
//!
//! What is answered at once never comes here. A `Reply::Later` becomes a [`Later`]: it takes a place, or waits for one,
//! and its future is not polled before. A `Reply::Preparing` is polled at once: it does not run yet, so it
//! takes no place among those in flight before it has become a `Reply::Later`; a bound of its own is for what is still
//! waited for after the first look. Places of both kinds are common to the workers of a process, and shared out
//! (`shares`): of those in flight by upstream and by site, of contents by client and by site, so that one client or one
//! application that hangs leaves the others theirs (FAULTS 58).
//!
//! A [`Later`] belongs to a request, not to a connection: every stream may have one. Dropping it frees its place, or
//! gives up its turn (R2: `RqThrottle`, the connection queue).

use super::Ledger;
use super::addresses::subscriber;
use super::shares::{self, Key};
use super::turns::{Arrival, Bounds, Turn, TurnQueue, Turns};
use crate::memory::{self, Holdings};
use crate::reply::{Need, Reply};
use crate::response::Response;
use crate::signals::SharedSignals;
use crate::trace::Trace;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tidegate_io::LocalFuture;
use tidegate_io::clock::{monotonic_ns, step_ns};
use tidegate_io::socket::Peer;
use tidegate_stats::series::{Phase, SeriesId};
use tidegate_stats::{Elapsed, QueueRefusal};

/// One upstream may hold eight ninths of what is in flight, all routes of one site together sixteen seventeenths.
const UPSTREAM: u32 = 8;
const SITE: u32 = 16;
/// One client may hold half of the contents that are waited for.
const CLIENT: u32 = 1;

/// What all workers of a process have in flight, and what they wait for from clients.
#[derive(Default)]
pub struct InFlight {
    running: Turns<Line>,
    /// Those that wait for their content.
    content: Turns<Line>,
    /// Those that wait for what the server finds out.
    decision: Turns<Line>,
    /// Those that wait for a limit.
    turn: Turns<Line>,
}

impl InFlight {
    fn preparing(&self, need: Need) -> &Turns<Line> {
        match need {
            Need::Content => &self.content,
            Need::Decision => &self.decision,
            Need::Turn => &self.turn,
        }
    }
}

/// By application and site, or by client and site.
type Line = TurnQueue<2, QueueRefusal, ()>;
type Claim = shares::Claim<2>;

/// Leaves a place. What is free goes to those whose turn has come.
fn leave(line: &Turns<Line>, claim: &Claim, bounds: &Bounds<QueueRefusal>) {
    line.change(|line, woken| line.release(claim, bounds, monotonic_ns, woken));
}

/// On whose account a request waits.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// A hash of the site's names.
    pub site: u64,
    /// A hash of the application's address or name; 0 where there is none.
    pub upstream: u64,
    /// The client.
    pub peer: Peer,
    /// Bytes of the head, which whoever makes the answer keeps in one form or another.
    pub head: u32,
    /// What its waiting counts for.
    pub series: SeriesId,
}

impl Account {
    fn in_flight(&self) -> Claim {
        let site = Key { party: self.site, weight: SITE };
        // What waits for no application waits for the machine: a party of each site.
        let upstream = if self.upstream == 0 { self.site.rotate_left(32) ^ 1 } else { self.upstream };
        [Key { party: upstream, weight: UPSTREAM }, site]
    }

    fn preparing(&self) -> Claim {
        let client = match self.peer {
            Peer::Tcp(address) => subscriber(address),
            Peer::Unix => 1,
        };
        [Key { party: client, weight: CLIENT }, Key { party: self.site ^ 2, weight: SITE }]
    }
}

/// A response that is still being made, with its place among those in flight.
pub struct Later {
    stage: Stage,
    account: Account,
    is_exempt: bool,
    holdings: Holdings,
    ledger: Rc<Ledger>,
    signals: Option<Rc<SharedSignals>>,
}

enum Stage {
    /// It waits for what it needs before it can run.
    Preparing {
        need: Need,
        future: LocalFuture<Reply>,
        is_counted: bool,
    },
    /// It runs, or waits for a place to.
    Running {
        future: LocalFuture<Response>,
        place: Place,
    },
    Done,
}

enum Place {
    /// It needs none.
    Exempt,
    Taken,
    /// In a box, since most do not have to.
    Queued(Box<Queued>),
    Refused(QueueRefusal),
    /// There is no memory for what waits.
    Shed,
}

struct Queued {
    turn: Turn,
    /// Where it is written down how long it has waited.
    trace: Option<Rc<Trace>>,
}

impl Later {
    #[inline]
    pub(super) fn new(ledger: &Rc<Ledger>, reply: Reply, account: Account, is_exempt: bool) -> Later {
        let stage = match reply {
            Reply::Ready(response) => {
                Stage::Running { future: Box::pin(std::future::ready(response)), place: Place::Exempt }
            }
            Reply::Later(future) => Stage::Running { future, place: Place::of(ledger, &account, is_exempt) },
            Reply::Preparing(need, future) => Stage::Preparing { need, future, is_counted: false },
        };
        Later {
            stage,
            account,
            is_exempt,
            holdings: Holdings::default(),
            ledger: ledger.clone(),
            signals: None,
        }
    }

    /// How long it waits for a place is written down there, where it waits at once: what had to be prepared first has no room for it.
    pub(crate) fn traces(&mut self, trace: Option<&Rc<Trace>>) {
        if let Stage::Running { place: Place::Queued(queued), .. } = &mut self.stage {
            queued.trace = trace.cloned();
        }
    }

    /// Hears what a handler may still say of the request when it has waited.
    pub(crate) fn hears(&mut self, signals: Option<Rc<SharedSignals>>) {
        self.signals = signals;
    }

    /// Whether a handler has said, since it waited, that the answer is worth nothing once the client has gone.
    pub fn ends_with_client(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| signals.abandons())
    }

    /// What it waits for, in a word.
    pub fn phase(&self) -> &'static str {
        match &self.stage {
            Stage::Preparing { need: Need::Content, .. } => "receiving",
            Stage::Preparing { need: Need::Decision, .. } => "deciding",
            Stage::Preparing { need: Need::Turn, .. } => "queued",
            Stage::Running { place: Place::Queued(_), .. } => "queued",
            Stage::Running { .. } | Stage::Done => "answering",
        }
    }

    /// Whether that is so already when the client has finished sending.
    pub fn ends_when_finished(&self) -> bool {
        let is_preparing = matches!(self.stage, Stage::Preparing { .. });
        is_preparing && self.signals.as_ref().is_some_and(|signals| signals.ends_when_finished())
    }

    /// Whether it waits for a place.
    pub fn is_queued(&self) -> bool {
        matches!(self.stage, Stage::Running { place: Place::Queued(_), .. })
    }

    /// Moves it on. Its task is woken when there is more to do. `has_left`: the client has finished sending
    /// and may be gone; one that waits for a place gives up its turn to those who are there, and gets the
    /// busy answer in case it listens.
    pub fn poll(&mut self, cx: &mut Context<'_>, has_left: bool) -> Poll<Response> {
        if has_left && self.ends_when_finished() {
            self.leave();
            self.stage = Stage::Done;
            return Poll::Ready(self.ledger.busy());
        }
        while let Stage::Preparing { future, need, .. } = &mut self.stage {
            let need = *need;
            match self.holdings.charge(|| future.as_mut().poll(cx)) {
                Poll::Pending if self.count_preparing() => return Poll::Pending,
                Poll::Pending => {
                    self.leave();
                    let (why, limit) = (QueueRefusal::Full, self.ledger.limits().of_preparing(need));
                    match need {
                        Need::Content | Need::Decision => self.ledger.refuse(why, self.account.peer, limit),
                        // The limit that it was about to wait for counts it.
                        Need::Turn => self.ledger.say_refused(why, self.account.peer, limit),
                    }
                    return Poll::Ready(self.ledger.busy());
                }
                Poll::Ready(reply) => {
                    self.leave();
                    self.stage = match reply {
                        Reply::Ready(response) => return Poll::Ready(response),
                        Reply::Preparing(need, future) => {
                            Stage::Preparing { need, future, is_counted: false }
                        }
                        Reply::Later(future) => {
                            if let Some(upstream @ 1..) =
                                self.signals.as_ref().map(|signals| signals.upstream())
                            {
                                self.account.upstream = upstream;
                            }
                            let place = Place::of(&self.ledger, &self.account, self.is_exempt);
                            Stage::Running { future, place }
                        }
                    };
                }
            }
        }
        let Stage::Running { future, place } = &mut self.stage else {
            return Poll::Ready(self.ledger.busy()); // not to be asked again
        };
        if let Place::Queued(queued) = place {
            let Queued { turn, trace } = &mut **queued;
            let claim = self.account.in_flight();
            let line = &self.ledger.shared.in_flight.running;
            let outcome = if has_left && line.lock().withdraw(&claim, turn.ticket()) {
                Err(QueueRefusal::Client)
            } else {
                let settled = |line: &mut Line, ticket, waker: &Waker| line.settled(&claim, ticket, waker);
                let expire = |line: &mut Line, ticket| line.expire(&claim, ticket, QueueRefusal::Age);
                match line.poll_turn(turn, cx, settled, expire) {
                    Poll::Ready(outcome) => outcome,
                    Poll::Pending => return Poll::Pending,
                }
            };
            match outcome {
                Err(why) => *place = Place::Refused(why),
                Ok(()) => {
                    let waited = step_ns().saturating_sub(turn.since());
                    let elapsed = Elapsed::nanos(waited);
                    self.ledger.stats.queue_delay.record_elapsed(elapsed);
                    self.ledger.stats.series.took(self.account.series, Phase::Queue, elapsed);
                    if let Some(trace) = trace {
                        trace.took(Phase::Queue, waited);
                    }
                    self.ledger.enter_flight();
                    *place = Place::Taken;
                }
            }
            self.ledger.stats.queued.sub(1);
        }
        if let Place::Shed = place {
            self.ledger.stats.requests_shed.add(1);
            self.stage = Stage::Done;
            return Poll::Ready(self.ledger.busy());
        }
        if let Place::Refused(why) = place {
            let limit = if *why == QueueRefusal::Age { "queue" } else { "in-flight" };
            self.ledger.refuse(*why, self.account.peer, limit);
            self.stage = Stage::Done;
            return Poll::Ready(self.ledger.busy());
        }
        let polled = self.holdings.charge(|| future.as_mut().poll(cx));
        if polled.is_ready() {
            self.leave();
        }
        polled
    }

    /// Counts content that is still to come; `false` where as much is waited for as may be.
    fn count_preparing(&mut self) -> bool {
        let Stage::Preparing { need, is_counted, .. } = &mut self.stage else { return true };
        if !*is_counted && !self.is_exempt {
            let bounds = self.ledger.limits().preparing(*need);
            let mut line = self.ledger.shared.in_flight.preparing(*need).lock();
            *is_counted = line.try_enter(&self.account.preparing(), &bounds);
            return *is_counted;
        }
        true
    }

    /// Bytes of the request's head, of the future that makes the answer, and of what else it is made of, as far as it is
    /// told ([`crate::memory::Weight`]).
    pub fn held(&self) -> usize {
        let future = match &self.stage {
            Stage::Preparing { future, .. } => size_of_val(&**future),
            Stage::Running { future, .. } => size_of_val(&**future),
            Stage::Done => 0,
        };
        size_of::<Later>() + future + self.account.head as usize + self.holdings.held()
    }

    fn leave(&mut self) {
        let ledger = &self.ledger;
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Preparing { need, is_counted: true, .. } => {
                let bounds = ledger.limits().preparing(need);
                leave(ledger.shared.in_flight.preparing(need), &self.account.preparing(), &bounds);
            }
            Stage::Running { place: Place::Taken, .. } => {
                ledger.stats.in_flight.sub(1);
                let (claim, bounds) = (self.account.in_flight(), ledger.limits().running());
                leave(&ledger.shared.in_flight.running, &claim, &bounds);
            }
            Stage::Running { place: Place::Queued(queued), .. } => {
                ledger.stats.queued.sub(1);
                ledger.stats.queue_refusals.add(QueueRefusal::Client, 1);
                let (claim, bounds) = (self.account.in_flight(), ledger.limits().running());
                ledger.shared.in_flight.running.change(|line, woken| {
                    line.leave(&claim, queued.turn.ticket(), &bounds, monotonic_ns, woken);
                });
            }
            Stage::Running { place: Place::Exempt | Place::Refused(_) | Place::Shed, .. }
            | Stage::Preparing { is_counted: false, .. }
            | Stage::Done => {}
        }
    }
}

impl Place {
    fn of(ledger: &Ledger, account: &Account, is_exempt: bool) -> Place {
        if is_exempt {
            return Place::Exempt;
        }
        if memory::is_short() {
            return Place::Shed;
        }
        let bounds = ledger.limits().running();
        // Nobody is to be woken before the first look at it.
        let entry = ledger.shared.in_flight.running.lock().enter(
            &account.in_flight(),
            &bounds,
            monotonic_ns,
            Waker::noop(),
        );
        match entry {
            Arrival::Granted => {
                ledger.enter_flight();
                Place::Taken
            }
            Arrival::Queued { turn, .. } => {
                ledger.stats.queued.add(1);
                ledger.stats.requests_queued.add(1);
                Place::Queued(Box::new(Queued { turn, trace: None }))
            }
            Arrival::Full => Place::Refused(QueueRefusal::Full),
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Done) {
            self.leave();
        }
    }
}
