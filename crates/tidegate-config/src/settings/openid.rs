//! `openid`: an identity provider (OpenID Connect) that says who somebody is.

use super::{ServiceAddress, Shared, UrlKey};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Formatter};
use std::path::PathBuf;
use std::time::Duration;

/// Who says so, and how it is kept: `openid "https://id.example.com" { … }`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenId {
    /// What the provider calls itself, as it was written.
    pub issuer: String,
    /// Where it says what it has.
    pub discovery: ServiceAddress,
    /// Where its keys are, where they are on another host.
    pub keys: Option<ServiceAddress>,
    /// Where codes are redeemed, where that is on another host.
    pub token: Option<ServiceAddress>,
    /// What it calls this server.
    pub client: String,
    /// By which it knows that it is this server.
    pub secret: Option<String>,
    /// The file that it is the first line of.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub secret_file: Option<PathBuf>,
    /// What sessions are sealed with; the master reads it anew when it changes.
    #[serde(with = "crate::path_encoding::path")]
    pub session_keys_file: PathBuf,
    /// Its keys, the one that seals first.
    pub session_keys: Shared<Vec<UrlKey>>,
    /// What is asked for beside `openid`.
    pub scopes: Vec<String>,
    /// The claim with the name of the user.
    pub user: String,
    /// The one with the groups.
    pub groups: Option<String>,
    /// How long somebody stays logged in.
    pub session: Duration,
    /// After how long the provider is asked again who it is, where that is sooner.
    pub refresh: Option<Duration>,
    /// How far clocks may be apart.
    pub leeway: Duration,
    /// The path that the provider sends browsers back to.
    pub callback: String,
    /// The path that ends a session.
    pub logout: String,
    /// Where a browser goes then.
    pub after_logout: Option<String>,
}

impl OpenId {
    /// The services that are asked for it.
    pub fn services(&self) -> impl Iterator<Item = &ServiceAddress> {
        [Some(&self.discovery), self.keys.as_ref(), self.token.as_ref()].into_iter().flatten()
    }

    /// Whether two say the same, wherever they stand.
    pub fn is_same_as(&self, other: &OpenId) -> bool {
        let plain = |openid: &OpenId| OpenId {
            discovery: openid.discovery.without_origin(),
            keys: openid.keys.as_ref().map(ServiceAddress::without_origin),
            token: openid.token.as_ref().map(ServiceAddress::without_origin),
            ..openid.clone()
        };
        plain(self) == plain(other)
    }
}

impl fmt::Debug for OpenId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The secret is nothing for a log.
        f.debug_struct("OpenId")
            .field("issuer", &self.issuer)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
