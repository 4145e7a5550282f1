//! Who asks, and whether the request is meant: before anything is done for it.
//!
//! Nobody is trusted for where a connection comes from alone, but for the unix socket, whose file says who may connect. A server process
//! says who has logged in on its route; the same fields of everybody else are nothing. A browser that is tricked into a request by
//! another site has neither the token of [`csrf`] nor that of a listener, and names of hosts that lead here are refused.

use super::App;
use super::connections::Peer;
use super::messages::{By, CONTENT_MAX};
use super::problem::Problem;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The field in which a server process says who asks.
pub const USER: &str = "tidegate-user";
/// The field in which it says from where.
pub const CLIENT: &str = "tidegate-client";
/// The field of the token against requests of other sites.
pub const CSRF: &str = "x-tidegate-csrf";
/// How long content may take.
const CONTENT: Duration = Duration::from_secs(30);

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who, and from where.
    pub by: By,
    /// It may be a browser, which others may trick.
    pub is_browser: bool,
}

/// Lets a request in, with its content, or says why not.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&app, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let fields = response.headers_mut();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn admit(app: &App, request: Request) -> Result<Request, Problem> {
    let Some(peer) = request.extensions().get::<Peer>().cloned() else { return Err(Problem::unexpected()) };
    let caller = caller_of(&peer, request.headers())?;
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD);
    if is_change && caller.is_browser {
        let shown = field(request.headers(), CSRF).unwrap_or_default();
        if verify_slices_are_equal(shown.as_bytes(), csrf(app, &caller.by.who).as_bytes()).is_err() {
            let detail = "the token against requests of other sites is missing or old: ask `session` for it, and send it \
                          in `X-Tidegate-CSRF`";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
    }
    let (mut head, body) = request.into_parts();
    let content = timeout(CONTENT, to_bytes(body, CONTENT_MAX)).await.map_err(|_| {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "the content of the request did not come in time")
    })?;
    let content = content.map_err(|_| {
        let detail =
            format!("the content of the request broke off, or is longer than {} MiB", CONTENT_MAX >> 20);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, &detail)
    })?;
    if is_change && !content.is_empty() && !is_json(&head.headers) {
        let detail = "the content has to be JSON: `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    head.extensions.insert(caller);
    Ok(Request::from_parts(head, Body::from(content)))
}

fn caller_of(peer: &Peer, fields: &HeaderMap) -> Result<Caller, Problem> {
    match peer {
        Peer::Server => {
            let who = field(fields, USER).filter(|who| !who.is_empty());
            let Some(who) = who else {
                return Err(Problem::new(StatusCode::FORBIDDEN, "nobody has logged in on this route"));
            };
            let from = field(fields, CLIENT).unwrap_or("an address that is not known");
            Ok(Caller { by: By { who: who.to_owned(), from: from.to_owned() }, is_browser: true })
        }
        Peer::Unix(uid) => {
            refuse_browsers(fields)?;
            let who = if *uid == 0 { "root".to_owned() } else { format!("user {uid}") };
            Ok(Caller { by: By { who, from: "the admin socket".into() }, is_browser: false })
        }
        Peer::Tcp { from, token } => {
            refuse_browsers(fields)?;
            let shown = field(fields, "authorization").and_then(|shown| {
                let (scheme, token) = shown.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
            });
            if verify_slices_are_equal(shown.unwrap_or_default().as_bytes(), token.as_bytes()).is_err() {
                let detail = "this address wants the token of `token-file`: `Authorization: Bearer …`";
                return Err(Problem::new(StatusCode::UNAUTHORIZED, detail));
            }
            if !is_of_this_machine(field(fields, "host").unwrap_or_default()) {
                let detail =
                    "this address is asked for as `localhost` or by its number, and by no other name";
                return Err(Problem::new(StatusCode::FORBIDDEN, detail));
            }
            Ok(Caller { by: By { who: "who has the token".into(), from: from.clone() }, is_browser: false })
        }
    }
}

/// No page of any site has business here: browsers come through a route with `console { change }`.
fn refuse_browsers(fields: &HeaderMap) -> Result<(), Problem> {
    if fields.contains_key(header::ORIGIN) || fields.contains_key("sec-fetch-site") {
        let detail = "this is not for pages: a browser comes through a route with `console { change }`";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    Ok(())
}

/// Whether a `Host` is an address of this machine, or `localhost`: no name that somebody else may have lead here.
pub fn is_of_this_machine(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_json(fields: &HeaderMap) -> bool {
    let kind = field(fields, "content-type").unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// The one field of a name; nothing where there are several.
fn field<'f>(fields: &'f HeaderMap, name: &str) -> Option<&'f str> {
    let mut all = fields.get_all(name).iter();
    let first = all.next().filter(|_| all.next().is_none())?;
    std::str::from_utf8(first.as_bytes()).ok()
}

/// The token against requests of other sites, of a user.
pub fn csrf(app: &App, who: &str) -> String {
    let mut token = String::new();
    for byte in hmac::sign(&app.csrf, who.as_bytes()).as_ref() {
        let _ = write!(token, "{byte:02x}");
    }
    token
}
