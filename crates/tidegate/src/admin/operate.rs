//! What an operator does to the server: pools, members, requests, bans, stored responses, logs. Each is a line of the control socket, made of what was
//! checked here and read once more by the master.

use super::App;
use super::guard::Caller;
use super::messages::Command;
use super::problem::Problem;
use super::reads::{as_json, content, no_content};
use crate::master::control::{Request, is_request_id};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use tidegate_modules::cache_desk::{CacheOrder, PurgeWanted};
use tidegate_modules::gateway::balance::groups::{SteeringOrder, Way};

async fn order(app: &App, caller: Caller, request: &Request) -> Result<String, Problem> {
    let line = request.to_line();
    // What the master reads is what was meant, or nothing.
    if line.contains(['\n', '\0']) || Request::parse(&line).as_ref() != Some(request) {
        return Err(Problem::wrong("a name with control characters is none that the server has"));
    }
    app.master.text(Command::Operate(line, caller.by)).await
}

/// `POST pools/NAME/restart`
pub async fn restart(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(pool): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    no_content(&body)?;
    order(&app, caller, &Request::RestartPool(pool)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Steer {
    way: Option<String>,
    /// Inside: `null` is the weight of the settings.
    #[serde(default, deserialize_with = "there")]
    weight: Option<Option<u32>>,
}

/// What is there, `null` too.
fn there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::<u32>::deserialize(from).map(Some)
}

/// `PATCH upstreams/GROUP/members/MEMBER`
pub async fn steer(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path((group, member)): Path<(String, String)>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let Steer { way, weight } = content(&body)?;
    let order_of = match (way.as_deref(), weight) {
        (Some("serve"), None) => SteeringOrder::Way(Way::Serve),
        (Some("drain"), None) => SteeringOrder::Way(Way::Drain),
        (Some("pause"), None) => SteeringOrder::Way(Way::Pause),
        (None, Some(weight)) => SteeringOrder::Weight(weight),
        _ => {
            let detail =
                "say either `way`, which is serve, drain or pause, or `weight`, which is a number or null";
            return Err(Problem::wrong(detail));
        }
    };
    // A slash of the path of a socket may have come as `%2F`, and stays that on the way through a route.
    let member = member.replace("%2F", "/").replace("%2f", "/");
    order(&app, caller, &Request::Steer { group, member, order: order_of }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    id: Option<String>,
    selection: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// `POST requests/cancel`
pub async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let Cancel { id, selection, dry_run } = content(&body)?;
    let request = match (id, selection) {
        (Some(id), None) if is_request_id(&id) => Request::Cancel { id, is_rehearsal: dry_run },
        (None, Some(selection)) => {
            let selection: tidegate_core::selection::Selection =
                selection.parse().map_err(|why: String| Problem::wrong(&why))?;
            if selection.is_everything() {
                return Err(Problem::wrong(
                    "a selection without a condition is every request, which nobody means",
                ));
            }
            Request::CancelAll { selection, is_rehearsal: dry_run }
        }
        _ => {
            let detail =
                "say either `id`, which is that of a request, or `selection`; `dry_run` may stand beside it";
            return Err(Problem::wrong(detail));
        }
    };
    Ok(Json(json!({ "text": order(&app, caller, &request).await? })))
}

/// `POST logs/reopen`
pub async fn reopen_logs(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    no_content(&body)?;
    order(&app, caller, &Request::ReopenLogs).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    level: String,
}

/// `PATCH logs`
pub async fn log_level(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let LogLevel { level } = content(&body)?;
    let level = level.parse().map_err(|why: String| Problem::wrong(&why))?;
    order(&app, caller, &Request::LogLevel(level)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE bans/ADDRESS`
pub async fn lift(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(address): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    no_content(&body)?;
    let address: IpAddr =
        address.parse().map_err(|_| Problem::wrong("an IPv4 or IPv6 address is let in again"))?;
    order(&app, caller, &Request::Lift(address)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is said where nobody knows what is to go.
const PURGE_EXAMPLE: &str = r#"write `{"what":{"url":"https://example.com/news"}}`, in place of `url` also `prefix`, `host`, `tag` or `group`, or `{"what":"all"}`"#;

/// `POST caches/purge`
pub async fn purge(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let wanted: PurgeWanted = content(&body).map_err(|problem| problem.with_hint(PURGE_EXAMPLE))?;
    let purge = CacheOrder::Purge(wanted);
    purge.check().map_err(|why| Problem::wrong(&why))?;
    let request = Request::Stores(purge);
    Ok(as_json(order(&app, caller, &request).await?))
}
