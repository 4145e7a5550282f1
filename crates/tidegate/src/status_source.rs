//! What the server knows of itself: its own facts and what its workers have counted, merged.
//!
//! Read by the control socket, and by the status page through the registry. Kept up to date by the master.

use rustix::process::getpid;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tidegate_config::settings::{Settings, Site};
use tidegate_core::log::Writer;
use tidegate_core::worker::{Asker, Handle};
use tidegate_http::HttpDate;
use tidegate_io::{LocalFuture, blocking};
use tidegate_modules::status::{self, ServerInfo};
use tidegate_stats::{Snapshot, Worker as Stats};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long a worker may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(5);

/// The forms that a report has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// For programs: `{"server": {...}, "stats": {...}}`.
    Json,
    /// For Prometheus.
    Prometheus,
}

/// Shared by all threads of the server.
pub struct StatusSource {
    started: i64,
    revision: AtomicU64,
    is_draining: AtomicBool,
    members: RwLock<Vec<Member>>,
    listeners: RwLock<Vec<String>>,
    writer: OnceLock<Arc<Writer>>,
}

struct Member {
    asker: Asker,
    stats: Arc<Stats>,
}

impl StatusSource {
    /// Of a server that starts now.
    pub fn new() -> Arc<StatusSource> {
        Arc::new(StatusSource {
            started: tidegate_io::clock::wall_seconds(),
            revision: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            members: RwLock::default(),
            listeners: RwLock::default(),
            writer: OnceLock::new(),
        })
    }

    /// Names the writer, whose losses are part of the report.
    pub fn set_writer(&self, writer: Arc<Writer>) {
        let _ = self.writer.set(writer);
    }

    /// The workers, after one has been started.
    pub fn set_workers(&self, workers: &[Handle]) {
        let members =
            workers.iter().map(|worker| Member { asker: worker.asker(), stats: worker.stats.clone() });
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members.collect();
    }

    /// A new revision of the settings is in force; its number.
    pub fn next_revision(&self, listeners: Vec<String>) -> u64 {
        *self.listeners.write().unwrap_or_else(PoisonError::into_inner) = listeners;
        self.revision.fetch_add(1, Relaxed) + 1
    }

    /// The server accepts no more.
    pub fn set_draining(&self) {
        self.is_draining.store(true, Relaxed);
    }

    /// What all workers have counted.
    pub fn snapshot(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        for member in self.members.read().unwrap_or_else(PoisonError::into_inner).iter() {
            sum.merge(&member.stats.snapshot());
        }
        sum
    }

    /// Asks every worker; the answers in their order. One that does not answer says so in its place.
    pub fn ask(&self, question: &str) -> Vec<String> {
        let askers: Vec<Asker> = {
            let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
            members.iter().map(|member| member.asker.clone()).collect()
        };
        let answers: Vec<_> = askers.iter().map(|asker| asker.ask(question)).collect();
        answers
            .into_iter()
            .map(|answer| {
                answer.recv_timeout(PATIENCE).unwrap_or_else(|_| "this worker does not answer".into())
            })
            .collect()
    }

    /// The report.
    pub fn report(&self, form: Form) -> String {
        match form {
            Form::Text => self.text(),
            Form::Json => self.json(),
            Form::Prometheus => self.prometheus(),
        }
    }

    fn state(&self) -> &'static str {
        if self.is_draining.load(Relaxed) { "draining" } else { "serving" }
    }

    fn lost_lines(&self) -> u64 {
        self.writer.get().map_or(0, |writer| writer.lost_lines())
    }

    fn listeners(&self) -> Vec<String> {
        self.listeners.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn since(&self) -> String {
        String::from_utf8_lossy(&HttpDate(self.started).rfc3339()).into_owned()
    }

    fn json(&self) -> String {
        let stats = self.snapshot();
        let server = json!({
            "version": VERSION,
            "pid": getpid().as_raw_nonzero().get(),
            "state": self.state(),
            "started": self.since(),
            "uptime": tidegate_io::clock::wall_seconds().saturating_sub(self.started),
            "revision": self.revision.load(Relaxed),
            "workers": stats.workers,
            "listeners": self.listeners(),
            "log_lines_lost": self.lost_lines(),
        });
        format!("{{\"server\":{server},\"stats\":{}}}\n", stats.to_json())
    }

    fn text(&self) -> String {
        let rows = [
            ("Version", VERSION.to_owned()),
            ("Process", getpid().as_raw_nonzero().to_string()),
            ("State", self.state().to_owned()),
            ("Started", self.since()),
            ("Settings Revision", self.revision.load(Relaxed).to_string()),
            ("Listening On", self.listeners().join(" ")),
            ("Log Lines Lost", self.lost_lines().to_string()),
        ];
        let own: String = rows.iter().map(|(label, value)| format!("{label:<40}{value}\n")).collect();
        own + &self.snapshot().to_text()
    }

    fn prometheus(&self) -> String {
        let mut text = self.snapshot().to_prometheus();
        let rows = [
            (
                "tidegate_start_time_seconds",
                "gauge",
                "When the server started, seconds since 1970.",
                self.started.to_string(),
            ),
            (
                "tidegate_settings_revision",
                "gauge",
                "Number of the settings in force; a reload adds one.",
                self.revision.load(Relaxed).to_string(),
            ),
            (
                "tidegate_log_lines_lost_total",
                "counter",
                "Log lines that could not be written.",
                self.lost_lines().to_string(),
            ),
        ];
        for (name, kind, help, value) in rows {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
        }
        text
    }
}

/// What the status page of one revision shows.
pub struct StatusView {
    source: Arc<StatusSource>,
    sites: Vec<String>,
}

impl StatusView {
    /// For the sites of `settings`.
    pub fn new(source: &Arc<StatusSource>, settings: &Settings) -> StatusView {
        let names = |site: &Arc<Site>| match site.names.as_slice() {
            [] => "(any)".to_owned(),
            names => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        };
        StatusView { source: source.clone(), sites: settings.sites.iter().map(names).collect() }
    }
}

impl status::StatusSource for StatusView {
    fn snapshot(&self) -> Snapshot {
        self.source.snapshot()
    }

    fn server(&self) -> ServerInfo {
        let source = &self.source;
        ServerInfo {
            version: VERSION.into(),
            pid: getpid().as_raw_nonzero().get().unsigned_abs(),
            started: source.started,
            now: tidegate_io::clock::wall_seconds(),
            workers: source.members.read().unwrap_or_else(PoisonError::into_inner).len(),
            revision: source.revision.load(Relaxed),
            listeners: source.listeners(),
            sites: self.sites.clone(),
        }
    }

    fn ask_all(&self, question: &str) -> LocalFuture<Vec<String>> {
        let (source, question) = (self.source.clone(), question.to_owned());
        // The workers answer between turns, this one too: the waiting is done elsewhere.
        let answers = blocking::run(move || source.ask(&question));
        Box::pin(async move {
            match answers {
                Ok(answers) => answers.await,
                Err(_) => Vec::new(),
            }
        })
    }
}
