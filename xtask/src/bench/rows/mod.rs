//! `cargo xtask bench rows`: every figure that has a goal, measured beside the best peers, with what came of it.
//!
//! A figure is a [`Row`] of `list`. Rows that come of one run share it ([`Bench::series`]). Results are kept below
//! `target/bench` as JSON, one row replacing its predecessor, so that a few can be measured anew; `--write` makes the
//! tables of `docs/measured.md` and `README.md` of them (`document`).

mod document;
mod list;
mod process;
mod results;
mod workers;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::downloads::{self, Crowd, Side};
use super::peers::Kind;
use super::report::{Spread, Table, significant};
use super::rounds::{Course, Series};
use super::{host, newest, static_files};
use results::{Outcome, Results};

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these rows, or those whose names begin so
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these rows out
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Rounds; the median of them is shown
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds under load, for each server and round
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// As little as still exercises the bench; the figures mean nothing and are not stored
    #[arg(long)]
    quick: bool,
    /// Use the release binary and the peers that are there
    #[arg(long)]
    no_build: bool,
    /// Measure nothing; show what is stored
    #[arg(long)]
    stored: bool,
    /// Write docs/measured.md and the table of README.md
    #[arg(long, conflicts_with = "quick")]
    write: bool,
    /// Only say which rows there are
    #[arg(long)]
    list: bool,
}

/// A figure that has a goal.
pub struct Row {
    /// What `--only` takes.
    pub name: &'static str,
    /// What it says to who reads a table.
    pub what: &'static str,
    pub unit: &'static str,
    pub goal: Goal,
    /// Whether it is one of the lines of README.md.
    pub is_shown_first: bool,
    pub measure: fn(&Bench) -> Result<Figure>,
}

/// What a figure has to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    /// What a table shows decides: 0.904 is shown as 0.90 and keeps 0.90.
    pub fn is_kept(self, figure: f64) -> bool {
        let shown = |figure: f64| -> f64 { significant(figure).parse().unwrap_or(figure) };
        match self {
            Goal::AtMost(most) => shown(figure) <= shown(most),
            Goal::AtLeast(least) => shown(figure) >= shown(least),
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtMost(most) => write!(f, "≤ {}", figure_text(*most)),
            Goal::AtLeast(least) => write!(f, "≥ {}", figure_text(*least)),
        }
    }
}

/// `0.90`, `12.5`, `3,100`.
pub fn figure_text(figure: f64) -> String {
    if figure.abs() >= 1000.0 { super::report::grouped(figure) } else { significant(figure) }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The median, and how far the rounds lie apart.
    pub spread: Spread,
    /// The same figure of a server that looks at nothing, measured in the same rounds: what the kernel costs at one read and
    /// one write for each message.
    pub floor: Option<Spread>,
    /// What it was made of: each server's own figures.
    pub detail: String,
}

impl Figure {
    /// Of one reading.
    pub fn once(value: f64, detail: impl Into<String>) -> Self {
        let spread = Spread { median: value, least: value, most: value };
        Self { spread, floor: None, detail: detail.into() }
    }

    /// Of several.
    pub fn of(values: impl IntoIterator<Item = f64>, detail: impl Into<String>) -> Result<Self> {
        let spread = Spread::of(values).context("nothing was measured")?;
        Ok(Self { spread, floor: None, detail: detail.into() })
    }
}

/// A run of the bench.
pub struct Bench {
    pub course: Course,
    /// Nobody looks at the figures.
    pub is_quick: bool,
    runs: RefCell<BTreeMap<String, Rc<Vec<Series>>>>,
    downloads: RefCell<Option<Rc<Vec<Side>>>>,
}

impl Bench {
    fn new(course: Course, is_quick: bool) -> Self {
        Self { course, is_quick, runs: RefCell::default(), downloads: RefCell::default() }
    }

    /// Ten thousand downloads, of Tidegate and of nginx.
    pub fn downloads(&self) -> Result<Rc<Vec<Side>>> {
        if let Some(sides) = &*self.downloads.borrow() {
            return Ok(Rc::clone(sides));
        }
        let _congestion = host::CongestionControl::set("cubic")?;
        let crowd = Crowd { downloads: self.many(10_000, 200), limit: 100, seconds: self.many(20, 3) };
        let sides = Rc::new(downloads::sides(&[Kind::Nginx], crowd, self.course.rounds)?);
        *self.downloads.borrow_mut() = Some(Rc::clone(&sides));
        Ok(sides)
    }

    /// The series of a run, which several rows may look at; it is made once.
    pub fn series(
        &self,
        key: &str,
        measure: impl FnOnce() -> Result<Vec<Series>>,
    ) -> Result<Rc<Vec<Series>>> {
        if let Some(series) = self.runs.borrow().get(key) {
            return Ok(Rc::clone(series));
        }
        let series = Rc::new(measure()?);
        self.runs.borrow_mut().insert(key.to_owned(), Rc::clone(&series));
        Ok(series)
    }

    /// As many as are wanted, or few where nobody looks at the figures.
    pub fn many(&self, wanted: u32, few: u32) -> u32 {
        if self.is_quick { few } else { wanted }
    }
}

/// Measures the chosen rows, one after another, and shows what came of them.
pub fn run(arguments: &Arguments) -> Result<()> {
    let chosen: Vec<&Row> = list::ROWS.iter().filter(|row| arguments.chooses(row.name)).collect();
    if chosen.is_empty() {
        bail!("no such row; there are: {}", list::ROWS.map(|row| row.name).join(", "));
    }
    if arguments.list {
        for row in chosen {
            println!("{:26} {} ({}, {})", row.name, row.what, row.unit, row.goal);
        }
        return Ok(());
    }
    let mut results = Results::read()?;
    if !arguments.stored {
        measure(arguments, &chosen, &mut results)?;
    }
    println!("\n{}", table(&chosen, &results));
    if arguments.write {
        document::write(&list::ROWS, &results)?;
    }
    let void: Vec<&str> = chosen
        .iter()
        .filter(|row| matches!(results.rows.get(row.name).map(|row| &row.outcome), Some(Outcome::Void(_))))
        .map(|row| row.name)
        .collect();
    if !void.is_empty() {
        bail!("not measured: {}", void.join(", "));
    }
    Ok(())
}

impl Arguments {
    fn chooses(&self, name: &str) -> bool {
        let is_named = |names: &[String]| names.iter().any(|part| name.starts_with(part.as_str()));
        (self.only.is_empty() || is_named(&self.only)) && !is_named(&self.without)
    }
}

fn measure(arguments: &Arguments, chosen: &[&Row], results: &mut Results) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build {
        newest::build()?;
        static_files::build()?;
    }
    let (rounds, seconds) = if arguments.quick { (1, 1) } else { (arguments.rounds, arguments.seconds) };
    let bench = Bench::new(Course { rounds, seconds, no_build: true }, arguments.quick);
    let circumstances = results::Circumstances::now(&bench.course);
    println!("{}, {circumstances}\n", host::today());
    for row in chosen {
        let begun = Instant::now();
        let outcome = match (row.measure)(&bench) {
            Ok(figure) => Outcome::Measured(figure),
            Err(error) => Outcome::Void(format!("{error:#}")),
        };
        println!("{:26} {} ({:.0} s)", row.name, outcome.shown(row), begun.elapsed().as_secs_f64());
        let measured =
            results::Measured { date: host::today(), circumstances: circumstances.clone(), outcome };
        results.rows.insert(row.name.to_owned(), measured);
        if !arguments.quick {
            results.write()?; // what was measured stays, whatever becomes of the rest
        }
    }
    Ok(())
}

/// The rows with what is known of them.
fn table(rows: &[&Row], results: &Results) -> Table<5> {
    let mut table = Table::new(["row", "what", "goal", "figure", "verdict"]);
    for row in rows {
        let outcome = results.rows.get(row.name).map(|measured| &measured.outcome);
        let (figure, verdict) = match outcome {
            Some(Outcome::Measured(figure)) => (figure.spread.to_string(), verdict(row, figure).to_owned()),
            Some(Outcome::Void(_)) => (String::new(), "VOID".to_owned()),
            None => (String::new(), "not measured".to_owned()),
        };
        let what = format!("{}, {}", row.what, row.unit);
        table.row([row.name.to_owned(), what, row.goal.to_string(), figure, verdict]);
    }
    table
}

pub fn verdict(row: &Row, figure: &Figure) -> &'static str {
    if row.goal.is_kept(figure.spread.median) { "kept" } else { "MISSED" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals() {
        let rows = [
            (Goal::AtMost(0.9), 0.904, true),
            (Goal::AtMost(0.9), 0.906, false),
            (Goal::AtMost(3100.0), 3100.4, true),
            (Goal::AtMost(3100.0), 3101.0, false),
            (Goal::AtLeast(1.05), 1.046, true),
            (Goal::AtLeast(1.05), 1.04, false),
        ];
        for (goal, figure, expected) in rows {
            assert_eq!(goal.is_kept(figure), expected, "{goal} {figure}");
        }
        assert_eq!(Goal::AtMost(12_000.0).to_string(), "≤ 12,000");
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let mut names: Vec<&str> = list::ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), list::ROWS.len());
        assert_eq!(list::ROWS.iter().filter(|row| row.is_shown_first).count(), 10);
    }

    #[test]
    fn a_run_is_made_once() {
        let course = Course { rounds: 1, seconds: 1, no_build: true };
        let bench = Bench::new(course, true);
        let runs = std::cell::Cell::new(0);
        for _ in 0..3 {
            let series = bench.series("one", || {
                runs.set(runs.get() + 1);
                Ok(Vec::new())
            });
            assert!(series.unwrap().is_empty());
        }
        assert_eq!(runs.get(), 1);
        assert!(bench.series("other", || bail!("no")).is_err());
    }
}
