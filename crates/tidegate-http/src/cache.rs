//! The rules of a shared cache (RFC 9111, 5861, 8246, 9211, 9213, 9875): what may be stored, for how long it
//! may be used, what has to be asked for first, and what a change makes invalid.
//!
//! Called by the handler that stands before an application, and by the store for what it keeps of a
//! response. Knows no store, no socket and no clock: every time is an argument, in Unix seconds. What is
//! called for a hit ([`lookup_allowed`], [`usable`], [`Varying::fits`], [`CacheStatus`]) allocates nothing.
//!
//! The life of a request: [`lookup_allowed`], [`key::write`], [`Varying::fits`] on each variant, [`usable`]
//! on the first that fits, [`current_validators`] and [`range_validators`] for the conditions of the client,
//! [`set_age`] and [`CacheStatus`] for the answer. Where the origin is asked: [`validators`], then for a 304
//! [`selected_by_304`] and [`refreshed`], for anything else [`storable`], [`Varying::of`] and
//! [`stored_fields`]; for an origin that fails [`usable_on_error`]; for an unsafe method [`invalidated`].

pub mod cdn_loop;
mod directives;
mod freshness;
pub mod groups;
mod invalidating;
pub mod key;
pub mod names;
mod no_vary_search;
pub mod partial;
mod reasons;
mod reference;
mod serving;
mod standing_in;
mod status;
mod storing;
mod validating;
mod varying;

use std::ops::RangeInclusive;

pub use freshness::{Freshness, LifetimeSource};
pub use invalidating::{Base, Invalidated, invalidated};
pub use no_vary_search::NoVarySearch;
pub use reasons::{Detail, Kind, Reason};
pub use serving::{
    Bypass, Use, Verdict, Why, forced_by, lookup_allowed, may_join, only_if_cached, set_age, usable,
    usable_on_error, usable_once_fetched,
};
pub use standing_in::{Audience, stand_in};
pub use status::{CacheStatus, Forward};
pub use storing::{NotStored, add_date, storable, stored_fields};
pub use validating::{
    HeadSays, current_validators, head_says, range_validators, refreshed, selected_by_304, updated,
    validators,
};
pub use varying::Varying;

use crate::field::{FieldLines, Fields};
use crate::method::Method;
use crate::status::Status;

/// What of a request decides.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// As sent: HEAD stays HEAD.
    pub method: Method,
    /// As the client sent them.
    pub fields: Fields<'a>,
    /// Whether content comes with it: a length above 0, or one that is not known.
    pub has_content: bool,
    /// Whether this client may force a fetch, by `no-cache`, `no-store`, `max-age` and `min-fresh`. Those of
    /// others are passed over: anybody could keep the origin busy with them.
    pub is_obeyed: bool,
}

/// What of a final response decides.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// Never 1xx: that is no final response.
    pub status: Status,
    /// As they came.
    pub fields: &'a FieldLines,
}

/// When a response was fetched, Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When the request was sent to the origin.
    pub asked: i64,
    /// When the head of the response had come.
    pub answered: i64,
}

/// A lifetime of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultLifetime {
    /// The status codes that it is for.
    pub statuses: RangeInclusive<u16>,
    /// Seconds.
    pub seconds: u32,
}

/// What the settings add to what a response says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// For responses that say nothing of their lifetime; the first that covers the status counts.
    pub default_lifetimes: Vec<DefaultLifetime>,
    /// Whether a tenth of the time since `Last-Modified`, a day at most, is a lifetime where none is given.
    pub heuristic: bool,
    /// Whether `Set-Cookie` is stored and sent to everybody. Else it is left out, and a response that has it
    /// is stored only where it says that it is for shared caches.
    pub keeps_set_cookie: bool,
    /// Whether a response to a request with `Cookie` may be stored although it does not say that it is for
    /// shared caches: for origins that do not look at cookies, and for cookies that are part of the key.
    pub ignores_cookies: bool,
    /// Seconds, for responses that do not say it themselves and that do not forbid it.
    pub stale_while_revalidate: Option<u32>,
    /// Seconds, for responses that do not say it themselves and that do not forbid it.
    pub stale_if_error: Option<u32>,
    /// Names of targeted fields (RFC 9213), the most specific first.
    pub targets: Vec<String>,
    /// Whether `No-Vary-Search` is read.
    pub no_vary_search: bool,
    /// Whether fields with tags for purging stay in what is sent, for caches in front of this one.
    pub keeps_tags: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            default_lifetimes: Vec::new(),
            heuristic: false,
            keeps_set_cookie: false,
            ignores_cookies: false,
            stale_while_revalidate: None,
            stale_if_error: None,
            targets: ["Tidegate-Cache-Control", "CDN-Cache-Control"].map(String::from).to_vec(),
            no_vary_search: false,
            keeps_tags: false,
        }
    }
}
