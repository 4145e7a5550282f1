//! What a store tells operators.

use super::Store;
use crate::entry::{Entry, StoredHead};
use crate::figures::{Figures, Filter, Listed};
use crate::purge::{MOST_TAGS, Standing, is_meant_host, is_url, url_mark};
use smallvec::SmallVec;
use std::sync::Arc;
use tidegate_http::cache::Reason;
use tidegate_io::locking::lock;

impl Store {
    /// Counts and sizes.
    pub fn figures(&self) -> Figures {
        let mut figures = self.counters.figures();
        figures.bytes = self.budget.reserved();
        figures.limit = self.budget.limit();
        figures.held = self.budget.held();
        figures.purged += self.purges.expired();
        figures.returned = lock(&self.queues).returned();
        for shard in &self.shards {
            let shard = lock(shard);
            figures.hits += shard.hits;
            figures.misses += shard.misses;
            figures.passes += shard.passed;
        }
        figures
    }

    /// Why responses of a URL, as stored ones would have it, are known not to be storable, and for how many seconds more; each reason
    /// once.
    pub fn known_unstorable(&self, host: &str, target: &str, now: i64) -> Vec<(Reason, i64)> {
        let url = url_mark(host, target);
        let mut known: Vec<(Reason, i64)> = Vec::new();
        for shard in &self.shards {
            for (why, left) in lock(shard).passes.of_url(url, now, &self.purges) {
                match known.iter_mut().find(|(other, _)| *other == why) {
                    Some((_, longest)) => *longest = left.max(*longest),
                    None => known.push((why, left)),
                }
            }
        }
        known
    }

    /// At most `most` entries that the filter lets through and no purge has taken, in no order.
    pub fn list(&self, filter: &Filter<'_>, most: usize) -> Vec<Listed> {
        self.entries(filter, most).iter().map(describe).collect()
    }

    /// The same, whole.
    pub fn entries(&self, filter: &Filter<'_>, most: usize) -> Vec<Arc<Entry>> {
        let mut listed = Vec::new();
        for shard in &self.shards {
            let left = most - listed.len();
            if left == 0 {
                break;
            }
            let entries: Vec<Arc<Entry>> = {
                let shard = lock(shard);
                let all = shard.slots().flat_map(|slot| &slot.variants);
                all.filter(|entry| lets_through(filter, entry.head())).take(left).cloned().collect()
            };
            listed.extend(entries.into_iter().filter(|entry| entry.check() != Standing::Purged));
        }
        listed
    }

    /// Every entry that `is_meant` names, which must not call into the store.
    pub(crate) fn entries_where(&self, is_meant: impl Fn(&Arc<Entry>) -> bool) -> Vec<Arc<Entry>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let all = shard.slots().flat_map(|slot| &slot.variants);
            found.extend(all.filter(|entry| is_meant(entry)).cloned());
        }
        found
    }

    /// Takes out of the memory what is stored under a key; disks keep what they have.
    pub(crate) fn forget_key(&self, key: &[u8]) {
        let hashed = self.hashed(key);
        let entries: SmallVec<[Arc<Entry>; 1]> = {
            let mut shard = self.shard(&hashed);
            shard.get(&hashed).map(|slot| slot.variants.clone()).unwrap_or_default()
        };
        entries.iter().for_each(|entry| self.unlink(entry));
    }
}

pub(crate) fn lets_through(filter: &Filter<'_>, head: &StoredHead) -> bool {
    filter.host.is_none_or(|host| *host == *head.host)
        && filter.meant_host.is_none_or(|host| is_meant_host(host, &head.host))
        && filter.target.is_none_or(|target| is_url(target, head))
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
