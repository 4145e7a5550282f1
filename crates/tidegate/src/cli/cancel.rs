//! `tidegate cancel`: ends requests that are under way, one by its id, or all that are meant.

use super::control_socket::Server;
use super::select::Which;
use super::{complain, print, wrong};
use crate::master::control::{self, Request};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_config::read_duration;
use tidegate_core::selection::Selection;

/// Ends requests that are under way.
///
/// The stream of each is reset, or its connection where it has one to itself. Who waits for an application is given up there too.
/// Which ones: one by its id, or all for which everything holds that is said. What was ended is noted in the error log.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate status requests
  tidegate cancel 4711-0-3f-12
  tidegate cancel --client 192.0.2.7
  tidegate cancel --site example.com --route \"/app/*\" --older-than 30s --dry-run
  tidegate cancel --upstream 10.0.0.1:3000

Exit codes:
  0  done, also where there was none of those that are meant
  1  there is no request of this id, no site or route of this name, or no server answers
  2  the arguments are wrong")]
pub struct Arguments {
    /// Its id, as `tidegate status requests` shows it
    #[arg(value_name = "ID", conflicts_with_all = ["site", "route", "client", "upstream", "older_than"])]
    id: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Requests that have taken so long already, such as 500ms or 30s, or longer
    #[arg(long, value_name = "TIME", value_parser = read_duration)]
    older_than: Option<Duration>,
    /// Only say which would be ended
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: Server,
}

/// `tidegate cancel`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let reply = arguments.server.ask(&request(arguments)?)?;
    if reply.is_ok {
        return print(&reply.text);
    }
    complain(&reply.text);
    Ok(ExitCode::FAILURE)
}

fn request(arguments: &Arguments) -> Result<Request> {
    if let Some(id) = &arguments.id {
        if !control::is_request_id(id) {
            return Err(wrong(format!(
                "{id:?} is no id of a request: `tidegate status requests` shows them"
            )));
        }
        return Ok(Request::Cancel { id: id.clone(), is_rehearsal: arguments.dry_run });
    }
    let selection = Selection { at_least: arguments.older_than, ..arguments.which.selection()? };
    if selection.is_everything() {
        return Err(wrong(
            "name a request by its id, or say which are meant: --client, --site, --route, --upstream, --older-than",
        ));
    }
    Ok(Request::CancelAll { selection, is_rehearsal: arguments.dry_run })
}
