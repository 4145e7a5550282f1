//! A block of content: bytes that follow each other, and the memory that they lie in.
//!
//! What is large enough lies in memory that a socket can be given without a copy ([`FileMemory`]); what is smaller, or may be
//! used again for other bytes, does not.

use crate::budget::Reservation;
use tidegate_io::file_memory::{FileMemory, FileRun, LARGEST, PAGE};

/// Bytes of a block; the last one of a content may be smaller.
pub(crate) const BLOCK: usize = LARGEST;
/// Bytes from which a copy costs more than giving pages does.
const LARGE: usize = 32 * 1024;
/// Bytes that a block costs beside its own: its place in a list that grows by doubling, both lists counted while it does.
pub(crate) const BLOCK_COST: u64 = 3 * size_of::<Block>() as u64 + 16;

/// Some bytes that follow each other.
pub(crate) struct Block {
    /// Where they begin in the content.
    pub(super) at: u64,
    bytes: Bytes,
    // Behind the bytes: memory is free before it is said to be.
    pub(super) reservation: Reservation,
}

enum Bytes {
    Owned(Vec<u8>),
    InFile(FileMemory),
}

/// How much memory so many bytes of content take, at most a block of them.
pub(crate) fn capacity_for(len: u64) -> usize {
    let len = usize::try_from(len).unwrap_or(BLOCK).min(BLOCK);
    if len >= LARGE { len.next_multiple_of(PAGE) } else { len }
}

impl Block {
    /// An empty one of `capacity` bytes, for which `reservation` has been made. It will hold what it holds for good.
    pub(crate) fn new(at: u64, capacity: usize, reservation: Reservation) -> Block {
        let is_large = capacity >= LARGE && capacity.is_multiple_of(PAGE);
        let in_file = is_large.then(|| FileMemory::with_capacity(capacity)).flatten();
        let bytes = in_file.map_or_else(|| Bytes::Owned(Vec::with_capacity(capacity)), Bytes::InFile);
        Block { at, bytes, reservation }
    }

    /// One of which the bytes go, to make room for others.
    pub(crate) fn passing(at: u64, capacity: usize, reservation: Reservation) -> Block {
        Block { at, bytes: Bytes::Owned(Vec::with_capacity(capacity)), reservation }
    }

    /// A full one at the beginning of a content.
    pub(crate) fn of(bytes: Vec<u8>, reservation: Reservation) -> Block {
        Block { at: 0, bytes: Bytes::Owned(bytes), reservation }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Owned(bytes) => bytes,
            Bytes::InFile(bytes) => bytes,
        }
    }

    /// Where its bytes from a position of the content on lie as a file, if they do.
    pub(super) fn run(&self, position: u64) -> Option<FileRun<'_>> {
        match &self.bytes {
            Bytes::Owned(_) => None,
            Bytes::InFile(bytes) => Some(bytes.run(usize::try_from(position.checked_sub(self.at)?).ok()?)),
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.at + self.bytes().len() as u64
    }

    /// Bytes that there is room for.
    pub(super) fn room(&self) -> usize {
        let capacity = match &self.bytes {
            Bytes::Owned(bytes) => bytes.capacity(),
            Bytes::InFile(bytes) => bytes.capacity(),
        };
        capacity - self.bytes().len()
    }

    /// Memory that it has beyond what its bytes need.
    pub(super) fn spare(&self) -> usize {
        let len = self.bytes().len();
        (self.room() + len).saturating_sub(capacity_for(len as u64))
    }

    /// Appends what there is room for; answers how much.
    pub(super) fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        match &mut self.bytes {
            Bytes::Owned(own) => own.extend_from_slice(&bytes[..count]),
            Bytes::InFile(own) => return own.append(&bytes[..count]),
        }
        count
    }

    /// Forgets its bytes, to hold those from `at` on. A socket may have been given pages of file memory, so it gets other memory.
    pub(super) fn reuse(&mut self, at: u64) {
        self.at = at;
        match &mut self.bytes {
            Bytes::Owned(bytes) => bytes.clear(),
            Bytes::InFile(bytes) => self.bytes = Bytes::Owned(Vec::with_capacity(bytes.capacity())),
        }
    }
}
