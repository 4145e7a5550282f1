//! What is wrong with a response head, found in byte order (RFC 9112 section 4). Called for a head
//! that does not read token by token. The invariant is that of `request_fault`: what is said of some
//! bytes is said of all longer inputs that begin with them.

use super::bytes::is_value;
use super::{FieldError, HeadLimits, ResponseError, field};

/// The first fault of a head, `None` if there is none so far.
pub(super) fn first_fault(head: &[u8], limits: &HeadLimits) -> Option<ResponseError> {
    match status_line_end(head) {
        Err(fault) => Some(fault),
        Ok(None) => None,
        Ok(Some(fields)) => field::first_fault(fields, limits.field_slots()).map(ResponseError::Field),
    }
}

/// What follows the status line of any version 1.x. `Ok(None)`: not all there yet.
fn status_line_end(head: &[u8]) -> Result<Option<&[u8]>, ResponseError> {
    const PREFIX: &[u8] = b"HTTP/";
    if !head.iter().zip(PREFIX).all(|(sent, expected)| sent == expected) {
        return Err(ResponseError::InvalidVersion);
    }
    let rest = match head.get(PREFIX.len()..).unwrap_or_default() {
        [] | [b'1'] | [b'1', b'.'] | [b'1', b'.', b'0'..=b'9'] => return Ok(None),
        [b'1', b'.', b'0'..=b'9', b' ', rest @ ..] => rest,
        [b, ..] if b.is_ascii_digit() && *b != b'1' => return Err(ResponseError::UnsupportedVersion),
        _ => return Err(ResponseError::InvalidVersion),
    };
    let (code, rest) = rest.split_at(rest.len().min(3));
    if !code.iter().all(u8::is_ascii_digit) || code.first().is_some_and(|b| !matches!(b, b'1'..=b'5')) {
        return Err(ResponseError::InvalidStatus);
    }
    match rest {
        [] | [b'\r'] => Ok(None),
        // The space is required even before an empty reason, but some servers leave it out and nothing
        // hangs on it.
        [b'\r', b'\n', fields @ ..] => Ok(Some(fields)),
        [b'\r', ..] => Err(FieldError::BareCr.into()),
        [b'\n', ..] => Err(FieldError::BareLf.into()),
        [b' ', reason @ ..] => reason_end(reason),
        _ => Err(ResponseError::InvalidStatus),
    }
}

fn reason_end(reason: &[u8]) -> Result<Option<&[u8]>, ResponseError> {
    let Some(end) = reason.iter().position(|b| !is_value(*b)) else { return Ok(None) };
    match reason.get(end..).unwrap_or_default() {
        [b'\r'] => Ok(None),
        [b'\r', b'\n', fields @ ..] => Ok(Some(fields)),
        [b'\r', ..] => Err(FieldError::BareCr.into()),
        [b'\n', ..] => Err(FieldError::BareLf.into()),
        _ => Err(ResponseError::InvalidReason),
    }
}
