//! Sending: heads, content, trailers, resets. Everything is appended to a buffer of the caller, so that many
//! answers leave in one write.

use super::connection::{Connection, Drain};
use super::error::{ErrorCode, Flood};
use super::field_kind::is_connection_specific;
use super::frame::{FRAME_HEADER, FrameHeader, FrameKind, flag, push_frame, push_reset};
use super::hpack::{Encoder, FieldBlock};
use super::streams::{Past, StreamKey};
use crate::h1::bytes::trim;
use tidegate_http::FieldLines;

/// Where the fields of a message come from.
#[derive(Debug, Clone, Copy)]
pub enum FieldSource<'a> {
    /// Lines as handlers make them. What speaks of an HTTP/1 connection is left out.
    Lines(&'a FieldLines),
    /// Prepared before.
    Block(&'a FieldBlock),
}

/// What a response head is made of. All of it comes from our own code or was checked.
#[derive(Debug, Clone, Copy)]
pub struct ResponseParts<'a> {
    /// Three digits, not 101.
    pub status: u16,
    /// The value of `Date`.
    pub date: Option<&'a [u8; 29]>,
    /// The value of `Server`, if it shall be told.
    pub server: Option<&'a str>,
    /// The other fields; none of those that are written from this structure.
    pub fields: FieldSource<'a>,
    /// `Content-Length`, if it is known and not among the fields.
    pub content_length: Option<u64>,
}

/// What a request head is made of. All of it comes from our own code or was checked.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// A token.
    pub method: &'a str,
    /// `http` or `https`; not sent with a plain CONNECT.
    pub scheme: &'a str,
    /// `host` or `host:port`.
    pub authority: &'a str,
    /// Path and query, or `*`; empty with a plain CONNECT.
    pub target: &'a str,
    /// Of an extended CONNECT, which the peer's settings must allow.
    pub protocol: Option<&'a str>,
    /// The other fields. `Host` is left out: the authority says it.
    pub fields: FieldSource<'a>,
    /// `Content-Length`, if it is known and not among the fields.
    pub content_length: Option<u64>,
}

/// Why no request can be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotOpen {
    /// The peer allows no more streams at once: wait for one to end.
    #[error("the peer allows no more streams at once")]
    TooManyStreams,
    /// This connection takes no further streams.
    #[error("the connection takes no further streams")]
    Closing,
}

impl Connection {
    /// Sends a final response head; whether the stream was there to send it on.
    pub fn send_response(
        &mut self,
        key: StreamKey,
        parts: &ResponseParts<'_>,
        is_end: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        match self.streams.get_mut(key) {
            Some(stream) if !stream.is_local_closed && !stream.has_sent_head => stream.has_sent_head = true,
            _ => return false,
        }
        self.push_block(key.id(), is_end, out, |encoder, out| {
            if let (FieldSource::Block(block), Some(date), None) =
                (parts.fields, parts.date, parts.content_length)
            {
                return encoder.head(out, parts.status, parts.server, date, block);
            }
            encoder.status(out, parts.status);
            if let Some(server) = parts.server {
                encoder.with_static_name(out, SERVER, server.as_bytes());
            }
            if let Some(date) = parts.date {
                encoder.with_static_name(out, DATE, date);
            }
            push_fields(encoder, out, parts.fields, parts.content_length);
        });
        if is_end {
            self.end_local(key);
        }
        true
    }

    /// Sends an interim response: 100, or 103 with its `Link` lines.
    pub fn send_interim(&mut self, key: StreamKey, status: u16, fields: FieldSource<'_>, out: &mut Vec<u8>) {
        let may_send =
            self.streams.get(key).is_some_and(|stream| !stream.is_local_closed && !stream.has_sent_head);
        if may_send {
            self.push_block(key.id(), false, out, |encoder, out| {
                encoder.status(out, status);
                push_fields(encoder, out, fields, None);
            });
        }
    }

    /// Sends trailers, which end the stream: checked `Name: value` lines, each with CRLF.
    pub fn send_trailers(&mut self, key: StreamKey, lines: &[u8], out: &mut Vec<u8>) {
        if self.streams.get(key).is_some_and(|stream| !stream.is_local_closed) {
            self.push_block(key.id(), true, out, |encoder, out| {
                for line in lines.split(|byte| *byte == b'\n') {
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
                    let (name, value) = line.split_at(colon);
                    if !is_connection_specific(name) {
                        encoder.field(out, name, trim(value.get(1..).unwrap_or_default()));
                    }
                }
            });
            self.end_local(key);
        }
    }

    /// Opens a stream with a request. Client role.
    ///
    /// # Errors
    /// The connection takes no further streams, or the peer allows no more at once.
    pub fn send_request(
        &mut self,
        parts: &RequestParts<'_>,
        is_end: bool,
        out: &mut Vec<u8>,
    ) -> Result<StreamKey, CannotOpen> {
        if self.drain != Drain::No
            || self.peer_goes_after.is_some()
            || self.next_own > super::flow::MAX_WINDOW
        {
            return Err(CannotOpen::Closing);
        }
        if self.streams.len() as u64 >= u64::from(self.peer.max_concurrent_streams) {
            return Err(CannotOpen::TooManyStreams);
        }
        let id = self.next_own;
        self.next_own += 2;
        let mut stream = self.new_stream();
        stream.has_sent_head = true;
        stream.is_head_request = parts.method == "HEAD";
        let key = self.streams.open(id, stream);
        self.push_block(id, is_end, out, |encoder, out| {
            encoder.with_static_name(out, METHOD, parts.method.as_bytes());
            if let Some(protocol) = parts.protocol {
                encoder.field(out, b":protocol", protocol.as_bytes());
            }
            if parts.method != "CONNECT" || parts.protocol.is_some() {
                encoder.with_static_name(out, SCHEME, parts.scheme.as_bytes());
                encoder.with_static_name(out, PATH, parts.target.as_bytes());
            }
            encoder.with_static_name(out, AUTHORITY, parts.authority.as_bytes());
            push_fields(encoder, out, parts.fields, parts.content_length);
        });
        if is_end {
            self.end_local(key);
        }
        Ok(key)
    }

    /// Bytes of content that may be sent on this stream in one frame now.
    #[inline]
    pub fn room(&self, key: StreamKey) -> usize {
        let Some(stream) = self.streams.get(key).filter(|stream| !stream.is_local_closed) else { return 0 };
        let frame = self.peer.max_frame_size as usize;
        stream.send_window.room().min(self.send_window.room()).min(frame)
    }

    /// Bytes of content for which the stream's own window has room, whatever the connection's has.
    pub fn stream_room(&self, key: StreamKey) -> usize {
        let stream = self.streams.get(key).filter(|stream| !stream.is_local_closed);
        stream.map_or(0, |stream| stream.send_window.room())
    }

    /// The nine bytes before `length` bytes of content, which the caller sends right behind them; `None` if
    /// that is more than [`Connection::room`].
    pub fn begin_frame(&mut self, key: StreamKey, length: usize, is_end: bool) -> Option<[u8; FRAME_HEADER]> {
        if length > self.room(key) {
            return None;
        }
        let stream = self.streams.get_mut(key).filter(|stream| !stream.is_local_closed)?;
        stream.send_window.take(length);
        self.send_window.take(length);
        self.floods.owe_windows(length);
        self.floods.forgive(Flood::Ping, 1); // who receives content may measure how fast it comes
        let flags = if is_end { flag::END_STREAM } else { 0 };
        if is_end {
            self.end_local(key);
        }
        Some(FrameHeader { length, kind: FrameKind::DATA, flags, stream: key.id() }.encode())
    }

    /// Sends as much of `data` as the windows allow, and returns how much that was. The stream ends with the
    /// last byte if `is_end`; an empty end needs no window.
    pub fn send_data(&mut self, key: StreamKey, data: &[u8], is_end: bool, out: &mut Vec<u8>) -> usize {
        let mut sent = 0;
        loop {
            let rest = data.get(sent..).unwrap_or_default();
            let count = rest.len().min(self.room(key));
            let is_last = is_end && count == rest.len();
            if count == 0 && !is_last {
                return sent;
            }
            let Some(header) = self.begin_frame(key, count, is_last) else { return sent };
            out.extend_from_slice(&header);
            out.extend_from_slice(rest.get(..count).unwrap_or_default());
            sent += count;
            if sent == data.len() {
                return sent;
            }
        }
    }

    /// Ends a stream for a reason of ours, and forgets it.
    pub fn reset(&mut self, key: StreamKey, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(key).is_some() {
            push_reset(out, key.id(), code.0);
            self.close(key, Past::Reset);
            self.give_back(out);
        }
    }

    /// Whether a stream is still open.
    #[inline]
    pub fn is_open(&self, key: StreamKey) -> bool {
        self.streams.get(key).is_some()
    }

    fn end_local(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.is_local_closed = true;
        let is_over = stream.is_remote_closed;
        self.streams.set_ready(key, false);
        if is_over {
            self.close(key, Past::Ended);
            // An honest exchange makes up for a dishonest one.
            self.floods.forgive(Flood::Reset, 1);
            self.floods.forgive(Flood::Ping, 1);
            self.floods.forgive(Flood::Ignored, 1);
        }
    }

    /// Appends a field block as HEADERS, and CONTINUATION where the peer's frames are too small for it.
    #[inline]
    fn push_block(
        &mut self,
        id: u32,
        is_end: bool,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER]);
        self.encoder.begin(out);
        encode(&mut self.encoder, out);
        let length = out.len() - start - FRAME_HEADER;
        let end = if is_end { flag::END_STREAM } else { 0 };
        if length > self.peer.max_frame_size as usize {
            return self.split_block(id, end, start, out);
        }
        let header =
            FrameHeader { length, kind: FrameKind::HEADERS, flags: flag::END_HEADERS | end, stream: id };
        if let Some(place) = out.get_mut(start..start + FRAME_HEADER) {
            place.copy_from_slice(&header.encode());
        }
    }

    #[cold]
    fn split_block(&self, id: u32, end: u8, start: usize, out: &mut Vec<u8>) {
        let block = out.split_off(start + FRAME_HEADER);
        out.truncate(start);
        let mut pieces = block.chunks(self.peer.max_frame_size as usize).peekable();
        let mut kind = FrameKind::HEADERS;
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            let first = if kind == FrameKind::HEADERS { end } else { 0 };
            push_frame(out, kind, last | first, id, piece);
            kind = FrameKind::CONTINUATION;
        }
    }
}

// Places in the static table.
const AUTHORITY: u8 = 1;
const METHOD: u8 = 2;
const PATH: u8 = 4;
const SCHEME: u8 = 6;
const CONTENT_LENGTH: u8 = 28;
const DATE: u8 = 33;
const SERVER: u8 = 54;

#[inline]
fn push_fields(encoder: &mut Encoder, out: &mut Vec<u8>, fields: FieldSource<'_>, length: Option<u64>) {
    match fields {
        FieldSource::Block(block) => encoder.block(out, block),
        FieldSource::Lines(lines) => {
            for (name, value) in lines.iter() {
                let name = name.as_bytes();
                if !is_connection_specific(name) && !name.eq_ignore_ascii_case(b"host") {
                    encoder.field(out, name, value);
                }
            }
        }
    }
    if let Some(length) = length {
        // 2^64 - 1 has 20 digits; digits on the stack keep this free of allocations.
        let mut digits = arrayvec::ArrayVec::<u8, 20>::new();
        push_digits(&mut digits, length);
        encoder.with_static_name(out, CONTENT_LENGTH, &digits);
    }
}

fn push_digits(digits: &mut arrayvec::ArrayVec<u8, 20>, mut number: u64) {
    loop {
        digits.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits.reverse();
}
