//! HTTP/2 with a backend: many exchanges on one connection (RFC 9113), which a task of its own drives.
//!
//! An [`Http2Pool`] holds the connections of one worker to one address and gives an [`Http2Stream`] for each
//! request; whoever holds one sends content into it and takes the answer out of it. Nothing here knows a route or
//! a setting. Content that is not taken waits within the windows of flow control, so nothing grows without bound.

use crate::connection::{Connection, PeerTls};
use crate::peer::Peer;
use crate::pool::{Pool, PoolLimits};
use session::{Driver, Session};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use thiserror::Error;
use tidegate_http::FieldLines;
use tidegate_io::runtime;
use tidegate_wire::h2::{ErrorCode, RequestParts};

pub use stream::Http2Stream;

/// Why an exchange has failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Http2Error {
    /// The peer has not looked at the request: it may be sent again, whatever it is.
    #[error("it has turned the request away unread")]
    Unprocessed,
    /// The same behind requests that it does look at: its connection was for no more of them, and with the next it gets on.
    #[error("it has turned the request away unread")]
    PassedOver,
    /// The peer has given the stream up.
    #[error("it has reset the stream with {0}")]
    Reset(ErrorCode),
    /// The peer broke the protocol.
    #[error("it has answered with {0}")]
    Misbehaved(String),
    /// The peer broke the protocol on the connection, for all that share it.
    #[error("it has answered with {0}")]
    Broken(String),
    /// The connection is gone.
    #[error("{0}")]
    Lost(String),
}

/// The head of an answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// 100 to 599, never 101. Below 200 the final head follows.
    pub status: u16,
    /// The fields, in lower case.
    pub lines: FieldLines,
    /// As announced.
    pub content_length: Option<u64>,
    /// There is no content.
    pub is_end: bool,
}

/// Connections on which nothing comes, in one pool. Where there are so many it is not the connections: a
/// process that hangs gets no more of them, and the newest one takes what comes next.
const DOUBTFUL_MAX: usize = 4;

/// Connections of one worker to one address.
pub struct Http2Pool {
    /// Makes the connections; none is idle there.
    connector: Rc<Pool>,
    sessions: RefCell<Vec<Rc<Session>>>,
    is_connecting: Cell<bool>,
    /// Connects that were begun, those that were handed on counted once more.
    connects: Cell<u64>,
    /// The last of them that came to nothing, and why: what waited for it is told the same.
    failed: RefCell<(u64, io::ErrorKind, String)>,
    waiting: RefCell<Vec<Waker>>,
}

impl Http2Pool {
    /// An empty pool. With `tls` the peer must choose `h2` by ALPN; without, it is known to speak HTTP/2.
    pub fn new(peer: Arc<Peer>, limits: PoolLimits, tls: Option<PeerTls>) -> Rc<Http2Pool> {
        Rc::new(Http2Pool {
            connector: Pool::with_tls(peer, limits, tls),
            sessions: RefCell::default(),
            is_connecting: Cell::new(false),
            connects: Cell::new(0),
            failed: RefCell::new((0, io::ErrorKind::Other, String::new())),
            waiting: RefCell::default(),
        })
    }

    /// How TLS is spoken with it.
    pub fn tls(&self) -> Option<&PeerTls> {
        self.connector.tls()
    }

    /// Takes up other bounds.
    pub fn set_limits(&self, limits: PoolLimits) {
        self.connector.set_limits(limits);
    }

    /// Sends the head of a request, on a connection that is there or on a new one. One that was being made for a request
    /// that is gone is handed to the next (FAULTS 59), as in [`Pool::connect`].
    ///
    /// # Errors
    /// What the system says of a new connection, or `TimedOut`.
    pub async fn open(self: &Rc<Self>, parts: &RequestParts<'_>, is_end: bool) -> io::Result<Http2Stream> {
        loop {
            if let Some(stream) = self.try_open(parts, is_end) {
                return Ok(stream);
            }
            if self.is_connecting.get() {
                // One connection carries many: who comes meanwhile waits for it.
                let awaited = self.connects.get();
                std::future::poll_fn(|cx| {
                    if !self.is_connecting.get() || self.connects.get() != awaited {
                        return Poll::Ready(());
                    }
                    self.waiting.borrow_mut().push(cx.waker().clone());
                    Poll::Pending
                })
                .await;
                let failed = self.failed.borrow();
                if failed.0 == awaited {
                    return Err(io::Error::new(failed.1, failed.2.clone()));
                }
                continue;
            }
            let connecting = Connecting::begin(self);
            // A server may have sent its SETTINGS before anybody looked.
            let made = self.connector.connect_unless(Connection::is_closed_now).await;
            let speaks = |connection: &Connection| self.tls().is_none() || connection.has_chosen(b"h2");
            let made = match made {
                Ok(connection) if !speaks(&connection) => {
                    let why = "it does not speak HTTP/2 over TLS";
                    Err(io::Error::new(io::ErrorKind::InvalidData, why))
                }
                made => made,
            };
            let connection = made.inspect_err(|error| {
                *self.failed.borrow_mut() = (self.connects.get(), error.kind(), error.to_string());
            })?;
            let session = Session::begin(connection);
            self.sessions.borrow_mut().push(session.clone());
            let driver = Driver { session, pool: Rc::downgrade(self), idle: None, watch: None };
            runtime::with(|runtime| runtime.spawn(driver));
            drop(connecting);
        }
    }

    fn try_open(&self, parts: &RequestParts<'_>, is_end: bool) -> Option<Http2Stream> {
        let sessions = self.sessions.borrow();
        let mut usable = sessions.iter().filter(|session| !session.is_doubtful());
        let opened = usable.find_map(|session| session.open(parts, is_end));
        let doubtful = || sessions.iter().filter(|session| session.is_doubtful());
        if opened.is_some() || doubtful().count() < DOUBTFUL_MAX {
            return opened;
        }
        doubtful().rev().find_map(|session| session.open(parts, is_end))
    }

    fn remove(&self, session: &Rc<Session>) {
        let gone: Vec<_> =
            self.sessions.borrow_mut().extract_if(.., |known| Rc::ptr_eq(known, session)).collect();
        drop(gone); // not while the cell is borrowed
    }
}

impl Drop for Http2Pool {
    fn drop(&mut self) {
        self.sessions.take().iter().for_each(|session| session.wake()); // they end with their streams
    }
}

/// A connection that is being made.
struct Connecting<'p>(&'p Http2Pool);

impl<'p> Connecting<'p> {
    fn begin(pool: &'p Http2Pool) -> Connecting<'p> {
        pool.is_connecting.set(true);
        pool.connects.set(pool.connects.get() + 1);
        Connecting(pool)
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.is_connecting.set(false);
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }
}

mod liveness;
mod session;
mod stream;
#[cfg(test)]
mod tests;
