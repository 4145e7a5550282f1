//! The report for Prometheus as data: the families that the text has, and beside it the histograms as they were counted.
//!
//! All that is told to programs of metrics is said once, as text; [`Exposition`] also keeps each histogram that was written
//! to it, with all its buckets. What has no text ([`protobuf`](super::protobuf()), and whoever pushes metrics) reads
//! [`Exposition::families`]. The text is our own, so its lines are known to be well-formed; one that is not is left out.

use crate::exponential::PER_OCTAVE;
use crate::histogram::Distribution;
use crate::json::Seconds;
use crate::prometheus::BOUNDS;
use crate::series::Exemplar;
use std::collections::HashMap;
use std::fmt::Write;

/// Octaves below a second at which buckets begin.
const FIRST_OCTAVE: i32 = -20;

/// A report that is being written.
#[derive(Debug, Default)]
pub struct Exposition {
    /// In the text exposition format 0.0.4.
    pub text: String,
    /// By the name and the labels of the text.
    histograms: HashMap<(String, String), Exponential>,
    /// By the name and the labels of a bucket, as the text has them.
    exemplars: HashMap<String, Exemplar>,
}

/// How finely a histogram was counted, as the schema of native histograms and the scale of exponential ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// Eight buckets to each power of two: those of sites and routes.
    Coarse,
    /// Sixteen: those of the server.
    Fine,
}

impl Schema {
    /// The base of the buckets is 2 to the power of 2 to the power of minus this.
    pub fn scale(self) -> i32 {
        match self {
            Schema::Coarse => 3,
            Schema::Fine => 4,
        }
    }
}

/// A histogram whose buckets grow exponentially.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exponential {
    /// How finely.
    pub schema: Schema,
    /// What is shorter than [`Exponential::ZERO_THRESHOLD`].
    pub zero_count: u64,
    /// Index and count of those that hold something, in order. Bucket `n` ends at base to the power of `n`, as in Prometheus;
    /// in OpenTelemetry that one is `n - 1`.
    pub buckets: Vec<(i32, u64)>,
}

impl Exponential {
    /// Seconds: 0.95 microseconds.
    pub const ZERO_THRESHOLD: f64 = 1.0 / (1u32 << 20) as f64;

    pub(crate) fn of(times: &Distribution, schema: Schema) -> Exponential {
        let per_octave = match schema {
            Schema::Coarse => PER_OCTAVE / 2,
            Schema::Fine => PER_OCTAVE,
        };
        let mut histogram = Exponential { schema, zero_count: 0, buckets: Vec::new() };
        for (bucket, count) in times.numbered() {
            if bucket == 0 {
                histogram.zero_count = count;
                continue;
            }
            let index = bucket.div_ceil(PER_OCTAVE / per_octave) as i32 + FIRST_OCTAVE * per_octave as i32;
            match histogram.buckets.last_mut().filter(|(last, _)| *last == index) {
                Some((_, known)) => *known = known.wrapping_add(count),
                None => histogram.buckets.push((index, count)),
            }
        }
        histogram
    }
}

/// A metric, with all that is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// As in the text: with `_total` behind that of a counter.
    pub name: String,
    /// What it means.
    pub help: String,
    /// What it is.
    pub kind: FamilyKind,
    /// One for each set of labels.
    pub series: Vec<Series>,
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many there are of which length.
    Histogram,
}

/// What a metric is for some labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// Of a counter or gauge; of a histogram the sum.
    pub value: f64,
    /// Of a histogram.
    pub histogram: Option<Buckets>,
}

/// The counts of a histogram.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Buckets {
    /// All of them.
    pub count: u64,
    /// Bounds, and how many are at most that.
    pub cumulative: Vec<(f64, u64)>,
    /// As it was counted.
    pub exponential: Option<Exponential>,
    /// The bounds of buckets, and of each the last sampled request.
    pub exemplars: Vec<(f64, Exemplar)>,
}

impl Exposition {
    /// Appends the samples of a histogram with these labels, as the text has them; nothing where it is empty.
    pub fn histogram(&mut self, name: &str, labels: &str, times: &Distribution, schema: Schema) {
        // Writing to a `String` cannot fail.
        let separator = if labels.is_empty() { "" } else { "," };
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let text = &mut self.text;
        for bound in BOUNDS {
            let (end, count) = (Distribution::bound(bound), times.count_up_to(bound));
            let _ = writeln!(text, "{name}_bucket{{{labels}{separator}le=\"{end}\"}} {count}");
        }
        let count = times.count();
        let _ = writeln!(text, "{name}_bucket{{{labels}{separator}le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{braced} {}", Seconds(times.sum_nanos()));
        let _ = writeln!(text, "{name}_count{braced} {count}");
        self.histograms.insert((name.to_owned(), labels.to_owned()), Exponential::of(times, schema));
    }

    /// Has a sampled request stand for the bucket of a histogram that it is in.
    pub(crate) fn exemplar(&mut self, name: &str, labels: &str, exemplar: &Exemplar) {
        let bucket = format!("{name}_bucket{{{labels},le=\"{}\"}}", exemplar.bound());
        self.exemplars.insert(bucket, exemplar.clone());
    }

    /// The one of a bucket, by its name and labels in the text.
    pub(crate) fn exemplar_of(&self, bucket: &str) -> Option<&Exemplar> {
        self.exemplars.get(bucket)
    }

    /// What the text says, as data.
    pub fn families(&self) -> Vec<Family> {
        let mut families: Vec<Family> = Vec::new();
        let mut help = (String::new(), String::new());
        let mut is_open = false; // the lines of a histogram follow each other, and its count is the last of them
        for line in self.text.lines() {
            if let Some(told) = line.strip_prefix("# HELP ") {
                let (name, text) = told.split_once(' ').unwrap_or((told, ""));
                help = (name.to_owned(), unescape(text));
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|told| told.split_once(' '))
            {
                let kind = match kind {
                    "counter" => FamilyKind::Counter,
                    "histogram" => FamilyKind::Histogram,
                    _ => FamilyKind::Gauge,
                };
                let (told, text) = std::mem::take(&mut help);
                let help = if told == name { text } else { String::new() };
                families.push(Family { name: name.to_owned(), help, kind, series: Vec::new() });
            } else if let Some(family) = families.last_mut() {
                let _ = self.sample(family, line, &mut is_open);
            }
        }
        families.retain(|family| !family.series.is_empty());
        families
    }

    /// Adds a line of the text to its family.
    fn sample(&self, family: &mut Family, line: &str, is_open: &mut bool) -> Option<()> {
        let (named, value) = line.rsplit_once(' ')?;
        let (name, labels) = match named.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (named, ""),
        };
        let part = name.strip_prefix(family.name.as_str())?;
        if family.kind != FamilyKind::Histogram {
            let series = Series { labels: labels_of(labels), value: value.parse().ok()?, histogram: None };
            family.series.push(series);
            return Some(());
        }
        let (labels, bound) = match part {
            "_bucket" => labels.rsplit_once("le=\"")?,
            _ => (labels, ""),
        };
        let labels = labels.trim_end_matches(',');
        if !std::mem::replace(is_open, part != "_count") {
            let histogram = Some(Buckets::default());
            family.series.push(Series { labels: labels_of(labels), value: 0.0, histogram });
        }
        let series = family.series.last_mut()?;
        let histogram = series.histogram.as_mut()?;
        match part {
            "_bucket" => {
                let bound: f64 = bound.trim_end_matches('"').parse().ok()?;
                if let Some(exemplar) = self.exemplar_of(named) {
                    histogram.exemplars.push((bound, exemplar.clone()));
                }
                if bound.is_finite() {
                    histogram.cumulative.push((bound, value.parse().ok()?));
                }
            }
            "_sum" => series.value = value.parse().ok()?,
            _ => {
                histogram.count = value.parse().ok()?;
                let key = (family.name.clone(), labels.to_owned());
                histogram.exponential = self.histograms.get(&key).cloned();
            }
        }
        Some(())
    }
}

/// Reads `a="x",b="y"`.
fn labels_of(mut text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut is_escaped = false;
        let end = rest.find(|character: char| {
            let is_end = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            is_end
        });
        let Some((value, rest)) = end.and_then(|end| rest.split_at_checked(end)) else { break };
        labels.push((name.trim_start_matches(',').to_owned(), unescape(value)));
        text = rest.get(1..).unwrap_or_default();
    }
    labels
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        out.push(match character {
            '\\' => match rest.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::table::Metric;
    use std::time::Duration;

    fn times(millis: &[u64]) -> Distribution {
        let histogram = Histogram::default();
        millis.iter().for_each(|millis| histogram.record(Duration::from_millis(*millis)));
        histogram.read()
    }

    #[test]
    fn the_text_as_families() {
        let mut out = Exposition::default();
        out.text.push_str(
            "# HELP a_total So \\\\ \"many\".\n# TYPE a_total counter\na_total{x=\"1,\\\"}\\\\\\n\",y=\"\"} 3\na_total 4\n\
             # HELP g Now.\n# TYPE g gauge\ng 1.5\n# HELP h Times.\n# TYPE h histogram\n",
        );
        out.histogram("h", "", &times(&[1000, 1000, 2500]), Schema::Fine);
        out.histogram("h", "site=\"a b\"", &times(&[1000]), Schema::Coarse);
        out.text.push_str("# HELP none Nothing.\n# TYPE none counter\n");
        let families = out.families();
        let names: Vec<_> = families.iter().map(|family| (family.name.as_str(), family.kind)).collect();
        use FamilyKind::{Counter, Gauge};
        assert_eq!(names, [("a_total", Counter), ("g", Gauge), ("h", FamilyKind::Histogram)]);
        assert_eq!(families[0].help, "So \\ \"many\".");
        let labels = vec![("x".to_owned(), "1,\"}\\\n".to_owned()), ("y".to_owned(), String::new())];
        assert_eq!((&families[0].series[0].labels, families[0].series[0].value), (&labels, 3.0));
        assert_eq!(families[1].series[0].value, 1.5);
        let [first, second] = &families[2].series[..] else { panic!("{:?}", families[2]) };
        assert_eq!((first.value, first.labels.len(), second.labels[0].1.as_str()), (4.5, 0, "a b"));
        let buckets = first.histogram.as_ref().unwrap();
        assert_eq!((buckets.count, buckets.cumulative[14], buckets.cumulative[16]), (3, (1.0, 2), (4.0, 3)));
    }

    /// A bucket ends at 2^(n / 2^schema) seconds.
    #[test]
    fn buckets_lie_where_the_formats_have_them() {
        for (schema, nanos, index) in [
            (Schema::Fine, 1_000_000_000, 0),
            (Schema::Fine, 1_000_000_010, 1),
            (Schema::Fine, 500_000_000, -16),
            (Schema::Coarse, 1_000_000_000, 0),
            (Schema::Coarse, 1_000_000_010, 1),
            (Schema::Coarse, 1_060_000_000, 1),
            (Schema::Coarse, 2_000_000_000, 8),
            (Schema::Coarse, 500_000_000, -8),
        ] {
            let histogram = Histogram::default();
            histogram.record_nanos(nanos);
            histogram.record_nanos(1);
            let told = Exponential::of(&histogram.read(), schema);
            assert_eq!((told.zero_count, told.buckets), (1, vec![(index, 1)]), "{schema:?} {nanos}");
        }
        let both = Exponential::of(&times(&[1040, 1080]), Schema::Coarse);
        assert_eq!(both.buckets, [(1, 2)], "two of the finer ones are one");
    }
}
