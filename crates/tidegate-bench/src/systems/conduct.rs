//! What is done to systems before and after a run: commands of the scenario, each with a deadline, its output in `logs/<system>/` of the
//! folder of the run.
//!
//! [`Conducted`] holds what was begun. Whatever ends it, a failed command, a run, an interrupt or an error, its systems are stopped: the
//! last one first.

use super::figures::plain;
use super::place::{Group, rest};
use super::services::{status_of, tcp};
use super::{Before, Probe, System};
use crate::quantity::show_duration;
use crate::run::Stop;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes of output, and of a collected file, that are kept, at most.
const KEPT: u64 = 16 << 20;
/// What has output of its own.
const STEPS: [&str; 3] = ["reset", "start", "stop"];
/// How often a command is looked at, and a system asked whether it is ready.
const LOOK: Duration = Duration::from_millis(50);
/// How long a command that stays has to end once it was told to.
const GRACE: Duration = Duration::from_secs(10);
/// For one file that is collected.
const COLLECT: Duration = Duration::from_secs(60);

/// Why no load was put on.
#[derive(Debug, Error)]
pub enum SystemError {
    /// A command failed, or took too long.
    #[error("`{step}` of {system} {why}; no load was put on{log}")]
    Failed {
        /// Of the scenario.
        system: String,
        /// The directive.
        step: &'static str,
        /// What happened.
        why: String,
        /// Where its output is, and the last line of it.
        log: String,
    },
    /// An interrupt came first.
    #[error("interrupted before the load was put on")]
    Interrupted,
}

/// Systems on which something was done.
#[derive(Debug)]
pub struct Conducted {
    begun: Vec<Begun>,
    logs: Option<PathBuf>,
}

/// One of them.
#[derive(Debug)]
struct Begun {
    system: System,
    /// Of `start`: what is left of it ends with the run.
    start: Option<Group>,
}

/// How a command went.
enum Ending {
    /// Its status as words, and whether it is that of success.
    Ended(bool, String),
    /// Not in time.
    Late,
    /// Somebody wants the run to end.
    Interrupted,
}

impl Conducted {
    /// Does what is to be done before a run, in the order of the file. Output goes below `folder`, that of the run.
    ///
    /// # Errors
    /// [`SystemError`]: a command failed or was interrupted. What was begun is stopped.
    pub fn begin(systems: &[System], folder: Option<&Path>, stop: &Stop) -> Result<Conducted, SystemError> {
        let mut conducted = Conducted { begun: Vec::new(), logs: folder.map(|folder| folder.join("logs")) };
        for system in systems.iter().filter(|system| system.is_conducted()) {
            // Of a run that was in this folder before.
            for log in STEPS.iter().filter_map(|step| conducted.log(system, step)) {
                let _ = fs::remove_file(log);
            }
            conducted.begun.push(Begun { system: system.clone(), start: None });
            for before in &system.before {
                conducted.before(system, before, stop)?;
            }
        }
        Ok(conducted)
    }

    fn before(&mut self, system: &System, before: &Before, stop: &Stop) -> Result<(), SystemError> {
        let step = match before {
            Before::Reset { .. } => "reset",
            Before::Start { .. } => "start",
        };
        let log = self.log(system, step);
        let failed = |why: String| {
            let log = log.as_deref().map(tail_of).unwrap_or_default();
            Err(SystemError::Failed { system: system.name.clone(), step, why, log })
        };
        match before {
            Before::Reset { command, within } => {
                let reset = match begin(&mut system.place.shell(command), log.as_deref()) {
                    Ok(reset) => reset,
                    Err(error) => return failed(format!("cannot be run: {error}")),
                };
                match end(&reset, *within, || stop.is_stopped()) {
                    Ending::Ended(true, _) => Ok(()),
                    Ending::Ended(false, status) => failed(format!("failed ({status})")),
                    Ending::Late => failed(format!("took longer than {}", show_duration(*within))),
                    Ending::Interrupted => Err(SystemError::Interrupted),
                }
            }
            Before::Start { command, ready, within } => {
                let start = match begin(&mut system.place.lasting(command), log.as_deref()) {
                    Ok(start) => start,
                    Err(error) => return failed(format!("cannot be run: {error}")),
                };
                let outcome = match ready {
                    Some(probe) => until_ready(&start, probe, *within, stop),
                    None => match end(&start, *within, || stop.is_stopped()) {
                        Ending::Ended(true, _) => Ok(()),
                        Ending::Ended(false, status) => Err(format!("failed ({status})")),
                        Ending::Late => Err(format!(
                            "still ran after {}: a command that stays needs `ready`, which says when the system can be used",
                            show_duration(*within)
                        )),
                        Ending::Interrupted => return Err(SystemError::Interrupted),
                    },
                };
                if let Some(begun) = self.begun.last_mut() {
                    begun.start = Some(start);
                }
                match outcome {
                    _ if stop.is_stopped() => Err(SystemError::Interrupted),
                    Ok(()) => Ok(()),
                    Err(why) => failed(why),
                }
            }
        }
    }

    /// The file for the output of a step; there is none where nothing is kept.
    fn log(&self, system: &System, step: &str) -> Option<PathBuf> {
        Some(self.logs.as_ref()?.join(plain(&system.name)).join(format!("{step}.txt")))
    }

    /// Stops them, the last one first, and collects their files. Gives what went wrong with that, a sentence each.
    pub fn finish(mut self) -> Vec<String> {
        self.end()
    }

    fn end(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        while let Some(begun) = self.begun.pop() {
            let system = begun.system;
            let stopped = system.stop.as_ref().map(|stop| self.stop(&system, stop));
            if let Some(Err(why)) = &stopped {
                notes.push(format!("`stop` of {} {why}", system.name));
            }
            if let Some(start) = begun.start {
                let is_told = matches!(stopped, Some(Ok(())));
                end_lasting(start, is_told);
            }
            for (number, path) in (1..).zip(&system.collect) {
                if let Err(why) = self.collect(&system, number, path) {
                    notes.push(format!("{path} of {} was not collected: {why}", system.name));
                }
            }
            STEPS.iter().filter_map(|step| self.log(&system, step)).for_each(|log| bound(&log));
        }
        notes
    }

    fn stop(&self, system: &System, stop: &super::Stopped) -> Result<(), String> {
        let log = self.log(system, "stop");
        let told = match begin(&mut system.place.shell(&stop.command), log.as_deref()) {
            Ok(told) => told,
            Err(error) => return Err(format!("cannot be run: {error}")),
        };
        match end(&told, stop.within, || false) {
            Ending::Ended(true, _) => Ok(()),
            Ending::Ended(false, status) => Err(format!("failed ({status})")),
            _ => Err(format!("took longer than {}", show_duration(stop.within))),
        }
    }

    fn collect(&self, system: &System, number: usize, path: &str) -> Result<(), String> {
        let Some(logs) = &self.logs else { return Ok(()) };
        let folder = logs.join(plain(&system.name));
        let name = path.rsplit('/').next().unwrap_or_default();
        let to = folder.join(format!("{number}-{}", plain(name)));
        let copied = fs::create_dir_all(&folder).and_then(|()| File::create(&to)).and_then(|file| {
            let mut command = system.place.program(&["tail", "-c", &KEPT.to_string(), "--", path]);
            Group::start(command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null()))
        });
        let ending = end(&copied.map_err(|error| error.to_string())?, COLLECT, || false);
        bound(&to);
        match ending {
            Ending::Ended(true, _) => Ok(()),
            Ending::Ended(false, status) => {
                let _ = fs::remove_file(&to);
                Err(format!("it cannot be read ({status})"))
            }
            _ => Err(format!("it took longer than {}", show_duration(COLLECT))),
        }
    }
}

impl Drop for Conducted {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a command whose output goes into a file, where there is one.
fn begin(command: &mut Command, log: Option<&Path>) -> io::Result<Group> {
    match log {
        Some(log) => {
            log.parent().map_or(Ok(()), fs::create_dir_all)?;
            let file = File::options().append(true).create(true).open(log)?;
            command.stdout(file.try_clone()?).stderr(file);
        }
        None => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    Group::start(command)
}

/// Ends what has stayed of a `start`: `is_told` by its `stop`, else by ssh the end of its input tells it, and then a signal.
fn end_lasting(mut start: Group, is_told: bool) {
    let has_ended = |start: &Group| {
        let until = Instant::now() + GRACE;
        while start.has_members() && Instant::now() < until {
            rest(LOOK);
        }
        !start.has_members()
    };
    if is_told && has_ended(&start) {
        return;
    }
    if start.0.stdin.take().is_some() && has_ended(&start) {
        return;
    }
    start.signal(Signal::TERM);
    has_ended(&start);
}

/// Waits until a command has ended.
fn end(of: &Group, within: Duration, is_interrupted: impl Fn() -> bool) -> Ending {
    let until = Instant::now() + within;
    loop {
        if let Some((is_success, status)) = of.status() {
            return Ending::Ended(is_success, status);
        }
        if is_interrupted() {
            return Ending::Interrupted;
        }
        if Instant::now() >= until {
            return Ending::Late;
        }
        rest(LOOK);
    }
}

/// Waits until a system answers, or its command has failed.
fn until_ready(start: &Group, probe: &Probe, within: Duration, stop: &Stop) -> Result<(), String> {
    let until = Instant::now() + within;
    loop {
        if let Some((false, status)) = start.status() {
            return Err(format!("failed ({status})"));
        }
        let patience = until.min(Instant::now() + Duration::from_secs(2));
        let why = match probe {
            Probe::Url(url) => match status_of(url, patience) {
                Ok(status) if status < 400 => return Ok(()),
                Ok(status) => format!("{url} answered {status}"),
                Err(error) => format!("{url}: {error}"),
            },
            Probe::Tcp(address) => match tcp(address, patience) {
                Ok(()) => return Ok(()),
                Err(error) => format!("{address}: {error}"),
            },
        };
        if stop.is_stopped() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!("was not ready within {}: {why}", show_duration(within)));
        }
        rest(LOOK);
    }
}

/// Cuts what is too long.
fn bound(path: &Path) {
    if let Ok(file) = File::options().write(true).open(path)
        && file.metadata().is_ok_and(|about| about.len() > KEPT)
    {
        let _ = file.set_len(KEPT);
    }
}

/// Where the output of a command is, with its last line.
fn tail_of(log: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |about| about.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(2_000)));
        let _ = file.take(2_000).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let last: String = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    let said = if last.is_empty() { "it said nothing".to_owned() } else { format!("it said last: {last}") };
    format!(" ({said}; {})", log.display())
}
