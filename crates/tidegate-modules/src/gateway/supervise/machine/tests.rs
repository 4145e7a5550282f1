//! The machine on a virtual clock, with processes that are a line in a table.

use super::*;
use crate::gateway::places::Demand;

const SECOND: Duration = Duration::from_secs(1);
const START_TIMEOUT: Duration = Duration::from_secs(300);

fn rules(min: usize, max: usize) -> Rules {
    Rules {
        min,
        max,
        places: 1,
        idle: 60 * SECOND,
        grow_after: Duration::from_millis(100),
        requests: None,
        start_timeout: START_TIMEOUT,
        stop_timeout: 10 * SECOND,
        is_shared: false,
    }
}

/// What a started process does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Program {
    /// Serves, and ends when told to.
    Good,
    /// Ends right after its start.
    Crashes,
    /// Serves, and ends only when killed.
    Stubborn,
    /// Never takes requests.
    Boots,
}

/// Machine, clock and processes.
struct World {
    machine: Machine,
    now: Duration,
    program: Program,
    /// Whether the system has room for a process.
    has_room: bool,
    alive: BTreeMap<Slot, Program>,
    /// Requests under way and taken, for each process.
    usage: BTreeMap<Slot, (usize, u64)>,
    starts: Vec<(Duration, Slot)>,
    killed: Vec<Slot>,
    said: Vec<String>,
    /// What the workers have been told last: the number, who serves.
    told: (u64, Vec<Slot>),
    phase: PoolPhase,
    taken: u64,
}

impl World {
    fn new(rules: Rules, program: Program) -> World {
        let mut world = World {
            machine: Machine::new(rules, 7, Duration::ZERO),
            now: Duration::ZERO,
            program,
            has_room: true,
            alive: BTreeMap::new(),
            usage: BTreeMap::new(),
            starts: Vec::new(),
            killed: Vec::new(),
            said: Vec::new(),
            told: (0, Vec::new()),
            phase: PoolPhase::Starting,
            taken: 0,
        };
        world.run(|machine, now, out| machine.advance(now, out));
        world
    }

    fn run(&mut self, f: impl FnOnce(&mut Machine, Duration, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        f(&mut self.machine, self.now, &mut actions);
        let mut actions = std::collections::VecDeque::from(actions);
        let mut rounds = 0;
        while let Some(action) = actions.pop_front() {
            rounds += 1;
            assert!(rounds < 1000, "the machine goes round in circles");
            let mut more = Vec::new();
            match action {
                Action::Start(slot) if !self.has_room => {
                    self.machine.postponed(slot, "no room", self.now, &mut more);
                }
                Action::Start(slot) => {
                    assert!(!self.alive.contains_key(&slot), "slot {slot} is taken");
                    self.starts.push((self.now, slot));
                    self.usage.insert(slot, (0, 0));
                    self.alive.insert(slot, self.program);
                    if self.program != Program::Boots {
                        self.machine.ready(slot, self.now, &mut more);
                    }
                    if self.program == Program::Crashes {
                        self.alive.remove(&slot);
                        self.machine.exited(slot, "ended with status 3", false, self.now, &mut more);
                    }
                }
                Action::Terminate(slot) => {
                    if self.alive.get(&slot) == Some(&Program::Good) {
                        self.alive.remove(&slot);
                        self.machine.exited(slot, "ended with status 0", false, self.now, &mut more);
                    }
                }
                Action::Kill(slot) => {
                    self.alive.remove(&slot).expect("only the living are killed");
                    self.killed.push(slot);
                    self.machine.exited(slot, "was ended by signal 9", false, self.now, &mut more);
                }
                Action::Publish => {
                    self.told = (self.machine.sequence(), self.machine.serving().collect());
                    self.phase = self.machine.phase();
                }
                Action::Say(what) => self.said.push(what),
            }
            actions.extend(more);
        }
        assert_eq!(self.phase, self.machine.phase(), "the workers know how it is");
    }

    /// Lets time pass, and all that is due happen.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut rounds = 0;
        while let Some(due) = self.machine.next().filter(|due| *due <= end) {
            rounds += 1;
            assert!(rounds < 10_000, "the machine waits for what has passed");
            self.now = self.now.max(due);
            self.run(|machine, now, out| machine.advance(now, out));
        }
        self.now = end;
        self.run(|machine, now, out| machine.advance(now, out));
    }

    /// The workers report, knowing all that they were told.
    fn report(&mut self, waiting: usize, oldest_wait: Duration) {
        let in_use = self.usage.values().map(|(in_use, _)| in_use).sum();
        let demand = Demand {
            waiting,
            oldest_wait,
            longest_wait: Duration::ZERO,
            in_use,
            peak_in_use: in_use,
            requests: self.taken,
            ..Demand::default()
        };
        let usage: Vec<Usage> = self
            .usage
            .iter()
            .filter(|(slot, _)| self.alive.contains_key(slot))
            .map(|(slot, (in_use, requests))| Usage {
                slot: *slot,
                in_use: *in_use,
                requests: *requests,
                answered: requests - *in_use as u64,
                hung: 0,
            })
            .collect();
        let sequence = self.told.0;
        self.run(|machine, now, out| machine.demand(sequence, &demand, &usage, now, out));
    }

    /// All who serve are busy, and so many wait.
    fn pressed(&mut self, waiting: usize) {
        for slot in self.told.1.clone() {
            self.usage.insert(slot, (1, 1));
        }
        self.report(waiting, SECOND);
    }

    fn quiet(&mut self) {
        for (in_use, _) in self.usage.values_mut() {
            *in_use = 0;
        }
        self.report(0, Duration::ZERO);
    }

    fn kill(&mut self, slot: Slot) {
        self.alive.remove(&slot).expect("it lives");
        self.run(|machine, now, out| machine.exited(slot, "was ended by signal 9", false, now, out));
    }

    fn serving(&self) -> usize {
        self.told.1.len()
    }
}

#[test]
fn starts_the_least_number_and_serves() {
    let world = World::new(rules(2, 8), Program::Good);
    assert_eq!((world.alive.len(), world.serving()), (2, 2));
    assert_eq!(world.machine.phase(), PoolPhase::Up);
    // However many the settings want at once: the bucket is as large.
    assert_eq!(World::new(rules(40, 64), Program::Good).serving(), 40);
}

#[test]
fn starts_nothing_until_somebody_asks_where_none_is_wanted() {
    let mut world = World::new(rules(0, 8), Program::Good);
    assert_eq!((world.alive.len(), world.machine.phase()), (0, PoolPhase::Idle));
    assert_eq!(world.machine.retry_after(world.now), None);
    world.report(1, Duration::ZERO);
    assert_eq!((world.serving(), world.machine.phase()), (1, PoolPhase::Up));
    for _ in 0..70 {
        world.pass(SECOND);
        world.quiet();
    }
    assert_eq!((world.alive.len(), world.machine.phase()), (0, PoolPhase::Idle));
    assert_eq!(world.machine.restarts(), 0);
}

#[test]
fn grows_while_requests_wait_too_long_and_not_before() {
    let mut world = World::new(rules(1, 6), Program::Good);
    world.usage.insert(0, (1, 1));
    world.report(5, Duration::from_millis(99));
    assert_eq!(world.serving(), 1);
    let mut sizes = Vec::new();
    for _ in 0..4 {
        world.pressed(9);
        sizes.push(world.serving());
        world.pass(SECOND);
    }
    assert_eq!(sizes, [3, 6, 6, 6], "at most twice as many and one, and never more than the most");
}

#[test]
fn a_storm_of_starts_is_spread() {
    let mut world = World::new(rules(1, 100), Program::Good);
    for _ in 0..40 {
        world.pressed(200);
        world.pass(Duration::from_millis(50));
    }
    // 8 at once, then 8 a second.
    assert!(world.serving() <= 8 + 16 + 1, "{}", world.serving());
    assert!(world.serving() >= 20, "{}", world.serving());
}

#[test]
fn shrinks_after_idleness_one_by_one_and_only_down_to_the_least() {
    let mut world = World::new(rules(1, 4), Program::Good);
    for _ in 0..4 {
        world.pressed(9);
        world.pass(SECOND);
    }
    assert_eq!(world.serving(), 4);
    let mut last = 4;
    for second in 0..100 {
        world.pass(SECOND);
        world.quiet();
        assert!(world.serving() == last || world.serving() + 1 == last);
        last = world.serving();
        assert!(second >= 59 || last == 4, "{second}");
    }
    assert_eq!((world.serving(), world.alive.len(), world.machine.restarts()), (1, 1, 0));
}

/// Workers that want nothing say so once.
#[test]
fn shrinks_without_a_further_word_from_the_workers() {
    let mut world = World::new(rules(1, 4), Program::Good);
    for _ in 0..4 {
        world.pressed(9);
        world.pass(SECOND);
    }
    world.quiet();
    world.pass(59 * SECOND);
    assert_eq!(world.serving(), 4);
    world.pass(40 * SECOND);
    assert_eq!(world.serving(), 1);
    // The update that says so is news to them.
    world.quiet();
    assert_eq!((world.alive.len(), world.machine.restarts()), (1, 0));
    assert_eq!(world.machine.next(), None, "nothing is left to be done");
}

#[test]
fn a_killed_process_is_replaced_at_once() {
    let mut world = World::new(rules(3, 3), Program::Good);
    for round in 0..20 {
        world.pass(Duration::from_millis(1500));
        let starts = world.starts.len();
        world.kill(round % 3);
        assert_eq!((world.serving(), world.starts.len()), (3, starts + 1));
        assert_eq!(world.machine.phase(), PoolPhase::Up);
    }
    assert_eq!(world.machine.restarts(), 20);
}

#[test]
fn a_crash_loop_is_slowed_down_and_told() {
    let mut world = World::new(rules(4, 8), Program::Crashes);
    assert_eq!(world.machine.phase(), PoolPhase::Failing);
    let retry_after = world.machine.retry_after(world.now).expect("it is down");
    assert!(retry_after >= SECOND, "{retry_after:?}");
    world.pass(300 * SECOND);
    let starts: Vec<Duration> = world.starts.iter().map(|(at, _)| *at).collect();
    assert!(starts.len() < 30, "{} starts in five minutes", starts.len());
    let pauses: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().rev().take(5).all(|pause| *pause >= 15 * SECOND), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= 30 * SECOND), "{pauses:?}");
    assert_eq!(world.machine.last_failure(), Some("ended with status 3"));
    // It is put right: one proves it, then the others follow.
    world.program = Program::Good;
    world.pass(31 * SECOND);
    assert_eq!((world.serving(), world.machine.phase()), (4, PoolPhase::Up));
    assert_eq!(world.machine.retry_after(world.now), None);
}

/// A program that fails while it boots, which may take long.
#[test]
fn who_ends_before_it_has_taken_what_waits_has_failed_however_long_it_lived() {
    let mut world = World::new(rules(1, 1), Program::Good);
    let end = |world: &mut World, is_awaited| {
        world.pass(3 * SECOND);
        world.alive.remove(&0).expect("it lives");
        world.run(|machine, now, out| machine.exited(0, "ended with status 1", is_awaited, now, out));
    };
    end(&mut world, true);
    assert_eq!((world.machine.phase(), world.serving()), (PoolPhase::Up, 1), "the next one may do better");
    end(&mut world, true);
    assert_eq!((world.machine.phase(), world.serving()), (PoolPhase::Failing, 0));
    // The next one lives for a second, and gets requests again; once it has failed as well, the pause is longer.
    end(&mut world, true);
    assert_eq!(world.machine.phase(), PoolPhase::Failing);
    assert!(world.said.last().is_some_and(|said| said.contains("3 times in a row")), "{:?}", world.said);
    world.pass(2 * SECOND);
    assert_eq!(world.serving(), 1);
    // One that nobody has waited for, or that has answered, has not failed: it is replaced at once.
    for answers in [false, true] {
        world.usage.insert(0, (1, 1));
        world.report(0, Duration::ZERO);
        if answers {
            world.usage.insert(0, (1, 2));
            world.report(0, Duration::ZERO);
        }
        end(&mut world, answers);
        assert_eq!((world.machine.phase(), world.serving()), (PoolPhase::Up, 1), "{answers}");
    }
}

/// As an application without its database does.
#[test]
fn a_definition_that_fails_late_leaves_the_old_processes_serving() {
    // Of a shared socket it is not known whether a process accepts anything.
    for (is_shared, program) in [(false, Program::Boots), (true, Program::Good)] {
        let mut world = World::new(Rules { is_shared, ..rules(2, 2) }, Program::Good);
        world.pass(5 * SECOND);
        let old = world.told.1.clone();
        world.program = program;
        world.run(|machine, now, out| machine.replace(Rules { is_shared, ..rules(2, 2) }, now, out));
        for _ in 0..9 {
            assert_eq!(world.machine.must_accept(), !is_shared);
            world.pass(3 * SECOND);
            let new: Vec<Slot> = world.alive.keys().copied().filter(|slot| !old.contains(slot)).collect();
            for slot in new {
                world.alive.remove(&slot).expect("it lives");
                world.run(|machine, now, out| machine.exited(slot, "ended with status 1", false, now, out));
            }
            assert!(old.iter().all(|slot| world.told.1.contains(slot)), "{:?}", world.told);
            assert_eq!(world.machine.phase(), PoolPhase::Up);
        }
        assert!(
            world.starts.len() < 2 + 9,
            "attempts come at longer and longer intervals: {:?}",
            world.starts
        );
        let said = world.said.last().expect("it is said");
        assert!(said.contains("times in a row; those before it go on serving; next attempt"), "{said}");
        world.program = Program::Good;
        world.pass(60 * SECOND);
        world.report(0, Duration::ZERO);
        assert_eq!((world.serving(), world.alive.len()), (2, 2));
        assert!(world.starts[world.starts.len() - 2..].iter().all(|(_, slot)| world.told.1.contains(slot)));
        assert!(!world.machine.must_accept());
    }
}

/// One that fails with its first request: after failures it gets requests later, and is on trial from then on.
#[test]
fn a_definition_is_on_trial_for_as_long_after_failures() {
    let mut world = World::new(rules(1, 1), Program::Good);
    world.pass(5 * SECOND);
    world.run(|machine, now, out| machine.replace(rules(1, 1), now, out));
    for _ in 0..4 {
        assert_eq!(world.told.1, [0, 1]);
        world.pass(SECOND / 2);
        world.alive.remove(&1).expect("it lives");
        world.run(|machine, now, out| machine.exited(1, "ended with status 1", false, now, out));
        while !world.told.1.contains(&1) {
            let due = world.machine.next().expect("it tries again");
            world.pass(due.saturating_sub(world.now));
        }
    }
    world.pass(SECOND);
    assert_eq!(world.told.1, [1]);
}

/// Others serve meanwhile, and the program is not blamed.
/// Requests may wait in the backlog of one that was to get no further ones.
#[test]
fn the_workers_are_told_of_each_end() {
    let mut world = World::new(rules(2, 2), Program::Good);
    world.pass(5 * SECOND);
    world.usage.insert(0, (1, 1));
    world.run(|machine, now, out| machine.restart(rules(2, 2), now, out));
    let told = world.told.0;
    world.kill(0);
    assert!(world.told.0 > told);
}

#[test]
fn after_failures_nobody_is_sent_to_a_process_before_it_has_lived_a_while() {
    let mut world = World::new(rules(1, 1), Program::Crashes);
    world.program = Program::Good;
    let due = world.machine.next().expect("it tries again");
    world.pass(due - world.now);
    assert_eq!((world.alive.len(), world.serving(), world.machine.phase()), (1, 0, PoolPhase::Failing));
    world.pass(PROOF);
    assert_eq!((world.serving(), world.machine.phase()), (1, PoolPhase::Up));
}

#[test]
fn a_process_is_retired_after_its_requests_when_another_serves() {
    let mut world = World::new(Rules { requests: Some(100), ..rules(2, 2) }, Program::Good);
    world.pass(5 * SECOND);
    world.usage.insert(0, (1, 100));
    world.report(0, Duration::ZERO);
    // The third serves, the first gets nothing more and ends what it has.
    assert_eq!((world.alive.len(), world.told.1.clone()), (3, vec![1, 2]));
    world.pass(SECOND);
    world.report(0, Duration::ZERO);
    assert_eq!(world.alive.len(), 3);
    world.usage.insert(0, (0, 100));
    world.report(0, Duration::ZERO);
    assert_eq!((world.alive.len(), world.serving(), world.machine.restarts()), (2, 2, 0));
}

#[test]
fn a_report_from_before_the_update_drains_nobody() {
    let mut world = World::new(Rules { requests: Some(100), ..rules(1, 1) }, Program::Good);
    world.pass(5 * SECOND);
    world.usage.insert(0, (0, 100));
    let before = world.told.0;
    world.report(0, Duration::ZERO);
    assert_eq!((world.alive.len(), world.told.1.clone()), (2, vec![1]));
    // A worker that has not heard yet may still take the old one a request.
    let demand = Demand::default();
    world.run(|machine, now, out| machine.demand(before, &demand, &[], now, out));
    assert_eq!(world.alive.len(), 2);
    let told = world.told.0;
    world.run(|machine, now, out| machine.demand(told, &demand, &[], now, out));
    assert_eq!(world.alive.len(), 1);
}

#[test]
fn a_changed_definition_replaces_one_by_one() {
    let mut world = World::new(rules(3, 3), Program::Good);
    world.pass(5 * SECOND);
    let old: Vec<Slot> = world.alive.keys().copied().collect();
    for slot in &old {
        world.usage.insert(*slot, (1, 5));
    }
    world.run(|machine, now, out| machine.replace(rules(3, 3), now, out));
    for _ in 0..100 {
        assert!(world.serving() >= 3, "{} serve", world.serving());
        assert!(world.serving() <= 4 && world.alive.len() <= 6);
        // Those that drain end a request in each round.
        for slot in &old {
            if !world.told.1.contains(slot) {
                world.usage.insert(*slot, (0, 5));
            }
        }
        world.report(0, Duration::ZERO);
        world.pass(Duration::from_millis(100));
    }
    assert_eq!((world.serving(), world.alive.len(), world.machine.restarts()), (3, 3, 0));
    let starts: Vec<Slot> = world.starts.iter().map(|(_, slot)| *slot).collect();
    assert_eq!(starts.len(), 6);
}

#[test]
fn a_definition_that_does_not_work_leaves_the_old_processes_serving() {
    let mut world = World::new(rules(2, 4), Program::Good);
    world.pass(5 * SECOND);
    world.program = Program::Crashes;
    world.run(|machine, now, out| machine.replace(rules(2, 4), now, out));
    world.pass(120 * SECOND);
    assert_eq!((world.serving(), world.machine.phase()), (2, PoolPhase::Up));
    assert_eq!(world.machine.retry_after(world.now), None);
    assert!(world.starts.len() < 20, "{}", world.starts.len());
    world.program = Program::Good;
    world.pass(40 * SECOND);
    for _ in 0..10 {
        world.quiet();
        world.pass(SECOND);
    }
    assert_eq!((world.serving(), world.alive.len()), (2, 2));
}

/// The old ones have rights that the settings have taken away.
#[test]
fn a_changed_user_leaves_no_old_process_serving_even_where_the_new_ones_do_not_work() {
    for program in [Program::Good, Program::Crashes] {
        let mut world = World::new(rules(2, 4), Program::Good);
        world.pass(5 * SECOND);
        let old: Vec<Slot> = world.alive.keys().copied().collect();
        world.usage.insert(old[0], (1, 5)); // one has a request under way
        world.program = program;
        world.run(|machine, now, out| machine.restart(rules(2, 4), now, out));
        assert!(!world.told.1.iter().any(|slot| old.contains(slot)), "{:?}", world.told);
        world.report(0, Duration::ZERO);
        assert!(world.alive.contains_key(&old[0]), "its request is ended first");
        assert!(!world.alive.contains_key(&old[1]), "the idle one has gone");
        world.usage.insert(old[0], (0, 5));
        world.report(0, Duration::ZERO);
        assert!(!world.alive.contains_key(&old[0]));
        world.pass(10 * SECOND);
        let expected = if program == Program::Good { 2 } else { 0 };
        assert_eq!(world.serving(), expected);
        assert!(!world.told.1.iter().any(|slot| old.contains(slot)));
    }
}

#[test]
fn a_hung_process_is_told_and_then_killed() {
    let mut world = World::new(rules(2, 2), Program::Stubborn);
    world.pass(5 * SECOND);
    let usage = [Usage { slot: 1, in_use: 0, requests: 9, answered: 8, hung: 1 }];
    let sequence = world.told.0;
    world.run(|machine, now, out| machine.demand(sequence, &Demand::default(), &usage, now, out));
    // Another serves in its place long before it has gone. What others have in hand there may still be answered.
    assert_eq!((world.told.1.clone(), world.alive.len()), (vec![0, 2], 3));
    world.usage.insert(1, (1, 9));
    world.report(0, Duration::ZERO);
    world.pass(30 * SECOND);
    assert_eq!((world.told.1.clone(), world.alive.len(), world.killed.len()), (vec![0, 2], 3, 0));
    world.usage.insert(1, (0, 9));
    world.report(0, Duration::ZERO);
    world.pass(9 * SECOND);
    assert!(world.killed.is_empty());
    world.pass(2 * SECOND);
    assert_eq!((world.killed.clone(), world.alive.len()), (vec![1], 2));
}

/// Nobody knows which of them it was.
#[test]
fn of_processes_that_share_a_socket_none_is_ended_for_one_that_hangs() {
    let mut world = World::new(Rules { is_shared: true, ..rules(2, 2) }, Program::Good);
    world.pass(5 * SECOND);
    let usage = [Usage { slot: 0, in_use: 0, requests: 9, answered: 8, hung: 1 }];
    for _ in 0..3 {
        let sequence = world.told.0;
        world.run(|machine, now, out| machine.demand(sequence, &Demand::default(), &usage, now, out));
        world.pass(5 * SECOND);
    }
    assert_eq!((world.told.1.clone(), world.alive.len(), world.machine.restarts()), (vec![0, 1], 2, 0));
}

#[test]
fn requests_that_never_end_hold_up_the_end_only_so_long() {
    let mut world = World::new(rules(1, 1), Program::Stubborn);
    world.pass(5 * SECOND);
    world.usage.insert(0, (1, 1));
    world.report(0, Duration::ZERO);
    world.run(|machine, now, out| machine.stop(now, out));
    assert_eq!((world.serving(), world.machine.phase()), (0, PoolPhase::Stopping));
    world.pass(59 * SECOND);
    assert!(!world.machine.has_ended());
    world.pass(12 * SECOND);
    assert_eq!(world.killed, [0]);
    assert!(world.machine.has_ended());
}

#[test]
fn a_stop_is_heard_at_once_by_those_without_requests() {
    let mut world = World::new(rules(3, 3), Program::Good);
    world.run(|machine, now, out| machine.stop(now, out));
    world.quiet();
    assert!(world.machine.has_ended() && world.alive.is_empty());
    let mut world = World::new(rules(3, 3), Program::Good);
    world.usage.insert(0, (1, 1));
    world.run(|machine, now, out| machine.stop_now(now, out));
    assert!(world.machine.has_ended() && world.alive.is_empty());
}

#[test]
fn who_never_says_that_it_serves_is_given_up() {
    let mut machine = Machine::new(rules(1, 1), 7, Duration::ZERO);
    let mut actions = Vec::new();
    machine.advance(Duration::ZERO, &mut actions);
    assert!(actions.contains(&Action::Start(0)));
    assert_eq!(machine.unready().collect::<Vec<_>>(), [0]);
    assert_eq!(machine.next(), Some(START_TIMEOUT));
    actions.clear();
    machine.advance(START_TIMEOUT, &mut actions);
    assert!(actions.contains(&Action::Terminate(0)), "{actions:?}");
    assert!(actions.contains(&Action::Start(1)), "{actions:?}");
    assert_eq!(machine.last_failure(), Some("took no requests within 300s (`start-timeout`)"));
}

#[test]
fn another_definition_has_the_time_to_start_that_it_names() {
    let mut world = World::new(rules(1, 1), Program::Good);
    world.pass(5 * SECOND);
    world.program = Program::Boots;
    let start_timeout = 2 * START_TIMEOUT;
    world.run(|machine, now, out| machine.replace(Rules { start_timeout, ..rules(1, 1) }, now, out));
    world.pass(2 * START_TIMEOUT - SECOND);
    assert_eq!((world.starts.len(), world.told.1.clone()), (2, vec![0]));
    world.run(|machine, now, out| machine.ready(1, now, out));
    world.pass(PROOF);
    assert_eq!((world.told.1.clone(), world.machine.restarts()), (vec![1], 0));
}

/// How those before have fared is not held against a definition, and does not speak for it.
#[test]
fn processes_of_before_say_nothing_about_another_definition() {
    let mut world = World::new(rules(3, 3), Program::Good);
    world.pass(SECOND / 10);
    world.program = Program::Boots;
    world.run(|machine, now, out| machine.replace(rules(3, 3), now, out));
    for slot in 0..3 {
        world.alive.remove(&slot).expect("it lives");
        world.run(|machine, now, out| machine.exited(slot, "ended with status 1", true, now, out));
    }
    assert_eq!((world.alive.len(), world.phase), (3, PoolPhase::Starting), "{:?}", world.said);
    let mut world = World::new(rules(1, 1), Program::Good);
    world.pass(SECOND / 10);
    world.program = Program::Crashes;
    world.run(|machine, now, out| machine.replace(rules(1, 1), now, out));
    world.pass(10 * SECOND);
    let second = world.said.iter().filter(|said| said.contains(", 2 times in a row"));
    assert_eq!(second.count(), 1, "the pauses grow on: {:?}", world.said);
}

#[test]
fn who_gets_requests_of_our_own_first_has_time_for_them() {
    let rules = Rules { start_timeout: 2 * SECOND, ..rules(1, 1) };
    let mut machine = Machine::new(rules, 7, Duration::ZERO);
    let mut actions = Vec::new();
    machine.advance(Duration::ZERO, &mut actions);
    machine.opened(0, SECOND);
    let end = SECOND + WARM_UP_PATIENCE;
    actions.clear();
    machine.advance(end - SECOND, &mut actions);
    assert_eq!((actions, machine.next()), (Vec::new(), Some(end)));
    let mut actions = Vec::new();
    machine.advance(end, &mut actions);
    assert!(actions.contains(&Action::Terminate(0)), "{actions:?}");
    let said =
        |part: &str| actions.iter().any(|action| matches!(action, Action::Say(said) if said.contains(part)));
    assert!(said("was held up by `warm-up`") && !said("start-timeout"), "{actions:?}");
}

mod down;

mod properties {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Pass(u64),
        Pressed(usize),
        Quiet,
        Kill(usize),
        Turn(Program),
        Room(bool),
        Replace(usize, usize),
        Restart,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let program = prop_oneof![Just(Program::Good), Just(Program::Crashes), Just(Program::Stubborn)];
        let step = prop_oneof![
            (1..5000u64).prop_map(Step::Pass),
            (0..50usize).prop_map(Step::Pressed),
            Just(Step::Quiet),
            any::<usize>().prop_map(Step::Kill),
            program.prop_map(Step::Turn),
            any::<bool>().prop_map(Step::Room),
            (0..4usize, 1..8usize).prop_map(|(min, more)| Step::Replace(min, min + more)),
            Just(Step::Restart),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn whatever_happens_the_bounds_hold_and_it_recovers(steps in steps()) {
            let (mut min, mut max) = (1, 4);
            let mut world = World::new(rules(min, max), Program::Good);
            for step in steps {
                match step {
                    Step::Pass(time) => world.pass(Duration::from_millis(time)),
                    Step::Pressed(waiting) => world.pressed(waiting),
                    Step::Quiet => world.quiet(),
                    Step::Kill(which) if !world.alive.is_empty() => {
                        let slot = *world.alive.keys().nth(which % world.alive.len()).expect("in range");
                        world.kill(slot);
                    }
                    Step::Kill(_) => {}
                    Step::Turn(program) => world.program = program,
                    Step::Room(has_room) => world.has_room = has_room,
                    Step::Restart => {
                        let before = world.told.1.clone();
                        world.run(|machine, now, out| machine.restart(rules(min, max), now, out));
                        let slots: Vec<Slot> = before.into_iter().filter(|slot| world.told.1.contains(slot)).collect();
                        // A slot may have been taken anew by one that ended at once.
                        let is_new = |slot: &Slot| world.starts.contains(&(world.now, *slot));
                        prop_assert!(slots.iter().all(is_new));
                    }
                    Step::Replace(least, most) => {
                        (min, max) = (least, most);
                        world.run(|machine, now, out| machine.replace(rules(min, max), now, out));
                    }
                }
                // While it is replaced one more than the most of either definition may serve.
                prop_assert!(world.serving() <= 13);
                prop_assert!(world.told.1.iter().all(|slot| world.alive.contains_key(slot)));
            }
            (world.program, world.has_room) = (Program::Good, true);
            for _ in 0..40 {
                world.quiet();
                world.pass(5 * SECOND);
            }
            world.pass(75 * SECOND);
            world.quiet();
            prop_assert_eq!(world.serving(), min);
            prop_assert_eq!(world.alive.len(), min);
            prop_assert_eq!(world.phase, if min == 0 { PoolPhase::Idle } else { PoolPhase::Up });
            world.report(1, Duration::ZERO);
            prop_assert!(world.machine.retry_after(world.now).is_none(), "whoever asks now is waited for");
            world.pass(PROOF);
            prop_assert!(world.serving() > 0);
        }
    }
}
