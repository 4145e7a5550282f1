//! `seconds.csv`: a line for each second and operation, written while the run goes on and read by whoever draws it.
//!
//! Columns are found by name, so that a later version may add some; a last line that is still being written is passed over.

use crate::record::Times;
use crate::report::Report;
use crate::scenario::record;
use std::collections::HashMap;
use std::fmt::Write;

const COLUMNS: &str = "second,users,connections,operation,ended,failed,response_p50_s,response_p90_s,response_p99_s,\
response_max_s,unmeasured,unmeasured_failed,visits_due,visits_begun\n";

/// The first line.
pub fn head() -> &'static str {
    COLUMNS
}

/// The lines of a second, one for each operation. What is not measured, of all operations together, and visits stand in each.
pub fn row<'n>(names: impl Iterator<Item = &'n str>, second: &record::Second) -> String {
    let mut out = String::new();
    for (name, tally) in names.zip(&second.operations) {
        let (number, open) = (f64::from(second.requests.number), second.requests.open);
        let counts = (tally.ended, tally.failed());
        line(&mut out, number, (second.users, open), name, counts, &tally.times());
        let visits = &second.visits;
        let (others, failed) = (second.others, second.others_failed);
        let _ = writeln!(out, ",{others},{failed},{},{}", visits.all_due, visits.all_begun);
    }
    out
}

/// All lines of a run without a scenario: its requests are one operation.
pub fn of_requests(report: &Report) -> String {
    let mut out = head().to_owned();
    let length = report.outcome.interval as f64 / 1e9;
    for interval in &report.outcome.intervals {
        let mut times = Times::default();
        times.add(&interval.response);
        let at = f64::from(interval.number) * length;
        let counts = (interval.counts.requests, interval.counts.failed());
        line(&mut out, at, (0, interval.open), REQUESTS, counts, &times);
        out.push_str(",0,0,0,0\n");
    }
    out
}

/// What the one operation of a run without a scenario is called.
pub(super) const REQUESTS: &str = "requests";

fn line(out: &mut String, at: f64, on: (u32, u32), name: &str, counts: (u64, u64), times: &Times) {
    let seconds = |rank| times.percentile(rank).as_secs_f64();
    let _ = write!(
        out,
        "{at},{},{},{},{},{},{},{},{},{}",
        on.0,
        on.1,
        cell(name),
        counts.0,
        counts.1,
        seconds(50.0),
        seconds(90.0),
        seconds(99.0),
        times.max().as_secs_f64()
    );
}

/// Quoted where a comma or a quote would be taken for one of the format (RFC 4180).
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\"").replace('\n', " "))
    } else {
        text.to_owned()
    }
}

/// The cells of a line.
pub(super) fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut rest = line.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '"' if is_quoted && rest.peek() == Some(&'"') => {
                rest.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    cells.push(cell);
    cells
}

/// The seconds of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seconds {
    /// Names, in the order in which they first come.
    pub operations: Vec<String>,
    /// In order.
    pub all: Vec<Second>,
}

/// A second of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Second {
    /// Seconds from the start of the run to its beginning.
    pub at: f64,
    /// Its length in seconds: of short runs without a scenario a part of one.
    pub length: f64,
    /// Users at its end; where users come at a rate, visits under way.
    pub users: f64,
    /// Connections at its end.
    pub connections: f64,
    /// What ended and is not measured.
    pub unmeasured: f64,
    /// Of those, the ones that failed.
    pub unmeasured_failed: f64,
    /// Visits that were due in it, where users come at a rate.
    pub visits_due: f64,
    /// Visits that began in it.
    pub visits_begun: f64,
    /// In the order of [`Seconds::operations`].
    pub operations: Vec<OfOperation>,
}

/// An operation in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OfOperation {
    /// Ended, well or not.
    pub ended: f64,
    /// Did not end well.
    pub failed: f64,
    /// Median of the response time, seconds; nothing where none was timed.
    pub p50: Option<f64>,
    /// Its 90th percentile.
    pub p90: Option<f64>,
    /// Its 99th percentile.
    pub p99: Option<f64>,
}

impl Seconds {
    /// Out of the text of a file. What is no line of one is passed over.
    pub fn parse(text: &str) -> Seconds {
        let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
        let mut lines = whole.lines();
        let columns = cells(lines.next().unwrap_or_default());
        let place: HashMap<&str, usize> =
            columns.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        let mut seconds = Seconds::default();
        for line in lines {
            let cells = cells(line);
            let number = |name: &str| -> Option<f64> {
                let value: f64 = cells.get(*place.get(name)?)?.parse().ok()?;
                value.is_finite().then_some(value)
            };
            let name = place.get("operation").and_then(|place| cells.get(*place));
            if let (Some(at), Some(name)) = (number("second"), name.filter(|_| cells.len() == columns.len()))
            {
                seconds.add(at, name, number);
            }
        }
        let starts = seconds.all.iter().zip(seconds.all.iter().skip(1));
        let length =
            starts.map(|(one, next)| next.at - one.at).filter(|length| *length > 1e-3).reduce(f64::min);
        seconds.all.iter_mut().for_each(|second| second.length = length.unwrap_or(1.0));
        seconds
    }

    fn add(&mut self, at: f64, name: &str, number: impl Fn(&str) -> Option<f64>) {
        let known = self.operations.iter().position(|known| known == name);
        let place = known.unwrap_or_else(|| {
            self.operations.push(name.to_owned());
            self.operations.len() - 1
        });
        if self.all.last().is_none_or(|last| last.at != at) {
            self.all.push(Second { at, ..Second::default() });
        }
        let Some(second) = self.all.last_mut() else { return };
        let or_none = |name: &str| number(name).unwrap_or(0.0);
        second.users = or_none("users");
        second.connections = or_none("connections");
        second.unmeasured = or_none("unmeasured");
        second.unmeasured_failed = or_none("unmeasured_failed");
        second.visits_due = or_none("visits_due");
        second.visits_begun = or_none("visits_begun");
        let (ended, failed) = (or_none("ended"), or_none("failed"));
        let time = |name: &str| number(name).filter(|time| *time > 0.0);
        if second.operations.len() <= place {
            second.operations.resize(place + 1, OfOperation::default());
        }
        if let Some(of) = second.operations.get_mut(place) {
            let (p50, p90, p99) = (time("response_p50_s"), time("response_p90_s"), time("response_p99_s"));
            *of = OfOperation { ended, failed, p50, p90, p99 };
        }
    }

    /// The first and the last second in which anything was measured.
    pub fn measured(&self) -> Option<(f64, f64)> {
        let is_measured = |second: &&Second| second.operations.iter().any(|of| of.ended > 0.0);
        let first = self.all.iter().find(is_measured)?.at;
        Some((first, self.all.iter().rfind(is_measured)?.at + 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut times = Times::default();
        times.record(2_000_000);
        let tally = record::Tally { ended: 3, succeeded: 1, response: times.take(), ..Default::default() };
        let mut second = record::Second { users: 7, others: 5, others_failed: 1, ..Default::default() };
        second.operations = vec![tally, record::Tally::default()];
        second.requests.number = 4;
        second.requests.open = 9;
        second.visits = record::Arrived { all_due: 8, all_begun: 6, ..Default::default() };
        let names = ["a, \"b\"", "c"];
        let text = format!("{}{}4,7,9,\"cut", head(), row(names.into_iter(), &second));
        let read = Seconds::parse(&text);
        assert_eq!(read.operations, names);
        let [only] = read.all.as_slice() else { panic!("{read:?}") };
        assert_eq!((only.at, only.users, only.connections, only.unmeasured), (4.0, 7.0, 9.0, 5.0));
        assert_eq!((only.visits_due, only.visits_begun), (8.0, 6.0));
        let [first, second] = only.operations.as_slice() else { panic!("{only:?}") };
        assert_eq!((first.ended, first.failed), (3.0, 2.0));
        assert!((first.p90.unwrap() - 0.002).abs() < 1e-4, "{first:?}");
        assert_eq!(second, &OfOperation::default());
        assert_eq!(read.measured(), Some((4.0, 5.0)));
    }

    #[test]
    fn a_file_of_before_lacks_columns() {
        let text = "second,users,connections,operation,ended,failed\n0,1,2,home,3,0\n1,1,2,home,NaN,x\nno\n";
        let read = Seconds::parse(text);
        assert_eq!((read.all.len(), read.all[0].length), (2, 1.0));
        let tenths = Seconds::parse("second,operation\n0,a\n0,b\n0.1,a\n0.3,a\n");
        assert!((tenths.all[2].length - 0.1).abs() < 1e-9, "{tenths:?}");
        assert_eq!(read.all[1].operations, [OfOperation::default()]);
        assert_eq!(Seconds::parse(""), Seconds::default());
    }

    proptest::proptest! {
        #[test]
        fn no_file_panics(text in "[a-z0-9,\"\n.]{0,200}") {
            let _ = Seconds::parse(&format!("{}{text}", head()));
            let _ = Seconds::parse(&text);
        }
    }
}
