//! A folder of the settings, and the slot of it that this process owns: names, locks, and what is not ours.
//!
//! Called by `volume`. Every function waits for the disk.
//!
//! ```text
//! FOLDER/tidegate-cache          version and seed of the hashes: "tidegate-cache 1 SEED"
//! FOLDER/slot-0/owner            locked (flock) by the process that owns the slot; holds the seed its objects were hashed with
//! FOLDER/slot-0/index-7          snapshot, see `journal`
//! FOLDER/slot-0/journal-8        what has happened since
//! FOLDER/slot-0/purges         what was purged, see `purges`
//! FOLDER/slot-0/used           bytes that the slot takes, as its owner last counted
//! FOLDER/slot-0/filling/         files that are written, where the file system knows no file without a name
//! FOLDER/slot-0/a/3f/HASH-SERIAL objects; the folders are the first three digits of the hash
//! ```
//!
//! Each server process takes the first slot that is free. While an upgrade's predecessor has them all, its successor waits.
//! Nothing is ever deleted but files of these names below a slot.

use super::ownership;
use super::{Id, Trouble};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, linkat, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec, pread, pwrite};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tidegate_io::blocking::{self, QueueKey};

/// Says that a folder is ours.
const MARKER: &str = "tidegate-cache";
const MARKER_VERSION: &str = "tidegate-cache 1 ";
/// Folders of objects in a slot.
pub(super) const FOLDERS: u16 = 4096;
/// A slot's folder for files that are not complete.
const FILLING: &str = "filling";
const OWNER: &str = "owner";
const USED: &str = "used";
/// So long `fdatasync(2)` may take on a disk that is busy and well.
const SYNCHRONISING: Duration = Duration::from_secs(30);
/// Bytes read of a marker or an owner.
const SHORT_FILE: usize = 128;

const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);

/// A file that is written and has no name yet.
#[derive(Debug)]
pub(super) struct Unnamed {
    pub(super) file: Arc<OwnedFd>,
    /// Its name in `filling`; `None`: it has none, and is gone when nobody has it open.
    temporary: Option<String>,
}

impl Unnamed {
    /// The file system knows no files without a name.
    pub(super) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }
}

/// The slot that this process owns. Its lock is given up when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    folder: OwnedFd,
    /// That of all slots.
    above: OwnedFd,
    owner: OwnedFd,
    pub(super) number: u16,
    /// Another folder lies in the place of the one that this is in, or none.
    pub(super) is_elsewhere: AtomicBool,
    /// It was made just now, so there is nothing in it.
    pub(super) is_new: bool,
}

/// Opens a folder of the settings: makes it where it is missing, and refuses it where something else is in it. Returns the
/// seed of its hashes; a new folder gets `seed`.
pub(super) fn open_folder(path: &Path, seed: u64) -> Result<(OwnedFd, u64), Trouble> {
    ownership::examine_way(path, ownership::own_user())?;
    match mkdirat(CWD, path, FOLDER_MODE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(Trouble::system("cannot be made", error)),
    }
    let folder = reopen(path)?;
    if let Some(seed) = read_seed(&folder)? {
        return Ok((folder, seed));
    }
    let names = names(&folder).map_err(|error| Trouble::system("cannot be listed", error))?;
    let stranger =
        names.iter().find(|name| name.as_slice() != b"lost+found" && !name.starts_with(b"tidegate-cache."));
    if let Some(name) = stranger {
        let name = String::from_utf8_lossy(name).escape_debug().to_string();
        return Err(Trouble::Foreign(name));
    }
    write_marker(&folder, seed).map_err(|error| Trouble::system("cannot be written", error))?;
    // Another process may have been sooner.
    let seed = read_seed(&folder)?.unwrap_or(seed);
    Ok((folder, seed))
}

/// The seed of a folder that is a cache already; `None` also where it cannot be read.
pub(super) fn known_seed(path: &Path) -> Option<u64> {
    read_seed(&reopen(path).ok()?).ok()?
}

/// Opens a folder that is there, if nobody else can change what is in it or put another in its place.
pub(super) fn reopen(path: &Path) -> Result<OwnedFd, Trouble> {
    let user = ownership::own_user();
    ownership::examine_way(path, user)?;
    let folder = openat(CWD, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Trouble::system("cannot be opened", error))?;
    ownership::examine(&folder, path, user)?;
    Ok(folder)
}

/// Where the work of its disk belongs in the blocking pool.
pub(super) fn queue_key(folder: &OwnedFd) -> Option<QueueKey> {
    let stat = fstat(folder).ok()?;
    Some(QueueKey::of_file((stat.st_dev, stat.st_ino)))
}

/// Another seed for a folder whose own is not that of the others. Each slot is emptied when it is claimed.
pub(super) fn write_seed(folder: &OwnedFd, seed: u64) -> rustix::io::Result<()> {
    unlinkat(folder, MARKER, AtFlags::empty())?;
    write_marker(folder, seed)
}

/// The seed in the marker; `None`: there is no marker.
fn read_seed(folder: &OwnedFd) -> Result<Option<u64>, Trouble> {
    let failed = |error| Trouble::system("has a file `tidegate-cache` that cannot be read", error);
    let marker = match open_short(folder, MARKER) {
        Ok(marker) => marker,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    ownership::examine(&marker, MARKER, ownership::own_user())?;
    let text = read_start(&marker).map_err(failed)?;
    let seed = text.trim_ascii_end().strip_prefix(MARKER_VERSION.as_bytes()).and_then(parse_hex);
    seed.map(|seed| Some(seed as u64)).ok_or(Trouble::Version)
}

fn write_marker(folder: &OwnedFd, seed: u64) -> rustix::io::Result<()> {
    let temporary = format!("{MARKER}.{:016x}", fastrand::u64(..));
    let file = openat(
        folder,
        &temporary,
        OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC,
        FILE_MODE,
    )?;
    let written = pwrite(&file, format!("{MARKER_VERSION}{seed:016x}\n").as_bytes(), 0);
    let linked = written.and_then(|_| linkat(folder, &temporary, folder, MARKER, AtFlags::empty()));
    let _ = unlinkat(folder, &temporary, AtFlags::empty());
    match linked {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Slot {
    /// Takes the first slot below `slots` that nobody has, and empties it if its objects were hashed with another seed.
    pub(super) fn claim(folder: &OwnedFd, slots: u16, seed: u64) -> Result<Slot, Trouble> {
        for number in 0..slots.max(1) {
            let Some(slot) = Slot::lock(folder, number)? else { continue };
            let text = format!("{seed:016x}");
            let owner = read_short(&slot.folder, OWNER).unwrap_or_default();
            if owner != text.as_bytes() {
                if !owner.is_empty() {
                    slot.empty().map_err(|error| Trouble::system("cannot be emptied", error))?;
                }
                let written = rustix::fs::ftruncate(&slot.owner, 0);
                let written = written.and_then(|()| pwrite(&slot.owner, text.as_bytes(), 0));
                written.map_err(|error| Trouble::system("cannot be written", error))?;
            }
            slot.clear_filling();
            return Ok(slot);
        }
        Err(Trouble::Owned)
    }

    fn lock(folder: &OwnedFd, number: u16) -> Result<Option<Slot>, Trouble> {
        let failed = |error| Trouble::system("has no slot for us", error);
        let name = format!("slot-{number}");
        let above = fcntl_dupfd_cloexec(folder, 0).map_err(failed)?;
        let is_new = make_folder(folder, &name).map_err(failed)?;
        let folder = open_subfolder(folder, &name).map_err(failed)?;
        ownership::examine(&folder, &name, ownership::own_user())?;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let owner = openat(&folder, OWNER, flags, FILE_MODE).map_err(failed)?;
        match flock(&owner, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                Ok(Some(Slot { folder, above, owner, number, is_elsewhere: AtomicBool::new(false), is_new }))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// The slots beyond those that the settings know, which nobody owns any more: emptied. `true`: none is left.
    pub(super) fn empty_surplus(folder: &OwnedFd, slots: u16) -> Result<bool, Trouble> {
        let failed = |error| Trouble::system("cannot be emptied", error);
        let is_surplus = |name: &Vec<u8>| slot_number(name).filter(|number| *number >= slots.max(1));
        let mut is_done = true;
        for number in names(folder).map_err(failed)?.iter().filter_map(is_surplus) {
            match Slot::lock(folder, number)? {
                Some(slot) => {
                    slot.empty().map_err(failed)?;
                    unlinkat(&slot.folder, OWNER, AtFlags::empty()).map_err(failed)?;
                }
                None => is_done = false,
            }
            // Goes only where nothing is left in it.
            let _ = unlinkat(folder, format!("slot-{number}"), AtFlags::REMOVEDIR);
        }
        Ok(is_done)
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Tells the owners of other slots what this one takes.
    pub(super) fn note_used(&self, bytes: u64) -> rustix::io::Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, USED, flags, FILE_MODE)?;
        write_all(&file, format!("{bytes:020}").as_bytes(), 0)
    }

    /// Bytes that the other slots take, as their owners have noted, or those who owned them last.
    pub(super) fn used_by_others(&self) -> rustix::io::Result<u64> {
        let names = names(&self.above)?;
        let others =
            names.iter().filter_map(|name| slot_number(name)).filter(|number| *number != self.number);
        let used = others.map(|number| {
            let slot = open_subfolder(&self.above, &format!("slot-{number}")).ok()?;
            let noted = read_short(&slot, USED).ok()?;
            std::str::from_utf8(&noted).ok()?.parse::<u64>().ok()
        });
        // One that has noted nothing holds nothing yet.
        Ok(used.fold(0, |sum, used| sum.saturating_add(used.unwrap_or(0))))
    }

    /// Whether the folder of all slots lies where it was found.
    pub(super) fn lies_at(&self, path: &Path) -> bool {
        match (statat(CWD, path, AtFlags::empty()), fstat(&self.above)) {
            (Ok(there), Ok(open)) => (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino),
            (Err(Errno::NOENT), _) => false,
            // Nobody can tell.
            _ => true,
        }
    }

    /// Whether the folder was deleted or replaced while it was open.
    pub(super) fn has_vanished(&self) -> bool {
        self.is_elsewhere.load(Relaxed) || fstat(&self.folder).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// A file to write an object into, beside where it will be.
    pub(super) fn create(&self, id: Id, is_unnamed: bool) -> rustix::io::Result<Unnamed> {
        blocking::next_call();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        if is_unnamed {
            let in_folder = || openat(&self.folder, folder_of(id.hash), flags | OFlags::TMPFILE, FILE_MODE);
            let file = match in_folder() {
                Err(Errno::NOENT) => self.make_folders(id.hash).and_then(|()| in_folder()),
                file => file,
            };
            match file {
                Ok(file) => return Ok(Unnamed { file: Arc::new(file), temporary: None }),
                // The file system knows no such files.
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR | Errno::NOSYS) => {}
                Err(error) => return Err(error),
            }
        }
        make_folder(&self.folder, FILLING)?;
        let name = format!("{FILLING}/{}", file_name(id));
        let file = openat(&self.folder, &name, flags | OFlags::CREATE | OFlags::EXCL, FILE_MODE)?;
        Ok(Unnamed { file: Arc::new(file), temporary: Some(name) })
    }

    /// Gives a file that is complete its name. From now on others find it.
    pub(super) fn name(&self, unnamed: &Unnamed, id: Id) -> rustix::io::Result<()> {
        blocking::next_call();
        let path = path_of(id);
        let link = || match &unnamed.temporary {
            // Within one folder as far as the kernel is concerned, so that a sandbox which forbids moves lets it pass.
            None => {
                let link = format!("/proc/self/fd/{}", unnamed.file.as_raw_fd());
                linkat(CWD, link, &self.folder, &path, AtFlags::SYMLINK_FOLLOW)
            }
            Some(name) => renameat(&self.folder, name, &self.folder, &path),
        };
        match link() {
            Err(Errno::NOENT) if unnamed.temporary.is_some() => {
                self.make_folders(id.hash).and_then(|()| link())
            }
            linked => linked,
        }
    }

    /// Gives a file up that never got a name.
    pub(super) fn discard(&self, unnamed: &Unnamed) {
        if let Some(name) = &unnamed.temporary {
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
    }

    /// Opens an object.
    pub(super) fn open(&self, id: Id, is_written: bool) -> rustix::io::Result<OwnedFd> {
        blocking::next_call();
        let access = if is_written { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        openat(&self.folder, path_of(id), flags, Mode::empty())
    }

    /// Deletes an object. One that is gone already is no error, nor is a folder of that name, which is not ours.
    pub(super) fn unlink(&self, id: Id) -> rustix::io::Result<()> {
        blocking::next_call();
        match unlinkat(&self.folder, path_of(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ISDIR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Bytes that a folder of objects takes itself; 0 where there is none.
    pub(super) fn folder_size(&self, hash: u128) -> u64 {
        blocking::next_call();
        let stat = statat(&self.folder, folder_of(hash), AtFlags::SYMLINK_NOFOLLOW);
        stat.map_or(0, |stat| stat.st_blocks as u64 * 512)
    }

    /// The folders of objects that are there.
    pub(super) fn folders(&self) -> Vec<u16> {
        let mut found = Vec::new();
        for upper in 0..16 {
            let Ok(folder) = open_subfolder(&self.folder, &format!("{upper:x}")) else { continue };
            let number = |name: &Vec<u8>| (name.len() == 2).then(|| parse_hex(name)).flatten();
            let names = names(&folder).unwrap_or_default();
            found.extend(names.iter().filter_map(number).map(|lower| upper << 8 | lower as u16));
        }
        found
    }

    /// A folder of objects, to list it; `None`: there is none.
    pub(super) fn list(&self, folder: u16) -> rustix::io::Result<Option<Dir>> {
        blocking::next_call();
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        match openat(&self.folder, folder_path(folder), flags, Mode::empty()) {
            Ok(folder) => Dir::new(folder).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a few bytes and takes them away again: whether the disk takes anything.
    pub(super) fn try_writing(&self) -> rustix::io::Result<()> {
        if self.has_vanished() {
            return Err(Errno::NOENT);
        }
        make_folder(&self.folder, FILLING)?;
        let name = format!("{FILLING}/try");
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = openat(&self.folder, &name, flags, FILE_MODE)?;
        // Delayed allocation finds out that a disk is full when it is flushed; a fill does not wait for that, a try does.
        let written = write_all(&file, &[1; 4096], 0).and_then(|()| synchronise(&file));
        let removed = unlinkat(&self.folder, &name, AtFlags::empty());
        written.and(removed)
    }

    fn make_folders(&self, hash: u128) -> rustix::io::Result<()> {
        let path = folder_of(hash);
        make_folder(&self.folder, &path[..1])?;
        make_folder(&self.folder, &path).map(drop)
    }

    /// What a process that was killed had begun to write.
    fn clear_filling(&self) {
        let Ok(folder) = open_subfolder(&self.folder, FILLING) else { return };
        for name in names(&folder).unwrap_or_default() {
            blocking::next_call();
            let _ = unlinkat(&folder, name, AtFlags::empty());
        }
    }

    /// Deletes every object, snapshot, journal, and the notes of purges.
    pub(super) fn empty(&self) -> rustix::io::Result<()> {
        for folder in 0..FOLDERS {
            let Some(mut listing) = self.list(folder)? else { continue };
            while let Some(found) = listing.read() {
                if let Some(id) = parse_name(found?.file_name().to_bytes()) {
                    self.unlink(id)?;
                }
            }
            let _ = unlinkat(&self.folder, folder_path(folder), AtFlags::REMOVEDIR);
        }
        for name in names(&self.folder)? {
            if [&b"index-"[..], b"journal-", b"purges", b"used"].iter().any(|ours| name.starts_with(ours)) {
                unlinkat(&self.folder, &name, AtFlags::empty())?;
            } else if name != OWNER.as_bytes() {
                // Goes where nothing is left in it.
                let _ = unlinkat(&self.folder, &name, AtFlags::REMOVEDIR);
            }
        }
        Ok(())
    }
}

/// Gives all bytes to the file.
pub(super) fn write_all(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        blocking::next_call();
        match pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count..];
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Has the disk hold what was written. Others may have written much that has to be there before it.
pub(super) fn synchronise(file: impl AsFd) -> rustix::io::Result<()> {
    blocking::next_call_within(SYNCHRONISING);
    let synchronised = rustix::fs::fdatasync(file);
    blocking::next_call();
    synchronised
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_full(file: impl AsFd, buffer: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        blocking::next_call();
        match pread(&file, &mut buffer[count..], at + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Length and bytes of the file system of a regular file.
pub(super) fn size_of(file: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = stat_file(file)?;
    Ok((stat.st_size as u64, stat.st_blocks as u64 * 512))
}

/// What the file system says of a regular file.
pub(super) fn stat_file(file: impl AsFd) -> rustix::io::Result<Stat> {
    let stat = fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(Errno::INVAL),
    }
}

fn slot_number(name: &[u8]) -> Option<u16> {
    let digits = name.strip_prefix(b"slot-").and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok())
}

/// The number of the folder of a hash.
pub(super) fn folder_number(hash: u128) -> u16 {
    (hash >> 116) as u16
}

/// The object that a file is named for.
pub(super) fn parse_name(name: &[u8]) -> Option<Id> {
    let (hash, serial) = name.split_at_checked(32)?;
    let serial = serial.strip_prefix(b"-").filter(|serial| serial.len() == 8)?;
    Some(Id { hash: parse_hex(hash)?, serial: parse_hex(serial)? as u32 })
}

fn parse_hex(digits: &[u8]) -> Option<u128> {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let is_number = !digits.is_empty() && digits.len() <= 32 && digits.iter().all(is_hex);
    let digits = is_number.then(|| std::str::from_utf8(digits).ok()).flatten()?;
    u128::from_str_radix(digits, 16).ok()
}

fn file_name(id: Id) -> String {
    format!("{:032x}-{:08x}", id.hash, id.serial)
}

pub(super) fn path_of(id: Id) -> String {
    format!("{}/{}", folder_of(id.hash), file_name(id))
}

fn folder_of(hash: u128) -> String {
    folder_path(folder_number(hash))
}

fn folder_path(folder: u16) -> String {
    format!("{:x}/{:02x}", folder >> 8, folder & 0xff)
}

fn open_subfolder(folder: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    blocking::next_call();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

/// Makes a folder; whether it was not there.
fn make_folder(folder: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    match mkdirat(folder, name, FOLDER_MODE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

fn read_short(folder: &OwnedFd, name: &str) -> rustix::io::Result<Vec<u8>> {
    read_start(&open_short(folder, name)?)
}

fn open_short(folder: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(folder, name, flags, Mode::empty())
}

fn read_start(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; SHORT_FILE];
    let count = read_full(file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The names in a folder.
pub(super) fn names(folder: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut listing = Dir::read_from(folder)?;
    while let Some(found) = listing.read() {
        let name = found?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects() {
        let id = Id { hash: 0xa3f << 116 | 0x12, serial: 0xbeef };
        assert_eq!(path_of(id), "a/3f/a3f00000000000000000000000000012-0000beef");
        assert_eq!(parse_name(file_name(id).as_bytes()), Some(id));
        let table: [&[u8]; 8] = [
            b"",
            b"a3f00000000000000000000000000012",
            b"a3f00000000000000000000000000012-",
            b"a3f00000000000000000000000000012-0000bee",
            b"a3f00000000000000000000000000012-0000beef0",
            b"A3f00000000000000000000000000012-0000beef",
            b"+3f00000000000000000000000000012-0000beef",
            b"a3f00000000000000000000000000012_0000beef",
        ];
        for name in table {
            assert_eq!(parse_name(name), None, "{}", name.escape_ascii());
        }
    }
}
