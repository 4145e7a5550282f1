//! Which limits have turned somebody away: how often, since when, and by which setting.
//!
//! Counts come from the samples; when one was first and last seen to rise is remembered here.

use crate::rules::gateway_of;
use crate::window::Sample;
use std::collections::{BTreeMap, HashMap};
use tidegate_config::Settings;
use tidegate_config::settings::Origin;
use tidegate_config::settings::gateway::Destination;
use tidegate_modules::status::{RateKind, RateReport, TurnedAway};
use tidegate_stats::{ConnectionRefusal, GatewayFailure, ParseError, QueueRefusal, StreamReset, Timeout};

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
    let refusals = &counted.connection_refusals;
    let mut all = of_connections(sample);
    all.extend(of_queue(sample));
    all.extend(of_requests(sample));
    all.push(of(
        "descriptors of the process",
        "connections",
        "LimitNOFILE".into(),
        refusals.count(ConnectionRefusal::Descriptors),
    ));
    all.extend(of_applications(sample));
    if info.rates.iter().any(|rate| rate.refused > 0) {
        let written = written(settings);
        all.extend(
            info.rates.iter().filter(|rate| rate.refused > 0).filter_map(|rate| of_rate(&written, rate)),
        );
    }
    all
}

/// A limit of `limits`: its value, and where it is written.
fn limit(
    settings: &Settings,
    name: &str,
    unit: &str,
    value: impl std::fmt::Display,
    count: u64,
) -> TurnedAway {
    // A word of a setting is written where the setting is.
    let setting = name.split(' ').next().unwrap_or_default();
    let value = if setting == name { format!("{name} {value}") } else { format!("{name}={value}") };
    let written = settings.limits.origins.0.iter().find(|(known, _)| known == setting);
    let place = written.map_or_else(|| "by default".to_owned(), |(_, origin)| origin.to_string());
    of(&format!("limits {name}"), unit, format!("{value} ({place})"), count)
}

/// Bounds of connections.
fn of_connections(sample: &Sample) -> Vec<TurnedAway> {
    let Sample { settings, counted, .. } = sample;
    let limits = &settings.limits;
    let refused = |reason| counted.connection_refusals.count(reason);
    let (duration, timeouts) = (tidegate_config::duration_text, &counted.timeouts);
    let per_address =
        limits.connections_per_address.map_or_else(|| "unlimited".into(), |most| most.to_string());
    let delay = limits.overload_delay.map_or_else(|| "off".into(), duration);
    let memory = tidegate_config::size_text(counted.buffer.limit);
    let shed = refused(ConnectionRefusal::Overload).wrapping_add(counted.requests_shed);
    let short = refused(ConnectionRefusal::Memory).wrapping_add(counted.memory_resets);
    let of = |name: &str, unit: &str, value: String, count| limit(settings, name, unit, value, count);
    vec![
        of(
            "connections",
            "connections",
            limits.connections.to_string(),
            refused(ConnectionRefusal::Connections),
        ),
        of("connections-per-address", "connections", per_address, refused(ConnectionRefusal::Address)),
        of("overload-delay", "connections and requests", delay, shed),
        of("memory", "connections", memory, short),
        of(
            "handshake-timeout",
            "connections",
            duration(limits.handshake_timeout),
            timeouts.count(Timeout::Handshake),
        ),
        of("head-timeout", "connections", duration(limits.head_timeout), timeouts.count(Timeout::Head)),
        of(
            "streams",
            "requests",
            limits.streams.to_string(),
            counted.http2_resets.count(StreamReset::Refused),
        ),
    ]
}

/// The queue before `limits in-flight`.
fn of_queue(sample: &Sample) -> [TurnedAway; 2] {
    let Sample { settings, counted, .. } = sample;
    let (limits, refused) = (&settings.limits, |reason| counted.queue_refusals.count(reason));
    let age = tidegate_config::duration_text(limits.queue_age);
    [
        limit(settings, "queue length", "requests", limits.queue_length, refused(QueueRefusal::Full)),
        limit(settings, "queue age", "requests", age, refused(QueueRefusal::Age)),
    ]
}

/// Bounds of a request, of which sites and routes may have their own.
fn of_requests(sample: &Sample) -> Vec<TurnedAway> {
    let Sample { settings, counted, .. } = sample;
    let (limits, size) = (&settings.limits.request, tidegate_config::size_text);
    let (unread, timeouts) = (&counted.parse_errors, &counted.timeouts);
    let has_own = settings.sites.iter().flat_map(|site| &site.routes).any(|route| route.limits.is_some());
    let of = |name: &str, value: String, count| {
        let mut limit = limit(settings, name, "requests", value, count);
        if has_own {
            limit.setting.push_str(", or that of the site or route");
        }
        limit
    };
    vec![
        of("target-size", size(limits.target_size.into()), unread.count(ParseError::TargetTooLong)),
        of("head-size", size(limits.head_size.into()), unread.count(ParseError::HeadTooLarge)),
        of("body-size", size(limits.body_size), unread.count(ParseError::BodyTooLarge)),
        of("body-rate", size(limits.body_rate.into()), timeouts.count(Timeout::Body)),
        of("send-rate", size(limits.send_rate.into()), timeouts.count(Timeout::Write)),
    ]
}

/// Queues before applications: of a pool, of an upstream, and of a route before its one address.
fn of_applications(sample: &Sample) -> Vec<TurnedAway> {
    let Sample { settings, info, .. } = sample;
    let mut all = Vec::new();
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
    let named = all.iter().map(|of| of.count).sum();
    all.extend(of_addresses(sample, named));
    all
}

/// Queues before the one address of a route. `named` have the queues of pools and upstreams refused.
fn of_addresses(sample: &Sample, named: u64) -> Vec<TurnedAway> {
    let Sample { settings, counted, info, .. } = sample;
    let is_queue = [GatewayFailure::QueueFull, GatewayFailure::QueueAge];
    let mut others: u64 = is_queue.iter().map(|why| counted.gateway_errors.count(*why)).sum();
    if others == 0 {
        return Vec::new();
    }
    let (mut all, mut of_named) = (Vec::new(), 0u64);
    for (site, told) in settings.sites.iter().zip(tidegate_modules::status::series_names(settings)) {
        let Some(figures) = info.series.site(&told.site) else { continue };
        for (route, name) in site.routes.iter().zip(told.routes) {
            let Some(gateway) = gateway_of(route) else { continue };
            let figures = figures.routes.iter().find(|(known, _)| *known == name);
            let refused = |why: &GatewayFailure| figures.map_or(0, |(_, figures)| figures.failed(*why));
            let refused: u64 = is_queue.iter().map(refused).sum();
            others = others.saturating_sub(refused);
            if matches!(gateway.to, Destination::Named(_)) {
                of_named += refused;
            } else {
                let limit = format!("queue of route {} {name}", told.site);
                all.push(of(&limit, "requests", route.origin.to_string(), refused));
            }
        }
    }
    // What is left is of routes that are not counted by themselves; what pools and upstreams have refused of it is told there.
    let others = others.saturating_sub(named.saturating_sub(of_named));
    all.push(of("queues of other routes", "requests", "`queue` of their applications".into(), others));
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
