//! Any number of runs as a series: users, or the rate at which they come, against operations a second, p90, processors and bandwidth, as figures 7 to 10 of
//! the CMT reference implementation. Each point is a run; its number leads to the table below, and to what was changed for it.

use super::super::stored::{Row, Run};
use super::one::shown;
use super::{badge, date, link};
use crate::quantity::show_bytes;
use crate::report::{Chart, Frame, Series, document_of, escape, push_framed};
use std::fmt::Write;

/// Lines of a chart.
const LINES: usize = 6;

/// The page for itself, as a file.
pub fn several(runs: &[Run]) -> String {
    document_of("runs", "", &format!("<main>{}</main>", body(runs, |row| escape(&row.id))))
}

/// The page among others.
pub fn several_here(runs: &[Run]) -> String {
    super::shown("runs", "", &body(runs, link))
}

/// A figure of a run, with the title of its chart and the unit.
type OfRun = (&'static str, &'static str, fn(&Row) -> Option<f64>);

const FIGURES: [OfRun; 4] = [
    ("Operations per second", "per second", |row| row.rate),
    ("p90 of the slowest operation", "ms", |row| row.p90.map(|time| time * 1e3)),
    ("Processors of the generator's host", "% busy", |row| row.busy.map(|share| share * 100.0)),
    ("Bandwidth from the server", "Mbit/s", |row| row.bytes_rate.map(|rate| rate * 8.0 / 1e6)),
];

/// What a graph can have on its axis, if runs differ in it: how many users there are, or how many come.
struct Axis {
    name: &'static str,
    of: fn(&Row) -> Option<f64>,
}

const AXES: [Axis; 2] = [
    Axis { name: "users", of: |row| row.users.map(|users| users as f64) },
    Axis { name: "visits per second", of: |row| row.visits },
];

fn axis(rows: &[&Row]) -> Option<&'static Axis> {
    AXES.iter().find(|axis| {
        let first = rows.first().and_then(|row| (axis.of)(row));
        rows.iter().any(|row| (axis.of)(row).is_some_and(|value| Some(value) != first))
    })
}

fn body(runs: &[Run], named: impl Fn(&Row) -> String) -> String {
    let mut rows: Vec<&Row> = runs.iter().map(|run| &run.row).collect();
    rows.sort_by_key(|row| (row.started, row.id.clone()));
    let axis = axis(&rows);
    let mut body = format!(
        "<h1>{} runs as a series</h1><p class=sub>Each point is a run; its number leads to the table. One run describes what \
         happened and proves nothing.</p>",
        rows.len()
    );
    let lines = lines(&rows, axis);
    let charts = FIGURES.iter().map(|(title, unit, of)| figure(&rows, &lines, axis, title, unit, *of));
    push_framed(&mut body, charts);
    let mut names: Vec<&String> = lines.iter().collect();
    names.sort();
    names.dedup();
    if names.len() > LINES {
        let _ = write!(
            body,
            "<p class=sub>{LINES} of {} lines are drawn; name fewer runs to see the others.</p>",
            names.len()
        );
    }
    body.push_str(
        "<h2>The runs</h2><div class=card tabindex=0 role=region aria-label=\"The runs\"><table><tr><th scope=col>number\
         <th scope=col>label<th scope=col>run<th scope=col>began (UTC)<th scope=col>users<th scope=col>per second\
         <th scope=col>p90<th scope=col>busy<th scope=col>received<th scope=col>verdict",
    );
    for (number, row) in (1..).zip(&rows) {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let _ = write!(
            body,
            "<tr><td>{number}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            escape(row.label.as_deref().unwrap_or("-")),
            named(row),
            date(row.started),
            row.users_or_rate(),
            or_none(row.rate.map(|rate| format!("{rate:.2}"))),
            shown(row.p90),
            or_none(row.busy.map(|share| format!("{:.0} %", share * 100.0))),
            or_none(row.bytes_rate.map(|rate| format!("{}/s", show_bytes(rate)))),
            badge(&row.verdict),
        );
    }
    body.push_str("</table></div>");
    body
}

/// The name of the line that each run is a point of: its scenario or its server, where they differ, and what its label says was set,
/// `workers=2`, but for what is the axis.
fn lines(rows: &[&Row], axis: Option<&Axis>) -> Vec<String> {
    let differ =
        |of: fn(&Row) -> &str| rows.iter().any(|row| of(row) != rows.first().map_or("", |row| of(row)));
    let (many_scenarios, many_targets) = (differ(|row| &row.name), differ(|row| &row.target));
    let line = |row: &&Row| {
        let place = axis.and_then(|axis| (axis.of)(row));
        // `USERS=20`, `RATE=50`, `RATE=50/s`.
        let is_place = |value: &str| value.trim_end_matches("/s").parse().ok() == place && place.is_some();
        let set = row.label.iter().flat_map(|label| label.split_whitespace());
        let set = set.filter(|word| word.split_once('=').is_some_and(|(_, value)| !is_place(value)));
        let set: Vec<&str> = set.collect();
        let server = row.target.trim_start_matches("http://").trim_start_matches("https://");
        let name = if many_scenarios { row.name.as_str() } else { server.trim_end_matches('/') };
        match set.as_slice() {
            [] => name.to_owned(),
            set if many_scenarios || many_targets => format!("{name} {}", set.join(" ")),
            set => set.join(" "),
        }
    };
    rows.iter().map(line).collect()
}

/// The lines over what the runs differ in; over the number of the run where they do not.
fn figure(
    rows: &[&Row],
    lines: &[String],
    axis: Option<&Axis>,
    title: &str,
    unit: &str,
    of: fn(&Row) -> Option<f64>,
) -> (Chart, Frame) {
    let mut frame = Frame { has_points: true, ..Frame::default() };
    let mut series: Vec<Series> = Vec::new();
    for ((number, row), name) in (1..).zip(rows).zip(lines) {
        let x = axis.map_or(Some(f64::from(number)), |axis| (axis.of)(row));
        let Some((x, y)) = x.zip(of(row)) else { continue };
        let has_room = series.len() < LINES;
        match series.iter_mut().find(|line| line.name == *name) {
            Some(line) => line.points.push((x, y)),
            None if has_room => series.push(Series { name: name.clone(), points: vec![(x, y)] }),
            None => continue,
        }
        frame.notes.push((x, y, note(number, row)));
    }
    for line in &mut series {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    // Room for the words beside the last point.
    let last = series.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max);
    frame.x = Some((0.0, last * 1.12));
    let chart = Chart {
        title: format!("{title} over {}", axis.map_or("runs", |axis| axis.name)),
        x: axis.map_or("number of the run", |axis| axis.name).to_owned(),
        y: unit.to_owned(),
        series,
        is_scatter: false,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 1.0,
    };
    (chart, frame)
}

/// Its number, and what its maker called it where there is room and its line does not say so.
fn note(number: u32, row: &Row) -> String {
    match row.label.as_ref().filter(|label| !label.contains('=')) {
        Some(label) => {
            let label: String = label.chars().filter(|letter| !letter.is_control()).take(18).collect();
            format!("{number} {label}")
        }
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn runs_are_points_of_the_line_that_their_label_names() {
        let row = |label: &str, users: u64, target: &str| -> Row {
            serde_json::from_value(
                json!({ "id": "r", "started": 0, "name": "shop", "label": label, "target": target,
                "load": "", "verdict": "PASS", "users": users, "host": "" }),
            )
            .unwrap()
        };
        let of = |rows: &[Row]| lines(&rows.iter().collect::<Vec<_>>(), AXES.first());
        let (one, two) = ("http://a:1/", "http://b:2/");
        assert_eq!(of(&[row("W=1 U=20", 20, one), row("W=2 U=40 #1", 40, one)]), ["W=1", "W=2"]);
        assert_eq!(of(&[row("W=1 U=20", 20, one), row("W=1 U=20", 20, two)]), ["a:1 W=1", "b:2 W=1"]);
        assert_eq!(of(&[row("12 workers", 20, one), row("", 40, one)]), ["a:1", "a:1"]);
        let at_rate = |label: &str, rate: f64| Row { users: None, visits: Some(rate), ..row(label, 0, one) };
        let (slow, fast) = (at_rate("W=1 RATE=50/s", 50.0), at_rate("W=1 RATE=100", 100.0));
        let axis = axis(&[&slow, &fast]);
        assert_eq!(axis.map(|axis| axis.name), Some("visits per second"));
        assert_eq!(lines(&[&slow, &fast], axis), ["W=1", "W=1"]);
        assert!(super::axis(&[&slow, &slow]).is_none());
    }
}
