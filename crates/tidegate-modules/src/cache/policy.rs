//! What the settings of a route make of the rules of a shared cache: whose requests are looked up, under which key, and what is said of it.

use super::searches::{self, Searches};
use std::borrow::Cow;
use tidegate_config::settings::{CacheBypass, CacheQuery, RouteCache};
use tidegate_core::Exchange;
use tidegate_http::cache::key::{self, KeyRules, QueryRules, Resource};
use tidegate_http::cache::{Asked, CacheStatus, DefaultLifetime, Freshness, Rules};
use tidegate_http::field::list_elements;
use tidegate_http::path::encode_path;
use tidegate_http::{Authority, FieldLines, Fields};

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
/// What asks for a part, or for what has changed: the store asks for itself.
const OF_THE_CLIENT: [&str; 4] = ["If-Modified-Since", "If-None-Match", "If-Range", "Range"];

/// Whom a request could be answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing tells this client from any other.
    Anyone,
    /// Nothing but cookies that count for nothing, by the settings.
    AnyoneWithCookies,
    /// It has cookies: what is kept for it has to say that it is for everybody.
    Cookies,
    /// It shows who it is. The same, and it does not wait for the fetch of another.
    Credentials,
    /// It has a cookie that leads past the cache, or fields that another one would not have.
    PastTheCache,
}

impl Class {
    /// Whether what is kept for one of them is for all.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Class::Anyone | Class::AnyoneWithCookies)
    }
}

/// What the settings of a route say.
pub(super) struct Policy {
    settings: RouteCache,
    rules: Rules,
    key_rules: KeyRules,
    /// Fields that the server writes itself, in small letters: what varies by them is not told apart by what clients send.
    written: Vec<String>,
    /// Site and route, which are a part of each key: what one of them answers is not for another.
    place: String,
    /// What responses say of their queries; `None` where that does not count.
    searches: Option<Searches>,
    /// Ranges that are answered at most.
    pub(super) ranges: u16,
}

impl Policy {
    pub(super) fn new(
        settings: &RouteCache,
        (site, route): (&str, &str),
        written: Vec<String>,
        ranges: u16,
    ) -> Policy {
        let lifetimes = settings.default_lifetimes.iter();
        let lifetimes = lifetimes.filter_map(|lifetime| {
            let statuses = lifetime.first..=lifetime.last;
            settings.default_lifetime(lifetime.first)?;
            let seconds = u32::try_from(lifetime.lifetime.as_secs()).unwrap_or(u32::MAX);
            Some(DefaultLifetime { statuses, seconds })
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
        let query = QueryRules {
            is_sorted: settings.query == CacheQuery::Sorted,
            dropped: settings.query_drop.clone(),
            kept: match settings.query {
                CacheQuery::Ignored => Some(Vec::new()),
                _ => Some(settings.query_only.clone()).filter(|kept| !kept.is_empty()),
            },
        };
        let key_rules = KeyRules { query, cookies: settings.cookies.clone() };
        let place = format!("{site} {route}");
        let searches = settings.no_vary_search.then(Searches::default);
        Policy { settings: settings.clone(), rules, key_rules, written, place, searches, ranges }
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
        Rules { ignores_cookies: class.is_open(), ..self.rules.clone() }
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
    pub(super) fn class(&self, exchange: &Exchange<'_>) -> Class {
        if names_fields(exchange) {
            return Class::PastTheCache;
        }
        let is_known = exchange.user().is_some() || exchange.client().is_some();
        if self.knows_everybody() || is_known || exchange.fields.contains("authorization") {
            return Class::Credentials;
        }
        let names = || exchange.fields.all("cookie").flat_map(names_of_cookies);
        let mut cookies = names().peekable();
        if cookies.peek().is_none() {
            return Class::Anyone;
        }
        // Of a cookie that comes twice the application may take another one than the key has.
        let is_twice = |keyed: &String| names().filter(|name| *name == keyed.as_bytes()).count() > 1;
        if self.settings.cookies.iter().any(is_twice) {
            return Class::PastTheCache;
        }
        let is_keyed = |name: &[u8]| self.settings.cookies.iter().any(|keyed| keyed.as_bytes() == name);
        match &self.settings.bypass {
            CacheBypass::Named(named) => {
                let leads_past = |name: &[u8]| named.iter().any(|pattern| fits(pattern, name));
                if cookies.any(leads_past) {
                    Class::PastTheCache
                } else if names().all(is_keyed) {
                    Class::Anyone
                } else {
                    Class::AnyoneWithCookies
                }
            }
            CacheBypass::Unknown => {
                if cookies.all(is_keyed) {
                    Class::Anyone
                } else {
                    Class::Cookies
                }
            }
        }
    }

    /// Whether what is stored, with these fields, may be used for requests of a class.
    pub(super) fn is_for(class: Class, freshness: &Freshness, lines: &FieldLines) -> bool {
        match class {
            Class::Anyone => true,
            // The application has said that they count.
            Class::AnyoneWithCookies => !varies_by_cookie(lines),
            // Visitors without a cookie are one variant of what varies by it; each of the others is one of its own.
            Class::Cookies => freshness.is_for_everybody() && !varies_by_cookie(lines),
            Class::Credentials => freshness.is_shared() && !varies_by_cookie(lines),
            Class::PastTheCache => false,
        }
    }

    /// Whether a response varies by what the server itself has written.
    pub(super) fn varies_by_written(&self, lines: &FieldLines) -> bool {
        lines.all("Vary").flat_map(list_elements).any(|name| {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            let is_of_proxies = name.starts_with("x-forwarded-") || name.starts_with("client-cert");
            is_of_proxies
                || ["forwarded", "via", "cdn-loop", "x-real-ip", "host", "connection"]
                    .contains(&name.as_str())
                || self.written.contains(&name)
        })
    }

    /// Path and query as keys have them, which is what purges go by.
    pub(super) fn counting<'t>(&self, target: &'t str) -> Cow<'t, str> {
        key::counting_target(target, &self.key_rules.query)
    }

    /// Appends the key of a request.
    pub(super) fn key(&self, exchange: &Exchange<'_>, class: Class, key: &mut Vec<u8>) {
        let target = target(exchange);
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
        if !is_as_sent(exchange) {
            key.extend_from_slice(exchange.path); // `index` or `try` have led here
        }
    }

    /// Takes in what a response says of the query of this request.
    pub(super) fn learn_query(&self, exchange: &Exchange<'_>, lines: &FieldLines) {
        if let Some(searches) = &self.searches {
            searches.learn(exchange, lines);
        }
    }

    /// Whether what was stored for the path and query `stored`, under the key of this request, is for its query.
    pub(super) fn is_for_query(&self, exchange: &Exchange<'_>, stored: &str, lines: &FieldLines) -> bool {
        self.searches.is_none() || searches::is_same(stored, &self.counting(&target(exchange)), lines)
    }

    /// Fields for the application: those of the client that a key holds or that choose nothing.
    pub(super) fn fetch_fields(fields: Fields<'_>) -> FieldLines {
        let mut lines = FieldLines::new();
        let is_left_out = |name: &str| {
            UNKEYED.iter().chain(&OF_THE_CLIENT).any(|left_out| left_out.eq_ignore_ascii_case(name))
        };
        for field in fields.iter().filter(|field| !is_left_out(field.name)) {
            lines.push_read(field.name, field.value);
        }
        lines
    }

    /// Takes away what is meant for this cache alone.
    pub(super) fn hide_tags(&self, lines: &mut FieldLines) {
        for name in &self.settings.tag_fields {
            lines.remove(name);
        }
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
        detail: &str,
        lines: &mut FieldLines,
    ) {
        let is_told = !detail.is_empty() && self.obeys(exchange);
        let status = if is_told { status.detail(detail) } else { status };
        status.append_to(lines);
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

/// Path and query that the application is asked for.
pub(super) fn target<'e>(exchange: &Exchange<'e>) -> Cow<'e, str> {
    // Dot segments are resolved before the application sees them. A path that stands there as it was sent has none.
    let has_dots = || {
        !exchange.has_encoded_slash()
            && ["/.", "/%2e", "/%2E"].iter().any(|dots| exchange.target.contains(dots))
    };
    if !exchange.is_rewritten() && exchange.target.starts_with('/') && (is_as_sent(exchange) || !has_dots()) {
        return Cow::Borrowed(exchange.target);
    }
    let mut target = encode_path(exchange.path);
    if let Some(query) = exchange.query {
        target.push('?');
        target.push_str(query);
    }
    Cow::Owned(target)
}

/// Whether the path is answered for that was asked for, letter by letter.
pub(super) fn is_as_sent(exchange: &Exchange<'_>) -> bool {
    let rest = exchange.target.as_bytes().strip_prefix(exchange.path);
    rest.is_some_and(|rest| matches!(rest, [] | [b'?', ..]))
}

/// Host and port as the client has said them.
pub(super) fn authority<'e>(exchange: &Exchange<'e>) -> Authority<'e> {
    // A client of HTTP/1.0 need not say it.
    Authority::parse(exchange.authority.as_bytes()).unwrap_or(Authority { host: "-", port: None })
}

/// The scheme in a key that [`Policy::key`] has made: behind the class and its length.
pub(super) fn scheme_of(key: &[u8]) -> &'static str {
    if key.get(5..).is_some_and(|rest| rest.starts_with(b"https")) { "https" } else { "http" }
}

/// The names of the cookies of a field (RFC 6265 section 4.2.1).
fn names_of_cookies(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split(|byte| *byte == b'=').next().unwrap_or(pair).trim_ascii())
}

fn varies_by_cookie(lines: &FieldLines) -> bool {
    lines.all("Vary").flat_map(list_elements).any(|name| name.eq_ignore_ascii_case(b"cookie"))
}

/// Whether a name is meant by a pattern, in which a `*` at the end is anything.
fn fits(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => pattern.as_bytes() == name,
    }
}
