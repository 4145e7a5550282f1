//! `tokens`: who somebody is by a JSON Web Token (RFC 7519) that somebody else has signed.

use super::{ServiceAddress, Shared};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where keys come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum KeySource {
    /// A file, which the master reads anew when it changes; absolute.
    File(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// A service, which the server processes ask.
    Service(Box<ServiceAddress>),
}

/// Whose tokens are good, and what is in them: `tokens "/etc/tidegate/jwks.json" { … }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// The set of keys (RFC 7517).
    pub source: KeySource,
    /// Its keys that can be used; none as long as a service has to be asked for them.
    pub keys: Shared<Vec<TokenKey>>,
    /// Who has to have issued a token.
    pub issuer: String,
    /// For one of whom it has to be.
    pub audience: Vec<String>,
    /// The claim with the name of the user.
    pub user: String,
    /// The one with the groups.
    pub groups: Option<String>,
    /// How far clocks may be apart.
    pub leeway: Duration,
}

impl Tokens {
    /// The file of the keys, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            KeySource::File(file) => Some(file),
            KeySource::Service(_) => None,
        }
    }

    /// The service that has the keys.
    pub fn service(&self) -> Option<&ServiceAddress> {
        match &self.source {
            KeySource::File(_) => None,
            KeySource::Service(service) => Some(service),
        }
    }

    /// Whether two say the same, wherever they stand.
    pub fn is_same_as(&self, other: &Tokens) -> bool {
        let plain = |tokens: &Tokens| match &tokens.source {
            KeySource::File(_) => tokens.clone(),
            KeySource::Service(service) => {
                Tokens { source: KeySource::Service(Box::new(service.without_origin())), ..tokens.clone() }
            }
        };
        plain(self) == plain(other)
    }
}

/// A key of a [`Tokens`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenKey {
    /// Its name in tokens.
    pub id: Option<String>,
    /// What it is for, and nothing else: a word of RFC 7518 section 3.1.
    pub algorithm: String,
    /// The key, a JWK as JSON.
    pub jwk: String,
}

impl TokenKey {
    /// Whether whoever has it can sign tokens, too.
    pub fn is_secret(&self) -> bool {
        self.algorithm.starts_with("HS")
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One of HMAC is secret.
        f.debug_struct("TokenKey").field("id", &self.id).field("algorithm", &self.algorithm).finish()
    }
}
