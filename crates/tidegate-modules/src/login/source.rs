//! Where users are known: password files and directories, behind the user cache.
//!
//! One for each `users` in each server process. However many requests bring the same pair of name and password at once, it is
//! looked into once. A name that stands in a password file is compared with that alone, also where there is a directory: who is
//! found there under such a name, however it was typed in, is refused.

use super::accounts::Accounts;
use super::cache::{self, Key, Remembered, UserCache};
use super::directory::{Away, Directory, Figures, Found, Seat};
use super::fetched::Fetched;
use super::forward::Admission;
use super::jwt::Keyring;
use super::openid::{Metadata, Seals};
use super::password;
use crate::status::ProviderReport;
use aws_lc_rs::{hmac, rand};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::available_parallelism;
use std::time::Duration;
use tidegate_config::settings::{Account, Shared, TokenKey, Tokens, UrlKey, UserSource};
use tidegate_core::rate::{Buckets, Identity, Rate, RateStore, Ruling, Table};
use tidegate_core::tls::TlsStore;
use tidegate_core::user::User;
use tidegate_io::blocking::Overloaded;
use tidegate_io::lane::Lane;
use tidegate_io::oneshot::{Promise, Promised, promise};

/// Decisions of an application that are remembered.
const ADMITTED: usize = 10_000;
/// Passwords that wait to be compared.
const WAITING: usize = 256;
/// Pairs of one client that are looked into at once: others come in between.
const OF_A_CLIENT: usize = 8;
/// Pairs of one client that wait for those, and of all clients together.
const IN_LINE: usize = 128;
const IN_ALL_LINES: usize = 4096;
/// Wrong passwords of a user that a client may try at once, and one more in each such time.
const GUESSES: (u64, Duration) = (10, Duration::from_secs(10));

/// The threads that compare passwords: half of the processors.
static LANE: LazyLock<Lane> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    Lane::new("tidegate-login", processors / 2, WAITING)
});

/// What has been found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A pair is this user's.
    Known(Arc<User>),
    /// A pair is nobody's.
    Nobody,
    /// Whether somebody belongs to one of some groups.
    Member(bool),
    /// This client has guessed too often.
    Later(Duration),
    /// The directory cannot say.
    Away(Duration),
}

impl From<Away> for Outcome {
    fn from(away: Away) -> Outcome {
        Outcome::Away(away.retry_after)
    }
}

/// What something is remembered for: what one purpose has found out says nothing for another.
#[derive(Clone, Copy)]
enum Purpose {
    /// A name and its password.
    Password,
    /// A token that was shown.
    Token,
    /// A decision of an application.
    Admission,
    /// Whether a user is in one of some groups.
    Groups,
}

/// What has become of a question.
pub enum Answer {
    /// This is known at once. Whether it was remembered, or could be said without that.
    Known(Outcome),
    /// It is being looked into. `None` in the end: nobody has, since too much was to do.
    Asked(Promised<Outcome>),
    /// Too much is to do.
    Overloaded,
}

/// The users of one source.
pub struct Source {
    /// How many groups of a user are kept.
    most_groups: usize,
    /// Who stands in the files, as they were read last.
    accounts: RwLock<Arc<Accounts>>,
    directory: Option<Directory>,
    secret: hmac::Key,
    cache: UserCache,
    /// What tokens are verified with, as it was read last.
    token_keys: RwLock<Arc<Keyring>>,
    /// The same where a service publishes them.
    published_keys: Option<Arc<Fetched<Keyring>>>,
    /// What an identity provider says of itself.
    metadata: Option<Arc<Fetched<Metadata>>>,
    /// What sessions are sealed with, as it was read last.
    seals: RwLock<Arc<Seals>>,
    /// Whom an application has let in.
    admitted: Mutex<Remembered<Admission>>,
    asked: Mutex<Asked>,
    /// Shared by all server processes.
    guesses: Arc<Buckets>,
    /// Nobody is asked: requests are explained.
    is_silent: bool,
}

/// What is being looked into, and what waits for its turn.
#[derive(Default)]
struct Asked {
    /// Those who wait for the answer to a question.
    waiting: HashMap<Key, Vec<Promise<Outcome>>>,
    clients: HashMap<Vec<u8>, Line>,
    /// How many questions stand in lines.
    in_line: usize,
}

/// The questions of one client.
#[derive(Default)]
struct Line {
    /// How many are looked into.
    under_way: usize,
    turns: VecDeque<Turn>,
}

/// Has a question looked into by another thread.
type Turn = Box<dyn FnOnce() -> Result<(), Overloaded> + Send>;

/// A question that nobody has asked yet.
struct Question {
    key: Key,
    client: Vec<u8>,
    /// Whom it is counted for if it is a guess.
    guesser: Option<Vec<u8>>,
    /// Monotonic nanoseconds.
    asked: u64,
}

/// A question under way: what it has taken is given back in the end, whatever comes of it.
struct Turned {
    source: Arc<Source>,
    question: Question,
    /// Nobody waits for it any more.
    is_over: bool,
}

impl Drop for Turned {
    fn drop(&mut self) {
        if !self.is_over {
            lock(&self.source.asked).waiting.remove(&self.question.key);
            self.source.not_guessed(&self.question);
        }
        self.source.give_turn(&self.question.client);
    }
}

impl Source {
    pub(super) fn new(
        settings: &UserSource,
        tls: &Arc<TlsStore>,
        rates: &RateStore,
        is_silent: bool,
    ) -> io::Result<Source> {
        let mut secret = [0; 32];
        rand::fill(&mut secret).map_err(|_| io::Error::other("the system has no random numbers"))?;
        let Table::Rate(guesses) = rates.table(Identity::of_guesses(settings))? else {
            return Err(io::Error::other("the table of those who guess is of another kind"));
        };
        let of_tokens = settings.tokens.as_ref().and_then(Tokens::service).map(|service| &service.url);
        let keys_at = of_tokens.or_else(|| settings.openid.as_ref().map(|openid| &openid.issuer));
        Ok(Source {
            most_groups: usize::try_from(settings.cache.groups).unwrap_or(usize::MAX),
            accounts: RwLock::new(Accounts::new(&settings.accounts)),
            directory: settings.directory.as_ref().map(|directory| Directory::new(directory, tls.clone())),
            cache: UserCache::new(&settings.cache),
            token_keys: RwLock::new(Arc::new(Keyring::new(
                settings.tokens.as_ref().map_or(&[][..], |tokens| &tokens.keys),
            ))),
            published_keys: keys_at
                .map(|at| Fetched::new(format!("the keys of `users \"{}\"` at {at}", settings.name))),
            metadata: settings.openid.as_ref().map(|openid| {
                let at = &openid.discovery;
                let (scheme, path) = (if at.gateway.tls.is_some() { "https" } else { "http" }, &at.path);
                let what = format!(
                    "what the provider of `users \"{}\"` says at {scheme}://{}{path}",
                    settings.name, at.authority
                );
                Fetched::new(what)
            }),
            seals: RwLock::new(Arc::new(Seals::new(
                settings.openid.as_ref().map_or(&[][..], |openid| &openid.session_keys),
            ))),
            admitted: Mutex::default(),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            asked: Mutex::default(),
            guesses,
            is_silent,
        })
    }

    /// What tokens are verified with; `None`: that is not known at the moment.
    pub fn token_keys(&self, now: u64) -> Option<Arc<Keyring>> {
        match &self.published_keys {
            Some(published) => published.look(now).value,
            None => Some(self.token_keys.read().unwrap_or_else(PoisonError::into_inner).clone()),
        }
    }

    /// The same, where a service publishes them.
    pub fn published_keys(&self) -> Option<&Arc<Fetched<Keyring>>> {
        self.published_keys.as_ref()
    }

    /// How asking providers has gone.
    pub fn providers(&self) -> impl Iterator<Item = ProviderReport> {
        let metadata = self.metadata.iter().map(|metadata| metadata.report());
        metadata.chain(self.published_keys.iter().map(|keys| keys.report()))
    }

    /// What an identity provider says of itself.
    pub fn metadata(&self) -> Option<&Arc<Fetched<Metadata>>> {
        self.metadata.as_ref()
    }

    /// What sessions are sealed with.
    pub fn seals(&self) -> Arc<Seals> {
        self.seals.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// They were read anew.
    pub(super) fn renew_seals(&self, keys: &[UrlKey]) {
        *self.seals.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Seals::new(keys));
    }

    /// They were read anew: what a key has said that is there no more counts no longer.
    pub(super) fn renew_token_keys(&self, keys: &[TokenKey]) {
        let keys = Arc::new(Keyring::new(keys));
        *self.token_keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        self.forget_tokens();
    }

    /// Whoever is known by a token has to show it anew.
    pub fn forget_tokens(&self) {
        self.cache.forget(|_| true);
    }

    /// Who has shown a token before, while it is good.
    pub fn shown(&self, token: &[u8], now: u64) -> Option<Arc<User>> {
        self.cache.user(&self.key(Purpose::Token, &[token]), now)
    }

    /// Somebody has shown a token that is good for so many seconds by these keys.
    pub fn remember_shown(&self, token: &[u8], keys: &Arc<Keyring>, user: Arc<User>, seconds: u64, now: u64) {
        // They cannot change before it is remembered.
        let remember = || {
            self.cache.remember_for(
                self.key(Purpose::Token, &[token]),
                user,
                Duration::from_secs(seconds),
                now,
            )
        };
        if let Some(published) = &self.published_keys {
            return published.while_it_is(keys, remember);
        }
        let present = self.token_keys.read().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&present, keys) {
            remember();
        }
    }

    /// What a decision of an application is remembered by.
    pub fn admission_key(&self, by: &[u8]) -> Key {
        self.key(Purpose::Admission, &[by])
    }

    /// What somebody was let in with before.
    pub fn admission(&self, key: &Key, now: u64) -> Option<Admission> {
        lock(&self.admitted).get(key, now)
    }

    /// An application has let somebody in, as was asked at `asked`.
    pub fn remember_admission(&self, key: Key, admission: Admission, lifetime: Duration, asked: u64) {
        let until = asked.saturating_add(u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX));
        cache::bounded(&self.admitted, ADMITTED, key, (until, admission), asked);
    }

    fn accounts(&self) -> Arc<Accounts> {
        self.accounts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the files know somebody whom a directory has found.
    fn has_spelling(&self, name: &str) -> bool {
        self.accounts().has_spelling(name)
    }

    /// The files say something else now. Whoever stands there as before stays known; whom something has changed for has
    /// to prove anew who it is.
    pub(super) fn renew(&self, list: &Shared<Vec<Account>>) {
        let new = Accounts::new(list);
        let old = {
            let mut accounts = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *accounts, new.clone())
        };
        // Whom a directory has known by one name may go by another here.
        let forgets_all = self.directory.is_some() && !old.has_the_names_of(&new);
        self.cache.forget(|user| forgets_all || old.find(&user.name) != new.find(&user.name));
    }

    /// Settings that were read anew mean it, too.
    pub(super) fn renew_directory(&self) {
        if let Some(directory) = &self.directory {
            directory.renew();
        }
    }

    /// Whether requests are only explained.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// What something is remembered by. Purpose and lengths stand before the parts: no two lists read as one.
    fn key(&self, purpose: Purpose, parts: &[&[u8]]) -> Key {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(&[purpose as u8]);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut key = Key::default();
        key.copy_from_slice(&context.sign().as_ref()[..16]);
        key
    }

    /// What the directory was asked since it was last told.
    pub fn take_figures(&self) -> Figures {
        self.directory.as_ref().map(Directory::take_figures).unwrap_or_default()
    }

    /// The longest that anybody should wait for an answer; `None`: until it comes.
    pub fn patience(&self) -> Option<Duration> {
        self.directory.as_ref().map(Directory::patience)
    }

    /// Who has this name and this password, at `now` (monotonic nanoseconds). `client` is whom guesses are counted for.
    pub fn look_up(self: &Arc<Self>, name: &str, password: &[u8], client: &[u8], now: u64) -> Answer {
        let key = self.key(Purpose::Password, &[name.as_bytes(), password]);
        let is_in_file = self.accounts().find(name).is_some();
        let guesser = guesser(client, name, self.directory.is_some() && !is_in_file);
        if let Some(user) = self.cache.user(&key, now) {
            // Else who has guessed too often would be told which password is right while its owner is remembered.
            return Answer::Known(match self.guesses.look(&guesser, guesses(), now) {
                Ruling::Within { .. } => Outcome::Known(user),
                Ruling::Beyond { retry_after } => Outcome::Later(retry_after),
            });
        }
        // A directory would take an empty password for none, and let in anybody (RFC 4513 section 5.1.2).
        if password.is_empty() || name.is_empty() || self.cache.is_wrong(&key, now) {
            return Answer::Known(Outcome::Nobody);
        }
        let (name, password) = (name.to_owned(), password.to_vec());
        let question = Question { key, client: client.to_vec(), guesser: Some(guesser), asked: now };
        match self.directory.as_ref().filter(|_| !is_in_file) {
            Some(directory) => self.ask_directory(directory, question, move |source, seat, question| {
                source.ask_for_user(seat, question, &name, &password)
            }),
            // What files say is known at once, by who explains a request; nobody else waits for it.
            None if self.is_silent => Answer::Known(self.compare(&question, &name, &password)),
            None => self.ask(question, |turned| {
                LANE.run(move || {
                    turned.find_out(|source, question| source.compare(question, &name, &password))
                })
            }),
        }
    }

    /// Whether a user, who belongs to more groups than are remembered, is in one of these. `dn` is where the directory has
    /// the user.
    pub fn is_in(
        self: &Arc<Self>,
        user: &User,
        dn: &str,
        groups: &[String],
        client: &[u8],
        now: u64,
    ) -> Answer {
        let mut parts = vec![user.name.as_bytes(), dn.as_bytes()];
        parts.extend(groups.iter().map(String::as_bytes));
        let key = self.key(Purpose::Groups, &parts);
        if let Some(is_member) = self.cache.membership(&key, now) {
            return Answer::Known(Outcome::Member(is_member));
        }
        let Some(directory) = &self.directory else { return Answer::Known(Outcome::Member(false)) };
        let question = Question { key, client: client.to_vec(), guesser: None, asked: now };
        let (found, groups) = (Found::again(dn, &user.name), groups.to_vec());
        self.ask_directory(directory, question, move |source, seat, question| {
            let all = match seat.groups(&found) {
                Ok(all) => all,
                Err(away) => return away.into(),
            };
            let is_member = groups.iter().any(|group| all.binary_search(group).is_ok());
            source.cache.remember_membership(question.key, is_member, question.asked);
            Outcome::Member(is_member)
        })
    }

    /// Has something looked into by a thread that may ask the directory, unless nobody can be asked.
    fn ask_directory(
        self: &Arc<Self>,
        directory: &Directory,
        question: Question,
        job: impl FnOnce(&Source, &mut Seat, &Question) -> Outcome + Send + 'static,
    ) -> Answer {
        if self.is_silent {
            return Answer::Asked(promise().1);
        }
        if let Some(away) = directory.away() {
            return Answer::Known(away.into());
        }
        self.ask(question, move |turned| {
            let source = turned.source.clone();
            let directory = source.directory.as_ref().ok_or(Overloaded)?;
            directory.run(move |seat| turned.find_out(|source, question| job(source, seat, question)))
        })
    }

    /// Has something looked into, unless it is already. A guess is counted before it is made, so that guesses that come at once
    /// are counted as those one after the other; [`Source::not_guessed`] takes back what was none.
    fn ask(
        self: &Arc<Self>,
        question: Question,
        run: impl FnOnce(Turned) -> Result<(), Overloaded> + Send + 'static,
    ) -> Answer {
        let (promise, promised) = promise();
        let (key, client) = (question.key, question.client.clone());
        let turn = {
            let mut asked = lock(&self.asked);
            let asked = &mut *asked;
            if let Some(waiting) = asked.waiting.get_mut(&key) {
                waiting.push(promise);
                return Answer::Asked(promised);
            }
            if let Some(guesser) = &question.guesser
                && let Ruling::Beyond { retry_after } =
                    self.guesses.charge(guesser, guesses(), question.asked)
            {
                return Answer::Known(Outcome::Later(retry_after));
            }
            let line = asked.clients.entry(client.clone()).or_default();
            let has_to_wait = line.under_way >= OF_A_CLIENT;
            if has_to_wait && (line.turns.len() >= IN_LINE || asked.in_line >= IN_ALL_LINES) {
                self.not_guessed(&question);
                return Answer::Overloaded;
            }
            asked.waiting.insert(key, vec![promise]);
            let source = self.clone();
            let turn: Turn = Box::new(move || run(Turned { source, question, is_over: false }));
            if has_to_wait {
                line.turns.push_back(turn);
                asked.in_line += 1;
                return Answer::Asked(promised);
            }
            line.under_way += 1;
            turn
        };
        // One that is not taken is dropped, which ends it.
        match turn() {
            Ok(()) => Answer::Asked(promised),
            Err(Overloaded) => Answer::Overloaded,
        }
    }

    /// Lets the client's next question have the turn of one that has ended.
    fn give_turn(&self, client: &[u8]) {
        let turn = {
            let mut asked = lock(&self.asked);
            let asked = &mut *asked;
            let Some(line) = asked.clients.get_mut(client) else { return };
            let turn = line.turns.pop_front();
            match turn.is_some() {
                true => asked.in_line -= 1,
                false => line.under_way -= 1,
            }
            if line.under_way == 0 {
                asked.clients.remove(client);
            }
            turn
        };
        if let Some(turn) = turn {
            // One that is not taken is dropped, and ends like this one.
            let _ = turn();
        }
    }

    /// What was counted as a guess was none.
    fn not_guessed(&self, question: &Question) {
        if let Some(guesser) = &question.guesser {
            self.guesses.give_back(guesser, guesses().interval(), question.asked);
        }
    }

    /// Compares a password with that of a file.
    fn compare(&self, question: &Question, name: &str, password: &[u8]) -> Outcome {
        loop {
            let accounts = self.accounts();
            let account = accounts.find(name);
            // Whom nobody knows takes as long as somebody: which names there are is nothing to find out.
            let hash = account.or(accounts.first()).map_or("", |account| &account.hash);
            let matches = password::matches(hash, password);
            // What is remembered is so of the files as they are: they cannot change before it is.
            let present = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
            if present.find(name) != account {
                continue;
            }
            let Some(account) = account.filter(|_| matches) else { return self.refuse(question) };
            let groups = account.groups.clone();
            let user = Arc::new(User { name: account.name.clone(), groups, unlisted: None });
            self.cache.remember(question.key, user.clone(), question.asked);
            return Outcome::Known(user);
        }
    }

    /// Asks the directory who has a name, and whether this is the password.
    fn ask_for_user(&self, seat: &mut Seat, question: &Question, name: &str, password: &[u8]) -> Outcome {
        let found = match seat.find(name) {
            Ok(Some(found)) => found,
            Ok(None) => return self.refuse(question),
            Err(away) => return away.into(),
        };
        // However it was spelt, a name that stands in the files is compared with them alone.
        // Not remembered: the files may say something else in the next moment.
        if self.has_spelling(&found.name) {
            return Outcome::Nobody;
        }
        // However a name is spelt, the user is the same: another spelling is no further guess.
        let same = guesser(&question.client, &format!("dn:{}", found.dn), true);
        if let Ruling::Beyond { retry_after } = self.guesses.charge(&same, guesses(), question.asked) {
            // This spelling stays counted: it is no way to go on asking either.
            return Outcome::Later(retry_after);
        }
        let is_password = seat.is_password(&found, password);
        if !matches!(is_password, Ok(false)) {
            self.guesses.give_back(&same, guesses().interval(), question.asked);
        }
        match is_password {
            Ok(true) => {}
            Ok(false) => return self.refuse(question),
            Err(away) => return away.into(),
        }
        let mut groups = match seat.groups(&found) {
            Ok(groups) => groups,
            Err(away) => return away.into(),
        };
        let unlisted = (groups.len() > self.most_groups).then(|| found.dn.into_boxed_str());
        groups.truncate(self.most_groups);
        let user = Arc::new(User { name: found.name, groups, unlisted });
        // Whom the files have come to know meanwhile they know from now on.
        let present = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        if present.find(name).is_none() && !present.has_spelling(&user.name) {
            self.cache.remember(question.key, user.clone(), question.asked);
        }
        Outcome::Known(user)
    }

    fn refuse(&self, question: &Question) -> Outcome {
        self.cache.remember_wrong(question.key, question.asked);
        Outcome::Nobody
    }
}

impl Turned {
    /// Looks into it, and tells everybody who waits for it.
    fn find_out(mut self, look: impl FnOnce(&Source, &Question) -> Outcome) {
        {
            let mut asked = lock(&self.source.asked);
            let is_wanted = |promises: &Vec<Promise<Outcome>>| promises.iter().any(Promise::is_wanted);
            self.is_over = !asked.waiting.get(&self.question.key).is_some_and(is_wanted);
            if self.is_over {
                // In the same moment: who comes after this begins anew.
                asked.waiting.remove(&self.question.key);
            }
        }
        if self.is_over {
            self.source.not_guessed(&self.question);
            return; // all have gone
        }
        let outcome = look(&self.source, &self.question);
        if !matches!(outcome, Outcome::Nobody | Outcome::Later(_)) {
            self.source.not_guessed(&self.question);
        }
        let promises = lock(&self.source.asked).waiting.remove(&self.question.key);
        self.is_over = true;
        promises.into_iter().flatten().for_each(|promise| promise.fulfil(outcome.clone()));
    }
}

/// Whom a guess is counted for. Directories take names for the same whatever the case.
fn guesser(client: &[u8], name: &str, is_folded: bool) -> Vec<u8> {
    let folded = is_folded.then(|| name.trim().to_lowercase());
    [client, b"\0", folded.as_deref().unwrap_or(name).as_bytes()].concat()
}

/// How fast somebody may guess.
fn guesses() -> Rate {
    let burst = NonZeroU64::new(GUESSES.0).unwrap_or(NonZeroU64::MIN);
    Rate::new(NonZeroU64::MIN, GUESSES.1, burst)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an answer comes to, for tests.
#[cfg(test)]
pub(super) fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Known(outcome) => outcome,
        Answer::Overloaded => panic!("it is looked into"),
        Answer::Asked(promised) => tidegate_testkit::block_on(promised).expect("it is answered"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::login::fake::{self, Fake, Manner};
    use tidegate_config::settings::{self, Account, Origin, UserCache};
    use tidegate_core::rate::TablePlace;
    use tidegate_io::shared::SharedMemory;

    pub fn users(cache: UserCache) -> UserSource {
        let account = |name: &str, hash: &str| Account {
            name: name.into(),
            hash: hash.into(),
            groups: vec!["admins".into(), "staff".into()],
        };
        let accounts = vec![
            account("anna", "$5$rounds=1000$saltsalt$Pm8pPYNOVSvbBWLDNDBdQwQUUb6/tYTP5RrM/DAbZl1"),
            account("ben", "$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0"),
        ];
        let (accounts, origin) = (accounts.into(), Origin::default());
        UserSource {
            name: "staff".into(),
            files: Default::default(),
            accounts,
            directory: None,
            forward: None,
            tokens: None,
            openid: None,
            cache,
            origin,
        }
    }

    pub const CACHE: UserCache = UserCache { lifetime: Duration::from_secs(120), users: 100, groups: 4 };

    pub const NOW: u64 = 1_000_000_000_000;

    fn new(settings: &UserSource) -> Arc<Source> {
        Arc::new(Source::new(settings, &TlsStore::new().unwrap(), &RateStore::default(), false).unwrap())
    }

    pub fn wait(answer: Answer) -> Option<Arc<User>> {
        match outcome(answer) {
            Outcome::Known(user) => Some(user),
            Outcome::Nobody => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_has_proved_to_be_somebody_is_remembered() {
        let source = new(&users(CACHE));
        let ben = wait(source.look_up("ben", b"hello", b"c", NOW)).unwrap();
        assert_eq!(ben.name, "ben");
        assert!(ben.is_in("staff") && !ben.is_in("staf"));
        let Answer::Known(Outcome::Known(again)) = source.look_up("ben", b"hello", b"c", NOW) else {
            panic!("he is known")
        };
        assert!(Arc::ptr_eq(&ben, &again));
        assert!(wait(source.look_up("ben", b"hell", b"c", NOW)).is_none());
        assert!(matches!(source.look_up("ben", b"hell", b"d", NOW), Answer::Known(Outcome::Nobody)));
        assert!(wait(source.look_up("carl", b"hello", b"c", NOW)).is_none());
        // No pair is another, however they are joined.
        assert!(wait(source.look_up("be", b"n\0hello", b"c", NOW)).is_none());
    }

    #[test]
    fn without_a_cache_every_request_is_looked_into() {
        let cache = UserCache { lifetime: Duration::ZERO, ..CACHE };
        let source = new(&users(cache));
        for _ in 0..3 {
            assert!(wait(source.look_up("ben", b"hello", b"c", NOW)).is_some());
        }
    }

    #[test]
    fn a_guesser_has_to_wait_and_nobody_else() {
        let source = new(&users(CACHE));
        for guess in 0..GUESSES.0 {
            assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"guesser", NOW)).is_none());
        }
        let Answer::Known(Outcome::Later(time)) = source.look_up("ben", b"hello", b"guesser", NOW) else {
            panic!("too fast")
        };
        assert!(time <= GUESSES.1 && time > GUESSES.1 / 2, "{time:?}");
        assert!(wait(source.look_up("anna", b"x", b"guesser", NOW)).is_none(), "another user");
        assert!(wait(source.look_up("ben", b"hello", b"other", NOW)).is_some(), "another client");
        // Who is known stays so, but where somebody guesses.
        assert!(matches!(source.look_up("ben", b"hello", b"other", NOW), Answer::Known(Outcome::Known(_))));
    }

    /// Two server processes, each with stores of its own, over memory that the master has made.
    /// Who is known there may be guessed at by others meanwhile.
    #[test]
    fn a_guesser_is_not_told_whom_the_server_remembers() {
        let source = new(&users(CACHE));
        let is_known = |client: &[u8]| {
            matches!(source.look_up("ben", b"hello", client, NOW), Answer::Known(Outcome::Known(_)))
        };
        wait(source.look_up("ben", b"hello", b"ben's", NOW)).unwrap();
        assert!(is_known(b"guesser"));
        for guess in 0..GUESSES.0 {
            assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"guesser", NOW)).is_none());
        }
        assert!(!is_known(b"guesser") && is_known(b"ben's"));
    }

    #[test]
    fn guesses_count_for_all_processes() {
        let settings = users(CACHE);
        let identity = Identity::of_guesses(&settings);
        let length = identity.length(2).unwrap();
        let (memory, descriptor) = SharedMemory::new("test", length).unwrap();
        identity.fresh(memory.words(0..length).unwrap(), 2).unwrap();
        let (places, memories) = ([TablePlace { identity, memory: 0, start: 0, length }], [descriptor]);
        let [one, other] = [(); 2].map(|()| {
            let rates = Arc::new(RateStore::default());
            rates.provide(&places, &memories).unwrap();
            crate::login::LoginStore::new(TlsStore::new().unwrap(), rates).source(&settings).unwrap()
        });
        for guess in 0..GUESSES.0 {
            let source = if guess % 2 == 0 { &one } else { &other };
            assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"guesser", NOW)).is_none());
        }
        for source in [&one, &other] {
            let answer = source.look_up("ben", b"hello", b"guesser", NOW);
            assert!(matches!(answer, Answer::Known(Outcome::Later(_))));
        }
    }

    /// They are counted before they are compared: at once or one after the other is the same.
    #[test]
    fn guesses_at_once_are_no_more_than_one_after_the_other() {
        let source = new(&users(CACHE));
        let guesses: Vec<String> = (0..30).map(|guess| guess.to_string()).collect();
        let answers: Vec<Answer> =
            guesses.iter().map(|guess| source.look_up("ben", guess.as_bytes(), b"guesser", NOW)).collect();
        let outcomes: Vec<Outcome> = answers.into_iter().map(outcome).collect();
        let compared = outcomes.iter().filter(|outcome| **outcome == Outcome::Nobody).count() as u64;
        let later = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Later(_))).count() as u64;
        assert_eq!((compared, later), (GUESSES.0, 30 - GUESSES.0));
    }

    /// A password that is right costs no guess, however often it is compared.
    #[test]
    fn right_passwords_are_no_guesses() {
        let source = new(&users(UserCache { lifetime: Duration::ZERO, ..CACHE }));
        for _ in 0..3 * GUESSES.0 {
            assert!(wait(source.look_up("ben", b"hello", b"client", NOW)).is_some());
        }
        for guess in 0..GUESSES.0 {
            assert!(wait(source.look_up("ben", guess.to_string().as_bytes(), b"client", NOW)).is_none());
        }
        let last = source.look_up("ben", b"x", b"client", NOW);
        assert!(matches!(last, Answer::Known(Outcome::Later(_))));
    }

    /// Twenty behind one address log in at once: they stand in line, and nobody is turned away.
    #[test]
    fn many_behind_one_address_have_their_turns() {
        let account =
            |number: usize| Account { name: format!("u{number}"), ..users(CACHE).accounts[1].clone() };
        let many = UserSource { accounts: (0..100).map(account).collect::<Vec<_>>().into(), ..users(CACHE) };
        let source = new(&many);
        let answers: Vec<Answer> =
            (0..100).map(|number| source.look_up(&format!("u{number}"), b"hello", b"office", NOW)).collect();
        assert_eq!(answers.into_iter().filter_map(wait).count(), 100);
        let idle = |source: &Source| {
            let asked = lock(&source.asked);
            asked.waiting.is_empty() && asked.clients.is_empty() && asked.in_line == 0
        };
        // The last one gives its turn back after it has answered.
        tidegate_testkit::wait_for(|| idle(&source).then_some(()), "nothing is under way any more");
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let source = new(&users(CACHE));
        let held: Vec<Answer> =
            (0..1000).map(|name| source.look_up(&format!("nobody{name}"), b"x", b"flood", NOW)).collect();
        assert!(held.iter().any(|answer| matches!(answer, Answer::Overloaded)));
        assert!(wait(source.look_up("ben", b"hello", b"other", NOW)).is_some());
    }

    fn directory_users(fake: &Fake, cache: UserCache) -> UserSource {
        let directory = Some(fake::settings(&[fake]));
        UserSource { accounts: Vec::new().into(), directory, cache, ..users(cache) }
    }

    const SECOND: u64 = 1_000_000_000;

    /// The goal of the user cache: 10,000 users who go on and on cost a directory no more than 84 binds a second.
    #[test]
    fn ten_thousand_steady_users_seldom_bind() {
        let fake = Fake::new(Manner::Sound);
        let cache = UserCache { users: 10_000, ..CACHE };
        let source = new(&directory_users(&fake, cache));
        // They have come one after the other, and each asks for something every 30 seconds, for twice the lifetime.
        for round in 0..8 {
            for user in 0..10_000 {
                let now = NOW + round * 30 * SECOND + user * 30 * SECOND / 10_000;
                let (name, password) = (format!("user{user}"), format!("pw{user}"));
                let found = outcome(source.look_up(&name, password.as_bytes(), b"c", now));
                assert!(matches!(found, Outcome::Known(_)), "{found:?} {name} {round}");
            }
        }
        assert!(fake.binds() <= 84 * 240, "{}", fake.binds());
        assert_eq!(source.take_figures().asked.binds, fake.binds());
    }

    /// Nothing that is remembered for one purpose is found for another, and no two lists of parts read as one.
    #[test]
    fn what_is_remembered_is_so_for_one_purpose() {
        let account = Account { name: "token".into(), ..users(CACHE).accounts[1].clone() };
        let source = new(&UserSource { accounts: vec![account].into(), ..users(CACHE) });
        assert!(wait(source.look_up("token", b"hello", b"c", NOW)).is_some());
        assert!(source.shown(b"hello", NOW).is_none());
        let purposes = [Purpose::Password, Purpose::Token, Purpose::Admission, Purpose::Groups];
        let keys: std::collections::HashSet<Key> =
            purposes.map(|purpose| source.key(purpose, &[b"a"])).into();
        assert_eq!(keys.len(), purposes.len());
        let groups = |parts: &[&[u8]]| source.key(Purpose::Groups, parts);
        assert_ne!(groups(&[b"a\0b", b"c"]), groups(&[b"a", b"b\0c"]));
        assert_ne!(groups(&[b"a", b"b\0c"]), groups(&[b"a", b"b", b"c"]));
    }

    /// A name of the files is theirs, whatever spelling or alias the directory finds the same user by.
    #[test]
    fn whom_the_files_know_the_directory_lets_nobody_be() {
        let fake = Fake::new(Manner::Sound);
        for listed in ["user1", "User1"] {
            let account = Account { name: listed.into(), ..users(CACHE).accounts[0].clone() };
            let settings = UserSource { accounts: vec![account].into(), ..directory_users(&fake, CACHE) };
            let source = new(&settings);
            for typed in ["USER1", "User1", "user1", "\u{ff55}ser1"] {
                assert!(wait(source.look_up(typed, b"pw1", b"c", NOW)).is_none(), "{typed} {listed}");
            }
            assert!(wait(source.look_up("user2", b"pw2", b"c", NOW)).is_some());
            // Whom the files know no more, the directory does.
            source.renew(&Vec::new().into());
            assert!(wait(source.look_up("USER1", b"pw1", b"c", NOW)).is_some());
        }
        assert_eq!(fake.binds(), 4);
    }

    #[test]
    fn who_asks_at_once_is_looked_up_once() {
        let fake = Fake::new(Manner::Sound);
        let settings = directory_users(&fake, CACHE);
        let slow =
            settings.directory.map(|slow| settings::Directory { timeout: Duration::from_secs(60), ..slow });
        let source = new(&UserSource { directory: slow, ..directory_users(&fake, CACHE) });
        fake.hold(true);
        let asked: Vec<Answer> = (0..50).map(|_| source.look_up("user1", b"pw1", b"c", NOW)).collect();
        assert!(asked.iter().all(|answer| matches!(answer, Answer::Asked(_))));
        fake.hold(false);
        for answer in asked {
            assert!(matches!(outcome(answer), Outcome::Known(_)));
        }
        assert_eq!(fake.binds(), 1);
    }

    /// Other spellings of a name are no further guesses, and once there were too many the directory hears of none.
    #[test]
    fn a_directory_is_not_guessed_at() {
        let fake = Fake::new(Manner::Sound);
        let source = new(&directory_users(&fake, CACHE));
        let spellings = ["user1", "USER1", "User1", "\u{ff55}ser1", "uSer1"];
        let mut later = 0;
        for guess in 0..40 {
            let name = spellings[guess % spellings.len()];
            match outcome(source.look_up(name, format!("guess{guess}").as_bytes(), b"guesser", NOW)) {
                Outcome::Nobody => {}
                Outcome::Later(_) => later += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((fake.binds(), later), (GUESSES.0, 40 - GUESSES.0));
        assert!(fake.searches() <= 2 * GUESSES.0, "{}", fake.searches());
        assert!(matches!(outcome(source.look_up("user1", b"pw1", b"other", NOW)), Outcome::Known(_)));
        // A password that is none costs nothing.
        assert!(matches!(source.look_up("user2", b"", b"other", NOW), Answer::Known(Outcome::Nobody)));
    }

    /// Somebody whom the directory cannot be asked about is neither let in nor refused, and nothing of it is remembered.
    #[test]
    fn a_directory_that_is_away_is_no_refusal() {
        let fake = Fake::new(Manner::Sound);
        let source = new(&directory_users(&fake, CACHE));
        assert!(wait(source.look_up("user1", b"pw1", b"c", NOW)).is_some());
        fake.set(Manner::Hasty);
        let other = new(&directory_users(&fake, CACHE));
        assert!(matches!(outcome(other.look_up("user1", b"pw1", b"c", NOW)), Outcome::Away(_)));
        assert!(matches!(other.look_up("user1", b"pw1", b"c", NOW), Answer::Known(Outcome::Away(_))));
        // Who is known stays known.
        assert!(matches!(
            source.look_up("user1", b"pw1", b"c", NOW + 119 * SECOND),
            Answer::Known(Outcome::Known(_))
        ));
    }
}
