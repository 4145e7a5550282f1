//! Properties: any cut of a stream gives the same events, what is written reads back, trickled bytes cost
//! linear time, and no bytes panic.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_wire::fuzzing::{Event, SMALL, body_events, request_events, response_events};
use tidegate_wire::h1::*;

const LIMITS: HeadLimits = HeadLimits { head_size: 32 << 10, target_size: 8 << 10, fields: 100 };

/// Cuts `bytes` at the given places, in any order.
fn cut<'b>(bytes: &'b [u8], places: &[usize]) -> Vec<&'b [u8]> {
    let mut places: Vec<_> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.sort_unstable();
    let ends = places.iter().copied().chain([bytes.len()]);
    let starts = [0].into_iter().chain(places.iter().copied());
    starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
}

fn chunked(data: &[u8], places: &[usize], trailer_lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    cut(data, places).into_iter().for_each(|piece| append_chunk(&mut out, piece));
    end_of_chunks(&mut out, trailer_lines);
    out
}

fn field_lines() -> impl Strategy<Value = String> {
    vec(("X-[A-Za-z0-9!#$%&'*+.^_`|~-]{0,12}", "[ -~\t]{0,30}"), 0..8).prop_map(|fields| {
        let mut out = Vec::new();
        for (name, value) in fields {
            append_field(&mut out, &name, value.as_bytes()).unwrap();
        }
        String::from_utf8(out).unwrap()
    })
}

/// One request and its body, sometimes with something in it that is refused.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let body = vec(any::<u8>(), 0..200);
    (field_lines(), body, vec(any::<usize>(), 0..4), 0..12u8).prop_map(|(lines, data, places, kind)| {
        let head = |more: &str| format!("PUT /x?y HTTP/1.1\r\nHost: a\r\n{lines}{more}\r\n").into_bytes();
        let length = format!("Content-Length: {}\r\n", data.len());
        let coding = "Transfer-Encoding: chunked\r\n";
        match kind {
            0..4 => [head(&length), data].concat(),
            4..7 => [head(coding), chunked(&data, &places, b"")].concat(),
            7 => [head(coding), chunked(&data, &places, b"X: y\r\nZ:\r\n")].concat(),
            8 => [b"\r\n".to_vec(), head("")].concat(),
            9 => head("Connection: upgrade\r\nUpgrade: x\r\n"),
            10 => [head(coding), data].concat(),
            _ => head("A : b\r\n"),
        }
    })
}

proptest! {
    #[test]
    fn any_cut_of_requests_gives_the_same_events(
        requests in vec(request(), 1..5),
        places in vec(any::<usize>(), 0..12),
        small in any::<bool>(),
    ) {
        let bytes = requests.concat();
        let limits = if small { SMALL } else { LIMITS };
        let whole = request_events(&[&bytes], &limits);
        prop_assert_eq!(&whole, &request_events(&cut(&bytes, &places), &limits));
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(&whole, &request_events(&single, &limits));
    }

    #[test]
    fn nothing_panics(
        bytes in vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n :;,0aH/".to_vec())], 0..400),
        places in vec(any::<usize>(), 0..3),
    ) {
        for start in [&b""[..], b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n"] {
            let bytes = [start, &bytes].concat();
            let pieces = cut(&bytes, &places);
            prop_assert_eq!(request_events(&[&bytes], &SMALL), request_events(&pieces, &SMALL));
            prop_assert_eq!(response_events(&[&bytes], &SMALL, "GET"), response_events(&pieces, &SMALL, "GET"));
            let body = BodyLength::Chunked;
            prop_assert_eq!(body_events(&[&bytes], &SMALL, body), body_events(&pieces, &SMALL, body));
        }
    }

    #[test]
    fn chunks_read_back(data in vec(any::<u8>(), 0..2000), places in vec(any::<usize>(), 0..9)) {
        let bytes = chunked(&data, &places, b"A: b\r\n");
        let events = body_events(&[&bytes], &LIMITS, BodyLength::Chunked);
        let mut expected = vec![Event::Data(data)];
        expected.retain(|event| *event != Event::Data(Vec::new()));
        expected.extend([Event::End, Event::Field("A".to_owned(), b"b".to_vec()), Event::Rest(Vec::new())]);
        prop_assert_eq!(events, expected);
    }

    #[test]
    fn responses_read_back(
        status in 200..600u16,
        reason in "[ -~]{0,20}",
        lines in field_lines(),
        length in any::<u64>(),
        kind in 0..4u8,
        dated in any::<bool>(),
    ) {
        let length = length >> 1;
        let framing = match kind {
            0 => ResponseFraming::None,
            1 => ResponseFraming::Length(length),
            2 => ResponseFraming::Chunked,
            _ => ResponseFraming::UntilClose,
        };
        let connection = if kind == 3 { ConnectionField::Close } else { ConnectionField::None };
        let date = dated.then_some(b"Sun, 06 Nov 1994 08:49:37 GMT");
        let (server, field_lines) = (Some("Tidegate"), lines.as_bytes());
        let parts =
            ResponseParts { status, reason: &reason, date, server, field_lines, framing, connection };
        let mut out = Vec::new();
        encode_head(&mut out, &parts);
        let mut space = FieldSpace::new();
        let head = parse_response(&out, &LIMITS, &mut space, "GET").unwrap().unwrap();
        prop_assert_eq!((head.len, head.status, head.reason), (out.len(), status, reason.as_bytes()));
        let expected = match framing {
            _ if matches!(status, 204 | 304) => BodyLength::Empty,
            ResponseFraming::Length(0) => BodyLength::Empty,
            ResponseFraming::Length(length) => BodyLength::Length(length),
            ResponseFraming::Chunked => BodyLength::Chunked,
            ResponseFraming::None | ResponseFraming::UntilClose => BodyLength::UntilClose,
        };
        prop_assert_eq!((head.kind, head.body), (ResponseKind::Final, expected));
        let ours = lines.matches("\r\n").count();
        let others = head.fields.iter().filter(|field| !field.name.starts_with("X-")).count();
        prop_assert_eq!(head.fields.len() - others, ours);
    }

    #[test]
    fn requests_read_back(
        method in "[A-Za-z!#$%&'*+.^_`|~-]{1,32}",
        path in "/[!$-;=?-~]{0,60}",
        lines in field_lines(),
        length in any::<u64>(),
    ) {
        prop_assume!(method != "CONNECT");
        let parts = RequestParts {
            method: &method,
            target: &path,
            host: "[2001:db8::7]:8080",
            field_lines: lines.as_bytes(),
            framing: RequestFraming::Length(length >> 1),
            connection: ConnectionField::Close,
        };
        let mut out = Vec::new();
        encode_request(&mut out, &parts).unwrap();
        let mut space = FieldSpace::new();
        let head = parse_request(&out, &LIMITS, &mut space).unwrap().unwrap();
        prop_assert_eq!((head.len, head.method, head.target), (out.len(), method.as_str(), path.as_str()));
        prop_assert_eq!((head.host, head.keep_alive), (Some(parts.host), false));
        prop_assert_eq!(head.fields.len(), lines.matches("\r\n").count() + 3);
    }
}

/// Heads of requests, most of them good, with a byte here and there that somebody has changed.
fn altered_head() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![Just("GET"), Just("OPTIONS"), Just("CONNECT"), Just("PRI"), Just("M-SEARCH")];
    let target =
        prop_oneof!["/[!-~]{0,20}", Just("*".into()), Just("http://a/b".into()), Just("a:80".into())];
    let version = prop_oneof![Just("1.1"), Just("1.0"), Just("1.7"), Just("2.0")];
    let change =
        (any::<usize>(), prop_oneof![any::<u8>(), prop::sample::select(b"\r\n\t :/!_\x7f".to_vec())]);
    (method, target, version, field_lines(), vec(change, 0..3)).prop_map(
        |(method, target, version, lines, changes)| {
            let head = format!("{method} {target} HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
            let mut head = head.into_bytes();
            for (at, byte) in changes {
                let at = at % head.len();
                head[at] = byte;
            }
            head
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    /// Nothing that is complete is waited for: it reads, or it has a fault. And what reads is what another implementation
    /// reads there, which takes whatever we take.
    #[test]
    fn a_request_head_that_is_complete_reads_or_is_refused(bytes in altered_head()) {
        let mut space = FieldSpace::new();
        let read = parse_request(&bytes, &LIMITS, &mut space);
        let ends = bytes.windows(4).any(|end| end == b"\r\n\r\n");
        prop_assert!(!ends || !matches!(read, Ok(None)), "waited for: {}", bytes.escape_ascii());
        let Ok(Some(head)) = read else { return Ok(()) };
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut other = httparse::Request::new(&mut headers);
        // It knows no version but two.
        let known = String::from_utf8_lossy(&bytes).contains(" HTTP/1.0\r\n")
            || String::from_utf8_lossy(&bytes).contains(" HTTP/1.1\r\n");
        prop_assume!(known);
        prop_assert_eq!(other.parse(&bytes), Ok(httparse::Status::Complete(head.len)));
        prop_assert_eq!((other.method, other.path), (Some(head.method), Some(head.target)));
        let theirs: Vec<_> = other.headers.iter().map(|field| (field.name, field.value)).collect();
        let ours: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn a_response_head_that_is_complete_reads_or_is_refused(
        line in prop_oneof![Just("HTTP/1.1 200 OK"), Just("HTTP/1.0 404"), Just("HTTP/1.1 599 a b"), Just("HTTP/1.3 100 ")],
        lines in field_lines(),
        changes in vec((any::<usize>(), prop_oneof![any::<u8>(), prop::sample::select(b"\r\n\t :19".to_vec())]), 0..3),
    ) {
        let mut bytes = format!("{line}\r\n{lines}\r\n").into_bytes();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let mut space = FieldSpace::new();
        let read = parse_response(&bytes, &LIMITS, &mut space, "GET");
        let ends = bytes.windows(4).any(|end| end == b"\r\n\r\n");
        prop_assert!(!ends || !matches!(read, Ok(None)), "waited for: {}", bytes.escape_ascii());
        let Ok(Some(head)) = read else { return Ok(()) };
        prop_assume!(bytes.starts_with(b"HTTP/1.0 ") || bytes.starts_with(b"HTTP/1.1 "));
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut other = httparse::Response::new(&mut headers);
        prop_assert_eq!(other.parse(&bytes), Ok(httparse::Status::Complete(head.len)));
        let reason = if head.reason.is_ascii() { head.reason } else { &[] }; // as theirs tells it
        prop_assert_eq!(
            (other.code, other.reason.map(str::as_bytes)),
            (Some(head.status), Some(reason))
        );
        let theirs: Vec<_> = other.headers.iter().map(|field| (field.name, field.value)).collect();
        let ours: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
        prop_assert_eq!(ours, theirs);
    }
}

/// The bytes that all parses of a trickled head would read.
fn cost(bytes: &[u8]) -> (usize, usize) {
    let (mut scanner, mut parses, mut read) = (HeadScanner::new(), 0, 0);
    for end in 1..=bytes.len() {
        if scanner.needs_parse(&bytes[..end], &LIMITS) {
            parses += 1;
            read += end;
        }
    }
    (parses, read)
}

#[test]
fn a_trickled_head_costs_linear_time() {
    let start = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (name, bytes) in [
        ("many lines", start.to_owned() + &"a: b\r\n".repeat(5000)),
        ("one line", start.to_owned() + "a: " + &"b".repeat(30_000)),
        ("only line ends", "\n".repeat(20_000)),
        ("a long target", "GET /".to_owned() + &"a".repeat(30_000)),
    ] {
        let (parses, read) = cost(bytes.as_bytes());
        if name != "only line ends" {
            assert!(parses < 40, "{name}: {parses} parses");
            assert!(read <= bytes.len() * 6, "{name}: {read} of {}", bytes.len());
        }
    }
}

#[test]
fn the_scanner_asks_when_it_must() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n";
    for first in 1..head.len() {
        let mut scanner = HeadScanner::new();
        assert!(scanner.needs_parse(&head[..first], &LIMITS), "the first bytes");
        for end in first + 1..=head.len() {
            let needed = scanner.needs_parse(&head[..end], &LIMITS);
            assert!(needed || end < head.len(), "the end, from {first}");
            assert!(needed || end != 16 || first >= 16, "the end of the request line, from {first}");
        }
    }
    // A target or a head that grows beyond its limit is seen at once, or nearly so.
    for (start, limit) in [("GET /", 8 << 10), ("GET / HTTP/1.1\r\nHost: a\r\nA: ", 32 << 10)] {
        let bytes = start.to_owned() + &"a".repeat(limit + 100);
        let mut scanner = HeadScanner::new();
        let refused_at = (1..bytes.len()).find(|end| {
            let bytes = &bytes.as_bytes()[..*end];
            scanner.needs_parse(bytes, &LIMITS)
                && parse_request(bytes, &LIMITS, &mut FieldSpace::new()).is_err()
        });
        assert!(refused_at.is_some_and(|at| at <= limit + 40), "{start}: {refused_at:?}");
    }
}
