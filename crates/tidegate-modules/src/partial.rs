//! Answers to requests for ranges (RFC 9110 sections 14 and 15.3.7), whatever their content comes from.

use tidegate_core::{Part, Response, answer};
use tidegate_http::{ByteRange, FieldLines, Ranges, Status, multipart, range};

/// The parts of several ranges of `len` bytes, and the lines of the whole made those of a multipart answer. `None` where there is no
/// piece for one of them.
pub(crate) fn parts_of(
    lines: &mut FieldLines,
    ranges: &Ranges,
    len: u64,
    seed: u64,
    mut piece: impl FnMut(ByteRange) -> Option<Part>,
) -> Option<Vec<Part>> {
    let media_type = lines.first("Content-Type").and_then(|value| str::from_utf8(value).ok());
    let media_type = media_type.unwrap_or("application/octet-stream").to_owned();
    let boundary = multipart::Boundary::new(seed);
    let mut parts = Vec::with_capacity(2 * ranges.as_slice().len() + 1);
    for range in ranges.as_slice() {
        let mut head = Vec::new();
        multipart::push_part_head(&mut head, &boundary, Some(&media_type), *range, len);
        parts.push(Part::Bytes(head));
        parts.push(piece(*range)?);
    }
    let mut close = Vec::new();
    multipart::push_close(&mut close, &boundary);
    parts.push(Part::Bytes(close));
    let mut content_type = Vec::new();
    boundary.push_content_type(&mut content_type);
    lines.set("Content-Type", content_type);
    Some(parts)
}

/// The answer where none of the ranges lies within `len` bytes.
pub(crate) fn unsatisfiable(len: u64) -> Response {
    let mut value = Vec::new();
    range::push_unsatisfied_range(&mut value, len);
    answer::error(Status::RANGE_NOT_SATISFIABLE).with("Content-Range", value)
}
