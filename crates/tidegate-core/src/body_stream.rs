//! Content that is pulled: what its sources promise and what those that wrap one must pass on.
//!
//! A stream gives [`Chunk`]s until its end, and the end is one of them, with trailers or without: whoever wraps a stream
//! has to say what becomes of either. For the same reason no function of [`BodyStream`] has a body of its own.

use std::io;
use std::num::NonZeroUsize;
use std::task::{Context, Poll};
use tidegate_http::FieldLines;
use tidegate_io::pipe::Pipe;

/// What a stream gives next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// So many bytes, at the front of the buffer.
    Data(NonZeroUsize),
    /// The end, with trailer fields (RFC 9110 section 6.5). They go to clients whose protocol has a place for them.
    Trailers(FieldLines),
    /// The end.
    End,
}

impl Chunk {
    /// So many bytes; none are the end.
    #[inline]
    pub fn of(count: usize) -> Chunk {
        NonZeroUsize::new(count).map_or(Chunk::End, Chunk::Data)
    }

    /// The end, with these fields where there are any.
    pub fn end(trailers: FieldLines) -> Chunk {
        if trailers.is_empty() { Chunk::End } else { Chunk::Trailers(trailers) }
    }

    /// Bytes of content.
    #[inline]
    pub fn len(&self) -> usize {
        if let Chunk::Data(count) = self { count.get() } else { 0 }
    }

    /// Whether it is an end.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A source that is pulled. It fills a lent buffer, so an idle or blocked stream owns none.
pub trait BodyStream {
    /// Fills the front of `buffer`, which is not empty. Behind an end it is not asked again. An error cuts the response
    /// short, visibly to the client. `Pending` wakes the waker of `cx` when there is more.
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>>;

    /// Called instead while the client does not take more: the source may read ahead, or carry on what else
    /// it does. It arranges to be woken; there is nothing to return.
    fn poll_ahead(&mut self, cx: &mut Context<'_>);

    /// Where what comes next is worth moving without a copy, and may be moved as it is: who does it.
    fn splice(&mut self) -> Option<&mut dyn Splice>;

    /// Bytes of memory that it holds while it waits, for whoever weighs the connection; those of a stream within are a
    /// part of them.
    fn held(&self) -> usize;
}

/// A stream whose content goes from socket to socket.
pub trait Splice {
    /// Moves what comes next into `pipe`, which is empty: the bytes of content. None are a break.
    fn poll_splice(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>>;
}
