//! What of the settings in force belongs into the report: listeners, limits, names and buckets of routes.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{Listener, Settings, Site};
use tidegate_core::series;
use tidegate_stats::ListenerFigures;

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
    /// What was counted there.
    #[serde(default)]
    pub counted: ListenerFigures,
}

impl ListenSocket {
    /// As the workers call it: without `http://`.
    fn bare_address(&self) -> &str {
        self.address.split_once("://").map_or(self.address.as_str(), |(_, address)| address)
    }
}

impl InForce {
    /// Whether it listens on this address, as workers call it.
    pub fn counts(&self, address: &str) -> bool {
        self.listen_sockets.iter().any(|socket| socket.bare_address() == address)
    }

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

    /// With what its listeners have counted; what is counted of an address that is not in force is left out.
    #[must_use]
    pub fn with_counts(mut self, counted: &[ListenerFigures]) -> InForce {
        for socket in &mut self.listen_sockets {
            if let Some(counted) = counted.iter().find(|counted| counted.address == socket.bare_address()) {
                socket.counted = counted.clone();
            }
        }
        self
    }

    /// Of a revision; `addresses` are those of its listeners.
    pub fn of(settings: &Settings, addresses: &[String], workers: usize) -> InForce {
        // As `core/hosts.rs` finds it: of the sites that answer there, the one that is named, else one without a name, else the first.
        let default_site = |listener: &Listener| {
            let there = || settings.sites.iter().filter(|site| site.is_on(listener));
            let is_named = |site: &&Arc<Site>| {
                let name = listener.default_site.as_ref();
                name.is_some_and(|name| site.names.iter().any(|known| known.to_string() == *name))
            };
            let site = there().find(is_named).or_else(|| there().find(|site| site.names.is_empty()));
            site.or_else(|| there().next()).map(|site| site.label()).unwrap_or_default()
        };
        let sockets = settings.listeners.iter().zip(addresses).map(|(listener, address)| ListenSocket {
            address: address.clone(),
            acceptors: workers,
            default_site: default_site(listener),
            counted: ListenerFigures::default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn in_force(text: &str) -> InForce {
        let environment = tidegate_config::ProcessEnvironment;
        let loaded = tidegate_config::load_str("a", text, std::path::Path::new("/"), &environment);
        let settings = loaded.settings.expect("they are right");
        let addresses = settings.listeners.iter().map(|listener| format!("http://{}", listener.address));
        InForce::of(&settings, &addresses.collect::<Vec<_>>(), 2)
    }

    #[test]
    fn the_default_site_is_one_that_answers_there() {
        let in_force = in_force(
            "listen \"127.0.0.1:1\"\nlisten \"127.0.0.1:2\"\nlisten \"127.0.0.1:3\" { default-site \"c.test\" }\n\
             site \"a.test\" { bind \"127.0.0.1:1\"; respond 200 }\n\
             site \"b.test\" { bind \"127.0.0.1:2\" \"127.0.0.1:3\"; respond 200 }\n\
             site \"c.test\" { bind \"127.0.0.1:3\"; respond 200 }\n",
        );
        let defaults: Vec<&str> =
            in_force.listen_sockets.iter().map(|socket| socket.default_site.as_str()).collect();
        assert_eq!(defaults, ["a.test", "b.test", "c.test"]);
    }

    #[test]
    fn listeners_have_what_was_counted_at_their_address() {
        let counted = |address: &str, accepted, refused| ListenerFigures {
            address: address.into(),
            accepted,
            refused,
            ..ListenerFigures::default()
        };
        let in_force = in_force("listen \"127.0.0.1:1\"\nlisten \"[::1]:2\"\nsite { respond 200 }\n")
            .with_counts(&[counted("[::1]:2", 7, 3), counted("127.0.0.1:9", 1, 1)]);
        let counted = in_force.listen_sockets.iter().map(|socket| &socket.counted);
        let told: Vec<_> = counted.map(|counted| (counted.accepted, counted.refused)).collect();
        assert_eq!(told, [(0, 0), (7, 3)]);
    }
}
