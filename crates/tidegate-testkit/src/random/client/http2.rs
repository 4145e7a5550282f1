//! A client of HTTP/2: many requests at once, windows of its own, streams that it resets.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{Client, PATIENCE, limit_of};
use crate::random::answer::{AnswerCheck, Broken, End, RequestLimit};
use crate::random::content::{self, Nonce};
use crate::random::findings::Invariant;
use crate::random::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_MAX, Frame, GOAWAY, HEADERS, PING, PREFACE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, Windows, name_of, push_frame, push_reset, push_window_update,
    take_frame,
};
use crate::random::pause::rest;
use crate::random::session::{Batch, ClientBehaviour, Request};
use crate::random::socket::{Got, Socket};

const CANCEL: u32 = 8;
/// Streams of one connection that a client resets at most: more is a flood, which the server may end.
const RESETS: u32 = 60;

struct Stream {
    check: AnswerCheck,
    limit: Option<RequestLimit>,
    has_head: bool,
    /// What is still to be sent.
    upload: Option<(Nonce, u64, u64)>,
    /// What follows it.
    trailer: Option<Nonce>,
    /// Content of the answer since the window was opened last.
    unreleased: u32,
    /// It is reset behind so many bytes.
    resets_after: Option<u64>,
}

struct Connection<'b> {
    socket: Socket,
    buffer: Vec<u8>,
    decoder: fluke_hpack::Decoder<'b>,
    encoder: fluke_hpack::Encoder<'b>,
    windows: Windows,
    streams: BTreeMap<u32, Stream>,
    next: u32,
    block: Option<(u32, bool, Vec<u8>)>,
    out: Vec<u8>,
    unreleased: u32,
    read: u64,
    resets: u32,
    goaway: Option<(u32, u32)>,
    /// Frames of content that came, and updates of windows that were sent.
    frames: u64,
    updates: u64,
}

pub(super) fn play(client: &mut Client<'_>) -> Result<(), Broken> {
    let mut connection: Option<Connection<'_>> = None;
    let session = client.session;
    for batch in &session.batches {
        if client.is_over() {
            break;
        }
        let mut current = match connection.take().filter(|old| old.goaway.is_none()) {
            Some(old) => old,
            None => match client.connect()? {
                Some(socket) => begin(socket, session.window),
                None => return Ok(()),
            },
        };
        if play_batch(client, &mut current, batch)? {
            connection = Some(current);
        } else if matches!(
            batch.conduct,
            ClientBehaviour::Abort { is_reset: true, .. } | ClientBehaviour::Unfinished { is_reset: true }
        ) {
            current.socket.reset();
        }
        client.rest(batch.gap);
    }
    Ok(())
}

fn begin<'b>(socket: Socket, window: u32) -> Connection<'b> {
    let mut out = PREFACE.to_vec();
    let mut settings = vec![0, 2, 0, 0, 0, 0, 0, 4];
    settings.extend_from_slice(&window.to_be_bytes());
    push_frame(&mut out, SETTINGS, 0, 0, &settings);
    if window > 65_535 {
        push_window_update(&mut out, 0, window - 65_535);
    }
    Connection {
        socket,
        buffer: Vec::new(),
        decoder: fluke_hpack::Decoder::new(),
        encoder: fluke_hpack::Encoder::new(),
        windows: Windows::new(),
        streams: BTreeMap::new(),
        next: 1,
        block: None,
        out,
        unreleased: 0,
        read: 0,
        resets: 0,
        goaway: None,
        frames: 0,
        updates: 0,
    }
}

/// Whether the connection stays.
fn play_batch(
    client: &mut Client<'_>,
    connection: &mut Connection<'_>,
    batch: &Batch,
) -> Result<bool, Broken> {
    connection.read = 0;
    // An idle connection may have been closed in the gap.
    let may_be_gone = connection.next > 1;
    // All at once, or more and more while answers come.
    let mut random = client.session.random.fork(u64::from(connection.next));
    let at_once = if random.chance(50) { batch.requests.len() } else { random.size(8) as usize + 1 };
    let mut requests = batch.requests.iter();
    for request in requests.by_ref().take(at_once) {
        ask(client, connection, batch, request);
    }
    if matches!(batch.conduct, ClientBehaviour::Unfinished { .. }) {
        let end = connection.out.len() * 2 / 3;
        let _ = connection.socket.write(&connection.out[..end]);
        return Ok(false);
    }
    let began = Instant::now();
    let mut waits_since = began;
    let mut has_paused = false;
    if let ClientBehaviour::NeverRead { time } = batch.conduct {
        requests.by_ref().for_each(|request| ask(client, connection, batch, request));
        let out = std::mem::take(&mut connection.out);
        let _ = connection.socket.write(&out);
        client.rest(time);
        return Ok(false);
    }
    loop {
        // Nothing more is asked for on a connection that is about to end.
        if connection.goaway.is_none() {
            let least = u64::from(connection.streams.is_empty());
            for request in requests.by_ref().take(random.between(least, 2) as usize) {
                ask(client, connection, batch, request);
            }
        }
        if connection.streams.is_empty() && (connection.goaway.is_some() || requests.len() == 0) {
            break;
        }
        connection.send_uploads();
        let out = std::mem::take(&mut connection.out);
        if !out.is_empty() && connection.socket.write(&out).is_err() {
            client.note("cannot send".to_owned());
        }
        let mut piece = [0; 65_536];
        let most = match batch.conduct {
            ClientBehaviour::Slow { time, .. } if began.elapsed() > time => return Ok(false),
            ClientBehaviour::Slow { bytes, pause, .. } => {
                rest(pause);
                bytes.min(piece.len())
            }
            ClientBehaviour::Pause { after, time } if connection.read >= after && !has_paused => {
                has_paused = true;
                client.note(format!("reads nothing for {time:?}"));
                client.rest(time);
                piece.len()
            }
            ClientBehaviour::Abort { after, .. } if connection.read >= after => return Ok(false),
            _ => piece.len(),
        };
        let (socket, piece) = (&mut connection.socket, &mut piece[..most]);
        let got = match batch.conduct {
            ClientBehaviour::Slow { .. } => socket.read_full(piece, Duration::from_secs(1)),
            _ => socket.read(piece, Duration::from_secs(1)),
        };
        match got {
            Got::Bytes(count) => {
                connection.read += count as u64;
                connection.buffer.extend_from_slice(&piece[..count]);
                waits_since = Instant::now();
            }
            end @ (Got::End | Got::Reset) => {
                let how = if end == Got::End { "closed" } else { "reset" };
                client.note(format!("the connection was {how}"));
                if may_be_gone && connection.read == 0 {
                    return Ok(false);
                }
                connection.lost(client, how)?;
                return Ok(false);
            }
            Got::Nothing if client.is_over() => return Ok(false),
            Got::Nothing if waits_since.elapsed() > PATIENCE => {
                let text =
                    format!("nothing for {PATIENCE:?} when {} answers were due", connection.streams.len());
                return Err((Invariant::Service, text));
            }
            Got::Nothing => {}
        }
        while let Some(frame) =
            take_frame(&mut connection.buffer).map_err(|text| (Invariant::Answer, text))?
        {
            connection.take(client, &frame)?;
        }
        if client.is_over() {
            return Ok(false);
        }
    }
    let out = std::mem::take(&mut connection.out);
    Ok(connection.socket.write(&out).is_ok())
}

fn ask(client: &mut Client<'_>, connection: &mut Connection<'_>, batch: &Batch, request: &Request) {
    let id = connection.next;
    connection.next += 2;
    client.asks(request);
    client.note(format!("> {id}: {} {} ({:?})", request.method, request.target, batch.conduct));
    let scheme = if client.shared.is_tls[client.session.listener] { "https" } else { "http" };
    let length = request.upload.map(|(_, length)| length.to_string());
    let mut fields = vec![
        (":method", request.method),
        (":scheme", scheme),
        (":authority", &request.host),
        (":path", &request.target),
    ];
    if let Some(length) = length.as_deref().filter(|_| !request.is_chunked) {
        fields.push(("content-length", length));
    }
    let more: Vec<(String, &str)> =
        request.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_str())).collect();
    fields.extend(more.iter().map(|(name, value)| (name.as_str(), *value)));
    let block =
        connection.encoder.encode(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let end = if request.upload.is_none() { END_STREAM } else { 0 };
    push_frame(&mut connection.out, HEADERS, END_HEADERS | end, id, &block);
    let mut resets_after = None;
    if let ClientBehaviour::ResetStreams { percent } = batch.conduct
        && u64::from(id / 2 * 37 % 100) < percent
        && connection.resets < RESETS
    {
        connection.resets += 1;
        // Some before anything can have come, some within the answer.
        match id / 2 % 3 {
            0 => push_reset(&mut connection.out, id, CANCEL),
            1 => resets_after = Some(0),
            _ => resets_after = Some(u64::from(id) * 1000),
        }
        if resets_after.is_none() {
            return;
        }
    }
    let is_slow = matches!(batch.conduct, ClientBehaviour::Slow { .. } | ClientBehaviour::Pause { .. });
    let excuse = client.excuse(batch);
    connection.windows.open(id);
    connection.streams.insert(
        id,
        Stream {
            check: AnswerCheck::new(request, excuse, is_slow),
            limit: limit_of(request),
            has_head: false,
            upload: request.upload.map(|(nonce, length)| (nonce, 0, length)),
            trailer: request.trailer,
            unreleased: 0,
            resets_after,
        },
    );
}

impl Connection<'_> {
    /// Sends of what goes with requests what the windows take.
    fn send_uploads(&mut self) {
        let mut data = Vec::new();
        for (id, stream) in &mut self.streams {
            while let Some((nonce, sent, length)) = stream.upload {
                let count = (length - sent).min(self.windows.room(*id)).min(FRAME_MAX as u64);
                if (count == 0 && sent < length) || self.out.len() > 1 << 18 {
                    break;
                }
                data.clear();
                content::append(&mut data, nonce, sent, count);
                self.windows.sent(*id, count);
                let is_end = sent + count == length;
                let flags = if is_end && stream.trailer.is_none() { END_STREAM } else { 0 };
                push_frame(&mut self.out, DATA, flags, *id, &data);
                if let Some(nonce) = stream.trailer.filter(|_| is_end) {
                    let value = format!("{:x}", nonce.0);
                    let block = self.encoder.encode([(&b"x-end"[..], value.as_bytes())]);
                    push_frame(&mut self.out, HEADERS, END_HEADERS | END_STREAM, *id, &block);
                }
                stream.upload = (!is_end).then_some((nonce, sent + count, length));
            }
        }
    }

    fn take(&mut self, client: &mut Client<'_>, frame: &Frame) -> Result<(), Broken> {
        let broken = |text: &str| (Invariant::Answer, format!("{text}: {frame:?}"));
        if self.block.as_ref().is_some_and(|(of, ..)| frame.kind != CONTINUATION || *of != frame.stream) {
            return Err(broken("a frame inside of a field block"));
        }
        if frame.stream.is_multiple_of(2) && frame.stream != 0 || frame.stream >= self.next {
            return Err(broken("a frame on a stream that was never opened"));
        }
        match frame.kind {
            HEADERS => {
                self.block = Some((frame.stream, frame.is_end(), frame.payload.clone()));
                self.head(client, frame)?;
            }
            CONTINUATION => {
                self.block
                    .as_mut()
                    .ok_or_else(|| broken("CONTINUATION out of place"))?
                    .2
                    .extend_from_slice(&frame.payload);
                self.head(client, frame)?;
            }
            DATA => self.data(client, frame)?,
            RST_STREAM => {
                let code = frame.number(0).map_err(|text| (Invariant::Answer, text))?;
                if let Some(mut stream) = self.streams.remove(&frame.stream) {
                    self.windows.close(frame.stream);
                    client.note(format!("< {}: reset with {}", frame.stream, name_of(code)));
                    stream.check.end(End::Cut(&format!("reset with {}", name_of(code))))?;
                }
            }
            SETTINGS if frame.flags & ACK == 0 => {
                self.windows.learn(frame).map_err(|text| (Invariant::Answer, text))?;
                push_frame(&mut self.out, SETTINGS, ACK, 0, &[]);
            }
            WINDOW_UPDATE => self.windows.learn(frame).map_err(|text| (Invariant::Answer, text))?,
            PING if frame.flags & ACK == 0 => push_frame(&mut self.out, PING, ACK, 0, &frame.payload),
            GOAWAY => {
                let last = frame.number(0).map_err(|text| (Invariant::Answer, text))?;
                let code = frame.number(4).map_err(|text| (Invariant::Answer, text))?;
                client.note(format!(
                    "< GOAWAY {last} {}, behind {} frames of content and {} updates of windows of {} bytes",
                    name_of(code),
                    self.frames,
                    self.updates,
                    client.session.window
                ));
                self.goaway = Some((last, code));
                // What was not looked at may be asked again elsewhere.
                self.streams.retain(|id, _| code != 0 || *id <= last);
            }
            _ => {}
        }
        Ok(())
    }

    fn head(&mut self, client: &mut Client<'_>, frame: &Frame) -> Result<(), Broken> {
        if frame.flags & END_HEADERS == 0 {
            return Ok(());
        }
        let Some((id, is_end, block)) = self.block.take() else { return Ok(()) };
        let decoded = self
            .decoder
            .decode(&block)
            .map_err(|error| (Invariant::Answer, format!("a field block: {error:?}")))?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields: Vec<(String, String)> =
            decoded.iter().map(|(name, value)| (text(name), text(value))).collect();
        let status = fields.iter().find(|(name, _)| name == ":status").map(|(_, value)| value.clone());
        match status.map(|status| status.parse::<u16>()) {
            Some(Ok(status)) if status < 200 => return Ok(()),
            Some(Ok(status)) if !stream.has_head => {
                stream.has_head = true;
                client.note(format!("< {id}: {status}"));
                client.hears(stream.limit, status)?;
                stream.check.head(status, &fields)?;
            }
            None if stream.has_head && is_end => stream.check.trailers(&fields)?,
            other => return Err((Invariant::Answer, format!("status {other:?} on stream {id}: {fields:?}"))),
        }
        if is_end {
            self.finish(client, id)?;
        }
        Ok(())
    }

    fn data(&mut self, client: &mut Client<'_>, frame: &Frame) -> Result<(), Broken> {
        let (id, length) = (frame.stream, frame.payload.len() as u32);
        self.unreleased += length;
        self.frames += 1;
        // A quarter of the smallest window: late enough to save frames, early enough never to close it.
        if self.unreleased >= 16_384 {
            push_window_update(&mut self.out, 0, self.unreleased);
            self.updates += 1;
            self.unreleased = 0;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if !stream.has_head {
            return Err((Invariant::Answer, format!("content before the head on stream {id}")));
        }
        stream.check.data(&frame.payload)?;
        stream.unreleased += length;
        if let Some(after) = stream.resets_after
            && stream.check.received() >= after
            && !frame.is_end()
        {
            push_reset(&mut self.out, id, CANCEL);
            self.streams.remove(&id);
            self.windows.close(id);
            return Ok(());
        }
        if frame.is_end() {
            return self.finish(client, id);
        }
        if stream.unreleased >= client.session.window.min(32_768) / 2 {
            push_window_update(&mut self.out, id, stream.unreleased);
            self.updates += 1;
            stream.unreleased = 0;
        }
        Ok(())
    }

    /// An answer is complete.
    fn finish(&mut self, client: &mut Client<'_>, id: u32) -> Result<(), Broken> {
        if let Some(mut stream) = self.streams.remove(&id) {
            self.windows.close(id);
            client.shared.tally.answers.fetch_add(1, Relaxed);
            client.shared.tally.bytes.fetch_add(stream.check.received(), Relaxed);
            stream.check.end(End::Complete)?;
        }
        Ok(())
    }

    /// The connection has ended with streams open.
    fn lost(&mut self, client: &mut Client<'_>, how: &str) -> Result<(), Broken> {
        let said = self
            .goaway
            .map_or_else(String::new, |(last, code)| format!(" behind GOAWAY {last} {}", name_of(code)));
        for (id, mut stream) in std::mem::take(&mut self.streams) {
            client.note(format!("{id} had {} bytes of content", stream.check.received()));
            stream.check.end(End::Cut(&format!("the connection was {how}{said}")))?;
        }
        Ok(())
    }
}
