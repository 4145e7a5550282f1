//! A piece of a file as a stream: what the kernel has in memory is read at once, what is cold is brought in by
//! the blocking pool first (the worker never waits for a disk).
//!
//! Made by `filter` for files that are encoded under way; files that are sent as they are never come here.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use tidegate_core::body_stream::{BodyStream, Chunk, Splice};
use tidegate_core::response::FilePiece;
use tidegate_io::file::{Patience, read_at};

pub(crate) struct FileSource {
    piece: FilePiece,
}

impl FileSource {
    pub(crate) fn new(piece: FilePiece) -> FileSource {
        FileSource { piece }
    }
}

impl BodyStream for FileSource {
    fn held(&self) -> usize {
        size_of::<FileSource>() // the file is in the page cache
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        if self.piece.is_empty() || buffer.is_empty() {
            return Poll::Ready(Ok(Chunk::End));
        }
        let Poll::Ready(warm) = self.piece.poll_warm(Some(cx.waker())) else { return Poll::Pending };
        let count = (warm? - self.piece.offset).min(buffer.len() as u64) as usize;
        match read_at(self.piece.file.as_fd(), &mut buffer[..count], self.piece.offset, Patience::Wait) {
            // Shorter than it was when its length was taken.
            Ok(0) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.piece.offset += count as u64;
                Poll::Ready(Ok(Chunk::of(count)))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::rc::Rc;
    use tidegate_io::paged::PagedFile;

    /// Reads all, waiting for the pool where it has to.
    fn read_all(source: &mut FileSource, room: usize) -> io::Result<Vec<u8>> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
        loop {
            match tidegate_testkit::block_on(poll_fn(|cx| source.poll_chunk(cx, &mut buffer)))? {
                Chunk::Data(count) => all.extend_from_slice(&buffer[..count.get()]),
                _ => return Ok(all),
            }
        }
    }

    #[test]
    fn reads_a_piece_warm_and_cold_and_notices_a_shorter_file() {
        let path = std::env::temp_dir().join(format!("tidegate-source-{}", std::process::id()));
        let content: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = Rc::new(PagedFile::new(
            std::os::fd::OwnedFd::from(std::fs::File::open(&path).unwrap()).into(),
            (0, 0),
        ));
        let piece = |offset, end| FilePiece::new(file.clone(), offset, end);

        assert_eq!(read_all(&mut FileSource::new(piece(10, 150_000)), 999).unwrap(), content[10..150_000]);

        assert_eq!(read_all(&mut FileSource::new(piece(5, 100)), 7).unwrap(), content[5..100]);

        let error = read_all(&mut FileSource::new(piece(0, 300_000)), 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_file(&path).unwrap();
    }
}
