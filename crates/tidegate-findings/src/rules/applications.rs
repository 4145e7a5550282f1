//! Applications: silent, away, slower than their `timeout`. What counts is what clients got: a failure that another member has
//! made up for is none.

use super::{Concern, Seen, WORTH_A_WORD, of, percent, time, were};
use crate::window::{Sample, Window, all, only, over, round_up, share};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::gateway::{Destination, Gateway};
use tidegate_config::settings::{Action, Route};
use tidegate_modules::status::Change;
use tidegate_stats::GatewayFailure::{self, Closed, Down, Malformed, Silent, Unreachable};
use tidegate_stats::series::RouteFigures;

/// Of `timeout`, what one answer of a hundred takes.
const NEAR: f64 = 0.8;
/// Answers without which a percentile means nothing.
const ANSWERS: f64 = 50.0;
/// Of the time that applications take, what one of them takes that holds up the others.
const MOST_TIME: f64 = 0.5;
/// Looks in which an application has answered everything after it was away, until it counts as started again.
const RECOVERED: usize = 3;
/// Of the answers of an application, those of 5xx, and how many there have to be in the window.
const OWN_ERRORS: f64 = 0.1;
const ERRORS: u64 = 20;
/// What failures are told of where the routes are not counted by themselves.
const UNNAMED: &str = "applications";

/// A route with an application behind it.
pub(super) struct Behind<'w> {
    site: String,
    name: String,
    pub(super) gateway: &'w Gateway,
    pub(super) settings: &'w Settings,
}

impl Behind<'_> {
    /// `a.test /app/*`
    pub(super) fn subject(&self) -> String {
        format!("{} {}", self.site, self.name)
    }

    /// `a.test /app/* (upstream app)`
    fn with_application(&self) -> String {
        format!("{} ({})", self.subject(), application(self.settings, &self.gateway.to))
    }

    /// It is a matter of this application.
    pub(super) fn concern(&self) -> Concern {
        Concern::Application(key(&self.gateway.to))
    }

    /// What its route has counted.
    pub(super) fn figures<'s>(&self, sample: &'s Sample) -> Option<&'s RouteFigures> {
        let site = sample.info.series.site(&self.site)?;
        site.routes.iter().find(|(name, _)| *name == self.name).map(|(_, figures)| figures)
    }

    /// A figure of it.
    pub(super) fn figure(&self, sample: &Sample, of: impl Fn(&RouteFigures) -> u64) -> u64 {
        self.figures(sample).map_or(0, of)
    }

    /// Requests that clients got an error for, for one of these reasons.
    pub(super) fn failed(&self, sample: &Sample, reasons: &[GatewayFailure]) -> u64 {
        self.figure(sample, |figures| reasons.iter().map(|why| figures.failed(*why)).sum())
    }

    /// How long the application took in the window, all requests together: seconds.
    pub(super) fn seconds(&self, window: &Window<'_>) -> f64 {
        let times = window.times_of(|sample| Some(&self.figures(sample)?.times.application));
        let silent = window.risen(|sample| self.failed(sample, &[Silent]));
        times.sum_nanos() as f64 / 1e9 + silent as f64 * self.gateway.timeout.as_secs_f64()
    }

    /// A value of the settings of this route, for a window that quotes it.
    pub(super) fn setting<T: 'static>(
        &self,
        value: impl Fn(&Gateway) -> T + 'static,
    ) -> impl Fn(&Settings) -> Option<T> + 'static {
        let (site, name) = (self.site.clone(), self.name.clone());
        move |settings| {
            let routes = routes(settings);
            let same = routes.into_iter().find(|route| route.site == site && route.name == name);
            same.map(|route| value(route.gateway))
        }
    }
}

/// What an application is known by: the name of a pool or an upstream, which have none in common, or its address.
fn key(to: &Destination) -> String {
    match to {
        Destination::Named(name) => name.clone(),
        Destination::Tcp(address) => address.to_string(),
        Destination::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// What it is called: `upstream app`, `pool php`, `127.0.0.1:9000`.
pub(super) fn application(settings: &Settings, to: &Destination) -> String {
    match to {
        Destination::Named(name) if settings.pools.iter().any(|pool| pool.name == *name) => {
            format!("pool {name}")
        }
        Destination::Named(name) => format!("upstream {name}"),
        Destination::Tcp(_) | Destination::Unix(_) => key(to),
    }
}

/// The application of a route, where it has one.
pub(crate) fn gateway_of(route: &Route) -> Option<&Gateway> {
    match &route.action {
        Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
            Some(&application.gateway)
        }
        Action::Proxy(proxy) => Some(&proxy.gateway),
        Action::Files(_)
        | Action::Redirect { .. }
        | Action::Respond { .. }
        | Action::Close
        | Action::HandTo { .. }
        | Action::Status
        | Action::Console { .. } => None,
    }
}

/// Routes with an application.
fn routes(settings: &Settings) -> Vec<Behind<'_>> {
    let mut found = Vec::new();
    for (site, told) in settings.sites.iter().zip(tidegate_modules::status::series_names(settings)) {
        for (route, name) in site.routes.iter().zip(told.routes) {
            let site = told.site.clone();
            found.extend(gateway_of(route).map(|gateway| Behind { site, name, gateway, settings }));
        }
    }
    found
}

/// Of these, those that have counted something.
pub(super) fn behind<'w>(window: &Window<'w>) -> Vec<Behind<'w>> {
    let mut found = routes(window.settings());
    found.retain(|route| route.figures(window.now()).is_some());
    found
}

/// Failures that clients heard of, of routes that are not counted by themselves.
fn unnamed(sample: &Sample, routes: &[Behind<'_>], reasons: &[GatewayFailure]) -> u64 {
    let all: u64 = reasons.iter().map(|why| sample.counted.gateway_errors.count(*why)).sum();
    all.saturating_sub(routes.iter().map(|route| route.failed(sample, reasons)).sum())
}

pub(super) fn slow(window: &Window<'_>) -> Vec<Seen> {
    let routes = behind(window);
    let all_seconds: f64 = routes.iter().map(|route| route.seconds(window)).sum();
    let of_route = |route: &Behind<'_>| {
        // Of one route one thing is said.
        let seen = [given_up(window, route), nearly_too_slow(window, route)].into_iter().flatten();
        let seen = seen.max_by(|one, other| one.ratio.total_cmp(&other.ratio))?;
        let mut concerns = vec![route.concern()];
        if route.seconds(window) >= MOST_TIME * all_seconds {
            concerns.push(Concern::InFlight);
        }
        Some(seen.concerning(concerns))
    };
    let mut seen: Vec<Seen> = routes.iter().filter_map(of_route).collect();
    let silent = |sample: &Sample| unnamed(sample, &routes, &[Silent]);
    seen.extend(of(
        window,
        UNNAMED,
        window.events(silent),
        || {
            let silent = were(window.risen(silent), "request");
            format!(
                "{silent} given up {} since an application said nothing within its `timeout`, on routes that are not counted by themselves; \
                 clients got 504, or a part of the answer",
                window.span()
            )
        },
        find_it,
    ));
    seen
}

fn find_it() -> Change {
    Change::told(
        "find what it waits for: `tidegate status slow` shows the requests, `tidegate status requests` those under way; a longer `timeout` \
         makes clients wait, and no answer come sooner",
    )
}

/// Answers that do not come.
fn given_up(window: &Window<'_>, route: &Behind<'_>) -> Option<Seen> {
    let silent = |sample: &Sample| route.failed(sample, &[Silent]);
    if window.risen(silent) == 0 {
        return None;
    }
    let window = &window.quoting(route.setting(|gateway| (gateway.timeout, gateway.to.clone())));
    let sentence = || {
        let (timeout, silent) =
            (tidegate_config::duration_text(route.gateway.timeout), were(window.risen(silent), "request"));
        format!(
            "{}: {silent} given up {} since the application said nothing within its `timeout` ({timeout}); clients got 504, or a part of the \
             answer",
            route.with_application(),
            window.span()
        )
    };
    of(window, route.subject(), window.events(silent), sentence, find_it)
}

/// Answers that come, but late.
fn nearly_too_slow(window: &Window<'_>, route: &Behind<'_>) -> Option<Seen> {
    let ratio_of = |window: &Window<'_>| {
        let times = window.times_of(|sample| Some(&route.figures(sample)?.times.application));
        let late = times.quantile(0.99).as_secs_f64();
        let near = over(late, NEAR * route.gateway.timeout.as_secs_f64());
        (all([near, over(times.count() as f64, ANSWERS)]), times)
    };
    if ratio_of(window).0 < WORTH_A_WORD {
        return None;
    }
    let window = &window.quoting(route.setting(|gateway| (gateway.timeout, gateway.to.clone())));
    let (ratio, times) = ratio_of(window);
    let (late, latest) = (times.quantile(0.99).as_secs_f64(), times.quantile(0.999).as_secs_f64());
    let timeout = route.gateway.timeout;
    let sentence = || {
        let limit = tidegate_config::duration_text(timeout);
        format!(
            "{}: one answer of a hundred takes {} and longer, close to the `timeout` of {limit}: what takes longer is given up",
            route.with_application(),
            time(late)
        )
    };
    of(window, route.subject(), ratio, sentence, || {
        let new = Duration::from_secs(round_up(1.5 * latest, 1));
        let text = tidegate_config::duration_text;
        let how = format!(
            "1.5 times the {} of the slowest of a thousand, in whole seconds; better, find what it waits for: `tidegate status slow`",
            time(latest)
        );
        Change::of("timeout", text(timeout), text(new), &how)
    })
}

pub(super) fn down(window: &Window<'_>) -> Vec<Seen> {
    let routes = behind(window);
    let mut by_application: BTreeMap<String, Vec<&Behind<'_>>> = BTreeMap::new();
    for route in &routes {
        by_application.entry(key(&route.gateway.to)).or_default().push(route);
    }
    let mut seen: Vec<Seen> = by_application.values().filter_map(|routes| away(window, routes)).collect();
    let unnamed = |sample: &Sample| unnamed(sample, &routes, &[Unreachable, Down]);
    seen.extend(of(
        window,
        UNNAMED,
        window.events(unnamed),
        || {
            format!(
                "{} turned away {} since nothing accepts connections where an application should be, on routes that are not counted by \
                 themselves; clients got 502 or 503",
                were(window.risen(unnamed), "request"),
                window.span()
            )
        },
        start_it,
    ));
    seen
}

fn start_it() -> Change {
    Change::told(
        "start the application, or correct the address of its route, `pool` or `upstream`; the error log says what was tried",
    )
}

/// An application that is away for these routes, which lead to it.
fn away(window: &Window<'_>, routes: &[&Behind<'_>]) -> Option<Seen> {
    let to = &routes.first()?.gateway.to;
    let away = |sample: &Sample| -> u64 {
        routes.iter().map(|route| route.failed(sample, &[Unreachable, Down])).sum()
    };
    if window.risen(away) == 0 {
        return None;
    }
    let window = &window.quoting(place_of(to));
    let name = application(window.settings(), to);
    let sentence = || {
        let risen = |route: &&&Behind<'_>| window.risen(|sample| route.failed(sample, &[Unreachable, Down]));
        let hit: Vec<_> = routes.iter().filter(|route| risen(route) > 0).collect();
        let most =
            hit.iter().max_by_key(|route| risen(route)).map(|route| route.subject()).unwrap_or_default();
        let others = match hit.len() {
            0 | 1 => String::new(),
            several => format!(" and {} more", several - 1),
        };
        format!(
            "{name} (route {most}{others}): {} turned away {} since nothing accepts connections there; clients got 502 or 503",
            were(window.risen(away), "request"),
            window.span()
        )
    };
    let seen = of(window, name.clone(), window.events(away), sentence, start_it)?;
    let is_over = answers_again(window, routes, away);
    Some(Seen { is_over, ..seen.concerning([Concern::Application(key(to))]) })
}

/// Whether it has answered in each of the last looks, and none of them has seen a failure: somebody has started it again.
fn answers_again(window: &Window<'_>, routes: &[&Behind<'_>], failed: impl Fn(&Sample) -> u64) -> bool {
    let answered = |sample: &Sample| -> u64 {
        routes.iter().map(|route| route.figure(sample, |figures| figures.times.application.count())).sum()
    };
    let (answered, failed) = (window.steps(answered), window.steps(failed));
    let lately = answered.iter().zip(&failed).rev().take(RECOVERED);
    answered.len() >= RECOVERED && lately.into_iter().all(|(answered, failed)| *answered > 0 && *failed == 0)
}

/// Applications that are reached, and break off or talk nonsense.
pub(super) fn breaks(window: &Window<'_>) -> Vec<Seen> {
    let routes = behind(window);
    let broken = |sample: &Sample| unnamed(sample, &routes, &[Closed, Malformed]);
    let unnamed = of(
        window,
        UNNAMED,
        window.events(broken),
        || {
            format!(
                "{} broken off {} by an application that closed the connection, or has answered what is no answer, on routes that are not \
                 counted by themselves; clients got 502, or a part of the answer",
                were(window.risen(broken), "request"),
                window.span()
            )
        },
        read_its_log,
    );
    routes.iter().filter_map(|route| breaks_off(window, route)).chain(unnamed).collect()
}

fn read_its_log() -> Change {
    Change::told(
        "look at what the application writes when it happens; the error log of this server has a line for each, with the time and the request",
    )
}

fn breaks_off(window: &Window<'_>, route: &Behind<'_>) -> Option<Seen> {
    let broken = |sample: &Sample| route.failed(sample, &[Closed, Malformed]);
    if window.risen(broken) == 0 {
        return None;
    }
    let window = &window.quoting(route.setting(|gateway| gateway.to.clone()));
    let sentence = || {
        let kinds = [(Closed, "closed the connection"), (Malformed, "answered what is no answer")];
        let kinds = kinds.map(|(why, what)| (window.risen(|sample| route.failed(sample, &[why])), what));
        let kinds: Vec<_> = kinds.iter().filter(|(count, _)| *count > 0).collect();
        let kinds: Vec<_> = kinds.iter().map(|(count, what)| format!("{count} times it {what}")).collect();
        format!(
            "{}: {} broken off {} by the application, {}; clients got 502, or a part of the answer",
            route.with_application(),
            were(window.risen(broken), "request"),
            window.span(),
            kinds.join(", ")
        )
    };
    let seen = of(window, route.subject(), window.events(broken), sentence, read_its_log)?;
    Some(seen.concerning([route.concern()]))
}

/// Applications whose answers are errors.
pub(super) fn errors(window: &Window<'_>) -> Vec<Seen> {
    let of_route = |route: &Behind<'_>| {
        let window = &window.quoting(route.setting(|gateway| gateway.to.clone()));
        let of_all = share(
            window.step(|sample| own_errors(route, sample)),
            window.step(|sample| requests(route, sample)),
        );
        let many = only(window.risen(|sample| own_errors(route, sample)) >= ERRORS);
        let sentence = || {
            format!(
                "{}: {} of what the application has answered are errors (5xx), {} {}",
                route.with_application(),
                percent(of_all),
                window.risen(|sample| own_errors(route, sample)),
                window.span()
            )
        };
        let seen = of(window, route.subject(), all([over(of_all, OWN_ERRORS), many]), sentence, || {
            Change::told(format!(
                "look at the log of the application; `tidegate tail --site {} --route '{}' --status 5xx` shows which requests they are",
                route.site, route.name
            ))
        })?;
        Some(seen.concerning([route.concern()]))
    };
    behind(window).iter().filter_map(of_route).collect()
}

/// Requests of a route that an application was there for.
fn requests(route: &Behind<'_>, sample: &Sample) -> u64 {
    route.figure(sample, |figures| figures.requests().saturating_sub(failures(figures)))
}

/// Its answers of 5xx that were none of this server's: what that has refused for want of room is taken for this route's.
fn own_errors(route: &Behind<'_>, sample: &Sample) -> u64 {
    let counted = &sample.counted;
    let limits: u64 = sample.info.rates.iter().map(|rate| rate.refused).sum();
    let refused = counted.queue_refusals.total().saturating_add(counted.requests_shed).saturating_add(limits);
    route.figure(sample, |figures| figures.class(5).saturating_sub(failures(figures)).saturating_sub(refused))
}

/// Clients that got an error in place of the application's answer.
fn failures(figures: &RouteFigures) -> u64 {
    GatewayFailure::ALL.iter().map(|why| figures.failed(*why)).sum()
}

/// Where an application is, as the settings say.
fn place_of(to: &Destination) -> impl Fn(&Settings) -> String + 'static {
    let to = to.clone();
    move |settings| {
        let Destination::Named(name) = &to else { return String::new() };
        let pool = settings.pools.iter().find(|pool| pool.name == *name);
        let upstream = settings.upstreams.iter().find(|upstream| upstream.name == *name);
        let members = upstream
            .map(|upstream| upstream.members.iter().map(|member| &member.address).collect::<Vec<_>>());
        format!("{:?} {members:?}", pool.map(|pool| &pool.application))
    }
}
