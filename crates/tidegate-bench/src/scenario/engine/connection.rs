//! A connection of a user. An idle one holds no buffer.

use crate::connection::Channel;
use crate::response::ResponseReader;

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
    /// It was sent before, over a connection that had gone meanwhile.
    pub is_again: bool,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Shaking,
    Open,
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
        }
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
