//! Requests under way as a table, the oldest first: out of what the workers say to the question `requests`.

use super::Format;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write;

/// Rows of all workers together.
const ROWS: usize = 1_000;

/// What a worker says.
#[derive(Deserialize)]
struct OfWorker {
    count: u64,
    requests: Vec<Row>,
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
    #[serde(skip_serializing_if = "String::is_empty")]
    method: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
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
        let request = format!("{} {}", row.method, row.target);
        let age = format!("{:.3} s", row.age);
        let (received, sent) = (row.received.to_string(), row.sent.to_string());
        let (site, route, upstream) = (row.site.clone(), row.route.clone(), row.upstream.clone());
        [row.id.clone(), age, phase, row.client.clone(), received, sent, site, route, upstream, request]
    }));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in &table {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", printable(cell))).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    let _ = writeln!(text, "-----");
    let _ = writeln!(text, "{count} under way, {} shown", rows.len());
    if silent > 0 {
        let _ = writeln!(text, "{silent} workers do not answer");
    }
    text
}

/// What a client has sent reaches a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
