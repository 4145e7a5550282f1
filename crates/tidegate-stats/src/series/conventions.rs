//! How long requests took, by the semantic conventions of OpenTelemetry for HTTP servers: a histogram for each kind of request and
//! answer of a route.
//!
//! For those who push metrics (`master/otlp/`); Prometheus is told how many there were of each. The number of series is bounded as that
//! of histograms there. See <https://opentelemetry.io/docs/specs/semconv/http/http-metrics/#metric-httpserverrequestduration>.

use super::answer::AnswerKey;
use super::prometheus::UNROUTED;
use super::{OTHER, RouteFigures, SeriesFigures};
use crate::exposition::{Buckets, Exponential, Family, FamilyKind, Schema, Series};
use crate::histogram::Distribution;

/// What the conventions call the family.
pub const REQUEST_DURATION: &str = "http.server.request.duration";
/// Its one attribute that is a number; all others are texts.
pub const STATUS_CODE: &str = "http.response.status_code";

impl SeriesFigures {
    /// The metric `http.server.request.duration`, seconds, with the attributes of the conventions as labels.
    pub fn request_duration(&self) -> Family {
        let rows = self.timed();
        let series = rows.iter().flat_map(|row| {
            let kinds = row.figures.by_kind.iter();
            kinds.map(|(key, times)| told(&row.site, &row.route, &row.figures, *key, times))
        });
        Family {
            name: REQUEST_DURATION.to_owned(),
            help: "Duration of HTTP server requests.".to_owned(),
            kind: FamilyKind::Histogram,
            series: series.collect(),
        }
    }
}

fn told(site: &str, route: &str, figures: &RouteFigures, key: AnswerKey, times: &Distribution) -> Series {
    let exemplars = figures.exemplars.iter().filter(|exemplar| exemplar.key == key);
    let histogram = Buckets {
        count: times.count(),
        exponential: Some(Exponential::of(times, Schema::Coarse)),
        exemplars: exemplars.map(|exemplar| (exemplar.seconds(), exemplar.clone())).collect(),
        ..Buckets::default()
    };
    let value = times.sum_nanos() as f64 / 1e9;
    Series { labels: attributes(site, route, key), value, histogram: Some(histogram) }
}

/// What is not known has no attribute. Who has got an error has met one of the server's or its applications' where the status is 5xx.
fn attributes(site: &str, route: &str, key: AnswerKey) -> Vec<(String, String)> {
    let status = key.status().map(|status| status.to_string());
    let error = status.clone().filter(|_| key.status().is_some_and(|status| status >= 500));
    let route = (route != UNROUTED && route != OTHER).then(|| route.to_owned());
    let all = [
        ("server.address", Some(site.to_owned())),
        ("http.route", route),
        ("http.request.method", Some(key.method().to_owned())),
        ("url.scheme", Some(key.scheme().to_owned())),
        ("network.protocol.version", key.version().map(str::to_owned)),
        (STATUS_CODE, status),
        ("error.type", error),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{RequestKind, SiteFigures};

    #[test]
    fn what_the_conventions_require_is_told() {
        let times = Distribution::of([(320, 3)], 7_500_000_000);
        let mut figures = RouteFigures::default();
        figures.add_kind(AnswerKey::new(RequestKind::new(2, 2, true), 503), &times);
        let mut unrouted = RouteFigures::default();
        unrouted.add_kind(AnswerKey::new(RequestKind::UNKNOWN, 400).rest(), &times);
        let site = SiteFigures {
            name: "a.test".into(),
            unrouted: RouteFigures { handed_on: 1, ..unrouted },
            routes: vec![("/x".into(), figures)],
            ..SiteFigures::default()
        };
        let family = SeriesFigures { sites: vec![site], folded: 0 }.request_duration();
        let [rest, post] = &family.series[..] else { panic!("{family:?}") };
        let labels = |series: &Series| {
            let all = series.labels.iter().map(|(name, value)| format!("{name}={value}"));
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            labels(post),
            "server.address=a.test http.route=/x http.request.method=POST url.scheme=https network.protocol.version=2 \
             http.response.status_code=503 error.type=503"
        );
        assert_eq!(labels(rest), "server.address=a.test http.request.method=_OTHER url.scheme=http");
        let histogram = post.histogram.as_ref().unwrap();
        assert_eq!((post.value, histogram.count), (7.5, 3));
    }
}
