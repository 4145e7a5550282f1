//! Files of figures, `monitors/<system>.csv` of the folder of a run, as they are written while it goes on: by monitors (`watch`), and by
//! machines that tell theirs another way ([`Tables`]: agents).

use super::System;
use super::figures::{Figures, plain};
use crate::runs::FIGURES;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of a file of figures, at most: a day of a large machine.
const FILE: u64 = 1 << 30;

/// The file of a system's figures in the folder of a run.
pub(super) fn path_of(run: &Path, system: &str) -> PathBuf {
    run.join("monitors").join(format!("{}.csv", plain(system)))
}

/// Figures of machines that are no systems of the scenario.
#[derive(Debug)]
pub struct Tables {
    run: PathBuf,
    /// Names of files that systems of the scenario have.
    taken: Vec<String>,
    /// By system; none where it could not be written.
    tables: BTreeMap<String, Option<Table>>,
    notes: Vec<String>,
}

impl Tables {
    /// For the folder of a run of a scenario with these systems.
    pub fn new(run: &Path, systems: &[System]) -> Tables {
        let taken = systems.iter().map(|system| plain(&system.name)).collect();
        Tables { run: run.to_owned(), taken, tables: BTreeMap::new(), notes: Vec::new() }
    }

    /// Adds what a machine was like, seconds from the start of the run. What cannot be written ends its file, and is a note.
    pub fn add(&mut self, system: &str, at: f64, figures: &Figures) {
        if !self.tables.contains_key(system) {
            let mut name = system.to_owned();
            while self.taken.contains(&plain(&name)) {
                name.insert(0, '_');
            }
            self.taken.push(plain(&name));
            let begun = Table::new(path_of(&self.run, &name));
            let table = begun.map_err(|error| self.note(system, &error)).ok();
            self.tables.insert(system.to_owned(), table);
        }
        let Some(place) = self.tables.get_mut(system) else { return };
        if let Some(table) = place
            && let Err(error) = table.add(at, figures)
        {
            *place = None;
            self.note(system, &error);
        }
    }

    fn note(&mut self, system: &str, error: &io::Error) {
        self.notes.push(format!("figures of {} are missing: {error}", plain(system)));
    }

    /// What was wrong, a sentence each.
    pub fn finish(self) -> Vec<String> {
        self.notes
    }
}

/// A file of figures that grows. Its heading is written anew when a figure comes that was not there before; lines from before it are
/// shorter.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    file: File,
    columns: Vec<String>,
    written: u64,
}

impl Table {
    /// Begins one; its folder is made where there is none.
    pub fn new(path: PathBuf) -> io::Result<Table> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut file = File::create(&path)?;
        file.write_all(b"at\n")?;
        Ok(Table { path, file, columns: Vec::new(), written: 3 })
    }

    pub fn add(&mut self, at: f64, figures: &Figures) -> io::Result<()> {
        let is_new = |(name, _): &&(String, f64)| !self.columns.contains(name) && is_name(name);
        let places = FIGURES.saturating_sub(self.columns.len());
        let new = figures.iter().filter(is_new).take(places);
        let new: Vec<String> = new.map(|(name, _)| name.clone()).collect();
        if !new.is_empty() {
            self.columns.extend(new);
            self.head()?;
        }
        let values: HashMap<&str, f64> =
            figures.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let mut line = format!("{at:.3}");
        for column in &self.columns {
            line.push(',');
            if let Some(value) = values.get(column.as_str()) {
                // Six digits behind the point are enough for a share, and none are needed by bytes.
                let value = (value * 1e6).round() / 1e6;
                line.push_str(&value.to_string());
            }
        }
        line.push('\n');
        self.written = self.written.saturating_add(line.len() as u64);
        if self.written > FILE {
            return Err(io::Error::other("there are more figures than a file of a run may hold"));
        }
        self.file.write_all(line.as_bytes())
    }

    /// Puts the heading before what there is, by way of another name: a reader sees the old file or the new one.
    fn head(&mut self) -> io::Result<()> {
        let before = fs::read(&self.path)?;
        let lines = memchr::memchr(b'\n', &before).map_or(before.len(), |at| at + 1);
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(format!("at,{}\n", self.columns.join(",")).as_bytes())?;
        file.write_all(before.get(lines..).unwrap_or_default())?;
        fs::rename(&new, &self.path)?;
        self.file = file;
        Ok(())
    }
}

/// Whether a table can have it as a heading.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=200).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::Place;

    fn figures(list: &[(&str, f64)]) -> Figures {
        list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tidegate-systems-{name}-{}", std::process::id()))
    }

    #[test]
    fn figures_that_come_later_have_a_column_too() {
        let folder = folder("table");
        let path = folder.join("web.csv");
        let mut table = Table::new(path.clone()).unwrap();
        table.add(1.0, &figures(&[("a.x", 1.0), ("a.y", 0.5)])).unwrap();
        let later = [("a.y", 0.123_456_7), ("b", 3.0), ("bad,name", 1.0), ("", 1.0)];
        table.add(2.0, &figures(&later)).unwrap();
        table.add(3.0, &figures(&[("b", 4.0)])).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "at,a.x,a.y,b\n1.000,1,0.5\n2.000,,0.123457,3\n3.000,,,4\n");
        let many: Figures = (0..5_000).map(|number| (format!("n{number}"), f64::from(number))).collect();
        table.add(4.0, &many).unwrap();
        assert_eq!(table.columns.len(), FIGURES);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_machine_that_is_called_like_a_system_has_a_file_of_its_own() {
        let folder = folder("tables");
        let system = System {
            name: "agent 1".into(),
            place: Place::Here,
            watched: None,
            before: Vec::new(),
            stop: None,
            collect: Vec::new(),
        };
        let mut tables = Tables::new(&folder, &[system]);
        for at in [1.0, 2.0] {
            tables.add("agent 1", at, &figures(&[("x", 1.0)]));
            tables.add("../agent/2", at, &figures(&[("x", 2.0)]));
        }
        let text = |name: &str| fs::read_to_string(folder.join("monitors").join(name)).unwrap();
        assert_eq!(text("_agent_1.csv"), "at,x\n1.000,1\n2.000,1\n");
        assert_eq!(text(".._agent_2.csv"), "at,x\n1.000,2\n2.000,2\n");
        assert!(tables.finish().is_empty());
        fs::remove_dir_all(&folder).unwrap();

        // A file where the folder would be.
        fs::write(&folder, "x").unwrap();
        let mut tables = Tables::new(&folder, &[]);
        (0..3).for_each(|at| tables.add("a", f64::from(at), &figures(&[("x", 1.0)])));
        let notes = tables.finish();
        assert!(notes.len() == 1 && notes[0].starts_with("figures of a are missing: "), "{notes:?}");
        fs::remove_file(&folder).unwrap();
    }
}
