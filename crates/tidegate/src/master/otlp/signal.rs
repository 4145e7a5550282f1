//! One of the two kinds of messages, metrics or traces: where it goes, and what is made of the collector's answers.

use super::backoff::Backoff;
use super::push::{Collector, Failure};
use std::time::Duration;
use tidegate_config::settings::Otlp;
use tidegate_core::log::{self, Trouble};

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
                    Some(why) => self.warn(&format!("{url} has not taken all {what}: {why}")),
                    None if self.trouble.is_over() => {
                        log::info(format_args!("the collector {url} takes {what} again"));
                    }
                    None => {}
                }
                Outcome::Taken
            }
            Err(Failure { why, wait, may_be_retried }) => {
                self.warn(&format!("{url} takes no {what}: {why}"));
                match may_be_retried {
                    true => Outcome::Later(self.backoff.next(wait)),
                    false => Outcome::Refused,
                }
            }
        }
    }

    fn warn(&mut self, what: &str) {
        if self.trouble.is_news(what) {
            log::warn(format_args!("the collector {what}"));
        }
    }
}

/// `None`: nothing was rejected.
fn in_words((count, message): Rejected) -> Option<String> {
    let said: String = message.chars().filter(|character| !character.is_control()).take(SAID_MAX).collect();
    (count != 0 || !said.is_empty()).then(|| format!("{count} were rejected: {said:?}"))
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
}
