//! A gate: by how much a figure may be worse before something is held back, and runs that were kept to be compared later.
//!
//! A bound is broken where the runs prove it: the whole interval lies beyond it. One that only may be broken lets pass and
//! is said.

use super::{Comparison, Figure, FigureSyntax};
use crate::quantity::{self, show_share};
use crate::report::PERCENTILES;
use crate::runs::{SCENARIO, SCRIPT, SUMMARY, bytes_of, text_of};
use crate::verdict::Verdict;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// By how much a figure of B may be worse than that of A.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Which figure.
    pub figure: Figure,
    /// As a share of that of A.
    pub share: f64,
}

/// A bound that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BoundSyntax {
    /// It has no share.
    #[error("`{0}` is no bound; write a figure and by how much it may be worse, as p90=5% or rate=3%")]
    Shape(String),
    /// Its figure is none.
    #[error(transparent)]
    Figure(#[from] FigureSyntax),
}

impl FromStr for Bound {
    type Err = BoundSyntax;

    fn from_str(text: &str) -> Result<Bound, BoundSyntax> {
        let shape = || BoundSyntax::Shape(text.to_owned());
        let (figure, share) = text.split_once('=').ok_or_else(shape)?;
        Ok(Bound { figure: figure.parse()?, share: quantity::share(share).map_err(|_| shape())? })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at most {} worse", self.figure, show_share(self.share))
    }
}

/// What became of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The whole interval lies within it.
    Kept,
    /// It may be broken: the interval holds the bound.
    Unproven,
    /// The whole interval lies beyond it.
    Broken,
    /// There are too few runs or answers to say anything.
    Unknown,
}

impl Bound {
    /// Of the comparison of its figure.
    pub fn judge(&self, comparison: &Comparison) -> Held {
        if !comparison.has_enough() {
            return Held::Unknown;
        }
        let (least, most) = self.worse(comparison);
        match () {
            () if least > self.share => Held::Broken,
            () if most <= self.share => Held::Kept,
            () => Held::Unproven,
        }
    }

    /// In one sentence.
    pub fn sentence(&self, comparison: &Comparison) -> String {
        let (least, most) = self.worse(comparison);
        let seen = format!("{:.1} to {:.1} %", least * 100.0, most * 100.0);
        match self.judge(comparison) {
            Held::Kept => format!("{self}: kept; it is {seen} worse"),
            Held::Unproven => format!("{self}: not proven broken, nor kept; it is {seen} worse"),
            Held::Broken => format!("{self}: broken; it is {seen} worse"),
            Held::Unknown => comparison.sentence("A", "B"),
        }
    }

    /// By which share B is worse, at least and at most; below 0 where it is better.
    fn worse(&self, comparison: &Comparison) -> (f64, f64) {
        let (low, high) = comparison.ratio.interval;
        if self.figure.is_better_when_more() { (1.0 - high, 1.0 - low) } else { (low - 1.0, high - 1.0) }
    }
}

/// A run that was kept: what a comparison wants of the object that `--json` gives.
#[derive(Debug, Clone)]
pub struct StoredRun {
    /// The file.
    pub path: PathBuf,
    /// Its verdict.
    pub verdict: Verdict,
    /// Requests that were answered.
    pub answers: u64,
    /// What has to be the same in all runs: the name of each condition, and what it was.
    conditions: Vec<(&'static str, String)>,
    rate: Option<f64>,
    /// The distribution of response times.
    response: Value,
}

/// A stored run that cannot be read.
#[derive(Debug, Error)]
pub enum StoredRunError {
    /// The file or folder cannot be.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    /// It holds no JSON.
    #[error("{0} is no JSON: {1}; runs are kept with `tidegate bench hit --json … >> FILE`")]
    Json(PathBuf, serde_json::Error),
    /// It is of something else.
    #[error(
        "{0}: an object has no `{1}`; runs are kept with `tidegate bench hit --json … >> FILE`, or by `bench run`"
    )]
    Lacks(PathBuf, &'static str),
    /// It has not the operation that is wanted.
    #[error("{0} has no operation `{1}`; it has {2}")]
    Operation(PathBuf, String, String),
    /// A folder without files.
    #[error(
        "{0} holds no run: folders with a `summary.json` are read, and files whose names end in `.json` or `.jsonl`"
    )]
    Empty(PathBuf),
}

/// The runs of a file of JSON objects, one behind the other or those of `--runs`; or of a folder: its files of that kind and
/// the folders of runs in it, by name; or of the folder of one run. With `operation` their figures are those of this one.
///
/// # Errors
/// [`StoredRunError`]: the first that cannot be read.
pub fn stored_runs(path: &Path, operation: Option<&str>) -> Result<Vec<StoredRun>, StoredRunError> {
    let unreadable = |error| StoredRunError::Read(path.to_owned(), error);
    if !path.is_dir() {
        return runs_of(path, operation);
    }
    if path.join(SUMMARY).is_file() {
        return runs_of(&path.join(SUMMARY), operation);
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let summary = file.join(SUMMARY);
        if file.extension().is_some_and(|extension| extension == "json" || extension == "jsonl") {
            files.push(file);
        } else if summary.is_file() {
            files.push(summary);
        }
    }
    files.sort();
    let mut runs = Vec::new();
    for file in &files {
        runs.extend(runs_of(file, operation)?);
    }
    if runs.is_empty() { Err(StoredRunError::Empty(path.to_owned())) } else { Ok(runs) }
}

fn runs_of(file: &Path, operation: Option<&str>) -> Result<Vec<StoredRun>, StoredRunError> {
    let text = text_of(file).map_err(|error| StoredRunError::Read(file.to_owned(), error))?;
    let mut runs = Vec::new();
    for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        match object.map_err(|error| StoredRunError::Json(file.to_owned(), error))? {
            // What `--runs` writes.
            Value::Object(mut several) if several.get("runs").is_some_and(Value::is_array) => {
                let Some(Value::Array(reports)) = several.remove("runs") else { continue };
                for report in reports {
                    runs.push(StoredRun::new(file, &report, operation)?);
                }
            }
            report => runs.push(StoredRun::new(file, &report, operation)?),
        }
    }
    Ok(runs)
}

impl StoredRun {
    fn new(path: &Path, report: &Value, operation: Option<&str>) -> Result<StoredRun, StoredRunError> {
        let lacks = |name| StoredRunError::Lacks(path.to_owned(), name);
        let verdict = report.get("verdict").and_then(Value::as_str).and_then(Verdict::parse);
        let verdict = verdict.ok_or_else(|| lacks("verdict"))?;
        let text = |pointer: &str| report.pointer(pointer).map_or_else(String::new, show);
        let asked = match report.get("scenario") {
            Some(scenario) => show(scenario),
            None => without_server(&text("/subject")),
        };
        let mut conditions = vec![
            ("what is asked", asked),
            ("load", text("/load")),
            ("protocol", text("/protocol")),
            ("machine of the generator", text("/about/host")),
            ("its processors", text("/about/processors")),
            ("version of the generator", text("/about/version")),
        ];
        // Also where there is none: a run of something that is not known is like no other.
        let is_of_scenario = report.get("scenario").is_some();
        for (condition, file) in [("scenario", SCENARIO), ("script of the scenario", SCRIPT)] {
            let kept = beside(path, file).filter(|_| is_of_scenario);
            conditions.push((condition, kept.unwrap_or_else(|| "none is kept".to_owned())));
        }
        let (rate, answers, response) = match operation {
            Some(name) => of_operation(path, report, name)?,
            None if report.get("operations").is_some() => {
                let response = report.get("response").ok_or_else(|| lacks("response"))?;
                (report.get("rate"), response.get("count"), Some(response))
            }
            None => (report.get("rate"), report.get("answered"), report.get("latency")),
        };
        Ok(StoredRun {
            path: path.to_owned(),
            verdict,
            answers: answers.and_then(Value::as_u64).ok_or_else(|| lacks("answered"))?,
            conditions,
            rate: rate.and_then(Value::as_f64),
            response: response.cloned().unwrap_or(Value::Null),
        })
    }

    /// A figure of it. A stored run has the rate and these percentiles: 50, 66, 75, 80, 90, 95, 99, 99.9, 99.99.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Rate => self.rate,
            Figure::Percentile(_) => {
                let percent = figure.percent()?;
                let known = PERCENTILES.iter().any(|known| (known - percent).abs() < 1e-9);
                known.then(|| self.response.get(figure.to_string())?.as_f64())?
            }
            Figure::Seconds | Figure::ServerCpu => None,
        }
    }
}

/// Rate, successes and response times of a part of a run.
type Part<'r> = (Option<&'r Value>, Option<&'r Value>, Option<&'r Value>);

fn of_operation<'r>(path: &Path, report: &'r Value, name: &str) -> Result<Part<'r>, StoredRunError> {
    let all = report.get("operations").and_then(Value::as_array);
    let all = all.ok_or_else(|| StoredRunError::Lacks(path.to_owned(), "operations"))?;
    let named = |of: &&Value| of.get("name").and_then(Value::as_str) == Some(name);
    let Some(of) = all.iter().find(named) else {
        let names: Vec<String> = all.iter().filter_map(|of| of.get("name")).map(show).collect();
        return Err(StoredRunError::Operation(path.to_owned(), name.to_owned(), names.join(", ")));
    };
    let response = of.get("response");
    Ok((of.get("rate"), response.and_then(|response| response.get("count")), response))
}

/// The beginning of the hash of a file beside a summary.
fn beside(summary: &Path, name: &str) -> Option<String> {
    let source = bytes_of(&summary.with_file_name(name)).ok()?;
    summary
        .ends_with(SUMMARY)
        .then(|| Sha256::digest(source).iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

fn show(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A URL without scheme, host and port: the same question to another server.
fn without_server(subject: &str) -> String {
    match subject.split_once("://") {
        Some((_, rest)) => rest.find('/').and_then(|slash| rest.get(slash..)).unwrap_or("/").to_owned(),
        None => subject.to_owned(),
    }
}

/// What makes runs no comparison of one thing: each condition that differs between them, in a sentence.
pub fn comparable(runs: &[&StoredRun]) -> Vec<String> {
    let conditions = runs.first().map_or(&[][..], |run| &run.conditions);
    let differing = conditions.iter().enumerate().filter_map(|(place, (name, _))| {
        let seen: BTreeSet<&str> = runs
            .iter()
            .filter_map(|run| run.conditions.get(place))
            .map(|(_, value)| value.as_str())
            .collect();
        let all: Vec<String> = seen.iter().map(|value| format!("`{value}`")).collect();
        (all.len() > 1).then(|| format!("the runs differ in {name}: {}", all.join(", ")))
    });
    differing.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Measured, compare};
    use super::*;
    use crate::statistics::Block;
    use serde_json::json;

    fn comparison(figure: Figure, factor: f64, count: u32) -> Comparison {
        let values = |level: f64| (0..count).map(|n| level * (1.0 + 0.001 * f64::from(n % 7))).collect();
        let blocks = vec![Block { a: values(100.0), b: values(100.0 * factor) }];
        compare(&[Measured { figure, blocks, answers: 100_000 }], figure, 0.03, 1).remove(0)
    }

    #[test]
    fn a_bound_is_broken_where_the_whole_interval_is_worse() {
        let bound: Bound = "p90=5%".parse().unwrap();
        let judge = |factor| bound.judge(&comparison(bound.figure, factor, 12));
        assert_eq!(
            [judge(1.2), judge(1.05), judge(1.0), judge(0.8)],
            [Held::Broken, Held::Unproven, Held::Kept, Held::Kept]
        );
        let bound: Bound = "rate=3%".parse().unwrap();
        let judge = |factor| bound.judge(&comparison(Figure::Rate, factor, 12));
        assert_eq!([judge(0.9), judge(0.97), judge(1.2)], [Held::Broken, Held::Unproven, Held::Kept]);
        let few = comparison(Figure::Rate, 0.5, 9);
        assert_eq!(bound.judge(&few), Held::Unknown);
        assert!(bound.sentence(&few).contains("too few runs"), "{}", bound.sentence(&few));
        assert_eq!(
            bound.sentence(&comparison(Figure::Rate, 0.5, 12)).split(';').next(),
            Some("rate at most 3 % worse: broken")
        );
    }

    #[test]
    fn bounds_that_are_none() {
        for wrong in ["p90", "p90=", "p90=5", "p90=-1%", "=5%", "speed=5%", "p90=5ms"] {
            assert!(wrong.parse::<Bound>().is_err(), "{wrong}");
        }
    }

    fn run(subject: &str, connections: u32) -> StoredRun {
        let report = json!({
            "subject": subject, "load": format!("closed loop, {connections} connections"), "protocol": "http/1.1",
            "verdict": "MEASURED", "answered": 12_000, "rate": 1_000.5, "latency": { "p90": 0.25, "p99.9": 0.5 },
            "about": { "host": "a", "processors": "2", "version": "1" },
        });
        StoredRun::new(Path::new("x.json"), &report, None).unwrap()
    }

    #[test]
    fn runs_of_one_thing_are_compared() {
        let one = run("http://127.0.0.1:8080/1k", 10);
        assert_eq!(one.figure(Figure::Rate), Some(1_000.5));
        assert_eq!(one.figure("p99.9".parse().unwrap()), Some(0.5));
        assert_eq!(one.figure("p98".parse().unwrap()), None);
        let elsewhere = run("https://b.test/1k", 10);
        assert!(comparable(&[&one, &elsewhere]).is_empty(), "the same question to another server");
        let other = run("http://127.0.0.1:8080/2k", 20);
        let differing = comparable(&[&one, &elsewhere, &other]);
        assert_eq!(differing[0], "the runs differ in what is asked: `/1k`, `/2k`");
        assert_eq!(differing.len(), 2, "{differing:?}");
    }

    #[test]
    fn runs_of_a_scenario_have_the_figures_of_all_or_of_one_operation() {
        let report = json!({
            "scenario": "shop", "load": "20 users", "verdict": "PASS", "rate": 50.0, "response": { "count": 900, "p90": 0.2 },
            "operations": [{ "name": "home", "rate": 20.0, "response": { "count": 400, "p90": 0.1 } }],
        });
        let of = |operation| StoredRun::new(Path::new("x.json"), &report, operation);
        let p90 = "p90".parse().unwrap();
        let (all, home) = (of(None).unwrap(), of(Some("home")).unwrap());
        assert_eq!((all.figure(Figure::Rate), all.figure(p90), all.answers), (Some(50.0), Some(0.2), 900));
        assert_eq!((home.figure(Figure::Rate), home.figure(p90), home.answers), (Some(20.0), Some(0.1), 400));
        let unknown = of(Some("cart")).unwrap_err().to_string();
        assert_eq!(unknown, "x.json has no operation `cart`; it has home");
    }

    /// Runs of which the scenario is known are not those of which it is not, whichever comes first.
    #[test]
    fn a_scenario_that_is_not_kept_is_another() {
        let folder = std::env::temp_dir().join(format!("tidegate-gate-{}", std::process::id()));
        let report = json!({
            "scenario": "shop", "load": "20 users", "verdict": "PASS", "rate": 50.0, "response": { "count": 900 }, "operations": [],
        });
        let run = |name: &str, files: &[(&str, &str)]| {
            let folder = folder.join(name);
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(file, text)| fs::write(folder.join(file), text).unwrap());
            StoredRun::new(&folder.join(SUMMARY), &report, None).unwrap()
        };
        let (with, without) = (run("with", &[(SCENARIO, "a")]), run("without", &[]));
        let (again, scripted) =
            (run("again", &[(SCENARIO, "a")]), run("scripted", &[(SCENARIO, "a"), (SCRIPT, "b")]));
        assert!(comparable(&[&with, &again]).is_empty());
        for pair in [[&with, &without], [&without, &with]] {
            assert!(
                comparable(&pair)[0].contains("the runs differ in scenario: `"),
                "{:?}",
                comparable(&pair)
            );
        }
        assert!(comparable(&[&with, &scripted])[0].contains("script of the scenario"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_run_is_said() {
        let lacks = StoredRun::new(Path::new("x.json"), &json!({ "verdict": "PASS" }), None).unwrap_err();
        assert_eq!(lacks.to_string().split(';').next(), Some("x.json: an object has no `answered`"));
        let missing = stored_runs(Path::new("/nonexistent"), None).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nonexistent: No such file"), "{missing}");
    }
}
