//! HTTP/2, both roles (RFC 9113), with HPACK (RFC 7541), priorities (RFC 9218) and extended CONNECT
//! (RFC 8441).
//!
//! The engine holds a [`Connection::server`] for each connection, the client a [`Connection::client`]. Both
//! call [`Connection::read`] with what came from the socket and write what was appended to their buffer; a
//! worker keeps one [`Section`] for all of its connections. Nothing here touches a socket or a clock, and
//! nothing that a peer sends may panic, grow without bound, or cost more than its size.
//!
//! The server role in short:
//!
//! ```
//! use tidegate_http::FieldLines;
//! use tidegate_wire::h1::FieldSpace;
//! use tidegate_wire::h2::{Connection, Event, FieldSource, Limits, RequestParts, ResponseParts, Section};
//!
//! # let lines = FieldLines::new();
//! # let (mut input, mut section) = (Vec::new(), Section::new());
//! # let mut client = Connection::client(Limits::default(), &mut input);
//! # let fields = FieldSource::Lines(&lines);
//! # let request = RequestParts { method: "GET", scheme: "http", authority: "a", target: "/b", protocol: None,
//! #     fields, content_length: None };
//! # client.send_request(&request, true, &mut input).unwrap();
//! let mut out = Vec::new();
//! let mut server = Connection::server(Limits::default(), &mut out);
//! let read = server.read(&input, 0, &mut section, &mut out).unwrap();
//! let Some(Event::Request { stream, is_end: true }) = read.event else { panic!() };
//! let mut space = FieldSpace::new();
//! assert_eq!(section.request(&mut space).target, "/b");
//! let response = ResponseParts { status: 200, date: None, server: None, fields, content_length: Some(2) };
//! server.send_response(stream, &response, false, &mut out);
//! assert_eq!(server.send_data(stream, b"hi", true, &mut out), 2);
//! ```

mod connection;
mod error;
mod field_kind;
mod flood;
mod flow;
mod frame;
pub mod hpack;
mod priority;
mod receive;
mod schedule;
mod section;
mod send;
mod settings;
mod streams;

pub use connection::{Connection, Event, Read};
pub use error::{ConnectionError, ErrorCode, Flood, Malformed, StreamError};
pub use field_kind::{FieldKind, Traits};
pub use flow::{INITIAL_WINDOW, MAX_WINDOW};
pub use frame::{FRAME_HEADER, FrameHeader, FrameKind, MAX_FRAME_SIZE, flag, push_frame};
pub use hpack::FieldBlock;
pub use priority::Priority;
pub use section::{RequestHead, ResponseHead, Section};
pub use send::{CannotOpen, FieldSource, RequestParts, ResponseParts};
pub use settings::PeerSettings;
pub use streams::StreamKey;

use crate::h1::HeadLimits;

/// The first bytes of a client (section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The most frames of one field block. The size of blocks is bounded as well; this bounds empty ones.
pub const MAX_BLOCK_FRAMES: u32 = 32;

/// What a peer may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of field sections. `head_size` is counted as section 6.5.2 counts: 32 bytes more for each field.
    pub head: HeadLimits,
    /// Streams that the peer may have open at once.
    pub streams: u32,
    /// Bytes of content that may wait to be consumed, over all streams; at least [`INITIAL_WINDOW`].
    pub connection_window: u32,
    /// The same for one stream; in the server role at least [`INITIAL_WINDOW`].
    pub stream_window: u32,
    /// Extended CONNECT is taken, and said to be (RFC 8441). Server role.
    pub extended_connect: bool,
}

impl Default for Limits {
    /// 128 streams; 64 KiB of content waiting on each, 1 MiB over all.
    fn default() -> Limits {
        Limits {
            head: HeadLimits::default(),
            streams: 128,
            connection_window: 1 << 20,
            stream_window: INITIAL_WINDOW,
            extended_connect: false,
        }
    }
}

impl Limits {
    /// A client may use the windows that it knows before it has read our settings, so they cannot be smaller. A server
    /// has read them before it sees a request.
    fn within_bounds(self, is_server: bool) -> Limits {
        let least_of_stream = if is_server { INITIAL_WINDOW } else { 1 };
        Limits {
            connection_window: self.connection_window.clamp(INITIAL_WINDOW, MAX_WINDOW),
            stream_window: self.stream_window.clamp(least_of_stream, MAX_WINDOW),
            ..self
        }
    }
}
