//! Names of query parameters and cookies: the patterns that settings have for them, and for which other names applications may take
//! one.
//!
//! Called for keys, and for what leads past the cache. Applications do not read names as they are sent. PHP drops blanks before
//! one, takes `page.id`, `page id` and `page[id` for `page_id`, and ends it at a NUL and at `[…]`; others do not tell capital from
//! small letters, or drop blanks behind a name. A name that only such an application takes for a known one is not decided
//! about here: whoever asks goes past the cache.

use memchr::{memchr, memmem};
use std::borrow::Cow;

/// Patterns of names; `*` in one is anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    folded: Vec<u8>,
}

impl<T: Into<String>> FromIterator<T> for Names {
    fn from_iter<I: IntoIterator<Item = T>>(patterns: I) -> Names {
        let patterns = patterns.into_iter().map(Into::into);
        Names(patterns.map(|text: String| Pattern { folded: fold(text.as_bytes()), text }).collect())
    }
}

impl Names {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns, as they were written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|pattern| &*pattern.text)
    }

    /// Whether one of them is this name, decoded and otherwise as it was sent.
    pub fn contain(&self, name: &[u8]) -> bool {
        self.0.iter().any(|pattern| fits(&pattern.text, name))
    }

    /// Whether one of them is this name, as it is folded.
    pub fn contain_folded(&self, folded: &[u8]) -> bool {
        self.0.iter().any(|pattern| fits_bytes(&pattern.folded, folded))
    }

    /// Whether this name of a cookie is one of them, or an application may take it for one.
    pub fn means(&self, name: &[u8]) -> bool {
        self.contain(name) || self.may_contain(&unescaped(name))
    }

    /// Whether an application may take this name, decoded, for one of them.
    pub fn may_contain(&self, name: &[u8]) -> bool {
        !self.is_empty() && folds(name).iter().any(|folded| self.contain_folded(folded))
    }
}

/// Whether a name is meant by a pattern, in which each `*` is anything. Greedy from the left: each piece between two
/// stars is looked for once, behind the one before.
pub fn fits(pattern: &str, name: &[u8]) -> bool {
    fits_bytes(pattern.as_bytes(), name)
}

fn fits_bytes(pattern: &[u8], name: &[u8]) -> bool {
    let Some(star) = memchr(b'*', pattern) else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(&pattern[..star]) else { return false };
    let mut pieces = pattern[star + 1..].split(|byte| *byte == b'*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = memmem::find(rest, piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

/// A name without the escapes of URLs, in which `+` is a blank; of cookies some applications take them away as well.
pub(super) fn unescaped(name: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(name) {
        Ok(name) => crate::query::decoded(name),
        Err(_) => Cow::Borrowed(name),
    }
}

/// What applications may take a name for, decoded: as PHP does, and without the blanks behind it.
pub(super) fn folds(name: &[u8]) -> [Vec<u8>; 2] {
    [fold(name), fold(name.trim_ascii_end())]
}

/// A name as PHP reads it, in small letters. Brackets before it are dropped as blanks are, which others do.
pub(super) fn fold(name: &[u8]) -> Vec<u8> {
    let is_dropped = |byte: &u8| matches!(byte, 1..=b' ' | b'[' | b']');
    let start = name.iter().position(|byte| !is_dropped(byte)).unwrap_or(name.len());
    let name = &name[start..];
    let name = memchr(0, name).map_or(name, |end| &name[..end]);
    let opening = memchr(b'[', name).filter(|at| memchr(b']', &name[*at..]).is_some());
    let name = opening.map_or(name, |end| &name[..end]);
    let folded = name.iter().map(|byte| match byte {
        b'.' | b'[' | 1..=b' ' => b'_',
        byte => byte.to_ascii_lowercase(),
    });
    folded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything_anywhere() {
        for (pattern, name, expected) in [
            ("id", "id", true),
            ("id", "idx", false),
            ("utm_*", "utm_", true),
            ("utm_*", "utm_source", true),
            ("utm_*", "xutm_source", false),
            ("*_session", "app_session", true),
            ("*_session", "app_session_x", false),
            ("p*e", "page", true),
            ("p*e", "pe", true),
            ("p*e", "p", false),
            ("a*a", "a", false),
            ("*b*", "abc", true),
            ("*b*b*", "abc", false),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "axxcxxb", false),
            ("*", "", true),
            ("**", "x", true),
            ("a**b", "ab", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern, name.as_bytes()), expected, "{pattern} {name}");
        }
        // No more than a step for each byte and star.
        let (pattern, name) = ("a*".repeat(64) + "b", "a".repeat(1 << 20));
        assert!(!fits(&pattern, name.as_bytes()));
    }

    #[test]
    fn names_fold_as_php_reads_them() {
        for (name, expected) in [
            ("page_id", "page_id"),
            ("page.id", "page_id"),
            ("page id", "page_id"),
            (" \tpage_id", "page_id"),
            ("page[id", "page_id"),
            ("page_id[]", "page_id"),
            ("page_id[a][b]", "page_id"),
            ("page_id[]x", "page_id"),
            ("page_id\0x", "page_id"),
            ("[page_id]", "page_id]"),
            ("PAGE_ID", "page_id"),
            ("page-id", "page-id"),
            ("\0", ""),
            ("[", ""),
        ] {
            assert_eq!(fold(name.as_bytes()), expected.as_bytes(), "{name:?}");
        }
        let names: Names = ["page_id", "app.session.*"].into_iter().collect();
        for (name, expected) in [
            ("page.id", true),
            ("page_id ", true),
            ("app_session_x", true),
            ("app[session_x", true),
            ("page", false),
            ("page_idx", false),
        ] {
            assert_eq!(names.may_contain(name.as_bytes()), expected, "{name:?}");
        }
    }
}
