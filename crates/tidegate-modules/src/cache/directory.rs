//! The stores of a process: they outlive the settings that name them.

use super::Cached;
use super::counts::StoreCounts;
use super::disks::{self, Opening, Patience};
use super::foretold::Foretold;
use super::policy::Policy;
use super::queries::Queries;
use super::verify::Verifying;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tidegate_cache::{Limits, PurgeRing, Store};
use tidegate_config::Settings;
use tidegate_config::settings::{CacheStore, Route, Site};
use tidegate_core::Handler;
use tidegate_io::clock::wall_seconds;
use tidegate_io::runtime;
use tidegate_io::timer;
use tidegate_stats::Worker as Stats;

/// How often what was purged is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The same where many purges wait to be forgotten.
const PRESSED_EVERY: Duration = Duration::from_millis(50);
/// Entries looked at each time: a worker does it between requests.
const SWEPT_AT_ONCE: usize = 4096;

/// The stores of a process, by name.
#[derive(Default)]
pub struct CacheDirectory {
    stores: Mutex<HashMap<String, Kept>>,
    /// What other processes of the server hear of purges by; none where there are no others.
    purges: OnceLock<Arc<PurgeRing>>,
    pub(super) verifying: Verifying,
    /// Nothing is served: there are no stores.
    is_rehearsal: bool,
    /// The process ends: stores that are made now have no disks, which others want.
    is_ending: AtomicBool,
    patience: Arc<Patience>,
}

/// A store, and what came of the requests to it.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) store: Arc<Store>,
    pub(super) opening: Arc<Opening>,
    pub(super) counts: Arc<StoreCounts>,
    pub(super) queries: Queries,
}

impl CacheDirectory {
    /// For `explain`: caches say what they would do, and do nothing.
    pub fn for_rehearsal() -> CacheDirectory {
        CacheDirectory { is_rehearsal: true, ..CacheDirectory::default() }
    }

    /// Memory by which the stores of all processes of a server hear of what applications have changed.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn new_purges() -> io::Result<OwnedFd> {
        PurgeRing::create()
    }

    /// Has the stores share this memory with those of other processes. Before there is any.
    ///
    /// # Errors
    /// It is not of [`CacheDirectory::new_purges`], or there is no memory left.
    pub fn share_purges_by(&self, memory: BorrowedFd<'_>) -> io::Result<()> {
        let _ = self.purges.set(PurgeRing::attach(memory)?);
        Ok(())
    }

    /// The handler of a route, behind the store that the route names if it names one.
    pub fn before(
        &self,
        handler: Rc<dyn Handler>,
        (site, route): (&Site, &Route),
        settings: &Settings,
        stats: &Stats,
    ) -> Rc<dyn Handler> {
        let Some(cache) = &route.cache else { return handler };
        let Some(store) = settings.caches.iter().find(|store| store.name == cache.store) else {
            return handler;
        };
        if self.is_rehearsal {
            let policy = Policy::of_route(cache, (site, route), settings);
            return Rc::new(Foretold::new(cache, policy, &route.action, handler));
        }
        Rc::new(Cached::new(self, (store, cache), (site, route), (settings, stats), handler))
    }

    /// The process ends, by settings that may name new stores.
    pub fn ends(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// The store of this name, made where there is none yet, for one of so many processes.
    pub(super) fn store(&self, settings: &CacheStore, processes: u16) -> Kept {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let settings = match self.is_ending.load(Relaxed) {
                true => Cow::Owned(CacheStore { disks: Vec::new(), ..settings.clone() }),
                false => Cow::Borrowed(settings),
            };
            let (store, opening) = make_store(&settings, processes, &self.patience, self.purges.get());
            Kept { store, opening, counts: Arc::default(), queries: Queries::default() }
        };
        stores.entry(settings.name.clone()).or_insert_with(make).clone()
    }

    /// These settings are in force: stores have their limits, and those that they do not name go with the last request.
    pub fn keep(&self, settings: &Settings) {
        self.patience.set(settings.limits.request.rate_grace);
        let changed: Vec<_> = {
            let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
            stores.retain(|name, _| settings.caches.iter().any(|cache| cache.name == *name));
            stores.iter().for_each(|(name, kept)| kept.queries.keep(name, settings));
            let named = settings.caches.iter();
            named.filter_map(|cache| Some((stores.get(&cache.name)?.store.clone(), cache))).collect()
        };
        for (store, cache) in changed {
            store.set_limits(limits(cache));
            // Other folders are taken by other processes: these may not even open them.
            for disk in &cache.disks {
                store.set_disk_size(&disk.path, disk.size);
            }
            disks::close_unnamed(&store, cache);
        }
    }

    /// At the end of the process: what is known of disks is written for the next one. Waits, at most so long.
    pub fn save(&self, patience: Duration) {
        let stores: Vec<_> = self.named(None).into_iter().map(|kept| kept.store).collect();
        disks::save(&stores, patience);
    }

    /// The store of this name, or all of them, in the order of their names.
    pub(super) fn named(&self, name: Option<&str>) -> Vec<Kept> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept: Vec<_> =
            stores.iter().filter(|(known, _)| name.is_none_or(|name| name == *known)).collect();
        kept.sort_unstable_by_key(|(name, _)| *name);
        kept.into_iter().map(|(_, kept)| kept.clone()).collect()
    }

    /// The same, once their disks are opened, or requests wait for them no longer. Blocks.
    pub(super) fn opened(&self, name: Option<&str>) -> Vec<Kept> {
        let kept = self.named(name);
        kept.iter().for_each(|kept| kept.opening.wait());
        kept
    }
}

fn make_store(
    settings: &CacheStore,
    processes: u16,
    patience: &Arc<Patience>,
    purges: Option<&Arc<PurgeRing>>,
) -> (Arc<Store>, Arc<Opening>) {
    let limits = limits(settings);
    let make = if settings.disks.is_empty() { Store::new } else { Store::above_disks };
    let store = make(&settings.name, limits);
    if let Some(purges) = purges {
        store.share_purges(purges.clone());
    }
    if settings.disks.is_empty() {
        runtime::try_with(|runtime| runtime.spawn(sweep(Arc::downgrade(&store))));
        return (store, Arc::default());
    }
    let opening = Opening::begin();
    let (held, folders) = (Arc::downgrade(&store), disks::disk_settings(settings, processes));
    let (told, patience) = (opening.clone(), patience.clone());
    runtime::try_with(|runtime| {
        runtime.spawn(sweep(held.clone()));
        runtime.spawn(disks::open(held, folders, told, patience));
    });
    (store, opening)
}

fn limits(settings: &CacheStore) -> Limits {
    Limits { memory: settings.memory, object: settings.object_size }
}

/// Takes out what was purged, for as long as somebody has the store.
async fn sweep(store: Weak<Store>) {
    let mut is_pressed = false;
    loop {
        timer::after(if is_pressed { PRESSED_EVERY } else { SWEEP_EVERY }).await;
        let Some(store) = store.upgrade() else { return };
        is_pressed = store.sweep(SWEPT_AT_ONCE, wall_seconds()).is_pressed;
    }
}
