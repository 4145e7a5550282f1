//! Frames of HTTP/2 and what both roles must know of windows, for the client and the application of a run.

use std::collections::BTreeMap;

pub(super) use crate::h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, name_of, push_frame,
};

/// What a client begins with.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest frame of a peer that was not allowed more.
pub(super) const FRAME_MAX: usize = 16_384;

const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// A frame as it came.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn is_end(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    /// The first four bytes as a number.
    pub(super) fn number(&self, at: usize) -> Result<u32, String> {
        let bytes = self.payload.get(at..at + 4).ok_or("a frame that is too short")?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// The pairs of a SETTINGS frame.
    pub(super) fn settings(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.payload.chunks_exact(6).map(|pair| {
            (u16::from_be_bytes([pair[0], pair[1]]), u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]))
        })
    }
}

/// Takes the first frame off the bytes, where it is complete.
pub(super) fn take_frame(bytes: &mut Vec<u8>) -> Result<Option<Frame>, String> {
    let Some((head, rest)) = bytes.split_first_chunk::<9>() else { return Ok(None) };
    let [a, b, c, kind, flags, s0, s1, s2, s3] = *head;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    if length > FRAME_MAX || s0 & 0x80 != 0 || kind > CONTINUATION {
        let shown = &bytes[..bytes.len().min(64)];
        return Err(format!(
            "a frame of type {kind}, {length} bytes, stream {stream:#x}: {:?}",
            String::from_utf8_lossy(shown)
        ));
    }
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    let mut payload = payload.to_vec();
    bytes.drain(..9 + length);
    if kind <= HEADERS && flags & PADDED != 0 {
        let padding = usize::from(*payload.first().ok_or("a padded frame without its length")?);
        let end =
            payload.len().checked_sub(padding).filter(|end| *end > 0).ok_or("more padding than frame")?;
        payload = payload[1..end].to_vec();
    }
    if kind == HEADERS && flags & PRIORITY != 0 {
        payload = payload.get(5..).ok_or("a priority that is too short")?.to_vec();
    }
    Ok(Some(Frame { kind, flags, stream, payload }))
}

/// The peer's windows: how much may be sent to it.
#[derive(Debug)]
pub(super) struct Windows {
    connection: i64,
    initial: i64,
    streams: BTreeMap<u32, i64>,
}

impl Windows {
    pub(super) fn new() -> Windows {
        Windows { connection: 65_535, initial: 65_535, streams: BTreeMap::new() }
    }

    pub(super) fn open(&mut self, stream: u32) {
        self.streams.insert(stream, self.initial);
    }

    pub(super) fn close(&mut self, stream: u32) {
        self.streams.remove(&stream);
    }

    /// Bytes that may be sent on the stream now.
    pub(super) fn room(&self, stream: u32) -> u64 {
        self.streams.get(&stream).map_or(0, |window| (*window).min(self.connection).max(0) as u64)
    }

    pub(super) fn sent(&mut self, stream: u32, count: u64) {
        self.connection -= count as i64;
        if let Some(window) = self.streams.get_mut(&stream) {
            *window -= count as i64;
        }
    }

    /// What a WINDOW_UPDATE or SETTINGS frame says.
    pub(super) fn learn(&mut self, frame: &Frame) -> Result<(), String> {
        if frame.kind == WINDOW_UPDATE {
            let more = i64::from(frame.number(0)? & 0x7fff_ffff);
            match frame.stream {
                0 => self.connection += more,
                stream => {
                    if let Some(window) = self.streams.get_mut(&stream) {
                        *window += more;
                    }
                }
            }
            return Ok(());
        }
        for (setting, value) in frame.settings().filter(|(setting, _)| *setting == 4) {
            debug_assert_eq!(setting, 4);
            let change = i64::from(value) - self.initial;
            self.initial += change;
            self.streams.values_mut().for_each(|window| *window += change);
        }
        Ok(())
    }
}

/// A WINDOW_UPDATE frame.
pub(super) fn push_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    push_frame(out, WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// A RST_STREAM frame.
pub(super) fn push_reset(out: &mut Vec<u8>, stream: u32, code: u32) {
    push_frame(out, RST_STREAM, 0, stream, &code.to_be_bytes());
}
