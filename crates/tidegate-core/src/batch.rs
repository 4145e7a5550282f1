//! Output that is not with the kernel yet, and the memory of the worker that it is collected in.
//!
//! What is made for one connection must never reach another. Therefore the worker owns no output: it owns memory, which
//! is empty by type ([`BatchMemory`]) and is lent to the connection that runs. The bytes are in the connection's own
//! [`Batch`]. When the connection stops running, `Connection` sends or holds what is left in its batch before
//! the memory goes back, so that no path through the protocols can leave bytes behind.

use std::ops::{Deref, DerefMut};

/// A batch that has grown beyond this gives its memory back to the system.
const KEPT: usize = 1 << 20;

/// The memory that a worker lends to whichever connection runs. Nothing can be put into it.
#[derive(Debug)]
pub(crate) struct BatchMemory(Vec<u8>);

impl BatchMemory {
    pub(crate) fn with_capacity(bytes: usize) -> BatchMemory {
        BatchMemory(Vec::with_capacity(bytes))
    }

    /// Whether nobody has it.
    pub(crate) fn is_home(&self) -> bool {
        self.0.capacity() > 0
    }
}

/// Bytes for the client of one connection. While the connection runs they lie in memory of the worker.
///
/// Dropped with bytes in it, it has lost output: that is a mistake of ours, which debug builds do not survive. Whoever
/// means to lose them says so with [`Batch::discard`].
#[derive(Debug, Default)]
pub(crate) struct Batch(Vec<u8>);

impl Batch {
    /// Takes the worker's memory to work in.
    #[inline]
    pub(crate) fn borrow_memory(&mut self, memory: &mut BatchMemory) {
        // What should have been flushed is still this connection's, and goes first.
        if self.0.is_empty() {
            std::mem::swap(&mut self.0, &mut memory.0);
        }
    }

    /// Gives the memory back. What has not been flushed stays here.
    #[inline]
    pub(crate) fn return_memory(&mut self, memory: &mut BatchMemory) {
        debug_assert!(self.0.is_empty(), "invariant: a connection flushes its batch before it gives it back");
        if self.0.is_empty() && !memory.is_home() {
            std::mem::swap(&mut self.0, &mut memory.0);
            memory.0.shrink_to(KEPT);
        }
    }

    /// Loses the bytes, since the client is gone.
    #[inline]
    pub(crate) fn discard(&mut self) {
        self.0.clear();
    }
}

impl Deref for Batch {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Batch {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(
            self.0.is_empty() || std::thread::panicking(),
            "invariant: output is sent, held or discarded, never dropped"
        );
    }
}
