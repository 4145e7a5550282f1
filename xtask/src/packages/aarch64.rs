//! `cargo xtask aarch64`: builds the program for 64-bit ARM and runs it under qemu, as far as that goes.
//!
//! qemu-user of Debian 12 knows neither landlock nor seccomp(2), so pools and their sandboxes are not part of it: what is
//! looked at is that the program starts its processes, serves, reloads and stops.

use std::process::Command;

use anyhow::{Result, bail};

use super::test::Ground;
use crate::workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Builds and runs.
pub fn run() -> Result<()> {
    for (program, package) in [
        ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        ("qemu-aarch64-static", "qemu-user-static"),
    ] {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing: apt-get install {package}; and: rustup target add {TARGET}");
        }
    }
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--package", "tidegate", "--target", TARGET]);
    workspace::run(cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"))?;
    let program = workspace::target_directory().join(TARGET).join("debug/tidegate");
    let qemu = workspace::find_program("qemu-aarch64-static").unwrap_or_default();
    let ground = Ground::new()?;
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]);
    command.args(["bash", "-euo", "pipefail"]);
    command.arg(workspace::root().join("xtask/src/packages/aarch64-test.sh"));
    workspace::run(command.args([ground.path(), &program, &qemu]).stdin(std::process::Stdio::null()))?;
    println!("aarch64: the program serves, reloads and stops under qemu");
    Ok(())
}
