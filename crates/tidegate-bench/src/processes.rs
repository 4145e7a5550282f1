//! A run over several processes, where one may not hold enough descriptors: this program starts itself with
//! the same arguments and a part each, and adds up what they tell.
//!
//! The parts begin at one moment of the monotonic clock, which all processes of a host share. They speak in
//! lines of JSON on standard output: progress while they run, the outcome at the end.

use crate::host::peak_resident;
use crate::plan::Part;
use crate::run::{Outcome, Progress, Stop};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// The argument that makes a process one part of a run: `INDEX/OF@START`.
pub const PART_ARGUMENT: &str = "--part";

/// Why the parts gave no whole.
#[derive(Debug, Error)]
pub enum ProcessesError {
    /// One could not be started.
    #[error("cannot start another process of this program: {0}")]
    Start(#[from] io::Error),
    /// One ended without an outcome.
    #[error("process {index} of the generator ended early ({status}); what it measured is lost")]
    Lost {
        /// From 0.
        index: u32,
        /// How it ended.
        status: String,
    },
}

/// A part and the moment at which it begins, monotonic nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartStart {
    /// Which.
    pub part: Part,
    /// When.
    pub start: u64,
    /// The process that it is a part of.
    pub parent: u32,
}

impl PartStart {
    /// Reads `INDEX/OF@START@PARENT`.
    pub fn parse(text: &str) -> Option<PartStart> {
        let (part, rest) = text.split_once('@')?;
        let ((index, of), (start, parent)) = (part.split_once('/')?, rest.split_once('@')?);
        let part = Part { index: index.parse().ok()?, of: of.parse().ok()? };
        let (start, parent) = (start.parse().ok()?, parent.parse().ok()?);
        (part.index < part.of).then_some(PartStart { part, start, parent })
    }
}

#[derive(Serialize, Deserialize)]
enum Line {
    Progress { number: u64, requests: u64, failed: u64, rate: f64, bytes_rate: f64, open: u32 },
    Outcome(Box<Outcome>),
}

/// Tells the parent how it goes.
pub fn tell_progress(progress: Progress) {
    write(&Line::Progress {
        number: progress.elapsed.as_nanos() as u64,
        requests: progress.requests,
        failed: progress.failed,
        rate: progress.rate,
        bytes_rate: progress.bytes_rate,
        open: progress.open,
    });
}

/// Tells the parent what it gave.
pub fn tell_outcome(outcome: Outcome) {
    write(&Line::Outcome(Box::new(outcome)));
}

fn write(line: &Line) {
    let mut out = io::stdout().lock();
    // A parent that has gone away wants nothing more.
    let _ =
        serde_json::to_writer(&mut out, line).map_err(io::Error::from).and_then(|()| out.write_all(b"\n"));
    let _ = out.flush();
}

/// Ends this process as an interrupt does when its parent is gone, however that ended (prctl(2), `PR_SET_PDEATHSIG`). `parent` is the one that
/// started it: it may be gone before the kernel is asked to look out for it.
pub fn follow_parent(parent: u32, stop: &Stop) {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::INT));
    let is_there = rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() as u32 == parent);
    if !is_there {
        stop.stop();
    }
}

/// Runs this program `count` times with `arguments` and a part each, beginning at `start`.
///
/// # Errors
/// [`ProcessesError`]; the other parts run to their end first.
pub fn run(
    arguments: &[OsString],
    count: u32,
    start: u64,
    mut observe: impl FnMut(Progress),
) -> Result<Outcome, ProcessesError> {
    let program = std::env::current_exe()?;
    let (sender, receiver) = channel();
    let mut children = Vec::new();
    for index in 0..count {
        let mut child = Command::new(&program)
            .args(arguments)
            .arg(format!("{PART_ARGUMENT}={index}/{count}@{start}@{}", std::process::id()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let sender = sender.clone();
        let output = child.stdout.take();
        thread::spawn(move || {
            for line in
                output.into_iter().flat_map(|output| BufReader::new(output).lines().map_while(Result::ok))
            {
                if let Ok(line) = serde_json::from_str::<Line>(&line) {
                    let _ = sender.send((index, line));
                }
            }
        });
        children.push(child);
    }
    drop(sender);
    let mut outcomes: Vec<Option<Outcome>> = (0..count).map(|_| None).collect();
    let mut latest = vec![Progress::default(); count as usize];
    while let Ok((index, line)) = receiver.recv() {
        match line {
            Line::Outcome(outcome) => {
                if let Some(place) = outcomes.get_mut(index as usize) {
                    *place = Some(*outcome);
                }
            }
            Line::Progress { number, requests, failed, rate, bytes_rate, open } => {
                let elapsed = Duration::from_nanos(number);
                if let Some(place) = latest.get_mut(index as usize) {
                    *place = Progress { elapsed, requests, failed, rate, bytes_rate, open };
                }
                if index == 0 {
                    observe(sum(&latest));
                }
            }
        }
    }
    let mut whole: Option<Outcome> = None;
    let mut lost = None;
    for (index, (mut child, outcome)) in (0u32..).zip(children.into_iter().zip(outcomes)) {
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        match (outcome, &mut whole) {
            (Some(outcome), Some(whole)) => whole.merge(outcome),
            (Some(outcome), whole) => *whole = Some(outcome),
            (None, _) => lost = Some(ProcessesError::Lost { index, status }),
        }
    }
    match (whole, lost) {
        (Some(mut whole), lost) => {
            whole.memory += peak_resident();
            whole.faults.extend(lost.map(|lost| lost.to_string()));
            Ok(whole)
        }
        (None, Some(lost)) => Err(lost),
        (None, None) => Err(ProcessesError::Lost { index: 0, status: "none was started".to_owned() }),
    }
}

fn sum(parts: &[Progress]) -> Progress {
    parts.iter().fold(Progress::default(), |sum, part| Progress {
        elapsed: sum.elapsed.max(part.elapsed),
        requests: sum.requests + part.requests,
        failed: sum.failed + part.failed,
        rate: sum.rate + part.rate,
        bytes_rate: sum.bytes_rate + part.bytes_rate,
        open: sum.open + part.open,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_and_its_start() {
        let expected = PartStart { part: Part { index: 1, of: 3 }, start: 77, parent: 9 };
        assert_eq!(PartStart::parse("1/3@77@9"), Some(expected));
        for bad in ["", "3/3@1@9", "1/3", "1/3@77", "a/b@c@d", "1/0@1@9"] {
            assert_eq!(PartStart::parse(bad), None, "{bad}");
        }
        let shares: Vec<u64> = (0..3).map(|index| Part { index, of: 3 }.share(10)).collect();
        assert_eq!(shares, [4, 3, 3]);
    }
}
