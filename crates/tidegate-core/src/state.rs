//! What is known of a request beside its head: one owned struct, which the borrowed [`Exchange`] and its kept form both
//! have, so that nothing is lost between them.
//!
//! [`Exchange`]: crate::Exchange

use crate::body::RequestBody;
use crate::client_head::ClientHead;
use crate::rate::Holds;
use crate::remote::Remote;
use crate::signals::Signals;
use crate::site::Site;
use crate::trace::Trace;
use crate::user::Identity;
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_http::{Fields, Status};
use tidegate_io::socket::Peer;
use tidegate_tls::{ClientIdentity, Handshake};

/// What is known of a request beside its head. The default is that of a request that came from no client.
pub struct RequestState {
    /// Who asks.
    pub remote: Remote,
    /// What the TLS handshake has agreed upon; `None` on a plain connection.
    pub tls: Option<Arc<Handshake>>,
    /// Content of the request, until a handler takes it.
    pub body: Option<RequestBody>,
    /// Why no handler may have it, once the gates of its route have let it in.
    pub(crate) refused: Option<Box<Refused>>,
    pub(crate) site: Option<Rc<Site>>,
    /// Which of the site's routes has the request.
    pub(crate) route: usize,
    /// One of them has it, or has had it.
    pub(crate) has_route: bool,
    /// How often the request was handed on to another route already.
    pub(crate) hops: u8,
    /// The limits that it has been counted by.
    pub(crate) counted: SmallVec<[usize; 2]>,
    /// What it holds of limits; `None` where its site has none that would be held.
    pub(crate) holds: Option<Rc<Holds>>,
    /// Who has logged in, and to whom that was proved.
    pub(crate) identity: Option<Rc<Identity>>,
    pub(crate) encoded_slash: EncodedSlash,
    /// It is explained as one that comes over TLS, and there is no handshake.
    pub(crate) rehearsed: Option<Rc<RehearsedTls>>,
    /// The path that the pattern of the route has matched, where `rewrite` has put another one in its place.
    pub(crate) matched: Option<Rc<[u8]>>,
    /// The path is not that of the target: `rewrite` or `hand-to` say which one it is.
    pub(crate) is_rewritten: bool,
    /// Gates are asked what they would say of a client that asks by this path: no refusal is an answer, or for the log.
    pub(crate) is_hypothetical: bool,
    /// Of a request of the server's own: the head of the one that has led to it, by which conditions go.
    pub(crate) asked: Option<ClientHead>,
    /// Of a request for a page of the server's own: whom it is for.
    pub(crate) page: Option<Rc<PageAudience>>,
    /// What its line in a log, and an operator, will be told of it; see [`RequestState::trace`].
    pub(crate) trace: OnceCell<Rc<Trace>>,
    pub(crate) signals: Signals,
}

/// Whom a page is for that the server has asked itself for.
#[derive(Debug, Default)]
pub(crate) struct PageAudience {
    /// A route has answered that is not for everybody.
    pub(crate) is_for_some: Cell<bool>,
}

/// The answer to a request that can be nothing to any handler: its path is none, or its target, its head or the content that is
/// announced are more than is taken here.
pub(crate) struct Refused {
    pub(crate) status: Status,
    /// For the log.
    pub(crate) why: Box<str>,
    /// No route could be chosen by its path: it concerns the bans of all routes.
    pub(crate) is_unrouted: bool,
}

/// Where a `%2F` of the client stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EncodedSlash {
    #[default]
    Nowhere,
    /// In the path of the request, which has a slash there.
    InPath,
    /// In the target alone: another path has taken the place of the client's.
    InTarget,
}

/// What is known of the connection of a request that is explained.
pub(crate) struct RehearsedTls {
    /// Who the client would have shown to be.
    pub(crate) client: Option<ClientIdentity>,
}

impl Default for RequestState {
    fn default() -> RequestState {
        RequestState::of(Remote::direct(Peer::Unix))
    }
}

impl RequestState {
    /// For a request from there.
    #[inline]
    pub fn of(remote: Remote) -> RequestState {
        RequestState {
            remote,
            tls: None,
            body: None,
            refused: None,
            site: None,
            route: 0,
            has_route: false,
            hops: 0,
            counted: SmallVec::new(),
            holds: None,
            identity: None,
            encoded_slash: EncodedSlash::Nowhere,
            rehearsed: None,
            matched: None,
            is_rewritten: false,
            is_hypothetical: false,
            asked: None,
            page: None,
            trace: OnceCell::new(),
            signals: Signals::default(),
        }
    }

    /// Another path takes the place of the client's. Gives back what is to be put back with that.
    pub(crate) fn leave_path(&mut self) -> EncodedSlash {
        let of_target = match self.encoded_slash {
            EncodedSlash::Nowhere => EncodedSlash::Nowhere,
            EncodedSlash::InPath | EncodedSlash::InTarget => EncodedSlash::InTarget,
        };
        std::mem::replace(&mut self.encoded_slash, of_target)
    }

    /// Whether its connection speaks TLS.
    #[inline]
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some() || self.rehearsed.is_some()
    }

    /// Whether a limit, known by a number of its own, counts the request for the first time: the server's own requests
    /// on its behalf are not counted again.
    pub(crate) fn counts_first(&mut self, limit: usize) -> bool {
        let is_first = !self.counted.contains(&limit);
        if is_first {
            self.counted.push(limit);
        }
        is_first
    }

    /// What it leaves for who is told of it, begun with the first question for it. `None`: it came from nobody, or nothing that it
    /// could come to takes long.
    pub(crate) fn trace(&self) -> Option<Rc<Trace>> {
        if let Some(trace) = self.trace.get() {
            return Some(trace.clone());
        }
        let site = self.site.as_ref().filter(|site| site.has_programs())?;
        let trace = Trace::begin(site.traced(), &self.remote, &Fields::default())?;
        Some(self.trace.get_or_init(|| trace).clone())
    }

    /// The same for a request that is kept, which takes the content along, and why there is none.
    pub(crate) fn keep(&mut self) -> RequestState {
        let _ = self.trace(); // whatever it comes to is written down where both see it
        let (body, refused) = (self.body.take(), self.refused.take());
        RequestState { body, refused, ..self.copy(self.signals.share()) }
    }

    /// The same for another request, without content.
    pub(crate) fn copy(&self, signals: Signals) -> RequestState {
        RequestState {
            site: self.site.clone(),
            route: self.route,
            encoded_slash: self.encoded_slash,
            matched: self.matched.clone(),
            asked: self.asked.clone(),
            ..self.passed_on().into_state(signals)
        }
    }

    /// What goes on to a request that this one, or the one before it, leads to.
    #[inline]
    pub(crate) fn passed_on(&self) -> PassedOn {
        let _ = self.trace();
        let RequestState {
            remote,
            tls,
            body: _,
            refused: _,
            site: _,
            route: _,
            has_route,
            hops,
            counted,
            holds,
            identity,
            encoded_slash: _,
            rehearsed,
            matched: _,
            is_rewritten,
            is_hypothetical: _,
            asked: _,
            page,
            trace,
            signals: _,
        } = self;
        PassedOn {
            remote: *remote,
            tls: tls.clone(),
            has_route: *has_route,
            hops: *hops,
            counted: SmallVec::from_slice(counted),
            holds: holds.clone(),
            identity: identity.clone(),
            rehearsed: rehearsed.clone(),
            is_rewritten: *is_rewritten,
            page: page.clone(),
            trace: trace.get().cloned(),
        }
    }
}

/// What a request of the server's own has of the one that has led to it, beside its head, its site, its route and its path.
#[derive(Clone)]
pub(crate) struct PassedOn {
    remote: Remote,
    tls: Option<Arc<Handshake>>,
    has_route: bool,
    pub(crate) hops: u8,
    counted: SmallVec<[usize; 2]>,
    holds: Option<Rc<Holds>>,
    identity: Option<Rc<Identity>>,
    rehearsed: Option<Rc<RehearsedTls>>,
    is_rewritten: bool,
    pub(crate) page: Option<Rc<PageAudience>>,
    trace: Option<Rc<Trace>>,
}

impl PassedOn {
    /// The state that the other request begins with.
    pub(crate) fn into_state(self, signals: Signals) -> RequestState {
        let PassedOn {
            remote,
            tls,
            has_route,
            hops,
            counted,
            holds,
            identity,
            rehearsed,
            is_rewritten,
            page,
            trace,
        } = self;
        RequestState {
            tls,
            has_route,
            hops,
            counted,
            holds,
            identity,
            rehearsed,
            is_rewritten,
            page,
            trace: trace.map(OnceCell::from).unwrap_or_default(),
            signals,
            ..RequestState::of(remote)
        }
    }
}
