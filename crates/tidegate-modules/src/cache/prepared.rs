//! Finished messages of what is asked for again and again: a worker makes one for each second, and sends it to all who ask within
//! that second. A request with nothing about it gets it before its key is even written, or as soon as the fetch of another one that it
//! has waited for is complete.
//!
//! They are copies of what is stored: the store has lent the memory for them, and they hold for as long as what they were made
//! from is what it would answer. Of large content the head alone is copied: the content is sent from where it is stored.

use super::policy::Policy;
use super::serve::body_of;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use tidegate_cache::{CopyRoom, Entry, Store};
use tidegate_core::decoration::Decoration;
use tidegate_core::{Author, Body, Exchange, Head, Message, Response};
use tidegate_http::cache::{self, CacheStatus, Forward};
use tidegate_http::{Field, Method, Status};

/// Content that is copied behind its head, bytes at most: one buffer is sent for less than two.
const LARGEST: usize = 16 << 10;
/// Messages of one route on one worker. Whoever asks for another one that has the same place makes it anew.
const PLACES: usize = 128;

/// Fields that choose what is answered, or how.
const CHOOSING: [&str; 12] = [
    "authorization",
    "cache-control",
    "cookie",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "pragma",
    "range",
    "te",
    "upgrade",
];

/// What a client is told of how it was answered; what else `Cache-Status` has follows from what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// Why it has waited for the fetch of another one; `None`: it was stored.
    pub(super) collapsed: Option<Forward>,
    pub(super) detail: Option<&'static str>,
}

/// A message for a second, and for those who are told so much.
struct Made {
    scheme: &'static str,
    authority: Box<str>,
    target: Box<str>,
    language: usize,
    entry: Weak<Entry>,
    second: i64,
    told: Told,
    /// It was found for a request that nothing tells from others for this URL. Until then its key may hold more than that: a cookie,
    /// where a rewrite has led.
    is_anybodys: Cell<bool>,
    message: Rc<Message>,
    _room: CopyRoom,
}

impl Made {
    fn is_for(&self, exchange: &Exchange<'_>, language: usize, told: Told) -> bool {
        self.second == exchange.now
            && *self.target == *exchange.target
            && *self.authority == *exchange.authority
            && self.scheme == exchange.scheme
            && self.language == language
            && self.told == told
    }
}

/// The messages of one route on one worker.
pub(super) struct Prepared {
    made: RefCell<Vec<Option<Made>>>,
    policy: Rc<Policy>,
    /// What the route adds to all of its responses.
    decoration: Rc<Decoration>,
    server: Option<String>,
}

impl Prepared {
    pub(super) fn new(policy: Rc<Policy>, decoration: Rc<Decoration>, server: Option<String>) -> Prepared {
        Prepared { made: RefCell::default(), policy, decoration, server }
    }

    /// The message for a request that nothing tells from others for the same URL, made within this second and fresh.
    #[inline]
    pub(super) fn plain_hit(&self, exchange: &Exchange<'_>, told: Told) -> Option<(Response, Arc<Entry>)> {
        let language = self.policy.language(exchange);
        let made = self.made.borrow();
        let made = made.get(place(exchange.target, language))?.as_ref()?;
        if !made.is_for(exchange, language, told) || !made.is_anybodys.get() || !self.is_anybodys(exchange) {
            return None;
        }
        let entry = made.entry.upgrade()?;
        if !entry.is_current() || !entry.head().varying.fits(exchange.fields) {
            return None;
        }
        Some((response(&made.message, &entry)?, entry))
    }

    /// The message for a request that asks for the whole of an entry. `None`: it asks for more, or what is stored is not for a
    /// message. `told` is what `status` says, beyond which it tells the detail.
    pub(super) fn hit(
        &self,
        exchange: &Exchange<'_>,
        (store, entry): (&Store, &Arc<Entry>),
        status: CacheStatus<'_>,
        told: Told,
    ) -> Option<Response> {
        if !is_plain(exchange) {
            return None;
        }
        let found = self.find(exchange, entry, told);
        let message = found.or_else(|| self.make(exchange, (store, entry), status, told))?;
        response(&message, entry)
    }

    /// Whether nothing tells a request from others for the same URL: it is for the whole of what that names.
    #[inline]
    fn is_anybodys(&self, exchange: &Exchange<'_>) -> bool {
        is_unremarkable(exchange) && !self.policy.is_vouched_for(exchange)
    }

    fn find(&self, exchange: &Exchange<'_>, entry: &Arc<Entry>, told: Told) -> Option<Rc<Message>> {
        let language = self.policy.language(exchange);
        let made = self.made.borrow();
        let made = made.get(place(exchange.target, language))?.as_ref()?;
        let is_it =
            std::ptr::eq(made.entry.as_ptr(), Arc::as_ptr(entry)) && made.is_for(exchange, language, told);
        if is_it && !made.is_anybodys.get() {
            made.is_anybodys.set(self.is_anybodys(exchange));
        }
        is_it.then(|| made.message.clone())
    }

    #[cold]
    fn make(
        &self,
        exchange: &Exchange<'_>,
        (store, entry): (&Store, &Arc<Entry>),
        status: CacheStatus<'_>,
        told: Told,
    ) -> Option<Rc<Message>> {
        let (head, second) = (entry.head(), exchange.now);
        let content = entry.content().shared()?;
        let copied = content.whole().filter(|bytes| bytes.len() <= LARGEST).unwrap_or_default();
        if head.status != Status::OK.0 {
            return None;
        }
        let mut lines = head.lines.clone();
        cache::set_age(&mut lines, head.freshness.age(second));
        let status = told.detail.map_or(status, |detail| status.detail(detail));
        status.append_to(&mut lines);
        self.decoration.apply_fixed(Status::OK, &mut lines);
        let room = self.room(store, copied.len() + Message::most_for_head(&lines), second)?;
        let message = Message::new(Status::OK, self.server.as_deref(), lines, Some(content.len()), copied);
        let language = self.policy.language(exchange);
        let made = Made {
            language,
            scheme: exchange.scheme,
            authority: exchange.authority.into(),
            target: exchange.target.into(),
            entry: Arc::downgrade(entry),
            second,
            told,
            is_anybodys: Cell::new(self.is_anybodys(exchange)),
            message: message.clone(),
            _room: room,
        };
        let before = {
            let mut places = self.made.borrow_mut();
            places.resize_with(PLACES, || None);
            places.get_mut(place(exchange.target, language))?.replace(made)
        };
        drop(before);
        Some(message)
    }

    /// Room for a copy; messages of other seconds go for it.
    fn room(&self, store: &Store, bytes: usize, second: i64) -> Option<CopyRoom> {
        store.room_for_copy(bytes as u64).or_else(|| {
            let mut places = self.made.borrow_mut();
            for place in places.iter_mut() {
                place.take_if(|made| made.second != second);
            }
            store.room_for_copy(bytes as u64)
        })
    }
}

/// `None`: there is no content any more, which is never so of what is current.
fn response(message: &Rc<Message>, entry: &Entry) -> Option<Response> {
    let is_copied = entry.content().len() == Some(message.body_len() as u64);
    let body = match is_copied {
        true => Body::Prebuilt(message.clone()),
        false => body_of(entry.content().sent(0, u64::MAX)?),
    };
    let head = Head::Prebuilt(message.clone());
    Some(Response { status: Status::OK, head, body, author: Author::DatedApplication })
}

/// By what URLs of one place differ most: how long they are, and how they end.
fn place(target: &str, language: usize) -> usize {
    let bytes = target.as_bytes();
    let end = bytes.last_chunk().map_or(0, |end| u64::from_le_bytes(*end));
    let mixed = (end ^ bytes.len() as u64 ^ (language as u64) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 57) as usize % PLACES
}

/// Whether a request asks for the whole, whatever it is.
fn is_plain(exchange: &Exchange<'_>) -> bool {
    exchange.method == Method::Get
        && !exchange.fields.iter().any(|field| {
            let name = field.name.as_bytes();
            matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]) || field.is("range")
        })
}

/// Whether a request is one of anybody, for the whole of what its URL names.
fn is_unremarkable(exchange: &Exchange<'_>) -> bool {
    exchange.method == Method::Get
        && exchange.state.body.is_none()
        && exchange.user().is_none()
        && exchange.client().is_none()
        && exchange.has_path_as_sent()
        && !exchange.is_rewritten()
        && exchange.fields.iter().all(|field| !is_choosing(field))
}

fn is_choosing(field: &Field<'_>) -> bool {
    let is = |name: &str| name.len() == field.name.len() && field.is(name);
    CHOOSING.iter().any(|name| is(name))
        || (is("connection") && !field.value.eq_ignore_ascii_case(b"keep-alive"))
}
