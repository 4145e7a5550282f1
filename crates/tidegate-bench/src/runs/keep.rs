//! The folder of a run while it goes on: what is known before, a line for each second, and all of it at the end.
//!
//! [`RUNNING`] is locked as long as its writer lives, and gone when the run is whole. So a reader knows a run that goes on from
//! one whose process was killed, without a process id that another may have.

use super::files::options;
use super::{Run, pages};
use crate::systems::{LOGS, SETTINGS, STEPS};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file that a run has while it goes on: what a summary says that is known before, and `seconds`, how long it should take.
pub const RUNNING: &str = "running";
/// The file of its seconds.
pub(super) const SECONDS: &str = "seconds.csv";
/// The file of its results.
pub(crate) const SUMMARY: &str = "summary.json";

/// The script of its scenario.
pub(crate) const SCRIPT: &str = "scenario.script.js";
/// The scenario.
pub(crate) const SCENARIO: &str = "scenario.kdl";
/// The report as a page.
const PAGE: &str = "report.html";
/// The folder of figures of its systems.
pub(super) const MONITORS: &str = "monitors";
/// What runs of any kind write. The scenario is not among them: where a run is written beside it, it is its maker's.
const WRITTEN: [&str; 8] =
    [SUMMARY, SCRIPT, "plan.txt", "environment.json", "operations.hlog", "requests.hlog", "report.txt", PAGE];

/// The folder of a run that goes on.
#[derive(Debug)]
pub struct Keep {
    folder: PathBuf,
    running: File,
    seconds: File,
    /// The names of what was written before.
    begun: Vec<String>,
    /// A line could not be written while the run went on. That is no reason to end it: all of them are written again at its end.
    is_cut: bool,
}

impl Keep {
    /// Begins one in `folder`, which is made where it is not there: with what is known (`begun`), files, and the heading of
    /// the seconds.
    ///
    /// # Errors
    /// What cannot be written, with its path.
    pub fn begin(folder: &Path, begun: &Value, files: &[(&str, Vec<u8>)], heading: &str) -> io::Result<Keep> {
        fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
        let path = folder.join(RUNNING);
        let mut running =
            options().write(true).create(true).truncate(false).open(&path).map_err(|e| at(&path, &e))?;
        if running.try_lock().is_err() {
            let why = "another run is writing into this folder".to_owned();
            return Err(io::Error::other(format!("{}: {why}", folder.display())));
        }
        // Where a run is written beside its scenario, that is its maker's.
        let has_scenario = folder.join(SCENARIO).exists();
        let names = files.iter().map(|(name, _)| *name).filter(|name| *name != SCENARIO || !has_scenario);
        let seconds = fill(folder, &mut running, begun, files, heading).inspect_err(|_| {
            // A folder that holds no run would be told of in every list.
            take_back(folder, names.clone());
        })?;
        let begun = names.map(str::to_owned).collect();
        Ok(Keep { folder: folder.to_owned(), running, seconds, begun, is_cut: false })
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds the lines of a second.
    pub fn add(&mut self, lines: &str) {
        if !self.is_cut {
            self.is_cut = self.seconds.write_all(lines.as_bytes()).is_err();
        }
    }

    /// Writes what the run gave, all of its seconds again, and its page. The summary comes last: who sees it finds the rest.
    ///
    /// # Errors
    /// What cannot be written, with its path. Then the run is one that was broken off: what was written before is there, nothing is
    /// there by half.
    pub fn finish(self, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
        for (name, content) in files.iter().filter(|(name, _)| *name != SUMMARY) {
            write(&self.folder, name, content)?;
        }
        for (name, content) in files.iter().filter(|(name, _)| *name == SUMMARY) {
            let run = Run::concluded(&self.folder, serde_json::from_slice(content)?)?;
            write(&self.folder, PAGE, pages::run(&run).as_bytes())?;
            write(&self.folder, name, content)?;
        }
        fs::remove_file(self.folder.join(RUNNING)).map_err(|error| at(&self.folder.join(RUNNING), &error))?;
        drop(self.running);
        Ok(())
    }

    /// Takes back what was begun: nothing was run. Only what [`Keep::begin`] has written goes.
    pub fn take_back(self) {
        take_back(&self.folder, self.begun.iter().map(String::as_str));
    }
}

/// Writes what is known before a run. Gives the file of its seconds.
fn fill(
    folder: &Path,
    running: &mut File,
    begun: &Value,
    files: &[(&str, Vec<u8>)],
    heading: &str,
) -> io::Result<File> {
    let path = folder.join(RUNNING);
    running
        .set_len(0)
        .and_then(|()| running.write_all(format!("{begun:#}\n").as_bytes()))
        .map_err(|error| at(&path, &error))?;
    clear(folder);
    for (name, content) in files {
        write(folder, name, content)?;
    }
    let path = folder.join(SECONDS);
    let mut seconds = create(&path).map_err(|error| at(&path, &error))?;
    seconds.write_all(heading.as_bytes()).map_err(|error| at(&path, &error))?;
    Ok(seconds)
}

/// Removes what a run that was here before has written: nothing of it is of this one. What is not ours stays.
fn clear(folder: &Path) {
    for name in WRITTEN {
        let _ = fs::remove_file(folder.join(name));
    }
    let is_table = |file: &Path| file.extension().is_some_and(|ending| ending == "csv");
    clear_files(&folder.join(MONITORS), is_table);
    let name_of =
        |file: &Path| file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // Copies begin with a number; see `systems::conduct`.
    let is_copy = move |file: &Path| {
        let name = name_of(file);
        let number = name.split_once('-').map(|(number, _)| number.to_owned());
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_output =
        move |file: &Path| is_copy(file) || STEPS.iter().any(|step| name_of(file) == format!("{step}.txt"));
    for (of, is_ours) in [(LOGS, &is_output as &dyn Fn(&Path) -> bool), (SETTINGS, &is_copy)] {
        for system in fs::read_dir(folder.join(of)).into_iter().flatten().flatten() {
            clear_files(&system.path(), is_ours);
        }
        let _ = fs::remove_dir(folder.join(of));
    }
}

/// Removes the files of a folder that are ours, and the folder where nothing is left of it.
fn clear_files(folder: &Path, is_ours: impl Fn(&Path) -> bool) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if is_ours(&file) {
            let _ = fs::remove_file(file);
        }
    }
    let _ = fs::remove_dir(folder);
}

fn take_back<'n>(folder: &Path, names: impl Iterator<Item = &'n str>) {
    names.chain([SECONDS, RUNNING]).for_each(|name| drop(fs::remove_file(folder.join(name))));
    // It stays where it holds anything else.
    let _ = fs::remove_dir(folder);
}

/// A file by way of another name: a reader sees the old one or the new one, and where the disk is full no half one.
pub(super) fn write(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let (path, new) = (folder.join(name), folder.join(format!(".{name}.new")));
    let written = create(&new).and_then(|mut file| file.write_all(content));
    written.and_then(|()| fs::rename(&new, &path)).map_err(|error| {
        let _ = fs::remove_file(&new);
        at(&path, &error)
    })
}

fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}
