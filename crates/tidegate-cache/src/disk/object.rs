//! An object that is opened to be read: held to its key and its lengths, and to its checksums where another boot wrote it.
//!
//! Called on threads that may wait. What is wrong with a file takes it out of the index and off the disk; whoever asked hears that
//! there is nothing.

use super::folder::{read_full, stat_file, write_all};
use super::layout::{self, Damage, ENTRY, Head, Header};
use super::ownership;
use super::volume::{Health, Holder, Volume};
use super::{DiskEntry, DiskError, Id};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_io::locking::lock;

/// What is read of a file at first: the whole header of most objects.
const FIRST_READ: usize = layout::ALIGNMENT as usize;

/// A file whose header was read and fits.
pub(super) struct ReadFile {
    pub(super) file: Arc<OwnedFd>,
    bytes: Vec<u8>,
    content: u64,
}

impl ReadFile {
    pub(super) fn header(&self) -> Header<'_> {
        layout::fields(&self.bytes).expect("invariant: the bytes were parsed when they were read").0
    }
}

/// Opens a file and holds its header to its name and its length.
pub(super) fn read_file(volume: &Volume, id: Id) -> Result<ReadFile, DiskError> {
    open_file(volume, id, false)
}

fn open_file(volume: &Volume, id: Id, is_written: bool) -> Result<ReadFile, DiskError> {
    let failed = |error: Errno| match error {
        Errno::NOENT if !volume.slot.has_vanished() => DiskError::Gone,
        // Something else has the name: a folder, a link, a pipe.
        Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::NOTDIR | Errno::INVAL => {
            DiskError::Broken(Damage::Magic)
        }
        error => volume.fault(error),
    };
    let file = volume.slot.open(id, is_written).map_err(failed)?;
    let stat = stat_file(&file).map_err(failed)?;
    if !ownership::is_own(&stat) {
        return Err(DiskError::Broken(Damage::Owner));
    }
    let bytes = read_header(&file).map_err(failed)?;
    let read = match layout::parse(&bytes) {
        // Somebody may have given it another head just now.
        Err(Damage::Checksum) => {
            let _rewriting = lock(&volume.rewriting);
            read_header(&file).map_err(failed)?
        }
        _ => bytes,
    };
    let (header, content) = layout::parse(&read)?;
    if header.hash != id.hash || header.serial != id.serial {
        return Err(DiskError::Broken(Damage::Identity));
    }
    if stat.st_size as u64 != layout::file_length(content, header.entity_length) {
        return Err(DiskError::Broken(Damage::Length));
    }
    Ok(ReadFile { file: Arc::new(file), bytes: read, content })
}

/// Reads a file up to its content, or what there is of it.
fn read_header(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; FIRST_READ];
    let mut count = read_full(file, &mut bytes, 0)?;
    let content = layout::header_length(&bytes[..count]).unwrap_or(0);
    if content > FIRST_READ {
        bytes.resize(content, 0);
        count += read_full(file, &mut bytes[FIRST_READ..], FIRST_READ as u64)?;
    }
    bytes.truncate(count);
    Ok(bytes)
}

/// An object that is open. The bytes it has on the disk count until it is dropped, so the descriptor must not outlive it.
pub struct OpenObject {
    // Before the holder: the file is closed when its bytes are given back.
    read: ReadFile,
    holder: Holder,
    /// A bit for each piece that was compared; `None`: none needs to be.
    verified: Option<Box<[AtomicU64]>>,
}

impl std::fmt::Debug for OpenObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenObject").field("id", &self.holder.id).finish_non_exhaustive()
    }
}

/// A head that takes the place of another, for the same content.
pub(super) struct NewHead<'a> {
    pub(super) head: Head<'a>,
    /// As in [`Header`].
    pub(super) mark: u64,
    /// As in [`Header`].
    pub(super) stored_at: u32,
}

impl OpenObject {
    pub(super) fn open(volume: &Arc<Volume>, entry: &DiskEntry, key: &[u8]) -> Result<OpenObject, DiskError> {
        OpenObject::open_as(volume, entry.id, Some(key), false)
    }

    pub(super) fn open_as(
        volume: &Arc<Volume>,
        id: Id,
        key: Option<&[u8]>,
        is_written: bool,
    ) -> Result<OpenObject, DiskError> {
        // Who asks whatever the key looks after the disk, and answers nobody.
        let is_use = key.is_some();
        let is_trusted = lock(&volume.index).begin_use(id, is_use).ok_or(DiskError::Gone)?;
        let holder = Holder { volume: volume.clone(), id };
        let read = match open_file(volume, id, is_written) {
            Ok(read) => read,
            Err(error) => {
                drop(holder);
                match error {
                    DiskError::Broken(_) => volume.remove_broken(id),
                    DiskError::Gone => drop(volume.remove(id)),
                    _ => {}
                }
                return Err(error);
            }
        };
        let header = read.header();
        if key.is_some_and(|key| header.key != key) {
            return Err(DiskError::OtherKey);
        }
        let is_trusted = is_trusted || volume.trusts(header.boot);
        let words = layout::pieces(header.entity_length).div_ceil(64);
        let verified = (!is_trusted).then(|| (0..words).map(|_| AtomicU64::new(0)).collect());
        Ok(OpenObject { read, holder, verified })
    }

    /// Gives the object another head, and says that it is whole, if it is. Who has it open keeps the one that was read. A process
    /// that is killed meanwhile leaves the old one, the new one, or an object that is damaged and not served.
    pub(super) fn rewrite(&self, head: Option<NewHead<'_>>, is_whole: bool) -> Result<(), DiskError> {
        let mut header = self.header();
        header.is_whole |= is_whole;
        if let Some(new) = head {
            (header.head, header.mark, header.stored_at) = (new.head, new.mark, new.stored_at);
        }
        let mut bytes = Vec::new();
        if !header.write(Some(self.read.content), &mut bytes) {
            return Err(DiskError::TooLarge);
        }
        let _rewriting = lock(&self.volume().rewriting);
        write_all(&self.read.file, &bytes, 0).map_err(|error| self.volume().fault(error))
    }

    /// The header: key, stored head, length of the entity.
    pub fn header(&self) -> Header<'_> {
        self.read.header()
    }

    /// Where the content begins in the file: for `sendfile(2)`.
    pub fn content_offset(&self) -> u64 {
        self.read.content
    }

    /// The file, open for reading.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.read.file.as_fd()
    }

    /// The same, for who keeps the object as long as that.
    pub fn shared_file(&self) -> Arc<OwnedFd> {
        self.read.file.clone()
    }

    /// Whether its disk is read. Touches no disk.
    pub(crate) fn is_readable(&self) -> bool {
        self.volume().health() != Health::Out
    }

    /// The file could not be read by whoever sends it; whether that is the disk's fault.
    pub(crate) fn has_failed(&self, error: Errno) -> bool {
        matches!(self.volume().fault(error), DiskError::Out)
    }

    /// What takes it off its disk. Waits for the disk.
    pub(crate) fn removal(&self) -> impl FnOnce() + Send + 'static {
        let (volume, id) = (self.volume().clone(), self.holder.id);
        move || {
            volume.remove(id);
        }
    }

    /// Its disk.
    pub(crate) fn disk(&self) -> u16 {
        self.volume().disk
    }

    /// Which object of its disk it is.
    pub fn id(&self) -> Id {
        self.holder.id
    }

    pub(super) fn owned_file(&self) -> &OwnedFd {
        &self.read.file
    }

    pub(super) fn volume(&self) -> &Arc<Volume> {
        &self.holder.volume
    }

    /// Pieces of the entity.
    pub fn pieces(&self) -> u64 {
        layout::pieces(self.header().entity_length)
    }

    /// No piece need be verified before it is sent.
    pub fn is_trusted(&self) -> bool {
        self.verified.is_none()
    }

    /// What the table says of a piece; `None`: it is missing. Waits for the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn checksum(&self, piece: u64) -> Result<Option<u32>, DiskError> {
        let header = self.header();
        if piece >= self.pieces() {
            return Ok(None);
        }
        let mut entry = [0; ENTRY];
        let at = layout::table_offset(self.read.content, header.entity_length) + piece * ENTRY as u64;
        let count = read_full(self.file(), &mut entry, at).map_err(|error| self.volume().fault(error))?;
        Ok(if count < ENTRY { None } else { layout::read_entry(entry, piece, header.serial) })
    }

    /// The same of all pieces, in one go. Waits for the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn checksums(&self) -> Result<Vec<Option<u32>>, DiskError> {
        let header = self.header();
        let pieces = self.pieces();
        let mut bytes = vec![0; pieces as usize * ENTRY];
        let at = layout::table_offset(self.read.content, header.entity_length);
        let count = read_full(self.file(), &mut bytes, at).map_err(|error| self.volume().fault(error))?;
        bytes.truncate(count);
        let (entries, _) = bytes.as_chunks::<ENTRY>();
        let read = |(piece, entry): (u64, &[u8; ENTRY])| layout::read_entry(*entry, piece, header.serial);
        Ok((0..pieces).zip(entries).map(read).collect())
    }

    /// Bytes from the first on that are there, in whole pieces. Waits for the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn beginning(&self) -> Result<u64, DiskError> {
        let length = self.header().entity_length;
        if self.header().is_whole {
            return Ok(length);
        }
        let missing = self.checksums()?.iter().position(Option::is_none);
        Ok(missing.map_or(length, |piece| layout::piece_range(piece as u64, length).start))
    }

    /// Whether a piece was compared with its checksum, or needs not to be. Touches no disk.
    pub fn is_verified(&self, piece: u64) -> bool {
        let Some(verified) = &self.verified else { return true };
        let word = usize::try_from(piece / 64).ok().and_then(|word| verified.get(word));
        word.is_some_and(|word| word.load(Relaxed) & 1 << (piece % 64) != 0)
    }

    /// Compares a piece with its checksum, unless that was done or needs not to be: to be called before any byte of the piece is
    /// sent. Waits for the disk.
    ///
    /// # Errors
    /// [`DiskError::Broken`]: the bytes are not those that were stored; the object is gone. [`DiskError::Missing`]: the piece is not there.
    pub fn verify_piece(&self, piece: u64) -> Result<(), DiskError> {
        if self.is_verified(piece) && (self.header().is_whole || self.checksum(piece)?.is_some()) {
            return Ok(());
        }
        self.compare_piece(piece)?;
        let Some(verified) = &self.verified else { return Ok(()) };
        if let Some(word) = usize::try_from(piece / 64).ok().and_then(|word| verified.get(word)) {
            word.fetch_or(1 << (piece % 64), Relaxed);
        }
        let count: u64 = verified.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum();
        if count == self.pieces() {
            lock(&self.volume().index).trust(self.holder.id);
        }
        Ok(())
    }

    /// Compares a piece with its checksum, whoever wrote it: `tidegate cache verify`. Waits for the disk.
    ///
    /// # Errors
    /// As [`OpenObject::verify_piece`].
    pub fn compare_piece(&self, piece: u64) -> Result<(), DiskError> {
        let header = self.header();
        let Some(checksum) = self.checksum(piece)? else {
            if header.is_whole && piece < self.pieces() {
                return Err(self.broken());
            }
            return Err(DiskError::Missing);
        };
        let range = layout::piece_range(piece, header.entity_length);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let count = read_full(self.file(), &mut bytes, self.read.content + range.start)
            .map_err(|error| self.volume().fault(error))?;
        if count < bytes.len() || crc32fast::hash(&bytes) != checksum {
            return Err(self.broken());
        }
        Ok(())
    }

    /// Reads content into a buffer; the bytes that came. Waits for the disk. The pieces have to be verified.
    ///
    /// # Errors
    /// The disk fails.
    pub fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize, DiskError> {
        let left = self.header().entity_length.saturating_sub(at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        read_full(self.file(), &mut buffer[..count], self.read.content + at)
            .map_err(|error| self.volume().fault(error))
    }

    fn broken(&self) -> DiskError {
        self.volume().remove_broken(self.holder.id);
        DiskError::Broken(Damage::Piece)
    }
}
