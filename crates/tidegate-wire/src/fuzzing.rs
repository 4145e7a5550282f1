//! What the fuzz targets call, and the drivers that turn a byte stream into events.
//!
//! The targets in `fuzz/` hand their input to the `fuzz_*` functions; the tests of this crate hand them the
//! corpus and mutations of it, and use the drivers for their own properties. Not part of the interface: a
//! failed claim panics here, which nothing else in the crate may do.
//!
//! Input of every target: one byte where the rest is cut (in 256ths), one byte of flags, then the wire bytes.

mod applications;

pub use applications::*;

use crate::h1::{
    BodyDecoder, BodyLength, ConnectionField, FieldSpace, HeadLimits, HeadScanner, LAST_CHUNK,
    RequestFraming, RequestParts, ResponseKind, append_chunk, append_field, encode_request, end_of_chunks,
    parse_request, parse_response,
};
use tidegate_http::Field;

mod h2;

pub use h2::{fuzz_h2_client, fuzz_h2_server, fuzz_hpack, h2_events};

/// What a stream of messages consists of. However it was cut, the events are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A head: everything that was read from it, but for the fields.
    Head(String),
    /// A field of the head before, or a trailer of the body before.
    Field(String, Vec<u8>),
    /// Body data; consecutive pieces are joined.
    Data(Vec<u8>),
    /// The body is complete; its trailers follow.
    End,
    /// The connection is not HTTP any more; what is left of the bytes.
    Rest(Vec<u8>),
    /// The message was refused; nothing follows.
    Refused(String),
    /// The bytes end inside a message.
    Incomplete,
}

/// Small limits, so that short inputs reach them.
pub const SMALL: HeadLimits = HeadLimits { head_size: 300, target_size: 40, fields: 6 };

/// Reads pipelined requests that come in these pieces, as a connection would.
pub fn request_events(pieces: &[&[u8]], limits: &HeadLimits) -> Vec<Event> {
    Driver::new(*limits, None).run(pieces)
}

/// Reads responses to requests of one method, then the end of the connection.
pub fn response_events(pieces: &[&[u8]], limits: &HeadLimits, request_method: &str) -> Vec<Event> {
    Driver::new(*limits, Some(request_method)).run(pieces)
}

/// Reads one body, then whatever follows it, then the end of the connection.
pub fn body_events(pieces: &[&[u8]], limits: &HeadLimits, body: BodyLength) -> Vec<Event> {
    let mut driver = Driver::new(*limits, None);
    driver.body = Some(BodyDecoder::new(body, *limits));
    driver.only_body = true;
    driver.run(pieces)
}

/// A header of the PROXY protocol is never longer than there are bytes, and what it says does not depend on what
/// comes behind it.
pub fn fuzz_proxy_protocol(data: &[u8]) {
    use crate::proxy_protocol::parse;
    if let Ok(Some((header, length))) = parse(data) {
        assert!(length <= data.len());
        assert_eq!(parse(&data[..length]), Ok(Some((header, length))));
        for cut in 0..length {
            assert_eq!(parse(&data[..cut]), Ok(None), "cut at {cut}");
        }
    }
}

struct Driver<'m> {
    limits: HeadLimits,
    /// The method that was requested, for the client's role.
    request_method: Option<&'m str>,
    buf: Vec<u8>,
    scanner: HeadScanner,
    body: Option<BodyDecoder>,
    only_body: bool,
    is_over: bool,
    events: Vec<Event>,
}

impl<'m> Driver<'m> {
    fn new(limits: HeadLimits, request_method: Option<&'m str>) -> Self {
        Driver {
            limits,
            request_method,
            buf: Vec::new(),
            scanner: HeadScanner::new(),
            body: None,
            only_body: false,
            is_over: false,
            events: Vec::new(),
        }
    }

    fn run(mut self, pieces: &[&[u8]]) -> Vec<Event> {
        for piece in pieces {
            self.buf.extend_from_slice(piece);
            self.drain(false);
        }
        self.drain(true);
        if !self.is_over {
            self.close();
        }
        self.events
    }

    /// Takes all events that the buffer holds. `is_last` reads a head without asking the scanner, which may
    /// leave a fault unseen until more bytes come.
    fn drain(&mut self, is_last: bool) {
        while !self.is_over && !self.buf.is_empty() {
            let before = self.buf.len();
            if self.body.is_some() {
                self.take_body();
            } else if is_last || self.scanner.needs_parse(&self.buf, &self.limits) {
                self.take_head();
            }
            if self.buf.len() == before && self.body.is_none() {
                return;
            }
        }
    }

    fn take_body(&mut self) {
        let Some(body) = &mut self.body else { return };
        match body.decode(&self.buf) {
            Ok(piece) => {
                assert!(piece.consumed > 0 || body.is_complete(), "a decoder that does not move");
                assert!(
                    self.buf[..piece.consumed].ends_with(piece.data),
                    "data is the tail of what was used"
                );
                match self.events.last_mut() {
                    _ if piece.data.is_empty() => {}
                    Some(Event::Data(data)) => data.extend_from_slice(piece.data),
                    _ => self.events.push(Event::Data(piece.data.to_vec())),
                }
                let consumed = piece.consumed;
                self.buf.drain(..consumed);
                self.end_body();
            }
            Err(fault) => self.refuse(format!("{} {fault:?}", fault.status())),
        }
    }

    fn end_body(&mut self) {
        let Some(body) = self.body.as_mut().filter(|body| body.is_complete()) else { return };
        self.events.push(Event::End);
        if let Some(trailers) = body.take_trailers() {
            self.events.extend(trailers.iter().map(event_of));
        }
        self.body = None;
        self.scanner = HeadScanner::new();
        self.is_over = self.only_body;
        if self.only_body {
            self.events.push(Event::Rest(Vec::new()));
        }
    }

    fn take_head(&mut self) {
        let buf = std::mem::take(&mut self.buf);
        let mut space = FieldSpace::new();
        let taken = match self.request_method {
            None => match parse_request(&buf, &self.limits, &mut space) {
                Ok(None) => 0,
                Ok(Some(head)) => {
                    assert!(head.len <= buf.len() && head.len <= self.limits.head_size + 2);
                    assert!(head.body != BodyLength::UntilClose && head.body != BodyLength::Length(0));
                    let text = format!("{:?}", (head.len, head.method, head.target, head.version, head.host));
                    let more = (head.body, head.keep_alive, head.expects_continue, head.upgrade);
                    self.events.push(Event::Head(format!("{text} {more:?}")));
                    self.events.extend(head.fields.iter().copied().map(event_of));
                    self.body = Some(BodyDecoder::new(head.body, self.limits));
                    head.len
                }
                Err(fault) => {
                    self.refuse(format!("{} {fault:?}", fault.status()));
                    0
                }
            },
            Some(method) => match parse_response(&buf, &self.limits, &mut space, method) {
                Ok(None) => 0,
                Ok(Some(head)) => {
                    assert!(head.len <= buf.len() && head.len <= self.limits.head_size);
                    let text = format!("{:?}", (head.len, head.version, head.status, head.reason, head.kind));
                    let more = (head.body, head.keep_alive, head.upgrade);
                    self.events.push(Event::Head(format!("{text} {more:?}")));
                    self.events.extend(head.fields.iter().copied().map(event_of));
                    match head.kind {
                        ResponseKind::Interim => self.scanner = HeadScanner::new(),
                        ResponseKind::Final => self.body = Some(BodyDecoder::new(head.body, self.limits)),
                        ResponseKind::Switching | ResponseKind::Tunnel => {
                            self.events.push(Event::Rest(Vec::new()));
                            self.is_over = true;
                        }
                    }
                    head.len
                }
                Err(fault) => {
                    self.refuse(format!("{fault:?}"));
                    0
                }
            },
        };
        drop(space);
        self.buf = buf;
        self.buf.drain(..taken);
        self.end_body();
    }

    fn refuse(&mut self, fault: String) {
        self.events.push(Event::Refused(fault));
        self.is_over = true;
    }

    fn close(&mut self) {
        let is_complete = match &mut self.body {
            Some(body) => body.close().is_ok(),
            None => self.buf.is_empty(),
        };
        let last = if is_complete && self.body.is_some() { Event::End } else { Event::Incomplete };
        if self.body.is_some() || !is_complete {
            self.events.push(last);
        }
    }
}

fn event_of(field: Field<'_>) -> Event {
    Event::Field(field.name.to_owned(), field.value.to_vec())
}

/// Where to cut, the flags, and the wire bytes.
fn split_input(data: &[u8]) -> Option<(usize, u8, &[u8])> {
    let [cut, flags, wire @ ..] = data else { return None };
    Some((wire.len() * usize::from(*cut) / 256, *flags, wire))
}

fn limits_of(flags: u8) -> HeadLimits {
    if flags & 1 == 0 { HeadLimits::default() } else { SMALL }
}

/// Requests: whole and in two pieces alike; what was read can be written, and reads the same again.
pub fn fuzz_h1_request(data: &[u8]) {
    let Some((cut, flags, wire)) = split_input(data) else { return };
    let limits = limits_of(flags);
    let (first, second) = wire.split_at(cut);
    let whole = request_events(&[wire], &limits);
    assert_eq!(whole, request_events(&[first, second], &limits), "cut at {cut}");

    let mut space = FieldSpace::new();
    let Ok(Some(head)) = parse_request(wire, &limits, &mut space) else { return };
    let Some(host) = head.host else { return };
    let mut field_lines = Vec::new();
    for field in head.fields {
        let is_ours = ["host", "content-length", "transfer-encoding"];
        if !is_ours.iter().any(|name| field.name.eq_ignore_ascii_case(name)) {
            append_field(&mut field_lines, field.name, field.value).expect("a field that was read is safe");
        }
    }
    let framing = match head.body {
        BodyLength::Length(length) => RequestFraming::Length(length),
        BodyLength::Chunked => RequestFraming::Chunked,
        BodyLength::Empty | BodyLength::UntilClose => RequestFraming::None,
    };
    let connection = ConnectionField::None;
    let (method, target) = (head.method, head.target);
    let parts = RequestParts { method, target, host, field_lines: &field_lines, framing, connection };
    let mut out = Vec::new();
    encode_request(&mut out, &parts).expect("a request that was read can be written");
    let mut space = FieldSpace::new();
    let roomy = HeadLimits { head_size: usize::MAX, target_size: usize::MAX, fields: limits.fields + 2 };
    match parse_request(&out, &roomy, &mut space) {
        Ok(Some(again)) => {
            assert_eq!((again.len, again.method, again.target), (out.len(), method, target));
            assert_eq!((again.host, again.body), (head.host, head.body));
        }
        // HTTP/1.0 may hold an expectation that 1.1 refuses.
        other => assert!(head.version < crate::h1::Version::Http11, "{other:?}"),
    }
}

/// Responses: whole and in two pieces alike, for each kind of request.
pub fn fuzz_h1_response(data: &[u8]) {
    let Some((cut, flags, wire)) = split_input(data) else { return };
    let limits = limits_of(flags);
    let method = match flags >> 1 & 3 {
        0 | 1 => "GET",
        2 => "HEAD",
        _ => "CONNECT",
    };
    let (first, second) = wire.split_at(cut);
    let whole = response_events(&[wire], &limits, method);
    assert_eq!(whole, response_events(&[first, second], &limits, method), "cut at {cut}");
}

/// A chunked body: whole and in two pieces alike; what was read can be written, and reads the same again.
pub fn fuzz_h1_body(data: &[u8]) {
    let Some((cut, flags, wire)) = split_input(data) else { return };
    let limits = limits_of(flags);
    let (first, second) = wire.split_at(cut);
    let whole = body_events(&[wire], &limits, BodyLength::Chunked);
    assert_eq!(whole, body_events(&[first, second], &limits, BodyLength::Chunked), "cut at {cut}");
    if !whole.contains(&Event::End) {
        return;
    }
    let (mut out, mut trailer_lines) = (Vec::new(), Vec::new());
    for event in &whole {
        match event {
            Event::Data(data) => append_chunk(&mut out, data),
            Event::Field(name, value) => {
                append_field(&mut trailer_lines, name, value).expect("a trailer that was read is safe");
            }
            _ => {}
        }
    }
    if trailer_lines.is_empty() {
        out.extend_from_slice(LAST_CHUNK);
    } else {
        end_of_chunks(&mut out, &trailer_lines);
    }
    let roomy = HeadLimits { head_size: usize::MAX, ..limits };
    assert_eq!(whole, body_events(&[&out], &roomy, BodyLength::Chunked));
}
