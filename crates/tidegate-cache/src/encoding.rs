//! A stored head as bytes, for a disk.
//!
//! The disk keeps freshness, field lines, selecting fields and names as they are; what purges go by is one section: the site (8 bytes), host and target, each behind
//! its length (4 bytes, little-endian), and the marks (8 each). What is read was vouched for by a checksum, and is parsed as if
//! it was not.

use crate::disk::Head;
use crate::entry::StoredHead;
use tidegate_http::FieldLines;
use tidegate_http::cache::{Freshness, Varying};
use xxhash_rust::xxh3::xxh3_64;

/// What of a head is not bytes already.
pub(crate) struct Encoded {
    freshness: [u8; Freshness::ENCODED],
    place: Vec<u8>,
}

impl Encoded {
    pub(crate) fn of(head: &StoredHead) -> Encoded {
        let mut place = Vec::with_capacity(16 + head.host.len() + head.target.len() + 8 * head.tags.len());
        place.extend_from_slice(&head.site.to_le_bytes());
        for text in [&head.host, &head.target] {
            place.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            place.extend_from_slice(text.as_bytes());
        }
        head.tags.iter().for_each(|tag| place.extend_from_slice(&tag.to_le_bytes()));
        Encoded { freshness: head.freshness.to_bytes(), place }
    }

    /// As the disk takes it, of the same head.
    pub(crate) fn as_head<'a>(&'a self, head: &'a StoredHead) -> Head<'a> {
        Head {
            status: head.status,
            freshness: &self.freshness,
            lines: head.lines.as_bytes(),
            varying: head.varying.as_bytes(),
            tags: &self.place,
            names: &head.tag_names,
        }
    }
}

/// Reads what [`Encoded`] has made; `None`: it is of another version.
pub(crate) fn decode(head: &Head<'_>) -> Option<StoredHead> {
    let (site, mut rest) = head.tags.split_first_chunk()?;
    let mut text = || {
        let (length, behind) = rest.split_first_chunk()?;
        let (text, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        str::from_utf8(text).ok().map(Box::<str>::from)
    };
    let (host, target) = (text()?, text()?);
    if !rest.len().is_multiple_of(8) {
        return None;
    }
    let tags = rest.chunks_exact(8).filter_map(|tag| tag.first_chunk()).map(|tag| u64::from_le_bytes(*tag));
    let mut lines = FieldLines::with_capacity(head.lines.len());
    lines.append_lines(head.lines);
    Some(StoredHead {
        status: head.status,
        lines,
        freshness: Freshness::from_bytes(head.freshness)?,
        varying: Varying::from_bytes(head.varying)?,
        tags: tags.collect(),
        tag_names: head.names.into(),
        site: u64::from_le_bytes(*site),
        host,
        target,
    })
}

/// What tells the variants of a key apart on a disk. Two that collide replace each other there.
pub(crate) fn variant_of(varying: &Varying) -> u32 {
    xxh3_64(varying.as_bytes()) as u32
}
