//! What tells runs apart: where and how they were made first, the scenario, its script and the settings of its systems, then their
//! figures.
//!
//! The sample is the run, as in `crate::compare`: with ten runs of each and more there are intervals and conclusions; fewer
//! are described, and that is said.

use super::stored::{Operation, Run, Status};
use crate::compare::{Comparison, Conclusion, Figure, LEAST_BLOCKS, Measured, compare_first};
use crate::quantity::show_share;
use crate::report::table;
use crate::statistics::{Block, median};
use serde_json::{Value, json};
use similar::TextDiff;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// Figures of each operation.
const FIGURES: [Figure; 4] = [Figure::Rate, Figure::MEDIAN, Figure::Percentile(90_000), Figure::P99];
/// Up to which difference two are called the same.
const MARGIN: f64 = 0.03;
/// How long lines are looked for that two texts have alike.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of what differs in every run.
const PASSED_OVER: [&str; 2] = ["about.date", "about.command"];

/// A condition that is another in B.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Its name.
    pub name: String,
    /// What it was in the runs of A; several where they are not of one mind.
    pub a: String,
    /// The same of B.
    pub b: String,
}

/// A figure of A and B.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The operation; nothing for the whole run.
    pub operation: Option<String>,
    /// Which.
    pub figure: Figure,
    /// The median of A, where its runs have it.
    pub a: Option<f64>,
    /// The same of B.
    pub b: Option<f64>,
    /// What the runs prove, where there are runs enough to prove anything.
    pub proof: Option<Comparison>,
}

/// What tells A and B apart.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Ids of the runs of A and of B.
    pub ids: [Vec<String>; 2],
    /// Kernel, machine, settings, versions, load.
    pub environment: Vec<Changed>,
    /// The scenarios line by line, where they differ.
    pub scenario: Option<String>,
    /// The same of its script and of the settings that were written for the runs: names below their folders, and lines.
    pub files: Vec<(String, String)>,
    /// The figures.
    pub figures: Vec<Compared>,
    /// What else a reader must know before the figures.
    pub notes: Vec<String>,
}

impl Difference {
    /// Of the runs `a` and `b`, neither empty.
    pub fn new(a: &[Run], b: &[Run]) -> Difference {
        let ids = [a, b].map(|runs| runs.iter().map(|run| run.row.id.clone()).collect::<Vec<_>>());
        let names = ids.each_ref().map(|ids| ids.first().cloned().unwrap_or_default());
        let scenarios = [a, b].map(|runs| runs.first().and_then(Run::scenario).unwrap_or_default());
        let scenario = lines(&scenarios, &names);
        let environment = changed(a, b);
        let files = files(&[a, b].map(|runs| runs.first().map(Run::inputs).unwrap_or_default()), &names);
        let is_other = !environment.is_empty() || scenario.is_some() || !files.is_empty();
        let notes = notes(a, b, is_other);
        Difference { ids, environment, scenario, files, figures: figures(a, b), notes }
    }

    /// As text, for a terminal.
    pub fn screen(&self) -> String {
        let [a, b] = self.ids.each_ref().map(|ids| ids.join(", "));
        let mut out = format!("A  {a}\nB  {b}\n\n");
        if self.environment.is_empty() {
            out.push_str("Made alike: machine, settings, versions and load are the same.\n");
        } else {
            let head = ["", "A", "B"].map(str::to_owned).to_vec();
            let rows = self
                .environment
                .iter()
                .map(|changed| vec![changed.name.clone(), changed.a.clone(), changed.b.clone()]);
            let _ = write!(
                out,
                "Not made alike:\n\n{}",
                table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
            );
        }
        if let Some(scenario) = &self.scenario {
            let _ = write!(out, "\nThe scenarios differ:\n\n{scenario}");
        }
        for (name, lines) in &self.files {
            let _ = write!(out, "\n{name} differs:\n\n{lines}");
        }
        let _ = write!(out, "\n{}", table(&self.rows()));
        for note in &self.notes {
            let _ = write!(out, "\n{note}.\n");
        }
        out
    }

    /// The figures, a row of headings first.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let head = ["operation", "figure", "A", "B", "B/A", "95 % interval", "proven"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.figures.iter().map(Compared::cells));
        rows
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let environment = self
            .environment
            .iter()
            .map(|changed| json!({ "name": changed.name, "a": changed.a, "b": changed.b }));
        let figures = self.figures.iter().map(|compared| {
            json!({
                "operation": compared.operation,
                "figure": compared.figure.to_string(),
                "a": compared.a,
                "b": compared.b,
                "proof": compared.proof.as_ref().map(Comparison::json),
            })
        });
        let [a, b] = &self.ids;
        json!({
            "a": a,
            "b": b,
            "environment": environment.collect::<Vec<_>>(),
            "scenario": self.scenario,
            "files": self.files.iter().map(|(name, lines)| json!({ "name": name, "lines": lines })).collect::<Vec<_>>(),
            "figures": figures.collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// How two texts differ, line by line; nothing where they do not.
fn lines(texts: &[String; 2], names: &[String; 2]) -> Option<String> {
    let [before, after] = texts;
    (before != after).then(|| {
        let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(before.as_str(), after.as_str());
        diff.unified_diff().context_radius(1).header(&names[0], &names[1]).to_string()
    })
}

/// The files that differ.
fn files(of: &[BTreeMap<String, String>; 2], names: &[String; 2]) -> Vec<(String, String)> {
    let [a, b] = of;
    let all: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differing = all.into_iter().filter_map(|name| {
        let texts = of.each_ref().map(|files| files.get(name).cloned().unwrap_or_default());
        Some((name.clone(), lines(&texts, names)?))
    });
    differing.collect()
}

impl Compared {
    fn cells(&self) -> Vec<String> {
        let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| self.figure.show(value));
        let ratio = self.a.zip(self.b).filter(|(a, _)| *a > 0.0).map(|(a, b)| format!("{:.3}", b / a));
        let (interval, proven) = match &self.proof {
            Some(proof) if proof.has_enough() => {
                let (low, high) = proof.ratio.interval;
                (format!("{low:.3} to {high:.3}"), proof.word())
            }
            Some(proof) if proof.conclusion == Conclusion::TooFewAnswers => ("-".to_owned(), proof.word()),
            _ => ("-".to_owned(), "-"),
        };
        vec![
            self.operation.clone().unwrap_or_else(|| "all".to_owned()),
            self.figure.to_string(),
            show(self.a),
            show(self.b),
            ratio.unwrap_or_else(|| "-".to_owned()),
            interval,
            proven.to_owned(),
        ]
    }
}

fn notes(a: &[Run], b: &[Run], is_unlike: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let least = 2 * LEAST_BLOCKS as usize;
    if a.len() < least || b.len() < least {
        notes.push(format!(
            "This describes {} of A and {} of B and proves nothing: chance alone makes runs differ. {least} runs of each, made \
             in turns, can prove a difference, or its absence within {}",
            counted(a.len()),
            counted(b.len()),
            show_share(MARGIN)
        ));
    } else if is_unlike {
        notes.push("What is proven to differ may come from all that was not made alike".to_owned());
    }
    for run in a.iter().chain(b) {
        let id = &run.row.id;
        match run.status {
            Status::Done(verdict) if verdict.exit_code() != 0 => {
                notes.push(format!("{id} is {verdict}: {}", run.sentences("reasons").join("; ")));
            }
            Status::Done(_) => {}
            Status::Running | Status::BrokenOff => {
                notes.push(format!("{id} is {}: it has no results", run.status));
            }
        }
    }
    notes
}

fn counted(runs: usize) -> String {
    if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }
}

/// Each condition that is not the same in all.
fn changed(a: &[Run], b: &[Run]) -> Vec<Changed> {
    let [of_a, of_b] = [a, b].map(conditions);
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let shown = |of: &BTreeMap<String, BTreeSet<String>>, name: &String| {
        let values = of.get(name).map(|values| values.iter().cloned().collect::<Vec<_>>());
        values.map_or("-".to_owned(), |values| values.join(" | "))
    };
    let all = names.into_iter().map(|name| Changed {
        name: name.clone(),
        a: shown(&of_a, name),
        b: shown(&of_b, name),
    });
    all.filter(|changed| changed.a != changed.b).collect()
}

/// The values of each condition in some runs.
fn conditions(runs: &[Run]) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for run in runs {
        let mut of = BTreeMap::new();
        flatten("", &run.environment, &mut of);
        if run.environment.is_null() {
            flatten("about", run.summary.get("about").unwrap_or(&Value::Null), &mut of);
        }
        let row = &run.row;
        for (name, value) in [("load", &row.load), ("target", &row.target), ("scenario", &row.name)] {
            of.insert(name.to_owned(), value.clone());
        }
        if let Some(users) = row.users {
            of.insert("users".to_owned(), users.to_string());
        }
        if let Some(rate) = row.visits {
            of.insert("visits per second".to_owned(), rate.to_string());
        }
        if let Some(label) = &row.label {
            of.insert("label".to_owned(), label.clone());
        }
        of.retain(|name, _| !PASSED_OVER.contains(&name.as_str()));
        for (name, value) in of {
            all.entry(name).or_default().insert(value);
        }
    }
    all
}

/// The leaves of an object, by their path.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(of) => {
            for (name, value) in of {
                // `sysctls.net.core.somaxconn` is longer than its name.
                let path = if path.is_empty() || path == "sysctls" {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                flatten(&path, value, into);
            }
        }
        Value::String(text) => drop(into.insert(path.to_owned(), text.replace(['\t', '\n'], " "))),
        other => drop(into.insert(path.to_owned(), other.to_string())),
    }
}

fn figures(a: &[Run], b: &[Run]) -> Vec<Compared> {
    let mut names: Vec<String> = Vec::new();
    for operation in a.iter().chain(b).flat_map(Run::operations) {
        if !names.contains(&operation.name) {
            names.push(operation.name);
        }
    }
    let wanted = [(None, Figure::Rate)].into_iter();
    let wanted =
        wanted.chain(names.into_iter().flat_map(|name| FIGURES.map(|figure| (Some(name.clone()), figure))));
    let [of_a, of_b] = [a, b].map(|runs| runs.iter().map(|run| (run, run.operations())).collect::<Vec<_>>());
    let mut all = Vec::new();
    let (mut measured, mut places) = (Vec::new(), Vec::new());
    for (operation, figure) in wanted {
        let [a, b] = [&of_a, &of_b].map(|runs| values(runs, operation.as_deref(), figure));
        let middle = |values: &Option<(Vec<f64>, u64)>| values.as_ref().map(|(values, _)| median(values));
        all.push(Compared { operation, figure, a: middle(&a), b: middle(&b), proof: None });
        if let (Some((a, of_a)), Some((b, of_b))) = (a, b) {
            places.push(all.len() - 1);
            measured.push(Measured { figure, blocks: vec![Block { a, b }], answers: of_a.min(of_b) });
        }
    }
    for (place, proof) in places.into_iter().zip(compare_first(&measured, MARGIN, 1)) {
        if let Some(compared) = all.get_mut(place) {
            compared.proof = Some(proof);
        }
    }
    all
}

/// The figure of each run, and the answers of the one that had the fewest; nothing where one has it not.
fn values(
    runs: &[(&Run, Vec<Operation>)],
    operation: Option<&str>,
    figure: Figure,
) -> Option<(Vec<f64>, u64)> {
    let mut least = u64::MAX;
    let mut values = Vec::new();
    for (run, operations) in runs {
        let value = match operation {
            None => {
                least = least.min(run.row.ended.unwrap_or(0));
                run.row.rate?
            }
            Some(name) => {
                let of = operations.iter().find(|of| of.name == name)?;
                least = least.min(of.ended - of.failed.min(of.ended));
                figure.percent().map_or(Some(of.rate), |percent| of.percentile(percent))?
            }
        };
        values.push(value);
    }
    (!values.is_empty()).then_some((values, least))
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;
    use crate::verdict::Verdict;
    use std::path::PathBuf;

    fn run(id: &str, p90: f64, rate: f64, somaxconn: &str) -> Run {
        let operations = json!([
            { "name": "home", "ended": 5000, "failed": 0, "rate": rate,
              "response": { "count": 5000, "p50": p90 / 2.0, "p90": p90 } },
        ]);
        let row = Row {
            id: id.to_owned(),
            started: 0,
            name: "shop".into(),
            label: None,
            target: "http://a/".into(),
            load: "20 users".into(),
            verdict: "PASS".into(),
            users: None,
            visits: None,
            seconds: None,
            rate: Some(rate),
            ended: Some(5000),
            failed: Some(0),
            p90: None,
            bytes_rate: None,
            busy: None,
            host: String::new(),
        };
        Run {
            path: PathBuf::from("/nowhere"),
            row,
            status: Status::Done(Verdict::Pass),
            summary: json!({ "operations": operations }),
            environment: json!({ "about": { "date": id, "host": "vm" }, "sysctls": { "net.core.somaxconn": somaxconn } }),
        }
    }

    #[test]
    fn what_is_not_alike_comes_first_and_one_run_proves_nothing() {
        let difference = Difference::new(&[run("a", 0.1, 50.0, "4096")], &[run("b", 0.2, 50.0, "128")]);
        let [changed] = difference.environment.as_slice() else { panic!("{difference:?}") };
        assert_eq!(
            (changed.name.as_str(), changed.a.as_str(), changed.b.as_str()),
            ("net.core.somaxconn", "4096", "128")
        );
        let screen = difference.screen();
        assert!(screen.find("somaxconn") < screen.find("home"), "{screen}");
        assert!(screen.contains("describes 1 run of A and 1 run of B and proves nothing"), "{screen}");
        let p90 = difference.rows().into_iter().find(|row| row[1] == "p90").unwrap();
        assert_eq!(p90[..6], ["home", "p90", "100 ms", "200 ms", "2.000", "-"].map(str::to_owned));
        assert!(difference.rows().iter().any(|row| row[1] == "p99" && row[2] == "-"));
    }

    #[test]
    fn runs_enough_prove_a_difference() {
        let runs = |p90: f64| {
            (0..12).map(move |n| {
                run(
                    &n.to_string(),
                    p90 * (1.0 + 0.002 * f64::from(n % 5)),
                    50.0 + 0.01 * f64::from(n % 3),
                    "1",
                )
            })
        };
        let difference = Difference::new(&runs(0.1).collect::<Vec<_>>(), &runs(0.2).collect::<Vec<_>>());
        let proven = |figure: &str| {
            let rows = difference.rows();
            rows.iter().find(|row| row[0] == "home" && row[1] == figure).map(|row| row[6].clone())
        };
        assert_eq!(proven("p90").as_deref(), Some("A is better"));
        assert_eq!(proven("rate").as_deref(), Some("same"));
        assert!(difference.environment.is_empty() && difference.notes.is_empty(), "{difference:?}");
    }
}
