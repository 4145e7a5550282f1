//! How much may be on its way to logs and held for them, so that one that takes nothing costs the others no line.
//!
//! The writer asks before a line is handed to its thread, and the thread before it keeps one. A log has a little room
//! that no other can take ([`OWN`]); all else comes from one pool. Of that, logs that are behind never get the last
//! third: it is for bytes that are only on their way. And each that is behind gets at most as much as is then still
//! free for the others that are: the first 8 MiB, the next 4. So nothing that some logs do uses up what is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Bytes of one log, on their way and held.
pub(super) const MOST_OF_ONE: usize = 8 << 20;
/// Bytes of each log that no other log can take.
const OWN: usize = 256 << 10;
/// Bytes of all logs together beyond their own.
const POOL: usize = 24 << 20;
/// Of these, what logs that are behind may have.
const FOR_THOSE_BEHIND: usize = 16 << 20;

/// The pool of all logs.
#[derive(Default)]
pub(super) struct Rooms {
    /// Bytes of all logs beyond what is each one's own.
    pooled: AtomicUsize,
}

/// What one log has of it.
pub(super) struct Room {
    rooms: Arc<Rooms>,
    /// Bytes handed over and neither written nor lost.
    used: AtomicUsize,
    is_behind: AtomicBool,
}

impl Room {
    pub(super) fn of(rooms: &Arc<Rooms>) -> Room {
        Room { rooms: rooms.clone(), used: AtomicUsize::new(0), is_behind: AtomicBool::new(false) }
    }

    /// Takes room for bytes. False when there is none, and then nothing is taken.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Relaxed);
        let (more, pooled) = (beyond(before, bytes), beyond(0, before.saturating_add(bytes)));
        let of_all = self.rooms.pooled.fetch_add(more, Relaxed).saturating_add(more);
        let has_room = more == 0 || self.fits(pooled, of_all);
        if !has_room {
            self.give_back(bytes);
        }
        has_room
    }

    /// Whether what it has may stay with it while it is behind.
    pub(super) fn may_hold(&self) -> bool {
        let pooled = beyond(0, self.used.load(Relaxed));
        pooled == 0 || self.fits(pooled, self.rooms.pooled.load(Relaxed))
    }

    /// `pooled` bytes are its own part of the pool, `of_all` that of all with it.
    fn fits(&self, pooled: usize, of_all: usize) -> bool {
        let is_fair = match self.is_behind.load(Relaxed) {
            true => pooled <= FOR_THOSE_BEHIND.saturating_sub(of_all),
            false => of_all <= POOL,
        };
        is_fair && pooled <= MOST_OF_ONE - OWN
    }

    /// Bytes that it had taken are written or lost.
    pub(super) fn give_back(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Relaxed);
        self.rooms.pooled.fetch_sub(beyond(before.saturating_sub(bytes), bytes), Relaxed);
    }

    /// Says whether it holds what could not be written.
    pub(super) fn is_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Relaxed);
    }
}

/// How many of so many bytes lie beyond what is a log's own, where it has others before them.
fn beyond(before: usize, bytes: usize) -> usize {
    before.saturating_add(bytes).saturating_sub(OWN.max(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 64 << 10;

    fn fill(room: &Room) -> usize {
        (0..).take_while(|_| room.take(PIECE)).count() * PIECE
    }

    #[test]
    fn each_that_is_behind_leaves_as_much_as_it_has() {
        let rooms = Arc::new(Rooms::default());
        let logs: Vec<Room> = (0..40).map(|_| Room::of(&rooms)).collect();
        let had: Vec<usize> = logs
            .iter()
            .map(|log| {
                log.is_behind(true);
                fill(log)
            })
            .collect();
        assert!((7 << 20..=MOST_OF_ONE).contains(&had[0]), "{had:?}");
        assert!((3 << 20..=5 << 20).contains(&had[1]), "{had:?}");
        assert!(had.iter().all(|had| *had >= OWN), "{had:?}");
        let healthy = Room::of(&rooms);
        assert_eq!(fill(&healthy), MOST_OF_ONE, "one that is written has all that one may have");
        assert!(rooms.pooled.load(Relaxed) <= POOL);
        healthy.give_back(MOST_OF_ONE);
        for (log, had) in logs.iter().zip(had) {
            log.give_back(had);
        }
        assert_eq!(rooms.pooled.load(Relaxed), 0, "all of it is given back");
    }

    #[test]
    fn many_that_are_not_behind_share_what_is_bounded() {
        let rooms = Arc::new(Rooms::default());
        let logs: Vec<Room> = (0..10).map(|_| Room::of(&rooms)).collect();
        let had: Vec<usize> = logs.iter().map(fill).collect();
        assert!(had.iter().sum::<usize>() <= POOL + 10 * OWN, "{had:?}");
        assert!(had.iter().all(|had| *had >= OWN), "each has what is its own: {had:?}");
        logs[0].is_behind(true);
        assert!(!logs[0].may_hold(), "what it took before it was behind is for others");
    }
}
