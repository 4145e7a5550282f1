//! `tidegate bench peak`: the highest rate that holds.

use super::super::{complain, print};
use super::load::{ArrivalsName, Demands, Generator, Manner, Subject};
use super::output::{Conduct, stop_on_signals};
use super::{prepare, usage};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::peak::{Peak, Search};
use tidegate_bench::plan::Load;
use tidegate_bench::quantity::{self, show_duration};
use tidegate_bench::report::Report;
use tidegate_bench::verdict::{Target, Verdict};

/// Finds the highest rate at which every target is met.
///
/// The rate doubles until a run fails, then the gap is halved until it is narrower than --accuracy, then the
/// answer is confirmed by further runs. Where the generator itself is the limit the verdict is INVALID.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench peak --target p99=20ms --target errors=0 http://127.0.0.1:8080/
  tidegate bench peak --from 500 --to 50k --accuracy 2% --confirm 5 -t 20s URL

Exit codes: 0 found, 98 INVALID, 99 no rate passes, 1 no load could be put on, 2 the arguments are wrong")]
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
    manner: Manner,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    generator: Generator,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conduct: Conduct,
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
    plan.drain = Duration::from_secs(2);
    let stop = stop_on_signals()?;
    let mut failure = None;
    let mut mistrust = None;
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
        // Requests that the schedule left behind are a miss, whatever the targets say.
        let report = Report::new(&name, &plan, outcome, &targets);
        let verdict = report.judgement.verdict;
        if verdict == Verdict::Invalid {
            mistrust = report.judgement.reasons.first().cloned();
        }
        let falls_behind =
            verdict == Verdict::Pass && report.rate() < rate * 0.95 && rate * plan_seconds(arguments) > 100.0;
        let verdict = if falls_behind { Verdict::Fail } else { verdict };
        if !arguments.conduct.quiet && !arguments.json {
            let why = report.judgement.reasons.first().map_or(String::new(), |reason| format!("  {reason}"));
            complain(&format!(
                "{rate:>12.2}/s  p99 {}  {verdict}{why}\n",
                show_duration(report.totals.response.percentile(99.0))
            ));
        }
        Some(verdict)
    });
    conclude(arguments, &peak, mistrust.as_deref())?;
    if let Some(error) = failure {
        return Err(error.context("the search ended early"));
    }
    let verdict = match peak.rate {
        _ if peak.is_invalid => Verdict::Invalid,
        Some(_) => Verdict::Pass,
        None => Verdict::Fail,
    };
    Ok(ExitCode::from(verdict.exit_code()))
}

fn plan_seconds(arguments: &Arguments) -> f64 {
    arguments.time.as_secs_f64()
}

fn conclude(arguments: &Arguments, peak: &Peak, mistrust: Option<&str>) -> Result<()> {
    if arguments.json {
        let object = serde_json::json!({
            "rate": peak.rate,
            "failed_at": peak.failed_at,
            "accuracy": arguments.accuracy,
            "confidence": peak.confidence(),
            "passed": peak.passed,
            "invalid": peak.is_invalid,
            "reason": mistrust.filter(|_| peak.is_invalid),
            "trials": peak.trials,
        });
        print(&format!("{object}\n"))?;
        return Ok(());
    }
    let text = match (peak.rate, peak.failed_at) {
        (None, _) if peak.is_invalid => "No rate could be measured.\n".to_owned(),
        (None, _) => "No rate met the targets.\n".to_owned(),
        (Some(rate), None) => format!("Peak: {rate:.2} requests/s, the upper end of the search (--to).\n"),
        (Some(rate), Some(failed)) => format!(
            "Peak: {rate:.2} requests/s ({} of {} runs there passed; confidence {:.1} %); {failed:.2} failed.\n",
            peak.passed,
            peak.passed,
            peak.confidence() * 100.0
        ),
    };
    print(&text)?;
    if peak.is_invalid {
        let reason = mistrust.unwrap_or("the generator could not keep up");
        print(&format!(
            "Verdict: INVALID\n  a run could not be trusted, so the server may hold more: {reason}.\n"
        ))?;
    }
    Ok(())
}
