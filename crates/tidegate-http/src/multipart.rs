//! Several ranges in one response: `multipart/byteranges` (RFC 9110 section 14.6, RFC 2046 section 5.1).
//!
//! Called where a selection holds more than one range. These functions write the bytes between the
//! ranges; the ranges themselves are sent by the caller, from wherever they are.

use crate::range::{ByteRange, push_content_range};

/// About what the head of one part costs, in bytes: ranges with a smaller gap are cheaper joined.
pub const PART_OVERHEAD: u64 = 80;

/// A boundary: 20 characters, made from a number by the caller's choice. Whether it occurs in the content
/// cannot be checked at a bearable price, so the number should be random, and not be guessable by whoever
/// wrote the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary([u8; 20]);

impl Boundary {
    /// Writes out `seed`.
    pub fn new(seed: u64) -> Boundary {
        let mut text = [b'0'; 20];
        let mut rest = seed;
        for byte in text.iter_mut().rev() {
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Boundary(text)
    }

    /// The characters, all of them digits.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends the value of `Content-Type` for the whole response.
    pub fn push_content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/byteranges; boundary=");
        out.extend_from_slice(&self.0);
    }
}

/// Appends what stands before the bytes of a part, the line end of the part before it included.
/// `content_type` is that of the representation, `length` its whole length.
pub fn push_part_head(
    out: &mut Vec<u8>,
    boundary: &Boundary,
    content_type: Option<&str>,
    range: ByteRange,
    length: u64,
) {
    out.extend_from_slice(b"\r\n--");
    out.extend_from_slice(&boundary.0);
    if let Some(content_type) = content_type {
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(content_type.as_bytes());
    }
    out.extend_from_slice(b"\r\nContent-Range: ");
    push_content_range(out, range, length);
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends what stands behind the bytes of the last part.
pub fn push_close(out: &mut Vec<u8>, boundary: &Boundary) {
    out.extend_from_slice(b"\r\n--");
    out.extend_from_slice(&boundary.0);
    out.extend_from_slice(b"--\r\n");
}

/// The `Content-Length` of the whole response: all heads, all ranges, and the end. `None` when it is over
/// `u64::MAX`. `scratch` is overwritten.
pub fn content_length(
    ranges: &[ByteRange],
    boundary: &Boundary,
    content_type: Option<&str>,
    length: u64,
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    let mut total = 0u64;
    for &range in ranges {
        scratch.clear();
        push_part_head(scratch, boundary, content_type, range, length);
        total = total.checked_add(scratch.len() as u64)?.checked_add(range.len())?;
    }
    scratch.clear();
    push_close(scratch, boundary);
    total.checked_add(scratch.len() as u64)
}
