//! Content codings and their negotiation (RFC 9110 sections 8.4.1 and 12.5.3).
//!
//! Called by whoever has a representation in several codings, or can make them.

use crate::field::list_elements;
pub use crate::quality::qvalue;
use crate::quality::weighted;

/// The codings that the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// As it is.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878, with a window of at most 8 MiB (RFC 9659).
    Zstd,
}

impl ContentCoding {
    /// The name in `Content-Encoding` and `Accept-Encoding`. `identity` is never sent in the former.
    #[inline]
    pub const fn as_str(self) -> &'static str {
        match self {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
        }
    }

    /// Reads a name, without regard to case; `x-gzip` is gzip.
    #[inline]
    pub fn from_token(token: &[u8]) -> Option<ContentCoding> {
        const NAMES: [(&str, ContentCoding); 5] = [
            ("gzip", ContentCoding::Gzip),
            ("br", ContentCoding::Brotli),
            ("zstd", ContentCoding::Zstd),
            ("identity", ContentCoding::Identity),
            ("x-gzip", ContentCoding::Gzip),
        ];
        NAMES.iter().find(|(name, _)| token.eq_ignore_ascii_case(name.as_bytes())).map(|&(_, coding)| coding)
    }
}

/// Chooses a coding. `accept_encoding` gives the values of the `Accept-Encoding` lines (`Fields::all`, or
/// an `Option` of one), `offered` is what the server has, what it likes best first. Identity counts as
/// offered, last of all where it is not listed.
///
/// The highest weight wins, the server's order breaks ties. A coding that the field does not list is not
/// acceptable, but for identity: that stays acceptable, behind everything else, unless excluded
/// by name or by `*;q=0`. Without a field everything is acceptable, and identity is what every client
/// understands, so it is chosen. A malformed element does not count; of a coding listed twice the lower
/// weight does.
///
/// `None`: nothing is acceptable. A server may then answer 415 or 406, or send identity all the same.
pub fn negotiate<'v>(
    accept_encoding: impl IntoIterator<Item = &'v [u8]>,
    offered: &[ContentCoding],
) -> Option<ContentCoding> {
    let mut lines = accept_encoding.into_iter().peekable();
    if lines.peek().is_none() {
        return Some(ContentCoding::Identity);
    }
    let mut listed: [Option<u16>; 4] = [None; 4];
    let mut any: Option<u16> = None;
    for (token, weight) in lines.flat_map(list_elements).filter_map(weighted) {
        let entry = if token == b"*" {
            &mut any
        } else if let Some(coding) = ContentCoding::from_token(token) {
            &mut listed[coding as usize]
        } else {
            continue;
        };
        *entry = Some(entry.map_or(weight, |before| before.min(weight)));
    }

    let mut best: Option<(u32, ContentCoding)> = None;
    for coding in offered.iter().copied().chain([ContentCoding::Identity]) {
        let rank = match (listed[coding as usize], any, coding) {
            (Some(weight), _, _) => u32::from(weight) * 2,
            (None, Some(0), _) => 0,
            // Acceptable, yet less than anything the client has named.
            (None, _, ContentCoding::Identity) => 1,
            (None, Some(weight), _) => u32::from(weight) * 2,
            (None, None, _) => 0,
        };
        if rank > best.map_or(0, |(rank, _)| rank) {
            best = Some((rank, coding));
        }
    }
    best.map(|(_, coding)| coding)
}
