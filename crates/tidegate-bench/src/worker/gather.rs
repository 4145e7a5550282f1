//! How long a worker of a busy closed loop sleeps before it looks for answers, so that it finds several.
//!
//! A generator that is faster than the server ends up in step with it: it sleeps after each answer and is woken by the
//! next one. Each wake-up is paid by the server, in the `send` that causes it, so the faster generator measures a slower
//! server, and its own processor idles meanwhile. Who sleeps on a timer is woken by nobody. It sleeps for as long as a
//! quarter of what is under way takes to be answered: the rest keeps the server busy.
//!
//! It changes no sum of a closed loop, in which the requests under way and the rate decide the mean time, but when an
//! answer is seen: at most [`LONGEST`] later. So nobody sleeps where answers are few, in an open loop, or where
//! little is under way.

use std::time::Duration;

/// The least that is under way.
const UNDER_WAY: u64 = 16;

/// Answers to a part of what is under way are waited for: one in so many.
const SHARE: u64 = 4;

/// The longest sleep, nanoseconds.
pub(super) const LONGEST: u64 = 50_000;

/// Below this a timer costs more than it saves.
const SHORTEST: u64 = 6_000;

/// Answers that a sleep must be worth.
const LEAST_ANSWERS: u64 = 3;

/// What a worker knows of the pace of its server.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// When the last look ended, and the answers until then.
    at: u64,
    answered: u64,
    /// Nanoseconds from one answer to the next, lately.
    each: u64,
}

impl Gather {
    /// How long to sleep at `now`, which is `busy` nanoseconds after the events of this turn were known, with so many
    /// answers until now and requests under way. Called once a turn.
    pub(super) fn rest(&mut self, now: u64, busy: u64, answered: u64, under_way: u64) -> Option<Duration> {
        let came = answered - self.answered;
        let took = now.saturating_sub(self.at);
        (self.at, self.answered) = (now, answered);
        let each = took.checked_div(came).unwrap_or(took.max(self.each));
        self.each = if self.each == 0 { each } else { (self.each * 7 + each) / 8 };
        if under_way < UNDER_WAY {
            return None;
        }
        // What was answered meanwhile is there already.
        let there = busy.checked_div(self.each)?;
        let rest = self.each.saturating_mul((under_way / SHARE).saturating_sub(there)).min(LONGEST);
        let is_worth_it = rest >= SHORTEST && rest >= self.each.saturating_mul(LEAST_ANSWERS);
        is_worth_it.then(|| Duration::from_nanos(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is slept after a hundred turns with so many answers each, that take so many nanoseconds, of which so many
    /// are work.
    fn after(turns: (u64, u64, u64), under_way: u64) -> Option<u64> {
        let (answers, length, busy) = turns;
        let mut gather = Gather::default();
        let rests = (1..=100).map(|turn| gather.rest(turn * length, busy, turn * answers, under_way));
        rests.last().flatten().map(|rest| rest.as_nanos() as u64)
    }

    #[test]
    fn a_quarter_of_what_is_under_way_is_waited_for() {
        let rows = [
            ("in step with a server of 5 µs", (1, 5_000, 2_500), 64, Some(50_000)),
            ("a quarter at a time: half of it came meanwhile", (16, 80_000, 40_000), 64, Some(40_000)),
            ("more came than that", (40, 200_000, 120_000), 64, None),
            ("few under way", (1, 5_000, 2_500), 15, None),
            ("a slow server", (1, 50_000, 2_500), 1_000, None),
            ("too short a time", (4, 4_000, 2_000), 16, None),
            ("nothing comes", (0, 1_000_000, 1_000), 64, None),
        ];
        for (name, turns, under_way, expected) in rows {
            assert_eq!(after(turns, under_way), expected, "{name}");
        }
    }
}
