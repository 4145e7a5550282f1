//! Whether a response may be stored, for how long, and which of its fields (RFC 9111 section 3).
//!
//! Called once for each response of an origin, when its head has come.

use std::fmt;
use std::time::Duration;

use super::directives::Directives;
use super::freshness::{Claims, Freshness, LifetimeSource};
use super::groups::TAG_FIELDS;
use super::reasons::Reason;
use super::serving::request_control;
use super::{Answered, Asked, Rules, Times, partial};
use crate::date::HttpDate;
use crate::decimal::parse_decimal_saturating;
use crate::etag::EntityTag;
use crate::field::{FieldLines, list_elements, trim};
use crate::method::Method;
use crate::status::Status;

/// Why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotStored {
    /// Only responses to GET are.
    Method,
    /// It came with content.
    Content,
    /// The client asks for it.
    RequestNoStore,
    /// The response says so.
    NoStore,
    /// For one client alone.
    Private,
    /// Its `Cache-Control` is none that can be read: it may have said either of these.
    Malformed,
    /// `must-understand` with a status that is not known, a 304, or a status that is never final.
    Status,
    /// A status that says something of the request.
    StatusOfRequest,
    /// Section 3.5.
    Authorization,
    /// It may have been made for one client.
    Cookie,
    /// It was made for one client.
    SetCookie,
    /// Neither the response nor the settings give one.
    NoLifetime,
    /// Stale when it comes, and nothing to ask the origin with.
    Unusable,
    /// `Vary: *`.
    VariesByAnything,
    /// By `Cookie`, `User-Agent` or credentials: as many variants as clients.
    VariesByClient,
    /// By more fields, or by longer ones, than are kept.
    VariesByTooMuch,
    /// A 206 that cannot be put together with anything: without a strong validator, or of several ranges.
    Part,
}

impl NotStored {
    /// Whether it is for what this request is, and not for what the resource is: the response to another request
    /// may be stored, so that nothing is to be remembered of it, or one client keeps all others from being served.
    pub const fn is_of_request(self) -> bool {
        matches!(
            self,
            NotStored::Method
                | NotStored::Content
                | NotStored::RequestNoStore
                | NotStored::Authorization
                | NotStored::Cookie
                | NotStored::Part
                | NotStored::StatusOfRequest
        )
    }

    /// The same as a reason.
    pub const fn reason(self) -> Reason {
        match self {
            NotStored::Method => Reason::Method,
            NotStored::Content => Reason::Content,
            NotStored::RequestNoStore => Reason::RequestNoStore,
            NotStored::NoStore => Reason::NoStore,
            NotStored::Private => Reason::Private,
            NotStored::Malformed => Reason::Malformed,
            NotStored::Status | NotStored::StatusOfRequest => Reason::Status,
            NotStored::Authorization => Reason::Authorization,
            NotStored::Cookie => Reason::Cookie,
            NotStored::SetCookie => Reason::SetCookie,
            NotStored::NoLifetime => Reason::NoLifetime,
            NotStored::Unusable => Reason::Unusable,
            NotStored::VariesByAnything => Reason::VaryAny,
            NotStored::VariesByClient => Reason::VaryClient,
            NotStored::VariesByTooMuch => Reason::VaryTooMuch,
            NotStored::Part => Reason::Part,
        }
    }
}

impl fmt::Display for NotStored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason().text())
    }
}

impl std::error::Error for NotStored {}

/// Whether a response may be stored, and how it may be used.
///
/// [`super::Varying::of`] has to agree as well.
///
/// # Errors
/// It may not. What the response forbids comes before what the request forbids: it holds for others too.
pub fn storable(
    asked: &Asked<'_>,
    answered: &Answered<'_>,
    times: Times,
    rules: &Rules,
) -> Result<Freshness, NotStored> {
    let directives = Directives::of(answered.fields, rules);
    response_allows(answered, &directives, rules)?;
    let freshness = measured(answered, &directives, age_said(answered.fields), times, rules)?;
    request_allows(asked, answered, &directives, rules)?;
    Ok(freshness)
}

/// What a request forbids (sections 3, 3.5 and 5.2.1.5).
fn request_allows(
    asked: &Asked<'_>,
    answered: &Answered<'_>,
    directives: &Directives,
    rules: &Rules,
) -> Result<(), NotStored> {
    if asked.method != Method::Get {
        return Err(NotStored::Method);
    }
    if asked.has_content {
        return Err(NotStored::Content);
    }
    if asked.is_obeyed && request_control(asked).is_some_and(|control| control.no_store) {
        return Err(NotStored::RequestNoStore);
    }
    if asked.fields.contains("authorization") && !directives.is_shared() {
        return Err(NotStored::Authorization);
    }
    if asked.fields.contains("cookie") && !rules.ignores_cookies && !directives.is_for_everybody() {
        return Err(NotStored::Cookie);
    }
    if answered.status == Status::PARTIAL_CONTENT && !asked.fields.contains("range") {
        return Err(NotStored::Part);
    }
    Ok(())
}

/// What a response forbids (sections 3 and 5.2.2).
pub(super) fn response_allows(
    answered: &Answered<'_>,
    directives: &Directives,
    rules: &Rules,
) -> Result<(), NotStored> {
    let control = &directives.control;
    if OF_ONE_REQUEST.contains(&answered.status.0) {
        return Err(NotStored::StatusOfRequest);
    }
    let is_final = (200..=599).contains(&answered.status.0);
    if !is_final
        || NEVER_STORED.contains(&answered.status.0)
        || control.must_understand && !is_understood(answered.status)
    {
        return Err(NotStored::Status);
    }
    // `no-store` beside `must-understand` is for caches that do not know the status.
    if control.no_store && !control.must_understand {
        return Err(NotStored::NoStore);
    }
    if control.private {
        return Err(NotStored::Private);
    }
    if control.is_malformed {
        return Err(NotStored::Malformed);
    }
    let is_listed = || directives.listed.iter().any(|name| name.eq_ignore_ascii_case("set-cookie"));
    let sets_cookie = answered.fields.contains("Set-Cookie");
    if sets_cookie && !rules.keeps_set_cookie && !directives.is_for_everybody() && !is_listed() {
        return Err(NotStored::SetCookie);
    }
    // An error that odd fields of one request have brought about must not reach everybody, unless somebody
    // has meant it so.
    if answered.status == Status::BAD_REQUEST
        && !directives.is_for_everybody()
        && default_lifetime(answered.status, rules).is_none()
    {
        return Err(NotStored::StatusOfRequest);
    }
    if answered.status == Status::PARTIAL_CONTENT
        && (partial::content_range(answered.fields).is_none() || partial::if_range(answered.fields).is_none())
    {
        return Err(NotStored::Part);
    }
    Ok(())
}

/// How long and how a response may be used that may be stored. `age_said` is what it says of its age.
pub(super) fn measured(
    answered: &Answered<'_>,
    directives: &Directives,
    age_said: u32,
    times: Times,
    rules: &Rules,
) -> Result<Freshness, NotStored> {
    let (fields, control) = (answered.fields, &directives.control);
    let date = date_of(fields, times.answered);
    let etag = fields.first("ETag").and_then(EntityTag::parse);
    let has_validator = etag.is_some() || modified_of(fields, times.answered).is_some();
    let found = lifetime(answered, directives, times, rules);
    if found.is_none() && !(control.no_cache && has_validator && is_heuristic(answered.status)) {
        return Err(NotStored::NoLifetime);
    }
    // `s-maxage` says what `proxy-revalidate` says as well (section 5.2.2.10).
    let must_revalidate = control.must_revalidate || control.proxy_revalidate || control.s_maxage.is_some();
    let claims = Claims {
        must_revalidate,
        no_cache: control.no_cache,
        immutable: control.immutable,
        has_validator,
        is_shared: directives.is_shared(),
        is_for_everybody: directives.is_for_everybody(),
    };
    let mut freshness = Freshness::new(times.answered, initial_age(date, age_said, times), claims);
    if let Some((seconds, source)) = found {
        (freshness.lifetime, freshness.source) = (seconds, source);
    }
    if !must_revalidate && !control.no_cache {
        let seconds =
            |said: Option<Duration>, rule: Option<u32>| said.map(whole_seconds).or(rule).unwrap_or(0);
        freshness.stale_while_revalidate =
            seconds(control.stale_while_revalidate, rules.stale_while_revalidate);
        freshness.stale_if_error = seconds(control.stale_if_error, rules.stale_if_error);
    }
    let is_usable = freshness.ttl(times.answered) > 0 && !control.no_cache
        || freshness.stale_while_revalidate > 0
        || freshness.stale_if_error > 0;
    if is_usable || has_validator { Ok(freshness) } else { Err(NotStored::Unusable) }
}

/// The age when the head came (section 4.2.3).
fn initial_age(date: i64, age_said: u32, times: Times) -> u32 {
    let seconds = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    let apparent = seconds(times.answered.saturating_sub(date));
    let delay = seconds(times.answered.saturating_sub(times.asked));
    apparent.max(age_said.saturating_add(delay))
}

/// What a response says of its age: the first member of the field, where it is a number (section 5.1).
pub(super) fn age_said(fields: &FieldLines) -> u32 {
    let first = fields.first("Age").unwrap_or_default();
    let member = first.split(|byte| *byte == b',').next().map(trim).unwrap_or_default();
    parse_decimal_saturating(member).map_or(0, |age| u32::try_from(age).unwrap_or(u32::MAX).min(MOST_SECONDS))
}

/// Seconds from the making of a response (section 4.2.1); `None` where nobody says it.
fn lifetime(
    answered: &Answered<'_>,
    directives: &Directives,
    times: Times,
    rules: &Rules,
) -> Option<(u32, LifetimeSource)> {
    let (fields, control) = (answered.fields, &directives.control);
    let of_targeted = |source| if directives.is_targeted { LifetimeSource::Targeted } else { source };
    if let Some(age) = control.s_maxage {
        return Some((whole_seconds(age), of_targeted(LifetimeSource::SharedMaxAge)));
    }
    if let Some(age) = control.max_age {
        return Some((whole_seconds(age), of_targeted(LifetimeSource::MaxAge)));
    }
    let date = date_of(fields, times.answered);
    if !directives.is_targeted && fields.contains("Expires") {
        // A date that is none, `0` first of all, has passed (section 5.3). Of several the first to pass.
        let ends = fields.all("Expires").map(|value| HttpDate::parse(value, times.answered));
        let left = |end: Option<HttpDate>| end.map_or(0, |end| clamped(end.0.saturating_sub(date)));
        return Some((ends.map(left).min().unwrap_or(0), LifetimeSource::Expires));
    }
    if control.no_cache || directives.has_invalid_target {
        return None;
    }
    if let Some(seconds) = default_lifetime(answered.status, rules) {
        return Some((seconds.min(MOST_SECONDS), LifetimeSource::Default));
    }
    let is_allowed = is_heuristic(answered.status) || control.public && !answered.status.is_error();
    let modified = modified_of(fields, times.answered).filter(|_| rules.heuristic && is_allowed)?;
    let tenth = clamped(date.saturating_sub(modified)) / 10;
    Some((tenth.min(MOST_HEURISTIC), LifetimeSource::Heuristic))
}

fn default_lifetime(status: Status, rules: &Rules) -> Option<u32> {
    let mut lifetimes = rules.default_lifetimes.iter();
    lifetimes.find(|lifetime| lifetime.statuses.contains(&status.0)).map(|lifetime| lifetime.seconds)
}

/// When the response was made; without a valid `Date`, when it came.
fn date_of(fields: &FieldLines, answered: i64) -> i64 {
    let date = fields.first("Date").and_then(|value| HttpDate::parse(value, answered));
    date.map_or(answered, |date| date.0)
}

fn modified_of(fields: &FieldLines, now: i64) -> Option<i64> {
    HttpDate::parse(fields.first("Last-Modified")?, now).map(|date| date.0)
}

/// The largest number of seconds that is told from others (section 1.2.2).
const MOST_SECONDS: u32 = 1 << 31;
/// The longest lifetime that nobody has named.
const MOST_HEURISTIC: u32 = 86_400;

fn clamped(seconds: i64) -> u32 {
    u32::try_from(seconds.clamp(0, i64::from(MOST_SECONDS))).unwrap_or(MOST_SECONDS)
}

fn whole_seconds(age: Duration) -> u32 {
    u32::try_from(age.as_secs()).unwrap_or(u32::MAX).min(MOST_SECONDS)
}

/// What a request has brought about itself, so that another one for the same may fare better: by its conditions, its fields, its
/// length, or how many there were of it.
const OF_ONE_REQUEST: [u16; 13] = [408, 409, 411, 412, 413, 416, 417, 421, 424, 425, 429, 431, 505];

/// What everybody gets who asks as this one has asked, and what is not for another all the same: without credentials, or
/// without a condition. A 304 confirms, and is no response by itself.
const NEVER_STORED: [u16; 6] = [304, 401, 407, 426, 428, 511];

/// Whether what a status asks of caches is known, for `must-understand` (section 5.2.2.3).
fn is_understood(status: Status) -> bool {
    const UNDERSTOOD: [u16; 23] = [
        200, 203, 204, 206, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 406, 410, 414, 451, 500, 501,
        502, 503, 504,
    ];
    UNDERSTOOD.contains(&status.0)
}

/// Heuristically cacheable (RFC 9110 section 15.1), without the errors: for those the settings have to speak.
fn is_heuristic(status: Status) -> bool {
    matches!(status.0, 200 | 203 | 204 | 206 | 300 | 301 | 308)
}

/// The fields to store of a response that came at `now`, Unix seconds (section 3.1): without those of the
/// connection, those that `Connection` names, those that `no-cache="f"` and `private="f"` name, `Age`, tags
/// for purging and `Set-Cookie`, but for what `rules` keep; without `Content-Range`, which means nothing but in a 206
/// and a 416 (RFC 9110 section 14.4), and would stand beside the one of a range that is answered with what is stored. Of
/// a 206 the fields of the whole, which has the status 200: without `Content-Length`. A `Date` is added where there is
/// no valid one (RFC 9110 section 6.6.1).
pub fn stored_fields(answered: &Answered<'_>, now: i64, rules: &Rules) -> FieldLines {
    let mut stored = FieldLines::with_capacity(answered.fields.as_bytes().len() + 40);
    let is_part = answered.status == Status::PARTIAL_CONTENT;
    let is_left_out = |name: &str| {
        name.eq_ignore_ascii_case("Content-Range") || is_part && name.eq_ignore_ascii_case("Content-Length")
    };
    let kept = kept_fields(answered.fields, rules).filter(|(name, _)| !is_left_out(name));
    kept.for_each(|(name, value)| stored.push_read(name, value));
    add_date(&mut stored, now);
    stored
}

/// The lines of a response that may be stored.
pub(super) fn kept_fields<'f>(
    fields: &'f FieldLines,
    rules: &'f Rules,
) -> impl Iterator<Item = (&'f str, &'f [u8])> {
    let listed = Directives::of(fields, rules).listed;
    let connection = |name: &str| {
        fields
            .all("Connection")
            .flat_map(list_elements)
            .any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    };
    let is_dropped = move |name: &str| {
        let is_among = |names: &[&str]| names.iter().any(|dropped| dropped.eq_ignore_ascii_case(name));
        is_among(&OF_CONNECTION)
            || !rules.keeps_set_cookie && is_among(&["Set-Cookie", "Set-Cookie2"])
            || !rules.keeps_tags && is_among(&TAG_FIELDS)
            || listed.iter().any(|listed| listed.eq_ignore_ascii_case(name))
            || connection(name)
    };
    fields.iter().filter(move |(name, _)| !is_dropped(name))
}

/// Without a valid `Date`, when it came.
pub fn add_date(stored: &mut FieldLines, now: i64) {
    if stored.first("Date").is_none_or(|value| HttpDate::parse(value, now).is_none()) {
        stored.set("Date", HttpDate(now).format());
    }
}

/// What is between two neighbours (RFC 9110 section 7.6.1), what a proxy asks for or says of itself, and `Age`,
/// which is said anew for each use.
const OF_CONNECTION: [&str; 12] = [
    "Age",
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authentication-Info",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Trailers",
    "Transfer-Encoding",
    "Upgrade",
];
