//! `CDN-Loop` (RFC 8586): a request that comes round to a cache that it has been through is refused.
//!
//! Called before a request is sent on to an origin that may be a cache.

use crate::field::{FieldLines, Fields, parameters};

/// How often a request has been through the cache with this id, which is a host with or without a port, or a
/// name. Without regard to case.
pub fn passes(fields: Fields<'_>, id: &str) -> usize {
    let ids = fields.elements("cdn-loop").map(|element| parameters(element).0);
    ids.filter(|element| element.eq_ignore_ascii_case(id.as_bytes())).count()
}

/// Appends the id, behind those of the caches that the request has been through before.
pub fn append_to(lines: &mut FieldLines, id: &str) {
    lines.push("CDN-Loop", id);
}
