//! What a run proves: MEASURED (no target was named), PASS, FAIL (a target was missed, or the server failed
//! requests) or INVALID (the figures cannot be trusted), and why.
//!
//! INVALID is the generator's fault alone: one that had no processor left measures itself. What the server does
//! wrong is a FAIL, whether a target names it or not: requests that fail, rates that are not reached, bodies that
//! differ, connections that are dropped.

use crate::plan::{Load, Pace, Plan};
use crate::quantity::{self, show_bytes, show_duration};
use crate::record::{Counts, Failure, Times};
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
    /// No target was named: the figures can be trusted, and prove nothing by themselves.
    Measured,
    /// Every target met.
    Pass,
    /// A target missed.
    Fail,
    /// The measurement cannot be trusted.
    Invalid,
}

impl Verdict {
    /// For scripts: 0, 0, 99, 98.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Measured | Verdict::Pass => 0,
            Verdict::Fail => 99,
            Verdict::Invalid => 98,
        }
    }

    /// What it says of a measurement, as a sentence.
    pub fn explanation(self) -> &'static str {
        match self {
            Verdict::Measured => "The measurement can be trusted; no target was named.",
            Verdict::Pass => "The measurement can be trusted, and every target was met.",
            Verdict::Fail => "The measurement can be trusted, and something that it demands was missed.",
            Verdict::Invalid => "The measurement cannot be trusted.",
        }
    }

    /// The verdict of this name, as reports write it.
    pub fn parse(name: &str) -> Option<Verdict> {
        [Verdict::Measured, Verdict::Pass, Verdict::Fail, Verdict::Invalid]
            .into_iter()
            .find(|verdict| verdict.to_string() == name)
    }

    /// The worst of several: one run that cannot be trusted spoils a series.
    pub fn worst(verdicts: impl Iterator<Item = Verdict> + Clone) -> Verdict {
        [Verdict::Invalid, Verdict::Fail, Verdict::Measured]
            .into_iter()
            .find(|worst| verdicts.clone().any(|verdict| verdict == *worst))
            .unwrap_or(Verdict::Pass)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Measured => "MEASURED",
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
    /// Why; empty only for MEASURED and PASS.
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
    "`{0}` is no target; there are p99=50ms (any percentile, with its unit), mean=20ms, max=1s, availability=99.9, \
     rate=1000, errors=0, conforming=95"
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
        // A bare number would be seconds, which nobody means who writes p99=50.
        let has_unit = value.ends_with(|last: char| last.is_alphabetic());
        let time = || quantity::duration(value).ok().filter(|_| has_unit).ok_or_else(wrong);
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

    /// The longest time that it allows, where it is one of time.
    fn time(&self) -> Option<Duration> {
        match *self {
            Target::Percentile(_, limit) | Target::Mean(limit) | Target::Max(limit) => Some(limit),
            Target::Availability(_) | Target::Rate(_) | Target::Errors(_) | Target::Conforming(_) => None,
        }
    }

    /// Why it is missed, `None` if it is met. One of time is met where both meet it: all requests that ended, those that were given up with
    /// the time that they were waited for, and those that were answered as expected.
    pub fn missed(&self, totals: &Totals, seconds: f64) -> Option<String> {
        let counts = &totals.counts;
        // Neither answers that were not asked for and came fast, nor requests that were given up, make a server fast.
        let above = |name: &str, seen: fn(&Times, f64) -> Duration, rank: f64, limit: Duration| {
            let (all, expected) = (seen(&totals.response, rank), seen(&totals.expected, rank));
            let (seen, whose) =
                if all > limit { (all, "") } else { (expected, " of those answered as expected") };
            (seen > limit).then(|| {
                let (seen, limit) = (show_duration(seen), show_duration(limit));
                format!("{name}{whose} is {seen}, over the target of {limit}")
            })
        };
        let below = |name: &str, seen: f64, limit: f64, unit: &str| {
            (seen < limit).then(|| format!("{name} is {seen:.2}{unit}, under the target of {limit}{unit}"))
        };
        match *self {
            Target::Percentile(rank, limit) => {
                above(&format!("p{rank} of the response time"), Times::percentile, rank, limit)
            }
            Target::Mean(limit) => above("the mean response time", |times, _| times.mean(), 0.0, limit),
            Target::Max(limit) => above("the longest response time", |times, _| times.max(), 0.0, limit),
            Target::Availability(limit) => below("availability", counts.availability(), limit, " %"),
            Target::Rate(limit) => {
                below("the rate", counts.succeeded as f64 / seconds.max(1e-9), limit, "/s")
            }
            Target::Errors(limit) => {
                let failed = counts.failed() + counts.dropped;
                let dropped = if counts.dropped > 0 { " or were dropped" } else { "" };
                (failed > limit)
                    .then(|| format!("{failed} requests failed{dropped}, the target allows {limit}"))
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

/// How late the generator may be at p99: a millisecond, or a twentieth of the strictest time that a target names,
/// or else of what is measured, if that is more.
pub fn most_lateness(totals: &Totals, targets: &[Target]) -> Duration {
    let strictest = targets.iter().filter_map(Target::time).min();
    let reference = strictest.unwrap_or_else(|| totals.response.percentile(99.0));
    Duration::from_millis(1).max(reference / 20)
}

/// Fewer late starts than this prove nothing of the schedule, however few requests there are.
const LATE_STARTS: u64 = 5;

/// Where no target says what share of requests may fail, percent of successes.
const LEAST_AVAILABILITY: f64 = 99.0;

/// A rate counts as reached from this share of it on.
pub(crate) const REACHED: f64 = 0.95;

/// Judges a run.
pub fn judge(plan: &Plan, outcome: &Outcome, totals: &Totals, targets: &[Target]) -> Judgement {
    let mut missed = missed_by_itself(plan, outcome, totals, targets);
    missed.extend(targets.iter().filter_map(|target| target.missed(totals, outcome.seconds())));
    let (mut reasons, excused) = distrust(plan, outcome, totals, targets);
    let verdict = match (reasons.is_empty(), missed.is_empty()) {
        (false, _) => Verdict::Invalid,
        (true, false) => Verdict::Fail,
        // What was interrupted has not reached what it was to reach.
        (true, true) if targets.is_empty() || outcome.ending == Ending::Interrupted => Verdict::Measured,
        (true, true) => Verdict::Pass,
    };
    reasons.append(&mut missed);
    let mut notes = notes(plan, outcome, totals);
    notes.extend(excused);
    Judgement { verdict, reasons, notes }
}

/// Why the figures cannot be trusted: faults of the generator. And what would be one, were the verdict not the
/// same without it.
fn distrust(
    plan: &Plan,
    outcome: &Outcome,
    totals: &Totals,
    targets: &[Target],
) -> (Vec<String>, Option<String>) {
    let mut reasons = outcome.faults.clone();
    let mut excused = None;
    let counts = &totals.counts;
    if counts.requests == 0 {
        reasons.push("no request has ended; run longer".to_owned());
    }
    let busiest = outcome.busiest_worker();
    if busiest > MOST_CPU && !plan.is_idle {
        reasons.push(format!(
            "a worker of the generator used {:.0} % of its processor, and over {:.0} % it measures itself; use more \
             --threads, more machines or less load",
            busiest * 100.0,
            MOST_CPU * 100.0
        ));
    }
    if matches!(plan.load, Load::Open { .. }) {
        let (late, bound) = (totals.lateness.percentile(99.0), most_lateness(totals, targets));
        let share_late = 100.0 - totals.lateness.share_within(bound);
        let starts_late = totals.lateness.count() as f64 * share_late / 100.0;
        if late > bound && starts_late >= LATE_STARTS as f64 {
            let sentence = format!(
                "the generator was late: p99 {} behind its schedule, {} is allowed",
                show_duration(late),
                show_duration(bound)
            );
            // Lateness counts as response time. Who meets a target with it meets it without.
            let mut times = targets.iter().filter(|target| target.time().is_some()).peekable();
            let has_times = times.peek().is_some();
            if has_times && times.all(|target| target.missed(totals, outcome.seconds()).is_none()) {
                excused = Some(format!("{sentence}; the targets are met all the same"));
            } else {
                reasons.push(format!("{sentence}; free its processors or ask for less"));
            }
        }
    }
    let ours: u64 =
        counts.failures.iter().filter(|(failure, _)| failure.is_ours()).map(|(_, count)| count).sum();
    if ours > 0 {
        reasons.push(format!(
            "{ours} requests failed for want of descriptors or ports of the generator; raise `ulimit -n`, use \
             --processes or --source"
        ));
    }
    (reasons, excused)
}

/// What the server has missed, whether a target names it or not.
fn missed_by_itself(plan: &Plan, outcome: &Outcome, totals: &Totals, targets: &[Target]) -> Vec<String> {
    let mut missed = Vec::new();
    let counts = &totals.counts;
    if counts.succeeded == 0 && counts.requests > 0 {
        let kinds: Vec<&str> = counts.failures.keys().map(|failure| failure.sentence()).collect();
        missed.push(format!("not one request succeeded: {}", kinds.join(", ")));
    }
    if outcome.ending == Ending::GaveUp {
        missed.push(format!(
            "the target accepted no more connections after {:.1} s; these are the results up to there",
            outcome.seconds()
        ));
    }
    let names_failures =
        targets.iter().any(|target| matches!(target, Target::Availability(_) | Target::Errors(_)));
    if counts.succeeded > 0 && !names_failures && counts.availability() < LEAST_AVAILABILITY {
        missed.push(format!(
            "{} of {} requests failed, and only {LEAST_AVAILABILITY} % availability is asked where no target names \
             it; allow more with --target availability=",
            counts.failed(),
            counts.requests
        ));
    }
    if let Load::Open { rate, .. } = plan.load
        && outcome.ending != Ending::Interrupted
    {
        let of = |failure| counts.failures.get(&failure).copied().unwrap_or(0);
        let unsent = of(Failure::Unsent);
        // What is not answered at the end may have been asked too late for that; what failed otherwise is told as that.
        let failed = counts.failed() - of(Failure::Unanswered);
        let is_told = failed as f64 > counts.requests as f64 * (1.0 - LEAST_AVAILABILITY / 100.0);
        if unsent as f64 > counts.requests as f64 * (1.0 - LEAST_AVAILABILITY / 100.0) {
            missed.push(format!("{unsent} of {} requests were due and could not be sent", counts.requests));
        } else if let Some(reached) = outcome.rate_not_reached(rate, REACHED).filter(|_| !is_told) {
            let though = if counts.failed() == 0 { ", though nothing failed" } else { "" };
            missed.push(format!(
                "the rate was not reached: {reached:.1} answers/s of {rate} asked for{though}{}",
                slow_clients(plan)
                    .map_or(String::new(), |slow| format!("; {slow}, and keep their connections for longer"))
            ));
        }
    }
    let differing = outcome.digests.values().filter(|digests| digests.len() > 1).count();
    if differing > 0 {
        let most = outcome.digests.values().map(|digests| digests.len()).max().unwrap_or(0);
        missed.push(format!("the bodies of one URL differ: {most} different checksums"));
    }
    if counts.dropped > 0 && !targets.iter().any(|target| matches!(target, Target::Errors(_))) {
        missed.push(format!("the server dropped {} idle connections", counts.dropped));
    }
    if counts.surplus > 0 {
        missed.push(format!(
            "on {} connections bytes came behind a complete answer, which a next request would take for its own",
            counts.surplus
        ));
    }
    missed.extend(protocol_errors(counts));
    missed
}

/// How often the server has broken HTTP/2, and which rules, as a sentence.
pub(crate) fn protocol_errors(counts: &Counts) -> Option<String> {
    let each = counts.protocol_errors.iter().map(|(error, count)| format!("{error} ({count})"));
    let each: Vec<String> = each.take(PROTOCOL_ERRORS_SHOWN).collect();
    let sum: u64 = counts.protocol_errors.values().sum();
    (sum > 0).then(|| format!("the server broke the rules of HTTP/2 {sum} times: {}", each.join(", ")))
}

/// Kinds of them that a sentence names.
const PROTOCOL_ERRORS_SHOWN: usize = 5;

/// What the figures do not say by themselves.
fn notes(plan: &Plan, outcome: &Outcome, totals: &Totals) -> Vec<String> {
    let mut notes = Vec::new();
    if outcome.ending == Ending::Interrupted {
        notes.push(interrupted(totals));
    }
    notes.extend(without_answer(totals));
    notes.extend(totals.counts.sent_again_shown());
    notes.extend(hidden_stall(plan, outcome, totals));
    notes.extend(warmup(plan, outcome, totals));
    let is_timed = outcome.ending == Ending::Done && totals.counts.answered > 0;
    if let Some(time) = plan.time.filter(|_| is_timed) {
        let over = Duration::from_nanos(outcome.elapsed).saturating_sub(time);
        if over > Duration::from_millis(100) {
            notes.push(format!(
                "the last answer came {} after the end of --time; --grace waits {} for those that are outstanding{}",
                show_duration(over),
                show_duration(plan.drain),
                slow_clients(plan).map_or(String::new(), |slow| format!("; {slow}"))
            ));
        }
    }
    if totals.counts.queued > 0 {
        notes.push(format!(
            "{} arrivals found all {} connections busy and waited for one; the wait counts as response time{}",
            totals.counts.queued,
            plan.connections,
            slow_clients(plan).map_or(String::new(), |slow| format!("; {slow}, and keep theirs for longer"))
        ));
    }
    notes
}

/// That somebody has interrupted the run, and what was under way then.
pub(crate) fn interrupted(totals: &Totals) -> String {
    let under_way = match totals.interrupted.count() {
        0 => String::new(),
        count => format!(
            "; {count} requests had not ended, the longest after {}, and count neither as failed nor in any time",
            show_duration(totals.interrupted.max())
        ),
    };
    format!("interrupted; these are the results up to there{under_way}")
}

/// That times are those of requests without an answer, too.
pub(crate) fn without_answer(totals: &Totals) -> Option<String> {
    let count = totals.without_answer();
    let of = totals.response.count();
    (count > 0).then(|| {
        format!(
            "{count} of {of} requests got no answer; they count in the times with as long as they were waited for, and would have \
             taken longer"
        )
    })
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
        .map(|interval| interval.counts.response_sum as f64 / interval.counts.requests.max(1) as f64)
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

/// The connections that were asked to be slow, where there are any: what takes them long is not the server.
fn slow_clients(plan: &Plan) -> Option<String> {
    let kinds = [(plan.slow_readers, "read"), (plan.slow_writers, "send")];
    let shown = |(pace, verb): (Option<Pace>, &str)| {
        let Pace { rate, share } = pace.filter(|pace| pace.share > 0.0)?;
        let percent = (share * 1000.0).round() / 10.0;
        Some(format!("{percent} % of the connections {verb} {}/s", show_bytes(rate as f64)))
    };
    let slow: Vec<String> = kinds.into_iter().filter_map(shown).collect();
    (!slow.is_empty()).then(|| format!("{}, as was asked for", slow.join(" and ")))
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
    if let Some(slow) = slow_clients(plan) {
        return Some(format!(
            "the longest request took {}, and p99 is {}: {slow}, and their times are among these. Whether the server stood still \
             in between shows only without them",
            show_duration(longest),
            show_duration(typical),
        ));
    }
    let rate = totals.counts.answered as f64 / outcome.seconds().max(1e-9);
    let per_connection = f64::from(plan.connections) / rate.max(1e-9);
    let corrected = totals.response.histogram().clone_correct((per_connection * 1e9) as u64);
    let told = Duration::from_nanos(corrected.value_at_percentile(99.0));
    Some(format!(
        "the longest request took {}, yet p99 is {}: a closed loop asks nothing while it waits, so each stall counts \
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
        for bad in [
            "p99",
            "p0=1s",
            "p101=1s",
            "median=1s",
            "errors=-1",
            "availability=200",
            "p99=fast",
            "p99=50",
            "max=1",
        ] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        let all = [Verdict::Measured, Verdict::Pass, Verdict::Fail, Verdict::Invalid];
        assert_eq!(all.map(Verdict::exit_code), [0, 0, 99, 98]);
        assert_eq!(Verdict::worst(all.into_iter()), Verdict::Invalid);
        assert_eq!(Verdict::worst(all.into_iter().take(2)), Verdict::Measured);
        assert_eq!(Verdict::worst([].into_iter()), Verdict::Pass);
    }

    #[test]
    fn a_missed_target_says_by_how_much() {
        let mut totals = Totals::default();
        for _ in 0..100 {
            totals.response.record(20_000_000);
            totals.expected.record(20_000_000);
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

    /// Nine fast answers that nobody wants, and one that is wanted and slow: the server is slow. The other way round, too.
    #[test]
    fn a_target_of_time_is_met_by_all_and_by_those_as_expected() {
        let times = |fast: u64, slow: u64| {
            let mut times = Times::default();
            (0..fast).for_each(|_| times.record(1_000_000));
            (0..slow).for_each(|_| times.record(600_000_000));
            times
        };
        let missed = |response: Times, expected: Times, target: &str| {
            let totals = Totals { response, expected, ..Totals::default() };
            Target::parse(target).unwrap().missed(&totals, 1.0)
        };
        for target in ["p80=200ms", "mean=200ms", "max=500ms"] {
            let sentence = missed(times(90, 10), times(0, 10), target).unwrap();
            assert_eq!(
                sentence.contains("of those answered as expected"),
                target != "max=500ms",
                "{sentence}"
            );
            let sentence = missed(times(50, 50), times(50, 0), target).unwrap();
            assert!(!sentence.contains("as expected"), "{sentence}");
            assert_eq!(missed(times(99, 0), times(9, 0), target), None);
        }
    }
}
