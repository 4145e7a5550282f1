//! Where the repository lies, and how commands are run in it. Used by every task.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("invariant: xtask lies in the repository")
}

/// The folder of build results.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// Names another folder for [`optimised`], where `bench profile` has programs that count.
pub const OPTIMISED: &str = "TIDEGATE_OPTIMISED";

/// The folder of what the profile `dist` builds: as packages carry it, and as benches measure it.
pub fn optimised() -> PathBuf {
    std::env::var_os(OPTIMISED).map_or_else(|| target_directory().join("dist"), PathBuf::from)
}

/// The `cargo` that runs this task, in the root of the repository.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a command whose output goes where ours goes; an error names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command and returns its standard output; an error carries its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}\n{}", shown(command), output.status, errors.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// `rustc -vV`, a line per fact.
pub fn compiler_facts() -> Result<String> {
    output(Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))
}

/// The target triple of this machine, which `--target` wants spelled out.
pub fn host_triple() -> Result<String> {
    let facts = compiler_facts()?;
    let triple = facts.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("rustc -vV names no host")?.to_owned())
}

/// The full path of a program, looked for among the peers that were built, in `PATH` and where Debian keeps its servers.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::iter::once(target_directory().join("peers/bin"));
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].into_iter().map(PathBuf::from);
    let folders = own.chain(std::env::split_paths(&path)).chain(system);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
