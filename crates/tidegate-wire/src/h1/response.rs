//! Response heads as a client reads them (RFC 9112 sections 4, 6.3, 9). The gateway turns every error into
//! 502 and discards the backend's connection (FAULTS 15).

use super::framing::Framing;
use super::response_fault::first_fault;
use super::tokens::Tokens;
use super::{BodyLength, FieldError, FieldSpace, FramingError, HeadLimits, Version};
use thiserror::Error;
use tidegate_http::Field;

/// One response head, borrowed from the buffer it was read from.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'h, 'b> {
    /// Bytes of the buffer that belong to the head.
    pub len: usize,
    /// The server's version.
    pub version: Version,
    /// 100 to 599.
    pub status: u16,
    /// As sent, which may be beyond ASCII. Act on the status alone.
    pub reason: &'b [u8],
    /// All field lines in the order they came.
    pub fields: &'h [Field<'b>],
    /// What this head means for the exchange.
    pub kind: ResponseKind,
    /// How the body ends; `Empty` unless `kind` is `Final`.
    pub body: BodyLength,
    /// Whether the connection can carry another request once the body is read. False after a switch.
    pub keep_alive: bool,
    /// What the server switches to, or could.
    pub upgrade: Option<&'b [u8]>,
}

/// What a response head means for the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// 1xx other than 101: the response is still to come.
    Interim,
    /// The response.
    Final,
    /// 101: behind the head the connection speaks what `upgrade` says. An error of the server unless the
    /// request asked for it, which the caller has to check.
    Switching,
    /// 2xx to CONNECT: behind the head is the tunnel.
    Tunnel,
}

/// Why a response is refused. The server is at fault; its connection must not be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// It does not begin with a status line of HTTP/1.
    #[error("the response does not begin with HTTP/1.1")]
    InvalidVersion,
    /// A version of HTTP other than 1.x.
    #[error("the response is of an unsupported version of HTTP")]
    UnsupportedVersion,
    /// The status is not a number from 100 to 599.
    #[error("invalid status")]
    InvalidStatus,
    /// A control byte in the reason phrase.
    #[error("control byte in the reason phrase")]
    InvalidReason,
    /// The head is longer than the limit.
    #[error("the response head is too large")]
    HeadTooLarge,
    /// The line ends or the field lines are wrong, or too many.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The end of the body cannot be told for certain.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// A body announced with a status that has none: 1xx or 204.
    #[error("a body announced with a status that has none")]
    BodyNotAllowed,
    /// More and more interim responses, and no final one.
    #[error("too many interim responses")]
    TooManyInterim,
    /// 101 that does not say what it switches to.
    #[error("101 without Upgrade")]
    SwitchToNothing,
}

/// Reads one response head from the start of `buf`, the answer to a request with `request_method`.
/// `Ok(None)`: more bytes are needed.
///
/// Like [`parse_request`](super::parse_request) it tells a fault as soon as the bytes show it, and does not
/// depend on how they were cut.
///
/// # Errors
/// The head is malformed, exceeds a limit or is none of HTTP/1, what it says of its body is invalid or not
/// allowed, or it switches to no protocol.
#[inline]
pub fn parse_response<'h, 'b>(
    buf: &'b [u8],
    limits: &HeadLimits,
    space: &'h mut FieldSpace<'b>,
    request_method: &str,
) -> Result<Option<ResponseHead<'h, 'b>>, ResponseError> {
    let view = buf.get(..limits.head_size).unwrap_or(buf);
    let Some((version, status, reason, rest)) = tokens(view, limits, space) else {
        return unfinished(view, limits);
    };
    let len = view.len() - rest.len();

    let mut framing = Framing::default();
    for field in &space.fields {
        framing.take(field)?;
    }
    let chunked = framing.chunked(version)?;
    let (kind, body) = body_of(status, request_method, chunked, framing.length)?;
    let upgrade = framing.upgrade(version);
    if kind == ResponseKind::Switching && upgrade.is_none() {
        return Err(ResponseError::SwitchToNothing);
    }
    let is_persistent = matches!(kind, ResponseKind::Final | ResponseKind::Interim)
        && body != BodyLength::UntilClose
        && framing.keeps_alive(version);
    Ok(Some(ResponseHead {
        len,
        version,
        status,
        reason,
        fields: &space.fields,
        kind,
        body,
        keep_alive: is_persistent,
        upgrade,
    }))
}

/// Version, status and reason of a head without a fault, which has all of its fields in `space` then, and what is behind it.
#[inline(always)]
fn tokens<'b>(
    view: &'b [u8],
    limits: &HeadLimits,
    space: &mut FieldSpace<'b>,
) -> Option<(Version, u16, &'b [u8], &'b [u8])> {
    let (version, status, reason, rest) = Tokens(view).status_line()?;
    let Tokens(rest) = rest.fields(limits, space)?;
    Some((version, status, reason, rest))
}

/// RFC 9112 section 6.3, rule by rule.
fn body_of(
    status: u16,
    request_method: &str,
    chunked: bool,
    length: Option<u64>,
) -> Result<(ResponseKind, BodyLength), ResponseError> {
    let kind = match status {
        101 => ResponseKind::Switching,
        100..=199 => ResponseKind::Interim,
        // Framing fields mean nothing here.
        200..=299 if request_method == "CONNECT" => return Ok((ResponseKind::Tunnel, BodyLength::Empty)),
        _ => ResponseKind::Final,
    };
    // `Content-Length: 0` is forbidden too, but many applications send it with a 204, and it is true.
    if matches!(status, 100..=199 | 204) {
        let is_announced = chunked || length.is_some_and(|length| length > 0);
        return if is_announced { Err(ResponseError::BodyNotAllowed) } else { Ok((kind, BodyLength::Empty)) };
    }
    let body = match length {
        _ if request_method == "HEAD" || status == 304 => BodyLength::Empty,
        _ if chunked => BodyLength::Chunked,
        None => BodyLength::UntilClose,
        Some(0) => BodyLength::Empty,
        Some(length) => BodyLength::Length(length),
    };
    Ok((kind, body))
}

/// A head that is refused, not complete, or too large to become complete.
#[cold]
fn unfinished<T>(view: &[u8], limits: &HeadLimits) -> Result<Option<T>, ResponseError> {
    match first_fault(view, limits) {
        Some(fault) => Err(fault),
        None if view.len() < limits.head_size => Ok(None),
        None => Err(ResponseError::HeadTooLarge),
    }
}
