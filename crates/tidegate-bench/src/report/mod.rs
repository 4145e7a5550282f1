//! What a run gave, shown: on a terminal, as JSON, CSV, an HDR log and an HTML page.
//!
//! Every form derives from one [`Report`], so that no two of them disagree.

mod about;
mod chart;
mod disk;
mod files;
mod html;
mod json;
mod junit;
mod terminal;

pub use about::About;
pub(crate) use chart::{Chart, Frame, Series};
pub use disk::{disk_page, disk_screen};
pub use files::{csv, hdr_log};
pub use html::{compare_page, page, peak_page, rate_chart, sweep_page};
pub(crate) use html::{document_of, escape, host_charts, push_framed};
pub use json::json;
pub use junit::junit;
pub use terminal::{screen, show_judgement, table};

use crate::host::Host;
use crate::plan::{Load, Plan};
use crate::run::{Outcome, Totals};
use crate::schedule::Arrivals;
use crate::verdict::{Judgement, Target, judge};
use std::collections::BTreeMap;

/// The percentiles that every form names.
pub const PERCENTILES: [f64; 9] = [50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// A run with all that is concluded from it.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was asked: the URL, or the list of them.
    pub subject: String,
    /// How, in one line.
    pub load: String,
    /// `http/1.1` or `h2`.
    pub protocol: &'static str,
    /// The records.
    pub outcome: Outcome,
    /// Their sums.
    pub totals: Totals,
    /// What they prove.
    pub judgement: Judgement,
    /// Whether arrivals were on a schedule.
    pub is_open_loop: bool,
    /// The demanded rate of a schedule.
    pub demanded: Option<f64>,
    /// The demanded bit rate.
    pub min_bitrate: Option<f64>,
    /// The machine during the run.
    pub host: Option<Host>,
    /// Whether connections only stayed open.
    pub is_idle: bool,
    /// Date, machine, versions and command.
    pub about: About,
}

impl Report {
    /// Adds up a run and judges it. The machine and what the run was made with are for the caller to fill in.
    pub fn new(subject: &str, plan: &Plan, outcome: Outcome, targets: &[Target]) -> Report {
        let totals = outcome.totals();
        let judgement = judge(plan, &outcome, &totals, targets);
        let demanded = if let Load::Open { rate, .. } = plan.load { Some(rate) } else { None };
        Report {
            subject: subject.to_owned(),
            load: describe(plan, &outcome),
            protocol: plan.protocol(),
            judgement,
            totals,
            outcome,
            is_open_loop: demanded.is_some(),
            demanded,
            min_bitrate: plan.min_bitrate,
            host: None,
            is_idle: plan.is_idle,
            about: About::default(),
        }
    }

    /// Answers per second of the steady time: see [`Outcome::seconds`].
    pub fn rate(&self) -> f64 {
        let seconds = self.outcome.seconds();
        if seconds > 0.0 { self.totals.counts.answered as f64 / seconds } else { 0.0 }
    }

    /// Requests under way on average, until the last one had ended (Little's law).
    pub fn concurrency(&self) -> f64 {
        let seconds = self.outcome.seconds().max(self.outcome.last_end as f64 / 1e9);
        if seconds > 0.0 { self.totals.counts.response_sum as f64 / 1e9 / seconds } else { 0.0 }
    }

    /// Checksums of bodies and how many had each, whatever was asked.
    pub fn digests(&self) -> BTreeMap<u32, u64> {
        let mut all = BTreeMap::new();
        for (crc, count) in self.outcome.digests.values().flatten() {
            *all.entry(*crc).or_default() += count;
        }
        all
    }

    /// Resident bytes that the server gained over the run for each connection that was open, where it is on this
    /// host and connections only stayed open.
    pub fn bytes_per_connection(&self) -> Option<f64> {
        let host = self.host.as_ref().filter(|_| self.is_idle)?;
        let gained = host.server_resident()? as f64 - host.server_resident_before? as f64;
        let open = self.outcome.most_open();
        (open > 0).then(|| gained.max(0.0) / f64::from(open))
    }
}

fn describe(plan: &Plan, outcome: &Outcome) -> String {
    let mut parts = Vec::new();
    parts.push(match plan.load {
        Load::Closed if plan.is_idle => "idle".to_owned(),
        Load::Closed => "closed loop".to_owned(),
        Load::Open { rate, arrivals } => {
            let kind = if arrivals == Arrivals::Poisson { "Poisson" } else { "constant" };
            format!("open loop, {rate} requests/s, {kind} arrivals")
        }
    });
    parts.push(format!("{} connections", plan.connections));
    parts.push(if plan.keep_alive {
        "kept alive".to_owned()
    } else {
        "closed after each request".to_owned()
    });
    if plan.is_http10 {
        parts.push("HTTP/1.0".to_owned());
    }
    if let Some(streams) = plan.streams {
        let plural = if streams == 1 { "" } else { "s" };
        parts.push(format!("HTTP/2, {streams} request{plural} at once on each"));
    }
    if plan.pipeline > 1 {
        parts.push(format!("{} requests in the pipeline", plan.pipeline));
    }
    parts.push(format!("{} threads", outcome.threads));
    if outcome.processes > 1 {
        parts.push(format!("{} processes", outcome.processes));
    }
    parts.join(", ")
}
