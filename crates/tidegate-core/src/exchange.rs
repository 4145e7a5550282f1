//! One request as modules see it, free of protocol version.

use crate::interim::InterimQueue;
use crate::kept::Kept;
use crate::notes;
use crate::reply::{Need, Reply};
use crate::request_values::routed_path;
use crate::state::{EncodedSlash, RequestState};
use crate::template::path_asked_for;
use crate::user::{Identity, User};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{Country, Login};
use tidegate_http::path::{encode_path, without_dot_segments};
use tidegate_http::{Field, Fields, Method, Version};
use tidegate_io::socket::{self, Peer, Stream};
use tidegate_tls::ClientIdentity;

/// One request. Its head borrows from the worker's read buffer: what is answered later goes through
/// [`Exchange::answer_after`] or [`Exchange::prepare_after`], which keep it.
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
    /// It came with the first packet of a TLS connection (0-RTT) and may have been played again by somebody
    /// (RFC 8470). Only safe methods come so far.
    pub is_early: bool,
    /// Wall clock, seconds since 1970.
    pub now: i64,
    /// When the head was complete: monotonic, nanoseconds.
    pub started: u64,
    /// The address that the client connected to.
    pub local: Local<'a>,
    /// What is known of it beside the head.
    pub state: RequestState,
}

/// Where a connection remembers its own address, once somebody has asked. Most never do.
pub(crate) type LocalAddress = OnceCell<Box<Option<SocketAddr>>>;

/// The address that a client connected to.
#[derive(Clone, Copy, Default)]
pub struct Local<'a>(pub(crate) LocalSource<'a>);

#[derive(Clone, Copy, Default)]
pub(crate) enum LocalSource<'a> {
    #[default]
    None,
    /// Asked of the kernel when somebody wants to know, once for a connection.
    Stream(&'a Stream, &'a LocalAddress),
    Known(SocketAddr),
}

impl<'a> Exchange<'a> {
    /// A `GET` of `/` that came from nobody, to begin with where a request is made up.
    pub fn empty() -> Exchange<'static> {
        Exchange {
            method: Method::Get,
            method_token: "GET",
            target: "/",
            path: b"/",
            query: None,
            scheme: "http",
            authority: "",
            fields: Fields::default(),
            protocol: None,
            version: Version::Http11,
            is_early: false,
            now: 0,
            started: 0,
            local: Local::default(),
            state: RequestState::default(),
        }
    }

    /// Whether the target was sent with a `%2F` in its path: an application that is told of it may take that for a slash or for a
    /// part of a name.
    pub fn has_encoded_slash(&self) -> bool {
        self.state.encoded_slash != EncodedSlash::Nowhere
    }

    /// Whether [`Exchange::path`] has a slash where the client has sent a `%2F`, and so names nothing here. Not where `index`,
    /// `try`, `rewrite` or `hand-to` have put another path in its place.
    #[inline]
    pub fn has_ambiguous_path(&self) -> bool {
        self.state.encoded_slash == EncodedSlash::InPath
    }

    /// Path and query that an application is asked for: as they were sent, without dot segments, so that what was decided about
    /// a path holds for what is asked for; encoded anew where `rewrite` or `hand-to` say what they are.
    pub fn resolved_target(&self) -> Cow<'a, str> {
        if self.is_rewritten() {
            let mut target = encode_path(self.path);
            push_query(&mut target, self.query);
            return Cow::Owned(target);
        }
        if self.has_path_as_sent() {
            return Cow::Borrowed(self.target);
        }
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target, None),
        };
        match without_dot_segments(path) {
            Cow::Borrowed(_) => Cow::Borrowed(self.target),
            Cow::Owned(mut target) => {
                push_query(&mut target, query);
                Cow::Owned(target)
            }
        }
    }

    /// Whether the path is that of the target, letter by letter.
    #[inline]
    pub fn has_path_as_sent(&self) -> bool {
        let rest = self.target.as_bytes().strip_prefix(self.path);
        rest.is_some_and(|rest| matches!(rest, [] | [b'?', ..]))
    }

    /// The path that the client has asked for, encoded, also where `index`, `try` or `rewrite` have led to another.
    pub fn path_asked_for(&self) -> String {
        path_asked_for(self)
    }

    /// The path that the route was chosen by.
    pub fn routed_path(&self) -> &[u8] {
        routed_path(self)
    }

    /// Whether `rewrite` or `hand-to` say what the path is: then the target is not what an application is asked for.
    pub fn is_rewritten(&self) -> bool {
        self.state.is_rewritten
    }

    /// Whether it comes over a connection that others share: that of a trusted proxy.
    pub fn is_through_proxy(&self) -> bool {
        self.state.remote.is_trusted
    }

    /// Has the connection closed in place of an answer, where nobody else's requests come over it.
    pub fn close_unanswered(&self) {
        if self.is_through_proxy() || self.state.is_hypothetical {
            return;
        }
        notes::takes_unanswered("the connection is closed without a byte of one");
        if let Some(holds) = &self.state.holds {
            holds.sever();
        }
    }

    /// Whether it gets no answer, and its connection is closed instead.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.state.holds.as_ref().is_some_and(|holds| holds.is_severed())
    }

    /// Whether [`Exchange::hand_on`] could ever lead to a program.
    pub fn has_programs(&self) -> bool {
        self.state.site.as_ref().is_some_and(|site| site.has_programs())
    }

    /// The value of the first field of this name.
    #[inline]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.first(name)
    }

    /// Who the client is, by a certificate that has been verified.
    pub fn client(&self) -> Option<&ClientIdentity> {
        match &self.state.tls {
            Some(handshake) => handshake.client.as_deref(),
            None => self.state.rehearsed.as_ref()?.client.as_ref(),
        }
    }

    /// The country of the client, where a `country-database` may tell it.
    pub fn country(&self) -> Option<Country> {
        let site = self.state.site.as_ref()?;
        Some(site.access_view.country(self.state.remote.client.ip()))
    }

    /// What the client is called, where name servers have confirmed that. Where it is not known it is asked for, for whoever
    /// comes next.
    pub fn client_name(&self) -> Option<Arc<str>> {
        let site = self.state.site.as_ref()?;
        site.access_view.name_hint(self.state.remote.client.ip()?)
    }

    /// Who has logged in.
    pub fn user(&self) -> Option<&User> {
        self.state.identity.as_ref()?.user()
    }

    /// The scheme by which the client has proved that itself; nothing where somebody else says who it is.
    pub fn auth_scheme(&self) -> Option<&'static str> {
        self.state.identity.as_ref()?.scheme()
    }

    /// Whether a login of the same users has been passed, and nobody else has said since who the client is: it need not be
    /// asked again, for a request of the server's own.
    pub fn is_logged_in(&self, login: &Login) -> bool {
        self.state.identity.as_ref().is_some_and(|identity| identity.is_proved_to(login))
    }

    /// Somebody is about to say who the client is. What another has said of this request, or proved, counts no more.
    pub fn identify(&mut self) -> Rc<Identity> {
        self.state.identity.insert(Rc::default()).clone()
    }

    /// Whether a field was put into the request by whoever has let it in: no client has sent it.
    pub fn is_granted(&self, field: &Field<'_>) -> bool {
        self.state.identity.as_ref().is_some_and(|identity| identity.has_granted(field))
    }

    /// The names of what it was given by whoever has let it in, in small letters, whether there is anything of them or not.
    pub fn granted_names(&self) -> &[String] {
        let granted = self.state.identity.as_ref().and_then(|identity| identity.granted());
        granted.map_or(&[], |granted| &granted.names)
    }

    /// Lends the request with what it was given by whoever has let it in, in place of what its client has sent by the same
    /// names: everything behind a gate sees it that way.
    pub(crate) fn as_granted<R>(&mut self, f: impl FnOnce(&mut Exchange<'_>) -> R) -> R {
        let granted = self.state.identity.as_ref().and_then(|identity| identity.granted().cloned());
        let Some(granted) = granted else { return f(self) };
        let mut fields: Vec<Field<'_>> =
            self.fields.iter().filter(|field| !granted.replaces(field.name)).copied().collect();
        fields.extend(granted.lines.iter().map(|(name, value)| Field { name, value }));
        let state = std::mem::take(&mut self.state);
        let mut inner = Exchange { fields: Fields::new(&fields), state, ..*self };
        let result = f(&mut inner);
        self.state = inner.state;
        result
    }

    /// The same, to be kept.
    pub fn known_user(&self) -> Option<Arc<User>> {
        self.state.identity.as_ref().and_then(|identity| identity.known())
    }

    /// The address that the client connected to; `None` for a unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        match self.local.0 {
            LocalSource::None => None,
            LocalSource::Known(address) => Some(address),
            LocalSource::Stream(stream, known) => **known.get_or_init(|| {
                Box::new(match socket::local_address(stream.as_fd()) {
                    Ok(Peer::Tcp(address)) => Some(address),
                    _ => None,
                })
            }),
        }
    }

    /// Where interim responses are put to be sent before the answer, which has to be one that comes later;
    /// `None` for a client that does not understand them.
    pub fn interim(&self) -> Option<InterimQueue> {
        self.state.signals.interim()
    }

    /// The answer is worth nothing once the client has gone: then the future that makes it is dropped, and so
    /// is a body under way. For answers that hold something others wait for, such as a place in a queue. A
    /// client that only closes its sending side is taken to be gone as well, as everywhere.
    pub fn ends_with_client(&self) {
        self.state.signals.abandon();
    }

    /// The answer is held back from somebody who is owed none: it is given up already when the client has finished sending,
    /// without finding out whether it still listens.
    pub(crate) fn ends_when_finished(&self) {
        self.state.signals.end_when_finished();
    }

    /// Says which application the answer waits for: a number that is the same on all workers, and not 0. It takes its
    /// place among those in flight on that account (`limits in-flight`).
    pub fn waits_for(&self, upstream: u64) {
        self.state.signals.wait_for(upstream);
    }

    /// Answers once `job` is done, in a place among those in flight: the request is kept until then, its content
    /// included, and `then` gets it back.
    pub fn answer_after<T: 'static>(
        &mut self,
        job: impl Future<Output = T> + 'static,
        then: impl FnOnce(T, &mut Exchange<'_>) -> Reply + 'static,
    ) -> Reply {
        let kept = Kept::of(self);
        Reply::Later(Box::pin(async move {
            let done = job.await;
            let (reply, left) = kept.lend(|exchange| (then(done, exchange), exchange.state.body.take()));
            if let Some(left) = left {
                left.read_off().await;
            }
            reply.settled().await
        }))
    }

    /// The same before there is anything to run: for what the request needs first, and waits for without a place among
    /// those in flight (see [`Reply::Preparing`]).
    pub fn prepare_after<T: 'static>(
        &mut self,
        need: Need,
        job: impl Future<Output = T> + 'static,
        then: impl FnOnce(T, &mut Exchange<'_>) -> Reply + 'static,
    ) -> Reply {
        let kept = Kept::of(self);
        Reply::Preparing(
            need,
            Box::pin(async move {
                let done = job.await;
                let (reply, left) = kept.lend(|exchange| (then(done, exchange), exchange.state.body.take()));
                if let Some(left) = left {
                    left.read_off().await;
                }
                reply
            }),
        )
    }
}

fn push_query(target: &mut String, query: Option<&str>) {
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
}
