//! Results of rows, kept as JSON from one run to the next, beside the counts of instructions: a machine that measures some
//! of them anew leaves the others as they are.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::super::peers::Kind;
use super::super::report::Spread;
use super::super::rounds::Course;
use super::super::{host, newest};
use super::{Figure, Row};
use crate::workspace;

/// All that is known.
#[derive(Debug, Default, PartialEq)]
pub struct Results {
    /// By the name of the row.
    pub rows: BTreeMap<String, Measured>,
}

/// Where and with what a row was measured: each has its own, since a few may be measured anew elsewhere.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circumstances {
    pub host: String,
    pub versions: Vec<String>,
    pub course: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub date: String,
    pub circumstances: Circumstances,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Measured(Figure),
    /// Why there is no figure.
    Void(String),
}

impl Outcome {
    /// For a line of progress.
    pub fn shown(&self, row: &Row) -> String {
        match self {
            Outcome::Measured(figure) => {
                let verdict = super::verdict(row, figure);
                format!("{} {}, {}: {verdict}; {}", figure.spread, row.unit, row.goal, figure.detail)
            }
            Outcome::Void(reason) => format!("VOID: {reason}"),
        }
    }
}

impl Circumstances {
    pub fn now(course: &Course) -> Self {
        let peers = [("nginx", "-v"), ("lighttpd", "-v"), ("h2o", "-v"), ("haproxy", "-v"), ("wrk", "-v")];
        let mut versions = vec![Kind::Tidegate.version()];
        for (program, argument) in peers {
            versions.push(newest::version(program, argument).unwrap_or_else(|| format!("{program}: absent")));
        }
        Self {
            host: host::description(),
            versions,
            course: format!("{} rounds of {} s", course.rounds, course.seconds),
        }
    }
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}", self.host, self.versions.join("; "), self.course)
    }
}

impl Results {
    fn path() -> PathBuf {
        workspace::root().join("xtask/baseline/rows.json")
    }

    /// What is stored; nothing where nothing is.
    pub fn read() -> Result<Self> {
        match fs::read_to_string(Self::path()) {
            Ok(text) => {
                Self::parse(&text).with_context(|| format!("{} is no result", Self::path().display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", Self::path().display())),
        }
    }

    pub fn write(&self) -> Result<()> {
        let path = Self::path();
        fs::create_dir_all(path.parent().context("invariant: a file in a folder")?)?;
        fs::write(&path, self.text()?).with_context(|| format!("cannot write {}", path.display()))
    }

    fn text(&self) -> Result<String> {
        let rows = self.rows.iter().map(|(name, measured)| {
            let Circumstances { host, versions, course } = &measured.circumstances;
            let mut value = match &measured.outcome {
                Outcome::Measured(Figure { spread, floor, detail }) => {
                    let mut value = spread_value(spread);
                    value["detail"] = json!(detail);
                    if let Some(floor) = floor {
                        value["floor"] = spread_value(floor);
                    }
                    value
                }
                Outcome::Void(reason) => json!({ "void": reason }),
            };
            value["date"] = json!(measured.date);
            value["circumstances"] = json!({ "host": host, "versions": versions, "course": course });
            (name.clone(), value)
        });
        let all = json!({ "rows": Value::Object(rows.collect::<Map<_, _>>()) });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }

    fn parse(text: &str) -> Result<Self> {
        let all: Value = serde_json::from_str(text)?;
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let circumstances = |of: &Value| Circumstances {
            host: word(&of["host"]),
            versions: of["versions"].as_array().into_iter().flatten().map(word).collect(),
            course: word(&of["course"]),
        };
        let mut rows = BTreeMap::new();
        for (name, row) in all["rows"].as_object().context("no rows")? {
            let spread = |of: &Value| -> Result<Spread> {
                let number = |key: &str| of[key].as_f64().with_context(|| format!("{name} has no {key}"));
                Ok(Spread { median: number("median")?, least: number("least")?, most: number("most")? })
            };
            let outcome = match row["void"].as_str() {
                Some(reason) => Outcome::Void(reason.to_owned()),
                None => Outcome::Measured(Figure {
                    spread: spread(row)?,
                    floor: row["floor"].is_object().then(|| spread(&row["floor"])).transpose()?,
                    detail: word(&row["detail"]),
                }),
            };
            // Files of before have them once, for all rows.
            let own = if row["circumstances"].is_object() { &row["circumstances"] } else { &all };
            let (date, circumstances) = (word(&row["date"]), circumstances(own));
            rows.insert(name.clone(), Measured { date, circumstances, outcome });
        }
        Ok(Self { rows })
    }
}

fn spread_value(spread: &Spread) -> Value {
    json!({ "median": spread.median, "least": spread.least, "most": spread.most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let circumstances = Circumstances {
            host: "a machine".to_owned(),
            versions: vec!["nginx/1.31.0 (built from source)".to_owned()],
            course: "5 rounds of 2 s".to_owned(),
        };
        let spread = Spread { median: 0.9, least: 0.85, most: 0.95 };
        let floor = Some(Spread { median: 0.8, ..spread });
        let figure = Figure { spread, floor, detail: "tidegate 4.1 µs".to_owned() };
        let outcomes = [
            ("static-1k", Outcome::Measured(figure)),
            ("start", Outcome::Measured(Figure::once(11.0, "one worker"))),
            ("make-run", Outcome::Void("no cargo".to_owned())),
        ];
        let rows = outcomes.map(|(name, outcome)| {
            let (date, circumstances) = ("2026-11-22".to_owned(), circumstances.clone());
            (name.to_owned(), Measured { date, circumstances, outcome })
        });
        let results = Results { rows: rows.into() };
        assert_eq!(Results::parse(&results.text().unwrap()).unwrap(), results);
        assert!(Results::parse("{}").is_err());
    }
}
