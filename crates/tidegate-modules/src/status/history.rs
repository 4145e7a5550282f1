//! The history of the server as a report: a table with small graphs for people, arrays for a console.

use super::ask::Format;
use super::report::date;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use tidegate_stats::history::{Day, History, Range, Span};

/// What of the history is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryRange {
    /// Of seconds, tens of seconds or minutes.
    Recent(Range),
    /// The totals of days.
    Days,
}

impl HistoryRange {
    /// All of them, each with its name in queries and commands.
    pub const ALL: [(&'static str, HistoryRange); 4] = [
        ("10m", HistoryRange::Recent(Range::Minutes)),
        ("6h", HistoryRange::Recent(Range::Hours)),
        ("14d", HistoryRange::Recent(Range::Days)),
        ("days", HistoryRange::Days),
    ];

    /// By its name.
    pub fn from_name(name: &str) -> Option<HistoryRange> {
        HistoryRange::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, range)| range)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        HistoryRange::ALL.into_iter().find(|(_, known)| *known == self).map_or("10m", |(name, _)| name)
    }
}

/// The report; a server without a history has an empty one.
pub fn history_report(history: Option<&History>, range: HistoryRange, format: Format) -> String {
    let is_json = format == Format::Json;
    match range {
        HistoryRange::Recent(range) => {
            let span = history.map(|history| history.span(range)).unwrap_or_else(|| Span::empty(range));
            if is_json { span_to_json(&span) } else { span_to_text(&span, history.is_some()) }
        }
        HistoryRange::Days => {
            let days: Vec<&Day> = history.map(|history| history.days().collect()).unwrap_or_default();
            if is_json { days_to_json(&days) } else { days_to_text(&days, history.is_some()) }
        }
    }
}

/// Of each series all values, in an object by their names.
fn span_to_json(span: &Span) -> String {
    let marks: Vec<Value> =
        span.marks.iter().map(|mark| json!({ "at": mark.at, "what": mark.what })).collect();
    let marks = Value::Array(marks);
    let Span { resolution, from, until, .. } = span;
    let mut text =
        format!("{{\"resolution\":{resolution},\"from\":{from},\"until\":{until},\"marks\":{marks}");
    text.push_str(",\"series\":{");
    for (number, (name, values)) in span.series.iter().enumerate() {
        let _ = write!(text, "{}\"{name}\":[", if number > 0 { "," } else { "" });
        for (at, value) in values.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            // Writing to a `String` cannot fail.
            let _ = match value {
                Some(value) => write!(text, "{comma}{}", rounded(*value)),
                None => write!(text, "{comma}null"),
            };
        }
        text.push(']');
    }
    text + "}}\n"
}

/// To six digits: no graph shows more.
fn rounded(value: f32) -> f64 {
    let value = f64::from(value);
    if value == 0.0 {
        return 0.0;
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    match digits {
        ..=0 => value.round(),
        digits => (value * 10f64.powi(digits)).round() / 10f64.powi(digits),
    }
}

/// What there is where `statistics` are off.
const OFF: &str =
    "\nThere is no history: the settings say `statistics off`, or `statistics { history off }`.\n";

/// How the values of a series are written.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    PerSecond,
    Bytes,
    BytesPerSecond,
    Seconds,
    Cores,
    Percent,
}

fn unit_of(series: &str) -> Unit {
    match series {
        "connections" | "in_flight" | "waiting" => Unit::Count,
        "received_bytes" | "sent_bytes" => Unit::BytesPerSecond,
        "resident_servers" | "resident_master" => Unit::Bytes,
        "p50" | "p90" | "p99" | "p999" => Unit::Seconds,
        "cpu_servers" | "cpu_master" => Unit::Cores,
        "cache_hit_ratio" | "store_hit_ratio" => Unit::Percent,
        _ => Unit::PerSecond,
    }
}

fn quantity(value: f32, unit: Unit) -> String {
    let scaled = |value: f32| {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let step = (value.max(1.0).log2() / 10.0).floor().min(4.0) as usize;
        format!("{:.*} {}", usize::from(step > 0), value / 1024f32.powi(step as i32), UNITS[step])
    };
    match unit {
        Unit::Count => format!("{value:.0}"),
        Unit::PerSecond => format!("{value:.1}/s"),
        Unit::Bytes => scaled(value),
        Unit::BytesPerSecond => scaled(value) + "/s",
        Unit::Seconds if value < 1.0 => format!("{:.2} ms", value * 1e3),
        Unit::Seconds => format!("{value:.2} s"),
        Unit::Cores => format!("{value:.3} cores"),
        Unit::Percent => format!("{:.1} %", value * 100.0),
    }
}

/// Columns of a graph.
const WIDTH: usize = 60;

fn span_to_text(span: &Span, is_on: bool) -> String {
    let Span { resolution, from, until, .. } = span;
    if from == until {
        return format!("History:\n-----{}", if is_on { "\nNothing is known yet.\n" } else { OFF });
    }
    let seconds = |time: u64| date(i64::try_from(time).unwrap_or(i64::MAX));
    let mut text = format!("History: {} to {}, by {resolution} s\n-----\n", seconds(*from), seconds(*until));
    let heading = ["", "last", "mean", "most"];
    let _ = writeln!(text, "{:<18}{:>14}{:>14}{:>14}", heading[0], heading[1], heading[2], heading[3]);
    for (name, values) in &span.series {
        let unit = unit_of(name);
        let known: Vec<f32> = values.iter().flatten().copied().collect();
        let mean = known.iter().sum::<f32>() / known.len() as f32;
        let most = known.iter().copied().fold(f32::NAN, f32::max);
        let shown = [values.last().copied().flatten(), Some(mean), Some(most)].map(|value| {
            value
                .filter(|value| value.is_finite())
                .map_or_else(|| "-".to_owned(), |value| quantity(value, unit))
        });
        let line = format!("{name:<18}{:>14}{:>14}{:>14}  {}", shown[0], shown[1], shown[2], graph(values));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if !span.marks.is_empty() {
        text.push('\n');
    }
    for mark in &span.marks {
        let _ = writeln!(text, "{}  {}", seconds(mark.at), mark.what);
    }
    text
}

/// The most of each part of the time, as blocks of eight heights; a gap is a space.
fn graph(values: &[Option<f32>]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().flatten().copied().fold(0.0, f32::max);
    let parts = values.chunks(values.len().div_ceil(WIDTH).max(1));
    let block = |part: &[Option<f32>]| {
        let highest = part.iter().flatten().copied().reduce(f32::max)?;
        let height = if most > 0.0 { (highest / most * 7.0).round() as usize } else { 0 };
        BLOCKS.get(height).copied()
    };
    parts.map(|part| block(part).unwrap_or(' ')).collect()
}

/// Days since 1970 as `2026-11-23`.
fn day_of(day: &Day) -> String {
    let moment = date(i64::try_from(day.begins()).unwrap_or(i64::MAX));
    moment.split('T').next().unwrap_or_default().to_owned()
}

fn days_to_json(days: &[&Day]) -> String {
    let day = |day: &&Day| {
        let totals = &day.totals;
        let classes: Map<String, Value> =
            (1..).zip(totals.responses).map(|(class, count)| (format!("{class}xx"), json!(count))).collect();
        let statuses: Map<String, Value> =
            totals.statuses.iter().map(|(status, count)| (status.to_string(), json!(count))).collect();
        json!({
            "day": day_of(day),
            "requests": totals.requests,
            "http1": totals.requests.saturating_sub(totals.http2_requests),
            "http2": totals.http2_requests,
            "received_bytes": totals.received_bytes,
            "sent_bytes": totals.sent_bytes,
            "connections": totals.connections,
            "tls_handshakes": totals.tls_handshakes,
            "refused": totals.refused,
            "responses": classes,
            "statuses": statuses,
        })
    };
    format!("{}\n", json!({ "days": days.iter().map(day).collect::<Vec<_>>() }))
}

fn days_to_text(days: &[&Day], is_on: bool) -> String {
    let mut text = "Days (UTC):\n-----\n".to_owned();
    if !is_on {
        return text + OFF.trim_start();
    }
    let heading =
        ["Day", "Requests", "HTTP/2", "4xx", "5xx", "Refused", "Received", "Sent"].map(str::to_owned);
    let row = |day: &&Day| {
        let totals = &day.totals;
        let [_, _, _, refused, failed] = totals.responses;
        let bytes = |count: u64| quantity(count as f32, Unit::Bytes);
        [
            day_of(day),
            totals.requests.to_string(),
            totals.http2_requests.to_string(),
            refused.to_string(),
            failed.to_string(),
            totals.refused.to_string(),
            bytes(totals.received_bytes),
            bytes(totals.sent_bytes),
        ]
    };
    for [day, cells @ ..] in std::iter::once(heading).chain(days.iter().map(row)) {
        let _ = write!(text, "{day:<10}");
        cells.iter().for_each(|cell| {
            let _ = write!(text, "{cell:>14}");
        });
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_stats::Worker;
    use tidegate_stats::history::{Moment, Observation};

    fn history() -> History {
        let moment =
            |second: u64| Moment { wall: 1_700_000_000 + second, monotonic: Duration::from_secs(second) };
        let (worker, mut history) = (Worker::default(), History::new(moment(0)));
        for second in [1, 2, 4] {
            worker.requests.add(second);
            worker.responses.add(200);
            worker.sent_bytes.add(1_000_000);
            worker.latency.time(Duration::from_millis(3));
            history.record(moment(second), Observation::of(&worker.snapshot()));
        }
        history.mark(1_700_000_001, "revision 3 \"x\"");
        history
    }

    #[test]
    fn a_console_gets_arrays_of_one_length() {
        let range = HistoryRange::Recent(Range::Minutes);
        let json: Value =
            serde_json::from_str(&history_report(Some(&history()), range, Format::Json)).unwrap();
        assert_eq!(
            (&json["resolution"], &json["from"], &json["until"]),
            (&json!(1), &json!(1_700_000_000), &json!(1_700_000_004))
        );
        assert_eq!(json["marks"], json!([{ "at": 1_700_000_001, "what": "revision 3 \"x\"" }]));
        let series = json["series"].as_object().unwrap();
        let names = "requests responses_1xx responses_2xx responses_3xx responses_4xx responses_5xx received_bytes \
            sent_bytes connections in_flight waiting refused p50 p90 p99 p999 cpu_servers cpu_master resident_servers \
            resident_master cache_hit_ratio store_hit_ratio tls_full tls_resumed";
        let mut names: Vec<&str> = names.split_whitespace().collect();
        names.sort_unstable();
        assert_eq!(series.keys().map(String::as_str).collect::<Vec<_>>(), names);
        assert!(series.values().all(|values| values.as_array().unwrap().len() == 4));
        assert_eq!(series["requests"], json!([1, 2, null, 2]));
        assert_eq!(series["cache_hit_ratio"], json!([null, null, null, null]));
        let empty: Value = serde_json::from_str(&history_report(None, range, Format::Json)).unwrap();
        assert_eq!(empty["series"]["requests"], json!([]));
    }

    #[test]
    fn people_get_graphs() {
        let range = HistoryRange::Recent(Range::Minutes);
        let text = history_report(Some(&history()), range, Format::Text);
        for line in [
            "History: 2023-11-14T22:13:20Z to 2023-11-14T22:13:24Z, by 1 s",
            "requests                   2.0/s         1.7/s         2.0/s  ▅█ █",
            "sent_bytes           488.3 KiB/s   813.8 KiB/s   976.6 KiB/s  ██ ▅",
            "cache_hit_ratio                -             -             -",
            "2023-11-14T22:13:21Z  revision 3 \"x\"",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(history_report(None, range, Format::Text).contains("`statistics { history off }`"));
        let days = history_report(Some(&history()), HistoryRange::Days, Format::Text);
        assert!(
            days.contains("\n2023-11-14             7             0             0             0"),
            "{days}"
        );
        let days: Value =
            serde_json::from_str(&history_report(Some(&history()), HistoryRange::Days, Format::Json))
                .unwrap();
        assert_eq!(days["days"][0]["statuses"], json!({ "200": 3 }));
        assert_eq!((&days["days"][0]["day"], &days["days"][0]["http1"]), (&json!("2023-11-14"), &json!(7)));
    }

    #[test]
    fn numbers_are_no_longer_than_they_need_be() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.001_234_567_8, "0.00123457"),
            (123_456_789.0, "123456792"),
            (33.333_332, "33.3333"),
        ] {
            assert_eq!(rounded(value).to_string(), text);
        }
        for (name, range) in HistoryRange::ALL {
            assert_eq!((HistoryRange::from_name(name), range.name()), (Some(range), name));
        }
    }
}
