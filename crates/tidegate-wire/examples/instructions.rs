//! Operations of the codec, as many times as asked, for `cargo xtask bench instructions`.
//!
//! `instructions parse N` reads the head a browser sends, `instructions plain N` the one a load generator sends;
//! `instructions chunks N` decodes a chunked body.

use std::hint::black_box;
use tidegate_wire::h1::{BodyDecoder, BodyLength, FieldSpace, HeadLimits, parse_request};

const BROWSER: &[u8] = b"GET /static/style.css?v=3 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/css,*/*;q=0.1\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\n\
    Referer: http://www.example.com/\r\n\
    If-None-Match: \"6b01995c.1090b388-6\"\r\n\
    Sec-Fetch-Dest: style\r\n\
    Sec-Fetch-Mode: no-cors\r\n\
    Sec-Fetch-Site: same-origin\r\n\r\n";

const PLAIN: &[u8] = b"GET /small.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";

const CHUNKS: &[u8] = b"5\r\nhello\r\n10;name=value\r\n0123456789abcdef\r\n0\r\nTrailer-Field: x\r\n\r\n";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, count] = arguments.as_slice() else {
        return eprintln!("instructions parse|plain|chunks N");
    };
    let count: u64 = count.parse().unwrap_or(0);
    let limits = HeadLimits::default();
    for _ in 0..count {
        match what.as_str() {
            "parse" | "plain" => {
                let head = if what == "parse" { BROWSER } else { PLAIN };
                let mut space = FieldSpace::new();
                let head = parse_request(black_box(head), &limits, &mut space);
                assert!(black_box(head).is_ok_and(|head| head.is_some()));
            }
            _ => {
                let mut decoder = BodyDecoder::new(BodyLength::Chunked, limits);
                let mut at = 0;
                while !decoder.is_complete() {
                    let rest = CHUNKS.get(at..).unwrap_or_default();
                    at += decoder.decode(black_box(rest)).map_or(usize::MAX, |decoded| decoded.consumed);
                }
            }
        }
    }
}
