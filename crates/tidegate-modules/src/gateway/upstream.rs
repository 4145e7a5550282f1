//! Which member of an application gets a request: the seam between the protocols and pools, groups and plain
//! addresses.

use super::attempts::Fault;
use super::balance::{self, BalanceKey, Group, Sticky, Tried};
use super::link::Link;
use super::places::{Membership, Place, PlaceLimits, Places, Refused};
use super::pool::Attended;
use super::pool_directory::{Lease, Pool, PoolDirectory};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tidegate_config::settings::gateway::{Connections, Destination, Gateway};
use tidegate_core::Exchange;
use tidegate_core::trace::Trace;
use tidegate_http::{FieldLines, Status};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::Address;
use tidegate_stats::series::{Phase, SeriesId};
use tidegate_stats::{Elapsed, GatewayFailure, Worker as Stats};

/// Requests that wait for the beginning of their answers at one address, or at one member of a group, where the settings
/// say no number: an application that hangs fills its own queue and no more (FAULTS 58).
pub(super) const USUAL_PLACES: usize = 1024;
/// Further processes of a pool that a request is tried on when one ends under it: what has ended two of them is not given
/// a third (FAULTS 62).
const POOL_RETRIES: u32 = 1;

/// Where the requests of a route go.
pub enum Upstream {
    /// One address, with as many requests at once as are set.
    Address {
        /// Where it is.
        address: Address,
        /// The queue before it, shared by the workers; `None` where nothing bounds it.
        places: Option<Arc<Places>>,
        /// A place is free again when the answer begins.
        until_head: bool,
    },
    /// A pool that the server runs.
    Pool(Arc<Pool>),
    /// Servers elsewhere.
    Group(Arc<Group>),
}

/// What a request brings to the choice of a member, and where it has been tried.
pub(super) struct RoutingState {
    /// A hash of the site on whose account it waits.
    site: u64,
    balance_key: BalanceKey,
    sticky: Sticky,
    tried: Tried,
    /// Processes of a pool that have failed it.
    left: Vec<Address>,
    retries: u32,
    /// Where it is written down who is asked, for a log.
    trace: Option<Rc<Trace>>,
    /// What its times count for; `None`: nothing.
    series: Option<SeriesId>,
}

impl RoutingState {
    /// Of a request; `may_repeat` when it may be sent again although it may have been begun with.
    pub(super) fn of(link: &Link, exchange: &Exchange<'_>, may_repeat: bool) -> RoutingState {
        let balance_key = match &link.upstream {
            Upstream::Group(group) => BalanceKey::of(group, link.site_account, exchange, may_repeat),
            Upstream::Address { .. } | Upstream::Pool(_) => BalanceKey::default(),
        };
        let trace = exchange.watcher();
        if let Some(trace) = &trace {
            trace.set_url(None::<fn() -> String>);
        }
        RoutingState {
            site: link.site_account,
            balance_key,
            sticky: Sticky::of(exchange),
            tried: Tried::default(),
            left: Vec::new(),
            retries: 0,
            trace,
            series: Some(exchange.series()),
        }
    }

    /// The same, and what the application is asked for has a URL.
    pub(super) fn with_url(self, url: impl FnOnce() -> String) -> RoutingState {
        if let Some(trace) = &self.trace {
            trace.set_url(Some(url));
        }
        self
    }

    /// The same for a request that is not its client's: nobody logs who is asked.
    pub(super) fn unwatched(self) -> RoutingState {
        RoutingState { trace: None, series: None, ..self }
    }
}

impl RoutingState {
    /// Counts how long a phase of it took, for its route, and writes it down.
    #[inline]
    pub(super) fn took(&self, stats: &Stats, phase: Phase, elapsed: Elapsed) {
        if let Some(trace) = &self.trace {
            trace.took(phase, elapsed.as_nanos());
        }
        if let Some(series) = self.series {
            stats.series.took(series, phase, elapsed);
        }
    }

    /// It waits for a place on this application until what is given back is dropped: counted, and told operators.
    pub(super) fn queues<'s>(&self, stats: &'s Stats, application: &str) -> Queued<'s> {
        stats.gateway_queued.add(1);
        if let Some(trace) = &self.trace {
            trace.set_queued_for(Some(application));
        }
        Queued { stats, trace: self.trace.clone() }
    }

    /// What it counts for; `None`: for no route.
    pub(super) fn series(&self) -> Option<SeriesId> {
        self.series
    }

    /// Its client gets an error in place of an application's answer: counted, for its route as well.
    #[cold]
    pub(super) fn gave_up(&self, stats: &Stats, why: GatewayFailure) {
        stats.gateway_errors.add(why, 1);
        if let Some(series) = self.series {
            stats.series.failed(series, why);
        }
    }

    /// Of a request of the server's own.
    pub(super) fn of_nobody(link: &Link) -> RoutingState {
        RoutingState {
            site: link.site_account,
            balance_key: BalanceKey::of_nobody(link.site_account, true),
            sticky: Sticky::of_nobody(),
            trace: None,
            series: None,
            tried: Tried::default(),
            left: Vec::new(),
            retries: 0,
        }
    }
}

/// A request that waits for a place on an application. See [`RoutingState::queues`].
pub(super) struct Queued<'s> {
    stats: &'s Stats,
    trace: Option<Rc<Trace>>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.stats.gateway_queued.sub(1);
        if let Some(trace) = &self.trace {
            trace.set_queued_for(None);
        }
    }
}

/// A member that takes a request; its place is free again when this is dropped.
pub struct Selection {
    permit: Permit,
    trace: Option<Rc<Trace>>,
}

enum Permit {
    Nothing,
    Place { _place: Place, until_head: bool },
    Lease(Lease),
    Member(balance::Lease),
}

impl Selection {
    #[inline]
    fn of(permit: Permit, upstream: &Upstream, routing: &RoutingState, now: u64) -> Selection {
        let mut chosen = Selection { permit, trace: None };
        if let Some(trace) = &routing.trace {
            trace.begin_try(chosen.address().or(upstream.address()).cloned(), now);
            chosen.trace = Some(trace.clone());
        }
        chosen
    }

    /// There is a connection to it; `now` is monotonic, nanoseconds.
    pub(super) fn connected(&self, now: u64) {
        if let Some(trace) = &self.trace {
            trace.connected(now);
        }
    }

    /// A head that is sent to it tells of this try, also where it was written for an earlier one.
    #[inline]
    pub(super) fn rename_span(&self, head: &mut [u8]) {
        if let Some(trace) = &self.trace {
            trace.rename_span(head);
        }
    }

    /// The same of lines that are not on the wire yet.
    pub(super) fn rename_span_in(&self, lines: &mut FieldLines) {
        if self.trace.as_ref().is_some_and(|trace| trace.is_asked_again()) {
            let mut raw = lines.as_bytes().to_vec();
            self.rename_span(&mut raw);
            lines.clear();
            lines.append_lines(&raw);
        }
    }

    /// The head of its answer has come; `now` as in [`Selection::connected`].
    pub(super) fn head_has_come(&self, status: Status, now: u64) {
        if let Some(trace) = &self.trace {
            trace.answered(status.0, now);
        }
    }

    /// Its answer is over: what it does then is no part of the request.
    pub(super) fn end_try(&mut self) {
        if let Some(trace) = self.trace.take() {
            trace.end_try();
        }
    }

    /// Whether a script that goes on behind its answer may take its time.
    pub(super) fn outlasts_answer(&self) -> bool {
        match &self.permit {
            Permit::Lease(lease) => lease.outlasts_answer(),
            Permit::Nothing | Permit::Place { .. } | Permit::Member(_) => true,
        }
    }

    /// Of the pool whose process it is.
    pub(super) fn pool_name(&self) -> Option<&str> {
        match &self.permit {
            Permit::Lease(lease) => Some(lease.pool_name()),
            Permit::Nothing | Permit::Place { .. } | Permit::Member(_) => None,
        }
    }

    /// Of a process of ours: tells when nobody accepts connections there any more.
    pub(super) fn attended(&self) -> Option<Attended> {
        match &self.permit {
            Permit::Lease(lease) => Some(lease.attended()),
            Permit::Nothing | Permit::Place { .. } | Permit::Member(_) => None,
        }
    }

    /// It has not answered until the deadline: where it is a process of ours, it is ended.
    pub(super) fn hung(mut self, routing: &mut RoutingState) {
        match std::mem::replace(&mut self.permit, Permit::Nothing) {
            Permit::Lease(lease) => lease.hung(),
            Permit::Member(mut lease) => lease.failed(&mut routing.tried),
            Permit::Nothing | Permit::Place { .. } => {}
        }
    }

    /// It could not be reached, or what came of it is no answer.
    pub(super) fn failed(&mut self, routing: &mut RoutingState) {
        match &mut self.permit {
            Permit::Member(lease) => lease.failed(&mut routing.tried),
            Permit::Lease(lease) => routing.left.push(lease.address().clone()),
            Permit::Nothing | Permit::Place { .. } => {}
        }
    }

    /// It has answered. The value of a `Set-Cookie` that brings the client back to it, where one is wanted.
    pub(super) fn answered(&mut self, upstream: &Upstream, routing: &RoutingState) -> Option<String> {
        if let Permit::Place { until_head: true, .. } = &self.permit {
            self.permit = Permit::Nothing;
        }
        if let Permit::Lease(lease) = &self.permit {
            lease.answered();
        }
        let (Permit::Member(lease), Upstream::Group(group)) = (&mut self.permit, upstream) else {
            return None;
        };
        lease.answered();
        routing.sticky.set_cookie(group, routing.balance_key, lease.tag())
    }

    /// Of a group the member: where it is, and as it is written.
    pub(super) fn member(&self) -> Option<(&Address, &str)> {
        match &self.permit {
            Permit::Member(lease) => Some((lease.address(), lease.name())),
            Permit::Nothing | Permit::Place { .. } | Permit::Lease(_) => None,
        }
    }

    /// Where to connect; `None` is the one address of the upstream.
    pub fn address(&self) -> Option<&Address> {
        match &self.permit {
            Permit::Lease(lease) => Some(lease.address()),
            Permit::Member(lease) => Some(lease.address()),
            Permit::Nothing | Permit::Place { .. } => None,
        }
    }
}

impl Drop for Selection {
    fn drop(&mut self) {
        if let Some(trace) = &self.trace {
            trace.end_try();
        }
    }
}

/// The queues before plain addresses, one for each address and set of bounds, so that the workers, and the
/// routes that say the same, share it.
#[derive(Default)]
pub(super) struct Queues(Mutex<HashMap<(Destination, Bounds), Weak<Places>>>);

impl Queues {
    fn of(&self, key: (Destination, Bounds), limits: PlaceLimits) -> Arc<Places> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let places = Places::new(limits);
            queues.insert(key, Arc::downgrade(&places));
            places
        })
    }

    /// Forgets those that nobody uses.
    pub(super) fn sweep(&self) {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|_, places| places.strong_count() > 0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Places, length, age, and whether places are for the time until the answer begins.
type Bounds = (usize, usize, Duration, bool);

impl Upstream {
    /// The upstream that settings name.
    pub fn of(settings: &Gateway, directory: &PoolDirectory) -> Upstream {
        let address = match &settings.to {
            Destination::Named(name) => {
                return match directory.groups().named(name) {
                    Some(group) => Upstream::Group(group),
                    None => Upstream::Pool(directory.pool(name)),
                };
            }
            Destination::Tcp(address) => Address::Tcp(*address),
            Destination::Unix(path) => Address::Unix(path.as_path().into()),
        };
        let most = match settings.connections {
            Connections::Auto => Some(USUAL_PLACES),
            Connections::Most(connections) => Some(connections as usize),
            Connections::Unlimited => None,
        };
        let until_head = settings.connections == Connections::Auto;
        let places = most.map(|most| {
            let limits = PlaceLimits {
                places: most,
                queue_length: settings.queue_length as usize,
                queue_age: Some(settings.queue_age),
            };
            let key =
                (settings.to.clone(), (limits.places, limits.queue_length, settings.queue_age, until_head));
            directory.queues().of(key, limits)
        });
        Upstream::Address { address, places, until_head }
    }

    /// A site's routes lead here for as long as this is held.
    pub(super) fn join(&self, site: u64) -> Option<Membership> {
        let places = match self {
            Upstream::Address { places, .. } => places.as_ref()?,
            Upstream::Pool(pool) => pool.places(),
            Upstream::Group(group) => group.places(),
        };
        Some(places.join(site))
    }

    /// A place at once, where the choice is simple and one is free; `now` is monotonic, nanoseconds.
    pub(super) fn try_pick(&self, routing: &RoutingState, now: u64) -> Option<Selection> {
        match self {
            Upstream::Address { places: None, .. } => {
                Some(Selection::of(Permit::Nothing, self, routing, now))
            }
            Upstream::Address { places: Some(places), until_head, .. } => {
                let held = |place| Permit::Place { _place: place, until_head: *until_head };
                let pick = |place| Selection::of(held(place), self, routing, now);
                places.try_take(routing.site).map(pick)
            }
            Upstream::Pool(_) | Upstream::Group(_) => None,
        }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// The queue is full, the wait was too long, or the application is down.
    pub(super) async fn pick(&self, routing: &RoutingState) -> Result<Selection, Refused> {
        let held = match self {
            Upstream::Address { places: None, .. } => Permit::Nothing,
            Upstream::Address { places: Some(places), until_head, .. } => {
                Permit::Place { _place: places.take(routing.site).await?, until_head: *until_head }
            }
            Upstream::Pool(pool) => Permit::Lease(pool.take(routing.site, &routing.left).await?),
            Upstream::Group(group) => Permit::Member(group.take(routing.balance_key, &routing.tried).await?),
        };
        Ok(Selection::of(held, self, routing, monotonic_ns()))
    }

    /// Whether a request that has failed may be sent again, to somebody else; the caller knows whether that is
    /// safe. `is_sent`: it may be under way where it has failed.
    pub(super) fn may_retry(&self, routing: &mut RoutingState, is_sent: bool) -> bool {
        match self {
            // It would meet the same again.
            Upstream::Address { .. } => false,
            Upstream::Pool(_) => {
                routing.retries += 1;
                routing.retries <= POOL_RETRIES
            }
            Upstream::Group(group) => group.may_retry(&routing.tried, is_sent),
        }
    }

    /// Whether nobody has got a request since a process of ours is no more, and has been found so before: the supervisor is about
    /// to say that it has another.
    pub(super) fn awaits_another(
        &self,
        routing: &RoutingState,
        fault: &Fault,
        pick: Option<&Selection>,
    ) -> bool {
        let (Upstream::Pool(pool), Fault::Unreachable(error)) = (self, fault) else { return false };
        let is_gone = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
        let is_known =
            pick.and_then(Selection::address).is_some_and(|address| routing.left.contains(address));
        is_gone && is_known && pool.is_supervised()
    }

    /// Whether it is a pool.
    pub(super) fn is_pool(&self) -> bool {
        matches!(self, Upstream::Pool(_))
    }

    /// The one address, where there is one.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Upstream::Address { address, .. } => Some(address),
            Upstream::Pool(_) | Upstream::Group(_) => None,
        }
    }
}
