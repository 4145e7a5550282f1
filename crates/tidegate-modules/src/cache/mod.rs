//! `cache "main"`: answers of applications that are kept for whoever asks next (RFC 9111, a shared cache).
//!
//! [`Cached`] stands before the handler of a route. It looks the request up, and says in `Cache-Status` (RFC 9211) what came of
//! that; what is not there it has the handler make, once for all who ask meanwhile (`fetch`). What may be stored, for how long and for whom
//! is the policy of `tidegate_http::cache`; where it lies is for `tidegate_cache`.

mod counts;
mod desk;
mod directory;
mod disk_search;
mod disks;
mod fetch;
mod filling;
mod finding;
mod foretold;
mod handoff;
mod heads;
mod place;
mod policy;
mod prepared;
mod queries;
mod quick;
mod rest;
mod searches;
mod serve;
mod source;
mod stale;
mod verify;

pub use directory::CacheDirectory;
pub use tidegate_cache::disk::examine_way;

use crate::gateway::via::Via;
use counts::{Counts, Event, took};
use directory::Kept;
use disks::Opening;
use fetch::{Came, Fetch, For, Outcome};
use finding::{Finding, fetches_in_part, has_validator, is_readable};
use handoff::handoff;
use place::Place;
use policy::{Class, Policy};
use prepared::{Prepared, Told};
use queries::Queries;
use rest::Origin;
use serve::Source;
use stale::{Failed, failed};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_cache::{Entry, Join, Landing, Lead, Reader, Store};
use tidegate_config::settings::{Action, CacheStore, Route, RouteCache, Settings, Site};
use tidegate_core::apart::Awaited;
use tidegate_core::decoration::Decoration;
use tidegate_core::explain::Foreseen;
use tidegate_core::{Exchange, Handler, Head, Pass, Reply, Response, answer};
use tidegate_http::cache::{self, Bypass, CacheStatus, Detail, Forward, Reason, Use};
use tidegate_http::{Field, FieldLines, Fields, Method, Status};
use tidegate_io::{clock, runtime};
use tidegate_stats::series::Phase;
use tidegate_stats::{PartTimes, Timed, Worker as Stats};

/// How often a request waits for a fetch of others that turns out not to be for it; then it goes on alone.
const MOST_FLIGHTS: u8 = 3;

/// A handler whose answers are kept.
pub struct Cached(Rc<Shared>);

struct Shared {
    store: Arc<Store>,
    opening: Arc<Opening>,
    counts: Arc<Counts>,
    /// Of the store; `None` where too many parts of the server are timed.
    times: Option<Arc<PartTimes>>,
    policy: Rc<Policy>,
    /// Of all routes that use the store.
    queries: Queries,
    inner: Rc<dyn Handler>,
    /// By which a request is known that `inner` has passed on before.
    via: Option<Via>,
    /// What it answers has what the route adds.
    is_dressed: bool,
    /// What a PURGE is told to use instead.
    allow: String,
    /// Where all that the route does to a response can be done beforehand.
    prepared: Option<Prepared>,
    /// Memory for a key.
    scratch: Cell<Vec<u8>>,
    /// Fetches that go on without a client.
    unattended: Rc<Cell<usize>>,
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
        (server, stats): (&Settings, &Stats),
        inner: Rc<dyn Handler>,
    ) -> Cached {
        let decoration = Decoration::of(route);
        let is_plain =
            !decoration.has_placeholders() && route.compress.is_none() && route.server_timing.is_empty();
        // A file's answer has what the route adds already, unless that depends on the request.
        let is_dressed = matches!(route.action, Action::Files(_)) && !decoration.has_placeholders();
        let is_prepared = is_plain && !is_dressed;
        let policy = Rc::new(Policy::of_route(cache, (site, route), server));
        let made = || Prepared::new(policy.clone(), decoration, server.server_field.clone());
        let prepared = is_prepared.then(made);
        let Kept { store, opening, counts, queries } = directory.store(store, server.processes);
        queries.add(cache);
        let counts = counts.begin();
        Cached(Rc::new(Shared {
            store,
            opening,
            counts,
            times: stats.times.of(Timed::Cache(cache.store.clone())),
            policy,
            queries,
            inner,
            via: matches!(route.action, Action::Proxy(_)).then(|| Via::of(site, &route.origin)),
            is_dressed,
            allow: answer::allow_without("PURGE", route),
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

    /// A rehearsal has what only tells of it in its place.
    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
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
                return Reply::Ready(answer::never_passed_on(&self.allow));
            }
            return self.pass_by(exchange, pass, why);
        }
        let class = match self.policy.class(exchange) {
            Ok(class) => class,
            Err(why) => return self.go_alone(exchange, pass, Forward::Bypass, why),
        };
        let finding = self.find(exchange, class);
        if finding.fitting.is_none()
            && finding.hopeless.is_none()
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
                        let why = verdict.why.reason();
                        let detail = asked.is_obeyed.then_some(why.as_str());
                        let told = Told { collapsed: None, detail };
                        if !is_stale && let Some(reply) = self.hit(exchange, entry, status, told) {
                            return reply;
                        }
                        return self.serve_or_ask(exchange, pass, entry, status, Some(why.into()));
                    }
                    Use::StaleWhileRevalidate => {
                        let status = CacheStatus::hit(self.policy.name(), verdict.ttl);
                        let why = Some(verdict.why.reason().into());
                        let Some(reply) = self.serve(exchange, entry, status, why) else {
                            return self.go_alone(exchange, pass, Forward::Miss, Reason::LetGo);
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
            None if finding.part.is_some() => Forward::Partial,
            None if !finding.known.iter().any(|entry| is_readable(entry)) => Forward::UriMiss,
            None => Forward::VaryMiss,
        };
        if cache::only_if_cached(&asked) {
            let status = CacheStatus::forwarded(self.policy.name(), forward);
            let response = answer::error(Status::GATEWAY_TIMEOUT);
            return Reply::Ready(self.tell(exchange, response, status, Reason::OnlyIfCached));
        }
        if let Some(why) = finding.hopeless {
            return self.ask_alone(exchange, pass, Asking { finding, class, forward, attempt }, why);
        }
        // What can be asked about is: mostly it still holds, and answers a part as well. So does the rest of a part, soon.
        let is_worth_asking = || match (&finding.part, &finding.fitting) {
            (Some(part), _) => exchange.method == Method::Get && !self.is_far(exchange, part),
            (None, Some(entry)) => has_validator(entry),
            (None, None) => false,
        };
        if let Some(why) = fetches_in_part(exchange)
            && !is_worth_asking()
        {
            if exchange.method == Method::Head {
                return self.ask_for_head(exchange, pass, (&finding, class), forward);
            }
            return self.go_alone(exchange, pass, forward, why);
        }
        self.ask(exchange, pass, Asking { finding, class, forward, attempt })
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
            return self.go_alone(exchange, pass, asking.forward, Reason::Loop);
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
                    return self.serve_or_ask(exchange, pass, &entry, status, Some(Reason::Fresh.into()));
                }
                let (giver, taker) = handoff();
                self.fetch(exchange, pass, lead, &asking, For::Client(giver));
                exchange.ends_with_client();
                exchange.answer_after(taker, move |outcome, exchange| shared.led(exchange, outcome, &asking))
            }
            Join::Follow(_) if !self.policy.collapses() => {
                self.go_alone(exchange, pass, asking.forward, Reason::NotCollapsed)
            }
            Join::Follow(_) if asking.class.shows_who => {
                self.go_alone(exchange, pass, asking.forward, Reason::NotCollapsed)
            }
            Join::Follow(_) if asking.attempt.flights >= MOST_FLIGHTS => {
                self.go_alone(exchange, pass, asking.forward, Reason::NotAlike)
            }
            Join::Follow(flight) => {
                exchange.ends_with_client();
                let since = clock::monotonic_ns();
                exchange.answer_after(flight, move |landing, exchange| {
                    took(shared.times.as_deref(), Phase::Queue, since);
                    shared.followed(exchange, pass, landing, &asking)
                })
            }
        }
    }

    /// Asks where it is known, and why, that nothing is stored, for this client: nobody waits for it. What one odd request was answered is
    /// not what others get, so that an answer which may be stored is, and the mark goes.
    fn ask_alone(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        asking: Asking,
        why: Reason,
    ) -> Reply {
        let is_loop = || self.via.as_ref().is_some_and(|via| via.has_passed(exchange));
        let lead = if policy::asks_for_the_whole(exchange) && !is_loop() {
            self.with_key(exchange, asking.finding.class, |key| self.store.lead_alone(key))
        } else {
            None
        };
        let Some(lead) = lead else {
            let reply = self.inner.handle(exchange, pass);
            return self.alone(exchange, reply, asking.forward, Detail::Known(why));
        };
        let (shared, (giver, taker)) = (self.clone(), handoff());
        self.fetch(exchange, pass, lead, &asking, For::Client(giver));
        exchange.ends_with_client();
        exchange.answer_after(taker, move |outcome, exchange| shared.led(exchange, outcome, &asking))
    }

    /// Has the application asked, by a task that does not end with the client.
    fn fetch(&self, exchange: &mut Exchange<'_>, pass: Pass, lead: Lead, asking: &Asking, whom: For) {
        // Of the one that fits and of no other: a 304 is then about that, whatever its validators. Others may have the same ones in
        // another coding or language.
        let (part, known, conditions) = asking.finding.to_be_asked();
        let authority = policy::spelled(exchange);
        let own = self.policy.fetch_fields(exchange, &authority);
        let again = exchange.to_ask_again(&authority, &pass);
        let origin = Origin { again, inner: self.inner.clone(), fields: own.clone() };
        let mut fields = own;
        fields.append(&conditions);
        let awaited = match whom {
            For::Client(_) => Awaited::ByClient,
            For::Nobody(_) => Awaited::ByNobody,
        };
        let reply = {
            let fields: Vec<_> = fields.iter().map(|(name, value)| Field { name, value }).collect();
            let asked = (&*authority, Fields::new(&fields));
            exchange.ask_apart(asked, awaited, |inner| self.inner.handle(inner, pass))
        };
        let place = Place::of(&self.policy, exchange);
        let fetch = Fetch {
            policy: self.policy.clone(),
            counts: self.counts.clone(),
            times: self.times.clone(),
            began: clock::monotonic_ns(),
            class: asking.class,
            lead: place.fetched_by(lead),
            origin,
            known,
            part,
            key: self.with_key(exchange, asking.finding.class, <[u8]>::to_vec),
            store: self.store.clone(),
            is_hopeless: asking.finding.hopeless.is_some(),
            is_obeyed: self.policy.obeys(exchange),
            asked: exchange.now,
            place,
            unattended: self.unattended.clone(),
        };
        runtime::with(|runtime| runtime.spawn(fetch.run(reply, whom)));
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
                    Came::Completed(lines, reader) => {
                        self.counts.count(Event::Miss);
                        let status = status.forward_status(Status::PARTIAL_CONTENT).stored(true);
                        (status, lines, reader)
                    }
                    Came::Confirmed(own) => {
                        self.counts.count(Event::Revalidated);
                        let mut lines = self.aged(exchange, &entry);
                        lines.append(&own);
                        (status.forward_status(Status::NOT_MODIFIED), lines, None)
                    }
                    Came::ConfirmedForOne(lines) => {
                        self.counts.count(Event::Revalidated);
                        (status.forward_status(Status::NOT_MODIFIED), lines, None)
                    }
                };
                let reply = self.serve_by(exchange, &entry, (lines, reader), status, None);
                reply.unwrap_or_else(|| Reply::Ready(answer::error(Status::BAD_GATEWAY)))
            }
            Some(Outcome::Alone(response, why)) => {
                let known = asking.finding.hopeless;
                self.counts.count(if known.is_some() { Event::Pass } else { Event::Miss });
                let why = known.map_or(Detail::Of(why), Detail::Known);
                Reply::Ready(self.tell(exchange, response, status, why))
            }
            Some(Outcome::Failed(response)) => match self.in_need(exchange, asking, failed(&response)) {
                Some(reply) => reply,
                None => {
                    self.counts.count(Event::Miss);
                    Reply::Ready(self.tell(exchange, response, status, Reason::Failed))
                }
            },
            // What was stored could not be asked about, and is gone: it is fetched like anything else.
            Some(Outcome::Again) => match exchange.elsewhere() {
                Some(elsewhere) => {
                    let target = exchange.resolved_target().into_owned();
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
        if let Landing::Stored(entry) = &landing
            && let Some(reply) = self.plain_collapsed(exchange, entry, asking.forward)
        {
            return reply;
        }
        match landing {
            Landing::Stored(entry) if self.is_for_another(exchange, &entry, asking) => {
                self.serve_collapsed(exchange, pass, &entry, asking.forward)
            }
            Landing::Stored(_) => self.look_up(exchange, pass, asking.attempt.after_flight()),
            Landing::Pass => self.go_alone(exchange, pass, asking.forward, Reason::NotShared),
            Landing::Failed(status) => match (self.in_need(exchange, asking, Failed::ForAnother), status) {
                (Some(reply), _) => reply,
                // It may be the fault of the request that was sent: another one is tried, for all who wait.
                (None, Some(_)) if asking.attempt.flights == 0 => {
                    self.look_up(exchange, pass, asking.attempt.after_flight())
                }
                (None, Some(status)) => {
                    let status_line =
                        CacheStatus::forwarded(self.policy.name(), asking.forward).collapsed(true);
                    let response = answer::error(Status(status));
                    Reply::Ready(self.tell(exchange, response, status_line, Reason::Failed))
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
            && self.has_what_is_asked_for(exchange, entry)
    }

    /// Sends what another one has fetched.
    fn serve_collapsed(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        entry: &Arc<Entry>,
        forward: Forward,
    ) -> Reply {
        let status = CacheStatus::forwarded(self.policy.name(), forward).collapsed(true);
        self.counts.count(Event::Collapsed);
        // What is good for who has waited and for nobody else is no message for others.
        let verdict = cache::usable(&self.policy.asked(exchange), &entry.freshness(), exchange.now);
        let told = Told { collapsed: Some(forward), detail: None };
        if verdict.use_ == Use::Fresh
            && let Some(reply) = self.hit(exchange, entry, status, told)
        {
            return reply;
        }
        self.serve_or_ask(exchange, pass, entry, status, None)
    }

    /// Sends what is stored, or is on its way into the store. `None`: it is being let go of.
    fn serve(
        &self,
        exchange: &Exchange<'_>,
        entry: &Entry,
        status: CacheStatus<'_>,
        detail: Option<Detail>,
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
        detail: Option<Detail>,
    ) -> Reply {
        if !entry.content().is_complete() && self.is_far(exchange, entry) {
            return self.go_alone(exchange, pass, Forward::Partial, Reason::FarAhead);
        }
        match self.serve(exchange, entry, status, detail) {
            Some(reply) => reply,
            None => self.go_alone(exchange, pass, Forward::Miss, Reason::LetGo),
        }
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
        detail: Option<Detail>,
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
        why: Reason,
    ) -> Reply {
        let reply = self.inner.handle(exchange, pass);
        self.alone(exchange, reply, forward, why.into())
    }

    /// What the application answers this client alone.
    fn alone(self: &Rc<Self>, exchange: &Exchange<'_>, reply: Reply, forward: Forward, why: Detail) -> Reply {
        self.counts.count(match forward {
            Forward::Bypass | Forward::Method => Event::Bypassed,
            _ if matches!(why, Detail::Known(_)) => Event::Pass,
            _ => Event::Miss,
        });
        let shared = self.clone();
        let is_told = self.policy.obeys(exchange);
        reply.map(move |mut response| {
            let status = CacheStatus::forwarded(shared.policy.name(), forward);
            let status = if is_told { status.detail(why.as_str()) } else { status };
            let is_final = !matches!(response.head, Head::Fields(_));
            shared.policy.hide_tags(response.fields_mut());
            status.append_to(response.fields_mut());
            if is_final { response.finished() } else { response }
        })
    }

    /// The same for a request that no cache answers, and that may have changed what is stored.
    fn pass_by(self: &Rc<Self>, exchange: &mut Exchange<'_>, pass: Pass, why: Bypass) -> Reply {
        let changes =
            (why == Bypass::Method).then(|| (exchange.method, Place::as_sent(&self.policy, exchange)));
        let (store, queries, now) = (self.store.clone(), self.queries.clone(), exchange.now);
        self.go_alone(exchange, pass, why.forward(), why.reason()).map(move |response| {
            if let Some((method, place)) = changes {
                place.changed((&store, &queries), method, &response, now);
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
        detail: impl Into<Detail>,
    ) -> Response {
        let is_final = !matches!(response.head, Head::Fields(_));
        let lines = response.fields_mut();
        self.policy.hide_tags(lines);
        self.policy.say(exchange, status, Some(detail.into()), lines);
        if is_final { response.finished() } else { response }
    }
}
