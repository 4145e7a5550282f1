//! Threads for what would hold up a worker, lane by lane: the pool for calls that wait for a disk, each disk that it has work
//! for, and the lane that compares passwords.
//!
//! The pool as a whole is in the section `NativePool` of what is counted; a lane is one more of that kind.

use super::report::{Row, Section};
use crate::login::login_lane;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_io::blocking::{self, PoolFigures, QueueKey};
use tidegate_stats::Level;

/// A lane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneReport {
    /// `login`, `disk 8:1`, or `no disk`.
    pub name: String,
    /// In use, started, and at most.
    pub threads: Level,
    /// Jobs that wait, have waited at once, and may.
    pub queue: Level,
}

/// Those of this process. A disk is there while the pool has work for it.
pub fn lanes() -> Vec<LaneReport> {
    let (lane, pool) = (login_lane(), blocking::figures());
    let name = lane.name().trim_start_matches("tidegate-").to_owned();
    let disks = blocking::devices().into_iter().map(|(device, running, waiting)| {
        let name = match device {
            device if !QueueKey::is_device(device) => "no disk".to_owned(),
            device => format!("disk {}:{}", rustix::fs::major(device), rustix::fs::minor(device)),
        };
        let threads =
            Level { current: running as u64, peak: running as u64, limit: pool.threads_limit as u64 / 2 };
        let queue = Level { current: waiting as u64, peak: waiting as u64, limit: pool.waiting_limit as u64 };
        LaneReport { name, threads, queue }
    });
    std::iter::once(report(name, lane.figures())).chain(disks).collect()
}

fn report(name: String, figures: PoolFigures) -> LaneReport {
    let PoolFigures { idle, threads, threads_limit, waiting, waiting_peak, waiting_limit } = figures;
    let level = |current: usize, peak: usize, limit: usize| {
        let [current, peak, limit] = [current, peak, limit].map(|value| value as u64);
        Level { current, peak, limit }
    };
    LaneReport {
        name,
        threads: level(threads.saturating_sub(idle), threads, threads_limit),
        queue: level(waiting, waiting_peak, waiting_limit),
    }
}

/// Adds those of another process.
pub fn merge(all: &mut Vec<LaneReport>, others: &[LaneReport]) {
    for other in others {
        match all.iter_mut().find(|known| known.name == other.name) {
            Some(known) => {
                for (own, more) in [(&mut known.threads, other.threads), (&mut known.queue, other.queue)] {
                    own.current += more.current;
                    own.peak += more.peak;
                    own.limit += more.limit;
                }
            }
            None => all.push(other.clone()),
        }
    }
}

/// A section for each.
pub(super) fn sections(lanes: &[LaneReport]) -> Vec<Section> {
    let section = |lane: &LaneReport| {
        let LaneReport { name, threads, queue } = lane;
        let idle = threads.peak.saturating_sub(threads.current);
        Section {
            title: format!("NativePool {name}"),
            rows: vec![
                Row::new("Idle/Peak/Limit", format!("{idle}/{}/{}", threads.peak, threads.limit)),
                Row::new(
                    "Work Queue Length/Peak/Limit",
                    format!("{}/{}/{}", queue.current, queue.peak, queue.limit),
                ),
            ],
        }
    };
    lanes.iter().map(section).collect()
}

/// All of them as JSON.
pub(super) fn to_json(lanes: &[LaneReport]) -> Value {
    let level = |level: &Level| json!({ "current": level.current, "peak": level.peak, "limit": level.limit });
    let one = |lane: &LaneReport| {
        let idle = lane.threads.peak.saturating_sub(lane.threads.current);
        json!({ "name": lane.name, "idle": idle, "threads": level(&lane.threads), "queue": level(&lane.queue) })
    };
    lanes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_processes_are_added_up() {
        let figures = PoolFigures {
            idle: 1,
            threads: 3,
            threads_limit: 4,
            waiting: 5,
            waiting_peak: 6,
            waiting_limit: 7,
        };
        let mut all = vec![report("login".into(), figures)];
        merge(&mut all, &[report("login".into(), figures), report("disk 8:1".into(), figures)]);
        let sections = sections(&all);
        assert_eq!((sections.len(), sections[0].title.as_str()), (2, "NativePool login"));
        let values: Vec<&str> = sections[0].rows.iter().map(|row| row.value.as_str()).collect();
        assert_eq!(values, ["2/6/8", "10/12/14"]);
        assert_eq!((&to_json(&all)[0]["idle"], &to_json(&all)[1]["queue"]["peak"]), (&json!(2), &json!(6)));
        assert_eq!(lanes()[0].name, "login");
    }
}
