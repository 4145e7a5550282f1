//! Reads a range of a content, as fast as its client takes it and no faster than it is filled.

use crate::backing::InFile;
use crate::content::{Content, Got};
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

/// What a [`Reader`] gets.
pub enum Next {
    /// So many bytes, in the buffer. 0: the range is at its end, or the buffer is empty.
    Bytes(usize),
    /// It is behind what memory keeps, and reads on in a file: what of that it has read, [`Reader::has_read`] is to be told.
    InFile(InFile),
}

impl Reader {
    pub(crate) fn new(content: Arc<Content>, seat: Option<usize>, range: Range<u64>) -> Reader {
        content.hold();
        Reader { content, seat, left: range }
    }

    /// Where it sits in its content, as long as that comes in.
    pub(crate) fn seat(&self) -> Option<usize> {
        self.seat
    }

    /// Copies what is here into `buffer`, or says where it is. Waits for what is still to come.
    ///
    /// # Errors
    /// `UnexpectedEof`: the fetch was broken off, or the content was let go of before this reader had come there.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Next>> {
        let left = self.left.end.saturating_sub(self.left.start);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Poll::Ready(Ok(Next::Bytes(0)));
        }
        match self.content.poll_read(cx, self.seat, self.left.start, &mut buffer[..most]) {
            Poll::Ready(Ok(Got::Bytes(count))) => {
                self.pass(count as u64);
                Poll::Ready(Ok(Next::Bytes(count)))
            }
            Poll::Ready(Ok(Got::InFile(mut piece))) => {
                piece.offset += self.left.start;
                piece.len = piece.len.min(left);
                Poll::Ready(Ok(Next::InFile(piece)))
            }
            Poll::Ready(Err(())) => {
                let message = "the rest of the response never came from its origin";
                Poll::Ready(Err(io::Error::new(ErrorKind::UnexpectedEof, message)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// As [`Reader::poll_next`], for threads that may wait: what is in a file is read there. 0: the range is at its end, or the buffer is
    /// empty.
    ///
    /// # Errors
    /// As [`Reader::poll_next`], and those of the file.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let piece = match self.poll_next(cx, buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(next) => match next? {
                Next::Bytes(count) => return Poll::Ready(Ok(count)),
                Next::InFile(piece) => piece,
            },
        };
        let most = usize::try_from(piece.len).unwrap_or(usize::MAX).min(buffer.len());
        let count = rustix::io::pread(&*piece.file, &mut buffer[..most], piece.offset)?;
        if count == 0 {
            return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
        }
        self.has_read(count as u64);
        Poll::Ready(Ok(count))
    }

    /// Its client does not take what is there. Where clients hold as much as they may of what is small, and this is small, it gets a copy of what is
    /// left: the reader is at its end then, and can go. `None`: it need not, or not all is there, and `cx` is woken when more is.
    pub fn copy_rest(&mut self, cx: &Context<'_>) -> Option<Vec<u8>> {
        if !self.content.is_scarce() || self.content.is_passing() {
            return None;
        }
        if !self.content.is_complete() {
            self.content.wait(self.seat, self.left.start, cx.waker());
        }
        // It may have become complete meanwhile, and woken nobody.
        if !self.content.is_complete() {
            return None;
        }
        let rest = self.content.copied(self.left.clone());
        self.pass(self.left.end.saturating_sub(self.left.start));
        Some(rest)
    }

    /// So many bytes of what is in a file were read there.
    pub fn has_read(&mut self, count: u64) {
        self.pass(count);
        self.content.advance(self.seat, self.left.start);
    }

    fn pass(&mut self, count: u64) {
        self.left.start += count;
        if self.left.is_empty() {
            self.content.advance(self.seat, u64::MAX);
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
        self.content.release();
    }
}
