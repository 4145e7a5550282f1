//! Requests of the server's own: `index` and `try` that lead to a script, error pages, and the local redirects of
//! scripts (RFC 3875 section 6.2.2).
//!
//! They pass the same phases as a client's request, in the same order: the route of their path, Access, Content,
//! Filter. Whatever comes out is finished, so that the route that has asked adds nothing to it.

use crate::access::{self, Pass};
use crate::answer;
use crate::body::RequestBody;
use crate::exchange::{Exchange, ExchangeContext};
use crate::log;
use crate::phase::refuse;
use crate::remote::Remote;
use crate::reply::Reply;
use crate::response::Response;
use crate::site::Site;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_http::path::normalise;
use tidegate_http::{Field, Fields, Method, Status, Version};
use tidegate_tls::Handshake;

/// How often a request is handed on from route to route.
const MOST_HOPS: u8 = 4;

/// What has become of a request that `index` or `try` lead to another path.
pub enum Handed {
    /// The program behind that path answers it.
    Answered(Reply),
    /// No program does: the file may be sent.
    NoProgram(Unhanded),
    /// What lies there may not be had. Nothing of it may be sent.
    Refused(Reply),
}

/// What is left to do where no program answers.
pub struct Unhanded {
    /// The content of the request, given back.
    pub body: Option<RequestBody>,
    /// Whoever may ask for the one path may have the other, so that a cache may hold it under the first.
    pub may_store: bool,
}

/// The way to another path of the same site, for an answer that says where the answer is.
pub struct Elsewhere {
    site: Rc<Site>,
    head_only: bool,
    scheme: &'static str,
    remote: Remote,
    /// What `X-Forwarded-For` names, where the path may belong to a route that trusts other proxies.
    forwarded: Option<Rc<Vec<Vec<u8>>>>,
    tls: Option<Arc<Handshake>>,
    is_early: bool,
    now: i64,
    started: u64,
    hops: u8,
}

impl Exchange<'_> {
    /// Hands the request on to `path` of the same site, where a program answers that: for `index` and `try`, which
    /// may lead to a script. The target as sent stays what it is.
    pub fn hand_on(&self, path: &[u8], body: Option<RequestBody>) -> Handed {
        let unhanded = |body, may_store| Handed::NoProgram(Unhanded { body, may_store });
        let Some(site) = self.context.site else { return unhanded(body, true) };
        let Some(index) = site.route_for(path).filter(|index| *index != self.context.route) else {
            return unhanded(body, true);
        };
        let config = site.route(index);
        // What the levels around both say has been asked of this client already.
        let here = site.route(self.context.route);
        let is_as_trusting = config.trusted_proxies == here.trusted_proxies;
        let is_alike = is_as_trusting && config.access == here.access;
        let mut inner = Exchange { path, body, ..*self };
        inner.context.route = index;
        inner.remote = self.remote_at(site, index);
        let pass = match access::admit(&config.access, &inner) {
            Ok(pass) => pass,
            Err(refusal) => {
                return Handed::Refused(finished(site.finish(index, self, refuse(&inner, &refusal))));
            }
        };
        if !config.action.is_program() {
            return unhanded(inner.body, is_alike);
        }
        if self.context.hops >= MOST_HOPS {
            return Handed::Refused(Reply::Ready(answer::error(Status::LOOP_DETECTED)));
        }
        inner.context.hops += 1;
        Handed::Answered(finished(site.content(index, &mut inner, pass)))
    }

    /// Whether a program of another route answers this path of the same site.
    pub fn is_of_program(&self, path: &[u8]) -> bool {
        let Some(site) = self.context.site.filter(|site| site.has_programs()) else { return false };
        let index = site.route_for(path).filter(|index| *index != self.context.route);
        index.is_some_and(|index| site.route(index).action.is_program())
    }

    /// Hands the request as it is on to the route of the same site that has this name, `@app`: for `try`, where no
    /// file was found. 404 where there is none.
    pub fn hand_on_to(&self, name: &str, body: Option<RequestBody>) -> Reply {
        let found = self.context.site.and_then(|site| Some((site, site.named(name)?)));
        let Some((site, index)) = found else {
            return Reply::Ready(answer::refused(
                self,
                Status::NOT_FOUND,
                format_args!("no route is named {name}"),
            ));
        };
        if self.context.hops >= MOST_HOPS {
            return Reply::Ready(answer::error(Status::LOOP_DETECTED));
        }
        let remote = self.remote_at(site, index);
        let mut inner = Exchange { body, remote, ..*self };
        inner.context.route = index;
        inner.context.hops += 1;
        finished(match access::admit(&site.route(index).access, &inner) {
            Ok(pass) => site.content(index, &mut inner, pass),
            Err(refusal) => site.finish(index, &inner, refuse(&inner, &refusal)),
        })
    }

    /// Who asks, as another route of the site sees it.
    fn remote_at(&self, site: &Site, index: usize) -> Remote {
        let Some(forwarded) = self.context.forwarded else {
            return site.remote_at(index, self.remote, &self.fields);
        };
        let told = |value| Field { name: "X-Forwarded-For", value };
        let fields: Vec<_> = forwarded.iter().map(|value| told(value.as_slice())).collect();
        site.remote_at(index, self.remote, &Fields::new(&fields))
    }

    /// What it takes to answer with another path of the same site later on.
    pub fn elsewhere(&self) -> Option<Elsewhere> {
        self.context.site.map(|site| Elsewhere::of(site, self))
    }
}

impl Elsewhere {
    /// For a request to the site.
    pub(crate) fn of(site: &Rc<Site>, exchange: &Exchange<'_>) -> Elsewhere {
        let names = || exchange.fields.elements("x-forwarded-for").map(<[u8]>::to_vec).collect();
        let known = exchange.context.forwarded;
        let forwarded = site.trusts_by_route.then(|| known.cloned().unwrap_or_else(|| Rc::new(names())));
        Elsewhere {
            site: site.clone(),
            head_only: exchange.method == Method::Head,
            scheme: exchange.scheme,
            remote: exchange.remote,
            forwarded,
            tls: exchange.tls.cloned(),
            is_early: exchange.is_early,
            now: exchange.now,
            started: exchange.started,
            hops: exchange.context.hops,
        }
    }

    /// What a `GET` of `target`, a path with a query perhaps, is answered. 404 where it leads nowhere, and 508
    /// where it leads on and on.
    pub async fn answer(&self, target: &str) -> Response {
        let reply = match self.hops {
            hops if hops >= MOST_HOPS => Reply::Ready(answer::error(Status::LOOP_DETECTED)),
            _ => self.ask(target, |site, index, exchange, pass| match pass {
                Ok(pass) => site.content(index, exchange, pass),
                Err(refused) => site.finish(index, exchange, refused),
            }),
        };
        finished(reply).settled().await
    }

    /// Sends a `GET` of `target` through the phases up to Content, which is `then`.
    fn ask(
        &self,
        target: &str,
        then: impl FnOnce(&Rc<Site>, usize, &mut Exchange<'_>, Result<Pass, Reply>) -> Reply,
    ) -> Reply {
        let (raw_path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let mut scratch = Vec::new();
        let path = match normalise(raw_path, &mut scratch) {
            Ok(path) => path,
            Err(error) => return Reply::Ready(answer::error(error.status())),
        };
        let Some(index) = self.site.route_for(path) else {
            log::info(format_args!("404 for {}: the site has no route for {target}", self.remote.client));
            return Reply::Ready(answer::error(Status::NOT_FOUND));
        };
        let mut inner = Exchange {
            method: if self.head_only { Method::Head } else { Method::Get },
            method_token: if self.head_only { "HEAD" } else { "GET" },
            target,
            path,
            query,
            scheme: self.scheme,
            authority: "",
            fields: Fields::default(),
            protocol: None,
            version: Version::Http11,
            remote: self.remote,
            tls: self.tls.as_ref(),
            is_early: self.is_early,
            now: self.now,
            started: self.started,
            body: None,
            context: ExchangeContext {
                forwarded: self.forwarded.as_ref(),
                ..ExchangeContext::of_server(&self.site, index, self.hops + 1)
            },
        };
        inner.remote = inner.remote_at(&self.site, index);
        let pass = access::admit(&self.site.route(index).access, &inner);
        let pass = pass.map_err(|refusal| refuse(&inner, &refusal));
        then(&self.site, index, &mut inner, pass)
    }

    /// Puts the page at `path` in the place of an error. Where it cannot be had, the response stays as it was.
    pub(crate) fn error_page(&self, path: &str, response: Response) -> Reply {
        if self.hops >= MOST_HOPS {
            return Reply::Ready(response);
        }
        // Its own route's error pages would lead round in a circle, and its filters work on what is sent in the end.
        let page = self.ask(path, |site, index, exchange, pass| match pass {
            Ok(pass) => site.plain_content(index, exchange, pass),
            Err(refused) => refused,
        });
        page.map(move |page| if page.status.is_success() { standing_in(page, &response) } else { response })
    }
}

/// Fields of an error that a client goes by, whatever the page looks like (RFC 9110 sections 10.2.3, 11.6.1, 14.4, 15.5.6).
const OF_THE_ERROR: [&str; 6] =
    ["Allow", "Content-Range", "Retry-After", "WWW-Authenticate", "Proxy-Authenticate", "Cache-Control"];

/// A page in place of an error: nothing on it may say that the error is the page, or is to be kept.
fn standing_in(page: Response, error: &Response) -> Response {
    let mut page = Response { status: error.status, ..page.reopened() };
    let fields = page.fields_mut();
    for name in ["ETag", "Last-Modified", "Accept-Ranges", "Cache-Control"] {
        fields.remove(name);
    }
    for name in OF_THE_ERROR {
        if let Some(value) = error.head.lines().first(name) {
            fields.push(name, value);
        }
    }
    page
}

/// Nothing is added to it any more.
fn finished(reply: Reply) -> Reply {
    match reply {
        Reply::Ready(response) => Reply::Ready(response.finished()),
        later => later.map(Response::finished),
    }
}
