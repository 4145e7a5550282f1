//! Journals that were cut and changed: every record that is read is one that was written.

use super::*;
use index::Stored;
use journal::{Journal, Record};
use std::collections::BTreeMap;
use std::os::fd::AsFd;

fn record(number: u32) -> Stored {
    let id = Id { hash: u128::from(number) << 64 | 5, serial: number };
    Stored {
        id,
        mark: u64::from(number) * 3,
        variant: number % 3,
        stored_at: number,
        size: 8192 + u64::from(number),
        uses: (number % 4) as u8,
        is_main: number.is_multiple_of(2),
        is_whole: true,
        is_trusted: true,
    }
}

fn slot(folder: &Folder) -> std::os::fd::OwnedFd {
    fs::File::open(&folder.0).unwrap().into()
}

fn read(slot: &std::os::fd::OwnedFd) -> journal::Found {
    let mut found = journal::read(slot.as_fd(), BOOT);
    // As in a slot that was made just now.
    found.is_whole |= numbers_of_files(slot) == 0;
    found
}

fn numbers_of_files(slot: &std::os::fd::OwnedFd) -> usize {
    folder::names(slot).unwrap().len()
}

#[test]
fn the_last_word_on_each_object_holds() {
    let folder = Folder::new("words");
    let slot = slot(&folder);
    let mut model = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(2);
    for round in 0..6 {
        let found = read(&slot);
        assert!(found.is_whole, "round {round}");
        let by_id: BTreeMap<u32, Stored> =
            found.stored.iter().map(|stored| (stored.id.serial, *stored)).collect();
        assert_eq!((&by_id, found.stored.len()), (&model, model.len()), "round {round}");
        let mut journal = Journal::begin(slot.as_fd(), BOOT, &found).unwrap();
        for _ in 0..300 {
            let stored = record(random.u32(..200));
            if random.bool() {
                journal.note(&Record::Stored(stored));
                model.insert(stored.id.serial, stored);
            } else {
                journal.note(&Record::Removed(stored.id));
                model.remove(&stored.id.serial);
            }
            if random.u8(..) < 30 {
                journal.flush().unwrap();
            }
        }
        journal.flush().unwrap();
        if round % 2 == 1 {
            let mut snapshot = journal.turn(slot.as_fd(), false).unwrap();
            model.values().for_each(|stored| snapshot.add(stored));
            let bytes = snapshot.finish(slot.as_fd()).unwrap();
            journal.has_snapshot(slot.as_fd(), bytes);
            let files = fs::read_dir(&folder.0).unwrap().count();
            assert_eq!(files, 2, "the snapshot and the journal after it");
        }
    }
}

#[test]
fn a_torn_journal_is_read_up_to_the_tear() {
    let folder = Folder::new("torn");
    let slot = slot(&folder);
    let mut journal = Journal::begin(slot.as_fd(), BOOT, &read(&slot)).unwrap();
    for number in 0..5 {
        journal.note(&Record::Stored(record(number + 1)));
        journal.flush().unwrap();
    }
    let path = folder.0.join("journal-1");
    let bytes = fs::read(&path).unwrap();
    assert!(read(&slot).is_whole);
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let found = read(&slot);
        let whole = cut.saturating_sub(32) / 56;
        assert_eq!(found.stored, (1..=whole as u32).map(record).collect::<Vec<_>>(), "cut at {cut}");
        assert_eq!(found.is_whole, cut >= 32 && (cut - 32) % 56 == 0, "cut at {cut}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&path, &changed).unwrap();
        let found = read(&slot);
        assert!(!found.is_whole, "byte {at}");
        let is_read =
            |stored: &Stored| *stored == Stored { is_trusted: stored.is_trusted, ..record(stored.stored_at) };
        assert!(found.stored.iter().all(is_read), "byte {at}");
    }
    for start in (32..bytes.len()).step_by(8) {
        let mut zeroed = bytes.clone();
        zeroed[start..].fill(0);
        fs::write(&path, &zeroed).unwrap();
        let found = read(&slot);
        assert!(!found.is_whole && found.stored.len() <= (start - 32) / 56, "zeros from {start}");
    }
}

#[test]
fn a_snapshot_that_is_not_whole_says_so() {
    let folder = Folder::new("snapshots");
    let slot = slot(&folder);
    let mut journal = Journal::begin(slot.as_fd(), BOOT, &read(&slot)).unwrap();
    let mut snapshot = journal.turn(slot.as_fd(), false).unwrap();
    (0..3).for_each(|number| snapshot.add(&record(number)));
    let length = snapshot.finish(slot.as_fd()).unwrap();
    journal.has_snapshot(slot.as_fd(), length);
    let path = folder.0.join("index-2");
    let bytes = fs::read(&path).unwrap();
    assert_eq!((length, journal::snapshot_length(3)), (bytes.len() as u64, bytes.len() as u64));
    assert!(read(&slot).is_whole && read(&slot).stored.len() == 3);
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        assert!(!read(&slot).is_whole, "cut at {cut}");
    }
    assert!(journal::read(slot.as_fd(), OTHER_BOOT).stored.iter().all(|stored| !stored.is_trusted));
}
