//! What applications write: every line, in its order, at its level, to the log of its pool or the error log
//! (FAULTS 65).
//!
//! Their lines are theirs: nothing here takes two for the same. What bounds them is bytes, so many a second for each
//! application; what goes beyond is counted by lines and bytes, and the count is said in the same log when the second is
//! over. Lines that came together are written together.

use super::error::{error_log, push_line};
use super::{Level, Sink, Writer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;

/// Bytes a second of an application whose settings say nothing.
const USUAL_LIMIT: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// Where the lines of one application go.
#[derive(Clone)]
pub struct ApplicationLog {
    /// Its log; `None` is the error log.
    pub sink: Option<(Arc<Writer>, Sink)>,
    /// Bytes a second.
    pub limit: u64,
}

static LOGS: RwLock<Option<HashMap<String, ApplicationLog>>> = RwLock::new(None);
static BUDGETS: Mutex<Option<HashMap<String, Budget>>> = Mutex::new(None);

/// The logs of the applications of a revision, by the names of their pools.
pub fn set_application_logs(logs: HashMap<String, ApplicationLog>) {
    *LOGS.write().unwrap_or_else(PoisonError::into_inner) = Some(logs);
}

/// What one application has written in its second.
#[derive(Debug, Default, PartialEq, Eq)]
struct Budget {
    /// When the second began, monotonic nanoseconds.
    since: u64,
    bytes: u64,
    left_out: Count,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    lines: u64,
    bytes: u64,
}

impl Budget {
    /// Whether a line of `own` bytes, which is `size` with what stands in front of it, may be written; otherwise it is counted.
    fn admit(&mut self, (size, own): (u64, u64), limit: u64, now: u64) -> bool {
        // While some are left out, `take` ends the second: their count is said before the next line.
        if self.is_over(now) && self.left_out.lines == 0 {
            (self.since, self.bytes) = (now, 0);
        }
        // A line that does not fit is the end of this second's: nothing overtakes it.
        if self.left_out.lines > 0 || (self.bytes > 0 && self.bytes + size > limit) {
            self.left_out.lines += 1;
            self.left_out.bytes += own;
            return false;
        }
        self.bytes += size;
        true
    }

    fn take(&mut self, now: u64) -> Option<Count> {
        if self.left_out.lines == 0 || !self.is_over(now) {
            return None;
        }
        (self.since, self.bytes) = (now, 0);
        Some(std::mem::take(&mut self.left_out))
    }

    fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.since) >= SECOND.as_nanos() as u64
    }
}

/// Lines that application `name` has written, each with its level. `about` stands in front of each.
pub fn application(name: &str, about: &dyn std::fmt::Display, lines: &[(Level, String)]) {
    if lines.is_empty() {
        return;
    }
    let log = log_of(name);
    let limit = log.as_ref().map_or(USUAL_LIMIT, |log| log.limit);
    let own = log.and_then(|log| log.sink);
    let (mut out, mut begins_to_leave_out) = (Vec::new(), false);
    {
        let mut budgets = BUDGETS.lock().unwrap_or_else(PoisonError::into_inner);
        let budgets = budgets.get_or_insert_default();
        if !budgets.contains_key(name) {
            budgets.insert(name.to_owned(), Budget::default());
        }
        let Some(budget) = budgets.get_mut(name) else { return };
        let did_leave_out = budget.left_out.lines > 0;
        let about = about.to_string();
        for (level, text) in lines {
            // The level of the error log is for all that is in it; a log of its own takes everything.
            let is_wanted = own.is_some() || error_log().is_none_or(|(_, _, most)| *level <= most);
            let size = (about.len() + text.len() + 40) as u64;
            let own = text.len() as u64 + 1;
            if is_wanted && budget.admit((size, own), limit, monotonic_ns()) {
                push_line(&mut out, *level, &format!("{about}: {text}"));
            }
        }
        begins_to_leave_out |= !did_leave_out && budget.left_out.lines > 0;
    }
    write(own, out);
    if begins_to_leave_out && let Some((writer, ..)) = error_log() {
        writer.wake();
    }
}

fn log_of(name: &str) -> Option<ApplicationLog> {
    LOGS.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(name).cloned()
}

fn write(own: Option<(Arc<Writer>, Sink)>, out: Vec<u8>) {
    if out.is_empty() {
        return;
    }
    match own.or_else(|| error_log().map(|(writer, sink, _)| (writer, sink))) {
        Some((writer, sink)) => writer.write(sink, out),
        None => drop(std::io::Write::write_all(&mut std::io::stderr(), &out)),
    }
}

/// Says how much was left out, where the second is over.
pub(super) fn say_what_was_left_out() {
    let now = monotonic_ns();
    let mut said: Vec<(String, Count)> = Vec::new();
    if let Some(budgets) = &mut *BUDGETS.lock().unwrap_or_else(PoisonError::into_inner) {
        said.extend(budgets.iter_mut().filter_map(|(name, budget)| Some((name.clone(), budget.take(now)?))));
    }
    for (name, Count { lines, bytes }) in said {
        let log = log_of(&name);
        let limit = log.as_ref().map_or(USUAL_LIMIT, |log| log.limit);
        let counted = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
        let text = format!(
            "{name}: {counted} ({bytes} bytes) of this application left out here: it wrote more than {limit} bytes in a \
             second (`output` in its pool)"
        );
        let mut out = Vec::new();
        push_line(&mut out, Level::Warn, &text);
        write(log.and_then(|log| log.sink), out);
    }
}

/// Whether there will be something to say of that.
pub(super) fn leaves_out() -> bool {
    let budgets = BUDGETS.lock().unwrap_or_else(PoisonError::into_inner);
    budgets.as_ref().is_some_and(|all| all.values().any(|budget| budget.left_out.lines > 0))
}

/// Words that tell the level of a line, as applications write them.
const WORDS: [(&[&str], Level); 4] = [
    (
        &["fatal", "error", "err", "critical", "crit", "alert", "emergency", "emerg", "panic", "severe"],
        Level::Error,
    ),
    (&["warning", "warn"], Level::Warn),
    (&["notice", "info", "deprecated"], Level::Info),
    (&["debug", "trace"], Level::Debug),
];
/// Bytes at the beginning of a line in which its level is looked for.
const FRONT: usize = 96;

/// The level of a line: what its beginning says (`PHP Warning:`, `[error]`, `ERROR`), that of the line before where it goes
/// on with it (the lines of a trace), else `warn`.
pub fn level_of(line: &str, before: Level) -> Level {
    let is_further = line.starts_with([' ', '\t', '#', '}', ')'])
        || ["Stack trace:", "Caused by", "thrown in"].iter().any(|start| line.starts_with(start));
    if is_further {
        return before;
    }
    let mut end = line.len().min(FRONT);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    let front = &line[..end];
    let mut at = 0;
    for word in front.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.') {
        let start = at;
        at += word.len() + 1; // what parts words is one byte, or a character of no interest
        while at < front.len() && !front.is_char_boundary(at) {
            at += 1;
        }
        let known =
            WORDS.iter().find(|(words, _)| words.iter().any(|known| known.eq_ignore_ascii_case(word)));
        let Some((_, level)) = known else { continue };
        let ahead = front.get(..start).and_then(|text| text.chars().next_back());
        let behind = front.get(start + word.len()..).and_then(|text| text.chars().next());
        let is_marked = matches!(behind, Some(':' | ']' | '>' | '|'))
            || matches!(ahead, Some('[' | '<'))
            || word.bytes().all(|byte| byte.is_ascii_uppercase());
        if is_marked {
            return *level;
        }
    }
    Level::Warn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_level() {
        for (line, before, expected) in [
            ("PHP Warning:  Undefined variable $x in /a.php on line 3", Level::Error, Level::Warn),
            ("PHP message: PHP Fatal error:  Uncaught Exception: no", Level::Warn, Level::Error),
            ("PHP Parse error:  syntax error, unexpected", Level::Warn, Level::Error),
            ("PHP Deprecated:  old", Level::Warn, Level::Info),
            ("[22-Nov-2026 06:00:00] NOTICE: ready to handle connections", Level::Warn, Level::Info),
            ("[22-Nov-2026 06:00:00] ERROR: unable to bind", Level::Warn, Level::Error),
            ("[2026-11-22 06:00:00 +0000] [7] [INFO] Booting worker", Level::Warn, Level::Info),
            ("2026/11/22 06:00:00 [error] 7#7: *1 open() failed", Level::Warn, Level::Error),
            ("INFO:     Started server process [7]", Level::Warn, Level::Info),
            ("DEBUG here", Level::Warn, Level::Debug),
            ("Stack trace:", Level::Error, Level::Error),
            ("#0 /srv/a.php(3): f()", Level::Error, Level::Error),
            ("  thrown in /srv/a.php on line 3", Level::Error, Level::Error),
            ("an error of no interest", Level::Error, Level::Warn),
            ("information: nothing", Level::Error, Level::Warn),
            ("ünïcödé [error] é", Level::Warn, Level::Error),
            ("", Level::Error, Level::Warn),
        ] {
            assert_eq!(level_of(line, before), expected, "{line}");
        }
    }

    #[test]
    fn bytes_bound_an_application_and_the_count_is_honest() {
        let second = SECOND.as_nanos() as u64;
        let (mut budget, mut written) = (Budget::default(), 0);
        let mut now = 5 * second;
        for _ in 0..100 {
            written += u64::from(budget.admit((100, 60), 1000, now));
            now += 1000;
        }
        assert_eq!(written, 10);
        assert_eq!(budget.take(now), None, "not before the second is over");
        assert_eq!(budget.take(now + second), Some(Count { lines: 90, bytes: 5400 }));
        assert_eq!(budget.take(now + second), None);
        // One that is larger than the bound by itself is written all the same.
        assert!(budget.admit((5000, 4960), 1000, now + 3 * second));
        assert!(!budget.admit((41, 1), 1000, now + 3 * second));
        // What was not said yet is said before anything else, however late.
        assert!(!budget.admit((41, 1), 1000, now + 9 * second));
        assert_eq!(budget.take(now + 9 * second), Some(Count { lines: 2, bytes: 2 }));
        assert!(budget.admit((41, 1), 1000, now + 9 * second));
    }
}
