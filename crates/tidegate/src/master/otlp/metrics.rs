//! The metrics of the server as a message of OTLP: the families of the report for Prometheus, under names of OpenTelemetry.
//!
//! Counts are cumulative since the server started; histograms are exponential ones with the buckets in which they were counted.
//! How long requests took comes with the name and the attributes of the semantic conventions for HTTP servers
//! (`stats/series/conventions.rs`); everything else is `tidegate.` and what it is called for Prometheus, without the unit.

use super::resource::{self, Origin, id_of, scope, text};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::exemplar::Value as ExemplarValue;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use tidegate_stats::series::{REQUEST_DURATION, STATUS_CODE};
use tidegate_stats::{Exponential, Family, FamilyKind, Series};

/// Units by which names for Prometheus end, as UCUM has them.
const UNITS: [(&str, &str); 2] = [("_seconds", "s"), ("_bytes", "By")];

/// All of it, as of `now` (seconds since 1970, and nanoseconds).
pub(super) fn message(
    families: &[Family],
    origin: &Origin,
    service: &str,
    now: (i64, u32),
) -> ExportMetricsServiceRequest {
    let times = Times { start: nanos((origin.started, 0)), now: nanos(now) };
    let metrics = ScopeMetrics {
        scope: Some(scope()),
        metrics: families.iter().map(|family| metric(family, times)).collect(),
        ..ScopeMetrics::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(origin.resource(service)),
            scope_metrics: vec![metrics],
            ..ResourceMetrics::default()
        }],
    }
}

/// Nanoseconds since 1970: since when it was counted, and until when.
#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

fn nanos((seconds, nanos): (i64, u32)) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.into())
}

fn metric(family: &Family, times: Times) -> Metric {
    let (name, unit) = name_and_unit(&family.name);
    let numbers = || family.series.iter().map(|series| number(series, times)).collect();
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data = match family.kind {
        FamilyKind::Counter => {
            Data::Sum(Sum { data_points: numbers(), aggregation_temporality, is_monotonic: true })
        }
        FamilyKind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        FamilyKind::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
            data_points: family.series.iter().filter_map(|series| histogram(series, times)).collect(),
            aggregation_temporality,
        }),
    };
    Metric {
        name,
        description: family.help.clone(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn name_and_unit(name: &str) -> (String, &'static str) {
    if name == REQUEST_DURATION {
        return (name.to_owned(), "s");
    }
    let bare = name.strip_suffix("_total").unwrap_or(name);
    let unit = UNITS.iter().find(|(suffix, _)| bare.ends_with(suffix));
    let bare = unit.and_then(|(suffix, _)| bare.strip_suffix(suffix)).unwrap_or(bare);
    let name = format!("tidegate.{}", bare.strip_prefix("tidegate_").unwrap_or(bare));
    (name, unit.map_or("", |(_, unit)| unit))
}

fn number(series: &Series, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(series),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        value: Some(Number::AsDouble(series.value)),
        ..NumberDataPoint::default()
    }
}

fn histogram(series: &Series, times: Times) -> Option<ExponentialHistogramDataPoint> {
    let counted = series.histogram.as_ref()?;
    let exponential = counted.exponential.as_ref()?;
    Some(ExponentialHistogramDataPoint {
        attributes: attributes(series),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: counted.count,
        sum: Some(series.value),
        scale: exponential.schema.scale(),
        zero_count: exponential.zero_count,
        zero_threshold: Exponential::ZERO_THRESHOLD,
        positive: buckets(exponential),
        exemplars: counted.exemplars.iter().filter_map(|(_, exemplar)| told(exemplar)).collect(),
        ..ExponentialHistogramDataPoint::default()
    })
}

/// A sampled request that stands for its bucket; `None` where its ids are none.
fn told(exemplar: &tidegate_stats::series::Exemplar) -> Option<Exemplar> {
    Some(Exemplar {
        time_unix_nano: exemplar.at.saturating_mul(1_000_000),
        trace_id: id_of(&exemplar.trace_id, 16)?,
        span_id: id_of(&exemplar.span_id, 8)?,
        value: Some(ExemplarValue::AsDouble(exemplar.seconds())),
        ..Exemplar::default()
    })
}

/// All buckets from the first to the last that holds something. The one that ends at base to the power of `n` is `n - 1` here.
fn buckets(exponential: &Exponential) -> Option<Buckets> {
    let (first, _) = *exponential.buckets.first()?;
    let mut counts = Vec::new();
    for (index, count) in &exponential.buckets {
        // There are at most some hundred buckets.
        counts.resize(usize::try_from(index - first).ok()?, 0);
        counts.push(*count);
    }
    Some(Buckets { offset: first - 1, bucket_counts: counts })
}

/// A status code is a number, and everything else a text.
fn attributes(series: &Series) -> Vec<KeyValue> {
    let named = |(label, value): &(String, String)| match value.parse() {
        Ok(status) if label == STATUS_CODE => resource::number(label, status),
        _ => text(label, value),
    };
    series.labels.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_stats::{Buckets as Counts, Schema};

    fn family(name: &str, kind: FamilyKind, histogram: Option<Counts>) -> Family {
        let labels = vec![("site".to_owned(), "a.test".to_owned()), ("route".to_owned(), "/*".to_owned())];
        let series = vec![Series { labels, value: 2.5, histogram }];
        Family { name: name.to_owned(), help: "Help.".to_owned(), kind, series }
    }

    fn told(family: &Family) -> Metric {
        let origin = Origin::new(7);
        let message = message(std::slice::from_ref(family), &origin, "web", (9, 5));
        let resource = message.resource_metrics[0].resource.as_ref().unwrap();
        assert_eq!(resource.attributes[0], text("service.name", "web"));
        message.resource_metrics[0].scope_metrics[0].metrics[0].clone()
    }

    #[test]
    fn names_units_and_values() {
        for (name, kind, expected, unit) in [
            ("tidegate_requests_total", FamilyKind::Counter, "tidegate.requests", ""),
            ("tidegate_response_bytes_total", FamilyKind::Counter, "tidegate.response", "By"),
            ("tidegate_connections", FamilyKind::Gauge, "tidegate.connections", ""),
        ] {
            let metric = told(&family(name, kind, None));
            assert_eq!((metric.name.as_str(), metric.unit.as_str()), (expected, unit));
            let (points, is_monotonic) = match metric.data.unwrap() {
                Data::Sum(sum) => (sum.data_points, sum.is_monotonic && sum.aggregation_temporality == 2),
                Data::Gauge(gauge) => (gauge.data_points, false),
                other => panic!("{other:?}"),
            };
            assert_eq!(is_monotonic, kind == FamilyKind::Counter);
            assert_eq!(points[0].value, Some(Number::AsDouble(2.5)));
            assert_eq!(
                (points[0].start_time_unix_nano, points[0].time_unix_nano),
                (7_000_000_000, 9_000_000_005)
            );
            assert_eq!(points[0].attributes[0], text("site", "a.test"));
        }
    }

    #[test]
    fn buckets_are_dense_and_one_lower() {
        let exponential =
            Exponential { schema: Schema::Coarse, zero_count: 1, buckets: vec![(-2, 3), (0, 4), (1, 5)] };
        let exponential = Some(exponential);
        let counts = Counts { count: 13, exponential, ..Counts::default() };
        let mut family = family(REQUEST_DURATION, FamilyKind::Histogram, Some(counts));
        family.series[0].labels.push((STATUS_CODE.to_owned(), "204".to_owned()));
        let metric = told(&family);
        assert_eq!((metric.name.as_str(), metric.unit.as_str()), ("http.server.request.duration", "s"));
        let Some(Data::ExponentialHistogram(histogram)) = metric.data else { panic!("{metric:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum, point.scale, point.zero_count), (13, Some(2.5), 3, 1));
        let positive = point.positive.as_ref().unwrap();
        assert_eq!((positive.offset, &positive.bucket_counts[..]), (-3, &[3, 0, 4, 5][..]));
        assert_eq!(point.attributes[1..], [text("route", "/*"), resource::number(STATUS_CODE, 204)]);
    }
}
