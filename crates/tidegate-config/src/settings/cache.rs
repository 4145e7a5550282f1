//! `cache`: stores of responses, and what a route keeps in one.

use super::{NetworkSet, Origin};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A store of responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStore {
    /// What routes name it by.
    pub name: String,
    /// The most bytes of memory, in each server process.
    pub memory: u64,
    /// Folders for what the memory has no room for, in source order; none for a store in memory alone.
    pub disks: Vec<CacheDisk>,
    /// The largest response that is stored, bytes. It fits into the memory or one of the disks.
    pub object_size: u64,
    /// Where it was written.
    pub origin: Origin,
}

/// A folder of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDisk {
    /// Absolute. The master makes it for the user of the server processes.
    #[serde(with = "crate::path_encoding::path")]
    pub path: PathBuf,
    /// The most bytes of files in it.
    pub size: u64,
    /// Where it was written.
    pub origin: Origin,
}

/// What a route keeps in a store: what its use says, else what the store says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteCache {
    /// The name of the store.
    pub store: String,
    /// How long responses hold that say nothing of it; those for a status stand before those for a class.
    pub default_lifetimes: Vec<DefaultLifetime>,
    /// A response may be used for a tenth of its age (RFC 9111 section 4.2.2).
    pub heuristic: bool,
    /// How the query stands in the key.
    pub query: CacheQuery,
    /// Parameters that are left out of the key; `*` is anything, anywhere. So it is in the names of cookies.
    pub query_drop: Vec<String>,
    /// The only parameters in the key, `*` is anything; empty for all. Not beside `query_drop`.
    pub query_only: Vec<String>,
    /// Cookies whose values stand in the key.
    pub cookies: Vec<String>,
    /// Which cookies lead past the cache.
    pub bypass: CacheBypass,
    /// A response with `Set-Cookie` is stored, and everybody gets that cookie.
    pub stores_set_cookie: bool,
    /// Requests wait for the fetch of another one.
    pub collapses: bool,
    /// Who may force a fetch, and is told details in `Cache-Status`.
    pub obeyed: NetworkSet,
    /// Where the response does not say it, seconds; `None`: not at all.
    pub stale_while_revalidate: Option<u32>,
    /// The same where the application fails.
    pub stale_if_error: Option<u32>,
    /// `No-Vary-Search` of responses counts.
    pub no_vary_search: bool,
    /// Fields that hold tags, in small letters; they are taken away from responses.
    pub tag_fields: Vec<String>,
    /// The route asks who somebody is: only what says `public` or `s-maxage` may be stored, as for `Authorization`.
    pub is_behind_login: bool,
    /// Where the use was written.
    pub origin: Origin,
}

impl RouteCache {
    /// How long a response with a status holds that says nothing of it.
    pub fn default_lifetime(&self, status: u16) -> Option<Duration> {
        let applies = |lifetime: &&DefaultLifetime| (lifetime.first..=lifetime.last).contains(&status);
        let found = self.default_lifetimes.iter().find(applies).filter(|_| refusal(status).is_none());
        found.map(|found| found.lifetime)
    }
}

/// `default-lifetime` for a status or a class of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultLifetime {
    /// The first status.
    pub first: u16,
    /// The last one. Those of one request or of a failure among them are meant never; see [`RouteCache::default_lifetime`].
    pub last: u16,
    /// How long.
    pub lifetime: Duration,
}

/// How the query of a request stands in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheQuery {
    /// Byte for byte.
    AsSent,
    /// Its parameters in order.
    Sorted,
    /// Not at all.
    Ignored,
}

/// Which cookies of a request lead past the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheBypass {
    /// Any that is not in the key, unless the stored response says `public` or `s-maxage`.
    Unknown,
    /// These; a `*` is anything, anywhere. Others count for nothing; all of them where the list is empty.
    Named(Vec<String>),
}

/// Why a response with a status is never stored on the word of the settings alone.
pub(crate) fn refusal(status: u16) -> Option<&'static str> {
    match status {
        206 => Some("it is a part of something, and is stored with what it is a part of"),
        304 => Some("it only confirms what is stored, and brings its lifetime with it"),
        400 | 405..=407 | 411..=417 | 421 | 422 | 425 | 426 | 428 | 431 => {
            Some("it answers one request, and others would get it who asked rightly")
        }
        401..=403 => Some("it answers one client, and others would be turned away with it"),
        408 | 423 | 424 | 429 | 499 => Some("it answers one moment of one client"),
        500.. => {
            Some("a failure would last as long as that; `stale-if-error` answers with what was there before")
        }
        _ => None,
    }
}
