//! A client of HTTP/2 for transcripts: frames by hand, HPACK by a crate that the server does not use.
//!
//! It keeps to the rules by itself (it acknowledges settings, answers pings, gives back windows), unless a
//! transcript tells it not to, and takes nothing from the server that a careful client would refuse.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::client::{Client, Filled};
use crate::response::{Fields, Response, show};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// What a connection and each of its streams may send before anything else is said (RFC 9113 section 6.9.2).
const INITIAL_WINDOW: i64 = 65_535;

/// Answers to pings after which a window that is still closed stays so.
const QUIET_PINGS: usize = 4;

/// How a client of HTTP/2 behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The window of each stream. It is not given back then.
    pub(crate) window: Option<u32>,
    /// Says nothing of itself: the transcript sends the preface.
    pub(crate) is_silent: bool,
}

/// What a GOAWAY says.
#[derive(Debug)]
pub(crate) struct Goodbye {
    /// The code's name.
    pub(crate) code: String,
    /// The last stream that may have been looked at.
    pub(crate) last: u32,
}

/// What is known of one stream.
#[derive(Debug, Default)]
struct Stream {
    /// Interim responses and the final one, each once its head was read.
    interim: VecDeque<Response>,
    response: Option<Response>,
    has_ended: bool,
    reset: Option<u32>,
}

/// The protocol's state of one connection.
pub(crate) struct Http2 {
    options: Options,
    decoder: fluke_hpack::Decoder<'static>,
    encoder: fluke_hpack::Encoder<'static>,
    next_stream: u32,
    /// Asked and not looked at yet, oldest first.
    asked: VecDeque<u32>,
    streams: BTreeMap<u32, Stream>,
    /// A field block that is not complete: its stream, whether it ends that, and what has come of it.
    block: Option<(u32, bool, Vec<u8>)>,
    goodbyes: VecDeque<Goodbye>,
    windows: Windows,
}

/// What the server allows to be sent.
#[derive(Debug)]
struct Windows {
    /// Of each stream at its beginning.
    initial: i64,
    connection: i64,
    /// By how much each stream's window differs from `initial`: what was given back less what was sent.
    changes: BTreeMap<u32, i64>,
    /// Streams that the server has reset.
    stopped: BTreeSet<u32>,
    /// Pings that the server has answered.
    pings: u64,
}

impl Windows {
    fn room(&self, stream: u32) -> i64 {
        let change = self.changes.get(&stream).copied().unwrap_or(0);
        self.connection.min(self.initial + change)
    }

    fn take(&mut self, stream: u32, count: usize) {
        self.connection -= count as i64;
        *self.changes.entry(stream).or_default() -= count as i64;
    }
}

impl Http2 {
    /// Begins a connection, and says so to the server.
    pub(crate) fn begin(client: &mut Client, options: Options) -> Result<Http2, String> {
        let http2 = Http2 {
            options,
            decoder: fluke_hpack::Decoder::new(),
            encoder: fluke_hpack::Encoder::new(),
            next_stream: 1,
            asked: VecDeque::new(),
            streams: BTreeMap::new(),
            block: None,
            goodbyes: VecDeque::new(),
            windows: Windows {
                initial: INITIAL_WINDOW,
                connection: INITIAL_WINDOW,
                changes: BTreeMap::new(),
                stopped: BTreeSet::new(),
                pings: 0,
            },
        };
        if !options.is_silent {
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            let mut settings = vec![0, 2, 0, 0, 0, 0]; // no pushes
            if let Some(window) = options.window {
                settings.extend_from_slice(&[0, 4]);
                settings.extend_from_slice(&window.to_be_bytes());
            }
            push_frame(&mut bytes, SETTINGS, 0, 0, &settings);
            client.send(&bytes)?;
        }
        Ok(http2)
    }

    /// A request: `METHOD TARGET  name: value  name: value`, two spaces before each field. Without
    /// `:authority` it is for `x`.
    pub(crate) fn ask(&mut self, line: &str, is_end: bool) -> Result<Vec<u8>, String> {
        let mut parts = line.split("  ").map(str::trim).filter(|part| !part.is_empty());
        let (method, target) = parts
            .next()
            .and_then(|start| start.split_once(' '))
            .ok_or("expected `> METHOD TARGET  name: value`")?;
        let mut pseudo =
            vec![(":method", method), (":scheme", "http"), (":path", target), (":authority", "x")];
        let mut fields = Vec::new();
        for part in parts {
            let colon = part.get(1..).and_then(|rest| rest.find(':')).ok_or("a field has no colon")? + 1;
            let (name, value) = (part[..colon].trim(), part[colon + 1..].trim());
            match pseudo.iter_mut().find(|(of, _)| *of == name) {
                Some((_, have)) => *have = value,
                None if name.starts_with(':') => pseudo.push((name, value)),
                None => fields.push((name, value)),
            }
        }
        pseudo.retain(|(_, value)| *value != "-");
        let all = pseudo.iter().chain(&fields).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let block = self.encoder.encode(all);
        let id = self.next_stream;
        self.next_stream += 2;
        self.asked.push_back(id);
        let mut bytes = Vec::new();
        push_frame(&mut bytes, HEADERS, END_HEADERS | if is_end { END_STREAM } else { 0 }, id, &block);
        Ok(bytes)
    }

    /// Content of the request that was asked last, in frames that every server takes.
    pub(crate) fn content(&mut self, data: &[u8], is_end: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut pieces = data.chunks(16_384).peekable();
        let id = self.next_stream.saturating_sub(2);
        self.windows.take(id, data.len());
        if pieces.peek().is_none() {
            push_frame(&mut bytes, DATA, if is_end { END_STREAM } else { 0 }, id, b"");
        }
        while let Some(piece) = pieces.next() {
            let is_last = is_end && pieces.peek().is_none();
            push_frame(&mut bytes, DATA, if is_last { END_STREAM } else { 0 }, id, piece);
        }
        bytes
    }

    /// Sends content of the request that was asked last as fast as the server's windows allow it. A server that resets
    /// the stream wants no more.
    pub(crate) fn upload(
        &mut self,
        client: &mut Client,
        data: &[u8],
        deadline: Instant,
    ) -> Result<(), String> {
        let id = self.next_stream.saturating_sub(2);
        let mut at = 0;
        while at < data.len() && !self.windows.stopped.contains(&id) {
            let room = usize::try_from(self.windows.room(id)).unwrap_or(0);
            let piece = &data[at..data.len().min(at + room)];
            if piece.is_empty() {
                self.more(client, deadline)
                    .map_err(|problem| format!("{problem}, the window being used up after {at} bytes"))?;
                continue;
            }
            at += piece.len();
            let bytes = self.content(piece, false);
            client.send(&bytes)?;
        }
        Ok(())
    }

    /// Sends content until the window is used up and the server has answered several pings without opening it.
    pub(crate) fn fill(&mut self, client: &mut Client, deadline: Instant) -> Result<(), String> {
        let id = self.next_stream.saturating_sub(2);
        let mut quiet = 0;
        while quiet < QUIET_PINGS {
            let room = usize::try_from(self.windows.room(id)).unwrap_or(0);
            if room > 0 {
                let bytes = self.content(&vec![b'x'; room], false);
                client.send(&bytes)?;
                quiet = 0;
            }
            let mut ping = Vec::new();
            push_frame(&mut ping, PING, 0, 0, b"a window");
            client.send(&ping)?;
            let answered = self.windows.pings + 1;
            while self.windows.pings < answered {
                self.more(client, deadline)?;
            }
            quiet += 1;
        }
        Ok(())
    }

    /// The next response, interim ones included, to the oldest request that has none yet.
    pub(crate) fn response(&mut self, client: &mut Client, deadline: Instant) -> Result<Response, String> {
        let id = *self.asked.front().ok_or("nothing was asked")?;
        loop {
            if let Some(stream) = self.streams.get_mut(&id) {
                if let Some(interim) = stream.interim.pop_front() {
                    return Ok(interim);
                }
                if stream.has_ended
                    && let Some(response) = stream.response.take()
                {
                    self.asked.pop_front();
                    self.streams.remove(&id);
                    return Ok(response);
                }
                if let Some(code) = stream.reset {
                    let so_far = stream.response.as_ref().map(Response::describe).unwrap_or_default();
                    return Err(format!("stream {id} was reset with {}\n{so_far}", name_of(code)));
                }
            }
            self.more(client, deadline).map_err(|problem| {
                let so_far = self.streams.get(&id).and_then(|stream| stream.response.as_ref());
                format!(
                    "{problem}, waiting for stream {id}\n{}",
                    so_far.map(Response::describe).unwrap_or_default()
                )
            })?;
        }
    }

    /// Waits until the oldest request that has no response yet is reset, and tells the code's name.
    pub(crate) fn reset(&mut self, client: &mut Client, deadline: Instant) -> Result<String, String> {
        let id = *self.asked.front().ok_or("nothing was asked")?;
        loop {
            if let Some(stream) = self.streams.get(&id) {
                if let Some(code) = stream.reset {
                    self.asked.pop_front();
                    self.streams.remove(&id);
                    return Ok(name_of(code));
                }
                if stream.has_ended {
                    let response = stream.response.as_ref().map(Response::describe).unwrap_or_default();
                    return Err(format!("stream {id} ended in order\n{response}"));
                }
            }
            self.more(client, deadline)?;
        }
    }

    /// Waits for a GOAWAY.
    pub(crate) fn goodbye(&mut self, client: &mut Client, deadline: Instant) -> Result<Goodbye, String> {
        loop {
            if let Some(goodbye) = self.goodbyes.pop_front() {
                return Ok(goodbye);
            }
            self.more(client, deadline)?;
        }
    }

    /// What has come and was not expected: for the end of a transcript.
    pub(crate) fn unexpected(&self) -> Option<String> {
        let answered = |id: &&u32| {
            self.streams.get(*id).is_some_and(|stream| stream.response.is_some() || stream.reset.is_some())
        };
        let rest = self.asked.iter().filter(answered).count();
        (rest > 0).then(|| format!("{rest} streams were answered and not looked at"))
    }

    /// Reads one frame more.
    fn more(&mut self, client: &mut Client, deadline: Instant) -> Result<(), String> {
        loop {
            if let Some((header, rest)) = client.received.split_first_chunk::<9>() {
                let [a, b, c, kind, flags, s0, s1, s2, s3] = *header;
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                let stream = u32::from_be_bytes([s0, s1, s2, s3]);
                if length > 16_384 || s0 & 0x80 != 0 {
                    return Err(format!("a frame of {length} bytes on stream {stream:#x}"));
                }
                if let Some(payload) = rest.get(..length) {
                    let payload = payload.to_vec();
                    client.received.drain(..9 + length);
                    return self.frame(client, kind, flags, stream, &payload);
                }
            }
            let filled = client.fill(deadline)?;
            if filled != Filled::More {
                return Err(format!("{filled:?} after {}", show(&client.received)));
            }
        }
    }

    fn frame(
        &mut self,
        client: &mut Client,
        kind: u8,
        flags: u8,
        id: u32,
        payload: &[u8],
    ) -> Result<(), String> {
        if self.block.as_ref().is_some_and(|(of, ..)| kind != CONTINUATION || *of != id) {
            return Err("a frame inside of a field block".to_owned());
        }
        let mut answer = Vec::new();
        match kind {
            DATA => {
                let stream = self.stream(id)?;
                let response = stream.response.as_mut().ok_or("content before a head")?;
                response.body.extend_from_slice(payload);
                stream.has_ended |= flags & END_STREAM != 0;
                if !payload.is_empty() && self.options.window.is_none() {
                    let increment = (payload.len() as u32).to_be_bytes();
                    push_frame(&mut answer, WINDOW_UPDATE, 0, 0, &increment);
                    if flags & END_STREAM == 0 {
                        push_frame(&mut answer, WINDOW_UPDATE, 0, id, &increment);
                    }
                }
            }
            HEADERS => {
                self.block = Some((id, flags & END_STREAM != 0, payload.to_vec()));
                if flags & END_HEADERS != 0 {
                    self.head()?;
                }
            }
            CONTINUATION => {
                let (_, _, block) = self.block.as_mut().ok_or("CONTINUATION out of place")?;
                block.extend_from_slice(payload);
                if flags & END_HEADERS != 0 {
                    self.head()?;
                }
            }
            RST_STREAM => {
                let code = number(payload)?;
                self.windows.stopped.insert(id);
                // Behind the end of a response it tells the client to send no more.
                if let Some(stream) = self.streams.get_mut(&id)
                    && !stream.has_ended
                {
                    stream.reset = Some(code);
                } else if self.asked.contains(&id) && !self.streams.contains_key(&id) {
                    self.stream(id)?.reset = Some(code);
                }
            }
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6).filter(|setting| setting.starts_with(&[0, 4])) {
                    self.windows.initial = number(&setting[2..])?.into();
                }
                if !self.options.is_silent {
                    push_frame(&mut answer, SETTINGS, ACK, 0, b"");
                }
            }
            WINDOW_UPDATE if id == 0 => self.windows.connection += i64::from(number(payload)?),
            WINDOW_UPDATE => *self.windows.changes.entry(id).or_default() += i64::from(number(payload)?),
            PING if flags & ACK == 0 && !self.options.is_silent => {
                push_frame(&mut answer, PING, ACK, 0, payload)
            }
            PING => self.windows.pings += u64::from(flags & ACK != 0),
            GOAWAY => {
                let code = name_of(number(payload.get(4..).unwrap_or_default())?);
                self.goodbyes.push_back(Goodbye { code, last: number(payload)? });
            }
            PUSH_PROMISE => return Err("a push, which was not allowed".to_owned()),
            _ => {}
        }
        if answer.is_empty() { Ok(()) } else { client.send(&answer) }
    }

    fn stream(&mut self, id: u32) -> Result<&mut Stream, String> {
        if id.is_multiple_of(2) {
            return Err(format!("a frame on stream {id}, which nobody has opened"));
        }
        Ok(self.streams.entry(id).or_default())
    }

    fn head(&mut self) -> Result<(), String> {
        let (id, is_end, block) = self.block.take().ok_or("no field block")?;
        let decoded = self.decoder.decode(&block).map_err(|error| format!("a field block: {error:?}"))?;
        let mut fields = Fields::new();
        let mut status = None;
        for (name, value) in decoded {
            let name = String::from_utf8(name).map_err(|_| "a name that is not text")?;
            let value = String::from_utf8_lossy(&value).into_owned();
            if name.chars().any(|c| c.is_ascii_uppercase() || c.is_ascii_control()) {
                return Err(format!("a field name in upper case: {name}"));
            }
            if ["connection", "keep-alive", "transfer-encoding", "upgrade"].contains(&name.as_str()) {
                return Err(format!("a field of HTTP/1: {name}"));
            }
            match name.as_str() {
                ":status" if status.is_none() && fields.is_empty() => status = Some(value),
                _ if name.starts_with(':') => return Err(format!("{name} out of place")),
                _ => fields.push((name, value)),
            }
        }
        let stream = self.stream(id)?;
        match (&mut stream.response, status) {
            (Some(response), None) if is_end => response.trailers = fields,
            (None, Some(status)) => {
                let status: u16 = status.parse().map_err(|_| format!("`{status}` is no status"))?;
                let response =
                    Response { version: "HTTP/2".to_owned(), status, fields, ..Response::default() };
                if status < 200 {
                    stream.interim.push_back(response);
                    return if is_end { Err("an interim response that ends".to_owned()) } else { Ok(()) };
                }
                stream.response = Some(response);
            }
            _ => return Err(format!("a field section out of place on stream {id}")),
        }
        stream.has_ended |= is_end;
        Ok(())
    }
}

/// Appends a frame.
pub(crate) fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice((payload.len() as u32).to_be_bytes().get(1..).unwrap_or_default());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The number of a frame's type, by its name.
pub(crate) fn kind_of(name: &str) -> Option<u8> {
    let names = [
        "DATA",
        "HEADERS",
        "PRIORITY",
        "RST_STREAM",
        "SETTINGS",
        "PUSH_PROMISE",
        "PING",
        "GOAWAY",
        "WINDOW_UPDATE",
        "CONTINUATION",
    ];
    names.iter().position(|of| *of == name).map(|at| at as u8).or_else(|| name.parse().ok())
}

fn number(payload: &[u8]) -> Result<u32, String> {
    let bytes = payload.first_chunk::<4>().ok_or("a frame that is too short")?;
    Ok(u32::from_be_bytes(*bytes))
}

pub(crate) fn name_of(code: u32) -> String {
    let names = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    names.get(code as usize).map_or_else(|| code.to_string(), |name| (*name).to_owned())
}
