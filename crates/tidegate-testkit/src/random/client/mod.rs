//! Clients: each plays its session against the server, and reports what it gets that it should not get.

mod http1;
mod http2;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::answer::{Broken, Excuse, Expected, Limited, RequestLimit};
use super::findings::{Finding, Findings, Invariant};
use super::origin::Origin;
use super::session::{Batch, ClientBehaviour, Request, Session};
use super::socket::Socket;
use crate::client::Address;
use crate::random::pause::rest;
use crate::tls::TlsOptions;

/// The longest that a server may be silent when it owes an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of history that a finding shows.
const HISTORY: usize = 24;

/// What all clients of a run share.
pub(super) struct Shared {
    pub(super) addresses: Vec<Address>,
    pub(super) is_tls: Vec<bool>,
    pub(super) is_proxied: Vec<bool>,
    /// The server is short of something by its settings.
    pub(super) is_tight: bool,
    pub(super) keep_alive: Duration,
    pub(super) findings: Arc<Findings>,
    /// For connections that speak HTTP/1 and HTTP/2 on TLS.
    pub(super) tls: [Arc<rustls::ClientConfig>; 2],
    pub(super) tally: Tally,
    /// Something was found: all shall come to an end.
    pub(super) is_over: AtomicBool,
}

/// What the clients of a run have seen, all together.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Requests that were sent, those among them that may not have been sent to their end.
    pub(super) requests: AtomicU64,
    /// Answers that were complete.
    pub(super) answers: AtomicU64,
    /// Answers of which the head came, by status, whatever came behind it.
    pub(super) heads: Mutex<BTreeMap<u16, u64>>,
    pub(super) connections: AtomicU64,
    /// Requests that a limit counts, by limit and client.
    limited: Mutex<BTreeMap<(RequestLimit, Origin), Limitings>>,
    /// Bytes of content.
    pub(super) bytes: AtomicU64,
}

/// What a limit has counted of a client.
#[derive(Debug)]
struct Limitings {
    since: Instant,
    sent: u64,
    admitted: u64,
}

impl Tally {
    /// The final head of an answer has come.
    fn head(&self, status: u16) {
        *self.heads.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }
}

/// The limit that counts a request, if any does.
fn limit_of(request: &Request) -> Option<RequestLimit> {
    match &request.expected {
        Expected::Served(served) => match served.limit {
            Limited::By(limit) => Some(limit),
            Limited::No | Limited::Guessing => None,
        },
        Expected::Application { .. } => None,
    }
}

/// Plays the session to its end.
pub(super) fn play(shared: &Shared, number: usize, session: &Session) {
    let mut client = Client { shared, session, history: VecDeque::new(), began: Instant::now() };
    client.rest(session.start);
    let result = match session.is_http2 {
        true => http2::play(&mut client),
        false => http1::play(&mut client),
    };
    if let Err((invariant, text)) = result {
        let kind = if session.is_http2 { "HTTP/2" } else { "HTTP/1" };
        let finding = Finding {
            invariant,
            text: format!(
                "client {number}, {kind} on {:?}, {:?} s after its start: {text}",
                shared.addresses[session.listener],
                client.began.elapsed().as_secs_f32()
            ),
            history: client.history.into(),
        };
        if shared.findings.report(finding) {
            shared.is_over.store(true, Relaxed);
        }
    }
}

/// One client and what it has done lately.
struct Client<'a> {
    shared: &'a Shared,
    session: &'a Session,
    history: VecDeque<String>,
    began: Instant,
}

impl Client<'_> {
    fn note(&mut self, text: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(format!("{:>8.3} s  {text}", self.began.elapsed().as_secs_f32()));
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Relaxed)
    }

    /// Silence.
    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            if self.is_over() {
                return;
            }
            rest(left.min(Duration::from_millis(100)));
        }
    }

    /// A request is about to be sent.
    fn asks(&self, request: &Request) {
        self.shared.tally.requests.fetch_add(1, Relaxed);
        if let Some(limit) = limit_of(request) {
            let mut all = self.shared.tally.limited.lock().unwrap_or_else(PoisonError::into_inner);
            let counted = all.entry((limit, self.session.origin));
            counted.or_insert_with(|| Limitings { since: Instant::now(), sent: 0, admitted: 0 }).sent += 1;
        }
    }

    /// The final head of the answer to a request has come.
    fn hears(&self, limit: Option<RequestLimit>, status: u16) -> Result<(), Broken> {
        self.shared.tally.head(status);
        let Some(limit) = limit else { return Ok(()) };
        let mut all = self.shared.tally.limited.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counted) = all.get_mut(&(limit, self.session.origin)) else { return Ok(()) };
        let time = counted.since.elapsed();
        if status == 429 {
            if counted.sent <= limit.burst {
                let text = format!("429 to one of {} requests, at {limit:?}", counted.sent);
                return Err((Invariant::Limit, text));
            }
            return Ok(());
        }
        counted.admitted += 1;
        let most = limit.burst + (limit.per_second as f64 * time.as_secs_f64()).ceil() as u64 + 1;
        if counted.admitted > most {
            let text = format!("{} requests admitted in {time:?}, at {limit:?}", counted.admitted);
            return Err((Invariant::Limit, text));
        }
        Ok(())
    }

    /// A new connection, with its TLS handshake. Nothing where the server may refuse and does.
    fn connect(&mut self) -> Result<Option<Socket>, Broken> {
        let index = self.session.listener;
        self.shared.tally.connections.fetch_add(1, Relaxed);
        let connected = Socket::connect(&self.shared.addresses[index], self.session.receive_buffer);
        let connected =
            connected.map_err(|error| format!("cannot connect: {error}")).and_then(|mut socket| {
                if self.shared.is_proxied[index] {
                    let mut random = self.session.random.fork(self.shared.tally.connections.load(Relaxed));
                    let header = self.session.origin.proxy_header(&mut random);
                    socket.write(&header).map_err(|error| format!("cannot send: {error}"))?;
                }
                if !self.shared.is_tls[index] {
                    return Ok(socket);
                }
                let config = &self.shared.tls[usize::from(self.session.is_http2)];
                let options = TlsOptions { name: Some("a.test".to_owned()), ..TlsOptions::default() };
                socket.secure(config, &options)
            });
        match connected {
            Ok(socket) => {
                self.note(format!("connected to {:?}", self.shared.addresses[index]));
                Ok(Some(socket))
            }
            Err(_) if self.shared.is_tight || self.is_over() => Ok(None),
            Err(error) => Err((Invariant::Service, error)),
        }
    }

    fn excuse(&self, batch: &Batch) -> Excuse {
        match batch.conduct {
            ClientBehaviour::Abort { .. }
            | ClientBehaviour::Unfinished { .. }
            | ClientBehaviour::NeverRead { .. } => Excuse::Client,
            _ if self.shared.is_tight => Excuse::Scarcity,
            _ => Excuse::None,
        }
    }
}
