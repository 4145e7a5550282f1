//! What the server counts, told to a collector of OpenTelemetry by OTLP over HTTP: a thread of the master's own, started with the
//! first `otlp` of the settings.
//!
//! No metrics are kept for a collector that does not take them: counts only grow, so that the next message says what the one before
//! would have. Of spans a bounded number waits. What is lost is counted, and told once. Nobody waits for this thread, neither a reload nor the end. See the
//! OTLP specification, <https://opentelemetry.io/docs/specs/otlp/>.

mod backoff;
mod metrics;
mod push;
mod resource;
mod signal;
mod spans;

use super::status_registry::StatusRegistry;
use crate::version::VERSION;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use push::Collector;
use resource::Origin;
use signal::{Outcome, Rejected, Signal};
use spans::Waiting;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_config::settings::Otlp;
use tidegate_core::log;
use tidegate_io::clock;
use tidegate_modules::status::OtlpReport;

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
        origin: Origin::new(status.started()),
        metrics: Signal::new("/v1/metrics", "metrics"),
        traces: Signal::new("/v1/traces", "traces"),
        waiting: Waiting::default(),
        report: OtlpReport::default(),
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
    metrics: Signal,
    traces: Signal,
    waiting: Waiting,
    report: OtlpReport,
}

impl Pusher {
    /// Tells of all metrics as they are now, and of the sampled requests that have ended. How long the collector wants to be left
    /// alone.
    fn push(&mut self, otlp: &Otlp, status: &StatusRegistry) -> Duration {
        // Whatever is asked of this one takes some time, too: it will come again within twice as long, and a minute.
        self.waiting.collect(&status.spans(otlp.interval * 2 + Duration::from_secs(60)));
        self.report.spans_lost += self.waiting.take_lost();
        let families = status.exposition().families();
        let message = metrics::message(&families, &self.origin, &otlp.service, clock::wall());
        let outcome = self.metrics.tell(&self.collector, otlp, message.encode_to_vec(), rejected_points);
        match outcome {
            Outcome::Taken => self.report.taken += 1,
            Outcome::Refused => self.report.lost += 1,
            Outcome::Later(wait) => {
                self.report.lost += 1;
                return wait;
            }
        }
        self.tell_spans(otlp)
    }

    fn tell_spans(&mut self, otlp: &Otlp) -> Duration {
        let Some(message) = self.waiting.message(&self.origin, &otlp.service) else { return Duration::ZERO };
        match self.traces.tell(&self.collector, otlp, message.encode_to_vec(), rejected_spans) {
            Outcome::Taken => self.report.spans += self.waiting.clear(),
            Outcome::Refused => self.report.spans_lost += self.waiting.clear(),
            Outcome::Later(wait) => return wait,
        }
        Duration::ZERO
    }
}

fn rejected_points(answer: &[u8]) -> Option<Rejected> {
    let partial = ExportMetricsServiceResponse::decode(answer).ok()?.partial_success?;
    Some((partial.rejected_data_points, partial.error_message))
}

fn rejected_spans(answer: &[u8]) -> Option<Rejected> {
    let partial = ExportTraceServiceResponse::decode(answer).ok()?.partial_success?;
    Some((partial.rejected_spans, partial.error_message))
}

/// As what the server presents itself.
fn user_agent() -> String {
    format!("Tidegate/{VERSION}")
}
