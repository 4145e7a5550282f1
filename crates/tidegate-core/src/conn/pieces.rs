//! Pieces of files on their way to the client: by `sendfile(2)`, or read, sealed and sent where there is TLS.

use super::Connection;
use super::backlog::Backlog;
use super::send::{FILE_TURN, Progress};
use crate::log;
use crate::response::FilePiece;
use std::io;
use std::os::fd::AsFd;
use std::task::Poll;
use tidegate_io::socket::Stream;
use tidegate_io::{Key, file, runtime};

/// What a connection does in one turn.
pub(super) struct Turn<'o> {
    /// Bytes of files.
    pub(super) bytes: u64,
    /// Who is woken when a disk has answered.
    pub(super) key: Option<Key>,
    /// See [`Output`].
    pub(super) is_cut: &'o mut bool,
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
                // Full, or interrupted, which `sendfile` does not tell. Asking costs a fifth of another one, which would get
                // pages of the file before it finds that there is no room for them.
                if sent < count && !stream.has_room() {
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
