//! What sites and routes have counted, as plain values with their names: added up over workers, processes and upgrades.

use super::answer::AnswerKey;
use super::directory::Place;
use super::exemplars::{self, Exemplar};
use super::{OTHER, SeriesDirectory, SeriesId, SeriesNames, SeriesTable};
use crate::histogram::Distribution;
use crate::kind::{GatewayFailure, KindCounts};
use crate::table::Reading;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Kinds of answers of a route that are told apart, whatever workers and processes before have told.
pub(super) const KINDS: usize = 64;

/// Of all sites. Sites and routes that have counted nothing are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesFigures {
    /// In no order that means anything, until [`SeriesFigures::keep`] has put them into that of the settings.
    pub sites: Vec<SiteFigures>,
    /// Times that are in the histogram of their site, since their route could have none.
    #[serde(default)]
    pub folded: u64,
}

/// Of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteFigures {
    /// Its name.
    pub name: String,
    /// Its place in the settings, from 0, once [`SeriesFigures::keep`] has said it: what has no room in a report is chosen by
    /// it, so that the same names are always there.
    #[serde(default)]
    pub place: u32,
    /// Of requests that have come to none of its routes.
    #[serde(default)]
    pub unrouted: RouteFigures,
    /// Of its routes, each by its name.
    pub routes: Vec<(String, RouteFigures)>,
}

/// Of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteFigures {
    /// Its place among the routes of all sites; see [`SiteFigures::place`].
    pub place: u32,
    /// Requests that have ended, by class of their status: 1xx (tunnels) to 5xx.
    pub answers: [u64; 5],
    /// Bytes of heads and content that clients have sent.
    pub received: u64,
    /// Bytes of heads and content that were sent to clients.
    pub sent: u64,
    /// All times together.
    pub nanos: u64,
    /// Requests of the server's own that were handed on to it.
    pub handed_on: u64,
    /// Requests that clients got an error for in place of an application's answer, by reason. What another member has
    /// answered is none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<KindCounts<GatewayFailure>>,
    /// How long it took.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub times: Times,
    /// How long all of it took by what requests were and what they were answered with: at most 64 of these, and what is told
    /// together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_kind: Vec<(AnswerKey, Distribution)>,
    /// Of the buckets of how long all of it took: the last sampled requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exemplars: Vec<Exemplar>,
}

/// How long requests took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// From the last byte of the head to the last byte of the answer.
    pub total: Distribution,
    /// From there to the first byte of the answer. What was given up before has none.
    pub first_byte: Distribution,
    /// Waiting for a place.
    pub queue: Distribution,
    /// Connecting to an application, each time.
    pub connect: Distribution,
    /// From the first byte sent to an application to the head of its answer, each time.
    pub application: Distribution,
}

impl Times {
    /// Name, meaning and value of each.
    pub fn rows(&self) -> [(&'static str, &'static str, &Distribution); 5] {
        [
            (
                "duration",
                "Time from the last byte of a request's head to the last byte of its answer.",
                &self.total,
            ),
            (
                "first_byte",
                "Time from the last byte of a request's head to the first byte of its answer.",
                &self.first_byte,
            ),
            ("queue", "Time that requests waited for a place.", &self.queue),
            ("connect", "Time that it took to connect to applications.", &self.connect),
            (
                "application",
                "Time from the first byte sent to an application to the head of its answer.",
                &self.application,
            ),
        ]
    }

    fn is_empty(&self) -> bool {
        self.rows().iter().all(|(.., times)| times.is_empty())
    }

    fn merge(&mut self, other: &Times) {
        self.total.merge(&other.total);
        self.first_byte.merge(&other.first_byte);
        self.queue.merge(&other.queue);
        self.connect.merge(&other.connect);
        self.application.merge(&other.application);
    }
}

impl RouteFigures {
    /// Adds times of a kind of answer. What there is no room for is told together.
    pub(super) fn add_kind(&mut self, key: AnswerKey, times: &Distribution) {
        let all = &mut self.by_kind;
        let is_told = all.len() < KINDS || all.iter().any(|(known, _)| *known == key);
        let key = if is_told { key } else { key.rest() };
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => known.merge(times),
            None => all.push((key, times.clone())),
        }
    }

    /// Requests that have ended.
    pub fn requests(&self) -> u64 {
        self.answers.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Of these, answers of a class: 1 for 1xx, to 5 for 5xx.
    pub fn class(&self, class: usize) -> u64 {
        self.answers.get(class.wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// All times together.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// How often it was asked: by clients, and by the server on their behalf.
    pub fn invocations(&self) -> u64 {
        self.requests().wrapping_add(self.handed_on)
    }

    /// Requests that clients got an error for in place of an application's answer, for a reason.
    pub fn failed(&self, why: GatewayFailure) -> u64 {
        self.failures.as_ref().map_or(0, |failures| failures.count(why))
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.requests() == 0 && self.handed_on == 0 && self.times.is_empty()
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &RouteFigures) {
        for (mine, theirs) in self.answers.iter_mut().zip(&other.answers) {
            *mine = mine.wrapping_add(*theirs);
        }
        self.received = self.received.wrapping_add(other.received);
        self.sent = self.sent.wrapping_add(other.sent);
        self.nanos = self.nanos.wrapping_add(other.nanos);
        self.handed_on = self.handed_on.wrapping_add(other.handed_on);
        if let Some(theirs) = &other.failures {
            self.failures.get_or_insert_default().merge(theirs);
        }
        self.times.merge(&other.times);
        for (key, times) in &other.by_kind {
            self.add_kind(*key, times);
        }
        exemplars::merge(&mut self.exemplars, &other.exemplars);
    }
}

impl SiteFigures {
    /// Of all its requests.
    pub fn total(&self) -> RouteFigures {
        let mut total = self.unrouted.clone();
        self.routes.iter().for_each(|(_, figures)| total.merge(figures));
        total
    }

    /// Those of a route that is there, or is made.
    fn route(&mut self, name: &str) -> &mut RouteFigures {
        let at = self.routes.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.routes.push((name.to_owned(), RouteFigures::default()));
            self.routes.len() - 1
        });
        &mut self.routes[at].1
    }
}

impl SeriesFigures {
    /// What the workers of a process have counted.
    pub fn of<'t>(
        directory: &SeriesDirectory,
        tables: impl IntoIterator<Item = &'t SeriesTable>,
    ) -> SeriesFigures {
        let mut by_number: Vec<RouteFigures> = Vec::new();
        let mut figures = SeriesFigures::default();
        for table in tables {
            for (id, counted) in table.read() {
                let at = id.number() as usize;
                if by_number.len() <= at {
                    by_number.resize_with(at + 1, RouteFigures::default);
                }
                by_number[at].merge(&counted);
            }
            for (id, exemplar) in table.exemplars() {
                if let Some(route) = by_number.get_mut(id.number() as usize) {
                    exemplars::merge(&mut route.exemplars, &[exemplar]);
                }
            }
            figures.folded = figures.folded.wrapping_add(table.folded());
        }
        let mut sites: HashMap<Arc<str>, usize> = HashMap::new();
        let mut gone = RouteFigures::default();
        for (number, counted) in (0..).zip(by_number).filter(|(_, counted)| !counted.is_empty()) {
            let list = &mut figures.sites;
            let mut of = |site: Arc<str>| {
                *sites.entry(site).or_insert_with_key(|site| {
                    list.push(SiteFigures { name: site.to_string(), ..SiteFigures::default() });
                    list.len() - 1
                })
            };
            match directory.place(SeriesId::of(number)) {
                Some(Place::Site(site)) => {
                    let at = of(site);
                    list[at].unrouted = counted;
                }
                Some(Place::Route(site, route)) => {
                    let at = of(site);
                    list[at].routes.push((route.to_string(), counted));
                }
                Some(Place::GoneOf(site)) => {
                    let at = of(site);
                    list[at].route(OTHER).merge(&counted);
                }
                Some(Place::Gone) => gone.merge(&counted),
                None => {}
            }
        }
        if !gone.is_empty() {
            figures.sites.push(SiteFigures {
                name: OTHER.to_owned(),
                unrouted: gone,
                ..SiteFigures::default()
            });
        }
        figures
    }

    /// Forgets single requests.
    pub fn without_exemplars(&mut self) {
        for site in &mut self.sites {
            site.unrouted.exemplars = Vec::new();
            site.routes.iter_mut().for_each(|(_, figures)| figures.exemplars = Vec::new());
        }
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &SeriesFigures) {
        self.folded = self.folded.wrapping_add(other.folded);
        let mut known: HashMap<String, usize> =
            self.sites.iter().enumerate().map(|(at, site)| (site.name.clone(), at)).collect();
        for site in &other.sites {
            let Some(at) = known.get(&site.name) else {
                known.insert(site.name.clone(), self.sites.len());
                self.sites.push(site.clone());
                continue;
            };
            let mine = &mut self.sites[*at];
            mine.unrouted.merge(&site.unrouted);
            let routes: HashMap<&str, usize> =
                mine.routes.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
            let places: Vec<Option<usize>> =
                site.routes.iter().map(|(name, _)| routes.get(name.as_str()).copied()).collect();
            for ((name, theirs), place) in site.routes.iter().zip(places) {
                match place {
                    Some(at) => mine.routes[at].1.merge(theirs),
                    None => mine.routes.push((name.clone(), theirs.clone())),
                }
            }
        }
    }

    /// Puts sites and routes into the order of the settings. What a name has counted that these no longer have goes to
    /// [`OTHER`], behind all others, so that nothing is lost and names do not pile up.
    pub fn keep(&mut self, names: &[SeriesNames]) {
        let mut order: HashMap<&str, (usize, u32)> = HashMap::with_capacity(names.len());
        let mut first_route = 0u32;
        for (at, names) in names.iter().enumerate() {
            order.insert(&names.site, (at, first_route));
            first_route = first_route.saturating_add(u32::try_from(names.routes.len()).unwrap_or(u32::MAX));
        }
        let mut gone = SiteFigures { name: OTHER.to_owned(), ..SiteFigures::default() };
        let mut kept: Vec<(usize, SiteFigures)> = Vec::with_capacity(self.sites.len());
        for mut site in std::mem::take(&mut self.sites) {
            if site.name == super::NO_SITE {
                kept.push((usize::MAX, site));
            } else if let Some((at, first_route)) = order.get(site.name.as_str()) {
                site.keep(&names[*at].routes, *first_route);
                site.place = u32::try_from(*at).unwrap_or(u32::MAX);
                kept.push((*at, site));
            } else {
                gone.unrouted.merge(&site.total());
            }
        }
        kept.sort_by_key(|(at, _)| *at);
        self.sites = kept.into_iter().map(|(_, site)| site).collect();
        if !gone.unrouted.is_empty() {
            self.sites.push(gone);
        }
    }

    /// The site of a name.
    pub fn site(&self, name: &str) -> Option<&SiteFigures> {
        self.sites.iter().find(|site| site.name == name)
    }

    /// Of all requests.
    pub fn total(&self) -> RouteFigures {
        let mut total = RouteFigures::default();
        self.sites.iter().for_each(|site| total.merge(&site.total()));
        total
    }
}

impl SiteFigures {
    fn keep(&mut self, names: &[String], first_route: u32) {
        let order: HashMap<&str, usize> =
            names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let mut gone = RouteFigures::default();
        let mut kept: Vec<(usize, (String, RouteFigures))> = Vec::with_capacity(self.routes.len());
        for (name, mut figures) in std::mem::take(&mut self.routes) {
            match order.get(name.as_str()) {
                Some(at) => {
                    figures.place = first_route.saturating_add(u32::try_from(*at).unwrap_or(u32::MAX));
                    kept.push((*at, (name, figures)));
                }
                None => gone.merge(&figures),
            }
        }
        kept.sort_by_key(|(at, _)| *at);
        self.routes = kept.into_iter().map(|(_, route)| route).collect();
        if !gone.is_empty() {
            self.route(OTHER).merge(&gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Answered;

    fn site(name: &str, routes: &[(&str, u64)]) -> SiteFigures {
        let figures = |count: &u64| RouteFigures { answers: [0, *count, 0, 0, 0], ..RouteFigures::default() };
        let routes = routes.iter().map(|(name, count)| ((*name).to_owned(), figures(count)));
        SiteFigures {
            name: name.into(),
            place: 0,
            unrouted: RouteFigures::default(),
            routes: routes.collect(),
        }
    }

    fn counts(figures: &SeriesFigures) -> Vec<(String, String, u64)> {
        let all = figures.sites.iter().flat_map(|site| {
            let own = ("-".to_owned(), site.unrouted.requests());
            let routes = site.routes.iter().map(|(name, figures)| (name.clone(), figures.requests()));
            let rows = std::iter::once(own).chain(routes).filter(|(_, count)| *count > 0);
            rows.map(|(route, count)| (site.name.clone(), route, count))
        });
        all.collect()
    }

    /// However often settings change, what a process tells has no more names than those in force.
    #[test]
    fn a_process_tells_of_names_that_are_gone_together() {
        let (directory, table) = (Arc::<SeriesDirectory>::default(), SeriesTable::default());
        let names =
            |site: &str, routes: &[String]| SeriesNames { site: site.into(), routes: routes.to_vec() };
        let count = |id: SeriesId| {
            let elapsed = crate::Elapsed::nanos(1000);
            let kind = crate::series::RequestKind::UNKNOWN;
            let answered =
                Answered { kind, status: 200, received: 1, sent: 1, elapsed, has_first_byte: false };
            table.answered(id, &answered);
        };
        let told = || counts(&SeriesFigures::of(&directory, [&table]));
        for revision in 0..20 {
            let sites =
                [names("a", &["/*".into(), format!("/{revision}")]), names(&format!("b{revision}"), &[])];
            let ids = directory.adopt(&sites);
            directory.extend(&table);
            directory.settle(&sites);
            ids[0].routes.iter().copied().chain([ids[1].unrouted]).for_each(count);
        }
        let row = |site: &str, route: &str, count| (site.to_owned(), route.to_owned(), count);
        let expected = [
            row("a", "/*", 20),
            row("a", "/19", 1),
            row("a", "_other", 19),
            row("b19", "-", 1),
            row("_other", "-", 19),
        ];
        let mut now = told();
        now.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(now, expected);
        // What comes back has what it had.
        directory.settle(&[names("a", &["/*".into(), "/7".into()])]);
        assert!(told().contains(&row("a", "/7", 1)));
    }

    #[test]
    fn names_that_are_gone_are_counted_together() {
        let mut figures = SeriesFigures { sites: vec![site("a", &[("/x", 1), ("/y", 2)])], folded: 0 };
        figures.merge(&SeriesFigures {
            sites: vec![site("b", &[("/*", 4)]), site("a", &[("/*", 8), ("/y", 16)])],
            folded: 0,
        });
        figures.merge(&SeriesFigures { sites: vec![site("c", &[("/", 32), ("/z", 64)])], folded: 0 });
        assert_eq!(figures.total().requests(), 127);
        let names = |site: &str, routes: &[&str]| SeriesNames {
            site: site.into(),
            routes: routes.iter().map(|name| (*name).to_owned()).collect(),
        };
        figures.keep(&[names("b", &["/*"]), names("a", &["/*", "/y"])]);
        let row = |site: &str, route: &str, count| (site.to_owned(), route.to_owned(), count);
        assert_eq!(
            counts(&figures),
            [
                row("b", "/*", 4),
                row("a", "/*", 8),
                row("a", "/y", 18),
                row("a", OTHER, 1),
                row(OTHER, "-", 96)
            ]
        );
        // Once more it is the same.
        let once = figures.clone();
        figures.keep(&[names("b", &["/*"]), names("a", &["/*", "/y"])]);
        assert_eq!(figures.total(), once.total());
    }
}
