//! Settings: read, checked, changed, put back.

use super::App;
use super::guard::Caller;
use super::messages::{Command, FileText, Reply, RevisionInfo};
use super::problem::Problem;
use super::reads::content;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tidegate_http::HttpDate;
use tidegate_modules::json_object::Object;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    files: Vec<Object<File>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    files: Vec<Object<File>>,
    confirm_within: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Restore {
    confirm_within: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirm {
    revision: u64,
}

fn texts(files: Vec<Object<File>>) -> Vec<FileText> {
    files.into_iter().map(|Object(File { path, text })| FileText { path, text }).collect()
}

/// `GET settings`
pub async fn read(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    files(app.master.ask(Command::Settings).await?)
}

/// `GET revisions/N`
pub async fn revision(State(app): State<Arc<App>>, Path(number): Path<String>) -> Result<Response, Problem> {
    files(app.master.ask(Command::Revision(number_of(&number)?)).await?)
}

/// Texts with their tag.
fn files(reply: Reply) -> Result<Response, Problem> {
    let Reply::Files { tag, revision, files } = reply else { return Err(Problem::unexpected()) };
    let files: Vec<Value> = files
        .iter()
        .enumerate()
        .map(|(at, file)| json!({ "path": file.path, "text": file.text, "is_main": at == 0 }))
        .collect();
    let told = Json(json!({ "etag": tag, "revision": revision, "files": files }));
    Ok(tagged(told.into_response(), &tag))
}

fn tagged(mut response: Response, tag: &str) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{tag}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// `POST settings/check`
pub async fn check(State(app): State<Arc<App>>, body: Bytes) -> Result<Response, Problem> {
    let Texts { files } = content(&body)?;
    match app.master.ask(Command::Check(texts(files))).await? {
        Reply::Checked(checked) => Ok(Json(checked).into_response()),
        _ => Err(Problem::unexpected()),
    }
}

/// `PUT settings`
pub async fn write(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    fields: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let tag = condition(&fields)?;
    let Write { files, confirm_within } = content(&body)?;
    let command = Command::Write { tag, files: texts(files), confirm_within, by: caller.by };
    written(app.master.ask(command).await?)
}

/// `POST revisions/N/restore`
pub async fn restore(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(number): Path<String>,
    fields: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let (tag, revision) = (condition(&fields)?, number_of(&number)?);
    let Restore { confirm_within } = if body.is_empty() { Restore::default() } else { content(&body)? };
    let command = Command::Restore { revision, tag, confirm_within, by: caller.by };
    written(app.master.ask(command).await?)
}

fn written(reply: Reply) -> Result<Response, Problem> {
    match reply {
        Reply::Written { revision, tag, notes, confirm_by } => {
            let told = json!({
                "revision": revision,
                "etag": tag,
                "notes": notes,
                "confirm_by": confirm_by.map(time),
            });
            Ok(tagged(Json(told).into_response(), &tag))
        }
        Reply::Checked(checked) => Err(Problem::mistakes(&checked)),
        _ => Err(Problem::unexpected()),
    }
}

/// The one tag that a change takes the place of (RFC 9110 section 13.1.1).
fn condition(fields: &HeaderMap) -> Result<String, Problem> {
    let needed = || {
        let detail =
            "say which settings these take the place of: send the `etag` of `settings` in `If-Match`";
        Problem::new(StatusCode::PRECONDITION_REQUIRED, detail)
    };
    let tag = fields.get(header::IF_MATCH).and_then(|tag| tag.to_str().ok()).ok_or_else(needed)?.trim();
    // A star would overwrite whatever others have written.
    if tag == "*" {
        return Err(needed());
    }
    Ok(tag.trim_matches('"').to_owned())
}

/// `POST settings/confirm`
pub async fn confirm(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let Confirm { revision } = content(&body)?;
    app.master.ask(Command::Confirm { revision, by: caller.by }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET revisions`
pub async fn revisions(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    match app.master.ask(Command::Revisions).await? {
        Reply::Revisions(list) => Ok(Json(list.iter().map(told).collect())),
        _ => Err(Problem::unexpected()),
    }
}

/// A revision as the API tells it.
pub fn told(info: &RevisionInfo) -> Value {
    json!({
        "revision": info.revision,
        "at": time(info.at),
        "who": info.who,
        "what": info.what,
        "is_in_force": info.is_in_force,
    })
}

fn number_of(text: &str) -> Result<u64, Problem> {
    let wrong = || Problem::new(StatusCode::NOT_FOUND, "the number of a revision is a whole number");
    text.parse().map_err(|_| wrong())
}

/// A moment as RFC 3339 has it.
fn time(at: i64) -> String {
    String::from_utf8_lossy(&HttpDate(at).rfc3339()).into_owned()
}
