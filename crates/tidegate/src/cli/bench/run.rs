//! `tidegate bench run`: users that walk through an application as a scenario file says.

use super::super::{complain, print};
use super::agents::controller::{AgentOptions, Around};
use super::load::{Generator, TlsManner};
use super::output::{
    NotKept, OF_QUEUE, RunOptions, about, about_now, interrupted, now, show, stop_on_signals,
};
use super::runs::{Keeping, tell};
use super::wrong;
use anyhow::{Context, Result};
use clap::{Args, FromArgMatches};
use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::plan::Plan;
use tidegate_bench::processes::follow_parent;
use tidegate_bench::quantity;
use tidegate_bench::request::{Description, Mix};
use tidegate_bench::run::Ending;
use tidegate_bench::runs::{Keep, row};
use tidegate_bench::scenario::record::Second;
use tidegate_bench::scenario::report::{self, Report};
use tidegate_bench::scenario::{Load, Scenario, estimate, load};
use tidegate_bench::systems::{Conducted, Start, System, SystemError, Watch};
use tidegate_config::{Diagnostic, ProcessEnvironment};

/// Walks users through an application, as a scenario file says, and shows what they saw.
///
/// A scenario says how many users there are, or at what rate they come, and when they come and go, what they do (operations of one or several requests,
/// with forms, cookies, values taken from pages, functions in JavaScript, and what a browser loads with a page), which operation
/// follows which, and how long they wait. What is due in the steady time is measured; response times count from the intended start, and those of an operation that failed to
/// its end. The run is INVALID where the load was not that of the scenario: the mix off by more than 2 points (or 3σ), the mean cycle by
/// more than 5 %, more than 1 % of the visits of a `rate` not begun, an operation without one success.
///
/// Each run is kept in a folder of its own below `./runs` (--runs-folder, $TIDEGATE_RUNS), one that is interrupted as well:
/// `bench ls`, `show`, `diff`, `export` and `serve` read them.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench run shop.kdl                                   a run, on the screen
  tidegate bench run shop.kdl --check                           all that is wrong with the file
  tidegate bench run shop.kdl --plan                            shares, operations per second, memory, without a run
  tidegate bench run shop.kdl --label '8 workers'               what tables and graphs call this run
  tidegate bench run shop.kdl --out before                      into this folder, not into one of all runs
  tidegate bench run shop.kdl --target http://127.0.0.1:8081    another server
  tidegate bench run shop.kdl --users 500 --steady 5m           another load
  tidegate bench run visitors.kdl --rate 80                     another rate, where it has one
  tidegate bench run shop.kdl --agents ssh:user@host1,ssh:user@host2      from other machines, which ssh reaches
  tidegate bench run shop.kdl --agents host1:7400,host2:7400 --keys keys/controller      from agents that are there

The language of scenarios: `tidegate docs scenarios`.

Exit codes:
  0   PASS: every target met; MEASURED: none was named
  1   the load could not be put on, or the scenario has mistakes
  2   the arguments are wrong
  98  INVALID: the load was not that of the scenario, or the generator was at fault
  99  FAIL: a target was missed, operations failed, or the target died
  97  what was measured could not be written whole, to its folder or to standard output, as on a full disk
  130 interrupted; what was measured is shown")]
pub struct Arguments {
    /// The scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only say what is wrong with the file
    #[arg(long, conflicts_with = "plan")]
    check: bool,
    /// Only say what the scenario comes to
    #[arg(long)]
    plan: bool,
    /// The server, in place of the scenario's
    #[arg(long, value_name = "URL", value_parser = super::load::url)]
    target: Option<String>,
    /// Users, in place of the scenario's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    users: Option<u32>,
    /// Visits per second, in place of the scenario's `rate`: `50`, `1.5k`
    #[arg(long, value_name = "RATE", value_parser = quantity::rate, conflicts_with = "users")]
    rate: Option<f64>,
    /// Time to measure, in place of the scenario's
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    steady: Option<Duration>,
    /// For whatever is drawn at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    keeping: Keeping,
    /// One JSON object on standard output in place of the screen
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conduct: RunOptions,
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Local address to connect from; may be repeated, each gives 28,000 ports
    #[arg(long = "source", value_name = "ADDRESS")]
    sources: Vec<IpAddr>,
    /// How long operations that are under way at the end are waited for
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = quantity::duration)]
    grace: Duration,
    /// End when nothing was answered for so long and connects failed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = quantity::duration)]
    give_up: Duration,
    #[command(flatten)]
    tls: TlsManner,
    #[command(flatten)]
    agents: AgentOptions,
    /// The process of the queue that this run belongs to: it ends with it
    #[arg(long = OF_QUEUE, value_name = "PID", hide = true)]
    of_queue: Option<u32>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = &arguments.file;
    let source = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let loaded = load(file, arguments.target.as_deref(), &ProcessEnvironment)
        .with_context(|| format!("cannot read {}", file.display()))?;
    if !loaded.diagnostics.is_empty() {
        complain(&loaded.render(std::io::stderr().is_terminal()));
    }
    let Some(mut scenario) = loaded.scenario else {
        let count = loaded.diagnostics.iter().filter(|found| found.is_error()).count();
        let mistakes = if count == 1 { "1 mistake".to_owned() } else { format!("{count} mistakes") };
        complain(&format!("\ntidegate bench: {} has {mistakes}; nothing was run\n", file.display()));
        return Ok(ExitCode::from(1));
    };
    if arguments.check {
        let warnings = loaded.diagnostics.iter().filter(|found: &&Diagnostic| !found.is_error()).count();
        let word = if warnings == 0 { "in order" } else { "usable" };
        return print(&format!("{} is {word}\n", file.display()));
    }
    scenario.resize(arguments.users, arguments.rate).map_err(|error| {
        wrong(format!(
            "{}: {error}; use {}",
            file.display(),
            if arguments.users.is_some() { "--rate" } else { "--users" }
        ))
    })?;
    scenario.phases.steady = arguments.steady.unwrap_or(scenario.phases.steady);
    if let Load::Users(users) = &scenario.load
        && users.begins(users.count - 1, &scenario.phases) > scenario.phases.ramp_up
    {
        return Err(wrong(
            "the last of so many users would come after the ramp-up; lower --users, or `stagger`",
        ));
    }
    let plan = prepare(arguments, &scenario)?;
    if arguments.plan {
        return print(&estimate(&scenario, plan.threads).screen(&scenario));
    }
    carry_out(arguments, scenario, &plan, &source)
}

/// Looks at options that a queue gives to each of its runs. Gives the first that says where or whether a run is kept, which the queue does
/// itself.
///
/// # Errors
/// They are no options of a run.
pub fn options_of_queue(options: &[String]) -> Result<Option<&'static str>> {
    let command = Arguments::augment_args(clap::Command::new("run")).override_usage("");
    let words = ["run", "FILE"].into_iter().chain(options.iter().map(String::as_str));
    let parsed = command.try_get_matches_from(words).and_then(|found| Arguments::from_arg_matches(&found));
    let arguments = parsed.map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        wrong(if error.use_stderr() {
            format!("behind `--`: {line}; `tidegate bench run --help` shows what may stand there")
        } else {
            "behind `--` stand options for each run; `tidegate bench run --help` shows them".to_owned()
        })
    })?;
    Ok(match () {
        () if arguments.check => Some("--check"),
        () if arguments.plan => Some("--plan"),
        () if arguments.of_queue.is_some() => Some("--of-queue"),
        () => arguments.keeping.said(),
    })
}

/// How connections are made, and by how many threads.
fn prepare(arguments: &Arguments, scenario: &Scenario) -> Result<Plan> {
    let mix = Mix::build(&[Description::get(scenario.target.clone())], true, None)?;
    let mut plan = Plan::new(mix);
    let connections = estimate(scenario, 1).connections;
    plan.connections = u32::try_from(connections).unwrap_or(u32::MAX);
    plan.streams = scenario.client.streams;
    plan.seed = arguments.seed;
    plan.time = Some(scenario.phases.whole());
    if arguments.agents.are_wanted() {
        if arguments.threads.is_some() || !arguments.sources.is_empty() {
            return Err(wrong(
                "--threads and --source belong to the machines that make the load: say them to `bench agent`",
            ));
        }
        (plan.drain, plan.give_up) = (arguments.grace, arguments.give_up);
        plan.threads = arguments.agents.count()? as u32;
        return Ok(plan);
    }
    arguments.agents.are_not_meant()?;
    let generator = Generator {
        threads: arguments.threads,
        processes: None,
        sources: arguments.sources.clone(),
        timeout: scenario.client.timeout,
        grace: Some(arguments.grace),
        give_up: arguments.give_up,
        tls: arguments.tls.clone(),
        part: None,
    };
    let processes = generator.apply(&mut plan)?;
    if processes > 1 && !arguments.plan {
        let users = scenario.load.most_users();
        let each = connections / u64::from(users.max(1));
        return Err(wrong(format!(
            "{users} users with {each} {} each are more than one process may hold; raise `ulimit -n` above {}, lower {}{}, or \
             share the load out over --agents",
            if each == 1 { "connection" } else { "connections" },
            connections + 200,
            if scenario.load.is_open() { "`most-users=`" } else { "--users" },
            if each == 1 { "" } else { " or `client connections=`" }
        )));
    }
    plan.threads = arguments.threads.unwrap_or(plan.threads).clamp(1, scenario.load.most_users().max(1));
    Ok(plan)
}

fn carry_out(arguments: &Arguments, scenario: Scenario, plan: &Plan, source: &[u8]) -> Result<ExitCode> {
    let stop = stop_on_signals()?;
    if let Some(queue) = arguments.of_queue {
        follow_parent(queue, &stop);
    }
    let (about_it, started) = (about_now(), now());
    let mut keep = arguments.keeping.begin(source, &scenario, plan.threads, (&about_it, started))?;
    let folder = keep.as_ref().map(|keep| keep.folder().to_owned());
    let names: Vec<String> = scenario.operations.iter().map(|operation| operation.name.clone()).collect();
    let systems = scenario.systems.clone();
    let say: fn(&str) = |text| complain(&format!("tidegate bench: {text}\n"));
    let conducted = match Conducted::begin(&systems, keep.as_ref().map(Keep::folder), &stop, say) {
        Ok(conducted) => conducted,
        // What commands have said is in the folder of the run, which stays, broken off.
        Err(SystemError::Interrupted) => {
            complain("tidegate bench: interrupted before the load was put on\n");
            return Ok(interrupted());
        }
        Err(error) => return Err(error.into()),
    };
    let begins = Start::default();
    let watch = keep.as_ref().map(|keep| Watch::begin(&scenario.systems, keep.folder(), &begins));
    let observe = |second: &Second| {
        if let Some(keep) = &mut keep {
            keep.add(&row(names.iter().map(String::as_str), second));
        }
    };
    let (agents, conduct) = (&arguments.agents, &arguments.conduct);
    let done = if agents.are_wanted() {
        let prepare = agents.prepare(&arguments.file, source, arguments.target.as_deref(), &scenario, plan);
        let around = Around { stop: &stop, conduct, begins: &begins, folder: folder.as_deref() };
        agents
            .run(&scenario, plan, (prepare, &arguments.tls), &around, observe)
            .map(|outcome| (outcome, None))
    } else {
        conduct.run_scenario(&scenario, plan, &stop, &begins, observe)
    };
    let (outcome, host) = match done {
        Ok(done) => done,
        Err(error) => {
            // Nothing was run.
            watch.into_iter().for_each(Watch::take_back);
            conducted.finish().iter().for_each(|note| say(note));
            // What commands have said stays.
            let is_bare = !systems.iter().any(System::is_conducted);
            keep.into_iter().filter(|_| is_bare).for_each(Keep::take_back);
            if stop.is_stopped() {
                complain(&format!("tidegate bench: {error:#}\n"));
                return Ok(interrupted());
            }
            return Err(error);
        }
    };
    let mut notes = watch.map_or_else(|| unwatched(&scenario), Watch::finish);
    notes.extend(conducted.finish());
    let is_interrupted = outcome.ending == Ending::Interrupted;
    let mut report = Report::new(scenario, outcome);
    report.judgement.notes.extend(notes);
    report.host = host;
    report.about = about(report.outcome.started);
    report.label.clone_from(&arguments.keeping.label);
    // Whichever of both fails, the other is done.
    let kept = keep.map(|keep| report::finish(keep, &report)).transpose();
    let shown = if arguments.json {
        show(&format!("{}\n", report::summary(&report)))
    } else {
        show(&report::screen(&report))
    };
    kept.context(NotKept::InFiles).and(shown)?;
    if let Some(folder) = folder {
        tell(&folder, arguments.conduct.quiet);
    }
    let verdict = report.judgement.verdict;
    if arguments.json {
        for reason in &report.judgement.reasons {
            complain(&format!("tidegate bench: {verdict}: {reason}\n"));
        }
    }
    Ok(if is_interrupted { interrupted() } else { ExitCode::from(verdict.exit_code()) })
}

/// What is said of systems that are not watched, since their figures would have nowhere to go.
fn unwatched(scenario: &Scenario) -> Vec<String> {
    let is_watched = scenario.systems.iter().any(|system| system.watched.is_some());
    let note = || "nothing is kept of this run, so the systems were not watched".to_owned();
    is_watched.then(note).into_iter().collect()
}
