//! HTTP/1.1 and HTTP/1.0 messages, both roles (RFC 9112).
//!
//! The engine calls [`parse_request`], [`BodyDecoder`] and [`encode_head`]; the client calls
//! [`encode_request`], [`parse_response`] and the same decoder. Nothing here touches a socket or a clock,
//! and nothing that a peer sends may panic, grow without bound or cost more than linear time.
//!
//! Strictness is the point: where RFC 9112 lets a recipient refuse, this codec refuses. A message that two
//! parsers could read in two ways is an error, and every error means: answer with its status, then close.
//!
//! The server role in short:
//!
//! ```
//! use tidegate_wire::h1::{BodyDecoder, BodyLength, FieldSpace, HeadLimits, parse_request};
//!
//! let buf = b"PUT /a HTTP/1.1\r\nHost: example.com\r\nContent-Length: 2\r\n\r\nhi";
//! let limits = HeadLimits::default();
//! let mut space = FieldSpace::new();
//! let head = parse_request(buf, &limits, &mut space).unwrap().expect("the head is complete");
//! assert_eq!((head.method, head.target, head.body), ("PUT", "/a", BodyLength::Length(2)));
//! let mut body = BodyDecoder::new(head.body, limits);
//! let piece = body.decode(&buf[head.len..]).unwrap();
//! assert_eq!(piece.data, b"hi");
//! assert!(body.is_complete());
//! ```

pub(crate) mod authority;
mod body;
pub(crate) mod bytes;
mod chunked;
mod encode;
mod encode_request;
mod field;
pub(crate) mod framing;
mod prebuilt;
mod request;
mod request_fault;
mod response;
mod response_fault;
mod scanner;
pub(crate) mod tokens;
pub(crate) mod trailers;

pub use body::{BodyDecoder, BodyError, Decoded};
pub use encode::{
    CHUNK_END, CONTINUE, ChunkPrefix, ConnectionField, LAST_CHUNK, ResponseFraming, ResponseParts,
    append_chunk, chunk_prefix, encode_head, encode_interim, end_of_chunks,
};
pub use encode_request::{
    RequestFraming, RequestParts, UnsafeRequest, begin_request, encode_request, end_request,
};
pub use field::{FieldError, UnsafeField, append_field, append_named};
pub use framing::FramingError;
pub use prebuilt::Prebuilt;
pub use request::{RequestError, RequestHead, parse_request};
pub use response::{ResponseError, ResponseHead, ResponseKind, parse_response};
pub use scanner::HeadScanner;
pub use trailers::Trailers;

pub(crate) use bytes::{is_token_all, is_value, trim};
pub(crate) use field::first_fault;

use arrayvec::ArrayVec;
use tidegate_http::Field;

/// The most fields that any head may have, whatever [`HeadLimits::fields`] says.
pub const MAX_FIELDS: usize = 256;

/// The longest method that is read, in bytes. The longest registered one, `UPDATEREDIRECTREF`, has 17.
pub const MAX_METHOD: usize = 32;

/// What a head may cost. The same limits hold for a trailer section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first of the start line to the empty line, both included.
    pub head_size: usize,
    /// Bytes of the request target.
    pub target_size: usize,
    /// Number of field lines, at most [`MAX_FIELDS`].
    pub fields: usize,
}

impl Default for HeadLimits {
    /// 32 KiB of head, 8 KiB of target, 100 fields.
    fn default() -> Self {
        HeadLimits { head_size: 32 << 10, target_size: 8 << 10, fields: 100 }
    }
}

impl HeadLimits {
    pub(crate) fn field_slots(&self) -> usize {
        self.fields.min(MAX_FIELDS)
    }
}

/// The protocol version of a message. There is no other one that this codec speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    Http11,
}

/// How the end of a message body is found (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// No body, or `Content-Length: 0`.
    Empty,
    /// This many bytes, never 0.
    Length(u64),
    /// The chunked transfer coding.
    Chunked,
    /// All bytes until the peer closes. Only responses; a request never has it.
    UntilClose,
}

/// Where the fields of one head are put. Making one costs nothing: no slot is initialised before it is used.
/// Make a new one for each parse, on the stack (8 KiB).
#[derive(Debug, Default)]
pub struct FieldSpace<'b> {
    pub(crate) fields: ArrayVec<Field<'b>, MAX_FIELDS>,
}

impl<'b> FieldSpace<'b> {
    /// An empty space.
    #[inline]
    pub fn new() -> Self {
        FieldSpace { fields: ArrayVec::new() }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
    }

    /// Adds a field; one beyond the last slot is dropped, which the limits of every codec prevent.
    #[inline]
    pub(crate) fn push(&mut self, field: Field<'b>) {
        let _ = self.fields.try_push(field);
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Field<'b>] {
        &self.fields
    }
}
