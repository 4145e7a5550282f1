//! What is stored for a request, and what of it answers that: all, a part, or what is to be asked about.

use super::policy::{Class, Policy};
use super::{Shared, rest, serve};
use smallvec::SmallVec;
use std::sync::Arc;
use tidegate_cache::{Entry, Found, StoredFile};
use tidegate_core::Exchange;
use tidegate_http::cache::{self, Reason};
use tidegate_http::{FieldLines, Method};

/// A range that begins so many bytes behind what has come of a response is not waited for, but fetched by itself.
const FAR: u64 = 4 << 20;

/// What is stored under one key.
pub(super) type Variants = SmallVec<[Arc<Entry>; 1]>;

/// What has been found for a request.
pub(super) struct Finding {
    /// For whom what is stored is, and the fetch of this request.
    pub(super) class: Class,
    /// All that is stored for those.
    pub(super) known: Variants,
    /// Of those, the one for this request.
    pub(super) fitting: Option<Arc<Entry>>,
    /// The newest, where that is for this request and a part: its rest is asked for.
    pub(super) part: Option<Arc<Entry>>,
    /// It is known not to be stored, for this reason.
    pub(super) hopeless: Option<Reason>,
}

impl Finding {
    /// What is asked about: the rest of a part, or what is whole, and with what conditions.
    pub(super) fn to_be_asked(&self) -> (Option<Arc<Entry>>, Option<Arc<Entry>>, FieldLines) {
        if let Some(part) = &self.part
            && let Some(conditions) = rest::conditions(&part.head().lines, part.content().filled())
        {
            return (Some(part.clone()), None, conditions);
        }
        let known = self.fitting.clone().filter(|entry| entry.content().is_complete());
        let conditions = cache::validators(known.as_ref().map(|entry| &entry.head().lines), []);
        (None, known, conditions)
    }
}

impl Shared {
    /// What is stored for a request: by requests like it, or by others, for everybody.
    pub(super) fn find(&self, exchange: &Exchange<'_>, class: Class) -> Finding {
        let is_for = |entry: &Entry| {
            let head = entry.head();
            Policy::is_for(class, &head.freshness, &head.lines)
                && head.varying.fits(exchange.fields)
                && self.policy.is_for_query(exchange, &head.target, &head.lines)
                && is_readable(entry)
        };
        let is_fitting = |entry: &&Arc<Entry>| is_for(entry) && self.has_what_is_asked_for(exchange, entry);
        let (own, other) = match class {
            _ if class.is_open() => (class, Class::COOKIES),
            _ => (Class::COOKIES, Class::ANYONE),
        };
        let nothing =
            |class| Finding { class, known: Variants::new(), fitting: None, part: None, hopeless: None };
        let mut finding = nothing(own);
        match self.with_key(exchange, own, |key| self.store.look_up(key, exchange.now)) {
            Found::Stored(known) => {
                let newest = known.iter().find(|entry| is_for(entry));
                finding.part = newest.filter(|entry| entry.content().is_part()).cloned();
                finding.fitting = known.iter().find(is_fitting).cloned();
                finding.known = known;
            }
            Found::Pass(why) => finding.hopeless = Some(why),
            Found::Nothing => {}
        }
        if finding.fitting.is_none()
            && let Found::Stored(known) =
                self.with_key(exchange, other, |key| self.store.look_up(key, exchange.now))
            && let Some(fitting) = known.iter().find(is_fitting).cloned()
            && Policy::is_for(other, &fitting.head().freshness, &fitting.head().lines)
            && Policy::is_for(own, &fitting.head().freshness, &fitting.head().lines)
        {
            return Finding { known, fitting: Some(fitting), ..nothing(other) };
        }
        finding
    }

    /// Whether an entry answers a request by itself: a part does where the request is for nothing else (RFC 9111 section 3.3).
    pub(super) fn has_what_is_asked_for(&self, exchange: &Exchange<'_>, entry: &Entry) -> bool {
        let content = entry.content();
        !content.is_part()
            || serve::range_of(exchange, entry, self.policy.ranges)
                .is_some_and(|range| range.end <= content.filled())
    }

    /// Whether a request is for a range that is not there for long, while what is there comes in.
    pub(super) fn is_far(&self, exchange: &Exchange<'_>, entry: &Entry) -> bool {
        let filled = entry.content().filled();
        serve::range_of(exchange, entry, self.policy.ranges)
            .is_some_and(|range| range.start > filled.saturating_add(FAR))
    }
}

/// Whether its content can be had: a disk may have failed.
pub(super) fn is_readable(entry: &Entry) -> bool {
    entry.content().file().is_none_or(StoredFile::is_readable)
}

/// Whether the application can be asked whether it still holds.
pub(super) fn has_validator(entry: &Entry) -> bool {
    let lines = &entry.head().lines;
    entry.content().is_complete() && (lines.contains("ETag") || lines.contains("Last-Modified"))
}

/// Why the whole is not fetched for a request: HEAD asks for no content, and a range may begin far behind what comes first.
pub(super) fn fetches_in_part(exchange: &Exchange<'_>) -> Option<Reason> {
    if exchange.method == Method::Head {
        return Some(Reason::Head);
    }
    let range = exchange.fields.first("range")?;
    (!range.trim_ascii().starts_with(b"bytes=0-")).then_some(Reason::Range)
}
