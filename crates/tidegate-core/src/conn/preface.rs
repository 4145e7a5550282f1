//! What comes before the first request: a header of the PROXY protocol, a TLS handshake, the preface of HTTP/2.

use super::transport::TransportError;
use super::{Connection, faults};
use crate::admission;
use crate::context::Ctx;
use crate::log;
use std::io;
use tidegate_http::{Method, Status};
use tidegate_io::socket::Received;
use tidegate_tls::{Resumption, SessionError};

/// The name of HTTP/2 in ALPN (RFC 9113 section 3.2).
const ALPN_H2: &[u8] = b"h2";
/// What the preface of HTTP/2 begins with (RFC 9113 section 3.4). Whoever begins so understands what HTTP/2 says to what
/// comes behind; to all others HTTP/1 answers.
const PREFACE_START: &[u8] = b"PRI * HTTP/2.0\r\n";

/// What the first bytes of a connection that may become one of HTTP/2 are meant for, where they are no request.
pub(super) enum FirstBytes {
    /// They begin with the preface, whole or broken behind its first line: HTTP/2 answers.
    Http2,
    /// They begin with a method, or name the protocol: an answer of HTTP/1 is understood.
    Http1,
    /// Neither, such as a PROXY header that was not agreed upon. No answer would be understood: the connection ends
    /// (RFC 9113 section 3.4).
    Unknown,
}

/// Tells what the first bytes are meant for.
pub(super) fn judge_first_bytes(data: &[u8]) -> FirstBytes {
    let line = data.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_method = std::str::from_utf8(word).is_ok_and(|word| Method::from_token(word) != Method::Other);
    if data.starts_with(PREFACE_START) {
        FirstBytes::Http2
    } else if is_method || line.windows(5).any(|part| part == b"HTTP/") {
        FirstBytes::Http1
    } else {
        FirstBytes::Unknown
    }
}

impl Connection {
    /// Whether the client may begin with the preface of HTTP/2.
    pub(super) fn may_become_h2(&self, cx: &Ctx) -> bool {
        let listeners = &cx.engine.settings.listeners;
        self.served == 0
            && !self.transport.is_tls() // there ALPN decides, RFC 9113 section 3.3
            && listeners.get(usize::from(cx.engine.place_of(self.listener))).is_some_and(|listener| listener.h2c)
    }

    /// One read, with what there is to count and to say about the transport.
    #[inline]
    pub(super) fn receive(&mut self, cx: &mut Ctx, buffer: &mut [u8]) -> io::Result<Received> {
        if self.transport.is_opening() {
            return self.receive_opening(cx, buffer);
        }
        let received = self.transport.recv(buffer, &cx.engine, self.listener, &mut self.peer);
        received.or_else(|error| self.fail_transport(cx, error))
    }

    /// What comes before the first request: who the client is, and how it is spoken with.
    fn receive_opening(&mut self, cx: &mut Ctx, buffer: &mut [u8]) -> io::Result<Received> {
        let (balancer, admitted) = (self.peer, self.admitted());
        let received = self.transport.recv(buffer, &cx.engine, self.listener, &mut self.peer);
        if self.peer != balancer {
            // Until now it was the connection of a balancer, which speaks for many.
            match cx.admission.named(self.entry, self.peer) {
                Ok(entry) => {
                    self.entry = entry;
                    self.admit_as(self.peer);
                }
                Err(why) => {
                    admission::say_turned_away(&cx.engine.settings, self.peer, why);
                    self.admit_as(admitted); // as whom it is let go
                    cx.stats.connections_refused.add(1);
                    cx.stats.connection_refusals.add(why, 1);
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        if let Some(handshake) = self.transport.handshake() {
            cx.stats.tls_handshakes.add(faults::kind_of_handshake(handshake.resumption), 1);
            if handshake.resumption == Resumption::Refused
                && let Some(address) = self.peer.ip()
                && cx.ticket_clients.is_new(address)
            {
                cx.stats.tls_ticket_clients.add(1);
            }
            if handshake.protocol == Some(ALPN_H2) {
                self.begin_h2(cx);
            }
        }
        received.or_else(|error| self.fail_transport(cx, error))
    }

    #[cold]
    fn fail_transport(&mut self, cx: &mut Ctx, error: TransportError) -> io::Result<Received> {
        if let Some(kind) = faults::kind_of_transport(&error) {
            cx.stats.tls_errors.add(kind, 1);
        }
        if let TransportError::Tls(error) = &error {
            self.say_refused(cx, error);
        }
        match error {
            TransportError::Tls(SessionError::NotTls) => {
                let received = self.transport.fall_back();
                // Methods are upper case: whoever speaks something else would not understand the answer.
                if !received.first().is_some_and(u8::is_ascii_uppercase) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.unread = true;
                let why = "a plain HTTP request was sent to an HTTPS port; ask with https";
                self.refuse(cx, Status::BAD_REQUEST, Some(why), false)?;
                Ok(Received::Bytes { count: 0, drained: false })
            }
            TransportError::Socket(error) | TransportError::Tls(SessionError::Socket(error)) => Err(error),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Tells the log of a handshake that has failed for a reason of the settings, or of certificates.
    fn say_refused(&self, cx: &Ctx, error: &SessionError) {
        if !matches!(
            error,
            SessionError::UnknownName
                | SessionError::NoCertificate
                | SessionError::NothingInCommon(_)
                | SessionError::ClientCertificate(_)
                | SessionError::Refused(_)
        ) {
            return; // scanners, and who has gone
        }
        let listener = cx.engine.settings.listeners.get(usize::from(cx.engine.place_of(self.listener)));
        let address = listener.map(|listener| listener.address.to_string()).unwrap_or_default();
        log::info(format_args!("no TLS for {} on {address}: {error}", self.peer));
    }
}
