//! The same for HTTP/2: frames in both roles, and HPACK.
//!
//! Input of `h2_server` and `h2_client`: where to cut (in 256ths), a byte of flags, then the bytes that
//! follow the prefaces. Input of `hpack`: the size of the table (times 64), then blocks, each behind a byte
//! with its length.

use crate::h1::{FieldSpace, HeadLimits};
use crate::h2::hpack::{Decoder, Encoder, FieldBlock};
use crate::h2::{
    Connection, ErrorCode, Event, FRAME_HEADER, FieldSource, FrameHeader, FrameKind, Limits, PREFACE,
    RequestParts, ResponseParts, Section, StreamKey, flag, push_frame,
};
use tidegate_http::{FieldLines, Fields};

/// What a driven connection may hold, whatever it was sent.
const MEMORY: usize = 160 << 10;

/// Feeds a connection that has its prefaces behind it, answers what it asks for, and tells what happened.
/// However the bytes were cut, that is the same.
pub fn h2_events(pieces: &[&[u8]], limits: Limits, is_server: bool) -> Vec<String> {
    let mut driver = Driver::new(limits, is_server);
    for piece in pieces {
        driver.feed(piece);
    }
    driver.events
}

struct Driver {
    connection: Connection,
    section: Section,
    input: Vec<u8>,
    out: Vec<u8>,
    events: Vec<String>,
    has_failed: bool,
}

impl Driver {
    fn new(limits: Limits, is_server: bool) -> Driver {
        let mut out = Vec::new();
        let connection = if is_server {
            Connection::server(limits, &mut out)
        } else {
            Connection::client(limits, &mut out)
        };
        let (section, input, events) = (Section::new(), Vec::new(), Vec::new());
        let mut driver = Driver { connection, section, input, out, events, has_failed: false };
        if is_server {
            driver.feed(PREFACE);
        }
        let mut settings = Vec::new();
        push_frame(&mut settings, FrameKind::SETTINGS, 0, 0, &[]);
        push_frame(&mut settings, FrameKind::SETTINGS, flag::ACK, 0, &[]);
        driver.feed(&settings);
        if !is_server {
            for method in ["GET", "HEAD", "POST", "CONNECT"] {
                let lines = FieldLines::new();
                let parts = RequestParts {
                    method,
                    scheme: "http",
                    authority: "a:1",
                    target: "/",
                    protocol: None,
                    fields: FieldSource::Lines(&lines),
                    content_length: None,
                };
                let is_end = method != "POST";
                driver.connection.send_request(&parts, is_end, &mut driver.out).expect("streams are allowed");
            }
        }
        driver
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while !self.has_failed {
            match self.connection.read(&input[at..], 1, &mut self.section, &mut self.out) {
                Ok(read) => {
                    assert!(read.consumed <= input.len() - at, "more was consumed than there is");
                    at += read.consumed;
                    let Some(event) = read.event else { break };
                    self.take(event);
                }
                Err(error) => {
                    self.events.push(format!("failed: {error:?}"));
                    self.has_failed = true;
                    assert!(self.connection.is_over());
                }
            }
            check_frames(&self.out);
            self.out.clear();
            let memory = self.connection.memory() + self.section.memory();
            assert!(memory < MEMORY, "{memory} bytes are held");
        }
        self.input = input[at..].to_vec();
        assert!(self.input.len() < (16 << 10) + FRAME_HEADER || self.has_failed, "a frame that never ends");
    }

    fn take(&mut self, event: Event<'_>) {
        let mut space = FieldSpace::new();
        match event {
            Event::Request { stream, is_end } => {
                let head = self.section.request(&mut space);
                check_fields(head.fields);
                assert!(!head.method.is_empty() && !head.target.is_empty() && !head.authority.is_empty());
                let text = format!("request {} {head:?} {is_end}", stream.id());
                self.events.push(text);
                answer(&mut self.connection, stream, &mut self.out);
            }
            Event::Refused { stream, status, is_end } => {
                self.events.push(format!("refused {} {status} {is_end}", stream.id()));
                answer(&mut self.connection, stream, &mut self.out);
            }
            Event::Response { stream, is_end } => {
                let head = self.section.response(&mut space);
                check_fields(head.fields);
                self.events.push(format!("response {} {head:?} {is_end}", stream.id()));
            }
            Event::Interim { stream } => {
                let head = self.section.response(&mut space);
                self.events.push(format!("interim {} {head:?}", stream.id()));
            }
            Event::Trailers { stream } => {
                let fields = self.section.fields(&mut space);
                check_fields(fields);
                self.events.push(format!("trailers {} {fields:?}", stream.id()));
            }
            Event::Data { stream, data, is_end } => {
                let text = format!("data {} ", stream.id());
                let digits: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
                match self.events.last_mut() {
                    Some(last) if last.starts_with(&text) && !last.ends_with("end") => last.push_str(&digits),
                    _ => self.events.push(text + &digits),
                }
                if is_end && let Some(last) = self.events.last_mut() {
                    last.push_str("end");
                }
                self.connection.release(stream, data.len(), &mut self.out);
            }
            other => self.events.push(format!("{other:?}")),
        }
    }
}

/// Each stream differently, so that all ends of a stream are met.
fn answer(connection: &mut Connection, stream: StreamKey, out: &mut Vec<u8>) {
    let lines = FieldLines::new();
    let (status, fields) = (200, FieldSource::Lines(&lines));
    let parts = ResponseParts { status, date: None, server: None, fields, content_length: None };
    match stream.id() / 2 % 4 {
        0 => {}
        1 => connection.reset(stream, ErrorCode::NO_ERROR, out),
        2 => drop(connection.send_response(stream, &parts, true, out)),
        _ => {
            connection.send_response(stream, &parts, false, out);
            connection.send_data(stream, &[b'x'; 100], true, out);
        }
    }
}

/// Whatever is sent consists of whole frames that any peer takes.
fn check_frames(mut bytes: &[u8]) {
    bytes = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    while !bytes.is_empty() {
        let header = FrameHeader::parse(bytes).expect("a whole frame header");
        assert!(header.length <= 16_384, "a frame over the largest size");
        bytes = bytes.get(FRAME_HEADER + header.length..).expect("a whole payload");
    }
}

/// What is lent can be written as HTTP/1 (FAULTS 14).
fn check_fields(fields: Fields<'_>) {
    for field in fields {
        let mut line = Vec::new();
        crate::h1::append_field(&mut line, field.name, field.value).expect("a field that HTTP/1 can carry");
    }
}

fn limits_of(flags: u8) -> Limits {
    let roomy = Limits { extended_connect: flags & 2 != 0, ..Limits::default() };
    let head = HeadLimits { head_size: 600, target_size: 40, fields: 6 };
    if flags & 1 == 0 { roomy } else { Limits { head, streams: 2, ..roomy } }
}

fn fuzz_h2(data: &[u8], is_server: bool) {
    let Some((cut, flags, wire)) = super::split_input(data) else { return };
    let (first, second) = wire.split_at(cut);
    let limits = limits_of(flags);
    let whole = h2_events(&[wire], limits, is_server);
    assert_eq!(whole, h2_events(&[first, second], limits, is_server), "cut at {cut}");
}

/// Frames to a server: whole and in two pieces alike; memory stays bounded; what is sent are whole frames;
/// every field could be written as HTTP/1.
pub fn fuzz_h2_server(data: &[u8]) {
    fuzz_h2(data, true);
}

/// Frames to a client, with four requests open.
pub fn fuzz_h2_client(data: &[u8]) {
    fuzz_h2(data, false);
}

/// Names and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Blocks: what was read can be written, and reads the same again.
pub fn fuzz_hpack(data: &[u8]) {
    let Some((size, mut rest)) = data.split_first() else { return };
    let mut decoder = Decoder::new(usize::from(*size) * 64);
    let (mut encoder, mut again) = (Encoder::new(), Decoder::new(4096));
    let mut scratch = Vec::new();
    // Messages that are sent again and again, as blocks.
    let mut kept: Vec<(FieldBlock, Pairs)> = Vec::new();
    while let Some((length, behind)) = rest.split_first() {
        let (block, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = behind;
        let (mut fields, mut out) = (Vec::new(), Vec::new());
        let taken = decoder
            .decode(block, &mut scratch, |name, value, _| fields.push((name.to_vec(), value.to_vec())));
        if taken.is_err() {
            return;
        }
        if length % 16 == 15 {
            encoder.limit_table(usize::from(*length) * 32);
        }
        encoder.begin(&mut out);
        for (name, value) in &mut fields {
            name.make_ascii_lowercase();
            encoder.field(&mut out, name, value);
        }
        if let Some((kept, again)) = kept.get(usize::from(*length) % 5) {
            let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
            encoder.head(&mut out, 200, None, date, kept);
            fields.push((b":status".to_vec(), b"200".to_vec()));
            fields.push((b"date".to_vec(), date.to_vec()));
            fields.extend_from_slice(again);
        } else if let Some(block) = block_of(&fields) {
            kept.push((block, fields.clone()));
        }
        let mut read = Vec::new();
        let result =
            again.decode(&out, &mut scratch, |name, value, _| read.push((name.to_vec(), value.to_vec())));
        assert_eq!(result, Ok(()));
        assert_eq!(read, fields);
        assert!(decoder.memory() < 128 << 10, "{}", decoder.memory());
    }
}

/// The fields as a block, unless there are some that a block leaves out.
fn block_of(fields: &[(Vec<u8>, Vec<u8>)]) -> Option<FieldBlock> {
    const LEFT_OUT: [&[u8]; 5] =
        [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
    let mut block = FieldBlock::default();
    for (name, value) in fields {
        if LEFT_OUT.contains(&name.as_slice()) {
            return None;
        }
        block.push(str::from_utf8(name).ok()?, value);
    }
    Some(block)
}
