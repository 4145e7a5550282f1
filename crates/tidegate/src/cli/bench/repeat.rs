//! Runs that follow each other, and their mean: `hit --runs 6 --trim`.

use super::super::complain;
use super::output::{NotKept, Output, about_now, interrupted, show};
use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use tidegate_bench::plan::Plan;
use tidegate_bench::report::{self, Report, show_judgement, table};
use tidegate_bench::run::Stop;
use tidegate_bench::verdict::{Judgement, Target, Verdict};

/// How often, and what counts.
#[derive(Args, Clone)]
pub struct Repeat {
    /// Runs one behind the other, and their mean
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Leave the run of the highest and the one of the lowest rate out of the mean
    #[arg(long, requires = "runs")]
    pub trim: bool,
}

impl Repeat {
    /// What is asked for in vain, in a sentence.
    pub fn objection(&self, output: &Output, processes: u32) -> Option<String> {
        let Output { csv, hlog, html, .. } = output;
        let has_file = csv.is_some() || hlog.is_some() || html.is_some() || output.keeping.out.is_some();
        match self {
            Repeat { runs: 1 | 2, trim: true } => {
                Some("--trim leaves two runs out; use --runs 3 or more".into())
            }
            Repeat { runs: 1, .. } => None,
            _ if has_file => Some("--csv, --hlog, --html and --out are of one run; leave out --runs".into()),
            _ if processes > 1 => Some("--runs are made in one process; use fewer connections".into()),
            _ => None,
        }
    }

    /// Makes the runs and gives them out. The worst of them decides the verdict.
    pub fn carry_out(
        &self,
        name: &str,
        plan: &Plan,
        output: &Output,
        targets: &[Target],
        stop: &Stop,
    ) -> Result<ExitCode> {
        output.keeping.check()?;
        let (mut reports, mut kept): (Vec<Report>, _) = (Vec::new(), Ok(()));
        while reports.len() < self.runs as usize {
            let (outcome, host) = output.conduct.run_here(plan.clone(), stop)?;
            let mut report = Report::new(name, plan, outcome, targets);
            report.host = host;
            report.about = about_now();
            if stop.is_stopped() {
                break;
            }
            if !output.json && !output.conduct.quiet {
                complain(&format!("run {}  {:.2}/s\n", reports.len() + 1, report.rate()));
            }
            kept = kept.and(output.keep(&report));
            reports.push(report);
        }
        if reports.len() < if self.trim { 3 } else { 1 } {
            complain("tidegate bench: interrupted before there were runs enough for a mean\n");
            return Ok(interrupted());
        }
        let shown = self.show(name, &reports, output);
        kept.context(NotKept::InFiles).and(shown)?;
        let verdict = Verdict::worst(reports.iter().map(|report| report.judgement.verdict));
        Ok(if stop.is_stopped() { interrupted() } else { ExitCode::from(verdict.exit_code()) })
    }

    fn show(&self, name: &str, reports: &[Report], output: &Output) -> Result<()> {
        let counted = self.counted(reports);
        let mean = |of: &dyn Fn(&Report) -> f64| {
            counted.iter().map(|report| of(report)).sum::<f64>() / counted.len() as f64
        };
        let seconds = |report: &Report, rank: f64| report.totals.response.percentile(rank).as_secs_f64();
        let (rate, p50, p99) = (
            mean(&Report::rate),
            mean(&|report| seconds(report, 50.0)),
            mean(&|report| seconds(report, 99.0)),
        );
        let availability = mean(&|report| report.totals.counts.availability());
        let judgement = judgement(reports);
        if output.json {
            let object = json!({
                "runs": reports.iter().map(report::json).collect::<Vec<_>>(),
                "mean": { "runs": counted.len(), "rate": rate, "p50": p50, "p99": p99, "availability": availability },
                "verdict": judgement.verdict,
                "reasons": judgement.reasons,
            });
            return show(&format!("{object}\n"));
        }
        let cells = |name: String, rate: f64, p50: f64, p99: f64, availability: f64| {
            let ms = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
            vec![name, format!("{rate:.2}"), ms(p50), ms(p99), format!("{availability:.2} %")]
        };
        let mut rows = vec![["run", "requests/s", "p50", "p99", "availability"].map(str::to_owned).to_vec()];
        for (number, report) in (1..).zip(reports) {
            let is_out = !counted.iter().any(|counted| std::ptr::eq(*counted, report));
            let name = if is_out { format!("{number} (left out)") } else { number.to_string() };
            let availability = report.totals.counts.availability();
            rows.push(cells(name, report.rate(), seconds(report, 50.0), seconds(report, 99.0), availability));
        }
        rows.push(cells(format!("mean of {}", counted.len()), rate, p50, p99, availability));
        let load = reports.first().map_or("", |report| report.load.as_str());
        show(&format!("{name}\n{load}\n\n{}\n{}", table(&rows), show_judgement(&judgement)))
    }

    /// The runs that the mean is of.
    fn counted<'a>(&self, reports: &'a [Report]) -> Vec<&'a Report> {
        let mut counted: Vec<&Report> = reports.iter().collect();
        if self.trim {
            counted.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
            counted.pop();
            counted.remove(0);
        }
        counted
    }
}

/// The worst, with the reasons of each run that has it.
fn judgement(reports: &[Report]) -> Judgement {
    let verdict = Verdict::worst(reports.iter().map(|report| report.judgement.verdict));
    let bad = (1..).zip(reports).filter(|(_, report)| report.judgement.verdict == verdict);
    let reasons = bad.flat_map(|(number, report)| {
        report.judgement.reasons.iter().map(move |reason| format!("run {number}: {reason}"))
    });
    Judgement { verdict, reasons: reasons.collect(), notes: Vec::new() }
}
