//! What answers a plain request before its site is asked: the challenge of an authority, and the way to `https`.

use crate::answer;
use crate::engine::{Engine, Secure};
use crate::hosts::name_of;
use crate::response::Response;
use crate::site::Site;
use tidegate_config::settings::ListenAddress;
use tidegate_http::Status;

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

impl Engine {
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
            None if site.config().is_https_only => self.https_port()?,
            None => return None,
        };
        let host = name_of(arrival.authority);
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
}
