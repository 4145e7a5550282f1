//! What RFC 9113 section 8 says about requests and responses, and what must never reach HTTP/1 (FAULTS 14):
//! one row for each rule.

mod h2_support;

use h2_support::*;
use tidegate_http::FieldLines;
use tidegate_wire::h2::Malformed::{self, *};
use tidegate_wire::h2::{
    ConnectionError, ErrorCode, FieldSource, Flood, FrameKind, Limits, RequestParts, StreamError, flag,
};

const HEAD: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];

fn with(more: &[(&str, &str)]) -> Vec<u8> {
    block(&[&HEAD[..], more].concat())
}

/// The head with one pseudo-field replaced.
fn but(name: &str, value: &str) -> Vec<u8> {
    let fields: Vec<_> =
        HEAD.iter().map(|field| if field.0 == name { (name, value) } else { *field }).collect();
    block(&fields)
}

fn without(name: &str) -> Vec<u8> {
    let fields: Vec<_> = HEAD.iter().copied().filter(|field| field.0 != name).collect();
    block(&fields)
}

fn request(flags: u8, block: &[u8], limits: Limits) -> Seen {
    let mut end = End::ready_server(limits);
    end.feed(&headers(1, flags, block));
    let seen = end.seen[0].clone();
    // One bad message never takes the connection with it.
    end.feed(&headers(3, WHOLE, GET));
    assert!(matches!(end.seen.last(), Some(Seen::Request { id: 3, .. })), "{:?}", end.seen);
    seen
}

#[test]
fn malformed_requests() {
    let rows: Vec<(&str, Vec<u8>, Malformed)> = vec![
        ("8.2.1 upper case", with(&[("X-Y", "z")]), FieldName),
        ("8.2.1 empty name", with(&[("", "z")]), FieldName),
        ("8.2.1 space in a name", with(&[("x y", "z")]), FieldName),
        ("8.2.1 colon in a name", with(&[("x:y", "z")]), FieldName),
        ("8.2.1 NUL in a name", with(&[("x\0", "z")]), FieldName),
        ("8.2.1 line end in a name", with(&[("x\r\ny", "z")]), FieldName),
        ("8.2.1 beyond ASCII in a name", with(&[("x\u{e9}", "z")]), FieldName),
        ("8.2.1 DEL in a name", with(&[("x\x7f", "z")]), FieldName),
        ("8.2.1 CR in a value", with(&[("x", "a\rb")]), FieldValue),
        ("8.2.1 LF in a value", with(&[("x", "a\nb")]), FieldValue),
        ("8.2.1 NUL in a value", with(&[("x", "a\0b")]), FieldValue),
        ("8.2.1 a second request in a value", with(&[("x", "a\r\n\r\nGET /admin HTTP/1.1")]), FieldValue),
        ("8.2.1 space before a value", with(&[("x", " a")]), FieldValue),
        ("8.2.1 tab behind a value", with(&[("x", "a\t")]), FieldValue),
        ("8.2.1 NUL in a pseudo-field", but(":path", "/\0"), FieldValue),
        ("8.2.2 connection", with(&[("connection", "close")]), ConnectionField),
        ("8.2.2 keep-alive", with(&[("keep-alive", "timeout=1")]), ConnectionField),
        ("8.2.2 proxy-connection", with(&[("proxy-connection", "close")]), ConnectionField),
        ("8.2.2 transfer-encoding", with(&[("transfer-encoding", "chunked")]), ConnectionField),
        ("8.2.2 upgrade", with(&[("upgrade", "websocket")]), ConnectionField),
        ("8.2.2 te", with(&[("te", "gzip")]), TransferCoding),
        ("8.2.2 te with more than trailers", with(&[("te", "trailers, deflate;q=0.5")]), TransferCoding),
        ("8.3 unknown pseudo-field", with(&[(":x", "y")]), UnknownPseudo),
        (
            "8.3 pseudo-field of a response",
            [block(&HEAD), block(&[(":status", "200")])].concat(),
            UnknownPseudo,
        ),
        (
            "8.3 pseudo-field behind a field",
            [with(&[("x", "y")]), block(&[(":authority", "a")])].concat(),
            LatePseudo,
        ),
        (
            "8.3 pseudo-field behind a cookie",
            [block(&HEAD[..3]), block(&[("cookie", "y"), (":authority", "a")])].concat(),
            LatePseudo,
        ),
        ("8.3 pseudo-field twice", with(&[(":path", "/")]), RepeatedPseudo),
        ("8.3.1 no method", without(":method"), MissingPseudo),
        ("8.3.1 no scheme", without(":scheme"), MissingPseudo),
        ("8.3.1 no path", without(":path"), MissingPseudo),
        ("8.3.1 no authority and no host", without(":authority"), MissingAuthority),
        ("8.3.1 empty method", but(":method", ""), Method),
        ("8.3.1 method with a space", but(":method", "GET /admin"), Method),
        ("8.3.1 empty scheme", but(":scheme", ""), Scheme),
        ("8.3.1 scheme with a slash", but(":scheme", "http://x/"), Scheme),
        ("8.3.1 empty path", but(":path", ""), Path),
        ("8.3.1 relative path", but(":path", "a"), Path),
        ("8.3.1 absolute target", but(":path", "http://a/"), Path),
        ("8.3.1 asterisk of a GET", but(":path", "*"), Path),
        ("8.3.1 path with a space", but(":path", "/ HTTP/1.1"), Path),
        ("8.3.1 path with a fragment", but(":path", "/#a"), Path),
        ("8.3.1 path beyond ASCII", but(":path", "/\u{e9}"), Path),
        ("8.3.1 empty authority", but(":authority", ""), Authority),
        ("8.3.1 user information", but(":authority", "u@a"), Authority),
        ("8.3.1 authority with a path", but(":authority", "a/b"), Authority),
        ("8.3.1 host is another", with(&[("host", "b")]), ContradictingHost),
        ("8.3.1 host is another port", with(&[("host", "a:81")]), ContradictingHost),
        ("8.3.1 host is none", with(&[("host", "")]), ContradictingHost),
        ("8.3.1 host twice", with(&[("host", "a"), ("host", "a")]), RepeatedHost),
        ("8.3.1 invalid host", [without(":authority"), block(&[("host", "a b")])].concat(), Authority),
        ("8.5 CONNECT with a path", but(":method", "CONNECT"), ConnectWithPath),
        (
            "9110 9.3.6 CONNECT with a content-length",
            block(&[(":method", "CONNECT"), (":authority", "a:1"), ("content-length", "0")]),
            ContentLength,
        ),
        ("8.5 CONNECT without authority", block(&[(":method", "CONNECT")]), MissingPseudo),
        ("8.5 CONNECT without a port", block(&[(":method", "CONNECT"), (":authority", "a")]), Authority),
        (
            "RFC 8441 4 :protocol that was not announced",
            [but(":method", "CONNECT"), block(&[(":protocol", "websocket")])].concat(),
            UnexpectedProtocol,
        ),
        ("RFC 8441 4 :protocol with GET", with(&[(":protocol", "websocket")]), UnexpectedProtocol),
        (
            "8.1.1 content-length twice",
            with(&[("content-length", "1"), ("content-length", "1")]),
            ContentLength,
        ),
        ("8.1.1 content-length of letters", with(&[("content-length", "a")]), ContentLength),
        ("8.1.1 content-length with a sign", with(&[("content-length", "+1")]), ContentLength),
        (
            "8.1.1 content-length beyond 2^63",
            with(&[("content-length", "9223372036854775808")]),
            ContentLength,
        ),
    ];
    for (name, block, malformed) in rows {
        let expected = Seen::Broken { id: None, error: StreamError::Malformed(malformed) };
        assert_eq!(request(BLOCK, &block, Limits::default()), expected, "{name}");
        assert_eq!(request(WHOLE, &block, Limits::default()), expected, "{name}");
    }
    let connect = Limits { extended_connect: true, ..Limits::default() };
    let named = [but(":method", "CONNECT"), block(&[(":protocol", "websocket"), ("content-length", "46")])];
    let expected = Seen::Broken { id: None, error: StreamError::Malformed(ContentLength) };
    assert_eq!(request(BLOCK, &named.concat(), connect), expected, "RFC 8441 extended CONNECT with a length");
}

#[test]
fn good_requests() {
    let connect = Limits { extended_connect: true, ..Limits::default() };
    let plain = Limits::default();
    let rows: Vec<(&str, Vec<u8>, Limits, &str)> = vec![
        ("plain", with(&[]), plain, r#"("GET", "http", "a", "/", None) (None, false) host: a"#),
        (
            "host alone",
            [without(":authority"), block(&[("host", "a:1")])].concat(),
            plain,
            r#"("GET", "http", "a:1", "/", None) (None, false) host: a:1"#,
        ),
        (
            "host as well",
            with(&[("host", "A:80")]),
            plain,
            r#"("GET", "http", "a", "/", None) (None, false) host: A:80"#,
        ),
        (
            "cookie in crumbs",
            with(&[("cookie", "a=b"), ("x", "y"), ("cookie", "c=d")]),
            plain,
            r#"("GET", "http", "a", "/", None) (None, false) x: y|cookie: a=b; c=d|host: a"#,
        ),
        (
            "te",
            with(&[("te", "trailers")]),
            plain,
            r#"("GET", "http", "a", "/", None) (None, false) te: trailers|host: a"#,
        ),
        (
            "expectation",
            with(&[("expect", "100-continue"), ("content-length", "7")]),
            plain,
            r#"("GET", "http", "a", "/", None) (Some(7), true) expect: 100-continue|content-length: 7|host: a"#,
        ),
        (
            "bytes beyond ASCII",
            with(&[("x", "\u{e9}")]),
            plain,
            r#"("GET", "http", "a", "/", None) (None, false) x: \xc3\xa9|host: a"#,
        ),
        (
            "empty value",
            with(&[("x", "")]),
            plain,
            r#"("GET", "http", "a", "/", None) (None, false) x: |host: a"#,
        ),
        (
            "another method",
            but(":method", "PROPFIND"),
            plain,
            r#"("PROPFIND", "http", "a", "/", None) (None, false) host: a"#,
        ),
        (
            "another scheme",
            but(":scheme", "https"),
            plain,
            r#"("GET", "https", "a", "/", None) (None, false) host: a"#,
        ),
        (
            "OPTIONS *",
            block(&[(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "a")]),
            plain,
            r#"("OPTIONS", "http", "a", "*", None) (None, false) host: a"#,
        ),
        (
            "CONNECT",
            block(&[(":method", "CONNECT"), (":authority", "a:443")]),
            plain,
            r#"("CONNECT", "", "a:443", "a:443", None) (None, false) host: a:443"#,
        ),
        (
            "extended CONNECT",
            [but(":method", "CONNECT"), block(&[(":protocol", "websocket")])].concat(),
            connect,
            r#"("CONNECT", "http", "a", "/", Some("websocket")) (None, false) host: a"#,
        ),
    ];
    for (name, block, limits, head) in rows {
        let expected = Seen::Request { id: 1, head: head.to_owned(), is_end: false };
        assert_eq!(request(BLOCK, &block, limits), expected, "{name}");
    }
}

#[test]
fn requests_over_a_limit_get_an_answer() {
    let long = "y".repeat(9000);
    let path = format!("/{long}");
    let fields: Vec<(&str, &str)> = (0..101).map(|_| ("x", "y")).collect();
    let many = [("x", long.as_str()); 4];
    for (name, block, expected) in [
        ("16 target too long", but(":path", &path), 414),
        ("16 too many fields", with(&fields), 431),
        ("16 fields too large", with(&many), 431),
        ("method too long", but(":method", &"M".repeat(33)), 501),
        ("unknown expectation", with(&[("expect", "miracle")]), 417),
    ] {
        let bytes = if block.len() > 16_000 {
            let (first, second) = block.split_at(16_000);
            let (second, third) = second.split_at(second.len().min(16_000));
            [
                headers(1, END, first),
                frame(FrameKind::CONTINUATION, 0, 1, second),
                frame(FrameKind::CONTINUATION, flag::END_HEADERS, 1, third),
            ]
            .concat()
        } else {
            headers(1, WHOLE, &block)
        };
        let mut end = End::ready_server(Limits::default());
        // Compressed, 36 KB would be over the limit of a block.
        end.feed(&bytes);
        match end.seen.first() {
            Some(Seen::Refused { id: 1, status }) => assert_eq!(*status, expected, "{name}"),
            Some(Seen::Failed(_)) => assert_eq!(name, "16 fields too large"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn content_and_its_announced_length() {
    let post = |length: &str| {
        let mut fields = HEAD;
        fields[0].1 = "POST";
        block(&[&fields[..], &[("content-length", length)]].concat())
    };
    let trailers = block(&[("x-sum", "1")]);
    let ok = |id, bytes: &[u8], is_end| Seen::Data { id, data: bytes.to_vec(), is_end };
    let broken = Seen::Broken { id: Some(1), error: LengthMismatch.into() };
    let unseen = Seen::Broken { id: None, error: LengthMismatch.into() };
    let rows: Vec<(&str, Vec<u8>, Seen)> = vec![
        (
            "as long as announced",
            [headers(1, BLOCK, post("3")), data(1, END, "abc")].concat(),
            ok(1, b"abc", true),
        ),
        (
            "in two frames",
            [headers(1, BLOCK, post("3")), data(1, 0, "ab"), data(1, END, "c")].concat(),
            ok(1, b"abc", true),
        ),
        (
            "empty end",
            [headers(1, BLOCK, post("2")), data(1, 0, "ab"), data(1, END, "")].concat(),
            ok(1, b"ab", true),
        ),
        (
            "with trailers",
            [headers(1, BLOCK, post("2")), data(1, 0, "ab"), headers(1, WHOLE, &trailers)].concat(),
            Seen::Trailers { id: 1, fields: "x-sum: 1".into() },
        ),
        (
            "nothing announced, nothing sent",
            headers(1, WHOLE, post("0")),
            Seen::Request {
                id: 1,
                head: r#"("POST", "http", "a", "/", None) (Some(0), false) content-length: 0|host: a"#.into(),
                is_end: true,
            },
        ),
        ("no content at all", headers(1, WHOLE, post("3")), unseen),
        ("too short", [headers(1, BLOCK, post("3")), data(1, END, "ab")].concat(), broken.clone()),
        ("too long", [headers(1, BLOCK, post("3")), data(1, 0, "abcd")].concat(), broken.clone()),
        (
            "too long by a frame",
            [headers(1, BLOCK, post("3")), data(1, 0, "abc"), data(1, END, "d")].concat(),
            broken.clone(),
        ),
        (
            "too short before trailers",
            [headers(1, BLOCK, post("3")), data(1, 0, "a"), headers(1, WHOLE, &trailers)].concat(),
            broken,
        ),
        (
            "trailers with a pseudo-field",
            [headers(1, BLOCK, post("0")), headers(1, WHOLE, block(&[(":path", "/")]))].concat(),
            Seen::Broken { id: Some(1), error: UnknownPseudo.into() },
        ),
        (
            "trailers with content-length",
            [headers(1, BLOCK, post("0")), headers(1, WHOLE, block(&[("content-length", "0")]))].concat(),
            Seen::Broken { id: Some(1), error: ForbiddenTrailer.into() },
        ),
        (
            "trailers with upper case",
            [headers(1, BLOCK, post("0")), headers(1, WHOLE, block(&[("X", "0")]))].concat(),
            Seen::Broken { id: Some(1), error: FieldName.into() },
        ),
    ];
    for (name, bytes, expected) in rows {
        let mut end = End::ready_server(Limits::default());
        end.feed(&bytes);
        assert_eq!(end.seen.last(), Some(&expected), "{name}");
    }
}

/// A request with nothing in it.
fn plain<'a>(method: &'a str, lines: &'a FieldLines) -> RequestParts<'a> {
    RequestParts {
        method,
        scheme: "http",
        authority: "a",
        target: "/",
        protocol: None,
        fields: FieldSource::Lines(lines),
        content_length: None,
    }
}

fn asked(method: &str) -> (End, u32) {
    asked_within(method, Limits::default())
}

fn asked_within(method: &str, limits: Limits) -> (End, u32) {
    let mut end = End::ready_client(limits);
    let lines = FieldLines::new();
    let parts = plain(method, &lines);
    let key = end.connection.send_request(&parts, true, &mut end.out).unwrap();
    end.keys.push(key);
    end.out.clear();
    (end, key.id())
}

/// A part of them would be taken for all of them. The connection stays.
#[test]
fn fields_of_a_response_beyond_what_is_taken_break_its_stream() {
    let mut limits = Limits::default();
    limits.head.head_size = 256;
    let broken = Seen::Broken { id: Some(1), error: StreamError::FieldSectionTooLarge };
    let long = "y".repeat(200);
    let large = block(&[(":status", "200"), ("x", &long), ("z", "1")]);
    let (mut end, _) = asked_within("GET", limits);
    end.feed(&headers(1, WHOLE, &large));
    assert_eq!(end.seen, std::slice::from_ref(&broken));

    let (mut end, _) = asked_within("GET", limits);
    end.feed(&headers(1, BLOCK, block(&[(":status", "200")])));
    end.feed(&headers(1, WHOLE, block(&[("x", &long), ("z", "1")])));
    assert_eq!(end.seen.last(), Some(&broken));
}

#[test]
fn empty_data_of_a_server_is_the_fault_of_one_stream() {
    let (mut end, flooded) = asked("GET");
    let lines = FieldLines::new();
    let parts = plain("GET", &lines);
    let other = end.connection.send_request(&parts, true, &mut end.out).unwrap().id();
    let ok = block(&[(":status", "200")]);
    end.feed(&headers(flooded, BLOCK, &ok)).feed(&headers(other, BLOCK, &ok));
    end.out.clear();
    let piece = data(flooded, 0, b"").repeat(1000);
    let broken = Seen::Broken { id: Some(flooded), error: StreamError::EmptyData };
    let pieces = (1..1000).find(|_| {
        end.feed(&piece);
        end.seen.last() == Some(&broken)
    });
    assert_eq!(pieces, Some(21));
    let (header, payload) = end.sent().pop().unwrap();
    assert_eq!((header.kind, header.stream), (FrameKind::RST_STREAM, flooded));
    assert_eq!(payload, ErrorCode::ENHANCE_YOUR_CALM.0.to_be_bytes());
    // What was on its way is ignored, and so is an empty frame of another stream.
    for _ in 0..1000 {
        end.feed(&piece);
    }
    end.feed(&data(other, 0, b"")).feed(&data(other, END, b"abc"));
    assert_eq!(end.seen.last(), Some(&Seen::Data { id: other, data: b"abc".into(), is_end: true }));
    // A server that goes on regardless is told to go.
    for _ in 0..100 {
        end.feed(&piece);
    }
    assert_eq!(end.seen.last(), Some(&Seen::Failed(ConnectionError::Flood(Flood::Ignored))));
}

/// Frames of kinds that nobody knows are few where they mean anything, however many a server may owe of those it was told too
/// late not to send.
#[test]
fn unknown_frames_of_a_server_are_bounded_by_their_number() {
    let (mut end, _) = asked("GET");
    let unknown = frame(FrameKind(0x42), 0, 0, b"");
    let count = (0..2000).find(|_| {
        end.feed(&unknown);
        matches!(end.seen.last(), Some(Seen::Failed(_)))
    });
    assert_eq!(count, Some(1024));
    assert_eq!(end.seen.last(), Some(&Seen::Failed(ConnectionError::Flood(Flood::Ignored))));
}

#[test]
fn responses() {
    let ok = block(&[(":status", "200"), ("x", "y")]);
    let of = |status: &str| block(&[(":status", status)]);
    let length = |n: &str| block(&[(":status", "200"), ("content-length", n)]);
    let whole = |status: &str, is_end| Seen::Response { id: 1, head: format!("{status} None "), is_end };
    let broken = |malformed: Malformed| Seen::Broken { id: Some(1), error: malformed.into() };
    let rows: Vec<(&str, &str, Vec<u8>, Seen)> = vec![
        (
            "with a field",
            "GET",
            headers(1, WHOLE, &ok),
            Seen::Response { id: 1, head: "200 None x: y".into(), is_end: true },
        ),
        ("the highest status", "GET", headers(1, WHOLE, of("599")), whole("599", true)),
        ("beyond it", "GET", headers(1, WHOLE, of("600")), broken(Status)),
        ("three digits of no class", "GET", headers(1, WHOLE, of("999")), broken(Status)),
        (
            "content",
            "GET",
            [headers(1, BLOCK, &ok), data(1, END, "abc")].concat(),
            Seen::Data { id: 1, data: b"abc".into(), is_end: true },
        ),
        ("interim", "GET", headers(1, BLOCK, of("103")), Seen::Interim { id: 1, head: "103 None ".into() }),
        (
            "final behind interim",
            "GET",
            [headers(1, BLOCK, of("103")), headers(1, WHOLE, of("204"))].concat(),
            whole("204", true),
        ),
        (
            "HEAD with a length",
            "HEAD",
            headers(1, WHOLE, length("9")),
            Seen::Response { id: 1, head: "200 Some(9) content-length: 9".into(), is_end: true },
        ),
        (
            "trailers",
            "GET",
            [headers(1, BLOCK, of("200")), headers(1, WHOLE, block(&[("x", "y")]))].concat(),
            Seen::Trailers { id: 1, fields: "x: y".into() },
        ),
        ("8.1 interim that ends", "GET", headers(1, WHOLE, of("100")), broken(FinalInterim)),
        (
            "8.1.1 content shorter",
            "GET",
            [headers(1, BLOCK, length("9")), data(1, END, "a")].concat(),
            broken(LengthMismatch),
        ),
        ("8.1.1 content announced and none", "GET", headers(1, WHOLE, length("9")), broken(LengthMismatch)),
        (
            "8.1.1 content of a HEAD",
            "HEAD",
            [headers(1, BLOCK, length("1")), data(1, END, "a")].concat(),
            broken(LengthMismatch),
        ),
        ("8.1 content before the head", "GET", data(1, END, "a"), broken(DataBeforeHead)),
        ("8.3.2 no status", "GET", headers(1, WHOLE, block(&[("x", "y")])), broken(MissingPseudo)),
        ("8.3.2 two digits", "GET", headers(1, WHOLE, of("20")), broken(Status)),
        ("8.3.2 four digits", "GET", headers(1, WHOLE, of("2000")), broken(Status)),
        ("8.3.2 letters", "GET", headers(1, WHOLE, of("2x0")), broken(Status)),
        (
            "8.3.2 status twice",
            "GET",
            headers(1, WHOLE, block(&[(":status", "200"), (":status", "200")])),
            broken(RepeatedPseudo),
        ),
        (
            "8.3 pseudo-field of a request",
            "GET",
            headers(1, WHOLE, block(&[(":status", "200"), (":path", "/")])),
            broken(UnknownPseudo),
        ),
        ("8.6 101", "GET", headers(1, BLOCK, of("101")), broken(Status)),
        (
            "8.2.2 connection",
            "GET",
            headers(1, WHOLE, block(&[(":status", "200"), ("connection", "close")])),
            broken(ConnectionField),
        ),
    ];
    for (name, method, bytes, expected) in rows {
        let (mut end, _) = asked(method);
        end.feed(&bytes);
        assert_eq!(end.seen.last(), Some(&expected), "{name}");
    }
}

#[test]
fn a_client_takes_no_streams_of_the_server() {
    use tidegate_wire::h2::ConnectionError::*;
    for (name, bytes, expected) in [
        (
            "HEADERS on an even stream",
            headers(2, WHOLE, block(&[(":status", "200")])),
            OnIdleStream(FrameKind::HEADERS),
        ),
        (
            "HEADERS on a stream to come",
            headers(3, WHOLE, block(&[(":status", "200")])),
            OnIdleStream(FrameKind::HEADERS),
        ),
        ("DATA on a stream to come", data(3, END, "a"), OnIdleStream(FrameKind::DATA)),
        ("PUSH_PROMISE", frame(FrameKind::PUSH_PROMISE, BLOCK, 1, [0, 0, 0, 2]), UnexpectedPush),
        ("ENABLE_PUSH of a server", settings(&[(2, 1)]), InvalidSetting(2)),
        (
            "PRIORITY_UPDATE of a server",
            frame(FrameKind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"),
            InvalidPriorityUpdate,
        ),
    ] {
        let (mut end, _) = asked("GET");
        end.feed(&bytes);
        assert_eq!(end.seen.last(), Some(&Seen::Failed(expected)), "{name}");
    }
}

#[test]
fn goodbyes() {
    // A server says when it goes, takes what is on its way, and then says what the last one was.
    let mut end = End::ready_server(Limits::default());
    end.feed(&headers(1, WHOLE, GET));
    end.connection.drain(&mut end.out);
    let sent = end.sent();
    assert_eq!((sent[0].0.kind, &sent[0].1[..4]), (FrameKind::GOAWAY, &[0x7f, 0xff, 0xff, 0xff][..]));
    let ping = sent[1].clone();
    assert_eq!(ping.0.kind, FrameKind::PING);
    end.feed(&headers(3, WHOLE, GET));
    end.feed(&frame(FrameKind::PING, flag::ACK, 0, &ping.1));
    assert_eq!(end.sent()[0].1[..4], [0, 0, 0, 3]);
    end.feed(&headers(5, BLOCK, POST)).feed(&data(5, END, "x"));
    assert!(!end.seen.iter().any(|seen| matches!(seen, Seen::Request { id: 5, .. })));
    assert!(!end.connection.is_over());
    for id in [1, 3] {
        end.answer(end.key(id), 200, b"x");
    }
    assert!(end.connection.is_over());

    // A client opens no more streams then, and knows which ones were not looked at.
    let (mut end, _) = asked("GET");
    end.feed(&frame(FrameKind::GOAWAY, 0, 0, [0, 0, 0, 0, 0, 0, 0, 7]));
    assert_eq!(end.seen, [Seen::GoAway { last_stream: 0, code: ErrorCode::REFUSED_STREAM }]);
    let lines = FieldLines::new();
    let parts = plain("GET", &lines);
    assert!(end.connection.send_request(&parts, true, &mut end.out).is_err());
}
