//! HTTP/2: what events, timers and arrivals do to connections that carry several requests at once.
//!
//! The counterpart of `drive`, which does so for HTTP/1 and hands over to this where a plan wants streams. All
//! that one `recv` brought is acted upon before one `send` takes the next requests.

use super::drive::{Answer, Outcome, READS_IN_A_ROW, broken};
use super::{GivenUp, Worker, monotonic_ns, ns};
use crate::connection::{Asked, Exchange};
use crate::http2::{self, ATTEMPTS, FLOODED, failure_of_connection, failure_of_stream};
use crate::plan::Load;
use crate::record::Failure;
use std::io;
use std::time::Duration;
use tidegate_io::Key;
use tidegate_io::socket::Received;
use tidegate_wire::h1::FieldSpace;
use tidegate_wire::h2::{ErrorCode, Event, Section, StreamKey};

type Session = http2::Session<Asked>;
type Stream = http2::Stream<Asked>;

impl Worker<'_> {
    /// Lends a connection's session out, so that the worker can be used beside it.
    fn with_session<T>(&mut self, key: Key, act: impl FnOnce(&mut Self, &mut Session) -> T) -> Option<T> {
        let mut session = self.connections.get_mut(key)?.session.take()?;
        let result = act(self, &mut session);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.session = Some(session);
        }
        Some(result)
    }

    /// Gives a connection what it has room for and sends; or the rest it has earned.
    pub(super) fn give_streams(&mut self, key: Key, now: u64) {
        let sent = self.with_session(key, |worker, session| {
            worker.fill(key, session, now);
            worker.send_streams(key, session, now)
        });
        if let Some(Err(_)) = sent {
            // The server may have said why before it closed; that is worth more than the fault.
            let Some(connection) = self.connections.get_mut(key).filter(|connection| !connection.is_finished)
            else {
                return;
            };
            connection.is_finished = true;
            connection.is_readable = true;
            return self.more.push(key);
        }
        self.settle(key, now);
    }

    /// Begins as many requests as a connection may carry.
    fn fill(&mut self, key: Key, session: &mut Session, now: u64) {
        let plan = self.plan;
        let deadline = now.saturating_add(ns(plan.timeout));
        let Some(connection) = self.connections.get_mut(key).filter(|connection| !connection.is_finished)
        else {
            return;
        };
        while session.room(plan.streams.unwrap_or(1)) > 0 && (plan.keep_alive || !session.has_carried) {
            let exchange = match connection.in_flight.pop_front() {
                Some(exchange) => exchange,
                None => {
                    let Some(exchange) = self.source.next(now) else { return };
                    self.outstanding += 1;
                    exchange
                }
            };
            let Some(request) = plan.mix.prepared.get(exchange.request as usize) else { return };
            let (parts, body_from) = request.parts();
            let asked = Asked { exchange, check: None };
            if let Err((_, asked)) = session.begin(asked, &parts, body_from, deadline) {
                self.outstanding -= 1;
                self.source.give_back(asked.exchange);
                return;
            }
        }
    }

    fn send_streams(&mut self, key: Key, session: &mut Session, now: u64) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let deadline = now.saturating_add(ns(self.plan.timeout));
        let sent = session.send(&mut connection.channel, &self.plan.mix.prepared, |_| deadline)?;
        self.recorder.counts.bytes_sent += sent as u64;
        Ok(())
    }

    /// What a connection is to do now that it was given what there is.
    fn settle(&mut self, key: Key, now: u64) {
        let plan = self.plan;
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(session) = &mut connection.session else { return };
        let is_spent =
            session.is_leaving || connection.is_finished || (!plan.keep_alive && session.has_carried);
        if session.open() == 0 && is_spent {
            return self.end(key, now);
        }
        let is_scheduled = matches!(plan.load, Load::Open { .. }) && !self.is_stopping;
        if session.open() == 0 && connection.in_flight.is_empty() {
            if !is_scheduled {
                self.remove(key);
                return;
            }
            connection.deadline = u64::MAX;
            self.wheel.cancel(key.index());
        } else if connection.deadline == u64::MAX {
            connection.deadline = now.saturating_add(ns(plan.timeout));
            self.wheel.arm(key.index(), plan.timeout);
        }
        if is_scheduled && !is_spent && !session.is_listed && session.room(plan.streams.unwrap_or(1)) > 0 {
            session.is_listed = true;
            self.idle.push_back(key);
        }
    }

    /// Finds room for an arrival on an open connection, the longest without one first.
    pub(super) fn dispatch_stream(&mut self, exchange: Exchange, now: u64) -> bool {
        let streams = self.plan.streams.unwrap_or(1);
        while let Some(key) = self.idle.pop_front() {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let Some(session) = &mut connection.session else { continue };
            session.is_listed = false;
            if connection.is_finished || session.room(streams) == 0 {
                continue;
            }
            connection.in_flight.push_back(exchange);
            self.outstanding += 1;
            self.give_streams(key, now);
            return true;
        }
        false
    }

    /// Reads until there is nothing more, and acts on what came. Returns the time.
    pub(super) fn read_streams(&mut self, key: Key) -> u64 {
        let mut now = 0;
        for _ in 0..READS_IN_A_ROW {
            let mut buffer = std::mem::take(&mut self.buffer);
            let mut section = std::mem::take(&mut self.section);
            let outcome = self.with_session(key, |worker, session| {
                worker.receive(key, session, &mut buffer, &mut section, &mut now)
            });
            self.buffer = buffer;
            self.section = section;
            match outcome {
                None | Some(Outcome::Wait) => return now,
                Some(Outcome::Ended) => {
                    self.end(key, now);
                    return now;
                }
                Some(Outcome::Failed(failure)) => {
                    self.fail(key, failure, monotonic_ns());
                    return now;
                }
                Some(_) => self.give_streams(key, now),
            }
            if !self.connections.get(key).is_some_and(|connection| connection.is_readable) {
                return now;
            }
        }
        // The others have a turn first.
        self.more.push(key);
        now
    }

    /// One `recv` and what it means.
    fn receive(
        &mut self,
        key: Key,
        session: &mut Session,
        buffer: &mut [u8],
        section: &mut Section,
        now: &mut u64,
    ) -> Outcome {
        let Some(connection) = self.connections.get_mut(key) else { return Outcome::Wait };
        // What was left of the read before goes in front of this one.
        let held = session.held.len();
        let Some((front, room)) = buffer.split_at_mut_checked(held) else {
            return Outcome::Failed(Failure::Malformed);
        };
        front.copy_from_slice(&session.held);
        let count = match connection.channel.recv(room) {
            Ok(Received::Bytes { count, drained }) => {
                connection.is_readable = !drained || connection.is_finished;
                count
            }
            Ok(Received::WouldBlock) => {
                connection.is_readable = false;
                return Outcome::Wait;
            }
            Ok(Received::End) => {
                *now = monotonic_ns();
                return self.closed_streams(session, *now);
            }
            Err(_) if session.is_dismissed => return Outcome::Failed(Failure::GoAway),
            Err(error) => return Outcome::Failed(broken(&error)),
        };
        *now = monotonic_ns();
        session.held.clear();
        let data = buffer.get(..held + count).unwrap_or_default();
        let mut at = 0;
        loop {
            let rest = data.get(at..).unwrap_or_default();
            match session.read(rest, section) {
                Ok((consumed, event)) => {
                    at += consumed;
                    self.count_received(session, event.as_ref(), consumed, *now);
                    let Some(event) = event else { break };
                    if let Some(error) = session.stray_error(&event) {
                        self.recorder.protocol_error(&error);
                    }
                    self.on_stream_event(session, event, section, *now);
                }
                Err(error) => {
                    self.recorder.received(rest.len(), 0, self.source.counts(*now));
                    self.recorder.protocol_error(&error);
                    return Outcome::Failed(failure_of_connection(error));
                }
            }
        }
        if session.is_flooded() {
            self.recorder.protocol_error(&FLOODED);
            return Outcome::Failed(Failure::Malformed);
        }
        session.held.extend_from_slice(data.get(at..).unwrap_or_default());
        Outcome::Free
    }

    /// Counts the bytes of what was read, for the request that they are of.
    #[inline]
    fn count_received(&mut self, session: &mut Session, event: Option<&Event<'_>>, count: usize, now: u64) {
        let (stream, body) = match event {
            Some(Event::Data { stream, data, .. }) => (Some(*stream), data.len()),
            Some(Event::Response { stream, .. } | Event::Interim { stream } | Event::Trailers { stream }) => {
                (Some(*stream), 0)
            }
            _ => (None, 0),
        };
        let under_way = stream.and_then(|stream| session.stream(stream));
        let body = if under_way.is_some() { body } else { 0 };
        let intended = under_way.map_or(now, |stream| stream.carried.exchange.intended);
        self.recorder.received(count, body, self.source.counts(intended));
    }

    #[inline]
    fn on_stream_event(&mut self, session: &mut Session, event: Event<'_>, section: &Section, now: u64) {
        let plan = self.plan;
        let deadline = now.saturating_add(ns(plan.timeout));
        match event {
            Event::Response { stream, is_end } => {
                if let Some(under_way) = session.stream(stream) {
                    under_way.status = section.response(&mut FieldSpace::new()).status;
                    under_way.first_byte = now;
                    under_way.deadline = deadline;
                }
                if is_end {
                    self.complete_stream(session, stream, now);
                }
            }
            Event::Interim { stream } => {
                if let Some(under_way) = session.interim(stream, deadline) {
                    self.give_up_stream(under_way, Failure::Malformed, false, now);
                }
            }
            Event::Data { stream, data, is_end } => {
                if let Some(under_way) = session.stream(stream) {
                    under_way.body_bytes += data.len() as u64;
                    under_way.deadline = deadline;
                    if plan.expectation.reads_bodies() {
                        let check =
                            under_way.carried.check.get_or_insert_with(|| Box::new(plan.expectation.begin()));
                        check.update(&plan.expectation, data);
                    }
                }
                session.release(stream, data.len());
                if is_end {
                    self.complete_stream(session, stream, now);
                }
            }
            Event::Trailers { stream } => self.complete_stream(session, stream, now),
            Event::Reset { stream, code } => {
                if let Some(under_way) = session.take(stream) {
                    let is_unread = code == ErrorCode::REFUSED_STREAM && under_way.status == 0;
                    self.give_up_stream(under_way, Failure::StreamReset, is_unread, now);
                }
            }
            Event::Broken { stream: Some(stream), error } => {
                if let Some(under_way) = session.take(stream) {
                    self.give_up_stream(under_way, failure_of_stream(error), false, now);
                }
            }
            Event::GoAway { last_stream, .. } => {
                session.is_leaving = true;
                session.is_dismissed = true;
                for under_way in session.take_all(|stream| stream.id() > last_stream) {
                    self.give_up_stream(under_way, Failure::GoAway, true, now);
                }
            }
            // A server opens no streams.
            Event::Broken { stream: None, .. } | Event::Request { .. } | Event::Refused { .. } => {}
        }
    }

    /// A request is over without an answer. One that the server has not read is sent anew.
    fn give_up_stream(&mut self, mut stream: Stream, failure: Failure, is_unread: bool, now: u64) {
        self.outstanding -= 1;
        let exchange = &mut stream.carried.exchange;
        exchange.attempts += 1;
        if is_unread && exchange.attempts < ATTEMPTS {
            if self.source.counts(exchange.intended) {
                self.recorder.sent_again(failure == Failure::GoAway || stream.is_before_settings);
            }
            self.source.give_back(*exchange);
        } else {
            self.give_up(GivenUp::stream(&stream), failure, now);
        }
    }

    /// A request is answered in full: counts it.
    #[inline]
    fn complete_stream(&mut self, session: &mut Session, stream: StreamKey, now: u64) {
        let Some(done) = session.take(stream) else { return };
        let answer = Answer {
            exchange: done.carried.exchange,
            status: done.status,
            first_byte: done.first_byte,
            body_bytes: done.body_bytes,
            is_paced: false,
        };
        self.count_answer(answer, done.carried.check, now);
    }

    /// The server has closed its side.
    fn closed_streams(&mut self, session: &mut Session, now: u64) -> Outcome {
        if session.open() == 0 {
            return Outcome::Ended;
        }
        if session.is_dismissed {
            return Outcome::Failed(Failure::GoAway);
        }
        for begun in session.take_all(|stream| stream.status != 0) {
            self.give_up_stream(begun, Failure::Truncated, false, now);
        }
        Outcome::Failed(Failure::Closed)
    }

    /// A connection's deadline has come: those of its requests that are over their time have failed, and with
    /// all of them the connection.
    pub(super) fn on_stream_timer(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(session) = &connection.session else { return };
        if connection.under_way() == 0 {
            return;
        }
        let overdue = session.overdue(now);
        if overdue == session.open() && now >= connection.deadline {
            return self.fail(key, Failure::Timeout, now);
        }
        if overdue > 0 {
            self.with_session(key, |worker, session| {
                for late in session.take_all(|stream| stream.deadline <= now) {
                    worker.give_up_stream(late, Failure::Timeout, false, now);
                }
            });
            self.give_streams(key, now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.under_way() > 0 {
            let next = connection.session.as_ref().and_then(|session| session.next_deadline());
            connection.deadline = next.unwrap_or(connection.deadline);
            let wait = Duration::from_nanos(connection.deadline.saturating_sub(now));
            self.wheel.arm(key.index(), wait);
        }
    }
}
