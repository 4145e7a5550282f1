//! `tidegate cache warm`: requests URLs of the running server itself, so that their responses are stored before anybody asks.
//!
//! The requests go to a listener of the server on this machine, whatever the names in the URLs lead to elsewhere, over HTTP/1.1,
//! a connection each. What came of each its `Cache-Status` says (RFC 9211).

use super::request::{Asker, Listener, Outcome};
use super::{sitemap, url};
use crate::cli::control_socket::Server;
use crate::cli::{complain, print};
use crate::master::control::Request;
use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tidegate_config::read_duration;
use tidegate_modules::status::{Format, printable};

/// Most URLs of one call, which is what one sitemap may hold.
const URLS: usize = 50_000;
/// Most sitemaps that an index may lead to.
const SITEMAPS: usize = 500;
/// The longest list or sitemap, bytes (sitemaps.org).
const LIST: u64 = 50 << 20;

#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["urls", "from", "sitemap"])))]
pub struct Arguments {
    /// URLs
    #[arg(value_name = "URL", value_parser = url::whole)]
    urls: Vec<String>,
    /// A file with a URL on each line, or `-` for standard input; what begins with # is none
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// A sitemap, by its URL on this server or as a file; an index of sitemaps leads to those it names
    #[arg(long, value_name = "URL|FILE")]
    sitemap: Option<String>,
    /// So many requests at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// The listener that is asked, such as 127.0.0.1:8443; without it, the one with the port of the URL
    #[arg(long, value_name = "ADDRESS")]
    to: Option<SocketAddr>,
    /// A field sent along, such as "Accept-Encoding: br": each variant is stored when it is asked for
    #[arg(long, value_name = "FIELD", value_parser = field)]
    header: Vec<String>,
    /// How long a response may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = read_duration)]
    timeout: Duration,
    /// Only what has failed, and the sum
    #[arg(long)]
    quiet: bool,
}

/// A field line of a request.
fn field(text: &str) -> Result<String, String> {
    let is_token = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match text.split_once(':') {
        Some((name, value)) if is_token(name) && !value.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => Err("write a field as \"Accept-Encoding: br\"".to_owned()),
    }
}

/// `tidegate cache warm`.
pub fn run(server: &Server, arguments: &Arguments) -> Result<ExitCode> {
    let asker = Asker::new(listeners(server)?, arguments.to, arguments.header.clone(), arguments.timeout)?;
    let asker = Arc::new(asker);
    let urls = urls(&asker, arguments)?;
    let urls = Arc::new(urls);
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, outcomes) = channel();
    for _ in 0..usize::from(arguments.concurrency).min(urls.len()) {
        let (asker, urls, next, sender) = (asker.clone(), urls.clone(), next.clone(), sender.clone());
        let working = std::thread::Builder::new().name("tidegate-warm".into());
        working.spawn(move || work(&asker, &urls, &next, &sender)).context("cannot start a thread")?;
    }
    drop(sender);
    let (mut failed, mut stored, mut bytes) = (0usize, 0usize, 0u64);
    for (at, outcome) in outcomes {
        let url = printable(urls.get(at).map(String::as_str).unwrap_or_default());
        match outcome {
            Ok(outcome) => {
                let said = outcome.cache_status.as_deref().unwrap_or("no Cache-Status");
                stored += usize::from(is_stored(said));
                bytes += outcome.bytes;
                let is_failure = outcome.status >= 400;
                failed += usize::from(is_failure);
                if is_failure || !arguments.quiet {
                    print(&format!("{} {url} {}\n", outcome.status, printable(said)))?;
                }
            }
            Err(error) => {
                failed += 1;
                complain(&format!("{url}: {error:#}\n"));
            }
        }
    }
    print(&format!(
        "{} requested, {stored} in the cache now, {failed} failed, {} of content\n",
        urls.len(),
        crate::cli::units::bytes(bytes as f64)
    ))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a `Cache-Status` says that the response lies in the cache now. The last member is that of the cache nearest to us.
fn is_stored(said: &str) -> bool {
    let nearest = said.rsplit(',').next().unwrap_or_default();
    nearest.split(';').map(str::trim).any(|parameter| matches!(parameter, "hit" | "stored" | "stored=?1"))
}

fn work(asker: &Asker, urls: &[String], next: &AtomicUsize, done: &Sender<(usize, Result<Outcome>)>) {
    loop {
        let at = next.fetch_add(1, Relaxed);
        let Some(url) = urls.get(at) else { return };
        if done.send((at, asker.ask(url, 0))).is_err() {
            return;
        }
    }
}

/// Where the server listens.
fn listeners(server: &Server) -> Result<Vec<Listener>> {
    let report = server.ask_for(&Request::Status(Format::Json))?;
    let report: serde_json::Value =
        serde_json::from_str(&report).context("the server answers something else")?;
    let named = report["server"]["listeners"].as_array().or_else(|| report["listeners"].as_array());
    Ok(named.into_iter().flatten().filter_map(|name| Listener::of(name.as_str()?)).collect())
}

/// All that is to be asked for, each once, in order.
fn urls(asker: &Asker, arguments: &Arguments) -> Result<Vec<String>> {
    let mut urls = arguments.urls.clone();
    if let Some(path) = &arguments.from {
        let text = if path.as_os_str() == "-" { read_text(io::stdin())? } else { file(path)? };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            urls.push(url::whole(line).map_err(|why| anyhow::anyhow!("{}: {why}", printable(line)))?);
        }
    }
    if let Some(from) = &arguments.sitemap {
        urls.extend(of_sitemap(asker, from)?);
    }
    let mut seen = HashSet::new();
    urls.retain(|url| seen.insert(url.clone()));
    if urls.is_empty() {
        bail!("there is no URL in what is named");
    }
    if urls.len() > URLS {
        bail!("{} URLs are more than one call takes, which is {URLS}: give them in several", urls.len());
    }
    Ok(urls)
}

/// The pages of a sitemap, those of the sitemaps that it names too.
fn of_sitemap(asker: &Asker, from: &str) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    let mut pending = vec![from.to_owned()];
    let mut known: HashSet<String> = pending.iter().cloned().collect();
    while let Some(from) = pending.pop() {
        let text = match url::whole(&from) {
            Ok(url) => {
                let outcome = asker.ask(&url, LIST)?;
                if outcome.status != 200 {
                    bail!("{} is answered with {}: there is no sitemap", printable(&url), outcome.status);
                }
                String::from_utf8(outcome.content)
                    .with_context(|| format!("{} is no text", printable(&url)))?
            }
            Err(_) => file(&PathBuf::from(&from))?,
        };
        let found = sitemap::read(&text);
        if found == sitemap::Sitemap::default() {
            bail!(
                "{} is no sitemap, or names nothing; one that is packed has to be unpacked",
                printable(&from)
            );
        }
        for page in found.pages {
            pages.push(url::whole(&page).map_err(|why| anyhow::anyhow!("{}: {why}", printable(&page)))?);
        }
        // Only URLs: who writes a sitemap has no say in which files of this machine are read.
        let more = found.sitemaps.into_iter().filter_map(|sitemap| url::whole(&sitemap).ok());
        pending.extend(more.filter(|sitemap| known.len() < SITEMAPS && known.insert(sitemap.clone())));
        if pages.len() > URLS {
            break;
        }
    }
    Ok(pages)
}

fn file(path: &PathBuf) -> Result<String> {
    let opened = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    read_text(opened).with_context(|| format!("{} cannot be read", path.display()))
}

fn read_text(from: impl Read) -> Result<String> {
    let mut text = String::new();
    from.take(LIST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIST {
        bail!("it is longer than {} MiB", LIST >> 20);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_cache_says_what_is_stored() {
        for (said, expected) in [
            ("tidegate; hit; ttl=5", true),
            ("tidegate; fwd=miss; stored", true),
            ("tidegate; fwd=miss; stored=?0", false),
            ("far; fwd=miss; stored, tidegate; fwd=bypass", false),
            ("far; fwd=miss, tidegate; fwd=stale; fwd-status=304; stored", true),
            ("no Cache-Status", false),
        ] {
            assert_eq!(is_stored(said), expected, "{said}");
        }
    }

    #[test]
    fn fields_are_one_line() {
        assert!(field("Accept-Encoding: br").is_ok());
        for refused in ["Accept-Encoding", "a b: c", ": c", "A: b\r\nC: d"] {
            assert!(field(refused).is_err(), "{refused}");
        }
    }
}
