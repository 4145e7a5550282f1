//! How many descriptors this process may hold, against what the settings ask for. What the file caches keep is not
//! counted: they give it back when there are no others.
//!
//! Called at the start, before anything is opened.

use crate::master::logs::Logs;
use crate::revision;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashSet;
use tidegate_config::Settings;
use tidegate_config::settings::Action;
use tidegate_io::descriptors::is_exhaustion;

/// What the process needs beside connections: sockets, logs, pollers, watchers.
const OWN: u64 = 64;
/// The share left for what requests open, a file or a connection to an application each.
const SHARE: u64 = 64;

/// What a process needs at any time beside connections, of so many descriptors.
fn reserve(limit: u64) -> u64 {
    OWN + limit / SHARE
}

/// As sentences begin.
pub const MASTER: &str = "the master process";

/// A sentence where a process has run out: for what it needs more, and how many that would be.
pub fn none_left(who: &str, what_for: &str, needed: Option<String>) -> String {
    let limit = tidegate_io::descriptors::limit().map_or("no more".to_owned(), |limit| limit.to_string());
    let needed = needed.map(|needed| format!(", and {needed}")).unwrap_or_default();
    format!(
        "{who} {} has no descriptors left to {what_for}: it may hold {limit}{needed}; raise the limit (`ulimit -Hn`, or \
         LimitNOFILE= of the service), or {}",
        std::process::id(),
        if who == MASTER {
            "name fewer logs, listeners and processes of pools"
        } else {
            "try again when there are fewer connections"
        }
    )
}

/// Whether it is for want of descriptors.
fn is_shortage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(is_exhaustion))
}

/// The same of the master, where that is why something has failed; `needed` as [`needed_by_the_master`] has it.
pub fn explain(error: anyhow::Error, what_for: &str, needed: u64) -> anyhow::Error {
    if !is_shortage(&error) {
        return error;
    }
    let needed = format!("these settings need about {needed} there");
    anyhow::anyhow!("{} ({error:#})", none_left(MASTER, what_for, Some(needed)))
}

/// What the master holds during a reload: sockets and logs of the settings before and after, and copies on the way to each
/// server process.
pub fn needed_by_the_master(settings: &Settings) -> u64 {
    const OWN: usize = 32;
    let listeners = settings.listeners.len() * revision::workers(settings) * settings.processes as usize;
    let logs = Logs::targets(settings).map(|(target, _)| target).collect::<HashSet<_>>().len();
    (OWN + 3 * listeners + (2 + settings.processes as usize) * logs) as u64
}

/// How many of its descriptors pools leave to the master: what it needs for a reload, and no more than a quarter of all.
pub fn kept_back(settings: &Settings) -> u64 {
    let share = tidegate_io::descriptors::limit().map_or(u64::MAX, |limit| limit / 4);
    needed_by_the_master(settings).min(share)
}

/// What a server process needs for a reload beside what it holds already: copies of all its sockets and logs.
fn needed_by_a_reload(settings: &Settings) -> u64 {
    let logs = Logs::targets(settings).map(|(target, _)| target).collect::<HashSet<_>>().len();
    2 * (settings.listeners.len() * revision::workers(settings) + logs) as u64
}

/// Raises the limit to the hard one and tells the limit that now holds; `None` is no limit.
///
/// Failing is no fault: the soft limit stays, and [`shortage`] says what it means.
pub fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, wanted).is_err() {
        return limit.current;
    }
    limit.maximum
}

/// Lowers `limits connections` to what the process may hold, for settings that nobody has written.
pub fn fit(settings: &mut Settings) {
    if let Some(limit) = getrlimit(Resource::Nofile).maximum {
        lower_to(limit, settings);
    }
}

/// To what leaves no [`shortage`], but to one connection at least.
fn lower_to(limit: u64, settings: &mut Settings) {
    let room =
        limit.saturating_sub(needed_beside_connections(settings, limit)) / held_by_a_connection(settings);
    let room = u32::try_from(room.max(1)).unwrap_or(u32::MAX);
    settings.limits.connections = settings.limits.connections.min(room);
}

/// Descriptors for each client at most. One that has switched protocols, to WebSockets most often, keeps a connection to the
/// application as well.
fn held_by_a_connection(settings: &Settings) -> u64 {
    let mut routes = settings.sites.iter().flat_map(|site| &site.routes);
    if routes.any(|route| matches!(route.action, Action::Proxy(_))) { 2 } else { 1 }
}

/// What is not for connections, of so many descriptors.
fn needed_beside_connections(settings: &Settings, limit: u64) -> u64 {
    reserve(limit) + needed_by_a_reload(settings)
}

/// A sentence where the settings ask for more than the process may hold. Serving goes on: accepting pauses
/// when the limit is met.
pub fn shortage(settings: &Settings, limit: Option<u64>) -> Option<String> {
    let limit = limit?;
    let connections = u64::from(settings.limits.connections);
    let needed = connections * held_by_a_connection(settings) + needed_beside_connections(settings, limit);
    (needed > limit).then(|| {
        format!(
            "this process may hold {limit} descriptors, but {connections} connections (limits connections) \
             and what requests, tunnels and a reload open may need {needed}; raise the limit (`ulimit -Hn`, or LimitNOFILE= of the \
             service), or lower `connections`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_shortage_only_where_there_is_one() {
        let mut settings = tidegate_config::from_folder(std::path::Path::new("/"), &[]).unwrap();
        settings.limits.connections = 1000;
        assert_eq!(shortage(&settings, None), None);
        settings.workers = Some(2);
        // 1000, 80 beside them, and twice what a reload sends: two sockets and a log.
        assert_eq!(shortage(&settings, Some(1086)), None);
        let said = shortage(&settings, Some(1085)).unwrap();
        assert!(said.contains("1086") && said.contains("1085"), "{said}");
    }

    #[test]
    fn what_is_chosen_here_leaves_no_shortage() {
        let unwritten = || tidegate_config::from_folder(std::path::Path::new("/"), &[]).unwrap();
        let written = "listen \":80\"\nsite { proxy \"http://127.0.0.1:3000\" }\n";
        let environment = tidegate_config::ProcessEnvironment;
        let proxied =
            || tidegate_config::load_str("a", written, "/".as_ref(), &environment).settings.unwrap();
        for limit in [256, 1024, 4096, 10_000, 20_000] {
            for (mut settings, each) in [(unwritten(), 1), (proxied(), 2)] {
                settings.limits.connections = 20_000;
                lower_to(limit, &mut settings);
                assert_eq!(shortage(&settings, Some(limit)), None, "{limit}");
                assert!(
                    u64::from(settings.limits.connections) * each > limit * 3 / 5,
                    "{limit}: not fewer than it must"
                );
                settings.limits.connections += 1;
                assert!(shortage(&settings, Some(limit)).is_some(), "{limit}");
            }
        }
        let mut settings = unwritten();
        let asked = settings.limits.connections;
        lower_to(1_000_000, &mut settings);
        assert_eq!(settings.limits.connections, asked, "nothing is raised");
    }

    #[test]
    fn connections_may_have_nearly_all() {
        assert!(reserve(20_000) < 400);
        assert!(reserve(1024) < 100);
    }
}
