//! Requests as bytes, built once before the run, and the order in which they are sent.

use crate::random::Random;
use crate::target::{TargetError, Url};
use thiserror::Error;
use tidegate_http::FieldLines;
use tidegate_io::connect::Address;
use tidegate_tls::{Connector, ConnectorError, ServerName};
use tidegate_wire::h1::{
    ConnectionField, RequestFraming, RequestParts, UnsafeField, UnsafeRequest, append_field, encode_request,
};
use tidegate_wire::h2;

/// One request as the user described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// GET unless said otherwise.
    pub method: String,
    /// Where and what.
    pub url: Url,
    /// Field names and values beside those that are always sent.
    pub fields: Vec<(String, String)>,
    /// What follows the head.
    pub body: Vec<u8>,
    /// How often it comes among the others.
    pub weight: u32,
}

impl Description {
    /// GET.
    pub fn get(url: Url) -> Self {
        Description { method: "GET".to_owned(), url, fields: Vec::new(), body: Vec::new(), weight: 1 }
    }
}

/// Why requests could not be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No certificate can be for the host.
    #[error(transparent)]
    Name(#[from] ConnectorError),
    /// The request line or `Host`.
    #[error("{url}: {fault}")]
    Request {
        /// Of the request.
        url: String,
        /// What is wrong.
        fault: UnsafeRequest,
    },
    /// A field line.
    #[error("field `{name}`: {fault}")]
    Field {
        /// Its name.
        name: String,
        /// What is wrong.
        fault: UnsafeField,
    },
    /// Nothing to send.
    #[error("there is no URL to ask for")]
    Nothing,
    /// Weights that add up to more than a million.
    #[error("the weights add up to {0}; make them smaller, 1000000 is the most")]
    Weights(u64),
}

/// A request, ready to send.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// Head and body.
    pub bytes: Box<[u8]>,
    /// Where the addresses of its server are.
    pub server: u32,
    /// What the response parser must know.
    pub method: Box<str>,
    /// The same for HTTP/2, which encodes heads anew on each connection.
    pub parts: Box<Parts>,
}

impl Prepared {
    /// What a head of HTTP/2 is made of, and where in `bytes` its body begins, if there is one.
    pub fn parts(&self) -> (h2::RequestParts<'_>, Option<usize>) {
        let parts = h2::RequestParts {
            method: &self.method,
            scheme: self.parts.scheme,
            authority: &self.parts.authority,
            target: &self.parts.target,
            protocol: None,
            fields: h2::FieldSource::Lines(&self.parts.lines),
            content_length: self.parts.content_length,
        };
        (parts, (self.parts.body_from < self.bytes.len()).then_some(self.parts.body_from))
    }

    /// Method and target, for people.
    pub fn line(&self) -> String {
        let line = self.bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let known = line.strip_suffix(b" HTTP/1.1").or_else(|| line.strip_suffix(b" HTTP/1.0"));
        String::from_utf8_lossy(known.unwrap_or(line)).into_owned()
    }
}

/// What a head of HTTP/2 is made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub scheme: &'static str,
    pub authority: Box<str>,
    pub target: Box<str>,
    pub lines: FieldLines,
    pub content_length: Option<u64>,
    /// Where in the bytes of HTTP/1 the body begins.
    pub body_from: usize,
}

/// A server of the list.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Of the resolver; connections take them in turn.
    pub addresses: Vec<Address>,
    pub authority: String,
    /// With TLS, the name that is asked for and verified.
    pub tls_name: Option<ServerName<'static>>,
}

/// All requests of a run and their order.
#[derive(Debug, Clone)]
pub struct Mix {
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) servers: Vec<Server>,
    /// Numbers of requests, each as often as its weight says. Workers go round it, each from another place.
    pub(crate) deck: Vec<u32>,
    /// Connections may carry more than one request: none says `Connection: close`, after which the client asks for nothing more (RFC 9112
    /// section 9.6).
    pub(crate) keep_alive: bool,
}

impl Mix {
    /// Builds the bytes and resolves the hosts. `seed`: shuffles the order; without one it is that of the
    /// list. `keep_alive`: else each request carries `Connection: close`.
    ///
    /// # Errors
    /// A host that cannot be resolved, or bytes that would not be one request.
    pub fn build(list: &[Description], keep_alive: bool, seed: Option<u64>) -> Result<Mix, RequestError> {
        let total: u64 = list.iter().map(|description| u64::from(description.weight)).sum();
        if list.is_empty() || total == 0 {
            return Err(RequestError::Nothing);
        }
        if total > 1_000_000 {
            return Err(RequestError::Weights(total));
        }
        let mut mix = Mix {
            prepared: Vec::with_capacity(list.len()),
            servers: Vec::new(),
            deck: Vec::new(),
            keep_alive: keep_alive && !list.iter().any(asks_to_close),
        };
        let mut known: Vec<(String, u16, bool, Option<std::path::PathBuf>)> = Vec::new();
        for (number, description) in list.iter().enumerate() {
            let url = &description.url;
            let key = (url.host.clone(), url.port, url.is_tls, url.socket.clone());
            let server = match known.iter().position(|other| *other == key) {
                Some(server) => server,
                None => {
                    let tls_name = if url.is_tls { Some(Connector::name(&url.host)?) } else { None };
                    let addresses = url.resolve()?;
                    mix.servers.push(Server { addresses, authority: url.authority.clone(), tls_name });
                    known.push(key);
                    known.len() - 1
                }
            };
            let bytes = encode(description, mix.keep_alive)?;
            mix.prepared.push(Prepared {
                parts: Box::new(parts(description, bytes.len())),
                bytes: bytes.into(),
                server: server as u32,
                method: description.method.as_str().into(),
            });
            mix.deck.extend(std::iter::repeat_n(number as u32, description.weight as usize));
        }
        if let Some(seed) = seed {
            Random::new(seed, u64::from(u32::MAX)).shuffle(&mut mix.deck);
        }
        Ok(mix)
    }

    /// Makes all requests those of HTTP/1.0. `keep_alive`: each asks that its connection stays, as ab -k does.
    pub(crate) fn speak_http10(&mut self, keep_alive: bool) {
        const VERSION: &[u8] = b" HTTP/1.1\r\n";
        for request in &mut self.prepared {
            let Some(at) = memchr::memmem::find(&request.bytes, VERSION) else { continue };
            let (line, rest) = request.bytes.split_at(at);
            let rest = rest.get(VERSION.len()..).unwrap_or_default();
            let field: &[u8] = if keep_alive { b"Connection: keep-alive\r\n" } else { b"" };
            request.bytes = [line, b" HTTP/1.0\r\n", field, rest].concat().into();
        }
    }

    /// The first addresses of all servers, to try before a run.
    pub(crate) fn first_addresses(&self) -> impl Iterator<Item = (&Address, &Server)> {
        self.servers.iter().filter_map(|server| Some((server.addresses.first()?, server)))
    }

    /// All addresses of all servers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.servers.iter().flat_map(|server| &server.addresses)
    }

    /// Whether all requests are for one server.
    pub fn is_of_one_server(&self) -> bool {
        self.servers.len() == 1
    }

    /// Whether any server speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.servers.iter().any(|server| server.tls_name.is_some())
    }

    /// Whether all servers are on the loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.servers.iter().flat_map(|server| &server.addresses).all(
            |address| matches!(address, Address::Tcp(address) if address.is_ipv4() && address.ip().is_loopback()),
        )
    }
}

/// What was checked when the bytes of HTTP/1 were made, of which there are `length`.
fn parts(description: &Description, length: usize) -> Parts {
    let Description { url, fields, body, .. } = description;
    let mut parts = Parts {
        scheme: if url.is_tls { "https" } else { "http" },
        authority: url.authority.as_str().into(),
        target: url.request_target.as_str().into(),
        content_length: has_body(description).then_some(body.len() as u64),
        body_from: length - body.len(),
        lines: FieldLines::new(),
    };
    for (name, value) in fields {
        if name.eq_ignore_ascii_case("host") {
            parts.authority = value.as_str().into();
        } else if !name.eq_ignore_ascii_case("content-length") {
            parts.lines.push(name, value);
        }
    }
    if !parts.lines.contains("user-agent") {
        parts.lines.push("user-agent", AGENT);
    }
    if !parts.lines.contains("accept") {
        parts.lines.push("accept", "*/*");
    }
    parts
}

const AGENT: &str = concat!("tidegate-bench/", env!("CARGO_PKG_VERSION"));

/// Whether a request says how long its body is.
fn has_body(description: &Description) -> bool {
    !description.body.is_empty() || matches!(description.method.as_str(), "POST" | "PUT" | "PATCH")
}

/// Whether a field may stand in a request.
///
/// # Errors
/// The name is no token, or the value holds a control byte.
pub fn check_field(name: &str, value: &str) -> Result<(), UnsafeField> {
    append_field(&mut Vec::new(), name, value.as_bytes())
}

/// Whether its own fields say `Connection: close`.
fn asks_to_close(description: &Description) -> bool {
    let values = description.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
    values.flat_map(|(_, value)| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

fn encode(description: &Description, keep_alive: bool) -> Result<Vec<u8>, RequestError> {
    let Description { method, url, fields, body, .. } = description;
    let mut lines = Vec::new();
    let mut host = url.authority.as_str();
    let is_named = |wanted: &str| fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    for (name, value) in fields {
        if name.eq_ignore_ascii_case("host") {
            host = value;
            continue;
        }
        append_field(&mut lines, name, value.as_bytes())
            .map_err(|fault| RequestError::Field { name: name.clone(), fault })?;
    }
    if !is_named("user-agent") {
        lines.extend_from_slice(
            concat!("User-Agent: tidegate-bench/", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes(),
        );
    }
    if !is_named("accept") {
        lines.extend_from_slice(b"Accept: */*\r\n");
    }
    let framing =
        if has_body(description) { RequestFraming::Length(body.len() as u64) } else { RequestFraming::None };
    let parts = RequestParts {
        method,
        target: &url.request_target,
        host,
        field_lines: &lines,
        framing,
        connection: if keep_alive || asks_to_close(description) {
            ConnectionField::None
        } else {
            ConnectionField::Close
        },
    };
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &parts)
        .map_err(|fault| RequestError::Request { url: url.to_string(), fault })?;
    bytes.extend_from_slice(body);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(path: &str, weight: u32) -> Description {
        let url = Url::parse(&format!("http://127.0.0.1:8080{path}")).unwrap();
        Description { weight, ..Description::get(url) }
    }

    #[test]
    fn a_request_is_built_once_and_whole() {
        let mut post = description("/form", 1);
        post.method = "POST".to_owned();
        post.body = b"a=b".to_vec();
        post.fields = vec![("Host".into(), "other".into()), ("X-A".into(), "1".into())];
        let mix = Mix::build(&[post], false, None).unwrap();
        let text = String::from_utf8(mix.prepared[0].bytes.to_vec()).unwrap();
        assert!(text.starts_with("POST /form HTTP/1.1\r\nHost: other\r\nX-A: 1\r\n"), "{text}");
        assert!(text.contains("Content-Length: 3\r\n") && text.contains("Connection: close\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\na=b"), "{text}");
    }

    #[test]
    fn who_says_that_it_closes_asks_once() {
        for (value, is_kept) in [("close", false), ("te, Close", false), ("te", true)] {
            let fields = vec![("connection".to_owned(), value.to_owned())];
            let closing = Description { fields, ..description("/a", 1) };
            for keep_alive in [true, false] {
                let mix = Mix::build(std::slice::from_ref(&closing), keep_alive, None).unwrap();
                let text = String::from_utf8(mix.prepared[0].bytes.to_vec()).unwrap().to_lowercase();
                assert_eq!(mix.keep_alive, keep_alive && is_kept, "{value}");
                assert_eq!(text.matches("close").count(), usize::from(!mix.keep_alive), "{text}");
                assert_eq!(crate::plan::Plan::new(mix.clone()).keep_alive, mix.keep_alive);
            }
        }
    }

    #[test]
    fn http_1_0_says_so_and_asks_to_be_kept() {
        for (keep_alive, field) in [(true, "Connection: keep-alive\r\n"), (false, "Connection: close\r\n")] {
            let mut mix = Mix::build(&[description("/a", 1)], keep_alive, None).unwrap();
            mix.speak_http10(keep_alive);
            let text = String::from_utf8(mix.prepared[0].bytes.to_vec()).unwrap();
            assert!(text.starts_with("GET /a HTTP/1.0\r\n") && text.ends_with("\r\n\r\n"), "{text}");
            assert_eq!((text.matches(field).count(), text.matches("Connection").count()), (1, 1), "{text}");
            assert_eq!(mix.prepared[0].line(), "GET /a");
        }
    }

    #[test]
    fn the_deck_holds_each_as_often_as_its_weight_says() {
        let list = [description("/a", 1), description("/b", 3), description("/c", 0)];
        let mix = Mix::build(&list, true, Some(3)).unwrap();
        let count = |wanted| mix.deck.iter().filter(|number| **number == wanted).count();
        assert_eq!([count(0), count(1), count(2)], [1, 3, 0]);
        assert_eq!(mix.servers.len(), 1);
        assert_eq!(Mix::build(&list, true, None).unwrap().deck, [0, 1, 1, 1]);
    }

    #[test]
    fn what_would_not_be_one_request_is_refused() {
        let mut bad = description("/", 1);
        bad.fields = vec![("X-A".into(), "1\r\nX-B: 2".into())];
        assert!(matches!(Mix::build(&[bad], true, None), Err(RequestError::Field { .. })));
        assert!(matches!(Mix::build(&[], true, None), Err(RequestError::Nothing)));
        assert!(matches!(
            Mix::build(&[description("/", 2_000_000)], true, None),
            Err(RequestError::Weights(_))
        ));
    }
}
