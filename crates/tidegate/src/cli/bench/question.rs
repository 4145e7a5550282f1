//! What a comparison is asked, and what it answers: for `compare`, which makes the runs, and `gate`, which reads them.

use super::super::complain;
use super::output::{about_now, all_kept, show, write};
use super::wrong;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_bench::compare::{Bound, Comparison, Figure, Held, Measured, compare, screen};
use tidegate_bench::quantity;
use tidegate_bench::report::{compare_page, junit, show_judgement};
use tidegate_bench::verdict::{Judgement, Verdict};

/// What is asked, and in which forms the answer is given out.
#[derive(Args, Clone)]
pub struct Question {
    /// The figure that is the question: rate, p50, p99, cpu, seconds; the others are asked beside it, together at 5 %
    /// [default: the rate of a closed loop, the median of a schedule, the seconds of commands, the first --worse]
    #[arg(long, value_name = "FIGURE")]
    pub primary: Option<Figure>,
    /// Up to which difference the two are called the same
    #[arg(long, value_name = "SHARE", default_value = "3%", value_parser = quantity::share)]
    pub margin: f64,
    /// By how much a figure of B may be worse, as p90=5%: FAIL where the whole interval is worse; may be repeated
    #[arg(long, value_name = "FIGURE=SHARE")]
    pub worse: Vec<Bound>,
    /// Write the bounds as a JUnit report
    #[arg(long, value_name = "FILE", requires = "worse")]
    pub junit: Option<PathBuf>,
    /// For whatever is drawn by lot
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The two that are compared, and how their runs came about.
pub struct Subjects<'a> {
    /// The first.
    pub a: &'a str,
    /// The second.
    pub b: &'a str,
    /// How the runs followed each other, in one line.
    pub manner: String,
    /// How many blocks there are.
    pub blocks: usize,
    /// Runs that could not be trusted, and runs that missed what they had to reach.
    pub bad: (usize, usize),
}

impl Question {
    /// Figures that have to be there: the question's and those of the bounds.
    pub fn figures(&self) -> impl Iterator<Item = Figure> + '_ {
        self.primary.into_iter().chain(self.worse.iter().map(|bound| bound.figure))
    }

    /// Compares, judges and gives out. `judgement` is what the runs by themselves prove.
    pub fn answer(
        &self,
        command: &str,
        subjects: &Subjects<'_>,
        measured: &[Measured],
        mut judgement: Judgement,
        usual: Figure,
    ) -> Result<ExitCode> {
        let primary = self.figures().next().unwrap_or(usual);
        if measured.iter().all(|measured| measured.figure != primary) {
            return Err(lacks(primary));
        }
        let comparisons = compare(measured, primary, self.margin, self.seed);
        let bounds = self.bounds(&comparisons)?;
        judge(&bounds, &mut judgement);
        let Subjects { a, b, manner, blocks, bad } = subjects;
        let about = about_now();
        let shown;
        if self.json {
            let figures: Vec<_> = comparisons.iter().map(Comparison::json).collect();
            let object = serde_json::json!({
                "a": a,
                "b": b,
                "blocks": blocks,
                "invalid_runs": bad.0,
                "failed_runs": bad.1,
                "verdict": judgement.verdict,
                "reasons": judgement.reasons,
                "notes": judgement.notes,
                "figures": figures,
                "about": about,
            });
            shown = show(&format!("{object}\n"));
            for reason in &judgement.reasons {
                complain(&format!("tidegate bench: {}: {reason}\n", judgement.verdict));
            }
        } else {
            shown = show(&format!("{}{}", screen(a, b, manner, &comparisons), show_judgement(&judgement)));
        }
        let html = || Ok(compare_page(a, b, manner, &about, &comparisons, &judgement).into_bytes());
        all_kept([
            write(self.html.as_deref(), html),
            write(self.junit.as_deref(), || Ok(junit(command, &bounds).into_bytes())),
        ])
        .and(shown)?;
        Ok(ExitCode::from(judgement.verdict.exit_code()))
    }

    /// Each bound with the comparison that it is of.
    fn bounds<'a>(&self, comparisons: &'a [Comparison]) -> Result<Vec<(Bound, &'a Comparison)>> {
        let with = |bound: &Bound| {
            let seen = comparisons.iter().find(|comparison| comparison.figure == bound.figure);
            seen.map(|seen| (*bound, seen)).ok_or_else(|| lacks(bound.figure))
        };
        self.worse.iter().map(with).collect()
    }
}

/// A figure that is asked for and was not measured: of commands all but their seconds, of servers elsewhere their processors.
pub fn lacks(figure: Figure) -> anyhow::Error {
    wrong(format!("these runs have no {figure}"))
}

/// A broken bound is a FAIL; where one cannot be judged nothing is proven, which is INVALID.
fn judge(bounds: &[(Bound, &Comparison)], judgement: &mut Judgement) {
    for (bound, seen) in bounds {
        let verdict = match bound.judge(seen) {
            Held::Broken => Verdict::Fail,
            Held::Unknown => Verdict::Invalid,
            Held::Kept | Held::Unproven => {
                judgement.notes.push(bound.sentence(seen));
                if judgement.verdict == Verdict::Measured {
                    judgement.verdict = Verdict::Pass;
                }
                continue;
            }
        };
        judgement.reasons.push(bound.sentence(seen));
        judgement.verdict = Verdict::worst([judgement.verdict, verdict].into_iter());
    }
}
