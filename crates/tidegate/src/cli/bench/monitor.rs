//! `tidegate bench monitor`: the figures of the machine that it runs on. The work is in `tidegate_bench::systems`.

use super::super::complain;
use super::wrong;
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::quantity;
use tidegate_bench::systems::{Figures, Processes, Service, Watched, monitor};
use tidegate_bench::target::Url;

/// Tells the figures of this machine, a line each interval: processors, run queue, pressure, memory, network, TCP, disks,
/// interrupts, and what is named of processes and services.
///
/// It reads /proc and needs no privileges. Counters are told by second, shares are 0 to 1. `system` in a scenario starts it where it
/// is to run, by ssh as well, and writes its lines into the folder of the run.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench monitor                                     comma-separated, the first line names the columns
  tidegate bench monitor --interval 5s --process tidegate    with the processes of a name
  tidegate bench monitor --url 'http://127.0.0.1/.perf?format=json'
  ssh web.test tidegate bench monitor --stdio                what a run does

Exit codes: 0 its reader or its input has ended, 1 the figures cannot be told, 2 the arguments are wrong")]
pub struct Arguments {
    /// From one line to the next
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::duration)]
    interval: Duration,
    /// Processes whose figures are told as well: all of a name, or one with all that it has started; may be repeated
    #[arg(long = "process", value_name = "PID|NAME")]
    processes: Vec<String>,
    /// The status page of Tidegate (`?format=json`) or php-fpm (`?json`); may be repeated
    #[arg(long = "url", value_name = "URL", value_parser = Url::parse)]
    urls: Vec<Url>,
    /// Host and port of memcached; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    memcached: Vec<String>,
    /// Options of the client `mariadb`, in one argument; may be repeated
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    mariadb: Vec<String>,
    /// Tell a JSON object each interval, and end when standard input does
    #[arg(long)]
    stdio: bool,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&arguments.interval) {
        return Err(wrong("--interval is from 100ms to 60s"));
    }
    let services = arguments.urls.iter().cloned().map(Service::Url);
    let services = services.chain(arguments.memcached.iter().cloned().map(Service::Memcached));
    let watched = Watched {
        interval: arguments.interval,
        processes: arguments.processes.iter().map(|text| Processes::parse(text)).collect(),
        services: services.chain(arguments.mariadb.iter().cloned().map(Service::Mariadb)).collect(),
    };
    if arguments.stdio {
        end_with_input().context("cannot watch standard input")?;
    }
    let mut columns: Vec<String> = Vec::new();
    let began = tidegate_bench::monotonic_ns();
    let told = monitor(
        &watched,
        |figures| {
            let text = if arguments.stdio { object(figures) } else { row(figures, &mut columns, began) };
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        },
        |why| complain(&format!("{why}\n")),
    );
    match told {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot tell figures"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Who started this holds its input open as long as figures are wanted.
fn end_with_input() -> io::Result<()> {
    let wait = || {
        let mut input = io::stdin().lock();
        let mut passed = [0; 256];
        while matches!(input.read(&mut passed), Ok(1..)) {}
        std::process::exit(0)
    };
    std::thread::Builder::new().name("bench-input".to_owned()).spawn(wait).map(drop)
}

fn object(figures: &Figures) -> String {
    let figures = figures.iter().map(|(name, value)| (name.clone(), Value::from(*value)));
    format!("{}\n", Value::Object(figures.collect::<Map<String, Value>>()))
}

/// A line of values; before the first one, the names. What there was not in the first line is left out.
fn row(figures: &Figures, columns: &mut Vec<String>, began: u64) -> String {
    let mut out = String::new();
    if columns.is_empty() {
        columns.extend(figures.iter().map(|(name, _)| name.clone()));
        let _ = writeln!(out, "at,{}", columns.join(","));
    }
    let at = tidegate_bench::monotonic_ns().saturating_sub(began) as f64 / 1e9;
    let _ = write!(out, "{at:.3}");
    for column in columns {
        let value = figures.iter().find(|(name, _)| name == column);
        let _ = write!(out, ",{}", value.map(|(_, value)| format!("{value:.6}")).unwrap_or_default());
    }
    out.push('\n');
    out
}
