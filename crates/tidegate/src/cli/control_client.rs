//! `tidegate status`, `reload`, `bans`, `stop` and `upgrade`: one request over the control socket of a server.

use super::{complain, has_color, print};
use crate::master::control::{self, Request};
use crate::master::proof::Operator;
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_config::{Loaded, ProcessEnvironment, Settings, load_file, load_str};
use tidegate_modules::gateway::balance::groups::{SteeringOrder, Way};
use tidegate_modules::status::Format;

/// How to find the server.
#[derive(Args)]
struct Server {
    /// Control socket of the server
    ///
    /// Without it and without --config: tidegate.sock in $XDG_RUNTIME_DIR or /run (for root), else tidegate-UID.sock in
    /// the folder for temporary files. For root, when no server answers there: /run/tidegate/tidegate.sock, the service's.
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,
    /// The server's settings file, which tells where its control socket is
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// Tells what a server is doing.
///
/// Connections, keep-alive, requests, timings, sites, routes and the file cache, all workers together. `cache` asks about
/// the file cache and steers it: `list` its entries, `stop` using it, `start` again, `restart` it empty. `requests` shows
/// those that are under way, `slow` those that took longer than nearly all of their route, `findings` what limits the server
/// and what to change.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate status
  tidegate status --json | jq .stats.requests
  tidegate status cache list
  tidegate status requests
  tidegate status slow
  tidegate status findings
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

/// Ends a request that is under way.
///
/// Its stream is reset, or its connection where it has one to itself. Who waits for an application is given up there too.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate status requests
  tidegate cancel 4711-0-3f-12

Exit codes:
  0  it has ended
  1  there is no such request, or no server answers
  2  the arguments are wrong")]
pub struct CancelArguments {
    /// Its id, as `tidegate status requests` shows it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    server: Server,
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
        /// An address of the client; of IPv6 its network of 64 bits is meant
        address: IpAddr,
    },
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
        bail!("{name:?} is no name of anything in the settings");
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
        bail!("only the report on the server is there as XML");
    }
    let request = match arguments.what {
        None => Request::Status(form),
        Some(Part::Findings) if arguments.action.is_some() => {
            bail!("findings are only shown; each goes by itself once what it names is changed")
        }
        Some(Part::Requests | Part::Slow) if arguments.action.is_some() => {
            bail!("requests are only shown here; `tidegate cancel ID` ends one that is under way")
        }
        Some(Part::Requests) => Request::Requests(form),
        Some(Part::Slow) => Request::Slow(form),
        Some(Part::Findings) => Request::Findings(form),
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

/// `tidegate cancel`.
pub fn cancel(arguments: &CancelArguments) -> Result<ExitCode> {
    if !control::is_request_id(&arguments.id) {
        bail!("{:?} is no id of a request: `tidegate status requests` shows them", arguments.id);
    }
    ask(&arguments.server, &Request::Cancel(arguments.id.clone()))
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
        Some(BansAction::Lift { address }) => Request::Lift(*address),
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
fn named_config(server: &Server) -> Result<Option<PathBuf>> {
    server.config.as_deref().map(in_one_line).transpose()
}

/// An absolute path that fits the line of a request.
fn in_one_line(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if path.to_str().is_none_or(|path| path.contains('\n')) {
        bail!("{} must be UTF-8 without line ends to be told to a server", path.display());
    }
    Ok(path)
}

fn ask(server: &Server, request: &Request) -> Result<ExitCode> {
    ask_and_say(server, request, "")
}

/// Asks, and says what has been done where the server has nothing to tell of it.
fn ask_and_say(server: &Server, request: &Request, done: &str) -> Result<ExitCode> {
    let (path, is_shared) = place(server)?;
    let unnamed = server.config.as_deref().filter(|_| is_shared);
    let operator = Operator::of(&path);
    let mut stream = operator.connect().map_err(|error| {
        // What is wrong with the file may be why it says nothing of the socket.
        let wrong = server.config.as_deref().map(|config| load_file(config, &ProcessEnvironment));
        let wrong = wrong.filter(Loaded::has_errors).map(|loaded| loaded.render(has_color()));
        anyhow!("{}{}", wrong.unwrap_or_default(), unreachable_server(&path, unnamed, &error))
    })?;
    // Anyone may put a socket into a folder for everyone: only our own server, or root's, is believed.
    if is_shared {
        let owner = socket_peercred(&stream).context("cannot tell whose server this is")?.uid;
        if owner != getuid() && !owner.is_root() {
            bail!("the server at {} is another user's; name yours with --control", path.display());
        }
    }
    let broke_off = || format!("the server at {} broke off", path.display());
    let command = request.to_line();
    // Who is refused before the line was read may not be able to send it, or finds the way cut behind the refusal.
    let sent = stream.write_all(format!("{command}\n").as_bytes());
    let is_refused = |said: &[u8]| said.starts_with(b"failed\n");
    let mut replies = BufReader::new(&stream);
    let mut said = Vec::new();
    let began = replies.read_until(b'\n', &mut said);
    if !is_refused(&said) {
        sent.and(began.map(drop)).with_context(broke_off)?;
    }
    let proven = operator.answer(&stream, &said, &command)?;
    if proven.is_some() {
        said.clear();
    }
    let ended = replies.read_to_end(&mut said);
    let is_refusal = is_refused(&said);
    if !is_refusal {
        ended.with_context(broke_off)?;
    }
    // A refusal does nothing, and comes from who is refused a proof as well.
    let reply = match &proven {
        Some(proven) => proven.reply(&said).or(Some(&*said).filter(|_| is_refusal)),
        None => Some(&*said).filter(|_| is_refusal || said.is_empty() || !operator.is_asked()),
    };
    let Some(reply) = reply else {
        bail!(
            "whoever answers at {} does not know the secret of your server, and may be an application that it has started",
            path.display()
        );
    };
    let reply = String::from_utf8_lossy(reply);
    let (word, text) = reply.split_once('\n').unwrap_or((&*reply, ""));
    match word {
        "ok" => print(if text.is_empty() { done } else { text }),
        "failed" => {
            complain(text);
            if !text.ends_with('\n') {
                complain("\n");
            }
            Ok(ExitCode::FAILURE)
        }
        _ => bail!("the server at {} ended before it answered", path.display()),
    }
}

/// The control socket, and whether it lies where others may write.
fn place(server: &Server) -> Result<(PathBuf, bool)> {
    if let Some(path) = &server.control {
        return Ok((path.clone(), false));
    }
    let Some(config) = &server.config else { return Ok(usual_place(control::path_for(None).0)) };
    if let Err(error) = config.metadata()
        && error.kind() == ErrorKind::NotFound
    {
        bail!(
            "{} cannot be read: there is no such file; a server is also found with --control",
            config.display()
        );
    }
    let mut loaded = load_file(config, &ProcessEnvironment);
    match loaded.settings.take().or_else(|| own_files_of(config)) {
        Some(settings) => {
            let is_shared = settings.control.is_none() && settings.pid_file.is_none();
            Ok((control::path_for(Some(&settings)).0, is_shared))
        }
        None => bail!(
            "{}where the control socket of its server is cannot be told: put that right, or name it with --control",
            loaded.render(has_color())
        ),
    }
}

/// Where nobody says a place, and whether others may write there. Root's is that of the service (dist/tidegate.service) when
/// nobody answers in the usual one.
fn usual_place(usual: PathBuf) -> (PathBuf, bool) {
    let service = Path::new(SERVICE);
    let is_of_service = getuid().is_root() && control::owner(&usual).is_none() && service.exists();
    if is_of_service { (service.to_owned(), false) } else { (usual, true) }
}

/// The control socket of the service.
const SERVICE: &str = "/run/tidegate/tidegate.sock";

/// What a file with mistakes says of the server's own files: those mistakes are often why a command is
/// given, and the server tells them better.
fn own_files_of(config: &Path) -> Option<Settings> {
    // A byte that is no UTF-8 is as good a reason for a command as any mistake.
    let bytes = std::fs::read(config).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let is_own = |line: &&str| ["control ", "pid-file "].iter().any(|name| line.starts_with(name));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_own).collect();
    let text = format!("listen \"127.0.0.1:0\"\nsite {{ respond 204 }}\n{}\n", lines.join("\n"));
    let folder = std::path::absolute(config).ok()?.parent()?.to_owned();
    load_str("own files", &text, &folder, &ProcessEnvironment).settings
}

/// `unnamed`: the settings file that was named and says nothing of a control socket.
fn unreachable_server(path: &Path, unnamed: Option<&Path>, error: &std::io::Error) -> String {
    let is_file = path.is_file();
    let path = path.display();
    match (error.kind(), unnamed) {
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, Some(config)) => format!(
            "no server runs with the control socket {path}, the usual one: {} names neither `control` nor `pid-file`; name \
             the socket with --control",
            config.display()
        ),
        (ErrorKind::ConnectionRefused, _) if is_file => {
            format!("{path} is an ordinary file and no control socket; name the socket with --control")
        }
        (kind, _) => why_unreachable(&path, kind, error),
    }
}

fn why_unreachable(path: &dyn std::fmt::Display, kind: ErrorKind, error: &std::io::Error) -> String {
    match kind {
        ErrorKind::NotFound => format!(
            "no server runs with the control socket {path}; name another with --control, or the settings file \
             with --config"
        ),
        ErrorKind::ConnectionRefused => {
            format!("the server of the control socket {path} has ended; start one with `tidegate serve`")
        }
        ErrorKind::PermissionDenied => {
            format!("the control socket {path} is another user's; run this as that user or as root")
        }
        _ => format!("cannot speak to the server at {path}: {error}"),
    }
}
