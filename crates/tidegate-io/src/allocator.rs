//! What the C library's allocator keeps of memory that nobody uses any more.

/// Has all threads share one heap, as long as there is no other yet: each further one takes 64 MiB of address space,
/// whatever it holds. For a process whose address space is bounded. Does nothing where the C library is not glibc.
pub fn share_one_heap() {
    // SAFETY: no pointer is passed; the call only sets a parameter of the allocator.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives back to the system what is free in the heaps of all threads (`malloc_trim(3)`). It takes milliseconds for
/// each hundred MiB and holds up whoever allocates meanwhile: not for the way of a request. Does nothing where the
/// C library is not glibc.
pub fn trim() {
    // SAFETY: no pointer is passed; the call only gives back pages that no allocation lies in.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}
