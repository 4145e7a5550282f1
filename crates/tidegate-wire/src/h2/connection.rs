//! One HTTP/2 connection: what both roles share, and the way from bytes to events (RFC 9113 sections 3 to 6).
//!
//! The caller feeds [`Connection::read`] until it says nothing more, writes what was appended to `out`, and
//! closes once [`Connection::is_over`]. Frames for single streams are in `receive`, sending in `send`.

use super::error::{ConnectionError, ErrorCode, Flood, StreamError};
use super::flood::{Floods, UNKNOWN_OF_A_SERVER};
use super::flow::{INITIAL_WINDOW, MAX_WINDOW, ReceiveWindow, SendWindow};
use super::frame::{
    FRAME_HEADER, FrameHeader, FrameKind, MAX_FRAME_SIZE, flag, push_frame, push_window_update,
};
use super::hpack::{Decoder, Encoder, TABLE_SIZE};
use super::priority::Priority;
use super::section::Section;
use super::settings::{self, PeerSettings};
use super::streams::{Stream, StreamKey, Streams};
use super::{Limits, PREFACE};
use std::collections::VecDeque;

/// What has happened, in the order of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'b> {
    /// A request's head is in the section. Server role.
    Request {
        /// New.
        stream: StreamKey,
        /// It has no content.
        is_end: bool,
    },
    /// A request that is over a limit, or expects the impossible: answer with this status. What there is of
    /// the head is in the section.
    Refused {
        /// New.
        stream: StreamKey,
        /// 413 to 501.
        status: u16,
        /// It has no content.
        is_end: bool,
    },
    /// A response's head is in the section. Client role.
    Response {
        /// Of the request.
        stream: StreamKey,
        /// It has no content.
        is_end: bool,
    },
    /// An interim response (1xx) is in the section; the final one follows.
    Interim {
        /// Of the request.
        stream: StreamKey,
    },
    /// Trailers are in the section. They end the stream.
    Trailers {
        /// Of the message.
        stream: StreamKey,
    },
    /// Content, to be given back by [`Connection::release`] once it is consumed.
    Data {
        /// Of the message.
        stream: StreamKey,
        /// May be empty at the end.
        data: &'b [u8],
        /// It was the last.
        is_end: bool,
    },
    /// The peer has reset the stream, which is gone.
    Reset {
        /// Gone.
        stream: StreamKey,
        /// Why.
        code: ErrorCode,
    },
    /// The peer broke a rule and the stream was reset, by us.
    Broken {
        /// Gone; `None` where no event had told of it.
        stream: Option<StreamKey>,
        /// Which rule.
        error: StreamError,
    },
    /// The peer takes no further streams; our requests above `last_stream` were not looked at and may be
    /// tried elsewhere.
    GoAway {
        /// The last one that was looked at.
        last_stream: u32,
        /// Why.
        code: ErrorCode,
    },
}

/// What became of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read<'b> {
    /// Bytes that are done with. What is left belongs to a frame that is not complete, or comes after the
    /// event.
    pub consumed: usize,
    /// `None`: more bytes are needed.
    pub event: Option<Event<'b>>,
}

/// How far we have said goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drain {
    No,
    /// Announced. Requests that were on their way are still taken.
    Announced,
    /// Requests above this stream are not taken.
    After(u32),
    /// The connection has failed.
    Failed,
}

/// A DATA frame of which not all has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenData {
    /// `None`: nobody wants it.
    pub stream: Option<StreamKey>,
    pub data: usize,
    pub padding: usize,
    pub is_end: bool,
}

/// A field block of which not all has come.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub stream: u32,
    pub is_end: bool,
    pub depends_on_itself: bool,
    pub frames: u32,
    pub bytes: Vec<u8>,
}

/// PRIORITY_UPDATE for streams that are still to come; more are forgotten.
pub(super) const EARLY_PRIORITIES: usize = 16;

/// The payload of the PING that measures whether requests may still be on their way.
const GOODBYE: [u8; 8] = *b"goodbye.";
/// The payload of the PING that asks whether the peer listens.
const ARE_YOU_THERE: [u8; 8] = *b"there?..";

/// One connection, either role. Owns no socket, reads no clock.
#[derive(Debug)]
pub struct Connection {
    pub(super) is_server: bool,
    pub(super) limits: Limits,
    pub(super) peer: PeerSettings,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) streams: Streams,
    pub(super) send_window: SendWindow,
    pub(super) receive_window: ReceiveWindow,
    pub(super) floods: Floods,
    /// The highest number that the peer has used.
    pub(super) last_peer: u32,
    /// The number of our next request.
    pub(super) next_own: u32,
    pub(super) data: Option<OpenData>,
    pub(super) block: Option<Box<OpenBlock>>,
    pub(super) early_priorities: VecDeque<(u32, Priority)>,
    pub(super) drain: Drain,
    /// The last of our requests that the peer will look at.
    pub(super) peer_goes_after: Option<u32>,
    pub(super) turn: u64,
    /// Bytes of the preface still to come.
    preface_left: usize,
    has_settings: bool,
    /// SETTINGS of ours that are not acknowledged.
    open_settings: u16,
}

impl Connection {
    /// The server's end: appends its preface. The client's is expected from the first byte on.
    pub fn server(limits: Limits, out: &mut Vec<u8>) -> Connection {
        Connection::new(limits, true, out)
    }

    /// The client's end: appends its preface.
    pub fn client(limits: Limits, out: &mut Vec<u8>) -> Connection {
        out.extend_from_slice(PREFACE);
        Connection::new(limits, false, out)
    }

    fn new(limits: Limits, is_server: bool, out: &mut Vec<u8>) -> Connection {
        let limits = limits.within_bounds(is_server);
        push_frame(out, FrameKind::SETTINGS, 0, 0, &settings::own(&limits, is_server));
        let mut receive_window = ReceiveWindow::new(INITIAL_WINDOW);
        receive_window.grow(limits.connection_window);
        let mut connection = Connection {
            is_server,
            limits,
            peer: PeerSettings::default(),
            decoder: Decoder::new(TABLE_SIZE),
            encoder: Encoder::new(),
            streams: Streams::default(),
            send_window: SendWindow::new(INITIAL_WINDOW),
            receive_window,
            floods: Floods::new(is_server),
            last_peer: 0,
            next_own: 1,
            data: None,
            block: None,
            early_priorities: VecDeque::new(),
            drain: Drain::No,
            peer_goes_after: None,
            turn: 0,
            preface_left: if is_server { PREFACE.len() } else { 0 },
            has_settings: false,
            open_settings: 1,
        };
        connection.give_back(out);
        connection
    }

    /// What the peer has told of itself.
    pub fn peer_settings(&self) -> &PeerSettings {
        &self.peer
    }

    /// Streams that are open.
    #[inline]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Nothing more will happen here: it has failed, or has said goodbye and all streams are done.
    pub fn is_over(&self) -> bool {
        match self.drain {
            Drain::Failed => true,
            Drain::After(_) => self.streams.len() == 0,
            Drain::No | Drain::Announced => false,
        }
    }

    /// No stream is open and no frame is half read.
    pub fn is_idle(&self) -> bool {
        self.streams.len() == 0 && self.data.is_none() && self.block.is_none()
    }

    /// A field block has begun and its end is still to come.
    pub fn is_inside_block(&self) -> bool {
        self.block.is_some()
    }

    /// Lets go of memory that a quiet connection does not need.
    pub fn relax(&mut self) {
        self.streams.relax();
    }

    /// Bytes of memory held, this value included.
    pub fn memory(&self) -> usize {
        size_of::<Connection>()
            + self.streams.memory()
            + self.decoder.memory()
            + self.encoder.memory()
            + self.block.as_ref().map_or(0, |block| block.bytes.capacity())
    }

    /// Reads from the front of `input` up to the next event. Appends to `out` what the peer has to be told.
    /// `second` is any clock that counts seconds; floods are measured by it.
    ///
    /// How the bytes were cut into reads changes nothing but the pieces of [`Event::Data`].
    ///
    /// After an error a GOAWAY is in `out`: send it and close.
    ///
    /// # Errors
    /// The peer breaks the protocol in a way that concerns the whole connection, or floods it. Later calls
    /// use up their input and say nothing.
    pub fn read<'b>(
        &mut self,
        input: &'b [u8],
        second: u32,
        section: &mut Section,
        out: &mut Vec<u8>,
    ) -> Result<Read<'b>, ConnectionError> {
        if self.drain == Drain::Failed {
            return Ok(Read { consumed: input.len(), event: None });
        }
        self.floods.tick(second);
        let result = self.advance(input, section, out);
        match &result {
            Ok(_) => self.give_back(out),
            Err(error) => self.fail(error.code(), &error.to_string(), out),
        }
        result
    }

    fn advance<'b>(
        &mut self,
        input: &'b [u8],
        section: &mut Section,
        out: &mut Vec<u8>,
    ) -> Result<Read<'b>, ConnectionError> {
        let mut at = self.take_preface(input)?;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            if let Some(open) = self.data {
                let (used, event) = self.read_data(open, rest, out)?;
                at += used;
                if event.is_some() || self.data.is_some() {
                    return Ok(Read { consumed: at, event });
                }
                continue;
            }
            let Some(header) = FrameHeader::parse(rest).filter(|_| self.preface_left == 0) else {
                return Ok(Read { consumed: at, event: None });
            };
            self.check_header(header)?;
            let rest = rest.get(FRAME_HEADER..).unwrap_or_default();
            if header.kind == FrameKind::DATA {
                let padding_length = usize::from(header.has(flag::PADDED));
                if header.length > 0 && rest.len() < padding_length {
                    return Ok(Read { consumed: at, event: None });
                }
                at += FRAME_HEADER + padding_length.min(header.length);
                let event = self.begin_data(header, rest.first().copied().unwrap_or(0), out)?;
                if event.is_some() {
                    return Ok(Read { consumed: at, event });
                }
                continue;
            }
            let Some(payload) = rest.get(..header.length) else {
                return Ok(Read { consumed: at, event: None });
            };
            at += FRAME_HEADER + header.length;
            let event = self.take_frame(header, payload, section, out)?;
            if event.is_some() {
                return Ok(Read { consumed: at, event });
            }
        }
    }

    fn take_preface(&mut self, input: &[u8]) -> Result<usize, ConnectionError> {
        let expected = PREFACE.get(PREFACE.len() - self.preface_left..).unwrap_or_default();
        let count = expected.len().min(input.len());
        if expected.get(..count) != input.get(..count) {
            return Err(ConnectionError::InvalidPreface);
        }
        self.preface_left -= count;
        Ok(count)
    }

    /// What nine bytes can be refused for.
    #[inline]
    fn check_header(&self, header: FrameHeader) -> Result<(), ConnectionError> {
        if header.length > MAX_FRAME_SIZE {
            return Err(ConnectionError::FrameTooLarge(header.kind));
        }
        if !self.has_settings && (header.kind != FrameKind::SETTINGS || header.has(flag::ACK)) {
            return Err(ConnectionError::MissingSettings);
        }
        if let Some(block) = &self.block
            && (header.kind != FrameKind::CONTINUATION || header.stream != block.stream)
        {
            return Err(ConnectionError::InsideFieldBlock(header.kind));
        }
        Ok(())
    }

    fn take_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        section: &mut Section,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, ConnectionError> {
        match header.kind {
            FrameKind::HEADERS => self.take_headers(header, payload, section, out),
            FrameKind::CONTINUATION => self.take_continuation(header, payload, section, out),
            FrameKind::PRIORITY => self.take_priority(header, payload, out),
            FrameKind::RST_STREAM => self.take_reset(header, payload),
            FrameKind::WINDOW_UPDATE => self.take_window_update(header, payload, out),
            FrameKind::PRIORITY_UPDATE => self.take_priority_update(header, payload).map(|()| None),
            FrameKind::SETTINGS => self.take_settings(header, payload, out).map(|()| None),
            FrameKind::PING => self.take_ping(header, payload, out).map(|()| None),
            FrameKind::GOAWAY => self.take_go_away(header, payload).map(Some),
            FrameKind::PUSH_PROMISE => Err(ConnectionError::UnexpectedPush),
            // Of a kind that nobody has asked for; not to be taken for what was on its way when a stream was given up, of
            // which a server may send a great deal.
            _ => self
                .count(Flood::Ignored, if self.is_server { 1 } else { UNKNOWN_OF_A_SERVER })
                .map(|()| None),
        }
    }

    /// Section 6.5.
    fn take_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::OnStream(header.kind));
        }
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ConnectionError::WrongLength(header.kind));
            }
            if self.open_settings == 0 {
                return self.count(Flood::Settings, 1);
            }
            self.open_settings -= 1;
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return Err(ConnectionError::WrongLength(header.kind));
        }
        // A frame of many settings costs as much as many frames.
        self.count(Flood::Settings, 1 + (payload.len() / 6 / 32) as u16)?;
        let before = self.peer;
        self.peer.take(payload, !self.is_server)?;
        self.has_settings = true;
        self.encoder.limit_table(self.peer.header_table_size as usize);
        let shift = i64::from(self.peer.initial_window_size) - i64::from(before.initial_window_size);
        if shift != 0 {
            for stream in self.streams.iter_mut() {
                if !stream.send_window.shift(shift) {
                    return Err(ConnectionError::WindowOverflow);
                }
            }
        }
        push_frame(out, FrameKind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    /// Section 6.7.
    fn take_ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::OnStream(header.kind));
        }
        if payload.len() != 8 {
            return Err(ConnectionError::WrongLength(header.kind));
        }
        if !header.has(flag::ACK) {
            self.count(Flood::Ping, 1)?;
            push_frame(out, FrameKind::PING, flag::ACK, 0, payload);
        } else if payload == GOODBYE && self.drain == Drain::Announced {
            // What was sent before our announcement came through is here now.
            self.finish_drain(out);
        } else {
            self.count(Flood::Ping, 1)?;
        }
        Ok(())
    }

    /// Section 6.8.
    fn take_go_away(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Event<'static>, ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::OnStream(header.kind));
        }
        let Some([a, b, c, d, e, f, g, h]) = payload.first_chunk::<8>().copied() else {
            return Err(ConnectionError::WrongLength(header.kind));
        };
        self.count(Flood::Ignored, 1)?;
        let last_stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
        let known = self.peer_goes_after.unwrap_or(MAX_WINDOW);
        self.peer_goes_after = Some(known.min(last_stream));
        Ok(Event::GoAway { last_stream, code: ErrorCode(u32::from_be_bytes([e, f, g, h])) })
    }

    /// Asks the peer for a sign of life (section 6.7): its acknowledgement is no event, only something that comes.
    pub fn ping(&self, out: &mut Vec<u8>) {
        push_frame(out, FrameKind::PING, 0, 0, &ARE_YOU_THERE);
    }

    /// Tells the peer to open no further streams. Those that it has opened before it reads this are served;
    /// [`Connection::is_over`] when they are done. A second call does not wait for what is on its way.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        match self.drain {
            Drain::No if self.is_server => {
                self.drain = Drain::Announced;
                push_go_away(out, MAX_WINDOW, ErrorCode::NO_ERROR, "");
                push_frame(out, FrameKind::PING, 0, 0, &GOODBYE);
            }
            Drain::No | Drain::Announced => self.finish_drain(out),
            Drain::After(_) | Drain::Failed => {}
        }
    }

    /// Whether we have said that we go.
    pub fn is_draining(&self) -> bool {
        self.drain != Drain::No
    }

    fn finish_drain(&mut self, out: &mut Vec<u8>) {
        self.drain = Drain::After(self.last_peer);
        push_go_away(out, self.last_peer, ErrorCode::NO_ERROR, "");
    }

    /// Ends the connection for a reason of ours; `why` is told to the peer.
    pub fn fail(&mut self, code: ErrorCode, why: &str, out: &mut Vec<u8>) {
        if self.drain != Drain::Failed {
            push_go_away(out, self.last_peer, code, why);
            self.drain = Drain::Failed;
        }
    }

    /// Counts towards a flood.
    #[inline]
    pub(super) fn count(&mut self, kind: Flood, count: u16) -> Result<(), ConnectionError> {
        self.floods.add(kind, count).map_err(ConnectionError::Flood)
    }

    /// Gives the connection's window back where it is due.
    #[inline]
    pub(super) fn give_back(&mut self, out: &mut Vec<u8>) {
        if let Some(increment) = self.receive_window.due() {
            push_window_update(out, 0, increment);
        }
    }

    pub(super) fn new_stream(&self) -> Stream {
        Stream::new(
            SendWindow::new(self.peer.initial_window_size),
            ReceiveWindow::new(self.limits.stream_window),
        )
    }
}

fn push_go_away(out: &mut Vec<u8>, last: u32, code: ErrorCode, why: &str) {
    let mut payload = Vec::with_capacity(8 + why.len());
    payload.extend_from_slice(&last.to_be_bytes());
    payload.extend_from_slice(&code.0.to_be_bytes());
    payload.extend_from_slice(why.as_bytes());
    push_frame(out, FrameKind::GOAWAY, 0, 0, &payload);
}
