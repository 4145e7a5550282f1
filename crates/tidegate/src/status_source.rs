//! What the server knows of itself: its own facts and what its workers have counted, merged.
//!
//! Read by the control socket, and by the status page through the registry. Kept up to date by the master.

use crate::pools::Pools;
use rustix::process::getpid;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tidegate_config::settings::{Settings, Site};
use tidegate_core::log::Writer;
use tidegate_core::worker::{Asker, Handle};
use tidegate_io::{LocalFuture, blocking};
use tidegate_modules::gateway::board::Board;
use tidegate_modules::status::{self, Format, ServerInfo};
use tidegate_stats::{Snapshot, Worker as Stats};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long a worker may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shared by all threads of the server.
pub struct StatusSource {
    started: i64,
    revision: AtomicU64,
    is_draining: AtomicBool,
    members: RwLock<Vec<Member>>,
    listeners: RwLock<Vec<String>>,
    sites: RwLock<Vec<String>>,
    writer: OnceLock<Arc<Writer>>,
    board: Arc<Board>,
    pools: OnceLock<Arc<Pools>>,
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
            sites: RwLock::default(),
            writer: OnceLock::new(),
            board: Board::new(),
            pools: OnceLock::new(),
        })
    }

    /// Names the writer, whose losses are part of the report.
    pub fn set_writer(&self, writer: Arc<Writer>) {
        let _ = self.writer.set(writer);
    }

    /// The pools as workers see them.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Names the pools, which are part of the report.
    pub fn set_pools(&self, pools: Arc<Pools>) {
        let _ = self.pools.set(pools);
    }

    /// The workers, after one has been started.
    pub fn set_workers(&self, workers: &[Handle]) {
        let members =
            workers.iter().map(|worker| Member { asker: worker.asker(), stats: worker.stats.clone() });
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members.collect();
    }

    /// A new revision of the settings is in force; its number.
    pub fn next_revision(&self, settings: &Settings, listeners: Vec<String>) -> u64 {
        let names = |site: &Arc<Site>| match site.names.as_slice() {
            [] => "(any)".to_owned(),
            names => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        };
        *self.sites.write().unwrap_or_else(PoisonError::into_inner) =
            settings.sites.iter().map(names).collect();
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

    /// What the server is.
    pub fn server(&self) -> ServerInfo {
        ServerInfo {
            version: VERSION.into(),
            pid: getpid().as_raw_nonzero().get().unsigned_abs(),
            started: self.started,
            now: tidegate_io::clock::wall_seconds(),
            workers: self.members.read().unwrap_or_else(PoisonError::into_inner).len(),
            revision: self.revision.load(Relaxed),
            listeners: self.listeners.read().unwrap_or_else(PoisonError::into_inner).clone(),
            sites: self.sites.read().unwrap_or_else(PoisonError::into_inner).clone(),
            is_draining: self.is_draining.load(Relaxed),
            log_lines_lost: self.writer.get().map_or(0, |writer| writer.lost_lines()),
        }
    }

    /// The report.
    pub fn report(&self, format: Format) -> String {
        status::report(self.server(), self.snapshot(), format)
    }

    /// Carries out what is asked of the file caches: `report`, `list`, `start`, `stop` or `restart`.
    /// Whether it was done, and what to show.
    pub fn cache(&self, question: &str, format: Format) -> (bool, String) {
        if !matches!(question, "" | "report" | "list") {
            let answers = self.ask(&format!("cache {question}"));
            let refusal = answers.into_iter().find(|answer| answer != "ok");
            return refusal.map_or((true, "ok\n".into()), |refusal| (false, refusal + "\n"));
        }
        let reports = self.ask("cache report");
        let lists = (question == "list").then(|| self.ask("cache list"));
        let pid = getpid().as_raw_nonzero().get().unsigned_abs();
        (true, status::cache_report(&reports, lists.as_deref(), format, pid))
    }
}

/// The status page's view of it, on a worker.
pub struct StatusView(pub Arc<StatusSource>);

impl status::StatusSource for StatusView {
    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    fn server(&self) -> ServerInfo {
        self.0.server()
    }

    fn ask_all(&self, question: &str) -> LocalFuture<Vec<String>> {
        let (source, question) = (self.0.clone(), question.to_owned());
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
