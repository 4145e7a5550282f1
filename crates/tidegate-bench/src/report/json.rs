//! The report as one JSON object. The names are a contract: other programs read them.

use super::{PERCENTILES, Report};
use crate::record::Times;
use serde_json::{Map, Value, json};

/// The object. `availability` in percent, times in seconds, `rate` in answered requests per second.
pub fn json(report: &Report) -> Value {
    let counts = &report.totals.counts;
    let totals = &report.totals;
    let errors: Map<String, Value> =
        counts.failures.iter().map(|(failure, count)| (failure.name().to_owned(), json!(count))).collect();
    let statuses: Map<String, Value> =
        counts.statuses.iter().map(|(status, count)| (status.to_string(), json!(count))).collect();
    let digests: Map<String, Value> =
        report.digests().into_iter().map(|(crc, count)| (format!("{crc:08x}"), json!(count))).collect();
    let mut object = json!({
        "subject": report.subject,
        "load": report.load,
        "protocol": report.protocol,
        "requests": counts.requests,
        "succeeded": counts.succeeded,
        "answered": counts.answered,
        "errors": errors,
        "failed": counts.failed(),
        "availability": counts.availability(),
        "statuses": statuses,
        "rate": report.rate(),
        "demanded": report.demanded,
        "bytes": counts.bytes,
        "body_bytes": counts.body_bytes,
        "bytes_sent": counts.bytes_sent,
        "seconds": report.outcome.seconds(),
        "concurrency": report.concurrency(),
        "connects": counts.connects,
        "tls": {
            "full": counts.tls_full,
            "resumed": counts.tls_resumed,
            "spoken": report.outcome.tls,
        },
        "most_open": report.outcome.most_open(),
        "queued": counts.queued,
        "conforming": counts.conforming,
        "crc32": digests,
        "verdict": report.judgement.verdict,
        "reasons": report.judgement.reasons,
        "notes": report.judgement.notes,
        "latency": times(&totals.response),
        "latency_expected": times(&totals.expected),
        "service": times(&totals.service),
        "wait": times(&totals.wait),
        "connect": times(&totals.connect),
        "handshake": times(&totals.handshake),
        "lateness": times(&totals.lateness),
        "speed": {
            "min": totals.speed.number_at(0.0),
            "p50": totals.speed.number_at(50.0),
            "max": totals.speed.number_at(100.0),
        },
        "generator": {
            "processes": report.outcome.processes,
            "threads": report.outcome.threads,
            "cpu_seconds": report.outcome.cpu(),
            "memory": report.outcome.memory,
            "busiest": report.outcome.busiest_worker(),
        },
        "warmup_requests": report.outcome.warmup_requests,
        "host": report.host,
        "intervals": intervals(report),
    });
    object["without_answer"] = json!(totals.without_answer());
    object["interrupted"] = json!(totals.interrupted.count());
    object["sent_again"] = json!(counts.sent_again);
    object["sent_again_excused"] = json!(counts.sent_again_excused);
    object["dropped"] = json!(counts.dropped);
    object["surplus"] = json!(counts.surplus);
    object["protocol_errors"] = json!(counts.protocol_errors);
    object["server_bytes_per_connection"] = json!(report.bytes_per_connection());
    object["first_failed"] = json!(report.outcome.failed);
    object["about"] = json!(report.about);
    object
}

/// A distribution: seconds.
fn times(times: &Times) -> Value {
    let mut object = Map::new();
    object.insert("count".into(), json!(times.count()));
    object.insert("min".into(), json!(times.min().as_secs_f64()));
    object.insert("mean".into(), json!(times.mean().as_secs_f64()));
    object.insert("max".into(), json!(times.max().as_secs_f64()));
    object.insert("deviation".into(), json!(times.deviation().as_secs_f64()));
    for percent in PERCENTILES {
        object.insert(format!("p{percent}"), json!(times.percentile(percent).as_secs_f64()));
    }
    Value::Object(object)
}

fn intervals(report: &Report) -> Value {
    let length = report.outcome.interval as f64 / 1e9;
    let rows = report.outcome.intervals.iter().map(|interval| {
        let mut response = Times::default();
        response.add(&interval.response);
        json!({
            "at": f64::from(interval.number) * length,
            "seconds": interval.length as f64 / 1e9,
            "requests": interval.counts.requests,
            "failed": interval.counts.failed(),
            "bytes": interval.counts.bytes,
            "open": interval.open,
            "p50": response.percentile(50.0).as_secs_f64(),
            "p99": response.percentile(99.0).as_secs_f64(),
            "max": response.max().as_secs_f64(),
        })
    });
    Value::Array(rows.collect())
}
