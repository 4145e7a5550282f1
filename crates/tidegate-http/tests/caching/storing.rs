//! What may be stored, for how long, and which fields: a row for each clause.

use tidegate_http::cache::{
    Answered, Asked, DefaultLifetime, LifetimeSource, NotStored, Rules, Times, storable, stored_fields,
};
use tidegate_http::{Fields, Method, Status};

use super::{NOW, fields, fresh, lines, stored};

/// The clause, a request, a status, a response, and its lifetime in seconds or why it is not stored.
type Row<'a> = (&'a str, &'a str, u16, &'a str, Result<u32, NotStored>);

fn table(rows: &[Row<'_>], rules: &Rules) {
    for (clause, request, status, response, expected) in rows {
        let found = stored(request, *status, response, rules).map(|freshness| freshness.lifetime);
        assert_eq!(found, *expected, "{clause}: {response}");
    }
}

#[test]
#[rustfmt::skip]
fn what_may_be_stored() {
    use NotStored::*;
    table(
        &[
            ("9111-3 explicit lifetime", "", 200, "Cache-Control: max-age=60", Ok(60)),
            ("9111-3 no lifetime", "", 200, "Content-Type: text/html", Err(NoLifetime)),
            ("9111-3 Expires", "", 200, "Date: @0\nExpires: @60", Ok(60)),
            ("9111-3 not a final status", "", 100, "Cache-Control: max-age=60", Err(Status)),
            ("9111-3 a status that nobody knows", "", 299, "Cache-Control: max-age=60", Ok(60)),
            ("9111-3 a 304", "", 304, "Cache-Control: max-age=60", Err(Status)),
            ("9111-3 errors with a lifetime", "", 404, "Cache-Control: max-age=60", Ok(60)),
            ("9111-3 errors with a lifetime", "", 503, "Cache-Control: max-age=60", Ok(60)),
            ("brought about by fields of one request", "", 431, "Cache-Control: max-age=60", Err(StatusOfRequest)),
            ("brought about by a range", "", 416, "Cache-Control: max-age=60", Err(StatusOfRequest)),
            ("brought about by a condition", "", 412, "Cache-Control: s-maxage=60", Err(StatusOfRequest)),
            ("brought about by credentials", "", 401, "Cache-Control: s-maxage=60", Err(Status)),
            ("poisoned denial", "", 400, "Cache-Control: max-age=60", Err(StatusOfRequest)),
            ("a 400 for everybody", "", 400, "Cache-Control: s-maxage=60", Ok(60)),
            ("9111-5.2.2.5 no-store", "", 200, "Cache-Control: max-age=60, no-store", Err(NoStore)),
            ("9111-5.2.2.5 beside public", "", 200, "Cache-Control: public, no-store, s-maxage=9", Err(NoStore)),
            ("9111-5.2.2.5 on another line", "", 200, "Cache-Control: max-age=60\nCache-Control: No-Store", Err(NoStore)),
            ("9111-5.2.2.7 private", "", 200, "Cache-Control: private, max-age=60", Err(Private)),
            ("9111-5.2.2.7 beside public", "", 200, "Cache-Control: public, private, max-age=60", Err(Private)),
            ("9111-5.2.2.7 fields", "", 200, "Cache-Control: private=\"X-User\", max-age=60", Ok(60)),
            ("9111-5.2.2.7 not a list", "", 200, "Cache-Control: private=\"\", max-age=60", Err(Private)),
            ("9111-5.2.2.3 must-understand", "", 200, "Cache-Control: max-age=60, must-understand, no-store", Ok(60)),
            ("9111-5.2.2.3 unknown status", "", 299, "Cache-Control: max-age=60, must-understand, no-store", Err(Status)),
            ("9111-5.2.2.3 unknown status alone", "", 299, "Cache-Control: max-age=60, must-understand", Err(Status)),
            ("9111-5.2.2.3 private all the same", "", 200, "Cache-Control: max-age=60, must-understand, private", Err(Private)),
            ("9111-5.2.1.5 request no-store", "Cache-Control: no-store", 200, "Cache-Control: max-age=60", Err(RequestNoStore)),
            ("9111-5.2.2.4 no-cache with a validator", "", 200, "Cache-Control: no-cache\nETag: \"a\"", Ok(0)),
            ("9111-5.2.2.4 no-cache without", "", 200, "Cache-Control: no-cache", Err(NoLifetime)),
            ("9111-5.2.2.4 no-cache without", "", 200, "Cache-Control: no-cache, max-age=60", Err(Unusable)),
            ("9111-4.2 stale at once", "", 200, "Cache-Control: max-age=0", Err(Unusable)),
            ("9111-4.2 stale at once, with a validator", "", 200, "Cache-Control: max-age=0\nETag: \"a\"", Ok(0)),
            ("9111-4.2 stale at once, with a date", "", 200, "Cache-Control: max-age=0\nLast-Modified: @-9", Ok(0)),
            ("9111-4.2 a validator that is none", "", 200, "Cache-Control: max-age=0\nETag: a", Err(Unusable)),
            ("5861-3 stale at once, to be used so", "", 200, "Cache-Control: max-age=0, stale-while-revalidate=9", Ok(0)),
            ("9111-4.2.3 older than it may be", "", 200, "Cache-Control: max-age=60\nAge: 61", Err(Unusable)),
        ],
        &Rules::default(),
    );
}

#[test]
#[rustfmt::skip]
fn what_a_request_forbids() {
    use NotStored::*;
    let (basic, cookie) = ("Authorization: Basic eA==", "Cookie: a=b");
    table(
        &[
            ("9111-3.5", basic, 200, "Cache-Control: max-age=60", Err(Authorization)),
            ("9111-3.5 public", basic, 200, "Cache-Control: max-age=60, public", Ok(60)),
            ("9111-3.5 s-maxage", basic, 200, "Cache-Control: s-maxage=60", Ok(60)),
            ("9111-3.5 must-revalidate", basic, 200, "Cache-Control: max-age=60, must-revalidate", Ok(60)),
            ("9111-3.5 proxy-revalidate is none of these", basic, 200, "Cache-Control: max-age=60, proxy-revalidate", Err(Authorization)),
            ("9213-2.2 the same in a targeted field", basic, 200, "CDN-Cache-Control: max-age=60", Err(Authorization)),
            ("9213-2.2 the same in a targeted field", basic, 200, "CDN-Cache-Control: max-age=60, public", Ok(60)),
            ("deception: cookie", cookie, 200, "Cache-Control: max-age=60", Err(Cookie)),
            ("deception: must-revalidate is not said to caches alone", cookie, 200, "Cache-Control: max-age=60, must-revalidate", Err(Cookie)),
            ("deception: public", cookie, 200, "Cache-Control: max-age=60, public", Ok(60)),
            ("deception: s-maxage", cookie, 200, "Cache-Control: s-maxage=60", Ok(60)),
            ("deception: targeted", cookie, 200, "CDN-Cache-Control: max-age=60", Err(Cookie)),
            ("7.3 Set-Cookie", "", 200, "Cache-Control: max-age=60\nSet-Cookie: a=b", Err(SetCookie)),
            ("7.3 Set-Cookie for all", "", 200, "Cache-Control: max-age=60, public\nSet-Cookie: a=b", Ok(60)),
            ("7.3 Set-Cookie that is listed", "", 200, "Cache-Control: max-age=60, no-cache=\"set-cookie\"\nSet-Cookie: a=b", Ok(60)),
            ("9111-3 a part", "", 206, "Cache-Control: max-age=60\nETag: \"a\"\nContent-Range: bytes 0-1/9", Err(Part)),
            ("9111-3.3 a part that was asked for", "Range: bytes=0-1", 206, "Cache-Control: max-age=60\nETag: \"a\"\nContent-Range: bytes 0-1/9", Ok(60)),
            ("9111-3.4 a part with a weak tag", "Range: bytes=0-1", 206, "Cache-Control: max-age=60\nETag: W/\"a\"\nContent-Range: bytes 0-1/9", Err(Part)),
            ("9111-3.4 several parts", "Range: bytes=0-1,5-6", 206, "Cache-Control: max-age=60\nETag: \"a\"\nContent-Type: multipart/byteranges; boundary=x", Err(Part)),
        ],
        &Rules::default(),
    );
    let rules = Rules { keeps_set_cookie: true, ignores_cookies: true, ..Rules::default() };
    table(
        &[
            ("settings: cookies", cookie, 200, "Cache-Control: max-age=60", Ok(60)),
            ("settings: Set-Cookie", "", 200, "Cache-Control: max-age=60\nSet-Cookie: a=b", Ok(60)),
            ("settings: Authorization all the same", basic, 200, "Cache-Control: max-age=60", Err(Authorization)),
        ],
        &rules,
    );
}

#[test]
fn one_client_keeps_nobody_from_being_served() {
    let why =
        |request, response| stored(request, 200, response, &Rules::default()).expect_err("it is not stored");
    assert!(why("Cookie: a=b", "Cache-Control: max-age=60").is_of_request());
    assert!(why("Authorization: a", "Cache-Control: max-age=60").is_of_request());
    assert!(why("Cache-Control: no-store", "Cache-Control: max-age=60").is_of_request());
    for response in ["Cache-Control: no-store", "Cache-Control: private", "X-A: 1"] {
        assert!(!why("", response).is_of_request(), "{response}");
        assert!(!why("Cookie: a=b", response).is_of_request(), "{response}: for others neither");
    }
}

#[test]
fn only_answers_to_get() {
    let response = lines("Cache-Control: max-age=60");
    let answered = Answered { status: Status::OK, fields: &response };
    let (times, rules) = (Times { asked: NOW, answered: NOW }, Rules::default());
    let asked =
        |method, has_content, is_obeyed| Asked { method, fields: Fields::new(&[]), has_content, is_obeyed };
    for (method, has_content, expected) in [
        (Method::Get, false, None),
        (Method::Get, true, Some(NotStored::Content)),
        (Method::Head, false, Some(NotStored::Method)),
        (Method::Post, true, Some(NotStored::Method)),
        (Method::Other, false, Some(NotStored::Method)),
    ] {
        let found = storable(&asked(method, has_content, true), &answered, times, &rules);
        assert_eq!(found.err(), expected, "{method:?}");
    }
    let no_store = lines("Cache-Control: no-store");
    let fields = fields(&no_store);
    let stranger = Asked { fields: Fields::new(&fields), ..asked(Method::Get, false, false) };
    assert!(
        storable(&stranger, &answered, times, &rules).is_ok(),
        "who may not force a fetch keeps nothing out"
    );
}

#[test]
#[rustfmt::skip]
fn lifetimes() {
    use NotStored::NoLifetime;
    table(
        &[
            ("9111-4.2.1 s-maxage first", "", 200, "Cache-Control: max-age=60, s-maxage=600", Ok(600)),
            ("9111-4.2.1 max-age before Expires", "", 200, "Cache-Control: max-age=60\nExpires: @600", Ok(60)),
            ("9111-4.2.1 twice", "", 200, "Cache-Control: max-age=60\nCache-Control: max-age=30", Ok(30)),
            ("9111-4.2.1 twice", "", 200, "Cache-Control: s-maxage=30, s-maxage=60", Ok(30)),
            ("9111-4.2.1 malformed", "", 200, "Cache-Control: max-age=1.5\nETag: \"a\"", Ok(0)),
            ("9111-4.2.1 malformed hides Expires", "", 200, "Cache-Control: max-age=x\nExpires: @60\nETag: \"a\"", Ok(0)),
            ("9111-1.2.2 too large", "", 200, "Cache-Control: max-age=99999999999", Ok(1 << 31)),
            ("9111-1.2.2 2^31", "", 200, "Cache-Control: max-age=2147483648", Ok(1 << 31)),
            ("9111-5.2 an argument in quotes", "", 200, "Cache-Control: max-age=\"60\"", Ok(60)),
            ("9111-5.2 names have no case", "", 200, "cache-control: MAX-AGE=60", Ok(60)),
            ("9111-5.2.3 what is unknown", "", 200, "Cache-Control: community=\"a, no-store\", max-age=60", Ok(60)),
            ("9111-5.3 Expires less Date", "", 200, "Date: @-10\nExpires: @60", Ok(70)),
            ("9111-5.3 without Date", "", 200, "Expires: @60", Ok(60)),
            ("9111-5.3 with a Date that is none", "", 200, "Date: yesterday\nExpires: @60", Ok(60)),
            ("9111-5.3 no date", "", 200, "Expires: 0\nETag: \"a\"", Ok(0)),
            ("9111-5.3 past", "", 200, "Expires: @-60\nETag: \"a\"", Ok(0)),
            ("9111-4.2.1 Expires twice", "", 200, "Expires: @60\nExpires: @30", Ok(30)),
            ("9111-4.2.1 Expires twice", "", 200, "Expires: @60\nExpires: -1\nETag: \"a\"", Ok(0)),
            ("9213-2.2 first", "", 200, "Cache-Control: max-age=60\nCDN-Cache-Control: max-age=600", Ok(600)),
            ("9213-2.2 the more specific", "", 200, "CDN-Cache-Control: max-age=60\nTidegate-Cache-Control: max-age=9", Ok(9)),
            ("9213-2.2 over no-store", "", 200, "Cache-Control: no-store\nCDN-Cache-Control: max-age=600", Ok(600)),
            ("9213-3.1 over no-store, nothing else said", "", 200, "Cache-Control: no-store\nCDN-Cache-Control: none", Err(NoLifetime)),
            ("9213-2.2 Expires does not count", "", 200, "Expires: @60\nCDN-Cache-Control: public", Err(NoLifetime)),
            ("9213-2.1 empty", "", 200, "Cache-Control: max-age=60\nCDN-Cache-Control:", Ok(60)),
            ("9213-2.1 not a dictionary", "", 200, "Cache-Control: max-age=60\nCDN-Cache-Control: max-age=600,,", Ok(60)),
            ("9213-2.1 large letters are no key", "", 200, "Cache-Control: max-age=60\nCDN-Cache-Control: Max-Age=600", Ok(60)),
            ("9213-2.1 wrong first, the next counts", "", 200, "Tidegate-Cache-Control: =\nCDN-Cache-Control: max-age=600", Ok(600)),
            ("9213-2.1 parameters", "", 200, "CDN-Cache-Control: max-age=600;x=1", Ok(600)),
            ("9213-2.1 two lines", "", 200, "CDN-Cache-Control: max-age=600\nCDN-Cache-Control: s-maxage=9", Ok(9)),
            ("9213-2.1 of another type", "", 200, "CDN-Cache-Control: max-age=6.5\nETag: \"a\"", Ok(0)),
            ("9213-2.1 of another type", "", 200, "CDN-Cache-Control: max-age=\"60\"\nETag: \"a\"", Ok(0)),
            ("9213-2.1 of another type", "", 200, "CDN-Cache-Control: max-age=(60)\nETag: \"a\"", Ok(0)),
            ("9213-2.1 negative", "", 200, "CDN-Cache-Control: max-age=-1\nETag: \"a\"", Ok(0)),
            ("9213-2.1 false", "", 200, "CDN-Cache-Control: max-age=60, no-store=?0", Ok(60)),
            ("9213-2.2 no-store", "", 200, "CDN-Cache-Control: max-age=60, no-store", Err(NotStored::NoStore)),
            ("9213-2.2 private", "", 200, "CDN-Cache-Control: max-age=60, private", Err(NotStored::Private)),
            ("9213-2.2 private of another type", "", 200, "CDN-Cache-Control: max-age=60, private=1", Err(NotStored::Private)),
            ("9213-2.2 of a cookie", "", 200, "CDN-Cache-Control: max-age=60\nSet-Cookie: a=b", Err(NotStored::SetCookie)),
            ("9213-2.2 of a cookie", "", 200, "CDN-Cache-Control: max-age=60, public\nSet-Cookie: a=b", Ok(60)),
            ("9213-2.2 to a cookie", "Cookie: a=b", 200, "Tidegate-Cache-Control: max-age=60", Err(NotStored::Cookie)),
            ("9213-2.2 to a cookie", "Cookie: a=b", 200, "Tidegate-Cache-Control: s-maxage=60", Ok(60)),
            ("9213-2.2 not ours", "", 200, "Surrogate-Control: max-age=60", Err(NoLifetime)),
            ("9111-4.2.2 only where the settings say so", "", 200, "Last-Modified: @-1000", Err(NoLifetime)),
        ],
        &Rules::default(),
    );
}

#[test]
#[rustfmt::skip]
fn lifetimes_that_nobody_has_named() {
    use NotStored::NoLifetime;
    let lifetime = |statuses, seconds| DefaultLifetime { statuses, seconds };
    let mut rules = Rules { heuristic: true, ..Rules::default() };
    table(
        &[
            ("9111-4.2.2 a tenth", "", 200, "Date: @0\nLast-Modified: @-1000", Ok(100)),
            ("9111-4.2.2 a day at most", "", 200, "Last-Modified: @-99999999", Ok(86_400)),
            ("9111-4.2.2 modified in future", "", 200, "Last-Modified: @60", Ok(0)),
            ("9111-4.2.2 no date", "", 200, "ETag: \"a\"", Err(NoLifetime)),
            ("9111-4.2.2 explicit first", "", 200, "Cache-Control: max-age=9\nLast-Modified: @-1000", Ok(9)),
            ("9110-15.1 301", "", 301, "Last-Modified: @-1000", Ok(100)),
            ("9110-15.1 302", "", 302, "Last-Modified: @-1000", Err(NoLifetime)),
            ("9111-4.2.2 public", "", 302, "Last-Modified: @-1000\nCache-Control: public", Ok(100)),
            ("no error by itself", "", 404, "Last-Modified: @-1000", Err(NoLifetime)),
            ("no error by itself", "", 414, "Last-Modified: @-1000\nCache-Control: public", Err(NoLifetime)),
            ("no error by itself", "", 501, "Last-Modified: @-1000", Err(NoLifetime)),
            ("9111-5.2.2.4 no-cache", "", 200, "Last-Modified: @-1000\nCache-Control: no-cache", Ok(0)),
        ],
        &rules,
    );
    rules.default_lifetimes = vec![lifetime(404..=404, 30), lifetime(400..=499, 5), lifetime(200..=200, 7)];
    table(
        &[
            ("settings", "", 404, "Content-Type: text/html", Ok(30)),
            ("settings", "", 400, "Content-Type: text/html", Ok(5)),
            ("settings before heuristics", "", 200, "Last-Modified: @-1000", Ok(7)),
            ("settings behind the response", "", 404, "Cache-Control: max-age=9", Ok(9)),
            ("settings behind the response", "", 200, "Cache-Control: private", Err(NotStored::Private)),
            ("settings and no directive", "", 200, "Cache-Control: private; max-age=60", Err(NotStored::Malformed)),
            ("settings and no directive", "", 200, "Cache-Control: no-cache; no-store", Err(NotStored::Malformed)),
            ("settings and no directive", "", 200, "Cache-Control: no-store max-age=60", Err(NotStored::Malformed)),
            ("settings and no directive", "", 200, "Cache-Control: no-store;", Err(NotStored::Malformed)),
            ("settings and no directive", "", 200, "Cache-Control: \"private\"", Err(NotStored::Malformed)),
            ("settings and no directive", "", 200, "Cache-Control: max-age=60, ext=\"a, private", Err(NotStored::Malformed)),
            ("settings and no dictionary", "", 200, "CDN-Cache-Control: no-store max-age=60", Err(NoLifetime)),
            ("settings and an extension", "", 200, "Cache-Control: a=\"b, c;\", ,d", Ok(7)),
            ("settings and a status of one request", "", 431, "Content-Type: text/html", Err(NotStored::StatusOfRequest)),
            ("settings and cookies", "Cookie: a=b", 200, "Content-Type: text/html", Err(NotStored::Cookie)),
            ("none of the settings", "", 500, "Content-Type: text/html", Err(NoLifetime)),
        ],
        &rules,
    );
    let source = |response| stored("", 200, response, &rules).expect("stored").source;
    assert_eq!(source("CDN-Cache-Control: max-age=9"), LifetimeSource::Targeted);
    assert_eq!(source("Cache-Control: s-maxage=9"), LifetimeSource::SharedMaxAge);
    assert_eq!(source("Cache-Control: max-age=9"), LifetimeSource::MaxAge);
    assert_eq!(source("Expires: @9"), LifetimeSource::Expires);
    assert_eq!(source("Vary: a"), LifetimeSource::Default);
}

#[test]
fn ages() {
    // The request was sent 2 seconds before.
    for (clause, response, expected) in [
        ("9111-4.2.3 apparent", "Date: @-10", 10),
        ("9111-4.2.3 the delay counts", "Date: @0\nAge: 5", 7),
        ("9111-4.2.3 the larger", "Date: @-10\nAge: 5", 10),
        ("9111-4.2.3 Date in future", "Date: @600", 2),
        ("9111-4.2.3 no Date", "ETag: \"a\"", 2),
        ("9111-4.2.3 a Date that is none", "Date: today", 2),
        ("9111-5.1 a list: the first", "Age: 5, 600", 7),
        ("9111-5.1 two lines: the first", "Age: 5\nAge: 600", 7),
        ("9111-5.1 not a number", "Age: -5", 2),
        ("9111-5.1 not a number", "Age: 5.5", 2),
        ("9111-1.2.2 too large", "Age: 99999999999999999999999", (1 << 31) + 2),
    ] {
        let response = format!("Cache-Control: max-age=3000000000\nETag: \"a\"\n{response}");
        assert_eq!(fresh(&response).age(NOW), expected, "{clause}");
    }
    let freshness = fresh("Date: @-10\nCache-Control: max-age=60");
    assert_eq!((freshness.age(NOW + 20), freshness.ttl(NOW + 20)), (30, 30), "9111-4.2.3 time resident");
    assert_eq!(freshness.age(NOW - 999), 10, "a clock that goes back");
    assert_eq!(freshness.age(i64::MAX), u32::MAX);
    let expired = freshness.expired(NOW + 20);
    assert_eq!((expired.age(NOW + 20), expired.ttl(NOW + 20)), (30, 0), "a soft purge");
}

#[test]
fn stale_allowances() {
    let both = |response: &str, rules: &Rules| {
        let freshness = stored("", 200, response, rules).expect("stored");
        (freshness.stale_while_revalidate, freshness.stale_if_error)
    };
    let said = "stale-while-revalidate=30, stale-if-error=300";
    let rules = Rules { stale_while_revalidate: Some(5), stale_if_error: Some(6), ..Rules::default() };
    for (clause, control, expected) in [
        ("5861-3, 5861-4", "", (30, 300)),
        ("9111-5.2.2.2 must-revalidate", "must-revalidate, ", (0, 0)),
        ("9111-5.2.2.8 proxy-revalidate", "proxy-revalidate, ", (0, 0)),
        ("9111-5.2.2.10 s-maxage", "s-maxage=5, ", (0, 0)),
    ] {
        let response = format!("ETag: \"a\"\nCache-Control: max-age=60, {control}{said}");
        assert_eq!(both(&response, &Rules::default()), expected, "{clause}");
        assert_eq!(both(&response, &rules), expected, "{clause}");
    }
    assert_eq!(both("Cache-Control: max-age=60", &rules), (5, 6), "settings");
    assert_eq!(both("Cache-Control: max-age=60, must-revalidate", &rules), (0, 0), "settings");
    assert_eq!(both("ETag: \"a\"\nCache-Control: no-cache", &rules), (0, 0), "settings");
    assert_eq!(both("Cache-Control: max-age=60, stale-if-error=x", &rules), (5, 0), "malformed: 0");
}

#[test]
#[rustfmt::skip]
fn fields_that_are_stored() {
    let rules = Rules::default();
    let keeping = Rules { keeps_set_cookie: true, keeps_tags: true, ..Rules::default() };
    for (clause, status, response, rules, expected) in [
        ("9111-3.1 all", 200, "X-A: 1\nx-a: 2", &rules, "X-A: 1\nx-a: 2\nDate: @0"),
        ("9110-6.6.1 Date", 200, "X-A: 1\nDate: @-5", &rules, "X-A: 1\nDate: @-5"),
        ("9110-6.6.1 Date that is none", 200, "Date: x\nX-A: 1", &rules, "X-A: 1\nDate: @0"),
        ("9111-3.1 of the connection", 200, "Connection: close, X-A\nX-a: 1\nX-B: 1\nKeep-Alive: 1\nTE: a\nTransfer-Encoding: chunked\nUpgrade: a\nTrailer: b\nProxy-Connection: a", &rules, "X-B: 1\nDate: @0"),
        ("9111-3.1 of the proxy", 200, "Proxy-Authenticate: a\nProxy-Authentication-Info: a", &rules, "Date: @0"),
        ("9111-5.1 Age", 200, "Age: 5\nDate: @0", &rules, "Date: @0"),
        ("9111-5.2.2.4", 200, "Cache-Control: no-cache=\"X-A, x-b\"\nx-a: 1\nX-B: 2\nX-C: 3", &rules, "Cache-Control: no-cache=\"X-A, x-b\"\nX-C: 3\nDate: @0"),
        ("9111-5.2.2.7", 200, "Cache-Control: private=x-a\nx-a: 1", &rules, "Cache-Control: private=x-a\nDate: @0"),
        ("9213-2.1", 200, "CDN-Cache-Control: private=\"x-a\"\nCache-Control: private=x-b\nx-a: 1\nx-b: 2", &rules, "CDN-Cache-Control: private=\"x-a\"\nCache-Control: private=x-b\nx-b: 2\nDate: @0"),
        ("9111-7.3 Set-Cookie", 200, "Set-Cookie: a=b\nCache-Tag: a\nSurrogate-Key: b", &rules, "Date: @0"),
        ("settings", 200, "Set-Cookie: a=b\nCache-Tag: a", &keeping, "Set-Cookie: a=b\nCache-Tag: a\nDate: @0"),
        ("9111-3.4 of the whole", 206, "Content-Range: bytes 0-1/9\nContent-Length: 2\nETag: \"a\"", &rules, "ETag: \"a\"\nDate: @0"),
        ("9110-14.4 means nothing", 200, "Content-Range: bytes 0-1/9\nContent-Length: 2", &rules, "Content-Length: 2\nDate: @0"),
        ("9111-3.1 of the content", 200, "Content-Length: 2\nContent-Encoding: br", &rules, "Content-Length: 2\nContent-Encoding: br\nDate: @0"),
    ] {
        let response = lines(response);
        let answered = Answered { status: Status(status), fields: &response };
        let found = stored_fields(&answered, NOW, rules);
        assert_eq!(
            String::from_utf8_lossy(found.as_bytes()),
            String::from_utf8_lossy(lines(expected).as_bytes()),
            "{clause}"
        );
    }
}
