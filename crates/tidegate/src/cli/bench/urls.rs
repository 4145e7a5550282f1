//! `tidegate bench urls`: a list of URLs out of an access log.

use super::super::{complain, print};
use super::load::url;
use anyhow::{Context, Result};
use clap::Args;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_bench::inputs::Visits;

/// Makes a list of URLs out of an access log, by share of visits.
///
/// Reads the common and the combined format, and Tidegate's JSON. Every GET that was answered with 200, 206 or 304 counts;
/// `20x URL` in the list is asked for twenty times as often as `URL`. What is left out is said on standard error.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench urls --base http://127.0.0.1:8080 /var/log/nginx/access.log > urls.txt
  zcat access.log.*.gz | tidegate bench urls --base https://www.example.com --top 200 -
  tidegate bench hit -c 64 -t 30s -f urls.txt

Exit codes: 0 a list, 1 the log cannot be read or holds nothing, 2 the arguments are wrong")]
pub struct Arguments {
    /// The log; `-` is standard input
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// What stands before each path
    #[arg(long, value_name = "URL", value_parser = url)]
    base: String,
    /// Only so many of the most visited
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    top: u32,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = &arguments.log;
    let log: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(stdin().lock())
    } else {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Box::new(BufReader::new(file))
    };
    let visits = Visits::read(log).with_context(|| format!("no list out of {}", path.display()))?;
    let (list, share) = visits.urls(&arguments.base, arguments.top as usize);
    print(&list)?;
    complain(&format!(
        "{} of {} URLs, {:.1} % of {} visits; left out: {} requests of other methods or statuses, {} lines in no known format\n",
        list.lines().count(),
        visits.targets(),
        share * 100.0,
        visits.visits,
        visits.others,
        visits.unreadable
    ));
    if visits.beyond > 0 {
        complain(&format!(
            "{} visits of URLs that came when 500000 others were known are not in the list\n",
            visits.beyond
        ));
    }
    Ok(ExitCode::SUCCESS)
}
