//! The workers one by one, where balance matters: a worker that has most of the connections, or is busy while its siblings
//! rest, is nothing that sums show.

use super::report::{Row, Section};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_stats::Worker;

/// Workers that the report for people shows; programs get all of them.
const SHOWN: usize = 256;

/// What a worker has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFigures {
    /// Its server process.
    pub process: u32,
    /// Its number in there, from 0.
    pub worker: u32,
    /// Connections that it has now.
    pub connections: u64,
    /// Those that it has accepted.
    pub accepted: u64,
    /// Requests that it has read.
    pub requests: u64,
    /// Of processors, microseconds; as of the last second in which it had something to do.
    pub busy_micros: u64,
}

impl WorkerFigures {
    /// Of a worker of this process.
    pub fn of(worker: usize, stats: &Worker) -> WorkerFigures {
        WorkerFigures {
            process: std::process::id(),
            worker: u32::try_from(worker).unwrap_or(u32::MAX),
            connections: stats.connections.current(),
            accepted: stats.connections_accepted.value(),
            requests: stats.requests.value(),
            busy_micros: stats.busy_micros.value(),
        }
    }
}

/// A section with a row for each worker that there is.
pub(super) fn sections(workers: &[WorkerFigures]) -> Vec<Section> {
    if workers.is_empty() {
        return Vec::new();
    }
    let columns = |cells: [String; 4]| cells.map(|cell| format!("{cell:>14}")).concat();
    let heading = ["Connections", "Accepted", "Requests", "Busy"].map(str::to_owned);
    let mut rows = vec![Row::new("", columns(heading))];
    rows.extend(workers.iter().take(SHOWN).map(|worker| {
        let busy = format!("{:.3} s", worker.busy_micros as f64 / 1e6);
        let counts = [worker.connections, worker.accepted, worker.requests].map(|count| count.to_string());
        let [connections, accepted, requests] = counts;
        let name = format!("{}-{}", worker.process, worker.worker);
        Row::new(name, columns([connections, accepted, requests, busy]))
    }));
    if workers.len() > SHOWN {
        rows.push(Row::new("...", format!("and {} more: ask for JSON", workers.len() - SHOWN)));
    }
    vec![Section { title: "Workers".into(), rows }]
}

/// All of them as JSON.
pub(super) fn to_json(workers: &[WorkerFigures]) -> Value {
    let one = |worker: &WorkerFigures| {
        json!({
            "process": worker.process,
            "worker": worker.worker,
            "connections": worker.connections,
            "connections_accepted": worker.accepted,
            "requests": worker.requests,
            "busy_seconds": worker.busy_micros as f64 / 1e6,
        })
    };
    workers.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_row() {
        let stats = Worker::default();
        stats.requests.add(7);
        stats.connections.add(2);
        stats.busy_micros.add(1_500_000);
        let workers = [WorkerFigures::of(0, &stats), WorkerFigures::of(1, &Worker::default())];
        let section = &sections(&workers)[0];
        assert_eq!((section.rows.len(), section.rows[1].label.ends_with("-0")), (3, true));
        assert!(section.rows[1].value.ends_with("             7       1.500 s"), "{}", section.rows[1].value);
        let json = to_json(&workers);
        assert_eq!(
            (&json[0]["requests"], &json[0]["busy_seconds"], &json[1]["worker"]),
            (&json!(7), &json!(1.5), &json!(1))
        );
        assert!(sections(&[]).is_empty());
    }
}
