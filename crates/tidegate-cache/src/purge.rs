//! Purging: by URL, prefix, host, tag, group, and all.
//!
//! A purge looks at no entry. It notes when it was, in purges so far, under the hash of what it is about; an entry knows how many
//! purges there had been when its response was asked for, and compares for its own few hashes ([`Purges::standing`]) when
//! there was a purge since it was last looked at. Once the sweeper has looked at every entry, what was noted before goes.
//!
//! The notes are bounded. Where they are full, a purge is of more than was asked for: a prefix of a shorter one or its host, a URL
//! of its host and of some few others (strangers can purge URLs, by requests that are not safe), anything else of all. Something purged in vain is fetched again; something kept in vain would be wrong.

mod notes;

use crate::entry::StoredHead;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use xxhash_rust::xxh3::Xxh3;

/// The most notes: 16,384 of about 80 bytes, those of [`BUCKETS`] aside.
const MOST_NOTES: usize = 16 * 1024;
/// With so many notes, those of URLs are widened: any request that is not safe makes one, and the rest is for others.
const MOST_URL_NOTES: usize = MOST_NOTES / 4 * 3;
/// Hosts are put together in so many, each of which always has a note.
const BUCKETS: u64 = 1024;
/// The most lengths of prefixes that are told apart, each of which costs an entry a hash.
const MOST_LENGTHS: usize = 32;
/// The most tags of an entry that are looked at.
pub(crate) const MOST_TAGS: usize = 512;

/// What is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge<'a> {
    /// Everything.
    All,
    /// All that is stored for this target, whatever scheme, variant or cookies it was for.
    Url {
        /// As in [`StoredHead::host`].
        host: &'a str,
        /// Path and query.
        target: &'a str,
    },
    /// All whose target begins with this.
    Prefix {
        /// As in [`StoredHead::host`].
        host: &'a str,
        /// The beginning of targets: `/news/`, or `/news` for `/newsletter` as well.
        prefix: &'a str,
    },
    /// All of a host.
    Host(&'a str),
    /// What has this mark: [`tag_mark`] or [`group_mark`].
    Mark(u64),
}

/// What a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    /// Its number; purges are counted.
    pub number: u64,
    /// Whether it is of more than was asked for, since too many purges wait for the sweeper.
    pub is_widened: bool,
}

/// The mark of a tag of a site.
pub fn tag_mark(site: &str, tag: &[u8]) -> u64 {
    hash(TAG, site.as_bytes(), tag)
}

/// The mark of a cache group of an origin (RFC 9875), such as `https://example.org`.
pub fn group_mark(origin: &str, group: &[u8]) -> u64 {
    hash(GROUP, origin.as_bytes(), group)
}

const TAG: u64 = 1;
const GROUP: u64 = 2;
const HOST: u64 = 3;
const URL: u64 = 4;
const PREFIX: u64 = 5;
const BUCKET: u64 = 6;

/// The same in every process: marks may be kept on a disk. Two that collide are purged together.
fn hash(kind: u64, scope: &[u8], name: &[u8]) -> u64 {
    let mut hasher = Xxh3::with_seed(kind);
    hasher.update(&(scope.len() as u64).to_le_bytes());
    hasher.update(scope);
    hasher.update(name);
    hasher.digest()
}

/// Of a host, and of all others that are put together with it.
fn bucket(host: &[u8]) -> u64 {
    hash(BUCKET, &(hash(HOST, host, b"") % BUCKETS).to_le_bytes(), b"")
}

/// How an entry stands with purges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Current,
    /// Softly purged, at this Unix time.
    Expired(i64),
    Purged,
}

/// When something was purged, counted in purges; 0: never.
#[derive(Debug, Clone, Copy, Default)]
struct Note {
    hard: u64,
    soft: u64,
    /// Unix seconds.
    soft_at: i64,
}

impl Note {
    fn set(&mut self, number: u64, is_soft: bool, now: i64) {
        if is_soft {
            (self.soft, self.soft_at) = (number, now);
        } else {
            self.hard = number;
        }
    }

    /// What it means for what was asked for after `born` purges.
    fn standing(&self, born: u64) -> Standing {
        match () {
            () if self.hard > born => Standing::Purged,
            () if self.soft > born => Standing::Expired(self.soft_at),
            () => Standing::Current,
        }
    }
}

#[derive(Default)]
struct Notes {
    all: Note,
    by_hash: HashMap<u64, Note>,
    /// Of the prefixes among them, in bytes, ascending.
    lengths: Vec<(usize, u64)>,
}

/// The purges of a store.
#[derive(Default)]
pub(crate) struct Purges {
    count: AtomicU64,
    forgotten: AtomicU64,
    notes: RwLock<Notes>,
}

impl Purges {
    /// How many there have been.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// How many purges there had been when everything was last purged, hard.
    pub(crate) fn emptied(&self) -> u64 {
        self.notes().all.hard
    }

    /// Whether it is time to forget some.
    pub(crate) fn is_half_full(&self) -> bool {
        let notes = self.notes();
        notes.by_hash.len() >= MOST_NOTES / 2 || notes.lengths.len() >= MOST_LENGTHS / 2
    }

    /// How many purges are forgotten: who was asked for earlier can be judged only where it was looked at before.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Acquire)
    }

    /// Whether another purge would be widened.
    pub(crate) fn is_full(&self) -> bool {
        self.notes().by_hash.len() >= MOST_URL_NOTES
    }

    pub(crate) fn purge(&self, what: &Purge<'_>, is_soft: bool, now: i64) -> Purged {
        let mut notes = self.notes.write().unwrap_or_else(PoisonError::into_inner);
        let number = self.count() + 1;
        let (note, is_widened) = notes.note(what, number);
        note.set(number, is_soft, now);
        if notes.all.hard == number {
            // It stands for all that was noted before.
            notes.by_hash.clear();
            notes.lengths.clear();
        }
        // Noted first: who sees the number sees the note.
        self.count.store(number, Release);
        Purged { number, is_widened }
    }

    /// How a response stands that was asked for after `born` purges.
    pub(crate) fn standing(&self, head: &StoredHead, born: u64) -> Standing {
        let notes = self.notes();
        let mut standing = notes.all.standing(born);
        let mut add = |hash: u64| {
            let found = notes.by_hash.get(&hash).map_or(Standing::Current, |note| note.standing(born));
            standing = worse(standing, found);
        };
        if notes.by_hash.is_empty() {
            return standing;
        }
        head.tags.iter().take(MOST_TAGS).copied().for_each(&mut add);
        let (host, target) = (head.host.as_bytes(), head.target.as_bytes());
        add(hash(HOST, host, b""));
        add(bucket(host));
        add(hash(URL, host, target));
        let lengths = notes.lengths.iter().map(|(length, _)| *length);
        lengths.filter_map(|length| target.get(..length)).for_each(|prefix| add(hash(PREFIX, host, prefix)));
        standing
    }

    /// Every entry has been looked at since there were `number` purges, and every one to come was asked for later: what was
    /// noted until then has done its work.
    pub(crate) fn forget(&self, number: u64) {
        let mut notes = self.notes.write().unwrap_or_else(PoisonError::into_inner);
        self.forgotten.fetch_max(number, Release);
        notes.by_hash.retain(|_, note| note.hard.max(note.soft) > number);
        notes.lengths.retain(|(_, last)| *last > number);
        if notes.by_hash.len() * 8 < notes.by_hash.capacity() {
            notes.by_hash.shrink_to_fit();
        }
    }

    fn notes(&self) -> RwLockReadGuard<'_, Notes> {
        self.notes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    /// Where to note it, and whether that is more than was asked for.
    fn note(&mut self, what: &Purge<'_>, number: u64) -> (&mut Note, bool) {
        let (wanted, is_widened) = match *what {
            Purge::All => return (&mut self.all, false),
            Purge::Url { host, target } => {
                let wanted = hash(URL, host.as_bytes(), target.as_bytes());
                if self.by_hash.len() >= MOST_URL_NOTES && !self.by_hash.contains_key(&wanted) {
                    return (self.by_hash.entry(bucket(host.as_bytes())).or_default(), true);
                }
                (wanted, false)
            }
            Purge::Host(host) => (hash(HOST, host.as_bytes(), b""), false),
            Purge::Mark(mark) => (mark, false),
            Purge::Prefix { host, prefix } => self.note_prefix(host.as_bytes(), prefix.as_bytes(), number),
        };
        if self.by_hash.len() >= MOST_NOTES && !self.by_hash.contains_key(&wanted) {
            return (&mut self.all, true);
        }
        (self.by_hash.entry(wanted).or_default(), is_widened)
    }

    fn note_prefix(&mut self, host: &[u8], prefix: &[u8], number: u64) -> (u64, bool) {
        let at = self.lengths.partition_point(|(length, _)| *length < prefix.len());
        let is_known = self.lengths.get(at).is_some_and(|(length, _)| *length == prefix.len());
        if !is_known && self.lengths.len() < MOST_LENGTHS {
            self.lengths.insert(at, (prefix.len(), number));
            return (hash(PREFIX, host, prefix), false);
        }
        let nearest = if is_known { Some(at) } else { at.checked_sub(1) };
        let Some((length, last)) = nearest.and_then(|nearest| self.lengths.get_mut(nearest)) else {
            return (hash(HOST, host, b""), true);
        };
        *last = number;
        (hash(PREFIX, host, &prefix[..*length]), !is_known)
    }
}

fn worse(one: Standing, other: Standing) -> Standing {
    match (one, other) {
        (Standing::Purged, _) | (_, Standing::Purged) => Standing::Purged,
        // The first of them counts: it has been stale since.
        (Standing::Expired(one), Standing::Expired(other)) => Standing::Expired(one.min(other)),
        (Standing::Expired(at), Standing::Current) | (Standing::Current, Standing::Expired(at)) => {
            Standing::Expired(at)
        }
        (Standing::Current, Standing::Current) => Standing::Current,
    }
}
