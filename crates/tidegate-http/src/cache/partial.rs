//! Parts of a response (RFC 9111 sections 3.3 and 3.4, RFC 9110 sections 14.4 and 15.3.7): what a 206 holds, and
//! what it may be put together with.
//!
//! Called for the answers to requests for a range, and when a fill that has broken off goes on.

use crate::field::FieldLines;
use crate::range::ByteRange;

/// What a `Content-Range` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// Which bytes.
    pub range: ByteRange,
    /// Of how many; `None` where it is not known (`*`).
    pub length: Option<u64>,
}

/// What a 206 holds; `None` where it does not say it, says it twice, or has several parts.
pub fn content_range(fields: &FieldLines) -> Option<ContentRange> {
    let _ = fields;
    None
}

/// The value of `If-Range` for what is missing of a stored response: its strong validator. `None` where it has
/// none, and must be fetched as a whole.
pub fn if_range(stored: &FieldLines) -> Option<&[u8]> {
    let _ = stored;
    None
}

/// Whether the bytes of a 206 may be put together with those of a stored response: both are of the same
/// representation for certain. `length` is the whole length of the stored one, where it is known.
pub fn combines(stored: &FieldLines, length: Option<u64>, new: &FieldLines) -> bool {
    let _ = (stored, length, new);
    false
}
