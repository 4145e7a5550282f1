//! Finished messages of what is asked for again and again: a worker makes one for each second, and sends it to all who ask within
//! that second.

use std::cell::RefCell;
use std::rc::Rc;
use tidegate_cache::Entry;
use tidegate_core::decoration::Decoration;
use tidegate_core::{Author, Body, Exchange, Head, Message, Response};
use tidegate_http::cache::{self, CacheStatus};
use tidegate_http::{Method, Status};

/// Content of messages, bytes at most. What is larger is sent from the store.
const LARGEST: usize = 16 << 10;
/// Messages of one route on one worker. Whoever asks for another one that has the same place makes it anew.
const PLACES: usize = 128;

/// A message for a second, and for those who are told so much.
struct Made {
    entry: u64,
    second: i64,
    detail: Option<&'static str>,
    message: Rc<Message>,
}

/// The messages of one route on one worker.
pub(super) struct Prepared {
    made: RefCell<Vec<Option<Made>>>,
    /// What the route adds to all of its responses.
    decoration: Rc<Decoration>,
    server: Option<String>,
}

impl Prepared {
    pub(super) fn new(decoration: Rc<Decoration>, server: Option<String>) -> Prepared {
        Prepared { made: RefCell::default(), decoration, server }
    }

    /// The message for a plain request. `None`: it asks for more, or what is stored is not for a message. `detail` is what the
    /// client is told beyond the rest of `status`.
    pub(super) fn hit(
        &self,
        exchange: &Exchange<'_>,
        entry: &Entry,
        status: CacheStatus<'_>,
        detail: Option<&'static str>,
    ) -> Option<Response> {
        if !is_plain(exchange) {
            return None;
        }
        let found = self.find(entry, exchange.now, detail);
        let message = found.or_else(|| self.make(entry, exchange.now, status, detail))?;
        let body = Body::Prebuilt(message.clone());
        Some(Response {
            status: Status::OK,
            head: Head::Prebuilt(message),
            body,
            author: Author::DatedApplication,
        })
    }

    fn find(&self, entry: &Entry, second: i64, detail: Option<&'static str>) -> Option<Rc<Message>> {
        let made = self.made.borrow();
        let made = made.get(place(entry))?.as_ref()?;
        let is_it = made.entry == entry.id() && made.second == second && made.detail == detail;
        is_it.then(|| made.message.clone())
    }

    #[cold]
    fn make(
        &self,
        entry: &Entry,
        second: i64,
        status: CacheStatus<'_>,
        detail: Option<&'static str>,
    ) -> Option<Rc<Message>> {
        let head = entry.head();
        let content = entry.content().bytes().filter(|bytes| bytes.len() <= LARGEST)?;
        if head.status != Status::OK.0 {
            return None;
        }
        let mut lines = head.lines.clone();
        cache::set_age(&mut lines, head.freshness.age(second));
        let status = detail.map_or(status, |detail| status.detail(detail));
        status.append_to(&mut lines);
        self.decoration.apply_fixed(Status::OK, &mut lines);
        let len = Some(content.len() as u64);
        let message = Message::new(Status::OK, self.server.as_deref(), lines, len, content);
        let made = Made { entry: entry.id(), second, detail, message: message.clone() };
        let before = {
            let mut places = self.made.borrow_mut();
            places.resize_with(PLACES, || None);
            places.get_mut(place(entry))?.replace(made)
        };
        drop(before);
        Some(message)
    }
}

fn place(entry: &Entry) -> usize {
    (entry.id() % PLACES as u64) as usize
}

/// Whether a request asks for the whole, whatever it is.
fn is_plain(exchange: &Exchange<'_>) -> bool {
    exchange.method == Method::Get
        && !exchange.fields.iter().any(|field| {
            let name = field.name.as_bytes();
            matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]) || field.is("range")
        })
}
