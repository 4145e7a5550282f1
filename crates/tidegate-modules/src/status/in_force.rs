//! What of the settings in force belongs into the report: listeners, limits, names and buckets of routes.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidegate_config::settings::{Settings, Site};
use tidegate_core::series;

/// What of the settings is reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InForce {
    /// What is listened on.
    pub listen_sockets: Vec<ListenSocket>,
    /// How long idle connections are kept, unless a site or route says otherwise.
    pub keep_alive_timeout: Duration,
    /// Whether the file cache is switched on.
    pub cache_enabled: bool,
    /// How old its entries become.
    pub cache_max_age: Duration,
    /// Sites and routes are not counted apart.
    pub statistics_off: bool,
    /// Site, route and performance bucket of each route that names one.
    pub buckets: Vec<(String, String, String)>,
}

/// An address that is listened on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenSocket {
    /// As in the report.
    pub address: String,
    /// Threads that accept: each worker has a socket of its own for it.
    pub acceptors: usize,
    /// The site that answers what no other claims; empty where there is none.
    pub default_site: String,
}

impl InForce {
    /// What stands among what is counted: section, label and value.
    pub(super) fn rows(&self) -> [(&'static str, &'static str, String); 3] {
        let seconds = |time: Duration| match time.subsec_millis() {
            0 => time.as_secs().to_string(),
            _ => format!("{:.3}", time.as_secs_f64()),
        };
        [
            ("KeepAliveInfo", "KeepAliveTimeout", format!("{} seconds", seconds(self.keep_alive_timeout))),
            ("CacheInfo", "enabled", if self.cache_enabled { "yes" } else { "no" }.to_owned()),
            ("CacheInfo", "Maximum Age", seconds(self.cache_max_age)),
        ]
    }

    /// Of a revision; `addresses` are those of its listeners.
    pub fn of(settings: &Settings, addresses: &[String], workers: usize) -> InForce {
        let of_site = |name: Option<&String>| {
            let on_listener = settings.sites.iter();
            let named = |site: &&std::sync::Arc<Site>| {
                name.is_some_and(|name| site.names.iter().any(|known| known.to_string() == *name))
            };
            let site = on_listener.clone().find(named);
            let site = site.or_else(|| on_listener.clone().find(|site| site.names.is_empty()));
            site.or(settings.sites.first()).map(|site| site.label()).unwrap_or_default()
        };
        let sockets = settings.listeners.iter().zip(addresses).map(|(listener, address)| ListenSocket {
            address: address.clone(),
            acceptors: workers,
            default_site: of_site(listener.default_site.as_ref()),
        });
        let mut buckets = Vec::new();
        for (site, names) in settings.sites.iter().zip(series::names(settings)) {
            for (route, name) in site.routes.iter().zip(names.routes) {
                if let Some(bucket) = &route.bucket {
                    buckets.push((names.site.clone(), name, bucket.clone()));
                }
            }
        }
        InForce {
            listen_sockets: sockets.collect(),
            keep_alive_timeout: settings.limits.request.keep_alive_timeout,
            cache_enabled: settings.file_cache.enabled,
            cache_max_age: settings.file_cache.max_age,
            statistics_off: !settings.statistics.of_sites,
            buckets,
        }
    }
}
