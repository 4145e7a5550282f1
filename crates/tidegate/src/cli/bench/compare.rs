//! `tidegate bench compare`: two targets, or two commands, in ABBA blocks.

use super::super::{complain, print};
use super::load::{Demands, Generator, Intensity, Subject, field, url};
use super::output::{RunOptions, about_now, stop_on_signals, write};
use super::{usage, wrong};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use tidegate_bench::compare::{Comparison, Figure, Side, order, screen};
use tidegate_bench::host;
use tidegate_bench::plan::Plan;
use tidegate_bench::report::{Report, compare_page, show_judgement};
use tidegate_bench::run::Stop;
use tidegate_bench::statistics::{Block, warmup_length};
use tidegate_bench::verdict::{Judgement, Verdict};

/// Compares two targets, or two commands, and says whether a difference is proven.
///
/// Runs alternate in blocks of four, ABBA or BAAB by lot, so that a drift of the machine favours neither. The
/// sample is the run, not the request: the ratio of the medians has a bootstrap interval over whole blocks, the
/// Mann-Whitney test must agree, and the difference must be larger than each side shows against itself (the
/// noise floor). The warm-up of each run is cut by MSER-5.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench compare -c 64 -t 5s http://127.0.0.1:8080/1k http://127.0.0.1:8081/1k
  tidegate bench compare --blocks 10 --rate 5000 URL-A URL-B
  tidegate bench compare --command 'gzip -k9f big' --command 'zstd -kf big'
  tidegate bench compare URL URL          A against A: what this machine calls a difference

Exit codes: 0 MEASURED or PASS, 98 INVALID (a run could not be trusted), 99 FAIL (a run missed what it had to reach),
1 no load could be put on, 2 the arguments are wrong")]
pub struct Arguments {
    /// The two targets
    #[arg(
        value_name = "URL",
        value_parser = url,
        conflicts_with = "commands",
        num_args = 2,
        required_unless_present = "commands"
    )]
    urls: Vec<String>,
    /// One of two commands, run by the shell; their time is compared
    #[arg(long = "command", value_name = "COMMAND")]
    commands: Vec<String>,
    /// Blocks of four runs
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    blocks: u32,
    #[command(flatten)]
    intensity: Intensity,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    generator: Generator,
    /// A field of every request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// For whatever is drawn by lot
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    conduct: RunOptions,
}

/// Figures of one run.
struct Run {
    figures: Vec<(Figure, f64)>,
    verdict: Verdict,
    /// Why, where it is a bad one.
    reason: Option<String>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(sentence) = arguments.intensity.manner.objection() {
        return Ok(usage(sentence));
    }
    let stop = stop_on_signals()?;
    let (a, b) = match (arguments.urls.as_slice(), arguments.commands.as_slice()) {
        ([a, b], []) | ([], [a, b]) => (a.clone(), b.clone()),
        _ => return Ok(usage("compare takes two URLs or two --command; see --help")),
    };
    let plans =
        if arguments.urls.is_empty() { None } else { Some((plan(arguments, &a)?, plan(arguments, &b)?)) };
    let mut runs: Vec<Vec<(Side, Run)>> = Vec::new();
    'blocks: for sides in order(arguments.blocks, arguments.seed) {
        let mut block = Vec::new();
        for side in sides {
            let run = match (&plans, side) {
                (Some((plan, _)), Side::A) | (Some((_, plan)), Side::B) => load(arguments, plan, &stop)?,
                (None, Side::A) => time(&a)?,
                (None, Side::B) => time(&b)?,
            };
            if stop.is_stopped() {
                break 'blocks;
            }
            if !arguments.json && !arguments.conduct.quiet {
                let shown: Vec<String> = run
                    .figures
                    .iter()
                    .map(|(figure, value)| format!("{} {value:.6}", figure.name()))
                    .collect();
                complain(&format!("block {} {side:?}  {}\n", runs.len() + 1, shown.join("  ")));
            }
            block.push((side, run));
        }
        runs.push(block);
    }
    if runs.is_empty() {
        bail!("interrupted before a block was complete; there is nothing to compare");
    }
    conclude(arguments, &a, &b, &runs)
}

fn conclude(arguments: &Arguments, a: &str, b: &str, runs: &[Vec<(Side, Run)>]) -> Result<ExitCode> {
    let figures = runs.first().and_then(|block| block.first()).map_or(&[][..], |(_, run)| &run.figures);
    let comparisons: Vec<Comparison> = figures
        .iter()
        .map(|(figure, _)| {
            let blocks: Vec<Block> = runs.iter().map(|block| values(block, *figure)).collect();
            Comparison::new(*figure, &blocks, arguments.seed)
        })
        .collect();
    let judgement = judgement(runs);
    let about = about_now();
    if arguments.json {
        let figures: Vec<_> = comparisons.iter().map(Comparison::json).collect();
        let object = serde_json::json!({
            "a": a,
            "b": b,
            "blocks": runs.len(),
            "invalid_runs": count(runs, Verdict::Invalid),
            "failed_runs": count(runs, Verdict::Fail),
            "verdict": judgement.verdict,
            "reasons": judgement.reasons,
            "figures": figures,
            "about": about,
        });
        print(&format!("{object}\n"))?;
    } else {
        print(&format!("{}{}", screen(a, b, &comparisons), show_judgement(&judgement)))?;
    }
    write(arguments.html.as_deref(), || {
        Ok(compare_page(a, b, &about, &comparisons, &judgement).into_bytes())
    })?;
    if arguments.json {
        for reason in &judgement.reasons {
            complain(&format!("tidegate bench: {}: {reason}\n", judgement.verdict));
        }
    }
    Ok(ExitCode::from(judgement.verdict.exit_code()))
}

fn count(runs: &[Vec<(Side, Run)>], verdict: Verdict) -> usize {
    runs.iter().flatten().filter(|(_, run)| run.verdict == verdict).count()
}

/// The worst verdict of a run, and how many runs had it.
fn judgement(runs: &[Vec<(Side, Run)>]) -> Judgement {
    let all = runs.iter().flatten();
    let verdict = Verdict::worst(all.clone().map(|(_, run)| run.verdict));
    let first = all.clone().find(|(_, run)| run.verdict == verdict).and_then(|(_, run)| run.reason.clone());
    let (bad, of) = (count(runs, verdict), all.count());
    let why = first.map_or_else(String::new, |first| format!("; the first: {first}"));
    let reasons = match verdict {
        Verdict::Invalid => vec![format!("{bad} of {of} runs could not be trusted{why}")],
        Verdict::Fail => vec![format!("{bad} of {of} runs missed what they had to reach{why}")],
        Verdict::Measured | Verdict::Pass => Vec::new(),
    };
    Judgement { verdict, reasons, notes: Vec::new() }
}

fn values(block: &[(Side, Run)], figure: Figure) -> Block {
    let of = |wanted: Side| {
        let runs = block.iter().filter(|(side, _)| *side == wanted);
        runs.flat_map(|(_, run)| {
            run.figures.iter().filter(|(other, _)| *other == figure).map(|(_, value)| *value)
        })
        .collect()
    };
    Block { a: of(Side::A), b: of(Side::B) }
}

fn plan(arguments: &Arguments, url: &str) -> Result<Plan> {
    let subject = Subject { fields: arguments.fields.clone(), ..Subject::of_url(url, arguments.seed) };
    let (_, mix) = subject.mix(!arguments.intensity.manner.no_keepalive)?;
    let mut plan = Plan::new(mix);
    plan.seed = arguments.seed;
    plan.expectation = arguments.demands.expectation()?;
    plan.min_bitrate = arguments.demands.min_bitrate;
    arguments.intensity.apply(&mut plan)?;
    if arguments.generator.apply(&mut plan)? > 1 {
        return Err(wrong("compare runs in one process; use fewer connections"));
    }
    Ok(plan)
}

fn load(arguments: &Arguments, plan: &Plan, stop: &Stop) -> Result<Run> {
    let server = host::listening_at(plan);
    let before = host::cpu_seconds(&server);
    let (mut outcome, _) = arguments.conduct.run_here(plan.clone(), stop)?;
    let server_cpu = host::cpu_seconds(&server).zip(before).map(|(now, then)| now - then);
    let answered = outcome.totals().counts.answered;
    let series: Vec<f64> = outcome
        .intervals
        .iter()
        .map(|interval| interval.counts.response_sum as f64 / interval.counts.answered.max(1) as f64)
        .collect();
    outcome.cut(warmup_length(&series));
    let targets = arguments.demands.targets()?;
    let report = Report::new("", plan, outcome, &targets);
    let seconds = |rank| report.totals.response.percentile(rank).as_secs_f64();
    let mut figures =
        vec![(Figure::Rate, report.rate()), (Figure::Median, seconds(50.0)), (Figure::P99, seconds(99.0))];
    if let Some(cpu) = server_cpu.filter(|cpu| *cpu > 0.0) {
        figures.push((Figure::ServerCpu, cpu / answered.max(1) as f64));
    }
    let Judgement { verdict, reasons, .. } = report.judgement;
    Ok(Run { figures, verdict, reason: reasons.into_iter().next() })
}

fn time(command: &str) -> Result<Run> {
    let start = Instant::now();
    let status = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start sh")?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        bail!("`{command}` failed ({status}); a command that fails has no time");
    }
    Ok(Run { figures: vec![(Figure::Seconds, seconds)], verdict: Verdict::Measured, reason: None })
}
