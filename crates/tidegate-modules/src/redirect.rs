//! Answers that need nothing but the settings: a redirection (RFC 9110 section 15.4) and a fixed text.
//!
//! Every method is answered the same, but for TRACE; the connection leaves the body out for HEAD. The settings have been
//! checked already: an unknown placeholder in a template is plain text here.

use crate::status::Escaped;
use std::fmt::Write;
use tidegate_config::settings::Route;
use tidegate_core::explain::Foreseen;
use tidegate_core::template::{Scope, Template};
use tidegate_core::{Author, Exchange, Handler, Pass, Reply, Response, answer};
use tidegate_http::conditional::{Precondition, Validators, evaluate};
use tidegate_http::path::PathError;
use tidegate_http::{Method, Status};

/// `redirect "https://{host}/new{path}{query}" status=301`
///
/// | placeholder | stands for |
/// | --- | --- |
/// | `{path}` | the path, decoded and normalised, then encoded again; begins with a slash |
/// | `{query}` | the query with its `?`; nothing where there is none |
/// | `{host}` | the host without its port |
/// | `{uri}` | path and query as the client sent them |
/// | `{scheme}` | `http` or `https` |
///
/// Where one slash meets another between two pieces they become one, and `{uri}` begins with one slash:
/// `//evil.example` in a path must not become the host of the address that the client is sent to. A template that begins
/// with a slash gives a path of this site, also where placeholders in front of another slash are empty.
#[derive(Debug)]
pub struct Redirect {
    template: String,
    to: Template,
    status: Status,
}

impl Redirect {
    /// A redirection to what the template gives.
    pub fn new(to: &str, status: u16, scope: Scope<'_>) -> Redirect {
        Redirect { template: to.into(), to: Template::parse(to, scope), status: Status(status) }
    }

    /// The value of `Location`; `None` where it needs a host and the client has named none.
    fn location(&self, exchange: &Exchange<'_>) -> Result<Option<String>, PathError> {
        self.to.address(exchange)
    }
}

impl Handler for Redirect {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        let location = match self.location(exchange) {
            Ok(Some(location)) => location,
            Ok(None) => {
                let why = "The address of this page depends on the host name, and the request names none.";
                return Reply::Ready(answer::explained(Status::BAD_REQUEST, why));
            }
            Err(error) => {
                let why = format_args!("{:?} leads to no path: {error}", self.template);
                return Reply::Ready(answer::refused(exchange, error.status(), why));
            }
        };
        Reply::Ready(moved(self.status, location))
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        match self.location(exchange) {
            Ok(Some(location)) => {
                say(format!("redirect {:?}: {} to {location}", self.template, self.status.0));
            }
            Ok(None) => say(format!("redirect {:?}: 400, the request names no host", self.template)),
            Err(_) => {} // the answer says it
        }
        Foreseen::Handler
    }
}

/// A redirection with a page that says where to.
pub(crate) fn moved(status: Status, location: String) -> Response {
    let note = format!("This page is at <a href=\"{0}\">{0}</a>.", Escaped(&location));
    answer::explained(status, &note).with("Location", location)
}

/// `respond 200 "text"`
#[derive(Debug)]
pub struct Respond {
    status: Status,
    media_type: String,
    /// `None`: nobody has said it.
    body: Option<String>,
    /// What the server's short page says; `None`: what it says of every such status.
    sentence: Option<&'static str>,
    /// What a TRACE is told to use instead.
    allow: String,
}

impl Respond {
    /// A fixed answer. Without a media type it is HTML where it begins with `<`, else plain text. An error without a body
    /// has the server's short page.
    pub fn new(status: u16, body: Option<&str>, media_type: Option<&str>) -> Respond {
        let media_type = media_type.unwrap_or(match body.unwrap_or_default().trim_start().starts_with('<') {
            true => "text/html; charset=utf-8",
            false => "text/plain; charset=utf-8",
        });
        Respond {
            status: Status(status),
            media_type: media_type.into(),
            body: body.map(str::to_owned),
            sentence: None,
            allow: String::new(),
        }
    }

    /// The same in a route, which says the methods that it takes.
    pub fn at(self, route: &Route) -> Respond {
        Respond { allow: answer::allow_without("TRACE", route), ..self }
    }

    /// What stands in for a site that is left out for a mistake: nobody should look for load.
    pub fn left_out(status: u16) -> Respond {
        let sentence = "This site is not served because of a mistake in its settings. The error log of the server names it.";
        Respond { sentence: Some(sentence), ..Respond::new(status, None, None) }
    }

    fn is_short_page(&self) -> bool {
        self.body.is_none() && self.status.0 >= 400
    }
}

impl Handler for Respond {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        // A success would say that the content is the request itself (RFC 9110 sections 9.3.8 and 15.3.1).
        if exchange.method == Method::Trace && self.status.is_success() {
            return Reply::Ready(answer::never_passed_on(&self.allow));
        }
        // Of what it answers there is neither an entity tag nor a date.
        if self.status == Status::OK {
            let (method, fields) = (exchange.method, exchange.fields);
            match evaluate(method, fields, &Validators::new(None, None), exchange.now) {
                Precondition::Proceed => {}
                Precondition::NotModified => return Reply::status(Status::NOT_MODIFIED),
                Precondition::Failed => return Reply::Ready(answer::error(Status::PRECONDITION_FAILED)),
            }
        }
        if self.is_short_page() {
            return Reply::Ready(match self.sentence {
                Some(sentence) => answer::explained(self.status, sentence),
                None => answer::error(self.status),
            });
        }
        Reply::Ready(match &self.body {
            Some(body) if !body.is_empty() && self.status.has_body() => {
                Response::content(self.status, &self.media_type, body.as_bytes()).by(Author::Application)
            }
            Some(_) => Response::empty(self.status).by(Author::Application),
            None => Response::empty(self.status),
        })
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        if exchange.method == Method::Trace && self.status.is_success() {
            say("respond: TRACE is not answered with a success".into());
            return Foreseen::Handler;
        }
        let mut sentence = format!("respond: {} ", self.status.0);
        let length = self.body.as_ref().map_or(0, String::len);
        let _ = match length == 0 || !self.status.has_body() {
            _ if self.is_short_page() => write!(sentence, "with the short page of the server"),
            true => write!(sentence, "without content"),
            false => write!(sentence, "with {length} bytes of {}", self.media_type),
        };
        say(sentence);
        Foreseen::Handler
    }
}

/// `respond close`: connections end without an answer; where others share one, the answer is 403.
#[derive(Debug)]
pub struct Close;

impl Handler for Close {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        exchange.close_unanswered();
        Reply::Ready(answer::error(Status::FORBIDDEN))
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        say(match exchange.is_through_proxy() {
            true => "respond close: 403, since others share the connection of a trusted proxy".to_owned(),
            false => "respond close: the connection is closed without an answer".to_owned(),
        });
        Foreseen::Handler
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::settings::Access;
    use tidegate_core::gate::admit;
    use tidegate_core::{Body, Head};

    fn ask<'a>(target: &'a str, path: &'a str, authority: &'a str) -> Exchange<'a> {
        Exchange {
            target,
            path: path.as_bytes(),
            query: target.split_once('?').map(|(_, query)| query),
            scheme: "https",
            authority,
            ..Exchange::empty()
        }
    }

    fn answer(handler: &dyn Handler, exchange: &mut Exchange<'_>) -> (u16, Option<String>, Vec<u8>) {
        let pass = admit(&Access::default(), exchange).unwrap();
        let Reply::Ready(response) = handler.handle(exchange, pass) else { panic!("it waits") };
        let Head::Fields(lines) = &response.head else { panic!("prebuilt") };
        let location = lines.first("Location").map(|value| String::from_utf8(value.to_vec()).unwrap());
        let Body::Bytes(body) = response.body else { return (response.status.0, location, Vec::new()) };
        (response.status.0, location, body)
    }

    #[test]
    fn locations() {
        for (template, target, path, expected) in [
            ("/new{path}", "/a%20b?x=1", "/a b", "/new/a%20b"),
            ("/new/{path}{query}", "/a?x=1&y=%2F", "/a", "/new/a?x=1&y=%2F"),
            ("/new{path}{query}", "/a", "/a", "/new/a"),
            ("/new{query}", "/a?", "/a", "/new?"),
            ("https://{host}{uri}", "/a%2f?b", "/a", "https://example.com/a%2f?b"),
            ("{scheme}://www.{host}/", "/", "/", "https://www.example.com/"),
            ("{uri}", "/?x", "/", "/?x"),
            ("/{unknown}{", "/", "/", "/{unknown}{"),
            // No address of another host comes out of a path.
            ("{path}", "//evil.example", "/evil.example", "/evil.example"),
            ("/{path}", "//evil.example", "/evil.example", "/evil.example"),
            ("{uri}", "//evil.example", "/evil.example", "/evil.example"),
            ("/{uri}", "/\\evil.example", "/\\evil.example", "/evil.example"),
            ("{path}", "/\\evil.example", "/\\evil.example", "/%5Cevil.example"),
            ("{uri}", "/javascript:x", "/javascript:x", "/javascript:x"),
            ("{path}", "/%0d%0aX:y", "/\r\nX:y", "/%0D%0AX%3Ay"),
            ("/{query.no}/{query.to}", "/?to=evil.example", "/", "/evil.example"),
            ("/{query.no}/{query.no}/{query.to}", "/?to=evil.example", "/", "/evil.example"),
            ("/{query.no:-/}/{query.to}", "/?to=evil.example", "/", "/evil.example"),
            ("/{cookie.no}/{path}", "/evil.example", "/evil.example", "/evil.example"),
            ("/{query.to}/x", "/?to=%5Cevil.example", "/", "/%5Cevil.example/x"),
            ("/{query.no}{query}", "/?//evil.example", "/", "/?//evil.example"),
        ] {
            let redirect = Redirect::new(template, 308, Scope::default());
            let (status, location, _) = answer(&redirect, &mut ask(target, path, "example.com:8443"));
            assert_eq!((status, location.as_deref()), (308, Some(expected)), "{template} {target}");
        }
    }

    #[test]
    fn hosts() {
        use tidegate_core::hosts::host_of;
        for (authority, host) in [
            ("example.com", "example.com"),
            ("example.com:80", "example.com"),
            ("[::1]", "[::1]"),
            ("[::1]:80", "[::1]"),
        ] {
            assert_eq!(host_of(authority), host);
        }
        let (status, location, _) =
            answer(&Redirect::new("https://{host}/", 301, Scope::default()), &mut ask("/", "/", ""));
        assert_eq!((status, location), (400, None));
    }

    #[test]
    fn the_note_is_escaped() {
        let (_, _, body) =
            answer(&Redirect::new("/x{query}", 302, Scope::default()), &mut ask("/?\"><script>", "/", "h"));
        let page = String::from_utf8(body).unwrap();
        assert!(!page.contains("<script") && page.contains("/x?&quot;&gt;&lt;script&gt;"), "{page}");
    }

    #[test]
    fn fixed_answers() {
        for (status, body, media_type) in
            [(200, "hello", "text/plain; charset=utf-8"), (410, "\n<p>gone", "text/html; charset=utf-8")]
        {
            let respond = Respond::new(status, Some(body), None);
            assert_eq!(respond.media_type, media_type);
            assert_eq!(answer(&respond, &mut ask("/", "/", "h")), (status, None, body.into()));
        }
        for (status, body) in
            [(200, None), (200, Some("")), (404, Some("")), (204, Some("x")), (304, Some("x"))]
        {
            assert_eq!(
                answer(&Respond::new(status, body, None), &mut ask("/", "/", "h")),
                (status, None, Vec::new())
            );
        }
        let (status, _, body) = answer(&Respond::new(503, None, None), &mut ask("/", "/", "h"));
        assert!(status == 503 && String::from_utf8_lossy(&body).contains("<h1>503 "), "the short page");
        let mut said = Vec::new();
        Respond::new(503, None, None).explain(&ask("/", "/", "h"), &mut |sentence| said.push(sentence));
        Respond::new(200, Some("hello"), None)
            .explain(&ask("/", "/", "h"), &mut |sentence| said.push(sentence));
        Redirect::new("/x{path}", 301, Scope::default())
            .explain(&ask("/a", "/a", "h"), &mut |sentence| said.push(sentence));
        assert_eq!(
            said,
            [
                "respond: 503 with the short page of the server",
                "respond: 200 with 5 bytes of text/plain; charset=utf-8",
                "redirect \"/x{path}\": 301 to /x/a"
            ]
        );
    }
}
