//! `cargo xtask test`: every check, each announced, all of them run, one after another but for the tools.
//!
//! What `make test` and `.ci/run` stand for; what takes long is run with `--all` or by its name. A step is a command whose output goes to a file and is shown
//! when the step fails. One that hangs is ended with all that it has started, and what it hung in is named. The
//! last line counts the steps: `N passed, N failed`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these steps
    steps: Vec<String>,
    /// Name the steps and the command of each
    #[arg(long)]
    list: bool,
    /// Run the tests on an optimised build with debug assertions and overflow checks (the profile `checked`)
    #[arg(long)]
    checked: bool,
    /// What takes long as well: instructions against their baseline, fuzzing
    #[arg(long)]
    all: bool,
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 5)]
    fuzz_seconds: u32,
}

/// A step that takes longer hangs: the slowest takes half of it where everything has to be built first.
const PATIENCE: Duration = Duration::from_secs(40 * 60);

/// Steps that `--all` or their name brings: each has a build of its own.
const LONG: [&str; 2] = ["instructions", "fuzz"];

struct Step {
    name: &'static str,
    command: Command,
    /// Its programs are those that [`TOOLS`] installs.
    needs_tools: bool,
}

/// The step that installs what others need, beside those that need nothing: it waits for the network, and they do not.
const TOOLS: &str = "tools";

/// A step that has begun.
struct Running {
    name: &'static str,
    log: PathBuf,
    /// How it has ended, and how long that took.
    ended: JoinHandle<(io::Result<Option<ExitStatus>>, Duration)>,
}

/// Runs the chosen steps, or all; an error when one of them failed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut steps = steps(arguments)?;
    for name in &arguments.steps {
        if !steps.iter().any(|step| step.name == name) {
            let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
            bail!("no step {name}; there are: {}", names.join(", "));
        }
    }
    if arguments.steps.is_empty() {
        steps.retain(|step| arguments.all || !LONG.contains(&step.name));
    } else {
        steps.retain(|step| arguments.steps.iter().any(|name| name == step.name));
    }
    if arguments.list {
        for step in &steps {
            println!("{:13} {}", step.name, shown(&step.command));
        }
        return Ok(());
    }

    let started = Instant::now();
    let count = steps.len();
    let mut failed = Vec::new();
    let mut end = |step: Running| -> Result<()> {
        let name = step.name;
        if !step.end()? {
            failed.push(name);
        }
        Ok(())
    };
    let mut tools = None;
    for (index, step) in steps.into_iter().enumerate() {
        if step.needs_tools
            && let Some(tools) = tools.take()
        {
            end(tools)?;
        }
        println!("[{}/{count}] {}: {}", index + 1, step.name, shown(&step.command));
        let (is_tools, running) = (step.name == TOOLS, step.begin()?);
        if is_tools {
            tools = Some(running);
        } else {
            end(running)?;
        }
    }
    tools.map_or(Ok(()), end)?;
    println!("whole run: {}", seconds(started.elapsed()));
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    println!("{} passed, {} failed", count - failed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { std::process::exit(1) }
}

/// The steps in their order: what is quick and often wrong first.
fn steps(arguments: &Arguments) -> Result<Vec<Step>> {
    let cargo = |words: &[&str]| {
        let mut command = workspace::cargo();
        command.args(words);
        command
    };
    let task = |words: &[&str]| -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.current_dir(workspace::root()).args(words);
        Ok(command)
    };
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    let fuzz_seconds = arguments.fuzz_seconds.to_string();
    let tests: &[&str] = if arguments.checked { &["tests", "--checked"] } else { &["tests"] };
    let step = |name, command| Step { name, command, needs_tools: false };
    let with_tools = |name, command| Step { name, command, needs_tools: true };
    // The generator without the engine of scripts, which nothing else builds; with all other packages, so that what they depend on
    // is what the step before has looked at.
    let lean = "clippy --workspace --lib --no-default-features --features tidegate-testkit/server --locked -- -D warnings";
    let lean: Vec<&str> = lean.split(' ').collect();
    // And its tests: the profile stands for those of libraries.
    let lean_tests = [&lean[..3], &["--profile", "test"], &lean[3..]].concat();
    Ok(vec![
        step(TOOLS, task(&["tools", "--for", "test"])?),
        step("fmt", cargo(&["fmt", "--all", "--check"])),
        step("tidy", task(&["tidy"])?),
        step(
            "clippy",
            cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
        ),
        step("lean", cargo(&lean)),
        step("lean-tests", cargo(&lean_tests)),
        step("docs", docs),
        // Before whatever builds the program, which takes it in.
        with_tools("console", task(&["console", "--test"])?),
        with_tools("test", task(tests)?),
        with_tools("instructions", task(&["bench", "instructions"])?),
        with_tools("fuzz", task(&["fuzz", "--seconds", &fuzz_seconds])?),
    ])
}

impl Step {
    /// Begins with it; what it says goes to a file.
    fn begin(mut self) -> Result<Running> {
        let folder = workspace::target_directory().join("test");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.log", self.name));
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        self.command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
        self.command.stdout(log.try_clone()?).stderr(log);
        io::stdout().flush()?;
        let started = Instant::now();
        let child = self.command.spawn();
        let ended = thread::spawn(move || {
            let ended = child.and_then(|child| wait(child, PATIENCE));
            (ended, started.elapsed())
        });
        Ok(Running { name: self.name, log: path, ended })
    }
}

impl Running {
    /// Waits for its end and says how it was; whether it has passed.
    fn end(self) -> Result<bool> {
        let Running { name, log, ended } = self;
        let (ended, time) = ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (log, time) = (String::from_utf8_lossy(&fs::read(&log)?).into_owned(), seconds(time));
        let fault = match ended {
            Ok(Some(status)) if status.success() => {
                for line in notes(name, &log) {
                    println!("      {line}");
                }
                println!("      {name}: ok in {time}");
                return Ok(true);
            }
            Ok(Some(status)) => status.to_string(),
            Ok(None) => hung(&log, PATIENCE),
            Err(error) => format!("it cannot be started: {error}"),
        };
        println!("{}\n{fault}", log.trim_end());
        println!("      {name}: FAILED in {time}");
        Ok(false)
    }
}

/// That it was ended after so long, and what it hung in as far as its log tells.
pub(crate) fn hung(log: &str, patience: Duration) -> String {
    let hung: Vec<&str> = unfinished(log).into_iter().collect();
    let hung = if hung.is_empty() { String::new() } else { format!("; it hung in {}", hung.join(", ")) };
    format!("ended after {}{hung}", seconds(patience))
}

/// Waits for its end. `None`: it had not ended after `patience`, and has been killed with what it has started.
pub(crate) fn wait(mut child: Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            for pid in descendants(child.id()) {
                let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process has a number");
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}

/// A process and all below it, the lowest last (proc_pid_task(5), `children`).
fn descendants(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        all.extend(children.flat_map(|text| {
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        }));
    }
    all
}

/// The tests that `cargo test` has called slow and not told the end of.
fn unfinished(log: &str) -> BTreeSet<&str> {
    let mut slow = BTreeSet::new();
    for line in log.lines().filter_map(|line| line.strip_prefix("test ")) {
        if let Some((name, _)) = line.split_once(" has been running for over") {
            slow.insert(name);
        } else if let Some((name, _)) = line.split_once(" ... ") {
            slow.remove(name);
        }
    }
    slow
}

/// What of a passed step is worth a line: the counts of tests, and what our own tasks said.
fn notes(step: &str, log: &str) -> Vec<String> {
    if step == "test" {
        let tests = count_tests(log);
        return vec![format!("{} tests passed, {} ignored", tests.passed, tests.ignored)];
    }
    let own = ["tools: ", "tidy: ", "console: ", "instructions: ", "fuzz: "];
    let lines = log.lines().filter(|line| own.iter().any(|prefix| line.starts_with(prefix)));
    // What a test leaves out for want of something must be seen.
    let skipped = log.lines().filter(|line| line.contains("SKIPPED"));
    lines.chain(skipped).map(str::to_owned).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tests {
    passed: u64,
    ignored: u64,
}

/// Adds up the `test result:` lines of `cargo test`.
fn count_tests(log: &str) -> Tests {
    let mut tests = Tests::default();
    for line in log.lines().filter(|line| line.starts_with("test result:")) {
        let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let count = pair[0].parse::<u64>().unwrap_or(0);
            match pair[1] {
                "passed" => tests.passed += count,
                "ignored" => tests.ignored += count,
                _ => {}
            }
        }
    }
    tests
}

/// The command with its program by name, as one would type it.
fn shown(command: &Command) -> String {
    let text = workspace::shown(command);
    let (program, rest) = text.split_once(' ').unwrap_or((&text, ""));
    match program.rsplit('/').next() {
        Some("xtask") => format!("cargo xtask {rest}"),
        Some(name) => format!("{name} {rest}"),
        None => text,
    }
}

fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        whole => format!("{} min {} s", whole / 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_cargo_test() {
        let log = "running 3 tests\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        assert_eq!(count_tests(log), Tests { passed: 7, ignored: 1 });
    }

    #[test]
    fn what_hangs_is_ended_and_named() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]);
        assert!(wait(command.spawn().unwrap(), Duration::ZERO).unwrap().is_none());
        assert!(wait(Command::new("true").spawn().unwrap(), PATIENCE).unwrap().is_some());
        let log = "test a::b has been running for over 60 seconds\n\
            test a::c has been running for over 60 seconds\n\
            test a::c ... ok\n";
        assert_eq!(unfinished(log), BTreeSet::from(["a::b"]));
    }

    #[test]
    fn durations() {
        assert_eq!(seconds(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(61)), "1 min 1 s");
    }
}
