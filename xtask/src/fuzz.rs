//! `cargo xtask fuzz`: each fuzz target for a bounded while, on the stable toolchain.
//!
//! The targets are the binaries of `fuzz/Cargo.toml`, a workspace of its own. They are built with the
//! coverage instrumentation that libFuzzer wants, given to the compiler by hand, as the wrapper that is
//! usual for it asks for nightly. New inputs go to a folder of build results, so that `fuzz/corpus` changes
//! only when somebody adds to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Only this target
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Inputs for each target; whichever bound comes first ends it
    #[arg(long, default_value_t = 50_000_000)]
    runs: u64,
}

/// What `-Zsanitizer-coverage` of cargo-fuzz amounts to, address sanitiser apart, which wants nightly.
/// Overflow and debug assertions stay on: they are what finds most faults in safe code.
const FLAGS: [&str; 8] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];

/// Runs the targets one after another; an error names those that found something.
pub fn run(arguments: &Arguments) -> Result<()> {
    let known = targets()?;
    let chosen = match &arguments.target {
        None => known,
        Some(target) if known.contains(target) => vec![target.clone()],
        Some(target) => bail!("no fuzz target {target}; there are: {}", known.join(", ")),
    };
    let binaries = build()?;
    let mut failed = Vec::new();
    for target in &chosen {
        let started = Instant::now();
        let runs = run_target(&binaries.join(target), target, arguments);
        let seconds = started.elapsed().as_secs();
        match runs {
            Ok(runs) => println!("fuzz: {target}: {runs} inputs in {seconds} s, no crash"),
            Err(error) => {
                println!("fuzz: {target}: {error:#}");
                failed.push(target.as_str());
            }
        }
    }
    if !failed.is_empty() {
        bail!("fuzz: found something in {}", failed.join(", "));
    }
    Ok(())
}

fn fuzz_folder() -> PathBuf {
    workspace::root().join("fuzz")
}

/// Names of the binaries of the fuzz workspace.
pub fn targets() -> Result<Vec<String>> {
    let manifest = fuzz_folder().join("Cargo.toml");
    if !manifest.is_file() {
        bail!("there is no {}", manifest.display());
    }
    let mut command = workspace::cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let metadata: Value = serde_json::from_str(&workspace::output(&mut command)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let binaries = targets.filter(|target| target["kind"][0] == "bin");
    let mut names: Vec<String> =
        binaries.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect();
    names.sort();
    if names.is_empty() {
        bail!("fuzz/Cargo.toml has no [[bin]]");
    }
    Ok(names)
}

/// Builds all targets and returns the folder that holds them.
fn build() -> Result<PathBuf> {
    // `--target` keeps the flags from build scripts and procedural macros, which have no libFuzzer to link.
    let triple = workspace::host_triple()?;
    let target = workspace::target_directory().join("fuzz");
    let mut flags = FLAGS.to_vec();
    flags.extend(["--cfg", "fuzzing"]);
    let mut command = workspace::cargo();
    command
        .args(["build", "--quiet", "--locked", "--release", "--bins", "--target", &triple])
        .current_dir(fuzz_folder())
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_TARGET_DIR", &target)
        // Fat link-time optimisation costs minutes and helps nothing here; a panic must abort.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    workspace::run(&mut command)?;
    Ok(target.join(triple).join("release"))
}

/// Runs one target over its corpus and returns how many inputs it tried.
fn run_target(binary: &Path, target: &str, arguments: &Arguments) -> Result<u64> {
    let found = workspace::target_directory().join("fuzz/found").join(target);
    let artifacts = fuzz_folder().join("artifacts").join(target);
    fs::create_dir_all(&found)?;
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(binary);
    command
        .current_dir(fuzz_folder())
        .arg(format!("-max_total_time={}", arguments.seconds))
        .arg(format!("-runs={}", arguments.runs))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1", "-verbosity=0"])
        .arg(&found);
    let corpus = fuzz_folder().join("corpus").join(target);
    if corpus.is_dir() {
        command.arg(corpus);
    }
    let dictionary = fuzz_folder().join("dictionaries").join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let output = command.output().with_context(|| format!("cannot start {}", binary.display()))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(tried_inputs(&log).unwrap_or(0));
    }
    let artifact = log.lines().find_map(|line| line.split("Test unit written to ").nth(1));
    let tail: Vec<&str> = log.lines().rev().take(40).collect();
    let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
    let artifact = artifact.unwrap_or("no artifact was written");
    bail!("{}\n{tail}\ninput: {artifact}", output.status)
}

fn tried_inputs(log: &str) -> Option<u64> {
    let value = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_libfuzzer() {
        let log = "INFO: x\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec:     0\n";
        assert_eq!(tried_inputs(log), Some(1234));
        assert_eq!(tried_inputs(""), None);
    }
}
