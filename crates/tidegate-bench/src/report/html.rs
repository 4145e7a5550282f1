//! The report as one HTML page that needs nothing else: verdict on top, figures, charts. Looks the same in ten
//! years, from a file, without a network.

use super::chart::{Chart, Frame, Series, percent_at};
use super::{About, PERCENTILES, Report};
use crate::compare::{self, Comparison};
use crate::host::Host;
use crate::quantity::{show_bytes, show_duration, show_number};
use crate::record::Times;
use crate::run::Interval;
use crate::statistics::median;
use crate::sweep::Step;
use crate::verdict::Judgement;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2329;--soft:#59636e;--page:#f4f5f7;--card:#fff;--line:#eceef1;--edge:#8a939d;--link:#1c5d99}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0;padding:24px}\
main{max-width:800px;margin:0 auto}\
h1{font-size:20px;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:16px;margin:28px 0 8px}\
.sub{color:var(--soft);margin:0 0 16px;overflow-wrap:anywhere}\
.verdict{border-radius:8px;padding:14px 18px;margin:0 0 16px;color:#fff}\
.verdict b{font-size:20px}.verdict ul{margin:6px 0 0;padding-left:20px}\
.RUNNING{background:#2a5d8f}.BROKEN-OFF{background:#59636e}\
.PASS{background:#1f7a45}.MEASURED{background:#2a5d8f}.FAIL{background:#b0243c}.INVALID{background:#8a5a00}\
.note{background:var(--card);border-left:4px solid #1f77b4;padding:8px 12px;margin:0 0 10px}\
.card{background:var(--card);border-radius:8px;padding:12px 16px;margin:0 0 16px;overflow-x:auto}\
table{border-collapse:collapse;width:100%}\
td,th{padding:3px 10px 3px 0;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
td:first-child,th:first-child{text-align:left}th{color:var(--soft);font-weight:600}\
.text td{white-space:normal}.text td:first-child{white-space:nowrap}\
main.wide,nav{max-width:1240px}nav{margin:0 auto 14px}a{color:var(--link)}\
.badge{display:inline-block;border-radius:4px;padding:0 6px;color:#fff;font-size:12px;font-weight:600}\
form{margin:0 0 14px;display:flex;flex-wrap:wrap;gap:8px 14px;align-items:end}label{color:var(--soft)}\
label>input,label>select{display:block}\
input,select,button{font:inherit;color:var(--ink);background:var(--card);border:1px solid var(--edge);border-radius:6px;\
padding:5px 9px}button{cursor:pointer}input[type=checkbox]{width:18px;height:18px;margin:3px 8px 3px 0}\
:focus-visible{outline:3px solid var(--link);outline-offset:2px}\
form .sub{margin:0;align-self:center}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(560px,100%),1fr));gap:0 16px}.chart{min-width:0}\
.pair{display:grid;grid-template-columns:1fr 1fr;gap:0 16px}.pair>div{min-width:0}\
pre{margin:0;overflow-x:auto;font-size:13px}.grow{flex:1 1 220px}.grow input{width:100%;box-sizing:border-box}\
meter{width:90px;vertical-align:middle}.left td,.left th{text-align:left}\
tr+tr td{border-top:1px solid var(--line)}svg{max-width:100%;height:auto;display:block}\
@media(max-width:640px){body{padding:12px}.pair{grid-template-columns:1fr}.chart svg{max-width:none;width:720px}}\
@media(prefers-color-scheme:dark){\
:root{--ink:#e3e7eb;--soft:#9aa5b1;--page:#14181c;--card:#1d2329;--line:#2c343c;--edge:#66717c;--link:#7db8ee}\
.chart svg{filter:invert(.885) hue-rotate(180deg)}}";

/// The page of one run.
pub fn page(report: &Report) -> String {
    let mut body = top(&report.subject, &report.load, &report.about, &report.judgement);
    body.push_str("<div class=card><table>");
    for (name, value) in figures(report) {
        let _ = write!(body, "<tr><td>{}<td>{}", escape(&name), escape(&value));
    }
    body.push_str("</table></div>");
    let host = report.host.as_ref();
    let charts = [
        Some(latency_over_time(report)),
        Some(latency_over_load(report)),
        Some(percentile_curve(&[("response", &report.totals.response), ("service", &report.totals.service)])),
        Some(errors_over_time(report)),
        host.map(processors),
        host.map(pressure),
    ];
    push_charts(&mut body, charts.into_iter().flatten());
    // Where nothing was answered there are no times of answers.
    if report.totals.counts.answered > 0 {
        body.push_str(&response_times(report));
    }
    body.push_str(&failed(report));
    document(&report.subject, &body)
}

/// The table of percentiles.
fn response_times(report: &Report) -> String {
    let totals = &report.totals;
    let mut out = format!(
        "<h2>Response time</h2><div class=card><table><tr><th>share answered{} within<th>response<th>of what was expected<th>service",
        if totals.without_answer() > 0 { " or given up" } else { "" }
    );
    for rank in PERCENTILES.into_iter().chain([100.0]) {
        let _ = write!(out, "<tr><td>{rank} %");
        for times in [&totals.response, &totals.expected, &totals.service] {
            let _ = write!(out, "<td>{}", show_duration(times.percentile(rank)));
        }
    }
    out.push_str("</table></div>");
    out
}

/// The first requests that failed.
fn failed(report: &Report) -> String {
    let failed = &report.outcome.failed;
    if failed.is_empty() {
        return String::new();
    }
    let mut out =
        "<h2>The first that failed</h2><div class=card><table><tr><th>request<th>at<th>why<th>answer"
            .to_owned();
    for failed in failed {
        let _ = write!(
            out,
            "<tr><td>{}<td>{:.3} s<td>{}<td>{}",
            escape(&failed.request),
            failed.at,
            failed.failure.sentence(),
            escape(failed.answer.as_deref().unwrap_or(""))
        );
    }
    out.push_str("</table></div>");
    out
}

/// The page of a sweep.
pub fn sweep_page(subject: &str, load: &str, about: &About, steps: &[Step], judgement: &Judgement) -> String {
    runs_at_rates(top(subject, load, about, judgement), subject, steps)
}

/// The page of a search for the highest rate: what was found, and all runs, the lowest rate first.
pub fn peak_page(
    subject: &str,
    load: &str,
    about: &About,
    found: &str,
    steps: &[Step],
    judgement: &Judgement,
) -> String {
    let mut body = top(subject, load, about, judgement);
    let _ = write!(body, "<p class=note>{}</p>", escape(found));
    let mut steps = steps.to_vec();
    steps.sort_by(|a, b| a.demanded.total_cmp(&b.demanded));
    runs_at_rates(body, subject, &steps)
}

/// Charts and table of runs at several rates.
fn runs_at_rates(mut body: String, subject: &str, steps: &[Step]) -> String {
    push_charts(&mut body, [rate_chart(steps), response_chart(steps), error_chart(steps)].into_iter());
    body.push_str(
        "<h2>Runs</h2><div class=card><table><tr><th>demanded<th>sent/s<th>answers/s<th>p50<th>p99<th>longest\
         <th>failed<th>verdict",
    );
    for step in steps {
        let response = &step.report.totals.response;
        let _ = write!(
            body,
            "<tr><td>{:.0}<td>{:.1}<td>{:.1}<td>{}<td>{}<td>{}<td>{}<td>{}",
            step.demanded,
            step.sent(),
            step.answers().1,
            show_duration(response.percentile(50.0)),
            show_duration(response.percentile(99.0)),
            show_duration(response.max()),
            step.report.totals.counts.failed(),
            step.report.judgement.verdict
        );
    }
    body.push_str("</table></div>");
    document(subject, &body)
}

/// The page of a comparison.
pub fn compare_page(
    a: &str,
    b: &str,
    manner: &str,
    about: &About,
    comparisons: &[Comparison],
    judgement: &Judgement,
) -> String {
    let load = format!("B: {b}, {manner}");
    let mut body = top(&format!("A: {a}"), &load, about, judgement);
    for comparison in comparisons {
        let _ = write!(body, "<p class=note>{}.</p>", escape(&comparison.sentence("A", "B")));
    }
    body.push_str("<div class=card><table><tr>");
    for column in compare::COLUMNS {
        let _ = write!(body, "<th>{column}");
    }
    for row in compare::rows(comparisons) {
        body.push_str("<tr>");
        for cell in row {
            let _ = write!(body, "<td>{}", escape(&cell));
        }
    }
    body.push_str("</table></div>");
    push_charts(&mut body, comparisons.iter().map(runs_chart));
    document("comparison", &body)
}

/// Every run of a comparison, in parts of the median of A.
fn runs_chart(comparison: &Comparison) -> Chart {
    let whole = median(&comparison.a);
    let series = |name: &str, runs: &[f64]| Series {
        name: name.to_owned(),
        points: (1..).zip(runs).map(|(number, value)| (f64::from(number), value / whole)).collect(),
    };
    Chart {
        title: format!("{} of each run", comparison.figure),
        x: "run".into(),
        y: "in parts of the median of A".into(),
        series: vec![series("A", &comparison.a), series("B", &comparison.b)],
        is_scatter: true,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 1.0,
    }
}

/// Demanded and achieved rates of a sweep, as autobench draws them.
pub fn rate_chart(steps: &[Step]) -> Chart {
    let line = |name: &str, of: &dyn Fn(&Step) -> f64| Series {
        name: name.to_owned(),
        points: steps.iter().map(|step| (step.demanded, of(step))).collect(),
    };
    Chart {
        title: "Answers per second over demanded rate".into(),
        x: "demanded requests per second".into(),
        y: "per second".into(),
        series: vec![
            line("answers, mean", &|step| step.answers().1),
            line("answers, lowest", &|step| step.answers().0),
            line("sent", &Step::sent),
            line("demanded", &|step| step.demanded),
        ],
        is_scatter: false,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 1.0,
    }
}

fn response_chart(steps: &[Step]) -> Chart {
    let line = |name: &str, rank: f64| Series {
        name: name.to_owned(),
        points: steps.iter().map(|step| (step.demanded, ms(&step.report.totals.response, rank))).collect(),
    };
    Chart {
        title: "Response time over load".into(),
        x: "demanded requests per second".into(),
        y: "ms".into(),
        series: vec![line("p50", 50.0), line("p99", 99.0), line("longest", 100.0)],
        is_scatter: false,
        is_logarithmic: true,
        is_percentile: false,
        at_least: 0.0,
    }
}

fn error_chart(steps: &[Step]) -> Chart {
    let points =
        steps.iter().map(|step| (step.demanded, 100.0 - step.report.totals.counts.availability())).collect();
    Chart {
        title: "Errors over load".into(),
        x: "demanded requests per second".into(),
        y: "% of requests".into(),
        series: vec![Series { name: "errors".into(), points }],
        is_scatter: false,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 1.0,
    }
}

// ---------------------------------------------------------------- charts of one run

fn over_time(report: &Report, of: impl Fn(&Interval) -> f64) -> Vec<(f64, f64)> {
    let length = report.outcome.interval as f64 / 1e9;
    report
        .outcome
        .intervals
        .iter()
        .filter(|interval| is_whole(report, interval))
        .map(|interval| (f64::from(interval.number) * length, of(interval)))
        .collect()
}

/// The last interval is cut short: it would show nothing but that.
fn is_whole(report: &Report, interval: &Interval) -> bool {
    interval.length * 2 > report.outcome.interval
}

fn times_of(interval: &Interval) -> Times {
    let mut times = Times::default();
    times.add(&interval.response);
    times
}

fn ms(times: &Times, rank: f64) -> f64 {
    times.percentile(rank).as_secs_f64() * 1e3
}

fn latency_over_time(report: &Report) -> Chart {
    let line = |name: &str, rank: f64| Series {
        name: name.to_owned(),
        points: over_time(report, |interval| ms(&times_of(interval), rank)),
    };
    Chart {
        title: "Response time over time".into(),
        x: "seconds".into(),
        y: "ms".into(),
        series: vec![line("p50", 50.0), line("p99", 99.0), line("longest", 100.0)],
        is_scatter: false,
        is_logarithmic: true,
        is_percentile: false,
        at_least: 0.0,
    }
}

/// Each interval is a point of its own rate: how the response time rose with the load that there was.
fn latency_over_load(report: &Report) -> Chart {
    let points: Vec<(f64, f64, f64)> = report
        .outcome
        .intervals
        .iter()
        .filter(|interval| interval.counts.answered > 0 && is_whole(report, interval))
        .map(|interval| {
            let times = times_of(interval);
            let rate = interval.counts.answered as f64 / (interval.length.max(1) as f64 / 1e9);
            (rate, ms(&times, 50.0), ms(&times, 99.0))
        })
        .collect();
    let p50 = points.iter().map(|point| (point.0, point.1)).collect();
    let p99 = points.iter().map(|point| (point.0, point.2)).collect();
    Chart {
        title: "Response time over load".into(),
        x: "answers per second of an interval".into(),
        y: "ms".into(),
        series: vec![Series { name: "p50".into(), points: p50 }, Series { name: "p99".into(), points: p99 }],
        is_scatter: true,
        is_logarithmic: true,
        is_percentile: false,
        at_least: 0.0,
    }
}

fn percentile_curve(lines: &[(&str, &Times)]) -> Chart {
    let series = lines.iter().map(|(name, times)| {
        let most = (times.count().max(10) as f64).log10().min(5.0);
        let steps = 200;
        let points = (0..=steps)
            .map(|step| most * f64::from(step) / f64::from(steps))
            .map(|position| (position, ms(times, percent_at(position))))
            .collect();
        Series { name: (*name).to_owned(), points }
    });
    Chart {
        title: "Percentiles".into(),
        x: "share of requests".into(),
        y: "ms".into(),
        series: series.collect(),
        is_scatter: false,
        is_logarithmic: true,
        is_percentile: true,
        at_least: 0.0,
    }
}

fn errors_over_time(report: &Report) -> Chart {
    let per_second = |count: u64, interval: &Interval| count as f64 / (interval.length.max(1) as f64 / 1e9);
    Chart {
        title: "Answers and failures over time".into(),
        x: "seconds".into(),
        y: "per second".into(),
        series: vec![
            Series {
                name: "answers".into(),
                points: over_time(report, |interval| per_second(interval.counts.answered, interval)),
            },
            Series {
                name: "failures".into(),
                points: over_time(report, |interval| per_second(interval.counts.failed(), interval)),
            },
        ],
        is_scatter: false,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 1.0,
    }
}

fn processors(host: &Host) -> Chart {
    let count = host.samples.iter().map(|sample| sample.processors.len()).max().unwrap_or(0);
    let mean = |of: &[f64]| if of.is_empty() { 0.0 } else { of.iter().sum::<f64>() / of.len() as f64 };
    let mut series = vec![Series {
        name: format!("all {count} processors"),
        points: host.samples.iter().map(|sample| (sample.at, mean(&sample.processors) * 100.0)).collect(),
    }];
    // Beyond a few, single lines tell nothing; the busiest does.
    series.push(Series {
        name: "the busiest".into(),
        points: host
            .samples
            .iter()
            .map(|sample| (sample.at, sample.processors.iter().copied().fold(0.0, f64::max) * 100.0))
            .collect(),
    });
    let server: Vec<(f64, f64)> = host
        .samples
        .iter()
        .filter_map(|sample| Some((sample.at, sample.server_cpu? * 100.0 / count.max(1) as f64)))
        .collect();
    if !server.is_empty() {
        series.push(Series { name: "the server".into(), points: server });
    }
    Chart {
        title: "Processors of this host".into(),
        x: "seconds".into(),
        y: "% busy".into(),
        series,
        is_scatter: false,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 100.0,
    }
}

fn pressure(host: &Host) -> Chart {
    type Of = fn(&crate::host::Sample) -> Option<f64>;
    let lines: [(&str, Of); 4] = [
        ("processor wait, %", |sample| sample.cpu_pressure.map(|share| share * 100.0)),
        ("disk wait, %", |sample| sample.io_pressure.map(|share| share * 100.0)),
        ("memory wait, %", |sample| sample.memory_pressure.map(|share| share * 100.0)),
        ("run queue, tasks", |sample| Some(sample.run_queue as f64)),
    ];
    let series = lines.iter().map(|(name, of)| Series {
        name: (*name).to_owned(),
        points: host.samples.iter().filter_map(|sample| Some((sample.at, of(sample)?))).collect(),
    });
    Chart {
        title: "Pressure and run queue of this host".into(),
        x: "seconds".into(),
        y: "% of the time, tasks".into(),
        series: series.collect(),
        is_scatter: false,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 10.0,
    }
}

/// The charts of a machine.
pub(crate) fn host_charts(host: Option<&Host>) -> impl Iterator<Item = Chart> {
    host.into_iter().flat_map(|host| [processors(host), pressure(host)])
}

// ---------------------------------------------------------------- the page

fn figures(report: &Report) -> Vec<(String, String)> {
    let counts = &report.totals.counts;
    let mut rows = vec![
        ("Requests per second".to_owned(), format!("{:.2}", report.rate())),
        ("Availability".to_owned(), format!("{:.3} %", counts.availability())),
        ("Complete requests".to_owned(), counts.answered.to_string()),
        ("Failed requests".to_owned(), counts.failed().to_string()),
        ("Elapsed time".to_owned(), format!("{:.3} s", report.outcome.seconds())),
        ("Received".to_owned(), show_bytes(counts.bytes as f64)),
        ("Concurrency".to_owned(), format!("{:.2}", report.concurrency())),
        ("Connections opened".to_owned(), counts.connects.to_string()),
    ];
    if counts.dropped > 0 {
        rows.push(("Idle connections dropped".to_owned(), counts.dropped.to_string()));
    }
    if let Some(bytes) = report.bytes_per_connection() {
        rows.push(("Bytes of the server for each connection".to_owned(), format!("{bytes:.0}")));
    }
    for (failure, count) in &counts.failures {
        rows.push((format!("  {}", failure.sentence()), count.to_string()));
    }
    if report.is_open_loop {
        rows.push((
            "Generator behind its schedule, p99".to_owned(),
            show_duration(report.totals.lateness.percentile(99.0)),
        ));
    }
    rows.push((
        "Generator's busiest thread".to_owned(),
        format!("{:.0} % of a processor", report.outcome.busiest_worker() * 100.0),
    ));
    rows.push(("Generator's memory".to_owned(), show_bytes(report.outcome.memory as f64)));
    if let Some(host) = &report.host {
        rows.push(("Segments sent again".to_owned(), host.retransmits().to_string()));
        rows.push(("Listen queue drops".to_owned(), host.listen_drops().to_string()));
        if let Some(cpu) = host.server_cpu() {
            rows.push(("Processors used by the server".to_owned(), format!("{cpu:.2}")));
        }
        if let Some(bytes) = host.server_resident() {
            rows.push(("Resident memory of the server".to_owned(), show_bytes(bytes as f64)));
        }
    }
    rows
}

/// What every page begins with.
pub(crate) fn top(subject: &str, load: &str, about: &About, judgement: &Judgement) -> String {
    let verdict = judgement.verdict;
    let mut out = format!(
        "<h1>tidegate bench</h1><p class=sub>{}<br>{}<br>{}<br><code>{}</code></p>\
         <div class=\"verdict {verdict}\"><b>{verdict}</b> {}",
        escape(subject),
        escape(load),
        escape(&about.sentence()),
        escape(&about.command),
        verdict.explanation(),
    );
    if !judgement.reasons.is_empty() {
        out.push_str("<ul>");
        for reason in &judgement.reasons {
            let _ = write!(out, "<li>{}.", escape(reason));
        }
        out.push_str("</ul>");
    }
    out.push_str("</div>");
    for note in &judgement.notes {
        let _ = write!(out, "<p class=note>{}.</p>", escape(note));
    }
    out
}

/// Adds those that have something to draw.
pub(crate) fn push_charts(body: &mut String, charts: impl Iterator<Item = Chart>) {
    push_framed(body, charts.map(|chart| (chart, Frame::default())));
}

/// The same, each with a frame.
pub(crate) fn push_framed(body: &mut String, charts: impl Iterator<Item = (Chart, Frame)>) {
    body.push_str("<div class=charts>");
    for (chart, frame) in charts {
        if let Some(svg) = chart.svg_in(&frame) {
            let words = escape(&words(&chart));
            let _ = write!(
                body,
                "<div class=\"card chart\" role=img tabindex=0 aria-label=\"{words}\">{svg}</div>"
            );
        }
    }
    body.push_str("</div>");
}

/// A chart for who does not see it: what it shows, and between what each line lies.
fn words(chart: &Chart) -> String {
    let mut words = format!("{}, over {}", chart.title, chart.x);
    for Series { name, points } in &chart.series {
        let values = || points.iter().map(|point| point.1).filter(|value| value.is_finite());
        if let Some(least) = values().reduce(f64::min) {
            let most = values().fold(least, f64::max);
            let (least, most, unit) = (show_number(least), show_number(most), &chart.y);
            let _ = write!(words, "; {name}: {least} to {most} {unit}");
        }
    }
    words
}

/// The page around a body.
pub(crate) fn document(title: &str, body: &str) -> String {
    document_of(title, "", &format!("<main>{body}</main>"))
}

/// The same with what is in its head, and all of its body.
pub(crate) fn document_of(title: &str, head: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <title>{} - tidegate bench</title><style>{STYLE}</style>{head}{body}</html>\n",
        escape(title)
    )
}

/// Text as HTML shows it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
