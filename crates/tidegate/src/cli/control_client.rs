//! `tidegate status`, `reload`, `bans`, `stop`, `upgrade` and the like: one request over the control socket of a server.

use super::control_socket::Server;
use super::{complain, print, wrong};
use crate::master::control::{Request, Subject};
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_config::settings::Level;
use tidegate_modules::gateway::balance::groups::{SteeringOrder, Way};
use tidegate_modules::status::{Format, HistoryRange, printable_json};
use tidegate_stats::history::Range;

/// Tells what a server is doing.
///
/// Connections, keep-alive, requests, timings, sites, routes and the file cache, all workers together. `cache` asks about
/// the file cache and steers it: `list` its entries, `stop` using it, `start` again, `restart` it empty. `requests` shows
/// those that are under way, `slow` those that took longer than nearly all of their route, `findings` what limits the server
/// and what to change, `busiest` what has come most often in the last minutes, `history` what there was in the last minutes,
/// hours and days, `settings` every value that is in force and where it was written.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate status
  tidegate status --json | jq .stats.requests
  tidegate status cache list
  tidegate status requests
  tidegate status slow
  tidegate status findings
  tidegate status history --range 6h
  tidegate status settings
  tidegate status busiest
  tidegate status --prometheus > /var/lib/node_exporter/tidegate.prom

Exit codes:
  0  done
  1  no server answers, or it could not do it
  2  the arguments are wrong")]
pub struct StatusArguments {
    /// As JSON: {"findings": [...], "server": {...}, "sites": [...], "stats": {...}}
    #[arg(long, conflicts_with_all = ["text", "prometheus", "xml"])]
    json: bool,
    /// As text, for people; the default
    #[arg(long, conflicts_with_all = ["prometheus", "xml"])]
    text: bool,
    /// As XML, with the elements of stats-xml
    #[arg(long, conflicts_with = "prometheus")]
    xml: bool,
    /// In the text format of Prometheus
    #[arg(long)]
    prometheus: bool,
    /// Ask about a part of the server
    #[arg(value_name = "WHAT", conflicts_with = "prometheus")]
    what: Option<Part>,
    /// What to do with it: list what it holds, or stop, start or restart it
    #[arg(value_name = "ACTION", requires = "what")]
    action: Option<CacheAction>,
    /// Of the history: the last 10 minutes by seconds, 6 hours by 10 seconds, 14 days by 5 minutes, or the totals of days
    /// [default: 10m]
    #[arg(long, value_name = "RANGE", value_parser = range, requires = "what")]
    range: Option<HistoryRange>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    /// The file cache
    Cache,
    /// The requests under way, the oldest first
    Requests,
    /// Those that were slow for their route, the slowest first
    Slow,
    /// What limits the server, and what to change
    Findings,
    /// What there was, second by second
    History,
    /// What the settings in force say, and where each value was written
    Settings,
    /// Paths, hosts, clients, user agents and referrers that come most often
    Busiest,
}

fn range(text: &str) -> Result<HistoryRange, String> {
    HistoryRange::from_name(text).ok_or_else(|| "one of 10m, 6h, 14d and days".to_owned())
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CacheAction {
    /// Show every entry
    List,
    /// Use it again
    Start,
    /// Empty it and look at the disk for every request
    Stop,
    /// Empty it
    Restart,
}

/// Makes a server take up new settings.
///
/// The server reads its settings file again and takes it up between two requests: no connection is closed,
/// and an address that stays keeps its sockets. A site with a mistake stays as it was while the others move
/// on; with any other mistake everything stays as it was. What was wrong is printed, warnings too. A name that
/// the files no longer hold stays served as it was, and an address stays listened on, until --allow-loss says that it may
/// go.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate reload
  tidegate reload --config /etc/tidegate/tidegate.kdl    only if the server has its settings from this file
  tidegate reload --allow-loss                           after sites were taken out
  kill -HUP $(cat /run/tidegate/tidegate.pid)            the same, told in the error log

Exit codes:
  0  the new settings are in force
  1  not, or not all of them, or no server answers; what was said tells which
  2  the arguments are wrong")]
pub struct ReloadArguments {
    /// Stop serving the names, and listening on the addresses, that the settings no longer hold
    #[arg(long)]
    allow_loss: bool,
    #[command(flatten)]
    server: Server,
}

/// Ends a server, and waits until it has ended.
///
/// It accepts no more, closes idle connections, finishes the requests in flight, and cuts what is left when
/// the drain timeout of its settings is over.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate stop
  tidegate stop --now --control /run/web.sock

Exit codes:
  0  the server has ended
  1  no server answers
  2  the arguments are wrong")]
pub struct StopArguments {
    /// Cut what is in flight instead of waiting for it
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    server: Server,
}

/// Replaces a server's program without closing its door.
///
/// The server starts the new program with the arguments that it was started with, and hands it its listening
/// sockets. When the new one serves, the old one accepts no more, finishes what is open and ends. Should the
/// new one fail, the old one goes on and this command says why. New settings are taken up on the way.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate upgrade                                 the program at its old place, after a new one was put there
  tidegate upgrade --binary /opt/tidegate-2/tidegate
  kill -USR2 $(cat /run/tidegate/tidegate.pid)     the first, told in the error log

Exit codes:
  0  the new program serves
  1  it does not and the old one goes on (names would be lost, for one), or no server answers
  2  the arguments are wrong")]
pub struct UpgradeArguments {
    /// The new program [default: the one that the server was started as]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Stop serving the names, and listening on the addresses, that the settings no longer hold
    #[arg(long)]
    allow_loss: bool,
    #[command(flatten)]
    server: Server,
}

/// Shows who is banned by a `ban`, and for how much longer.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bans
  tidegate bans lift 203.0.113.7
  tidegate bans lift 2001:db8::1                   of IPv6 the network of 64 bits
  tidegate bans lift all                           everybody, and says how many that were

Exit codes:
  0  done
  1  no server answers, or this client is not banned
  2  the arguments are wrong")]
pub struct BansArguments {
    #[command(subcommand)]
    action: Option<BansAction>,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand)]
enum BansAction {
    /// Lets a client in again, and forgets what was counted of it
    Lift {
        /// An address of the client, of IPv6 its network of 64 bits is meant; or `all`
        #[arg(value_name = "ADDRESS|all")]
        who: Lifted,
    },
}

/// Whose bans are lifted.
#[derive(Clone, Copy)]
enum Lifted {
    All,
    At(IpAddr),
}

impl std::str::FromStr for Lifted {
    type Err = String;

    fn from_str(text: &str) -> Result<Lifted, String> {
        if text == "all" {
            return Ok(Lifted::All);
        }
        let address = text.strip_suffix("/64").unwrap_or(text).parse();
        address
            .map(Lifted::At)
            .map_err(|_| "this is no address; write one as `tidegate bans` shows it, or `all`".into())
    }
}

/// Drains, pauses and weighs the members of upstream groups.
///
/// What is said holds at once for all processes, over reloads, until something else is said; an upgrade or a new start goes
/// by the settings again. Requests under way are finished. A member is named as in the settings.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate upstream drain backends 10.0.0.1:3000     only clients whose cookie names it (`sticky`); without cookies nobody
  tidegate upstream pause backends 10.0.0.1:3000     no requests at all
  tidegate upstream serve backends 10.0.0.1:3000     requests again
  tidegate upstream weigh backends 10.0.0.1:3000 5   in place of the `weight` of the settings
  tidegate upstream weigh backends 10.0.0.1:3000 own
  tidegate status                                    shows each member, its state and its weight

Exit codes:
  0  done
  1  there is no such member, or no server answers
  2  the arguments are wrong")]
pub struct UpstreamArguments {
    #[command(subcommand)]
    action: UpstreamAction,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand)]
enum UpstreamAction {
    /// Gives a member no new clients
    Drain(MemberName),
    /// Gives a member no requests
    Pause(MemberName),
    /// Gives a member requests again
    Serve(MemberName),
    /// Gives a member more or fewer requests than the settings say
    Weigh {
        #[command(flatten)]
        name: MemberName,
        /// From 1 to 1000, or `own` for the one of the settings
        #[arg(value_parser = weight)]
        weight: Weight,
    },
}

/// Which member is meant.
#[derive(Args)]
struct MemberName {
    /// The upstream
    group: String,
    /// The member, as in the settings
    member: String,
}

/// A weight; `None` is that of the settings.
#[derive(Debug, Clone, Copy)]
struct Weight(Option<u32>);

fn weight(text: &str) -> Result<Weight, String> {
    if text == "own" {
        return Ok(Weight(None));
    }
    let weight = text.parse().ok().filter(|weight| (1..=1000).contains(weight));
    weight.map(|weight| Weight(Some(weight))).ok_or_else(|| "a number from 1 to 1000, or `own`".to_owned())
}

/// Restarts the processes of a pool.
///
/// They are replaced one by one: a new one is up before an old one ends, and each finishes its requests.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate pool restart php
  tidegate status                  shows the processes of each pool

Exit codes:
  0  they are being replaced
  1  there is no such pool, or no server answers
  2  the arguments are wrong")]
pub struct PoolArguments {
    #[command(subcommand)]
    action: PoolAction,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand)]
enum PoolAction {
    /// Replaces the processes of a pool one by one
    Restart {
        /// The pool
        name: String,
    },
}

/// Opens the logs anew, after they were rotated.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  mv access.log access.log.1 && tidegate logs reopen
  kill -USR1 $(cat /run/tidegate/tidegate.pid)      the same

Exit codes:
  0  they are being opened; the error log says when they are in use, or why not
  1  no server answers
  2  the arguments are wrong")]
pub struct LogsArguments {
    #[command(subcommand)]
    action: LogsAction,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand)]
enum LogsAction {
    /// Opens the files at their paths, in place of those that are open
    Reopen,
}

/// Has the error log tell more or less, in all processes, until the next reload.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate log-level debug
  tidegate reload                 what the settings say, again

Exit codes:
  0  it does
  1  no server answers
  2  the arguments are wrong")]
pub struct LogLevelArguments {
    /// error, warn, info or debug: what is less important is not written
    #[arg(value_parser = str::parse::<Level>)]
    level: Level,
    #[command(flatten)]
    server: Server,
}

/// `tidegate log-level`.
pub fn log_level(arguments: &LogLevelArguments) -> Result<ExitCode> {
    ask(&arguments.server, &Request::LogLevel(arguments.level))
}

/// `tidegate upstream`.
pub fn upstream(arguments: &UpstreamArguments) -> Result<ExitCode> {
    let (name, order) = match &arguments.action {
        UpstreamAction::Drain(name) => (name, SteeringOrder::Way(Way::Drain)),
        UpstreamAction::Pause(name) => (name, SteeringOrder::Way(Way::Pause)),
        UpstreamAction::Serve(name) => (name, SteeringOrder::Way(Way::Serve)),
        UpstreamAction::Weigh { name, weight } => (name, SteeringOrder::Weight(weight.0)),
    };
    let MemberName { group, member } = name;
    for name in [group, member] {
        in_a_line(name)?;
    }
    let done = match order {
        SteeringOrder::Way(Way::Drain) => format!("{member} of {group} gets no new clients\n"),
        SteeringOrder::Way(Way::Pause) => format!("{member} of {group} gets no requests\n"),
        SteeringOrder::Way(Way::Serve) => format!("{member} of {group} gets requests again\n"),
        SteeringOrder::Weight(Some(weight)) => format!("{member} of {group} has the weight {weight}\n"),
        SteeringOrder::Weight(None) => format!("{member} of {group} has the weight of the settings\n"),
    };
    ask_and_say(
        &arguments.server,
        &Request::Steer { group: group.clone(), member: member.clone(), order },
        &done,
    )
}

/// `tidegate pool`.
pub fn pool(arguments: &PoolArguments) -> Result<ExitCode> {
    let PoolAction::Restart { name } = &arguments.action;
    in_a_line(name)?;
    let done = format!("the processes of {name} are being replaced, one by one\n");
    ask_and_say(&arguments.server, &Request::RestartPool(name.clone()), &done)
}

/// `tidegate logs`.
pub fn logs(arguments: &LogsArguments) -> Result<ExitCode> {
    let LogsAction::Reopen = arguments.action;
    ask(&arguments.server, &Request::ReopenLogs)
}

/// Refuses what would end the line of a request.
fn in_a_line(name: &str) -> Result<()> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(wrong(format!("{name:?} is no name of anything in the settings")));
    }
    Ok(())
}

/// `tidegate status`.
pub fn status(arguments: &StatusArguments) -> Result<ExitCode> {
    let form = match (arguments.json, arguments.prometheus, arguments.xml) {
        (true, ..) => Format::Json,
        (false, true, _) => Format::Prometheus,
        (false, false, true) => Format::Xml,
        (false, false, false) => Format::Text,
    };
    if arguments.what.is_some() && arguments.xml {
        return Err(wrong("only the report on the server is there as XML: take the part out, or `--xml`"));
    }
    let request = match arguments.what {
        None => Request::Status(form),
        Some(Part::Findings) if arguments.action.is_some() => {
            return Err(wrong("findings are only shown; each goes by itself once what it names is changed"));
        }
        Some(Part::Requests | Part::Slow | Part::Busiest | Part::Findings | Part::Cache | Part::Settings)
            if arguments.range.is_some() =>
        {
            return Err(wrong("only the history has a `--range`: `tidegate status history --range 6h`"));
        }
        Some(Part::History) if arguments.action.is_some() => {
            return Err(wrong("the history is only shown: `tidegate status history`"));
        }
        Some(Part::Settings) if arguments.action.is_some() => {
            return Err(wrong(
                "settings are only shown: `tidegate status settings`; what their file says now `tidegate reload` takes up",
            ));
        }
        Some(Part::Settings) => Request::Show(Subject::Settings, form),
        Some(Part::History) => {
            let default = HistoryRange::Recent(Range::Minutes);
            Request::Show(Subject::History(arguments.range.unwrap_or(default)), form)
        }
        Some(Part::Requests) if arguments.action.is_some() => {
            return Err(wrong(
                "requests are only shown: `tidegate status requests`; `tidegate cancel ID` ends one that is under way",
            ));
        }
        Some(Part::Slow) if arguments.action.is_some() => {
            return Err(wrong("requests that were slow are only shown: `tidegate status slow`"));
        }
        Some(Part::Busiest) if arguments.action.is_some() => {
            return Err(wrong("what comes most often is only shown: `tidegate status busiest`"));
        }
        Some(Part::Requests) => Request::Show(Subject::Requests, form),
        Some(Part::Slow) => Request::Show(Subject::Slow, form),
        Some(Part::Findings) => Request::Show(Subject::Findings, form),
        Some(Part::Busiest) => Request::Show(Subject::Busiest, form),
        Some(Part::Cache) => {
            let question = match arguments.action {
                None => "report",
                Some(CacheAction::List) => "list",
                Some(CacheAction::Start) => "start",
                Some(CacheAction::Stop) => "stop",
                Some(CacheAction::Restart) => "restart",
            };
            Request::Cache(format!("{question}{}", if arguments.json { " json" } else { "" }))
        }
    };
    ask(&arguments.server, &request)
}

/// `tidegate reload`.
pub fn reload(arguments: &ReloadArguments) -> Result<ExitCode> {
    let request =
        Request::Reload { allows_loss: arguments.allow_loss, config: named_config(&arguments.server)? };
    ask(&arguments.server, &request)
}

/// `tidegate bans`.
pub fn bans(arguments: &BansArguments) -> Result<ExitCode> {
    let request = match &arguments.action {
        None => Request::Bans,
        Some(BansAction::Lift { who: Lifted::All }) => Request::LiftAll,
        Some(BansAction::Lift { who: Lifted::At(address) }) => Request::Lift(*address),
    };
    ask(&arguments.server, &request)
}

/// `tidegate stop`.
pub fn stop(arguments: &StopArguments) -> Result<ExitCode> {
    let config = named_config(&arguments.server)?;
    ask(&arguments.server, &Request::Stop { now: arguments.now, config })
}

/// `tidegate upgrade`.
pub fn upgrade(arguments: &UpgradeArguments) -> Result<ExitCode> {
    let binary = match &arguments.binary {
        // The server has a working folder of its own.
        Some(path) => Some(in_one_line(path)?),
        None => None,
    };
    ask(&arguments.server, &Request::Upgrade { binary, allows_loss: arguments.allow_loss })
}

/// The settings file that the operator means: several servers may share a place for their control socket.
pub(super) fn named_config(server: &Server) -> Result<Option<PathBuf>> {
    server.config.as_deref().map(in_one_line).transpose()
}

/// An absolute path that fits the line of a request.
fn in_one_line(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if path.to_str().is_none_or(|path| path.contains('\n')) {
        return Err(wrong(format!(
            "{} must be UTF-8 without line ends to be told to a server",
            path.display()
        )));
    }
    Ok(path)
}

fn ask(server: &Server, request: &Request) -> Result<ExitCode> {
    ask_and_say(server, request, "")
}

/// Asks, and says what has been done where the server has nothing to tell of it.
fn ask_and_say(server: &Server, request: &Request, done: &str) -> Result<ExitCode> {
    // The usual control socket may be that of a server with other settings. A reload and a stop name them themselves.
    let is_order = matches!(
        request,
        Request::LogLevel(_)
            | Request::Lift(_)
            | Request::LiftAll
            | Request::Steer { .. }
            | Request::RestartPool(_)
            | Request::ReopenLogs
            | Request::Upgrade { .. }
    );
    if is_order && let Some(config) = named_config(server)? {
        server.ask_for(&Request::Of(config))?;
    }
    let reply = server.ask(request)?;
    if reply.is_ok {
        // What strangers have chosen is among it.
        let text = if request.is_for_programs() { printable_json(&reply.text) } else { reply.text };
        return print(if text.is_empty() { done } else { &text });
    }
    complain(&reply.text);
    if !reply.text.ends_with('\n') {
        complain("\n");
    }
    Ok(ExitCode::FAILURE)
}
