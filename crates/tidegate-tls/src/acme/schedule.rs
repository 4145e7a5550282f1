//! When to get and to renew which certificate: plain values in, what is due out. It reads no clock and does
//! nothing, so that years of it are a test of milliseconds.
//!
//! A certificate is renewed at a random moment of the window that its authority suggests (RFC 9773), or when a
//! third of its life is left where the authority suggests nothing. A failure is tried again after a pause that
//! grows to six hours and is never the same on two nodes.

use std::collections::BTreeMap;

/// Pauses after failures in a row, seconds; the last one repeats.
const PAUSES: [i64; 14] = [60, 120, 120, 300, 600, 600, 1200, 1200, 1800, 1800, 3600, 3600, 10_800, 21_600];
/// How often an authority is asked for its window unless it says otherwise, seconds.
const ASK_EVERY: i64 = 6 * 3600;
/// The bounds of what it may say.
const ASK_BOUNDS: (i64, i64) = (60, 24 * 3600);

/// A certificate that has just been got is not renewed before so many seconds, whatever its authority suggests: its clock or
/// ours may be wrong, and it wants to be left alone. Shorter for those that live short.
const FLOOR: (i64, i64) = (60, 3600);

/// When an authority wants a certificate to be renewed, seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// From.
    pub start: i64,
    /// Until.
    pub end: i64,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Get a certificate for the name, the first or the next.
    Obtain(String),
    /// Ask for the window of the present one.
    AskWindow(String),
}

impl Task {
    /// The name it is about.
    pub fn name(&self) -> &str {
        match self {
            Task::Obtain(name) | Task::AskWindow(name) => name,
        }
    }
}

/// What is to be done for each name, and when. All times are seconds since 1970; `chance` is from 0 to 1.
#[derive(Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<String, ScheduleEntry>,
}

#[derive(Debug, Clone, Copy)]
struct ScheduleEntry {
    obtain_at: i64,
    /// `None`: there is no certificate, or its authority knows no windows.
    ask_at: Option<i64>,
    failures: usize,
    /// Being worked on.
    is_busy: bool,
    /// Not renewed before.
    floor: i64,
    not_after: Option<i64>,
}

impl Schedule {
    /// Takes up the names that are wanted; those that are wanted no more are forgotten.
    pub fn set_names(&mut self, names: &[String], now: i64) {
        self.entries.retain(|name, _| names.contains(name));
        for name in names {
            let new = ScheduleEntry {
                obtain_at: now,
                ask_at: None,
                failures: 0,
                is_busy: false,
                floor: now,
                not_after: None,
            };
            self.entries.entry(name.clone()).or_insert(new);
        }
    }

    /// Nothing is being worked on any more.
    pub fn release(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.is_busy = false);
    }

    /// A certificate for the name lay in the storage, good for this time.
    pub fn found(&mut self, name: &str, not_before: i64, not_after: i64, now: i64, chance: f64) {
        self.has(name, not_before, not_after, now, now, chance);
    }

    /// A certificate for the name was got, good for this time.
    pub fn obtained(&mut self, name: &str, not_before: i64, not_after: i64, now: i64, chance: f64) {
        let life = not_after.saturating_sub(not_before).max(0);
        let floor = now.saturating_add((life / 3).clamp(FLOOR.0, FLOOR.1));
        self.has(name, not_before, not_after, now, floor, chance);
    }

    fn has(&mut self, name: &str, not_before: i64, not_after: i64, now: i64, floor: i64, chance: f64) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let life = not_after.saturating_sub(not_before).max(0);
        // Between two thirds of its life and a fiftieth later.
        let at = due_at(not_before, not_after).saturating_add(part(life / 50, chance));
        *entry = ScheduleEntry {
            obtain_at: at.max(floor),
            ask_at: Some(now),
            failures: 0,
            is_busy: false,
            floor,
            not_after: Some(not_after),
        };
    }

    /// The authority has told, or has nothing to tell (`None`), about the certificate. `again` is after how many
    /// seconds it wants to be asked again.
    pub fn told(&mut self, name: &str, window: Option<Window>, again: Option<i64>, now: i64, chance: f64) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.is_busy = false;
        let pause = again.unwrap_or(ASK_EVERY).clamp(ASK_BOUNDS.0, ASK_BOUNDS.1);
        entry.ask_at = Some(now.saturating_add(pause).saturating_add(part(pause / 10, chance)));
        if let Some(window) = window
            && entry.failures == 0
        {
            let width = window.end.saturating_sub(window.start).max(0);
            entry.obtain_at = window.start.saturating_add(part(width, chance)).max(now).max(entry.floor);
        }
    }

    /// Getting one has failed; when it is tried again. `again` is after how many seconds the authority wants to
    /// hear of it at the earliest.
    pub fn failed(&mut self, name: &str, again: Option<i64>, now: i64, chance: f64) -> i64 {
        let Some(entry) = self.entries.get_mut(name) else { return now };
        let pause = PAUSES.get(entry.failures).copied().unwrap_or(PAUSES[PAUSES.len() - 1]);
        let pause = pause.max(again.unwrap_or(0).min(ASK_BOUNDS.1));
        entry.failures += 1;
        entry.is_busy = false;
        entry.obtain_at = now.saturating_add(pause).saturating_add(part(pause / 5, chance));
        entry.obtain_at
    }

    /// What is due, up to so many; it is being worked on from now on.
    pub fn take_due(&mut self, now: i64, most: usize) -> Vec<Task> {
        let mut due = Vec::new();
        for (name, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.is_busy) {
            if due.len() >= most {
                break;
            }
            if entry.obtain_at <= now {
                due.push(Task::Obtain(name.clone()));
            } else if entry.ask_at.is_some_and(|at| at <= now) {
                due.push(Task::AskWindow(name.clone()));
            } else {
                continue;
            }
            entry.is_busy = true;
        }
        due
    }

    /// When something is due next; `None`: nothing ever is.
    pub fn next(&self) -> Option<i64> {
        let idle = self.entries.values().filter(|entry| !entry.is_busy);
        idle.flat_map(|entry| [Some(entry.obtain_at), entry.ask_at]).flatten().min()
    }

    /// Whether the name has a certificate that is good now.
    pub fn is_good(&self, name: &str, now: i64) -> bool {
        self.entries.get(name).and_then(|entry| entry.not_after).is_some_and(|end| end > now)
    }
}

/// When a third of the life of a certificate is left.
pub(super) fn due_at(not_before: i64, not_after: i64) -> i64 {
    let life = not_after.saturating_sub(not_before).max(0);
    not_before.saturating_add(life / 3 * 2)
}

fn part(whole: i64, chance: f64) -> i64 {
    (whole as f64 * chance.clamp(0.0, 1.0)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: i64 = 86_400;

    fn with(names: &[&str]) -> Schedule {
        let mut schedule = Schedule::default();
        schedule.set_names(&names.iter().map(ToString::to_string).collect::<Vec<_>>(), 0);
        schedule
    }

    fn obtain(name: &str) -> Task {
        Task::Obtain(name.into())
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let mut schedule = with(&["a"]);
        assert_eq!(schedule.take_due(0, 9), [obtain("a")]);
        assert_eq!(schedule.take_due(0, 9), []); // once
        schedule.obtained("a", 0, 90 * DAY, 0, 0.5);
        assert_eq!(schedule.take_due(0, 9), [Task::AskWindow("a".into())]);
        schedule.told("a", None, None, 0, 0.0);
        assert_eq!(schedule.next(), Some(ASK_EVERY));
        assert_eq!(schedule.take_due(59 * DAY, 9), [Task::AskWindow("a".into())]);
        schedule.told("a", None, Some(i64::MAX), 59 * DAY, 0.0);
        assert_eq!(schedule.next(), Some(60 * DAY));
        schedule.told("a", None, Some(i64::MAX), 60 * DAY, 0.0);
        assert_eq!(schedule.take_due(60 * DAY + 90 * DAY / 100, 9), [obtain("a")]);
        assert!(schedule.is_good("a", 89 * DAY) && !schedule.is_good("a", 90 * DAY));
    }

    #[test]
    fn the_window_of_the_authority_decides() {
        let mut schedule = with(&["a"]);
        schedule.take_due(0, 9);
        schedule.obtained("a", 0, 90 * DAY, 0, 0.0);
        schedule.take_due(0, 9);
        schedule.told("a", Some(Window { start: 50 * DAY, end: 52 * DAY }), None, 0, 0.5);
        assert_eq!(schedule.take_due(51 * DAY - 1, 9), [Task::AskWindow("a".into())]);
        // It has to be revoked: at once.
        schedule.told("a", Some(Window { start: 10 * DAY, end: 11 * DAY }), None, 20 * DAY, 0.9);
        assert_eq!(schedule.take_due(20 * DAY, 9), [obtain("a")]);
    }

    /// A window that always lies in the past: the clock of the authority, or ours, is wrong.
    #[test]
    fn a_window_in_the_past_renews_once_an_hour_at_most() {
        for (life, least) in [(90 * DAY, 3600), (DAY / 4, 3600), (600, 200), (0, 60), (-5, 60)] {
            let (mut schedule, mut now, mut got) = (with(&["a"]), 1000 * DAY, Vec::new());
            schedule.take_due(now, 9);
            while got.len() < 10 {
                got.push(now);
                schedule.obtained("a", now, now + life, now, 0.0);
                while let Some(task) = schedule.take_due(now, 9).first() {
                    if *task == obtain("a") {
                        break;
                    }
                    schedule.told("a", Some(Window { start: 0, end: 1 }), None, now, 0.0);
                    now = schedule.next().unwrap().max(now);
                }
            }
            assert!(got.windows(2).all(|pair| pair[1] - pair[0] >= least), "{life}: {got:?}");
        }
    }

    /// What lay in the storage is no reason to wait.
    #[test]
    fn a_certificate_that_was_found_late_is_renewed_at_once() {
        let mut schedule = with(&["a"]);
        schedule.take_due(0, 9);
        schedule.found("a", 0, 90 * DAY, 80 * DAY, 0.0);
        assert_eq!(schedule.take_due(80 * DAY, 9), [obtain("a")]);
    }

    #[test]
    fn failures_wait_longer_and_longer_and_a_success_ends_that() {
        let mut schedule = with(&["a", "b"]);
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..16 {
            assert_eq!(schedule.take_due(now, 9).first(), Some(&obtain("a")));
            let at = schedule.failed("a", None, now, 0.0);
            pauses.push(at - now);
            now = at;
        }
        assert_eq!(pauses[..4], [60, 120, 120, 300]);
        assert_eq!(pauses[13..], [21_600, 21_600, 21_600]);
        schedule.take_due(now, 9);
        schedule.obtained("a", now, now + 90 * DAY, now, 0.0);
        assert_eq!(schedule.failed("a", Some(4000), now, 1.0) - now, 4800);
        assert_eq!(schedule.failed("nobody", None, 5, 0.0), 5);
    }

    #[test]
    fn names_come_and_go() {
        let mut schedule = with(&["a", "b"]);
        schedule.take_due(0, 9);
        schedule.obtained("a", 0, 90 * DAY, 0, 0.0);
        schedule.set_names(&["a".into(), "c".into()], 10);
        assert_eq!(schedule.take_due(10, 9), [Task::AskWindow("a".into()), obtain("c")]);
        assert!(!schedule.is_good("b", 10));
        schedule.set_names(&[], 10);
        assert_eq!(schedule.next(), None);
    }

    proptest! {
        #[test]
        fn no_answer_of_an_authority_breaks_it(
            steps in proptest::collection::vec((0..4u8, any::<i64>(), any::<i64>(), 0.0..1.0f64), 0..50)
        ) {
            let (mut schedule, mut now) = (with(&["a"]), 0i64);
            for (what, first, second, chance) in steps {
                match schedule.take_due(now, 9).first() {
                    Some(Task::Obtain(_)) if what < 2 => schedule.obtained("a", first, second, now, chance),
                    Some(Task::Obtain(_)) => drop(schedule.failed("a", Some(first), now, chance)),
                    Some(Task::AskWindow(_)) => {
                        let window = (what < 3).then_some(Window { start: first, end: second });
                        schedule.told("a", window, Some(first), now, chance);
                    }
                    None => now = now.saturating_add(first.unsigned_abs() as i64 % 1_000_000),
                }
                let next = schedule.next();
                prop_assert!(next.is_some());
            }
        }
    }
}
