//! The status page: what the server is, what it has counted, and the file cache under the operator's hand.
//! The report of Sun's perfdump and nsfc, as HTML, text, JSON and for Prometheus.
//!
//! | query | answer |
//! | --- | --- |
//! | nothing | the report on the server |
//! | `requests` | the requests under way, the oldest first, as text or JSON |
//! | `slow` | the requests that were slow for their route, the slowest first |
//! | `findings` | what limits the server, and what to change, as text or JSON |
//! | `history=10m`, `6h`, `14d`, `days` | what the server has done since, as text or JSON |
//! | `busiest` | the paths, hosts, clients, user agents and referrers that come most often |
//! | `cache` | the report on the file cache; with `list` (or `list` alone) every entry of it |
//! | `start`, `stop`, `restart` | changes the file cache; only by POST, and not from another site |
//! | `refresh=N` | the browser asks again every N seconds |
//! | `format=html`, `text`, `json`, `xml`, `prometheus`, `openmetrics`, `protobuf` | the form; else the end of the path, else `Accept` decides |
//!
//! Who may see the page is for the access rules of its route. `ask` reads the request, `cache` merges what
//! the workers answer, `report` has the rows, `html` writes the page. The binary implements
//! [`StatusSource`].

mod ask;
mod busiest;
mod cache;
mod finding;
mod history;
mod html;
mod in_force;
pub mod lanes;
pub mod limit_store;
mod performance;
mod pools;
mod printable;
pub mod providers;
mod rates;
mod rendering;
mod report;
mod requests;
mod settings;
mod site_states;
mod sites;
mod stores;
mod tail;
mod times;
mod upstreams;
mod workers;
mod xml;

pub use ask::Format;
pub(crate) use ask::{is_our_host, is_same_site};
pub use busiest::{BusiestName, BusiestNames, busiest_names, busiest_report};
pub use finding::{Change, Finding, TurnedAway, findings_report};
pub use history::{HistoryRange, history_report};
pub(crate) use html::Escaped;
pub use in_force::{InForce, ListenSocket};
pub use lanes::LaneReport;
pub use limit_store::LimitStoreReport;
pub use printable::{printable, printable_json};
pub use providers::ProviderReport;
pub use rates::{QueueReport, RateKind, RateReport};
pub use rendering::Report;
pub use requests::{requests_report, slow_report};
pub use settings::{add_log_level, settings_report};
pub use site_states::{SiteState, sites_report};
pub use tail::{CancelReport, TailReport, TailRow, cancel_report, tail_report};
pub use workers::WorkerFigures;

use crate::cache_desk::StoreFigures;
use crate::gateway::balance::report::GroupReport;
use crate::gateway::supervise::status::PoolStatus;
use ask::{Action, Question, View};
use cache::CacheState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tidegate_core::explain::Foreseen;
use tidegate_core::hosts::Names;
pub use tidegate_core::series::names as series_names;
use tidegate_core::{Exchange, Handler, Pass, Reply, Response, answer};
use tidegate_http::{Method, Status};
use tidegate_io::LocalFuture;
use tidegate_io::usage::Usage;
use tidegate_stats::series::SeriesFigures;
use tidegate_stats::{Family, Snapshot, TimesFigures};
use tidegate_tls::inspect::ends_soon_within;

/// Nothing may be loaded, run or framed; forms lead back here.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

/// Where the page gets what it shows.
pub trait StatusSource {
    /// A report, as it is sent, of all processes together; `None` where nobody can tell.
    fn report(&self, report: Report) -> LocalFuture<Option<Vec<u8>>>;

    /// The same, or one that another was told less than a second ago.
    fn recent_report(&self, report: Report) -> LocalFuture<Option<Vec<u8>>> {
        self.report(report)
    }

    /// Asks every worker (`Registry::ask`) and waits for the answers, in any order; a worker that has ended
    /// may be left out. The questions of this page: `requests`, `slow` and `busiest` (answered with a JSON object), `cache report` (answered with a JSON object), `cache
    /// list` (a JSON array of objects), `cache start`, `cache stop`, `cache restart` (`ok`, or what is
    /// wrong). `history RANGE text` and `history RANGE json` the master answers itself, once, with the report.
    fn ask_all(&self, question: &str) -> LocalFuture<Vec<String>>;

    /// A connection to the admin API, which believes what is said there of who asks; `None` where there is none, or where it
    /// is not for server processes. Non-blocking, and for HTTP/1.1.
    fn admin(&self) -> LocalFuture<Option<OwnedFd>>;
}

/// What the server is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Of the program: `0.1.0`.
    pub version: String,
    /// Process; the master, where there are several.
    pub pid: u32,
    /// Wall clock at the start, seconds since 1970.
    pub started: i64,
    /// Wall clock now, seconds since 1970.
    pub now: i64,
    /// And milliseconds.
    #[serde(default)]
    pub now_millis: u32,
    /// Worker threads.
    pub workers: usize,
    /// Revision of the settings in force, from 1.
    pub revision: u64,
    /// Addresses listened on, as in the settings.
    pub listeners: Vec<String>,
    /// The names of each site, joined; `(any)` or the like for the one without a name.
    pub sites: Vec<String>,
    /// Those of them that a mistake costs, each with the mistake.
    #[serde(default)]
    pub left_out: Vec<(String, String)>,
    /// The certificates that are served.
    pub certificates: Vec<CertificateInfo>,
    /// It accepts no more.
    pub is_draining: bool,
    /// Log lines that could not be written.
    pub log_lines_lost: u64,
    /// The same of each log that has lost some, by its name.
    #[serde(default)]
    pub log_losses: BTreeMap<String, u64>,
    /// The server processes, in their order.
    pub processes: Vec<ProcessInfo>,
    /// Server processes that were replaced because they had ended by mistake, also before an upgrade.
    #[serde(default)]
    pub process_restarts: u64,
    /// Applications behind the server.
    pub pools: Vec<PoolStatus>,
    /// Servers elsewhere.
    pub upstreams: Vec<GroupReport>,
    /// How long each of them has kept requests waiting.
    #[serde(default)]
    pub times: Vec<TimesFigures>,
    /// Stores of responses, in the order of the settings.
    #[serde(default)]
    pub stores: Vec<StoreFigures>,
    /// Limits of requests.
    #[serde(default)]
    pub rates: Vec<RateReport>,
    /// What identity providers publish.
    #[serde(default)]
    pub providers: Vec<ProviderReport>,
    /// The store of limits that several servers share; `None`: there is none.
    #[serde(default)]
    pub limit_store: Option<LimitStoreReport>,
    /// What of the settings is reported.
    #[serde(default)]
    pub in_force: InForce,
    /// What each site and route has counted, in the order of the settings.
    #[serde(default)]
    pub series: SeriesFigures,
    /// What limits it, in the order of the documents.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Limits that have turned somebody away.
    #[serde(default)]
    pub turned_away: Vec<TurnedAway>,
    /// The workers of the server processes.
    #[serde(default)]
    pub by_worker: Vec<WorkerFigures>,
    /// Threads for what would hold up a worker.
    #[serde(default)]
    pub lanes: Vec<LaneReport>,
    /// By the server processes, those that have ended included.
    #[serde(default)]
    pub used: Used,
    /// By the master.
    #[serde(default)]
    pub used_by_master: Used,
    /// What became of what the collector of the settings was told; `None` where there is none.
    #[serde(default)]
    pub otlp: Option<OtlpReport>,
}

/// What was told to a collector by OTLP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtlpReport {
    /// Messages with metrics that it has taken.
    pub taken: u64,
    /// Messages with metrics that it has not.
    pub lost: u64,
    /// Sampled requests that it has taken.
    #[serde(default)]
    pub spans: u64,
    /// Sampled requests that it has not, or that had no room.
    #[serde(default)]
    pub spans_lost: u64,
}

impl OtlpReport {
    /// With what was told before an upgrade.
    #[must_use]
    pub fn with(self, before: OtlpReport) -> OtlpReport {
        OtlpReport {
            taken: self.taken + before.taken,
            lost: self.lost + before.lost,
            spans: self.spans + before.spans,
            spans_lost: self.spans_lost + before.spans_lost,
        }
    }
}

/// What processes have used of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Of processors, microseconds.
    pub cpu_micros: u64,
    /// Bytes of memory that are in use now.
    pub resident: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl Used {
    /// Adds what another process has used.
    pub fn add(&mut self, more: &Used) {
        self.cpu_micros += more.cpu_micros;
        self.resident += more.resident;
        self.descriptors += more.descriptors;
    }

    /// The process has ended: what it held it has given back.
    pub fn retire(&mut self) {
        (self.resident, self.descriptors) = (0, 0);
    }
}

impl From<Usage> for Used {
    fn from(usage: Usage) -> Used {
        let Usage { cpu_micros, resident, descriptors } = usage;
        Used { cpu_micros, resident, descriptors }
    }
}

/// A server process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its process number; 0 while there is none.
    pub pid: u32,
    /// `starting`, `serving`, `draining`, or `waiting` to be started again.
    pub state: String,
    /// Wall clock at its start, seconds since 1970.
    pub started: i64,
    /// Worker threads.
    pub workers: usize,
    /// How often a process in this place had to be replaced because it ended by mistake.
    pub restarts: u64,
    /// Requests whose head it has read.
    #[serde(default)]
    pub requests: u64,
    /// Connections that it has open.
    #[serde(default)]
    pub connections: u64,
    /// What it has used.
    #[serde(default)]
    pub used: Used,
}

/// A certificate that is served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateInfo {
    /// The file, or that it is automatic.
    pub source: String,
    /// Host names that it is good for.
    pub names: Vec<String>,
    /// Kind and length of its key.
    pub key: String,
    /// Who has signed it.
    pub issuer: String,
    /// Good from, seconds since 1970.
    #[serde(default)]
    pub not_before: Option<i64>,
    /// Good until, seconds since 1970; `None` where there is no certificate yet.
    pub not_after: Option<i64>,
}

impl CertificateInfo {
    /// How long before its end it is worth a word, seconds; `None` where there is no certificate yet.
    pub fn ends_soon_within(&self) -> Option<i64> {
        Some(ends_soon_within(self.not_before.unwrap_or(0), self.not_after?))
    }
}

/// The report on the server, for whoever asks: the page, or the control socket.
pub fn report(server: ServerInfo, counted: Snapshot, format: Format) -> String {
    report::Server { info: server, counted }.write(format, None)
}

/// All metrics, for a collector: as for Prometheus, but how long requests took has the name and the attributes of the semantic
/// conventions of OpenTelemetry, and says by itself how many there were of each kind.
pub fn families(server: ServerInfo, counted: Snapshot) -> Vec<Family> {
    let duration = server.series.request_duration();
    let mut families = report::Server { info: server, counted }.exposition().families();
    families.retain(|family| !told_as_duration(&family.name));
    families.push(duration);
    families
}

/// What is in [`request_duration`](tidegate_stats::series::SeriesFigures::request_duration) already.
fn told_as_duration(name: &str) -> bool {
    ["tidegate_request_duration_seconds", "tidegate_requests_by_method_total"].contains(&name)
}

/// The report on the file cache out of what the workers say to `cache report` and, with the entries,
/// `cache list`.
pub fn cache_report(reports: &[String], lists: Option<&[String]>, format: Format, pid: u32) -> String {
    CacheState::merge(reports, lists).write(format, pid, None)
}

/// Answers with the status of the server.
pub struct StatusPage {
    source: Rc<dyn StatusSource>,
    /// The names that the settings have for this server.
    names: Rc<Names>,
}

impl StatusPage {
    /// A page that shows what `source` knows, to who asks for an address or one of `names`.
    pub fn new(source: Rc<dyn StatusSource>, names: Rc<Names>) -> StatusPage {
        StatusPage { source, names }
    }

    fn is_for_another(&self, exchange: &Exchange<'_>) -> bool {
        !is_our_host(exchange.authority, &self.names)
    }
}

const ANOTHER_HOST: &str =
    "the status page is for an address, localhost, or a name that a site has in the settings";

impl Handler for StatusPage {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        if exchange.has_ambiguous_path() {
            return Reply::Ready(answer::encoded_slash(exchange));
        }
        if self.is_for_another(exchange) {
            return Reply::Ready(answer::refused(exchange, Status::FORBIDDEN, ANOTHER_HOST));
        }
        let question = match Question::read(exchange) {
            Ok(question) => question,
            Err(sentence) => return Reply::Ready(answer::explained(Status::BAD_REQUEST, sentence)),
        };
        match (question.action, exchange.method) {
            (None, Method::Get | Method::Head) => self.show(question),
            (Some(action), Method::Post) if is_same_site(exchange) => self.change(action, question),
            (Some(_), Method::Post) => Reply::Ready(answer::explained(
                Status::FORBIDDEN,
                "The cache can be changed from the status page itself, not from another site.",
            )),
            (Some(action), Method::Get | Method::Head) => {
                let page = html::confirmation(action);
                let response = Response::content(Status::METHOD_NOT_ALLOWED, Format::Html.media_type(), page);
                Reply::Ready(finish(response.with("Allow", "POST"), None))
            }
            (_, Method::Options) => {
                let allowed = if question.action.is_some() { "POST, OPTIONS" } else { "GET, HEAD, OPTIONS" };
                Reply::Ready(Response::empty(Status::NO_CONTENT).with("Allow", allowed))
            }
            (action, _) => {
                let allowed = if action.is_some() { "POST" } else { "GET, HEAD" };
                Reply::Ready(answer::error(Status::METHOD_NOT_ALLOWED).with("Allow", allowed))
            }
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        if exchange.has_ambiguous_path() {
            return Foreseen::Handler;
        }
        if self.is_for_another(exchange) {
            say(format!("status page: {ANOTHER_HOST}, and {} is none", exchange.authority));
            return Foreseen::Status(Status::FORBIDDEN);
        }
        let question = match Question::read(exchange) {
            Err(sentence) => {
                say(format!("status page: {sentence}"));
                return Foreseen::Status(Status::BAD_REQUEST);
            }
            Ok(question) => question,
        };
        match question.action {
            Some(action) => say(format!("status page: would {} the file cache, by POST only", action.word())),
            None => {
                let subject = match question.view {
                    View::Server => "server",
                    View::Requests => "requests under way",
                    View::Slow => "slow requests",
                    View::Findings => "findings",
                    View::History(_) => "history",
                    View::Busiest => "busiest paths and clients",
                    View::Cache | View::CacheList => "file cache",
                };
                say(format!("status page: the report on the {subject} as {}", question.form().media_type()));
            }
        }
        match (question.action, exchange.method) {
            (None, Method::Get | Method::Head) => {
                let head = content(question.form(), String::new(), question.refresh_shown());
                Foreseen::Head(Box::new(head))
            }
            // What it does is done by a server that runs.
            (Some(_), Method::Post) if is_same_site(exchange) => Foreseen::Application,
            _ => Foreseen::Handler,
        }
    }
}

impl StatusPage {
    fn show(&self, question: Question) -> Reply {
        let (format, refresh) = (question.form(), question.refresh_shown());
        let source = self.source.clone();
        let with_list = match question.view {
            View::Requests => return table(source, "requests", requests_report, question),
            View::Slow => return table(source, "slow", slow_report, question),
            View::Busiest => return table(source, "busiest", busiest_report, question),
            View::Findings => {
                return Reply::Later(Box::pin(async move {
                    let report = source.report(Report::Findings(format)).await;
                    report.map_or_else(silent, |report| content(format, report, refresh))
                }));
            }
            View::History(range) => {
                return Reply::Later(Box::pin(async move {
                    let word = if format == Format::Json { "json" } else { "text" };
                    let report = source.ask_all(&format!("history {} {word}", range.name())).await.pop();
                    report.map_or_else(silent, |report| content(format, report, refresh))
                }));
            }
            View::Cache if format.has_cache() => false,
            View::CacheList if format.has_cache() => true,
            _ => {
                return Reply::Later(Box::pin(async move {
                    let report = source.report(Report::Server(format, refresh)).await;
                    report.map_or_else(silent, |report| content(format, report, refresh))
                }));
            }
        };
        Reply::Later(Box::pin(async move {
            let reports = source.ask_all("cache report").await;
            let lists = if with_list { Some(source.ask_all("cache list").await) } else { None };
            let state = CacheState::merge(&reports, lists.as_deref());
            content(format, state.write(format, std::process::id(), refresh), refresh)
        }))
    }

    fn change(&self, action: Action, question: Question) -> Reply {
        let asked = self.source.ask_all(&format!("cache {}", action.word()));
        Reply::Later(Box::pin(async move {
            let answers = asked.await;
            if answers.is_empty() {
                let sentence = "No worker has answered; nothing has been changed.";
                return finish(answer::explained(Status::SERVICE_UNAVAILABLE, sentence), None);
            }
            let refusals: Vec<&str> =
                answers.iter().map(|answer| answer.trim()).filter(|answer| *answer != "ok").collect();
            if let Some(first) = refusals.first() {
                let (count, all) = (refusals.len(), answers.len());
                let sentence = format!("{count} of {all} workers could not do it: {}", Escaped(first));
                return finish(answer::explained(Status::INTERNAL_SERVER_ERROR, &sentence), None);
            }
            match question.format {
                // A reload of the page that follows changes nothing again.
                Format::Html => finish(Response::empty(Status::SEE_OTHER).with("Location", "?cache"), None),
                Format::Json => content(Format::Json, format!("{{\"workers\":{}}}\n", answers.len()), None),
                Format::Text | Format::Xml | Format::Prometheus | Format::OpenMetrics | Format::Protobuf => {
                    content(Format::Text, "ok\n", None)
                }
            }
        }))
    }
}

/// What `report` makes of what the workers say to a question: as JSON, or as text in every other case.
fn table(
    source: Rc<dyn StatusSource>,
    asked: &'static str,
    report: fn(&[String], Format) -> String,
    question: Question,
) -> Reply {
    let format = if question.format == Format::Json { Format::Json } else { Format::Text };
    Reply::Later(Box::pin(async move {
        let answers = source.ask_all(asked).await;
        content(format, report(&answers, format), question.refresh_shown())
    }))
}

/// The master does not answer: it has ended, or is about to.
fn silent() -> Response {
    let sentence = "The server's figures are not to be had at the moment.";
    finish(answer::explained(Status::SERVICE_UNAVAILABLE, sentence), None)
}

fn content(format: Format, body: impl Into<Vec<u8>>, refresh: Option<u32>) -> Response {
    finish(Response::content(Status::OK, format.media_type(), body), refresh)
}

/// The fields of every answer. The figures are of this moment only.
fn finish(response: Response, refresh: Option<u32>) -> Response {
    let response = response
        .with("Cache-Control", "no-store")
        .with("Vary", "Accept")
        .with("X-Content-Type-Options", "nosniff")
        .with("Content-Security-Policy", CONTENT_POLICY);
    match refresh {
        Some(seconds) => response.with("Refresh", seconds.to_string()),
        None => response,
    }
}

#[cfg(test)]
mod tests;
