//! A series of runs at rising rates, as autobench does with httperf: demanded and achieved rate, reply rate,
//! response times and errors of each, as a table and for a graph.

use crate::quantity::{self, show_duration};
use crate::record::{Failure, Times};
use crate::report::{Report, table};
use crate::verdict::Verdict;
use serde_json::{Value, json};
use thiserror::Error;

/// A series of rates that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no series of rates; write LOW:HIGH:STEP, such as 100:20000:x1.25 or 100:2000:+100, from 0.01 on"
)]
pub struct RatesSyntax(String);

/// The rates of `100:20000:x1.25` or `100:2000:+100`, at most a thousand, the highest included.
///
/// # Errors
/// [`RatesSyntax`].
pub fn rates(text: &str) -> Result<Vec<f64>, RatesSyntax> {
    let wrong = || RatesSyntax(text.to_owned());
    let mut parts = text.split(':');
    let (Some(low), Some(high), step, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(wrong());
    };
    let low = quantity::rate(low).map_err(|_| wrong())?;
    let high = quantity::rate(high).map_err(|_| wrong())?;
    let step = step.unwrap_or("x1.25");
    let (factor, addend) = match (step.strip_prefix('x'), step.strip_prefix('+')) {
        (Some(factor), _) => (factor.parse().map_err(|_| wrong())?, 0.0),
        (None, Some(addend)) => (1.0, quantity::rate(addend).map_err(|_| wrong())?),
        (None, None) => return Err(wrong()),
    };
    let grows: bool = factor > 1.0 || (factor == 1.0 && addend > 0.0);
    if low < 0.01 || low > high || !grows {
        return Err(wrong());
    }
    let mut all = Vec::new();
    let mut rate = low;
    while rate < high * 0.999_999 {
        all.push((rate * 100.0).round() / 100.0);
        rate = rate * factor + addend;
        if all.len() > 1_000 {
            return Err(wrong());
        }
    }
    all.push(high);
    Ok(all)
}

/// One run of a sweep.
#[derive(Debug, Clone)]
pub struct Step {
    /// Requests per second asked for.
    pub demanded: f64,
    /// What came of it.
    pub report: Report,
}

impl Step {
    /// Requests begun per second.
    pub fn sent(&self) -> f64 {
        let counts = &self.report.totals.counts;
        let unsent = counts.failures.get(&Failure::Unsent).copied().unwrap_or(0);
        per_second(counts.requests.saturating_sub(unsent), self.seconds())
    }

    /// Answers per second: the lowest and highest interval, those to requests of the warm-up included, and the mean.
    pub fn answers(&self) -> (f64, f64, f64) {
        let intervals = &self.report.outcome.intervals;
        // The last interval is cut short, and would show nothing but that.
        let whole = intervals.get(..intervals.len().saturating_sub(1)).unwrap_or_default();
        let of = |interval: &crate::run::Interval| {
            let answered = interval.counts.answered + interval.counts.warmup_answered;
            per_second(answered, interval.length as f64 / 1e9)
        };
        let low = whole.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = whole.iter().map(of).fold(0.0, f64::max);
        let mean = self.report.rate();
        (if low.is_finite() { low } else { mean }, mean, high.max(mean))
    }

    fn seconds(&self) -> f64 {
        self.report.outcome.seconds()
    }

    fn failed(&self, kinds: &[Failure]) -> u64 {
        let failures = &self.report.totals.counts.failures;
        kinds.iter().filter_map(|kind| failures.get(kind)).sum()
    }

    fn response(&self) -> &Times {
        &self.report.totals.response
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Errors as httperf groups them.
const KINDS: [(&str, &[Failure]); 5] = [
    ("refused", &[Failure::Refused, Failure::Connect]),
    ("timeout", &[Failure::Timeout, Failure::ConnectTimeout]),
    ("reset", &[Failure::Reset, Failure::Closed, Failure::Truncated, Failure::StreamReset, Failure::GoAway]),
    ("answer", &[Failure::Status, Failure::Check, Failure::Malformed, Failure::HeadTooLarge]),
    ("client", &[Failure::Descriptors, Failure::Ports, Failure::Unsent, Failure::Unanswered]),
];

const COLUMNS: [&str; 9] =
    ["demanded", "sent/s", "answers/s min", "avg", "max", "p50", "p99", "errors %", "verdict"];

/// The table for a terminal.
pub fn screen(steps: &[Step]) -> String {
    let mut head: Vec<String> = COLUMNS.iter().map(|name| (*name).to_owned()).collect();
    head.splice(7..7, KINDS.iter().map(|(name, _)| (*name).to_owned()));
    let mut rows = vec![head];
    for step in steps {
        let (low, mean, high) = step.answers();
        let mut row = vec![
            format!("{:.0}", step.demanded),
            format!("{:.1}", step.sent()),
            format!("{low:.1}"),
            format!("{mean:.1}"),
            format!("{high:.1}"),
            show_duration(step.response().percentile(50.0)),
            show_duration(step.response().percentile(99.0)),
        ];
        row.extend(KINDS.iter().map(|(_, kinds)| step.failed(kinds).to_string()));
        row.push(format!("{:.2}", 100.0 - step.report.totals.counts.availability()));
        row.push(step.report.judgement.verdict.to_string());
        rows.push(row);
    }
    table(&rows)
}

/// The table as comma-separated values, in autobench's order.
pub fn csv(steps: &[Step]) -> String {
    let mut out = "demanded_rate,sent_rate,answer_rate_min,answer_rate_avg,answer_rate_max,response_p50_s,\
                   response_p99_s,response_max_s,refused,timeout,reset,answer,client,error_percent,verdict\n"
        .to_owned();
    for step in steps {
        let (low, mean, high) = step.answers();
        let times =
            [50.0, 99.0, 100.0].map(|rank| step.response().percentile(rank).as_secs_f64().to_string());
        let kinds = KINDS.map(|(_, kinds)| step.failed(kinds).to_string());
        out.push_str(&format!(
            "{},{:.3},{low:.3},{mean:.3},{high:.3},{},{},{:.4},{}\n",
            step.demanded,
            step.sent(),
            times.join(","),
            kinds.join(","),
            100.0 - step.report.totals.counts.availability(),
            step.report.judgement.verdict
        ));
    }
    out
}

/// The steps as one JSON array.
pub fn json(steps: &[Step]) -> Value {
    let rows = steps.iter().map(|step| {
        let (low, mean, high) = step.answers();
        json!({
            "demanded": step.demanded,
            "sent": step.sent(),
            "answers": { "min": low, "mean": mean, "max": high },
            "report": crate::report::json(&step.report),
        })
    });
    Value::Array(rows.collect())
}

/// The load of all steps in one line: that of the first, with the rates of all.
pub fn load(steps: &[Step]) -> String {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return String::new() };
    let of_first = format!("{} requests/s", first.demanded);
    first.report.load.replacen(&of_first, &format!("{} to {} requests/s", first.demanded, last.demanded), 1)
}

/// The worst verdict: a sweep with one invalid step is not to be trusted as a whole.
pub fn verdict(steps: &[Step]) -> Verdict {
    Verdict::worst(steps.iter().map(|step| step.report.judgement.verdict))
}

/// A graph for a terminal: achieved rate over demanded rate.
pub fn graph(steps: &[Step]) -> String {
    let most = steps.iter().map(|step| step.demanded).fold(1.0, f64::max);
    let width = 50.0;
    let mut rows = Vec::new();
    for step in steps {
        let mean = step.report.rate();
        let cells = |value: f64| (value / most * width).round().max(0.0) as usize;
        let reached = cells(mean).min(width as usize);
        let missing = cells(step.demanded).saturating_sub(reached);
        let p99 = show_duration(step.response().percentile(99.0));
        rows.push(vec![
            format!("{:.0}/s", step.demanded),
            format!("{:<50}", format!("{}{}", "█".repeat(reached), "░".repeat(missing))),
            format!("{mean:.0}/s"),
            format!("p99 {p99}"),
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_rates() {
        assert_eq!(rates("100:200:x2"), Ok(vec![100.0, 200.0]));
        assert_eq!(rates("100:250:+100"), Ok(vec![100.0, 200.0, 250.0]));
        assert_eq!(rates("1k:2k:x1.25").unwrap(), [1_000.0, 1_250.0, 1_562.5, 1_953.13, 2_000.0]);
        assert_eq!(rates("5:5").unwrap(), [5.0]);
        for bad in [
            "",
            "100",
            "200:100:x2",
            "1:2:x1",
            "1:2:+0",
            "1:2:3",
            "a:b:c",
            "1:2:x2:4",
            "1:1M:+1",
            "0.001:1:x2",
        ] {
            assert!(rates(bad).is_err(), "{bad}");
        }
    }
}
