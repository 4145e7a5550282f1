//! Which parts of queries count for the routes of a store: a URL that is purged is stored under what each of them has of it.

use super::policy::query_rules;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tidegate_config::Settings;
use tidegate_config::settings::RouteCache;
use tidegate_http::cache::key::{self, QueryRules};
use tidegate_io::locking::lock;

/// What all routes say of queries that use a store.
#[derive(Clone, Default)]
pub(super) struct Queries(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Those that differ.
    rules: Vec<QueryRules>,
    /// Some of the routes go by `No-Vary-Search`.
    has_searches: bool,
}

impl Queries {
    /// Another route uses the store.
    pub(super) fn add(&self, cache: &RouteCache) {
        let rules = query_rules(cache);
        let mut known = lock(&self.0);
        known.has_searches |= cache.no_vary_search;
        if !known.rules.contains(&rules) {
            known.rules.push(rules);
        }
    }

    /// These settings are in force: what no route of theirs says goes.
    pub(super) fn keep(&self, store: &str, settings: &Settings) {
        let routes = settings.sites.iter().flat_map(|site| &site.routes);
        let caches = routes.filter_map(|route| route.cache.as_deref()).filter(|cache| cache.store == store);
        let caches: Vec<&RouteCache> = caches.collect();
        let wanted: Vec<QueryRules> = caches.iter().map(|cache| query_rules(cache)).collect();
        let mut known = lock(&self.0);
        known.has_searches = caches.iter().any(|cache| cache.no_vary_search);
        known.rules.retain(|rules| wanted.contains(rules));
    }

    /// What a path and query may be stored under; itself among them.
    pub(super) fn counting(&self, target: &str) -> BTreeSet<String> {
        let known = lock(&self.0);
        let counting = known.rules.iter().map(|rules| key::counting_target(target, rules).into_owned());
        counting.chain([target.to_owned()]).collect()
    }

    /// The path of a target, where it may be answered with what was stored for another query of it.
    pub(super) fn searched<'t>(&self, target: &'t str) -> Option<&'t str> {
        let has_searches = lock(&self.0).has_searches;
        target.split('?').next().filter(|_| has_searches)
    }
}
