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

/// Verifications that are under way or at their end, by the store that was named; `None`: of all of them.
#[derive(Default)]
pub(super) struct Verifying(Mutex<HashMap<Option<String>, Vec<Arc<Part>>>>);

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
    /// Begins one, unless it is under way, and says how far it is. One that has ended is told of once.
    pub(super) fn ask(&self, store: Option<&str>, stores: impl FnOnce() -> Vec<Arc<Store>>) -> Verification {
        let mut under_way = lock(&self.0);
        let name = store.map(str::to_owned);
        let parts = under_way.entry(name.clone()).or_insert_with(|| begin(&stores()));
        let mut told = Verification { is_done: true, ..Verification::default() };
        for part in parts {
            crate::cache_desk::add_verification(&mut told, part.told());
        }
        if told.is_done {
            let parts = under_way.remove(&name).unwrap_or_default();
            parts.iter().for_each(|part| part.is_over.store(true, Relaxed));
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

    #[test]
    fn one_store_is_not_told_of_another() {
        let verifying = Verifying::default();
        let store = Store::new("one", Limits { memory: 1 << 20, object: 1 << 20 });
        let of_one = Arc::new(Part {
            store,
            disk: 0,
            told: Mutex::new(Verification { files: 7, ..Verification::default() }),
            is_over: AtomicBool::new(false),
        });
        lock(&verifying.0).insert(Some("one".into()), vec![of_one.clone()]);
        assert_eq!(verifying.ask(Some("one"), || panic!("under way")).files, 7);
        assert_eq!(verifying.ask(Some("other"), Vec::new).files, 0);
        lock(&of_one.told).is_done = true;
        assert!(verifying.ask(Some("one"), || panic!("under way")).is_done);
        assert!(!lock(&verifying.0).contains_key(&Some("one".into())), "told once");
    }
}
