//! `tidegate man`: the manual pages, made from the help texts.

use super::print;
use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the manual pages.
///
/// One page for the command and one for each subcommand, made from the same texts as --help. Printed one
/// after the other, or written into a folder as tidegate.1, tidegate-serve.1 and so on.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate man | man -l -
  tidegate man --output /usr/local/share/man/man1

Exit codes:
  0  done
  1  they could not be written
  2  the arguments are wrong")]
pub struct Arguments {
    /// Folder to write the pages into
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints or writes.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut all = String::new();
    for (name, page) in pages()? {
        match &arguments.output {
            Some(folder) => {
                let path = folder.join(format!("{name}.1"));
                fs::write(&path, page).with_context(|| match folder.is_dir() {
                    true => format!("cannot write {}", path.display()),
                    false => {
                        let folder = folder.display();
                        format!("cannot write into the folder {folder}: make it, `mkdir -p {folder}`")
                    }
                })?;
            }
            None => all.push_str(&page),
        }
    }
    print(&all)
}

fn pages() -> Result<Vec<(String, String)>> {
    let mut command = super::Arguments::command().disable_help_subcommand(true);
    command.build();
    let subcommands: Vec<Command> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned().collect();
    let mut out = Vec::new();
    for page in std::iter::once(command).chain(subcommands) {
        let name = page.get_display_name().unwrap_or(page.get_name()).to_owned();
        let mut text = Vec::new();
        Man::new(page).render(&mut text)?;
        out.push((name, String::from_utf8(text)?));
    }
    Ok(out)
}
