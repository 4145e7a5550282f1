//! Why requests are refused while no process serves, and until when.

use super::*;

#[test]
fn a_start_without_room_is_tried_again_later_and_said_once() {
    let mut machine = Machine::new(rules(2, 4), 7, Duration::ZERO);
    let mut actions = Vec::new();
    let mut now = Duration::ZERO;
    machine.advance(now, &mut actions);
    machine.ready(0, now, &mut actions);
    for round in 0..9 {
        let tried = actions.drain(..).filter(|action| *action == Action::Start(1)).count();
        assert_eq!(tried, 1, "{round}");
        machine.postponed(1, "no room", now, &mut actions);
        assert_eq!(actions.contains(&Action::Say("no room".into())), round == 0, "{actions:?}");
        assert_eq!((machine.phase(), machine.restarts()), (PoolPhase::Up, 0));
        machine.advance(now + POSTPONED - SECOND, &mut actions);
        assert!(!actions.contains(&Action::Start(1)), "{actions:?}");
        now += POSTPONED;
        machine.advance(now, &mut actions);
    }
    assert_eq!(machine.last_failure(), Some("no room"));
}

/// Whoever asks is refused as long as there is no room, and nobody asks any more while it is idle.
#[test]
fn a_pool_without_room_serves_who_asks_once_there_is_some() {
    let mut world = World::new(rules(0, 1), Program::Good);
    world.has_room = false;
    for round in 0..3 {
        world.report(1, Duration::ZERO);
        assert_eq!((world.alive.len(), world.phase), (0, PoolPhase::Failing), "{round}");
        assert!(world.machine.retry_after(world.now).is_some());
        world.quiet();
        world.pass(59 * SECOND);
        assert_eq!(world.phase, PoolPhase::Failing, "it is tried while it was wanted lately");
        world.pass(11 * SECOND);
        assert_eq!((world.phase, world.machine.retry_after(world.now)), (PoolPhase::Idle, None), "{round}");
        assert_eq!(world.machine.next(), None);
    }
    assert_eq!((world.said.join(", "), world.machine.restarts()), ("no room, no room, no room".into(), 0));
    world.has_room = true;
    world.report(1, Duration::ZERO);
    assert_eq!((world.serving(), world.phase), (1, PoolPhase::Up));
}

#[test]
fn a_program_that_is_put_right_while_its_pool_is_idle_serves_who_asks_next() {
    let mut world = World::new(rules(0, 1), Program::Crashes);
    world.report(1, Duration::ZERO);
    assert_eq!((world.machine.restarts(), world.phase), (2, PoolPhase::Failing));
    world.quiet();
    world.pass(100 * SECOND);
    assert_eq!(world.phase, PoolPhase::Idle);
    // It is still broken: requests wait while it is tried, and no longer. Attempts are as rare as before.
    let before = world.machine.restarts();
    world.report(1, Duration::ZERO);
    assert_eq!((world.machine.restarts(), world.phase), (before + 1, PoolPhase::Failing));
    assert!(world.machine.retry_after(world.now) > Some(10 * SECOND));
    world.quiet();
    world.pass(100 * SECOND);
    world.program = Program::Good;
    world.report(1, Duration::ZERO);
    assert_eq!((world.alive.len(), world.phase), (1, PoolPhase::Starting), "requests wait for it");
    world.pass(PROOF);
    assert_eq!((world.serving(), world.phase), (1, PoolPhase::Up));
}

/// It has become idle between two attempts.
#[test]
fn who_asks_before_the_next_attempt_is_refused_until_then() {
    let mut world = World::new(Rules { idle: SECOND, ..rules(0, 1) }, Program::Crashes);
    world.report(1, Duration::ZERO);
    while world.machine.retry_after(world.now).is_none_or(|after| after < 10 * SECOND) {
        world.report(1, Duration::ZERO);
        world.pass(SECOND);
    }
    world.quiet();
    world.pass(3 * SECOND);
    assert_eq!(world.phase, PoolPhase::Idle);
    let starts = world.starts.len();
    world.report(1, Duration::ZERO);
    assert_eq!((world.starts.len(), world.phase), (starts, PoolPhase::Failing));
}

#[test]
fn want_of_room_for_a_further_process_does_not_count_when_the_last_one_ends() {
    let mut world = World::new(rules(1, 2), Program::Good);
    world.pass(5 * SECOND);
    world.has_room = false;
    world.pressed(1);
    assert_eq!((world.serving(), world.said.join(", ")), (1, "no room".into()));
    world.quiet();
    world.pass(100 * SECOND);
    (world.has_room, world.program) = (true, Program::Boots);
    world.kill(0);
    assert_eq!((world.alive.len(), world.phase), (1, PoolPhase::Starting), "requests wait for the next one");
}

#[test]
fn another_definition_is_tried_at_once_and_waited_for() {
    type Change = fn(&mut Machine, Rules, Duration, &mut Vec<Action>);
    for change in [Machine::replace as Change, Machine::restart] {
        for (has_room, program) in [(false, Program::Good), (true, Program::Crashes)] {
            let mut world = World::new(rules(0, 1), program);
            world.has_room = has_room;
            world.report(1, Duration::ZERO);
            assert_eq!(world.phase, PoolPhase::Failing);
            (world.has_room, world.program) = (true, Program::Boots);
            world.run(|machine, now, out| change(machine, rules(0, 1), now, out));
            assert_eq!((world.alive.len(), world.phase), (1, PoolPhase::Starting));
        }
    }
}
