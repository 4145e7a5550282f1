//! Conditions to the origin, and what its answers make of what is stored.

use tidegate_http::cache::{
    Answered, HeadSays, NotStored, Rules, Times, current_validators, head_says, range_validators, refreshed,
    selected_by_304, updated, validators,
};
use tidegate_http::conditional::{Precondition, evaluate, if_range};
use tidegate_http::{FieldLines, Fields, Method, Status};

use super::{NOW, fields, fresh, lines};

fn text(lines: &FieldLines) -> String {
    String::from_utf8_lossy(lines.as_bytes()).into_owned()
}

#[test]
#[rustfmt::skip]
fn conditions_to_the_origin() {
    for (clause, chosen, others, expected) in [
        ("9111-4.3.1 tag", Some("ETag: \"a\""), vec![], "If-None-Match: \"a\""),
        ("9111-4.3.1 date", Some("Last-Modified: @-9"), vec![], "If-Modified-Since: @-9"),
        ("9111-4.3.1 both", Some("ETag: W/\"a\"\nLast-Modified: @-9"), vec![], "If-None-Match: W/\"a\"\nIf-Modified-Since: @-9"),
        ("9111-4.3.1 all variants", Some("ETag: \"a\""), vec!["ETag: \"b\"", "X-A: 1", "ETag: \"a\""], "If-None-Match: \"a\", \"b\""),
        ("9111-4.3.1 no date of others", None, vec!["ETag: \"b\"\nLast-Modified: @-9"], "If-None-Match: \"b\""),
        ("9111-4.3.1 nothing", Some("X-A: 1"), vec![], ""),
        ("9111-4.3.1 what is none", Some("ETag: a\nLast-Modified: yesterday"), vec![], ""),
    ] {
        let chosen = chosen.map(lines);
        let others: Vec<FieldLines> = others.into_iter().map(lines).collect();
        assert_eq!(text(&validators(chosen.as_ref(), &others)), text(&lines(expected)), "{clause}");
    }
}

#[test]
#[rustfmt::skip]
fn which_one_a_304_speaks_of() {
    // Strong dates: made more than a second after the last change.
    let dated = "Last-Modified: @-90\nDate: @-5";
    for (clause, stored, new, expected) in [
        ("9111-4.3.4 strong", vec!["ETag: \"a\"", "ETag: \"b\""], "ETag: \"b\"", vec![1]),
        ("9111-4.3.4 strong: all of them", vec!["ETag: \"a\"", "ETag: \"b\"", "ETag: \"a\""], "ETag: \"a\"", vec![0, 2]),
        ("9111-4.3.4 strong: none", vec!["ETag: \"a\""], "ETag: \"c\"", vec![]),
        ("9111-4.3.4 strong is not weak", vec!["ETag: W/\"a\""], "ETag: \"a\"", vec![]),
        ("9111-4.3.4 weak: the newest", vec!["ETag: \"b\"", "ETag: W/\"a\"", "ETag: W/\"a\""], "ETag: W/\"a\"", vec![1]),
        ("9111-4.3.4 weak matches strong", vec!["ETag: \"a\""], "ETag: W/\"a\"", vec![0]),
        ("9111-4.3.4 strong date", vec!["X-A: 1", dated, dated], "Last-Modified: @-90\nDate: @0", vec![1, 2]),
        ("9111-4.3.4 another date", vec![dated], "Last-Modified: @-91\nDate: @0", vec![]),
        ("9111-4.3.4 weak date", vec!["Last-Modified: @0\nDate: @0", "Last-Modified: @0\nDate: @0"], "Last-Modified: @0\nDate: @0", vec![0]),
        ("9111-4.3.4 a date for one with a tag", vec!["ETag: \"a\"\nLast-Modified: @-90\nDate: @0"], "Last-Modified: @-90\nDate: @0", vec![0]),
        ("9111-4.3.4 no validator, one stored", vec!["X-A: 1"], "X-B: 1", vec![0]),
        ("no validator, asked about one alone", vec!["ETag: \"a\""], "X-B: 1", vec![0]),
        ("9111-4.3.4 no validator, several stored", vec!["X-A: 1", "X-A: 2"], "X-B: 1", vec![]),
        ("9111-4.3.4 nothing stored", vec![], "ETag: \"a\"", vec![]),
    ] {
        let stored: Vec<FieldLines> = stored.into_iter().map(lines).collect();
        assert_eq!(selected_by_304(&stored, &lines(new)), expected, "{clause}");
    }
}

#[test]
#[rustfmt::skip]
fn stored_fields_are_updated() {
    for (clause, stored, new, expected) in [
        ("9111-3.2 replaced", "X-A: 1\nX-B: 1", "x-a: 2", "X-B: 1\nx-a: 2\nDate: @0"),
        ("9111-3.2 all lines", "X-A: 1\nX-A: 2", "X-A: 3\nX-A: 4", "X-A: 3\nX-A: 4\nDate: @0"),
        ("9111-3.2 added", "X-A: 1", "X-B: 1\nDate: @-1", "X-A: 1\nX-B: 1\nDate: @-1"),
        ("9111-3.2 Content-Length", "Content-Length: 9", "Content-Length: 0", "Content-Length: 9\nDate: @0"),
        ("9111-3.2 what describes the content", "Content-Encoding: br", "Content-Encoding: gzip\nContent-Range: bytes 0-1/2", "Content-Encoding: br\nDate: @0"),
        ("9111-3.2 what describes the content", "X-A: 1", "Transfer-Encoding: chunked\nContent-Length: 3", "X-A: 1\nDate: @0"),
        ("9111-3.1 what is not stored", "X-A: 1", "Set-Cookie: a=b\nConnection: X-A\nX-A: 2\nAge: 9", "X-A: 1\nDate: @0"),
        ("9111-5.2.2.4 what is listed", "X-A: 1", "Cache-Control: no-cache=\"x-a\"\nX-A: 2", "X-A: 1\nCache-Control: no-cache=\"x-a\"\nDate: @0"),
        ("9110-6.6.1 Date is that of the newer one", "Date: @-600", "ETag: \"a\"", "ETag: \"a\"\nDate: @0"),
    ] {
        let found = updated(&lines(stored), &lines(new), NOW, &Rules::default());
        assert_eq!(text(&found), text(&lines(expected)), "{clause}");
    }
}

#[test]
fn a_304_makes_fresh() {
    let refreshed = |stored: &str, new: &str| {
        let stored = lines(stored);
        let times = Times { asked: NOW, answered: NOW };
        refreshed(&Answered { status: Status::OK, fields: &stored }, &lines(new), times, &Rules::default()).1
    };
    let stored = "Cache-Control: max-age=60\nDate: @-600\nETag: \"a\"";
    let found = refreshed(stored, "ETag: \"a\"").expect("9111-4.3.4 its own lifetime anew");
    assert_eq!((found.age(NOW), found.lifetime), (0, 60));
    let found = refreshed(stored, "Cache-Control: max-age=9\nAge: 5").expect("9111-4.3.4 another lifetime");
    assert_eq!((found.age(NOW), found.lifetime), (5, 9));
    assert_eq!(refreshed(stored, "Cache-Control: no-store"), Err(NotStored::NoStore), "9111-3.2");
    assert_eq!(refreshed(stored, "Cache-Control: private"), Err(NotStored::Private), "9111-3.2");
    assert!(refreshed(stored, "Set-Cookie: a=b").is_ok(), "it is not stored");
}

#[test]
#[rustfmt::skip]
fn answers_to_head() {
    let stored = "ETag: \"a\"\nLast-Modified: @-9";
    for (clause, status, new, expected) in [
        ("9111-4.3.5 the same", 200, "ETag: \"a\"\nLast-Modified: @-9\nContent-Length: 10", HeadSays::Update),
        ("9111-4.3.5 the same tag", 200, "ETag: \"a\"", HeadSays::Update),
        ("9111-4.3.5 another tag", 200, "ETag: \"b\"\nLast-Modified: @-9", HeadSays::Invalidate),
        ("9111-4.3.5 another date", 200, "ETag: \"a\"\nLast-Modified: @-8", HeadSays::Invalidate),
        ("9111-4.3.5 another length", 200, "ETag: \"a\"\nContent-Length: 11", HeadSays::Invalidate),
        ("9111-4.3.5 no validator", 200, "Content-Length: 10", HeadSays::Nothing),
        ("9111-4.3.5 not a 200", 404, "ETag: \"b\"", HeadSays::Nothing),
    ] {
        let new = lines(new);
        let answered = Answered { status: Status(status), fields: &new };
        assert_eq!(head_says(&lines(stored), Some(10), &answered), expected, "{clause}");
    }
}

#[test]
#[rustfmt::skip]
fn conditions_of_clients() {
    for (clause, stored, request, expected) in [
        ("9111-4.3.2 tag", "ETag: \"a\"", "If-None-Match: W/\"a\"", Precondition::NotModified),
        ("9111-4.3.2 another tag", "ETag: \"a\"", "If-None-Match: \"b\"", Precondition::Proceed),
        ("9111-4.3.2 tag before date", "ETag: \"a\"\nLast-Modified: @-9", "If-None-Match: \"b\"\nIf-Modified-Since: @0", Precondition::Proceed),
        ("9111-4.3.2 date", "Last-Modified: @-9", "If-Modified-Since: @-9", Precondition::NotModified),
        ("9111-4.3.2 earlier", "Last-Modified: @-9", "If-Modified-Since: @-10", Precondition::Proceed),
        ("9111-4.3.2 its Date stands in", "Date: @-9", "If-Modified-Since: @-9", Precondition::NotModified),
        ("9111-4.3.2 its Date stands in", "Date: @-9", "If-Modified-Since: @-10", Precondition::Proceed),
        ("9111-4.3.2 when it came stands in", "X-A: 1", "If-Modified-Since: @0", Precondition::NotModified),
        ("9111-4.3.2 when it came stands in", "X-A: 1", "If-Modified-Since: @-1", Precondition::Proceed),
    ] {
        let (stored, request) = (lines(stored), lines(request));
        let current = current_validators(&stored, &fresh("Cache-Control: max-age=60"));
        let found = evaluate(Method::Get, Fields::new(&fields(&request)), &current, NOW + 5);
        assert_eq!(found, expected, "{clause}");
    }
}

#[test]
#[rustfmt::skip]
fn ranges_of_clients() {
    for (clause, stored, request, expected) in [
        ("9110-13.1.5 without", "ETag: \"a\"", "X-A: 1", true),
        ("9110-13.1.5 tag", "ETag: \"a\"", "If-Range: \"a\"", true),
        ("9110-13.1.5 another tag", "ETag: \"a\"", "If-Range: \"b\"", false),
        ("9110-13.1.5 weak", "ETag: W/\"a\"", "If-Range: W/\"a\"", false),
        ("9110-13.1.5 strong date", "Last-Modified: @-9\nDate: @0", "If-Range: @-9", true),
        ("9110-13.1.5 date beside a tag", "ETag: \"a\"\nLast-Modified: @-9\nDate: @0", "If-Range: @-9", true),
        ("9110-13.1.5 another date", "Last-Modified: @-9\nDate: @0", "If-Range: @-8", false),
        ("9110-8.8.2.2 weak date", "Last-Modified: @0\nDate: @0", "If-Range: @0", false),
        ("9110-13.1.5 Date is no validator", "Date: @0", "If-Range: @0", false),
    ] {
        let (stored, request) = (lines(stored), lines(request));
        let found = if_range(Fields::new(&fields(&request)), &range_validators(&stored), NOW + 60);
        assert_eq!(found, expected, "{clause}");
    }
}
