//! What is wrong with a request head, found in byte order (RFC 9112 section 3). Called for a head that does not read token by
//! token: never for a good head that is complete.
//!
//! Invariant: a fault found in some bytes is found in all longer inputs that begin with them.

use super::bytes::{is_target, is_token};
use super::{FieldError, HeadLimits, MAX_METHOD, RequestError, authority, field};

/// The first fault of a head, `None` if there is none so far.
pub(super) fn first_fault(head: &[u8], limits: &HeadLimits) -> Option<RequestError> {
    let (method, rest) = match head.iter().position(|b| *b == b' ') {
        Some(space) => (head.get(..space)?, head.get(space + 1..)),
        None => (head, None),
    };
    if let Err(fault) = check_method(method, rest.is_some()) {
        return Some(fault);
    }
    let rest = rest?;
    let (target, rest) = match rest.iter().position(|b| *b == b' ') {
        Some(space) => (rest.get(..space)?, rest.get(space + 1..)),
        None => (rest, None),
    };
    if let Err(fault) = check_target(target, limits.target_size) {
        return Some(fault);
    }
    let rest = rest?;
    if !has_form(method, target) {
        return Some(RequestError::TargetForm);
    }
    match version_end(rest, method == b"PRI" && target == b"*") {
        Err(fault) => Some(fault),
        Ok(None) => None,
        Ok(Some(fields)) => field::first_fault(fields, limits.field_slots()).map(RequestError::Field),
    }
}

fn check_method(method: &[u8], is_complete: bool) -> Result<(), RequestError> {
    if method.iter().take(MAX_METHOD).any(|b| !is_token(*b)) || is_complete && method.is_empty() {
        return Err(RequestError::InvalidMethod);
    }
    if method.len() > MAX_METHOD { Err(RequestError::MethodTooLong) } else { Ok(()) }
}

/// `target` may be the beginning of one.
fn check_target(target: &[u8], limit: usize) -> Result<(), RequestError> {
    match target.iter().take(limit).enumerate().find(|(_, byte)| !is_target(**byte)) {
        Some((_, b'\r' | b'\n')) => Err(RequestError::MissingVersion),
        Some((before, byte)) => Err(RequestError::TargetByte { byte: *byte, at: before + 1 }),
        None if target.len() > limit => Err(RequestError::TargetTooLong),
        None => Ok(()),
    }
}

/// Whether a target has a form that suits the method (RFC 9112 section 3.2).
#[inline]
pub(super) fn has_form(method: &[u8], target: &[u8]) -> bool {
    match target {
        _ if method == b"CONNECT" => authority::is_valid_with_port(target),
        [b'/', ..] => true,
        // PRI is let through to be told apart by its version: the preface of HTTP/2.
        b"*" => method == b"OPTIONS" || method == b"PRI",
        _ => authority::of_absolute(target).is_some_and(|(_, named)| authority::is_valid(named)),
    }
}

/// What follows the version and its line end. `Ok(None)`: not all there yet.
fn version_end(rest: &[u8], is_preface: bool) -> Result<Option<&[u8]>, RequestError> {
    const PREFIX: &[u8] = b"HTTP/";
    let unsupported = if is_preface { RequestError::Http2Preface } else { RequestError::UnsupportedVersion };
    if !rest.iter().zip(PREFIX).all(|(sent, expected)| sent == expected) {
        return Err(RequestError::InvalidVersion);
    }
    match rest.get(PREFIX.len()..).unwrap_or_default() {
        [] | [b'1'] | [b'1', b'.'] | [b'1', b'.', b'0'..=b'9'] | [b'1', b'.', b'0'..=b'9', b'\r'] => Ok(None),
        [b'1', b'.', b'0'..=b'9', b'\r', b'\n', fields @ ..] => Ok(Some(fields)),
        [b'1', b'.', b'0'..=b'9', b'\r', ..] => Err(FieldError::BareCr.into()),
        [b'1', b'.', b'0'..=b'9', b'\n', ..] => Err(FieldError::BareLf.into()),
        [b'1', b'.', b'0'..=b'9', ..] => Err(RequestError::InvalidVersion),
        [major, ..] if *major != b'1' && major.is_ascii_digit() => Err(unsupported),
        _ => Err(RequestError::InvalidVersion),
    }
}
