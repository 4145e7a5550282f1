//! One of the two kinds of messages, metrics or traces: where it goes, and what is made of the collector's answers.

use super::backoff::Backoff;
use super::push::{Collector, Failure};
use std::time::{Duration, Instant};
use tidegate_config::settings::Otlp;
use tidegate_core::log;

/// How often the same trouble is told.
const TOLD_AGAIN: Duration = Duration::from_secs(600);
/// Characters of what a collector says that go into the log.
const SAID_MAX: usize = 200;

/// Metrics, or traces.
pub(super) struct Signal {
    /// Behind the address of the collector.
    path: &'static str,
    /// As a message has it.
    what: &'static str,
    backoff: Backoff,
    trouble: Trouble,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was taken, perhaps not all of it.
    Taken,
    /// It will not be.
    Refused,
    /// It may be sent again after this time.
    Later(Duration),
}

/// What a collector has not taken of a message that it took: how many points or spans, and why.
pub(super) type Rejected = (i64, String);

impl Signal {
    pub(super) fn new(path: &'static str, what: &'static str) -> Signal {
        Signal { path, what, backoff: Backoff::default(), trouble: Trouble::default() }
    }

    /// Sends a message. `rejected` reads the answer.
    pub(super) fn tell(
        &mut self,
        collector: &Collector,
        otlp: &Otlp,
        message: Vec<u8>,
        rejected: impl FnOnce(&[u8]) -> Option<Rejected>,
    ) -> Outcome {
        let (what, url) = (self.what, &otlp.url);
        match collector.send(otlp, self.path, message) {
            Ok(answer) => {
                self.backoff = Backoff::default();
                match rejected(&answer).and_then(in_words) {
                    Some(why) => self.trouble.tell(&format!("{url} has not taken all {what}: {why}")),
                    None if self.trouble.is_over() => {
                        log::info(format_args!("the collector {url} takes {what} again"));
                    }
                    None => {}
                }
                Outcome::Taken
            }
            Err(Failure { why, wait, may_be_retried }) => {
                self.trouble.tell(&format!("{url} takes no {what}: {why}"));
                match may_be_retried {
                    true => Outcome::Later(self.backoff.next(wait)),
                    false => Outcome::Refused,
                }
            }
        }
    }
}

/// `None`: nothing was rejected.
fn in_words((count, message): Rejected) -> Option<String> {
    let said: String = message.chars().filter(|character| !character.is_control()).take(SAID_MAX).collect();
    (count != 0 || !said.is_empty()).then(|| format!("{count} were rejected: {said:?}"))
}

/// What is wrong with the collector, told once, and again when it is something else or has lasted.
#[derive(Default)]
struct Trouble {
    last: Option<(String, Instant)>,
}

impl Trouble {
    fn tell(&mut self, what: &str) {
        let is_known = self.last.as_ref().is_some_and(|(last, at)| last == what && at.elapsed() < TOLD_AGAIN);
        if !is_known {
            log::warn(format_args!("the collector {what}"));
            self.last = Some((what.to_owned(), Instant::now()));
        }
    }

    /// Whether there was any.
    fn is_over(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collector_has_not_taken() {
        let words = |count, message: &str| in_words((count, message.to_owned()));
        assert_eq!(words(0, ""), None);
        assert_eq!(words(3, "too\x1b old").as_deref(), Some("3 were rejected: \"too old\""));
        assert!(words(0, &"x".repeat(100_000)).unwrap().len() < 2 * SAID_MAX);
    }

    #[test]
    fn trouble_is_told_once() {
        let mut trouble = Trouble::default();
        trouble.tell("is away");
        let first = trouble.last.clone().unwrap().1;
        trouble.tell("is away");
        assert_eq!(trouble.last.as_ref().unwrap().1, first);
        trouble.tell("is slow");
        assert_eq!(trouble.last.as_ref().unwrap().0, "is slow");
        assert!(trouble.is_over() && !trouble.is_over());
    }
}
