//! HPACK: field sections, compressed (RFC 7541).
//!
//! [`Decoder`] and [`Encoder`] hold one dynamic table each and belong to one connection. They know nothing
//! of frames and little of HTTP: the rules for requests and responses are in `section`.
//!
//! A decoder gives each field to a closure and copies nothing that it does not have to; an encoder appends
//! to the caller's buffer. What is sent again and again is prepared once for all connections: [`FieldBlock`].

mod block;
mod decode;
mod encode;
mod huffman;
mod lookup;
mod static_table;
mod string;
mod table;

pub use block::FieldBlock;
pub use decode::{DecodeError, Decoder};
pub use encode::Encoder;

/// The size of a dynamic table before anyone has said otherwise (RFC 9113 section 6.5.2), in the bytes of
/// RFC 7541 section 4.1.
pub const TABLE_SIZE: usize = 4096;

/// What each field counts beside its name and value, in dynamic tables and in the size of a field section.
pub const FIELD_OVERHEAD: usize = 32;
