//! `etag` and `conditional`.

use tidegate_http::conditional::{Precondition, Validators, evaluate, if_range};
use tidegate_http::etag::entity_tags;
use tidegate_http::{EntityTag, Field, Fields, Method};

const MODIFIED: i64 = 784_111_777;
const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const STRONG: Validators<'static> =
    Validators::new(Some(EntityTag { weak: false, opaque: b"a" }), Some(MODIFIED));
const WEAK: Validators<'static> =
    Validators::new(Some(EntityTag { weak: true, opaque: b"a" }), Some(MODIFIED));
const BARE: Validators<'static> = Validators::new(None, None);

#[test]
fn tags() {
    let cases: &[(&str, Option<(bool, &str)>)] = &[
        ("\"xyzzy\"", Some((false, "xyzzy"))),
        ("W/\"xyzzy\"", Some((true, "xyzzy"))),
        ("\"\"", Some((false, ""))),
        ("\"a\\\"", Some((false, "a\\"))),
        ("w/\"xyzzy\"", None),
        ("xyzzy", None),
        ("\"xyzzy", None),
        ("\"xy zzy\"", None),
        ("\"a\"b", None),
        ("W/", None),
        ("", None),
    ];
    for (text, expected) in cases {
        let found = EntityTag::parse(text.as_bytes()).map(|tag| (tag.weak, tag.opaque));
        assert_eq!(found, expected.map(|(weak, opaque)| (weak, opaque.as_bytes())), "{text}");
    }
    let list = |text: &'static str| entity_tags(text.as_bytes()).map(|tag| tag.opaque).collect::<Vec<_>>();
    assert_eq!(list("\"a,b\" , W/\"c\\\",,x, \"d\"e, \"f\", *, \"g"), [&b"a,b"[..], b"c\\", b"f"]);
}

#[test]
fn comparison() {
    // RFC 9110 section 8.8.3.2, table 3.
    let tag = |weak, opaque| EntityTag { weak, opaque };
    let cases = [
        (tag(true, b"1"), tag(true, b"1"), false, true),
        (tag(true, b"1"), tag(true, b"2"), false, false),
        (tag(true, b"1"), tag(false, b"1"), false, true),
        (tag(false, b"1"), tag(false, b"1"), true, true),
    ];
    for (a, b, strong, weak) in cases {
        assert_eq!((a.strong_eq(b), a.weak_eq(b)), (strong, weak), "{a:?} {b:?}");
        assert_eq!((b.strong_eq(a), b.weak_eq(a)), (strong, weak), "{b:?} {a:?}");
    }
}

#[test]
fn conditions() {
    use Method::{Get, Head, Options, Other, Put};
    use Precondition::{Failed, NotModified, Proceed};
    type Row<'a> = (&'a str, Method, &'a [(&'a str, &'a str)], Validators<'a>, Precondition);
    let absent = Validators::ABSENT;
    let cases: &[Row<'_>] = &[
        ("none", Get, &[], STRONG, Proceed),
        ("if-match, same", Put, &[("If-Match", "\"a\"")], STRONG, Proceed),
        ("if-match, in a list", Put, &[("If-Match", "\"b\", \"a\"")], STRONG, Proceed),
        ("if-match, second line", Put, &[("If-Match", "\"b\""), ("If-Match", "\"a\"")], STRONG, Proceed),
        ("if-match, other", Put, &[("If-Match", "\"b\"")], STRONG, Failed),
        ("if-match, weak is not enough", Get, &[("If-Match", "W/\"a\"")], WEAK, Failed),
        ("if-match, any", Put, &[("If-Match", "*")], BARE, Proceed),
        ("if-match, any of nothing", Put, &[("If-Match", "*")], absent, Failed),
        ("if-match, garbage", Put, &[("If-Match", "a")], STRONG, Failed),
        (
            "if-match beats the date",
            Put,
            &[("If-Match", "\"a\""), ("If-Unmodified-Since", BEFORE)],
            STRONG,
            Proceed,
        ),
        ("unmodified since then", Put, &[("If-Unmodified-Since", AT)], STRONG, Proceed),
        ("modified since then", Put, &[("If-Unmodified-Since", BEFORE)], STRONG, Failed),
        ("unmodified, no date known", Put, &[("If-Unmodified-Since", BEFORE)], BARE, Proceed),
        ("unmodified, bad date", Put, &[("If-Unmodified-Since", "yesterday")], STRONG, Proceed),
        (
            "unmodified, two dates",
            Put,
            &[("If-Unmodified-Since", BEFORE), ("If-Unmodified-Since", BEFORE)],
            STRONG,
            Proceed,
        ),
        ("if-none-match, same", Get, &[("If-None-Match", "\"a\"")], STRONG, NotModified),
        ("if-none-match, HEAD", Head, &[("if-none-match", "\"a\"")], STRONG, NotModified),
        ("if-none-match, weak", Get, &[("If-None-Match", "W/\"a\"")], STRONG, NotModified),
        ("if-none-match, other", Get, &[("If-None-Match", "\"b\"")], STRONG, Proceed),
        ("if-none-match, PUT", Put, &[("If-None-Match", "\"a\"")], STRONG, Failed),
        ("if-none-match, any", Get, &[("If-None-Match", "*")], BARE, NotModified),
        ("if-none-match, create only", Put, &[("If-None-Match", "*")], absent, Proceed),
        ("if-none-match, unknown method", Other, &[("If-None-Match", "*")], STRONG, Failed),
        (
            "if-none-match beats the date",
            Get,
            &[("If-None-Match", "\"b\""), ("If-Modified-Since", AFTER)],
            STRONG,
            Proceed,
        ),
        ("modified since, same", Get, &[("If-Modified-Since", AT)], STRONG, NotModified),
        ("modified since, later", Get, &[("If-Modified-Since", AFTER)], STRONG, NotModified),
        ("modified since, earlier", Get, &[("If-Modified-Since", BEFORE)], STRONG, Proceed),
        ("modified since, PUT", Put, &[("If-Modified-Since", AT)], STRONG, Proceed),
        ("modified since, bad date", Get, &[("If-Modified-Since", "0")], STRONG, Proceed),
        (
            "both: the match holds, nothing new",
            Get,
            &[("If-None-Match", "\"a\""), ("If-Match", "\"a\"")],
            STRONG,
            NotModified,
        ),
        (
            "both: the match fails first",
            Get,
            &[("If-None-Match", "\"a\""), ("If-Match", "\"b\"")],
            STRONG,
            Failed,
        ),
        ("OPTIONS has no conditions", Options, &[("If-Match", "\"b\"")], STRONG, Proceed),
    ];
    for (name, method, lines, current, expected) in cases {
        let lines: Vec<_> =
            lines.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        let found = evaluate(*method, Fields::new(&lines), current, MODIFIED + 1000);
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn range_conditions() {
    let cases: &[(&str, &[&str], Validators<'_>, i64, bool)] = &[
        ("none", &[], STRONG, 10, true),
        ("same tag", &["\"a\""], STRONG, 10, true),
        ("other tag", &["\"b\""], STRONG, 10, false),
        ("weak asked", &["W/\"a\""], STRONG, 10, false),
        ("weak held", &["\"a\""], WEAK, 10, false),
        ("no tag", &["\"a\""], BARE, 10, false),
        ("two lines", &["\"a\"", "\"a\""], STRONG, 10, false),
        ("same date", &[AT], STRONG, 1, true),
        ("same date, within the second", &[AT], STRONG, 0, false),
        ("date ahead of the clock", &[AT], STRONG, -5, false),
        ("later date", &[AFTER], STRONG, 10, false),
        ("earlier date", &[BEFORE], STRONG, 10, false),
        ("no date", &[AT], BARE, 10, false),
        ("garbage", &["a"], STRONG, 10, false),
    ];
    for (name, values, current, age, expected) in cases {
        let lines: Vec<_> =
            values.iter().map(|value| Field { name: "If-Range", value: value.as_bytes() }).collect();
        assert_eq!(if_range(Fields::new(&lines), current, MODIFIED + age), *expected, "{name}");
    }
}
