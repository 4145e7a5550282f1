//! Requests as tables: those under way, the oldest first, and those that were slow, the slowest first. Out of what the workers
//! say to the questions `requests` and `slow`.

use super::Format;
use super::printable::printable;
use super::report::date;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write;

/// Rows of all workers together.
const ROWS: usize = 1_000;
/// Characters of a cell of a table.
const CELL: usize = 500;

/// What a worker says.
#[derive(Deserialize)]
struct OfWorker {
    count: u64,
    requests: Vec<Row>,
}

/// What a client has asked for, where that is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Asked {
    #[serde(skip_serializing_if = "String::is_empty")]
    method: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
}

impl Asked {
    fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// A request under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Row {
    id: String,
    /// Seconds.
    age: f64,
    phase: String,
    client: String,
    site: String,
    route: String,
    protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    received: u64,
    sent: u64,
    /// The last one that was asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    upstream: String,
    #[serde(flatten)]
    asked: Asked,
}

/// The table out of what the workers say.
pub fn requests_report(answers: &[String], format: Format) -> String {
    let (mut count, mut silent, mut rows) = (0, 0, Vec::new());
    for answer in answers {
        match serde_json::from_str::<OfWorker>(answer) {
            Ok(told) => {
                count += told.count;
                rows.extend(told.requests);
            }
            Err(_) => silent += 1,
        }
    }
    rows.sort_by(|one, other| other.age.total_cmp(&one.age));
    rows.truncate(ROWS);
    if format == Format::Json {
        let json = json!({ "count": count, "silent_workers": silent, "requests": rows });
        return format!("{json}\n");
    }
    to_text(count, silent, &rows)
}

fn to_text(count: u64, silent: u64, rows: &[Row]) -> String {
    let mut text = String::from("Sessions:\n-----\n");
    let head = ["Id", "Age", "Status", "Client", "Received", "Sent", "Site", "Route", "Upstream", "Request"];
    let mut table = vec![head.map(str::to_owned)];
    table.extend(rows.iter().map(|row| {
        let phase = match row.status {
            Some(status) => format!("{} {status}", row.phase),
            None => row.phase.clone(),
        };
        let request = row.asked.line();
        let age = format!("{:.3} s", row.age);
        let (received, sent) = (row.received.to_string(), row.sent.to_string());
        let (site, route, upstream) = (row.site.clone(), row.route.clone(), row.upstream.clone());
        [row.id.clone(), age, phase, row.client.clone(), received, sent, site, route, upstream, request]
    }));
    write_table(&mut text, &table);
    let _ = writeln!(text, "-----");
    let _ = writeln!(text, "{count} under way, {} shown", rows.len());
    if silent > 0 {
        let _ = writeln!(text, "{silent} workers do not answer");
    }
    text
}

pub(super) fn write_table<const N: usize>(text: &mut String, table: &[[String; N]]) {
    let length = |cell: &str| cell.chars().count().min(CELL);
    let width = |column: usize| table.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in table {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", cell_of(cell)));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// What a worker says to `slow`.
#[derive(Deserialize)]
struct SlowOfWorker {
    requests: Vec<SlowRow>,
}

/// A request that was slow for its route.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlowRow {
    /// When it ended, seconds since 1970.
    at: i64,
    /// Seconds.
    took: f64,
    status: u16,
    received: u64,
    sent: u64,
    site: String,
    route: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    protocol: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    client: String,
    #[serde(flatten)]
    asked: Asked,
    #[serde(flatten)]
    phases: Phases,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upstreams: Vec<SlowTry>,
}

/// Seconds that it has spent in each phase, where it has come to an application. What is left of all of it was spent before
/// that: reading its content, a login.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Phases {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sending: Option<f64>,
}

/// Whom it was sent to, and seconds from when that was chosen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlowTry {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    connected: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<f64>,
}

/// The table of requests that were slow.
pub fn slow_report(answers: &[String], format: Format) -> String {
    let told = answers.iter().filter_map(|answer| serde_json::from_str::<SlowOfWorker>(answer).ok());
    let mut rows: Vec<SlowRow> = told.flat_map(|told| told.requests).collect();
    rows.sort_by(|one, other| other.took.total_cmp(&one.took));
    rows.truncate(ROWS);
    if format == Format::Json {
        return format!("{}\n", json!({ "requests": rows }));
    }
    let head = [
        "Ended",
        "Took",
        "Queue",
        "Connect",
        "Application",
        "Sending",
        "Status",
        "Client",
        "Sent",
        "Site",
        "Route",
        "Upstream",
        "Request",
    ];
    let mut table = vec![head.map(str::to_owned)];
    table.extend(rows.iter().map(|row| {
        let stage =
            |name, time: Option<f64>| time.map(|time| format!(" {name} {time:.3}")).unwrap_or_default();
        let tries = row.upstreams.iter().map(|of| {
            let (connected, first_byte) = (stage("connected", of.connected), stage("head", of.first_byte));
            format!("{}{connected}{first_byte}{}", of.address, stage("end", of.complete))
        });
        let tries = tries.collect::<Vec<_>>().join(", ");
        let (status, sent) = (row.status.to_string(), row.sent.to_string());
        let (took, request) = (format!("{:.3} s", row.took), row.asked.line());
        let phase = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}"));
        let Phases { queue, connect, application, sending } = &row.phases;
        let [queue, connect, application, sending] =
            [queue, connect, application, sending].map(|time| phase(*time));
        let (client, site, route) = (row.client.clone(), row.site.clone(), row.route.clone());
        [
            date(row.at),
            took,
            queue,
            connect,
            application,
            sending,
            status,
            client,
            sent,
            site,
            route,
            tries,
            request,
        ]
    }));
    let mut text = String::from("Slow Requests:\n-----\n");
    write_table(&mut text, &table);
    text
}

/// What a client has sent reaches a terminal, and no more of it than columns can be made of.
pub(super) fn cell_of(text: &str) -> String {
    let end = text.char_indices().nth(CELL).map_or(text.len(), |(end, _)| end);
    printable(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_is_first() {
        let answers = [
            r#"{"requests":[{"at":0,"took":1.5,"status":200,"site":"a.test","route":"/*"}]}"#,
            r#"{"requests":[{"took":2.0,"queue":0.1,"connect":0.25,"application":1.5,"sending":0.15,"status":502,"method":"GET","target":"/x","upstreams":[{"address":"u","connected":0.25}]}]}"#,
            "this worker does not answer",
        ]
        .map(str::to_owned);
        let text = slow_report(&answers, Format::Text);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[3].contains("2.000 s  0.100  0.250    1.500        0.150    502")
                && lines[3].contains("u connected 0.250"),
            "{text}"
        );
        assert!(
            lines[4].starts_with("1970-01-01T00:00:00Z  1.500 s  -      -        -            -        200"),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&slow_report(&answers, Format::Json)).unwrap();
        assert_eq!(json["requests"][1]["site"], "a.test");
    }

    #[test]
    fn no_cell_is_longer_than_a_table_can_have_it() {
        let long = "x".repeat(100_000);
        let answers =
            [format!(r#"{{"requests":[{{"took":1.0,"site":"{long}"}},{{"took":0.5,"site":"b"}}]}}"#)];
        let text = slow_report(&answers, Format::Text);
        assert!(text.lines().all(|line| line.len() < 2 * CELL) && text.contains(&long[..CELL]));
    }

    #[test]
    fn the_oldest_is_first_and_nothing_reaches_the_terminal() {
        let answers = [
            r#"{"count":1,"requests":[{"id":"1-0-3-1","age":0.5,"phase":"sending","status":200,"sent":7}]}"#,
            r#"{"count":600,"requests":[{"id":"1-1-4-1","age":2.25,"phase":"queued","target":"/\u001b[0m"}]}"#,
            "this worker does not answer",
        ]
        .map(str::to_owned);
        let text = requests_report(&answers, Format::Text);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].starts_with("1-1-4-1  2.250 s  queued"), "{text}");
        assert!(lines[4].contains("sending 200"), "{text}");
        assert!(text.contains("601 under way, 2 shown\n1 workers do not answer"), "{text}");
        assert!(!text.contains('\u{1b}'));
        let json: serde_json::Value = serde_json::from_str(&requests_report(&answers, Format::Json)).unwrap();
        assert_eq!((&json["count"], &json["requests"][1]["sent"]), (&json!(601), &json!(7)));
    }
}
