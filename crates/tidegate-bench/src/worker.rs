//! One thread of the generator: its own reactor, its share of connections, requests and arrivals.
//!
//! Workers share the plan, the number of requests left and a flag; each hands its records to the collector
//! (`run.rs`) at the end of every interval. Per request there is one `send`, one `recv`, one clock read and no
//! allocation; connections are registered once. Intended starts come from the schedule and a `timerfd`.

mod drive;
mod gather;
mod source;
mod streams;

pub(crate) use source::Claims;

use crate::clock::{Alarm, TICK, Wheel, monotonic_ns, ns, thread_cpu};
use crate::connection::{Asked, Budget, Channel, Connection, Exchange};
use crate::http2::{Session, Stream};
use crate::plan::{Load, Plan};
use crate::random::Random;
use crate::record::{FAILED_KEPT, FailedExchange, Failure, Recorder, Sample, Waited};
use crate::request::Prepared;
use crate::schedule::Schedule;
use gather::Gather;
use source::Source;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use tidegate_io::connect::{Connecting, connect};
use tidegate_io::{Key, Kind, Poller, Ready, Registry, Slab};
use tidegate_tls::ClientSession;
use tidegate_wire::h2::Section;

/// Connects that may be under way at once, so that a listen queue of ordinary length holds them.
const CONNECTING_AT_ONCE: u32 = 256;

/// Bytes for one `recv`. Only what is copied into is resident: bodies that nobody reads are discarded.
const BUFFER: usize = 256 << 10;

/// What all workers of a run share.
pub(crate) struct Shared {
    pub plan: Plan,
    /// Monotonic nanoseconds of the beginning: the zero of the schedule and of intervals.
    pub start: u64,
    pub claims: Claims,
    /// Somebody wants the run to end now.
    pub stop: AtomicBool,
}

/// What a worker tells the collector.
pub(crate) enum Message {
    /// The records of an interval.
    Sample { worker: u32, sample: Box<Sample> },
    /// Requests of the mix with a CRC-32 of their bodies, and how many had it, where all are to be compared.
    Digests(HashMap<(u32, u32), u64>),
    /// The first that failed.
    Failed(Vec<FailedExchange>),
    /// It has ended.
    End {
        gave_up: bool,
        /// Of the last answer, or of the last request that was given up, as far as that was before the end of the time of the load; of the end
        /// where there was none.
        last: u64,
        /// When the last request ended.
        last_end: u64,
        fault: Option<io::Error>,
    },
}

/// A thread's state.
pub(crate) struct Worker<'s> {
    shared: &'s Shared,
    plan: &'s Plan,
    number: u32,
    collector: Sender<Message>,
    poller: Poller,
    registry: Registry,
    ready: Vec<Ready>,
    alarm: Alarm,
    wheel: Wheel,
    expired: Vec<u32>,
    connections: Slab<Connection>,
    connecting: u32,
    /// Connections without work, the longest idle first (open loop). With HTTP/2, those with room.
    idle: VecDeque<Key>,
    /// When connections that ended or never began are to be opened (closed loop).
    resting: VecDeque<u64>,
    source: Source<'s>,
    /// Connections that were interrupted while there was more to read.
    more: Vec<Key>,
    /// Exchanges begun and not ended.
    outstanding: u64,
    /// Exchanges answered.
    answered: u64,
    gather: Gather,
    recorder: Recorder,
    digests: HashMap<(u32, u32), u64>,
    failed: Vec<FailedExchange>,
    buffer: Vec<u8>,
    /// The head that was read last (HTTP/2).
    section: Section,
    random: Random,
    opened: u64,
    interval: u64,
    interval_number: u32,
    interval_began: u64,
    cpu: Duration,
    last_answer: u64,
    /// When a request ended last that got no answer.
    last_given_up: u64,
    failures_in_a_row: u32,
    has_connect_failure: bool,
    has_given_up: bool,
    has_answer: bool,
    /// Monotonic nanoseconds at which no request starts any more.
    end: u64,
    /// When outstanding answers are no longer waited for.
    cut: u64,
    is_stopping: bool,
}

/// Runs one worker to its end.
pub(crate) fn run(shared: &Shared, number: u32, collector: Sender<Message>) {
    let report = collector.clone();
    let end = match Worker::new(shared, number, collector) {
        Ok(mut worker) => {
            let fault = worker.run().err();
            worker.finish();
            let last_end = worker.last_answer.max(worker.last_given_up);
            let last = match (worker.has_answer, worker.has_given_up) {
                (false, _) => monotonic_ns(),
                (true, true) => worker.last_answer,
                (true, false) => worker.last_answer.max(worker.last_given_up.min(worker.end)),
            };
            Message::End { gave_up: worker.has_given_up, last, last_end, fault }
        }
        Err(error) => Message::End { gave_up: false, last: 0, last_end: 0, fault: Some(error) },
    };
    // A collector that has gone away has lost interest.
    let _ = report.send(end);
}

impl<'s> Worker<'s> {
    fn new(shared: &'s Shared, number: u32, collector: Sender<Message>) -> io::Result<Self> {
        let plan = &shared.plan;
        let poller = Poller::new()?;
        let registry = poller.registry()?;
        let schedule = match plan.load {
            Load::Closed => None,
            Load::Open { rate, arrivals } => Some(Schedule::new(
                arrivals,
                rate,
                plan.global_number(number),
                plan.global_threads(),
                plan.seed,
            )),
        };
        let rate = match plan.load {
            Load::Closed => 0.0,
            Load::Open { rate, .. } => rate / f64::from(plan.global_threads().max(1)),
        };
        let end = plan.time.map_or(u64::MAX, |time| shared.start.saturating_add(ns(time + plan.warmup)));
        Ok(Worker {
            shared,
            plan,
            number,
            collector,
            poller,
            registry,
            ready: Vec::with_capacity(512),
            alarm: Alarm::new(rate)?,
            wheel: Wheel::default(),
            expired: Vec::new(),
            connections: Slab::default(),
            connecting: 0,
            idle: VecDeque::new(),
            resting: VecDeque::new(),
            source: Source::new(plan, &shared.claims, schedule, number, shared.start),
            more: Vec::new(),
            outstanding: 0,
            answered: 0,
            gather: Gather::default(),
            recorder: Recorder::new(),
            digests: HashMap::new(),
            failed: Vec::new(),
            buffer: vec![0; BUFFER],
            section: Section::new(),
            random: Random::new(plan.seed, u64::from(plan.global_number(number)) + 1_000),
            opened: u64::from(plan.global_number(number)),
            interval: ns(plan.interval()),
            interval_number: 0,
            interval_began: shared.start,
            cpu: Duration::ZERO,
            last_answer: shared.start,
            last_given_up: shared.start,
            failures_in_a_row: 0,
            has_connect_failure: false,
            has_given_up: false,
            has_answer: false,
            end,
            cut: u64::MAX,
            is_stopping: false,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        // Any slab key will do for the alarm: its kind tells it apart.
        let alarm = Slab::default().insert(());
        self.registry.add_readable(self.alarm.as_fd(), Kind::Io, alarm)?;
        self.begin();
        // Sleeps are short: the 50 µs by which timers may be late would be longer. What cannot be set is as it was.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut woken = monotonic_ns();
        loop {
            let now = monotonic_ns();
            self.turn(now);
            if self.is_over(now) {
                return Ok(());
            }
            let timeout = self.patience(now);
            let next = self.source.next_start();
            if next != u64::MAX && !timeout.is_zero() {
                self.alarm.set(next, now)?;
            }
            if let Some(rest) =
                self.sleep_first(now, now.saturating_sub(woken)).filter(|rest| *rest < timeout)
            {
                thread::park_timeout(rest); // nobody unparks it
            }
            let mut ready = std::mem::take(&mut self.ready);
            ready.clear();
            let waited = self.poller.wait(Some(timeout), &mut ready);
            woken = monotonic_ns();
            for event in &ready {
                if event.kind() == Kind::Connection {
                    let now = self.on_event(event);
                    if now >= self.source.next_start() {
                        self.take_arrivals(now);
                    }
                }
            }
            self.ready = ready;
            for key in std::mem::take(&mut self.more) {
                self.read(key);
            }
            waited?;
        }
    }

    /// Plans the opening of all connections.
    fn begin(&mut self) {
        self.cpu = thread_cpu();
        let count = self.plan.connections_of(self.number);
        let is_open = matches!(self.plan.load, Load::Open { .. });
        // Open loops with kept connections have them ready when the schedule begins; without, each arrival
        // opens its own.
        if is_open && !self.plan.keep_alive {
            return;
        }
        let first = if is_open { monotonic_ns() } else { self.shared.start };
        let step = ns(self.plan.ramp) / u64::from(count.max(1));
        self.resting.extend((0..u64::from(count)).map(|number| first.saturating_add(number * step)));
    }

    /// All that time brings.
    fn turn(&mut self, now: u64) {
        // Arrivals that are due come before the end, else a late worker would lose its last ones.
        self.take_arrivals(now);
        if !self.is_stopping && (now >= self.end || self.is_interrupted() || self.has_run_dry()) {
            self.stop(now);
        }
        self.open_rested(now);
        let tick = (now.saturating_sub(self.shared.start) / TICK) as u32;
        let mut expired = std::mem::take(&mut self.expired);
        self.wheel.advance(tick, &mut expired);
        for index in expired.drain(..) {
            self.on_timer(index, now);
        }
        self.expired = expired;
        while now >= self.interval_end() {
            self.hand_over(self.interval_end());
        }
        self.give_up_if_hopeless(now);
    }

    /// Whether somebody wants the run to end now.
    fn is_interrupted(&self) -> bool {
        self.shared.stop.load(Relaxed)
    }

    /// Whether nothing is left to start.
    fn has_run_dry(&self) -> bool {
        let are_lanes_over = self.plan.is_once && self.resting.is_empty() && self.outstanding == 0;
        are_lanes_over || self.source.is_exhausted()
    }

    fn interval_end(&self) -> u64 {
        self.shared.start.saturating_add(self.interval * (u64::from(self.interval_number) + 1))
    }

    /// How long to sleep first, so that several answers are there (see `gather`).
    fn sleep_first(&mut self, now: u64, busy: u64) -> Option<Duration> {
        let rest = self.gather.rest(now, busy, self.answered, self.outstanding);
        rest.filter(|_| matches!(self.plan.load, Load::Closed) && !self.is_stopping && self.more.is_empty())
    }

    /// How long to wait for events at most.
    fn patience(&mut self, now: u64) -> Duration {
        if !self.more.is_empty() {
            return Duration::ZERO;
        }
        let mut until = self.interval_end().min(if self.is_stopping { self.cut } else { self.end });
        if self.connecting < CONNECTING_AT_ONCE {
            until = until.min(self.resting.front().copied().unwrap_or(u64::MAX));
        }
        if let Some(ticks) = self.wheel.next() {
            let tick = now.saturating_sub(self.shared.start) / TICK + u64::from(ticks);
            until = until.min(self.shared.start.saturating_add(tick * TICK));
        }
        Duration::from_nanos(until.saturating_sub(now))
    }

    /// From here on nothing starts; what is outstanding may end.
    fn stop(&mut self, now: u64) {
        self.is_stopping = true;
        self.source.stop();
        // Who has sent all that was wanted waits for all of it: each request has its own timeout.
        self.cut = self.end.max(now).saturating_add(ns(self.plan.drain));
        if self.source.waiting() == 0 {
            self.resting.clear();
        }
        for key in self.connections.keys().collect::<Vec<_>>() {
            let is_free = self.connections.get(key).is_some_and(|connection| connection.under_way() == 0);
            if is_free {
                self.remove(key);
            }
        }
    }

    fn is_over(&self, now: u64) -> bool {
        let is_cut = now >= self.cut || self.is_interrupted();
        self.is_stopping && (is_cut || (self.outstanding == 0 && self.source.waiting() == 0))
    }

    /// What is left at the end is counted, and the last interval handed over.
    fn finish(&mut self) {
        let now = monotonic_ns();
        for key in self.connections.keys().collect::<Vec<_>>() {
            let Some(mut connection) = self.connections.remove(key) else { continue };
            self.give_up_all(&mut connection, Failure::Unanswered, now);
        }
        while let Some((intended, request)) = self.source.take_unsent() {
            let exchange = Exchange { intended, sent: now, request, attempts: 0 };
            self.give_up(GivenUp::unsent(exchange), Failure::Unsent, now);
        }
        self.hand_over(now);
        if !self.digests.is_empty() {
            let _ = self.collector.send(Message::Digests(std::mem::take(&mut self.digests)));
        }
        if !self.failed.is_empty() {
            let _ = self.collector.send(Message::Failed(std::mem::take(&mut self.failed)));
        }
    }

    fn hand_over(&mut self, at: u64) {
        let cpu = thread_cpu();
        let mut sample = self.recorder.take();
        sample.interval = self.interval_number;
        sample.cpu = ns(cpu.saturating_sub(self.cpu));
        sample.length = at.saturating_sub(self.interval_began);
        self.cpu = cpu;
        self.interval_began = at;
        self.interval_number += 1;
        let message = Message::Sample { worker: self.number, sample: Box::new(sample) };
        if self.collector.send(message).is_err() {
            self.shared.stop.store(true, Relaxed);
        }
    }

    /// A target that died is left after a while, so that what was measured before is not drowned.
    fn give_up_if_hopeless(&mut self, now: u64) {
        let silence = now.saturating_sub(self.last_answer);
        if !self.is_stopping && self.has_connect_failure && silence > ns(self.plan.give_up) {
            self.has_given_up = true;
            self.stop(now);
            self.cut = now;
        }
    }

    // ------------------------------------------------------------ opening and closing

    /// Opens connections whose time has come.
    fn open_rested(&mut self, now: u64) {
        while self.connecting < CONNECTING_AT_ONCE && self.resting.front().is_some_and(|at| *at <= now) {
            self.resting.pop_front();
            if matches!(self.plan.load, Load::Open { .. }) {
                // Arrivals that waited may have opened its successor by now.
                let has_room = (self.connections.len() as u32) < self.plan.connections_of(self.number);
                if !self.is_stopping && has_room {
                    self.open(None, now);
                }
            } else if let Some(exchange) = self.source.next(now) {
                self.outstanding += 1;
                self.open(Some(exchange), now);
            }
        }
    }

    /// Opens a connection, with the request that it is for.
    fn open(&mut self, exchange: Option<Exchange>, now: u64) {
        let mix = &self.plan.mix;
        let request = exchange.map_or(0, |exchange| exchange.request);
        let server_number = mix.prepared.get(request as usize).map_or(0, |request| request.server);
        let Some(server) = mix.servers.get(server_number as usize) else { return };
        let turn = self.opened;
        self.opened += u64::from(self.plan.global_threads());
        let pick = |count: usize| (turn % count.max(1) as u64) as usize;
        let Some(address) = server.addresses.get(pick(server.addresses.len())) else { return };
        let source = self.plan.sources.get(pick(self.plan.sources.len())).map(|ip| SocketAddr::new(*ip, 0));
        let opened = connect(address, source).and_then(|(stream, connecting)| {
            if let Some(size) = self.plan.receive_buffer {
                rustix::net::sockopt::set_socket_recv_buffer_size(stream.as_fd(), size as usize)?;
            }
            Ok((stream, connecting))
        });
        let (stream, connecting) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.connect_failed(exchange, &error, now),
        };
        let channel = match (&server.tls_name, &self.plan.tls) {
            (Some(name), Some(tls)) => {
                let connector = if self.random.unit() < tls.resumes { &tls.resuming } else { &tls.fresh };
                match ClientSession::new(connector, name.clone()) {
                    Ok(session) => Channel::with_tls(stream, session),
                    Err(error) => return self.connect_failed(exchange, &error.into(), now),
                }
            }
            _ => Channel::new(stream),
        };
        let mut connection = Connection::new(channel, server_number, now);
        connection.reader.is_http10 = self.plan.is_http10;
        if let Some(pace) = self.plan.slow_readers.filter(|pace| self.random.unit() <= pace.share) {
            connection.read_budget = Some(Box::new(Budget::new(pace.rate, now)));
        }
        if let Some(pace) = self.plan.slow_writers.filter(|pace| self.random.unit() <= pace.share) {
            connection.write_budget = Some(Box::new(Budget::new(pace.rate, now)));
        }
        if let Some(exchange) = exchange {
            connection.push(exchange);
        }
        if self.plan.streams.is_some() {
            connection.session = Some(Box::new(Session::new()));
            connection.unsent = 0;
        }
        connection.deadline = now.saturating_add(ns(self.plan.timeout));
        let key = self.connections.insert(connection);
        self.connecting += 1;
        let Some(connection) = self.connections.get(key) else { return };
        if let Err(error) = self.registry.add(connection.channel.as_fd(), Kind::Connection, key) {
            self.connections.remove(key);
            self.connecting -= 1;
            return self.connect_failed(exchange, &error, now);
        }
        self.wheel.arm(key.index(), self.plan.timeout);
        // On the loopback interface the connection is open by now, and the request can go at once.
        if connecting == Connecting::Done || exchange.is_some() {
            self.try_connected(key, connecting == Connecting::Done, now);
        }
    }

    /// A connect failed; the request that it was for with it.
    fn connect_failed(&mut self, exchange: Option<Exchange>, error: &io::Error, now: u64) {
        self.has_connect_failure = true;
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if let Some(exchange) = exchange {
            self.outstanding -= 1;
            self.give_up(GivenUp::unsent(exchange), connect_failure(error), now);
        }
        self.rest(now);
    }

    /// Keeps a request that failed for the report, if it is among the first.
    #[cold]
    fn keep_failed(&mut self, request: u32, failure: Failure, status: Option<u16>, now: u64) {
        if self.failed.len() >= FAILED_KEPT {
            return;
        }
        let prepared = self.plan.mix.prepared.get(request as usize);
        self.failed.push(FailedExchange {
            at: now.saturating_sub(self.shared.start) as f64 / 1e9,
            request: prepared.map(Prepared::line).unwrap_or_default(),
            failure,
            status,
            answer: None,
        });
    }

    /// A request has ended without a complete answer: it has failed, and counts with the time that it was waited for. Where somebody has
    /// interrupted the run nobody has failed.
    fn give_up(&mut self, request: GivenUp, failure: Failure, now: u64) {
        let is_interrupted =
            matches!(failure, Failure::Unsent | Failure::Unanswered) && self.is_interrupted();
        if !is_interrupted {
            self.last_given_up = now;
        }
        if !self.source.counts(request.intended) {
            self.recorder.counts.warmup += u64::from(!is_interrupted);
            return;
        }
        if is_interrupted && !request.is_counted {
            return self.recorder.interrupted(now.saturating_sub(request.intended));
        }
        let GivenUp { intended, sent, first_byte, .. } = request;
        self.recorder.gave_up(Waited { intended, sent, first_byte, until: now });
        if !request.is_counted {
            self.recorder.fail(failure, 1);
            self.keep_failed(request.request, failure, None, now);
        }
    }

    /// Gives up all that is under way on a connection that is gone.
    fn give_up_all(&mut self, connection: &mut Connection, failure: Failure, now: u64) {
        let is_sent = connection.is_connected && !connection.channel.is_handshaking();
        let streams = connection.session.iter_mut().flat_map(|session| session.take_all(|_| true));
        for stream in streams {
            self.give_up(GivenUp::stream(&stream), failure, now);
        }
        let has_begun = !connection.reader.is_between();
        let check = connection.check.take();
        for (place, exchange) in connection.in_flight.drain(..).enumerate() {
            let is_front = place == 0;
            let given_up = GivenUp {
                sent: Some(exchange.sent).filter(|_| is_sent && connection.session.is_none()),
                first_byte: Some(connection.first_byte).filter(|_| is_front && has_begun),
                // One whose answer was wrong already has failed for that.
                is_counted: is_front && check.as_ref().is_some_and(|check| check.is_counted),
                ..GivenUp::unsent(exchange)
            };
            self.give_up(given_up, failure, now);
        }
    }

    /// Plans to open a connection in place of one that ended.
    fn rest(&mut self, now: u64) {
        if self.plan.is_once
            || self.is_stopping
            || (matches!(self.plan.load, Load::Open { .. }) && !self.plan.keep_alive)
        {
            return;
        }
        // Nobody hammers a server that refuses everybody: once each connection has failed, they wait, longer
        // each time and a second at most.
        let rounds = self.failures_in_a_row / self.plan.connections_of(self.number).max(1);
        let wait = if rounds == 0 { 0 } else { (10_000_000u64 << rounds.min(7)).min(1_000_000_000) };
        self.resting.push_back(now.saturating_add(wait));
    }

    /// Takes a connection out, with whatever it was doing.
    fn remove(&mut self, key: Key) -> Option<Connection> {
        self.wheel.cancel(key.index());
        let connection = self.connections.remove(key)?;
        if connection.is_connected {
            self.recorder.disconnected();
        } else {
            self.connecting -= 1;
        }
        Some(connection)
    }

    /// Ends a connection and everything in flight on it, and plans its successor.
    fn fail(&mut self, key: Key, failure: Failure, now: u64) {
        let Some(mut connection) = self.remove(key) else { return };
        connection.channel.reset_on_close();
        let count = connection.under_way() as u64;
        self.outstanding -= count;
        self.give_up_all(&mut connection, failure, now);
        if !connection.is_connected {
            self.has_connect_failure = true;
        }
        if count > 0 {
            self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        }
        let is_held = self.plan.is_idle && connection.is_connected && count == 0;
        drop(connection);
        if is_held {
            // It was to stay idle, and gets no successor (see `drop_idle`). Bytes that nobody asked for are counted by themselves.
            let is_dropped = failure != Failure::Malformed && !self.is_stopping;
            self.recorder.counts.dropped += u64::from(is_dropped);
            return;
        }
        self.rest(now);
        self.serve_waiting(now);
    }
}

/// A request that has got no complete answer.
struct GivenUp {
    intended: u64,
    /// When its first byte was sent, if it was.
    sent: Option<u64>,
    /// When its answer began, if it did.
    first_byte: Option<u64>,
    /// Its number in the mix.
    request: u32,
    /// It has been counted as failed already, for what had come of its answer.
    is_counted: bool,
}

impl GivenUp {
    fn unsent(Exchange { intended, request, .. }: Exchange) -> GivenUp {
        GivenUp { intended, sent: None, first_byte: None, request, is_counted: false }
    }

    fn stream(stream: &Stream<Asked>) -> GivenUp {
        let exchange = stream.carried.exchange;
        let first_byte = Some(stream.first_byte).filter(|_| stream.status != 0);
        GivenUp { sent: Some(exchange.sent), first_byte, ..GivenUp::unsent(exchange) }
    }
}

/// The kind of failure that the system's answer to a connect is.
pub(crate) fn connect_failure(error: &io::Error) -> Failure {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED) => Failure::Refused,
        Some(Errno::TIMEDOUT) => Failure::ConnectTimeout,
        Some(Errno::CONNRESET | Errno::PIPE) => Failure::Reset,
        Some(Errno::MFILE | Errno::NFILE) => Failure::Descriptors,
        Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => Failure::Ports,
        None if error.kind() == io::ErrorKind::InvalidData => Failure::Tls,
        _ => Failure::Connect,
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use crate::request::{Description, Mix};
    use crate::run::{Stop, run};
    use crate::target::Url;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    /// Answers that began in the warm-up and end behind it.
    #[test]
    fn bytes_of_the_warm_up_are_not_counted() {
        const SIZE: usize = 100_000;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    let mut is_first = true;
                    while lines.by_ref().map_while(Result::ok).any(|line| line.is_empty()) {
                        if std::mem::take(&mut is_first) {
                            thread::park_timeout(Duration::from_millis(1500)); // nobody unparks it
                        }
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
                        let _ = stream.write_all(&[head.as_bytes(), &[b'x'; SIZE][..]].concat());
                    }
                });
            }
        });
        let mix = Mix::build(&[Description::get(Url::parse(&url).unwrap())], true, None).unwrap();
        let warmup = Duration::from_secs(1);
        let plan = Plan { warmup, requests: Some(8), connections: 4, threads: 1, ..Plan::new(mix) };
        let request = plan.mix.prepared[0].bytes.len() as u64;
        let outcome = run(plan, &Stop::default(), |_| {}).unwrap();
        let counts = outcome.totals().counts;
        assert!(counts.warmup >= 4 && counts.warmup_bytes > 0, "{counts:?}");
        assert_eq!((counts.answered, counts.body_bytes), (8, 8 * SIZE as u64));
        assert_eq!(counts.bytes_sent, 8 * request);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".len();
        assert_eq!(counts.bytes, 8 * (SIZE + head) as u64);
    }
}
