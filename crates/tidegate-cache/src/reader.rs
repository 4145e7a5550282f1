//! Reads a range of a content, as fast as its client takes it and no faster than it is filled.

use std::io;
use std::task::{Context, Poll};

/// Reads a range of a [`Content`](crate::Content). On any thread, and moved between threads.
pub struct Reader {}

impl Reader {
    /// Copies what is here into `buffer`. 0: the range is at its end, or the buffer is empty. Waits for what is still to come.
    ///
    /// # Errors
    /// `UnexpectedEof`: the fetch was broken off, or the content was let go of before this reader had come there.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let _ = (cx, buffer);
        todo!()
    }

    /// Bytes that are still to be read; `None` where the length is not known yet.
    pub fn left(&self) -> Option<u64> {
        todo!()
    }
}
