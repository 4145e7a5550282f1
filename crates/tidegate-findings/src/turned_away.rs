//! Which limits have turned somebody away: how often, since when, and by which setting.
//!
//! Counts come from the samples; when one was first and last seen to rise is remembered here.

use crate::window::Sample;
use std::collections::BTreeMap;
use tidegate_config::Settings;
use tidegate_modules::status::{RateKind, RateReport, TurnedAway};
use tidegate_stats::{ConnectionRefusal, QueueRefusal};

/// Limits that are remembered: as many as settings may have names.
const MOST: usize = 20_000;

/// When each limit was first and last seen to turn somebody away.
#[derive(Debug, Default)]
pub struct TurnedAwayLog {
    known: BTreeMap<String, Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    count: u64,
    since: i64,
    last: i64,
}

impl TurnedAwayLog {
    /// What there is after this sample, in the order of names. Limits that are gone are forgotten.
    pub fn take(&mut self, sample: &Sample) -> Vec<TurnedAway> {
        let now = sample.info.now;
        let is_first = self.known.is_empty();
        let mut told: Vec<TurnedAway> = counted(sample).into_iter().filter(|limit| limit.count > 0).collect();
        told.sort_by(|one, other| one.limit.cmp(&other.limit));
        told.truncate(MOST);
        let mut known = BTreeMap::new();
        for limit in &mut told {
            // What was there before the first look may be as old as the server.
            let begun = if is_first { sample.info.started } else { now };
            let mut of = self.known.get(&limit.limit).copied().unwrap_or(Known { count: 0, since: begun, last: now });
            if limit.count != of.count {
                (of.count, of.last) = (limit.count, now);
            }
            (limit.since, limit.last) = (of.since, of.last);
            known.insert(limit.limit.clone(), of);
        }
        self.known = known;
        told
    }
}

fn counted(sample: &Sample) -> Vec<TurnedAway> {
    let Sample { settings, counted, info, .. } = sample;
    let limits = &settings.limits;
    let connections = |reason| counted.connection_refusals.count(reason);
    let queue = |reason| counted.queue_refusals.count(reason);
    let per_address = limits.connections_per_address.map_or_else(|| "unlimited".into(), |most| most.to_string());
    let age = tidegate_config::duration_text(limits.queue_age);
    let delay = limits.overload_delay.map_or_else(|| "off".into(), tidegate_config::duration_text);
    let memory = format!("memory {}", tidegate_config::size_text(counted.buffer.limit));
    let mut all = vec![
        of("limits connections", "connections", format!("connections {}", limits.connections), connections(ConnectionRefusal::Connections)),
        of("limits connections-per-address", "connections", format!("connections-per-address {per_address}"), connections(ConnectionRefusal::Address)),
        of("limits overload-delay", "connections and requests", format!("overload-delay {delay}"), connections(ConnectionRefusal::Overload).wrapping_add(counted.requests_shed)),
        of("limits memory", "connections", memory, connections(ConnectionRefusal::Memory).wrapping_add(counted.memory_resets)),
        of("limits queue length", "requests", format!("queue length={}", limits.queue_length), queue(QueueRefusal::Full)),
        of("limits queue age", "requests", format!("queue age={age}"), queue(QueueRefusal::Age)),
        of("descriptors of the process", "connections", "LimitNOFILE".into(), connections(ConnectionRefusal::Descriptors)),
    ];
    for pool in &info.pools {
        let setting = settings.pools.iter().find(|known| known.name == pool.name);
        let setting = setting.map(|pool| pool.origin.to_string()).unwrap_or_default();
        let refused = pool.demand.refused_full.saturating_add(pool.demand.refused_too_old);
        all.push(of(&format!("queue of pool {}", pool.name), "requests", setting, refused));
    }
    for group in &info.upstreams {
        let setting = settings.upstreams.iter().find(|known| known.name == group.name);
        let setting = setting.map(|upstream| upstream.origin.to_string()).unwrap_or_default();
        let refused = group.demand.refused_full.saturating_add(group.demand.refused_too_old);
        all.push(of(&format!("queue of upstream {}", group.name), "requests", setting, refused));
    }
    all.extend(info.rates.iter().filter(|rate| rate.refused > 0).filter_map(|rate| of_rate(settings, rate)));
    all
}

/// A `limit`, a `bandwidth` or a `ban`; none that only tracks.
fn of_rate(settings: &Settings, rate: &RateReport) -> Option<TurnedAway> {
    let (kind, unit, found) = match rate.kind {
        RateKind::Limit => {
            let found = settings.rates().find(|limit| limit.name == rate.name);
            ("limit", "requests", found.map(|limit| (limit.is_tracked, limit.origin.to_string())))
        }
        RateKind::Bandwidth => {
            let found = settings.bandwidths().find(|bandwidth| bandwidth.name == rate.name);
            ("bandwidth of", "bytes", found.map(|bandwidth| (bandwidth.is_tracked, bandwidth.origin.to_string())))
        }
        RateKind::Ban => {
            let found = settings.bans().find(|ban| ban.name == rate.name);
            ("ban", "requests", found.map(|ban| (ban.is_tracked, ban.origin.to_string())))
        }
    };
    let (_, setting) = found.filter(|(is_tracked, _)| !is_tracked)?;
    Some(of(&format!("{kind} {}", rate.name), unit, setting, rate.refused))
}

fn of(limit: &str, unit: &str, setting: String, count: u64) -> TurnedAway {
    TurnedAway { limit: limit.to_owned(), unit: unit.to_owned(), setting, count, ..TurnedAway::default() }
}
