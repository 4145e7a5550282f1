//! The tables of `limit`: made by the master, so that all server processes count in the same, and kept for as long as the
//! limit is there, over reloads, upgrades and the end of any process.

use anyhow::{Context, Result};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_core::rate::{self, Buckets, Identity};
use tidegate_modules::status::RateReport;

/// The tables of one revision, in the order of the settings.
#[derive(Debug, Clone, Default)]
pub struct Rates(Vec<(Identity, Table)>);

/// Where it is counted, and what other processes get to count there as well.
#[derive(Debug, Clone)]
struct Table {
    buckets: Arc<Buckets>,
    descriptor: Arc<OwnedFd>,
}

impl From<(Buckets, OwnedFd)> for Table {
    fn from((buckets, descriptor): (Buckets, OwnedFd)) -> Table {
        Table { buckets: Arc::new(buckets), descriptor: Arc::new(descriptor) }
    }
}

impl Rates {
    /// A table for each limit of the settings. Those that `present` has are taken from there.
    pub fn open(settings: &Settings, present: &Rates) -> Result<Rates> {
        let present: HashMap<_, _> = present.0.iter().map(|(identity, table)| (identity, table)).collect();
        let (mut tables, mut seen) = (Vec::new(), HashSet::new());
        for rate in settings.rates() {
            let identity = Identity::of(rate);
            if !seen.insert(identity.clone()) {
                continue;
            }
            let table = match present.get(&identity) {
                Some(table) => (*table).clone(),
                None => Table::from(rate::fresh(rate).with_context(|| {
                    format!("there is no memory for the {} keys of the limit `{}`", rate.keys, rate.name)
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
            let buckets = Buckets::attach(descriptor.as_fd()).ok()?;
            Some((identity, Table::from((buckets, descriptor))))
        });
        Rates(attached.collect())
    }

    /// Copies for another process.
    pub fn copies(&self) -> io::Result<(Vec<Identity>, Vec<OwnedFd>)> {
        let identities = self.0.iter().map(|(identity, _)| identity.clone()).collect();
        let copies = self.0.iter().map(|(_, table)| table.descriptor.try_clone());
        Ok((identities, copies.collect::<io::Result<_>>()?))
    }

    /// What they have refused.
    pub fn report(&self) -> Vec<RateReport> {
        let report = |(identity, table): &(Identity, Table)| RateReport {
            name: identity.name.clone(),
            refused: table.buckets.refused(),
            crowded: table.buckets.crowded(),
        };
        self.0.iter().map(report).collect()
    }
}
