//! Reading a folder: names into an arena, a record of 16 bytes for each, in order as far as the page asks.
//!
//! Runs on the blocking pool. What only a page of a large folder needs (sizes, dates) is looked up for that
//! page alone: in order of names the type that the folder itself holds is enough to put folders first.
//! Entries may come, change and go meanwhile; one that has gone by the time it is looked at is left out.
//! Nothing but regular files and folders beneath the root is listed: what a request would not be given does
//! not show.

use super::order::natural;
use super::query::{Order, Sort, View};
use rustix::fs::{AtFlags, FileType, RawDir, statat};
use rustix::io::Errno;
use std::cmp::Ordering;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tidegate_http::path;
use tidegate_io::file::{FileKind, Patience, Root};

/// What a folder is read for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Order and page.
    pub view: View,
    /// Most entries of one page.
    pub page_size: u32,
    /// Whether names that begin with a dot are listed.
    pub shows_hidden: bool,
    /// Most entries that are read.
    pub most_entries: u32,
}

/// Most entries that are read of one folder; a page says when there are more.
pub const MOST_ENTRIES: u32 = 2_000_000;
/// Most bytes of names that are held of one folder.
const MOST_NAME_BYTES: usize = 128 << 20;
/// A folder with more entries counts as huge, and only so many of these are read at once.
const HUGE: usize = 200_000;
const HUGE_AT_ONCE: u32 = 4;
/// Bytes asked of `getdents64(2)` at a time.
const READ: usize = 64 << 10;

/// A page of a folder, in order.
#[derive(Debug)]
pub struct Listing {
    names: Names,
    entries: Vec<ListingEntry>,
    /// Entries of the folder, on all pages.
    pub total: u64,
    /// Those of them that are folders.
    pub folders: u64,
    /// The page shown, from 1.
    pub page: u64,
    /// At least 1.
    pub pages: u64,
    /// Position of the first entry of the page in the folder, from 0.
    pub first: u64,
    /// Bytes of all files together, where all of them were looked at.
    pub size: Option<u64>,
    /// `false` when the folder holds more than is read.
    pub is_complete: bool,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Listed first.
    Folder,
    /// A regular file.
    File,
}

/// One entry of a page.
#[derive(Debug, Clone, Copy)]
pub struct ListingEntry {
    name: NameAt,
    /// File or folder.
    pub kind: Kind,
    /// Bytes; of a file.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub modified: i64,
}

/// One entry of the folder: what puts it in its place.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// Size or modification, where the order is by these.
    key: i64,
    name: NameAt,
    kind: Kind,
}

const _: () = assert!(size_of::<Record>() == 16);

/// Why a folder was not read.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Too many huge folders are being read.
    #[error("too many huge folders are being listed at once")]
    Overloaded,
    /// The file system said no.
    #[error("reading the folder: {0}")]
    Io(#[from] io::Error),
}

impl Listing {
    /// The entries of the page, in order.
    pub fn entries(&self) -> &[ListingEntry] {
        &self.entries
    }

    /// The bytes of a name: no slash, no NUL, otherwise anything.
    pub fn name(&self, entry: &ListingEntry) -> &[u8] {
        self.names.at(entry.name)
    }
}

/// Reads the open `folder`, which lies at `relative` beneath the root, and picks the page.
///
/// # Errors
/// The folder cannot be read from its beginning, or too many huge folders are being listed at once.
pub fn scan(
    root: &Root,
    relative: &[u8],
    folder: BorrowedFd<'_>,
    wanted: &Wanted,
) -> Result<Listing, ScanError> {
    let place = Place { root, relative, folder };
    let Found { names, mut records, size, is_complete } = read(&place, wanted)?;
    let total = records.len();
    let page_size = wanted.page_size.max(1) as usize;
    let pages = total.div_ceil(page_size).max(1);
    let page = usize::try_from(wanted.view.page).unwrap_or(usize::MAX).clamp(1, pages);
    let first = (page - 1) * page_size;
    let end = total.min(first.saturating_add(page_size));
    let folders = records.iter().filter(|record| record.kind == Kind::Folder).count();

    let by = |left: &Record, right: &Record| compare(&names, wanted.view, left, right);
    let shown = select(&mut records, first, end, by);
    shown.sort_unstable_by(by);

    // A page of its own: what is streamed to a slow reader holds that, not the folder. What the folder
    // did not say is looked up now.
    let mut kept = Names::default();
    let mut entries = Vec::with_capacity(shown.len());
    for record in shown {
        let name = names.at(record.name);
        let (Some(seen), Some(name)) = (place.look(name), kept.push(name)) else { continue };
        entries.push(ListingEntry { name, kind: seen.kind, size: seen.size, modified: seen.modified });
    }
    let mut listing = Listing {
        names: kept,
        entries,
        total: total as u64,
        folders: folders as u64,
        page: page as u64,
        pages: pages as u64,
        first: first as u64,
        size,
        is_complete,
    };
    if pages == 1 {
        let files = || listing.entries.iter().filter(|entry| entry.kind == Kind::File);
        let size = files().fold(0u64, |sum, file| sum.saturating_add(file.size));
        let (total, files) = (listing.entries.len(), files().count());
        (listing.total, listing.folders, listing.size) = (total as u64, (total - files) as u64, Some(size));
    }
    Ok(listing)
}

/// Names one after the other, each behind its length, in pieces: a vector that grows would for a moment be
/// held twice.
#[derive(Debug, Default)]
struct Names {
    pieces: Vec<Vec<u8>>,
}

/// Where a name is.
#[derive(Debug, Clone, Copy)]
struct NameAt(u32);

const PIECE_BITS: u32 = 18;
const PIECE: usize = 1 << PIECE_BITS;

impl Names {
    /// `None` when there is no room, or the name is longer than any that a file system has.
    fn push(&mut self, name: &[u8]) -> Option<NameAt> {
        let len = u16::try_from(name.len()).ok()?.to_ne_bytes();
        let needed = len.len() + name.len();
        if self.pieces.last().is_none_or(|piece| PIECE - piece.len() < needed) {
            if self.pieces.len() >= MOST_NAME_BYTES / PIECE {
                return None;
            }
            // The first one grows with a small folder; where there is a second, there are many.
            self.pieces.push(Vec::with_capacity(if self.pieces.is_empty() { 0 } else { PIECE }));
        }
        let index = self.pieces.len() - 1;
        let piece = self.pieces.last_mut()?;
        let at = (index as u32) << PIECE_BITS | piece.len() as u32;
        piece.extend_from_slice(&len);
        piece.extend_from_slice(name);
        Some(NameAt(at))
    }

    #[inline]
    fn at(&self, NameAt(at): NameAt) -> &[u8] {
        let piece = self.pieces.get((at >> PIECE_BITS) as usize);
        let from_length = piece.and_then(|piece| piece.get(at as usize % PIECE..));
        let split = from_length.and_then(|rest| rest.split_first_chunk());
        split.and_then(|(len, rest)| rest.get(..u16::from_ne_bytes(*len).into())).unwrap_or_default()
    }
}

struct Found {
    names: Names,
    records: Vec<Record>,
    /// Of all files, where the order made it necessary to look at them.
    size: Option<u64>,
    is_complete: bool,
}

fn read(place: &Place<'_>, wanted: &Wanted) -> Result<Found, ScanError> {
    let looks_at_all = wanted.view.sort != Sort::Name;
    let size = looks_at_all.then_some(0);
    let mut found = Found { names: Names::default(), records: Vec::new(), size, is_complete: true };
    let mut buffer: Vec<u8> = Vec::with_capacity(READ);
    let mut folder = RawDir::new(place.folder, buffer.spare_capacity_mut());
    let mut permit = None;
    loop {
        let entry = match folder.next() {
            None => return Ok(found),
            Some(Ok(entry)) => entry,
            Some(Err(Errno::INTR)) => continue,
            Some(Err(error)) if found.records.is_empty() => return Err(io::Error::from(error).into()),
            Some(Err(_)) => {
                found.is_complete = false;
                return Ok(found);
            }
        };
        let name = entry.file_name().to_bytes();
        if name.starts_with(b".") && !(wanted.shows_hidden && path::is_reachable(name)) {
            continue;
        }
        let (kind, key) = match entry.file_type() {
            FileType::RegularFile if !looks_at_all => (Kind::File, 0),
            FileType::Directory if !looks_at_all => (Kind::Folder, 0),
            FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown => {
                let Some(seen) = place.look(name) else { continue };
                found.size = found.size.map(|sum| sum.saturating_add(seen.size));
                match wanted.view.sort {
                    Sort::Name => (seen.kind, 0),
                    Sort::Size => (seen.kind, i64::try_from(seen.size).unwrap_or(i64::MAX)),
                    Sort::Date => (seen.kind, seen.modified),
                }
            }
            _ => continue,
        };
        if found.records.len() == HUGE && permit.is_none() {
            permit = Some(Permit::take().ok_or(ScanError::Overloaded)?);
        }
        let has_room = found.records.len() < wanted.most_entries as usize;
        let Some(name) = has_room.then(|| found.names.push(name)).flatten() else {
            found.is_complete = false;
            return Ok(found);
        };
        found.records.push(Record { key, name, kind });
    }
}

/// One of the few huge folders that are read at once: their memory is what is bounded.
struct Permit;

static HUGE_NOW: AtomicU32 = AtomicU32::new(0);

impl Permit {
    fn take() -> Option<Permit> {
        let more = |now: u32| (now < HUGE_AT_ONCE).then_some(now + 1);
        HUGE_NOW.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        HUGE_NOW.fetch_sub(1, Relaxed);
    }
}

/// Where entries are looked up.
struct Place<'a> {
    root: &'a Root,
    relative: &'a [u8],
    folder: BorrowedFd<'a>,
}

/// What a name leads to.
struct Seen {
    kind: Kind,
    /// Bytes; of a file.
    size: u64,
    modified: i64,
}

impl Place<'_> {
    /// `None` where a name leads to nothing that is to be listed. A symbolic link counts as what it leads
    /// to, as long as that lies beneath the root and can be read.
    fn look(&self, name: &[u8]) -> Option<Seen> {
        let stat = statat(self.folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let (kind, size, modified) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => (Kind::File, stat.st_size.max(0) as u64, stat.st_mtime),
            FileType::Directory => (Kind::Folder, 0, stat.st_mtime),
            FileType::Symlink => {
                let meta = self.root.open_file(&beneath(self.relative, name), Patience::Wait).ok()?.meta;
                match meta.kind {
                    FileKind::Regular => (Kind::File, meta.len, meta.mtime),
                    FileKind::Folder => (Kind::Folder, 0, meta.mtime),
                    FileKind::Other => return None,
                }
            }
            _ => return None,
        };
        Some(Seen { kind, size, modified })
    }
}

/// A name in a folder, as a path below the root.
pub fn beneath(relative: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = relative.to_vec();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Folders first; then as asked; what is equal in that, by name.
fn compare(names: &Names, view: View, left: &Record, right: &Record) -> Ordering {
    let directed = |order: Ordering| match view.order {
        Order::Ascending => order,
        Order::Descending => order.reverse(),
    };
    let by_name = || natural(names.at(left.name), names.at(right.name));
    left.kind.cmp(&right.kind).then_with(|| match view.sort {
        Sort::Name => directed(by_name()),
        Sort::Size | Sort::Date => directed(left.key.cmp(&right.key)).then_with(by_name),
    })
}

/// Brings the records of `first..end` there without sorting the others.
fn select(
    records: &mut [Record],
    first: usize,
    end: usize,
    by: impl Fn(&Record, &Record) -> Ordering + Copy,
) -> &mut [Record] {
    if first > 0 && first < records.len() {
        records.select_nth_unstable_by(first, by);
    }
    let behind = records.get_mut(first..).unwrap_or_default();
    let count = end.saturating_sub(first).min(behind.len());
    if count > 0 && count < behind.len() {
        behind.select_nth_unstable_by(count - 1, by);
    }
    &mut behind[..count]
}
