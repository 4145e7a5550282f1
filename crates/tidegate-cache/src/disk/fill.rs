//! An object that is written: a file without a name, which gets one when it is complete, or a file whose missing pieces come.
//!
//! Called on threads that may wait. Bytes are reserved before they are written and given back when the fill is dropped, so a
//! fill that nobody ends costs nothing. In a file that has its name already, content is written before the entry of the table that vouches
//! for it: whoever is killed in between leaves a hole.

use super::fill_file::FillFile;
use super::folder::{Unnamed, write_all};
use super::index::Stored;
use super::journal::Record;
use super::layout::{self, ENTRY, Header, LONGEST_ENTITY, PIECE};
use super::object::OpenObject;
use super::volume::{Holder, Volume};
use super::{DiskEntry, DiskError, Id, NewObject};
use crc32fast::Hasher;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use tidegate_io::locking::lock;

/// An object that is being written. Dropping it gives it up; of one that was begun before, what came whole stays.
pub struct DiskFill {
    volume: Arc<Volume>,
    id: Id,
    /// As it will be written; length and flags are not known before the end.
    header: Vec<u8>,
    content: u64,
    /// Of the entity.
    length: Option<u64>,
    at: u64,
    /// Of the piece so far.
    checksum: Hasher,
    /// Pieces that are there.
    table: BTreeMap<u64, u32>,
    written: u64,
    reserved: u64,
    target: Target,
    /// Who reads it meanwhile.
    shared: Weak<FillFile>,
}

enum Target {
    New(Unnamed),
    /// A file that has its name. Its bytes on the disk before.
    Resumed {
        object: OpenObject,
        size: u64,
    },
    Done,
}

impl std::fmt::Debug for DiskFill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskFill").field("id", &self.id).field("at", &self.at).finish_non_exhaustive()
    }
}

impl DiskFill {
    pub(super) fn create(volume: Arc<Volume>, new: &NewObject<'_>) -> Result<DiskFill, DiskError> {
        let id = Id { hash: new.hash, serial: fastrand::u32(..) };
        let as_header = Header {
            hash: id.hash,
            entity_length: new.length.unwrap_or(0),
            mark: new.mark,
            stored_at: new.now.clamp(0, i64::from(u32::MAX)) as u32,
            serial: id.serial,
            boot: volume.boot.unwrap_or_default(),
            variant: new.variant,
            is_whole: false,
            key: new.key,
            head: new.head,
        };
        let mut header = Vec::new();
        if !as_header.write(None, &mut header) {
            return Err(DiskError::TooLarge);
        }
        let content = header.len() as u64;
        let limit = lock(&volume.index).limit();
        if new.length.is_some_and(|length| length.saturating_add(content) > limit) {
            return Err(DiskError::TooLarge);
        }
        let mut fill = DiskFill {
            id,
            header,
            content,
            length: new.length,
            at: 0,
            checksum: Hasher::new(),
            table: BTreeMap::new(),
            written: 0,
            reserved: 0,
            target: Target::Done,
            shared: Weak::new(),
            volume,
        };
        fill.reserve(0)?;
        fill.target = Target::New(fill.volume.create(id)?);
        Ok(fill)
    }

    /// Goes on with an object of which pieces are missing.
    pub(super) fn resume(volume: &Arc<Volume>, id: Id, key: &[u8]) -> Result<DiskFill, DiskError> {
        let object = OpenObject::open_as(volume, id, Some(key), true)?;
        let there = (0..).zip(object.checksums()?);
        let table: BTreeMap<_, _> = there.filter_map(|(piece, checksum)| Some((piece, checksum?))).collect();
        if !lock(&volume.index).begin_filling(id) {
            return Err(DiskError::Busy);
        }
        let length = object.header().entity_length;
        let before = lock(&volume.index).stored(id);
        let known = before.map_or(0, |stored| stored.size);
        let size = super::folder::size_of(object.file()).map_or(known, |(_, blocks)| blocks);
        // Who is killed meanwhile leaves a journal that says too much, and never too little.
        let most = volume.blocks(layout::file_length(object.content_offset(), length));
        if let Some(stored) = before.map(|stored| Stored { size: most.max(size), ..stored })
            && let Err(error) = volume.write_journal(&[Record::Stored(stored)])
        {
            lock(&volume.index).end_filling(id, (size, 0), 0, false);
            return Err(error);
        }
        let mut fill = DiskFill {
            volume: volume.clone(),
            id,
            header: Vec::new(),
            content: object.content_offset(),
            length: Some(length),
            at: 0,
            checksum: Hasher::new(),
            table,
            written: 0,
            reserved: 0,
            target: Target::Resumed { object, size },
            shared: Weak::new(),
        };
        let first = (0..layout::pieces(length)).find(|piece| !fill.table.contains_key(piece));
        fill.at = first.map_or(length, |piece| piece * PIECE);
        Ok(fill)
    }

    /// Where in the entity the next byte goes.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The file, for who reads what was written while more is. `None`: it has its name already, and can be opened by that.
    pub fn share(&mut self) -> Option<Arc<FillFile>> {
        let Target::New(unnamed) = &self.target else { return None };
        let shared = Arc::new(FillFile::new(self.volume.clone(), unnamed.file.clone(), self.content));
        self.shared = Arc::downgrade(&shared);
        Some(shared)
    }

    /// Writes the next bytes of the content.
    ///
    /// # Errors
    /// [`DiskError::NoRoom`], [`DiskError::Out`]: it cannot be stored; the fill is of no use any more. [`DiskError::Order`]: there are more bytes than were announced.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), DiskError> {
        while !bytes.is_empty() {
            let piece = self.at / PIECE;
            let most = self.length.unwrap_or(LONGEST_ENTITY);
            let end = ((piece + 1) * PIECE).min(most);
            let count = usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(bytes.len());
            if count == 0 {
                return Err(if self.length.is_some() { DiskError::Order } else { DiskError::TooLarge });
            }
            let (now, rest) = bytes.split_at(count);
            self.reserve(count as u64)?;
            let written = write_all(self.file()?, now, self.content + self.at);
            written.map_err(|error| self.volume.fault(error))?;
            self.written += count as u64;
            self.checksum.update(now);
            self.at += count as u64;
            bytes = rest;
            if self.at == (piece + 1) * PIECE || self.length == Some(self.at) {
                self.end_piece(piece)?;
            }
        }
        Ok(())
    }

    /// The object is complete: others find it from now on.
    ///
    /// # Errors
    /// [`DiskError::Missing`]: it is not complete. Else as [`DiskFill::write`].
    pub fn finish(mut self) -> Result<DiskEntry, DiskError> {
        if self.length.is_none() {
            if !self.at.is_multiple_of(PIECE) {
                self.end_piece(self.at / PIECE)?;
            }
            self.length = Some(self.at);
        }
        if self.table.len() as u64 != layout::pieces(self.length.unwrap_or(0)) {
            return Err(DiskError::Missing);
        }
        self.end(true)
    }

    /// The object is not complete and stays as it is, for who wants what is there or goes on with it.
    ///
    /// # Errors
    /// [`DiskError::Missing`]: its length is not known, or not one piece has come. Else as [`DiskFill::write`].
    pub fn keep(mut self) -> Result<DiskEntry, DiskError> {
        let Some(length) = self.length else { return Err(DiskError::Missing) };
        if self.table.is_empty() && length > 0 {
            return Err(DiskError::Missing);
        }
        let is_whole = self.table.len() as u64 == layout::pieces(length);
        self.end(is_whole)
    }

    /// Speaks for what the file will take at most with so many bytes more.
    fn reserve(&mut self, more: u64) -> Result<(), DiskError> {
        let volume = &self.volume;
        let content = self.written + more;
        let pieces = self.table.len() as u64 + 1;
        // What the file system adds to a long file, and a block where header, content and table begin and end.
        let wanted = volume.blocks(self.content + content + content / 64 + pieces * ENTRY as u64)
            + volume.blocks(1) * 5;
        if wanted > self.reserved {
            let missing = wanted - self.reserved;
            volume.reserve(missing)?;
            self.reserved = wanted;
        }
        Ok(())
    }

    fn file(&self) -> Result<&OwnedFd, DiskError> {
        match &self.target {
            Target::New(unnamed) => Ok(&unnamed.file),
            Target::Resumed { object, .. } => Ok(object.owned_file()),
            Target::Done => Err(DiskError::Gone),
        }
    }

    fn end_piece(&mut self, piece: u64) -> Result<(), DiskError> {
        let checksum = std::mem::take(&mut self.checksum).finalize();
        if let (Target::Resumed { object, .. }, Some(length)) = (&self.target, self.length) {
            let at = layout::table_offset(self.content, length) + piece * ENTRY as u64;
            let entry = layout::entry(checksum, piece, self.id.serial);
            write_all(object.owned_file(), &entry, at).map_err(|error| self.volume.fault(error))?;
        }
        self.table.insert(piece, checksum);
        Ok(())
    }

    fn end(&mut self, is_whole: bool) -> Result<DiskEntry, DiskError> {
        match std::mem::replace(&mut self.target, Target::Done) {
            Target::New(unnamed) => {
                let published = self.publish(&unnamed, is_whole);
                if published.is_err() {
                    self.volume.slot.discard(&unnamed);
                }
                published
            }
            Target::Resumed { object, size } => {
                let rewritten = if is_whole { object.rewrite(None, true) } else { Ok(()) };
                self.settle(&object, size, is_whole);
                rewritten?;
                let stored = lock(&self.volume.index).stored(self.id).ok_or(DiskError::Gone)?;
                Ok(DiskEntry::of(self.volume.disk, &stored))
            }
            Target::Done => Err(DiskError::Gone),
        }
    }

    fn publish(&mut self, unnamed: &Unnamed, is_whole: bool) -> Result<DiskEntry, DiskError> {
        let length = self.length.unwrap_or(0);
        let (header, _) = layout::fields(&self.header)?;
        let header = Header { entity_length: length, is_whole, ..header };
        let mut bytes = Vec::new();
        if !header.write(Some(self.content), &mut bytes) {
            return Err(DiskError::TooLarge);
        }
        self.write_table(&unnamed.file, length)
            .and_then(|()| write_all(&unnamed.file, &bytes, 0))
            .map_err(|error| self.volume.fault(error))?;
        let needed = self.volume.blocks(self.content + self.written + self.table.len() as u64 * ENTRY as u64);
        let stored = Stored {
            id: self.id,
            mark: header.mark,
            variant: header.variant,
            stored_at: header.stored_at,
            size: self.volume.size_on_disk(&unnamed.file, needed).min(self.reserved),
            is_whole,
            is_trusted: self.volume.boot.is_some(),
            ..Stored::default()
        };
        let reserved = std::mem::take(&mut self.reserved);
        let shared = self.shared.upgrade();
        if let Err(error) = self.volume.publish(unnamed, &stored, reserved, shared.is_some()) {
            self.reserved = reserved;
            return Err(error);
        }
        if let Some(shared) = shared {
            shared.is_published(Holder { volume: self.volume.clone(), id: self.id });
        }
        Ok(DiskEntry::of(self.volume.disk, &stored))
    }

    fn write_table(&self, file: &OwnedFd, length: u64) -> rustix::io::Result<()> {
        let at = layout::table_offset(self.content, length);
        // All pieces are there, or those from the first one on.
        let entries = self.table.iter().flat_map(|(piece, crc)| layout::entry(*crc, *piece, self.id.serial));
        write_all(file, &entries.collect::<Vec<u8>>(), at)?;
        rustix::fs::ftruncate(file, layout::file_length(self.content, length))
    }

    /// What a file that has its name has grown by is its own now.
    fn settle(&mut self, object: &OpenObject, size: u64, is_whole: bool) {
        let now = super::folder::size_of(object.file()).map_or(size, |(_, blocks)| blocks);
        let reserved = std::mem::take(&mut self.reserved);
        let grown = now.saturating_sub(size).min(reserved);
        let mut index = lock(&self.volume.index);
        index.end_filling(self.id, (size + grown, grown), reserved, is_whole);
        let stored = index.stored(self.id);
        drop(index);
        if let Some(stored) = stored {
            self.volume.note(&stored);
        }
    }
}

impl Drop for DiskFill {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.target, Target::Done) {
            Target::New(unnamed) => self.volume.slot.discard(&unnamed),
            Target::Resumed { object, size } => self.settle(&object, size, false),
            Target::Done => {}
        }
        // The file is closed by now, and its bytes are free; else by who reads it still.
        match self.shared.upgrade().filter(|_| self.reserved > 0) {
            Some(shared) => shared.is_given_up(std::mem::take(&mut self.reserved)),
            None => lock(&self.volume.index).release(self.reserved),
        }
    }
}
