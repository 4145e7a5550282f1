//! Stored content as a stream: of what is in memory, of what is still on its way, and of what of that has gone to a disk meanwhile.

use crate::compress::file_source::FileSource;
use crate::compress::stream::BytesSource;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use tidegate_cache::{InFile, Next, Reader};
use tidegate_core::body_stream::{BodyStream, Chunk, Splice};
use tidegate_core::response::FilePiece;
use tidegate_io::paged::PagedFile;

/// What is read of a file before it is looked whether memory has what follows, bytes.
const MOST_OF_FILE: u64 = 4 << 20;

/// A range of stored content, for one client.
pub(super) struct StoredSource {
    /// `None`: the rest is in `own`.
    reader: Option<Reader>,
    /// A copy of what is left, for a client that does not take it.
    own: BytesSource,
    /// Where it is behind what memory keeps.
    behind: Option<FileSource>,
    file: Option<Rc<PagedFile>>,
}

impl StoredSource {
    pub(super) fn new(reader: Reader) -> StoredSource {
        let own = BytesSource { bytes: Vec::new(), taken: 0 };
        StoredSource { reader: Some(reader), own, behind: None, file: None }
    }

    fn begin(&mut self, piece: InFile) {
        let InFile { file, queue_key, offset, content, len } = piece;
        let paged =
            self.file.get_or_insert_with(|| Rc::new(PagedFile::shared_with(file, queue_key, content)));
        let end = offset + len.min(MOST_OF_FILE);
        self.behind = Some(FileSource::new(FilePiece::new(paged.clone(), offset, end)));
    }
}

impl BodyStream for StoredSource {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        loop {
            let Some(reader) = &mut self.reader else { return self.own.poll_chunk(cx, buffer) };
            if let Some(file) = &mut self.behind {
                match file.poll_chunk(cx, buffer) {
                    Poll::Ready(Ok(Chunk::End)) if !buffer.is_empty() => self.behind = None,
                    Poll::Ready(Ok(chunk)) => {
                        reader.has_read(chunk.len() as u64);
                        return Poll::Ready(Ok(chunk));
                    }
                    other => return other,
                }
            }
            match reader.poll_next(cx, buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => match next? {
                    Next::Bytes(count) => return Poll::Ready(Ok(Chunk::of(count))),
                    Next::InFile(piece) => self.begin(piece),
                },
            }
        }
    }

    /// It fills by itself; but its client may hold too much of what is stored.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if let Some(rest) = self.reader.as_mut().and_then(|reader| reader.copy_rest(cx)) {
            self.own.bytes = rest;
            self.reader = None;
        }
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn held(&self) -> usize {
        size_of::<StoredSource>() + self.own.held() // the content is the store's
    }
}
