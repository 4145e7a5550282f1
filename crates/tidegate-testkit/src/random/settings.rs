//! Random settings, from a grammar: listeners, sites, routes, applications and limits. What is generated is known to
//! the clients of the run as a [`Plan`], and to the server as the text of a settings file.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use super::answer::{Body, Served};
use super::application::Protocol;
use super::generator::Generator;
use super::origin::Origin;
use super::routes::{self, Routes};
use super::tree::Tree;
use super::variant::Variant;

/// What a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listener {
    Plain,
    H2c,
    Tls,
    Unix,
    /// Behind a proxy that says by the PROXY protocol who its client is.
    Proxied,
    ProxiedTls,
}

impl Listener {
    pub(super) fn speaks_http2(self) -> bool {
        !matches!(self, Listener::Plain | Listener::Unix)
    }

    pub(super) fn is_tls(self) -> bool {
        matches!(self, Listener::Tls | Listener::ProxiedTls)
    }

    /// Where its clients may be.
    pub(super) fn origins(self) -> &'static [Origin] {
        match self {
            Listener::Unix => &[Origin::Unix],
            Listener::Proxied | Listener::ProxiedTls => &[Origin::Loopback, Origin::Near, Origin::Far],
            Listener::Plain | Listener::H2c | Listener::Tls => &[Origin::Loopback],
        }
    }

    pub(super) fn is_proxied(self) -> bool {
        matches!(self, Listener::Proxied | Listener::ProxiedTls)
    }
}

/// What answers behind a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An application inside the test process.
    Own { protocol: Protocol, is_unix: bool },
    /// Processes that the server starts: this program, as an application.
    Pool { protocol: Protocol },
    /// Scripts that the server starts.
    Cgi,
}

impl Kind {
    /// A cut is seen whatever the framing.
    pub(super) fn shows_cuts(self) -> bool {
        let (Kind::Own { protocol, .. } | Kind::Pool { protocol }) = self else { return false };
        protocol != Protocol::Scgi
    }

    /// Its faults are those that a plan names, and are felt by nobody else: what does not answer in time is replaced
    /// where it is a process of a pool.
    pub(super) fn can_fail(self) -> bool {
        matches!(self, Kind::Own { .. })
    }

    /// It has a place for fields behind the content.
    pub(super) fn has_trailers(self) -> bool {
        let (Kind::Own { protocol, .. } | Kind::Pool { protocol }) = self else { return false };
        matches!(protocol, Protocol::Http1 | Protocol::H2c)
    }

    pub(super) fn largest_answer(self) -> u64 {
        if self == Kind::Cgi { 64 << 10 } else { 16 << 20 }
    }
}

/// An application and its route.
#[derive(Debug, Clone)]
pub(super) struct Application {
    pub(super) kind: Kind,
    /// The beginning of its paths.
    pub(super) path: String,
    /// So many of a hundred requests ask for an answer that goes wrong.
    pub(super) fault_percent: u64,
    directives: Vec<String>,
    /// Directives of its pool, where it is one.
    pool: Vec<String>,
    /// Where it listens, once it does; the name of a pool.
    pub(super) address: String,
}

impl Application {
    /// A path that it answers.
    pub(super) fn request_path(&self) -> String {
        format!("{}{}", self.path, if self.kind == Kind::Cgi { "answer.sh" } else { "x" })
    }
}

/// A path of a site, what is said beside it, and what is served there.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) path: String,
    pub(super) fields: Vec<(String, String)>,
    /// To each of [`Origin::ALL`].
    pub(super) served: Vec<Served>,
}

impl Target {
    pub(super) fn is_big(&self) -> bool {
        self.served.first().is_some_and(|served| matches!(served.body, Body::File { length: 500_000.., .. }))
            && self.fields.is_empty()
    }

    pub(super) fn served_to(&self, origin: Origin) -> &Served {
        &self.served[origin as usize]
    }
}

/// A site.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) host: String,
    /// Its folder, below that of the run.
    pub(super) folder: String,
    pub(super) tree: Tree,
    pub(super) routes: Routes,
    /// Paths that are asked for; `explain` says what is there.
    pub(super) paths: Vec<String>,
    /// What some requests say beside their path.
    pub(super) variants: Vec<(usize, Variant)>,
    pub(super) targets: Vec<Target>,
}

/// Limits that the clients must know of.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) memory: u64,
    /// Memory is scarce, and clients will ask for more of it than there is.
    pub(super) is_tight: bool,
    /// The grace is short enough for a test to wait for it.
    pub(super) is_quick: bool,
    pub(super) send_rate: u64,
    pub(super) rate_grace: Duration,
    pub(super) keep_alive: Duration,
    pub(super) streams: u64,
    directives: Vec<String>,
}

/// All that is random and known before anything is started.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) listeners: Vec<Listener>,
    pub(super) applications: Vec<Application>,
    pub(super) sites: Vec<Site>,
    pub(super) limits: Limits,
    /// Bytes that the file cache may hold in memory, all workers together.
    pub(super) cache: u64,
    /// The settings are taken up anew while clients play, also with mistakes in them.
    pub(super) has_reloads: bool,
    /// The program is replaced while clients play.
    pub(super) has_upgrades: bool,
    top: Vec<String>,
}

impl Plan {
    pub(super) fn generate(seed: u64) -> Plan {
        let random = Generator::new(seed);
        let mut top_random = random.fork(1);
        let workers = top_random.weighted(&[(3, 1), (3, 2), (1, 3)]);
        let limits = limits(&mut random.fork(2));
        let mut top = vec![format!("workers {workers}")];
        let mut cache = file_cache(&mut top_random, &mut top) * workers;
        // Numbers of their own, so that what a seed was before it knew of these it still is.
        let mut operation = random.fork(8);
        let has_reloads = operation.chance(40);
        let has_upgrades = operation.chance(35);
        if has_upgrades {
            // Whoever has begun something is let finish it.
            top.push("drain-timeout \"4m\"".to_owned());
        }
        if !limits.is_tight && operation.chance(25) {
            top.push("processes 2".to_owned());
            cache *= 2;
        }
        Plan {
            seed,
            listeners: listeners(&mut random.fork(3)),
            applications: applications(&mut random.fork(4)),
            sites: sites(&mut random.fork(5)),
            limits,
            cache,
            has_reloads,
            has_upgrades,
            top,
        }
    }

    pub(super) fn indices(&self, which: impl Fn(Listener) -> bool) -> Vec<usize> {
        (0..self.listeners.len()).filter(|index| which(self.listeners[*index])).collect()
    }

    /// The settings file. `program` is what pools run. Without logins it is what `explain` is asked about what is behind them.
    pub(super) fn text(&self, program: &Path, has_logins: bool) -> String {
        let mut out = format!("// seed {}\n", self.seed);
        for line in self.top.iter().map(String::as_str).chain(routes::TOP) {
            let _ = writeln!(out, "{line}");
        }
        for (number, listener) in self.listeners.iter().enumerate() {
            let _ = match listener {
                Listener::Plain => writeln!(out, "listen \"127.0.0.1:0\""),
                Listener::H2c => writeln!(out, "listen \"127.0.0.1:0\" {{ h2c }}"),
                Listener::Tls => {
                    writeln!(
                        out,
                        "listen \"127.0.0.1:0\" {{ tls certificate=\"server.pem\" key=\"server.key\" }}"
                    )
                }
                Listener::Unix => writeln!(out, "listen \"unix:listen{number}.sock\""),
                Listener::Proxied => {
                    writeln!(out, "listen \"127.0.0.1:0\" {{ h2c; proxy-protocol from=\"127.0.0.0/8\" }}")
                }
                Listener::ProxiedTls => writeln!(
                    out,
                    "listen \"127.0.0.1:0\" {{ tls certificate=\"server.pem\" key=\"server.key\"; proxy-protocol from=\"127.0.0.0/8\" }}"
                ),
            };
        }
        for application in &self.applications {
            let Kind::Pool { protocol } = application.kind else { continue };
            let program = program.display();
            let _ = writeln!(out, "pool \"{}\" {{", application.address);
            let _ = writeln!(out, "    command \"{program}\" \"application\" \"{}\"", protocol.name());
            for line in &application.pool {
                let _ = writeln!(out, "    {line}");
            }
            let _ = writeln!(out, "}}");
        }
        if self.applications.iter().any(|application| application.kind == Kind::Cgi) {
            let _ = writeln!(
                out,
                "pool \"cgi\" {{\n    cgi-stubs\n    processes max=8\n    queue length=100000 age=\"1m\"\n}}"
            );
        }
        let _ = writeln!(out, "limits {{");
        for line in &self.limits.directives {
            let _ = writeln!(out, "    {line}");
        }
        let _ = writeln!(out, "}}");
        for site in &self.sites {
            let _ = writeln!(out, "site \"{}\" {{\n    root \"{}\"", site.host, site.folder);
            for application in &self.applications {
                let _ = writeln!(out, "    route \"{}*\" {{", application.path);
                let _ = match application.kind {
                    Kind::Cgi => writeln!(out, "        cgi {{"),
                    Kind::Own { protocol, .. } | Kind::Pool { protocol } => {
                        let (word, scheme) = match protocol {
                            Protocol::Http1 => ("proxy", "http://"),
                            Protocol::H2c => ("proxy", "h2c://"),
                            Protocol::FastCgi => ("fastcgi", ""),
                            Protocol::Scgi => ("scgi", ""),
                        };
                        writeln!(out, "        {word} \"{scheme}{}\" {{", application.address)
                    }
                };
                for line in &application.directives {
                    let _ = writeln!(out, "            {line}");
                }
                let _ = writeln!(out, "        }}");
                if application.kind == Kind::Cgi {
                    let _ = writeln!(out, "        alias \"cgi-bin\"");
                }
                let _ = writeln!(out, "    }}");
            }
            for line in site.routes.directives.iter().chain(site.routes.login.iter().filter(|_| has_logins)) {
                let _ = writeln!(out, "    {line}");
            }
            let _ = writeln!(out, "}}");
        }
        out
    }
}

fn listeners(random: &mut Generator) -> Vec<Listener> {
    let mut listeners = vec![Listener::Plain];
    if random.chance(80) {
        listeners.push(Listener::H2c);
    }
    if random.chance(50) || listeners.len() == 1 {
        listeners.push(Listener::Tls);
    }
    if random.chance(25) {
        listeners.push(Listener::Unix);
    }
    if random.chance(40) {
        listeners.push(random.pick(&[Listener::Proxied, Listener::Proxied, Listener::ProxiedTls]));
    }
    listeners
}

fn kib(bytes: u64) -> String {
    format!("\"{}KiB\"", bytes.div_ceil(1024))
}

fn millis(time: Duration) -> String {
    format!("\"{}ms\"", time.as_millis())
}

fn limits(random: &mut Generator) -> Limits {
    let is_tight = random.chance(35);
    let memory = if is_tight { random.pick(&[16 << 20, 32 << 20, 64 << 20]) } else { 1 << 30 };
    let is_quick = random.chance(60);
    let rate_grace = if is_quick { random.pick(&[1000, 2000, 3000]) } else { 30_000 };
    let rate_grace = Duration::from_millis(rate_grace);
    let send_rate = if is_quick { random.pick(&[256, 4 << 10, 16 << 10]) } else { 256 };
    let keep_alive = random.weighted(&[(3, 60_000), (1, 500), (1, 2000)]);
    let keep_alive = Duration::from_millis(keep_alive);
    let streams = random.weighted(&[(4, 128), (1, 8), (1, 1), (1, 500)]);
    let mut directives = vec![
        format!("memory \"{}MiB\"", memory >> 20),
        format!("rate-grace {}", millis(rate_grace)),
        format!("send-rate \"{send_rate}B\""),
        format!("keep-alive-timeout {}", millis(keep_alive)),
        format!("streams {streams}"),
        // The machine may be busy with other things.
        "overload-delay off".to_owned(),
        "head-timeout \"30s\"".to_owned(),
        "handshake-timeout \"30s\"".to_owned(),
    ];
    if random.chance(40) {
        directives.push(format!("unsent-size {}", kib(random.pick(&[4 << 10, 32 << 10, 1 << 20]))));
    }
    if !is_tight && random.chance(30) {
        directives.push(format!("in-flight {}", random.between(4, 64)));
        directives.push("queue length=100000 age=\"1m\"".to_owned());
    }
    if random.chance(20) {
        directives.push(format!("keep-alive-connections {}", random.between(1, 32)));
    }
    if random.chance(20) {
        directives.push(format!("keep-alive-requests {}", random.between(1, 50)));
    }
    if random.chance(30) {
        directives.push(format!("discard-size {}", kib(random.size(1 << 20))));
    }
    if random.chance(30) {
        directives.push(format!("linger-timeout {}", millis(random.millis(0, 3000))));
    }
    Limits { memory, is_tight, is_quick, send_rate, rate_grace, keep_alive, streams, directives }
}

/// Bytes that one worker may hold.
fn file_cache(random: &mut Generator, top: &mut Vec<String>) -> u64 {
    if random.chance(50) {
        return 64 << 20;
    }
    let memory = random.pick(&[64 << 10, 1 << 20, 16 << 20]);
    top.push(format!(
        "file-cache {{ entries {}; memory {}; memory-file-size {}; descriptors {} }}",
        random.pick(&[1, 16, 1024]),
        kib(memory),
        kib(random.pick(&[1 << 10, 8 << 10, 64 << 10])),
        random.pick(&[1, 8, 256]),
    ));
    memory
}

fn applications(random: &mut Generator) -> Vec<Application> {
    let mut kinds = Vec::new();
    for _ in 0..random.between(2, 5) {
        let protocol = random.pick(&[
            Protocol::Http1,
            Protocol::Http1,
            Protocol::H2c,
            Protocol::FastCgi,
            Protocol::FastCgi,
            Protocol::Scgi,
        ]);
        kinds.push(Kind::Own { protocol, is_unix: protocol != Protocol::H2c && random.chance(30) });
    }
    if random.chance(25) {
        kinds.push(Kind::Cgi);
    }
    if random.chance(40) {
        kinds.push(Kind::Pool {
            protocol: random.pick(&[Protocol::Http1, Protocol::FastCgi, Protocol::Scgi]),
        });
    }
    let with_path = |(number, kind)| {
        let path = if kind == Kind::Cgi { "/cgi/".to_owned() } else { format!("/app{number}/") };
        application(random, kind, path)
    };
    kinds.into_iter().enumerate().map(with_path).collect()
}

fn application(random: &mut Generator, kind: Kind, path: String) -> Application {
    let timeout = random.pick(&["6s", "20s"]);
    let mut directives = vec![format!("timeout \"{timeout}\""), "connect-timeout \"20s\"".to_owned()];
    if random.chance(50) {
        let buffer = random.size(4 << 20);
        directives.push(format!("buffer \"{buffer}B\""));
    }
    if random.chance(40) {
        directives.push(format!("request-buffer \"{}B\"", random.size(1 << 20)));
    }
    let (mut pool, mut address) = (Vec::new(), String::new());
    if let Kind::Pool { .. } = kind {
        address = path.trim_matches('/').to_owned();
        pool = pool_directives(random);
    }
    if let Kind::Own { protocol, .. } | Kind::Pool { protocol } = kind {
        let is_proxy = matches!(protocol, Protocol::Http1 | Protocol::H2c);
        if protocol != Protocol::Scgi && random.chance(60) {
            let keep =
                random.weighted(&[(1, "off".to_owned()), (3, random.clone().between(1, 32).to_string())]);
            directives.push(format!("keep {keep}"));
        }
        if protocol != Protocol::Scgi {
            // A short one has the sweeper at work in the gaps.
            directives.push(format!("keep-timeout {}", millis(random.millis(50, 2500))));
        }
        if random.chance(35) && matches!(kind, Kind::Own { .. }) {
            directives.push(format!("connections {}", random.between(1, 32)));
            directives.push("queue length=100000 age=\"1m\"".to_owned());
        }
        if !is_proxy {
            directives.push(format!("mount \"{}\"", path.trim_end_matches('/')));
        }
    }
    Application { kind, path, fault_percent: random.pick(&[0, 0, 5, 30]), directives, pool, address }
}

fn pool_directives(random: &mut Generator) -> Vec<String> {
    let (min, most) = (random.between(0, 2), random.between(2, 4));
    let mut directives = vec![
        format!(
            "processes min={min} max={most} idle={} grow-after=\"20ms\"",
            millis(random.millis(200, 2000))
        ),
        format!("places {}", random.pick(&[1, 1, 4, 32])),
        "queue length=100000 age=\"1m\"".to_owned(),
        format!("socket auto pass={}", random.pick(&["stdin", "path"])),
    ];
    if random.chance(30) {
        directives.push(format!("requests {}", random.between(5, 100)));
    }
    directives
}

/// Requests of each site that say more than their path.
const VARIANTS: u64 = 24;

fn sites(random: &mut Generator) -> Vec<Site> {
    let hosts = ["a.test", "b.test"];
    let count = random.between(1, 2) as usize;
    hosts[..count].iter().enumerate().map(|(number, host)| site(random, number, host)).collect()
}

fn site(random: &mut Generator, number: usize, host: &str) -> Site {
    let folder = format!("site-{host}");
    let tree = Tree::generate(random, &folder);
    let mut paths = tree.paths(random);
    let routes = Routes::generate(random, number);
    paths.extend(routes.paths.iter().cloned());
    let count = paths.len() as u64;
    let variants = (0..VARIANTS).map(|_| (random.below(count) as usize, Variant::generate(random))).collect();
    Site { host: host.to_owned(), folder, tree, routes, paths, variants, targets: Vec::new() }
}
