//! The report for Prometheus as OpenMetrics 1.0: the same families in the other text format.
//!
//! What differs: buckets have exemplars, the name of a counter's family does without `_total`, bounds of buckets are written as floating-point
//! numbers, quotes in descriptions are escaped, and the end is marked. The text that is changed is our own, so its lines are
//! known to be well-formed. See <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use crate::exposition::Exposition;
use crate::series::Exemplar;
use std::fmt::Write;

/// The media type of [`openmetrics`].
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A report in the text exposition format 0.0.4 as OpenMetrics, with exemplars.
pub fn openmetrics(report: &Exposition) -> String {
    let text = &report.text;
    let mut out = String::with_capacity(text.len() + 64);
    for line in text.lines() {
        // Writing to a `String` cannot fail.
        let _ = match line.split_once(' ').filter(|(mark, _)| *mark == "#").map(|(_, rest)| rest) {
            Some(rest) => {
                let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let family = name.strip_suffix("_total").unwrap_or(name);
                let rest = if word == "HELP" { rest.replace('"', "\\\"") } else { rest.to_owned() };
                writeln!(out, "# {word} {family} {rest}")
            }
            None => {
                let bucket = line.rsplit_once(' ').map_or(line, |(bucket, _)| bucket);
                let exemplar = report.exemplar_of(bucket).map(exemplar).unwrap_or_default();
                writeln!(out, "{}{exemplar}", with_float_bound(line))
            }
        };
    }
    out.push_str("# EOF\n");
    out
}

/// What stands behind the value of a bucket: a sampled request, how long it took, and when it ended.
fn exemplar(of: &Exemplar) -> String {
    let Exemplar { trace_id, span_id, at, .. } = of;
    let (seconds, millis) = (at / 1000, at % 1000);
    let value = of.seconds();
    format!(" # {{trace_id=\"{trace_id}\",span_id=\"{span_id}\"}} {value} {seconds}.{millis:03}")
}

/// `le="1"` as `le="1.0"`.
fn with_float_bound(line: &str) -> String {
    const BOUND: &str = "le=\"";
    // A bound is the last label.
    let Some(at) = line.rfind(BOUND).map(|at| at + BOUND.len()) else { return line.to_owned() };
    let Some(end) = line[at..].find('"').map(|end| at + end) else { return line.to_owned() };
    let is_whole = line[at..end].bytes().all(|byte| byte.is_ascii_digit());
    if is_whole { format!("{}.0{}", &line[..end], &line[end..]) } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_those_of_the_other_format() {
        let text = "# HELP a_total So \"many\".\n# TYPE a_total counter\na_total{site=\"x\"} 3\n\
                    # HELP b Times.\n# TYPE b histogram\nb_bucket{x=\"y\",le=\"2\"} 1\nb_bucket{le=\"0.5\"} 1\n\
                    b_bucket{le=\"+Inf\"} 1\nb_sum 1.5\nb_count 1\n";
        let mut report = Exposition::default();
        report.text = text.to_owned();
        assert_eq!(
            openmetrics(&report),
            "# HELP a So \\\"many\\\".\n# TYPE a counter\na_total{site=\"x\"} 3\n\
             # HELP b Times.\n# TYPE b histogram\nb_bucket{x=\"y\",le=\"2.0\"} 1\nb_bucket{le=\"0.5\"} 1\n\
             b_bucket{le=\"+Inf\"} 1\nb_sum 1.5\nb_count 1\n# EOF\n"
        );
    }

    #[test]
    fn a_bucket_has_its_exemplar() {
        let mut report = Exposition::default();
        report.text = "b_bucket{x=\"y\",le=\"1\"} 7\nb_bucket{x=\"y\",le=\"+Inf\"} 7\n".to_owned();
        let (trace_id, span_id) = ("4bf92f3577b34da6a3ce929d0e0e4736".into(), "00f067aa0ba902b7".into());
        let (at, nanos, key) = (1_234_567_890_007, 750_000_000, Default::default());
        let exemplar = Exemplar { bucket: 14, trace_id, span_id, at, nanos, key };
        report.exemplar("b", "x=\"y\"", &exemplar);
        assert_eq!(
            openmetrics(&report),
            "b_bucket{x=\"y\",le=\"1.0\"} 7 # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\",span_id=\"00f067aa0ba902b7\"} \
             0.75 1234567890.007\nb_bucket{x=\"y\",le=\"+Inf\"} 7\n# EOF\n"
        );
    }
}
