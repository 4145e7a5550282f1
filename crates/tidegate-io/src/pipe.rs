//! Bytes from one socket to another without a copy: `splice(2)` moves the pages they lie in, by way of a pipe.
//!
//! A worker lends pipes, since one is needed only while bytes are in it. How many it lends at once is bounded, for
//! each costs two descriptors: who gets none copies.

use crate::runtime;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Pipes that a worker lends at once.
const LENT: usize = 64;
/// Bytes that one holds; 64 KiB is what the system gives.
const SIZE: usize = 256 << 10;
/// Empty ones that it keeps.
const SPARE: usize = 4;

/// The pipes of one worker.
#[derive(Default)]
pub(crate) struct Pipes {
    spare: RefCell<Vec<Ends>>,
    lent: Cell<usize>,
}

struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// A pipe, lent until it is dropped. What is in it then is lost.
pub struct Pipe {
    ends: Option<Ends>,
    /// Bytes, of which the system allows no pipe 4 GiB: each answer under way has room for this.
    held: u32,
}

impl Pipe {
    /// An empty one; `None` where there is none to be had.
    pub fn lend() -> Option<Pipe> {
        runtime::with(|runtime| {
            let pipes = &runtime.pipes;
            if pipes.lent.get() >= LENT {
                return None;
            }
            let spare = pipes.spare.borrow_mut().pop();
            let ends = match spare {
                Some(ends) => ends,
                None => {
                    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
                    // Beyond a bound of the system for each user it stays as it is (pipe(7)).
                    let _ = fcntl_setpipe_size(&writer, SIZE);
                    Ends { reader, writer }
                }
            };
            pipes.lent.set(pipes.lent.get() + 1);
            Some(Pipe { ends: Some(ends), held: 0 })
        })
    }

    /// Bytes in it.
    pub fn held(&self) -> usize {
        self.held as usize
    }

    /// Takes what a socket has, `most` bytes at most, into a pipe that is empty; 0 is the end.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where nothing has come.
    pub fn fill(&mut self, from: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let Some(ends) = &self.ends else { return Ok(0) };
        let count = splice(from, None, &ends.writer, None, most, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?;
        self.held += count as u32;
        Ok(count)
    }

    /// Gives a socket what it has room for; 0 where there is none. `more` follows at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn drain(&mut self, to: BorrowedFd<'_>, more: bool) -> io::Result<usize> {
        let Some(ends) = self.ends.as_ref().filter(|_| self.held > 0) else { return Ok(0) };
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        match splice(&ends.reader, None, to, None, self.held(), flags) {
            Ok(count) => {
                self.held = self.held.saturating_sub(count as u32);
                Ok(count)
            }
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let ends = self.ends.take().filter(|_| self.held == 0);
        runtime::try_with(|runtime| {
            let pipes = &runtime.pipes;
            pipes.lent.set(pipes.lent.get().saturating_sub(1));
            let mut spare = pipes.spare.borrow_mut();
            if spare.len() < SPARE {
                spare.extend(ends);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Poller, Runtime};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_go_through_and_an_empty_pipe_is_kept() {
        let poller = Poller::new().unwrap();
        let _runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let ((mut client, from), (to, mut server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        from.set_nonblocking(true).unwrap();
        to.set_nonblocking(true).unwrap();
        let mut pipe = Pipe::lend().unwrap();
        assert_eq!(pipe.fill(from.as_fd(), 100).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(pipe.drain(to.as_fd(), false).unwrap(), 0);
        client.write_all(b"hello world").unwrap();
        assert_eq!((pipe.fill(from.as_fd(), 5).unwrap(), pipe.held()), (5, 5));
        assert_eq!((pipe.drain(to.as_fd(), false).unwrap(), pipe.held()), (5, 0));
        assert_eq!(pipe.fill(from.as_fd(), 100).unwrap(), 6);
        assert_eq!(pipe.drain(to.as_fd(), false).unwrap(), 6);
        let mut got = [0; 11];
        server.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello world");
        drop(client);
        assert_eq!(pipe.fill(from.as_fd(), 100).unwrap(), 0);
        drop(pipe);
        runtime::with(|runtime| {
            assert_eq!((runtime.pipes.spare.borrow().len(), runtime.pipes.lent.get()), (1, 0));
        });
        // Nothing of one answer may get into another.
        let mut pipe = Pipe::lend().unwrap();
        let (mut client, from) = UnixStream::pair().unwrap();
        client.write_all(b"left").unwrap();
        assert_eq!(pipe.fill(from.as_fd(), 4).unwrap(), 4);
        drop(pipe);
        runtime::with(|runtime| assert!(runtime.pipes.spare.borrow().is_empty()));
        let all: Vec<_> = (0..LENT).map(|_| Pipe::lend().unwrap()).collect();
        assert!(Pipe::lend().is_none());
        drop(all);
        runtime::with(|runtime| assert_eq!(runtime.pipes.spare.borrow().len(), SPARE));
    }
}
