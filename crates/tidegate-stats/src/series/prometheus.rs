//! Sites and routes for Prometheus: every metric with the labels `site` and `route`.
//!
//! The number of series is bounded: beyond a number of sites, routes, and routes with histograms, all are [`OTHER`]. Which
//! have room is said by their place in the settings, so that a series never changes its name because another one is busy.
//! Requests that came to no route of their site have the route [`UNROUTED`].

use super::{NO_SITE, OTHER, RouteFigures, SeriesFigures};
use crate::exposition::{Exposition, Schema};
use crate::histogram::Distribution;
use crate::prometheus::{escape_label, family};
use std::fmt::Write;

/// Sites that are told apart.
const SITES: u32 = 1_000;
/// Routes that are told apart, of all sites together.
const ROUTES: u32 = 5_000;
/// Routes whose times are.
const TIMED: u32 = 200;
/// What stands in the place of a route where a request came to none.
pub(super) const UNROUTED: &str = "_none";

/// The figures of a site and route, or of several that have no room.
pub(super) struct Row {
    pub(super) site: String,
    pub(super) route: String,
    labels: String,
    pub(super) figures: RouteFigures,
}

impl Row {
    fn new(site: &str, route: &str, figures: RouteFigures) -> Row {
        let labels = format!("site=\"{}\",route=\"{}\"", escape_label(site), escape_label(route));
        Row { site: site.to_owned(), route: route.to_owned(), labels, figures }
    }
}

impl SeriesFigures {
    /// Appends the families of metrics of sites and routes in the text exposition format.
    pub fn write_prometheus(&self, out: &mut Exposition) {
        let text = &mut out.text;
        let counted = self.rows(ROUTES);
        let name = "tidegate_requests_total";
        family(text, name, "counter", "Requests that have ended, by class of their status; 1xx are tunnels.");
        for Row { labels, figures, .. } in &counted {
            write_classes(text, name, labels, figures);
        }
        type Count = fn(&RouteFigures) -> u64;
        let counts: [(&str, &str, Count); 3] = [
            ("tidegate_request_bytes_total", "Bytes of the heads and content of requests.", |figures| {
                figures.received
            }),
            ("tidegate_response_bytes_total", "Bytes of heads and content that were sent.", |figures| {
                figures.sent
            }),
            (
                "tidegate_requests_handed_on_total",
                "Requests of the server's own, on behalf of clients.",
                |figures| figures.handed_on,
            ),
        ];
        for (name, help, count) in counts {
            family(text, name, "counter", help);
            for Row { labels, figures, .. } in &counted {
                let _ = writeln!(text, "{name}{{{labels}}} {}", count(figures));
            }
        }
        let timed = self.timed();
        write_kinds(text, &timed);
        for phase in 0..RouteFigures::default().times.rows().len() {
            let (name, help, _) = RouteFigures::default().times.rows()[phase];
            let name = format!("tidegate_request_{name}_seconds");
            let has_any = timed.iter().any(|row| !row.figures.times.rows()[phase].2.is_empty());
            if has_any {
                family(&mut out.text, &name, "histogram", help);
            }
            for Row { labels, figures, .. } in timed.iter().filter(|_| has_any) {
                write_histogram(out, &name, labels, figures.times.rows()[phase].2);
                // Of what the whole request took, which is the first of them.
                for exemplar in figures.exemplars.iter().filter(|_| phase == 0) {
                    out.exemplar(&name, labels, exemplar);
                }
            }
        }
        let text = &mut out.text;
        let name = "tidegate_times_folded_total";
        family(
            text,
            name,
            "counter",
            "Times that are told of a site, since its route could have no histogram.",
        );
        let _ = writeln!(text, "{name} {}", self.folded);
    }

    /// Those whose times are told apart.
    pub(super) fn timed(&self) -> Vec<Row> {
        self.rows(TIMED)
    }

    /// With at most so many routes told apart.
    fn rows(&self, most: u32) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut rest = RouteFigures::default();
        for site in &self.sites {
            let is_of_settings = site.name != NO_SITE && site.name != OTHER;
            if site.name == OTHER || (is_of_settings && site.place >= SITES) {
                rest.merge(&site.total());
                continue;
            }
            let mut others = RouteFigures::default();
            if !site.unrouted.is_empty() {
                rows.push(Row::new(&site.name, UNROUTED, site.unrouted.clone()));
            }
            for (name, figures) in &site.routes {
                if name == OTHER || figures.place >= most {
                    others.merge(figures);
                } else {
                    rows.push(Row::new(&site.name, name, figures.clone()));
                }
            }
            if !others.is_empty() {
                rows.push(Row::new(&site.name, OTHER, others));
            }
        }
        if !rest.is_empty() {
            rows.push(Row::new(OTHER, OTHER, rest));
        }
        rows
    }
}

/// Appends the families of performance buckets, by name.
pub fn write_buckets(out: &mut Exposition, buckets: &[(String, RouteFigures)]) {
    let text = &mut out.text;
    let labels = |name: &str| format!("bucket=\"{}\"", escape_label(name));
    let name = "tidegate_bucket_requests_total";
    family(
        text,
        name,
        "counter",
        "Requests of a performance bucket that have ended, by class of their status.",
    );
    for (bucket, figures) in buckets {
        write_classes(text, name, &labels(bucket), figures);
    }
    let name = "tidegate_bucket_duration_seconds";
    if buckets.iter().any(|(_, figures)| !figures.times.total.is_empty()) {
        family(text, name, "histogram", "How long requests of a performance bucket took.");
    }
    for (bucket, figures) in buckets {
        write_histogram(out, name, &labels(bucket), &figures.times.total);
    }
}

/// A sample for each class of what was asked for: one that begins with the first error has no increase in the eyes of Prometheus.
/// What is no tunnel needs none for 1xx.
fn write_classes(text: &mut String, name: &str, labels: &str, figures: &RouteFigures) {
    let was_asked = figures.requests() > 0;
    for (class, count) in (1..).zip(figures.answers) {
        if count > 0 || (was_asked && class > 1) {
            let _ = writeln!(text, "{name}{{{labels},class=\"{class}xx\"}} {count}");
        }
    }
}

/// How often each kind of request was answered with which status code. What there was no room for to be told apart has
/// [`OTHER`] for what is not known of it.
fn write_kinds(text: &mut String, rows: &[Row]) {
    let name = "tidegate_requests_by_method_total";
    if rows.iter().any(|row| !row.figures.by_kind.is_empty()) {
        family(
            text,
            name,
            "counter",
            "Requests that have ended, by method, scheme, version of HTTP and status code.",
        );
    }
    for Row { labels, figures, .. } in rows {
        for (key, times) in &figures.by_kind {
            let (method, scheme, count) = (key.method(), key.scheme(), times.count());
            let protocol = key.version().unwrap_or(OTHER);
            let code = key.status().map_or_else(|| OTHER.to_owned(), |status| status.to_string());
            let _ = writeln!(
                text,
                "{name}{{{labels},method=\"{method}\",scheme=\"{scheme}\",protocol=\"{protocol}\",code=\"{code}\"}} {count}"
            );
        }
    }
}

/// The samples of a histogram with these labels; nothing where it is empty.
fn write_histogram(out: &mut Exposition, name: &str, labels: &str, times: &Distribution) {
    if !times.is_empty() {
        out.histogram(name, labels, times, Schema::Coarse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{SeriesNames, SiteFigures};

    fn figures(count: u64) -> RouteFigures {
        RouteFigures { answers: [0, count, 0, 0, 0], ..RouteFigures::default() }
    }

    #[test]
    fn names_are_escaped() {
        let site = SiteFigures {
            name: "a.test".into(),
            routes: vec![("regex=\"\\.php$\"".into(), figures(3))],
            ..SiteFigures::default()
        };
        let mut out = Exposition::default();
        SeriesFigures { sites: vec![site], folded: 0 }.write_prometheus(&mut out);
        let text = out.text;
        let line = r#"tidegate_requests_total{site="a.test",route="regex=\"\\.php$\"",class="2xx"} 3"#;
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn what_was_asked_for_tells_the_errors_that_it_has_not_had() {
        let named = |name: &str, count| (name.to_owned(), figures(count));
        let site = SiteFigures {
            name: "a.test".into(),
            routes: vec![named("/asked", 7), named("/never", 0)],
            ..SiteFigures::default()
        };
        let mut out = Exposition::default();
        SeriesFigures { sites: vec![site], folded: 0 }.write_prometheus(&mut out);
        write_buckets(&mut out, &[("shop".to_owned(), figures(7))]);
        for labels in
            ["requests_total{site=\"a.test\",route=\"/asked\"", "bucket_requests_total{bucket=\"shop\""]
        {
            for (class, count) in [(2, 7), (3, 0), (4, 0), (5, 0)] {
                let line = format!("tidegate_{labels},class=\"{class}xx\"}} {count}\n");
                assert!(out.text.contains(&line), "{line}{}", out.text);
            }
        }
        assert!(
            !out.text.contains("class=\"1xx\"") && !out.text.contains("\"/never\",class"),
            "{}",
            out.text
        );
    }

    #[test]
    fn the_number_of_series_is_bounded_and_none_is_lost() {
        let names: Vec<SeriesNames> = (0..1200)
            .map(|site| SeriesNames {
                site: format!("{site}.test"),
                routes: (0..6).map(|route| format!("/{route}")).collect(),
            })
            .collect();
        let site = |names: &SeriesNames| SiteFigures {
            name: names.site.clone(),
            routes: names.routes.iter().map(|route| (route.clone(), figures(1))).collect(),
            ..SiteFigures::default()
        };
        let mut all = SeriesFigures { sites: names.iter().rev().map(site).collect(), folded: 0 };
        all.keep(&names);
        let mut out = Exposition::default();
        all.write_prometheus(&mut out);
        let text = out.text;
        let counts: Vec<(&str, u64)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("tidegate_requests_total"))
            .map(|line| {
                line.rsplit_once(' ').map(|(labels, count)| (labels, count.parse().unwrap())).unwrap()
            })
            .collect();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 7200);
        assert!(counts.len() <= 4 * ((SITES + ROUTES) as usize + 1), "{}", counts.len());
        assert!(counts.contains(&("{site=\"0.test\",route=\"/5\",class=\"2xx\"}", 1)));
        assert!(counts.contains(&("{site=\"_other\",route=\"_other\",class=\"2xx\"}", 1200)));
        // Another one that has counted changes nobody's name.
        all.sites.remove(0);
        let mut fewer = Exposition::default();
        all.write_prometheus(&mut fewer);
        let of_other = |text: &str| {
            text.lines().filter(|line| line.contains("_other")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of_other(&text), of_other(&fewer.text));
    }
}
