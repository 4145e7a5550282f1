//! The file that is written and read, past the page cache where the file system can.

use super::timed::Clock;
use super::{Seeks, Speed};
use crate::random::Random;
use crate::record::Times;
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// What O_DIRECT wants of addresses, lengths and places (open(2)): a block of any disk of today.
const ALIGNMENT: usize = 4 << 10;

/// Bytes that begin at a multiple of a disk's block.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// So many bytes, of nothing.
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Aligned { bytes, start, length }
    }

    /// They.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }
}

/// The file.
pub struct TestFile {
    file: File,
    size: u64,
    is_direct: bool,
}

impl TestFile {
    /// A new one.
    pub fn create(path: &Path) -> io::Result<TestFile> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(TestFile { file, size: 0, is_direct: false })
    }

    /// One that was written, for another reader.
    pub fn open(path: &Path, size: u64) -> io::Result<TestFile> {
        let mut file = TestFile { file: File::open(path)?, size, is_direct: false };
        file.go_direct();
        Ok(file)
    }

    fn go_direct(&mut self) {
        let flags = fcntl_getfl(&self.file);
        self.is_direct = flags.and_then(|flags| fcntl_setfl(&self.file, flags | OFlags::DIRECT)).is_ok();
        // Some file systems take the flag and refuse the read.
        if self.is_direct && self.file.read_at(Aligned::new(ALIGNMENT).bytes(), 0).is_err() {
            self.go_cached();
        }
    }

    fn go_cached(&mut self) {
        if let Ok(flags) = fcntl_getfl(&self.file) {
            let _ = fcntl_setfl(&self.file, flags - OFlags::DIRECT);
        }
        self.is_direct = false;
    }

    /// Writes up to `size` bytes in sequence, until they lie on the disk.
    pub fn write(&mut self, block: &mut Aligned, size: u64, clock: &Clock) -> io::Result<Speed> {
        let began = Instant::now();
        let timer = clock.start();
        while self.size + block.length as u64 <= size && (self.size == 0 || !timer.is_over()) {
            self.file.write_all_at(block.bytes(), self.size)?;
            self.size += block.length as u64;
        }
        self.file.sync_all()?;
        Ok(speed(self.size, began))
    }

    /// Reads each block, changes it and writes it back.
    pub fn rewrite(&mut self, block: &mut Aligned, clock: &Clock) -> io::Result<Speed> {
        self.forget_pages()?;
        let began = Instant::now();
        let timer = clock.start();
        let mut at = 0;
        while at < self.size && (at == 0 || !timer.is_over()) {
            self.file.read_exact_at(block.bytes(), at)?;
            if let Some(first) = block.bytes().first_mut() {
                *first = first.wrapping_add(1);
            }
            self.file.write_all_at(block.bytes(), at)?;
            at += block.length as u64;
        }
        self.file.sync_all()?;
        Ok(speed(at, began))
    }

    /// Makes reads go to the disk. Whether they go past the page cache; else it has been asked to forget the file.
    pub fn forget(&mut self) -> io::Result<bool> {
        self.forget_pages()?;
        self.go_direct();
        Ok(self.is_direct)
    }

    fn forget_pages(&self) -> io::Result<()> {
        self.file.sync_all()?;
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }

    /// Reads in sequence.
    pub fn read(&mut self, block: &mut Aligned, clock: &Clock) -> io::Result<Speed> {
        let began = Instant::now();
        let timer = clock.start();
        let mut at = 0;
        while at < self.size && (at == 0 || !timer.is_over()) {
            self.file.read_exact_at(block.bytes(), at)?;
            at += block.length as u64;
        }
        Ok(speed(at, began))
    }

    /// Reads in sequence what memory holds, again and again.
    pub fn read_cached(&mut self, block: &mut Aligned, clock: &Clock) -> io::Result<Speed> {
        self.go_cached();
        // What fits into a small machine's memory beside everything else.
        let length = self.size.min(64 << 20);
        for at in (0..length).step_by(block.length) {
            self.file.read_exact_at(block.bytes(), at)?;
        }
        let began = Instant::now();
        let timer = clock.start();
        let mut bytes = 0;
        while bytes == 0 || !timer.is_over() {
            self.file.read_exact_at(block.bytes(), bytes % length)?;
            bytes += block.length as u64;
        }
        Ok(speed(bytes, began))
    }

    /// Reads at random places.
    pub fn seek(&mut self, block: &mut Aligned, random: &mut Random, clock: &Clock) -> io::Result<Seeks> {
        let began = Instant::now();
        let timer = clock.start();
        let mut times = Times::default();
        let mut count = 0u64;
        while count == 0 || !timer.is_over() {
            let start = Instant::now();
            self.read_at_random(block, random)?;
            times.record(start.elapsed().as_nanos() as u64);
            count += 1;
        }
        let at = |rank| times.percentile(rank).as_secs_f64();
        Ok(Seeks { rate: count as f64 / began.elapsed().as_secs_f64(), p50: at(50.0), p99: at(99.0) })
    }

    /// Reads a block at a random place, and says how many bytes it had.
    pub fn read_at_random(&self, block: &mut Aligned, random: &mut Random) -> io::Result<usize> {
        let blocks = (self.size / block.length as u64).max(1);
        let at = random.next() % blocks * block.length as u64;
        if !self.is_direct {
            let length = std::num::NonZeroU64::new(block.length as u64);
            let _ = fadvise(&self.file, at, length, Advice::DontNeed);
        }
        self.file.read_at(block.bytes(), at)
    }
}

fn speed(bytes: u64, began: Instant) -> Speed {
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    Speed { rate: bytes as f64 / seconds, bytes, seconds }
}
