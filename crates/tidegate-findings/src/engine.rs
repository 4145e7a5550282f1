//! When a finding is raised, and when it goes.
//!
//! A rule says how far a figure is above its threshold, as a ratio. At one and above in as many looks running as the rule asks
//! for, the finding is raised; when the ratio has been below a half for ten minutes, it goes; and at once when a value that it
//! quotes is no longer in force. What follows from another finding that is raised, of the same application or of the whole
//! machine, is not shown by itself, but as "also seen" of that one.

use crate::rules::{Concern, PAGE, RULES, Rule, Seen, follows};
use crate::window::{Quoted, Sample, Window};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tidegate_modules::status::{Change, Finding};

/// Findings that are shown. There are as many as the settings have pools, limits and members.
const MOST: usize = 100;
/// Subjects of a rule that are remembered.
const SUBJECTS: usize = 1000;
/// What follows from a finding and is told beside it.
const BESIDE: usize = 20;

/// How long is looked back, and how long a finding stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Windows {
    /// What rates and shares are of.
    pub long: Duration,
    /// How long the figure has to be below half the threshold before a finding goes.
    pub clear: Duration,
    /// What all thresholds are multiplied with. Other than 1 only in tests, which have to fail by it.
    pub strictness: f64,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { long: Duration::from_secs(300), clear: Duration::from_secs(600), strictness: 1.0 }
    }
}

/// What was sampled lately, and what was found in it.
#[derive(Debug, Default)]
pub struct Engine {
    windows: Windows,
    samples: VecDeque<Sample>,
    /// By the place of the rule and the subject.
    states: BTreeMap<(usize, String), State>,
}

/// What is known of a rule and a subject.
#[derive(Debug)]
struct State {
    /// Looks running with the figure at its threshold or above.
    streak: u32,
    /// When the first of them was, seconds since 1970.
    since: i64,
    is_raised: bool,
    /// When the figure was last at half the threshold or above.
    last_high: Duration,
    /// When it was last at the threshold or above, seconds since 1970; and how far above it is now.
    until: i64,
    ratio: f64,
    sentence: String,
    change: Change,
    length: String,
    quoted: Vec<Quoted>,
    concerns: Vec<Concern>,
}

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(windows: Windows) -> Engine {
        Engine { windows, ..Engine::default() }
    }

    /// Looks at another sample. Their times have to rise.
    pub fn take(&mut self, sample: Sample) {
        if let Some(last) = self.samples.back_mut() {
            last.thin();
        }
        let (now, wall) = (sample.at, sample.info.now);
        self.samples.push_back(sample);
        // One that is as old as the window is its beginning.
        while self.samples.get(1).is_some_and(|second| now.saturating_sub(second.at) >= self.windows.long) {
            self.samples.pop_front();
        }
        let samples = self.samples.make_contiguous();
        // Who has changed a setting need not be told what it was.
        if let Some(sample) = samples.last() {
            self.states.retain(|_, state| state.quoted.iter().all(|quoted| quoted.is_in_force(sample)));
        }
        let window = Window::new(samples);
        let looks = RULES.iter().enumerate().flat_map(|(place, rule)| {
            (rule.look)(&window).into_iter().take(SUBJECTS).map(move |seen| (place, rule, seen))
        });
        let mut found: BTreeMap<(usize, String), (&Rule, Seen)> = BTreeMap::new();
        for (place, rule, seen) in looks {
            found.insert((place, seen.subject.clone()), (rule, seen));
        }
        for (key, state) in &mut self.states {
            if !found.contains_key(key) {
                (state.streak, state.ratio) = (0, 0.0);
            }
        }
        for (key, (rule, seen)) in found {
            if seen.is_over {
                self.states.remove(&key);
                continue;
            }
            let ratio = seen.ratio / self.windows.strictness;
            if ratio >= 0.5 {
                let state = self.states.entry(key).or_insert_with(|| State::begin(wall));
                state.look(rule, seen, ratio, (now, wall));
            } else if let Some(state) = self.states.get_mut(&key) {
                (state.streak, state.ratio) = (0, ratio);
            }
        }
        let clear = self.windows.clear;
        self.states.retain(|_, state| match state.is_raised {
            true => now.saturating_sub(state.last_high) < clear,
            false => state.streak > 0,
        });
    }

    /// What limits the server now.
    pub fn findings(&self) -> Vec<Finding> {
        let raised: Vec<(usize, &str, &State)> = self
            .states
            .iter()
            .filter(|(_, state)| state.is_raised)
            .map(|((place, subject), state)| (*place, subject.as_str(), state))
            .collect();
        let cause = |(place, _, state): &(usize, &str, &State)| {
            let is_cause = |other: &&(usize, &str, &State)| {
                RULES[*place].suppressed_by.contains(&RULES[other.0].name)
                    && follows(&state.concerns, &other.2.concerns)
            };
            raised.iter().find(is_cause)
        };
        let mut shown: Vec<(&(usize, &str, &State), Finding)> = Vec::new();
        for one in raised.iter().filter(|one| cause(one).is_none()) {
            let (place, subject, state) = one;
            shown.push((one, state.finding(&RULES[*place], subject)));
        }
        for symptom in &raised {
            let mut of = symptom;
            // A cause may follow from another one. No rule is its own cause, by however many steps.
            for _ in RULES {
                let Some(other) = cause(of) else { break };
                of = other;
            }
            if !std::ptr::eq(of, symptom)
                && let Some((_, finding)) = shown.iter_mut().find(|(one, _)| std::ptr::eq(*one, of))
                && finding.also_seen.len() < BESIDE
            {
                finding.also_seen.push(format!("{} ({})", RULES[symptom.0].name, symptom.1));
            }
        }
        let mut shown: Vec<Finding> = shown.into_iter().map(|(_, finding)| finding).collect();
        shown.truncate(MOST);
        shown
    }
}

impl State {
    fn begin(wall: i64) -> State {
        State {
            streak: 0,
            since: wall,
            is_raised: false,
            last_high: Duration::ZERO,
            until: wall,
            ratio: 0.0,
            sentence: String::new(),
            change: Change::default(),
            length: String::new(),
            quoted: Vec::new(),
            concerns: Vec::new(),
        }
    }

    /// The figure is at half the threshold or above.
    fn look(&mut self, rule: &Rule, seen: Seen, ratio: f64, (now, wall): (Duration, i64)) {
        (self.last_high, self.ratio) = (now, ratio);
        if ratio < 1.0 {
            self.streak = 0;
            return;
        }
        if self.streak == 0 && !self.is_raised {
            self.since = wall;
        }
        self.streak = self.streak.saturating_add(1);
        self.is_raised |= self.streak >= rule.looks;
        self.until = wall;
        (self.sentence, self.change) = (seen.sentence, seen.change);
        (self.length, self.quoted, self.concerns) = (seen.length, seen.quoted, seen.concerns);
    }

    /// The sentence, which says so where it is of what has passed.
    fn told(&self) -> String {
        if self.ratio >= 1.0 {
            return self.sentence.clone();
        }
        let since = if self.ratio > 0.0 { "less since" } else { "none since" };
        let until = format!("until {} UTC, {since}", time_of_day(self.until));
        let span = format!("in the last {}", self.length);
        match self.sentence.split_once(&span) {
            Some((before, after)) => {
                // What comes behind it may have its own comma.
                let comma = if after.starts_with(' ') { "," } else { "" };
                format!("{before}in the {} {until}{comma}{after}", self.length)
            }
            None => format!("{} ({until})", self.sentence),
        }
    }

    fn finding(&self, rule: &Rule, subject: &str) -> Finding {
        Finding {
            name: rule.name.to_owned(),
            subject: subject.to_owned(),
            sentence: self.told(),
            change: self.change.clone(),
            page: format!("{PAGE}#{}", rule.name),
            since: self.since,
            also_seen: Vec::new(),
        }
    }
}

/// `12:58`
fn time_of_day(seconds: i64) -> String {
    let minutes = seconds.rem_euclid(86_400) / 60;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_is_its_own_cause() {
        fn depth(name: &str, steps: usize) -> usize {
            let rule =
                RULES.iter().find(|rule| rule.name == name).unwrap_or_else(|| panic!("no rule {name}"));
            assert!(steps < RULES.len(), "{name} is its own cause");
            rule.suppressed_by.iter().map(|cause| depth(cause, steps + 1)).max().unwrap_or(steps)
        }
        assert!(RULES.iter().map(|rule| depth(rule.name, 0)).max().unwrap() >= 2);
    }
}
