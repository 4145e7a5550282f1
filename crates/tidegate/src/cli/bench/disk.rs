//! `tidegate bench disk`: what a disk can do, and which network it can fill.

use super::super::complain;
use super::output::{NotKept, about_now, interrupted, show, stop_on_signals, write};
use super::wrong;
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::disk::{DiskError, LEAST_SIZE, Plan, measure};
use tidegate_bench::quantity;
use tidegate_bench::report::{disk_page, disk_screen};

/// Measures the disk that a folder lies on, and says which network it can fill.
///
/// Writes a file, rewrites and reads it, in sequence and at random, creates and deletes small files, and reads what memory
/// holds in pieces of 1 B to 1 MiB; with --readers a second time beside readers at random places, as downloads are. Reads
/// go past the page cache where the file system can. A disk is worth what it does with more than the machine's memory:
/// name a --size that is larger than that for figures of spinning disks and of storage with a cache. All files are removed.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench disk /srv
  tidegate bench disk --size 64GiB --time 60s --readers 32 --html disk.html /srv

Exit codes: 0 measured, 97 its page could not be written, 1 the folder cannot be used, 2 the arguments are wrong, 130 interrupted")]
pub struct Arguments {
    /// A folder on the disk
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Bytes of the file, 16 MiB or more
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = quantity::size)]
    size: u64,
    /// The most that each test takes
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = quantity::duration)]
    time: Duration,
    /// Readers of 64 KiB at random places in a second pass
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    readers: u32,
    /// Small files of 1 KiB that are created, looked up and deleted
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// For whatever is drawn by lot
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Say nothing meanwhile
    #[arg(short, long)]
    quiet: bool,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { size, time, readers, files, seed, .. } = *arguments;
    if size < LEAST_SIZE {
        return Err(wrong("--size is 16MiB at least: what is smaller says nothing of a disk"));
    }
    if time.is_zero() {
        return Err(wrong("--time is how long each test may take; 0s is none"));
    }
    let stop = stop_on_signals()?;
    let plan = Plan { size, time, readers, files, seed };
    let is_quiet = arguments.quiet || arguments.json;
    let found = match measure(&arguments.folder, &plan, &stop, |pass| {
        if !is_quiet {
            complain(&format!("measuring {}, {pass}\n", arguments.folder.display()));
        }
    }) {
        Err(error @ DiskError::Interrupted) => {
            complain(&format!("tidegate bench: {error}\n"));
            return Ok(interrupted());
        }
        found => found?,
    };
    let shown = if arguments.json {
        show(&format!("{}\n", serde_json::to_string(&found)?))
    } else {
        show(&disk_screen(&found))
    };
    write(arguments.html.as_deref(), || Ok(disk_page(&found, &about_now()).into_bytes()))
        .context(NotKept::InFiles)
        .and(shown)?;
    Ok(ExitCode::SUCCESS)
}
