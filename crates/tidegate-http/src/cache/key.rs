//! What a response is stored under: everything of a request that chooses a resource, length-prefixed, so that
//! two resources never have the same key.
//!
//! Called for every request to a place that is cached.

use std::borrow::Cow;

use arrayvec::ArrayVec;

use super::NoVarySearch;
use super::names::{Names, fits, fold, folds, unescaped};
use super::reference::port;
use crate::authority::Authority;
use crate::decimal::push_decimal;
use crate::field::{Fields, trim};
use crate::query::decoded;

/// Cookies of one request that a key holds.
const MOST_COOKIES: usize = 32;

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
    /// Cookies whose values are part of the key.
    pub cookies: Names,
}

/// What of a query is part of a key. The default: all of it, as sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryRules {
    /// Whether the order of parameters with different names means nothing.
    pub is_sorted: bool,
    /// Parameters that are not.
    pub dropped: Names,
    /// The only ones that are, where this is given.
    pub kept: Option<Names>,
}

/// Appends the key: that of the URL, and the cookies. `search` is what an earlier response for the same path has
/// said of its query, for a second look-up where the first has found nothing.
///
/// Without rules nothing is allocated but what `out` needs.
pub fn write(out: &mut Vec<u8>, resource: &Resource<'_>, rules: &KeyRules, search: Option<&NoVarySearch>) {
    write_url(out, resource, &rules.query, search);
    for pattern in rules.cookies.iter() {
        if pattern.contains('*') {
            push_cookies(out, resource.fields, pattern);
            continue;
        }
        let value = cookie(resource.fields, pattern);
        out.push(u8::from(value.is_some()));
        push_part(out, |out| out.extend_from_slice(value.unwrap_or_default()));
    }
}

/// All cookies that a pattern means, as they come; a byte before each says that there is one.
fn push_cookies(out: &mut Vec<u8>, fields: Fields<'_>, pattern: &str) {
    for (name, value) in cookies(fields).filter(|(name, _)| fits(pattern, name)) {
        out.push(1);
        push_part(out, |out| out.extend_from_slice(name));
        push_part(out, |out| out.extend_from_slice(value.unwrap_or_default()));
    }
    out.push(0);
}

/// Appends what the keys of a URL begin with, whatever the cookies, and those of no other one: for purging.
pub fn write_url(
    out: &mut Vec<u8>,
    resource: &Resource<'_>,
    rules: &QueryRules,
    search: Option<&NoVarySearch>,
) {
    push_part(out, |out| {
        out.extend(resource.scheme.bytes().map(|byte| byte.to_ascii_lowercase()));
    });
    push_part(out, |out| {
        out.extend(resource.authority.host.bytes().map(|byte| byte.to_ascii_lowercase()));
    });
    push_part(out, |out| {
        if let Some(port) = port(&resource.authority, resource.scheme) {
            push_decimal(out, u64::from(port));
        }
    });
    push_part(out, |out| out.extend_from_slice(resource.site.as_bytes()));
    push_part(out, |out| push_target(out, resource.target, rules, search));
}

/// Path and query as they count: what is stored is purged by it.
pub fn counting_target<'t>(target: &'t str, rules: &QueryRules) -> Cow<'t, str> {
    let Some((path, query)) = target.split_once('?').filter(|_| !rules.is_raw()) else {
        return Cow::Borrowed(target);
    };
    let mut chosen = Vec::new();
    rules.push_chosen(&mut chosen, query);
    match String::from_utf8_lossy(&chosen) {
        chosen if chosen.is_empty() => Cow::Borrowed(path),
        chosen => Cow::Owned(format!("{path}?{chosen}")),
    }
}

/// Appends how many bytes `write` writes (4 bytes, little-endian), and those.
fn push_part(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len() + 4;
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start - 4..start].copy_from_slice(&length.to_le_bytes());
}

/// The target behind a byte that says what was done to its query, so that one that was normalised is never
/// taken for one that was sent so.
fn push_target(out: &mut Vec<u8>, target: &str, rules: &QueryRules, search: Option<&NoVarySearch>) {
    let (path, query) = match memchr::memchr(b'?', target.as_bytes()) {
        Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
        None => (target, None),
    };
    if let Some(search) = search {
        out.push(b'n');
        push_part(out, |out| out.extend_from_slice(path.as_bytes()));
        let mut chosen = Vec::new();
        rules.push_chosen(&mut chosen, query.unwrap_or_default());
        search.push_normal(out, &String::from_utf8_lossy(&chosen));
    } else if rules.is_raw() || query.is_none() {
        out.push(b'r');
        out.extend_from_slice(target.as_bytes());
    } else {
        out.push(b'r');
        out.extend_from_slice(path.as_bytes());
        let mark = out.len();
        out.push(b'?');
        rules.push_chosen(out, query.unwrap_or_default());
        // Nothing is left of the query: as if there had been none.
        if out.len() == mark + 1 {
            out.truncate(mark);
        }
    }
}

impl QueryRules {
    /// Whether a query stays as it was sent.
    fn is_raw(&self) -> bool {
        !self.is_sorted && self.dropped.is_empty() && self.kept.is_none()
    }

    /// Appends the parameters that count, `&` between them.
    fn push_chosen(&self, out: &mut Vec<u8>, query: &str) {
        if self.is_raw() {
            out.extend_from_slice(query.as_bytes());
            return;
        }
        let mut pairs: Vec<&str> =
            query.split('&').filter(|pair| !pair.is_empty() && self.counts(pair)).collect();
        // What applications may take for the same name keeps its order; so does all, where they may not agree on what the names are.
        if self.is_sorted && !query.contains(';') {
            pairs.sort_by_cached_key(|pair| fold(&decoded(name_of(pair))));
        }
        for (at, pair) in pairs.iter().enumerate() {
            if at > 0 {
                out.push(b'&');
            }
            out.extend_from_slice(pair.as_bytes());
        }
    }

    fn counts(&self, pair: &str) -> bool {
        let name = decoded(name_of(pair));
        self.kept.as_ref().is_none_or(|kept| kept.contain(&name)) && !self.dropped.contain(&name)
    }

    /// Whether a query has a parameter that is left out of the key, and that an application may take for one that is not: by
    /// its name, or since it separates parameters by `;` as well. Such a request is not for a cache.
    pub fn is_ambiguous(&self, query: &str) -> bool {
        let leaves_all_out = self.kept.as_ref().is_some_and(Names::is_empty);
        if leaves_all_out || self.dropped.is_empty() && self.kept.is_none() {
            return false;
        }
        let may_count = |folded: &Vec<u8>| {
            self.kept.as_ref().is_none_or(|kept| kept.contain_folded(folded))
                && !self.dropped.contain_folded(folded)
        };
        let mut left_out = query.split('&').filter(|pair| !pair.is_empty() && !self.counts(pair));
        left_out.any(|pair| pair.contains(';') || folds(&decoded(name_of(pair))).iter().any(may_count))
    }
}

impl KeyRules {
    /// Whether the cookies of a request are not those that the key says to some application: one that is there twice or has no
    /// value, or whose name is only taken for that of a cookie in the key; or more than 32 in the key.
    pub fn has_ambiguous_cookies(&self, fields: Fields<'_>) -> bool {
        if self.cookies.is_empty() {
            return false;
        }
        let mut known = ArrayVec::<&[u8], MOST_COOKIES>::new();
        cookies(fields).any(|(name, value)| {
            if !self.cookies.contain(name) {
                return self.cookies.may_contain(&unescaped(name));
            }
            value.is_none() || known.contains(&name) || known.try_push(name).is_err()
        })
    }
}

fn name_of(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

/// The cookies of a request (RFC 6265 section 4.2.1): a name as it stands there, blanks before it apart, and what is behind the `=`.
pub fn cookies<'a>(fields: Fields<'a>) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
    let pairs = fields.all("cookie").flat_map(|line| line.split(|byte| *byte == b';')).map(trim);
    pairs.filter(|pair| !pair.is_empty()).map(|pair| match memchr::memchr(b'=', pair) {
        Some(mark) => (&pair[..mark], Some(&pair[mark + 1..])),
        None => (pair, None),
    })
}

/// The value of the first cookie of a name (RFC 6265 section 5.4).
fn cookie<'a>(fields: Fields<'a>, name: &str) -> Option<&'a [u8]> {
    cookies(fields).find(|(known, _)| *known == name.as_bytes())?.1
}
