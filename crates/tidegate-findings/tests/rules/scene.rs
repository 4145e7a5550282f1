//! A server and its machine that are made up, ten seconds at a time, and what the engine says of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::{Settings, load_str};
use tidegate_findings::{Engine, Host, NetworkLink, ProcessUse, Sample, ThreadUse, Windows};
use tidegate_modules::cache_desk::{DiskFigures, StoreFigures};
use tidegate_modules::gateway::balance::report::{GroupReport, MemberReport, MemberState};
use tidegate_modules::gateway::places::Demand;
use tidegate_modules::gateway::pool_directory::{PoolAddress, PoolPhase};
use tidegate_modules::gateway::supervise::status::{PoolStatus, ProcessStatus};
use tidegate_modules::status::{CertificateInfo, Finding, ProcessInfo, RateReport, ServerInfo};
use tidegate_stats::series::{RouteFigures, SiteFigures};
use tidegate_stats::{GatewayFailure, Histogram, Kinds, Metric, Worker};

const SETTINGS: &str = r#"
workers 2
listen "127.0.0.1:1" { backlog 128 }
limits {
    connections 1000; connections-per-address 100; in-flight 100; queue length=50 age="2s"
    keep-alive-connections 200; keep-alive-timeout "5s"; keep-alive-requests 10
}
pool "php" { command "/bin/sh"; processes max=8; queue length=10 age="5s" }
upstream "app" { member "10.0.0.1:80"; member "10.0.0.2:80"; member "10.0.0.3:80"; retry 2 budget=20 }
site "a.test" {
    limit "api" requests="1/s" keys=100; cache "main"
    route "/php/*" { fastcgi "php" { mount "/php" } }
    route "/app/*" { proxy "http://app" { timeout "10s"; keep off } }
    proxy "http://10.0.0.9:80" { connections 2; queue length=3 age="5s" }
}
cache "main" { memory "64MiB"; disk "/var/cache/a" size="1GiB" }
"#;

pub const GIBIBYTE: u64 = 1 << 30;

pub fn settings() -> Arc<Settings> {
    load(SETTINGS)
}

/// The same with something else in the place of something.
pub fn settings_with(old: &str, new: &str) -> Arc<Settings> {
    assert!(SETTINGS.contains(old), "{old}");
    load(&SETTINGS.replace(old, new))
}

fn load(text: &str) -> Arc<Settings> {
    let loaded = load_str("test.kdl", text, Path::new("/"), &BTreeMap::new());
    Arc::new(loaded.settings.clone().unwrap_or_else(|| panic!("{}", loaded.render(false))))
}

type Failures = Kinds<GatewayFailure, { GatewayFailure::COUNT }>;

/// Places of the routes of the scene.
pub const PHP: usize = 0;
pub const APP: usize = 1;

/// What is made up.
pub struct Scene {
    pub stats: Worker,
    pub info: ServerInfo,
    pub host: Host,
    pub settings: Arc<Settings>,
    /// Times that the application of `/app/*` took, and those that it took to connect to it.
    pub application: Histogram,
    /// Waits for a place on the one address of `/*`.
    pub queue: Histogram,
    pub connect: Histogram,
    /// Of each route, what clients got in place of an application's answer.
    failures: [Failures; 3],
    step: u64,
}

impl Scene {
    /// Two processors, two workers, a pool of two processes, an upstream of three members.
    pub fn new(settings: &Arc<Settings>) -> Scene {
        let stats = Worker::default();
        stats.in_flight.set_limit(100);
        stats.buffer.set_limit(64 << 20);
        stats.cache_entries.set_limit(16_384);
        stats.cache_descriptors.set_limit(100);
        let route = |name: &str| (name.to_owned(), RouteFigures::default());
        let site = SiteFigures {
            name: "a.test".into(),
            routes: vec![route("/php/*"), route("/app/*"), route("/*")],
            ..SiteFigures::default()
        };
        let server = ProcessInfo { pid: 10, state: "serving".into(), workers: 2, ..ProcessInfo::default() };
        let mut info = ServerInfo {
            started: 1_000_000_000,
            workers: 2,
            processes: vec![server],
            ..ServerInfo::default()
        };
        info.series.sites.push(site);
        info.pools.push(pool());
        info.upstreams.push(group());
        info.stores.push(store());
        info.rates.push(RateReport { name: "api".into(), ..RateReport::default() });
        info.used.descriptors = 300;
        info.certificates.push(CertificateInfo {
            source: "/etc/tls/a.pem".into(),
            names: vec!["a.test".into()],
            not_before: Some(1_000_000_000 - 30 * 86_400),
            not_after: Some(1_000_000_000 + 60 * 86_400),
            ..CertificateInfo::default()
        });
        let (application, queue, connect, failures) = Default::default();
        Scene {
            stats,
            info,
            host: host(),
            settings: settings.clone(),
            application,
            queue,
            connect,
            failures,
            step: 0,
        }
    }

    /// Ten seconds of a server that is well, at 70 % of what it can do.
    pub fn be_well(&mut self) {
        let Scene { stats, info, host, .. } = self;
        self.step += 1;
        stats.requests.add(10_000);
        (0..10_000).for_each(|_| stats.responses.add(200));
        (0..300).for_each(|_| stats.responses.add(404));
        stats.connections_accepted.add(500);
        stats.connections_closed.add(500);
        stats.connections.set(400);
        stats.keep_alive_hits.add(9_500);
        stats.keep_alive_timeouts.add(200);
        stats.keep_alive.set(150);
        stats.in_flight.set(40);
        stats.sessions_created.add(2_000);
        stats.gateway_requests.add(2_000);
        stats.cache_hits.add(7_000);
        stats.cache_misses.add(100);
        stats.tls_handshakes.add(tidegate_stats::Handshake::Full, 60);
        stats.tls_handshakes.add(tidegate_stats::Handshake::Resumed, 240);
        for _ in 0..100 {
            stats.turn_delay.record(Duration::from_micros(800));
            stats.queue_delay.record(Duration::from_millis(2));
            self.application.record(Duration::from_millis(200));
        }
        self.connect.record(Duration::from_millis(1));
        (host.times.all, host.times.idle) = (host.times.all + 2_000, host.times.idle + 600);
        host.times.stolen += 2;
        info.used.cpu_micros += 13_000_000;
        for worker in &mut host.workers {
            worker.busy_millis += 6_500;
        }
        for process in &mut host.processes {
            process.busy_millis += 500;
        }
        (host.tcp.sent, host.tcp.resent) = (host.tcp.sent + 50_000, host.tcp.resent + 50);
        host.links[0].sent += 200_000_000;
        host.cgroup.periods += 100;
        info.pools[0].demand.requests += 1_000;
        for member in &mut info.upstreams[0].members {
            (member.requests, member.failures) = (member.requests + 300, member.failures + 1);
        }
        let store = &mut info.stores[0];
        store.requests.hits += 900;
        store.requests.misses += 100;
        store.stored += 80;
        let routes = &mut info.series.sites[0].routes;
        routes[1].1.answers[1] += 1_000;
        routes[2].1.answers[1] += 9_000;
        routes[2].1.answers[3] += 300;
    }

    /// Requests of a route, by its place, whose clients got an error in place of an application's answer.
    pub fn fail(&mut self, route: usize, why: GatewayFailure, count: u64) {
        self.stats.gateway_failures.add(why, count);
        self.stats.gateway_errors.add(why, count);
        self.failures[route].add(why, count);
        self.info.series.sites[0].routes[route].1.answers[4] += count;
    }

    /// The processors are not what is short.
    pub fn idle(&mut self) {
        self.host.times.idle += 800;
    }

    /// True in one look of a replay.
    pub fn is_once(&self) -> bool {
        self.step == 9
    }

    pub fn store(&mut self) -> &mut StoreFigures {
        &mut self.info.stores[0]
    }

    /// When so many seconds ago was, as the report tells it.
    pub fn ago(&self, seconds: i64) -> i64 {
        self.info.started + 10 * self.step as i64 - seconds
    }

    pub fn pool(&mut self) -> &mut PoolStatus {
        &mut self.info.pools[0]
    }

    /// What is sampled now.
    pub fn sample(&self) -> Sample {
        let mut info = self.info.clone();
        info.now = info.started + 10 * self.step as i64;
        for (failures, (_, route)) in self.failures.iter().zip(&mut info.series.sites[0].routes) {
            route.failures = Some(failures.read());
        }
        let times = &mut info.series.sites[0].routes[1].1.times;
        (times.application, times.connect) = (self.application.read(), self.connect.read());
        let times = &mut info.series.sites[0].routes[2].1.times;
        times.queue = self.queue.read();
        let mut counted = self.stats.snapshot();
        counted.workers = 2;
        let at = Duration::from_secs(10 * self.step);
        Sample { at, info, counted, host: self.host.clone(), settings: self.settings.clone() }
    }
}

fn store() -> StoreFigures {
    let disk = DiskFigures { folder: "/var/cache/a".into(), ..DiskFigures::default() };
    StoreFigures { store: "main".into(), disks: vec![disk], ..StoreFigures::default() }
}

fn pool() -> PoolStatus {
    let process = |pid| ProcessStatus {
        pid: Some(pid),
        state: "idle".into(),
        age: Duration::from_secs(9),
        requests: 7,
        address: PoolAddress::Unix("/run/x".into()),
    };
    PoolStatus {
        name: "php".into(),
        phase: PoolPhase::Up,
        processes: vec![process(20), process(21)],
        restarts: 0,
        last_failure: None,
        retry_after: None,
        demand: Demand { in_use: 2, ..Demand::default() },
        opcache: None,
    }
}

fn group() -> GroupReport {
    let member = |name: &str| MemberReport {
        name: name.into(),
        state: MemberState::Up,
        weight: 1,
        is_backup: false,
        in_use: 1,
        requests: 0,
        failures: 0,
    };
    let members = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"].map(member).to_vec();
    GroupReport { name: "app".into(), members, ejections: 0, retries: 0, demand: Demand::default() }
}

fn host() -> Host {
    let thread = |number| ThreadUse { pid: 10, name: format!("tidegate-{number}"), busy_millis: 0 };
    let process = |pid| ProcessUse { pid, private: 40 << 20, ..ProcessUse::default() };
    Host {
        processors: Some(2.0),
        descriptors: Some(65_536),
        somaxconn: Some(4_096),
        tcp_pages: Some((100, 100_000)),
        ports: Some((32_768, 60_999)),
        available: Some(4 * GIBIBYTE),
        links: vec![NetworkLink { name: "eth0".into(), sent: 0, speed: 125_000_000 }],
        workers: vec![thread(0), thread(1)],
        processes: vec![process(10), process(20), process(21)],
        ..Host::default()
    }
}

/// What happens in ten seconds beside what always does.
pub type Happening = fn(&mut Scene);

/// Two minutes in which it happens: what is found.
pub fn replay(settings: &Arc<Settings>, strictness: f64, happening: Happening) -> Vec<Finding> {
    let mut engine = Engine::new(Windows { strictness, ..Windows::default() });
    let mut scene = Scene::new(settings);
    engine.take(scene.sample());
    for _ in 0..12 {
        scene.be_well();
        happening(&mut scene);
        engine.take(scene.sample());
    }
    engine.findings()
}

/// A watch of so many looks, in each of which something may happen.
pub fn watch(settings: &Arc<Settings>, looks: u64, mut happening: impl FnMut(u64, &mut Scene, &[Finding])) {
    let (mut engine, mut scene) = (Engine::new(Windows::default()), Scene::new(settings));
    for look in 0..looks {
        engine.take(scene.sample());
        scene.be_well();
        happening(look, &mut scene, &engine.findings());
    }
}

/// Whether a rule has raised something, be it only beside its cause.
pub fn has(findings: &[Finding], name: &str) -> bool {
    let is_beside =
        |finding: &Finding| finding.also_seen.iter().any(|seen| seen.starts_with(&format!("{name} (")));
    findings.iter().any(|finding| finding.name == name || is_beside(finding))
}
