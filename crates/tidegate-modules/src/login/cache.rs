//! The user cache (R9, "ACL User Cache"): what is remembered of pairs of name and password.
//!
//! A pair is remembered by a keyed digest, never as it is. Pairs that were wrong are in a table of their own, so that guessing
//! makes nobody be forgotten; so is whether somebody belongs to a group that is not among those that are kept of a user.
//! Whatever is here has run out after `lifetime`, counted from when it was asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidegate_config::settings;
use tidegate_core::user::User;
use tidegate_io::locking::lock;

/// Pairs that were wrong and are remembered.
const WRONG: usize = 10_000;
/// Questions after further groups that are remembered.
const MEMBERSHIPS: usize = 10_000;
/// Tables of users, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// What a pair, or a question, is remembered by.
pub type Key = [u8; 16];

/// The cache of one source.
pub struct UserCache {
    lifetime: u64,
    users: usize,
    known: [Mutex<Remembered<Arc<User>>>; SHARDS],
    /// Users in all tables.
    count: AtomicUsize,
    wrong: Mutex<Remembered<()>>,
    memberships: Mutex<Remembered<bool>>,
}

/// Values, and the order in which they run out, which need not be that in which they came.
pub(super) struct Remembered<T> {
    values: HashMap<Key, (u64, T)>,
    /// When each of them runs out: one for each value.
    order: BTreeSet<(u64, Key)>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Remembered<T> {
        Remembered { values: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<T: Clone> Remembered<T> {
    pub(super) fn get(&self, key: &Key, now: u64) -> Option<T> {
        self.values.get(key).filter(|(until, _)| *until > now).map(|(_, value)| value.clone())
    }

    /// Puts a value in, and lets go of those that have run out. How many there are more than before.
    fn put(&mut self, key: Key, until: u64, value: T, now: u64) -> isize {
        let before = self.values.len();
        while self.order.first().is_some_and(|(until, _)| *until <= now) {
            self.drop_first(None);
        }
        if let Some((known, _)) = self.values.insert(key, (until, value)) {
            self.order.remove(&(known, key));
        }
        self.order.insert((until, key));
        self.values.len().cast_signed() - before.cast_signed()
    }

    /// Lets go of the one that runs out first, but for this one; whether there was another.
    fn drop_first(&mut self, but: Option<&Key>) -> bool {
        let Some(first) = self.order.iter().find(|(_, key)| Some(key) != but).copied() else { return false };
        self.order.remove(&first);
        self.values.remove(&first.1).is_some()
    }

    /// Lets go of some.
    fn forget(&mut self, is_meant: impl Fn(&T) -> bool) {
        let order = &mut self.order;
        self.values.retain(|key, (until, value)| {
            let stays = !is_meant(value);
            if !stays {
                order.remove(&(*until, *key));
            }
            stays
        });
    }
}

impl UserCache {
    /// An empty one.
    pub fn new(settings: &settings::UserCache) -> UserCache {
        UserCache {
            lifetime: u64::try_from(settings.lifetime.as_nanos()).unwrap_or(u64::MAX),
            users: usize::try_from(settings.users).unwrap_or(usize::MAX),
            known: Default::default(),
            count: AtomicUsize::new(0),
            wrong: Mutex::default(),
            memberships: Mutex::default(),
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Remembered<Arc<User>>> {
        lock(&self.known[usize::from(key[0]) % SHARDS])
    }

    /// Whose pair it is.
    pub fn user(&self, key: &Key, now: u64) -> Option<Arc<User>> {
        self.shard(key).get(key, now)
    }

    /// Whether it is known to be nobody's.
    pub fn is_wrong(&self, key: &Key, now: u64) -> bool {
        lock(&self.wrong).get(key, now).is_some()
    }

    /// Whether somebody belongs to one of some groups, where that was asked for.
    pub fn membership(&self, key: &Key, now: u64) -> Option<bool> {
        lock(&self.memberships).get(key, now)
    }

    /// It is this user's, as was asked at `asked`.
    pub fn remember(&self, key: Key, user: Arc<User>, asked: u64) {
        self.remember_for(key, user, Duration::MAX, asked);
    }

    /// The same for so long at most.
    pub fn remember_for(&self, key: Key, user: Arc<User>, most: Duration, asked: u64) {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let until = asked.saturating_add(self.lifetime.min(most));
        let mut shard = self.shard(&key);
        let more = shard.put(key, until, user, asked);
        let mut count = match more {
            0.. => self.count.fetch_add(more.unsigned_abs(), Ordering::Relaxed) + more.unsigned_abs(),
            _ => self.count.fetch_sub(more.unsigned_abs(), Ordering::Relaxed) - more.unsigned_abs(),
        };
        // Which table a user is in is as good as random, and so is which one makes room.
        while count > self.users && shard.values.len() > 1 && shard.drop_first(Some(&key)) {
            count = self.count.fetch_sub(1, Ordering::Relaxed) - 1;
        }
    }

    /// It is nobody's.
    pub fn remember_wrong(&self, key: Key, asked: u64) {
        bounded(&self.wrong, WRONG, key, (asked.saturating_add(self.lifetime), ()), asked);
    }

    /// Whether somebody belongs to one of some groups.
    pub fn remember_membership(&self, key: Key, is_member: bool, asked: u64) {
        let until = asked.saturating_add(self.lifetime);
        bounded(&self.memberships, MEMBERSHIPS, key, (until, is_member), asked);
    }

    /// Lets go of these users, and of whatever was wrong: it may be right now.
    pub fn forget(&self, is_meant: impl Fn(&User) -> bool) {
        for shard in &self.known {
            let mut shard = lock(shard);
            let before = shard.values.len();
            shard.forget(|user| is_meant(user));
            self.count.fetch_sub(before - shard.values.len(), Ordering::Relaxed);
        }
        *lock(&self.wrong) = Remembered::default();
        *lock(&self.memberships) = Remembered::default();
    }

    /// How many users it holds.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// Puts a value into a table of at most so many.
pub(super) fn bounded<T: Clone>(
    table: &Mutex<Remembered<T>>,
    most: usize,
    key: Key,
    (until, value): (u64, T),
    now: u64,
) {
    let mut table = lock(table);
    table.put(key, until, value, now);
    while table.values.len() > most && table.drop_first(Some(&key)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        let mut key = Key::default();
        key[..4].copy_from_slice(&number.to_le_bytes());
        key
    }

    fn cache(users: u32) -> UserCache {
        UserCache::new(&settings::UserCache { lifetime: Duration::from_nanos(10), users, groups: 1 })
    }

    fn user() -> Arc<User> {
        Arc::new(User { name: "anna".into(), groups: Vec::new(), unlisted: None })
    }

    #[test]
    fn what_is_remembered_runs_out() {
        let cache = cache(5);
        cache.remember(key(1), user(), 100);
        cache.remember_wrong(key(2), 100);
        cache.remember_membership(key(3), false, 100);
        assert!(cache.user(&key(1), 109).is_some() && cache.user(&key(1), 110).is_none());
        assert!(cache.is_wrong(&key(2), 109) && !cache.is_wrong(&key(2), 110));
        assert_eq!((cache.membership(&key(3), 109), cache.membership(&key(3), 110)), (Some(false), None));
        assert!(cache.user(&key(2), 100).is_none() && !cache.is_wrong(&key(1), 100));
    }

    /// As many users are held as the settings say, in whichever tables, and the newest is among them.
    #[test]
    fn what_is_remembered_is_bounded() {
        let cache = cache(7);
        for number in 0..1000 {
            cache.remember(key(number), user(), 100);
            cache.remember(key(number), user(), 101);
            assert!(cache.user(&key(number), 101).is_some());
            assert!(cache.len() <= 7 + SHARDS, "{}", cache.len());
        }
        let held = cache.known.iter().map(|shard| lock(shard).values.len()).sum::<usize>();
        assert_eq!(held, cache.len());
        for number in 0..30_000 {
            cache.remember_wrong(key(number), 100);
        }
        let wrong = lock(&cache.wrong);
        assert!(wrong.values.len() <= WRONG && wrong.order.len() <= WRONG, "{}", wrong.order.len());
    }

    /// Guessing makes nobody be forgotten.
    #[test]
    fn those_who_are_wrong_take_no_place_of_users() {
        let cache = cache(5);
        cache.remember(key(1), user(), 100);
        (2..50_000).for_each(|number| cache.remember_wrong(key(number), 100));
        assert!(cache.user(&key(1), 101).is_some());
    }

    /// Nothing is let go before it has run out, in whatever order that comes.
    #[test]
    fn what_has_not_run_out_stays() {
        let mut remembered = Remembered::default();
        remembered.put(key(1), 10, 'a', 0);
        remembered.put(key(1), 50, 'b', 0);
        remembered.put(key(2), 30, 'c', 0);
        remembered.put(key(3), 60, 'd', 20);
        assert_eq!(
            [1, 2, 3].map(|number| remembered.get(&key(number), 20)),
            [Some('b'), Some('c'), Some('d')]
        );
        // What runs out sooner goes sooner, though it came later.
        remembered.put(key(4), 70, 'e', 40);
        assert_eq!((remembered.values.len(), remembered.order.len()), (3, 3));
        remembered.forget(|value| *value == 'b');
        assert_eq!((remembered.values.len(), remembered.order.len()), (2, 2));
    }

    /// Who is looked into once more is not forgotten for being old.
    #[test]
    fn who_comes_back_is_new() {
        let mut remembered = Remembered::default();
        remembered.put(key(1), 10, 'a', 0);
        remembered.put(key(2), 11, 'b', 0);
        remembered.put(key(1), 12, 'c', 0);
        assert!(remembered.drop_first(None));
        assert_eq!((remembered.get(&key(1), 0), remembered.get(&key(2), 0)), (Some('c'), None));
        // And what has run out goes by itself.
        assert_eq!(remembered.put(key(3), 30, 'd', 20), 0);
        assert_eq!((remembered.values.len(), remembered.order.len()), (1, 1));
    }
}
