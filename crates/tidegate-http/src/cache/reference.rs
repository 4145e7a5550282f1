//! References to a URI of the same origin (RFC 3986 sections 4.2 and 5.2).
//!
//! Called for `Location` and `Content-Location` of answers that invalidate.

use super::Base;
use crate::authority::Authority;
use crate::path::without_dot_segments;

/// The longest reference that is looked at.
const LONGEST: usize = 8192;

/// Path and query of what a reference names, where that is of the origin of `base`; `None` elsewhere, and where
/// it is not valid.
pub(super) fn target_of(reference: &[u8], base: &Base<'_>) -> Option<String> {
    if reference.len() > LONGEST || !reference.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let text = std::str::from_utf8(reference).ok()?;
    let text = text.split('#').next().unwrap_or_default();
    let rest = match split_scheme(text) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(base.scheme) => rest,
        Some(_) => return None,
        None => text,
    };
    if let Some(rest) = rest.strip_prefix("//") {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let authority = Authority::parse(&rest.as_bytes()[..end]).ok()?;
        return is_same_host(&authority, base).then(|| resolved(&rest[end..]));
    }
    // `http:path` is a relic that nobody reads alike.
    if rest.len() != text.len() {
        return None;
    }
    let (base_path, _) = split_query(base.target);
    Some(match rest.as_bytes().first() {
        None => base.target.to_owned(),
        Some(b'/') => resolved(rest),
        Some(b'?') => resolved(&format!("{base_path}{rest}")),
        Some(_) => {
            let folder = base_path.rfind('/').map_or("/", |slash| &base_path[..=slash]);
            resolved(&format!("{folder}{rest}"))
        }
    })
}

/// Path and query without dot segments; an empty path is `/`.
fn resolved(target: &str) -> String {
    let (path, query) = split_query(target);
    let mut path = if path.is_empty() { "/".to_owned() } else { without_dot_segments(path).into_owned() };
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    path
}

fn split_query(target: &str) -> (&str, Option<&str>) {
    target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)))
}

/// Scheme and what is behind its colon.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (is_scheme && scheme.starts_with(|first: char| first.is_ascii_alphabetic())).then_some((scheme, rest))
}

fn is_same_host(authority: &Authority<'_>, base: &Base<'_>) -> bool {
    authority.host.eq_ignore_ascii_case(base.authority.host)
        && port(authority, base.scheme) == port(&base.authority, base.scheme)
}

/// The port; `None` for the scheme's own.
pub(super) fn port(authority: &Authority<'_>, scheme: &str) -> Option<u16> {
    let own = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    authority.port.filter(|port| *port != own)
}
