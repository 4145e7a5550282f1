//! How many descriptors this process may hold, against what the settings ask for.
//!
//! Called at the start, before anything is opened.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_config::Settings;

/// What the process needs beside connections and the file cache: sockets, logs, pollers, watchers.
const OWN: u64 = 64;

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
pub fn fit(settings: &mut Settings, workers: usize) {
    if let Some(limit) = getrlimit(Resource::Nofile).maximum {
        let room = limit.saturating_sub(cached(settings, workers) + OWN).max(1);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        settings.limits.connections = settings.limits.connections.min(room);
    }
}

/// Descriptors that the file caches may hold.
fn cached(settings: &Settings, workers: usize) -> u64 {
    if settings.file_cache.enabled { u64::from(settings.file_cache.descriptors) * workers as u64 } else { 0 }
}

/// A sentence where the settings ask for more than the process may hold. Serving goes on: accepting pauses
/// when the limit is met.
pub fn shortage(settings: &Settings, workers: usize, limit: Option<u64>) -> Option<String> {
    let limit = limit?;
    let connections = u64::from(settings.limits.connections);
    let needed = connections + cached(settings, workers) + OWN;
    (needed > limit).then(|| {
        format!(
            "this process may hold {limit} descriptors, but {connections} connections (limits connections) \
             and the file cache may need {needed}; raise the limit (`ulimit -Hn`, or LimitNOFILE= of the \
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
        settings.file_cache.descriptors = 100;
        assert_eq!(shortage(&settings, 2, None), None);
        assert_eq!(shortage(&settings, 2, Some(1264)), None);
        let said = shortage(&settings, 2, Some(1263)).unwrap();
        assert!(said.contains("1264") && said.contains("1263"), "{said}");
    }
}
