//! What operators are told of disks. Everything here waits for them.

use crate::disk::{DiskEntry, DiskError, OpenObject};
use crate::encoding::decode;
use crate::entry::{Entry, StoredHead};
use crate::figures::Filter;
use crate::purge::Standing;
use crate::store::Store;
use crate::store::lets_through;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Places of the index that are looked at each time.
const PAGE: u32 = 256;
/// Broken files without a readable header for which the memory is gone through once.
const NAMELESS: usize = 256;

/// A stored response that only a disk has.
#[derive(Debug)]
pub struct DiskListed {
    /// The key that it is stored under.
    pub key: Box<[u8]>,
    /// Its head.
    pub head: StoredHead,
    /// Bytes of content that are there.
    pub len: u64,
    /// No part.
    pub is_whole: bool,
    /// Its file.
    pub file: PathBuf,
}

/// What came of reading a file.
#[derive(Debug)]
pub enum Verified {
    /// It is as it was written, in so many pieces.
    Sound(u64),
    /// It was not, and is gone.
    Broken(PathBuf),
    /// It could not be read.
    Unread(PathBuf, DiskError),
}

impl Store {
    /// The responses of a disk that the filter lets through, no purge has taken and the memory does not have, in no order. `visit` is called for each
    /// file that was looked at, and ends it with `false`. Whether all were looked at.
    pub fn list_disk(
        &self,
        disk: u16,
        filter: &Filter<'_>,
        mut visit: impl FnMut(Option<DiskListed>) -> bool,
    ) -> bool {
        self.walk_disk(disk, |object| visit(self.describe_object(object, filter)))
    }

    /// Reads every piece of every file of a disk and compares it with its checksum. `hear` is told of each file, and how many there are in all
    /// by now, and ends it with `false`. Whether all were read.
    pub fn verify_disk(&self, disk: u16, mut hear: impl FnMut(Verified, u64) -> bool) -> bool {
        let Some(tier) = self.tier.get() else { return true };
        // Of files whose header does not say whose they are: they are looked for together.
        let mut nameless = HashSet::new();
        let are_all = self.walk_disk(disk, |object| {
            let path = tier.disks.path(object);
            let (read, is_named) = match tier.disks.inspect(object) {
                Ok(open) => (self.compare_pieces(&open), true),
                Err(error) => (Err(error), false),
            };
            let verified = match read {
                Ok(pieces) => Verified::Sound(pieces),
                // It has made room meanwhile.
                Err(DiskError::Gone) => return true,
                Err(DiskError::Broken(_)) => {
                    if !is_named {
                        nameless.insert(object.id.hash);
                    }
                    Verified::Broken(path)
                }
                Err(error) => Verified::Unread(path, error),
            };
            if nameless.len() >= NAMELESS {
                self.forget_read_in(&mut nameless);
            }
            hear(verified, tier.disks.objects(disk))
        });
        self.forget_read_in(&mut nameless);
        are_all
    }

    /// Compares all pieces that are there, and says how many pieces there are. What is broken is not served from memory either.
    fn compare_pieces(&self, open: &OpenObject) -> Result<u64, DiskError> {
        let compared = (0..open.pieces()).try_for_each(|piece| match open.compare_piece(piece) {
            Err(DiskError::Missing) => Ok(()),
            compared => compared,
        });
        if let Err(DiskError::Broken(_)) = compared {
            self.forget_key(open.header().key);
        }
        compared.map(|()| open.pieces())
    }

    /// Takes out what came from files of these hashes.
    fn forget_read_in(&self, hashes: &mut HashSet<u128>) {
        let Some(tier) = self.tier.get() else { return };
        if hashes.is_empty() {
            return;
        }
        let is_meant = |entry: &Arc<Entry>| hashes.contains(&tier.hash(entry.key()));
        self.entries_where(is_meant).iter().for_each(|entry| self.unlink(entry));
        hashes.clear();
    }

    /// Every object of a disk that is there all the while, until `visit` says `false` or the disk is out. Whether all were visited.
    fn walk_disk(&self, disk: u16, mut visit: impl FnMut(&DiskEntry) -> bool) -> bool {
        let Some(tier) = self.tier.get() else { return true };
        let mut next = Some(0);
        while let Some(from) = next {
            let (objects, then) = tier.disks.page(disk, from, PAGE);
            if !objects.iter().all(|object| visit(object) && tier.disks.is_read(disk)) {
                return false;
            }
            next = then;
        }
        tier.disks.is_read(disk)
    }

    fn describe_object(&self, object: &DiskEntry, filter: &Filter<'_>) -> Option<DiskListed> {
        let tier = self.tier.get()?;
        let open = tier.disks.inspect(object).ok()?;
        let header = open.header();
        let head = decode(&header.head).filter(|head| lets_through(filter, head))?;
        let is_wanted = self.purges.standing(&head, header.mark) != Standing::Purged
            && !self.has_as_good(&self.hashed(header.key), object);
        let len = open.beginning().ok()?;
        is_wanted.then(|| DiskListed {
            key: header.key.into(),
            head,
            len,
            is_whole: len == header.entity_length,
            file: tier.disks.path(object),
        })
    }
}
