//! One fetch for the store: what comes of it is decided at the head, and the content belongs to the store from then on, not to
//! the client that has set it off.

use super::counts::Counts;
use super::filling::{Unattended, fill_up};
use super::handoff::Giver;
use super::place::Place;
use super::policy::{Class, Policy};
use super::rest::{Origin, Rest};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tidegate_cache::{Entry, Lead, Reader, Store, StoredHead};
use tidegate_core::{Body, Reply, Response};
use tidegate_http::cache::{self, Answered, Asked, NotStored, Times, Varying};
use tidegate_http::{EntityTag, Field, FieldLines, Fields, Method, Status};
use tidegate_io::clock::wall_seconds;

/// How long it is remembered that something is not stored, seconds.
const REMEMBERED: u32 = 120;

/// What a fetch has come to, for the client that has set it off.
pub(super) enum Outcome {
    /// It is stored, or on its way, and will be read to its end.
    Stored(Arc<Entry>, Came),
    /// It is for this client alone, for this reason.
    Alone(Response, &'static str),
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
    /// A 304 has confirmed it, with these for this client alone.
    Confirmed(FieldLines),
}

/// One fetch.
pub(super) struct Fetch {
    pub(super) policy: Rc<Policy>,
    pub(super) counts: Arc<Counts>,
    pub(super) class: Class,
    pub(super) lead: Lead,
    /// What the application was asked with, but for conditions, and how to ask it again.
    pub(super) origin: Origin,
    /// What is stored, and has been asked about.
    pub(super) known: Option<Arc<Entry>>,
    pub(super) key: Vec<u8>,
    pub(super) store: Arc<Store>,
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
        if is_failure(&response) {
            tell(Outcome::Failed(response));
            return self.lead.fail(status.0);
        }
        if status == Status::LOOP_DETECTED {
            // A mistake of the settings: who waits would go round as well, and once it is mended nobody is to remember it.
            tell(Outcome::Alone(response, "loop"));
            return self.lead.fail(status.0);
        }
        let times = Times { asked: self.asked, answered: now };
        if status == Status::NOT_MODIFIED
            && let Some(known) = self.known.clone()
        {
            return self.confirmed(&known, response, times, tell);
        }
        let head = match self.storable(&response, times) {
            Ok(head) => head,
            Err(why) => {
                self.counts.not_stored(why);
                tell(Outcome::Alone(response, why.as_str()));
                // What one request has brought about says nothing of the next. Those with cookies are many: who waits is let go,
                // and where they have a key of their own, that is remembered.
                if !why.is_of_request() || !self.class.is_open() {
                    self.lead.pass(now, REMEMBERED);
                } else if self.class == Class::AnyoneWithCookies {
                    self.lead.pass(now, 0);
                }
                return;
            }
        };
        let len = response.body.len();
        if matches!(response.body, Body::Parts(_) | Body::Tunnel { .. }) {
            tell(Outcome::Alone(response, "parts"));
            return self.lead.pass(now, REMEMBERED);
        }
        match self.lead.store(head, len, now) {
            Ok((entry, fill)) => {
                let reader = entry.content().reader(0..u64::MAX);
                let rest = Rest::of(self.origin, &response);
                let mut lines = response.head.lines().clone();
                self.policy.hide_tags(&mut lines);
                cache::add_date(&mut lines, now);
                tell(Outcome::Stored(entry, Came::Fetched(lines, reader)));
                fill_up(fill, response.body, (len, rest), &self.unattended).await;
            }
            Err(_) => tell(Outcome::Alone(response, "no-room")),
        }
    }

    /// What of a response is stored.
    fn storable(&self, response: &Response, times: Times) -> Result<StoredHead, NotStored> {
        let rules = self.policy.rules(self.class);
        let lines = response.head.lines();
        let answered = Answered { status: response.status, fields: lines };
        self.with_asked(|asked| {
            let freshness = cache::storable(asked, &answered, times, &rules)?;
            if self.policy.varies_by_written(lines) {
                return Err(NotStored::VariesByClient);
            }
            if !Policy::is_for(self.class, &freshness, lines) {
                return Err(match self.class {
                    Class::Credentials => NotStored::Authorization,
                    // Visitors without a cookie may have it stored.
                    Class::AnyoneWithCookies => NotStored::Cookie,
                    _ => NotStored::VariesByClient,
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
        self.policy.hide_tags(&mut lines);
        let mut own = FieldLines::new();
        lines.all("Set-Cookie").for_each(|cookie| own.push_read("Set-Cookie", cookie));
        let rules = self.policy.rules(self.class);
        let stored = Answered { status: Status(old.status), fields: &old.lines };
        let (lines, freshness) = cache::refreshed(&stored, &lines, times, &rules);
        let now = Answered { status: Status(old.status), fields: &lines };
        let varying = self.with_asked(|asked| Varying::of(&now, asked.fields, &rules));
        if !varying.is_ok_and(|varying| varying.same_names(&old.varying))
            || self.policy.varies_by_written(&lines)
        {
            self.store.remove(&self.key);
            drop(self.lead);
            return tell(Outcome::Again);
        }
        // What confirms it may say that it is not to be kept: then it is good for this once.
        let is_kept = freshness.is_ok();
        let freshness = freshness.unwrap_or_else(|_| old.freshness.expired(times.answered));
        let head = StoredHead { lines, freshness, ..old.clone() };
        let entry = self.lead.refresh(known, head, times.answered);
        if !is_kept {
            self.store.remove(&self.key);
        }
        tell(Outcome::Stored(entry, Came::Confirmed(own)));
    }
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
