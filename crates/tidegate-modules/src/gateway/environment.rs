//! A request as the variables of CGI: what the exchange, the script and the settings say, for
//! `wire::cgi::Environment`. CGI, FastCGI and SCGI write the same ones.

use super::fields;
use super::link::Link;
use super::script::Script;
use crate::login::OwnCookies;
use std::net::SocketAddr;
use tidegate_core::Exchange;
use tidegate_core::hosts::{self, host_of};
use tidegate_core::trace::REQUEST_ID;
use tidegate_core::trace_context;
use tidegate_http::{IpText, Version, ip_text};
use tidegate_io::socket::Peer;
use tidegate_wire::cgi::{ClientCertificate, Environment, Sink};

/// What `SERVER_SOFTWARE` says.
const SOFTWARE: &str = concat!("Tidegate/", env!("CARGO_PKG_VERSION"));

/// Writes the variables that are the same for all requests of a route.
pub fn write_fixed(document_root: &[u8], params: &[(String, String)], sink: &mut impl Sink) {
    let environment =
        Environment { server_software: SOFTWARE, document_root, extra: params, ..Environment::default() };
    environment.write_fixed(sink);
}

/// The variables that tell of the server as the last request of a route has reached it, as they are sent. Most requests
/// reach it alike: by the same name, at the same address, by the same scheme and version.
#[derive(Default)]
pub struct ServerSide {
    reached: Option<Reached>,
    encoded: Vec<u8>,
}

/// How a request has reached the server.
struct Reached {
    authority: String,
    local: Option<SocketAddr>,
    scheme: &'static str,
    is_tls: bool,
    version: Version,
}

impl Reached {
    fn matches(&self, exchange: &Exchange<'_>) -> bool {
        self.authority == exchange.authority
            && self.local == exchange.local()
            && self.scheme == exchange.scheme
            && self.is_tls == exchange.state.tls.is_some()
            && self.version == exchange.version
    }
}

impl ServerSide {
    /// Those of a request. Where it has come in another way than the one before, `append` writes them anew.
    pub fn of(
        &mut self,
        exchange: &Exchange<'_>,
        link: &Link,
        params: &[(String, String)],
        append: impl Fn(&mut Vec<u8>, &[u8], &[u8]),
    ) -> &[u8] {
        if !self.reached.as_ref().is_some_and(|reached| reached.matches(exchange)) {
            self.reached = Some(Reached {
                authority: exchange.authority.to_owned(),
                local: exchange.local(),
                scheme: exchange.scheme,
                is_tls: exchange.state.tls.is_some(),
                version: exchange.version,
            });
            self.encoded.clear();
            let encoded = &mut self.encoded;
            write_server(exchange, link, params, &mut |name: &[u8], value: &[u8]| {
                append(encoded, name, value)
            });
        }
        &self.encoded
    }
}

fn write_server(exchange: &Exchange<'_>, link: &Link, params: &[(String, String)], sink: &mut impl Sink) {
    let local = exchange.local();
    let server_addr = local.map(|local| ip_text(local.ip())).unwrap_or_default();
    let host = hosts::host(exchange.authority);
    // In brackets, as an authority has it (RFC 3875 section 4.1.14).
    let is_v6 = server_addr.contains(':');
    let address = if is_v6 { format!("[{server_addr}]") } else { server_addr.to_string() };
    let environment = Environment {
        server_name: [&*host, &link.site, &address]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or("localhost"),
        server_port: server_port(exchange, local),
        server_addr: &server_addr,
        server_protocol: exchange.version.name(),
        request_scheme: exchange.scheme,
        extra: params,
        ..Environment::default()
    };
    environment.write_server(sink);
}

/// Writes all others. `content_length` is that of the content of the request, where it has any.
pub fn write(
    exchange: &Exchange<'_>,
    link: &Link,
    script: &Script<'_>,
    params: &[(String, String)],
    content_length: Option<u64>,
    sink: &mut impl Sink,
) {
    let (remote_addr, remote_port) = match exchange.state.remote.client {
        // A proxy tells no port of its client.
        Peer::Tcp(client) => (ip_text(client.ip()), Some(client.port()).filter(|port| *port != 0)),
        Peer::Unix => (IpText::new(), None),
    };
    let is_trusted = exchange.state.remote.is_trusted;
    let serial = exchange.client().map(|client| serial_of(&client.serial)).unwrap_or_default();
    let trace = exchange.trace_context();
    let environment = Environment {
        request_method: exchange.method_token,
        request_uri: exchange.target,
        query_string: exchange.query.unwrap_or_default(),
        script_name: &script.name,
        script_filename: &script.file,
        path_info: &script.path_info,
        path_translated: &script.path_translated,
        remote_addr: &remote_addr,
        remote_user: exchange.user().map(|user| user.name.as_str()),
        auth_type: exchange.auth_scheme(),
        remote_port,
        content_length,
        client: exchange.client().map(|client| ClientCertificate {
            subject: &client.subject,
            issuer: &client.issuer,
            serial: &serial,
        }),
        is_early: exchange.is_early,
        request_id: exchange.request_id(),
        trace: trace.map(|trace| (trace.traceparent(), trace.tracestate())),
        fields: exchange.fields,
        extra: params,
        ..Environment::default() // what is fixed, or tells of the server
    };
    let is_known = exchange.client().is_some();
    let mut sink = WithoutOwnCookies { own: &link.own_cookies, sink };
    let has_id = exchange.request_id().is_some();
    environment.write_request(&mut sink, |field| {
        let name = field.name;
        (fields::may_pass(name, is_trusted, &link.passed_fields) || exchange.is_granted(field))
            && !(is_known && fields::is_certificate(name))
            && !(has_id && field.is(REQUEST_ID))
            && !(trace.is_some() && trace_context::is_field(name))
    });
}

/// Takes variables for somebody who may see those cookies alone that are not this server's own.
struct WithoutOwnCookies<'s, S> {
    own: &'s OwnCookies,
    sink: &'s mut S,
}

impl<S: Sink> Sink for WithoutOwnCookies<'_, S> {
    /// Inlined, since most names are known beforehand.
    #[inline(always)]
    fn variable(&mut self, name: &[u8], value: &[u8]) {
        if name != b"HTTP_COOKIE" {
            return self.sink.variable(name, value);
        }
        if let Some(value) = self.own.without(value) {
            self.sink.variable(name, &value);
        }
    }
}

/// The port that the client has connected to: where a trusted proxy says that it speaks another scheme than the proxy
/// does, that is the proxy's, which the authority names.
fn server_port(exchange: &Exchange<'_>, local: Option<SocketAddr>) -> u16 {
    let is_https = exchange.scheme == "https";
    match local.filter(|_| is_https == exchange.state.tls.is_some()) {
        Some(local) => local.port(),
        None => {
            let host = host_of(exchange.authority);
            let port = exchange.authority.strip_prefix(host).and_then(|rest| rest.strip_prefix(':'));
            let named = port.and_then(|port| port.parse().ok());
            named.unwrap_or(if is_https { 443 } else { 80 })
        }
    }
}

/// A serial number as Apache and nginx write it: in capitals, without the octet that keeps it from being negative.
fn serial_of(serial: &str) -> String {
    let rest = serial.strip_prefix("00").filter(|rest| !rest.is_empty());
    rest.unwrap_or(serial).to_ascii_uppercase()
}
