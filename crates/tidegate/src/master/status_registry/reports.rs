//! Reports: what the server is and has counted, in every format, and what is shown beside it.

use super::figures::stores_in_force;
use super::{Member, StatusRegistry};
use crate::certificates;
use crate::link::Figures;
use crate::master::control::Subject;
use crate::version::VERSION;
use tidegate_config::ProcessEnvironment;
use tidegate_io::usage::Usage;
use tidegate_modules::gateway::balance::report::GroupReport;
use tidegate_modules::status::{self, Format, ProcessInfo, ServerInfo};
use tidegate_stats::Family;

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

impl StatusRegistry {
    /// The report.
    pub fn report(&self, format: Format) -> String {
        let _alone = self.alone();
        let figures = self.figures_with_series();
        status::report(self.server(&figures), figures.counted, format)
    }

    /// All metrics as they are now, for a collector.
    pub fn families(&self) -> Vec<Family> {
        let _alone = self.alone();
        let figures = self.figures_with_series();
        status::families(self.server(&figures), figures.counted)
    }

    /// What the server is.
    pub fn server(&self, figures: &Figures) -> ServerInfo {
        // Asked first: the supervisor may take a moment.
        let pools = self.pools.get().map(|pools| pools.status()).unwrap_or_default();
        let (now, nanos) = tidegate_io::clock::wall();
        let facts = self.facts();
        ServerInfo {
            version: VERSION.into(),
            pid: std::process::id(),
            started: self.started,
            now,
            now_millis: nanos / 1_000_000,
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
            times: figures.times.clone(),
            stores: stores_in_force(&facts.caches, &figures.stores),
            rates: facts.rates.report(),
            providers: figures.providers.clone(),
            limit_store: figures.limit_store.clone(),
            in_force: facts.in_force.clone().with_counts(&figures.listeners),
            series: figures.series.clone(),
            findings: facts.findings.clone(),
            turned_away: facts.turned_away.clone(),
            by_worker: figures.workers.clone(),
            lanes: figures.lanes.clone(),
            otlp: self.otlp(),
            processes: facts.members.iter().map(Member::told).collect(),
            process_restarts: figures.process_restarts,
        }
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
}

/// Of what groups have told, what is about those of the settings, in their order.
fn in_force(named: &[(String, Vec<String>)], told: &[GroupReport]) -> Vec<GroupReport> {
    let report = |(name, members): &(String, Vec<String>)| {
        let told = told.iter().find(|group| group.name == *name)?;
        let row = |name: &String| told.members.iter().find(|member| member.name == *name).cloned();
        Some(GroupReport { members: members.iter().filter_map(row).collect(), ..told.clone() })
    };
    named.iter().filter_map(report).collect()
}
