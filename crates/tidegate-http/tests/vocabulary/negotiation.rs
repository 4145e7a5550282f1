//! `quality`, `coding`, `accept`.

use proptest::prelude::*;
use tidegate_http::ContentCoding::{self, Brotli, Gzip, Identity, Zstd};
use tidegate_http::accept::prefers;
use tidegate_http::coding::{negotiate, qvalue};

#[test]
fn weights() {
    let cases: &[(&str, Option<u16>)] = &[
        ("1", Some(1000)),
        ("1.", Some(1000)),
        ("1.000", Some(1000)),
        ("0", Some(0)),
        ("0.", Some(0)),
        ("0.5", Some(500)),
        ("0.001", Some(1)),
        ("0.999", Some(999)),
        ("1.001", None),
        ("0.0001", None),
        ("2", None),
        (".5", None),
        ("", None),
        ("0,5", None),
        ("-0", None),
        ("0.5 ", None),
        ("01", None),
    ];
    for (text, expected) in cases {
        assert_eq!(qvalue(text.as_bytes()), *expected, "{text}");
    }
}

#[test]
fn codings() {
    const ALL: &[ContentCoding] = &[Brotli, Zstd, Gzip];
    let cases: &[(&[&str], &[ContentCoding], Option<ContentCoding>)] = &[
        (&[], ALL, Some(Identity)),
        (&[""], ALL, Some(Identity)),
        (&["gzip, deflate, br, zstd"], ALL, Some(Brotli)),
        (&["gzip, deflate, br, zstd"], &[Zstd, Brotli], Some(Zstd)),
        (&["gzip", "br"], ALL, Some(Brotli)),
        (&["gzip, br;q=0.9"], ALL, Some(Gzip)),
        (&["GZIP;Q=0.5"], ALL, Some(Gzip)),
        (&["x-gzip"], ALL, Some(Gzip)),
        (&["gzip;q=0"], ALL, Some(Identity)),
        (&["deflate"], ALL, Some(Identity)),
        (&["*"], ALL, Some(Brotli)),
        (&["*, br;q=0"], ALL, Some(Zstd)),
        (&["*;q=0"], ALL, None),
        (&["*;q=0, identity"], ALL, Some(Identity)),
        (&["*;q=0, gzip;q=0.1"], ALL, Some(Gzip)),
        (&["identity;q=0"], ALL, None),
        (&["identity;q=0, gzip"], ALL, Some(Gzip)),
        (&["identity;q=0, gzip"], &[], None),
        (&["identity, gzip;q=0.5"], ALL, Some(Identity)),
        (&["identity, gzip"], ALL, Some(Gzip)),
        (&["identity, gzip"], &[Identity, Gzip], Some(Identity)),
        (&["gzip;q=0.001"], ALL, Some(Gzip)),
        (&["gzip;q=oops, br;q=0.1"], ALL, Some(Brotli)),
        (&["gzip;q=1.0;q=0"], ALL, Some(Gzip)),
        (&["gzip, gzip;q=0"], ALL, Some(Identity)),
    ];
    for (lines, offered, expected) in cases {
        let found = negotiate(lines.iter().map(|line| line.as_bytes()), offered);
        assert_eq!(found, *expected, "{lines:?} {offered:?}");
    }
    assert_eq!(negotiate(Some(&b"br"[..]), ALL), Some(Brotli));
}

#[test]
fn media_types() {
    const FORMS: &[&str] = &["text/html; charset=utf-8", "application/json"];
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let cases: &[(&[&str], &[&str], Option<usize>)] = &[
        (&[], FORMS, Some(0)),
        (&[], &[], None),
        (&[""], FORMS, None),
        (&[browser], FORMS, Some(0)),
        (&["application/json"], FORMS, Some(1)),
        (&["Application/JSON"], FORMS, Some(1)),
        (&["*/*"], FORMS, Some(0)),
        (&["application/*"], FORMS, Some(1)),
        (&["text/*;q=0.5, application/*;q=0.6"], FORMS, Some(1)),
        (&["text/html;q=0, */*"], FORMS, Some(1)),
        (&["text/html;q=0.2", "*/*;q=0.3"], FORMS, Some(1)),
        (&["image/png"], FORMS, None),
        (&["*/*;q=0"], FORMS, None),
        (&["text/html;charset=UTF-8"], FORMS, Some(0)),
        (&["text/html;charset=latin1"], FORMS, None),
        (&["text/html;charset=utf-8;q=0, text/*"], FORMS, None),
        (&["text/html;q=x, application/json;q=0.1"], FORMS, Some(1)),
        (&["text"], FORMS, None),
        (&["*/json"], FORMS, None),
    ];
    for (lines, offered, expected) in cases {
        let found = prefers(lines.iter().map(|line| line.as_bytes()), offered);
        assert_eq!(found, *expected, "{lines:?}");
    }
}

proptest! {
    #[test]
    fn never_what_is_excluded(
        listed in proptest::collection::vec((prop_oneof![
            Just("gzip"), Just("br"), Just("zstd"), Just("identity"), Just("*")], 0u16..4), 0..6),
        offered in proptest::sample::subsequence(vec![Brotli, Zstd, Gzip, Identity], 0..=4),
    ) {
        let text: Vec<_> = listed.iter().map(|(name, tenths)| format!("{name};q=0.{tenths}")).collect();
        let text = text.join(", ");
        if let Some(chosen) = negotiate([text.as_bytes()], &offered) {
            prop_assert!(chosen == Identity || offered.contains(&chosen));
            prop_assert!(!listed.contains(&(chosen.as_str(), 0)));
            let is_listed = listed.iter().any(|(name, _)| *name == chosen.as_str());
            prop_assert!(is_listed || !listed.contains(&("*", 0)));
            prop_assert!(is_listed || chosen == Identity || listed.iter().any(|(name, _)| *name == "*"));
        }
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        negotiate([&bytes[..]], &[Gzip]);
        prefers([&bytes[..]], &["text/html"]);
        qvalue(&bytes);
    }
}
