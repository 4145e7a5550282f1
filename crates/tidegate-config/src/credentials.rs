//! What logins compare with and settings only name: read from files of their own, and read anew by the master whenever
//! those change, without a reload.

use crate::Settings;
use crate::settings::{Account, OpenId, Shared, TokenKey, Tokens, UrlKey, UrlKeys, UserSource};
use crate::token_keys;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was read anew, by the name of what it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Credential {
    /// Who stands in the files of a `users`.
    Accounts(String, Shared<Vec<Account>>),
    /// What the `tokens` of a `users` names.
    TokenKeys(String, Shared<Vec<TokenKey>>),
    /// What the `session-keys` of a `users` names.
    SessionKeys(String, Shared<Vec<UrlKey>>),
    /// What a `url-keys` names.
    UrlKeys(String, Shared<Vec<UrlKey>>),
}

/// Files that one credential is read from.
#[derive(Debug, Clone, Copy)]
pub enum CredentialFiles<'s> {
    /// Those of a `users`.
    Accounts(&'s UserSource),
    /// That of the `tokens` of a `users`.
    TokenKeys(&'s UserSource, &'s Tokens),
    /// That of the `session-keys` of a `users`.
    SessionKeys(&'s UserSource, &'s OpenId),
    /// That of a `url-keys`.
    UrlKeys(&'s UrlKeys),
}

impl<'s> CredentialFiles<'s> {
    /// All that some settings name.
    pub fn of(settings: &'s Settings) -> Vec<CredentialFiles<'s>> {
        let sources = settings.users.iter().map(CredentialFiles::Accounts);
        let keys = settings.url_keys.iter().map(CredentialFiles::UrlKeys);
        let of_tokens =
            |source: &'s UserSource| Some(CredentialFiles::TokenKeys(source, source.tokens.as_ref()?));
        let tokens = settings.users.iter().filter_map(of_tokens);
        let of_sessions =
            |source: &'s UserSource| Some(CredentialFiles::SessionKeys(source, source.openid.as_ref()?));
        let tokens = tokens.chain(settings.users.iter().filter_map(of_sessions));
        sources.chain(keys).chain(tokens).filter(|files| files.paths().next().is_some()).collect()
    }

    /// Their paths.
    pub fn paths(self) -> impl Iterator<Item = &'s Path> {
        let (files, file) = match self {
            CredentialFiles::Accounts(source) => (Some(&source.files), None),
            CredentialFiles::UrlKeys(keys) => (None, Some(keys.file.as_path())),
            CredentialFiles::TokenKeys(_, tokens) => (None, tokens.file()),
            CredentialFiles::SessionKeys(_, openid) => (None, Some(openid.session_keys_file.as_path())),
        };
        let of_accounts = files.into_iter().flat_map(|files| files.passwords.iter().chain(&files.groups));
        of_accounts.map(PathBuf::as_path).chain(file)
    }

    /// What stands there now, and of each line that counts for nothing a sentence. Asks the file system, which may hang.
    ///
    /// # Errors
    /// Why it is broken, a sentence.
    pub fn read(self) -> Result<(Credential, Vec<String>), Broken> {
        let whole = |credential| (credential, Vec::new());
        match self {
            CredentialFiles::TokenKeys(source, tokens) => {
                match token_keys::read_anew(tokens.file().unwrap_or("".as_ref())) {
                    Ok(read) => Ok(whole(Credential::TokenKeys(source.name.clone(), read.into()))),
                    Err(why) => Err(Broken { of: self.to_string(), why }),
                }
            }
            CredentialFiles::SessionKeys(source, openid) => {
                match crate::read_url_keys(&openid.session_keys_file) {
                    Ok(read) => Ok(whole(Credential::SessionKeys(source.name.clone(), read.into()))),
                    Err(why) => Err(Broken { of: self.to_string(), why }),
                }
            }
            CredentialFiles::UrlKeys(keys) => match crate::read_url_keys(&keys.file) {
                Ok(read) => Ok(whole(Credential::UrlKeys(keys.name.clone(), read.into()))),
                Err(why) => Err(Broken { of: self.to_string(), why }),
            },
            CredentialFiles::Accounts(source) => {
                let name = || source.name.clone();
                match source.files.read() {
                    Ok((accounts, wrong)) => Ok((Credential::Accounts(name(), accounts.into()), wrong)),
                    Err(why) => Err(Broken { of: self.to_string(), why }),
                }
            }
        }
    }
}

impl fmt::Display for CredentialFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialFiles::Accounts(source) => write!(f, "the files of `users \"{}\"`", source.name),
            CredentialFiles::TokenKeys(source, _) => {
                write!(f, "the keys of tokens of `users \"{}\"`", source.name)
            }
            CredentialFiles::SessionKeys(source, _) => {
                write!(f, "the keys of sessions of `users \"{}\"`", source.name)
            }
            CredentialFiles::UrlKeys(keys) => write!(f, "the keys of `url-keys \"{}\"`", keys.name),
        }
    }
}

/// Files that cannot take the place of what they said before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub of: String,
    /// A sentence.
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} have changed, but what they said before stays in use: {}", self.of, self.why)
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credential::TokenKeys(name, keys) => {
                let (count, s) = (keys.len(), if keys.len() == 1 { "" } else { "s" });
                write!(
                    f,
                    "the keys of tokens of `users \"{name}\"` have changed and are in use, {count} key{s}"
                )
            }
            Credential::SessionKeys(name, _) => {
                write!(f, "the keys of sessions of `users \"{name}\"` have changed and are in use")
            }
            Credential::UrlKeys(name, _) => {
                write!(f, "the keys of `url-keys \"{name}\"` have changed and are in use")
            }
            Credential::Accounts(name, accounts) => {
                let s = if accounts.len() == 1 { "" } else { "s" };
                write!(
                    f,
                    "the files of `users \"{name}\"` have changed and are in use, with {} user{s}",
                    accounts.len()
                )
            }
        }
    }
}

impl Settings {
    /// Takes over what was read anew; whether that says something else.
    pub fn renew(self: &mut Arc<Self>, credential: &Credential) -> bool {
        match credential {
            Credential::Accounts(name, accounts) => {
                let place = self.users.iter().position(|source| source.name == *name);
                let Some(place) = place.filter(|place| self.users[*place].accounts != *accounts) else {
                    return false;
                };
                Arc::make_mut(self).users[place].accounts = accounts.clone();
                true
            }
            Credential::TokenKeys(name, keys) => {
                let is_meant = |source: &UserSource| {
                    source.name == *name && source.tokens.as_ref().is_some_and(|tokens| tokens.keys != *keys)
                };
                let Some(place) = self.users.iter().position(is_meant) else { return false };
                if let Some(tokens) = &mut Arc::make_mut(self).users[place].tokens {
                    tokens.keys = keys.clone();
                }
                true
            }
            Credential::SessionKeys(name, keys) => {
                let is_meant = |source: &UserSource| {
                    source.name == *name
                        && source.openid.as_ref().is_some_and(|openid| openid.session_keys != *keys)
                };
                let Some(place) = self.users.iter().position(is_meant) else { return false };
                if let Some(openid) = &mut Arc::make_mut(self).users[place].openid {
                    openid.session_keys = keys.clone();
                }
                true
            }
            Credential::UrlKeys(name, keys) => {
                let place = self.url_keys.iter().position(|known| known.name == *name);
                let Some(place) = place.filter(|place| self.url_keys[*place].keys != *keys) else {
                    return false;
                };
                Arc::make_mut(self).url_keys[place].keys = keys.clone();
                true
            }
        }
    }
}
