//! A connection of a user. An idle one holds no buffer.

use super::request::Request;
use crate::connection::Channel;
use crate::http2::{Carried, Session, Stream};
use crate::record::Waited;
use crate::response::ResponseReader;
use std::collections::VecDeque;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The step of the operation.
    Step,
    /// Where the step was sent on to.
    Redirect,
    /// A resource of the page.
    Asset(u32),
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub purpose: Purpose,
    /// When it was due, monotonic nanoseconds.
    pub due: u64,
    /// When its first byte was sent.
    pub sent: u64,
    /// It asks whether what the user holds has changed.
    pub is_conditional: bool,
    /// Somebody looks at the body.
    pub needs_body: bool,
    /// So often it was sent before: over a connection that had gone meanwhile, or the server had turned it away unread.
    pub attempts: u8,
}

/// A request that has got no complete answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unanswered {
    /// When it was due, monotonic nanoseconds.
    pub due: u64,
    /// When its first byte was sent, if it was.
    pub sent: Option<u64>,
    /// When its answer began, if it did.
    pub first_byte: Option<u64>,
}

impl Unanswered {
    /// One that was not sent.
    pub fn unsent(due: u64) -> Unanswered {
        Unanswered { due, sent: None, first_byte: None }
    }

    /// One that was under way on a stream.
    pub fn stream(stream: &Stream<Box<Asked>>) -> Unanswered {
        let Exchange { due, sent, .. } = stream.carried.exchange;
        let first_byte = Some(stream.first_byte).filter(|_| stream.status != 0);
        Unanswered { due, sent: Some(sent), first_byte }
    }

    /// Its times, where it is given up now.
    pub fn waited(self, now: u64) -> Waited {
        let Unanswered { due: intended, sent, first_byte } = self;
        Waited { intended, sent, first_byte, until: now }
    }
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Shaking,
    Open,
}

/// A request of HTTP/2, and what has come of its answer.
pub(super) struct Asked {
    pub exchange: Exchange,
    /// Until it is begun.
    pub request: Request,
    /// What follows its head.
    pub content: Vec<u8>,
    /// As HTTP/1.1 would have it.
    pub head: Vec<u8>,
    /// Where it is looked at.
    pub body: Vec<u8>,
}

impl Carried for Box<Asked> {
    type Bytes = ();

    fn bytes<'b>(&'b self, (): &'b ()) -> &'b [u8] {
        &self.content
    }
}

/// What a connection has in place of the one exchange, where it speaks HTTP/2.
pub(super) struct Streams {
    pub session: Session<Box<Asked>>,
    /// Requests that wait for the connection to be open, or for others on it to end.
    pub waiting: VecDeque<Box<Asked>>,
    /// Nothing has come since it had no request under way: the server may have closed it before it saw one.
    pub is_silent: bool,
}

impl Streams {
    pub fn new() -> Streams {
        Streams { session: Session::new(), waiting: VecDeque::new(), is_silent: true }
    }
}

pub(super) struct UserConnection {
    pub channel: Channel,
    /// The place of its user in the worker.
    pub user: u32,
    pub state: State,
    /// When the connect, then the handshake began.
    pub since: u64,
    /// What is not sent yet, and how much of it is.
    pub out: Vec<u8>,
    pub sent: usize,
    pub reader: ResponseReader,
    /// The body, where it is looked at.
    pub body: Vec<u8>,
    pub exchange: Option<Exchange>,
    pub first_byte: u64,
    /// When what is under way counts as timed out, monotonic nanoseconds.
    pub deadline: u64,
    /// Requests that were answered on it.
    pub answered: u32,
    /// The server has finished sending.
    pub is_finished: bool,
    /// Where it speaks HTTP/2; then it has no `exchange` and nothing is `out`.
    pub streams: Option<Box<Streams>>,
}

impl UserConnection {
    pub fn new(channel: Channel, user: u32, now: u64) -> Self {
        UserConnection {
            channel,
            user,
            state: State::Connecting,
            since: now,
            out: Vec::new(),
            sent: 0,
            reader: ResponseReader::with_heads(),
            body: Vec::new(),
            exchange: None,
            first_byte: 0,
            deadline: u64::MAX,
            answered: 0,
            is_finished: false,
            streams: None,
        }
    }

    /// How far the request of HTTP/1.1 is that it carries.
    pub fn unanswered(&self, exchange: &Exchange) -> Unanswered {
        let has_begun = !self.reader.is_between();
        Unanswered {
            due: exchange.due,
            sent: Some(exchange.sent).filter(|_| self.state == State::Open),
            first_byte: Some(self.first_byte).filter(|_| has_begun),
        }
    }

    /// Takes all out that waits for an answer.
    pub fn take_unanswered(&mut self) -> Vec<Unanswered> {
        let mut all: Vec<Unanswered> =
            self.exchange.iter().map(|exchange| self.unanswered(exchange)).collect();
        self.exchange = None;
        if let Some(mut streams) = self.streams.take() {
            all.extend(streams.session.take_all(|_| true).iter().map(Unanswered::stream));
            all.extend(streams.waiting.iter().map(|asked| Unanswered::unsent(asked.exchange.due)));
        }
        all
    }

    /// Whether an answer is waited for.
    pub fn is_busy(&self) -> bool {
        let carries = |streams: &Streams| streams.session.open() > 0 || !streams.waiting.is_empty();
        self.exchange.is_some() || self.streams.as_deref().is_some_and(carries)
    }

    /// Whether a request of HTTP/2 may be given to it.
    pub fn takes_streams(&self) -> bool {
        !self.is_finished && self.streams.as_ref().is_some_and(|streams| !streams.session.is_leaving)
    }

    /// Whether a request may go on it.
    pub fn is_free(&self) -> bool {
        self.exchange.is_none() && self.state == State::Open && !self.is_finished
    }

    /// Sends as much as the socket takes; how much that was.
    ///
    /// # Errors
    /// The socket fails, or the data cannot be sealed.
    pub fn flush(&mut self) -> std::io::Result<usize> {
        if self.channel.has_pending() && !self.channel.flush()? {
            return Ok(0);
        }
        let rest = self.out.get(self.sent..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(0);
        }
        let count = self.channel.send(rest)?;
        self.sent += count;
        if self.sent >= self.out.len() {
            (self.out, self.sent) = (Vec::new(), 0);
        }
        Ok(count)
    }
}
