//! All files of all disks read and compared with their checksums, on a thread of its own, while operators ask how far it is.

use crate::cache_desk::Verification;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tidegate_cache::{Store, Verified};
use tidegate_io::locking::lock;

/// Files that are told of by name.
const NAMED: usize = 1000;

/// Verifications that are under way or at their end, by the store that was named; `None`: of all of them.
#[derive(Default)]
pub(super) struct Verifying(Mutex<HashMap<Option<String>, Arc<Mutex<Verification>>>>);

impl Verifying {
    /// Begins one, unless it is under way, and says how far it is. One that has ended is told of once.
    pub(super) fn ask(&self, store: Option<&str>, stores: impl FnOnce() -> Vec<Arc<Store>>) -> Verification {
        let mut under_way = lock(&self.0);
        let name = store.map(str::to_owned);
        let progress = under_way.entry(name.clone()).or_insert_with(|| begin(stores()));
        let told = lock(progress).clone();
        if told.is_done {
            under_way.remove(&name);
        }
        told
    }
}

fn begin(stores: Vec<Arc<Store>>) -> Arc<Mutex<Verification>> {
    let progress = Arc::new(Mutex::new(Verification::default()));
    let told = progress.clone();
    let thread = std::thread::Builder::new().name("tidegate-verify".into());
    let started = thread.spawn(move || {
        for store in stores {
            let before = lock(&told).files_in_all;
            store.verify_disks(|verified, in_all| {
                note(&mut lock(&told), verified, before + in_all);
            });
        }
        lock(&told).is_done = true;
    });
    if started.is_err() {
        lock(&progress).is_done = true;
    }
    progress
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

    #[test]
    fn one_store_is_not_told_of_another() {
        let verifying = Verifying::default();
        let of_one = Arc::new(Mutex::new(Verification { files: 7, ..Verification::default() }));
        lock(&verifying.0).insert(Some("one".into()), of_one.clone());
        assert_eq!(verifying.ask(Some("one"), || panic!("under way")).files, 7);
        assert_eq!(verifying.ask(Some("other"), Vec::new).files, 0);
        lock(&of_one).is_done = true;
        assert!(verifying.ask(Some("one"), || panic!("under way")).is_done);
        assert!(!lock(&verifying.0).contains_key(&Some("one".into())), "told once");
    }
}
