//! Bans that several servers share: who is banned by one, or let in again, is so on all of them.
//!
//! A ban is in force where it is made, at once, and told to the others a moment later, over the store that shared limits
//! use as well ([`super::nodes`]). What is told are events, in one order that the store gives them: of one client the one
//! that happened last holds. So a ban that was lifted anywhere stays lifted, also for who hears of both later. No request
//! waits for it. Which bans are shared is what the settings in force say ([`super::RateStore::settle`]): those that are only
//! prepared hear of nothing.

use super::{Bans, Client};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A client is banned, or no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanEvent {
    /// The name of the ban.
    pub ban: Arc<str>,
    /// Who.
    pub client: Client,
    /// For how long, from `at` on; `None`: it is let in again.
    pub lasts: Option<Duration>,
    /// When it happened, nanoseconds of the monotonic clock.
    pub at: u64,
}

/// The tables of bans, by their names.
pub(super) type BanTables = HashMap<Arc<str>, Arc<Bans>>;

/// The tables of the bans that are shared.
#[derive(Debug, Default)]
pub(super) struct SharedBans {
    tables: Mutex<BanTables>,
    /// One is shared that was not.
    has_new: AtomicBool,
}

impl SharedBans {
    /// From now on these are shared, and no others.
    pub(super) fn set(&self, tables: BanTables) {
        let mut present = self.tables();
        let is_known =
            |(name, bans)| present.get(name).is_some_and(|known: &Arc<Bans>| Arc::ptr_eq(known, bans));
        if !tables.iter().all(is_known) {
            self.has_new.store(true, Relaxed);
        }
        *present = tables;
    }

    /// Whether one is shared since the last question that was not before: it knows nothing of what happened until then.
    pub(super) fn take_new(&self) -> bool {
        self.has_new.swap(false, Relaxed)
    }

    /// The names of all of them.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.tables().keys().cloned().collect()
    }

    /// Whether there is one of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tables().contains_key(name)
    }

    /// Does what another server has said, or this one has before. Whether anything is another by it.
    pub(super) fn apply(&self, event: &BanEvent, now: u64) -> bool {
        let table = self.tables().get(&event.ban).cloned();
        let Some(bans) = table else { return false };
        let Some(lasts) = event.lasts else { return bans.lift(event.client, now) };
        let left = lasts.saturating_sub(Duration::from_nanos(now.saturating_sub(event.at)));
        let is_banned = bans.left(event.client, now).is_some();
        !left.is_zero() && bans.ban(event.client, left, now) && !is_banned
    }

    fn tables(&self) -> MutexGuard<'_, BanTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;

    fn table() -> Arc<Bans> {
        let [words] = memory_of(Bans::length(100));
        Arc::new(Bans::new(words, [1, 2]).unwrap())
    }

    #[test]
    fn the_last_event_holds_and_other_bans_are_left_alone() {
        let bans = table();
        let shared = SharedBans::default();
        shared.set([("b".into(), bans.clone())].into());
        let client: Client = "192.0.2.1".parse().unwrap();
        let now = 1_000_000_000_000;
        let event = |ban: &str, seconds: Option<u64>| BanEvent {
            ban: ban.into(),
            client,
            lasts: seconds.map(Duration::from_secs),
            at: now,
        };
        let left = || bans.left(client, now).map(|left| left.as_secs());
        assert!(shared.apply(&event("b", Some(60)), now));
        assert!(!shared.apply(&event("b", Some(50)), now) && left() == Some(60), "it is banned for longer");
        assert!(!shared.apply(&event("b", Some(70)), now) && left() == Some(70), "it is banned already");
        assert!(!shared.apply(&event("other", None), now));
        assert!(shared.apply(&event("b", None), now) && !shared.apply(&event("b", None), now));
        assert_eq!(left(), None);
        // It counts from when it happened.
        let before = |seconds| BanEvent { at: now - 40_000_000_000, ..event("b", Some(seconds)) };
        assert!(!shared.apply(&before(40), now) && left().is_none());
        assert!(shared.apply(&before(60), now) && left() == Some(20));
        assert_eq!(shared.names(), ["b".into()]);
        shared.set(BanTables::new());
        assert!(!shared.apply(&event("b", None), now) && shared.names().is_empty());
    }

    #[test]
    fn one_that_was_not_shared_is_new() {
        let [one, other] = [table(), table()];
        let shared = SharedBans::default();
        let set = |tables: &[(&str, &Arc<Bans>)]| {
            shared.set(tables.iter().map(|(name, bans)| (Arc::from(*name), (*bans).clone())).collect());
            (shared.take_new(), shared.take_new())
        };
        assert_eq!(set(&[]), (false, false));
        assert_eq!(set(&[("a", &one)]), (true, false));
        assert_eq!(set(&[("a", &one)]), (false, false));
        assert_eq!(set(&[("a", &one), ("b", &one)]), (true, false));
        assert_eq!(set(&[("b", &one)]), (false, false));
        assert_eq!(set(&[("b", &other)]), (true, false), "a table of its own");
        assert_eq!(set(&[("a", &one), ("b", &other)]), (true, false), "it was private in between");
    }
}
