//! `Cache-Status`, and `CDN-Loop`.

use tidegate_http::cache::{CacheStatus, Forward, NotStored, cdn_loop};
use tidegate_http::{FieldLines, Fields, Status};

use super::{fields, lines};

#[test]
#[rustfmt::skip]
fn members() {
    let long = "a".repeat(400);
    let too_long = "a".repeat(600);
    let forwarded = |why| CacheStatus::forwarded("tidegate", why);
    for (clause, status, expected) in [
        ("9211-2.1 hit", CacheStatus::hit("tidegate", 376), "tidegate; hit; ttl=376"),
        ("9211-2.4 stale", CacheStatus::hit("tidegate", -412), "tidegate; hit; ttl=-412"),
        ("9211-2.2 fwd", forwarded(Forward::UriMiss), "tidegate; fwd=uri-miss"),
        ("9211-2.3 fwd-status", forwarded(Forward::Stale).forward_status(Status::NOT_MODIFIED).ttl(60), "tidegate; fwd=stale; fwd-status=304; ttl=60"),
        ("9211-2.5 stored", forwarded(Forward::Miss).stored(true), "tidegate; fwd=miss; stored"),
        ("9211-2.6 collapsed", forwarded(Forward::Miss).stored(false).collapsed(true), "tidegate; fwd=miss; collapsed"),
        ("9211-2.5 only where forwarded", CacheStatus::hit("tidegate", 1).stored(true).collapsed(true).forward_status(Status::OK), "tidegate; hit; ttl=1"),
        ("9211-2.8 detail: token", forwarded(Forward::Miss).detail(NotStored::NoLifetime.reason().as_str()), "tidegate; fwd=miss; detail=no-lifetime"),
        ("9211-2.8 detail: string", forwarded(Forward::Bypass).detail("say \"why\""), "tidegate; fwd=bypass; detail=\"say \\\"why\\\"\""),
        ("9211-2.7 key", forwarded(Forward::Miss).key(b"a\"\\\x00\xfc"), "tidegate; fwd=miss; key=\"a\\\"\\\\??\""),
        ("9211-2 name: string", CacheStatus::hit("edge 1", 1), "\"edge 1\"; hit; ttl=1"),
        ("9211-2 name: not a token", CacheStatus::hit("1edge", 1), "\"1edge\"; hit; ttl=1"),
        ("9211-2 name: a host", CacheStatus::hit("edge.example:8080/a", 1), "edge.example:8080/a; hit; ttl=1"),
        ("9211-2 name: empty", CacheStatus::hit("", 1), "\"\"; hit; ttl=1"),
        ("9651-3.3.1 too large", CacheStatus::hit("a", i64::MIN), "a; hit; ttl=-999999999999999"),
        ("what does not fit is left out", forwarded(Forward::Miss).stored(true).detail(&long).key(long.as_bytes()), &format!("tidegate; fwd=miss; stored; detail={long}")),
        ("what does not fit is left out", forwarded(Forward::Miss).detail(&too_long).key(b"k"), "tidegate; fwd=miss; key=\"k\""),
    ] {
        let mut lines = FieldLines::new();
        status.append_to(&mut lines);
        assert_eq!(lines.first("Cache-Status"), Some(expected.as_bytes()), "{clause}");
        let parsed: Result<sfv::List, _> = sfv::Parser::new(expected).parse();
        assert_eq!(parsed.map(|list| list.len()).ok(), Some(1), "{clause}: a structured list");
    }
    for (why, expected) in [
        (Forward::Bypass, "bypass"), (Forward::Method, "method"), (Forward::UriMiss, "uri-miss"), (Forward::VaryMiss, "vary-miss"),
        (Forward::Miss, "miss"), (Forward::Request, "request"), (Forward::Stale, "stale"), (Forward::Partial, "partial"),
    ] {
        assert_eq!(why.as_str(), expected, "9211-2.2");
    }
}

#[test]
fn behind_the_caches_before() {
    let mut found = lines("Cache-Status: origin; hit; ttl=9\nX-A: 1");
    CacheStatus::forwarded("tidegate", Forward::Miss).append_to(&mut found);
    let expected = lines("Cache-Status: origin; hit; ttl=9\nX-A: 1\nCache-Status: tidegate; fwd=miss");
    assert_eq!(found, expected, "9211-2");
}

#[test]
fn loops() {
    for (clause, request, expected) in [
        ("8586-2 none", "X-A: 1", 0),
        ("8586-2 once", "CDN-Loop: foo123.foocdn.example, tide; abc=123", 1),
        ("8586-2 several lines", "CDN-Loop: Tide\ncdn-loop: a, tide;x=\"a, tide\"", 2),
        ("8586-2 another", "CDN-Loop: tide2, a-tide, tide:80", 0),
    ] {
        let lines = lines(request);
        assert_eq!(cdn_loop::passes(Fields::new(&fields(&lines)), "tide"), expected, "{clause}");
    }
    let mut request = lines("CDN-Loop: a");
    cdn_loop::append_to(&mut request, "tide");
    assert_eq!(request, lines("CDN-Loop: a\nCDN-Loop: tide"), "8586-2");
}
