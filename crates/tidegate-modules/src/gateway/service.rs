//! A service that the server itself asks, and not on behalf of one request: an identity provider (`login token`, `login
//! openid`).
//!
//! The way there is that of `proxy`: the same connections, queues and upstreams. What it answers is read whole, up to a bound.

use super::link::{Link, Shared};
use super::question;
use super::upstream::RoutingState;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{ServiceAddress, Site};
use tidegate_http::{FieldLines, Status};
use tidegate_io::timer;
use tidegate_tls::Connector;
use tidegate_wire::h1::{self, ConnectionField, RequestFraming, append_field};

/// The most bytes of an answer's content.
const CONTENT: usize = 256 << 10;

/// A service, as one worker reaches it.
pub struct Service {
    link: Rc<Link>,
    authority: String,
    path: String,
    timeout: Duration,
}

/// What a service has answered.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Its fields.
    pub lines: FieldLines,
    /// All of its content.
    pub content: Vec<u8>,
}

impl Service {
    /// For the routes of a site. `connector` is there for what is reached with TLS.
    ///
    /// # Errors
    /// The name of its certificate is none.
    pub fn new(
        shared: &Rc<Shared>,
        address: &ServiceAddress,
        site: &Site,
        connector: Option<Arc<Connector>>,
    ) -> io::Result<Rc<Service>> {
        Ok(Rc::new(Service {
            link: Link::new(shared, &address.gateway, site, connector)?,
            authority: address.authority.clone(),
            path: address.path.clone(),
            timeout: address.gateway.timeout,
        }))
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Asks for what its address names, or for another path of it.
    pub fn get(&self, path: Option<&str>) -> impl Future<Output = Result<Answer, String>> + use<> {
        self.ask("GET", path.unwrap_or(&self.path), &[("Accept", "application/json")], None)
    }

    /// Sends a form to a path of it. `fields` hold no line ends.
    pub fn post(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        form: &str,
    ) -> impl Future<Output = Result<Answer, String>> + use<> {
        let mut all =
            vec![("Accept", "application/json"), ("Content-Type", "application/x-www-form-urlencoded")];
        all.extend_from_slice(fields);
        self.ask("POST", path, &all, Some(form.as_bytes()))
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        content: Option<&[u8]>,
    ) -> impl Future<Output = Result<Answer, String>> + use<> {
        let call = self.encode(method, path, fields, content).map(|head| {
            question::call(&self.link, RoutingState::of_nobody(&self.link), head, content.is_none(), path)
        });
        let timeout = self.timeout;
        async move {
            let call = call.ok_or("the request cannot be written down")?;
            let answered = timer::within(timeout, async {
                let response = call.run().settled().await;
                if !question::is_answered(&response) {
                    return Err("it cannot be reached, or what it says is no answer".to_owned());
                }
                let (status, lines) = (response.status, response.head.lines().clone());
                let content = question::content(response.body, CONTENT).await;
                let content = content.map_err(|error| format!("its answer broke off: {error}"))?;
                let content = content.ok_or_else(|| format!("its answer is longer than {CONTENT} bytes"))?;
                Ok(Answer { status, lines, content })
            });
            answered.await.unwrap_or_else(|| Err(format!("it has not answered within {timeout:?}")))
        }
    }

    fn encode(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        content: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(512 + content.map_or(0, <[u8]>::len));
        h1::begin_request(&mut out, method, path, &self.authority).ok()?;
        for (name, value) in fields {
            append_field(&mut out, name, value.as_bytes()).ok()?;
        }
        let framing =
            content.map_or(RequestFraming::None, |content| RequestFraming::Length(content.len() as u64));
        let connection = if self.link.keeps() { ConnectionField::None } else { ConnectionField::Close };
        h1::end_request(&mut out, framing, connection);
        out.extend_from_slice(content.unwrap_or_default());
        Some(out)
    }
}
