//! What is missing of a content whose answer has broken off: it is asked for with `Range` and `If-Range`, so that only the rest
//! comes, and only of the same representation (RFC 9110 sections 13.1.5 and 14.2, RFC 9111 section 3.4). At once, or, where that is
//! in vain, by whoever asks for the part that is kept.

use std::rc::Rc;
use tidegate_core::apart::AskAgain;
use tidegate_core::{Body, Handler, Response};
use tidegate_http::cache::partial::{combines, content_range, if_range, may_be_resumed};
use tidegate_http::{Field, FieldLines, Fields, Status};
use tidegate_io::clock::wall_seconds;

/// How often the rest of one content is asked for.
const MOST_TRIES: u8 = 2;

/// Who can be asked for the rest of an answer.
pub(super) struct Origin {
    pub(super) again: AskAgain,
    pub(super) inner: Rc<dyn Handler>,
    /// What the answer was asked for with, without conditions.
    pub(super) fields: FieldLines,
}

/// The rest of one answer.
pub(super) struct Rest {
    origin: Origin,
    /// The fields of the whole, as they came.
    head: FieldLines,
    /// Bytes of the whole.
    len: u64,
    tries: u8,
    /// Bytes that had come at the last try.
    before: u64,
}

impl Rest {
    /// `None`: an answer of a length that nobody knows, or without a strong validator, is had as a whole or not at all.
    pub(super) fn of(origin: Origin, response: &Response) -> Option<Rest> {
        let (head, len) = (response.head.lines(), response.body.len()?);
        may_be_resumed(response.status, head).then(|| Rest::after(origin, head.clone(), len))
    }

    /// The rest of a part, whose fields these are.
    pub(super) fn after(origin: Origin, head: FieldLines, len: u64) -> Rest {
        Rest { origin, head, len, tries: 0, before: 0 }
    }

    /// What follows the first `at` bytes. `None`: it cannot be had, or nothing has come since it was last asked for.
    pub(super) async fn from(&mut self, at: u64) -> Option<Body> {
        if self.tries >= MOST_TRIES || at <= self.before || at >= self.len {
            return None;
        }
        (self.tries, self.before) = (self.tries + 1, at);
        let mut lines = self.origin.fields.clone();
        lines.append(&conditions(&self.head, at)?);
        let reply = {
            let fields: Vec<_> = lines.iter().map(|(name, value)| Field { name, value }).collect();
            let inner = &self.origin.inner;
            let again = &self.origin.again;
            again.ask(Fields::new(&fields), wall_seconds(), |exchange, pass| inner.handle(exchange, pass))
        };
        let response = reply.settled().await;
        is_rest((&self.head, self.len), at, &response).then_some(response.body)
    }
}

/// What asks for all that follows the first `at` bytes of a response with these fields, and of no other. `None`: nothing tells it
/// from another.
pub(super) fn conditions(head: &FieldLines, at: u64) -> Option<FieldLines> {
    let mut lines = FieldLines::new();
    lines.push("If-Range", if_range(head)?);
    lines.push("Range", format!("bytes={at}-"));
    Some(lines)
}

/// Whether a response is what follows the first `at` bytes of one with these fields and so many bytes, or a beginning of that.
pub(super) fn is_rest((head, len): (&FieldLines, u64), at: u64, response: &Response) -> bool {
    let Some(came) = content_range(response.head.lines()) else { return false };
    let is_same_length = |len| len == came.range.end - came.range.start;
    response.status == Status::PARTIAL_CONTENT
        && came.range.start == at
        && came.range.end <= len
        && response.body.len().is_none_or(is_same_length)
        && !matches!(response.body, Body::Parts(_) | Body::Tunnel { .. })
        && combines(head, Some(len), response.head.lines())
}
