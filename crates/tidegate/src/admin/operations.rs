//! The table of all paths of the API: the router and the OpenAPI document are made from it, so that neither knows a path that the other
//! does not.

use super::problem::Problem;
use super::{App, guard, openapi, operate, reads, settings, streams};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use std::sync::Arc;

/// One thing that can be asked for.
pub struct Operation {
    /// The method, in small letters.
    pub method: &'static str,
    /// The path, with names in braces.
    pub path: &'static str,
    /// What it is for.
    pub summary: &'static str,
    /// What the query may say, each with what it means.
    pub query: &'static [(&'static str, &'static str)],
    /// What the content is called in the document, where there is one.
    pub content: Option<&'static str>,
    /// What an answer is called there; a media type where it is a stream; nothing where there is no content.
    pub answer: Option<&'static str>,
    /// The status of an answer that is none of a problem.
    pub status: u16,
    /// Whether `If-Match` is needed.
    pub is_conditional: bool,
    /// Who answers.
    pub route: fn() -> MethodRouter<Arc<App>>,
}

const NOTHING: Operation = Operation {
    method: "get",
    path: "",
    summary: "",
    query: &[],
    content: None,
    answer: None,
    status: 200,
    is_conditional: false,
    route: || get(reads::session),
};

/// All of them.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/api/v1/session",
        summary: "Who asks, what they may do, and the token that every change has to show",
        answer: Some("Session"),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/settings",
        summary: "The files of the settings in force, as they lie on the disk, with a tag",
        answer: Some("Settings"),
        route: || get(settings::read),
        ..NOTHING
    },
    Operation {
        method: "put",
        path: "/api/v1/settings",
        summary: "Writes texts and takes them up; all of it is put back where the server does not take them up",
        content: Some("Write"),
        answer: Some("Written"),
        is_conditional: true,
        route: || put(settings::write),
        ..NOTHING
    },
    Operation {
        method: "post",
        path: "/api/v1/settings/check",
        summary: "What is wrong with texts, and what they would change; nothing is written",
        content: Some("Texts"),
        answer: Some("Checked"),
        route: || post(settings::check),
        ..NOTHING
    },
    Operation {
        method: "post",
        path: "/api/v1/settings/confirm",
        summary: "A revision that waits for it stays",
        content: Some("Confirm"),
        status: 204,
        route: || post(settings::confirm),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/settings/effective",
        summary: "Every value that is in force, and where it was written",
        answer: Some("Report"),
        route: || get(reads::effective),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/revisions",
        summary: "The last revisions, the newest first",
        answer: Some("Revisions"),
        route: || get(settings::revisions),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/revisions/{revision}",
        summary: "The files of a revision",
        answer: Some("Settings"),
        route: || get(settings::revision),
        ..NOTHING
    },
    Operation {
        method: "post",
        path: "/api/v1/revisions/{revision}/restore",
        summary: "Writes the texts of a revision and takes them up",
        content: Some("Restore"),
        answer: Some("Written"),
        is_conditional: true,
        route: || post(settings::restore),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/schema",
        summary: "The JSON schema of the settings, with what each directive is for",
        answer: Some("Report"),
        route: || get(reads::schema),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/explain",
        summary: "What the settings on the disk would do with a request, and why",
        query: &[
            ("url", "The whole URL"),
            ("method", "The method; GET unless named"),
            ("from", "The address of the client"),
            ("user", "Who has logged in"),
        ],
        answer: Some("Text"),
        route: || get(reads::explain),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/tail",
        summary: "Requests as they end: a stream with an object for each",
        query: &[
            ("site", "A name of the site"),
            ("route", "The pattern of the route"),
            ("method", "The method"),
            ("client", "An address or a network"),
            ("status", "404, 5xx, 400-499, or several with commas"),
            ("at-least", "Milliseconds"),
        ],
        answer: Some("text/event-stream"),
        route: || get(streams::tail),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/events",
        summary: "Revisions that are taken up and findings that come and go: a stream of `revision` and `finding`",
        answer: Some("text/event-stream"),
        route: || get(streams::events),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/snapshot",
        summary: "The report on the server, as `tidegate status --json`",
        answer: Some("Report"),
        route: || get(reads::snapshot),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/history",
        summary: "What the server remembers",
        query: &[("range", "10m, 6h, 14d or days")],
        answer: Some("Report"),
        route: || get(reads::history),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/findings",
        summary: "What limits the server",
        answer: Some("Report"),
        route: || get(reads::findings),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/requests",
        summary: "The requests under way",
        answer: Some("Report"),
        route: || get(reads::requests),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/slow",
        summary: "The requests that were slow for their route",
        answer: Some("Report"),
        route: || get(reads::slow),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/sites",
        summary: "What each site is, and how it does: names, listeners, routes, the end of its certificate, requests, errors, findings, and why it is not served",
        answer: Some("Sites"),
        route: || get(reads::sites),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/busiest",
        summary: "What comes most often",
        answer: Some("Report"),
        route: || get(reads::busiest),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/bans",
        summary: "Who is banned, and until when",
        answer: Some("Report"),
        route: || get(reads::bans),
        ..NOTHING
    },
    Operation {
        method: "delete",
        path: "/api/v1/bans/{address}",
        summary: "Somebody is banned no longer",
        status: 204,
        route: || delete(operate::lift),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/caches",
        summary: "How the stores of responses do",
        answer: Some("Report"),
        route: || get(reads::caches),
        ..NOTHING
    },
    Operation {
        method: "post",
        path: "/api/v1/caches/purge",
        summary: "Has stored responses be used no longer",
        content: Some("Purge"),
        answer: Some("Report"),
        route: || post(operate::purge),
        ..NOTHING
    },
    Operation {
        method: "post",
        path: "/api/v1/pools/{pool}/restart",
        summary: "Replaces the processes of a pool, one after the other",
        status: 204,
        route: || post(operate::restart),
        ..NOTHING
    },
    Operation {
        method: "patch",
        path: "/api/v1/upstreams/{group}/members/{*member}",
        summary: "What a member of an upstream group is to get",
        content: Some("Steer"),
        status: 204,
        route: || patch(operate::steer),
        ..NOTHING
    },
    Operation {
        method: "post",
        path: "/api/v1/requests/cancel",
        summary: "Ends a request, or those of a selection",
        content: Some("Cancel"),
        answer: Some("Text"),
        route: || post(operate::cancel),
        ..NOTHING
    },
    Operation {
        method: "patch",
        path: "/api/v1/logs",
        summary: "What the error log of all processes takes until settings are taken up",
        content: Some("LogLevel"),
        status: 204,
        route: || patch(operate::log_level),
        ..NOTHING
    },
    Operation {
        method: "post",
        path: "/api/v1/logs/reopen",
        summary: "Opens the logs anew, after a rotation",
        status: 204,
        route: || post(operate::reopen_logs),
        ..NOTHING
    },
    Operation {
        path: "/api/v1/openapi.json",
        summary: "This document",
        answer: Some("Report"),
        route: || get(openapi::document),
        ..NOTHING
    },
];

/// The router of all of them, behind the guard.
pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for operation in OPERATIONS {
        router = router.route(operation.path, (operation.route)());
    }
    router
        .fallback(missing)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::disable()) // the guard has read it, within its bound
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .with_state(app.clone())
}

async fn missing(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        &format!("there is nothing at {path}: `api/v1/openapi.json` says what there is"),
    )
}

async fn not_allowed() -> Problem {
    let detail = "this path does not take that method: `api/v1/openapi.json` says which it takes";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
