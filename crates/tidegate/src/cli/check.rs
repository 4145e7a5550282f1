//! `tidegate check`: everything that is wrong with a settings file, in one run.

use super::{complain, counted, dangers, default_config, has_color, loops, print};
use crate::master::sealing;
use crate::master::users::{self, Assigned};
use crate::preflight;
use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_config::{Diagnostic, Loaded, ProcessEnvironment, effective, load_file};

/// Finds every mistake in a settings file.
///
/// Reads the file and what it includes, and shows each mistake with its file, line and column, what would be
/// right and what stays in force. Looks at the folders and files that are named, never at the network: it is
/// safe to run beside a server.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate check                                    ./tidegate.kdl, else /etc/tidegate/tidegate.kdl
  tidegate check --config site.kdl
  tidegate check --print-effective | jq '.[] | select(.directive == \"site\")'
  tidegate check --config site.kdl && tidegate reload --config site.kdl

Exit codes:
  0  no mistakes; there may be warnings
  1  mistakes, or the file cannot be read
  2  the arguments are wrong")]
pub struct Arguments {
    /// Settings file [default: tidegate.kdl here, else /etc/tidegate/tidegate.kdl]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the findings as JSON, for editors and scripts
    #[arg(long)]
    json: bool,
    /// Print the settings as they are in force, as JSON: files joined, variables filled in, with defaults and what is
    /// inherited, each with the file and line it comes from
    #[arg(long, conflicts_with = "json")]
    print_effective: bool,
}

/// Checks.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = arguments.config.clone().map_or_else(default_config, Ok)?;
    let mut loaded = load_file(&path, &ProcessEnvironment);
    preflight::look(&mut loaded);
    if let Some(settings) = &loaded.settings {
        let reached = sealing::foreseen(settings).into_iter().map(|said| (None, Diagnostic::warning(said)));
        loaded.add(reached.collect());
    }
    loops::look(&mut loaded);
    dangers::look(&mut loaded, &path);
    let (notice, assigned) = assigned(&loaded);
    let errors = loaded.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let warnings = loaded.diagnostics.len() - errors;
    if arguments.print_effective && errors == 0 {
        complain(&loaded.render(has_color()));
        let effective = effective(&path, &ProcessEnvironment);
        print(&effective.with_context(|| format!("{} cannot be read", path.display()))?)?;
    } else if arguments.json {
        print(&as_json(&loaded.diagnostics))?;
    } else {
        complain(&loaded.render(has_color()));
        let mut found = format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"));
        if let Some(notice) = notice {
            print(&format!("notice: {notice}\n"))?;
            found += ", 1 notice";
        }
        let summary = format!("{}: {}{found}\n", path.display(), what_is_there(&loaded));
        for assigned in assigned {
            print(&format!("{assigned}\n"))?;
        }
        if errors > 0 { complain(&summary) } else { print(&summary).map(drop)? }
    }
    // The process ends here, and its memory with it: freeing that of very many sites takes a while.
    std::mem::forget(loaded);
    Ok(if errors > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What there is to say of whom the server runs as, and whom pools and hooks run as, where the server is started by whoever
/// checks, and where by root: most servers are.
fn assigned(loaded: &Loaded) -> (Option<String>, Vec<String>) {
    let Some(settings) = &loaded.settings else { return (None, Vec::new()) };
    let by = |is_root| users::assign(&mut settings.clone(), is_root).unwrap_or_default();
    let own = users::can_be_anybody();
    let server = users::identity(settings.user.as_ref()).ok().and_then(|(_, warning)| warning);
    let mut lines: Vec<String> = by(own).iter().map(Assigned::to_string).collect();
    if !own {
        lines.extend(by(true).iter().map(|assigned| format!("started by root, {assigned}")));
    }
    (server, lines)
}

fn what_is_there(loaded: &Loaded) -> String {
    match &loaded.settings {
        Some(settings) => format!(
            "{}, {}; ",
            counted(settings.listeners.len(), "listener"),
            counted(settings.sites.len(), "site")
        ),
        None => String::new(),
    }
}

fn as_json(diagnostics: &[Diagnostic]) -> String {
    let findings: Vec<_> = diagnostics
        .iter()
        .map(|diagnostic| {
            let place = diagnostic.span.as_ref().map(|(source, range)| {
                let ((line, column), (end_line, end_column)) =
                    (source.position(range.start), source.position(range.end));
                json!({ "file": &*source.name, "line": line, "column": column,
                        "end_line": end_line, "end_column": end_column })
            });
            json!({
                "severity": if diagnostic.is_error() { "error" } else { "warning" },
                "message": diagnostic.message,
                "place": place,
                "help": diagnostic.help,
                "in_force": diagnostic.in_force,
            })
        })
        .collect();
    json!(findings).to_string() + "\n"
}
