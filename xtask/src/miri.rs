//! `cargo xtask miri`: the tests of the executor under Miri, which finds what is undefined and what leaks.
//!
//! Called by hand. Miri wants a nightly toolchain, so it is no step of `make test`.

use anyhow::{Context, Result, bail};
use std::process::Command;

use crate::workspace;

/// Runs the model test of the executor; an error when Miri is not there or has found something.
pub fn run() -> Result<()> {
    let mut command = Command::new("cargo");
    command
        .current_dir(workspace::root())
        .args(["+nightly", "miri", "test", "--locked", "-p", "tidegate-io", "--test", "executor"])
        // Descriptors of the poller are real.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation");
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("{status}; if there is no Miri: rustup toolchain install nightly --component miri");
    }
    Ok(())
}
