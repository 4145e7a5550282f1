//! Frames (RFC 9113 section 4): the nine bytes before each, and the names of what they carry.

use std::fmt;

/// Bytes before the payload of each frame.
pub const FRAME_HEADER: usize = 9;

/// The largest payload that every endpoint takes, and that we take (section 4.2).
pub const MAX_FRAME_SIZE: usize = 16_384;

/// The type of a frame. Unknown ones are ignored (section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameKind(
    /// As on the wire.
    pub u8,
);

impl FrameKind {
    /// Content.
    pub const DATA: FrameKind = FrameKind(0x0);
    /// Beginning of a field block.
    pub const HEADERS: FrameKind = FrameKind(0x1);
    /// The priority scheme of RFC 7540, which nobody follows any more.
    pub const PRIORITY: FrameKind = FrameKind(0x2);
    /// End of a stream by error.
    pub const RST_STREAM: FrameKind = FrameKind(0x3);
    /// Settings, or their acknowledgement.
    pub const SETTINGS: FrameKind = FrameKind(0x4);
    /// A pushed request.
    pub const PUSH_PROMISE: FrameKind = FrameKind(0x5);
    /// Measures the round trip.
    pub const PING: FrameKind = FrameKind(0x6);
    /// No further streams.
    pub const GOAWAY: FrameKind = FrameKind(0x7);
    /// Room for more content.
    pub const WINDOW_UPDATE: FrameKind = FrameKind(0x8);
    /// More of a field block.
    pub const CONTINUATION: FrameKind = FrameKind(0x9);
    /// A stream's priority (RFC 9218 section 7).
    pub const PRIORITY_UPDATE: FrameKind = FrameKind(0x10);
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            FrameKind::DATA => "DATA",
            FrameKind::HEADERS => "HEADERS",
            FrameKind::PRIORITY => "PRIORITY",
            FrameKind::RST_STREAM => "RST_STREAM",
            FrameKind::SETTINGS => "SETTINGS",
            FrameKind::PUSH_PROMISE => "PUSH_PROMISE",
            FrameKind::PING => "PING",
            FrameKind::GOAWAY => "GOAWAY",
            FrameKind::WINDOW_UPDATE => "WINDOW_UPDATE",
            FrameKind::CONTINUATION => "CONTINUATION",
            FrameKind::PRIORITY_UPDATE => "PRIORITY_UPDATE",
            FrameKind(other) => return write!(f, "unknown ({other:#x})"),
        })
    }
}

/// Flags of frames. A flag that a type does not define is ignored (section 4.1).
pub mod flag {
    /// On SETTINGS and PING: it answers one of ours.
    pub const ACK: u8 = 0x1;
    /// On DATA and HEADERS: the last of this direction.
    pub const END_STREAM: u8 = 0x1;
    /// On HEADERS and CONTINUATION: the field block is complete.
    pub const END_HEADERS: u8 = 0x4;
    /// On DATA and HEADERS: padding follows, its length comes first.
    pub const PADDED: u8 = 0x8;
    /// On HEADERS: five bytes of the old priority scheme come first.
    pub const PRIORITY: u8 = 0x20;
}

/// What stands before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload.
    pub length: usize,
    /// Type.
    pub kind: FrameKind,
    /// See [`flag`].
    pub flags: u8,
    /// 31 bits; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads one; `None` until nine bytes are there. The reserved bit is ignored (section 4.1).
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<FrameHeader> {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *bytes.first_chunk::<FRAME_HEADER>()?;
        Some(FrameHeader {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind: FrameKind(kind),
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        })
    }

    /// As it is sent. The length has at most 24 bits.
    #[inline]
    pub fn encode(self) -> [u8; FRAME_HEADER] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind.0, self.flags, s0, s1, s2, s3]
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame with a payload that is there already.
#[inline]
pub fn push_frame(out: &mut Vec<u8>, kind: FrameKind, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHeader { length: payload.len(), kind, flags, stream }.encode());
    out.extend_from_slice(payload);
}

/// Appends a WINDOW_UPDATE.
pub(super) fn push_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    push_frame(out, FrameKind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends a RST_STREAM.
pub(super) fn push_reset(out: &mut Vec<u8>, stream: u32, code: u32) {
    push_frame(out, FrameKind::RST_STREAM, 0, stream, &code.to_be_bytes());
}

/// The payload between its padding (section 6.1); `None` if there is no room for it.
pub(super) fn unpadded(header: FrameHeader, payload: &[u8]) -> Option<&[u8]> {
    if !header.has(flag::PADDED) {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}
