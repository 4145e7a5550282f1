//! Which requests an operator means: those of a site, a route, a client, and so on. For `tidegate tail`, of requests that have
//! ended, and `tidegate cancel`, of those under way.
//!
//! On its way to the workers a selection is text: `NAME=VALUE` for each condition, with tabs between them.

use crate::engine::Engine;
use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;
use tidegate_config::settings::Network;
use tidegate_io::socket::Peer;
use tidegate_stats::series::{NO_SITE, SeriesId};

/// Bytes of a name or a value, at most.
const VALUE: usize = 1024;
/// Ranges of status codes, at most.
const STATUSES: usize = 32;

/// All of it has to hold; what is not said holds for every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// A name of the site.
    pub site: Option<String>,
    /// The pattern of the route.
    pub route: Option<String>,
    /// Who asks.
    pub client: Option<Network>,
    /// As sent.
    pub method: Option<String>,
    /// Any of these.
    pub statuses: Vec<StatusRange>,
    /// It has taken so long, or longer.
    pub at_least: Option<Duration>,
    /// A part of the address of the application that was asked last.
    pub upstream: Option<String>,
}

/// Status codes from one to another, both included: `404`, `5xx`, `400-499`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

/// What is known of a request.
pub(crate) struct Candidate<'a> {
    pub series: SeriesId,
    pub client: Option<Peer>,
    /// Empty where it is not known.
    pub method: &'a str,
    pub status: Option<u16>,
    /// How long it has taken, nanoseconds.
    pub nanos: u64,
    /// Empty where nobody was asked, or it is not known.
    pub upstream: &'a str,
}

/// A selection as a worker goes by it, under the settings of one revision.
pub(crate) struct Selector {
    selection: Selection,
    /// Whose requests are meant; `None`: everybody's.
    series: Option<HashSet<u32>>,
}

impl Selection {
    /// Whether it is said of none that it is not meant.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }
}

impl Selector {
    pub(crate) fn new(selection: Selection, engine: &Engine) -> Selector {
        let mut selector = Selector { selection, series: None };
        selector.adopt(engine);
        selector
    }

    /// Other settings are in force.
    pub(crate) fn adopt(&mut self, engine: &Engine) {
        let Selection { site, route, .. } = &self.selection;
        self.series =
            (site.is_some() || route.is_some()).then(|| engine.series_of(site.as_deref(), route.as_deref()));
    }

    pub(crate) fn takes(&self, request: &Candidate<'_>) -> bool {
        let Selection { client, method, statuses, at_least, upstream, .. } = &self.selection;
        let is_of_client = |network: Network| match request.client {
            Some(Peer::Tcp(address)) => network.covers(Some(address.ip())),
            Some(Peer::Unix) => network.covers(None),
            None => false,
        };
        let has_status = |range: &StatusRange| {
            request.status.is_some_and(|status| (range.first..=range.last).contains(&status))
        };
        self.series.as_ref().is_none_or(|series| series.contains(&request.series.number()))
            && client.is_none_or(is_of_client)
            && method.as_ref().is_none_or(|method| method == request.method)
            && (statuses.is_empty() || statuses.iter().any(has_status))
            && at_least.is_none_or(|least| u128::from(request.nanos) >= least.as_nanos())
            && upstream.as_ref().is_none_or(|upstream| request.upstream.contains(upstream.as_str()))
    }
}

impl Engine {
    /// The numbers in statistics of a site and of a route, of all sites and routes where neither is named. A site goes by any
    /// of its names, or as reports call it.
    fn series_of(&self, site_name: Option<&str>, route_name: Option<&str>) -> HashSet<u32> {
        let mut found = HashSet::new();
        if site_name == Some(NO_SITE) && route_name.is_none() {
            found.insert(SeriesId::NONE.number());
        }
        self.each_site(|site, names| {
            let has_name = |name: &str| {
                let config = site.config();
                names.site == name || config.names.iter().any(|own| own.to_string() == name)
            };
            if !site_name.is_none_or(has_name) {
                return;
            }
            if route_name.is_none() {
                found.insert(site.series.unrouted().number());
            }
            for (index, (pattern, route)) in names.routes.iter().zip(&site.config().routes).enumerate() {
                let is_it = |name: &str| pattern == name || route.pattern.to_string() == name;
                if route_name.is_none_or(is_it) {
                    found.insert(site.series.of(index).number());
                }
            }
        });
        found
    }
}

impl Display for Selection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut pair = |name: &str, value: &dyn Display| {
            let written = write!(f, "{between}{name}={value}");
            between = "\t";
            written
        };
        for (name, value) in [("site", &self.site), ("route", &self.route), ("method", &self.method)] {
            if let Some(value) = value {
                pair(name, value)?;
            }
        }
        if let Some(client) = &self.client {
            pair("client", client)?;
        }
        for range in &self.statuses {
            pair("status", range)?;
        }
        if let Some(least) = &self.at_least {
            pair("at-least", &least.as_millis())?;
        }
        if let Some(upstream) = &self.upstream {
            pair("upstream", upstream)?;
        }
        Ok(())
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        let mut selection = Selection::default();
        for pair in text.split('\t').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(format!("`{pair}` is no condition of a request"));
            };
            if value.is_empty() || value.len() > VALUE || value.contains(char::is_control) {
                return Err(format!("{value:?} is no {name} of a request"));
            }
            match name {
                "site" => selection.site = Some(value.to_owned()),
                "route" => selection.route = Some(value.to_owned()),
                "method" => selection.method = Some(value.to_owned()),
                "client" => selection.client = Some(value.parse()?),
                "status" if selection.statuses.len() < STATUSES => selection.statuses.push(value.parse()?),
                "status" => return Err(format!("at most {STATUSES} statuses can be named")),
                "at-least" => {
                    let millis =
                        value.parse().map_err(|_| format!("`{value}` is no number of milliseconds"))?;
                    selection.at_least = Some(Duration::from_millis(millis));
                }
                "upstream" => selection.upstream = Some(value.to_owned()),
                _ => return Err(format!("the server knows no requests by their {name}")),
            }
        }
        Ok(selection)
    }
}

impl Display for StatusRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusRange, String> {
        let code = |text: &str| {
            let is_code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|code| is_code && (100..=599).contains(code))
        };
        let class = |text: &str| {
            let class: u16 = text.strip_suffix("xx").or(text.strip_suffix("XX"))?.parse().ok()?;
            (1..=5).contains(&class).then_some((class * 100, class * 100 + 99))
        };
        let range = match text.split_once('-') {
            Some((first, last)) => code(first).zip(code(last)).filter(|(first, last)| first <= last),
            None => class(text).or(code(text).map(|code| (code, code))),
        };
        match range {
            Some((first, last)) => Ok(StatusRange { first, last }),
            None => Err(format!(
                "`{text}` is no status: write a code such as 404, a class such as 5xx, or a range such as 400-499"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_survive_their_text() {
        let selection = Selection {
            site: Some("*.a.test".into()),
            route: Some("/a b/*".into()),
            client: Some("10.0.0.0/8".parse().unwrap()),
            method: Some("GET".into()),
            statuses: ["404", "5xx", "400-403"].map(|text| text.parse().unwrap()).to_vec(),
            at_least: Some(Duration::from_millis(1500)),
            upstream: Some("unix:/run/a=b.sock".into()),
        };
        assert_eq!(selection.to_string().parse(), Ok(selection.clone()));
        assert_eq!("".parse(), Ok(Selection::default()));
        assert!(Selection::default().is_everything() && !selection.is_everything());
        for wrong in ["site", "site=", "client=10", "status=9xx", "at-least=1s", "color=red", "site=\u{1b}"] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong}");
        }
        let many = "status=404\t".repeat(STATUSES + 1);
        assert!(many.parse::<Selection>().is_err(), "a bounded number of them");
    }

    #[test]
    fn statuses() {
        for (text, range) in [
            ("404", Some((404, 404))),
            ("5xx", Some((500, 599))),
            ("1XX", Some((100, 199))),
            ("400-499", Some((400, 499))),
            ("499-400", None),
            ("0xx", None),
            ("6xx", None),
            ("99", None),
            ("+40", None),
            ("600", None),
            ("", None),
            ("4x", None),
            ("400-", None),
        ] {
            let read = text.parse::<StatusRange>().ok().map(|range| (range.first, range.last));
            assert_eq!(read, range, "{text}");
        }
    }

    #[test]
    fn all_that_is_said_has_to_hold() {
        let request = Candidate {
            series: SeriesId::NONE,
            client: Some(Peer::Tcp("192.0.2.7:80".parse().unwrap())),
            method: "GET",
            status: Some(502),
            nanos: 1_500_000_000,
            upstream: "10.0.0.1:80",
        };
        for (text, is_taken) in [
            ("", true),
            ("client=192.0.2.0/24", true),
            ("client=192.0.2.8", false),
            ("client=unix", false),
            ("method=GET\tstatus=404\tstatus=5xx", true),
            ("method=HEAD\tstatus=5xx", false),
            ("status=404", false),
            ("at-least=1500", true),
            ("at-least=1501", false),
            ("upstream=10.0.0.1", true),
            ("upstream=10.0.0.2", false),
        ] {
            let selector = Selector { selection: text.parse().unwrap(), series: None };
            assert_eq!(selector.takes(&request), is_taken, "{text}");
        }
        let nobody = Selector { selection: Selection::default(), series: Some(HashSet::from([7])) };
        assert!(!nobody.takes(&request), "another site");
    }
}
