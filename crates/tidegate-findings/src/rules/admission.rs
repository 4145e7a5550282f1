//! Who is turned away at the door: connections, places in flight, the queue before them, accept queues.

use super::{Concern, FullQueue, Seen, concerning, of_server, percent, time, were};
use crate::window::{Sample, Window, all, only, over, round_up, share};
use tidegate_config::Settings;
use tidegate_modules::status::Change;
use tidegate_stats::{ConnectionRefusal, Distribution, QueueRefusal};

/// Descriptors for what is neither a connection nor a file: sockets, logs, pollers.
const OWN_DESCRIPTORS: u64 = 256;
/// Of accepted connections, refusals of single addresses that look like a proxy of one's own.
const ADDRESS_SHARE: f64 = 0.1;
/// Places in use, of those that a single application may have: eight ninths of all, as `core/admission/in_flight.rs` has it.
const PLACES: f64 = 0.95;
const SINGLE: f64 = 8.0 / 9.0;
/// A wait in the queue that is worth a word, seconds.
const QUEUE_DELAY: f64 = 0.05;
/// Below that share of idle processors more places help nobody; below this one they are all there is to have.
const IDLE: f64 = 0.3;
const NONE_IDLE: f64 = 0.1;
/// Memory that a connection takes at least, here and in the kernel, bytes.
const CONNECTION: u64 = 16 << 10;
/// How busy places may be without a queue.
const BUSY_PLACES: f64 = 0.8;
/// Of an accept queue, what its worker must have let come in its longest turn to be the one that was full.
const BACKLOG_SHARE: f64 = 0.5;

fn connections_refused(sample: &Sample) -> u64 {
    sample.counted.connection_refusals.count(ConnectionRefusal::Connections)
}

pub(super) fn connections_limit(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.limits.connections);
    let limit = u64::from(window.settings().limits.connections);
    let (worst, refused) =
        (window.worst_rate(connections_refused).ceil() as u64, window.worst_step(connections_refused));
    let sentence = || {
        let (all, span) = (were(window.risen(connections_refused), "connection"), window.span());
        format!(
            "{all} refused {span}: all of `limits connections {limit}` were open, and up to {worst} more came in a second, perhaps again and \
             again; their clients got an error"
        )
    };
    of_server(window, window.events(connections_refused), sentence, || {
        // Who is refused comes again at once: what came is not what would have been open.
        let wanted = (limit + refused).min(limit + limit / 2 + worst);
        more_connections(window, limit, wanted)
    })
}

/// More of them, as far as there are descriptors and memory.
fn more_connections(window: &Window<'_>, limit: u64, wanted: u64) -> Change {
    let sample = window.now();
    let each =
        sample.counted.buffer.peak.checked_div(window.peak(|sample| sample.counted.connections.current));
    let each = each.unwrap_or(0).max(CONNECTION);
    let in_memory = sample.host.available.map(|free| limit.saturating_add(free / 2 / each));
    let new = round_up(wanted as f64, if wanted < 4096 { 1 } else { 1024 });
    let processes = u64::from(window.settings().processes.max(1));
    let files = sample.counted.cache_descriptors.limit;
    let for_requests = 2 * u64::from(window.settings().limits.in_flight).min(new);
    let room = sample.host.descriptors.map(|descriptors| {
        descriptors
            .saturating_mul(processes)
            .saturating_sub(files + for_requests + OWN_DESCRIPTORS * processes)
    });
    match room {
        _ if in_memory.is_some_and(|most| most <= limit) => Change::told(
            "the machine has no memory for more connections: give it some, or let idle ones go sooner (`limits keep-alive-timeout`)",
        ),
        Some(room) if room <= limit => {
            let descriptors = (2 * (new + for_requests + files)).div_ceil(processes).next_power_of_two();
            Change::told(format!(
                "the process may hold {} descriptors, which is too few for more connections: set `LimitNOFILE={descriptors}` of the \
                 service (`ulimit -Hn`), then `limits connections` to `{new}`",
                sample.host.descriptors.unwrap_or(0)
            ))
        }
        room => {
            let new = room.into_iter().chain(in_memory).fold(new, u64::min);
            let how = "half as many again and what was refused in the worst second, no more than came, rounded up beyond 4096, within the descriptors and half of the memory there are";
            Change::of("limits connections", limit, new, how)
        }
    }
}

pub(super) fn address_limit(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| {
        let limits = &settings.limits;
        (limits.connections_per_address, format!("{:?}", limits.exempt_addresses))
    });
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
    of_server(window, ratio, sentence, || {
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
    let window = &window.quoting(|settings| settings.limits.in_flight);
    let counted = &window.now().counted;
    let limit = u64::from(window.settings().limits.in_flight);
    let delay = queued_too_long(window);
    let idle = window.idle();
    // A single application never gets all of them, and of a few places it gets the whole ones.
    let places = (PLACES * SINGLE * limit as f64).floor().max(1.0);
    let ratio = all([
        over(counted.in_flight.current as f64, places),
        over(delay, QUEUE_DELAY),
        over(idle, IDLE),
        only(counted.queued.current > 0),
    ]);
    let new = round_up(1.5 * (counted.in_flight.current + counted.queued.current) as f64, 1);
    let sentence = || {
        format!(
            "{} of the {limit} places of `limits in-flight` are taken, of which one application gets eight ninths at most, and {} requests \
             wait, one in twenty longer than {}, while {} of the processors are idle",
            counted.in_flight.current,
            counted.queued.current,
            time(delay),
            percent(idle)
        )
    };
    let seen = of_server(window, ratio, sentence, || {
        Change::of("limits in-flight", limit, new, "1.5 times what is under way and waits")
    });
    concerning(seen, Concern::InFlight)
}

/// Requests that get a place in a second, at most: while a queue is full that is what can be answered.
fn served(window: &Window<'_>) -> f64 {
    window.worst_rate(|sample| sample.counted.sessions_created)
}

pub(super) fn queue_full(window: &Window<'_>) -> Vec<Seen> {
    let window =
        &window.quoting(|Settings { limits, .. }| (limits.queue_length, limits.queue_age, limits.in_flight));
    let refused = |sample: &Sample| sample.counted.queue_refusals.count(QueueRefusal::Full);
    let limits = &window.settings().limits;
    let worst = window.worst_step(refused);
    let sentence = || {
        let (refused, span) = (were(window.risen(refused), "request"), window.span());
        format!(
            "{refused} refused {span} since the queue before `limits in-flight {}` was full, which has room for {}: up to {worst} in ten seconds",
            limits.in_flight, limits.queue_length
        )
    };
    let seen = of_server(window, window.events(refused), sentence, || {
        let queue = FullQueue {
            setting: "limits queue length",
            length: limits.queue_length,
            age: limits.queue_age,
            rate: served(window),
            refused: worst,
            instead: "let answers come sooner (`tidegate status slow`), or more of them at once (`limits in-flight`) where processors are idle",
        };
        queue.change()
    });
    concerning(seen, Concern::InFlight)
}

pub(super) fn queue_age(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|Settings { limits, .. }| (limits.queue_age, limits.in_flight));
    let refused = |sample: &Sample| sample.counted.queue_refusals.count(QueueRefusal::Age);
    let limits = &window.settings().limits;
    // Only applications have a clock of their own; what else takes a place is not told apart.
    let times = window.times(|sample| &sample.counted.gateway_delay);
    let takes = (times.count() > 0).then(|| times.quantile(0.5).as_secs_f64());
    let sentence = || {
        let (refused, span) = (were(window.risen(refused), "request"), window.span());
        let takes =
            takes.map(|takes| format!("; half of the applications' answers take {} and longer", time(takes)));
        format!(
            "{refused} refused {span} after waiting {} for one of {} places (`limits in-flight`){}",
            time(limits.queue_age.as_secs_f64()),
            limits.in_flight,
            takes.unwrap_or_default()
        )
    };
    let seen = of_server(window, window.events(refused), sentence, || {
        let idle = window.idle();
        if idle > IDLE {
            return more_places(window, served(window) + window.worst_rate(refused));
        }
        if idle < NONE_IDLE {
            return Change::told(format!(
                "{} of the processors are in use, more places would not help: add processors, or bound who asks for the most with `limit`",
                percent(1.0 - idle)
            ));
        }
        Change::told(
            "let answers come sooner (`tidegate status slow` shows which take long), or bound who asks for the most with `limit`",
        )
    });
    concerning(seen, Concern::InFlight)
}

/// Places for so many requests a second, by Little's law where it is known how long they take; never more than have been
/// under way and waited at once.
fn more_places(window: &Window<'_>, wanted: f64) -> Change {
    let limits = &window.settings().limits;
    let mean = mean_seconds(&window.times(|sample| &sample.counted.gateway_delay));
    let most = u64::from(limits.in_flight).saturating_add(window.peak(|sample| sample.counted.queued.peak));
    let places = mean.map_or(most, |mean| round_up(wanted * mean / BUSY_PLACES, 1).min(most));
    let how = match mean {
        Some(mean) if places < most => {
            format!("{wanted:.1} requests come in a second and take {} each, at 80 %", time(mean))
        }
        _ => "what was under way and has waited at once".to_owned(),
    };
    if places <= u64::from(limits.in_flight) {
        return Change::told(
            "let answers come sooner: `tidegate status slow` shows which take long, and `tidegate status requests` those under way",
        );
    }
    Change::of("limits in-flight", limits.in_flight, places, &how)
}

fn mean_seconds(times: &Distribution) -> Option<f64> {
    (times.count() > 0).then(|| times.sum_nanos() as f64 / 1e9 / times.count() as f64)
}

pub(super) fn somaxconn(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(longest_backlog).quoting_bound(|sample| sample.host.somaxconn);
    let backlog = longest_backlog(window.settings());
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
    of_server(window, ratio, sentence, || {
        Change::of(
            "net.core.somaxconn",
            most,
            backlog,
            "`sysctl -w`, and below /etc/sysctl.d: as long as `backlog`; then restart the server",
        )
    })
}

fn longest_backlog(settings: &Settings) -> u32 {
    settings.listeners.iter().map(|listener| listener.backlog).max().unwrap_or(0)
}

fn shortest_backlog(settings: &Settings) -> u32 {
    settings.listeners.iter().map(|listener| listener.backlog).min().unwrap_or(1).max(1)
}

pub(super) fn backlog_overflow(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(shortest_backlog);
    let overflows = |sample: &Sample| sample.host.tcp.listen_overflows;
    let backlog = shortest_backlog(window.settings());
    let workers = window.now().info.workers.max(1) as f64;
    let turn = window.times(|sample| &sample.counted.turn_delay).quantile(1.0).as_secs_f64();
    let came = window.worst_rate(|sample| sample.counted.connections_accepted);
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
    of_server(window, ratio, sentence, || {
        Change::of("listen backlog", backlog, new, "twice what comes in the longest turn of a worker")
    })
}
