//! Message bodies, read (RFC 9112 section 6.3 and 7.1). The engine reads request bodies with it, the client
//! response bodies. It copies nothing but trailers.

use super::chunked::Chunked;
use super::{BodyLength, FieldError, HeadLimits, Trailers};
use thiserror::Error;

/// Why a body is refused. The peer is at fault: answer a request with [`status`](BodyError::status) and
/// close; discard a backend's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BodyError {
    /// A chunk size that does not begin with a hexadecimal digit, or goes on with something strange.
    #[error("invalid chunk size")]
    InvalidChunkSize,
    /// A chunk size with more than 16 digits, or over 2^63 - 1.
    #[error("the chunk size is too large")]
    ChunkSizeOverflow,
    /// A chunk extension that is not `;name`, `;name=token` or `;name="quoted"`.
    #[error("invalid chunk extension")]
    InvalidExtension,
    /// Chunk extensions of more than 4 KiB beyond what the chunks hold.
    #[error("too many bytes of chunk extensions")]
    ExtensionsTooLong,
    /// No CRLF where the announced size of a chunk ends.
    #[error("chunk data longer than its size says")]
    ChunkTooLong,
    /// LF without CR in the line of a chunk size.
    #[error("chunk line that ends in LF without CR")]
    BareLf,
    /// CR without LF in the line of a chunk size.
    #[error("CR without LF in a chunk line")]
    BareCr,
    /// A fault in a trailer field.
    #[error("in the trailers: {0}")]
    Trailer(FieldError),
    /// A trailer field that would change framing, routing or the connection.
    #[error("a trailer field that is not allowed as one")]
    ForbiddenTrailer,
    /// The trailer section is longer than the limit of a head.
    #[error("the trailer section is too large")]
    TrailersTooLarge,
    /// The connection ended before the body did.
    #[error("the connection ended inside a body")]
    Truncated,
}

impl BodyError {
    /// The status to answer a request with: 400, or 431 for trailers beyond the limits.
    pub fn status(self) -> u16 {
        match self {
            BodyError::TrailersTooLarge => 431,
            BodyError::Trailer(fault) => fault.status(),
            _ => 400,
        }
    }
}

/// What one call of [`BodyDecoder::decode`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'i> {
    /// Bytes of the input that are used up, `data` included. Never 0 unless the input is empty or the body
    /// complete.
    pub consumed: usize,
    /// The next bytes of the body. It is the tail of the consumed bytes. May be empty.
    pub data: &'i [u8],
}

/// Finds the bytes of one body in what follows its head.
///
/// Feed it until [`is_complete`](BodyDecoder::is_complete); what it has not consumed then belongs to the next
/// message. After an error it must not be used again.
///
/// ```
/// use tidegate_wire::h1::{BodyDecoder, BodyLength, HeadLimits};
///
/// let mut decoder = BodyDecoder::new(BodyLength::Chunked, HeadLimits::default());
/// let mut input: &[u8] = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\nGET";
/// let mut body = Vec::new();
/// while !decoder.is_complete() && !input.is_empty() {
///     let piece = decoder.decode(input).unwrap();
///     body.extend_from_slice(piece.data);
///     input = &input[piece.consumed..];
/// }
/// assert_eq!((body.as_slice(), input), (&b"hello world"[..], &b"GET"[..]));
/// ```
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    limits: HeadLimits,
}

#[derive(Debug, Clone)]
enum State {
    /// Bytes still to come.
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Closed,
}

impl BodyDecoder {
    /// For a body of this length. `limits` hold for its trailer section.
    pub fn new(body: BodyLength, limits: HeadLimits) -> Self {
        let state = match body {
            BodyLength::Empty => State::Length(0),
            BodyLength::Length(length) => State::Length(length),
            BodyLength::Chunked => State::Chunked(Chunked::new()),
            BodyLength::UntilClose => State::UntilClose,
        };
        BodyDecoder { state, limits }
    }

    /// Takes framing up to the next data, and that data. Call it again with what it left.
    ///
    /// # Errors
    /// A chunked body is malformed or exceeds a limit. Other bodies never fail here.
    #[inline]
    pub fn decode<'i>(&mut self, input: &'i [u8]) -> Result<Decoded<'i>, BodyError> {
        let (start, len) = match &mut self.state {
            State::Length(remaining) => {
                let len = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.len());
                *remaining = remaining.saturating_sub(len as u64);
                (0, len)
            }
            State::Chunked(chunked) => chunked.advance(input, &self.limits)?,
            State::UntilClose => (0, input.len()),
            State::Closed => (0, 0),
        };
        let consumed = start.saturating_add(len);
        Ok(Decoded { consumed, data: input.get(start..consumed).unwrap_or_default() })
    }

    /// Bytes that are content and nothing else, which may be passed on unseen and are then told to
    /// [`BodyDecoder::skip`]: all of a body of known length.
    #[inline]
    pub fn plain(&self) -> u64 {
        if let State::Length(remaining) = self.state { remaining } else { 0 }
    }

    /// So many of the plain bytes have been passed on.
    #[inline]
    pub fn skip(&mut self, count: u64) {
        if let State::Length(remaining) = &mut self.state {
            *remaining = remaining.saturating_sub(count);
        }
    }

    /// Tells that the peer has closed. That completes a body of unknown length and truncates any other.
    ///
    /// # Errors
    /// [`BodyError::Truncated`]: the body is not complete.
    pub fn close(&mut self) -> Result<(), BodyError> {
        if matches!(self.state, State::UntilClose) {
            self.state = State::Closed;
        }
        if self.is_complete() { Ok(()) } else { Err(BodyError::Truncated) }
    }

    /// Whether the whole body was read.
    #[inline]
    pub fn is_complete(&self) -> bool {
        match &self.state {
            State::Length(remaining) => *remaining == 0,
            State::Chunked(chunked) => chunked.is_complete(),
            State::UntilClose => false,
            State::Closed => true,
        }
    }

    /// How many bytes are still to come, if the head said so.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(remaining) => Some(remaining),
            State::Closed => Some(0),
            State::Chunked(_) | State::UntilClose => None,
        }
    }

    /// The trailer fields, once the body is complete. Never part of the head (FAULTS 13).
    pub fn take_trailers(&mut self) -> Option<Box<Trailers>> {
        match &mut self.state {
            State::Chunked(chunked) if chunked.is_complete() => {
                chunked.trailers().filter(|trailers| !trailers.is_empty())
            }
            _ => None,
        }
    }
}
