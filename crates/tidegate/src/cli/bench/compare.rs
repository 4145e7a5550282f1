//! `tidegate bench compare`: two targets, or two commands, in ABBA blocks.

use super::super::complain;
use super::load::{Demands, Generator, Intensity, Subject, field, url};
use super::output::{RunOptions, stop_on_signals};
use super::question::{Question, Subjects, lacks};
use super::{usage, wrong};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use tidegate_bench::compare::{Figure, LEAST_BLOCKS, Measured, Side, order};
use tidegate_bench::host;
use tidegate_bench::plan::Plan;
use tidegate_bench::report::Report;
use tidegate_bench::run::Stop;
use tidegate_bench::statistics::{Block, warmup_length};
use tidegate_bench::verdict::{Judgement, Verdict};

/// Compares two targets, or two commands, and says whether a difference is proven.
///
/// Runs alternate in blocks of four, ABBA or BAAB by lot, so that a drift of the machine favours neither. The
/// sample is the run, not the request. One figure is the question (--primary), the others are asked beside it. Two
/// differ where the 95 % interval of their ratio excludes 1 (ranks within the blocks) and the difference is larger than
/// each side shows against itself (the noise floor); they are the same where the 90 % interval lies within --margin;
/// else the runs cannot tell, and it says so. A percentile is compared where a hundred answers of each run lie beyond it.
/// The warm-up of each run is cut by MSER-5.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench compare -c 64 -t 5s http://127.0.0.1:8080/1k http://127.0.0.1:8081/1k
  tidegate bench compare --blocks 10 --rate 5000 URL-A URL-B
  tidegate bench compare --command 'gzip -k9f big' --command 'zstd -kf big'
  tidegate bench compare --worse p99=10% --junit gate.xml URL-BEFORE URL-AFTER
  tidegate bench compare URL URL          A against A: what this machine calls a difference

Exit codes: 0 MEASURED or PASS, 97 a file could not be written, 98 INVALID (a run could not be trusted), 99 FAIL (a bound is broken, or a run missed
what it had to reach), 1 no load could be put on, 2 the arguments are wrong")]
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
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(i64::from(LEAST_BLOCKS)..=1000))]
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
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    conduct: RunOptions,
}

/// Figures of one run.
struct Run {
    figures: Vec<(Figure, f64)>,
    answers: u64,
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
    'blocks: for sides in order(arguments.blocks, arguments.question.seed) {
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
            // Nobody waits for the last run to hear of it.
            let has = |wanted: &Figure| run.figures.iter().any(|(figure, _)| figure == wanted);
            if let Some(figure) = arguments.question.figures().find(|figure| !has(figure)) {
                return Err(lacks(figure));
            }
            if !arguments.question.json && !arguments.conduct.quiet {
                let shown: Vec<String> =
                    run.figures.iter().map(|(figure, value)| format!("{figure} {value:.6}")).collect();
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
    let all = || runs.iter().flatten().map(|(_, run)| run);
    let answers = all().map(|run| run.answers).min().unwrap_or(0);
    let figures = all().next().map_or(&[][..], |run| &run.figures);
    // What one run alone could not measure is not compared.
    let is_everywhere =
        |figure: Figure| all().all(|run| run.figures.iter().any(|(other, _)| *other == figure));
    let measured: Vec<Measured> = figures
        .iter()
        .filter(|(figure, _)| is_everywhere(*figure))
        .map(|(figure, _)| Measured {
            figure: *figure,
            blocks: runs.iter().map(|block| values(block, *figure)).collect(),
            answers,
        })
        .collect();
    let count_of_runs = all().count() / 2;
    let subjects = Subjects {
        a,
        b,
        manner: format!("{count_of_runs} runs of each, in ABBA blocks by lot"),
        blocks: runs.len(),
        bad: (count(runs, Verdict::Invalid), count(runs, Verdict::Fail)),
    };
    let usual = if arguments.urls.is_empty() {
        Figure::Seconds
    } else if arguments.intensity.rate.is_some() {
        Figure::MEDIAN
    } else {
        Figure::Rate
    };
    arguments.question.answer("compare", &subjects, &measured, judgement(runs), usual)
}

fn count(runs: &[Vec<(Side, Run)>], verdict: Verdict) -> usize {
    runs.iter().flatten().filter(|(_, run)| run.verdict == verdict).count()
}

/// The worst verdict of a run, and how many runs had it.
fn judgement(runs: &[Vec<(Side, Run)>]) -> Judgement {
    let all = runs.iter().flatten();
    let verdict = Verdict::worst(all.clone().map(|(_, run)| run.verdict));
    let bad_of =
        |wanted: Side| all.clone().filter(|(side, run)| *side == wanted && run.verdict == verdict).count();
    let first = all.clone().find(|(_, run)| run.verdict == verdict);
    let first =
        first.and_then(|(side, run)| Some((if *side == Side::A { "A" } else { "B" }, run.reason.clone()?)));
    let (bad, of) = (count(runs, verdict), all.clone().count());
    let (of_a, of_b) = (bad_of(Side::A), bad_of(Side::B));
    let why = first.map_or_else(String::new, |(side, first)| {
        format!(" ({of_a} of A, {of_b} of B); the first, of {side}: {first}")
    });
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
    let subject =
        Subject { fields: arguments.fields.clone(), ..Subject::of_url(url, arguments.question.seed) };
    let (_, mix) = subject.mix(!arguments.intensity.manner.no_keepalive)?;
    let mut plan = Plan::new(mix);
    plan.seed = arguments.question.seed;
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
    let mut figures = vec![(Figure::Rate, report.rate())];
    let percentiles = [Figure::MEDIAN, Figure::P99].into_iter().chain(arguments.question.figures());
    for figure in percentiles {
        if let Some(percent) = figure.percent().filter(|_| figures.iter().all(|(other, _)| *other != figure))
        {
            figures.push((figure, report.totals.response.percentile(percent).as_secs_f64()));
        }
    }
    if let Some(cpu) = server_cpu.filter(|cpu| *cpu > 0.0) {
        figures.push((Figure::ServerCpu, cpu / answered.max(1) as f64));
    }
    let Judgement { verdict, reasons, .. } = report.judgement;
    Ok(Run { figures, answers: report.totals.counts.answered, verdict, reason: reasons.into_iter().next() })
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
    let figures = vec![(Figure::Seconds, seconds)];
    Ok(Run { figures, answers: 1, verdict: Verdict::Measured, reason: None })
}
