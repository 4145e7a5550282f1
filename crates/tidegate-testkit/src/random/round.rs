//! One round: everything that happens for one seed.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::application::Application;
use super::client::{self, Shared, Tally};
use super::explain;
use super::findings::{Finding, Findings, Invariant};
use super::generator::Generator;
use super::pause::rest;
use super::routes;
use super::server::{Descriptors, Server};
use super::session;
use super::settings::{Kind, Plan};
use crate::client::Address;
use crate::tls::{self, Made, TlsOptions};

/// Memory that a server may have beside its limit and its file cache: code, tables, stacks, and what the allocator
/// has not given back.
const MEMORY_BASE: u64 = 96 << 20;
/// How long a server may take until it has let go of what its clients had.
const SETTLE: Duration = Duration::from_secs(40);

/// How long the clients of a wave may take; each of their waits is bounded by less.
const WAVE: Duration = Duration::from_secs(240);

/// A client of a wave, counted until it leaves, also when it panics.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// How a round is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server.
    pub binary: PathBuf,
    /// What pools run: a program that answers `application PROTOCOL` by [`super::run_application`].
    pub program: PathBuf,
    /// Waves of clients.
    pub waves: u64,
    /// What is not examined.
    pub without: Vec<Invariant>,
    /// At most so many clients of each wave play.
    pub clients: usize,
}

/// What a round was like.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What was found, in order.
    pub findings: Vec<Finding>,
    /// The settings file.
    pub settings: String,
    /// The last lines of the server's log.
    pub log: String,
    /// What the server has counted, of faults above all, where something was found.
    pub counted: String,
    /// Requests that were sent.
    pub requests: u64,
    /// Answers that were complete.
    pub answers: u64,
    /// Bytes of content that were compared.
    pub bytes: u64,
    /// Clients that have played.
    pub clients: u64,
    /// What the clients of each wave were.
    pub waves: String,
    /// How long it took.
    pub time: Duration,
    /// Most memory that was seen, and where that promise ends.
    pub memory: (u64, u64),
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "seed {}: {}; {} requests, {} answers, {} MiB, memory {} of {} MiB, {:.1} s",
            self.seed,
            self.waves,
            self.requests,
            self.answers,
            self.bytes >> 20,
            self.memory.0 >> 20,
            self.memory.1 >> 20,
            self.time.as_secs_f64()
        )?;
        if self.findings.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n\n--- settings\n{}--- the server's log, its end\n{}", self.settings, self.log)?;
        writeln!(out, "--- what it has counted\n{}", self.counted)?;
        for finding in self.findings.iter().take(4) {
            writeln!(out, "--- {}: {}", finding.invariant.name(), finding.text)?;
            for line in &finding.history {
                writeln!(out, "    {}", shortened(line))?;
            }
        }
        if self.findings.len() > 4 {
            writeln!(out, "--- and {} more", self.findings.len() - 4)?;
        }
        Ok(())
    }
}

fn shortened(line: &str) -> String {
    let end = line.char_indices().nth(220).map_or(line.len(), |(at, _)| at);
    line[..end].to_owned()
}

/// The folder of a round, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(seed: u64) -> Result<Folder, String> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let path =
            std::env::temp_dir().join(format!("tidegate-random-{}-{number}-{seed}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the round of a seed.
///
/// # Errors
/// The round could not be run, which is no finding: something that it needs could not be made, or the server
/// did not explain the settings or did not start.
pub fn run_seed(options: &Options, seed: u64) -> Result<Report, String> {
    let began = Instant::now();
    let mut plan = Plan::generate(seed);
    let folder = Folder::new(seed)?;
    let findings = Arc::new(Findings::ignoring(&options.without));
    let _applications = prepare(&mut plan, &folder.0, &findings)?;
    let settings = plan.text(&options.program, true);
    let files = [
        ("tidegate.kdl", &settings),
        ("open.kdl", &plan.text(&options.program, false)),
        ("passwords", &routes::PASSWORDS.to_owned()),
    ];
    for (name, text) in files {
        fs::write(folder.0.join(name), text).map_err(|error| error.to_string())?;
    }
    let mut random = Generator::new(seed).fork(10);
    for site in &mut plan.sites {
        let targets = explain::targets(&options.binary, &folder.0, site, &mut random);
        site.targets = targets.map_err(|error| format!("{error}\n{settings}"))?;
    }
    let mut server = Server::start(&options.binary, &folder.0, plan.listeners.len())
        .map_err(|error| format!("{error}\n{settings}"))?;
    let tls_config = |protocol: &str| {
        let options = TlsOptions { protocols: vec![protocol.to_owned()], ..TlsOptions::default() };
        tls::config(&options, &folder.0)
    };
    let shared = Shared {
        addresses: server.addresses.clone(),
        is_tls: plan.listeners.iter().map(|listener| listener.is_tls()).collect(),
        is_proxied: plan.listeners.iter().map(|listener| listener.is_proxied()).collect(),
        is_tight: plan.limits.is_tight,
        keep_alive: plan.limits.keep_alive,
        findings: findings.clone(),
        tls: [tls_config("http/1.1")?, tls_config("h2")?],
        tally: Tally::default(),
        is_over: AtomicBool::new(false),
    };
    let bound = plan.limits.memory.min(1 << 30) + plan.cache + MEMORY_BASE;
    let mut round = Round {
        options,
        plan: &plan,
        shared: &shared,
        server: &mut server,
        bound,
        peak: AtomicU64::new(0),
        clients: 0,
        waves: Vec::new(),
    };
    round.play();
    let (peak, clients, waves) = (round.peak.load(Relaxed), round.clients, round.waves.join(", "));
    let counted = if findings.is_empty() { String::new() } else { counted(&server) };
    if findings.is_empty()
        && let Err(error) = server.stop()
    {
        findings.report_text(Invariant::Process, error);
    }
    Ok(Report {
        seed,
        findings: findings.take(),
        settings,
        counted,
        log: server.tail(),
        requests: shared.tally.requests.load(Relaxed),
        answers: shared.tally.answers.load(Relaxed),
        bytes: shared.tally.bytes.load(Relaxed),
        clients,
        waves,
        time: began.elapsed(),
        memory: (peak, bound),
    })
}

/// The counters of the status report that are not 0, but for those of times.
fn counted(server: &Server) -> String {
    let status = match server.status() {
        Ok(status) => status,
        Err(error) => return error,
    };
    let mut words = Vec::new();
    let none = serde_json::Map::new();
    for (name, value) in status["stats"].as_object().unwrap_or(&none) {
        match value {
            serde_json::Value::Object(parts) if !parts.contains_key("buckets") => {
                let parts = parts.iter().filter(|(part, value)| {
                    *part != "total" && value.as_u64().is_some_and(|value| value > 0)
                });
                words.extend(parts.map(|(part, value)| format!("{name}.{part} {value}")));
            }
            value if value.as_u64().is_some_and(|value| value > 0) => words.push(format!("{name} {value}")),
            _ => {}
        }
    }
    words.join(", ")
}

/// Writes files, and starts the applications.
fn prepare(plan: &mut Plan, folder: &Path, findings: &Arc<Findings>) -> Result<Vec<Application>, String> {
    let failed = |error: std::io::Error| error.to_string();
    for site in &plan.sites {
        site.tree.write(folder).map_err(failed)?;
    }
    let made = Made {
        name: "server".to_owned(),
        hosts: vec!["a.test".to_owned(), "b.test".to_owned()],
        by: None,
        is_authority: false,
        is_rsa: false,
        life: None,
    };
    tls::make(&made, folder)?;
    let scripts = folder.join("cgi-bin");
    fs::create_dir_all(&scripts).map_err(failed)?;
    fs::write(scripts.join("answer.sh"), SCRIPT).map_err(failed)?;
    fs::set_permissions(scripts.join("answer.sh"), fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let mut applications = Vec::new();
    for (number, application) in plan.applications.iter_mut().enumerate() {
        let Kind::Own { protocol, is_unix } = application.kind else { continue };
        let path = folder.join(format!("app{number}.sock"));
        let started =
            Application::start(protocol, is_unix.then_some(path.as_path()), findings).map_err(failed)?;
        application.address = match &started.address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => format!("unix:{}", path.display()),
        };
        applications.push(started);
    }
    Ok(applications)
}

/// A CGI script that answers as its query asks it to.
const SCRIPT: &str = r#"#!/bin/sh
for pair in $(echo "$QUERY_STRING" | tr '&' ' '); do
    case $pair in
        n=*) nonce=${pair#n=} ;;
        l=*) length=${pair#l=} ;;
    esac
done
cat > /dev/null
printf 'Status: 200 OK\r\nX-Nonce: %s\r\nContent-Length: %s\r\n\r\n' "$nonce" "$length"
awk -v nonce="$nonce" -v length_="$length" 'BEGIN {
    while (length(nonce) < 16) nonce = "0" nonce
    for (at = 0; at + 32 <= length_; at += 32) printf "%s:%014x\n", nonce, at
    printf "%s", substr(sprintf("%s:%014x\n", nonce, at), 1, length_ - at)
}'
"#;

struct Round<'a> {
    options: &'a Options,
    plan: &'a Plan,
    shared: &'a Shared,
    server: &'a mut Server,
    bound: u64,
    peak: AtomicU64,
    clients: u64,
    waves: Vec<String>,
}

impl Round<'_> {
    fn play(&mut self) {
        let mut random = Generator::new(self.plan.seed).fork(6);
        let base = self.server.descriptors();
        for wave in 0..self.options.waves {
            let mut of_wave = random.fork(wave);
            let mut wave = session::wave(self.plan, &mut of_wave, wave << 20);
            wave.sessions.truncate(self.options.clients);
            self.clients += wave.sessions.len() as u64;
            self.waves.push(format!("{} × {:?}", wave.sessions.len(), wave.crowd));
            self.play_wave(&wave.sessions);
            // Long enough for whatever is done to what is idle, and sometimes not.
            let silence = of_wave.weighted(&[(1, 50), (2, 500), (3, 1500), (2, 3500)]);
            let silence = of_wave.millis(silence / 2, silence);
            let end = Instant::now() + silence;
            loop {
                self.look();
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() || !self.shared.findings.is_empty() {
                    break;
                }
                rest(left.min(Duration::from_millis(100)));
            }
            if !self.shared.findings.is_empty() {
                return;
            }
            let _ = random.number();
        }
        self.settle(base);
    }

    fn play_wave(&self, sessions: &[session::Session]) {
        let left = AtomicUsize::new(sessions.len());
        std::thread::scope(|scope| {
            for (number, session) in sessions.iter().enumerate() {
                let (shared, left) = (self.shared, &left);
                scope.spawn(move || {
                    let _leaves = Leaves(left);
                    client::play(shared, number, session);
                });
            }
            let deadline = Instant::now() + WAVE;
            let mut random = Generator::new(self.plan.seed).fork(9).fork(self.clients);
            let mut next_reload = Instant::now() + random.millis(0, 400);
            // Each replaces all processes, so there are few.
            let mut next_upgrade = Instant::now() + random.millis(0, 1500);
            while left.load(Relaxed) > 0 {
                self.look_at_memory();
                if self.plan.has_reloads && Instant::now() >= next_reload {
                    self.reload(&mut random);
                    next_reload = Instant::now() + random.millis(20, 1500);
                }
                if self.plan.has_upgrades && Instant::now() >= next_upgrade {
                    if let Err(problem) = self.server.upgrade(&self.plan.text(&self.options.program, true)) {
                        self.fail(Invariant::Process, problem);
                    }
                    next_upgrade = Instant::now() + random.millis(500, 6000);
                }
                if Instant::now() > deadline && !self.shared.is_over.swap(true, Relaxed) {
                    self.fail(
                        Invariant::Service,
                        format!("{} clients have no end after {WAVE:?}", left.load(Relaxed)),
                    );
                }
                rest(Duration::from_millis(20));
            }
        });
    }

    /// A reload, with the same settings or with a mistake in them: nobody who is served notices either.
    fn reload(&self, random: &mut Generator) {
        let settings = self.plan.text(&self.options.program, true);
        let (text, is_sound) = match random.below(3) {
            0 => (format!("{settings}\nno-such-directive\n"), false),
            1 => (format!("{settings}\nsite \"c.test\" {{\n"), false),
            _ => (format!("{settings}\n// reload {}\n", random.number()), true),
        };
        if let Err(problem) = self.server.reload(&text, is_sound) {
            self.fail(Invariant::Process, problem);
        }
    }

    fn look(&mut self) {
        self.look_at_memory();
        if let Some(what) = self.server.what_ended() {
            self.fail(Invariant::Process, what);
        }
    }

    fn fail(&self, invariant: Invariant, text: String) {
        if self.shared.findings.report_text(invariant, text) {
            self.shared.is_over.store(true, Relaxed);
        }
    }

    fn look_at_memory(&self) {
        let memory = self.server.memory();
        if memory > self.peak.fetch_max(memory, Relaxed) && memory > self.bound {
            let text = format!(
                "{} MiB of memory; the limit is {} MiB, the file cache may have {} MiB, {} MiB are granted beside them",
                memory >> 20,
                self.plan.limits.memory >> 20,
                self.plan.cache >> 20,
                MEMORY_BASE >> 20
            );
            self.fail(Invariant::Memory, text);
        }
    }

    /// The clients have gone: everything must return to what it was.
    fn settle(&mut self, base: Descriptors) {
        let deadline = Instant::now() + SETTLE;
        loop {
            self.look();
            if !self.shared.findings.is_empty() {
                return;
            }
            let status = match self.server.status() {
                Ok(status) => status,
                Err(error) => return self.fail(Invariant::Process, error),
            };
            let now = self.server.descriptors();
            let cached = status["stats"]["cache_descriptors"]["current"].as_u64().unwrap_or_default();
            let open = status["stats"]["connections"]["current"].as_u64().unwrap_or_default();
            let replaced = self.server.replaced();
            let what = if !replaced.is_empty() {
                Some(format!("{replaced:?} run, which an upgrade has replaced"))
            } else if open > 0 {
                Some(format!("{open} connections are counted as open"))
            } else if now.sockets > base.sockets {
                Some(format!("{} sockets are open, {} were at first", now.sockets, base.sockets))
            } else if now.others > base.others + cached + SLACK {
                Some(format!(
                    "{} files are open, {} were at first, {cached} are in the cache",
                    now.others, base.others
                ))
            } else {
                None
            };
            match what {
                None => {
                    let complaints = self.count(&status);
                    // The last words of what was replaced are on their way.
                    if complaints.is_empty() || !self.server.was_upgraded() || Instant::now() > deadline {
                        complaints.into_iter().for_each(|text| self.fail(Invariant::Counters, text));
                        return;
                    }
                    rest(Duration::from_millis(200));
                }
                Some(what) if Instant::now() > deadline => {
                    let text = format!("{SETTLE:?} after the last client has gone, {what}");
                    return self.fail(Invariant::Descriptors, text);
                }
                Some(_) => rest(Duration::from_millis(200)),
            }
        }
    }

    /// What the status report has counted wrong.
    fn count(&self, status: &serde_json::Value) -> Vec<String> {
        let stats = &status["stats"];
        let number = |name: &str| stats[name].as_u64().unwrap_or_default();
        let (accepted, closed) = (number("connections_accepted"), number("connections_closed"));
        let of = |name: &str| stats["responses"][name].as_u64().unwrap_or_default();
        // Interim answers are counted too, and are no answer yet.
        let responses = of("total").saturating_sub(of("1xx"));
        let tally = &self.shared.tally;
        let (requests, answers) = (tally.requests.load(Relaxed), tally.answers.load(Relaxed));
        let mut complaints = Vec::new();
        // Some of those that are refused are counted as closed, those at the door are not.
        let refused = number("connections_refused");
        if accepted < closed || accepted > closed + refused {
            complaints.push(format!(
                "{accepted} connections accepted, {closed} closed, {refused} refused, none open"
            ));
        }
        // Some of what was sent has met a connection that was closed; all that was answered has come.
        let counted = number("requests");
        if counted < answers || counted > requests {
            complaints.push(format!("{counted} requests counted, {requests} sent, {answers} answered"));
        }
        if responses != counted {
            complaints.push(format!("{responses} responses counted to {counted} requests"));
        }
        let heads = tally.heads.lock().unwrap_or_else(PoisonError::into_inner);
        for (status, received) in heads.iter() {
            let counted = stats["responses"]["codes"][status.to_string()].as_u64().unwrap_or_default();
            // Who is turned away at the door hears it before a request is read, and is counted there.
            let counted = counted + if *status == 503 { refused } else { 0 };
            if counted < *received {
                complaints.push(format!("{counted} responses {status} counted, {received} received"));
            }
        }
        for gauge in ["in_flight", "queued", "buffer"] {
            let current = stats[gauge]["current"].as_u64().unwrap_or_default();
            if current > 0 {
                complaints.push(format!("`{gauge}` is {current} when nobody is there"));
            }
        }
        complaints.iter().map(|text| format!("{text}; {requests} requests were sent")).collect()
    }
}

/// Descriptors of the server's own that come and go: a pipe for `splice`, a watch, a log.
const SLACK: u64 = 16;
