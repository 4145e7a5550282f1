//! What a disk can do: written and read in sequence, at random, file by file, and by the size of a read; as bonnie++ and
//! the dd script of HEANET's article measured it. From it follows which network the disk can fill.
//!
//! Reads go past the page cache where the file system can (O_DIRECT, open(2)); where it cannot, the cache is asked to forget
//! the file first (posix_fadvise(2)), and the report says so. The sweep of read sizes reads what memory holds: it
//! measures system calls, as the article found.

mod file;
mod timed;

use crate::quantity::show_bytes;
use crate::random::Random;
use crate::run::Stop;
use file::{Aligned, TestFile};
use rustix::fs::statvfs;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use thiserror::Error;
use timed::{Clock, small_files, sweep};

/// What is measured, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Bytes of the file that is written and read; at least 16 MiB.
    pub size: u64,
    /// The most that one test takes.
    pub time: Duration,
    /// Readers of random blocks of 64 KiB meanwhile, in a second pass; 0 leaves it out.
    pub readers: u32,
    /// Small files that are created, looked up and deleted.
    pub files: u32,
    /// Equal seeds read at equal places.
    pub seed: u64,
}

/// The least bytes of the test file.
pub const LEAST_SIZE: u64 = 16 << 20;
/// Bytes of a read or write in sequence.
const BLOCK: usize = 1 << 20;
/// Bytes of a read at random.
const SEEK: usize = 4 << 10;
/// Bytes of a read of those who read meanwhile.
const READER_BLOCK: usize = 64 << 10;

/// Bytes per second of one test, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Bytes per second.
    pub rate: f64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

/// Reads at random places.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Seeks {
    /// Per second.
    pub rate: f64,
    /// Half of them took no longer; seconds.
    pub p50: f64,
    /// 99 of 100 took no longer; seconds.
    pub p99: f64,
}

/// Small files, each per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SmallFiles {
    /// Created, with 1 KiB in each.
    pub create: f64,
    /// Looked up (stat(2)).
    pub stat: f64,
    /// Deleted.
    pub delete: f64,
}

/// One size of the sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    /// Bytes of a read.
    pub size: u64,
    /// Bytes per second.
    pub rate: f64,
    /// Seconds of one read.
    pub time: f64,
    /// Standard deviation of the rate over tenths of the test, as a share of it.
    pub jitter: f64,
}

/// All tests of one pass.
#[derive(Debug, Clone, Serialize)]
pub struct Pass {
    /// Readers meanwhile.
    pub readers: u32,
    /// What they read meanwhile, bytes per second.
    pub readers_rate: f64,
    /// Written in sequence, until it lay on the disk.
    pub write: Speed,
    /// Read, changed and written back in place.
    pub rewrite: Speed,
    /// Read in sequence, from the disk.
    pub read: Speed,
    /// Read in sequence, from memory.
    pub cached: Speed,
    /// Read at random places, 4 KiB, from the disk.
    pub seeks: Seeks,
    /// Small files.
    pub small: SmallFiles,
    /// Reads by size, from memory.
    pub sweep: Vec<Step>,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// Where.
    pub folder: PathBuf,
    /// Its file system, as statfs(2) has it: free and all bytes.
    pub free: u64,
    /// Bytes of the test file.
    pub size: u64,
    /// Whether reads went past the page cache; else it was asked to forget the file.
    pub is_direct: bool,
    /// Nothing else going on.
    pub idle: Pass,
    /// With readers.
    pub loaded: Option<Pass>,
}

/// Why nothing was found.
#[derive(Debug, Error)]
pub enum DiskError {
    /// The file system has no room.
    #[error("{wanted} bytes of test files do not fit: {folder} has {free} left; name a smaller --size")]
    Full {
        /// Where.
        folder: PathBuf,
        /// Bytes that it should have.
        wanted: u64,
        /// Bytes that are left.
        free: u64,
    },
    /// A call failed.
    #[error("cannot {0} in {1}: {2}")]
    Failed(&'static str, PathBuf, io::Error),
    /// Somebody did not want to wait.
    #[error("interrupted; the files of the test are removed")]
    Interrupted,
}

/// A folder of its own, which goes when the test ends, however it ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Measures the disk that `folder` lies on.
///
/// # Errors
/// [`DiskError`]. Nothing stays behind.
pub fn measure(
    folder: &Path,
    plan: &Plan,
    stop: &Stop,
    mut tell: impl FnMut(&str),
) -> Result<Found, DiskError> {
    let fails = |what: &'static str| {
        let folder = folder.to_owned();
        move |error: io::Error| DiskError::Failed(what, folder, error)
    };
    let system = statvfs(folder).map_err(|error| fails("look")(error.into()))?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    // Each pass has a file of its own; a tenth stays free.
    let passes = if plan.readers > 0 { 2 } else { 1 };
    let wanted = plan.size.saturating_mul(passes);
    if wanted.saturating_add(wanted / 10) > free {
        return Err(DiskError::Full { folder: folder.to_owned(), wanted, free });
    }
    let scratch = Scratch(folder.join(format!(".tidegate-bench-disk-{}", std::process::id())));
    fs::create_dir(&scratch.0).map_err(fails("write"))?;
    let mut bench = Bench { folder: &scratch.0, plan, stop, size: 0, is_direct: false };
    tell("idle");
    let idle = bench.pass(0).map_err(|error| fails("measure")(error))?;
    let mut loaded = None;
    if plan.readers > 0 && !stop.is_stopped() {
        tell("with readers");
        loaded = Some(bench.pass(plan.readers).map_err(|error| fails("measure")(error))?);
    }
    if stop.is_stopped() {
        return Err(DiskError::Interrupted);
    }
    let (size, is_direct) = (bench.size, bench.is_direct);
    Ok(Found { folder: folder.to_owned(), free, size, is_direct, idle, loaded })
}

struct Bench<'a> {
    folder: &'a Path,
    plan: &'a Plan,
    stop: &'a Stop,
    /// Bytes of the test file once it was written; a slow disk has not all that were wanted.
    size: u64,
    is_direct: bool,
}

impl Bench<'_> {
    /// One pass over all tests, with so many readers meanwhile.
    fn pass(&mut self, readers: u32) -> io::Result<Pass> {
        let path = self.folder.join("file");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reading: Vec<_> = (0..readers)
                .map(|number| {
                    let (path, over, size, seed) = (&path, &over, self.size, self.plan.seed);
                    scope.spawn(move || {
                        read_meanwhile(path, size, Random::new(seed, 100 + u64::from(number)), over)
                    })
                })
                .collect();
            let began = Instant::now();
            let pass = self.tests(readers, &path);
            over.store(true, Relaxed);
            let bytes: u64 = reading.into_iter().filter_map(|reader| reader.join().ok()).sum();
            pass.map(|pass| Pass { readers_rate: bytes as f64 / began.elapsed().as_secs_f64(), ..pass })
        })
    }

    fn tests(&mut self, readers: u32, path: &Path) -> io::Result<Pass> {
        let clock = |share: f64| Clock::new(self.plan.time.mul_f64(share), self.stop);
        let mut random = Random::new(self.plan.seed, 7);
        // Readers read the file of the first pass; the second writes one of its own.
        let path = if readers > 0 { path.with_extension("loaded") } else { path.to_owned() };
        let mut block = Aligned::new(BLOCK);
        random.fill(block.bytes());
        let mut file = TestFile::create(&path)?;
        let write = file.write(&mut block, self.plan.size, &clock(1.0))?;
        self.size = write.bytes;
        let rewrite = file.rewrite(&mut block, &clock(1.0))?;
        self.is_direct = file.forget()?;
        let read = file.read(&mut block, &clock(1.0))?;
        let seeks = file.seek(&mut Aligned::new(SEEK), &mut random, &clock(1.0))?;
        let cached = file.read_cached(&mut block, &clock(1.0))?;
        let small = small_files(self.folder, self.plan.files, &clock(1.0))?;
        let sweep = sweep(&path, &clock(0.1))?;
        Ok(Pass { readers, readers_rate: 0.0, write, rewrite, read, cached, seeks, small, sweep })
    }
}

/// Reads blocks at random places until the tests are over, and says how many bytes. A reader that cannot read is none.
fn read_meanwhile(path: &Path, size: u64, mut random: Random, over: &AtomicBool) -> u64 {
    let Ok(file) = TestFile::open(path, size) else { return 0 };
    let mut block = Aligned::new(READER_BLOCK);
    let mut bytes = 0;
    while !over.load(Relaxed) {
        match file.read_at_random(&mut block, &mut random) {
            Ok(count) => bytes += count as u64,
            Err(_) => break,
        }
    }
    bytes
}

impl Found {
    /// Which network the disk can fill, in a sentence, for each way of reading.
    pub fn sentences(&self) -> Vec<String> {
        let gbit = |rate: f64| {
            let gbit = rate * 8.0 / 1e9;
            if gbit >= 1.0 { format!("{gbit:.1} Gbit/s") } else { format!("{:.0} Mbit/s", gbit * 1e3) }
        };
        let idle = &self.idle;
        let mut out = vec![format!(
            "one large file read in sequence fills {} of network; what memory holds, {}",
            gbit(idle.read.rate),
            gbit(idle.cached.rate)
        )];
        if let Some(loaded) = &self.loaded {
            out.push(format!(
                "{} readers of 64 KiB at random places together fill {}, beside one that reads in sequence with {}",
                loaded.readers,
                gbit(loaded.readers_rate),
                gbit(loaded.read.rate)
            ));
        }
        let cheapest = idle.sweep.iter().find(|step| step.rate >= 0.95 * self.most());
        if let Some(step) = cheapest {
            out.push(format!("reads of {} and more are as fast as they get", show_bytes(step.size as f64)));
        }
        if !self.is_direct {
            out.push("this file system cannot read past the page cache (O_DIRECT): figures of the disk may be memory's".into());
        }
        out
    }

    fn most(&self) -> f64 {
        self.idle.sweep.iter().map(|step| step.rate).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_measurement_has_all_figures_and_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("tidegate-bench-disk-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let plan =
            Plan { size: LEAST_SIZE, time: Duration::from_millis(200), readers: 2, files: 20, seed: 1 };
        let mut told = Vec::new();
        let found = measure(&folder, &plan, &Stop::default(), |what| told.push(what.to_owned())).unwrap();
        assert_eq!(told, ["idle", "with readers"]);
        for pass in [&found.idle, found.loaded.as_ref().unwrap()] {
            for speed in [pass.write, pass.rewrite, pass.read, pass.cached] {
                assert!(speed.rate > 0.0 && speed.bytes > 0 && speed.seconds > 0.0, "{pass:?}");
            }
            assert!(pass.seeks.rate > 0.0 && pass.seeks.p99 >= pass.seeks.p50, "{pass:?}");
            assert!(pass.small.create > 0.0 && pass.small.stat > 0.0 && pass.small.delete > 0.0, "{pass:?}");
            assert_eq!(pass.sweep.first().map(|step| step.size), Some(1));
            assert_eq!(pass.sweep.last().map(|step| step.size), Some(1 << 20));
        }
        assert!(found.sentences()[0].contains("bit/s"));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the files of the test are gone");
        let stop = Stop::default();
        stop.flag().store(true, Relaxed);
        assert!(matches!(measure(&folder, &plan, &stop, |_| ()), Err(DiskError::Interrupted)));
        let large = Plan { size: 1 << 60, ..plan };
        let error = measure(&folder, &large, &Stop::default(), |_| ()).unwrap_err().to_string();
        assert!(error.contains("do not fit"), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }
}
