//! HEAD that has to go to the application: what its answer says of the GET that is stored (RFC 9111 section 4.3.5).
//!
//! One that agrees with it makes it fresh under its own fields, one that does not has it be asked for anew.

use super::Shared;
use super::fetch::{Whose, renewed};
use super::finding::Finding;
use super::place::Place;
use super::policy::{self, Class};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_cache::{Entry, Join, StoredHead};
use tidegate_core::{Body, Exchange, Pass, Reply, Response};
use tidegate_http::cache::{Answered, Asked, Forward, HeadSays, Reason, Times, head_says};
use tidegate_http::{Field, FieldLines, Fields, Method};
use tidegate_io::clock::wall_seconds;

/// What is stored, and how it was asked about.
struct Known {
    entry: Arc<Entry>,
    /// That of the client, which may have found what is for others.
    class: Class,
    place: Place,
    key: Vec<u8>,
    fields: FieldLines,
    is_obeyed: bool,
    asked: i64,
}

impl Shared {
    /// Has the application answer a HEAD, and learns from it.
    pub(super) fn ask_for_head(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        (finding, class): (&Finding, Class),
        forward: Forward,
    ) -> Reply {
        let stored = finding.part.as_ref().or(finding.fitting.as_ref());
        // Whoever chooses another answer by a field that no key has says nothing of this one.
        let stored = stored.filter(|_| !self.policy.has_unkeyed(exchange));
        let known = stored.map(|entry| Known {
            entry: entry.clone(),
            class,
            place: Place::of(&self.policy, exchange),
            key: self.with_key(exchange, finding.class, <[u8]>::to_vec),
            fields: self.policy.fetch_fields(exchange, &policy::spelled(exchange)),
            is_obeyed: self.policy.obeys(exchange),
            asked: exchange.now,
        });
        let shared = self.clone();
        let reply = self.inner.handle(exchange, pass).map(move |response| {
            if let Some(known) = known {
                shared.learn(&known, &response);
            }
            response
        });
        self.alone(exchange, reply, forward, Reason::Head.into())
    }

    fn learn(&self, known: &Known, response: &Response) {
        let mut lines = response.head.lines().clone();
        if let Some(len) = response.body.len().filter(|_| !matches!(response.body, Body::Empty))
            && !lines.contains("Content-Length")
        {
            lines.push("Content-Length", len.to_string());
        }
        let (entry, answered) = (&known.entry, Answered { status: response.status, fields: &lines });
        let says = head_says(&entry.head().lines, entry.content().len(), &answered);
        let now = wall_seconds();
        match says {
            HeadSays::Nothing => {}
            HeadSays::Update => {
                if let Some(head) = self.agreed(known, &lines, now) {
                    self.put_head(known, head, now);
                }
            }
            HeadSays::Invalidate if entry.content().is_part() => self.store.let_go(entry),
            HeadSays::Invalidate => {
                let old = entry.head();
                let head = StoredHead { freshness: old.freshness.expired(now), ..old.clone() };
                self.put_head(known, head, now);
            }
        }
    }

    /// The head of what is stored after an answer that agrees with it. `None`: it may not be kept under that.
    fn agreed(&self, known: &Known, lines: &FieldLines, now: i64) -> Option<StoredHead> {
        let times = Times { asked: known.asked, answered: now };
        let fields: Vec<_> = known.fields.iter().map(|(name, value)| Field { name, value }).collect();
        let (fields, is_obeyed) = (Fields::new(&fields), known.is_obeyed);
        let asked = Asked { method: Method::Get, fields, has_content: false, is_obeyed };
        let whom = (&known.place, &*self.policy, known.class);
        let (head, whose) = renewed(whom, &asked, (known.entry.head(), lines), times)?;
        (whose == Whose::Everybodys).then_some(head)
    }

    /// The same content under another head, where nobody fetches it anyhow.
    fn put_head(&self, known: &Known, head: StoredHead, now: i64) {
        let fields: Vec<_> = known.fields.iter().map(|(name, value)| Field { name, value }).collect();
        let Join::Lead(lead) = self.store.join(&known.key, Fields::new(&fields)) else { return };
        if lead.stored().iter().any(|stored| Arc::ptr_eq(stored, &known.entry)) {
            lead.refresh(&known.entry, head, now);
        }
    }
}
