//! One connection of the generator: its socket, what is in flight on it, and the reading and writing of it.
//!
//! A state machine that the worker drives by readiness. It decides nothing: which request comes next and what
//! an answer counts as is the worker's. An idle one holds no buffer.

use crate::check::BodyCheck;
use crate::http2::{Carried, Session};
use crate::request::Prepared;
use crate::response::ResponseReader;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use tidegate_io::socket::{Received, Stream};
use tidegate_tls::ClientSession;

/// The bytes of a connection: TCP or a unix socket, with TLS on it or without.
pub(crate) struct Channel {
    stream: Stream,
    tls: Option<Box<ClientSession>>,
}

impl Channel {
    pub fn new(stream: Stream) -> Self {
        Channel { stream, tls: None }
    }

    /// Speaks TLS from the first byte on.
    pub fn with_tls(stream: Stream, session: ClientSession) -> Self {
        Channel { stream, tls: Some(Box::new(session)) }
    }

    #[inline]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether a TLS handshake comes before any request.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Sends the first message of the handshake. `false`: the socket takes nothing yet.
    ///
    /// # Errors
    /// The socket fails, or the first message cannot be made.
    pub fn begin_handshake(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.tls else { return Ok(true) };
        session.advance(|bytes| self.stream.send(bytes, false))?;
        Ok(!session.has_pending())
    }

    /// Goes on with the handshake as far as bytes have come; whether a session was resumed, once it is over.
    ///
    /// # Errors
    /// The socket fails, the server closes, or the handshake fails.
    pub fn shake(&mut self) -> io::Result<Option<bool>> {
        let Some(session) = &mut self.tls else { return Ok(Some(false)) };
        session.advance(|bytes| self.stream.send(bytes, false))?;
        while session.is_handshaking() {
            // What follows the handshake at once is kept until it is asked for.
            let received = session.receive(&mut [], |buffer| self.stream.recv(buffer));
            if received.is_err() {
                let _ = session.flush(|bytes| self.stream.send(bytes, false)); // the alert says why
            }
            match received? {
                Received::Bytes { .. } => session.advance(|bytes| self.stream.send(bytes, false))?,
                Received::WouldBlock => return Ok(None),
                Received::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(Some(session.agreed().is_some_and(|agreed| agreed.is_resumed)))
    }

    /// Receives; over TLS what was opened. The count may be 0 then although something came.
    ///
    /// # Errors
    /// The socket or the TLS session fails.
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let Some(session) = &mut self.tls else { return self.stream.recv(buffer) };
        let received = session.receive(buffer, |buffer| self.stream.recv(buffer))?;
        if session.has_pending() {
            session.flush(|bytes| self.stream.send(bytes, false))?;
        }
        Ok(received)
    }

    /// Receives without copying: the kernel drops the bytes and says how many (`MSG_TRUNC`, `tcp(7)`). For
    /// bodies that nobody looks at, and not over TLS.
    ///
    /// # Errors
    /// The socket fails.
    pub fn discard(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let room = buffer.len();
        match recv(&self.stream, buffer, RecvFlags::TRUNC) {
            Ok((_, 0)) => Ok(Received::End),
            Ok((_, count)) => Ok(Received::Bytes { count, drained: count < room }),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Received::WouldBlock),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends as much as the socket takes; over TLS some of that may wait here, see [`Channel::has_pending`].
    ///
    /// # Errors
    /// The socket fails, or the data cannot be sealed.
    #[inline]
    pub fn send(&mut self, data: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.send(data, false),
            Some(session) => session.send(data, |bytes| self.stream.send(bytes, false)),
        }
    }

    fn send_all(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.stream.send_all(pieces, false);
        }
        let mut taken = 0;
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let sent = self.send(piece)?;
            taken += sent;
            if sent < piece.len() {
                break;
            }
        }
        Ok(taken)
    }

    /// Whether something that was sent still waits here for the socket.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_pending())
    }

    /// Sends what waits here; whether all of it is gone.
    ///
    /// # Errors
    /// The socket fails.
    pub fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(session) => session.flush(|bytes| self.stream.send(bytes, false)),
        }
    }

    /// What the server has chosen by ALPN.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.tls.as_ref().and_then(|session| session.protocol())
    }

    /// How the connect has ended.
    ///
    /// # Errors
    /// The connect has failed, with this error.
    pub fn connect_result(&self) -> io::Result<()> {
        self.stream.connect_result()
    }

    pub fn reset_on_close(&self) {
        self.stream.reset_on_close();
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange {
    /// When it was meant to start, monotonic nanoseconds.
    pub intended: u64,
    /// When its first byte was sent.
    pub sent: u64,
    /// Its number in the mix.
    pub request: u32,
    /// How often the server has turned it away unread.
    pub attempts: u8,
}

/// One of them on a stream of HTTP/2, and the check of the body of its answer.
pub(crate) struct Asked {
    pub exchange: Exchange,
    pub check: Option<Box<BodyCheck>>,
}

impl Carried for Asked {
    type Bytes = [Prepared];

    fn bytes<'b>(&'b self, prepared: &'b [Prepared]) -> &'b [u8] {
        prepared.get(self.exchange.request as usize).map_or(&[][..], |request| &request.bytes)
    }
}

/// A connection of limited rate may be ahead by what it earns in this time: about the tick of its timer, so
/// that waiting for the tick costs it nothing.
const BURST: u128 = 125_000_000;

/// How many bytes may be moved by now, for a connection of limited rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    rate: u64,
    since: u64,
    moved: u64,
}

impl Budget {
    pub fn new(rate: u64, now: u64) -> Self {
        Budget { rate, since: now, moved: 0 }
    }

    /// What may be moved at `now`.
    pub fn left(&self, now: u64) -> usize {
        let elapsed = u128::from(now.saturating_sub(self.since));
        let earned = u128::from(self.rate).saturating_mul(elapsed + BURST) / 1_000_000_000;
        usize::try_from(earned.saturating_sub(u128::from(self.moved))).unwrap_or(usize::MAX)
    }

    pub fn spend(&mut self, count: usize) {
        self.moved = self.moved.saturating_add(count as u64);
    }

    /// Starts anew: what was not used while nothing was to be moved is gone.
    pub fn restart(&mut self, now: u64) {
        *self = Budget::new(self.rate, now);
    }
}

/// A connection.
pub(crate) struct Connection {
    pub channel: Channel,
    /// Which server of the mix.
    pub server: u32,
    /// When the connect began.
    pub opened: u64,
    pub is_connected: bool,
    /// When the TLS handshake began.
    pub shaking_since: u64,
    /// The server has finished sending; read to the end before it is believed.
    pub is_finished: bool,
    /// Bytes may be there that no event will tell of again.
    pub is_readable: bool,
    /// In order of sending; the front is the one whose answer comes next.
    pub in_flight: VecDeque<Exchange>,
    /// How many at the back of `in_flight` are not sent to the end.
    pub unsent: usize,
    /// Bytes sent of the first of those.
    pub offset: usize,
    pub reader: ResponseReader,
    pub check: Option<Box<BodyCheck>>,
    pub first_byte: u64,
    /// When the exchange counts as timed out.
    pub deadline: u64,
    pub read_budget: Option<Box<Budget>>,
    pub write_budget: Option<Box<Budget>>,
    /// With HTTP/2. `in_flight` are then those that are still to be begun, and nothing of them is `unsent`.
    pub session: Option<Box<Session<Asked>>>,
}

impl Connection {
    pub fn new(channel: Channel, server: u32, now: u64) -> Self {
        Connection {
            channel,
            server,
            opened: now,
            is_connected: false,
            shaking_since: 0,
            is_finished: false,
            is_readable: false,
            in_flight: VecDeque::new(),
            unsent: 0,
            offset: 0,
            reader: ResponseReader::default(),
            check: None,
            first_byte: 0,
            deadline: u64::MAX,
            read_budget: None,
            write_budget: None,
            session: None,
        }
    }

    /// Requests that this connection has to answer for.
    pub fn under_way(&self) -> usize {
        self.in_flight.len() + self.session.as_ref().map_or(0, |session| session.open())
    }

    /// Whether something waits for the socket.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
            || self.channel.has_pending()
            || self.session.as_ref().is_some_and(|session| session.has_unsent())
    }

    /// Of the bytes that go next, how many are of requests that `counts` says nothing of: those of the warm-up, which come first.
    #[inline]
    pub fn uncounted(&self, prepared: &[Prepared], counts: impl Fn(&Exchange) -> bool) -> usize {
        let first = self.in_flight.len().saturating_sub(self.unsent);
        let uncounted = self.in_flight.range(first..).take_while(|exchange| !counts(exchange));
        let length = |exchange: &Exchange| {
            prepared.get(exchange.request as usize).map_or(0, |request| request.bytes.len())
        };
        uncounted.map(length).sum::<usize>().saturating_sub(self.offset)
    }

    /// Puts a request at the back.
    #[inline]
    pub fn push(&mut self, exchange: Exchange) {
        self.in_flight.push_back(exchange);
        self.unsent += 1;
    }

    /// Sends what is unsent, as far as socket and budget go. Returns how many bytes went.
    ///
    /// # Errors
    /// The socket fails, or the data cannot be sealed.
    #[inline]
    pub fn flush(&mut self, prepared: &[Prepared], now: u64) -> io::Result<usize> {
        if self.channel.has_pending() && !self.channel.flush()? {
            return Ok(0);
        }
        if self.unsent == 1 && self.write_budget.is_none() {
            let Some(exchange) = self.in_flight.back() else { return Ok(0) };
            let bytes = prepared.get(exchange.request as usize).map_or(&[][..], |request| &request.bytes);
            let rest = bytes.get(self.offset..).unwrap_or_default();
            let sent = self.channel.send(rest)?;
            self.offset += sent;
            if sent == rest.len() {
                self.unsent = 0;
                self.offset = 0;
            }
            return Ok(sent);
        }
        self.flush_several(prepared, now)
    }

    fn flush_several(&mut self, prepared: &[Prepared], now: u64) -> io::Result<usize> {
        let mut total = 0;
        while self.unsent > 0 {
            let mut room = self.write_budget.as_ref().map_or(usize::MAX, |budget| budget.left(now));
            let first = self.in_flight.len().saturating_sub(self.unsent);
            let mut pieces = [IoSlice::new(&[]); 64];
            let mut offset = self.offset;
            let mut length = 0;
            for (piece, exchange) in pieces.iter_mut().zip(self.in_flight.range(first..)) {
                let bytes = prepared.get(exchange.request as usize).map_or(&[][..], |request| &request.bytes);
                let rest = bytes.get(offset..).unwrap_or_default();
                let rest = rest.get(..room).unwrap_or(rest);
                *piece = IoSlice::new(rest);
                length += rest.len();
                room -= rest.len();
                offset = 0;
            }
            if length == 0 {
                break; // the budget is spent
            }
            let sent = self.channel.send_all(&pieces)?;
            total += sent;
            if let Some(budget) = &mut self.write_budget {
                budget.spend(sent);
            }
            self.take_sent(prepared, sent);
            if sent < length {
                break;
            }
        }
        Ok(total)
    }

    /// Moves on by `sent` bytes over the unsent requests.
    fn take_sent(&mut self, prepared: &[Prepared], mut sent: usize) {
        while self.unsent > 0 {
            let first = self.in_flight.len().saturating_sub(self.unsent);
            let Some(exchange) = self.in_flight.get(first) else { return };
            let length = prepared.get(exchange.request as usize).map_or(0, |request| request.bytes.len());
            let rest = length - self.offset;
            if sent < rest {
                self.offset += sent;
                return;
            }
            sent -= rest;
            self.offset = 0;
            self.unsent -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_grows_with_time_and_not_with_patience() {
        let mut budget = Budget::new(1_000, 0);
        assert_eq!(budget.left(500_000_000), 625);
        budget.spend(525);
        assert_eq!(budget.left(500_000_000), 100);
        budget.spend(200);
        assert_eq!(budget.left(500_000_000), 0);
        assert_eq!(budget.left(1_000_000_000), 400);
        budget.restart(9_000_000_000);
        assert_eq!(budget.left(9_000_000_000), 125);
        assert_eq!(Budget::new(u64::MAX, 0).left(u64::MAX), usize::MAX);
    }

    #[test]
    fn requests_go_out_in_order_and_whole() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let request = |text: &str| Prepared {
            bytes: text.as_bytes().into(),
            server: 0,
            method: "GET".into(),
            parts: Box::default(),
        };
        let prepared = [request("first;"), request("second;")];
        let mut connection = Connection::new(Channel::new(Stream::new(ours.into())), 0, 0);
        for request in [0, 1, 0] {
            connection.push(Exchange { intended: 0, sent: 0, request, attempts: 0 });
        }
        // 8 bytes per second: a slow writer.
        connection.write_budget = Some(Box::new(Budget::new(8, 0)));
        let mut sent = Vec::new();
        for second in 0..4 {
            sent.push(connection.flush(&prepared, second * 1_000_000_000).unwrap());
        }
        assert_eq!(sent, [1, 8, 8, 2]);
        assert_eq!((connection.unsent, connection.offset), (0, 0));
        drop(connection);
        assert_eq!(io::read_to_string(theirs).unwrap(), "first;second;first;");
    }
}
