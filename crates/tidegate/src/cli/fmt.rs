//! `tidegate fmt`: writes settings files the one way.

use super::{complain, default_config, has_color, print};
use crate::master::control::beside;
use anyhow::{Context, Result};
use clap::Args;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_config::{Diagnostic, Source, format_source};

/// Writes a settings file the one way it should look.
///
/// Sets indentation, spaces and blank lines; comments, order and meaning stay. The file is replaced whole, so
/// that nobody ever reads half of it, and not at all where nothing differs or where it cannot be understood.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate fmt                        ./tidegate.kdl, else /etc/tidegate/tidegate.kdl
  tidegate fmt sites/*.kdl
  tidegate fmt --check sites/*.kdl    say which files differ, change none
  tidegate fmt - < draft.kdl          from standard input to standard output

Exit codes:
  0  the files are formatted
  1  with --check, some differ; else some cannot be read, understood or written
  2  the arguments are wrong")]
pub struct Arguments {
    /// Settings files; `-` is standard input [default: tidegate.kdl here, else /etc/tidegate/tidegate.kdl]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Change nothing, only say which files differ
    #[arg(long)]
    check: bool,
}

/// Formats.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let files = if arguments.files.is_empty() { vec![default_config()?] } else { arguments.files.clone() };
    Ok(all(&files, arguments.check, "tidegate fmt"))
}

/// Formats files of any language that is written as the settings are, or says which differ. `command` is what a user writes.
pub(super) fn all(files: &[PathBuf], only_checks: bool, command: &str) -> ExitCode {
    let mut is_good = true;
    for file in files {
        is_good &= one(file, only_checks, command).unwrap_or_else(|error| {
            complain(&format!("tidegate: {error:#}\n"));
            false
        });
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(path: &Path, only_checks: bool, command: &str) -> Result<bool> {
    let is_stream = path == Path::new("-");
    let bytes = if is_stream {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
        bytes
    } else {
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    let source = Source::from_bytes(&path.display().to_string(), &bytes);
    let formatted = match format_source(&source) {
        Ok(formatted) => formatted,
        Err(diagnostics) => {
            complain(
                &diagnostics.iter().map(|found: &Diagnostic| found.render(has_color())).collect::<String>(),
            );
            return Ok(false);
        }
    };
    let differs = formatted.as_bytes() != bytes;
    if only_checks {
        if differs {
            print(&format!("{}: not formatted; run `{command} {0}`\n", path.display()))?;
        }
        return Ok(!differs);
    }
    if is_stream {
        print(&formatted)?;
    } else if differs {
        replace(path, &formatted).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(true)
}

/// Through a file beside it, with the permissions of the old one. A symbolic link keeps pointing where it
/// did.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = fs::canonicalize(path)?;
    let draft = beside(&path);
    let write = || {
        let mut file = fs::File::create_new(&draft)?;
        file.set_permissions(fs::metadata(&path)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&draft)))
}
