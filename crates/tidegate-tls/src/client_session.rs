//! One TLS connection that this program has opened: plaintext in, bytes of the socket out, and back.
//!
//! It owns no socket: whoever does lends the calls that read and write it. So the gateway can use it from a
//! future and the load generator from its loop. Like a [`Session`](crate::Session) an idle one holds no buffer.

use crate::connector::{Connector, ConnectorError};
use crate::records::{self, BURST, RECORD, RecordError, Records, SLACK};
use crate::session::odd_certificate;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, HandshakeKind};
use std::cell::Cell;
use std::fmt;
use std::io;
use thiserror::Error;
use tidegate_io::socket::Received;

/// The longest message of a handshake, which is a chain of certificates.
const MESSAGE_MAX: usize = 64 << 10;
/// A buffer of this size is worked in; bytes for a smaller one are copied.
pub const CLIENT_BUFFER: usize = SLACK + MESSAGE_MAX + 2 * RECORD;

thread_local! {
    static OPENED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Why a connection over TLS has failed; most often the server is at fault.
#[derive(Debug, Error)]
pub enum ClientSessionError {
    /// Its certificate is not believed.
    #[error("its certificate is not trusted: {0}")]
    Untrusted(String),
    /// It has refused us.
    #[error("it has refused the TLS connection: {0:?}")]
    Refused(AlertDescription),
    /// It speaks something else.
    #[error("it does not speak TLS")]
    NotTls,
    /// It broke the protocol, or cannot do what we ask.
    #[error("TLS is not possible with it: {0}")]
    Misbehaved(String),
    /// It left before the handshake was complete.
    #[error("it closed the connection during the TLS handshake")]
    Left,
    /// The socket failed.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// The connector cannot be used for it.
    #[error(transparent)]
    Connector(#[from] ConnectorError),
}

impl From<ClientSessionError> for io::Error {
    fn from(error: ClientSessionError) -> io::Error {
        match error {
            ClientSessionError::Socket(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        }
    }
}

/// What was agreed upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite.
    pub suite: &'static str,
    /// The key exchange; `-` where a resumption did without.
    pub group: &'static str,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
}

impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.version, self.suite, self.group)
    }
}

/// A TLS connection, client side.
pub struct ClientSession {
    connection: Box<UnbufferedClientConnection>,
    records: Records,
    /// Plaintext that its reader had no room for.
    plain: Vec<u8>,
    has_begun: bool,
}

impl ClientSession {
    /// A connection to the server of this name, of which nothing has been sent.
    ///
    /// # Errors
    /// Rustls does not begin a connection with these settings.
    pub fn new(
        connector: &Connector,
        name: ServerName<'static>,
    ) -> Result<ClientSession, ClientSessionError> {
        Ok(ClientSession {
            connection: Box::new(connector.begin(name)?),
            records: Records::default(),
            plain: Vec::new(),
            has_begun: false,
        })
    }

    /// Whether requests must wait.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        !self.has_begun || self.connection.is_handshaking()
    }

    /// Whether ciphertext waits for the socket.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.records.outgoing.is_empty()
    }

    /// Whether plaintext waits for a reader.
    #[inline]
    pub fn has_plaintext(&self) -> bool {
        !self.plain.is_empty()
    }

    /// What was agreed upon; `None` before the end of the handshake.
    pub fn agreed(&self) -> Option<Agreed> {
        if self.is_handshaking() {
            return None;
        }
        Some(Agreed {
            version: records::version_name(&self.connection),
            suite: records::suite_name(&self.connection),
            group: records::group_name(&self.connection),
            is_resumed: self.connection.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// The protocol that the server has chosen by ALPN.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Goes on with the handshake as far as what was received allows, and sends what there is to say. `write`
    /// writes to the socket and returns how much it took, 0 where that is full.
    ///
    /// # Errors
    /// The first message cannot be made, or `write` fails.
    pub fn advance(
        &mut self,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> Result<(), ClientSessionError> {
        if !self.has_begun {
            self.has_begun = true;
            self.process(&mut [0; SLACK], SLACK)?;
        }
        Ok(self.flush(write).map(drop)?)
    }

    /// One read. The count may be 0 although something was read: then there may be something to
    /// [`flush`](ClientSession::flush).
    ///
    /// # Errors
    /// `read` fails, or the server leaves during the handshake, does not speak TLS or breaks its rules, is
    /// not trusted, or refuses.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<Received>,
    ) -> Result<Received, ClientSessionError> {
        if !self.plain.is_empty() {
            return Ok(self.give(buffer));
        }
        if self.records.has_peer_closed {
            return Ok(Received::End);
        }
        if buffer.len() >= CLIENT_BUFFER {
            return self.receive_into(buffer, read);
        }
        let mut opened = OPENED.take();
        opened.resize(CLIENT_BUFFER, 0);
        let received = self.receive_into(&mut opened, read);
        let given = match received {
            Ok(Received::Bytes { count, drained }) => {
                let (now, later) = opened[..count].split_at(count.min(buffer.len()));
                buffer[..now.len()].copy_from_slice(now);
                self.plain.extend_from_slice(later);
                Ok(Received::Bytes { count: now.len(), drained: drained && later.is_empty() })
            }
            other => other,
        };
        OPENED.set(opened);
        given
    }

    fn give(&mut self, buffer: &mut [u8]) -> Received {
        let count = self.plain.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.plain[..count]);
        if count == self.plain.len() {
            self.plain = Vec::new();
        } else {
            self.plain.drain(..count);
        }
        Received::Bytes { count, drained: false }
    }

    fn receive_into(
        &mut self,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<Received>,
    ) -> Result<Received, ClientSessionError> {
        let Some(start) = self.records.lay_out(buffer) else {
            return Err(ClientSessionError::Misbehaved("it has sent too long a message".into()));
        };
        let (count, drained) = match read(&mut buffer[start..])? {
            Received::Bytes { count, drained } => (count, drained),
            Received::End if self.is_handshaking() => return Err(ClientSessionError::Left),
            other => return Ok(other),
        };
        if start == SLACK && !matches!(buffer.get(SLACK), None | Some(20..=24)) {
            return Err(ClientSessionError::NotTls);
        }
        let count = self.process(buffer, start + count)?;
        Ok(Received::Bytes { count, drained: drained && !self.records.has_peer_closed })
    }

    /// Works on the ciphertext between `SLACK` and `end`; the bytes of plaintext that it gave.
    fn process(&mut self, buffer: &mut [u8], end: usize) -> Result<usize, ClientSessionError> {
        let opened = self.records.open(&mut *self.connection, &mut None, buffer, end);
        Ok(opened.map_err(fault)?.plain)
    }

    /// Seals and sends. Returns the plaintext taken: less than there is only when the socket is full or the
    /// handshake is not complete. What was taken may still wait here, see [`ClientSession::has_pending`].
    ///
    /// # Errors
    /// `write` fails, or the data cannot be sealed.
    pub fn send(
        &mut self,
        data: &[u8],
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut at = 0;
        while at < data.len() && self.flush(&mut write)? && !self.is_handshaking() {
            let rest = &data[at..];
            let piece = &rest[..rest.len().min(BURST)];
            let (is_taken, _) = self.records.send(&mut *self.connection, piece, RECORD, &mut write)?;
            if !is_taken {
                break;
            }
            at += piece.len();
        }
        Ok(at)
    }

    /// Sends what waits; whether all of it is gone.
    ///
    /// # Errors
    /// `write` fails.
    pub fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        while !self.records.outgoing.is_empty() {
            let sent = write(&self.records.outgoing)?;
            if sent == 0 {
                return Ok(false);
            }
            self.records.sent(sent);
        }
        Ok(true)
    }

    /// Says that nothing more will be sent (RFC 8446 section 6.1). What the socket does not take now goes with
    /// the next [`ClientSession::flush`].
    ///
    /// # Errors
    /// `write` fails.
    pub fn finish_sending(&mut self, write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        self.records.close(&mut *self.connection);
        self.flush(write).map(drop)
    }
}

fn fault(error: RecordError) -> ClientSessionError {
    let error = match error {
        RecordError::Rustls(error) => error,
        error => return ClientSessionError::Misbehaved(error.to_string()),
    };
    match error {
        rustls::Error::InvalidCertificate(why) => ClientSessionError::Untrusted(match why {
            CertificateError::UnknownIssuer => "none of those who are trusted has signed it".into(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "it is not good yet; is the clock right?".into()
            }
            // Webpki's word for one that has signed itself and is not named.
            CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => {
                "it is signed by itself, and not one of those who are trusted".into()
            }
            why => odd_certificate(&why),
        }),
        rustls::Error::AlertReceived(alert) => ClientSessionError::Refused(alert),
        error => ClientSessionError::Misbehaved(error.to_string()),
    }
}
