//! `cargo xtask tests`: what `cargo test --workspace` runs, several test programs at once.
//!
//! Cargo runs one after another, and many of ours wait most of the time: for a server to stop, a timeout, a browser. Here one
//! more runs than there are processors, those that take longest first. The output of each is shown whole when it ends. Called by
//! `test`.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{test, workspace};

/// A program that takes longer hangs: the slowest takes a fifth of it.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

#[derive(clap::Args)]
pub struct Arguments {
    /// Those of an optimised build with debug assertions and overflow checks (the profile `checked`)
    #[arg(long)]
    checked: bool,
    /// Programs at once; one more than there are processors
    #[arg(long)]
    jobs: Option<usize>,
}

/// Those of one minute and more, which are begun first: whatever is begun last is waited for alone.
const LONGEST: [&str; 5] = [
    "tidegate --test bench",
    "tidegate --test transcripts",
    "tidegate --test console",
    "tidegate --test random",
    "tidegate --test forbidden",
];

/// Those that wait nearly all of their time for what hangs: they run beside the others, one after the other.
const WAITING: [&str; 2] = ["tidegate --test ldap", "tidegate --test hangs"];

/// A program of tests that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    /// `tidegate --test cli`, or `tidegate --lib`.
    name: String,
    executable: PathBuf,
    /// Of its package: cargo runs tests there.
    folder: PathBuf,
}

/// Builds and runs all; an error that names those that failed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let profile: &[&str] = if arguments.checked { &["--profile", "checked"] } else { &[] };
    let mut programs = build(profile)?;
    programs.sort_by_key(|program| {
        LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
    });
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (waiting, programs) =
        programs.into_iter().partition(|program| WAITING.contains(&program.name.as_str()));
    let failed = run_all([(programs, arguments.jobs.unwrap_or(processors + 1).max(1)), (waiting, 1)]);
    let mut examples = workspace::cargo();
    examples.args(["test", "--workspace", "--locked", "--no-fail-fast", "--doc"]).args(profile);
    let examples = workspace::run(&mut examples);
    if !failed.is_empty() {
        bail!("{} programs failed:\n    {}", failed.len(), failed.join("\n    "));
    }
    examples
}

fn build(profile: &[&str]) -> Result<Vec<Program>> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
    // Errors and warnings of the compiler are for whoever reads along.
    command.args(profile).stderr(Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo test --no-run: {}", output.status);
    }
    Ok(programs(&String::from_utf8_lossy(&output.stdout)))
}

/// The programs of tests among the messages of cargo, a JSON object a line.
fn programs(messages: &str) -> Vec<Program> {
    messages.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?)).collect()
}

fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = folder.file_name()?.to_string_lossy();
    let target = message["target"]["name"].as_str()?;
    let name = match message["target"]["kind"][0].as_str()? {
        "test" => format!("{package} --test {target}"),
        "bin" => format!("{package} --bin {target}"),
        _ => format!("{package} --lib"),
    };
    Some(Program { name, executable: message["executable"].as_str()?.into(), folder })
}

/// Runs them, of each queue so many at once, and names those that failed.
fn run_all(queues: [(Vec<Program>, usize); 2]) -> Vec<String> {
    let failed = Mutex::new(Vec::new());
    let work = |queue: &Mutex<VecDeque<Program>>| {
        loop {
            let next = queue.lock().expect("invariant: no holder panics").pop_front();
            let Some(program) = next else { return };
            let (output, is_passed) = match run_one(&program) {
                Ok(ended) => ended,
                Err(error) => (format!("{error:#}\n"), false),
            };
            // One call, so that no two are mixed.
            print!("     Running {}\n{output}\n", program.name);
            if !is_passed {
                failed.lock().expect("invariant: no holder panics").push(program.name);
            }
        }
    };
    let queues = queues.map(|(programs, at_once)| (Mutex::new(VecDeque::from(programs)), at_once));
    thread::scope(|scope| {
        for (queue, at_once) in &queues {
            for _ in 0..*at_once {
                scope.spawn(|| work(queue));
            }
        }
    });
    failed.into_inner().expect("invariant: no holder panics")
}

/// What it has printed, and whether all its tests passed.
fn run_one(program: &Program) -> Result<(String, bool)> {
    let folder = workspace::target_directory().join("test");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.log", program.name.replace(" --", "-").replace(' ', "-")));
    let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let child = command.spawn().with_context(|| format!("cannot start {}", program.executable.display()))?;
    let ended = test::wait(child, PATIENCE)?;
    let mut output = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    let end = match ended {
        Some(status) if status.success() => return Ok((output, true)),
        Some(status) => status.to_string(),
        None => test::hung(&output, PATIENCE),
    };
    output.push_str(&format!("{}: {end}\n", program.name));
    Ok((output, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_among_other_messages() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/a/Cargo.toml","target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/x/crates/a/Cargo.toml","target":{"kind":["lib"],"name":"a"},"profile":{"test":true},"executable":"/x/target/a-1"}
{"reason":"compiler-artifact","manifest_path":"/x/crates/a/Cargo.toml","target":{"kind":["test"],"name":"cli"},"profile":{"test":true},"executable":"/x/target/cli-1"}
{"reason":"build-finished","success":true}
"#;
        let names: Vec<String> = programs(messages).into_iter().map(|program| program.name).collect();
        assert_eq!(names, ["a --lib", "a --test cli"]);
    }

    #[test]
    fn all_are_run_and_those_that_fail_are_named() {
        let program = |executable: &str| Program {
            name: executable.to_owned(),
            executable: Path::new("/bin").join(executable),
            folder: "/".into(),
        };
        let (some, others) = (["true", "false"].map(program), ["true", "none-such"].map(program));
        let failed = run_all([(some.to_vec(), 2), (others.to_vec(), 1)]);
        assert_eq!(failed.len(), 2);
        assert!(failed.contains(&"false".to_owned()) && failed.contains(&"none-such".to_owned()));
    }
}
