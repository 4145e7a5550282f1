//! `cargo xtask bench reload`: reloads and upgrades under load, and server processes that are killed
//! (FAULTS 43 to 45).
//!
//! A closed loop of keep-alive connections, half of its requests with a body. While it runs the settings are
//! loaded anew a hundred times and the program is exchanged twenty times: no request may fail. Then, for a
//! while, a server process is killed every two seconds: what fails may be what it had in hand, and no
//! connection may be refused. Last come silences of several lengths, with a short load behind each: no request may
//! fail, and no process may end. Behind the server are a file, an answer of its own and an application of every kind.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::generator::{self, Running, words};
use super::peers::Kind;
use super::report::{Table, grouped};
use super::server::{Server, Setup};
use super::{applications, host, static_files};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Requests of the first part
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
    /// Reloads
    #[arg(long, default_value_t = 100)]
    reloads: u32,
    /// Upgrades
    #[arg(long, default_value_t = 20)]
    upgrades: u32,
    /// Seconds of the second part
    #[arg(long, default_value_t = 30)]
    kill_seconds: u64,
    /// Connections of the generator
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
}

const KILL_EVERY: Duration = Duration::from_secs(2);
/// Below and above the times that idle connections to applications and idle processes of pools are kept.
const SILENCES: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_millis(1100),
    Duration::from_millis(2100),
    Duration::from_millis(3000),
    Duration::from_millis(5000),
    Duration::from_millis(8000),
];

/// Runs both parts and prints the table; an error when a promise was broken.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build {
        static_files::build()?;
    }
    let mut setup = Setup::new(Duration::from_secs(60), 1_000)?;
    setup.site_directives = "route \"/post\" { respond 200 \"taken\" }".to_owned();
    let paths = applications::add(&mut setup)?;
    setup.add_document("1k.bin", 1024)?;
    println!("{}, {}\n", host::today(), host::description());
    let mut table = Table::new(["what", "times", "requests", "failed", "longest", "of that kind"]);
    let server = Server::start(Kind::Tidegate, false, &setup)?;
    let operator = Operator { server: &server };
    operator.wait_until_it_listens()?;
    let base = format!("http://127.0.0.1:{}", server.port);
    // Half of the requests have a body, as many applications as there are.
    let mut urls = String::new();
    for path in ["/1k.bin".to_owned()].iter().chain(&paths) {
        urls.push_str(&format!("{base}{path}\n{base}/post POST field=value\n"));
    }
    let list = setup.write("urls.txt", &urls)?;
    let list = list.display();

    let hit = format!("hit -f {list} -c {} -n {}", arguments.connections, arguments.requests);
    let mut load = generator::start(&words(&hit))?;
    let (mut reloads, mut upgrades) = (0, 0);
    // Spread over the run: an upgrade after every few reloads.
    let every = (arguments.reloads / arguments.upgrades.max(1)).max(1);
    while reloads < arguments.reloads || upgrades < arguments.upgrades {
        if !load.is_running()? {
            bail!(
                "the load was over after {reloads} reloads and {upgrades} upgrades; ask for more --requests"
            );
        }
        if reloads < arguments.reloads {
            operator.order("reload")?;
            reloads += 1;
        }
        if upgrades < arguments.upgrades && (reloads.is_multiple_of(every) || reloads == arguments.reloads) {
            operator.order("upgrade")?;
            upgrades += 1;
        }
    }
    let load = load.finish()?;
    let failed = load.failed();
    table.row([
        "reloads and upgrades".to_owned(),
        format!("{reloads} + {upgrades}"),
        grouped(load.requests as f64),
        grouped(failed as f64),
        format!("{:.0} ms", load.latency.longest.as_secs_f64() * 1e3),
        load.errors_text(),
    ]);

    let hit = format!("hit -f {list} -c {} -t {}s", arguments.connections, arguments.kill_seconds);
    let load = generator::start(&words(&hit))?;
    let (load, kills) = kill_while(load, &operator, Duration::from_secs(arguments.kill_seconds))?;
    let refused = load.errors.get("refused").copied().unwrap_or_default();
    table.row([
        "server process killed".to_owned(),
        kills.to_string(),
        grouped(load.requests as f64),
        grouped(load.failed() as f64),
        format!("{:.0} ms", load.latency.longest.as_secs_f64() * 1e3),
        load.errors_text(),
    ]);
    let before = operator.server_processes()?;
    let mut silent = (0, 0, Duration::ZERO, String::new());
    for silence in SILENCES {
        std::thread::park_timeout(silence);
        let load = generator::start(&words(&format!("hit -f {list} -c {} -t 1s", arguments.connections)))?
            .finish()?;
        // What is under way when the time is over has not failed.
        let failed = load.failed() - load.errors.get("unanswered").copied().unwrap_or_default();
        silent.0 += load.requests;
        silent.1 += failed;
        silent.2 = silent.2.max(load.latency.longest);
        if failed > 0 {
            silent.3 = load.errors_text();
        }
    }
    table.row([
        "silences".to_owned(),
        SILENCES.len().to_string(),
        grouped(silent.0 as f64),
        grouped(silent.1 as f64),
        format!("{:.0} ms", silent.2.as_secs_f64() * 1e3),
        silent.3,
    ]);
    let has_ended = before != operator.server_processes()?;
    println!("{table}");
    operator.order("stop")?;
    if has_ended || silent.1 > 0 {
        bail!("a promise was broken: no process ends and no request fails because of a silence");
    }
    let in_flight = kills * u64::from(arguments.connections);
    println!("in flight at the kills: at most {}", grouped(in_flight as f64));
    if failed > 0 || refused > 0 || load.failed() > in_flight {
        bail!("a promise was broken: no request fails by a reload or an upgrade, no connection is refused");
    }
    Ok(())
}

fn kill_while(mut load: Running, operator: &Operator<'_>, time: Duration) -> Result<(generator::Load, u64)> {
    let end = Instant::now() + time;
    let mut kills = 0;
    while load.is_running()? && Instant::now() + KILL_EVERY < end {
        std::thread::park_timeout(KILL_EVERY);
        for process in operator.server_processes()? {
            let process = rustix::process::Pid::from_raw(process).context("a process number is above 0")?;
            rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
            kills += 1;
        }
    }
    Ok((load.finish()?, kills))
}

/// Gives orders to the server through its control socket, which stays the same over upgrades.
pub struct Operator<'a> {
    pub server: &'a Server,
}

impl Operator<'_> {
    /// Waits until it takes orders: the ports are open before the control socket is.
    pub fn wait_until_it_listens(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(error) = self.status() {
            if Instant::now() > deadline {
                return Err(error);
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        Ok(())
    }

    /// `tidegate ORDER`.
    pub fn order(&self, order: &str) -> Result<String> {
        let mut command = Command::new(generator::tidegate());
        command.arg(order).arg("--control").arg(self.server.control());
        workspace::output(&mut command)
    }

    /// `tidegate status --json`.
    pub fn status(&self) -> Result<Value> {
        let mut command = Command::new(generator::tidegate());
        command.args(["status", "--json", "--control"]).arg(self.server.control());
        Ok(serde_json::from_str(&workspace::output(&mut command)?)?)
    }

    /// The process numbers of those that serve.
    pub fn server_processes(&self) -> Result<Vec<i32>> {
        let status = self.status()?;
        let processes = status["server"]["processes"].as_array().context("a status without processes")?;
        Ok(processes.iter().filter_map(|process| process["pid"].as_i64()).map(|pid| pid as i32).collect())
    }

    /// Descriptors that the server has open, all processes together.
    pub fn descriptors(&self) -> Result<usize> {
        let mut count = 0;
        for process in self.server_processes()? {
            // One that has just ended has none.
            count += fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
        }
        Ok(count)
    }
}
