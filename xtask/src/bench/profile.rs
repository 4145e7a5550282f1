//! `cargo xtask bench profile`: how often the program takes which way, for the compiler that builds what packages carry.
//!
//! With it functions are laid out, inlined and sized by what requests need of them ("Profile-guided Optimization" of the rustc
//! book). It is taken of a program that counts, while the benches and a mix of requests (`mix`) run, server and generator
//! alike, and is kept in the repository. A function that has changed since is built as if there were no profile: an old one does no
//! harm. With another compiler, another version of the workspace or `--target` all functions have other names: such a build
//! says that it has none. The examples that count instructions are trained as well, since they have names of their own.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Rows of `bench rows` that load no Tidegate, wait for nothing but time, or hang now and then with what they measure.
const WITHOUT: &str = "h2-100k,idle,tls-idle,make-run,workers,php-reuse,size,start,rest,cached-instructions,log-instructions,\
                       h2-instructions,proxy-instructions,fastcgi-instructions,events-beside-idle";

/// The benches that are run, each a task of this program.
const BENCHES: [&[&str]; 2] = [
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
];

/// How much more what `--add` counts weighs than what is there: the benches, which it does not run, have asked so much more often, and a
/// function that has changed since would count as one that is seldom used.
const MIX_WEIGHT: u32 = 50;

/// What the examples that count instructions do in their course.
const OPERATIONS: [&str; 11] = [
    "cached",
    "logged",
    "browser",
    "unchanged",
    "h2",
    "fastcgi",
    "proxy",
    "stored",
    "stored-64k",
    "event",
    "event-beside",
];

#[derive(clap::Args)]
pub struct Arguments {
    /// Adds what the mix and the examples count to the profile that is there, without the benches: for functions that have changed since
    #[arg(long)]
    add: bool,
}

/// Takes it: builds programs that count, runs them, and stores what they have counted.
pub fn run(arguments: &Arguments) -> Result<()> {
    let merge = profdata()?;
    let folder = folder();
    let counts = folder.join("counts");
    // What is counted is in the file from the start (`%c` below): a server process may open none when it ends. Such files hold no
    // values, only branches.
    let flags = [
        format!("-Cprofile-generate={}", counts.display()),
        "-Cllvm-args=-runtime-counter-relocation".to_owned(),
        "-Cllvm-args=-disable-vp".to_owned(),
    ];
    for what in [&["--package", "tidegate"][..], &["--package", "tidegate-modules", "--example", "requests"]]
    {
        let mut cargo = with_flags(&flags);
        cargo.args(what).env("CARGO_TARGET_DIR", &folder);
        workspace::run(cargo.env("LLVM_PROFILE_FILE", "/dev/null"))?; // scripts of the build count as well
    }
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts).with_context(|| format!("cannot make {}", counts.display()))?;
    let programs = folder.join("dist");
    let own = std::env::current_exe().context("this program has no name")?;
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env(workspace::OPTIMISED, &programs);
        workspace::run(command.env("LLVM_PROFILE_FILE", counts.join("%p%c.profraw")))
    };
    for bench in BENCHES.iter().filter(|_| !arguments.add) {
        // Where a peer has made a figure void, ours was measured and counted all the same. That all is well with ours the mix says.
        if let Err(error) = run(&own, bench) {
            println!("profile: {error:#}; what was counted stays");
        }
    }
    run(&own, &["mix"])?;
    let example = programs.join("examples/requests");
    OPERATIONS.iter().try_for_each(|operation| run(&example, &[operation, "3200"]))?;

    let mut counted = fs::read_dir(&counts)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let (stored, new) = (stored(), folder.join("new.profdata"));
    if arguments.add {
        counted.push(stored.clone()); // of a function that has changed it holds the form of before as well, which nobody looks up
    }
    let weight = if arguments.add { MIX_WEIGHT } else { 1 };
    let counted = counted.iter().map(|file| match *file == stored {
        true => format!("--weighted-input=1,{}", file.display()),
        false => format!("--weighted-input={weight},{}", file.display()),
    });
    let counted: Vec<String> = counted.collect();
    workspace::run(Command::new(merge).args(["merge", "--sparse", "--output"]).arg(&new).args(&counted))?;
    fs::copy(&new, &stored).with_context(|| format!("cannot write {}", stored.display()))?;
    fs::write(facts_file(), facts()?).context("cannot write what the profile was taken with")?;
    println!("profile: {} holds what {} processes have counted", stored.display(), counted.len());
    Ok(())
}

/// `cargo build` of what packages carry on this machine, with the profile where there is one.
pub fn build() -> Result<Command> {
    Ok(with_flags(&flags(None)?))
}

/// The same with these flags of the compiler beside those that are given.
fn with_flags(flags: &[String]) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--profile", "dist", "--locked"]);
    if !flags.is_empty() {
        let given = std::env::var("CARGO_ENCODED_RUSTFLAGS").map(|given| given.replace('\x1f', " "));
        let given = given.or_else(|_| std::env::var("RUSTFLAGS")).unwrap_or_default();
        let given = given.split_whitespace().map(str::to_owned);
        let all: Vec<String> = given.chain(flags.iter().cloned()).collect();
        cargo.env("CARGO_ENCODED_RUSTFLAGS", all.join("\x1f"));
    }
    cargo
}

/// Flags of the compiler; none where the profile is not for such a build, which is said. `target` is what `--target` names.
pub fn flags(target: Option<&str>) -> Result<Vec<String>> {
    let why_not = match (fs::read(stored()), fs::read_to_string(facts_file())) {
        (Ok(profile), Ok(facts)) => match target {
            None if facts == self::facts()? => return used(&profile),
            None => "the profile was taken with another compiler or version".to_owned(),
            Some(target) => format!("the profile is not for --target {target}"),
        },
        _ => "there is none".to_owned(),
    };
    println!("built without a profile: {why_not}; `cargo xtask bench profile` takes one");
    Ok(Vec::new())
}

/// Has the compiler use it. Its name is made of its content, so that cargo builds anew what another one would change.
fn used(profile: &[u8]) -> Result<Vec<String>> {
    fs::create_dir_all(folder()).with_context(|| format!("cannot make {}", folder().display()))?;
    let used = folder().join(format!("{}.profdata", name_of(profile)));
    if !used.is_file() {
        let written = used.with_extension("new");
        fs::write(&written, profile).with_context(|| format!("cannot write {}", written.display()))?;
        fs::rename(&written, &used).with_context(|| format!("cannot write {}", used.display()))?;
    }
    Ok(vec![
        format!("-Cprofile-use={}", used.display()),
        // What has changed since is no mistake, and that there are no values is known.
        "-Cllvm-args=-no-pgo-warn-mismatch".to_owned(),
        "-Cllvm-args=-disable-vp".to_owned(),
    ])
}

fn name_of(profile: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(profile);
    format!("{:016x}", hasher.finish())
}

/// What the builds of this machine go by, for a line of a baseline; `none` without one.
pub fn present() -> Result<String> {
    let is_used = !flags(None)?.is_empty();
    Ok(if is_used { name_of(&fs::read(stored())?) } else { "none".to_owned() })
}

fn folder() -> PathBuf {
    workspace::target_directory().join("profile")
}

fn stored() -> PathBuf {
    workspace::root().join("xtask/baseline/dist.profdata")
}

fn facts_file() -> PathBuf {
    stored().with_extension("txt")
}

/// What names of functions depend on: the compiler, and the version of the workspace, which is that of this program.
fn facts() -> Result<String> {
    Ok(format!("{}tidegate: {}\n", workspace::compiler_facts()?, env!("CARGO_PKG_VERSION")))
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
