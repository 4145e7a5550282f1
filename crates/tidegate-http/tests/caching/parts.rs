//! Parts of responses.

use tidegate_http::Status;
use tidegate_http::cache::partial::{combines, content_range, if_range, may_be_resumed};

use super::lines;

#[test]
fn content_ranges() {
    for (value, expected) in [
        ("bytes 0-499/1234", Some((0, 500, Some(1234)))),
        ("BYTES 500-999/*", Some((500, 1000, None))),
        ("bytes 0-0/1", Some((0, 1, Some(1)))),
        ("bytes 0-1/1", None),
        ("bytes 2-1/9", None),
        ("bytes */9", None),
        ("bytes 0-1", None),
        ("bytes 0-/9", None),
        ("bytes -1-1/9", None),
        ("bytes +0-1/9", None),
        ("bytes=0-1/9", None),
        ("items 0-1/9", None),
        ("bytes 0-18446744073709551615/*", None),
        ("bytes 99999999999999999999-99999999999999999999/*", None),
        ("", None),
        ("\u{fc}\u{fc}\u{fc} 0-1/9", None),
    ] {
        let found = content_range(&lines(&format!("Content-Range: {value}")));
        assert_eq!(
            found.map(|found| (found.range.start, found.range.end, found.length)),
            expected,
            "{value}"
        );
    }
    assert_eq!(
        content_range(&lines("Content-Range: bytes 0-1/9\nContent-Range: bytes 0-1/9")),
        None,
        "twice"
    );
    assert_eq!(content_range(&lines("X-A: 1")), None);
}

#[test]
#[rustfmt::skip]
fn what_is_put_together() {
    let range = "Content-Range: bytes 5-9/10";
    for (clause, stored, length, new, expected) in [
        ("9111-3.4 same strong tag", "ETag: \"a\"", Some(10), "ETag: \"a\"", true),
        ("9111-3.4 length not known", "ETag: \"a\"", None, "ETag: \"a\"", true),
        ("9111-3.4 another tag", "ETag: \"a\"", Some(10), "ETag: \"b\"", false),
        ("9111-3.4 weak", "ETag: W/\"a\"", Some(10), "ETag: W/\"a\"", false),
        ("9111-3.4 weak tag, strong date", "ETag: W/\"a\"\nLast-Modified: @-9\nDate: @0", Some(10), "ETag: W/\"a\"\nLast-Modified: @-9\nDate: @0", false),
        ("9111-3.4 none", "X-A: 1", Some(10), "X-A: 1", false),
        ("9111-3.4 another length", "ETag: \"a\"", Some(11), "ETag: \"a\"", false),
        ("9111-3.4 strong date", "Last-Modified: @-9\nDate: @0", Some(10), "Last-Modified: @-9\nDate: @5", true),
        ("9110-8.8.2.2 weak date", "Last-Modified: @0\nDate: @0", Some(10), "Last-Modified: @0\nDate: @5", false),
        ("9111-3.4 another date", "Last-Modified: @-9\nDate: @0", Some(10), "Last-Modified: @-8\nDate: @5", false),
        ("9111-3.4 a tag and a date", "ETag: \"a\"\nLast-Modified: @-9\nDate: @0", Some(10), "Last-Modified: @-9\nDate: @5", false),
        ("9111-3.4 another coding", "ETag: \"a\"\nContent-Encoding: gzip", Some(10), "ETag: \"a\"", false),
        ("9111-5.2.2.5 no-store", "ETag: \"a\"", Some(10), "ETag: \"a\"\nCache-Control: no-store", false),
        ("9111-5.2.2.7 private", "ETag: \"a\"", Some(10), "ETag: \"a\"\nCache-Control: max-age=9, private", false),
        ("9213-2.2 targeted", "ETag: \"a\"", Some(10), "ETag: \"a\"\nCDN-Cache-Control: no-store", false),
        ("9111-4.1 varies by anything", "ETag: \"a\"", Some(10), "ETag: \"a\"\nVary: X-A, *", false),
        ("9111-3.4 two tags", "ETag: \"a\"", Some(10), "ETag: \"a\"\nETag: \"b\"", false),
        ("9111-3.4 two tags stored", "ETag: \"a\"\nETag: \"b\"", Some(10), "ETag: \"a\"", false),
        ("9111-3.4 the same coding", "ETag: \"a\"\nContent-Encoding: gzip", Some(10), "ETag: \"a\"\nContent-Encoding: GZIP", true),
    ] {
        let found = combines(&lines(stored), length, &lines(&format!("{range}\n{new}")));
        assert_eq!(found, expected, "{clause}");
    }
    assert!(!combines(&lines("ETag: \"a\""), Some(10), &lines("ETag: \"a\"")), "9110-15.3.7 no range");
    let unknown = lines("ETag: \"a\"\nContent-Range: bytes 5-10/*");
    assert!(!combines(&lines("ETag: \"a\""), Some(10), &unknown), "9110-14.4 beyond the end");
}

#[test]
#[rustfmt::skip]
fn what_is_resumed() {
    for (clause, stored, expected) in [
        ("9110-13.1.5 tag", "ETag: \"a\"\nLast-Modified: @-9\nDate: @0", Some("\"a\"")),
        ("9110-13.1.5 weak tag", "ETag: W/\"a\"\nLast-Modified: @-9\nDate: @0", None),
        ("9110-13.1.5 date", "Last-Modified: @-9\nDate: @0", Some("Tue, 14 Nov 2023 22:13:11 GMT")),
        ("9110-8.8.2.2 date of that second", "Last-Modified: @0\nDate: @0", None),
        ("9110-13.1.5 neither", "X-A: 1", None),
    ] {
        let stored = lines(stored);
        assert_eq!(if_range(&stored), expected.map(str::as_bytes), "{clause}");
        assert_eq!(may_be_resumed(Status::OK, &stored), expected.is_some(), "9111-3.3 {clause}");
    }
    assert!(!may_be_resumed(Status::NOT_FOUND, &lines("ETag: \"a\"")), "9111-3.3 not a 200");
    assert!(!may_be_resumed(Status::OK, &lines("ETag: \"a\"\nAccept-Ranges: none")), "9110-14.3");
}
