//! Idle connections that are closed although their clients come back.

use super::{Seen, of_server, percent};
use crate::window::{Sample, Window, all, only, over, round_up, share};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_modules::status::Change;
use tidegate_stats::{Flush, Handshake};

/// Of the requests that found their connection open, connections that were closed for want of room.
const FLUSHED: f64 = 0.1;
/// Of the connections that ended, those that had idled too long.
const TIMED_OUT: f64 = 0.5;
/// Of the connections that came, those whose client had been here before.
const RETURNED: f64 = 0.3;
/// A timeout that is this long is not too short: who comes back later thinks, and does not read on.
const LONG_ENOUGH: Duration = Duration::from_secs(15);
/// Of the requests, connections that were closed behind one.
const REFUSED: f64 = 0.2;

pub(super) fn flushed(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.limits.keep_alive_connections);
    let flushed = |sample: &Sample| sample.counted.keep_alive_flush_reasons.count(Flush::Maximum);
    let of_hits = share(window.step(flushed), window.step(|sample| sample.counted.keep_alive_hits));
    let limits = &window.settings().limits;
    let idle = window.peak(|sample| sample.counted.keep_alive.current);
    let in_a_timeout = window.rate(flushed) * limits.request.keep_alive_timeout.as_secs_f64();
    let new = round_up(1.25 * (idle as f64 + in_a_timeout), 1024).min(u64::from(limits.connections));
    let ratio = all([
        over(of_hits, FLUSHED),
        only(window.is_busy() && new > u64::from(limits.keep_alive_connections)),
    ]);
    let sentence = || {
        format!(
            "{} idle connections were closed {} to make room for others, {} of those that served another request: there is room for {} \
             (`limits keep-alive-connections`), and their clients have to connect anew",
            window.risen(flushed),
            window.span(),
            percent(of_hits),
            limits.keep_alive_connections
        )
    };
    of_server(window, ratio, sentence, || {
        let how = "1.25 times those that idle and those that were closed in one `keep-alive-timeout`";
        Change::of("limits keep-alive-connections", limits.keep_alive_connections, new, how)
    })
}

pub(super) fn too_short(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.limits.request.keep_alive_timeout);
    let timeout = window.settings().limits.request.keep_alive_timeout;
    let timed_out = |sample: &Sample| sample.counted.keep_alive_timeouts;
    let of_closed = share(window.step(timed_out), window.step(|sample| sample.counted.connections_closed));
    let resumed = |sample: &Sample| sample.counted.tls_handshakes.count(Handshake::Resumed);
    // Who shows a ticket has been here before.
    let returned = share(window.step(resumed), window.step(|sample| sample.counted.connections_accepted));
    let ratio = all([
        over(of_closed, TIMED_OUT),
        over(returned, RETURNED),
        only(window.is_busy() && timeout < LONG_ENOUGH && !timeout.is_zero()),
    ]);
    let new = (2 * timeout).clamp(LONG_ENOUGH, Duration::from_secs(120));
    let text = tidegate_config::duration_text;
    let sentence = || {
        format!(
            "{} of the connections that ended had idled for `keep-alive-timeout {}`, and {} of the new ones are of clients that were here \
             before: each costs them a handshake",
            percent(of_closed),
            text(timeout),
            percent(returned)
        )
    };
    of_server(window, ratio, sentence, || {
        Change::of("limits keep-alive-timeout", text(timeout), text(new), "idle connections are cheap here")
    })
}

/// The least `keep-alive-requests` of all.
fn fewest_requests(settings: &Settings) -> Option<u32> {
    let routes =
        settings.sites.iter().flat_map(|site| &site.routes).filter_map(|route| route.limits.as_ref());
    routes.chain([&settings.limits.request]).filter_map(|limits| limits.keep_alive_requests).min()
}

pub(super) fn refused(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(fewest_requests);
    let refused = |sample: &Sample| sample.counted.keep_alive_refusals;
    let of_requests = share(window.step(refused), window.step(|sample| sample.counted.requests));
    let Some(least) = fewest_requests(window.settings()) else { return Vec::new() };
    let ratio = all([over(of_requests, REFUSED), only(window.is_busy())]);
    let sentence = || {
        format!(
            "{} of the requests ended their connection although the client would have kept it: `keep-alive-requests` is {least}; each \
             costs a handshake",
            percent(of_requests)
        )
    };
    of_server(window, ratio, sentence, || {
        Change::of(
            "limits keep-alive-requests",
            least,
            "unlimited",
            "no number is needed, but to spread clients over several servers",
        )
    })
}
