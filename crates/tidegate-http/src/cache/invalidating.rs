//! What a change makes invalid (RFC 9111 section 4.4, RFC 9875 section 3).
//!
//! Called with the answer to a request whose method is not safe.

use super::groups::invalidated_groups;
use super::reference::target_of;
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

/// What the answer to a request makes invalid. Nothing for a safe method; for an error, the groups that it names
/// alone. `Location` and `Content-Location` count only where they name the same origin: else anybody could empty
/// the cache of others.
pub fn invalidated(method: Method, status: Status, base: &Base<'_>, fields: &FieldLines) -> Invalidated {
    let mut invalidated = Invalidated::default();
    if method.is_safe() {
        return invalidated;
    }
    invalidated.groups = invalidated_groups(fields);
    if !matches!(status.0, 200..=399) {
        return invalidated;
    }
    invalidated.targets.push(base.target.to_owned());
    for name in ["Location", "Content-Location"] {
        let target = fields.first(name).and_then(|reference| target_of(reference, base));
        if let Some(target) = target.filter(|target| !invalidated.targets.contains(target)) {
            invalidated.targets.push(target);
        }
    }
    invalidated
}
