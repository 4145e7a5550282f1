//! The tables of `limit`, `bandwidth` and `ban`: made by the master, so that all server processes count in the same, and kept for as long as the
//! limit is there, over reloads, upgrades and the end of any process.

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_core::rate::{self, Client, Identity, Kind};
use tidegate_io::clock;
use tidegate_modules::status::{RateKind, RateReport};

/// The tables of one revision, in the order of the settings.
#[derive(Debug, Clone, Default)]
pub struct Rates(Vec<(Identity, Table)>);

/// Where it is counted, and what other processes get to count there as well.
#[derive(Debug, Clone)]
struct Table {
    table: rate::Table,
    descriptor: Arc<OwnedFd>,
}

impl From<(rate::Table, OwnedFd)> for Table {
    fn from((table, descriptor): (rate::Table, OwnedFd)) -> Table {
        Table { table, descriptor: Arc::new(descriptor) }
    }
}

impl Rates {
    /// A table for each limit of the settings. Those that `present` has are taken from there.
    pub fn open(settings: &Settings, present: &Rates) -> Result<Rates> {
        let present: HashMap<_, _> = present.0.iter().map(|(identity, table)| (identity, table)).collect();
        let (mut tables, mut seen) = (Vec::new(), HashSet::new());
        // While they are replaced there are twice as many.
        let processes = 2 * usize::from(settings.processes.max(4));
        for identity in Identity::all(settings) {
            if !seen.insert(identity.clone()) {
                continue;
            }
            let table = match present.get(&identity) {
                Some(table) => (*table).clone(),
                None => Table::from(identity.fresh(processes).with_context(|| {
                    let Identity { name, keys, .. } = &identity;
                    format!("there is no memory for the {keys} keys of `{name}`")
                })?),
            };
            tables.push((identity, table));
        }
        Ok(Rates(tables))
    }

    /// Those that a predecessor has left. What cannot be used is made anew.
    pub fn inherit(tables: Vec<Identity>, descriptors: impl IntoIterator<Item = OwnedFd>) -> Rates {
        let both = tables.into_iter().zip(descriptors);
        let attached = both.filter_map(|(identity, descriptor)| {
            let table = identity.attach(descriptor.as_fd()).ok()?;
            Some((identity, Table::from((table, descriptor))))
        });
        Rates(attached.collect())
    }

    /// Copies for another process.
    pub fn copies(&self) -> io::Result<(Vec<Identity>, Vec<OwnedFd>)> {
        let identities = self.0.iter().map(|(identity, _)| identity.clone()).collect();
        let copies = self.0.iter().map(|(_, table)| table.descriptor.try_clone());
        Ok((identities, copies.collect::<io::Result<_>>()?))
    }

    /// What processes have had under way that are no longer there is given back.
    pub fn give_back(&self) {
        let is_there = |process: u32| {
            let process = i32::try_from(process).ok().and_then(Pid::from_raw);
            process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
        };
        for (_, table) in &self.0 {
            if let rate::Table::Count(counts) = &table.table {
                counts.give_back(is_there);
            }
        }
    }

    /// Who is banned, a line for each.
    pub fn bans(&self) -> String {
        let now = clock::monotonic_ns();
        let mut lines = Vec::new();
        for (identity, table) in &self.0 {
            let rate::Table::Ban(bans) = &table.table else { continue };
            let line = |(client, left): (Client, Duration)| {
                format!("{client} for {} s more by `{}`\n", left.as_secs().max(1), identity.name)
            };
            lines.extend(bans.list(now).into_iter().map(line));
        }
        if lines.is_empty() { "Nobody is banned.\n".to_owned() } else { lines.concat() }
    }

    /// Lifts the bans of whoever has this address: whether there were any, and what is said of it.
    pub fn lift(&self, address: IpAddr) -> (bool, String) {
        let now = clock::monotonic_ns();
        let Some(client) = Client::at(address) else { return (false, "nobody has this address".to_owned()) };
        let mut lifted = Vec::new();
        for (identity, table) in &self.0 {
            if let rate::Table::Ban(bans) = &table.table
                && bans.lift(client, now)
            {
                lifted.push(format!("`{}`", identity.name));
            }
        }
        match lifted.is_empty() {
            true => (false, format!("{client} is not banned")),
            false => (true, format!("{client} is banned no longer by {}\n", lifted.join(", "))),
        }
    }

    /// What they have refused.
    pub fn report(&self) -> Vec<RateReport> {
        let report = |(identity, table): &(Identity, Table)| RateReport {
            name: identity.name.clone(),
            refused: table.table.refused(),
            crowded: table.table.crowded(),
            kind: match identity.kind {
                Kind::Speed => RateKind::Bandwidth,
                Kind::Ban => RateKind::Ban,
                _ => RateKind::Limit,
            },
        };
        // How many connections a client has, and who guesses passwords, is no news of a limit.
        let is_news = |kind| !matches!(kind, Kind::Clients | Kind::Guesses);
        self.0.iter().filter(|(identity, _)| is_news(identity.kind)).map(report).collect()
    }
}
