//! One fetch for the store: what comes of it is decided at the head, and the content belongs to the store from then on, not to
//! the client that has set it off.

use super::counts::{Counts, took};
use super::filling::{Unattended, fill_up};
use super::handoff::Giver;
use super::place::Place;
use super::policy::{Class, Cookies, Policy};
use super::rest::{self, Origin, Rest};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tidegate_cache::{Entry, Lead, Reader, Store, StoredHead, Unstorable};
use tidegate_core::{Author, Body, Reply, Response};
use tidegate_http::cache::{self, Answered, Asked, NotStored, Reason, Times, Varying};
use tidegate_http::{EntityTag, Field, FieldLines, Fields, Method, Status};
use tidegate_io::clock::wall_seconds;
use tidegate_stats::PartTimes;
use tidegate_stats::series::Phase;

/// How long it is remembered that something is not stored, seconds.
const REMEMBERED: u32 = 120;

/// Where nobody waits for it, what could not be confirmed is asked about again after so many seconds.
const REFRESHED_AGAIN: i64 = 5;

/// What a fetch has come to, for the client that has set it off.
pub(super) enum Outcome {
    /// It is stored, or on its way, and will be read to its end.
    Stored(Arc<Entry>, Came),
    /// It is for this client alone, for this reason.
    Alone(Response, Reason),
    /// It cannot be had; what is stored may be good enough.
    Failed(Response),
    /// A 304 is about something else than what is stored, which is gone now: it is to be asked for without conditions.
    Again,
}

/// How an entry has come to be.
pub(super) enum Came {
    /// The application has made it anew, with these fields, some of which may be for this client alone. The reader is there so that
    /// what does not fit into the store is kept for the client.
    Fetched(FieldLines, Option<Reader>),
    /// The rest of a part has come, or comes. The reader as before.
    Completed(FieldLines, Option<Reader>),
    /// A 304 has confirmed it, with these for this client alone.
    Confirmed(FieldLines),
    /// The same, but what it says is for this client alone: it is sent with these fields, and others ask for themselves.
    ConfirmedForOne(FieldLines),
}

/// One fetch.
pub(super) struct Fetch {
    pub(super) policy: Rc<Policy>,
    pub(super) counts: Arc<Counts>,
    /// Of the store.
    pub(super) times: Option<Arc<PartTimes>>,
    /// When, by the monotonic clock, nanoseconds.
    pub(super) began: u64,
    pub(super) class: Class,
    pub(super) lead: Lead,
    /// What the application was asked with, but for conditions, and how to ask it again.
    pub(super) origin: Origin,
    /// What is stored, and has been asked about.
    pub(super) known: Option<Arc<Entry>>,
    /// What is stored in part, and whose rest has been asked for.
    pub(super) part: Option<Arc<Entry>>,
    pub(super) key: Vec<u8>,
    pub(super) store: Arc<Store>,
    /// It is known already that it is not stored, and counted.
    pub(super) is_hopeless: bool,
    /// What the client says of storing counts.
    pub(super) is_obeyed: bool,
    /// When, Unix seconds.
    pub(super) asked: i64,
    /// Purging goes by it.
    pub(super) place: Place,
    /// Fetches of this route, on this worker, that go on without a client.
    pub(super) unattended: Rc<Cell<usize>>,
}

/// For whom something is fetched.
pub(super) enum For {
    /// A client that waits for it.
    Client(Giver<Outcome>),
    /// Whoever asks next.
    Nobody(Unattended),
}

impl Fetch {
    /// Waits for the answer, tells whom it was made for, and stores the content. Ends with the client only where nobody else
    /// waits, and nothing is stored yet.
    pub(super) async fn run(self, reply: Reply, whom: For) {
        let (giver, _unattended) = match whom {
            For::Client(giver) => (Some(giver), None),
            For::Nobody(unattended) => (None, Some(unattended)),
        };
        let mut answer = pin!(reply.settled());
        let response = poll_fn(|cx| {
            if let Poll::Ready(response) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            let is_unwanted = giver.as_ref().is_some_and(|giver| giver.poll_unwanted(cx).is_ready());
            if is_unwanted && self.lead.followers() == 0 { Poll::Ready(None) } else { Poll::Pending }
        });
        let Some(response) = response.await else { return };
        took(self.times.as_deref(), Phase::Application, self.began);
        let tell = |outcome| {
            if let Some(giver) = giver {
                giver.give(outcome);
            }
        };
        self.decide(response, tell).await;
    }

    /// What becomes of an answer.
    async fn decide(self, response: Response, tell: impl FnOnce(Outcome)) {
        let now = wall_seconds();
        let status = response.status;
        let times = Times { asked: self.asked, answered: now };
        if is_failure(&response) && !self.is_to_be_kept(&response, times) {
            if let Some(known) = &self.known {
                known.refresh_after(now.saturating_add(REFRESHED_AGAIN));
            }
            tell(Outcome::Failed(response));
            return self.lead.fail(status.0);
        }
        if status == Status::LOOP_DETECTED {
            // A mistake of the settings: who waits would go round as well, and once it is mended nobody is to remember it.
            tell(Outcome::Alone(response, Reason::Loop));
            return self.lead.fail(status.0);
        }
        if status == Status::NOT_MODIFIED
            && let Some(known) = self.known.clone()
        {
            return self.confirmed(&known, response, times, tell);
        }
        if let Some(part) = self.part.clone() {
            if is_rest_of(&part, &response) {
                return self.goes_on(&part, response, times, tell).await;
            }
            // Whatever has come is another one.
            self.store.let_go(&part);
            if matches!(
                status,
                Status::PARTIAL_CONTENT | Status::RANGE_NOT_SATISFIABLE | Status::NOT_MODIFIED
            ) {
                drop(self.lead);
                return tell(Outcome::Again);
            }
        }
        let head = match self.storable(&response, times) {
            Ok(head) => head,
            Err(not_stored) => {
                let why = not_stored.reason();
                self.count_not_stored(why);
                tell(Outcome::Alone(response, why));
                // What one request has brought about says nothing of the next. Those with cookies are many: who waits is let go,
                // and where they have a key of their own, that is remembered.
                if self.is_hopeless {
                    self.lead.pass(now, 0, why); // what is remembered ends when it was to
                } else if !not_stored.is_of_request() || !self.class.is_open() {
                    self.lead.pass(now, REMEMBERED, why);
                } else if self.class.cookies == Cookies::Ignored {
                    self.lead.pass(now, 0, why);
                }
                return;
            }
        };
        let len = response.body.len();
        if matches!(response.body, Body::Parts(_) | Body::Tunnel { .. }) {
            tell(Outcome::Alone(response, Reason::Parts));
            self.count_not_stored(Reason::Parts);
            return self.lead.pass(now, REMEMBERED, Reason::Parts);
        }
        let (counts, is_hopeless) = (self.counts.clone(), self.is_hopeless);
        match self.lead.store(head, len, now) {
            Ok((entry, fill)) => {
                let reader = entry.content().reader(0..u64::MAX);
                let rest = Rest::of(self.origin, &response);
                let mut lines = response.head.lines().clone();
                self.policy.hide_tags(&mut lines);
                lines.remove("Trailer"); // what it announces is not kept, nor sent
                cache::add_date(&mut lines, now);
                tell(Outcome::Stored(entry, Came::Fetched(lines, reader)));
                fill_up(fill, response.body, (len, rest), &self.unattended).await;
            }
            Err(unstorable) => {
                // Want of room the store counts.
                if unstorable != Unstorable::NoRoom && !is_hopeless {
                    counts.not_stored(unstorable.reason());
                }
                tell(Outcome::Alone(response, unstorable.reason()));
            }
        }
    }

    fn count_not_stored(&self, why: Reason) {
        if !self.is_hopeless {
            self.counts.not_stored(why);
        }
    }

    /// Whether a failure is the answer for a while: the application says so, and nothing is there that would be better.
    fn is_to_be_kept(&self, failure: &Response, times: Times) -> bool {
        let is_better = |known: &Arc<Entry>| {
            self.with_asked(|asked| cache::usable_on_error(asked, &known.freshness(), times.answered))
        };
        matches!(failure.author, Author::Application | Author::DatedApplication)
            && !self.known.as_ref().is_some_and(is_better)
            && self.storable(failure, times).is_ok()
    }

    /// What of a response is stored.
    fn storable(&self, response: &Response, times: Times) -> Result<StoredHead, NotStored> {
        let mut rules = self.policy.rules(self.class);
        // The date of a file that is sent for an application is nothing that the application has said.
        rules.heuristic &= !matches!(response.body, Body::File(_));
        let lines = response.head.lines();
        let answered = Answered { status: response.status, fields: lines };
        self.with_asked(|asked| {
            let freshness = cache::storable(asked, &answered, times, &rules)?;
            if self.policy.varies_by_written(lines) {
                return Err(NotStored::VariesByClient);
            }
            if !Policy::is_for(self.class, &freshness, lines) {
                return Err(match self.class.cookies {
                    _ if self.class.shows_who => NotStored::Authorization,
                    // Visitors without a cookie may have it stored.
                    Cookies::Ignored => NotStored::Cookie,
                    Cookies::Keyed | Cookies::Counting => NotStored::VariesByClient,
                });
            }
            let varying = Varying::of(&answered, asked.fields, &rules)?;
            let mut stored = cache::stored_fields(&answered, times.answered, &rules);
            self.policy.hide_tags(&mut stored);
            Ok(self.place.head(&self.policy, (response.status.0, stored), (freshness, varying), lines))
        })
    }

    /// What the application was asked.
    fn with_asked<R>(&self, f: impl FnOnce(&Asked<'_>) -> R) -> R {
        let fields: Vec<_> = self.origin.fields.iter().map(|(name, value)| Field { name, value }).collect();
        let fields = Fields::new(&fields);
        f(&Asked { method: Method::Get, fields, has_content: false, is_obeyed: self.is_obeyed })
    }

    /// A 206 with the rest of a part (RFC 9111 section 3.4): what has come before goes first, and both are one response.
    async fn goes_on(self, part: &Arc<Entry>, response: Response, times: Times, tell: impl FnOnce(Outcome)) {
        let own = own_cookies(response.head.lines());
        let renewed = self.renewed(part.head(), response.head.lines(), times);
        let len = part.content().len();
        let (Some((head, Whose::Everybodys)), Some(len)) = (renewed, len) else {
            self.store.let_go(part);
            drop(self.lead);
            return tell(Outcome::Again);
        };
        let whole = head.lines.clone();
        match self.lead.go_on(part, head, times.answered) {
            Ok((entry, fill)) => {
                let reader = entry.content().reader(0..u64::MAX);
                let rest = Rest::after(self.origin, whole.clone(), len);
                let mut lines = whole;
                cache::set_age(&mut lines, entry.head().freshness.age(times.answered));
                lines.append(&own);
                tell(Outcome::Stored(entry, Came::Completed(lines, reader)));
                fill_up(fill, response.body, (Some(len), Some(rest)), &self.unattended).await;
            }
            Err(_) => {
                self.store.let_go(part);
                tell(Outcome::Again);
            }
        }
    }

    fn renewed(&self, old: &StoredHead, lines: &FieldLines, times: Times) -> Option<(StoredHead, Whose)> {
        let whom = (&self.place, &*self.policy, self.class);
        self.with_asked(|asked| renewed(whom, asked, (old, lines), times))
    }

    /// A 304 (RFC 9111 section 4.3.4): what was asked about holds for a while longer. Nothing else was.
    fn confirmed(self, known: &Arc<Entry>, response: Response, times: Times, tell: impl FnOnce(Outcome)) {
        let old = known.head();
        let mut lines = response.head.lines().clone();
        if !is_about(&old.lines, &lines) {
            self.store.remove(&self.key);
            drop(self.lead); // who waits looks again
            return tell(Outcome::Again);
        }
        // Some say `W/"1"` of an answer in a coding, and `"1"` in a 304: it is still the same one.
        lines.remove("ETag");
        let own = own_cookies(&lines);
        let Some((head, whose)) = self.renewed(old, &lines, times) else {
            self.store.remove(&self.key);
            drop(self.lead);
            return tell(Outcome::Again);
        };
        if whose == Whose::Everybodys {
            let entry = self.lead.refresh(known, head, times.answered);
            return tell(Outcome::Stored(entry, Came::Confirmed(own)));
        }
        if whose == Whose::Nobodys {
            self.store.remove(&self.key);
        }
        drop(self.lead); // who waits asks for itself
        let mut lines = head.lines;
        cache::set_age(&mut lines, head.freshness.age(times.answered));
        lines.append(&own);
        tell(Outcome::Stored(known.clone(), Came::ConfirmedForOne(lines)));
    }
}

/// Who may have what is stored from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// All for whom it was.
    Everybodys,
    /// Who has asked; for others it is as it was. It shows who it is, and the answer does not say that it is for others.
    Ones,
    /// Who has asked, and it is not to be kept.
    Nobodys,
}

/// The head of what is stored after a newer answer with these fields that is about the same content (sections 3.2, 3.4 and 4.3), and who
/// may have it under that. `None`: it varies by other fields now.
pub(super) fn renewed(
    (place, policy, class): (&Place, &Policy, Class),
    asked: &Asked<'_>,
    (old, answered): (&StoredHead, &FieldLines),
    times: Times,
) -> Option<(StoredHead, Whose)> {
    let rules = policy.rules(class);
    let (tags, tag_names) = place.confirmed_tags(policy, old, answered);
    let mut answered = answered.clone();
    policy.hide_tags(&mut answered);
    let stored = Answered { status: Status(old.status), fields: &old.lines };
    let (lines, freshness) = cache::refreshed(&stored, &answered, times, &rules);
    let now = Answered { status: Status(old.status), fields: &lines };
    let varying = Varying::of(&now, asked.fields, &rules).ok()?;
    if !varying.same_names(&old.varying) || policy.varies_by_written(&lines) {
        return None;
    }
    let whose = match &freshness {
        Ok(freshness) if Policy::is_for(class, freshness, &lines) => Whose::Everybodys,
        Ok(_) => Whose::Ones,
        Err(_) => Whose::Nobodys,
    };
    let freshness = freshness.unwrap_or_else(|_| old.freshness.expired(times.answered));
    Some((StoredHead { lines, freshness, tags, tag_names, ..old.clone() }, whose))
}

/// Whether this is what is missing of a part.
fn is_rest_of(part: &Entry, response: &Response) -> bool {
    let content = part.content();
    let head = content.len().map(|len| (&part.head().lines, len));
    head.is_some_and(|head| rest::is_rest(head, content.filled(), response))
}

/// What of these fields is for one client alone.
fn own_cookies(lines: &FieldLines) -> FieldLines {
    let mut own = FieldLines::new();
    lines.all("Set-Cookie").for_each(|cookie| own.push_read("Set-Cookie", cookie));
    own
}

/// Whether a 304 with these fields can be about what is stored with those: no validator says otherwise.
fn is_about(stored: &FieldLines, new: &FieldLines) -> bool {
    let tag = |lines: &FieldLines| lines.first("ETag").map(<[u8]>::to_vec);
    let is_same_tag = match (tag(stored), tag(new)) {
        (Some(old), Some(new)) => match (EntityTag::parse(&old), EntityTag::parse(&new)) {
            (Some(old), Some(new)) => old.weak_eq(new),
            _ => false,
        },
        _ => true,
    };
    let modified = |lines: &FieldLines| lines.first("Last-Modified").map(<[u8]>::to_vec);
    let is_same_date = match (modified(stored), modified(new)) {
        (Some(old), Some(new)) => old == new,
        _ => true,
    };
    is_same_tag && is_same_date
}

/// Whether nothing of use has come: what is stale may be better (RFC 5861 section 4).
fn is_failure(response: &Response) -> bool {
    matches!(response.status.0, 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_304_is_about_what_no_validator_denies() {
        let lines = |fields: &[(&str, &str)]| {
            let mut lines = FieldLines::new();
            fields.iter().for_each(|(name, value)| {
                lines.push(name, value);
            });
            lines
        };
        const DAY: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const NEXT: &str = "Mon, 07 Nov 1994 08:49:37 GMT";
        for (stored, new, expected) in [
            (vec![("ETag", "W/\"1\"")], vec![("ETag", "\"1\"")], true),
            (vec![("ETag", "\"1\"")], vec![("ETag", "\"2\"")], false),
            (vec![("ETag", "\"1-gzip\"")], vec![("ETag", "\"1\"")], false),
            (vec![("ETag", "\"1\"")], vec![], true),
            (vec![("Last-Modified", DAY)], vec![("ETag", "\"1\"")], true),
            (vec![("Last-Modified", DAY)], vec![("Last-Modified", NEXT)], false),
            (vec![("ETag", "\"1\"")], vec![("ETag", "nonsense")], false),
        ] {
            assert_eq!(is_about(&lines(&stored), &lines(&new)), expected, "{stored:?} {new:?}");
        }
    }
}
