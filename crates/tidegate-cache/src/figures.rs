//! What a store tells of itself.

use crate::s3fifo::Returned;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_http::cache::Freshness;

/// Counts and sizes of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Stored responses.
    pub entries: u64,
    /// Bytes reserved: content, heads, keys and index.
    pub bytes: u64,
    /// The limit for them.
    pub limit: u64,
    /// Bytes of content that clients are reading, slowly perhaps, which do not come back before they have.
    pub held: u64,
    /// Look-ups that found something.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Look-ups of what is known not to be storable.
    pub passes: u64,
    /// Requests that another one fetched for.
    pub collapsed: u64,
    /// Responses that began to be stored.
    pub fills: u64,
    /// Those of them that are under way.
    pub filling: u64,
    /// Those that were broken off.
    pub broken: u64,
    /// Those that had no room, neither here nor on a disk, and were passed on to their readers.
    pub passed_on: u64,
    /// Those that turned out to be larger than the largest object as they came in.
    pub too_large: u64,
    /// Responses that nothing was stored of for want of room.
    pub refused: u64,
    /// Responses that a 304 has made fresh again.
    pub refreshed: u64,
    /// Entries that went to make room.
    pub evicted: u64,
    /// Of what went to make room, what came back soon.
    pub returned: Returned,
    /// Responses that a purge of this process took, or made stale, as far as they were met since: at once those that somebody asks for,
    /// within seconds those in memory, those on disks as disks are swept.
    pub purged: u64,
}

/// Which entries to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter<'a> {
    /// Of this host, as it is stored.
    pub host: Option<&'a str>,
    /// Of what [`Purge::Host`](crate::Purge::Host) takes.
    pub meant_host: Option<&'a str>,
    /// With this target, or with one that answers it by `No-Vary-Search`.
    pub target: Option<&'a str>,
    /// Whose target begins with this.
    pub prefix: Option<&'a str>,
    /// With this mark.
    pub mark: Option<u64>,
}

/// An entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: u64,
    /// The host.
    pub host: Box<str>,
    /// Path and query.
    pub target: Box<str>,
    /// The status code.
    pub status: u16,
    /// Bytes of content that are here.
    pub filled: u64,
    /// Bytes of content in all, where that is known.
    pub len: Option<u64>,
    /// Bytes that it has reserved, content included.
    pub bytes: u64,
    /// When it was stored, Unix seconds.
    pub stored: i64,
    /// How often it was used of late: 0 to 3.
    pub uses: u8,
    /// How it may be used.
    pub freshness: Freshness,
    /// Whether a soft purge has made it stale.
    pub is_expired: bool,
}

/// What is counted; what a look-up counts is in the shards, below their locks.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    entries: AtomicU64,
    collapsed: AtomicU64,
    fills: AtomicU64,
    filling: AtomicU64,
    broken: AtomicU64,
    passed_on: AtomicU64,
    too_large: AtomicU64,
    refused: AtomicU64,
    refreshed: AtomicU64,
    evicted: AtomicU64,
    purged: AtomicU64,
}

impl Counters {
    pub(crate) fn figures(&self) -> Figures {
        Figures {
            entries: self.entries.load(Relaxed),
            collapsed: self.collapsed.load(Relaxed),
            fills: self.fills.load(Relaxed),
            filling: self.filling.load(Relaxed),
            broken: self.broken.load(Relaxed),
            passed_on: self.passed_on.load(Relaxed),
            too_large: self.too_large.load(Relaxed),
            refused: self.refused.load(Relaxed),
            refreshed: self.refreshed.load(Relaxed),
            evicted: self.evicted.load(Relaxed),
            purged: self.purged.load(Relaxed),
            ..Figures::default()
        }
    }

    pub(crate) fn enter(&self) {
        self.entries.fetch_add(1, Relaxed);
    }

    pub(crate) fn leave(&self, entries: usize) {
        self.entries.fetch_sub(entries as u64, Relaxed);
    }

    pub(crate) fn collapse(&self) {
        self.collapsed.fetch_add(1, Relaxed);
    }

    pub(crate) fn begin_fill(&self) {
        self.fills.fetch_add(1, Relaxed);
        self.filling.fetch_add(1, Relaxed);
    }

    pub(crate) fn end_fill(&self, is_whole: bool) {
        self.filling.fetch_sub(1, Relaxed);
        self.broken.fetch_add(u64::from(!is_whole), Relaxed);
    }

    pub(crate) fn pass_on(&self) {
        self.passed_on.fetch_add(1, Relaxed);
    }

    pub(crate) fn outgrow(&self) {
        self.too_large.fetch_add(1, Relaxed);
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn refresh(&self) {
        self.refreshed.fetch_add(1, Relaxed);
    }

    pub(crate) fn evict(&self) {
        self.evicted.fetch_add(1, Relaxed);
    }

    pub(crate) fn purge(&self, entries: usize) {
        self.purged.fetch_add(entries as u64, Relaxed);
    }
}
