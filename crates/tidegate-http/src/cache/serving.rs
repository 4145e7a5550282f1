//! Whether a request may be answered from a cache, and with what is stored (RFC 9111 sections 4, 4.2.4
//! and 5.2.1, RFC 5861, RFC 8246).
//!
//! Called for every request to a place that is cached. Nothing here allocates for an ordinary request.

use super::Asked;
use super::freshness::Freshness;
use super::reasons::Reason;
use super::status::Forward;
use crate::cache_control::CacheControl;
use crate::field::FieldLines;
use crate::method::Method;

/// Why a request goes to the origin without a look at what is stored, and why nobody waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bypass {
    /// Neither GET nor HEAD.
    Method,
    /// GET with content has no meaning that a cache could know.
    Content,
    /// A WebSocket or the like.
    Upgrade,
    /// `If-Match` and `If-Unmodified-Since` are for the origin alone (section 4.3.2).
    Condition,
}

impl Bypass {
    /// As `Cache-Status` has it.
    pub const fn forward(self) -> Forward {
        match self {
            Bypass::Method => Forward::Method,
            _ => Forward::Bypass,
        }
    }

    /// The same as a reason.
    pub const fn reason(self) -> Reason {
        match self {
            Bypass::Method => Reason::Method,
            Bypass::Content => Reason::Content,
            Bypass::Upgrade => Reason::Upgrade,
            Bypass::Condition => Reason::Condition,
        }
    }
}

/// Whether this request may be answered from a cache at all.
///
/// # Errors
/// It has to go to the origin, for the reason given.
#[inline]
pub fn lookup_allowed(asked: &Asked<'_>) -> Result<(), Bypass> {
    if !matches!(asked.method, Method::Get | Method::Head) {
        return Err(Bypass::Method);
    }
    if asked.has_content {
        return Err(Bypass::Content);
    }
    for field in asked.fields {
        if field.is("upgrade") {
            return Err(Bypass::Upgrade);
        }
        if field.is("if-match") || field.is("if-unmodified-since") {
            return Err(Bypass::Condition);
        }
    }
    Ok(())
}

/// Whether this request may wait for what is being fetched for another one. [`lookup_allowed`] has agreed.
#[inline]
pub fn may_join(asked: &Asked<'_>) -> bool {
    asked.method == Method::Get && !asked.has_content && !asked.fields.contains("authorization")
}

/// What a stored response is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Use {
    /// Send it.
    Fresh,
    /// Send it: the client has said that it takes a stale one (`max-stale`).
    Stale,
    /// Send it, and ask the origin behind the client's back.
    StaleWhileRevalidate,
    /// Ask the origin whether it still holds, then send it.
    Validate,
    /// Fetch another one: this one has nothing to be validated by, or is not for this request.
    Fetch,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It is fresh.
    Fresh,
    /// It is stale.
    Stale,
    /// It is stale, and a directive forbids to use it so.
    MustRevalidate,
    /// The response says `no-cache`.
    NoCache,
    /// The request says `no-cache`.
    RequestNoCache,
    /// It is older than the request's `max-age`.
    RequestMaxAge,
    /// It does not stay fresh for the request's `min-fresh`.
    RequestMinFresh,
    /// The request's `max-stale` takes it.
    RequestMaxStale,
    /// `stale-while-revalidate` takes it.
    StaleWhileRevalidate,
    /// The request has `Authorization`, and the response does not say that it is for shared caches.
    Authorization,
}

impl Why {
    /// As `Cache-Status` has it, where the request goes to the origin.
    pub const fn forward(self) -> Forward {
        match self {
            Why::RequestNoCache | Why::RequestMaxAge | Why::RequestMinFresh => Forward::Request,
            Why::Authorization => Forward::Bypass,
            _ => Forward::Stale,
        }
    }

    /// The same as a reason.
    pub const fn reason(self) -> Reason {
        match self {
            Why::Fresh => Reason::Fresh,
            Why::Stale => Reason::Stale,
            Why::MustRevalidate => Reason::MustRevalidate,
            Why::NoCache => Reason::NoCache,
            Why::RequestNoCache => Reason::RequestNoCache,
            Why::RequestMaxAge => Reason::RequestMaxAge,
            Why::RequestMinFresh => Reason::RequestMinFresh,
            Why::RequestMaxStale => Reason::RequestMaxStale,
            Why::StaleWhileRevalidate => Reason::StaleWhileRevalidate,
            Why::Authorization => Reason::Authorization,
        }
    }
}

/// What is to be done with a stored response, and what to say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What it is good for.
    pub use_: Use,
    /// How old it is, in seconds.
    pub age: u32,
    /// How many seconds it is still fresh; negative: for how many it has been stale.
    pub ttl: i64,
    /// Why.
    pub why: Why,
}

/// What a stored response is good for, for this request, at `now`. [`lookup_allowed`] has agreed, and
/// [`super::Varying::fits`].
#[inline]
pub fn usable(asked: &Asked<'_>, freshness: &Freshness, now: i64) -> Verdict {
    let (age, ttl) = (freshness.age(now), freshness.ttl(now));
    let control = request_control(asked);
    let (use_, why) = decide(asked, freshness, control.as_ref(), age, ttl);
    let use_ = if use_ == Use::Validate && !freshness.has_validator() { Use::Fetch } else { use_ };
    Verdict { use_, age, ttl, why }
}

fn decide(
    asked: &Asked<'_>,
    freshness: &Freshness,
    control: Option<&CacheControl>,
    age: u32,
    ttl: i64,
) -> (Use, Why) {
    if !freshness.is_shared() && asked.fields.contains("authorization") {
        return (Use::Fetch, Why::Authorization);
    }
    if freshness.no_cache() {
        return (Use::Validate, Why::NoCache);
    }
    let demand = control.filter(|_| asked.is_obeyed).and_then(|control| demand(control, freshness, age, ttl));
    if let Some(why) = demand {
        return (Use::Validate, why);
    }
    if ttl > 0 {
        return (Use::Fresh, Why::Fresh);
    }
    if freshness.must_revalidate() {
        return (Use::Validate, Why::MustRevalidate);
    }
    let stale_for = ttl.unsigned_abs();
    if let Some(most) = control.and_then(|control| control.max_stale)
        && stale_for <= most.as_secs()
    {
        return (Use::Stale, Why::RequestMaxStale);
    }
    let takes_fresh_only = asked.is_obeyed
        && control.is_some_and(|control| control.max_age.is_some() || control.min_fresh.is_some());
    if stale_for < u64::from(freshness.stale_while_revalidate) && !takes_fresh_only {
        return (Use::StaleWhileRevalidate, Why::StaleWhileRevalidate);
    }
    (Use::Validate, Why::Stale)
}

/// Which directive of the request refuses what is stored (section 5.2.1). What is immutable and fresh stands
/// up to the `max-age=0` of a reload, not to the `no-cache` of a forced one (RFC 8246 section 2).
fn demand(control: &CacheControl, freshness: &Freshness, age: u32, ttl: i64) -> Option<Why> {
    if control.no_cache {
        return Some(Why::RequestNoCache);
    }
    let is_settled = freshness.is_immutable() && ttl > 0;
    if control.max_age.is_some_and(|most| u64::from(age) > most.as_secs()) && !is_settled {
        return Some(Why::RequestMaxAge);
    }
    let left = u64::try_from(ttl).unwrap_or(0);
    if control.min_fresh.is_some_and(|least| left < least.as_secs()) {
        return Some(Why::RequestMinFresh);
    }
    None
}

/// Whether a response may answer a request that was there before the response was asked for, perhaps by another request: as if this one had
/// been forwarded to validate it (sections 4 and 4.3). It need not be fresh for that, and `no-cache` does not forbid it: of what
/// is stored it forbids to use what was asked for earlier (section 5.2.2.4).
#[inline]
pub fn usable_once_fetched(asked: &Asked<'_>, freshness: &Freshness) -> bool {
    freshness.is_shared() || !asked.fields.contains("authorization")
}

/// Whether a stale response may stand in for an origin that has failed: no answer, or 500, 502, 503 or 504
/// (RFC 5861 section 4). The request may ask for it too.
pub fn usable_on_error(asked: &Asked<'_>, freshness: &Freshness, now: i64) -> bool {
    if freshness.no_cache() || !freshness.is_shared() && asked.fields.contains("authorization") {
        return false;
    }
    let ttl = freshness.ttl(now);
    if ttl > 0 {
        return true;
    }
    if freshness.must_revalidate() {
        return false;
    }
    let asked_for = request_control(asked).and_then(|control| control.stale_if_error);
    let most = u64::from(freshness.stale_if_error).max(asked_for.map_or(0, |most| most.as_secs()));
    ttl.unsigned_abs() < most
}

/// Whether the client wants a stored response or none: 504 where there is none (section 5.2.1.7).
#[inline]
pub fn only_if_cached(asked: &Asked<'_>) -> bool {
    request_control(asked).is_some_and(|control| control.only_if_cached)
}

/// The directives of a request, where it has any. A `Pragma: no-cache` stands in for them, from clients of
/// HTTP/1.0 (section 5.4).
#[inline]
pub(super) fn request_control(asked: &Asked<'_>) -> Option<CacheControl> {
    if asked.fields.contains("cache-control") {
        return Some(CacheControl::parse(asked.fields.all("cache-control")));
    }
    let mut pragmas = asked.fields.elements("pragma");
    let no_cache = pragmas.any(|pragma| pragma.eq_ignore_ascii_case(b"no-cache"));
    no_cache.then(|| CacheControl { no_cache: true, ..CacheControl::default() })
}

/// What of a request asks for another answer than the stored one may be, as the client wrote it: `no-cache`, `max-age`, `min-fresh`
/// (section 5.2.1) or `Pragma: no-cache` (section 5.4).
pub fn forced_by(asked: &Asked<'_>) -> Option<&'static str> {
    let control = request_control(asked)?;
    match control {
        _ if !asked.fields.contains("cache-control") => Some("Pragma: no-cache"),
        control if control.no_cache => Some("Cache-Control: no-cache"),
        control if control.max_age.is_some() => Some("Cache-Control: max-age"),
        control if control.min_fresh.is_some() => Some("Cache-Control: min-fresh"),
        _ => None,
    }
}

/// Says how old the response is (section 5.1), instead of what it said of it itself.
pub fn set_age(lines: &mut FieldLines, age: u32) {
    lines.set("Age", itoa::Buffer::new().format(age));
}
