//! Words of memory that several of our processes share: a memfd, mapped by each (memfd_create(2), mmap(2)).
//!
//! What one process writes, the others read at once; the words are atomic, and nothing else is promised. The memory is
//! sealed in its size: no process can shrink it under the others, which would be a `SIGBUS` for them. It is filled with
//! zeros, and pages that nobody has written cost nothing.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The seals without which memory of another process is not mapped.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Memory that this process shares with others. Unmapped when dropped; the memory lives as long as some process has it.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    length: usize,
}

// SAFETY: the memory is never unmapped while the value lives, and is only reached as atomic words.
#[allow(unsafe_code)]
unsafe impl Send for SharedWords {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// New memory of `length` words of 8 bytes, all zero, and what another process gets to
    /// [`attach`](SharedWords::attach) to. The name is seen in `/proc/PID/maps` alone.
    ///
    /// # Errors
    /// `InvalidInput`: no words, or more than an address can tell apart. Otherwise there is no descriptor or no memory left.
    pub fn new(name: &str, length: usize) -> io::Result<(SharedWords, OwnedFd)> {
        let bytes = length
            .checked_mul(size_of::<AtomicU64>())
            .filter(|bytes| (1..=isize::MAX as usize).contains(bytes));
        let bytes = bytes.ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, "no number of words that can be shared")
        })?;
        let descriptor = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, bytes as u64)?;
        fcntl_add_seals(&descriptor, SIZE_SEALS | SealFlags::SEAL)?;
        Ok((Self::map(descriptor.as_fd(), length)?, descriptor))
    }

    /// The memory that another process has made. It stays when the descriptor is closed.
    ///
    /// # Errors
    /// `InvalidData`: it is no memory of [`SharedWords::new`]. Otherwise there is no memory left.
    pub fn attach(descriptor: BorrowedFd<'_>) -> io::Result<SharedWords> {
        let is_sealed = fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SIZE_SEALS));
        let bytes = usize::try_from(fstat(descriptor)?.st_size).unwrap_or(0);
        if !is_sealed || bytes == 0 || bytes % size_of::<AtomicU64>() != 0 {
            return Err(io::Error::new(ErrorKind::InvalidData, "the descriptor is none of shared memory"));
        }
        Self::map(descriptor, bytes / size_of::<AtomicU64>())
    }

    fn map(descriptor: BorrowedFd<'_>, length: usize) -> io::Result<SharedWords> {
        let bytes = length * size_of::<AtomicU64>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped, and the file has this size for good.
        #[allow(unsafe_code)]
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, descriptor, 0)? };
        let start = NonNull::new(start.cast::<AtomicU64>());
        let start = start.ok_or_else(|| io::Error::other("the system has mapped memory at address 0"))?;
        Ok(SharedWords { start, length })
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for as long as `self` lives, aligned to a page; any bytes are a valid word, and all processes
        // write them as atomic words only.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.length)
        }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nobody holds a reference into it any more.
        #[allow(unsafe_code)]
        let unmapped =
            unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.length * size_of::<AtomicU64>()) };
        debug_assert!(unmapped.is_ok(), "what was mapped is unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn both_sides_see_the_same_words() {
        let (ours, descriptor) = SharedWords::new("test", 1000).unwrap();
        let theirs = SharedWords::attach(descriptor.as_fd()).unwrap();
        assert_eq!(theirs.words().len(), 1000);
        assert!(theirs.words().iter().all(|word| word.load(Relaxed) == 0));
        ours.words()[999].store(7, Relaxed);
        drop((ours, descriptor));
        assert_eq!(theirs.words()[999].load(Relaxed), 7);
    }

    #[test]
    fn its_size_is_for_good() {
        let (_shared, descriptor) = SharedWords::new("test", 512).unwrap();
        assert!(ftruncate(&descriptor, 8).is_err());
        assert!(ftruncate(&descriptor, 1 << 20).is_err());
    }

    #[test]
    fn what_could_shrink_is_not_mapped() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert_eq!(SharedWords::attach(file.as_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        let (pipe, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        assert_eq!(SharedWords::attach(pipe.as_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(SharedWords::new("test", 0).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(SharedWords::new("test", usize::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
