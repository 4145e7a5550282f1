//! Bytes that several of our processes read and nobody changes: a sealed memfd, mapped by each (memfd_create(2), mmap(2)).
//!
//! The master fills it and passes the descriptor on; server processes, which may not read the file that it comes from, map
//! it. All of them share the pages. Once sealed it can neither be written nor shrunk by anybody, so that a plain slice of
//! bytes is what it says, for good. Very many pieces lie in few memories ([`Sealer`]), each of which is one descriptor.

use crate::mapping::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::mm::ProtFlags;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

/// The seals without which bytes of another process are not mapped.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Sealed memory, not mapped: what is passed on.
///
/// # Errors
/// There is no descriptor or no memory left.
pub fn seal(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
    Ok(file.into())
}

/// The bytes after which another memory is begun.
pub const MEMORY: usize = 16 << 20;
/// Where a piece begins: at a line of the processor's caches.
const ALIGNMENT: usize = 64;

/// Puts pieces of bytes into memories, one behind the other, until it seals them.
#[derive(Debug)]
pub struct Sealer {
    name: &'static str,
    memories: Vec<File>,
    /// Of the last one.
    length: usize,
}

/// Where a piece of a [`Sealer`] lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The number of its memory.
    pub memory: usize,
    /// Its bytes there.
    pub range: Range<usize>,
}

impl Sealer {
    /// No memory yet. The name is seen in `/proc/PID/maps` alone.
    pub fn new(name: &'static str) -> Sealer {
        Sealer { name, memories: Vec::new(), length: 0 }
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<Piece> {
        if self.memories.is_empty() || self.length >= MEMORY {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            self.memories.push(memfd_create(self.name, flags)?.into());
            self.length = 0;
        }
        let memory = self.memories.len() - 1;
        let range = self.length..self.length + bytes.len();
        // What a piece that did not fit has left there is written over.
        self.memories[memory].write_all_at(bytes, range.start as u64)?;
        self.length = range.end.next_multiple_of(ALIGNMENT);
        Ok(Piece { memory, range })
    }

    /// The memories, in the order of their numbers.
    ///
    /// # Errors
    /// The system does not seal.
    pub fn seal(self) -> io::Result<Vec<OwnedFd>> {
        let seal = |memory: File| {
            fcntl_add_seals(&memory, SEALS | SealFlags::SEAL)?;
            Ok(memory.into())
        };
        self.memories.into_iter().map(seal).collect()
    }
}

/// Bytes of [`seal`] or a [`Sealer`], mapped. They live as long as the value does, whoever closes the descriptor.
#[derive(Debug, Clone)]
pub struct SealedBytes {
    /// Lies in `mapping`, with all its bytes.
    start: NonNull<u8>,
    length: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: `start` is reached for reading only, and its mapping lives as long as the value.
#[allow(unsafe_code)]
unsafe impl Send for SealedBytes {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for SealedBytes {}

impl SealedBytes {
    /// Maps what another process has sealed.
    ///
    /// # Errors
    /// `InvalidData`: it is nothing of [`seal`]. Otherwise there is no memory left.
    pub fn map(descriptor: BorrowedFd<'_>) -> io::Result<SealedBytes> {
        let is_sealed = fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SEALS));
        if !is_sealed {
            return Err(io::Error::new(ErrorKind::InvalidData, "the descriptor is none of sealed memory"));
        }
        let length = usize::try_from(fstat(descriptor)?.st_size).unwrap_or(0);
        // It has this size for good, and is sealed against writing, so that the bytes behind a shared slice never change.
        let mapping = Mapping::of(descriptor, 0, length, ProtFlags::READ)?;
        Ok(SealedBytes { start: mapping.start(), length, mapping: Arc::new(mapping) })
    }

    /// Seals bytes and maps them, in one process.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn of(name: &str, bytes: &[u8]) -> io::Result<SealedBytes> {
        Self::map(seal(name, bytes)?.as_fd())
    }

    /// Some of the bytes of the memory, in the same mapping, which stays as long as one of its parts does; `None` where not
    /// all of them are there.
    pub fn part(&self, range: Range<usize>) -> Option<SealedBytes> {
        let length = range.end.checked_sub(range.start)?;
        if range.end > self.mapping.length() {
            return None;
        }
        // SAFETY: the range lies in the mapping.
        #[allow(unsafe_code)]
        let start = unsafe { self.mapping.start().add(range.start) };
        Some(SealedBytes { start, length, mapping: self.mapping.clone() })
    }
}

impl Deref for SealedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: lies in the mapping, which lives as long as `self` (or is nothing, of length 0), and is sealed against writing.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.length)
        }
    }
}

impl AsRef<[u8]> for SealedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::ftruncate;

    #[test]
    fn what_is_sealed_is_read_elsewhere_and_stays() {
        let descriptor = seal("test", b"twelve bytes").unwrap();
        let bytes = SealedBytes::map(descriptor.as_fd()).unwrap();
        assert_eq!(&*bytes, b"twelve bytes");
        assert!(ftruncate(&descriptor, 1).is_err());
        assert!(rustix::io::pwrite(&descriptor, b"x", 0).is_err());
        drop(descriptor);
        assert_eq!(&*bytes, b"twelve bytes");
        assert!(SealedBytes::of("test", b"").unwrap().is_empty());
    }

    #[test]
    fn pieces_lie_in_few_memories() {
        let mut sealer = Sealer::new("test");
        let large = vec![7; MEMORY];
        let parts: [&[u8]; 5] = [b"one", b"", &large, b"two", b"three"];
        let pieces: Vec<Piece> = parts.iter().map(|part| sealer.add(part).unwrap()).collect();
        assert_eq!(pieces.iter().map(|piece| piece.memory).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
        let memories = sealer.seal().unwrap();
        let mapped: Vec<_> =
            memories.iter().map(|memory| SealedBytes::map(memory.as_fd()).unwrap()).collect();
        drop(memories);
        let parts_there: Vec<SealedBytes> =
            pieces.iter().map(|piece| mapped[piece.memory].part(piece.range.clone()).unwrap()).collect();
        for (start, end) in [(0, mapped[1].len() + 1), (1, 0), (usize::MAX, usize::MAX)] {
            assert!(mapped[1].part(start..end).is_none(), "{start}..{end}");
        }
        drop(mapped);
        for (part, there) in parts.iter().zip(&parts_there) {
            assert!(there.iter().eq(*part));
        }
        // A part of a part is one of the memory.
        assert_eq!(&*parts_there[4].part(pieces[3].range.clone()).unwrap(), b"two");
        assert!(Sealer::new("test").seal().unwrap().is_empty());
    }

    #[test]
    fn what_could_change_is_not_mapped() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert_eq!(SealedBytes::map(file.as_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert_eq!(SealedBytes::map(file.as_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        let (pipe, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        assert_eq!(SealedBytes::map(pipe.as_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
