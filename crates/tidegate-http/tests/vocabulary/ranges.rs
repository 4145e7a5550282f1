//! `range` and `multipart`.

use proptest::prelude::*;
use tidegate_http::multipart::{self, Boundary, PART_OVERHEAD};
use tidegate_http::range::{ByteRange, Selection, push_content_range, push_unsatisfied_range, select};

#[derive(Debug, PartialEq)]
enum Expected {
    Whole,
    Unsatisfiable,
    Ranges(&'static [(u64, u64)]),
}

#[test]
fn selection() {
    use Expected::{Ranges, Unsatisfiable, Whole};
    const MAX: u64 = u64::MAX;
    let cases: &[(&str, u64, Expected)] = &[
        ("bytes=0-499", 10_000, Ranges(&[(0, 500)])),
        ("bytes=500-", 10_000, Ranges(&[(500, 10_000)])),
        ("bytes=-500", 10_000, Ranges(&[(9500, 10_000)])),
        ("bytes=-20000", 10_000, Ranges(&[(0, 10_000)])),
        ("bytes=0-", 10_000, Ranges(&[(0, 10_000)])),
        ("bytes=9999-99999", 10_000, Ranges(&[(9999, 10_000)])),
        ("BYTES=0-0", 10_000, Ranges(&[(0, 1)])),
        ("bytes= , 0-0 ,,\t9000-9000,", 10_000, Ranges(&[(0, 1), (9000, 9001)])),
        ("bytes=9000-9000,0-0", 10_000, Ranges(&[(9000, 9001), (0, 1)])),
        ("bytes=0-100,50-200", 10_000, Ranges(&[(0, 201)])),
        ("bytes=0-0,50-50", 10_000, Ranges(&[(0, 51)])),
        ("bytes=0-0,80-80", 10_000, Ranges(&[(0, 81)])),
        ("bytes=0-0,81-81", 10_000, Ranges(&[(0, 1), (81, 82)])),
        ("bytes=5000-5001,0-0,4990-4995", 10_000, Ranges(&[(4990, 5002), (0, 1)])),
        ("bytes=0-,0-", 10_000, Whole),
        ("bytes=5000-,0-4999", 10_000, Whole),
        ("bytes=10000-", 10_000, Unsatisfiable),
        ("bytes=-0", 10_000, Unsatisfiable),
        ("bytes=10000-,5-5", 10_000, Ranges(&[(5, 6)])),
        ("bytes=99999999999999999999999-", 10_000, Unsatisfiable),
        ("bytes=0-99999999999999999999999", 10_000, Ranges(&[(0, 10_000)])),
        ("bytes=-99999999999999999999999", 10_000, Ranges(&[(0, 10_000)])),
        ("bytes=18446744073709551614-", MAX, Ranges(&[(MAX - 1, MAX)])),
        ("bytes=0-18446744073709551615", MAX, Ranges(&[(0, MAX)])),
        ("bytes=0-0,18446744073709551614-", MAX, Ranges(&[(0, 1), (MAX - 1, MAX)])),
        ("bytes=0-0", 0, Unsatisfiable),
        ("bytes=-5", 0, Whole),
        ("bytes=5-4", 10_000, Whole),
        ("bytes=0-0,5-4", 10_000, Whole),
        ("bytes=", 10_000, Whole),
        ("bytes=-", 10_000, Whole),
        ("bytes=a-b", 10_000, Whole),
        ("bytes=+1-2", 10_000, Whole),
        ("bytes=1 - 2", 10_000, Whole),
        ("bytes=1-2-3", 10_000, Whole),
        ("bytes 0-1", 10_000, Whole),
        ("bytes", 10_000, Whole),
        ("lines=0-1", 10_000, Whole),
        ("", 10_000, Whole),
    ];
    for (value, length, expected) in cases {
        match (select(value.as_bytes(), *length, 10), expected) {
            (Selection::Whole, Whole) | (Selection::Unsatisfiable, Unsatisfiable) => {}
            (Selection::Ranges(found), Ranges(expected)) => {
                let found: Vec<_> = found.as_slice().iter().map(|range| (range.start, range.end)).collect();
                assert_eq!(found, *expected, "{value}");
            }
            (found, _) => panic!("{value}: {found:?}, not {expected:?}"),
        }
    }
}

/// FAULTS 29.
#[test]
fn many_overlapping_ranges() {
    let asked: Vec<_> = (0..1300).map(|more| format!("5-{}", more + 5)).collect();
    let value = format!("bytes=0-,{}", asked.join(","));
    assert_eq!(select(value.as_bytes(), 100_000, 200), Selection::Whole);
    assert_eq!(select(value.as_bytes(), 100_000, u16::MAX), Selection::Whole);

    let value = format!("bytes={}", asked.join(","));
    let Selection::Ranges(ranges) = select(value.as_bytes(), 100_000, u16::MAX) else {
        panic!("one range is left")
    };
    assert_eq!(ranges.single(), Some(ByteRange { start: 5, end: 1305 }));
}

#[test]
fn rendering() {
    let mut out = Vec::new();
    push_content_range(&mut out, ByteRange { start: 0, end: 500 }, 1234);
    out.push(b'|');
    push_unsatisfied_range(&mut out, 1234);
    assert_eq!(out, b"bytes 0-499/1234|bytes */1234");

    let boundary = Boundary::new(42);
    let ranges = [ByteRange { start: 0, end: 1 }, ByteRange { start: 100, end: 102 }];
    let mut body = Vec::new();
    for range in ranges {
        multipart::push_part_head(&mut body, &boundary, Some("text/plain"), range, 200);
        body.extend(std::iter::repeat_n(b'x', range.len() as usize));
    }
    multipart::push_close(&mut body, &boundary);
    let expected = "\r\n--00000000000000000042\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-0/200\r\n\r\nx\
        \r\n--00000000000000000042\r\nContent-Type: text/plain\r\nContent-Range: bytes 100-101/200\r\n\r\nxx\
        \r\n--00000000000000000042--\r\n";
    assert_eq!(String::from_utf8_lossy(&body), expected);
    let length = multipart::content_length(&ranges, &boundary, Some("text/plain"), 200, &mut out);
    assert_eq!(length, Some(body.len() as u64));
    let huge = [ByteRange { start: 0, end: u64::MAX }];
    assert_eq!(multipart::content_length(&huge, &boundary, None, u64::MAX, &mut out), None);
}

proptest! {
    #[test]
    fn within_bounds(
        asked in proptest::collection::vec((0u64..3000, proptest::option::of(0u64..400), any::<bool>()), 1..40),
        length in 0u64..3000,
        limit in 1u16..50,
    ) {
        let asked: Vec<_> = asked.iter().map(|&(first, more, is_suffix)| match (more, is_suffix) {
            (_, true) => format!("-{}", first % 50),
            (Some(more), _) => format!("{first}-{}", first + more),
            (None, _) => format!("{first}-"),
        }).collect();
        let value = format!("bytes={}", asked.join(","));
        if let Selection::Ranges(found) = select(value.as_bytes(), length, limit) {
            let found = found.as_slice();
            prop_assert!(!found.is_empty() && found.len() <= asked.len() && found.len() <= usize::from(limit));
            for range in found {
                prop_assert!(range.start < range.end && range.end <= length);
            }
            let cost: u64 = found.iter().map(|range| range.len() + PART_OVERHEAD).sum();
            prop_assert!(cost <= length + PART_OVERHEAD);
            let mut sorted = found.to_vec();
            sorted.sort_by_key(|range| range.start);
            for pair in sorted.windows(2) {
                prop_assert!(pair[0].end + PART_OVERHEAD <= pair[1].start);
            }
        }
    }

    #[test]
    fn never_panics(value in "(bytes=)?[0-9,\\- a]{0,60}", length: u64, limit: u16) {
        select(value.as_bytes(), length, limit);
    }
}
