//! The server as a whole, as it reports on itself: the facts, its processes, and what they have counted,
//! added up.
//!
//! The master's main thread keeps it up to date. The control socket and the server processes ask it, from
//! threads of their own; it asks the server processes in turn, over their links.
//!
//! `figures` gathers what processes have counted, `questions` asks workers and answers server processes, `reports` puts reports
//! together, and `orders` carries out what the operator wants of requests, bans and file caches.

mod figures;
mod orders;
mod questions;
mod reports;

use super::admin::Door;
use super::history::HistoryKeeper;
use super::pools::Pools;
use super::rates::Rates;
use crate::link::{Figures, Link};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidegate_config::WrittenSettings;
use tidegate_config::settings::upstream::Upstream;
use tidegate_config::settings::{CacheStore, Level, Settings, Site};
use tidegate_core::series;
use tidegate_modules::status::{Finding, InForce, OtlpReport, ProcessInfo, SiteState, TurnedAway};
use tidegate_stats::series::SeriesNames;
use tidegate_stats::{ListenerFigures, Timed};
use tidegate_tls::Slot;

use figures::stores_in_force;

pub use figures::Told;
pub use questions::take_answers;

/// How long server processes may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses whose counts are remembered, unless more are listened on.
const LISTENERS: usize = 256;

/// The names of all limits.
fn limits(settings: &Settings) -> impl Iterator<Item = &str> {
    let routes = settings.sites.iter().flat_map(|site| &site.routes);
    routes.flat_map(|route| &route.rates).map(|limit| limit.name.as_str())
}

/// Shared by the threads of the master.
pub struct StatusRegistry {
    started: i64,
    facts: Mutex<Facts>,
    asking: AtomicUsize,
    pools: OnceLock<Arc<Pools>>,
    admin: OnceLock<Arc<Door>>,
    /// What there was, second by second.
    pub history: HistoryKeeper,
    /// What the collector of OpenTelemetry has taken; `None` where there is none.
    otlp: Mutex<Option<OtlpReport>>,
    /// The same before an upgrade.
    otlp_before: Mutex<OtlpReport>,
    /// Held by who makes a report with sites and routes.
    reporting: Mutex<()>,
}

#[derive(Default)]
struct Facts {
    revision: u64,
    is_draining: bool,
    listeners: Vec<String>,
    sites: Vec<String>,
    /// What the settings say of each.
    sites_in_force: Vec<SiteState>,
    /// Those that are not served, each with the reason.
    left_out: Vec<(String, String)>,
    in_force: InForce,
    /// What sites and routes are called in statistics.
    series: Vec<SeriesNames>,
    /// The tables of limits.
    rates: Rates,
    written: Arc<WrittenSettings>,
    /// Stores of responses.
    caches: Vec<(String, Vec<PathBuf>)>,
    /// What the error log takes in place of what they say.
    log_level: Option<Level>,
    /// Upstream groups, and the members of each.
    groups: Vec<(String, Vec<String>)>,
    certificates: Vec<(String, Arc<Slot>)>,
    workers: usize,
    members: Vec<Member>,
    /// Questions after what was counted that were asked.
    questions: u64,
    /// Looks of the history.
    looks: usize,
    /// Counted by processes that have ended.
    past: Figures,
    /// Counted before an upgrade, by the predecessor's processes.
    before: Figures,
    /// Server processes that had ended by mistake and were replaced.
    process_restarts: u64,
    /// The master's own log writer's losses.
    own_losses: (u64, BTreeMap<String, u64>),
    /// What limits the server, as it was found last.
    findings: Vec<Finding>,
    /// Limits that have turned somebody away.
    turned_away: Vec<TurnedAway>,
}

/// A server process, or a place for one.
#[derive(Clone)]
pub struct Member {
    /// Of the process; 0 for a place that waits for one.
    pub id: u64,
    /// What is told of it.
    pub info: ProcessInfo,
    /// The way to it.
    pub link: Option<Arc<Link>>,
    /// What it has told.
    pub told: Told,
}

impl StatusRegistry {
    /// Of a server that starts now.
    pub fn new() -> Arc<StatusRegistry> {
        Arc::new(StatusRegistry {
            started: tidegate_io::clock::wall_seconds(),
            facts: Mutex::default(),
            asking: AtomicUsize::new(0),
            pools: OnceLock::new(),
            admin: OnceLock::new(),
            history: HistoryKeeper::default(),
            otlp: Mutex::default(),
            otlp_before: Mutex::default(),
            reporting: Mutex::default(),
        })
    }

    /// Names the door of the admin API, for server processes.
    pub fn set_admin(&self, door: Arc<Door>) {
        let _ = self.admin.set(door);
    }

    /// Names the pools, which are part of the report.
    pub fn set_pools(&self, pools: Arc<Pools>) {
        let _ = self.pools.set(pools);
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processes as they are now. What the last answer of a process told is kept.
    pub fn set_members(&self, mut members: Vec<Member>) {
        let mut facts = self.facts();
        for member in &mut members {
            if let Some(known) = facts.members.iter_mut().find(|known| known.id == member.id) {
                member.told = std::mem::take(&mut known.told);
            }
        }
        facts.members = members;
    }

    /// A server process has ended by mistake, and another is due.
    pub fn process_replaced(&self, pid: u32) {
        self.facts().process_restarts += 1;
        self.history.mark(&format!("server process {pid} replaced"));
    }

    /// New settings are in force; their number.
    pub fn next_revision(&self, settings: &Settings, listeners: Vec<String>, workers: usize) -> u64 {
        let names = |site: &Arc<Site>| match site.names.as_slice() {
            [] => "(any)".to_owned(),
            names => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        };
        let mut facts = self.facts();
        let (left_out, served): (Vec<_>, Vec<_>) =
            settings.sites.iter().partition(|site| site.left_out.is_some());
        facts.sites = served.into_iter().map(names).collect();
        let why = |site: &Arc<Site>| (names(site), site.left_out.clone().unwrap_or_default());
        facts.left_out = left_out.into_iter().map(why).collect();
        let members = |group: &Upstream| group.members.iter().map(|member| member.name.clone()).collect();
        facts.groups = settings.upstreams.iter().map(|group| (group.name.clone(), members(group))).collect();
        let folders = |store: &CacheStore| store.disks.iter().map(|disk| disk.path.clone()).collect();
        facts.caches = settings.caches.iter().map(|store| (store.name.clone(), folders(store))).collect();
        facts.workers = workers;
        facts.series = series::names(settings);
        facts.sites_in_force = SiteState::of(settings, &facts.series);
        facts.in_force = InForce::of(settings, &listeners, workers);
        facts.listeners = listeners;
        let Facts { series, caches, in_force, past, before, .. } = &mut *facts;
        let limits: HashSet<&str> = limits(settings).collect();
        for gone in [past, before] {
            gone.series.keep(series); // names that are gone are not remembered
            gone.stores = stores_in_force(caches, &gone.stores);
            gone.times.retain(|times| match &times.what {
                Timed::Cache(name) => caches.iter().any(|(known, _)| known == name),
                Timed::Limit(name) => limits.contains(name.as_str()),
                Timed::Application(_) | Timed::Member { .. } => true,
            });
            // One that is listened on again goes on counting; of those that are not, so many are remembered.
            let is_in_force = |listener: &ListenerFigures| in_force.counts(&listener.address);
            gone.listeners.sort_by_key(|listener| !is_in_force(listener));
            let count = gone.listeners.iter().filter(|listener| is_in_force(listener)).count();
            gone.listeners.truncate(count.max(LISTENERS));
        }
        facts.revision += 1;
        let revision = facts.revision;
        drop(facts);
        if revision > 1 {
            self.history.mark(&format!("revision {revision}"));
        }
        revision
    }

    /// The limits of the revision in force.
    pub fn rates(&self) -> Rates {
        self.facts().rates.clone()
    }

    /// The tables of limits of a new revision.
    pub fn set_rates(&self, rates: Rates) {
        self.facts().rates = rates;
    }

    /// The settings of a new revision as they were written.
    pub fn set_written(&self, written: Arc<WrittenSettings>) {
        self.facts().written = written;
    }

    /// What the error log takes in place of what the settings say.
    pub fn set_log_level(&self, level: Option<Level>) {
        self.facts().log_level = level;
    }

    /// The certificates of the revision in force, and where each comes from.
    pub fn set_certificates(&self, certificates: Vec<(String, Arc<Slot>)>) {
        self.facts().certificates = certificates;
    }

    /// The server accepts no more.
    pub fn set_draining(&self) {
        self.facts().is_draining = true;
    }

    /// The master's own lost log lines, of all logs and of each.
    pub fn set_own_losses(&self, lines: u64, by_log: BTreeMap<String, u64>) {
        self.facts().own_losses = (lines, by_log);
    }

    /// What the collector of OpenTelemetry has taken so far; `None`: there is none.
    pub fn set_otlp(&self, report: Option<OtlpReport>) {
        *self.otlp.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// What it had taken before an upgrade.
    pub fn set_otlp_before(&self, report: OtlpReport) {
        *self.otlp_before.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// What it has taken, also before an upgrade; `None`: there is none.
    pub fn otlp(&self) -> Option<OtlpReport> {
        let before = *self.otlp_before.lock().unwrap_or_else(PoisonError::into_inner);
        let now = *self.otlp.lock().unwrap_or_else(PoisonError::into_inner);
        now.map(|now| now.with(before))
    }

    /// What was found last.
    pub fn set_findings(&self, findings: Vec<Finding>, turned_away: Vec<TurnedAway>) {
        let mut facts = self.facts();
        (facts.findings, facts.turned_away) = (findings, turned_away);
    }

    /// When the server started, seconds since 1970.
    pub fn started(&self) -> i64 {
        self.started
    }

    /// The stores of responses, by name, and the ways to the processes that have some.
    pub fn stores(&self) -> (Vec<String>, Vec<Arc<Link>>) {
        let facts = self.facts();
        let is_asked = |member: &&Member| matches!(member.info.state.as_str(), "serving" | "draining");
        let members = facts.members.iter().filter(is_asked);
        let names = facts.caches.iter().map(|(name, _)| name.clone()).collect();
        (names, members.filter_map(|member| member.link.clone()).collect())
    }

    /// Only one at a time makes a report with sites and routes: of ten thousand sites it takes a hundred megabytes.
    fn alone(&self) -> MutexGuard<'_, ()> {
        self.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
