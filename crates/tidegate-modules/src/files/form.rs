//! Which form of a file a client gets: as it is, a precompressed sibling, or one that is compressed here, once for all who ask.

use super::entry::{ENCODE_MAX, Encoded, FileEntry, Representation};
use super::serve::{Wishes, respond};
use super::{Inner, name};
use crate::compress;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tidegate_config::settings::Coding;
use tidegate_core::{Exchange, Filter, Reply, Response};
use tidegate_http::{ContentCoding, Status, coding};
use tidegate_io::blocking::{self, Overloaded};
use tidegate_io::file::Patience;

/// Who waits for one form, at most: each has a place among those in flight. Others get the file as it is.
const WAITING: usize = 64;

impl Inner {
    /// The hot path.
    #[inline]
    pub(super) fn answer(self: &Rc<Self>, entry: &Rc<FileEntry>, exchange: &mut Exchange<'_>) -> Reply {
        let wishes = Wishes::of(exchange.fields);
        let form = if wishes.coding { self.choose(entry, exchange) } else { Form::Identity };
        match form {
            Form::Identity if self.streams(entry) => self.answer_streamed(entry, exchange, wishes),
            Form::Identity => Reply::Ready(self.respond(entry, &entry.identity, exchange, wishes)),
            Form::Ready(form) => Reply::Ready(self.respond(entry, &form, exchange, wishes)),
            Form::Make(coding) => self.make(entry.clone(), coding, exchange),
            Form::Await(coding) => {
                let (inner, entry) = (self.clone(), entry.clone());
                let made = Made { entry: entry.clone(), coding };
                exchange.answer_after(made, move |(), exchange| inner.answer(&entry, exchange))
            }
        }
    }

    fn respond(
        &self,
        entry: &FileEntry,
        form: &Representation,
        exchange: &Exchange<'_>,
        wishes: Wishes,
    ) -> Response {
        let response = respond(exchange, wishes, &self.maker, form, entry.modified, self.ranges);
        if self.is_dressed_later { response.reopened() } else { response }
    }

    /// Which form the client prefers of those that lie there, and where it takes none of them, of those that can be made.
    fn choose(&self, entry: &FileEntry, exchange: &Exchange<'_>) -> Form {
        let encoded = entry.encoded.borrow();
        if encoded.is_empty() {
            return Form::Identity;
        }
        let mut offered = [ContentCoding::Identity; 4];
        let mut count = 0;
        for (coding, _) in encoded.iter().filter(|(_, form)| !matches!(form, Encoded::Useless)) {
            if let Some(slot) = offered.get_mut(count) {
                *slot = compress::content_coding(*coding);
                count += 1;
            }
        }
        let negotiate = |offered| coding::negotiate(exchange.fields.all("accept-encoding"), offered);
        let sibling = match entry.siblings {
            0 => None,
            siblings => negotiate(&offered[..siblings]).filter(|coding| *coding != ContentCoding::Identity),
        };
        let preferred = sibling.or_else(|| negotiate(&offered[..count]));
        let is_preferred = |coding: Coding| Some(compress::content_coding(coding)) == preferred;
        match encoded.iter().find(|(coding, _)| is_preferred(*coding)) {
            Some((_, Encoded::Ready(form))) => Form::Ready(form.clone()),
            Some((coding, Encoded::Possible)) => Form::Make(*coding),
            Some((coding, Encoded::Making(waiting))) if waiting.len() < WAITING => Form::Await(*coding),
            _ => Form::Identity,
        }
    }

    /// Whether a file is too large to be compressed as a whole, but is compressed as it is sent.
    fn streams(&self, entry: &FileEntry) -> bool {
        self.maker.compress.as_ref().is_some_and(|settings| {
            entry.identity.len > ENCODE_MAX
                && entry.encoded.borrow().is_empty()
                && compress::applies(settings, &entry.media_type, entry.identity.len)
        })
    }

    fn answer_streamed(&self, entry: &FileEntry, exchange: &Exchange<'_>, wishes: Wishes) -> Reply {
        let mut response = self.respond(entry, &entry.identity, exchange, wishes);
        let filter = self.stream_filter.as_ref().and_then(|filter| filter.prepare(exchange));
        if let (Some(filter), Status::OK) = (filter, response.status) {
            response = tidegate_core::filter::apply(filter, response.reopened());
            if !self.is_dressed_later {
                response = response.finished();
            }
        }
        Reply::Ready(response)
    }

    /// Makes a form on the blocking pool; it stays with the entry.
    fn make(self: &Rc<Self>, entry: Rc<FileEntry>, coding: Coding, exchange: &mut Exchange<'_>) -> Reply {
        let level = self.maker.compress.as_ref().and_then(|settings| {
            settings.codings.iter().find(|(offered, _)| *offered == coding).map(|(_, level)| *level)
        });
        let inner = self.clone();
        let source = entry.clone();
        let made = async move {
            // Only now: the request may have waited for its turn, and others would have waited for it.
            let Some(making) = Making::begin(&source, coding) else {
                Made { entry: source, coding }.await;
                return None;
            };
            let made = match level {
                Some(level) => encode(&source, coding, level).await,
                None => Ok(None),
            };
            Some((making, made))
        };
        exchange.answer_after(made, move |made, exchange| {
            let Some((making, made)) = made else { return inner.answer(&entry, exchange) };
            // Others may have better luck.
            let Ok(made) = made else {
                drop(making);
                let wishes = Wishes::of(exchange.fields);
                return Reply::Ready(inner.respond(&entry, &entry.identity, exchange, wishes));
            };
            // A form that is not smaller is no use to anyone.
            let useful = made.filter(|bytes| (bytes.len() as u64) < entry.identity.len);
            let form = match useful {
                Some(bytes) => Encoded::Ready(Rc::new(inner.maker.made(&entry, coding, bytes))),
                None => Encoded::Useless,
            };
            entry.set_form(coding, form);
            drop(making);
            inner.shared.cache.borrow_mut().resize(inner.instance, name(exchange));
            inner.answer(&entry, exchange)
        })
    }
}

enum Form {
    Identity,
    Ready(Rc<Representation>),
    Make(Coding),
    Await(Coding),
}

/// Gives the place free again when the client leaves while a form is made.
struct Making {
    entry: Rc<FileEntry>,
    coding: Coding,
}

impl Making {
    /// `None`: somebody else makes it, or has made it.
    fn begin(entry: &Rc<FileEntry>, coding: Coding) -> Option<Making> {
        if !entry.can_be_made(coding) {
            return None;
        }
        entry.set_form(coding, Encoded::Making(Vec::new()));
        Some(Making { entry: entry.clone(), coding })
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.entry.is_making(self.coding) {
            self.entry.set_form(self.coding, Encoded::Possible);
        }
    }
}

/// Ready when a form is made no longer: it is there, or whoever wanted it has gone; at once where as many wait as may.
struct Made {
    entry: Rc<FileEntry>,
    coding: Coding,
}

impl Future for Made {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut encoded = self.entry.encoded.borrow_mut();
        let form = encoded.iter_mut().find(|(coding, _)| *coding == self.coding);
        let Some((_, Encoded::Making(waiting))) = form else { return Poll::Ready(()) };
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            if waiting.len() >= WAITING {
                return Poll::Ready(()); // gets the file as it is
            }
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A file in a coding; nothing where that fails.
async fn encode(entry: &FileEntry, coding: Coding, level: u8) -> Result<Option<Vec<u8>>, Overloaded> {
    let whole = entry.identity.len as usize;
    let job = match &entry.identity.file {
        None => {
            let bytes = entry.identity.message.encoded().body().to_vec();
            blocking::run(move || compress::encode_whole(coding, level, &bytes))
        }
        Some(file) => {
            let (queue_key, file) = (file.queue_key(), file.shared());
            blocking::run_in(queue_key, move || {
                let bytes =
                    tidegate_io::file::read_whole(std::os::fd::AsFd::as_fd(&file), whole, Patience::Wait)?;
                compress::encode_whole(coding, level, &bytes)
            })
        }
    };
    Ok(job?.await.ok())
}
