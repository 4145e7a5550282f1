//! `cargo xtask aarch64`: runs the program for 64-bit ARM under qemu, as far as that goes: one that it builds, or those in
//! packages.
//!
//! qemu-user of Debian 12 knows neither landlock nor seccomp(2) nor subreapers (`PR_SET_CHILD_SUBREAPER`), so pools are not part
//! of it: what is looked at is that the program starts its processes, serves, passes requests on, reloads and stops.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::architecture::{Architecture, Library};
use super::test::Ground;
use crate::workspace;

/// What is run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run the programs in these packages for arm64 (.deb, .tar.gz, .oci.tar) instead of building one
    packages: Vec<PathBuf>,
}

/// Builds where there is nothing to run, and runs.
pub fn run(arguments: &Arguments) -> Result<()> {
    let architecture = Architecture::Arm64;
    let Some(qemu) = workspace::find_program("qemu-aarch64-static") else {
        bail!("qemu-aarch64-static is missing: apt-get install qemu-user-static");
    };
    if arguments.packages.is_empty() {
        architecture.prepared(Library::Gnu)?;
        let target = architecture.target(Library::Gnu);
        let mut cargo = workspace::cargo();
        cargo.args(["build", "--locked", "--package", "tidegate", "--target", &target]);
        let linker = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER";
        workspace::run(cargo.env(linker, architecture.compiler(Library::Gnu)))?;
        let program = workspace::target_directory().join(target).join("debug/tidegate");
        play(&program, &qemu)?;
    }
    for package in &arguments.packages {
        let ground = Ground::new()?;
        let program = unpack(package, ground.path())?;
        play(&program, &qemu)?;
        println!("aarch64: {}", package.display());
    }
    println!("aarch64: the program serves, passes requests on, reloads and stops under qemu");
    Ok(())
}

/// Takes the program out of a package.
fn unpack(package: &Path, folder: &Path) -> Result<PathBuf> {
    let name = package.to_string_lossy();
    let folder = folder.join("unpacked");
    fs::create_dir_all(&folder)?;
    if name.ends_with(".deb") {
        let told = workspace::output(Command::new("dpkg-deb").arg("-f").arg(package).arg("Architecture"))?;
        if told.trim() != "arm64" {
            bail!("{name} is for {}", told.trim());
        }
        workspace::run(Command::new("dpkg-deb").arg("-x").args([package, &folder]))?;
        return Ok(folder.join("usr/bin/tidegate"));
    }
    let untar = |archive: &Path, arguments: &[&str]| {
        workspace::run(Command::new("tar").arg("-C").arg(&folder).args(arguments).arg("-xf").arg(archive))
    };
    if name.ends_with(".oci.tar") {
        untar(package, &[])?;
        let blob = |descriptor: &serde_json::Value| {
            let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
            digest.map(|digest| folder.join("blobs/sha256").join(digest)).context("a digest is missing")
        };
        let read =
            |path: &Path| -> Result<serde_json::Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
        let manifest = read(&blob(&read(&folder.join("index.json"))?["manifests"][0])?)?;
        let config = read(&blob(&manifest["config"])?)?;
        if config["architecture"] != "arm64" {
            bail!("{name} is for {}", config["architecture"]);
        }
        untar(&blob(&manifest["layers"][0])?, &["-z"])?;
        return Ok(folder.join("usr/bin/tidegate"));
    }
    untar(package, &["-z", "--strip-components=1"])?;
    Ok(folder.join("tidegate"))
}

/// Runs the script in namespaces of its own.
fn play(program: &Path, qemu: &Path) -> Result<()> {
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
    workspace::run(command.args([ground.path(), program, qemu]).stdin(std::process::Stdio::null()))
}
