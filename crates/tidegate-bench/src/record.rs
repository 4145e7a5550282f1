//! What is measured: counts and distributions of times, per interval and worker, merged exactly.
//!
//! A worker records into histograms of its own (`hdrhistogram`, three significant digits) and hands over what
//! an interval gave as pairs of value and count. Pairs of the same bucket layout add up to what one histogram
//! would have seen: percentiles are read from the sum and never averaged. Knows no clock and no socket.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The longest time that is told apart: an hour. A longer one counts as an hour.
pub const LONGEST: Duration = Duration::from_secs(3_600);

/// The finest difference between two short times, nanoseconds. Above 131 µs the three digits are coarser.
const FINEST: u64 = 64;

/// Times, in nanoseconds, to three significant digits.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(FINEST, LONGEST.as_nanos() as u64, 3);
        Times(histogram.expect("invariant: the bounds are constants that fit"))
    }
}

impl Times {
    /// Adds one.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds what an interval gave.
    pub fn add(&mut self, pairs: &[(u64, u64)]) {
        for (value, count) in pairs {
            self.0.saturating_record_n(*value, *count);
        }
    }

    /// What was recorded, as pairs of value and count; nothing is left.
    pub fn take(&mut self) -> Vec<(u64, u64)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        // Only between the least and the most: to look at all that the histogram could hold takes so long that
        // requests that are due meanwhile would be late.
        let (mut value, most) = (self.0.lowest_equivalent(self.0.min()), self.0.max());
        let mut pairs = Vec::new();
        while value <= most {
            let count = self.0.count_at(value);
            if count > 0 {
                pairs.push((self.0.highest_equivalent(value), count));
            }
            value = self.0.next_non_equivalent(value);
        }
        self.0.reset();
        pairs
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that a share of `percent` did not exceed; zero when there is nothing.
    pub fn percentile(&self, percent: f64) -> Duration {
        if self.0.is_empty() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.0.value_at_percentile(percent).min(self.0.max()))
    }

    /// The share of times that are not above `limit`, in percent.
    pub fn share_within(&self, limit: Duration) -> f64 {
        if self.0.is_empty() { 100.0 } else { self.0.percentile_below(limit.as_nanos() as u64) }
    }

    /// Zero when there is nothing.
    pub fn min(&self) -> Duration {
        if self.0.is_empty() { Duration::ZERO } else { Duration::from_nanos(self.0.min()) }
    }

    /// Zero when there is nothing.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// Zero when there is nothing.
    pub fn mean(&self) -> Duration {
        if self.0.is_empty() { Duration::ZERO } else { Duration::from_nanos(self.0.mean() as u64) }
    }

    /// Standard deviation.
    pub fn deviation(&self) -> Duration {
        if self.0.is_empty() { Duration::ZERO } else { Duration::from_nanos(self.0.stdev() as u64) }
    }

    /// The number itself that a share of `percent` did not exceed, for what is not a time.
    pub fn number_at(&self, percent: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_percentile(percent).min(self.0.max()) }
    }

    /// The histogram itself, for the log format.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Nobody listens there.
    Refused,
    /// Another fault of the connect: no route, no address.
    Connect,
    /// No TLS with it: a certificate that is not trusted, another protocol, a broken record.
    Tls,
    /// The server did not accept in time.
    ConnectTimeout,
    /// No complete answer in time.
    Timeout,
    /// The server reset the connection.
    Reset,
    /// The server closed without a byte of an answer.
    Closed,
    /// The server closed inside an answer.
    Truncated,
    /// The server gave one request up (HTTP/2, RST_STREAM).
    StreamReset,
    /// The server said goodbye (HTTP/2, GOAWAY) and left a request without an answer.
    GoAway,
    /// The answer is not HTTP that a strict client accepts.
    Malformed,
    /// A status of 400 and above, where nothing else was expected.
    Status,
    /// The answer is not the expected one.
    Check,
    /// The generator had no descriptor left.
    Descriptors,
    /// The generator had no local port left.
    Ports,
    /// Due, but not sent before the run ended.
    Unsent,
    /// Sent, but not answered when the run was broken off.
    Unanswered,
    /// A function of the scenario's script threw, took too long, or returned what is of no use.
    Script,
    /// The head of the answer is larger than the generator reads.
    HeadTooLarge,
}

impl Failure {
    /// All of them, in the order of reports.
    pub const ALL: [Failure; 19] = [
        Failure::Refused,
        Failure::Connect,
        Failure::Tls,
        Failure::ConnectTimeout,
        Failure::Timeout,
        Failure::Reset,
        Failure::Closed,
        Failure::Truncated,
        Failure::StreamReset,
        Failure::GoAway,
        Failure::Malformed,
        Failure::Status,
        Failure::Check,
        Failure::Descriptors,
        Failure::Ports,
        Failure::Unsent,
        Failure::Unanswered,
        Failure::Script,
        Failure::HeadTooLarge,
    ];

    /// The name in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::Connect => "connect",
            Failure::Tls => "tls",
            Failure::ConnectTimeout => "connect_timeout",
            Failure::Timeout => "timeout",
            Failure::Reset => "reset",
            Failure::Closed => "closed",
            Failure::Truncated => "truncated",
            Failure::StreamReset => "stream_reset",
            Failure::GoAway => "go_away",
            Failure::Malformed => "malformed",
            Failure::Status => "status",
            Failure::Check => "check",
            Failure::Descriptors => "descriptors",
            Failure::Ports => "ports",
            Failure::Unsent => "unsent",
            Failure::Unanswered => "unanswered",
            Failure::Script => "script",
            Failure::HeadTooLarge => "head_too_large",
        }
    }

    /// A sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Failure::Refused => "connection refused",
            Failure::Connect => "could not connect",
            Failure::Tls => "no TLS with the server",
            Failure::ConnectTimeout => "not accepted in time",
            Failure::Timeout => "not answered in time",
            Failure::Reset => "connection reset by the server",
            Failure::Closed => "closed without an answer",
            Failure::Truncated => "closed inside an answer",
            Failure::StreamReset => "stream reset by the server",
            Failure::GoAway => "left behind by a goodbye of the server",
            Failure::Malformed => "answer that is not valid HTTP",
            Failure::Status => "unexpected status",
            Failure::Check => "answer other than expected",
            Failure::Descriptors => "no descriptor left in the generator",
            Failure::Ports => "no local port left in the generator",
            Failure::Unsent => "due, but not sent before the end",
            Failure::Unanswered => "sent, but not answered at the end",
            Failure::Script => "failed in the script of the scenario",
            Failure::HeadTooLarge => "answer with a head of more than the 64 KiB that are read",
        }
    }

    /// Whether the generator's machine is at fault, not the server.
    pub fn is_ours(self) -> bool {
        matches!(self, Failure::Descriptors | Failure::Ports)
    }
}

/// Sums. All of them add up across workers, processes and intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that ended, well or not.
    pub requests: u64,
    /// Those that ended well.
    pub succeeded: u64,
    /// Complete responses, whatever their status.
    pub answered: u64,
    /// Those that failed, by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Received, heads and framing included.
    pub bytes: u64,
    /// Of bodies, without framing.
    pub body_bytes: u64,
    /// Sent.
    pub bytes_sent: u64,
    /// Connections opened.
    pub connects: u64,
    /// TLS handshakes in full.
    #[serde(default)]
    pub tls_full: u64,
    /// TLS handshakes that resumed a session.
    #[serde(default)]
    pub tls_resumed: u64,
    /// Arrivals that found no free connection and waited for one (open loop).
    pub queued: u64,
    /// Responses that came at the demanded bit rate, where one was demanded.
    pub conforming: u64,
    /// Connections that the server closed while they were to stay idle.
    #[serde(default)]
    pub dropped: u64,
    /// Requests that were sent again: the server had turned them away unread, or closed the connection that it kept.
    #[serde(default)]
    pub sent_again: u64,
    /// Of those, the ones that are no fault of the server: behind its goodbye (GOAWAY, `Connection: close`), or begun before it had said how
    /// many streams it takes.
    #[serde(default)]
    pub sent_again_excused: u64,
    /// Connections on which bytes came behind a complete answer.
    #[serde(default)]
    pub surplus: u64,
    /// What HTTP/2 connections were ended for, or frames of streams that were over, in words: rules that the server has broken.
    /// Requests that were under way have failed besides.
    #[serde(default)]
    pub protocol_errors: BTreeMap<String, u64>,
    /// Sum of the response times, nanoseconds.
    pub response_sum: u64,
    /// Requests of the warm-up that ended. They are nowhere else, whenever that was.
    #[serde(default)]
    pub warmup: u64,
    /// Of those, the ones that were answered.
    #[serde(default)]
    pub warmup_answered: u64,
    /// Received for requests of the warm-up; in none of the other sums.
    #[serde(default)]
    pub warmup_bytes: u64,
}

impl Counts {
    /// How many were sent again, in words.
    pub(crate) fn sent_again_shown(&self) -> Option<String> {
        (self.sent_again > 0).then(|| {
            format!(
                "{} requests were sent again: the server had turned them away unread, or closed their connections; {} of them behind its \
                 goodbye, or before it had said how many streams it takes",
                self.sent_again, self.sent_again_excused
            )
        })
    }

    /// Adds the others.
    pub fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.succeeded += other.succeeded;
        self.answered += other.answered;
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.bytes += other.bytes;
        self.body_bytes += other.body_bytes;
        self.bytes_sent += other.bytes_sent;
        self.connects += other.connects;
        self.tls_full += other.tls_full;
        self.tls_resumed += other.tls_resumed;
        self.queued += other.queued;
        self.conforming += other.conforming;
        self.dropped += other.dropped;
        self.sent_again += other.sent_again;
        self.sent_again_excused += other.sent_again_excused;
        self.surplus += other.surplus;
        for (error, count) in &other.protocol_errors {
            *self.protocol_errors.entry(error.clone()).or_default() += count;
        }
        self.response_sum = self.response_sum.saturating_add(other.response_sum);
        self.warmup += other.warmup;
        self.warmup_answered += other.warmup_answered;
        self.warmup_bytes += other.warmup_bytes;
    }

    /// Requests that did not end well.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The share that ended well, in percent; 0 of nothing.
    pub fn availability(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { 100.0 * self.succeeded as f64 / self.requests as f64 }
    }
}

/// A request that failed, kept for the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedExchange {
    /// Seconds from the start of the run.
    pub at: f64,
    /// Method and target, as sent.
    pub request: String,
    /// Why.
    pub failure: Failure,
    /// Of its answer, where one came.
    pub status: Option<u16>,
    /// The beginning of its answer, escaped, where it came in one piece with its head.
    pub answer: Option<String>,
}

/// So many failed requests are kept, the first of the run.
pub const FAILED_KEPT: usize = 5;

/// Kinds of protocol errors of one interval that are told apart.
pub(crate) const PROTOCOL_ERRORS: usize = 32;

/// Pairs of nanoseconds and count.
pub type Pairs = Vec<(u64, u64)>;

/// What one worker saw in one interval.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the interval from the start of the run.
    pub interval: u32,
    /// What ended in it.
    pub counts: Counts,
    /// From the intended start to the last byte; of a request without a complete answer to the moment that it was given up. One of each
    /// request that ended.
    pub response: Pairs,
    /// The response times of those alone that were answered as expected.
    pub expected: Pairs,
    /// From the first byte sent to the last received, or to the moment that the request was given up.
    pub service: Pairs,
    /// From the first byte sent to the first received, or to the moment that the request was given up without one.
    pub wait: Pairs,
    /// Of requests that had not ended when somebody interrupted: how long they had taken by then. They are nowhere else.
    #[serde(default)]
    pub interrupted: Pairs,
    /// Of connects.
    pub connect: Pairs,
    /// Of TLS handshakes.
    #[serde(default)]
    pub handshake: Pairs,
    /// From the intended start to the moment that the generator took it up.
    pub lateness: Pairs,
    /// Bytes per second of each answer, where readers are slow or a bit rate is demanded.
    pub speed: Pairs,
    /// Connections open at its end.
    pub open: u32,
    /// The most of them that were open at one moment of it.
    #[serde(default)]
    pub most_open: u32,
    /// Processor time of the worker in it, nanoseconds.
    pub cpu: u64,
    /// How long it was, nanoseconds.
    pub length: u64,
}

/// The recorder of one worker.
#[derive(Default)]
pub(crate) struct Recorder {
    pub counts: Counts,
    /// By number, so that counting a status is an addition.
    statuses: Vec<u64>,
    response: Times,
    expected: Times,
    /// The response time of what was answered last.
    last: u64,
    service: Times,
    wait: Times,
    interrupted: Times,
    connect: Times,
    handshake: Times,
    lateness: Times,
    speed: Times,
    open: u32,
    /// The most since the last [`Recorder::take`].
    most_open: u32,
}

/// The times of one answered request, monotonic nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamps {
    pub intended: u64,
    pub sent: u64,
    pub first_byte: u64,
    pub last_byte: u64,
}

/// The times of a request that has got no complete answer, monotonic nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waited {
    pub intended: u64,
    /// `None`: it was never sent.
    pub sent: Option<u64>,
    /// Where an answer had begun.
    pub first_byte: Option<u64>,
    /// When it was given up.
    pub until: u64,
}

impl Recorder {
    pub fn new() -> Self {
        Recorder { statuses: vec![0; 600], ..Recorder::default() }
    }

    /// Bytes that came, and how many of them are of a body; `is_counted`: not of a request of the warm-up.
    #[inline]
    pub fn received(&mut self, bytes: usize, body: usize, is_counted: bool) {
        if is_counted {
            self.counts.bytes += bytes as u64;
            self.counts.body_bytes += body as u64;
        } else {
            self.counts.warmup_bytes += bytes as u64;
        }
    }

    /// A complete response. Whether it is a success is said apart, by [`Recorder::succeed`] or
    /// [`Recorder::fail`].
    #[inline]
    pub fn answered(&mut self, status: u16, stamps: Stamps) {
        self.counts.answered += 1;
        if let Some(count) = self.statuses.get_mut(usize::from(status)) {
            *count += 1;
        }
        self.last = stamps.last_byte.saturating_sub(stamps.intended);
        self.respond(self.last);
        self.service.record(stamps.last_byte.saturating_sub(stamps.sent));
        self.wait.record(stamps.first_byte.saturating_sub(stamps.sent));
    }

    #[inline]
    fn respond(&mut self, ns: u64) {
        self.counts.response_sum = self.counts.response_sum.saturating_add(ns);
        self.response.record(ns);
    }

    /// The times of a request that is given up. What it would have taken is not known, and at least as long: who left it out would
    /// measure a server that hangs by the answers that it gives. That it failed is said apart, by [`Recorder::fail`].
    #[cold]
    pub fn gave_up(&mut self, waited: Waited) {
        self.respond(waited.until.saturating_sub(waited.intended));
        if let Some(sent) = waited.sent {
            self.service.record(waited.until.saturating_sub(sent));
            self.wait.record(waited.first_byte.unwrap_or(waited.until).saturating_sub(sent));
        }
    }

    /// Somebody has interrupted the run `ns` after a request was meant to start that has not ended: nobody has failed.
    #[cold]
    pub fn interrupted(&mut self, ns: u64) {
        self.interrupted.record(ns);
    }

    /// What was answered last is what was expected.
    #[inline]
    pub fn succeed(&mut self) {
        self.expected.record(self.last);
        self.counts.requests += 1;
        self.counts.succeeded += 1;
    }

    #[cold]
    pub fn fail(&mut self, failure: Failure, count: u64) {
        if count > 0 {
            self.counts.requests += count;
            *self.counts.failures.entry(failure).or_default() += count;
        }
    }

    /// A request is sent again. `is_excused`: it is no fault of the server.
    #[cold]
    pub fn sent_again(&mut self, is_excused: bool) {
        self.counts.sent_again += 1;
        self.counts.sent_again_excused += u64::from(is_excused);
    }

    /// A connection is open, `ns` after its connect began.
    pub fn connected(&mut self, ns: u64) {
        self.counts.connects += 1;
        self.connect.record(ns);
        self.open += 1;
        self.most_open = self.most_open.max(self.open);
    }

    /// One that was open is not any more.
    pub fn disconnected(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// A TLS handshake is complete.
    pub fn shaken(&mut self, ns: u64, is_resumed: bool) {
        self.counts.tls_full += u64::from(!is_resumed);
        self.counts.tls_resumed += u64::from(is_resumed);
        self.handshake.record(ns);
    }

    /// The server has broken a rule of HTTP/2.
    #[cold]
    pub fn protocol_error(&mut self, error: &dyn fmt::Display) {
        let errors = &mut self.counts.protocol_errors;
        let mut error = error.to_string();
        if errors.len() >= PROTOCOL_ERRORS && !errors.contains_key(&error) {
            error = "others".to_owned();
        }
        *errors.entry(error).or_default() += 1;
    }

    /// Bytes per second of an answer.
    pub fn speed(&mut self, bytes_per_second: u64) {
        self.speed.record(bytes_per_second);
    }

    #[inline]
    pub fn late(&mut self, ns: u64) {
        self.lateness.record(ns);
    }

    /// What there is since the last call.
    pub fn take(&mut self) -> Sample {
        let mut counts = std::mem::take(&mut self.counts);
        for (status, count) in self.statuses.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            counts.statuses.insert(status as u16, std::mem::take(count));
        }
        Sample {
            counts,
            open: self.open,
            most_open: std::mem::replace(&mut self.most_open, self.open),
            response: self.response.take(),
            expected: self.expected.take(),
            service: self.service.take(),
            wait: self.wait.take(),
            interrupted: self.interrupted.take(),
            connect: self.connect.take(),
            handshake: self.handshake.take(),
            lateness: self.lateness.take(),
            speed: self.speed.take(),
            ..Sample::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nearest_rank(sorted: &[u64], percent: f64) -> u64 {
        let rank = (percent / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank.min(sorted.len()) - 1]
    }

    proptest! {
        // Histograms are large; a few dozen ways to split suffice.
        #![proptest_config(ProptestConfig::with_cases((ProptestConfig::default().cases / 8).max(1)))]

        /// Split over workers and intervals in any way, percentiles stay those of all values, within the
        /// three digits.
        #[test]
        fn merging_is_exact(values in proptest::collection::vec((0u64..4, 1u64..20_000_000_000), 1..300)) {
            let mut parts = [Times::default(), Times::default(), Times::default(), Times::default()];
            let mut whole = Times::default();
            let mut merged = Times::default();
            for (number, (part, value)) in values.iter().enumerate() {
                let part = &mut parts[*part as usize];
                part.record(*value);
                whole.record(*value);
                if number % 7 == 0 {
                    merged.add(&part.take());
                }
            }
            for part in &mut parts {
                merged.add(&part.take());
                prop_assert_eq!(part.count(), 0);
            }
            let mut sorted: Vec<u64> = values.iter().map(|(_, value)| *value).collect();
            sorted.sort_unstable();
            prop_assert_eq!(merged.count(), values.len() as u64);
            for percent in [1.0, 50.0, 90.0, 99.0, 99.99, 100.0] {
                prop_assert_eq!(merged.percentile(percent), whole.percentile(percent));
                let exact = nearest_rank(&sorted, percent) as f64;
                let told = merged.percentile(percent).as_nanos() as f64;
                prop_assert!((told - exact).abs() <= exact * 0.001 + 64.0, "{} {} {}", percent, told, exact);
            }
        }
    }

    #[test]
    fn nothing_is_zero_and_an_hour_is_the_most() {
        let mut times = Times::default();
        assert_eq!((times.percentile(99.0), times.min(), times.mean()), Default::default());
        times.record(u64::MAX);
        assert!(times.max() >= LONGEST && times.max() < LONGEST * 2);
    }

    #[test]
    fn the_most_that_was_open_is_no_sample() {
        let mut recorder = Recorder::new();
        let opened = |recorder: &mut Recorder, count: u32| (0..count).for_each(|_| recorder.connected(1));
        let closed = |recorder: &mut Recorder, count: u32| (0..count).for_each(|_| recorder.disconnected());
        opened(&mut recorder, 5);
        closed(&mut recorder, 4);
        opened(&mut recorder, 1);
        let mut take = || {
            let sample = recorder.take();
            (sample.open, sample.most_open)
        };
        // An interval begins with what was left open by the one before.
        assert_eq!([take(), take()], [(2, 5), (2, 2)]);
        closed(&mut recorder, 2);
        assert_eq!((recorder.take().most_open, recorder.take().most_open), (2, 0));
    }

    #[test]
    fn a_recorder_counts_each_request_once() {
        let mut recorder = Recorder::new();
        recorder.answered(200, Stamps { intended: 0, sent: 1_000, first_byte: 2_000, last_byte: 3_000 });
        recorder.succeed();
        recorder.answered(503, Stamps { intended: 0, sent: 1_000, first_byte: 2_000, last_byte: 3_000 });
        recorder.fail(Failure::Status, 1);
        recorder.fail(Failure::Unsent, 2);
        let sample = recorder.take();
        assert_eq!((sample.counts.requests, sample.counts.succeeded, sample.counts.answered), (4, 1, 2));
        assert_eq!(sample.counts.statuses, BTreeMap::from([(200, 1), (503, 1)]));
        assert_eq!(sample.counts.availability(), 25.0);
        assert_eq!(sample.response.iter().map(|(_, count)| count).sum::<u64>(), 2);
        assert_eq!(recorder.take().counts, Counts::default());
    }

    /// Of a request that nobody answers it is known that it takes at least as long as somebody waited.
    #[test]
    fn who_is_given_up_has_waited() {
        let mut recorder = Recorder::new();
        recorder.answered(200, Stamps { intended: 0, sent: 10_000, first_byte: 20_000, last_byte: 30_000 });
        recorder.succeed();
        let waited = |sent, first_byte| Waited { intended: 0, sent, first_byte, until: 9_000_000 };
        for waited in [waited(Some(10_000), None), waited(Some(10_000), Some(20_000)), waited(None, None)] {
            recorder.gave_up(waited);
            recorder.fail(Failure::Timeout, 1);
        }
        recorder.interrupted(5_000_000);
        let sample = recorder.take();
        let times = |pairs: &Pairs| {
            let mut times = Times::default();
            times.add(pairs);
            (times.count(), times.max().as_nanos() / 100_000)
        };
        assert_eq!((sample.counts.requests, sample.counts.response_sum), (4, 27_030_000));
        assert_eq!([&sample.response, &sample.service, &sample.wait].map(times), [(4, 90), (3, 89), (3, 89)]);
        assert_eq!([&sample.expected, &sample.interrupted].map(times), [(1, 0), (1, 50)]);
    }
}
