//! What the settings of a route make of the rules of a shared cache: whose requests are looked up, under which key, and what is said of it.

use super::place::host;
use super::searches::{self, Searches};
use crate::gateway::claims::{is_claim, is_identity, is_routing};
use std::borrow::Cow;
use tidegate_cache::site_mark;
use tidegate_config::Settings;
use tidegate_config::settings::{Action, CacheBypass, CacheQuery, Route, RouteCache, Shared, Site};
use tidegate_core::Exchange;
use tidegate_core::template::{Scope, Template, chosen_language};
use tidegate_http::cache::key::{self, KeyRules, QueryRules, Resource};
use tidegate_http::cache::names::Names;
use tidegate_http::cache::{Asked, CacheStatus, DefaultLifetime, Detail, Freshness, Reason, Rules};
use tidegate_http::field::list_elements;
use tidegate_http::{Authority, Field, FieldLines, Method};

/// Fields by which some applications take a request for another one than it is. No key holds them, so whoever sends one would
/// choose what others get.
const UNKEYED: [&str; 13] = [
    "X-Forwarded-Path",
    "X-Forwarded-Prefix",
    "X-Forwarded-Scheme",
    "X-Forwarded-Server",
    "X-Forwarded-Uri",
    "X-Host",
    "X-HTTP-Method",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-Original-Host",
    "X-Original-URL",
    "X-Original-URI",
    "X-Rewrite-URL",
];
/// Fields that an application gets of this server alone, in small letters.
const OF_THE_SERVER: [&str; 8] = [
    "cdn-loop",
    "connection",
    "forwarded",
    "host",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];
/// What asks for a part, or for what has changed: the store asks for itself.
const OF_THE_CLIENT: [&str; 4] = ["If-Modified-Since", "If-None-Match", "If-Range", "Range"];

/// Whom a request could be answered for. Each part limits by itself what is used and stored, whatever the other one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    /// It shows who it is: it does not wait for the fetch of another either.
    pub(super) shows_who: bool,
    pub(super) cookies: Cookies,
}

/// What the settings make of the cookies of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cookies {
    /// It has none but those that stand in its key.
    Keyed,
    /// They count for nothing.
    Ignored,
    /// Any of them may mean a user: what is kept has to say that it is for everybody.
    Counting,
}

impl Class {
    /// Nothing tells this client from any other.
    pub(super) const ANYONE: Class = Class { shows_who: false, cookies: Cookies::Keyed };
    /// Who shows no more than cookies, and is no visitor by them.
    pub(super) const COOKIES: Class = Class { shows_who: false, cookies: Cookies::Counting };

    /// Whether what is kept for one of them is for all.
    pub(super) fn is_open(self) -> bool {
        !self.shows_who && self.cookies != Cookies::Counting
    }
}

/// What the settings of a route say.
pub(super) struct Policy {
    settings: RouteCache,
    rules: Rules,
    key_rules: KeyRules,
    /// Cookies that lead past the cache; `None`: that is not said.
    bypass: Option<Names>,
    /// Fields that the server writes itself, in small letters: what varies by them is not told apart by what clients send.
    written: Vec<String>,
    /// Site and route, which are a part of each key: what one of them answers is not for another.
    place: String,
    /// What responses say of their queries; `None` where that does not count.
    searches: Option<Searches>,
    /// What the application is told of a request beside its fields.
    tells: Tells,
    /// Fields that any client may send, although only proxies do.
    passed: Vec<String>,
    /// The answer may depend on which of these a client prefers.
    languages: Shared<Vec<String>>,
    /// Ranges that are answered at most.
    pub(super) ranges: u16,
    /// What tells the responses of the site from those of others, for purges.
    pub(super) site: u64,
}

/// What a route tells an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tells {
    /// The path as it was sent, beside the one that it is asked for.
    target: bool,
    /// Path and query by a placeholder, which may be those of before a `rewrite`.
    placeholders: bool,
}

/// Which parts of a query count for a route.
pub(super) fn query_rules(settings: &RouteCache) -> QueryRules {
    QueryRules {
        is_sorted: settings.query == CacheQuery::Sorted,
        dropped: settings.query_drop.iter().collect(),
        kept: match settings.query {
            CacheQuery::Ignored => Some(Names::default()),
            _ => Some(settings.query_only.iter().collect()).filter(|kept: &Names| !kept.is_empty()),
        },
    }
}

impl Policy {
    /// Of a route of a site.
    pub(super) fn of_route(
        settings: &RouteCache,
        (site, route): (&Site, &Route),
        server: &Settings,
    ) -> Policy {
        // No two sites share a name, and one at most has none.
        let name = site.names.first().map(ToString::to_string).unwrap_or_default();
        let conditions = route.conditions.iter().map(|condition| format!(" {condition}"));
        let place = format!("{name} {}{}", route.pattern, conditions.collect::<String>());
        let ranges = route.limits.as_ref().unwrap_or(&server.limits.request).ranges;
        let site = site_mark(&name);
        let lifetimes = settings.default_lifetimes.iter();
        let lifetimes = lifetimes.flat_map(|lifetime| {
            let seconds = u32::try_from(lifetime.lifetime.as_secs()).unwrap_or(u32::MAX);
            let can_be_stored = |status: &u16| settings.default_lifetime(*status).is_some();
            // Of a class those that can be stored, next to each other.
            let statuses: Vec<u16> = (lifetime.first..=lifetime.last).filter(can_be_stored).collect();
            let runs = statuses.chunk_by(|one, next| one + 1 == *next);
            let runs: Vec<_> = runs.filter_map(|run| Some(*run.first()?..=*run.last()?)).collect();
            runs.into_iter().map(move |statuses| DefaultLifetime { statuses, seconds })
        });
        let rules = Rules {
            default_lifetimes: lifetimes.collect(),
            heuristic: settings.heuristic,
            keeps_set_cookie: settings.stores_set_cookie,
            stale_while_revalidate: settings.stale_while_revalidate,
            stale_if_error: settings.stale_if_error,
            no_vary_search: settings.no_vary_search,
            keeps_tags: true, // but for those that the settings name: see `hide_tags`
            ..Rules::default()
        };
        let key_rules = KeyRules { query: query_rules(settings), cookies: settings.cookies.iter().collect() };
        let bypass = match &settings.bypass {
            CacheBypass::Named(named) => Some(named.iter().collect()),
            CacheBypass::Unknown => None,
        };
        let searches = settings.no_vary_search.then(Searches::default);
        Policy {
            settings: settings.clone(),
            rules,
            key_rules,
            bypass,
            written: written_by(route),
            place,
            searches,
            tells: tells(route),
            passed: passed_by(&route.action).to_vec(),
            languages: route.languages.clone(),
            ranges,
            site,
        }
    }

    /// The name of the store, which `Cache-Status` says.
    pub(super) fn name(&self) -> &str {
        &self.settings.store
    }

    /// Whether requests wait for the fetches of others.
    pub(super) fn collapses(&self) -> bool {
        self.settings.collapses
    }

    /// The rules for requests of a class.
    pub(super) fn rules(&self, class: Class) -> Rules {
        Rules { ignores_cookies: class.cookies != Cookies::Counting, ..self.rules.clone() }
    }

    /// Whether this client may force a fetch, and is told why something was done.
    pub(super) fn obeys(&self, exchange: &Exchange<'_>) -> bool {
        let remote = &exchange.state.remote;
        !self.settings.obeyed.is_empty()
            && self.settings.obeyed.covers(remote.client.ip())
            && !remote.may_stand_in(&exchange.fields)
    }

    /// Whether whoever gets here has said who it is.
    pub(super) fn knows_everybody(&self) -> bool {
        self.settings.is_behind_login
    }

    /// What of a request decides.
    pub(super) fn asked<'e>(&self, exchange: &Exchange<'e>) -> Asked<'e> {
        Asked {
            method: exchange.method,
            fields: exchange.fields,
            has_content: exchange.state.body.is_some(),
            is_obeyed: self.obeys(exchange),
        }
    }

    /// Whom a request could be answered for.
    ///
    /// # Errors
    /// It is for the application alone, for this reason: nothing is looked up, waited for or stored. Who asks is no way around it,
    /// so that only a request without such a reason has a class.
    pub(super) fn class(&self, exchange: &Exchange<'_>) -> Result<Class, Reason> {
        match self.why_past_the_cache(exchange) {
            Some(why) => Err(why),
            None => Ok(Class { shows_who: self.shows_who(exchange), cookies: self.cookies(exchange) }),
        }
    }

    fn why_past_the_cache(&self, exchange: &Exchange<'_>) -> Option<Reason> {
        if names_fields(exchange) {
            return Some(Reason::Connection);
        }
        let replaced = self.replaced_target(exchange).and_then(query_of);
        if exchange.query.into_iter().chain(replaced).any(|query| self.key_rules.query.is_ambiguous(query)) {
            return Some(Reason::AmbiguousQuery);
        }
        if self.key_rules.has_ambiguous_cookies(exchange.fields) {
            return Some(Reason::AmbiguousCookie);
        }
        // One that an application may take for another means what that means.
        let bypass = self.bypass.as_ref().filter(|bypass| !bypass.is_empty())?;
        let is_bypassing = key::cookies(exchange.fields).any(|(name, _)| bypass.means(name));
        is_bypassing.then_some(Reason::BypassCookies)
    }

    fn shows_who(&self, exchange: &Exchange<'_>) -> bool {
        self.knows_everybody()
            || exchange.user().is_some()
            || exchange.client().is_some()
            || self.is_vouched_for(exchange)
            || exchange.fields.contains("authorization")
    }

    fn cookies(&self, exchange: &Exchange<'_>) -> Cookies {
        if key::cookies(exchange.fields).all(|(name, _)| self.key_rules.cookies.contain(name)) {
            return Cookies::Keyed;
        }
        if self.bypass.is_some() { Cookies::Ignored } else { Cookies::Counting }
    }

    /// What of a request stands in its key, in words.
    pub(super) fn shown_key(&self, exchange: &Exchange<'_>) -> String {
        let target = exchange.resolved_target();
        let authority = authority(exchange);
        let mut key = format!("{}://{}", exchange.scheme, authority.host.to_ascii_lowercase());
        if let Some(port) = authority.port {
            key.push_str(&format!(":{port}"));
        }
        key.push_str(&self.counting(&target));
        for cookie in &self.settings.cookies {
            key.push_str(&format!(", cookie `{cookie}`"));
        }
        if let Some(language) = self.languages.get(self.language(exchange)) {
            key.push_str(&format!(", language `{language}`"));
        }
        if let Some(told) = self.replaced_target(exchange).map(|told| self.counting(told)) {
            key.push_str(&format!(", asked for as `{told}`"));
        } else if let Some(told) = self.told_path(exchange, &target) {
            key.push_str(&format!(", asked for as `{told}`"));
        }
        key
    }

    /// Whether what is stored, with these fields, may be used for requests of a class.
    pub(super) fn is_for(class: Class, freshness: &Freshness, lines: &FieldLines) -> bool {
        let is_for_cookies = match class.cookies {
            Cookies::Keyed => true,
            // The application has said that they count.
            Cookies::Ignored => !varies_by_cookie(lines),
            // Visitors without a cookie are one variant of what varies by it; each of the others is one of its own.
            Cookies::Counting => freshness.is_for_everybody() && !varies_by_cookie(lines),
        };
        is_for_cookies && (!class.shows_who || freshness.is_shared() && !varies_by_cookie(lines))
    }

    /// Which of the languages of the route the client prefers; 0 where there are none.
    #[inline]
    pub(super) fn language(&self, exchange: &Exchange<'_>) -> usize {
        if self.languages.is_empty() { 0 } else { chosen_language(exchange, &self.languages) }
    }

    /// Whether a field of a proxy tells the application who asks.
    #[inline]
    pub(super) fn is_vouched_for(&self, exchange: &Exchange<'_>) -> bool {
        let is_trusted = exchange.state.remote.is_trusted;
        let is_told = |name: &str| (is_trusted || self.passes(name)) && is_identity(name);
        (is_trusted || !self.passed.is_empty()) && exchange.fields.iter().any(|field| is_told(field.name))
    }

    /// Whether any client may send a field that only proxies send.
    fn passes(&self, name: &str) -> bool {
        self.passed.iter().any(|passed| passed.eq_ignore_ascii_case(name))
    }

    /// Whether a response varies by what the server itself has written, or by what proxies alone may say.
    pub(super) fn varies_by_written(&self, lines: &FieldLines) -> bool {
        lines.all("Vary").flat_map(list_elements).any(|name| {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            let is_of_proxies = is_claim(&name) && !self.passes(&name);
            is_of_proxies
                || is_identity(&name)
                || OF_THE_SERVER.contains(&name.as_str())
                || self.written.contains(&name)
        })
    }

    /// Path and query as keys have them, which is what purges go by.
    pub(super) fn counting<'t>(&self, target: &'t str) -> Cow<'t, str> {
        key::counting_target(target, &self.key_rules.query)
    }

    /// Appends the key of a request.
    pub(super) fn key(&self, exchange: &Exchange<'_>, class: Class, key: &mut Vec<u8>) {
        let target = exchange.resolved_target();
        let resource = Resource {
            scheme: exchange.scheme,
            authority: authority(exchange),
            site: &self.place,
            target: &target,
            fields: exchange.fields,
        };
        key.push(u8::from(!class.is_open()));
        let search = self.searches.as_ref().and_then(|searches| searches.of(exchange));
        key::write(key, &resource, &self.key_rules, search.as_deref());
        if let Some(language) = self.languages.get(self.language(exchange)) {
            // By its length it is told from a path.
            key.extend_from_slice(&u32::try_from(language.len()).unwrap_or(u32::MAX).to_le_bytes());
            key.extend_from_slice(language.as_bytes());
        }
        if !exchange.has_path_as_sent() {
            // `index`, `try` or `rewrite` have led here. Without dot segments it may be the path of the target all the same.
            if exchange.is_rewritten() || path_of(&target) != exchange.path {
                key.extend_from_slice(exchange.path);
            }
            // Each behind a byte that no path has: what else the application is told of it, `REQUEST_URI`, `{path}`, `{1}`.
            if let Some(told) = self.told_path(exchange, &target) {
                key.push(0);
                key.extend_from_slice(told.as_bytes());
            }
            if self.tells.placeholders && exchange.is_rewritten() {
                key.push(0);
                key.extend_from_slice(exchange.routed_path());
            }
        }
        if let Some(told) = self.replaced_target(exchange) {
            key.push(0);
            key.extend_from_slice(self.counting(told).as_bytes());
        }
    }

    fn tells_target(&self) -> bool {
        self.tells.target || self.tells.placeholders
    }

    /// The path that the client has asked for, where the application, which gets `target`, is told of it.
    fn told_path<'e>(&self, exchange: &Exchange<'e>, target: &str) -> Option<&'e str> {
        let is_told = !exchange.has_path_as_sent() && self.tells_target() && target != exchange.target;
        is_told.then(|| exchange.target.split('?').next().unwrap_or_default())
    }

    /// What the client has asked for, where it had another query than the application gets, which is told of it all the same.
    fn replaced_target<'e>(&self, exchange: &Exchange<'e>) -> Option<&'e str> {
        let is_replaced = || query_of(exchange.target) != exchange.query;
        (self.tells_target() && exchange.is_rewritten() && is_replaced()).then_some(exchange.target)
    }

    /// Takes in what a response says of the query of this request.
    pub(super) fn learn_query(&self, exchange: &Exchange<'_>, lines: &FieldLines) {
        if let Some(searches) = &self.searches {
            searches.learn(exchange, lines);
        }
    }

    /// Whether what was stored for the path and query `stored`, under the key of this request, is for its query.
    pub(super) fn is_for_query(&self, exchange: &Exchange<'_>, stored: &str, lines: &FieldLines) -> bool {
        self.searches.is_none()
            || searches::is_same(stored, &self.counting(&exchange.resolved_target()), lines)
    }

    /// Fields for the application: those of the client that a key holds or that choose nothing. `Host` is spelled as in the key:
    /// some answer another spelling with a redirect to theirs, which everybody would get.
    pub(super) fn fetch_fields(&self, exchange: &Exchange<'_>, authority: &str) -> FieldLines {
        let mut lines = FieldLines::new();
        for field in exchange.fields.iter().filter(|field| !self.is_left_out(exchange, field)) {
            let is_host = field.is("host") && !authority.is_empty();
            lines.push_read(field.name, if is_host { authority.as_bytes() } else { field.value });
        }
        lines
    }

    /// Whether a client has sent fields that choose an answer and stand in no key, or ask for a part.
    pub(super) fn has_unkeyed(&self, exchange: &Exchange<'_>) -> bool {
        exchange.fields.iter().any(|field| self.is_left_out(exchange, field))
    }

    /// Whether a field is not for an application whose answer is kept. Of what trusted proxies say that is all but who asks, and
    /// `X-Forwarded-For`: the server writes what it has made of the rest.
    fn is_left_out(&self, exchange: &Exchange<'_>, field: &Field<'_>) -> bool {
        let mut names = UNKEYED.iter().chain(&OF_THE_CLIENT);
        names.any(|name| field.is(name))
            || exchange.state.remote.is_trusted
                && is_routing(field.name)
                && !field.is("x-forwarded-for")
                && !self.passes(field.name)
                && !exchange.is_granted(field)
    }

    /// Takes away what is meant for this cache alone.
    pub(super) fn hide_tags(&self, lines: &mut FieldLines) {
        for name in &self.settings.tag_fields {
            lines.remove(name);
        }
    }

    /// Whether a response says anything of tags.
    pub(super) fn has_tags(&self, lines: &FieldLines) -> bool {
        self.settings.tag_fields.iter().any(|name| lines.contains(name))
    }

    /// The tags of a response.
    pub(super) fn tags<'l>(&'l self, lines: &'l FieldLines) -> impl Iterator<Item = &'l [u8]> {
        let values = self.settings.tag_fields.iter().flat_map(|name| lines.all(name));
        let words = values.flat_map(|value| value.split(|byte| matches!(byte, b' ' | b',' | b'\t')));
        words.filter(|word| !word.is_empty()).take(tidegate_http::cache::groups::MOST_TAGS)
    }

    /// Says in the head of a response what was done.
    pub(super) fn say(
        &self,
        exchange: &Exchange<'_>,
        status: CacheStatus<'_>,
        detail: Option<Detail>,
        lines: &mut FieldLines,
    ) {
        let status = match detail {
            Some(detail) if self.obeys(exchange) => status.detail(detail.as_str()),
            _ => status,
        };
        status.append_to(lines);
    }
}

/// Fields that a route writes into its requests, in small letters.
fn written_by(route: &Route) -> Vec<String> {
    let Action::Proxy(proxy) = &route.action else { return Vec::new() };
    let set = proxy.request_fields.iter().map(|(name, _)| name);
    let names = set.chain(proxy.more_request_fields.iter().map(|field| &field.name));
    names.map(|name| name.to_ascii_lowercase()).collect()
}

/// What a route tells its application of where a request has come to.
fn tells(route: &Route) -> Tells {
    let target = matches!(route.action, Action::Fastcgi(_) | Action::Scgi(_) | Action::Cgi(_));
    let Action::Proxy(proxy) = &route.action else { return Tells { target, placeholders: false } };
    let set = proxy.request_fields.iter().map(|(_, value)| value);
    let mut values = set.chain(proxy.more_request_fields.iter().map(|field| &field.value));
    let placeholders = values.any(|value| Template::parse(value, Scope::of(route)).asks_for_target());
    Tells { target, placeholders }
}

/// Fields that any client of a route may send, although only proxies do.
fn passed_by(action: &Action) -> &[String] {
    match action {
        Action::Proxy(proxy) => &proxy.gateway.passed_fields,
        Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
            &application.gateway.passed_fields
        }
        _ => &[],
    }
}

/// Whether a client has fields of its own taken out on the way (RFC 9110 section 7.6.1): what is answered would be kept for
/// requests that have them.
fn names_fields(exchange: &Exchange<'_>) -> bool {
    let of_connection = |option: &[u8]| {
        ["close", "keep-alive", "te", "upgrade", "http2-settings", "proxy-connection"]
            .iter()
            .any(|known| option.eq_ignore_ascii_case(known.as_bytes()))
    };
    exchange.fields.elements("connection").any(|option| !of_connection(option))
}

/// Whether a request is for what the store would ask for itself: the whole of it, whatever the client has.
pub(super) fn asks_for_the_whole(exchange: &Exchange<'_>) -> bool {
    let asks_otherwise = OF_THE_CLIENT.iter().chain(&["Upgrade"]).any(|name| exchange.fields.contains(name));
    exchange.method == Method::Get && !asks_otherwise
}

fn path_of(target: &str) -> &[u8] {
    target.split_once('?').map_or(target, |(path, _)| path).as_bytes()
}

fn query_of(target: &str) -> Option<&str> {
    target.split_once('?').map(|(_, query)| query)
}

/// Host and port as the client has said them.
pub(super) fn authority<'e>(exchange: &Exchange<'e>) -> Authority<'e> {
    // A client of HTTP/1.0 need not say it.
    Authority::parse(exchange.authority.as_bytes()).unwrap_or(Authority { host: "-", port: None })
}

/// The same in the one spelling that stands for all that mean it (RFC 9110 section 4.2.3): small letters, and no port that is the
/// scheme's own.
pub(super) fn spelled<'e>(exchange: &Exchange<'e>) -> Cow<'e, str> {
    match Authority::parse(exchange.authority.as_bytes()) {
        Ok(authority) => match host(exchange.scheme, authority) {
            spelled if *spelled == *exchange.authority => Cow::Borrowed(exchange.authority),
            spelled => Cow::Owned(spelled.into()),
        },
        Err(_) => Cow::Borrowed(exchange.authority),
    }
}

/// The scheme in a key that [`Policy::key`] has made: behind the class and its length.
pub(super) fn scheme_of(key: &[u8]) -> &'static str {
    if key.get(5..).is_some_and(|rest| rest.starts_with(b"https")) { "https" } else { "http" }
}

fn varies_by_cookie(lines: &FieldLines) -> bool {
    lines.all("Vary").flat_map(list_elements).any(|name| name.eq_ignore_ascii_case(b"cookie"))
}
