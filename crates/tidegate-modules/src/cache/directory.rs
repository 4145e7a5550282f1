//! The stores of a process: they outlive the settings that name them.

use super::counts::StoreCounts;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tidegate_cache::{Limits, Store};
use tidegate_config::Settings;
use tidegate_config::settings::CacheStore;
use tidegate_io::clock::wall_seconds;
use tidegate_io::runtime;
use tidegate_io::timer;

/// How often what was purged is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Entries looked at each time: a worker does it between requests.
const SWEPT_AT_ONCE: usize = 4096;

/// The stores of a process, by name.
#[derive(Default)]
pub struct CacheDirectory {
    stores: Mutex<HashMap<String, Kept>>,
}

/// A store, and what came of the requests to it.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) store: Arc<Store>,
    pub(super) counts: Arc<StoreCounts>,
}

impl CacheDirectory {
    /// The store of this name, made where there is none yet.
    pub(super) fn store(&self, settings: &CacheStore) -> Kept {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let store = Store::new(&settings.name, limits(settings), None);
            runtime::try_with(|runtime| runtime.spawn(sweep(Arc::downgrade(&store))));
            Kept { store, counts: Arc::default() }
        };
        stores.entry(settings.name.clone()).or_insert_with(make).clone()
    }

    /// These settings are in force: stores have their limits, and those that they do not name go with the last request.
    pub fn keep(&self, settings: &Settings) {
        let changed: Vec<_> = {
            let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
            stores.retain(|name, _| settings.caches.iter().any(|cache| cache.name == *name));
            let named = settings.caches.iter();
            named.filter_map(|cache| Some((stores.get(&cache.name)?.store.clone(), limits(cache)))).collect()
        };
        for (store, limits) in changed {
            store.set_limits(limits);
        }
    }

    /// The store of this name, or all of them, in the order of their names.
    pub(super) fn named(&self, name: Option<&str>) -> Vec<Kept> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept: Vec<_> =
            stores.iter().filter(|(known, _)| name.is_none_or(|name| name == *known)).collect();
        kept.sort_unstable_by_key(|(name, _)| *name);
        kept.into_iter().map(|(_, kept)| kept.clone()).collect()
    }
}

fn limits(settings: &CacheStore) -> Limits {
    Limits { memory: settings.memory, object: settings.object_size }
}

/// Takes out what was purged, for as long as somebody has the store.
async fn sweep(store: Weak<Store>) {
    loop {
        timer::after(SWEEP_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        store.sweep(SWEPT_AT_ONCE, wall_seconds());
    }
}
