//! What RFC 9113 says a receiver MUST do about frames and streams: one row for each rule. The number before
//! a name is the section.

mod h2_support;

use h2_support::*;
use tidegate_wire::h2::ConnectionError::{self, *};
use tidegate_wire::h2::hpack::DecodeError;
use tidegate_wire::h2::{ErrorCode, Flood, FrameKind, Limits, Malformed, PREFACE, StreamError, flag};

/// What a server does about bytes that follow both prefaces.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Nothing went wrong.
    Fine,
    /// The connection ends.
    Ends(ConnectionError, ErrorCode),
    /// One stream ends.
    Breaks(StreamError, ErrorCode),
}

use Outcome::*;

fn outcome(end: &mut End) -> Outcome {
    let sent = end.sent();
    for seen in &end.seen {
        match *seen {
            Seen::Failed(error) => {
                let (header, payload) = sent.last().expect("a GOAWAY");
                assert_eq!((header.kind, header.stream), (FrameKind::GOAWAY, 0), "{error}");
                let code = ErrorCode(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
                assert_eq!(&payload[8..], error.to_string().as_bytes());
                assert!(end.connection.is_over());
                return Ends(error, code);
            }
            Seen::Broken { error, .. } => {
                let (_, payload) = sent
                    .iter()
                    .find(|(header, _)| header.kind == FrameKind::RST_STREAM)
                    .expect("a RST_STREAM");
                return Breaks(error, ErrorCode(u32::from_be_bytes(payload[..].try_into().unwrap())));
            }
            _ => {}
        }
    }
    Fine
}

fn check(name: &str, bytes: &[u8], expected: Outcome) {
    let mut whole = End::ready_server(Limits::default());
    whole.feed(bytes);
    assert_eq!(outcome(&mut whole), expected, "{name}");
    let mut trickled = End::ready_server(Limits::default());
    for byte in bytes {
        trickled.feed(&[*byte]);
    }
    assert_eq!(trickled.seen, whole.seen, "{name}, byte by byte");
    assert_eq!(outcome(&mut trickled), expected, "{name}, byte by byte");
}

const PROTOCOL: ErrorCode = ErrorCode::PROTOCOL_ERROR;
const SIZE: ErrorCode = ErrorCode::FRAME_SIZE_ERROR;
const FLOW: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;
const CLOSED: ErrorCode = ErrorCode::STREAM_CLOSED;
const COMPRESSION: ErrorCode = ErrorCode::COMPRESSION_ERROR;

#[test]
fn rules_for_frames() {
    let get = |stream| headers(stream, WHOLE, GET);
    let post = |stream| headers(stream, BLOCK, POST);
    let any = |kind, flags, stream, payload: &[u8]| frame(kind, flags, stream, payload);
    let too_long = |kind| any(kind, 0, 1, &[0; 16_385]);
    let rows: Vec<(&str, Vec<u8>, Outcome)> = vec![
        ("4.1 unknown frame types are ignored", any(FrameKind(0x77), 0xff, 5, b"x"), Fine),
        ("4.1 unknown flags are ignored", any(FrameKind::PING, 0xfe, 0, &[0; 8]), Fine),
        (
            "4.1 the reserved bit is ignored",
            {
                let mut bytes = get(1);
                bytes[5] |= 0x80;
                bytes
            },
            Fine,
        ),
        (
            "4.2 DATA over the largest size",
            too_long(FrameKind::DATA),
            Ends(FrameTooLarge(FrameKind::DATA), SIZE),
        ),
        (
            "4.2 HEADERS over the largest size",
            too_long(FrameKind::HEADERS),
            Ends(FrameTooLarge(FrameKind::HEADERS), SIZE),
        ),
        (
            "4.2 unknown frame over the largest size",
            too_long(FrameKind(0x77)),
            Ends(FrameTooLarge(FrameKind(0x77)), SIZE),
        ),
        (
            "4.3 a block that cannot be read",
            headers(1, WHOLE, b"\x41\x05a"),
            Ends(Compression(DecodeError::Truncated), COMPRESSION),
        ),
        (
            "4.3 a frame inside of a block",
            [headers(1, END, GET), get(3)].concat(),
            Ends(InsideFieldBlock(FrameKind::HEADERS), PROTOCOL),
        ),
        (
            "4.3 a continuation of another stream",
            [headers(1, END, GET), any(FrameKind::CONTINUATION, BLOCK, 3, b"")].concat(),
            Ends(InsideFieldBlock(FrameKind::CONTINUATION), PROTOCOL),
        ),
        (
            "4.3 an unknown frame inside of a block",
            [headers(1, END, GET), any(FrameKind(0x77), 0, 0, b"")].concat(),
            Ends(InsideFieldBlock(FrameKind(0x77)), PROTOCOL),
        ),
        (
            "4.3 a block in pieces",
            [
                headers(1, END, b"\x82\x86"),
                any(FrameKind::CONTINUATION, 0, 1, b"\x84"),
                any(FrameKind::CONTINUATION, BLOCK, 1, b"\x41\x01a"),
            ]
            .concat(),
            Fine,
        ),
        ("5.1 DATA on an idle stream", data(1, 0, b"x"), Ends(OnIdleStream(FrameKind::DATA), PROTOCOL)),
        (
            "5.1 DATA on a stream that only a server opens",
            data(2, 0, b"x"),
            Ends(OnIdleStream(FrameKind::DATA), PROTOCOL),
        ),
        (
            "5.1 RST_STREAM on an idle stream",
            reset(1, 8),
            Ends(OnIdleStream(FrameKind::RST_STREAM), PROTOCOL),
        ),
        (
            "5.1 WINDOW_UPDATE on an idle stream",
            window(1, 1),
            Ends(OnIdleStream(FrameKind::WINDOW_UPDATE), PROTOCOL),
        ),
        ("5.1 PRIORITY on an idle stream", any(FrameKind::PRIORITY, 0, 1, &[0, 0, 0, 3, 1]), Fine),
        (
            "5.1 DATA behind the end",
            [get(1), data(1, END, b"x")].concat(),
            Breaks(StreamError::Closed, CLOSED),
        ),
        ("5.1 HEADERS behind the end", [get(1), get(1)].concat(), Breaks(StreamError::Closed, CLOSED)),
        ("5.1 WINDOW_UPDATE behind the end", [get(1), window(1, 1)].concat(), Fine),
        (
            "5.1 PRIORITY behind the end",
            [get(1), any(FrameKind::PRIORITY, 0, 1, &[0, 0, 0, 3, 1])].concat(),
            Fine,
        ),
        (
            "5.1 DATA behind a reset",
            [post(1), reset(1, 8), data(1, END, b"x")].concat(),
            Ends(OnClosedStream(FrameKind::DATA), CLOSED),
        ),
        (
            "5.1 HEADERS behind a reset",
            [post(1), reset(1, 8), get(1)].concat(),
            Ends(OnClosedStream(FrameKind::HEADERS), CLOSED),
        ),
        ("5.1 WINDOW_UPDATE behind a reset", [post(1), reset(1, 8), window(1, 1)].concat(), Fine),
        ("5.1 RST_STREAM behind a reset", [post(1), reset(1, 8), reset(1, 8)].concat(), Fine),
        (
            "5.1 DATA behind a reset of ours",
            [post(1), window(1, 0), data(1, END, b"x")].concat(),
            Breaks(StreamError::ZeroIncrement, PROTOCOL),
        ),
        ("5.1.1 an even stream of a client", get(2), Ends(InvalidStreamNumber, PROTOCOL)),
        ("5.1.1 a number below the last", [get(5), get(3)].concat(), Ends(InvalidStreamNumber, PROTOCOL)),
        (
            "5.3 HEADERS that depend on themselves",
            headers(1, WHOLE | flag::PRIORITY, [&[0, 0, 0, 1, 1], GET].concat()),
            Breaks(StreamError::SelfDependency, PROTOCOL),
        ),
        (
            "5.3 PRIORITY that depends on itself",
            [post(1), any(FrameKind::PRIORITY, 0, 1, &[0x80, 0, 0, 1, 1])].concat(),
            Breaks(StreamError::SelfDependency, PROTOCOL),
        ),
        (
            "5.3 the same on an idle stream",
            any(FrameKind::PRIORITY, 0, 1, &[0x80, 0, 0, 1, 1]),
            Ends(SelfDependency, PROTOCOL),
        ),
        ("6.1 DATA on stream 0", data(0, 0, b"x"), Ends(OnConnection(FrameKind::DATA), PROTOCOL)),
        ("6.1 padding as long as the payload", [post(1), data(1, flag::PADDED, b"\x02ab")].concat(), Fine),
        (
            "6.1 padding longer than the payload",
            [post(1), data(1, flag::PADDED, b"\x03ab")].concat(),
            Ends(TooMuchPadding(FrameKind::DATA), PROTOCOL),
        ),
        (
            "6.1 no room for the length of padding",
            [post(1), data(1, flag::PADDED, b"")].concat(),
            Ends(TooMuchPadding(FrameKind::DATA), PROTOCOL),
        ),
        ("6.2 HEADERS on stream 0", get(0), Ends(OnConnection(FrameKind::HEADERS), PROTOCOL)),
        ("6.2 padded HEADERS", headers(1, WHOLE | flag::PADDED, [b"\x03", GET, b"\0\0\0"].concat()), Fine),
        (
            "6.2 too much padding",
            headers(1, WHOLE | flag::PADDED, [b"\x07", GET].concat()),
            Ends(TooMuchPadding(FrameKind::HEADERS), PROTOCOL),
        ),
        (
            "6.2 priority cut off",
            headers(1, WHOLE | flag::PRIORITY, b"\0\0\0\0"),
            Ends(WrongLength(FrameKind::HEADERS), SIZE),
        ),
        (
            "6.3 PRIORITY on stream 0",
            any(FrameKind::PRIORITY, 0, 0, &[0; 5]),
            Ends(OnConnection(FrameKind::PRIORITY), PROTOCOL),
        ),
        (
            "6.3 PRIORITY of 4 bytes",
            [post(1), any(FrameKind::PRIORITY, 0, 1, &[0; 4])].concat(),
            Breaks(StreamError::PriorityLength, SIZE),
        ),
        (
            "6.3 PRIORITY of 6 bytes",
            [post(1), any(FrameKind::PRIORITY, 0, 1, &[0; 6])].concat(),
            Breaks(StreamError::PriorityLength, SIZE),
        ),
        ("6.4 RST_STREAM on stream 0", reset(0, 0), Ends(OnConnection(FrameKind::RST_STREAM), PROTOCOL)),
        (
            "6.4 RST_STREAM of 3 bytes",
            [post(1), any(FrameKind::RST_STREAM, 0, 1, &[0; 3])].concat(),
            Ends(WrongLength(FrameKind::RST_STREAM), SIZE),
        ),
        (
            "6.5 SETTINGS on a stream",
            any(FrameKind::SETTINGS, 0, 1, b""),
            Ends(OnStream(FrameKind::SETTINGS), PROTOCOL),
        ),
        (
            "6.5 acknowledgement with a payload",
            any(FrameKind::SETTINGS, flag::ACK, 0, &[0; 6]),
            Ends(WrongLength(FrameKind::SETTINGS), SIZE),
        ),
        (
            "6.5 SETTINGS of 5 bytes",
            any(FrameKind::SETTINGS, 0, 0, &[0; 5]),
            Ends(WrongLength(FrameKind::SETTINGS), SIZE),
        ),
        ("6.5.2 ENABLE_PUSH of 2", settings(&[(2, 2)]), Ends(InvalidSetting(2), PROTOCOL)),
        ("6.5.2 ENABLE_PUSH of a client", settings(&[(2, 1)]), Fine),
        ("6.5.2 INITIAL_WINDOW_SIZE of 2^31", settings(&[(4, 1 << 31)]), Ends(InitialWindowTooLarge, FLOW)),
        ("6.5.2 MAX_FRAME_SIZE below 2^14", settings(&[(5, 16_383)]), Ends(InvalidSetting(5), PROTOCOL)),
        ("6.5.2 MAX_FRAME_SIZE of 2^24", settings(&[(5, 1 << 24)]), Ends(InvalidSetting(5), PROTOCOL)),
        ("6.5.2 MAX_FRAME_SIZE of 2^24 - 1", settings(&[(5, (1 << 24) - 1)]), Fine),
        ("6.5.2 unknown settings are ignored", settings(&[(0xff, 7), (0, 0)]), Fine),
        ("RFC 8441 3 ENABLE_CONNECT_PROTOCOL of 2", settings(&[(8, 2)]), Ends(InvalidSetting(8), PROTOCOL)),
        ("RFC 8441 3 taken back", settings(&[(8, 1), (8, 0)]), Ends(InvalidSetting(8), PROTOCOL)),
        ("RFC 9218 2.1 NO_RFC7540_PRIORITIES of 2", settings(&[(9, 2)]), Ends(InvalidSetting(9), PROTOCOL)),
        (
            "6.6 PUSH_PROMISE of a client",
            any(FrameKind::PUSH_PROMISE, BLOCK, 1, &[0, 0, 0, 2]),
            Ends(UnexpectedPush, PROTOCOL),
        ),
        (
            "6.7 PING on a stream",
            any(FrameKind::PING, 0, 1, &[0; 8]),
            Ends(OnStream(FrameKind::PING), PROTOCOL),
        ),
        (
            "6.7 PING of 7 bytes",
            any(FrameKind::PING, 0, 0, &[0; 7]),
            Ends(WrongLength(FrameKind::PING), SIZE),
        ),
        (
            "6.8 GOAWAY on a stream",
            any(FrameKind::GOAWAY, 0, 1, &[0; 8]),
            Ends(OnStream(FrameKind::GOAWAY), PROTOCOL),
        ),
        (
            "6.8 GOAWAY of 7 bytes",
            any(FrameKind::GOAWAY, 0, 0, &[0; 7]),
            Ends(WrongLength(FrameKind::GOAWAY), SIZE),
        ),
        ("6.8 GOAWAY with a word", any(FrameKind::GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0bye"), Fine),
        ("6.9 WINDOW_UPDATE by 0 on the connection", window(0, 0), Ends(ZeroIncrement, PROTOCOL)),
        (
            "6.9 WINDOW_UPDATE by 0 on a stream",
            [post(1), window(1, 0)].concat(),
            Breaks(StreamError::ZeroIncrement, PROTOCOL),
        ),
        (
            "6.9 WINDOW_UPDATE of 3 bytes",
            any(FrameKind::WINDOW_UPDATE, 0, 0, &[0; 3]),
            Ends(WrongLength(FrameKind::WINDOW_UPDATE), SIZE),
        ),
        ("6.9 the reserved bit is ignored", window(0, 1 << 31 | 1), Fine),
        ("6.9.1 a connection's window over 2^31 - 1", window(0, (1 << 31) - 1), Ends(WindowOverflow, FLOW)),
        (
            "6.9.1 a stream's window over 2^31 - 1",
            [post(1), window(1, (1 << 31) - 1)].concat(),
            Breaks(StreamError::WindowOverflow, FLOW),
        ),
        (
            "6.9.2 a window moved over 2^31 - 1",
            [post(1), window(1, 1), settings(&[(4, (1 << 31) - 1)])].concat(),
            Ends(WindowOverflow, FLOW),
        ),
        (
            "6.10 CONTINUATION alone",
            any(FrameKind::CONTINUATION, BLOCK, 1, b""),
            Ends(UnexpectedContinuation, PROTOCOL),
        ),
        (
            "6.10 CONTINUATION behind a whole block",
            [post(1), any(FrameKind::CONTINUATION, BLOCK, 1, b"")].concat(),
            Ends(UnexpectedContinuation, PROTOCOL),
        ),
        (
            "6.10 CONTINUATION on stream 0",
            [headers(1, 0, GET), any(FrameKind::CONTINUATION, BLOCK, 0, b"")].concat(),
            Ends(InsideFieldBlock(FrameKind::CONTINUATION), PROTOCOL),
        ),
        (
            "8.1 trailers that do not end the stream",
            [post(1), headers(1, BLOCK, block(&[("a", "b")]))].concat(),
            Breaks(Malformed::TrailersNotLast.into(), PROTOCOL),
        ),
        ("RFC 9218 7.1 PRIORITY_UPDATE", any(FrameKind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"), Fine),
        (
            "RFC 9218 7.1 on a stream",
            any(FrameKind::PRIORITY_UPDATE, 0, 1, b"\0\0\0\x01u=1"),
            Ends(InvalidPriorityUpdate, PROTOCOL),
        ),
        (
            "RFC 9218 7.1 for stream 0",
            any(FrameKind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\0u=1"),
            Ends(InvalidPriorityUpdate, PROTOCOL),
        ),
        (
            "RFC 9218 7.1 cut off",
            any(FrameKind::PRIORITY_UPDATE, 0, 0, b"\0\0\0"),
            Ends(WrongLength(FrameKind::PRIORITY_UPDATE), SIZE),
        ),
    ];
    for (name, bytes, expected) in rows {
        check(name, &bytes, expected);
    }
}

#[test]
fn the_preface_comes_first() {
    for (name, bytes, expected) in [
        ("3.4 another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec(), Some(InvalidPreface)),
        ("3.4 its last byte wrong", [&PREFACE[..23], b"x"].concat(), Some(InvalidPreface)),
        ("3.4 PING first", [PREFACE, &frame(FrameKind::PING, 0, 0, [0; 8])].concat(), Some(MissingSettings)),
        (
            "3.4 an acknowledgement first",
            [PREFACE, &frame(FrameKind::SETTINGS, flag::ACK, 0, b"")].concat(),
            Some(MissingSettings),
        ),
        ("3.4 as it should be", [PREFACE, &settings(&[])].concat(), None),
    ] {
        for cut in 0..bytes.len() {
            let mut end = End::server(Limits::default());
            end.feed(&bytes[..cut]).feed(&bytes[cut..]);
            assert_eq!(end.seen.first().cloned(), expected.map(Seen::Failed), "{name}, cut at {cut}");
        }
    }
}

#[test]
fn settings_are_acknowledged_and_pings_echoed() {
    let mut end = End::ready_server(Limits::default());
    end.feed(&settings(&[(1, 0), (3, 7), (4, 5), (6, 9), (8, 1), (9, 1)]));
    end.feed(&frame(FrameKind::PING, 0, 0, b"12345678"));
    let sent = end.sent();
    assert_eq!((sent[0].0.kind, sent[0].0.flags, sent[0].0.length), (FrameKind::SETTINGS, flag::ACK, 0));
    assert_eq!((sent[1].0.kind, sent[1].0.flags), (FrameKind::PING, flag::ACK));
    assert_eq!(sent[1].1, b"12345678");
    let peer = end.connection.peer_settings();
    assert_eq!((peer.header_table_size, peer.max_concurrent_streams, peer.initial_window_size), (0, 7, 5));
    assert_eq!((peer.max_header_list_size, peer.enable_connect_protocol), (9, true));
    assert!(peer.no_rfc7540_priorities);
}

#[test]
fn streams_over_the_limit_are_refused() {
    let mut end = End::ready_server(Limits { streams: 2, ..Limits::default() });
    for stream in [1, 3, 5] {
        end.feed(&headers(stream, BLOCK, POST));
    }
    assert_eq!(end.seen.last(), Some(&Seen::Broken { id: None, error: StreamError::TooManyStreams }));
    assert_eq!(end.sent().last().unwrap().1, ErrorCode::REFUSED_STREAM.0.to_be_bytes());
    // What belongs to the refused stream is ignored, and the tables stay alike.
    end.feed(&data(5, END, b"x")).feed(&reset(1, 8)).feed(&headers(7, WHOLE, GET));
    assert!(matches!(end.seen.last(), Some(Seen::Request { id: 7, .. })), "{:?}", end.seen);
}

#[test]
fn floods_end_in_calm() {
    let get_and_reset = |n: u32| [headers(2 * n + 1, WHOLE, GET), reset(2 * n + 1, 8)].concat();
    type Row = (&'static str, Flood, Box<dyn Fn(u32) -> Vec<u8>>);
    let rows: Vec<Row> = vec![
        ("17 rapid reset", Flood::Reset, Box::new(get_and_reset)),
        (
            "18 resets provoked by a window",
            Flood::ProvokedReset,
            Box::new(|n| [headers(2 * n + 1, WHOLE, GET), window(2 * n + 1, 0)].concat()),
        ),
        (
            "18 resets provoked by data behind the end",
            Flood::ProvokedReset,
            Box::new(|n| [headers(2 * n + 1, WHOLE, GET), data(2 * n + 1, END, b"")].concat()),
        ),
        ("18 malformed requests", Flood::ProvokedReset, Box::new(|n| headers(2 * n + 1, WHOLE, b"\x82"))),
        ("21 PING", Flood::Ping, Box::new(|_| frame(FrameKind::PING, 0, 0, [0; 8]))),
        ("21 acknowledged PING", Flood::Ping, Box::new(|_| frame(FrameKind::PING, flag::ACK, 0, [0; 8]))),
        ("21 SETTINGS", Flood::Settings, Box::new(|_| settings(&[(4, 70_000)]))),
        (
            "21 acknowledged SETTINGS",
            Flood::Settings,
            Box::new(|_| frame(FrameKind::SETTINGS, flag::ACK, 0, b"")),
        ),
        (
            "21 PRIORITY",
            Flood::Priority,
            Box::new(|n| frame(FrameKind::PRIORITY, 0, 2 * n + 1, [0, 0, 0, 0, 1])),
        ),
        (
            "21 PRIORITY_UPDATE",
            Flood::Priority,
            Box::new(|n| {
                frame(FrameKind::PRIORITY_UPDATE, 0, 0, [(2 * n + 1).to_be_bytes(), *b"u=1,"].concat())
            }),
        ),
        (
            "21 empty DATA",
            Flood::EmptyData,
            Box::new(|n| if n == 0 { headers(1, BLOCK, POST) } else { data(1, 0, b"") }),
        ),
        (
            "21 DATA of padding",
            Flood::EmptyData,
            Box::new(|n| if n == 0 { headers(1, BLOCK, POST) } else { data(1, flag::PADDED, b"\x01\0") }),
        ),
        ("21 WINDOW_UPDATE", Flood::WindowUpdate, Box::new(|_| window(0, 1))),
        ("21 unknown frames", Flood::Ignored, Box::new(|_| frame(FrameKind(0x42), 0, 0, b""))),
        (
            "19 CONTINUATION without end",
            Flood::Continuation,
            Box::new(|n| if n == 0 { headers(1, 0, GET) } else { frame(FrameKind::CONTINUATION, 0, 1, b"") }),
        ),
        (
            "19 a block over the limit",
            Flood::Continuation,
            Box::new(|n| {
                if n == 0 { headers(1, 0, GET) } else { frame(FrameKind::CONTINUATION, 0, 1, [0; 16_384]) }
            }),
        ),
    ];
    for (name, flood, make) in rows {
        let mut end = End::ready_server(Limits::default());
        let limit = (0..4000).find(|n| {
            end.feed(&make(*n));
            matches!(end.seen.last(), Some(Seen::Failed(_)))
        });
        assert_eq!(end.seen.last(), Some(&Seen::Failed(Flood(flood))), "{name}: {limit:?}");
        let (header, payload) = end.sent().pop().unwrap();
        assert_eq!(header.kind, FrameKind::GOAWAY, "{name}");
        assert_eq!(payload[4..8], ErrorCode::ENHANCE_YOUR_CALM.0.to_be_bytes(), "{name}");
        assert!(end.connection.memory() < 80 << 10, "{name}: {}", end.connection.memory());
    }
}

#[test]
fn an_honest_client_may_cancel_all_day() {
    let mut end = End::ready_server(Limits::default());
    for n in 0..5_000u32 {
        let (answered, cancelled) = (4 * n + 1, 4 * n + 3);
        end.feed(&headers(answered, WHOLE, GET));
        end.answer(end.key(answered), 200, b"");
        end.feed(&headers(cancelled, WHOLE, GET)).feed(&reset(cancelled, 8));
        end.keys.clear();
        end.out.clear();
        assert_eq!(end.seen.pop(), Some(Seen::Reset { id: cancelled, code: ErrorCode::CANCEL }), "{n}");
        end.seen.clear();
    }
    assert_eq!(end.connection.open_streams(), 0);
}

#[test]
fn header_bombs_cost_nothing() {
    // One entry of 4,000 bytes, and then thousands of references to it.
    let mut entry = vec![0x40, 1, b'x', 127];
    entry.extend_from_slice(&[0xb1, 0x1e]); // 127 + 49 + 30 * 128 = 4,016
    entry.extend_from_slice(&[b'y'; 4016]);
    let mut end = End::ready_server(Limits::default());
    end.feed(&headers(1, WHOLE, [GET, &entry].concat()));
    assert!(matches!(end.seen.last(), Some(Seen::Request { id: 1, .. })));
    let bomb = [GET, &[0xbe; 16_000][..]].concat();
    for n in 1..=20u32 {
        end.feed(&headers(2 * n + 1, WHOLE, &bomb));
        assert_eq!(end.seen.last(), Some(&Seen::Refused { id: 2 * n + 1, status: 431 }));
        assert!(end.section.memory() < 200 << 10, "{}", end.section.memory());
    }
    end.feed(&headers(43, WHOLE, &bomb));
    assert_eq!(end.seen.last(), Some(&Seen::Failed(Flood(Flood::FieldSection))));
}

#[test]
fn cookie_crumbs_count_as_fields_do() {
    let limits = Limits::default();
    // 32 KiB hold 1,024 fields of nothing at most.
    let crumbs = [GET, &b"\x60\x00"[..], &[0xbe; 1000][..]].concat();
    let mut end = End::ready_server(limits);
    end.feed(&headers(1, WHOLE, &crumbs));
    assert_eq!(end.seen.last(), Some(&Seen::Refused { id: 1, status: 431 }));
}
