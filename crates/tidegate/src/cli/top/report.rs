//! What a server tells: the parts of its JSON reports that are shown.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// What is read of `tidegate status --json`. What is not there is nothing: a server of another version says more or less.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    pub server: Server,
    pub findings: Vec<Finding>,
    pub pools: Vec<Pool>,
    pub upstreams: Vec<Group>,
    pub caches: Vec<Cache>,
    pub limits: Vec<Limit>,
    pub sites: Vec<Site>,
    pub stats: Stats,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Server {
    pub version: String,
    pub pid: u32,
    pub now: String,
    /// Seconds.
    pub uptime: f64,
    pub workers: u64,
    pub revision: u64,
    pub state: String,
    pub used: UsedByAll,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct UsedByAll {
    pub servers: Used,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Used {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Finding {
    pub name: String,
    pub subject: String,
    pub sentence: String,
    pub change: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pool {
    pub name: String,
    pub state: String,
    pub requests: u64,
    pub in_use: u64,
    pub waiting: u64,
    pub refused: HashMap<String, u64>,
    pub processes: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Group {
    pub name: String,
    pub waiting: u64,
    pub refused: HashMap<String, u64>,
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Member {
    pub name: String,
    pub state: String,
    pub in_use: u64,
    pub requests: u64,
    pub failures: u64,
}

/// A store of responses.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Cache {
    pub name: String,
    pub requests: CacheRequests,
    pub memory: Tier,
    pub disks: Vec<Disk>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CacheRequests {
    pub hits: u64,
    pub collapsed: u64,
    pub revalidated: u64,
    pub misses: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Tier {
    pub bytes: u64,
    pub limit: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Disk {
    pub bytes: u64,
    pub limit: u64,
    /// It is out of use.
    pub out: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Limit {
    pub refused: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Site {
    pub name: String,
    pub unrouted: Option<Route>,
    pub routes: Vec<Route>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Route {
    pub route: String,
    pub requests: u64,
    pub responses: HashMap<String, u64>,
    pub sent_bytes: u64,
    pub seconds: f64,
    pub duration: Times,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Times {
    pub count: u64,
    pub p99: f64,
    pub buckets: Vec<(f64, u64)>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Stats {
    pub connections: Level,
    pub in_flight: Level,
    pub queued: Level,
    pub gateway_queued: Level,
    pub connections_refused: u64,
    pub requests_shed: u64,
    pub queue_refusals: HashMap<String, u64>,
    /// By what clients got.
    pub gateway_errors: HashMap<String, u64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub responses: Responses,
    pub latency: Times,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Level {
    pub current: u64,
    pub limit: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Responses {
    pub total: u64,
    #[serde(rename = "4xx")]
    pub client_errors: u64,
    #[serde(rename = "5xx")]
    pub server_errors: u64,
}

/// What is read of `tidegate status requests --json`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct UnderWay {
    pub count: u64,
    pub requests: Vec<UnderWayRow>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct UnderWayRow {
    pub id: String,
    pub age: f64,
    pub phase: String,
    pub status: Option<u16>,
    pub client: String,
    pub site: String,
    pub route: String,
    pub method: String,
    pub target: String,
    pub upstream: String,
}

/// What is read of `tidegate status slow --json`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Slow {
    pub requests: Vec<SlowRow>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SlowRow {
    pub at: i64,
    pub took: f64,
    pub status: u16,
    pub client: String,
    pub site: String,
    pub route: String,
    pub method: String,
    pub target: String,
}

/// All that is asked of a server at one time.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// When it was asked, seconds of a clock that never runs backwards.
    pub at: f64,
    pub report: Report,
    pub under_way: UnderWay,
    pub slow: Slow,
}

impl Sample {
    /// Out of three answers.
    ///
    /// # Errors
    /// One of them is no JSON of this kind.
    pub fn read(at: f64, report: &str, under_way: &str, slow: &str) -> anyhow::Result<Sample> {
        fn part<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
            serde_json::from_str(text)
                .map_err(|error| anyhow::anyhow!("the server's report cannot be read: {error}"))
        }
        Ok(Sample { at, report: part(report)?, under_way: part(under_way)?, slow: part(slow)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_is_said_to_be_none() {
        for wrong in ["", "nonsense", r#"{"sites":3}"#] {
            let error = Sample::read(0.0, wrong, "{}", "{}").unwrap_err().to_string();
            assert!(error.starts_with("the server's report cannot be read: "), "{error}");
        }
    }
}
