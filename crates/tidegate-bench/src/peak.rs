//! The highest rate that a target holds, found by runs: rises until a run fails, then halves the gap, then
//! confirms. Pure: who runs the runs is the caller's.

use crate::verdict::Verdict;
use serde::Serialize;

/// What to look for.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The first rate.
    pub from: f64,
    /// Never above.
    pub to: f64,
    /// The answer may be this share below the truth: 0.05 is 5 %.
    pub accuracy: f64,
    /// Runs at the answer that must pass, all in a row.
    pub confirmations: u32,
}

/// A run that was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trial {
    /// Requests per second.
    pub rate: f64,
    /// What became of it.
    pub verdict: Verdict,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peak {
    /// The highest rate that passed every run made at it; `None` where not even the first did.
    pub rate: Option<f64>,
    /// The lowest above it that failed; `None`: the search ended at its upper end.
    pub failed_at: Option<f64>,
    /// Runs that passed at `rate`.
    pub passed: u32,
    /// A run said that it cannot be trusted: the peak is that of the generator, or unknown.
    pub is_invalid: bool,
    /// All runs in order.
    pub trials: Vec<Trial>,
}

impl Peak {
    /// How sure it is that a run at this rate passes more often than not: every one of `passed` runs did, which
    /// happens by luck with a chance of 1 in 2^passed.
    pub fn confidence(&self) -> f64 {
        1.0 - 0.5f64.powi(self.passed as i32)
    }
}

impl Search {
    /// Searches. `run` makes one run at a rate; `None` ends the search, as an interrupt does.
    pub fn find(&self, mut run: impl FnMut(f64) -> Option<Verdict>) -> Peak {
        let mut peak = Peak { rate: None, failed_at: None, passed: 0, is_invalid: false, trials: Vec::new() };
        let mut rate = self.from.min(self.to);
        loop {
            let Some(verdict) = run(rate) else { return peak };
            peak.trials.push(Trial { rate, verdict });
            match verdict {
                Verdict::Measured => return peak, // a run that was interrupted has missed nothing, and shown nothing
                Verdict::Pass if peak.rate == Some(rate) => peak.passed += 1,
                Verdict::Pass => (peak.rate, peak.passed) = (Some(rate), 1),
                Verdict::Fail | Verdict::Invalid => {
                    // Only at the present limit does it matter whose fault it was.
                    peak.is_invalid = verdict == Verdict::Invalid;
                    peak.failed_at = Some(rate);
                    if peak.rate == Some(rate) {
                        self.step_back(&mut peak);
                    }
                }
            }
            match self.next(&peak) {
                Some(next) => rate = next,
                None => return peak,
            }
        }
    }

    /// A confirmation failed: the rate counts as failed, and the next lower one that passed is taken.
    fn step_back(&self, peak: &mut Peak) {
        let failed = peak.failed_at.unwrap_or(f64::INFINITY);
        let lower = peak
            .trials
            .iter()
            .filter(|trial| trial.verdict == Verdict::Pass && trial.rate < failed)
            .map(|trial| trial.rate)
            .fold(f64::NAN, f64::max);
        peak.rate = (!lower.is_nan()).then_some(lower);
        let passed = peak.trials.iter().filter(|trial| Some(trial.rate) == peak.rate).count();
        peak.passed = u32::try_from(passed).unwrap_or(u32::MAX);
    }

    fn next(&self, peak: &Peak) -> Option<f64> {
        if peak.trials.len() >= 60 {
            return None;
        }
        match (peak.rate, peak.failed_at) {
            (None, None) => Some(self.from),
            // Not even the first: look below, down to a hundredth.
            (None, Some(failed)) => {
                let lower = failed / 2.0;
                (lower >= self.from / 128.0).then_some(lower)
            }
            (Some(rate), None) if rate < self.to => Some((rate * 2.0).min(self.to)),
            (Some(rate), Some(failed)) if failed > rate * (1.0 + self.accuracy) => {
                let middle = (rate * failed).sqrt();
                Some((middle * 100.0).round() / 100.0)
            }
            (Some(rate), _) => (peak.passed < self.confirmations).then_some(rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        Search { from: 100.0, to: 100_000.0, accuracy: 0.05, confirmations: 3 }
    }

    #[test]
    fn a_sharp_limit_is_found_to_the_accuracy() {
        for limit in [101.0, 777.0, 12_345.0, 99_999.0] {
            let peak = search().find(|rate| Some(if rate <= limit { Verdict::Pass } else { Verdict::Fail }));
            let rate = peak.rate.unwrap();
            assert!(rate <= limit && rate >= limit / 1.05, "{limit}: {rate}");
            assert_eq!((peak.passed, peak.is_invalid), (3, false));
            assert!((peak.confidence() - 0.875).abs() < 1e-9);
            assert!(peak.trials.len() < 25, "{}", peak.trials.len());
        }
    }

    #[test]
    fn a_server_that_holds_everything_or_nothing() {
        let all = search().find(|_| Some(Verdict::Pass));
        assert_eq!((all.rate, all.failed_at), (Some(100_000.0), None));
        let none = search().find(|_| Some(Verdict::Fail));
        assert_eq!(none.rate, None);
        assert!(none.trials.len() < 10);
        let slow = search().find(|rate| Some(if rate <= 10.0 { Verdict::Pass } else { Verdict::Fail }));
        assert!(slow.rate.is_some_and(|rate| rate > 9.5 && rate <= 10.0), "{:?}", slow.rate);
    }

    #[test]
    fn a_confirmation_that_fails_lowers_the_answer() {
        let mut runs = 0;
        let peak = search().find(|rate| {
            runs += 1;
            // 1000 passes once by luck.
            let passes = rate < 900.0 || (rate < 1_000.0 && runs < 9);
            Some(if passes { Verdict::Pass } else { Verdict::Fail })
        });
        assert!(peak.rate.is_some_and(|rate| rate < 1_000.0));
        assert_eq!(peak.passed, 3);
    }

    #[test]
    fn the_generators_own_limit_is_no_peak() {
        let peak = search().find(|rate| Some(if rate <= 5_000.0 { Verdict::Pass } else { Verdict::Invalid }));
        assert!(peak.is_invalid);
        let broken_off = search().find(|_| None);
        assert_eq!((broken_off.rate, broken_off.trials.len()), (None, 0));
    }
}
