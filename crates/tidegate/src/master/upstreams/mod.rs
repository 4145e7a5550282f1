//! The members of upstream groups as the master sees them: where their names lead, and whether they answer
//! their checks.
//!
//! One thread of the master does both (`prober`, with `resolve` and `check`) and reports what has changed;
//! server processes are told, never look up a name and never check a member. What requests of one of them find out about
//! a member the others hear by way of the master. A name that cannot be looked up
//! keeps the addresses that it had, is tried again, and stops nobody else (R10).

mod check;
mod prober;
mod resolve;
mod secured;

use super::pools::Served;
use crate::link::{Link, ToServer};
use prober::{Group, Prober};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tidegate_config::Settings;
use tidegate_config::settings::gateway::BackendProtocol;
use tidegate_config::settings::upstream::Upstream;
use tidegate_core::log;
use tidegate_core::tls::TlsStore;
use tidegate_io::locking::lock;
use tidegate_modules::gateway::balance::groups::{Fact, Finding, Findings, SteeringOrder};
use tidegate_tls::Connector;

/// What is known of members, and who is told.
#[derive(Default)]
pub struct Upstreams {
    /// Started when the first group is there.
    prober: Mutex<Option<Prober>>,
    subscribers: Arc<Mutex<Subscribers>>,
}

#[derive(Default)]
struct Subscribers {
    findings: Findings,
    /// Group and member.
    names: HashSet<(String, String)>,
    servers: Vec<(u64, Arc<Link>)>,
}

impl Upstreams {
    /// Watches over the groups of a revision from now on; the files of its TLS have been read into `tls`.
    pub fn adopt(&self, settings: &Settings, tls: &TlsStore) {
        {
            let mut subscribers = lock(&self.subscribers);
            subscribers.findings.retain(&settings.upstreams);
            let members = settings.upstreams.iter().flat_map(|upstream| {
                upstream.members.iter().map(|member| (upstream.name.clone(), member.name.clone()))
            });
            subscribers.names = members.collect();
        }
        let mut prober = lock(&self.prober);
        if prober.is_none() && !settings.upstreams.is_empty() {
            let subscribers = self.subscribers.clone();
            match Prober::start(move |finding| lock(&subscribers).learn(finding)) {
                Ok(started) => *prober = Some(started),
                // Members with an address serve nevertheless.
                Err(error) => {
                    log::error(format_args!("{error:#}: names are not looked up, nothing is checked"))
                }
            }
        }
        if let Some(prober) = &*prober {
            let groups = settings.upstreams.iter().map(|upstream| group(upstream, settings, tls));
            prober.set(groups.collect(), settings.dns.servers.clone());
        }
    }

    /// Requests of a server process have found out something about a member: the others hear it too.
    pub fn heard(&self, id: u64, finding: Finding) {
        let mut subscribers = lock(&self.subscribers);
        // Names and checks are not theirs to tell of, nor members that nobody has written.
        let is_theirs = matches!(finding.fact, Fact::Ejected(_));
        if !is_theirs || !subscribers.names.contains(&(finding.group.clone(), finding.member.clone())) {
            return;
        }
        subscribers.findings.learn(&finding);
        // They find it out by themselves where they miss it.
        for (_, link) in subscribers.servers.iter().filter(|(known, _)| *known != id) {
            link.send(&ToServer::Upstreams(vec![finding.clone()]), Vec::new());
        }
    }

    /// An operator says what a member is to get. An error is a sentence.
    pub fn steer(&self, group: &str, member: &str, order: &SteeringOrder) -> Result<(), String> {
        let mut subscribers = lock(&self.subscribers);
        if !subscribers.names.contains(&(group.to_owned(), member.to_owned())) {
            let mut members: Vec<&str> = subscribers
                .names
                .iter()
                .filter(|(known, _)| known == group)
                .map(|(_, member)| member.as_str())
                .collect();
            members.sort_unstable();
            return Err(if members.is_empty() {
                format!("no upstream is named {group}; `tidegate status` lists them")
            } else {
                format!("upstream {group} has no member {member}; it has {}", members.join(", "))
            });
        }
        let finding = subscribers.findings.steer(group, member, order);
        subscribers.learn(finding);
        Ok(())
    }

    /// The server processes there are. New ones hear what is known.
    pub fn set_servers(&self, servers: &[Served]) {
        let mut subscribers = lock(&self.subscribers);
        let all = subscribers.findings.all();
        for served in servers.iter().filter(|_| !all.is_empty()) {
            if !subscribers.servers.iter().any(|(id, _)| *id == served.id) {
                served.link.order(&ToServer::Upstreams(all.clone()), Vec::new());
            }
        }
        subscribers.servers = servers.iter().map(|served| (served.id, served.link.clone())).collect();
    }
}

/// A group as it is watched over. Where TLS with it cannot be prepared, server processes cannot either, and say so.
fn group(upstream: &Upstream, settings: &Settings, tls: &TlsStore) -> Group {
    let way = upstream.tls(settings).filter(|_| upstream.check.is_some()).and_then(|backend| {
        let connector = tls.connector(backend).ok()?;
        let name = Connector::name(&backend.name).ok()?;
        Some(check::Way { connector, name, speaks_http2: backend.protocol == BackendProtocol::Http2 })
    });
    Group { upstream: upstream.clone(), way }
}

impl Subscribers {
    fn learn(&mut self, finding: Finding) {
        self.findings.learn(&finding);
        for (_, link) in &self.servers {
            link.order(&ToServer::Upstreams(vec![finding.clone()]), Vec::new());
        }
    }
}

#[cfg(test)]
mod tests;
