//! Bytes that several of our processes read and nobody changes: a sealed memfd, mapped by each (memfd_create(2), mmap(2)).
//!
//! The master fills it and passes the descriptor on; server processes, which may not read the file that it comes from, map
//! it. All of them share the pages. Once sealed it can neither be written nor shrunk by anybody, so that a plain slice of
//! bytes is what it says, for good.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

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

/// Bytes of [`seal`], mapped. They live as long as the value does, whoever closes the descriptor.
#[derive(Debug)]
pub struct SealedBytes {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is never unmapped while the value lives, and nobody can write to it.
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
        if length == 0 {
            return Ok(SealedBytes { start: NonNull::dangling(), length });
        }
        // SAFETY: the kernel chooses an address where nothing is mapped; the file has this size for good, and is sealed
        // against writing, so that the bytes behind the shared slice never change.
        #[allow(unsafe_code)]
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, descriptor, 0)? };
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or_else(|| io::Error::other("the system has mapped memory at address 0"))?;
        Ok(SealedBytes { start, length })
    }

    /// Seals bytes and maps them, in one process.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn of(name: &str, bytes: &[u8]) -> io::Result<SealedBytes> {
        Self::map(seal(name, bytes)?.as_fd())
    }
}

impl Deref for SealedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives (or nothing, of length 0), and sealed against writing.
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

impl Drop for SealedBytes {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        // SAFETY: mapped by `map` with this length; nobody holds a reference into it any more.
        #[allow(unsafe_code)]
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped is unmapped");
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
