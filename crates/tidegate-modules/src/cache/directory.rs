//! The stores of a process: they outlive the settings that name them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_cache::{Limits, Store};
use tidegate_config::Settings;
use tidegate_config::settings::CacheStore;

/// The stores of a process, by name. Each server process has an equal part of what a store may have.
#[derive(Default)]
pub struct CacheDirectory {
    stores: Mutex<HashMap<String, Arc<Store>>>,
}

impl CacheDirectory {
    /// The store of this name, made where there is none yet, for one of so many processes.
    pub fn store(&self, settings: &CacheStore, processes: u16) -> Arc<Store> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Store::new(&settings.name, limits(settings, processes), None);
        stores.entry(settings.name.clone()).or_insert_with(make).clone()
    }

    /// These settings are in force: stores have their limits, and those that they do not name go with the last request.
    pub fn keep(&self, settings: &Settings) {
        let changed: Vec<_> = {
            let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
            stores.retain(|name, _| settings.caches.iter().any(|cache| cache.name == *name));
            let named = settings.caches.iter();
            named
                .filter_map(|cache| {
                    Some((stores.get(&cache.name)?.clone(), limits(cache, settings.processes)))
                })
                .collect()
        };
        for (store, limits) in changed {
            store.set_limits(limits);
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Store>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

fn limits(settings: &CacheStore, processes: u16) -> Limits {
    Limits { memory: settings.memory / u64::from(processes.max(1)), object: settings.object_size }
}
