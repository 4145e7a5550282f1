//! Memory that is a file as well, so that a socket can be given its pages in place of a copy of its bytes (`memfd_create(2)`,
//! `mmap(2)`, `sendfile(2)`).
//!
//! A [`FileMemory`] is filled once, by one, and read by many. When it is dropped its pages go out of the file (`madvise(2)`,
//! `MADV_REMOVE`), and whoever gets the place next gets other pages: what a socket has been given of the ones before stays as it
//! was until the client has it. Nothing is ever written over. Huge pages are refused: where a part of one goes out of a file, the
//! kernel may write zeros over it in place.
//!
//! Places are of one size and lie in chunks, each of which is one descriptor; a place takes no more memory than the pages that
//! were written in it.

use crate::locking::lock;
use crate::mapping::Mapping;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags, madvise};
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// The most bytes of one.
pub const LARGEST: usize = 64 << 10;
/// Memory is taken by pages of so many bytes: who counts it rounds up to them.
pub const PAGE: usize = 4 << 10;
/// Places in a chunk.
const PLACES: usize = 4096;

/// Where there may be room: all chunks that are in use, and an empty one.
static CHUNKS: Mutex<Vec<Arc<Chunk>>> = Mutex::new(Vec::new());

/// Bytes of memory that all of them have in this process, as the kernel counts them.
pub fn in_use() -> u64 {
    let blocks = |chunk: &Arc<Chunk>| fstat(&chunk.file).map_or(0, |file| file.st_blocks as u64);
    lock(&CHUNKS).iter().map(blocks).sum::<u64>() * 512
}

struct Chunk {
    file: OwnedFd,
    mapping: Mapping,
    /// Places that nobody has, a bit for each. The first one is given next, so that what is filled at a time lies in one piece.
    free: Mutex<[u64; PLACES / 64]>,
}

impl Chunk {
    fn new() -> io::Result<Chunk> {
        let file = memfd_create("tidegate-shared", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (PLACES * LARGEST) as u64)?;
        let mapping = Mapping::of(file.as_fd(), 0, PLACES * LARGEST, ProtFlags::READ | ProtFlags::WRITE)?;
        let start = mapping.start().as_ptr().cast::<c_void>();
        // SAFETY: the range is that of the mapping, of which the advice changes no byte.
        #[allow(unsafe_code)]
        match unsafe { madvise(start, mapping.length(), Advice::LinuxNoHugepage) } {
            // A kernel that has none refuses the word.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Chunk { file, mapping, free: Mutex::new([u64::MAX; PLACES / 64]) })
    }

    fn take(&self) -> Option<u16> {
        let mut free = lock(&self.free);
        let (number, word) = free.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= !(1 << bit);
        Some(number as u16 * 64 + bit as u16)
    }

    fn give_back(&self, place: u16) {
        lock(&self.free)[usize::from(place / 64)] |= 1 << (place % 64);
    }

    /// Whether nobody has any of it.
    fn is_empty(&self) -> bool {
        lock(&self.free).iter().all(|word| *word == u64::MAX)
    }
}

/// Bytes in memory that a socket can be given without a copy.
pub struct FileMemory {
    chunk: Arc<Chunk>,
    place: u16,
    length: usize,
    capacity: usize,
}

/// Where bytes of a [`FileMemory`] lie: file, offset there, and how many.
#[derive(Debug, Clone, Copy)]
pub struct FileRun<'m> {
    /// The file.
    pub file: BorrowedFd<'m>,
    /// Where they begin.
    pub offset: u64,
    /// How many, bytes.
    pub length: u64,
}

impl FileMemory {
    /// Empty, with room for `capacity` bytes. `None`: that is more than [`LARGEST`], or there is no descriptor or no memory for
    /// another chunk.
    pub fn with_capacity(capacity: usize) -> Option<FileMemory> {
        if capacity > LARGEST {
            return None;
        }
        let mut chunks = lock(&CHUNKS);
        let place = |chunk: &Arc<Chunk>| Some((chunk.clone(), chunk.take()?));
        let (chunk, place) = match chunks.iter().find_map(place) {
            Some(found) => found,
            None => {
                chunks.push(Arc::new(Chunk::new().ok()?));
                chunks.last().and_then(place)?
            }
        };
        Some(FileMemory { chunk, place, length: 0, capacity })
    }

    /// How many bytes there is room for in all.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends as many of these as there is room for; answers how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.capacity - self.length);
        // SAFETY: the place is this value's alone, `length + count` is at most its size, and as `self` is borrowed mutably nobody
        // has a slice of it. What a socket may have been given are pages before `length`, of which no byte is written.
        #[allow(unsafe_code)]
        unsafe {
            let end = self.start().add(self.length);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), end, count);
        }
        self.length += count;
        count
    }

    /// Where its bytes from `at` on lie as a file.
    pub fn run(&self, at: usize) -> FileRun<'_> {
        let at = at.min(self.length);
        let offset = usize::from(self.place) * LARGEST + at;
        FileRun { file: self.chunk.file.as_fd(), offset: offset as u64, length: (self.length - at) as u64 }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: places lie within the mapping.
        #[allow(unsafe_code)]
        unsafe {
            self.chunk.mapping.start().as_ptr().add(usize::from(self.place) * LARGEST)
        }
    }
}

impl FileRun<'_> {
    /// Both, where the other one lies right behind it in the same file.
    #[must_use]
    pub fn joined(self, other: FileRun<'_>) -> Option<Self> {
        use std::os::fd::AsRawFd;
        let is_behind = other.offset == self.offset + self.length;
        let is_same = self.file.as_raw_fd() == other.file.as_raw_fd();
        (is_behind && is_same).then(|| FileRun { length: self.length + other.length, ..self })
    }
}

impl Deref for FileMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: these bytes were written by `append`, and the place is this value's until it is dropped; nobody else has the
        // file mapped, nor its descriptor to write with.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start(), self.length)
        }
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        let start = self.start().cast::<c_void>();
        // SAFETY: the pages are those of a place that nobody has a slice of any more, and hold nothing that is needed.
        #[allow(unsafe_code)]
        let removed = unsafe { madvise(start, LARGEST, Advice::LinuxRemove) };
        if removed.is_err() {
            return; // its pages may be with a socket: nobody gets this place again
        }
        let mut chunks = lock(&CHUNKS);
        self.chunk.give_back(self.place);
        let is_one_of_two = |chunk: &Arc<Chunk>| !Arc::ptr_eq(chunk, &self.chunk) && chunk.is_empty();
        if self.chunk.is_empty() && chunks.iter().any(is_one_of_two) {
            chunks.retain(|chunk| !Arc::ptr_eq(chunk, &self.chunk));
        }
    }
}

impl fmt::Debug for FileMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.length, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;

    fn filled(bytes: &[u8]) -> FileMemory {
        let mut memory = FileMemory::with_capacity(bytes.len()).unwrap();
        assert_eq!(memory.append(bytes), bytes.len());
        memory
    }

    fn read(run: FileRun<'_>) -> Vec<u8> {
        let mut bytes = vec![0; run.length as usize];
        let file = File::from(run.file.try_clone_to_owned().unwrap());
        file.read_exact_at(&mut bytes, run.offset).unwrap();
        bytes
    }

    #[test]
    fn bytes_are_the_same_in_memory_and_in_the_file() {
        let bytes: Vec<u8> = (0..LARGEST).map(|at| (at % 251) as u8).collect();
        let mut memory = FileMemory::with_capacity(LARGEST).unwrap();
        for piece in bytes.chunks(1000) {
            assert_eq!(memory.append(piece), piece.len());
        }
        assert_eq!((memory.append(b"more"), &*memory, memory.capacity()), (0, &bytes[..], LARGEST));
        assert_eq!(read(memory.run(0)), bytes);
        assert_eq!(read(memory.run(70)), bytes[70..]);
        assert_eq!(memory.run(usize::MAX).length, 0);
        assert!(FileMemory::with_capacity(LARGEST + 1).is_none());
    }

    /// The pages that a socket was given are not those of whoever has the place next.
    #[test]
    fn what_a_socket_was_given_stays_as_it_was() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let size = 8 * PAGE;
        let memory = filled(&vec![b'a'; size]);
        let (place, chunk) = (memory.place, memory.chunk.clone());
        let mut run = memory.run(0);
        let sent = crate::file::send_file(ours.as_fd(), run.file, &mut run.offset, size).unwrap();
        drop(memory);
        // The place goes to the next who wants one.
        let mut others = Vec::new();
        loop {
            let next = filled(&vec![b'b'; size]);
            let is_same = next.place == place && Arc::ptr_eq(&next.chunk, &chunk);
            others.push(next);
            if is_same {
                break;
            }
        }
        let mut received = vec![0; sent.unwrap()];
        assert!(received.len() >= PAGE);
        theirs.read_exact(&mut received).unwrap();
        assert!(received.iter().all(|byte| *byte == b'a'));
    }

    /// As the kernel tells it: `nh` among the flags of the mapping, where it knows huge pages at all.
    #[test]
    fn none_of_it_is_a_huge_page() {
        let _held = filled(b"a");
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = maps.split_once("memfd:tidegate-shared").map(|(_, behind)| behind);
        let flags = ours.and_then(|ours| ours.lines().find_map(|line| line.strip_prefix("VmFlags:")));
        let has_any = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(flags.unwrap().split(' ').any(|flag| flag == "nh"), has_any);
    }

    #[test]
    fn runs_that_lie_behind_each_other_are_one() {
        let (first, second) = (filled(&[1; LARGEST]), filled(&[2; LARGEST]));
        let is_behind = second.place == first.place + 1 && Arc::ptr_eq(&first.chunk, &second.chunk);
        let joined = first.run(5).joined(second.run(0));
        assert_eq!(joined.map(|run| run.length as usize), is_behind.then_some(2 * LARGEST - 5));
        assert!(first.run(0).joined(second.run(1)).is_none());
        assert!(first.run(0).joined(first.run(0)).is_none());
    }
}
