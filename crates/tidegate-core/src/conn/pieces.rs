//! Pieces of files and of shared memory on their way to the client: files by `sendfile(2)`, or read, sealed and sent where there
//! is TLS; memory from where it lies, in one call with what goes before it.

use super::Connection;
use super::backlog::Backlog;
use super::output::{Piece, Pieces};
use super::send::{FILE_TURN, Progress};
use crate::log;
use crate::response::FilePiece;
use std::io;
use std::os::fd::AsFd;
use std::task::Poll;
use tidegate_io::file_memory::FileRun;
use tidegate_io::shared_bytes::SharedPiece;
use tidegate_io::socket::Stream;
use tidegate_io::{Key, file, runtime};

/// What the socket has taken of memory and of what goes before it.
struct Taken {
    front: usize,
    content: u64,
    /// Of both all that it was given.
    is_all: bool,
}

/// Bytes of memory from which its pages are given to the kernel, where it can have them: a copy of less costs less.
const LENDABLE: u64 = 16 << 10;

/// What a connection does in one turn.
pub(super) struct Turn<'o> {
    /// Bytes of files.
    pub(super) bytes: u64,
    /// Who is woken when a disk has answered.
    pub(super) key: Option<Key>,
    /// See [`Output`].
    pub(super) is_cut: &'o mut bool,
}

/// Sends `front`, and behind it at most `most` bytes that lie in memory which is a file.
fn send_run(stream: &Stream, front: &[u8], mut run: FileRun<'_>, most: u64) -> io::Result<Taken> {
    if !front.is_empty() {
        let sent = stream.send(front, true)?;
        if sent < front.len() {
            return Ok(Taken { front: sent, content: 0, is_all: false });
        }
    }
    let count = usize::try_from(run.length.min(most)).unwrap_or(usize::MAX);
    let sent = file::send_file(stream.as_fd(), run.file, &mut run.offset, count)?.unwrap_or(0);
    Ok(Taken { front: front.len(), content: sent as u64, is_all: sent == count })
}

/// Sends a piece of a file, as far as that waits for no disk.
fn send_piece(
    stream: &Stream,
    piece: &mut FilePiece,
    total: &mut u64,
    turn: &mut Turn<'_>,
) -> io::Result<Progress> {
    while piece.offset < piece.end {
        if turn.bytes >= FILE_TURN {
            return Ok(Progress::Again);
        }
        let waker = turn.key.map(runtime::waker);
        let Poll::Ready(warm) = piece.poll_warm(waker.as_ref()) else { return Ok(Progress::Waiting) };
        let warm = warm.map_err(|error| cut(turn, error))?;
        let count = (warm - piece.offset).min(FILE_TURN - turn.bytes) as usize;
        match file::send_file(stream.as_fd(), piece.file.as_fd(), &mut piece.offset, count) {
            Ok(None) => return Ok(Progress::Blocked),
            Ok(Some(0)) => return Err(cut(turn, io::ErrorKind::UnexpectedEof.into())),
            Ok(Some(sent)) => {
                *total += sent as u64;
                turn.bytes += sent as u64;
                // Full, which the kernel has noted (`SOCK_NOSPACE`): it tells when there is room. A file that has become
                // shorter is met by the next call, and whatever else makes this one short when the timer looks
                // (`look_at_reader`).
                if sent < count && !file::ends_by(piece.file.as_fd(), piece.offset) {
                    return Ok(Progress::Blocked);
                }
            }
            Err(error) if error.raw_os_error() == Some(EIO) => return Err(cut(turn, error)),
            Err(error) => return Err(error), // the client has gone
        }
    }
    Ok(Progress::Done)
}

/// `EIO`
const EIO: i32 = 5;

/// The file cannot be read, or is shorter than it was. Its length is announced: only cutting off tells the
/// client.
#[cold]
fn cut(turn: &mut Turn<'_>, error: io::Error) -> io::Error {
    *turn.is_cut = true;
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            log::warn("a file became shorter while it was sent; its connection is cut")
        }
        _ => log::error(format_args!(
            "a file cannot be read on ({error}); the connection that it is sent on is cut"
        )),
    }
    error
}

impl Connection {
    pub(super) fn send_file(
        &mut self,
        piece: &mut FilePiece,
        total: &mut u64,
        turn: &mut Turn<'_>,
    ) -> io::Result<Progress> {
        match self.transport.bare() {
            Some(stream) => send_piece(stream, piece, total, turn),
            None => self.seal_piece(piece, total, turn),
        }
    }

    /// Sends what is held and a piece of memory behind it.
    pub(super) fn send_shared(
        &mut self,
        piece: &mut SharedPiece,
        total: &mut u64,
        turn: &mut Turn<'_>,
    ) -> io::Result<Progress> {
        while !piece.is_empty() {
            if !self.flush_transport()? {
                return Ok(Progress::Blocked);
            }
            if turn.bytes >= FILE_TURN {
                return Ok(Progress::Again);
            }
            let mut front = std::mem::take(&mut self.held);
            let taken = self.send_behind(&front, piece, FILE_TURN - turn.bytes)?;
            front.remove_front(taken.front);
            self.held = front;
            *total += taken.content;
            turn.bytes += taken.content;
            if !taken.is_all {
                return Ok(Progress::Blocked);
            }
        }
        Ok(if self.send_held(false)? { Progress::Done } else { Progress::Blocked })
    }

    /// Sends the batch and what comes first of a piece of memory behind it. What the socket refuses of the batch is held; `false`
    /// where it refuses anything.
    pub(super) fn start_shared(&mut self, pieces: &mut Pieces, total: &mut u64) -> io::Result<bool> {
        let Some(Piece::Shared(piece)) = pieces.now() else { return Ok(true) };
        let mut front = std::mem::take(&mut *self.batch);
        let taken = self.send_behind(&front, piece, FILE_TURN);
        if let Ok(taken) = &taken {
            self.held.extend_from_slice(&front[taken.front..]);
        }
        front.clear();
        *self.batch = front; // the memory is the worker's
        let taken = taken?;
        *total += taken.content;
        self.window = self.window.wrapping_add(taken.content as u32);
        self.is_blocked = !taken.is_all;
        Ok(taken.is_all)
    }

    /// Sends `front` and at most `most` bytes of a piece of memory: in one call, or in two where the kernel can be given the
    /// pages that it lies in.
    fn send_behind(&mut self, front: &[u8], piece: &mut SharedPiece, most: u64) -> io::Result<Taken> {
        if let Some(stream) = self.transport.bare()
            && let Some(run) = piece.file_run(LENDABLE.min(most))
        {
            let taken = send_run(stream, front, run, most)?;
            self.window = self.window.wrapping_add(taken.front as u32);
            piece.advance(taken.content);
            return Ok(taken);
        }
        let transport = &mut self.transport;
        let (sent, asked) = piece.with_slices(front, most, |slices| {
            let asked = slices.iter().map(|slice| slice.len()).sum::<usize>();
            transport.send_all(slices, false).map(|sent| (sent, asked))
        })?;
        let front = sent.min(front.len());
        let content = (sent - front) as u64;
        self.window = self.window.wrapping_add(front as u32);
        piece.advance(content);
        Ok(Taken { front, content, is_all: sent == asked })
    }

    /// What [`send_piece`] does, where the kernel cannot: what is held and a piece of the file behind it are
    /// read into the lent buffer, sealed and sent together.
    fn seal_piece(
        &mut self,
        piece: &mut FilePiece,
        total: &mut u64,
        turn: &mut Turn<'_>,
    ) -> io::Result<Progress> {
        runtime::with_scratch(|buffer| {
            while piece.offset < piece.end {
                if !self.flush_transport()? {
                    return Ok(Progress::Blocked);
                }
                if turn.bytes >= FILE_TURN {
                    return Ok(Progress::Again);
                }
                let waker = turn.key.map(runtime::waker);
                let Poll::Ready(warm) = piece.poll_warm(waker.as_ref()) else { return Ok(Progress::Waiting) };
                let warm = warm.map_err(|error| cut(turn, error))?;
                let burst = self.transport.burst().min(buffer.len());
                if self.held.len() >= burst {
                    if !self.send_held(true)? {
                        return Ok(Progress::Blocked);
                    }
                    continue;
                }
                let front = self.held.len();
                let room = burst - front;
                let wanted = (warm - piece.offset).min(room as u64) as usize;
                buffer[..front].copy_from_slice(&self.held);
                let place = &mut buffer[front..front + wanted];
                let read = file::read_at(piece.file.as_fd(), place, piece.offset, file::Patience::Wait);
                let count = match read {
                    Ok(0) => return Err(cut(turn, io::ErrorKind::UnexpectedEof.into())),
                    Ok(count) => count,
                    Err(error) => return Err(cut(turn, error)),
                };
                self.held = Backlog::new();
                piece.offset += count as u64;
                *total += count as u64;
                turn.bytes += count as u64;
                let more = piece.offset < piece.end;
                let sent = self.transport.send(&buffer[..front + count], more)?;
                self.held.extend_from_slice(&buffer[sent..front + count]);
            }
            Ok(if self.send_held(false)? { Progress::Done } else { Progress::Blocked })
        })
    }
}
