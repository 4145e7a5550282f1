//! Response heads as a client reads them, and what is written by the server's role.

use std::num::NonZeroUsize;
use tidegate_wire::fuzzing::{Event, response_events};
use tidegate_wire::h1::*;

const LIMITS: HeadLimits = HeadLimits { head_size: 32 << 10, target_size: 8 << 10, fields: 100 };
const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

#[test]
fn ambiguous_responses_15() {
    use ResponseError::*;
    let rows: &[(&str, &str, &[u8], ResponseError)] = &[
        (
            "both",
            "GET",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            Framing(FramingError::BothLengthAndCoding),
        ),
        (
            "both, HEAD",
            "HEAD",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            Framing(FramingError::BothLengthAndCoding),
        ),
        (
            "two lengths",
            "GET",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            Framing(FramingError::DuplicateLength),
        ),
        (
            "the same length twice",
            "GET",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            Framing(FramingError::DuplicateLength),
        ),
        (
            "signed length",
            "GET",
            b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            Framing(FramingError::InvalidLength),
        ),
        (
            "length of a 304",
            "GET",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: x\r\n\r\n",
            Framing(FramingError::InvalidLength),
        ),
        (
            "gzip alone",
            "GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            Framing(FramingError::ChunkedNotFinal),
        ),
        (
            "gzip, chunked",
            "GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            Framing(FramingError::UnknownCoding),
        ),
        (
            "chunked twice",
            "GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            Framing(FramingError::RepeatedChunked),
        ),
        (
            "chunked in 1.0",
            "GET",
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Framing(FramingError::CodingInHttp10),
        ),
        ("204 with a length", "GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", BodyNotAllowed),
        (
            "204 chunked",
            "GET",
            b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
            BodyNotAllowed,
        ),
        ("100 with a length", "GET", b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n", BodyNotAllowed),
        ("101 without Upgrade", "GET", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", SwitchToNothing),
        ("101 not named", "GET", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", SwitchToNothing),
        ("folded", "GET", b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", Field(FieldError::ObsoleteFold)),
        (
            "space before the colon",
            "GET",
            b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            Field(FieldError::SpaceBeforeColon),
        ),
        ("bare LF in the status line", "GET", b"HTTP/1.1 200 OK\nA: b\r\n\r\n", Field(FieldError::BareLf)),
        ("bare LF, no reason", "GET", b"HTTP/1.1 200\nA: b\r\n\r\n", Field(FieldError::BareLf)),
        ("bare LF and no fields", "GET", b"HTTP/1.1 200 OK\n\r\n", Field(FieldError::BareLf)),
        ("bare LF behind a field", "GET", b"HTTP/1.1 200 OK\r\nA: b\n\r\n", Field(FieldError::BareLf)),
        ("bare CR in the reason", "GET", b"HTTP/1.1 200 O\rK\r\n\r\n", Field(FieldError::BareCr)),
        ("NUL in the reason", "GET", b"HTTP/1.1 200 O\0K\r\n\r\n", InvalidReason),
        ("NUL in a value", "GET", b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", Field(FieldError::InvalidValue)),
        ("status 099", "GET", b"HTTP/1.1 099 X\r\n\r\n", InvalidStatus),
        ("status 600", "GET", b"HTTP/1.1 600 X\r\n\r\n", InvalidStatus),
        ("status of two digits", "GET", b"HTTP/1.1 20 OK\r\n\r\n", InvalidStatus),
        ("status of four digits", "GET", b"HTTP/1.1 2000 OK\r\n\r\n", InvalidStatus),
        ("status of letters", "GET", b"HTTP/1.1 2x0 OK\r\n\r\n", InvalidStatus),
        ("two spaces", "GET", b"HTTP/1.1  200 OK\r\n\r\n", InvalidStatus),
        ("tab", "GET", b"HTTP/1.1\t200 OK\r\n\r\n", InvalidVersion),
        ("empty line before", "GET", b"\r\nHTTP/1.1 200 OK\r\n\r\n", InvalidVersion),
        ("other protocol", "GET", b"ICY 200 OK\r\n\r\n", InvalidVersion),
        ("lower case", "GET", b"http/1.1 200 OK\r\n\r\n", InvalidVersion),
        ("HTTP/2", "GET", b"HTTP/2.0 200 OK\r\n\r\n", UnsupportedVersion),
        ("HTTP/1.2 of two digits", "GET", b"HTTP/1.22 200 OK\r\n\r\n", InvalidVersion),
        ("HTTP/1.2, status 999", "GET", b"HTTP/1.2 999 OK\r\n\r\n", InvalidStatus),
        ("HTTP/1.2, bare LF", "GET", b"HTTP/1.2 200 OK\n\r\n", Field(FieldError::BareLf)),
        (
            "HTTP/1.2, space before the colon",
            "GET",
            b"HTTP/1.2 200 OK\r\nA : b\r\n\r\n",
            Field(FieldError::SpaceBeforeColon),
        ),
        ("HTTP/1.x", "GET", b"HTTP/1.x 200 OK\r\n\r\n", InvalidVersion),
    ];
    for (name, method, bytes, expected) in rows {
        for cut in 0..=bytes.len() {
            match parse_response(&bytes[..cut], &LIMITS, &mut FieldSpace::new(), method) {
                Ok(None) if cut < bytes.len() => {}
                other => assert_eq!(other.map(|_| ()), Err(*expected), "{name}, cut at {cut}"),
            }
        }
    }
    let large = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(40 << 10));
    let outcome = parse_response(large.as_bytes(), &LIMITS, &mut FieldSpace::new(), "GET").map(|_| ());
    assert_eq!(outcome, Err(HeadTooLarge));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    let outcome = parse_response(many.as_bytes(), &LIMITS, &mut FieldSpace::new(), "GET").map(|_| ());
    assert_eq!(outcome, Err(Field(FieldError::TooMany)));
}

#[test]
fn what_good_responses_mean() {
    use BodyLength::*;
    use ResponseKind::*;
    type Meaning = (ResponseKind, BodyLength, bool);
    let rows: &[(&str, &str, &str, Meaning)] = &[
        ("length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", (Final, Length(5), true)),
        ("length 0", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", (Final, Empty, true)),
        ("chunked", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", (Final, Chunked, true)),
        ("until close", "GET", "HTTP/1.1 200 OK\r\n", (Final, UntilClose, false)),
        (
            "close",
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n",
            (Final, Length(5), false),
        ),
        ("1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n", (Final, Length(5), false)),
        ("1.2", "GET", "HTTP/1.2 200 OK\r\nContent-Length: 5\r\n", (Final, Length(5), true)),
        ("1.2, no reason", "GET", "HTTP/1.2 200\r\nContent-Length: 5\r\n", (Final, Length(5), true)),
        ("1.9 chunked", "GET", "HTTP/1.9 200 OK\r\nTransfer-Encoding: chunked\r\n", (Final, Chunked, true)),
        (
            "1.2, close",
            "GET",
            "HTTP/1.2 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n",
            (Final, Length(5), false),
        ),
        (
            "1.0 keep-alive",
            "GET",
            "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n",
            (Final, Length(5), true),
        ),
        (
            "1.0 keep-alive until close",
            "GET",
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n",
            (Final, UntilClose, false),
        ),
        ("HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", (Final, Empty, true)),
        ("HEAD chunked", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", (Final, Empty, true)),
        ("HEAD without length", "HEAD", "HTTP/1.1 200 OK\r\n", (Final, Empty, true)),
        ("204", "GET", "HTTP/1.1 204 No Content\r\n", (Final, Empty, true)),
        (
            "204 with length 0",
            "GET",
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n",
            (Final, Empty, true),
        ),
        ("304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", (Final, Empty, true)),
        ("100", "PUT", "HTTP/1.1 100 Continue\r\n", (Interim, Empty, true)),
        ("103", "GET", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n", (Interim, Empty, true)),
        (
            "101",
            "GET",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n",
            (Switching, Empty, false),
        ),
        ("CONNECT", "CONNECT", "HTTP/1.1 200 OK\r\n", (Tunnel, Empty, false)),
        (
            "CONNECT with length",
            "CONNECT",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
            (Tunnel, Empty, false),
        ),
        ("CONNECT refused", "CONNECT", "HTTP/1.1 407 X\r\nContent-Length: 5\r\n", (Final, Length(5), true)),
        ("no reason", "GET", "HTTP/1.1 200 \r\nContent-Length: 5\r\n", (Final, Length(5), true)),
        ("no reason, no space", "GET", "HTTP/1.1 200\r\nContent-Length: 5\r\n", (Final, Length(5), true)),
        (
            "reason beyond ASCII",
            "GET",
            "HTTP/1.1 200 \u{fc}\r\nContent-Length: 5\r\n",
            (Final, Length(5), true),
        ),
    ];
    for (name, method, head, expected) in rows {
        let bytes = format!("{head}\r\nbehind it");
        let mut space = FieldSpace::new();
        let head = parse_response(bytes.as_bytes(), &LIMITS, &mut space, method);
        let head = head.unwrap_or_else(|e| panic!("{name}: {e}")).expect(name);
        assert_eq!((head.kind, head.body, head.keep_alive), *expected, "{name}");
        assert_eq!(head.len, bytes.len() - 9, "{name}");
    }
}

#[test]
fn interim_then_final() {
    let mut bytes = CONTINUE.to_vec();
    encode_interim(&mut bytes, 103, "Early Hints", b"Link: </a.css>; rel=preload\r\n");
    bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let events = response_events(&[&bytes], &LIMITS, "GET");
    let heads = events.iter().filter(|event| matches!(event, Event::Head(_))).count();
    assert_eq!(heads, 3, "{events:?}");
    assert_eq!(events[events.len() - 2..], [Event::Data(b"hi".to_vec()), Event::End]);
}

fn parts(framing: ResponseFraming, connection: ConnectionField) -> ResponseParts<'static> {
    let field_lines = b"Content-Type: text/plain\r\n";
    let (date, server) = (Some(DATE), Some("Tidegate"));
    ResponseParts { status: 200, reason: "OK", date, server, field_lines, framing, connection }
}

#[test]
fn encoded_heads_are_exact() {
    let start = "HTTP/1.1 200 OK\r\nServer: Tidegate\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/plain\r\n";
    for (framing, connection, rest) in [
        (ResponseFraming::Length(5), ConnectionField::None, "Content-Length: 5\r\n"),
        (ResponseFraming::Length(0), ConnectionField::Close, "Content-Length: 0\r\nConnection: close\r\n"),
        (ResponseFraming::Chunked, ConnectionField::None, "Transfer-Encoding: chunked\r\n"),
        (ResponseFraming::UntilClose, ConnectionField::Close, "Connection: close\r\n"),
        (ResponseFraming::None, ConnectionField::KeepAlive, "Connection: keep-alive\r\n"),
    ] {
        let mut out = b"before".to_vec();
        let date_at = encode_head(&mut out, &parts(framing, connection)).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), format!("before{start}{rest}\r\n"));
        assert_eq!(&out[date_at..date_at + 29], DATE);
    }
    for status in [100, 199, 204] {
        for framing in [ResponseFraming::Length(5), ResponseFraming::Chunked] {
            let (date, server, field_lines) = (None, None, &b""[..]);
            let connection = ConnectionField::None;
            let mut out = Vec::new();
            let parts = ResponseParts { status, reason: "", date, server, field_lines, framing, connection };
            assert_eq!(encode_head(&mut out, &parts), None);
            assert_eq!(String::from_utf8_lossy(&out), format!("HTTP/1.1 {status} \r\n\r\n"));
        }
    }
}

#[test]
fn a_prebuilt_response_is_stamped() {
    let mut prebuilt = Prebuilt::new(&parts(ResponseFraming::Length(2), ConnectionField::Close), b"hi");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((prebuilt.body(), text(prebuilt.head()).contains("Connection")), (&b"hi"[..], false));
    assert_eq!(prebuilt.as_bytes(), [prebuilt.head(), prebuilt.body()].concat());

    let before = text(prebuilt.as_bytes());
    let later = b"Mon, 07 Nov 1994 00:00:00 GMT";
    prebuilt.stamp(later);
    assert_eq!(text(prebuilt.as_bytes()), before.replace("Sun, 06 Nov 1994 08:49:37 GMT", &text(later)));

    let mut head = Vec::new();
    prebuilt.append_head(&mut head, ConnectionField::KeepAlive);
    assert!(head.ends_with(b"Content-Length: 2\r\nConnection: keep-alive\r\n\r\n"));

    let parts = ResponseParts { date: None, ..parts(ResponseFraming::Length(2), ConnectionField::None) };
    let mut dateless = Prebuilt::new(&parts, b"hi");
    let before = dateless.clone();
    dateless.stamp(later);
    assert_eq!(dateless, before);
}

#[test]
fn chunk_prefixes() {
    for (len, expected) in [
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (65_536, "10000\r\n"),
        (usize::MAX, "ffffffffffffffff\r\n"),
    ] {
        assert_eq!(chunk_prefix(NonZeroUsize::new(len).unwrap()).as_ref(), expected.as_bytes());
    }
    let mut out = Vec::new();
    append_chunk(&mut out, b"");
    append_chunk(&mut out, b"hi");
    end_of_chunks(&mut out, b"A: b\r\n");
    assert_eq!(out, b"2\r\nhi\r\n0\r\nA: b\r\n\r\n");
}

#[test]
fn unsafe_parts_are_not_written_14() {
    let good = RequestParts {
        method: "GET",
        target: "/a?b",
        host: "example.com",
        field_lines: b"A: b\r\n",
        framing: RequestFraming::Length(0),
        connection: ConnectionField::Close,
    };
    let mut out = Vec::new();
    encode_request(&mut out, &good).unwrap();
    let expected =
        "GET /a?b HTTP/1.1\r\nHost: example.com\r\nA: b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);

    let rows = [
        (RequestParts { method: "", ..good }, UnsafeRequest::Method),
        (RequestParts { method: "GET /x HTTP/1.1\r\n", ..good }, UnsafeRequest::Method),
        (RequestParts { target: "", ..good }, UnsafeRequest::Target),
        (RequestParts { target: "/ HTTP/1.1\r\nX: y", ..good }, UnsafeRequest::Target),
        (RequestParts { target: "/\0", ..good }, UnsafeRequest::Target),
        (RequestParts { host: "", ..good }, UnsafeRequest::Host),
        (RequestParts { host: "a\r\nX: y", ..good }, UnsafeRequest::Host),
    ];
    for (parts, expected) in rows {
        let mut out = b"before".to_vec();
        assert_eq!(encode_request(&mut out, &parts), Err(expected));
        assert_eq!(out, b"before");
    }
    let rows: &[(&str, &[u8], UnsafeField)] = &[
        ("", b"x", UnsafeField::Name),
        (":path", b"x", UnsafeField::Name),
        ("a b", b"x", UnsafeField::Name),
        ("a\r\nb", b"x", UnsafeField::Name),
        ("a", b"x\r\nb: c", UnsafeField::Value),
        ("a", b"x\n", UnsafeField::Value),
        ("a", b"x\r", UnsafeField::Value),
        ("a", b"\0", UnsafeField::Value),
    ];
    for (name, value, expected) in rows {
        let mut out = b"before".to_vec();
        assert_eq!(append_field(&mut out, name, value), Err(*expected));
        assert_eq!(out, b"before");
    }
}
