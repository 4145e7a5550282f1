//! What a stored response is good for: a row for each clause.

use tidegate_http::cache::{
    Asked, Bypass, Rules, Use, Why, lookup_allowed, may_join, only_if_cached, set_age, usable,
    usable_on_error,
};
use tidegate_http::{FieldLines, Fields, Method};

use super::{NOW, asked, fields, fresh, lines, stored};

#[test]
#[rustfmt::skip]
fn which_requests_may_be_answered() {
    for (clause, method, has_content, request, expected) in [
        ("9111-4 GET", Method::Get, false, "", None),
        ("9111-4 HEAD from GET", Method::Head, false, "", None),
        ("9111-4 others", Method::Post, false, "", Some(Bypass::Method)),
        ("9111-4 others", Method::Options, false, "", Some(Bypass::Method)),
        ("9111-4 unknown", Method::Other, false, "", Some(Bypass::Method)),
        ("9110-9.3.1 content", Method::Get, true, "", Some(Bypass::Content)),
        ("9110-7.8 WebSocket", Method::Get, false, "Connection: upgrade\nUpgrade: websocket", Some(Bypass::Upgrade)),
        ("9111-4.3.2", Method::Get, false, "If-Match: \"a\"", Some(Bypass::Condition)),
        ("9111-4.3.2", Method::Get, false, "If-Unmodified-Since: @0", Some(Bypass::Condition)),
        ("9111-4.3.2 those of caches", Method::Get, false, "If-None-Match: \"a\"\nIf-Range: \"a\"\nRange: bytes=0-1", None),
        ("9111-3.5", Method::Get, false, "Authorization: Basic eA==", None),
    ] {
        let lines = lines(request);
        let fields = fields(&lines);
        let asked = Asked { method, fields: Fields::new(&fields), has_content, is_obeyed: false };
        assert_eq!(lookup_allowed(&asked).err(), expected, "{clause}");
    }
    assert!(asked("", may_join));
    assert!(!asked("Authorization: Basic eA==", may_join));
}

#[test]
#[rustfmt::skip]
fn what_is_stored_is_used() {
    use Use::*;
    // All of them come with an age of 2.
    let day = "Cache-Control: max-age=60\nETag: \"a\"";
    let bare = "Cache-Control: max-age=60";
    let revalidate = "Cache-Control: max-age=60, must-revalidate\nETag: \"a\"";
    let proxy = "Cache-Control: max-age=60, proxy-revalidate\nETag: \"a\"";
    let shared = "Cache-Control: s-maxage=60\nETag: \"a\"";
    let stale = "Cache-Control: max-age=60, stale-while-revalidate=30\nETag: \"a\"";
    let immutable = "Cache-Control: max-age=60, immutable\nETag: \"a\"";
    for (clause, response, request, after, expected, why) in [
        ("9111-4.2 fresh", day, "", 57, Fresh, Why::Fresh),
        ("9111-4.2 stale at the second", day, "", 58, Validate, Why::Stale),
        ("9111-4.2.4 nothing to ask with", bare, "", 58, Fetch, Why::Stale),
        ("9111-5.2.2.4 no-cache", "Cache-Control: no-cache, max-age=60\nETag: \"a\"", "", 0, Validate, Why::NoCache),
        ("9111-5.2.2.4 over max-stale", "Cache-Control: no-cache\nETag: \"a\"", "Cache-Control: max-stale", 0, Validate, Why::NoCache),
        ("9111-5.2.1.4 no-cache", day, "Cache-Control: no-cache", 0, Validate, Why::RequestNoCache),
        ("9111-5.4 Pragma", day, "Pragma: no-cache", 0, Validate, Why::RequestNoCache),
        ("9111-5.4 Pragma beside Cache-Control", day, "Pragma: no-cache\nCache-Control: max-age=9", 0, Fresh, Why::Fresh),
        ("9111-5.2.1.1 max-age", day, "Cache-Control: max-age=10", 8, Fresh, Why::Fresh),
        ("9111-5.2.1.1 max-age", day, "Cache-Control: max-age=10", 9, Validate, Why::RequestMaxAge),
        ("9111-5.2.1.1 malformed", day, "Cache-Control: max-age=x", 0, Validate, Why::RequestMaxAge),
        ("9111-5.2.1.3 min-fresh", day, "Cache-Control: min-fresh=10", 48, Fresh, Why::Fresh),
        ("9111-5.2.1.3 min-fresh", day, "Cache-Control: min-fresh=10", 49, Validate, Why::RequestMinFresh),
        ("9111-5.2.1.2 max-stale", day, "Cache-Control: max-stale=10", 68, Stale, Why::RequestMaxStale),
        ("9111-5.2.1.2 max-stale", day, "Cache-Control: max-stale=10", 69, Validate, Why::Stale),
        ("9111-5.2.1.2 without bound", day, "Cache-Control: max-stale", 9999, Stale, Why::RequestMaxStale),
        ("9111-5.2.1.2 fresh is better", day, "Cache-Control: max-stale", 0, Fresh, Why::Fresh),
        ("9111-5.2.2.2 must-revalidate", revalidate, "Cache-Control: max-stale", 58, Validate, Why::MustRevalidate),
        ("9111-5.2.2.2 while fresh", revalidate, "", 57, Fresh, Why::Fresh),
        ("9111-5.2.2.8 proxy-revalidate", proxy, "Cache-Control: max-stale", 58, Validate, Why::MustRevalidate),
        ("9111-5.2.2.10 s-maxage", shared, "Cache-Control: max-stale", 58, Validate, Why::MustRevalidate),
        ("5861-3", stale, "", 58, StaleWhileRevalidate, Why::StaleWhileRevalidate),
        ("5861-3", stale, "", 87, StaleWhileRevalidate, Why::StaleWhileRevalidate),
        ("5861-3", stale, "", 88, Validate, Why::Stale),
        ("5861-3 the client wants it fresh", stale, "Cache-Control: min-fresh=0", 58, Validate, Why::Stale),
        ("5861-3 the client wants it young", stale, "Cache-Control: max-age=600", 58, Validate, Why::Stale),
        ("8246-2 reload", immutable, "Cache-Control: max-age=0", 9, Fresh, Why::Fresh),
        ("8246-2 forced reload", immutable, "Cache-Control: no-cache", 9, Validate, Why::RequestNoCache),
        ("8246-2 stale", immutable, "Cache-Control: max-age=0", 58, Validate, Why::RequestMaxAge),
        ("credentials", day, "Authorization: Basic eA==", 0, Fetch, Why::Authorization),
        ("9111-3.5 credentials", revalidate, "Authorization: Basic eA==", 0, Fresh, Why::Fresh),
        ("9111-3.5 credentials", shared, "Authorization: Basic eA==", 0, Fresh, Why::Fresh),
    ] {
        let freshness = fresh(response);
        let verdict = asked(request, |asked| usable(asked, &freshness, NOW + after));
        assert_eq!((verdict.use_, verdict.why), (expected, why), "{clause}: {request} after {after}");
        assert_eq!(i64::from(verdict.age), after + 2);
        assert_eq!(verdict.ttl, i64::from(freshness.lifetime) - after - 2);
    }
}

#[test]
fn strangers_force_nothing() {
    let freshness = fresh("Cache-Control: max-age=60, stale-while-revalidate=30\nETag: \"a\"");
    for request in ["no-cache", "max-age=0", "min-fresh=9999", "no-store"] {
        let request = format!("Cache-Control: {request}");
        for (after, expected) in [(0, Use::Fresh), (58, Use::StaleWhileRevalidate), (88, Use::Validate)] {
            let found = asked(&request, |asked| {
                usable(&Asked { is_obeyed: false, ..*asked }, &freshness, NOW + after).use_
            });
            assert_eq!(found, expected, "{request}");
        }
    }
    let found = asked("Cache-Control: max-stale=99", |asked| {
        usable(&Asked { is_obeyed: false, ..*asked }, &freshness, NOW + 99).use_
    });
    assert_eq!(found, Use::Stale, "who asks for less work gets it");
}

#[test]
#[rustfmt::skip]
fn an_origin_that_fails() {
    let allowed = "Cache-Control: max-age=60, stale-if-error=300\nETag: \"a\"";
    for (clause, response, request, after, expected) in [
        ("5861-4", allowed, "", 357, true),
        ("5861-4", allowed, "", 358, false),
        ("5861-4 fresh", "Cache-Control: max-age=60", "", 57, true),
        ("5861-4 not said", "Cache-Control: max-age=60", "", 58, false),
        ("5861-4 by the request", "Cache-Control: max-age=60", "Cache-Control: stale-if-error=9", 66, true),
        ("5861-4 by the request", "Cache-Control: max-age=60", "Cache-Control: stale-if-error=9", 67, false),
        ("9111-4.2.4", "Cache-Control: max-age=60, must-revalidate", "Cache-Control: stale-if-error=9", 58, false),
        ("9111-4.2.4", "Cache-Control: s-maxage=60, stale-if-error=9", "", 58, false),
        ("9111-4.2.4", "Cache-Control: no-cache, stale-if-error=9\nETag: \"a\"", "", 0, false),
        ("credentials", allowed, "Authorization: Basic eA==", 0, false),
    ] {
        let freshness = fresh(response);
        let found = asked(request, |asked| usable_on_error(asked, &freshness, NOW + after));
        assert_eq!(found, expected, "{clause}");
    }
    let rules = Rules { stale_if_error: Some(10), ..Rules::default() };
    let freshness = stored("", 200, "Cache-Control: max-age=60", &rules).expect("stored");
    assert!(asked("", |asked| usable_on_error(asked, &freshness, NOW + 67)), "settings");
}

#[test]
fn only_what_is_stored() {
    assert!(asked("Cache-Control: Only-If-Cached", only_if_cached), "9111-5.2.1.7");
    assert!(!asked("Cache-Control: max-age=0", only_if_cached));
    assert!(!asked("", only_if_cached));
}

#[test]
fn an_age_is_said_once() {
    let mut lines = lines("Age: 5\nX-A: 1\nage: 9");
    set_age(&mut lines, 4_294_967_295);
    assert_eq!(lines.as_bytes(), b"X-A: 1\r\nAge: 4294967295\r\n", "9111-5.1");
    let mut lines = FieldLines::new();
    set_age(&mut lines, 0);
    assert_eq!(lines.as_bytes(), b"Age: 0\r\n", "9111-5.1");
}
