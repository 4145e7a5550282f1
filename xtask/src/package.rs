//! `cargo xtask package`: the program as packages carry it, and its debug lines beside it.
//!
//! Built with the profile `dist`: all crates optimised as one, which takes minutes. The lines that a backtrace names go to
//! a file of their own, five times as large as the program; with it in the same folder, or in `/usr/lib/debug`, a crash
//! tells files and lines, and without it functions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench::profile;
use crate::workspace;

/// Larger than this is worth a look at what has come in, bytes. What it should be is a row of `cargo xtask bench rows`.
const MOST: u64 = 30_000_000;

/// Builds and splits.
pub fn run() -> Result<()> {
    if workspace::find_program("objcopy").is_none() {
        bail!("objcopy is missing: apt-get install binutils");
    }
    workspace::run(profile::build()?.args(["--package", "tidegate"]))?;
    let folder = workspace::optimised();
    let package = folder.join("package");
    fs::create_dir_all(&package).with_context(|| format!("cannot make {}", package.display()))?;
    split("objcopy", &folder.join("tidegate"), &package)?;
    let size = |name: &str| fs::metadata(package.join(name)).map(|file| file.len());
    let (program, lines) = (size("tidegate")?, size("tidegate.debug")?);
    println!(
        "{}: {:.1} MB, debug lines {:.1} MB",
        package.join("tidegate").display(),
        program as f64 / 1e6,
        lines as f64 / 1e6
    );
    if program > MOST {
        bail!("the program is larger than {} MB", MOST / 1_000_000);
    }
    Ok(())
}

/// Puts a program without what only a debugger reads into a folder, and that into a file beside it which it names. `objcopy`
/// is the one that knows its kind of processor.
pub fn split(objcopy: &str, program: &Path, package: &Path) -> Result<()> {
    let (stripped, lines) = (package.join("tidegate"), package.join("tidegate.debug"));
    workspace::run(
        Command::new(objcopy)
            .args(["--only-keep-debug", "--compress-debug-sections"])
            .args([program, &lines]),
    )?;
    // The name of the file alone is remembered, so that both may be moved together.
    workspace::run(
        Command::new(objcopy)
            .current_dir(package)
            .args(["--strip-all", "--add-gnu-debuglink=tidegate.debug"])
            .args([program, &stripped]),
    )
}
