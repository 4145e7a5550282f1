//! What is looked at, once a second, and what has come about between two looks.

use super::day::DayTotals;
use crate::histogram::Distribution;
use crate::kind::{GatewayFailure, Handshake, QueueRefusal};
use crate::worker::Snapshot;

/// Counts that only rise, by their place in [`Rise::counts`].
pub(super) const REQUESTS: usize = 0;
pub(super) const CLASSES: usize = 1; // of five
pub(super) const RECEIVED: usize = 6;
pub(super) const SENT: usize = 7;
pub(super) const REFUSED: usize = 8;
/// Microseconds.
pub(super) const CPU_SERVERS: usize = 9;
pub(super) const CPU_MASTER: usize = 10;
pub(super) const CACHE_HITS: usize = 11;
pub(super) const CACHE_LOOKUPS: usize = 12;
pub(super) const TLS_FULL: usize = 13;
pub(super) const TLS_RESUMED: usize = 14;
pub(super) const ACCEPTED: usize = 15;
pub(super) const HTTP2_REQUESTS: usize = 16;
pub(super) const STORE_HITS: usize = 17;
pub(super) const STORE_LOOKUPS: usize = 18;
pub(super) const COUNTS: usize = 19;

/// Values of a moment, by their place in [`Observation::gauges`].
pub(super) const CONNECTIONS: usize = 0;
pub(super) const IN_FLIGHT: usize = 1;
pub(super) const WAITING: usize = 2;
pub(super) const RESIDENT_SERVERS: usize = 3;
pub(super) const RESIDENT_MASTER: usize = 4;
pub(super) const GAUGES: usize = 5;

/// What a server shows at a moment: how much it has counted since it began, and what there is now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    counts: [u64; COUNTS],
    gauges: [u64; GAUGES],
    statuses: Vec<(u16, u64)>,
    times: Distribution,
}

impl Observation {
    /// Of what all workers have counted.
    pub fn of(counted: &Snapshot) -> Observation {
        let refusals = &counted.queue_refusals;
        let mut counts = [0; COUNTS];
        counts[REQUESTS] = counted.requests.wrapping_add(counted.requests_unread);
        for (class, count) in (1..).zip(&mut counts[CLASSES..CLASSES + 5]) {
            *count = counted.responses.class(class);
        }
        counts[RECEIVED] = counted.received_bytes;
        counts[SENT] = counted.sent_bytes;
        let of_applications = &counted.gateway_errors;
        let refused = [
            of_applications.count(GatewayFailure::QueueFull),
            of_applications.count(GatewayFailure::QueueAge),
            counted.connections_refused,
            counted.requests_shed,
            refusals.count(QueueRefusal::Full),
            refusals.count(QueueRefusal::Age),
        ];
        counts[REFUSED] = refused.into_iter().fold(0, u64::saturating_add);
        counts[CACHE_HITS] = counted.cache_hits;
        counts[CACHE_LOOKUPS] = counted.cache_lookups();
        let handshakes = &counted.tls_handshakes;
        counts[TLS_FULL] =
            handshakes.count(Handshake::Full).saturating_add(handshakes.count(Handshake::Refused));
        counts[TLS_RESUMED] = handshakes.count(Handshake::Resumed);
        counts[ACCEPTED] = counted.connections_accepted;
        counts[HTTP2_REQUESTS] = counted.http2_streams;
        let mut gauges = [0; GAUGES];
        gauges[CONNECTIONS] = counted.connections.current;
        gauges[IN_FLIGHT] = counted.requests_under_way();
        gauges[WAITING] = counted.queued.current.saturating_add(counted.gateway_queued.current);
        let statuses = counted.responses.codes().collect();
        Observation { counts, gauges, statuses, times: counted.latency.clone() }
    }

    /// With what the server processes and the master have used: microseconds of processors, and bytes of memory.
    pub fn using(mut self, servers: (u64, u64), master: (u64, u64)) -> Observation {
        (self.counts[CPU_SERVERS], self.gauges[RESIDENT_SERVERS]) = servers;
        (self.counts[CPU_MASTER], self.gauges[RESIDENT_MASTER]) = master;
        self
    }

    /// With what stores of responses have answered by themselves, and how often they were asked.
    pub fn storing(mut self, hits: u64, asked: u64) -> Observation {
        (self.counts[STORE_HITS], self.counts[STORE_LOOKUPS]) = (hits, asked);
        self
    }

    pub(super) fn gauges(&self) -> [f64; GAUGES] {
        self.gauges.map(|value| value as f64)
    }

    /// What has come about since `before`. A count that is lower than before has not risen.
    pub(super) fn since(&self, before: &Observation) -> Rise {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(&before.counts) {
            *count = count.saturating_sub(*before);
        }
        let statuses = self.statuses.iter().filter_map(|(status, count)| {
            let known = before.statuses.iter().find(|(known, _)| known == status);
            let more = count.saturating_sub(known.map_or(0, |(_, before)| *before));
            (more > 0).then_some((*status, more))
        });
        Rise { statuses: statuses.collect(), counts, times: self.times.since(&before.times) }
    }
}

/// How much more there is of what only rises.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rise {
    pub counts: [u64; COUNTS],
    pub statuses: Vec<(u16, u64)>,
    pub times: Distribution,
}

impl Rise {
    pub(super) fn totals(&self) -> DayTotals {
        let mut responses = [0; 5];
        responses.copy_from_slice(&self.counts[CLASSES..CLASSES + 5]);
        DayTotals {
            requests: self.counts[REQUESTS],
            http2_requests: self.counts[HTTP2_REQUESTS],
            received_bytes: self.counts[RECEIVED],
            sent_bytes: self.counts[SENT],
            connections: self.counts[ACCEPTED],
            tls_handshakes: self.counts[TLS_FULL].saturating_add(self.counts[TLS_RESUMED]),
            refused: self.counts[REFUSED],
            responses,
            statuses: self.statuses.clone(),
        }
    }
}
