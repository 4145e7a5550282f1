//! Reading a folder: names into one arena, a record of 24 bytes for each, in order as far as the page asks.
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
    names: Vec<u8>,
    entries: Vec<Entry>,
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

/// One entry; its name is in the arena of the [`Listing`].
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Bytes; of a file.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub modified: i64,
    name_at: u32,
    name_len: u16,
    /// File or folder.
    pub kind: Kind,
    /// Whether size and modification are known.
    is_known: bool,
}

const _: () = assert!(size_of::<Entry>() == 24);

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
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The bytes of a name: no slash, no NUL, otherwise anything.
    pub fn name(&self, entry: &Entry) -> &[u8] {
        name_in(&self.names, entry)
    }
}

fn name_in<'n>(names: &'n [u8], entry: &Entry) -> &'n [u8] {
    names.get(entry.name_at as usize..).and_then(|rest| rest.get(..entry.name_len.into())).unwrap_or_default()
}

/// Reads the open `folder`, which lies at `relative` beneath the root, and picks the page.
pub fn scan(
    root: &Root,
    relative: &[u8],
    folder: BorrowedFd<'_>,
    wanted: &Wanted,
) -> Result<Listing, ScanError> {
    let place = Place { root, relative, folder };
    let looks_at_all = wanted.view.sort != Sort::Name;
    let Found { names, mut entries, is_complete } = read(&place, wanted, looks_at_all)?;

    let total = entries.len();
    let page_size = wanted.page_size.max(1) as usize;
    let pages = total.div_ceil(page_size).max(1);
    let page = usize::try_from(wanted.view.page).unwrap_or(usize::MAX).clamp(1, pages);
    let first = (page - 1) * page_size;
    let end = total.min(first.saturating_add(page_size));
    let folders = entries.iter().filter(|entry| entry.kind == Kind::Folder).count();
    let file_bytes = |entries: &[Entry]| {
        let files = entries.iter().filter(|entry| entry.kind == Kind::File);
        files.fold(0u64, |sum, file| sum.saturating_add(file.size))
    };
    let size = looks_at_all.then(|| file_bytes(&entries));

    let by = |left: &Entry, right: &Entry| compare(&names, wanted.view, left, right);
    let shown = select(&mut entries, first, end, by);
    shown.sort_unstable_by(by);
    let (names, entries) = if pages == 1 { (names, entries) } else { copy(&names, shown) };
    let (total, page, pages, first) = (total as u64, page as u64, pages as u64, first as u64);
    let folders = folders as u64;
    let mut listing = Listing { names, entries, total, folders, page, pages, first, size, is_complete };
    if !looks_at_all {
        let Listing { names, entries, .. } = &mut listing;
        entries.retain_mut(|entry| entry.is_known || place.complete(names, entry));
    }
    if pages == 1 {
        let folders = listing.entries.iter().filter(|entry| entry.kind == Kind::Folder).count();
        (listing.total, listing.folders) = (listing.entries.len() as u64, folders as u64);
        listing.size = Some(file_bytes(&listing.entries));
    }
    Ok(listing)
}

/// A page of its own: what is streamed to a slow reader holds that, not the folder.
fn copy(names: &[u8], shown: &[Entry]) -> (Vec<u8>, Vec<Entry>) {
    let mut kept = Vec::new();
    let entries = shown.iter().map(|entry| {
        let name_at = kept.len() as u32;
        kept.extend_from_slice(name_in(names, entry));
        Entry { name_at, ..*entry }
    });
    let entries = entries.collect();
    (kept, entries)
}

struct Found {
    names: Vec<u8>,
    entries: Vec<Entry>,
    is_complete: bool,
}

fn read(place: &Place<'_>, wanted: &Wanted, looks_at_all: bool) -> Result<Found, ScanError> {
    let mut found = Found { names: Vec::new(), entries: Vec::new(), is_complete: true };
    let mut buffer: Vec<u8> = Vec::with_capacity(READ);
    let mut folder = RawDir::new(place.folder, buffer.spare_capacity_mut());
    let mut permit = None;
    loop {
        let entry = match folder.next() {
            None => return Ok(found),
            Some(Ok(entry)) => entry,
            Some(Err(Errno::INTR)) => continue,
            Some(Err(error)) if found.entries.is_empty() => return Err(io::Error::from(error).into()),
            Some(Err(_)) => {
                found.is_complete = false;
                return Ok(found);
            }
        };
        let name = entry.file_name().to_bytes();
        let is_hidden = name.starts_with(b".") && (!wanted.shows_hidden || name == b"." || name == b"..");
        if is_hidden {
            continue;
        }
        let (Ok(name_at), Ok(name_len)) = (u32::try_from(found.names.len()), u16::try_from(name.len()))
        else {
            continue;
        };
        let looked_at = match entry.file_type() {
            FileType::RegularFile if !looks_at_all => None,
            FileType::Directory if !looks_at_all => None,
            FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown => {
                match place.look(name) {
                    Some(seen) => Some(seen),
                    None => continue,
                }
            }
            _ => continue,
        };
        if found.entries.len() >= wanted.most_entries as usize || found.names.len() >= MOST_NAME_BYTES {
            found.is_complete = false;
            return Ok(found);
        }
        if found.entries.len() == HUGE && permit.is_none() {
            permit = Some(Permit::take().ok_or(ScanError::Overloaded)?);
        }
        let is_known = looked_at.is_some();
        let (kind, size, modified) = looked_at.unwrap_or_else(|| {
            let is_folder = entry.file_type() == FileType::Directory;
            (if is_folder { Kind::Folder } else { Kind::File }, 0, 0)
        });
        found.names.extend_from_slice(name);
        found.entries.push(Entry { size, modified, name_at, name_len, kind, is_known });
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

impl Place<'_> {
    /// What a name leads to; `None` where that is nothing to be listed. A symbolic link counts as what it
    /// leads to, as long as that lies beneath the root and can be read.
    fn look(&self, name: &[u8]) -> Option<(Kind, u64, i64)> {
        let stat = statat(self.folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some((Kind::File, stat.st_size.max(0) as u64, stat.st_mtime)),
            FileType::Directory => Some((Kind::Folder, 0, stat.st_mtime)),
            FileType::Symlink => {
                let meta = self.root.open_file(&self.beneath(name), Patience::Wait).ok()?.meta;
                match meta.kind {
                    FileKind::Regular => Some((Kind::File, meta.len, meta.mtime)),
                    FileKind::Folder => Some((Kind::Folder, 0, meta.mtime)),
                    FileKind::Other => None,
                }
            }
            _ => None,
        }
    }

    /// Fills in what the folder itself did not say. `false`: it is gone.
    fn complete(&self, names: &[u8], entry: &mut Entry) -> bool {
        let Some((kind, size, modified)) = self.look(name_in(names, entry)) else { return false };
        *entry = Entry { size, modified, kind, is_known: true, ..*entry };
        true
    }

    fn beneath(&self, name: &[u8]) -> Vec<u8> {
        beneath(self.relative, name)
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
fn compare(names: &[u8], view: View, left: &Entry, right: &Entry) -> Ordering {
    let directed = |order: Ordering| match view.order {
        Order::Ascending => order,
        Order::Descending => order.reverse(),
    };
    let by_name = || natural(name_in(names, left), name_in(names, right));
    left.kind.cmp(&right.kind).then_with(|| match view.sort {
        Sort::Name => directed(by_name()),
        Sort::Size => directed(left.size.cmp(&right.size)).then_with(by_name),
        Sort::Date => directed(left.modified.cmp(&right.modified)).then_with(by_name),
    })
}

/// Brings the entries of `first..end` there without sorting the others.
fn select(
    entries: &mut [Entry],
    first: usize,
    end: usize,
    by: impl Fn(&Entry, &Entry) -> Ordering + Copy,
) -> &mut [Entry] {
    if first > 0 && first < entries.len() {
        entries.select_nth_unstable_by(first, by);
    }
    let behind = entries.get_mut(first..).unwrap_or_default();
    let count = end.saturating_sub(first).min(behind.len());
    if count > 0 && count < behind.len() {
        behind.select_nth_unstable_by(count - 1, by);
    }
    &mut behind[..count]
}
