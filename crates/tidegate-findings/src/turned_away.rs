//! Which limits have turned somebody away: how often, since when, and by which setting.
//!
//! Counts come from the samples; when one was first and last seen to rise is remembered here.

use crate::window::Sample;
use std::collections::{BTreeMap, HashMap};
use tidegate_config::Settings;
use tidegate_config::settings::Origin;
use tidegate_modules::status::{RateKind, RateReport, TurnedAway};
use tidegate_stats::{ConnectionRefusal, QueueRefusal};

/// Limits that are remembered: as many as settings may have names.
const MOST: usize = 20_000;

/// When each limit was first and last seen to turn somebody away.
#[derive(Debug, Default)]
pub struct TurnedAwayLog {
    known: BTreeMap<String, Known>,
    has_looked: bool,
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
        let mut told: Vec<TurnedAway> = counted(sample).into_iter().filter(|limit| limit.count > 0).collect();
        told.sort_by(|one, other| one.limit.cmp(&other.limit));
        told.truncate(MOST);
        let mut known = BTreeMap::new();
        for limit in &mut told {
            // What was there before the first look may be as old as the server.
            let begun = if self.has_looked { now } else { sample.info.started };
            let mut of =
                self.known.get(&limit.limit).copied().unwrap_or(Known { count: 0, since: begun, last: now });
            if limit.count != of.count {
                (of.count, of.last) = (limit.count, now);
            }
            (limit.since, limit.last) = (of.since, of.last);
            known.insert(limit.limit.clone(), of);
        }
        (self.known, self.has_looked) = (known, true);
        told
    }
}

fn counted(sample: &Sample) -> Vec<TurnedAway> {
    let Sample { settings, counted, info, .. } = sample;
    let limits = &settings.limits;
    let connections = |reason| counted.connection_refusals.count(reason);
    let queue = |reason| counted.queue_refusals.count(reason);
    let per_address =
        limits.connections_per_address.map_or_else(|| "unlimited".into(), |most| most.to_string());
    let age = tidegate_config::duration_text(limits.queue_age);
    let delay = limits.overload_delay.map_or_else(|| "off".into(), tidegate_config::duration_text);
    let memory = format!("memory {}", tidegate_config::size_text(counted.buffer.limit));
    let mut all = vec![
        of(
            "limits connections",
            "connections",
            format!("connections {}", limits.connections),
            connections(ConnectionRefusal::Connections),
        ),
        of(
            "limits connections-per-address",
            "connections",
            format!("connections-per-address {per_address}"),
            connections(ConnectionRefusal::Address),
        ),
        of(
            "limits overload-delay",
            "connections and requests",
            format!("overload-delay {delay}"),
            connections(ConnectionRefusal::Overload).wrapping_add(counted.requests_shed),
        ),
        of(
            "limits memory",
            "connections",
            memory,
            connections(ConnectionRefusal::Memory).wrapping_add(counted.memory_resets),
        ),
        of(
            "limits queue length",
            "requests",
            format!("queue length={}", limits.queue_length),
            queue(QueueRefusal::Full),
        ),
        of("limits queue age", "requests", format!("queue age={age}"), queue(QueueRefusal::Age)),
        of(
            "descriptors of the process",
            "connections",
            "LimitNOFILE".into(),
            connections(ConnectionRefusal::Descriptors),
        ),
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
    if info.rates.iter().any(|rate| rate.refused > 0) {
        let written = written(settings);
        all.extend(
            info.rates.iter().filter(|rate| rate.refused > 0).filter_map(|rate| of_rate(&written, rate)),
        );
    }
    all
}

/// What is written of a limit of a kind and a name: whether it only tracks, and where it stands.
type Written<'s> = HashMap<(u8, &'s str), (bool, &'s Origin)>;

fn written(settings: &Settings) -> Written<'_> {
    let limits = settings.rates().map(|limit| ((0, limit.name.as_str()), (limit.is_tracked, &limit.origin)));
    let bandwidths = settings.bandwidths().map(|of| ((1, of.name.as_str()), (of.is_tracked, &of.origin)));
    let bans = settings.bans().map(|ban| ((2, ban.name.as_str()), (ban.is_tracked, &ban.origin)));
    limits.chain(bandwidths).chain(bans).collect()
}

/// A `limit`, a `bandwidth` or a `ban`; none that only tracks.
fn of_rate(written: &Written<'_>, rate: &RateReport) -> Option<TurnedAway> {
    let (number, kind, unit) = match rate.kind {
        RateKind::Limit => (0, "limit", "requests"),
        RateKind::Bandwidth => (1, "bandwidth of", "bytes"),
        RateKind::Ban => (2, "ban", "requests"),
    };
    let (_, origin) = written.get(&(number, rate.name.as_str())).filter(|(is_tracked, _)| !is_tracked)?;
    Some(of(&format!("{kind} {}", rate.name), unit, origin.to_string(), rate.refused))
}

fn of(limit: &str, unit: &str, setting: String, count: u64) -> TurnedAway {
    TurnedAway { limit: limit.to_owned(), unit: unit.to_owned(), setting, count, ..TurnedAway::default() }
}
