//! The tables of `limit`: made by the master, so that all server processes count in the same, and kept for as long as the
//! limit is there, over reloads, upgrades and the end of any process.

use crate::link::RateTable;
use anyhow::{Context, Result};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_core::rate::{self, Buckets};
use tidegate_modules::status::RateReport;

/// The tables of one revision.
#[derive(Debug, Clone, Default)]
pub struct Rates(Vec<(RateTable, Arc<Buckets>)>);

impl Rates {
    /// A table for each limit of the settings. Those that `present` has are taken from there.
    pub fn open(settings: &Settings, present: &Rates) -> Result<Rates> {
        let mut tables: Vec<(RateTable, Arc<Buckets>)> = Vec::new();
        for rate in settings.rates() {
            let table = RateTable { name: rate.name.clone(), keys: rate.keys };
            if tables.iter().any(|(known, _)| *known == table) {
                continue;
            }
            let buckets = match present.0.iter().find(|(known, _)| *known == table) {
                Some((_, buckets)) => buckets.clone(),
                None => Arc::new(rate::fresh(rate).with_context(|| {
                    format!("there is no memory for the {} keys of the limit `{}`", rate.keys, rate.name)
                })?),
            };
            tables.push((table, buckets));
        }
        Ok(Rates(tables))
    }

    /// Those that a predecessor has left. What cannot be used is made anew.
    pub fn inherit(tables: Vec<RateTable>, descriptors: impl IntoIterator<Item = OwnedFd>) -> Rates {
        let both = tables.into_iter().zip(descriptors);
        let attached = both.filter_map(|(table, fd)| Some((table, Arc::new(Buckets::attach(fd).ok()?))));
        Rates(attached.collect())
    }

    /// Copies for another process.
    pub fn copies(&self) -> io::Result<(Vec<RateTable>, Vec<OwnedFd>)> {
        let tables = self.0.iter().map(|(table, _)| table.clone()).collect();
        let copies = self.0.iter().map(|(_, buckets)| buckets.descriptor().try_clone_to_owned());
        Ok((tables, copies.collect::<io::Result<_>>()?))
    }

    /// What they have refused.
    pub fn report(&self) -> Vec<RateReport> {
        let report = |(table, buckets): &(RateTable, Arc<Buckets>)| RateReport {
            name: table.name.clone(),
            refused: buckets.refused(),
            crowded: buckets.crowded(),
        };
        self.0.iter().map(report).collect()
    }
}
