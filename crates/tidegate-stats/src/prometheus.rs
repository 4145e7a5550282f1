//! The report for Prometheus: text exposition format 0.0.4.
//!
//! Called by the status page; serve it as [`CONTENT_TYPE`](Snapshot::PROMETHEUS_CONTENT_TYPE). Base units:
//! seconds and bytes. See <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write;

use crate::exposition::{Exposition, Schema};
use crate::table::{Description, Unit, View};
use crate::worker::Snapshot;

/// Upper bounds of the exposed histogram buckets, as powers of two of seconds: 61 us to 64 s. The buckets that are counted
/// end there as well, so that these counts are exact.
pub(crate) const BOUNDS: std::ops::RangeInclusive<i32> = -14..=6;

impl Snapshot {
    /// The media type of what [`Exposition`](crate::Exposition) writes as text.
    pub const PROMETHEUS_CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Appends the report.
    pub fn write_prometheus(&self, out: &mut Exposition) {
        family(&mut out.text, "tidegate_workers", "gauge", "Worker threads that were added up.");
        sample(&mut out.text, "tidegate_workers", None, self.workers);
        for (description, view) in self.rows() {
            metric(out, &description, view);
        }
    }
}

fn metric(out: &mut Exposition, description: &Description, view: View<'_>) {
    let name = stem(description);
    let help = description.help;
    let text = &mut out.text;
    match view {
        View::Count(count) => {
            let name = format!("{name}_total");
            family(text, &name, "counter", help);
            sample(text, &name, None, count);
        }
        View::Level(level) => {
            family(text, &name, "gauge", help);
            sample(text, &name, None, level.current);
            let peak = format!("{name}_peak");
            family(text, &peak, "gauge", &format!("{help} The highest value so far."));
            sample(text, &peak, None, level.peak);
            if level.limit != 0 {
                let limit = format!("{name}_limit");
                family(text, &limit, "gauge", &format!("{help} The limit."));
                sample(text, &limit, None, level.limit);
            }
        }
        View::Distribution(times) => {
            family(text, &name, "histogram", help);
            out.histogram(&name, "", times, Schema::Fine);
        }
        View::Kinds { label, names, counts } => {
            let name = format!("{name}_total");
            family(text, &name, "counter", help);
            for (kind, count) in names.iter().zip(counts) {
                sample(text, &name, Some((label, kind)), count);
            }
        }
        View::Statuses(statuses) => {
            let name = format!("{name}_total");
            family(text, &name, "counter", help);
            for (status, count) in statuses.codes() {
                sample(text, &name, Some(("code", &status.to_string())), count);
            }
        }
    }
}

fn stem(description: &Description) -> String {
    let suffix = match description.unit {
        Unit::Count => "",
        Unit::Bytes => "_bytes",
        Unit::Seconds => "_seconds",
    };
    let suffix = if description.name.ends_with(suffix) { "" } else { suffix };
    // Under the name alone they are told by site and route, with their ends.
    let name = if description.name == "requests" { "requests_received" } else { description.name };
    format!("tidegate_{name}{suffix}")
}

pub(crate) fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", escape_help(help));
}

pub(crate) fn sample(
    text: &mut String,
    name: &str,
    label: Option<(&str, &str)>,
    value: impl std::fmt::Display,
) {
    let _ = match label {
        Some((label, of)) => writeln!(text, "{name}{{{label}=\"{}\"}} {value}", escape_label(of)),
        None => writeln!(text, "{name} {value}"),
    };
}

fn escape_help(help: &str) -> String {
    help.replace('\\', "\\\\").replace('\n', "\\n")
}

pub(crate) fn escape_label(value: &str) -> String {
    escape_help(value).replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_help_are_escaped() {
        let mut text = String::new();
        family(&mut text, "a", "counter", "one\\two\nthree \"four\"");
        sample(&mut text, "a", Some(("path", "C:\\\"x\"\n")), 1);
        assert_eq!(
            text,
            "# HELP a one\\\\two\\nthree \"four\"\n# TYPE a counter\na{path=\"C:\\\\\\\"x\\\"\\n\"} 1\n"
        );
    }
}
