//! The server as a whole, as it reports on itself: the facts, its processes, and what they have counted,
//! added up.
//!
//! The master's main thread keeps it up to date. The control socket and the server processes ask it, from
//! threads of their own; it asks the server processes in turn, over their links.

use super::admin::Door;
use super::control::Subject;
use super::history::HistoryKeeper;
use super::pools::Pools;
use super::rates::Rates;
use super::sums::{add, add_counts, in_force, retired, stores_in_force};
use crate::certificates;
use crate::link::{Answer, Extent, Figures, Link, Question, ReportBytes, ToMaster, ToServer, Wellness};
use crate::version::VERSION;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tidegate_config::settings::upstream::Upstream;
use tidegate_config::settings::{CacheStore, Level, Settings, Site};
use tidegate_config::{ProcessEnvironment, WrittenSettings};
use tidegate_core::rate::Client;
use tidegate_core::selection::Selection;
use tidegate_core::{log, series};
use tidegate_io::usage::Usage;
use tidegate_modules::status::{
    self, BusiestNames, Finding, Format, InForce, OtlpReport, ProcessInfo, Report, ServerInfo, SiteState,
    TurnedAway,
};
use tidegate_stats::Exposition;
use tidegate_stats::series::{SeriesFigures, SeriesNames};
use tidegate_tls::Slot;

/// How long server processes may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Sites and routes whose figures the history asks for in a second, and after how many seconds at the latest.
const NAMES_A_SECOND: usize = 200;
const SECONDS: usize = 60;
/// How long the history waits for them: the next second is to be seen as well.
const GLANCE: Duration = Duration::from_secs(1);
/// Questions of server processes that are answered at once.
const ASKING: usize = 32;
/// Requests that were cancelled, noted in one line of the error log.
const NOTED: usize = 100;

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

/// What a server process has told of what it has counted.
#[derive(Clone, Default)]
pub struct Told {
    last: Figures,
    /// The question that this answers, by its number, and the one that told of sites and routes last.
    number: u64,
    number_of_series: u64,
    /// The question of the history that it has not answered yet.
    glance: Weak<()>,
}

impl Told {
    /// Takes in the answer to a question. Several may ask at once: an answer to one that was asked earlier says less.
    fn take(&mut self, number: u64, extent: Extent, mut figures: Figures) {
        if extent >= Extent::Whole {
            self.last.used.descriptors = figures.used.descriptors;
        }
        if extent >= Extent::Series && number > self.number_of_series {
            self.number_of_series = number;
            self.last.series = std::mem::take(&mut figures.series);
        }
        if number > self.number {
            self.number = number;
            figures.series = std::mem::take(&mut self.last.series);
            figures.used.descriptors = self.last.used.descriptors;
            self.last = figures;
        }
    }
}

/// What was heard of processes.
struct Gathered {
    /// By the processes of this server, those that have ended too.
    own: Figures,
    /// Processes that have answered, and those that have not.
    heard: usize,
    silent: usize,
}

impl Gathered {
    /// Whether anything is known that a history may go on from.
    fn is_sound(&self) -> bool {
        self.heard > 0 || self.silent == 0
    }
}

impl Member {
    /// What is told of it, with what it has told of itself last.
    fn told(&self) -> ProcessInfo {
        let Figures { counted, used, .. } = &self.told.last;
        ProcessInfo {
            requests: counted.requests,
            connections: counted.connections.current,
            used: *used,
            ..self.info.clone()
        }
    }
}

impl Facts {
    /// By the processes of this server, of one moment: whoever ends meanwhile is either among the members or in the past. One
    /// that does not answer has still counted what it told last.
    fn sum(&self, with_series: bool) -> Figures {
        let (log_lines_lost, log_losses) = self.own_losses.clone();
        let mut sum = Figures { log_lines_lost, log_losses, ..Figures::default() };
        for more in [&self.past].into_iter().chain(self.members.iter().map(|member| &member.told.last)) {
            add_counts(&mut sum, more);
            if with_series {
                sum.series.merge(&more.series);
            }
        }
        sum
    }
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

    /// A process has ended: its counts stay. `last` are its last words; without any, what it told last.
    pub fn has_ended(&self, id: u64, last: Option<Figures>) {
        let mut facts = self.facts();
        let Some(place) = facts.members.iter().position(|member| member.id == id && id != 0) else { return };
        let member = facts.members.remove(place);
        add(&mut facts.past, &retired(last.unwrap_or(member.told.last)));
    }

    /// What a predecessor's processes have counted so far.
    pub fn set_before(&self, figures: Figures) {
        self.history.hear_before(&figures);
        self.facts().before = retired(figures);
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
        let Facts { series, caches, past, before, .. } = &mut *facts;
        for gone in [past, before] {
            gone.series.keep(series); // names that are gone are not remembered
            gone.stores = stores_in_force(caches, &gone.stores);
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

    /// All metrics as they are now.
    pub fn exposition(&self) -> Exposition {
        let _alone = self.alone();
        let figures = self.figures_with_series();
        status::exposition(self.server(&figures), figures.counted)
    }

    /// What each worker tells of sampled requests that have ended, to one who comes again within `lease`.
    pub fn spans(&self, lease: Duration) -> Vec<String> {
        self.ask_all(&format!("spans {}", lease.as_secs()))
    }

    /// The path and the client that have come most often in the last minutes.
    pub fn busiest_names(&self) -> BusiestNames {
        status::busiest_names(&self.ask("busiest"))
    }

    /// When the server started, seconds since 1970.
    pub fn started(&self) -> i64 {
        self.started
    }

    /// What was found last.
    pub fn set_findings(&self, findings: Vec<Finding>, turned_away: Vec<TurnedAway>) {
        let mut facts = self.facts();
        (facts.findings, facts.turned_away) = (findings, turned_away);
    }

    /// What all processes have counted, those that have ended too, but not by sites and routes.
    pub fn figures(&self) -> Figures {
        let mut sum = self.own_figures();
        add_counts(&mut sum, &self.facts().before);
        sum
    }

    /// The same without what a predecessor has counted: it arrives at once, and was not of a moment.
    pub fn own_figures(&self) -> Figures {
        self.gather(Extent::Totals, PATIENCE, false).own
    }

    /// The same of each site and route as well.
    pub fn own_figures_with_series(&self) -> Figures {
        self.by_name(self.gather(Extent::Whole, PATIENCE, false).own)
    }

    /// The same with what each site and route has counted.
    pub fn figures_with_series(&self) -> Figures {
        self.with_names(self.gather(Extent::Whole, PATIENCE, false).own)
    }

    /// The same for a successor: the history goes up to this moment, and no further.
    pub fn last_figures(&self) -> Figures {
        let gathered = self.gather(Extent::Whole, PATIENCE, false);
        if gathered.is_sound() {
            self.history.record(&gathered.own);
        }
        self.with_names(gathered.own)
    }

    /// With the predecessor's, by the names that there are now.
    fn with_names(&self, mut figures: Figures) -> Figures {
        add(&mut figures, &self.facts().before);
        self.by_name(figures)
    }

    fn by_name(&self, mut figures: Figures) -> Figures {
        let facts = self.facts();
        match facts.in_force.statistics_off {
            true => figures.series = SeriesFigures::default(),
            false => figures.series.keep(&facts.series),
        }
        drop(facts);
        figures
    }

    /// Looks at the server for its history. A process that has not answered the last time is not asked again, and counts as it
    /// was told last; where none answers nothing is known.
    pub fn look(&self) {
        let extent = self.extent_of_look();
        let gathered = self.gather(extent, GLANCE, true);
        if gathered.is_sound() {
            self.history.record(&gathered.own);
        }
    }

    /// Sites and routes are looked at each second as well, so that a process which ends costs no more of them than of the rest; where
    /// there are many, less often.
    fn extent_of_look(&self) -> Extent {
        let mut facts = self.facts();
        let names: usize = facts.series.iter().map(|site| 1 + site.routes.len()).sum();
        facts.looks += 1;
        let every = (1 + names / NAMES_A_SECOND).min(SECONDS);
        if facts.looks.is_multiple_of(every) { Extent::Series } else { Extent::Totals }
    }

    fn gather(&self, extent: Extent, patience: Duration, is_glance: bool) -> Gathered {
        let (sender, answers) = channel();
        let (mut asked, mut heard, mut silent) = (0, 0, 0);
        let mut facts = self.facts();
        facts.questions += 1;
        let number = facts.questions;
        for member in &mut facts.members {
            let Some(link) = &member.link else { continue };
            if is_glance && member.told.glance.strong_count() > 0 {
                silent += 1;
                continue;
            }
            let glance = Arc::new(());
            if is_glance {
                member.told.glance = Arc::downgrade(&glance);
            }
            let (sender, id) = (sender.clone(), member.id);
            asked += 1;
            link.ask(ToServer::Question, Question::Figures(extent), move |answer| {
                let _ = sender.send((id, answer));
                drop(glance);
            });
        }
        drop((facts, sender));
        let deadline = Instant::now() + patience;
        // Ends early where a process goes: its end of the channel is dropped.
        while heard < asked
            && let Ok((id, answer)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            let Answer::Figures(figures) = answer else {
                asked -= 1;
                silent += 1;
                continue;
            };
            heard += 1;
            if let Some(member) = self.facts().members.iter_mut().find(|member| member.id == id) {
                member.told.take(number, extent, *figures);
            }
        }
        let own = self.facts().sum(extent >= Extent::Series);
        Gathered { own, heard, silent: silent + asked - heard }
    }

    /// Lets a client in again that is banned, here and on the servers that share bans: whether it was banned here, and what is
    /// said of it.
    pub fn lift(&self, address: IpAddr) -> (bool, String) {
        let lifted = self.rates().lift(address);
        self.tell_lifted(Client::at(address).as_slice());
        lifted
    }

    /// The same for everybody who is banned here: how many that were.
    pub fn lift_all(&self) -> String {
        let clients = self.rates().lift_all();
        self.tell_lifted(&clients);
        match clients.len() {
            0 => "Nobody is banned.\n".to_owned(),
            1 => "1 client is banned no longer\n".to_owned(),
            many => format!("{many} clients are banned no longer\n"),
        }
    }

    /// Tells the servers that share bans of it.
    fn tell_lifted(&self, clients: &[Client]) {
        let (facts, at) = (self.facts(), tidegate_io::clock::monotonic_ns());
        // Each tells of it: one of them may just be going.
        for link in facts.members.iter().filter_map(|member| member.link.as_ref()) {
            for client in clients {
                link.send(&ToServer::Lifted { client: client.to_string(), at }, Vec::new());
            }
        }
    }

    /// What every worker of every process that serves says to a question, in their order.
    pub fn ask(&self, question: &str) -> Vec<String> {
        self.ask_those(question, |state| state == "serving")
    }

    /// The same of processes that finish what they have, too: for what is about requests.
    fn ask_all(&self, question: &str) -> Vec<String> {
        self.ask_those(question, |state| matches!(state, "serving" | "draining"))
    }

    fn ask_those(&self, question: &str, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
        let links: Vec<(usize, Arc<Link>)> = {
            let facts = self.facts();
            let members = facts.members.iter().filter(|member| is_asked(&member.info.state));
            members.filter_map(|member| Some((member.info.workers, member.link.clone()?))).collect()
        };
        let mut answers = Vec::with_capacity(links.len());
        for (workers, link) in links {
            let (sender, answer) = channel();
            link.ask(ToServer::Question, Question::Workers(question.into()), move |said| {
                let _ = sender.send(said);
            });
            answers.push((workers, answer));
        }
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        for (workers, answer) in answers {
            match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Answer::Workers(said)) => all.extend(said),
                _ => all.extend((0..workers).map(|_| "this worker does not answer".to_owned())),
            }
        }
        all
    }

    /// Answers a server process, for its status page. Another thread waits for the other processes; when too
    /// many wait already the question stays without an answer, and the page says so.
    pub fn answer(self: &Arc<Self>, link: &Arc<Link>, number: u64, question: Question) {
        if question == Question::Admin {
            let connection = self.admin.get().and_then(|admin| admin.connect());
            let answer = ToServer::Answer(number, Answer::Admin { connection: None });
            link.send(&answer, connection.into_iter().collect());
            return;
        }
        if self.asking.fetch_add(1, Relaxed) >= ASKING {
            self.asking.fetch_sub(1, Relaxed);
            link.send(&ToServer::Answer(number, Answer::Workers(Vec::new())), Vec::new());
            return;
        }
        let (status_registry, link) = (self.clone(), link.clone());
        let asking = std::thread::Builder::new().name("tidegate-ask".into());
        let started = asking.spawn(move || {
            let said = match question {
                Question::Report(report) => Answer::Report(status_registry.written(report)),
                Question::Workers(question) if question.starts_with("history ") => {
                    let asked = question.trim_start_matches("history ");
                    Answer::Workers(status_registry.history.answer(asked).into_iter().collect())
                }
                // Requests are ended, and watched, by the operator alone.
                Question::Workers(question)
                    if question.starts_with("cancel") || question.starts_with("tail") =>
                {
                    Answer::Workers(Vec::new())
                }
                Question::Workers(question) => Answer::Workers(status_registry.ask(&question)),
                Question::Stores(order) => Answer::Stores(order.nothing()), // of the operator alone
                // Of servers alone.
                Question::Figures(_) => Answer::Workers(Vec::new()),
                Question::Wellness => Answer::Wellness(Wellness::default()),
                Question::Admin => Answer::Admin { connection: None }, // answered before
            };
            link.send(&ToServer::Answer(number, said), Vec::new());
            status_registry.asking.fetch_sub(1, Relaxed);
        });
        if started.is_err() {
            self.asking.fetch_sub(1, Relaxed);
        }
    }

    /// A report as it is sent.
    fn written(&self, report: Report) -> ReportBytes {
        let _alone = report.has_series().then(|| self.alone());
        let figures = if report.has_series() { self.figures_with_series() } else { self.figures() };
        ReportBytes::of(report.write(self.server(&figures), figures.counted))
    }

    /// Only one at a time makes a report with sites and routes: of ten thousand sites it takes a hundred megabytes.
    fn alone(&self) -> MutexGuard<'_, ()> {
        self.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server is.
    pub fn server(&self, figures: &Figures) -> ServerInfo {
        // Asked first: the supervisor may take a moment.
        let pools = self.pools.get().map(|pools| pools.status()).unwrap_or_default();
        let facts = self.facts();
        ServerInfo {
            version: VERSION.into(),
            pid: std::process::id(),
            started: self.started,
            now: tidegate_io::clock::wall_seconds(),
            workers: facts.workers,
            revision: facts.revision,
            listeners: facts.listeners.clone(),
            sites: facts.sites.clone(),
            left_out: facts.left_out.clone(),
            certificates: facts
                .certificates
                .iter()
                .map(|(source, slot)| certificates::info_of(source, slot))
                .collect(),
            is_draining: facts.is_draining,
            log_lines_lost: figures.log_lines_lost,
            log_losses: figures.log_losses.clone(),
            used: figures.used,
            used_by_master: Usage::now().into(),
            pools,
            upstreams: in_force(&facts.groups, &figures.groups),
            stores: stores_in_force(&facts.caches, &figures.stores),
            rates: facts.rates.report(),
            providers: figures.providers.clone(),
            in_force: facts.in_force.clone(),
            series: figures.series.clone(),
            findings: facts.findings.clone(),
            turned_away: facts.turned_away.clone(),
            by_worker: figures.workers.clone(),
            lanes: figures.lanes.clone(),
            otlp: *self.otlp.lock().unwrap_or_else(PoisonError::into_inner),
            processes: facts.members.iter().map(Member::told).collect(),
        }
    }

    /// The stores of responses, by name, and the ways to the processes that have some.
    pub fn stores(&self) -> (Vec<String>, Vec<Arc<Link>>) {
        let facts = self.facts();
        let is_asked = |member: &&Member| matches!(member.info.state.as_str(), "serving" | "draining");
        let members = facts.members.iter().filter(is_asked);
        let names = facts.caches.iter().map(|(name, _)| name.clone()).collect();
        (names, members.filter_map(|member| member.link.clone()).collect())
    }

    /// The report.
    pub fn report(&self, format: Format) -> String {
        let _alone = self.alone();
        let figures = self.figures_with_series();
        status::report(self.server(&figures), figures.counted, format)
    }

    /// What is shown beside the report.
    pub fn show(&self, subject: Subject, format: Format) -> String {
        match subject {
            Subject::Requests => status::requests_report(&self.ask_all("requests"), format),
            Subject::Slow => status::slow_report(&self.ask_all("slow"), format),
            Subject::Busiest => status::busiest_report(&self.ask("busiest"), format),
            // Asks nobody: it is as it was found last.
            Subject::Findings => {
                let facts = self.facts();
                status::findings_report(&facts.findings, &facts.turned_away, format)
            }
            Subject::Sites => self.sites(),
            Subject::Settings => {
                let (written, level) = {
                    let facts = self.facts();
                    (facts.written.clone(), facts.log_level)
                };
                let mut in_force = written.in_force(&ProcessEnvironment);
                if let Some(level) = level {
                    status::add_log_level(&mut in_force, level.name());
                }
                status::settings_report(&in_force, format)
            }
            Subject::History(range) => self.history.report(range, format),
        }
    }

    /// What each site is, and how it does.
    fn sites(&self) -> String {
        let _alone = self.alone();
        let figures = self.figures_with_series();
        // The facts are let go of before the server is asked for, which wants them itself.
        let states = self.facts().sites_in_force.clone();
        let info = self.server(&figures);
        status::sites_report(&states, &info.series, &info.certificates, &info.findings)
    }

    /// Ends a request by its id. Whether it was there, and what to say.
    pub fn cancel(&self, id: &str) -> (bool, String) {
        let answers = self.ask_all(&format!("cancel {id}"));
        match answers.iter().any(|answer| answer == "cancelled") {
            true => {
                log::info(format_args!("request {id} was cancelled by an operator"));
                (true, format!("request {id} is cancelled\n"))
            }
            false => (
                false,
                format!("no request {id} is under way; `tidegate status requests` shows those that are\n"),
            ),
        }
    }

    /// Ends the requests of a selection, or says which they are. Whether it was done, and what to say.
    pub fn cancel_all(&self, selection: &Selection, is_rehearsal: bool) -> (bool, String) {
        let how = if is_rehearsal { "dry" } else { "now" };
        let report = match status::cancel_report(&self.ask_all(&format!("cancel-all {how} {selection}"))) {
            Ok(report) => report,
            Err(error) => return (false, error + "\n"),
        };
        let (count, ids) = (report.count, &report.ids);
        let requests = if count == 1 { "1 request".to_owned() } else { format!("{count} requests") };
        let silent = match report.silent {
            0 => String::new(),
            silent => format!("{silent} workers do not answer; they may have more\n"),
        };
        if is_rehearsal {
            let ids: String = ids.iter().map(|id| format!("{id}\n")).collect();
            return (report.silent == 0, format!("{ids}{requests} would be cancelled\n{silent}"));
        }
        let said = selection.to_string().replace('\t', " ");
        for ids in ids.chunks(NOTED) {
            log::info(format_args!("cancelled by an operator ({said}): {}", ids.join(" ")));
        }
        (report.silent == 0, format!("{requests} cancelled\n{silent}"))
    }

    /// What is new to one who watches requests end, as JSON; without a selection it watches no longer. Whether it may, else why
    /// not.
    pub fn tail(&self, name: &str, selection: Option<&Selection>) -> (bool, String) {
        let Some(selection) = selection else {
            self.ask_all(&format!("tail-end {name}"));
            return (true, String::new());
        };
        match status::tail_report(&self.ask_all(&format!("tail {name} {selection}"))) {
            Ok(report) => match serde_json::to_string(&report) {
                Ok(json) => (true, json),
                Err(error) => (false, format!("requests cannot be told: {error}")),
            },
            Err(error) => (false, error),
        }
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
        (true, status::cache_report(&reports, lists.as_deref(), format, std::process::id()))
    }
}

/// What a server process says to the master that the status registry answers or takes; the rest comes back.
pub fn take_answers(
    status_registry: &Arc<StatusRegistry>,
    link: &Arc<Link>,
    message: ToMaster,
) -> Option<ToMaster> {
    match message {
        ToMaster::Question(number, question) => status_registry.answer(link, number, question),
        ToMaster::Answer(number, answer) => link.answered(number, answer),
        order => return Some(order),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_modules::status::Used;

    fn figures(requests: u64) -> Figures {
        let stats = tidegate_stats::Worker::default();
        stats.requests.add(requests);
        stats.connections.add(3);
        Figures {
            counted: stats.snapshot(),
            log_lines_lost: 1,
            log_losses: BTreeMap::from([("a.log".into(), 1)]),
            workers: Vec::new(),
            lanes: Vec::new(),
            used: Used { cpu_micros: 3, resident: 5, descriptors: 7 },
            groups: Vec::new(),
            stores: Vec::new(),
            providers: Vec::new(),
            series: Default::default(),
        }
    }

    #[test]
    fn an_answer_to_an_earlier_question_takes_nothing_back() {
        let mut told = Told::default();
        let requests = |told: &Told| told.last.counted.requests;
        told.take(2, Extent::Totals, figures(20));
        told.take(1, Extent::Whole, figures(10));
        assert_eq!((requests(&told), told.last.used.descriptors), (20, 7), "sites and routes it tells first");
        told.take(3, Extent::Totals, Figures { used: Used::default(), ..figures(30) });
        assert_eq!((requests(&told), told.last.used.descriptors), (30, 7), "not asked for");
    }

    #[test]
    fn what_a_predecessor_has_counted_is_not_of_a_moment() {
        let status_registry = StatusRegistry::new();
        status_registry.set_before(figures(1000));
        assert_eq!(status_registry.own_figures().counted.requests, 0);
        assert_eq!(status_registry.own_figures_with_series().counted.requests, 0);
        assert_eq!(status_registry.figures_with_series().counted.requests, 1000);
    }

    #[test]
    fn counts_outlive_their_process_and_gauges_do_not() {
        let status_registry = StatusRegistry::new();
        let member = |id, last| {
            let info = ProcessInfo::default();
            Member { id, info, link: None, told: Told { last, ..Told::default() } }
        };
        status_registry.set_members(vec![member(1, figures(5)), member(2, figures(7))]);
        assert_eq!(status_registry.figures().counted.requests, 12);
        status_registry.has_ended(1, None);
        status_registry.has_ended(2, Some(figures(9)));
        status_registry.has_ended(2, Some(figures(100)));
        status_registry.set_before(figures(1000));
        let sum = status_registry.figures();
        assert_eq!((sum.counted.requests, sum.log_lines_lost, sum.log_losses["a.log"]), (1014, 3, 3));
        assert_eq!((sum.counted.connections.current, sum.counted.workers), (0, 0));
        // What they had open when they ended has ended: three connections each, and no request was answered.
        assert_eq!((sum.counted.connections_closed, sum.counted.requests_lost), (9, 1014));
        assert_eq!(sum.counted.requests_under_way(), 0);
        assert_eq!(sum.used, Used { cpu_micros: 9, resident: 0, descriptors: 0 });
    }
}
