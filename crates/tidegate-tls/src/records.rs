//! The record layer of a TLS connection, of either side: ciphertext in the front of which plaintext is put, plaintext
//! that is sealed, and what the other end has not sent whole or does not take yet (RFC 8446 section 5).
//!
//! [`Session`](crate::Session) and [`ClientSession`](crate::ClientSession) own one each and add what their role needs. It
//! knows no socket, and between two calls it owns bytes only when stuck: rustls' unbuffered interface works in the buffer
//! that is lent.

use crate::early_skip::{EarlySkip, Next, Waited};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    AppDataRecord, ConnectionState, EncodeError, EncodeTlsData, ReadEarlyData, UnbufferedStatus,
};
use rustls::{CommonState, ProtocolVersion};
use std::cell::Cell;
use std::io;
use std::mem;
use thiserror::Error;

/// The largest record of plaintext (RFC 8446 section 5.1).
pub const RECORD: usize = 16 << 10;
/// The least that a record of content is made of.
pub(crate) const SMALL_RECORD: usize = 4 << 10;
/// Most plaintext that is sealed for one write.
pub(crate) const BURST: usize = 4 * RECORD;
/// What sealing adds to a record at most.
const OVERHEAD: usize = 64;
/// Where ciphertext lies in a lent buffer: plaintext is put in front of it, and never reaches it.
pub(crate) const SLACK: usize = RECORD + 512;

thread_local! {
    static SEALED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Why records cannot be read or made.
#[derive(Debug, Error)]
pub(crate) enum RecordError {
    /// What rustls says of the other end.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// There is no room for it in a buffer that has room for the largest.
    #[error("a record larger than any may be")]
    TooLarge,
    #[error("{0}")]
    Encode(EncodeError),
}

/// A connection of rustls, of either side.
pub(crate) trait Unbuffered {
    type Data;

    /// One step; see rustls.
    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Whether something waits to be encoded.
    fn has_to_say(&self) -> bool;

    /// The next record of early data, which only a server is sent.
    fn next_early<'r>(
        early: &'r mut ReadEarlyData<'_, '_, Self::Data>,
    ) -> Option<Result<AppDataRecord<'r>, rustls::Error>>;
}

impl Unbuffered for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    #[inline]
    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_to_say(&self) -> bool {
        self.wants_write()
    }

    fn next_early<'r>(
        early: &'r mut ReadEarlyData<'_, '_, Self::Data>,
    ) -> Option<Result<AppDataRecord<'r>, rustls::Error>> {
        early.next_record()
    }
}

impl Unbuffered for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    #[inline]
    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_to_say(&self) -> bool {
        self.wants_write()
    }

    fn next_early<'r>(
        _: &'r mut ReadEarlyData<'_, '_, Self::Data>,
    ) -> Option<Result<AppDataRecord<'r>, rustls::Error>> {
        None
    }
}

/// What came of reading.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opened {
    /// Bytes of plaintext, at the front of the buffer.
    pub plain: usize,
    /// Some of them were early data.
    pub is_early: bool,
}

/// What waits on either side of the record layer.
#[derive(Default)]
pub(crate) struct Records {
    /// Ciphertext of a record that is not complete.
    pub incoming: Vec<u8>,
    /// Ciphertext that is not sent.
    pub outgoing: Vec<u8>,
    /// The other end has said that it sends no more.
    pub has_peer_closed: bool,
    has_closed: bool,
}

impl Records {
    /// Puts what is kept of a record to where ciphertext lies; where to read more to. `None`: there is no room for more.
    pub(crate) fn lay_out(&self, buffer: &mut [u8]) -> Option<usize> {
        let start = SLACK + self.incoming.len();
        let has_room = start < buffer.len();
        buffer.get_mut(SLACK..start).filter(|_| has_room)?.copy_from_slice(&self.incoming);
        Some(start)
    }

    /// Works on the ciphertext between `SLACK` and `end`, in which all that was kept is: decrypts, and prepares what the
    /// handshake wants to say. `skip` is for early data that is not taken.
    pub(crate) fn open<C: Unbuffered>(
        &mut self,
        connection: &mut C,
        skip: &mut Option<Box<EarlySkip>>,
        buffer: &mut [u8],
        end: usize,
    ) -> Result<Opened, RecordError> {
        self.incoming.clear();
        let opened = self.open_all(connection, skip, buffer, end);
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        opened
    }

    fn open_all<C: Unbuffered>(
        &mut self,
        connection: &mut C,
        skip: &mut Option<Box<EarlySkip>>,
        buffer: &mut [u8],
        end: usize,
    ) -> Result<Opened, RecordError> {
        let (mut at, mut opened) = (SLACK, Opened::default());
        loop {
            let (front, cipher) = buffer.split_at_mut(at);
            let cipher = &mut cipher[..end - at];
            let given = match skip.as_mut().map(|skip| skip.next(cipher)) {
                None => cipher.len(),
                Some(Next::Feed(length)) => length,
                Some(Next::Drop(length)) => {
                    at += length;
                    continue;
                }
            };
            let UnbufferedStatus { mut discard, state } = connection.step(&mut cipher[..given]);
            let mut is_over = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    *skip = None;
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        opened.plain += put(front, opened.plain, record.payload)?;
                    }
                }
                Ok(ConnectionState::ReadEarlyData(mut early)) => {
                    opened.is_early = true;
                    *skip = None; // it is taken
                    while let Some(record) = C::next_early(&mut early) {
                        let record = record?;
                        discard += record.discard;
                        opened.plain += put(front, opened.plain, record.payload)?;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, &mut self.outgoing)?;
                    went_on(skip, discard);
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done(); // `outgoing` keeps it until it is sent
                    went_on(skip, discard);
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.has_peer_closed = true;
                    is_over = true;
                }
                Ok(_) => match skip.as_mut().map(|skip| skip.waits(discard, cipher)) {
                    Some(Waited::Used(length)) => {
                        discard = length;
                        is_over = at + length >= end;
                    }
                    Some(Waited::Other) => *skip = None,
                    Some(Waited::Kept) | None => {
                        is_over = true;
                        self.incoming.extend_from_slice(cipher.get(discard..).unwrap_or_default());
                    }
                },
                Err(error) => {
                    self.take_alert(connection, cipher.get_mut(discard..).unwrap_or_default());
                    return Err(error.into());
                }
            }
            at += discard;
            if is_over {
                return Ok(opened);
            }
        }
    }

    /// The alert that the other end should see, behind what the handshake has said before it: with TLS 1.3 a `ServerHello` may
    /// stand in front of it.
    fn take_alert<C: Unbuffered>(&mut self, connection: &mut C, mut rest: &mut [u8]) {
        while connection.has_to_say() {
            let UnbufferedStatus { discard, state } = connection.step(rest);
            let Ok(ConnectionState::EncodeTlsData(data)) = state else { return };
            if encode(data, &mut self.outgoing).is_err() {
                return;
            }
            rest = rest.get_mut(discard..).unwrap_or_default();
        }
    }

    /// Seals `piece`, [`BURST`] bytes of it at most, in records of `size`, behind what waits, and has `write` write it: the
    /// bytes that it took. What it did not take waits. Returns whether `piece` was taken, which it is not before the
    /// handshake is complete, and whether something waits now.
    pub(crate) fn send<C: Unbuffered>(
        &mut self,
        connection: &mut C,
        piece: &[u8],
        size: usize,
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<(bool, bool)> {
        let mut sealed = SEALED.take();
        let sent = self.seal(connection, piece, size, &mut sealed).and_then(|length| {
            let sent = if length > 0 { write(&sealed[..length])?.min(length) } else { 0 };
            self.outgoing.extend_from_slice(&sealed[sent..length]);
            Ok((length > 0, sent < length))
        });
        SEALED.set(sealed);
        sent
    }

    /// Puts the ciphertext of `piece` into `sealed`, behind what waits, which waits no more; its length, 0 where nothing
    /// may be sent yet.
    fn seal<C: Unbuffered>(
        &mut self,
        connection: &mut C,
        piece: &[u8],
        size: usize,
        sealed: &mut Vec<u8>,
    ) -> io::Result<usize> {
        const ROOM: usize = BURST + (BURST / SMALL_RECORD + 2) * OVERHEAD;
        loop {
            // What has not been used up must be passed every time: rustls may have read some of it already.
            match connection.step(&mut self.incoming).state.map_err(io::Error::other)? {
                ConnectionState::EncodeTlsData(data) => {
                    encode(data, &mut self.outgoing).map_err(io::Error::other)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(mut traffic) => {
                    let mut length = self.outgoing.len();
                    if sealed.len() < length + ROOM {
                        sealed.resize(length + ROOM, 0);
                    }
                    sealed[..length].copy_from_slice(&self.outgoing);
                    for record in piece.chunks(size) {
                        length += traffic.encrypt(record, &mut sealed[length..]).map_err(io::Error::other)?;
                    }
                    self.outgoing = Vec::new();
                    return Ok(length);
                }
                _ => return Ok(0),
            }
        }
    }

    /// So many bytes of what waited are sent; whether all of it is gone.
    pub(crate) fn sent(&mut self, count: usize) -> bool {
        let is_all = count >= self.outgoing.len();
        if is_all {
            self.outgoing = Vec::new(); // an idle connection holds no buffer
        } else {
            self.outgoing.drain(..count);
        }
        is_all
    }

    /// What the handshake still has to say, then the notice that nothing more will be sent (RFC 8446 section 6.1): once.
    pub(crate) fn close<C: Unbuffered>(&mut self, connection: &mut C) {
        if mem::replace(&mut self.has_closed, true) {
            return;
        }
        loop {
            match connection.step(&mut self.incoming).state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    if encode(data, &mut self.outgoing).is_err() {
                        return; // what cannot be said any more need not be
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let mut notice = [0; OVERHEAD];
                    if let Ok(length) = traffic.queue_close_notify(&mut notice) {
                        self.outgoing.extend_from_slice(&notice[..length]);
                    }
                    return;
                }
                _ => return,
            }
        }
    }
}

fn went_on(skip: &mut Option<Box<EarlySkip>>, discarded: usize) {
    if let Some(skip) = skip {
        skip.went_on(discarded);
    }
}

fn put(front: &mut [u8], at: usize, payload: &[u8]) -> Result<usize, RecordError> {
    front.get_mut(at..at + payload.len()).ok_or(RecordError::TooLarge)?.copy_from_slice(payload);
    Ok(payload.len())
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    let at = out.len();
    match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(needed)) => {
            out.resize(at + needed.required_size, 0);
            let length = data.encode(&mut out[at..]).map_err(RecordError::Encode)?;
            out.truncate(at + length);
            Ok(())
        }
        outcome => outcome.map(drop).map_err(RecordError::Encode),
    }
}

/// `TLSv1.3` or `TLSv1.2`.
pub(crate) fn version_name(connection: &CommonState) -> &'static str {
    match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    }
}

/// The cipher suite by its name of RFC 8446, where rustls has a name of its own.
pub(crate) fn suite_name(connection: &CommonState) -> &'static str {
    match connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()) {
        Some("TLS13_AES_128_GCM_SHA256") => "TLS_AES_128_GCM_SHA256",
        Some("TLS13_AES_256_GCM_SHA384") => "TLS_AES_256_GCM_SHA384",
        Some("TLS13_CHACHA20_POLY1305_SHA256") => "TLS_CHACHA20_POLY1305_SHA256",
        Some(other) => other,
        None => "-",
    }
}

/// The key exchange by its name; `-` where a resumption did without.
pub(crate) fn group_name(connection: &CommonState) -> &'static str {
    connection.negotiated_key_exchange_group().and_then(|group| group.name().as_str()).unwrap_or("-")
}
