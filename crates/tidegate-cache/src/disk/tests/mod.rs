//! The disk tier on a real file system: folders below the system's temporary one, each test with its own.

mod damage;
mod exposure;
mod faults;
mod journals;
mod objects;
mod restart;
mod space;

use super::layout::{BootId, Damage, PIECE};
use super::*;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;

pub(super) const NOW: i64 = 1_800_000_000;
pub(super) const BOOT: Option<BootId> = Some([1; 16]);
pub(super) const OTHER_BOOT: Option<BootId> = Some([2; 16]);
pub(super) const MIB: u64 = 1 << 20;

/// No purge was ever noted.
pub(super) fn admit() -> Box<Admit> {
    Box::new(|_| Some(Vec::new()))
}

/// A folder that goes with the test.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidegate-disk-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(super) fn settings(&self, size: u64) -> DiskSettings {
        DiskSettings { folder: self.0.join("cache"), size, slots: 1 }
    }

    /// Takes the folder, under a boot.
    pub(super) fn open(&self, size: u64, boot: Option<BootId>) -> Disks {
        let disks = Disks::open_under(&[self.settings(size)], NOW, boot, admit());
        // Another test may just be starting a program, which has all locks until it is that program.
        while disks.figures()[0].trouble == Some(Trouble::Owned) {
            disks.tick(0, NOW);
        }
        assert_eq!(disks.figures()[0].trouble, None);
        disks
    }

    /// Files of objects.
    pub(super) fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.0, &mut |path, _| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if folder::parse_name(name.as_bytes()).is_some() {
                found.push(path.to_owned());
            }
        });
        found
    }

    /// Bytes that everything in the folder takes, as `du` counts.
    pub(super) fn used(&self) -> u64 {
        let mut sum = 0;
        walk(&self.0.join("cache"), &mut |_, meta| sum += meta.blocks() * 512);
        sum
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) {
    let Ok(found) = fs::read_dir(folder) else { return };
    for entry in found.flatten() {
        let (path, Ok(meta)) = (entry.path(), entry.path().symlink_metadata()) else { continue };
        visit(&path, &meta);
        if meta.is_dir() {
            walk(&path, visit);
        }
    }
}

/// A key and its hash. Not the store's hash: any that spreads will do.
pub(super) fn key(number: u64) -> (Vec<u8>, u128) {
    let mut mixed = fastrand::Rng::with_seed(number);
    (format!("https|a.example|/{number}").into_bytes(), mixed.u128(..))
}

/// Content of an object, told from any other.
pub(super) fn content(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

pub(super) const HEAD: Head<'_> = Head {
    status: 200,
    freshness: b"until tomorrow",
    lines: b"content-type: text/plain\r\n",
    varying: b"accept-encoding: br",
    tags: b"12345678",
    names: b"front",
};

pub(super) fn new(key: &(Vec<u8>, u128), length: Option<u64>) -> NewObject<'_> {
    NewObject { hash: key.1, key: &key.0, head: HEAD, variant: 0, mark: 7, length, now: NOW }
}

/// Stores an object on the first disk.
pub(super) fn store(disks: &Disks, number: u64, length: u64) -> Result<DiskEntry, DiskError> {
    let key = key(number);
    let mut fill = disks.create(0, &new(&key, Some(length)))?;
    fill.write(&content(number, length))?;
    fill.finish()
}

/// As [`store`], where nothing may go wrong.
pub(super) fn put(disks: &Disks, number: u64, length: u64) {
    store(disks, number, length).unwrap();
}

/// Reads an object as a server would: each piece is verified before it is read.
pub(super) fn read(disks: &Disks, entry: &DiskEntry, key: &[u8]) -> Result<Vec<u8>, DiskError> {
    let object = disks.open_object(entry, key)?;
    let length = object.header().entity_length;
    let mut bytes = Vec::new();
    for piece in 0..object.pieces() {
        object.verify_piece(piece)?;
        let range = layout::piece_range(piece, length);
        let mut buffer = vec![0; (range.end - range.start) as usize];
        let count = object.read_at(&mut buffer, range.start)?;
        bytes.extend_from_slice(&buffer[..count]);
    }
    Ok(bytes)
}

/// Looks an object up and reads it; `None`: it is not there.
pub(super) fn fetch(disks: &Disks, number: u64) -> Option<Vec<u8>> {
    let (key, hash) = key(number);
    let probed = || disks.may_probe().then(|| disks.probe(0, hash)).flatten();
    let entry = disks.look_up(hash).or_else(probed)?;
    read(disks, &entry, &key).ok()
}

pub(super) fn scan(disks: &Disks) {
    let steps = (0..20_000).take_while(|_| !disks.scan_step(0, 100)).count();
    assert!(steps < 20_000, "the scan does not end");
}
