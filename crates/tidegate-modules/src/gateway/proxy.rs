//! `proxy "http://127.0.0.1:3000"`: requests passed on to an HTTP server, version 1.1 or 2.
//!
//! What belongs to the client's connection ends here (RFC 9110 section 7.6.1), and what a client says of
//! itself in the words of a proxy is believed only of proxies of one's own.

use super::about::About;
use super::call::{Call, Dialect};
use super::fields::{self, Present, RequestTrailers};
use super::link::{Link, Shared, encoded_slash};
use super::multiplexed::{self, Multiplexed};
use super::redirects::Redirects;
use super::upload::{Framing, Upload};
use super::upstream::RoutingState;
use super::via::Via;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use std::borrow::Cow;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::gateway;
use tidegate_config::settings::{self, FieldMode};
use tidegate_core::explain::Foreseen;
use tidegate_core::template::{Scope, Template};
use tidegate_core::trace::REQUEST_ID;
use tidegate_core::trace_context;
use tidegate_core::{Exchange, Handler, Pass, Reply, answer, buffer_pool};
use tidegate_http::field::is_token;
use tidegate_http::path::{behind_prefix, encode_path};
use tidegate_http::words::eq_ignore_case;
use tidegate_http::{FieldLines, Fields, IpText, Method, Status, Version, ip_text};
use tidegate_io::socket::Peer;
use tidegate_tls::Connector;
use tidegate_wire::cgi::is_unambiguous;
use tidegate_wire::h1::{self, ConnectionField, RequestFraming, append_field, append_named};

/// Passes the requests of a route on.
pub struct Proxy {
    link: Rc<Link>,
    base: String,
    host: Option<String>,
    strip_prefix: Option<String>,
    request_fields: Vec<(String, Template)>,
    more_fields: Vec<(String, Template, FieldMode)>,
    trailers: Rc<RequestTrailers>,
    redirects: Option<Rc<Redirects>>,
    via: Via,
    speaks_http2: bool,
    /// What a TRACE is told to use instead.
    allow: String,
}

impl Proxy {
    /// For a route. `connector` is there for what is reached with TLS.
    ///
    /// # Errors
    /// A folder of the settings cannot be opened.
    pub fn new(
        shared: &Rc<Shared>,
        settings: &gateway::Proxy,
        (site, route): (&settings::Site, &settings::Route),
        scope: Scope<'_>,
        connector: Option<Arc<Connector>>,
    ) -> io::Result<Proxy> {
        let via = Via::of(site, &route.origin);
        let link = Link::new(shared, &settings.gateway, site, connector)?;
        Ok(Proxy {
            redirects: Redirects::of(settings, &link.upstream),
            link,
            base: settings.base.clone(),
            host: settings.host.clone(),
            strip_prefix: settings.strip_prefix.clone(),
            request_fields: settings
                .request_fields
                .iter()
                .map(|(name, value)| (name.clone(), Template::of_field(name, value, scope)))
                .collect(),
            more_fields: settings
                .more_request_fields
                .iter()
                .map(|field| {
                    (field.name.clone(), Template::of_field(&field.name, &field.value, scope), field.mode)
                })
                .collect(),
            trailers: Rc::new(RequestTrailers::beside(
                settings
                    .request_fields
                    .iter()
                    .map(|(name, _)| name.as_str())
                    .chain(settings.more_request_fields.iter().map(|field| field.name.as_str())),
            )),
            via: if route.cache.is_some() { via.with_cdn_loop() } else { via },
            speaks_http2: settings.speaks_http2,
            allow: answer::allow_without("TRACE", route),
        })
    }

    /// Whether the path has a `%2F` and is not for the backend. One that a `rewrite` has made is.
    fn refuses_encoded_slash(&self, exchange: &Exchange<'_>) -> bool {
        exchange.has_encoded_slash() && !self.link.passes_encoded_slashes && !exchange.is_rewritten()
    }

    /// Path and query for the backend.
    fn target<'e>(&self, exchange: &Exchange<'e>) -> Cow<'e, str> {
        let resolved = exchange.resolved_target();
        if self.base.is_empty() && self.strip_prefix.is_none() {
            return resolved;
        }
        let mut path = resolved.split('?').next().unwrap_or_default();
        let stripped;
        if let Some(prefix) = &self.strip_prefix {
            match below(path, prefix).or_else(|| behind_prefix(path, prefix)) {
                Some(rest) => path = rest,
                // As sent, there is no such prefix: nothing is cut off.
                None if exchange.has_ambiguous_path() => {}
                // Written otherwise by the client, perhaps.
                None => {
                    let rest = exchange.path.strip_prefix(prefix.as_bytes());
                    if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
                        stripped = encode_path(rest);
                        path = &stripped;
                    }
                }
            }
        }
        let mut out = String::with_capacity(resolved.len() + self.base.len() + 1);
        out.push_str(&self.base);
        if !path.starts_with('/') {
            out.push('/');
        }
        out.push_str(path);
        if let Some(query) = exchange.query {
            out.push('?');
            out.push_str(query);
        }
        Cow::Owned(out)
    }

    /// The fields for the backend, without those of the connection.
    fn fields(&self, exchange: &Exchange<'_>, present: Present, lines: &mut Vec<u8>) -> Option<()> {
        let is_trusted = exchange.state.remote.is_trusted;
        let passed = &self.link.passed_fields;
        let is_set = |name: &str| self.request_fields.iter().any(|(set, _)| set.eq_ignore_ascii_case(name));
        let client = exchange.client();
        let request_id = exchange.request_id();
        let trace = exchange.trace_context();
        let mut is_early = exchange.is_early;
        // Of fields that are only set where there are none: whether the client's go on.
        let mut is_there = vec![false; self.more_fields.len()];
        let forwards = forwards(exchange).ok()?;
        for field in exchange.fields.iter() {
            if forwards.is_some() && field.is("max-forwards") {
                continue;
            }
            if field.is("early-data") {
                is_early = true; // whatever it says, and also where `Connection` names it (RFC 8470 section 5.1)
                continue;
            }
            let is_ours = is_forwarded(field.name)
                || client.is_some() && fields::is_certificate(field.name)
                || request_id.is_some() && field.is(REQUEST_ID)
                || trace.is_some() && trace_context::is_field(field.name);
            let ends_here = ends_here(field.name)
                || !is_unambiguous(field.name)
                // What the client says of its connection takes nothing away that it has not sent.
                || present.connection && named_by_connection(exchange, field.name) && !exchange.is_granted(field);
            if !ends_here
                && !is_ours
                && (fields::may_pass(field.name, is_trusted, passed) || exchange.is_granted(field))
                && !is_set(field.name)
            {
                fields::append(lines, field, &self.link.own_cookies).ok()?;
                for (there, (name, ..)) in is_there.iter_mut().zip(&self.more_fields) {
                    *there |= name.eq_ignore_ascii_case(field.name);
                }
            }
        }
        lines.extend_from_slice(self.via.lines(exchange.version));
        if let Some(left) = forwards {
            put(lines, "Max-Forwards", left.saturating_sub(1).to_string().as_bytes());
        }
        forwarded(exchange, is_trusted, &is_set, lines);
        if let Some(client) = client.filter(|_| !is_set("client-cert")) {
            put(lines, "Client-Cert", format!(":{}:", BASE64.encode(&client.certificate)).as_bytes());
        }
        if let Some(id) = request_id.filter(|_| !is_set(REQUEST_ID)) {
            put(lines, "X-Request-Id", id.as_bytes());
        }
        if let Some(trace) = trace {
            trace
                .fields()
                .filter(|(name, _)| !is_set(name))
                .for_each(|(name, value)| put(lines, name, value));
        }
        if is_early && !is_set("early-data") {
            lines.extend_from_slice(b"Early-Data: 1\r\n");
        }
        for (name, value) in &self.request_fields {
            // A fixed text that is empty has only taken the field away.
            if let Some(value) = value.field_value(exchange).filter(|value| !value.is_empty()) {
                append_field(lines, name, value.as_bytes()).ok()?;
            }
        }
        for ((name, value, mode), is_there) in self.more_fields.iter().zip(is_there) {
            if (*mode == FieldMode::Add || !is_there)
                && let Some(value) = value.field_value(exchange)
            {
                append_field(lines, name, value.as_bytes()).ok()?;
            }
        }
        Some(())
    }

    /// What of the trailers goes on: nothing by the name of a field that the request was given.
    fn trailers_of(&self, exchange: &Exchange<'_>) -> Rc<RequestTrailers> {
        match exchange.granted_names() {
            [] => self.trailers.clone(),
            names => Rc::new(self.trailers.and(names)),
        }
    }

    /// What the backend is asked for by.
    fn authority<'a>(&'a self, exchange: &Exchange<'a>) -> &'a str {
        let host = [self.host.as_deref().unwrap_or(exchange.authority), &self.link.site];
        host.into_iter().find(|host| !host.is_empty()).unwrap_or("localhost")
    }

    /// The same with what the backend is asked for, as one URL.
    fn url(&self, exchange: &Exchange<'_>) -> String {
        let scheme = if self.link.is_secure() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(exchange), self.target(exchange))
    }

    fn encode(
        &self,
        exchange: &Exchange<'_>,
        present: Present,
        framing: RequestFraming,
        upgrade: Option<&str>,
        wants_trailers: bool,
    ) -> Option<Vec<u8>> {
        let mut out = buffer_pool::take();
        let target = self.target(exchange);
        h1::begin_request(&mut out, exchange.method_token, &target, self.authority(exchange)).ok()?;
        self.fields(exchange, present, &mut out)?;
        if let Some(upgrade) = upgrade {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            append_field(&mut out, "Upgrade", upgrade.as_bytes()).ok()?;
            // HTTP/2 has no need of the key; HTTP/1 has (RFC 8441 section 5).
            if exchange.protocol.is_some() && !exchange.fields.contains("sec-websocket-key") {
                append_field(&mut out, "Sec-WebSocket-Key", websocket_key().as_bytes()).ok()?;
            }
        } else if wants_trailers {
            out.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n");
        }
        let connection = match upgrade {
            None if !self.link.keeps() => ConnectionField::Close,
            _ => ConnectionField::None,
        };
        h1::end_request(&mut out, framing, connection);
        Some(out)
    }

    /// The same over HTTP/2.
    fn multiplex(&self, exchange: &mut Exchange<'_>, present: Present) -> Reply {
        if wanted_upgrade(exchange, present).is_some() {
            return Reply::Ready(answer::error(Status::NOT_IMPLEMENTED));
        }
        let body = exchange.state.body.take();
        let mut raw = buffer_pool::take();
        if self.fields(exchange, present, &mut raw).is_none() {
            return Reply::Ready(answer::error(Status::BAD_REQUEST));
        }
        let mut lines = FieldLines::with_capacity(raw.len() + 16);
        lines.append_lines(&raw);
        buffer_pool::give_back(raw);
        let wants_trailers = wants_trailers(exchange, present);
        if wants_trailers {
            lines.push("TE", "trailers");
        }
        let target = self.target(exchange).into_owned();
        let content_length = match &body {
            Some(body) => body.len,
            None => present.content_length.then_some(0),
        };
        let is_stream = exchange.version == Version::Http2 && content_length.is_none();
        let may_repeat = exchange.method.is_safe();
        let call = Multiplexed {
            link: self.link.clone(),
            method: exchange.method_token.to_owned(),
            scheme: if self.link.is_secure() { "https" } else { "http" },
            authority: self.authority(exchange).to_owned(),
            target,
            lines,
            upload: multiplexed::Upload::of(body, self.link.request_buffer, self.trailers_of(exchange)),
            content_length,
            is_conditional: present.condition,
            is_stream,
            may_repeat,
            head_only: exchange.method == Method::Head,
            wants_trailers,
            interim: exchange.interim(),
            range: self.link.sendfile.range_of(exchange),
            routing: RoutingState::of(&self.link, exchange, may_repeat).with_url(|| self.url(exchange)),
            back: self.redirects.as_ref().map(|redirects| redirects.back(exchange)),
            about: About::new(&self.link, exchange.target).counted_as(Some(exchange.series())),
        };
        call.run()
    }
}

/// Whether the client has said that it takes trailers (RFC 9110 section 10.1.4).
fn wants_trailers(exchange: &Exchange<'_>, present: Present) -> bool {
    present.te && exchange.fields.elements("te").any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

impl Handler for Proxy {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        if exchange.method == Method::Trace {
            return Reply::Ready(answer::never_passed_on(&self.allow)); // RFC 9110 section 9.3.8: it tells too much
        }
        if self.refuses_encoded_slash(exchange) {
            return Reply::Ready(encoded_slash(exchange));
        }
        match forwards(exchange) {
            Ok(Some(0)) => return Reply::Ready(answer::options_of_the_server()), // it is for us
            Ok(_) => {}
            Err(()) => return Reply::Ready(answer::error(Status::BAD_REQUEST)),
        }
        let present = Present::of(&exchange.fields);
        if present.hops && self.via.has_passed(exchange) {
            let why = format_args!(
                "it has been passed on by this route before: {} leads back to this server",
                self.link.name
            );
            return Reply::Ready(answer::refused(exchange, Status::LOOP_DETECTED, why));
        }
        if exchange.protocol.is_some_and(|protocol| !may_switch_to(protocol.as_bytes())) {
            return Reply::Ready(answer::error(Status::NOT_IMPLEMENTED));
        }
        exchange.ends_with_client();
        exchange.waits_for(self.link.account);
        if self.speaks_http2 {
            return self.multiplex(exchange, present);
        }
        let body = exchange.state.body.take();
        let framing = match &body {
            Some(body) => body.len.map_or(RequestFraming::Chunked, RequestFraming::Length),
            None if present.content_length => RequestFraming::Length(0),
            None => RequestFraming::None,
        };
        let upgrade = wanted_upgrade(exchange, present).filter(|_| body.is_none());
        let wants_trailers = wants_trailers(exchange, present);
        let Some(head) = self.encode(exchange, present, framing, upgrade, wants_trailers) else {
            return Reply::Ready(answer::error(Status::BAD_REQUEST));
        };
        let upload = match body {
            None => Upload::whole(head),
            Some(body) if framing == RequestFraming::Chunked => {
                Upload::with_body(head, body, Framing::Chunked).with_trailers(self.trailers_of(exchange))
            }
            Some(body) => Upload::with_body(head, body, Framing::Length),
        };
        let may_repeat = exchange.method.is_safe();
        let call = Call {
            routing: RoutingState::of(&self.link, exchange, may_repeat).with_url(|| self.url(exchange)),
            link: self.link.clone(),
            upload,
            dialect: Dialect::Http,
            upgrade: upgrade.map(|asked| Box::new(asked.into())),
            may_repeat,
            head_only: exchange.method == Method::Head,
            is_conditional: present.condition,
            wants_trailers,
            interim: exchange.interim(),
            range: self.link.sendfile.range_of(exchange),
            back: self.redirects.as_ref().map(|redirects| redirects.back(exchange)),
            elsewhere: None,
            target: exchange.target.into(),
        };
        call.run()
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        if exchange.method == Method::Trace {
            say(format!("proxy {}: TRACE is not passed on", self.link.name));
            return Foreseen::Handler;
        }
        if let Ok(Some(0)) = forwards(exchange) {
            say("OPTIONS with Max-Forwards 0: answered here".into());
            return Foreseen::Handler;
        }
        if self.refuses_encoded_slash(exchange) {
            return Foreseen::Handler; // the refusal says why
        }
        let target = self.target(exchange);
        say(format!("proxy {}: {} {target}", self.link.name, exchange.method_token));
        Foreseen::Application
    }
}

/// How often an `OPTIONS` may still be passed on (RFC 9110 section 7.6.2); `TRACE` never is, and for other methods the
/// field means nothing. An error where it is no number.
fn forwards(exchange: &Exchange<'_>) -> Result<Option<u32>, ()> {
    if exchange.method != Method::Options {
        return Ok(None);
    }
    let mut values = exchange.fields.all("max-forwards");
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(digits), None) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            Ok(Some(number.unwrap_or(u32::MAX))) // more than it can hold is more than enough
        }
        _ => Err(()),
    }
}

/// The protocols that the client would switch to.
fn wanted_upgrade<'a>(exchange: &Exchange<'a>, present: Present) -> Option<&'a str> {
    if exchange.protocol.is_some() {
        return exchange.protocol;
    }
    if !present.upgrade {
        return None;
    }
    let wanted = exchange.fields.single("upgrade")?;
    let is_named =
        exchange.fields.elements("connection").any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let mut protocols = exchange.fields.elements("upgrade").peekable();
    let is_allowed = protocols.peek().is_some() && protocols.all(may_switch_to);
    let wanted = std::str::from_utf8(wanted).ok()?; // those that are allowed are tokens
    Some(wanted).filter(|_| is_named && is_allowed && exchange.version != Version::Http10)
}

/// Whether it is a protocol by its form (RFC 9110 section 7.8), and neither another version of HTTP nor TLS with HTTP in it:
/// requests behind the switch would pass none of the rules here. RFC 9113 section 3.1 has given `h2c` up.
fn may_switch_to(protocol: &[u8]) -> bool {
    let mut parts = protocol.splitn(2, |byte| *byte == b'/');
    let name = parts.next().unwrap_or_default();
    let leads_round = ["h2c", "h2", "http", "tls"].iter().any(|of| name.eq_ignore_ascii_case(of.as_bytes()));
    is_token(name) && parts.all(is_token) && !leads_round
}

/// 16 random bytes in base64 (RFC 6455 section 4.1). They protect from caches that take the handshake for a
/// request, not from anyone who guesses.
fn websocket_key() -> String {
    BASE64.encode(fastrand::u128(..).to_be_bytes())
}

/// Whether `Connection` names a field as one that ends here.
pub(super) fn named_by_connection(exchange: &Exchange<'_>, name: &str) -> bool {
    // Who could have it taken away could send requests round in a circle (RFC 8586 section 2).
    !name.eq_ignore_ascii_case("cdn-loop")
        && exchange.fields.elements("connection").any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether a field ends here, or is written anew.
#[inline]
pub(super) fn ends_here(name: &str) -> bool {
    let is = |other: &str| eq_ignore_case(name.as_bytes(), other.as_bytes());
    match name.len() {
        2 => is("te"),
        4 => is("host"),
        5 => is("proxy"),
        6 => is("expect"),
        7 => is("upgrade"),
        10 => is("connection") || is("keep-alive"),
        14 => is("content-length") || is("http2-settings"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        19 => is("proxy-authorization"),
        _ => false,
    }
}

/// Fields that [`forwarded`] writes.
#[inline]
pub(super) fn is_forwarded(name: &str) -> bool {
    let is = |other: &str| eq_ignore_case(name.as_bytes(), other.as_bytes());
    match name.len() {
        9 => is("forwarded"),
        15 => is("x-forwarded-for"),
        16 => is("x-forwarded-host"),
        17 => is("x-forwarded-proto"),
        _ => false,
    }
}

/// Says who asks, how and whom: behind what trusted proxies have said of the clients before them.
pub(super) fn forwarded(
    exchange: &Exchange<'_>,
    is_trusted: bool,
    is_set: &dyn Fn(&str) -> bool,
    lines: &mut Vec<u8>,
) {
    let client = match exchange.state.remote.peer {
        Peer::Tcp(peer) => ip_text(peer.ip()),
        Peer::Unix => IpText::new(),
    };
    let trusted = if is_trusted { exchange.fields } else { Fields::default() };
    let known = |name: &'static str| trusted.all(name);
    if !is_set("x-forwarded-for") {
        if is_trusted {
            put_clients(exchange, &client, lines);
        } else if !client.is_empty() {
            put(lines, "X-Forwarded-For", client.as_bytes());
        }
    }
    if !is_set("x-forwarded-proto") {
        match known("x-forwarded-proto").next() {
            Some(value) => put(lines, "X-Forwarded-Proto", value),
            None if exchange.scheme == "https" => lines.extend_from_slice(b"X-Forwarded-Proto: https\r\n"),
            None => lines.extend_from_slice(b"X-Forwarded-Proto: http\r\n"),
        }
    }
    if !is_set("x-forwarded-host") {
        let value = known("x-forwarded-host").next().unwrap_or(exchange.authority.as_bytes());
        if !value.is_empty() {
            put(lines, "X-Forwarded-Host", value);
        }
    }
    // RFC 7239 is extended where somebody before has begun it: told twice over, a client has to be told alike.
    if is_trusted && exchange.fields.contains("forwarded") && !is_set("forwarded") {
        let chain: Vec<&[u8]> = known("forwarded").collect();
        let node = match exchange.state.remote.peer {
            Peer::Tcp(peer) if peer.ip().to_canonical().is_ipv6() => format!("\"[{client}]\""),
            Peer::Tcp(_) => client.to_string(),
            Peer::Unix => "unknown".to_owned(),
        };
        // Of this hop alone, whatever those before have spoken.
        let proto = if exchange.state.tls.is_some() { "https" } else { "http" };
        let own = format!("for={node};proto={proto};host=\"{}\"", exchange.authority);
        let value = [chain.join(&b", "[..]).as_slice(), own.as_bytes()].join(&b", "[..]);
        put(lines, "Forwarded", &value);
    }
}

/// Those whom a trusted proxy names, and the proxy. Where the client is named in `Forwarded` alone, who reads this field has to hear
/// of the same one.
fn put_clients(exchange: &Exchange<'_>, proxy: &str, lines: &mut Vec<u8>) {
    let named = match exchange.state.remote.client {
        Peer::Tcp(named) if !exchange.fields.contains("x-forwarded-for") => ip_text(named.ip()),
        _ => IpText::new(),
    };
    let mut chain: Vec<&[u8]> = exchange.fields.all("x-forwarded-for").collect();
    if &*named != proxy {
        chain.push(named.as_bytes());
    }
    chain.push(proxy.as_bytes());
    chain.retain(|told| !told.is_empty());
    if !chain.is_empty() {
        put(lines, "X-Forwarded-For", &chain.join(&b", "[..]));
    }
}

/// A field of our own, whose value was checked by whoever read it.
fn put(lines: &mut Vec<u8>, name: &str, value: &[u8]) {
    let _ = append_named(lines, name, value);
}

/// What follows a prefix that ends at a slash or at the end.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_to_switch_to() {
        for (protocol, may) in [
            ("websocket", true),
            ("foo/2", true),
            ("http2", true),
            ("h2c", false),
            ("H2C/1", false),
            ("h2c ;x", false),
            ("foo;x", false),
            ("foo/", false),
            ("foo/1/2", false),
            ("/1", false),
            ("TLS/1.2", false),
            ("HTTP/2.0", false),
            ("", false),
        ] {
            assert_eq!(may_switch_to(protocol.as_bytes()), may, "{protocol}");
        }
    }

    #[test]
    fn prefixes_end_at_a_slash() {
        assert_eq!(below("/api/x", "/api"), Some("/x"));
        assert_eq!(below("/api", "/api"), Some(""));
        assert_eq!(below("/apix", "/api"), None);
    }
}
