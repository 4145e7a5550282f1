//! `limit`: how often something may be asked for, and how much of it may be under way at once.

use super::Origin;
use super::pool::Queue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// A limit by whatever tells clients apart. One of a name is one and the same wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What it is called: in logs, in the status and in the fields of answers.
    pub name: String,
    /// What it bounds.
    pub bound: Bound,
    /// What is counted by itself: a text, placeholders not yet filled in.
    pub by: String,
    /// How many of these are known at once.
    pub keys: u32,
    /// Only counts what it would refuse.
    pub is_tracked: bool,
    /// Other servers count with this one, of which each may let in so many of a key before the others have heard of it.
    pub lease: Option<NonZeroU32>,
    /// Who finds no place among what is under way waits, of each key so many.
    #[serde(default)]
    pub queue: Option<Queue>,
    /// Where it was written.
    pub origin: Origin,
}

/// What the names of limits begin with that nobody has written.
const OWN: &str = "tidegate:";

impl Limit {
    /// The name of what counts the requests of a site that are under way, for hooks.
    pub fn of_load(site: &str) -> String {
        format!("{OWN}load of {site}")
    }

    /// The name of what counts all requests of a site, for hooks.
    pub fn of_requests(site: &str) -> String {
        format!("{OWN}requests of {site}")
    }

    /// Whether a limit of this name is the server's own.
    pub fn is_own(name: &str) -> bool {
        name.starts_with(OWN)
    }
}

/// What a limit bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Requests in a time.
    Requests(RequestRate),
    /// Requests that are under way at once.
    Concurrent(NonZeroU32),
    /// Open connections of those who have asked for it.
    Connections(NonZeroU32),
    /// Nothing: requests are counted. Nobody writes that.
    Nothing,
}

/// How often something may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRate {
    /// How many requests in each `period`.
    pub count: NonZeroU64,
    /// The time that `count` is for.
    pub period: Duration,
    /// How many may come at once.
    pub burst: NonZeroU64,
}

impl RequestRate {
    /// The longest that a key is remembered after its last request: what is slower would be taken for this slow.
    pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
}

impl RequestRate {
    /// As one writes it: `10/s`.
    pub fn rate(&self) -> String {
        crate::value::rate_text(self.count, self.period)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Requests(rate) => write!(f, "{}, {} at once", rate.rate(), rate.burst),
            Bound::Concurrent(most) => write!(f, "{most} under way at once"),
            Bound::Connections(most) => write!(f, "{most} connections at once"),
            Bound::Nothing => f.write_str("as many as come"),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = crate::value::duration_text(self.age);
        match self.length {
            1 => write!(f, "1 more waits up to {age}"),
            length => write!(f, "{length} more wait up to {age}"),
        }
    }
}

impl Limit {
    /// Whether each client, or whatever else requests say, is counted by itself; otherwise all share one count.
    pub fn is_by_request(&self) -> bool {
        self.by.contains('{')
    }

    /// Whether two say the same.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let Limit { origin, .. } = other;
        Self { origin: origin.clone(), ..self.clone() } == *other
    }
}
