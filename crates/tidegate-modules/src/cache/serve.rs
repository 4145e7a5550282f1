//! A stored response to a request: conditions (RFC 9111 section 4.3.2) and ranges (RFC 9110 section 14.2).

use super::source::StoredSource;
use crate::partial::{parts_of, unsatisfiable};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_cache::{Content, Entry, Reader, Sent, StoredHead};
use tidegate_core::response::FilePiece;
use tidegate_core::{Author, Body, Exchange, Head, Part, Response, answer};
use tidegate_http::cache::{current_validators, range_validators};
use tidegate_http::conditional::{evaluate, if_range};
use tidegate_http::{ByteRange, FieldLines, Method, Precondition, Ranges, Selection, Status, range};
use tidegate_io::paged::PagedFile;

/// Where stored content lies.
pub(super) enum Source {
    /// In memory, or still on its way.
    Memory(Arc<Content>),
    /// In a file, from an offset on; of a part the first `filled` bytes.
    File { file: Rc<PagedFile>, offset: u64, len: u64, filled: u64 },
}

impl Source {
    /// Where a stored content lies.
    pub(super) fn of(content: &Arc<Content>) -> Source {
        let Some(file) = content.file() else { return Source::Memory(content.clone()) };
        let paged = PagedFile::shared_with(file.file().clone(), file.queue_key(), content.clone());
        let (offset, len, filled) = (file.offset(), file.len(), content.filled());
        Source::File { file: Rc::new(paged), offset, len, filled }
    }

    /// Bytes in all; `None` while nobody knows.
    pub(super) fn len(&self) -> Option<u64> {
        match self {
            Source::Memory(content) => content.len(),
            Source::File { len, .. } => Some(*len),
        }
    }

    /// All of it, by a reader where there is one already. `None`: it is being let go of, or a part.
    fn whole(&self, reader: Option<Reader>) -> Option<Body> {
        let end = self.len();
        match (self, end) {
            (Source::Memory(content), _) if content.is_part() => None,
            (_, Some(0)) => Some(Body::Empty),
            (Source::Memory(content), _) if reader.is_some() && content.shared().is_none() => {
                Some(stream(reader?, end))
            }
            (_, Some(end)) => {
                drop(reader); // else it would count as somebody who holds it
                self.piece(ByteRange { start: 0, end })
            }
            (Source::Memory(content), None) => content.reader(0..u64::MAX).map(|reader| stream(reader, None)),
            (Source::File { .. }, None) => None,
        }
    }

    /// A range of it; `None`: it is being let go of, or not all there.
    fn piece(&self, ByteRange { start, end }: ByteRange) -> Option<Body> {
        match self {
            Source::File { filled, .. } if end > *filled => None,
            Source::File { file, offset, .. } => {
                Some(Body::File(FilePiece::new(file.clone(), offset + start, offset + end)))
            }
            Source::Memory(content) => match content.sent(start, end) {
                Some(sent) => Some(body_of(sent)),
                None => content.reader(start..end).map(|reader| stream(reader, Some(end - start))),
            },
        }
    }

    /// A range of it as one of several parts; `None` where it is not there yet.
    fn part(&self, ByteRange { start, end }: ByteRange) -> Option<Part> {
        match self {
            Source::File { filled, .. } if end > *filled => None,
            Source::File { file, offset, .. } => {
                Some(Part::File(FilePiece::new(file.clone(), offset + start, offset + end)))
            }
            Source::Memory(content) => content.sent(start, end).map(|sent| match sent {
                Sent::Shared(piece) => Part::Shared(piece),
                Sent::Copied(bytes) => Part::Bytes(bytes),
            }),
        }
    }
}

/// As content of an answer.
pub(super) fn body_of(sent: Sent) -> Body {
    match sent {
        Sent::Shared(piece) => Body::Shared(piece),
        Sent::Copied(bytes) => Body::Bytes(bytes),
    }
}

/// The one range that a request is for, of a stored response of a length that is known. `None`: it is for all of it, for several
/// ranges, or for none.
pub(super) fn range_of(exchange: &Exchange<'_>, entry: &Entry, ranges: u16) -> Option<ByteRange> {
    let head = entry.head();
    let value = exchange.fields.single("range")?;
    let is_meant = exchange.method == Method::Get
        && head.status == Status::OK.0
        && if_range(exchange.fields, &range_validators(&head.lines), exchange.now);
    match range::select(value, entry.content().len().filter(|_| is_meant)?, ranges) {
        Selection::Ranges(ranges) => ranges.single(),
        Selection::Whole | Selection::Unsatisfiable => None,
    }
}

fn stream(reader: Reader, len: Option<u64>) -> Body {
    Body::Stream { len, has_trailers: false, stream: Box::new(StoredSource::new(reader)) }
}

/// The answer that a request gets from what is stored, with these fields. `ranges` is how many are answered at most. `None`: its
/// content is being let go of.
pub(super) fn respond(
    exchange: &Exchange<'_>,
    head: &StoredHead,
    lines: FieldLines,
    (source, reader): (&Source, Option<Reader>),
    ranges: u16,
) -> Option<Response> {
    let status = Status(head.status);
    if status == Status::OK {
        let validators = current_validators(&head.lines, &head.freshness);
        match evaluate(exchange.method, exchange.fields, &validators, exchange.now) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                return Some(stored(Status::NOT_MODIFIED, not_modified(lines), Body::Empty));
            }
            Precondition::Failed => {
                let response = answer::error(Status::PRECONDITION_FAILED).by(Author::Application);
                return Some(told(response, &lines));
            }
        }
        if exchange.method == Method::Get
            && let Some(value) = exchange.fields.single("range")
            && let Some(len) = source.len()
            && if_range(exchange.fields, &range_validators(&head.lines), exchange.now)
        {
            match range::select(value, len, ranges) {
                Selection::Whole => {}
                Selection::Unsatisfiable => {
                    let response = unsatisfiable(len).by(Author::Application);
                    return Some(told(response, &lines));
                }
                Selection::Ranges(ranges) => {
                    let partial = partial(&lines, source, len, &ranges, exchange.started);
                    if partial.is_some() {
                        return partial;
                    }
                }
            }
        }
    }
    source.whole(reader).map(|body| stored(status, lines, body))
}

/// An answer of this server's that says as well what the cache has done.
fn told(mut response: Response, lines: &FieldLines) -> Response {
    let own = response.fields_mut();
    lines.all("Cache-Status").for_each(|member| own.push_read("Cache-Status", member));
    response
}

/// Fields of a 304: those that a 200 would have had, but for what tells of content that is not sent.
fn not_modified(mut lines: FieldLines) -> FieldLines {
    for name in ["Content-Type", "Content-Encoding", "Content-Language", "Content-Range", "Accept-Ranges"] {
        lines.remove(name);
    }
    lines
}

/// `None`: several ranges of what is still coming in, or being let go of. The whole is a right answer, too.
fn partial(lines: &FieldLines, source: &Source, len: u64, ranges: &Ranges, seed: u64) -> Option<Response> {
    let mut lines = lines.clone();
    if let Some(range) = ranges.single() {
        let mut value = Vec::new();
        range::push_content_range(&mut value, range, len);
        lines.push("Content-Range", value);
        return source.piece(range).map(|body| stored(Status::PARTIAL_CONTENT, lines, body));
    }
    let parts = parts_of(&mut lines, ranges, len, seed, |range| source.part(range))?;
    Some(stored(Status::PARTIAL_CONTENT, lines, Body::Parts(parts)))
}

fn stored(status: Status, lines: FieldLines, body: Body) -> Response {
    Response { status, head: Head::Fields(lines), body, author: Author::DatedApplication }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cache::{Join, Limits, Store};
    use tidegate_http::Fields;
    use tidegate_http::cache::{Freshness, Varying};

    /// Content of `len` bytes, and the reader of whom it was fetched for.
    fn fetched(len: usize, announced: bool) -> (Arc<Content>, Reader) {
        let store = Store::new("main", Limits { memory: 1 << 20, object: 30_000 });
        let Join::Lead(lead) = store.join(b"/", Fields::new(&[])) else { panic!() };
        let head = StoredHead {
            site: 0,
            status: 200,
            lines: FieldLines::new(),
            freshness: Freshness::from_bytes(&[0; Freshness::ENCODED]).expect("stale at once"),
            varying: Varying::default(),
            tags: Box::default(),
            tag_names: Box::default(),
            host: "a".into(),
            target: "/".into(),
        };
        let (entry, mut fill) = lead.store(head, announced.then_some(len as u64), 0).unwrap();
        let reader = entry.content().reader(0..u64::MAX).unwrap();
        let content = vec![7; len];
        let mut at = 0;
        while at < len {
            let count = fill.append(&content[at..]).unwrap();
            assert!(count > 0, "there is a window for what is passed on");
            at += count;
        }
        fill.complete();
        (entry.content().clone(), reader)
    }

    #[test]
    fn what_is_complete_is_sent_from_where_it_lies_and_what_was_too_large_by_its_reader() {
        for (len, announced, is_shared) in
            [(20_000, true, true), (30_000, true, true), (30_000, false, true), (40_000, false, false)]
        {
            let (content, reader) = fetched(len, announced);
            assert!(content.is_complete());
            let body = Source::of(&content).whole(Some(reader)).expect("whoever it was fetched for gets it");
            assert_eq!(body.len(), Some(len as u64));
            assert_eq!(matches!(body, Body::Shared(_)), is_shared, "{len}");
        }
    }
}
