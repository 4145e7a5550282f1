//! The report for Prometheus in the protobuf exposition format: the families of the text, and with them the histograms as they
//! were counted, as native ones.
//!
//! The messages are those of `io/prometheus/client/metrics.proto` of `client_model` that are needed here, with its numbers. See
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#protobuf-format>.

use crate::exposition::{Exponential, Family, FamilyKind, Series};
use crate::series::Exemplar;
use prost::Message;

/// The media type of [`protobuf`].
pub const PROTOBUF_CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Families as messages, each behind its length.
pub fn protobuf(families: &[Family]) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families {
        // A vector has room for all that is put there.
        let _ = MetricFamily::of(family).encode_length_delimited(&mut out);
    }
    out
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Value>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Value>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

/// `Gauge` and `Counter`, which are alike as far as they are used.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<ExemplarMessage>,
}

/// `Exemplar`.
#[derive(Clone, PartialEq, Message)]
struct ExemplarMessage {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    /// From the end of the span before; of the first one from zero.
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

impl MetricFamily {
    fn of(family: &Family) -> MetricFamily {
        let kind = match family.kind {
            FamilyKind::Counter => MetricType::Counter,
            FamilyKind::Gauge => MetricType::Gauge,
            FamilyKind::Histogram => MetricType::Histogram,
        };
        MetricFamily {
            name: Some(family.name.clone()),
            help: Some(family.help.clone()),
            kind: Some(kind.into()),
            metric: family.series.iter().map(|series| Metric::of(family.kind, series)).collect(),
        }
    }
}

impl Metric {
    fn of(kind: FamilyKind, series: &Series) -> Metric {
        let pair = |(name, value): &(String, String)| LabelPair::of(name, value);
        let value = |of| (kind == of).then_some(Value { value: Some(series.value) });
        Metric {
            label: series.labels.iter().map(pair).collect(),
            gauge: value(FamilyKind::Gauge),
            counter: value(FamilyKind::Counter),
            histogram: Histogram::of(series),
        }
    }
}

impl LabelPair {
    fn of(name: &str, value: &str) -> LabelPair {
        LabelPair { name: Some(name.to_owned()), value: Some(value.to_owned()) }
    }
}

impl ExemplarMessage {
    fn of(exemplar: &Exemplar) -> ExemplarMessage {
        let Exemplar { trace_id, span_id, at, .. } = exemplar;
        let timestamp = Timestamp { seconds: (at / 1000) as i64, nanos: (at % 1000) as i32 * 1_000_000 };
        ExemplarMessage {
            label: vec![LabelPair::of("trace_id", trace_id), LabelPair::of("span_id", span_id)],
            value: Some(exemplar.seconds()),
            timestamp: Some(timestamp),
        }
    }
}

impl Histogram {
    fn of(series: &Series) -> Option<Histogram> {
        let buckets = series.histogram.as_ref()?;
        let classic = |(bound, count): &(f64, u64)| Bucket {
            cumulative_count: Some(*count),
            upper_bound: Some(*bound),
            exemplar: buckets
                .exemplars
                .iter()
                .find(|(of, _)| of == bound)
                .map(|(_, exemplar)| ExemplarMessage::of(exemplar)),
        };
        let mut histogram = Histogram {
            sample_count: Some(buckets.count),
            sample_sum: Some(series.value),
            bucket: buckets.cumulative.iter().map(classic).collect(),
            ..Histogram::default()
        };
        if let Some(exponential) = &buckets.exponential {
            histogram.add_native(exponential);
        }
        Some(histogram)
    }

    fn add_native(&mut self, exponential: &Exponential) {
        self.schema = Some(exponential.schema.scale());
        self.zero_threshold = Some(Exponential::ZERO_THRESHOLD);
        self.zero_count = Some(exponential.zero_count);
        let (mut end, mut before) = (0, 0u64);
        for (index, count) in &exponential.buckets {
            match self.positive_span.last_mut().filter(|_| end == *index) {
                Some(span) => span.length = span.length.map(|length| length + 1),
                None => {
                    self.positive_span.push(BucketSpan { offset: Some(index - end), length: Some(1) });
                }
            }
            self.positive_delta.push(count.wrapping_sub(before) as i64);
            (end, before) = (index + 1, *count);
        }
        if self.positive_span.is_empty() {
            // An empty span tells a native histogram without a count from a classic one.
            self.positive_span.push(BucketSpan { offset: Some(0), length: Some(0) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Buckets, Schema};

    #[test]
    fn buckets_become_spans_and_differences() {
        let spans = |buckets: &[(i32, u64)]| {
            let mut histogram = Histogram::default();
            let (buckets, schema) = (buckets.to_vec(), Schema::Coarse);
            histogram.add_native(&Exponential { schema, zero_count: 2, buckets });
            let spans: Vec<_> =
                histogram.positive_span.iter().map(|span| (span.offset(), span.length())).collect();
            assert_eq!((histogram.schema, histogram.zero_count), (Some(3), Some(2)));
            (spans, histogram.positive_delta)
        };
        assert_eq!(
            spans(&[(-5, 3), (-4, 1), (0, 7), (1, 7), (9, 1)]),
            (vec![(-5, 2), (3, 2), (7, 1)], vec![3, -2, 6, 0, -6])
        );
        assert_eq!(spans(&[(0, 1)]), (vec![(0, 1)], vec![1]));
        assert_eq!(spans(&[]), (vec![(0, 0)], vec![]));
    }

    #[test]
    fn a_bucket_has_its_exemplar() {
        let key = Default::default();
        let exemplar = Exemplar {
            bucket: 14,
            trace_id: "a".into(),
            span_id: "b".into(),
            at: 2_003,
            nanos: 500_000_000,
            key,
        };
        let buckets = Buckets {
            count: 1,
            cumulative: vec![(0.5, 0), (1.0, 1)],
            exponential: None,
            exemplars: vec![(1.0, exemplar)],
        };
        let series = Series { labels: Vec::new(), value: 0.5, histogram: Some(buckets) };
        let told = Histogram::of(&series).unwrap().bucket;
        assert_eq!(told[0].exemplar, None);
        let exemplar = told[1].exemplar.as_ref().unwrap();
        let labels: Vec<_> = exemplar.label.iter().map(|pair| (pair.name(), pair.value())).collect();
        assert_eq!(labels, [("trace_id", "a"), ("span_id", "b")]);
        assert_eq!(
            (exemplar.value, exemplar.timestamp.clone()),
            (Some(0.5), Some(Timestamp { seconds: 2, nanos: 3_000_000 }))
        );
    }

    /// As the wire format of protocol buffers has them.
    #[test]
    fn the_bytes_of_a_family() {
        let series = |labels: &[(&str, &str)], value, histogram| Series {
            labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            value,
            histogram,
        };
        let exponential = Exponential { schema: Schema::Fine, zero_count: 0, buckets: vec![(-1, 1)] };
        let buckets = Buckets {
            count: 1,
            cumulative: vec![(1.0, 1)],
            exponential: Some(exponential),
            ..Buckets::default()
        };
        let families = [
            Family {
                name: "a".into(),
                help: "b".into(),
                kind: FamilyKind::Counter,
                series: vec![series(&[("x", "y")], 1.0, None)],
            },
            Family {
                name: "h".into(),
                help: String::new(),
                kind: FamilyKind::Histogram,
                series: vec![series(&[], 0.5, Some(buckets))],
            },
        ];
        let counter = b"\x1d\x0a\x01a\x12\x01b\x18\x00\x22\x13\x0a\x06\x0a\x01x\x12\x01y\x1a\x09\x09\0\0\0\0\0\0\xf0\x3f";
        let histogram = b"\x38\x0a\x01h\x12\x00\x18\x04\x22\x2f\x3a\x2d\x08\x01\x11\0\0\0\0\0\0\xe0\x3f\
            \x1a\x0b\x08\x01\x11\0\0\0\0\0\0\xf0\x3f\x28\x08\x31\0\0\0\0\0\0\xb0\x3e\x38\x00\x62\x04\x08\x01\x10\x01\x68\x02";
        assert_eq!(protobuf(&families), [&counter[..], histogram].concat());
    }
}
