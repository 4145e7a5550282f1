//! What a request leaves for its access line, and for operators, beside its head: its id, where it went, who was asked and how
//! long that took.
//!
//! `conn/decide` begins a [`Trace`] where the site gives ids or its log shows one; else it is begun when the request is kept, or
//! asks an application (`state`): what is answered at once by the server itself has none. `modules/gateway` writes down whom it
//! asks.

use crate::exchange::Exchange;
use crate::remote::Remote;
use crate::trace_context::{TraceContext, digits, new_span_id};
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use tidegate_config::settings::{self, Sampling, UpstreamStage};
use tidegate_http::Fields;
use tidegate_io::clock::{monotonic_ns, recent_ns};
use tidegate_io::connect::Address;
use tidegate_stats::series::Phase;

/// The field that the id of a request comes and goes in.
pub const REQUEST_ID: &str = "x-request-id";
/// Bytes of an id that a proxy has made.
const ID_MAX: usize = 128;
/// Bytes of one that is made here.
const ID_BYTES: usize = 16;
/// Ids made of the random bytes of one call.
const IDS_AT_ONCE: usize = 32;
/// Traces of requests before that a thread keeps for the next ones: of as many as may wait at once most often.
const SPARE: usize = 64;
/// Members that are told of: more are not tried for one request.
const TRIES_MAX: usize = 16;

/// How the site and its routes are called in logs.
#[derive(Debug)]
pub(crate) struct Traced {
    site: String,
    routes: Vec<String>,
    has_id: bool,
    sampling: Option<Sampling>,
}

impl Traced {
    /// Of a site.
    pub(crate) fn of(config: &settings::Site) -> Rc<Traced> {
        Rc::new(Traced {
            site: config.names.first().map(ToString::to_string).unwrap_or_default(),
            routes: config.routes.iter().map(|route| route.pattern.to_string()).collect(),
            has_id: config.has_request_id,
            sampling: config.sampling,
        })
    }
}

/// What is remembered of one request.
#[derive(Debug)]
pub struct Trace {
    of: Rc<Traced>,
    id: Option<String>,
    context: Option<Box<TraceContext>>,
    route: Cell<Option<usize>>,
    tries: RefCell<SmallVec<[Try; 1]>>,
    /// Of all tries together.
    times: Cell<PhaseTimes>,
    /// The application that it waits for a place on.
    queued_for: RefCell<Option<String>>,
    /// What the application that is asked next is asked for, where that has a URL and the request is sampled.
    url: RefCell<Option<Rc<str>>>,
}

/// How long a request was in each phase, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PhaseTimes {
    /// Waiting for a place: among those in flight, or on an application.
    pub queue: u64,
    /// Connecting to applications.
    pub connect: u64,
    /// From the first byte sent to an application to the head of its answer.
    pub application: u64,
}

/// One member that was asked. Times are monotonic, nanoseconds; 0 is for what has not come to pass.
#[derive(Debug, Clone)]
struct Try {
    /// `None`: a process that was started for the request.
    member: Option<Address>,
    /// Its span, where the request is sampled.
    span_id: Option<[u8; 16]>,
    url: Option<Rc<str>>,
    status: u16,
    began: u64,
    connected: u64,
    answered: u64,
    ended: u64,
    /// How long it took is among the times of the request.
    is_counted: bool,
}

impl Trace {
    /// For a request of a site, in the memory of one before it that nobody has any more.
    #[cold]
    pub(crate) fn begin(of: &Rc<Traced>, remote: &Remote, fields: &Fields<'_>) -> Option<Rc<Trace>> {
        thread_local! {
            static BEFORE: RefCell<(usize, [Option<Rc<Trace>>; SPARE])> = const { RefCell::new((0, [const { None }; SPARE])) };
        }
        let id = of.has_id.then(|| told_by_proxy(remote, fields).or_else(new_id)).flatten();
        let begin = |sampling| TraceContext::begin(sampling, remote.is_trusted, fields);
        let context = of.sampling.and_then(begin).map(Box::new);
        BEFORE.with_borrow_mut(|(next, before)| {
            // The one of the last request is still near; where somebody has it, the one that was had longest ago may be free.
            if before.get_mut(*next)?.as_mut().is_some_and(|trace| Rc::get_mut(trace).is_none()) {
                *next = (*next + 1) % SPARE;
            }
            let spare = before.get_mut(*next)?;
            match spare.as_mut().and_then(Rc::get_mut) {
                Some(spare) => spare.begin_anew(of, id, context),
                None => *spare = Some(Rc::new(Trace::new(of, id, context))),
            }
            spare.clone()
        })
    }

    fn new(of: &Rc<Traced>, id: Option<String>, context: Option<Box<TraceContext>>) -> Trace {
        Trace {
            of: of.clone(),
            id,
            context,
            route: Cell::new(None),
            tries: RefCell::default(),
            times: Cell::default(),
            queued_for: RefCell::default(),
            url: RefCell::default(),
        }
    }

    /// Becomes that of another request. Every field is named, so that nothing is left of the one before.
    fn begin_anew(&mut self, of: &Rc<Traced>, id: Option<String>, context: Option<Box<TraceContext>>) {
        let Trace { of: site, id: own_id, context: own, route, tries, times, queued_for, url } = self;
        if !Rc::ptr_eq(site, of) {
            *site = of.clone();
        }
        (*own_id, *own) = (id, context);
        route.set(None);
        tries.get_mut().clear();
        times.set(PhaseTimes::default());
        *queued_for.get_mut() = None;
        *url.get_mut() = None;
    }

    /// The route that the client's own request came to.
    pub(crate) fn set_route(&self, index: usize) {
        self.route.set(Some(index));
    }

    /// The id, where the site gives one.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The trace that it belongs to, where the site has `trace-context begin`.
    pub fn context(&self) -> Option<&TraceContext> {
        self.context.as_deref()
    }

    /// The id of that trace; empty where there is none.
    pub(crate) fn trace_id(&self) -> &str {
        self.context().map_or("", TraceContext::trace_id)
    }

    /// The first name of the site; empty where it has none.
    pub fn site(&self) -> &str {
        &self.of.site
    }

    /// The pattern of the route; empty where the request has come to none.
    pub fn route(&self) -> &str {
        self.route.get().and_then(|index| self.of.routes.get(index)).map_or("", String::as_str)
    }

    /// A phase of it took so long.
    pub fn took(&self, phase: Phase, nanos: u64) {
        let mut times = self.times.get();
        let time = match phase {
            Phase::Queue => &mut times.queue,
            Phase::Connect => &mut times.connect,
            Phase::Application => &mut times.application,
            Phase::FirstByte => return,
        };
        *time = time.saturating_add(nanos);
        self.times.set(times);
        if phase == Phase::Application {
            self.mark(|last| last.is_counted = true);
        }
    }

    /// How long it was in each phase so far.
    pub(crate) fn times(&self) -> PhaseTimes {
        self.times.get()
    }

    /// When the head of the answer came that was passed on: monotonic, nanoseconds.
    pub(crate) fn answered_at(&self) -> Option<u64> {
        self.tries.borrow().last().map(|last| last.answered).filter(|at| *at != 0)
    }

    /// It begins to wait for a place on this application; `None`: it no longer does.
    pub fn set_queued_for(&self, application: Option<&str>) {
        *self.queued_for.borrow_mut() = application.map(str::to_owned);
    }

    /// The application that it waits for a place on.
    pub(crate) fn queued_for(&self) -> Option<String> {
        self.queued_for.borrow().clone()
    }

    /// A member has been chosen, and the request is about to be sent there; `began` is monotonic, nanoseconds.
    pub fn begin_try(&self, member: Option<Address>, began: u64) {
        let mut tries = self.tries.borrow_mut();
        if tries.len() < TRIES_MAX {
            let url = self.url.borrow().clone();
            let span_id = self.sampled_context().and_then(|context| match tries.len() {
                0 => Some(context.first_try()),
                _ => new_span_id(),
            });
            tries.push(Try {
                member,
                span_id,
                url,
                status: 0,
                began,
                connected: 0,
                answered: 0,
                ended: 0,
                is_counted: false,
            });
        }
    }

    /// The trace that it belongs to, where its spans are to be told of.
    pub(crate) fn sampled_context(&self) -> Option<&TraceContext> {
        self.context().filter(|context| context.is_sampled())
    }

    /// What applications are asked for from here on, as a URL; `None` where they are asked in another way than by HTTP.
    pub fn set_url(&self, url: Option<impl FnOnce() -> String>) {
        if self.sampled_context().is_some() {
            *self.url.borrow_mut() = url.map(|url| url().into());
        }
    }

    /// Whether a member was asked before the last one.
    pub fn is_asked_again(&self) -> bool {
        self.tries() > 1
    }

    /// Has the head of a request that is sent again tell of the span of this try.
    pub fn rename_span(&self, head: &mut [u8]) {
        let Some(context) = self.sampled_context() else { return };
        let tries = self.tries.borrow();
        let [earlier @ .., last] = &tries[..] else { return };
        let Some(span_id) = last.span_id.filter(|_| !earlier.is_empty()) else { return };
        let earlier: SmallVec<[[u8; 16]; 2]> = earlier.iter().filter_map(|before| before.span_id).collect();
        context.rename_span(head, &earlier, &span_id);
    }

    /// There is a connection to the member that was chosen last; `now` is monotonic, nanoseconds.
    pub fn connected(&self, now: u64) {
        self.mark(|last| last.connected = now);
    }

    /// The head of its answer has come; `now` as in [`Trace::connected`].
    pub fn answered(&self, status: u16, now: u64) {
        self.mark(|last| (last.answered, last.status) = (now, status));
    }

    /// It is done with, whatever came of it. Where the client did not wait for it, it has taken until now.
    pub fn end_try(&self) {
        let mut lasted = 0;
        self.mark(|last| {
            last.ended = recent_ns();
            if last.connected != 0 && !last.is_counted {
                lasted = last.ended.saturating_sub(last.connected);
            }
        });
        let mut times = self.times.get();
        times.application = times.application.saturating_add(lasted);
        self.times.set(times);
    }

    fn mark(&self, set: impl FnOnce(&mut Try)) {
        let mut tries = self.tries.borrow_mut();
        if let Some(last) = tries.last_mut().filter(|last| last.ended == 0) {
            set(last);
        }
    }

    /// How many members were asked.
    pub(crate) fn tries(&self) -> usize {
        self.tries.borrow().len()
    }

    /// Tells of each member: its name, the status it has answered (0 for none), and how long a stage took, nanoseconds,
    /// where it has been reached. One that is not done with has taken until now.
    pub(crate) fn each_try(&self, mut tell: impl FnMut(&Asked<'_>)) {
        let tries = self.tries.borrow();
        for asked in tries.iter() {
            tell(&Asked(asked));
        }
    }
}

#[cfg(test)]
impl Trace {
    /// One that is sampled, or is not.
    pub(crate) fn sampled(is_sampled: bool) -> Rc<Trace> {
        let of = Traced { site: "a.test".into(), routes: Vec::new(), has_id: false, sampling: None };
        let sampling = Sampling::of_millionths(if is_sampled { 1_000_000 } else { 0 });
        Rc::new(Trace {
            of: Rc::new(of),
            id: None,
            context: TraceContext::begin(sampling, false, &Fields::default()).map(Box::new),
            route: Cell::new(None),
            tries: RefCell::default(),
            times: Cell::default(),
            queued_for: RefCell::default(),
            url: RefCell::default(),
        })
    }

    /// One of members that have answered so, by their addresses or the paths of their sockets; each took a millisecond for each stage that it has come to.
    pub(crate) fn made(id: Option<&str>, site: &str, route: &str, tries: &[(&str, u16)]) -> Rc<Trace> {
        let routes = vec![route.to_owned()];
        let of = Traced { site: site.to_owned(), routes, has_id: true, sampling: None };
        let made = |(member, status): &(&str, u16)| {
            let after = |stage: u64| if *status == 0 { 0 } else { 1 + stage * 1_000_000 };
            let (connected, answered) = (after(1), after(2));
            Try {
                member: Some(
                    member
                        .parse()
                        .map_or_else(|_| Address::Unix(std::path::Path::new(member).into()), Address::Tcp),
                ),
                span_id: None,
                url: None,
                status: *status,
                began: 1,
                connected,
                answered,
                ended: 3_000_001,
                is_counted: true,
            }
        };
        Rc::new(Trace {
            of: Rc::new(of),
            id: id.map(str::to_owned),
            context: None,
            route: Cell::new(Some(0)),
            tries: RefCell::new(tries.iter().map(made).collect()),
            times: Cell::default(),
            queued_for: RefCell::default(),
            url: RefCell::default(),
        })
    }
}

/// A member that was asked, for a log.
pub(crate) struct Asked<'t>(&'t Try);

impl Asked<'_> {
    /// Its address; empty where it has none.
    pub(crate) fn member(&self) -> String {
        self.0.member.as_ref().map(Address::to_string).unwrap_or_default()
    }

    /// How long ago it was chosen, nanoseconds.
    pub(crate) fn began_ago(&self) -> u64 {
        monotonic_ns().saturating_sub(self.0.began)
    }

    /// The id of its span, where the request is sampled.
    pub(crate) fn span_id(&self) -> &str {
        let id = self.0.span_id.as_ref().map_or(&[][..], |id| &id[..]);
        std::str::from_utf8(id).unwrap_or_default()
    }

    /// What it was asked for, where that is a URL.
    pub(crate) fn url(&self) -> &str {
        self.0.url.as_deref().unwrap_or_default()
    }

    /// What it has answered.
    pub(crate) fn status(&self) -> Option<u16> {
        Some(self.0.status).filter(|status| *status != 0)
    }

    /// How long that took, nanoseconds, where it has come so far.
    pub(crate) fn nanos(&self, stage: UpstreamStage) -> Option<u64> {
        let Try { began, connected, answered, ended, .. } = *self.0;
        let at = match stage {
            UpstreamStage::Connected => connected,
            UpstreamStage::FirstByte => answered,
            UpstreamStage::Complete if ended == 0 => monotonic_ns(),
            UpstreamStage::Complete => ended,
        };
        (at != 0).then(|| at.saturating_sub(began))
    }
}

impl Exchange<'_> {
    /// The id of the request, where its site gives one.
    pub fn request_id(&self) -> Option<&str> {
        self.state.trace.get()?.id()
    }

    /// The trace that the request belongs to, where its site has `trace-context begin`.
    pub fn trace_context(&self) -> Option<&TraceContext> {
        self.state.trace.get()?.context()
    }

    /// For who asks others about it; `None` where it came from nobody.
    pub fn watcher(&self) -> Option<Rc<Trace>> {
        self.state.trace()
    }
}

/// The id that a proxy of one's own has given the request. Whatever else stands in the field is nobody's word.
fn told_by_proxy(remote: &Remote, fields: &Fields<'_>) -> Option<String> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:+/=@".contains(byte);
    let told = remote.is_trusted.then(|| fields.single(REQUEST_ID)).flatten()?;
    let is_fit = (1..=ID_MAX).contains(&told.len()) && told.iter().all(is_plain);
    is_fit.then(|| String::from_utf8(told.to_vec()).ok()).flatten()
}

/// 128 random bits as text. `None` where the system has no random numbers.
fn new_id() -> Option<String> {
    String::from_utf8(digits::<ID_BYTES, { 2 * ID_BYTES }>(random()?).to_vec()).ok()
}

/// Random bytes of a generator of this thread that the kernel has seeded: those of many ids at a time. `None` where the system
/// has none.
pub(crate) fn random<const BYTES: usize>() -> Option<[u8; BYTES]> {
    struct Pool {
        bytes: [u8; ID_BYTES * IDS_AT_ONCE],
        used: usize,
    }
    thread_local! {
        static POOL: OnceCell<RefCell<Pool>> = const { OnceCell::new() };
    }
    POOL.with(|pool| {
        let empty = || RefCell::new(Pool { bytes: [0; ID_BYTES * IDS_AT_ONCE], used: usize::MAX });
        let mut pool = pool.get_or_init(empty).borrow_mut();
        if pool.used.saturating_add(BYTES) > pool.bytes.len() {
            tidegate_tls::fill_random(&mut pool.bytes).ok()?;
            pool.used = 0;
        }
        let start = pool.used;
        pool.used += BYTES;
        let bytes = pool.bytes.get_mut(start..start + BYTES)?;
        let random = (&*bytes).try_into().ok();
        bytes.fill(0); // nobody finds in memory what has been given out
        random
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tidegate_http::Field;
    use tidegate_io::socket::Peer;

    #[test]
    fn ids_are_all_different() {
        let ids: HashSet<String> = (0..10_000).map(|_| new_id().unwrap()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }

    #[test]
    fn whose_word_is_taken() {
        let direct = Remote::direct(Peer::Unix);
        let mut trusted = direct;
        trusted.is_trusted = true;
        let long = "a".repeat(ID_MAX + 1);
        for (remote, sent, taken) in [
            (direct, &["abc-1"][..], None),
            (trusted, &["abc-1"], Some("abc-1")),
            (
                trusted,
                &["Root=1-67891233-abcdef012345678912345678"],
                Some("Root=1-67891233-abcdef012345678912345678"),
            ),
            (trusted, &[""], None),
            (trusted, &["a b"], None),
            (trusted, &["a\"b"], None),
            (trusted, &["{a}"], None),
            (trusted, &["a\x1fb"], None),
            (trusted, &[&long], None),
            (trusted, &[&long[1..]], Some(&long[1..])),
            (trusted, &["a", "b"], None),
            (trusted, &[], None),
        ] {
            let fields: Vec<_> =
                sent.iter().map(|value| Field { name: "X-Request-ID", value: value.as_bytes() }).collect();
            assert_eq!(told_by_proxy(&remote, &Fields::new(&fields)).as_deref(), taken, "{sent:?}");
        }
    }

    #[test]
    fn who_never_answers_has_taken_the_time_until_it_is_given_up() {
        let trace = Trace::sampled(false);
        trace.begin_try(None, 1);
        trace.connected(1);
        trace.end_try();
        let waited = trace.times().application;
        assert!(waited > 0);
        // One that was counted where it has failed is not counted again.
        trace.begin_try(None, 1);
        trace.connected(1);
        trace.took(Phase::Application, 5);
        trace.end_try();
        assert_eq!(trace.times().application, waited + 5);
    }

    #[test]
    fn only_what_is_done_with_gives_its_memory() {
        let of = Rc::new(Traced { site: "a".into(), routes: Vec::new(), has_id: true, sampling: None });
        let begin = || Trace::begin(&of, &Remote::direct(Peer::Unix), &Fields::default()).unwrap();
        let first = begin();
        first.begin_try(None, monotonic_ns());
        let second = begin();
        assert!(!Rc::ptr_eq(&first, &second) && first.id() != second.id());
        second.begin_try(None, monotonic_ns());
        let address = Rc::as_ptr(&second);
        drop(second);
        // The memory of the first is not to be had, that of the second comes round.
        let more: Vec<_> = (0..SPARE).map(|_| begin()).collect();
        assert!(more.iter().any(|trace| std::ptr::eq(Rc::as_ptr(trace), address)));
        assert!(more.iter().all(|trace| trace.tries() == 0 && !Rc::ptr_eq(trace, &first)));
        assert_eq!(first.tries(), 1);
    }
}
