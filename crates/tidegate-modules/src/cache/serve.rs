//! A stored response to a request: conditions (RFC 9111 section 4.3.2) and ranges (RFC 9110 section 14.2).

use super::source::StoredSource;
use crate::partial::{parts_of, unsatisfiable};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_cache::{Content, Reader, StoredHead};
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
    /// In a file, from an offset on.
    File { file: Rc<PagedFile>, offset: u64, len: u64 },
}

impl Source {
    /// Where a stored content lies.
    pub(super) fn of(content: &Arc<Content>) -> Source {
        let Some(file) = content.file() else { return Source::Memory(content.clone()) };
        let paged = PagedFile::shared_with(file.file().clone(), file.queue_key(), content.clone());
        Source::File { file: Rc::new(paged), offset: file.offset(), len: file.len() }
    }

    /// Bytes in all; `None` while nobody knows.
    pub(super) fn len(&self) -> Option<u64> {
        match self {
            Source::Memory(content) => content.len(),
            Source::File { len, .. } => Some(*len),
        }
    }

    /// All of it, by a reader where there is one already. `None`: it is being let go of.
    fn whole(&self, reader: Option<Reader>) -> Option<Body> {
        let end = self.len();
        match (self, end) {
            (_, Some(0)) => Some(Body::Empty),
            (Source::Memory(content), _) if reader.is_some() && !content.is_complete() => {
                Some(stream(reader?, end))
            }
            (_, Some(end)) => self.piece(ByteRange { start: 0, end }),
            (Source::Memory(content), None) => content.reader(0..u64::MAX).map(|reader| stream(reader, None)),
            (Source::File { .. }, None) => None,
        }
    }

    /// A range of it; `None` as with the whole.
    fn piece(&self, ByteRange { start, end }: ByteRange) -> Option<Body> {
        match self {
            Source::File { file, offset, .. } => {
                Some(Body::File(FilePiece::new(file.clone(), offset + start, offset + end)))
            }
            Source::Memory(content) => match piece_of(content, start, end) {
                Some(bytes) => Some(Body::Bytes(bytes.to_vec())),
                None => content.reader(start..end).map(|reader| stream(reader, Some(end - start))),
            },
        }
    }

    /// A range of it as one of several parts; `None` where it is not there yet, or too much to copy.
    fn part(&self, ByteRange { start, end }: ByteRange) -> Option<Part> {
        match self {
            Source::File { file, offset, .. } => {
                Some(Part::File(FilePiece::new(file.clone(), offset + start, offset + end)))
            }
            Source::Memory(content) => piece_of(content, start, end).map(|bytes| Part::Bytes(bytes.to_vec())),
        }
    }
}

/// A piece of what is complete and in one piece.
fn piece_of(content: &Content, start: u64, end: u64) -> Option<&[u8]> {
    content.bytes()?.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
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
                return Some(answer::error(Status::PRECONDITION_FAILED).by(Author::Application));
            }
        }
        if exchange.method == Method::Get
            && let Some(value) = exchange.fields.single("range")
            && let Some(len) = source.len()
            && if_range(exchange.fields, &range_validators(&head.lines), exchange.now)
        {
            match range::select(value, len, ranges) {
                Selection::Whole => {}
                Selection::Unsatisfiable => return Some(unsatisfiable(len).by(Author::Application)),
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

/// Fields of a 304: those that a 200 would have had, but for what tells of content that is not sent.
fn not_modified(mut lines: FieldLines) -> FieldLines {
    for name in ["Content-Type", "Content-Encoding", "Content-Language", "Content-Range", "Accept-Ranges"] {
        lines.remove(name);
    }
    lines
}

/// `None`: several ranges that would have to be copied, and are too much. The whole is a right answer, too.
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
