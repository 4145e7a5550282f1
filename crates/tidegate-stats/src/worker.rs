//! The table: every metric of a worker, once.
//!
//! Sections and labels follow the perfdump report of Sun ONE Web Server 6.1 where it has them
//! (ConnectionQueue, KeepAliveInfo, CacheInfo). A row is: field, type, unit, label in the text report,
//! meaning. The times of requests are read from those of the listeners. The Prometheus name is `tidegate_`, the field, the unit unless the field ends with it, and
//! `_total` for what only rises.

use crate::cell::{Counter, Gauge};
use crate::histogram::Histogram;
use crate::kind::{
    AcceptError, ConnectionFault, ConnectionRefusal, Eviction, Flush, GatewayFailure, Handshake, Kinds,
    ParseError, QueueRefusal, Statuses, StreamReset, Timeout, TlsError,
};
use crate::listeners::ListenerTable;
use crate::table::metrics;

metrics! {
    "ConnectionQueue" {
        connections: Gauge, Count, "Connections", "Open client connections.";
        connections_accepted: Counter, Count, "Total Connections Accepted", "Connections accepted.";
        connections_closed: Counter, Count, "Total Connections Closed", "Connections closed, by either side.";
        connections_refused: Counter, Count, "Total Connections Refused",
            "Connections that were answered and closed right after accepting them.";
        connection_refusals: Kinds<ConnectionRefusal, { ConnectionRefusal::COUNT }>, Count, "Connection Refusals",
            "Why connections were refused.";
        accept_errors: Kinds<AcceptError, { AcceptError::COUNT }>, Count, "Accept Errors",
            "Connections that could not be accepted.";
        queued: Gauge, Count, "Queue Length", "Requests that wait for a place among those in flight.";
        requests_queued: Counter, Count, "Total Requests Queued", "Requests that had to wait for a place.";
        queue_delay: Histogram, Seconds, "Queueing Delay",
            "Time that requests waited for a place before they got one.";
        queue_refusals: Kinds<QueueRefusal, { QueueRefusal::COUNT }>, Count, "Queue Refusals",
            "Requests that got the busy answer in place of a place.";
    }
    "SessionCreationInfo" {
        in_flight: Gauge, Count, "Active Sessions", "Requests that wait for something before they are answered.";
        sessions_created: Counter, Count, "Total Sessions Created", "Requests that had to wait for something.";
    }
    "KeepAliveInfo" {
        keep_alive: Gauge, Count, "KeepAliveCount", "Connections that wait idle for another request.";
        keep_alive_hits: Counter, Count, "KeepAliveHits",
            "Requests received on a connection that had served one before.";
        keep_alive_flushes: Counter, Count, "KeepAliveFlushes", "Idle connections closed because of a limit.";
        keep_alive_flush_reasons: Kinds<Flush, { Flush::COUNT }>, Count, "Flush Reasons",
            "Why idle connections were closed.";
        keep_alive_refusals: Counter, Count, "KeepAliveRefusals",
            "Connections closed after a response although the client would have kept them.";
        keep_alive_timeouts: Counter, Count, "KeepAliveTimeouts", "Idle connections closed because of their age.";
    }
    "Requests" {
        requests: Counter, Count, "Total Requests", "Requests whose head was read.";
        requests_unread: Counter, Count, "Requests Unread",
            "Requests that were answered although their head could not be read.";
        requests_lost: Counter, Count, "Requests Lost",
            "Requests that a process had not answered when it ended. As last told by it.";
        responses: Statuses, Count, "Responses", "Responses by status code, interim ones included.";
        latency: ListenerTable, Seconds, "Response Time",
            "Time from the last byte of a request head to the last byte of its response.";
        received_bytes: Counter, Bytes, "Bytes Received", "Bytes received from clients.";
        sent_bytes: Counter, Bytes, "Bytes Sent", "Bytes sent to clients.";
        responses_cut: Counter, Count, "Responses Cut Short",
            "Responses whose connection was cut because a file could not be read to the end that was announced.";
        timeouts: Kinds<Timeout, { Timeout::COUNT }>, Count, "Timeouts",
            "Connections given up because the client was too slow.";
        parse_errors: Kinds<ParseError, { ParseError::COUNT }>, Count, "Parse Errors",
            "Requests that could not be read.";
    }
    "Applications" {
        gateway_requests: Counter, Count, "Application Requests", "Requests for applications.";
        gateway_failures: Kinds<GatewayFailure, { GatewayFailure::COUNT }>, Count, "Application Failures",
            "Times that an application could not be asked or has not answered.";
        gateway_errors: Kinds<GatewayFailure, { GatewayFailure::COUNT }>, Count, "Application Errors",
            "Requests that clients got an error for in place of an application's answer. What another member has answered is none.";
        gateway_retries: Counter, Count, "Application Retries",
            "Requests sent once more: to another member, or because an old connection turned out to be closed.";
        gateway_queued: Gauge, Count, "Application Queue Length", "Requests that wait for a place on an application.";
        gateway_queue_delay: Histogram, Seconds, "Application Queueing Delay",
            "Time that requests waited for a place on an application.";
        gateway_delay: Histogram, Seconds, "Application Response Time",
            "Time from the first byte sent to an application to the head of its answer.";
    }
    "TLS" {
        tls_handshakes: Kinds<Handshake, { Handshake::COUNT }>, Count, "TLS Handshakes",
            "TLS handshakes that were completed, by whether an earlier session was resumed.";
        tls_ticket_clients: Counter, Count, "TLS Ticket Clients",
            "Clients that have shown a ticket which is good for nothing here, and were none of the last 64 of their worker that had.";
        tls_errors: Kinds<TlsError, { TlsError::COUNT }>, Count, "TLS Errors",
            "TLS connections, and headers of the PROXY protocol, that have failed.";
    }
    "Overload" {
        shedding: Gauge, Count, "Shedding", "Workers that turn away because they are overloaded.";
        overloads: Counter, Count, "Total Overloads", "Times that a worker began to turn away.";
        turn_delay: Histogram, Seconds, "Turn Delay",
            "Time that what was ready waited for its turn: the least of each tenth of a second.";
        requests_shed: Counter, Count, "Requests Shed",
            "Requests on open connections that got the busy answer because of overload.";
        requests_put_off: Counter, Count, "Requests Put Off",
            "Requests that were refused for now (429, 503), with a time after which they may come again.";
        requests_repeated: Counter, Count, "Requests Repeated",
            "Requests put off that had been put off before, and came again before that time.";
        buffer: Gauge, Bytes, "Buffer Memory", "Bytes that connections own because they are stuck.";
        memory_resets: Counter, Count, "Memory Resets", "Stuck connections reset to free the bytes they owned.";
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
        cache_info_hits: Counter, Count, "Cache Info Hits",
            "Of the hits, those of which the cache had the file open, and not its contents in memory.";
        cache_misses: Counter, Count, "Cache Misses", "Look-ups that went to the file system.";
        cache_revalidations: Counter, Count, "Cache Revalidations",
            "Entries compared with the file system because of their age.";
        cache_invalidations: Counter, Count, "Cache Invalidations", "Entries dropped because the file had changed.";
        cache_evictions: Counter, Count, "Cache Evictions", "Entries dropped to make room.";
        cache_eviction_reasons: Kinds<Eviction, { Eviction::COUNT }>, Count, "Eviction Reasons",
            "What there was no room for.";
        cache_expirations: Counter, Count, "Cache Expirations", "Entries dropped since nobody asked for them.";
        file_compression: Histogram, Seconds, "File Compression",
            "Time that it took to compress a file while it was sent: each time, those that are too large to be kept compressed.";
    }
    // Of a whole process: no worker writes these, whoever reports fills them in.
    "NativePool" {
        native_threads: Gauge, Count, "Threads In Use",
            "Threads that carry out calls which may wait for a disk: in use, started, and at most.";
        native_queue: Gauge, Count, "Work Queue Length", "Calls that wait for such a thread.";
    }
    "DnsCacheInfo" {
        dns_cache_entries: Gauge, Count, "CacheEntries", "Clients whose names are remembered.";
        dns_cache_hits: Counter, Count, "CacheHits", "Times that the name of a client was remembered, or that it has none.";
        dns_cache_misses: Counter, Count, "CacheMisses", "Times that it was not.";
        dns_names: Counter, Count, "Names", "Clients that were asked for and have a name that leads back to them.";
        dns_nameless: Counter, Count, "Addresses Without Name", "Clients that were asked for and have none.";
        dns_unanswered: Counter, Count, "Unanswered", "Clients that name servers have not answered for in time.";
        dns_refused: Counter, Count, "Not Asked", "Clients that were not asked for since too many were under way.";
    }
    "UserCacheInfo" {
        user_cache_hits: Counter, Count, "UserCacheHits", "Logins that the user cache has let in.";
        user_cache_refusals: Counter, Count, "UserCacheRefusals",
            "Logins that the user cache has refused, and those without a password.";
        user_cache_misses: Counter, Count, "UserCacheMisses", "Logins that had to be looked into.";
        logins_put_off: Counter, Count, "Logins Put Off",
            "Logins that were not looked into since too many passwords had been wrong.";
        logins_unanswered: Counter, Count, "Logins Unanswered",
            "Logins that were not looked into since the directory was away, or too many waited.";
        directory_searches: Counter, Count, "Directory Searches", "Searches in directories.";
        directory_binds: Counter, Count, "Directory Binds", "Passwords that directories were asked about.";
        directory_failures: Counter, Count, "Directory Failures",
            "Times that a server of a directory has not answered a question.";
    }
}

impl Snapshot {
    /// The share of cache look-ups that the cache answered, 0 to 1; `None` before the first look-up.
    pub fn cache_hit_ratio(&self) -> Option<f64> {
        let lookups = self.cache_lookups();
        (lookups != 0).then(|| self.cache_hits as f64 / lookups as f64)
    }

    /// Look-ups that the cache answered with contents in memory.
    pub fn cache_content_hits(&self) -> u64 {
        self.cache_hits.saturating_sub(self.cache_info_hits)
    }

    /// Requests that have begun and are not counted to their end. The time of each is recorded at its end.
    pub fn requests_under_way(&self) -> u64 {
        let begun = self.requests.wrapping_add(self.requests_unread);
        begun.saturating_sub(self.latency.count()).saturating_sub(self.requests_lost)
    }

    /// Makes it what workers that have ended leave behind: their counts, without gauges. What they had open has ended
    /// with them.
    pub fn retire(&mut self) {
        self.connections_closed = self.connections_closed.wrapping_add(self.connections.current);
        self.requests_lost = self.requests_lost.wrapping_add(self.requests_under_way());
        self.retire_gauges();
    }

    /// Logins that the user cache has answered, one way or the other.
    pub fn user_cache_answers(&self) -> u64 {
        self.user_cache_hits.saturating_add(self.user_cache_refusals)
    }

    /// Logins that the user cache was asked about.
    pub fn user_cache_lookups(&self) -> u64 {
        self.user_cache_answers().saturating_add(self.user_cache_misses)
    }

    /// Names of clients that the DNS cache was asked for.
    pub fn dns_cache_lookups(&self) -> u64 {
        self.dns_cache_hits.saturating_add(self.dns_cache_misses)
    }

    /// Cache look-ups, answered or not.
    pub fn cache_lookups(&self) -> u64 {
        self.cache_hits.saturating_add(self.cache_misses)
    }
}
