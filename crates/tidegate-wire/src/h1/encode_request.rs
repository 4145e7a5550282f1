//! Requests, written (RFC 9112 sections 3 and 6). The client and the gateway fill a buffer with these.
//!
//! Method, target and host are checked, because a gateway passes on what HTTP/2 or HTTP/3 carried, and a line
//! end in one of them would be a second request (FAULTS 14). Field lines come from
//! [`append_field`](super::append_field) or from our own code.

use super::ConnectionField;
use super::bytes::{is_target_all, is_token_all};
use super::encode::push_content_length;
use super::{MAX_METHOD, authority};
use thiserror::Error;

/// How the server shall find the end of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFraming {
    /// No body and no field about it.
    None,
    /// `Content-Length`, also for an empty body whose method expects one, such as POST.
    Length(u64),
    /// `Transfer-Encoding: chunked`. Only to a server that is known to speak HTTP/1.1.
    Chunked,
}

/// What a request head is made of.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// A token of at most [`MAX_METHOD`] bytes.
    pub method: &'a str,
    /// Path and query, encoded; the other forms where they apply.
    pub target: &'a str,
    /// The value of `Host`: `host` or `host:port`.
    pub host: &'a str,
    /// Encoded `Name: value` lines, each with CRLF. None of the fields that are written from the others.
    pub field_lines: &'a [u8],
    /// How the body ends.
    pub framing: RequestFraming,
    /// What becomes of the connection.
    pub connection: ConnectionField,
}

/// A request that could not be written: it would not be one request, or not the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnsafeRequest {
    /// The method is not a token, or too long.
    #[error("the method is not a token")]
    Method,
    /// The target is empty or holds a byte that must be encoded.
    #[error("the request target holds a byte that must be encoded")]
    Target,
    /// The host is not a host with an optional port.
    #[error("invalid host")]
    Host,
}

/// Appends a request head with its empty line, or leaves `out` as it was.
///
/// # Errors
/// As [`begin_request`]. The field lines are not looked at.
pub fn encode_request(out: &mut Vec<u8>, parts: &RequestParts<'_>) -> Result<(), UnsafeRequest> {
    begin_request(out, parts.method, parts.target, parts.host)?;
    out.extend_from_slice(parts.field_lines);
    end_request(out, parts.framing, parts.connection);
    Ok(())
}

/// The request line and `Host`, for who writes the field lines behind them in place; or leaves `out` as it was.
/// The parameters are those of [`RequestParts`].
///
/// # Errors
/// The method is no token or too long, the target is empty or holds a byte that must be encoded, or the host
/// is not valid.
pub fn begin_request(out: &mut Vec<u8>, method: &str, target: &str, host: &str) -> Result<(), UnsafeRequest> {
    // Most are one of these, whose bytes need no look.
    let is_usual = matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH");
    if !is_usual && (method.len() > MAX_METHOD || !is_token_all(method.as_bytes())) {
        return Err(UnsafeRequest::Method);
    }
    if target.is_empty() || !is_target_all(target.as_bytes()) {
        return Err(UnsafeRequest::Target);
    }
    if !authority::is_valid(host.as_bytes()) {
        return Err(UnsafeRequest::Host);
    }
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// What follows the field lines.
pub fn end_request(out: &mut Vec<u8>, framing: RequestFraming, connection: ConnectionField) {
    match framing {
        RequestFraming::None => {}
        RequestFraming::Length(length) => push_content_length(out, length),
        RequestFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    out.extend_from_slice(connection.line());
    out.extend_from_slice(b"\r\n");
}
