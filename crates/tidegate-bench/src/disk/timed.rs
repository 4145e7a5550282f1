//! Tests of small files and of read sizes, and the clock that ends each.

use super::{SmallFiles, Step};
use crate::run::Stop;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a test may take.
pub struct Clock<'a> {
    time: Duration,
    stop: &'a Stop,
}

/// A test that began.
pub struct Timer<'a> {
    clock: &'a Clock<'a>,
    began: Instant,
}

impl<'a> Clock<'a> {
    /// So long, or until somebody stops it.
    pub fn new(time: Duration, stop: &'a Stop) -> Self {
        Clock { time, stop }
    }

    /// Begins a test.
    pub fn start(&'a self) -> Timer<'a> {
        Timer { clock: self, began: Instant::now() }
    }
}

impl Timer<'_> {
    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        self.began.elapsed() >= self.clock.time || self.clock.stop.is_stopped()
    }
}

/// Creates, looks up and deletes small files of 1 KiB.
pub fn small_files(folder: &Path, count: u32, clock: &Clock) -> io::Result<SmallFiles> {
    let folder = folder.join("small");
    fs::create_dir(&folder)?;
    let name = |number: u32| folder.join(format!("{number:06}"));
    let content = [b'x'; 1 << 10];
    let timer = clock.start();
    let mut created = 0;
    let create = per_second(|| {
        while created < count && (created == 0 || !timer.is_over()) {
            fs::write(name(created), content)?;
            created += 1;
        }
        Ok(created)
    })?;
    let stat = per_second(|| {
        for number in 0..created {
            fs::metadata(name(number))?;
        }
        Ok(created)
    })?;
    let delete = per_second(|| {
        for number in 0..created {
            fs::remove_file(name(number))?;
        }
        Ok(created)
    })?;
    fs::remove_dir(&folder)?;
    Ok(SmallFiles { create, stat, delete })
}

fn per_second(work: impl FnOnce() -> io::Result<u32>) -> io::Result<f64> {
    let began = Instant::now();
    let count = work()?;
    Ok(f64::from(count) / began.elapsed().as_secs_f64().max(1e-9))
}

/// Reads of 1 B to 1 MiB, each twice the last, of what memory holds.
pub fn sweep(path: &Path, clock: &Clock) -> io::Result<Vec<Step>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len().min(16 << 20);
    let mut buffer = vec![0; 1 << 20];
    for at in (0..length).step_by(buffer.len()) {
        file.read_at(&mut buffer, at)?;
    }
    (0..=20).map(|power| step(&file, length, 1 << power, &mut buffer, clock)).collect()
}

/// Tenths of a step, whose rates tell how even it is.
const SLICES: u32 = 10;

fn step(file: &File, length: u64, size: u64, buffer: &mut [u8], clock: &Clock) -> io::Result<Step> {
    let buffer = buffer.get_mut(..size as usize).unwrap_or_default();
    let (mut at, mut reads) = (0, 0u64);
    let mut rates = Vec::new();
    let began = Instant::now();
    for _ in 0..SLICES {
        let (start, mut bytes) = (Instant::now(), 0);
        // The clock is asked after 64 KiB or 64 reads, lest it is what is measured.
        while bytes == 0 || (start.elapsed() < clock.time / SLICES && !clock.stop.is_stopped()) {
            for _ in 0..(64 * 1024 / size).clamp(1, 64) {
                bytes += file.read_at(buffer, at)? as u64;
                reads += 1;
                at = if at + 2 * size > length { 0 } else { at + size };
            }
        }
        rates.push(bytes as f64 / start.elapsed().as_secs_f64().max(1e-9));
    }
    let time = began.elapsed().as_secs_f64() / reads as f64;
    let rate = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|one| (one - rate).powi(2)).sum::<f64>() / rates.len() as f64;
    Ok(Step { size, rate, time, jitter: if rate > 0.0 { variance.sqrt() / rate } else { 0.0 } })
}
