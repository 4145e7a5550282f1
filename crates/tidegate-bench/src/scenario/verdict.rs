//! What a run of a scenario proves. INVALID: the load was not the one that the scenario names, so its figures are of another;
//! FAIL: a target was missed, or the server failed; else PASS, or MEASURED where no target is named.

mod load;

use super::record::{Agent, Outcome, Tally};
use super::{Counted, Operation, Scenario, Step};
use crate::quantity::{show_duration, show_share};
use crate::record::{Counts, Failure};
use crate::run::{Ending, Totals};
use crate::verdict::{Judgement, MOST_CPU, Verdict, interrupted, protocol_errors, without_answer};
use load::{all_failed, distrust_of_load, distrust_of_rate};
use std::time::Duration;

pub use load::allowed_points;

/// Where a percentile needs so many values beyond it to be judged, fewer prove nothing.
const BEYOND: f64 = 10.0;

/// The share of operations that must succeed.
const LEAST_SUCCESS: f64 = 0.99;

/// The generator may be late by this at p99, or by a twentieth of the strictest target.
const MOST_LATENESS: Duration = Duration::from_millis(1);

/// Late starts below this number prove nothing.
const LATE_STARTS: f64 = 5.0;

/// Judges a run.
pub fn judge(scenario: &Scenario, outcome: &Outcome, operations: &[Tally], totals: &Totals) -> Judgement {
    let mut missed = missed(scenario, outcome, operations, &totals.counts);
    let mut reasons = outcome.faults.clone();
    let mut notes = outcome.notes.clone();
    match outcome.ending {
        // What is cut short has not the mix of the whole, and what died is told as that.
        Ending::GaveUp => {}
        Ending::Done if outcome.is_cut_short => {}
        Ending::Interrupted => notes.push(interrupted(totals)),
        Ending::Done => {
            reasons.extend(distrust_of_rate(scenario, outcome));
            reasons.extend(distrust_of_load(scenario, operations, totals));
        }
    }
    let ended = operations.iter().map(|tally| tally.ended).sum();
    reasons.extend(distrust_of_generator(outcome, totals, ended));
    let has_times = scenario.operations.iter().any(|operation| !operation.targets.is_empty());
    let has_targets = scenario.operations.iter().any(|operation| {
        !operation.targets.is_empty() || operation.conforming.is_some() || counted(operation).next().is_some()
    });
    match lateness(scenario, outcome, totals) {
        // Lateness counts as response time. Who meets targets of time with it meets them without.
        Some(late) if has_times && missed.is_empty() => {
            notes.push(format!("{late}; the targets are met all the same"))
        }
        Some(late) => {
            let less = if scenario.load.is_open() { "ask for a lower rate" } else { "use fewer users" };
            // A call holds up all users of its thread.
            let shorter = if scenario.script.is_some() { "make calls of the script shorter, " } else { "" };
            reasons.push(format!("{late}; free its processors, {shorter}or {less}"));
        }
        None => {}
    }
    if scenario.is_chosen() {
        notes
            .push("what follows is chosen by the script, so the shares of the mix are not judged".to_owned());
    }
    notes.extend(thin_percentiles(scenario, operations));
    notes.extend(without_answer(totals));
    notes.extend(totals.counts.sent_again_shown());
    let waited = outcome.visits().waited;
    if waited > 0 {
        notes.push(format!(
            "{waited} visits found all {} users busy and waited for one to go; the wait counts as response time",
            scenario.load.most_users()
        ));
    }
    let others: u64 = outcome.seconds.iter().map(|second| second.others_failed).sum();
    if others > 0 {
        notes.push(format!("{others} operations outside of the steady time failed"));
    }
    let verdict = match (reasons.is_empty(), missed.is_empty()) {
        (false, _) => Verdict::Invalid,
        (true, false) => Verdict::Fail,
        (true, true) if !has_targets || outcome.ending == Ending::Interrupted => Verdict::Measured,
        (true, true) => Verdict::Pass,
    };
    reasons.append(&mut missed);
    Judgement { verdict, reasons, notes }
}

/// What the server has missed.
fn missed(scenario: &Scenario, outcome: &Outcome, operations: &[Tally], counts: &Counts) -> Vec<String> {
    let mut missed = Vec::new();
    if outcome.ending == Ending::GaveUp {
        let ran: u64 = outcome.seconds.iter().map(|second| second.requests.length).sum();
        missed.push(format!(
            "the target accepted no more connections, and the run was ended after {:.1} s; these are the results up to \
             there",
            ran as f64 / 1e9
        ));
    }
    let (ended, failed) = operations
        .iter()
        .fold((0, 0), |(ended, failed), tally| (ended + tally.ended, failed + tally.failed()));
    for (operation, tally) in scenario.operations.iter().zip(operations) {
        if all_failed(tally) {
            missed.push(format!("{} has not succeeded once: all {} failed", operation.name, tally.ended));
        }
    }
    if failed as f64 > ended as f64 * (1.0 - LEAST_SUCCESS) {
        missed.push(format!(
            "{failed} of {ended} operations failed, and {:.0} % must succeed",
            LEAST_SUCCESS * 100.0
        ));
    }
    if outcome.has_fallen_behind(&scenario.load) {
        let succeeded = ended.saturating_sub(failed) as f64;
        missed.push(format!(
            "the rate was not reached: {:.1} operations/s of {:.1} asked for",
            succeeded / outcome.rate_time(&scenario.load).max(1e-9),
            ended as f64 / outcome.measured.max(1e-9)
        ));
    }
    if counts.surplus > 0 {
        missed.push(format!(
            "on {} connections bytes came behind a complete answer, which a next request would take for its own",
            counts.surplus
        ));
    }
    missed.extend(protocol_errors(counts));
    // Who ends a connection with a goodbye says which requests it has not read, and loses none.
    let again = counts.sent_again.saturating_sub(counts.sent_again_excused);
    if again as f64 > counts.requests as f64 * (1.0 - LEAST_SUCCESS) {
        missed.push(format!(
            "{again} of {} requests were sent again, since the server had closed or reset the connection that it keeps, or turned them \
             away unread",
            counts.requests
        ));
    }
    for (operation, tally) in scenario.operations.iter().zip(operations) {
        missed.extend(counted(operation).filter_map(|(step, counted)| {
            let mean = tally.mean_count(counted.place)?;
            let (due, within) = (counted.due(), counted.tolerance());
            ((mean - due).abs() > within + 1e-9).then(|| {
                format!(
                    "{}: a page of {} {} holds {mean:.3} `{}` in the mean of {} answers, not {due} (± {within})",
                    operation.name,
                    step.method,
                    step.path.shown(&scenario.variables),
                    counted.css,
                    tally.counts.get(counted.place).map_or(0, |count| count.0),
                )
            })
        }));
        if let (Some(due), Some(share)) = (operation.conforming, tally.conforming_share())
            && share < due
        {
            missed.push(format!(
                "{}: {} of {} answers came at their least bit rate, under the target of {}",
                operation.name,
                tally.conforming_shown(),
                tally.paced,
                show_share(due)
            ));
        }
        for (rank, limit) in &operation.targets {
            if let Some(reached) = tally.judged(*rank)
                && reached > *limit
            {
                missed.push(format!(
                    "{}: p{rank} is {}, over the target of {}",
                    operation.name,
                    show_duration(reached),
                    show_duration(*limit)
                ));
            }
        }
    }
    missed
}

/// What an operation counts, each with its step.
fn counted(operation: &Operation) -> impl Iterator<Item = (&Step, &Counted)> {
    operation.steps.iter().flat_map(|step| step.counts.iter().map(move |counted| (step, counted)))
}

/// Whether the generator was behind the users' clocks.
fn lateness(scenario: &Scenario, outcome: &Outcome, totals: &Totals) -> Option<String> {
    let strictest =
        scenario.operations.iter().flat_map(|operation| &operation.targets).map(|(_, time)| *time).min();
    let bound = MOST_LATENESS.max(strictest.unwrap_or_else(|| totals.response.percentile(99.0)) / 20);
    let late = totals.lateness.percentile(99.0);
    let share_late = 100.0 - totals.lateness.share_within(bound);
    let is_late = late > bound && totals.lateness.count() as f64 * share_late / 100.0 >= LATE_STARTS;
    is_late.then(|| {
        let of_agents = outcome.agents.iter().map(|agent| (&agent.title, agent.lateness.percentile(99.0)));
        let of_agents = of_agents.filter(|(_, late)| *late > bound);
        let who: Vec<String> =
            of_agents.map(|(title, late)| format!("{title} by {}", show_duration(late))).collect();
        let who = if who.is_empty() { String::new() } else { format!(" ({})", who.join(", ")) };
        format!(
            "the generator was late: p99 {} behind {}, {} is allowed{who}",
            show_duration(late),
            if scenario.load.is_open() { "its schedule" } else { "the users' clocks" },
            show_duration(bound)
        )
    })
}

fn distrust_of_generator(outcome: &Outcome, totals: &Totals, ended: u64) -> Vec<String> {
    let mut reasons = Vec::new();
    for maker in makers(outcome, totals) {
        let whose = maker.title;
        if maker.busiest > MOST_CPU {
            reasons.push(format!(
                "a worker of {whose} used {:.0} % of its processor, and over {:.0} % it measures itself; use more \
                 --threads or fewer users",
                maker.busiest * 100.0,
                MOST_CPU * 100.0
            ));
        }
        if maker.starved > 0 {
            reasons.push(format!(
                "{} requests failed for want of descriptors or ports of {whose}; raise `ulimit -n`, use --source, or \
                 fewer `client connections`",
                maker.starved
            ));
        }
    }
    let unsent = outcome.unsent;
    let due = unsent + ended;
    if unsent as f64 > due as f64 * (1.0 - LEAST_SUCCESS) && outcome.ending == Ending::Done {
        reasons.push(format!("{unsent} of {due} operations that were due in the steady time never began"));
    }
    reasons
}

/// Who made a part of the load.
struct Maker<'o> {
    title: &'o str,
    /// The highest share of a processor that one of its workers used.
    busiest: f64,
    /// Requests that failed for want of its descriptors or ports.
    starved: u64,
}

/// This process, or the agents.
fn makers<'o>(outcome: &'o Outcome, totals: &Totals) -> Vec<Maker<'o>> {
    let busy = outcome.requests().busy_workers();
    let most = |workers: &[f64]| workers.iter().copied().fold(0.0, f64::max);
    if outcome.agents.is_empty() {
        let failures = totals.counts.failures.iter();
        let starved = failures.filter(|(failure, _)| failure.is_ours()).map(|(_, count)| count).sum();
        return vec![Maker { title: "the generator", busiest: most(&busy), starved }];
    }
    let of = |agent: &'o Agent| {
        let first = agent.first_worker as usize;
        let workers = busy.get(first..first.saturating_add(agent.threads as usize)).unwrap_or_default();
        Maker { title: &agent.title, busiest: most(workers), starved: agent.starved }
    };
    outcome.agents.iter().map(of).collect()
}

/// Percentiles that too few values stand behind.
fn thin_percentiles(scenario: &Scenario, operations: &[Tally]) -> Option<String> {
    let thin: Vec<String> = scenario
        .operations
        .iter()
        .zip(operations)
        .flat_map(|(operation, tally)| {
            let count = tally.times().count() as f64;
            // Of what was not measured at all that is a reason by itself.
            let is_thin = move |rank: &f64| count > 0.0 && count * (1.0 - rank / 100.0) < BEYOND;
            operation
                .targets
                .iter()
                .filter(move |(rank, _)| is_thin(rank))
                .map(|(rank, _)| format!("p{rank} of {}", operation.name))
        })
        .collect();
    (!thin.is_empty()).then(|| {
        format!(
            "fewer than {BEYOND} operations lie beyond {}; a longer steady time tells more",
            thin.join(", ")
        )
    })
}

/// A sentence for each kind of failed request.
pub(super) fn failures(totals: &Totals) -> Vec<String> {
    let sentence = |(failure, count): (&Failure, &u64)| format!("{count} {}", failure.sentence());
    totals.counts.failures.iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Times;
    use crate::scenario::load_text;
    use crate::scenario::record::{Arrived, Second};
    use std::collections::BTreeMap;
    use std::path::Path;

    const TEXT: &str = "target \"http://127.0.0.1:1\"; users 10 { steady \"1m\" }; cycle fixed \"1s\"
        mix { a 50; b 50 }; op a p90=\"1s\" { get \"/a\" }; op b { get \"/b\" }";

    fn scenario() -> Scenario {
        load_text("test", TEXT, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound")
    }

    fn tally(ended: u64, succeeded: u64, response: u64, cycle: u64) -> Tally {
        Tally {
            ended,
            succeeded,
            response: vec![(response, succeeded)],
            expected: vec![(response, succeeded)],
            cycles: ended,
            cycle_due: ended * 1_000_000_000,
            cycle_achieved: ended * cycle,
            ..Tally::default()
        }
    }

    fn outcome(ending: Ending) -> Outcome {
        Outcome {
            started: 0.0,
            seconds: Vec::new(),
            failed: Vec::new(),
            ending,
            faults: Vec::new(),
            unsent: 0,
            measured: 60.0,
            memory: 0,
            threads: 1,
            tls: None,
            agents: Vec::new(),
            notes: Vec::new(),
            is_cut_short: false,
        }
    }

    /// Where a script chooses, shares are what they are; what has a target and never came is not passed over.
    #[test]
    fn shares_that_a_script_chooses_are_not_judged() {
        let mut scenario = scenario();
        let judged = |scenario: &Scenario, b: Tally| {
            let all = [tally(9_000, 9_000, 20_000_000, 1_000_000_000), b];
            judge(scenario, &outcome(Ending::Done), &all, &Totals::default())
        };
        let some = || tally(1_000, 1_000, 20_000_000, 1_000_000_000);
        assert!(judged(&scenario, some()).reasons.iter().any(|reason| reason.contains("points off")));
        for operation in &mut scenario.operations {
            operation.next = Some(0);
        }
        let free = judged(&scenario, some());
        assert_eq!((free.verdict, free.reasons), (Verdict::Pass, Vec::new()));
        assert!(free.notes.iter().any(|note| note.contains("chosen by the script")), "{:?}", free.notes);
        if let Some(operation) = scenario.operations.last_mut() {
            operation.targets = vec![(90.0, Duration::from_secs(1))];
        }
        let never = judged(&scenario, Tally::default());
        assert_eq!(never.verdict, Verdict::Invalid, "{:?}", never.reasons);
    }

    #[test]
    fn the_agent_that_was_at_fault_is_named() {
        let agent = |number: u32, late: u64, starved| {
            let mut lateness = Times::default();
            lateness.add(&[(late, 1_000)]);
            Agent {
                title: format!("agent {number} (east, 10.0.0.{number}:7400)"),
                first_worker: (number - 1) * 2,
                threads: 2,
                operations: 5_000,
                round_trip: Duration::from_millis(1),
                lateness,
                starved,
                host: None,
            }
        };
        let second = |cpu: &[u64]| {
            let interval = crate::run::Interval { cpu: cpu.to_vec(), length: 1_000, ..Default::default() };
            Second { requests: interval, ..Default::default() }
        };
        let scenario = scenario();
        let operations =
            [tally(5_000, 5_000, 20_000_000, 1_000_000_000), tally(5_000, 5_000, 0, 1_000_000_000)];
        let mut totals = Totals::default();
        totals.lateness.add(&[(900_000_000, 1_000)]);
        let mut outcome = Outcome {
            seconds: vec![second(&[10, 20, 30, 990])],
            agents: vec![agent(1, 100, 0), agent(2, 900_000_000, 3)],
            ..outcome(Ending::Done)
        };
        let reasons = judge(&scenario, &outcome, &operations, &totals).reasons.join("\n");
        for part in [
            "a worker of agent 2 (east, 10.0.0.2:7400) used 99 % of its processor",
            "3 requests failed for want of descriptors or ports of agent 2",
        ] {
            assert!(reasons.contains(part), "{part}: {reasons}");
        }
        assert!(!reasons.contains("agent 1"), "{reasons}");
        let notes = judge(&scenario, &outcome, &operations, &totals).notes.join("\n");
        assert!(notes.contains("is allowed (agent 2 (east, 10.0.0.2:7400) by 9"), "{notes}");
        outcome.agents.clear();
        let reasons = judge(&scenario, &outcome, &operations, &totals).reasons.join("\n");
        assert!(reasons.contains("a worker of the generator used 99 %"), "{reasons}");
    }

    #[test]
    fn verdicts() {
        let (ms, s) = (1_000_000, 1_000_000_000);
        let good = || tally(5_000, 5_000, 20 * ms, s);
        let table = [
            ("as planned", Ending::Done, good(), good(), Verdict::Pass, ""),
            ("slow", Ending::Done, tally(5_000, 5_000, 2 * s, s), good(), Verdict::Fail, "a: p90 is 2.00 s"),
            (
                "failures",
                Ending::Done,
                tally(5_000, 4_000, ms, s),
                good(),
                Verdict::Fail,
                "1000 of 10000 operations",
            ),
            ("mix", Ending::Done, tally(4_000, 4_000, ms, s), good(), Verdict::Invalid, "a was 44.44 %"),
            (
                "none",
                Ending::Done,
                tally(5_000, 0, ms, s),
                good(),
                Verdict::Fail,
                "a has not succeeded once: all 5000 failed",
            ),
            (
                "cycle",
                Ending::Done,
                tally(5_000, 5_000, ms, 2 * s),
                good(),
                Verdict::Invalid,
                "the mean cycle was",
            ),
            ("nothing", Ending::Done, Tally::default(), Tally::default(), Verdict::Invalid, "no operation"),
            (
                "died",
                Ending::GaveUp,
                tally(100, 0, ms, 9 * s),
                tally(90, 90, ms, s),
                Verdict::Fail,
                "no more conn",
            ),
            ("interrupted", Ending::Interrupted, good(), tally(90, 90, ms, s), Verdict::Measured, ""),
        ];
        for (name, ending, a, b, verdict, part) in table {
            let judgement = judge(&scenario(), &outcome(ending), &[a, b], &Totals::default());
            assert_eq!(judgement.verdict, verdict, "{name}: {:?}", judgement.reasons);
            let found = judgement.reasons.iter().any(|reason| reason.contains(part));
            assert!(found || part.is_empty(), "{name}: {:?}", judgement.reasons);
        }
    }

    #[test]
    fn what_was_measured_wrong_is_never_pass() {
        let text = TEXT.replace("get \"/b\"", "get \"/b/{user}\" { count \"img.thumb\" mean=10 within=0.5 }");
        let scenario =
            load_text("test", &text, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound");
        let good = || tally(5_000, 5_000, 20_000_000, 1_000_000_000);
        let judged = |count: Option<(u64, u64)>, counts: Counts, a: Tally| {
            let b = Tally { counts: count.into_iter().collect(), ..good() };
            let totals = Totals { counts, ..Totals::default() };
            judge(&scenario, &outcome(Ending::Done), &[a, b], &totals)
        };
        let none = Counts::default;
        let requests = |surplus, sent_again| Counts { requests: 10_000, surplus, sent_again, ..none() };
        let table = [
            ("ten", Some((5_000, 50_000)), none(), Verdict::Pass, ""),
            ("at the bound", Some((1_000, 10_500)), none(), Verdict::Pass, ""),
            (
                "too few",
                Some((1_000, 9_000)),
                none(),
                Verdict::Fail,
                "b: a page of GET /b/{user} holds 9.000 `img.thumb` in the mean of 1000 answers, not 10 (± 0.5)",
            ),
            ("too many", Some((1_000, 10_501)), none(), Verdict::Fail, "holds 10.501"),
            ("not counted", None, none(), Verdict::Invalid, "no answer in the steady time"),
            (
                "surplus",
                Some((5_000, 50_000)),
                requests(1, 0),
                Verdict::Fail,
                "on 1 connections bytes came behind",
            ),
            ("some sent again", Some((5_000, 50_000)), requests(0, 9), Verdict::Pass, ""),
            (
                "many behind a goodbye",
                Some((5_000, 50_000)),
                Counts { sent_again_excused: 150, ..requests(0, 200) },
                Verdict::Pass,
                "",
            ),
            (
                "many sent again",
                Some((5_000, 50_000)),
                requests(0, 200),
                Verdict::Fail,
                "200 of 10000 requests were sent again",
            ),
        ];
        for (name, count, counts, verdict, part) in table {
            let judgement = judged(count, counts, good());
            assert_eq!(judgement.verdict, verdict, "{name}: {:?}", judgement.reasons);
            assert!(
                part.is_empty() || judgement.reasons.iter().any(|reason| reason.contains(part)),
                "{name}: {:?}",
                judgement.reasons
            );
        }
        assert!(
            judged(Some((5_000, 50_000)), requests(0, 9), good()).notes[0]
                .contains("9 requests were sent again")
        );
    }

    #[test]
    fn a_share_of_answers_that_are_fast_enough() {
        let text = TEXT.replace(
            "op a p90=\"1s\" { get \"/a\" }",
            "op a conforming=\"99.5%\" { get \"/a\" { min-bitrate \"1KiB/s\" } }",
        );
        let scenario =
            load_text("test", &text, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound");
        let good = || tally(5_000, 5_000, 20_000_000, 1_000_000_000);
        let table = [
            (5_000, 4_975, Verdict::Pass, ""),
            (
                5_000,
                4_974,
                Verdict::Fail,
                "a: 99.48 % of 5000 answers came at their least bit rate, under the target of 99.5 %",
            ),
            (0, 0, Verdict::Invalid, "a: there was no answer in the steady time whose bit rate"),
        ];
        for (paced, conforming, verdict, part) in table {
            let a = Tally { paced, conforming, ..good() };
            let judgement = judge(&scenario, &outcome(Ending::Done), &[a, good()], &Totals::default());
            assert_eq!(judgement.verdict, verdict, "{conforming}: {:?}", judgement.reasons);
            assert!(judgement.reasons.first().map_or("", String::as_str).contains(part), "{judgement:?}");
        }
        let text = TEXT.replace("p90=\"1s\"", "conforming=\"90%\"");
        let told = load_text("test", &text, Path::new("."), &BTreeMap::new()).render(false);
        assert!(told.contains("no step has a bit rate") && told.contains("min-bitrate"), "{told}");
    }

    /// Nine of a hundred that are given up are too many for p95, and not for p90; and failures that come fast make nothing fast.
    #[test]
    fn a_target_is_met_by_all_and_by_those_that_ended_well() {
        let (ms, s) = (1_000_000, 1_000_000_000);
        let text = TEXT.replace("op a p90=\"1s\"", "op a p90=\"1s\" p95=\"1s\"");
        let scenario =
            load_text("test", &text, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound");
        let judged = |given_up: (u64, u64), expected: Vec<(u64, u64)>| {
            let succeeded: u64 = expected.iter().map(|(_, count)| count).sum();
            let ended = succeeded + given_up.1;
            let response = expected.iter().copied().chain([given_up]).collect();
            let a = Tally { ended, response, expected, ..tally(ended, succeeded, 0, s) };
            let all = [a, tally(5_000, 5_000, 20 * ms, s)];
            judge(&scenario, &outcome(Ending::Done), &all, &Totals::default()).reasons.join("\n")
        };
        let hung = judged((30 * s, 90), vec![(20 * ms, 910)]);
        assert!(hung.contains("a: p95 is 30.") && !hung.contains("p90"), "{hung}");
        let fast = judged((ms, 9_000), vec![(20 * ms, 800), (2 * s, 200)]);
        assert!(fast.contains("a: p90 is 2.00 s"), "{fast}");
        assert!(!judged((30 * s, 9), vec![(20 * ms, 991)]).contains("a: p"));
    }

    /// A target that says nothing of times is no excuse for a schedule that was not kept.
    #[test]
    fn lateness_is_excused_by_times_alone() {
        let fast = "op a conforming=\"50%\" { get \"/a\" { min-bitrate \"1KiB/s\" } }";
        for (op, verdict) in [("", Verdict::Pass), (fast, Verdict::Invalid)] {
            let text = if op.is_empty() {
                TEXT.to_owned()
            } else {
                TEXT.replace("op a p90=\"1s\" { get \"/a\" }", op)
            };
            let scenario =
                load_text("test", &text, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound");
            let good = || tally(5_000, 5_000, 20_000_000, 1_000_000_000);
            let a = Tally { paced: 10, conforming: 10, ..good() };
            let mut totals = Totals::default();
            (0..100).for_each(|_| totals.lateness.record(900_000_000));
            let judgement = judge(&scenario, &outcome(Ending::Done), &[a, good()], &totals);
            assert_eq!(judgement.verdict, verdict, "{judgement:?}");
        }
    }

    #[test]
    fn visits_that_never_began_are_another_load() {
        let text = TEXT.replace("users 10 { steady \"1m\" }", "rate \"100/s\" { steady \"1m\" }");
        let scenario =
            load_text("test", &text, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound");
        // Cycles are nobody's concern.
        let good = || tally(3_000, 3_000, 20_000_000, 9_000_000_000);
        let good = || Tally { cycles: 0, cycle_due: 0, cycle_achieved: 0, ..good() };
        let judged = |due, begun, waited, too_late, ending| {
            let visits = Arrived { due, begun, waited, too_late, ..Arrived::default() };
            let mut outcome = outcome(ending);
            outcome.seconds = vec![Second { visits, ..Second::default() }; 2];
            judge(&scenario, &outcome, &[good(), good()], &Totals::default())
        };
        let table = [
            (3_000, 3_000, 0, 0, Ending::Done, Verdict::Pass, "", ""),
            (3_000, 2_970, 9, 0, Ending::Done, Verdict::Pass, "", "18 visits found all 1000 users busy"),
            (
                3_000,
                2_969,
                0,
                0,
                Ending::Done,
                Verdict::Invalid,
                "62 of 6000 visits that were due never began, so that there were 98.97 a second, not 100.00",
                "",
            ),
            (3_000, 2_000, 0, 999, Ending::Done, Verdict::Invalid, "the generator came to most of them", ""),
            (3_000, 100, 0, 0, Ending::Interrupted, Verdict::Measured, "", ""),
        ];
        for (due, begun, waited, too_late, ending, verdict, reason, note) in table {
            let judgement = judged(due, begun, waited, too_late, ending);
            assert_eq!(judgement.verdict, verdict, "{begun}: {judgement:?}");
            let has =
                |list: &[String], part: &str| part.is_empty() || list.iter().any(|one| one.contains(part));
            assert!(has(&judgement.reasons, reason) && has(&judgement.notes, note), "{judgement:?}");
        }
    }

    /// What was not measured says why, and asks for more time only where more time would help.
    #[test]
    fn what_was_not_measured_says_why() {
        let (none, good) = (Tally::default, || tally(5_000, 5_000, 20_000_000, 1_000_000_000));
        let failed = || tally(2, 0, 0, 1_000_000_000);
        for (mix, b, part) in [
            (
                "mix { a 9999; b 1 }",
                none(),
                "b: its target is neither met nor missed, since it was not due; make the",
            ),
            (
                "mix { a 9999; b 1 }",
                failed(),
                "b: its target is neither met nor missed, since 2 of 2 operations failed",
            ),
            ("mix { a 1; b 0 }", none(), "it was never due: no user ever comes to `b`"),
            ("mix start=b { b a=100; a a=100 }", none(), "it was never due: users leave `b` for good"),
            ("sequence a", none(), "it was never due: no user ever comes to `b`"),
        ] {
            let text = TEXT.replace("mix { a 50; b 50 }", mix).replace("op b", "op b p90=\"1s\"");
            let loaded = load_text("test", &text, Path::new("."), &BTreeMap::new());
            let scenario = loaded.scenario.clone().unwrap_or_else(|| panic!("{}", loaded.render(false)));
            let judgement = judge(&scenario, &outcome(Ending::Done), &[good(), b], &Totals::default());
            assert_eq!(judgement.verdict, Verdict::Invalid, "{mix}: {judgement:?}");
            let [reason] = judgement.reasons.as_slice() else { panic!("{mix}: {judgement:?}") };
            assert!(reason.contains(part), "{mix}: {reason}");
            assert_eq!(reason.contains("longer"), part.contains("make the"), "{mix}: {reason}");
            assert!(judgement.notes.is_empty(), "{mix}: {judgement:?}");
        }
    }

    /// The server is to blame for what its answers took, and for those that never came.
    #[test]
    fn who_held_users_up_is_told() {
        let slow = || tally(5_000, 5_000, 20_000_000, 2_000_000_000);
        let reason = |scenario: &Scenario, answered: u64, failure: Option<Failure>, a: Tally| {
            let mut totals = Totals::default();
            (0..10_000).filter(|_| answered > 0).for_each(|_| totals.response.record(answered));
            totals.counts.failures.extend(failure.map(|failure| (failure, 1)));
            let judgement = judge(scenario, &outcome(Ending::Done), &[a, slow()], &totals);
            judgement.reasons.into_iter().find(|reason| reason.contains("mean cycle")).unwrap()
        };
        let mut scenario = scenario();
        let not_the_server = "held up by the generator, and not by the server";
        for (answered, failure, part) in [
            (900_000_000, None, "held up by the server"),
            (1_000_000, None, not_the_server),
            (0, None, not_the_server),
            (0, Some(Failure::Status), not_the_server),
            (0, Some(Failure::Timeout), "held up by the server"),
        ] {
            let told = reason(&scenario, answered, failure, slow());
            assert!(told.contains(part), "{answered} {failure:?}: {told}");
        }
        // An agent that stood still starts late, and what it had asked before seems to have taken long.
        let mut totals = Totals::default();
        (0..2_000).for_each(|_| totals.response.record(5_000_000_000));
        (0..2_000).for_each(|_| totals.lateness.record(5_000_000_000));
        let judgement = judge(&scenario, &outcome(Ending::Done), &[slow(), slow()], &totals);
        let told = judgement.reasons.iter().find(|reason| reason.contains("mean cycle")).unwrap();
        assert!(told.contains(not_the_server), "{told}");
        // Both together were faster than their clocks.
        let told = reason(&scenario, 0, None, Tally { cycle_due: 50_000_000_000_000, ..slow() });
        assert!(told.contains("asked for more than the scenario says"), "{told}");
        scenario.script = Some(crate::scenario::Script {
            name: "s.js".into(),
            text: "".into(),
            within: Duration::from_secs(1),
            exports: Vec::new(),
        });
        let told = reason(&scenario, 0, None, slow());
        assert!(told.contains("held up by calls of the script, and not by the server"), "{told}");
    }

    #[test]
    fn a_target_without_a_value_is_not_met() {
        let text = TEXT.replace("a 50; b 50", "a 1; b 9999").replace("op b", "op b p90=\"1s\"");
        let scenario =
            load_text("test", &text, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound");
        let operations = [Tally::default(), tally(5_000, 5_000, 20_000_000, 1_000_000_000)];
        let judgement = judge(&scenario, &outcome(Ending::Done), &operations, &Totals::default());
        assert_eq!(judgement.verdict, Verdict::Invalid);
        assert!(judgement.reasons[0].contains("neither met nor missed"), "{:?}", judgement.reasons);
    }

    #[test]
    fn few_operations_may_be_further_off() {
        assert_eq!(allowed_points(0.33, 1_000_000), 2.0);
        assert!((allowed_points(0.33, 5_000) - 2.0).abs() < 0.01);
        assert!((allowed_points(0.33, 500) - 6.31).abs() < 0.01);
    }
}
