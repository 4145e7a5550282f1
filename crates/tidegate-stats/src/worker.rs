//! The table: every metric of a worker, once.
//!
//! Sections and labels follow the perfdump report of Sun ONE Web Server 6.1 where it has them
//! (ConnectionQueue, KeepAliveInfo, CacheInfo). A row is: field, type, unit, label in the text report,
//! meaning. The Prometheus name is `tidegate_`, the field, the unit unless the field ends with it, and
//! `_total` for what only rises.

use crate::cell::{Counter, Gauge};
use crate::histogram::Histogram;
use crate::kind::{AcceptError, ConnectionFault, Kinds, ParseError, Statuses, StreamReset, Timeout};
use crate::table::metrics;

metrics! {
    "ConnectionQueue" {
        connections: Gauge, Count, "Connections", "Open client connections.";
        connections_accepted: Counter, Count, "Total Connections Accepted", "Connections accepted.";
        connections_closed: Counter, Count, "Total Connections Closed", "Connections closed, by either side.";
        connections_refused: Counter, Count, "Total Connections Refused",
            "Connections closed right after accepting them, because of the limit of connections.";
        accept_errors: Kinds<AcceptError, { AcceptError::COUNT }>, Count, "Accept Errors",
            "Connections that could not be accepted.";
    }
    "KeepAliveInfo" {
        keep_alive: Gauge, Count, "KeepAliveCount", "Connections that wait idle for another request.";
        keep_alive_hits: Counter, Count, "KeepAliveHits",
            "Requests received on a connection that had served one before.";
        keep_alive_flushes: Counter, Count, "KeepAliveFlushes", "Idle connections closed because of a limit.";
        keep_alive_refusals: Counter, Count, "KeepAliveRefusals",
            "Connections closed after a response although the client would have kept them.";
        keep_alive_timeouts: Counter, Count, "KeepAliveTimeouts", "Idle connections closed because of their age.";
    }
    "Requests" {
        requests: Counter, Count, "Total Requests", "Requests whose head was read.";
        responses: Statuses, Count, "Responses", "Responses by status code, interim ones included.";
        latency: Histogram, Seconds, "Response Time",
            "Time from the last byte of a request head to the last byte of its response.";
        received_bytes: Counter, Bytes, "Bytes Received", "Bytes received from clients.";
        sent_bytes: Counter, Bytes, "Bytes Sent", "Bytes sent to clients.";
        timeouts: Kinds<Timeout, { Timeout::COUNT }>, Count, "Timeouts",
            "Connections given up because the client was too slow.";
        parse_errors: Kinds<ParseError, { ParseError::COUNT }>, Count, "Parse Errors",
            "Requests that could not be read.";
    }
    "Http2Info" {
        http2_connections: Counter, Count, "Http2Connections", "Connections that speak HTTP/2.";
        http2_streams: Counter, Count, "Http2Streams", "Streams that clients have opened.";
        http2_resets: Kinds<StreamReset, { StreamReset::COUNT }>, Count, "Http2Resets", "Streams that were reset.";
        http2_faults: Kinds<ConnectionFault, { ConnectionFault::COUNT }>, Count, "Http2Faults",
            "HTTP/2 connections ended because the client broke a rule, or did too much of something.";
    }
    "CacheInfo" {
        cache_entries: Gauge, Count, "CacheEntries", "Files in the cache.";
        cache_bytes: Gauge, Bytes, "Cache Memory", "Bytes of file contents held in memory.";
        cache_descriptors: Gauge, Count, "Cache Descriptors", "Descriptors that the cache holds open.";
        cache_hits: Counter, Count, "Cache Hits", "Look-ups that the cache answered.";
        cache_misses: Counter, Count, "Cache Misses", "Look-ups that went to the file system.";
        cache_revalidations: Counter, Count, "Cache Revalidations",
            "Entries compared with the file system because of their age.";
        cache_invalidations: Counter, Count, "Cache Invalidations", "Entries dropped because the file had changed.";
        cache_evictions: Counter, Count, "Cache Evictions", "Entries dropped to make room.";
    }
}

impl Snapshot {
    /// The share of cache look-ups that the cache answered, 0 to 1; `None` before the first look-up.
    pub fn cache_hit_ratio(&self) -> Option<f64> {
        let lookups = self.cache_lookups();
        (lookups != 0).then(|| self.cache_hits as f64 / lookups as f64)
    }

    /// Cache look-ups, answered or not.
    pub fn cache_lookups(&self) -> u64 {
        self.cache_hits.saturating_add(self.cache_misses)
    }
}
