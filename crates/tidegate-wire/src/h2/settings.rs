//! Settings (RFC 9113 section 6.5, RFC 8441 section 3, RFC 9218 section 2.1).

use super::error::ConnectionError;
use super::flow::{INITIAL_WINDOW, MAX_WINDOW};
use super::frame::MAX_FRAME_SIZE;
use super::hpack::TABLE_SIZE;

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE_SETTING: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// What a peer has told of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSettings {
    /// Bytes of the dynamic table that it keeps for what we send.
    pub header_table_size: u32,
    /// Streams that we may have open at once.
    pub max_concurrent_streams: u32,
    /// What we may send on a new stream.
    pub initial_window_size: u32,
    /// The largest payload of a frame.
    pub max_frame_size: u32,
    /// The largest field section, as it likes it.
    pub max_header_list_size: u32,
    /// It takes extended CONNECT (RFC 8441).
    pub enable_connect_protocol: bool,
    /// It does not follow the old priority scheme.
    pub no_rfc7540_priorities: bool,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings {
            header_table_size: TABLE_SIZE as u32,
            max_concurrent_streams: u32::MAX,
            initial_window_size: INITIAL_WINDOW,
            max_frame_size: MAX_FRAME_SIZE as u32,
            max_header_list_size: u32::MAX,
            enable_connect_protocol: false,
            no_rfc7540_priorities: false,
        }
    }
}

impl PeerSettings {
    /// Takes the payload of a SETTINGS frame, in order; `of_server` where a server sent it. Unknown settings
    /// are ignored.
    pub(super) fn take(&mut self, payload: &[u8], of_server: bool) -> Result<(), ConnectionError> {
        for entry in payload.as_chunks::<6>().0 {
            let [a, b, v0, v1, v2, v3] = *entry;
            let (id, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([v0, v1, v2, v3]));
            let invalid = ConnectionError::InvalidSetting(id);
            match id {
                HEADER_TABLE_SIZE => self.header_table_size = value,
                ENABLE_PUSH if value > 1 || (of_server && value == 1) => return Err(invalid),
                MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
                INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(ConnectionError::InitialWindowTooLarge);
                }
                INITIAL_WINDOW_SIZE => self.initial_window_size = value,
                MAX_FRAME_SIZE_SETTING => {
                    if !(MAX_FRAME_SIZE as u32..1 << 24).contains(&value) {
                        return Err(invalid);
                    }
                    self.max_frame_size = value;
                }
                MAX_HEADER_LIST_SIZE => self.max_header_list_size = value,
                ENABLE_CONNECT_PROTOCOL => {
                    // What was once allowed cannot be taken back (RFC 8441 section 3).
                    if value > 1 || (value == 0 && self.enable_connect_protocol) {
                        return Err(invalid);
                    }
                    self.enable_connect_protocol = value == 1;
                }
                NO_RFC7540_PRIORITIES if value > 1 => return Err(invalid),
                NO_RFC7540_PRIORITIES => self.no_rfc7540_priorities = value == 1,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends one setting.
fn push(payload: &mut Vec<u8>, id: u16, value: u32) {
    payload.extend_from_slice(&id.to_be_bytes());
    payload.extend_from_slice(&value.to_be_bytes());
}

/// What we say of ourselves. What is not here has its default value.
pub(super) fn own(limits: &super::Limits, is_server: bool) -> Vec<u8> {
    let mut payload = Vec::with_capacity(30);
    if is_server {
        push(&mut payload, MAX_CONCURRENT_STREAMS, limits.streams);
        push(&mut payload, NO_RFC7540_PRIORITIES, 1);
        if limits.extended_connect {
            push(&mut payload, ENABLE_CONNECT_PROTOCOL, 1);
        }
    } else {
        push(&mut payload, ENABLE_PUSH, 0);
    }
    if limits.stream_window != INITIAL_WINDOW {
        push(&mut payload, INITIAL_WINDOW_SIZE, limits.stream_window);
    }
    push(&mut payload, MAX_HEADER_LIST_SIZE, limits.head.head_size.min(u32::MAX as usize) as u32);
    payload
}
