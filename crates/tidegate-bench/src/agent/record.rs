//! Records of a run as messages, and back. What comes from an agent is held to bounds, so that no sum over 256 agents and a day
//! overflows and no histogram grows beyond its buckets; what is beyond them is the agent's fault, and said.

use super::messages::{Counts, Delta, Ended, Failed, Figures, Operation, Pairs, Totals};
use crate::record::{Counts as Sums, Failure, LONGEST, PROTOCOL_ERRORS, Pairs as Histogram, Sample};
use crate::runs::FIGURES;
use crate::scenario::record::{Arrived, FAILED_KEPT, FailedOperation, Tally, Throughput};
use crate::scenario::{Message, Scenario, SecondOfWorker};
use crate::systems::is_name;
use std::io;
use thiserror::Error;

/// Different values of one histogram at most: more than it has buckets.
const MOST_VALUES: usize = 1 << 16;

/// A count of one second of one worker.
const MOST_COUNT: u64 = 1 << 32;

/// A sum of one second of one worker: bytes, nanoseconds.
const MOST_SUM: u64 = 1 << 44;

/// A sum of a whole run of one agent; 256 of them are no overflow.
const MOST_TOTAL: u64 = 1 << 55;

/// Bytes of a text of a failed operation.
const MOST_TEXT: usize = 4 << 10;

/// What an agent tells cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// A number is larger than any machine could make it.
    #[error("its {0} cannot be so many")]
    TooLarge(&'static str),
    /// Lists that belong together are not as long as each other, or not as long as the scenario has them.
    #[error("its {0} do not have the number that the scenario gives them")]
    Length(&'static str),
    /// A number for something that there is not.
    #[error("it names a {0} that there is not")]
    Unknown(&'static str),
    /// Not the second that comes next.
    #[error("its worker {worker} told of second {told} after {before}")]
    Order {
        /// Of this agent.
        worker: u32,
        /// What came.
        told: u32,
        /// So many came before.
        before: u32,
    },
    /// Not the number that comes next.
    #[error("message {told} came after {before}")]
    Sequence {
        /// What came.
        told: u64,
        /// So many came before.
        before: u64,
    },
}

/// In place of the seconds of a worker that has ended.
pub(super) const ENDED: u32 = u32::MAX;

/// What the records of an agent are held to.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// The number of its first worker, among those of all agents.
    pub first_worker: u32,
    /// Seconds that each of its workers has told of, or [`ENDED`].
    pub seconds: Vec<u32>,
    /// Of each operation of the scenario, the number of its `count`s.
    pub operations: Vec<usize>,
    /// Users of one worker at most.
    pub users: u32,
    /// Connections of one worker at most.
    pub open: u32,
    /// Seconds of the run at most.
    pub length: u32,
}

fn pairs(histogram: &Histogram) -> Pairs {
    let (values, counts) = histogram.iter().copied().unzip();
    Pairs { values, counts }
}

fn histogram(pairs: Pairs) -> Result<Histogram, RecordError> {
    const HISTOGRAM: &str = "histogram";
    if pairs.values.len() != pairs.counts.len() || pairs.values.len() > MOST_VALUES {
        return Err(RecordError::Length(HISTOGRAM));
    }
    let list: Histogram = pairs.values.into_iter().zip(pairs.counts).collect();
    let most = 2 * LONGEST.as_nanos() as u64;
    if list.iter().any(|(value, count)| *value > most || *count > MOST_COUNT) {
        return Err(RecordError::TooLarge(HISTOGRAM));
    }
    Ok(list)
}

fn place(failure: Failure) -> u32 {
    Failure::ALL.iter().position(|known| *known == failure).unwrap_or(0) as u32
}

fn failure(place: u32) -> Result<Failure, RecordError> {
    Failure::ALL.get(place as usize).copied().ok_or(RecordError::Unknown("failure"))
}

fn counts(sums: &Sums) -> Counts {
    Counts {
        sums: vec![
            sums.requests,
            sums.succeeded,
            sums.answered,
            sums.bytes,
            sums.body_bytes,
            sums.bytes_sent,
            sums.connects,
            sums.tls_full,
            sums.tls_resumed,
            sums.queued,
            sums.conforming,
            sums.dropped,
            sums.sent_again,
            sums.sent_again_excused,
            sums.surplus,
            sums.response_sum,
            sums.warmup,
        ],
        failures: sums.failures.keys().map(|failure| place(*failure)).collect(),
        failed: sums.failures.values().copied().collect(),
        protocol_errors: sums.protocol_errors.keys().cloned().collect(),
        broken: sums.protocol_errors.values().copied().collect(),
        statuses: sums.statuses.keys().map(|status| u32::from(*status)).collect(),
        answers: sums.statuses.values().copied().collect(),
    }
}

fn sums(counts: Counts) -> Result<Sums, RecordError> {
    let [
        requests,
        succeeded,
        answered,
        bytes,
        body_bytes,
        bytes_sent,
        connects,
        tls_full,
        tls_resumed,
        queued,
        conforming,
        dropped,
        sent_again,
        sent_again_excused,
        surplus,
        response_sum,
        warmup,
    ] = <[u64; 17]>::try_from(counts.sums).map_err(|_| RecordError::Length("sums"))?;
    if counts.failures.len() != counts.failed.len() || counts.failures.len() > Failure::ALL.len() {
        return Err(RecordError::Length("failures"));
    }
    if counts.statuses.len() != counts.answers.len() || counts.statuses.len() > 600 {
        return Err(RecordError::Length("statuses"));
    }
    if counts.protocol_errors.len() != counts.broken.len() || counts.broken.len() > PROTOCOL_ERRORS + 1 {
        return Err(RecordError::Length("protocol errors"));
    }
    let mut sums = Sums {
        requests,
        succeeded,
        answered,
        bytes,
        body_bytes,
        bytes_sent,
        connects,
        tls_full,
        tls_resumed,
        queued,
        conforming,
        dropped,
        sent_again,
        sent_again_excused,
        surplus,
        // The recorder lets it saturate, and so do those who add it up.
        response_sum,
        warmup,
        ..Sums::default()
    };
    for (place, count) in counts.failures.into_iter().zip(counts.failed) {
        sums.failures.insert(failure(place)?, count);
    }
    for (error, count) in counts.protocol_errors.into_iter().zip(counts.broken) {
        sums.protocol_errors.insert(text(error), count);
    }
    for (status, count) in counts.statuses.into_iter().zip(counts.answers) {
        let status = u16::try_from(status).ok().filter(|status| *status < 600);
        sums.statuses.insert(status.ok_or(RecordError::Unknown("status"))?, count);
    }
    let mut plain = [requests, succeeded, answered, connects, tls_full, tls_resumed, queued, conforming]
        .into_iter()
        .chain([dropped, sent_again, sent_again_excused, surplus, warmup])
        .chain(sums.failures.values().copied())
        .chain(sums.protocol_errors.values().copied())
        .chain(sums.statuses.values().copied());
    if plain.any(|count| count > MOST_COUNT)
        || [bytes, body_bytes, bytes_sent].iter().any(|sum| *sum > MOST_SUM)
    {
        return Err(RecordError::TooLarge("requests"));
    }
    Ok(sums)
}

/// A second of a worker as a message; the worker's number is that of this process.
pub(super) fn delta(sequence: u64, second: &SecondOfWorker) -> Delta {
    let sample = &second.requests;
    let times = [
        &sample.response,
        &sample.expected,
        &sample.service,
        &sample.wait,
        &sample.interrupted,
        &sample.connect,
        &sample.handshake,
        &sample.lateness,
        &sample.speed,
    ];
    let operations = second.operations.iter().map(|tally| Operation {
        ended: tally.ended,
        succeeded: tally.succeeded,
        response: Some(pairs(&tally.response)),
        expected: Some(pairs(&tally.expected)),
        cycles: tally.cycles,
        cycle_due: tally.cycle_due,
        cycle_achieved: tally.cycle_achieved,
        counted_answers: tally.counts.iter().map(|(answers, _)| *answers).collect(),
        counted_elements: tally.counts.iter().map(|(_, elements)| *elements).collect(),
        paced: tally.paced,
        conforming: tally.conforming,
    });
    Delta {
        sequence,
        worker: second.worker,
        second: sample.interval,
        counts: Some(counts(&sample.counts)),
        times: times.into_iter().map(pairs).collect(),
        open: sample.open,
        most_open: sample.most_open,
        cpu: sample.cpu,
        length: sample.length,
        operations: operations.collect(),
        others: second.others,
        others_failed: second.others_failed,
        users: second.users,
        visits: match second.visits {
            none if none == Arrived::default() => Vec::new(),
            Arrived { due, begun, waited, too_late, all_due, all_begun } => {
                vec![due, begun, waited, too_late, all_due, all_begun]
            }
        },
        in_steady: second.throughput.whole,
        in_second_half: second.throughput.second_half,
    }
}

/// A message as a second of a worker; the worker's number becomes that among the workers of all agents.
pub(super) fn second(delta: Delta, bounds: &mut Bounds) -> Result<SecondOfWorker, RecordError> {
    let worker = delta.worker;
    let before = bounds.seconds.get_mut(worker as usize).ok_or(RecordError::Unknown("worker"))?;
    if delta.second != *before || delta.second >= bounds.length {
        return Err(RecordError::Order { worker, told: delta.second, before: *before });
    }
    if delta.operations.len() != bounds.operations.len() {
        return Err(RecordError::Length("operations"));
    }
    if delta.users > bounds.users || delta.open.max(delta.most_open) > bounds.open {
        return Err(RecordError::TooLarge("users"));
    }
    if delta.cpu > MOST_SUM || delta.length > MOST_SUM {
        return Err(RecordError::TooLarge("times"));
    }
    let throughput = Throughput { whole: delta.in_steady, second_half: delta.in_second_half };
    let counts = [delta.others, delta.others_failed, throughput.whole, throughput.second_half];
    if counts.iter().any(|count| *count > MOST_COUNT) {
        return Err(RecordError::TooLarge("operations"));
    }
    let times = <[Pairs; 9]>::try_from(delta.times).map_err(|_| RecordError::Length("histograms"))?;
    let [response, expected, service, wait, interrupted, connect, handshake, lateness, speed] = times;
    let operations = delta.operations.into_iter().zip(&bounds.operations);
    let operations: Result<Vec<Tally>, RecordError> =
        operations.map(|(operation, counts)| tally(operation, *counts)).collect();
    let second = SecondOfWorker {
        worker: bounds.first_worker.saturating_add(worker),
        requests: Sample {
            interval: delta.second,
            counts: sums(delta.counts.unwrap_or_default())?,
            response: histogram(response)?,
            expected: histogram(expected)?,
            service: histogram(service)?,
            wait: histogram(wait)?,
            interrupted: histogram(interrupted)?,
            connect: histogram(connect)?,
            handshake: histogram(handshake)?,
            lateness: histogram(lateness)?,
            speed: histogram(speed)?,
            open: delta.open,
            most_open: delta.most_open,
            cpu: delta.cpu,
            length: delta.length,
        },
        operations: operations?,
        others: delta.others,
        others_failed: delta.others_failed,
        users: delta.users,
        visits: visits(&delta.visits)?,
        throughput,
    };
    *before += 1;
    Ok(second)
}

fn visits(told: &[u64]) -> Result<Arrived, RecordError> {
    let visits = match *told {
        [] => Arrived::default(),
        [due, begun, waited, too_late, all_due, all_begun] => {
            Arrived { due, begun, waited, too_late, all_due, all_begun }
        }
        _ => return Err(RecordError::Length("visits")),
    };
    // One that is begun in this second may have been due in one before, and waits are of those that are begun.
    if visits.all_due > MOST_COUNT
        || visits.all_begun > MOST_COUNT
        || visits.due > visits.all_due
        || visits.begun > visits.all_begun
        || visits.waited > visits.begun
        || visits.too_late > visits.due
    {
        return Err(RecordError::TooLarge("visits"));
    }
    Ok(visits)
}

/// The record of an operation that has so many `count`s.
fn tally(operation: Operation, counts: usize) -> Result<Tally, RecordError> {
    let (answers, elements) = (operation.counted_answers, operation.counted_elements);
    if answers.len() != elements.len() || answers.len() > counts {
        return Err(RecordError::Length("counts"));
    }
    if answers.iter().any(|count| *count > MOST_COUNT) || elements.iter().any(|sum| *sum > MOST_SUM) {
        return Err(RecordError::TooLarge("counts"));
    }

    let counts = [operation.ended, operation.succeeded, operation.cycles, operation.paced];
    if counts.iter().any(|count| *count > MOST_COUNT)
        || operation.succeeded > operation.ended
        || operation.conforming > operation.paced
    {
        return Err(RecordError::TooLarge("operations"));
    }
    Ok(Tally {
        ended: operation.ended,
        succeeded: operation.succeeded,
        response: histogram(operation.response.unwrap_or_default())?,
        expected: histogram(operation.expected.unwrap_or_default())?,
        cycles: operation.cycles,
        cycle_due: operation.cycle_due,
        cycle_achieved: operation.cycle_achieved,
        counts: answers.into_iter().zip(elements).collect(),
        paced: operation.paced,
        conforming: operation.conforming,
    })
}

/// The end of a worker as a message.
pub(super) fn ended(
    (sequence, worker): (u64, u32),
    (gave_up, unsent): (bool, u64),
    failed: Vec<FailedOperation>,
    fault: Option<&io::Error>,
    scenario: &Scenario,
) -> Ended {
    let failed = failed.into_iter().map(|failed| Failed {
        at: failed.at,
        operation: scenario.operation(&failed.operation).unwrap_or(0) as u32,
        user: failed.user,
        request: cut(failed.request),
        failure: place(failed.failure),
        reason: cut(failed.reason),
        answer: failed.answer.map(cut),
    });
    Ended {
        sequence,
        worker,
        gave_up,
        unsent,
        failed: failed.collect(),
        fault: fault.map(ToString::to_string),
    }
}

/// A message as the end of a worker, of which no second comes any more.
pub(super) fn end(ended: Ended, scenario: &Scenario, bounds: &mut Bounds) -> Result<Message, RecordError> {
    let of = bounds.seconds.get_mut(ended.worker as usize).filter(|told| **told != ENDED);
    *of.ok_or(RecordError::Unknown("worker"))? = ENDED;
    if ended.failed.len() > scenario.operations.len().saturating_mul(FAILED_KEPT) {
        return Err(RecordError::Length("failed operations"));
    }
    if ended.unsent > MOST_COUNT {
        return Err(RecordError::TooLarge("operations"));
    }
    let failed: Result<Vec<FailedOperation>, RecordError> = ended
        .failed
        .into_iter()
        .map(|failed| {
            let operation = scenario.operations.get(failed.operation as usize);
            Ok(FailedOperation {
                at: if failed.at.is_finite() { failed.at } else { 0.0 },
                operation: operation.ok_or(RecordError::Unknown("operation"))?.name.clone(),
                user: failed.user,
                request: text(failed.request),
                failure: failure(failed.failure)?,
                reason: text(failed.reason),
                answer: failed.answer.map(text),
            })
        })
        .collect();
    let fault = ended.fault.map(|fault| io::Error::other(text(fault)));
    let worker = bounds.first_worker.saturating_add(ended.worker);
    Ok(Message::End { worker, gave_up: ended.gave_up, unsent: ended.unsent, failed: failed?, fault })
}

/// Figures of the agent's machine by name, of a run of so many seconds at most.
pub(super) fn figures(figures: Figures, length: u32) -> Result<crate::systems::Figures, RecordError> {
    const FIGURE: &str = "figures of its machine";
    if figures.names.len() != figures.values.len() || figures.names.len() > FIGURES {
        return Err(RecordError::Length(FIGURE));
    }
    if figures.at > u64::from(length).saturating_mul(1_000_000_000) {
        return Err(RecordError::TooLarge("seconds"));
    }
    if !figures.names.iter().all(|name| is_name(name)) {
        return Err(RecordError::Unknown("figure"));
    }
    if !figures.values.iter().all(|value| value.is_finite()) {
        return Err(RecordError::TooLarge(FIGURE));
    }
    Ok(figures.names.into_iter().zip(figures.values).collect())
}

/// At most 4 KiB of a text.
fn cut(mut text: String) -> String {
    let mut end = text.len().min(MOST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// A text of another machine, for a terminal: one line, nothing that moves a cursor.
pub(super) fn text(text: String) -> String {
    let clean: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    cut(clean)
}

impl Totals {
    /// Adds a second that was told. `None` where it is more than a run of one agent can have.
    pub(super) fn add(&mut self, second: &SecondOfWorker) -> Option<()> {
        let of = |number: fn(&Tally) -> u64| second.operations.iter().map(number).sum::<u64>();
        let times = |tally: &Tally| tally.response.iter().map(|(_, count)| *count).sum();
        for (total, part) in [
            (&mut self.frames, 1),
            (&mut self.requests, second.requests.counts.requests),
            (&mut self.operations, of(|tally| tally.ended)),
            (&mut self.succeeded, of(|tally| tally.succeeded)),
            (&mut self.times, of(times)),
            (&mut self.others, second.others),
            (&mut self.bytes, second.requests.counts.bytes),
        ] {
            *total = total.checked_add(part).filter(|sum| *sum <= MOST_TOTAL)?;
        }
        Some(())
    }

    /// What differs, in words.
    pub(super) fn difference(&self, told: &Totals) -> Option<String> {
        let table = [
            ("messages", self.frames, told.frames),
            ("requests", self.requests, told.requests),
            ("operations", self.operations, told.operations),
            ("operations that succeeded", self.succeeded, told.succeeded),
            ("response times", self.times, told.times),
            ("operations outside of the steady time", self.others, told.others),
            ("bytes", self.bytes, told.bytes),
        ];
        let (name, added, told) = table.into_iter().find(|(_, added, told)| added != told)?;
        Some(format!("it says {told} {name}, and its seconds add up to {added}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::record::Times;
    use crate::scenario::{Gathering, load_text, observe_nothing};
    use proptest::prelude::*;
    use prost::Message as _;
    use std::path::Path;
    use tidegate_config::ProcessEnvironment;

    pub(crate) fn scenario() -> Scenario {
        let text = "target \"http://127.0.0.1:1\"\nusers 30 { steady \"5s\" }\nthink fixed \"1s\"\n\
                    mix { a 1; b 1 }\nop a { get \"/\" }\nop b { get \"/\" }\n";
        load_text("test", text, Path::new("."), &ProcessEnvironment).scenario.unwrap()
    }

    fn bounds(threads: usize, first_worker: u32) -> Bounds {
        let seconds = vec![0; threads];
        Bounds { first_worker, seconds, operations: vec![1; 2], users: 30, open: 100, length: 100 }
    }

    fn made_up(random: &mut Random, worker: u32, interval: u32) -> SecondOfWorker {
        let mut histogram = |most: usize| {
            let mut times = Times::default();
            for _ in 0..random.below(most) {
                times.record(random.below(2_000_000_000) as u64);
            }
            times.take()
        };
        let mut sample = Sample {
            interval,
            response: histogram(50),
            expected: histogram(50),
            service: histogram(50),
            wait: histogram(50),
            interrupted: histogram(5),
            connect: histogram(5),
            handshake: histogram(5),
            lateness: histogram(50),
            speed: histogram(3),
            open: 7,
            most_open: 11,
            cpu: 1_000,
            length: 1_000_000_000,
            ..Sample::default()
        };
        let operations = (0..2)
            .map(|_| {
                let (response, expected) = (histogram(20), histogram(20));
                let succeeded = expected.iter().map(|(_, count)| count).sum();
                Tally {
                    ended: succeeded + 1,
                    succeeded,
                    response,
                    expected,
                    cycles: 3,
                    cycle_due: 9,
                    cycle_achieved: 8,
                    counts: vec![(2, 7)],
                    paced: 5,
                    conforming: 4,
                }
            })
            .collect();
        let counts = &mut sample.counts;
        counts.requests = random.below(1_000) as u64;
        counts.bytes = random.below(1_000_000) as u64;
        counts.statuses.insert(200, random.below(1_000) as u64);
        counts.failures.insert(Failure::Timeout, random.below(10) as u64);
        counts.protocol_errors.insert("PING frame on a stream".to_owned(), random.below(10) as u64);
        let (others, others_failed) = (random.below(9) as u64, random.below(2) as u64);
        let begun = random.below(9) as u64;
        let visits = Arrived { due: 9, begun, waited: 0, too_late: 1, all_due: 12, all_begun: begun + 2 };
        let throughput = Throughput { whole: 8, second_half: random.below(9) as u64 };
        SecondOfWorker {
            worker,
            requests: sample,
            operations,
            others,
            others_failed,
            users: 3,
            visits,
            throughput,
        }
    }

    /// A record with its histograms in order.
    fn sorted(mut outcome: crate::scenario::record::Outcome) -> String {
        let merged = |pairs: &mut Histogram| {
            let mut times = Times::default();
            times.add(pairs);
            *pairs = times.take();
        };
        for second in &mut outcome.seconds {
            let requests = &mut second.requests;
            for pairs in [
                &mut requests.response,
                &mut requests.expected,
                &mut requests.service,
                &mut requests.wait,
                &mut requests.interrupted,
                &mut requests.connect,
                &mut requests.handshake,
                &mut requests.lateness,
                &mut requests.speed,
            ] {
                merged(pairs);
            }
            for tally in &mut second.operations {
                merged(&mut tally.response);
                merged(&mut tally.expected);
            }
        }
        format!("{:?} {:?} {}", outcome.seconds, outcome.failed, outcome.unsent)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// What six workers of one process tell is, as messages of three agents with two each, the same record, bucket by
        /// bucket; and the totals are those of the deltas.
        #[test]
        fn three_agents_are_one(seed in any::<u64>(), seconds in 1u32..5) {
            let scenario = scenario();
            let mut random = Random::new(seed, 1);
            let mut one = Gathering::new(&scenario, 6, 0.0, observe_nothing);
            let mut three = Gathering::new(&scenario, 6, 0.0, observe_nothing);
            let mut agents: Vec<Bounds> = (0..3).map(|agent| bounds(2, agent * 2)).collect();
            let mut totals = [(Totals::default(), Totals::default()); 3];
            for interval in 0..seconds {
                for worker in 0..6 {
                    let mut told = made_up(&mut random, worker, interval);
                    let agent = (worker / 2) as usize;
                    one.take(Message::Second(Box::new(told.clone())));
                    told.worker = worker % 2;
                    let bytes = delta(0, &told).encode_to_vec();
                    let arrived = second(Delta::decode(&bytes[..]).unwrap(), &mut agents[agent]).unwrap();
                    totals[agent].0.add(&told).unwrap();
                    totals[agent].1.add(&arrived).unwrap();
                    three.take(Message::Second(Box::new(arrived)));
                }
            }
            for (told, arrived) in totals {
                prop_assert_eq!(arrived.difference(&told), None);
            }
            let (one, three) = (one.finish(&scenario, false, false), three.finish(&scenario, false, false));
            prop_assert_eq!(sorted(one), sorted(three));
        }

        /// Whatever bytes an agent sends: an error, and no panic.
        #[test]
        fn bytes_of_anybody(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let scenario = scenario();
            if let Ok(delta) = Delta::decode(&bytes[..]) {
                let _ = second(delta, &mut bounds(1, 0)).map(|second| Totals::default().add(&second));
            }
            if let Ok(ended) = Ended::decode(&bytes[..]) {
                let _ = end(ended, &scenario, &mut bounds(1, 0));
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = delta(0, &made_up(&mut Random::new(1, 1), 0, 0));
        type Row = (&'static str, fn(&mut Delta), RecordError);
        let table: [Row; 18] = [
            ("worker", |delta| delta.worker = 1, RecordError::Unknown("worker")),
            ("second", |delta| delta.second = 1, RecordError::Order { worker: 0, told: 1, before: 0 }),
            ("operations", |delta| delta.operations.clear(), RecordError::Length("operations")),
            (
                "more counts than the scenario has",
                |delta| {
                    delta.operations[0].counted_answers.push(1);
                    delta.operations[0].counted_elements.push(1);
                },
                RecordError::Length("counts"),
            ),
            (
                "elements",
                |delta| delta.operations[0].counted_elements[0] = u64::MAX,
                RecordError::TooLarge("counts"),
            ),
            ("users", |delta| delta.users = 31, RecordError::TooLarge("users")),
            ("visits", |delta| delta.visits.push(1), RecordError::Length("visits")),
            (
                "more visits of a part than of all",
                |delta| delta.visits[5] = 0,
                RecordError::TooLarge("visits"),
            ),
            ("more waits than visits", |delta| delta.visits[2] = 10, RecordError::TooLarge("visits")),
            ("open", |delta| delta.open = u32::MAX, RecordError::TooLarge("users")),
            ("most open", |delta| delta.most_open = u32::MAX, RecordError::TooLarge("users")),
            ("cpu", |delta| delta.cpu = u64::MAX, RecordError::TooLarge("times")),
            ("counts", |delta| delta.counts = None, RecordError::Length("sums")),
            ("histograms", |delta| delta.times.truncate(8), RecordError::Length("histograms")),
            ("pairs", |delta| delta.times[0].values.push(1), RecordError::Length("histogram")),
            (
                "values",
                |delta| delta.times[0] = Pairs { values: vec![u64::MAX], counts: vec![1] },
                RecordError::TooLarge("histogram"),
            ),
            (
                "conforming",
                |delta| delta.operations[0].conforming = delta.operations[0].paced + 1,
                RecordError::TooLarge("operations"),
            ),
            (
                "succeeded",
                |delta| delta.operations[0].succeeded = delta.operations[0].ended + 1,
                RecordError::TooLarge("operations"),
            ),
        ];
        assert!(second(good.clone(), &mut bounds(1, 0)).is_ok());
        for (name, change, expected) in table {
            let mut delta = good.clone();
            change(&mut delta);
            assert_eq!(second(delta, &mut bounds(1, 0)).err(), Some(expected), "{name}");
        }
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let good = Figures { sequence: 0, at: 5, names: vec!["cpu.0.idle_share".into()], values: vec![0.5] };
        assert_eq!(figures(good.clone(), 10), Ok(vec![("cpu.0.idle_share".to_owned(), 0.5)]));
        let no_name = RecordError::Unknown("figure");
        type Row = (&'static str, fn(&mut Figures), RecordError);
        let table: [Row; 6] = [
            ("no value", |told| told.values.clear(), RecordError::Length("figures of its machine")),
            (
                "too many",
                |told| (told.names, told.values) = (vec!["a".into(); 2_000], vec![1.0; 2_000]),
                RecordError::Length("figures of its machine"),
            ),
            ("late", |told| told.at = u64::MAX, RecordError::TooLarge("seconds")),
            ("a line of a table", |told| told.names = vec!["a\n1,2".into()], no_name),
            ("no name", |told| told.names = vec![String::new()], RecordError::Unknown("figure")),
            (
                "not a number",
                |told| told.values = vec![f64::NAN],
                RecordError::TooLarge("figures of its machine"),
            ),
        ];
        for (name, change, expected) in table {
            let mut told = good.clone();
            change(&mut told);
            assert_eq!(figures(told, 10).err(), Some(expected), "{name}");
        }
    }

    #[test]
    fn totals_that_differ_are_said() {
        let mut added = Totals::default();
        added.add(&made_up(&mut Random::new(3, 1), 0, 0)).unwrap();
        assert_eq!(added.difference(&added), None);
        let told = Totals { operations: added.operations + 2, ..added };
        let sentence = added.difference(&told).unwrap();
        assert!(sentence.contains("operations, and its seconds add up to"), "{sentence}");
        let mut full = Totals { bytes: u64::MAX, ..Totals::default() };
        assert_eq!(full.add(&made_up(&mut Random::new(3, 1), 0, 0)), None);
    }
}
