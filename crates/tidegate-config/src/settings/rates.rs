//! `limit`: how often something may be asked for.

use super::Origin;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::time::Duration;

/// A limit of requests by whatever tells clients apart. One of a name is one and the same wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRate {
    /// What it is called: in logs, in the status and in the fields of answers.
    pub name: String,
    /// How many requests in each `period`.
    pub count: NonZeroU64,
    /// The time that `count` is for.
    pub period: Duration,
    /// How many may come at once.
    pub burst: NonZeroU64,
    /// What is counted by itself: a text, placeholders not yet filled in.
    pub by: String,
    /// How many of these are known at once.
    pub keys: u32,
    /// Only counts what it would refuse.
    pub is_tracked: bool,
    /// Where it was written.
    pub origin: Origin,
}

impl RequestRate {
    /// As one writes it: `10/s`.
    pub fn rate(&self) -> String {
        format!("{}/{}", self.count, crate::value::duration_text(self.period).trim_start_matches('1'))
    }

    /// Whether two say the same.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let RequestRate { origin, .. } = other;
        Self { origin: origin.clone(), ..self.clone() } == *other
    }
}
