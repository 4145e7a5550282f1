//! What a route knows of its application at run time: where it is, the connections of this worker to it, and
//! the bounds of an exchange.

use super::head_deadlines::HeadDeadlines;
use super::places::Membership;
use super::pool_directory::PoolDirectory;
use super::sendfile::Sendfile;
use super::spill::Spill;
use super::upstream::{RoutingState, Selection, Upstream};
use crate::login::OwnCookies;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tidegate_client::http2::Http2Pool;
use tidegate_client::{PeerTls, Pool, PoolLimits};
use tidegate_config::settings::gateway::{Destination, Gateway};
use tidegate_config::settings::{self, HostPattern, UserSource};
use tidegate_core::site::account_of;
use tidegate_core::{Exchange, Response, answer};
use tidegate_io::connect::Address;
use tidegate_stats::series::Phase;
use tidegate_stats::{Elapsed, PartTimes, Timed, Worker as Stats};
use tidegate_tls::Connector;

/// Members of an upstream that a route remembers its connections to.
const MEMBERS_MAX: usize = 64;

/// What the applications of one worker share.
pub struct Shared {
    directory: Arc<PoolDirectory>,
    /// What the worker counts.
    pub(super) stats: Arc<Stats>,
    spill: RefCell<Arc<Spill>>,
    /// Of an address there are several where TLS with it is spoken in several ways.
    pools: RefCell<HashMap<Address, Vec<Weak<Pool>>>>,
    /// Those that were there when the present revision came into force: its routes ask for them with their first requests,
    /// and the routes before have gone by then. Their idle connections end at `keep-timeout` all the same.
    inherited: RefCell<Vec<Rc<Pool>>>,
    /// Links of an engine that is not in force yet. Their sites have no share of an application's places before.
    prepared: RefCell<Vec<Weak<Link>>>,
    /// Of the settings that links are made for.
    own_cookies: RefCell<Rc<OwnCookies>>,
    is_draining: Cell<bool>,
}

impl Shared {
    /// For one worker. `directory` is the process's.
    pub fn new(
        directory: Arc<PoolDirectory>,
        stats: Arc<Stats>,
        spill: &settings::gateway::Spill,
    ) -> Rc<Shared> {
        Rc::new(Shared {
            spill: RefCell::new(directory.spill(spill)),
            directory,
            stats,
            prepared: RefCell::default(),
            own_cookies: RefCell::default(),
            is_draining: Cell::new(false),
            pools: RefCell::default(),
            inherited: RefCell::default(),
        })
    }

    /// The worker accepts no more: whoever has come keeps being served, and idle connections, which hold processes of
    /// applications that others wait for, are for nobody.
    pub fn drain(&self) {
        self.is_draining.set(true);
        self.pools.borrow().values().flatten().filter_map(Weak::upgrade).for_each(|pool| pool.close());
    }

    /// An engine is about to be built, for settings with these users. One that was prepared before and never came into force
    /// has gone.
    pub fn begin(&self, users: &[UserSource]) {
        *self.own_cookies.borrow_mut() = OwnCookies::of(users);
        self.prepared.borrow_mut().clear();
    }

    /// Takes up the settings of a new revision, while the routes of the one before are still there.
    pub fn adopt(&self, spill: &settings::gateway::Spill) {
        *self.spill.borrow_mut() = self.directory.spill(spill);
        for link in self.prepared.take().iter().filter_map(Weak::upgrade) {
            link.membership.replace(link.upstream.join(link.site_account));
        }
        let known = |pool: &Weak<Pool>| pool.upgrade().filter(|pool| pool.has_idle());
        let pools: Vec<_> = self.pools.borrow().values().flatten().filter_map(known).collect();
        // What is let go of is dropped when nothing is borrowed any more.
        let before = self.inherited.replace(pools);
        drop(before);
    }

    /// Where content waits that has to be complete.
    pub fn spill(&self) -> Arc<Spill> {
        self.spill.borrow().clone()
    }

    /// This worker's connections to an address.
    fn pool(&self, address: &Address, mut limits: PoolLimits, tls: Option<&PeerTls>) -> Rc<Pool> {
        if self.is_draining.get() {
            limits.idle = 0;
        }
        let mut pools = self.pools.borrow_mut();
        let known = pools.get(address).into_iter().flatten().filter_map(Weak::upgrade);
        if let Some(pool) = known.into_iter().find(|pool| pool.tls() == tls) {
            pool.set_limits(limits);
            return pool;
        }
        pools.retain(|_, pools| {
            pools.retain(|pool| pool.strong_count() > 0);
            !pools.is_empty()
        });
        let pool = Pool::with_tls(self.directory.peers().peer(address), limits, tls.cloned());
        pools.entry(address.clone()).or_default().push(Rc::downgrade(&pool));
        pool
    }
}

/// `None`: too many others are timed.
type MemberTimes = Option<Arc<PartTimes>>;

/// The answer to a path with a `%2F` that is not for the application.
#[cold]
pub(super) fn encoded_slash(exchange: &Exchange<'_>) -> Response {
    let response = answer::encoded_slash(exchange);
    answer::remedy(|| "to pass such paths on, write `encoded-slashes` in its block".to_owned());
    response
}

/// A route's way to its application.
pub struct Link {
    /// Who gets a request.
    pub upstream: Upstream,
    /// How long the application may be silent.
    pub timeout: Duration,
    /// The same until the heads of answers.
    pub(super) head_deadlines: Rc<HeadDeadlines>,
    /// Bytes held for a slow client.
    pub buffer: usize,
    /// Bytes of a request body collected first.
    pub request_buffer: usize,
    /// Files that the application may have sent.
    pub sendfile: Sendfile,
    /// Fields that clients may send although only proxies do, in small letters.
    pub passed_fields: Vec<String>,
    /// The application gets a path with `%2F`, as it was sent.
    pub passes_encoded_slashes: bool,
    /// What the workers' applications share.
    pub shared: Rc<Shared>,
    /// Cookies that are this server's own, and nothing for applications.
    pub own_cookies: Rc<OwnCookies>,
    /// On whose account requests wait: the same on all workers, never 0.
    pub account: u64,
    /// On whose account they wait for its places: the site's, as in `core`.
    pub(super) site_account: u64,
    /// From when the engine is in force.
    membership: RefCell<Option<Membership>>,
    /// The application in messages: `unix:/run/php.sock`.
    pub name: String,
    /// The site in messages, and where a client names no host.
    pub site: String,
    limits: PoolLimits,
    /// How TLS is spoken with it.
    tls: Option<PeerTls>,
    /// Of the one address.
    pool: OnceCell<Rc<Pool>>,
    /// Of the members met so far.
    pools: RefCell<Vec<(Address, Rc<Pool>)>>,
    /// The same where HTTP/2 is spoken.
    multiplexed: RefCell<Vec<(Address, Rc<Http2Pool>)>>,
    /// How long it has kept requests waiting, and each of the members met so far.
    times: Option<Arc<PartTimes>>,
    times_of_members: RefCell<Vec<(Address, Rc<MemberTimes>)>>,
}

impl Link {
    /// The way that settings describe. `connector` is there for what is reached with TLS.
    ///
    /// # Errors
    /// A folder for `sendfile` cannot be opened, or the name of the peer's certificate is none.
    pub fn new(
        shared: &Rc<Shared>,
        settings: &Gateway,
        site: &settings::Site,
        connector: Option<Arc<Connector>>,
    ) -> io::Result<Rc<Link>> {
        let tls = match (&settings.tls, connector) {
            (Some(tls), Some(connector)) => {
                Some(PeerTls { connector, name: Connector::name(&tls.name).map_err(io::Error::other)? })
            }
            _ => None,
        };
        let limits = PoolLimits {
            idle: settings.keep as usize,
            idle_timeout: settings.keep_timeout,
            connect_timeout: settings.connect_timeout,
        };
        let name = match &settings.to {
            Destination::Named(name) => name.clone(),
            Destination::Tcp(address) => address.to_string(),
            Destination::Unix(path) => format!("unix:{}", path.display()),
        };
        let is_exact = |pattern: &HostPattern| match pattern {
            HostPattern::Exact(name) => Some(name.clone()),
            HostPattern::Suffix(_) => None,
        };
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let site_account = account_of(site);
        let upstream = Upstream::of(settings, &shared.directory);
        let link = Rc::new(Link {
            times: shared.stats.times.of(Timed::Application(name.clone())),
            times_of_members: RefCell::default(),
            site_account,
            membership: RefCell::default(),
            upstream,
            timeout: settings.timeout,
            head_deadlines: HeadDeadlines::new(settings.timeout),
            buffer: usize::try_from(settings.buffer).unwrap_or(usize::MAX),
            request_buffer: usize::try_from(settings.request_buffer).unwrap_or(usize::MAX),
            sendfile: Sendfile::new(&settings.sendfile)?,
            passed_fields: settings.passed_fields.clone(),
            passes_encoded_slashes: settings.passes_encoded_slashes,
            shared: shared.clone(),
            own_cookies: shared.own_cookies.borrow().clone(),
            account: hasher.hash_one(&settings.to).max(1),
            name,
            site: site.names.iter().find_map(is_exact).unwrap_or_default(),
            limits,
            tls,
            pool: OnceCell::new(),
            pools: RefCell::default(),
            multiplexed: RefCell::default(),
        });
        shared.prepared.borrow_mut().push(Rc::downgrade(&link));
        Ok(link)
    }

    /// Counts how long a phase of a request took: for its route, for the application, and for the member that has it.
    #[inline]
    pub(super) fn took(
        &self,
        routing: &RoutingState,
        pick: Option<&Selection>,
        phase: Phase,
        elapsed: Elapsed,
    ) {
        routing.took(&self.shared.stats, phase, elapsed);
        if let Some(times) = &self.times {
            times.took(phase, elapsed);
        }
        let Some((address, member)) = pick.and_then(Selection::member) else { return };
        let timed = || Timed::Member { of: self.name.clone(), member: member.to_owned() };
        let make = || Rc::new(self.shared.stats.times.of(timed()));
        if let Some(times) = &*known_or(&self.times_of_members, address, make) {
            times.took(phase, elapsed);
        }
    }

    /// Whether TLS is spoken with it.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether connections are kept at all.
    pub fn keeps(&self) -> bool {
        self.limits.idle > 0
    }

    /// This worker's connections to a member; `None` is the one there is.
    pub fn pool(&self, member: Option<&Address>) -> Option<Rc<Pool>> {
        let make = |address| self.shared.pool(address, self.limits, self.tls.as_ref());
        match member {
            Some(member) => Some(known_or(&self.pools, member, || make(member))),
            None => {
                let address = self.upstream.address()?;
                Some(self.pool.get_or_init(|| make(address)).clone())
            }
        }
    }

    /// The same where HTTP/2 is spoken: each route has its own, since one connection carries many requests.
    pub fn multiplexed(&self, member: Option<&Address>) -> Option<Rc<Http2Pool>> {
        let address = member.or(self.upstream.address())?;
        let peer = || self.shared.directory.peers().peer(address);
        let make = || Http2Pool::new(peer(), self.limits, self.tls.clone());
        Some(known_or(&self.multiplexed, address, make))
    }
}

/// Whether two addresses are written alike; what is left to compare of paths is nothing that a request has to wait for.
#[inline]
fn is_same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Unix(one), Address::Unix(other)) => one.as_os_str() == other.as_os_str(),
        (Address::Tcp(one), Address::Tcp(other)) => one == other,
        (Address::Unix(_) | Address::Tcp(_), _) => false,
    }
}

/// What is known of an address, or what is made for it.
#[inline]
fn known_or<P>(
    all: &RefCell<Vec<(Address, Rc<P>)>>,
    address: &Address,
    make: impl FnOnce() -> Rc<P>,
) -> Rc<P> {
    let mut all = all.borrow_mut();
    if let Some((_, pool)) = all.iter().find(|(known, _)| is_same(known, address)) {
        return pool.clone();
    }
    // Members that have gone are forgotten now and then; their connections close themselves.
    if all.len() >= MEMBERS_MAX {
        all.clear();
    }
    let pool = make();
    all.push((address.clone(), pool.clone()));
    pool
}
