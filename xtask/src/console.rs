//! `cargo xtask console`: builds the console out of `console/`, for the program to take it in.
//!
//! Called by `make run`, `install` and `packages`, where a machine without Node.js gets a program without a console, and says so;
//! and by `make test`, which wants it checked and tested. The result lies in `console/dist`, where the build of
//! `tidegate-modules` looks for it. Nothing is done twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Check the types and run the tests as well; an error where Node.js is missing
    #[arg(long)]
    test: bool,
}

/// What the console is built of, beside what npm installs.
const SOURCES: [&str; 6] =
    ["src", "index.html", "vite.config.js", "tsconfig.json", "package.json", "package-lock.json"];

/// Builds it, and tests it if asked to.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.test {
        install()?;
        npm(&["run", "--silent", "check"])?;
        npm(&["run", "--silent", "test"])?;
        return build();
    }
    offer();
    Ok(())
}

/// Builds it where that can be done; the program is one without it otherwise.
pub fn offer() {
    if let Err(error) = install().and_then(|()| build()) {
        let outcome = match folder().join("dist/index.html.gz").is_file() {
            true => "the program takes in what was built before",
            false => "the program is one without it",
        };
        eprintln!("console: not built, so {outcome}: {error:#}");
    }
}

fn folder() -> PathBuf {
    workspace::root().join("console")
}

fn npm(words: &[&str]) -> Result<()> {
    workspace::run(Command::new("npm").args(words).current_dir(folder()).stdin(Stdio::null()))
}

/// Installs what the lock file names, unless it is there.
fn install() -> Result<()> {
    for program in ["node", "npm"] {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing: apt-get install nodejs npm");
        }
    }
    let (lock, installed) =
        (folder().join("package-lock.json"), folder().join("node_modules/.package-lock.json"));
    if changed(&installed).is_some_and(|installed| changed(&lock).is_some_and(|lock| lock <= installed)) {
        return Ok(());
    }
    // Not `npm ci`, which refuses a lock file without the packages of platforms that a registry does not have.
    npm(&["install", "--no-save", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"])
}

fn build() -> Result<()> {
    let dist = folder().join("dist");
    let newest = SOURCES.iter().filter_map(|name| newest(&folder().join(name))).max();
    if changed(&dist.join("index.html.gz")).is_some_and(|built| newest.is_some_and(|newest| newest <= built))
    {
        return Ok(());
    }
    for entry in fs::read_dir(&dist).with_context(|| format!("cannot look into {}", dist.display()))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != ".gitignore") {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    npm(&["run", "--silent", "build", "--", "--logLevel", "warn"])
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// When a file, or the one below a folder that was changed last, was changed.
fn newest(path: &Path) -> Option<SystemTime> {
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    below.filter_map(|entry| newest(&entry.path())).chain(changed(path)).max()
}
