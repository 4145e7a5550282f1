//! Content that is sent by what a bandwidth allows: piece by piece, each when its time has come. Not on the way of any other
//! answer. Streams are in `stream`, HTTP/2 has its own.

use super::Connection;
use super::output::{Piece, Source};
use super::pieces::Turn;
use super::send::{FILE_TURN, Output, Progress};
use std::io;
use std::task::Poll;
use tidegate_io::{Key, runtime, socket};

impl Connection {
    /// Moves messages, files and parts, as far as they may be sent now.
    pub(super) fn advance_paced(&mut self, output: &mut Output, key: Key) -> io::Result<Progress> {
        let waker = runtime::waker(key);
        let mut moved = 0;
        loop {
            if !self.send_held(false)? {
                return Ok(Progress::Blocked);
            }
            let Source::Pieces(pieces) = &mut output.source else {
                // What comes next on the connection may be as fast as it will.
                if output.ends_spreading() {
                    socket::bound_pace(self.fd(), None);
                }
                return Ok(Progress::Done);
            };
            if pieces.now().is_none() {
                output.source = Source::None;
                continue;
            }
            if moved >= FILE_TURN {
                return Ok(Progress::Again);
            }
            let Poll::Ready(room) = output.poll_pace(&waker) else { return Ok(Progress::Waiting) };
            if let Some(rate) = output.spread() {
                socket::bound_pace(self.fd(), Some(rate));
            }
            let before = output.sent;
            let progress = self.send_some(output, room, key);
            let sent = output.sent - before;
            output.left = output.left.map(|left| left.saturating_sub(sent));
            output.spend(sent);
            self.window = self.window.wrapping_add(sent as u32);
            moved += sent;
            match progress? {
                Progress::Done => {}
                progress => {
                    output.interrupt();
                    return Ok(progress);
                }
            }
        }
    }

    /// Sends so many bytes of the piece whose turn it is. `Done`: they are with the kernel, or the piece has ended.
    fn send_some(&mut self, output: &mut Output, room: u64, key: Key) -> io::Result<Progress> {
        let Source::Pieces(pieces) = &mut output.source else { return Ok(Progress::Done) };
        let limit = usize::try_from(room).unwrap_or(usize::MAX);
        let (sent, is_all, is_over) = match pieces.now() {
            None => return Ok(Progress::Done),
            Some(Piece::Message(message, at)) => self.send_from(message.encoded().body(), at, limit)?,
            Some(Piece::Bytes(bytes, at)) => self.send_from(bytes, at, limit)?,
            Some(Piece::Shared(piece)) => {
                let (sent, is_all, _) = self.send_from(piece.run(), &mut 0, limit)?;
                piece.advance(sent as u64);
                (sent, is_all, piece.is_empty())
            }
            Some(Piece::File(piece)) => {
                let end = piece.end;
                piece.end = end.min(piece.offset.saturating_add(room));
                let mut turn = Turn { bytes: 0, key: Some(key), is_cut: &mut output.is_cut };
                let progress = self.send_file(piece, &mut output.sent, &mut turn);
                piece.end = end;
                if piece.offset >= end {
                    pieces.next();
                }
                return progress;
            }
        };
        output.sent += sent as u64;
        if is_over {
            pieces.next();
        }
        Ok(if is_all { Progress::Done } else { Progress::Blocked })
    }

    /// Sends at most so many of these bytes: how many, whether that is all that was to be sent, and all there is.
    fn send_from(&mut self, bytes: &[u8], at: &mut usize, limit: usize) -> io::Result<(usize, bool, bool)> {
        let rest = bytes.get(*at..).unwrap_or_default();
        let some = &rest[..rest.len().min(limit)];
        let sent = self.transport.send(some, false)?;
        *at += sent;
        Ok((sent, sent == some.len(), sent == rest.len()))
    }
}
