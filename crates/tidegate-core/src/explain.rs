//! What a request would be answered, and why: for `tidegate explain`.
//!
//! Nothing here decides. A request is sent through the phases that serve, by an engine whose handlers are each in a
//! [`Rehearsed`]: it says what its handler will do, and lets it answer, unless an application would have to be asked.
//! So what is said is what is served, for error pages and what `index` and `try` lead to as well.

use crate::access;
use crate::answer;
use crate::context::head_limits;
use crate::engine::Engine;
use crate::exchange::Exchange;
use crate::gate::Pass;
pub use crate::handler::Foreseen;
use crate::handler::Handler;
use crate::https::Arrival;
use crate::limits::{Excess, TooLarge, excess};
use crate::notes;
pub use crate::notes::{Known, Notes};
use crate::rate::Held;
use crate::remote::{Remote, naming_field};
use crate::reply::Reply;
use crate::response::{Author, Response};
use crate::site::{ReadPath, Site};
use crate::state::{EncodedSlash, Refused, RehearsedTls, RequestState};
use std::rc::Rc;
use tidegate_config::Settings;
use tidegate_http::{Fields, Status};
use tidegate_io::socket::Peer;
use tidegate_tls::ClientIdentity;
use tidegate_wire::h1::{FieldSpace, parse_request};

/// A handler that says what it does.
pub struct Rehearsed {
    handler: Rc<dyn Handler>,
    notes: Notes,
}

impl Rehearsed {
    /// Of a handler.
    pub fn new(handler: Rc<dyn Handler>, notes: Notes) -> Rehearsed {
        Rehearsed { handler, notes }
    }
}

impl Handler for Rehearsed {
    fn handle(&self, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        if exchange.state.hops > 0 {
            self.notes.push(format!("request of the server's own: {}", exchange.path.escape_ascii()));
        }
        match self.handler.explain(exchange, &mut |sentence| self.notes.push(sentence)) {
            Foreseen::Handler => self.handler.handle(exchange, pass),
            Foreseen::Status(status) if status.is_error() => Reply::Ready(answer::error(status)),
            Foreseen::Status(status) => Reply::status(status),
            Foreseen::Head(response) => Reply::Ready(*response),
            Foreseen::Application => {
                self.notes.asks_application();
                Reply::Ready(Response::empty(Status::OK).by(Author::Application))
            }
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        self.handler.explain(exchange, say)
    }
}

/// Why the head of a request is refused before anybody looks for its site: the reader of the server is asked.
pub fn refusal(settings: &Settings, head: &[u8]) -> Option<(Status, String)> {
    let limits = head_limits(settings);
    let mut space = FieldSpace::new();
    let refused = parse_request(head, &limits, &mut space).err()?;
    Some((Status(refused.status()), refused.to_string()))
}

/// A request to be explained.
pub struct Asked<'a> {
    /// Which listener it comes to.
    pub listener: u16,
    /// Who asks.
    pub peer: Peer,
    /// The path as sent.
    pub raw_path: &'a str,
    /// Who the client has shown to be, over TLS.
    pub client: Option<ClientIdentity>,
    /// Bytes of its head.
    pub size: usize,
    /// All the rest; its path is found out.
    pub exchange: Exchange<'a>,
}

impl Engine {
    /// Says what decides about a request, and answers it. The handlers of the engine are to be [`Rehearsed`] with the
    /// same notes.
    pub fn rehearse(&self, asked: Asked<'_>, notes: &Notes) -> Reply {
        notes::listen(notes);
        let Asked { listener, peer, raw_path, client, size, exchange } = asked;
        let authority = exchange.authority;
        let (site, why) = self.site_and_reason(listener, authority);
        let Some(site) = site else {
            notes.push(format!("no site: {why}"));
            return Reply::Ready(answer::error(Status::NOT_FOUND));
        };
        let config = site.config();
        let names = config.names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let names = if names.is_empty() { "without a name" } else { &names };
        notes.push(format!("site {names} ({}): {why}", config.origin));
        if let Some(why) = &config.left_out {
            notes.push(format!("the site is left out, and 503 answered in its place: {why}"));
        }
        let requires_certificate = config.tls.clients.as_ref().is_some_and(|clients| clients.is_required);
        if exchange.scheme == "https" && requires_certificate && client.is_none() {
            notes.set_unanswered(
                "the site requires client certificates, and none is shown here: the TLS handshake fails",
            );
            return Reply::Ready(answer::error(Status::FORBIDDEN));
        }
        let excess = self.over_limits(site, size, peer, &exchange, notes);
        let (is_tls, fields) = (exchange.scheme == "https", &exchange.fields);
        let remote = site.remote(&peer, fields);
        if remote.has_told_scheme() {
            let field = if fields.contains("x-forwarded-proto") { "X-Forwarded-Proto" } else { "Forwarded" };
            let scheme = remote.scheme(is_tls);
            notes.push(format!("scheme {scheme}, as the trusted proxy {peer} says in {field}"));
        }
        // In the order of `conn/decide.rs`.
        if let Some(why) = remote.unreadable(fields) {
            notes.push(format!("400: {why}"));
            return Reply::Ready(answer::error(Status::BAD_REQUEST));
        }
        let redirects = self.settings.listeners.get(usize::from(listener));
        let arrival = Arrival {
            redirects: redirects.and_then(|listener| listener.redirects_to_https),
            method: exchange.method,
            method_token: exchange.method_token,
            authority,
            path: raw_path,
            query: exchange.query,
            is_tls,
            remote,
            fields,
        };
        if let Some(response) = self.entrance(site, &arrival) {
            notes.push("sent to https, since `redirect-to-https` or `hsts` says so".into());
            return Reply::Ready(response);
        }
        let mut scratch = Vec::new();
        let ReadPath { path, encoded_slash, fault } = site.read_path(raw_path, &mut scratch);
        if let Some(fault) = fault {
            notes
                .push(format!("path {raw_path}: {fault}; it leads to no route, and the site itself answers"));
            // 404 is an answer to a request that can be made; 400 says that this one cannot.
            notes.set_malformed(fault.status() == Status::BAD_REQUEST);
        } else if encoded_slash != EncodedSlash::Nowhere {
            notes.push(format!(
                "path {raw_path}: routes are the same whether `%2F` is a slash or part of a name"
            ));
        } else if path != raw_path.as_bytes() {
            notes.push(format!("path {raw_path}: looked up as {}", path.escape_ascii()));
        }
        let state = RequestState {
            site: Some(site.clone()),
            encoded_slash,
            holds: site.has_holds.then(|| Held::new(&Rc::default()).holds()),
            rehearsed: is_tls.then(|| Rc::new(RehearsedTls { client })),
            refused: fault.and_then(|fault| site.refuses_path(fault)).or_else(|| {
                let Over { status, why, .. } = excess.as_ref()?;
                Some(Box::new(Refused { status: *status, why: why.as_str().into(), is_unrouted: false }))
            }),
            ..RequestState::of(remote)
        };
        let mut exchange = Exchange { path, scheme: remote.scheme(is_tls), state, ..exchange };
        if !notes.is_short() && fault.is_none() {
            explain_route(site, &exchange, notes);
        }
        let reply = self.handle(site, &mut exchange, fault.map(|_| site.own_route()));
        let length = excess.and_then(|over| over.length);
        if let Some(length) = length.filter(|_| fault.is_none() && exchange.state.refused.is_none()) {
            let place = "in the site or the route, or at the top level for all";
            notes.push(format!("  to take it, write `limits {{ body-size \"{length}B\" }}` {place}"));
        }
        reply
    }
}

impl Engine {
    /// Why a request is more than its site or route takes.
    fn over_limits(
        &self,
        site: &Rc<Site>,
        size: usize,
        peer: Peer,
        exchange: &Exchange<'_>,
        notes: &Notes,
    ) -> Option<Over> {
        let of_server = &self.settings.limits.request;
        let mut scratch = Vec::new();
        let remote = site.remote(&peer, &exchange.fields);
        let scheme = remote.scheme(exchange.scheme == "https");
        let state = RequestState { site: Some(site.clone()), ..RequestState::of(remote) };
        let head = Exchange { scheme, state, ..*exchange };
        let place = site.place(head, exchange.target, &mut scratch);
        let own = site.limits_at(place.route);
        let limits = own.as_deref().unwrap_or(of_server);
        if own.is_some() {
            notes.push(format!("limits of this site or route: {}", limits.unlike(of_server).join(", ")));
        }
        if own.is_some()
            && let Some(Excess { status, why, .. }) = excess(limits, exchange.target, size)
        {
            return Some(Over { status, why, length: None });
        }
        let length = exchange.fields.first("content-length").and_then(|value| str::from_utf8(value).ok());
        let length = length.and_then(|length| length.trim().parse().ok());
        let length = length.filter(|length| *length > limits.body_size)?;
        let why = TooLarge { limits, length: Some(length) }.to_string();
        Some(Over { status: Status::CONTENT_TOO_LARGE, why, length: Some(length) })
    }
}

/// What is too much of a request for its site or route.
struct Over {
    status: Status,
    why: String,
    /// Bytes of content that are announced, where those are it.
    length: Option<u64>,
}

/// Who the client is behind a trusted proxy, and by which field.
fn named_by(remote: &Remote, fields: &Fields<'_>) -> String {
    let Remote { client, peer, .. } = remote;
    if client == peer {
        format!(
            "client {client}: the trusted proxy itself, since it names nobody in X-Forwarded-For or Forwarded"
        )
    } else {
        format!("client {client}, whom the trusted proxy {peer} names in {}", naming_field(fields))
    }
}

/// Says which route is taken, and who is let in.
fn explain_route(site: &Rc<Site>, exchange: &Exchange<'_>, notes: &Notes) {
    for (index, route) in site.config().routes.iter().enumerate() {
        if !route.pattern.matches(exchange.path) {
            notes.push(format!("route {} ({}): does not match", route.pattern, route.origin));
            continue;
        }
        if let Some(clause) = site.first_unmet(index, exchange) {
            let (pattern, origin) = (&route.pattern, &route.origin);
            notes.push(format!(
                "route {pattern} ({origin}): matches, but `{clause}` ({}) does not hold",
                clause.origin
            ));
            continue;
        }
        for clause in &route.conditions {
            notes.push(format!("`{clause}` ({}) holds", clause.origin));
        }
        // The last route of a site is what it says itself.
        if route.origin == site.config().origin {
            notes.push(format!("no route fits: the site's own ({})", route.origin));
        } else {
            notes.push(format!("route {} ({}): taken", route.pattern, route.origin));
        }
        let shows_certificate = exchange.client().is_some();
        let mut remote = exchange.state.remote;
        if let Some(trusted) = &route.trusted_proxies {
            remote = remote.seen_behind(trusted, &exchange.fields);
        }
        if remote.is_trusted && !remote.is_unreadable {
            notes.push(named_by(&remote, &exchange.fields));
        }
        let state = RequestState { site: Some(site.clone()), ..RequestState::of(remote) };
        let exchange = Exchange { state, ..*exchange };
        for rules in &route.access.levels {
            match access::deciding(rules, &site.access_view, &exchange, None) {
                Ok(Some(rule)) => {
                    notes.push(format!("access: `{rule}` ({}) lets {} in", rule.origin, remote.client))
                }
                Ok(None) => notes.push("access: none of the `deny` of this level fits".into()),
                Err(_) => break, // the refusal says why
            }
        }
        if route.access.requires_client_certificate && !shows_certificate {
            notes.push("access: `require-client-certificate`, and none is shown here".into());
        }
        return;
    }
}
