//! Entity tags (RFC 9110 section 8.8.3): parsing, lists, and the two ways to compare.
//!
//! Called by the conditions and by whoever makes a tag for a representation.

use crate::field::trim;

/// An entity tag.
///
/// There is deliberately no `==` between tags: which of the two comparisons is meant has to be said.
#[derive(Debug, Clone, Copy)]
pub struct EntityTag<'a> {
    /// Whether it is prefixed with `W/`: equal tags then mean equivalent content, not equal bytes.
    pub weak: bool,
    /// What stands between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Reads one tag and nothing else: `"xyzzy"` or `W/"xyzzy"`.
    #[inline]
    pub fn parse(value: &'a [u8]) -> Option<EntityTag<'a>> {
        let (tag, rest) = split_tag(value)?;
        rest.is_empty().then_some(tag)
    }

    /// Equal bytes for certain: both strong, with the same opaque part.
    #[inline]
    pub fn strong_eq(self, other: EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Equivalent content: the same opaque part.
    #[inline]
    pub fn weak_eq(self, other: EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// Appends the tag as it is sent.
    pub fn push_to(self, out: &mut Vec<u8>) {
        if self.weak {
            out.extend_from_slice(b"W/");
        }
        out.push(b'"');
        out.extend(self.opaque.iter().filter(|&&byte| is_etagc(byte)));
        out.push(b'"');
    }
}

/// The tags of a comma list. What is not a tag is passed over up to the next comma: it matches nothing.
/// A `*` is one such; see [`is_any`].
#[inline]
pub fn entity_tags(value: &[u8]) -> EntityTags<'_> {
    EntityTags { rest: value }
}

/// Whether the value of `If-Match` or `If-None-Match` is `*`, which stands for any representation. Only
/// the whole value counts: the grammar has no `*` inside a list.
#[inline]
pub fn is_any(value: &[u8]) -> bool {
    value == b"*"
}

/// Iterator of [`entity_tags`].
#[derive(Debug, Clone)]
pub struct EntityTags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        while !self.rest.is_empty() {
            let start = trim(self.rest);
            let found = split_tag(start).map(|(tag, rest)| (tag, trim(rest)));
            if let Some((tag, rest @ ([] | [b',', ..]))) = found {
                self.rest = rest.get(1..).unwrap_or_default();
                return Some(tag);
            }
            let comma = memchr::memchr(b',', start).unwrap_or(start.len());
            self.rest = start.get(comma + 1..).unwrap_or_default();
        }
        None
    }
}

/// The tag that the bytes begin with, and what is behind it. A backslash escapes nothing here.
fn split_tag(bytes: &[u8]) -> Option<(EntityTag<'_>, &[u8])> {
    // The `W` is case-sensitive.
    let (weak, bytes) = match bytes {
        [b'W', b'/', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    let [b'"', bytes @ ..] = bytes else { return None };
    let end = bytes.iter().position(|&byte| !is_etagc(byte))?;
    (bytes[end] == b'"').then(|| (EntityTag { weak, opaque: &bytes[..end] }, &bytes[end + 1..]))
}

/// Any visible byte but the quote, and anything from 0x80 up.
#[inline]
fn is_etagc(byte: u8) -> bool {
    byte > 0x20 && byte != b'"' && byte != 0x7f
}
