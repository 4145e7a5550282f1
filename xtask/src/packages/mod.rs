//! `cargo xtask packages`, `cargo xtask install` and `cargo xtask package-test`: what people install.
//!
//! One tree of files (`tree`) is what `install` copies, what the `.deb` holds (`deb`) and what the image begins with (`image`).
//! Everything is made of the sources and the program alone: two runs on one commit give the same bytes.

pub mod aarch64;
mod architecture;
mod archive;
mod deb;
mod image;
mod notices;
mod program;
mod test;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace;
use architecture::{Architecture, Library};

/// What `packages` makes.
#[derive(clap::Args)]
pub struct Arguments {
    /// The kind of processor; another than this machine's takes a compiler for it, and qemu
    #[arg(long, value_enum)]
    architecture: Option<Architecture>,

    /// Pack this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// Put this static program into the image instead of building one
    #[arg(long, value_name = "FILE")]
    image_program: Option<PathBuf>,

    /// The version of the packages; without it that of the workspace
    #[arg(long)]
    version: Option<String>,

    /// Whom people write to about the package; whoever gives packages to others names themselves
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = UNNAMED)]
    maintainer: String,

    /// Leave the bill of materials and the licences of others out, which take minutes
    #[arg(long)]
    without_notices: bool,

    /// Where they go
    #[arg(long, value_name = "FOLDER", default_value = "target/packages")]
    output: PathBuf,
}

/// An address that reaches nobody (RFC 2606), and says that none was named.
const UNNAMED: &str = "Unnamed packager of Tidegate <nobody@localhost.invalid>";

/// What `install` does.
#[derive(clap::Args)]
pub struct InstallArguments {
    /// Install this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// The root that paths count from
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    destdir: PathBuf,

    /// What program, manual and documents lie below
    #[arg(long, value_name = "FOLDER", default_value = "/usr/local")]
    prefix: String,
}

/// Makes all packages.
pub fn run(arguments: &Arguments) -> Result<()> {
    let output = workspace::root().join(&arguments.output);
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let version = match &arguments.version {
        Some(version) => version.clone(),
        None => workspace_version()?,
    };
    let architecture = arguments.architecture.map_or_else(Architecture::here, Ok)?;
    let builds = arguments.program.is_none();
    let builds_static = builds && arguments.image_program.is_none();
    // Said before a build of minutes, and not behind it.
    if builds {
        architecture.prepared(Library::Gnu)?;
    }
    if builds_static {
        architecture.prepared(Library::Musl)?;
    }
    if arguments.maintainer == UNNAMED {
        println!(
            "packages: no maintainer is named, and the package says so: --maintainer \"NAME <ADDRESS>\""
        );
    }
    let notices = if arguments.without_notices { Vec::new() } else { notices::make(&output)? };
    let book = if builds && notices::has("mdbook") { Some(crate::book::make()?) } else { None };
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => program::build(&output, architecture, Library::Gnu, book.as_deref())?,
    };
    let package = deb::make(&output, architecture, &program, &version, &arguments.maintainer, &notices)?;
    println!("{}", package.display());
    let (program, is_static) = match &arguments.image_program {
        Some(program) => (program.clone(), true),
        None if builds_static => {
            (program::build(&output, architecture, Library::Musl, book.as_deref())?, true)
        }
        // What was given is packed as it is, with the libraries that it wants.
        None => (program, false),
    };
    if is_static {
        println!("{}", archive::make(&output, architecture, &program, &version, &notices)?.display());
    }
    let image = image::make(&output, architecture, &program, &version, is_static)?;
    println!("{}", image.display());
    Ok(())
}

/// Copies the files of a package to where they belong.
pub fn install(arguments: &InstallArguments) -> Result<()> {
    let output = workspace::target_directory().join("packages");
    fs::create_dir_all(&output)?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => program::build(&output, Architecture::here()?, Library::Gnu, None)?,
    };
    let places = tree::Places::below(&arguments.prefix);
    let tree = tree::Tree::new(&arguments.destdir);
    tree.fill(&places, Architecture::here()?, &program, &[])?;
    println!(
        "installed below {}",
        arguments.destdir.join(arguments.prefix.trim_start_matches('/')).display()
    );
    if arguments.destdir == Path::new("/") {
        println!("now: systemd-sysusers && systemctl daemon-reload && systemctl enable --now tidegate");
    }
    Ok(())
}

/// Tests what was made, or makes it of a program first.
pub fn test(arguments: &test::Arguments) -> Result<()> {
    test::run(arguments)
}

pub use test::Arguments as TestArguments;

fn workspace_version() -> Result<String> {
    let metadata =
        workspace::output(workspace::cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let ours = packages.iter().find(|package| package["name"] == "tidegate");
    let version = ours.and_then(|package| package["version"].as_str());
    Ok(version.context("cargo metadata does not know tidegate")?.to_owned())
}

/// When the commit was made, in seconds: every file of a package is as old as that.
fn commit_time() -> Result<u64> {
    let told = workspace::output(std::process::Command::new("git").current_dir(workspace::root()).args([
        "log",
        "-1",
        "--format=%ct",
    ]))?;
    told.trim().parse().context("git names no time of the commit")
}
