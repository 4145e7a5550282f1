//! What a server process says when the master asks whether it is well.

use crate::link::Wellness;
use rustix::process::{Resource, Rlimit, getrlimit};

/// Limits without which a process cannot serve as it did; others of its user can lower them (prlimit(2)).
const WATCHED: [(Resource, &str); 5] = [
    (Resource::Nofile, "descriptors"),
    (Resource::As, "address space"),
    (Resource::Data, "data"),
    (Resource::Fsize, "the size of files"),
    (Resource::Nproc, "processes and threads"),
];

/// The limits of this process when it began.
pub struct Limits([Rlimit; 5]);

impl Limits {
    /// Those of now.
    pub fn now() -> Limits {
        Limits(WATCHED.map(|(resource, _)| getrlimit(resource)))
    }

    /// The first that is lower than it was.
    fn lowered(&self, now: &Limits) -> Option<&'static str> {
        let is_lower = |before: Option<u64>, now: Option<u64>| {
            now.is_some_and(|now| before.is_none_or(|before| now < before))
        };
        let both = self.0.iter().zip(&now.0).zip(WATCHED);
        let mut lower = both.filter(|((before, now), _)| {
            is_lower(before.current, now.current) || is_lower(before.maximum, now.maximum)
        });
        lower.next().map(|(_, (_, name))| name)
    }

    /// What is wrong, and how many workers have not answered.
    pub fn examine(&self, silent: usize) -> Wellness {
        Wellness { lowered: self.lowered(&Limits::now()).map(str::to_owned), silent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_lower_than_it_was_is_named() {
        let limits = |soft: Option<u64>, hard: Option<u64>| {
            let mut limits = Limits::now();
            limits.0[0] = Rlimit { current: soft, maximum: hard };
            limits
        };
        let begun = limits(Some(1000), None);
        for (soft, hard, is_lower) in [
            (Some(1000), None, false),
            (Some(2000), None, false),
            (None, None, false),
            (Some(3), None, true),
            (Some(1000), Some(1000), true),
        ] {
            let lowered = begun.lowered(&limits(soft, hard));
            assert_eq!(lowered, is_lower.then_some("descriptors"), "{soft:?} {hard:?}");
        }
    }
}
