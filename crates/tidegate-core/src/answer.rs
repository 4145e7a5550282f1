//! Answers that the server makes itself: errors, and what has no handler.

use crate::exchange::Exchange;
use crate::log;
use crate::notes;
use crate::remote::Unreadable;
use crate::response::{Author, Body, Response};
use std::fmt::{self, Display};
use tidegate_config::settings::{Action, Route};
use tidegate_http::{PathError, Status};

/// An error with a small page that says what it is and what the reader can do.
pub fn error(status: Status) -> Response {
    explained(status, hint(status))
}

/// The error of a request that is refused for a reason which is the operator's to know: it goes to the error log, at
/// level `info`, unless the request has only been thought of.
#[track_caller]
pub fn refused(exchange: &Exchange<'_>, status: Status, why: impl Display) -> Response {
    if notes::takes_reason(&|| format!("{}: {why}", status.0)) || exchange.state.is_hypothetical {
        return error(status);
    }
    let (method, client) = (exchange.method_token, exchange.state.remote.client);
    let site = exchange.state.site.as_ref();
    let target = site.map_or(exchange.target, |site| site.shown_target(exchange.target));
    let why = OneLine(why);
    match exchange.authority {
        "" => log::info(format_args!("{} for {client}, {method} {target}: {why}", status.0)),
        host => log::info(format_args!("{} for {client}, {method} {target} at {host}: {why}", status.0)),
    }
    error(status)
}

/// The answer to a path with a `%2F` where it names nothing.
#[cold]
pub fn encoded_slash(exchange: &Exchange<'_>) -> Response {
    refused(exchange, Status::NOT_FOUND, PathError::EncodedSlash)
}

/// The answer to a request of which nobody knows whose it is.
#[cold]
pub(crate) fn unreadable(method: &str, target: &str, host: &str, why: &Unreadable<'_>) -> Response {
    log::info(format_args!("400 for {method} {target} at {host}: {why}"));
    error(Status::BAD_REQUEST)
}

/// The error of a request whose path is none that anything is decided by: so it is refused before there is a route.
#[cold]
pub(crate) fn without_path(
    (method, target, host): (&str, &str, &str),
    client: impl Display,
    status: Status,
    why: impl Display,
) -> Response {
    let why = OneLine(why);
    match host {
        "" => log::info(format_args!("{} for {client}, {method} {target}: {why}", status.0)),
        host => log::info(format_args!("{} for {client}, {method} {target} at {host}: {why}", status.0)),
    }
    error(status)
}

/// A reason in which names stand that clients have chosen: none of them begins a line of the log.
struct OneLine<T>(T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Lines<'f, 'o>(&'f mut fmt::Formatter<'o>);
        impl fmt::Write for Lines<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let mut lines = text.split('\n');
                self.0.write_str(lines.next().unwrap_or_default())?;
                lines.try_for_each(|line| write!(self.0, "\\n{line}"))
            }
        }
        fmt::write(&mut Lines(f), format_args!("{}", self.0))
    }
}

/// How a refusal just given could be changed, for whoever wants the request explained.
pub fn remedy(how: impl Fn() -> String) {
    notes::takes_reason(&|| format!("  {}", how()));
}

/// What has been found out about a request, for whoever wants it explained.
pub fn found(what: impl Fn() -> String) {
    notes::takes_reason(&what);
}

/// Whether the request is explained, and who it is would have had to be asked of somebody whom nobody asks.
pub fn is_undecided() -> bool {
    notes::is_undecided()
}

/// The error of a request that lacks something the client is asked for now. That is nothing for the log; `why` is for who
/// wants the request explained.
pub fn asked(status: Status, why: impl Display) -> Response {
    notes::takes_reason(&|| format!("{}: {why}", status.0));
    error(status)
}

/// The server is too busy for this: 503, for which `busy-answer` is sent. `retry_after` counts seconds; without it
/// what the settings say.
pub fn busy(retry_after: Option<u64>) -> Response {
    let response = error(Status::SERVICE_UNAVAILABLE).by(Author::Busy);
    match retry_after {
        Some(seconds) => response.with("Retry-After", seconds.to_string()),
        None => response,
    }
}

/// The application cannot be reached at present: 503 as [`busy`], with a page that says so.
pub fn out_of_reach(retry_after: u64) -> Response {
    let sentence = "The application cannot be reached at present. Try again in a moment.";
    let response = explained(Status::SERVICE_UNAVAILABLE, sentence).by(Author::Busy);
    response.with("Retry-After", retry_after.to_string())
}

/// An error whose page says `sentence`. The text is ours, never the client's.
pub fn explained(status: Status, sentence: &str) -> Response {
    if !status.has_body() {
        return Response::empty(status);
    }
    let (code, reason) = (status.0, status.reason());
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{code} {reason}</title>\n\
         <body style=\"font-family:system-ui,sans-serif;max-width:36em;margin:12vh auto;padding:0 1em\">\n\
         <h1>{code} {reason}</h1>\n<p>{sentence}</p>\n</html>\n"
    );
    Response::content(status, "text/html; charset=utf-8", page)
}

/// A phrase of ours as a sentence.
pub fn sentence(phrase: &str) -> String {
    let mut chars = phrase.chars();
    let first = chars.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(chars).chain(['.']).collect()
}

/// `OPTIONS *`: what the server as a whole can do (RFC 9110 section 9.3.7).
pub fn options_of_the_server() -> Response {
    let mut response = Response::empty(Status::NO_CONTENT).with("Allow", "GET, HEAD, OPTIONS");
    response.body = Body::Empty;
    response
}

/// `405` to a method that a route never passes on, with the methods that it does take (RFC 9110 section 15.5.6).
pub fn never_passed_on(allow: &str) -> Response {
    error(Status::METHOD_NOT_ALLOWED).with("Allow", allow)
}

/// `Allow` of a route without a method that it never passes on: what its `methods` name of those that whatever answers
/// there may take.
pub fn allow_without(never: &str, route: &Route) -> String {
    let named = route.access.methods.as_deref().map(Vec::as_slice);
    let takes_all = route.action.is_program() || matches!(route.action, Action::Respond { .. });
    let usual: &[&str] = match takes_all {
        true => &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
        false => &["GET", "HEAD", "OPTIONS"],
    };
    let may_take = |method: &str| takes_all || usual.contains(&method);
    match named {
        None => usual.join(", "),
        Some(named) => allow(named.iter().filter(|method| *method != never && may_take(method))),
    }
}

/// `Allow` of methods; whoever may use GET may use HEAD.
pub fn allow<'m>(methods: impl Iterator<Item = &'m String>) -> String {
    let mut methods: Vec<&str> = methods.map(String::as_str).collect();
    if methods.contains(&"GET") && !methods.contains(&"HEAD") {
        methods.push("HEAD");
    }
    methods.join(", ")
}

fn hint(status: Status) -> &'static str {
    match status.0 {
        400 => "The request was not understood. The client that sent it should be repaired, not the address.",
        403 => "This address is not open to you.",
        404 => "There is nothing at this address. It may have moved, or the link may be mistyped.",
        401 => "This address is open only to who proves to be somebody whom it knows.",
        405 => "This address does not take that method; the <code>Allow</code> field lists those it does.",
        406 => "Nothing here is in a form that the client accepts.",
        408 => "The request took too long to arrive.",
        412 => "The condition that came with the request does not hold.",
        413 => "The body of the request is larger than this server takes.",
        414 => "The address is longer than this server takes.",
        416 => "The range asked for lies outside of the file.",
        417 => "The client expects something that this server does not do.",
        421 => "This server does not answer for that host.",
        429 => "Too many requests. Try again later.",
        431 => "The header of the request is larger than this server takes.",
        500 => "Something went wrong here. It has been logged.",
        501 => "This server does not know that method or coding.",
        502 => "The application behind this server gave no usable answer.",
        503 => "The server is busy. Try again in a moment.",
        504 => "The application behind this server took too long.",
        505 => "This server speaks HTTP/1.0 and HTTP/1.1 here.",
        507 => "There is no room left to store this.",
        _ => "The request could not be served.",
    }
}
