//! The page of one run: how it stands, operations against their targets, everything over time on one axis, what failed.

use super::super::stored::{Operation, Run, Status};
use super::charts::{distributions, frame, over_time};
use super::{LIVE_PATH, cells, encoded};
use crate::quantity::{show_duration, show_share};
use crate::report::{document_of, escape, push_framed};
use serde_json::Value;
use std::fmt::Write;
use std::time::Duration;

/// Failed operations that are shown.
const FAILED: usize = 60;
/// Characters of an answer that are shown.
const ANSWER: usize = 400;

/// The page for itself, as a file.
pub fn run(run: &Run) -> String {
    document_of(&name(run), "", &format!("<main>{}</main>", body(run)))
}

/// The page among others, which goes on by itself as long as the run does.
pub fn run_here(run: &Run) -> String {
    let live = format!("<script src=\"{LIVE_PATH}\" defer></script>");
    let head = if run.status == Status::Running { live.as_str() } else { "" };
    let way =
        format!("<p><a href=\"/runs/{}/export\" download>Save as one file</a></p>", encoded(&run.row.id));
    super::shown(&name(run), head, &format!("<div id=live>{}</div>{way}", body(run)))
}

fn name(run: &Run) -> String {
    match &run.row.label {
        Some(label) => format!("{}: {label}", run.row.name),
        None => run.row.name.clone(),
    }
}

fn body(run: &Run) -> String {
    let seconds = run.seconds();
    let operations = run.operations();
    let mut body = top(run);
    body.push_str(&visits(run));
    body.push_str(&so_far(run, seconds.all.last().map_or(0.0, |second| second.at + 1.0)));
    if !operations.is_empty() {
        body.push_str("<h2>Operations</h2>");
        body.push_str(&cells("Operations", &rows(&operations)));
        push_framed(&mut body, distributions(&operations).into_iter());
    }
    body.push_str("<h2>Over time</h2>");
    let frame = frame(run, &seconds);
    if frame.band.is_some() {
        body.push_str("<p class=sub>The steady time is shaded.</p>");
    }
    push_framed(&mut body, over_time(run, &seconds).into_iter().map(|chart| (chart, frame.clone())));
    body.push_str(&failed(run));
    if let Some(report) = run.report() {
        let _ =
            write!(body, "<h2>As text</h2><div class=card><pre tabindex=0>{}</pre></div>", escape(&report));
    }
    if let Some(scenario) = run.scenario() {
        let _ = write!(
            body,
            "<h2>Scenario</h2><div class=card><pre tabindex=0>{}</pre></div>",
            escape(&scenario)
        );
    }
    body
}

/// What a page begins with: what was run, and how it stands.
pub(super) fn top(run: &Run) -> String {
    let row = &run.row;
    let about = |name: &str| escape(run.text(&format!("/about/{name}")));
    let status = run.status;
    let mut out = format!(
        "<h1>{}</h1><p class=sub>{}<br>{}<br>{}, {}, {}, {}, tidegate {}<br><code>{}</code></p>\
         <div class=\"verdict {status}\"><b>{status}</b> {}",
        escape(&name(run)),
        escape(&row.target),
        escape(&row.load),
        about("date"),
        about("host"),
        about("kernel"),
        about("processors"),
        about("version"),
        about("command"),
        status.explanation(),
    );
    let reasons = run.sentences("reasons");
    if !reasons.is_empty() {
        out.push_str("<ul>");
        for reason in reasons {
            let _ = write!(out, "<li>{}.", escape(reason));
        }
        out.push_str("</ul>");
    }
    out.push_str("</div>");
    for note in run.sentences("notes") {
        let _ = write!(out, "<p class=note>{}.</p>", escape(note));
    }
    out
}

/// What was asked for and what was reached, where users came at a rate.
fn visits(run: &Run) -> String {
    let number = |pointer: &str| run.summary.pointer(pointer).and_then(Value::as_f64);
    let all = (number("/arrivals/rate"), number("/visits/rate"), number("/visits/rate_due"));
    let (Some(asked), Some(begun), Some(due)) = all else { return String::new() };
    let waited = number("/visits/waited").filter(|count| *count > 0.0);
    let waited = waited.map_or(String::new(), |count| format!("; {count} waited for another to go"));
    format!("<p class=sub>Visits per second: {asked} asked for, {due:.2} due, {begun:.2} begun{waited}.</p>")
}

/// How far a run that goes on has come.
fn so_far(run: &Run, seconds: f64) -> String {
    let Some(phases) = run.phases().filter(|_| run.status == Status::Running) else { return String::new() };
    let whole: f64 = phases.iter().sum();
    format!(
        "<p class=note>{seconds:.0} of {whole:.0} seconds \
         <progress value={seconds} max={whole} aria-label=\"how far the run has come\"></progress></p>"
    )
}

/// The table of operations, a row of headings first.
fn rows(operations: &[Operation]) -> Vec<Vec<String>> {
    let head = [
        "operation",
        "ended",
        "failed",
        "per second",
        "share",
        "due",
        "p50",
        "p90",
        "p95",
        "p99",
        "longest",
        "targets",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0));
    for operation in operations {
        let time = |percent| shown(operation.percentile(percent));
        let targets = operation.targets.iter().map(|(percent, limit)| {
            let word = match operation.judged(*percent) {
                None => "unknown",
                Some(time) if time <= *limit => "met",
                Some(_) => "missed",
            };
            format!("p{percent} {} {word}", shown(Some(*limit)))
        });
        let conforming = operation.conforming.map(|(due, share)| {
            let word = share.map_or("unknown", |share| if share >= due { "met" } else { "missed" });
            format!("conforming {} {word}", show_share(due))
        });
        let targets = targets.chain(conforming).collect::<Vec<_>>().join(", ");
        rows.push(vec![
            operation.name.clone(),
            operation.ended.to_string(),
            operation.failed.to_string(),
            format!("{:.2}", operation.rate),
            share(operation.share),
            share(operation.share_due),
            time(50.0),
            time(90.0),
            time(95.0),
            time(99.0),
            shown(operation.max.filter(|_| !operation.response.is_empty())),
            if targets.is_empty() { "-".to_owned() } else { targets },
        ]);
    }
    rows
}

/// Seconds as people read them.
pub(super) fn shown(seconds: Option<f64>) -> String {
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.map_or("-".to_owned(), show_duration)
}

/// What failed: of a scenario operations, else requests.
fn failed(run: &Run) -> String {
    let list = |name: &str| run.summary.get(name).and_then(Value::as_array).filter(|list| !list.is_empty());
    let Some(list) = list("failed_operations").or_else(|| list("first_failed")) else { return String::new() };
    let head = ["operation", "at", "user", "request", "why", "answer"].map(str::to_owned).to_vec();
    let text = |of: &Value, name: &str| match of.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.chars().take(ANSWER).collect(),
        Some(other) => other.to_string(),
    };
    let row = |of: &Value| {
        let at = of.get("at").and_then(Value::as_f64).map_or(String::new(), |at| format!("{at:.3} s"));
        let why = text(of, "reason");
        let why = if why.is_empty() { text(of, "failure") } else { why };
        vec![text(of, "operation"), at, text(of, "user"), text(of, "request"), why, text(of, "answer")]
    };
    let rows: Vec<Vec<String>> = [head].into_iter().chain(list.iter().take(FAILED).map(row)).collect();
    format!("<h2>The first that failed</h2><div class=left>{}</div>", cells("The first that failed", &rows))
}
