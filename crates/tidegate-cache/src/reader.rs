//! Reads a range of a content, as fast as its client takes it and no faster than it is filled.

use crate::content::Content;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Reads a range of a [`Content`]. On any thread, and moved between threads.
pub struct Reader {
    content: Arc<Content>,
    /// Where it waits; `None`: it need not, since all is there.
    seat: Option<usize>,
    left: Range<u64>,
}

impl Reader {
    pub(crate) fn new(content: Arc<Content>, seat: Option<usize>, range: Range<u64>) -> Reader {
        Reader { content, seat, left: range }
    }

    /// Where it sits in its content, as long as that comes in.
    pub(crate) fn seat(&self) -> Option<usize> {
        self.seat
    }

    /// Copies what is here into `buffer`. 0: the range is at its end, or the buffer is empty. Waits for what is still to come.
    ///
    /// # Errors
    /// `UnexpectedEof`: the fetch was broken off, or the content was let go of before this reader had come there.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let most = self.left.end.saturating_sub(self.left.start);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Poll::Ready(Ok(0));
        }
        match self.content.poll_read(cx, self.seat, self.left.start, &mut buffer[..most]) {
            Poll::Ready(Ok(count)) => {
                self.left.start += count as u64;
                if self.left.is_empty() {
                    self.content.advance(self.seat, u64::MAX);
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(())) => {
                let message = "the rest of the response never came from its origin";
                Poll::Ready(Err(io::Error::new(ErrorKind::UnexpectedEof, message)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Bytes that are still to be read; `None` where the length is not known yet.
    pub fn left(&self) -> Option<u64> {
        let end = match self.content.len() {
            Some(len) => self.left.end.min(len),
            None if self.left.end == u64::MAX => return None,
            None => self.left.end,
        };
        Some(end.saturating_sub(self.left.start))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.content.leave(self.seat);
    }
}
