//! What the requests of a site count for: the names of sites and routes in statistics, and their numbers in this process.
//!
//! Names come from the settings alone and depend on no revision: a site is called by its first name, a route by its pattern.
//! Where several have the same, the second is `NAME (2)`. `conn/decide` looks a number up, `conn/send` counts with it.

use crate::exchange::Exchange;
use crate::log::push_json_member;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_config::settings::Settings;
use tidegate_stats::series::{Phase, SeriesDirectory, SeriesId, SeriesName, SeriesNames, SiteIds};
use tidegate_stats::{Elapsed, Worker as Stats};

/// What all sites and routes are called in statistics, in the order of the settings.
pub fn names(settings: &Settings) -> Vec<SeriesNames> {
    let mut sites = Different::default();
    let name = |site: &Arc<tidegate_config::settings::Site>| {
        let mut routes = Different::default();
        let patterns = site.routes.iter().map(|route| routes.name(route.pattern.to_string()));
        SeriesNames { routes: patterns.collect(), site: sites.name(site.label()) }
    };
    settings.sites.iter().map(name).collect()
}

impl Exchange<'_> {
    /// What the times count for that the request takes in the hands of its route.
    pub fn series(&self) -> SeriesId {
        self.state.site.as_ref().map_or(SeriesId::NONE, |site| site.series.of(self.state.route))
    }

    /// Counts the time that it has waited for a place within a limit.
    pub(crate) fn has_queued(&self, elapsed: Elapsed) {
        if let Some(stats) = self.state.site.as_ref().and_then(|site| site.series.stats.as_ref()) {
            stats.series.took(self.series(), Phase::Queue, elapsed);
        }
        if let Some(trace) = self.state.trace() {
            trace.took(Phase::Queue, elapsed.as_nanos());
        }
    }
}

/// Adds site and route, as the statistics call them, to a row of JSON.
pub(crate) fn push_series(row: &mut Vec<u8>, name: Option<SeriesName>) {
    let Some((site, route)) = name else { return };
    push_json_member(row, "site", site.as_bytes());
    push_json_member(row, "route", route.as_deref().unwrap_or_default().as_bytes());
}

/// Makes names different that are not.
#[derive(Default)]
struct Different(HashMap<String, u32>);

impl Different {
    fn name(&mut self, name: String) -> String {
        let count = self.0.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name} ({count})") }
    }
}

/// The numbers of all sites of a revision, in their order, known to what a worker counts with.
pub fn number(settings: &Settings, directory: &Arc<SeriesDirectory>, stats: &Arc<Stats>) -> Vec<SiteSeries> {
    let ids = directory.adopt(&names(settings));
    if !settings.statistics.of_sites {
        // Requests under way are still told with their site and route.
        directory.name_for(&stats.series);
        let ids = ids.into_iter().map(SiteIds::uncounted);
        return ids.map(|ids| SiteSeries { ids, stats: None }).collect();
    }
    directory.extend(&stats.series);
    ids.into_iter().map(|ids| SiteSeries { ids, stats: Some(stats.clone()) }).collect()
}

/// The numbers of a site and its routes. The default counts for no site.
#[derive(Default)]
pub struct SiteSeries {
    ids: SiteIds,
    /// Of the worker.
    stats: Option<Arc<Stats>>,
}

impl SiteSeries {
    /// Of requests that come to none of its routes.
    #[inline]
    pub(crate) fn unrouted(&self) -> SeriesId {
        self.ids.unrouted
    }

    /// Of a route.
    #[inline]
    pub(crate) fn of(&self, route: usize) -> SeriesId {
        self.ids.routes.get(route).copied().unwrap_or(self.ids.unrouted)
    }

    /// Its settings are in force: what is slow for which of its routes.
    pub(crate) fn in_force(&self, config: &tidegate_config::settings::Site) {
        let Some(stats) = &self.stats else { return };
        for (index, route) in config.routes.iter().enumerate() {
            stats.series.set_slow_after(self.of(index), route.slow_after);
        }
    }

    /// Counts a request of the server's own that a route gets on behalf of another.
    #[cold]
    pub(crate) fn handed_on(&self, route: usize) {
        if let Some(stats) = &self.stats {
            stats.series.handed_on(self.of(route));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_is_called_the_same() {
        let text = r#"
            listen "127.0.0.1:1"
            site "a.test" "b.test" {
                root "/"
                route "/x" { when method "GET"; respond 200 }
                route "/x" { respond 201 }
                route "*.php" { respond 200 }
            }
            site { respond 404 }
        "#;
        let environment = tidegate_config::ProcessEnvironment;
        let loaded = tidegate_config::load_str("a", text, std::path::Path::new("/"), &environment);
        let names = names(&loaded.settings.expect("they are right"));
        assert_eq!(names[0].site, "a.test");
        assert_eq!(names[0].routes, ["/x", "/x (2)", "*.php", "/*"]);
        assert_eq!((names[1].site.as_str(), names[1].routes.len()), ("(any)", 1));
    }
}
