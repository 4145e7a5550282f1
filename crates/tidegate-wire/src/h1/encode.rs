//! Responses, written (RFC 9112 sections 4, 6, 7). The engine fills a buffer with these; nothing here checks
//! what a peer sent, so whatever did not come from our own code must pass
//! [`append_field`](super::append_field) first.

use std::num::NonZeroUsize;
use tidegate_http::push_decimal;

/// The interim response that asks for the body (RFC 9110 section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Where the value begins in the line of `Date`.
const DATE: usize = 6;

/// What follows the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// How the client shall find the end of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No field: the status alone says that there is no body (1xx, 204, 304), or a HEAD whose length is not
    /// known.
    None,
    /// `Content-Length`. Also right for HEAD and 304, where it tells of the body that is not sent.
    Length(u64),
    /// `Transfer-Encoding: chunked`. Never to an HTTP/1.0 client.
    Chunked,
    /// The end of the connection is the end of the body. Only with [`ConnectionField::Close`].
    UntilClose,
}

/// What is said about the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionField {
    /// Nothing: an HTTP/1.1 connection stays.
    None,
    /// `Connection: close`
    Close,
    /// `Connection: keep-alive`, which an HTTP/1.0 client that asked for it waits for.
    KeepAlive,
}

impl ConnectionField {
    pub(super) fn line(self) -> &'static [u8] {
        match self {
            ConnectionField::None => b"",
            ConnectionField::Close => b"Connection: close\r\n",
            ConnectionField::KeepAlive => b"Connection: keep-alive\r\n",
        }
    }
}

/// What a response head is made of. All of it comes from our own code or was checked.
#[derive(Debug, Clone, Copy)]
pub struct ResponseParts<'a> {
    /// Three digits.
    pub status: u16,
    /// May be empty; nobody acts on it.
    pub reason: &'a str,
    /// An HTTP date (`Sun, 06 Nov 1994 08:49:37 GMT`); `None` without a clock.
    pub date: Option<&'a [u8; 29]>,
    /// The value of `Server`, if it shall be told.
    pub server: Option<&'a str>,
    /// Encoded `Name: value` lines, each with CRLF. None of the fields that this function writes itself.
    pub field_lines: &'a [u8],
    /// How the body ends.
    pub framing: ResponseFraming,
    /// What becomes of the connection.
    pub connection: ConnectionField,
}

/// Appends a response head with its empty line. Returns where in `out` the value of `Date` begins.
///
/// The version is always HTTP/1.1, also to an HTTP/1.0 client (RFC 9110 section 2.5). 1xx and 204 never carry
/// framing fields, whatever `framing` says (RFC 9112 section 6.1).
pub fn encode_head(out: &mut Vec<u8>, parts: &ResponseParts<'_>) -> Option<usize> {
    push_status_line(out, parts.status, parts.reason);
    if let Some(server) = parts.server {
        out.extend_from_slice(b"Server: ");
        out.extend_from_slice(server.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    let date_at = parts.date.map(|date| {
        // In one piece, as its length is known beforehand.
        let mut line = *b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        line[DATE..DATE + date.len()].copy_from_slice(date);
        let date_at = out.len() + DATE;
        out.extend_from_slice(&line);
        date_at
    });
    out.extend_from_slice(parts.field_lines);
    match parts.framing {
        _ if matches!(parts.status, 100..=199 | 204) => {}
        ResponseFraming::None | ResponseFraming::UntilClose => {}
        ResponseFraming::Length(length) => push_content_length(out, length),
        ResponseFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    out.extend_from_slice(parts.connection.line());
    out.extend_from_slice(b"\r\n");
    date_at
}

/// Appends an interim head: 103 with `Link` lines, or 102. 101 is final for HTTP/1 and needs
/// `Connection: Upgrade` and `Upgrade` among its lines.
pub fn encode_interim(out: &mut Vec<u8>, status: u16, reason: &str, field_lines: &[u8]) {
    push_status_line(out, status, reason);
    out.extend_from_slice(field_lines);
    out.extend_from_slice(b"\r\n");
}

fn push_status_line(out: &mut Vec<u8>, status: u16, reason: &str) {
    // As most begin.
    if status == 200 && reason == "OK" {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let [hundreds, tens, ones] = [status / 100, status / 10, status].map(|digits| b'0' + (digits % 10) as u8);
    debug_assert!(matches!(status, 100..=999), "invariant: a status has three digits");
    out.reserve(15 + reason.len());
    out.extend_from_slice(&[
        b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b' ', hundreds, tens, ones, b' ',
    ]);
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) fn push_content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// The size line of one chunk.
#[derive(Debug, Clone, Copy)]
pub struct ChunkPrefix {
    bytes: [u8; 18],
    start: u8,
}

impl AsRef<[u8]> for ChunkPrefix {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(usize::from(self.start)..).unwrap_or_default()
    }
}

/// The size line for `len` bytes of data; the data and [`CHUNK_END`] follow it. A size of 0 would end the
/// body, so it has no prefix.
#[inline]
pub fn chunk_prefix(len: NonZeroUsize) -> ChunkPrefix {
    let mut prefix = ChunkPrefix { bytes: *b"0000000000000000\r\n", start: 16 };
    let mut rest = len.get();
    for slot in prefix.bytes.iter_mut().rev().skip(2) {
        *slot = b"0123456789abcdef".get(rest & 15).copied().unwrap_or(b'0');
        prefix.start -= 1;
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    prefix
}

/// Appends `data` as one chunk; nothing if it is empty.
pub fn append_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if let Some(len) = NonZeroUsize::new(data.len()) {
        out.extend_from_slice(chunk_prefix(len).as_ref());
        out.extend_from_slice(data);
        out.extend_from_slice(CHUNK_END);
    }
}

/// Appends the last chunk and the trailer section: encoded `Name: value` lines, each with CRLF, or nothing.
pub fn end_of_chunks(out: &mut Vec<u8>, trailer_lines: &[u8]) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailer_lines);
    out.extend_from_slice(b"\r\n");
}
