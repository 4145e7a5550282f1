//! For each rule what raises it, and what is close to that and does not.

use super::scene::{APP, GIBIBYTE, Happening, PHP, Scene};
use std::time::Duration;
use tidegate_findings::Folder;
use tidegate_modules::gateway::supervise::status::{OpcacheFigures, OpcacheState, OpcacheStatus};
use tidegate_modules::status::LimitStoreReport;
use tidegate_stats::{
    AcceptError, ConnectionRefusal, Eviction, Flush, GatewayFailure, Handshake, QueueRefusal,
};

/// A rule, what raises it, and what would if the threshold were a tenth; `None` where one event is enough.
pub type Case = (&'static str, Happening, Option<Happening>);

fn opcache(free: u64, wasted: u64) -> Option<OpcacheStatus> {
    let figures = OpcacheFigures {
        used: (128 << 20) - free - wasted,
        free,
        wasted,
        hits: 0,
        misses: 0,
        scripts: 9,
        restarts_out_of_memory: 0,
        restarts_hash: 0,
        restarts_manual: 0,
    };
    Some(OpcacheStatus { state: OpcacheState::On, why: None, figures: Some(figures), age: Duration::ZERO })
}

pub fn disk(free: u64) -> Vec<Folder> {
    vec![Folder {
        path: "/var/log".into(),
        purpose: "the access log".into(),
        mount: "/var".into(),
        free: free << 20,
        size: 1000 << 20,
    }]
}

fn store_failures(scene: &mut Scene, count: u64) {
    let health = LimitStoreReport {
        address: "192.0.2.1:6379".into(),
        servers: 2,
        failures: 0,
        trouble: Some("NOAUTH".into()),
    };
    scene.info.limit_store.get_or_insert(health).failures += count;
}

pub const MACHINE: &[Case] = &[
    ("steal", |s| s.host.times.stolen += 200, Some(|s| s.host.times.stolen += 40)),
    (
        "throttled",
        |s| {
            s.host.cgroup.quota = Some(1.0);
            (s.host.cgroup.throttled, s.host.cgroup.throttled_micros) =
                (s.host.cgroup.throttled + 20, s.host.cgroup.throttled_micros + 900_000);
        },
        Some(|s| {
            s.host.cgroup.quota = Some(1.0);
            s.host.cgroup.throttled += 2;
        }),
    ),
    (
        "workers-too-few",
        |s| {
            s.host.processors = Some(4.0);
            s.host.workers.iter_mut().for_each(|worker| worker.busy_millis += 3_200);
        },
        Some(|s| s.host.processors = Some(4.0)),
    ),
    (
        "workers-too-many",
        |s| {
            s.info.workers = 9;
            s.info.used.cpu_micros += 6_000_000;
        },
        Some(|s| s.info.workers = 3),
    ),
    (
        "worker-imbalance",
        |s| {
            s.host.workers[0].busy_millis += 3_400;
            s.host.workers[1].busy_millis -= 6_000;
        },
        Some(|s| s.host.workers[0].busy_millis += 2_500),
    ),
    (
        "worker-blocked",
        |s| {
            s.idle();
            (0..100).for_each(|_| s.stats.turn_delay.record(Duration::from_millis(80)));
        },
        Some(|s| {
            s.idle();
            (0..100).for_each(|_| s.stats.turn_delay.record(Duration::from_millis(10)));
        }),
    ),
    (
        "overload",
        |s| s.stats.requests_shed.add(3),
        Some(|s| s.stats.requests_shed.add(3 * u64::from(s.is_once()))),
    ),
    (
        "disk-waits",
        |s| {
            s.stats.native_queue.set(7);
            s.stats.native_threads.set(64);
        },
        Some(|s| {
            s.host.pressure.disk = 3.0;
            s.stats.native_threads.set(3);
        }),
    ),
    (
        "cgroup-memory",
        |s| {
            s.host.cgroup.memory_most = Some(GIBIBYTE);
            s.host.cgroup.memory_events += 9;
            s.host.pressure.memory = 12.0;
        },
        Some(|s| {
            s.host.cgroup.memory_most = Some(GIBIBYTE);
            s.host.cgroup.memory_events += 9;
            s.host.pressure.memory = 2.0;
        }),
    ),
    (
        "swapping",
        |s| {
            s.host.processes[0].major_faults += 200;
            s.host.swapped_in += 1000;
        },
        Some(|s| {
            s.host.processes[0].major_faults += 50;
            s.host.swapped_in += 1000;
        }),
    ),
    (
        "memory-limit",
        |s| s.stats.memory_resets.add(2),
        Some(|s| s.stats.memory_resets.add(4 * u64::from(s.is_once()))),
    ),
    (
        "tcp-memory",
        |s| s.host.tcp_pages = Some((95_000, 100_000)),
        Some(|s| s.host.tcp_pages = Some((30_000, 100_000))),
    ),
    ("descriptors", |s| s.info.used.descriptors = 60_000, Some(|s| s.info.used.descriptors = 20_000)),
    (
        "descriptors-too-few",
        |s| s.host.descriptors = Some(700),
        Some(|s| {
            s.host.descriptors = Some(700);
            s.stats.connections.set(200);
        }),
    ),
    (
        "system-descriptors",
        |s| s.stats.accept_errors.add(AcceptError::SystemDescriptors, 2),
        Some(|s| s.stats.accept_errors.add(AcceptError::SystemDescriptors, 4 * u64::from(s.is_once()))),
    ),
    ("retransmits", |s| s.host.tcp.resent += 2_000, Some(|s| s.host.tcp.resent += 300)),
    ("link-full", |s| s.host.links[0].sent += 1_000_000_000, Some(|_| {})),
    (
        "somaxconn",
        |s| {
            s.host.somaxconn = Some(64);
            s.host.tcp.listen_overflows += 3;
        },
        Some(|s| {
            s.host.somaxconn = Some(256);
            s.host.tcp.listen_overflows += 3;
        }),
    ),
    (
        "backlog-overflow",
        |s| {
            s.host.tcp.listen_overflows += 3;
            s.stats.turn_delay.record(Duration::from_secs(3));
        },
        Some(|s| {
            s.host.tcp.listen_overflows += 3;
            s.stats.turn_delay.record(Duration::from_secs(1));
        }),
    ),
    (
        "log-slow",
        |s| s.info.log_lines_lost += 5,
        Some(|s| s.info.log_lines_lost += 5 * u64::from(s.is_once())),
    ),
    ("disk-full", |s| s.host.folders = disk(30), Some(|s| s.host.folders = disk(150))),
    ("server-crashes", |s| s.info.processes[0].restarts += u64::from(s.is_once()), None),
    (
        "names-unanswered",
        |s| s.stats.dns_unanswered.add(2),
        Some(|s| s.stats.dns_unanswered.add(4 * u64::from(s.is_once()))),
    ),
    (
        "directory-fails",
        |s| s.stats.directory_failures.add(2),
        Some(|s| s.stats.directory_failures.add(4 * u64::from(s.is_once()))),
    ),
    ("limit-store-fails", |s| store_failures(s, 2), Some(|s| store_failures(s, 4 * u64::from(s.is_once())))),
];

pub const SERVER: &[Case] = &[
    (
        "connections-limit",
        |s| s.stats.connection_refusals.add(ConnectionRefusal::Connections, 5),
        Some(|s| s.stats.connection_refusals.add(ConnectionRefusal::Connections, 5 * u64::from(s.is_once()))),
    ),
    (
        "address-limit",
        |s| s.stats.connection_refusals.add(ConnectionRefusal::Address, 80),
        Some(|s| s.stats.connection_refusals.add(ConnectionRefusal::Address, 20)),
    ),
    (
        "under-throttled",
        |s| {
            s.idle();
            s.stats.in_flight.set(100);
            s.stats.queued.set(30);
            (0..100).for_each(|_| s.stats.queue_delay.record(Duration::from_millis(200)));
        },
        Some(|s| {
            s.idle();
            s.stats.in_flight.set(60);
            s.stats.queued.set(3);
            (0..100).for_each(|_| s.stats.queue_delay.record(Duration::from_millis(20)));
        }),
    ),
    (
        "queue-full",
        |s| s.stats.queue_refusals.add(QueueRefusal::Full, 4),
        Some(|s| s.stats.queue_refusals.add(QueueRefusal::Full, 5 * u64::from(s.is_once()))),
    ),
    (
        "queue-age",
        |s| s.stats.queue_refusals.add(QueueRefusal::Age, 4),
        Some(|s| s.stats.queue_refusals.add(QueueRefusal::Age, 5 * u64::from(s.is_once()))),
    ),
    (
        "keep-alive-flushed",
        |s| s.stats.keep_alive_flush_reasons.add(Flush::Maximum, 2_000),
        Some(|s| s.stats.keep_alive_flush_reasons.add(Flush::Maximum, 300)),
    ),
    ("keep-alive-too-short", |s| s.stats.keep_alive_timeouts.add(250), Some(|_| {})),
    (
        "keep-alive-refused",
        |s| s.stats.keep_alive_refusals.add(3_000),
        Some(|s| s.stats.keep_alive_refusals.add(500)),
    ),
    (
        "file-cache-small",
        |s| {
            s.stats.cache_misses.add(2_000);
            s.stats.cache_eviction_reasons.add(Eviction::Memory, 1_500);
        },
        Some(|s| {
            s.stats.cache_misses.add(200);
            s.stats.cache_eviction_reasons.add(Eviction::Memory, 100);
        }),
    ),
    (
        "cache-too-small",
        |s| {
            let tier = &mut s.store().disks[0].tier;
            (tier.returned, tier.returned_bytes) = (tier.returned + 60, tier.returned_bytes + (60 << 20));
        },
        Some(|s| s.store().disks[0].tier.returned += 5),
    ),
    (
        "cache-disk-out",
        |s| {
            let since = 1_000_000_000;
            let disk = &mut s.store().disks[0];
            (disk.is_out, disk.out_since) = (Some("fails: Input/output error".into()), Some(since));
        },
        Some(|s| {
            let since = s.ago(20);
            let disk = &mut s.store().disks[0];
            (disk.is_out, disk.out_since) = (Some("fails: Input/output error".into()), Some(since));
        }),
    ),
    (
        "cache-nothing-stored",
        |s| {
            let store = s.store();
            store.requests.hits -= 850;
            store.requests.misses += 850;
            store.requests.passed += 900;
            store.not_stored = vec![("private".into(), store.requests.passed / 20)];
        },
        Some(|s| {
            let store = s.store();
            store.requests.passed += 400;
            store.not_stored = vec![("private".into(), store.requests.passed / 20)];
        }),
    ),
    (
        "compress-again",
        |s| (0..20).for_each(|_| s.stats.file_compression.record(Duration::from_millis(100))),
        Some(|s| (0..20).for_each(|_| s.stats.file_compression.record(Duration::from_millis(20)))),
    ),
    (
        "tickets",
        |s| {
            s.stats.tls_handshakes.add(Handshake::Refused, 300);
            s.stats.tls_ticket_clients.add(60);
        },
        Some(|s| {
            s.stats.tls_handshakes.add(Handshake::Refused, 10);
            s.stats.tls_ticket_clients.add(10);
        }),
    ),
    (
        "certificate-ends",
        |s| s.info.certificates[0].not_after = Some(1_000_000_000 + 9 * 86_400),
        Some(|_| {}),
    ),
    (
        "not-found-storm",
        |s| (0..9_000).for_each(|_| s.stats.responses.add(404)),
        Some(|s| (0..1_000).for_each(|_| s.stats.responses.add(404))),
    ),
    (
        "retry-storm",
        |s| {
            s.stats.requests_put_off.add(200);
            s.stats.requests_repeated.add(160);
        },
        Some(|s| {
            s.stats.requests_put_off.add(200);
            s.stats.requests_repeated.add(40);
        }),
    ),
    (
        "files-cut",
        |s| s.stats.responses_cut.add(2),
        Some(|s| s.stats.responses_cut.add(4 * u64::from(s.is_once()))),
    ),
    (
        "limit-keys",
        |s| s.info.rates[0].crowded += 4,
        Some(|s| s.info.rates[0].crowded += 4 * u64::from(s.is_once())),
    ),
];

pub const APPLICATIONS: &[Case] = &[
    (
        "application-slow",
        |s| s.fail(APP, GatewayFailure::Silent, 3),
        Some(|s| s.fail(APP, GatewayFailure::Silent, 3 * u64::from(s.is_once()))),
    ),
    (
        // The same without anybody who was given up.
        "application-slow",
        |s| (0..20).for_each(|_| s.application.record(Duration::from_secs(9))),
        Some(|s| (0..20).for_each(|_| s.application.record(Duration::from_secs(3)))),
    ),
    (
        "application-down",
        |s| s.fail(PHP, GatewayFailure::Down, 3),
        Some(|s| s.fail(PHP, GatewayFailure::Unreachable, 3 * u64::from(s.is_once()))),
    ),
    (
        "application-breaks",
        |s| s.fail(APP, GatewayFailure::Closed, 3),
        Some(|s| s.fail(APP, GatewayFailure::Malformed, 3 * u64::from(s.is_once()))),
    ),
    (
        "application-errors",
        |s| s.info.series.sites[0].routes[APP].1.answers[4] += 500,
        Some(|s| s.info.series.sites[0].routes[APP].1.answers[4] += 50),
    ),
    (
        "upstream-too-small",
        |s| {
            s.idle();
            (0..50).for_each(|_| s.queue.record(Duration::from_secs(1)));
        },
        Some(|s| {
            s.idle();
            (0..50).for_each(|_| s.queue.record(Duration::from_millis(100)));
        }),
    ),
    (
        // The same before the members of an upstream.
        "upstream-too-small",
        |s| {
            s.idle();
            s.info.upstreams[0].demand.waiting = 5;
        },
        None,
    ),
    (
        "application-queue-age",
        |s| s.fail(2, GatewayFailure::QueueAge, 3),
        Some(|s| s.fail(2, GatewayFailure::QueueAge, 3 * u64::from(s.is_once()))),
    ),
    (
        "application-queue-age",
        |s| s.info.upstreams[0].demand.refused_too_old += 4,
        Some(|s| s.info.upstreams[0].demand.refused_too_old += 4 * u64::from(s.is_once())),
    ),
    (
        "application-queue-age",
        |s| s.pool().demand.refused_too_old += 4,
        Some(|s| s.pool().demand.refused_too_old += 4 * u64::from(s.is_once())),
    ),
    (
        "pool-crashes",
        |s| {
            s.pool().restarts += 1;
            s.pool().last_failure = Some("ended with status 1".into());
        },
        Some(|s| s.pool().restarts += 2 * u64::from(s.is_once())),
    ),
    (
        "pool-memory",
        |s| s.host.processes[1].private = GIBIBYTE,
        Some(|s| s.host.processes[1].private = GIBIBYTE / 8),
    ),
    (
        "pool-too-large",
        |s| {
            s.host.pressure.processor = 70.0;
            s.pool().demand.in_use = 8;
            s.host.processes[1].busy_millis += 9_400;
            s.host.processes[2].busy_millis += 9_400;
        },
        Some(|s| {
            s.host.pressure.processor = 20.0;
            s.host.processes[1].busy_millis += 4_000;
        }),
    ),
    (
        "pool-too-small",
        |s| {
            s.idle();
            (s.pool().demand.in_use, s.pool().demand.waiting) = (8, 5);
        },
        Some(|s| {
            s.idle();
            (s.pool().demand.in_use, s.pool().demand.waiting) = (4, 1);
        }),
    ),
    (
        "pool-queue-full",
        |s| s.pool().demand.refused_full += 4,
        Some(|s| s.pool().demand.refused_full += 4 * u64::from(s.is_once())),
    ),
    (
        "opcache-full",
        |s| s.pool().opcache = opcache(5 << 20, 0),
        Some(|s| s.pool().opcache = opcache(40 << 20, 0)),
    ),
    (
        "member-flaps",
        |s| {
            s.info.upstreams[0].ejections += 1;
            s.info.upstreams[0].members[1].failures += 40;
        },
        Some(|s| s.info.upstreams[0].members[1].failures += 3),
    ),
    (
        "upstream-queue-full",
        |s| s.info.upstreams[0].demand.refused_full += 4,
        Some(|s| s.info.upstreams[0].demand.refused_full += 4 * u64::from(s.is_once())),
    ),
    (
        "upstream-reconnects",
        |s| (0..2_000).for_each(|_| s.connect.record(Duration::from_millis(1))),
        Some(|s| (0..300).for_each(|_| s.connect.record(Duration::from_millis(1)))),
    ),
    (
        // The same before the one address of a route.
        "upstream-queue-full",
        |s| s.fail(2, GatewayFailure::QueueFull, 4),
        Some(|s| s.fail(2, GatewayFailure::QueueFull, 4 * u64::from(s.is_once()))),
    ),
    ("retries-amplify", |s| s.info.upstreams[0].retries += 90, Some(|s| s.info.upstreams[0].retries += 20)),
    ("retries-amplify", |s| s.stats.gateway_retries.add(300), Some(|s| s.stats.gateway_retries.add(40))),
];
