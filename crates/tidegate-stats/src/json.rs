//! The report for programs: one JSON object (RFC 8259), a member for each metric, named as in the table.
//!
//! Called by the status page and by `tidegate status --json`. Durations are seconds, sizes bytes. Written by
//! hand because every name in it is ours and every value a number.

use std::fmt::Write;

use crate::table::View;
use crate::worker::Snapshot;

impl Snapshot {
    /// The report as one JSON object without line ends. Members:
    /// - a count: a number;
    /// - a gauge: `current`, `peak`, and `limit` where there is one;
    /// - a histogram: `count`, `sum`, `mean`, `p50`, `p90`, `p99`, `p999`, `max`, and `buckets`, the pairs of
    ///   longest duration and count of the buckets that hold something;
    /// - counts by kind: `total` and each kind;
    /// - responses: `total`, `1xx` to `5xx`, and `codes` with those that occurred.
    pub fn to_json(&self) -> String {
        let mut json = String::with_capacity(4096);
        let _ = write!(json, "{{\"workers\":{}", self.workers);
        for (description, view) in self.rows() {
            let _ = write!(json, ",\"{}\":", description.name);
            value(&mut json, view);
        }
        json.push('}');
        json
    }
}

fn value(json: &mut String, view: View<'_>) {
    let mut object = Object { json, is_empty: true };
    match view {
        View::Count(count) => {
            let _ = write!(object.json, "{count}");
            return;
        }
        View::Level(level) => {
            object.member("current", level.current);
            object.member("peak", level.peak);
            if level.limit != 0 {
                object.member("limit", level.limit);
            }
        }
        View::Distribution(times) => {
            object.member("count", times.count());
            object.member("sum", Seconds(times.sum_nanos()));
            object.member("mean", Seconds(times.mean().as_nanos()));
            for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)]
            {
                object.member(name, Seconds(times.quantile(quantile).as_nanos()));
            }
            let buckets: Vec<String> = times
                .buckets()
                .map(|(nanos, count)| format!("[{},{count}]", Seconds(u128::from(nanos))))
                .collect();
            object.member("buckets", format_args!("[{}]", buckets.join(",")));
        }
        View::Kinds { names, counts, .. } => {
            object.member("total", counts.iter().sum::<u64>());
            for (name, count) in names.iter().zip(counts) {
                object.member(name, count);
            }
        }
        View::Statuses(statuses) => {
            object.member("total", statuses.total());
            for class in 1..=5 {
                object.member(&format!("{class}xx"), statuses.class(class));
            }
            let codes: Vec<String> =
                statuses.codes().map(|(status, count)| format!("\"{status}\":{count}")).collect();
            object.member("codes", format_args!("{{{}}}", codes.join(",")));
        }
    }
    object.end();
}

/// An object being written. Names are ours: letters, digits and `_`, so nothing needs escaping.
struct Object<'a> {
    json: &'a mut String,
    is_empty: bool,
}

impl Object<'_> {
    fn member(&mut self, name: &str, value: impl std::fmt::Display) {
        let before = if self.is_empty { '{' } else { ',' };
        self.is_empty = false;
        let _ = write!(self.json, "{before}\"{name}\":{value}");
    }

    fn end(self) {
        self.json.push('}');
    }
}

/// Nanoseconds, written as seconds: exact, without trailing zeros.
pub(crate) struct Seconds(pub u128);

impl std::fmt::Display for Seconds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(out, "{whole}");
        }
        let fraction = format!("{nanos:09}");
        write!(out, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (nanos, text) in [(0, "0"), (1, "0.000000001"), (1_500_000_000, "1.5"), (3_000_000_000, "3")] {
            assert_eq!(Seconds(nanos).to_string(), text);
        }
    }
}
