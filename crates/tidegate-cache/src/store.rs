//! The store: the index of what is there, and who fetches what is not.

use crate::disk::Disks;
use crate::entry::Entry;
use crate::figures::{Figures, Filter, Listed};
use crate::flight::Join;
use crate::purge::{Purge, Purged};
use smallvec::SmallVec;
use std::sync::Arc;
use thiserror::Error;

/// How much a store may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, of everything: content, heads, keys, index.
    pub memory: u64,
    /// Bytes of content of the largest response that is stored.
    pub object: u64,
}

/// Why a response was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unstorable {
    /// Larger than the largest object.
    #[error("the response is larger than the largest object that this cache stores")]
    TooLarge,
    /// What is there is in use, or larger objects have all the memory.
    #[error("no memory of the cache comes free for the response")]
    NoRoom,
    /// It was fetched before a purge.
    #[error("the response was fetched before it was purged")]
    Purged,
}

/// What a look-up finds.
pub enum Found {
    /// Nothing.
    Nothing,
    /// Nothing, and it is known not to be storable: fetch without joining.
    Pass,
    /// What is stored under the key: variants, the newest first; never none.
    Stored(SmallVec<[Arc<Entry>; 1]>),
}

/// What a step of the sweeper did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Entries looked at.
    pub visited: usize,
    /// Entries taken out since they were purged.
    pub removed: usize,
    /// Whether it came to the end of a round: all that was purged before the round has gone.
    pub is_round: bool,
}

/// Stored responses of one `cache` of the settings.
pub struct Store {}

impl Store {
    /// An empty store.
    pub fn new(name: &str, limits: Limits, disk: Option<Arc<Disks>>) -> Arc<Store> {
        let _ = (name, limits, disk);
        todo!()
    }

    /// The name in the settings.
    pub fn name(&self) -> &str {
        todo!()
    }

    /// Other limits from now on. What is too much is evicted at once, as far as nobody is reading it.
    pub fn set_limits(&self, limits: Limits) {
        let _ = limits;
        todo!()
    }

    /// What is stored under a key. Allocates nothing for one variant.
    pub fn look_up(&self, key: &[u8], now: i64) -> Found {
        let _ = (key, now);
        todo!()
    }

    /// Fetches, or waits for who does already.
    pub fn join(self: &Arc<Self>, key: &[u8], now: i64) -> Join {
        let _ = (key, now);
        todo!()
    }

    /// Removes what is stored under a key; answers whether there was anything.
    pub fn remove(&self, key: &[u8]) -> bool {
        let _ = key;
        todo!()
    }

    /// Purges; takes the same time however much is stored. A soft purge makes stale what is there.
    pub fn purge(&self, what: &Purge<'_>, is_soft: bool, now: i64) -> Purged {
        let _ = (what, is_soft, now);
        todo!()
    }

    /// Takes out what was purged, `budget` entries looked at. To be called now and then: once a second is plenty.
    pub fn sweep(&self, budget: usize, now: i64) -> Swept {
        let _ = (budget, now);
        todo!()
    }

    /// Counts and sizes.
    pub fn figures(&self) -> Figures {
        todo!()
    }

    /// At most `most` entries that the filter lets through, in no order.
    pub fn list(&self, filter: &Filter<'_>, most: usize) -> Vec<Listed> {
        let _ = (filter, most);
        todo!()
    }
}
