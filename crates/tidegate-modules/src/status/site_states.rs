//! What each site is and how it does, for the admin API: its settings in short, when its certificate ends, what it has counted, and
//! what was found of it.

use super::report::date;
use super::{CertificateInfo, Finding};
use serde_json::{Value, json};
use std::collections::HashMap;
use tidegate_config::Settings;
use tidegate_stats::series::{RouteFigures, SeriesFigures, SeriesNames, SiteFigures};

/// What the settings say of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteState {
    /// What it and its routes are called in statistics.
    pub series: SeriesNames,
    /// The hosts that it answers for; none for the one that answers for all others.
    pub names: Vec<String>,
    /// The listeners that it answers on; none for all.
    pub listeners: Vec<String>,
    /// Why it is not served.
    pub left_out: Option<String>,
}

impl SiteState {
    /// Of all sites of a revision, by what they are called in statistics.
    pub fn of(settings: &Settings, series: &[SeriesNames]) -> Vec<SiteState> {
        let sites = settings.sites.iter().zip(series);
        let state =
            |(site, series): (&std::sync::Arc<tidegate_config::settings::Site>, &SeriesNames)| SiteState {
                series: series.clone(),
                names: site.names.iter().map(ToString::to_string).collect(),
                listeners: site.bound.iter().map(ToString::to_string).collect(),
                left_out: site.left_out.clone(),
            };
        sites.map(state).collect()
    }

    /// When the first certificate ends that is good for one of its names, seconds since 1970.
    fn certificate_ends(&self, ends: &HashMap<&str, i64>) -> Option<i64> {
        let of = |name: &String| {
            let above = name.split_once('.').map(|(_, above)| format!("*.{above}"));
            let exact = ends.get(name.as_str()).copied();
            exact.or_else(|| ends.get(above?.as_str()).copied())
        };
        self.names.iter().filter_map(of).min()
    }
}

/// All of them, as JSON.
pub fn sites_report(
    states: &[SiteState],
    series: &SeriesFigures,
    certificates: &[CertificateInfo],
    findings: &[Finding],
) -> String {
    let counted: HashMap<&str, &SiteFigures> =
        series.sites.iter().map(|site| (site.name.as_str(), site)).collect();
    let mut ends: HashMap<&str, i64> = HashMap::new();
    for (name, end) in
        certificates.iter().flat_map(|info| info.names.iter().map(|name| (name, info.not_after)))
    {
        let Some(end) = end else { continue };
        ends.entry(name).and_modify(|known| *known = end.min(*known)).or_insert(end);
    }
    let nothing = SiteFigures::default();
    let one = |state: &SiteState| {
        let SeriesNames { site: name, routes } = &state.series;
        let site = counted.get(name.as_str()).copied().unwrap_or(&nothing);
        let by_route: HashMap<&str, &RouteFigures> =
            site.routes.iter().map(|(name, figures)| (name.as_str(), figures)).collect();
        let route = |route: &String| {
            let none = RouteFigures::default();
            let mut told = figures(by_route.get(route.as_str()).copied().unwrap_or(&none));
            told["route"] = json!(route);
            told
        };
        let is_of_it = |finding: &&Finding| {
            let rest = finding.subject.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let found = findings.iter().filter(is_of_it);
        let mut told = figures(&site.total());
        told["name"] = json!(name);
        told["names"] = json!(state.names);
        told["listeners"] = json!(state.listeners);
        told["routes"] = routes.iter().map(route).collect();
        told["certificate_ends"] = json!(state.certificate_ends(&ends).map(date));
        told["left_out"] = json!(state.left_out);
        told["findings"] =
            found.map(|found| json!({ "name": found.name, "subject": found.subject })).collect();
        told
    };
    let sites: Vec<Value> = states.iter().map(one).collect();
    format!("{}\n", json!({ "sites": sites }))
}

fn figures(of: &RouteFigures) -> Value {
    json!({ "requests": of.requests(), "client_errors": of.class(4), "server_errors": of.class(5), "sent_bytes": of.sent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_and_what_belongs_to_it() {
        let state = |name: &str, left_out: Option<&str>| SiteState {
            series: SeriesNames { site: name.into(), routes: vec!["/x".into(), "/*".into()] },
            names: vec![name.into()],
            listeners: Vec::new(),
            left_out: left_out.map(str::to_owned),
        };
        let states = [state("a.test", None), state("b.a.test", Some("its root is gone"))];
        let counted = RouteFigures { answers: [0, 5, 0, 2, 1], sent: 70, ..RouteFigures::default() };
        let site = SiteFigures {
            name: "a.test".into(),
            routes: vec![("/x".into(), counted)],
            ..SiteFigures::default()
        };
        let series = SeriesFigures { sites: vec![site], folded: 0 };
        let certificate = |names: &[&str], end| CertificateInfo {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_after: Some(end),
            ..CertificateInfo::default()
        };
        let certificates = [certificate(&["a.test", "*.a.test"], 100), certificate(&["a.test"], 60)];
        let finding = |subject: &str| Finding {
            name: "application-slow".into(),
            subject: subject.into(),
            ..Finding::default()
        };
        let findings = [finding("a.test /x"), finding("a.testing /x"), finding("the server")];
        let told = sites_report(&states, &series, &certificates, &findings);
        let told: Value = serde_json::from_str(&told).unwrap();
        let [a, b] = [&told["sites"][0], &told["sites"][1]];
        assert_eq!(
            (&a["requests"], &a["client_errors"], &a["server_errors"]),
            (&json!(8), &json!(2), &json!(1))
        );
        assert_eq!((&a["routes"][0]["requests"], &a["routes"][1]["requests"]), (&json!(8), &json!(0)));
        assert_eq!(a["findings"], json!([{ "name": "application-slow", "subject": "a.test /x" }]));
        assert_eq!((&a["certificate_ends"], &b["certificate_ends"]), (&json!(date(60)), &json!(date(100))));
        assert_eq!((&a["left_out"], &b["left_out"]), (&Value::Null, &json!("its root is gone")));
        assert_eq!((&b["requests"], &b["findings"]), (&json!(0), &json!([])));
    }
}
