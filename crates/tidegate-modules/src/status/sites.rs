//! Sites and routes in the report: what each has counted, and how long it took.

use super::report::{Row, Section};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tidegate_stats::Distribution;
use tidegate_stats::series::{RouteFigures, SeriesFigures, SiteFigures};

/// Sites that the report for people shows; programs get all of them.
const SHOWN: usize = 200;

/// A section with a row for each site and, below it, for each route that was asked.
pub(super) fn sections(series: &SeriesFigures) -> Vec<Section> {
    let mut rows = Vec::new();
    for site in series.sites.iter().take(SHOWN) {
        rows.push(Row::new(site.name.as_str(), line(&site.total())));
        if !site.unrouted.is_empty() && !site.routes.is_empty() {
            rows.push(Row::new("  (no route)", line(&site.unrouted)));
        }
        let routes = site.routes.iter();
        rows.extend(routes.map(|(name, figures)| Row::new(format!("  {name}"), line(figures))));
    }
    if series.sites.len() > SHOWN {
        let more = format!("and {} more: ask for JSON", series.sites.len() - SHOWN);
        rows.push(Row::new("...", more));
    }
    if rows.is_empty() { Vec::new() } else { vec![Section { title: "Sites".into(), rows }] }
}

fn line(figures: &RouteFigures) -> String {
    let [_, _, _, refused, failed] = figures.answers;
    let times = match &figures.times.total {
        total if total.is_empty() => String::new(),
        total => format!("; {}", times(total)),
    };
    let requests = figures.requests();
    format!("{requests} requests, {refused} 4xx, {failed} 5xx, {} bytes sent{times}", figures.sent)
}

/// Mean and percentiles; nothing where nothing was timed.
pub(super) fn times(times: &Distribution) -> String {
    let percentile = |quantile| millis(times.quantile(quantile));
    match times.is_empty() {
        true => String::new(),
        false => format!("{}, 50th {}, 99th {}", millis(times.mean()), percentile(0.5), percentile(0.99)),
    }
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// All of them as JSON.
pub(super) fn to_json(series: &SeriesFigures) -> Value {
    let site = |site: &SiteFigures| {
        let mut told = figures_to_json(&site.total());
        told.insert("name".into(), json!(site.name));
        if !site.unrouted.is_empty() {
            told.insert("unrouted".into(), Value::Object(figures_to_json(&site.unrouted)));
        }
        let routes = site.routes.iter().map(|(name, figures)| {
            let mut told = figures_to_json(figures);
            told.insert("route".into(), json!(name));
            Value::Object(told)
        });
        told.insert("routes".into(), routes.collect());
        Value::Object(told)
    };
    series.sites.iter().map(site).collect()
}

/// What a route, or several together, have counted.
pub(super) fn figures_to_json(figures: &RouteFigures) -> Map<String, Value> {
    let mut told = Map::new();
    let classes: Map<String, Value> =
        (1..).zip(figures.answers).map(|(class, count)| (format!("{class}xx"), json!(count))).collect();
    told.insert("requests".into(), json!(figures.requests()));
    told.insert("responses".into(), Value::Object(classes));
    told.insert("invocations".into(), json!(figures.invocations()));
    told.insert("received_bytes".into(), json!(figures.received));
    told.insert("sent_bytes".into(), json!(figures.sent));
    told.insert("seconds".into(), json!(figures.time().as_secs_f64()));
    for (name, _, times) in figures.times.rows().into_iter().filter(|(.., times)| !times.is_empty()) {
        told.insert(name.into(), distribution(times));
    }
    told
}

pub(super) fn distribution(times: &Distribution) -> Value {
    let at = |quantile| json!(times.quantile(quantile).as_secs_f64());
    json!({
        "count": times.count(),
        "sum": times.sum_nanos() as f64 / 1e9,
        "mean": times.mean().as_secs_f64(),
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": at(1.0),
    })
}
