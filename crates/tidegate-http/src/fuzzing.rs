//! What the fuzz targets call: every reader of field values, request targets and paths, and the rules of the
//! cache.
//!
//! `fuzz/` hands its input to [`fuzz_http_fields`] and [`fuzz_http_cache`], and so do the tests of this crate.
//! Not part of the interface: a failed claim panics here, which nothing else in the crate may do.
//!
//! Input of the first: one byte that chooses a length and a method, then the value of a field. A line feed in it
//! begins another line of the same field. Of the second: one byte that chooses a status and settings, then the
//! lines of a request, an empty line, and those of a response.

use crate::cache::key::{KeyRules, QueryRules, Resource};
use crate::cache::{
    Answered, Asked, Base, CacheStatus, Forward, Freshness, NoVarySearch, Rules, Times, Use, Varying,
};
use crate::path::{behind_prefix, both_readings, encode_path, normalise, split_normal, without_dot_segments};
use crate::range::{ByteRange, Selection, push_content_range, select};
use crate::{
    Authority, CacheControl, ContentCoding, EntityTag, Field, FieldLines, Fields, HttpDate, Method, Status,
    Target, Validators,
};
use crate::{accept, cache, coding, conditional, etag, media_type, parse_decimal, quality};

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
        if let Some(split) = split_normal(text) {
            assert_eq!(split, (path, target.query()));
            let mut scratch = Vec::new();
            assert_eq!(normalise(path, &mut scratch), Ok(path.as_bytes()));
        }
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

/// The rules of the cache over a request and its response.
pub fn fuzz_http_cache(data: &[u8]) {
    let [choice, text @ ..] = data else { return };
    let status = Status([200, 206, 301, 304, 404, 299, 503, 100][usize::from(*choice) % 8]);
    let is_set = |bit: u8| choice >> bit & 1 == 1;
    let rules = Rules {
        heuristic: is_set(3),
        keeps_set_cookie: is_set(4),
        ignores_cookies: is_set(5),
        keeps_tags: is_set(6),
        stale_if_error: is_set(7).then_some(60),
        ..Rules::default()
    };
    let mut heads = [FieldLines::new(), FieldLines::new()];
    let mut at = 0;
    for line in text.split(|byte| *byte == b'\n') {
        match memchr::memchr(b':', line) {
            Some(colon) => {
                let name = std::str::from_utf8(&line[..colon]).unwrap_or_default();
                heads[at].push(name, &line[colon + 1..]);
            }
            None => at = 1,
        }
    }
    let [request, response] = &heads;
    let fields: Vec<Field<'_>> = request.iter().map(|(name, value)| Field { name, value }).collect();
    let fields = Fields::new(&fields);
    let asked = Asked { method: Method::Get, fields, has_content: false, is_obeyed: true };
    let answered = Answered { status, fields: response };
    stores(&asked, &answered, &rules);
    invalidates(&answered);
    keys(&asked, response);
}

/// What is stored is used within its bounds, and reads the same from a disk.
fn stores(asked: &Asked<'_>, answered: &Answered<'_>, rules: &Rules) {
    let times = Times { asked: NOW - 1, answered: NOW };
    let lines = cache::stored_fields(answered, NOW, rules);
    assert!(!lines.contains("Age") && !lines.contains("Connection") && !lines.contains("Transfer-Encoding"));
    assert!(rules.keeps_set_cookie || !lines.contains("Set-Cookie"));
    assert_eq!(lines.all("Date").filter(|date| HttpDate::parse(date, NOW).is_some()).count().min(1), 1);
    if let Ok(varying) = Varying::of(answered, asked.fields, rules) {
        assert!(varying.fits(asked.fields) && varying.same_names(&varying));
        assert_eq!(Varying::from_bytes(varying.as_bytes()), Some(varying));
    }
    let conditions = cache::validators(Some(&lines), [answered.fields]);
    assert!(conditions.iter().count() <= 2);
    assert!(cache::selected_by_304([&lines], answered.fields).len() <= 1);
    let length = cache::partial::content_range(answered.fields).and_then(|range| range.length);
    if cache::partial::combines(&lines, length, answered.fields) {
        assert!(cache::partial::if_range(&lines).is_some());
    }
    cache::groups::tags(answered.fields).for_each(|tag| assert!(!tag.is_empty()));
    assert!(cache::groups::groups(answered.fields).len() <= cache::groups::MOST_GROUPS);
    let _ = (cache::lookup_allowed(asked), cache::may_join(asked), cache::only_if_cached(asked));

    let Ok(freshness) = cache::storable(asked, answered, times, rules) else { return };
    assert!((200..600).contains(&answered.status.0) && answered.status.0 != 304);
    assert_eq!(Freshness::from_bytes(&freshness.to_bytes()), Some(freshness));
    for after in [-1, 0, 1, 60, 1 << 40, i64::MAX - NOW] {
        let verdict = cache::usable(asked, &freshness, NOW + after);
        assert_eq!(verdict.use_ == Use::Fresh, verdict.use_ == Use::Fresh && verdict.ttl > 0);
        if freshness.must_revalidate() || freshness.no_cache() {
            assert!(!matches!(verdict.use_, Use::Stale | Use::StaleWhileRevalidate));
            assert!(!cache::usable_on_error(asked, &freshness, NOW + after) || verdict.ttl > 0);
        }
        assert!(cache::usable(asked, &freshness.expired(NOW + after), NOW + after).use_ != Use::Fresh);
    }
    let current = cache::current_validators(&lines, &freshness);
    conditional::evaluate(Method::Get, asked.fields, &current, NOW);
    let stored = Answered { fields: &lines, ..*answered };
    let (again, _) = cache::refreshed(&stored, answered.fields, times, rules);
    assert_eq!(again.first("Content-Length"), lines.first("Content-Length"));
    cache::head_says(&lines, Some(1), answered);
}

/// Nothing of another origin becomes invalid, and nothing by a safe method.
fn invalidates(answered: &Answered<'_>) {
    let base =
        Base { scheme: "https", authority: Authority { host: "a.example", port: None }, target: "/b/c?d" };
    let found = cache::invalidated(Method::Post, Status::OK, &base, answered.fields);
    assert!(found.targets.len() <= 3 && found.targets.iter().all(|target| target.starts_with('/')));
    let safe = cache::invalidated(Method::Get, Status::OK, &base, answered.fields);
    assert!(safe.targets.is_empty() && safe.groups.is_empty());
}

/// The normal form of a query is its own, and a key begins no other one.
fn keys(asked: &Asked<'_>, response: &FieldLines) {
    let target = asked.fields.first("x-target").and_then(|value| std::str::from_utf8(value).ok());
    let resource = Resource {
        scheme: "https",
        authority: Authority { host: "a.example", port: None },
        site: "",
        target: target.unwrap_or("/"),
        fields: asked.fields,
    };
    let search = NoVarySearch::parse(response);
    let query = QueryRules { is_sorted: true, dropped: ["a*"].into_iter().collect(), kept: None };
    let rules = KeyRules { query, cookies: ["a", "b*"].into_iter().collect() };
    let (mut plain, mut ruled) = (Vec::new(), Vec::new());
    cache::key::write(&mut plain, &resource, &KeyRules::default(), search.as_ref());
    cache::key::write(&mut ruled, &resource, &rules, None);
    assert!(!plain.is_empty() && !ruled.is_empty());
    if let Some(search) = search {
        assert!(search.is_same(target, target));
    }
    let mut lines = FieldLines::new();
    let detail = target.unwrap_or_default();
    CacheStatus::forwarded(detail, Forward::Miss).detail(detail).key(&plain).append_to(&mut lines);
    if let Some(status) = lines.first("Cache-Status") {
        assert!(sfv::Parser::new(status).parse::<sfv::List>().is_ok_and(|list| list.len() == 1));
    }
}
