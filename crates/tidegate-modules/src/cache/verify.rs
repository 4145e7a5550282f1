//! All files of all disks read and compared with their checksums, each disk on a thread of its own, while operators ask how far it is.
//!
//! A disk that does not answer is not waited for: it is told of, and its thread ends once it answers.

use super::disk_search::why_not;
use crate::cache_desk::Verification;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tidegate_cache::{Store, Verified};
use tidegate_io::locking::lock;

/// Files that are told of by name.
const NAMED: usize = 1000;

/// Runs that are told of one verification; who asks more of them begins anew.
const MOST_RUNS: usize = 64;

/// Verifications that are under way or have ended, by the store that was named; `None`: of all of them.
#[derive(Default)]
pub(super) struct Verifying(Mutex<HashMap<Option<String>, UnderWay>>);

/// One verification.
struct UnderWay {
    /// The runs of `verify` that ask for it, as they name themselves.
    runs: Vec<u64>,
    parts: Vec<Arc<Part>>,
    /// What it came to. It stays, for the same runs: other processes may have more to read, and until all have ended each is asked again.
    ended: Option<Verification>,
}

/// One disk.
struct Part {
    store: Arc<Store>,
    disk: u16,
    /// `is_done` once the thread has ended; all that follows is of this disk.
    told: Mutex<Verification>,
    /// Nobody waits any longer.
    is_over: AtomicBool,
}

impl Verifying {
    /// Begins one, unless it is under way or this run has begun it, and says how far it is. A run is told of its end as often as it asks;
    /// 0 is none, and begins anew.
    pub(super) fn ask(
        &self,
        store: Option<&str>,
        run: u64,
        stores: impl FnOnce() -> Vec<Arc<Store>>,
    ) -> Verification {
        let mut known = lock(&self.0);
        let name = store.map(str::to_owned);
        if known.get(&name).is_some_and(|known| known.ended.is_some() && !known.runs.contains(&run)) {
            known.remove(&name);
        }
        let verification = known.entry(name).or_insert_with(|| UnderWay {
            runs: Vec::new(),
            parts: begin(&stores()),
            ended: None,
        });
        verification.told_to(run)
    }
}

impl UnderWay {
    fn told_to(&mut self, run: u64) -> Verification {
        if run != 0 && !self.runs.contains(&run) {
            self.runs.push(run);
            self.runs.drain(..self.runs.len().saturating_sub(MOST_RUNS));
        }
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let mut told = Verification { is_done: true, ..Verification::default() };
        for part in &self.parts {
            crate::cache_desk::add_verification(&mut told, part.told());
        }
        if told.is_done {
            self.parts.drain(..).for_each(|part| part.is_over.store(true, Relaxed));
            self.ended = Some(told.clone());
        }
        told
    }
}

impl Part {
    /// How far it is. What does not answer is at its end.
    fn told(&self) -> Verification {
        let mut told = lock(&self.told).clone();
        if !told.is_done && self.store.is_disk_stalled(self.disk) {
            told.is_done = true;
            told.unsearched.extend(self.why_not());
        }
        told
    }

    fn why_not(&self) -> Option<crate::cache_desk::Unsearched> {
        why_not(self.store.disk_figures().into_iter().nth(self.disk.into())?)
    }

    fn carry_out(&self) {
        let are_all = self.store.verify_disk(self.disk, |verified, in_all| {
            note(&mut lock(&self.told), verified, in_all);
            !self.is_over.load(Relaxed)
        });
        let unsearched = if are_all { None } else { self.why_not() };
        let mut told = lock(&self.told);
        told.unsearched.extend(unsearched);
        told.is_done = true;
    }
}

fn begin(stores: &[Arc<Store>]) -> Vec<Arc<Part>> {
    let disks = stores.iter().flat_map(|store| (0..store.disks()).map(move |disk| (store, disk)));
    let begin = |(store, disk): (&Arc<Store>, u16)| {
        let (store, told) = (store.clone(), Mutex::default());
        let part = Arc::new(Part { store, disk, told, is_over: AtomicBool::new(false) });
        let held = part.clone();
        let thread = std::thread::Builder::new().name("tidegate-verify".into());
        if thread.spawn(move || held.carry_out()).is_err() {
            let mut told = lock(&part.told);
            told.unsearched.extend(part.why_not());
            told.is_done = true;
        }
        part
    };
    disks.map(begin).collect()
}

fn note(told: &mut Verification, verified: Verified, in_all: u64) {
    told.files += 1;
    told.files_in_all = in_all.max(told.files);
    match verified {
        Verified::Sound(pieces) => told.pieces += pieces,
        Verified::Broken(path) if told.broken.len() < NAMED => told.broken.push(path),
        Verified::Unread(path, why) if told.unread.len() < NAMED => told.unread.push((path, why.to_string())),
        Verified::Broken(_) | Verified::Unread(..) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cache::Limits;

    /// Of one disk, of which so many files were read.
    fn part(files: u64) -> Arc<Part> {
        let store = Store::new("one", Limits { memory: 1 << 20, object: 1 << 20 });
        let told = Mutex::new(Verification { files, ..Verification::default() });
        Arc::new(Part { store, disk: 0, told, is_over: AtomicBool::new(false) })
    }

    fn under_way(part: &Arc<Part>) -> Verifying {
        let verification = UnderWay { runs: Vec::new(), parts: vec![part.clone()], ended: None };
        Verifying(Mutex::new(HashMap::from([(Some("one".into()), verification)])))
    }

    #[test]
    fn one_store_is_not_told_of_another() {
        let of_one = part(7);
        let verifying = under_way(&of_one);
        assert_eq!(verifying.ask(Some("one"), 1, || panic!("under way")).files, 7);
        assert_eq!(verifying.ask(Some("other"), 1, Vec::new).files, 0);
    }

    #[test]
    fn a_run_ends_once_all_processes_have_whenever_each_does() {
        let parts = [part(7), part(9)];
        let processes = parts.each_ref().map(under_way);
        let ask = |run| {
            let mut all = Verification { is_done: true, ..Verification::default() };
            for process in &processes {
                let told = process.ask(Some("one"), run, || panic!("run {run} begins anew"));
                crate::cache_desk::add_verification(&mut all, told);
            }
            (all.is_done, all.files)
        };
        lock(&parts[0].told).is_done = true;
        assert_eq!(ask(1), (false, 16));
        assert_eq!(ask(1), (false, 16), "the first has ended, and says so again");
        lock(&parts[1].told).is_done = true;
        assert_eq!(ask(1), (true, 16));
        assert!(parts.iter().all(|part| part.is_over.load(Relaxed)));
    }

    #[test]
    fn another_run_joins_what_is_under_way_and_begins_anew_what_has_ended() {
        let part = part(7);
        let verifying = under_way(&part);
        assert_eq!(verifying.ask(Some("one"), 1, || panic!("under way")).files, 7);
        assert_eq!(verifying.ask(Some("one"), 2, || panic!("under way")).files, 7);
        lock(&part.told).is_done = true;
        for run in [1, 2, 1] {
            assert!(verifying.ask(Some("one"), run, || panic!("run {run} begins anew")).is_done);
        }
        assert_eq!(verifying.ask(Some("one"), 3, Vec::new).files, 0, "begun anew");
    }
}
