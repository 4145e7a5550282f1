//! What the server counts, told to a collector of OpenTelemetry by OTLP over HTTP: a thread of the master's own, started with the
//! first `otlp` of the settings.
//!
//! Nothing is kept for a collector that does not take it: counts only grow, so that the next message says what the one before
//! would have, and what is lost is counted and told once. Nobody waits for this thread, neither a reload nor the end. See the
//! OTLP specification, <https://opentelemetry.io/docs/specs/otlp/>.

mod backoff;
mod metrics;
mod push;

use super::status_registry::StatusRegistry;
use crate::version::VERSION;
use backoff::Backoff;
use metrics::{Origin, instance_id};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use push::{Collector, Failure};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_config::settings::Otlp;
use tidegate_core::log;
use tidegate_io::clock;
use tidegate_modules::status::OtlpReport;

/// Where metrics go, behind the address of the collector.
const METRICS: &str = "/v1/metrics";
/// How often the same trouble is told.
const TOLD_AGAIN: Duration = Duration::from_secs(600);
/// Characters of what a collector says that go into the log.
const SAID_MAX: usize = 200;

/// The thread that tells.
#[derive(Default)]
pub struct Teller {
    thread: Mutex<Option<Sender<Option<Otlp>>>>,
}

impl Teller {
    /// These settings are in force.
    pub fn adopt(&self, settings: &Settings, status: &Arc<StatusRegistry>) {
        let otlp = settings.statistics.otlp.clone();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && otlp.is_some() {
            let (sender, told) = channel();
            let status = status.clone();
            match Builder::new().name("tidegate-otlp".into()).spawn(move || run(&told, &status)) {
                Ok(_) => *thread = Some(sender),
                Err(error) => {
                    log::error(format_args!("no collector is told of anything: no thread: {error}"))
                }
            }
        }
        if let Some(thread) = &*thread {
            let _ = thread.send(otlp);
        }
    }
}

/// Tells whichever collector the settings name last, until the other end of `told` is gone.
fn run(told: &Receiver<Option<Otlp>>, status: &StatusRegistry) {
    let collector = match Collector::new() {
        Ok(collector) => collector,
        Err(error) => {
            log::error(format_args!("no collector is told of anything: {error}"));
            return;
        }
    };
    let mut pusher = Pusher {
        collector,
        origin: Origin { instance: instance_id(), started: status.started() },
        backoff: Backoff::default(),
        report: OtlpReport::default(),
        trouble: Trouble::default(),
    };
    let (mut otlp, mut next): (Option<Otlp>, Instant) = (None, Instant::now());
    loop {
        let news = match &otlp {
            None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => told.recv_timeout(next.saturating_duration_since(Instant::now())),
        };
        match news {
            Ok(adopted) => {
                if adopted != otlp {
                    next = Instant::now();
                }
                status.set_otlp(adopted.is_some().then_some(pusher.report));
                otlp = adopted;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some(otlp) = &otlp else { continue };
                let wait = pusher.push(otlp, status);
                next = Instant::now() + wait.max(otlp.interval);
                status.set_otlp(Some(pusher.report));
            }
        }
    }
}

/// What is known from one message to the next.
struct Pusher {
    collector: Collector,
    origin: Origin,
    backoff: Backoff,
    report: OtlpReport,
    trouble: Trouble,
}

impl Pusher {
    /// Tells of all metrics as they are now. How long the collector wants to be left alone.
    fn push(&mut self, otlp: &Otlp, status: &StatusRegistry) -> Duration {
        let families = status.exposition().families();
        let message = metrics::message(&families, &self.origin, &otlp.service, clock::wall());
        match self.collector.send(otlp, METRICS, message.encode_to_vec()) {
            Ok(answer) => {
                self.report.taken += 1;
                self.backoff = Backoff::default();
                match rejected(&answer) {
                    Some(why) => self.trouble.tell(&format!("{} has not taken all: {why}", otlp.url)),
                    None => self.trouble.is_over(&otlp.url),
                }
                Duration::ZERO
            }
            Err(Failure { why, wait, may_be_retried }) => {
                self.report.lost += 1;
                self.trouble.tell(&format!("{} takes no metrics: {why}", otlp.url));
                match may_be_retried {
                    true => self.backoff.next(wait),
                    false => Duration::ZERO,
                }
            }
        }
    }
}

/// What a collector has not taken of a message that it took, in its words.
fn rejected(answer: &[u8]) -> Option<String> {
    let partial = ExportMetricsServiceResponse::decode(answer).ok()?.partial_success?;
    let said: String =
        partial.error_message.chars().filter(|character| !character.is_control()).take(SAID_MAX).collect();
    (partial.rejected_data_points != 0 || !said.is_empty())
        .then(|| format!("{} points were rejected: {said:?}", partial.rejected_data_points))
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

    fn is_over(&mut self, url: &str) {
        if self.last.take().is_some() {
            log::info(format_args!("the collector {url} takes metrics again"));
        }
    }
}

/// As what the server presents itself.
fn user_agent() -> String {
    format!("Tidegate/{VERSION}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;

    #[test]
    fn what_a_collector_has_not_taken() {
        let answer = |rejected_data_points, error_message: &str| {
            let partial =
                ExportMetricsPartialSuccess { rejected_data_points, error_message: error_message.into() };
            ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!(rejected(&[]), None);
        assert_eq!(rejected(b"not a message"), None);
        assert_eq!(rejected(&answer(0, "")), None);
        assert_eq!(
            rejected(&answer(3, "too\x1b old")).as_deref(),
            Some("3 points were rejected: \"too old\"")
        );
        assert!(rejected(&answer(0, &"x".repeat(100_000))).unwrap().len() < 2 * SAID_MAX);
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
        trouble.is_over("http://a");
        assert!(trouble.last.is_none());
    }
}
