//! Words of memory that several of our processes share: a memfd, mapped by each (memfd_create(2), mmap(2)).
//!
//! What one process writes, the others read at once; the words are atomic, and nothing else is promised. The memory is
//! sealed in its size: no process can shrink it under the others, which would be a `SIGBUS` for them. It is filled with
//! zeros, and pages that nobody has written cost nothing. One memory holds many tables, each a range of its words: it
//! costs one descriptor and one mapping, however many there are.

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The seals without which memory of another process is not mapped.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();
/// Words of a page: what begins at a multiple of them shares no page with what lies before.
pub const PAGE: usize = 4096 / WORD;

/// Memory that this process shares with others. Unmapped when it and all that was taken of it are dropped; the memory
/// lives as long as some process has it.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<Mapping>);

/// Some of its words.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Arc<Mapping>,
    range: Range<usize>,
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<AtomicU64>,
    length: usize,
}

// SAFETY: the memory is never unmapped while the value lives, and is only reached as atomic words.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

impl SharedMemory {
    /// New memory of `length` words of 8 bytes, all zero, and what another process gets to
    /// [`attach`](SharedMemory::attach) to. The name is seen in `/proc/PID/maps` alone.
    ///
    /// # Errors
    /// `InvalidInput`: no words, or more than an address can tell apart. Otherwise there is no descriptor or no memory left.
    pub fn new(name: &str, length: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        let bytes = length.checked_mul(WORD).filter(|bytes| (1..=isize::MAX as usize).contains(bytes));
        let bytes = bytes.ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, "no number of words that can be shared")
        })?;
        let descriptor = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, bytes as u64)?;
        fcntl_add_seals(&descriptor, SIZE_SEALS | SealFlags::SEAL)?;
        Ok((SharedMemory(Arc::new(Mapping::of(descriptor.as_fd(), length)?)), descriptor))
    }

    /// The memory that another process has made. It stays when the descriptor is closed.
    ///
    /// # Errors
    /// `InvalidData`: it is no memory of [`SharedMemory::new`]. Otherwise there is no memory left.
    pub fn attach(descriptor: BorrowedFd<'_>) -> io::Result<SharedMemory> {
        let is_sealed = fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SIZE_SEALS));
        let bytes = usize::try_from(fstat(descriptor)?.st_size).unwrap_or(0);
        if !is_sealed || bytes == 0 || bytes % WORD != 0 {
            return Err(io::Error::new(ErrorKind::InvalidData, "the descriptor is none of shared memory"));
        }
        Ok(SharedMemory(Arc::new(Mapping::of(descriptor, bytes / WORD)?)))
    }

    /// How many words it has.
    #[allow(clippy::len_without_is_empty)] // it is never empty
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Those in this range; `None` where not all of them are there.
    pub fn words(&self, range: Range<usize>) -> Option<SharedWords> {
        let is_there = range.start <= range.end && range.end <= self.0.length;
        is_there.then(|| SharedWords { mapping: self.0.clone(), range })
    }
}

/// Gives the pages that lie in this range of words back to the system: they are zeros again for whoever has the memory
/// mapped, which stays as large as it is. Words that share a page with others stay as they are.
///
/// # Errors
/// The system does not do that.
pub fn release(descriptor: BorrowedFd<'_>, range: Range<usize>) -> io::Result<()> {
    let (first, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
    if first < end {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(descriptor, how, (first * WORD) as u64, ((end - first) * WORD) as u64)?;
    }
    Ok(())
}

impl SharedWords {
    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `SharedMemory::words` has looked that the range lies in the mapping, which lives as long as `self` and is
        // aligned to a page; any bytes are a valid word, and all processes write them as atomic words only.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.mapping.start.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl Mapping {
    fn of(descriptor: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped, and the file has this size for good.
        #[allow(unsafe_code)]
        let start = unsafe {
            mmap(std::ptr::null_mut(), length * WORD, protection, MapFlags::SHARED, descriptor, 0)?
        };
        let start = NonNull::new(start.cast::<AtomicU64>());
        let start = start.ok_or_else(|| io::Error::other("the system has mapped memory at address 0"))?;
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length; nobody holds a reference into it any more.
        #[allow(unsafe_code)]
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.length * WORD) };
        debug_assert!(unmapped.is_ok(), "what was mapped is unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    fn all(memory: &SharedMemory) -> SharedWords {
        memory.words(0..memory.len()).unwrap()
    }

    #[test]
    fn both_sides_see_the_same_words() {
        let (ours, descriptor) = SharedMemory::new("test", 1000).unwrap();
        let theirs = all(&SharedMemory::attach(descriptor.as_fd()).unwrap());
        assert_eq!(theirs.words().len(), 1000);
        assert!(theirs.words().iter().all(|word| word.load(Relaxed) == 0));
        ours.words(998..1000).unwrap().words()[1].store(7, Relaxed);
        drop((ours, descriptor));
        assert_eq!(theirs.words()[999].load(Relaxed), 7);
    }

    #[test]
    fn no_range_leads_out_of_it() {
        let (memory, _) = SharedMemory::new("test", 1000).unwrap();
        assert_eq!(memory.words(1000..1000).unwrap().words().len(), 0);
        for (start, end) in [(0, 1001), (1001, 1001), (7, 6), (usize::MAX, 0), (0, usize::MAX)] {
            assert!(memory.words(start..end).is_none(), "{start}..{end}");
        }
    }

    #[test]
    fn what_is_released_is_zero_and_what_shares_its_pages_stays() {
        let (memory, descriptor) = SharedMemory::new("test", 4 * PAGE).unwrap();
        let words = all(&memory);
        words.words().iter().for_each(|word| word.store(1, Relaxed));
        release(descriptor.as_fd(), 1..3 * PAGE + 1).unwrap();
        let left: Vec<usize> = (0..4).map(|page| words.words()[page * PAGE].load(Relaxed) as usize).collect();
        assert_eq!(left, [1, 0, 0, 1]);
        release(descriptor.as_fd(), 5..6).unwrap();
        assert_eq!(words.words()[5].load(Relaxed), 1);
    }

    #[test]
    fn its_size_is_for_good() {
        let (_shared, descriptor) = SharedMemory::new("test", 512).unwrap();
        assert!(ftruncate(&descriptor, 8).is_err());
        assert!(ftruncate(&descriptor, 1 << 20).is_err());
    }

    #[test]
    fn what_could_shrink_is_not_mapped() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert_eq!(SharedMemory::attach(file.as_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        let (pipe, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        assert_eq!(SharedMemory::attach(pipe.as_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(SharedMemory::new("test", 0).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(SharedMemory::new("test", usize::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
