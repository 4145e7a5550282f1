//! Whether a server process that serves is well: it is asked now and then, and replaced where it does not answer or says
//! that it is not.
//!
//! A process that was stopped, or whose workers are stuck, accepts nobody and does not end, and so does one that may hold
//! no descriptors any more since somebody of its user has lowered its limits (prlimit(2)). Who connects meanwhile waits.

use std::time::{Duration, Instant};

/// How often each is asked.
const EVERY: Duration = Duration::from_secs(5);
/// How long it may take to answer, its workers included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bad answers, or none, in a row: one may be this process's own fault, which was stopped as well.
const MISSES: u32 = 3;

/// What is known of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pulse {
    next: Instant,
    /// It is waited for.
    asked: bool,
    missing: u32,
    unwell: u32,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Ask,
    /// It has not answered for long.
    Dead,
}

impl Pulse {
    pub(super) fn new(now: Instant) -> Pulse {
        Pulse { next: now + EVERY, asked: false, missing: 0, unwell: 0 }
    }

    /// When it is looked at next.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    pub(super) fn look(&mut self, now: Instant) -> Due {
        if now < self.next {
            return Due::Nothing;
        }
        if self.asked {
            self.missing += 1;
            if self.missing >= MISSES {
                return Due::Dead;
            }
        }
        (self.asked, self.next) = (true, now + PATIENCE);
        Due::Ask
    }

    /// It has answered. Whether it is to be replaced.
    pub(super) fn answered(&mut self, now: Instant, is_well: bool) -> bool {
        self.unwell = if is_well { 0 } else { self.unwell + 1 };
        (self.asked, self.missing, self.next) = (false, 0, now + EVERY);
        self.unwell >= MISSES
    }

    /// How long it has been silent when it is taken for dead.
    pub(super) fn patience() -> Duration {
        PATIENCE * MISSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_misses_several_in_a_row_is_dead_and_one_that_answers_is_not() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        assert_eq!(pulse.look(start), Due::Nothing);
        let mut now = pulse.next();
        for _ in 0..10 {
            assert_eq!(pulse.look(now), Due::Ask);
            assert!(!pulse.answered(now, true));
            now = pulse.next();
        }
        // However late the look is, as where this process was stopped, it is one that was missed.
        now += Duration::from_secs(3600);
        assert_eq!(pulse.look(now), Due::Ask);
        now += Duration::from_secs(3600);
        assert_eq!(pulse.look(now), Due::Ask);
        assert!(!pulse.answered(now, true));
        for due in [Due::Ask, Due::Ask, Due::Ask, Due::Dead] {
            now = pulse.next();
            assert_eq!(pulse.look(now), due);
        }
        let mut pulse = Pulse::new(start);
        let said: Vec<bool> = [false, false, true, false, false, false]
            .into_iter()
            .map(|is_well| {
                pulse.look(pulse.next());
                pulse.answered(pulse.next(), is_well)
            })
            .collect();
        assert_eq!(said, [false, false, false, false, false, true]);
    }
}
