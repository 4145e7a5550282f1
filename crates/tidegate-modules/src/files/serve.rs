//! A representation and a request to a response: conditions (RFC 9110 section 13) and ranges (section 14).

use super::entry::{Maker, Representation};
use crate::partial::{parts_of, unsatisfiable};
use std::rc::Rc;
use tidegate_core::response::{Author, Body, FilePiece, Head, Part, Response};
use tidegate_core::{Exchange, answer};
use tidegate_http::conditional::{evaluate, if_range};
use tidegate_http::range;
use tidegate_http::{
    EntityTag, FieldLines, Fields, Method, Precondition, Ranges, Selection, Status, Validators,
};

/// Which fields of a request ask for more than the plain file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// `If-...`
    pub conditional: bool,
    /// `Range`
    pub range: bool,
    /// `Accept-Encoding`
    pub coding: bool,
}

impl Wishes {
    /// One pass over the fields.
    #[inline]
    pub fn of(fields: Fields<'_>) -> Wishes {
        let mut wishes = Wishes::default();
        for field in fields.iter() {
            let name = field.name.as_bytes();
            match name.len() {
                5 => wishes.range |= field.is("range"),
                8 | 13 | 17 | 19 => wishes.conditional |= name[..3].eq_ignore_ascii_case(b"if-"),
                15 => wishes.coding |= field.is("accept-encoding"),
                _ => {}
            }
        }
        wishes
    }
}

/// The answer that a request gets from a representation last modified at `modified`.
#[inline]
pub fn respond(
    exchange: &Exchange<'_>,
    wishes: Wishes,
    maker: &Maker,
    representation: &Representation,
    modified: i64,
    ranges: u16,
) -> Response {
    if wishes.conditional || wishes.range {
        let tag = EntityTag::parse(&representation.entity_tag);
        let validators = Validators::new(tag, Some(modified));
        match evaluate(exchange.method, exchange.fields, &validators, exchange.now) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                let message = representation.not_modified(maker.server.as_deref()).clone();
                return Response {
                    status: Status::NOT_MODIFIED,
                    head: Head::Prebuilt(message),
                    body: Body::Empty,
                    author: Author::Server,
                };
            }
            Precondition::Failed => return answer::error(Status::PRECONDITION_FAILED),
        }
        if wishes.range
            && exchange.method == Method::Get
            && let Some(value) = exchange.fields.single("range")
            && if_range(exchange.fields, &validators, exchange.now)
        {
            match range::select(value, representation.len, ranges) {
                Selection::Whole => {}
                Selection::Unsatisfiable => return unsatisfiable(representation.len),
                Selection::Ranges(ranges) => return partial(representation, &ranges, exchange.started),
            }
        }
    }
    Response {
        status: Status::OK,
        head: Head::Prebuilt(representation.message.clone()),
        body: representation.body(),
        author: Author::Server,
    }
}

/// Fields of a partial response: those of the whole. The route's own are among them already, so the head
/// is a finished one.
fn partial(representation: &Representation, ranges: &Ranges, seed: u64) -> Response {
    let mut lines = representation.message.lines().clone();
    if let Some(range) = ranges.single() {
        let mut value = Vec::new();
        range::push_content_range(&mut value, range, representation.len);
        lines.push("Content-Range", value);
        let body = match piece(representation, range.start, range.end) {
            Part::Bytes(bytes) => Body::Bytes(bytes),
            Part::Shared(piece) => Body::Shared(piece),
            Part::File(piece) => Body::File(piece),
        };
        return finished(Status::PARTIAL_CONTENT, lines, body);
    }
    let parts = parts_of(&mut lines, ranges, representation.len, seed, |range| {
        Some(piece(representation, range.start, range.end))
    });
    let body = Body::Parts(parts.unwrap_or_default());
    finished(Status::PARTIAL_CONTENT, lines, body)
}

/// A response that the Filter phase leaves alone: the lines have the route's fields already.
fn finished(status: Status, lines: FieldLines, body: Body) -> Response {
    Response { status, head: Head::Final(lines), body, author: Author::Server }
}

fn piece(representation: &Representation, start: u64, end: u64) -> Part {
    match &representation.file {
        Some(file) => Part::File(FilePiece::new(Rc::clone(file), start, end)),
        None => {
            let encoded = representation.message.encoded();
            Part::Bytes(encoded.body().get(start as usize..end as usize).unwrap_or_default().to_vec())
        }
    }
}
