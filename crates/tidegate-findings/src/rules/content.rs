//! What is served: files, certificates, tickets, what is not there; and tables of limits that are too small.

use super::{Seen, of, of_server, percent, were};
use crate::window::{Sample, Window, all, only, over, round_up, share, under};
use tidegate_config::Settings;
use tidegate_config::settings::{Action, Route, Site};
use tidegate_modules::status::{CertificateInfo, Change, RateKind, RateReport};
use tidegate_stats::{Eviction, Handshake, QueueRefusal};

/// Of the look-ups, those that the file cache could not answer.
const MISSES: f64 = 0.1;
/// Look-ups in the window, and their share of the requests, without which that is no matter.
const LOOKUPS: f64 = 1000.0;
const OF_REQUESTS: f64 = 0.1;
/// Of the handshakes, those whose ticket was good for nothing, and those that were not resumed.
const TICKETS_REFUSED: f64 = 0.05;
const NOT_RESUMED: f64 = 0.5;
/// Of the answers, and in a second, those that say 404.
const NOT_FOUND: f64 = 0.3;
const NOT_FOUND_RATE: f64 = 10.0;

/// Files compressed while they were sent, in the window; the share of the server's processor time, and of all that there is.
const COMPRESSED_TIMES: f64 = 100.0;
const COMPRESSED_OF_USED: f64 = 0.1;
const COMPRESSED_OF_ALL: f64 = 0.02;
/// Routes that are told by name.
const ROUTES_NAMED: usize = 3;
/// Of the requests that are put off, and in a second, those that were before and come too soon.
const REPEATED: f64 = 0.5;
const REPEATED_RATE: f64 = 5.0;

pub(super) fn file_cache_small(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| {
        let cache = &settings.file_cache;
        (cache.entries, cache.memory, cache.descriptors)
    });
    let lookups = |sample: &Sample| sample.counted.cache_lookups();
    let missed = share(window.step(|sample| sample.counted.cache_misses), window.step(lookups));
    let evicted = |bound| window.step(|sample| sample.counted.cache_eviction_reasons.count(bound));
    let Some((dropped, bound)) =
        Eviction::ALL.map(|bound| (evicted(bound), bound)).into_iter().max_by_key(|(count, _)| *count)
    else {
        return Vec::new();
    };
    let of_requests = share(window.risen(lookups), window.risen(|sample| sample.counted.requests));
    let ratio = all([
        over(missed, MISSES),
        over(window.risen(lookups) as f64, LOOKUPS),
        over(of_requests, OF_REQUESTS),
        only(dropped > 0),
    ]);
    let sentence = || {
        format!(
            "the file cache answers {} of its look-ups only and has dropped {dropped} files in ten seconds to make room for others, since {}",
            percent(1.0 - missed),
            match bound {
                Eviction::Entries => "all of its `entries` were taken",
                Eviction::Memory => "its `memory` was full",
                Eviction::Descriptors => "all of its `descriptors` were taken",
                Eviction::Process => "the process had few descriptors left",
            }
        )
    };
    of_server(window, ratio, sentence, || larger_cache(window, bound))
}

/// More of what was used up.
fn larger_cache(window: &Window<'_>, bound: Eviction) -> Change {
    let cache = &window.settings().file_cache;
    let how = "twice as much for each worker: what is dropped now is asked for again";
    match bound {
        Eviction::Entries => {
            Change::of("file-cache entries", cache.entries, u64::from(cache.entries) * 2, how)
        }
        Eviction::Memory => {
            let size = tidegate_config::size_text;
            Change::of("file-cache memory", size(cache.memory), size(cache.memory.saturating_mul(2)), how)
        }
        Eviction::Descriptors => {
            Change::of("file-cache descriptors", cache.descriptors, u64::from(cache.descriptors) * 2, how)
        }
        Eviction::Process => Change::told(
            "let the process hold more descriptors: `LimitNOFILE=` of the service (`ulimit -Hn`), then restart the server",
        ),
    }
}

pub(super) fn compress_again(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(compressing_routes);
    let times = window.times(|sample| &sample.counted.file_compression);
    let seconds = times.sum_nanos() as f64 / 1e9;
    let used = window.risen(|sample| sample.info.used.cpu_micros) as f64 / 1e6;
    let of_used = if used > 0.0 { seconds / used } else { 0.0 };
    let of_all = seconds / window.seconds() / window.processors();
    let ratio = all([
        over(times.count() as f64, COMPRESSED_TIMES),
        over(of_used, COMPRESSED_OF_USED),
        over(of_all, COMPRESSED_OF_ALL),
    ]);
    let (routes, count) = (compressing_routes(window.settings()), times.count());
    let sentence = || {
        format!(
            "{} compressed again each time that they were asked for {}, which took {} of the processor time that the server has used: files that \
             are too large to be kept compressed{}",
            were(count, "file"),
            window.span(),
            percent(of_used.min(1.0)),
            told_routes(&routes)
        )
    };
    of_server(window, ratio, sentence, || {
        Change::told(
            "compress them once: `precompressed \"br\" \"gz\"` in the route, and `find ROOT -type f -size +1M -exec brotli -k {} + -exec gzip -k {} +` \
             whenever they change; or `compress off` in a route of such files",
        )
    })
}

/// Routes whose files are compressed while they are sent.
fn compressing_routes(settings: &Settings) -> Vec<String> {
    let is_one = |route: &Route| {
        let Action::Files(files) = &route.action else { return false };
        files.precompressed.is_empty()
            && route.compress.as_ref().is_some_and(|compress| !compress.codings.is_empty())
    };
    let sites = settings.sites.iter().flat_map(|site| site.routes.iter().map(move |route| (site, route)));
    let name = |site: &Site| site.names.first().map(ToString::to_string).unwrap_or_default();
    let routes = sites.filter(|(_, route)| is_one(route));
    routes.map(|(site, route)| format!("{} {}", name(site), route.pattern)).take(ROUTES_NAMED + 1).collect()
}

/// Nothing where they are many.
fn told_routes(routes: &[String]) -> String {
    let is_few = (1..=ROUTES_NAMED).contains(&routes.len());
    if is_few { format!(" (route {})", routes.join(", ")) } else { String::new() }
}

/// Clients that have to show such tickets.
const TICKET_CLIENTS: u64 = 5;

pub(super) fn tickets(window: &Window<'_>) -> Vec<Seen> {
    let kind = |kind| move |sample: &Sample| sample.counted.tls_handshakes.count(kind);
    let all_of = window.risen(|sample| sample.counted.tls_handshakes.total());
    let refused = share(window.risen(kind(Handshake::Refused)), all_of);
    let resumed = share(window.risen(kind(Handshake::Resumed)), all_of);
    // One who shows tickets of somebody else over and over is no matter of this server.
    let clients = window.risen(|sample| sample.counted.tls_ticket_clients);
    let ratio = all([
        over(refused, TICKETS_REFUSED),
        over(1.0 - resumed, NOT_RESUMED),
        only(all_of >= 100 && clients >= TICKET_CLIENTS),
    ]);
    let sentence = || {
        format!(
            "{} of the clients that connect show a ticket that is good for nothing here, and {} of all are resumed: the others pay for a full handshake",
            percent(refused),
            percent(resumed)
        )
    };
    of_server(window, ratio, sentence, || {
        Change::told(
            "tickets are kept over reloads and upgrades, not over restarts, nor between servers: use `tidegate upgrade` in place of a restart, and send clients back to the same server",
        )
    })
}

pub(super) fn certificate_ends(window: &Window<'_>) -> Vec<Seen> {
    let now = window.now().info.now;
    let nearness = |info: &CertificateInfo| {
        let left = info.not_after?.saturating_sub(now);
        Some((under(left.max(0) as f64, info.ends_soon_within()?.max(1) as f64), left))
    };
    let near: Vec<(f64, i64, &CertificateInfo)> = window
        .now()
        .info
        .certificates
        .iter()
        .filter_map(|info| nearness(info).map(|(ratio, left)| (ratio, left, info)))
        .collect();
    let Some((ratio, left, info)) = near.iter().max_by(|one, other| one.0.total_cmp(&other.0)) else {
        return Vec::new();
    };
    let others = near.iter().filter(|(ratio, ..)| *ratio >= 1.0).count().saturating_sub(1);
    let sentence = || {
        let name = info.names.first().map_or("nobody", String::as_str);
        let when = match left {
            ..=0 => "has expired: clients refuse it".to_owned(),
            left => format!(
                "expires in {} days and {} hours: then clients refuse it",
                left / 86_400,
                left / 3600 % 24
            ),
        };
        let more = if others > 0 { format!("; and {others} more") } else { String::new() };
        format!("the certificate for {name} ({}) {when}{more}", info.source)
    };
    // One finding however many there are.
    of(window, "certificates", *ratio, sentence, || match info.source.contains('/') {
        true => {
            Change::told(format!("renew {} ; it is taken up as soon as the file has changed", info.source))
        }
        false => Change::told("it should have been renewed: the error log says why it was not (`acme`)"),
    })
    .into_iter()
    .collect()
}

pub(super) fn not_found_storm(window: &Window<'_>) -> Vec<Seen> {
    let not_found = |sample: &Sample| sample.counted.responses.count(404);
    let of_all = share(window.step(not_found), window.step(|sample| sample.counted.responses.total()));
    let rate = window.step(not_found) as f64 / window.step_seconds();
    let ratio = all([over(of_all, NOT_FOUND), over(rate, NOT_FOUND_RATE)]);
    let sentence = || {
        let place =
            busiest_errors(window).map(|place| format!(", most of them of {place}")).unwrap_or_default();
        format!(
            "{} of the answers are 404, {rate:.0} in a second{place}: somebody asks for what is not there",
            percent(of_all)
        )
    };
    of_server(window, ratio, sentence, || {
        Change::told(
            "see what is asked for (`access-log` with `only=errors`): `redirect` what has moved, `ban` (`statuses=\"404\"`) keeps out who guesses",
        )
    })
}

/// The route with the most answers of 4xx.
fn busiest_errors(window: &Window<'_>) -> Option<String> {
    let errors = |sample: &Sample, site: &str, route: &str| {
        let routes = sample.info.series.site(site).map(|site| site.routes.as_slice()).unwrap_or_default();
        routes.iter().find(|(name, _)| name == route).map_or(0, |(_, figures)| figures.class(4))
    };
    let sites = window.now().info.series.sites.iter();
    let routes =
        sites.flat_map(|site| site.routes.iter().map(|(route, _)| (site.name.as_str(), route.as_str())));
    let risen = routes.map(|(site, route)| (window.risen(|sample| errors(sample, site, route)), site, route));
    risen.max().filter(|(count, ..)| *count > 0).map(|(_, site, route)| format!("{site} {route}"))
}

pub(super) fn retry_storm(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.busy.retry_after);
    let repeated = |sample: &Sample| sample.counted.requests_repeated;
    let put_off = |sample: &Sample| sample.counted.requests_put_off;
    let of_put_off = share(window.step(repeated), window.step(put_off));
    let rate = window.step(repeated) as f64 / window.step_seconds();
    let ratio = all([over(of_put_off, REPEATED), over(rate, REPEATED_RATE)]);
    let sentence = || {
        format!(
            "{} of the requests that are refused for now (429, 503), {rate:.0} in a second, were refused before, and come again before the time in \
             `Retry-After` is over: clients make more load of being turned away",
            percent(of_put_off)
        )
    };
    of_server(window, ratio, sentence, || {
        // What limits refuse has a time that is computed: a longer one is for those of the busy answer.
        let busy = |sample: &Sample| {
            let counted = &sample.counted;
            let full = [QueueRefusal::Full, QueueRefusal::Age].map(|why| counted.queue_refusals.count(why));
            full.into_iter().sum::<u64>() + counted.requests_shed
        };
        let after = window.settings().busy.retry_after;
        match 2 * window.step(busy) >= window.step(put_off) {
            true => {
                let text = tidegate_config::duration_text;
                let how = "twice as long, for clients that keep to it; a `ban` (`statuses=\"503\"`) keeps out who does not";
                Change::of("busy-answer retry-after", text(after), text(after.saturating_mul(2)), how)
            }
            false => Change::told(
                "have clients wait for as long as `Retry-After` says, longer each time; a `ban` (`statuses=\"429\"`) keeps out who does not",
            ),
        }
    })
}

pub(super) fn files_cut(window: &Window<'_>) -> Vec<Seen> {
    let cut = |sample: &Sample| sample.counted.responses_cut;
    let sentence = || {
        format!(
            "{} cut short {} since a file could not be read to the end that was announced: its client has a part of it",
            were(window.risen(cut), "answer"),
            window.span()
        )
    };
    of_server(window, window.events(cut), sentence, || {
        Change::told(
            "put a new version beside a file and rename it into its place, in place of writing into it; else look at the disk: the error log names the files",
        )
    })
}

/// The `keys` of a limit, a bandwidth or a ban.
fn keys_of(rate: &RateReport) -> impl Fn(&Settings) -> Option<u32> + 'static {
    let (kind, name) = (rate.kind, rate.name.clone());
    move |settings| match kind {
        RateKind::Limit => settings.rates().find(|limit| limit.name == name).map(|limit| limit.keys),
        RateKind::Bandwidth => settings.bandwidths().find(|of| of.name == name).map(|of| of.keys),
        RateKind::Ban => settings.bans().find(|ban| ban.name == name).map(|ban| ban.keys),
    }
}

pub(super) fn limit_keys(window: &Window<'_>) -> Vec<Seen> {
    let of_rate = |rate: &RateReport| {
        let same = |other: &&RateReport| other.name == rate.name && other.kind == rate.kind;
        let crowded = |sample: &Sample| sample.info.rates.iter().find(same).map_or(0, |rate| rate.crowded);
        if window.risen(crowded) == 0 {
            return None;
        }
        let keys = keys_of(rate)(window.settings());
        let kind = match rate.kind {
            RateKind::Limit => "limit",
            RateKind::Bandwidth => "bandwidth",
            RateKind::Ban => "ban",
        };
        let (keys, name) = (keys?, format!("{kind} {}", rate.name));
        let window = &window.quoting(keys_of(rate));
        let sentence = || {
            format!(
                "{name}: {} judged together with others {}, since there is room for {keys} of whom it counts: somebody may pay for somebody else",
                were(window.risen(crowded), "request"),
                window.span()
            )
        };
        of(window, name.clone(), window.events(crowded), sentence, || {
            Change::of(
                &format!("{name} keys"),
                keys,
                round_up(2.0 * f64::from(keys), 1),
                "twice as many, of 32 bytes each at most",
            )
        })
    };
    window.now().info.rates.iter().filter_map(of_rate).collect()
}
