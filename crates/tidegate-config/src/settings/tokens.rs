//! `tokens`: who somebody is by a JSON Web Token (RFC 7519) that somebody else has signed.

use super::Shared;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Whose tokens are good, and what is in them: `tokens "/etc/tidegate/jwks.json" { … }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// The set of keys (RFC 7517); the master reads it anew when it changes.
    #[serde(with = "crate::path_encoding::path")]
    pub file: PathBuf,
    /// Its keys that can be used.
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

/// A key of a [`Tokens`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
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
