//! `tidegate bench agent`: makes a part of the load of a run on another machine.

use super::super::super::{complain, print};
use super::super::load::{Generator, TlsManner};
use super::super::output::stop_on_signals;
use super::Network;
use super::keys::{Pem, Security, SecurityOptions, Side};
use super::rpc::{self, Inbox, Net, Peer};
use super::ssh::Announcement;
use anyhow::{Context, Result};
use clap::{ArgGroup, Args};
use std::io::{BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_bench::agent::PROTOCOL;
use tidegate_bench::agent::messages::{Frame, Hello, Kind, Prepare, Reason};
use tidegate_bench::agent::runner::{self, Event, Link, Machine};
use tidegate_bench::plan::{Part, Plan};
use tidegate_bench::request::{Description, Mix};
use tidegate_bench::scenario::{Scenario, estimate, load_for};
use tidegate_bench::{preflight, quantity};
use tidegate_config::{Diagnostic, ProcessEnvironment};
use tokio::sync::mpsc;

/// Makes a part of the load of `tidegate bench run --agents`, on another machine.
///
/// With --listen it waits for controllers and serves one run after the other; with --join it dials a controller, which has
/// --listen-agents, and ends with its run. It gets the scenario from its controller; files that the scenario names are read
/// here, below --folder, and must be those that the controller has. Where the link is lost the load goes on, and what was not told
/// yet is told over the next; an agent that hears nothing of its controller for 10 s stops. A link that is lost before the start is made
/// again.
#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("way").required(true).multiple(true).args(["listen", "join", "stdio"])))]
#[command(after_long_help = "\
Examples:
  tidegate bench agent --listen 0.0.0.0:7400 --keys keys                    waits for controllers
  tidegate bench agent --join bench.example:7400 --keys keys --index 2      the third agent of a run
  tidegate bench agent --listen 127.0.0.1:7400 --insecure-loopback          on the controller's own machine, for a try

Exit codes:
  0   its part was carried out to the end, and the controller has all of it; with --listen, a signal ended it
  1   it could not be: the controller refused or is gone, the target cannot be reached; or it was, and the controller has not said
      that it has all of it
  2   the arguments are wrong
  130 interrupted under load")]
pub struct Arguments {
    /// Wait for controllers on this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "join")]
    listen: Option<SocketAddr>,
    /// Dial a controller
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    join: Option<String>,
    /// Take keys from standard input, say on standard output where this agent listens, serve one run, and end with the input:
    /// what `bench run --agents ssh:HOST` starts
    #[arg(long, conflicts_with_all = ["listen", "join", "once", "keys", "insecure_loopback"])]
    stdio: bool,
    /// How long a controller that is not there yet is dialled
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::duration)]
    patience: Duration,
    /// With --listen: end after one run
    #[arg(long)]
    once: bool,
    /// Which agent this is, from 0; its users are those that leave this rest [default: $JOB_COMPLETION_INDEX, else
    /// whichever is free]
    #[arg(long, value_name = "N")]
    index: Option<u32>,
    /// What reports call it [default: the name of this host]
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Where relative paths of scenarios begin
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Local address to connect from; may be repeated, each gives 28,000 ports
    #[arg(long = "source", value_name = "ADDRESS")]
    sources: Vec<IpAddr>,
    /// Whom to trust at the target, PEM [default: whom this system trusts]
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    #[command(flatten)]
    security: SecurityOptions,
}

/// An address that is dialled: where its name leads is only known then.
fn host_and_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match parts.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("write host and port, such as bench.example:7400".to_owned()),
    }
}

/// A controller that has come.
struct Visit {
    peer: String,
    link: Link,
    outbox: Sender<Event>,
    inbox: Receiver<Event>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (security, input) = if arguments.stdio {
        let (security, input) = security_by_input()?;
        (security, Some(input))
    } else {
        (arguments.security.security(Side::Agent)?, None)
    };
    let stop = stop_on_signals()?;
    let (sender, visits) = channel();
    let current = Arc::new(Mutex::new(None));
    let network = Network::start(inbox(sender, current.clone()))?;
    let peer = begin(arguments, security, &network)?;
    let is_once = arguments.once || arguments.stdio || peer.is_some();
    loop {
        let visit = match visits.recv_timeout(Duration::from_millis(100)) {
            Ok(visit) => visit?,
            Err(RecvTimeoutError::Timeout) if stop.is_stopped() => return Ok(ExitCode::SUCCESS),
            // Who started it wants nothing of it any more.
            Err(RecvTimeoutError::Timeout) if input.as_ref().is_some_and(|ended| ended.load(Relaxed)) => {
                return Ok(ExitCode::SUCCESS);
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err(anyhow::anyhow!("the links have ended")),
        };
        complain(&format!("tidegate bench: the controller is {}\n", visit.peer));
        let machine = Local { arguments, network: &network, peer: peer.as_ref(), current: &current };
        let hello = arguments.hello();
        let result = runner::run(&machine, hello, visit.link, (&visit.outbox, &visit.inbox), &stop);
        *current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let code = match &result {
            // Nothing was done yet: who has dialled dials again.
            Err(error @ runner::AgentError::Unstarted(_)) => {
                let how = if peer.is_some() { "it is dialled again" } else { "it may dial again" };
                complain(&format!("tidegate bench: {error}; {how}\n"));
                if let Some(peer) = peer.clone() {
                    network.spawn(|hub| rpc::dial_again(peer, None, Net::Failed, hub));
                }
                continue;
            }
            Ok(totals) => {
                complain(&format!("tidegate bench: done, {} operations\n", totals.operations));
                ExitCode::SUCCESS
            }
            Err(runner::AgentError::Interrupted) => return Ok(super::super::output::interrupted()),
            Err(error) => {
                complain(&format!("tidegate bench: {error}\n"));
                ExitCode::FAILURE
            }
        };
        if is_once || matches!(result, Err(runner::AgentError::Stuck)) {
            return Ok(code);
        }
    }
}

/// Dials or listens. Gives who was dialled.
fn begin(arguments: &Arguments, security: Security, network: &Network) -> Result<Option<Peer>> {
    if let Some(address) = &arguments.join {
        // Where a name leads may only be known later.
        if matches!(security, Security::Plain)
            && let Ok(at) = address.to_socket_addrs()
        {
            super::only_of_this_machine(at, address)?;
        }
        let peer = Peer { address: address.clone(), security };
        print(&format!("Dialling {address}\n"))?;
        network.spawn(|hub| rpc::dial(peer.clone(), arguments.patience, hub));
        return Ok(Some(peer));
    }
    let address = match arguments.listen {
        Some(address) => address,
        None if arguments.stdio => address_of_ssh(),
        None => return Err(super::super::wrong("--listen or --join is needed")),
    };
    let listener = super::bind(address, &security)?;
    let at = listener.local_addr().context("cannot find the own address")?;
    if arguments.stdio {
        let announcement = Announcement { version: env!("CARGO_PKG_VERSION").to_owned(), address: at };
        print(&format!("{}\n", serde_json::to_string(&announcement)?))?;
    } else {
        print(&format!("Waiting for controllers on {at}\n"))?;
    }
    network.listen(listener, security);
    Ok(None)
}

/// Bytes of the keys that come by standard input, at most.
const MOST_KEYS: u64 = 64 << 10;

/// Reads the keys, a line, and looks out for the end of the input.
fn security_by_input() -> Result<(Security, Arc<AtomicBool>)> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(MOST_KEYS)
        .read_line(&mut text)
        .context("cannot read keys from standard input")?;
    let keys: Pem = serde_json::from_str(&text).context("standard input has no keys")?;
    let security = keys.security(Side::Agent, |name| format!("{name} of standard input"))?;
    let ended = Arc::new(AtomicBool::new(false));
    let shared = ended.clone();
    let watch = move || {
        let mut input = std::io::stdin().lock();
        let mut passed = [0; 256];
        while matches!(input.read(&mut passed), Ok(1..)) {}
        shared.store(true, Relaxed);
    };
    std::thread::Builder::new().name("bench-input".to_owned()).spawn(watch)?;
    Ok((security, ended))
}

/// Where to listen: the address at which ssh came to this machine, else this machine alone. sshd(8), `SSH_CONNECTION`.
fn address_of_ssh() -> SocketAddr {
    let Ok(connection) = std::env::var("SSH_CONNECTION") else { return (Ipv4Addr::LOCALHOST, 0).into() };
    let address = connection.split(' ').nth(2).and_then(|text| text.parse::<IpAddr>().ok());
    // An address of one link alone, `fe80::1%eth0`.
    (address.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), 0).into()
}

/// Who is being served.
struct Current {
    link: u64,
    /// What another link names that goes on with the run, once there is one.
    session: Option<u64>,
    outbox: Sender<Event>,
}

fn link_of(sender: mpsc::Sender<Frame>) -> Link {
    Box::new(move |frame| sender.try_send(frame).is_ok())
}

/// Takes in what links bring: one controller at a time.
fn inbox(visits: Sender<Result<Visit>>, current: Arc<Mutex<Option<Current>>>) -> Inbox {
    Arc::new(move |event| {
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nobody receives, the agent is about to end.
        match event {
            Net::Joined { link, peer, session, sender } => {
                joined(&mut current, &visits, (link, peer, session), sender);
            }
            Net::Frame(link, frame, permit) => {
                if let Some(of) = current.as_ref().filter(|of| of.link == link) {
                    let _ = of.outbox.send(Event::frame(frame, Box::new(permit)));
                }
            }
            Net::Closed(link, reason) => {
                if let Some(of) = current.as_ref().filter(|of| of.link == link) {
                    let _ = of.outbox.send(Event::closed(reason));
                }
            }
            Net::Refused(reason) => complain(&format!("tidegate bench: {reason}\n")),
            Net::Failed(reason) => {
                let _ = visits.send(Err(anyhow::anyhow!("{reason}")));
            }
        }
    })
}

/// A link: of a controller that is new, or of the one that there is.
fn joined(
    current: &mut Option<Current>,
    visits: &Sender<Result<Visit>>,
    (link, peer, session): (u64, String, Option<u64>),
    sender: mpsc::Sender<Frame>,
) {
    let refuse = |reason: &str| {
        let _ = sender.try_send(Kind::Refuse(Reason { reason: reason.to_owned() }).into());
        complain(&format!("tidegate bench: {peer} was refused: {reason}\n"));
    };
    match (session, current.as_mut()) {
        (Some(session), Some(of)) if of.session == Some(session) => {
            of.link = link;
            let _ = of.outbox.send(Event::linked(link_of(sender)));
        }
        (Some(_), _) => {
            refuse("it does not know this run any more: it was started again, or has given the run up")
        }
        (None, Some(_)) => refuse("it has another controller; wait for the end of that run"),
        (None, None) => {
            let (outbox, inbox) = channel();
            *current = Some(Current { link, session: None, outbox: outbox.clone() });
            let _ = visits.send(Ok(Visit { peer, link: link_of(sender), outbox, inbox }));
        }
    }
}

impl Arguments {
    fn hello(&self) -> Hello {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Hello {
            protocol: PROTOCOL,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.name.clone().unwrap_or_else(host),
            // What an indexed job of Kubernetes says.
            index: self.index.or_else(|| std::env::var("JOB_COMPLETION_INDEX").ok()?.parse().ok()),
        }
    }
}

/// This machine, for one run.
struct Local<'a> {
    arguments: &'a Arguments,
    network: &'a Network,
    /// Whom this agent has dialled.
    peer: Option<&'a Peer>,
    current: &'a Mutex<Option<Current>>,
}

impl Machine for Local<'_> {
    fn prepare(&self, prepare: &Prepare) -> Result<(Scenario, Plan, Option<String>), String> {
        if let Some(current) = self.current.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            current.session = Some(prepare.session);
        }
        self.part(prepare).map_err(|error| format!("{error:#}"))
    }

    fn dial_again(&self, session: u64) {
        if let Some(peer) = self.peer.cloned() {
            self.network.spawn(|hub| rpc::dial_again(peer, Some(session), Net::Refused, hub));
        }
    }

    fn say(&self, sentence: &str) {
        complain(&format!("tidegate bench: {sentence}\n"));
    }
}

impl Local<'_> {
    fn part(&self, prepare: &Prepare) -> Result<(Scenario, Plan, Option<String>)> {
        let arguments = self.arguments;
        let folder = &arguments.folder;
        let loaded =
            load_for(&prepare.name, &prepare.text, folder, prepare.target.as_deref(), &ProcessEnvironment);
        let Some(mut scenario) = loaded.scenario else {
            let what = loaded.diagnostics.iter().find(|found| found.is_error());
            let what = what.map_or_else(String::new, Diagnostic::in_a_line);
            return Err(anyhow::anyhow!("it cannot read the scenario: {what}"));
        };
        let (users, rate) = (Some(prepare.users), Some(prepare.rate));
        let users = users.filter(|count| (1..=1_000_000).contains(count));
        let rate = rate.filter(|rate| *rate > 0.0 && rate.is_finite());
        scenario.resize(users, rate).map_err(anyhow::Error::msg)?;
        scenario.phases.steady = Duration::from_nanos(prepare.steady);
        let part = Part { index: prepare.index, of: prepare.of };
        let mine = part.share(u64::from(scenario.load.most_users())).max(1) as u32;
        let mut plan = Plan::new(Mix::build(&[Description::get(scenario.target.clone())], true, None)?);
        let all = estimate(&scenario, 1).connections;
        plan.connections = u32::try_from(all.div_ceil(u64::from(part.of))).unwrap_or(u32::MAX);
        plan.streams = scenario.client.streams;
        plan.seed = prepare.seed;
        plan.time = Some(scenario.phases.whole());
        plan.part = part;
        let generator = Generator {
            threads: arguments.threads,
            processes: None,
            sources: arguments.sources.clone(),
            timeout: scenario.client.timeout,
            grace: Some(Duration::from_nanos(prepare.grace)),
            give_up: Duration::from_nanos(prepare.give_up),
            tls: TlsManner {
                insecure: prepare.is_insecure,
                roots: arguments.roots.clone(),
                tls_resume: prepare.tls_resume.min(100) as u8,
                tls_version: prepare.tls_version.clone(),
                tls_classical: prepare.tls_classical,
            },
            part: None,
        };
        if generator.apply(&mut plan)? > 1 {
            return Err(anyhow::anyhow!(
                "its {mine} users have {} connections, more than its process may hold; raise `ulimit -n` there, or use more \
                 agents",
                plan.connections
            ));
        }
        plan.threads = arguments.threads.unwrap_or(plan.threads).clamp(1, mine);
        let agreed = preflight::reach(&plan)?;
        Ok((scenario, plan, agreed.map(|agreed| agreed.to_string())))
    }
}
