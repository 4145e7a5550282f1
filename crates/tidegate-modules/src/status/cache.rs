//! The file caches of all workers as one: their answers merged, and the report on them.
//!
//! A worker answers `cache report` with a JSON object. Members known here, all of them optional: `enabled`
//! (boolean), `entries`, `entries_limit`, `memory`, `memory_limit`, `descriptors`, `descriptors_limit`,
//! `hits`, `misses`, `revalidations`, `invalidations`, `evictions` (numbers, added up), and `settings`, an
//! object that is the same for every worker. What else there is, is shown under its own name.
//!
//! It answers `cache list` with a JSON array of objects: `path`, `flags` (letters), `references`, `hits`,
//! `size`, `age` (seconds). Each worker has its own entry for a file; they are merged by path.
//!
//! Flags, after Sun's: `C` contents in memory, `O` open descriptor, `Z` an encoded form is held as well.

use super::ask::Format;
use super::html;
use super::report::{Row, Section, write_section};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Entries shown on a page; the JSON has them all.
const SHOWN: usize = 10_000;

/// The caches of all workers.
#[derive(Debug, Default)]
pub(super) struct CacheState {
    workers: usize,
    /// Workers whose answer could not be read.
    silent: usize,
    merged: Map<String, Value>,
    entries: Option<Vec<CacheRow>>,
}

/// A file in the caches of one or more workers.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct CacheRow {
    pub path: String,
    /// Those of all workers, each once.
    pub flags: String,
    pub workers: u64,
    pub references: u64,
    pub hits: u64,
    pub size: u64,
    /// Of the oldest, seconds.
    pub age: u64,
}

impl CacheState {
    /// Puts the answers to `cache report` and `cache list` together.
    pub(super) fn merge(reports: &[String], lists: Option<&[String]>) -> CacheState {
        let mut state = CacheState { workers: reports.len(), ..CacheState::default() };
        for report in reports {
            match serde_json::from_str(report) {
                Ok(Value::Object(report)) => merge_objects(&mut state.merged, report),
                _ => state.silent += 1,
            }
        }
        state.entries = lists.map(merge_lists);
        state
    }

    pub(super) fn write(&self, format: Format, pid: u32, refresh: Option<u32>) -> String {
        match format {
            Format::Html => html::cache(self.is_enabled(), &self.sections(), self.shown(), refresh),
            Format::Json => self.to_json(),
            Format::Text | Format::Xml | Format::Prometheus | Format::OpenMetrics | Format::Protobuf => {
                self.to_text(pid)
            }
        }
    }

    /// `None` where the workers do not agree, or have not said.
    fn is_enabled(&self) -> Option<bool> {
        self.merged.get("enabled").and_then(Value::as_bool)
    }

    /// The entries that a page has room for, and how many there are.
    fn shown(&self) -> Option<(&[CacheRow], usize)> {
        let entries = self.entries.as_deref()?;
        Some((&entries[..entries.len().min(SHOWN)], entries.len()))
    }

    fn to_json(&self) -> String {
        let mut answer = json!({ "workers": self.workers, "silent": self.silent, "cache": self.merged });
        if let (Some(entries), Value::Object(answer)) = (&self.entries, &mut answer) {
            let list: Vec<Value> = entries.iter().map(CacheRow::to_json).collect();
            answer.insert("list".into(), list.into());
        }
        format!("{answer}\n")
    }

    fn to_text(&self, pid: u32) -> String {
        let mut text = format!("Tidegate File Cache Status (pid {pid})\n\n");
        text.push_str(html::sentence_on(self.is_enabled()));
        text.push('\n');
        for section in self.sections() {
            write_section(&mut text, &section);
        }
        if let Some((entries, all)) = self.shown() {
            let _ = writeln!(text, "\nFiles ({all}):\n-----\nflags workers references hits size age path");
            for entry in entries {
                let CacheRow { path, flags, workers, references, hits, size, age } = entry;
                let path = path.escape_debug();
                let _ = writeln!(text, "{flags} {workers} {references} {hits} {size} {age} {path}");
            }
        }
        text
    }

    fn sections(&self) -> Vec<Section> {
        let mut rest = self.merged.clone();
        rest.remove("enabled");
        let settings = rest.remove("settings");
        let mut rows = vec![Row::new("Workers", self.workers.to_string())];
        if self.silent > 0 {
            rows.push(Row::new("Workers without an answer", self.silent.to_string()));
        }
        for (name, label) in
            [("entries", "CacheEntries"), ("memory", "Memory, bytes"), ("descriptors", "Descriptors")]
        {
            let Some(value) = rest.remove(name) else { continue };
            let row = match rest.remove(&format!("{name}_limit")) {
                Some(limit) => Row::new(format!("{label} Current/Limit"), format!("{value}/{limit}")),
                None => Row::new(label, plain(&value)),
            };
            rows.push(row);
        }
        if let (Some(hits), Some(misses)) = (count(&rest, "hits"), count(&rest, "misses")) {
            let all = hits.saturating_add(misses);
            let percent = if all == 0 { 0.0 } else { hits as f64 * 100.0 / all as f64 };
            rows.push(Row::new("Hit Ratio", format!("{hits}/{all} ({percent:.2}%)")));
            rest.remove("hits");
            rest.remove("misses");
        }
        rows.extend(rest.iter().map(|(name, value)| Row::new(spaced(name), plain(value))));
        let mut sections = vec![Section { title: "Cache resources".into(), rows }];
        if let Some(Value::Object(settings)) = settings {
            let rows = settings.iter().map(|(name, value)| Row::new(spaced(name), plain(value))).collect();
            sections.push(Section { title: "Settings".into(), rows });
        }
        sections
    }
}

impl CacheRow {
    fn to_json(&self) -> Value {
        json!({
            "path": self.path,
            "flags": self.flags,
            "workers": self.workers,
            "references": self.references,
            "hits": self.hits,
            "size": self.size,
            "age": self.age,
        })
    }
}

fn merge_objects(into: &mut Map<String, Value>, report: Map<String, Value>) {
    for (name, value) in report {
        match into.get_mut(&name) {
            None => drop(into.insert(name, value)),
            // The same for all.
            Some(_) if name == "settings" => {}
            Some(Value::Object(mine)) => {
                if let Value::Object(theirs) = value {
                    merge_objects(mine, theirs);
                }
            }
            Some(mine) => *mine = merge_values(mine, &value),
        }
    }
}

fn merge_values(mine: &Value, theirs: &Value) -> Value {
    if let (Some(mine), Some(theirs)) = (mine.as_u64(), theirs.as_u64()) {
        return mine.saturating_add(theirs).into();
    }
    match (mine, theirs) {
        (Value::Number(mine), Value::Number(theirs)) => {
            (mine.as_f64().unwrap_or(0.0) + theirs.as_f64().unwrap_or(0.0)).into()
        }
        _ if mine == theirs => mine.clone(),
        _ => "differs between workers".into(),
    }
}

fn merge_lists(lists: &[String]) -> Vec<CacheRow> {
    let mut entries: BTreeMap<String, CacheRow> = BTreeMap::new();
    for list in lists {
        let Ok(Value::Array(list)) = serde_json::from_str(list) else { continue };
        for of_worker in &list {
            let Value::Object(of_worker) = of_worker else { continue };
            let number = |name| count(of_worker, name).unwrap_or(0);
            let text = |name| of_worker.get(name).and_then(Value::as_str).unwrap_or_default();
            let entry = entries
                .entry(text("path").into())
                .or_insert_with_key(|path| CacheRow { path: path.clone(), ..CacheRow::default() });
            for flag in text("flags").chars() {
                if !entry.flags.contains(flag) {
                    entry.flags.push(flag);
                }
            }
            entry.workers += 1;
            entry.references = entry.references.saturating_add(number("references"));
            entry.hits = entry.hits.saturating_add(number("hits"));
            entry.size = entry.size.max(number("size"));
            entry.age = entry.age.max(number("age"));
        }
    }
    entries.into_values().collect()
}

fn count(object: &Map<String, Value>, name: &str) -> Option<u64> {
    object.get(name).and_then(Value::as_u64)
}

/// Text without its quotes, anything else as JSON has it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}

/// `max_age` as `Max age`.
fn spaced(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars.map(|char| if char == '_' { ' ' } else { char })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_workers_become_one() {
        let reports = [
            r#"{"enabled":true,"entries":2,"entries_limit":10,"hits":3,"misses":1,"settings":{"max_age":"30s"},"x":{"y":1}}"#,
            r#"{"enabled":true,"entries":5,"entries_limit":10,"hits":0,"misses":0,"settings":{"max_age":"30s"},"x":{"y":2}}"#,
            "the worker has ended",
        ];
        let state = CacheState::merge(&reports.map(String::from), None);
        assert_eq!((state.workers, state.silent, state.is_enabled()), (3, 1, Some(true)));
        let text = state.to_text(7);
        for line in [
            "CacheEntries Current/Limit",
            "7/20",
            "3/4 (75.00%)",
            "Max age",
            "30s",
            "without an answer",
            "\"y\":3",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn workers_may_disagree() {
        let reports = [r#"{"enabled":true}"#.to_string(), r#"{"enabled":false}"#.to_string()];
        assert_eq!(CacheState::merge(&reports, None).is_enabled(), None);
        assert!(CacheState::merge(&[], None).to_text(1).contains("Workers"));
    }

    #[test]
    fn entries_are_merged_by_path() {
        let lists = [
            r#"[{"path":"/b","flags":"C","size":10,"hits":1,"age":2},{"path":"/a","flags":"O","size":5}]"#,
            r#"[{"path":"/b","flags":"CI","size":10,"hits":4,"age":9,"references":1}, 7]"#,
            "nonsense",
        ];
        let entries = merge_lists(&lists.map(String::from));
        assert_eq!(entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["/a", "/b"]);
        let merged = CacheRow {
            path: "/b".into(),
            flags: "CI".into(),
            workers: 2,
            references: 1,
            hits: 5,
            size: 10,
            age: 9,
        };
        assert_eq!(entries[1], merged);
    }
}
