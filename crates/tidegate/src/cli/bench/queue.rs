//! `tidegate bench queue`: many runs of scenarios, one after another, and on from where it was.
//!
//! Each run is a process of its own, `tidegate bench run`, with the variables of its point in the environment: it can crash, and
//! takes nothing of what an earlier one has left.

use super::super::{complain, print};
use super::output::{NotKept, OF_QUEUE, interrupted, now, stop_on_signals};
use super::run::options_of_queue;
use super::runs::RunsFolder;
use super::wrong;
use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tidegate_bench::queue::{self, Known, Point, Queue, State};
use tidegate_bench::run::Stop;
use tidegate_bench::runs::{Run, Runs};
use tidegate_bench::scenario;
use tidegate_bench::verdict::Verdict;
use tidegate_config::{Diagnostic, ProcessEnvironment};

/// How often somebody who interrupts is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Makes the runs of a queue, one after another, and goes on where it was.
///
/// A queue names scenarios and, for each, variables with their values; every combination is a run of its own, with a label that
/// says what was changed for it. All are made once before any is made again. A run that is made is not made again as long as its
/// folder is there and its scenario the same, with what it names: after Ctrl-C, or a crash, the same command goes on.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench queue workers.kdl                  all runs that are not made yet
  tidegate bench queue workers.kdl --plan           what there is to do, without a run
  tidegate bench queue workers.kdl -- --no-host     with options of `bench run` for each

The language of queues: `tidegate docs scenarios`.

Exit codes, the first that fits:
  130 interrupted; the same command goes on
  1   the queue or a scenario has mistakes, or a run could not be made
  98  a run was INVALID
  99  a run was a FAIL
  0   all are made
  2   the arguments are wrong")]
pub struct Arguments {
    /// The queue
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only say which runs there are, and which of them are made
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    folder: RunsFolder,
    /// Options of `bench run`, for each run
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = &arguments.file;
    let loaded =
        queue::load(file, &ProcessEnvironment).with_context(|| format!("cannot read {}", file.display()))?;
    complain_of(&loaded.diagnostics);
    let Some(queue) = loaded.queue else { return Ok(ExitCode::from(1)) };
    let points = queue.points();
    match options_of_queue(&arguments.options)? {
        Some("--label") if points.iter().all(|point| point.label().is_empty()) => {}
        Some(option) => {
            return Err(wrong(format!(
                "behind `--`: {option} is not for the runs of a queue, which says that itself"
            )));
        }
        None => {}
    }
    let Some(scenarios) = scenarios(&points)? else {
        complain("tidegate bench: nothing was run\n");
        return Ok(ExitCode::from(1));
    };
    let runs = arguments.folder.runs();
    if arguments.plan {
        let known = Known::read(runs.folder(), &queue.name).context("cannot read what is made")?;
        return plan(&queue, &points, &scenarios, &known);
    }
    let state = State::open(runs.folder(), &queue.name).context("cannot keep what is made")?;
    Making { queue: &queue, scenarios: &scenarios, runs: &runs, state, options: &arguments.options }
        .all(&points)
}

fn complain_of(diagnostics: &[Diagnostic]) {
    for found in diagnostics {
        complain(&format!("{}\n", found.render(io::stderr().is_terminal())));
    }
}

/// The content of all scenario files and of what they name; nothing where one of them has a mistake with the variables of a point.
fn scenarios(points: &[Point]) -> Result<Option<HashMap<PathBuf, Vec<u8>>>> {
    let (mut all, mut unread, mut is_sound) = (HashMap::new(), HashSet::new(), true);
    for point in points.iter().filter(|point| point.number.is_none_or(|number| number == 1)) {
        let file = &point.file;
        let read = std::fs::read(file).and_then(|content| Ok((content, scenario::load(file, None, point)?)));
        let (mut content, loaded) = match read {
            Ok(read) => read,
            Err(error) => {
                if unread.insert(file) {
                    complain(&format!("error: cannot read the scenario {}: {error}\n", file.display()));
                }
                is_sound = false;
                continue;
            }
        };
        if !all.contains_key(file) {
            for input in loaded.scenario.iter().flat_map(scenario::Scenario::inputs) {
                content.push(0);
                content.extend_from_slice(input.as_bytes());
            }
            all.insert(file.clone(), content);
        }
        if loaded.scenario.is_none() {
            let label = point.label();
            complain(&format!("tidegate bench: {} with {label}:\n", file.display()));
            complain(&loaded.render(io::stderr().is_terminal()));
            is_sound = false;
        }
    }
    Ok(is_sound.then_some(all))
}

fn plan(
    queue: &Queue,
    points: &[Point],
    scenarios: &HashMap<PathBuf, Vec<u8>>,
    known: &Known,
) -> Result<ExitCode> {
    let (mut text, mut open) = (String::new(), 0);
    for point in points {
        let made = scenarios.get(&point.file).and_then(|scenario| known.made(point, scenario));
        open += usize::from(made.is_none());
        text.push_str(&format!(
            "{:12}  {}\n",
            if made.is_some() { "made" } else { "to be made" },
            title(point)
        ));
        if let Some(made) = made {
            text.push_str(&format!("              {}\n", made.run));
        }
    }
    print(&format!("{text}queue {}: {} runs, {open} of them to be made\n", queue.name, points.len()))
}

/// The scenario and what is changed for it.
fn title(point: &Point) -> String {
    let name = point.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{name} {}", point.label()).trim_end().to_owned()
}

/// A queue at work.
struct Making<'q> {
    queue: &'q Queue,
    scenarios: &'q HashMap<PathBuf, Vec<u8>>,
    runs: &'q Runs,
    state: State,
    options: &'q [String],
}

impl Making<'_> {
    fn all(mut self, points: &[Point]) -> Result<ExitCode> {
        let stop = stop_on_signals()?;
        let (mut ids, mut failed, mut verdicts) = (Vec::new(), 0, Vec::new());
        for (place, point) in points.iter().enumerate() {
            let scenario = self.scenarios.get(&point.file).map(Vec::as_slice).unwrap_or_default();
            let (id, what) = match self.state.known().made(point, scenario) {
                Some(made) => (made.run.clone(), "made before, "),
                None => {
                    let ended = if stop.is_stopped() { None } else { Some(self.one(point, &stop)?) };
                    let Some((status, folder)) = ended.filter(|_| !stop.is_stopped()) else {
                        let (made, wanted) = (ids.len(), points.len());
                        complain(&format!(
                            "tidegate bench: interrupted; {made} of {wanted} runs are made, the same command goes on\n"
                        ));
                        return Ok(interrupted());
                    };
                    let run = id_of(&folder).filter(|_| matches!(status.code(), Some(0 | 98 | 99)));
                    let Some(run) = run else {
                        let what = match status.code() {
                            Some(code) if code == i32::from(NotKept::CODE) => "was run and could not be kept",
                            _ => "could not be run",
                        };
                        complain(&format!("tidegate bench: {} {what}: {status}\n", title(point)));
                        failed += 1;
                        continue;
                    };
                    self.state.add(point, scenario, &run).context("cannot keep what is made")?;
                    (run, "")
                }
            };
            let row = Run::read(&self.runs.folder().join(&id)).ok();
            let verdict = row.as_ref().map_or("BROKEN", |run| run.row.verdict.as_str());
            let rate = row.as_ref().and_then(|run| run.row.rate);
            let rate = rate.map(|rate| format!("{rate:.2}/s, ")).unwrap_or_default();
            print(&format!(
                "{}/{} {}: {what}{verdict}, {rate}{id}\n",
                place + 1,
                points.len(),
                title(point)
            ))?;
            verdicts.extend(row.map(|run| run.row.verdict));
            ids.push(id);
        }
        print(&self.summary(points.len(), &ids, &verdicts))?;
        let has = |verdict: Verdict| verdicts.iter().any(|known| Verdict::parse(known) == Some(verdict));
        Ok(if failed > 0 {
            ExitCode::from(1)
        } else if has(Verdict::Invalid) {
            ExitCode::from(Verdict::Invalid.exit_code())
        } else if has(Verdict::Fail) {
            ExitCode::from(Verdict::Fail.exit_code())
        } else {
            ExitCode::SUCCESS
        })
    }

    /// Makes the run of a point.
    fn one(&self, point: &Point, stop: &Stop) -> Result<(ExitStatus, PathBuf)> {
        let folder = self.runs.make(&self.queue.name, now()).context("cannot keep the run")?;
        let program = std::env::current_exe().context("cannot find the own program")?;
        let mut command = Command::new(program);
        command.args(["bench", "run"]).arg(&point.file).args(["--quiet", "--out"]).arg(&folder);
        command.arg(format!("--{OF_QUEUE}={}", std::process::id()));
        let label = point.label();
        if !label.is_empty() {
            command.args(["--label", &label]);
        }
        command.args(self.options);
        command.envs(point.variables.iter().map(|(name, value)| (name, value)));
        // A group of its own: who interrupts at the terminal interrupts this process, which tells it once.
        // What it holds as its input is the lock of this queue: where this process is killed, the run ends with it, and no other
        // process goes on with the queue before the run has put back what it had begun.
        let lock = self.state.lock().context("cannot share the lock of the queue")?;
        command.stdin(lock).stdout(Stdio::null()).process_group(0);
        let status = command.spawn().context("cannot start `bench run`").and_then(|child| wait(child, stop));
        // It stays where the run has written anything.
        let _ = std::fs::remove_dir(&folder);
        Ok((status?, folder))
    }

    fn summary(&self, wanted: usize, ids: &[String], verdicts: &[String]) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for verdict in verdicts {
            match counts.iter_mut().find(|(known, _)| known == verdict) {
                Some((_, count)) => *count += 1,
                None => counts.push((verdict, 1)),
            }
        }
        let counts: Vec<String> =
            counts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
        let mut text = format!("queue {}: {} of {wanted} runs are made", self.queue.name, ids.len());
        if !counts.is_empty() {
            text.push_str(&format!(": {}", counts.join(", ")));
        }
        text.push('\n');
        if !ids.is_empty() {
            let (name, ids) = (&self.queue.name, ids.join(","));
            text.push_str(&format!(
                "one page of all of them: tidegate bench export {ids} -o '{name}.html'\n"
            ));
        }
        text
    }
}

/// The id of a run whose folder is there.
fn id_of(folder: &Path) -> Option<String> {
    Some(folder.file_name().filter(|_| folder.is_dir())?.to_string_lossy().into_owned())
}

/// Waits for the end of a run; who interrupts interrupts it.
fn wait(mut child: Child, stop: &Stop) -> Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let _ = sender.send(child.wait());
    });
    let mut is_told = false;
    loop {
        match ended.recv_timeout(LOOK) {
            Ok(status) => return status.context("cannot wait for `bench run`"),
            Err(RecvTimeoutError::Timeout) if stop.is_stopped() && !is_told => {
                is_told = true;
                let _ = kill_process(pid, Signal::INT);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("nobody waits for `bench run` any more"),
        }
    }
}
