//! A response encoded once and sent many times: what the file cache holds for a small file.
//!
//! Plain bytes and offsets. When to stamp a new date, and how to share the value, is the engine's matter.

use super::ConnectionField;
use super::encode::{ResponseParts, encode_head};

/// A response head for a connection that stays, with its body behind it if it is small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prebuilt {
    bytes: Vec<u8>,
    head_len: usize,
    date_at: Option<usize>,
}

impl Prebuilt {
    /// Encodes the head and appends `body`, which may be empty when it is sent from elsewhere.
    /// `parts.connection` is ignored: the head says nothing of the connection.
    pub fn new(parts: &ResponseParts<'_>, body: &[u8]) -> Self {
        let parts = ResponseParts { connection: ConnectionField::None, ..*parts };
        let mut bytes = Vec::with_capacity(256 + parts.field_lines.len() + body.len());
        let date_at = encode_head(&mut bytes, &parts);
        let head_len = bytes.len();
        bytes.extend_from_slice(body);
        bytes.shrink_to_fit();
        Prebuilt { bytes, head_len, date_at }
    }

    /// Head and body, to be sent as they are on a connection that stays.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The head with its empty line: the whole answer to HEAD.
    #[inline]
    pub fn head(&self) -> &[u8] {
        self.bytes.get(..self.head_len).unwrap_or_default()
    }

    /// The body, empty if it is sent from elsewhere.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(self.head_len..).unwrap_or_default()
    }

    /// Bytes that this value keeps allocated.
    pub fn size(&self) -> usize {
        self.bytes.capacity()
    }

    /// Writes a new date over the old one. Without a date at the start there is none to write over.
    #[inline]
    pub fn stamp(&mut self, date: &[u8; 29]) {
        let place = self.date_at.and_then(|at| self.bytes.get_mut(at..)?.first_chunk_mut::<29>());
        if let Some(place) = place {
            *place = *date;
        }
    }

    /// Appends the head alone, with a word on the connection.
    pub fn append_head(&self, out: &mut Vec<u8>, connection: ConnectionField) {
        let head = self.head();
        out.extend_from_slice(head.strip_suffix(b"\r\n").unwrap_or(head));
        out.extend_from_slice(connection.line());
        out.extend_from_slice(b"\r\n");
    }
}
