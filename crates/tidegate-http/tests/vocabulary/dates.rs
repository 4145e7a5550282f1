//! `date`: three formats in, one out.

use proptest::prelude::*;
use tidegate_http::HttpDate;

/// 2026-01-01 00:00:00.
const NOW: i64 = 1_767_225_600;

#[test]
fn parse() {
    let cases: &[(&str, &str, Option<i64>)] = &[
        ("IMF-fixdate", "Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
        ("RFC 850", "Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
        ("asctime", "Sun Nov  6 08:49:37 1994", Some(784_111_777)),
        ("asctime, two digits", "Wed Nov 16 08:49:37 1994", Some(784_975_777)),
        ("epoch", "Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
        ("earliest", "Mon, 01 Jan 0001 00:00:00 GMT", Some(HttpDate::MIN.0)),
        ("latest", "Fri, 31 Dec 9999 23:59:59 GMT", Some(HttpDate::MAX.0)),
        ("leap day", "Thu, 29 Feb 2024 00:00:00 GMT", Some(1_709_164_800)),
        ("leap second", "Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_800)),
        ("another day's name", "Mon, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
        ("no such leap day", "Wed, 29 Feb 2023 00:00:00 GMT", None),
        ("no leap day in 1900", "Thu, 29 Feb 1900 00:00:00 GMT", None),
        ("year 0", "Sat, 01 Jan 0000 00:00:00 GMT", None),
        ("day 0", "Sun, 00 Nov 1994 08:49:37 GMT", None),
        ("day 32", "Sun, 32 Dec 1994 08:49:37 GMT", None),
        ("hour 24", "Sun, 06 Nov 1994 24:00:00 GMT", None),
        ("minute 60", "Sun, 06 Nov 1994 08:60:37 GMT", None),
        ("second 61", "Sun, 06 Nov 1994 08:49:61 GMT", None),
        ("lower case", "sun, 06 nov 1994 08:49:37 gmt", None),
        ("another zone", "Sun, 06 Nov 1994 08:49:37 CET", None),
        ("UTC", "Sun, 06 Nov 1994 08:49:37 UTC", None),
        ("one digit", "Sun, 6 Nov 1994 08:49:37 GMT", None),
        ("signed", "Sun, +6 Nov 1994 08:49:37 GMT", None),
        ("something behind", "Sun, 06 Nov 1994 08:49:37 GMT;", None),
        ("cut off", "Sun, 06 Nov 1994 08:49:37", None),
        ("RFC 850 with a short day", "Sun, 06-Nov-94 08:49:37 GMT", None),
        ("no such day", "Someday, 06-Nov-94 08:49:37 GMT", None),
        ("two digits, 50 years ahead", "Wednesday, 01-Jan-76 00:00:00 GMT", Some(3_345_062_400)),
        ("two digits, a second more", "Wednesday, 01-Jan-76 00:00:01 GMT", Some(189_302_401)),
        ("empty", "", None),
        ("a number", "784111777", None),
    ];
    for (name, text, expected) in cases {
        assert_eq!(HttpDate::parse(text.as_bytes(), NOW), expected.map(HttpDate), "{name}");
    }
}

#[test]
fn format() {
    assert_eq!(&HttpDate(784_111_777).format(), b"Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(&HttpDate::MIN.format(), b"Mon, 01 Jan 0001 00:00:00 GMT");
    assert_eq!(&HttpDate::MAX.format(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(HttpDate(i64::MIN).format(), HttpDate::MIN.format());
    assert_eq!(HttpDate(i64::MAX).format(), HttpDate::MAX.format());
}

proptest! {
    #[test]
    fn round_trip(seconds in HttpDate::MIN.0..=HttpDate::MAX.0) {
        prop_assert_eq!(HttpDate::parse(&HttpDate(seconds).format(), NOW), Some(HttpDate(seconds)));
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40), now: i64) {
        HttpDate::parse(&bytes, now);
    }

    #[test]
    fn a_changed_byte_never_panics(position in 0usize..33, byte: u8, now: i64, form in 0usize..3) {
        let forms: [&[u8]; 3] = [
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            b"Wednesday, 06-Nov-94 08:49:37 GMT",
            b"Sun Nov  6 08:49:37 1994",
        ];
        let mut text = forms[form].to_vec();
        if let Some(at) = text.get_mut(position) {
            *at = byte;
        }
        HttpDate::parse(&text, now);
    }
}
