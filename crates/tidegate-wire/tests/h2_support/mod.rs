//! What the tests of HTTP/2 share: frames made by hand, and a connection that is fed and asked.
#![allow(dead_code)]

use tidegate_http::FieldLines;
use tidegate_wire::h1::FieldSpace;
use tidegate_wire::h2::{
    Connection, ConnectionError, ErrorCode, Event, FieldSource, FrameHeader, FrameKind, Limits, PREFACE,
    ResponseParts, Section, StreamError, StreamKey, flag, push_frame,
};

pub const END: u8 = flag::END_STREAM;
pub const BLOCK: u8 = flag::END_HEADERS;
pub const WHOLE: u8 = flag::END_STREAM | flag::END_HEADERS;

/// `GET http://a/`
pub const GET: &[u8] = b"\x82\x86\x84\x01\x01a";

/// `POST http://a/`
pub const POST: &[u8] = b"\x83\x86\x84\x01\x01a";

pub fn frame(kind: FrameKind, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    push_frame(&mut out, kind, flags, stream, payload.as_ref());
    out
}

/// A block of literals that touch no table: `(name, value)` as they are.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            let length = text.len();
            if length < 127 {
                out.push(length as u8);
            } else {
                out.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    out.push(rest as u8 | 128);
                    rest >>= 7;
                }
                out.push(rest as u8);
            }
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

pub fn headers(stream: u32, flags: u8, block: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FrameKind::HEADERS, flags, stream, block)
}

pub fn data(stream: u32, flags: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FrameKind::DATA, flags, stream, payload)
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(FrameKind::RST_STREAM, 0, stream, code.to_be_bytes())
}

pub fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(FrameKind::WINDOW_UPDATE, 0, stream, increment.to_be_bytes())
}

pub fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let entries = entries.iter().flat_map(|(id, value)| {
        let [a, b] = id.to_be_bytes();
        let [c, d, e, f] = value.to_be_bytes();
        [a, b, c, d, e, f]
    });
    frame(FrameKind::SETTINGS, 0, 0, entries.collect::<Vec<_>>())
}

/// The frames of a byte string.
pub fn frames(mut bytes: &[u8]) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let header = FrameHeader::parse(bytes).expect("a whole frame header");
        let (payload, rest) = bytes[9..].split_at(header.length);
        frames.push((header, payload.to_vec()));
        bytes = rest;
    }
    frames
}

/// What happened, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Request { id: u32, head: String, is_end: bool },
    Refused { id: u32, status: u16 },
    Response { id: u32, head: String, is_end: bool },
    Interim { id: u32, head: String },
    Trailers { id: u32, fields: String },
    Data { id: u32, data: Vec<u8>, is_end: bool },
    Reset { id: u32, code: ErrorCode },
    Broken { id: Option<u32>, error: StreamError },
    GoAway { last_stream: u32, code: ErrorCode },
    Failed(ConnectionError),
}

/// One end, fed by hand.
pub struct End {
    pub connection: Connection,
    pub section: Section,
    pub input: Vec<u8>,
    pub out: Vec<u8>,
    pub seen: Vec<Seen>,
    pub keys: Vec<StreamKey>,
    pub second: u32,
    /// Content is released as soon as it comes.
    pub releases: bool,
    /// Pieces of content that follow each other are one.
    pub joins: bool,
}

impl End {
    pub fn server(limits: Limits) -> End {
        let mut out = Vec::new();
        let connection = Connection::server(limits, &mut out);
        End::new(connection, out)
    }

    pub fn client(limits: Limits) -> End {
        let mut out = Vec::new();
        let connection = Connection::client(limits, &mut out);
        End::new(connection, out)
    }

    fn new(connection: Connection, out: Vec<u8>) -> End {
        let (input, seen, keys) = (Vec::new(), Vec::new(), Vec::new());
        End {
            connection,
            section: Section::new(),
            input,
            out,
            seen,
            keys,
            second: 1,
            releases: true,
            joins: true,
        }
    }

    /// A server that has read a client's preface and said its own.
    pub fn ready_server(limits: Limits) -> End {
        let mut end = End::server(limits);
        end.feed(PREFACE);
        end.feed(&settings(&[]));
        end.feed(&frame(FrameKind::SETTINGS, flag::ACK, 0, b""));
        assert_eq!(end.seen, []);
        end.out.clear();
        end
    }

    /// A client that has read a server's settings.
    pub fn ready_client(limits: Limits) -> End {
        let mut end = End::client(limits);
        end.feed(&settings(&[]));
        assert_eq!(end.seen, []);
        end.out.clear();
        end
    }

    pub fn feed(&mut self, bytes: &[u8]) -> &mut End {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while !matches!(self.seen.last(), Some(Seen::Failed(_))) {
            let read = self.connection.read(&input[at..], self.second, &mut self.section, &mut self.out);
            let read = match read {
                Ok(read) => read,
                Err(error) => {
                    self.seen.push(Seen::Failed(error));
                    break;
                }
            };
            assert!(read.consumed <= input.len() - at);
            at += read.consumed;
            let Some(event) = read.event else { break };
            self.note(event);
        }
        self.input = input[at..].to_vec();
        self
    }

    fn note(&mut self, event: Event<'_>) {
        let mut space = FieldSpace::new();
        let seen = match event {
            Event::Request { stream, is_end } => {
                self.keys.push(stream);
                let head = self.section.request(&mut space);
                let fields: Vec<String> = head.fields.iter().map(text_of).collect();
                let what = (head.method, head.scheme, head.authority, head.target, head.protocol);
                let more = (head.content_length, head.expects_continue);
                Seen::Request {
                    id: stream.id(),
                    head: format!("{what:?} {more:?} {}", fields.join("|")),
                    is_end,
                }
            }
            Event::Refused { stream, status, .. } => {
                self.keys.push(stream);
                Seen::Refused { id: stream.id(), status }
            }
            Event::Response { stream, is_end } => {
                Seen::Response { id: stream.id(), head: response_text(&self.section), is_end }
            }
            Event::Interim { stream } => {
                Seen::Interim { id: stream.id(), head: response_text(&self.section) }
            }
            Event::Trailers { stream } => {
                let fields: Vec<String> = self.section.fields(&mut space).iter().map(text_of).collect();
                Seen::Trailers { id: stream.id(), fields: fields.join("|") }
            }
            Event::Data { stream, data, is_end } => {
                if self.releases {
                    self.connection.release(stream, data.len(), &mut self.out);
                }
                if let Some(Seen::Data { id, data: before, is_end: was_end }) = self.seen.last_mut()
                    && *id == stream.id()
                    && self.joins
                {
                    before.extend_from_slice(data);
                    *was_end = is_end;
                    return;
                }
                Seen::Data { id: stream.id(), data: data.to_vec(), is_end }
            }
            Event::Reset { stream, code } => Seen::Reset { id: stream.id(), code },
            Event::Broken { stream, error } => Seen::Broken { id: stream.map(StreamKey::id), error },
            Event::GoAway { last_stream, code } => Seen::GoAway { last_stream, code },
        };
        self.seen.push(seen);
    }

    /// Answers a stream with a status and this content, as far as the windows go.
    pub fn answer(&mut self, key: StreamKey, status: u16, content: &[u8]) -> usize {
        let lines = FieldLines::new();
        let parts = ResponseParts {
            status,
            date: None,
            server: None,
            fields: FieldSource::Lines(&lines),
            content_length: Some(content.len() as u64),
        };
        assert!(self.connection.send_response(key, &parts, false, &mut self.out));
        self.connection.send_data(key, content, true, &mut self.out)
    }

    pub fn key(&self, id: u32) -> StreamKey {
        *self.keys.iter().rev().find(|key| key.id() == id).expect("the stream was told of")
    }

    /// What was sent since the last call.
    pub fn sent(&mut self) -> Vec<(FrameHeader, Vec<u8>)> {
        let out = std::mem::take(&mut self.out);
        frames(out.strip_prefix(PREFACE).unwrap_or(&out))
    }
}

fn text_of(field: &tidegate_http::Field<'_>) -> String {
    format!("{}: {}", field.name, field.value.escape_ascii())
}

fn response_text(section: &Section) -> String {
    let mut space = FieldSpace::new();
    let head = section.response(&mut space);
    let fields: Vec<String> = head.fields.iter().map(text_of).collect();
    format!("{} {:?} {}", head.status, head.content_length, fields.join("|"))
}
