//! The report as XML, with the elements and attributes of `stats-xml` (Sun ONE Web Server 6.1, Netscape Enterprise Server
//! 6.1 `nesstats.xml`): for tools that read that. What the server of today does not have is left out, and times that were in
//! ticks are in microseconds, which `ticksPerSecond` says.

use super::ServerInfo;
use crate::cache_desk::{RequestFigures, StoreFigures, TierFigures};
use std::fmt::Write;
use tidegate_stats::Snapshot;
use tidegate_stats::series::RouteFigures;

/// Of the times in profiles.
const TICKS: u128 = 1_000_000;

/// Requests that came to no route of their site, as in the text report.
const NO_ROUTE: &str = "(no route)";

/// An element that is being written.
struct Element<'x> {
    xml: &'x mut String,
    indent: usize,
    name: &'static str,
}

impl<'x> Element<'x> {
    fn begin(xml: &'x mut String, indent: usize, name: &'static str) -> Element<'x> {
        let _ = write!(xml, "{:indent$}<{name}", "", indent = indent * 2);
        Element { xml, indent, name }
    }

    fn attribute(self, name: &str, value: impl std::fmt::Display) -> Element<'x> {
        let _ = write!(self.xml, " {name}=\"{}\"", escape(&value.to_string()));
        self
    }

    fn empty(self) {
        self.xml.push_str("/>\n");
    }

    fn with(self, content: impl FnOnce(&mut String, usize)) {
        self.xml.push_str(">\n");
        content(self.xml, self.indent + 1);
        let (indent, name) = (self.indent * 2, self.name);
        let _ = writeln!(self.xml, "{:indent$}</{name}>", "");
    }
}

/// The report.
pub(super) fn write(info: &ServerInfo, counted: &Snapshot, buckets: &[(String, RouteFigures)]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n");
    let stats = Element::begin(&mut xml, 0, "stats").attribute("enabled", 1);
    stats.attribute("versionMajor", 1).attribute("versionMinor", 1).with(|xml, indent| {
        Element::begin(xml, indent, "server")
            .attribute("id", info.sites.first().map_or("tidegate", String::as_str))
            .attribute("versionServer", format_args!("Tidegate/{}", info.version))
            .attribute("timeStarted", info.started)
            .attribute("secondsRunning", info.now.saturating_sub(info.started).max(0))
            .attribute("ticksPerSecond", TICKS)
            .attribute("maxProcs", info.processes.len())
            .attribute("maxThreads", info.workers)
            .attribute("flagProfilingEnabled", 1)
            .attribute("flagVirtualServerOverflow", 0)
            .with(|xml, indent| server(xml, indent, info, counted, buckets));
    });
    xml
}

fn server(
    xml: &mut String,
    indent: usize,
    info: &ServerInfo,
    counted: &Snapshot,
    buckets: &[(String, RouteFigures)],
) {
    // Not of the format, as `route` below.
    for finding in &info.findings {
        Element::begin(xml, indent, "finding")
            .attribute("name", &finding.name)
            .attribute("subject", &finding.subject)
            .attribute("since", finding.since)
            .attribute("sentence", &finding.sentence)
            .attribute("change", &finding.change.text)
            .attribute("page", &finding.page)
            .empty();
    }
    info.stores.iter().for_each(|store| response_cache(xml, indent, store));
    Element::begin(xml, indent, "connection-queue").attribute("id", "cq1").empty();
    Element::begin(xml, indent, "thread-pool")
        .attribute("id", "NativePool")
        .attribute("name", "NativePool")
        .empty();
    for (number, (name, _)) in buckets.iter().enumerate() {
        let profile =
            Element::begin(xml, indent, "profile").attribute("id", format_args!("profile-{number}"));
        profile.attribute("name", name).attribute("description", "").empty();
    }
    // Figures of processes are added up, those that have ended too: there is one element for all of them.
    let process =
        Element::begin(xml, indent, "process").attribute("pid", info.pid).attribute("mode", "active");
    process.attribute("timeStarted", info.started).with(|xml, indent| {
        Element::begin(xml, indent, "connection-queue-bucket")
            .attribute("connection-queue", "cq1")
            .attribute("countTotalConnections", counted.connections_accepted)
            .attribute("countQueued", counted.queued.current)
            .attribute("peakQueued", counted.queued.peak)
            .attribute("maxQueued", counted.queued.limit)
            .attribute("countTotalQueued", counted.requests_queued)
            .attribute("ticksTotalQueued", counted.queue_delay.sum_nanos() * TICKS / 1_000_000_000)
            .empty();
        let threads = counted.native_threads;
        Element::begin(xml, indent, "thread-pool-bucket")
            .attribute("thread-pool", "NativePool")
            .attribute("countThreadsIdle", threads.peak.saturating_sub(threads.current))
            .attribute("countThreads", threads.peak)
            .attribute("maxThreads", threads.limit)
            .attribute("countQueued", counted.native_queue.current)
            .attribute("peakQueued", counted.native_queue.peak)
            .attribute("maxQueued", counted.native_queue.limit)
            .empty();
        Element::begin(xml, indent, "dns-bucket")
            .attribute("flagCacheEnabled", u8::from(counted.dns_cache_entries.limit > 0))
            .attribute("countCacheEntries", counted.dns_cache_entries.current)
            .attribute("maxCacheEntries", counted.dns_cache_entries.limit)
            .attribute("countCacheHits", counted.dns_cache_hits)
            .attribute("countCacheMisses", counted.dns_cache_misses)
            .empty();
        Element::begin(xml, indent, "keepalive-bucket")
            .attribute("countConnections", counted.keep_alive.current)
            .attribute("maxConnections", counted.keep_alive.limit)
            .attribute("countHits", counted.keep_alive_hits)
            .attribute("countFlushes", counted.keep_alive_flushes)
            .attribute("countRefusals", counted.keep_alive_refusals)
            .attribute("countTimeouts", counted.keep_alive_timeouts)
            .attribute("secondsTimeout", info.in_force.keep_alive_timeout.as_secs())
            .empty();
        Element::begin(xml, indent, "cache-bucket")
            .attribute("flagEnabled", u8::from(info.in_force.cache_enabled))
            .attribute("secondsMaxAge", info.in_force.cache_max_age.as_secs())
            .attribute("countEntries", counted.cache_entries.current)
            .attribute("maxEntries", counted.cache_entries.limit)
            .attribute("countOpenEntries", counted.cache_descriptors.current)
            .attribute("maxOpenEntries", counted.cache_descriptors.limit)
            .attribute("sizeHeapCache", counted.cache_bytes.current)
            .attribute("maxHeapCacheSize", counted.cache_bytes.limit)
            .attribute("countHits", counted.cache_hits)
            .attribute("countMisses", counted.cache_misses)
            .attribute("countInfoHits", counted.cache_info_hits)
            .attribute("countContentHits", counted.cache_content_hits())
            .empty();
    });
    for site in &info.series.sites {
        let element = Element::begin(xml, indent, "virtual-server").attribute("id", &site.name);
        element.attribute("mode", "active").attribute("hosts", &site.name).with(|xml, indent| {
            request_bucket(xml, indent, &site.total());
            for (name, figures) in &site.routes {
                // Not of the format: routes are what is profiled here.
                let route = Element::begin(xml, indent, "route").attribute("pattern", name);
                route.with(|xml, indent| request_bucket(xml, indent, figures));
            }
            if !site.unrouted.is_empty() {
                let none = Element::begin(xml, indent, "route").attribute("pattern", NO_ROUTE);
                none.with(|xml, indent| request_bucket(xml, indent, &site.unrouted));
            }
        });
    }
    for (number, (_, figures)) in buckets.iter().enumerate() {
        let waited = figures.times.queue.sum_nanos() * TICKS / 1_000_000_000;
        let all = figures.time().as_micros();
        Element::begin(xml, indent, "profile-bucket")
            .attribute("profile", format_args!("profile-{number}"))
            .attribute("countCalls", figures.invocations())
            .attribute("countRequests", figures.requests())
            .attribute("ticksDispatch", waited.min(all))
            .attribute("ticksFunction", all.saturating_sub(waited))
            .empty();
    }
}

/// A store of responses with its memory and its disks. Not of the format, whose `cache-bucket` is the file cache.
fn response_cache(xml: &mut String, indent: usize, store: &StoreFigures) {
    let RequestFigures { hits, stale_hits, revalidated, misses, passed, collapsed, bypassed } =
        store.requests;
    let cache = Element::begin(xml, indent, "response-cache")
        .attribute("name", &store.store)
        .attribute("countHits", hits)
        .attribute("countStaleHits", stale_hits)
        .attribute("countCollapsed", collapsed)
        .attribute("countRevalidated", revalidated)
        .attribute("countMisses", misses)
        .attribute("countPassed", passed)
        .attribute("countBypassed", bypassed)
        .attribute("countStored", store.stored)
        .attribute("countNotStored", store.not_stored.iter().map(|(_, count)| count).sum::<u64>())
        .attribute("countPurged", store.purged)
        .attribute("countFetches", store.fetches);
    cache.with(|xml, indent| {
        cache_tier(xml, indent, "memory", None, &store.memory);
        for disk in &store.disks {
            cache_tier(xml, indent, &disk.folder.display().to_string(), disk.is_out.as_deref(), &disk.tier);
        }
    });
}

/// Of a disk that is out of use it is told why.
fn cache_tier(xml: &mut String, indent: usize, place: &str, out: Option<&str>, tier: &TierFigures) {
    let mut element = Element::begin(xml, indent, "response-cache-bucket")
        .attribute("place", place)
        .attribute("flagEnabled", u8::from(out.is_none()));
    if let Some(why) = out {
        element = element.attribute("reasonDisabled", why);
    }
    element
        .attribute("countEntries", tier.entries)
        .attribute("sizeCache", tier.bytes)
        .attribute("maxCacheSize", tier.limit)
        .attribute("countEvicted", tier.evicted)
        .attribute("countReturned", tier.returned)
        .empty();
}

fn request_bucket(xml: &mut String, indent: usize, figures: &RouteFigures) {
    let mut bucket = Element::begin(xml, indent, "request-bucket")
        .attribute("countRequests", figures.requests())
        .attribute("countBytesReceived", figures.received)
        .attribute("countBytesTransmitted", figures.sent);
    for class in 2..=5 {
        bucket = bucket.attribute(&format!("count{class}xx"), figures.class(class));
    }
    bucket.attribute("countOther", figures.class(1)).empty();
}

/// For the value of an attribute. What XML has no place for is replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            char if char.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&char) => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_desk::DiskFigures;

    #[test]
    fn stores_have_elements_of_their_own() {
        let tier =
            TierFigures { entries: 3, bytes: 100, limit: 1000, evicted: 4, returned: 1, returned_bytes: 9 };
        let store = StoreFigures {
            store: "a&b".into(),
            requests: RequestFigures { hits: 7, misses: 2, ..RequestFigures::default() },
            not_stored: [("private".into(), 5), ("no-store".into(), 6)].into(),
            memory: tier.clone(),
            disks: vec![DiskFigures {
                folder: "/var/cache".into(),
                is_out: Some("is full".into()),
                tier,
                ..DiskFigures::default()
            }],
            ..StoreFigures::default()
        };
        let info = ServerInfo { stores: vec![store], ..ServerInfo::default() };
        let xml = write(&info, &Snapshot::default(), &[]);
        for line in [
            "<response-cache name=\"a&amp;b\" countHits=\"7\" countStaleHits=\"0\"",
            " countMisses=\"2\" countPassed=\"0\" countBypassed=\"0\" countStored=\"0\" countNotStored=\"11\"",
            "<response-cache-bucket place=\"memory\" flagEnabled=\"1\" countEntries=\"3\" sizeCache=\"100\"",
            "<response-cache-bucket place=\"/var/cache\" flagEnabled=\"0\" reasonDisabled=\"is full\" countEntries=\"3\"",
            "</response-cache>",
        ] {
            assert!(xml.contains(line), "{line} in {xml}");
        }
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(escape("a<b>&\"c\u{1}\u{ffff}"), "a&lt;b&gt;&amp;&quot;c\u{fffd}\u{fffd}");
    }
}
