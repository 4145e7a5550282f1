//! Whether the generator tells the truth: schedules, queues and records against servers of known delays, on a
//! virtual clock. The expected percentiles are computed from the delays, not by the recorder.

use crate::plan::{Load, Pace, Plan};
use crate::record::{Recorder, Stamps};
use crate::request::{Description, Mix};
use crate::run::{Ending, Interval, Outcome, Totals};
use crate::schedule::{Arrivals, Schedule};
use crate::target::Url;
use crate::verdict::judge;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// A server that answers request `number`, sent at `now`, at a time that the script says.
type Script = fn(number: u64, now: u64) -> u64;

fn fixed(_: u64, now: u64) -> u64 {
    now + 5 * MS
}

/// Exponential with a mean of 10 ms, as quantiles in an order that jumps: no two runs differ.
fn exponential(number: u64, now: u64) -> u64 {
    let place = (number * 7_919 % 10_000) as f64;
    now + (-(1.0 - (place + 0.5) / 10_000.0).ln() * 10.0 * MS as f64) as u64
}

/// 2 ms, but for the first second of every ten in which nothing is answered.
fn stalling(_: u64, now: u64) -> u64 {
    let phase = now % (10 * SECOND);
    if phase < SECOND { now - phase + SECOND + 2 * MS } else { now + 2 * MS }
}

/// What a run of the generator is, with the socket and the clock taken out: arrivals from the schedule, free
/// connections first come first served, a queue for the rest.
fn open_loop(script: Script, rate: f64, connections: usize, seconds: u64) -> Outcome {
    let mut schedule = Schedule::new(Arrivals::Constant, rate, 0, 1, 1);
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..connections).map(|_| Reverse(0)).collect();
    let mut recorder = Recorder::new();
    let (mut number, mut last) = (0, 0);
    while schedule.next() < seconds * SECOND {
        let intended = schedule.next();
        schedule.advance();
        let Reverse(free) = free_at.pop().unwrap();
        let sent = intended.max(free);
        let last_byte = script(number, sent);
        recorder.late(0);
        recorder.answered(200, Stamps { intended, sent, first_byte: last_byte, last_byte });
        recorder.succeed();
        free_at.push(Reverse(last_byte));
        number += 1;
        last = last.max(last_byte);
    }
    outcome(recorder, last)
}

fn closed_loop(script: Script, connections: usize, seconds: u64) -> Outcome {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..connections).map(|_| Reverse(0)).collect();
    let mut recorder = Recorder::new();
    let (mut number, mut last) = (0, 0);
    while let Some(Reverse(sent)) = free_at.pop().filter(|Reverse(at)| *at < seconds * SECOND) {
        let last_byte = script(number, sent);
        recorder.answered(200, Stamps { intended: sent, sent, first_byte: last_byte, last_byte });
        recorder.succeed();
        free_at.push(Reverse(last_byte));
        number += 1;
        last = last.max(last_byte);
    }
    outcome(recorder, last)
}

fn outcome(mut recorder: Recorder, elapsed: u64) -> Outcome {
    let sample = recorder.take();
    let interval = Interval {
        counts: sample.counts,
        response: sample.response,
        expected: sample.expected,
        service: sample.service,
        lateness: sample.lateness,
        cpu: vec![0],
        length: elapsed,
        ..Interval::default()
    };
    Outcome {
        started: 0.0,
        interval: elapsed,
        intervals: vec![interval],
        warmup_requests: 0,
        elapsed,
        last_end: elapsed,
        schedule: None,
        ending: Ending::Done,
        digests: BTreeMap::new(),
        failed: Vec::new(),
        faults: Vec::new(),
        processes: 1,
        threads: 1,
        memory: 0,
        tls: None,
    }
}

fn assert_percentiles(name: &str, totals: &Totals, expected: &[(f64, f64)]) {
    for (rank, ms) in expected {
        let told = totals.response.percentile(*rank).as_secs_f64() * 1e3;
        assert!((told - ms).abs() <= ms * 0.01, "{name}: p{rank} is {told} ms, computed {ms} ms");
    }
}

#[test]
fn percentiles_are_those_of_the_delays() {
    let fixed = open_loop(fixed, 1_000.0, 16, 60).totals();
    assert_percentiles("fixed", &fixed, &[(1.0, 5.0), (50.0, 5.0), (99.99, 5.0), (100.0, 5.0)]);

    // Enough connections that nobody waits. The quantile of an exponential: -mean * ln(1 - p).
    let exponential = open_loop(exponential, 1_000.0, 512, 60).totals();
    let quantile = |percent: f64| (percent, -10.0 * (1.0 - percent / 100.0).ln());
    let expected: Vec<_> = [10.0, 50.0, 90.0, 99.0, 99.9].map(quantile).to_vec();
    assert_percentiles("exponential", &exponential, &expected);
    let mean = exponential.response.mean().as_secs_f64() * 1e3;
    assert!((mean - 10.0).abs() < 0.1, "{mean}");
}

#[test]
fn an_open_loop_shows_a_stall() {
    // A tenth of all arrivals falls into the stall and waits for the rest of it, evenly spread over 0 to 1 s: of
    // all requests 9 % wait longer than 100 ms, 1 % longer than 900.
    let totals = open_loop(stalling, 1_000.0, 2_000, 100).totals();
    let expected = [
        (50.0, 2.0),
        (89.0, 2.0),
        (91.0, 102.0),
        (95.0, 502.0),
        (99.0, 902.0),
        (99.9, 992.0),
        (100.0, 1_002.0),
    ];
    assert_percentiles("stall", &totals, &expected);
    let judgement = judge(
        &plan(Load::Open { rate: 1_000.0, arrivals: Arrivals::Constant }, 2_000),
        &open_loop(stalling, 1_000.0, 2_000, 100),
        &totals,
        &[],
    );
    assert!(judgement.notes.is_empty(), "{:?}", judgement.notes);
}

#[test]
fn arrivals_that_wait_for_a_connection_count_their_wait() {
    // Two connections of 5 ms hold 400/s. At 500/s the queue grows by 100 a second: the last of 10 s waits 2.5 s.
    let totals = open_loop(fixed, 500.0, 2, 10).totals();
    assert_percentiles("queue", &totals, &[(50.0, 1_253.0), (90.0, 2_253.0), (100.0, 2_503.0)]);
    assert!((totals.service.max().as_secs_f64() - 0.005).abs() < 0.000_05);
}

#[test]
fn a_closed_loop_hides_the_stall_and_the_report_says_so() {
    let outcome = closed_loop(stalling, 4, 100);
    let totals = outcome.totals();
    // Ten stalls of four requests each among 180,000 others.
    assert_percentiles("closed", &totals, &[(50.0, 2.0), (99.0, 2.0), (99.9, 2.0), (100.0, 1_002.0)]);
    let judgement = judge(&plan(Load::Closed, 4), &outcome, &totals, &[]);
    let note = judgement.notes.first().expect("the report explains");
    assert!(note.contains("a closed loop asks nothing while it waits") && note.contains("--rate"), "{note}");
    // What it says p99 would be is what the open loop at that rate shows, to a tenth.
    let corrected = totals
        .response
        .histogram()
        .clone_correct((4.0 / (totals.counts.answered as f64 / outcome.seconds()) * 1e9) as u64);
    let told = corrected.value_at_percentile(99.0) as f64 / 1e9;
    assert!((0.8..1.0).contains(&told), "{told}");
}

/// What connections take that were asked to be slow is not put down to the server.
#[test]
fn slow_clients_are_told_of() {
    let outcome = closed_loop(stalling, 4, 100);
    let pace = Pace { rate: 10 << 10, share: 0.25 };
    let slow = |plan: Plan| Plan { slow_readers: Some(pace), ..plan };
    let slow_readers = "25 % of the connections read 10.0 KiB/s, as was asked for";
    let notes = judge(&slow(plan(Load::Closed, 4)), &outcome, &outcome.totals(), &[]).notes;
    assert!(notes.len() == 1 && notes[0].contains(slow_readers), "{notes:?}");
    assert!(!notes[0].contains("each stall"), "{notes:?}");
    let writers = Plan { slow_writers: Some(Pace { share: 1.0 / 3.0, ..pace }), ..plan(Load::Closed, 4) };
    let notes = judge(&writers, &outcome, &outcome.totals(), &[]).notes;
    assert!(notes[0].contains("33.3 % of the connections send 10.0 KiB/s"), "{notes:?}");

    let none = Plan { slow_readers: Some(Pace { share: 0.0, ..pace }), ..plan(Load::Closed, 4) };
    assert!(judge(&none, &outcome, &outcome.totals(), &[]).notes[0].contains("each stall"));

    let open = Load::Open { rate: 500.0, arrivals: Arrivals::Constant };
    let outcome = Outcome { interval: SECOND, ..open_loop(fixed, 500.0, 2, 30) };
    let mut totals = outcome.totals();
    totals.counts.queued = 7;
    let judged = |plan: &Plan| judge(plan, &outcome, &totals, &[]);
    let said = |plan: Plan| {
        let judgement = judged(&plan);
        let rate = judgement.reasons.into_iter().find(|reason| reason.contains("the rate was not reached"));
        [rate, judgement.notes.into_iter().find(|note| note.contains("7 arrivals"))].map(Option::unwrap)
    };
    assert!(said(slow(plan(open, 2))).iter().all(|sentence| sentence.contains(slow_readers)));
    assert!(said(plan(open, 2)).iter().all(|sentence| !sentence.contains("as was asked for")));
}

#[test]
fn a_warm_up_is_told_of_and_counted() {
    // 100 intervals of a tenth of a second with 10 answers each; in the first ten an answer takes ten times as long.
    let intervals = |slow: u64| -> Vec<Interval> {
        (0..100)
            .map(|number| {
                let mut recorder = Recorder::new();
                let time = if number < 10 { slow } else { 2 * MS + u64::from(number % 7) * MS / 100 };
                for _ in 0..10 {
                    recorder
                        .answered(200, Stamps { intended: 0, sent: 0, first_byte: time, last_byte: time });
                    recorder.succeed();
                }
                Interval { number, ..outcome(recorder, SECOND / 10).intervals.remove(0) }
            })
            .collect()
    };
    let whole = |slow| Outcome {
        interval: SECOND / 10,
        intervals: intervals(slow),
        ..outcome(Recorder::new(), 10 * SECOND)
    };
    let notes = |outcome: &Outcome| judge(&plan(Load::Closed, 4), outcome, &outcome.totals(), &[]).notes;
    let notes_of_cold = notes(&whole(20 * MS));
    let note = notes_of_cold.first().expect("the report tells of the warm-up");
    assert!(note.contains("MSER-5") && note.contains("--warmup 1s "), "{note}");
    assert_eq!(notes(&whole(2 * MS)), [""; 0]);
}

fn plan(load: Load, connections: u32) -> Plan {
    let url = Url::parse("http://127.0.0.1/").unwrap();
    let mix = Mix::build(&[Description::get(url)], true, None).unwrap();
    Plan { load, connections, ..Plan::new(mix) }
}
