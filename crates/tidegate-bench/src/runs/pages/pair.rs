//! Two runs beside each other: what is not alike first, then figures, then both over time in one chart.

use super::super::differ::Difference;
use super::super::seconds::{Second, Seconds};
use super::super::stored::Run;
use super::charts::{chart, ended, line, slowest, thin};
use super::{badge, cells, link};
use crate::report::{Chart, Frame, Series, escape, push_framed};
use std::fmt::Write;

/// The page.
pub fn pair(a: &Run, b: &Run) -> String {
    let difference = Difference::new(std::slice::from_ref(a), std::slice::from_ref(b));
    let mut body = "<h1>Two runs beside each other</h1><div class=pair>".to_owned();
    for (name, run) in [("A", a), ("B", b)] {
        let row = &run.row;
        let _ = write!(
            body,
            "<div class=card><p><b>{name}</b> {} {}</p><p class=sub>{}{}<br>{}<br>{}<br>{}</p></div>",
            badge(&row.verdict),
            link(row),
            escape(&row.name),
            row.label.as_ref().map(|label| format!(": {}", escape(label))).unwrap_or_default(),
            escape(&row.target),
            escape(&row.load),
            super::date(row.started),
        );
    }
    body.push_str("</div>");
    for note in &difference.notes {
        let _ = write!(body, "<p class=note>{}.</p>", escape(note));
    }
    body.push_str("<h2>What is not alike</h2>");
    if difference.environment.is_empty() && difference.scenario.is_none() && difference.files.is_empty() {
        body.push_str("<p class=note>Machine, settings, versions, load and scenario are the same.</p>");
    }
    if !difference.environment.is_empty() {
        let head = ["", "A", "B"].map(str::to_owned).to_vec();
        let rows = difference.environment.iter();
        let rows = rows.map(|changed| vec![changed.name.clone(), changed.a.clone(), changed.b.clone()]);
        let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
        let _ = write!(body, "<div class=left>{}</div>", cells("What is not alike", &rows));
    }
    if let Some(scenario) = &difference.scenario {
        let _ = write!(body, "<div class=card><pre tabindex=0>{}</pre></div>", escape(scenario));
    }
    for (name, lines) in &difference.files {
        let _ = write!(
            body,
            "<div class=card><h3>{}</h3><pre tabindex=0>{}</pre></div>",
            escape(name),
            escape(lines)
        );
    }
    body.push_str("<h2>Figures</h2>");
    body.push_str(&cells("Figures", &difference.rows()));
    body.push_str("<h2>Over time</h2>");
    let charts = over_time(a, b).into_iter().map(|chart| (chart, Frame::default()));
    push_framed(&mut body, charts);
    super::shown("two runs", "", &body)
}

/// Both as two lines of one chart.
fn over_time(a: &Run, b: &Run) -> Vec<Chart> {
    let seconds = [("A", a.seconds()), ("B", b.seconds())];
    let both = |title: &str, unit: &str, is_logarithmic: bool, of: fn(&Second) -> Option<f64>| {
        let series = seconds.iter().map(|(name, seconds): &(&str, Seconds)| line(seconds, name, of));
        chart(title, unit, series.collect(), is_logarithmic)
    };
    let mut charts = vec![
        both("Operations over time", "per second", false, |second| Some(ended(second))),
        both("p90 of the slowest operation over time", "ms", true, slowest),
        both("Connections over time", "", false, |second| Some(second.connections)),
    ];
    let busy = [("A", a), ("B", b)].map(|(name, run)| {
        let samples = run.host().map(|host| host.samples).unwrap_or_default();
        let of = |all: &[f64]| all.iter().sum::<f64>() * 100.0 / all.len().max(1) as f64;
        let points = samples.iter().map(|sample| (sample.at, of(&sample.processors))).collect();
        Series { name: name.to_owned(), points }
    });
    charts.push(Chart {
        at_least: 100.0,
        ..chart("Processors of the generator's host over time", "% busy", busy.into(), false)
    });
    for series in charts.iter_mut().flat_map(|chart| &mut chart.series) {
        thin(series);
    }
    charts
}
