//! `Cache-Status` (RFC 9211): what the cache did with a request, for whoever looks into it.
//!
//! Called for each response of a place that is cached. Written without a structure in between: a hit
//! pays for it.

use arrayvec::ArrayVec;

use crate::field::{FieldLines, is_tchar};
use crate::status::Status;

/// Why a request went to the origin (section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache did not handle this request.
    Bypass,
    /// The method asks for it.
    Method,
    /// Nothing was stored for the URI.
    UriMiss,
    /// Something was, for other requests (`Vary`).
    VaryMiss,
    /// Nothing fitted, and which of the two it was is not said.
    Miss,
    /// The request's directives ask for it.
    Request,
    /// What was stored was stale.
    Stale,
    /// Only a part of what is asked for was stored.
    Partial,
}

impl Forward {
    /// As the field has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

/// One member of the field. What does not fit into 512 bytes is left out, the least important first.
#[derive(Debug, Clone, Copy)]
pub struct CacheStatus<'a> {
    name: &'a str,
    forward: Option<Forward>,
    forward_status: Option<Status>,
    ttl: Option<i64>,
    is_stored: bool,
    is_collapsed: bool,
    key: Option<&'a [u8]>,
    detail: Option<&'a str>,
}

type Text = ArrayVec<u8, 512>;

impl<'a> CacheStatus<'a> {
    /// The request was answered from what is stored, which stays fresh for `ttl` seconds more.
    pub const fn hit(name: &'a str, ttl: i64) -> CacheStatus<'a> {
        CacheStatus { ttl: Some(ttl), ..CacheStatus::new(name, None) }
    }

    /// The request went on to the origin.
    pub const fn forwarded(name: &'a str, why: Forward) -> CacheStatus<'a> {
        CacheStatus::new(name, Some(why))
    }

    const fn new(name: &'a str, forward: Option<Forward>) -> CacheStatus<'a> {
        CacheStatus {
            name,
            forward,
            forward_status: None,
            ttl: None,
            is_stored: false,
            is_collapsed: false,
            key: None,
            detail: None,
        }
    }

    /// How many seconds the response stays fresh; negative: for how many it has been stale.
    #[must_use]
    pub const fn ttl(mut self, seconds: i64) -> CacheStatus<'a> {
        self.ttl = Some(seconds);
        self
    }

    /// What the origin answered, where the client gets another status: 304 for a 200 that still holds.
    #[must_use]
    pub const fn forward_status(mut self, status: Status) -> CacheStatus<'a> {
        self.forward_status = Some(status);
        self
    }

    /// The response was stored.
    #[must_use]
    pub const fn stored(mut self, is_stored: bool) -> CacheStatus<'a> {
        self.is_stored = is_stored;
        self
    }

    /// The request waited for the fetch of another one.
    #[must_use]
    pub const fn collapsed(mut self, is_collapsed: bool) -> CacheStatus<'a> {
        self.is_collapsed = is_collapsed;
        self
    }

    /// What the response is stored under. Only for trusted clients.
    #[must_use]
    pub const fn key(mut self, key: &'a [u8]) -> CacheStatus<'a> {
        self.key = Some(key);
        self
    }

    /// Anything else, as [`super::Detail::as_str`] has it. Only for trusted clients.
    #[must_use]
    pub const fn detail(mut self, detail: &'a str) -> CacheStatus<'a> {
        self.detail = Some(detail);
        self
    }

    /// Appends the member, behind those of the caches between this one and the origin (section 2).
    pub fn append_to(&self, lines: &mut FieldLines) {
        let mut text = Text::new();
        if push_name(&mut text, self.name).is_none() {
            return;
        }
        match self.forward {
            None => extend(&mut text, &[b"; hit"]),
            Some(why) => extend(&mut text, &[b"; fwd=", why.as_str().as_bytes()]),
        };
        let mut digits = itoa::Buffer::new();
        if let (Some(status), Some(_)) = (self.forward_status, self.forward) {
            extend(&mut text, &[b"; fwd-status=", digits.format(status.0).as_bytes()]);
        }
        if let Some(ttl) = self.ttl {
            // Integers of structured fields have 15 digits.
            let ttl = ttl.clamp(-999_999_999_999_999, 999_999_999_999_999);
            extend(&mut text, &[b"; ttl=", digits.format(ttl).as_bytes()]);
        }
        if self.is_stored && self.forward.is_some() {
            extend(&mut text, &[b"; stored"]);
        }
        if self.is_collapsed && self.forward.is_some() {
            extend(&mut text, &[b"; collapsed"]);
        }
        if let Some(detail) = self.detail {
            push_parameter(&mut text, b"; detail=", |text| push_name(text, detail));
        }
        if let Some(key) = self.key {
            push_parameter(&mut text, b"; key=", |text| push_string(text, key));
        }
        lines.push("Cache-Status", text);
    }
}

/// All pieces, or none of them where they do not fit.
fn extend(text: &mut Text, pieces: &[&[u8]]) -> Option<()> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    if length > text.remaining_capacity() {
        return None;
    }
    for piece in pieces {
        text.try_extend_from_slice(piece).ok()?;
    }
    Some(())
}

fn push_parameter(text: &mut Text, name: &[u8], value: impl FnOnce(&mut Text) -> Option<()>) {
    let before = text.len();
    if extend(text, &[name]).and_then(|()| value(text)).is_none() {
        text.truncate(before);
    }
}

/// A token where it can be one, else a string.
fn push_name(text: &mut Text, name: &str) -> Option<()> {
    let bytes = name.as_bytes();
    let begins = bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'*');
    if begins && bytes.iter().all(|&byte| is_tchar(byte) || matches!(byte, b':' | b'/')) {
        return extend(text, &[bytes]);
    }
    push_string(text, bytes)
}

/// What a string cannot hold is written as `?`.
fn push_string(text: &mut Text, bytes: &[u8]) -> Option<()> {
    text.try_push(b'"').ok()?;
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => extend(text, &[b"\\", &[byte]])?,
            b' '..=b'~' => text.try_push(byte).ok()?,
            _ => text.try_push(b'?').ok()?,
        }
    }
    text.try_push(b'"').ok()
}
