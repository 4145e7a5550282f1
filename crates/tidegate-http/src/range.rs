//! Byte ranges (RFC 9110 section 14).
//!
//! Called for a GET whose `Range` counts (see [`crate::conditional::if_range`]), once the length of the
//! representation is known. Whatever is asked, what is selected never comes to more than the
//! representation itself: ranges that overlap or lie close together are joined. `multipart` writes the
//! answer where several are left.

use crate::decimal::{parse_decimal_saturating, push_decimal};
use crate::field::trim;
use crate::multipart::PART_OVERHEAD;

/// A range of bytes, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// One past the offset of the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The number of bytes, never 0 in a range that was selected.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> u64 {
        self.end - self.start
    }
}

/// What a `Range` field comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The field is ignored: answer 200 with everything.
    Whole,
    /// Answer 416 with [`push_unsatisfied_range`].
    Unsatisfiable,
    /// Answer 206: as it is for one range, as multipart for more.
    Ranges(Ranges),
}

/// One range or more, in the order asked for. A single one takes no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(Store);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Store {
    One(ByteRange),
    Many(Vec<ByteRange>),
}

impl Ranges {
    /// Never empty.
    #[inline]
    pub fn as_slice(&self) -> &[ByteRange] {
        match &self.0 {
            Store::One(range) => std::slice::from_ref(range),
            Store::Many(ranges) => ranges,
        }
    }

    /// The range, where there is only one.
    #[inline]
    pub fn single(&self) -> Option<ByteRange> {
        match self.as_slice() {
            [range] => Some(*range),
            _ => None,
        }
    }
}

/// Selects from a representation of `length` bytes what `value`, the value of a `Range` field, asks for.
///
/// - A unit other than `bytes`, a malformed list, or more than `limit` ranges: [`Selection::Whole`]. A
///   server may ignore any `Range` (section 14.2), and these it should.
/// - Ranges that overlap, touch, or leave a gap that costs less than the head of a part are joined, at
///   the place of the one asked for first. Where several ranges come to everything: `Whole`.
/// - Numbers too large for `u64` are taken for the largest there is.
pub fn select(value: &[u8], length: u64, limit: u16) -> Selection {
    let Some((unit, list)) = split_at_equals(value) else { return Selection::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return Selection::Whole;
    }
    let mut asked = 0u16;
    let mut first = None;
    let mut more: Vec<ByteRange> = Vec::new();
    for element in list.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty()) {
        if asked >= limit {
            return Selection::Whole;
        }
        asked += 1;
        let range = match resolve(element, length) {
            Resolved::Range(range) => range,
            Resolved::Unsatisfiable => continue,
            Resolved::Whole => return Selection::Whole,
        };
        match first {
            None => first = Some(range),
            Some(first) => {
                if more.is_empty() {
                    more.push(first);
                }
                more.push(range);
            }
        }
    }
    match first {
        None if asked == 0 => Selection::Whole,
        None => Selection::Unsatisfiable,
        Some(range) if more.is_empty() => Selection::Ranges(Ranges(Store::One(range))),
        Some(_) => join(more, length),
    }
}

/// Joins what overlaps or lies close together. The gaps that are left cost at least what the head of a
/// part costs, so the multipart answer is never longer than the representation and one head.
fn join(ranges: Vec<ByteRange>, length: u64) -> Selection {
    let mut order: Vec<u32> = (0..ranges.len() as u32).collect();
    order.sort_unstable_by_key(|&index| (ranges[index as usize].start, index));

    // Place in the order asked for, and range.
    let mut joined: Vec<(u32, ByteRange)> = Vec::with_capacity(ranges.len());
    for index in order {
        let range = ranges[index as usize];
        match joined.last_mut() {
            Some((place, last)) if range.start < last.end.saturating_add(PART_OVERHEAD) => {
                last.end = last.end.max(range.end);
                *place = index.min(*place);
            }
            _ => joined.push((index, range)),
        }
    }
    if let [(_, range)] = joined[..] {
        return if range.len() == length {
            Selection::Whole
        } else {
            Selection::Ranges(Ranges(Store::One(range)))
        };
    }
    joined.sort_unstable_by_key(|&(place, _)| place);
    Selection::Ranges(Ranges(Store::Many(joined.into_iter().map(|(_, range)| range).collect())))
}

enum Resolved {
    Range(ByteRange),
    Unsatisfiable,
    /// Malformed, or not to be expressed in a `Content-Range`.
    Whole,
}

/// One `first-last`, `first-` or `-suffix` (section 14.1.1).
fn resolve(element: &[u8], length: u64) -> Resolved {
    let Some(dash) = memchr::memchr(b'-', element) else { return Resolved::Whole };
    let (first, last) = (&element[..dash], &element[dash + 1..]);
    if first.is_empty() {
        return match parse_decimal_saturating(last) {
            None => Resolved::Whole,
            Some(0) => Resolved::Unsatisfiable,
            // Satisfiable by the letter, but the last bytes of nothing have no position.
            Some(_) if length == 0 => Resolved::Whole,
            Some(suffix) => Resolved::Range(ByteRange { start: length.saturating_sub(suffix), end: length }),
        };
    }
    let Some(start) = parse_decimal_saturating(first) else { return Resolved::Whole };
    let end = if last.is_empty() {
        length
    } else {
        match parse_decimal_saturating(last) {
            Some(last) if last >= start => last.saturating_add(1).min(length),
            _ => return Resolved::Whole,
        }
    };
    if start < length { Resolved::Range(ByteRange { start, end }) } else { Resolved::Unsatisfiable }
}

fn split_at_equals(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = memchr::memchr(b'=', value)?;
    Some((&value[..equals], &value[equals + 1..]))
}

/// Appends the value of `Content-Range` for one range of `length` bytes: `bytes 0-499/1234`.
pub fn push_content_range(out: &mut Vec<u8>, range: ByteRange, length: u64) {
    out.extend_from_slice(b"bytes ");
    push_decimal(out, range.start);
    out.push(b'-');
    push_decimal(out, range.end.saturating_sub(1));
    out.push(b'/');
    push_decimal(out, length);
}

/// Appends the value of `Content-Range` for a 416: `bytes */1234`.
pub fn push_unsatisfied_range(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"bytes */");
    push_decimal(out, length);
}
