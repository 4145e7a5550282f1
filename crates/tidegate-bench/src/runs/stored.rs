//! A run out of its folder: what `bench run`, `hit` and `peak` wrote there, in one shape. What a folder lacks is not known;
//! nothing in it is taken on trust.

use super::files::{open, text_of};
use super::keep::{RUNNING, SCENARIO, SCRIPT, SECONDS, SUMMARY};
use super::seconds::{REQUESTS, Seconds};
use super::{Monitor, RunsError, monitors};
use crate::host::Host;
use crate::report::PERCENTILES;
use crate::systems::SETTINGS;
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;
use tidegate_http::HttpDate;

/// Files of settings that are read, at most.
const INPUTS: usize = 1_000;

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is whole.
    Done(Verdict),
    /// It goes on.
    Running,
    /// Its process was ended before it could write what it had.
    BrokenOff,
}

/// A word that says of no run how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no verdict; there are pass, fail, invalid, measured, running and broken-off")]
pub struct UnknownStatus(String);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Done(verdict) => verdict.fmt(f),
            Status::Running => f.pad("RUNNING"),
            Status::BrokenOff => f.pad("BROKEN-OFF"),
        }
    }
}

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Status, UnknownStatus> {
        match text.to_ascii_uppercase().as_str() {
            "RUNNING" => Ok(Status::Running),
            "BROKEN-OFF" => Ok(Status::BrokenOff),
            other => Verdict::parse(other).map(Status::Done).ok_or_else(|| UnknownStatus(text.to_owned())),
        }
    }
}

impl Status {
    /// What it says, as a sentence.
    pub fn explanation(self) -> &'static str {
        match self {
            Status::Done(verdict) => verdict.explanation(),
            Status::Running => "The run goes on; figures are of what there is so far.",
            Status::BrokenOff => {
                "The run was ended before it could write its results; there are its seconds, and no verdict."
            }
        }
    }
}

/// A run in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The name of its folder.
    pub id: String,
    /// Wall-clock seconds since 1970 of its beginning; 0 where nobody says.
    pub started: i64,
    /// Of the scenario, or what was asked.
    pub name: String,
    /// What its maker called it.
    pub label: Option<String>,
    /// The server.
    pub target: String,
    /// How the load was made.
    pub load: String,
    /// A verdict, or how else it stands: see [`Status`].
    pub verdict: String,
    /// Of a scenario in which they stay.
    pub users: Option<u64>,
    /// Visits a second that a scenario asks for, where users come at a rate.
    #[serde(default)]
    pub visits: Option<f64>,
    /// Seconds that were measured.
    pub seconds: Option<f64>,
    /// Operations a second that ended well; of `hit`, answers.
    pub rate: Option<f64>,
    /// Operations that ended.
    pub ended: Option<u64>,
    /// Those that failed.
    pub failed: Option<u64>,
    /// The longest p90 of any operation, seconds.
    pub p90: Option<f64>,
    /// Bytes a second that came.
    pub bytes_rate: Option<f64>,
    /// Busy share of the processors of the generator's host, 0 to 1.
    pub busy: Option<f64>,
    /// The machine that made the load.
    pub host: String,
}

impl Row {
    /// How many users there are, or at what rate they come: `20`, `50/s`.
    pub fn users_or_rate(&self) -> String {
        match (self.users, self.visits) {
            (Some(users), _) => users.to_string(),
            (None, Some(rate)) => format!("{rate}/s"),
            (None, None) => "-".to_owned(),
        }
    }
}

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its folder.
    pub path: PathBuf,
    /// In one line.
    pub row: Row,
    /// How it stands.
    pub status: Status,
    /// What it gave, as its writer wrote it; of one that is not whole what was known before.
    pub summary: Value,
    /// Where and how it was made.
    pub environment: Value,
}

/// An operation of a run, over all that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Of the scenario.
    pub name: String,
    /// Ended, well or not.
    pub ended: u64,
    /// Did not end well.
    pub failed: u64,
    /// A second, of those that ended well.
    pub rate: f64,
    /// Of all operations, 0 to 1.
    pub share: Option<f64>,
    /// What the mix says.
    pub share_due: Option<f64>,
    /// Mean response time, seconds.
    pub mean: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
    /// Percentiles in per cent, and seconds; in order.
    pub response: Vec<(f64, f64)>,
    /// The same of those that ended well; where nothing tells them apart, `None`.
    pub expected: Option<Vec<(f64, f64)>>,
    /// Percentiles, and the most they may be, seconds.
    pub targets: Vec<(f64, f64)>,
    /// The least share of answers that keep their bit rate, and the share that did, 0 to 1.
    pub conforming: Option<(f64, Option<f64>)>,
}

impl Operation {
    /// A percentile of the response time that was written, seconds.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        percentile(&self.response, percent)
    }

    /// What a percentile has to be within a target: see [`crate::scenario::record::Tally::judged`].
    pub fn judged(&self, percent: f64) -> Option<f64> {
        let all = self.percentile(percent)?;
        match &self.expected {
            None => Some(all),
            Some(expected) => percentile(expected, percent).map(|expected| all.max(expected)),
        }
    }
}

fn percentile(times: &[(f64, f64)], percent: f64) -> Option<f64> {
    times.iter().find(|(known, _)| (known - percent).abs() < 1e-9).map(|(_, time)| *time)
}

impl Run {
    /// Out of its folder.
    ///
    /// # Errors
    /// It is no folder of a run, or a broken one.
    pub fn read(path: &Path) -> Result<Run, RunsError> {
        let broken = |why: String| RunsError::Broken { folder: path.to_owned(), why };
        let is_running = is_locked(&path.join(RUNNING));
        let (name, status) = match is_running {
            Some(true) => (RUNNING, Some(Status::Running)),
            Some(false) => (RUNNING, Some(Status::BrokenOff)),
            None => (SUMMARY, None),
        };
        let summary = match text_of(&path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(broken(format!("no run: it holds neither `{SUMMARY}` nor `{RUNNING}`")));
            }
            read => read.map_err(|error| RunsError::Read(path.join(name), error))?,
        };
        let summary: Value = serde_json::from_str(&summary)
            .map_err(|error| broken(format!("`{name}` is no JSON: {error}")))?;
        let status = status.or_else(|| verdict(&summary));
        let status = status.ok_or_else(|| broken(format!("`{name}` names no verdict")))?;
        Ok(Run::of(path, status, summary))
    }

    /// Of a folder in which all but its summary is written.
    ///
    /// # Errors
    /// The summary names no verdict.
    pub(super) fn concluded(path: &Path, summary: Value) -> io::Result<Run> {
        let none = || io::Error::other(format!("the summary of {} names no verdict", path.display()));
        Ok(Run::of(path, verdict(&summary).ok_or_else(none)?, summary))
    }

    fn of(path: &Path, status: Status, summary: Value) -> Run {
        let environment = text_of(&path.join("environment.json")).ok();
        let environment =
            environment.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
        let id = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let row = row(id, status, &summary);
        Run { path: path.to_owned(), row, status, summary, environment }
    }

    /// What it was by second.
    pub fn seconds(&self) -> Seconds {
        text_of(&self.path.join(SECONDS)).map(|text| Seconds::parse(&text)).unwrap_or_default()
    }

    /// Its operations; of a run without a scenario its requests as the only one.
    pub fn operations(&self) -> Vec<Operation> {
        operations(&self.summary)
    }

    /// The machine that made the load, meanwhile.
    pub fn host(&self) -> Option<Host> {
        serde_json::from_value(self.summary.get("host")?.clone()).ok()
    }

    /// Other systems meanwhile.
    pub fn monitors(&self) -> Vec<Monitor> {
        monitors(&self.path)
    }

    /// Ramp-up, steady time and ramp-down as they were to be, seconds.
    pub fn phases(&self) -> Option<[f64; 3]> {
        let phase = |name| self.summary.pointer(&format!("/phases/{name}"))?.as_f64();
        Some([phase("ramp_up")?, phase("steady")?, phase("ramp_down")?])
    }

    /// A text of the summary.
    pub fn text(&self, pointer: &str) -> &str {
        self.summary.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The sentences of a list of the summary: `reasons`, `notes`.
    pub fn sentences(&self, name: &str) -> Vec<&str> {
        let list = self.summary.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The scenario as it was read.
    pub fn scenario(&self) -> Option<String> {
        // A folder may have a scenario in it that the run is not of.
        self.summary.get("scenario")?;
        text_of(&self.path.join(SCENARIO)).ok()
    }

    /// Its script, and the settings that were written for it: names below its folder, and texts; of a thousand files at most.
    pub fn inputs(&self) -> BTreeMap<String, String> {
        let mut names = vec![SCRIPT.to_owned()];
        for system in names_in(&self.path.join(SETTINGS)) {
            let files = names_in(&self.path.join(SETTINGS).join(&system));
            names.extend(files.into_iter().map(|file| format!("{SETTINGS}/{system}/{file}")));
        }
        names.truncate(INPUTS);
        names
            .into_iter()
            .filter_map(|name| Some((name.clone(), text_of(&self.path.join(&name)).ok()?)))
            .collect()
    }

    /// The report as text, of a run that is whole.
    pub fn report(&self) -> Option<String> {
        text_of(&self.path.join("report.txt")).ok()
    }
}

/// How a run stands whose summary this is.
fn verdict(summary: &Value) -> Option<Status> {
    summary.get("verdict")?.as_str()?.parse().ok()
}

/// The names in a folder, in order.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).take(INPUTS).collect();
    names.sort();
    names
}

/// Whether somebody writes the folder of this file; nothing where there is no such file.
fn is_locked(running: &Path) -> Option<bool> {
    let file = open(running).ok()?;
    Some(matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

fn row(id: String, status: Status, summary: &Value) -> Row {
    let text = |pointer: &str| summary.pointer(pointer).and_then(Value::as_str);
    let number = |pointer: &str| summary.pointer(pointer).and_then(Value::as_f64);
    let operations = operations(summary);
    let total = |of: fn(&Operation) -> u64| {
        (!operations.is_empty()).then(|| operations.iter().map(of).fold(0, u64::saturating_add))
    };
    let date = text("/about/date").and_then(|date| HttpDate::parse(date.as_bytes(), 0));
    let seconds = number("/seconds").filter(|_| matches!(status, Status::Done(_)));
    let bytes = number("/requests/bytes").or_else(|| number("/bytes"));
    let p90s = operations.iter().filter_map(|operation| operation.percentile(90.0));
    let subject = text("/subject").unwrap_or_default();
    Row {
        id,
        started: date.map_or(0, |date| date.0),
        name: text("/scenario").unwrap_or(subject).to_owned(),
        label: text("/label").filter(|label| !label.is_empty()).map(str::to_owned),
        target: text("/target").unwrap_or(subject).to_owned(),
        load: text("/load").unwrap_or_default().to_owned(),
        verdict: status.to_string(),
        users: summary.get("users").and_then(Value::as_u64),
        visits: number("/arrivals/rate"),
        seconds,
        rate: number("/rate"),
        ended: total(|operation| operation.ended),
        failed: total(|operation| operation.failed),
        p90: p90s.reduce(f64::max),
        bytes_rate: bytes.zip(seconds).filter(|(_, time)| *time > 0.0).map(|(bytes, time)| bytes / time),
        busy: summary.get("host").and_then(busy),
        host: text("/about/host").unwrap_or_default().to_owned(),
    }
}

fn busy(host: &Value) -> Option<f64> {
    let host: Host = serde_json::from_value(host.clone()).ok()?;
    (!host.samples.is_empty()).then(|| host.busy())
}

/// Those of a summary.
fn operations(summary: &Value) -> Vec<Operation> {
    match summary.get("operations").and_then(Value::as_array) {
        Some(all) => all.iter().filter_map(operation).collect(),
        None => requests(summary).into_iter().collect(),
    }
}

fn operation(of: &Value) -> Option<Operation> {
    let number = |name: &str| of.get(name).and_then(Value::as_f64);
    let targets = of.get("targets").and_then(Value::as_object);
    let target = |(name, limit): (&String, &Value)| {
        Some((name.strip_prefix('p')?.parse::<f64>().ok()?, limit.as_f64()?))
    };
    let response = of.get("response").unwrap_or(&Value::Null);
    let conforming = |name: &str| of.get("conforming")?.get(name)?.as_f64();
    Some(Operation {
        name: of.get("name")?.as_str()?.to_owned(),
        ended: of.get("ended")?.as_u64()?,
        failed: of.get("failed").and_then(Value::as_u64).unwrap_or(0),
        rate: number("rate").unwrap_or(0.0),
        share: number("share"),
        share_due: number("share_due"),
        mean: response.get("mean").and_then(Value::as_f64),
        max: response.get("max").and_then(Value::as_f64),
        response: percentiles(response),
        expected: of.get("response_expected").map(percentiles),
        targets: targets.into_iter().flatten().filter_map(target).collect(),
        conforming: conforming("share_due").map(|due| (due, conforming("share"))),
    })
}

/// The requests of `hit` as an operation.
fn requests(summary: &Value) -> Option<Operation> {
    let response = summary.get("latency")?;
    Some(Operation {
        name: REQUESTS.to_owned(),
        ended: summary.get("requests")?.as_u64()?,
        failed: summary.get("failed").and_then(Value::as_u64).unwrap_or(0),
        rate: summary.get("rate").and_then(Value::as_f64).unwrap_or(0.0),
        share: None,
        share_due: None,
        mean: response.get("mean").and_then(Value::as_f64),
        max: response.get("max").and_then(Value::as_f64),
        response: percentiles(response),
        expected: summary.get("latency_expected").map(percentiles),
        targets: Vec::new(),
        conforming: None,
    })
}

/// Those of a distribution; none where nothing was counted.
fn percentiles(of: &Value) -> Vec<(f64, f64)> {
    if of.get("count").and_then(Value::as_u64) == Some(0) {
        return Vec::new();
    }
    let time = |percent: f64| of.get(format!("p{percent}"))?.as_f64().filter(|time| time.is_finite());
    PERCENTILES.into_iter().filter_map(|percent| Some((percent, time(percent)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_summary_in_one_line() {
        let summary = json!({
            "scenario": "shop", "target": "http://a/", "users": 20, "verdict": "PASS", "seconds": 10.0, "rate": 4.0,
            "label": "eight workers", "requests": { "bytes": 5000 },
            "about": { "date": "Tue, 24 Nov 2026 02:47:46 GMT", "host": "vm" },
            "operations": [
                { "name": "home", "ended": 30, "failed": 1, "rate": 2.9, "response": { "count": 30, "p90": 0.2, "p99": 0.4 },
                  "response_expected": { "count": 29, "p90": 0.3, "p99": 0.3 },
                  "targets": { "p90": 1.0, "p95": 2.0 }, "conforming": { "share": 0.75, "share_due": 0.9 } },
                { "name": "item", "ended": 11, "failed": 0, "rate": 1.1, "response": { "count": 11, "p90": 0.5 } },
                { "name": "never", "ended": 0, "failed": 0, "rate": 0.0, "response": { "count": 0, "p90": 0.0 } },
            ],
        });
        let row = row("x".into(), Status::Done(Verdict::Pass), &summary);
        assert_eq!(
            (row.started, row.ended, row.failed, row.p90),
            (1_795_488_466, Some(41), Some(1), Some(0.5))
        );
        assert_eq!(
            (row.bytes_rate, row.users, row.label.as_deref()),
            (Some(500.0), Some(20), Some("eight workers"))
        );
        assert_eq!(row.users_or_rate(), "20");
        let arriving = json!({ "scenario": "shop", "users": null, "arrivals": { "rate": 12.5 } });
        let row = super::row("y".into(), Status::Running, &arriving);
        assert_eq!((row.users, row.visits, row.users_or_rate().as_str()), (None, Some(12.5), "12.5/s"));
        let operations = operations(&summary);
        assert_eq!(operations[0].targets, [(90.0, 1.0), (95.0, 2.0)]);
        assert_eq!((operations[0].conforming, operations[1].conforming), (Some((0.9, Some(0.75))), None));
        assert_eq!((operations[0].percentile(99.0), operations[2].percentile(90.0)), (Some(0.4), None));
        // A target is met by all and by those that ended well; a run of before knows of the latter alone.
        assert_eq!([90.0, 99.0].map(|rank| operations[0].judged(rank)), [Some(0.3), Some(0.4)]);
        assert_eq!((operations[1].judged(90.0), operations[2].judged(90.0)), (Some(0.5), None));
    }

    #[test]
    fn requests_without_a_scenario_are_one_operation() {
        let summary = json!({ "subject": "http://a/", "requests": 7, "failed": 2, "rate": 3.5, "bytes": 70, "seconds": 2.0,
            "latency": { "count": 5, "p50": 0.1, "p90": 0.3 }, "verdict": "FAIL" });
        let row = row("x".into(), Status::Done(Verdict::Fail), &summary);
        assert_eq!((row.name.as_str(), row.target.as_str()), ("http://a/", "http://a/"));
        assert_eq!(
            (row.ended, row.failed, row.p90, row.bytes_rate),
            (Some(7), Some(2), Some(0.3), Some(35.0))
        );
    }

    #[test]
    fn words_for_how_a_run_stands() {
        for word in ["PASS", "FAIL", "INVALID", "MEASURED", "RUNNING", "BROKEN-OFF"] {
            assert_eq!(word.to_lowercase().parse::<Status>().unwrap().to_string(), word);
        }
        assert!("good".parse::<Status>().is_err());
    }
}
