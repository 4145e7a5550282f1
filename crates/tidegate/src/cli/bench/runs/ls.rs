//! `tidegate bench ls`: the kept runs.

use super::super::super::{complain, print};
use super::RunsFolder;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_bench::quantity::{self, show_duration};
use tidegate_bench::report::table;
use tidegate_bench::runs::pages::Filter;
use tidegate_bench::runs::{Row, Status};
use tidegate_http::HttpDate;

/// Lists the runs that were kept, the last first.
///
/// `bench run` keeps every run, `hit` and `peak` with --keep. A folder that is no run, or a broken one, is said and passed over.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench ls                                   all
  tidegate bench ls --scenario shop --verdict fail    those of a scenario that failed
  tidegate bench ls --since 2026-11-01                from a day on, UTC
  tidegate bench ls --since 3d --json                 of three days, as JSON

Exit codes: 0 listed, 1 the folder cannot be read, 2 the arguments are wrong")]
pub struct Arguments {
    /// A part of the name, the label, the target or the id
    #[arg(long, value_name = "TEXT")]
    scenario: Option<String>,
    /// The first day (2026-11-24), or how long ago (3d, 12h)
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<i64>,
    /// pass, fail, invalid, measured, running or broken-off
    #[arg(long, value_name = "VERDICT")]
    verdict: Option<Status>,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: RunsFolder,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runs = arguments.folder.runs();
    let listing = runs.list()?;
    let filter =
        Filter { scenario: arguments.scenario.clone(), since: arguments.since, verdict: arguments.verdict };
    let rows = filter.of(&listing);
    if arguments.json {
        let broken: Vec<_> = listing.broken.iter().map(|(id, why)| json!({ "id": id, "why": why })).collect();
        return print(&format!("{}\n", json!({ "runs": rows, "broken": broken })));
    }
    for (id, why) in &listing.broken {
        complain(&format!("tidegate bench: {} is left out: {why}\n", runs.folder().join(id).display()));
    }
    if rows.is_empty() {
        let folder = runs.folder().display();
        let none = if listing.rows.is_empty() { "no run" } else { "no run that is wanted" };
        complain(&format!(
            "tidegate bench: {folder} holds {none}; `bench run` keeps every run, `hit` and `peak` with --keep\n"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let head =
        ["run", "verdict", "users", "per second", "p90", "failed", "label"].map(str::to_owned).to_vec();
    print(&table(&[head].into_iter().chain(rows.into_iter().map(cells)).collect::<Vec<_>>()))
}

fn cells(row: &Row) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        row.id.clone(),
        row.verdict.clone(),
        row.users_or_rate(),
        or_none(row.rate.map(|rate| format!("{rate:.2}"))),
        or_none(row.p90.and_then(|p90| Duration::try_from_secs_f64(p90).ok()).map(show_duration)),
        or_none(row.failed.map(|failed| failed.to_string())),
        or_none(row.label.clone()),
    ]
}

/// A day, or so long ago: wall-clock seconds since 1970.
pub fn since(text: &str) -> Result<i64, String> {
    if let Some(day) = day(text) {
        return Ok(day);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<f64>().ok());
    let days = days
        .filter(|days| (0.0..=36_500.0).contains(days))
        .map(|days| Duration::from_secs_f64(days * 86_400.0));
    let ago = days.or_else(|| quantity::duration(text).ok());
    let ago =
        ago.ok_or_else(|| format!("`{text}` is neither a day as 2026-11-24 nor a time as 3d or 12h"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(now.saturating_sub(ago).as_secs() as i64)
}

/// The beginning of `2026-11-24`, UTC.
fn day(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = text.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let is_number =
        |part: &str, length| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(year, 4) || !is_number(month, 2) || !is_number(day, 2) {
        return None;
    }
    let month = MONTHS.get(month.parse::<usize>().ok()?.checked_sub(1)?)?;
    HttpDate::parse(format!("Thu, {day} {month} {year} 00:00:00 GMT").as_bytes(), 0).map(|date| date.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_ago() {
        assert_eq!(since("2026-11-24"), Ok(1_795_478_400));
        let now = since("0s").unwrap();
        assert!((since("2d").unwrap() - (now - 172_800)).abs() < 60);
        for wrong in ["", "d", "2026-13-01", "2026-02-31", "yesterday", "-1d", "NaNd"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
