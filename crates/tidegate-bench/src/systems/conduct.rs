//! What is done to systems before and after a run: settings and commands of the scenario, each with a deadline, its output in
//! `logs/<system>/` of the folder of the run, the settings in `settings/<system>/`.
//!
//! [`Conducted`] holds what was begun. Whatever ends it, a failed command, a run, an interrupt or an error, its systems are stopped: the
//! last one first. Where the process is killed, the guard of `undo` does it.

use super::ask::{status_of, tcp};
use super::configure::{self, Kept};
use super::figures::plain;
use super::place::{Ending, Group, GroupId, Place, begin, end, rest};
use super::undo::{GRACE, Guard, Undo, end_group, has_ended, outlasted, stop};
use super::{Before, Probe, System};
use crate::quantity::show_duration;
use crate::run::Stop;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes of output, and of a collected file, that are kept, at most.
const KEPT: u64 = 16 << 20;
/// What has output of its own.
pub(crate) const STEPS: [&str; 4] = ["configure", "reset", "start", "stop"];
/// The folder of what commands have said, in that of a run.
pub(crate) const LOGS: &str = "logs";
/// The folder of what was written as settings.
pub(crate) const SETTINGS: &str = "settings";
/// How often a system is asked whether it is ready.
const LOOK: Duration = Duration::from_millis(50);
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
    /// Of the run, where it is kept.
    folder: Option<PathBuf>,
    guard: Option<Guard>,
    notes: Vec<String>,
    /// For what is to be known at once.
    say: fn(&str),
}

/// One of them.
#[derive(Debug)]
struct Begun {
    system: System,
    /// Of `start`: what is left of it ends with the run.
    start: Option<Group>,
    /// The files whose old content is to be put back.
    configured: Vec<String>,
}

impl Conducted {
    /// Does what is to be done before a run, in the order of the file. Output goes below `folder`, that of the run; `say` gets what
    /// is to be known at once.
    ///
    /// # Errors
    /// [`SystemError`]: a command failed or was interrupted. What was begun is stopped.
    pub fn begin(
        systems: &[System],
        folder: Option<&Path>,
        stop: &Stop,
        say: fn(&str),
    ) -> Result<Conducted, SystemError> {
        let mut conducted = Conducted {
            begun: Vec::new(),
            folder: folder.map(Path::to_owned),
            guard: None,
            notes: Vec::new(),
            say,
        };
        for system in systems.iter().filter(|system| system.is_conducted()) {
            if conducted.guard.is_none() {
                match Guard::start() {
                    Ok(guard) => conducted.guard = Some(guard),
                    Err(error) => conducted.notes.push(format!(
                        "nothing would have stopped systems where this run had been killed: its guard cannot be started: {error}"
                    )),
                }
            }
            conducted.begun.push(Begun { system: system.clone(), start: None, configured: Vec::new() });
            if let Some(stopped) = &system.stop {
                conducted.is_begun(system, Undo::Stop(system.place.clone(), stopped.clone()));
            }
            for before in &system.before {
                conducted.before(system, before, stop)?;
            }
        }
        Ok(conducted)
    }

    fn is_begun(&mut self, system: &System, undo: Undo) {
        if let Some(guard) = &mut self.guard {
            guard.begun(&system.name, undo);
        }
    }

    fn is_done(&mut self, system: &System, undo: Undo) {
        if let Some(guard) = &mut self.guard {
            guard.done(&system.name, undo);
        }
    }

    fn before(&mut self, system: &System, before: &Before, stop: &Stop) -> Result<(), SystemError> {
        let log = self.log(system, before.step());
        let failed = |why: String| {
            let log = log.as_deref().filter(|log| log.exists()).map(tail_of).unwrap_or_default();
            Err(SystemError::Failed { system: system.name.clone(), step: before.step(), why, log })
        };
        match before {
            Before::Configure { path, text, within, .. } => {
                match self.configure(system, (path, text), *within, stop) {
                    Ok(()) => Ok(()),
                    Err(configure::Fault::Interrupted) => Err(SystemError::Interrupted),
                    Err(configure::Fault::Failed(why)) => failed(why),
                }
            }
            Before::Reset { command, within } => {
                let reset = match begin(&mut system.place.shell(command), log.as_deref()) {
                    Ok(reset) => reset,
                    Err(error) => return failed(format!("cannot be run: {error}")),
                };
                let under_way = Undo::Kill(reset.id().0);
                self.is_begun(system, under_way.clone());
                let ending = end(&reset, *within, || stop.is_stopped());
                self.is_done(system, under_way);
                match ending {
                    Ending::Ended(status) if status.is_success() => Ok(()),
                    Ending::Ended(status) => failed(format!("failed ({status})")),
                    Ending::Late => failed(format!("took longer than {}", show_duration(*within))),
                    Ending::Interrupted => Err(SystemError::Interrupted),
                }
            }
            Before::Start { command, ready, within } => {
                let mut start = match begin(&mut system.place.lasting(command), log.as_deref()) {
                    Ok(start) => start,
                    Err(error) => return failed(format!("cannot be run: {error}")),
                };
                self.is_begun(system, Undo::End(start.id().0));
                if system.place == Place::Here {
                    start.go();
                }
                let outcome = match ready {
                    Some(probe) => until_ready(&start, probe, *within, stop),
                    None => match end(&start, *within, || stop.is_stopped()) {
                        Ending::Ended(status) if status.is_success() => Ok(()),
                        Ending::Ended(status) => Err(format!("failed ({status})")),
                        Ending::Late => Err(format!(
                            "still ran after {}: a command that stays needs `ready`, which says when the system can be used",
                            show_duration(*within)
                        )),
                        Ending::Interrupted => Err(String::new()),
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

    fn configure(
        &mut self,
        system: &System,
        (path, text): (&str, &str),
        within: Duration,
        stop: &Stop,
    ) -> Result<(), configure::Fault> {
        let number = self.begun.last().map_or(0, |begun| begun.configured.len()) + 1;
        if let Some(folder) = &self.folder {
            let folder = folder.join(SETTINGS).join(plain(&system.name));
            let file = folder.join(numbered(number, path));
            fs::create_dir_all(&folder).and_then(|()| fs::write(&file, text)).map_err(|error| {
                configure::Fault::Failed(format!("cannot be kept, {}: {error}", file.display()))
            })?;
        }
        let put_back = |kept| Undo::PutBack(system.place.clone(), path.to_owned(), kept);
        let mut under_way = None;
        let kept = |group: GroupId| {
            if let Some(begun) = self.begun.last_mut() {
                begun.configured.push(path.to_owned());
            }
            let undo = Undo::Kill(group.0);
            self.is_begun(system, undo.clone());
            self.is_begun(system, put_back(Kept::Unsure));
            under_way = Some(undo);
        };
        let written = configure::write(&system.place, (path, text), within, || stop.is_stopped(), kept);
        under_way.into_iter().for_each(|undo| self.is_done(system, undo));
        written?;
        self.is_begun(system, put_back(Kept::There));
        self.is_done(system, put_back(Kept::Unsure));
        Ok(())
    }

    /// The file for the output of a step; there is none where nothing is kept.
    fn log(&self, system: &System, step: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(LOGS).join(plain(&system.name)).join(format!("{step}.txt")))
    }

    /// Stops them, the last one first: `stop`, then what stays of `start`, then files are collected as the run has left them, then
    /// settings are put back. Gives what went wrong with that, a sentence each.
    pub fn finish(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut self.notes)
    }

    fn end(&mut self) {
        while let Some(begun) = self.begun.pop() {
            let system = begun.system;
            let log = self.log(&system, "stop");
            let stopped = system.stop.as_ref().map(|stopped| {
                let mut under_way = None;
                let begun = |group: GroupId| {
                    let undo = Undo::Kill(group.0);
                    self.is_begun(&system, undo.clone());
                    under_way = Some(undo);
                };
                let told = stop(&system.place, stopped, log.as_deref(), begun);
                under_way.into_iter().for_each(|undo| self.is_done(&system, undo));
                self.is_done(&system, Undo::Stop(system.place.clone(), stopped.clone()));
                told
            });
            if let Some(Err(why)) = &stopped {
                self.notes.push(format!("`stop` of {} {why}", system.name));
            }
            if let Some(start) = begun.start {
                let (is_told, group) = (matches!(stopped, Some(Ok(()))), start.id());
                self.notes.extend(self.end_lasting(&system, start, is_told));
                self.is_done(&system, Undo::End(group.0));
            }
            for (number, path) in (1..).zip(&system.collect) {
                if let Err(why) = self.collect(&system, number, path) {
                    self.notes.push(format!("{path} of {} was not collected: {why}", system.name));
                }
            }
            for path in begun.configured.iter().rev() {
                let undo = |kept| Undo::PutBack(system.place.clone(), path.clone(), kept);
                self.is_begun(&system, undo(Kept::Unsure));
                self.is_done(&system, undo(Kept::There));
                if let Err(why) = configure::put_back(&system.place, path, Kept::There) {
                    self.notes.push(format!("{path} of {} was not put back: {why}", system.name));
                }
                self.is_done(&system, undo(Kept::Unsure));
            }
            if let Some(guard) = &mut self.guard {
                guard.over(&system.name);
            }
            STEPS.iter().filter_map(|step| self.log(&system, step)).for_each(|log| bound(&log));
        }
    }

    /// Ends what has stayed of a `start`: `is_told` by its `stop`, else by ssh the end of its input tells it, and then a signal.
    fn end_lasting(&self, system: &System, mut start: Group, is_told: bool) -> Vec<String> {
        let (name, group) = (system.name.as_str(), start.id());
        let say = |text: &str| (self.say)(text);
        let mut notes = Vec::new();
        if is_told {
            match outlasted(name, group, (GRACE, &say)) {
                Some(note) => notes.push(note),
                None => return notes,
            }
        }
        if start.0.stdin.take().is_none() || !has_ended(name, group, GRACE, &say) {
            notes.extend(end_group(name, group, (GRACE, &say)));
        }
        notes
    }

    fn collect(&self, system: &System, number: usize, path: &str) -> Result<(), String> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let folder = folder.join(LOGS).join(plain(&system.name));
        let to = folder.join(numbered(number, path));
        let copied = fs::create_dir_all(&folder).and_then(|()| File::create(&to)).and_then(|file| {
            let mut command = system.place.program(&["tail", "-c", &KEPT.to_string(), "--", path]);
            Group::start(command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null()))
        });
        let ending = end(&copied.map_err(|error| error.to_string())?, COLLECT, || false);
        bound(&to);
        match ending {
            Ending::Ended(status) if status.is_success() => Ok(()),
            Ending::Ended(status) => {
                let _ = fs::remove_file(&to);
                Err(format!("it cannot be read ({status})"))
            }
            Ending::Late | Ending::Interrupted => {
                Err(format!("it took longer than {}", show_duration(COLLECT)))
            }
        }
    }
}

impl Drop for Conducted {
    fn drop(&mut self) {
        self.end();
        for note in std::mem::take(&mut self.notes) {
            (self.say)(&note);
        }
    }
}

/// The name of the copy of a file.
fn numbered(number: usize, path: &str) -> String {
    format!("{number}-{}", plain(path.rsplit('/').next().unwrap_or_default()))
}

/// Waits until a system answers, or its command has failed.
fn until_ready(start: &Group, probe: &Probe, within: Duration, stop: &Stop) -> Result<(), String> {
    let until = Instant::now() + within;
    loop {
        if let Some(status) = start.status().filter(|status| !status.is_success()) {
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
