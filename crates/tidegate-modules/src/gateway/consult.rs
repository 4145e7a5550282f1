//! An application that is asked about a request, and not with it: whether it may go on (`login forward`).
//!
//! The way there is that of `proxy`: the same connections, queues and upstreams. What is asked is a `GET` without content,
//! with the fields of the request, from which nobody can tell it from another: what belongs to its connection or its content
//! stays here, and what a client says of itself in the words of a proxy does too.

use super::fields;
use super::link::{Link, Shared};
use super::proxy::{ends_here, forwarded, is_forwarded, named_by_connection};
use super::question;
use super::upstream::RoutingState;
use super::via::Via;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{Forward, Site};
use tidegate_core::trace::REQUEST_ID;
use tidegate_core::trace_context;
use tidegate_core::user::Granted;
use tidegate_core::{Body, Exchange, Response, buffer_pool};
use tidegate_http::path::encode_path;
use tidegate_tls::Connector;
use tidegate_wire::cgi::is_unambiguous;
use tidegate_wire::h1::{self, ConnectionField, RequestFraming, append_field};

/// The application of a `forward`, on one worker.
pub struct Consulted {
    link: Rc<Link>,
    path: String,
    host: Option<String>,
    /// Fields that it may grant: it does not hear of them from a client.
    granted: Granted,
    via: Via,
}

/// Fields of a request that tell of its content, or ask for a part of it, and those that are written anew.
const NOT_ASKED: [&str; 11] = [
    "content-",
    "expect",
    "http2-settings",
    "if-",
    "range",
    "te",
    "trailer",
    "upgrade",
    "x-forwarded-",
    "x-original-",
    "max-forwards",
];

impl Consulted {
    /// For a route of a site. `connector` is there for what is reached with TLS.
    ///
    /// # Errors
    /// The name of its certificate is none.
    pub fn new(
        shared: &Rc<Shared>,
        settings: &Forward,
        site: &Site,
        connector: Option<Arc<Connector>>,
    ) -> io::Result<Consulted> {
        let link = Link::new(shared, &settings.gateway, site, connector)?;
        Ok(Consulted {
            via: Via::of_question(site, (&link.name, &settings.path)),
            link,
            path: settings.path.clone(),
            host: settings.host.clone(),
            granted: Granted { names: settings.copy.clone(), ..Granted::default() },
        })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Whether the request is a question of this site about another one: the application leads back here.
    pub fn is_asking(&self, exchange: &Exchange<'_>) -> bool {
        self.via.has_passed(exchange)
    }

    /// Asks about a request; `None` where it cannot be written down. The answer may be one of the server's, where it has
    /// none: [`Response::author`] tells. Dropping the future gives up.
    pub fn ask(&self, exchange: &Exchange<'_>) -> Option<impl Future<Output = Response> + 'static> {
        let head = self.encode(exchange)?;
        let routing = RoutingState::of(&self.link, exchange, true).unwatched();
        let call = question::call(&self.link, routing, head, true, exchange.target);
        Some(async move { call.run().settled().await })
    }

    fn encode(&self, exchange: &Exchange<'_>) -> Option<Vec<u8>> {
        let mut out = buffer_pool::take();
        let host = [self.host.as_deref().unwrap_or(exchange.authority), &self.link.site];
        let host = host.into_iter().find(|host| !host.is_empty()).unwrap_or("localhost");
        h1::begin_request(&mut out, "GET", &self.path, host).ok()?;
        let is_trusted = exchange.state.remote.is_trusted;
        let has_connection = exchange.fields.contains("connection");
        let (request_id, trace) = (exchange.request_id(), exchange.trace_context());
        for field in exchange.fields.iter() {
            let is_asked = is_unambiguous(field.name)
                && !ends_here(field.name)
                && !is_forwarded(field.name)
                && !is_of_this_request(field.name)
                && (request_id.is_none() || !field.is(REQUEST_ID))
                && (trace.is_none() || !trace_context::is_field(field.name))
                && (is_credential(field.name) || !self.granted.replaces(field.name))
                && fields::may_pass(field.name, is_trusted, &[])
                && !(has_connection && named_by_connection(exchange, field.name));
            if is_asked {
                fields::append(&mut out, field, &self.link.own_cookies).ok()?;
            }
        }
        forwarded(exchange, is_trusted, &|_| false, &mut out);
        out.extend_from_slice(self.via.lines(exchange.version));
        if let Some(id) = request_id {
            append_field(&mut out, "X-Request-Id", id.as_bytes()).ok()?;
        }
        for (name, value) in trace.iter().flat_map(|trace| trace.own_fields()) {
            append_field(&mut out, name, &value).ok()?;
        }
        // The path that routes are chosen by, and not one of its spellings. A `%2F` stays one: who decides may take it either way.
        let query = exchange.query.map(|query| format!("?{query}")).unwrap_or_default();
        let path = match exchange.has_ambiguous_path() {
            true => exchange.path_asked_for(),
            false => encode_path(exchange.path),
        };
        let uri = format!("{path}{query}");
        let url = format!("{}://{}{uri}", exchange.scheme, exchange.authority);
        for (name, value) in [
            ("X-Forwarded-Method", exchange.method_token),
            ("X-Forwarded-Uri", uri.as_str()),
            ("X-Original-Method", exchange.method_token),
            ("X-Original-URL", url.as_str()),
        ] {
            append_field(&mut out, name, value.as_bytes()).ok()?;
        }
        let connection = if self.link.keeps() { ConnectionField::None } else { ConnectionField::Close };
        h1::end_request(&mut out, RequestFraming::None, connection);
        Some(out)
    }
}

/// What whoever decides goes by: it is shown also where a request gets it anew.
fn is_credential(name: &str) -> bool {
    ["authorization", "cookie"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn is_of_this_request(name: &str) -> bool {
    NOT_ASKED.iter().any(|other| match other.ends_with('-') {
        true => name.get(..other.len()).is_some_and(|start| start.eq_ignore_ascii_case(other)),
        false => name.eq_ignore_ascii_case(other),
    })
}

/// A response with all of its content in memory; without it where there is more than `most`.
pub async fn whole(mut response: Response, most: usize) -> io::Result<Response> {
    response.body = match std::mem::replace(&mut response.body, Body::Empty) {
        body @ (Body::Stream { .. } | Body::Bytes(_)) => {
            question::content(body, most).await?.map_or(Body::Empty, Body::Bytes)
        }
        other => other,
    };
    if response.body.is_empty() {
        // What is not sent has neither a type nor a coding.
        let fields = response.fields_mut();
        for name in ["Content-Type", "Content-Encoding", "Content-Language"] {
            fields.remove(name);
        }
    }
    Ok(response)
}
