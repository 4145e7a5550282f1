//! The sources of a process, by the settings that mean them.

use super::signed::KeyRings;
use super::source::Source;
use crate::status::{ProviderReport, providers};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use tidegate_config::Settings;
use tidegate_config::credentials::Credential;
use tidegate_config::settings::{Tokens, UserSource};
use tidegate_core::rate::RateStore;
use tidegate_core::tls::TlsStore;
use tidegate_io::locking::lock;

/// The sources of a process. Outlives its engines: who has logged in stays so over a reload.
pub struct LoginStore {
    /// By name. While a revision gets ready there may be one that it says beside the one in force.
    sources: Mutex<HashMap<String, Vec<Held>>>,
    /// Of signed URLs.
    pub key_rings: KeyRings,
    tls: Arc<TlsStore>,
    rates: Arc<RateStore>,
    is_silent: bool,
}

/// A source, and the settings that were last found to mean it.
struct Held {
    settings: UserSource,
    source: Arc<Source>,
}

impl Held {
    /// Whether it is what these settings mean, wherever they stand. Many accounts are compared at most once for new
    /// settings: then they are the same in memory.
    fn is_meant_by(&mut self, settings: &UserSource) -> bool {
        let UserSource { name, files: _, accounts, directory, forward, tokens, openid, cache, origin: _ } =
            settings;
        let (own, same) = (&self.settings, self.settings.accounts.is_same(accounts));
        let is_same_directory = match (&own.directory, directory) {
            (None, None) => true,
            (Some(own), Some(directory)) => own.is_same_as(directory),
            _ => false,
        };
        let is_same_application = match (&own.forward, forward) {
            (None, None) => true,
            (Some(own), Some(forward)) => own.is_same_as(forward),
            _ => false,
        };
        let is_same_issuer = match (&own.tokens, tokens) {
            (None, None) => true,
            (Some(own), Some(tokens)) => own.is_same_as(tokens),
            _ => false,
        };
        let is_same_provider = match (&own.openid, openid) {
            (None, None) => true,
            (Some(own), Some(openid)) => own.is_same_as(openid),
            _ => false,
        };
        let is_meant = own.name == *name
            && is_same_application
            && is_same_issuer
            && is_same_provider
            && own.cache == *cache
            && is_same_directory
            && (same || own.accounts == *accounts);
        if is_meant && !same {
            self.settings.accounts = accounts.clone();
        }
        is_meant
    }
}

impl LoginStore {
    /// Without any source yet.
    pub fn new(tls: Arc<TlsStore>, rates: Arc<RateStore>) -> LoginStore {
        LoginStore { sources: Mutex::default(), key_rings: KeyRings::default(), tls, rates, is_silent: false }
    }

    /// For `explain`: no directory is asked, whatever a request brings.
    pub fn silent(tls: Arc<TlsStore>) -> LoginStore {
        LoginStore { is_silent: true, ..LoginStore::new(tls, Arc::default()) }
    }

    /// The source of some users; one that says something else than before knows nobody yet. What is in force stays beside it
    /// until [`settle`](LoginStore::settle) says which of them that is.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn source(&self, settings: &UserSource) -> io::Result<Arc<Source>> {
        let mut sources = lock(&self.sources);
        let of_name = sources.entry(settings.name.clone()).or_default();
        if let Some(held) = of_name.iter_mut().find_map(|held| held.is_meant_by(settings).then_some(held)) {
            held.source.renew_directory();
            return Ok(held.source.clone());
        }
        let source = Arc::new(Source::new(settings, &self.tls, &self.rates, self.is_silent)?);
        // Keys of the same address are good for other settings, too: it may be away just now.
        let keys_at = |settings: &UserSource| settings.tokens.as_ref().and_then(Tokens::service).cloned();
        let same = |held: &&Held| keys_at(settings).is_some() && keys_at(settings) == keys_at(&held.settings);
        if let Some(before) = of_name.iter().rfind(same) {
            source.keep_keys_of(&before.source);
        }
        of_name.push(Held { settings: settings.clone(), source: source.clone() });
        Ok(source)
    }

    /// Files were read anew.
    pub fn renew(&self, credential: &Credential) {
        match credential {
            Credential::UrlKeys(name, keys) => self.key_rings.renew(name, keys),
            Credential::TokenKeys(users, keys) => {
                let mut sources = lock(&self.sources);
                for held in sources.get_mut(users).into_iter().flatten() {
                    held.source.renew_token_keys(keys);
                    if let Some(tokens) = &mut held.settings.tokens {
                        tokens.keys = keys.clone();
                    }
                }
            }
            Credential::SessionKeys(users, keys) => {
                let mut sources = lock(&self.sources);
                for held in sources.get_mut(users).into_iter().flatten() {
                    held.source.renew_seals(keys);
                    if let Some(openid) = &mut held.settings.openid {
                        openid.session_keys = keys.clone();
                    }
                }
            }
            Credential::Accounts(users, accounts) => {
                let mut sources = lock(&self.sources);
                for held in sources.get_mut(users).into_iter().flatten() {
                    held.source.renew(accounts);
                    held.settings.accounts = accounts.clone();
                }
            }
        }
    }

    /// How asking identity providers has gone.
    pub fn providers(&self) -> Vec<ProviderReport> {
        let mut all = Vec::new();
        for held in lock(&self.sources).values().flatten() {
            providers::merge(&mut all, &held.source.providers().collect::<Vec<_>>());
        }
        all.sort_unstable_by(|one, other| one.what.cmp(&other.what));
        all
    }

    /// How many there are.
    pub fn held(&self) -> usize {
        lock(&self.sources).values().map(Vec::len).sum()
    }

    /// Lets go of those that are none of the settings in force, or another than these say.
    pub fn settle(&self, settings: &Settings) {
        lock(&self.sources).retain(|name, of_name| {
            let mut meant = settings.users.iter().filter(|users| users.name == *name);
            of_name.retain_mut(|held| meant.clone().any(|users| held.is_meant_by(users)));
            meant.next().is_some() && !of_name.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::questions::{Answer, Outcome};
    use crate::login::source::tests::{CACHE, NOW, users, wait};
    use tidegate_config::settings::Account;

    /// Who has another password, or other groups, or is there no more, is known no more; others are, without another look.
    #[test]
    fn files_that_change_concern_those_for_whom_they_do() {
        let store = LoginStore::new(TlsStore::new().unwrap(), Arc::default());
        let source = store.source(&users(CACHE)).unwrap();
        let ben = wait(source.look_up("ben", b"hello", b"c", NOW)).unwrap();
        let is_known = |name: &str| {
            matches!(source.look_up(name, b"hello", b"c", NOW), Answer::Known(Outcome::Known(_)))
        };
        let mut changed = users(CACHE);
        let renew = |changed: &UserSource| {
            store.renew(&Credential::Accounts("staff".into(), changed.accounts.clone()));
            assert!(Arc::ptr_eq(&source, &store.source(changed).unwrap()), "a reload finds the same");
        };
        let change = |changed: &mut UserSource, change: &dyn Fn(&mut Vec<Account>)| {
            let mut accounts = changed.accounts.to_vec();
            change(&mut accounts);
            changed.accounts = accounts.into();
        };
        assert!(wait(source.look_up("carl", b"hello", b"c", NOW)).is_none());
        let carl = |accounts: &mut Vec<Account>| {
            let hash = accounts[1].hash.clone();
            accounts.push(Account { name: "carl".into(), hash, groups: Vec::new() });
        };
        change(&mut changed, &carl);
        renew(&changed);
        assert!(is_known("ben"), "nothing has changed for him");
        assert!(wait(source.look_up("carl", b"hello", b"c", NOW)).is_some(), "he was nobody a moment ago");
        change(&mut changed, &|accounts| accounts[1].groups = vec!["guests".into()]);
        renew(&changed);
        assert!(!is_known("ben") && is_known("carl"));
        let again = wait(source.look_up("ben", b"hello", b"c", NOW)).unwrap();
        assert!(ben.is_in("admins") && again.is_in("guests") && !again.is_in("admins"));
        change(&mut changed, &|accounts| drop(accounts.remove(1)));
        renew(&changed);
        assert!(wait(source.look_up("ben", b"hello", b"c", NOW)).is_none());
    }

    #[test]
    fn other_passwords_are_another_source() {
        let store = LoginStore::new(TlsStore::new().unwrap(), Arc::default());
        let first = store.source(&users(CACHE)).unwrap();
        assert!(Arc::ptr_eq(&first, &store.source(&users(CACHE)).unwrap()));
        let mut changed = users(CACHE);
        changed.accounts = changed.accounts[..1].to_vec().into();
        assert!(!Arc::ptr_eq(&first, &store.source(&changed).unwrap()));
    }

    /// FAULTS 67: whoever has logged in stays so, and guesses stay counted, when other settings are given up.
    #[test]
    fn a_source_that_never_comes_into_force_replaces_none() {
        let store = LoginStore::new(TlsStore::new().unwrap(), Arc::default());
        let nothing = std::collections::BTreeMap::new();
        let text = "listen \"127.0.0.1:0\"\nsite { respond 200 }";
        let mut present = tidegate_config::load_str("test", text, "/".as_ref(), &nothing).settings.unwrap();
        present.users = vec![users(CACHE)];
        let in_force = store.source(&present.users[0]).unwrap();
        store.settle(&present);
        let mut changed = users(CACHE);
        changed.accounts = changed.accounts[..1].to_vec().into();
        let given_up = store.source(&changed).unwrap();
        assert!(!Arc::ptr_eq(&in_force, &given_up));
        assert_eq!(store.held(), 2);
        store.settle(&present);
        assert_eq!(store.held(), 1);
        assert!(Arc::ptr_eq(&in_force, &store.source(&present.users[0]).unwrap()));
        // What comes into force takes its place.
        let next = store.source(&changed).unwrap();
        present.users = vec![changed.clone()];
        store.settle(&present);
        assert_eq!(store.held(), 1);
        assert!(Arc::ptr_eq(&next, &store.source(&changed).unwrap()));
    }
}
