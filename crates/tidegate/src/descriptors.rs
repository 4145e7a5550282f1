//! How many descriptors this process may hold, against what the settings ask for. What the file caches keep is not
//! counted: they give it back when there are no others.
//!
//! Called at the start, before anything is opened.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_config::Settings;

/// What the process needs beside connections: sockets, logs, pollers, watchers.
const OWN: u64 = 64;
/// The share left for what requests open, a file or a connection to an application each.
const SHARE: u64 = 64;

/// What is not for connections, of so many descriptors.
fn reserve(limit: u64) -> u64 {
    OWN + limit / SHARE
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
        let room = limit.saturating_sub(reserve(limit)).max(1);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        settings.limits.connections = settings.limits.connections.min(room);
    }
}

/// A sentence where the settings ask for more than the process may hold. Serving goes on: accepting pauses
/// when the limit is met.
pub fn shortage(settings: &Settings, limit: Option<u64>) -> Option<String> {
    let limit = limit?;
    let connections = u64::from(settings.limits.connections);
    let needed = connections + reserve(limit);
    (needed > limit).then(|| {
        format!(
            "this process may hold {limit} descriptors, but {connections} connections (limits connections) \
             and what requests open may need {needed}; raise the limit (`ulimit -Hn`, or LimitNOFILE= of the \
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
        assert_eq!(shortage(&settings, Some(1081)), None);
        let said = shortage(&settings, Some(1079)).unwrap();
        assert!(said.contains("1080") && said.contains("1079"), "{said}");
    }

    #[test]
    fn connections_may_have_nearly_all() {
        assert!(reserve(20_000) < 400);
        assert!(reserve(1024) < 100);
    }
}
