//! What a scenario comes to, before a run: shares, operations a second, requests, memory. Computed, not tried.

use super::{Body, Clock, Load, Part, Scenario, Step};
use crate::quantity::{show_bytes, show_duration};
use crate::report;
use std::fmt::Write as _;

/// What a user takes, without its connections: itself and a place in the timers.
const USER: f64 = 1_024.0;
/// What a connection takes.
const CONNECTION: f64 = 640.0;
/// What one of HTTP/2 takes, with its streams and header tables.
const SESSION: f64 = 4_096.0;
/// What a worker takes: its buffer and the histograms of requests.
const WORKER: f64 = 4.0 * 1024.0 * 1024.0;
/// What the engine of a script takes, for each worker, without what the script makes.
const ENGINE: f64 = 1_024.0 * 1_024.0;
/// What the histogram of an operation takes.
const OPERATION: f64 = 300_000.0;

/// What a scenario comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Of each operation, 0 to 1.
    pub shares: Vec<f64>,
    /// Operations a second of one user, by the clocks alone; of visits those of one.
    pub rate_of_user: f64,
    /// Operations a second of all users, or of all visits.
    pub rate: f64,
    /// Requests a second, without assets and redirects.
    pub requests: f64,
    /// Bytes a second that are sent.
    pub sent: f64,
    /// Connections that may be open at once.
    pub connections: u64,
    /// Bytes of memory of the generator.
    pub memory: f64,
    /// Whether response times count as well, as think times have it.
    pub is_upper_bound: bool,
}

/// What a scenario comes to with so many workers.
pub fn estimate(scenario: &Scenario, threads: u32) -> Estimate {
    let shares = scenario.shares();
    let most_users = scenario.load.most_users();
    let (rate_of_user, rate) = match &scenario.load {
        Load::Users(users) => {
            let rate = 1.0 / scenario.mean_cycle().max(1e-9);
            (rate, rate * f64::from(users.count))
        }
        Load::Visits(visits) => (f64::from(visits.operations), visits.rate * f64::from(visits.operations)),
    };
    let weighted = |of: &dyn Fn(&Step) -> f64| -> f64 {
        let operations = scenario.operations.iter().zip(&shares);
        operations.map(|(operation, share)| share * operation.steps.iter().map(of).sum::<f64>()).sum()
    };
    let has_assets =
        scenario.operations.iter().flat_map(|operation| &operation.steps).any(|step| step.assets);
    let is_one = !has_assets || scenario.client.streams.is_some();
    let each = if is_one { 1 } else { u64::from(scenario.client.connections) };
    let connections = u64::from(most_users) * each;
    let engine = if scenario.script.is_some() { ENGINE } else { 0.0 };
    Estimate {
        rate_of_user,
        rate,
        requests: rate * weighted(&|_| 1.0),
        sent: rate * weighted(&|step| 200.0 + content(step)),
        connections,
        memory: f64::from(most_users) * USER
            + connections as f64 * if scenario.client.streams.is_some() { SESSION } else { CONNECTION }
            + f64::from(threads) * (WORKER + engine + scenario.operations.len() as f64 * OPERATION),
        is_upper_bound: !scenario.load.is_open()
            && (0..scenario.operations.len()).any(|at| matches!(scenario.clock_of(at), Clock::Think(_))),
        shares,
    }
}

/// Bytes of what follows the head, as far as they are known.
fn content(step: &Step) -> f64 {
    match &step.body {
        Body::None => 0.0,
        Body::Text(text) | Body::Json(text) | Body::Form(text) => {
            text.constant().map_or(100.0, |text| text.len() as f64)
        }
        Body::Parts(parts) => {
            let bytes = |part: &Part| match part {
                Part::Field(..) => 150.0,
                Part::File(file) => 200.0 + file.content.len() as f64,
            };
            parts.iter().map(bytes).sum()
        }
    }
}

impl Estimate {
    /// As text, for a terminal and for the folder of a run.
    pub fn screen(&self, scenario: &Scenario) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<24}{value}");
        };
        line("Scenario", scenario.name.clone());
        line("Target", scenario.target.to_string());
        line("Load", format!("{}: {}", scenario.load.sentence(), scenario.phases.sentence()));
        line("Clock", scenario.clock.sentence());
        let chosen =
            if scenario.is_chosen() { ", and what `next` chooses, which is not known here" } else { "" };
        line("Mix", format!("{}{chosen}", scenario.mix.kind()));
        let upper =
            if self.is_upper_bound { " at most: response times come on top of think times" } else { "" };
        line(
            "Operations per second",
            match &scenario.load {
                Load::Users(_) => format!("{:.2}, {:.4} of each user{upper}", self.rate, self.rate_of_user),
                Load::Visits(_) => format!("{:.2}, {} of each visit", self.rate, self.rate_of_user),
            },
        );
        if let Load::Visits(visits) = &scenario.load {
            // Little's law; how long the server takes is not known.
            let (length, users) = (scenario.mean_visit(), visits.rate * scenario.mean_visit());
            line("Users at once", format!("{users:.1} of visits of {length:.2} s, and what answers take"));
        }
        line("Requests per second", format!("{:.2}, and what pages load", self.requests));
        line("Sent", format!("about {}/s", show_bytes(self.sent)));
        let streams = scenario
            .client
            .streams
            .map(|streams| format!(", HTTP/2 with {streams} requests at once on each"));
        line("Connections", format!("{} at most{}", self.connections, streams.unwrap_or_default()));
        let most = if scenario.load.is_open() { "at most " } else { "" };
        line("Memory", format!("{most}about {}, the program itself aside", show_bytes(self.memory)));
        if let Some(script) = &scenario.script {
            let most = show_duration(script.within);
            line("Script", format!("{}, {most} of a processor for one call at most", script.name));
        }
        for system in &scenario.systems {
            line("System", system.to_string());
        }
        out.push('\n');
        let mut rows =
            vec![["operation", "share", "per second", "mean cycle", "targets"].map(str::to_owned).to_vec()];
        for (number, operation) in scenario.operations.iter().enumerate() {
            let share = self.shares.get(number).copied().unwrap_or(0.0);
            let target =
                |(rank, time): &(f64, std::time::Duration)| format!("p{rank} {}", show_duration(*time));
            let targets: Vec<String> = operation.targets.iter().map(target).collect();
            rows.push(vec![
                operation.name.clone(),
                format!("{:.2} %", share * 100.0),
                format!("{:.2}", share * self.rate),
                format!("{:.2} s", scenario.mean_cycle_of(number)),
                targets.join(", "),
            ]);
        }
        out.push_str(&report::table(&rows));
        for (operation, absence) in scenario.operations.iter().zip(scenario.absences()) {
            if let Some(absence) = absence {
                let _ = writeln!(out, "{}", absence.sentence(&operation.name));
            }
        }
        out
    }
}
