//! Whether a member of an upstream group may be given requests: the rules, without a clock and without a
//! socket.
//!
//! Two things are believed. Active checks ask a member on a schedule; `fall` bad answers in a row take it
//! out, `rise` good ones bring it back. Passive ejection looks at what real requests came to: so many
//! failures in a row put a member aside for a while, longer each time (exponential backoff with jitter), and
//! then one request tries it. A member that comes back begins with a small share (slow start), so that a
//! cold cache is not met by the whole load at once (FAULTS 48).
//!
//! Times are monotonic nanoseconds, given by the caller.

use std::time::Duration;

/// The rules of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Failures in a row that put a member aside; `None` never does.
    pub failures: Option<u32>,
    /// How long the first time; twice as long each further time.
    pub eject: Duration,
    /// But no longer than this.
    pub eject_most: Duration,
    /// Good checks in a row that bring a member back.
    pub rise: u32,
    /// Bad checks in a row that take it out.
    pub fall: u32,
    /// How long a returned member takes to get its whole share.
    pub slow_start: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            failures: Some(5),
            eject: Duration::from_secs(10),
            eject_most: Duration::from_secs(300),
            rise: 2,
            fall: 3,
            slow_start: Duration::ZERO,
        }
    }
}

/// What a request to a member came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// An answer, whatever it says.
    Answered,
    /// No connection, no answer, or one that is none.
    Failed,
}

/// What a member is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// Requests.
    Up,
    /// One request, to see whether it is well again.
    Trial,
    /// None, until that time.
    Ejected {
        /// When it may be tried.
        until: u64,
    },
    /// None: its checks fail.
    Down,
}

/// The state of one member; of one that nothing is known of, it is believed to be well.
#[derive(Debug, Clone, Default)]
pub struct Health {
    failures: u32,
    /// Ejections in a row.
    ejections: u32,
    ejected_until: Option<u64>,
    /// A trial is under way since then.
    trial: Option<u64>,
    /// The checks have taken it out.
    is_down: bool,
    /// Checks in a row that speak against the present state.
    contrary: u32,
    /// When it came back.
    returned: Option<u64>,
}

impl Health {
    /// What it is good for now.
    pub fn fitness(&self, now: u64, rules: &Rules) -> Fitness {
        if self.is_down {
            return Fitness::Down;
        }
        match self.ejected_until {
            None => Fitness::Up,
            Some(until) if now < until => Fitness::Ejected { until },
            // A trial whose outcome nobody reported must not last for ever.
            Some(until) => match self.trial {
                Some(since) if now < since.saturating_add(nanoseconds(rules.eject)) => {
                    Fitness::Ejected { until }
                }
                _ => Fitness::Trial,
            },
        }
    }

    /// The trial request is on its way.
    pub fn begin_trial(&mut self, now: u64) {
        self.trial = Some(now);
    }

    /// Takes note of what a request came to. `may_eject`: others could take its place. `random` is in
    /// `0..1` and spreads the ends of ejections. Whether it has been put aside by this.
    pub fn on_outcome(
        &mut self,
        outcome: Outcome,
        now: u64,
        may_eject: bool,
        random: f64,
        rules: &Rules,
    ) -> bool {
        match outcome {
            Outcome::Answered => {
                self.failures = 0;
                if self.ejected_until.take().is_some() {
                    self.trial = None;
                    self.returned = Some(now);
                } else if self
                    .returned
                    .is_none_or(|at| now.saturating_sub(at) > nanoseconds(rules.eject_most))
                {
                    self.ejections = 0;
                }
                false
            }
            Outcome::Failed => {
                let was_trial = self.trial.take().is_some() && self.ejected_until.is_some();
                if self.ejected_until.is_some() && !was_trial {
                    return false; // it was under way when the member was put aside
                }
                self.failures = self.failures.saturating_add(1);
                let is_too_much = rules.failures.is_some_and(|most| self.failures >= most);
                let is_put_aside = was_trial || (is_too_much && may_eject);
                if is_put_aside {
                    self.eject(now, random, rules);
                }
                is_put_aside
            }
        }
    }

    /// Takes note of an active check. `Some` says which way the state has changed by it.
    pub fn on_check(&mut self, passed: bool, now: u64, rules: &Rules) -> Option<Fitness> {
        if passed != self.is_down {
            self.contrary = 0;
            return None;
        }
        self.contrary += 1;
        if self.contrary < if passed { rules.rise } else { rules.fall } {
            return None;
        }
        self.set_down(!passed, now);
        Some(if passed { Fitness::Up } else { Fitness::Down })
    }

    /// The checks have taken it out, or brought it back.
    pub fn set_down(&mut self, is_down: bool, now: u64) {
        self.contrary = 0;
        if self.is_down && !is_down {
            // The check has seen it well: earlier failures count no more.
            (self.failures, self.ejected_until, self.trial) = (0, None, None);
            self.returned = Some(now);
        }
        self.is_down = is_down;
    }

    /// Somebody else's requests have put it aside until this time, or have found that it answers again. `may_eject`:
    /// others could take its place.
    pub fn hear(&mut self, until: Option<u64>, now: u64, may_eject: bool, rules: &Rules) {
        match until {
            Some(until) if now < until && rules.failures.is_some() => {
                let known = self.ejected_until;
                if known.is_none() && !may_eject {
                    return;
                }
                // The same time aside, however many tell of it, counts once.
                if known.is_none_or(|known| now >= known) {
                    self.ejections = self.ejections.saturating_add(1);
                }
                self.failures = 0;
                self.ejected_until = known.max(Some(until));
            }
            None if self.ejected_until.take().is_some() => {
                (self.failures, self.trial) = (0, None);
                self.returned = Some(now);
            }
            _ => {}
        }
    }

    /// The share of its weight that it is given, above 0 and at most 1.
    pub fn share(&self, now: u64, rules: &Rules) -> f64 {
        const LEAST: f64 = 0.1;
        let whole = nanoseconds(rules.slow_start);
        match self.returned {
            Some(at) if whole > 0 && now < at.saturating_add(whole) => {
                (now.saturating_sub(at) as f64 / whole as f64).max(LEAST)
            }
            _ => 1.0,
        }
    }

    /// Whether nothing of the past could change what it is good for.
    pub fn is_untroubled(&self) -> bool {
        !self.is_down && self.failures == 0 && self.ejected_until.is_none() && self.ejections == 0
    }

    fn eject(&mut self, now: u64, random: f64, rules: &Rules) {
        let doubled = 2f64.powi(self.ejections.min(30) as i32);
        let time = (rules.eject.as_secs_f64() * doubled).min(rules.eject_most.as_secs_f64());
        // Up to a fifth longer: members that fell together do not come back together.
        let time = time * (1.0 + random / 5.0);
        self.ejections += 1;
        self.failures = 0;
        self.ejected_until = Some(now.saturating_add((time * 1e9) as u64));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn fail(health: &mut Health, now: u64, rules: &Rules) -> bool {
        health.on_outcome(Outcome::Failed, now, true, 0.0, rules)
    }

    #[test]
    fn failures_in_a_row_eject_and_answers_forgive() {
        let rules = Rules::default();
        let mut health = Health::default();
        for _ in 0..4 {
            assert!(!fail(&mut health, 0, &rules));
        }
        health.on_outcome(Outcome::Answered, 0, true, 0.0, &rules);
        for _ in 0..4 {
            assert!(!fail(&mut health, 0, &rules));
        }
        assert_eq!(health.fitness(0, &rules), Fitness::Up);
        assert!(fail(&mut health, 0, &rules));
        assert_eq!(health.fitness(0, &rules), Fitness::Ejected { until: 10 * SECOND });
        assert_eq!(health.fitness(10 * SECOND, &rules), Fitness::Trial);
    }

    #[test]
    fn the_last_one_is_not_ejected() {
        let rules = Rules { failures: Some(1), ..Rules::default() };
        let mut health = Health::default();
        assert!(!health.on_outcome(Outcome::Failed, 0, false, 0.0, &rules));
        assert_eq!(health.fitness(0, &rules), Fitness::Up);
    }

    #[test]
    fn one_request_tries_and_each_failure_doubles_the_time() {
        let rules = Rules { failures: Some(1), ..Rules::default() };
        let mut health = Health::default();
        let mut now = 0;
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            // The trial of a member that is already aside does not ask whether others are there.
            assert!(health.on_outcome(Outcome::Failed, now, now == 0, 0.0, &rules), "at {now}");
            let Fitness::Ejected { until } = health.fitness(now, &rules) else { panic!("not ejected") };
            assert_eq!((until - now) / SECOND, expected);
            now = until;
            assert_eq!(health.fitness(now, &rules), Fitness::Trial);
            health.begin_trial(now);
            assert!(matches!(health.fitness(now, &rules), Fitness::Ejected { .. }), "one trial at a time");
        }
        health.on_outcome(Outcome::Answered, now, true, 0.0, &rules);
        assert_eq!(health.fitness(now, &rules), Fitness::Up);
    }

    #[test]
    fn what_was_under_way_counts_once() {
        let rules = Rules { failures: Some(2), ..Rules::default() };
        let mut health = Health::default();
        let outcomes: Vec<bool> = (0..100).map(|_| fail(&mut health, 0, &rules)).collect();
        assert_eq!(outcomes.iter().filter(|is_ejected| **is_ejected).count(), 1);
        assert_eq!(health.fitness(0, &rules), Fitness::Ejected { until: 10 * SECOND });
    }

    #[test]
    fn a_trial_without_an_outcome_is_repeated() {
        let rules = Rules { failures: Some(1), ..Rules::default() };
        let mut health = Health::default();
        fail(&mut health, 0, &rules);
        health.begin_trial(10 * SECOND);
        assert!(matches!(health.fitness(19 * SECOND, &rules), Fitness::Ejected { .. }));
        assert_eq!(health.fitness(20 * SECOND, &rules), Fitness::Trial);
    }

    #[test]
    fn jitter_only_lengthens() {
        let rules = Rules { failures: Some(1), ..Rules::default() };
        let mut health = Health::default();
        health.on_outcome(Outcome::Failed, 0, true, 0.999, &rules);
        let Fitness::Ejected { until } = health.fitness(0, &rules) else { panic!("not ejected") };
        assert!((10 * SECOND..=12 * SECOND).contains(&until));
    }

    #[test]
    fn what_others_tell_holds_as_if_it_were_our_own() {
        let rules = Rules { failures: Some(1), ..Rules::default() };
        let mut health = Health::default();
        health.hear(Some(10 * SECOND), 0, false, &rules);
        health.hear(Some(10 * SECOND), 10 * SECOND, true, &rules);
        health.hear(None, 0, true, &rules);
        health.hear(Some(10 * SECOND), 0, true, &Rules { failures: None, ..rules.clone() });
        assert!(health.is_untroubled(), "the last one, too late, no news, and where nobody is put aside");
        for _ in 0..3 {
            health.hear(Some(10 * SECOND), 0, true, &rules);
        }
        assert_eq!(health.fitness(0, &rules), Fitness::Ejected { until: 10 * SECOND });
        // It is tried as if it had been put aside once, and then stays aside twice as long.
        assert_eq!(health.fitness(10 * SECOND, &rules), Fitness::Trial);
        health.begin_trial(10 * SECOND);
        assert!(fail(&mut health, 10 * SECOND, &rules));
        assert_eq!(health.fitness(11 * SECOND, &rules), Fitness::Ejected { until: 30 * SECOND });
        health.hear(None, 12 * SECOND, true, &rules);
        assert_eq!(health.fitness(12 * SECOND, &rules), Fitness::Up);
    }

    #[test]
    fn checks_take_out_and_bring_back() {
        let rules = Rules { slow_start: Duration::from_secs(20), ..Rules::default() };
        let mut health = Health::default();
        for (passed, expected) in [
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(Fitness::Down)),
            (false, None),
            (true, None),
            (false, None),
            (true, None),
            (true, Some(Fitness::Up)),
        ] {
            assert_eq!(health.on_check(passed, 100 * SECOND, &rules), expected);
        }
        assert_eq!(health.share(100 * SECOND, &rules), 0.1);
        assert_eq!(health.share(110 * SECOND, &rules), 0.5);
        assert_eq!(health.share(120 * SECOND, &rules), 1.0);
    }
}
