//! The field lines of a response, kept as the bytes that go on the wire.
//!
//! Called by whoever builds a head. Keeping the encoded form makes sending a copy, and makes this the one
//! place that has to see to it that no value can end its line (RFC 9110 section 5.5, RFC 9112 section 11.1).

use super::syntax::{is_token, trim};
use crate::words;

/// Encoded lines, `Name: value\r\n` each, without the empty line behind them. The default is empty and
/// holds no memory.
///
/// Whatever is pushed, CR and LF occur only as the pair that ends a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldLines {
    bytes: Vec<u8>,
}

impl FieldLines {
    /// An empty head, without memory.
    #[inline]
    pub const fn new() -> FieldLines {
        FieldLines { bytes: Vec::new() }
    }

    /// An empty head with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> FieldLines {
        FieldLines { bytes: Vec::with_capacity(capacity) }
    }

    /// An empty head in this memory. What is in it is lost.
    #[inline]
    pub fn in_memory(mut memory: Vec<u8>) -> FieldLines {
        memory.clear();
        FieldLines { bytes: memory }
    }

    /// The memory, with the lines in it.
    #[inline]
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes of memory that it holds.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends a line. White space around the value is cut off, and each control character in it other
    /// than a tab (CR, LF and NUL first of all) becomes a space.
    ///
    /// A name that is not a token writes nothing: there is no safe way to send it. Answers whether the
    /// line was written.
    #[inline]
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) -> bool {
        self.push_line(name, value.as_ref())
    }

    fn push_line(&mut self, name: &str, value: &[u8]) -> bool {
        if !is_token(name.as_bytes()) {
            return false;
        }
        self.push_read(name, trim(value));
        true
    }

    /// Appends a line that a codec has read: the name is a token, the value has no white space around it. What no line may
    /// hold becomes a space all the same.
    pub fn push_read(&mut self, name: &str, value: &[u8]) {
        debug_assert!(is_token(name.as_bytes()), "invariant: a codec has read it");
        self.bytes.reserve(name.len() + value.len() + 4);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b": ");
        if words::before_control(value) < value.len() && value.iter().any(|&byte| is_forbidden(byte)) {
            let start = self.bytes.len();
            self.bytes.extend(value.iter().map(|&byte| if is_forbidden(byte) { b' ' } else { byte }));
            // A control character at either end has become white space of the value.
            while self.bytes.len() > start && matches!(self.bytes.last(), Some(b' ' | b'\t')) {
                self.bytes.pop();
            }
            let lead = self.bytes[start..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            self.bytes.drain(start..start + lead);
        } else {
            self.bytes.extend_from_slice(value);
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Appends all lines of `other`.
    #[inline]
    pub fn append(&mut self, other: &FieldLines) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Appends lines that are encoded already, `Name: value` each with its CRLF. What is none is left out.
    pub fn append_lines(&mut self, mut lines: &[u8]) {
        while let Some(line) = Line::first(lines) {
            if let Ok(name) = std::str::from_utf8(line.name) {
                self.push_line(name, line.value);
            }
            lines = lines.get(line.encoded_length()..).unwrap_or_default();
        }
    }

    /// Removes the lines with this name and appends one. With a name that is not a token nothing happens.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> bool {
        self.remove(name);
        self.push(name, value)
    }

    /// Removes the lines with this name; answers whether there were any. The others keep their order.
    pub fn remove(&mut self, name: &str) -> bool {
        self.remove_where(name, |_| true)
    }

    /// The same for those of them with a value that is meant.
    pub fn remove_where(&mut self, name: &str, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        let mut kept = 0;
        let mut position = 0;
        while let Some(line) = self.bytes.get(position..).and_then(Line::first) {
            let end = position + line.encoded_length();
            if !line.name.eq_ignore_ascii_case(name.as_bytes()) || !is_meant(line.value) {
                if kept != position {
                    self.bytes.copy_within(position..end, kept);
                }
                kept += end - position;
            }
            position = end;
        }
        let is_changed = kept < self.bytes.len();
        self.bytes.truncate(kept);
        is_changed
    }

    /// The value of the first line with this name.
    #[inline]
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all lines with this name, in order.
    #[inline]
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> + Clone {
        self.iter().filter(move |(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Whether there is a line with this name.
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// Name and value of each line, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let line = Line::first(rest)?;
            rest = &rest[line.encoded_length()..];
            // A token is ASCII.
            Some((std::str::from_utf8(line.name).unwrap_or_default(), line.value))
        })
    }

    /// The lines as they are sent.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is no line.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets all lines and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// A line found in the encoded bytes.
struct Line<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

impl<'a> Line<'a> {
    /// The line that `bytes` begin with. Names hold no colon and values no CR, so the first of each is
    /// the right one.
    #[inline]
    fn first(bytes: &'a [u8]) -> Option<Line<'a>> {
        let colon = memchr::memchr(b':', bytes)?;
        let rest = bytes.get(colon + 2..)?;
        let end = memchr::memchr(b'\r', rest)?;
        Some(Line { name: &bytes[..colon], value: &rest[..end] })
    }

    /// With `: ` and CRLF.
    #[inline]
    fn encoded_length(&self) -> usize {
        self.name.len() + self.value.len() + 4
    }
}

#[inline]
fn is_forbidden(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}
