//! The program that packages carry: all crates optimised as one, without a path of the machine that built it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::commit_time;
use crate::workspace;

/// The target of the static program.
pub fn musl() -> Result<&'static str> {
    let target = match std::env::consts::ARCH {
        "x86_64" => "x86_64-unknown-linux-musl",
        "aarch64" => "aarch64-unknown-linux-musl",
        other => bail!("no static program is built for {other}"),
    };
    if workspace::find_program("musl-gcc").is_none() {
        bail!("musl-gcc is missing: apt-get install musl-tools");
    }
    let told = Command::new("rustup").args(["target", "list", "--installed"]).output();
    let installed = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default();
    if !installed.lines().any(|line| line == target) {
        bail!("the target is missing: rustup target add {target}");
    }
    Ok(target)
}

/// Builds the program for this machine or a target, with the site of the documents in it where there is one; strips it and
/// puts its debug lines beside it.
pub fn build(output: &Path, target: Option<&str>, book: Option<&Path>) -> Result<PathBuf> {
    if workspace::find_program("objcopy").is_none() {
        bail!("objcopy is missing: apt-get install binutils");
    }
    let folder = output.join("build");
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--profile", "dist", "--locked", "--package", "tidegate"]);
    cargo.args(target.iter().flat_map(|target| ["--target", target]));
    // Paths in the program are those of no machine, so that the same commit gives the same bytes wherever it is built.
    let root = workspace::root().display().to_string();
    let home = std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()));
    let from_to = [(root.as_str(), "/tidegate"), (home.as_str(), "/cargo")];
    let flags = |name: &str| from_to.map(|(from, to)| format!("{name}={from}={to}")).join(" ");
    cargo
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", flags("--remap-path-prefix"))
        .env("CFLAGS", flags("-ffile-prefix-map"))
        .env("SOURCE_DATE_EPOCH", commit_time()?.to_string());
    cargo.env("TIDEGATE_BOOK", book.unwrap_or(Path::new("")));
    if let Some(target) = target {
        cargo.env(format!("CC_{}", target.replace('-', "_")), "musl-gcc");
    }
    workspace::run(&mut cargo)?;
    let built = match target {
        Some(target) => folder.join(target).join("dist"),
        None => folder.join("dist"),
    };
    let stripped = built.join("package");
    std::fs::create_dir_all(&stripped)?;
    crate::package::split(&built.join("tidegate"), &stripped)?;
    Ok(stripped.join("tidegate"))
}
