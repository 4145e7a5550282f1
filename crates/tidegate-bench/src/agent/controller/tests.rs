//! The controller on a clock of the tests: what it starts, whom it refuses, whom it loses.

use super::*;
use crate::agent::member::session;
use crate::agent::messages::{Bye, Ended, Figures, Hello, Pong, Ready, Totals};
use crate::agent::outbox::Outbox;
use crate::agent::{PINGS, record};
use crate::random::Random;
use crate::run::Ending;
use crate::scenario::{Message, load_text, observe_nothing};
use proptest::prelude::*;
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
    let patience = Duration::from_secs(60);
    let orders = Orders {
        scenario,
        prepare,
        agents,
        patience,
        dialled: (0..9).map(|link| format!("10.0.0.{link}:9")).collect(),
        secret: 7,
    };
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
        controller.joined(link, format!("10.0.0.{link}:9"), None, now);
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
    controller.tick(now, false).unwrap();
    controller.sends();
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
                matches!(sent(&controller.sends(), link)[..], [Kind::Ack(ack)] if ack.next == u64::from(number) + 1)
            );
        }
    }
    for (link, frames) in [(0, 4), (1, 5)] {
        controller.frame(link, ended(3), start).unwrap();
        controller.frame(link, Kind::Totals(Totals { frames, ..Totals::default() }).into(), start).unwrap();
    }
    // They do not know yet that all was taken in.
    assert!(!controller.is_over());
    (0..2).for_each(|link| controller.frame(link, Kind::Bye(Bye {}).into(), start).unwrap());
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

/// Seconds pass in which the first agent says that it is there.
fn pass(
    controller: &mut Controller<'_, fn(Progress, &Second)>,
    now: u64,
    seconds: std::ops::RangeInclusive<u64>,
) {
    for now in seconds.map(|second| now + second * S) {
        controller.frame(0, Kind::Pong(Pong { sent: now, received: now + 100 * S }).into(), now).unwrap();
        controller.tick(now, false).unwrap();
    }
}

#[test]
fn a_lost_agent_stops_the_others_and_the_run_says_which() {
    let scenario = scenario();
    type Lose = fn(&mut Controller<'_, fn(Progress, &Second)>, u64);
    let table: [(&str, Lose, &str); 5] = [
        (
            "gone, and not back",
            |controller, now| {
                controller.closed(1, "the connection was reset", now + S).unwrap();
                assert!(controller.faults.is_empty());
                pass(controller, now, 1..=11);
            },
            "its link was lost and not made again (the connection was reset)",
        ),
        (
            "says so",
            |controller, now| {
                let reason = "it was interrupted".to_owned();
                controller.frame(1, Kind::Refuse(Reason { reason }).into(), now).unwrap();
            },
            "it was interrupted",
        ),
        (
            "silent",
            |controller, now| {
                pass(controller, now, 0..=4);
                assert!(controller.said().iter().any(|said| said.contains("silent for 3.00 s")));
                pass(controller, now, 5..=11);
            },
            "silent for 10.0 s, its link was lost and not made again (nothing comes over it)",
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
        controller.frame(0, Kind::Bye(Bye {}).into(), now).unwrap();
        assert!(controller.is_over(), "{name}");
        let outcome = controller.finish().unwrap();
        let fault = outcome.faults.join("\n");
        assert!(
            fault.contains("agent 2 (east, 10.0.0.1:9) was lost") && fault.contains(reason),
            "{name}: {fault}"
        );
        assert_eq!((outcome.is_cut_short, outcome.ending), (true, Ending::Done));
        assert!(!outcome.notes.join(" ").contains("nothing is missing"), "{name}: {:?}", outcome.notes);
    }
}

#[test]
fn who_does_not_fit_is_refused_before_the_load() {
    let scenario = scenario();
    let table = [
        (hello("0.9", None), "it is of version 0.9 (protocol 4), and this controller of version 1.0"),
        (hello("1.0", Some(2)), "its index is 2, and the run has 2 agents"),
        (hello("1.0", Some(0)), "its index 0 is that of another agent"),
        (Kind::Refuse(Reason { reason: "no\x1b[2J way".into() }).into(), "no [2J way"),
    ];
    for (frame, reason) in table {
        let mut controller = controller(&scenario, 2);
        controller.joined(7, "first".into(), None, 0);
        controller.frame(7, hello("1.0", Some(0)), 0).unwrap();
        controller.joined(8, "second".into(), None, 0);
        let said = controller.frame(8, frame, 0).unwrap_err().to_string();
        assert!(said.contains(reason), "{said}");
        assert!(controller.sends().contains(&Send::Close(8)));
    }
    let mut controller = controller(&scenario, 1);
    controller.orders.dialled = vec!["first".into()];
    controller.joined(1, "first".into(), None, 0);
    controller.joined(2, "second".into(), None, 0);
    let sends = controller.sends();
    assert!(
        matches!(sent(&sends, 2)[..], [Kind::Refuse(reason)] if reason.reason.contains("has all of its agents (1)"))
    );
    let missing = controller.tick(61 * S, false).unwrap_err().to_string();
    assert!(missing.contains("0 of 1 agents were there after 60.0 s, all but first; nothing"), "{missing}");
}

#[test]
fn who_is_dialled_is_numbered_as_in_the_list() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 3);
    // The second of the list says which one it is, and it is the last.
    for (link, index) in [(2, None), (0, None), (1, Some(2))] {
        controller.joined(link, format!("10.0.0.{link}:9"), None, 0);
        controller.frame(link, hello("1.0", index), 0).unwrap();
    }
    let sends = controller.sends();
    let index = |link| match sent(&sends, link)[..] {
        [Kind::Prepare(prepare)] => prepare.index,
        _ => panic!("{sends:?}"),
    };
    assert_eq!([index(0), index(1), index(2)], [0, 2, 1]);
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

#[test]
fn a_link_that_is_made_again_goes_on_where_it_was() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 2);
    let (_, now) = begun(&mut controller, 2);
    controller.frame(1, second(0, 0), now).unwrap();
    controller.sends();
    controller.closed(1, "the connection was reset", now).unwrap();
    let dial = Send::Dial { peer: "10.0.0.1:9".into(), session: Some(session(7, 1)) };
    assert_eq!(controller.sends(), [Send::Close(1), dial]);
    // What still comes over the old one is nobody's.
    controller.frame(1, second(1, 1), now).unwrap();
    // An interrupt meanwhile is told over the next.
    controller.tick(now, true).unwrap();
    assert!(sent(&controller.sends(), 1).is_empty());
    controller.joined(9, "10.0.0.1:9".into(), Some(session(7, 1)), now + S);
    let sends = controller.sends();
    assert!(matches!(sent(&sends, 9)[..], [Kind::Ack(ack), Kind::Stop(_)] if ack.next == 1), "{sends:?}");
    controller.frame(9, second(1, 1), now).unwrap();
    // The agent may be the first to notice.
    controller.sends();
    controller.joined(10, "10.0.0.1:9".into(), Some(session(7, 1)), now + S);
    let sends = controller.sends();
    assert!(sends.contains(&Send::Close(9)), "{sends:?}");
    assert!(matches!(sent(&sends, 10)[0], Kind::Ack(ack) if ack.next == 2), "{sends:?}");
    controller.frame(10, ended(2), now).unwrap();
    let totals = |frames| Kind::Totals(Totals { frames, ..Totals::default() });
    controller.frame(10, totals(3).into(), now).unwrap();
    // Its acknowledgement was lost with the link.
    controller.sends();
    controller.joined(11, "10.0.0.1:9".into(), Some(session(7, 1)), now + S);
    let sends = controller.sends();
    assert!(matches!(sent(&sends, 11)[..], [Kind::Ack(ack)] if ack.next == 4), "{sends:?}");
    assert!(!sends.contains(&Send::Close(11)), "{sends:?}");
    controller.frame(11, Kind::Bye(Bye {}).into(), now).unwrap();
    assert!(controller.sends().contains(&Send::Close(11)));
    // A session that there is not.
    controller.joined(12, "10.0.0.9:9".into(), Some(7), now + S);
    assert!(matches!(sent(&controller.sends(), 12)[..], [Kind::Refuse(_)]));
    controller.frame(0, ended(0), now).unwrap();
    controller.frame(0, totals(1).into(), now).unwrap();
    controller.frame(0, Kind::Bye(Bye {}).into(), now).unwrap();
    assert!(controller.is_over());
    let outcome = controller.finish().unwrap();
    assert_eq!((outcome.faults.len(), outcome.seconds.len()), (0, 2), "{:?}", outcome.faults);
    // The third was lost when nothing was missing any more.
    assert!(outcome.notes[0].contains("was lost 2 times and made again"), "{:?}", outcome.notes);
}

/// The last acknowledgement may be lost: the controller stays until the agent has it, or is silent.
#[test]
fn an_agent_that_does_not_know_that_it_is_done_is_waited_for() {
    let scenario = scenario();
    for comes_back in [true, false] {
        let mut controller = controller(&scenario, 1);
        let (_, now) = begun(&mut controller, 1);
        controller.frame(0, ended(0), now).unwrap();
        controller.frame(0, Kind::Totals(Totals { frames: 1, ..Totals::default() }).into(), now).unwrap();
        controller.sends();
        controller.closed(0, "the connection was reset", now).unwrap();
        let dial = Send::Dial { peer: "10.0.0.0:9".into(), session: Some(session(7, 0)) };
        assert_eq!(controller.sends(), [Send::Close(0), dial]);
        controller.tick(now + S, false).unwrap();
        assert!(!controller.is_over());
        if comes_back {
            controller.joined(1, "10.0.0.0:9".into(), Some(session(7, 0)), now + S);
            assert!(matches!(sent(&controller.sends(), 1)[..], [Kind::Ack(ack)] if ack.next == 2));
            controller.frame(1, Kind::Bye(Bye {}).into(), now + S).unwrap();
        } else {
            (2..=12).for_each(|second| controller.tick(now + second * S, false).unwrap());
            let said = controller.said().join("\n");
            assert!(said.contains("may not know that it was taken in"), "{said}");
        }
        assert!(controller.is_over(), "{comes_back}");
        let outcome = controller.finish().unwrap();
        assert!(outcome.faults.is_empty() && !outcome.is_cut_short, "{:?}", outcome.faults);
        assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    }
}

/// Before the start nothing is lost with a link: whoever has dialled dials again, and the agent begins anew with the number that it had.
#[test]
fn a_link_that_is_lost_before_the_start_is_made_again() {
    let scenario = scenario();
    let ready = || Frame::from(Kind::Ready(Ready { threads: 1, tls: None }));
    for dials in [true, false] {
        let mut controller = controller(&scenario, 2);
        if !dials {
            controller.orders.dialled.clear();
        }
        for link in 0..2 {
            controller.joined(link, format!("10.0.0.{link}:9"), None, S);
            controller.frame(link, hello("1.0", None), S).unwrap();
        }
        // The other one is measured by then.
        controller.frame(0, ready(), S).unwrap();
        controller.sends();
        controller.closed(1, "the connection was reset", S).unwrap();
        let dial = Send::Dial { peer: "10.0.0.1:9".into(), session: None };
        let sends = controller.sends();
        assert_eq!((sends.contains(&Send::Close(1)), sends.contains(&dial)), (true, dials), "{sends:?}");
        // It may not have noticed yet, and take this side for somebody else.
        controller.joined(7, "10.0.0.1:9".into(), None, 2 * S);
        let reason = "it has another controller".to_owned();
        controller.frame(7, Kind::Refuse(Reason { reason }).into(), 2 * S).unwrap();
        controller.sends();
        controller.joined(8, "10.0.0.1:9".into(), None, 3 * S);
        controller.frame(8, hello("1.0", None), 3 * S).unwrap();
        let sends = controller.sends();
        assert!(matches!(sent(&sends, 8)[..], [Kind::Prepare(prepare)] if prepare.index == 1), "{sends:?}");
        assert!(!sent(&sends, 0).iter().any(|kind| matches!(kind, Kind::Prepare(_))), "{sends:?}");
        controller.frame(8, ready(), 3 * S).unwrap();
        assert!(matches!(sent(&controller.sends(), 8)[..], [Kind::Ping(_)]));
        // One that does not come back ends the wait, and so does one that is lost again and again.
        controller.closed(8, "the connection was reset", 4 * S).unwrap();
        let mut now = 4 * S;
        let missing = loop {
            now += S;
            controller.frame(0, Kind::Pong(Pong { sent: now, received: now }).into(), now).unwrap();
            if let Err(error) = controller.tick(now, false) {
                break error.to_string();
            }
        };
        assert!(missing.contains("not made again in 20.0 s (the connection was reset)"), "{missing}");
    }
}

#[test]
fn a_link_that_is_lost_again_and_again_before_the_start_ends_the_wait() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 2);
    let error = (0..20).find_map(|link| {
        controller.joined(link, "10.0.0.1:9".into(), None, S);
        controller.frame(link, hello("1.0", None), S).unwrap();
        controller.closed(link, "the connection was reset", S).err()
    });
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("its link was lost 6 times before the start"), "{error}");
}

#[test]
fn figures_of_an_agents_machine_are_numbered_with_its_seconds() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 1);
    let (_, now) = begun(&mut controller, 1);
    let figures = |sequence, at: u64, idle: f64| {
        let names = ["tasks.running", "cpu.0.idle_share", "cpu.1.idle_share", "tcp.retransmits"];
        let names = names.map(str::to_owned).to_vec();
        let figures = Figures { sequence, at: at * S, names, values: vec![4.0 * idle, idle, 1.0, 2.0] };
        Frame::from(Kind::Figures(figures))
    };
    controller.frame(0, figures(0, 1, 0.5), now).unwrap();
    controller.frame(0, second(1, 0), now).unwrap();
    controller.frame(0, figures(2, 3, 0.0), now).unwrap();
    let watched = controller.watched();
    let seen: Vec<(&str, f64, f64)> =
        watched.iter().map(|told| (told.system.as_str(), told.at, told.figures[1].1)).collect();
    assert_eq!(seen, [("agent-1-east", 1.0, 0.5), ("agent-1-east", 3.0, 0.0)]);
    controller.frame(0, ended(3), now).unwrap();
    controller.frame(0, Kind::Totals(Totals { frames: 4, ..Totals::default() }).into(), now).unwrap();
    let outcome = controller.finish().unwrap();
    let host = outcome.agents[0].host.unwrap();
    assert_eq!((host.busy, host.run_queue, host.retransmits), (0.375, 2, 6));
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    let line = outcome.agents[0].to_string();
    assert!(line.contains("processors 38 % busy, run queue 2, 6 segments sent again"), "{line}");
}

#[test]
fn who_goes_again_without_a_word_is_dialled_again_for_a_while() {
    let scenario = scenario();
    for dials in [true, false] {
        let mut controller = controller(&scenario, 1);
        controller.orders.dialled.truncate(if dials { 2 } else { 0 });
        controller.joined(1, "10.0.0.1:9".into(), None, 0);
        controller.closed(1, "the connection was closed", S).unwrap();
        let dial = Send::Dial { peer: "10.0.0.1:9".into(), session: None };
        assert_eq!(controller.sends().contains(&dial), dials);
        // Who dials us may be a port scan: others may still come.
        assert_eq!(controller.members.is_empty(), !dials);
        if dials {
            controller.joined(2, "10.0.0.1:9".into(), None, 20 * S);
            controller.closed(2, "the connection was closed", 20 * S).unwrap();
            let error = controller.tick(22 * S, false).unwrap_err().to_string();
            let part = "agent at 10.0.0.1:9: its link was lost before the start and not made again in 20.0 s";
            assert!(error.contains(part), "{error}");
        }
    }
}

/// A second of a worker with times of its own.
fn made_up(random: &mut Random, number: u32) -> SecondOfWorker {
    let mut pairs = || {
        let mut times = crate::record::Times::default();
        (0..random.below(20)).for_each(|_| times.record(random.below(2_000_000_000) as u64));
        times.take()
    };
    let (response, lateness, of_a) = (pairs(), pairs(), pairs());
    let ended = of_a.iter().map(|(_, count)| count).sum();
    let tally =
        crate::scenario::record::Tally { ended, succeeded: ended, response: of_a, ..Default::default() };
    SecondOfWorker {
        operations: vec![tally, Default::default()],
        requests: crate::record::Sample {
            interval: number,
            length: S,
            response,
            lateness,
            ..Default::default()
        },
        ..SecondOfWorker::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whenever links are cut, and whatever is on its way then: the record is that of a link that was never cut, bucket by bucket.
    #[test]
    fn a_link_that_is_cut_changes_nothing(seed in any::<u64>()) {
        let scenario = scenario();
        let mut random = Random::new(seed, 1);
        let mut whole = Gathering::new(&scenario, 1, 0.0, observe_nothing);
        let mut controller = controller(&scenario, 1);
        let (_, now) = begun(&mut controller, 1);
        let (mut outbox, mut totals) = (Outbox::default(), Totals::default());
        // What is on its way, to the controller and to the agent.
        let (mut there, mut back) = (std::collections::VecDeque::new(), std::collections::VecDeque::new());
        let (mut link, mut is_open, mut told) = (0, true, 0);
        for step in 0.. {
            prop_assert!(step < 10_000, "it does not end");
            match random.below(8) {
                0 if told < 5 => {
                    let second = made_up(&mut random, told);
                    outbox.push(Kind::Delta(Box::new(record::delta(totals.frames, &second))).into()).unwrap();
                    totals.add(&second).unwrap();
                    whole.take(Message::Second(Box::new(second)));
                    told += 1;
                }
                0 if told == 5 => {
                    outbox.push(ended(totals.frames)).unwrap();
                    totals.frames += 1;
                    outbox.push(Kind::Totals(totals).into()).unwrap();
                    told += 1;
                }
                1 | 2 => {
                    let most = random.below(3);
                    let mut count = 0;
                    outbox.flush(|frame| {
                        let has_room = is_open && count < most;
                        count += 1;
                        if has_room {
                            there.push_back(frame);
                        }
                        has_room
                    });
                }
                3 | 4 => {
                    if let Some(frame) = there.pop_front() {
                        controller.frame(link, frame, now).unwrap();
                    }
                }
                5 | 6 => match back.pop_front() {
                    Some(next) if is_open => outbox.acknowledge(next),
                    Some(next) => {
                        outbox.resume(next).unwrap();
                        is_open = true;
                    }
                    None => {}
                },
                _ if random.below(2) == 0 => {
                    there.clear();
                    back.clear();
                    // Either side may notice first.
                    if random.below(2) == 0 {
                        controller.closed(link, "cut", now).unwrap();
                    }
                    controller.sends();
                    link += 1;
                    is_open = false;
                    controller.joined(link, "10.0.0.0:9".into(), Some(session(7, 0)), now);
                }
                _ => {}
            }
            for send in controller.sends() {
                match send {
                    Send::Frame(to, Frame { kind: Some(Kind::Ack(ack)) }) if to == link => {
                        back.push_back(ack.next);
                    }
                    _ => {}
                }
            }
            if told == 6 && outbox.is_empty() {
                break;
            }
        }
        controller.frame(link, Kind::Bye(Bye {}).into(), now).unwrap();
        prop_assert!(controller.is_over());
        let outcome = controller.finish().unwrap();
        prop_assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
        prop_assert_eq!(format!("{:?}", outcome.seconds), format!("{:?}", whole.finish(&scenario, false, false).seconds));
    }
}

#[test]
fn a_controller_that_stood_still_does_not_blame_the_agents() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 1);
    let (_, now) = begun(&mut controller, 1);
    // Nothing was taken in meanwhile.
    controller.tick(now + 5 * S, false).unwrap();
    assert!(controller.said().iter().all(|said| !said.contains("silent")));
    assert!(matches!(controller.sends()[..], [Send::Frame(0, _)]), "a ping");
    // From then on silence counts.
    for second in 6..16 {
        controller.tick(now + second * S, false).unwrap();
    }
    let outcome = controller.finish().unwrap();
    assert!(outcome.faults[0].contains("silent for 10.0 s"), "{:?}", outcome.faults);
}

/// Who dials and says nothing has no place: agents that come later have them, and it is sent away.
#[test]
fn who_says_nothing_takes_no_place() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 1);
    controller.orders.dialled.clear();
    for link in 1..5 {
        controller.joined(link, format!("10.0.0.9:{link}"), None, 0);
    }
    controller.frame(2, Kind::Pong(Pong { sent: 0, received: 0 }).into(), S).unwrap();
    assert!(controller.sends().contains(&Send::Close(2)), "it should have said who it is");
    controller.closed(3, "the connection was closed", S).unwrap();
    controller.joined(7, "10.0.0.1:9".into(), None, S);
    controller.frame(7, hello("1.0", None), S).unwrap();
    assert!(matches!(sent(&controller.sends(), 7)[..], [Kind::Prepare(_)]));
    controller.frame(4, hello("1.0", None), S).unwrap();
    let sends = controller.sends();
    assert!(
        matches!(sent(&sends, 4)[..], [Kind::Refuse(told)] if told.reason.contains("has all of its agents (1)"))
    );
    for second in 2..13 {
        controller.frame(7, Kind::Pong(Pong { sent: 0, received: 0 }).into(), second * S).unwrap();
        controller.tick(second * S, false).unwrap();
    }
    let sends = controller.sends();
    assert!(
        matches!(sent(&sends, 1)[..], [Kind::Refuse(told)] if told.reason.contains("not said who it is in 10.0 s"))
    );
    assert!(controller.newcomers.is_empty());
}

/// One that was stopped by then is not told to prepare, which it may take long for: it is away after ten seconds, and another may come.
#[test]
fn an_agent_that_stands_still_before_the_start_is_replaced() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 2);
    controller.orders.dialled.clear();
    let pong = || Frame::from(Kind::Pong(Pong { sent: 0, received: 0 }));
    controller.joined(0, "10.0.0.0:9".into(), None, 0);
    controller.frame(0, hello("1.0", Some(1)), 0).unwrap();
    controller.joined(1, "10.0.0.1:9".into(), None, S);
    controller.frame(1, hello("1.0", None), S).unwrap();
    let sends = controller.sends();
    assert!(matches!(sent(&sends, 0)[..], [Kind::Ping(_)]) && sent(&sends, 1).is_empty(), "{sends:?}");
    for second in 2..14 {
        controller.frame(1, pong(), second * S).unwrap();
        controller.tick(second * S, false).unwrap();
    }
    assert!(controller.sends().contains(&Send::Close(0)));
    controller.joined(2, "10.0.0.2:9".into(), None, 14 * S);
    controller.frame(2, hello("1.0", None), 14 * S).unwrap();
    controller.frame(1, pong(), 14 * S).unwrap();
    let sends = controller.sends();
    let index = |link| {
        sent(&sends, link).into_iter().find_map(|kind| match kind {
            Kind::Prepare(prepare) => Some(prepare.index),
            _ => None,
        })
    };
    assert_eq!((index(1), index(2)), (Some(0), Some(1)), "{sends:?}");
}

/// Of several that are away each takes its own place again.
#[test]
fn who_comes_back_with_a_number_has_the_place_of_that_number() {
    let scenario = scenario();
    let mut controller = controller(&scenario, 2);
    controller.orders.dialled.clear();
    for link in 0..2 {
        controller.joined(link, format!("10.0.0.{link}:9"), None, S);
        controller.frame(link, hello("1.0", Some(link as u32)), S).unwrap();
    }
    (0..2).for_each(|link| controller.closed(link, "the connection was reset", S).unwrap());
    controller.sends();
    for (link, index) in [(3, 1), (4, 0)] {
        controller.joined(link, format!("10.0.0.9:{link}"), None, S);
        controller.frame(link, hello("1.0", Some(index)), S).unwrap();
    }
    let sends = controller.sends();
    for (link, index) in [(3, 1), (4, 0)] {
        assert!(
            matches!(sent(&sends, link)[..], [Kind::Prepare(prepare)] if prepare.index == index),
            "{sends:?}"
        );
    }
}
