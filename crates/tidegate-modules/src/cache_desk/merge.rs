//! The answers of several processes as one.

use super::{CacheReply, DiskFigures, Found, StoreFigures, TierFigures, Unsearched, Verification};

/// Most broken files that are told of by name.
const NAMED: usize = 1000;

/// Adds the answer of another process to the same order; of another kind it is left out.
pub fn merge(all: &mut CacheReply, more: CacheReply) {
    match (all, more) {
        (CacheReply::Purged(all), CacheReply::Purged(more)) => {
            all.entries = all.entries.saturating_add(more.entries);
            all.is_marked |= more.is_marked;
        }
        (CacheReply::Listed(all), CacheReply::Listed(more)) => {
            add_found(all, more);
        }
        (CacheReply::Shown(all), CacheReply::Shown(more)) => add_found(all, more),
        (CacheReply::Figures(all), CacheReply::Figures(more)) => add_stores(all, more),
        (CacheReply::Verified(all), CacheReply::Verified(more)) => add_verification(all, more),
        _ => {}
    }
}

fn add_found<T>(all: &mut Found<T>, more: Found<T>) {
    all.entries.extend(more.entries);
    all.known.extend(more.known);
    add_unsearched(&mut all.unsearched, more.unsearched);
}

/// Of the slots of a folder one is enough to be told of.
fn add_unsearched(all: &mut Vec<Unsearched>, more: Vec<Unsearched>) {
    for unsearched in more {
        if !all.iter().any(|known| known.folder == unsearched.folder) {
            all.push(unsearched);
        }
    }
}

/// Adds the figures of another process.
pub fn add_stores(all: &mut Vec<StoreFigures>, more: Vec<StoreFigures>) {
    for store in more {
        match all.iter_mut().find(|known| known.store == store.store) {
            Some(known) => add(known, store),
            None => all.push(store),
        }
    }
}

fn add(all: &mut StoreFigures, more: StoreFigures) {
    add_tier(&mut all.memory, &more.memory);
    all.held += more.held;
    for disk in more.disks {
        match all.disks.iter_mut().find(|known| known.folder == disk.folder) {
            Some(known) => add_disk(known, disk),
            None => all.disks.push(disk),
        }
    }
    let (requests, others) = (&mut all.requests, more.requests);
    requests.hits += others.hits;
    requests.stale_hits += others.stale_hits;
    requests.revalidated += others.revalidated;
    requests.misses += others.misses;
    requests.passed += others.passed;
    requests.collapsed += others.collapsed;
    requests.bypassed += others.bypassed;
    all.stored += more.stored;
    all.without_room += more.without_room;
    all.broken_off += more.broken_off;
    all.fetches += more.fetches;
    all.purged += more.purged;
    for (reason, count) in more.not_stored {
        match all.not_stored.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, known)) => *known += count,
            None => all.not_stored.push((reason, count)),
        }
    }
}

fn add_tier(all: &mut TierFigures, more: &TierFigures) {
    all.entries += more.entries;
    all.bytes += more.bytes;
    all.limit += more.limit;
    add_counts(all, more);
}

fn add_counts(all: &mut TierFigures, more: &TierFigures) {
    all.evicted += more.evicted;
    all.returned += more.returned;
    all.returned_bytes += more.returned_bytes;
}

/// Each process has a part of a folder; of one that has none, and of those that have ended, only what they have counted is of interest.
fn add_disk(all: &mut DiskFigures, more: DiskFigures) {
    all.broken_pieces += more.broken_pieces;
    if more.is_of_another {
        return add_counts(&mut all.tier, &more.tier);
    }
    if all.is_of_another {
        (all.tier.entries, all.tier.bytes, all.tier.limit) = (0, 0, 0);
    }
    add_tier(&mut all.tier, &more.tier);
    if all.is_out.is_none() {
        (all.is_out, all.out_since) = (more.is_out, more.out_since);
    }
    all.is_stalled |= more.is_stalled;
    all.is_of_another = false;
}

/// Adds how far another part of a verification is.
pub(crate) fn add_verification(all: &mut Verification, more: Verification) {
    all.is_done &= more.is_done;
    all.files += more.files;
    all.files_in_all += more.files_in_all;
    all.pieces += more.pieces;
    all.broken.extend(more.broken);
    all.broken.truncate(NAMED);
    all.unread.extend(more.unread);
    all.unread.truncate(NAMED);
    add_unsearched(&mut all.unsearched, more.unsearched);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_desk::{Purged, RequestFigures};

    #[test]
    fn a_process_that_has_ended_has_counted_and_holds_nothing() {
        let tier = TierFigures { entries: 3, bytes: 10, limit: 50, evicted: 2, ..TierFigures::default() };
        let disk = DiskFigures { folder: "/c".into(), tier: tier.clone(), ..DiskFigures::default() };
        let of_one = StoreFigures {
            store: "main".into(),
            memory: tier,
            disks: vec![DiskFigures { is_out: Some("fails".into()), out_since: Some(7), ..disk.clone() }],
            fetches: 1,
            stored: 5,
            ..StoreFigures::default()
        };
        let mut ended = of_one.clone();
        ended.retire();
        let mut all = vec![ended];
        add_stores(&mut all, vec![StoreFigures { disks: vec![disk], ..of_one }]);
        let [all] = all.as_slice() else { panic!("one store") };
        assert_eq!((all.memory.bytes, all.memory.evicted, all.stored, all.fetches), (10, 4, 10, 1));
        let disk = &all.disks[0];
        assert_eq!((disk.tier.bytes, disk.tier.limit, disk.tier.evicted), (10, 50, 4));
        assert_eq!((disk.is_of_another, &disk.is_out), (false, &None));
    }

    #[test]
    fn processes_are_added_up() {
        let store = |hits, is_of_another| StoreFigures {
            store: "main".into(),
            memory: TierFigures { entries: 1, bytes: 10, limit: 100, evicted: 2, ..TierFigures::default() },
            disks: vec![DiskFigures {
                folder: "/c".into(),
                tier: TierFigures {
                    entries: if is_of_another { 0 } else { 7 },
                    limit: 50,
                    evicted: 1,
                    ..TierFigures::default()
                },
                is_of_another,
                ..DiskFigures::default()
            }],
            requests: RequestFigures { hits, ..RequestFigures::default() },
            not_stored: vec![("private".into(), 1)],
            ..StoreFigures::default()
        };
        let mut all = CacheReply::Figures(vec![store(3, true)]);
        merge(&mut all, CacheReply::Figures(vec![store(4, false)]));
        merge(&mut all, CacheReply::Figures(vec![store(5, true)]));
        let CacheReply::Figures(stores) = all else { panic!("figures") };
        let [one] = stores.as_slice() else { panic!("one store") };
        assert_eq!((one.requests.hits, one.memory.limit, one.memory.entries), (12, 300, 3));
        assert_eq!(
            (one.disks[0].tier.entries, one.disks[0].tier.limit, one.disks[0].tier.evicted),
            (7, 50, 3),
            "one process has the folder, and others had it"
        );
        assert_eq!(one.not_stored, [("private".to_owned(), 3)]);
        let mut purged = CacheReply::Purged(Purged { entries: 1, is_marked: false });
        merge(&mut purged, CacheReply::Purged(Purged { entries: 2, is_marked: true }));
        merge(&mut purged, CacheReply::Listed(Found::default()));
        assert_eq!(purged, CacheReply::Purged(Purged { entries: 3, is_marked: true }));
    }
}
