//! An application that speaks HTTP/2 without TLS (h2c), many requests at once on a connection.
//!
//! Faults stay on their stream: what one client has asked for must not be felt by others on the connection.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Incoming, PATIENCE, Reset, STALL, Stop, Upload, trailer};
use crate::random::content;
use crate::random::findings::Findings;
use crate::random::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_MAX, Frame, GOAWAY, HEADERS, PING, PREFACE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, Windows, push_frame, push_reset, push_window_update, take_frame,
};
use crate::random::plan::{AnswerPlan, Ending};
use crate::random::socket::Got;

const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

struct Stream {
    plan: AnswerPlan,
    upload: Upload,
    is_asked: bool,
    has_head: bool,
    sent: u64,
    /// When it goes on.
    due: Instant,
}

struct Connection<'a, 'b> {
    incoming: &'a mut Incoming,
    decoder: fluke_hpack::Decoder<'b>,
    encoder: fluke_hpack::Encoder<'b>,
    windows: Windows,
    streams: BTreeMap<u32, Stream>,
    /// A field block that is not complete.
    block: Option<(u32, bool, Vec<u8>)>,
    out: Vec<u8>,
}

pub(super) fn serve(incoming: &mut Incoming, _: &Findings) -> Result<Option<Reset>, Stop> {
    if incoming.take(PREFACE.len())? != PREFACE {
        return Err(Stop::Fault("no preface of HTTP/2".to_owned()));
    }
    let mut connection = Connection {
        incoming,
        decoder: fluke_hpack::Decoder::new(),
        encoder: fluke_hpack::Encoder::new(),
        windows: Windows::new(),
        streams: BTreeMap::new(),
        block: None,
        out: Vec::new(),
    };
    push_frame(&mut connection.out, SETTINGS, 0, 0, &[]);
    let mut quiet_since = Instant::now();
    loop {
        let next_due = connection.answer();
        let out = std::mem::take(&mut connection.out);
        if !out.is_empty() {
            connection.incoming.write(&out)?;
            quiet_since = Instant::now();
        }
        let patience =
            next_due.map_or(Duration::from_secs(1), |due| due.saturating_duration_since(Instant::now()));
        let mut piece = [0; 65_536];
        match connection.incoming.socket.read(&mut piece, patience) {
            Got::Bytes(count) => {
                connection.incoming.buffer.extend_from_slice(&piece[..count]);
                quiet_since = Instant::now();
            }
            Got::End | Got::Reset => return Err(Stop::Gone),
            Got::Nothing if quiet_since.elapsed() > PATIENCE => return Err(Stop::Gone),
            Got::Nothing => {}
        }
        while let Some(frame) = take_frame(&mut connection.incoming.buffer).map_err(Stop::Fault)? {
            if frame.kind == GOAWAY && connection.streams.is_empty() {
                return Ok(None);
            }
            connection.take(&frame)?;
        }
    }
}

impl Connection<'_, '_> {
    fn take(&mut self, frame: &Frame) -> Result<(), Stop> {
        match frame.kind {
            HEADERS => {
                self.block = Some((frame.stream, frame.is_end(), frame.payload.clone()));
                self.head(frame)?;
            }
            CONTINUATION => {
                let block =
                    self.block.as_mut().ok_or_else(|| Stop::Fault("CONTINUATION out of place".to_owned()))?;
                block.2.extend_from_slice(&frame.payload);
                self.head(frame)?;
            }
            DATA => {
                if !frame.payload.is_empty() {
                    push_window_update(&mut self.out, 0, frame.payload.len() as u32);
                }
                if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    stream.upload.take(&frame.payload)?;
                    if frame.is_end() {
                        stream.upload.end()?;
                        stream.is_asked = true;
                    } else if !frame.payload.is_empty() {
                        push_window_update(&mut self.out, frame.stream, frame.payload.len() as u32);
                    }
                }
            }
            RST_STREAM => self.close(frame.stream),
            SETTINGS if frame.flags & ACK == 0 => {
                self.windows.learn(frame).map_err(Stop::Fault)?;
                push_frame(&mut self.out, SETTINGS, ACK, 0, &[]);
            }
            WINDOW_UPDATE => self.windows.learn(frame).map_err(Stop::Fault)?,
            PING if frame.flags & ACK == 0 => push_frame(&mut self.out, PING, ACK, 0, &frame.payload),
            _ => {}
        }
        Ok(())
    }

    fn head(&mut self, frame: &Frame) -> Result<(), Stop> {
        if frame.flags & END_HEADERS == 0 {
            return Ok(());
        }
        let Some((id, is_end, block)) = self.block.take() else { return Ok(()) };
        let fields =
            self.decoder.decode(&block).map_err(|error| Stop::Fault(format!("a field block: {error:?}")))?;
        if let Some(stream) = self.streams.get_mut(&id) {
            for (name, value) in &fields {
                trailer(&stream.plan, &String::from_utf8_lossy(name), &String::from_utf8_lossy(value))?;
            }
            stream.is_asked = true;
            return stream.upload.end();
        }
        if fields.iter().any(|(name, _)| name == b"x-end") {
            return Err(Stop::Fault("a trailer in the head of a request".to_owned()));
        }
        let path = fields.iter().find(|(name, _)| name == b":path").map(|(_, value)| value.clone());
        let path = path.ok_or_else(|| Stop::Fault("a request without :path".to_owned()))?;
        let plan = AnswerPlan::parse(&String::from_utf8_lossy(&path)).map_err(Stop::Fault)?;
        let upload = Upload::of(&plan);
        if is_end {
            upload.end()?;
        }
        let due = Instant::now() + plan.delay;
        self.windows.open(id);
        self.streams.insert(id, Stream { plan, upload, is_asked: is_end, has_head: false, sent: 0, due });
        Ok(())
    }

    fn close(&mut self, id: u32) {
        self.streams.remove(&id);
        self.windows.close(id);
    }

    /// Writes what is due; when something is due next.
    fn answer(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let ids: Vec<u32> =
            self.streams.iter().filter(|(_, stream)| stream.is_asked).map(|(id, _)| *id).collect();
        for id in ids {
            if self.streams.get(&id).is_some_and(|stream| stream.due <= now) {
                self.go_on(id, now);
            }
            if self.out.len() > 1 << 20 {
                return Some(now);
            }
        }
        let waiting = self.streams.iter().filter(|(_, stream)| stream.is_asked);
        // One whose window is closed goes on with a frame of the other side.
        waiting
            .filter(|(id, stream)| stream.due > now || self.windows.room(**id) > 0)
            .map(|(_, s)| s.due)
            .min()
    }

    fn go_on(&mut self, id: u32, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let plan = &stream.plan;
        match plan.ending {
            Ending::Silent => {
                push_reset(&mut self.out, id, INTERNAL_ERROR);
                return self.close(id);
            }
            Ending::Garbage => {
                let block = self.encoder.encode([(&b"x-status"[..], &b"none"[..])]);
                push_frame(&mut self.out, HEADERS, END_HEADERS | END_STREAM, id, &block);
                return self.close(id);
            }
            _ => {}
        }
        if !stream.has_head {
            stream.has_head = true;
            let (nonce, length) = (format!("{:x}", plan.nonce.0), plan.length.to_string());
            let mut fields = vec![(&b":status"[..], &b"200"[..]), (b"x-nonce", nonce.as_bytes())];
            if plan.framing == crate::random::plan::Framing::Length {
                fields.push((b"content-length", length.as_bytes()));
            }
            if plan.is_text {
                fields.push((b"content-type", b"text/plain"));
            }
            let block = self.encoder.encode(fields);
            push_frame(&mut self.out, HEADERS, END_HEADERS, id, &block);
        }
        let end = match plan.ending {
            Ending::Cut(at) | Ending::Reset(at) | Ending::Stall(at) => at.min(plan.length),
            _ => plan.length,
        };
        let (piece, pause) = plan.pace.unwrap_or((1 << 17, Duration::ZERO));
        let mut left = piece.min(end - stream.sent).min(self.windows.room(id));
        let mut data = Vec::new();
        while left > 0 {
            let count = left.min(FRAME_MAX as u64);
            data.clear();
            content::append(&mut data, plan.nonce, stream.sent, count);
            push_frame(&mut self.out, DATA, 0, id, &data);
            self.windows.sent(id, count);
            stream.sent += count;
            left -= count;
        }
        stream.due = now + pause;
        if stream.sent < end {
            return;
        }
        match plan.ending {
            Ending::Complete if plan.has_trailer => {
                let value = format!("{:x}", plan.nonce.0);
                let block = self.encoder.encode([(&b"x-end"[..], value.as_bytes())]);
                push_frame(&mut self.out, HEADERS, END_HEADERS | END_STREAM, id, &block);
            }
            Ending::Complete => push_frame(&mut self.out, DATA, END_STREAM, id, &[]),
            Ending::Reset(_) => push_reset(&mut self.out, id, CANCEL),
            Ending::Stall(at) if at != u64::MAX => {
                stream.plan.ending = Ending::Stall(u64::MAX);
                stream.plan.length = stream.sent;
                stream.due = now + STALL;
                return;
            }
            _ => push_reset(&mut self.out, id, INTERNAL_ERROR),
        }
        self.close(id);
    }
}
