//! The controller on a clock of the tests: what it starts, whom it refuses, whom it loses.

use super::*;
use crate::agent::messages::{Pong, Ready};
use crate::run::Ending;
use crate::scenario::{load_text, observe_nothing};
use std::path::Path;
use tidegate_config::ProcessEnvironment;

const S: u64 = 1_000_000_000;

fn scenario() -> Scenario {
    let text = "target \"http://127.0.0.1:1\"\nusers 30 { steady \"5s\" }\nthink fixed \"1s\"\n\
                mix { a 1; b 1 }\nop a { get \"/\" }\nop b { get \"/\" }\n";
    load_text("test", text, Path::new("."), &ProcessEnvironment).scenario.unwrap()
}

fn controller(scenario: &Scenario, agents: usize) -> Controller<'_, fn(Progress, &Second)> {
    let prepare = Prepare { program: "1.0".into(), users: 30, steady: 5 * S, grace: S, ..Prepare::default() };
    let orders = Orders { scenario, prepare, agents, patience: Duration::from_secs(60) };
    Controller::new(orders, 0, observe_nothing as fn(Progress, &Second))
}

fn hello(program: &str, index: Option<u32>) -> Frame {
    let (program, name) = (program.to_owned(), "east".to_owned());
    Kind::Hello(Hello { protocol: PROTOCOL, program, name, index }).into()
}

/// What was sent to a link.
fn sent(sends: &[Send], link: u64) -> Vec<&Kind> {
    let of = |send| match send {
        &Send::Frame(to, Frame { kind: Some(ref kind) }) if to == link => Some(kind),
        _ => None,
    };
    sends.iter().filter_map(of).collect()
}

/// Up to the start: their clocks are 100 s ahead, and a round trip takes 2 ms. The time at which the agents are to begin.
fn begun(controller: &mut Controller<'_, fn(Progress, &Second)>, links: u64) -> (u64, u64) {
    let mut now = S;
    for link in 0..links {
        controller.joined(link, format!("10.0.0.{link}:9"), now);
        controller.frame(link, hello("1.0", None), now).unwrap();
    }
    for link in 0..links {
        controller.frame(link, Kind::Ready(Ready { threads: 1, tls: None }).into(), now).unwrap();
    }
    let mut starts = Vec::new();
    let mut pings = 0;
    loop {
        let sends = controller.sends();
        if sends.is_empty() {
            break;
        }
        now += 2_000_000;
        for send in &sends {
            let Send::Frame(link, Frame { kind: Some(kind) }) = send else { continue };
            match kind {
                Kind::Ping(ping) => {
                    pings += 1;
                    let received = ping.sent + 1_000_000 + 100 * S;
                    controller
                        .frame(*link, Kind::Pong(Pong { sent: ping.sent, received }).into(), now)
                        .unwrap();
                }
                Kind::Start(start) => starts.push(start.at),
                _ => {}
            }
        }
    }
    assert_eq!((pings, starts.len() as u64), (u64::from(PINGS) * links, links));
    (starts[0], now)
}

fn second(sequence: u64, number: u32) -> Frame {
    let told = SecondOfWorker {
        operations: vec![Default::default(); 2],
        requests: crate::record::Sample { interval: number, length: S, ..Default::default() },
        ..SecondOfWorker::default()
    };
    Kind::Delta(Box::new(record::delta(sequence, &told))).into()
}

fn ended(sequence: u64) -> Frame {
    Kind::Ended(Ended { sequence, ..Ended::default() }).into()
}

#[test]
fn agents_start_at_one_time_of_their_own_clocks_and_end_with_their_totals() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 2);
    let (at, now) = begun(&mut controller, 2);
    let start = controller.start().unwrap();
    // The starts were handed out one round trip ago.
    assert_eq!((at, start - now + 2_000_000), (start + 100 * S, 3 * S));
    for number in 0..3 {
        for link in 0..2 {
            controller.frame(link, second(u64::from(number), number), start).unwrap();
            assert!(
                matches!(sent(&controller.sends(), link)[..], [Kind::Ack(ack)] if ack.sequence == u64::from(number))
            );
        }
    }
    for (link, frames) in [(0, 4), (1, 5)] {
        controller.frame(link, ended(3), start).unwrap();
        controller.frame(link, Kind::Totals(Totals { frames, ..Totals::default() }).into(), start).unwrap();
    }
    assert!(controller.is_over());
    let outcome = controller.finish().unwrap();
    assert_eq!((outcome.seconds.len(), outcome.threads, outcome.agents.len()), (3, 2, 2));
    // The second says that there was one message more.
    assert_eq!(outcome.faults.len(), 1, "{:?}", outcome.faults);
    assert!(
        outcome.faults[0].contains("says 5 messages, and its seconds add up to 4"),
        "{:?}",
        outcome.faults
    );
}

#[test]
fn a_lost_agent_stops_the_others_and_the_run_says_which() {
    let scenario = scenario();
    type Lose = fn(&mut Controller<'_, fn(Progress, &Second)>, u64);
    let table: [(&str, Lose, &str); 4] = [
        (
            "gone",
            |controller, now| controller.closed(1, "the connection was lost", now).unwrap(),
            "connection was lost",
        ),
        (
            "silent",
            |controller, now| {
                controller.tick(now + 4 * S, false).unwrap();
                assert!(controller.said().iter().any(|said| said.contains("silent for 3.00 s")));
                controller
                    .frame(0, Kind::Pong(Pong { sent: now, received: now + 100 * S }).into(), now + 9 * S)
                    .unwrap();
                controller.tick(now + 11 * S, false).unwrap();
            },
            "silent for 10.0 s",
        ),
        (
            "out of order",
            |controller, now| controller.frame(1, second(1, 1), now).unwrap(),
            "message 1 came after 0",
        ),
        (
            "not due",
            |controller, now| controller.frame(1, hello("1.0", None), now).unwrap(),
            "message that is not due",
        ),
    ];
    for (name, lose, reason) in table {
        let mut controller = controller(&scenario, 2);
        let (_, now) = begun(&mut controller, 2);
        lose(&mut controller, now);
        let sends = controller.sends();
        assert!(sent(&sends, 0).iter().any(|kind| matches!(kind, Kind::Stop(_))), "{name}: {sends:?}");
        assert!(!controller.is_over());
        controller.frame(0, ended(0), now).unwrap();
        controller.frame(0, Kind::Totals(Totals { frames: 1, ..Totals::default() }).into(), now).unwrap();
        assert!(controller.is_over(), "{name}");
        let outcome = controller.finish().unwrap();
        let fault = outcome.faults.join("\n");
        assert!(
            fault.contains("agent 2 (east, 10.0.0.1:9) was lost") && fault.contains(reason),
            "{name}: {fault}"
        );
        assert_eq!((outcome.is_cut_short, outcome.ending), (true, Ending::Done));
    }
}

#[test]
fn who_does_not_fit_is_refused_before_the_load() {
    let scenario = scenario();
    let table = [
        (hello("0.9", None), "it is of version 0.9 (protocol 2), and this controller of version 1.0"),
        (hello("1.0", Some(2)), "its index is 2, and the run has 2 agents"),
        (hello("1.0", Some(0)), "its index 0 is that of another agent"),
        (Kind::Refuse(Reason { reason: "no\x1b[2J way".into() }).into(), "no [2J way"),
    ];
    for (frame, reason) in table {
        let mut controller = controller(&scenario, 2);
        controller.joined(7, "first".into(), 0);
        controller.frame(7, hello("1.0", Some(0)), 0).unwrap();
        controller.joined(8, "second".into(), 0);
        let said = controller.frame(8, frame, 0).unwrap_err().to_string();
        assert!(said.contains(reason), "{said}");
        assert!(controller.sends().contains(&Send::Close(8)));
    }
    let mut controller = controller(&scenario, 1);
    controller.joined(1, "first".into(), 0);
    controller.joined(2, "second".into(), 0);
    let sends = controller.sends();
    assert!(
        matches!(sent(&sends, 2)[..], [Kind::Refuse(reason)] if reason.reason.contains("has its 1 agents"))
    );
    let missing = controller.tick(61 * S, false).unwrap_err().to_string();
    assert!(missing.contains("0 of 1 agents were there after 60.0 s"), "{missing}");
}

#[test]
fn an_interrupt_stops_all_and_keeps_what_there_is() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 1);
    let (_, now) = begun(&mut controller, 1);
    controller.frame(0, second(0, 0), now).unwrap();
    controller.tick(now, true).unwrap();
    assert!(sent(&controller.sends(), 0).iter().any(|kind| matches!(kind, Kind::Stop(_))));
    controller.frame(0, ended(1), now).unwrap();
    controller.frame(0, Kind::Totals(Totals { frames: 2, ..Totals::default() }).into(), now).unwrap();
    let outcome = controller.finish().unwrap();
    assert_eq!((outcome.ending, outcome.seconds.len(), outcome.faults.len()), (Ending::Interrupted, 1, 0));
}

#[test]
fn clocks_that_drift_are_noted_and_then_spoil_the_run() {
    let scenario = scenario();
    for (drift, notes, faults) in [(0, 0, 0), (100_000_000, 1, 0), (600_000_000, 0, 1)] {
        let mut controller = controller(&scenario, 1);
        let (_, now) = begun(&mut controller, 1);
        let pong = Kind::Pong(Pong { sent: now, received: now + 100 * S + drift });
        controller.frame(0, pong.into(), now).unwrap();
        controller.frame(0, ended(0), now).unwrap();
        controller.frame(0, Kind::Totals(Totals { frames: 1, ..Totals::default() }).into(), now).unwrap();
        let outcome = controller.finish().unwrap();
        assert_eq!((outcome.notes.len(), outcome.faults.len()), (notes, faults), "{drift}: {outcome:?}");
    }
}
