//! What events, timers and arrivals do to connections. What HTTP/2 does otherwise is in `streams`.

use super::{Worker, connect_failure};
use crate::check::BodyCheck;
use crate::clock::{monotonic_ns, ns};
use crate::connection::Exchange;
use crate::plan::Load;
use crate::record::{Failure, Stamps};
use crate::response::ResponseFault;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::Duration;
use tidegate_io::socket::Received;
use tidegate_io::{Key, Ready};

/// Until a connection with a pace of its own reads or sends on.
const PAUSE: Duration = Duration::from_millis(128);

/// Full buffers that one connection may read before others have their turn.
pub(super) const READS_IN_A_ROW: u32 = 32;

/// Bytes of a failed answer that a report shows.
const ANSWER_SHOWN: usize = 400;

/// What became of a connection that was read from.
pub(super) enum Outcome {
    /// It waits for more.
    Wait,
    /// More may be there.
    Again,
    /// Its budget is spent; the wheel brings it back.
    Pause,
    /// It has room for another request.
    Free,
    /// The server closed it, or it may carry no more.
    Ended,
    /// The server closed it while it was to stay idle.
    Dropped,
    Failed(Failure),
}

/// A complete answer, as far as it was not a check's.
pub(super) struct Answer {
    pub exchange: Exchange,
    pub status: u16,
    pub first_byte: u64,
    pub body_bytes: u64,
    /// It was read at a limited rate.
    pub is_paced: bool,
}

impl Worker<'_> {
    /// An event of a connection. Returns the time.
    pub(super) fn on_event(&mut self, event: &Ready) -> u64 {
        let key = event.key();
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        connection.is_finished |= event.read_closed || event.dead;
        if !connection.is_connected {
            let now = monotonic_ns();
            if event.writable || event.dead {
                self.try_connected(key, true, now);
            }
            return now;
        }
        if connection.channel.is_handshaking() {
            let now = monotonic_ns();
            self.shake(key, now);
            return now;
        }
        if event.writable && connection.has_unsent() {
            let now = monotonic_ns();
            self.flush(key, now);
        }
        if event.readable || event.read_closed || event.dead { self.read(key) } else { 0 }
    }

    /// The connect has ended, or may have (`is_certain` says which).
    pub(super) fn try_connected(&mut self, key: Key, is_certain: bool, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let result = if is_certain {
            connection.channel.connect_result()
        } else if connection.channel.is_tls() {
            match connection.channel.begin_handshake() {
                Ok(false) => return,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            }
        } else {
            // Sending tells: nothing goes while the connect is under way.
            let prepared = &self.plan.mix.prepared;
            let uncounted = connection.uncounted(prepared, |exchange| self.source.counts(exchange.intended));
            let sent = match &mut connection.session {
                None => connection.flush(prepared, now),
                Some(session) => session.send(&mut connection.channel, prepared, |_| u64::MAX),
            };
            match sent {
                Ok(0) => return,
                Ok(sent) => {
                    self.recorder.counts.bytes_sent += sent.saturating_sub(uncounted) as u64;
                    Ok(())
                }
                Err(error) => Err(error),
            }
        };
        if let Err(error) = result {
            return self.fail(key, connect_failure(&error), now);
        }
        connection.is_connected = true;
        self.connecting -= 1;
        let open = monotonic_ns();
        self.recorder.connected(open.saturating_sub(connection.opened));
        if connection.channel.is_tls() {
            connection.shaking_since = open;
            return self.shake(key, open);
        }
        self.opened_for_requests(key, now);
    }

    /// Goes on with a TLS handshake; when it is complete, requests may go.
    fn shake(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_resumed = match connection.channel.shake() {
            Ok(Some(is_resumed)) => is_resumed,
            Ok(None) => return,
            Err(error) => return self.fail(key, broken(&error), now),
        };
        let now = monotonic_ns();
        if self.plan.streams.is_some() && connection.channel.protocol() != Some(b"h2") {
            return self.fail(key, Failure::Tls, now);
        }
        self.recorder.shaken(now.saturating_sub(connection.shaking_since), is_resumed);
        // More may have come with the end of the handshake, and no event tells of it again.
        connection.is_readable = true;
        self.opened_for_requests(key, now);
        self.read(key);
    }

    /// Requests may go on a connection.
    fn opened_for_requests(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        for exchange in &mut connection.in_flight {
            exchange.sent = now;
        }
        if let Some(budget) = &mut connection.write_budget {
            budget.restart(now);
        }
        if self.plan.streams.is_some() {
            connection.deadline = now.saturating_add(ns(self.plan.timeout));
            self.wheel.arm(key.index(), self.plan.timeout);
            return self.give_streams(key, now);
        }
        if connection.in_flight.is_empty() || self.plan.pipeline > 1 {
            self.give(key, now);
        } else {
            self.flush(key, now);
        }
    }

    /// Sends what is unsent on a connection.
    fn flush(&mut self, key: Key, now: u64) {
        if self.plan.streams.is_some() {
            return self.give_streams(key, now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let prepared = &self.plan.mix.prepared;
        let uncounted = connection.uncounted(prepared, |exchange| self.source.counts(exchange.intended));
        match connection.flush(prepared, now) {
            Ok(sent) => {
                self.recorder.counts.bytes_sent += sent.saturating_sub(uncounted) as u64;
                if sent > 0 {
                    connection.deadline = now.saturating_add(ns(self.plan.timeout));
                }
                if connection.unsent > 0 && connection.write_budget.is_some() {
                    self.wheel.arm(key.index(), PAUSE);
                }
            }
            // The server may have answered before it closed; the answer is worth more than the fault.
            Err(_) if connection.is_finished => {}
            Err(error) => self.fail(key, broken(&error), now),
        }
    }

    /// Gives a connection its next requests, or the rest it has earned.
    pub(super) fn give(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_idle_run = self.plan.is_idle && connection.reader.status != 0;
        while connection.in_flight.len() < self.plan.pipeline as usize && !is_idle_run {
            let Some(exchange) = self.source.next(now) else { break };
            self.outstanding += 1;
            let server =
                self.plan.mix.prepared.get(exchange.request as usize).map_or(0, |request| request.server);
            if server != connection.server {
                // The next request is for another server: this connection makes room for one to it.
                self.remove(key);
                return self.open(Some(exchange), now);
            }
            connection.push(exchange);
        }
        if connection.unsent > 0 {
            connection.deadline = now.saturating_add(ns(self.plan.timeout));
            self.wheel.arm(key.index(), self.plan.timeout);
            for budget in [&mut connection.read_budget, &mut connection.write_budget].into_iter().flatten() {
                budget.restart(now);
            }
            return self.flush(key, now);
        }
        if !connection.in_flight.is_empty() {
            return; // a pipeline that runs dry
        }
        connection.deadline = u64::MAX;
        if matches!(self.plan.load, Load::Open { .. }) && !self.is_stopping {
            self.wheel.cancel(key.index());
            self.idle.push_back(key);
        } else if is_idle_run && !self.is_stopping {
            self.wheel.cancel(key.index());
        } else {
            self.remove(key);
        }
    }

    /// Reads until there is nothing more, and acts on what came. Returns the time.
    pub(super) fn read(&mut self, key: Key) -> u64 {
        if self.plan.streams.is_some() {
            return self.read_streams(key);
        }
        let mut now = 0;
        for _ in 0..READS_IN_A_ROW {
            match self.read_once(key, &mut now) {
                Outcome::Wait => return now,
                Outcome::Again => {}
                Outcome::Free => {
                    let drained = self.connections.get(key).is_none_or(|connection| !connection.is_readable);
                    self.give(key, now);
                    if drained {
                        return now;
                    }
                }
                Outcome::Pause => {
                    self.wheel.arm(key.index(), PAUSE);
                    return now;
                }
                Outcome::Ended => {
                    self.end(key, now);
                    return now;
                }
                Outcome::Dropped => {
                    self.drop_idle(key);
                    return now;
                }
                Outcome::Failed(failure) => {
                    self.fail(key, failure, monotonic_ns());
                    return now;
                }
            }
        }
        // The others have a turn first.
        self.more.push(key);
        now
    }

    /// One `recv` and what it means. `is_readable` of the connection says whether more may be there.
    #[inline]
    fn read_once(&mut self, key: Key, now: &mut u64) -> Outcome {
        let plan = self.plan;
        let Some(connection) = self.connections.get_mut(key) else { return Outcome::Wait };
        let mut room = self.buffer.len();
        if let Some(budget) = &connection.read_budget {
            *now = monotonic_ns();
            room = room.min(budget.left(*now));
            if room == 0 {
                connection.is_readable = true;
                return Outcome::Pause;
            }
        }
        let remaining = connection.reader.remaining().unwrap_or(0);
        let is_discarded =
            remaining > 4_096 && !plan.expectation.reads_bodies() && !connection.channel.is_tls();
        let received = if is_discarded {
            // Not past the body: the next head must be read.
            let room = room.min(usize::try_from(remaining).unwrap_or(usize::MAX));
            connection.channel.discard(self.buffer.get_mut(..room).unwrap_or_default())
        } else {
            connection.channel.recv(self.buffer.get_mut(..room).unwrap_or_default())
        };
        let count = match received {
            Ok(Received::Bytes { count, drained }) => {
                // The end of the stream is behind a short read too, where it was announced.
                connection.is_readable = !drained || connection.is_finished;
                count
            }
            Ok(Received::WouldBlock) => {
                connection.is_readable = false;
                return Outcome::Wait;
            }
            Ok(Received::End) => {
                *now = monotonic_ns();
                return self.closed(key, *now);
            }
            Err(error) => return Outcome::Failed(broken(&error)),
        };
        *now = monotonic_ns();
        if let Some(budget) = &mut connection.read_budget {
            budget.spend(count);
            // The time limit is one of silence, and this was none.
            connection.deadline = now.saturating_add(ns(plan.timeout));
        } else if connection.reader.is_in_body() {
            connection.deadline = now.saturating_add(ns(plan.timeout));
            self.wheel.arm(key.index(), plan.timeout);
        }
        if is_discarded {
            let intended = connection.in_flight.front().map_or(*now, |exchange| exchange.intended);
            let is_counted = self.source.counts(intended);
            self.recorder.received(count, count, is_counted);
            if connection.reader.skip(count as u64) {
                return self.complete(key, *now);
            }
            return if connection.is_readable { Outcome::Again } else { Outcome::Wait };
        }
        let mut from = 0;
        let outcome = self.take_bytes(key, &mut from, count, *now);
        // What stands behind an answer, or is none.
        self.recorder.received(count - from, 0, self.source.counts(*now));
        outcome
    }

    /// Bytes that were copied: reads them as responses, from `from` on, which moves to what is not read.
    #[inline]
    fn take_bytes(&mut self, key: Key, from: &mut usize, count: usize, now: u64) -> Outcome {
        let plan = self.plan;
        let mut began = usize::MAX;
        let mut is_free = false;
        while *from < count {
            let Some(connection) = self.connections.get_mut(key) else { return Outcome::Wait };
            let Some(exchange) = connection.in_flight.front() else {
                self.recorder.counts.surplus += 1;
                return Outcome::Failed(Failure::Malformed); // an answer to nothing
            };
            let method =
                plan.mix.prepared.get(exchange.request as usize).map_or("GET", |request| &request.method);
            let begins_here = connection.reader.is_between();
            if begins_here {
                connection.first_byte = now;
                began = *from;
            }
            let input = self.buffer.get(*from..count).unwrap_or_default();
            let fed = match connection.reader.feed(input, method) {
                Ok(fed) => fed,
                Err(fault) => return Outcome::Failed(fault.failure()),
            };
            self.recorder.received(fed.consumed, fed.data.len(), self.source.counts(exchange.intended));
            let mut is_newly_wrong = false;
            if plan.expectation.reads_bodies() && !fed.data.is_empty() {
                let check = connection.check.get_or_insert_with(|| Box::new(plan.expectation.begin()));
                check.update(&plan.expectation, fed.data);
                is_newly_wrong = check.is_wrong() && !check.is_counted;
            }
            let (consumed, is_complete) = (fed.consumed, fed.is_complete);
            *from += consumed;
            if is_newly_wrong {
                self.count_wrong(key, began..*from, now);
            }
            if is_complete {
                let kept = self.failed.len();
                let outcome = self.complete(key, now);
                self.show_answer(kept, began..*from);
                began = usize::MAX;
                match outcome {
                    Outcome::Free => is_free = true,
                    Outcome::Wait => {}
                    outcome => {
                        let is_last = self
                            .connections
                            .get(key)
                            .is_some_and(|connection| connection.in_flight.is_empty());
                        self.recorder.counts.surplus += u64::from(is_last && *from < count);
                        return outcome;
                    }
                }
            }
        }
        if is_free {
            return Outcome::Free;
        }
        let is_readable = self.connections.get(key).is_some_and(|connection| connection.is_readable);
        if is_readable { Outcome::Again } else { Outcome::Wait }
    }

    /// What has come of the front answer is not what was expected: counts that at once, whatever becomes of the rest. Its
    /// beginning may be in the buffer.
    #[cold]
    fn count_wrong(&mut self, key: Key, answer: Range<usize>, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (Some(check), Some(exchange)) = (&mut connection.check, connection.in_flight.front()) else {
            return;
        };
        let (request, status) = (exchange.request, connection.reader.status);
        if !self.source.counts(exchange.intended) || !self.plan.expectation.allows_status(status) {
            return;
        }
        check.is_counted = true;
        self.recorder.fail(Failure::Check, 1);
        let kept = self.failed.len();
        self.keep_failed(request, Failure::Check, Some(status), now);
        self.show_answer(kept, answer);
    }

    /// Adds the beginning of an answer in the buffer to what failed as number `kept`, if that is among the first.
    fn show_answer(&mut self, kept: usize, answer: Range<usize>) {
        if let (Some(failed), Some(answer)) = (self.failed.get_mut(kept), self.buffer.get(answer)) {
            let beginning = answer.get(..ANSWER_SHOWN).unwrap_or(answer);
            failed.answer = Some(beginning.escape_ascii().to_string());
        }
    }

    /// The front exchange is answered in full: counts it.
    #[inline]
    fn complete(&mut self, key: Key, now: u64) -> Outcome {
        let plan = self.plan;
        let Some(connection) = self.connections.get_mut(key) else { return Outcome::Wait };
        let Some(exchange) = connection.in_flight.pop_front() else { return Outcome::Wait };
        let reader = &connection.reader;
        let answer = Answer {
            exchange,
            status: reader.status,
            first_byte: connection.first_byte,
            body_bytes: reader.body_bytes,
            is_paced: connection.read_budget.is_some(),
        };
        let is_usable = reader.keep_alive && plan.keep_alive && !plan.is_once;
        let outcome = if connection.unsent > connection.in_flight.len() {
            // Answered before it was sent to the end: what the rest would mean nobody knows.
            connection.unsent = connection.in_flight.len();
            connection.offset = 0;
            Outcome::Ended
        } else {
            match (is_usable, connection.is_finished) {
                (true, false) => Outcome::Free,
                // The end of the stream was announced; answers to what is in flight may stand before it.
                (true, true) if !connection.in_flight.is_empty() => Outcome::Wait,
                _ => Outcome::Ended,
            }
        };
        let check = connection.check.take();
        self.count_answer(answer, check, now);
        outcome
    }

    /// Counts a complete answer, and judges it.
    #[inline]
    pub(super) fn count_answer(&mut self, answer: Answer, check: Option<Box<BodyCheck>>, now: u64) {
        let plan = self.plan;
        let Answer { exchange, status, first_byte, body_bytes, is_paced } = answer;
        self.outstanding -= 1;
        self.answered += 1;
        self.last_answer = now;
        self.has_answer = true;
        self.failures_in_a_row = 0;
        self.has_connect_failure = false;
        if !self.source.counts(exchange.intended) {
            self.recorder.counts.warmup += 1;
            self.recorder.counts.warmup_answered += 1;
            return;
        }
        let stamps = Stamps { intended: exchange.intended, sent: exchange.sent, first_byte, last_byte: now };
        self.recorder.answered(status, stamps);
        let mut failure = None;
        if !plan.expectation.allows_status(status) {
            failure = Some(Failure::Status);
        } else if plan.expectation.length.is_some_and(|length| length != body_bytes) {
            failure = Some(Failure::Check);
        }
        let mut is_counted = false;
        if plan.expectation.reads_bodies() {
            let check = check.map_or_else(|| plan.expectation.begin(), |check| *check);
            is_counted = check.is_counted;
            let (is_right, crc) = check.finish(&plan.expectation);
            if !is_right && failure.is_none() {
                failure = Some(Failure::Check);
            }
            if let Some(crc) = crc.filter(|_| failure.is_none()) {
                count_digest(&mut self.digests, exchange.request, crc);
            }
        }
        if plan.min_bitrate.is_some() || is_paced {
            let seconds = now.saturating_sub(exchange.sent).max(1) as f64 / 1e9;
            let speed = body_bytes as f64 / seconds;
            self.recorder.speed(speed as u64);
            let conforms = failure.is_none() && plan.min_bitrate.is_none_or(|bitrate| speed * 8.0 >= bitrate);
            self.recorder.counts.conforming += u64::from(conforms);
        }
        match failure {
            None => self.recorder.succeed(),
            Some(_) if is_counted => {}
            Some(failure) => {
                self.recorder.fail(failure, 1);
                self.keep_failed(exchange.request, failure, Some(status), now);
            }
        }
    }

    /// The server has closed its side.
    fn closed(&mut self, key: Key, now: u64) -> Outcome {
        let Some(connection) = self.connections.get_mut(key) else { return Outcome::Wait };
        match connection.reader.close() {
            Ok(true) => match self.complete(key, now) {
                Outcome::Free => Outcome::Ended,
                outcome => outcome,
            },
            Ok(false) if connection.in_flight.is_empty() && self.plan.is_idle => Outcome::Dropped,
            Ok(false) if connection.in_flight.is_empty() => Outcome::Ended,
            Ok(false) => Outcome::Failed(Failure::Closed),
            Err(ResponseFault::Body(_) | ResponseFault::NoResponse) => Outcome::Failed(Failure::Truncated),
            Err(fault) => Outcome::Failed(fault.failure()),
        }
    }

    /// The server has closed a connection that was to stay. It gets no successor: that would be a flood of
    /// connects to a server that keeps none.
    fn drop_idle(&mut self, key: Key) {
        self.recorder.counts.dropped += u64::from(!self.is_stopping);
        self.remove(key);
    }

    /// A connection has done its service. What it still carried is sent anew on another: the server said that
    /// it would not answer it.
    pub(super) fn end(&mut self, key: Key, now: u64) {
        let Some(mut connection) = self.remove(key) else { return };
        if !connection.is_finished {
            // The server has not closed yet. A reset keeps the port from waiting a minute on our side, which
            // would end a long run for want of ports.
            connection.channel.reset_on_close();
        }
        let returned = connection.in_flight.len();
        self.outstanding -= returned as u64;
        // Of HTTP/2 these were not begun.
        let sent = if connection.session.is_some() { 0 } else { returned.saturating_sub(connection.unsent) };
        for (place, exchange) in connection.in_flight.drain(..).enumerate() {
            if place < sent && self.source.counts(exchange.intended) {
                self.recorder.sent_again(true);
            }
            self.source.give_back(exchange);
        }
        drop(connection);
        if self.plan.is_idle {
            // Answered, and not kept: it will not be idle.
            self.recorder.counts.dropped += u64::from(!self.is_stopping);
            return;
        }
        if matches!(self.plan.load, Load::Open { .. }) {
            if self.plan.keep_alive {
                self.rest(now);
            }
            self.serve_waiting(now);
        } else if !self.plan.is_once {
            self.resting.push_back(now);
        }
    }

    /// A deadline on the wheel has passed.
    pub(super) fn on_timer(&mut self, index: u32, now: u64) {
        let Some(key) = self.connections.key_of(index) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.session.is_some() && connection.is_connected && !connection.channel.is_handshaking() {
            return self.on_stream_timer(key, now);
        }
        if now >= connection.deadline {
            let failure = if connection.is_connected { Failure::Timeout } else { Failure::ConnectTimeout };
            return self.fail(key, failure, now);
        }
        if connection.deadline != u64::MAX {
            self.wheel.arm(index, Duration::from_nanos(connection.deadline - now));
        }
        if !connection.is_connected {
            return;
        }
        let is_readable = connection.is_readable;
        if connection.unsent > 0 {
            self.flush(key, now);
        }
        if is_readable {
            self.read(key);
        }
    }

    // ------------------------------------------------------------ arrivals

    /// Takes the arrivals that are due.
    pub(super) fn take_arrivals(&mut self, now: u64) {
        while let Some(intended) = self.source.arrive(now) {
            if self.source.counts(intended) {
                self.recorder.late(now.saturating_sub(intended));
            }
            self.dispatch(intended, now);
        }
    }

    /// Finds a connection for an arrival: a free one, a new one, or a place in the queue.
    fn dispatch(&mut self, intended: u64, now: u64) {
        let exchange = Exchange { intended, sent: now, request: self.source.draw(), attempts: 0 };
        let server =
            self.plan.mix.prepared.get(exchange.request as usize).map_or(0, |request| request.server);
        if self.plan.streams.is_some() && self.dispatch_stream(exchange, now) {
            return;
        }
        while let Some(key) = self.idle.pop_front() {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if !connection.in_flight.is_empty() {
                continue;
            }
            if connection.server != server {
                // Another server's turn: the connection makes room for one to this.
                self.remove(key);
                break;
            }
            self.outstanding += 1;
            connection.push(exchange);
            connection.deadline = now.saturating_add(ns(self.plan.timeout));
            self.wheel.arm(key.index(), self.plan.timeout);
            return self.flush(key, now);
        }
        if (self.connections.len() as u32) < self.plan.connections_of(self.number) {
            self.outstanding += 1;
            return self.open(Some(exchange), now);
        }
        self.recorder.counts.queued += 1;
        self.source.put_back();
        self.source.wait(intended);
    }

    /// Arrivals wait and there is room for a connection: opens one for the first.
    pub(super) fn serve_waiting(&mut self, now: u64) {
        while matches!(self.plan.load, Load::Open { .. })
            && self.source.waiting() > 0
            && (self.connections.len() as u32) < self.plan.connections_of(self.number)
        {
            let Some(exchange) = self.source.next(now) else { return };
            self.outstanding += 1;
            self.open(Some(exchange), now);
        }
    }
}

/// The kind of failure that an error of `send` or `recv` is.
pub(super) fn broken(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::Refused,
        io::ErrorKind::TimedOut => Failure::Timeout,
        io::ErrorKind::InvalidData => Failure::Tls,
        _ => Failure::Reset,
    }
}

/// Few different digests are expected, mostly one of each request.
fn count_digest(digests: &mut HashMap<(u32, u32), u64>, request: u32, crc: u32) {
    if let Some(count) = digests.get_mut(&(request, crc)) {
        *count += 1;
    } else if digests.len() < 100_000 {
        digests.insert((request, crc), 1);
    }
}
