//! Pools in the report: how each stands, who waits before it, and its processes.

use super::report::{Row, Section};
use crate::gateway::supervise::status::{OpcacheFigures, OpcacheStatus, PoolStatus};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// A section for each pool.
pub(super) fn sections(pools: &[PoolStatus]) -> Vec<Section> {
    pools.iter().map(section).collect()
}

fn section(pool: &PoolStatus) -> Section {
    let demand = &pool.demand;
    let mut rows = vec![Row::new("State", pool.phase.as_str())];
    if let Some(retry_after) = pool.retry_after {
        rows.push(Row::new("Next Attempt", format!("in {} s", retry_after.as_secs())));
    }
    rows.push(Row::new("Requests", demand.requests.to_string()));
    rows.push(Row::new("In Use", demand.in_use.to_string()));
    rows.push(Row::new("Waiting", format!("{} for up to {}", demand.waiting, seconds(demand.oldest_wait))));
    let refused = format!(
        "{} full, {} too old, {} down",
        demand.refused_full, demand.refused_too_old, demand.refused_down
    );
    rows.push(Row::new("Refused", refused));
    rows.push(Row::new("Gone While Waiting", demand.abandoned.to_string()));
    rows.push(Row::new("Restarts", pool.restarts.to_string()));
    if let Some(failure) = &pool.last_failure {
        rows.push(Row::new("Last Failure", failure.as_str()));
    }
    if let Some(opcache) = &pool.opcache {
        rows.extend(opcache_rows(opcache));
    }
    for process in &pool.processes {
        let value = format!("{}, {} requests, {} old", process.state, process.requests, seconds(process.age));
        let pid = process.pid.map_or_else(|| "without a number yet".to_owned(), |pid| pid.to_string());
        rows.push(Row::new(format!("Process {pid}"), value));
    }
    Section { title: format!("Pool {}", pool.name), rows }
}

fn opcache_rows(opcache: &OpcacheStatus) -> Vec<Row> {
    let mut state = opcache.state.as_str().to_owned();
    if let Some(why) = &opcache.why {
        let _ = write!(state, ": {why}");
    }
    if opcache.age >= OLD {
        let _ = write!(state, ", as told {} ago", seconds(opcache.age));
    }
    let mut rows = vec![Row::new("OPcache", state)];
    let Some(figures) = &opcache.figures else { return rows };
    let OpcacheFigures { used, free, wasted, hits, misses, scripts, .. } = figures;
    let memory =
        format!("{} used, {} free, {} wasted", mebibytes(*used), mebibytes(*free), mebibytes(*wasted));
    rows.push(Row::new("OPcache Memory", memory));
    rows.push(Row::new("OPcache Scripts", format!("{scripts} cached, {hits} hits, {misses} misses")));
    let restarts = format!(
        "{} out of memory, {} out of keys, {} by hand",
        figures.restarts_out_of_memory, figures.restarts_hash, figures.restarts_manual
    );
    rows.push(Row::new("OPcache Restarts", restarts));
    rows
}

/// What is older was not told just now.
const OLD: Duration = Duration::from_secs(5);

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn opcache_json(opcache: &OpcacheStatus) -> Value {
    let figures = opcache.figures.as_ref().map(|figures| {
        json!({
            "memory": { "used": figures.used, "free": figures.free, "wasted": figures.wasted },
            "scripts": figures.scripts,
            "hits": figures.hits,
            "misses": figures.misses,
            "restarts": {
                "out_of_memory": figures.restarts_out_of_memory,
                "hash": figures.restarts_hash,
                "manual": figures.restarts_manual,
            },
        })
    });
    let mut told = json!({
        "state": opcache.state.as_str(),
        "why": opcache.why,
        "age": opcache.age.as_secs_f64(),
    });
    if let (Some(told), Some(Value::Object(figures))) = (told.as_object_mut(), figures) {
        told.extend(figures);
    }
    told
}

/// All pools as JSON.
pub(super) fn to_json(pools: &[PoolStatus]) -> Value {
    let one = |pool: &PoolStatus| {
        let demand = &pool.demand;
        let processes = pool.processes.iter().map(|process| {
            json!({
                "pid": process.pid,
                "state": process.state,
                "age": process.age.as_secs_f64(),
                "requests": process.requests,
                "address": process.address.to_string(),
            })
        });
        json!({
            "name": pool.name,
            "state": pool.phase.as_str(),
            "retry_after": pool.retry_after.map(|time| time.as_secs_f64()),
            "requests": demand.requests,
            "in_use": demand.in_use,
            "waiting": demand.waiting,
            "oldest_wait": demand.oldest_wait.as_secs_f64(),
            "refused": {
                "full": demand.refused_full,
                "too_old": demand.refused_too_old,
                "down": demand.refused_down,
            },
            "abandoned": demand.abandoned,
            "restarts": pool.restarts,
            "last_failure": pool.last_failure,
            "opcache": pool.opcache.as_ref().map(opcache_json),
            "processes": processes.collect::<Vec<_>>(),
        })
    };
    pools.iter().map(one).collect()
}

/// What one pool says to a measure, and the labels that go with it beside its name.
type Measure = (&'static str, &'static str, &'static str, fn(&PoolStatus) -> Samples);

/// All pools for Prometheus.
pub(super) fn write_prometheus(text: &mut String, pools: &[PoolStatus]) {
    const MEASURES: [Measure; 13] = [
        ("up", "gauge", "Whether the pool takes requests.", |pool| {
            vec![("", f64::from(u8::from(pool.phase == crate::gateway::pool_directory::PoolPhase::Up)))]
        }),
        ("processes", "gauge", "Processes of the pool.", |pool| vec![("", pool.processes.len() as f64)]),
        ("requests_total", "counter", "Requests given to the pool.", |pool| {
            vec![("", pool.demand.requests as f64)]
        }),
        ("in_use", "gauge", "Requests under way.", |pool| vec![("", pool.demand.in_use as f64)]),
        ("waiting", "gauge", "Requests that wait for a place.", |pool| {
            vec![("", pool.demand.waiting as f64)]
        }),
        ("oldest_wait_seconds", "gauge", "How long the first of them has waited.", |pool| {
            vec![("", pool.demand.oldest_wait.as_secs_f64())]
        }),
        ("refused_total", "counter", "Requests refused before the pool.", |pool| {
            vec![
                (",reason=\"full\"", pool.demand.refused_full as f64),
                (",reason=\"too-old\"", pool.demand.refused_too_old as f64),
                (",reason=\"down\"", pool.demand.refused_down as f64),
            ]
        }),
        ("restarts_total", "counter", "Processes that ended unasked, or had to be ended.", |pool| {
            vec![("", pool.restarts as f64)]
        }),
        ("opcache_memory_bytes", "gauge", "Memory of PHP's cache of compiled scripts.", |pool| {
            of_opcache(pool, |figures| {
                vec![
                    (",kind=\"used\"", figures.used as f64),
                    (",kind=\"free\"", figures.free as f64),
                    (",kind=\"wasted\"", figures.wasted as f64),
                ]
            })
        }),
        ("opcache_scripts", "gauge", "Scripts in it.", |pool| {
            of_opcache(pool, |figures| vec![("", figures.scripts as f64)])
        }),
        ("opcache_hits_total", "counter", "Scripts found in it.", |pool| {
            of_opcache(pool, |figures| vec![("", figures.hits as f64)])
        }),
        ("opcache_misses_total", "counter", "Scripts that had to be compiled.", |pool| {
            of_opcache(pool, |figures| vec![("", figures.misses as f64)])
        }),
        ("opcache_restarts_total", "counter", "Times that it was emptied.", |pool| {
            of_opcache(pool, |figures| {
                vec![
                    (",reason=\"out-of-memory\"", figures.restarts_out_of_memory as f64),
                    (",reason=\"hash\"", figures.restarts_hash as f64),
                    (",reason=\"manual\"", figures.restarts_manual as f64),
                ]
            })
        }),
    ];
    if pools.is_empty() {
        return;
    }
    for (name, kind, help, values) in MEASURES {
        if pools.iter().all(|pool| values(pool).is_empty()) {
            continue;
        }
        let _ = writeln!(text, "# HELP tidegate_pool_{name} {help}\n# TYPE tidegate_pool_{name} {kind}");
        for pool in pools {
            for (labels, value) in values(pool) {
                // A name is a token: nothing in it has to be escaped.
                let _ = writeln!(text, "tidegate_pool_{name}{{pool=\"{}\"{labels}}} {value}", pool.name);
            }
        }
    }
}

type Samples = Vec<(&'static str, f64)>;

fn of_opcache(pool: &PoolStatus, f: fn(&OpcacheFigures) -> Samples) -> Samples {
    pool.opcache.as_ref().and_then(|opcache| opcache.figures.as_ref()).map(f).unwrap_or_default()
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::places::Demand;
    use crate::gateway::pool_directory::{PoolAddress, PoolPhase};
    use crate::gateway::supervise::status::{OpcacheState, ProcessStatus};

    fn pool() -> PoolStatus {
        PoolStatus {
            name: "php".into(),
            phase: PoolPhase::Failing,
            processes: vec![ProcessStatus {
                pid: Some(42),
                state: "idle".into(),
                age: Duration::from_millis(1500),
                requests: 7,
                address: PoolAddress::Unix("/run/x.sock".into()),
            }],
            restarts: 3,
            last_failure: Some("ended with status 3".into()),
            retry_after: Some(Duration::from_secs(4)),
            demand: Demand { waiting: 2, refused_down: 5, ..Demand::default() },
            opcache: Some(OpcacheStatus {
                state: OpcacheState::On,
                why: None,
                figures: Some(OpcacheFigures {
                    used: 3 << 20,
                    free: 5 << 20,
                    wasted: 0,
                    hits: 8,
                    misses: 2,
                    scripts: 2,
                    restarts_out_of_memory: 1,
                    restarts_hash: 0,
                    restarts_manual: 0,
                }),
                age: Duration::from_secs(9),
            }),
        }
    }

    #[test]
    fn every_form_tells_the_same() {
        let mut text = String::new();
        for section in sections(&[pool()]) {
            super::super::report::write_section(&mut text, &section);
        }
        for part in [
            "Pool php:",
            "failing",
            "in 4 s",
            "5 down",
            "ended with status 3",
            "Process 42",
            "7 requests",
            "on, as told 9.0 s ago",
            "3.0 MiB used",
            "8 hits, 2 misses",
            "1 out of memory",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = to_json(&[pool()]);
        assert_eq!((&json[0]["refused"]["down"], &json[0]["processes"][0]["pid"]), (&json!(5), &json!(42)));
        assert_eq!(json[0]["opcache"]["memory"]["free"], json!(5 << 20));
        let mut text = String::new();
        write_prometheus(&mut text, &[pool()]);
        for line in [
            "tidegate_pool_up{pool=\"php\"} 0",
            "tidegate_pool_refused_total{pool=\"php\",reason=\"down\"} 5",
            "# TYPE tidegate_pool_restarts_total counter",
            "tidegate_pool_opcache_memory_bytes{pool=\"php\",kind=\"used\"} 3145728",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
