//! Stored content as a stream: of what is in memory, and of what is still on its way.

use std::io;
use std::task::{Context, Poll};
use tidegate_cache::Reader;
use tidegate_core::body_stream::{BodyStream, Chunk, Splice};

/// A range of stored content, for one client.
pub(super) struct StoredSource(Reader);

impl StoredSource {
    pub(super) fn new(reader: Reader) -> StoredSource {
        StoredSource(reader)
    }
}

impl BodyStream for StoredSource {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        self.0.poll_read(cx, buffer).map_ok(Chunk::of)
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {} // it fills by itself

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn held(&self) -> usize {
        size_of::<StoredSource>() // the content is the store's
    }
}
