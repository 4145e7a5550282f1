//! A stored response: a head that never changes, and its content.

use crate::budget::Reservation;
use crate::content::Content;
use crate::purge::{Purges, Standing};
use crate::s3fifo::{Place, Queued, Uses};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst,
};
use tidegate_http::FieldLines;
use tidegate_http::cache::{Freshness, Varying};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that an entry costs beside its fields: itself and its content with their counters, and its place among variants, whose
/// list grows by doubling.
pub(crate) const ENTRY_COST: u64 = (size_of::<Entry>() + size_of::<Content>() + 2 * 16 + 3 * 8 + 64) as u64;

/// What is stored of a response beside its content, and what purges know it by.
#[derive(Debug, Clone)]
pub struct StoredHead {
    /// The status code.
    pub status: u16,
    /// The fields as they are stored (`tidegate_http::cache::stored_fields`).
    pub lines: FieldLines,
    /// How long and how it may be used.
    pub freshness: Freshness,
    /// The requests that it is for.
    pub varying: Varying,
    /// What it is purged by beside its place: made by [`tag_mark`](crate::tag_mark) and [`group_mark`](crate::group_mark). The
    /// first 1024 are looked at.
    pub tags: Box<[u64]>,
    /// What the tags among them are called, as far as that is kept: words with a space between them, for operators alone.
    pub tag_names: Box<[u8]>,
    /// The site that has answered, by [`site_mark`](crate::site_mark): what others change is not of its responses.
    pub site: u64,
    /// The host that was asked, as in the key: normalised, with a port where it is not the scheme's own.
    pub host: Box<str>,
    /// The target that was asked for: path and query.
    pub target: Box<str>,
}

impl StoredHead {
    /// Bytes of memory that its fields hold.
    pub(crate) fn memory(&self) -> u64 {
        let bytes = self.lines.capacity()
            + self.varying.as_bytes().len()
            + size_of_val(&*self.tags)
            + self.tag_names.len()
            + self.host.len()
            + self.target.len();
        bytes as u64
    }
}

/// It is not in the index, or about to leave it.
const GONE: u8 = 1;
/// A soft purge has made it stale.
const EXPIRED: u8 = 2;
/// It was fetched before a purge.
const PURGED: u8 = 4;

/// A stored response. It never changes; what replaces it is another one.
pub struct Entry {
    id: u64,
    /// Of key and variant.
    hash: u64,
    key: Arc<[u8]>,
    head: StoredHead,
    content: Arc<Content>,
    /// When it was stored, Unix seconds.
    stored: i64,
    /// How many purges there had been when it was asked for.
    born: u64,
    /// The number of the fetch that it came by.
    fetched: u64,
    purges: Arc<Purges>,
    /// How many there had been when it was last looked at. Who sees the number sees what came of it.
    checked: AtomicU64,
    flags: AtomicU8,
    expired_at: AtomicI64,
    /// It is refreshed behind the backs of clients from then on, Unix seconds.
    refreshed_from: AtomicI64,
    uses: Uses,
    /// In the eviction queues.
    place: AtomicU32,
    reservation: Option<Reservation>,
}

/// What an entry is made of.
pub(crate) struct Making {
    pub(crate) id: u64,
    pub(crate) hash: u64,
    pub(crate) key: Arc<[u8]>,
    pub(crate) head: StoredHead,
    pub(crate) content: Arc<Content>,
    pub(crate) stored: i64,
    pub(crate) born: u64,
    /// With how many its head was compared.
    pub(crate) checked: u64,
    pub(crate) fetched: u64,
    pub(crate) purges: Arc<Purges>,
    /// `None`: there was no room for it, and it is for those who are there.
    pub(crate) reservation: Option<Reservation>,
}

impl Entry {
    pub(crate) fn new(making: Making) -> Entry {
        let varying = xxh3_64(making.head.varying.as_bytes());
        Entry {
            id: making.id,
            hash: making.hash ^ varying,
            key: making.key,
            head: making.head,
            content: making.content,
            stored: making.stored,
            born: making.born,
            fetched: making.fetched,
            checked: AtomicU64::new(making.checked),
            purges: making.purges,
            flags: AtomicU8::new(if making.reservation.is_some() { 0 } else { GONE }),
            expired_at: AtomicI64::new(0),
            refreshed_from: AtomicI64::new(i64::MIN),
            uses: Uses::new(),
            place: AtomicU32::new(Place::NONE),
            reservation: making.reservation,
        }
    }

    /// What it says.
    #[inline]
    pub fn head(&self) -> &StoredHead {
        &self.head
    }

    /// How it may be used: as its head says, stale from a soft purge on.
    #[inline]
    pub fn freshness(&self) -> Freshness {
        if self.is_expired() {
            self.head.freshness.expired(self.expired_at.load(Relaxed))
        } else {
            self.head.freshness
        }
    }

    /// What it holds. May still be coming in.
    #[inline]
    pub fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// The key that it is stored under.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn shared_key(&self) -> Arc<[u8]> {
        self.key.clone()
    }

    /// When it was stored, Unix seconds.
    pub fn stored(&self) -> i64 {
        self.stored
    }

    /// It has been of use. A load, and seldom a store: for every hit.
    #[inline]
    pub fn touch(&self) {
        self.uses.touch();
    }

    /// Whether it is what the store would answer now, and as fresh: not purged, not softly either, nor replaced nor evicted.
    /// Three loads, unless there was a purge since.
    #[inline]
    pub fn is_current(&self) -> bool {
        (self.checked.load(Acquire) == self.purges.count() || self.check() == Standing::Current)
            && self.flags.load(SeqCst) == 0
    }

    /// Whether a soft purge has made it stale.
    pub fn is_expired(&self) -> bool {
        self.check();
        self.flags.load(SeqCst) & EXPIRED != 0
    }

    /// Tells it from all others of this process.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How it stands with purges. Looks them up where there was one since.
    #[inline]
    pub(crate) fn check(&self) -> Standing {
        let count = self.purges.count();
        if self.checked.load(Acquire) != count {
            self.look_at_purges(count);
        }
        match self.flags.load(SeqCst) {
            flags if flags & PURGED != 0 => Standing::Purged,
            flags if flags & EXPIRED != 0 => Standing::Expired(self.expired_at.load(Relaxed)),
            _ => Standing::Current,
        }
    }

    #[cold]
    pub(crate) fn look_at_purges(&self, count: u64) {
        match self.purges.standing_since(&self.head, self.born, self.checked.load(Acquire)) {
            Standing::Purged => {
                self.flags.fetch_or(PURGED | GONE, SeqCst);
            }
            Standing::Expired(at) => {
                self.expired_at.store(at, Relaxed);
                let before = self.flags.fetch_or(EXPIRED, SeqCst);
                if before & EXPIRED == 0 && self.purges.is_own(&self.head, self.born) {
                    self.purges.has_expired();
                }
            }
            Standing::Current => {}
        }
        self.checked.store(count, SeqCst);
    }

    /// It could not be confirmed: behind the backs of clients it is asked about again from `from` on, Unix seconds.
    pub fn refresh_after(&self, from: i64) {
        self.refreshed_from.store(from, Relaxed);
    }

    /// Whether it may be asked about behind the backs of clients.
    pub fn may_be_refreshed(&self, now: i64) -> bool {
        now >= self.refreshed_from.load(Relaxed)
    }

    /// How many purges there had been when its response was asked for.
    pub fn born(&self) -> u64 {
        self.born
    }

    /// The number of the fetch that it came by, or was last confirmed by: of how many it was the last
    /// ([`Store::fetches`](crate::Store::fetches)). 0: it was read in from a disk.
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.flags.load(SeqCst) & GONE != 0
    }

    /// It leaves the index, or never comes there.
    pub(crate) fn give_up(&self) {
        self.flags.fetch_or(GONE, SeqCst);
    }

    /// It counts as used by so much less.
    pub(crate) fn fade(&self, uses: u8) {
        self.uses.fade(uses);
    }

    /// How often it was used of late: 0 to 3.
    pub fn uses_count(&self) -> u8 {
        self.uses.get()
    }

    /// Bytes that it has reserved, with its content.
    pub(crate) fn bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes) + self.content.reserved()
    }

    /// Where it is queued; only with the lock of the queues.
    pub(crate) fn place(&self) -> Option<Place> {
        Place::of(self.place.load(Relaxed))
    }

    /// The same.
    pub(crate) fn set_place(&self, place: Option<Place>) {
        self.place.store(place.map_or(Place::NONE, Place::number), Relaxed);
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry {} {}{}", self.id, self.head.host, self.head.target)
    }
}

impl Queued for Arc<Entry> {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn uses(&self) -> &Uses {
        &self.uses
    }

    fn is_large(&self) -> bool {
        self.content.is_large()
    }
}
