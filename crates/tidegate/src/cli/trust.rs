//! `tidegate trust`: makes this system trust the server's own authority.

use super::print;
use crate::master::default_storage;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tidegate_config::{ProcessEnvironment, load_file};
use tidegate_io::clock::wall_seconds;
use tidegate_tls::acme::{LocalAuthority, Storage};

/// Where systems look for authorities that were added, and the command that takes them up.
const PLACES: [(&str, &str, &[&str]); 3] = [
    ("/usr/local/share/ca-certificates", "update-ca-certificates", &[]),
    ("/etc/pki/ca-trust/source/anchors", "update-ca-trust", &["extract"]),
    ("/etc/ca-certificates/trust-source/anchors", "trust", &["extract-compat"]),
];
const FILE: &str = "tidegate-local-authority.crt";

/// Makes this system trust the server's own authority.
///
/// Sites named `localhost`, or below `localhost`, `internal`, `local` and `home.arpa`, get automatic certificates
/// from an authority of the server's own, made when it is first needed. This command adds its certificate to those
/// that the system trusts. Only whoever can read the folder of automatic certificates can issue in its name.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  sudo tidegate trust                     trusts the authority of a server that root starts
  sudo tidegate trust --config site.kdl   the one in the folder that `acme { storage }` names there
  tidegate trust --print > root.pem       only shows it, for browsers with a store of their own
  sudo tidegate trust --remove            trusts it no more

Exit codes:
  0  done
  1  it could not be done
  2  the arguments are wrong")]
pub struct Arguments {
    /// Settings file, for where automatic certificates are kept
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the certificate of the authority, and change nothing
    #[arg(long, conflicts_with = "remove")]
    print: bool,
    /// Trust it no more
    #[arg(long)]
    remove: bool,
}

/// Trusts.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.remove {
        return remove();
    }
    let configured = match &arguments.config {
        None => None,
        Some(path) => {
            if let Err(error) = fs::metadata(path) {
                bail!("cannot read {}: {error}", path.display());
            }
            let settings = load_file(path, &ProcessEnvironment).settings;
            let settings =
                settings.with_context(|| format!("{} has mistakes; see `tidegate check`", path.display()))?;
            settings.acme.storage
        }
    };
    let folder = configured.unwrap_or_else(default_storage);
    let storage =
        Storage::open(&folder).with_context(|| format!("cannot use the folder {}", folder.display()))?;
    let authority = LocalAuthority::open(&storage, wall_seconds())?;
    if arguments.print {
        print(authority.root())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (place, command, options) = place()?;
    let path = Path::new(place).join(FILE);
    fs::write(&path, authority.root())
        .with_context(|| format!("cannot write {}; run this as root", path.display()))?;
    take_up(command, options)?;
    print(&format!(
        "This system trusts {} now. Firefox has a store of its own: import the file there.\n",
        path.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn remove() -> Result<ExitCode> {
    let (place, command, options) = place()?;
    let path = Path::new(place).join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            print("It was not trusted.\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        outcome => outcome.with_context(|| format!("cannot remove {}; run this as root", path.display()))?,
    }
    take_up(command, options)?;
    print("This system does not trust it any more.\n")?;
    Ok(ExitCode::SUCCESS)
}

fn place() -> Result<(&'static str, &'static str, &'static [&'static str])> {
    match PLACES.iter().find(|(place, _, _)| Path::new(place).is_dir()) {
        Some(found) => Ok(*found),
        None => bail!(
            "this system has none of the folders for authorities that are known here ({}); add the output of \
             `tidegate trust --print` by its own means",
            PLACES.map(|(place, _, _)| place).join(", ")
        ),
    }
}

fn take_up(command: &str, options: &[&str]) -> Result<()> {
    let output =
        Command::new(command).args(options).output().with_context(|| format!("cannot run {command}"))?;
    if !output.status.success() {
        bail!("{command} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
