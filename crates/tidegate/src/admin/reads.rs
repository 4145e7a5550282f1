//! What can be read of the server, and what the settings would do.

use super::App;
use super::guard::{self, Caller};
use super::messages::Command;
use super::problem::Problem;
use crate::cli::explain;
use crate::master::control::Request;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use tidegate_modules::cache_desk::CacheOrder;
use tidegate_modules::json_object;

/// Content of a request, which is an object.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn content<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    json_object::read(body).map_err(|why| {
        Problem::wrong(&format!("the content of the request is not what this path takes: {why}"))
    })
}

/// For a path that takes no content: none, or an object without members, as clients send that always send one.
///
/// # Errors
/// A sentence, where it says something that would be passed over.
pub fn no_content(body: &[u8]) -> Result<(), Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    if body.is_empty() { Ok(()) } else { content(body).map(|Nothing {}| ()) }
}

/// The query of a request.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let read = Query::<T>::try_from_uri(uri);
    read.map(|Query(read)| read).map_err(|error| {
        let why = error.body_text();
        let why = why.trim_start_matches("Failed to deserialize query string: ");
        Problem::wrong(&format!("the query is not understood: {why}"))
    })
}

/// `GET session`
pub async fn session(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Json<Value> {
    Json(json!({
        "user": caller.by.who,
        "may": ["view", "operate", "settings"],
        "csrf": guard::csrf(&app, &caller.by.who),
    }))
}

async fn report(app: &App, line: &str) -> Result<Response, Problem> {
    let text = app.master.text(Command::Read(line.to_owned())).await?;
    // A server that does not tell it answers with a sentence.
    match text.starts_with(['{', '[']) {
        true => Ok(as_json(text)),
        false => Err(Problem::new(StatusCode::NOT_FOUND, &text)),
    }
}

pub(super) fn as_json(text: impl IntoResponse) -> Response {
    let mut response = text.into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// `GET snapshot`
pub async fn snapshot(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, "status json").await
}

/// `GET findings`
pub async fn findings(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, "findings json").await
}

/// `GET sites`
pub async fn sites(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, "sites json").await
}

/// `GET requests`
pub async fn requests(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, "requests json").await
}

/// `GET slow`
pub async fn slow(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, "slow json").await
}

/// `GET busiest`
pub async fn busiest(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, "busiest json").await
}

/// `GET settings/effective`
pub async fn effective(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, "settings json").await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    #[serde(default = "ten_minutes")]
    range: String,
}

fn ten_minutes() -> String {
    "10m".into()
}

/// `GET history`
pub async fn history(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let Range { range } = query(&uri)?;
    if !["10m", "6h", "14d", "days"].contains(&range.as_str()) {
        return Err(Problem::wrong("`range` is 10m, 6h, 14d or days"));
    }
    report(&app, &format!("history {range} json")).await
}

/// `GET bans`
pub async fn bans(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    Ok(as_json(app.master.text(Command::Bans).await?))
}

/// `GET caches`
pub async fn caches(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    report(&app, &Request::Stores(CacheOrder::Figures { store: None }).to_line()).await
}

/// `GET schema`
pub async fn schema() -> Response {
    static SCHEMA: OnceLock<String> = OnceLock::new();
    as_json(SCHEMA.get_or_init(tidegate_config::json_schema).as_str())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Explain {
    url: Option<String>,
    #[serde(default = "get")]
    method: String,
    from: Option<String>,
    user: Option<String>,
}

fn get() -> String {
    "GET".into()
}

/// `GET explain`
pub async fn explain(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>, Problem> {
    let Explain { url, method, from, user } = query(&uri)?;
    let Some(url) = url.filter(|url| !url.is_empty()) else {
        return Err(Problem::wrong("`url` is missing: ask for `explain?url=https://example.com/path`"));
    };
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (from, user) = (filled(from), filled(user));
    if let Some(why) = from.as_deref().and_then(|from| explain::peer(from).err()) {
        return Err(Problem::wrong(&format!("`from` is not the address of a client: {why}")));
    }
    let command = Command::Explain { url, method, from, user };
    Ok(Json(json!({ "text": app.master.text(command).await? })))
}
