//! What carries a connection: a bare socket, or TLS on one. Protocols above it need not know which.
//!
//! Two things are different with TLS, and the callers mind them: what has been taken by [`Transport::send`]
//! may still wait here as ciphertext ([`Transport::has_pending`]), and the kernel cannot send a file.

use crate::phase::Engine;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tidegate_io::socket::{Received, Stream};
use tidegate_tls::{Handshake, Session, SessionError};

/// How a connection begins, as its listener has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// With a request.
    Plain,
    /// With a TLS handshake.
    Tls,
}

/// A connected socket and what is spoken on it below HTTP.
pub(super) struct Transport {
    stream: Stream,
    session: Option<Box<Session>>,
}

impl Transport {
    #[inline]
    pub(super) fn new(stream: Stream, opening: Opening) -> Transport {
        let session = match opening {
            Opening::Plain => None,
            Opening::Tls => Some(Box::new(Session::new())),
        };
        Transport { stream, session }
    }

    #[inline]
    pub(super) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    #[inline]
    pub(super) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.handshake().is_none())
    }

    /// What a TLS handshake has agreed upon.
    #[inline]
    pub(super) fn handshake(&self) -> Option<&Arc<Handshake>> {
        self.session.as_ref().and_then(|session| session.handshake())
    }

    /// Whether what was received last may have been played again by somebody (RFC 8470).
    #[inline]
    pub(super) fn is_early(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_early())
    }

    /// One read. With TLS the count may be 0 although something was read.
    #[inline]
    pub(super) fn recv(
        &mut self,
        buffer: &mut [u8],
        engine: &Engine,
        listener: u16,
    ) -> Result<Received, SessionError> {
        match &mut self.session {
            None => Ok(self.stream.recv(buffer)?),
            Some(session) => {
                session.receive(&self.stream, buffer, &mut |hello| engine.terms(usize::from(listener), hello))
            }
        }
    }

    /// A read of which nothing is wanted but that it has been made.
    pub(super) fn discard(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        self.stream.recv(buffer)
    }

    /// Sends, and returns how much was taken: less than all only when the socket is full.
    #[inline]
    pub(super) fn send(&mut self, data: &[u8], more: bool) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.send(data, more),
            Some(session) => session.send(&self.stream, data, more),
        }
    }

    /// Sends the pieces one behind the other.
    #[inline]
    pub(super) fn send_all(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.send_all(pieces, more) };
        let mut taken = 0;
        for (at, piece) in pieces.iter().enumerate() {
            let sent = session.send(&self.stream, piece, more || at + 1 < pieces.len())?;
            taken += sent;
            if sent < piece.len() {
                break;
            }
        }
        Ok(taken)
    }

    /// Whether ciphertext waits, be it for the socket or for company.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_pending())
    }

    /// Whether ciphertext waits for the socket.
    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_blocked())
    }

    /// Sends what waits; how much of it is gone, and whether that is all.
    #[inline]
    pub(super) fn flush(&mut self) -> io::Result<(usize, bool)> {
        let Some(session) = &mut self.session else { return Ok((0, true)) };
        let before = session.pending();
        let is_done = session.flush(&self.stream)?;
        Ok((before - session.pending(), is_done))
    }

    /// Bytes that are best given to [`Transport::send`] in one piece.
    pub(super) fn burst(&self) -> usize {
        self.session.as_ref().map_or(usize::MAX, |session| session.burst())
    }

    /// The socket, for what the kernel sends by itself; `None` where it must not.
    #[inline]
    pub(super) fn bare(&self) -> Option<&Stream> {
        if self.session.is_none() { Some(&self.stream) } else { None }
    }

    /// The client does not speak TLS: goes on without. What it has sent so far is lost.
    pub(super) fn fall_back(&mut self) -> Vec<u8> {
        self.session.take().map(|mut session| session.take_received()).unwrap_or_default()
    }

    /// Tells the client that nothing more comes.
    pub(super) fn finish_sending(&mut self) -> io::Result<()> {
        self.say_goodbye();
        self.stream.finish_sending()
    }

    /// The TLS way to say that nothing more comes; nothing on a bare socket, whose closing says it.
    #[inline]
    pub(super) fn say_goodbye(&mut self) {
        if let Some(session) = &mut self.session {
            let _ = session.finish_sending(&self.stream);
        }
    }

    /// Makes closing send a reset.
    pub(super) fn reset_on_close(&mut self) {
        self.session = None; // it has nothing to say any more
        self.stream.reset_on_close();
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
