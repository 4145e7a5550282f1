//! Monitors of systems during a run: started before it, their lines stamped by its clock as they arrive, and written into
//! `monitors/<system>.csv` of its folder while it goes on.
//!
//! Nothing of a monitor ends or delays a run: each has a thread of its own, is ended with the run, and what was wrong with it is a note
//! of the report.

use super::System;
use super::figures::Figures;
use super::place::{Group, line, piped};
use super::table::{Table, path_of};
use crate::clock::monotonic_ns;
use serde_json::Value;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Bytes of a line, at most.
const LINE: usize = 256 << 10;
/// How long the thread of a monitor that was ended is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The moment at which a run begins, monotonic nanoseconds, as soon as it is known. Lines from before it are passed over.
pub type Start = Arc<OnceLock<u64>>;

/// The monitors of a run.
#[derive(Debug, Default)]
pub struct Watch {
    monitors: Vec<Monitor>,
    notes: Vec<String>,
}

/// One that goes on.
#[derive(Debug)]
struct Monitor {
    system: String,
    /// Of its figures.
    path: PathBuf,
    interval: Duration,
    child: Group,
    /// Held open: its end is the end of the monitor, by ssh as well.
    input: Option<ChildStdin>,
    state: Arc<Mutex<State>>,
    done: Receiver<()>,
}

/// What is known of its lines.
#[derive(Debug, Default)]
struct State {
    /// When the last one came, monotonic nanoseconds.
    last: Option<u64>,
    has_ended: bool,
    /// What it complained of last.
    complaint: Option<String>,
    /// Why figures could not be written.
    trouble: Option<String>,
}

impl Watch {
    /// Starts the monitors of systems, whose figures go into the folder of a run. What does not start is a note.
    pub fn begin(systems: &[System], folder: &Path, start: &Start) -> Watch {
        let mut watch = Watch::default();
        for system in systems.iter().filter(|system| system.watched.is_some()) {
            match Monitor::begin(system, folder, start) {
                Ok(monitor) => watch.monitors.push(monitor),
                Err(error) => {
                    watch.notes.push(format!("the monitor of {} could not be started: {error}", system.name));
                }
            }
        }
        watch
    }

    /// Ends them, and removes what they have written: nothing was run.
    pub fn take_back(self) {
        for monitor in &self.monitors {
            let _ = fs::remove_file(&monitor.path);
            // It stays where it holds anything else.
            let _ = monitor.path.parent().map(fs::remove_dir);
        }
    }

    /// Ends them. Gives what was wrong with them, a sentence each.
    pub fn finish(mut self) -> Vec<String> {
        let now = monotonic_ns();
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.monitors.into_iter().filter_map(|monitor| monitor.finish(now)));
        notes
    }
}

impl Monitor {
    fn begin(system: &System, folder: &Path, start: &Start) -> io::Result<Monitor> {
        let watched = system.watched.as_ref().ok_or_else(|| io::Error::other("nothing is watched"))?;
        let path = path_of(folder, &system.name);
        let mut table = Table::new(path.clone())?;
        let mut child = Group::start(piped(&mut system.place.tidegate(&watched.arguments())?))?;
        let (input, output, complaints) =
            (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
        let state = Arc::new(Mutex::new(State::default()));
        let (finished, done) = channel();
        let (shared, start) = (state.clone(), start.clone());
        let read = move || {
            let mut from = output.map(BufReader::new);
            while let Some(line) = from.as_mut().and_then(|from| line(from, LINE)) {
                let now = monotonic_ns();
                let trouble = figures(&line).and_then(|figures| match start.get() {
                    Some(start) if *start < now => table.add((now - start) as f64 / 1e9, &figures).err(),
                    _ => None,
                });
                with(&shared, |state| {
                    state.last = Some(now);
                    state.trouble = state.trouble.take().or(trouble.map(|error| error.to_string()));
                });
            }
            with(&shared, |state| state.has_ended = true);
            drop(finished);
        };
        std::thread::Builder::new().name("bench-monitor".to_owned()).spawn(read)?;
        let shared = state.clone();
        let complain = move || {
            let mut from = complaints.map(BufReader::new);
            while let Some(line) = from.as_mut().and_then(|from| line(from, 400)) {
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if !text.is_empty() {
                    with(&shared, |state| state.complaint = Some(text));
                }
            }
        };
        std::thread::Builder::new().name("bench-monitor-err".to_owned()).spawn(complain)?;
        let (name, interval) = (system.name.clone(), watched.interval);
        Ok(Monitor { system: name, path, interval, child, input, state, done })
    }

    /// Ends it; what was wrong, if something was.
    fn finish(self, now: u64) -> Option<String> {
        let Monitor { system, interval, child, input, state, done, .. } = self;
        // What there was before it was told to end.
        let wrong = with(&state, |state| {
            let silent = now.saturating_sub(state.last.unwrap_or(0));
            let longest = (interval * 3).max(Duration::from_secs(3)).as_nanos();
            match (state.has_ended, state.last) {
                (true, None) => Some(format!("the monitor of {system} ended without a figure")),
                (true, Some(_)) => Some(format!("the monitor of {system} ended before the run")),
                (false, None) => Some(format!("the monitor of {system} gave no figure")),
                (false, Some(_)) if u128::from(silent) > longest => Some(format!(
                    "the monitor of {system} gave nothing for the last {} s",
                    silent / 1_000_000_000
                )),
                _ => None,
            }
        });
        drop((input, child));
        // Where something else holds its output open, the thread ends with this process.
        let _ = done.recv_timeout(PATIENCE);
        with(&state, |state| {
            let complaint = state.complaint.take();
            let trouble = state.trouble.take().map(|why| format!("figures of {system} are missing: {why}"));
            match (wrong.or(trouble), complaint) {
                (Some(wrong), Some(complaint)) => Some(format!("{wrong}: {complaint}")),
                (Some(wrong), None) => Some(wrong),
                (None, Some(complaint)) => Some(format!("the monitor of {system} says: {complaint}")),
                (None, None) => None,
            }
        })
    }
}

fn with<T>(state: &Mutex<State>, act: impl FnOnce(&mut State) -> T) -> T {
    act(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The figures of a line, those that are numbers; `None` where it has none.
fn figures(line: &[u8]) -> Option<Figures> {
    match serde_json::from_slice(line).ok()? {
        Value::Object(figures) => {
            let number = |(name, value): (String, Value)| Some((name, value.as_f64()?));
            Some(figures.into_iter().filter_map(number).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_none() {
        for text in ["", "x", "[1]", "3", "{\"a\":", "\u{0}"] {
            assert!(figures(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
