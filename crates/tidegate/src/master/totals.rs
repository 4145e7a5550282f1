//! The totals of days in a file, so that they outlive a stop: `statistics { totals }`, or the folder that the service manager
//! has for such things.
//!
//! Written every few minutes and at the end, whole and then moved into its place: a full disk costs the newest totals after
//! a stop, and a line in the log. Each time has a thread of its own, one at most, so that a file system that hangs holds up
//! nobody.

use super::kept_file::KeptFile;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_core::log;
use tidegate_io::clock::wall_seconds;
use tidegate_stats::history::Day;

/// How often they are written.
const EVERY: Duration = Duration::from_secs(300);
/// In the folder of the service manager.
const NAME: &str = "totals.json";

/// The file.
#[derive(Serialize, Deserialize)]
struct Kept {
    days: Vec<Day>,
}

/// Where these settings have the totals; `None`: nowhere.
pub fn path_for(settings: &Settings) -> Option<PathBuf> {
    let of_service = || {
        let folder = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from)?;
        folder.is_absolute().then(|| folder.join(NAME)) // several are joined by colons, and none of them is meant
    };
    let statistics = &settings.statistics;
    statistics.totals.clone().or_else(of_service).filter(|_| statistics.history)
}

/// Whether a text is what this writes.
fn is_own(text: &str) -> bool {
    serde_json::from_str::<Kept>(text).is_ok()
}

fn file(path: &Path) -> KeptFile<'_> {
    KeptFile { path, is_own }
}

/// What the file has; `None` where it cannot be used, which is said: it is not to be written then either.
pub fn load(path: &Path) -> Option<Vec<Day>> {
    let now = u64::try_from(wall_seconds()).unwrap_or(0);
    let days = file(path).read().map_err(|error| error.to_string()).and_then(|text| {
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(Vec::new()) };
        let kept: Kept = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let told = kept.days.len();
        let days = Day::checked(kept.days, now).map_err(|error| error.to_string())?;
        if days.len() < told {
            let future = told - days.len();
            log::warn(format_args!(
                "the totals of days in {} have {future} that are yet to come, which are left out",
                path.display()
            ));
        }
        Ok(days)
    });
    days.map_err(|error| {
        log::error(format_args!(
            "the totals of days begin anew and are lost by a stop: {} cannot be used and stays as it is: {error}",
            path.display()
        ));
    })
    .ok()
}

/// Writes the file.
pub fn keep(path: &Path, days: Vec<Day>) -> bool {
    let text = serde_json::to_string(&Kept { days }).map_err(std::io::Error::from);
    let written = text.and_then(|text| file(path).write(&(text + "\n")));
    if let Err(error) = &written {
        log::warn(format_args!(
            "the totals of days would be lost by a stop: {} cannot be written: {error}",
            path.display()
        ));
    }
    written.is_ok()
}

/// Writes the file every few minutes.
pub struct Totals {
    next: Mutex<Instant>,
    is_writing: Arc<AtomicBool>,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals { next: Mutex::new(Instant::now() + EVERY), is_writing: Arc::default() }
    }
}

impl Totals {
    /// Writes them when it is time: where, and which.
    pub fn look(&self, days: impl FnOnce() -> Option<(PathBuf, Vec<Day>)>) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *next {
            return;
        }
        *next = Instant::now() + EVERY;
        drop(next);
        if let Some((path, days)) = days() {
            self.begin_writing(path, days);
        }
    }

    /// Whether a thread is at it.
    #[cfg(test)]
    pub fn is_writing(&self) -> bool {
        self.is_writing.load(Relaxed)
    }

    /// Writes them now, on a thread.
    pub fn begin_writing(&self, path: PathBuf, days: Vec<Day>) {
        if self.is_writing.swap(true, Relaxed) {
            return; // the file system hangs, and the time before is still at it
        }
        let is_writing = self.is_writing.clone();
        let thread = std::thread::Builder::new().name("tidegate-totals".into());
        let started = thread.spawn(move || {
            keep(&path, days);
            is_writing.store(false, Relaxed);
        });
        if started.is_err() {
            self.is_writing.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_stats::history::DayTotals;

    fn day(day: u64, requests: u64) -> Day {
        Day { day, totals: DayTotals { requests, statuses: vec![(200, requests)], ..DayTotals::default() } }
    }

    #[test]
    fn totals_outlive_a_stop_and_what_is_wrong_with_the_file_does_not() {
        let folder = std::env::temp_dir().join(format!("tidegate-totals-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("totals.json");
        assert_eq!(load(&path), Some(Vec::new()));
        let days = vec![day(19_000, 5), day(19_001, 7)];
        assert!(keep(&path, days.clone()));
        assert_eq!(load(&path).as_ref(), Some(&days));
        // A day that is yet to come costs no other.
        let ahead = serde_json::to_string(&Kept { days: [days.clone(), vec![day(99_999_999, 1)]].concat() });
        std::fs::write(&path, ahead.unwrap()).unwrap();
        assert_eq!(load(&path).as_ref(), Some(&days));
        // What somebody else has written is not read, and not lost.
        for wrong in ["{", "{\"days\":7}", "a page", "[]"] {
            std::fs::write(&path, wrong).unwrap();
            assert_eq!(load(&path), None, "{wrong}");
            assert!(!keep(&path, days.clone()), "{wrong}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), wrong);
        }
        // Where it cannot be written nothing else happens.
        assert!(!keep(&folder.join("no/such/folder/totals.json"), days.clone()));
        std::fs::create_dir_all(folder.join("taken/below")).unwrap();
        assert!(!keep(&folder.join("taken"), days));
        assert!(folder.join("taken/below").is_dir());
        assert!(!folder.join("taken.new").exists(), "nothing is left of it");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn they_are_written_when_it_is_time() {
        let totals = Totals::default();
        totals.look(|| panic!("it is not time"));
        *totals.next.lock().unwrap() = Instant::now();
        let mut asked = 0;
        totals.look(|| {
            asked += 1;
            None
        });
        totals.look(|| panic!("it is not time again"));
        assert_eq!(asked, 1);
    }
}
