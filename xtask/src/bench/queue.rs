//! `cargo xtask bench queue`: a thousand clients before eight workers of an application that take 20 ms each,
//! beside nginx, lighttpd and HAProxy.
//!
//! The workers serve one connection at a time, as the children of php-fpm do, so the most that can be answered is
//! known: 400 requests a second. Clients are a closed loop. With a queue that holds them all every request is
//! answered, at that rate; with a shorter one what cannot be answered in time is told so, by 503 with
//! `Retry-After`, and the others do not wait longer than the queue lets them. The servers take turns, each with
//! an application of its own, on the generator's processor and before the generator there.
//!
//! Then bursts: the same crowd for a while, and a few clients for as long, in turn. In a burst the promises are the
//! same, and between them nobody may notice that there has been one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::gateway::Workload;
use super::gateway_peers::{self, Application, Peer, Process, Queue, ask};
use super::generator::{self, Latency, Load, words};
use super::report::{Table, grouped};
use super::server::wait_until_listening;
use super::{host, static_files};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds of each run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Seconds before it that do not count: a queue has to grow before it is one
    #[arg(long, default_value_t = 5)]
    warmup: u32,
    /// Clients, each with one request at a time
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=3_000))]
    clients: u32,
    /// Minutes of bursts for each server; 0 leaves them out
    #[arg(long, default_value_t = 2.0)]
    burst_minutes: f64,
    /// Seconds of a burst, and of the quiet after it
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    burst_seconds: u32,
    /// Clients between bursts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    few: u32,
    /// The bursts alone
    #[arg(long)]
    only_bursts: bool,
    /// Servers to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx,lighttpd,haproxy")]
    peers: Vec<Peer>,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
}

/// Workers of the application.
const WORKERS: u32 = 8;
/// What an answer takes.
const TIME: Duration = Duration::from_millis(20);
/// Longer than any client has to wait for its turn in a queue that holds them all.
const PATIENT: Duration = Duration::from_secs(10);
const IMPATIENT: Duration = Duration::from_secs(1);
/// A queue that most of the clients do not fit in.
const SHORT: u32 = 100;
/// What those who are admitted may wait beyond the age of the queue.
const GRACE: Duration = Duration::from_millis(40);
/// Of what the workers can do.
const LEAST_GOODPUT: f64 = 0.98;

/// What a server promises to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    Nothing,
    /// Every request is answered.
    All,
    /// The rest is turned away in time.
    OrTurnedAway,
}

/// A server with a queue.
struct Case {
    peer: Peer,
    queue: Queue,
    promise: Promise,
}

impl Case {
    fn all(arguments: &Arguments) -> Vec<Case> {
        let queue = |length, age| Queue { places: WORKERS, length, age, clients: arguments.clients };
        let ours = [
            (queue(arguments.clients, PATIENT), Promise::All),
            (queue(arguments.clients, IMPATIENT), Promise::OrTurnedAway),
            (queue(SHORT, IMPATIENT), Promise::OrTurnedAway),
        ];
        let ours = ours.map(|(queue, promise)| Case { peer: Peer::Tidegate, queue, promise });
        let theirs = arguments.peers.iter().map(|&peer| Case {
            peer,
            queue: queue(arguments.clients, PATIENT),
            promise: Promise::Nothing,
        });
        ours.into_iter().chain(theirs).collect()
    }

    fn queue_text(&self) -> String {
        match self.peer {
            Peer::Nginx | Peer::Lighttpd => "none".to_owned(),
            _ => format!("{}, {} s", grouped(self.queue.length.into()), self.queue.age.as_secs()),
        }
    }
}

/// What the clients of one server got.
#[derive(Debug, Clone)]
struct Outcome {
    /// Answered with the application's answer.
    good: u64,
    turned_away: u64,
    /// Neither of the two.
    failed: u64,
    errors: String,
    /// Good ones per second.
    goodput: f64,
    /// Of the good ones.
    admitted: Latency,
    /// Of all.
    all: Latency,
    /// Of one that was turned away.
    retry_after: Option<String>,
}

impl Outcome {
    fn new(load: &Load, retry_after: Option<String>) -> Self {
        let status = |code: &str| load.report["statuses"][code].as_u64().unwrap_or_default();
        let (good, turned_away) = (status("200"), status("503"));
        // Who still waits when the time is over has not been failed by anybody.
        let waiting: u64 = ["unanswered", "unsent"].iter().filter_map(|kind| load.errors.get(*kind)).sum();
        Self {
            good,
            turned_away,
            failed: load.failed().saturating_sub(turned_away + waiting),
            errors: load.errors_text(),
            goodput: good as f64 / load.seconds.max(0.001),
            admitted: load.expected,
            all: load.latency,
            retry_after,
        }
    }

    /// Takes another run of the same kind and length in; of times the worst stays.
    fn add(&mut self, other: Outcome, runs_before: u32) {
        let worst = |one: &mut Latency, two: Latency| {
            one.median = one.median.max(two.median);
            one.p99 = one.p99.max(two.p99);
            one.longest = one.longest.max(two.longest);
        };
        worst(&mut self.admitted, other.admitted);
        worst(&mut self.all, other.all);
        self.good += other.good;
        self.turned_away += other.turned_away;
        self.failed += other.failed;
        if other.failed > 0 {
            self.errors = other.errors;
        }
        let before = f64::from(runs_before);
        self.goodput = (self.goodput * before + other.goodput) / (before + 1.0);
        self.retry_after = self.retry_after.take().or(other.retry_after);
    }

    /// Percent of those that got any answer, or none in spite of waiting for it.
    fn answered(&self) -> f64 {
        100.0 * self.good as f64 / ((self.good + self.turned_away + self.failed).max(1)) as f64
    }

    /// Of the promises to its clients those that were broken.
    fn broken(&self, promise: Promise, queue: &Queue) -> Vec<String> {
        let mut broken = Vec::new();
        if promise == Promise::Nothing {
            return broken;
        }
        if self.failed > 0 {
            broken.push(format!("{} failed", grouped(self.failed as f64)));
        }
        if promise == Promise::All {
            // Only here: clients that come back at once after a 503 take the server's processor for themselves.
            if self.goodput < LEAST_GOODPUT * capacity() {
                broken.push(format!("goodput under {:.0}/s", LEAST_GOODPUT * capacity()));
            }
            if self.turned_away > 0 {
                broken.push(format!("{} turned away", grouped(self.turned_away as f64)));
            }
            return broken;
        }
        let bound = queue.age + GRACE;
        for (who, time) in [("the admitted", self.admitted.p99), ("all", self.all.p99)] {
            if time > bound {
                broken.push(format!("p99 of {who} over {} ms", bound.as_millis()));
            }
        }
        if self.turned_away == 0 {
            broken.push("nobody was turned away".to_owned());
        }
        // Whole seconds: RFC 9110 section 10.2.3.
        if self.retry_after.as_ref().is_none_or(|value| value.parse::<u32>().is_err()) {
            broken.push("503 without Retry-After".to_owned());
        }
        broken
    }

    /// The same of a few clients, for whom there is always a worker.
    fn broken_between(&self, promise: Promise) -> Vec<String> {
        let mut broken = Vec::new();
        if promise != Promise::Nothing && self.failed + self.turned_away > 0 {
            broken.push(format!(
                "{} not answered between bursts",
                grouped((self.failed + self.turned_away) as f64)
            ));
        }
        broken
    }
}

/// Requests per second that the workers can answer.
fn capacity() -> f64 {
    f64::from(WORKERS) / TIME.as_secs_f64()
}

/// Measures the servers one after another and prints the table; an error when Tidegate broke a promise.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    for program in arguments.peers.iter().map(|peer| peer.name()) {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing: cargo xtask tools --for bench");
        }
    }
    if !arguments.no_build {
        static_files::build()?;
    }
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} clients, {WORKERS} FastCGI workers of {} ms ({:.0} requests/s at most), {} s each after {} s\n",
        grouped(arguments.clients.into()),
        TIME.as_millis(),
        capacity(),
        arguments.seconds,
        arguments.warmup
    );
    let folder = workspace::target_directory().join(format!("bench/queue-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let done = measure_all(arguments, &folder);
    fs::remove_dir_all(&folder)?;
    let broken = done?;
    if !broken.is_empty() {
        bail!("a promise was broken: {}", broken.join("; "));
    }
    Ok(())
}

fn measure_all(arguments: &Arguments, folder: &Path) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    if !arguments.only_bursts {
        let mut table = Table::new([
            "server",
            "queue",
            "answered",
            "goodput/s",
            "of capacity",
            "p50 ms",
            "p99 ms",
            "longest ms",
            "turned away",
            "failed",
            "promise",
        ]);
        for case in Case::all(arguments) {
            let (_application, server) = start(&case, folder)?;
            let outcome = hit(&server, &case, arguments.clients, arguments.seconds, arguments.warmup)?;
            let missed = outcome.broken(case.promise, &case.queue);
            table.row(row(&case, &outcome, &missed));
            broken.extend(missed);
        }
        println!("{table}");
    }
    if arguments.burst_minutes > 0.0 {
        broken.extend(measure_bursts(arguments, folder)?);
    }
    Ok(broken)
}

fn measure_bursts(arguments: &Arguments, folder: &Path) -> Result<Vec<String>> {
    println!(
        "bursts: {} s with {} clients and {} s with {}, in turn for {} minutes; times are those of the worst turn\n",
        arguments.burst_seconds,
        grouped(arguments.clients.into()),
        arguments.burst_seconds,
        arguments.few,
        arguments.burst_minutes
    );
    let mut table = Table::new([
        "server",
        "queue",
        "answered in bursts",
        "goodput/s",
        "of capacity",
        "p99 ms",
        "longest ms",
        "turned away",
        "failed",
        "answered between",
        "p99 ms",
        "longest ms",
        "promise",
    ]);
    let mut broken = Vec::new();
    for case in Case::all(arguments) {
        let (bursts, quiet) = alternate(arguments, &case, folder)?;
        let mut missed = bursts.broken(case.promise, &case.queue);
        missed.extend(quiet.broken_between(case.promise));
        let [server, queue, answered, goodput, share, _, p99, longest, away, failed, promise] =
            row(&case, &bursts, &missed);
        let between = [
            format!("{:.1} %", quiet.answered()),
            milliseconds(quiet.admitted.p99),
            milliseconds(quiet.admitted.longest),
        ];
        let [answered_between, p99_between, longest_between] = between;
        table.row([
            server,
            queue,
            answered,
            goodput,
            share,
            p99,
            longest,
            away,
            failed,
            answered_between,
            p99_between,
            longest_between,
            promise,
        ]);
        broken.extend(missed);
    }
    println!("{table}");
    Ok(broken)
}

/// Bursts and what is between them, all turns of each together.
fn alternate(arguments: &Arguments, case: &Case, folder: &Path) -> Result<(Outcome, Outcome)> {
    let (_application, server) = start(case, folder)?;
    let end = Instant::now() + Duration::from_secs_f64(arguments.burst_minutes * 60.0);
    let seconds = arguments.burst_seconds;
    let mut bursts = hit(&server, case, arguments.clients, seconds, 0)?;
    let calm = Case { promise: Promise::Nothing, ..*case };
    let mut quiet = hit(&server, &calm, arguments.few, seconds, 0)?;
    let mut turns = 1;
    while Instant::now() < end {
        bursts.add(hit(&server, case, arguments.clients, seconds, 0)?, turns);
        quiet.add(hit(&server, &calm, arguments.few, seconds, 0)?, turns);
        turns += 1;
    }
    Ok((bursts, quiet))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1e3)
}

fn row(case: &Case, outcome: &Outcome, missed: &[String]) -> [String; 11] {
    let failed = match outcome.failed {
        0 => "0".to_owned(),
        failed => format!("{} ({})", grouped(failed as f64), outcome.errors),
    };
    [
        case.peer.name().to_owned(),
        case.queue_text(),
        format!("{:.1} %", outcome.answered()),
        format!("{:.1}", outcome.goodput),
        format!("{:.1} %", 100.0 * outcome.goodput / capacity()),
        milliseconds(outcome.admitted.median),
        milliseconds(outcome.admitted.p99),
        milliseconds(outcome.admitted.longest),
        grouped(outcome.turned_away as f64),
        failed,
        match (case.promise, missed) {
            (Promise::Nothing, _) => String::new(),
            (_, []) => "kept".to_owned(),
            (_, missed) => format!("BROKEN: {}", missed.join(", ")),
        },
    ]
}

/// A server, and an application of its own: what an earlier one has left in the backlog of its application is nobody
/// else's.
fn start(case: &Case, folder: &Path) -> Result<(Process, gateway_peers::Running)> {
    let (process, socket) = start_application(folder)?;
    let application = Application {
        workload: Workload::FastCgi,
        port: 0,
        socket: &socket,
        scripts: folder,
        queue: Some(case.queue),
    };
    Ok((process, gateway_peers::start(case.peer, folder, application)?))
}

fn hit(
    server: &gateway_peers::Running,
    case: &Case,
    clients: u32,
    seconds: u32,
    warmup: u32,
) -> Result<Outcome> {
    let time = Duration::from_secs((warmup + seconds).into());
    let load = generator::start(&words(&format!(
        "hit http://127.0.0.1:{}/app.fcgi -c {clients} -t {seconds}s --warmup {warmup}s --threads 1 --no-host \
         --timeout 30s --expect status=200",
        server.port
    )))?;
    load.go_last()?;
    let retry_after = match case.promise {
        Promise::OrTurnedAway => turned_away(server.port, case.queue.age, Instant::now() + time),
        Promise::All | Promise::Nothing => None,
    };
    Ok(Outcome::new(&load.finish()?, retry_after))
}

/// Asks beside the clients until it is turned away, and says when it is to come again; `None` when it is not
/// turned away, or not told when.
fn turned_away(port: u16, age: Duration, end: Instant) -> Option<String> {
    /// Spread over the age of the queue: who comes back at once after an answer is always early enough.
    const ASKING: u32 = 10;
    let is_known = AtomicBool::new(false);
    let asking = &|number: u32| {
        std::thread::park_timeout(age * number / ASKING);
        while Instant::now() < end && !is_known.load(Relaxed) {
            // A failure is one of many; the clients beside it are counted.
            let Ok((head, _)) = ask(port, Workload::FastCgi.path()) else { continue };
            if head.starts_with("HTTP/1.1 503 ") {
                is_known.store(true, Relaxed);
                let fields = head.lines().filter_map(|line| line.split_once(':'));
                let mut values = fields.filter(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
                return values.next().map(|(_, value)| value.trim().to_owned());
            }
        }
        None
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ASKING).map(|number| scope.spawn(move || asking(number))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).next()
    })
}

fn start_application(folder: &Path) -> Result<(Process, PathBuf)> {
    let socket = folder.join("application.sock");
    let own = std::env::current_exe()?;
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, &own.to_string_lossy());
    command.arg("responder").arg(&socket).arg(Workload::FastCgi.size().to_string());
    command.args(["--workers", &WORKERS.to_string(), "--time", &TIME.as_millis().to_string()]);
    let mut process = Process(command.stdout(fs::File::create(folder.join("application.log"))?).spawn()?);
    let is_there = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    wait_until_listening(&mut process.0, is_there).context("the application")?;
    Ok((process, socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: Queue = Queue { places: 8, length: 100, age: IMPATIENT, clients: 1_000 };

    fn outcome() -> Outcome {
        let times = |p99| Latency { p99: Duration::from_millis(p99), ..Latency::default() };
        Outcome {
            good: 7_900,
            turned_away: 100,
            failed: 0,
            errors: String::new(),
            goodput: 395.0,
            admitted: times(1_030),
            all: times(1_010),
            retry_after: Some("1".to_owned()),
        }
    }

    #[test]
    fn promises() {
        let all = Outcome { turned_away: 0, ..outcome() };
        assert!(all.broken(Promise::All, &QUEUE).is_empty());
        assert!(outcome().broken(Promise::OrTurnedAway, &QUEUE).is_empty());
        assert_eq!(outcome().broken(Promise::All, &QUEUE), ["100 turned away"]);
        assert_eq!(all.broken(Promise::OrTurnedAway, &QUEUE), ["nobody was turned away"]);
        let bad = Outcome {
            failed: 2,
            goodput: 391.0,
            admitted: Latency { p99: Duration::from_millis(1_041), ..Latency::default() },
            retry_after: Some("soon".to_owned()),
            ..outcome()
        };
        assert_eq!(bad.broken(Promise::OrTurnedAway, &QUEUE).len(), 3);
        assert_eq!(bad.broken(Promise::All, &QUEUE).len(), 3);
        assert!(bad.broken(Promise::Nothing, &QUEUE).is_empty());
    }

    #[test]
    fn turns_together() {
        let mut bursts = Outcome { retry_after: None, ..outcome() };
        let worse = Latency { p99: Duration::from_millis(1_100), ..Latency::default() };
        let other = Outcome {
            good: 100,
            failed: 1,
            goodput: 375.0,
            admitted: worse,
            errors: "reset 1".to_owned(),
            ..outcome()
        };
        bursts.add(other.clone(), 1);
        assert_eq!((bursts.good, bursts.turned_away, bursts.failed), (8_000, 200, 1));
        assert_eq!(
            (bursts.goodput, bursts.admitted.p99, bursts.all.p99),
            (385.0, worse.p99, outcome().all.p99)
        );
        assert_eq!((bursts.retry_after.as_deref(), bursts.errors.as_str()), (Some("1"), "reset 1"));
        assert_eq!(other.broken_between(Promise::OrTurnedAway), ["101 not answered between bursts"]);
        assert!(other.broken_between(Promise::Nothing).is_empty());
    }

    #[test]
    fn shares() {
        assert_eq!(capacity(), 400.0);
        assert_eq!(Outcome { good: 25, turned_away: 50, failed: 25, ..outcome() }.answered(), 25.0);
    }
}
