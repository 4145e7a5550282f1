//! What a run of a scenario gave, shown: on a terminal and as JSON, all of one [`Report`]; and as a folder, of which `crate::runs` makes
//! pages.

mod folder;

pub use folder::{begin, finish};

use super::record::{Agent, Outcome, Tally};
use super::verdict::{allowed_points, failures, judge};
use super::{Estimate, Load, Scenario, estimate};
use crate::host::Host;
use crate::quantity::{show_bytes, show_duration, show_share};
use crate::record::Times;
use crate::report::{About, PERCENTILES, show_judgement, table};
use crate::run::Totals;
use crate::schedule::Arrivals;
use crate::verdict::Judgement;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// A run with all that is concluded from it.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was to be done.
    pub scenario: Scenario,
    /// What that comes to.
    pub estimate: Estimate,
    /// The records.
    pub outcome: Outcome,
    /// Each operation over the steady time.
    pub operations: Vec<Tally>,
    /// The requests of the steady time.
    pub totals: Totals,
    /// What they prove.
    pub judgement: Judgement,
    /// The machine during the run.
    pub host: Option<Host>,
    /// Date, machine, versions and command.
    pub about: About,
    /// What its maker calls it.
    pub label: Option<String>,
}

impl Report {
    /// Adds up a run and judges it. The machine and what it was made with are for the caller to fill in.
    pub fn new(scenario: Scenario, outcome: Outcome) -> Report {
        let operations = outcome.operations(scenario.operations.len());
        let totals = outcome.requests().totals();
        let judgement = judge(&scenario, &outcome, &operations, &totals);
        let estimate = estimate(&scenario, outcome.threads);
        let about = About::default();
        Report { scenario, estimate, outcome, operations, totals, judgement, host: None, about, label: None }
    }

    /// Operations of the steady time that ended, well or not.
    pub fn ended(&self) -> u64 {
        self.operations.iter().map(|tally| tally.ended).sum()
    }

    /// Operations a second of the steady time that ended well.
    pub fn rate(&self) -> f64 {
        let succeeded: u64 = self.operations.iter().map(|tally| tally.succeeded).sum();
        let time = self.rate_time();
        if time > 0.0 { succeeded as f64 / time } else { 0.0 }
    }

    /// The time that rates of answers are of, seconds: see [`Outcome::rate_time`].
    pub fn rate_time(&self) -> f64 {
        self.outcome.rate_time(&self.scenario.load)
    }

    /// The mean cycle times of the steady time, by the clocks and as they came out, seconds.
    pub fn cycles(&self) -> Option<(f64, f64)> {
        let (count, due, achieved) =
            self.operations.iter().fold((0, 0, 0), |(count, due, achieved), tally| {
                (count + tally.cycles, due + tally.cycle_due, achieved + tally.cycle_achieved)
            });
        (count > 0).then(|| (due as f64 / count as f64 / 1e9, achieved as f64 / count as f64 / 1e9))
    }

    /// In one line: how the load was made.
    pub fn load(&self) -> String {
        load(&self.scenario)
    }

    /// Names and values of what is told of the whole run.
    fn figures(&self) -> Vec<(&'static str, String)> {
        let counts = &self.totals.counts;
        let requests = self.outcome.requests();
        let ended = self.ended();
        let failed: u64 = self.operations.iter().map(Tally::failed).sum();
        let mut figures = Vec::new();
        let whose = match &self.scenario.load {
            Load::Users(_) => "clocks say",
            Load::Visits(load) => {
                let visits = self.outcome.visits();
                let rate = |count: u64| count as f64 / self.outcome.measured.max(1e-9);
                let waited = match visits.waited {
                    0 => String::new(),
                    count => format!(" ({count} visits after a wait for one to go)"),
                };
                let begun = format!("{:.2} begun{waited}, {:.2} due", rate(visits.begun), rate(visits.due));
                figures.push(("Visits per second", format!("{begun}, {} asked for", load.rate)));
                "rate says"
            }
        };
        figures.extend([
            ("Operations per second", format!("{:.2} (the {whose} {:.2})", self.rate(), self.estimate.rate)),
            ("Measured", format!("{:.1} s, {ended} operations, {failed} of them failed", self.rate_time())),
        ]);
        if let Some((due, achieved)) = self.cycles() {
            figures.push(("Mean cycle", format!("{achieved:.3} s, where {due:.3} s were drawn")));
        }
        let kinds = failures(&self.totals);
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let seconds = self.rate_time().max(1e-9);
        let interrupted = match self.totals.interrupted.count() {
            0 => String::new(),
            count => format!(", {count} under way when the run was interrupted"),
        };
        figures.push((
            "Requests",
            format!("{} answered, {} failed{kinds}{interrupted}", counts.answered, counts.failed()),
        ));
        figures.push((
            "Transfer",
            format!(
                "{}/s received, {}/s sent",
                show_bytes(counts.bytes as f64 / seconds),
                show_bytes(counts.bytes_sent as f64 / seconds)
            ),
        ));
        let statuses = counts.statuses.iter().map(|(status, count)| format!("{status}: {count}"));
        figures.push(("Statuses", statuses.collect::<Vec<_>>().join(", ")));
        figures.push((
            "Connections",
            format!("{} opened, {} open at most", counts.connects, requests.most_open()),
        ));
        if let Some(spoken) = &self.outcome.tls {
            figures.push(("TLS", spoken.clone()));
        }
        figures.extend(self.outcome.agents.iter().map(|agent| ("Agent", agent.to_string())));
        figures.push((
            "Generator",
            format!(
                "{:.0} % of a processor in the busiest thread, {:.2} µs per request, {} of memory, late by {} at p99",
                requests.busiest_worker() * 100.0,
                requests.cpu() * 1e6 / (counts.answered + counts.warmup).max(1) as f64,
                show_bytes(self.outcome.memory as f64),
                show_duration(self.totals.lateness.percentile(99.0))
            ),
        ));
        if let Some(host) = &self.host {
            let server =
                host.server_cpu().map(|cpu| format!(", {cpu:.2} of them by the server")).unwrap_or_default();
            let (busy, queue) = (host.busy() * 100.0, host.run_queue());
            let (again, drops) = (host.retransmits(), host.listen_drops());
            let text = format!(
                "processors {busy:.0} % busy{server}, run queue {queue}, {again} segments sent again, {drops} listen drops"
            );
            figures.push(("This host", text));
        }
        figures
    }

    /// The table of operations, a row of headings first.
    fn rows(&self) -> Vec<Vec<String>> {
        let head = [
            "operation",
            "count",
            "failed",
            "share",
            "due",
            "mean",
            "p50",
            "p90",
            "p99",
            "longest",
            "target",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let whole = self.ended().max(1);
        for (number, (operation, tally)) in self.scenario.operations.iter().zip(&self.operations).enumerate()
        {
            let (times, expected) = (tally.times(), tally.expected_times());
            let due = self.estimate.shares.get(number).copied().unwrap_or(0.0);
            let targets = operation.targets.iter().map(|(rank, limit)| {
                let word = match tally.judged(*rank) {
                    None => "unknown",
                    Some(reached) if reached <= *limit => "met",
                    Some(_) => "missed",
                };
                format!("p{rank} {} {word}", show_duration(*limit))
            });
            let counts = operation.steps.iter().flat_map(|step| &step.counts).map(|counted| {
                let (due, within) = (counted.due(), counted.tolerance());
                match tally.mean_count(counted.place) {
                    None => format!("{} {due} unknown", counted.css),
                    Some(mean) => {
                        let is_met = (mean - due).abs() <= within + 1e-9;
                        format!("{} {mean:.3} {}", counted.css, if is_met { "as due" } else { "not as due" })
                    }
                }
            });
            let conforming = operation.conforming.map(|due| {
                let word = match tally.conforming_share() {
                    None => "unknown".to_owned(),
                    Some(share) if share >= due => format!("met ({})", tally.conforming_shown()),
                    Some(_) => format!("missed ({})", tally.conforming_shown()),
                };
                format!("conforming {} {word}", show_share(due))
            });
            let mut row = vec![
                operation.name.clone(),
                tally.ended.to_string(),
                tally.failed().to_string(),
                format!("{:.2} %", tally.ended as f64 * 100.0 / whole as f64),
                format!("{:.2} %", due * 100.0),
            ];
            row.extend(columns(&times));
            row.push(targets.chain(counts).chain(conforming).collect::<Vec<_>>().join(", "));
            rows.push(row);
            if tally.failed() > 0 {
                let well = ["  that ended well", "", "", "", ""].map(str::to_owned);
                rows.push(well.into_iter().chain(columns(&expected)).collect());
            }
        }
        rows
    }
}

/// Mean, p50, p90, p99 and the longest of times, for a table.
fn columns(times: &Times) -> [String; 5] {
    let show = |time| if times.count() == 0 { "-".to_owned() } else { show_duration(time) };
    let rank = |rank| show(times.percentile(rank));
    [show(times.mean()), rank(50.0), rank(90.0), rank(99.0), show(times.max())]
}

/// A report as text, for a terminal.
pub fn screen(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<24}{value}");
    };
    line("Scenario", &report.scenario.name);
    line("Target", &report.scenario.target.to_string());
    line("Load", &report.load());
    line("Command", &report.about.command);
    line("On", &report.about.sentence());
    for (name, value) in report.figures() {
        line(name, &value);
    }
    out.push('\n');
    out.push_str(&table(&report.rows()));
    out.push('\n');
    for failed in &report.outcome.failed {
        let (at, operation, user, request) = (failed.at, &failed.operation, failed.user, &failed.request);
        let _ = writeln!(out, "{at:.3} s  {operation} of user {user}  {request}: {}", failed.reason);
        if let Some(answer) = failed.answer.as_ref().filter(|answer| !answer.is_empty()) {
            let _ = writeln!(out, "           {}", answer.get(..160).unwrap_or(answer));
        }
    }
    if !report.outcome.failed.is_empty() {
        out.push('\n');
    }
    out.push_str(&show_judgement(&report.judgement));
    out
}

/// The report as one JSON object. Times in seconds, shares 0 to 1, rates a second.
pub fn summary(report: &Report) -> Value {
    let whole = report.ended().max(1);
    let operations = report.scenario.operations.iter().zip(&report.operations).enumerate();
    let operations = operations.map(|(number, (operation, tally))| {
        let due = report.estimate.shares.get(number).copied().unwrap_or(0.0);
        let targets: Map<String, Value> = operation
            .targets
            .iter()
            .map(|(rank, limit)| (format!("p{rank}"), json!(limit.as_secs_f64())))
            .collect();
        let counts =
            operation.steps.iter().flat_map(|step| step.counts.iter().map(move |counted| (step, counted)));
        let counts = counts.map(|(step, counted)| {
            json!({
                "step": format!("{} {}", step.method, step.path.shown(&report.scenario.variables)),
                "css": counted.css,
                "answers": tally.counts.get(counted.place).map_or(0, |count| count.0),
                "mean": tally.mean_count(counted.place),
                "mean_due": counted.due(),
                "within": counted.tolerance(),
            })
        });
        let counts: Vec<Value> = counts.collect();
        json!({
            "name": operation.name,
            "ended": tally.ended,
            "succeeded": tally.succeeded,
            "failed": tally.failed(),
            "share": tally.ended as f64 / whole as f64,
            "share_due": due,
            "share_allowed_points": allowed_points(due, whole),
            "rate": tally.succeeded as f64 / report.rate_time().max(1e-9),
            "response": times(&tally.times()),
            "response_expected": times(&tally.expected_times()),
            "targets": targets,
            "counts": counts,
            "conforming": (tally.paced > 0 || operation.conforming.is_some()).then(|| {
                json!({
                    "answers": tally.paced,
                    "conforming": tally.conforming,
                    "share": tally.conforming_share(),
                    "share_due": operation.conforming,
                })
            }),
        })
    });
    let cycles = report.cycles();
    let counts = &report.totals.counts;
    let requests = report.outcome.requests();
    let mut all = Tally::default();
    report.operations.iter().for_each(|tally| all.add(tally));
    let mut object = json!({
        "verdict": report.judgement.verdict,
        "reasons": report.judgement.reasons,
        "notes": report.judgement.notes,
        "seconds": report.rate_time(),
        "rate": report.rate(),
        "rate_due": report.estimate.rate,
        "cycle": cycles.map(|(_, achieved)| achieved),
        "cycle_due": cycles.map(|(due, _)| due),
        "response": times(&all.times()),
        "response_expected": times(&all.expected_times()),
        "operations": operations.collect::<Vec<_>>(),
        "failed_operations": report.outcome.failed,
        "unsent": report.outcome.unsent,
        "visits": report.scenario.load.is_open().then(|| {
            let visits = report.outcome.visits();
            let rate = |count: u64| count as f64 / report.outcome.measured.max(1e-9);
            json!({
                "due": visits.due,
                "begun": visits.begun,
                "waited": visits.waited,
                "too_late": visits.too_late,
                "rate": rate(visits.begun),
                "rate_due": rate(visits.due),
            })
        }),
        "requests": {
            "answered": counts.answered,
            // Outside of the steady time: with them, what the log of the server has.
            "unmeasured": counts.warmup,
            "failed": counts.failed(),
            "errors": counts.failures,
            "statuses": counts.statuses,
            "bytes": counts.bytes,
            "bytes_sent": counts.bytes_sent,
            "connects": counts.connects,
            "most_open": requests.most_open(),
            "surplus": counts.surplus,
            "protocol_errors": counts.protocol_errors,
            "sent_again": counts.sent_again,
            "sent_again_excused": counts.sent_again_excused,
            "without_answer": report.totals.without_answer(),
            "interrupted": report.totals.interrupted.count(),
            "response": times(&report.totals.response),
            "wait": times(&report.totals.wait),
            "connect": times(&report.totals.connect),
        },
        "generator": {
            "threads": report.outcome.threads,
            "cpu_seconds": requests.cpu(),
            "busiest": requests.busiest_worker(),
            "memory": report.outcome.memory,
            "lateness": times(&report.totals.lateness),
        },
        "agents": report.outcome.agents.iter().map(agent).collect::<Vec<_>>(),
        "tls": report.outcome.tls,
        "host": report.host,
    });
    if let (Value::Object(object), Value::Object(begun)) =
        (&mut object, begun(&report.scenario, &report.about, report.label.as_deref()))
    {
        object.extend(begun);
    }
    object
}

/// What a summary says that is known before the run.
fn begun(scenario: &Scenario, about: &About, label: Option<&str>) -> Value {
    let phases = &scenario.phases;
    let (users, arrivals) = match &scenario.load {
        Load::Users(users) => (Some(users.count), None),
        Load::Visits(visits) => {
            let is_random = visits.arrivals == Arrivals::Poisson;
            let arrivals = json!({
                "rate": visits.rate,
                "kind": if is_random { "poisson" } else { "constant" },
                "operations": visits.operations,
                "most_users": visits.most_users,
            });
            (None, Some(arrivals))
        }
    };
    json!({
        "scenario": scenario.name,
        "label": label,
        "target": scenario.target.to_string(),
        "load": load(scenario),
        "users": users,
        "arrivals": arrivals,
        "protocol": if scenario.client.streams.is_some() { "h2" } else { "http/1.1" },
        "phases": {
            "ramp_up": phases.ramp_up.as_secs_f64(),
            "steady": phases.steady.as_secs_f64(),
            "ramp_down": phases.ramp_down.as_secs_f64(),
        },
        "about": about,
    })
}

/// In one line: how the load is made.
fn load(scenario: &Scenario) -> String {
    format!(
        "{}, {} mix, {}{}; {}",
        scenario.load.sentence(),
        scenario.mix.kind(),
        scenario.clock.sentence(),
        if scenario.client.streams.is_some() { ", over HTTP/2" } else { "" },
        scenario.phases.sentence()
    )
}

fn agent(agent: &Agent) -> Value {
    json!({
        "agent": agent.title,
        "threads": agent.threads,
        "operations": agent.operations,
        "round_trip": agent.round_trip.as_secs_f64(),
        "lateness": times(&agent.lateness),
        "host": agent.host,
    })
}

fn times(times: &Times) -> Value {
    let mut object = Map::new();
    object.insert("count".into(), json!(times.count()));
    object.insert("mean".into(), json!(times.mean().as_secs_f64()));
    object.insert("max".into(), json!(times.max().as_secs_f64()));
    for percent in PERCENTILES {
        object.insert(format!("p{percent}"), json!(times.percentile(percent).as_secs_f64()));
    }
    Value::Object(object)
}
