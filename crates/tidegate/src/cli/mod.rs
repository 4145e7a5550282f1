//! The command line: one file for each subcommand, and what they share.
//!
//! Help texts teach: a paragraph and examples each. The manual pages and completions derive from them.

mod ask;
mod bench;
mod cache;
mod cancel;
mod cgi_stub;
mod check;
mod check_texts;
mod completions;
mod control_client;
mod control_socket;
mod dangers;
mod docs;
pub mod explain;
mod fmt;
mod keep;
mod launch;
mod loops;
mod man;
mod select;
mod serve;
mod sign_url;
mod spawn;
mod tail;
mod top;
mod trust;
mod units;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use rustix::process::{Resource, getrlimit};
use std::error::Error as _;
use std::io::{IsTerminal, Write};
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_modules::gateway::supervise::guard;

/// What ends every help text that matters to scripts.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the settings are wrong, or what was asked for could not be done
  2  the arguments are wrong";

/// A web server that holds under the flood, and explains what it does.
///
/// `tidegate serve` is the server. The other commands help to write its settings (check, fmt, explain) and
/// to run it (status, reload, stop, upgrade): those speak to a running server over its control socket.
#[derive(Parser)]
#[command(name = "tidegate", version = crate::version::VERSION, max_term_width = 100, after_help = EXIT_CODES, after_long_help = format!("\
Examples:
  tidegate serve                       serve this folder on http://127.0.0.1:8080
  tidegate check --config site.kdl     find every mistake in a settings file
  tidegate serve --config site.kdl     serve what it says
  tidegate reload --config site.kdl    take up what has changed in it

{EXIT_CODES}

Signals to a server: TERM ends it when requests in flight are done, INT ends it at once, HUP is `reload`, USR2 \
is `upgrade`, USR1 opens the logs anew after they were rotated."))]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Check(check::Arguments),
    Fmt(fmt::Arguments),
    Explain(explain::Arguments),
    Status(control_client::StatusArguments),
    Top(top::Arguments),
    Tail(tail::Arguments),
    Cancel(cancel::Arguments),
    Reload(control_client::ReloadArguments),
    Bans(control_client::BansArguments),
    Cache(cache::Arguments),
    Stop(control_client::StopArguments),
    Upgrade(control_client::UpgradeArguments),
    Upstream(control_client::UpstreamArguments),
    Pool(control_client::PoolArguments),
    Logs(control_client::LogsArguments),
    LogLevel(control_client::LogLevelArguments),
    Docs(docs::Arguments),
    Trust(trust::Arguments),
    SignUrl(sign_url::Arguments),
    Spawn(spawn::Arguments),
    Bench(Box<bench::Arguments>),
    Completions(completions::Arguments),
    Man(man::Arguments),
    /// Starts CGI scripts.
    #[command(hide = true)]
    CgiStub(cgi_stub::Arguments),
    /// Becomes an application of a pool.
    #[command(hide = true)]
    Launch(launch::Arguments),
    /// Starts an application of a pool and ends all that it has started.
    #[command(hide = true)]
    Keep(keep::Arguments),
    #[command(hide = true)]
    Ask(ask::Arguments),
    /// Ends what a killed server has left behind.
    #[command(skip)]
    Guard,
    /// A server process; `serve` starts it.
    #[command(skip)]
    Server,
    /// The process of the admin API; `serve` starts it.
    #[command(skip)]
    Admin,
    /// Checks texts for the admin API.
    #[command(skip)]
    CheckTexts,
    /// Prints the reference of all settings, as Markdown.
    #[command(hide = true)]
    Reference,
    /// Prints the JSON schema of the settings.
    #[command(hide = true)]
    Schema,
}

impl Command {
    /// What the program starts of itself and gives no arguments.
    fn of_own() -> Option<Command> {
        let mut arguments = std::env::args_os().skip(1);
        let command = match arguments.next()?.to_str()? {
            "server" => Command::Server,
            "admin" => Command::Admin,
            "check-texts" => Command::CheckTexts,
            "guard" => Command::Guard,
            _ => return None,
        };
        arguments.next().is_none().then_some(command)
    }
}

/// Reads the arguments on a stack of its own, which is given back: all commands and what they take are 400 KB of it, which
/// this thread would hold as long as the process lives.
fn read() -> Command {
    // Where the address space is bounded another heap would take 64 MiB of it, and there may be no thread left.
    let is_bounded = getrlimit(Resource::As).current.is_some();
    let read = std::thread::scope(|scope| {
        let thread = (!is_bounded).then(|| std::thread::Builder::new().spawn_scoped(scope, arguments).ok());
        thread.flatten().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    read.unwrap_or_else(arguments).command
}

/// The arguments. What is wrong with them ends the process; commands that nobody is told of are none to suggest.
fn arguments() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|mut error| {
        if let Some(ContextValue::Strings(near)) = error.get(ContextKind::SuggestedSubcommand) {
            let command = Arguments::command();
            let is_told =
                |name: &String| command.find_subcommand(name).is_none_or(|command| !command.is_hide_set());
            let told: Vec<String> = near.iter().filter(|name| is_told(name)).cloned().collect();
            match told.is_empty() {
                true => drop(error.remove(ContextKind::SuggestedSubcommand)),
                false => drop(error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(told))),
            }
        }
        // Most commands are told the settings by an option.
        if error.kind() == ErrorKind::UnknownArgument
            && let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg)
            && unknown.ends_with(".kdl")
        {
            let advice = format!("settings are named by an option: `--config {unknown}`");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
        }
        let advice =
            error.source().and_then(advice_on).filter(|_| error.kind() == ErrorKind::ValueValidation);
        if let Some(advice) = advice {
            // In place of what the parser says, which is no advice.
            let mut told = clap::Error::new(error.kind()).with_cmd(&Arguments::command());
            for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
                if let Some(value) = error.remove(kind) {
                    told.insert(kind, value);
                }
            }
            told.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
            error = told;
        }
        error.exit()
    })
}

/// What to write where a parser of the standard library has refused a value.
fn advice_on(why: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if let Some(number) = why.downcast_ref::<ParseIntError>() {
        return Some(match number.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
                "the number is too large; write a smaller one"
            }
            _ => "write a whole number, such as 4",
        });
    }
    why.downcast_ref::<ParseFloatError>().map(|_| "write a number, such as 4 or 0.5").or_else(|| {
        let address = why.downcast_ref::<AddrParseError>()?;
        Some(match address.to_string().contains("socket") {
            true => "write an address and a port, such as 127.0.0.1:8080 or [::1]:8080",
            false => "write an address, such as 192.0.2.7 or 2001:db8::7",
        })
    })
}

/// Reads the arguments and does what they say.
pub fn run() -> ExitCode {
    let outcome = match Command::of_own().unwrap_or_else(read) {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Server => crate::server::run(),
        Command::Admin => crate::admin::run(),
        Command::CheckTexts => check_texts::run(),
        Command::Guard => guard::run()
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| anyhow::anyhow!("cannot hear the server: {error}")),
        Command::Check(arguments) => check::run(&arguments),
        Command::Fmt(arguments) => fmt::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Status(arguments) => control_client::status(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Tail(arguments) => tail::run(&arguments),
        Command::Cancel(arguments) => cancel::run(&arguments),
        Command::Reload(arguments) => control_client::reload(&arguments),
        Command::Bans(arguments) => control_client::bans(&arguments),
        Command::Cache(arguments) => cache::run(&arguments),
        Command::Stop(arguments) => control_client::stop(&arguments),
        Command::Upgrade(arguments) => control_client::upgrade(&arguments),
        Command::Upstream(arguments) => control_client::upstream(&arguments),
        Command::Pool(arguments) => control_client::pool(&arguments),
        Command::Logs(arguments) => control_client::logs(&arguments),
        Command::LogLevel(arguments) => control_client::log_level(&arguments),
        Command::Docs(arguments) => docs::run(&arguments),
        Command::Trust(arguments) => trust::run(&arguments),
        Command::SignUrl(arguments) => sign_url::run(&arguments),
        Command::Spawn(arguments) => spawn::run(&arguments),
        Command::CgiStub(arguments) => cgi_stub::run(&arguments),
        Command::Keep(arguments) => Ok(keep::run(&arguments)),
        Command::Ask(arguments) => Ok(ask::run(&arguments)),
        Command::Launch(arguments) => launch::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Reference => print(&tidegate_config::reference()),
        Command::Schema => print(&tidegate_config::json_schema()),
    };
    outcome.unwrap_or_else(|error| {
        complain(&format!("tidegate: {error:#}\n"));
        if error.is::<WrongArguments>() { WrongArguments::EXIT_CODE.into() } else { ExitCode::FAILURE }
    })
}

/// Arguments that each may be right and together make no sense, or that only the command itself can judge.
#[derive(Debug)]
struct WrongArguments(String);

impl WrongArguments {
    const EXIT_CODE: u8 = 2;
}

impl std::fmt::Display for WrongArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongArguments {}

/// The error of arguments that make no sense.
fn wrong(sentence: impl Into<String>) -> anyhow::Error {
    WrongArguments(sentence.into()).into()
}

/// Writes to standard output; a reader that has gone away is no mistake.
fn print(text: &str) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::from(error).context("cannot write to standard output"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes to standard error.
fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Whether diagnostics are coloured: at a terminal, unless `NO_COLOR` is set (no-color.org).
fn has_color() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The settings file that is meant when none is named.
fn default_config() -> Result<PathBuf> {
    let places = ["tidegate.kdl", "/etc/tidegate/tidegate.kdl"];
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| {
        anyhow::anyhow!(
            "neither ./{} nor {} exists; name the settings file with --config",
            places[0],
            places[1]
        )
    })
}

/// `1 error`, `2 errors`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a command as a shell reads them, up to a comment, a pipe or the next command.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for character in line.chars() {
            match (quote, character) {
                (Some(open), close) if open == close => quote = None,
                (None, '"' | '\'') => quote = Some(character),
                (None, '#' | '|' | '>' | '&' | ';') if words.last().is_some_and(String::is_empty) => break,
                (None, ' ') => {
                    if words.last().is_some_and(|word| !word.is_empty()) {
                        words.push(String::new());
                    }
                }
                (_, character) => words.last_mut().unwrap().push(character),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    /// Every command that a document or a help text shows is one that this program understands.
    #[test]
    fn commands_in_documents_and_helps_are_commands() {
        let mut shown: Vec<(String, String)> = Vec::new();
        let readme = include_str!("../../../../README.md");
        let pages = docs::pages().unwrap();
        let pages = pages.iter().map(|(page, text)| (page.as_str(), text.as_str()));
        for (page, text) in pages.chain([("README", readme)]) {
            for block in text.split("```sh\n").skip(1) {
                let lines = block.split("```").next().unwrap_or_default().lines();
                shown.extend(lines.map(|line| (format!("docs/{page}.md"), line.to_owned())));
            }
        }
        let mut command = Arguments::command();
        command.build();
        let mut commands = vec![command];
        while let Some(mut command) = commands.pop() {
            let help = command.render_long_help().to_string();
            let place = format!("{} --help", command.get_name());
            // What follows three spaces is about the command.
            let lines = help.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
            let lines = lines.map(|line| line.trim().split("   ").next().unwrap_or_default().to_owned());
            shown.extend(lines.map(|line| (place.clone(), line)));
            commands.extend(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned());
        }
        let (mut count, mut wrong) = (0, Vec::new());
        for (place, line) in shown {
            let line = line.trim().trim_start_matches("$ ");
            let Some(rest) = line.strip_prefix("tidegate ") else { continue };
            // Rows of a table of signals and the like name a command without being one.
            if rest.contains(['<', '[']) && !rest.contains('"') || rest.ends_with(':') {
                continue;
            }
            let example = line.replace("URL-BEFORE", "http://a/").replace("URL-AFTER", "http://b/");
            let words = words(&example.replace(" URL", " http://a/"));
            count += 1;
            if let Err(error) = Arguments::try_parse_from(&words)
                && error.use_stderr()
                // A help goes on in the next line.
                && !(place.ends_with("--help") && error.kind() == ErrorKind::MissingRequiredArgument)
            {
                wrong.push(format!("{place}: {line}\n{error}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(count > 60, "only {count} commands were found");
    }

    #[test]
    fn arguments_are_sound_and_every_command_teaches() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        {
            let name = sub.get_name().to_owned();
            let help = sub.render_long_help().to_string();
            assert!(
                help.contains("Example") && help.contains(&format!("tidegate {name}")),
                "{name}:\n{help}"
            );
            assert!(help.contains("Exit codes:"), "{name}");
        }
    }
}
