//! Integers and strings (RFC 7541 section 5), read and written.

use super::{DecodeError, huffman};

/// What is left of a block.
pub(super) struct Cursor<'b> {
    pub rest: &'b [u8],
}

/// A string as it was sent.
#[derive(Clone, Copy)]
pub(super) struct Text<'b> {
    raw: &'b [u8],
    is_huffman: bool,
}

impl<'b> Text<'b> {
    /// Appends what it means.
    #[inline]
    pub(super) fn append_to(self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        if self.is_huffman {
            huffman::decode(self.raw, out)
        } else {
            out.extend_from_slice(self.raw);
            Ok(())
        }
    }
}

impl<'b> Cursor<'b> {
    /// An integer whose first byte has `bits` bits for it. Five bytes are the most: no size or index comes
    /// near what they hold, and longer ones are an old way of wearing a decoder out.
    #[inline]
    pub(super) fn integer(&mut self, bits: u32) -> Result<usize, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        let mask = 0xffu8 >> (8 - bits);
        let prefix = first & mask;
        if prefix < mask { Ok(usize::from(prefix)) } else { self.long_integer(usize::from(mask)) }
    }

    fn long_integer(&mut self, mut value: usize) -> Result<usize, DecodeError> {
        for shift in [0, 7, 14, 21] {
            let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
            self.rest = rest;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::IntegerOverflow)
    }

    /// A string literal.
    #[inline]
    pub(super) fn text(&mut self) -> Result<Text<'b>, DecodeError> {
        let is_huffman = self.rest.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (raw, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(Text { raw, is_huffman })
    }
}

/// Appends an integer below the bits that `first` sets.
#[inline]
pub(super) fn push_integer(out: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string in the shorter of both forms.
pub(super) fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let encoded = huffman::encoded_length(text);
    if encoded < text.len() {
        push_integer(out, 0x80, 7, encoded);
        huffman::encode(text, out);
    } else {
        push_integer(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        type Row = (&'static str, &'static [u8], u32, Result<usize, DecodeError>);
        let rows: [Row; 10] = [
            ("RFC 7541 C.1.1", b"\x0a", 5, Ok(10)),
            ("RFC 7541 C.1.2", b"\x1f\x9a\x0a", 5, Ok(1337)),
            ("RFC 7541 C.1.3", b"\x2a", 8, Ok(42)),
            ("all ones of the prefix", b"\x1f\x00", 5, Ok(31)),
            ("zeros behind it", b"\x1f\x80\x80\x80\x00", 5, Ok(31)),
            ("the largest", b"\x7f\xff\xff\xff\x7f", 7, Ok(127 + (1 << 28) - 1)),
            ("one byte more", b"\x7f\xff\xff\xff\xff\x00", 7, Err(DecodeError::IntegerOverflow)),
            ("zeros without end", b"\x7f\x80\x80\x80\x80\x80", 7, Err(DecodeError::IntegerOverflow)),
            ("cut", b"\x7f\x80", 7, Err(DecodeError::Truncated)),
            ("nothing", b"", 7, Err(DecodeError::Truncated)),
        ];
        for (name, bytes, bits, expected) in rows {
            assert_eq!(Cursor { rest: bytes }.integer(bits), expected, "{name}");
        }
        for value in (0..5000).chain([1 << 20, (1 << 28) - 1]) {
            let mut out = Vec::new();
            push_integer(&mut out, 0x20, 5, value);
            assert_eq!(Cursor { rest: &out }.integer(5), Ok(value));
        }
    }
}
