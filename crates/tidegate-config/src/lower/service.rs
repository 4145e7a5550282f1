//! Services that the server itself asks: where they are.

use super::gateway::backend_tls;
use super::{Checker, Item};
use crate::settings::ServiceAddress;
use crate::settings::gateway::{Connections, Destination, Gateway};
use crate::value::ServiceUrl;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a service may take, from connecting to its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that wait where more are under way than it should be asked at once.
const QUEUE: u32 = 1024;

/// The service of a URL; `item` may have a `tls`.
pub(super) fn address(checker: &mut Checker<'_>, item: &Item, url: &ServiceUrl) -> ServiceAddress {
    let to = match url.ip() {
        Some(ip) => Destination::Tcp(SocketAddr::new(ip, url.port)),
        // Which has an upstream of its own, as one that a route names.
        None => Destination::Named(format!("{}:{}", url.host, url.port)),
    };
    let path = if url.path.is_empty() { "/" } else { &url.path };
    ServiceAddress {
        url: url.url.clone(),
        gateway: Gateway {
            to,
            tls: backend_tls(checker, item, url.is_secure.then(|| url.host.clone())),
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            keep: 4,
            keep_timeout: Duration::from_secs(30),
            connections: Connections::Auto,
            queue_length: QUEUE,
            queue_age: TIMEOUT,
            buffer: 0,
            request_buffer: 0,
            sendfile: Vec::new(),
            passed_fields: Vec::new(),
            passes_encoded_slashes: false,
        },
        authority: url.authority.clone(),
        path: path.to_owned(),
    }
}
