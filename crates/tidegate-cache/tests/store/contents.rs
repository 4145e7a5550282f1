//! Contents: sizes, ranges, readers at different speeds, what breaks, what does not fit.

use crate::support::*;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};
use tidegate_cache::{Full, Limits, Store};
use tidegate_io::shared_bytes::SharedPiece;

const BLOCK: usize = 64 * 1024;

#[test]
fn every_size_comes_out_as_it_went_in() {
    for len in [0, 1, 4095, 4096, 4097, 20_480, 20_481, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 7]
    {
        for is_announced in [true, false] {
            for step in [1000, BLOCK, 10 * BLOCK] {
                let store = store(4 * MIB);
                let content = bytes(3, len);
                let announced = is_announced.then_some(len as u64);
                let (entry, mut fill) = lead(&store, b"/a").store(head("/a"), announced, NOW).unwrap();
                content.chunks(step).for_each(|part| append_all(&mut fill, part));
                assert_eq!(fill.filled(), len as u64);
                assert!(fill.complete());
                assert_eq!(read_all(&entry), content, "{len} {is_announced} {step}");
                assert_eq!(entry.content().len(), Some(len as u64));
                let shared = entry.content().shared().unwrap();
                assert_eq!(shared.whole().is_some(), len <= BLOCK, "{len} {is_announced}");
                assert_eq!(sent(shared, step), content, "{len} {is_announced} {step}");
            }
        }
    }
}

/// What a socket gets that takes `step` bytes at a time.
fn sent(mut piece: SharedPiece, step: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while !piece.is_empty() {
        let before = all.len();
        piece.with_slices(b"", step as u64, |slices| slices.iter().for_each(|slice| all.extend(&slice[..])));
        piece.advance((all.len() - before) as u64);
    }
    all
}

/// Nothing else is done with what is complete while it is sent: it is neither copied nor let go of, and its memory counts.
#[test]
fn what_is_sent_counts_until_the_last_byte_has_left() {
    let store = store(MIB);
    let content = bytes(7, 300_000);
    let entry = put(&store, "/a", &content).unwrap();
    let part = entry.content().shared().unwrap().part(65_000, 200_000);
    drop(entry);
    let before = store.figures().bytes;
    for number in 0..20 {
        let _ = put(&store, &format!("/{number}"), &bytes(number, 100_000));
    }
    assert!(found(&store, "/a").is_some(), "it is in use");
    store.remove(b"/a");
    assert!(found(&store, "/a").is_none() && store.figures().bytes > 300_000);
    assert_eq!(sent(part.clone(), 7777), &content[65_000..200_000]);
    for number in 0..20 {
        store.remove(format!("/{number}").as_bytes());
    }
    store.sweep(usize::MAX, NOW);
    let held = store.figures().bytes;
    assert!(held > 300_000 && held <= before + 16 * KIB, "{held}, {before} before");
    drop(part);
    assert!(store.figures().bytes < 40 * KIB);
}

#[test]
fn what_is_coming_in_or_passed_on_is_not_sent_from_where_it_lies() {
    let store = store(MIB);
    let (entry, mut fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
    append_all(&mut fill, b"some");
    assert!(entry.content().shared().is_none());
    assert!(fill.complete() && entry.content().shared().is_some());
    let small = Store::new("main", Limits { memory: MIB, object: 1000 });
    let (entry, mut fill) = lead(&small, b"/b").store(head("/b"), None, NOW).unwrap();
    let reader = entry.content().reader(0..u64::MAX).unwrap();
    append_all(&mut fill, &bytes(1, 2000));
    assert!(!fill.complete() && entry.content().is_complete());
    assert!(entry.content().shared().is_none() && entry.content().reader(0..u64::MAX).is_none());
    drop(reader);
}

#[test]
fn a_small_content_has_no_more_memory_than_it_needs() {
    for len in [100, 4000, 5000, 30_000, 70_000] {
        let announced = store(MIB);
        put(&announced, "/a", &bytes(1, len)).unwrap();
        let counted = store(MIB);
        let (_, mut fill) = lead(&counted, b"/a").store(head("/a"), None, NOW).unwrap();
        append_all(&mut fill, &bytes(1, len));
        assert!(fill.complete());
        let (counted, announced) = (counted.figures().bytes, announced.figures().bytes);
        assert!(counted == announced || len > BLOCK && counted < announced + KIB, "{len}");
        assert!(announced < len as u64 + 8 * KIB, "{announced}");
    }
}

#[test]
fn ranges() {
    let store = store(MIB);
    let content = bytes(5, 200_000);
    let entry = put(&store, "/a", &content).unwrap();
    for range in
        [0..1, 0..200_000, 65_535..65_537, 199_999..200_000, 199_999..u64::MAX, 200_000..200_001, 7..7]
    {
        let mut reader = entry.content().reader(range.clone()).unwrap();
        let wanted = &content[range.start as usize..200_000.min(range.end) as usize];
        assert_eq!(reader.left(), Some(wanted.len() as u64));
        let (bytes, end) = read(&mut reader, 777);
        assert_eq!((&bytes[..], end), (wanted, Poll::Ready(true)), "{range:?}");
    }
}

#[test]
fn readers_follow_at_their_own_speed() {
    let store = store(MIB);
    let content = bytes(9, 150_000);
    let (entry, mut fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
    let mut fast = entry.content().reader(0..u64::MAX).unwrap();
    let mut slow = entry.content().reader(0..u64::MAX).unwrap();
    assert_eq!(fill.readers(), 2);
    let (woken, waker) = waker();
    let mut cx = Context::from_waker(&waker);
    let mut buffer = [0; 100_000];
    assert!(fast.poll_read(&mut cx, &mut buffer).is_pending());
    append_all(&mut fill, &content[..100_000]);
    assert_eq!(woken.0.load(SeqCst), 1, "woken once");
    assert!(matches!(fast.poll_read(&mut cx, &mut buffer), Poll::Ready(Ok(100_000))));
    assert!(fast.poll_read(&mut cx, &mut buffer).is_pending());
    assert!(matches!(slow.poll_read(&mut cx, &mut buffer[..10]), Poll::Ready(Ok(10))));
    append_all(&mut fill, &content[100_000..]);
    assert_eq!(woken.0.load(SeqCst), 2);
    assert_eq!(read(&mut fast, BLOCK), (content[100_000..].to_vec(), Poll::Pending), "more may come");
    assert_eq!(fast.left(), None);
    assert!(fill.complete());
    assert_eq!(read(&mut fast, BLOCK), (vec![], Poll::Ready(true)));
    assert_eq!(read(&mut slow, BLOCK), (content[10..].to_vec(), Poll::Ready(true)));
    assert_eq!(slow.left(), Some(0));
}

#[test]
fn what_breaks_is_seen_by_readers_and_gone() {
    let content = bytes(2, 100_000);
    for is_dropped in [true, false] {
        let store = store(MIB);
        let (entry, mut fill) = lead(&store, b"/a").store(head("/a"), Some(100_000), NOW).unwrap();
        let mut reader = entry.content().reader(0..u64::MAX).unwrap();
        append_all(&mut fill, &content[..90_000]);
        assert!(found(&store, "/a").is_some());
        let (woken, waker) = waker();
        let (early, mut late) = (read(&mut reader, 80_000), entry.content().reader(95_000..95_001).unwrap());
        assert_eq!(early.0.len(), 90_000);
        assert!(late.poll_read(&mut Context::from_waker(&waker), &mut [0; 9]).is_pending());
        if is_dropped {
            drop(fill);
        } else {
            assert!(!fill.complete(), "it is shorter than announced");
        }
        assert_eq!(woken.0.load(SeqCst), 1);
        assert_eq!(read(&mut reader, 9), (vec![], Poll::Ready(false)));
        assert_eq!(read(&mut late, 9), (vec![], Poll::Ready(false)));
        assert!(found(&store, "/a").is_none() && !entry.is_current());
        let figures = store.figures();
        assert_eq!((figures.entries, figures.broken, figures.filling), (0, 1, 0));
    }
}

#[test]
fn more_than_announced_is_refused() {
    let store = store(MIB);
    let (_, mut fill) = lead(&store, b"/a").store(head("/a"), Some(10), NOW).unwrap();
    assert_eq!(fill.append(&[0; 11]), Err(Full::Length));
    assert_eq!(fill.append(&[0; 10]), Ok(10));
    assert_eq!(fill.append(&[0; 1]), Err(Full::Length));
}

#[test]
fn what_does_not_fit_is_passed_on_to_its_readers() {
    // Too large for the memory, and larger than the largest object.
    for (memory, object) in [(300 * KIB, u64::MAX), (MIB, 300 * KIB)] {
        let store = Store::new("main", Limits { memory, object });
        let content = bytes(4, 2_000_000);
        let (entry, mut fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
        let mut fast = entry.content().reader(0..u64::MAX).unwrap();
        let mut slow = entry.content().reader(0..u64::MAX).unwrap();
        let mut part = entry.content().reader(10..20).unwrap();
        assert_eq!(read(&mut part, 100).0, vec![], "nothing is there");
        let (mut got_fast, mut got_slow, mut got_part) = (Vec::new(), Vec::new(), Vec::new());
        let (woken, waker) = waker();
        let mut left = &content[..];
        let mut waits = 0;
        while !left.is_empty() {
            if fill.poll_room(&mut Context::from_waker(&waker)).is_pending() {
                waits += 1;
                got_fast.extend(read(&mut fast, 10_000).0);
                got_part.extend(read(&mut part, 100).0);
                // The slow one reads just enough for a block.
                while fill.poll_room(&mut Context::from_waker(&waker)).is_pending() {
                    let before = woken.0.load(SeqCst);
                    let mut buffer = [0; 5000];
                    let count = match slow.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
                        Poll::Ready(Ok(count)) if count > 0 => count,
                        other => panic!("it has to go on: {other:?}"),
                    };
                    got_slow.extend_from_slice(&buffer[..count]);
                    assert!(woken.0.load(SeqCst) > before);
                }
            }
            let taken = fill.append(&left[..left.len().min(16_000)]).unwrap();
            left = &left[taken..];
            assert!(store.figures().bytes <= memory);
        }
        assert!(waits > 10 && !fill.is_kept());
        assert!(entry.content().reader(0..1).is_none(), "its beginning has gone");
        assert!(found(&store, "/a").is_none());
        assert!(!fill.complete());
        got_fast.extend(read(&mut fast, 10_000).0);
        let (rest, end) = read(&mut slow, 10_000);
        got_slow.extend(rest);
        assert_eq!(end, Poll::Ready(true));
        assert!(got_fast == content && got_slow == content && got_part == content[10..20]);
        drop((fast, slow, part, entry));
        let (figures, is_too_large) = (store.figures(), u64::from(object != u64::MAX));
        assert_eq!((figures.passed_on, figures.too_large), (1 - is_too_large, is_too_large));
        assert!(store.figures().bytes < 20 * KIB, "{}", store.figures().bytes);
    }
}

#[test]
fn what_nobody_reads_is_not_passed_on() {
    let store = store(200 * KIB);
    let (_, mut fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
    let all = bytes(1, 1_000_000);
    let mut at = 0;
    let end = loop {
        match fill.append(&all[at..at + 10_000]) {
            Ok(count) => at += count,
            Err(full) => break full,
        }
    };
    assert_eq!(end, Full::Unread);
    drop(fill);
    assert!(store.figures().bytes < 20 * KIB);
}
