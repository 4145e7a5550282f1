//! The filter: which responses are encoded, with what, and what that does to their fields.
//!
//! Called in the Filter phase for every response of a route with `compress`, but for those whose head is
//! prebuilt: their maker has applied everything already. A response that would be encoded for another
//! client says so in `Vary`, whatever this client gets (RFC 9110 section 12.5.5). A strong entity tag is
//! for bytes that are no longer sent, so it becomes weak (section 8.8.3.3).

use super::encoder::{Encoder, encode_small};
use super::file_source::FileSource;
use super::stream::{BytesSource, EncodedStream, MessageSource, SharedSource};
use super::{content_coding, is_worth_encoding, offered, token};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{Coding, Compress};
use tidegate_core::filter::FilterHead;
use tidegate_core::{Body, BodyStream, Exchange, Filter, ResponseFilter, memory};
use tidegate_http::etag::entity_tags;
use tidegate_http::{CacheControl, ContentCoding, FieldLines, Status, coding, vary};
use tidegate_stats::Worker as Stats;

/// Bodies up to this are encoded at once, and their length is known to the client.
const SMALL: usize = 64 << 10;
/// Fields about the very bytes of the content: not true of the encoded ones.
const DIGESTS: [&str; 4] = ["Content-Digest", "Repr-Digest", "Digest", "Content-MD5"];

/// Encodes the responses of a route.
pub struct CompressFilter {
    settings: Rc<Compress>,
    offered: Box<[ContentCoding]>,
    stats: Arc<Stats>,
}

impl CompressFilter {
    /// With the settings of a route, for a worker that counts there.
    pub fn new(settings: &Compress, stats: &Arc<Stats>) -> CompressFilter {
        let (settings, offered) = (Rc::new(settings.clone()), offered(settings).into());
        CompressFilter { settings, offered, stats: stats.clone() }
    }

    /// The coding that the client likes best, and its level; `None` for none.
    fn choose(&self, exchange: &Exchange<'_>) -> Option<(Coding, u8)> {
        // Where not even identity is acceptable, identity is still better than an error.
        let chosen = coding::negotiate(exchange.fields.all("Accept-Encoding"), &self.offered)?;
        self.settings.codings.iter().copied().find(|&(coding, _)| content_coding(coding) == chosen)
    }
}

impl Filter for CompressFilter {
    fn prepare(&self, exchange: &Exchange<'_>) -> Option<Box<dyn ResponseFilter>> {
        if self.offered.is_empty() {
            return None;
        }
        let asks_weakly =
            exchange.fields.all("If-None-Match").flat_map(entity_tags).any(|entity_tag| entity_tag.weak);
        Some(Box::new(Compression {
            settings: self.settings.clone(),
            chosen: self.choose(exchange),
            asks_weakly,
            made: Made::Nothing,
            stats: self.stats.clone(),
        }))
    }

    fn looks_ahead(&self) -> usize {
        usize::try_from(self.settings.min_length).unwrap_or(usize::MAX)
    }

    fn sees_finished(&self) -> bool {
        false // their makers have chosen a form, as the file cache does
    }
}

/// The filter at one response.
struct Compression {
    settings: Rc<Compress>,
    chosen: Option<(Coding, u8)>,
    /// The client knows a weak tag.
    asks_weakly: bool,
    made: Made,
    stats: Arc<Stats>,
}

/// What the content will be.
enum Made {
    /// As it is.
    Nothing,
    /// Encoded already.
    Bytes(Vec<u8>),
    /// Encoded while it is sent, by an encoder of so many bytes.
    Encoder(Encoder, usize),
}

impl ResponseFilter for Compression {
    fn on_head(&mut self, head: FilterHead<'_>) -> bool {
        match Place::of(&self.settings, &head) {
            Place::Untouched => false,
            Place::Varies => {
                vary::add(head.lines, [&b"Accept-Encoding"[..]]);
                // A client that knows the encoded form knows it by its weak tag.
                if self.asks_weakly && head.status == Status::NOT_MODIFIED {
                    weaken(head.lines);
                }
                false
            }
            Place::Encodable => {
                vary::add(head.lines, [&b"Accept-Encoding"[..]]);
                let Some((coding, level)) = self.chosen else { return false };
                self.made = Made::of(head.body, coding, level);
                if matches!(self.made, Made::Nothing) {
                    return false;
                }
                head.lines.push("Content-Encoding", token(coding));
                head.lines.remove("Accept-Ranges");
                for name in DIGESTS {
                    head.lines.remove(name);
                }
                weaken(head.lines);
                true
            }
        }
    }

    fn wrap_body(self: Box<Self>, body: Body) -> Body {
        let (encoder, weight) = match self.made {
            Made::Nothing => return body,
            Made::Bytes(encoded) => return Body::Bytes(encoded),
            Made::Encoder(encoder, weight) => (encoder, weight),
        };
        let (len, mut may_end_with_trailers) = (body.len(), false);
        // A file has the same bytes each time.
        let timed = matches!(body, Body::File(_)).then_some(self.stats);
        let (source, flushes): (Box<dyn BodyStream>, bool) = match body {
            Body::Bytes(bytes) => (Box::new(BytesSource { bytes, taken: 0 }), false),
            Body::Prebuilt(message) => (Box::new(MessageSource { message, taken: 0 }), false),
            Body::Shared(piece) => (Box::new(SharedSource(piece)), false),
            Body::File(piece) => (Box::new(FileSource::new(piece)), false),
            Body::Stream { stream, has_trailers, .. } => {
                may_end_with_trailers = has_trailers;
                (stream, true)
            }
            body @ (Body::Empty | Body::Parts(_) | Body::Tunnel { .. }) => return body,
        };
        let stream = EncodedStream::new(encoder, source, len, flushes).weighing(weight).timed(timed);
        Body::Stream { len: None, has_trailers: may_end_with_trailers, stream: Box::new(stream) }
    }
}

impl Made {
    /// Nothing where no encoder can be had, where memory is short, or where it would not be shorter.
    fn of(body: &Body, coding: Coding, level: u8) -> Made {
        let small = match body {
            Body::Bytes(bytes) => Some(bytes.as_slice()),
            Body::Shared(piece) => piece.whole(),
            _ => None,
        };
        if let Some(bytes) = small.filter(|bytes| bytes.len() <= SMALL) {
            return match encode_small(coding, level, bytes) {
                Ok(encoded) if encoded.len() < bytes.len() => Made::Bytes(encoded),
                _ => Made::Nothing,
            };
        }
        match body {
            Body::Bytes(_) | Body::Prebuilt(_) | Body::Shared(_) | Body::File(_) | Body::Stream { .. } => {
                let weight = Encoder::weight(coding, level);
                if !memory::take(weight) {
                    return Made::Nothing;
                }
                let made = Encoder::for_stream(coding, level, body.len());
                made.map_or(Made::Nothing, |encoder| Made::Encoder(encoder, weight))
            }
            Body::Empty | Body::Parts(_) | Body::Tunnel { .. } => Made::Nothing,
        }
    }
}

/// What a response is to this filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is the same for every client.
    Untouched,
    /// Goes out as it is, but stands for one that would be encoded: 206 and 304 must say the same about
    /// `Vary` as the 200 (RFC 9110 sections 15.3.7 and 15.4.5).
    Varies,
    Encodable,
}

impl Place {
    fn of(settings: &Compress, head: &FilterHead<'_>) -> Place {
        let lines = &head.lines;
        let media_type = lines.first("Content-Type").map(|value| std::str::from_utf8(value).unwrap_or(""));
        let is_worth = |media_type: &str| is_worth_encoding(settings, media_type);
        if lines.contains("Content-Encoding") || CacheControl::parse(lines.all("Cache-Control")).no_transform
        {
            return Place::Untouched;
        }
        match head.status {
            // A 304 need not state the type, and of several ranges the parts do; to vary needlessly is
            // harmless.
            Status::NOT_MODIFIED if media_type.is_none_or(is_worth) => Place::Varies,
            Status::PARTIAL_CONTENT
                if media_type.is_some_and(|name| name.starts_with("multipart/") || is_worth(name)) =>
            {
                Place::Varies
            }
            Status::OK | Status::NON_AUTHORITATIVE_INFORMATION | Status::FORBIDDEN | Status::NOT_FOUND => {
                let is_long = match (head.body, head.body.len()) {
                    (Body::Empty | Body::Parts(_), _) => false,
                    (_, Some(len)) => len > 0 && len >= settings.min_length,
                    (_, None) => true,
                };
                if is_long && media_type.is_some_and(is_worth) { Place::Encodable } else { Place::Untouched }
            }
            _ => Place::Untouched,
        }
    }
}

/// Makes a strong entity tag weak.
fn weaken(lines: &mut FieldLines) {
    let Some(tag) = lines.first("ETag").filter(|tag| tag.starts_with(b"\"")) else { return };
    let weak = [b"W/", tag].concat();
    lines.set("ETag", weak);
}

#[cfg(test)]
mod tests {
    use super::super::encoder::tests::decode;
    use super::*;
    use std::task::{Context, Poll, Waker};
    use tidegate_core::response::FilePiece;
    use tidegate_core::{Chunk, Response, filter};
    use tidegate_http::{Field, Fields};
    use tidegate_io::paged::PagedFile;

    fn settings() -> Compress {
        Compress {
            codings: vec![(Coding::Zstd, 3), (Coding::Brotli, 5), (Coding::Gzip, 6)],
            min_length: 100,
            types: Vec::new(),
        }
    }

    /// Passes a response through the filter for a request with these fields.
    fn pass(request: &[(&'static str, &'static str)], response: Response) -> Response {
        let fields: Vec<Field<'_>> =
            request.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect();
        let exchange = Exchange { fields: Fields::new(&fields), ..Exchange::empty() };
        let filter =
            CompressFilter::new(&settings(), &Arc::default()).prepare(&exchange).expect("there are codings");
        filter::apply(filter, response)
    }

    fn text(status: u16) -> Response {
        Response::content(Status(status), "text/plain", vec![b'a'; 1000])
    }

    fn field<'r>(response: &'r mut Response, name: &str) -> Option<&'r str> {
        response.fields_mut().first(name).map(|value| std::str::from_utf8(value).unwrap())
    }

    #[test]
    fn negotiation() {
        for (accepts, coding) in [
            (None, None),
            (Some(""), None),
            (Some("gzip"), Some("gzip")),
            (Some("gzip, br"), Some("br")),
            (Some("gzip, deflate, br, zstd"), Some("zstd")),
            (Some("zstd;q=0.5, br;q=0.9, gzip"), Some("gzip")),
            (Some("gzip;q=0"), None),
            (Some("identity, gzip;q=0.5"), None),
            (Some("*"), Some("zstd")),
            (Some("*;q=0"), None),
            (Some("identity;q=0, x-unknown"), None),
            (Some("X-GZip"), Some("gzip")),
        ] {
            let request: Vec<_> = accepts.map(|value| ("Accept-Encoding", value)).into_iter().collect();
            let mut response = pass(&request, text(200));
            assert_eq!(field(&mut response, "Content-Encoding"), coding, "{accepts:?}");
            assert_eq!(field(&mut response, "Vary"), Some("Accept-Encoding"), "{accepts:?}");
        }
    }

    #[test]
    fn which_responses_are_encoded_and_which_vary() {
        let typed = |name: &str| Response::content(Status::OK, name, vec![b'a'; 1000]);
        let empty = |status, name| Response::empty(Status(status)).with("Content-Type", name);
        let (both, varies, neither) = ((true, true), (false, true), (false, false));
        for (name, response, expected) in [
            ("text", text(200), both),
            ("203", text(203), both),
            ("403", text(403), both),
            ("404", text(404), both),
            ("500", text(500), neither),
            ("206", text(206), varies),
            (
                "206 of several",
                Response::content(Status(206), "multipart/byteranges; boundary=x", "-"),
                varies,
            ),
            ("206 of an image", Response::content(Status(206), "image/png", "-"), neither),
            ("304", Response::empty(Status(304)), varies),
            ("304 of an image", empty(304, "image/png"), neither),
            ("204", empty(204, "text/plain"), neither),
            ("an image", typed("image/png"), neither),
            ("events", typed("text/event-stream"), neither),
            ("no type", Response { body: Body::Bytes(vec![0; 999]), ..Response::empty(Status::OK) }, neither),
            ("short", Response::content(Status::OK, "text/plain", "x"), neither),
            ("no body", empty(200, "text/plain"), neither),
            ("coded", text(200).with("Content-Encoding", "gzip"), neither),
            ("as it is", text(200).with("Cache-Control", "max-age=1, no-transform"), neither),
        ] {
            let mut response = pass(&[("Accept-Encoding", "gzip")], response);
            let is_encoded = name != "coded" && field(&mut response, "Content-Encoding").is_some();
            assert_eq!((is_encoded, field(&mut response, "Vary").is_some()), expected, "{name}");
        }
    }

    #[test]
    fn fields() {
        for (name, before, after) in [
            ("Vary", vec!["Origin"], Some("Origin, Accept-Encoding")),
            ("Vary", vec!["Origin", "Cookie"], Some("Origin, Cookie, Accept-Encoding")),
            ("Vary", vec!["accept-encoding"], Some("accept-encoding")),
            ("Vary", vec!["*"], Some("*")),
            ("ETag", vec!["\"abc\""], Some("W/\"abc\"")),
            ("ETag", vec!["W/\"abc\""], Some("W/\"abc\"")),
            ("Accept-Ranges", vec!["bytes"], None),
            ("Repr-Digest", vec!["sha-256=:x:"], None),
            ("Content-Type", vec![], Some("text/plain")),
        ] {
            let response = before.iter().fold(text(200), |response, value| response.with(name, value));
            let mut response = pass(&[("Accept-Encoding", "br")], response);
            assert_eq!(field(&mut response, name), after, "{name} {before:?}");
        }
        let mut plain = pass(&[], text(200).with("ETag", "\"abc\"").with("Accept-Ranges", "bytes"));
        assert_eq!(field(&mut plain, "ETag"), Some("\"abc\""));
        assert_eq!(field(&mut plain, "Accept-Ranges"), Some("bytes"));
    }

    #[test]
    fn a_304_names_the_tag_that_the_client_knows() {
        for (asked, told) in [("\"abc\"", "\"abc\""), ("W/\"abc\"", "W/\"abc\"")] {
            let response = Response::empty(Status::NOT_MODIFIED).with("ETag", "\"abc\"");
            let mut response = pass(&[("If-None-Match", asked)], response);
            assert_eq!(field(&mut response, "ETag"), Some(told));
        }
    }

    #[test]
    fn every_kind_of_body_round_trips() {
        let path = std::env::temp_dir().join(format!("tidegate-filter-{}", std::process::id()));
        let plain: Vec<u8> = (0..50_000u32).flat_map(|i| i.to_string().into_bytes()).collect();
        std::fs::write(&path, &plain).unwrap();
        let file = Rc::new(PagedFile::new(
            std::os::fd::OwnedFd::from(std::fs::File::open(&path).unwrap()).into(),
            (0, 0),
        ));
        let end = plain.len() as u64;
        let message = tidegate_core::Message::new(Status::OK, None, FieldLines::default(), Some(end), &plain);
        let bodies = [
            Body::Bytes(plain.clone()),
            Body::Prebuilt(message),
            Body::File(FilePiece::new(file, 0, end)),
            Body::Stream {
                len: None,
                has_trailers: false,
                stream: Box::new(BytesSource { bytes: plain.clone(), taken: 0 }),
            },
        ];
        for body in bodies {
            let response = Response { body, ..text(200) };
            let response = pass(&[("Accept-Encoding", "zstd")], response);
            assert_eq!(response.body.len(), None);
            let Body::Stream { mut stream, .. } = response.body else { panic!("not a stream") };
            let (mut encoded, mut buffer) = (Vec::new(), vec![0; 10_000]);
            let deadline = std::time::Instant::now() + tidegate_testkit::WAIT;
            loop {
                assert!(std::time::Instant::now() < deadline, "it has no end");
                match stream.poll_chunk(&mut Context::from_waker(Waker::noop()), &mut buffer) {
                    Poll::Ready(Ok(Chunk::Data(count))) => encoded.extend_from_slice(&buffer[..count.get()]),
                    Poll::Ready(Ok(_)) => break,
                    Poll::Ready(Err(error)) => panic!("{error}"),
                    Poll::Pending => std::thread::yield_now(),
                }
            }
            assert_eq!(decode(Coding::Zstd, &encoded).unwrap(), plain);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_does_not_shrink_is_left_alone() {
        let noise: Vec<u8> =
            (0..150u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let mut response = pass(
            &[("Accept-Encoding", "gzip")],
            Response::content(Status::OK, "text/plain", noise).with("ETag", "\"abc\""),
        );
        assert_eq!(field(&mut response, "Content-Encoding"), None);
        assert_eq!(field(&mut response, "ETag"), Some("\"abc\""));
        assert_eq!(response.body.len(), Some(150));
    }
}
