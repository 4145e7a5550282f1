//! `bandwidth`: how fast answers may be sent.

use super::Origin;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;

/// A bound on the bytes of answers in each second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// What it is for: a level of the settings, or a class. All of a name share it.
    pub name: String,
    /// Bytes in each second.
    pub speed: NonZeroU64,
    /// Bytes that may be sent at once after a rest.
    pub burst: u64,
    /// Bytes of each answer that are free.
    pub after: u64,
    /// What has as much each: a text, placeholders not yet filled in. Empty where all share it.
    pub by: String,
    /// How many of these are known at once.
    pub keys: u32,
    /// Only counts what it would delay.
    pub is_tracked: bool,
    /// Where it was written.
    pub origin: Origin,
}

impl Bandwidth {
    /// Whether two say the same.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let Bandwidth { origin, .. } = other;
        Self { origin: origin.clone(), ..self.clone() } == *other
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bandwidth { name, speed, by, origin, .. } = self;
        write!(f, "the bandwidth of {name} ({origin}): {}/s", crate::value::size_text(speed.get()))?;
        if by.is_empty() { Ok(()) } else { write!(f, " for each `{by}`") }
    }
}
