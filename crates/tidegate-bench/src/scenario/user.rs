//! A user: where it is in the scenario, what it holds, its cookies and its cache. A few hundred bytes; the engine has all of
//! them in one vector and moves them on.

use super::clock::Clock;
use super::cookies::Cookies;
use super::data::{DataSet, Draw};
use super::engine::is_known;
use super::record::FailedOperation;
use super::{Load, Scenario, Step, USER};
use crate::random::Random;
use std::collections::VecDeque;
use std::rc::Rc;
use tidegate_io::Key;

/// Bytes that a variable holds at most.
const VALUE_SIZE: usize = 16 << 10;

/// A user of the scenario.
pub(super) struct User {
    /// From 0, among those of all workers.
    pub number: u32,
    pub random: Random,
    /// The operation that is under way, or comes next.
    pub operation: usize,
    /// Where a fixed sequence is.
    pub place: usize,
    /// The operation that comes next, where a script has chosen it.
    pub chosen: Option<u32>,
    /// The step that is under way.
    pub step: usize,
    /// When the operation was or is meant to start, monotonic nanoseconds.
    pub intended: u64,
    /// When it starts nothing any more.
    pub ends: u64,
    /// Operations until it goes; `None`: it stays until it ends.
    pub left: Option<u32>,
    /// When it started.
    pub began: u64,
    /// When the one before ended.
    pub free_since: u64,
    /// The operation before: its number, its start and the cycle time that was drawn for it, while it counts.
    pub before: Option<(usize, u64, u64)>,
    pub is_busy: bool,
    /// The operation under way has asked for something.
    pub has_asked: bool,
    /// It has started nothing and will not.
    pub is_gone: bool,
    /// Path and query of the page that is being loaded.
    pub path: String,
    pub redirects: u8,
    /// Requests under way.
    pub under_way: u32,
    /// Resources of the page still to be asked for.
    pub queue: VecDeque<u32>,
    /// Resources of the page that no place was left for among those that are known to all.
    pub passing: Vec<Rc<str>>,
    /// Why the operation under way has failed.
    pub failure: Option<Box<FailedOperation>>,
    pub connections: Vec<Key>,
    pub cookies: Cookies,
    pub cache: Cache,
    values: Box<[Option<Box<[u8]>>]>,
    rows: Box<[u32]>,
}

impl User {
    /// User `number`, whose first operation is due at the first time, and who starts nothing from the second on.
    pub fn new(scenario: &Scenario, number: u32, seed: u64, (begins, ends): (u64, u64)) -> User {
        let left = match &scenario.load {
            Load::Users(_) => None,
            Load::Visits(visits) => Some(visits.operations),
        };
        let mut random = Random::new(seed, u64::from(number) + 10_000);
        let (operation, place) = scenario.mix.first(&mut random);
        let mut values: Box<[Option<Box<[u8]>>]> = vec![None; scenario.variables.len()].into();
        if let Some(place) = scenario.variables.iter().position(|name| name == USER)
            && let Some(value) = values.get_mut(place)
        {
            *value = Some(number.to_string().into_bytes().into());
        }
        let first_row = |set: &DataSet, random: &mut Random| match set.draw {
            Draw::User => number % (set.rows.len().max(1) as u32),
            _ => random.below(set.rows.len().max(1)) as u32,
        };
        let rows = scenario.data.iter().map(|set| first_row(set, &mut random)).collect();
        let is_cold = random.unit() <= scenario.client.cold;
        User {
            number,
            random,
            operation,
            place,
            chosen: None,
            step: 0,
            intended: begins,
            ends,
            left,
            began: 0,
            free_since: begins,
            before: None,
            is_busy: false,
            has_asked: false,
            is_gone: false,
            path: String::new(),
            redirects: 0,
            under_way: 0,
            queue: VecDeque::new(),
            passing: Vec::new(),
            failure: None,
            connections: Vec::new(),
            cookies: Cookies::default(),
            cache: Cache { is_off: is_cold, held: Vec::new() },
            values,
            rows,
        }
    }

    /// Its operation has ended, at a time: draws the next one, and when it is due. Gives the time that was drawn, nanoseconds.
    pub fn draw_next(&mut self, scenario: &Scenario, ended: u64) -> u64 {
        let operation = self.operation;
        let least = scenario.operations.get(operation).map_or_else(Default::default, |known| known.min_cycle);
        let clock = scenario.clock_of(operation);
        let (next, drawn) = clock.next(self.intended, ended, least, &mut self.random);
        self.intended = next;
        match self.chosen.take() {
            Some(chosen) => self.operation = chosen as usize,
            None => {
                (self.operation, self.place) = scenario.mix.next(operation, self.place, &mut self.random);
            }
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        drawn
    }

    /// Passes over what was due before `now` and has not begun, and gives how many of it are measured. Where a cycle time is drawn
    /// each operation has its time, whatever the server does; a think time counts from the end of the one before, so that no more
    /// than one is due.
    pub fn pass_over(&mut self, scenario: &Scenario, now: u64, is_measured: impl Fn(u64) -> bool) -> u64 {
        let mut count = 0;
        while self.intended < now.min(self.ends) && self.left != Some(0) {
            let intended = self.intended;
            count += u64::from(is_measured(intended));
            let is_cycle = matches!(scenario.clock_of(self.operation), Clock::Cycle(_));
            self.draw_next(scenario, intended);
            if !is_cycle || self.intended == intended {
                break;
            }
        }
        count
    }

    /// The step that it is at.
    pub fn step_of<'s>(&self, scenario: &'s Scenario) -> Option<&'s Step> {
        scenario.operations.get(self.operation)?.steps.get(self.step)
    }

    /// Draws new rows for the next operation.
    pub fn draw_rows(&mut self, data: &[DataSet]) {
        for (row, set) in self.rows.iter_mut().zip(data) {
            let count = set.rows.len().max(1);
            match set.draw {
                Draw::Random => *row = self.random.below(count) as u32,
                Draw::Sequence => *row = (*row + 1) % count as u32,
                Draw::User => {}
            }
        }
    }

    /// What a variable holds: bytes as the server has sent them, which need be no UTF-8.
    pub fn value<'a>(&'a self, data: &'a [DataSet], variable: u16) -> Option<&'a [u8]> {
        let of_data = data.iter().zip(&self.rows).find_map(|(set, row)| set.value(variable, *row));
        of_data.map(str::as_bytes).or_else(|| self.values.get(usize::from(variable))?.as_deref())
    }

    /// The names and values of the variables that hold something.
    pub fn values<'a>(&'a self, scenario: &'a Scenario) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        (0..)
            .zip(&scenario.variables)
            .filter_map(|(variable, name)| Some((name.as_str(), self.value(&scenario.data, variable)?)))
    }

    /// Holds a value as it is.
    pub fn hold_whole(&mut self, variable: u16, value: String) {
        if let Some(place) = self.values.get_mut(usize::from(variable)) {
            *place = Some(value.into_bytes().into());
        }
    }

    /// Holds a value; what is longer than 16 KiB is cut, in front of a character of UTF-8.
    pub fn hold(&mut self, variable: u16, value: &[u8]) {
        let mut end = value.len().min(VALUE_SIZE);
        let is_inside = |end: usize| value.get(end).is_some_and(|byte| byte & 0xc0 == 0x80);
        let earliest = end.saturating_sub(3);
        while end > earliest && is_inside(end) {
            end -= 1;
        }
        if let Some(place) = self.values.get_mut(usize::from(variable)) {
            *place = Some(value.get(..end).unwrap_or_default().into());
        }
    }
}

/// Which resources a user holds: a bit each.
pub(super) struct Cache {
    pub is_off: bool,
    held: Vec<u64>,
}

impl Cache {
    pub fn holds(&self, resource: u32) -> bool {
        let word = self.held.get(resource as usize / 64).copied().unwrap_or(0);
        word >> (resource % 64) & 1 == 1
    }

    pub fn hold(&mut self, resource: u32) {
        if self.is_off || !is_known(resource) {
            return;
        }
        let word = resource as usize / 64;
        if self.held.len() <= word {
            self.held.resize(word + 1, 0);
        }
        if let Some(word) = self.held.get_mut(word) {
            *word |= 1 << (resource % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::load_text;
    use std::path::Path;
    use tidegate_config::ProcessEnvironment;

    #[test]
    fn all_that_was_due_never_began() {
        let passed = |load: &str, clock: &str, begins: u64, now: u64| {
            let text = format!(
                "target \"http://127.0.0.1:1\"; {load}; {clock}; mix {{ a 1 }}; op a {{ get \"/\" }}"
            );
            let loaded = load_text("test", &text, Path::new("."), &ProcessEnvironment);
            let scenario = loaded.scenario.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
            let second = 1_000_000_000;
            let mut user = User::new(&scenario, 0, 1, (begins * second, 20 * second));
            let is_measured = |at: u64| (2 * second..10 * second).contains(&at);
            user.pass_over(&scenario, now * second, is_measured)
        };
        let users = "users 1 { ramp-up \"2s\"; steady \"8s\"; ramp-down \"10s\" }";
        let visits = "rate \"1/s\" operations=3 { ramp-up \"2s\"; steady \"8s\" }";
        let (cycle, think) = ("cycle fixed \"1s\"", "think fixed \"1s\"");
        let table = [
            // Due at 3, 4, 5 and 6, at 7 not yet.
            (users, cycle, 3, 7, 4),
            // Of those from 0 to 24 eight are measured.
            (users, cycle, 0, 25, 8),
            (users, cycle, 7, 7, 0),
            (users, think, 3, 7, 1),
            (visits, cycle, 3, 9, 3),
        ];
        for (load, clock, begins, now, expected) in table {
            assert_eq!(passed(load, clock, begins, now), expected, "{load}, {clock}, {begins} to {now}");
        }
    }

    #[test]
    fn values_are_cut_between_characters() {
        let text = "target \"http://127.0.0.1:1\"; users 1 { steady \"1s\" }; think fixed \"1s\"; flow { get \"/\" }";
        let loaded = load_text("test", text, Path::new("."), &ProcessEnvironment);
        let scenario = loaded.scenario.unwrap();
        let mut user = User::new(&scenario, 0, 1, (0, 1));
        let mut held = |value: &[u8]| {
            user.hold(0, value);
            user.value(&[], 0).unwrap().to_vec()
        };
        let long = |length: usize, end: &[u8]| [&vec![b'x'; length], end, b"more"].concat();
        let table = [
            (long(VALUE_SIZE - 1, "é".as_bytes()), VALUE_SIZE - 1),
            (long(VALUE_SIZE - 2, "é".as_bytes()), VALUE_SIZE),
            (long(VALUE_SIZE - 3, "😀".as_bytes()), VALUE_SIZE - 3),
            (long(VALUE_SIZE - 1, b"\xff\xff"), VALUE_SIZE),
            (b"\xff\x80".to_vec(), 2),
        ];
        for (value, length) in table {
            assert!(held(&value) == value[..length], "{}", value.len());
        }
    }

    #[test]
    fn a_cache_is_bits() {
        let mut cache = Cache { is_off: false, held: Vec::new() };
        cache.hold(3);
        cache.hold(200);
        assert!(cache.holds(3) && cache.holds(200) && !cache.holds(4) && !cache.holds(5_000));
        // What has no number takes no place.
        cache.hold(u32::MAX);
        cache.hold(u32::MAX / 2 + 9);
        assert!(cache.held.len() < 10);
        let mut cold = Cache { is_off: true, held: Vec::new() };
        cold.hold(3);
        assert!(!cold.holds(3));
    }
}
