//! `tidegate serve`: from arguments to a running server.

use super::{complain, has_color, wrong};
use crate::descriptors;
use crate::master::upgrade::Handover;
use crate::master::{Master, Read};
use crate::revision::{Reading, ServeOptions, SettingsFrom};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_config::Diagnostic;
use tidegate_config::settings::LogTarget;
use tidegate_core::tls::key_of;
use tidegate_io::socket::keep_inherited_to_oneself;

/// Serves a folder, or what a settings file says.
///
/// With a folder, everything in it is served on http://127.0.0.1:8080 with listings; without any argument
/// that is the current folder. With --config a settings file says what is served where; a site with a mistake
/// is left out and said, the other sites are served. When the server is ready it prints a line for each
/// address to standard error.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate serve                                       this folder, for this machine only
  tidegate serve /srv/www --listen 0.0.0.0:8080        a folder, for everyone
  tidegate serve . --listen unix:/run/web.sock --access-log stderr
  tidegate serve --config /etc/tidegate/tidegate.kdl   sites, routes, limits, logs

Exit codes:
  0  the server was told to end, and has
  1  the settings are wrong, or an address, a log or the control socket is not to be had
  2  the arguments are wrong")]
pub struct Arguments {
    /// Folder to serve [default: the current one]
    #[arg(value_name = "DIR", conflicts_with = "config")]
    folder: Option<PathBuf>,
    /// Address to listen on; may be given several times [default: 127.0.0.1:8080]
    ///
    /// `127.0.0.1:8080`, `[::1]:8080`, `:8080` or `8080` for every address of this machine, `unix:/path`. Port 0
    /// takes a free one.
    #[arg(long, value_name = "ADDR", conflicts_with = "config")]
    listen: Vec<String>,
    /// Show what the server does on a page at /.console/, to clients of this machine
    ///
    /// Only where an address of this machine alone is listened on. With --config a route of the settings does it:
    /// `route "/.console/*" { console }`.
    #[arg(long, conflicts_with = "config")]
    console: bool,
    /// Settings file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Control socket, for `tidegate status` and the like
    ///
    /// Without it: what `control` in the settings says, else tidegate.sock beside the pid file, else in
    /// $XDG_RUNTIME_DIR or /run (for root), else tidegate-UID.sock in the folder for temporary files.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// User of server processes and applications where the settings name none; for a server that is started as root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Worker threads [default: what the settings say, else one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Where access lines go: a path, `stderr`, `stdout` or `off` [default: what the settings say, else off]
    #[arg(long, value_name = "PATH", value_parser = log_target)]
    access_log: Option<AccessLog>,
}

#[derive(Debug, Clone)]
struct AccessLog(Option<LogTarget>);

fn log_target(text: &str) -> Result<AccessLog, String> {
    Ok(AccessLog(match text {
        "off" => None,
        "stderr" => Some(LogTarget::Stderr),
        "stdout" => Some(LogTarget::Stdout),
        "" => return Err("a path, `stderr`, `stdout` or `off` is needed".into()),
        path => Some(LogTarget::File(std::path::absolute(path).map_err(|error| error.to_string())?)),
    }))
}

/// Serves until told to end.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    // A client that closes while it is written to is an error of that call, not the end of the process:
    // the run-time has had SIGPIPE ignored since before `main`.
    keep_inherited_to_oneself();
    let mut handover = Handover::take()?;
    let has_console = arguments.console;
    match start(arguments, handover.as_ref()) {
        Ok((mut master, notes)) => {
            for address in master.listening() {
                complain(&format!("listening on {address}\n"));
                if has_console && is_of_this_machine(&address) {
                    complain(&format!("console: {address}/.console/\n"));
                }
            }
            match handover.take().is_none_or(|handover| master.take_over(handover, &notes)) {
                true => master.run(),
                false => master.abandon(),
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            if let Some(handover) = handover {
                handover.failed(&format!("{error:#}"));
            }
            Err(error)
        }
    }
}

/// Whether a URL that is listened on is one that this machine alone can reach.
fn is_of_this_machine(url: &str) -> bool {
    let address = url.split_once("://").and_then(|(_, address)| address.parse::<SocketAddr>().ok());
    address.is_some_and(|address| address.ip().is_loopback())
}

/// Starts the master; what whoever asked for an upgrade should know comes with it.
fn start(arguments: Arguments, handover: Option<&Handover>) -> Result<(Master, String)> {
    let options = options(arguments)?;
    let Reading { mut loaded, pairs, seen, access } = options.load();
    let written = std::mem::take(&mut loaded.written);
    loaded.answer_for_rejected(|files| pairs.contains_key(&key_of(files)));
    if handover.is_some() {
        loaded.is_refused_by_a_server();
    }
    let said = loaded.render(handover.is_none() && has_color());
    let Some(settings) = loaded.settings else {
        complain(&said);
        // What is said of a word of the command line points at it.
        let is_of_arguments = options.is_folder()
            && loaded.diagnostics.iter().any(|found| found.is_error() && found.span.is_some());
        return Err(match handover {
            // The predecessor tells whoever asked for the upgrade, and needs the reasons.
            Some(_) => anyhow!("the settings cannot be served:\n{said}"),
            None => {
                let sentence = format!("nothing can be served: {}", counted_errors(&loaded.diagnostics));
                if is_of_arguments { wrong(sentence) } else { anyhow!(sentence) }
            }
        });
    };
    complain(&said);
    let warnings = loaded.diagnostics.iter().filter(|found| !found.is_error()).cloned().collect();
    for site in &loaded.rejected {
        let names = if site.names.is_empty() { "without a name".to_owned() } else { site.names.join(" ") };
        complain(&format!("tidegate: site {names} ({}) is not served\n", site.origin));
    }
    // The predecessor serves on when its successor would serve less.
    let lost = handover.map(|handover| handover.lost(&settings)).unwrap_or_default().join(", and no longer ");
    if !lost.is_empty() && !handover.is_some_and(|handover| handover.allows_loss) {
        let why = "put that right, or run `tidegate upgrade --allow-loss`";
        bail!("the settings no longer {lost}; {why}{}", goes_on(loaded.diagnostics));
    }
    let notes = if lost.is_empty() { String::new() } else { format!("the settings no longer {lost}\n") };
    let needed = descriptors::needed_by_the_master(&settings);
    let read = Read { pairs, seen, access, warnings, written };
    let started = Master::start(options, settings, read, handover);
    Ok((started.map_err(|error| descriptors::explain(error, "start", needed))?, notes))
}

/// The mistakes where the predecessor goes on as it was: nothing of it is left out, and nothing served without it. Warnings are no
/// reason of it.
fn goes_on(found: Vec<Diagnostic>) -> String {
    let mistakes = found.into_iter().filter(Diagnostic::is_error).map(|mut mistake| {
        if mistake.in_force.is_some() {
            mistake.in_force =
                Some("nothing has changed: the running server goes on with what it has".into());
        }
        format!("\n{}", mistake.render(false).trim_end())
    });
    mistakes.collect()
}

fn counted_errors(diagnostics: &[Diagnostic]) -> String {
    super::counted(diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count(), "error")
}

fn options(arguments: Arguments) -> Result<ServeOptions> {
    let settings = match arguments.config {
        Some(path) => SettingsFrom::File(path),
        None => SettingsFrom::Folder {
            folder: arguments.folder.unwrap_or_else(|| ".".into()),
            listen: arguments.listen,
            console: arguments.console,
        },
    };
    let mut words = std::env::args_os();
    let program = PathBuf::from(words.next().unwrap_or_default());
    // As it was named, so that a link that is moved to a new version is followed by an upgrade.
    let executable = match program.components().count() {
        0 | 1 => std::env::current_exe()?,
        _ => std::path::absolute(program)?,
    };
    Ok(ServeOptions {
        settings,
        workers: arguments.workers,
        access_log: arguments.access_log.map(|log| log.0),
        control: arguments.control,
        user: arguments.user,
        executable,
        arguments: words.collect(),
    })
}
