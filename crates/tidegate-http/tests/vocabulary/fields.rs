//! `field`, `decimal`, `cache_control`.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_http::field::{self, is_token, list_elements, parameters, unquote};
use tidegate_http::{CacheControl, Field, FieldLines, Fields, parse_decimal, push_decimal};

#[test]
fn decimals() {
    let cases: &[(&str, Option<u64>)] = &[
        ("0", Some(0)),
        ("007", Some(7)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("99999999999999999999999", None),
        ("", None),
        ("+1", None),
        ("-1", None),
        (" 1", None),
        ("1 ", None),
        ("0x1", None),
        ("1,1", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_decimal(text.as_bytes()), *expected, "{text}");
    }
}

#[test]
fn look_up() {
    let lines = [
        Field { name: "Host", value: b"a" },
        Field { name: "accept", value: b"text/html, , text/plain" },
        Field { name: "Accept", value: b"*/*" },
    ];
    let fields = Fields::new(&lines);
    assert_eq!(fields.first("host"), Some(&b"a"[..]));
    assert_eq!(fields.single("HOST"), Some(&b"a"[..]));
    assert_eq!(fields.single("accept"), None);
    assert_eq!(fields.all("Accept").count(), 2);
    assert_eq!(
        fields.elements("accept").collect::<Vec<_>>(),
        [&b"text/html"[..], &b"text/plain"[..], &b"*/*"[..]]
    );
    assert!(!fields.contains("range"));
}

#[test]
fn lists() {
    let cases: &[(&str, &[&str])] = &[
        ("a, b,c", &["a", "b", "c"]),
        (" ,, a ,\t,", &["a"]),
        ("", &[]),
        (r#"a="x,y", b"#, &[r#"a="x,y""#, "b"]),
        (r#""x\",y", z"#, &[r#""x\",y""#, "z"]),
        (r#""open, end"#, &[r#""open, end"#]),
        (r#""open\"#, &[r#""open\"#]),
    ];
    for (value, expected) in cases {
        let found: Vec<_> = list_elements(value.as_bytes()).collect();
        assert_eq!(found, expected.iter().map(|element| element.as_bytes()).collect::<Vec<_>>(), "{value}");
    }
}

#[test]
fn parameter_values() {
    type Row<'a> = (&'a str, &'a str, &'a [Option<(&'a str, &'a str)>]);
    let cases: &[Row<'_>] = &[
        ("text/html", "text/html", &[]),
        ("text/html;charset=utf-8", "text/html", &[Some(("charset", "utf-8"))]),
        ("a ; b=c ;; d=\"e;f\" ;", "a", &[Some(("b", "c")), Some(("d", "e;f"))]),
        (r#"a;b="\"c\\""#, "a", &[Some(("b", r#""c\"#))]),
        ("a;b=\"\"", "a", &[Some(("b", ""))]),
        ("a;b = c", "a", &[None]),
        ("a;b;c=d", "a", &[None]),
        ("a;b=;c=d", "a", &[None]),
        (r#"a;b="c"#, "a", &[None]),
        (r#"a;b="c\""#, "a", &[None]),
        (r#"a;b="c"d"#, "a", &[None]),
    ];
    for (text, head, expected) in cases {
        let (found_head, found) = parameters(text.as_bytes());
        assert_eq!(found_head, head.as_bytes(), "{text}");
        let found: Vec<_> = found
            .map(|item| {
                item.ok().map(|p| (p.name.to_owned(), String::from_utf8_lossy(&p.value()).into_owned()))
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|item| item.map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn lines() {
    let mut lines = FieldLines::default();
    assert!(lines.push("Content-Type", "text/html"));
    assert!(lines.push("X-Split", "a\r\nSet-Cookie: b\0\x1b"));
    assert!(lines.push("Vary", " \r\nAccept\t"));
    assert!(lines.push("Empty", "\r\n"));
    assert!(!lines.push("Bad Name", "x"));
    assert!(!lines.push("Bad\r\nName", "x"));
    assert!(!lines.push("Bad:", "x"));
    assert!(!lines.push("", "x"));
    assert_eq!(
        lines.as_bytes(),
        b"Content-Type: text/html\r\nX-Split: a  Set-Cookie: b\r\nVary: Accept\r\nEmpty: \r\n"
    );
    assert!(lines.contains("vary") && !lines.contains("set-cookie"));
    assert!(lines.set("CONTENT-TYPE", "text/plain"));
    assert!(lines.remove("x-split") && !lines.remove("x-split"));
    assert_eq!(
        lines.iter().collect::<Vec<_>>(),
        [("Vary", &b"Accept"[..]), ("Empty", b""), ("CONTENT-TYPE", b"text/plain")]
    );
    lines.clear();
    assert!(lines.is_empty());
}

#[test]
fn cache_control() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let parse = |text: &'static str| CacheControl::parse([text.as_bytes()]);
    let none = CacheControl::default();
    let cases = [
        ("", none),
        ("No-Transform, unknown, x=\"a, no-store\"", CacheControl { no_transform: true, ..none }),
        ("max-age=60, public", CacheControl { max_age: seconds(60), public: true, ..none }),
        ("max-age=\"60\"", CacheControl { max_age: seconds(60), ..none }),
        ("max-age=60, max-age=5", CacheControl { max_age: seconds(5), ..none }),
        ("max-age=5, max-age=60", CacheControl { max_age: seconds(5), ..none }),
        ("max-age=5, max-age=x", CacheControl { max_age: seconds(0), ..none }),
        ("min-fresh=5, min-fresh=60", CacheControl { min_fresh: seconds(60), ..none }),
        ("max-stale, max-stale=9", CacheControl { max_stale: seconds(9), ..none }),
        ("max-stale=9, max-stale", CacheControl { max_stale: seconds(9), ..none }),
        ("max-age = 60, s-maxage =1", CacheControl { is_malformed: true, ..none }),
        ("max-age=soon", CacheControl { max_age: seconds(0), ..none }),
        ("max-age=-1", CacheControl { max_age: seconds(0), ..none }),
        ("max-age=99999999999999999999", CacheControl { max_age: seconds(1 << 31), ..none }),
        ("private=\"set-cookie\"", CacheControl { private_fields: true, ..none }),
        ("private=set-cookie", CacheControl { private_fields: true, ..none }),
        ("private=\"\"", CacheControl { private: true, ..none }),
        ("private=\"a b\"", CacheControl { private: true, ..none }),
        ("private=\"a, private", CacheControl { private: true, is_malformed: true, ..none }),
        ("no-cache=\"a,b\"", CacheControl { no_cache_fields: true, ..none }),
        ("no-cache=\"a\", no-cache", CacheControl { no_cache: true, no_cache_fields: true, ..none }),
        ("no-store=1", CacheControl { no_store: true, ..none }),
        ("public=1, immutable=x", none),
        ("must-understand=", CacheControl { is_malformed: true, ..none }),
        ("max-stale", CacheControl { max_stale: Some(Duration::MAX), ..none }),
        ("private; max-age=60", CacheControl { is_malformed: true, ..none }),
        ("no-store;", CacheControl { is_malformed: true, ..none }),
        ("\"private\"", CacheControl { is_malformed: true, ..none }),
        ("no-cache; no-store, max-age=5", CacheControl { max_age: seconds(5), is_malformed: true, ..none }),
        (" ,, no-store,\t,", CacheControl { no_store: true, ..none }),
        ("max-stale=5,only-if-cached", CacheControl { max_stale: seconds(5), only_if_cached: true, ..none }),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn decimals_round_trip(number: u64) {
        let mut text = Vec::new();
        push_decimal(&mut text, number);
        prop_assert_eq!(parse_decimal(&text), Some(number));
    }

    #[test]
    fn lines_never_hold_a_stray_line_end(
        pairs in proptest::collection::vec(
            ("[A-Za-z-]{1,4}|[\\x00-\\x7f]{0,3}", proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(0), Just(b' '), any::<u8>()], 0..20)),
            0..8),
        removed in "[a-z]{1,2}",
    ) {
        let mut lines = FieldLines::new();
        let mut written = 0;
        for (name, value) in &pairs {
            let was_written = lines.push(name, value);
            prop_assert_eq!(was_written, is_token(name.as_bytes()));
            written += usize::from(was_written);
        }
        for _ in 0..2 {
            let bytes = lines.as_bytes();
            prop_assert_eq!(bytes.windows(2).filter(|pair| pair == b"\r\n").count(), written);
            prop_assert_eq!(bytes.iter().filter(|&&byte| byte == b'\r').count(), written);
            prop_assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), written);
            prop_assert!(!bytes.contains(&0));
            prop_assert_eq!(lines.iter().count(), written);
            for (name, value) in lines.iter() {
                prop_assert!(is_token(name.as_bytes()));
                prop_assert_eq!(field::trim(value), value);
            }
            written -= lines.all(&removed).count();
            lines.remove(&removed);
            prop_assert!(!lines.contains(&removed));
        }
    }

    #[test]
    fn syntax_never_panics(bytes in proptest::collection::vec(
        prop_oneof![Just(b'"'), Just(b'\\'), Just(b','), Just(b';'), Just(b'='), any::<u8>()], 0..40)) {
        for element in list_elements(&bytes) {
            prop_assert!(!element.is_empty());
            for parameter in parameters(element).1.flatten() {
                parameter.value();
            }
        }
        unquote(&bytes);
        CacheControl::parse([&bytes[..]]);
    }
}
