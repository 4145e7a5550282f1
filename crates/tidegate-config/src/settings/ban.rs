//! `ban`: who is not let in for a while, by how it was answered.

use super::Origin;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bans clients that are answered with certain statuses too often. One of a name is one and the same wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// What it is called: in logs, in the status and for who lifts bans.
    pub name: String,
    /// The statuses that count.
    pub statuses: Vec<u16>,
    /// So many.
    pub count: u32,
    /// In this time.
    pub within: Duration,
    /// For how long a client is banned.
    pub lasts: Duration,
    /// The status of what it is answered; `None`: its connection is closed without an answer.
    pub answer: Option<u16>,
    /// How long its answers are held back.
    pub tarpit: Option<Duration>,
    /// How many clients are known at once.
    pub keys: u32,
    /// Only counts what it would refuse.
    pub is_tracked: bool,
    /// Other servers that use the same store ban with this one.
    #[serde(default)]
    pub is_shared: bool,
    /// Where it was written.
    pub origin: Origin,
}

impl Ban {
    /// Whether two say the same.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let Ban { origin, .. } = other;
        Self { origin: origin.clone(), ..self.clone() } == *other
    }
}
