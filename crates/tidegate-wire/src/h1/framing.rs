//! The fields that decide where a message ends and whether the connection stays (RFC 9112 sections 6 and 9).
//!
//! Shared by requests and responses. What is refused here is what request smuggling is made of.

use super::Version;
use super::bytes::{is_token_all, trim};
use thiserror::Error;
use tidegate_http::Field;

/// Two readings of where the message ends, or none. The peer is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FramingError {
    /// `Content-Length` and `Transfer-Encoding` in one head.
    #[error("both Content-Length and Transfer-Encoding")]
    BothLengthAndCoding,
    /// `Content-Length` more than once, equal or not, also as a list.
    #[error("Content-Length more than once")]
    DuplicateLength,
    /// `Content-Length` that is not a decimal number up to 2^63 - 1.
    #[error("Content-Length is not a number")]
    InvalidLength,
    /// `Transfer-Encoding` that is not a list of tokens.
    #[error("invalid Transfer-Encoding")]
    InvalidCoding,
    /// A transfer coding before `chunked` that is not implemented.
    #[error("transfer coding other than chunked")]
    UnknownCoding,
    /// `chunked` twice.
    #[error("chunked more than once")]
    RepeatedChunked,
    /// The last transfer coding is not `chunked`.
    #[error("the last transfer coding is not chunked")]
    ChunkedNotFinal,
    /// `Transfer-Encoding` in an HTTP/1.0 message.
    #[error("Transfer-Encoding in HTTP/1.0")]
    CodingInHttp10,
}

impl FramingError {
    /// 501 for a coding that is not implemented, else 400.
    pub fn status(self) -> u16 {
        if self == FramingError::UnknownCoding { 501 } else { 400 }
    }
}

/// What a head says about its message's end, gathered field by field.
#[derive(Debug, Default)]
pub(super) struct Framing<'b> {
    pub length: Option<u64>,
    coding: Coding,
    close: bool,
    keep_alive: bool,
    upgrade_named: bool,
    upgrade: Option<&'b [u8]>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    Chunked,
    /// `chunked` comes last, another coding before it.
    OtherThenChunked,
    /// No `chunked` so far.
    Other,
    /// Another coding behind `chunked`.
    ChunkedThenOther,
}

impl<'b> Framing<'b> {
    /// Looks at one field; most are told apart by the length of their name.
    ///
    /// # Errors
    /// `Content-Length` is no number or stands twice, or `Transfer-Encoding` is no list of tokens or names
    /// `chunked` twice.
    #[inline]
    pub fn take(&mut self, field: &Field<'b>) -> Result<(), FramingError> {
        match field.name.len() {
            7 if field.is("upgrade") => {
                self.upgrade.get_or_insert(field.value);
            }
            10 if field.is("connection") => self.take_connection(field.value),
            14 if field.is("content-length") => {
                if self.length.is_some() || field.value.contains(&b',') {
                    return Err(FramingError::DuplicateLength);
                }
                self.length = Some(content_length(field.value).ok_or(FramingError::InvalidLength)?);
            }
            17 if field.is("transfer-encoding") => self.take_coding(field.value)?,
            _ => {}
        }
        Ok(())
    }

    fn take_connection(&mut self, value: &[u8]) {
        if value == b"keep-alive" {
            self.keep_alive = true; // as browsers say it
            return;
        }
        for option in value.split(|b| *b == b',').map(trim) {
            match option.len() {
                5 => self.close |= option.eq_ignore_ascii_case(b"close"),
                7 => self.upgrade_named |= option.eq_ignore_ascii_case(b"upgrade"),
                10 => self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive"),
                _ => {}
            }
        }
    }

    /// Several lines are one list. Empty elements and parameters, which the list rule or the coding's grammar
    /// would allow, are refused: nobody sends them in good faith.
    fn take_coding(&mut self, value: &[u8]) -> Result<(), FramingError> {
        for name in value.split(|b| *b == b',').map(trim) {
            if !is_token_all(name) {
                return Err(FramingError::InvalidCoding);
            }
            let chunked = name.eq_ignore_ascii_case(b"chunked");
            self.coding = match (self.coding, chunked) {
                (Coding::None, true) => Coding::Chunked,
                (Coding::None | Coding::Other, false) => Coding::Other,
                (Coding::Other, true) => Coding::OtherThenChunked,
                (_, true) => return Err(FramingError::RepeatedChunked),
                (_, false) => Coding::ChunkedThenOther,
            };
        }
        Ok(())
    }

    /// Whether the message is chunked, or why that cannot be said.
    ///
    /// # Errors
    /// `Transfer-Encoding` stands in HTTP/1.0 or beside `Content-Length`, or is not `chunked` alone.
    #[inline]
    pub fn chunked(&self, version: Version) -> Result<bool, FramingError> {
        if self.coding == Coding::None {
            return Ok(false);
        }
        if version == Version::Http10 {
            return Err(FramingError::CodingInHttp10);
        }
        if self.length.is_some() {
            return Err(FramingError::BothLengthAndCoding);
        }
        match self.coding {
            Coding::None => Ok(false),
            Coding::Chunked => Ok(true),
            Coding::OtherThenChunked => Err(FramingError::UnknownCoding),
            Coding::Other | Coding::ChunkedThenOther => Err(FramingError::ChunkedNotFinal),
        }
    }

    /// Whether the peer would keep the connection (RFC 9112 section 9.3).
    #[inline]
    pub fn keeps_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    /// The value of `Upgrade`, if `Connection` names it. HTTP/1.0 cannot upgrade (RFC 9110 section 7.8).
    #[inline]
    pub fn upgrade(&self, version: Version) -> Option<&'b [u8]> {
        self.upgrade.filter(|_| self.upgrade_named && version == Version::Http11)
    }
}

/// Decimal digits only, no sign, no space, at most 2^63 - 1: no file is longer, and sums of it stay small.
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    let mut length = 0u64;
    for b in value {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        length = length.checked_mul(10)?.checked_add(digit)?;
    }
    i64::try_from(length).is_ok().then_some(length)
}
