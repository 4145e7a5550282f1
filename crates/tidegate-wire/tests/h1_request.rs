//! Request heads: one table row per case, numbered by the fault it stands for, and what good heads mean.

use tidegate_wire::fuzzing::{Event, request_events};
use tidegate_wire::h1::RequestError::{self, *};
use tidegate_wire::h1::{
    BodyLength, FieldError, FieldSpace, FramingError, HeadLimits, Version, parse_request,
};

const LIMITS: HeadLimits = HeadLimits { head_size: 32 << 10, target_size: 8 << 10, fields: 100 };

fn outcome(bytes: &[u8], limits: &HeadLimits) -> Result<Option<usize>, RequestError> {
    let mut space = FieldSpace::new();
    parse_request(bytes, limits, &mut space).map(|head| head.map(|head| head.len))
}

/// Checks the error, its status, and that no cut of the bytes hides or changes it.
fn assert_refused(name: &str, bytes: &[u8], expected: RequestError, status: u16) {
    assert_eq!(outcome(bytes, &LIMITS), Err(expected), "{name}");
    assert_eq!(expected.status(), status, "{name}");
    for cut in 0..bytes.len() {
        match outcome(&bytes[..cut], &LIMITS) {
            Ok(None) => {}
            Err(early) => assert_eq!(early, expected, "{name}, cut at {cut}"),
            Ok(Some(_)) => panic!("{name}: a head after {cut} bytes"),
        }
    }
}

#[test]
fn faults_of_the_request_line() {
    let rows: &[(&str, &[u8], RequestError, u16)] = &[
        ("7 NUL in the target", b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", TargetByte { byte: 0, at: 2 }, 400),
        (
            "7 control byte in the target",
            b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
            TargetByte { byte: 1, at: 2 },
            400,
        ),
        (
            "7 DEL in the target",
            b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
            TargetByte { byte: 0x7f, at: 2 },
            400,
        ),
        (
            "7 tab in the target",
            b"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n",
            TargetByte { byte: b'\t', at: 2 },
            400,
        ),
        ("7 bare CR in the target", b"GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n", MissingVersion, 400),
        ("7 bare CR behind the version", b"GET / HTTP/1.1\rHost: a\r\n\r\n", Field(FieldError::BareCr), 400),
        ("7 NUL in the method", b"G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMethod, 400),
        ("8 bare LF behind the version", b"GET / HTTP/1.1\nHost: a\r\n\r\n", Field(FieldError::BareLf), 400),
        ("8 bare LF before the line", b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Field(FieldError::BareLf), 400),
        ("8 bare LF behind an empty line", b"\r\n\nGET / HTTP/1.1\r\n\r\n", Field(FieldError::BareLf), 400),
        (
            "nine empty lines",
            b"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            EmptyLines,
            400,
        ),
        ("TLS behind an empty line", b"\r\n\x16\x03\x01", InvalidMethod, 400),
        (
            "bare CR behind two empty lines",
            b"\r\n\r\n\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            Field(FieldError::BareCr),
            400,
        ),
        ("bare CR before the line", b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", Field(FieldError::BareCr), 400),
        ("space before the line", b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMethod, 400),
        ("space behind an empty line", b"\r\n GET / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMethod, 400),
        ("two spaces before the target", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("two spaces behind the target", b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("tab for a space", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMethod, 400),
        ("space at the end", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("space in the target", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("colon in the method", b"GET: / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMethod, 400),
        ("method in brackets", b"(GET) / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMethod, 400),
        ("no target", b"GET\r\nHost: a\r\n\r\n", InvalidMethod, 400),
        ("HTTP/0.9", b"GET /\r\n", MissingVersion, 400),
        ("fragment", b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", TargetByte { byte: b'#', at: 3 }, 400),
        (
            "quote in the target",
            b"GET /\"a\" HTTP/1.1\r\nHost: a\r\n\r\n",
            TargetByte { byte: b'"', at: 2 },
            400,
        ),
        (
            "angle bracket in the target",
            b"GET /<a> HTTP/1.1\r\nHost: a\r\n\r\n",
            TargetByte { byte: b'<', at: 2 },
            400,
        ),
        (
            "UTF-8 in the target",
            b"GET /\xc3\xbc HTTP/1.1\r\nHost: a\r\n\r\n",
            TargetByte { byte: 0xc3, at: 2 },
            400,
        ),
        (
            "overlong UTF-8 in the target",
            b"GET /\xc0\xae HTTP/1.1\r\nHost: a\r\n\r\n",
            TargetByte { byte: 0xc0, at: 2 },
            400,
        ),
        ("relative target", b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("query alone", b"GET ?a HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("asterisk with GET", b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("asterisk with PRI", b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("authority with GET", b"GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("other scheme", b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("absolute, no authority", b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("absolute, user information", b"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("absolute, port beyond", b"GET http://a:65536/ HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("CONNECT with a path", b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("CONNECT without port", b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", TargetForm, 400),
        ("lower-case version", b"GET / http/1.1\r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("other protocol", b"GET / HTCPCP/1.0\r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("version without minor", b"GET / HTTP/1\r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("two digits of minor", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("comma in the version", b"GET / HTTP/1,1\r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("HTTP/1.2, bare LF", b"GET / HTTP/1.2\nHost: a\r\n\r\n", Field(FieldError::BareLf), 400),
        ("HTTP/1.9, space", b"GET / HTTP/1.9 \r\nHost: a\r\n\r\n", InvalidVersion, 400),
        ("HTTP/1.2, no host", b"GET / HTTP/1.2\r\n\r\n", MissingHost, 400),
        (
            "HTTP/1.2, folded",
            b"GET / HTTP/1.2\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
            Field(FieldError::ObsoleteFold),
            400,
        ),
        ("HTTP/0.9, named", b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", UnsupportedVersion, 505),
        ("HTTP/2.0", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", UnsupportedVersion, 505),
        ("HTTP/3", b"GET / HTTP/3\r\nHost: a\r\n\r\n", UnsupportedVersion, 505),
        ("preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Http2Preface, 505),
        ("TLS 1.0 record", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", TlsOnPlainPort, 400),
        ("0x16, but no TLS", b"\x16GET / HTTP/1.1\r\n", InvalidMethod, 400),
        ("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n", InvalidMethod, 400),
        ("long method", b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n", MethodTooLong, 501),
    ];
    for (name, bytes, expected, status) in rows {
        assert_refused(name, bytes, *expected, *status);
    }
}

#[test]
fn what_is_wrong_with_a_target_is_named() {
    for (error, said) in [
        (TargetByte { byte: b'"', at: 4 }, "holds `\"` at position 4, which has to be percent-encoded"),
        (TargetByte { byte: 0xc3, at: 2 }, "holds the byte 0xC3 at position 2"),
        (TargetByte { byte: 0x1b, at: 2 }, "holds the byte 0x1B at position 2"),
        (TargetForm, "does not begin with a slash"),
    ] {
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn faults_of_field_lines() {
    use FieldError::*;
    let rows: &[(&str, &[u8], FieldError)] = &[
        ("5 folded with a space", b"A: b\r\n c\r\n\r\n", ObsoleteFold),
        ("5 folded with a tab", b"A: b\r\n\tc\r\n\r\n", ObsoleteFold),
        ("5 folded, only white space", b"A: b\r\n \r\n\r\n", ObsoleteFold),
        ("5 folded Transfer-Encoding", b"Transfer-Encoding:\r\n chunked\r\n\r\n", ObsoleteFold),
        ("6 space before the colon", b"A : b\r\n\r\n", SpaceBeforeColon),
        ("6 tab before the colon", b"A\t: b\r\n\r\n", SpaceBeforeColon),
        ("6 space in the name", b"A B: b\r\n\r\n", SpaceBeforeColon),
        ("6 coding with a space", b"Transfer-Encoding : chunked\r\n\r\n", SpaceBeforeColon),
        ("6 no colon", b"A\r\n\r\n", MissingColon),
        ("6 no colon, bare LF", b"A\n\r\n", MissingColon),
        ("6 empty name", b": b\r\n\r\n", EmptyName),
        ("6 brackets in the name", b"A(b): c\r\n\r\n", InvalidName),
        ("6 quote in the name", b"\"A\": c\r\n\r\n", InvalidName),
        ("6 slash in the name", b"A/b: c\r\n\r\n", InvalidName),
        ("6 byte beyond ASCII in the name", b"A\xff: c\r\n\r\n", InvalidName),
        ("7 NUL in the name", b"A\0: c\r\n\r\n", InvalidName),
        ("7 NUL in the value", b"A: b\0c\r\n\r\n", InvalidValue),
        ("7 control byte in the value", b"A: b\x01\r\n\r\n", InvalidValue),
        ("7 vertical tab in the value", b"Transfer-Encoding: \x0bchunked\r\n\r\n", InvalidValue),
        ("7 form feed in the value", b"A: \x0c\r\n\r\n", InvalidValue),
        ("7 ESC in the value", b"A: \x1b[0m\r\n\r\n", InvalidValue),
        ("7 DEL in the value", b"A: \x7f\r\n\r\n", InvalidValue),
        ("7 bare CR in the value", b"A: b\rc\r\n\r\n", BareCr),
        ("7 two CR before LF", b"A: b\r\r\n\r\n", BareCr),
        ("7 bare CR in an empty value", b"A:\rb\r\n\r\n", BareCr),
        ("7 bare CR for the empty line", b"A: b\r\n\rX", BareCr),
        ("8 bare LF behind a value", b"A: b\nB: c\r\n\r\n", BareLf),
        ("8 bare LF behind an empty value", b"A:\nB: c\r\n\r\n", BareLf),
        ("8 bare LF behind white space", b"A: b \t\nB: c\r\n\r\n", BareLf),
        ("8 bare LF for the empty line", b"A: b\r\n\n", BareLf),
        ("8 bare LF before the empty line", b"A: b\n\r\n", BareLf),
        ("8 bare LF hides a field", b"A: b\nTransfer-Encoding: chunked\r\n\r\n", BareLf),
    ];
    for (name, lines, expected) in rows {
        let bytes = [b"POST / HTTP/1.1\r\nHost: a\r\n", *lines].concat();
        assert_refused(name, &bytes, Field(*expected), 400);
        let first = [b"POST / HTTP/1.1\r\n", *lines].concat();
        assert_refused(name, &first, Field(*expected), 400);
    }
}

#[test]
fn faults_of_framing() {
    use FramingError::*;
    let rows: &[(&str, &str, FramingError)] = &[
        ("1 length, then coding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", BothLengthAndCoding),
        ("1 coding, then length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", BothLengthAndCoding),
        ("1 other case", "content-length: 0\r\ntransfer-encoding: Chunked\r\n", BothLengthAndCoding),
        ("1 unknown coding", "Content-Length: 5\r\nTransfer-Encoding: x\r\n", BothLengthAndCoding),
        ("2 different values", "Content-Length: 5\r\nContent-Length: 6\r\n", DuplicateLength),
        ("2 the same value twice", "Content-Length: 5\r\nContent-Length: 5\r\n", DuplicateLength),
        ("2 two names in two cases", "Content-Length: 5\r\nCONTENT-LENGTH: 5\r\n", DuplicateLength),
        ("2 list of the same", "Content-Length: 5, 5\r\n", DuplicateLength),
        ("2 list of different", "Content-Length: 5,6\r\n", DuplicateLength),
        ("2 comma at the end", "Content-Length: 5,\r\n", DuplicateLength),
        ("2 plus", "Content-Length: +5\r\n", InvalidLength),
        ("2 minus", "Content-Length: -5\r\n", InvalidLength),
        ("2 minus nothing", "Content-Length: -0\r\n", InvalidLength),
        ("2 hexadecimal", "Content-Length: 0x5\r\n", InvalidLength),
        ("2 hexadecimal digit", "Content-Length: 5f\r\n", InvalidLength),
        ("2 space inside", "Content-Length: 1 0\r\n", InvalidLength),
        ("2 tab inside", "Content-Length: 1\t0\r\n", InvalidLength),
        ("2 fraction", "Content-Length: 5.0\r\n", InvalidLength),
        ("2 underscore", "Content-Length: 1_0\r\n", InvalidLength),
        ("2 exponent", "Content-Length: 1e1\r\n", InvalidLength),
        ("2 quoted", "Content-Length: \"5\"\r\n", InvalidLength),
        ("2 parameter", "Content-Length: 5;a\r\n", InvalidLength),
        ("2 empty", "Content-Length:\r\n", InvalidLength),
        ("2 Arabic digit", "Content-Length: \u{665}\r\n", InvalidLength),
        ("2 no-break space", "Content-Length: \u{a0}5\r\n", InvalidLength),
        ("2 beyond 63 bits", "Content-Length: 9223372036854775808\r\n", InvalidLength),
        ("2 beyond 64 bits", "Content-Length: 18446744073709551616\r\n", InvalidLength),
        ("2 far beyond", "Content-Length: 100000000000000000000000005\r\n", InvalidLength),
        ("3 identity", "Transfer-Encoding: identity\r\n", ChunkedNotFinal),
        ("3 gzip alone", "Transfer-Encoding: gzip\r\n", ChunkedNotFinal),
        ("3 nearly chunked", "Transfer-Encoding: xchunked\r\n", ChunkedNotFinal),
        ("3 nearly chunked, too", "Transfer-Encoding: chunkedx\r\n", ChunkedNotFinal),
        ("3 chunked first", "Transfer-Encoding: chunked, gzip\r\n", ChunkedNotFinal),
        (
            "3 chunked, identity",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            ChunkedNotFinal,
        ),
        ("3 gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n", UnknownCoding),
        ("3 on two lines", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", UnknownCoding),
        ("3 identity, chunked", "Transfer-Encoding: identity, chunked\r\n", UnknownCoding),
        ("3 doubled", "Transfer-Encoding: chunked, chunked\r\n", RepeatedChunked),
        ("3 doubled lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", RepeatedChunked),
        ("3 gzip and doubled", "Transfer-Encoding: gzip, chunked, chunked\r\n", RepeatedChunked),
        ("3 chunked around gzip", "Transfer-Encoding: chunked, gzip, chunked\r\n", RepeatedChunked),
        ("3 empty", "Transfer-Encoding:\r\n", InvalidCoding),
        ("3 empty element", "Transfer-Encoding: , chunked\r\n", InvalidCoding),
        ("3 empty last element", "Transfer-Encoding: chunked,\r\n", InvalidCoding),
        ("3 parameter", "Transfer-Encoding: chunked;a=b\r\n", InvalidCoding),
        ("3 quoted", "Transfer-Encoding: \"chunked\"\r\n", InvalidCoding),
        ("3 single quotes", "Transfer-Encoding: 'chunked'\r\n", ChunkedNotFinal),
        ("3 space inside", "Transfer-Encoding: chun ked\r\n", InvalidCoding),
        ("3 no-break space", "Transfer-Encoding: \u{a0}chunked\r\n", InvalidCoding),
        ("3 Kelvin sign", "Transfer-Encoding: chun\u{212a}ed\r\n", InvalidCoding),
    ];
    for (name, lines, expected) in rows {
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let status = if *expected == UnknownCoding { 501 } else { 400 };
        assert_refused(name, bytes.as_bytes(), Framing(*expected), status);
    }
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_refused("4 chunked in 1.0", old, Framing(CodingInHttp10), 400);
    let old = b"POST / HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_refused("4 both in 1.0", old, Framing(CodingInHttp10), 400);
}

#[test]
fn faults_of_host_and_expect() {
    let rows: &[(&str, &str, &str, RequestError, u16)] = &[
        ("12 missing", "/", "", MissingHost, 400),
        ("12 missing, absolute target", "http://a/", "", MissingHost, 400),
        ("12 repeated", "/", "Host: a\r\nHost: b\r\n", RepeatedHost, 400),
        ("12 repeated alike", "/", "Host: a\r\nhost: a\r\n", RepeatedHost, 400),
        ("12 empty", "/", "Host:\r\n", InvalidHost, 400),
        ("12 only a port", "/", "Host: :80\r\n", InvalidHost, 400),
        ("12 user information", "/", "Host: u@a\r\n", InvalidHost, 400),
        ("12 path", "/", "Host: a/b\r\n", InvalidHost, 400),
        ("12 backslash", "/", "Host: a\\b\r\n", InvalidHost, 400),
        ("12 space", "/", "Host: a b\r\n", InvalidHost, 400),
        ("12 list", "/", "Host: a, b\r\n", InvalidHost, 400),
        ("12 scheme", "/", "Host: http://a\r\n", InvalidHost, 400),
        ("12 port of letters", "/", "Host: a:b\r\n", InvalidHost, 400),
        ("12 port beyond", "/", "Host: a:99999\r\n", InvalidHost, 400),
        ("12 two ports", "/", "Host: a:80:80\r\n", InvalidHost, 400),
        ("12 open bracket", "/", "Host: [::1\r\n", InvalidHost, 400),
        ("12 no address in brackets", "/", "Host: [a]\r\n", InvalidHost, 400),
        ("12 byte beyond ASCII", "/", "Host: \u{fc}\r\n", InvalidHost, 400),
        ("12 contradicting host", "http://a/", "Host: b\r\n", ContradictingHost, 400),
        ("12 contradicting port", "http://a/", "Host: a:81\r\n", ContradictingHost, 400),
        ("12 contradicting default port", "https://a/", "Host: a:80\r\n", ContradictingHost, 400),
        ("10 unknown expectation", "/", "Host: a\r\nExpect: 200-ok\r\n", UnknownExpectation, 417),
        ("10 list", "/", "Host: a\r\nExpect: 100-continue, x\r\n", UnknownExpectation, 417),
    ];
    for (name, target, lines, expected, status) in rows {
        let bytes = format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
        assert_refused(name, bytes.as_bytes(), *expected, *status);
    }
}

#[test]
fn limits_16() {
    let lines = |count: usize| "a: b\r\n".repeat(count);
    let head = |target: usize, lines: &str| {
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n{lines}\r\n", "t".repeat(target - 1)).into_bytes()
    };
    let full = |size: usize| {
        let rest = size - head(1, "a: \r\n").len();
        head(1, &format!("a: {}\r\n", "v".repeat(rest)))
    };
    let fits = |bytes: &[u8]| assert_eq!(outcome(bytes, &LIMITS), Ok(Some(bytes.len())));
    fits(&head(1, &lines(99)));
    fits(&head(8192, ""));
    fits(&full(32 << 10));
    fits(&[b"\r\n", &*full(32 << 10)].concat());
    assert_refused("101 fields", &head(1, &lines(100)), Field(FieldError::TooMany), 431);
    assert_eq!(outcome(&head(8193, ""), &LIMITS), Err(TargetTooLong));
    assert_eq!(outcome(&full((32 << 10) + 1), &LIMITS), Err(HeadTooLarge));

    // Known before the head is complete.
    let long = head(8193, "");
    assert_eq!(outcome(&long[..4 + 8192], &LIMITS), Ok(None));
    assert_eq!(outcome(&long[..4 + 8193], &LIMITS), Err(TargetTooLong));
    let large = full(40 << 10);
    assert_eq!(outcome(&large[..(32 << 10) - 1], &LIMITS), Ok(None));
    assert_eq!(outcome(&large[..32 << 10], &LIMITS), Err(HeadTooLarge));
    assert_eq!((TargetTooLong.status(), HeadTooLarge.status()), (414, 431));

    // A limit above the hard one is the hard one.
    let many = HeadLimits { fields: 10_000, ..LIMITS };
    assert_eq!(outcome(&head(1, &lines(256)), &many), Err(Field(FieldError::TooMany)));
    // A body behind the head does not count.
    let body = [&*head(1, ""), &[b'x'; 40 << 10]].concat();
    assert_eq!(outcome(&body, &LIMITS), Ok(Some(body.len() - (40 << 10))));
    // Limits of zero refuse everything and nothing else.
    let none = HeadLimits { head_size: 0, target_size: 0, fields: 0 };
    assert_eq!(outcome(b"GET", &none), Err(HeadTooLarge));
}

#[test]
fn what_good_heads_mean() {
    // Name, version line and fields; body, keep-alive, expects, upgrade, host.
    type Meaning = (BodyLength, bool, bool, Option<&'static str>, Option<&'static str>);
    let (empty, chunked) = (BodyLength::Empty, BodyLength::Chunked);
    let length = BodyLength::Length;
    let a = Some("a");
    let rows: &[(&str, &str, Meaning)] = &[
        ("plain", "GET / HTTP/1.1\r\nHost: a\r\n", (empty, true, false, None, a)),
        ("close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", (empty, false, false, None, a)),
        (
            "Close in a list",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: x,\tClose\r\n",
            (empty, false, false, None, a),
        ),
        (
            "close on a second line",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n",
            (empty, false, false, None, a),
        ),
        (
            "close wins",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n",
            (empty, false, false, None, a),
        ),
        (
            "not close",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed, \"close\"\r\n",
            (empty, true, false, None, a),
        ),
        ("1.0", "GET / HTTP/1.0\r\n", (empty, false, false, None, None)),
        ("1.0 with Host", "GET / HTTP/1.0\r\nHost: a\r\n", (empty, false, false, None, a)),
        ("1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n", (empty, true, false, None, None)),
        ("1.0 absolute", "GET http://b/ HTTP/1.0\r\n", (empty, false, false, None, Some("b"))),
        (
            "1.0 expectation is ignored",
            "PUT / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n",
            (length(1), false, false, None, None),
        ),
        (
            "1.0 upgrade is ignored",
            "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n",
            (empty, false, false, None, None),
        ),
        ("length", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n", (length(5), true, false, None, a)),
        ("length 0", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n", (empty, true, false, None, a)),
        (
            "leading zeros",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0000000000000000000000005\r\n",
            (length(5), true, false, None, a),
        ),
        (
            "white space around",
            "PUT / HTTP/1.1\r\nHost:\t a \t\r\nContent-Length: \t5 \r\n",
            (length(5), true, false, None, a),
        ),
        (
            "longest",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n",
            (length(i64::MAX as u64), true, false, None, a),
        ),
        (
            "chunked",
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cHunKed\r\n",
            (chunked, true, false, None, a),
        ),
        (
            "expectation",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n",
            (length(5), true, true, None, a),
        ),
        (
            "expectation, chunked",
            "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n",
            (chunked, true, true, None, a),
        ),
        (
            "10 expectation without body",
            "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n",
            (empty, true, false, None, a),
        ),
        (
            "10 expectation with length 0",
            "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n",
            (empty, true, false, None, a),
        ),
        (
            "upgrade",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
            (empty, true, false, Some("websocket"), a),
        ),
        (
            "upgrade among others",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, upgrade\r\nUpgrade: x/1, y\r\n",
            (empty, true, false, Some("x/1, y"), a),
        ),
        (
            "11 upgrade that is not named",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n",
            (empty, true, false, None, a),
        ),
        (
            "11 named, but no upgrade",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n",
            (empty, true, false, None, a),
        ),
        ("absolute", "GET http://A/x?y HTTP/1.1\r\nHost: a\r\n", (empty, true, false, None, Some("A"))),
        (
            "absolute, default port",
            "GET http://a:80 HTTP/1.1\r\nHost: a\r\n",
            (empty, true, false, None, Some("a:80")),
        ),
        ("absolute, https", "GET HTTPS://a?y HTTP/1.1\r\nHost: a:443\r\n", (empty, true, false, None, a)),
        ("asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n", (empty, true, false, None, a)),
        ("authority", "CONNECT b:443 HTTP/1.1\r\nHost: a\r\n", (empty, true, false, None, a)),
        ("IPv6", "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n", (empty, true, false, None, Some("[::1]:8080"))),
        ("extension method", "m-search!# / HTTP/1.1\r\nHost: a\r\n", (empty, true, false, None, a)),
        (
            "what browsers send raw",
            "GET /?{a|b}^`\\[] HTTP/1.1\r\nHost: a\r\n",
            (empty, true, false, None, a),
        ),
        (
            "bytes beyond ASCII in a value",
            "GET / HTTP/1.1\r\nHost: a\r\nX: \u{fc}\r\n",
            (empty, true, false, None, a),
        ),
        ("empty line before", "\r\nGET / HTTP/1.1\r\nHost: a\r\n", (empty, true, false, None, a)),
        (
            "eight empty lines before",
            "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n",
            (empty, true, false, None, a),
        ),
        (
            "expects nothing",
            "POST / HTTP/1.1\r\nHost: a\r\nExpect:\r\nContent-Length: 1\r\n",
            (BodyLength::Length(1), true, false, None, a),
        ),
        (
            "names that look alike",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\n",
            (empty, true, false, None, a),
        ),
    ];
    for (name, head, expected) in rows {
        let bytes = format!("{head}\r\nbehind it");
        let mut space = FieldSpace::new();
        let head =
            parse_request(bytes.as_bytes(), &LIMITS, &mut space).unwrap_or_else(|e| panic!("{name}: {e}"));
        let head = head.unwrap_or_else(|| panic!("{name}: incomplete"));
        assert_eq!(head.len, bytes.len() - 9, "{name}");
        let text = |value: Option<&'static str>| value.map(str::as_bytes);
        let (body, keep_alive, expects, upgrade, host) = *expected;
        assert_eq!(
            (head.body, head.keep_alive, head.expects_continue),
            (body, keep_alive, expects),
            "{name}"
        );
        assert_eq!((head.upgrade, head.host), (text(upgrade), host), "{name}");
        for cut in 0..head.len {
            assert_eq!(outcome(&bytes.as_bytes()[..cut], &LIMITS), Ok(None), "{name}, cut at {cut}");
        }
    }
}

#[test]
fn a_head_is_handed_over_as_sent() {
    let bytes = b"get /A%20b?c HTTP/1.1\r\nHOST: a\r\nX:\r\nx: 1 \t 2  \r\nY:\xff\r\n\r\n";
    let mut space = FieldSpace::new();
    let head = parse_request(bytes, &LIMITS, &mut space).unwrap().unwrap();
    assert_eq!((head.method, head.target, head.version), ("get", "/A%20b?c", Version::Http11));
    let fields: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
    assert_eq!(fields, [("HOST", &b"a"[..]), ("X", b""), ("x", b"1 \t 2"), ("Y", b"\xff")]);
}

#[test]
fn trailers_stay_out_of_the_head_13() {
    let bytes = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n";
    let events = request_events(&[bytes], &LIMITS);
    let at = |event: &Event| events.iter().position(|other| other == event);
    let trailer = at(&Event::Field("X".to_owned(), b"y".to_vec()));
    assert!(trailer > at(&Event::End), "{events:?}");
}
