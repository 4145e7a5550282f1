//! What a store tells operators.

use super::Store;
use crate::entry::Entry;
use crate::figures::{Figures, Filter, Listed};
use crate::purge::MOST_TAGS;
use std::sync::Arc;
use tidegate_io::locking::lock;

impl Store {
    /// Counts and sizes.
    pub fn figures(&self) -> Figures {
        let mut figures = self.counters.figures();
        figures.bytes = self.budget.reserved();
        figures.limit = self.budget.limit();
        for shard in &self.shards {
            let shard = lock(shard);
            figures.hits += shard.hits;
            figures.misses += shard.misses;
            figures.passes += shard.passed;
        }
        figures
    }

    /// At most `most` entries that the filter lets through and no purge has taken, in no order.
    pub fn list(&self, filter: &Filter<'_>, most: usize) -> Vec<Listed> {
        let mut listed = Vec::new();
        for shard in &self.shards {
            let left = most - listed.len();
            if left == 0 {
                break;
            }
            let entries: Vec<Arc<Entry>> = {
                let shard = lock(shard);
                let all = shard.slots().flat_map(|slot| &slot.variants);
                all.filter(|entry| lets_through(filter, entry)).take(left).cloned().collect()
            };
            let is_there = |entry: &&Arc<Entry>| entry.check() != crate::purge::Standing::Purged;
            listed.extend(entries.iter().filter(is_there).map(describe));
        }
        listed
    }
}

fn lets_through(filter: &Filter<'_>, entry: &Entry) -> bool {
    let head = entry.head();
    filter.host.is_none_or(|host| *host == *head.host)
        && filter.prefix.is_none_or(|prefix| head.target.starts_with(prefix))
        && filter.mark.is_none_or(|mark| head.tags.iter().take(MOST_TAGS).any(|tag| *tag == mark))
}

fn describe(entry: &Arc<Entry>) -> Listed {
    let head = entry.head();
    Listed {
        id: entry.id(),
        host: head.host.clone(),
        target: head.target.clone(),
        status: head.status,
        filled: entry.content().filled(),
        len: entry.content().len(),
        bytes: entry.bytes(),
        stored: entry.stored(),
        uses: entry.uses_count(),
        freshness: entry.freshness(),
        is_expired: entry.is_expired(),
    }
}
