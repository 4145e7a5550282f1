//! How often a client may try passwords of a user that are wrong.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::rate::{Buckets, Rate, Ruling};

/// Wrong passwords of a user that a client may try at once, and one more in each such time.
pub const GUESSES: (u64, Duration) = (10, Duration::from_secs(10));

/// Whom a guess is counted for: a client, and the user whose password it tries.
pub struct Guesser(Vec<u8>);

impl Guesser {
    /// `is_folded`: a directory is asked, which takes names for the same whatever the case.
    pub fn of(client: &[u8], name: &str, is_folded: bool) -> Guesser {
        let folded = is_folded.then(|| name.trim().to_lowercase());
        Guesser([client, b"\0", folded.as_deref().unwrap_or(name).as_bytes()].concat())
    }
}

/// Somebody has guessed too often, and may try again after so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften(pub Duration);

/// The guesses of all clients, which all server processes count together.
pub struct Guesses(Arc<Buckets>);

impl Guesses {
    /// Counted in this table.
    pub fn new(table: Arc<Buckets>) -> Guesses {
        Guesses(table)
    }

    /// Counts one at `now` (monotonic nanoseconds), before it is made, so that those that come at once are counted as those one
    /// after the other.
    ///
    /// # Errors
    /// There have been too many.
    pub fn charge(&self, guesser: &Guesser, now: u64) -> Result<(), TooOften> {
        within(self.0.charge(&guesser.0, rate(), now))
    }

    /// What [`charge`](Guesses::charge) would say, without counting anything.
    ///
    /// # Errors
    /// There have been too many.
    pub fn look(&self, guesser: &Guesser, now: u64) -> Result<(), TooOften> {
        within(self.0.look(&guesser.0, rate(), now))
    }

    /// What was counted at `asked` was no guess.
    pub fn give_back(&self, guesser: &Guesser, asked: u64) {
        self.0.give_back(&guesser.0, rate().interval(), asked);
    }
}

fn within(ruling: Ruling) -> Result<(), TooOften> {
    match ruling {
        Ruling::Within { .. } => Ok(()),
        Ruling::Beyond { retry_after } => Err(TooOften(retry_after)),
    }
}

fn rate() -> Rate {
    let burst = NonZeroU64::new(GUESSES.0).unwrap_or(NonZeroU64::MIN);
    Rate::new(NonZeroU64::MIN, GUESSES.1, burst)
}
