//! `cargo xtask bench profile`: how often the program takes which way, for the compiler that builds what packages carry.
//!
//! With it functions are laid out, inlined and sized by what requests need of them ("Profile-guided Optimization" of the rustc
//! book). It is taken of a program that counts, while the benches and a mix of requests (`mix`) run, and is kept in the
//! repository, a file for each version of the compiler, since names of functions differ from one to another. A function that
//! has changed since is built as if there were no profile: an old one does no harm, and a release takes a new one.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Rows of `bench rows` that load no Tidegate, or wait for nothing but time.
const WITHOUT: &str = "idle,tls-idle,make-run,workers,php-reuse,size,start,rest,cached-instructions,log-instructions,\
                       h2-instructions,proxy-instructions,fastcgi-instructions,events-beside-idle";

/// What is run, each a task of this program.
const COURSES: [&[&str]; 3] = [
    &["bench", "rows", "--quick", "--no-build", "--without", WITHOUT],
    &[
        "bench",
        "cache",
        "--no-build",
        "--rounds=1",
        "--seconds=1",
        "--workloads=hit-1k,hit-64k",
        "--peers=nginx",
    ],
    &["mix"],
];

/// Takes it: builds a program that counts, runs it, and stores what it has counted.
pub fn run() -> Result<()> {
    let merge = profdata()?;
    let folder = folder();
    let counts = folder.join("counts");
    // What is counted is in the file from the start: a server process may open none when it ends.
    let flags = format!("-Cprofile-generate={} -Cllvm-args=-runtime-counter-relocation", counts.display());
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--profile", "dist", "--locked", "--package", "tidegate"]);
    cargo.env("CARGO_TARGET_DIR", &folder).env("RUSTFLAGS", flags);
    workspace::run(cargo.env("LLVM_PROFILE_FILE", "/dev/null"))?; // scripts of the build count as well
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts).with_context(|| format!("cannot make {}", counts.display()))?;
    for course in COURSES {
        let mut own = Command::new(std::env::current_exe().context("this program has no name")?);
        own.args(course).env(workspace::OPTIMISED, folder.join("dist"));
        workspace::run(own.env("LLVM_PROFILE_FILE", counts.join("%p%c.profraw")))?;
    }
    let counted = fs::read_dir(&counts)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let stored = stored()?;
    workspace::run(Command::new(merge).args(["merge", "--sparse", "--output"]).arg(&stored).args(&counted))?;
    println!("profile: {} holds what {} processes have counted", stored.display(), counted.len());
    Ok(())
}

/// `cargo build` of what packages carry, with the profile where there is one for this compiler. `RUSTFLAGS` are kept.
pub fn build() -> Result<Command> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--profile", "dist", "--locked"]);
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    cargo.env("RUSTFLAGS", format!("{given} {}", flags()?).trim());
    Ok(cargo)
}

/// Flags of the compiler; none where there is no profile for it.
pub fn flags() -> Result<String> {
    let stored = stored()?;
    let Ok(profile) = fs::read(&stored) else {
        println!(
            "{} is missing: built without a profile; `cargo xtask bench profile` takes one",
            stored.display()
        );
        return Ok(String::new());
    };
    // Its name is made of its content, so that cargo builds anew what another one would change.
    let mut hasher = DefaultHasher::new();
    hasher.write(&profile);
    fs::create_dir_all(folder()).with_context(|| format!("cannot make {}", folder().display()))?;
    let used = folder().join(format!("{:016x}.profdata", hasher.finish()));
    if !used.is_file() {
        fs::write(&used, profile).with_context(|| format!("cannot write {}", used.display()))?;
    }
    Ok(format!("-Cprofile-use={} -Cllvm-args=-no-pgo-warn-mismatch", used.display()))
}

fn folder() -> PathBuf {
    workspace::target_directory().join("profile")
}

/// Where the profile for this compiler is kept.
fn stored() -> Result<PathBuf> {
    let facts = workspace::compiler_facts()?;
    let release = facts.lines().find_map(|line| line.strip_prefix("release: "));
    let name = format!("xtask/baseline/rustc-{}.profdata", release.context("rustc -vV names no release")?);
    Ok(workspace::root().join(name))
}

/// The program of the toolchain that puts together what was counted.
fn profdata() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libraries = workspace::output(Command::new(rustc).args(["--print", "target-libdir"]))?;
    let program = Path::new(libraries.trim()).with_file_name("bin").join("llvm-profdata");
    if !program.is_file() {
        bail!("llvm-profdata is missing: rustup component add llvm-tools");
    }
    Ok(program)
}
