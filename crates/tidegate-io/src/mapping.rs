//! Memory of a descriptor, mapped into this process (mmap(2)): unmapped when the value is dropped.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A mapping of bytes that others may have mapped as well. How they may be reached, whoever maps them knows.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is never unmapped while the value lives; whoever reaches it through the pointer says why that is sound.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Of `length` bytes from an offset that begins a page; none is no mapping, and never read. The memory must never get
    /// shorter than that: reading beyond its end ends the process.
    ///
    /// # Errors
    /// There is no memory left, or nothing that can be mapped.
    pub(crate) fn of(
        descriptor: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        protection: ProtFlags,
    ) -> io::Result<Mapping> {
        if length == 0 {
            return Ok(Mapping { start: NonNull::dangling(), length });
        }
        // SAFETY: the kernel chooses an address where nothing is mapped.
        #[allow(unsafe_code)]
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, descriptor, offset)? };
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or_else(|| io::Error::other("the system has mapped memory at address 0"))?;
        Ok(Mapping { start, length })
    }

    /// Where it begins: at a page, where it has any bytes.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        // SAFETY: mapped by `of` with this length; nobody holds a reference into it any more.
        #[allow(unsafe_code)]
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped is unmapped");
    }
}
