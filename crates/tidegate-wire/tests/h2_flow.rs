//! Flow control, scheduling and the written form of messages.

mod h2_support;

use h2_support::*;
use tidegate_http::FieldLines;
use tidegate_wire::h2::{
    ConnectionError, ErrorCode, FieldBlock, FieldSource, FrameKind, Limits, Priority, ResponseParts,
    StreamError, flag,
};

fn increments(sent: &[(tidegate_wire::h2::FrameHeader, Vec<u8>)], stream: u32) -> u32 {
    let updates = sent.iter().filter(|(h, _)| h.kind == FrameKind::WINDOW_UPDATE && h.stream == stream);
    updates.map(|(_, payload)| u32::from_be_bytes(payload[..].try_into().unwrap())).sum()
}

#[test]
fn content_is_given_back_when_it_is_consumed() {
    let mut end = End::ready_server(Limits::default());
    end.releases = false;
    end.feed(&headers(1, BLOCK, POST));
    for _ in 0..3 {
        end.feed(&data(1, 0, vec![b'x'; 16_384]));
    }
    assert_eq!(end.sent(), []);
    let key = end.key(1);
    end.connection.release(key, 40_000, &mut end.out);
    assert_eq!(increments(&end.sent(), 1), 40_000);
    end.connection.release(key, usize::MAX, &mut end.out);
    end.connection.widen(key, 256 << 10, &mut end.out);
    assert_eq!(increments(&end.sent(), 1), (256 << 10) - 65_535 + 3 * 16_384 - 40_000);
}

#[test]
fn more_than_a_window() {
    let mut end = End::ready_server(Limits::default());
    end.releases = false;
    end.feed(&headers(1, BLOCK, POST));
    for _ in 0..3 {
        end.feed(&data(1, 0, vec![b'x'; 16_384]));
    }
    end.feed(&data(1, 0, vec![b'x'; 16_383]));
    assert!(matches!(end.seen.last(), Some(Seen::Data { .. })));
    end.feed(&data(1, 0, b"x"));
    assert_eq!(end.seen.last(), Some(&Seen::Broken { id: Some(1), error: StreamError::WindowExceeded }));
    assert_eq!(end.sent().last().unwrap().1, ErrorCode::FLOW_CONTROL_ERROR.0.to_be_bytes());

    // What was never released comes back to the connection, else these would use it up.
    for stream in (3..200).step_by(2) {
        end.feed(&headers(stream, BLOCK, POST));
        for _ in 0..3 {
            end.feed(&data(stream, 0, vec![b'x'; 16_384]));
        }
        end.feed(&reset(stream, 8));
        assert!(matches!(end.seen.last(), Some(Seen::Reset { .. })), "{stream}");
    }

    let mut end =
        End::ready_server(Limits { stream_window: 1 << 20, connection_window: 1 << 17, ..Limits::default() });
    end.releases = false;
    end.feed(&headers(1, BLOCK, POST));
    for _ in 0..9 {
        end.feed(&data(1, 0, vec![b'x'; 16_384]));
    }
    assert_eq!(end.seen.last(), Some(&Seen::Failed(ConnectionError::WindowExceeded)));
}

#[test]
fn content_that_nobody_wants_is_given_back() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&headers(1, BLOCK, POST));
    let key = end.key(1);
    end.answer(key, 200, b"no thanks");
    end.connection.reset(key, ErrorCode::NO_ERROR, &mut end.out);
    end.sent();
    for _ in 0..100 {
        end.feed(&data(1, 0, vec![b'x'; 16_384]));
    }
    assert!(matches!(end.seen.last(), Some(Seen::Request { .. })), "{:?}", end.seen.last());
    assert!(increments(&end.sent(), 0) >= 1 << 20);
    end.feed(&data(1, END, b""));
}

#[test]
fn padding_counts_and_comes_back() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&headers(1, BLOCK, POST));
    let padded = [&[200][..], &[b'x'; 1000], &[0; 200]].concat();
    for _ in 0..200 {
        end.feed(&data(1, flag::PADDED, &padded));
    }
    assert!(matches!(end.seen.last(), Some(Seen::Data { data, .. }) if data.len() == 200_000));
    assert!(increments(&end.sent(), 1) > 200 * 1201 - 65_535);
}

#[test]
fn windows_bound_what_is_sent() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&settings(&[(4, 10)]));
    end.feed(&headers(1, WHOLE, GET));
    let key = end.key(1);
    assert_eq!(end.answer(key, 200, b"0123456789abcdef"), 10);
    end.connection.set_ready(key, true);
    assert!(end.connection.is_starved());
    assert_eq!(end.connection.next_ready(), None);
    end.feed(&window(1, 3));
    assert!(!end.connection.is_starved());
    assert_eq!(end.connection.next_ready(), Some(key));
    assert_eq!(end.connection.send_data(key, b"abcdef", true, &mut end.out), 3);
    end.feed(&settings(&[(4, 0)])); // 10 less than before: below zero
    end.feed(&window(1, 10));
    assert_eq!(end.connection.send_data(key, b"def", true, &mut end.out), 0);
    end.feed(&window(1, 3));
    assert_eq!(end.connection.send_data(key, b"def", true, &mut end.out), 3);
    assert!(!end.connection.is_open(key));
    let content: Vec<u8> =
        end.sent().into_iter().filter(|(h, _)| h.kind == FrameKind::DATA).flat_map(|(_, p)| p).collect();
    assert_eq!(content, b"0123456789abcdef");
}

/// Who has a small window and gives back each frame twice, for the stream and for the connection, does no wrong.
#[test]
fn a_small_window_may_be_given_back_frame_by_frame() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&settings(&[(4, 512)]));
    end.feed(&headers(1, WHOLE, GET));
    let key = end.key(1);
    assert_eq!(end.answer(key, 200, &[b'x'; 8192]), 512);
    for round in 0..5000 {
        end.feed(&window(0, 512)).feed(&window(1, 512));
        assert_eq!(end.connection.send_data(key, &[b'x'; 8192], false, &mut end.out), 512, "{round}");
        end.sent();
    }
    assert!(!end.seen.iter().any(|seen| matches!(seen, Seen::Failed(_))));
}

/// What was sent into wide windows may be given back in one burst, frame by frame; the credit has an end.
#[test]
fn windows_may_be_given_back_in_a_burst() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&settings(&[(4, 1 << 30)])).feed(&window(0, 1 << 30));
    end.feed(&headers(1, WHOLE, GET));
    let key = end.key(1);
    let parts = ResponseParts {
        status: 200,
        date: None,
        server: None,
        fields: FieldSource::Lines(&FieldLines::new()),
        content_length: None,
    };
    assert!(end.connection.send_response(key, &parts, false, &mut end.out));
    for _ in 0..2000 {
        assert_eq!(end.connection.send_data(key, &[b'x'; 16_384], false, &mut end.out), 16_384);
        end.sent();
    }
    for _ in 0..2000 {
        end.feed(&window(0, 16_384)).feed(&window(1, 16_384));
    }
    assert!(!end.seen.iter().any(|seen| matches!(seen, Seen::Failed(_))));
    for _ in 0..20_000 {
        end.feed(&window(0, 1));
    }
    assert!(end.seen.iter().any(|seen| matches!(seen, Seen::Failed(_))));
}

#[test]
fn frames_are_no_larger_than_the_peer_takes() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&settings(&[(4, 1 << 20)])).feed(&window(0, 1 << 20));
    end.feed(&headers(1, WHOLE, GET));
    let key = end.key(1);
    let mut lines = FieldLines::new();
    lines.push("x-long", "v\u{7e}".repeat(20_000)); // a byte that Huffman makes longer
    let parts = ResponseParts {
        status: 200,
        date: None,
        server: None,
        fields: FieldSource::Lines(&lines),
        content_length: None,
    };
    assert!(end.connection.send_response(key, &parts, false, &mut end.out));
    assert_eq!(end.connection.send_data(key, &[b'x'; 40_000], true, &mut end.out), 40_000);
    let sent: Vec<_> = end.sent().into_iter().filter(|(h, _)| h.stream == 1).collect();
    let kinds: Vec<_> = sent.iter().map(|(h, _)| (h.kind, h.flags, h.length <= 16_384)).collect();
    let (h, c, d) = (FrameKind::HEADERS, FrameKind::CONTINUATION, FrameKind::DATA);
    assert_eq!(
        kinds,
        [(h, 0, true), (c, 0, true), (c, BLOCK, true), (d, 0, true), (d, 0, true), (d, END, true)]
    );
}

#[test]
fn turns() {
    let mut end = End::ready_server(Limits::default());
    let mut open = |id, priority: Option<&str>| {
        let mut fields =
            block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
        if let Some(priority) = priority {
            fields.extend(block(&[("priority", priority)]));
        }
        end.feed(&headers(id, WHOLE, fields));
        let key = end.key(id);
        end.connection.set_ready(key, true);
        key
    };
    // 5 and 7 share; of 9 and 11 the first takes part.
    for (id, priority) in
        [(1, Some("u=5")), (3, Some("u=5")), (5, None), (7, None), (9, Some("u=3")), (11, Some("u=3"))]
    {
        open(id, priority);
    }
    let turns = |end: &mut End, count| -> Vec<u32> {
        (0..count).map(|_| end.connection.next_ready().unwrap().id()).collect()
    };
    let mut first = turns(&mut end, 3);
    first.sort();
    assert_eq!(first, [5, 7, 9]);
    let mut second = turns(&mut end, 3);
    second.sort();
    assert_eq!(second, [5, 7, 9]);
    // An update, also one that comes before its stream.
    end.feed(&frame(FrameKind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x03u=0"));
    end.feed(&frame(FrameKind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x0du=1, i"));
    assert_eq!(turns(&mut end, 2), [3, 3]);
    end.connection.set_ready(end.key(3), false);
    end.feed(&headers(13, WHOLE, GET));
    let late = end.key(13);
    assert_eq!(end.connection.priority(late), Priority { urgency: 1, is_incremental: true });
    end.connection.set_ready(late, true);
    assert_eq!(turns(&mut end, 2), [13, 13]);
}

#[test]
fn an_end_needs_no_window() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&settings(&[(4, 5)]));
    for id in [1, 3] {
        end.feed(&headers(id, WHOLE, GET));
        let key = end.key(id);
        assert_eq!(end.answer(key, 200, b"01234-more"), 5);
        end.connection.set_ready(key, true);
    }
    let (one, three) = (end.key(1), end.key(3));
    assert_eq!(end.connection.next_ready(), None);
    end.connection.set_may_end(three, true);
    assert_eq!(end.connection.next_ready(), Some(three));
    assert!(end.connection.is_starved(), "the other one");
    end.connection.set_may_end(three, false);
    assert_eq!(end.connection.next_ready(), None);
    // Where the window of the connection is closed, too.
    end.feed(&window(1, 70_000));
    let rest = vec![0; 70_000];
    while end.connection.send_data(one, &rest, false, &mut end.out) > 0 {}
    assert_eq!((end.connection.room(one), end.connection.next_ready()), (0, None));
    end.connection.set_may_end(one, true);
    assert_eq!(end.connection.next_ready(), Some(one));
    assert!(end.connection.begin_frame(one, 0, true).is_some());
}

#[test]
fn what_repeats_costs_a_byte() {
    let mut end = End::ready_server(Limits::default());
    let mut lines = FieldLines::new();
    lines.push("Content-Type", "text/html; charset=utf-8");
    lines.push("X-Frame-Options", "DENY");
    lines.push("Connection", "close");
    lines.push("Set-Cookie", "a=b");
    let mut lengths = Vec::new();
    for id in [1, 3, 5, 7] {
        end.feed(&headers(id, WHOLE, GET));
        let parts = ResponseParts {
            status: 200,
            date: Some(b"Sun, 06 Nov 1994 08:49:37 GMT"),
            server: Some("Tidegate"),
            fields: FieldSource::Lines(&lines),
            content_length: Some(id.into()),
        };
        end.connection.send_response(end.key(id), &parts, true, &mut end.out);
        lengths.push(end.sent().pop().unwrap().0.length);
    }
    // Status, server, date, type, frame options: a byte each. Cookie: 2 + 4. Length: 2 + 2.
    assert_eq!(lengths[2..], [5 + 6 + 4, 5 + 6 + 4], "{lengths:?}");

    // The same lines, kept for all connections: they are in this one's table already.
    let block = FieldBlock::of_lines(&lines);
    let parts = ResponseParts {
        status: 200,
        date: None,
        server: None,
        fields: FieldSource::Block(&block),
        content_length: None,
    };
    end.feed(&headers(9, WHOLE, GET));
    end.connection.send_response(end.key(9), &parts, true, &mut end.out);
    assert_eq!(end.sent().pop().unwrap().0.length, 3 + 6);
}

#[test]
fn a_quiet_connection_is_small() {
    let mut end = End::ready_server(Limits::default());
    for n in 0..100u32 {
        end.feed(&headers(2 * n + 1, WHOLE, GET));
        let key = end.key(2 * n + 1);
        end.answer(key, 200, b"x");
    }
    end.connection.relax();
    assert!(end.connection.is_idle());
    assert!(end.connection.memory() < 3 << 10, "{}", end.connection.memory());
}
