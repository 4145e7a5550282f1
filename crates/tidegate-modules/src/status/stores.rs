//! Stores of responses in the report: what came of requests, how full memory and disks are, and which disk is out of use.

use super::report::{Row, Section, date, label};
use super::times;
use crate::cache_desk::{DiskFigures, RequestFigures, StoreFigures, TierFigures};
use serde_json::{Value, json};
use std::fmt::Write;
use tidegate_stats::{Timed, TimesFigures};

/// A section for all of them, a line for each and for each of their disks; none where there is none.
pub(super) fn sections(stores: &[StoreFigures], all: &[TimesFigures]) -> Option<Section> {
    let mut rows = Vec::new();
    for store in stores {
        rows.push(Row::new(format!("Cache {}", store.store), summary(store)));
        rows.extend(times::rows_of(all, &Timed::Cache(store.store.clone())));
        rows.extend(store.disks.iter().map(|disk| {
            let name = format!("Disk {} of {}", disk.folder.display(), store.store);
            Row::new(name, state(disk))
        }));
    }
    (!rows.is_empty()).then(|| Section { title: "Caches".into(), rows })
}

fn summary(store: &StoreFigures) -> String {
    let StoreFigures { requests, memory, stored, purged, .. } = store;
    let hits = match requests.hit_ratio() {
        Some(ratio) => format!("{:.1} % hits of {}", ratio * 100.0, requests.asked()),
        None => "not asked yet".to_owned(),
    };
    let unstored: u64 = store.not_stored.iter().map(|(_, count)| count).sum();
    format!(
        "{hits}, {} past it, {}; {stored} stored, {unstored} not, {purged} purged",
        requests.bypassed,
        fill(memory)
    )
}

/// `3 responses in 1.0 MiB of 64.0 MiB, 0 had to go`
fn fill(tier: &TierFigures) -> String {
    let TierFigures { entries, evicted, .. } = tier;
    let [bytes, limit] = [tier.bytes, tier.limit].map(quantity);
    let responses = if *entries == 1 { "response" } else { "responses" };
    format!("{entries} {responses} in {bytes} of {limit}, {evicted} had to go")
}

fn state(disk: &DiskFigures) -> String {
    let out = match &disk.is_out {
        Some(why) => {
            let since = disk.out_since.map(|at| format!(" since {}", date(at))).unwrap_or_default();
            let state = if disk.is_stalled { "STALLED" } else { "OUT OF USE" };
            format!("{state}{since}: {why}; ")
        }
        None => String::new(),
    };
    let broken = match disk.broken_pieces {
        0 => String::new(),
        1 => ", 1 piece was broken".to_owned(),
        pieces => format!(", {pieces} pieces were broken"),
    };
    format!("{out}{}{broken}", fill(&disk.tier))
}

fn quantity(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut scaled, mut unit) = (bytes as f64, 0);
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        (scaled, unit) = (scaled / 1024.0, unit + 1);
    }
    format!("{scaled:.*} {}", usize::from(unit > 0), UNITS[unit])
}

/// All of them as JSON.
pub(super) fn to_json(stores: &[StoreFigures], all: &[TimesFigures]) -> Value {
    let told = |store: &StoreFigures| {
        let mut told = store_to_json(store);
        times::add_to_json(&mut told, all, &Timed::Cache(store.store.clone()));
        told
    };
    stores.iter().map(told).collect()
}

fn store_to_json(store: &StoreFigures) -> Value {
    let RequestFigures { hits, stale_hits, revalidated, misses, passed, collapsed, bypassed } =
        store.requests;
    let disk = |disk: &DiskFigures| {
        let mut told = tier_to_json(&disk.tier);
        told["folder"] = json!(disk.folder.display().to_string());
        told["broken_pieces"] = json!(disk.broken_pieces);
        let out = disk.is_out.as_ref();
        told["stalled"] = json!(disk.is_stalled);
        told["out"] = json!(out.map(|why| json!({ "why": why, "since": disk.out_since.map(date) })));
        told
    };
    let not_stored = store.not_stored.iter().map(|(why, count)| (why.clone(), json!(count)));
    let mut memory = tier_to_json(&store.memory);
    memory["held"] = json!(store.held);
    json!({
        "name": store.store,
        "hit_ratio": store.requests.hit_ratio(),
        "requests": {
            "hits": hits,
            "stale_hits": stale_hits,
            "revalidated": revalidated,
            "collapsed": collapsed,
            "misses": misses,
            "passed": passed,
            "bypassed": bypassed,
        },
        "memory": memory,
        "disks": store.disks.iter().map(disk).collect::<Vec<_>>(),
        "stored": store.stored,
        "without_room": store.without_room,
        "broken_off": store.broken_off,
        "not_stored": not_stored.collect::<serde_json::Map<_, _>>(),
        "fetches": store.fetches,
        "purged": store.purged,
    })
}

fn tier_to_json(tier: &TierFigures) -> Value {
    let TierFigures { entries, bytes, limit, evicted, returned, returned_bytes } = tier;
    json!({
        "entries": entries,
        "bytes": bytes,
        "limit": limit,
        "evicted": evicted,
        "returned": returned,
        "returned_bytes": returned_bytes,
    })
}

/// What a store or a disk says to a measure: name, kind, sentence.
type Measure<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

const OF_STORES: [Measure<StoreFigures>; 7] = [
    ("stored_total", "counter", "Responses that began to be stored.", |store| store.stored),
    ("no_room_total", "counter", "Responses that could have been stored and had no room.", |store| {
        store.without_room
    }),
    ("broken_off_total", "counter", "Responses that were not stored to their end.", |store| store.broken_off),
    (
        "purged_total",
        "counter",
        "Responses that a purge or an unsafe request has taken, or made stale.",
        |store| store.purged,
    ),
    ("fetches", "gauge", "Responses that are being stored.", |store| store.fetches),
    ("memory_held_bytes", "gauge", "Bytes of the memory that clients are reading.", |store| store.held),
    ("disks_out", "gauge", "Disks that are out of use.", |store| {
        store.disks.iter().filter(|disk| disk.is_out.is_some()).count() as u64
    }),
];
const OF_TIERS: [Measure<TierFigures>; 5] = [
    ("responses", "gauge", "Stored responses", |tier| tier.entries),
    ("bytes", "gauge", "Bytes that are taken", |tier| tier.bytes),
    ("limit_bytes", "gauge", "Bytes that may be taken", |tier| tier.limit),
    ("evicted_total", "counter", "Responses that had to go for others", |tier| tier.evicted),
    ("returned_total", "counter", "Of what had to go, what was stored again soon", |tier| tier.returned),
];
const OF_DISKS: [Measure<DiskFigures>; 3] = [
    ("up", "gauge", "Whether the disk is in use.", |disk| u64::from(disk.is_out.is_none())),
    ("stalled", "gauge", "Whether the disk does not answer.", |disk| u64::from(disk.is_stalled)),
    ("broken_total", "counter", "Pieces that were not what was written.", |disk| disk.broken_pieces),
];

/// What may come of a request, and how often it has.
type Outcome = (&'static str, fn(&RequestFigures) -> u64);

/// Each request is counted once.
const RESULTS: [Outcome; 7] = [
    ("hit", |requests| requests.hits.saturating_sub(requests.stale_hits)),
    ("stale", |requests| requests.stale_hits),
    ("revalidated", |requests| requests.revalidated),
    ("collapsed", |requests| requests.collapsed),
    ("miss", |requests| requests.misses.saturating_sub(requests.passed)),
    ("pass", |requests| requests.passed),
    ("bypass", |requests| requests.bypassed),
];

/// All of them for Prometheus. Labels are names and folders of the settings, and words of ours.
pub(super) fn write_prometheus(text: &mut String, stores: &[StoreFigures]) {
    if stores.is_empty() {
        return;
    }
    head(text, "requests_total", "counter", "Requests by what came of them at the store.");
    for store in stores {
        for (result, of) in RESULTS {
            line(text, "requests_total", &store.store, &[("result", result)], of(&store.requests));
        }
    }
    head(text, "not_stored_total", "counter", "Responses that were not stored, by the reason.");
    for store in stores {
        for (reason, count) in &store.not_stored {
            line(text, "not_stored_total", &store.store, &[("reason", reason)], *count);
        }
    }
    for (name, kind, help, of) in OF_STORES {
        head(text, name, kind, help);
        stores.iter().for_each(|store| line(text, name, &store.store, &[], of(store)));
    }
    for (name, kind, help, of) in OF_TIERS {
        let in_memory = format!("memory_{name}");
        head(text, &in_memory, kind, &format!("{help}, in memory."));
        stores.iter().for_each(|store| line(text, &in_memory, &store.store, &[], of(&store.memory)));
    }
    if stores.iter().all(|store| store.disks.is_empty()) {
        return;
    }
    for (name, kind, help, of) in OF_TIERS {
        of_disks(text, stores, (&format!("disk_{name}"), kind, &format!("{help}, on a disk.")), |disk| {
            of(&disk.tier)
        });
    }
    for (name, kind, help, of) in OF_DISKS {
        of_disks(text, stores, (&format!("disk_{name}"), kind, help), of);
    }
}

fn of_disks(
    text: &mut String,
    stores: &[StoreFigures],
    (name, kind, help): (&str, &str, &str),
    of: impl Fn(&DiskFigures) -> u64,
) {
    head(text, name, kind, help);
    for store in stores {
        for disk in &store.disks {
            line(text, name, &store.store, &[("disk", &disk.folder.display().to_string())], of(disk));
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(
        text,
        "# HELP tidegate_cache_store_{name} {help}\n# TYPE tidegate_cache_store_{name} {kind}"
    );
}

fn line(text: &mut String, name: &str, store: &str, labels: &[(&str, &str)], value: u64) {
    let _ = write!(text, "tidegate_cache_store_{name}{{cache=\"{}\"", label(store));
    for (name, value) in labels {
        let _ = write!(text, ",{name}=\"{}\"", label(value));
    }
    let _ = writeln!(text, "}} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_tells_the_same() {
        let tier = TierFigures {
            entries: 3,
            bytes: 1 << 20,
            limit: 64 << 20,
            evicted: 2,
            returned: 1,
            returned_bytes: 9,
        };
        let disk = DiskFigures {
            folder: "/var/a\"b".into(),
            tier: tier.clone(),
            is_out: Some("cannot be written: EIO".into()),
            out_since: Some(0),
            ..DiskFigures::default()
        };
        let stores = [StoreFigures {
            store: "main".into(),
            memory: tier,
            disks: vec![disk],
            requests: RequestFigures {
                hits: 6,
                stale_hits: 1,
                revalidated: 1,
                misses: 3,
                passed: 2,
                collapsed: 0,
                bypassed: 4,
            },
            not_stored: vec![("response says private".into(), 2)],
            ..StoreFigures::default()
        }];
        let mut text = String::new();
        super::super::report::write_section(&mut text, &sections(&stores, &[]).unwrap());
        for part in [
            "Cache main",
            "60.0 % hits of 10, 4 past it, 3 responses in 1.0 MiB of 64.0 MiB, 2 had to go; 0 stored, 2 not",
            "OUT OF USE since 1970-01-01T00:00:00Z: cannot be written: EIO; 3 responses",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = to_json(&stores, &[]);
        assert_eq!((&json[0]["hit_ratio"], &json[0]["requests"]["passed"]), (&json!(0.6), &json!(2)));
        assert_eq!(json[0]["disks"][0]["out"]["why"], json!("cannot be written: EIO"));
        assert_eq!(json[0]["not_stored"], json!({ "response says private": 2 }));
        let mut text = String::new();
        write_prometheus(&mut text, &stores);
        for line in [
            "tidegate_cache_store_requests_total{cache=\"main\",result=\"hit\"} 5",
            "tidegate_cache_store_requests_total{cache=\"main\",result=\"miss\"} 1",
            "tidegate_cache_store_not_stored_total{cache=\"main\",reason=\"response says private\"} 2",
            "tidegate_cache_store_memory_limit_bytes{cache=\"main\"} 67108864",
            "tidegate_cache_store_disk_up{cache=\"main\",disk=\"/var/a\\\"b\"} 0",
            "tidegate_cache_store_disks_out{cache=\"main\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(sections(&[], &[]).is_none());
    }
}
