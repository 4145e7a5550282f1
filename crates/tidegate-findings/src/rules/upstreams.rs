//! Upstreams, and the queues before applications: members that come and go, queues that are full, connections and retries.

use super::applications::{Behind, application, behind, gateway_of};
use super::{Concern, FullQueue, SERVER, Seen, of, percent, time, were};
use crate::window::{Sample, Window, all, only, over, round_up, share};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::gateway::{Connections, Destination};
use tidegate_config::settings::upstream::Upstream;
use tidegate_modules::gateway::balance::report::GroupReport;
use tidegate_modules::gateway::supervise::status::PoolStatus;
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
/// With this share of idle processors an application on this machine could serve more at once.
const IDLE: f64 = 0.3;
/// How busy the connections to an application should be.
const BUSY_PLACES: f64 = 0.7;
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

/// The `connections` of a route, or the places of the members of an upstream, all taken while processors are idle.
pub(super) fn too_small(window: &Window<'_>) -> Vec<Seen> {
    let groups = window.now().info.upstreams.iter().filter_map(|report| too_few_members(window, report));
    let routes = behind(window);
    groups.chain(routes.iter().filter_map(|route| too_few_connections(window, route))).collect()
}

fn too_few_members(window: &Window<'_>, report: &GroupReport) -> Option<Seen> {
    let name = report.name.as_str();
    let window = &window.quoting(setting_of(name, |upstream| {
        upstream.members.iter().map(|member| member.places).collect::<Vec<_>>()
    }));
    let (waiting, idle) = (report.demand.waiting, window.idle());
    let in_use: usize = report.members.iter().map(|member| member.in_use).sum();
    let ratio = all([over(waiting as f64, 1.0), over(idle, IDLE)]);
    let sentence = || {
        format!(
            "upstream {name}: its members serve {in_use} requests and {waiting} wait for a place on one, while {} of the processors here are \
             idle",
            percent(idle)
        )
    };
    let seen = of(window, name, ratio, sentence, || {
        Change::told("more `places` for members that can serve more at once, or more members")
    })?;
    Some(seen.concerning([Concern::Application(name.to_owned())]))
}

fn too_few_connections(window: &Window<'_>, route: &Behind<'_>) -> Option<Seen> {
    let Connections::Most(most) = route.gateway.connections else { return None };
    let window = &window.quoting(route.setting(|gateway| (gateway.connections, gateway.to.clone())));
    let waited = window.step_times_of(|sample| Some(&route.figures(sample)?.times.queue));
    // By Little's law so many wait at once, on average.
    let waiting = waited.sum_nanos() as f64 / 1e9 / window.step_seconds();
    let idle = window.idle();
    let ratio = all([over(waiting, 1.0), over(idle, IDLE)]);
    let new = round_up((f64::from(most) + waiting) / BUSY_PLACES, 1);
    let sentence = || {
        format!(
            "{}: its {most} `connections` to {} are taken and {waiting:.1} requests wait on average, one in a hundred for {} and longer, while {} \
             of the processors here are idle",
            route.subject(),
            application(route.settings, &route.gateway.to),
            time(waited.quantile(0.99).as_secs_f64()),
            percent(idle)
        )
    };
    let seen = of(window, route.subject(), ratio, sentence, || {
        let how = "what is under way and waits, at 70 %, where the application can serve so many at once";
        Change::of("connections", most, new, how)
    })?;
    Some(seen.concerning([route.concern()]))
}

/// Requests that waited longer for a pool, an upstream or an address than its queue allows.
pub(super) fn queue_age(window: &Window<'_>) -> Vec<Seen> {
    let settings = window.settings();
    let pools = settings.pools.iter().filter_map(|pool| {
        let name = pool.name.clone();
        let refused = |sample: &Sample| {
            sample
                .info
                .pools
                .iter()
                .find(|pool| pool.name == name)
                .map_or(0, |pool| pool.demand.refused_too_old)
        };
        let own = name.clone();
        let window = window.quoting(move |settings| {
            settings.pools.iter().find(|pool| pool.name == own).map(|pool| (pool.queue.clone(), pool.places))
        });
        waited_too_long(&window, (format!("pool {name}"), &name), pool.queue.age, refused)
    });
    let groups = settings.upstreams.iter().filter_map(|upstream| {
        let name = upstream.name.as_str();
        let refused = |sample: &Sample| group(sample, name).map_or(0, |group| group.demand.refused_too_old);
        let window = window.quoting(setting_of(name, |upstream| {
            let places: Vec<_> = upstream.members.iter().map(|member| member.places).collect();
            (upstream.queue.clone(), places)
        }));
        waited_too_long(&window, (format!("upstream {name}"), name), upstream.queue.age, refused)
    });
    let routes = behind(window);
    let routes = routes.iter().filter(|route| !matches!(route.gateway.to, Destination::Named(_)));
    let routes = routes.filter_map(|route| {
        let refused = |sample: &Sample| route.failed(sample, &[GatewayFailure::QueueAge]);
        let window = window
            .quoting(route.setting(|gateway| (gateway.queue_age, gateway.connections, gateway.to.clone())));
        let seen = waited_too_long(&window, (route.subject(), ""), route.gateway.queue_age, refused)?;
        Some(seen.concerning([route.concern()]))
    });
    pools.chain(groups).chain(routes).collect()
}

fn waited_too_long(
    window: &Window<'_>,
    (subject, application): (String, &str),
    age: Duration,
    refused: impl Fn(&Sample) -> u64,
) -> Option<Seen> {
    let sentence = || {
        format!(
            "{subject}: {} refused {} after waiting {} for a place on the application (`queue age`)",
            were(window.risen(&refused), "request"),
            window.span(),
            tidegate_config::duration_text(age)
        )
    };
    let seen = of(window, subject.clone(), window.events(&refused), sentence, || {
        Change::told(
            "let answers come sooner (`tidegate status slow`), or more at once where the application can (`connections` of the route, `places` of \
             members, `processes` of a pool); a longer `age` makes clients wait, and a shorter `queue length` refuses them sooner",
        )
    })?;
    Some(seen.concerning([Concern::Application(application.to_owned())]))
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
    // Who closes connections by ending is a pool that crashes.
    let ended = |pool: &&PoolStatus| {
        window.risen(|sample| {
            sample.info.pools.iter().find(|known| known.name == pool.name).map_or(0, |pool| pool.restarts)
        }) > 0
    };
    let crashed = window.now().info.pools.iter().filter(ended);
    let mut concerns = vec![Concern::Machine];
    concerns.extend(crashed.map(|pool| Concern::Application(pool.name.clone())));
    let window = &window.quoting(keep_timeouts);
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
    Some(seen.concerning(concerns))
}

/// How long routes keep their idle connections to applications.
fn keep_timeouts(settings: &Settings) -> Vec<Duration> {
    let routes = settings.sites.iter().flat_map(|site| &site.routes);
    routes.filter_map(gateway_of).map(|gateway| gateway.keep_timeout).collect()
}
