//! Applications: silent, away, slower than their `timeout`; members that come and go; connections and retries.

use super::{Seen, of, of_server, percent, time, were};
use crate::window::{Sample, Window, all, only, over, round_up, share};
use std::time::Duration;
use tidegate_config::settings::gateway::{Destination, Gateway};
use tidegate_config::settings::{Action, Route};
use tidegate_modules::gateway::balance::report::GroupReport;
use tidegate_modules::status::Change;
use tidegate_stats::GatewayFailure;
use tidegate_stats::series::RouteFigures;

/// Of `timeout`, what one answer of a hundred takes.
const NEAR: f64 = 0.8;
/// Answers without which a percentile means nothing.
const ANSWERS: f64 = 50.0;
/// Members put aside in the window.
const EJECTIONS: f64 = 3.0;
/// A member that fails so much more often than the others.
const WORSE: f64 = 10.0;
/// Of the requests to an application, those that needed a new connection.
const NEW: f64 = 0.5;
/// New connections to it in a second, which begin to cost.
const CONNECTS: f64 = 100.0;
/// Of the ports for outgoing connections, those that are taken by connections that have ended.
const PORTS: f64 = 0.8;
/// Of the requests to applications, those that were sent once more.
const RETRIED: f64 = 0.05;

/// A route with an application behind it.
struct Behind<'w> {
    site: String,
    name: String,
    gateway: &'w Gateway,
}

impl Behind<'_> {
    fn subject(&self) -> String {
        format!("{} {}", self.site, self.name)
    }

    /// What its route has counted.
    fn figures<'s>(&self, sample: &'s Sample) -> Option<&'s RouteFigures> {
        let site = sample.info.series.site(&self.site)?;
        site.routes.iter().find(|(name, _)| *name == self.name).map(|(_, figures)| figures)
    }

    fn count(&self, window: &Window<'_>, of: impl Fn(&RouteFigures) -> u64) -> u64 {
        window.risen(|sample| self.figures(sample).map_or(0, &of))
    }
}

fn gateway_of(route: &Route) -> Option<&Gateway> {
    match &route.action {
        Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
            Some(&application.gateway)
        }
        Action::Proxy(proxy) => Some(&proxy.gateway),
        Action::Files(_)
        | Action::Redirect { .. }
        | Action::Respond { .. }
        | Action::HandTo { .. }
        | Action::Status
        | Action::Console { .. } => None,
    }
}

/// Routes with an application, of those that have counted something.
fn behind<'w>(window: &Window<'w>) -> Vec<Behind<'w>> {
    let mut found = Vec::new();
    let settings = window.settings();
    for (site, told) in settings.sites.iter().zip(tidegate_modules::status::series_names(settings)) {
        for (route, name) in site.routes.iter().zip(told.routes) {
            let site = told.site.clone();
            found.extend(gateway_of(route).map(|gateway| Behind { site, name, gateway }));
        }
    }
    found.retain(|route| route.figures(window.now()).is_some());
    found
}

/// The route with the most errors of servers, and how many.
fn worst<'r, 'w>(window: &Window<'_>, routes: &'r [Behind<'w>]) -> Option<&'r Behind<'w>> {
    let errors = |route: &&Behind<'_>| route.count(window, |figures| figures.class(5));
    routes.iter().max_by_key(errors).filter(|route| errors(route) > 0)
}

fn failures(sample: &Sample, reasons: &[GatewayFailure]) -> u64 {
    reasons.iter().map(|reason| sample.counted.gateway_failures.count(*reason)).sum()
}

pub(super) fn slow(window: &Window<'_>) -> Vec<Seen> {
    let routes = behind(window);
    let mut seen: Vec<Seen> = routes.iter().filter_map(|route| nearly_too_slow(window, route)).collect();
    let silent = |sample: &Sample| failures(sample, &[GatewayFailure::Silent]);
    let route = worst(window, &routes);
    let subject = route.map_or_else(|| "applications".to_owned(), Behind::subject);
    let timeout = route.map(|route| tidegate_config::duration_text(route.gateway.timeout));
    let sentence = || {
        let timeout = timeout.as_deref().map(|time| format!(" ({time})")).unwrap_or_default();
        let silent = were(window.risen(silent), "request");
        format!(
            "{subject}: {silent} given up {} since the application said nothing within its `timeout`{timeout}; clients got 504",
            window.span()
        )
    };
    let given_up = of(subject.clone(), window.events(silent), sentence, || {
        Change::told(
            "find what it waits for: `tidegate status slow` shows the requests, `tidegate status requests` those under way; a longer \
             `timeout` makes clients wait, and no answer come sooner",
        )
    });
    // Of one route one thing is said.
    if let Some(given_up) = given_up {
        seen.retain(|known| known.subject != given_up.subject);
        seen.push(given_up);
    }
    seen
}

/// Answers that come, but late.
fn nearly_too_slow(window: &Window<'_>, route: &Behind<'_>) -> Option<Seen> {
    let times = window.times_of(|sample| Some(&route.figures(sample)?.times.application));
    let (late, latest) = (times.quantile(0.99).as_secs_f64(), times.quantile(0.999).as_secs_f64());
    let timeout = route.gateway.timeout;
    let ratio = all([over(late, NEAR * timeout.as_secs_f64()), over(times.count() as f64, ANSWERS)]);
    let sentence = || {
        let limit = tidegate_config::duration_text(timeout);
        format!(
            "{}: one answer of a hundred takes {} and longer, close to the `timeout` of {limit}: what takes longer is given up",
            route.subject(),
            time(late)
        )
    };
    of(route.subject(), ratio, sentence, || {
        let new = Duration::from_secs(round_up(1.5 * latest, 5));
        let text = tidegate_config::duration_text;
        Change::of(
            "timeout",
            text(timeout),
            text(new),
            "1.5 times the slowest of a thousand; better, find what it waits for: `tidegate status slow`",
        )
    })
}

pub(super) fn down(window: &Window<'_>) -> Vec<Seen> {
    let away = |sample: &Sample| failures(sample, &[GatewayFailure::Unreachable, GatewayFailure::Down]);
    let routes = behind(window);
    let subject = worst(window, &routes).map_or_else(|| "applications".to_owned(), Behind::subject);
    let sentence = || {
        format!(
            "{subject}: {} turned away {} since nothing accepts connections there; clients got 502 or 503",
            were(window.risen(away), "request"),
            window.span()
        )
    };
    of(subject.clone(), window.events(away), sentence, || {
        Change::told("start the application, or correct the address of its route, `pool` or `upstream`; the error log says what was tried")
    })
    .into_iter()
    .collect()
}

fn group<'s>(sample: &'s Sample, name: &str) -> Option<&'s GroupReport> {
    sample.info.upstreams.iter().find(|group| group.name == name)
}

pub(super) fn member_flaps(window: &Window<'_>) -> Vec<Seen> {
    let of_group = |report: &GroupReport| {
        let name = report.name.as_str();
        let ejected = window.risen(|sample| group(sample, name).map_or(0, |group| group.ejections));
        let failed = |member: &str| {
            window.risen(|sample| {
                let members = group(sample, name).map(|group| group.members.as_slice()).unwrap_or_default();
                members.iter().find(|known| known.name == member).map_or(0, |member| member.failures)
            })
        };
        let mut failures: Vec<(u64, &str)> =
            report.members.iter().map(|member| (failed(&member.name), member.name.as_str())).collect();
        failures.sort_unstable();
        let (most, member) = *failures.last()?;
        let median = failures.get((failures.len() - 1) / 2).map_or(0, |(count, _)| *count);
        let is_worse = all([over(most as f64, WORSE * median.max(1) as f64), only(failures.len() > 1)]);
        let ratio = over(ejected as f64, EJECTIONS).max(is_worse);
        let sentence = || {
            format!(
                "{member} of upstream {name} has failed {} {}, its siblings {median}; members were put aside {ejected} times",
                were(most, "request").trim_end_matches(" were").trim_end_matches(" was"),
                window.span()
            )
        };
        of(format!("{name} {member}"), ratio, sentence, || {
            Change::told(format!(
                "take it out while you look at it: `tidegate upstream drain {name} {member}`, and back with `serve`"
            ))
        })
    };
    window.now().info.upstreams.iter().filter_map(of_group).collect()
}

pub(super) fn queue_full(window: &Window<'_>) -> Vec<Seen> {
    let of_group = |report: &GroupReport| {
        let name = report.name.as_str();
        let refused = |sample: &Sample| group(sample, name).map_or(0, |group| group.demand.refused_full);
        let settings = window.settings().upstreams.iter().find(|upstream| upstream.name == name)?;
        let old = settings.queue.length;
        let new = round_up(f64::from(old) + 1.5 * window.worst_step(refused) as f64, 16);
        let sentence = || {
            let refused = were(window.risen(refused), "request");
            format!(
                "upstream {name}: {refused} refused {} since its queue was full, which has room for {old}",
                window.span()
            )
        };
        of(name, window.events(refused), sentence, || {
            let how =
                "and 1.5 times what was refused in the worst ten seconds; or more `places` of its members";
            Change::of(&format!("upstream {name} queue length"), old, new, how)
        })
    };
    window.now().info.upstreams.iter().filter_map(of_group).collect()
}

pub(super) fn reconnects(window: &Window<'_>) -> Vec<Seen> {
    let ports = window
        .now()
        .host
        .ports
        .map_or(f64::INFINITY, |(first, last)| last.saturating_sub(first) as f64 + 1.0);
    let waiting = window.now().host.time_wait as f64;
    let of_route = |route: Behind<'_>| {
        let connects = route.count(window, |figures| figures.times.connect.count());
        let answers = route.count(window, |figures| figures.times.application.count());
        let rate = connects as f64 / window.seconds();
        // Many ports are taken long before that is noticed otherwise.
        let costs = over(rate, CONNECTS).max(over(waiting, PORTS * ports));
        let ratio = all([over(share(connects, answers.max(connects)), NEW), costs]);
        let busy = window.times_of(|sample| Some(&route.figures(sample)?.times.application));
        let at_once = busy.sum_nanos() as f64 / 1e9 / window.seconds();
        let workers = window.now().info.workers.max(1) as f64;
        let (old, new) = (route.gateway.keep, round_up((2.0 * at_once / workers).max(8.0), 8));
        let sentence = || {
            format!(
                "{}: {rate:.0} connections to the application are opened in a second, one for {} of its requests",
                route.subject(),
                percent(share(connects, answers.max(connects)))
            )
        };
        of(route.subject(), ratio, sentence, || {
            if u64::from(old) < new {
                return Change::of(
                    "keep",
                    old,
                    new,
                    "idle connections of each worker: twice what is under way at once",
                );
            }
            Change::told(
                "the application closes its connections: let it keep them open, longer than `keep-timeout`",
            )
        })
    };
    let is_tcp = |route: &Behind<'_>| !matches!(route.gateway.to, Destination::Unix(_));
    behind(window).into_iter().filter(is_tcp).filter_map(of_route).collect()
}

pub(super) fn retries(window: &Window<'_>) -> Vec<Seen> {
    let asked = window.step(|sample| sample.counted.gateway_requests);
    let again = share(window.step(|sample| sample.counted.gateway_retries), asked);
    let enough = window.risen(|sample| sample.counted.gateway_requests) >= 100;
    let ratio = all([over(again, RETRIED), only(enough)]);
    let sentence = || {
        format!(
            "{} of the requests to applications are sent once more: what fails gets even more to do",
            percent(again)
        )
    };
    of_server(ratio, sentence, || {
        let upstreams = window.settings().upstreams.iter().filter(|upstream| upstream.retry.times > 0);
        match upstreams.max_by_key(|upstream| upstream.retry.budget) {
            Some(upstream) if upstream.retry.budget > 5 => Change::of(
                &format!("upstream {} retry budget", upstream.name),
                upstream.retry.budget,
                5,
                "per cent of its requests; then see which member fails",
            ),
            _ => Change::told(
                "connections that the application had closed are tried anew: set `keep-timeout` below the time that it keeps them",
            ),
        }
    })
}
