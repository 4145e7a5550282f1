//! What the memory does not have is read in: its head, and its content where that is small; else its file stays open.
//!
//! Bytes that another boot of the kernel has written are all compared with their checksums before the first of them is sent. That is done
//! once for an object, and nothing can turn out to be broken while it is on its way to a client.

use super::Tier;
use crate::content::{BLOCK, BLOCK_COST, Block, Content};
use crate::disk::layout::pieces;
use crate::disk::{DiskEntry, OpenObject};
use crate::encoding::{decode, variant_of};
use crate::entry::{ENTRY_COST, Entry, Making, StoredHead};
use crate::index::{Hashed, MOST_VARIANTS, Outgoing};
use crate::purge::Standing;
use crate::store::Store;
use crate::stored_file::StoredFile;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tidegate_io::blocking::{self, QueueKey};
use tidegate_io::clock::monotonic_ns;

/// A disk whose calls end within this is at work.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Objects of a key that a disk has and the memory does not.
#[derive(Debug)]
pub struct OnDisk {
    key: Box<[u8]>,
    disk: u16,
    /// The newest first, one for each variant; none: it is not known yet what the disk holds.
    objects: SmallVec<[DiskEntry; 1]>,
    queue_key: QueueKey,
    /// Monotonic nanoseconds.
    since: u64,
    _place: Arc<()>,
}

/// What tells who waits for [`Store::read_in`].
#[derive(Debug, Clone, Copy)]
pub struct Awaited {
    disk: u16,
    since: u64,
}

impl OnDisk {
    /// Where [`Store::read_in`] belongs in the blocking pool.
    pub fn queue_key(&self) -> QueueKey {
        self.queue_key
    }

    /// For [`Store::is_late`].
    pub fn awaited(&self) -> Awaited {
        Awaited { disk: self.disk, since: self.since }
    }
}

impl Store {
    /// What the disks may have of a key beside `known`, for [`Store::read_in`]: the disk that has it, or each of which is not known
    /// yet what it holds. Nothing of a disk that too many wait for, or that did not answer of late. Touches no disk.
    pub fn on_disk(&self, key: &[u8], known: &[Arc<Entry>]) -> SmallVec<[OnDisk; 1]> {
        let Some(tier) = self.tier.get() else { return SmallVec::new() };
        let mut objects = tier.newest(tier.hash(key));
        objects.retain(|object| !known.iter().any(|entry| is_as_good(entry, object)));
        if let Some(disk) = objects.first().map(|object| object.disk) {
            // What lies on another disk is not worth a wait for two.
            objects.retain(|object| object.disk == disk);
            return tier.ask(key, disk, objects).into_iter().collect();
        }
        let unknown = (0..tier.disks.count()).filter(|disk| tier.disks.may_probe_on(*disk));
        unknown.filter_map(|disk| tier.ask(key, disk, SmallVec::new())).collect()
    }

    /// Reads objects in; those that can be used are then found by [`Store::look_up`]. What was purged, or is broken, is removed.
    /// Waits for the disk.
    pub fn read_in(&self, on_disk: &OnDisk) {
        let Some(tier) = self.tier.get() else { return };
        let hashed = self.hashed(&on_disk.key);
        let mut objects = on_disk.objects.clone();
        if objects.is_empty() {
            objects = tier.probe(on_disk.disk, &on_disk.key);
        }
        for object in &objects {
            // Somebody else may have been sooner.
            if !self.has_as_good(&hashed, object)
                && let Some(entry) = self.read_object(tier, object, &hashed)
            {
                self.adopt(tier, object, &hashed, entry);
            }
        }
        if let Some(state) = tier.states.get(usize::from(on_disk.disk)) {
            state.answered_at.store(monotonic_ns(), Relaxed);
        }
    }

    /// Nobody waits any longer. A disk that has answered nobody meanwhile is asked for nothing for some seconds.
    pub fn is_late(&self, awaited: Awaited) {
        let Some(tier) = self.tier.get() else { return };
        let state = tier.states.get(usize::from(awaited.disk));
        // One that is at work reads something large, or compares it.
        let outstanding = blocking::outstanding(tier.disks.queue_key(awaited.disk).device);
        if let Some(state) = state.filter(|_| outstanding >= ANSWERS_WITHIN) {
            state.is_late(awaited.since, monotonic_ns());
        }
    }

    pub(super) fn has_as_good(&self, hashed: &Hashed<'_>, object: &DiskEntry) -> bool {
        let mut shard = self.shard(hashed);
        let mut variants = shard.get(hashed).into_iter().flat_map(|slot| slot.variants.iter());
        variants.any(|entry| is_as_good(entry, object) && entry.check() != Standing::Purged)
    }

    /// Whether the memory has something for the same requests, purged or not.
    pub(super) fn has_variant(&self, key: &[u8], object: &DiskEntry) -> bool {
        let hashed = self.hashed(key);
        let mut shard = self.shard(&hashed);
        let mut variants = shard.get(&hashed).into_iter().flat_map(|slot| slot.variants.iter());
        variants.any(|entry| variant_of(&entry.head().varying) == object.variant)
    }

    /// `None`: it cannot be used, or there is no room for it.
    fn read_object(&self, tier: &Tier, object: &DiskEntry, hashed: &Hashed<'_>) -> Option<Arc<Entry>> {
        let open = tier.disks.open_object(object, hashed.key).ok()?;
        let header = open.header();
        let head = decode(&header.head);
        let (born, stored) = (header.mark, i64::from(header.stored_at));
        let checked = self.purges.count();
        let is_usable = |head: &StoredHead| self.purges.standing(head, born) != Standing::Purged;
        let is_own = head.as_ref().is_some_and(|head| !is_usable(head) && self.purges.is_own(head, born));
        let Some(head) = head.filter(is_usable) else {
            drop(open);
            self.counters.purge(usize::from(tier.disks.remove(object) && is_own));
            return None;
        };
        let filled = open.beginning().ok()?;
        if filled == 0 && header.entity_length > 0 {
            drop(open);
            tier.disks.remove(object);
            return None;
        }
        if !open.is_trusted() {
            (0..pieces(filled)).try_for_each(|piece| open.verify_piece(piece)).ok()?;
        }
        let key: Arc<[u8]> = hashed.key.into();
        let cost = ENTRY_COST + head.memory() + key.len() as u64 + 16;
        let reservation = self.reserve(cost)?;
        let is_whole = filled == header.entity_length;
        let queue_key = tier.disks.queue_key(object.disk);
        let content = match self.small_content(&open) {
            Some(content) if is_whole => content,
            _ if is_whole => Content::of_file(StoredFile::new(open, queue_key)),
            _ => Content::part_in_file(StoredFile::new(open, queue_key), filled),
        };
        let entry = Entry::new(Making {
            id: self.next_id(),
            hash: (hashed.hash >> 64) as u64,
            key,
            head,
            content: Arc::new(content),
            stored,
            born,
            checked,
            fetched: 0,
            purges: self.purges.clone(),
            reservation: Some(reservation),
        });
        entry.look_at_purges(checked); // it may have been purged softly
        Some(Arc::new(entry))
    }

    /// Content that is small, in memory. `None`: it is large, or there is no room.
    fn small_content(&self, open: &OpenObject) -> Option<Content> {
        let len = usize::try_from(open.header().entity_length).ok().filter(|len| *len <= BLOCK)?;
        if len == 0 {
            return Some(Content::of_block(None));
        }
        let reservation = self.reserve(len as u64 + BLOCK_COST)?;
        let mut bytes = vec![0; len];
        let count = open.read_at(&mut bytes, 0).ok()?;
        (count == len).then(|| Content::of_block(Some(Block::of(bytes, reservation))))
    }

    /// Puts an entry in, unless there is one for the same requests, or the object has gone meanwhile.
    fn adopt(&self, tier: &Tier, object: &DiskEntry, hashed: &Hashed<'_>, entry: Arc<Entry>) {
        // In two hands, or it would count as one that nobody is at work with before it is in the index.
        let _held = entry.clone();
        if self.enqueue(&entry).is_err() {
            return entry.give_up();
        }
        let mut outgoing = Outgoing::new();
        let is_in = self.with_slot(hashed, |slot| {
            slot.drop_purged(&mut outgoing);
            let is_part = |other: &Arc<Entry>| {
                !entry.content().is_part()
                    && other.content().is_part()
                    && other.head().varying == entry.head().varying
            };
            slot.take_where(is_part, &mut outgoing);
            let is_free = slot.variants.len() < MOST_VARIANTS
                && slot.variants.iter().all(|other| other.head().varying != entry.head().varying)
                && entry.check() != Standing::Purged;
            if is_free {
                slot.add(entry.clone(), &mut outgoing);
                self.counters.enter();
            }
            is_free
        });
        self.left(&outgoing);
        if is_in != Some(true) {
            entry.give_up();
            self.dequeue(std::slice::from_ref(&entry));
        } else if !tier.disks.has(object) {
            self.unlink(&entry);
        } else if entry.content().file().is_some() {
            self.keep_open(tier, &entry);
        }
    }
}

/// Whether an entry makes an object needless: for the same requests, and no part where that is whole.
fn is_as_good(entry: &Arc<Entry>, object: &DiskEntry) -> bool {
    variant_of(&entry.head().varying) == object.variant && !(object.is_whole && entry.content().is_part())
}

impl Tier {
    /// Objects of a hash, the newest first, one for each variant.
    pub(super) fn newest(&self, hash: u128) -> SmallVec<[DiskEntry; 1]> {
        let mut objects: SmallVec<[DiskEntry; 1]> = SmallVec::new();
        self.disks.variants(hash, |object| objects.push(object));
        objects.sort_unstable_by_key(|object| Reverse((object.stored_at, object.mark)));
        let mut known: SmallVec<[u32; 4]> = SmallVec::new();
        objects.retain(|object| {
            let is_first = !known.contains(&object.variant);
            known.push(object.variant);
            is_first
        });
        objects.truncate(MOST_VARIANTS);
        objects
    }

    fn ask(&self, key: &[u8], disk: u16, objects: SmallVec<[DiskEntry; 1]>) -> Option<OnDisk> {
        let since = monotonic_ns();
        let place = self.states.get(usize::from(disk))?.admit(since)?;
        let queue_key = self.disks.queue_key(disk);
        Some(OnDisk { key: key.into(), disk, objects, queue_key, since, _place: place })
    }

    /// Looks for objects on a disk of which is not known yet what it holds. What another one has that is newer counts.
    fn probe(&self, disk: u16, key: &[u8]) -> SmallVec<[DiskEntry; 1]> {
        let hash = self.hash(key);
        let _ = self.disks.probe(disk, hash);
        let mut objects = self.newest(hash);
        objects.retain(|object| object.disk == disk);
        objects
    }
}
