//! Where users are known: password files and directories, behind the user cache.
//!
//! One for each `users` in each server process. However many requests bring the same pair of name and password at once, it is
//! looked into once. A name that stands in a password file is compared with that alone, also where there is a directory: who is
//! found there under such a name, however it was typed in, is refused.

use super::accounts::Accounts;
use super::cache::{self, Key, Remembered, UserCache};
use super::directory::{Directory, Figures, Found, Seat};
use super::fetched::Fetched;
use super::forward::Admission;
use super::guesses::{Guesser, Guesses};
use super::jwt::Keyring;
use super::openid::{Metadata, Seals};
use super::password;
use super::questions::{Answer, Outcome, Question, Questions};
use crate::status::ProviderReport;
use aws_lc_rs::{hmac, rand};
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};
use std::thread::available_parallelism;
use std::time::Duration;
use tidegate_config::settings::{Account, OpenId, Shared, TokenKey, Tokens, UrlKey, UserSource};
use tidegate_core::rate::{Identity, RateStore, Table};
use tidegate_core::tls::TlsStore;
use tidegate_core::user::User;
use tidegate_io::blocking::Overloaded;
use tidegate_io::lane::Lane;
use tidegate_io::locking::lock;
use tidegate_io::oneshot::promise;

/// Decisions of an application that are remembered.
const ADMITTED: usize = 10_000;
/// Passwords that wait to be compared.
const WAITING: usize = 256;
/// The threads that compare passwords: half of the processors.
static LANE: LazyLock<Lane> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    Lane::new("tidegate-login", processors / 2, WAITING)
});

/// That one, for who reports on it.
pub fn login_lane() -> &'static Lane {
    &LANE
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

/// The users of one source.
pub struct Source {
    /// How many groups of a user are kept.
    most_groups: usize,
    /// Who stands in the files, as they were read last.
    accounts: RwLock<Arc<Accounts>>,
    directory: Option<Directory>,
    secret: hmac::Key,
    cache: Arc<UserCache>,
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
    questions: Arc<Questions>,
    /// Nobody is asked: requests are explained.
    is_silent: bool,
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
        let cache = Arc::new(UserCache::new(&settings.cache));
        let of_tokens = settings.tokens.as_ref().and_then(Tokens::service).map(|service| &service.url);
        let of_openid =
            |openid: &'_ OpenId| openid.keys.as_ref().map_or(&openid.issuer, |keys| &keys.url).clone();
        let keys_at = of_tokens.cloned().or_else(|| settings.openid.as_ref().map(of_openid));
        let published_keys = keys_at.map(|at| {
            let what = format!("the keys of `users \"{}\"` at {at}", settings.name);
            // Whoever is known by a token has to show it anew.
            let known = cache.clone();
            Fetched::new(what, move || known.forget(|_| true))
        });
        Ok(Source {
            most_groups: usize::try_from(settings.cache.groups).unwrap_or(usize::MAX),
            accounts: RwLock::new(Accounts::new(&settings.accounts)),
            directory: settings.directory.as_ref().map(|directory| Directory::new(directory, tls.clone())),
            cache,
            token_keys: RwLock::new(Arc::new(Keyring::new(
                settings.tokens.as_ref().map_or(&[][..], |tokens| &tokens.keys),
            ))),
            published_keys,
            metadata: settings.openid.as_ref().map(|openid| {
                let at = &openid.discovery;
                let (scheme, path) = (if at.gateway.tls.is_some() { "https" } else { "http" }, &at.path);
                let what = format!(
                    "what the provider of `users \"{}\"` says at {scheme}://{}{path}",
                    settings.name, at.authority
                );
                Fetched::new(what, || ())
            }),
            seals: RwLock::new(Arc::new(Seals::new(
                settings.openid.as_ref().map_or(&[][..], |openid| &openid.session_keys),
            ))),
            admitted: Mutex::default(),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            questions: Arc::new(Questions::new(Guesses::new(guesses))),
            is_silent,
        })
    }

    /// Begins with the keys that another source has from the same address.
    pub(super) fn keep_keys_of(&self, other: &Source) {
        if let (Some(own), Some(theirs)) = (&self.published_keys, &other.published_keys) {
            own.begin_as(theirs);
        }
    }

    /// What tokens are verified with; `None`: that is not known at the moment.
    pub fn token_keys(&self, now: u64) -> Option<Arc<Keyring>> {
        match &self.published_keys {
            Some(published) => published.usable(now),
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

    /// Where users are known, in messages.
    pub fn kind(&self) -> &'static str {
        match (&self.directory, self.accounts().first()) {
            (Some(_), None) => "the directory",
            (None, _) => "the password files",
            (Some(_), Some(_)) => "the password files and the directory",
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
        let guesser = Guesser::of(client, name, self.directory.is_some() && !is_in_file);
        if let Some(user) = self.cache.user(&key, now) {
            // Else who has guessed too often would be told which password is right while its owner is remembered.
            return Answer::Known(match self.guesses().look(&guesser, now) {
                Ok(()) => Outcome::Known(user),
                Err(too_often) => too_often.into(),
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
            None => {
                let source = self.clone();
                self.questions.ask(question, |under_way| {
                    LANE.run(move || {
                        under_way.find_out(|question| source.compare(question, &name, &password));
                    })
                })
            }
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
        let source = self.clone();
        self.questions.ask(question, move |under_way| {
            let asked = source.clone();
            let directory = source.directory.as_ref().ok_or(Overloaded)?;
            directory.run(move |seat| under_way.find_out(|question| job(&asked, seat, question)))
        })
    }

    /// Where guesses of clients are counted.
    pub(super) fn guesses(&self) -> &Guesses {
        self.questions.guesses()
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
        let same = Guesser::of(&question.client, &format!("dn:{}", found.dn), true);
        if let Err(too_often) = self.guesses().charge(&same, question.asked) {
            // This spelling stays counted: it is no way to go on asking either.
            return too_often.into();
        }
        let is_password = seat.is_password(&found, password);
        if !matches!(is_password, Ok(false)) {
            self.guesses().give_back(&same, question.asked);
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

#[cfg(test)]
pub(super) mod tests;
