//! `cache "main"`: answers of applications that are kept for whoever asks next (RFC 9111, a shared cache).
//!
//! [`Cached`] stands before the handler of a route. It looks the request up, and says in `Cache-Status` (RFC 9211) what came of
//! that; what is not there it has the handler make, once for all who ask meanwhile (`fetch`). What may be stored, for how long and for whom
//! is the policy of `tidegate_http::cache`; where it lies is for `tidegate_cache`.

mod counts;
mod desk;
mod directory;
mod disks;
mod fetch;
mod filling;
mod handoff;
mod place;
mod policy;
mod prepared;
mod rest;
mod searches;
mod serve;
mod source;
mod verify;

pub use directory::CacheDirectory;
pub use tidegate_cache::disk::examine_way;

use crate::gateway::via::Via;
use counts::{Counts, Event};
use directory::Kept;
use disks::Opening;
use fetch::{Came, Fetch, For, Outcome};
use filling::Unattended;
use handoff::handoff;
use place::Place;
use policy::{Class, Policy};
use prepared::Prepared;
use rest::Origin;
use serve::Source;
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_cache::{Entry, Found, Join, Landing, Lead, Reader, Store, StoredFile};
use tidegate_config::settings::{Action, CacheStore, Route, RouteCache, Settings, Site};
use tidegate_core::apart::Awaited;
use tidegate_core::decoration::Decoration;
use tidegate_core::explain::Foreseen;
use tidegate_core::{Exchange, Handler, Head, Pass, Reply, Response, answer};
use tidegate_http::cache::{self, Bypass, CacheStatus, Forward, Use, Why};
use tidegate_http::{Field, FieldLines, Fields, Method, Status};
use tidegate_io::runtime;

/// How often a request waits for a fetch of others that turns out not to be for it; then it goes on alone.
const MOST_FLIGHTS: u8 = 3;

/// Why a request waits for nobody where what was answered before was not to be stored.
const HOPELESS: &str = "known not to be stored";

/// A handler whose answers are kept.
pub struct Cached(Rc<Shared>);

struct Shared {
    store: Arc<Store>,
    opening: Arc<Opening>,
    counts: Arc<Counts>,
    policy: Rc<Policy>,
    inner: Rc<dyn Handler>,
    /// By which a request is known that `inner` has passed on before.
    via: Option<Via>,
    /// What it answers has what the route adds.
    is_dressed: bool,
    /// Where all that the route does to a response can be done beforehand.
    prepared: Option<Prepared>,
    /// Memory for a key.
    scratch: Cell<Vec<u8>>,
    /// Fetches that go on without a client.
    unattended: Rc<Cell<usize>>,
}

/// What is stored under one key.
type Variants = SmallVec<[Arc<Entry>; 1]>;

/// What has been found for a request.
struct Finding {
    /// For whom what is stored is, and the fetch of this request.
    class: Class,
    /// All that is stored for those.
    known: Variants,
    /// Of those, the one for this request.
    fitting: Option<Arc<Entry>>,
    /// It is known not to be stored.
    is_hopeless: bool,
}

/// What a request has waited for already.
#[derive(Debug, Clone, Copy, Default)]
struct Attempt {
    /// Fetches of others.
    flights: u8,
    /// The opening of the disks.
    has_waited: bool,
    /// What a disk has.
    has_read: bool,
    /// How many fetches had begun when it first asked for one: what a later one brings was asked for after this request had come.
    since: Option<u64>,
}

impl Attempt {
    fn after_flight(self) -> Attempt {
        Attempt { flights: self.flights + 1, ..self }
    }

    /// Whether this was asked for, or confirmed, after the request had come.
    fn is_before(self, entry: &Entry) -> bool {
        self.since.is_some_and(|since| since < entry.fetched())
    }
}

/// A request whose application is asked.
struct Asking {
    finding: Finding,
    class: Class,
    /// Why it is asked, for `Cache-Status`.
    forward: Forward,
    /// What it has waited for.
    attempt: Attempt,
}

impl Cached {
    /// Before a handler of a route.
    pub fn new(
        directory: &CacheDirectory,
        (store, cache): (&CacheStore, &RouteCache),
        (site, route): (&Site, &Route),
        server: &Settings,
        inner: Rc<dyn Handler>,
    ) -> Cached {
        // No two sites share a name, and one at most has none.
        let name = site.names.first().map(ToString::to_string).unwrap_or_default();
        let conditions = route.conditions.iter().map(|condition| format!(" {condition}"));
        let place = format!("{}{}", route.pattern, conditions.collect::<String>());
        let ranges = route.limits.as_ref().unwrap_or(&server.limits.request).ranges;
        let decoration = Decoration::of(route);
        let is_plain =
            !decoration.has_placeholders() && route.compress.is_none() && route.server_timing.is_empty();
        // A file's answer has what the route adds already, unless that depends on the request.
        let is_dressed = matches!(route.action, Action::Files(_)) && !decoration.has_placeholders();
        let is_prepared = is_plain && !is_dressed;
        let prepared = is_prepared.then(|| Prepared::new(decoration, server.server_field.clone()));
        let policy = Rc::new(Policy::new(cache, (&name, &place), written_by(route), ranges));
        let Kept { store, opening, counts } = directory.store(store, server.processes);
        let counts = counts.begin();
        Cached(Rc::new(Shared {
            store,
            opening,
            counts,
            policy,
            inner,
            via: matches!(route.action, Action::Proxy(_)).then(|| Via::of(site, &route.origin)),
            is_dressed,
            prepared,
            scratch: Cell::default(),
            unattended: Rc::default(),
        }))
    }
}

impl Handler for Cached {
    fn handle(&self, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        self.0.look_up(exchange, pass, Attempt::default())
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        self.0.foresee(exchange, say);
        self.0.inner.explain(exchange, say)
    }
}

impl Shared {
    /// Answers from the store, or asks.
    fn look_up(self: &Rc<Self>, exchange: &mut Exchange<'_>, pass: Pass, attempt: Attempt) -> Reply {
        if let Some(reply) = self.plain_hit(exchange) {
            return reply;
        }
        let asked = self.policy.asked(exchange);
        if let Err(why) = cache::lookup_allowed(&asked) {
            // Other caches empty themselves by it, for whoever asks; the application has not asked for such requests.
            if exchange.method_token == "PURGE" {
                return Reply::Ready(answer::error(Status::METHOD_NOT_ALLOWED).with("Allow", "GET, HEAD"));
            }
            return self.pass_by(exchange, pass, why);
        }
        let class = self.policy.class(exchange);
        if class == Class::PastTheCache {
            return self.go_alone(exchange, pass, Forward::Bypass, "past the cache");
        }
        let finding = self.find(exchange, class);
        if finding.fitting.is_none()
            && !finding.is_hopeless
            && let Some(below) = self.below(exchange, &finding, attempt)
        {
            return self.ask_below(exchange, pass, below, attempt);
        }
        let forward = match &finding.fitting {
            Some(entry) => {
                self.policy.learn_query(exchange, &entry.head().lines);
                let verdict = cache::usable(&asked, &entry.freshness(), exchange.now);
                match verdict.use_ {
                    Use::Fresh | Use::Stale => {
                        let is_stale = verdict.use_ == Use::Stale;
                        self.counts.count(if is_stale { Event::StaleHit } else { Event::Hit });
                        let status = CacheStatus::hit(self.policy.name(), verdict.ttl);
                        let detail = asked.is_obeyed.then_some(verdict.why.as_str());
                        if !is_stale && let Some(reply) = self.hit(exchange, entry, status, detail) {
                            return reply;
                        }
                        return self.serve_or_ask(exchange, pass, entry, status, verdict.why.as_str());
                    }
                    Use::StaleWhileRevalidate => {
                        let status = CacheStatus::hit(self.policy.name(), verdict.ttl);
                        let Some(reply) = self.serve(exchange, entry, status, verdict.why.as_str()) else {
                            return self.go_alone(exchange, pass, Forward::Miss, "let go of");
                        };
                        self.counts.count(Event::StaleHit);
                        let asking = Asking { finding, class, forward: Forward::Stale, attempt };
                        self.refresh_behind(exchange, pass, &asking);
                        return reply;
                    }
                    Use::Validate | Use::Fetch
                        if attempt.is_before(entry)
                            && cache::usable_once_fetched(&asked, &entry.freshness()) =>
                    {
                        let forward = verdict.why.forward();
                        return self.serve_collapsed(exchange, pass, entry, forward);
                    }
                    Use::Validate | Use::Fetch => verdict.why.forward(),
                }
            }
            None if finding.known.is_empty() => Forward::UriMiss,
            None => Forward::VaryMiss,
        };
        if cache::only_if_cached(&asked) {
            let status = CacheStatus::forwarded(self.policy.name(), forward);
            let response = answer::error(Status::GATEWAY_TIMEOUT);
            return Reply::Ready(self.tell(exchange, response, status, "only-if-cached"));
        }
        if finding.is_hopeless {
            return self.go_alone(exchange, pass, forward, HOPELESS);
        }
        // What can be asked about is: mostly it still holds, and answers a part as well.
        let can_be_confirmed = || finding.fitting.as_ref().is_some_and(|entry| has_validator(entry));
        if let Some(why) = fetches_in_part(exchange)
            && !can_be_confirmed()
        {
            return self.go_alone(exchange, pass, forward, why);
        }
        self.ask(exchange, pass, Asking { finding, class, forward, attempt })
    }

    /// What is stored for a request: by requests like it, or by others, for everybody.
    fn find(&self, exchange: &Exchange<'_>, class: Class) -> Finding {
        let is_fitting = |entry: &&Arc<Entry>| {
            let head = entry.head();
            Policy::is_for(class, &head.freshness, &head.lines)
                && head.varying.fits(exchange.fields)
                && self.policy.is_for_query(exchange, &head.target, &head.lines)
                && is_readable(entry)
        };
        let (own, other) = match class {
            _ if class.is_open() => (class, Class::Cookies),
            _ => (Class::Cookies, Class::Anyone),
        };
        let mut finding = Finding { class: own, known: Variants::new(), fitting: None, is_hopeless: false };
        match self.with_key(exchange, own, |key| self.store.look_up(key, exchange.now)) {
            Found::Stored(known) => {
                finding.fitting = known.iter().find(is_fitting).cloned();
                finding.known = known;
            }
            Found::Pass => finding.is_hopeless = true,
            Found::Nothing => {}
        }
        if finding.fitting.is_none()
            && let Found::Stored(known) =
                self.with_key(exchange, other, |key| self.store.look_up(key, exchange.now))
            && let Some(fitting) = known.iter().find(is_fitting).cloned()
            && Policy::is_for(other, &fitting.head().freshness, &fitting.head().lines)
            && Policy::is_for(own, &fitting.head().freshness, &fitting.head().lines)
        {
            return Finding { class: other, known, fitting: Some(fitting), is_hopeless: false };
        }
        finding
    }

    /// Lends the key of a request.
    fn with_key<R>(&self, exchange: &Exchange<'_>, class: Class, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut key = self.scratch.take();
        key.clear();
        self.policy.key(exchange, class, &mut key);
        let result = f(&key);
        self.scratch.set(key);
        result
    }

    /// Begins to fetch it, or finds who does already.
    fn join(&self, exchange: &Exchange<'_>, finding: &Finding) -> Join {
        self.with_key(exchange, finding.class, |key| self.store.join(key, exchange.fields))
    }

    /// Fetches it, or waits for who does already.
    fn ask(self: &Rc<Self>, exchange: &mut Exchange<'_>, pass: Pass, mut asking: Asking) -> Reply {
        if self.via.as_ref().is_some_and(|via| via.has_passed(exchange)) {
            // The fetch that it would wait for waits for it: `proxy` refuses it.
            return self.go_alone(exchange, pass, asking.forward, "loop");
        }
        let shared = self.clone();
        asking.attempt.since.get_or_insert_with(|| self.store.fetches());
        match self.join(exchange, &asking.finding) {
            Join::Lead(lead) => {
                // It may have come in since it was looked for.
                let mut stored = lead.stored().iter();
                if let Some(entry) = stored.find(|entry| self.is_for_another(exchange, entry, &asking)) {
                    let entry = entry.clone();
                    lead.serve(&entry);
                    self.counts.count(Event::Hit);
                    let status = CacheStatus::hit(self.policy.name(), entry.freshness().ttl(exchange.now));
                    return self.serve_or_ask(exchange, pass, &entry, status, Why::Fresh.as_str());
                }
                let (giver, taker) = handoff();
                self.fetch(exchange, pass, lead, &asking, For::Client(giver));
                exchange.ends_with_client();
                exchange.answer_after(taker, move |outcome, exchange| shared.led(exchange, outcome, &asking))
            }
            Join::Follow(_) if !self.policy.collapses() => {
                self.go_alone(exchange, pass, asking.forward, "not collapsed")
            }
            Join::Follow(_) if asking.class == Class::Credentials => {
                self.go_alone(exchange, pass, asking.forward, "authorization")
            }
            Join::Follow(_) if asking.attempt.flights >= MOST_FLIGHTS => {
                self.go_alone(exchange, pass, asking.forward, "others were not alike")
            }
            Join::Follow(flight) => {
                exchange.ends_with_client();
                exchange.answer_after(flight, move |landing, exchange| {
                    shared.followed(exchange, pass, landing, &asking)
                })
            }
        }
    }

    /// Has the application asked, by a task that does not end with the client.
    fn fetch(&self, exchange: &mut Exchange<'_>, pass: Pass, lead: Lead, asking: &Asking, whom: For) {
        // Of the one that fits and of no other: a 304 is then about that, whatever its validators. Others may have the same ones in
        // another coding or language.
        let known = asking.finding.fitting.clone().filter(|entry| entry.content().is_complete());
        let conditions = cache::validators(known.as_ref().map(|entry| &entry.head().lines), []);
        let own = Policy::fetch_fields(exchange.fields);
        let again = exchange.to_ask_again(&pass);
        let origin = Origin { again, inner: self.inner.clone(), fields: own.clone() };
        let mut fields = own;
        fields.append(&conditions);
        let awaited = match whom {
            For::Client(_) => Awaited::ByClient,
            For::Nobody(_) => Awaited::ByNobody,
        };
        let reply = {
            let fields: Vec<_> = fields.iter().map(|(name, value)| Field { name, value }).collect();
            exchange.ask_apart(Fields::new(&fields), awaited, |inner| self.inner.handle(inner, pass))
        };
        let fetch = Fetch {
            policy: self.policy.clone(),
            counts: self.counts.clone(),
            class: asking.class,
            lead,
            origin,
            known,
            key: self.with_key(exchange, asking.finding.class, <[u8]>::to_vec),
            store: self.store.clone(),
            is_obeyed: self.policy.obeys(exchange),
            asked: exchange.now,
            place: Place::of(&self.policy, exchange),
            unattended: self.unattended.clone(),
        };
        runtime::with(|runtime| runtime.spawn(fetch.run(reply, whom)));
    }

    /// Asks whether what was just sent still holds. Who else asks meanwhile gets it as well, for as long as that is allowed.
    fn refresh_behind(&self, exchange: &mut Exchange<'_>, pass: Pass, asking: &Asking) {
        let Some(unattended) = Unattended::begin(&self.unattended) else { return };
        if let Join::Lead(lead) = self.join(exchange, &asking.finding) {
            self.fetch(exchange, pass, lead, asking, For::Nobody(unattended));
        }
    }

    /// The answer for the client that has set off a fetch.
    fn led(&self, exchange: &mut Exchange<'_>, outcome: Option<Outcome>, asking: &Asking) -> Reply {
        let status = CacheStatus::forwarded(self.policy.name(), asking.forward);
        match outcome {
            Some(Outcome::Stored(entry, came)) => {
                self.policy.learn_query(exchange, &entry.head().lines);
                let (status, lines, reader) = match came {
                    Came::Fetched(lines, reader) => {
                        self.counts.count(Event::Miss);
                        (status.stored(true), lines, reader)
                    }
                    Came::Confirmed(own) => {
                        self.counts.count(Event::Revalidated);
                        let mut lines = self.aged(exchange, &entry);
                        lines.append(&own);
                        (status.forward_status(Status::NOT_MODIFIED), lines, None)
                    }
                };
                let reply = self.serve_by(exchange, &entry, (lines, reader), status, "");
                reply.unwrap_or_else(|| Reply::Ready(answer::error(Status::BAD_GATEWAY)))
            }
            Some(Outcome::Alone(response, why)) => {
                self.counts.count(Event::Miss);
                Reply::Ready(self.tell(exchange, response, status, why))
            }
            Some(Outcome::Failed(response)) => match self.in_need(exchange, asking) {
                Some(reply) => reply,
                None => {
                    self.counts.count(Event::Miss);
                    Reply::Ready(self.tell(exchange, response, status, "failed"))
                }
            },
            // What was stored could not be asked about, and is gone: it is fetched like anything else.
            Some(Outcome::Again) => match exchange.elsewhere() {
                Some(elsewhere) => {
                    let target = policy::target(exchange).into_owned();
                    Reply::Later(Box::pin(async move { elsewhere.answer(&target).await }))
                }
                None => Reply::Ready(answer::error(Status::BAD_GATEWAY)),
            },
            None => Reply::Ready(answer::error(Status::BAD_GATEWAY)),
        }
    }

    /// The answer for a client that has waited for the fetch of another.
    fn followed(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        landing: Landing,
        asking: &Asking,
    ) -> Reply {
        match landing {
            Landing::Stored(entry) if self.is_for_another(exchange, &entry, asking) => {
                self.serve_collapsed(exchange, pass, &entry, asking.forward)
            }
            Landing::Stored(_) => self.look_up(exchange, pass, asking.attempt.after_flight()),
            Landing::Pass => self.go_alone(exchange, pass, asking.forward, "not stored"),
            Landing::Failed(status) => match (self.in_need(exchange, asking), status) {
                (Some(reply), _) => reply,
                // It may be the fault of the request that was sent: another one is tried, for all who wait.
                (None, Some(_)) if asking.attempt.flights == 0 => {
                    self.look_up(exchange, pass, asking.attempt.after_flight())
                }
                (None, Some(status)) => {
                    let status_line =
                        CacheStatus::forwarded(self.policy.name(), asking.forward).collapsed(true);
                    let response = answer::error(Status(status));
                    Reply::Ready(self.tell(exchange, response, status_line, "failed"))
                }
                (None, None) => self.look_up(exchange, pass, asking.attempt.after_flight()),
            },
        }
    }

    /// Whether what has just been fetched for one client may be sent to another without asking again.
    fn is_for_another(&self, exchange: &Exchange<'_>, entry: &Entry, asking: &Asking) -> bool {
        let (head, freshness) = (entry.head(), entry.freshness());
        let asked = self.policy.asked(exchange);
        let is_usable = || match cache::usable(&asked, &freshness, exchange.now).use_ {
            Use::Fresh => true,
            _ => asking.attempt.is_before(entry) && cache::usable_once_fetched(&asked, &freshness),
        };
        Policy::is_for(asking.class, &head.freshness, &head.lines)
            && head.varying.fits(exchange.fields)
            && self.policy.is_for_query(exchange, &head.target, &head.lines)
            && is_usable()
            && is_readable(entry)
    }

    /// Sends what another one has fetched.
    fn serve_collapsed(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        entry: &Entry,
        forward: Forward,
    ) -> Reply {
        let status = CacheStatus::forwarded(self.policy.name(), forward).collapsed(true);
        self.counts.count(Event::Collapsed);
        self.serve_or_ask(exchange, pass, entry, status, "")
    }

    /// What is stored, where the application has failed and that is good enough (RFC 5861 section 4).
    fn in_need(&self, exchange: &mut Exchange<'_>, asking: &Asking) -> Option<Reply> {
        let entry = asking.finding.fitting.as_ref()?;
        let freshness = entry.freshness();
        if !cache::usable_on_error(&self.policy.asked(exchange), &freshness, exchange.now) {
            return None;
        }
        let status = CacheStatus::hit(self.policy.name(), freshness.ttl(exchange.now));
        self.counts.count(Event::StaleHit);
        self.serve(exchange, entry, status, "stale-if-error")
    }

    /// Sends what is stored, or is on its way into the store. `None`: it is being let go of.
    fn serve(
        &self,
        exchange: &Exchange<'_>,
        entry: &Entry,
        status: CacheStatus<'_>,
        detail: &str,
    ) -> Option<Reply> {
        self.serve_by(exchange, entry, (self.aged(exchange, entry), None), status, detail)
    }

    /// The same; what is being let go of, the application is asked for.
    fn serve_or_ask(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        entry: &Entry,
        status: CacheStatus<'_>,
        detail: &str,
    ) -> Reply {
        match self.serve(exchange, entry, status, detail) {
            Some(reply) => reply,
            None => self.go_alone(exchange, pass, Forward::Miss, "let go of"),
        }
    }

    /// What is asked for again within a second, by who is nobody in particular.
    #[inline]
    fn plain_hit(&self, exchange: &Exchange<'_>) -> Option<Reply> {
        let prepared = self.prepared.as_ref().filter(|_| !self.policy.knows_everybody())?;
        let detail = self.policy.obeys(exchange).then_some(Why::Fresh.as_str());
        let (response, entry) = prepared.plain_hit(exchange, detail)?;
        self.counts.count(Event::Hit);
        entry.touch();
        Some(Reply::Ready(response))
    }

    /// What is stored, for a request for the whole, by a message that is there already.
    fn hit(
        &self,
        exchange: &Exchange<'_>,
        entry: &Arc<Entry>,
        status: CacheStatus<'_>,
        detail: Option<&'static str>,
    ) -> Option<Reply> {
        let response = self.prepared.as_ref()?.hit(exchange, (&self.store, entry), status, detail)?;
        entry.touch();
        Some(Reply::Ready(response))
    }

    /// The stored fields, with the age that they have by now.
    fn aged(&self, exchange: &Exchange<'_>, entry: &Entry) -> FieldLines {
        let head = entry.head();
        let mut lines = head.lines.clone();
        cache::set_age(&mut lines, head.freshness.age(exchange.now));
        lines
    }

    fn serve_by(
        &self,
        exchange: &Exchange<'_>,
        entry: &Entry,
        (mut lines, reader): (FieldLines, Option<Reader>),
        status: CacheStatus<'_>,
        detail: &str,
    ) -> Option<Reply> {
        entry.touch();
        self.policy.say(exchange, status, detail, &mut lines);
        let source = Source::of(entry.content());
        let response = serve::respond(exchange, entry.head(), lines, (&source, reader), self.policy.ranges);
        let dressed = |response: Response| if self.is_dressed { response.finished() } else { response };
        response.map(dressed).map(Reply::Ready)
    }

    /// Has the application answer this client, and nobody else.
    fn go_alone(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        forward: Forward,
        why: &'static str,
    ) -> Reply {
        self.counts.count(match forward {
            Forward::Bypass | Forward::Method => Event::Bypassed,
            _ if why == HOPELESS => Event::Pass,
            _ => Event::Miss,
        });
        let shared = self.clone();
        let is_told = self.policy.obeys(exchange);
        self.inner.handle(exchange, pass).map(move |mut response| {
            let status = CacheStatus::forwarded(shared.policy.name(), forward);
            let status = if is_told { status.detail(why) } else { status };
            let is_final = !matches!(response.head, Head::Fields(_));
            shared.policy.hide_tags(response.fields_mut());
            status.append_to(response.fields_mut());
            if is_final { response.finished() } else { response }
        })
    }

    /// The same for a request that no cache answers, and that may have changed what is stored.
    fn pass_by(self: &Rc<Self>, exchange: &mut Exchange<'_>, pass: Pass, why: Bypass) -> Reply {
        let changes = (why == Bypass::Method).then(|| (exchange.method, Place::of(&self.policy, exchange)));
        let (store, policy, now) = (self.store.clone(), self.policy.clone(), exchange.now);
        self.go_alone(exchange, pass, why.forward(), why.as_str()).map(move |response| {
            if let Some((method, place)) = changes {
                place.changed((&store, &policy), method, &response, now);
            }
            response
        })
    }

    /// Says in a response that was made for this client alone what was done.
    fn tell(
        &self,
        exchange: &Exchange<'_>,
        mut response: Response,
        status: CacheStatus<'_>,
        detail: &str,
    ) -> Response {
        let is_final = !matches!(response.head, Head::Fields(_));
        let lines = response.fields_mut();
        self.policy.hide_tags(lines);
        self.policy.say(exchange, status, detail, lines);
        if is_final { response.finished() } else { response }
    }

    /// Says what would be looked up.
    fn foresee(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) {
        let asked = self.policy.asked(exchange);
        let name = self.policy.name();
        if let Err(why) = cache::lookup_allowed(&asked) {
            return say(format!("cache {name}: goes past it ({})", why.as_str()));
        }
        say(match self.policy.class(exchange) {
            Class::PastTheCache => {
                format!(
                    "cache {name}: goes past it, for a cookie of `bypass-cookies`, one that is there twice, or a field that `Connection` names"
                )
            }
            Class::Anyone | Class::AnyoneWithCookies => format!(
                "cache {name}: looked up; whether it is stored for others, the answer of the application says"
            ),
            Class::Cookies => {
                format!(
                    "cache {name}: looked up; with a cookie, only what says `public` or `s-maxage` is used or stored"
                )
            }
            Class::Credentials => format!(
                "cache {name}: looked up; for who says who it is, only what says `public`, `s-maxage` or `must-revalidate` is used or stored"
            ),
        });
    }
}

/// Whether its content can be had: a disk may have failed.
fn is_readable(entry: &Entry) -> bool {
    entry.content().file().is_none_or(StoredFile::is_readable)
}

/// Fields that a route writes into its requests, in small letters.
fn written_by(route: &Route) -> Vec<String> {
    let Action::Proxy(proxy) = &route.action else { return Vec::new() };
    let set = proxy.request_fields.iter().map(|(name, _)| name);
    let names = set.chain(proxy.more_request_fields.iter().map(|field| &field.name));
    names.map(|name| name.to_ascii_lowercase()).collect()
}

/// Whether the application can be asked whether it still holds.
fn has_validator(entry: &Entry) -> bool {
    let lines = &entry.head().lines;
    entry.content().is_complete() && (lines.contains("ETag") || lines.contains("Last-Modified"))
}

/// Why the whole is not fetched for a request: HEAD asks for no content, and a range may begin far behind what comes first.
fn fetches_in_part(exchange: &Exchange<'_>) -> Option<&'static str> {
    if exchange.method == Method::Head {
        return Some("head");
    }
    let range = exchange.fields.first("range")?;
    (!range.trim_ascii().starts_with(b"bytes=0-")).then_some("range")
}
