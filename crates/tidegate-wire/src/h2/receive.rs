//! Frames for single streams: heads, content, resets, windows, priorities (RFC 9113 sections 5, 6 and 8).

use super::connection::{Connection, Drain, EARLY_PRIORITIES, Event, OpenBlock, OpenData};
use super::error::{ConnectionError, Flood, Malformed, StreamError};
use super::frame::{FrameHeader, FrameKind, MAX_FRAME_SIZE, flag, push_reset, push_window_update, unpadded};
use super::priority::Priority;
use super::section::{Purpose, Section};
use super::streams::{Past, StreamKey};
use super::{ErrorCode, MAX_BLOCK_FRAMES};

type Outcome = Result<Option<Event<'static>>, ConnectionError>;

impl Connection {
    /// Section 6.2.
    pub(super) fn take_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        section: &mut Section,
        out: &mut Vec<u8>,
    ) -> Outcome {
        if header.stream == 0 {
            return Err(ConnectionError::OnConnection(header.kind));
        }
        let mut fragment = unpadded(header, payload).ok_or(ConnectionError::TooMuchPadding(header.kind))?;
        let mut depends_on_itself = false;
        if header.has(flag::PRIORITY) {
            let (dependency, rest) =
                fragment.split_first_chunk::<5>().ok_or(ConnectionError::WrongLength(header.kind))?;
            depends_on_itself = dependency_of(dependency) == header.stream;
            fragment = rest;
        }
        self.check_opening(header.stream)?;
        let is_end = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.take_block(header.stream, is_end, depends_on_itself, fragment, section, out);
        }
        let bytes = fragment.to_vec();
        self.block =
            Some(Box::new(OpenBlock { stream: header.stream, is_end, depends_on_itself, frames: 1, bytes }));
        Ok(None)
    }

    /// Section 6.10. A block has to be complete before it can be read, so its size is bounded here.
    pub(super) fn take_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        section: &mut Section,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Some(mut block) = self.block.take() else {
            return Err(ConnectionError::UnexpectedContinuation);
        };
        block.frames += 1;
        let most = self.limits.head.head_size.max(MAX_FRAME_SIZE);
        if block.frames > MAX_BLOCK_FRAMES || block.bytes.len() + payload.len() > most {
            return Err(ConnectionError::Flood(Flood::Continuation));
        }
        block.bytes.extend_from_slice(payload);
        if !header.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        self.take_block(block.stream, block.is_end, block.depends_on_itself, &block.bytes, section, out)
    }

    /// Whether HEADERS may come on this stream at all (section 5.1 and 5.1.1).
    fn check_opening(&self, id: u32) -> Result<(), ConnectionError> {
        if self.opens(id) || self.streams.find(id).is_some() {
            return Ok(());
        }
        if self.is_server && id.is_multiple_of(2) {
            return Err(ConnectionError::InvalidStreamNumber);
        }
        if !self.is_server && (id.is_multiple_of(2) || id >= self.next_own) {
            return Err(ConnectionError::OnIdleStream(FrameKind::HEADERS));
        }
        match self.streams.past(id) {
            Past::Reset => Ok(()),
            Past::Ended => Err(ConnectionError::OnClosedStream(FrameKind::HEADERS)),
            Past::Unknown => Err(ConnectionError::InvalidStreamNumber),
        }
    }

    /// Whether HEADERS on this stream open it: no stream of the client's has had so high a number.
    #[inline]
    fn opens(&self, id: u32) -> bool {
        self.is_server && id > self.last_peer && !id.is_multiple_of(2)
    }

    /// A complete field block. It is decoded whatever becomes of the stream: the tables must stay alike.
    fn take_block(
        &mut self,
        id: u32,
        is_end: bool,
        depends_on_itself: bool,
        block: &[u8],
        section: &mut Section,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let is_new = self.opens(id);
        let known = if is_new { None } else { self.streams.find(id) };
        let (purpose, refusal) = match known.and_then(|key| self.streams.get(key)) {
            Some(stream) if stream.is_remote_closed => (Purpose::Ignored, Some(StreamError::Closed)),
            Some(stream) if stream.has_head => (Purpose::Trailers, None),
            Some(_) => (Purpose::Response, None),
            None if !is_new || matches!(self.drain, Drain::After(_)) => (Purpose::Ignored, None),
            None if self.streams.len() >= self.limits.streams as usize => {
                (Purpose::Ignored, Some(StreamError::TooManyStreams))
            }
            None => (Purpose::Request { allows_protocol: self.limits.extended_connect }, None),
        };
        if is_new {
            self.last_peer = id;
        }
        section.begin(purpose, &self.limits.head);
        let mut scratch = std::mem::take(&mut section.scratch);
        let decoded = self.decoder.decode(block, &mut scratch, |name, value, traits| {
            section.push(name, value, traits);
        });
        section.scratch = scratch;
        decoded?;
        let finished = section.finish();
        if let Ok(Some(431)) = finished
            && self.is_server
        {
            self.count(Flood::FieldSection, 1)?;
        }
        let refusal = refusal.or(depends_on_itself.then_some(StreamError::SelfDependency));
        if let Some(error) = refusal {
            return self.break_stream(id, error, out);
        }
        match (purpose, finished) {
            (Purpose::Ignored, _) => self.count(Flood::Ignored, 1).map(|()| None),
            (_, Err(error)) => self.break_stream(id, error.into(), out),
            (Purpose::Request { .. }, Ok(refused)) => self.open_request(id, is_end, refused, section, out),
            // A part of the fields would be taken for all of them.
            (Purpose::Response | Purpose::Trailers, Ok(Some(431))) => {
                self.break_stream(id, StreamError::FieldSectionTooLarge, out)
            }
            (Purpose::Response, Ok(_)) => self.take_response(id, is_end, section, out),
            (Purpose::Trailers, Ok(_)) => {
                let Some(key) = known else { return Ok(None) };
                if !is_end {
                    return self.break_stream(id, Malformed::TrailersNotLast.into(), out);
                }
                if self.streams.get(key).is_some_and(|stream| stream.expected.unwrap_or(0) > 0) {
                    return self.break_stream(id, Malformed::LengthMismatch.into(), out);
                }
                self.end_remote(key);
                Ok(Some(Event::Trailers { stream: key }))
            }
        }
    }

    fn open_request(
        &mut self,
        id: u32,
        is_end: bool,
        refused: Option<u16>,
        section: &Section,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let expected = section.announced_length();
        if is_end && expected.unwrap_or(0) > 0 {
            return self.break_stream(id, Malformed::LengthMismatch.into(), out);
        }
        let mut stream = self.new_stream();
        stream.has_head = true;
        stream.is_remote_closed = is_end;
        stream.expected = expected;
        let early = self.early_priorities.iter().position(|(of, _)| *of == id);
        let early = early.and_then(|place| self.early_priorities.remove(place));
        // What was updated is newer than what the request was first given (RFC 9218 section 7).
        let priority = early.map(|(_, priority)| priority).or(section.announced_priority());
        stream.priority = priority.unwrap_or_default();
        let stream = self.streams.open(id, stream);
        self.floods.forgive(Flood::Priority, 2);
        Ok(Some(match refused {
            Some(status) => Event::Refused { stream, status, is_end },
            None => Event::Request { stream, is_end },
        }))
    }

    fn take_response(&mut self, id: u32, is_end: bool, section: &Section, out: &mut Vec<u8>) -> Outcome {
        let Some(key) = self.streams.find(id) else { return Ok(None) };
        let is_interim = section.status() < 200;
        if is_interim && is_end {
            return self.break_stream(id, Malformed::FinalInterim.into(), out);
        }
        if is_interim {
            // Interim responses without end are no different from empty frames.
            self.count(Flood::EmptyData, 1)?;
            return Ok(Some(Event::Interim { stream: key }));
        }
        let Some(stream) = self.streams.get_mut(key) else { return Ok(None) };
        stream.has_head = true;
        let has_content = !stream.is_head_request && !matches!(section.status(), 204 | 304);
        stream.expected = if has_content { section.announced_length() } else { Some(0) };
        if is_end {
            if stream.expected.unwrap_or(0) > 0 {
                return self.break_stream(id, Malformed::LengthMismatch.into(), out);
            }
            self.end_remote(key);
        }
        Ok(Some(Event::Response { stream: key, is_end }))
    }

    /// The head of a DATA frame (section 6.1). Its whole length counts against both windows at once.
    pub(super) fn begin_data(&mut self, header: FrameHeader, padding: u8, out: &mut Vec<u8>) -> Outcome {
        if header.stream == 0 {
            return Err(ConnectionError::OnConnection(header.kind));
        }
        let padded = usize::from(header.has(flag::PADDED));
        let padding = if padded == 1 { usize::from(padding) } else { 0 };
        let data = header
            .length
            .checked_sub(padded + padding)
            .ok_or(ConnectionError::TooMuchPadding(header.kind))?;
        let key = self.streams.find(header.stream);
        if key.is_none() {
            self.check_past(header)?;
        }
        if !self.receive_window.take(header.length) {
            return Err(ConnectionError::WindowExceeded);
        }
        self.receive_window.release(padded + padding);
        let is_end = header.has(flag::END_STREAM);
        let is_too_empty = data == 0 && !is_end && self.is_flooded_by_empty_data(key)?;
        if data > 0 {
            self.floods.forgive(Flood::Ping, 1);
        }
        let mut open = OpenData { stream: key, data, padding, is_end };
        let error = key.and_then(|key| self.streams.get_mut(key)).and_then(|stream| {
            stream.receive_window.release(padded + padding);
            if stream.is_remote_closed {
                Some(StreamError::Closed)
            } else if is_too_empty {
                Some(StreamError::EmptyData)
            } else if !stream.has_head {
                Some(StreamError::Malformed(Malformed::DataBeforeHead))
            } else if !stream.receive_window.take(header.length) {
                Some(StreamError::WindowExceeded)
            } else if stream
                .expected
                .is_some_and(|left| data as u64 > left || (is_end && data as u64 != left))
            {
                Some(StreamError::Malformed(Malformed::LengthMismatch))
            } else {
                stream.expected = stream.expected.map(|left| left - data as u64);
                None
            }
        });
        if let Some(error) = error {
            open.stream = None;
            self.data = Some(open);
            return self.break_stream(header.stream, error, out);
        }
        if open.stream.is_none() {
            self.count(Flood::Ignored, 1)?;
        }
        self.data = Some(open);
        Ok(None)
    }

    /// Counts an empty frame; whether its stream has to go for it. What a client sends is the client's fault, what a
    /// server sends that of the application behind one stream: the others go on.
    fn is_flooded_by_empty_data(&mut self, key: Option<StreamKey>) -> Result<bool, ConnectionError> {
        if self.is_server {
            self.count(Flood::EmptyData, 1)?;
            return Ok(false);
        }
        // Of a stream that is gone it is ignored, and counted as that.
        let is_flooded = key.is_some() && self.count(Flood::EmptyData, 1).is_err();
        if is_flooded {
            self.floods.clear(Flood::EmptyData);
        }
        Ok(is_flooded)
    }

    /// More of a DATA frame. Returns the bytes used; the frame is done when `self.data` is empty.
    pub(super) fn read_data<'b>(
        &mut self,
        mut open: OpenData,
        input: &'b [u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event<'b>>), ConnectionError> {
        let data = input.get(..open.data.min(input.len())).unwrap_or_default();
        open.data -= data.len();
        let padding = open.padding.min(input.len() - data.len());
        open.padding -= padding;
        let is_done = open.data == 0 && open.padding == 0;
        self.data = (!is_done).then_some(open);
        let used = data.len() + padding;
        // The stream may be gone by now.
        let Some((key, stream)) = open.stream.and_then(|key| Some((key, self.streams.get_mut(key)?))) else {
            self.receive_window.release(data.len());
            self.give_back(out);
            return Ok((used, None));
        };
        stream.unreleased += data.len() as u32;
        // Padding is given back at once; what is due for it must not wait for content.
        if is_done
            && !open.is_end
            && let Some(increment) = stream.receive_window.due()
        {
            push_window_update(out, key.id(), increment);
        }
        let is_end = open.is_end && is_done;
        if data.is_empty() && !is_end {
            return Ok((used, None));
        }
        // A kilobyte of content makes up for an empty frame.
        self.floods.forgive(Flood::EmptyData, (data.len() >> 10) as u16);
        if is_end {
            self.end_remote(key);
        }
        Ok((used, Some(Event::Data { stream: key, data, is_end })))
    }

    /// A frame for a stream that is not open: ignored after a reset of ours, else a fault.
    fn check_past(&self, header: FrameHeader) -> Result<(), ConnectionError> {
        if self.is_idle_number(header.stream) {
            return Err(ConnectionError::OnIdleStream(header.kind));
        }
        match self.streams.past(header.stream) {
            Past::Reset => Ok(()),
            // After our GOAWAY there may be streams that were never looked at.
            _ if self.is_behind_goodbye(header.stream) => Ok(()),
            Past::Ended | Past::Unknown => Err(ConnectionError::OnClosedStream(header.kind)),
        }
    }

    fn is_behind_goodbye(&self, id: u32) -> bool {
        matches!(self.drain, Drain::After(last) if id > last)
    }

    /// Whether nobody has ever used this number.
    fn is_idle_number(&self, id: u32) -> bool {
        let is_own = (id % 2 == 1) != self.is_server;
        // Servers of ours open no streams, and clients of ours accept none.
        if is_own { self.is_server || id >= self.next_own } else { !self.is_server || id > self.last_peer }
    }

    /// Section 6.3: obsolete, but still checked.
    pub(super) fn take_priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        if header.stream == 0 {
            return Err(ConnectionError::OnConnection(header.kind));
        }
        self.count(Flood::Priority, 1)?;
        let is_idle = self.is_idle_number(header.stream);
        match payload.first_chunk::<5>() {
            Some(dependency) if payload.len() == 5 => {
                if dependency_of(dependency) != header.stream {
                    Ok(None)
                } else if is_idle {
                    Err(ConnectionError::SelfDependency) // no RST_STREAM may be sent for it
                } else {
                    self.break_stream(header.stream, StreamError::SelfDependency, out)
                }
            }
            _ if is_idle => Err(ConnectionError::WrongLength(header.kind)),
            _ => self.break_stream(header.stream, StreamError::PriorityLength, out),
        }
    }

    /// RFC 9218 section 7.1.
    pub(super) fn take_priority_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let invalid = ConnectionError::InvalidPriorityUpdate;
        if header.stream != 0 || !self.is_server {
            return Err(invalid);
        }
        let ([a, b, c, d], value) =
            payload.split_first_chunk::<4>().ok_or(ConnectionError::WrongLength(header.kind))?;
        let id = u32::from_be_bytes([a & 0x7f, *b, *c, *d]);
        if id.is_multiple_of(2) {
            return Err(invalid); // stream 0, or a push that was never promised
        }
        self.count(Flood::Priority, 1)?;
        let priority = Priority::parse(value);
        if let Some(stream) = self.streams.find(id).and_then(|key| self.streams.get_mut(key)) {
            stream.priority = priority;
        } else if id > self.last_peer {
            self.early_priorities.retain(|(of, _)| *of != id);
            if self.early_priorities.len() == EARLY_PRIORITIES {
                self.early_priorities.pop_front();
            }
            self.early_priorities.push_back((id, priority));
        }
        Ok(())
    }

    /// Section 6.4.
    pub(super) fn take_reset(&mut self, header: FrameHeader, payload: &[u8]) -> Outcome {
        if header.stream == 0 {
            return Err(ConnectionError::OnConnection(header.kind));
        }
        let Ok(code) = <[u8; 4]>::try_from(payload) else {
            return Err(ConnectionError::WrongLength(header.kind));
        };
        if self.is_idle_number(header.stream) {
            return Err(ConnectionError::OnIdleStream(header.kind));
        }
        let Some(stream) = self.streams.find(header.stream) else {
            // Our response and its reset have crossed: work for nothing as well.
            return self.count(Flood::Ignored, 1).map(|()| None);
        };
        self.close(stream, Past::Ended);
        if self.is_server {
            self.count(Flood::Reset, 1)?;
        }
        Ok(Some(Event::Reset { stream, code: ErrorCode(u32::from_be_bytes(code)) }))
    }

    /// Section 6.9.
    pub(super) fn take_window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Ok([a, b, c, d]) = <[u8; 4]>::try_from(payload) else {
            return Err(ConnectionError::WrongLength(header.kind));
        };
        let increment = u32::from_be_bytes([a & 0x7f, b, c, d]);
        self.count(Flood::WindowUpdate, 1)?;
        if header.stream == 0 {
            if increment == 0 {
                return Err(ConnectionError::ZeroIncrement);
            }
            if !self.send_window.shift(increment.into()) {
                return Err(ConnectionError::WindowOverflow);
            }
            return Ok(None);
        }
        if self.is_idle_number(header.stream) {
            return Err(ConnectionError::OnIdleStream(header.kind));
        }
        let stream = self.streams.find(header.stream).and_then(|key| self.streams.get_mut(key));
        let Some(stream) = stream else { return Ok(None) };
        if increment == 0 {
            return self.break_stream(header.stream, StreamError::ZeroIncrement, out);
        }
        if !stream.send_window.shift(increment.into()) {
            return self.break_stream(header.stream, StreamError::WindowOverflow, out);
        }
        Ok(None)
    }

    /// Resets a stream for a fault of the peer (section 5.4.2). Whoever provokes many of these is told off
    /// like one who resets them himself (FAULTS 18).
    fn break_stream(&mut self, id: u32, error: StreamError, out: &mut Vec<u8>) -> Outcome {
        push_reset(out, id, error.code().0);
        let stream = self.streams.find(id);
        match stream {
            Some(key) => self.close(key, Past::Reset),
            None => self.streams.remember(id, Past::Reset),
        }
        // A server breaks each of our streams once at most.
        if self.is_server || stream.is_none() {
            self.count(Flood::ProvokedReset, 1)?;
        }
        Ok(Some(Event::Broken { stream, error }))
    }

    /// The peer has ended its direction.
    fn end_remote(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.is_remote_closed = true;
        if stream.is_local_closed {
            self.close(key, Past::Ended);
        }
    }

    /// Forgets a stream.
    pub(super) fn close(&mut self, key: StreamKey, past: Past) {
        let unreleased = self.streams.close(key, past);
        self.receive_window.release(unreleased as usize);
    }

    /// So much of a stream's content has been consumed: the peer may send as much again.
    pub fn release(&mut self, key: StreamKey, count: usize, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(key) else {
            // It is closed, and what it held was released then, perhaps where nothing could be said.
            return self.give_back(out);
        };
        let count = count.min(stream.unreleased as usize);
        stream.unreleased -= count as u32;
        if !stream.is_remote_closed {
            stream.receive_window.release(count);
            if let Some(increment) = stream.receive_window.due() {
                push_window_update(out, key.id(), increment);
            }
        }
        self.receive_window.release(count);
        self.give_back(out);
    }

    /// Nothing of what a stream has carried is kept any longer.
    pub fn release_all(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        let unreleased = self.streams.get_mut(key).map_or(0, |stream| stream.unreleased);
        self.release(key, unreleased as usize, out);
    }

    /// Makes a stream's window larger: its content is wanted.
    pub fn widen(&mut self, key: StreamKey, window: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(key).filter(|stream| !stream.is_remote_closed) else {
            return;
        };
        stream.receive_window.grow(window.min(super::flow::MAX_WINDOW));
        if let Some(increment) = stream.receive_window.due() {
            push_window_update(out, key.id(), increment);
        }
    }
}

fn dependency_of([a, b, c, d, _]: &[u8; 5]) -> u32 {
    u32::from_be_bytes([a & 0x7f, *b, *c, *d])
}
