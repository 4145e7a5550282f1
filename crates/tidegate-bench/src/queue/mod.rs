//! Queues of runs: scenarios, each at every point of a matrix of variables, one run after another.
//!
//! `tidegate bench queue` reads a [`Queue`] and has `bench run` make each [`Point`]. A point is its variables, which the scenario and
//! the commands of its systems find in the environment. [`State`] knows which points are made.

mod language;
mod read;
mod state;

pub use language::{LANGUAGE, reference};
pub use read::{Loaded, load};
pub use state::{Known, Made, State};

use std::path::PathBuf;
use tidegate_config::{Environment, ProcessEnvironment};

/// Points of a queue, at most.
pub const MOST_POINTS: usize = 10_000;

/// All that a queue file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// What its state and its pages are called.
    pub name: String,
    /// In the order of the file; at least one.
    pub entries: Vec<Entry>,
}

/// A scenario, and what is changed for its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The scenario.
    pub file: PathBuf,
    /// Variables, each with its values; the last one changes fastest.
    pub matrix: Vec<(String, Vec<String>)>,
    /// How often each combination is run; at least once.
    pub repeat: u32,
}

/// A run that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// The scenario.
    pub file: PathBuf,
    /// Names and values, in the order of the file.
    pub variables: Vec<(String, String)>,
    /// Which of several of the same combination, from 1; nothing where there is one.
    pub number: Option<u32>,
}

impl Point {
    /// What tables and graphs call it: `workers=2 users=500 #1`.
    pub fn label(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        let label: Vec<String> = variables.chain(self.number.map(|number| format!("#{number}"))).collect();
        label.join(" ")
    }
}

/// A point's variables go before those of the process.
impl Environment for Point {
    fn variable(&self, name: &str) -> Option<String> {
        let own = self.variables.iter().find(|(known, _)| known == name);
        own.map(|(_, value)| value.clone()).or_else(|| ProcessEnvironment.variable(name))
    }

    fn is_set(&self, name: &str) -> bool {
        self.variable(name).is_some() || ProcessEnvironment.is_set(name)
    }
}

impl Queue {
    /// All points in the order in which they are made: each combination once, then each a second time. So a machine that gets slower
    /// takes the same from all of them.
    pub fn points(&self) -> Vec<Point> {
        let rounds = self.entries.iter().map(|entry| entry.repeat).max().unwrap_or(0);
        let mut points = Vec::new();
        for round in 1..=rounds {
            for entry in self.entries.iter().filter(|entry| entry.repeat >= round) {
                let number = (entry.repeat > 1).then_some(round);
                let of = |variables| Point { file: entry.file.clone(), variables, number };
                points.extend(entry.combinations().into_iter().map(of));
            }
        }
        points
    }
}

impl Entry {
    /// How many runs it comes to.
    fn runs(&self) -> usize {
        let combinations = self.matrix.iter().map(|(_, values)| values.len());
        combinations.fold(self.repeat as usize, usize::saturating_mul)
    }

    fn combinations(&self) -> Vec<Vec<(String, String)>> {
        let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for (name, values) in &self.matrix {
            let extended = |one: Vec<(String, String)>| {
                values
                    .iter()
                    .map(move |value| one.iter().cloned().chain([(name.clone(), value.clone())]).collect())
            };
            all = all.into_iter().flat_map(extended).collect();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_made_in_turns() {
        let values = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let queue = Queue {
            name: "q".into(),
            entries: vec![
                Entry {
                    file: "a.kdl".into(),
                    matrix: vec![("W".into(), values(&["1", "2"])), ("U".into(), values(&["5", "9"]))],
                    repeat: 2,
                },
                Entry { file: "b.kdl".into(), matrix: Vec::new(), repeat: 1 },
            ],
        };
        let points = queue.points();
        let labels: Vec<String> = points.iter().map(Point::label).collect();
        let combinations = ["W=1 U=5", "W=1 U=9", "W=2 U=5", "W=2 U=9"];
        let expected: Vec<String> = combinations
            .iter()
            .map(|one| format!("{one} #1"))
            .chain([String::new()])
            .chain(combinations.iter().map(|one| format!("{one} #2")))
            .collect();
        assert_eq!(labels, expected);
        assert_eq!(queue.entries.iter().map(Entry::runs).sum::<usize>(), points.len());
        assert_eq!(points[1].variable("U").as_deref(), Some("9"));
        assert_eq!(points[1].variable("PATH"), std::env::var("PATH").ok());
    }
}
