//! `tidegate check`: everything that is wrong with a settings file, in one run.

use super::{complain, counted, default_config, has_color, print};
use crate::certificates;
use crate::master::users::{self, Assigned};
use crate::server::privileges;
use anyhow::{Context, Result};
use clap::Args;
use rustix::fs::{Access, AtFlags, CWD};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_config::settings::AcmeChallenge;
use tidegate_config::settings::gateway::BackendTrust;
use tidegate_config::{Diagnostic, Loaded, ProcessEnvironment, effective, load_file};
use tidegate_core::tls::{automatic_names, backends, read_roots};
use tidegate_io::clock::wall_seconds;
use tidegate_tls::acme::local::is_local;
use tidegate_tls::{Certificate, ClientAuthorities, Pair};

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
    look_at_certificates(&mut loaded);
    look_at_wildcards(&mut loaded);
    let assigned = look_at_users(&mut loaded);
    look_at_spill(&mut loaded);
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
        let found = format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"));
        let summary = format!("{}: {}{found}\n", path.display(), what_is_there(&loaded));
        for assigned in assigned {
            print(&format!("{assigned}\n"))?;
        }
        if errors > 0 { complain(&summary) } else { print(&summary).map(drop)? }
    }
    Ok(if errors > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whom pools and hooks run as. A server that may open ports and choose users is started as root, by whomever the file is
/// checked.
fn look_at_users(loaded: &mut Loaded) -> Vec<Assigned> {
    let Some(settings) = &loaded.settings else { return Vec::new() };
    let unknown = users::unknown(settings);
    loaded.diagnostics.extend(users::exposed(settings).into_iter().map(Diagnostic::warning));
    if !unknown.is_empty() {
        loaded.diagnostics.extend(unknown.into_iter().map(Diagnostic::error));
        return Vec::new();
    }
    match users::assign(&mut settings.clone(), true) {
        Ok(assigned) => assigned,
        Err(error) => {
            loaded.diagnostics.push(Diagnostic::error(format!("{error:#}")));
            Vec::new()
        }
    }
}

/// A certificate for every name below one is only given by way of the DNS.
fn look_at_wildcards(loaded: &mut Loaded) {
    let Some(settings) = &loaded.settings else { return };
    if settings.acme.challenges.contains(&AcmeChallenge::Dns01) {
        return;
    }
    for name in automatic_names(settings).iter().filter(|name| name.starts_with("*.") && !is_local(name)) {
        let site =
            settings.sites.iter().find(|site| site.names.iter().any(|known| known.to_string() == *name));
        let origin = site.map(|site| site.origin.to_string()).unwrap_or_default();
        let message = format!(
            "{origin}: nobody issues a certificate for `{name}` without the challenge `dns-01`, and TLS clients of its \
             names cannot connect"
        );
        let help = "write `acme { challenge \"dns-01\"; dns-update … }`, or name a certificate in the site";
        loaded.diagnostics.push(Diagnostic::error(message).help(help));
    }
}

/// Whether content of requests can be kept where the settings say, by whom the server processes will be.
fn look_at_spill(loaded: &mut Loaded) {
    let Some(settings) = &loaded.settings else { return };
    let Some(folder) = privileges::spill(settings) else { return };
    let wrong = match users::identity(settings.user.as_ref()) {
        Ok((Some(identity), _)) => users::may_write(&folder, &identity),
        Ok((None, _)) => {
            rustix::fs::accessat(CWD, &folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
                .map_err(|error| error.to_string())
        }
        Err(_) => Ok(()), // has been said
    };
    if let Err(why) = wrong {
        let message = format!("content of requests cannot be kept in the folder {}: {why}", folder.display());
        let help = "let the server's user write there, or name another folder with `spill`";
        loaded.diagnostics.push(Diagnostic::error(message).help(help));
    }
}

/// What the files of TLS hold; the loader knows only their names.
fn look_at_certificates(loaded: &mut Loaded) {
    let Some(settings) = &loaded.settings else { return };
    for (files, looked) in certificates::look_over(settings, wall_seconds()) {
        let origin = &files.origin;
        match looked {
            Err(error) => loaded.diagnostics.push(Diagnostic::error(format!("{origin}: {error}"))),
            Ok(findings) => {
                for finding in findings {
                    let message = format!(
                        "{origin}: the certificate {}: {}",
                        files.certificate.display(),
                        finding.said
                    );
                    loaded.diagnostics.push(Diagnostic::warning(message));
                }
            }
        }
    }
    for clients in settings.sites.iter().filter_map(|site| site.tls.clients.as_ref()) {
        if let Err(error) = ClientAuthorities::read(&clients.authorities) {
            loaded.diagnostics.push(Diagnostic::error(format!("{}: {error}", clients.origin)));
        }
    }
    for backend in backends(settings) {
        if let Err(error) = read_roots(backend) {
            loaded.diagnostics.push(Diagnostic::error(error.to_string()));
        }
        if let Some(files) = &backend.identity
            && let Err(error) =
                Pair::read(&files.certificate, &files.key).and_then(|pair| Certificate::new(&pair))
        {
            loaded.diagnostics.push(Diagnostic::error(format!("{}: {error}", files.origin)));
        }
        if backend.trust == BackendTrust::Anybody {
            let message = format!(
                "{}: `verify=none` believes every server: whoever can stand between may read and change everything",
                backend.origin
            );
            let help = "name who has signed its certificate: `tls roots=\"ca.pem\"`";
            loaded.diagnostics.push(Diagnostic::warning(message).help(help));
        }
    }
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
