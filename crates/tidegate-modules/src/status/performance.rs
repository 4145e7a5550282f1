//! The sections of Sun's perfdump that are about settings and buckets: listen sockets, and the performance counters with
//! their columns Average, Total and Percent.
//!
//! A bucket holds the requests of the routes that name it, `default-bucket` all others. *Latency* is the time before a route
//! could begin: waiting for a place among those in flight, or on an application. *Function Processing Time* is the rest.
//! *Number of Invocations* also has what the server asks of a route on behalf of a client's request for another one, such as
//! the script behind an `index`.

use super::InForce;
use super::report::{Row, Section, label};
use super::sites::{distribution, figures_to_json, times};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use tidegate_config::settings::DEFAULT_BUCKET;
use tidegate_stats::series::{RouteFigures, SeriesFigures};
use tidegate_stats::{Exposition, Level, ListenerFigures, Schema};

/// What each bucket has counted, `default-bucket` first.
pub(super) fn buckets(in_force: &InForce, series: &SeriesFigures) -> Vec<(String, RouteFigures)> {
    if in_force.statistics_off {
        return Vec::new();
    }
    let of: HashMap<(&str, &str), &str> = in_force
        .buckets
        .iter()
        .map(|(site, route, bucket)| ((site.as_str(), route.as_str()), bucket.as_str()))
        .collect();
    let mut named: BTreeMap<&str, RouteFigures> =
        in_force.buckets.iter().map(|(.., bucket)| (bucket.as_str(), RouteFigures::default())).collect();
    let mut rest = named.remove(DEFAULT_BUCKET).unwrap_or_default();
    for site in &series.sites {
        rest.merge(&site.unrouted);
        for (route, figures) in &site.routes {
            let bucket = of.get(&(site.name.as_str(), route.as_str()));
            bucket.and_then(|name| named.get_mut(name)).unwrap_or(&mut rest).merge(figures);
        }
    }
    let named = named.into_iter().map(|(name, figures)| (name.to_owned(), figures));
    std::iter::once((DEFAULT_BUCKET.to_owned(), rest)).chain(named).collect()
}

/// A section for each listen socket.
pub(super) fn listen_sockets(in_force: &InForce) -> Vec<Section> {
    let section = |(number, socket): (usize, &super::ListenSocket)| Section {
        title: format!("ListenSocket ls{number}"),
        rows: vec![
            Row::new("Address", socket.address.as_str()),
            Row::new("Acceptor Threads", socket.acceptors.to_string()),
            Row::new("Default Virtual Server", socket.default_site.as_str()),
            Row::new("Connections", socket.counted.connections.current.to_string()),
            Row::new("Total Connections Accepted", socket.counted.accepted.to_string()),
            Row::new("Total Connections Refused", socket.counted.refused.to_string()),
            Row::new("Current/peak/limit queue length", level(socket.counted.waiting)),
            Row::new("Requests", socket.counted.latency.count().to_string()),
            Row::new("Response Time", times(&socket.counted.latency)),
            Row::new("Bytes Received", socket.counted.received.to_string()),
            Row::new("Bytes Sent", socket.counted.sent.to_string()),
        ],
    };
    (1..).zip(&in_force.listen_sockets).map(section).collect()
}

/// The listen sockets as JSON.
pub(super) fn listen_sockets_to_json(in_force: &InForce) -> Value {
    let one = |socket: &super::ListenSocket| {
        let ListenerFigures { connections, waiting, latency, .. } = &socket.counted;
        json!({
            "address": socket.address,
            "acceptors": socket.acceptors,
            "default_site": socket.default_site,
            "connections": connections.current,
            "connections_accepted": socket.counted.accepted,
            "connections_refused": socket.counted.refused,
            "connections_waiting": {"current": waiting.current, "peak": waiting.peak, "limit": waiting.limit},
            "requests": latency.count(),
            "received_bytes": socket.counted.received,
            "sent_bytes": socket.counted.sent,
            "total": distribution(latency),
        })
    };
    in_force.listen_sockets.iter().map(one).collect()
}

fn level(level: Level) -> String {
    format!("{}/{}/{}", level.current, level.peak, level.limit)
}

type Measure = (&'static str, &'static str, &'static str, fn(&ListenerFigures) -> u64);

/// What is told of a listen socket: name, kind, meaning and figure.
const MEASURES: [Measure; 8] = [
    ("connections", "gauge", "Open client connections.", |of| of.connections.current),
    ("connections_accepted_total", "counter", "Connections accepted.", |of| of.accepted),
    (
        "connections_refused_total",
        "counter",
        "Of these, those that were answered and closed at once.",
        |of| of.refused,
    ),
    ("queue", "gauge", "Connections that wait to be accepted, as last seen.", |of| of.waiting.current),
    ("queue_peak", "gauge", "The most that have waited at once, at each worker, added up.", |of| {
        of.waiting.peak
    }),
    ("queue_limit", "gauge", "Connections that may wait: the backlogs of all workers.", |of| {
        of.waiting.limit
    }),
    ("received_bytes_total", "counter", "Bytes of the heads and content of requests.", |of| of.received),
    ("sent_bytes_total", "counter", "Bytes of heads and content that were sent.", |of| of.sent),
];

/// Appends what listen sockets have counted, for Prometheus. Two that are called the same are one.
pub(super) fn write_listen_sockets(out: &mut Exposition, in_force: &InForce) {
    let mut told = HashSet::new();
    let sockets = in_force.listen_sockets.iter();
    let sockets: Vec<_> = sockets.filter(|socket| told.insert(&socket.address)).collect();
    if sockets.is_empty() {
        return;
    }
    for (what, kind, help, figure) in MEASURES {
        let name = format!("tidegate_listener_{what}");
        let _ = writeln!(out.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for socket in &sockets {
            let (address, figure) = (label(&socket.address), figure(&socket.counted));
            let _ = writeln!(out.text, "{name}{{listener=\"{address}\"}} {figure}");
        }
    }
    let name = "tidegate_listener_request_duration_seconds";
    let help = "Time from the last byte of a request head to the last byte of its response.";
    let _ = writeln!(out.text, "# HELP {name} {help}\n# TYPE {name} histogram");
    for socket in &sockets {
        let labels = format!("listener=\"{}\"", label(&socket.address));
        out.histogram(name, &labels, &socket.counted.latency, Schema::Fine);
    }
}

/// The section of performance counters.
pub(super) fn section(buckets: &[(String, RouteFigures)]) -> Section {
    let all = sum(buckets);
    if buckets.is_empty() {
        let rows = vec![Row::new("Statistics", "off")];
        return Section { title: "Performance Counters".into(), rows };
    }
    let mut rows = vec![
        Row::new("", columns("Average", "Total", "Percent")),
        Row::new("Total number of requests:", columns("", &all.requests().to_string(), "")),
        time_row("Request processing time:", seconds(&all), &all, None),
    ];
    for (name, figures) in buckets {
        let description = if name == DEFAULT_BUCKET { " (Default bucket)" } else { "" };
        rows.push(Row::new(format!("{name}{description}"), ""));
        let latency = latency(figures);
        let count = |label, count: u64, of: u64| {
            Row::new(label, columns("", &count.to_string(), &percent(count as f64, of as f64)))
        };
        rows.extend([
            count("Number of Requests:", figures.requests(), all.requests()),
            count("Number of Invocations:", figures.invocations(), all.invocations()),
            time_row("Latency:", latency, figures, Some(&all)),
            time_row("Function Processing Time:", seconds(figures) - latency, figures, Some(&all)),
            time_row("Total Response Time:", seconds(figures), figures, Some(&all)),
        ]);
    }
    Section { title: "Performance Counters".into(), rows }
}

fn sum(buckets: &[(String, RouteFigures)]) -> RouteFigures {
    let mut all = RouteFigures::default();
    buckets.iter().for_each(|(_, figures)| all.merge(figures));
    all
}

fn seconds(figures: &RouteFigures) -> f64 {
    figures.time().as_secs_f64()
}

/// Seconds that requests waited before their route could begin. Who has gone while waiting may not have waited to the end.
fn latency(figures: &RouteFigures) -> f64 {
    (figures.times.queue.sum_nanos() as f64 / 1e9).min(seconds(figures))
}

fn time_row(label: &str, time: f64, figures: &RouteFigures, all: Option<&RouteFigures>) -> Row {
    let mean = if figures.requests() == 0 { 0.0 } else { time / figures.requests() as f64 };
    let share = all.map(|all| percent(time, seconds(all))).unwrap_or_default();
    Row::new(label, columns(&format!("{mean:.4}"), &format!("{time:.4}"), &share))
}

fn percent(part: f64, whole: f64) -> String {
    let percent = if whole > 0.0 { part * 100.0 / whole } else { 0.0 };
    format!("({percent:6.2}%)")
}

fn columns(average: &str, total: &str, percent: &str) -> String {
    format!("{average:>10} {total:>14} {percent:>10}").trim_end().to_owned()
}

/// All buckets as JSON.
pub(super) fn to_json(buckets: &[(String, RouteFigures)]) -> Value {
    let all = sum(buckets);
    let one = |(name, figures): &(String, RouteFigures)| {
        let mut told = Map::new();
        told.insert("name".into(), json!(name));
        told.extend(figures_to_json(figures));
        let latency = latency(figures);
        told.insert("latency_seconds".into(), json!(latency));
        told.insert("function_seconds".into(), json!(seconds(figures) - latency));
        let share = if seconds(&all) > 0.0 { seconds(figures) / seconds(&all) } else { 0.0 };
        told.insert("share".into(), json!(share));
        Value::Object(told)
    };
    buckets.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_stats::series::SiteFigures;

    fn figures(requests: u64, millis: u64) -> RouteFigures {
        RouteFigures { answers: [0, requests, 0, 0, 0], nanos: millis * 1_000_000, ..RouteFigures::default() }
    }

    #[test]
    fn routes_are_counted_in_their_buckets() {
        let bucket =
            |site: &str, route: &str, name: &str| (site.to_owned(), route.to_owned(), name.to_owned());
        let in_force = InForce {
            buckets: vec![bucket("a", "/x", "shop"), bucket("b", "/y", "shop"), bucket("b", "/z", "idle")],
            ..InForce::default()
        };
        let site = |name: &str, routes: Vec<(String, RouteFigures)>| SiteFigures {
            name: name.into(),
            routes,
            ..SiteFigures::default()
        };
        let series = SeriesFigures {
            sites: vec![
                site("a", vec![("/x".into(), figures(3, 300)), ("/y".into(), figures(6, 100))]),
                site("b", vec![("/y".into(), figures(1, 100))]),
            ],
            folded: 0,
        };
        let buckets = buckets(&in_force, &series);
        let counts: Vec<_> =
            buckets.iter().map(|(name, figures)| (name.as_str(), figures.requests())).collect();
        assert_eq!(counts, [(DEFAULT_BUCKET, 6), ("idle", 0), ("shop", 4)]);
        let mut text = String::new();
        super::super::report::write_section(&mut text, &section(&buckets));
        for line in [
            "Total number of requests:                                      10",
            "default-bucket (Default bucket)",
            "Number of Requests:                                             4  ( 40.00%)",
            "Total Response Time:                        0.1000         0.4000  ( 80.00%)",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(to_json(&buckets)[2]["share"], 0.8);
    }
}
