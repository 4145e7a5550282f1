//! What carries a connection: a bare socket, or TLS on one, behind a header of the PROXY protocol where the
//! listener has it so. Protocols above need not know which.
//!
//! Two things are different with TLS, and the callers mind them: what has been taken by [`Transport::send`]
//! may still wait here as ciphertext ([`Transport::has_pending`]), and the kernel cannot send a file.

use crate::engine::Engine;
use crate::opening::Opening;
use crate::remote::UNNAMED;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use thiserror::Error;
use tidegate_io::socket::{Peer, Received, Stream};
use tidegate_stats::ListenerNumber;
use tidegate_tls::{Handshake, Hello, Session, SessionError};
use tidegate_wire::proxy_protocol::{self, Header, HeaderError};

/// Why a connection cannot go on; always the client's doing, or the network's.
#[derive(Debug, Error)]
pub(super) enum TransportError {
    #[error(transparent)]
    Tls(#[from] SessionError),
    #[error(transparent)]
    Proxy(#[from] HeaderError),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// A connected socket and what is spoken on it below HTTP.
pub(super) struct Transport {
    stream: Stream,
    layer: Layer,
    resets_on_close: bool,
}

enum Layer {
    Bare,
    Tls(Box<Session>),
    Proxy(Box<Prelude>),
}

/// A header of the PROXY protocol that is not complete.
struct Prelude {
    received: Vec<u8>,
    then_tls: bool,
}

impl Transport {
    #[inline]
    pub(super) fn new(stream: Stream, opening: Opening) -> Transport {
        let layer = match opening {
            Opening::Plain => Layer::Bare,
            Opening::Tls => Layer::Tls(Box::new(Session::new())),
            Opening::Proxy { then_tls } => Layer::Proxy(Box::new(Prelude { received: Vec::new(), then_tls })),
        };
        Transport { stream, layer, resets_on_close: false }
    }

    #[inline]
    fn session(&self) -> Option<&Session> {
        if let Layer::Tls(session) = &self.layer { Some(session) } else { None }
    }

    #[inline]
    pub(super) fn is_tls(&self) -> bool {
        matches!(self.layer, Layer::Tls(_))
    }

    /// Whether there is nothing between the protocol and the socket.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.layer, Layer::Bare)
    }

    /// Whether what comes before the first request is not over.
    #[inline]
    pub(super) fn is_opening(&self) -> bool {
        match &self.layer {
            Layer::Bare => false,
            Layer::Tls(session) => session.handshake().is_none(),
            Layer::Proxy(_) => true,
        }
    }

    /// What a TLS handshake has agreed upon.
    #[inline]
    pub(super) fn handshake(&self) -> Option<&Arc<Handshake>> {
        self.session().and_then(Session::handshake)
    }

    /// Whether what was received last may have been played again by somebody (RFC 8470).
    #[inline]
    pub(super) fn is_early(&self) -> bool {
        self.session().is_some_and(Session::is_early)
    }

    /// One read. The count may be 0 although something was read. `client` is set where a header says who the
    /// client is.
    #[inline]
    pub(super) fn recv(
        &mut self,
        buffer: &mut [u8],
        engine: &Engine,
        listener: ListenerNumber,
        client: &mut Peer,
    ) -> Result<Received, TransportError> {
        match &mut self.layer {
            Layer::Bare => Ok(self.stream.recv(buffer)?),
            Layer::Tls(session) => {
                let stream = &self.stream;
                let mut choose =
                    |hello: &Hello| engine.terms(engine.place_of(listener), hello, || stream.local_ip());
                Ok(session.receive(&self.stream, buffer, &mut choose)?)
            }
            Layer::Proxy(_) => self.recv_header(buffer, engine, listener, client),
        }
    }

    #[cold]
    fn recv_header(
        &mut self,
        buffer: &mut [u8],
        engine: &Engine,
        listener: ListenerNumber,
        client: &mut Peer,
    ) -> Result<Received, TransportError> {
        let Layer::Proxy(prelude) = &mut self.layer else { return Ok(Received::WouldBlock) };
        let (count, drained) = match self.stream.recv(buffer)? {
            Received::Bytes { count, drained } => (count, drained),
            Received::End => return Err(HeaderError::Missing.into()),
            Received::WouldBlock => return Ok(Received::WouldBlock),
        };
        prelude.received.extend_from_slice(&buffer[..count]);
        let Some((header, length)) = proxy_protocol::parse(&prelude.received)? else {
            return Ok(Received::Bytes { count: 0, drained });
        };
        let mut local = self.stream.local_ip();
        match header {
            Header::Proxied { source, destination } => {
                *client = Peer::Tcp(source);
                local = Some(destination.ip());
            }
            Header::Unnamed => *client = UNNAMED,
            Header::Local => {}
        }
        let rest = prelude.received.split_off(length);
        if prelude.then_tls {
            let mut session = Session::new();
            session.give_received(&rest);
            self.layer = Layer::Tls(Box::new(session));
            let Layer::Tls(session) = &mut self.layer else { return Ok(Received::WouldBlock) };
            let mut choose = |hello: &Hello| engine.terms(engine.place_of(listener), hello, || local);
            return Ok(session.receive_given(&self.stream, buffer, drained, &mut choose)?);
        }
        self.layer = Layer::Bare;
        // No more than one read brought, and the header before it, which is shorter than the buffer.
        let place = buffer.get_mut(..rest.len()).ok_or(HeaderError::TooLong)?;
        place.copy_from_slice(&rest);
        Ok(Received::Bytes { count: rest.len(), drained })
    }

    /// A read of which nothing is wanted but that it has been made.
    pub(super) fn discard(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        self.stream.recv(buffer)
    }

    /// Sends, and returns how much was taken: less than all only when the socket is full.
    #[inline]
    pub(super) fn send(&mut self, data: &[u8], more: bool) -> io::Result<usize> {
        match &mut self.layer {
            Layer::Tls(session) => session.send(&self.stream, data, more),
            Layer::Bare | Layer::Proxy(_) => self.stream.send(data, more),
        }
    }

    /// Sends the pieces one behind the other.
    #[inline]
    pub(super) fn send_all(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let Layer::Tls(session) = &mut self.layer else { return self.stream.send_all(pieces, more) };
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
        self.session().is_some_and(Session::has_pending)
    }

    /// Bytes of ciphertext that wait.
    pub(super) fn pending(&self) -> usize {
        self.session().map_or(0, Session::pending)
    }

    /// Whether ciphertext waits for the socket.
    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        self.session().is_some_and(Session::is_blocked)
    }

    /// Sends what waits; how much of it is gone, and whether that is all.
    #[inline]
    pub(super) fn flush(&mut self) -> io::Result<(usize, bool)> {
        let Layer::Tls(session) = &mut self.layer else { return Ok((0, true)) };
        let before = session.pending();
        let is_done = session.flush(&self.stream)?;
        Ok((before - session.pending(), is_done))
    }

    /// Bytes that are best given to [`Transport::send`] in one piece.
    pub(super) fn burst(&self) -> usize {
        self.session().map_or(usize::MAX, Session::burst)
    }

    /// The socket, for what the kernel sends by itself; `None` where it must not.
    #[inline]
    pub(super) fn bare(&self) -> Option<&Stream> {
        if self.is_tls() { None } else { Some(&self.stream) }
    }

    /// The socket, to be asked about and nothing else.
    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Bytes of its own buffers.
    pub(super) fn owned(&self) -> usize {
        match &self.layer {
            Layer::Bare => 0,
            Layer::Tls(session) => session.owned(),
            Layer::Proxy(prelude) => prelude.received.capacity(),
        }
    }

    /// The client does not speak TLS: goes on without. What it has sent so far is lost.
    pub(super) fn fall_back(&mut self) -> Vec<u8> {
        match std::mem::replace(&mut self.layer, Layer::Bare) {
            Layer::Tls(mut session) => session.take_received(),
            Layer::Bare | Layer::Proxy(_) => Vec::new(),
        }
    }

    /// Tells the client that nothing more comes.
    pub(super) fn finish_sending(&mut self) -> io::Result<()> {
        self.say_goodbye();
        self.stream.finish_sending()
    }

    /// The TLS way to say that nothing more comes; nothing on a bare socket, whose closing says it.
    #[inline]
    pub(super) fn say_goodbye(&mut self) {
        if let Layer::Tls(session) = &mut self.layer {
            let _ = session.finish_sending(&self.stream);
        }
    }

    /// Makes closing send a reset.
    pub(super) fn reset_on_close(&mut self) {
        self.layer = Layer::Bare; // a session has nothing to say any more
        self.resets_on_close = true;
        self.stream.reset_on_close();
    }

    /// Closing it sends a reset: nothing may be sent any more.
    pub(super) fn resets_on_close(&self) -> bool {
        self.resets_on_close
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
