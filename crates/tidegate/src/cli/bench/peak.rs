//! `tidegate bench peak`: the highest rate that holds.

use super::super::complain;
use super::load::{ArrivalsName, ConnectionOptions, Demands, Generator, Subject};
use super::output::{RunOptions, about, all_kept, interrupted, now, show, stop_on_signals, write};
use super::runs::{KeepOptions, tell};
use super::{prepare, usage};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::peak::{Peak, Search};
use tidegate_bench::plan::Load;
use tidegate_bench::quantity::{self, show_duration};
use tidegate_bench::report::{Report, peak_page, show_judgement};
use tidegate_bench::runs::keep_search;
use tidegate_bench::sweep::{self, Step};
use tidegate_bench::verdict::{Judgement, Target, Verdict};

/// Finds the highest rate at which every target is met.
///
/// The rate doubles until a run fails, then the gap is halved until it is narrower than --accuracy, then the
/// answer is confirmed by further runs. Without a --target each run has to keep p99=100ms and availability=99.9.
/// Where the generator itself is the limit the verdict is INVALID.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench peak --target p99=20ms --target errors=0 http://127.0.0.1:8080/
  tidegate bench peak --from 500 --to 50k --accuracy 2% --confirm 5 -t 20s URL

Exit codes: 0 found, 97 what was measured could not be written, 98 INVALID, 99 no rate passes, 1 no load could be put on,
2 the arguments are wrong, 130 interrupted")]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// The first rate
    #[arg(long, value_name = "RATE", default_value = "100", value_parser = quantity::rate)]
    from: f64,
    /// Never above this rate
    #[arg(long, value_name = "RATE", default_value = "1M", value_parser = quantity::rate)]
    to: f64,
    /// The answer may be so much below the truth
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = quantity::share)]
    accuracy: f64,
    /// Runs at the answer that must all pass
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    confirm: u32,
    /// How scheduled requests follow each other
    #[arg(long, value_enum, default_value = "poisson")]
    arrivals: ArrivalsName,
    /// Connections at once
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Time of each run
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = quantity::duration)]
    time: Duration,
    /// Time before each run whose requests are not counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::duration)]
    warmup: Duration,
    #[command(flatten)]
    manner: ConnectionOptions,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    generator: Generator,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    keeping: KeepOptions,
    #[command(flatten)]
    conduct: RunOptions,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(sentence) = arguments.manner.objection() {
        return Ok(usage(sentence));
    }
    let mut targets = arguments.demands.targets()?;
    if targets.is_empty() {
        // Without any, every rate would pass.
        targets = vec![Target::Percentile(99.0, Duration::from_millis(100)), Target::Availability(99.9)];
        complain("tidegate bench: no --target; taking p99=100ms and availability=99.9\n");
    }
    let (name, mut plan) = prepare(
        &arguments.subject,
        &arguments.demands,
        &arguments.manner,
        &arguments.generator,
        arguments.connections,
    )?;
    plan.time = Some(arguments.time);
    plan.warmup = arguments.warmup;
    let stop = stop_on_signals()?;
    let mut failure = None;
    let mut mistrust = None;
    let mut steps = Vec::new();
    let search = Search {
        from: arguments.from,
        to: arguments.to,
        accuracy: arguments.accuracy.max(0.001),
        confirmations: arguments.confirm,
    };
    let peak = search.find(|rate| {
        if stop.is_stopped() {
            return None;
        }
        plan.load = Load::Open { rate, arrivals: arguments.arrivals.kind() };
        let (outcome, _) = match arguments.conduct.run_here(plan.clone(), &stop) {
            Ok(done) => done,
            Err(error) => {
                failure = Some(error);
                return None;
            }
        };
        let report = Report::new(&name, &plan, outcome, &targets);
        let verdict = report.judgement.verdict;
        if verdict == Verdict::Invalid {
            mistrust = report.judgement.reasons.first().cloned();
        }
        if !arguments.conduct.quiet && !arguments.json {
            let why = report.judgement.reasons.first().map_or(String::new(), |reason| format!("  {reason}"));
            complain(&format!(
                "{rate:>12.2}/s  p99 {}  {verdict}{why}\n",
                show_duration(report.totals.response.percentile(99.0))
            ));
        }
        steps.push(Step { demanded: rate, report });
        Some(verdict)
    });
    let verdict = match peak.rate {
        _ if peak.is_invalid => Verdict::Invalid,
        Some(_) => Verdict::Pass,
        None => Verdict::Fail,
    };
    conclude(arguments, &name, &peak, verdict, mistrust.as_deref(), &steps)?;
    if let Some(error) = failure {
        return Err(error.context("the search ended early"));
    }
    if stop.is_stopped() {
        return Ok(interrupted());
    }
    Ok(ExitCode::from(verdict.exit_code()))
}

fn conclude(
    arguments: &Arguments,
    name: &str,
    peak: &Peak,
    verdict: Verdict,
    mistrust: Option<&str>,
    steps: &[Step],
) -> Result<()> {
    let about = about(steps.first().map_or(0.0, |step| step.report.outcome.started));
    let text = match (peak.rate, peak.failed_at) {
        (None, _) if peak.is_invalid => "No rate could be measured.".to_owned(),
        (None, _) => "No rate met the targets.".to_owned(),
        (Some(rate), None) => format!("Peak: {rate:.2} requests/s, the upper end of the search (--to)."),
        (Some(rate), Some(failed)) => format!(
            "Peak: {rate:.2} requests/s ({} of {} runs there passed; confidence {:.1} %); {failed:.2} failed.",
            peak.passed,
            peak.passed,
            peak.confidence() * 100.0
        ),
    };
    let reasons = if peak.is_invalid {
        let reason = mistrust.unwrap_or("the generator could not keep up");
        vec![format!("a run could not be trusted, so the server may hold more: {reason}")]
    } else {
        Vec::new()
    };
    let judgement = Judgement { verdict, reasons, notes: Vec::new() };
    let object = serde_json::json!({
        "subject": name,
        "load": sweep::load(steps),
        "rate": peak.rate,
        "failed_at": peak.failed_at,
        "accuracy": arguments.accuracy,
        "confidence": peak.confidence(),
        "passed": peak.passed,
        "invalid": peak.is_invalid,
        "verdict": verdict,
        "reason": mistrust.filter(|_| peak.is_invalid),
        "reasons": judgement.reasons,
        "trials": peak.trials,
        "label": arguments.keeping.label,
        "about": about,
    });
    let screen = format!("{text}\n{}", show_judgement(&judgement));
    let shown = if arguments.json { show(&format!("{object}\n")) } else { show(&screen) };
    let started = steps.first().map_or_else(now, |step| step.report.outcome.started);
    let keep = || {
        if let Some(folder) = arguments.keeping.place(name, started)? {
            keep_search(&folder, &object, &about, &screen)?;
            tell(&folder, arguments.conduct.quiet);
        }
        Ok(())
    };
    let html = || Ok(peak_page(name, &sweep::load(steps), &about, &text, steps, &judgement).into_bytes());
    all_kept([keep(), write(arguments.html.as_deref(), html)]).and(shown)
}
