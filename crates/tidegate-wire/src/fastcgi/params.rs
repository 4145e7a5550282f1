//! Variables as pairs of name and value, with lengths of one byte or four (FastCGI 1.0 section 3.4).

use super::Role;
use super::record::{FastCgiError, HEADER, MOST_CONTENT, RecordType, append_padding, header, padding};
use crate::cgi::Sink;
use thiserror::Error;

/// Pairs whose lengths do not fit what is there. The peer is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("parameters whose lengths do not fit")]
pub struct ParamsError;

impl From<ParamsError> for FastCgiError {
    fn from(_: ParamsError) -> FastCgiError {
        FastCgiError::Params
    }
}

/// Writes the PARAMS stream of a request straight into the buffer that is sent.
#[derive(Debug)]
pub struct Params<'o> {
    out: &'o mut Vec<u8>,
    id: u16,
    /// Where the content begins, behind the first header.
    start: usize,
}

impl<'o> Params<'o> {
    /// Begins the stream at the end of `out`.
    pub fn begin(out: &'o mut Vec<u8>, id: u16) -> Params<'o> {
        out.extend_from_slice(&header(RecordType::Params, id, 0, 0));
        let start = out.len();
        Params { out, id, start }
    }

    /// Begins a request, and its stream, with what is known beforehand.
    pub fn begin_with(out: &'o mut Vec<u8>, prefix: &Prefix) -> Params<'o> {
        let start = out.len() + prefix.start;
        out.extend_from_slice(&prefix.bytes);
        Params { out, id: prefix.id, start }
    }

    /// Appends a variable.
    #[inline(always)]
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        append_pair(self.out, name, value);
    }

    /// Appends variables that were written before: see [`append_pair`].
    pub fn push_pairs(&mut self, pairs: &[u8]) {
        self.out.extend_from_slice(pairs);
    }

    /// Ends the stream.
    pub fn finish(self) {
        let Params { out, id, start } = self;
        let len = out.len().saturating_sub(start);
        if len > MOST_CONTENT {
            let content = out.split_off(start);
            out.truncate(start.saturating_sub(HEADER));
            for piece in content.chunks(MOST_CONTENT) {
                super::append_record(out, RecordType::Params, id, piece);
            }
        } else if len > 0 {
            let padding = padding(len);
            if let Some(head) = out.get_mut(start.saturating_sub(HEADER)..start) {
                head.copy_from_slice(&header(RecordType::Params, id, len as u16, padding));
            }
            append_padding(out, padding);
        } else {
            return; // the header that stands there is the end
        }
        out.extend_from_slice(&header(RecordType::Params, id, 0, 0));
    }
}

impl Sink for Params<'_> {
    #[inline(always)]
    fn variable(&mut self, name: &[u8], value: &[u8]) {
        self.push(name, value);
    }
}

/// What requests have in common that begin alike: BEGIN_REQUEST, and the first of their variables. Encoded once.
#[derive(Debug, Clone)]
pub struct Prefix {
    id: u16,
    bytes: Vec<u8>,
    /// Where the content of the PARAMS stream begins in them.
    start: usize,
}

impl Prefix {
    /// Without variables yet. The parameters are those of [`begin_request`](super::begin_request).
    pub fn new(id: u16, role: Role, keeps_connection: bool) -> Prefix {
        let mut bytes = Vec::new();
        super::begin_request(&mut bytes, id, role, keeps_connection);
        let Params { start, .. } = Params::begin(&mut bytes, id);
        Prefix { id, bytes, start }
    }
}

impl Sink for Prefix {
    fn variable(&mut self, name: &[u8], value: &[u8]) {
        append_pair(&mut self.bytes, name, value);
    }
}

/// Appends one pair. Lengths over 2^31 - 1 cannot be written; such a value is cut to nothing. Inlined, since most names are
/// known beforehand.
#[inline(always)]
pub fn append_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match (name.len(), value.len()) {
        // Most are short.
        (name @ ..0x80, value @ ..0x80) => out.extend_from_slice(&[name as u8, value as u8]),
        _ => return append_long(out, name, value),
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

#[cold]
fn append_long(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let value = if value.len() > i32::MAX as usize { &[] } else { value };
    append_length(out, name.len());
    append_length(out, value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

fn append_length(out: &mut Vec<u8>, len: usize) {
    if len < 0x80 {
        out.push(len as u8);
    } else {
        out.extend_from_slice(&(len as u32 | 0x8000_0000).to_be_bytes());
    }
}

/// The pairs in the joined content of PARAMS, GET_VALUES or GET_VALUES_RESULT records.
#[derive(Debug, Clone)]
pub struct Pairs<'p> {
    rest: &'p [u8],
}

impl<'p> Pairs<'p> {
    /// Over `content`.
    pub fn new(content: &'p [u8]) -> Pairs<'p> {
        Pairs { rest: content }
    }

    fn take(&mut self) -> Option<(&'p [u8], &'p [u8])> {
        let (name, rest) = length(self.rest)?;
        let (value, rest) = length(rest)?;
        let (name, rest) = rest.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.rest = rest;
        Some((name, value))
    }
}

impl<'p> Iterator for Pairs<'p> {
    type Item = Result<(&'p [u8], &'p [u8]), ParamsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let pair = self.take().ok_or(ParamsError);
        if pair.is_err() {
            self.rest = &[];
        }
        Some(pair)
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [short @ 0..0x80, rest @ ..] => Some((usize::from(*short), rest)),
        [a, b, c, d, rest @ ..] => {
            let length = u32::from_be_bytes([a & 0x7f, *b, *c, *d]);
            Some((usize::try_from(length).ok()?, rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_length() {
        let long = vec![b'v'; 128];
        let cases: [(&[u8], &[u8], &[u8]); 4] = [
            (b"A", b"b", b"\x01\x01Ab"),
            (b"A", b"", b"\x01\x00A"),
            (b"", b"", b"\x00\x00"),
            (b"N", &long[..127], &[b"\x01\x7fN", &long[..127]].concat()),
        ];
        for (name, value, expected) in cases {
            let mut out = Vec::new();
            append_pair(&mut out, name, value);
            assert_eq!(out, expected);
            assert_eq!(Pairs::new(&out).collect::<Vec<_>>(), [Ok((name, value))]);
        }
        let mut out = Vec::new();
        append_pair(&mut out, b"N", &long);
        assert!(out.starts_with(b"\x01\x80\x00\x00\x80N"));
        assert_eq!(Pairs::new(&out).collect::<Vec<_>>(), [Ok((&b"N"[..], &long[..]))]);
    }

    #[test]
    fn a_request_with_a_prefix_is_as_any_other() {
        let long = vec![b'v'; 2 * MOST_CONTENT];
        for value in [&b"b"[..], &long] {
            let (mut whole, mut out) = (b"before".to_vec(), b"before".to_vec());
            crate::fastcgi::begin_request(&mut whole, 1, Role::Responder, true);
            let mut params = Params::begin(&mut whole, 1);
            params.push(b"A", b"1");
            params.push(b"B", value);
            params.finish();
            let mut prefix = Prefix::new(1, Role::Responder, true);
            prefix.variable(b"A", b"1");
            let mut params = Params::begin_with(&mut out, &prefix);
            params.push(b"B", value);
            params.finish();
            assert!(out == whole, "{} bytes", value.len());
        }
    }

    #[test]
    fn lengths_that_do_not_fit() {
        let cases: [&[u8]; 6] = [
            b"\x01",
            b"\x01\x01A",
            b"\x80\x00\x00",
            b"\xff\xff\xff\xff\x00A",
            b"\x00\x80\x00\x00\x01",
            b"\x02\x00A",
        ];
        for bytes in cases {
            assert_eq!(Pairs::new(bytes).last(), Some(Err(ParamsError)), "{bytes:x?}");
        }
        assert_eq!(Pairs::new(b"").next(), None);
    }
}
