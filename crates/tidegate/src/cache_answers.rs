//! What the workers say of their file caches, for `tidegate status cache`.
//!
//! Each worker answers with JSON: an object (`report`), an array of objects (`list`), or `ok`. Whatever
//! members there are, are shown: what they mean is the file cache's business.

use crate::control::Reply;
use crate::status_source::StatusSource;
use serde_json::Value;
use std::fmt::Write;

/// Asks all workers and puts their answers together. `question` may end with ` json`.
pub fn reply(question: &str, source: &StatusSource) -> Reply {
    let (question, is_json) = match question.strip_suffix(" json") {
        Some(question) => (question, true),
        None => (question, false),
    };
    let answers = source.ask(&format!("cache {question}"));
    let answers: Vec<Value> = answers.into_iter().map(read).collect();
    let text = if is_json { Value::from(answers.clone()).to_string() + "\n" } else { text(&answers) };
    if answers.iter().any(is_refusal) { Reply::failed(text) } else { Reply::ok(text) }
}

/// A worker that is broken may say anything; it is shown as text.
fn read(answer: String) -> Value {
    serde_json::from_str(&answer).unwrap_or(Value::String(answer))
}

fn is_refusal(answer: &Value) -> bool {
    match answer {
        Value::String(said) => said != "ok",
        Value::Object(members) => members.contains_key("error"),
        _ => false,
    }
}

fn text(answers: &[Value]) -> String {
    let mut out = String::new();
    if let Some(first) = answers.first().filter(|first| first.is_string())
        && answers.iter().all(|answer| answer == first)
    {
        return plain(first) + "\n";
    }
    for (number, answer) in answers.iter().enumerate() {
        let _ = writeln!(out, "{}worker {number}:", if number > 0 { "\n" } else { "" });
        match answer {
            Value::Object(members) => {
                for (name, value) in members {
                    let _ = writeln!(out, "{:<40}{}", name.replace('_', " "), plain(value));
                }
            }
            Value::Array(entries) => entries.iter().for_each(|entry| line(&mut out, entry)),
            other => drop(writeln!(out, "{}", plain(other))),
        }
    }
    out
}

/// The path first, then what there is to say of it.
fn line(out: &mut String, entry: &Value) {
    out.push_str(&plain(entry.get("path").unwrap_or(entry)));
    for (name, value) in entry.as_object().into_iter().flatten().filter(|(name, _)| *name != "path") {
        let _ = write!(out, " {name}={}", plain(value));
    }
    out.push('\n');
}

/// Text without its quotes and control characters, anything else as JSON has it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text
            .chars()
            .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
            .collect(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_readable_whatever_they_hold() {
        assert_eq!(text(&[json!("ok"), json!("ok")]), "ok\n");
        let report = text(&[json!({"hits": 3, "max_bytes": 5})]);
        assert!(report.contains("max bytes") && report.contains("worker 0:"), "{report}");
        let list = text(&[json!([{"path": "/a\u{1b}[0m", "size": 5}]), json!([])]);
        assert!(list.contains("/a\\u{1b}[0m size=5\n") && list.contains("\nworker 1:\n"), "{list}");
        assert!(is_refusal(&read("this worker does not answer".into())));
        assert!(is_refusal(&json!({"error": "unknown"})));
        assert!(!is_refusal(&read("ok".into())) && !is_refusal(&json!("ok")) && !is_refusal(&json!([])));
    }
}
