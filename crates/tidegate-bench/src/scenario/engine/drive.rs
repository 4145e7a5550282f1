//! The connections of users: opened, written, read, closed. What HTTP/2 does otherwise is in `streams`.

use super::connection::{Exchange, Purpose, State, Streams, Unanswered, UserConnection};
use super::operate::Answer;
use super::request::Request;
use super::worker::Worker;
use crate::clock::monotonic_ns;
use crate::connection::Channel;
use crate::record::{Failure, Stamps};
use crate::response::ResponseFault;
use crate::worker::connect_failure;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;
use tidegate_io::connect::{Connecting, connect};
use tidegate_io::socket::Received;
use tidegate_io::{Key, Kind, Ready};
use tidegate_tls::ClientSession;

/// Full buffers that one connection may read before others have their turn.
pub(super) const READS_IN_A_ROW: u32 = 8;

/// Bytes of a body that are looked at; what is behind them is read and not kept.
pub(super) const BODY_KEPT: usize = 4 << 20;

/// The same of an answer that says that it is an error, where nobody else looks.
pub(super) const BODY_OF_FAILED_KEPT: usize = 400;

/// Bytes of a body above which, where nobody looks, the kernel discards it.
const DISCARDED_FROM: u64 = 4_096;

impl Worker<'_> {
    /// Sends a request on a connection of the user that is free, else on a new one.
    pub(super) fn send(&mut self, place: usize, exchange: Exchange, request: Request, now: u64) {
        if self.scenario.client.streams.is_some() {
            return self.send_stream(place, exchange, request, now);
        }
        let Some(user) = self.users.get(place) else { return };
        let free = user.connections.iter().rev().copied();
        let free =
            free.into_iter().find(|key| self.connections.get(*key).is_some_and(UserConnection::is_free));
        let key = match free {
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
        connection.exchange = Some(Exchange { sent: now, ..exchange });
        connection.out = request.into_http1();
        connection.sent = 0;
        connection.deadline = self.scenario.client.deadline(now, now);
        self.wheel.arm(key.index(), Duration::from_nanos(connection.deadline.saturating_sub(now)));
        if connection.state == State::Open {
            self.flush(key, now);
        }
    }

    /// Begins to open a connection.
    pub(super) fn open(&mut self, place: usize, now: u64) -> io::Result<Key> {
        let shared = self.shared;
        let plan = &shared.plan;
        let server = plan.mix.servers.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let turn = self.opened;
        self.opened += u64::from(plan.threads);
        let pick = |count: usize| (turn % count.max(1) as u64) as usize;
        let address =
            server.addresses.get(pick(server.addresses.len())).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let source = plan.sources.get(pick(plan.sources.len())).map(|ip| SocketAddr::new(*ip, 0));
        let (stream, connecting) = connect(address, source)?;
        let channel = match (&server.tls_name, &plan.tls) {
            (Some(name), Some(tls)) => {
                let session = ClientSession::new(&tls.resuming, name.clone()).map_err(io::Error::from)?;
                Channel::with_tls(stream, session)
            }
            _ => Channel::new(stream),
        };
        let mut connection = UserConnection::new(channel, place as u32, now);
        if self.scenario.client.streams.is_some() {
            connection.streams = Some(Box::new(Streams::new()));
        }
        let key = self.connections.insert(connection);
        let Some(connection) = self.connections.get(key) else { return Err(io::ErrorKind::Other.into()) };
        if let Err(error) = self.registry.add(connection.channel.as_fd(), Kind::Connection, key) {
            self.connections.remove(key);
            return Err(error);
        }
        if let Some(user) = self.users.get_mut(place) {
            user.connections.push(key);
        }
        if connecting == Connecting::Done {
            self.connected(key, now);
        }
        Ok(key)
    }

    /// An event of a connection.
    pub(super) fn on_event(&mut self, event: &Ready) {
        let key = event.key();
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.is_finished |= event.read_closed || event.dead;
        let now = monotonic_ns();
        match connection.state {
            State::Connecting => {
                if event.writable || event.dead {
                    match connection.channel.connect_result() {
                        Ok(()) => self.connected(key, now),
                        Err(error) => return self.lost(key, connect_failure(&error), now),
                    }
                    self.flush(key, now);
                }
                return;
            }
            State::Shaking => return self.shake(key, now),
            State::Open => {}
        }
        if event.writable {
            self.flush(key, now);
        }
        if event.readable || event.read_closed || event.dead {
            self.read(key);
        }
    }

    fn connected(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.recorder.connected(now.saturating_sub(connection.since));
        connection.since = now;
        connection.state = if connection.channel.is_tls() { State::Shaking } else { State::Open };
        if connection.state == State::Shaking {
            match connection.channel.begin_handshake() {
                Ok(_) => {}
                Err(_) => self.lost(key, Failure::Tls, now),
            }
        }
    }

    fn shake(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.channel.shake() {
            // Who wants HTTP/2 and is given something else would not understand a byte.
            Ok(Some(_)) if connection.streams.is_some() && connection.channel.protocol() != Some(b"h2") => {
                self.lost(key, Failure::Tls, now);
            }
            Ok(Some(is_resumed)) => {
                self.recorder.shaken(now.saturating_sub(connection.since), is_resumed);
                connection.state = State::Open;
                self.flush(key, now);
                self.read(key);
            }
            Ok(None) => {}
            Err(error) => self.lost(key, failure_of(&error), now),
        }
    }

    fn flush(&mut self, key: Key, now: u64) {
        if self.scenario.client.streams.is_some() {
            return self.flush_streams(key, now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.state != State::Open {
            return;
        }
        let place = connection.user as usize;
        match connection.flush() {
            Ok(count) => {
                // Content that moves on is no silence.
                if let Some(exchange) = connection.exchange.filter(|_| count > 0) {
                    connection.deadline = self.scenario.client.deadline(exchange.sent, now);
                }
                if self.measures(place) {
                    self.recorder.counts.bytes_sent += count as u64;
                }
            }
            // An answer may have come before the server closed.
            Err(_) if connection.is_finished => {}
            Err(error) => self.lost(key, failure_of(&error), now),
        }
    }

    /// Reads until there is nothing more.
    pub(super) fn read(&mut self, key: Key) {
        if self.scenario.client.streams.is_some() {
            return self.read_streams(key);
        }
        for _ in 0..READS_IN_A_ROW {
            let is_measured =
                self.connections.get(key).is_some_and(|connection| self.measures(connection.user as usize));
            let Some(connection) = self.connections.get_mut(key) else { return };
            if connection.state != State::Open {
                return;
            }
            let remaining = connection.reader.remaining().unwrap_or(0);
            let needs_body = connection.exchange.is_some_and(|exchange| exchange.needs_body);
            let is_discarded = !needs_body && remaining > DISCARDED_FROM && !connection.channel.is_tls();
            let received = if is_discarded {
                let room = usize::try_from(remaining).unwrap_or(usize::MAX).min(self.buffer.len());
                connection.channel.discard(self.buffer.get_mut(..room).unwrap_or_default())
            } else {
                connection.channel.recv(&mut self.buffer)
            };
            let now = monotonic_ns();
            let (count, drained) = match received {
                Ok(Received::Bytes { count, drained }) => (count, drained && !connection.is_finished),
                Ok(Received::WouldBlock) => return,
                Ok(Received::End) => return self.closed(key, now),
                Err(error) => return self.lost(key, failure_of(&error), now),
            };
            if let Some(exchange) = &connection.exchange {
                connection.deadline = self.scenario.client.deadline(exchange.sent, now);
            }
            if is_measured {
                self.recorder.counts.bytes += count as u64;
            }
            if is_discarded {
                if connection.reader.skip(count as u64) {
                    self.complete(key, now);
                }
            } else {
                self.take_bytes(key, count, now);
            }
            if drained {
                return;
            }
        }
        self.more.push(key);
    }

    /// Bytes that were copied: reads them as an answer.
    fn take_bytes(&mut self, key: Key, count: usize, now: u64) {
        let mut from = 0;
        while from < count {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let Some(exchange) = connection.exchange else {
                // Bytes that nobody asked for.
                return self.has_surplus(key);
            };
            if connection.reader.is_between() {
                connection.first_byte = now;
            }
            let is_head = self.users.get(connection.user as usize).is_some_and(|user| {
                let operation = self.scenario.operations.get(user.operation);
                exchange.purpose == Purpose::Step
                    && operation
                        .and_then(|known| known.steps.get(user.step))
                        .is_some_and(|step| step.method == "HEAD")
            });
            let input = self.buffer.get(from..count).unwrap_or_default();
            let fed = match connection.reader.feed(input, if is_head { "HEAD" } else { "GET" }) {
                Ok(fed) => fed,
                Err(fault) => return self.lost(key, fault.failure(), now),
            };
            // Of an answer that fails its operation a report shows the beginning.
            let most = match (exchange.needs_body, connection.reader.status) {
                (true, _) => BODY_KEPT,
                (false, 400..) => BODY_OF_FAILED_KEPT,
                _ => 0,
            };
            let room = most.saturating_sub(connection.body.len()).min(fed.data.len());
            connection.body.extend_from_slice(fed.data.get(..room).unwrap_or_default());
            from += fed.consumed;
            if fed.is_complete {
                // What stands behind it would be taken for the answer to the request that comes next.
                let has_surplus = from < count;
                connection.is_finished |= has_surplus;
                self.recorder.counts.surplus += u64::from(has_surplus);
                return self.complete(key, now);
            }
        }
    }

    /// Bytes that nobody asked for.
    fn has_surplus(&mut self, key: Key) {
        self.recorder.counts.surplus += 1;
        self.remove(key);
    }

    /// An answer has come to its end.
    fn complete(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(exchange) = connection.exchange.take() else { return };
        self.failing_since = None;
        connection.answered = connection.answered.saturating_add(1);
        connection.deadline = u64::MAX;
        let place = connection.user as usize;
        let answer = Answer {
            exchange,
            status: connection.reader.status,
            head: std::mem::take(&mut connection.reader.head),
            body: std::mem::take(&mut connection.body),
            is_cut: exchange.needs_body && connection.reader.body_bytes > BODY_KEPT as u64,
            body_bytes: connection.reader.body_bytes,
        };
        let stamps = Stamps {
            intended: exchange.due,
            sent: exchange.sent,
            first_byte: connection.first_byte,
            last_byte: now,
        };
        // What is still to be sent of a request that was answered early cannot be told from the next one.
        let is_over = !connection.reader.keep_alive || !connection.out.is_empty() || connection.is_finished;
        self.wheel.cancel(key.index());
        if is_over {
            self.remove(key);
        }
        self.take_answer(place, answer, stamps, now);
    }

    /// Counts an answer, and gives it to its user.
    pub(super) fn take_answer(&mut self, place: usize, answer: Answer, stamps: Stamps, now: u64) {
        if let Some(user) = self.users.get(place).filter(|_| self.measures(place)) {
            let step = user.step_of(self.scenario).filter(|_| answer.exchange.purpose == Purpose::Step);
            let is_allowed = step.map_or(answer.status < 400, |step| {
                step.expect.allows_status(answer.status) || answer.status < 400
            });
            self.recorder.answered(answer.status, stamps);
            if is_allowed {
                self.recorder.succeed();
            } else {
                self.recorder.fail(Failure::Status, 1);
            }
        } else {
            self.recorder.counts.warmup += 1;
        }
        self.answered(place, answer, now);
    }

    /// The server has closed a connection.
    fn closed(&mut self, key: Key, now: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.is_finished = true;
        if connection.exchange.is_none() {
            self.remove(key);
            return;
        }
        let failure = match connection.reader.close() {
            Ok(true) => return self.complete(key, now),
            Ok(false) => Failure::Closed,
            Err(ResponseFault::Body(_)) => Failure::Truncated,
            Err(fault) => fault.failure(),
        };
        self.lost(key, failure, now);
    }

    /// A connection is no good any more. A request that it was kept for, and that has not one byte of an answer, is sent
    /// again on a new one, as browsers do: the server may have closed it while it was idle.
    pub(super) fn lost(&mut self, key: Key, failure: Failure, now: u64) {
        let Some(mut connection) = self.remove(key) else { return };
        if connection.state != State::Open {
            self.connect_failed(connection.since, now);
        }
        if let Some(streams) = connection.streams.take() {
            return self.lost_streams(&connection, *streams, failure, now);
        }
        let Some(exchange) = connection.exchange else { return };
        let place = connection.user as usize;
        let was_idle = connection.answered > 0 && connection.reader.is_between() && exchange.attempts == 0;
        if was_idle && matches!(failure, Failure::Closed | Failure::Reset) {
            if self.measures(place) {
                self.recorder.counts.sent_again += 1;
            }
            return self.send_again(place, exchange, now);
        }
        let unanswered = connection.unanswered(&exchange);
        self.broken_off(place, failure, unanswered, now);
    }

    /// Sends a request again that the server has not taken.
    pub(super) fn send_again(&mut self, place: usize, exchange: Exchange, now: u64) {
        if let Some(user) = self.users.get_mut(place) {
            user.under_way = user.under_way.saturating_sub(1);
        }
        self.ask_again(place, Exchange { attempts: exchange.attempts.saturating_add(1), ..exchange }, now);
    }

    /// A connect or a handshake that began at `began` has failed.
    fn connect_failed(&mut self, began: u64, now: u64) {
        self.failing_since.get_or_insert(began);
        self.failed_last = now;
    }

    /// A request has got no answer.
    pub(super) fn broken_off(&mut self, place: usize, failure: Failure, unanswered: Unanswered, now: u64) {
        if matches!(failure, Failure::Refused | Failure::Connect | Failure::ConnectTimeout) {
            self.connect_failed(now, now);
        }
        if self.measures(place) {
            self.recorder.gave_up(unanswered.waited(now));
            self.recorder.fail(failure, 1);
        }
        if let Some(user) = self.users.get_mut(place) {
            user.under_way = user.under_way.saturating_sub(1);
        }
        let reason = match failure {
            Failure::Timeout => {
                self.scenario.client.timed_out(unanswered.sent.unwrap_or(unanswered.due), now)
            }
            _ => failure.sentence().to_owned(),
        };
        self.fail(place, failure, reason, None, now);
    }

    /// A timer of a connection has run out.
    pub(super) fn on_timer(&mut self, index: u32, now: u64) {
        let Some(key) = self.connections.key_of(index) else { return };
        let Some(connection) = self.connections.get(key) else { return };
        if connection.deadline == u64::MAX {
            return;
        }
        if now < connection.deadline {
            let left = connection.deadline - now;
            return self.wheel.arm(index, Duration::from_nanos(left));
        }
        if connection.state == State::Open && connection.streams.is_some() {
            return self.on_stream_timer(key, now);
        }
        let failure =
            if connection.state == State::Connecting { Failure::ConnectTimeout } else { Failure::Timeout };
        if let Some(connection) = self.connections.get(key) {
            connection.channel.reset_on_close();
        }
        self.lost(key, failure, now);
    }

    /// Takes a connection out.
    pub(super) fn remove(&mut self, key: Key) -> Option<UserConnection> {
        self.wheel.cancel(key.index());
        let connection = self.connections.remove(key)?;
        if connection.state != State::Connecting {
            self.recorder.disconnected();
        }
        if let Some(user) = self.users.get_mut(connection.user as usize) {
            user.connections.retain(|known| *known != key);
        }
        Some(connection)
    }
}

/// What the system's error on an open connection is.
pub(super) fn failure_of(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidData => Failure::Tls,
        io::ErrorKind::UnexpectedEof => Failure::Closed,
        _ => Failure::Reset,
    }
}
