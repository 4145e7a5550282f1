//! One request as modules see it, free of protocol version, and the traits that answer it.

use crate::body::RequestBody;
use crate::interim::InterimQueue;
use crate::remote::Remote;
use crate::site::Site;
use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_http::{Field, Fields, Method, Version};
use tidegate_io::socket::{self, Peer, Stream};
use tidegate_tls::{ClientIdentity, Handshake};

/// One request. It borrows from the worker's read buffer: a handler that answers later copies what it
/// needs before it returns.
pub struct Exchange<'a> {
    /// Method.
    pub method: Method,
    /// The method as sent, for extension methods.
    pub method_token: &'a str,
    /// The request target as sent.
    pub target: &'a str,
    /// Decoded once and normalised: begins with `/`, holds no dot segment, no `//` and no NUL.
    pub path: &'a [u8],
    /// Behind the first `?`, as sent.
    pub query: Option<&'a str>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host and port as sent; empty for an HTTP/1.0 client that named none.
    pub authority: &'a str,
    /// Field section.
    pub fields: Fields<'a>,
    /// The protocol that an extended CONNECT asks for (RFC 8441), such as `websocket`. The method is `GET` then,
    /// and the answer a tunnel: an upgrade, as HTTP/1 has it, in the words of HTTP/2.
    pub protocol: Option<&'a str>,
    /// The version that it came in.
    pub version: Version,
    /// Who asks.
    pub remote: Remote,
    /// What the TLS handshake has agreed upon; `None` on a plain connection.
    pub tls: Option<&'a Arc<Handshake>>,
    /// It came with the first packet of a TLS connection (0-RTT) and may have been played again by somebody
    /// (RFC 8470). Only safe methods come so far.
    pub is_early: bool,
    /// Wall clock, seconds since 1970.
    pub now: i64,
    /// When the head was complete: monotonic, nanoseconds.
    pub started: u64,
    /// Content of the request, until a handler takes it.
    pub body: Option<RequestBody>,
    /// What the engine knows beside the request.
    pub context: ExchangeContext<'a>,
}

/// What the engine knows beside the request. The default knows nothing: for requests that came from no
/// client.
#[derive(Clone, Copy, Default)]
pub struct ExchangeContext<'a> {
    pub(crate) local: Local<'a>,
    pub(crate) site: Option<&'a Rc<Site>>,
    /// Which of the site's routes has the request.
    pub(crate) route: usize,
    pub(crate) wishes: Option<&'a Wishes>,
    /// How often the request was handed on to another route already.
    pub(crate) hops: u8,
    pub(crate) has_encoded_slash: bool,
    /// Of a request of the server's own: what `X-Forwarded-For` names in the one that has led to it.
    pub(crate) forwarded: Option<&'a Rc<Vec<Vec<u8>>>>,
}

/// What whoever answers a request asks of its connection.
#[derive(Default)]
pub(crate) struct Wishes {
    /// The request is to be given up when the client goes away.
    abandons: Cell<bool>,
    /// Interim responses may come.
    interim: OnceCell<InterimQueue>,
    /// Of the client: it does not understand them.
    refuses_interim: bool,
    /// The application that is waited for.
    upstream: Cell<u64>,
    /// There once the request has been kept.
    late: OnceCell<Rc<LateWishes>>,
}

/// What is asked while an answer is made, of a request that was kept until then.
#[derive(Default)]
pub(crate) struct LateWishes {
    pub(crate) abandons: Cell<bool>,
    pub(crate) upstream: Cell<u64>,
}

impl Wishes {
    /// For a client of this version; HTTP/1.0 knows no interim responses (RFC 9110 section 15.2).
    #[inline]
    pub(crate) fn of_client(version: Version) -> Wishes {
        Wishes { refuses_interim: version == Version::Http10, ..Wishes::default() }
    }

    #[inline]
    pub(crate) fn abandons(&self) -> bool {
        self.abandons.get()
    }

    /// The application that the request waits for; 0 for none.
    #[inline]
    pub(crate) fn upstream(&self) -> u64 {
        self.upstream.get()
    }

    /// What is still asked later, if the request has been kept.
    #[inline]
    pub(crate) fn late(&self) -> Option<Rc<LateWishes>> {
        self.late.get().cloned()
    }

    /// The same wishes for a request that is kept: both ends see what the other asks.
    fn keep(&self) -> Wishes {
        let late = self.late.get_or_init(Rc::default);
        let kept = Wishes { refuses_interim: self.refuses_interim, ..Wishes::default() };
        let _ = kept.late.set(late.clone());
        if !self.refuses_interim {
            let _ = kept.interim.set(self.interim.get_or_init(InterimQueue::default).clone());
        }
        kept
    }

    /// Where interim responses will be found, if anyone has asked.
    #[inline]
    pub(crate) fn take_interim(&mut self) -> Option<InterimQueue> {
        self.interim.take()
    }
}

/// Where a connection remembers its own address, once somebody has asked. Most never do.
pub(crate) type LocalAddress = OnceCell<Box<Option<SocketAddr>>>;

/// The address that the client connected to.
#[derive(Clone, Copy, Default)]
pub(crate) enum Local<'a> {
    #[default]
    None,
    /// Asked of the kernel when somebody wants to know, once for a connection.
    Stream(&'a Stream, &'a LocalAddress),
    Known(SocketAddr),
}

impl<'a> ExchangeContext<'a> {
    pub(crate) fn new(
        stream: &'a Stream,
        local: &'a LocalAddress,
        site: &'a Rc<Site>,
        wishes: &'a Wishes,
    ) -> Self {
        let local = Local::Stream(stream, local);
        let context = ExchangeContext::default();
        ExchangeContext { local, site: Some(site), wishes: Some(wishes), ..context }
    }

    /// For a request of the server's own.
    pub(crate) fn of_server(site: &'a Rc<Site>, route: usize, hops: u8) -> Self {
        ExchangeContext { site: Some(site), route, hops, ..ExchangeContext::default() }
    }

    /// The same, and whether the path was sent with a `%2F`.
    #[inline]
    pub fn with_encoded_slash(self, has_encoded_slash: bool) -> Self {
        ExchangeContext { has_encoded_slash, ..self }
    }

    /// Where interim responses are put to be sent before the answer, which has to be one that comes later;
    /// `None` for a client that does not understand them.
    pub fn interim(&self) -> Option<InterimQueue> {
        let wishes = self.wishes.filter(|wishes| !wishes.refuses_interim)?;
        Some(wishes.interim.get_or_init(InterimQueue::default).clone())
    }

    /// The answer is worth nothing once the client has gone: then the future that makes it is dropped, and so
    /// is a body under way. For answers that hold something others wait for, such as a place in a queue. A
    /// client that only closes its sending side is taken to be gone as well, as everywhere.
    pub fn ends_with_client(&self) {
        if let Some(wishes) = self.wishes {
            wishes.abandons.set(true);
            if let Some(late) = wishes.late.get() {
                late.abandons.set(true);
            }
        }
    }

    /// Says which application the answer waits for: a number that is the same on all workers, and not 0. It takes its
    /// place among those in flight on that account (`limits in-flight`).
    pub fn waits_for(&self, upstream: u64) {
        if let Some(wishes) = self.wishes {
            wishes.upstream.set(upstream);
            if let Some(late) = wishes.late.get() {
                late.upstream.set(upstream);
            }
        }
    }

    /// The address that the client connected to; `None` for a unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        match self.local {
            Local::None => None,
            Local::Known(address) => Some(address),
            Local::Stream(stream, known) => **known.get_or_init(|| {
                Box::new(match socket::local_address(stream.as_fd()) {
                    Ok(Peer::Tcp(address)) => Some(address),
                    _ => None,
                })
            }),
        }
    }
}

impl Exchange<'_> {
    /// Whether the path was sent with a `%2F`, and so names no file: [`Exchange::path`] has a slash there, and only
    /// what passes the target on as it was sent gets such a request.
    pub fn has_encoded_slash(&self) -> bool {
        self.context.has_encoded_slash
    }

    /// Whether [`Exchange::hand_on`] could ever succeed.
    pub fn has_programs(&self) -> bool {
        self.context.site.is_some_and(|site| site.has_programs())
    }

    /// The value of the first field of this name.
    #[inline]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.first(name)
    }

    /// Who the client is, by a certificate that has been verified.
    pub fn client(&self) -> Option<&ClientIdentity> {
        self.tls.and_then(|handshake| handshake.client.as_deref())
    }
}

impl Exchange<'_> {
    /// A copy that outlives the worker's read buffer, without the content: for answers that come later.
    pub fn keep(&self) -> Kept {
        let own = |field: &Field<'_>| (field.name.to_owned(), field.value.to_owned());
        Kept {
            method: self.method,
            method_token: self.method_token.to_owned(),
            target: self.target.to_owned(),
            path: self.path.to_owned(),
            query: self.query.map(str::to_owned),
            scheme: self.scheme,
            authority: self.authority.to_owned(),
            fields: self.fields.iter().map(own).collect(),
            protocol: self.protocol.map(str::to_owned),
            version: self.version,
            remote: self.remote,
            tls: self.tls.cloned(),
            is_early: self.is_early,
            now: self.now,
            started: self.started,
            local: self.context.local(),
            site: self.context.site.cloned(),
            route: self.context.route,
            hops: self.context.hops,
            wishes: self.context.wishes.map(Wishes::keep),
            has_encoded_slash: self.context.has_encoded_slash,
            forwarded: self.context.forwarded.cloned(),
        }
    }
}

/// A request that has been kept.
pub struct Kept {
    method: Method,
    method_token: String,
    target: String,
    path: Vec<u8>,
    query: Option<String>,
    scheme: &'static str,
    authority: String,
    fields: Vec<(String, Vec<u8>)>,
    protocol: Option<String>,
    version: Version,
    remote: Remote,
    tls: Option<Arc<Handshake>>,
    is_early: bool,
    now: i64,
    started: u64,
    local: Option<SocketAddr>,
    site: Option<Rc<Site>>,
    route: usize,
    hops: u8,
    wishes: Option<Wishes>,
    has_encoded_slash: bool,
    forwarded: Option<Rc<Vec<Vec<u8>>>>,
}

impl Kept {
    /// Lends it as the exchange it was, without content.
    pub fn lend<R>(&self, f: impl FnOnce(&Exchange<'_>) -> R) -> R {
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| Field { name, value }).collect();
        f(&Exchange {
            method: self.method,
            method_token: &self.method_token,
            target: &self.target,
            path: &self.path,
            query: self.query.as_deref(),
            scheme: self.scheme,
            authority: &self.authority,
            fields: Fields::new(&fields),
            protocol: self.protocol.as_deref(),
            version: self.version,
            remote: self.remote,
            tls: self.tls.as_ref(),
            is_early: self.is_early,
            now: self.now,
            started: self.started,
            body: None,
            context: ExchangeContext {
                local: self.local.map_or(Local::None, Local::Known),
                site: self.site.as_ref(),
                route: self.route,
                wishes: self.wishes.as_ref(),
                hops: self.hops,
                has_encoded_slash: self.has_encoded_slash,
                forwarded: self.forwarded.as_ref(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interim::Interim;
    use tidegate_http::{FieldLines, Status};

    /// A handler that waits for a look-up, as on a cold disk, asks what it would have asked at once.
    #[test]
    fn what_is_kept_keeps_its_wishes() {
        for version in [Version::Http11, Version::Http10] {
            let mut wishes = Wishes::of_client(version);
            let exchange = Exchange {
                method: Method::Get,
                method_token: "GET",
                target: "/",
                path: b"/",
                query: None,
                scheme: "http",
                authority: "x",
                fields: Fields::default(),
                protocol: None,
                version,
                remote: Remote::direct(Peer::Unix),
                tls: None,
                is_early: false,
                now: 0,
                started: 0,
                body: None,
                context: ExchangeContext { wishes: Some(&wishes), ..ExchangeContext::default() },
            };
            let kept = exchange.keep();
            let hint = || Interim { status: Status::EARLY_HINTS, lines: FieldLines::new() };
            kept.lend(|exchange| {
                exchange.context.ends_with_client();
                exchange.context.waits_for(7);
                if let Some(queue) = exchange.context.interim() {
                    queue.push(hint());
                }
                assert_eq!(exchange.context.interim().is_some(), version != Version::Http10);
            });
            let late = wishes.late().expect("it was kept");
            assert!(late.abandons.get());
            assert_eq!(late.upstream.get(), 7);
            let sent = wishes.take_interim().and_then(|queue| queue.pop());
            assert_eq!(sent.is_some(), version != Version::Http10);
        }
    }
}
