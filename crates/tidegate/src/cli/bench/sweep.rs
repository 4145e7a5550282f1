//! `tidegate bench sweep`: runs at rising rates.

use super::super::complain;
use super::load::{ArrivalsName, ConnectionOptions, Demands, Generator, Subject};
use super::output::{RunOptions, about, all_kept, interrupted, show, stop_on_signals, write};
use super::{prepare, usage};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::plan::Load;
use tidegate_bench::quantity::{self, show_duration};
use tidegate_bench::report::{self, Report};
use tidegate_bench::sweep::{self, Step};
use tidegate_bench::verdict::Judgement;

/// Makes runs at rising rates and shows where the server stops to follow, as autobench does with httperf.
///
/// Each run is an open loop at one rate. The table has what was demanded and what was achieved, the answers per
/// second in the worst, the mean and the best interval, and the errors by kind.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench sweep --rate 100:20000:x1.25 http://127.0.0.1:8080/
  tidegate bench sweep --rate 20:200:+20 -t 30s --svg rates.svg --csv rates.csv URL

Exit codes: 0 PASS, 97 a file could not be written, 98 INVALID, 99 FAIL (one of the runs), 1 no load could be put on, 2 the arguments are wrong")]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// Lowest rate, highest rate, step: `100:20000:x1.25` multiplies, `20:200:+20` adds
    #[arg(long, value_name = "LOW:HIGH:STEP", value_parser = rates)]
    rate: Rates,
    /// How scheduled requests follow each other
    #[arg(long, value_enum, default_value = "constant")]
    arrivals: ArrivalsName,
    /// Connections at once
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Time of each run
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = quantity::duration)]
    time: Duration,
    /// Time before each run whose requests are not counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::duration)]
    warmup: Duration,
    /// Go on after a run whose errors or delay show that the server does not follow any more
    #[arg(long)]
    to_the_end: bool,
    #[command(flatten)]
    manner: ConnectionOptions,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    generator: Generator,
    /// One JSON array on standard output in place of the table
    #[arg(long)]
    json: bool,
    /// Write the table, comma-separated
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the graph
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    conduct: RunOptions,
}

#[derive(Clone)]
struct Rates(Vec<f64>);

fn rates(text: &str) -> Result<Rates, sweep::RatesSyntax> {
    sweep::rates(text).map(Rates)
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(sentence) = arguments.manner.objection() {
        return Ok(usage(sentence));
    }
    let targets = arguments.demands.targets()?;
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
    let mut steps: Vec<Step> = Vec::new();
    let mut failure = None;
    for rate in &arguments.rate.0 {
        plan.load = Load::Open { rate: *rate, arrivals: arguments.arrivals.kind() };
        let (outcome, host) = match arguments.conduct.run_here(plan.clone(), &stop) {
            Ok(done) => done,
            // What was measured before is kept.
            Err(error) if !steps.is_empty() => {
                failure = Some(error);
                break;
            }
            Err(error) => return Err(error),
        };
        let mut report = Report::new(&name, &plan, outcome, &targets);
        report.host = host;
        report.about = about(report.outcome.started);
        let step = Step { demanded: *rate, report };
        if !arguments.json && !arguments.conduct.quiet {
            let totals = &step.report.totals;
            complain(&format!(
                "{rate:>10.0}/s  {:.1} answers/s  p99 {}  {:.2} % available  {}\n",
                step.report.rate(),
                show_duration(totals.response.percentile(99.0)),
                totals.counts.availability(),
                step.report.judgement.verdict
            ));
        }
        let has_fallen_behind =
            step.report.rate() < rate * 0.5 || step.report.totals.counts.availability() < 50.0;
        steps.push(step);
        if stop.is_stopped() || (has_fallen_behind && !arguments.to_the_end) {
            break;
        }
    }
    conclude(arguments, &name, &steps)?;
    match failure {
        Some(error) => Err(error.context("the sweep ended early")),
        None if stop.is_stopped() => Ok(interrupted()),
        None => Ok(ExitCode::from(sweep::verdict(&steps).exit_code())),
    }
}

fn conclude(arguments: &Arguments, name: &str, steps: &[Step]) -> Result<()> {
    let judgement = judgement(steps);
    let about = about(steps.first().map_or(0.0, |step| step.report.outcome.started));
    let shown = if arguments.json {
        show(&format!("{}\n", sweep::json(steps)))
    } else {
        show(&format!(
            "{}\n{}\n{}",
            sweep::screen(steps),
            sweep::graph(steps),
            report::show_judgement(&judgement)
        ))
    };
    let load = &sweep::load(steps);
    let svg = || Ok(report::rate_chart(steps).svg().unwrap_or_default().into_bytes());
    let html = || Ok(report::sweep_page(name, load, &about, steps, &judgement).into_bytes());
    all_kept([
        write(arguments.csv.as_deref(), || Ok(sweep::csv(steps).into_bytes())),
        write(arguments.svg.as_deref(), svg),
        write(arguments.html.as_deref(), html),
    ])
    .and(shown)
}

fn judgement(steps: &[Step]) -> Judgement {
    let reasons = steps.iter().flat_map(|step| {
        let judgement = &step.report.judgement;
        judgement.reasons.iter().map(|reason| format!("at {:.0}/s: {reason}", step.demanded))
    });
    Judgement { verdict: sweep::verdict(steps), reasons: reasons.collect(), notes: Vec::new() }
}
