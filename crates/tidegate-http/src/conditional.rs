//! Conditional requests (RFC 9110 section 13).
//!
//! Called by whoever has selected a representation, before acting on the request. A response that would
//! have been neither 2xx nor 412 without the conditions must not be subjected to them (section 13.2.1):
//! that is the caller's to see to.

use crate::date::HttpDate;
use crate::etag::{EntityTag, entity_tags, is_any};
use crate::field::Fields;
use crate::method::Method;

/// What is known of the selected representation.
#[derive(Debug, Clone, Copy)]
pub struct Validators<'a> {
    /// Whether there is a current representation at all.
    pub exists: bool,
    /// Its entity tag.
    pub etag: Option<EntityTag<'a>>,
    /// When it was last modified, in Unix seconds.
    pub last_modified: Option<i64>,
}

impl<'a> Validators<'a> {
    /// There is no representation: a PUT would make one.
    pub const ABSENT: Validators<'static> = Validators { exists: false, etag: None, last_modified: None };

    /// There is a representation, with these validators.
    #[inline]
    pub const fn new(etag: Option<EntityTag<'a>>, last_modified: Option<i64>) -> Validators<'a> {
        Validators { exists: true, etag, last_modified }
    }
}

/// What the conditions of a request come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Carry out the request. Whether a `Range` counts is for [`if_range`].
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    Failed,
}

/// Evaluates the conditions in the order of section 13.2.2. `now` is in Unix seconds.
#[inline]
pub fn evaluate(method: Method, fields: Fields<'_>, current: &Validators<'_>, now: i64) -> Precondition {
    // Most requests carry none of the five fields: one pass says so.
    if fields.iter().any(|field| is_condition_name(field.name)) {
        evaluate_present(method, fields, current, now)
    } else {
        Precondition::Proceed
    }
}

fn evaluate_present(method: Method, fields: Fields<'_>, current: &Validators<'_>, now: i64) -> Precondition {
    // These select no representation (section 13.2.1).
    if matches!(method, Method::Connect | Method::Options | Method::Trace) {
        return Precondition::Proceed;
    }
    let reads = matches!(method, Method::Get | Method::Head);

    if fields.contains("if-match") {
        if !matches(fields, "if-match", current, |a, b| a.strong_eq(b)) {
            return Precondition::Failed;
        }
    } else if let (Some(date), Some(modified)) =
        (date_condition(fields, "if-unmodified-since", now), current.last_modified)
        && modified > date
    {
        return Precondition::Failed;
    }

    if fields.contains("if-none-match") {
        if matches(fields, "if-none-match", current, |a, b| a.weak_eq(b)) {
            return if reads { Precondition::NotModified } else { Precondition::Failed };
        }
    } else if reads
        && let (Some(date), Some(modified)) =
            (date_condition(fields, "if-modified-since", now), current.last_modified)
        && modified <= date
    {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

/// Whether the `Range` field of the request counts (section 13.1.5): true without an `If-Range`, and true
/// when it holds the current strong validator. `now` is in Unix seconds.
///
/// A date is a strong validator only when it is at least a second old (section 8.8.2.2): within the
/// second, the file may have changed again. It must match exactly; earlier or later is no match.
pub fn if_range(fields: Fields<'_>, current: &Validators<'_>, now: i64) -> bool {
    if !fields.contains("if-range") {
        return true;
    }
    let Some(value) = fields.single("if-range") else { return false };
    if let Some(asked) = EntityTag::parse(value) {
        return current.etag.is_some_and(|etag| etag.strong_eq(asked));
    }
    match (HttpDate::parse(value, now), current.last_modified) {
        (Some(HttpDate(asked)), Some(modified)) => asked == modified && modified < now,
        _ => false,
    }
}

/// Whether the current representation is among those that a field lists.
fn matches(
    fields: Fields<'_>,
    name: &str,
    current: &Validators<'_>,
    is_equal: fn(EntityTag<'_>, EntityTag<'_>) -> bool,
) -> bool {
    if fields.single(name).is_some_and(is_any) {
        return current.exists;
    }
    let Some(etag) = current.etag else { return false };
    let mut lines = fields.iter();
    lines.any(|line| line.is(name) && entity_tags(line.value).any(|listed| is_equal(etag, listed)))
}

/// The date of a condition; a condition with no valid date, or with several, is ignored.
fn date_condition(fields: Fields<'_>, name: &str, now: i64) -> Option<i64> {
    HttpDate::parse(fields.single(name)?, now).map(|date| date.0)
}

/// Takes a few names too many, never one too few.
#[inline]
fn is_condition_name(name: &str) -> bool {
    matches!(name.as_bytes(), [b'i' | b'I', b'f' | b'F', b'-', ..])
}
