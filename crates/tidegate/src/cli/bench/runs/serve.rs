//! `tidegate bench serve`: kept runs in a browser, those that go on as they go on.
//!
//! For this machine: it listens on a loopback address, and is asked for as one, so that no page of another site can read runs by
//! a name that leads here. It only reads; pages are made anew for each request.

use super::super::super::{complain, print};
use super::RunsFolder;
use super::connections::{Connections, Life, Watched};
use super::ls::since;
use crate::admin::is_of_this_machine;
use anyhow::{Context, Result};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use clap::Args;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tidegate_bench::runs::pages::{self, Filter};
use tidegate_bench::runs::{Run, Runs, RunsError};
use tokio::net::TcpListener;

/// How long a head may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(10);
/// How long it rests where nothing can be accepted.
const PAUSE: Duration = Duration::from_millis(200);
/// Runs of a series.
const SERIES: usize = 200;
/// Nothing is asked of anybody else, and no script is run but ours.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// Serves pages of the kept runs: a table of all, each one, two beside each other, and any number as a series.
///
/// A run that goes on is shown as it goes on. The pages are for this machine: no other can reach them unless --listen names an
/// address that others can.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench serve                            on http://127.0.0.1:8090
  tidegate bench serve --listen 127.0.0.1:0       on any free port
  tidegate bench serve --runs-folder /srv/runs    another folder of runs

Exit codes: 1 the address cannot be had, 2 the arguments are wrong; else it serves until a signal ends it")]
pub struct Arguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    #[command(flatten)]
    folder: RunsFolder,
}

/// What requests share.
struct App {
    runs: Runs,
    /// Whether only this machine may ask.
    is_local: bool,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let app = Arc::new(App { runs: arguments.folder.runs(), is_local: arguments.listen.ip().is_loopback() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot set up the server")?.block_on(serve(arguments.listen, app))
}

async fn serve(listen: SocketAddr, app: Arc<App>) -> Result<ExitCode> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr().context("cannot find the own address")?;
    print(&format!("Runs of {} on http://{address}/\n", app.runs.folder().display()))?;
    if !app.is_local {
        complain(&format!("tidegate bench: every machine that reaches {address} can read these runs\n"));
    }
    let router = Router::new()
        .route("/", get(table))
        .route("/runs/{id}", get(one))
        .route("/runs/{id}/export", get(export))
        .route("/compare", get(compare))
        .route(pages::LIVE_PATH, get(live))
        .fallback(|| async { missing("There is no such page.") })
        .layer(from_fn_with_state(app.clone(), guard))
        .with_state(app);
    let connections = Arc::new(Connections::default());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let place = connections.place().await;
        let service = TowerToHyperService::new(router.clone().layer(Extension(place.life.clone())));
        let stream = Watched { stream, life: place.life.clone() };
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            // Who breaks off has nobody to be told.
            tokio::select! {
                _ = served => {}
                () = place.life.over() => {}
            }
        });
    }
}

async fn guard(
    State(app): State<Arc<App>>,
    Extension(life): Extension<Arc<Life>>,
    request: Request,
    next: Next,
) -> Response {
    let _under_way = life.begin();
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = if app.is_local && !is_of_this_machine(host) {
        let sentence = "Ask for this server as localhost or by its address.";
        (StatusCode::FORBIDDEN, Html(sentence)).into_response()
    } else {
        next.run(request).await
    };
    let fields = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn missing(sentence: &'static str) -> Response {
    (StatusCode::NOT_FOUND, Html(sentence)).into_response()
}

/// A page that reads and draws, which takes its time: on a thread of its own.
async fn page(make: impl FnOnce() -> Result<String, RunsError> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(make).await {
        Ok(Ok(page)) => Html(page).into_response(),
        Ok(Err(error)) => {
            let status = match error {
                RunsError::Unknown { .. } | RunsError::Broken { .. } => StatusCode::NOT_FOUND,
                RunsError::Read(..) | RunsError::Several { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            };
            // Text: it names what somebody has asked for.
            (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{error}\n"))
                .into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made.\n").into_response(),
    }
}

async fn table(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let mut filter = Filter::default();
    for (name, value) in pairs(query.as_deref()).filter(|(_, value)| !value.is_empty()) {
        match name.as_str() {
            "scenario" => filter.scenario = Some(value),
            // What is no day or verdict filters nothing: forms have only right ones.
            "since" => filter.since = since(&value).ok(),
            "verdict" => filter.verdict = value.parse().ok(),
            _ => {}
        }
    }
    page(move || {
        let listing = app.runs.list()?;
        Ok(pages::table(&listing, &filter, &app.runs.folder().display().to_string()))
    })
    .await
}

async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    page(move || Ok(pages::run_here(&found(&app, &id)?))).await
}

async fn export(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    let name: String =
        id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).collect();
    let mut response = page(move || Ok(pages::run(&found(&app, &id)?))).await;
    if response.status().is_success()
        && let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}.html\""))
    {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

async fn compare(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let ids: Vec<String> =
        pairs(query.as_deref()).filter(|(name, _)| name == "run").map(|(_, id)| id).take(SERIES).collect();
    page(move || {
        let runs: Vec<Run> = ids.iter().map(|id| found(&app, id)).collect::<Result<_, _>>()?;
        Ok(match runs.as_slice() {
            // The earlier one is A, whatever the table has on top.
            [one, other] if other.row.started < one.row.started => pages::pair(other, one),
            [one, other] => pages::pair(one, other),
            several => pages::several_here(several),
        })
    })
    .await
}

async fn live() -> Response {
    let mut fields = HeaderMap::new();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    (fields, pages::LIVE).into_response()
}

/// A run of the folder: nobody leads elsewhere by the name of one.
fn found(app: &App, id: &str) -> Result<Run, RunsError> {
    if !tidegate_bench::runs::is_id(id) {
        return Err(RunsError::Unknown { run: id.to_owned(), folder: app.runs.folder().to_owned() });
    }
    app.runs.find(id)
}

/// Names and values of a query (application/x-www-form-urlencoded).
fn pairs(query: Option<&str>) -> impl Iterator<Item = (String, String)> {
    let parts = query.unwrap_or_default().split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    parts.map(|(name, value)| (decoded(name), decoded(value)))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (byte, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
        rest = behind;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let read: Vec<_> = pairs(Some("run=a%2Fb&run=c+d%&x&=%zz%C3%A9")).collect();
        let wanted = [("run", "a/b"), ("run", "c d%"), ("x", ""), ("", "%zzé")];
        assert_eq!(read, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(pairs(None).collect::<Vec<_>>(), [(String::new(), String::new())]);
    }
}
