//! Field lines as bytes (RFC 9112 section 5): what is wrong with a section, one line of it, and writing one.
//!
//! [`Tokens`](super::tokens::Tokens) reads heads on the hot path. What it does not take, a fault or a part of a head,
//! [`first_fault`] reads again, and names the first fault in byte order. So the answer does not depend on how the bytes were
//! cut into reads.

use super::bytes::{ascii, is_control, is_token, is_token_all, is_value, trim};
use thiserror::Error;
use tidegate_http::words;

/// A fault in a field section. The peer is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FieldError {
    /// A line that begins with white space, which once continued the line before.
    #[error("folded field line")]
    ObsoleteFold,
    /// White space in a name, most often before the colon.
    #[error("white space in a field name or before its colon")]
    SpaceBeforeColon,
    /// A line that ends before a colon.
    #[error("field line without a colon")]
    MissingColon,
    /// A line that begins with a colon.
    #[error("field line without a name")]
    EmptyName,
    /// A byte in a name that no token may hold.
    #[error("invalid byte in a field name")]
    InvalidName,
    /// NUL or another control byte in a value.
    #[error("control byte in a field value")]
    InvalidValue,
    /// A line that ends in LF without CR.
    #[error("line that ends in LF without CR")]
    BareLf,
    /// CR without LF.
    #[error("CR without LF")]
    BareCr,
    /// More field lines than the limit.
    #[error("too many fields")]
    TooMany,
}

impl FieldError {
    /// 431 for too many fields, else 400.
    pub fn status(self) -> u16 {
        if self == FieldError::TooMany { 431 } else { 400 }
    }
}

/// The first fault of a field section that begins `section`, read until the section or the bytes end.
/// `None`: no fault so far. What it says of some bytes it also says of any longer input that begins with them.
pub(crate) fn first_fault(mut section: &[u8], max_fields: usize) -> Option<FieldError> {
    let mut count = 0;
    loop {
        match section {
            [] | [b'\r'] | [b'\r', b'\n', ..] => return None,
            [b'\r', ..] => return Some(FieldError::BareCr),
            [b'\n', ..] => return Some(FieldError::BareLf),
            [b' ' | b'\t', ..] => return Some(FieldError::ObsoleteFold),
            [b':', ..] => return Some(FieldError::EmptyName),
            _ => {}
        }
        let colon = section.iter().position(|b| !is_token(*b))?;
        if let Some(fault) = section.get(colon).and_then(|b| name_fault(*b)) {
            return Some(fault);
        }
        let value = section.get(colon + 1..)?;
        let end = value.iter().position(|b| !is_value(*b))?;
        section = match value.get(end..)? {
            [b'\r', b'\n', rest @ ..] => rest,
            [b'\r'] => return None,
            [b'\r', ..] => return Some(FieldError::BareCr),
            [b'\n', ..] => return Some(FieldError::BareLf),
            _ => return Some(FieldError::InvalidValue),
        };
        count += 1;
        if count > max_fields {
            return Some(FieldError::TooMany);
        }
    }
}

/// What the first byte that is no `tchar` says about a name.
fn name_fault(b: u8) -> Option<FieldError> {
    match b {
        b':' => None,
        b' ' | b'\t' => Some(FieldError::SpaceBeforeColon),
        b'\r' | b'\n' => Some(FieldError::MissingColon),
        _ => Some(FieldError::InvalidName),
    }
}

/// Name and trimmed value of one line, given without its CRLF. The line has no fault.
pub(super) fn split_line(line: &[u8]) -> Option<(&str, &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    let name = ascii(line.get(..colon)?)?;
    Some((name, trim(line.get(colon + 1..)?)))
}

/// A field that could not be written: a byte in it would end the line or the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnsafeField {
    /// The name is empty or not a token. A pseudo-field of HTTP/2 (`:path`) is one such.
    #[error("field name that is not a token")]
    Name,
    /// The value holds CR, LF, NUL or another control byte.
    #[error("control byte in a field value")]
    Value,
}

/// Appends `Name: value` and CRLF, or leaves `out` as it was if that would not be one field line. Use it for
/// whatever did not come from our own code (FAULTS 14: what HTTP/2 carried must not break HTTP/1 framing).
///
/// # Errors
/// The name is not a token, or the value holds a control byte other than a tab.
pub fn append_field(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<(), UnsafeField> {
    if !is_token_all(name.as_bytes()) {
        return Err(UnsafeField::Name);
    }
    append_named(out, name, value)
}

/// The same where the name is one of our own, or has been looked at: a token.
///
/// # Errors
/// The value holds a control byte other than a tab.
#[inline]
pub fn append_named(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<(), UnsafeField> {
    debug_assert!(is_token_all(name.as_bytes()), "invariant: a name that was looked at");
    if words::before_control(value) < value.len() && value.iter().any(|b| is_control(*b)) {
        return Err(UnsafeField::Value);
    }
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(trim(value));
    out.extend_from_slice(b"\r\n");
    Ok(())
}
