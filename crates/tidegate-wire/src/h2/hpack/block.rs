//! A piece of a field block that depends on no dynamic table, so that it can be sent on every connection.

use super::super::field_kind::is_connection_specific;
use super::encode::push_literal;
use tidegate_http::FieldLines;

/// Encoded fields. What the file cache keeps of a response's head for HTTP/2: sending it is a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldBlock {
    bytes: Vec<u8>,
}

impl FieldBlock {
    /// A block without fields.
    pub const fn new() -> FieldBlock {
        FieldBlock { bytes: Vec::new() }
    }

    /// The lines of a head. Those that speak of an HTTP/1 connection are left out.
    pub fn of_lines(lines: &FieldLines) -> FieldBlock {
        let mut block = FieldBlock { bytes: Vec::with_capacity(lines.as_bytes().len()) };
        lines.iter().for_each(|(name, value)| block.push(name, value));
        block
    }

    /// Appends a field, its name in lower case.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        if !is_connection_specific(name.as_bytes()) {
            push_literal(&mut self.bytes, name.to_ascii_lowercase().as_bytes(), value);
        }
    }

    /// The encoded bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}
