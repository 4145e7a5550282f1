//! `cargo xtask site`: the files of `examples/site` that are made, not written.
//!
//! Called by `make run` and `make test`. A chart as PDF and the logo as PNG, the same bytes every time, made
//! without any tool; the repository holds neither.

mod chart;
mod logo;
mod pdf;
mod png;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace;

/// Writes the files, unless they are there with these very bytes.
pub fn run() -> Result<()> {
    let downloads = workspace::root().join("examples/site/downloads");
    write(&downloads.join("cost-of-a-request.pdf"), &chart::document())?;
    write(&downloads.join("tidegate-512.png"), &logo::image(512))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    println!("site: {} made", path.strip_prefix(workspace::root()).unwrap_or(path).display());
    Ok(())
}
