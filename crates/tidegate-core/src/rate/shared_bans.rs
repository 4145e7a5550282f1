//! Bans that several servers share: who is banned by one, or let in again, is so on all of them.
//!
//! A ban is in force where it is made, at once, and told to the others a moment later, over the store that shared limits
//! use as well ([`super::nodes`]). What is told are events, in one order that the store gives them: of one client the last
//! one holds. So a ban that was lifted anywhere stays lifted, also for who hears of both later. No request waits for it.

use super::{Bans, Client};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A client is banned, or no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanEvent {
    /// The name of the ban.
    pub ban: Arc<str>,
    /// Who.
    pub client: Client,
    /// For how long; `None`: it is let in again.
    pub lasts: Option<Duration>,
}

/// The tables of the bans that are shared, by their names.
#[derive(Debug, Default)]
pub(super) struct SharedBans(Mutex<HashMap<Arc<str>, Weak<Bans>>>);

impl SharedBans {
    /// One more is shared.
    pub(super) fn add(&self, name: &str, bans: &Arc<Bans>) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, bans| bans.strong_count() > 0);
        tables.insert(name.into(), Arc::downgrade(bans));
    }

    /// The names of all of them.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there =
            |(name, bans): (&Arc<str>, &Weak<Bans>)| (bans.strong_count() > 0).then(|| name.clone());
        tables.iter().filter_map(is_there).collect()
    }

    /// Does what another server has said, or this one has before. Whether anything is another by it.
    pub(super) fn apply(&self, event: &BanEvent, now: u64) -> bool {
        let table =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&event.ban).and_then(Weak::upgrade);
        let Some(bans) = table else { return false };
        match event.lasts {
            Some(lasts) => bans.left(event.client, now).is_none() && bans.ban(event.client, lasts, now),
            None => bans.lift(event.client, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;

    #[test]
    fn the_last_event_holds_and_other_bans_are_left_alone() {
        let [words] = memory_of(Bans::length(100));
        let bans = Arc::new(Bans::new(words, [1, 2]).unwrap());
        let shared = SharedBans::default();
        shared.add("b", &bans);
        let client: Client = "192.0.2.1".parse().unwrap();
        let event = |ban: &str, seconds: Option<u64>| BanEvent {
            ban: ban.into(),
            client,
            lasts: seconds.map(Duration::from_secs),
        };
        let now = 1_000_000_000;
        assert!(shared.apply(&event("b", Some(60)), now));
        assert!(!shared.apply(&event("b", Some(50)), now), "it is banned already");
        assert_eq!(bans.left(client, now), Some(Duration::from_secs(60)));
        assert!(!shared.apply(&event("other", None), now));
        assert!(shared.apply(&event("b", None), now) && !shared.apply(&event("b", None), now));
        assert_eq!(bans.left(client, now), None);
        assert_eq!(shared.names(), ["b".into()]);
        drop(bans);
        assert!(!shared.apply(&event("b", Some(60)), now) && shared.names().is_empty());
    }
}
