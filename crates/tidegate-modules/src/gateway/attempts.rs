//! A request is tried until somebody has answered it, or nobody is left who may: the one loop for every protocol
//! (FAULTS 62).
//!
//! It waits for a place, has the protocol try the request there ([`Attempt`]), tells the member what came of it, and
//! decides whether the request may be sent again: at once, where the connection and not the application has failed, or
//! to another member. What every attempt comes to is counted and said once.

use super::about::About;
use super::link::Link;
use super::places::Refused;
use super::upstream::{RoutingState, Selection, Upstream};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tidegate_core::{Response, answer, log};
use tidegate_http::Status;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::{descriptors, timer};
use tidegate_stats::Elapsed;
use tidegate_stats::GatewayFailure;
use tidegate_stats::series::Phase;

/// Whether a request is sent again at once, to the same application: what has failed is the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtOnce {
    Never,
    /// It was closed at the same moment, which is nobody's fault.
    Coincidence,
    /// It was for so many requests, and others came first: with each the application gets on.
    BehindOthers,
}

impl AtOnce {
    /// So often for one request.
    fn most(self) -> u32 {
        match self {
            AtOnce::Never => 0,
            AtOnce::Coincidence => 2,
            AtOnce::BehindOthers => 16,
        }
    }
}

/// How long a process of a pool may be gone without the supervisor having said so, and how often it is looked whether it has:
/// a request that nobody has got waits for the next one.
const GONE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

/// A request in the words of its protocol, ready to be sent.
pub(super) trait Attempt {
    /// The way to the application, and what the request brings to the choice of a member.
    fn way(&mut self) -> (&Rc<Link>, &mut RoutingState);

    /// The request in messages.
    fn about(&self) -> About;

    /// Tries it with this member, which is there at first; `wants_new` where idle connections may be as old as one that
    /// has failed.
    async fn attempt(
        &mut self,
        pick: &mut Option<Selection>,
        wants_new: bool,
    ) -> Result<Response, Box<Failure>>;

    /// Begins anew, with what is held of the content.
    fn rewind(&mut self);
}

/// An attempt that came to nothing.
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// Who is to blame; `None` where that has been said.
    pub(super) pick: Option<Selection>,
    /// Whether it may be sent again, although it may be under way.
    pub(super) may_repeat: bool,
    pub(super) at_once: AtOnce,
}

/// Why an attempt has failed.
pub(super) enum Fault {
    /// There is no connection, and nothing was sent.
    Unreachable(io::Error),
    /// No answer within the time that the settings say.
    Silent,
    /// No process of the pool is left that could have accepted the connection, and nobody has begun with the request.
    Unaccepted,
    /// The client's content ended badly; the engine answers in place of whatever is said here.
    Client,
    /// The application has given up the request while the client owed content. That says nothing of its health.
    Owed(String),
    /// What came is no answer.
    Application(GatewayFailure, String),
}

impl Failure {
    /// Nobody was reached.
    pub(super) fn unreachable(error: io::Error, pick: Option<Selection>) -> Box<Failure> {
        Box::new(Failure { fault: Fault::Unreachable(error), pick, may_repeat: true, at_once: AtOnce::Never })
    }
}

/// What is known of the attempts so far.
#[derive(Default)]
struct Attempts {
    /// Sent again at once so often, for each reason.
    at_once: [u32; 3],
    wants_new: bool,
    /// It has waited so long for a process to be replaced, and does again before it is tried.
    waited: Duration,
    is_waiting: bool,
    /// How an earlier member has failed: what the client hears when there is no other.
    before: Option<Box<Error>>,
}

/// What a client gets in place of an application's answer.
struct Error {
    answer: Response,
    /// Why; `None` where the client itself is to blame.
    why: Option<GatewayFailure>,
}

impl Error {
    /// It is what the client gets: counted.
    fn told(self, link: &Link, routing: &RoutingState) -> Response {
        if let Some(why) = self.why {
            routing.gave_up(&link.shared.stats, why);
        }
        self.answer
    }
}

/// What has been done for a request already.
#[derive(Default)]
pub(super) struct Begun {
    /// It has a place.
    pub(super) pick: Option<Selection>,
    /// It was tried, and that came to nothing.
    pub(super) failure: Option<Box<Failure>>,
}

/// Counts a request that is to be tried.
pub(super) fn count(link: &Link) {
    link.shared.stats.gateway_requests.add(1);
}

/// Tries a request that has been counted. What seldom has to be waited for is in a box of its own: the future is made anew for each request, and
/// all that it could ever wait for is a part of it.
pub(super) async fn until_answered<A: Attempt>(mut request: A, begun: Begun) -> Response {
    let mut attempts = Attempts::default();
    let Begun { mut pick, failure } = begun;
    if let Some(failure) = failure
        && let Some(answer) = attempts.end(&mut request, *failure)
    {
        return answer;
    }
    loop {
        let (link, routing) = request.way();
        pick = pick.or_else(|| link.upstream.try_pick(routing, monotonic_ns()));
        if pick.is_none() {
            match Box::pin(place(link, routing)).await {
                Ok(waited_for) => pick = Some(waited_for),
                Err(refused) => {
                    let (error, about) = (attempts.before.take(), request.about());
                    let (link, routing) = request.way();
                    // Others may have it, and are busy: that is what the client is to know, and when to come again.
                    let is_last = matches!(refused, Refused::Down { .. });
                    let error = error.filter(|_| is_last);
                    let error = error.map_or_else(|| refuse(link, &about, &refused), |error| *error);
                    return error.told(link, routing);
                }
            }
        }
        match request.attempt(&mut pick, attempts.wants_new).await {
            Ok(response) => return response,
            Err(failure) => {
                if let Some(answer) = attempts.end(&mut request, *failure) {
                    return answer;
                }
            }
        }
        pick = None;
        if std::mem::take(&mut attempts.is_waiting) {
            Box::pin(timer::after(LOOK)).await;
        }
    }
}

/// Waits for a place; how long is counted where it has to.
async fn place(link: &Link, routing: &RoutingState) -> Result<Selection, Refused> {
    let mut pick = std::pin::pin!(link.upstream.pick(routing));
    let mut since = None;
    let outcome = std::future::poll_fn(|cx| {
        let polled = pick.as_mut().poll(cx);
        if polled.is_pending() && since.is_none() {
            since = Some((monotonic_ns(), routing.queues(&link.shared.stats, &link.name)));
        }
        polled
    })
    .await;
    if let Some((since, queued)) = since {
        drop(queued);
        let elapsed = Elapsed::nanos(monotonic_ns().saturating_sub(since));
        link.shared.stats.gateway_queue_delay.record_elapsed(elapsed);
        link.took(routing, None, Phase::Queue, elapsed);
    }
    outcome
}

impl Attempts {
    /// Says and counts what has failed. `None`: the request is to be sent again.
    #[cold]
    fn end(&mut self, request: &mut impl Attempt, failure: Failure) -> Option<Response> {
        let Failure { fault, pick, may_repeat, at_once } = failure;
        let about = request.about();
        let (link, routing) = request.way();
        let times = &mut self.at_once[at_once as usize];
        if may_repeat && *times < at_once.most() {
            link.shared.stats.gateway_retries.add(1);
            *times += 1;
            self.wants_new = true;
            request.rewind();
            return None;
        }
        if let Fault::Unreachable(error) = &fault
            && descriptors::is_exhaustion(error)
        {
            // Nobody was asked: it says nothing of a member, and another could not be asked either.
            descriptors::are_lacking();
            log::error(format_args!("503: {about}: {} was not asked: {}", link.name, descriptors::advice()));
            return Some(answer::busy(Some(1)));
        }
        if self.waited < GONE && link.upstream.awaits_another(routing, &fault, pick.as_ref()) {
            (self.waited, self.is_waiting, self.before) = (self.waited + LOOK, true, None);
            return None;
        }
        let error = failed(link, &about, &fault, pick.as_ref());
        let is_unaccepted = matches!(fault, Fault::Unaccepted);
        let is_sent = !matches!(fault, Fault::Unreachable(_));
        match (&fault, pick) {
            (Fault::Client | Fault::Owed(_) | Fault::Unaccepted, _) | (_, None) => {}
            (Fault::Silent, Some(pick)) => pick.hung(routing),
            (_, Some(mut pick)) => pick.failed(routing),
        }
        // Where nothing was sent somebody else may have it, whatever the request is.
        if !may_repeat || !link.upstream.may_retry(routing, is_sent) {
            return Some(error.told(link, routing));
        }
        link.shared.stats.gateway_retries.add(1);
        if is_sent {
            // The idle connections to a pool's process may be as old as the one that has failed.
            self.wants_new = link.upstream.is_pool();
            request.rewind();
        }
        // What nobody has accepted is answered by what the pool says of itself now.
        if !is_unaccepted {
            self.before = Some(Box::new(error));
        }
        None
    }
}

/// Says and counts a fault; what the client hears of it.
fn failed(link: &Link, about: &About, fault: &Fault, pick: Option<&Selection>) -> Error {
    let (failures, name) = (&link.shared.stats.gateway_failures, &link.name);
    match fault {
        Fault::Client => Error { answer: answer::error(Status::BAD_REQUEST), why: None },
        Fault::Unreachable(error) => {
            failures.add(GatewayFailure::Unreachable, 1);
            let is_late = error.kind() == io::ErrorKind::TimedOut;
            let why = if is_late { "no connection in time".to_owned() } else { error.to_string() };
            match (&link.upstream, pick.and_then(Selection::address)) {
                (Upstream::Pool(_) | Upstream::Group(_), Some(address)) => {
                    unreachable(about, &format_args!("{address} of {name}"), &why);
                }
                _ => unreachable(about, name, &why),
            }
            let status = if is_late { Status::GATEWAY_TIMEOUT } else { Status::BAD_GATEWAY };
            Error { answer: answer::error(status), why: Some(GatewayFailure::Unreachable) }
        }
        Fault::Silent => {
            failures.add(GatewayFailure::Silent, 1);
            log::error(format_args!("{about}: {name}: no answer within {:?}", link.timeout));
            Error { answer: answer::error(Status::GATEWAY_TIMEOUT), why: Some(GatewayFailure::Silent) }
        }
        Fault::Unaccepted => {
            failures.add(GatewayFailure::Down, 1);
            log::info(format_args!("{about}: {name}: no process is left to accept the request"));
            Error { answer: answer::out_of_reach(1), why: Some(GatewayFailure::Down) }
        }
        Fault::Owed(said) => {
            log::info(format_args!(
                "502: {about}: {name}: {said}, while content of the client was still to come"
            ));
            Error { answer: answer::error(Status::BAD_GATEWAY), why: None }
        }
        Fault::Application(kind, said) => {
            failures.add(*kind, 1);
            log::error(format_args!("{about}: {name}: {said}"));
            let answer = match kind {
                GatewayFailure::Overloaded => answer::busy(Some(1)),
                _ => answer::error(Status::BAD_GATEWAY),
            };
            Error { answer, why: Some(*kind) }
        }
    }
}

fn unreachable(about: &About, whom: &dyn std::fmt::Display, why: &str) {
    log::error(format_args!("{about}: {whom} cannot be reached: {why}"));
}

/// The answer to a request that got no place.
fn refuse(link: &Link, about: &About, refused: &Refused) -> Error {
    let why = match refused {
        Refused::Full { .. } => GatewayFailure::QueueFull,
        Refused::TooOld { .. } => GatewayFailure::QueueAge,
        Refused::Down { .. } => GatewayFailure::Down,
    };
    link.shared.stats.gateway_failures.add(why, 1);
    match &link.upstream {
        Upstream::Group(group) if why == GatewayFailure::Down => {
            log::info(format_args!("503: {about}: {}: {}", link.name, group.why_down()));
        }
        _ => log::info(format_args!("503: {about}: {}: {refused}", link.name)),
    }
    let retry_after = refused.retry_after_seconds();
    let answer = match why {
        GatewayFailure::Down => answer::out_of_reach(retry_after),
        _ => answer::busy(Some(retry_after)),
    };
    Error { answer, why: Some(why) }
}
