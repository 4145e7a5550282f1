//! The bytes of an object file: one layout for objects that are whole, that are filled, and of which parts are missing.
//!
//! Called by `fill` (writing), `object` and `scan` (reading). It touches no file: bytes in, bytes out. What is read is whatever a
//! disk gives back, so every length is bounded before it is used, and nothing here panics.
//!
//! All numbers are little-endian. Lengths and offsets are bytes.
//!
//! | offset | bytes | what |
//! | ---: | ---: | --- |
//! | 0 | 8 | `TGOBJECT` |
//! | 8 | 4 | version of this layout: 2 |
//! | 12 | 4 | CRC-32 of all that follows up to the content |
//! | 16 | 16 | hash of the key |
//! | 32 | 8 | length of the entity, at most 2^40 |
//! | 40 | 8 | a mark of the caller's |
//! | 48 | 4 | when it was stored, Unix seconds |
//! | 52 | 4 | serial: tells objects of one key apart |
//! | 56 | 16 | boot id of the kernel under which it was written |
//! | 72 | 4 | where the content begins, a multiple of 4096 |
//! | 76 | 4 | variant: tells which selecting fields it belongs to |
//! | 80 | 4 × 5 | lengths of key, freshness, field lines, selecting fields, tags |
//! | 100 | 2 | status |
//! | 102 | 2 | flags: 1 = whole when it was written |
//! | 104 | 4 | length of names |
//! | 108 | 20 | zero |
//! | 128 | | key, freshness, field lines, selecting fields, tags, names; zeros up to the content |
//! | content | length | the content; holes where pieces are missing |
//! | next multiple of 8 | 8 a piece | the table: CRC-32 of a piece of 256 KiB (the last is what is left), and its seal |
//!
//! A seal is made of the CRC, the number of the piece and the serial. One that fits says that the piece is there; zeros, torn
//! words and the table of another object fit nothing. The table stands last, since of a response without a length nobody knows
//! at the beginning how long a table it needs. The file ends with it: one that was cut is known by its length.

use std::ops::Range;

/// Bytes that have one checksum.
pub const PIECE: u64 = 256 << 10;
/// The content begins at a multiple of it.
pub const ALIGNMENT: u64 = 4096;
/// Before the key.
pub const FIXED: usize = 128;
/// The longest header that is written or read, bytes: key, head and what fills it up.
pub const LONGEST_HEADER: usize = 256 << 10;
/// The longest entity.
pub const LONGEST_ENTITY: u64 = 1 << 40;
/// Bytes of a piece in the table.
pub const ENTRY: usize = 8;

const MAGIC: &[u8; 8] = b"TGOBJECT";
const VERSION: u32 = 2;
const IS_WHOLE: u16 = 1;
/// Where the lengths of the sections stand.
const LENGTHS: [usize; 6] = [80, 84, 88, 92, 96, 104];

/// The boot of a kernel, as `/proc/sys/kernel/random/boot_id` names it.
pub type BootId = [u8; 16];

/// What is stored of a response beside its content; the disk knows bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head<'a> {
    /// The status code.
    pub status: u16,
    /// How long and how it may be used.
    pub freshness: &'a [u8],
    /// The field lines.
    pub lines: &'a [u8],
    /// The selecting fields of the request (`Vary`) and their values.
    pub varying: &'a [u8],
    /// What it can be purged by.
    pub tags: &'a [u8],
    /// What that is called.
    pub names: &'a [u8],
}

/// All that stands before the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Of the key.
    pub hash: u128,
    /// Of the whole representation, also where parts of it are missing.
    pub entity_length: u64,
    /// See [`NewObject`](super::NewObject).
    pub mark: u64,
    /// Unix seconds.
    pub stored_at: u32,
    /// Tells objects of one key apart.
    pub serial: u32,
    /// Under which it was written.
    pub boot: BootId,
    /// See [`NewObject`](super::NewObject).
    pub variant: u32,
    /// No piece was missing when it was written.
    pub is_whole: bool,
    /// The full key.
    pub key: &'a [u8],
    /// The stored head.
    pub head: Head<'a>,
}

/// Why bytes are no header. The file is one of ours that was damaged, or none of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends too soon or goes on too long.
    #[error("the file has another length than its header says")]
    Length,
    /// Not an object, or of another version.
    #[error("the file does not begin as an object of this version does")]
    Magic,
    /// A length or an offset that no object has.
    #[error("the header has a length that no object has")]
    Bounds,
    /// The header was changed.
    #[error("the checksum of the header does not fit")]
    Checksum,
    /// The name of the file is that of another object.
    #[error("the header is that of another object than the file is named for")]
    Identity,
    /// Others may have written it.
    #[error("the file belongs to another user, or others may write it")]
    Owner,
    /// A piece was changed.
    #[error("the checksum of a piece does not fit")]
    Piece,
}

impl<'a> Header<'a> {
    /// Where the content begins. `None`: the header would be longer than [`LONGEST_HEADER`].
    pub fn content_offset(&self) -> Option<u64> {
        let sections = self.sections();
        let length = sections.iter().try_fold(FIXED, |sum, section| sum.checked_add(section.len()))?;
        let offset = length.next_multiple_of(ALIGNMENT as usize);
        (offset <= LONGEST_HEADER && self.entity_length <= LONGEST_ENTITY).then_some(offset as u64)
    }

    fn sections(&self) -> [&'a [u8]; 6] {
        let Head { freshness, lines, varying, tags, names, .. } = self.head;
        [self.key, freshness, lines, varying, tags, names]
    }

    /// Writes everything up to the content, at `content` bytes or, for `None`, where it fits. `false`: it does not fit,
    /// and nothing was written.
    pub fn write(&self, content: Option<u64>, into: &mut Vec<u8>) -> bool {
        let Some(least) = self.content_offset() else { return false };
        let content = content.unwrap_or(least);
        if content < least || content > LONGEST_HEADER as u64 || !content.is_multiple_of(ALIGNMENT) {
            return false;
        }
        into.clear();
        into.reserve(content as usize);
        into.extend_from_slice(MAGIC);
        into.extend_from_slice(&VERSION.to_le_bytes());
        into.extend_from_slice(&[0; 4]);
        into.extend_from_slice(&self.hash.to_le_bytes());
        into.extend_from_slice(&self.entity_length.to_le_bytes());
        into.extend_from_slice(&self.mark.to_le_bytes());
        into.extend_from_slice(&self.stored_at.to_le_bytes());
        into.extend_from_slice(&self.serial.to_le_bytes());
        into.extend_from_slice(&self.boot);
        into.extend_from_slice(&(content as u32).to_le_bytes());
        into.extend_from_slice(&self.variant.to_le_bytes());
        into.resize(FIXED, 0);
        for (at, section) in LENGTHS.into_iter().zip(self.sections()) {
            into[at..at + 4].copy_from_slice(&(section.len() as u32).to_le_bytes());
        }
        into[100..102].copy_from_slice(&self.head.status.to_le_bytes());
        into[102..104].copy_from_slice(&(if self.is_whole { IS_WHOLE } else { 0 }).to_le_bytes());
        for section in self.sections() {
            into.extend_from_slice(section);
        }
        into.resize(content as usize, 0);
        let checksum = crc32fast::hash(&into[16..]);
        into[12..16].copy_from_slice(&checksum.to_le_bytes());
        true
    }
}

/// How long the header is that begins so: where the content begins. For who has read only its first bytes.
///
/// # Errors
/// The bytes are no beginning of a header.
pub fn header_length(bytes: &[u8]) -> Result<usize, Damage> {
    let fixed = bytes.first_chunk::<FIXED>().ok_or(Damage::Length)?;
    if &fixed[..8] != MAGIC || word(fixed, 8) != VERSION {
        return Err(Damage::Magic);
    }
    let content = word(fixed, 72) as usize;
    let is_aligned = content != 0 && content.is_multiple_of(ALIGNMENT as usize);
    if content > LONGEST_HEADER || !is_aligned { Err(Damage::Bounds) } else { Ok(content) }
}

/// Reads a header and says where the content begins. `bytes` is the beginning of a file, at least up to the content.
///
/// # Errors
/// Anything about it is not as [`Header::write`] makes it.
pub fn parse(bytes: &[u8]) -> Result<(Header<'_>, u64), Damage> {
    let content = header_length(bytes)?;
    let bytes = bytes.get(..content).ok_or(Damage::Length)?;
    if crc32fast::hash(&bytes[16..]) != word(bytes, 12) {
        return Err(Damage::Checksum);
    }
    fields(bytes)
}

/// As [`parse`], without the checksum, for bytes that were parsed before. `bytes` ends where the content begins.
///
/// # Errors
/// As [`parse`].
pub(super) fn fields(bytes: &[u8]) -> Result<(Header<'_>, u64), Damage> {
    let content = header_length(bytes)?;
    let bytes = bytes.get(..content).ok_or(Damage::Length)?;
    let entity_length = long(bytes, 32);
    let flags = half(bytes, 102);
    if entity_length > LONGEST_ENTITY || flags > IS_WHOLE || bytes[108..FIXED].iter().any(|byte| *byte != 0) {
        return Err(Damage::Bounds);
    }
    let mut rest = &bytes[FIXED..];
    let mut section = |at: usize| {
        let (section, behind) = rest.split_at_checked(word(bytes, at) as usize)?;
        rest = behind;
        Some(section)
    };
    let mut sections = [&[][..]; LENGTHS.len()];
    for (found, at) in sections.iter_mut().zip(LENGTHS) {
        *found = section(at).ok_or(Damage::Bounds)?;
    }
    let [key, freshness, lines, varying, tags, names] = sections;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(Damage::Bounds);
    }
    let header = Header {
        hash: u128::from_le_bytes(part(bytes, 16)),
        entity_length,
        mark: long(bytes, 40),
        stored_at: word(bytes, 48),
        serial: word(bytes, 52),
        boot: part(bytes, 56),
        variant: word(bytes, 76),
        is_whole: flags & IS_WHOLE != 0,
        key,
        head: Head { status: half(bytes, 100), freshness, lines, varying, tags, names },
    };
    Ok((header, content as u64))
}

/// Pieces of an entity of so many bytes.
pub fn pieces(entity_length: u64) -> u64 {
    entity_length.div_ceil(PIECE)
}

/// The bytes of a piece, within the entity; empty behind the end.
pub fn piece_range(number: u64, entity_length: u64) -> Range<u64> {
    let start = number.saturating_mul(PIECE).min(entity_length);
    start..start.saturating_add(PIECE).min(entity_length)
}

/// Where the table begins.
pub fn table_offset(content: u64, entity_length: u64) -> u64 {
    (content + entity_length).next_multiple_of(ENTRY as u64)
}

/// How long a file is.
pub fn file_length(content: u64, entity_length: u64) -> u64 {
    table_offset(content, entity_length) + pieces(entity_length) * ENTRY as u64
}

/// What stands in the table for a piece that is there.
pub fn entry(crc: u32, piece: u64, serial: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..4].copy_from_slice(&crc.to_le_bytes());
    entry[4..].copy_from_slice(&seal(crc, piece, serial).to_le_bytes());
    entry
}

/// The checksum of a piece; `None`: it is missing.
pub fn read_entry(entry: [u8; ENTRY], piece: u64, serial: u32) -> Option<u32> {
    let crc = word(&entry, 0);
    (word(&entry, 4) == seal(crc, piece, serial)).then_some(crc)
}

fn seal(crc: u32, piece: u64, serial: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(MAGIC);
    hasher.update(&crc.to_le_bytes());
    hasher.update(&piece.to_le_bytes());
    hasher.update(&serial.to_le_bytes());
    // Zeros are a hole, and never a piece.
    hasher.finalize() | 1
}

fn part<const LENGTH: usize>(bytes: &[u8], at: usize) -> [u8; LENGTH] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; LENGTH])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(part(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header<'a>(key: &'a [u8], head: Head<'a>) -> Header<'a> {
        Header {
            hash: 7 << 100 | 9,
            entity_length: 300_000,
            mark: 11,
            stored_at: 1_800_000_000,
            serial: 5,
            boot: [3; 16],
            variant: 77,
            is_whole: true,
            key,
            head,
        }
    }

    fn sample() -> Vec<u8> {
        let (freshness, lines, varying) = (b"fresh", b"a: b\r\n", b"v");
        let head = Head { status: 200, freshness, lines, varying, tags: &[8; 16], names: b"front post-17" };
        let mut bytes = Vec::new();
        assert!(header(b"https|a.example|/x", head).write(None, &mut bytes));
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = sample();
        let (read, content) = parse(&bytes).unwrap();
        assert_eq!(content, 4096);
        assert_eq!(read.key, b"https|a.example|/x");
        assert_eq!(read.head.lines, b"a: b\r\n");
        assert_eq!(read.head.names, b"front post-17");
        let mut again = Vec::new();
        assert!(read.write(Some(content), &mut again));
        assert_eq!(again, bytes);
    }

    #[test]
    fn lengths() {
        let table = [
            // entity, pieces, table, file
            (0, 0, 4096, 4096),
            (1, 1, 4104, 4112),
            (8, 1, 4104, 4112),
            (PIECE, 1, 4096 + PIECE, 4104 + PIECE),
            (PIECE + 1, 2, 4104 + PIECE, 4120 + PIECE),
        ];
        for (entity, count, at, length) in table {
            assert_eq!((pieces(entity), table_offset(4096, entity)), (count, at), "{entity}");
            assert_eq!(file_length(4096, entity), length, "{entity}");
        }
        assert_eq!(piece_range(1, PIECE + 1), PIECE..PIECE + 1);
        assert!(piece_range(2, PIECE + 1).is_empty());
        assert!(piece_range(u64::MAX, PIECE).is_empty());
    }

    #[test]
    fn a_seal_fits_one_place_alone() {
        let seal = entry(0, 0, 0);
        assert_eq!(read_entry(seal, 0, 0), Some(0));
        for (bytes, piece, serial) in [(seal, 1, 0), (seal, 0, 1), ([0; 8], 0, 0), ([255; 8], 0, 0)] {
            assert_eq!(read_entry(bytes, piece, serial), None, "{bytes:?} {piece} {serial}");
        }
    }

    #[test]
    fn a_header_that_is_too_long_is_not_written() {
        let key = vec![1; LONGEST_HEADER - FIXED];
        let mut bytes = vec![1];
        assert!(header(&key, Head::default()).write(None, &mut bytes));
        assert_eq!(bytes.len(), LONGEST_HEADER);
        assert!(parse(&bytes).is_ok());
        assert!(!header(&key, Head { tags: b"t", ..Head::default() }).write(None, &mut bytes));
        assert!(!Header { entity_length: u64::MAX, ..header(b"k", Head::default()) }.write(None, &mut bytes));
        for content in [0, 1, 4095, 4097, LONGEST_HEADER as u64 + 4096, u64::MAX] {
            assert!(!header(b"k", Head::default()).write(Some(content), &mut bytes), "{content}");
        }
    }

    #[test]
    fn a_header_that_is_cut_or_changed_is_none() {
        let bytes = sample();
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(parse(&changed).is_err(), "changed at {at}");
        }
    }

    /// What the fuzzer begins with is read; layout and corpus are changed together.
    #[test]
    fn the_corpus_is_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/cache_object");
        for name in ["whole", "part", "short"] {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            assert_eq!(parse(&bytes).is_ok(), name != "short", "{name}");
            crate::fuzzing::fuzz_object(&bytes);
        }
    }

    proptest! {
        /// A checksum that fits vouches for nothing: lengths are held to their bounds all the same.
        #[test]
        fn lengths_that_lie_are_refused(at in 32..FIXED, value: u32) {
            let mut bytes = sample();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let checksum = crc32fast::hash(&bytes[16..]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
            crate::fuzzing::fuzz_object(&bytes);
        }

        #[test]
        fn anything_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
            crate::fuzzing::fuzz_object(&bytes);
        }
    }
}
