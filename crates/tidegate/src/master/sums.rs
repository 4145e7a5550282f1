//! The figures of several server processes as one, and what of them is about the settings in force. For the status registry.

use crate::link::Figures;
use std::path::PathBuf;
use tidegate_modules::cache_desk::{self, StoreFigures};
use tidegate_modules::gateway::balance::{self, report::GroupReport};
use tidegate_modules::status::{lanes, providers};

/// Adds what another process has counted.
pub(super) fn add(sum: &mut Figures, more: &Figures) {
    add_counts(sum, more);
    sum.series.merge(&more.series);
}

/// All but what sites and routes have counted.
pub(super) fn add_counts(sum: &mut Figures, more: &Figures) {
    sum.counted.merge(&more.counted);
    sum.log_lines_lost += more.log_lines_lost;
    for (log, lines) in &more.log_losses {
        *sum.log_losses.entry(log.clone()).or_default() += lines;
    }
    sum.used.add(&more.used);
    sum.workers.extend_from_slice(&more.workers);
    lanes::merge(&mut sum.lanes, &more.lanes);
    balance::report::merge(&mut sum.groups, &more.groups);
    cache_desk::add_stores(&mut sum.stores, more.stores.clone());
    providers::merge(&mut sum.providers, &more.providers);
}

/// Of what groups have told, what is about those of the settings, in their order.
pub(super) fn in_force(named: &[(String, Vec<String>)], told: &[GroupReport]) -> Vec<GroupReport> {
    let report = |(name, members): &(String, Vec<String>)| {
        let told = told.iter().find(|group| group.name == *name)?;
        let row = |name: &String| told.members.iter().find(|member| member.name == *name).cloned();
        Some(GroupReport { members: members.iter().filter_map(row).collect(), ..told.clone() })
    };
    named.iter().filter_map(report).collect()
}

/// Of what stores have told, what is about those of the settings and their folders, in their order.
pub(super) fn stores_in_force(named: &[(String, Vec<PathBuf>)], told: &[StoreFigures]) -> Vec<StoreFigures> {
    let figures = |(name, folders): &(String, Vec<PathBuf>)| {
        let told = told.iter().find(|store| store.store == *name)?;
        let of = |folder: &PathBuf| told.disks.iter().find(|disk| disk.folder == *folder).cloned();
        Some(StoreFigures { disks: folders.iter().filter_map(of).collect(), ..told.clone() })
    };
    named.iter().filter_map(figures).collect()
}

/// What a process that has ended has counted; what it held is gone.
pub(super) fn retired(mut figures: Figures) -> Figures {
    figures.counted.retire();
    figures.used.retire();
    figures.groups.iter_mut().for_each(GroupReport::retire);
    figures.stores.iter_mut().for_each(StoreFigures::retire);
    figures.providers.clear();
    figures.workers.clear();
    figures.lanes.clear();
    figures.series.without_exemplars();
    figures
}
