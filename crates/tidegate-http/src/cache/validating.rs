//! Asking an origin whether what is stored still holds, and what its answer makes of it (RFC 9111
//! sections 3.2 and 4.3).
//!
//! Called when a stored response has to be validated, for the conditions of clients, and for answers to HEAD.

use super::directives::Directives;
use super::freshness::Freshness;
use super::partial::{Strong, strong_date};
use super::storing::{NotStored, add_date, age_said, kept_fields, measured, response_allows};
use super::{Answered, Rules, Times};
use crate::conditional::Validators;
use crate::date::HttpDate;
use crate::decimal::parse_decimal;
use crate::etag::EntityTag;
use crate::field::FieldLines;

/// The conditions of a request to the origin (section 4.3.1). `chosen` is the stored response that is sent if
/// it still holds; `others` are the other variants of the same URI that are complete, whose tags let the
/// origin choose one of them. The client's own conditions have to go first. Empty where nothing has a
/// validator.
pub fn validators<'a>(
    chosen: Option<&'a FieldLines>,
    others: impl IntoIterator<Item = &'a FieldLines>,
) -> FieldLines {
    let mut tags: Vec<u8> = Vec::new();
    let mut known: Vec<&[u8]> = Vec::new();
    for tag in chosen.into_iter().chain(others).filter_map(|lines| lines.first("ETag")) {
        if EntityTag::parse(tag).is_none() || known.contains(&tag) {
            continue;
        }
        known.push(tag);
        if !tags.is_empty() {
            tags.extend_from_slice(b", ");
        }
        tags.extend_from_slice(tag);
    }
    let mut conditions = FieldLines::new();
    if !tags.is_empty() {
        conditions.push("If-None-Match", tags);
    }
    let modified = chosen.and_then(|lines| lines.first("Last-Modified"));
    if let Some(modified) = modified.filter(|value| HttpDate::parse(value, 0).is_some()) {
        conditions.push("If-Modified-Since", modified);
    }
    conditions
}

/// Which of the stored responses, the newest first, a 304 to [`validators`] speaks of (section 4.3.4): all of
/// them are to be updated, the first is for the client. None: the request has to be sent again without
/// conditions.
///
/// A 304 without any validator speaks of the only response that it was asked about. By the letter that one must
/// not have a validator either; but our conditions named no other, so that no other can be meant.
pub fn selected_by_304<'a>(stored: impl IntoIterator<Item = &'a FieldLines>, new: &FieldLines) -> Vec<usize> {
    let stored: Vec<&FieldLines> = stored.into_iter().collect();
    let all = |is_meant: &dyn Fn(&FieldLines) -> bool| -> Vec<usize> {
        stored.iter().enumerate().filter(|(_, lines)| is_meant(lines)).map(|(at, _)| at).collect()
    };
    if let Some(strong) = Strong::of(new) {
        let found = all(&|lines| strong.is_of(lines));
        // A 304 may leave out the tag, and a stored response with a tag has its date all the same.
        return match strong {
            Strong::Date(_) if found.is_empty() && stored.len() == 1 => {
                all(&|lines| is_same_date(lines, new))
            }
            _ => found,
        };
    }
    if let Some(tag) = new.first("ETag") {
        let same = |lines: &FieldLines| {
            let tags = EntityTag::parse(tag).zip(lines.first("ETag").and_then(EntityTag::parse));
            tags.is_some_and(|(one, other)| one.weak_eq(other))
        };
        return all(&same).into_iter().take(1).collect();
    }
    if new.contains("Last-Modified") {
        return all(&|lines| is_same_date(lines, new)).into_iter().take(1).collect();
    }
    if stored.len() == 1 { vec![0] } else { Vec::new() }
}

fn is_same_date(one: &FieldLines, other: &FieldLines) -> bool {
    let date = |lines: &FieldLines| HttpDate::parse(lines.first("Last-Modified")?, 0);
    date(one).is_some() && date(one) == date(other)
}

/// These describe the content, which stays (section 3.2).
const OF_CONTENT: [&str; 4] = ["Content-Length", "Content-Encoding", "Content-Range", "Transfer-Encoding"];

/// The stored fields with those of a newer response instead (section 3.2), which came at `now`, Unix seconds.
/// What describes the content stays, and so does what [`super::stored_fields`] drops.
pub fn updated(stored: &FieldLines, new: &FieldLines, now: i64, rules: &Rules) -> FieldLines {
    let is_of_content = |name: &str| OF_CONTENT.iter().any(|of| of.eq_ignore_ascii_case(name));
    let newer: Vec<_> = kept_fields(new, rules).filter(|(name, _)| !is_of_content(name)).collect();
    let mut lines = FieldLines::with_capacity(stored.as_bytes().len() + new.as_bytes().len());
    for (name, value) in stored.iter() {
        let is_replaced = newer.iter().any(|(newer, _)| newer.eq_ignore_ascii_case(name));
        if !is_replaced && !name.eq_ignore_ascii_case("Date") {
            lines.push_read(name, value);
        }
    }
    newer.into_iter().for_each(|(name, value)| lines.push_read(name, value));
    add_date(&mut lines, now);
    lines
}

/// What a 304 or a matching answer to HEAD makes of a stored response: its fields from now on, and how it may
/// be used.
///
/// The inner error: it may not be stored any longer, and is for this request alone.
pub fn refreshed(
    stored: &Answered<'_>,
    new: &FieldLines,
    times: Times,
    rules: &Rules,
) -> (FieldLines, Result<Freshness, NotStored>) {
    let lines = updated(stored.fields, new, times.answered, rules);
    let now = Answered { status: stored.status, fields: &lines };
    let directives = Directives::of(&lines, rules);
    let freshness = response_allows(&now, &directives, rules)
        .and_then(|()| measured(&now, &directives, age_said(new), times, rules));
    (lines, freshness)
}

/// What a 200 to HEAD says of a stored response to GET (section 4.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadSays {
    /// It still holds: see [`refreshed`].
    Update,
    /// It is another one by now: stale.
    Invalidate,
    /// Nothing.
    Nothing,
}

/// What an answer to HEAD says of a stored response with these fields. `length` is that of its content. Of
/// variants it is for those that fit the request.
pub fn head_says(stored: &FieldLines, length: Option<u64>, answered: &Answered<'_>) -> HeadSays {
    if answered.status.0 != 200 {
        return HeadSays::Nothing;
    }
    let new = answered.fields;
    let new_length = new.first("Content-Length").and_then(parse_decimal);
    let is_other_length = length.zip(new_length).is_some_and(|(stored, new)| stored != new);
    let is_other = |name: &str| new.first(name).is_some_and(|value| stored.first(name) != Some(value));
    if is_other_length || is_other("ETag") || is_other("Last-Modified") {
        return HeadSays::Invalidate;
    }
    if new.contains("ETag") || new.contains("Last-Modified") { HeadSays::Update } else { HeadSays::Nothing }
}

/// What `If-None-Match` and `If-Modified-Since` of a client are held against (section 4.3.2), for
/// [`crate::conditional::evaluate`]. Without a `Last-Modified` the time counts at which the response was made.
pub fn current_validators<'a>(stored: &'a FieldLines, freshness: &Freshness) -> Validators<'a> {
    let etag = stored.first("ETag").and_then(EntityTag::parse);
    let date = |name: &str| HttpDate::parse(stored.first(name)?, freshness.answered).map(|date| date.0);
    let modified = date("Last-Modified").or_else(|| date("Date")).unwrap_or(freshness.answered);
    Validators::new(etag, Some(modified))
}

/// What `If-Range` of a client is held against, for [`crate::conditional::if_range`]: strong validators alone.
pub fn range_validators(stored: &FieldLines) -> Validators<'_> {
    match Strong::of(stored) {
        Some(Strong::Tag(tag)) => Validators::new(Some(tag), strong_date(stored)),
        Some(Strong::Date(modified)) => Validators::new(None, Some(modified)),
        None => Validators::new(None, None),
    }
}
