//! What was purged, as each slot has it noted: bytes of the store's, in one file that is replaced as a whole.
//!
//! A purge looks at no object, so the objects of a slot are worth nothing without the notes of it: where they are
//! missing or torn, the slot is emptied before anything in it is found: what cannot be noted takes away what was. They are the one thing of a slot that is synchronised: a purge
//! must not be undone, and there are few.
//!
//! ```text
//! SLOT/purges     CRC-32 of what follows (4, little-endian), the notes
//! ```

use super::Trouble;
use super::folder::{Slot, read_full, size_of, synchronise, write_all};
use super::{DiskError, Disks};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Says what is to be noted, given what was; `None`: that cannot be read.
pub(super) type Admit = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

const NAME: &str = "purges";
const TEMPORARY: &str = "purges.new";
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Bytes of notes that are read at most; what is longer is none of ours.
const LONGEST: usize = 4 << 20;

impl Disks {
    /// Writes what was purged into the slot of a disk, a full one too. Where that cannot be, the notes of before are taken away:
    /// whoever takes the slot next has to empty it. Waits for the disk.
    ///
    /// # Errors
    /// [`DiskError::Out`]: the disk fails or is not there. It asks when it is back.
    pub fn note_purges(&self, disk: u16, notes: &[u8]) -> Result<(), DiskError> {
        self.volume(disk).ok_or(DiskError::Out)?.note_purges(notes)
    }
}

/// Has a slot that was just taken brought up to what was purged, or emptied. Returns the bytes of its notes.
pub(super) fn admit(slot: &Slot, admit: &Admit) -> Result<u64, Trouble> {
    let found = if slot.is_new { Some(Vec::new()) } else { read(slot) };
    let notes = match found.and_then(|found| admit(&found)) {
        Some(notes) => notes,
        None => {
            slot.empty().map_err(|error| Trouble::system("cannot be emptied", error))?;
            admit(&[]).unwrap_or_default()
        }
    };
    write(slot, &notes).map_err(|error| Trouble::system("cannot be written", error))?;
    Ok(notes.len() as u64)
}

/// `None`: they are missing, torn or cannot be read.
fn read(slot: &Slot) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(slot.folder(), NAME, flags, Mode::empty()).ok()?;
    let (length, _) = size_of(&file).ok()?;
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|length| *length <= LONGEST)?];
    let count = read_full(&file, &mut bytes, 0).ok()?;
    let (checksum, notes) = bytes.get(..count)?.split_first_chunk()?;
    (crc32fast::hash(notes) == u32::from_le_bytes(*checksum)).then(|| notes.to_vec())
}

/// Replaces them.
pub(super) fn write(slot: &Slot, notes: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(slot.folder(), TEMPORARY, flags, FILE_MODE)?;
    let written = write_all(&file, &crc32fast::hash(notes).to_le_bytes(), 0)
        .and_then(|()| write_all(&file, notes, 4))
        .and_then(|()| synchronise(&file))
        .and_then(|()| renameat(slot.folder(), TEMPORARY, slot.folder(), NAME));
    if written.is_err() {
        let _ = unlinkat(slot.folder(), TEMPORARY, AtFlags::empty());
    }
    written
}

/// Takes them away, for which no disk is too full.
pub(super) fn spoil(slot: &Slot) -> rustix::io::Result<()> {
    match unlinkat(slot.folder(), NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => synchronise(slot.folder()),
        Err(error) => Err(error),
    }
}
