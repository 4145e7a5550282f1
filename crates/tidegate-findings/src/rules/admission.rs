//! Who is turned away at the door: connections, places in flight, the queue before them, accept queues.

use super::{Seen, of_server, percent, time, were};
use crate::window::{Sample, Window, all, over, round_up, share};
use tidegate_modules::status::Change;
use tidegate_stats::{ConnectionRefusal, QueueRefusal};

/// Descriptors for what is neither a connection nor a file: sockets, logs, pollers.
const OWN_DESCRIPTORS: u64 = 256;
/// Of accepted connections, refusals of single addresses that look like a proxy of one's own.
const ADDRESS_SHARE: f64 = 0.1;
/// Places in use, of those there are.
const PLACES: f64 = 0.95;
/// A wait in the queue that is worth a word, seconds.
const QUEUE_DELAY: f64 = 0.05;
/// Below that share of idle processors more places help nobody.
const IDLE: f64 = 0.3;
/// How busy places may be without a queue.
const BUSY_PLACES: f64 = 0.8;
/// Of an accept queue, what its worker must have let come in its longest turn to be the one that was full.
const BACKLOG_SHARE: f64 = 0.5;

fn connections_refused(sample: &Sample) -> u64 {
    sample.counted.connection_refusals.count(ConnectionRefusal::Connections)
}

pub(super) fn connections_limit(window: &Window<'_>) -> Vec<Seen> {
    let limit = u64::from(window.settings().limits.connections);
    let (refused, worst) = (window.risen(connections_refused), window.worst_step(connections_refused));
    let wanted = limit.saturating_add(worst);
    let sentence = || {
        let (refused, span) = (were(refused, "connection"), window.span());
        format!(
            "{refused} refused {span}: `limits connections` is {limit}, and up to {wanted} were wanted at once; their clients got an error"
        )
    };
    of_server(window.events(connections_refused), sentence, || more_connections(window, limit, wanted))
}

/// More of them, as far as there are descriptors.
fn more_connections(window: &Window<'_>, limit: u64, wanted: u64) -> Change {
    let sample = window.now();
    let new = round_up(1.5 * wanted as f64, if wanted < 1024 { 64 } else { 1024 });
    let processes = u64::from(window.settings().processes.max(1));
    let files = sample.counted.cache_descriptors.limit;
    let for_requests = 2 * u64::from(window.settings().limits.in_flight).min(new);
    let room = sample.host.descriptors.map(|descriptors| {
        descriptors
            .saturating_mul(processes)
            .saturating_sub(files + for_requests + OWN_DESCRIPTORS * processes)
    });
    match room {
        Some(room) if room <= limit => {
            let descriptors = (2 * (new + for_requests + files)).div_ceil(processes).next_power_of_two();
            Change::told(format!(
                "the process may hold {} descriptors, which is too few for more connections: set `LimitNOFILE={descriptors}` of the \
                 service (`ulimit -Hn`), then `limits connections` to `{new}`",
                sample.host.descriptors.unwrap_or(0)
            ))
        }
        room => {
            let new = room.map_or(new, |room| room.min(new));
            Change::of(
                "limits connections",
                limit,
                new,
                "1.5 times what was wanted, within the descriptors there are",
            )
        }
    }
}

pub(super) fn address_limit(window: &Window<'_>) -> Vec<Seen> {
    let refused = |sample: &Sample| sample.counted.connection_refusals.count(ConnectionRefusal::Address);
    let accepted = window.risen(|sample| sample.counted.connections_accepted);
    let of_accepted = share(window.risen(refused), accepted);
    let ratio = all([window.events(refused), over(of_accepted, ADDRESS_SHARE)]);
    let limit = window.settings().limits.connections_per_address.unwrap_or(u32::MAX);
    let sentence = || {
        let (refused, span) = (were(window.risen(refused), "connection"), window.span());
        format!(
            "{refused} refused {span}, {} of all: a single address may have {limit} open (`limits connections-per-address`), and got 429",
            percent(of_accepted)
        )
    };
    of_server(ratio, sentence, || {
        Change::told(
            "if the address is a proxy or load balancer of your own, name it in `trusted-proxies` and in `limits exempt-addresses`; \
             if it is one client, nothing needs to change: the limit does what it is for",
        )
    })
}

fn queued_too_long(window: &Window<'_>) -> f64 {
    window.step_times(|sample| &sample.counted.queue_delay).quantile(0.95).as_secs_f64()
}

pub(super) fn under_throttled(window: &Window<'_>) -> Vec<Seen> {
    let counted = &window.now().counted;
    let limit = u64::from(window.settings().limits.in_flight);
    let delay = queued_too_long(window);
    let idle = window.idle();
    let ratio = all([
        over(counted.in_flight.current as f64, PLACES * limit as f64),
        over(delay, QUEUE_DELAY),
        over(idle, IDLE),
    ]);
    let new = round_up(1.5 * (counted.in_flight.current + counted.queued.current) as f64, 16);
    let sentence = || {
        format!(
            "all {limit} places of `limits in-flight` are taken and {} requests wait, one in twenty longer than {}, while {} of the processors \
             are idle",
            counted.queued.current,
            time(delay),
            percent(idle)
        )
    };
    of_server(ratio, sentence, || {
        Change::of("limits in-flight", limit, new, "1.5 times what is under way and waits")
    })
}

/// Requests that get a place in a second.
fn served(window: &Window<'_>) -> f64 {
    window.rate(|sample| sample.counted.sessions_created)
}

pub(super) fn queue_full(window: &Window<'_>) -> Vec<Seen> {
    let refused = |sample: &Sample| sample.counted.queue_refusals.count(QueueRefusal::Full);
    let limits = &window.settings().limits;
    let worst = window.worst_step(refused);
    let by_rate = served(window) * limits.queue_age.as_secs_f64();
    let new = round_up(by_rate.max(f64::from(limits.queue_length) + worst as f64), 16);
    let sentence = || {
        let (refused, span) = (were(window.risen(refused), "request"), window.span());
        format!(
            "{refused} refused {span} since the queue before `limits in-flight {}` was full, which has room for {}: up to {worst} in ten seconds",
            limits.in_flight, limits.queue_length
        )
    };
    of_server(window.events(refused), sentence, || {
        let how =
            "what is served in the age of the queue, and at least what was refused in the worst ten seconds";
        Change::of("limits queue length", limits.queue_length, new, how)
    })
}

pub(super) fn queue_age(window: &Window<'_>) -> Vec<Seen> {
    let refused = |sample: &Sample| sample.counted.queue_refusals.count(QueueRefusal::Age);
    let limits = &window.settings().limits;
    let in_flight = window.peak(|sample| sample.counted.in_flight.current);
    let rate = served(window);
    // By Little's law what is under way is the rate times the time that it takes.
    let takes = if rate > 0.0 { in_flight as f64 / rate } else { 0.0 };
    let wanted = rate + window.rate(refused);
    let places = round_up((wanted * takes / BUSY_PLACES).max(f64::from(limits.in_flight) * 1.25), 1);
    let sentence = || {
        let (refused, span) = (were(window.risen(refused), "request"), window.span());
        format!(
            "{refused} refused {span} after waiting {} for one of {} places (`limits in-flight`); an answer takes {}",
            time(limits.queue_age.as_secs_f64()),
            limits.in_flight,
            time(takes)
        )
    };
    of_server(window.events(refused), sentence, || {
        if window.idle() > IDLE {
            return Change::of(
                "limits in-flight",
                limits.in_flight,
                places,
                "what is asked for times the time that it takes, at 80 %",
            );
        }
        Change::told(
            "the processors are the limit, more places would not help: add processors, or bound who asks for the most with `limit`",
        )
    })
}

pub(super) fn somaxconn(window: &Window<'_>) -> Vec<Seen> {
    let backlog = longest_backlog(window);
    let Some(most) = window.now().host.somaxconn else { return Vec::new() };
    let overflows = |sample: &Sample| sample.host.tcp.listen_overflows;
    // As long as nothing is dropped it is no limit.
    let ratio = all([over(f64::from(backlog), 1.0 + most as f64), window.events(overflows)]);
    let sentence = || {
        format!(
            "{} dropped by full accept queues {}: `backlog` is {backlog}, of which the kernel allows {most}",
            were(window.risen(overflows), "connection"),
            window.span()
        )
    };
    of_server(ratio, sentence, || {
        Change::of(
            "net.core.somaxconn",
            most,
            backlog,
            "`sysctl -w`, and below /etc/sysctl.d: as long as `backlog`; then restart the server",
        )
    })
}

fn longest_backlog(window: &Window<'_>) -> u32 {
    window.settings().listeners.iter().map(|listener| listener.backlog).max().unwrap_or(0)
}

pub(super) fn backlog_overflow(window: &Window<'_>) -> Vec<Seen> {
    let overflows = |sample: &Sample| sample.host.tcp.listen_overflows;
    let backlog =
        window.settings().listeners.iter().map(|listener| listener.backlog).min().unwrap_or(1).max(1);
    let workers = window.now().info.workers.max(1) as f64;
    let turn = window.times(|sample| &sample.counted.turn_delay).quantile(1.0).as_secs_f64();
    let came = window.worst_step(|sample| sample.counted.connections_accepted) as f64 / window.step_seconds();
    // The kernel counts for all servers of the machine: what came to a worker in its longest turn tells whose queue it was.
    let held = came * turn / workers;
    let ratio = all([window.events(overflows), over(held, BACKLOG_SHARE * f64::from(backlog))]);
    let new = round_up(2.0 * held.max(f64::from(backlog)), 1).next_power_of_two().min(65_535);
    let sentence = || {
        format!(
            "{} dropped by full accept queues {}: workers were away for up to {}, while {came:.0} connections came in a second, and \
             `backlog` is {backlog}; clients try again after a second",
            were(window.risen(overflows), "connection"),
            window.span(),
            time(turn)
        )
    };
    of_server(ratio, sentence, || {
        Change::of("listen backlog", backlog, new, "twice what comes in the longest turn of a worker")
    })
}
