//! Names the commit in the version of optimised builds, and has the linker pack the relocations of the program (`DT_RELR`): a megabyte less to carry and to read at each start.
//!
//! The dynamic linker must know them, which that of glibc does since 2.36. Where the C library is another or older, or
//! cannot be asked, they stay as they are.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    match commit() {
        Some(commit) => println!("cargo::rustc-env=TIDEGATE_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=TIDEGATE_VERSION={version}"),
    }
    pages();
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|present| present == value);
    let is_here = std::env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    if is_here && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && knows_packed() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The documents, for `tidegate docs`.
fn pages() {
    let folder = Path::new("../../docs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".md")?.to_owned()))
        .filter(|name| name != "SUMMARY")
        .collect();
    names.sort();
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let row = |name: &String| {
        format!("    ({name:?}, include_str!({:?})),\n", format!("{root}/../../docs/{name}.md"))
    };
    let rows: String = names.iter().map(row).collect();
    let text = format!("pub(super) const PAGES: &[(&str, &str)] = &[\n{rows}];\n");
    let output = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    if let Err(error) = std::fs::write(output.join("pages.rs"), text) {
        println!("cargo::error=the list of documents cannot be written: {error}");
    }
}

/// The commit that is built: what `TIDEGATE_COMMIT` says, where there is no repository, else what git says. A build to
/// develop with names none, so that a commit alone links nothing anew.
fn commit() -> Option<String> {
    if let Ok(commit) = std::env::var("TIDEGATE_COMMIT") {
        return Some(commit).filter(|commit| !commit.is_empty());
    }
    std::env::var("PROFILE").is_ok_and(|profile| profile == "release").then_some(())?;
    let git = |arguments: &[&str]| {
        let told = Command::new("git").args(arguments).output().ok().filter(|told| told.status.success())?;
        Some(String::from_utf8_lossy(&told.stdout).trim().to_owned())
    };
    // Its sources are those of a repository of its own, and not of one that they were unpacked into.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = PathBuf::from(git(&["rev-parse", "--git-path", file])?);
        let path = if path.is_absolute() { path } else { Path::new(".").join(path) };
        println!("cargo::rerun-if-changed={}", path.display());
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// `glibc 2.36` and later.
fn knows_packed() -> bool {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default();
    let version = told.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    version.is_some_and(|(major, minor)| {
        matches!((major.parse::<u32>(), minor.parse::<u32>()), (Ok(major), Ok(minor)) if (major, minor) >= (2, 36))
    })
}
