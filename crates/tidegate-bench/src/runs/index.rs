//! The index: the rows of all runs in an SQLite file, so that a list of thousands does not read thousands of summaries.
//!
//! It holds nothing that the folders do not say. Each list looks at the folders first and reads those that have changed; a file
//! that is damaged, of another version or not to be written is made anew, in memory at worst.

use super::keep::{RUNNING, SUMMARY};
use super::stored::{Row, Run, Status};
use super::{RunsError, is_id};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The name of the file, in the folder of all runs.
pub const INDEX: &str = "index.sqlite";
/// Of what is in it; another one is made anew.
const VERSION: i64 = 1;
/// How long another command may write.
const WAIT: Duration = Duration::from_secs(5);

/// All runs of a folder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// The last first.
    pub rows: Vec<Row>,
    /// Folders that are no runs, or broken: the name of each, and why.
    pub broken: Vec<(String, String)>,
}

/// Lists them.
pub fn list(folder: &Path) -> Result<Listing, RunsError> {
    let unreadable = |error| RunsError::Read(folder.to_owned(), error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        entries => entries.map_err(unreadable)?,
    };
    let mut ids = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_id(&name) && entry.path().is_dir() {
            ids.insert(name);
        }
    }
    let path = folder.join(INDEX);
    let listed = open(&path).and_then(|mut index| refreshed(&mut index, folder, &ids));
    let listed = listed.or_else(|error| {
        // Whatever is wrong with it, it holds nothing that is not known; but one that another command writes is sound.
        if !matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::ReadOnly)) {
            let _ = fs::remove_file(&path);
        }
        open(&path).and_then(|mut index| refreshed(&mut index, folder, &ids))
    });
    let listed = listed.or_else(|_| {
        let mut index = Connection::open_in_memory()?;
        prepare(&index)?;
        refreshed(&mut index, folder, &ids)
    });
    listed.map_err(|error| unreadable(io::Error::other(format!("the index in memory failed: {error}"))))
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let index = Connection::open(path)?;
    prepare(&index)?;
    Ok(index)
}

fn prepare(index: &Connection) -> rusqlite::Result<()> {
    index.busy_timeout(WAIT)?;
    let version: i64 = index.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != VERSION {
        index.execute_batch(&format!(
            "BEGIN IMMEDIATE; DROP TABLE IF EXISTS runs;
             CREATE TABLE runs (id TEXT PRIMARY KEY, stamp TEXT NOT NULL, started INTEGER NOT NULL, row TEXT NOT NULL) WITHOUT ROWID;
             CREATE INDEX runs_by_start ON runs (started DESC, id DESC);
             PRAGMA user_version = {VERSION}; COMMIT;"
        ))?;
    }
    Ok(())
}

/// Brings the index to what the folders say, and lists it.
fn refreshed(index: &mut Connection, folder: &Path, ids: &BTreeSet<String>) -> rusqlite::Result<Listing> {
    let change = index.transaction()?;
    let mut listing = Listing::default();
    for id in ids {
        if let Err(why) = refresh(&change, folder, id)? {
            listing.broken.push((id.clone(), why));
        }
    }
    let gone: Vec<String> = {
        let mut known = change.prepare("SELECT id FROM runs")?;
        let known = known.query_map([], |row| row.get::<_, String>(0))?;
        known.filter(|id| id.as_ref().map_or(true, |id| !ids.contains(id))).collect::<Result<_, _>>()?
    };
    for id in gone {
        change.execute("DELETE FROM runs WHERE id = ?1", [id])?;
    }
    {
        let mut rows = change.prepare("SELECT row FROM runs ORDER BY started DESC, id DESC")?;
        for row in rows.query_map([], |row| row.get::<_, String>(0))? {
            // Of another hand: the next version is made anew.
            let row = serde_json::from_str(&row?).map_err(|_| rusqlite::Error::InvalidQuery)?;
            listing.rows.push(row);
        }
    }
    change.commit()?;
    Ok(listing)
}

/// Takes a folder up where it has changed. A run that goes on, or is none, is read every time.
fn refresh(change: &Transaction<'_>, folder: &Path, id: &str) -> rusqlite::Result<Result<(), String>> {
    let path = folder.join(id);
    let stamp = stamp(&path);
    let known = change.query_row("SELECT stamp FROM runs WHERE id = ?1", [id], |row| row.get::<_, String>(0));
    if stamp.is_some() && known.optional()? == stamp {
        return Ok(Ok(()));
    }
    let run = match Run::read(&path) {
        Ok(run) => run,
        Err(error) => {
            change.execute("DELETE FROM runs WHERE id = ?1", [id])?;
            return Ok(Err(match error {
                RunsError::Broken { why, .. } => why,
                other => other.to_string(),
            }));
        }
    };
    let stamp = stamp.filter(|_| matches!(run.status, Status::Done(_))).unwrap_or_default();
    let row = serde_json::to_string(&run.row).map_err(|_| rusqlite::Error::InvalidQuery)?;
    change.execute(
        "INSERT OR REPLACE INTO runs (id, stamp, started, row) VALUES (?1, ?2, ?3, ?4)",
        params![id, stamp, run.row.started, row],
    )?;
    Ok(Ok(()))
}

/// When the summary was written, and how long it is; nothing where the run is not whole.
fn stamp(run: &Path) -> Option<String> {
    if run.join(RUNNING).exists() {
        return None;
    }
    let summary = fs::metadata(run.join(SUMMARY)).ok()?;
    let changed = summary.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}-{}", changed.as_nanos(), summary.len()))
}

#[cfg(test)]
mod tests {
    use super::super::{Keep, Runs, head};
    use super::*;
    use serde_json::{Value, json};
    use std::path::PathBuf;

    /// A folder that goes with the test.
    struct Ground(PathBuf);

    impl Ground {
        fn new(name: &str) -> Ground {
            let path = std::env::temp_dir().join(format!("tidegate-runs-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Ground(path)
        }
    }

    impl Drop for Ground {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn summary(verdict: &str, rate: f64) -> Value {
        let about = json!({ "date": "Tue, 24 Nov 2026 02:47:46 GMT" });
        json!({ "scenario": "shop", "verdict": verdict, "rate": rate, "about": about })
    }

    fn kept(runs: &Runs, started: f64, summary: &Value) -> PathBuf {
        let path = runs.make("shop", started).unwrap();
        let keep = Keep::begin(&path, &json!({ "scenario": "shop" }), &[], head()).unwrap();
        keep.finish(&[("summary.json", summary.to_string().into_bytes())]).unwrap();
        path
    }

    fn verdicts(runs: &Runs) -> Vec<String> {
        runs.list().unwrap().rows.into_iter().map(|row| row.verdict).collect()
    }

    #[test]
    fn the_folders_are_the_truth() {
        let ground = Ground::new("truth");
        let runs = Runs::new(ground.0.join("runs"));
        assert_eq!(runs.list().unwrap(), Listing::default());
        let first = kept(&runs, 1.0, &summary("PASS", 5.0));
        let second = kept(&runs, 1.0, &summary("FAIL", 6.0));
        assert_eq!(verdicts(&runs), ["FAIL", "PASS"]);
        // Written by another hand, removed, and the index lost or damaged.
        fs::write(first.join(SUMMARY), summary("INVALID", 55.0).to_string()).unwrap();
        assert_eq!(verdicts(&runs), ["FAIL", "INVALID"]);
        fs::remove_dir_all(&second).unwrap();
        assert_eq!(verdicts(&runs), ["INVALID"]);
        fs::remove_file(runs.folder().join(INDEX)).unwrap();
        assert_eq!(verdicts(&runs), ["INVALID"]);
        fs::write(runs.folder().join(INDEX), "no database at all, but longer than its head ".repeat(99))
            .unwrap();
        assert_eq!(verdicts(&runs), ["INVALID"]);
        let index = Connection::open(runs.folder().join(INDEX)).unwrap();
        index.execute("UPDATE runs SET row = 'no row'", []).unwrap();
        drop(index);
        assert_eq!(verdicts(&runs), ["INVALID"]);
        // The file cannot be: a folder has its name.
        fs::remove_file(runs.folder().join(INDEX)).unwrap();
        fs::create_dir_all(runs.folder().join(INDEX).join("x")).unwrap();
        let listing = runs.list().unwrap();
        assert_eq!((listing.rows.len(), listing.broken.len()), (1, 1));
    }

    #[test]
    fn broken_folders_are_said_and_hide_no_other() {
        let ground = Ground::new("broken");
        let runs = Runs::new(&ground.0);
        kept(&runs, 1.0, &summary("PASS", 5.0));
        for (name, content) in [("a", "{"), ("b", "{}"), ("c", "[1]")] {
            fs::create_dir(ground.0.join(name)).unwrap();
            fs::write(ground.0.join(name).join(SUMMARY), content).unwrap();
        }
        fs::create_dir(ground.0.join("d")).unwrap();
        fs::write(ground.0.join("notes.txt"), "no folder").unwrap();
        let listing = runs.list().unwrap();
        assert_eq!(listing.rows.len(), 1);
        let said: Vec<_> = listing.broken.iter().map(|(id, why)| format!("{id}: {why}")).collect();
        let wanted = [
            "a: `summary.json` is no JSON",
            "b: `summary.json` names no",
            "c: `summary.json` names no",
            "d: no run",
        ];
        assert!(said.iter().zip(wanted).all(|(said, wanted)| said.starts_with(wanted)), "{said:?}");
        assert_eq!(said.len(), wanted.len());
        assert!(matches!(runs.find("a"), Err(RunsError::Broken { .. })));
    }

    /// Nobody has the other end of a named pipe, and nobody waits for one.
    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let ground = Ground::new("pipes");
        let runs = Runs::new(ground.0.join("runs"));
        let pipe = |path: &Path| {
            use rustix::fs::{CWD, FileType, mknodat};
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let _ = fs::remove_file(path);
            mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap();
        };
        let run = kept(&runs, 1.0, &summary("PASS", 5.0));
        for name in ["environment.json", "seconds.csv", "scenario.kdl", "scenario.script.js", "report.txt"] {
            pipe(&run.join(name));
        }
        ["monitors/db.csv", "settings/web/1-x.conf", RUNNING].iter().for_each(|name| pipe(&run.join(name)));
        let read = runs.find("last").unwrap();
        assert_eq!((read.status.to_string().as_str(), read.row.rate), ("PASS", Some(5.0)));
        assert!(read.seconds().all.is_empty() && read.monitors().is_empty() && read.inputs().is_empty());
        assert!(read.report().is_none() && read.scenario().is_none());
        assert!(super::super::pages::run(&read).contains("PASS"));

        let broken = runs.folder().join("broken");
        pipe(&broken.join(SUMMARY));
        pipe(&runs.folder().join(INDEX));
        let listing = runs.list().unwrap();
        let [(id, why)] = listing.broken.as_slice() else { panic!("{listing:?}") };
        assert!(id == "broken" && why.ends_with("summary.json: it is no regular file"), "{why}");
        assert_eq!(listing.rows.len(), 1);
        let gate = crate::compare::stored_runs(&broken.join(SUMMARY), None).unwrap_err();
        assert!(gate.to_string().contains("it is no regular file"), "{gate}");

        // Nor is one written into.
        for name in [RUNNING, ".plan.txt.new"] {
            let folder = ground.0.join(name.trim_start_matches('.'));
            pipe(&folder.join(name));
            let begun = json!({ "scenario": "shop" });
            assert!(
                Keep::begin(&folder, &begun, &[("plan.txt", b"plan".to_vec())], head()).is_err(),
                "{name}"
            );
        }
    }

    /// As on a full disk: a run of which a part cannot be written is none that has passed.
    #[test]
    fn a_run_that_is_not_written_whole_is_broken_off() {
        for part in [".report.txt.new", ".report.html.new", ".summary.json.new"] {
            let ground = Ground::new(part);
            let runs = Runs::new(&ground.0);
            let path = runs.make("shop", 1.0).unwrap();
            let keep = Keep::begin(&path, &json!({ "scenario": "shop" }), &[], head()).unwrap();
            fs::create_dir(path.join(part)).unwrap();
            let summary = summary("PASS", 1.0).to_string().into_bytes();
            let files = [("report.txt", b"PASS".to_vec()), (SUMMARY, summary)];
            assert!(keep.finish(&files).is_err(), "{part}");
            assert_eq!(verdicts(&runs), ["BROKEN-OFF"], "{part}");
        }
    }

    #[test]
    fn a_run_goes_on_as_long_as_its_writer() {
        let ground = Ground::new("goes-on");
        let runs = Runs::new(&ground.0);
        let path = runs.make("shop", 1.0).unwrap();
        let begun = json!({ "scenario": "shop", "users": 3 });
        let mut keep = Keep::begin(&path, &begun, &[("plan.txt", b"plan".to_vec())], head()).unwrap();
        keep.add("0,3,4,home,5,0,1,1,1,1,0,0,0,0\n");
        assert_eq!(verdicts(&runs), ["RUNNING"]);
        assert!(Keep::begin(&path, &begun, &[], head()).unwrap_err().to_string().contains("another run"));
        let run = runs.find("last").unwrap();
        assert_eq!((run.row.users, run.seconds().all.len()), (Some(3), 1));
        // As a kill leaves it.
        drop(keep);
        assert_eq!(verdicts(&runs), ["BROKEN-OFF"]);
        let keep = Keep::begin(&path, &begun, &[], head()).unwrap();
        keep.finish(&[(SUMMARY, summary("PASS", 1.0).to_string().into_bytes())]).unwrap();
        assert_eq!(verdicts(&runs), ["PASS"]);
        // What cannot be written leaves nothing: a folder has the name of a file.
        let path = runs.make("full", 3.0).unwrap();
        fs::create_dir(path.join(".plan.txt.new")).unwrap();
        assert!(Keep::begin(&path, &begun, &[("plan.txt", b"plan".to_vec())], head()).is_err());
        assert!(!path.join(RUNNING).exists());
        fs::remove_dir_all(&path).unwrap();
        let path = runs.make("nothing", 2.0).unwrap();
        let files = [("plan.txt", b"plan".to_vec())];
        Keep::begin(&path, &begun, &files, head()).unwrap().take_back();
        assert!(!path.exists());
    }

    #[test]
    fn runs_are_found_by_a_part_of_their_id() {
        let ground = Ground::new("found");
        let runs = Runs::new(&ground.0);
        let paths = [1.0, 100.0].map(|started| kept(&runs, started, &summary("PASS", started)));
        let found = |run: &str| runs.find(run).map(|run| run.path);
        assert_eq!(found("last").unwrap(), paths[1]);
        assert_eq!(found("000001").unwrap(), paths[0]);
        assert_eq!(found(&format!("{}/", paths[0].display())).unwrap().components(), paths[0].components());
        assert!(matches!(found("shop"), Err(RunsError::Several { ids, .. }) if ids.len() == 2));
        for none in ["zebra", "", "..", "."] {
            assert!(matches!(found(none), Err(RunsError::Unknown { .. })), "{none}");
        }
    }
}
