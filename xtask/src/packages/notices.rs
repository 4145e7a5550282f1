//! What is in the program that others have written: a bill of materials (CycloneDX), and their licences.
//!
//! Made by `cargo-cyclonedx` and `cargo-about`, which come from the package registry. Where one is missing its file is left
//! out, and the line that installs it is said.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::commit_time;
use crate::workspace;

/// Makes both; returns those that there are.
pub fn make(output: &Path) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    if has("cargo-cyclonedx") {
        made.push(materials(output)?);
    }
    if has("cargo-about") {
        made.push(licences(output)?);
    }
    Ok(made)
}

/// Whether a tool is installed; where not, it is said.
pub fn has(tool: &str) -> bool {
    let is_there = workspace::find_program(tool).is_some();
    if !is_there {
        println!("packages: {tool} is missing, and what it makes is left out: cargo install --locked {tool}");
    }
    is_there
}

fn materials(output: &Path) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args([
        "cyclonedx",
        "--format",
        "json",
        "--describe",
        "binaries",
        "--manifest-path",
        "crates/tidegate/Cargo.toml",
    ]);
    workspace::run(cargo.env("SOURCE_DATE_EPOCH", commit_time()?.to_string()))?;
    let mut found = None;
    // It writes one beside each manifest of the workspace.
    for entry in fs::read_dir(workspace::root().join("crates"))?.chain(fs::read_dir(workspace::root())?) {
        let folder = entry?.path();
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".cdx.json") {
                if name == "tidegate_bin.cdx.json" {
                    found = Some(fs::read_to_string(&path)?);
                }
                fs::remove_file(&path)?;
            }
        }
    }
    let text = found.context("cargo-cyclonedx wrote nothing of the program")?;
    // A number of its own for each run is left out, and paths of this machine are those of the repository.
    let mut bill: serde_json::Value = serde_json::from_str(&text)?;
    if let Some(bill) = bill.as_object_mut() {
        bill.remove("serialNumber");
    }
    let text =
        serde_json::to_string_pretty(&bill)?.replace(&workspace::root().display().to_string(), "/tidegate");
    let path = output.join("tidegate.cdx.json");
    fs::write(&path, text)?;
    Ok(path)
}

fn licences(output: &Path) -> Result<PathBuf> {
    let path = output.join("THIRD-PARTY.md");
    let mut cargo = workspace::cargo();
    cargo.args(["about", "generate", "--offline", "--fail", "--manifest-path", "crates/tidegate/Cargo.toml"]);
    workspace::run(cargo.args(["--config", "dist/about.toml", "dist/about.hbs", "-o"]).arg(&path))?;
    Ok(path)
}
