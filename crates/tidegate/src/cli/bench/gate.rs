//! `tidegate bench gate`: runs that were kept, against those of today.

use super::question::{Question, Subjects};
use super::usage;
use anyhow::Result;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_bench::compare::{Figure, Measured, StoredRun, comparable, stored_runs};
use tidegate_bench::statistics::Block;
use tidegate_bench::verdict::{Judgement, Verdict};

/// Compares runs that were kept with new ones, and fails where a figure is proven worse than it may be.
///
/// The sample is the run: ten of each are the least. They are read as `tidegate bench hit --json` and
/// `bench run` write them: objects one behind the other in a file, as many files in a folder, or a folder of kept runs. A bound is broken only where the whole 95 % interval is
/// worse, so that noise does not hold a change back; what may be worse and is not proven is a note. Runs that were not
/// made alike (what is asked, load, machine, version of the generator) are INVALID. Runs made at different times also
/// compare the hours: `compare --worse` makes both in turn and sees smaller differences.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  for n in $(seq 12); do tidegate bench hit -c 64 -t 5s --json URL >> base.jsonl; done
  tidegate bench gate --worse p90=5% --worse rate=3% base.jsonl new.jsonl
  tidegate bench gate --worse p99=10% --junit gate.xml base/ new/
  tidegate bench gate --worse p90=5% --operation home runs/before runs/after   folders of scenario runs

Exit codes: 0 PASS, 97 a file could not be written, 98 INVALID (too few runs, or runs that are not alike), 99 FAIL (a bound is broken),
1 a run cannot be read, 2 the arguments are wrong")]
pub struct Arguments {
    /// The runs that were kept: a file of JSON objects, a folder of such files, or a folder of runs
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// The new ones
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The operation that is meant, of runs of a scenario [default: all of them together]
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    #[command(flatten)]
    question: Question,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let question = &arguments.question;
    if question.worse.is_empty() {
        return Ok(usage("gate wants to know what may not be worse, as --worse p90=5%"));
    }
    let operation = arguments.operation.as_deref();
    let (base, new) = (stored_runs(&arguments.base, operation)?, stored_runs(&arguments.new, operation)?);
    let mut figures = vec![Figure::Rate, Figure::MEDIAN, Figure::P99];
    for figure in question.figures() {
        if !figures.contains(&figure) {
            figures.push(figure);
        }
    }
    let answers = base.iter().chain(&new).map(|run| run.answers).min().unwrap_or(0);
    let mut measured = Vec::new();
    for figure in figures {
        let of = |runs: &[StoredRun]| runs.iter().map(|run| run.figure(figure)).collect::<Option<Vec<f64>>>();
        match of(&base).zip(of(&new)) {
            Some((a, b)) => measured.push(Measured { figure, blocks: vec![Block { a, b }], answers }),
            None => {
                return Ok(usage(&format!(
                    "stored runs have no {figure}; they have rate, p50, p66, p75, p80, p90, p95, p99, p99.9 and p99.99"
                )));
            }
        }
    }
    let all: Vec<&StoredRun> = base.iter().chain(&new).collect();
    let (a, b) = (arguments.base.display().to_string(), arguments.new.display().to_string());
    let subjects = Subjects {
        a: &a,
        b: &b,
        manner: format!("{} runs and {} runs, made at different times", base.len(), new.len()),
        blocks: 1,
        bad: (count(&all, Verdict::Invalid), count(&all, Verdict::Fail)),
    };
    question.answer("gate", &subjects, &measured, judgement(&all), Figure::Rate)
}

fn count(runs: &[&StoredRun], verdict: Verdict) -> usize {
    runs.iter().filter(|run| run.verdict == verdict).count()
}

/// What the runs by themselves prove: those that are not alike or could not be trusted prove nothing, and one that failed
/// has figures of something else.
fn judgement(runs: &[&StoredRun]) -> Judgement {
    let mut reasons = comparable(runs);
    let mut verdict = if reasons.is_empty() { Verdict::Measured } else { Verdict::Invalid };
    for (bad, sentence) in
        [(Verdict::Invalid, "could not be trusted"), (Verdict::Fail, "missed what they had to reach")]
    {
        let files: BTreeSet<String> =
            runs.iter().filter(|run| run.verdict == bad).map(|run| run.path.display().to_string()).collect();
        if !files.is_empty() {
            let files: Vec<String> = files.into_iter().collect();
            reasons.push(format!(
                "{} of {} runs {sentence}: {}",
                count(runs, bad),
                runs.len(),
                files.join(", ")
            ));
            verdict = Verdict::worst([verdict, bad].into_iter());
        }
    }
    Judgement { verdict, reasons, notes: Vec::new() }
}
