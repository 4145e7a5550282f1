//! One TLS connection on the buffers of its worker: bytes of the socket in, plaintext out, and back.
//!
//! A session stands where a bare socket would, and blocks as little. Between two calls it owns bytes only
//! when stuck: a record that has not come whole, ciphertext that a full socket refused. An idle one holds
//! neither. Everything else happens in the buffer that the worker lends (rustls' unbuffered interface).
//!
//! Who calls must heed [`Session::has_pending`]: plaintext that has been taken may still wait here as
//! ciphertext, and then the socket's writable edge must not be ignored.

use crate::client::ClientIdentity;
use crate::early_skip::EarlySkip;
use crate::hello::{self, Hello, Peeked};
use crate::records::{self, BURST, RecordError, Records, SLACK, SMALL_RECORD};
use crate::terms::{EARLY_DATA, SiteConfig};
use rustls::server::UnbufferedServerConnection;
use rustls::{AlertDescription, CertificateError, HandshakeKind, PeerIncompatible};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Weak};
use thiserror::Error;
use tidegate_io::socket::{Received, Stream};

pub use crate::records::RECORD;

/// Until this much is sent, records are small: the first is then readable before the second flight.
const SMALL_UNTIL: usize = 32 << 10;
/// Ciphertext of the handshake up to this leaves together with the first answer.
const JOINED: usize = 4 << 10;
/// A lent buffer holds at least this much.
pub const BUFFER_MIN: usize = SLACK + hello::HELLO_MAX + 4096;

/// What an open session takes, bytes.
const OPEN: usize = 4 << 10;

/// Handshakes that are remembered to be shared.
const RECENT: usize = 16;

thread_local! {
    static SHARED: RefCell<VecDeque<Weak<Handshake>>> = const { RefCell::new(VecDeque::new()) };
}

/// Why a session has failed.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The client speaks something else; its first byte begins no record.
    #[error("the client does not speak TLS")]
    NotTls,
    /// No site answers for the name that the client asked for.
    #[error("the client asked for a name that no site here has")]
    UnknownName,
    /// There is no certificate, or none yet.
    #[error("there is no certificate for the name that the client asked for")]
    NoCertificate,
    /// No version, suite, group or protocol in common.
    #[error("the client and the server have no {0} in common")]
    NothingInCommon(&'static str),
    /// The client's certificate is missing, or nobody known vouches for it.
    #[error("the client's certificate: {0}")]
    ClientCertificate(String),
    /// The client has refused us, as where it does not trust the certificate.
    #[error("the client has refused the connection: {0:?}")]
    Refused(AlertDescription),
    /// The client broke the protocol.
    #[error("the client broke the protocol: {0}")]
    Misbehaved(String),
    /// The client left before the handshake was complete.
    #[error("the client left during the handshake")]
    Left,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

/// Whether a client came back to an earlier session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumption {
    /// It did not try.
    Full,
    /// It did, and was spared the certificate.
    Resumed,
    /// It tried, with a ticket that is too old, of another site or not ours.
    Refused,
}

/// What a handshake has agreed upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite, by its name.
    pub suite: &'static str,
    /// The key exchange, by its name; `-` where a resumption did without.
    pub group: &'static str,
    /// The name that the client asked for, lower case.
    pub server_name: Option<Box<str>>,
    /// Whether it was resumed.
    pub resumption: Resumption,
    /// The protocol chosen by ALPN.
    pub protocol: Option<&'static [u8]>,
    /// Who the client is, where it was asked and has shown it.
    pub client: Option<Box<ClientIdentity>>,
    /// The terms that it was made under; see [`SiteConfig::scope`].
    pub site: Arc<SiteConfig>,
}

impl Handshake {
    /// Whether its version is 1.3; otherwise it is 1.2.
    #[inline]
    pub fn is_tls13(&self) -> bool {
        self.version == "TLSv1.3"
    }

    /// Whether the certificate that the client has shown has expired since, at `now`: the wall clock, seconds.
    #[inline]
    pub fn has_expired(&self, now: i64) -> bool {
        self.client.as_ref().is_some_and(|client| now > client.not_after)
    }
}

impl PartialEq for SiteConfig {
    fn eq(&self, other: &Self) -> bool {
        self.scope() == other.scope()
    }
}

impl Eq for SiteConfig {}

/// A TLS connection, server side.
#[derive(Default)]
pub struct Session {
    state: State,
    records: Records,
    /// The socket has refused some of what waits.
    is_blocked: bool,
    is_early: bool,
    /// Plaintext sent, up to where it matters.
    sent: usize,
    /// Plaintext that is sealed at once: little for a client that reads slowly.
    burst: usize,
    handshake: Option<Arc<Handshake>>,
}

#[derive(Default)]
enum State {
    /// Nothing is known yet.
    #[default]
    Hello,
    Open(Box<Open>),
    Failed,
}

struct Open {
    connection: UnbufferedServerConnection,
    /// Until the handshake is complete.
    hello: Option<Box<(Hello, Arc<SiteConfig>)>>,
    /// While the client may send early data that is not taken.
    skip: Option<Box<EarlySkip>>,
}

/// Gives the terms for what a client has asked for; `None` where nobody answers.
pub type Choose<'a> = &'a mut dyn FnMut(&Hello) -> Option<Arc<SiteConfig>>;

impl Session {
    /// A session of which nothing has been received.
    pub fn new() -> Session {
        Session { burst: BURST, ..Session::default() }
    }

    /// What was agreed upon, once the handshake is complete.
    pub fn handshake(&self) -> Option<&Arc<Handshake>> {
        self.handshake.as_ref()
    }

    /// Whether what was received last may be a recording that somebody plays again (0-RTT).
    pub fn is_early(&self) -> bool {
        self.is_early
    }

    /// Whether ciphertext waits for the socket.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.records.outgoing.is_empty()
    }

    /// Whether the socket has refused some of it.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Bytes of ciphertext that wait.
    pub fn pending(&self) -> usize {
        self.records.outgoing.len()
    }

    /// Bytes that it owns: those of its buffers, which are none unless it is stuck, and about what rustls needs.
    pub fn owned(&self) -> usize {
        let state = match &self.state {
            State::Hello | State::Failed => 0,
            // With the transcript and the keys of a handshake (see the bench of idle connections).
            State::Open(open) if open.hello.is_some() => 4 * OPEN,
            State::Open(_) => OPEN,
        };
        state + self.records.incoming.capacity() + self.records.outgoing.capacity()
    }

    /// Plaintext that is sealed for one write: what is given to [`Session::send`] in such pieces is always
    /// taken whole, unless ciphertext waits already.
    pub fn burst(&self) -> usize {
        self.burst.max(SMALL_RECORD)
    }

    /// What has been received, where the client turned out not to speak TLS.
    pub fn take_received(&mut self) -> Vec<u8> {
        mem::take(&mut self.records.incoming)
    }

    /// Takes bytes that were read before it was known that this is a TLS connection.
    pub fn give_received(&mut self, bytes: &[u8]) {
        self.records.incoming.extend_from_slice(bytes);
    }

    /// One read of the socket. Plaintext is put at the front of `buffer`, which holds [`BUFFER_MIN`] or more;
    /// there may be none although something was read. `choose` is asked once.
    ///
    /// # Errors
    /// The socket fails, or the client does not speak TLS, breaks its rules, or leaves during the handshake.
    /// Also where the handshake comes to nothing, see [`SessionError`].
    pub fn receive(
        &mut self,
        stream: &Stream,
        buffer: &mut [u8],
        choose: Choose<'_>,
    ) -> Result<Received, SessionError> {
        if self.records.has_peer_closed {
            return Ok(Received::End);
        }
        let Some(start) = self.records.lay_out(buffer) else {
            return Err(SessionError::Misbehaved(RecordError::TooLarge.to_string()));
        };
        let (count, drained) = match stream.recv(&mut buffer[start..])? {
            Received::Bytes { count, drained } => (count, drained),
            Received::WouldBlock => return Ok(Received::WouldBlock),
            Received::End if self.handshake.is_none() => return Err(SessionError::Left),
            Received::End => return Ok(Received::End),
        };
        self.take(stream, buffer, start + count, drained, choose)
    }

    /// What was received before this was known to be TLS, as if it had just been read.
    ///
    /// # Errors
    /// What was received does not fit into `buffer`, or it fails as [`Session::receive`] does.
    pub fn receive_given(
        &mut self,
        stream: &Stream,
        buffer: &mut [u8],
        drained: bool,
        choose: Choose<'_>,
    ) -> Result<Received, SessionError> {
        let given = mem::take(&mut self.records.incoming);
        let end = SLACK + given.len();
        let Some(place) = buffer.get_mut(SLACK..end) else {
            return Err(SessionError::Misbehaved("too much before the handshake".into()));
        };
        place.copy_from_slice(&given);
        if given.is_empty() {
            return Ok(Received::Bytes { count: 0, drained });
        }
        self.take(stream, buffer, end, drained, choose)
    }

    /// Works on the ciphertext between `SLACK` and `end`.
    fn take(
        &mut self,
        stream: &Stream,
        buffer: &mut [u8],
        end: usize,
        drained: bool,
        choose: Choose<'_>,
    ) -> Result<Received, SessionError> {
        if matches!(self.state, State::Hello) {
            match hello::peek(&buffer[SLACK..end]) {
                Peeked::Incomplete => {
                    self.records.incoming.clear();
                    self.records.incoming.extend_from_slice(&buffer[SLACK..end]);
                    return Ok(Received::Bytes { count: 0, drained });
                }
                Peeked::Plain => {
                    self.state = State::Failed;
                    self.records.incoming.clear();
                    self.records.incoming.extend_from_slice(&buffer[SLACK..end]);
                    return Err(SessionError::NotTls);
                }
                Peeked::Hello(hello) => {
                    if let Err(error) = self.open(hello, choose) {
                        let _ = self.flush(stream);
                        return Err(error);
                    }
                }
            }
        }
        match self.process(buffer, end) {
            Ok(count) => {
                if count == 0 {
                    self.flush(stream)?;
                }
                let drained = drained && !self.records.has_peer_closed;
                Ok(Received::Bytes { count, drained })
            }
            Err(error) => {
                let _ = self.flush(stream); // the alert says why
                self.state = State::Failed;
                Err(error)
            }
        }
    }

    fn open(&mut self, hello: Hello, choose: Choose<'_>) -> Result<(), SessionError> {
        let Some(site) = choose(&hello) else {
            self.state = State::Failed;
            self.records.outgoing.extend_from_slice(&UNRECOGNISED_NAME);
            return Err(SessionError::UnknownName);
        };
        // Rustls would miss what came with TLS 1.2 first, and say that.
        if let Some([major, minor]) = hello.outdated_version {
            self.state = State::Failed;
            self.records.outgoing.extend_from_slice(&[ALERT, major, minor, 0, 2, FATAL, PROTOCOL_VERSION]);
            return Err(SessionError::NothingInCommon("version"));
        }
        if !site.shares_a_protocol(&hello) {
            self.state = State::Failed;
            self.records.outgoing.extend_from_slice(&NO_APPLICATION_PROTOCOL);
            return Err(SessionError::NothingInCommon("protocol"));
        }
        let connection = UnbufferedServerConnection::new(site.config_for(&hello).clone())
            .map_err(|error| SessionError::Misbehaved(error.to_string()))?;
        let skip = hello.announces_early_data.then(|| Box::new(EarlySkip::new(EARLY_DATA)));
        self.state = State::Open(Box::new(Open { connection, hello: Some(Box::new((hello, site))), skip }));
        Ok(())
    }

    /// Decrypts, and answers what the handshake asks. Returns the bytes of plaintext.
    fn process(&mut self, buffer: &mut [u8], end: usize) -> Result<usize, SessionError> {
        let State::Open(open) = &mut self.state else { return Err(SessionError::Left) };
        let opened = self.records.open(&mut open.connection, &mut open.skip, buffer, end);
        let opened = opened.map_err(|error| fault(error, open.hello.is_some()))?;
        if open.hello.is_some() && !open.connection.is_handshaking() {
            self.handshake = open.complete().map(shared);
            open.skip = None;
        }
        if opened.plain > 0 || self.handshake.is_some() {
            self.is_early = opened.is_early;
        }
        Ok(opened.plain)
    }

    /// Seals and sends. Returns the plaintext taken: less than there is only when the socket is full or the
    /// handshake is not complete. `more` says that more follows at once.
    ///
    /// # Errors
    /// The socket fails, or the data cannot be sealed. `NotConnected` while no hello has been received, and
    /// after the session has failed.
    pub fn send(&mut self, stream: &Stream, data: &[u8], more: bool) -> io::Result<usize> {
        let mut at = 0;
        while at < data.len() {
            if (self.is_blocked || self.records.outgoing.len() > JOINED) && !self.flush(stream)? {
                break;
            }
            let rest = &data[at..];
            let piece = &rest[..rest.len().min(self.burst.max(SMALL_RECORD))];
            let State::Open(open) = &mut self.state else { return Err(io::ErrorKind::NotConnected.into()) };
            let size = if self.sent < SMALL_UNTIL { SMALL_RECORD } else { RECORD };
            let goes_on = more || piece.len() < rest.len();
            let write = |sealed: &[u8]| stream.send(sealed, goes_on);
            let (is_taken, is_blocked) = self.records.send(&mut open.connection, piece, size, write)?;
            if is_blocked {
                self.is_blocked = true;
                self.burst = RECORD; // what is kept for a slow reader stays small
            }
            if !is_taken {
                break; // the handshake comes first
            }
            self.sent = self.sent.saturating_add(piece.len());
            at += piece.len();
            if !self.is_blocked {
                self.burst = (self.burst * 2).min(BURST);
            }
        }
        Ok(at)
    }

    /// Sends what waits; whether all of it is gone.
    ///
    /// # Errors
    /// The socket fails.
    pub fn flush(&mut self, stream: &Stream) -> io::Result<bool> {
        if self.records.outgoing.is_empty() {
            return Ok(true);
        }
        let sent = stream.send(&self.records.outgoing, false)?;
        self.is_blocked = !self.records.sent(sent);
        Ok(!self.is_blocked)
    }

    /// Says that nothing more will be sent (RFC 8446 section 6.1). What the socket does not take now goes with
    /// the next [`Session::flush`].
    ///
    /// # Errors
    /// The socket fails.
    pub fn finish_sending(&mut self, stream: &Stream) -> io::Result<()> {
        if let State::Open(open) = &mut self.state {
            self.records.close(&mut open.connection);
        }
        self.flush(stream).map(drop)
    }
}

/// The type of a record that holds an alert, the level of one that ends the connection, and the alert of RFC 5246 appendix E.1.
const ALERT: u8 = 21;
const FATAL: u8 = 2;
const PROTOCOL_VERSION: u8 = 70;
/// A fatal `unrecognized_name` alert, before any key is known (RFC 6066 section 3).
const UNRECOGNISED_NAME: [u8; 7] = [ALERT, 3, 3, 0, 2, FATAL, 112];
/// A fatal `no_application_protocol` alert, likewise (RFC 7301 section 3.2). Rustls would go on without a protocol, and
/// whoever meant another one would be answered in this (cross-protocol attacks).
const NO_APPLICATION_PROTOCOL: [u8; 7] = [ALERT, 3, 3, 0, 2, FATAL, 120];

impl Open {
    fn complete(&mut self) -> Option<Handshake> {
        let (hello, site) = *self.hello.take()?;
        let connection = &self.connection;
        let resumption = match connection.handshake_kind() {
            Some(HandshakeKind::Resumed) => Resumption::Resumed,
            _ if hello.offers_resumption => Resumption::Refused,
            _ => Resumption::Full,
        };
        Some(Handshake {
            version: records::version_name(connection),
            suite: records::suite_name(connection),
            group: records::group_name(connection),
            server_name: hello.server_name.map(String::into_boxed_str),
            resumption,
            protocol: connection.alpn_protocol().and_then(known_protocol),
            client: ClientIdentity::of(connection.peer_certificates()).map(Box::new),
            site,
        })
    }
}

/// Most clients of a site agree upon the same: they share one description, as long as any of them is there. Who has
/// shown a certificate has one of its own.
fn shared(handshake: Handshake) -> Arc<Handshake> {
    if handshake.client.is_some() {
        return Arc::new(handshake);
    }
    SHARED.with_borrow_mut(|recent| {
        let mut known = recent.iter().filter_map(Weak::upgrade);
        let same = known.find(|known| Arc::ptr_eq(&known.site, &handshake.site) && **known == handshake);
        if let Some(same) = same {
            return same;
        }
        let made = Arc::new(handshake);
        recent.retain(|known| known.strong_count() > 0);
        if recent.len() >= RECENT {
            recent.pop_front();
        }
        recent.push_back(Arc::downgrade(&made));
        made
    })
}

/// The protocols that anything here speaks; a connection need not own the name of its own.
fn known_protocol(name: &[u8]) -> Option<&'static [u8]> {
    const KNOWN: [&[u8]; 3] = [b"http/1.1", b"h2", b"acme-tls/1"];
    KNOWN.into_iter().find(|known| *known == name)
}

/// What is wrong with the certificate of a client, as an operator would say it.
fn wrong_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "no authority of `client-certificates` has signed it".into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".into()
        }
        CertificateError::Revoked => "it has been revoked".into(),
        other => odd_certificate(other),
    }
}

/// What is wrong with a certificate of a peer where that is rare. Webpki has words of its own for some of it.
pub(crate) fn odd_certificate(why: &CertificateError) -> String {
    let CertificateError::Other(inner) = why else { return why.to_string() };
    match inner.to_string() {
        word if word.contains("UnsupportedCertVersion") => {
            "it is of version 1 or 2 of X.509, which nobody takes any more: make one of version 3, such as by `openssl x509 -req \
             -extfile …`"
                .into()
        }
        word if word.contains("CaUsedAsEndEntity") => "it is that of an authority, and not of somebody".into(),
        word => format!("it is not sound ({word})"),
    }
}

/// Whose fault an error of rustls is.
fn fault(error: RecordError, is_handshaking: bool) -> SessionError {
    use rustls::Error as E;
    let error = match error {
        RecordError::Rustls(error) => error,
        error => return SessionError::Misbehaved(error.to_string()),
    };
    match error {
        E::NoCertificatesPresented => SessionError::ClientCertificate("it has shown none".into()),
        E::InvalidCertificate(why) => SessionError::ClientCertificate(wrong_certificate(&why)),
        E::AlertReceived(alert) => SessionError::Refused(alert),
        E::NoApplicationProtocol => SessionError::NothingInCommon("protocol"),
        E::General(why) if is_handshaking && why.contains("no server certificate chain resolved") => {
            SessionError::NoCertificate
        }
        E::PeerIncompatible(why) => SessionError::NothingInCommon(match why {
            PeerIncompatible::NoCipherSuitesInCommon => "cipher suite",
            PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NamedGroupsExtensionRequired
            | PeerIncompatible::KeyShareExtensionRequired => "key exchange",
            PeerIncompatible::NoSignatureSchemesInCommon
            | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired => "signature scheme",
            PeerIncompatible::NoEcPointFormatsInCommon | PeerIncompatible::EcPointsExtensionRequired => {
                "point format"
            }
            PeerIncompatible::NullCompressionRequired => "compression method",
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic => "version",
            _ => "way",
        }),
        error => SessionError::Misbehaved(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    /// As webpki says it: the name of a variant.
    #[derive(Debug)]
    struct Word(&'static str);

    impl fmt::Display for Word {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Word {}

    #[test]
    fn what_is_rare_about_a_certificate_is_a_sentence() {
        for (word, said) in [
            ("UnsupportedCertVersion", "it is of version 1 or 2 of X.509"),
            ("CaUsedAsEndEntity", "it is that of an authority"),
            ("MalformedExtensions", "it is not sound (MalformedExtensions)"),
        ] {
            let why = CertificateError::Other(rustls::OtherError(Arc::new(Word(word))));
            assert!(wrong_certificate(&why).starts_with(said), "{}", wrong_certificate(&why));
        }
    }
}
