//! The charts of runs out of what their folders hold.

use super::super::monitors::Figure;
use super::super::seconds::{OfOperation, Second, Seconds};
use super::super::stored::{Operation, Run};
use super::one::shown;
use crate::report::{Chart, Frame, Series, host_charts};

/// Lines of a chart; beyond them nobody can tell lines apart.
const LINES: usize = 8;
/// Percentiles that a scenario may name targets of.
const TARGETS: [f64; 3] = [90.0, 95.0, 99.0];
/// Points of a line, about: there are no more on a screen.
const POINTS: usize = 600;

pub(super) fn chart(title: &str, y: &str, series: Vec<Series>, is_logarithmic: bool) -> Chart {
    Chart {
        title: title.to_owned(),
        x: "seconds".to_owned(),
        y: y.to_owned(),
        series,
        is_scatter: false,
        is_logarithmic,
        is_percentile: false,
        at_least: if is_logarithmic { 0.0 } else { 1.0 },
    }
}

/// What all charts over the time of a run have in common: the axis, and the steady time.
pub(super) fn frame(run: &Run, seconds: &Seconds) -> Frame {
    let last = seconds.all.last().map_or(0.0, |second| second.at);
    let band = run.phases().map(|[up, steady, _]| (up, (up + steady).min(last.max(up))));
    Frame { x: Some((0.0, last)), band: band.filter(|(begin, end)| end > begin), ..Frame::default() }
}

/// Everything over time: the run, then the machine of the generator, then other systems, all on one axis.
pub(super) fn over_time(run: &Run, seconds: &Seconds) -> Vec<Chart> {
    let mut charts = vec![operations(seconds), times(seconds)];
    charts.extend(arrivals(seconds));
    charts.push(users(run.row.visits.is_some(), seconds));
    charts.extend(host_charts(run.host().as_ref()));
    for monitor in run.monitors() {
        for ((group, kind), figures) in &monitor.groups {
            charts.push(of_monitor(&format!("{} of {}", title(group), monitor.system), kind, figures));
        }
    }
    for series in charts.iter_mut().flat_map(|chart| &mut chart.series) {
        thin(series);
    }
    charts
}

fn title(group: &str) -> &str {
    match group {
        "cpu" => "Processors",
        "memory" => "Memory",
        "net" => "Network",
        "disk" => "Disks",
        "interrupts" => "Interrupts",
        "pressure" => "Pressure",
        "process" => "Processes",
        "tasks" => "Run queue",
        "tcp" => "TCP",
        other => other,
    }
}

/// The figures that reach highest; the title says how many there are.
fn of_monitor(title: &str, kind: &str, figures: &[Figure]) -> Chart {
    let most = |figure: &Figure| figure.1.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let mut all: Vec<&Figure> = figures.iter().collect();
    all.sort_by(|one, other| most(other).total_cmp(&most(one)));
    let title = if kind.is_empty() { title.to_owned() } else { format!("{title}: {kind}") };
    let title =
        if all.len() > LINES { format!("{title}, the {LINES} highest of {}", all.len()) } else { title };
    let series = all.into_iter().take(LINES);
    let series = series.map(|(name, points)| Series { name: name.clone(), points: points.clone() });
    // Shares of 1 as well as bytes.
    Chart { at_least: 0.01, ..chart(&title, kind, series.collect(), false) }
}

pub(super) fn line(seconds: &Seconds, name: &str, of: impl Fn(&Second) -> Option<f64>) -> Series {
    // The last second may be cut short: it would show nothing but that.
    let whole = seconds.all.len().saturating_sub(1).max(1);
    let points = seconds.all.iter().take(whole).filter_map(|second| Some((second.at, of(second)?))).collect();
    Series { name: name.to_owned(), points }
}

/// What ended a second, measured or not.
pub(super) fn ended(second: &Second) -> f64 {
    measured(second) + second.unmeasured / second.length
}

fn measured(second: &Second) -> f64 {
    second.operations.iter().map(|of| of.ended).sum::<f64>() / second.length
}

/// The longest p90 of any operation in a second, ms.
pub(super) fn slowest(second: &Second) -> Option<f64> {
    second.operations.iter().filter_map(|of| of.p90).reduce(f64::max).map(|time| time * 1e3)
}

fn operations(seconds: &Seconds) -> Chart {
    let failed = |second: &Second| {
        let failed: f64 = second.operations.iter().map(|of| of.failed).sum();
        (failed + second.unmeasured_failed) / second.length
    };
    let mut series = vec![line(seconds, "all", |second| Some(ended(second)))];
    if seconds.all.iter().any(|second| second.unmeasured > 0.0) {
        series.push(line(seconds, "measured", |second| Some(measured(second))));
    }
    series.push(line(seconds, "failed", |second| Some(failed(second))));
    chart("Operations over time", "per second", series, false)
}

/// Visits that were due, and those that began, where users come at a rate.
fn arrivals(seconds: &Seconds) -> Option<Chart> {
    seconds.all.iter().any(|second| second.visits_due > 0.0).then(|| {
        let due = line(seconds, "due", |second| Some(second.visits_due / second.length));
        let begun = line(seconds, "begun", |second| Some(second.visits_begun / second.length));
        chart("Visits over time", "per second", vec![due, begun], false)
    })
}

/// Who is there: users that stay, or visits that are under way.
fn users(are_visits: bool, seconds: &Seconds) -> Chart {
    let (title, name) = if are_visits { ("Visits", "visits under way") } else { ("Users", "users active") };
    let mut series = vec![line(seconds, "connections", |second| Some(second.connections))];
    if seconds.all.iter().any(|second| second.users > 0.0) {
        series.insert(0, line(seconds, name, |second| Some(second.users)));
    }
    let title = if series.len() > 1 {
        format!("{title} and connections over time")
    } else {
        "Connections over time".to_owned()
    };
    chart(&title, "", series, false)
}

/// p90 of each operation; where there is one alone, its p50 and p99 as well.
fn times(seconds: &Seconds) -> Chart {
    let one = |name: &str, place: usize, of: fn(&OfOperation) -> Option<f64>| {
        line(seconds, name, |second| second.operations.get(place).and_then(of).map(|time| time * 1e3))
    };
    if seconds.operations.len() == 1 {
        let series = vec![one("p50", 0, |of| of.p50), one("p90", 0, |of| of.p90), one("p99", 0, |of| of.p99)];
        return chart("Response time over time", "ms", series, true);
    }
    let names = seconds.operations.iter().take(LINES).enumerate();
    let series = names.map(|(place, name)| one(name, place, |of| of.p90)).collect();
    chart("p90 of operations over time", "ms", series, true)
}

/// The distribution of response times of each operation, and its targets as points.
pub(super) fn distributions(operations: &[Operation]) -> Option<(Chart, Frame)> {
    let position = |percent: f64| -(1.0 - percent / 100.0).log10();
    let mut frame = Frame::default();
    let mut series = Vec::new();
    for operation in operations.iter().filter(|of| !of.response.is_empty()).take(LINES) {
        // Beyond what has ten values behind it is chance.
        let ended = (operation.ended - operation.failed.min(operation.ended)).max(1) as f64;
        let is_known = |percent: f64| ended * (1.0 - percent / 100.0) >= 10.0 || percent <= 50.0;
        let times = operation.response.iter().filter(|(percent, _)| is_known(*percent));
        let points: Vec<(f64, f64)> = times.map(|(percent, time)| (position(*percent), time * 1e3)).collect();
        series.push(Series { name: operation.name.clone(), points });
        frame
            .marks
            .extend(operation.targets.iter().map(|(percent, limit)| (position(*percent), limit * 1e3)));
    }
    // One note for all targets of a percentile, below them.
    for percent in TARGETS {
        let x = position(percent);
        let limits = || frame.marks.iter().filter(|mark| mark.0 == x).map(|mark| mark.1);
        if let Some(least) = limits().reduce(f64::min) {
            let most = limits().fold(least, f64::max);
            let shown = |ms: f64| shown(Some(ms / 1e3));
            let range =
                if most > least { format!("{} to {}", shown(least), shown(most)) } else { shown(least) };
            frame.notes.push((x, least / 2.0, format!("target: {range}")));
        }
    }
    let highest = frame.marks.iter().map(|mark| mark.1).fold(0.0, f64::max);
    let mut chart = chart("Response times of operations, and their targets", "ms", series, true);
    chart.x = "share of operations".to_owned();
    chart.is_percentile = true;
    chart.at_least = highest;
    frame.x = Some((position(50.0), position(99.0) + 0.3));
    (!chart.series.is_empty()).then_some((chart, frame))
}

/// Fewer points where there are more than a screen has: the mean of neighbours.
pub(super) fn thin(series: &mut Series) {
    let each = series.points.len().div_ceil(POINTS);
    if each > 1 {
        let mean = |part: &[(f64, f64)]| {
            let count = part.len() as f64;
            let (x, y) = part.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
            (x / count, y / count)
        };
        series.points = series.points.chunks(each).map(mean).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_thinned() {
        let mut series =
            Series { name: "x".into(), points: (0..6_000).map(|n| (f64::from(n), 2.0)).collect() };
        thin(&mut series);
        assert_eq!((series.points.len(), series.points.first()), (600, Some(&(4.5, 2.0))));
    }

    #[test]
    fn visits_have_a_chart_and_users_that_stay_have_none() {
        let second = |at: f64, visits_due: f64| Second {
            at,
            length: 1.0,
            users: 3.0,
            visits_due,
            visits_begun: visits_due / 2.0,
            ..Second::default()
        };
        let seconds =
            |due: f64| Seconds { operations: Vec::new(), all: vec![second(0.0, due), second(1.0, due)] };
        let names = |chart: &Chart| chart.series.iter().map(|series| series.name.clone()).collect::<Vec<_>>();
        let chart = arrivals(&seconds(8.0)).unwrap();
        assert_eq!(names(&chart), ["due", "begun"]);
        assert_eq!((chart.series[0].points[0].1, chart.series[1].points[0].1), (8.0, 4.0));
        assert_eq!(names(&users(true, &seconds(8.0))), ["visits under way", "connections"]);
        assert!(arrivals(&seconds(0.0)).is_none());
        assert_eq!(names(&users(false, &seconds(0.0))), ["users active", "connections"]);
    }

    #[test]
    fn positions_of_percentiles() {
        let of = |name: &str, limit: f64| Operation {
            name: name.into(),
            ended: 500,
            failed: 0,
            rate: 1.0,
            share: None,
            share_due: None,
            mean: None,
            max: None,
            response: vec![(50.0, 0.1), (90.0, 0.2), (99.0, 0.3)],
            expected: None,
            targets: vec![(90.0, limit)],
            conforming: None,
        };
        let (chart, frame) = distributions(&[of("a", 1.0), of("b", 1.0)]).unwrap();
        // 99 % has five of 500 beyond it.
        assert_eq!(chart.series[0].points.len(), 2);
        assert_eq!((frame.marks.len(), frame.notes.len()), (2, 1));
        assert_eq!(frame.notes[0].2, "target: 1.00 s");
        assert!(distributions(&[]).is_none());
    }
}
