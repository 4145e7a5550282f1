//! What a disk holds, as a file: a snapshot and the journal of what has happened since, so that a restart reads no object.
//!
//! Called by `volume`, which guards it with a lock of its own. Both are files of one form:
//!
//! | bytes | what |
//! | ---: | --- |
//! | 8 | `TGINDEX` and a zero |
//! | 4 | version: 1 |
//! | 4 | 1: written before a scan was done, so that files are missing from it; else 0 |
//! | 16 | boot id of the kernel under which it was written |
//! | 8 + n | frames: length (4), CRC-32 of what follows (4), records of 48 bytes |
//!
//! A snapshot ends with a frame of no bytes. A record is `kind (1: stored, 2: removed), flags, uses, zero, serial (4), hash (16),
//! mark (8), bytes (8), variant (4), stored at (4)`. Records say what is so now, so that reading one twice changes nothing: a
//! snapshot may be taken while others go on. `index-N` holds what `journal-M` with M < N said.
//!
//! An object is written to the journal before it gets its name, and taken out some time after it was deleted. So a process that is
//! killed leaves a journal that knows every file, and perhaps some that are gone. A power cut may tear it, and then
//! a scan finds out.

use super::Id;
use super::folder::{names, read_full, write_all};
use super::index::Stored;
use super::layout::BootId;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const MAGIC: &[u8; 8] = b"TGINDEX\0";
const VERSION: u32 = 1;
/// Bytes before the first frame.
const START: usize = 32;
/// Bytes of a record.
pub(super) const RECORD: usize = 48;
/// Records of a frame, at most.
const FRAME_RECORDS: usize = 4096;
/// Length and checksum.
const FRAME_HEAD: usize = 8;
/// A journal of so many bytes is never too long.
const SHORT: u64 = 256 << 10;
/// Journals that are read one after the other at a start; beyond, a snapshot is made.
const MOST_JOURNALS: usize = 8;

const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Stored(Stored),
    Removed(Id),
}

/// The journal that is written.
#[derive(Debug)]
pub(super) struct Journal {
    file: OwnedFd,
    boot: BootId,
    number: u32,
    length: u64,
    /// Bytes of snapshot and journals before this one.
    older: u64,
    older_journals: usize,
    /// Records that wait for the next write.
    pending: Vec<u8>,
}

/// What was found at a start.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Objects, the last word on each.
    pub(super) stored: Vec<Stored>,
    /// What was removed, for a scan that comes across it.
    pub(super) removed: Vec<Id>,
    /// Everything was written under this boot and read to its end: no file is missing from it.
    pub(super) is_whole: bool,
    bytes: u64,
    journals: usize,
    /// The oldest number that was read.
    first: u32,
    next: u32,
}

/// Reads what an earlier process has left. What cannot be read is left out, and then it is not whole.
pub(super) fn read(slot: BorrowedFd<'_>, boot: Option<BootId>) -> Found {
    let numbers = numbers(slot);
    let newest = numbers.iter().filter(|file| file.0).map(|file| file.1).max();
    let mut files: Vec<(bool, u32)> = numbers
        .iter()
        .copied()
        .filter(|file| if file.0 { Some(file.1) == newest } else { Some(file.1) >= newest })
        .collect();
    files.sort_by_key(|(is_snapshot, number)| (!is_snapshot, *number));
    let mut found = Found {
        is_whole: !files.is_empty() && boot.is_some(),
        first: newest.unwrap_or(0),
        next: numbers.iter().map(|file| file.1 + 1).max().unwrap_or(1),
        journals: files.iter().filter(|file| !file.0).count(),
        ..Found::default()
    };
    let mut last_words = hashbrown::HashMap::<Id, u32>::new();
    for (is_snapshot, number) in files {
        let name = file_name(is_snapshot, number);
        let is_whole = read_file(slot, &name, is_snapshot, boot, &mut found, &mut last_words);
        found.is_whole &= is_whole.unwrap_or(false);
    }
    let mut place = 0;
    found.stored.retain(|stored| {
        let is_last = last_words.get(&stored.id) == Some(&place);
        place += 1;
        is_last
    });
    // In the order in which they came, whatever the order in which they stood in memory.
    found.stored.sort_by_key(|stored| stored.stored_at);
    found
}

/// Reads one file; `false`: not all of it. `last_words` holds for each object the place of what was said last, none for removed.
fn read_file(
    slot: BorrowedFd<'_>,
    name: &str,
    is_snapshot: bool,
    boot: Option<BootId>,
    found: &mut Found,
    last_words: &mut hashbrown::HashMap<Id, u32>,
) -> rustix::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(slot, name, flags, Mode::empty())?;
    let mut start = [0; START];
    if read_full(&file, &mut start, 0)? < START
        || start[..8] != *MAGIC
        || start[8..12] != VERSION.to_le_bytes()
    {
        return Ok(false);
    }
    let is_partial = start[12..16] != [0; 4];
    let is_of_this_boot = boot.is_some_and(|boot| start[16..] == boot);
    let (mut at, mut frame) = (START as u64, Vec::new());
    let is_whole = loop {
        let is_end = !read_frame(&file, &mut at, &mut frame)?;
        if is_end {
            // A journal ends with its last frame, a snapshot says so.
            break !is_snapshot && read_full(&file, &mut [0; 1], at)? == 0;
        }
        if frame.is_empty() {
            break is_snapshot;
        }
        for record in frame.chunks_exact(RECORD) {
            match decode(record) {
                Some(Record::Stored(mut stored)) => {
                    stored.is_trusted &= is_of_this_boot;
                    last_words.insert(stored.id, found.stored.len() as u32);
                    found.stored.push(stored);
                }
                Some(Record::Removed(id)) => {
                    last_words.remove(&id);
                    found.removed.push(id);
                }
                None => return Ok(false),
            }
        }
    };
    found.bytes += at;
    Ok(is_whole && !is_partial && is_of_this_boot)
}

/// Reads the next frame; `false`: there is none, or it is damaged.
fn read_frame(file: &OwnedFd, at: &mut u64, frame: &mut Vec<u8>) -> rustix::io::Result<bool> {
    let mut head = [0; FRAME_HEAD];
    if read_full(file, &mut head, *at)? < FRAME_HEAD {
        return Ok(false);
    }
    let [length, checksum] =
        [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    if length as usize > FRAME_RECORDS * RECORD || !(length as usize).is_multiple_of(RECORD) {
        return Ok(false);
    }
    frame.resize(length as usize, 0);
    let is_read = read_full(file, frame, *at + FRAME_HEAD as u64)? == frame.len();
    // A frame of zeros, as a disk may leave them, does not fit: the checksum knows the length.
    if !is_read || crc_of(frame) != checksum {
        return Ok(false);
    }
    *at += (FRAME_HEAD + frame.len()) as u64;
    Ok(true)
}

impl Journal {
    /// Begins a journal after all that was found.
    pub(super) fn begin(
        slot: BorrowedFd<'_>,
        boot: Option<BootId>,
        found: &Found,
    ) -> rustix::io::Result<Journal> {
        let is_partial = !found.is_whole;
        // What a process that was killed has not finished, or not deleted any more.
        let _ = unlinkat(slot, UNFINISHED, AtFlags::empty());
        delete_before(slot, found.first);
        Journal::create(slot, (boot.unwrap_or_default(), is_partial), found.next, found.bytes, found.journals)
    }

    fn create(
        slot: BorrowedFd<'_>,
        (boot, is_partial): (BootId, bool),
        number: u32,
        older: u64,
        older_journals: usize,
    ) -> rustix::io::Result<Journal> {
        // It has its name from the moment on that it can be read: whoever is killed in between leaves none.
        let file = create(slot, UNFINISHED)?;
        write_all(&file, &start(boot, is_partial), 0)?;
        renameat(slot, UNFINISHED, slot, file_name(false, number))?;
        Ok(Journal { file, boot, number, length: START as u64, older, older_journals, pending: Vec::new() })
    }

    /// Bytes of all files of the index, what waits included.
    pub(super) fn bytes(&self) -> u64 {
        self.older + self.length + self.frame_length()
    }

    fn frame_length(&self) -> u64 {
        if self.pending.is_empty() { 0 } else { (FRAME_HEAD + self.pending.len()) as u64 }
    }

    /// Notes what need not be on the disk at once.
    pub(super) fn note(&mut self, record: &Record) {
        encode(record, &mut self.pending);
    }

    /// How much waits, bytes.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Writes what waits. After an error it waits on.
    pub(super) fn flush(&mut self) -> rustix::io::Result<()> {
        while !self.pending.is_empty() {
            let count = self.pending.len().min(FRAME_RECORDS * RECORD);
            let frame = frame(&self.pending[..count]);
            write_all(&self.file, &frame, self.length)?;
            self.length += frame.len() as u64;
            self.pending.drain(..count);
        }
        Ok(())
    }

    /// Whether a snapshot of so many objects would be much shorter than what there is.
    pub(super) fn is_long(&self, objects: usize) -> bool {
        let snapshot = snapshot_length(objects);
        self.bytes() > 2 * snapshot + SHORT || self.older_journals > MOST_JOURNALS
    }

    /// Begins the next journal, and the snapshot of all before it. `is_partial`: a scan is not done.
    pub(super) fn turn(&mut self, slot: BorrowedFd<'_>, is_partial: bool) -> rustix::io::Result<Snapshot> {
        self.flush()?;
        let older = self.older + self.length;
        let state = (self.boot, is_partial);
        *self = Journal::create(slot, state, self.number + 1, older, self.older_journals + 1)?;
        Snapshot::begin(slot, state, self.number)
    }

    /// A snapshot with this journal's number is there: what is older goes.
    pub(super) fn has_snapshot(&mut self, slot: BorrowedFd<'_>, bytes: u64) {
        (self.older, self.older_journals) = (bytes, 0);
        delete_before(slot, self.number);
    }
}

/// A snapshot on its way.
#[derive(Debug)]
pub(super) struct Snapshot {
    file: OwnedFd,
    number: u32,
    length: u64,
    records: Vec<u8>,
}

impl Snapshot {
    /// Begins the snapshot of all that the journals before `number` say.
    fn begin(
        slot: BorrowedFd<'_>,
        (boot, is_partial): (BootId, bool),
        number: u32,
    ) -> rustix::io::Result<Snapshot> {
        let file = create(slot, UNFINISHED)?;
        write_all(&file, &start(boot, is_partial), 0)?;
        Ok(Snapshot { file, number, length: START as u64, records: Vec::new() })
    }

    pub(super) fn add(&mut self, stored: &Stored) {
        encode(&Record::Stored(*stored), &mut self.records);
    }

    /// Writes what was added.
    pub(super) fn flush(&mut self) -> rustix::io::Result<()> {
        for records in std::mem::take(&mut self.records).chunks(FRAME_RECORDS * RECORD) {
            let frame = frame(records);
            write_all(&self.file, &frame, self.length)?;
            self.length += frame.len() as u64;
        }
        Ok(())
    }

    /// Ends it and gives it its name; returns its bytes.
    pub(super) fn finish(mut self, slot: BorrowedFd<'_>) -> rustix::io::Result<u64> {
        self.flush()?;
        write_all(&self.file, &frame(&[]), self.length)?;
        renameat(slot, UNFINISHED, slot, file_name(true, self.number))?;
        Ok(self.length + FRAME_HEAD as u64)
    }
}

/// Deletes snapshots and journals with smaller numbers.
fn delete_before(slot: BorrowedFd<'_>, first: u32) {
    for (is_snapshot, number) in numbers(slot) {
        if number < first {
            let _ = unlinkat(slot, file_name(is_snapshot, number), AtFlags::empty());
        }
    }
}

const UNFINISHED: &str = "index-0";

/// Bytes of a snapshot of so many objects.
pub(super) fn snapshot_length(objects: usize) -> u64 {
    let frames = objects.div_ceil(FRAME_RECORDS) + 1;
    (START + objects * RECORD + frames * FRAME_HEAD) as u64
}

fn create(slot: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(slot, name, flags, FILE_MODE)
}

/// Snapshots (`true`) and journals with their numbers; a snapshot that was not finished has none.
fn numbers(slot: BorrowedFd<'_>) -> Vec<(bool, u32)> {
    let Ok(slot) = slot.as_fd().try_clone_to_owned() else { return Vec::new() };
    let number = |name: &Vec<u8>| {
        let name = std::str::from_utf8(name).ok()?;
        let (is_snapshot, digits) = match name.strip_prefix("index-") {
            Some(digits) => (true, digits),
            None => (false, name.strip_prefix("journal-")?),
        };
        digits
            .parse::<u32>()
            .ok()
            .filter(|number| (1..u32::MAX).contains(number))
            .map(|number| (is_snapshot, number))
    };
    names(&slot).unwrap_or_default().iter().filter_map(number).collect()
}

fn file_name(is_snapshot: bool, number: u32) -> String {
    if is_snapshot { format!("index-{number}") } else { format!("journal-{number}") }
}

fn start(boot: BootId, is_partial: bool) -> [u8; START] {
    let mut start = [0; START];
    start[..8].copy_from_slice(MAGIC);
    start[8..12].copy_from_slice(&VERSION.to_le_bytes());
    start[12] = u8::from(is_partial);
    start[16..].copy_from_slice(&boot);
    start
}

fn frame(records: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEAD + records.len());
    frame.extend_from_slice(&(records.len() as u32).to_le_bytes());
    frame.extend_from_slice(&crc_of(records).to_le_bytes());
    frame.extend_from_slice(records);
    frame
}

fn crc_of(records: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(MAGIC);
    hasher.update(&(records.len() as u32).to_le_bytes());
    hasher.update(records);
    hasher.finalize()
}

fn encode(record: &Record, into: &mut Vec<u8>) {
    let removed = |id| Stored { id, ..Stored::default() };
    let (kind, stored) = match record {
        Record::Stored(stored) => (1, *stored),
        Record::Removed(id) => (2, removed(*id)),
    };
    let flags = u8::from(stored.is_whole) | u8::from(stored.is_trusted) << 1 | u8::from(stored.is_main) << 2;
    into.extend_from_slice(&[kind, flags, stored.uses, 0]);
    into.extend_from_slice(&stored.id.serial.to_le_bytes());
    into.extend_from_slice(&stored.id.hash.to_le_bytes());
    into.extend_from_slice(&stored.mark.to_le_bytes());
    into.extend_from_slice(&stored.size.to_le_bytes());
    into.extend_from_slice(&stored.variant.to_le_bytes());
    into.extend_from_slice(&stored.stored_at.to_le_bytes());
}

/// Reads a record of [`RECORD`] bytes.
fn decode(record: &[u8]) -> Option<Record> {
    let (head, rest) = record.split_first_chunk::<4>()?;
    let (serial, rest) = rest.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let (mark, rest) = rest.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    let (variant, rest) = rest.split_first_chunk()?;
    let stored_at = rest.first_chunk()?;
    let id = Id { hash: u128::from_le_bytes(*hash), serial: u32::from_le_bytes(*serial) };
    let [kind, flags, uses, _] = *head;
    match kind {
        1 => Some(Record::Stored(Stored {
            id,
            mark: u64::from_le_bytes(*mark),
            variant: u32::from_le_bytes(*variant),
            stored_at: u32::from_le_bytes(*stored_at),
            size: u64::from_le_bytes(*size).min(MOST_BYTES),
            uses,
            is_whole: flags & 1 != 0,
            is_trusted: flags & 2 != 0,
            is_main: flags & 4 != 0,
        })),
        2 => Some(Record::Removed(id)),
        _ => None,
    }
}

/// More than any file has: sums of what a disk claims do not overflow.
const MOST_BYTES: u64 = 1 << 42;
