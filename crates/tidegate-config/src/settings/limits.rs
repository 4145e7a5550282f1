//! Bounds on what clients may do: those of the server as a whole, and those that a site or a route may set for itself.

use super::{NetworkSet, Origin};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bounds on what a client may do; all on by default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Those of a request whose site and route say nothing else.
    pub request: RequestLimits,
    /// Open client connections, all workers together.
    pub connections: u32,
    /// Open connections of one address, of one /64 network for IPv6; `None` is no bound.
    pub connections_per_address: Option<u32>,
    /// Clients whose connections are not counted by address.
    pub exempt_addresses: NetworkSet,
    /// Requests that wait for something at the same time, all workers together.
    pub in_flight: u32,
    /// Requests whose content is still to come before they can run.
    pub incoming_bodies: u32,
    /// Requests that wait for a place in `in_flight`.
    pub queue_length: u32,
    /// How long they wait at most.
    pub queue_age: Duration,
    /// Bytes that stuck connections may own, all workers together; `None` derives it from the machine.
    pub memory: Option<u64>,
    /// How long what is ready may wait on a worker before it turns away; `None` never does.
    pub overload_delay: Option<Duration>,
    /// Field lines of a request head.
    pub fields: u16,
    /// From the first byte of a head to its last.
    pub head_timeout: Duration,
    /// From the beginning of a connection to the end of its TLS handshake, a PROXY header included.
    pub handshake_timeout: Duration,
    /// Streams that a client may have open at once on one HTTP/2 connection.
    pub streams: u32,
    /// Idle connections, all workers together.
    pub keep_alive_connections: u32,
    /// Unsent bytes that the kernel may hold for one connection (`TCP_NOTSENT_LOWAT`).
    pub unsent_size: u32,
    /// Where each is written; those that are not there have their defaults.
    pub origins: LimitOrigins,
}

/// Where limits of the server are written, by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitOrigins(pub Vec<(String, Origin)>);

impl LimitOrigins {
    /// What a limit is called in a message: its name, and where it is written.
    pub fn said<'s>(&'s self, name: &'s str) -> SaidLimit<'s> {
        let known = self.0.iter().find(|(known, _)| known == name);
        SaidLimit { name, origin: known.map(|(_, origin)| origin) }
    }
}

/// A limit by its name and where it stands, for a sentence.
pub struct SaidLimit<'s> {
    name: &'s str,
    origin: Option<&'s Origin>,
}

impl std::fmt::Display for SaidLimit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.origin {
            Some(origin) => write!(f, "`{}` ({origin})", self.name),
            None => write!(f, "`{}`, by default,", self.name),
        }
    }
}

/// Bounds of a request: what `limits` of a site or a route may say as well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestLimits {
    /// Bytes of a request head, target included.
    pub head_size: u32,
    /// Bytes of a request target.
    pub target_size: u32,
    /// Bytes of a request body.
    pub body_size: u64,
    /// Where that is written; no line where it is the default.
    pub body_size_origin: Origin,
    /// Bytes per second below which a request body is given up after `rate_grace`.
    pub body_rate: u32,
    /// Bytes per second below which a reader is given up after `rate_grace`.
    pub send_rate: u32,
    /// How long a connection may be slower than `body_rate` or `send_rate`.
    pub rate_grace: Duration,
    /// An idle connection is closed after this.
    pub keep_alive_timeout: Duration,
    /// Requests served on one connection before it is closed; `None` is no bound.
    pub keep_alive_requests: Option<u32>,
    /// Bytes of an unread request body that are read and dropped to keep a connection.
    pub discard_size: u64,
    /// How long a closing connection waits for the client to finish sending.
    pub linger_timeout: Duration,
    /// Ranges of one request; with more the whole is sent.
    pub ranges: u16,
}
