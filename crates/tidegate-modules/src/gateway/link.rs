//! What a route knows of its application at run time: where it is, the connections of this worker to it, and
//! the bounds of an exchange.

use super::board::Board;
use super::sendfile::Sendfile;
use super::spill::Spill;
use super::upstream::Upstream;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tidegate_client::{Pool, PoolLimits};
use tidegate_config::settings::gateway::{Destination, Gateway};
use tidegate_config::settings::{self, HostPattern, Network};
use tidegate_io::connect::Address;

/// What the applications of one worker share.
pub struct Shared {
    board: Arc<Board>,
    spill: RefCell<Arc<Spill>>,
    pools: RefCell<HashMap<Address, Weak<Pool>>>,
}

impl Shared {
    /// For one worker. `board` is the process's.
    pub fn new(board: Arc<Board>, spill: &settings::gateway::Spill) -> Rc<Shared> {
        Rc::new(Shared { board, spill: RefCell::new(Spill::of(spill)), pools: RefCell::default() })
    }

    /// Takes up the settings of a new revision.
    pub fn adopt(&self, spill: &settings::gateway::Spill) {
        *self.spill.borrow_mut() = Spill::of(spill);
    }

    /// Where content waits that has to be complete.
    pub fn spill(&self) -> Arc<Spill> {
        self.spill.borrow().clone()
    }

    /// This worker's connections to an address.
    fn pool(&self, address: &Address, limits: PoolLimits) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        if let Some(pool) = pools.get(address).and_then(Weak::upgrade) {
            pool.set_limits(limits);
            return pool;
        }
        pools.retain(|_, pool| pool.strong_count() > 0);
        let pool = Pool::new(address, limits);
        pools.insert(address.clone(), Rc::downgrade(&pool));
        pool
    }
}

/// A route's way to its application.
pub struct Link {
    /// Who gets a request.
    pub upstream: Upstream,
    /// How long the application may be silent.
    pub timeout: Duration,
    /// Bytes held for a slow client.
    pub buffer: usize,
    /// Bytes of a request body collected first.
    pub request_buffer: usize,
    /// Whose word about other clients is believed.
    pub trusted_proxies: Vec<Network>,
    /// Files that the application may have sent.
    pub sendfile: Sendfile,
    /// What the workers' applications share.
    pub shared: Rc<Shared>,
    /// The application in messages: `unix:/run/php.sock`.
    pub name: String,
    /// The site in messages, and where a client names no host.
    pub site: String,
    limits: PoolLimits,
    /// Of the one address, or of the members met so far.
    pools: RefCell<Vec<(Address, Rc<Pool>)>>,
}

impl Link {
    /// The way that settings describe.
    ///
    /// # Errors
    /// A folder for `sendfile` cannot be opened.
    pub fn new(shared: &Rc<Shared>, settings: &Gateway, site: &settings::Site) -> io::Result<Rc<Link>> {
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
        Ok(Rc::new(Link {
            upstream: Upstream::of(settings, &shared.board),
            timeout: settings.timeout,
            buffer: usize::try_from(settings.buffer).unwrap_or(usize::MAX),
            request_buffer: usize::try_from(settings.request_buffer).unwrap_or(usize::MAX),
            trusted_proxies: settings.trusted_proxies.clone(),
            sendfile: Sendfile::new(&settings.sendfile)?,
            shared: shared.clone(),
            name,
            site: site.names.iter().find_map(is_exact).unwrap_or_default(),
            limits,
            pools: RefCell::default(),
        }))
    }

    /// Whether connections are kept at all.
    pub fn keeps(&self) -> bool {
        self.limits.idle > 0
    }

    /// This worker's connections to a member; `None` is the one there is.
    pub fn pool(&self, member: Option<&Address>) -> Option<Rc<Pool>> {
        let address = member.or(self.upstream.address())?;
        let mut pools = self.pools.borrow_mut();
        if let Some((_, pool)) = pools.iter().find(|(known, _)| known == address) {
            return Some(pool.clone());
        }
        // Members that have gone are forgotten now and then; their connections close themselves.
        if pools.len() >= 64 {
            pools.clear();
        }
        let pool = self.shared.pool(address, self.limits);
        pools.push((address.clone(), pool.clone()));
        Some(pool)
    }
}
