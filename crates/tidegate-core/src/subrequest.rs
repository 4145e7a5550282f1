//! Requests of the server's own: `index` and `try` that lead to a script, error pages, and the local redirects of
//! scripts (RFC 3875 section 6.2.2).
//!
//! They pass the same phases as a client's request, in the same order: the route of their path, its gates, Content,
//! Filter. Whatever comes out is finished, so that the route that has asked adds nothing to it. They are on behalf of the
//! client: its fields, its authority and who has logged in go with them, and what has been decided of it once stays so.

use crate::answer;
use crate::client_head::ClientHead;
use crate::exchange::{Exchange, Local, LocalSource};
use crate::gate::{Pass, Passage, Verdict};
use crate::notes;
use crate::reply::Reply;
use crate::response::Response;
use crate::signals::Signals;
use crate::site::{Choice, ReadPath, Site, source};
use crate::state::{PageAudience, PassedOn, RequestState};
use std::net::SocketAddr;
use std::rc::Rc;
use tidegate_http::cache::{self, Audience};
use tidegate_http::{Fields, Method, Status, Version};

/// How often a request is handed on from route to route.
const MOST_HOPS: u8 = 4;

/// Whether a file that `index` or `try` have found is for everybody who may ask for it by another path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MayStore(pub bool);

/// The way to another path of the same site, for an answer that says where the answer is.
pub struct InternalRedirect {
    site: Rc<Site>,
    /// The head of the client's request.
    asked: ClientHead,
    head_only: bool,
    version: Version,
    /// The address that the client has connected to.
    local: Option<SocketAddr>,
    scheme: &'static str,
    is_early: bool,
    now: i64,
    started: u64,
    /// Its answer is one of ours: what it asks is nothing to the connection.
    state: PassedOn,
}

impl Exchange<'_> {
    /// Hands the request on to `path` of the same site, for `index` and `try`, which may lead to a script: the program
    /// that owns the path answers, and so does a route that refuses it. Where neither does, and the client may have what
    /// lies there, `then` goes on: the file may be sent. The target as sent stays what it is.
    pub fn hand_on(
        &mut self,
        path: &[u8],
        then: impl FnOnce(MayStore, &mut Exchange<'_>) -> Reply + 'static,
    ) -> Reply {
        let Some(site) = self.state.site.clone() else { return then(MayStore(true), self) };
        let Some(choice) = site.choice(self, path) else { return then(MayStore(true), self) };
        let Choice { index, is_conditional, is_source } = choice;
        if is_source && site.is_files(index) {
            return Reply::Ready(source(self));
        }
        let then = telling(site.varying(index, path), then);
        if index == self.state.route {
            return then(MayStore(!is_conditional), self);
        }
        let action = &site.route(index).action;
        if !self.is_run(&site, index, path) && !action.refuses() {
            let passage = self.on_route(&site, index, path, |inner| site.ask_gates(index, inner));
            // For another client it may be another route.
            let then = move |MayStore(may), exchange: &mut Exchange<'_>| {
                then(MayStore(may && !is_conditional), exchange)
            };
            return self.go_on(passage, site, index, path, then);
        }
        if self.state.hops >= MOST_HOPS {
            return Reply::Ready(answer::error(Status::LOOP_DETECTED));
        }
        site.series.handed_on(index);
        finished(self.on_route(&site, index, path, |inner| {
            site.enter(index, inner, move |site, inner, entered| answer(site, index, inner, entered))
        }))
    }

    /// Goes on with a file on a path of another route, once the gates of that let it.
    fn go_on(
        &mut self,
        passage: Passage,
        site: Rc<Site>,
        index: usize,
        path: &[u8],
        then: impl FnOnce(MayStore, &mut Exchange<'_>) -> Reply + 'static,
    ) -> Reply {
        match passage {
            Passage::Open(_) => {
                // What the levels around both say has been asked of this client already.
                let (there, here) = (site.route(index), site.route(self.state.route));
                let is_alike = there.trusted_proxies == here.trusted_proxies && there.access == here.access;
                let may_store = MayStore(is_alike && !site.tells_clients_apart(index));
                self.as_granted(|exchange| then(may_store, exchange))
            }
            Passage::Shut(response) => finished(site.finish(index, self, Reply::Ready(response))),
            Passage::Wait(need, verdict, next) => {
                self.ends_with_client(); // nobody else has asked
                let path = path.to_vec();
                self.prepare_after(need, verdict, move |verdict: Verdict, exchange| {
                    let passage = exchange
                        .on_route(&site, index, &path, |inner| site.ask_gate(index, verdict, next, inner));
                    exchange.go_on(passage, site, index, &path, then)
                })
            }
        }
    }

    /// Whether a request of the same client for `path` of the same site would be sent the file that this route has there: for a
    /// page of another path that shows it. Whatever the file is, its own route decides; nothing is answered, and nobody hears of
    /// a refusal but `then`.
    pub fn may_have_file(
        &mut self,
        path: &[u8],
        then: impl FnOnce(bool, &mut Exchange<'_>) -> Reply + 'static,
    ) -> Reply {
        let Some(site) = self.state.site.clone() else { return then(true, self) };
        let Some(Choice { index, is_source, .. }) = site.choice(self, path) else { return then(false, self) };
        let route = site.route(index);
        // What `rewrite` leads to is sent by the route that it stands in.
        let is_sent = match self.state.matched {
            None => site.sends_same_file(index, self.state.route),
            Some(_) => !route.action.refuses() && !self.is_run(&site, index, path),
        };
        if is_source || !is_sent || index == self.state.route {
            return then(is_sent && !is_source, self);
        }
        notes::takes_reason(&|| {
            format!("{}: route {} ({}) decides", path.escape_ascii(), route.pattern, route.origin)
        });
        let (identity, counted) = (self.state.identity.clone(), self.state.counted.clone());
        let passage = self.wonder(&site, index, path, |inner| site.ask_gates(index, inner));
        self.hear(passage, site, index, path, move |is_open, exchange| {
            exchange.state.identity = identity; // who has logged in there has not done so here
            if !is_open {
                exchange.state.counted = counted; // the limit or ban that refuses it refuses the next one as well
            }
            then(is_open, exchange)
        })
    }

    /// Asks gates of another route whose refusal is no answer.
    fn wonder(
        &mut self,
        site: &Site,
        index: usize,
        path: &[u8],
        ask: impl FnOnce(&mut Exchange<'_>) -> Passage,
    ) -> Passage {
        let was = std::mem::replace(&mut self.state.is_hypothetical, true);
        let passage = self.on_route(site, index, path, ask);
        self.state.is_hypothetical = was;
        passage
    }

    fn hear(
        &mut self,
        passage: Passage,
        site: Rc<Site>,
        index: usize,
        path: &[u8],
        then: impl FnOnce(bool, &mut Exchange<'_>) -> Reply + 'static,
    ) -> Reply {
        match passage {
            Passage::Open(_) => then(true, self),
            Passage::Shut(_) => then(false, self),
            Passage::Wait(need, verdict, next) => {
                self.ends_with_client(); // nobody else has asked
                let path = path.to_vec();
                self.prepare_after(need, verdict, move |verdict: Verdict, exchange| {
                    let ask = |inner: &mut Exchange<'_>| site.ask_gate(index, verdict, next, inner);
                    let passage = exchange.wonder(&site, index, &path, ask);
                    exchange.hear(passage, site, index, &path, then)
                })
            }
        }
    }

    /// Whether a program of another route answers this path of the same site.
    pub fn is_of_program(&self, path: &[u8]) -> bool {
        let Some(site) = self.state.site.as_ref().filter(|site| site.has_programs()) else { return false };
        let choice =
            site.choice(self, path).filter(|choice| choice.is_source || choice.index != self.state.route);
        choice.is_some_and(|choice| choice.is_source || self.is_run(site, choice.index, path))
    }

    /// Whether the program of a route answers for what lies on its path, and no file of the route that the request is in. The
    /// site's own program is for what its routes leave: a route with a folder of its own sends files of any path, but for those
    /// that are run.
    fn is_run(&self, site: &Site, index: usize, path: &[u8]) -> bool {
        let action = &site.route(index).action;
        let gives_way = site.is_its_own(index) && site.route(self.state.route).has_own_root;
        action.is_program() && (!gives_way || action.owns_source(path))
    }

    /// Hands the request as it is on to the route of the same site that has this name, `@app`: for `try`, where no
    /// file was found. 404 where there is none.
    pub fn hand_on_to(&mut self, name: &str) -> Reply {
        let site = self.state.site.clone();
        let Some((site, index)) = site.and_then(|site| site.named(name).map(|index| (site, index))) else {
            let why = format_args!("no route is named {name}");
            return Reply::Ready(answer::refused(self, Status::NOT_FOUND, why));
        };
        if self.state.hops >= MOST_HOPS {
            return Reply::Ready(answer::error(Status::LOOP_DETECTED));
        }
        let path = self.path;
        site.series.handed_on(index);
        finished(self.on_route(&site, index, path, |inner| {
            site.enter(index, inner, move |site, inner, entered| answer(site, index, inner, entered))
        }))
    }

    /// Has the route of another path answer, chosen as for any request, for `hand-to`. The target as sent stays what it is.
    pub fn hand_to(&mut self, path: &[u8], query: Option<&str>) -> Reply {
        let Some(site) = self.state.site.clone() else { return Reply::status(Status::NOT_FOUND) };
        if self.state.hops >= MOST_HOPS {
            return Reply::Ready(answer::refused(
                self,
                Status::LOOP_DETECTED,
                "routes lead to routes and on",
            ));
        }
        self.with_path(path, query, |exchange| {
            let index = match site.route_for(exchange) {
                Ok(index) => index,
                Err(response) => return Reply::Ready(response),
            };
            exchange.state.is_rewritten = true;
            let path = exchange.path;
            site.series.handed_on(index);
            finished(exchange.on_route(&site, index, path, |inner| {
                site.enter(index, inner, move |site, inner, entered| answer(site, index, inner, entered))
            }))
        })
    }

    /// Answers as if the path were another one, for `rewrite`. Access adds up: the route that the path has itself has to let
    /// the client in as well. Where that is the route of a program, and files would be sent here, the program answers.
    pub fn rewrite(
        &mut self,
        path: &[u8],
        query: Option<&str>,
        then: impl FnOnce(&mut Exchange<'_>) -> Reply + 'static,
    ) -> Reply {
        let matched = self.state.matched.clone().unwrap_or_else(|| self.path.into());
        let was = (self.state.matched.replace(matched), self.state.is_rewritten);
        self.state.is_rewritten = true;
        let reply = self.with_path(path, query, |exchange| exchange.rewritten(then));
        (self.state.matched, self.state.is_rewritten) = was;
        reply
    }

    fn rewritten(&mut self, then: impl FnOnce(&mut Exchange<'_>) -> Reply + 'static) -> Reply {
        let path = self.path;
        let Some(site) = self.state.site.clone() else { return then(self) };
        let Some(Choice { index, is_source, .. }) = site.choice(self, path) else { return then(self) };
        let sends_files = site.is_files(self.state.route);
        if is_source && sends_files {
            return Reply::Ready(source(self));
        }
        let then = telling(site.varying(index, path), move |_, exchange: &mut Exchange<'_>| then(exchange));
        if index == self.state.route {
            return then(MayStore(true), self);
        }
        let action = &site.route(index).action;
        if action.refuses() || sends_files && self.is_run(&site, index, path) {
            if self.state.hops >= MOST_HOPS {
                return Reply::Ready(answer::error(Status::LOOP_DETECTED));
            }
            return finished(self.on_route(&site, index, path, |inner| {
                site.enter(index, inner, move |site, inner, entered| answer(site, index, inner, entered))
            }));
        }
        let passage = self.on_route(&site, index, path, |inner| site.ask_gates(index, inner));
        self.go_on(passage, site, index, path, then)
    }

    /// Lends the request as one for another path and query.
    fn with_path<R>(
        &mut self,
        path: &[u8],
        query: Option<&str>,
        f: impl FnOnce(&mut Exchange<'_>) -> R,
    ) -> R {
        let mut inner = Exchange { path, query, state: std::mem::take(&mut self.state), ..*self };
        let was = inner.state.leave_path();
        let result = f(&mut inner);
        self.state = inner.state;
        self.state.encoded_slash = was;
        result
    }

    /// Lends the request to another route, as one for `path`.
    fn on_route<R>(
        &mut self,
        site: &Site,
        index: usize,
        path: &[u8],
        f: impl FnOnce(&mut Exchange<'_>) -> R,
    ) -> R {
        let (remote, route, hops) = (self.state.remote, self.state.route, self.state.hops);
        let encoded_slash = self.state.encoded_slash;
        if !std::ptr::eq(path, self.path) {
            self.state.leave_path();
        }
        note_audience(self, site, index, path);
        let elsewhere = site.remote_at(index, self.state.remote, &self.fields);
        let mut inner = Exchange { path, state: std::mem::take(&mut self.state), ..*self };
        inner.state.remote = elsewhere;
        if site.trusts_by_route {
            inner.scheme = elsewhere.scheme(inner.state.is_tls()); // as its own route believes it
        }
        (inner.state.route, inner.state.hops) = (index, hops.saturating_add(1));
        let matched = inner.state.matched.take();
        let result = f(&mut inner);
        self.state = inner.state;
        (self.state.remote, self.state.route, self.state.hops) = (remote, route, hops);
        (self.state.matched, self.state.encoded_slash) = (matched, encoded_slash);
        result
    }

    /// What it takes to answer with another path of the same site later on. In a box: it is large, and what waits is moved until it
    /// runs.
    pub fn elsewhere(&self) -> Option<Box<InternalRedirect>> {
        self.state.site.as_ref().map(|site| Box::new(InternalRedirect::of(site, self)))
    }
}

/// The Content and Filter phases, or the Filter phase alone for who is not let in.
fn answer(
    site: &Rc<Site>,
    index: usize,
    exchange: &mut Exchange<'_>,
    entered: Result<Pass, Response>,
) -> Reply {
    match entered {
        Ok(pass) => site.content(index, exchange, pass),
        Err(refused) => site.finish(index, exchange, Reply::Ready(refused)),
    }
}

impl InternalRedirect {
    /// From a request to the site. Inlined, so that it is moved once at most.
    #[inline(always)]
    pub(crate) fn of(site: &Rc<Site>, exchange: &Exchange<'_>) -> InternalRedirect {
        InternalRedirect {
            site: site.clone(),
            asked: exchange.state.asked.clone().unwrap_or_else(|| ClientHead::of(exchange)),
            head_only: exchange.method == Method::Head,
            version: exchange.version,
            local: exchange.local(),
            scheme: exchange.scheme,
            is_early: exchange.is_early,
            now: exchange.now,
            started: exchange.started,
            state: exchange.state.passed_on(),
        }
    }

    /// What a `GET` of `target`, a path with a query perhaps, is answered. 404 where it leads nowhere, and 508
    /// where it leads on and on.
    pub async fn answer(&self, target: &str) -> Response {
        let reply = match self.state.hops {
            hops if hops >= MOST_HOPS => Reply::Ready(answer::error(Status::LOOP_DETECTED)),
            _ => self.ask(target, self.state.page.clone(), answer),
        };
        finished(reply).settled().await
    }

    /// Sends a `GET` of `target` through the phases up to Content, which is `then`.
    fn ask(
        &self,
        target: &str,
        page: Option<Rc<PageAudience>>,
        then: impl FnOnce(&Rc<Site>, usize, &mut Exchange<'_>, Result<Pass, Response>) -> Reply + 'static,
    ) -> Reply {
        let (raw_path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let mut scratch = Vec::new();
        let ReadPath { path, encoded_slash, fault } = self.site.read_path(raw_path, &mut scratch);
        if let Some(error) = fault {
            return Reply::Ready(answer::error(error.status()));
        }
        // Gates, templates and applications are told what the client has said, and who it is.
        let fields = self.asked.fields_for_another();
        let mut inner = Exchange {
            method: if self.head_only { Method::Head } else { Method::Get },
            method_token: if self.head_only { "HEAD" } else { "GET" },
            target,
            path,
            query,
            scheme: self.scheme,
            authority: self.asked.authority(),
            fields: Fields::new(&fields),
            protocol: None,
            version: self.version,
            is_early: self.is_early,
            now: self.now,
            started: self.started,
            local: self.local.map(|local| Local(LocalSource::Known(local))).unwrap_or_default(),
            state: RequestState {
                site: Some(self.site.clone()),
                asked: Some(self.asked.clone()),
                page,
                hops: self.state.hops.saturating_add(1),
                encoded_slash,
                ..self.state.clone().into_state(Signals::default())
            },
        };
        let index = match self.site.route_for(&inner) {
            Ok(index) => index,
            Err(response) => return Reply::Ready(response),
        };
        inner.state.route = index;
        note_audience(&inner, &self.site, index, path);
        inner.state.remote = self.site.remote_at(index, inner.state.remote, &inner.fields);
        if self.site.trusts_by_route {
            inner.scheme = inner.state.remote.scheme(inner.state.is_tls());
        }
        self.site.enter(index, &mut inner, move |site, inner, entered| then(site, index, inner, entered))
    }

    /// Puts the page at `path` in the place of an error. Where it cannot be had, the response stays as it was.
    pub(crate) fn error_page(&self, path: &str, response: Response) -> Reply {
        if self.state.hops >= MOST_HOPS {
            return Reply::Ready(response);
        }
        let (audience, now) = (Rc::new(PageAudience::default()), self.now);
        // Its own route's error pages would lead round in a circle, and its filters work on what is sent in the end.
        let page = self.ask(path, Some(audience.clone()), |site, index, exchange, pass| match pass {
            Ok(pass) => {
                let varying = site.varying(index, exchange.path);
                told(site.plain_content(index, exchange, pass), varying)
            }
            Err(refused) => Reply::Ready(refused),
        });
        page.map(move |page| {
            if !page.status.is_success() {
                return response;
            }
            let audience = match audience.is_for_some.get() {
                true => Audience::LetIn,
                false if page.author.is_application() => Audience::Unknown,
                false => Audience::Everybody,
            };
            standing_in(page, &response, audience, now)
        })
    }
}

/// Has what is sent in the end tell the fields that have led to it.
fn telling(
    varying: Option<Vec<Rc<str>>>,
    then: impl FnOnce(MayStore, &mut Exchange<'_>) -> Reply + 'static,
) -> impl FnOnce(MayStore, &mut Exchange<'_>) -> Reply + 'static {
    move |may_store, exchange| told(then(may_store, exchange), varying)
}

fn told(reply: Reply, varying: Option<Vec<Rc<str>>>) -> Reply {
    match varying {
        None => reply,
        Some(fields) => reply.map(move |response| response.varying(&fields)),
    }
}

/// A page that the server asks itself for is not for everybody where one of the routes that it comes through is not.
#[inline]
fn note_audience(exchange: &Exchange<'_>, site: &Site, index: usize, path: &[u8]) {
    if let Some(page) = &exchange.state.page
        && site.is_for_some(index, path)
    {
        page.is_for_some.set(true);
    }
}

/// Fields of an error that a client goes by, whatever the page looks like (RFC 9110 sections 10.2.3, 11.6.1, 14.4, 15.5.6).
const OF_THE_ERROR: [&str; 6] =
    ["Allow", "Retry-After", "RateLimit", "RateLimit-Policy", "WWW-Authenticate", "Proxy-Authenticate"];

/// A page in place of an error: nothing on it may say that the error is the page, or is to be kept for longer than both allow.
fn standing_in(page: Response, error: &Response, audience: Audience, now: i64) -> Response {
    let mut page = Response { status: error.status, ..page.reopened() };
    let fields = page.fields_mut();
    for name in ["ETag", "Last-Modified", "Accept-Ranges", "Content-Range"] {
        fields.remove(name);
    }
    cache::stand_in(fields, error.head.lines(), audience, now);
    // Elsewhere it means nothing, and what it says is not true of the page.
    let range = Some("Content-Range").filter(|_| error.status == Status::RANGE_NOT_SATISFIABLE);
    for name in OF_THE_ERROR.into_iter().chain(range) {
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
