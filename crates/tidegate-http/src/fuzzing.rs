//! What the fuzz target calls: every reader of field values, request targets and paths.
//!
//! `fuzz/` hands its input to [`fuzz_http_fields`], and so do the tests of this crate. Not part of the
//! interface: a failed claim panics here, which nothing else in the crate may do.
//!
//! Input: one byte that chooses a length and a method, then the value of a field. A line feed in it begins
//! another line of the same field.

use crate::path::{behind_prefix, both_readings, encode_path, normalise, without_dot_segments};
use crate::range::{ByteRange, Selection, push_content_range, select};
use crate::{
    Authority, CacheControl, ContentCoding, EntityTag, Field, Fields, HttpDate, Method, Target, Validators,
};
use crate::{accept, coding, conditional, etag, media_type, parse_decimal, quality};

/// A moment in 2023, Unix seconds.
const NOW: i64 = 1_700_000_000;

/// All readers over the same bytes.
pub fn fuzz_http_fields(data: &[u8]) {
    let [choice, value @ ..] = data else { return };
    let length = [0, 1, 100, 1_000_000, u64::MAX][usize::from(*choice) % 5];
    let method = [Method::Get, Method::Head, Method::Options, Method::Connect, Method::Post]
        [usize::from(*choice / 5) % 5];
    let lines: Vec<&[u8]> = value.split(|byte| *byte == b'\n').collect();
    dates(value);
    ranges(value, length);
    lists(value, &lines);
    conditions(method, &lines);
    if let Ok(text) = std::str::from_utf8(value) {
        targets(method, text);
    }
}

/// What was read is written in the one form that is sent, and reads the same again.
fn dates(value: &[u8]) {
    if let Some(date) = HttpDate::parse(value, NOW) {
        assert_eq!(HttpDate::parse(&date.format(), NOW), Some(date));
        assert!(date.common_log().is_ascii() && date.rfc3339().is_ascii());
    }
    if let Some(number) = parse_decimal(value) {
        let mut written = Vec::new();
        crate::push_decimal(&mut written, number);
        assert_eq!(parse_decimal(&written), Some(number));
    }
}

/// Ranges lie inside, do not overlap, and never come to more than the whole (FAULTS 29).
fn ranges(value: &[u8], length: u64) {
    for limit in [0, 1, 16, u16::MAX] {
        let Selection::Ranges(ranges) = select(value, length, limit) else { continue };
        let mut sorted: Vec<ByteRange> = ranges.as_slice().to_vec();
        assert!(!sorted.is_empty() && sorted.len() <= usize::from(limit));
        for range in &sorted {
            assert!(range.start < range.end && range.end <= length);
            push_content_range(&mut Vec::new(), *range, length);
        }
        sorted.sort_by_key(|range| range.start);
        assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start), "they overlap");
    }
}

fn lists(value: &[u8], lines: &[&[u8]]) {
    let offered = [ContentCoding::Brotli, ContentCoding::Gzip];
    if let Some(chosen) = coding::negotiate(lines.iter().copied(), &offered) {
        assert!(offered.contains(&chosen) || chosen == ContentCoding::Identity);
    }
    let types = ["text/html", "application/json", "text/plain;charset=utf-8"];
    assert!(accept::prefers(lines.iter().copied(), &types).is_none_or(|chosen| chosen < types.len()));
    CacheControl::parse(lines.iter().copied());
    assert!(quality::qvalue(value).is_none_or(|weight| weight <= 1000));
    for tag in etag::entity_tags(value) {
        let mut written = Vec::new();
        tag.push_to(&mut written);
        let again = EntityTag::parse(&written).expect("a tag that was read is one when written");
        assert!(again.weak == tag.weak && again.weak_eq(tag));
    }
    media_type::for_path(value);
    if let Some(extension) = media_type::extension(value) {
        media_type::for_extension(extension);
    }
}

fn conditions(method: Method, lines: &[&[u8]]) {
    let tag = EntityTag { weak: false, opaque: b"a" };
    for name in ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"] {
        let fields: Vec<Field<'_>> = lines.iter().map(|value| Field { name, value }).collect();
        let current = Validators::new(Some(tag), Some(NOW));
        conditional::evaluate(method, Fields::new(&fields), &current, NOW + 60);
        conditional::if_range(Fields::new(&fields), &current, NOW + 60);
    }
}

/// A path that was accepted climbs nowhere (FAULTS 32), and is the same when written and read again.
fn targets(method: Method, text: &str) {
    let _ = Authority::parse(text.as_bytes());
    if let Ok(target) = Target::parse(method, text)
        && let Some(path) = target.path()
    {
        assert!(path == "*" || path.starts_with('/'));
        normal(path);
    }
    normal(text);
}

fn normal(raw: &str) {
    if let Ok((as_separator, as_data)) = both_readings(raw) {
        assert!(as_separator.starts_with(b"/") && as_data.starts_with(b"/"));
    }
    let _ = (without_dot_segments(raw), behind_prefix(raw, "/a/b"));
    let mut scratch = Vec::new();
    let Ok(path) = normalise(raw, &mut scratch) else { return };
    assert!(path.starts_with(b"/") && !path.contains(&0));
    let (last, before) = path[1..]
        .split(|byte| *byte == b'/')
        .collect::<Vec<_>>()
        .split_last()
        .map_or((&[][..], Vec::new()), |(last, before)| (*last, before.to_vec()));
    assert!(before.iter().chain([&last]).all(|segment| *segment != b".." && *segment != b"."));
    assert!(before.iter().all(|segment| !segment.is_empty()));
    let written = encode_path(path);
    let mut scratch = Vec::new();
    assert_eq!(normalise(&written, &mut scratch), Ok(path));
}
