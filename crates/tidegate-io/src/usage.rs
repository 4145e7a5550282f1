//! What this process has used of processors, memory and descriptors, for whoever reports on it.
//!
//! The two files of `/proc` are opened by [`prepare`], before a sandbox closes the way to them, and read again and again. Never
//! on the way of a request: a count of descriptors goes through all of them.

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::pread;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::mem::MaybeUninit;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of all processors together, microseconds, the kernel's work for it included.
    pub cpu_micros: u64,
    /// Bytes of memory that are in use now.
    pub resident: u64,
    /// Open descriptors, without the two that are needed to tell.
    pub descriptors: u64,
}

struct Sources {
    statm: Option<File>,
    /// Its place is shared by all who read it.
    descriptors: Mutex<Option<File>>,
}

static SOURCES: OnceLock<Sources> = OnceLock::new();

/// Opens what [`Usage::now`] reads. Call it before the process confines itself.
pub fn prepare() {
    let _ = SOURCES.get_or_init(|| {
        let folder = openat(
            rustix::fs::CWD,
            c"/proc/self/fd",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        Sources {
            statm: File::open("/proc/self/statm").ok(),
            descriptors: Mutex::new(folder.ok().map(File::from)),
        }
    });
}

impl Usage {
    /// Of this process. What cannot be found out is 0.
    pub fn now() -> Usage {
        prepare();
        let descriptors = SOURCES.get().and_then(descriptors).unwrap_or_default();
        Usage { descriptors, ..Usage::without_descriptors() }
    }

    /// The same without counting descriptors, which takes the longer the more of them there are: for who asks every second.
    pub fn without_descriptors() -> Usage {
        prepare();
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let micros =
            |seconds: i64, nanos: i64| seconds.max(0) as u64 * 1_000_000 + nanos.max(0) as u64 / 1_000;
        let sources = SOURCES.get();
        Usage {
            cpu_micros: micros(time.tv_sec, time.tv_nsec),
            resident: sources.and_then(|sources| resident(sources.statm.as_ref()?)).unwrap_or_default(),
            descriptors: 0,
        }
    }
}

/// The second number of `statm(5)` is pages.
fn resident(statm: &File) -> Option<u64> {
    let mut text = [0; 256];
    let length = pread(statm, &mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn descriptors(sources: &Sources) -> Option<u64> {
    let folder = sources.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder.as_ref()?;
    seek(folder, SeekFrom::Start(0)).ok()?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(folder, &mut buffer);
    let mut count = 0u64;
    while let Some(entry) = entries.next() {
        count += u64::from(!entry.ok()?.file_name().to_bytes().starts_with(b"."));
    }
    Some(count.saturating_sub(2))
}
