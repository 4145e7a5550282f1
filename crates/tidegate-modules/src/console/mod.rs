//! The console: the figures of the server live, in a browser. A page with its script, which are part of the program
//! (`assets`), and the data that it asks for.
//!
//! | path below the route | answer |
//! | --- | --- |
//! | nothing | the page |
//! | `api/status` | the report on the server, as `tidegate status --json`; `?sites=none` leaves out what sites have counted, `?recent` takes one that another was told less than a second ago |
//! | `api/requests`, `api/slow` | the requests under way; those that were slow |
//! | `api/findings` | what limits the server, and whom its limits have turned away |
//! | `api/history?range=10m`, `6h`, `14d`, `days` | what the server remembers, where it does |
//! | `api/v1/…` | what the admin API answers (`admin`), where its route may change things |
//!
//! But for that it only reads. Who may see it is for the access rules of its route; where the figures come from is what the status page has
//! too ([`StatusSource`]). The sources of page and script are in `console/` of the repository.

mod admin;
mod assets;

use crate::status::{
    Format, HistoryRange, Report, StatusSource, is_our_host, is_same_site, requests_report, slow_report,
};
use serde_json::json;
use std::rc::Rc;
use tidegate_core::explain::Foreseen;
use tidegate_core::hosts::Names;
use tidegate_core::{Exchange, Handler, Pass, Reply, Response, answer};
use tidegate_http::path::encode_path;
use tidegate_http::{Method, Status};

/// Scripts, styles and figures come from here alone; nothing may frame the page.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const ANOTHER_HOST: &str =
    "the console is for an address, localhost, or a name that a site has in the settings";
/// What paths of the admin API begin with.
const ADMIN: &[u8] = b"api/v1/";
const ONLY_SHOWS: &str = "this console only shows: `console { change }` and an `admin` let it change things";
const ANOTHER_SITE: &str = "the data of the console is for its own page, not for one of another site";

/// Answers with the console and its data.
pub struct Console {
    source: Rc<dyn StatusSource>,
    /// The names that the settings have for this server.
    names: Rc<Names>,
    /// What the paths of its route begin with.
    prefix: String,
    /// Who is let in may change things.
    may_change: bool,
}

/// What the console is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    Status { with_sites: bool, is_recent: bool },
    Findings,
    Requests,
    Slow,
    History(HistoryRange),
}

impl Data {
    /// Of a path below `api/`; `None` where there is no such data.
    fn of(name: &[u8], query: Option<&str>) -> Option<Data> {
        let pairs = query.unwrap_or_default().split('&');
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let value = |wanted| pairs.clone().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        Some(match name {
            b"status" => Data::Status {
                with_sites: value("sites") != Some("none"),
                is_recent: value("recent").is_some(),
            },
            b"findings" => Data::Findings,
            b"requests" => Data::Requests,
            b"slow" => Data::Slow,
            b"history" => Data::History(HistoryRange::from_name(value("range").unwrap_or("10m"))?),
            _ => return None,
        })
    }
}

impl Console {
    /// The console of a route whose paths begin with `prefix`; it shows what `source` knows, to who asks for an address or one of
    /// `names`. Where it may change things, the admin API answers there too.
    pub fn new(source: Rc<dyn StatusSource>, names: Rc<Names>, prefix: &str, may_change: bool) -> Console {
        Console { source, names, prefix: prefix.to_owned(), may_change }
    }

    /// Why a request is refused whatever it asks for.
    fn refusal(&self, exchange: &Exchange<'_>) -> Option<&'static str> {
        if !is_our_host(exchange.authority, &self.names) {
            return Some(ANOTHER_HOST);
        }
        (self.below(exchange).starts_with(b"api/") && !is_same_site(exchange)).then_some(ANOTHER_SITE)
    }

    fn below<'e>(&self, exchange: &'e Exchange<'_>) -> &'e [u8] {
        exchange.path.strip_prefix(self.prefix.as_bytes()).unwrap_or(exchange.path)
    }

    fn get(&self, exchange: &Exchange<'_>) -> Reply {
        // Everything on the page is named from here.
        if self.prefix.strip_suffix('/').map(str::as_bytes) == Some(exchange.path) {
            let response = Response::empty(Status::MOVED_PERMANENTLY);
            return Reply::Ready(response.with("Location", encode_path(self.prefix.as_bytes())));
        }
        let below = self.below(exchange);
        match below.strip_prefix(b"api/") {
            Some(name) => match Data::of(name, exchange.query) {
                Some(data) => self.tell(data),
                None => Reply::Ready(untold()),
            },
            None => Reply::Ready(finish(match assets::find(below) {
                Some(asset) => asset.answer(exchange),
                None if below.is_empty() => assets::without(),
                None => answer::error(Status::NOT_FOUND),
            })),
        }
    }

    fn tell(&self, data: Data) -> Reply {
        let source = self.source.clone();
        Reply::Later(Box::pin(async move {
            match data {
                Data::Requests => told(requests_report(&source.ask_all("requests").await, Format::Json)),
                Data::Slow => told(slow_report(&source.ask_all("slow").await, Format::Json)),
                Data::History(range) => {
                    let answer = source.ask_all(&format!("history {} json", range.name())).await.pop();
                    // A server that remembers nothing answers with a sentence.
                    answer.filter(|text| text.starts_with('{')).map_or_else(untold, told)
                }
                Data::Status { with_sites, is_recent } => {
                    let report = if with_sites { Report::Server(Format::Json, None) } else { Report::Totals };
                    let told_to =
                        if is_recent { source.recent_report(report) } else { source.report(report) };
                    told_to.await.map_or_else(silent, told)
                }
                Data::Findings => {
                    let report = Report::Findings(Format::Json);
                    source.report(report).await.map_or_else(silent, told)
                }
            }
        }))
    }
}

impl Handler for Console {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        if exchange.has_ambiguous_path() {
            return Reply::Ready(answer::encoded_slash(exchange));
        }
        let of_admin = self.below(exchange).starts_with(ADMIN).then(|| self.below(exchange).to_vec());
        if let Some(why) = self.refusal(exchange) {
            let refused = answer::refused(exchange, Status::FORBIDDEN, why);
            return Reply::Ready(match of_admin {
                Some(_) => admin::problem(Status::FORBIDDEN, why),
                None => refused,
            });
        }
        if let Some(below) = of_admin {
            return match self.may_change {
                true => admin::pass_on(&self.source, exchange, &below),
                false => Reply::Ready(admin::problem(Status::NOT_FOUND, ONLY_SHOWS)),
            };
        }
        match exchange.method {
            Method::Get | Method::Head => self.get(exchange),
            Method::Options => {
                Reply::Ready(Response::empty(Status::NO_CONTENT).with("Allow", "GET, HEAD, OPTIONS"))
            }
            _ => Reply::Ready(answer::error(Status::METHOD_NOT_ALLOWED).with("Allow", "GET, HEAD, OPTIONS")),
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        if exchange.has_ambiguous_path() {
            return Foreseen::Handler;
        }
        if let Some(why) = self.refusal(exchange) {
            say(format!("console: {why}"));
            return Foreseen::Status(Status::FORBIDDEN);
        }
        let below = self.below(exchange);
        say(format!(
            "console: {}",
            match below.strip_prefix(b"api/") {
                Some(_) if below.starts_with(ADMIN) && self.may_change => "the admin API answers",
                Some(_) => "data for its page",
                None if assets::find(below).is_some() => "a file of its page",
                None if below.is_empty() => "a page which says that this program was built without it",
                None => "there is no such file",
            }
        ));
        Foreseen::Handler
    }
}

/// The server does not tell that.
fn untold() -> Response {
    let sentence = json!({ "error": "the server does not tell this" });
    let response = Response::content(Status::NOT_FOUND, Format::Json.media_type(), format!("{sentence}\n"));
    finish(response.with("Cache-Control", "no-store"))
}

/// The master does not answer: it has ended, or is about to.
fn silent() -> Response {
    let sentence = json!({ "error": "the server's figures are not to be had at the moment" });
    let unavailable = Status::SERVICE_UNAVAILABLE;
    finish(
        Response::content(unavailable, Format::Json.media_type(), format!("{sentence}\n"))
            .with("Cache-Control", "no-store"),
    )
}

fn told(json: impl Into<Vec<u8>>) -> Response {
    finish(Response::content(Status::OK, Format::Json.media_type(), json).with("Cache-Control", "no-store"))
}

/// The fields of every answer.
fn finish(response: Response) -> Response {
    response
        .with("Content-Security-Policy", CONTENT_POLICY)
        .with("X-Content-Type-Options", "nosniff")
        .with("Referrer-Policy", "no-referrer")
        .with("Cross-Origin-Resource-Policy", "same-origin")
}

#[cfg(test)]
mod tests;
