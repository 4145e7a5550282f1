//! Runs that are kept: a folder each, in one folder of all. The folders are the truth.
//!
//! `keep` makes the folder of a run, while it goes on, and `stored` reads it, by `files`; `index` saves reading all of them again.
//! `seconds` and `monitors` read what was written by time, `differ` tells runs apart, `pages` draws them.

mod differ;
mod files;
mod index;
mod keep;
mod monitors;
pub mod pages;
mod seconds;
mod stored;
mod write;

pub use differ::{Changed, Compared, Difference};
pub(crate) use files::{bytes_of, open, text_of};
pub use index::{INDEX, Listing};
pub use keep::Keep;
pub use keep::RUNNING;
pub(crate) use keep::{SCENARIO, SCRIPT, SUMMARY};
pub use monitors::{FIGURES, Monitor, monitors};
pub use seconds::{Second, Seconds, head, of_requests, row};
pub use stored::{Operation, Row, Run, Status, UnknownStatus};
pub(crate) use write::{environment, pretty};
pub use write::{keep_requests, keep_search};

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tidegate_http::HttpDate;

/// The variable that names the folder of all runs.
pub const VARIABLE: &str = "TIDEGATE_RUNS";
/// That folder where nobody says another, in the folder of the command.
pub const FOLDER: &str = "runs";
/// The run that was begun last, where one is to be named.
pub const LAST: &str = "last";
/// Characters of the name of a run in its id, at most.
const NAME: usize = 40;

/// A folder of runs.
#[derive(Debug, Clone)]
pub struct Runs {
    folder: PathBuf,
}

/// What is wrong with kept runs.
#[derive(Debug, Error)]
pub enum RunsError {
    /// A folder or a file of it cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    /// There is no such run.
    #[error("{} holds no run `{run}`; `tidegate bench ls` lists them", folder.display())]
    Unknown {
        /// As it was named.
        run: String,
        /// Of all runs.
        folder: PathBuf,
    },
    /// A part of an id leads to several.
    #[error("`{run}` may be {}; write more of it", ids.join(", "))]
    Several {
        /// As it was named.
        run: String,
        /// Those that it fits.
        ids: Vec<String>,
    },
    /// A folder that is no run, or is one no more.
    #[error("{}: {why}", folder.display())]
    Broken {
        /// Of the run.
        folder: PathBuf,
        /// A sentence.
        why: String,
    },
}

impl Runs {
    /// Those of this folder, which need not be there.
    pub fn new(folder: impl Into<PathBuf>) -> Runs {
        Runs { folder: folder.into() }
    }

    /// Where they lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a folder for a run of this name that began at `started`, wall-clock seconds since 1970. Its name is the id.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self, name: &str, started: f64) -> io::Result<PathBuf> {
        let at = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("cannot make {}: {error}", path.display()))
        };
        fs::create_dir_all(&self.folder).map_err(|error| at(&self.folder, error))?;
        let id = id(name, started);
        for number in 1.. {
            let path = self.folder.join(if number == 1 { id.clone() } else { format!("{id}-{number}") });
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map_err(|error| at(&path, error)).map(|()| path),
            }
        }
        unreachable!("numbers do not end")
    }

    /// The run of an id, or of a part that no other has, or [`LAST`]; or of a folder, where the text holds a `/`.
    ///
    /// # Errors
    /// [`RunsError`]: there is none, there are several, or it cannot be read.
    pub fn find(&self, run: &str) -> Result<Run, RunsError> {
        if run.contains('/') {
            return Run::read(Path::new(run));
        }
        if is_id(run) && self.folder.join(run).is_dir() {
            return Run::read(&self.folder.join(run));
        }
        let listing = self.list()?;
        let unknown = || RunsError::Unknown { run: run.to_owned(), folder: self.folder.clone() };
        if run == LAST {
            let last = listing.rows.first().ok_or_else(unknown)?;
            return Run::read(&self.folder.join(&last.id));
        }
        let ids = listing.rows.iter().map(|row| &row.id).filter(|id| !run.is_empty() && id.contains(run));
        match ids.collect::<Vec<_>>().as_slice() {
            [] => Err(unknown()),
            [id] => Run::read(&self.folder.join(id)),
            several => {
                let ids = several.iter().take(4).map(|id| (*id).clone()).collect();
                Err(RunsError::Several { run: run.to_owned(), ids })
            }
        }
    }

    /// All runs, the last first, and the folders that are none.
    ///
    /// # Errors
    /// The folder is there and cannot be read.
    pub fn list(&self) -> Result<Listing, RunsError> {
        index::list(&self.folder)
    }
}

/// Whether it may be the name of a folder of a run: nothing that leads elsewhere.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\\', '\0'])
}

/// `20261124-024746-events`.
fn id(name: &str, started: f64) -> String {
    let date: String = String::from_utf8_lossy(&HttpDate(started as i64).rfc3339())
        .chars()
        .filter(|character| !matches!(character, '-' | ':' | 'Z'))
        .map(|character| if character == 'T' { '-' } else { character })
        .collect();
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }
    };
    let name: String = name.chars().map(plain).collect();
    let words: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
    let name: String = words.join("-").chars().take(NAME).collect();
    if name.is_empty() { date } else { format!("{date}-{}", name.trim_end_matches('-')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_of_folders() {
        assert_eq!(id("Events, 2nd", 1_795_488_466.9), "20261124-024746-events-2nd");
        assert_eq!(id("../../etc", 0.0), "19700101-000000-etc");
        assert_eq!(id("é", 0.0), "19700101-000000");
        for wrong in ["", ".", "..", ".x", "a/b", "a\0"] {
            assert!(!is_id(wrong), "{wrong:?}");
        }
    }
}
