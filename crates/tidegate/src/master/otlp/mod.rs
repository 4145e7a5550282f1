//! What the server counts, told to a collector of OpenTelemetry by OTLP over HTTP: a thread of the master's own, started with the
//! first `otlp` of the settings.
//!
//! No metrics are kept for a collector that does not take them: counts only grow, so that the next message says what the one before
//! would have. Of spans a bounded number waits. What is lost is counted, and told once. No reload waits for this thread; the end does, for
//! [`LAST`], so that what was counted since the last message is told. See the OTLP specification, <https://opentelemetry.io/docs/specs/otlp/>.

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

/// How long the end of the server waits for a last message.
const LAST: Duration = Duration::from_secs(2);
/// How long it waits for sampled requests, before server processes end that know of them.
const COLLECTED: Duration = Duration::from_secs(1);

/// The thread that tells.
#[derive(Default)]
pub struct Teller {
    thread: Mutex<Option<Sender<News>>>,
}

/// What the thread hears.
enum News {
    /// These settings are in force.
    Adopt(Option<Otlp>),
    /// Server processes are about to end: take the sampled requests that they know of.
    Collect(Sender<()>),
    /// The server ends: tell all that was not told. The metrics of one that is replaced go on in the other.
    Last { has_metrics: bool, done: Sender<()> },
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
            let _ = thread.send(News::Adopt(otlp));
        }
    }

    /// Takes the sampled requests that server processes know of, before they end.
    pub fn collect(&self) {
        self.wait(COLLECTED, News::Collect);
    }

    /// Tells what was not told yet, as far as a moment is enough for it.
    pub fn finish(&self, has_metrics: bool) {
        self.wait(LAST, |done| News::Last { has_metrics, done });
    }

    fn wait(&self, patience: Duration, news: impl FnOnce(Sender<()>) -> News) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (done, finished) = channel();
        if thread.is_some_and(|thread| thread.send(news(done)).is_ok()) {
            let _ = finished.recv_timeout(patience);
        }
    }
}

/// Tells whichever collector the settings name last, until the other end of `told` is gone.
fn run(told: &Receiver<News>, status: &StatusRegistry) {
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
            Ok(News::Collect(done)) => {
                if let Some(otlp) = &otlp {
                    pusher.collect(otlp, status);
                }
                let _ = done.send(());
            }
            Ok(News::Last { has_metrics, done }) => {
                if let Some(otlp) = &otlp {
                    pusher.push_last(otlp, status, has_metrics);
                    status.set_otlp(Some(pusher.report));
                }
                let _ = done.send(());
            }
            Ok(News::Adopt(adopted)) => {
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
        self.collect(otlp, status);
        match self.tell_metrics(otlp, status) {
            Some(wait) => wait,
            None => self.tell_spans(otlp),
        }
    }

    /// The same once more, within [`LAST`].
    fn push_last(&mut self, otlp: &Otlp, status: &StatusRegistry, has_metrics: bool) {
        let until = Instant::now() + LAST;
        let within = |otlp: &Otlp| {
            let left = until.saturating_duration_since(Instant::now());
            Otlp { timeout: otlp.timeout.min(left), ..otlp.clone() }
        };
        // The collector that wants to be left alone is not asked again for the other message.
        if !has_metrics || self.tell_metrics(&within(otlp), status).is_none() {
            self.tell_spans(&within(otlp));
        }
        // Nobody tells of what still waits.
        self.report.spans_lost += self.waiting.clear();
    }

    fn collect(&mut self, otlp: &Otlp, status: &StatusRegistry) {
        // Whatever is asked of this one takes some time, too: it will come again within twice as long, and a minute.
        self.waiting.collect(&status.spans(otlp.interval * 2 + Duration::from_secs(60)));
        self.report.spans_lost += self.waiting.take_lost();
    }

    /// How long the collector wants to be left alone; `None`: it has an answer.
    fn tell_metrics(&mut self, otlp: &Otlp, status: &StatusRegistry) -> Option<Duration> {
        let families = status.families();
        let message = metrics::message(&families, &self.origin, &otlp.service, clock::wall());
        let outcome = self.metrics.tell(&self.collector, otlp, message.encode_to_vec(), rejected_points);
        match outcome {
            Outcome::Taken => self.report.taken += 1,
            Outcome::Refused => self.report.lost += 1,
            Outcome::Later(wait) => {
                self.report.lost += 1;
                return Some(wait);
            }
        }
        None
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
