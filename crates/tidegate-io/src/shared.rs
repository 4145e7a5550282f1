//! Words of memory that several of our processes share: a memfd, mapped by each (memfd_create(2), mmap(2)).
//!
//! What one process writes, the others read at once; the words are atomic, and nothing else is promised. No process can
//! shrink the memory under the others, which would be a `SIGBUS` for them. It is filled with zeros, and pages that nobody has
//! written cost nothing. One memory holds many tables, each a range of its words, and grows at its end where more are needed:
//! it costs one descriptor, however many there are and have been. What is needed no longer is given back page by page
//! ([`release`]), and its range is never used again, since somebody may still write there.

use crate::mapping::Mapping;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::ProtFlags;
use rustix::process::{Resource, getrlimit};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The most words between two ranges that are mapped together: 1 MiB of addresses.
const GAP: usize = 256 * PAGE;
/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();
/// Words of a page: what begins at a multiple of them shares no page with what lies before.
pub const PAGE: usize = 4096 / WORD;

/// Memory that this process shares with others, or a part of it. Unmapped when it and all that was taken of it are dropped;
/// the memory lives as long as some process has it.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<Part>);

/// Some of its words.
#[derive(Debug)]
pub struct SharedWords {
    part: Arc<Part>,
    /// Counted from where the part begins.
    range: Range<usize>,
}

/// Words of the whole memory that are mapped here.
#[derive(Debug)]
struct Part {
    mapping: Mapping,
    /// The number of the first word.
    first: usize,
}

impl SharedMemory {
    /// New memory of `length` words of 8 bytes, all zero, and what another process gets to
    /// [`attach`](SharedMemory::attach) to. The name is seen in `/proc/PID/maps` alone.
    ///
    /// # Errors
    /// `InvalidInput`: no words, or more than an address can tell apart. Otherwise there is no descriptor or no memory left.
    pub fn new(name: &str, length: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        let descriptor = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::SEAL)?;
        let memory = Self::extend(descriptor.as_fd(), length)?;
        Ok((memory, descriptor))
    }

    /// Adds `length` words to a memory, at its end. They begin with a page of their own, all zero.
    ///
    /// # Errors
    /// `InvalidInput`: no words, or more than an address can tell apart. `PermissionDenied`: it is of a fixed size. Otherwise
    /// it is as large as the system allows, or there is no memory left.
    pub fn extend(descriptor: BorrowedFd<'_>, length: usize) -> io::Result<SharedMemory> {
        let before = usize::try_from(fstat(descriptor)?.st_size).unwrap_or(usize::MAX);
        let first = before.div_ceil(WORD * PAGE).checked_mul(PAGE);
        let range = first.and_then(|first| Some(first..first.checked_add(length)?));
        let in_bytes = |range: &Range<usize>| range.end.checked_mul(WORD);
        let fits = |bytes: &usize| (1..=isize::MAX as usize).contains(bytes);
        let (range, bytes) = range
            .and_then(|range| Some((range.clone(), in_bytes(&range).filter(fits)?)))
            .filter(|_| length > 0)
            .ok_or_else(|| {
                io::Error::new(ErrorKind::InvalidInput, "no number of words that can be shared")
            })?;
        // Beyond this bound the system would end the process.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes as u64) {
            return Err(io::Error::new(ErrorKind::FileTooLarge, "the system allows no file of this size"));
        }
        ftruncate(descriptor, bytes as u64)?;
        Ok(SharedMemory(Arc::new(Part::of(descriptor, range)?)))
    }

    /// The memory that another process has made, as large as it is now. It stays when the descriptor is closed.
    ///
    /// # Errors
    /// `InvalidData`: it is no memory of [`SharedMemory::new`]. Otherwise there is no memory left.
    pub fn attach(descriptor: BorrowedFd<'_>) -> io::Result<SharedMemory> {
        let length = shared_length(descriptor)?;
        Ok(SharedMemory(Arc::new(Part::of(descriptor, 0..length)?)))
    }

    /// The number of the first of its words here.
    pub fn first(&self) -> usize {
        self.0.first
    }

    /// How many words of it are here.
    #[allow(clippy::len_without_is_empty)] // it is never empty
    pub fn len(&self) -> usize {
        self.0.length()
    }

    /// Those in this range of the whole memory; `None` where not all of them are here.
    pub fn words(&self, range: Range<usize>) -> Option<SharedWords> {
        let (start, end) = (range.start.checked_sub(self.0.first)?, range.end.checked_sub(self.0.first)?);
        let is_there = start <= end && end <= self.0.length();
        is_there.then(|| SharedWords { part: self.0.clone(), range: start..end })
    }
}

/// The words in some ranges of a memory that another process has made, in few mappings, and without what lies between that
/// is large; `None` for a range that is not there.
///
/// # Errors
/// As [`SharedMemory::attach`].
pub fn attach_ranges(
    descriptor: BorrowedFd<'_>,
    ranges: &[Range<usize>],
) -> io::Result<Vec<Option<SharedWords>>> {
    let length = shared_length(descriptor)?;
    let mut order: Vec<(usize, &Range<usize>)> = ranges.iter().enumerate().collect();
    order.retain(|(_, range)| range.start < range.end && range.end <= length);
    order.sort_unstable_by_key(|(_, range)| range.start);
    let mut words: Vec<Option<SharedWords>> = ranges.iter().map(|_| None).collect();
    let mut left = &order[..];
    while let Some((_, first)) = left.first() {
        let mut end = first.end;
        let is_near = |(_, range): &&(usize, &Range<usize>)| {
            let is_near = range.start <= end.saturating_add(GAP);
            end = if is_near { end.max(range.end) } else { end };
            is_near
        };
        let count = left.iter().take_while(is_near).count();
        let (near, rest) = left.split_at(count);
        let memory = SharedMemory(Arc::new(Part::of(descriptor, first.start / PAGE * PAGE..end)?));
        near.iter().for_each(|(at, range)| words[*at] = memory.words((*range).clone()));
        left = rest;
    }
    Ok(words)
}

/// How many words a memory has now, of which no process takes any away.
fn shared_length(descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let is_sealed = fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let bytes = usize::try_from(fstat(descriptor)?.st_size).unwrap_or(0);
    match is_sealed && bytes > 0 && bytes % WORD == 0 {
        true => Ok(bytes / WORD),
        false => Err(io::Error::new(ErrorKind::InvalidData, "the descriptor is none of shared memory")),
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
    /// The first so many of them, and the others; `None` where there are not as many.
    pub fn split_at(self, count: usize) -> Option<(SharedWords, SharedWords)> {
        let Range { start, end } = self.range;
        let middle = start.checked_add(count).filter(|middle| *middle <= end)?;
        let first = SharedWords { part: self.part.clone(), range: start..middle };
        Some((first, SharedWords { part: self.part, range: middle..end }))
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `SharedMemory::words` has looked that the range lies in the part, which lives as long as `self` and is
        // aligned to a page; any bytes are a valid word, and all processes write them as atomic words only.
        #[allow(unsafe_code)]
        unsafe {
            let start = self.part.mapping.start().cast::<AtomicU64>();
            std::slice::from_raw_parts(start.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl Part {
    /// Of words that the memory has, the first of which begins a page. It never has less than these.
    fn of(descriptor: BorrowedFd<'_>, range: Range<usize>) -> io::Result<Part> {
        let Range { start: first, end } = range;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::of(descriptor, (first * WORD) as u64, (end - first) * WORD, protection)?;
        Ok(Part { mapping, first })
    }

    fn length(&self) -> usize {
        self.mapping.length() / WORD
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
    fn words_are_split_and_stay_where_they_are() {
        let (memory, _) = SharedMemory::new("test", 10).unwrap();
        all(&memory).words()[3].store(7, Relaxed);
        let (first, rest) = all(&memory).split_at(3).unwrap();
        assert_eq!((first.words().len(), rest.words().len()), (3, 7));
        assert_eq!(rest.words()[0].load(Relaxed), 7);
        assert!(first.split_at(4).is_none());
    }

    #[test]
    fn nobody_takes_words_away() {
        let (_shared, descriptor) = SharedMemory::new("test", 512).unwrap();
        assert!(ftruncate(&descriptor, 8).is_err());
        assert!(fcntl_add_seals(&descriptor, SealFlags::GROW).is_err(), "it has to grow");
    }

    #[test]
    fn more_words_are_added_at_its_end() {
        let (first, descriptor) = SharedMemory::new("test", 10).unwrap();
        let second = SharedMemory::extend(descriptor.as_fd(), 3 * PAGE).unwrap();
        assert_eq!((second.first(), second.len()), (PAGE, 3 * PAGE));
        assert!(first.words(0..11).is_none() && second.words(0..1).is_none());
        all(&first).words()[9].store(1, Relaxed);
        second.words(PAGE..PAGE + 1).unwrap().words()[0].store(2, Relaxed);
        let far = SharedMemory::extend(descriptor.as_fd(), 2 * GAP).unwrap();
        far.words(far.first() + 2 * GAP - 1..far.first() + 2 * GAP).unwrap().words()[0].store(3, Relaxed);
        let end = far.first() + far.len();
        drop((first, second, far));
        let ranges = [end - 1..end, 9..10, end..end + 1, PAGE..PAGE + 1, 5..5, usize::MAX - 1..usize::MAX];
        let words = attach_ranges(descriptor.as_fd(), &ranges).unwrap();
        let said = |words: &Option<SharedWords>| words.as_ref().map(|words| words.words()[0].load(Relaxed));
        assert_eq!(words.iter().map(said).collect::<Vec<_>>(), [Some(3), Some(1), None, Some(2), None, None]);
        let [Some(last), Some(one), _, Some(two), ..] = &words[..] else { panic!() };
        assert!(Arc::ptr_eq(&one.part, &two.part) && !Arc::ptr_eq(&one.part, &last.part));
        assert_eq!(last.part.length(), PAGE, "what lies between is not mapped");
        // One of a version that made each of a fixed size.
        let fixed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fixed, 4096).unwrap();
        fcntl_add_seals(&fixed, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(SharedMemory::attach(fixed.as_fd()).is_ok());
        assert!(SharedMemory::extend(fixed.as_fd(), 1).is_err());
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
