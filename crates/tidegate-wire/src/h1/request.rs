//! Request heads (RFC 9112 sections 3, 5, 6, 9). The engine calls [`parse_request`] with what a connection
//! has buffered; it must answer every error with its status and close.

use super::bytes::{ascii, is_token};
use super::framing::Framing;
use super::request_fault::{first_fault, has_form};
use super::tokens::Tokens;
use super::{BodyLength, FieldError, FieldSpace, FramingError, HeadLimits, MAX_METHOD, Version, authority};
use thiserror::Error;
use tidegate_http::Field;

/// One request head, borrowed from the buffer it was read from.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'h, 'b> {
    /// Bytes of the buffer that belong to the head, empty lines before it included. The body follows.
    pub len: usize,
    /// A token of at most [`MAX_METHOD`](super::MAX_METHOD) bytes, as sent; methods are case-sensitive.
    pub method: &'b str,
    /// As sent, in a form that suits the method: `/path?query`, `http(s)://authority/path?query`,
    /// `host:port` for CONNECT alone, `*` for OPTIONS alone.
    pub target: &'b str,
    /// The client's version.
    pub version: Version,
    /// All field lines in the order they came.
    pub fields: &'h [Field<'b>],
    /// Valid `host` or `host:port`: the authority of an absolute target if there is one, else `Host`. `None`
    /// only in HTTP/1.0.
    pub host: Option<&'b str>,
    /// How the body ends.
    pub body: BodyLength,
    /// Whether the client would send another request on this connection.
    pub keep_alive: bool,
    /// The client waits for [`CONTINUE`](super::CONTINUE) before it sends its body.
    pub expects_continue: bool,
    /// What the client would upgrade to. The request is an ordinary one until a 101 was sent.
    pub upgrade: Option<&'b [u8]>,
}

/// Why a request is refused. The client is at fault; answer with [`status`](RequestError::status) and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestError {
    /// A TLS handshake where HTTP was expected.
    #[error("a TLS handshake was sent to a port that speaks plain HTTP; use http:// or the TLS port")]
    TlsOnPlainPort,
    /// The connection preface of HTTP/2 where HTTP/1 was expected.
    #[error("HTTP/2 was sent to a port that speaks HTTP/1.1 only")]
    Http2Preface,
    /// More than eight empty lines before the request line.
    #[error("too many empty lines before the request line")]
    EmptyLines,
    /// The method is empty or not a token.
    #[error("the method is not a token")]
    InvalidMethod,
    /// The method is longer than any that exists.
    #[error("the method is too long")]
    MethodTooLong,
    /// The target holds a byte that has to be encoded.
    #[error("the request target holds {} at position {at}, which has to be percent-encoded", byte_name(*.byte))]
    TargetByte {
        /// The first one.
        byte: u8,
        /// Where it stands, counted from 1.
        at: usize,
    },
    /// The form of the target does not suit the method.
    #[error("the request target does not begin with a slash, and has no other form that suits the method")]
    TargetForm,
    /// The target is longer than the limit.
    #[error("the request target is too long")]
    TargetTooLong,
    /// The request line ends after the target, as in HTTP/0.9.
    #[error("the request line names no protocol version")]
    MissingVersion,
    /// Something else than `HTTP/1.1` and a line end follows the target.
    #[error("the request line does not end in a protocol version")]
    InvalidVersion,
    /// A version of HTTP other than 1.0 and 1.1.
    #[error("this version of HTTP is not supported")]
    UnsupportedVersion,
    /// The head is longer than the limit.
    #[error("the request head is too large")]
    HeadTooLarge,
    /// The line ends or the field lines are wrong, or too many.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The end of the body cannot be told for certain.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// HTTP/1.1 without `Host`.
    #[error("no Host")]
    MissingHost,
    /// `Host` more than once.
    #[error("Host more than once")]
    RepeatedHost,
    /// `Host` is empty or not a host with an optional port.
    #[error("invalid Host")]
    InvalidHost,
    /// `Host` names another authority than the absolute target.
    #[error("Host contradicts the request target")]
    ContradictingHost,
    /// `Expect` asks for something else than `100-continue`.
    #[error("unknown expectation")]
    UnknownExpectation,
}

/// A byte as a log can have it, whatever a client has sent.
fn byte_name(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("`{}`", char::from(byte)) } else { format!("the byte 0x{byte:02X}") }
}

impl RequestError {
    /// The status to answer with.
    pub fn status(self) -> u16 {
        match self {
            RequestError::TargetTooLong => 414,
            RequestError::UnknownExpectation => 417,
            RequestError::HeadTooLarge => 431,
            RequestError::MethodTooLong => 501,
            RequestError::UnsupportedVersion | RequestError::Http2Preface => 505,
            RequestError::Field(fault) => fault.status(),
            RequestError::Framing(fault) => fault.status(),
            _ => 400,
        }
    }
}

/// Reads one request head from the start of `buf`. `Ok(None)`: more bytes are needed.
///
/// A fault is told as soon as the bytes show it, also when the head is not complete. How the bytes were cut
/// into reads never changes the result. Each call reads from the start of `buf`: ask
/// [`HeadScanner`](super::HeadScanner) whether a call is worth it.
///
/// # Errors
/// The head is malformed, contradicts itself, exceeds a limit or expects what is not known, or it is none of
/// HTTP/1, such as TLS or the preface of HTTP/2.
#[inline]
pub fn parse_request<'h, 'b>(
    buf: &'b [u8],
    limits: &HeadLimits,
    space: &'h mut FieldSpace<'b>,
) -> Result<Option<RequestHead<'h, 'b>>, RequestError> {
    let start = match buf.first() {
        Some(first) if is_token(*first) => 0,
        _ => match request_start(buf)? {
            Some(start) => start,
            None => return Ok(None),
        },
    };
    let rest = buf.get(start..).unwrap_or_default();
    let view = rest.get(..limits.head_size).unwrap_or(rest);

    let Some((method, target, version, rest)) = tokens(view, limits, space) else {
        return unfinished(view, limits);
    };

    let mut framing = Framing::default();
    let (mut host, mut expects) = (None, false);
    for field in &space.fields {
        match field.name.len() {
            4 if field.is("host") => {
                if host.replace(field.value).is_some() {
                    return Err(RequestError::RepeatedHost);
                }
            }
            // An empty list expects nothing (RFC 9110 section 5.6.1).
            6 if field.is("expect") && !field.value.is_empty() => {
                expects = true;
                if version == Version::Http11 && !field.value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(RequestError::UnknownExpectation);
                }
            }
            _ => framing.take(field)?,
        }
    }
    let body = match (framing.chunked(version)?, framing.length) {
        (true, _) => BodyLength::Chunked,
        (false, None | Some(0)) => BodyLength::Empty,
        (false, Some(length)) => BodyLength::Length(length),
    };
    Ok(Some(RequestHead {
        len: start + view.len() - rest.len(),
        method,
        target,
        version,
        fields: &space.fields,
        host: checked_host(host, method, target, version)?,
        body,
        keep_alive: framing.keeps_alive(version),
        expects_continue: expects && version == Version::Http11 && body != BodyLength::Empty,
        upgrade: framing.upgrade(version),
    }))
}

/// Method, target and version of a head without a fault, which has all of its fields in `space` then, and what is behind it.
#[inline(always)]
fn tokens<'b>(
    view: &'b [u8],
    limits: &HeadLimits,
    space: &mut FieldSpace<'b>,
) -> Option<(&'b str, &'b str, Version, &'b [u8])> {
    let (method, rest) = Tokens(view).method()?;
    let (target, rest) = rest.target()?;
    let is_short = method.len() <= MAX_METHOD && target.len() <= limits.target_size;
    if !is_short || !has_form(method.as_bytes(), target.as_bytes()) {
        return None;
    }
    let (version, rest) = rest.version_line()?;
    let Tokens(rest) = rest.fields(limits, space)?;
    Some((method, target, version, rest))
}

/// Empty lines before a request line that are skipped, as those that some clients send behind a body (RFC 9112 section
/// 2.2). Others skip as many or more; what is more than a few is no mistake of a client.
pub(super) const EMPTY_LINES: usize = 8;

/// Where the request line begins, when the buffer does not begin with a method.
#[cold]
fn request_start(buf: &[u8]) -> Result<Option<usize>, RequestError> {
    let lines = buf.chunks(2).take(EMPTY_LINES).take_while(|line| *line == b"\r\n").count();
    let start = 2 * lines;
    match buf.get(start..).unwrap_or_default() {
        [] | [b'\r'] => Ok(None),
        [0x16] if start == 0 => Ok(None),
        // A TLS record: handshake, version 3.x.
        [0x16, 0x03, ..] if start == 0 => Err(RequestError::TlsOnPlainPort),
        [first, ..] if is_token(*first) => Ok(Some(start)),
        [b'\r', b'\n', ..] => Err(RequestError::EmptyLines),
        [b'\n', ..] => Err(FieldError::BareLf.into()),
        [b'\r', ..] => Err(FieldError::BareCr.into()),
        _ => Err(RequestError::InvalidMethod),
    }
}

/// A head that is refused, not complete, or too large to become complete.
#[cold]
fn unfinished<T>(view: &[u8], limits: &HeadLimits) -> Result<Option<T>, RequestError> {
    match first_fault(view, limits) {
        Some(fault) => Err(fault),
        None if view.len() < limits.head_size => Ok(None),
        None => Err(RequestError::HeadTooLarge),
    }
}

/// The host that the request is for. RFC 9110 section 7.2 allows an empty `Host` only for a target without
/// authority, which no target of `http` and `https` is, so it is invalid here.
#[inline]
fn checked_host<'b>(
    host: Option<&'b [u8]>,
    method: &str,
    target: &'b str,
    version: Version,
) -> Result<Option<&'b str>, RequestError> {
    let host = match host {
        Some(host) => {
            Some(ascii(host).filter(|_| authority::is_valid(host)).ok_or(RequestError::InvalidHost)?)
        }
        None if version == Version::Http11 => return Err(RequestError::MissingHost),
        None => None,
    };
    if target.starts_with('/') {
        return Ok(host);
    }
    // `PRI *` is let through by the request line, so that the preface of HTTP/2 gets an answer of its own.
    if target == "*" && method != "OPTIONS" {
        return Err(RequestError::TargetForm);
    }
    match (authority::of_absolute(target.as_bytes()), host) {
        (None, host) => Ok(host),
        (Some((port, named)), Some(host)) if !authority::is_same(named, host.as_bytes(), port) => {
            Err(RequestError::ContradictingHost)
        }
        (Some((_, named)), _) => Ok(ascii(named)),
    }
}
