//! The limits of requests in the report: whom they have turned away, and whether their tables are large enough.

use super::report::{Row, Section};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write;

/// What a `limit` has done since it is there, in all processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateReport {
    /// Its name.
    pub name: String,
    /// Requests beyond it; one that only tracks has let them pass.
    pub refused: u64,
    /// Requests that were judged together with others for want of a place of their own.
    pub crowded: u64,
}

/// A section for all of them; none where there is none.
pub(super) fn sections(rates: &[RateReport]) -> Option<Section> {
    let row = |rate: &RateReport| {
        let crowded = match rate.crowded {
            0 => String::new(),
            count => format!(", {count} without a place of their own (`keys`)"),
        };
        Row::new(format!("Limit {}", rate.name), format!("{} beyond it{crowded}", rate.refused))
    };
    let rows: Vec<Row> = rates.iter().map(row).collect();
    (!rows.is_empty()).then(|| Section { title: "Limits".into(), rows })
}

/// All of them as JSON.
pub(super) fn to_json(rates: &[RateReport]) -> Value {
    let one =
        |rate: &RateReport| json!({ "name": rate.name, "refused": rate.refused, "crowded": rate.crowded });
    rates.iter().map(one).collect()
}

/// What a limit says to a measure.
type Measure = (&'static str, &'static str, fn(&RateReport) -> u64);

/// All of them for Prometheus.
pub(super) fn write_prometheus(text: &mut String, rates: &[RateReport]) {
    const MEASURES: [Measure; 2] = [
        ("refused_total", "Requests beyond the limit.", |rate| rate.refused),
        ("crowded_total", "Requests without a place of their own in the table of the limit.", |rate| {
            rate.crowded
        }),
    ];
    for (name, help, value) in MEASURES.into_iter().filter(|_| !rates.is_empty()) {
        let _ = writeln!(text, "# HELP tidegate_limit_{name} {help}\n# TYPE tidegate_limit_{name} counter");
        for rate in rates {
            let label = rate.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = writeln!(text, "tidegate_limit_{name}{{limit=\"{label}\"}} {}", value(rate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_say_the_same() {
        let rates = [
            RateReport { name: "api".into(), refused: 3, crowded: 0 },
            RateReport { name: "a\"b\\c\nd".into(), refused: 0, crowded: 7 },
        ];
        let section = sections(&rates).unwrap();
        assert_eq!(section.rows[0].value, "3 beyond it");
        assert_eq!(section.rows[1].value, "0 beyond it, 7 without a place of their own (`keys`)");
        assert_eq!(to_json(&rates)[1]["crowded"], 7);
        let mut text = String::new();
        write_prometheus(&mut text, &rates);
        assert!(text.contains("tidegate_limit_refused_total{limit=\"api\"} 3\n"), "{text}");
        assert!(text.contains("tidegate_limit_crowded_total{limit=\"a\\\"b\\\\c\\nd\"} 7\n"), "{text}");
        assert_eq!(text.lines().count(), 8);
        assert!(sections(&[]).is_none());
    }
}
