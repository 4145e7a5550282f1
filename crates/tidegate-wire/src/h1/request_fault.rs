//! What is wrong with a request head, found in byte order (RFC 9112 section 3). Called when the tokeniser
//! refused a head or has not enough of it: never for a good head that is complete.
//!
//! Invariant: a fault found in some bytes is found in all longer inputs that begin with them, and
//! [`check_request_line`], which good heads pass through, asks the same questions in the same order.

use super::bytes::{is_target, is_token};
use super::{FieldError, HeadLimits, MAX_METHOD, RequestError, authority, field};
use tidegate_http::words;

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
    if let Err(fault) = check_form(method, target) {
        return Some(fault);
    }
    match version_end(rest, method == b"PRI" && target == b"*") {
        Err(fault) => Some(fault),
        Ok(None) => None,
        Ok(Some(fields)) => field::first_fault(fields, limits.field_slots()).map(RequestError::Field),
    }
}

/// The same questions for a request line whose tokens are known to be complete.
#[inline]
pub(super) fn check_request_line(
    method: &[u8],
    target: &[u8],
    limits: &HeadLimits,
) -> Result<(), RequestError> {
    if method.len() > MAX_METHOD {
        return Err(RequestError::MethodTooLong);
    }
    check_target(target, limits.target_size)?;
    check_form(method, target)
}

fn check_method(method: &[u8], is_complete: bool) -> Result<(), RequestError> {
    if method.iter().take(MAX_METHOD).any(|b| !is_token(*b)) || is_complete && method.is_empty() {
        return Err(RequestError::InvalidMethod);
    }
    if method.len() > MAX_METHOD { Err(RequestError::MethodTooLong) } else { Ok(()) }
}

/// `target` may be the beginning of one.
#[inline]
fn check_target(target: &[u8], limit: usize) -> Result<(), RequestError> {
    let within = target.get(..limit).unwrap_or(target);
    if words::any(within, may_be_beside_target)
        && let Some(fault) = target_fault(within)
    {
        return Err(fault);
    }
    if target.len() > limit { Err(RequestError::TargetTooLong) } else { Ok(()) }
}

/// Whether any of these may be none that [`is_target`] allows. It is told of a `!` as well, which is rare.
#[inline]
fn may_be_beside_target(word: u64) -> bool {
    let angle_brackets = words::equal(word & words::all(!2), b'<');
    words::below(word, b'#' + 1) | angle_brackets | words::behind_visible(word) != 0
}

#[cold]
fn target_fault(target: &[u8]) -> Option<RequestError> {
    target.iter().find(|b| !is_target(**b)).map(|b| match b {
        b'\r' | b'\n' => RequestError::MissingVersion,
        _ => RequestError::InvalidTarget,
    })
}

/// RFC 9112 section 3.2: which form suits which method.
#[inline]
fn check_form(method: &[u8], target: &[u8]) -> Result<(), RequestError> {
    let suits = match target {
        _ if method == b"CONNECT" => authority::is_valid_with_port(target),
        [b'/', ..] => true,
        // PRI is let through to be told apart by its version: the preface of HTTP/2.
        b"*" => method == b"OPTIONS" || method == b"PRI",
        _ => authority::of_absolute(target).is_some_and(|(_, named)| authority::is_valid(named)),
    };
    if suits { Ok(()) } else { Err(RequestError::InvalidTarget) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_target_holds_is_seen_in_words() {
        for len in [1, 7, 8, 9, 16, 19] {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut target = vec![b'/'; len];
                    target[at] = byte;
                    let is_seen = words::any(&target, may_be_beside_target);
                    assert_eq!(is_seen, !is_target(byte) || byte == b'!', "{byte:#x} at {at}");
                    assert_eq!(check_target(&target, len).is_ok(), is_target(byte), "{byte:#x} at {at}");
                }
            }
        }
    }
}
