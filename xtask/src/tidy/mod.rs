//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! Gathers facts (cargo's own metadata, the lock files, the sources), hands them to the checks beside this
//! file, and prints what they found. The checks take plain data and touch no file, so that their tests
//! need none. It changes nothing.

mod borrows;
mod direction;
mod lexer;
mod licences;
mod source;
mod transcripts;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

/// A rule that does not hold, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A file, with a line where there is one, or the name of a package.
    pub place: String,
    pub message: String,
}

impl Finding {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Folders that hold sources of ours.
const SOURCE_FOLDERS: [&str; 6] = ["crates", "xtask", "fuzz", "tests", "examples", "kit"];

/// Runs every check; an error when one of them found something.
pub fn run() -> Result<()> {
    let root = workspace::root();
    let mut findings = Vec::new();

    let members = metadata(&["--no-deps"])?;
    findings.extend(direction::check(&direction::members(&members)?));

    let files = rust_files(root)?;
    for file in &files {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
        findings.extend(source::check(file, &text));
        findings.extend(borrows::check(file, &text));
    }

    let transcripts = file_names(&root.join("tests/transcripts"))?;
    findings.extend(transcripts::check(&transcripts));
    for name in transcripts.iter().filter(|name| name.ends_with(".txt")) {
        let path = format!("tests/transcripts/{name}");
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        findings.extend(transcripts::check_expectations(&path, &text));
    }

    let triple = workspace::host_triple()?;
    let dependencies = licences::packages(&metadata(&["--filter-platform", &triple])?)?;
    // Its workspace is built by nothing that is run often: a dependency of ours that changes would be missed.
    if metadata(&["--manifest-path", "fuzz/Cargo.toml", "--filter-platform", &triple]).is_err() {
        findings.push(Finding::new(
            "fuzz/Cargo.lock",
            "is not that of the crates as they are; `cargo metadata --manifest-path fuzz/Cargo.toml` writes it anew",
        ));
    }
    let deny = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    findings.extend(licences::check(&dependencies, &licences::allowed(&deny)?));
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        if let Ok(text) = fs::read_to_string(root.join(lock)) {
            let locked = licences::locked_packages(&text);
            findings.extend(licences::check_sources(lock, &locked));
            for duplicate in licences::duplicates(&locked) {
                println!("tidy: warning: {lock}: {duplicate}");
            }
        }
    }

    for finding in &findings {
        println!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} rules broken", findings.len());
    }
    println!(
        "tidy: {} source files, {} transcripts, {} dependencies in order{}",
        files.len(),
        transcripts.len(),
        dependencies.len(),
        if licences::run_cargo_deny()? { ", also for cargo deny" } else { "" }
    );
    Ok(())
}

/// `cargo metadata`, which also fails when the lock file is not up to date.
fn metadata(arguments: &[&str]) -> Result<Value> {
    let mut command = workspace::cargo();
    command.args(["metadata", "--locked", "--format-version", "1"]).args(arguments);
    serde_json::from_str(&workspace::output(&mut command)?).context("cargo metadata is not JSON")
}

/// Every Rust file of ours, as a path below the root, sorted.
fn rust_files(root: &Path) -> Result<Vec<String>> {
    let mut pending: Vec<PathBuf> = SOURCE_FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = pending.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    pending.push(path);
                }
            } else if name.ends_with(".rs") {
                let below = path.strip_prefix(root).expect("invariant: found below the root");
                files.push(below.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Names of the files in a folder; none where there is no such folder.
fn file_names(folder: &Path) -> Result<Vec<String>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
