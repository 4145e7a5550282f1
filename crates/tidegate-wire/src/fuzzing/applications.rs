//! What the fuzz targets of FastCGI, SCGI and CGI call.

use super::{limits_of, split_input};
use crate::cgi::parse_head;
use crate::fastcgi::{EndRequest, Event, Pairs, RequestDecoder, RequestEvent, ResponseDecoder};
use crate::h1::FieldSpace;
use crate::scgi::{self, parse_request};

/// What an application's answer consists of, however it was cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastCgiSeen {
    /// The answer.
    pub stdout: Vec<u8>,
    /// The complaints.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub end: Option<EndRequest>,
    /// Why it was refused.
    pub refused: Option<String>,
    /// Bytes behind its end.
    pub left: usize,
}

/// `bytes` in pieces that end at these places, each taken modulo the length.
pub fn cut<'b>(bytes: &'b [u8], at: &[usize]) -> Vec<&'b [u8]> {
    let mut at: Vec<usize> = at.iter().map(|at| at % (bytes.len() + 1)).collect();
    at.sort_unstable();
    let (mut pieces, mut from) = (Vec::new(), 0);
    for end in at {
        pieces.push(&bytes[from..end]);
        from = end;
    }
    pieces.push(&bytes[from..]);
    pieces
}

/// Reads the answer to request 1 that comes in these pieces.
pub fn fastcgi_response(pieces: &[&[u8]]) -> FastCgiSeen {
    let (mut decoder, mut seen) = (ResponseDecoder::new(1), FastCgiSeen::default());
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && seen.refused.is_none() && !decoder.is_complete() {
            match decoder.decode(rest) {
                Ok(step) => {
                    assert!(step.consumed > 0, "a decoder that does not move");
                    match step.event {
                        Event::Stdout(data) => seen.stdout.extend_from_slice(data),
                        Event::Stderr(data) => seen.stderr.extend_from_slice(data),
                        Event::End(end) => seen.end = Some(end),
                        Event::Values(_) | Event::Nothing => {}
                    }
                    rest = &rest[step.consumed..];
                }
                Err(error) => seen.refused = Some(error.to_string()),
            }
        }
        if decoder.is_complete() {
            seen.left += rest.len();
        }
    }
    seen
}

fn fastcgi_requests(pieces: &[&[u8]]) -> Vec<String> {
    let (mut decoder, mut seen, mut stdin) = (RequestDecoder::default(), Vec::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let step = match decoder.decode(rest) {
                Ok(step) => step,
                Err(error) => {
                    seen.push(error.to_string());
                    return seen;
                }
            };
            assert!(step.consumed > 0, "a decoder that does not move");
            rest = &rest[step.consumed..];
            match step.event {
                RequestEvent::Nothing => {}
                RequestEvent::Stdin(data) => stdin.extend_from_slice(data),
                RequestEvent::Params => {
                    assert!(Pairs::new(decoder.params()).all(|pair| pair.is_ok()));
                    seen.push(format!("{:?}", decoder.params()));
                }
                event => seen.push(format!("{event:?} {:?}", std::mem::take(&mut stdin))),
            }
        }
    }
    seen
}

/// Both roles of FastCGI: whole and in two pieces alike.
pub fn fuzz_fastcgi(data: &[u8]) {
    let Some((at, flags, wire)) = split_input(data) else { return };
    let (first, second) = wire.split_at(at);
    if flags & 1 == 0 {
        assert_eq!(fastcgi_response(&[wire]), fastcgi_response(&[first, second]), "cut at {at}");
    } else {
        assert_eq!(fastcgi_requests(&[wire]), fastcgi_requests(&[first, second]), "cut at {at}");
    }
}

/// Variables of SCGI: what was said early holds; what was read can be written and reads the same again.
pub fn fuzz_scgi(data: &[u8]) {
    let Some((at, _, wire)) = split_input(data) else { return };
    let whole = parse_request(wire, 64 << 10);
    match parse_request(&wire[..at], 64 << 10) {
        Ok(None) => {}
        // What is wrong about it is told more exactly when more of it is there.
        Err(_) => assert!(whole.is_err(), "cut at {at}"),
        early => assert_eq!(early, whole, "cut at {at}"),
    }
    let Ok(Some(request)) = whole else { return };
    let mut out = Vec::new();
    let mut variables = scgi::Variables::begin(&mut out, 7);
    let kept: Vec<_> = request.variables.iter().filter(|(name, value)| variables.push(name, value)).collect();
    variables.finish();
    let again = parse_request(&out, usize::MAX).expect("what was written is valid").expect("and whole");
    assert_eq!(again.len, out.len());
    assert!(again.variables.iter().skip(2).eq(kept));
}

/// Heads of scripts: what was said early holds.
pub fn fuzz_cgi_head(data: &[u8]) {
    let Some((at, flags, wire)) = split_input(data) else { return };
    let limits = limits_of(flags);
    let read = |bytes: &[u8]| {
        let mut space = FieldSpace::new();
        parse_head(bytes, &limits, &mut space).map(|head| {
            head.map(|head| {
                assert!(head.len <= bytes.len() && head.len <= limits.head_size);
                assert!((200..600).contains(&head.status));
                format!("{head:?}")
            })
        })
    };
    match read(&wire[..at]) {
        Ok(None) => {}
        early => assert_eq!(early, read(wire), "cut at {at}"),
    }
}
