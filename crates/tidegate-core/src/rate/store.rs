//! The tables of a process, by the name of their limit.

use super::{Buckets, Rate};
use serde::{Deserialize, Serialize};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_config::Settings;
use tidegate_config::settings::RequestRate;

impl From<&RequestRate> for Rate {
    fn from(rate: &RequestRate) -> Rate {
        Rate::new(rate.count, rate.period, rate.burst)
    }
}

/// The tables of a process. Outlives its engines: what has been counted holds for the next settings, too.
#[derive(Debug, Default)]
pub struct RateStore(Mutex<HashMap<Identity, Arc<Buckets>>>);

/// What makes the table of a limit another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Of the limit.
    pub name: String,
    /// How many it was made for.
    pub keys: u32,
}

impl Identity {
    /// That of the table of this limit.
    pub fn of(rate: &RequestRate) -> Identity {
        Identity { name: rate.name.clone(), keys: rate.keys }
    }
}

impl RateStore {
    /// The table of a limit, in memory that the master has made, for the engines to come.
    ///
    /// # Errors
    /// It is no such memory, or there is none left.
    pub fn provide(&self, identity: &Identity, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(place) = tables.entry(identity.clone()) {
            place.insert(Arc::new(Buckets::attach(descriptor)?));
        }
        Ok(())
    }

    /// The table of a limit. One that nobody has provided is made, for this process alone.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn table(&self, rate: &RequestRate) -> io::Result<Arc<Buckets>> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(&Identity::of(rate)) {
            return Ok(table.clone());
        }
        let table = Arc::new(fresh(rate)?.0);
        tables.insert(Identity::of(rate), table.clone());
        Ok(table)
    }

    /// How many tables there are.
    pub fn held(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Lets go of the tables that no settings in force use.
    pub fn settle(&self, settings: &Settings) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.is_empty() {
            return;
        }
        let used: HashSet<Identity> = settings.rates().map(Identity::of).collect();
        tables.retain(|identity, _| used.contains(identity));
    }
}

/// An empty table for a limit, and what another process gets to attach to.
///
/// # Errors
/// There is no descriptor or no memory left.
pub fn fresh(rate: &RequestRate) -> io::Result<(Buckets, OwnedFd)> {
    // Each has keys of its own from the system's source of randomness.
    let secret = [RandomState::new().hash_one(0), RandomState::new().hash_one(1)];
    Buckets::new(usize::try_from(rate.keys).unwrap_or(usize::MAX), secret)
}
