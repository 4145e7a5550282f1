//! Where users are known, and what is remembered of them: the user cache (R8, "ACL User Cache").
//!
//! One for each `users` in each server process. A pair of name and password is remembered by a keyed digest, never as it
//! is; pairs that were wrong are remembered in a table of their own, so that guessing makes nobody be forgotten. However
//! many requests bring the same pair at once, it is looked into once.

use super::password;
use aws_lc_rs::hmac;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::UserSource;
use tidegate_core::rate::{Buckets, Rate, Ruling};
use tidegate_core::user::User;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::lane::Lane;
use tidegate_io::oneshot::{Promise, Promised, promise};

/// Pairs that were wrong and are remembered.
const WRONG: usize = 10_000;
/// Tables that remember, so that workers seldom wait for each other.
const SHARDS: usize = 16;
/// Passwords that wait to be compared.
const WAITING: usize = 256;
/// Pairs of user and client of whom it is remembered that they have guessed.
const GUESSERS: usize = 100_000;
/// Pairs that one client may have looked into at once: others come in between.
const OF_A_CLIENT: usize = 8;
/// Wrong passwords of a user that a client may try at once, and one more in each such time.
const GUESSES: (u64, Duration) = (10, Duration::from_secs(10));

/// The threads that compare passwords: half of the processors.
static LANE: LazyLock<Lane> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    Lane::new("tidegate-login", processors / 2, WAITING)
});

/// Remembers, of pairs of name and password, who they are.
type Key = [u8; 16];

/// What is known of a pair; `None`: it is nobody's.
type Known = Option<Arc<User>>;

/// What has become of a pair.
pub enum Answer {
    /// It is known.
    Known(Known),
    /// It is being looked into. `None` in the end: nobody has, since too much was to do.
    Asked(Promised<Known>),
    /// Too much is to do.
    Overloaded,
    /// This client has guessed too often.
    Later(Duration),
}

/// The users of one source.
pub struct Source {
    settings: UserSource,
    /// Place in the settings, by name.
    accounts: HashMap<String, usize>,
    secret: hmac::Key,
    known: [Mutex<Remembered>; SHARDS],
    wrong: Mutex<Remembered>,
    asked: Mutex<HashMap<Key, Waiting>>,
    guesses: Buckets,
}

/// Those who wait for a pair that is looked into.
struct Waiting {
    /// The client that has brought it first.
    client: Vec<u8>,
    promises: Vec<Promise<Known>>,
}

/// Pairs in the order in which they came, which is that in which they run out.
#[derive(Default)]
struct Remembered {
    pairs: HashMap<Key, (u64, Known)>,
    order: VecDeque<Key>,
}

impl Remembered {
    fn get(&self, key: &Key, now: u64) -> Option<Known> {
        self.pairs.get(key).filter(|(until, _)| *until > now).map(|(_, known)| known.clone())
    }

    fn put(&mut self, key: Key, until: u64, known: Known, most: usize) {
        if self.pairs.insert(key, (until, known)).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > most
            && let Some(oldest) = self.order.pop_front()
        {
            self.pairs.remove(&oldest);
        }
    }
}

impl Source {
    fn new(settings: &UserSource) -> io::Result<Source> {
        let accounts =
            settings.accounts.iter().enumerate().map(|(place, account)| (account.name.clone(), place));
        let secret = [0; 4].map(|_: u8| RandomState::new().hash_one(0).to_ne_bytes()).concat();
        Ok(Source {
            accounts: accounts.collect(),
            settings: settings.clone(),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            known: Default::default(),
            wrong: Mutex::default(),
            asked: Mutex::default(),
            guesses: Buckets::new(GUESSERS, [0, 1].map(|at| RandomState::new().hash_one(at)))?,
        })
    }

    /// Whether it is that of these settings, wherever they stand.
    fn says(&self, settings: &UserSource) -> bool {
        let UserSource { origin, .. } = &self.settings;
        UserSource { origin: origin.clone(), ..settings.clone() } == self.settings
    }

    fn key(&self, name: &str, password: &[u8]) -> Key {
        let mut context = hmac::Context::with_key(&self.secret);
        // A name holds no NUL: no pair reads as another.
        [name.as_bytes(), b"\0", password].iter().for_each(|part| context.update(part));
        let mut key = Key::default();
        key.copy_from_slice(&context.sign().as_ref()[..16]);
        key
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Remembered> {
        lock(&self.known[usize::from(key[0]) % SHARDS])
    }

    /// Who has this name and this password. `client` is whom guesses are counted for.
    pub fn look_up(self: &Arc<Self>, name: &str, password: &[u8], client: &[u8]) -> Answer {
        let (key, now) = (self.key(name, password), monotonic_ns());
        let known = self.shard(&key).get(&key, now);
        let known = known.or_else(|| lock(&self.wrong).get(&key, now));
        if let Some(known) = known {
            return Answer::Known(known);
        }
        let guesser = [client, b"\0", name.as_bytes()].concat();
        if let Ruling::Beyond { retry_after } = self.guesses.look(&guesser, guesses(), now) {
            return Answer::Later(retry_after);
        }
        let (promise, promised) = promise();
        let is_first = {
            let mut asked = lock(&self.asked);
            if let Some(waiting) = asked.get_mut(&key) {
                waiting.promises.push(promise);
                false
            } else {
                let of_client = asked.values().filter(|waiting| waiting.client == client).count();
                if of_client >= OF_A_CLIENT {
                    return Answer::Overloaded;
                }
                asked.insert(key, Waiting { client: client.to_vec(), promises: vec![promise] });
                true
            }
        };
        if is_first {
            let (source, name, password) = (self.clone(), name.to_owned(), password.to_vec());
            let job = move || source.find_out(key, &name, &password, &guesser);
            if LANE.run(job).is_err() {
                lock(&self.asked).remove(&key);
                return Answer::Overloaded;
            }
        }
        Answer::Asked(promised)
    }

    /// Compares a password, and tells everybody who waits for it.
    fn find_out(&self, key: Key, name: &str, password: &[u8], guesser: &[u8]) {
        let is_wanted = |waiting: &Waiting| waiting.promises.iter().any(Promise::is_wanted);
        if !lock(&self.asked).get(&key).is_some_and(is_wanted) {
            lock(&self.asked).remove(&key);
            return; // all have gone
        }
        let accounts = &self.settings.accounts;
        let account = self.accounts.get(name).and_then(|place| accounts.get(*place));
        // Whom nobody knows takes as long as somebody: which names there are is nothing to find out.
        let hash = account.or(accounts.first()).map_or("", |account| &account.hash);
        let matches = password::matches(hash, password);
        let user = account.filter(|_| matches);
        let known =
            user.map(|account| Arc::new(User { name: account.name.clone(), groups: account.groups.clone() }));
        let (now, cache) = (monotonic_ns(), &self.settings.cache);
        let until = now.saturating_add(u64::try_from(cache.lifetime.as_nanos()).unwrap_or(u64::MAX));
        if known.is_none() {
            self.guesses.charge(guesser, guesses(), now);
            lock(&self.wrong).put(key, until, None, WRONG);
        } else {
            let most = usize::try_from(cache.users).unwrap_or(usize::MAX).div_ceil(SHARDS);
            self.shard(&key).put(key, until, known.clone(), most);
        }
        let waiting = lock(&self.asked).remove(&key);
        let promises = waiting.into_iter().flat_map(|waiting| waiting.promises);
        promises.for_each(|promise| promise.fulfil(known.clone()));
    }
}

/// How fast somebody may guess.
fn guesses() -> Rate {
    let burst = NonZeroU64::new(GUESSES.0).unwrap_or(NonZeroU64::MIN);
    Rate::new(NonZeroU64::MIN, GUESSES.1, burst)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sources of a process. Outlives its engines: who has logged in stays so over a reload.
#[derive(Default)]
pub struct LoginStore(Mutex<HashMap<String, Arc<Source>>>);

impl LoginStore {
    /// The source of some users; one that says something else than before knows nobody yet.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn source(&self, settings: &UserSource) -> io::Result<Arc<Source>> {
        let mut sources = lock(&self.0);
        if let Some(source) = sources.get(&settings.name).filter(|source| source.says(settings)) {
            return Ok(source.clone());
        }
        let source = Arc::new(Source::new(settings)?);
        sources.insert(settings.name.clone(), source.clone());
        Ok(source)
    }

    /// How many there are.
    pub fn held(&self) -> usize {
        lock(&self.0).len()
    }

    /// Lets go of those that are none of the settings in force, or another than these say.
    pub fn settle(&self, settings: &Settings) {
        let is_used = |source: &Source| settings.users.iter().any(|users| source.says(users));
        lock(&self.0).retain(|_, source| is_used(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::settings::{Account, Origin, UserCache};

    fn users(cache: UserCache) -> UserSource {
        let account = |name: &str, hash: &str| Account {
            name: name.into(),
            hash: hash.into(),
            groups: vec!["admins".into(), "staff".into()],
        };
        let accounts = vec![
            account("anna", "$5$rounds=1000$saltsalt$Pm8pPYNOVSvbBWLDNDBdQwQUUb6/tYTP5RrM/DAbZl1"),
            account("ben", "$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0"),
        ];
        UserSource { name: "staff".into(), accounts, cache, origin: Origin::default() }
    }

    const CACHE: UserCache = UserCache { lifetime: Duration::from_secs(120), users: 100, groups: 4 };

    fn wait(answer: Answer) -> Known {
        let Answer::Asked(promised) = answer else { panic!("it is asked") };
        let (said, heard) = std::sync::mpsc::channel();
        // The lane is another thread; a waker that tells is enough.
        struct Tell(std::sync::mpsc::Sender<()>);
        impl std::task::Wake for Tell {
            fn wake(self: Arc<Self>) {
                let _ = self.0.send(());
            }
        }
        let waker = Arc::new(Tell(said)).into();
        let mut cx = std::task::Context::from_waker(&waker);
        let mut promised = std::pin::pin!(promised);
        loop {
            match promised.as_mut().poll(&mut cx) {
                std::task::Poll::Ready(known) => return known.expect("it is answered"),
                std::task::Poll::Pending => tidegate_testkit::receive(&heard, "an answer"),
            }
        }
    }

    #[test]
    fn who_has_proved_to_be_somebody_is_remembered() {
        let source = Arc::new(Source::new(&users(CACHE)).unwrap());
        let ben = wait(source.look_up("ben", b"hello", b"c")).unwrap();
        assert_eq!(ben.name, "ben");
        assert!(ben.is_in("staff") && !ben.is_in("staf"));
        let Answer::Known(Some(again)) = source.look_up("ben", b"hello", b"c") else { panic!("he is known") };
        assert!(Arc::ptr_eq(&ben, &again));
        assert!(wait(source.look_up("ben", b"hell", b"c")).is_none());
        assert!(matches!(source.look_up("ben", b"hell", b"d"), Answer::Known(None)));
        assert!(wait(source.look_up("carl", b"hello", b"c")).is_none());
        // No pair is another, however they are joined.
        assert!(wait(source.look_up("be", b"n\0hello", b"c")).is_none());
    }

    #[test]
    fn without_a_cache_every_request_is_looked_into() {
        let cache = UserCache { lifetime: Duration::ZERO, ..CACHE };
        let source = Arc::new(Source::new(&users(cache)).unwrap());
        for _ in 0..3 {
            assert!(wait(source.look_up("ben", b"hello", b"c")).is_some());
        }
    }

    #[test]
    fn a_guesser_has_to_wait_and_nobody_else() {
        let source = Arc::new(Source::new(&users(CACHE)).unwrap());
        for guess in 0..GUESSES.0 {
            assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"guesser")).is_none());
        }
        let Answer::Later(time) = source.look_up("ben", b"hello", b"guesser") else { panic!("too fast") };
        assert!(time <= GUESSES.1 && time > GUESSES.1 / 2, "{time:?}");
        assert!(wait(source.look_up("anna", b"x", b"guesser")).is_none(), "another user");
        assert!(wait(source.look_up("ben", b"hello", b"other")).is_some(), "another client");
        // Who is known is let in, whatever others try from the same address.
        assert!(matches!(source.look_up("ben", b"hello", b"guesser"), Answer::Known(Some(_))));
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let source = Arc::new(Source::new(&users(CACHE)).unwrap());
        let held: Vec<Answer> =
            (0..1000).map(|name| source.look_up(&format!("nobody{name}"), b"x", b"flood")).collect();
        assert!(held.iter().any(|answer| matches!(answer, Answer::Overloaded)));
        assert!(wait(source.look_up("ben", b"hello", b"other")).is_some());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut remembered = Remembered::default();
        for number in 0..1000u32 {
            let mut key = Key::default();
            key[..4].copy_from_slice(&number.to_be_bytes());
            remembered.put(key, 10, None, 7);
            remembered.put(key, 20, None, 7);
        }
        assert_eq!((remembered.pairs.len(), remembered.order.len()), (7, 7));
        let last = *remembered.order.back().unwrap();
        assert!(remembered.get(&last, 19).is_some() && remembered.get(&last, 20).is_none());
    }

    #[test]
    fn other_passwords_are_another_source() {
        let store = LoginStore::default();
        let first = store.source(&users(CACHE)).unwrap();
        assert!(Arc::ptr_eq(&first, &store.source(&users(CACHE)).unwrap()));
        let mut changed = users(CACHE);
        changed.accounts.pop();
        assert!(!Arc::ptr_eq(&first, &store.source(&changed).unwrap()));
    }
}
