//! Which points of a queue are made: a file beside the runs, a line of JSON for each, written when its run has ended. A point is made
//! as long as its run is there; who removes the folder of a run has it made anew.

use super::Point;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of the file at most: a line for each of ten thousand points, many times over.
const LONGEST: u64 = 64 << 20;

/// A point that is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The point's label.
    pub point: String,
    /// SHA-256 of the scenario file as it was, and of its path.
    pub scenario: String,
    /// The id of the run.
    pub run: String,
}

/// The points of a queue that are made. One process at a time has it.
#[derive(Debug)]
pub struct State {
    file: File,
    known: Known,
}

/// The points of a queue that are made, as far as its file says so; for who only looks.
#[derive(Debug)]
pub struct Known {
    runs: PathBuf,
    made: Vec<Made>,
}

impl State {
    /// Of the queue of a name, in the folder of all runs.
    ///
    /// # Errors
    /// It cannot be read or written, or another process makes the runs of this queue.
    pub fn open(runs: &Path, name: &str) -> io::Result<State> {
        fs::create_dir_all(runs)?;
        let path = path_of(runs, name);
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(at)?;
        if !file.metadata().map_err(at)?.is_file() {
            return Err(at(io::Error::other("it is no regular file")));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(at(io::Error::other(
                    "another process makes the runs of this queue, or a run of one that was killed is about to end; try again when it has",
                )));
            }
            Err(TryLockError::Error(error)) => return Err(at(error)),
        }
        let bytes = content(&mut file).map_err(at)?;
        if bytes.last().is_some_and(|last| *last != b'\n') {
            // A line that a kill has cut.
            file.write_all(b"\n").map_err(at)?;
        }
        Ok(State { file, known: Known::of(runs, &bytes) })
    }

    /// The lock, for a run: it is held as long as either process has it.
    ///
    /// # Errors
    /// This process has too many files open.
    pub fn lock(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// What is made so far.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// A point is made by this run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, point: &Point, scenario: &[u8], run: &str) -> io::Result<()> {
        let made = Made { point: point.label(), scenario: digest(point, scenario), run: run.to_owned() };
        let line = serde_json::to_string(&made)?;
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.known.made.push(made);
        Ok(())
    }
}

impl Known {
    /// Of the queue of a name, in the folder of all runs. Nothing is written, and another process may be making runs of it.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn read(runs: &Path, name: &str) -> io::Result<Known> {
        let path = path_of(runs, name);
        match crate::runs::open(&path).and_then(|mut file| content(&mut file)) {
            Ok(bytes) => Ok(Known::of(runs, &bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Known::of(runs, &[])),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }

    fn of(runs: &Path, bytes: &[u8]) -> Known {
        // What is no line of ours says nothing.
        let lines = bytes.split(|byte| *byte == b'\n');
        Known {
            runs: runs.to_owned(),
            made: lines.filter_map(|line| serde_json::from_slice(line).ok()).collect(),
        }
    }

    /// The run of a point whose scenario is still the same, where it is made and there.
    pub fn made(&self, point: &Point, scenario: &[u8]) -> Option<&Made> {
        let (label, scenario) = (point.label(), digest(point, scenario));
        let is_it = |made: &&Made| {
            made.point == label
                && made.scenario == scenario
                && crate::runs::is_id(&made.run)
                && self.runs.join(&made.run).is_dir()
        };
        self.made.iter().rev().find(is_it)
    }
}

fn path_of(runs: &Path, name: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    runs.join(format!("{}.queue", name.chars().map(plain).collect::<String>()))
}

fn content(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other("it is no state of a queue: it is too long"));
    }
    Ok(bytes)
}

fn digest(point: &Point, scenario: &[u8]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(point.file.as_os_str().as_encoded_bytes());
    hasher.update([0]);
    hasher.update(scenario);
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_known_as_long_as_its_run_is_there() {
        let runs = std::env::temp_dir().join(format!("tidegate-queue-{}", std::process::id()));
        let point = |value: &str| Point {
            file: "a.kdl".into(),
            variables: vec![("U".into(), value.into())],
            number: Some(1),
        };
        let known = Known::read(&runs, "my queue/1").unwrap();
        assert!(known.made(&point("1"), b"old").is_none() && !runs.exists(), "who looks writes nothing");
        let mut state = State::open(&runs, "my queue/1").unwrap();
        assert!(State::open(&runs, "my queue/1").is_err(), "one process at a time");
        for run in ["r1", "r2"] {
            fs::create_dir(runs.join(run)).unwrap();
        }
        state.add(&point("1"), b"old", "r1").unwrap();
        state.add(&point("2"), b"text", "../r2").unwrap();
        state.add(&point("3"), b"text", "r2").unwrap();
        drop(state);
        // A kill has cut the last line of another one.
        let path = runs.join("my-queue-1.queue");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"point\":\"U=4").unwrap();
        let mut state = State::open(&runs, "my queue/1").unwrap();
        state.add(&point("5"), b"text", "r2").unwrap();
        drop(state);
        let _another = State::open(&runs, "my queue/1").unwrap();
        let known = Known::read(&runs, "my queue/1").unwrap();
        let made = |value: &str, text: &[u8]| known.made(&point(value), text).map(|made| made.run.as_str());
        assert_eq!(made("1", b"old"), Some("r1"));
        assert_eq!(made("1", b"text"), None, "the scenario is another one");
        assert_eq!(made("2", b"text"), None, "no way out of the folder");
        assert_eq!((made("3", b"text"), made("4", b"text")), (Some("r2"), None));
        assert_eq!(made("5", b"text"), Some("r2"));
        fs::remove_dir(runs.join("r2")).unwrap();
        assert_eq!(made("3", b"text"), None);
        fs::remove_dir_all(&runs).unwrap();
    }
}
