//! What the check of a limit costs, for `cargo xtask bench qos` and `cargo xtask bench instructions`.
//!
//! `limits check N`: N checks for 100,000 clients in turn. `limits time N`: the nanoseconds of one of N. `limits keys N`: a
//! table for N keys, of which one is blocked, and a flood of three times as many others; what it held resident before and
//! after, what a check took, and whether the one is blocked still.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};
use tidegate_core::rate::{Buckets, Rate, Ruling};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::shared::SharedMemory;

const CLIENTS: u32 = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, count] = arguments.as_slice() else {
        return eprintln!("limits check|time|keys N");
    };
    let count: u32 = count.parse().unwrap_or(0).max(1);
    match what.as_str() {
        "check" => drop(black_box(checks(count))),
        "time" => println!("{{\"ns\":{}}}", checks(count).as_nanos() as f64 / f64::from(count)),
        "keys" => keys(count),
        _ => eprintln!("limits check|time|keys N"),
    }
}

/// Once in an hour, of which so many may come at once.
fn rate(burst: u64) -> Rate {
    Rate::new(NonZeroU64::MIN, Duration::from_secs(3600), NonZeroU64::new(burst).unwrap_or(NonZeroU64::MIN))
}

fn table(keys: u32) -> Buckets {
    let length = Buckets::length(keys as usize);
    let made = SharedMemory::new("limits", length).and_then(|(memory, _)| {
        let words = memory.words(0..length).ok_or(std::io::ErrorKind::InvalidData)?;
        Buckets::new(words, [1, 2])
    });
    made.unwrap_or_else(|error| panic!("no table of {keys} keys: {error}"))
}

/// How long so many checks take, of which none refuses.
fn checks(count: u32) -> Duration {
    let (table, rate) = (table(CLIENTS), rate(1_000_000));
    let begun = Instant::now();
    for n in 0..count {
        let client = (n % CLIENTS).to_be_bytes();
        black_box(table.charge(black_box(&client), rate, monotonic_ns()));
    }
    begun.elapsed()
}

fn keys(count: u32) {
    let (table, rate) = (table(count), rate(1));
    let now = monotonic_ns();
    // Before: all of its memory is in use.
    for n in 0..count {
        table.charge(&n.to_be_bytes(), rate, now);
    }
    let before = resident();
    let blocked = 0_u32.to_be_bytes();
    let (mut begun, mut freed, mut took) = (Instant::now(), 0, Duration::ZERO);
    for n in count..count.saturating_mul(4) {
        black_box(table.charge(&n.to_be_bytes(), rate, now));
        if n % 100_000 == 0 {
            took += begun.elapsed();
            freed += u32::from(matches!(table.charge(&blocked, rate, now), Ruling::Within { .. }));
            begun = Instant::now();
        }
    }
    took += begun.elapsed();
    let ns = took.as_nanos() as f64 / (f64::from(count) * 3.0);
    let after = resident();
    println!("{{\"ns\":{ns},\"before\":{before},\"after\":{after},\"freed\":{freed}}}");
}

/// Bytes that the process holds resident.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
