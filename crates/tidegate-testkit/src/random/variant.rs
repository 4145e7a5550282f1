//! What a request may say beside its target: ranges, conditions, codings, whatever rules look at, and who it is from.
//!
//! `explain` foretells the answer to each. Where the standard leaves no choice, it is held to the standard as well.

use super::answer::{Body, Served};
use super::generator::Generator;

/// Part of a file, from an offset up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Piece {
    /// As a Content-Range says it of content with this length.
    pub(super) fn of_field(value: &str, whole: u64) -> Result<Piece, String> {
        let parsed = || {
            let (range, of) = value.strip_prefix("bytes ")?.split_once('/')?;
            let (first, last) = range.split_once('-')?;
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            (of.parse() == Ok(whole) && first <= last && last < whole)
                .then_some(Piece { start: first, end: last + 1 })
        };
        parsed().ok_or_else(|| format!("Content-Range: {value} of {whole} bytes"))
    }
}

/// What is there of the pieces, in order, those that touch or overlap as one.
pub(super) fn joined(pieces: &[Piece], whole: u64) -> Vec<Piece> {
    let there = pieces.iter().map(|piece| Piece { start: piece.start, end: piece.end.min(whole) });
    let mut there: Vec<Piece> = there.filter(|piece| piece.start < piece.end).collect();
    there.sort_unstable();
    let mut joined: Vec<Piece> = Vec::new();
    for piece in there {
        match joined.last_mut() {
            Some(last) if piece.start <= last.end => last.end = last.end.max(piece.end),
            _ => joined.push(piece),
        }
    }
    joined
}

/// Whether an answer with the pieces `found`, in order, is one to a request for `asked`: nothing of it is missing, and nothing is
/// there beside it but gaps that cost less than the head of a part.
pub(super) fn is_answer(found: &[Piece], asked: &[Piece], whole: u64) -> bool {
    let mut rest = &joined(asked, whole)[..];
    for piece in found {
        let count = rest.iter().take_while(|part| part.end <= piece.end).count();
        let (within, behind) = rest.split_at(count);
        let (Some(first), Some(last)) = (within.first(), within.last()) else { return false };
        let has_wide_gap = within.windows(2).any(|pair| pair[1].start - pair[0].end > GAP);
        if (first.start, last.end) != (piece.start, piece.end) || has_wide_gap {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

/// About what the head of a part costs.
const GAP: u64 = 256;

/// A kind of what a request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Range,
    IfRange {
        matches: bool,
    },
    IfNoneMatch {
        matches: bool,
    },
    IfMatch {
        matches: bool,
    },
    IfModifiedSince {
        is_later: bool,
    },
    IfUnmodifiedSince {
        is_later: bool,
    },
    Gzip,
    GzipRange,
    /// A field that rules ask for.
    Rule(&'static str, &'static str),
}

/// Fields of a request, and what must come of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    pub(super) fields: Vec<(String, String)>,
    /// The pieces that are asked for.
    pub(super) pieces: Vec<Piece>,
    /// The status that the standard demands.
    pub(super) status: Option<u16>,
}

const OTHER_TAG: &str = "\"another\"";
const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

impl Variant {
    pub(super) fn generate(random: &mut Generator) -> Variant {
        let matches = random.chance(60);
        let is_later = matches;
        random.weighted(&[
            (4, Variant::Range),
            (2, Variant::IfRange { matches }),
            (2, Variant::IfNoneMatch { matches }),
            (1, Variant::IfMatch { matches }),
            (1, Variant::IfModifiedSince { is_later }),
            (1, Variant::IfUnmodifiedSince { is_later }),
            (3, Variant::Gzip),
            (1, Variant::GzipRange),
            (2, Variant::Rule("X-A", "1")),
            (1, Variant::Rule("X-A", "22")),
            (2, Variant::Rule("Cookie", "c=yes")),
        ])
    }

    /// What it says to a resource that is `plain` without it; nothing where that is no file.
    pub(super) fn say(self, random: &mut Generator, plain: &Served) -> Option<Said> {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        if let Variant::Rule(name, value) = self {
            return Some(Said { fields: vec![field(name, value)], ..Said::default() });
        }
        let Body::File { length: length @ 1.., .. } = plain.body else { return None };
        let known = |name: &str| {
            plain.fields.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if plain.status != 200 {
            return None;
        }
        let (tag, time) = (known("etag")?, known("last-modified")?);
        let mut said = Said::default();
        match self {
            Variant::Range => said = ranges(random, length),
            Variant::IfRange { matches } => {
                said = ranges(random, length);
                said.fields.push(field("If-Range", if matches { &tag } else { OTHER_TAG }));
                if !matches {
                    said.status = Some(200);
                }
            }
            Variant::IfNoneMatch { matches } => {
                let value = if matches { format!("{OTHER_TAG}, W/{tag}") } else { OTHER_TAG.to_owned() };
                said.fields.push(field("If-None-Match", &value));
                said.status = Some(if matches { 304 } else { 200 });
            }
            Variant::IfMatch { matches } => {
                said.fields.push(field("If-Match", if matches { &tag } else { OTHER_TAG }));
                said.status = Some(if matches { 200 } else { 412 });
            }
            Variant::IfModifiedSince { is_later } => {
                said.fields.push(field("If-Modified-Since", if is_later { &time } else { LONG_AGO }));
                said.status = Some(if is_later { 304 } else { 200 });
            }
            Variant::IfUnmodifiedSince { is_later } => {
                said.fields.push(field("If-Unmodified-Since", if is_later { &time } else { LONG_AGO }));
                said.status = Some(if is_later { 200 } else { 412 });
            }
            Variant::Gzip => said.fields.push(field("Accept-Encoding", "gzip")),
            Variant::GzipRange => {
                said = ranges(random, length);
                said.status = None;
                said.fields.push(field("Accept-Encoding", "gzip"));
            }
            Variant::Rule(..) => {}
        }
        Some(said)
    }
}

/// A Range with one piece or several, some of them beyond the end.
fn ranges(random: &mut Generator, whole: u64) -> Said {
    let count = random.weighted(&[(5, 1), (2, 2), (2, 5)]);
    let (mut words, mut pieces) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let start = random.size(whole + whole / 8);
        match random.below(4) {
            0 => {
                words.push(format!("{start}-"));
                pieces.push(Piece { start, end: u64::MAX });
            }
            1 => {
                let last = random.size(whole * 2).max(1);
                words.push(format!("-{last}"));
                pieces.push(Piece { start: whole.saturating_sub(last), end: u64::MAX });
            }
            _ => {
                let length = random.size(whole).max(1);
                words.push(format!("{start}-{}", start + length - 1));
                pieces.push(Piece { start, end: start + length });
            }
        }
    }
    // Of several it may make one, or send all.
    let status = match joined(&pieces, whole).is_empty() {
        true => Some(416),
        false => (count == 1).then_some(206),
    };
    let fields = vec![("Range".to_owned(), format!("bytes={}", words.join(", ")))];
    Said { fields, pieces, status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_touch_or_overlap_are_one() {
        let piece = |start, end| Piece { start, end };
        assert_eq!(
            joined(&[piece(50, 60), piece(0, 10), piece(10, 20), piece(55, u64::MAX), piece(99, 120)], 70),
            [piece(0, 20), piece(50, 70)]
        );
        let asked = [piece(50, 60), piece(0, 10), piece(1000, 1010)];
        assert!(is_answer(&[piece(0, 60), piece(1000, 1010)], &asked, 2000));
        assert!(is_answer(&[piece(0, 10), piece(50, 60), piece(1000, 1010)], &asked, 2000));
        assert!(is_answer(&[piece(0, 60)], &asked, 100));
        assert!(!is_answer(&[piece(0, 1010)], &asked, 2000), "too much between them");
        assert!(!is_answer(&[piece(0, 60)], &asked, 2000), "not all of it");
        assert!(!is_answer(&[piece(0, 61), piece(1000, 1010)], &asked, 2000));
        assert_eq!(Piece::of_field("bytes 0-9/20", 20), Ok(piece(0, 10)));
        assert!(Piece::of_field("bytes 0-20/20", 20).is_err());
    }
}
