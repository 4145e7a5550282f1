//! The three reports against their golden files, and what a snapshot promises about merging.
//!
//! When a report changes on purpose, run the tests with `TIDEGATE_BLESS=1` and read the difference.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_stats::{AcceptError, Exposition, ParseError, Snapshot, Timeout, View, Worker};

fn busy_worker() -> Worker {
    let worker = Worker::default();
    worker.connections.set_limit(1000);
    worker.connections.add(3);
    worker.connections.sub(1);
    worker.connections_accepted.add(3);
    worker.connections_closed.add(1);
    worker.accept_errors.add(AcceptError::ProcessDescriptors, 1);
    worker.keep_alive.add(2);
    worker.keep_alive_hits.add(5);
    worker.requests.add(8);
    for status in [200, 200, 206, 304, 400, 404, 404, 500] {
        worker.responses.add(status);
    }
    for micros in [40, 60, 800, 1200, 30_000] {
        worker.latency.time(Duration::from_micros(micros));
    }
    worker.received_bytes.add(700);
    worker.sent_bytes.add(5 << 20);
    worker.timeouts.add(Timeout::Head, 2);
    worker.parse_errors.add(ParseError::Host, 1);
    worker.cache_entries.set_limit(1024);
    worker.cache_entries.add(2);
    worker.cache_bytes.add(3000);
    worker.cache_hits.add(6);
    worker.cache_misses.add(2);
    worker
}

fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, actual).expect("golden file is written");
    }
    let expected = std::fs::read_to_string(&path).expect("golden file is read");
    assert_eq!(actual, expected, "{name} differs");
}

fn prometheus(snapshot: &Snapshot) -> String {
    let mut out = Exposition::default();
    snapshot.write_prometheus(&mut out);
    out.text
}

#[test]
fn text_report() {
    golden("report.txt", &busy_worker().snapshot().to_text());
}

#[test]
fn json_report() {
    let json = busy_worker().snapshot().to_json();
    let value: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    assert_eq!(value["requests"], 8);
    assert_eq!(value["responses"]["2xx"], 3);
    assert_eq!(value["responses"]["codes"]["404"], 2);
    assert_eq!(value["connections"]["peak"], 3);
    assert_eq!(value["latency"]["sum"], 0.0321);
    golden("report.json", &format!("{}\n", serde_json::to_string_pretty(&value).expect("JSON is written")));
}

#[test]
fn prometheus_report() {
    golden("report.prom", &prometheus(&busy_worker().snapshot()));
}

#[test]
fn prometheus_report_is_well_formed() {
    let text = prometheus(&busy_worker().snapshot());
    let mut family = "";
    let mut last_bucket = 0;
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap_or_default();
            last_bucket = 0;
            assert!(help.len() > family.len() + 1, "no help: {line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(rest.starts_with(&format!("{family} ")), "{line}");
        } else {
            assert!(line.starts_with(family), "{line} outside of {family}");
            let value = line.rsplit(' ').next().unwrap_or_default();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            if line.contains("_bucket{") {
                let count = value.parse().expect("a count");
                assert!(count >= last_bucket, "buckets fall: {line}");
                last_bucket = count;
            }
        }
    }
    assert!(text.contains("tidegate_latency_seconds_bucket{le=\"+Inf\"} 5\n"));
    assert!(text.contains("tidegate_latency_seconds_bucket{le=\"0.00006103515625\"} 2\n"));
    assert!(text.contains("tidegate_received_bytes_total 700\n"));
}

#[test]
fn every_metric_is_described_once() {
    let snapshot = Snapshot::default();
    let rows = snapshot.rows();
    for (index, (description, view)) in rows.iter().enumerate() {
        assert!(rows.iter().skip(index + 1).all(|(other, _)| other.name != description.name));
        assert!(description.help.ends_with('.'), "{}", description.name);
        assert!(!matches!(view, View::Count(1..)));
    }
}

/// One thing to count: which metric, and how much.
fn count(worker: &Worker, (metric, amount): (u8, u16)) {
    let amount = u64::from(amount);
    match metric % 9 {
        0 => worker.requests.add(amount),
        1 => worker.responses.add(100 + amount as u16 % 500),
        2 => worker.latency.time(Duration::from_nanos(amount << 20)),
        3 => worker.parse_errors.add(ParseError::ALL[amount as usize % ParseError::COUNT], amount),
        4 => worker.timeouts.add(Timeout::ALL[amount as usize % Timeout::COUNT], amount),
        5 => worker.connections.add(amount),
        6 => worker.cache_hits.add(amount),
        7 => worker.sent_bytes.add(amount),
        _ => worker.accept_errors.add(AcceptError::Memory, amount),
    }
}

proptest! {
    /// However the work is spread over workers, the sum of their snapshots is the same.
    #[test]
    fn merging_snapshots_is_counting_together(
        counts in proptest::collection::vec((any::<u8>(), any::<u16>(), 0usize..4), 0..60),
    ) {
        let workers: [Worker; 4] = Default::default();
        let one = Worker::default();
        for (metric, amount, worker) in counts {
            count(&workers[worker], (metric, amount));
            count(&one, (metric, amount));
        }
        let mut merged = Snapshot::default();
        workers.iter().for_each(|worker| merged.merge(&worker.snapshot()));
        prop_assert_eq!(merged.workers, 4);
        merged.workers = 1;
        prop_assert_eq!(&merged, &one.snapshot());
        prop_assert_eq!(merged.to_json(), one.snapshot().to_json());
    }
}
