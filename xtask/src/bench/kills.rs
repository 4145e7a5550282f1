//! `cargo xtask bench kills`: processes of a supervised pool that are killed during load, twice a second.
//!
//! Each process serves one request at a time and all of them are busy, so every kill meets a request. One that is
//! safe to repeat is: no client may notice. One that is not fails, and nothing else does: a failure for each kill
//! at most.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::generator::{self, Load, words};
use super::peers::Kind;
use super::reload::Operator;
use super::report::{Table, grouped};
use super::server::{Server, Setup};
use super::{host, static_files};

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds of each run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Connections of the generator
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,
    /// Processes of the pool
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    processes: u32,
    /// Milliseconds that each answer takes
    #[arg(long, default_value_t = 5)]
    time: u64,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
}

const KILL_EVERY: Duration = Duration::from_millis(500);
/// What is started in place of a killed process has to be there before the next run.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs both kinds of requests and prints the table; an error when more failed than had to.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build {
        static_files::build()?;
    }
    let mut setup = Setup::new(Duration::from_secs(60), arguments.connections + 200)?;
    let own = std::env::current_exe()?;
    setup.directives = format!(
        "pool \"app\" {{\n    command {:?} \"responder\" \"-\" \"1024\" \"--workers\" \"1\" \"--time\" \"{}\"\n    \
         processes min={2} max={2}\n    queue length={3} age=\"10s\"\n}}\n",
        own.to_string_lossy(),
        arguments.time,
        arguments.processes,
        arguments.connections
    );
    setup.site_directives = "route \"/app.fcgi\" { fastcgi \"app\" { mount \"/\" } }".to_owned();
    println!("{}, {}", host::today(), host::description());
    println!(
        "{} processes of one request at a time, {} ms each, {} connections, {} s each\n",
        arguments.processes, arguments.time, arguments.connections, arguments.seconds
    );
    let server = Server::start(Kind::Tidegate, false, &setup)?;
    let operator = Operator { server: &server };
    let url = format!("http://127.0.0.1:{}/app.fcgi", server.port);
    let mut table = Table::new([
        "requests",
        "killed",
        "answered",
        "per second",
        "retries",
        "failed",
        "at most",
        "longest",
        "of that kind",
    ]);
    let mut is_broken = false;
    for (method, data, is_safe) in [("GET", "", true), ("POST", " --data field=value", false)] {
        wait_for_all(&operator, arguments.processes)?;
        let retries = retries(&operator.status()?)?;
        let hit =
            format!("hit {url}{data} -c {} -t {}s --threads 1", arguments.connections, arguments.seconds);
        let (load, kills) = kill_while(arguments, &operator, &hit)?;
        let retries = self::retries(&operator.status()?)?.saturating_sub(retries);
        // What is under way when the time is over has not failed.
        let failed = load.failed() - load.errors.get("unanswered").copied().unwrap_or_default();
        let most = if is_safe { 0 } else { kills };
        is_broken |= failed > most;
        table.row([
            method.to_owned(),
            kills.to_string(),
            grouped(load.requests.saturating_sub(load.failed()) as f64),
            grouped(load.rate),
            grouped(retries as f64),
            grouped(failed as f64),
            grouped(most as f64),
            format!("{:.0} ms", load.latency.longest.as_secs_f64() * 1e3),
            load.errors_text(),
        ]);
    }
    println!("{table}");
    if is_broken {
        bail!(
            "a promise was broken: only what a killed process had in hand and is not safe to repeat may fail"
        );
    }
    Ok(())
}

/// Puts the load on and kills a process again and again; how many.
fn kill_while(arguments: &Arguments, operator: &Operator<'_>, hit: &str) -> Result<(Load, u64)> {
    let mut load = generator::start(&words(hit))?;
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let (mut kills, mut random) = (0, fastrand::Rng::with_seed(17));
    while load.is_running()? && Instant::now() + KILL_EVERY < end {
        std::thread::park_timeout(KILL_EVERY);
        let processes = processes(&operator.status()?)?;
        let Some(process) = random.choice(&processes) else { continue };
        let process = Pid::from_raw(*process).context("a process number is above 0")?;
        // One that has just ended by itself counts as any other.
        let _ = kill_process(process, Signal::KILL);
        kills += 1;
    }
    Ok((load.finish()?, kills))
}

fn wait_for_all(operator: &Operator<'_>, count: u32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    // The port is open before the control socket is.
    while operator.status().and_then(|status| processes(&status)).map_or(0, |all| all.len()) < count as usize
    {
        if Instant::now() > deadline {
            bail!("the pool does not have {count} processes after {} s", PATIENCE.as_secs());
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Ok(())
}

/// The process numbers of the only pool.
fn processes(status: &Value) -> Result<Vec<i32>> {
    let processes = status["pools"][0]["processes"].as_array().context("a status without a pool")?;
    let numbers = processes.iter().filter_map(|process| process["pid"].as_i64());
    Ok(numbers.filter_map(|number| i32::try_from(number).ok()).collect())
}

/// Requests that were sent once more, since the server was started.
fn retries(status: &Value) -> Result<u64> {
    status["stats"]["gateway_retries"].as_u64().context("a status without retries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_says() {
        let status = serde_json::json!({
            "stats": {"gateway_retries": 7},
            "pools": [{"name": "app", "processes": [{"pid": 12, "state": "idle"}, {"pid": 13}]}],
        });
        assert_eq!(processes(&status).unwrap(), [12, 13]);
        assert_eq!(retries(&status).unwrap(), 7);
        assert!(processes(&Value::Null).is_err() && retries(&Value::Null).is_err());
    }
}
