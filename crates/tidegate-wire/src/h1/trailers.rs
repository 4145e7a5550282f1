//! The trailer section of a chunked message (RFC 9112 section 7.1.2), collected line by line.
//!
//! Trailers are handed over on their own and never merged into the head (FAULTS 13): whoever reads a head
//! field must be able to trust that it was there before the body. A trailer that would change framing,
//! routing or the connection if someone merged it all the same is refused (RFC 9110 section 6.5.1).

use super::field::{first_fault, split_line};
use super::{BodyError, FieldError, HeadLimits};
use tidegate_http::Field;

/// Names that no trailer may have.
pub(crate) const FORBIDDEN: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The trailer fields of one message, owned. Empty for most.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Trailers {
    /// Checked lines, each with its CRLF.
    lines: Vec<u8>,
    /// Where the line that is being read begins.
    line_start: usize,
    count: usize,
}

impl Trailers {
    /// The fields in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        let lines = self.lines.get(..self.line_start).unwrap_or_default();
        lines.split_inclusive(|b| *b == b'\n').filter_map(|line| {
            let (name, value) = split_line(line.strip_suffix(b"\r\n")?)?;
            Some(Field { name, value })
        })
    }

    /// Whether there is no trailer field.
    pub fn is_empty(&self) -> bool {
        self.line_start == 0
    }

    /// The checked `Name: value` lines, each with CRLF, as [`end_of_chunks`](super::end_of_chunks) takes them.
    pub fn as_lines(&self) -> &[u8] {
        self.lines.get(..self.line_start).unwrap_or_default()
    }

    /// Takes bytes of the section up to its end. Returns how many it took and whether the section is over.
    pub(super) fn take(&mut self, input: &[u8], limits: &HeadLimits) -> Result<(usize, bool), BodyError> {
        let mut taken = 0;
        loop {
            let rest = input.get(taken..).unwrap_or_default();
            let line_end = memchr::memchr(b'\n', rest).map(|at| at + 1);
            let room = limits.head_size.saturating_sub(self.lines.len());
            let piece = rest.get(..line_end.unwrap_or(rest.len()).min(room)).unwrap_or_default();
            self.lines.extend_from_slice(piece);
            taken += piece.len();
            let line = self.lines.get(self.line_start..).unwrap_or_default();
            if line == b"\r\n" {
                self.lines.truncate(self.line_start);
                return Ok((taken, true));
            }
            // Looked at once, when it is complete or can never be: bytes that trickle in cost linear time.
            let is_full = self.lines.len() >= limits.head_size;
            if line_end.is_none() && !is_full {
                return Ok((taken, false));
            }
            if let Some(fault) = first_fault(line, limits.field_slots().saturating_sub(self.count)) {
                return Err(BodyError::Trailer(fault));
            }
            if !line.ends_with(b"\r\n") {
                return Err(BodyError::TrailersTooLarge);
            }
            let (name, _) = split_line(line).ok_or(BodyError::Trailer(FieldError::MissingColon))?;
            if FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden)) {
                return Err(BodyError::ForbiddenTrailer);
            }
            self.count += 1;
            self.line_start = self.lines.len();
        }
    }
}
