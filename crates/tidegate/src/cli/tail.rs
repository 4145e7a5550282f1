//! `tidegate tail`: requests as they end, on a terminal or for a program.
//!
//! It asks four times a second what is new. The server processes choose what it is told of, each has a bounded buffer for it, and
//! say what had no room there.

use super::control_socket::Server;
use super::select::{Which, named};
use super::units::{bytes, seconds};
use super::{complain, wrong};
use crate::master::control::Request;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::{ErrorKind, IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tidegate_config::read_duration;
use tidegate_core::selection::{Selection, StatusRange};
use tidegate_http::Method;
use tidegate_modules::status::{TailReport, TailRow};
use tidegate_modules::status::{printable, printable_json};

/// How long it waits before it asks again.
const PAUSE: Duration = Duration::from_millis(250);
/// With so many rows at once it does not wait.
const BUSY: usize = 500;
/// Who has not asked for so long has been forgotten by the workers, which say nothing of what they have lost for it.
const LEASE: Duration = Duration::from_secs(30);

/// Shows requests as they end.
///
/// A line for each: when, client, status, time, bytes sent, request, site and route, and the application that was asked. No
/// access log is needed. Which requests are shown, the server processes decide: all of what is said has to hold. Lines that come
/// faster than they are read are left out and counted. Ctrl-C ends it; a reload does not.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate tail
  tidegate tail --status 5xx
  tidegate tail --site example.com --slower-than 1s
  tidegate tail --status 404,410-499 --method GET
  tidegate tail --client 192.0.2.0/24 --json | jq .target

Exit codes:
  0  it was ended
  1  no server answers, or no site or route has this name
  2  the arguments are wrong")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Requests answered with this status: 404, 5xx, 400-499, or several of them with commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<StatusRange>,
    /// Requests that took so long, such as 200ms or 1s, or longer
    #[arg(long, value_name = "TIME", value_parser = read_duration)]
    slower_than: Option<Duration>,
    /// Requests with this method
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// As JSON, an object on a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Arguments {
    fn selection(&self) -> Result<Selection> {
        if let Some(method) = &self.method {
            named("method", method)?;
            let upper = method.to_ascii_uppercase();
            if *method != upper && Method::from_token(&upper) != Method::Other {
                return Err(wrong(format!(
                    "no request has the method {method:?}: methods are told apart by their letters, write `{upper}`"
                )));
            }
        }
        let (method, statuses) = (self.method.clone(), self.status.clone());
        Ok(Selection { method, statuses, at_least: self.slower_than, ..self.which.selection()? })
    }
}

/// `tidegate tail`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let selection = Some(arguments.selection()?);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{:x}-{:x}", std::process::id(), clock.subsec_nanos());
    let has_ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, has_ended.clone()).context("cannot watch signals")?;
    }
    let ask = |selection| arguments.server.ask_for(&Request::Tail { name: name.clone(), selection });
    let mut printer = Printer { as_json: arguments.json, is_colored: is_colored(), trouble: false };
    let mut asked = Instant::now();
    let mut text = ask(selection.clone())?; // who cannot begin hears why
    let outcome = loop {
        let report: TailReport =
            serde_json::from_str(&text).context("what the server says of requests cannot be read")?;
        let is_busy = report.rows.len() >= BUSY;
        match printer.print(&report) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break Ok(ExitCode::SUCCESS),
            Err(error) => break Err(error).context("cannot write to standard output"),
        }
        if !is_busy && is_over(PAUSE, &has_ended) {
            break Ok(ExitCode::SUCCESS);
        }
        text = loop {
            let gap = asked.elapsed();
            match ask(selection.clone()) {
                Ok(text) => {
                    printer.answers(gap);
                    asked = Instant::now();
                    break text;
                }
                Err(error) => printer.trouble(&format!("{error:#}")),
            }
            if is_over(PAUSE, &has_ended) {
                return Ok(ExitCode::SUCCESS);
            }
        };
    };
    let _ = ask(None);
    outcome
}

/// Waits; whether nobody reads any more, or a signal has come.
fn is_over(time: Duration, has_ended: &AtomicBool) -> bool {
    let out = stdout();
    // Nothing is asked for, so that only the end of whoever reads wakes it.
    let mut fds = [PollFd::new(&out, PollFlags::empty())];
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let has_gone = matches!(poll(&mut fds, Some(&timeout)), Ok(1..));
    has_gone || has_ended.load(Relaxed)
}

fn is_colored() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes lines.
struct Printer {
    as_json: bool,
    is_colored: bool,
    /// It was said that the server does not answer.
    trouble: bool,
}

impl Printer {
    fn print(&self, report: &TailReport) -> std::io::Result<()> {
        let mut text = String::new();
        for row in &report.rows {
            match self.as_json {
                true => text += &printable_json(&serde_json::to_string(row)?),
                false => text += &line(row, self.is_colored),
            }
            text.push('\n');
        }
        if report.lost > 0 {
            text += &match self.as_json {
                true => format!("{{\"lost\":{}}}\n", report.lost),
                false => format!("... {} lines were lost: tail reads too slowly\n", report.lost),
            };
        }
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Said once for each time that it begins.
    fn trouble(&mut self, why: &str) {
        if !std::mem::replace(&mut self.trouble, true) {
            complain(&format!("tidegate: {}; trying again\n", printable(why)));
        }
    }

    /// The server answers, after nothing was asked of it for so long.
    fn answers(&mut self, gap: Duration) {
        if std::mem::take(&mut self.trouble) {
            complain("tidegate: the server answers again; what has ended meanwhile may be missing\n");
        } else if gap > LEASE {
            complain(&format!(
                "tidegate: nothing was read for {} s; lines of that time may be missing\n",
                gap.as_secs()
            ));
        }
    }
}

/// A request as a person reads it. What a client has chosen cannot reach the terminal.
fn line(row: &TailRow, is_colored: bool) -> String {
    let millis = (row.at * 1e3).rem_euclid(86_400e3) as u64;
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let time = format!("{hours:02}:{minutes:02}:{:02}.{:03}", millis / 1000 % 60, millis % 1000);
    let known = |text: &str| if text.is_empty() { "-".to_owned() } else { printable(text) };
    let status = match (is_colored, row.status) {
        (true, 500..) => format!("\u{1b}[31m{}\u{1b}[m", row.status),
        (true, 400..) => format!("\u{1b}[33m{}\u{1b}[m", row.status),
        (_, status) => status.to_string(),
    };
    let (took, sent) = (seconds(row.took), bytes(row.sent as f64));
    let (client, method, site, route) =
        (known(&row.client), known(&row.method), known(&row.site), known(&row.route));
    let (host, target) = (printable(&row.host), known(&row.target));
    let upstream =
        if row.upstream.is_empty() { String::new() } else { format!(" @ {}", printable(&row.upstream)) };
    format!("{time} {client} {status} {took} {sent} {method} {host}{target} [{site} {route}{upstream}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_a_request() {
        let row = TailRow {
            at: 86_400.0 + 3_661.25,
            took: 0.0215,
            status: 502,
            sent: 1536,
            client: "192.0.2.7".into(),
            method: "GET".into(),
            host: "a.test".into(),
            target: "/x?\u{1b}[2Jy".into(),
            site: "a.test".into(),
            route: "/x".into(),
            upstream: "10.0.0.1:80".into(),
            ..TailRow::default()
        };
        let expected = "01:01:01.250 192.0.2.7 502 22ms 1.5K GET a.test/x??[2Jy [a.test /x @ 10.0.0.1:80]";
        assert_eq!(line(&row, false), expected);
        assert_eq!(line(&row, true), expected.replace("502", "\u{1b}[31m502\u{1b}[m"));
        assert_eq!(line(&TailRow::default(), true), "00:00:00.000 - 0 0us 0B - - [- -]");
    }
}
