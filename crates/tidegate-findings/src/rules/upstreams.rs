//! Upstreams, and the queues before applications: members that come and go, queues that are full, connections and retries.

use super::applications::{Behind, application, behind};
use super::{Concern, FullQueue, SERVER, Seen, of, percent, were};
use crate::window::{Sample, Window, all, only, over, round_up, share};
use tidegate_config::Settings;
use tidegate_config::settings::gateway::Destination;
use tidegate_config::settings::upstream::Upstream;
use tidegate_modules::gateway::balance::report::GroupReport;
use tidegate_modules::status::Change;
use tidegate_stats::GatewayFailure;

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
/// Requests in the window without which that means nothing.
const REQUESTS: u64 = 100;

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
        let seen = of(window, format!("{name} {member}"), ratio, sentence, || {
            Change::told(format!(
                "take it out while you look at it: `tidegate upstream drain {name} {member}`, and back with `serve`"
            ))
        });
        seen.map(|seen| seen.concerning([Concern::Application(name.to_owned())]))
    };
    window.now().info.upstreams.iter().filter_map(of_group).collect()
}

/// A value of the settings of an upstream, for a window that quotes it.
fn setting_of<T: 'static>(
    name: &str,
    value: impl Fn(&Upstream) -> T + 'static,
) -> impl Fn(&Settings) -> Option<T> + 'static {
    let name = name.to_owned();
    move |settings| settings.upstreams.iter().find(|upstream| upstream.name == name).map(&value)
}

/// The queue before an upstream, or before the one address of a route.
pub(super) fn queue_full(window: &Window<'_>) -> Vec<Seen> {
    let groups = window.now().info.upstreams.iter().filter_map(|report| queue_of_group(window, report));
    let routes = behind(window);
    let routes = routes.iter().filter(|route| !matches!(route.gateway.to, Destination::Named(_)));
    groups.chain(routes.filter_map(|route| queue_of_route(window, route))).collect()
}

fn queue_of_group(window: &Window<'_>, report: &GroupReport) -> Option<Seen> {
    let name = report.name.as_str();
    let settings = window.settings().upstreams.iter().find(|upstream| upstream.name == name)?;
    let window = &window.quoting(setting_of(name, |upstream| {
        let places: Vec<_> = upstream.members.iter().map(|member| member.places).collect();
        (upstream.queue.clone(), places)
    }));
    let refused = |sample: &Sample| group(sample, name).map_or(0, |group| group.demand.refused_full);
    let length = settings.queue.length;
    let sentence = || {
        let refused = were(window.risen(refused), "request");
        format!(
            "upstream {name}: {refused} refused {} since its queue was full, which has room for {length}",
            window.span()
        )
    };
    let seen = of(window, name, window.events(refused), sentence, || {
        let granted = |sample: &Sample| group(sample, name).map_or(0, |group| group.demand.requests);
        let queue = FullQueue {
            setting: &format!("upstream {name} queue length"),
            length,
            age: settings.queue.age,
            rate: window.worst_rate(granted),
            refused: window.worst_step(refused),
            instead: "let answers come sooner, or more at once where members can: more of these, or their `places`",
        };
        queue.change()
    })?;
    Some(seen.concerning([Concern::Application(name.to_owned())]))
}

fn queue_of_route(window: &Window<'_>, route: &Behind<'_>) -> Option<Seen> {
    let refused = |sample: &Sample| route.failed(sample, &[GatewayFailure::QueueFull]);
    if window.risen(refused) == 0 {
        return None;
    }
    let window = &window.quoting(route.setting(|gateway| {
        (gateway.queue_length, gateway.queue_age, gateway.connections, gateway.to.clone())
    }));
    let length = route.gateway.queue_length;
    let sentence = || {
        let refused = were(window.risen(refused), "request");
        let application = application(route.settings, &route.gateway.to);
        format!(
            "{}: {refused} refused {} since the queue before {application} was full, which has room for {length}",
            route.subject(),
            window.span()
        )
    };
    let seen = of(window, route.subject(), window.events(refused), sentence, || {
        let answered = |sample: &Sample| route.figure(sample, |figures| figures.times.application.count());
        let queue = FullQueue {
            setting: &format!("{} queue length", route.subject()),
            length,
            age: route.gateway.queue_age,
            rate: window.worst_rate(answered),
            refused: window.worst_step(refused),
            instead: "let answers come sooner, or more at once where the application can: `connections` of the route",
        };
        queue.change()
    })?;
    Some(seen.concerning([route.concern()]))
}

pub(super) fn reconnects(window: &Window<'_>) -> Vec<Seen> {
    let ports = window
        .now()
        .host
        .ports
        .map_or(f64::INFINITY, |(first, last)| last.saturating_sub(first) as f64 + 1.0);
    let waiting = window.now().host.time_wait as f64;
    let of_route = |route: Behind<'_>| {
        let connects = |sample: &Sample| route.figure(sample, |figures| figures.times.connect.count());
        if window.risen(connects) == 0 {
            return None;
        }
        let window = &window.quoting(route.setting(|gateway| (gateway.keep, gateway.to.clone())));
        let connects = window.risen(connects);
        let answers =
            window.risen(|sample| route.figure(sample, |figures| figures.times.application.count()));
        let rate = connects as f64 / window.seconds();
        // Many ports are taken long before that is noticed otherwise.
        let costs = over(rate, CONNECTS).max(over(waiting, PORTS * ports));
        let ratio = all([over(share(connects, answers.max(connects)), NEW), costs]);
        let at_once = route.seconds(window) / window.seconds();
        let workers = window.now().info.workers.max(1) as f64;
        let (old, new) = (route.gateway.keep, round_up((2.0 * at_once / workers).max(8.0), 8));
        let sentence = || {
            format!(
                "{}: {rate:.0} connections to {} are opened in a second, one for {} of its requests",
                route.subject(),
                application(route.settings, &route.gateway.to),
                percent(share(connects, answers.max(connects)))
            )
        };
        let seen = of(window, route.subject(), ratio, sentence, || {
            if u64::from(old) < new {
                let how = "idle connections of each worker: twice what is under way at once";
                return Change::of("keep", old, new, how);
            }
            Change::told(
                "the application closes its connections: let it keep them open, longer than `keep-timeout`",
            )
        })?;
        Some(seen.concerning([route.concern()]))
    };
    let is_tcp = |route: &Behind<'_>| !matches!(route.gateway.to, Destination::Unix(_));
    behind(window).into_iter().filter(is_tcp).filter_map(of_route).collect()
}

pub(super) fn retries(window: &Window<'_>) -> Vec<Seen> {
    let groups = window.now().info.upstreams.iter().filter_map(|report| retries_of_group(window, report));
    groups.chain(retries_of_others(window)).collect()
}

/// Of an upstream, whose members are given what others have failed.
fn retries_of_group(window: &Window<'_>, report: &GroupReport) -> Option<Seen> {
    let name = report.name.as_str();
    let settings = window.settings().upstreams.iter().find(|upstream| upstream.name == name)?;
    let window = &window.quoting(setting_of(name, |upstream| upstream.retry));
    let retries = |sample: &Sample| group(sample, name).map_or(0, |group| group.retries);
    let asked = |sample: &Sample| {
        group(sample, name).map_or(0, |group| group.members.iter().map(|member| member.requests).sum())
    };
    let again = share(window.step(retries), window.step(asked));
    let ratio = all([over(again, RETRIED), only(window.risen(asked) >= REQUESTS)]);
    let sentence = || {
        format!(
            "upstream {name}: {} of the requests to its members are sent once more: what fails gets even more to do",
            percent(again)
        )
    };
    let seen = of(window, format!("upstream {name}"), ratio, sentence, || match settings.retry.budget {
        6.. => {
            let setting = format!("upstream {name} retry budget");
            Change::of(
                &setting,
                settings.retry.budget,
                5,
                "per cent of its requests; then see which member fails",
            )
        }
        _ => Change::told(format!(
            "see which member fails: `tidegate status` and the error log tell of upstream {name}"
        )),
    })?;
    Some(seen.concerning([Concern::Application(name.to_owned())]))
}

/// Of all others: connections that the application was closing.
fn retries_of_others(window: &Window<'_>) -> Option<Seen> {
    let of_groups =
        |sample: &Sample| -> u64 { sample.info.upstreams.iter().map(|group| group.retries).sum() };
    let asked = |sample: &Sample| sample.counted.gateway_requests;
    let retries = window.step(|sample| sample.counted.gateway_retries).saturating_sub(window.step(of_groups));
    let again = share(retries, window.step(asked));
    let ratio = all([over(again, RETRIED), only(window.risen(asked) >= REQUESTS)]);
    let sentence = || {
        format!(
            "{} of the requests to applications are sent once more, since the connection that they went on was being closed",
            percent(again)
        )
    };
    let seen = of(window, SERVER, ratio, sentence, || {
        Change::told(
            "connections that the application had closed are tried anew: set `keep-timeout` below the time that it keeps them",
        )
    })?;
    Some(seen.concerning([Concern::Machine]))
}
