//! Purging: by URL, prefix, host, tag, group, and all.
//!
//! A purge looks at no entry. It notes when it was, in purges so far, under the hash of what it is about; an entry knows how many
//! purges there had been when its response was asked for, and compares for its own few hashes ([`Purges::standing`]) when
//! there was a purge since it was last looked at. Once the sweeper has looked at every entry, what was noted before goes.
//!
//! The notes are bounded. Where they are full, a purge is of more than was asked for: something purged in vain is fetched again;
//! something kept in vain would be wrong. What applications have purged by their answers ([`Purge::Changed`]) is theirs: where it is too
//! much, the notes of the origin that has most become one for all of it, then those of the site that has most, so that
//! one application never takes what another one's is. What operators name has room of its own.
//!
//! Other processes of the server hear of what applications have purged by a ring in memory that they share ([`ring`]).

mod notes;
pub(crate) mod ring;

use crate::entry::StoredHead;
use ring::{Follower, PurgeRing};
use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tidegate_http::Authority;
use xxhash_rust::xxh3::Xxh3;

/// The most notes of what applications have purged, of about 100 bytes; those that stand for whole sites aside.
const MOST_CHANGES: usize = 12 * 1024;
/// So many purges before that each takes a step of the sweep: enough for some rounds.
const LEFT_FOR_SWEEPING: usize = 1024;
/// So many of them go at least when they are full.
const MADE_ROOM: usize = MOST_CHANGES / 8;
/// The most notes of what operators name. Beyond, a URL or a prefix is its host.
const MOST_NAMED: usize = 4 * 1024;
/// With so many hosts on top, everything.
const MOST_HOSTS: usize = 1024;
/// Sites are put together in so many where what another process has noted was not heard of in time.
const BUCKETS: u64 = 1024;
/// The most lengths of prefixes that are told apart, each of which costs an entry a hash.
const MOST_LENGTHS: usize = 32;
/// The most tags of an entry that are looked at: 512 that an application names, and 128 groups, for each of whom may name them.
pub(crate) const MOST_TAGS: usize = 2048;

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
    /// All that may be answered with by what it says itself (`No-Vary-Search`) of this path.
    Searches {
        /// As in [`StoredHead::host`].
        host: &'a str,
        /// Path without a query.
        path: &'a str,
    },
    /// All whose target begins with this.
    Prefix {
        /// As in [`StoredHead::host`].
        host: &'a str,
        /// The beginning of targets: `/news/`, or `/news` for `/newsletter` as well.
        prefix: &'a str,
    },
    /// All of a host: without a port of every port, with the own port of a scheme (80, 443) of the hosts that name none.
    Host(&'a str),
    /// What has this mark: [`tag_mark`] or [`group_mark`].
    Mark(u64),
    /// What an answer to a request that is not safe says of its own origin.
    Changed(Origin<'a>, Change<'a>),
}

/// Whose an answer is. What one origin changes is never more than the site's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// As in [`StoredHead::site`].
    pub site: u64,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// As in [`StoredHead::host`].
    pub host: &'a str,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// What is stored for this target, whatever scheme, variant or cookies it was for.
    Url(&'a str),
    /// As [`Purge::Searches`].
    Searches(&'a str),
    /// A cache group (RFC 9875).
    Group(&'a [u8]),
}

impl Origin<'_> {
    /// The mark of a cache group of this origin.
    pub fn group_mark(&self, group: &[u8]) -> u64 {
        let scheme = hash(CHANGED_GROUP, &self.hash().to_le_bytes(), self.scheme.as_bytes());
        hash(CHANGED_GROUP, &scheme.to_le_bytes(), group)
    }

    /// Of both schemes: a purge of a URL is.
    fn hash(&self) -> u64 {
        hash(ORIGIN, &self.site.to_le_bytes(), self.host.as_bytes())
    }
}

/// What [`StoredHead::site`] is of a site.
pub fn site_mark(site: &str) -> u64 {
    hash(SITE, site.as_bytes(), b"")
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

/// The mark of a cache group (RFC 9875) that operators name, of a host.
pub fn group_mark(host: &str, group: &[u8]) -> u64 {
    hash(GROUP, host.as_bytes(), group)
}

/// In place of a host in a mark: a host whatever its port.
pub fn any_port(host: &str) -> String {
    format!("{}:*", name_of(host))
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    Authority::parse(host.as_bytes()).map_or(host, |authority| authority.host)
}

/// The hosts that an operator means: `None` for all ports of a name, else those that are stored so.
pub fn meant_hosts(host: &str) -> Option<Vec<&str>> {
    let port = Authority::parse(host.as_bytes()).ok().and_then(|authority| authority.port)?;
    // Nobody knows which scheme is meant: with the other one, it is not its own port.
    Some(if matches!(port, 80 | 443) { vec![name_of(host), host] } else { vec![host] })
}

/// Whether an operator who says `meant` means what is stored for `host`.
pub(crate) fn is_meant_host(meant: &str, host: &str) -> bool {
    meant_hosts(meant).map_or_else(|| name_of(host) == meant, |hosts| hosts.contains(&host))
}

/// Whether a purge of this URL takes a response of its host.
pub(crate) fn is_url(target: &str, head: &StoredHead) -> bool {
    *head.target == *target
        || (head.lines.contains("No-Vary-Search") && path_of(&head.target) == path_of(target))
}

/// What purges know a URL by.
pub(crate) fn url_mark(host: &str, target: &str) -> u64 {
    hash(URL, host.as_bytes(), target.as_bytes())
}

const TAG: u64 = 1;
const GROUP: u64 = 2;
const HOST: u64 = 3;
const URL: u64 = 4;
const PREFIX: u64 = 5;
const BUCKET: u64 = 6;
const SITE: u64 = 7;
const ORIGIN: u64 = 8;
const CHANGED_URL: u64 = 9;
const CHANGED_PATH: u64 = 10;
const CHANGED_GROUP: u64 = 11;
const PATH: u64 = 12;
const NAME: u64 = 13;

/// The same in every process: marks may be kept on a disk. Two that collide are purged together.
fn hash(kind: u64, scope: &[u8], name: &[u8]) -> u64 {
    let mut hasher = Xxh3::with_seed(kind);
    hasher.update(&(scope.len() as u64).to_le_bytes());
    hasher.update(scope);
    hasher.update(name);
    hasher.digest()
}

/// Of a site, and of all others that are put together with it.
fn bucket(number: u64) -> u64 {
    hash(BUCKET, &number.to_le_bytes(), b"")
}

/// The path of a target.
fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

/// What purges know a response by that is not there: hashes of its site and host, and of these and its target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Address {
    hashes: [u64; 6],
}

impl Address {
    pub(crate) fn of(site: u64, host: &str, target: &str) -> Address {
        let origin = hash(ORIGIN, &site.to_le_bytes(), host.as_bytes());
        let (own, name) = (origin.to_le_bytes(), name_of(host).as_bytes());
        let hashes = [
            hash(HOST, host.as_bytes(), b""),
            hash(NAME, name, b""),
            hash(URL, host.as_bytes(), target.as_bytes()),
            hash(CHANGED_URL, &own, target.as_bytes()),
            origin,
            site,
        ];
        Address { hashes }
    }

    /// Whether it is of this URL, whatever site answers it: see [`url_mark`].
    pub(crate) fn is_url(&self, url: u64) -> bool {
        self.hashes[2] == url
    }
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
    /// The application that has had it purged; `None`: an operator.
    by: Option<Party>,
}

/// Whose a note is: what it becomes where there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Party {
    origin: u64,
    site: u64,
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
    /// Of these, those that operators have named.
    named: usize,
    /// Of the prefixes among them, in bytes, ascending.
    lengths: Vec<(usize, u64)>,
}

/// The purges of a store.
#[derive(Default)]
pub(crate) struct Purges {
    count: AtomicU64,
    forgotten: AtomicU64,
    /// The number of the last purge of a prefix.
    prefixed: AtomicU64,
    /// What was asked for earlier is not stored any more: see [`Purges::refuse_older`].
    refused: AtomicU64,
    /// How many there had been before this process, as far as disks know.
    inherited: AtomicU64,
    /// Entries that were softly purged, and met since.
    expired: AtomicU64,
    notes: RwLock<Notes>,
    /// What other processes have noted as well; none where there are no others.
    others: OnceLock<Follower>,
}

impl Purges {
    /// From now on, other processes hear of what applications have purged here, and this one of theirs. `store` tells the store from
    /// others of the server.
    pub(crate) fn share(&self, ring: Arc<PurgeRing>, store: &str) {
        let _ = self.others.set(Follower::of(ring, hash(BUCKET, store.as_bytes(), b"store")));
    }

    /// How many there have been, with those that other processes have noted by now.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        if let Some(others) = self.others.get()
            && others.is_behind()
        {
            self.hear(others);
        }
        self.counted()
    }

    #[inline]
    fn counted(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Takes in what other processes have noted.
    #[cold]
    fn hear(&self, others: &Follower) {
        let mut notes = self.notes_mut();
        let number = self.counted() + 1;
        let mut is_any = false;
        others.follow(|wanted, party| {
            is_any = true;
            let note = Note { by: Some(party), ..Note::default() };
            notes.change(wanted, note).set(number, false, 0);
        });
        if is_any {
            self.count.store(number, Release);
        }
    }

    /// How many purges there had been when everything was last purged, hard.
    pub(crate) fn emptied(&self) -> u64 {
        self.notes().all.hard
    }

    /// How many there had been before this process.
    pub(crate) fn inherited(&self) -> u64 {
        self.inherited.load(Relaxed)
    }

    /// Whether this process has purged, softly or not, what was asked for after `born` purges.
    pub(crate) fn is_own(&self, head: &StoredHead, born: u64) -> bool {
        self.standing(head, born.max(self.inherited())) != Standing::Current
    }

    /// An entry has become stale by a soft purge of this process.
    pub(crate) fn has_expired(&self) {
        self.expired.fetch_add(1, Relaxed);
    }

    /// How many have.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    /// Whether anything is noted that a response has to be compared with, but for a purge of everything.
    pub(crate) fn has_notes(&self) -> bool {
        let notes = self.notes();
        !notes.by_hash.is_empty() || notes.all.soft > 0
    }

    /// Whether it is time to forget some.
    pub(crate) fn is_half_full(&self) -> bool {
        let notes = self.notes();
        notes.changes() >= MOST_CHANGES / 2
            || notes.named >= MOST_NAMED / 2
            || notes.lengths.len() >= MOST_LENGTHS / 2
    }

    /// How many purges are forgotten: who was asked for earlier can be judged only where it was looked at before.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Acquire)
    }

    /// Whether purges would be widened soon, unless some are forgotten.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let notes = self.notes();
        notes.changes() >= MOST_CHANGES - LEFT_FOR_SWEEPING || notes.named >= MOST_NAMED - LEFT_FOR_SWEEPING
    }

    pub(crate) fn purge(&self, what: &Purge<'_>, is_soft: bool, now: i64) -> Purged {
        if let (Purge::Changed(origin, change), Some(others), false) = (what, self.others.get(), is_soft) {
            let (wanted, party) = changed(origin, change);
            others.tell(wanted, party);
            return Purged { number: self.count(), is_widened: false };
        }
        let mut notes = self.notes_mut();
        let number = self.counted() + 1;
        if matches!(what, Purge::Prefix { .. } | Purge::Searches { .. }) {
            self.prefixed.store(number, Release);
        }
        let is_widened = notes.note(what, number, &mut |note| note.set(number, is_soft, now));
        if notes.all.hard == number {
            // It stands for all that was noted before.
            notes.by_hash.clear();
            notes.named = 0;
            notes.lengths.clear();
        }
        // Noted first: who sees the number sees the note.
        self.count.store(number, Release);
        Purged { number, is_widened }
    }

    /// How a response stands that was asked for after `born` purges.
    pub(crate) fn standing(&self, head: &StoredHead, born: u64) -> Standing {
        self.notes().standing(head, born)
    }

    /// How one stands that was compared with the first `checked` purges. Where some of those that came later are forgotten,
    /// nobody knows: it counts as purged.
    pub(crate) fn standing_since(&self, head: &StoredHead, born: u64, checked: u64) -> Standing {
        let notes = self.notes();
        if checked < self.forgotten() {
            return Standing::Purged;
        }
        notes.standing(head, born)
    }

    /// Whether what was answered here after `born` purges was purged since, softly or not. Errs on that side: of prefixes, each may be one
    /// of it. Marks are not looked at.
    pub(crate) fn has_purged(&self, address: &Address, born: u64) -> bool {
        if self.forgotten() > born || self.prefixed.load(Acquire) > born {
            return true;
        }
        let notes = self.notes();
        let is_later = |note: &Note| note.hard.max(note.soft) > born;
        let noted = |hash: &u64| notes.by_hash.get(hash).is_some_and(is_later);
        let [.., site] = address.hashes;
        is_later(&notes.all) || noted(&bucket(site % BUCKETS)) || address.hashes.iter().any(noted)
    }

    /// Responses that were asked for before now are not stored any more, so that notes need not be kept for them. Returns how many purges
    /// there had been.
    pub(crate) fn refuse_older(&self) -> u64 {
        let count = self.count();
        self.refused.fetch_max(count, SeqCst);
        count
    }

    /// Whether what was asked for after `born` purges comes too late to be stored.
    pub(crate) fn is_refused(&self, born: u64) -> bool {
        born < self.refused.load(SeqCst)
    }

    /// Every entry has been looked at since there were `number` purges, and every one to come was asked for later, or is not
    /// used: what was noted until then has done its work.
    pub(crate) fn forget(&self, number: u64) {
        let mut notes = self.notes_mut();
        self.forgotten.fetch_max(number, Release);
        notes.by_hash.retain(|_, note| note.hard.max(note.soft) > number);
        if notes.all.soft <= number {
            (notes.all.soft, notes.all.soft_at) = (0, 0);
        }
        notes.named = notes.by_hash.values().filter(|note| note.by.is_none()).count();
        notes.lengths.retain(|(_, last)| *last > number);
        if notes.by_hash.len() * 8 < notes.by_hash.capacity() {
            notes.by_hash.shrink_to_fit();
        }
    }

    fn notes(&self) -> RwLockReadGuard<'_, Notes> {
        self.notes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn notes_mut(&self) -> RwLockWriteGuard<'_, Notes> {
        self.notes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a change is noted.
fn changed(origin: &Origin<'_>, change: &Change<'_>) -> (u64, Party) {
    let party = Party { origin: origin.hash(), site: origin.site };
    let own = party.origin.to_le_bytes();
    let wanted = match *change {
        Change::Url(target) => hash(CHANGED_URL, &own, target.as_bytes()),
        Change::Searches(path) => hash(CHANGED_PATH, &own, path.as_bytes()),
        Change::Group(group) => origin.group_mark(group),
    };
    (wanted, party)
}

impl Notes {
    fn standing(&self, head: &StoredHead, born: u64) -> Standing {
        let mut standing = self.all.standing(born);
        if self.by_hash.is_empty() {
            return standing;
        }
        let mut add = |hash: u64| {
            let found = self.by_hash.get(&hash).map_or(Standing::Current, |note| note.standing(born));
            standing = worse(standing, found);
        };
        head.tags.iter().take(MOST_TAGS).copied().for_each(&mut add);
        let (host, target) = (head.host.as_bytes(), head.target.as_bytes());
        add(hash(HOST, host, b""));
        add(hash(NAME, name_of(&head.host).as_bytes(), b""));
        add(hash(URL, host, target));
        let lengths = self.lengths.iter().map(|(length, _)| *length);
        lengths.filter_map(|length| target.get(..length)).for_each(|prefix| add(hash(PREFIX, host, prefix)));
        let origin = hash(ORIGIN, &head.site.to_le_bytes(), host);
        add(hash(CHANGED_URL, &origin.to_le_bytes(), target));
        if head.lines.contains("No-Vary-Search") {
            let path = path_of(&head.target).as_bytes();
            add(hash(PATH, host, path));
            add(hash(CHANGED_PATH, &origin.to_le_bytes(), path));
        }
        [origin, head.site, bucket(head.site % BUCKETS)].into_iter().for_each(&mut add);
        standing
    }

    /// Those of applications.
    fn changes(&self) -> usize {
        self.by_hash.len() - self.named
    }

    /// Notes a purge by `set`; whether that is of more than was asked for.
    fn note(&mut self, what: &Purge<'_>, number: u64, set: &mut dyn FnMut(&mut Note)) -> bool {
        let (wanted, host, is_widened) = match *what {
            Purge::All => {
                set(&mut self.all);
                return false;
            }
            Purge::Changed(origin, change) => {
                let (wanted, party) = changed(&origin, &change);
                set(self.change(wanted, Note { by: Some(party), ..Note::default() }));
                return false;
            }
            Purge::Url { host, target } => (hash(URL, host.as_bytes(), target.as_bytes()), Some(host), false),
            Purge::Searches { host, path } => {
                (hash(PATH, host.as_bytes(), path.as_bytes()), Some(host), false)
            }
            Purge::Host(host) => {
                let hosts = match meant_hosts(host) {
                    None => vec![hash(NAME, host.as_bytes(), b"")],
                    Some(hosts) => hosts.iter().map(|host| hash(HOST, host.as_bytes(), b"")).collect(),
                };
                return hosts
                    .into_iter()
                    .fold(false, |is_widened, wanted| is_widened | self.name(wanted, None, set));
            }
            Purge::Mark(mark) => (mark, None, false),
            Purge::Prefix { host, prefix } => {
                let (wanted, is_widened) = self.note_prefix(host.as_bytes(), prefix.as_bytes(), number);
                (wanted, Some(host), is_widened)
            }
        };
        self.name(wanted, host, set) | is_widened
    }

    /// Notes what an operator names; whether that is more than was asked for: the host, or everything.
    fn name(&mut self, wanted: u64, host: Option<&str>, set: &mut dyn FnMut(&mut Note)) -> bool {
        let is_full = self.named >= MOST_NAMED && !self.by_hash.contains_key(&wanted);
        let place = match host {
            Some(host) if is_full => hash(HOST, host.as_bytes(), b""),
            _ => wanted,
        };
        let most = if host.is_some() { MOST_NAMED + MOST_HOSTS } else { MOST_NAMED };
        let is_new = !self.by_hash.contains_key(&place);
        if is_new && self.named >= most {
            set(&mut self.all);
            return true;
        }
        self.named += usize::from(is_new);
        set(self.by_hash.entry(place).or_default());
        is_full
    }

    /// The note of what an application has changed. Where there is no room for it, those that have most are put together.
    fn change(&mut self, wanted: u64, new: Note) -> &mut Note {
        if self.changes() >= MOST_CHANGES && !self.by_hash.contains_key(&wanted) {
            self.put_together();
        }
        self.by_hash.entry(wanted).or_insert(new)
    }

    fn put_together(&mut self) {
        let most = MOST_CHANGES.saturating_sub(MADE_ROOM);
        self.put_together_by(most, |party| party.origin);
        self.put_together_by(most, |party| party.site);
    }

    /// Has one note each stand for those who have most, until there are `most`.
    fn put_together_by(&mut self, most: usize, whole: fn(&Party) -> u64) {
        let mut left = self.changes();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        let parties = self.by_hash.values().filter_map(|note| note.by);
        parties.for_each(|party| *counts.entry(whole(&party)).or_default() += 1);
        let mut largest: Vec<(u64, usize)> = counts.into_iter().filter(|(_, count)| *count > 1).collect();
        largest.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut together: HashMap<u64, Note> = HashMap::new();
        for (party, count) in largest {
            if left <= most {
                break;
            }
            left -= count - 1;
            together.insert(party, Note::default());
        }
        if together.is_empty() {
            return;
        }
        self.by_hash.retain(|_, note| {
            let of = note.by.and_then(|party| together.get_mut(&whole(&party)));
            let is_kept = of.is_none();
            if let Some(of) = of {
                of.by = note.by;
                of.take_in(*note);
            }
            is_kept
        });
        self.by_hash.extend(together);
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
