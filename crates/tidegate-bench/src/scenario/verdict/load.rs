//! Whether the load was that of the scenario: its rate, its mix and its cycles, and each operation there at all.

use super::{LATE_STARTS, counted};
use crate::quantity::show_duration;
use crate::record::{Failure, Times};
use crate::run::Totals;
use crate::scenario::record::{Outcome, Tally};
use crate::scenario::{Load, Operation, Scenario};
use std::time::Duration;

/// How far the share of an operation may be off, in points, however few there are.
const MIX_POINTS: f64 = 2.0;

/// How far the mean cycle time may be off.
const CYCLE: f64 = 0.05;

/// The share of the visits of an open load that must begin.
const LEAST_BEGUN: f64 = 0.99;

/// Whether visits came at the rate of the scenario.
pub(super) fn distrust_of_rate(scenario: &Scenario, outcome: &Outcome) -> Option<String> {
    let Load::Visits(load) = &scenario.load else { return None };
    let visits = outcome.visits();
    if visits.begun as f64 >= visits.due as f64 * LEAST_BEGUN {
        return None;
    }
    let missing = visits.due - visits.begun.min(visits.due);
    let why = if visits.too_late > missing / 2 {
        "the generator came to most of them when the run was over; free its processors or ask for a lower rate".to_owned()
    } else {
        format!(
            "all {} users were busy with others; the server is beyond what it can do, or raise `most-users=`",
            load.most_users
        )
    };
    let rate = |count: u64| count as f64 / outcome.measured.max(1e-9);
    Some(format!(
        "{missing} of {} visits that were due never began, so that there were {:.2} a second, not {:.2}: {why}",
        visits.due,
        rate(visits.begun),
        rate(visits.due)
    ))
}

/// Whether the load was that of the scenario: its mix and its cycles, and each operation there at all.
pub(super) fn distrust_of_load(scenario: &Scenario, operations: &[Tally], totals: &Totals) -> Vec<String> {
    let mut reasons = Vec::new();
    let whole: u64 = operations.iter().map(|tally| tally.ended).sum();
    if whole == 0 {
        return vec!["no operation has ended in the steady time; make it longer".to_owned()];
    }
    let (shares, absences) = (scenario.shares(), scenario.absences());
    let all = scenario.operations.iter().zip(operations).zip(shares).zip(absences);
    for (((operation, tally), share), absence) in all {
        let achieved = tally.ended as f64 / whole as f64;
        // Nobody knows beforehand what a script chooses; any operation may come.
        let share = if scenario.is_chosen() { achieved.max(f64::MIN_POSITIVE) } else { share };
        let allowed = allowed_points(share, whole);
        let off = (achieved - share) * 100.0;
        if off.abs() > allowed {
            reasons.push(format!(
                "{} was {:.2} % of the operations, not {:.2} %: more than {allowed:.2} points off",
                operation.name,
                achieved * 100.0,
                share * 100.0
            ));
        }
        // Where so few were due that none is no wonder, it proves nothing; but no more is a target met that nothing was
        // measured of.
        let name = &operation.name;
        let unmeasured = unmeasured(operation, tally);
        if all_failed(tally) {
            continue; // which is no fault of the measurement
        }
        if share * whole as f64 >= LATE_STARTS && tally.succeeded == 0 {
            reasons.push(format!("{name} has not succeeded once"));
        } else if let Some(what) = unmeasured {
            let why = match absence {
                _ if tally.ended > 0 => match tally.failed() {
                    0 => "all that came had not changed (304)".to_owned(),
                    failed => format!("{failed} of {} operations failed", tally.ended),
                },
                Some(absence) => {
                    format!("it was never due: {}", absence.sentence(name))
                }
                None if scenario.is_chosen() => "neither the mix nor the script has chosen it".to_owned(),
                None => "it was not due; make the steady time longer".to_owned(),
            };
            reasons.push(format!("{name}: {what}, since {why}"));
        }
    }
    let (count, due, achieved) = operations.iter().fold((0, 0, 0), |(count, due, achieved), tally| {
        (count + tally.cycles, due + tally.cycle_due, achieved + tally.cycle_achieved)
    });
    if count > 0 {
        let (due, achieved) = (due as f64 / count as f64, achieved as f64 / count as f64);
        if (achieved / due.max(1.0) - 1.0).abs() > CYCLE && (achieved - due).abs() > 1e6 {
            let whose = holdup(scenario, totals, count as f64 * (achieved - due));
            reasons.push(format!(
                "the mean cycle was {}, not {}: more than {:.0} % off; {whose}",
                show_duration(Duration::from_nanos(achieved as u64)),
                show_duration(Duration::from_nanos(due as u64)),
                CYCLE * 100.0
            ));
        }
    }
    reasons
}

/// Whether an operation came, and failed, too often for chance: the server has answered so, or not at all.
pub(super) fn all_failed(tally: &Tally) -> bool {
    tally.ended as f64 >= LATE_STARTS && tally.failed() == tally.ended
}

/// What is to be judged of an operation, and nothing was measured of.
fn unmeasured(operation: &Operation, tally: &Tally) -> Option<&'static str> {
    if tally.succeeded == 0 && !operation.targets.is_empty() {
        return Some("its target is neither met nor missed");
    }
    if operation.conforming.is_some() && tally.paced == 0 {
        return Some("there was no answer in the steady time whose bit rate could be told");
    }
    let has_uncounted = counted(operation).any(|(_, counted)| tally.mean_count(counted.place).is_none());
    has_uncounted.then_some("there was no answer in the steady time that elements could be counted in")
}

/// Who held users up for so many nanoseconds, all of them together, in words. It was the generator where their starts were late by half
/// of that: what was under way then took longer too, and the server is not to blame. It was the server where requests took half of
/// it, or had no answer: how long such a one took is not known.
fn holdup(scenario: &Scenario, totals: &Totals, excess: f64) -> String {
    if excess < 0.0 {
        return "users asked for more than the scenario says".to_owned();
    }
    let sum = |times: &Times| times.mean().as_nanos() as f64 * times.count() as f64;
    let (answers, late) = (sum(&totals.response), sum(&totals.lateness));
    let unanswered = [Failure::ConnectTimeout, Failure::Timeout, Failure::Unanswered];
    let has_silence = unanswered.iter().any(|failure| totals.counts.failures.contains_key(failure));
    let whose = if late < excess / 2.0 && (answers >= excess / 2.0 || has_silence) {
        "the server"
    } else if scenario.script.is_some() {
        "calls of the script, and not by the server"
    } else {
        "the generator, and not by the server"
    };
    format!("users were held up by {whose}, so they asked for less than the scenario says")
}

/// How far the share of an operation may be off in points: two, or three standard deviations of so many draws.
pub fn allowed_points(share: f64, operations: u64) -> f64 {
    let deviation = (share * (1.0 - share) / operations.max(1) as f64).sqrt();
    MIX_POINTS.max(300.0 * deviation)
}
