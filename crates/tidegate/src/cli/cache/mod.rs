//! `tidegate cache`: what lies in the stores of responses of a running server, what of it is to go, what is to be fetched.
//!
//! The server answers in JSON; here it becomes text. `warm` sends requests as any client does.

mod request;
mod sitemap;
mod text;
mod url;
mod warm;

use super::control_client::named_config;
use super::control_socket::Server;
use super::select::named;
use super::{complain, print, wrong};
use crate::master::control::Request;
use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::process::ExitCode;
use std::time::Duration;
use tidegate_modules::cache_desk::{
    CacheOrder, CacheReply, LISTED, ListSort, ListWanted, PurgeWanted, PurgeWhat, ShowWanted, Verification,
};
use tidegate_modules::status::printable_json;

/// The longest order, bytes: it is a line of the control socket.
const ORDER: usize = 8000;
/// How long `verify` waits before it asks again.
const PAUSE: Duration = Duration::from_millis(500);

/// Lists, shows, purges, checks and fetches stored responses.
///
/// Which responses are stored, `cache` in the settings says; `tidegate docs caching` tells the rest. A purge holds at once for all
/// processes of the server.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate cache stats
  tidegate cache ls --host example.com
  tidegate cache show https://example.com/news
  tidegate cache purge --url https://example.com/news
  tidegate cache purge --tag post-17 --soft
  tidegate cache warm --sitemap https://example.com/sitemap.xml
  tidegate cache verify

Exit codes:
  0  done, also where nothing was there to purge
  1  nothing is stored under the URL to show, something is broken, a request to warm has failed, or no server answers
  2  the arguments are wrong")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand)]
enum Action {
    /// Lists stored responses, by URL unless `--sort` says otherwise
    Ls(LsArguments),
    /// Shows the stored responses of a URL, each variant with its fields
    Show(ShowArguments),
    /// Has responses be used no longer
    Purge(PurgeArguments),
    /// Shows how the stores do
    Stats(StatsArguments),
    /// Reads all files and compares their checksums; what is broken goes
    Verify(StatsArguments),
    /// Requests URLs, so that their responses are stored before anybody asks
    Warm(warm::Arguments),
}

#[derive(Args)]
struct LsArguments {
    /// Only those whose URL begins so
    #[arg(long, value_name = "URL", value_parser = url::prefix)]
    prefix: Option<String>,
    /// Only those of this host, on all ports where it names none
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Only those with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only those in this store
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// In which order: by URL, the youngest, the largest or the most used first
    #[arg(long, value_enum, value_name = "BY", default_value_t = Sort::Url)]
    sort: Sort,
    /// At most so many, the first in that order
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(LISTED)))]
    most: u32,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    Url,
    Age,
    Size,
    Uses,
}

impl Sort {
    fn wanted(self) -> ListSort {
        match self {
            Sort::Url => ListSort::Url,
            Sort::Age => ListSort::Age,
            Sort::Size => ListSort::Size,
            Sort::Uses => ListSort::Uses,
        }
    }
}

#[derive(Args)]
struct ShowArguments {
    /// The URL
    #[arg(value_name = "URL", value_parser = url::whole)]
    url: String,
    /// Only what is in this store
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct StatsArguments {
    /// Only this store
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["url", "prefix", "host", "tag", "group", "all"])))]
struct PurgeArguments {
    /// The response of this URL, with all its variants; may be given several times, as those below
    #[arg(long, value_name = "URL", value_parser = url::whole)]
    url: Vec<String>,
    /// All whose URL begins so
    #[arg(long, value_name = "URL", value_parser = url::prefix)]
    prefix: Vec<String>,
    /// All of this host, on all ports where it names none; with --tag or --group those that are of this host as well
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// All with this tag
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// All of this group (Cache-Groups, RFC 9875)
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// All
    #[arg(long, conflicts_with_all = ["url", "prefix", "host", "tag", "group"])]
    all: bool,
    /// Keep them: they are stale from now on, so that the application is asked whether they still hold
    #[arg(long)]
    soft: bool,
    /// Only what is in this store
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// `tidegate cache`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let server = &arguments.server;
    // The usual control socket may be that of a server with other settings.
    if let Some(config) = named_config(server)? {
        server.ask_for(&Request::Of(config))?;
    }
    match &arguments.action {
        Action::Ls(LsArguments { prefix, host, tag, store, sort, most, json }) => {
            check_names(&[("host", host), ("tag", tag), ("store", store)])?;
            let (prefix, tag, store) = (prefix.clone(), tag.clone(), store.clone());
            let host = host.as_ref().map(|host| host.to_ascii_lowercase());
            let (most, sort) = (*most, sort.wanted());
            ask(server, CacheOrder::List(ListWanted { prefix, host, tag, store, most, sort }), *json)
        }
        Action::Show(ShowArguments { url, store, json }) => {
            check_names(&[("store", store)])?;
            ask(server, CacheOrder::Show(ShowWanted { url: url.clone(), store: store.clone() }), *json)
        }
        Action::Stats(StatsArguments { store, json }) => {
            check_names(&[("store", store)])?;
            ask(server, CacheOrder::Figures { store: store.clone() }, *json)
        }
        Action::Verify(arguments) => verify(server, arguments),
        Action::Purge(arguments) => purge(server, arguments),
        Action::Warm(arguments) => warm::run(server, arguments),
    }
}

fn check_names(names: &[(&str, &Option<String>)]) -> Result<()> {
    for (what, name) in names {
        if let Some(name) = name {
            named(what, name)?;
        }
    }
    Ok(())
}

/// Asks, and shows what comes back; 1 where something is not as it should be.
fn ask(server: &Server, order: CacheOrder, is_json: bool) -> Result<ExitCode> {
    let reply = send(server, order)?;
    let is_well = match &reply {
        CacheReply::Shown(found) => !found.entries.is_empty(),
        CacheReply::Verified(verified) => is_sound(verified),
        CacheReply::Purged(_) | CacheReply::Listed(_) | CacheReply::Figures(_) => true,
    };
    print(&shown(&reply, is_json)?)?;
    complain(&text::unsearched(&reply));
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn shown(reply: &CacheReply, is_json: bool) -> Result<String> {
    Ok(match is_json {
        // What strangers have chosen is among it.
        true => printable_json(&serde_json::to_string_pretty(reply)?) + "\n",
        false => text::text(reply),
    })
}

fn send(server: &Server, order: CacheOrder) -> Result<CacheReply> {
    let request = Request::Stores(order);
    if request.to_line().len() > ORDER {
        return Err(wrong(format!(
            "this is too long to be told to a server: an order has at most {ORDER} bytes"
        )));
    }
    let answer = server.ask_for(&request)?;
    serde_json::from_str(&answer)
        .map_err(|error| anyhow::anyhow!("the server answers something else: {error}"))
}

/// Sends an order for each of what is meant.
fn purge(server: &Server, arguments: &PurgeArguments) -> Result<ExitCode> {
    check_names(&[("store", &arguments.store)])?;
    let mut all: Option<CacheReply> = None;
    for what in meant(arguments)? {
        let wanted = PurgeWanted { what, is_soft: arguments.soft, store: arguments.store.clone() };
        let reply = send(server, CacheOrder::Purge(wanted))?;
        match &mut all {
            Some(all) => tidegate_modules::cache_desk::merge(all, reply),
            None => all = Some(reply),
        }
    }
    let Some(CacheReply::Purged(purged)) = all else { bail!("the server answers something else") };
    match arguments.json {
        true => print(&shown(&CacheReply::Purged(purged), true)?),
        false => print(&text::purged(purged, arguments.soft)),
    }
}

fn meant(arguments: &PurgeArguments) -> Result<Vec<PurgeWhat>> {
    let PurgeArguments { url, prefix, host, tag, group, all, .. } = arguments;
    for (what, names) in [("host", host), ("tag", tag), ("group", group)] {
        names.iter().try_for_each(|name| named(what, name))?;
    }
    if *all {
        return Ok(vec![PurgeWhat::All]);
    }
    let hosts: Vec<String> = host.iter().map(|host| host.to_ascii_lowercase()).collect();
    // A tag of these hosts, else of all.
    let of_hosts: Vec<Option<String>> = match hosts.is_empty() {
        true => vec![None],
        false => hosts.iter().cloned().map(Some).collect(),
    };
    let mut what: Vec<PurgeWhat> = url.iter().cloned().map(PurgeWhat::Url).collect();
    what.extend(prefix.iter().cloned().map(PurgeWhat::Prefix));
    for host in &of_hosts {
        what.extend(tag.iter().map(|name| PurgeWhat::Tag { name: name.clone(), host: host.clone() }));
        what.extend(group.iter().map(|name| PurgeWhat::Group { name: name.clone(), host: host.clone() }));
    }
    if tag.is_empty() && group.is_empty() {
        what.extend(hosts.into_iter().map(PurgeWhat::Host));
    }
    Ok(what)
}

/// All files were read, and are as they were written.
fn is_sound(Verification { broken, unread, unsearched, .. }: &Verification) -> bool {
    broken.is_empty() && unread.is_empty() && unsearched.is_empty()
}

/// A name for this run, by which each process knows that it has told it of its end.
fn new_run() -> Result<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).ok().context("the system gives no random bytes")?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// Asks again and again until all is read.
fn verify(server: &Server, arguments: &StatsArguments) -> Result<ExitCode> {
    check_names(&[("store", &arguments.store)])?;
    let run = new_run()?;
    loop {
        let reply = send(server, CacheOrder::Verify { store: arguments.store.clone(), run })?;
        let CacheReply::Verified(verified) = &reply else { bail!("the server answers something else") };
        if verified.is_done {
            let is_well = is_sound(verified);
            print(&shown(&reply, arguments.json)?)?;
            complain(&text::unsearched(&reply));
            return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        if super::has_color() {
            complain(&format!("\r{} of {} files", verified.files, verified.files_in_all));
        }
        std::thread::park_timeout(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        purge: PurgeArguments,
    }

    fn of(line: &str) -> Result<Vec<PurgeWhat>, String> {
        let words = std::iter::once("purge").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        meant(&line.purge).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_line_means() {
        let tag = |host: Option<&str>| PurgeWhat::Tag { name: "a".into(), host: host.map(str::to_owned) };
        for (line, expected) in [
            ("--all", vec![PurgeWhat::All]),
            ("--tag a", vec![tag(None)]),
            ("--tag a --host B.example --host c", vec![tag(Some("b.example")), tag(Some("c"))]),
            ("--host B.example", vec![PurgeWhat::Host("b.example".into())]),
            (
                "--url http://A.example:80/x#y --prefix https://a.example",
                vec![
                    PurgeWhat::Url("http://a.example/x".into()),
                    PurgeWhat::Prefix("https://a.example/".into()),
                ],
            ),
        ] {
            assert_eq!(of(line), Ok(expected), "{line}");
        }
        for refused in [
            "",
            "--soft",
            "--all --tag a",
            "--url /x",
            "--url ftp://a/",
            "--url http://",
            "--prefix a.example",
        ] {
            assert!(of(refused).is_err(), "{refused}");
        }
    }
}
