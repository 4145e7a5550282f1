//! HTTP/2: the one connection of a user, which carries several requests at once.
//!
//! The counterpart of `drive`, which does so for HTTP/1.1 and hands over to this. What one `recv` brought is gathered first and
//! acted upon when the connection is whole again, since a user that moves on sends on it. How often what a server turns away is
//! sent again is as with `hit`.

use super::connection::{Asked, Exchange, State, Streams, Unanswered, UserConnection};
use super::drive::{BODY_KEPT, BODY_OF_FAILED_KEPT, READS_IN_A_ROW, failure_of};
use super::operate::Answer;
use super::request::Request;
use super::worker::Worker;
use crate::clock::monotonic_ns;
use crate::http2::{ATTEMPTS, FLOODED, failure_of_connection, failure_of_stream};
use crate::record::{Failure, Stamps};
use crate::scenario::Client;
use crate::worker::connect_failure;
use std::io;
use std::time::Duration;
use tidegate_io::Key;
use tidegate_io::socket::Received;
use tidegate_wire::h1::FieldSpace;
use tidegate_wire::h2::{ErrorCode, Event, FieldSource, RequestParts, Section, StreamKey};

/// How a request has ended.
enum Ended {
    Answered(Box<Answer>, Stamps),
    Failed(Failure, Unanswered),
    /// The server says that it has not looked at it, and whether that is no fault; what it is where it does so again and again.
    Unread(Exchange, bool, Failure),
}

/// What follows a read.
enum Then {
    /// There may be more.
    Again,
    /// There is nothing more for now.
    Wait,
    /// The server has closed its side.
    Closed,
    Failed(Failure),
}

impl Worker<'_> {
    /// Lends the streams of a connection out, so that the worker can be used beside them.
    fn with_streams<T>(&mut self, key: Key, act: impl FnOnce(&mut Self, &mut Streams) -> T) -> Option<T> {
        let connection =
            self.connections.get_mut(key).filter(|connection| connection.state == State::Open)?;
        let mut streams = connection.streams.take()?;
        let result = act(self, &mut streams);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.streams = Some(streams);
        }
        Some(result)
    }

    /// Sends a request on the connection of the user, or on a new one where that takes no more.
    pub(super) fn send_stream(&mut self, place: usize, exchange: Exchange, request: Request, now: u64) {
        let Some(user) = self.users.get(place) else { return };
        let takes = |key: &&Key| self.connections.get(**key).is_some_and(UserConnection::takes_streams);
        let known = user.connections.iter().rev().find(takes).copied();
        let key = match known {
            Some(key) => key,
            None => match self.open(place, now) {
                Ok(key) => key,
                Err(error) => {
                    let unsent = Unanswered::unsent(exchange.due);
                    return self.broken_off(place, connect_failure(&error), unsent, now);
                }
            },
        };
        let Some(connection) = self.connections.get_mut(key) else {
            // The beginning of TLS has failed.
            return self.broken_off(place, Failure::Tls, Unanswered::unsent(exchange.due), now);
        };
        let Some(streams) = &mut connection.streams else { return };
        let (content, head, body) = (Vec::new(), Vec::new(), Vec::new());
        streams.waiting.push_back(Box::new(Asked { exchange, request, content, head, body }));
        if connection.deadline == u64::MAX {
            connection.deadline = self.scenario.client.deadline(now, now);
            self.wheel.arm(key.index(), Duration::from_nanos(connection.deadline.saturating_sub(now)));
        }
        // Other requests of the same page go with it.
        self.unflushed.push(key);
    }

    /// Sends what was given to connections since.
    pub(super) fn flush_given(&mut self) {
        while let Some(key) = self.unflushed.pop() {
            self.flush_streams(key, monotonic_ns());
        }
    }

    /// Begins what a connection has room for, and sends as much as it takes.
    pub(super) fn flush_streams(&mut self, key: Key, now: u64) {
        let done = self.with_streams(key, |worker, streams| {
            let left = worker.fill(streams, now);
            (left, worker.send_given(key, streams, now))
        });
        let Some((left, sent)) = done else { return };
        let Some(connection) = self.connections.get(key) else { return };
        let (place, is_finished) = (connection.user as usize, connection.is_finished);
        for exchange in left {
            // It was not sent on this one.
            self.again(place, exchange, Failure::GoAway, Unanswered::unsent(exchange.due), now);
        }
        match sent {
            Ok(count) if self.measures(place) => self.recorder.counts.bytes_sent += count as u64,
            Ok(_) => {}
            // An answer may have come before the server closed.
            Err(_) if is_finished => {}
            Err(error) => return self.lost(key, failure_of(&error), now),
        }
        self.settle(key, now);
    }

    /// Begins as many requests as there is room for; gives back what this connection will not take.
    fn fill(&mut self, streams: &mut Streams, now: u64) -> Vec<Exchange> {
        let client = &self.scenario.client;
        let target = &self.scenario.target;
        let deadline = client.deadline(now, now);
        while streams.session.room(client.requests_at_once()) > 0
            && let Some(mut asked) = streams.waiting.pop_front()
        {
            streams.is_silent |= streams.session.open() == 0;
            asked.exchange.sent = now;
            let mut request = std::mem::take(&mut asked.request);
            let content = request.take_content();
            let content_length = content.as_ref().map(|content| content.len() as u64);
            asked.content = content.unwrap_or_default();
            let (method, request_target, lines) = request.parts();
            let parts = RequestParts {
                method,
                scheme: if target.is_tls { "https" } else { "http" },
                authority: &target.authority,
                target: request_target,
                protocol: None,
                fields: FieldSource::Lines(&lines),
                content_length,
            };
            let body_from = (!asked.content.is_empty()).then_some(0);
            if let Err((_, asked)) = streams.session.begin(asked, &parts, body_from, deadline) {
                streams.waiting.push_front(asked);
            }
        }
        if !streams.session.is_leaving {
            return Vec::new();
        }
        streams.waiting.drain(..).map(|asked| asked.exchange).collect()
    }

    fn send_given(&mut self, key: Key, streams: &mut Streams, now: u64) -> io::Result<usize> {
        let client = &self.scenario.client;
        let Some(connection) = self.connections.get_mut(key) else { return Ok(0) };
        streams.session.send(&mut connection.channel, &(), |asked| client.deadline(asked.exchange.sent, now))
    }

    /// What a connection is to do now that it was given what there is.
    fn settle(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.is_busy() {
            if connection.deadline == u64::MAX {
                connection.deadline = self.scenario.client.deadline(now, now);
                self.wheel.arm(key.index(), Duration::from_nanos(connection.deadline.saturating_sub(now)));
            }
        } else if connection.takes_streams() {
            connection.deadline = u64::MAX;
            self.wheel.cancel(key.index());
            if let Some(streams) = &mut connection.streams {
                streams.session.rest();
            }
        } else {
            self.remove(key);
        }
    }

    /// Reads until there is nothing more, and acts on what came.
    pub(super) fn read_streams(&mut self, key: Key) {
        for _ in 0..READS_IN_A_ROW {
            let mut buffer = std::mem::take(&mut self.buffer);
            let mut section = std::mem::take(&mut self.section);
            let mut ended = Vec::new();
            let then = self.with_streams(key, |worker, streams| {
                worker.receive(key, streams, &mut buffer, &mut section, &mut ended)
            });
            (self.buffer, self.section) = (buffer, section);
            let Some(then) = then else { return };
            let now = monotonic_ns();
            let Some(connection) = self.connections.get_mut(key) else { return };
            let place = connection.user as usize;
            // What follows these answers goes on another.
            connection.is_finished |= matches!(then, Then::Closed | Then::Failed(_));
            let answers = ended.iter().filter(|ended| matches!(ended, Ended::Answered(..))).count();
            connection.answered = connection.answered.saturating_add(answers as u32);
            if answers > 0 {
                self.failing_since = None;
            }
            for ended in ended {
                match ended {
                    Ended::Answered(answer, stamps) => self.take_answer(place, *answer, stamps, now),
                    Ended::Failed(failure, unanswered) => self.broken_off(place, failure, unanswered, now),
                    Ended::Unread(exchange, is_excused, failure) => {
                        self.turned_away(place, exchange, is_excused, failure, now);
                    }
                }
            }
            match then {
                Then::Again => self.flush_streams(key, now),
                Then::Wait => return self.flush_streams(key, now),
                Then::Closed => return self.closed_streams(key, now),
                Then::Failed(failure) => return self.lost(key, failure, now),
            }
        }
        self.more.push(key);
    }

    /// One `recv` and what it means.
    fn receive(
        &mut self,
        key: Key,
        streams: &mut Streams,
        buffer: &mut [u8],
        section: &mut Section,
        ended: &mut Vec<Ended>,
    ) -> Then {
        let Some(connection) = self.connections.get_mut(key) else { return Then::Wait };
        let session = &mut streams.session;
        // What was left of the read before goes in front of this one.
        let held = session.held.len();
        let Some((front, room)) = buffer.split_at_mut_checked(held) else {
            return Then::Failed(Failure::Malformed);
        };
        front.copy_from_slice(&session.held);
        let (count, then) = match connection.channel.recv(room) {
            Ok(Received::Bytes { count, drained }) if drained && !connection.is_finished => {
                (count, Then::Wait)
            }
            Ok(Received::Bytes { count, .. }) => (count, Then::Again),
            Ok(Received::WouldBlock) => return Then::Wait,
            Ok(Received::End) => return Then::Closed,
            Err(_) if session.is_dismissed => return Then::Failed(Failure::GoAway),
            Err(error) => return Then::Failed(failure_of(&error)),
        };
        let now = monotonic_ns();
        let place = connection.user as usize;
        if self.measures(place) {
            self.recorder.counts.bytes += count as u64;
        }
        streams.is_silent &= count == 0;
        session.held.clear();
        let data = buffer.get(..held + count).unwrap_or_default();
        let client = &self.scenario.client;
        let mut at = 0;
        loop {
            let rest = data.get(at..).unwrap_or_default();
            match streams.session.read(rest, section) {
                Ok((consumed, event)) => {
                    at += consumed;
                    let Some(event) = event else { break };
                    if let Some(error) = streams.session.stray_error(&event) {
                        self.recorder.protocol_error(&error);
                    }
                    streams.take_event(event, section, (client, now), ended);
                }
                Err(error) => {
                    self.recorder.protocol_error(&error);
                    return Then::Failed(failure_of_connection(error));
                }
            }
        }
        if streams.session.is_flooded() {
            self.recorder.protocol_error(&FLOODED);
            return Then::Failed(Failure::Malformed);
        }
        streams.session.held.extend_from_slice(data.get(at..).unwrap_or_default());
        then
    }

    /// The server has not taken a request that was sent to it: sends it again, and counts that.
    fn turned_away(
        &mut self,
        place: usize,
        exchange: Exchange,
        is_excused: bool,
        failure: Failure,
        now: u64,
    ) {
        let is_last = exchange.attempts.saturating_add(1) >= ATTEMPTS;
        if !is_last && self.measures(place) {
            self.recorder.sent_again(is_excused);
        }
        let unanswered = Unanswered { sent: Some(exchange.sent), ..Unanswered::unsent(exchange.due) };
        self.again(place, exchange, failure, unanswered, now);
    }

    /// Sends a request again, on a new connection where this one takes no more; after so many times it has failed.
    fn again(&mut self, place: usize, exchange: Exchange, failure: Failure, so_far: Unanswered, now: u64) {
        if exchange.attempts.saturating_add(1) < ATTEMPTS {
            self.send_again(place, exchange, now);
        } else {
            self.broken_off(place, failure, so_far, now);
        }
    }

    /// The server has closed its side.
    fn closed_streams(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(streams) = connection.streams.as_ref().filter(|_| connection.is_busy()) else {
            self.remove(key);
            return;
        };
        let failure = match &streams.session {
            session if session.is_dismissed => Failure::GoAway,
            session if session.has_begun() => Failure::Truncated,
            _ => Failure::Closed,
        };
        self.lost(key, failure, now);
    }

    /// A connection is gone, with what it carried. What it was kept for, and of which nothing has come, is sent again.
    pub(super) fn lost_streams(
        &mut self,
        connection: &UserConnection,
        mut streams: Streams,
        failure: Failure,
        now: u64,
    ) {
        let place = connection.user as usize;
        let begun = streams.session.take_all(|_| true);
        let begun = begun.into_iter().map(|stream| (stream.carried.exchange, Unanswered::stream(&stream)));
        let waiting = streams.waiting.drain(..).map(|asked| asked.exchange);
        let waiting = waiting.map(|exchange| (exchange, Unanswered::unsent(exchange.due)));
        let carried: Vec<(Exchange, Unanswered)> = begun.chain(waiting).collect();
        if carried.is_empty() {
            return;
        }
        let was_idle = connection.answered > 0
            && streams.is_silent
            && carried.iter().all(|(exchange, _)| exchange.attempts == 0);
        if !was_idle || !matches!(failure, Failure::Closed | Failure::Reset) {
            for (_, unanswered) in carried {
                self.broken_off(place, failure, unanswered, now);
            }
            return;
        }
        for (exchange, _) in carried {
            self.turned_away(place, exchange, false, failure, now);
        }
    }

    /// The deadline of a connection has come: it is that of one of its requests, or was.
    pub(super) fn on_stream_timer(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(streams) = &connection.streams else { return };
        let (open, overdue) = (streams.session.open(), streams.session.overdue(now));
        if open == overdue {
            // It says nothing at all, or takes no request.
            connection.channel.reset_on_close();
            return self.lost(key, Failure::Timeout, now);
        }
        if overdue > 0 {
            let place = connection.user as usize;
            let taken = self
                .with_streams(key, |_, streams| streams.session.take_all(|stream| stream.deadline <= now));
            for stream in taken.into_iter().flatten() {
                self.broken_off(place, Failure::Timeout, Unanswered::stream(&stream), now);
            }
            // The server is told, and what waits takes their places.
            self.flush_streams(key, now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Some(next) = connection.streams.as_ref().and_then(|streams| streams.session.next_deadline()) {
            connection.deadline = next;
            self.wheel.arm(key.index(), Duration::from_nanos(next.saturating_sub(now)));
        }
    }
}

impl Streams {
    fn take_event(
        &mut self,
        event: Event<'_>,
        section: &Section,
        (client, now): (&Client, u64),
        ended: &mut Vec<Ended>,
    ) {
        match event {
            Event::Response { stream, is_end } => {
                if let Some(under_way) = self.session.stream(stream) {
                    (under_way.status, under_way.carried.head) = head(section);
                    under_way.first_byte = now;
                    under_way.deadline = client.deadline(under_way.carried.exchange.sent, now);
                }
                if is_end {
                    ended.extend(self.complete(stream, now));
                }
            }
            Event::Interim { stream } => {
                if let Some(under_way) = self.session.stream(stream) {
                    let deadline = client.deadline(under_way.carried.exchange.sent, now);
                    if let Some(over) = self.session.interim(stream, deadline) {
                        ended.push(Ended::Failed(Failure::Malformed, Unanswered::stream(&over)));
                    }
                }
            }
            Event::Data { stream, data, is_end } => {
                if let Some(under_way) = self.session.stream(stream) {
                    under_way.body_bytes += data.len() as u64;
                    under_way.deadline = client.deadline(under_way.carried.exchange.sent, now);
                    let most = match (under_way.carried.exchange.needs_body, under_way.status) {
                        (true, _) => BODY_KEPT,
                        (false, 400..) => BODY_OF_FAILED_KEPT,
                        _ => 0,
                    };
                    let body = &mut under_way.carried.body;
                    let room = most.saturating_sub(body.len()).min(data.len());
                    body.extend_from_slice(data.get(..room).unwrap_or_default());
                }
                self.session.release(stream, data.len());
                if is_end {
                    ended.extend(self.complete(stream, now));
                }
            }
            Event::Trailers { stream } => ended.extend(self.complete(stream, now)),
            Event::Reset { stream, code } => {
                if let Some(under_way) = self.session.take(stream) {
                    let is_unread = code == ErrorCode::REFUSED_STREAM && under_way.status == 0;
                    ended.push(if is_unread {
                        let is_excused = under_way.is_before_settings;
                        Ended::Unread(under_way.carried.exchange, is_excused, Failure::StreamReset)
                    } else {
                        Ended::Failed(Failure::StreamReset, Unanswered::stream(&under_way))
                    });
                }
            }
            Event::Broken { stream: Some(stream), error } => {
                if let Some(under_way) = self.session.take(stream) {
                    ended.push(Ended::Failed(failure_of_stream(error), Unanswered::stream(&under_way)));
                }
            }
            Event::GoAway { last_stream, .. } => {
                self.session.is_leaving = true;
                self.session.is_dismissed = true;
                let unread = self.session.take_all(|stream| stream.id() > last_stream);
                let unread = unread.into_iter().map(|stream| stream.carried.exchange);
                ended.extend(unread.map(|exchange| Ended::Unread(exchange, true, Failure::GoAway)));
            }
            // A server opens no streams.
            Event::Broken { stream: None, .. } | Event::Request { .. } | Event::Refused { .. } => {}
        }
    }

    /// A request is answered in full.
    fn complete(&mut self, stream: StreamKey, now: u64) -> Option<Ended> {
        let done = self.session.take(stream)?;
        let Asked { exchange, head, body, .. } = *done.carried;
        let stamps = Stamps {
            intended: exchange.due,
            sent: exchange.sent,
            first_byte: done.first_byte,
            last_byte: now,
        };
        let is_cut = exchange.needs_body && done.body_bytes > BODY_KEPT as u64;
        let answer =
            Answer { exchange, head, body, status: done.status, is_cut, body_bytes: done.body_bytes };
        Some(Ended::Answered(Box::new(answer), stamps))
    }
}

/// The head that was read last, as HTTP/1.1 would have it: users read both alike. No name and no value of HTTP/2 holds the end
/// of a line (RFC 9113 section 8.2.1).
fn head(section: &Section) -> (u16, Vec<u8>) {
    let mut space = FieldSpace::new();
    let head = section.response(&mut space);
    let mut out = format!("HTTP/1.1 {} \r\n", head.status).into_bytes();
    for field in head.fields {
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(field.value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    (head.status, out)
}
