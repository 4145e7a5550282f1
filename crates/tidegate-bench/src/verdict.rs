//! What a run proves: PASS, FAIL (a target missed) or INVALID (the figures cannot be trusted), and why.
//!
//! An invalid run neither passes nor fails: a generator that had no processor left measures itself.

use crate::plan::{Load, Plan};
use crate::quantity::{self, show_duration};
use crate::run::{Ending, Outcome, Totals};
use crate::statistics::warmup_length;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// The judgement in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Every target met; also where none was named.
    Pass,
    /// A target missed.
    Fail,
    /// The measurement cannot be trusted.
    Invalid,
}

impl Verdict {
    /// For scripts: 0, 99, 98.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Fail => 99,
            Verdict::Invalid => 98,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Invalid => "INVALID",
        })
    }
}

/// The word and its reasons, one sentence each.
#[derive(Debug, Clone, Serialize)]
pub struct Judgement {
    /// The word.
    pub verdict: Verdict,
    /// Why; empty only for a plain PASS.
    pub reasons: Vec<String>,
    /// What else a reader should know.
    pub notes: Vec<String>,
}

/// What a run must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// A percentile of the response time, at most.
    Percentile(f64, Duration),
    /// Its mean, at most.
    Mean(Duration),
    /// The longest, at most.
    Max(Duration),
    /// Successes in percent, at least.
    Availability(f64),
    /// Requests per second, at least.
    Rate(f64),
    /// Failed requests, at most.
    Errors(u64),
    /// Responses at the demanded bit rate in percent, at least.
    Conforming(f64),
}

/// A target that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no target; there are p99=50ms (any percentile), mean=, max=, availability=99.9, rate=1000, \
     errors=0, conforming=95"
)]
pub struct TargetSyntax(String);

impl Target {
    /// Reads `p99=50ms` and the like.
    ///
    /// # Errors
    /// [`TargetSyntax`].
    pub fn parse(text: &str) -> Result<Target, TargetSyntax> {
        let wrong = || TargetSyntax(text.to_owned());
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let time = || quantity::duration(value).map_err(|_| wrong());
        let percent = || {
            let number: Option<f64> = value.trim_end_matches('%').parse().ok();
            number.filter(|number| (0.0..=100.0).contains(number)).ok_or_else(wrong)
        };
        Ok(match name {
            "mean" => Target::Mean(time()?),
            "max" => Target::Max(time()?),
            "availability" => Target::Availability(percent()?),
            "conforming" => Target::Conforming(percent()?),
            "rate" => Target::Rate(quantity::rate(value).map_err(|_| wrong())?),
            "errors" => Target::Errors(value.parse().map_err(|_| wrong())?),
            _ => {
                let rank: Option<f64> = name.strip_prefix('p').and_then(|rank| rank.parse().ok());
                let rank = rank.filter(|rank| *rank > 0.0 && *rank <= 100.0).ok_or_else(wrong)?;
                Target::Percentile(rank, time()?)
            }
        })
    }

    /// Why it is missed, `None` if it is met.
    pub fn missed(&self, totals: &Totals, seconds: f64) -> Option<String> {
        let counts = &totals.counts;
        let above = |name: &str, seen: Duration, limit: Duration| {
            (seen > limit).then(|| {
                format!("{name} is {}, over the target of {}", show_duration(seen), show_duration(limit))
            })
        };
        let below = |name: &str, seen: f64, limit: f64, unit: &str| {
            (seen < limit).then(|| format!("{name} is {seen:.2}{unit}, under the target of {limit}{unit}"))
        };
        match *self {
            Target::Percentile(rank, limit) => {
                above(&format!("p{rank} of the response time"), totals.response.percentile(rank), limit)
            }
            Target::Mean(limit) => above("the mean response time", totals.response.mean(), limit),
            Target::Max(limit) => above("the longest response time", totals.response.max(), limit),
            Target::Availability(limit) => below("availability", counts.availability(), limit, " %"),
            Target::Rate(limit) => {
                below("the rate", counts.succeeded as f64 / seconds.max(1e-9), limit, "/s")
            }
            Target::Errors(limit) => {
                let failed = counts.failed();
                (failed > limit).then(|| format!("{failed} requests failed, the target allows {limit}"))
            }
            Target::Conforming(limit) => {
                let share = 100.0 * counts.conforming as f64 / counts.answered.max(1) as f64;
                below("the share of conforming responses", share, limit, " %")
            }
        }
    }
}

/// A worker that uses more of its processor than this is a bottleneck itself.
pub const MOST_CPU: f64 = 0.8;

/// How late the generator may be at p99: a millisecond, or a twentieth of what it measures, if that is more.
pub fn most_lateness(totals: &Totals) -> Duration {
    Duration::from_millis(1).max(totals.response.percentile(99.0) / 20)
}

/// Judges a run.
pub fn judge(plan: &Plan, outcome: &Outcome, totals: &Totals, targets: &[Target]) -> Judgement {
    let mut invalid = outcome.faults.clone();
    let mut missed = Vec::new();
    let counts = &totals.counts;
    if counts.succeeded == 0 {
        let kinds: Vec<&str> = counts.failures.keys().map(|failure| failure.sentence()).collect();
        invalid.push(if kinds.is_empty() {
            "no request was answered; run longer".to_owned()
        } else {
            format!("not one request succeeded: {}", kinds.join(", "))
        });
    }
    let busiest = outcome.busiest_worker();
    if busiest > MOST_CPU && !plan.is_idle {
        invalid.push(format!(
            "a worker of the generator used {:.0} % of its processor, and over {:.0} % it measures itself; use more \
             --threads, more machines or a lower --rate",
            busiest * 100.0,
            MOST_CPU * 100.0
        ));
    }
    if matches!(plan.load, Load::Open { .. }) {
        let (late, bound) = (totals.lateness.percentile(99.0), most_lateness(totals));
        if late > bound {
            invalid.push(format!(
                "the generator was late: p99 {} behind its schedule, {} is allowed; free its processors or lower \
                 --rate",
                show_duration(late),
                show_duration(bound)
            ));
        }
    }
    let ours: u64 =
        counts.failures.iter().filter(|(failure, _)| failure.is_ours()).map(|(_, count)| count).sum();
    if ours > 0 {
        invalid.push(format!(
            "{ours} requests failed for want of descriptors or ports of the generator; raise `ulimit -n`, use \
             --processes or --source"
        ));
    }
    if outcome.ending == Ending::GaveUp {
        missed.push(format!(
            "the target accepted no more connections after {:.1} s; these are the results up to there",
            outcome.seconds()
        ));
    }
    missed.extend(targets.iter().filter_map(|target| target.missed(totals, outcome.seconds())));
    let (verdict, mut reasons) = match (invalid.is_empty(), missed.is_empty()) {
        (false, _) => (Verdict::Invalid, invalid),
        (true, false) => (Verdict::Fail, std::mem::take(&mut missed)),
        (true, true) => (Verdict::Pass, Vec::new()),
    };
    reasons.append(&mut missed);
    Judgement { verdict, reasons, notes: notes(plan, outcome, totals) }
}

/// What the figures do not say by themselves.
fn notes(plan: &Plan, outcome: &Outcome, totals: &Totals) -> Vec<String> {
    let mut notes = Vec::new();
    if outcome.ending == Ending::Interrupted {
        notes.push("interrupted; these are the results up to there".to_owned());
    }
    notes.extend(hidden_stall(plan, outcome, totals));
    notes.extend(warmup(plan, outcome, totals));
    if totals.counts.queued > 0 {
        notes.push(format!(
            "{} arrivals found all {} connections busy and waited for one; the wait counts as response time",
            totals.counts.queued, plan.connections
        ));
    }
    if outcome.digests.len() > 1 {
        notes.push(format!("the bodies differ: {} different checksums", outcome.digests.len()));
    }
    notes
}

/// How far a percentile must move for the warm-up to be worth a word.
const WARMUP_MATTERS: f64 = 0.5;

/// The intervals that MSER-5 would cut, where that makes a difference. They stay in the figures, which equal the
/// server's log; comparisons cut them.
fn warmup(plan: &Plan, outcome: &Outcome, totals: &Totals) -> Option<String> {
    let is_short = plan.is_idle || plan.is_once || outcome.ending != Ending::Done;
    if is_short || !plan.warmup.is_zero() {
        return None;
    }
    let means: Vec<f64> = outcome
        .intervals
        .iter()
        .map(|interval| interval.counts.response_sum as f64 / interval.counts.answered.max(1) as f64)
        .collect();
    let count = warmup_length(&means);
    if count == 0 {
        return None;
    }
    let mut rest = outcome.clone();
    rest.cut(count);
    let rest = rest.totals();
    if rest.response.count() < 100 {
        return None;
    }
    let (with, without) = (totals.response.percentile(99.0), rest.response.percentile(99.0));
    if with.as_secs_f64() <= without.as_secs_f64() * (1.0 + WARMUP_MATTERS) {
        return None;
    }
    let time = Duration::from_nanos(outcome.interval.saturating_mul(count as u64));
    Some(format!(
        "the first {} look like a warm-up (MSER-5) and count; without them p99 is {}, not {}; --warmup {} leaves them \
         out",
        show_duration(time),
        show_duration(without),
        show_duration(with),
        show_option(time)
    ))
}

/// A time as an option takes it.
fn show_option(time: Duration) -> String {
    if time.subsec_millis() == 0 { format!("{}s", time.as_secs()) } else { format!("{}ms", time.as_millis()) }
}

/// A closed loop stops asking while the server stands still, so a stall counts once per connection and no
/// percentile shows it (coordinated omission). Says so where it matters, with what the open loop would show.
fn hidden_stall(plan: &Plan, outcome: &Outcome, totals: &Totals) -> Option<String> {
    if plan.load != Load::Closed || plan.is_idle || totals.response.count() < 100 {
        return None;
    }
    let (longest, typical) = (totals.response.max(), totals.response.percentile(99.0));
    if longest < Duration::from_millis(50) || longest < typical * 10 {
        return None;
    }
    let rate = totals.counts.answered as f64 / outcome.seconds().max(1e-9);
    let per_connection = f64::from(plan.connections) / rate.max(1e-9);
    let corrected = totals.response.histogram().clone_correct((per_connection * 1e9) as u64);
    let told = Duration::from_nanos(corrected.value_at_percentile(99.0));
    Some(format!(
        "the longest answer took {}, yet p99 is {}: a closed loop asks nothing while it waits, so each stall counts \
         once per connection. At the same rate on a schedule p99 would be near {}; measure it with --rate {}",
        show_duration(longest),
        show_duration(typical),
        show_duration(told),
        (rate * 0.9).max(1.0) as u64
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let table = [
            ("p99=50ms", Target::Percentile(99.0, Duration::from_millis(50))),
            ("p99.9=1s", Target::Percentile(99.9, Duration::from_secs(1))),
            ("availability=99.5%", Target::Availability(99.5)),
            ("rate=2k", Target::Rate(2_000.0)),
            ("errors=0", Target::Errors(0)),
            ("conforming=95", Target::Conforming(95.0)),
        ];
        for (text, target) in table {
            assert_eq!(Target::parse(text), Ok(target), "{text}");
        }
        for bad in ["p99", "p0=1s", "p101=1s", "median=1s", "errors=-1", "availability=200", "p99=fast"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        assert_eq!([Verdict::Pass, Verdict::Fail, Verdict::Invalid].map(Verdict::exit_code), [0, 99, 98]);
    }

    #[test]
    fn a_missed_target_says_by_how_much() {
        let mut totals = Totals::default();
        for _ in 0..100 {
            totals.response.record(20_000_000);
        }
        totals.counts.requests = 100;
        totals.counts.succeeded = 99;
        let missed = |text| Target::parse(text).unwrap().missed(&totals, 1.0);
        assert_eq!(missed("p99=50ms"), None);
        assert!(missed("p99=5ms").unwrap().contains("20.0 ms, over the target of 5.00 ms"));
        assert!(missed("availability=99.9").unwrap().contains("99.00 %"));
        assert_eq!(missed("rate=99"), None);
        assert!(missed("rate=100").is_some());
    }
}
