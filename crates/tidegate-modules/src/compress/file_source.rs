//! A piece of a file as a stream: what the kernel has in memory is read at once, what is cold is read on
//! the blocking pool (the worker never waits for a disk).
//!
//! Made by `filter` for files that are encoded under way; files that are sent as they are never come here.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_core::BodyStream;
use tidegate_core::response::FilePiece;
use tidegate_io::blocking;
use tidegate_io::file::{Patience, read_at};

pub(super) struct FileSource {
    piece: FilePiece,
    /// A read that the pool is at.
    cold: Option<blocking::Pending<io::Result<Vec<u8>>>>,
    /// What the pool has read and nobody has taken.
    read: Vec<u8>,
    taken: usize,
}

impl FileSource {
    pub(super) fn new(piece: FilePiece) -> FileSource {
        FileSource { piece, cold: None, read: Vec::new(), taken: 0 }
    }

    fn take_read(&mut self, buffer: &mut [u8]) -> usize {
        let rest = &self.read[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        if self.taken == self.read.len() {
            (self.read, self.taken) = (Vec::new(), 0);
        }
        count
    }

    fn read_on_the_pool(&self, count: usize) -> io::Result<blocking::Pending<io::Result<Vec<u8>>>> {
        let file = self.piece.file.shared();
        let offset = self.piece.offset;
        let job = move || {
            let mut bytes = vec![0; count];
            let count = read_at(file.as_fd(), &mut bytes, offset, Patience::Wait)?;
            bytes.truncate(count);
            Ok(bytes)
        };
        blocking::go_on(self.piece.file.lane(), job).map_err(io::Error::other)
    }
}

impl BodyStream for FileSource {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if !self.read.is_empty() {
                return Poll::Ready(Ok(self.take_read(buffer)));
            }
            let count = self.piece.len().min(buffer.len() as u64) as usize;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            if let Some(cold) = &mut self.cold {
                let Poll::Ready(result) = Pin::new(cold).poll(cx) else { return Poll::Pending };
                self.cold = None;
                self.read = result?;
                if self.read.is_empty() {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                self.piece.offset += self.read.len() as u64;
                continue;
            }
            match read_at(self.piece.file.as_fd(), &mut buffer[..count], self.piece.offset, Patience::Cached)
            {
                // Shorter than it was when its length was taken.
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    self.piece.offset += count as u64;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.cold = Some(self.read_on_the_pool(count)?);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::sync::{Arc, mpsc};
    use std::task::{Wake, Waker};
    use tidegate_io::paged::PagedFile;

    struct Signal(mpsc::Sender<()>);
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    /// Reads all, waiting for the pool where it has to.
    fn read_all(source: &mut FileSource, room: usize) -> io::Result<Vec<u8>> {
        let (sender, woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Signal(sender)));
        let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
        loop {
            match source.poll_chunk(&mut Context::from_waker(&waker), &mut buffer) {
                Poll::Ready(Ok(0)) => return Ok(all),
                Poll::Ready(Ok(count)) => all.extend_from_slice(&buffer[..count]),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => woken.recv().expect("the pool wakes its waiter"),
            }
        }
    }

    #[test]
    fn reads_a_piece_warm_and_cold_and_notices_a_shorter_file() {
        let path = std::env::temp_dir().join(format!("tidegate-source-{}", std::process::id()));
        let content: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = Rc::new(PagedFile::new(std::fs::File::open(&path).unwrap().into(), (0, 0)));
        let piece = |offset, end| FilePiece::new(file.clone(), offset, end);

        assert_eq!(read_all(&mut FileSource::new(piece(10, 150_000)), 999).unwrap(), content[10..150_000]);

        let mut cold = FileSource::new(piece(5, 100));
        cold.cold = Some(cold.read_on_the_pool(60).unwrap());
        assert_eq!(read_all(&mut cold, 7).unwrap(), content[5..100]);

        let error = read_all(&mut FileSource::new(piece(0, 300_000)), 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_file(&path).unwrap();
    }
}
