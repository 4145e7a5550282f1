//! The one decision over a request, whichever protocol has brought it.
//!
//! A protocol reads a [`RequestHead`], asks [`Connection::decide`], and sends what the [`Decision`] says. Decided are, in
//! this order: what may not be served as it is, the site, whether this connection may ask for that site, the path,
//! whether the server is too busy; then come the phases of the site (`phase`), also for a path that no handler may have.

use super::Connection;
use crate::admission::{Account, Admission, Admitted};
use crate::answer;
use crate::body::{self, BodySink, RequestBody};
use crate::busiest::Sample;
use crate::context::Ctx;
use crate::engine::Engine;
use crate::exchange::{Exchange, Local, LocalSource};
use crate::https::Arrival;
use crate::interim::InterimQueue;
use crate::limits::{Excess, TooLarge, excess};
use crate::log::{self, EntryFields, Sink};
use crate::rate::Held;
use crate::remote::Remote;
use crate::reply::Reply;
use crate::response::Response;
use crate::signals::{SharedSignals, Signals};
use crate::site::{Place, ReadPath, Site};
use crate::state::{EncodedSlash, Refused, RequestState};
use crate::trace::Trace;
use crate::user::Identity;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::RequestLimits;
use tidegate_http::path::split_normal;
use tidegate_http::target::origin_form;
use tidegate_http::{Fields, Method, Status, Target, Version};
use tidegate_io::socket::Peer;
use tidegate_stats::series::SeriesId;
use tidegate_stats::{ParseError, Worker as Stats};
use tidegate_tls::Handshake;

/// The head of a request, as far as it decides.
pub(super) struct RequestHead<'a> {
    pub version: Version,
    /// Of an extended CONNECT it is `GET`: the request is an upgrade in other words (RFC 8441 section 4).
    pub method: Method,
    pub method_token: &'a str,
    pub target: &'a str,
    /// `http` or `https`, where the protocol has a place of its own for it.
    pub scheme: Option<&'a str>,
    /// Host and port as sent; empty where there are none.
    pub authority: &'a str,
    pub fields: Fields<'a>,
    /// The protocol that an extended CONNECT asks for.
    pub protocol: Option<&'a str>,
    /// Content follows.
    pub has_content: bool,
    /// Bytes of content, where the client has said so.
    pub content_length: Option<u64>,
    /// The codec has read it, and says that it may not be served.
    pub refused: Option<Status>,
    /// Bytes, all of it.
    pub size: usize,
    /// When it was complete: monotonic, nanoseconds.
    pub started: u64,
}

impl<'a> RequestHead<'a> {
    /// Whether its URI is one of `https`: what is not received over TLS is not for that (RFC 9110 section 7.4).
    fn asks_for_https(&self) -> bool {
        let of_target = || self.target.split_once("://").map(|(scheme, _)| scheme);
        self.scheme.or_else(of_target).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    }

    /// What is logged of it, before it is decided who has asked.
    #[inline]
    pub(super) fn entry(&self) -> log::AccessRecord<'a> {
        log::AccessRecord {
            client: Peer::Unix,
            scheme: "",
            method: self.method_token,
            target: self.target,
            authority: self.authority,
            version: self.version,
            referer: &[],
            user_agent: &[],
            tls: None,
            identity: None,
            trace: None,
            fields: EntryFields::All(self.fields),
        }
    }
}

/// What is decided about a request.
pub(super) struct Decision {
    pub reply: Reply,
    pub outcome: Outcome,
    /// What the log says of it where more content comes than is taken; `None` where its length is known.
    pub about: Option<Box<str>>,
    /// Where content goes, if a handler was asked.
    pub content_sink: Option<BodySink>,
    /// Content that the handler has not taken.
    pub content: Option<RequestBody>,
    /// On whose account an answer that comes later waits.
    pub account: Account,
    /// It is served however busy the server is.
    pub is_exempt: bool,
    /// It is given up when the client has gone.
    pub ends_with_client: bool,
    /// Where interim responses will be found.
    pub interim: Option<InterimQueue>,
    /// What may still be asked of the connection, if the request has been kept.
    pub signals: Option<Rc<SharedSignals>>,
    /// For the access line.
    /// Who has logged in, or is about to have.
    pub identity: Option<Rc<Identity>>,
    pub tls: Option<Arc<Handshake>>,
    /// Its id, where it went and who was asked, where that is wanted.
    pub trace: Option<Rc<Trace>>,
    /// Where that goes.
    pub log: Option<Sink>,
    /// Those of its site or route; `None`: those of the server.
    pub limits: Option<Rc<RequestLimits>>,
    /// What is given back when the answer has been sent.
    pub held: Option<Held>,
    /// What it counts for.
    pub series: SeriesId,
}

/// What has become of a request, as far as its connection has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is answered, with an error perhaps, and the connection goes on.
    Answered,
    /// Its content is longer than is taken: whatever the answer is, nothing of that is read.
    TooLarge,
    /// The server is too busy for it.
    TurnedAway,
}

/// Who is asked, by whom, and within which limits of its own.
struct Asked<'p> {
    site: Option<&'p Rc<Site>>,
    remote: &'p Remote,
    is_tls: bool,
    limits: Option<&'p RequestLimits>,
    /// Wall clock, seconds.
    now: i64,
}

/// How far the path of a request is known when it is located.
enum PathState<'p> {
    /// As sent; the buffer is for what it decodes to.
    Raw(&'p mut Vec<u8>),
    /// Found already, since the limits depend on it.
    Found(Place<'p>),
}

/// A request that the phases of a site may see.
struct Located<'p> {
    site: &'p Rc<Site>,
    path: &'p [u8],
    query: Option<&'p str>,
    encoded_slash: EncodedSlash,
    /// The first route whose pattern fits, where that is known already.
    route: Option<usize>,
    /// Why no handler may have it.
    refused: Option<Box<Refused>>,
    /// More content is announced than may be.
    is_too_large: bool,
}

/// The answer to a request that no site sees.
struct Rejected(Outcome, Response);

impl From<Response> for Rejected {
    #[cold]
    fn from(response: Response) -> Rejected {
        Rejected(Outcome::Answered, response)
    }
}

impl Connection {
    /// Decides about a request. `entry` is what is logged of it, and says from here on who has asked, but nothing of the
    /// handshake. Both callers have a copy of this: what it gives would otherwise be moved about in memory, which costs a
    /// cached file a tenth of its instructions.
    #[inline(always)]
    pub(super) fn decide<'a>(
        &self,
        cx: &mut Ctx,
        engine: &Engine,
        head: &RequestHead<'a>,
        entry: &mut log::AccessRecord<'a>,
    ) -> Decision {
        let site = engine.site_for(engine.place_of(self.listener), head.authority);
        let fields = head.fields; // a copy, so that nobody needs the head in memory
        let is_tls = self.transport.is_tls();
        let remote = match site {
            Some(site) => site.remote(&self.peer, &fields),
            None => Remote::direct(self.peer),
        };
        let log = site.and_then(|site| site.access_log);
        let is_told = cx.tells(log);
        let (limits, path) = match site.filter(|site| site.has_limits()) {
            None => (None, PathState::Raw(&mut cx.path_buffer)),
            Some(site) => {
                let exchange = Exchange {
                    method: head.method,
                    method_token: head.method_token,
                    scheme: remote.scheme(is_tls),
                    authority: head.authority,
                    fields,
                    now: cx.now,
                    state: RequestState { site: Some(site.clone()), ..RequestState::of(remote) },
                    ..Exchange::empty()
                };
                let place = site.place(exchange, head.target, &mut cx.path_buffer);
                (site.limits_at(place.route), PathState::Found(place))
            }
        };
        (entry.client, entry.scheme) = (remote.client, remote.scheme(is_tls));
        if is_told {
            entry.referer = fields.first("referer").unwrap_or(&[]);
            entry.user_agent = fields.first("user-agent").unwrap_or(&[]);
        }
        // Also the slow requests of `tidegate status` are a log of sorts.
        if let Some(site) = site {
            entry.target = site.shown_target(entry.target);
        }
        if cx.busiest.is_due() {
            let (target, authority) = (entry.target, head.authority);
            cx.busiest.count(&Sample { client: remote.client, target, authority, fields: &fields });
        }
        let traced = site.filter(|site| site.traces_all);
        let mut trace = traced.and_then(|site| Trace::begin(site.traced(), &remote, &fields));
        let mut made = self.transport.handshake().cloned();
        let (mut content_sink, mut content) = (None, None);
        let (mut is_exempt, mut ends_with_client) = (false, false);
        let (mut interim, mut later_signals, mut who, mut held) = (None, None, None, None);
        let asked = Asked { site, remote: &remote, is_tls, limits: limits.as_deref(), now: cx.now };
        let target = origin_form(head.target);
        let (mut outcome, mut account) = (
            Outcome::Answered,
            Account { site: 0, upstream: 0, peer: Peer::Unix, head: 0, series: SeriesId::NONE },
        );
        let series;
        let reply = match self.locate(&mut cx.admission, &cx.stats, engine, &asked, head, path) {
            Err(Rejected(why, response)) => {
                series = site.map_or(SeriesId::NONE, |site| site.series.unrouted());
                if let Some(site) = site
                    && !matches!(why, Outcome::TurnedAway)
                    && !remote.passes_on(&fields)
                {
                    site.count_unrouted(&remote, response.status);
                }
                outcome = why;
                Reply::Ready(response)
            }
            Ok(Located { site, path, query, encoded_slash, route, refused, is_too_large }) => {
                if is_too_large {
                    outcome = Outcome::TooLarge;
                }
                let mut exchange = Exchange {
                    method: head.method,
                    method_token: head.method_token,
                    target: &target,
                    path,
                    query,
                    scheme: entry.scheme,
                    authority: head.authority,
                    fields,
                    protocol: head.protocol,
                    version: head.version,
                    is_early: self.transport.is_early(),
                    now: cx.now,
                    started: head.started,
                    local: Local(LocalSource::Stream(self.transport.stream(), &self.local)),
                    state: RequestState {
                        remote,
                        tls: made.take(),
                        body: (head.has_content && !is_too_large).then(|| {
                            let (sink, content) = body::pipe(head.content_length);
                            content_sink = Some(sink);
                            content
                        }),
                        refused,
                        site: Some(site.clone()),
                        route: 0,
                        has_route: false,
                        hops: 0,
                        counted: SmallVec::new(),
                        holds: match site.has_holds {
                            false => None,
                            true => Some(held.insert(Held::new(self.holds.get_or_init(Rc::default))).holds()),
                        },
                        identity: None,
                        encoded_slash,
                        rehearsed: None,
                        matched: None,
                        is_rewritten: false,
                        is_hypothetical: false,
                        asked: None,
                        page: None,
                        trace: trace.take().map(OnceCell::from).unwrap_or_default(),
                        signals: Signals::of_client(head.version),
                    },
                };
                let reply = engine.handle(site, &mut exchange, route);
                let scheme = exchange.scheme;
                let RequestState {
                    remote, tls, body, signals, identity, trace: own, route, has_route, ..
                } = exchange.state;
                trace = own.into_inner();
                series = if has_route { site.series.of(route) } else { site.series.unrouted() };
                if let Some(trace) = trace.as_ref().filter(|_| has_route) {
                    trace.set_route(route);
                }
                if is_told {
                    (entry.client, entry.scheme) = (remote.client, scheme);
                }
                match reply {
                    Reply::Ready(_) if content_sink.is_none() => {} // it waits for nothing
                    Reply::Ready(_) => account.peer = remote.client,
                    Reply::Later(_) | Reply::Preparing(..) => {
                        (entry.client, entry.scheme) = (remote.client, scheme);
                        is_exempt = has_route && site.config().routes[route].action.always_answers();
                        let upstream = signals.upstream();
                        account = Account {
                            site: site.account(),
                            upstream,
                            peer: remote.client,
                            head: u32::try_from(head.size).unwrap_or(u32::MAX),
                            series,
                        };
                    }
                }
                ends_with_client = signals.abandons();
                (interim, later_signals) = signals.into_parts();
                (content, made, who) = (body, tls, identity);
                reply
            }
        };
        if let Reply::Ready(response) = &reply {
            cx.admission.on_answer(response, || Some(*entry));
        }
        let about = (content_sink.is_some() && head.content_length.is_none()).then(|| {
            format!("{}, {} {} at {}", entry.client, entry.method, entry.target, entry.authority).into()
        });
        Decision {
            reply,
            outcome,
            about,
            content_sink,
            content,
            account,
            is_exempt,
            ends_with_client,
            interim,
            signals: later_signals,
            tls: made,
            identity: who,
            trace,
            log,
            limits,
            held,
            series,
        }
    }

    /// Finds the site and the path of a request, or the answer to one that has none.
    #[inline(always)]
    fn locate<'p>(
        &self,
        admission: &mut Admission,
        stats: &Stats,
        engine: &Engine,
        asked: &Asked<'p>,
        head: &RequestHead<'p>,
        path: PathState<'p>,
    ) -> Result<Located<'p>, Rejected> {
        if let Some(status) = head.refused {
            let kind = match status {
                Status::URI_TOO_LONG => ParseError::TargetTooLong,
                Status::REQUEST_HEADER_FIELDS_TOO_LARGE => ParseError::HeadTooLarge,
                _ => ParseError::Other,
            };
            stats.parse_errors.add(kind, 1);
            return Err(answer::error(status).into());
        }
        let Asked { site, remote, is_tls, limits: own, now } = *asked;
        let limits = own.unwrap_or(&engine.settings.limits.request);
        let is_too_large = head.content_length.is_some_and(|len| len > limits.body_size);
        if is_too_large {
            stats.parse_errors.add(ParseError::BodyTooLarge, 1);
        }
        let normal = split_normal(head.target).filter(|_| head.method != Method::Connect);
        let (raw_path, query) = match normal {
            Some(split) => split,
            None => path_and_query(head.method, head.target)?,
        };
        let request = (head.method_token, head.target, head.authority);
        let Some(site) = site else {
            let why = "no site answers on this listener";
            return Err(answer::without_path(request, remote.client, Status::NOT_FOUND, why).into());
        };
        if let Some(why) = remote.unreadable(&head.fields) {
            let target = site.shown_target(head.target);
            return Err(answer::unreadable(head.method_token, target, head.authority, &why).into());
        }
        if self.has_expired(now) {
            let why = "The certificate that the client has shown on this connection has expired.";
            return Err(answer::explained(Status::MISDIRECTED_REQUEST, why).into());
        }
        let is_in_clear = !is_tls && !remote.is_trusted && (head.scheme.is_some() || normal.is_none());
        if is_in_clear && head.asks_for_https() {
            let why = "The request is for a URI of https, and has come over a connection without TLS that no trusted proxy made.";
            return Err(answer::explained(Status::MISDIRECTED_REQUEST, why).into());
        }
        if self.is_misdirected(engine, head.authority) {
            return Err(answer::error(Status::MISDIRECTED_REQUEST).into());
        }
        // Another site of the same connection may not have agreed to what can be repeated by anybody.
        if self.transport.is_early() && !(head.method.is_safe() && site.config().tls.takes_early_data) {
            return Err(answer::error(Status::TOO_EARLY).into());
        }
        if engine.has_entrance.get() {
            let redirects = engine.redirects_to_https(self.listener);
            let (authority, fields) = (head.authority, head.fields);
            let (remote, fields, path) = (*remote, &fields, raw_path);
            let (method, method_token) = (head.method, head.method_token);
            let arrival =
                Arrival { redirects, method, method_token, authority, path, query, is_tls, remote, fields };
            if let Some(response) = engine.entrance(site, &arrival) {
                return Err(response.into());
            }
        }
        let (read, route) = match path {
            PathState::Raw(_) if normal.is_some() => (ReadPath::plain(raw_path), None),
            PathState::Raw(buffer) => {
                let read = site.read_path(raw_path, buffer);
                let route = read.fault.is_some().then(|| site.own_route());
                (read, route)
            }
            PathState::Found(Place { read, route }) => (read, route),
        };
        let ReadPath { path, encoded_slash, fault } = read;
        let is_plain = fault.is_none() && encoded_slash == EncodedSlash::Nowhere;
        if self.is_turned_away(admission, stats, engine, site, Some(path).filter(|_| is_plain)) {
            return Err(Rejected(Outcome::TurnedAway, admission.busy()));
        }
        let mut refused = fault.and_then(|fault| site.refuses_path(fault));
        if own.is_some()
            && refused.is_none()
            && let Some(Excess { kind, status, why }) = excess(limits, head.target, head.size)
        {
            stats.parse_errors.add(kind, 1);
            refused = Some(Box::new(Refused { status, why: why.into(), is_unrouted: false }));
        }
        if is_too_large && refused.is_none() {
            let why = TooLarge { limits, length: head.content_length }.to_string().into();
            refused = Some(Box::new(Refused { status: Status::CONTENT_TOO_LARGE, why, is_unrouted: false }));
        }
        Ok(Located { site, path, query, encoded_slash, route, refused, is_too_large })
    }

    /// The client would not be let in any more by the certificate that it has shown: a new connection tells.
    #[inline(always)] // without TLS it is a look at nothing
    pub(super) fn has_expired(&self, now: i64) -> bool {
        self.transport.handshake().is_some_and(|made| made.has_expired(now))
    }

    /// The site asks other things of its clients than the one that this connection was made to.
    #[inline(always)] // without TLS it is a look at nothing
    fn is_misdirected(&self, engine: &Engine, authority: &str) -> bool {
        let handshake = self.transport.handshake();
        handshake.is_some_and(|made| !engine.admits_on(made, engine.place_of(self.listener), authority))
    }

    /// Whether the server is too busy for a request. The status page is always served, and only that to who
    /// was let in for it.
    #[inline]
    fn is_turned_away(
        &self,
        admission: &mut Admission,
        stats: &Stats,
        engine: &Engine,
        site: &Site,
        path: Option<&[u8]>,
    ) -> bool {
        let why = if let Admitted::Reserved(why) = self.entry { Some(why) } else { None };
        let always_answers = || path.is_some_and(|path| engine.always_answers(site, path));
        if (why.is_none() && !admission.may_shed_request()) || always_answers() {
            return false;
        }
        let Some(why) = why else {
            let is_shed = admission.sheds_request();
            stats.requests_shed.add(is_shed.into());
            return is_shed;
        };
        stats.connections_refused.add(1);
        stats.connection_refusals.add(why, 1);
        true
    }
}

/// Path and query of a target, as sent (RFC 9112 section 3.2). The codec has settled which authority counts.
#[inline(never)]
fn path_and_query(method: Method, target: &str) -> Result<(&str, Option<&str>), Rejected> {
    match Target::parse(method, target) {
        Ok(Target::Asterisk) => Err(answer::options_of_the_server().into()),
        Ok(Target::Authority(_)) => Err(answer::error(Status::NOT_IMPLEMENTED).into()),
        Err(_) => Err(answer::error(Status::BAD_REQUEST).into()),
        Ok(target) => match target.path() {
            Some(path) => Ok((path, target.query())),
            // `OPTIONS http://host` is `OPTIONS *`, section 3.2.4.
            None => Err(answer::options_of_the_server().into()),
        },
    }
}
