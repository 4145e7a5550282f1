//! Limits, bandwidths and bans in the report: what they have turned away or held up, and whether their tables are large enough.

use super::report::{Row, Section};
use super::times;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write;
use std::iter;
use tidegate_stats::{Timed, TimesFigures};

/// What is reported of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RateKind {
    /// A `limit`.
    #[default]
    Limit,
    /// A `bandwidth`: what is refused are bytes, which had to wait or would have had to.
    Bandwidth,
    /// A `ban`: what is refused are requests of those who were banned.
    Ban,
}

/// What a `limit`, a `bandwidth` or a `ban` has done since it is there, in all processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateReport {
    /// Its name.
    pub name: String,
    /// Requests beyond it; one that only tracks has let them pass.
    pub refused: u64,
    /// Requests that were judged together with others for want of a place of their own.
    pub crowded: u64,
    /// Of what.
    #[serde(default)]
    pub kind: RateKind,
    /// The queue before it, where it has one.
    #[serde(default)]
    pub queue: Option<QueueReport>,
}

/// What the queue of a `limit` has seen since it is there, in all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReport {
    /// Requests that wait now.
    pub waiting: u64,
    /// The most that have at once.
    pub most: u64,
    /// Requests that waited and had their turn.
    pub served: u64,
    /// Requests that found it full.
    pub full: u64,
    /// Requests that waited too long.
    pub too_old: u64,
    /// Requests whose clients went away while they waited.
    pub abandoned: u64,
}

/// A section for all of them; none where there is none.
pub(super) fn sections(rates: &[RateReport], all: &[TimesFigures]) -> Option<Section> {
    let row = |rate: &RateReport| {
        let crowded = match rate.crowded {
            0 => String::new(),
            count => format!(", {count} without a place of their own (`keys`)"),
        };
        let (name, refused) = (&rate.name, rate.refused);
        match rate.kind {
            RateKind::Limit => {
                let queue = rate.queue.as_ref().map(queue_text).unwrap_or_default();
                Row::new(format!("Limit {name}"), format!("{refused} beyond it{crowded}{queue}"))
            }
            RateKind::Bandwidth => {
                Row::new(format!("Bandwidth of {name}"), format!("{refused} bytes held up{crowded}"))
            }
            RateKind::Ban => {
                Row::new(format!("Ban {name}"), format!("{refused} requests of banned clients{crowded}"))
            }
        }
    };
    let waits = |rate: &RateReport| times::rows_of(all, &Timed::Limit(rate.name.clone()));
    let rows: Vec<Row> = rates.iter().flat_map(|rate| iter::once(row(rate)).chain(waits(rate))).collect();
    (!rows.is_empty()).then(|| Section { title: "Limits".into(), rows })
}

fn queue_text(queue: &QueueReport) -> String {
    let QueueReport { waiting, most, served, full, too_old, abandoned } = queue;
    format!(
        "; {waiting} wait, {most} at most, {served} have waited; {full} found the queue full, {too_old} were too old, \
         {abandoned} gave up"
    )
}

/// All of a kind as JSON.
pub(super) fn to_json((rates, all): (&[RateReport], &[TimesFigures]), kind: RateKind) -> Value {
    let refused = if kind == RateKind::Bandwidth { "delayed_bytes" } else { "refused" };
    let one = |rate: &RateReport| {
        let mut told = json!({ "name": rate.name, refused: rate.refused, "crowded": rate.crowded });
        if let Some(queue) = rate.queue {
            told["queue"] = json!(queue);
            times::add_to_json(&mut told["queue"], all, &Timed::Limit(rate.name.clone()));
        }
        told
    };
    rates.iter().filter(|rate| rate.kind == kind).map(one).collect()
}

/// What a limit says to a measure.
type Measure = (&'static str, &'static str, fn(&RateReport) -> u64);

/// All of them for Prometheus.
pub(super) fn write_prometheus(text: &mut String, rates: &[RateReport]) {
    const MEASURES: [Measure; 2] = [
        ("refused_total", "Requests beyond the limit.", |rate| rate.refused),
        ("crowded_total", "Requests without a place of their own in the table of the limit.", |rate| {
            rate.crowded
        }),
    ];
    const OF_BANDWIDTHS: [Measure; 2] = [
        ("delayed_bytes_total", "Bytes that had to wait for their turn.", |rate| rate.refused),
        (
            "crowded_total",
            "Pieces sent without a place of their own in the table of the bandwidth.",
            |rate| rate.crowded,
        ),
    ];
    const OF_BANS: [Measure; 2] = [
        ("refused_total", "Requests of banned clients.", |rate| rate.refused),
        (
            "crowded_total",
            "Answers that could not be counted for want of a place in the table of the ban.",
            |rate| rate.crowded,
        ),
    ];
    for (what, measures, kind) in [
        ("limit", MEASURES, RateKind::Limit),
        ("bandwidth", OF_BANDWIDTHS, RateKind::Bandwidth),
        ("ban", OF_BANS, RateKind::Ban),
    ] {
        let rates = || rates.iter().filter(move |rate| rate.kind == kind);
        for (name, help, value) in measures.into_iter().filter(|_| rates().next().is_some()) {
            let name = format!("tidegate_{what}_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
            for rate in rates() {
                let _ = writeln!(text, "{name}{{{what}=\"{}\"}} {}", label(&rate.name), value(rate));
            }
        }
    }
    write_queues(text, rates);
}

/// A name as the value of a label.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What a queue says to a measure.
type QueueMeasure = (&'static str, &'static str, &'static str, fn(&QueueReport) -> u64);

fn write_queues(text: &mut String, rates: &[RateReport]) {
    const MEASURES: [QueueMeasure; 6] = [
        ("waiting", "gauge", "Requests that wait for a place.", |queue| queue.waiting),
        ("waiting_max", "gauge", "The most that have waited at once.", |queue| queue.most),
        ("waited_total", "counter", "Requests that waited and had their turn.", |queue| queue.served),
        ("queue_full_total", "counter", "Requests that found the queue full.", |queue| queue.full),
        ("queue_too_old_total", "counter", "Requests that waited too long.", |queue| queue.too_old),
        (
            "queue_abandoned_total",
            "counter",
            "Requests whose clients went away while they waited.",
            |queue| queue.abandoned,
        ),
    ];
    let queues: Vec<_> = rates.iter().filter_map(|rate| Some((label(&rate.name), rate.queue?))).collect();
    for (name, kind, help, value) in MEASURES.into_iter().filter(|_| !queues.is_empty()) {
        let _ = writeln!(text, "# HELP tidegate_limit_{name} {help}\n# TYPE tidegate_limit_{name} {kind}");
        for (label, queue) in &queues {
            let _ = writeln!(text, "tidegate_limit_{name}{{limit=\"{label}\"}} {}", value(queue));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_say_the_same() {
        let rates = [
            RateReport { name: "api".into(), refused: 3, ..RateReport::default() },
            RateReport { name: "a\"b\\c\nd".into(), crowded: 7, ..RateReport::default() },
            RateReport {
                name: "the server".into(),
                refused: 9,
                kind: RateKind::Bandwidth,
                ..RateReport::default()
            },
            RateReport { name: "guessers".into(), refused: 4, kind: RateKind::Ban, ..RateReport::default() },
        ];
        let section = sections(&rates, &[]).unwrap();
        assert_eq!(section.rows[0].value, "3 beyond it");
        assert_eq!(section.rows[1].value, "0 beyond it, 7 without a place of their own (`keys`)");
        assert_eq!(to_json((&rates, &[]), RateKind::Limit)[1]["crowded"], 7);
        let mut text = String::new();
        write_prometheus(&mut text, &rates);
        assert!(text.contains("tidegate_limit_refused_total{limit=\"api\"} 3\n"), "{text}");
        assert!(text.contains("tidegate_limit_crowded_total{limit=\"a\\\"b\\\\c\\nd\"} 7\n"), "{text}");
        assert!(
            text.contains("tidegate_bandwidth_delayed_bytes_total{bandwidth=\"the server\"} 9\n"),
            "{text}"
        );
        assert_eq!(section.rows[2].value, "9 bytes held up");
        assert_eq!(to_json((&rates, &[]), RateKind::Bandwidth)[0]["delayed_bytes"], 9);
        assert_eq!(section.rows[3].value, "4 requests of banned clients");
        assert!(text.contains("tidegate_ban_refused_total{ban=\"guessers\"} 4\n"), "{text}");
        assert_eq!(text.lines().count(), 20);
        assert!(sections(&[], &[]).is_none());
    }

    #[test]
    fn a_queue_is_told_of_where_there_is_one() {
        let queue = QueueReport { waiting: 1, most: 2, served: 3, full: 4, too_old: 5, abandoned: 6 };
        let rates = [
            RateReport { name: "slots".into(), refused: 9, queue: Some(queue), ..RateReport::default() },
            RateReport { name: "plain".into(), ..RateReport::default() },
        ];
        let rows = sections(&rates, &[]).unwrap().rows;
        let text = "9 beyond it; 1 wait, 2 at most, 3 have waited; 4 found the queue full, 5 were too old, 6 gave up";
        assert_eq!(rows[0].value, text);
        assert_eq!(rows[1].value, "0 beyond it");
        let told = to_json((&rates, &[]), RateKind::Limit);
        assert_eq!((&told[0]["queue"]["too_old"], &told[1]["queue"]), (&json!(5), &Value::Null));
        let mut text = String::new();
        write_prometheus(&mut text, &rates);
        assert!(text.contains("tidegate_limit_waiting{limit=\"slots\"} 1\n"), "{text}");
        assert!(text.contains("tidegate_limit_queue_abandoned_total{limit=\"slots\"} 6\n"), "{text}");
        assert!(!text.contains("tidegate_limit_waiting{limit=\"plain\"}"), "{text}");
    }
}
