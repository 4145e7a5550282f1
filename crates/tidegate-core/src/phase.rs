//! The fixed order in which a request is decided: Route (site, then its routes in source order), Access,
//! Content, Filter. One [`Engine`] for each worker and settings revision; a request keeps the one it began
//! with.
//!
//! The order in the file counts among routes and inside a phase, nowhere else, and `explain` tells what was tried.

use crate::access::{self, Pass, Refusal};
use crate::ahead;
use crate::answer;
use crate::conn::Opening;
use crate::decoration::Decoration;
use crate::exchange::{Exchange, Filter, HTTP_2, Handler, Reply};
use crate::interim::Interim;
use crate::log::Sink;
use crate::remote::{Remote, covers};
use crate::response::{Author, Head, Response};
use crate::subrequest::Elsewhere;
use crate::tls::{TlsError, TlsSites, TlsStore};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{self, HostPattern, ListenAddress, PathPattern, Settings, Try};
use tidegate_http::path::{PathError, both_readings, has_encoded_slash, normalise};
use tidegate_http::{FieldLines, Fields, Method, Status};
use tidegate_io::socket::Peer;
use tidegate_tls::{Handshake, Hello, SiteConfig};

/// The longest host name that is looked up, bytes (RFC 1035 section 2.3.4 allows 253).
const HOST_MAX: usize = 255;

/// Sites and routes ready to serve.
pub struct Engine {
    /// The revision this was made from.
    pub settings: Arc<Settings>,
    sites: Vec<Rc<Site>>,
    exact: HashMap<Box<str>, usize>,
    /// `.example.com`, longest first.
    suffixes: Vec<(Box<str>, usize)>,
    /// For each listener, what answers when no name matches.
    defaults: Vec<usize>,
    /// The patterns of all status routes.
    status: Vec<PathPattern>,
    /// `None` where no listener speaks TLS.
    tls: Option<Secure>,
    /// Plain requests may have to be sent to `https`, or be an authority's.
    has_entrance: bool,
}

/// A plain request, as far as it decides whether its site is asked at all.
pub(crate) struct Arrival<'a> {
    pub listener: u16,
    pub authority: &'a str,
    /// As sent.
    pub path: &'a str,
    /// As sent.
    pub query: Option<&'a str>,
}

/// Where authorities look for the answers to their challenges (RFC 8555 section 8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// What an engine needs where a listener speaks TLS.
struct Secure {
    store: Arc<TlsStore>,
    sites: Arc<TlsSites>,
}

/// A site at run time.
pub struct Site {
    config: Arc<settings::Site>,
    routes: Vec<Route>,
    has_programs: bool,
    /// On whose account its requests wait: the same on all workers, and after a reload.
    account: u64,
    /// Some route passes on what holds an encoded slash.
    takes_encoded_slashes: bool,
    /// Some route is only for clients on this machine.
    is_partly_for_this_machine: bool,
    /// Some route trusts other proxies than the site does.
    pub(crate) trusts_by_route: bool,
    /// Where its access lines go.
    pub access_log: Option<Sink>,
}

/// A route at run time: what a module has made of it.
pub struct Route {
    handler: Rc<dyn Handler>,
    filters: Vec<Rc<dyn Filter>>,
    decoration: Rc<Decoration>,
}

impl Route {
    /// A route with what answers it.
    pub fn new(handler: Rc<dyn Handler>, filters: Vec<Rc<dyn Filter>>, decoration: Rc<Decoration>) -> Route {
        Route { handler, filters, decoration }
    }
}

/// On whose account the requests of a site wait, wherever they do: the same on all workers, and after a reload.
pub fn account_of(site: &settings::Site) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one(site.names.iter().map(ToString::to_string).collect::<Vec<_>>())
}

impl Site {
    /// A site; `routes` are in the order of its settings.
    pub fn new(config: Arc<settings::Site>, routes: Vec<Route>, access_log: Option<Sink>) -> Site {
        debug_assert_eq!(config.routes.len(), routes.len());
        let has_programs = config.routes.iter().any(|route| route.action.is_program());
        let account = account_of(&config);
        let takes_encoded_slashes = (0..routes.len()).any(|index| takes_encoded_slash(&config, index));
        let trusts_by_route = config.routes.iter().any(|route| route.trusted_proxies.is_some());
        let mut rules = config.routes.iter().flat_map(|route| route.access.levels.iter().flatten());
        let is_partly_for_this_machine = rules.any(access::is_for_this_machine);
        Site {
            config,
            routes,
            access_log,
            has_programs,
            account,
            takes_encoded_slashes,
            is_partly_for_this_machine,
            trusts_by_route,
        }
    }

    /// The path of a request by which everything is decided, and whether it was sent with a `%2F`.
    ///
    /// Such a path names no file. Where the route says so (`encoded-slashes`) the application gets it as it was
    /// sent, and may take the `%2F` for a slash or for a part of a name. The route has to be the same either way:
    /// then whatever holds for it has been asked, however the application reads it.
    #[inline]
    pub(crate) fn path_of<'a>(
        &self,
        raw_path: &'a str,
        scratch: &'a mut Vec<u8>,
    ) -> Result<(&'a [u8], bool), PathError> {
        if self.takes_encoded_slashes && has_encoded_slash(raw_path) {
            return self.ambiguous_path(raw_path, scratch).map(|path| (path, true));
        }
        normalise(raw_path, scratch).map(|path| (path, false))
    }

    #[cold]
    fn ambiguous_path<'a>(&self, raw_path: &str, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], PathError> {
        let (as_separator, as_data) = both_readings(raw_path)?;
        *scratch = as_separator;
        match self.route_for(scratch) {
            Some(index)
                if self.route_for(&as_data) == Some(index) && takes_encoded_slash(&self.config, index) =>
            {
                Ok(scratch)
            }
            _ => Err(PathError::EncodedSlash),
        }
    }

    /// Its settings.
    pub(crate) fn config(&self) -> &settings::Site {
        &self.config
    }

    /// See [`Account`](crate::admission::Account).
    #[inline]
    pub(crate) fn account(&self) -> u64 {
        self.account
    }

    /// Who asks, as this site sees it.
    #[inline]
    pub(crate) fn remote(&self, peer: Peer, fields: &Fields<'_>) -> Remote {
        let mut remote = Remote::behind(&self.config.trusted_proxies, peer, fields);
        if self.is_partly_for_this_machine {
            remote.look_for_proxy(fields);
        }
        remote
    }

    /// The same as a route of this site sees it.
    pub(crate) fn remote_at(&self, index: usize, remote: Remote, fields: &Fields<'_>) -> Remote {
        if !self.trusts_by_route {
            return remote;
        }
        let own = self.route(index).trusted_proxies.as_ref();
        remote.seen_behind(own.unwrap_or(&self.config.trusted_proxies), fields)
    }

    /// Whether any route has a program answer.
    pub(crate) fn has_programs(&self) -> bool {
        self.has_programs
    }

    /// A route's settings. The index is one of [`Site::route_for`].
    pub(crate) fn route(&self, index: usize) -> &settings::Route {
        &self.config.routes[index]
    }

    /// The Content and Filter phases.
    #[inline]
    pub(crate) fn content(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        match self.routes[index].handler.handle(exchange, pass) {
            // Complete as it is: the hot path ends here.
            reply @ Reply::Ready(Response { head: Head::Prebuilt(_) | Head::Final(_), .. }) => reply,
            reply => self.finish_content(index, exchange, reply),
        }
    }

    #[inline(never)]
    fn finish_content(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>, reply: Reply) -> Reply {
        let links = &self.config.routes[index].early_hints;
        if !links.is_empty() && !matches!(reply, Reply::Ready(_)) {
            hint(links, exchange);
        }
        if self.has_filter_phase(index) { self.finish(index, exchange, reply) } else { reply }
    }

    /// The Content phase with the fields of the route and nothing else of the Filter phase.
    pub(crate) fn plain_content(&self, index: usize, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        let route = &self.routes[index];
        let (decoration, filled) = (route.decoration.clone(), route.decoration.fill(exchange));
        route.handler.handle(exchange, pass).map(move |mut response| {
            if let Head::Fields(lines) = &mut response.head {
                decoration.apply(response.status, &filled, lines);
            }
            response
        })
    }

    /// Whether a route has anything for the Filter phase.
    #[inline]
    fn has_filter_phase(&self, index: usize) -> bool {
        let Route { filters, decoration, .. } = &self.routes[index];
        !filters.is_empty() || !decoration.is_empty() || !self.config.routes[index].error_pages.is_empty()
    }

    /// The Filter phase: error page, fields of the route, filters. A finished response is left alone.
    pub(crate) fn finish(self: &Rc<Self>, index: usize, exchange: &Exchange<'_>, reply: Reply) -> Reply {
        let route = &self.routes[index];
        let filters: Vec<_> = route.filters.iter().filter_map(|filter| filter.prepare(exchange)).collect();
        let pages = !self.config.routes[index].error_pages.is_empty();
        let pages = pages.then(|| Elsewhere::of(self, exchange));
        if filters.is_empty() && route.decoration.is_empty() && pages.is_none() {
            return reply;
        }
        let least = match exchange.method {
            Method::Head => 0,
            _ => route.filters.iter().map(|filter| filter.looks_ahead()).max().unwrap_or(0),
        };
        let reply = if filters.is_empty() { reply } else { ahead::look_ahead(reply, least) };
        let (decoration, filled) = (route.decoration.clone(), route.decoration.fill(exchange));
        let dress = move |mut response: Response| {
            let Head::Fields(lines) = &mut response.head else { return response };
            decoration.apply(response.status, &filled, lines);
            filters.into_iter().fold(response, |response, filter| filter(response))
        };
        let Some(pages) = pages else { return reply.map(dress) };
        self.clone().with_pages(index, pages, reply, dress)
    }

    fn with_pages(
        self: Rc<Self>,
        index: usize,
        pages: Elsewhere,
        reply: Reply,
        dress: impl FnOnce(Response) -> Response + 'static,
    ) -> Reply {
        match reply {
            Reply::Ready(response) => self.with_page(index, &pages, response).map(dress),
            Reply::Later(future) => Reply::Later(Box::pin(async move {
                dress(self.with_page(index, &pages, future.await).settled().await)
            })),
            Reply::Preparing(future) => {
                Reply::Preparing(Box::pin(async move { self.with_pages(index, pages, future.await, dress) }))
            }
        }
    }

    /// The route that has this name and no path.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        let is_it = |route: &settings::Route| matches!(&route.pattern, PathPattern::Exact(of) if of == name);
        self.config.routes.iter().position(is_it)
    }

    /// Puts the page that the settings name for an error in its place.
    fn with_page(&self, index: usize, pages: &Elsewhere, response: Response) -> Reply {
        let config = &self.config.routes[index];
        let is_finished = !matches!(response.head, Head::Fields(_));
        if is_finished || (response.author == Author::Application && !config.intercepts) {
            return Reply::Ready(response);
        }
        match config.error_pages.iter().find(|(of, _)| *of == response.status.0) {
            Some((_, path)) => pages.error_page(path, response),
            None => Reply::Ready(response),
        }
    }

    /// The first route whose pattern fits.
    pub(crate) fn route_for(&self, path: &[u8]) -> Option<usize> {
        self.config.routes.iter().position(|route| matches(&route.pattern, path))
    }
}

/// Whether a route passes on a path with `%2F` as it was sent: an application that is to have it, or files that
/// leave to one what is none of them.
fn takes_encoded_slash(site: &settings::Site, index: usize) -> bool {
    match site.routes.get(index).map(|route| &route.action) {
        Some(settings::Action::Proxy(proxy)) => proxy.passes_encoded_slashes,
        Some(settings::Action::Files(files)) => {
            let Some(Try::Route(name)) = files.try_list.last() else { return false };
            let is_it = |pattern: &PathPattern| matches!(pattern, PathPattern::Exact(of) if of == name);
            site.routes.iter().find(|route| is_it(&route.pattern)).is_some_and(|route| {
                matches!(&route.action, settings::Action::Proxy(proxy) if proxy.passes_encoded_slashes)
            })
        }
        _ => false,
    }
}

impl Engine {
    /// Puts the sites, in the order of the settings, behind their names.
    pub fn new(settings: Arc<Settings>, sites: Vec<Site>) -> Engine {
        let mut exact = HashMap::new();
        let mut suffixes: Vec<(Box<str>, usize)> = Vec::new();
        for (index, site) in sites.iter().enumerate() {
            for name in &site.config.names {
                match name {
                    HostPattern::Exact(name) => drop(exact.entry(name.as_str().into()).or_insert(index)),
                    HostPattern::Suffix(suffix) => suffixes.push((suffix.as_str().into(), index)),
                }
            }
        }
        suffixes.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        let nameless = sites.iter().position(|site| site.config.names.is_empty()).unwrap_or(0);
        let defaults = settings
            .listeners
            .iter()
            .map(|listener| {
                let named = listener.default_site.as_deref();
                named.and_then(|name| find(&exact, &suffixes, name)).unwrap_or(nameless)
            })
            .collect();
        let routes = sites.iter().flat_map(|site| &site.config.routes);
        let status = routes
            .filter(|route| route.action == settings::Action::Status)
            .map(|route| route.pattern.clone())
            .collect();
        let sites = sites.into_iter().map(Rc::new).collect();
        let has_entrance = settings.listeners.iter().any(|listener| listener.redirects_to_https.is_some());
        Engine { settings, sites, exact, suffixes, defaults, status, tls: None, has_entrance }
    }

    /// Whether a path of a site leads to the status page, which is served however busy the server is.
    pub fn always_answers(&self, site: &Site, path: &[u8]) -> bool {
        !self.status.is_empty()
            && site
                .route_for(path)
                .is_some_and(|index| site.config.routes[index].action == settings::Action::Status)
    }

    /// Whether these first bytes of a connection may be a request to a status page: cheap, for connections
    /// that are otherwise turned away unread. [`Engine::always_answers`] has the last word.
    pub fn may_ask_for_status(&self, bytes: &[u8]) -> bool {
        if self.status.is_empty() {
            return false;
        }
        let mut words = bytes.splitn(3, |byte| *byte == b' ');
        let (Some(_method), Some(target), Some(_rest)) = (words.next(), words.next(), words.next()) else {
            return false;
        };
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        self.status.iter().any(|pattern| matches(pattern, path))
    }

    /// Adds what listeners with TLS need. Fails where the settings cannot be served so.
    pub fn with_tls(mut self, store: &Arc<TlsStore>) -> Result<Engine, TlsError> {
        if self.settings.listeners.iter().any(|listener| listener.tls.is_some()) {
            self.tls = Some(Secure { store: store.clone(), sites: store.sites(&self.settings)? });
            self.has_entrance = true;
        }
        Ok(self)
    }

    /// What answers a plain request before its site is asked: the challenge of an authority, and the way to
    /// `https`.
    #[inline]
    pub(crate) fn entrance(&self, site: &Site, arrival: &Arrival<'_>) -> Option<Response> {
        if self.has_entrance { self.enter(site, arrival) } else { None }
    }

    fn enter(&self, site: &Site, arrival: &Arrival<'_>) -> Option<Response> {
        if let (Some(Secure { store, .. }), Some(token)) = (&self.tls, arrival.path.strip_prefix(CHALLENGES))
            && let Some(answer) = store.token(token)
        {
            return Some(Response::content(Status::OK, "application/octet-stream", answer));
        }
        let listener = self.settings.listeners.get(usize::from(arrival.listener))?;
        let port = match listener.redirects_to_https {
            Some(port) => port,
            None if site.config.is_https_only => self.https_port()?,
            None => return None,
        };
        let host = host_of(arrival.authority);
        if host.is_empty() {
            let why = "The request names no host, so it cannot be sent to https.";
            return Some(answer::explained(Status::BAD_REQUEST, why));
        }
        let mut location = format!("https://{host}");
        if port != 443 {
            location += &format!(":{port}");
        }
        location += arrival.path;
        if let Some(query) = arrival.query {
            location.push('?');
            location += query;
        }
        Some(Response::empty(Status(308)).with("Location", &location))
    }

    /// The port of the first listener with TLS that has one.
    fn https_port(&self) -> Option<u16> {
        self.settings.listeners.iter().filter(|listener| listener.tls.is_some()).find_map(|listener| {
            match &listener.address {
                ListenAddress::Tcp(address) => Some(address.port()),
                ListenAddress::Unix(_) => None,
            }
        })
    }

    /// How connections begin on a listener.
    #[inline]
    pub(crate) fn opening(&self, listener: u16, peer: Peer) -> Opening {
        let Some(listener) = self.settings.listeners.get(usize::from(listener)) else {
            return Opening::Plain;
        };
        let then_tls = listener.tls.is_some();
        if listener.proxies.iter().any(|network| covers(*network, peer)) {
            return Opening::Proxy { then_tls };
        }
        if then_tls { Opening::Tls } else { Opening::Plain }
    }

    /// The terms for a TLS connection on a listener. `local` is the address that the client has connected to: asked for
    /// where the client names no site, as clients do that were given an address.
    pub(crate) fn terms(
        &self,
        listener: usize,
        hello: &Hello,
        local: impl FnOnce() -> Option<IpAddr>,
    ) -> Option<Arc<SiteConfig>> {
        let Secure { store, sites } = self.tls.as_ref()?;
        if hello.server_name.is_none()
            && let Some(terms) = sites.at_address(listener, local)
        {
            return Some(terms.clone());
        }
        let name = hello.server_name.as_deref().unwrap_or("");
        if hello.is_challenge
            && let Some(config) = store.challenges().find(name)
        {
            return Some(SiteConfig::of_challenge(config));
        }
        sites.terms(listener, self.site_index(listener, name).0).cloned()
    }

    /// Whether a connection was made under terms that hold for the site as well. Where the rules for client
    /// certificates are others, the client has to come again under the right name (RFC 9110 section 15.5.20).
    #[inline]
    pub(crate) fn admits_on(&self, handshake: &Handshake, listener: usize, authority: &str) -> bool {
        let Some(Secure { sites, .. }) = &self.tls else { return true };
        match sites.terms(listener, self.site_index(listener, authority).0) {
            Some(terms) => Arc::ptr_eq(terms, &handshake.site) || terms.has_same_clients(&handshake.site),
            None => true,
        }
    }

    /// The site that answers for `authority` (host and port) on a listener.
    #[inline]
    pub fn site_for(&self, listener: usize, authority: &str) -> Option<&Rc<Site>> {
        self.sites.get(self.site_index(listener, authority).0)
    }

    /// Decides and answers.
    #[inline]
    pub fn handle(&self, site: &Rc<Site>, exchange: &mut Exchange<'_>) -> Reply {
        let Some(index) = site.route_for(exchange.path) else {
            return Reply::Ready(answer::refused(exchange, Status::NOT_FOUND, "no route fits"));
        };
        exchange.context.route = index;
        let config = &site.config.routes[index];
        if let Some(trusted) = &config.trusted_proxies {
            exchange.remote = exchange.remote.seen_behind(trusted, &exchange.fields);
        }
        match access::admit(&config.access, exchange) {
            Ok(pass) => site.content(index, exchange, pass),
            Err(refusal) => site.finish(index, exchange, refuse(exchange, &refusal)),
        }
    }

    /// The site that answers, and why it is that one.
    pub(crate) fn site_and_reason(
        &self,
        listener: usize,
        authority: &str,
    ) -> (Option<&Rc<Site>>, &'static str) {
        let (index, why) = self.site_index(listener, authority);
        (self.sites.get(index), why)
    }

    #[inline]
    fn site_index(&self, listener: usize, authority: &str) -> (usize, &'static str) {
        let default = self.defaults.get(listener).copied().unwrap_or(0);
        if self.exact.is_empty() && self.suffixes.is_empty() {
            return (default, "the only one that can answer");
        }
        self.named_index(default, authority)
    }

    fn named_index(&self, default: usize, authority: &str) -> (usize, &'static str) {
        let host = host_of(authority);
        let mut lower = [0; HOST_MAX];
        let Some(lower) = lower.get_mut(..host.len()) else {
            return (default, "the default: the host name is too long to be one of ours");
        };
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let mut address = [0; ADDRESS_MAX];
        let host = std::str::from_utf8(lower).ok();
        let host = host.map(|host| address_literal(host, &mut address).unwrap_or(host));
        let found = host.and_then(|host| find(&self.exact, &self.suffixes, host));
        match found {
            Some(index) => (index, "the host name matches"),
            None => (default, "the default of the listener: no site has this host name"),
        }
    }
}

/// Room for an IPv6 address in brackets.
const ADDRESS_MAX: usize = 48;

/// An IPv6 address in brackets, written the one way that names of sites are (RFC 5952).
fn address_literal<'b>(host: &str, out: &'b mut [u8; ADDRESS_MAX]) -> Option<&'b str> {
    let address: Ipv6Addr = host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let mut rest = out.as_mut_slice();
    write!(rest, "[{address}]").ok()?;
    let left = rest.len();
    std::str::from_utf8(out.get(..ADDRESS_MAX - left)?).ok()
}

fn find(exact: &HashMap<Box<str>, usize>, suffixes: &[(Box<str>, usize)], host: &str) -> Option<usize> {
    exact.get(host).copied().or_else(|| {
        let longer = |suffix: &str| host.len() > suffix.len() && host.ends_with(suffix);
        suffixes.iter().find(|(suffix, _)| longer(suffix)).map(|(_, index)| *index)
    })
}

/// The host of an authority: without port, without the dot of a fully qualified name.
fn host_of(authority: &str) -> &str {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']').map_or(authority, |end| &authority[..end + 2]),
        None => authority.rfind(':').map_or(authority, |colon| &authority[..colon]),
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// Whether a decoded, normalised path matches.
#[inline]
pub fn matches(pattern: &PathPattern, path: &[u8]) -> bool {
    match pattern {
        PathPattern::Exact(exact) => path == exact.as_bytes(),
        PathPattern::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        PathPattern::Suffix(suffix) => path.ends_with(suffix.as_bytes()),
        PathPattern::Pieces(pieces) => matches_pieces(pieces, path),
    }
}

/// Greedy from the left: linear in the path for each piece, never exponential.
fn matches_pieces(pieces: &[String], path: &[u8]) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_some_and(|only| path == only.as_bytes());
    };
    let Some(mut rest) = path.strip_prefix(first.as_bytes()) else { return false };
    for piece in middle.iter().filter(|piece| !piece.is_empty()) {
        let Some(at) = rest.windows(piece.len()).position(|window| window == piece.as_bytes()) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last.as_bytes())
}

/// The answer to a request that is not let in.
pub(crate) fn refuse(exchange: &Exchange<'_>, refusal: &Refusal<'_>) -> Reply {
    let response = answer::refused(exchange, Status::FORBIDDEN, refusal);
    Reply::Ready(match refusal {
        Refusal::Denied(_)
        | Refusal::NotAllowed(_)
        | Refusal::UnnamedProxy(_)
        | Refusal::UnnamedClient(_) => response,
        Refusal::NoCertificate => answer::explained(
            Status::FORBIDDEN,
            "This address is open only to clients that show a certificate.",
        ),
    })
}

/// Tells a browser what it will need while the page is still being made (RFC 8297). Only where one navigates
/// and speaks HTTP/2: others do nothing with it, and old clients of HTTP/1 take it for the answer.
#[cold]
fn hint(links: &[String], exchange: &Exchange<'_>) {
    let navigates = exchange.fields.first("sec-fetch-mode").is_some_and(|mode| mode == b"navigate");
    if exchange.minor_version != HTTP_2 || exchange.method != Method::Get || !navigates {
        return;
    }
    if let Some(queue) = exchange.context.interim() {
        let mut lines = FieldLines::new();
        for link in links {
            lines.push("Link", link);
        }
        queue.push(Interim { status: Status::EARLY_HINTS, lines });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let pieces = |s: &str| PathPattern::Pieces(s.split('*').map(Into::into).collect());
        let cases = [
            (PathPattern::Exact("/a".into()), "/a", true),
            (PathPattern::Exact("/a".into()), "/a/", false),
            (PathPattern::Prefix("/static/".into()), "/static/x/y.css", true),
            (PathPattern::Prefix("/static/".into()), "/static", false),
            (PathPattern::Suffix(".php".into()), "/x/y.php", true),
            (PathPattern::Suffix(".php".into()), "/x/y.phps", false),
            (pieces("/a/*/b"), "/a/x/y/b", true),
            (pieces("/a/*/b"), "/a/b", false),
            (pieces("/a*a"), "/a", false),
            (pieces("*x*y*"), "/1x2y3", true),
            (pieces("*x*y*"), "/1y2x3", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(&pattern, path.as_bytes()), expected, "{pattern:?} {path}");
        }
    }

    #[test]
    fn hosts() {
        for (authority, host) in [
            ("example.com", "example.com"),
            ("example.com:8080", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(host_of(authority), host);
        }
    }
}
