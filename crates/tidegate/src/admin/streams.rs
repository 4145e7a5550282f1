//! Streams of events (`text/event-stream`): requests as they end, revisions, findings.
//!
//! There are few of them at a time, each has a bounded queue, and one whose reader takes nothing for long is ended. What has no room is
//! left out and counted where it is made: a slow reader costs the server nothing more.
//!
//! Who comes through a route was let in by a login and by addresses that may count no longer. Such a stream ends when a revision is in
//! force, and after [`LEAVE`] in any case: the browser asks again, and the route decides anew.

use super::App;
use super::guard::Caller;
use super::messages::{Command, RevisionInfo};
use super::problem::Problem;
use super::reads::query;
use super::settings::told;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::selection::Selection;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

/// Pieces that wait for the reader.
const QUEUE: usize = 16;
/// How long the reader may take nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one lasts that has come through a route.
const LEAVE: Duration = Duration::from_secs(240);
/// What a browser waits before it asks again: by then every server process has taken the revision up.
const RETRY: &str = "retry: 1000\n\n";
/// How often something is sent, if only so that whoever has gone is seen to have.
const ALIVE: Duration = Duration::from_secs(15);
/// How often requests are asked for.
const TAIL: Duration = Duration::from_millis(250);
/// How often findings are.
const FINDINGS: Duration = Duration::from_secs(10);

/// The reading end: content of a response.
struct Stream {
    pieces: mpsc::Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// The writing end.
struct Pen {
    pieces: mpsc::Sender<Bytes>,
}

impl Pen {
    /// `false`: nobody reads any more.
    async fn write(&self, text: String) -> bool {
        matches!(timeout(PATIENCE, self.pieces.send(text.into())).await, Ok(Ok(())))
    }

    /// Waits; `false`: nobody reads any more, or may.
    async fn rest(&self, until: Instant, leave: &mut Leave) -> bool {
        tokio::select! {
            () = self.pieces.closed() => false,
            () = leave.is_over() => false,
            () = sleep_until(until) => true,
        }
    }
}

/// For how long somebody may read.
struct Leave {
    /// `None`: for good. Where the socket or the token of a listener changes, another process answers.
    until: Option<Instant>,
    revisions: broadcast::Receiver<RevisionInfo>,
}

impl Leave {
    fn new(app: &App, caller: &Caller) -> Leave {
        let until = caller.is_browser.then(|| Instant::now() + LEAVE);
        Leave { until, revisions: app.revisions.subscribe() }
    }

    async fn is_over(&mut self) {
        let Some(until) = self.until else { return pending().await };
        tokio::select! {
            () = sleep_until(until) => {}
            _ = self.revisions.recv() => {}
        }
    }
}

/// A stream, where there is a place for one more.
fn open(app: &App) -> Result<(Pen, Response), Problem> {
    let place = app.streams.clone().try_acquire_owned().map_err(|_| {
        let detail = "there are as many streams as the server has places for: end one of them";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    let (pieces, stream) = mpsc::channel(QUEUE);
    let mut response = Response::new(Body::new(Stream { pieces: stream, _place: place }));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok((Pen { pieces }, response))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    site: Option<String>,
    route: Option<String>,
    method: Option<String>,
    client: Option<String>,
    status: Option<String>,
    #[serde(rename = "at-least")]
    at_least: Option<String>,
}

impl Which {
    fn selection(self) -> Result<Selection, Problem> {
        let statuses = self.status.unwrap_or_default();
        let pairs = [
            ("site", self.site),
            ("route", self.route),
            ("method", self.method),
            ("client", self.client),
            ("at-least", self.at_least),
        ];
        let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let statuses = statuses.split(',').filter(|status| !status.is_empty());
        let all = pairs.chain(statuses.map(|status| ("status", status.to_owned())));
        let mut text = String::new();
        for (name, value) in all.filter(|(_, value)| !value.is_empty()) {
            if value.contains(char::is_control) {
                return Err(Problem::wrong(&format!("`{name}` holds control characters")));
            }
            let _ = write!(text, "{name}={value}\t");
        }
        text.trim_end_matches('\t').parse().map_err(|why: String| Problem::wrong(&why))
    }
}

/// `GET tail`
pub async fn tail(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let selection = query::<Which>(&uri)?.selection()?;
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Problem::unexpected())?;
    let name = format!("{:x}", u64::from_le_bytes(bytes));
    let line = format!("tail {name} {selection}");
    let mut leave = Leave::new(&app, &caller);
    // Who cannot begin hears why.
    let first = app.master.text(Command::Read(line.clone())).await?;
    let (pen, response) = open(&app)?;
    tokio::spawn(async move {
        let mut report = first;
        let mut last = Instant::now();
        let mut greeting = RETRY;
        loop {
            let lines = std::mem::take(&mut greeting).to_owned() + &rows(&report);
            let is_due = last.elapsed() > ALIVE;
            if !lines.is_empty() || is_due {
                last = Instant::now();
                let lines = if lines.is_empty() { ":\n\n".to_owned() } else { lines };
                if !pen.write(lines).await {
                    break;
                }
            }
            if !pen.rest(Instant::now() + TAIL, &mut leave).await {
                break;
            }
            match app.master.text(Command::Read(line.clone())).await {
                Ok(next) => report = next,
                // Most often it is busy: what has ended meanwhile waits with the workers.
                Err(_) => report.clear(),
            }
        }
        let _ = app.master.text(Command::Read(format!("tail-end {name}"))).await;
    });
    Ok(response)
}

/// A line for each request, and one for what was lost.
fn rows(report: &str) -> String {
    let report: Value = serde_json::from_str(report).unwrap_or_default();
    let mut lines = String::new();
    for row in report["rows"].as_array().into_iter().flatten() {
        let _ = write!(lines, "data: {row}\n\n");
    }
    if let Some(lost @ 1..) = report["lost"].as_u64() {
        let _ = write!(lines, "data: {}\n\n", json!({ "lost": lost }));
    }
    lines
}

/// `GET events`
pub async fn events(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let Leave { until, mut revisions } = Leave::new(&app, &caller);
    let (pen, response) = open(&app)?;
    tokio::spawn(async move {
        let mut is_over = !pen.write(RETRY.to_owned()).await;
        let mut known: BTreeMap<String, Value> = BTreeMap::new();
        let (mut next_look, mut next_alive) = (Instant::now(), Instant::now());
        while !is_over {
            let text = tokio::select! {
                () = pen.pieces.closed() => return,
                () = sleep_until(until.unwrap_or(next_look)), if until.is_some() => return,
                revision = revisions.recv() => match revision {
                    Ok(info) => {
                        is_over = until.is_some();
                        revision_event(&info)
                    }
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                },
                () = sleep_until(next_look) => {
                    next_look = Instant::now() + FINDINGS;
                    findings(&app, &mut known).await
                }
                () = sleep_until(next_alive) => {
                    next_alive = Instant::now() + ALIVE;
                    ":\n\n".to_owned()
                }
            };
            if !text.is_empty() && !pen.write(text).await {
                return;
            }
        }
    });
    Ok(response)
}

fn revision_event(info: &RevisionInfo) -> String {
    format!("event: revision\ndata: {}\n\n", told(info))
}

/// Events of findings that have come or gone since the last look.
async fn findings(app: &App, known: &mut BTreeMap<String, Value>) -> String {
    let Ok(report) = app.master.text(Command::Read("findings json".into())).await else {
        return String::new();
    };
    let report: Value = serde_json::from_str(&report).unwrap_or_default();
    let present: BTreeMap<String, Value> = report["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|found| (format!("{} {}", found["name"], found["subject"]), found.clone()))
        .collect();
    let mut text = String::new();
    for (_, found) in present.iter().filter(|(name, _)| !known.contains_key(*name)) {
        let _ = write!(text, "event: finding\ndata: {found}\n\n");
    }
    for (_, found) in known.iter().filter(|(name, _)| !present.contains_key(*name)) {
        let mut gone = found.clone();
        if let Some(fields) = gone.as_object_mut() {
            fields.insert("has_ended".into(), Value::Bool(true));
        }
        let _ = write!(text, "event: finding\ndata: {gone}\n\n");
    }
    *known = present;
    text
}
