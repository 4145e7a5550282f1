//! Parts of a response (RFC 9111 sections 3.3 and 3.4, RFC 9110 sections 14.4 and 15.3.7): what a 206 holds, and
//! what it may be put together with.
//!
//! Called for the answers to requests for a range, and when a fill that has broken off goes on. Which ranges
//! of a whole a client gets is for [`crate::range`] and [`crate::multipart`].

use super::Rules;
use super::directives::Directives;
use crate::date::HttpDate;
use crate::decimal::parse_decimal;
use crate::etag::EntityTag;
use crate::field::{FieldLines, list_elements};
use crate::range::ByteRange;
use crate::status::Status;

/// What a `Content-Range` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// Which bytes.
    pub range: ByteRange,
    /// Of how many; `None` where it is not known (`*`).
    pub length: Option<u64>,
}

/// What a 206 holds; `None` where it does not say it, says it twice, or has several parts.
pub fn content_range(fields: &FieldLines) -> Option<ContentRange> {
    let mut lines = fields.all("Content-Range");
    let (value, None) = (lines.next()?, lines.next()) else { return None };
    let (unit, rest) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes ") {
        return None;
    }
    let slash = memchr::memchr(b'/', rest)?;
    let (range, length) = (&rest[..slash], &rest[slash + 1..]);
    let dash = memchr::memchr(b'-', range)?;
    let (first, last) = (parse_decimal(&range[..dash])?, parse_decimal(&range[dash + 1..])?);
    let length = if length == b"*" { None } else { Some(parse_decimal(length)?) };
    let range = ByteRange { start: first, end: last.checked_add(1)? };
    let is_valid = first <= last && length.is_none_or(|length| last < length);
    is_valid.then_some(ContentRange { range, length })
}

/// The value of `If-Range` for what is missing of a stored response: its strong validator (RFC 9110
/// section 13.1.5). `None` where it has none, and must be fetched as a whole.
pub fn if_range(stored: &FieldLines) -> Option<&[u8]> {
    match Strong::of(stored)? {
        Strong::Tag(_) => stored.first("ETag"),
        Strong::Date(_) => stored.first("Last-Modified"),
    }
}

/// Whether what has come of a response that broke off may be kept, to be completed later (section 3.3): a 200
/// with a strong validator, from an origin that does not refuse ranges.
pub fn may_be_resumed(status: Status, stored: &FieldLines) -> bool {
    let mut units = stored.all("Accept-Ranges").flat_map(list_elements);
    status == Status::OK
        && if_range(stored).is_some()
        && !units.any(|unit| unit.eq_ignore_ascii_case(b"none"))
}

/// Whether the bytes of a 206 may be put together with those of a stored response (section 3.4): both have the
/// same strong validator, and the 206 lets itself be stored. `length` is the whole length of the stored one, where it is known. The fields of both
/// are put together by [`super::updated`].
pub fn combines(stored: &FieldLines, length: Option<u64>, new: &FieldLines) -> bool {
    let Some(range) = content_range(new) else { return false };
    let is_same_length = match (length, range.length) {
        (Some(stored), Some(new)) => stored == new,
        (Some(stored), None) => range.range.end <= stored,
        (None, _) => true,
    };
    let coding = |fields: &FieldLines| fields.first("Content-Encoding").map(<[u8]>::to_ascii_lowercase);
    is_same_length
        && !forbids_storing(new)
        && Strong::of(stored).is_some_and(|validator| validator.is_of(new))
        && coding(stored) == coding(new)
}

/// Whether a 206 says that it is not to be kept (sections 4.1, 5.2.2.5 and 5.2.2.7): then nothing that it completes is either.
fn forbids_storing(new: &FieldLines) -> bool {
    let control = Directives::of(new, &Rules::default()).control;
    let varies_by_anything = new.all("Vary").flat_map(list_elements).any(|name| name == b"*");
    control.no_store || control.private || varies_by_anything
}

/// A strong validator.
#[derive(Debug, Clone, Copy)]
pub(super) enum Strong<'a> {
    Tag(EntityTag<'a>),
    /// Unix seconds.
    Date(i64),
}

impl<'a> Strong<'a> {
    /// The tag where it is strong, else a date that is old enough (RFC 9110 section 8.8.2.2). A weak tag says
    /// that the bytes may differ: then the date is none either.
    pub(super) fn of(fields: &'a FieldLines) -> Option<Strong<'a>> {
        let mut tags = fields.all("ETag");
        if let Some(value) = tags.next() {
            // Of two, nobody knows which one it is.
            return EntityTag::parse(value)
                .filter(|_| tags.next().is_none())
                .filter(|tag| !tag.weak)
                .map(Strong::Tag);
        }
        strong_date(fields).map(Strong::Date)
    }

    /// Whether a response is of the same representation for certain.
    pub(super) fn is_of(self, fields: &FieldLines) -> bool {
        match (self, Strong::of(fields)) {
            (Strong::Tag(one), Some(Strong::Tag(other))) => one.strong_eq(other),
            (Strong::Date(one), Some(Strong::Date(other))) => one == other,
            _ => false,
        }
    }
}

/// `Last-Modified`, where it is a second older than `Date` at least: within the second there may have been
/// another change.
pub(super) fn strong_date(fields: &FieldLines) -> Option<i64> {
    let date = |name: &str| HttpDate::parse(fields.first(name)?, 0).map(|date| date.0);
    let (modified, made) = (date("Last-Modified")?, date("Date")?);
    (modified < made).then_some(modified)
}
