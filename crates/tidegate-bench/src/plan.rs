//! What a run is to do: everything decided before the first connection is opened. The command line builds it,
//! the workers only read it.

use crate::check::Expectation;
use crate::request::Mix;
use crate::schedule::Arrivals;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_tls::Connector;

/// When requests start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Each connection sends its next request when the last one is answered.
    Closed,
    /// On a schedule that the server cannot slow down.
    Open {
        /// Requests per second, all workers together; above 0.
        rate: f64,
        /// How they follow each other.
        arrivals: Arrivals,
    },
}

/// A slow client: some connections move bytes at a limited rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Bytes per second of one connection, at least 1.
    pub rate: u64,
    /// The share of connections that are slow, 0 to 1.
    pub share: f64,
}

/// How TLS is spoken with servers that want it.
#[derive(Debug, Clone)]
pub struct TlsPlan {
    /// For connections that begin anew.
    pub fresh: Arc<Connector>,
    /// For those that resume a session where there is one.
    pub resuming: Arc<Connector>,
    /// The share of the latter, 0 to 1.
    pub resumes: f64,
}

/// What a run asks, of whom, how fast, and when it ends.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is asked.
    pub mix: Mix,
    /// Open or closed.
    pub load: Load,
    /// Connections, all workers together.
    pub connections: u32,
    /// Threads; each has its share of connections and requests.
    pub threads: u32,
    /// Ends after so many requests.
    pub requests: Option<u64>,
    /// Ends after so long.
    pub time: Option<Duration>,
    /// Sent and not counted, at the beginning.
    pub warmup: Duration,
    /// Opening all connections is spread over this time.
    pub ramp: Duration,
    /// Connections carry more than one request.
    pub keep_alive: bool,
    /// Speaks HTTP/1.0: a connection stays only where an answer says so. [`Plan::speak_http10`] sets it.
    pub is_http10: bool,
    /// Requests on one connection before their answers came.
    pub pipeline: u32,
    /// Speaks HTTP/2, with so many requests at once on a connection, at least 1; else HTTP/1.1.
    pub streams: Option<u32>,
    /// For one request, from its first byte sent; also for a connect.
    pub timeout: Duration,
    /// How long to wait for outstanding answers at the end.
    pub drain: Duration,
    /// Ends when for so long no answer came and connects failed.
    pub give_up: Duration,
    /// Local addresses, used in turn.
    pub sources: Vec<IpAddr>,
    /// `SO_RCVBUF`; else the kernel decides.
    pub receive_buffer: Option<u32>,
    /// Slow readers.
    pub slow_readers: Option<Pace>,
    /// Slow writers.
    pub slow_writers: Option<Pace>,
    /// What a right answer is.
    pub expectation: Expectation,
    /// Responses below this many bits per second do not conform.
    pub min_bitrate: Option<f64>,
    /// For whatever is drawn at random.
    pub seed: u64,
    /// Each connection carries one request and has no successor.
    pub is_once: bool,
    /// Connections send one request and then only stay open.
    pub is_idle: bool,
    /// Needed where a server of the mix speaks TLS.
    pub tls: Option<TlsPlan>,
    /// Which part of a run over several processes this is.
    pub part: Part,
}

/// One of several processes that generate a load together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub index: u32,
    /// At least 1.
    pub of: u32,
}

impl Part {
    /// The only one.
    pub const WHOLE: Part = Part { index: 0, of: 1 };

    /// This part's share of a number of things.
    pub fn share(self, count: u64) -> u64 {
        count / u64::from(self.of) + u64::from(u64::from(self.index) < count % u64::from(self.of))
    }
}

impl Plan {
    /// A closed loop over one connection, without an end; the fields say what else is wanted.
    pub fn new(mix: Mix) -> Plan {
        Plan {
            keep_alive: mix.keep_alive,
            mix,
            load: Load::Closed,
            connections: 1,
            threads: 1,
            requests: None,
            time: None,
            warmup: Duration::ZERO,
            ramp: Duration::ZERO,
            is_http10: false,
            pipeline: 1,
            streams: None,
            timeout: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            give_up: Duration::from_secs(5),
            sources: Vec::new(),
            receive_buffer: None,
            slow_readers: None,
            slow_writers: None,
            expectation: Expectation::default(),
            min_bitrate: None,
            seed: 1,
            is_once: false,
            is_idle: false,
            tls: None,
            part: Part::WHOLE,
        }
    }

    /// How long an interval of the records is: a hundred of them where the time is known, for the warm-up cut,
    /// and none shorter than 100 ms or longer than a second.
    pub fn interval(&self) -> Duration {
        let hundredth = self.time.map_or(Duration::ZERO, |time| time / 100);
        hundredth.clamp(Duration::from_millis(100), Duration::from_secs(1))
    }

    /// The protocol as ALPN names it.
    pub fn protocol(&self) -> &'static str {
        match (self.streams, self.is_http10) {
            (Some(_), _) => "h2",
            (None, true) => "http/1.0",
            (None, false) => "http/1.1",
        }
    }

    /// Makes all requests those of HTTP/1.0; once, and after `keep_alive` was said.
    pub fn speak_http10(&mut self) {
        self.is_http10 = true;
        self.mix.speak_http10(self.keep_alive);
    }

    /// Takes the share of one of several processes: of connections and requests. Arrivals are dealt out by the
    /// schedule.
    pub fn take_part(&mut self, part: Part) {
        self.part = part;
        self.connections = part.share(u64::from(self.connections)) as u32;
        self.requests = self.requests.map(|requests| part.share(requests));
    }

    /// The number of a worker among those of all processes.
    pub(crate) fn global_number(&self, worker: u32) -> u32 {
        self.part.index * self.threads + worker
    }

    /// Workers of all processes.
    pub(crate) fn global_threads(&self) -> u32 {
        self.part.of * self.threads
    }

    /// The share of one worker of `connections`.
    pub(crate) fn connections_of(&self, worker: u32) -> u32 {
        self.connections / self.threads + u32::from(worker < self.connections % self.threads)
    }
}
