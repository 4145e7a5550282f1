//! What answers a request that came without TLS before its site is asked: the challenge of an authority, and the way to `https`.

use crate::answer;
use crate::engine::{Engine, Secure};
use crate::exchange::Exchange;
use crate::hosts;
use crate::remote::Remote;
use crate::response::Response;
use crate::site::{ReadPath, Site};
use crate::state::RequestState;
use tidegate_config::settings::ListenAddress;
use tidegate_http::{Fields, Method, Status};

/// A request, as far as it decides whether its site is asked at all.
pub(crate) struct Arrival<'a> {
    /// Where its listener sends plain requests: [`Engine::redirects_to_https`].
    pub redirects: Option<u16>,
    pub method: Method,
    pub method_token: &'a str,
    pub authority: &'a str,
    /// As sent.
    pub path: &'a str,
    /// As sent.
    pub query: Option<&'a str>,
    pub is_tls: bool,
    /// Who asks, as the site sees it.
    pub remote: Remote,
    pub fields: &'a Fields<'a>,
}

/// Where authorities look for the answers to their challenges (RFC 8555 section 8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

impl Engine {
    /// What answers a request before its site is asked: the challenge of an authority, and the way to `https`.
    #[inline]
    pub(crate) fn entrance(&self, site: &Site, arrival: &Arrival<'_>) -> Option<Response> {
        let may_be_plain = !arrival.is_tls || arrival.remote.has_told_scheme() || site.trusts_by_route;
        if self.has_entrance.get() && may_be_plain { self.enter(site, arrival) } else { None }
    }

    fn enter(&self, site: &Site, arrival: &Arrival<'_>) -> Option<Response> {
        if let (Some(Secure { store, .. }), Some(token)) = (&self.tls, arrival.path.strip_prefix(CHALLENGES))
            && !arrival.is_tls
            && let Some(answer) = store.token(token)
        {
            return Some(Response::content(Status::OK, "application/octet-stream", answer));
        }
        let redirects = arrival.redirects.filter(|_| !arrival.is_tls);
        if redirects.is_none() && !site.config().is_https_only {
            return None;
        }
        let remote = remote_of(site, arrival);
        if remote.scheme(arrival.is_tls) == "https" {
            return None;
        }
        let port = match redirects {
            Some(port) => port,
            // Clients reach the proxy, and not this server's own port.
            None if remote.has_told_scheme() => 443,
            None => self.https_port()?,
        };
        let host = hosts::host(arrival.authority);
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
    pub(crate) fn https_port(&self) -> Option<u16> {
        self.settings.listeners.iter().filter(|listener| listener.tls.is_some()).find_map(|listener| {
            match &listener.address {
                ListenAddress::Tcp(address) => Some(address.port()),
                ListenAddress::Unix(_) => None,
            }
        })
    }
}

/// Who asks, as the route of the path sees it, where that may be another than the site does.
fn remote_of(site: &Site, arrival: &Arrival<'_>) -> Remote {
    if !site.trusts_by_route {
        return arrival.remote;
    }
    let mut scratch = Vec::new();
    let ReadPath { path, fault, .. } = site.read_path(arrival.path, &mut scratch);
    let head = Exchange {
        method: arrival.method,
        method_token: arrival.method_token,
        query: arrival.query,
        scheme: arrival.remote.scheme(arrival.is_tls),
        authority: arrival.authority,
        fields: *arrival.fields,
        state: RequestState::of(arrival.remote),
        ..Exchange::empty()
    };
    let route = match fault {
        None => site.choice(&head, path).map(|choice| choice.index),
        Some(_) => Some(site.own_route()),
    };
    route.map_or(arrival.remote, |index| site.remote_at(index, arrival.remote, arrival.fields))
}
