//! The program that packages carry: all crates optimised as one, without a path of the machine that built it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::architecture::{Architecture, Library};
use super::commit_time;
use crate::bench::profile;
use crate::workspace;

/// Builds the program for a kind of processor, with the console and the site of the documents in it where there are; strips it and
/// puts its debug lines beside it.
pub fn build(
    output: &Path,
    architecture: Architecture,
    library: Library,
    book: Option<&Path>,
) -> Result<PathBuf> {
    architecture.prepared(library)?;
    crate::console::offer();
    let folder = output.join("build");
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--profile", "dist", "--locked", "--package", "tidegate"]);
    // Without a name it is a build for this machine, whose results lie elsewhere.
    let target = architecture.target(library);
    let target = (library == Library::Musl || !architecture.is_here()).then_some(target);
    cargo.args(target.iter().flat_map(|target| ["--target", target]));
    // Paths in the program are those of no machine, so that the same commit gives the same bytes wherever it is built.
    let root = workspace::root().display().to_string();
    let home = std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()));
    let from_to = [(root.as_str(), "/tidegate"), (home.as_str(), "/cargo")];
    let flags = |name: &str| from_to.map(|(from, to)| format!("{name}={from}={to}")).join(" ");
    let of_profile = profile::flags(target.as_deref())?;
    cargo
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", format!("{} {}", flags("--remap-path-prefix"), of_profile.join(" ")).trim())
        .env("CFLAGS", flags("-ffile-prefix-map"))
        .env("SOURCE_DATE_EPOCH", commit_time()?.to_string());
    cargo.env("TIDEGATE_BOOK", book.unwrap_or(Path::new("")));
    if let Some(target) = &target {
        let name = target.replace('-', "_");
        cargo.env(format!("CC_{name}"), architecture.compiler(library));
        if !architecture.is_here() {
            let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
            cargo.env(linker, architecture.compiler(Library::Gnu));
        }
    }
    workspace::run(&mut cargo)?;
    let built = match target {
        Some(target) => folder.join(target).join("dist"),
        None => folder.join("dist"),
    };
    let stripped = built.join("package");
    std::fs::create_dir_all(&stripped)?;
    crate::package::split(&architecture.tool("objcopy"), &built.join("tidegate"), &stripped)?;
    Ok(stripped.join("tidegate"))
}
