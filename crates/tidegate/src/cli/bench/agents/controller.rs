//! `tidegate bench run --agents`: the controller, on the links of its agents.

use super::super::super::complain;
use super::super::load::TlsManner;
use super::super::output::RunOptions;
use super::super::wrong;
use super::Network;
use super::keys::{Security, SecurityOptions, Side};
use super::rpc::{self, Inbox, Net};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tidegate_bench::agent::controller::{Controller, Orders, Send};
use tidegate_bench::agent::messages::{Frame, Prepare};
use tidegate_bench::agent::{MOST_AGENTS, MOST_SCENARIO};
use tidegate_bench::monotonic_ns;
use tidegate_bench::plan::Plan;
use tidegate_bench::quantity;
use tidegate_bench::run::{Progress, Stop};
use tidegate_bench::scenario::record::{Outcome, Second};
use tidegate_bench::scenario::{Load, Scenario};
use tidegate_bench::systems::Start;
use tokio::sync::mpsc;

/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(50);

/// The machines that make the load.
#[derive(Args, Clone)]
#[command(next_help_heading = "Several machines")]
pub struct AgentOptions {
    /// Agents to dial, `host1:7400,host2:7400`; with --listen-agents their number
    #[arg(long, value_name = "AGENTS", value_delimiter = ',')]
    agents: Vec<String>,
    /// Wait on this address for agents that dial
    #[arg(long, value_name = "ADDRESS", requires = "agents")]
    listen_agents: Option<SocketAddr>,
    /// How long agents are waited for
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::duration)]
    agents_patience: Duration,
    #[command(flatten)]
    security: SecurityOptions,
}

/// Where the agents are.
enum Place {
    Listen(SocketAddr, usize),
    Dial(Vec<String>),
}

impl AgentOptions {
    /// Whether there are any.
    pub fn are_wanted(&self) -> bool {
        !self.agents.is_empty()
    }

    /// So many.
    pub fn count(&self) -> Result<usize> {
        Ok(match self.place()? {
            Place::Listen(_, count) => count,
            Place::Dial(addresses) => addresses.len(),
        })
    }

    fn place(&self) -> Result<Place> {
        let bounds = || wrong(format!("a run has 1 to {MOST_AGENTS} agents"));
        if let Some(address) = self.listen_agents {
            let count = match self.agents.as_slice() {
                [number] => number.parse().ok(),
                _ => None,
            };
            let count = count
                .ok_or_else(|| wrong("with --listen-agents, --agents is a number: how many will dial"))?;
            return if (1..=MOST_AGENTS).contains(&count) {
                Ok(Place::Listen(address, count))
            } else {
                Err(bounds())
            };
        }
        if let Some(text) = self.agents.iter().find(|agent| !agent.contains(':')) {
            return Err(wrong(format!(
                "--agents {text}: write host and port, `host1:7400`; a number goes with --listen-agents"
            )));
        }
        if self.agents.len() > MOST_AGENTS {
            return Err(bounds());
        }
        Ok(Place::Dial(self.agents.clone()))
    }

    /// What all agents are told.
    pub fn prepare(
        &self,
        file: &Path,
        text: &[u8],
        target: Option<&str>,
        scenario: &Scenario,
        plan: &Plan,
    ) -> Prepare {
        let (users, rate) = match &scenario.load {
            Load::Users(users) => (users.count, 0.0),
            Load::Visits(visits) => (0, visits.rate),
        };
        Prepare {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            name: file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            text: text.to_vec(),
            target: target.map(str::to_owned),
            users,
            rate,
            steady: scenario.phases.steady.as_nanos() as u64,
            seed: plan.seed,
            grace: plan.drain.as_nanos() as u64,
            give_up: plan.give_up.as_nanos() as u64,
            ..Prepare::default()
        }
    }

    /// Runs a scenario on the agents. `observe` gets each second, `begins` the time of the start.
    pub fn run(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        (mut prepare, tls): (Prepare, &TlsManner),
        (stop, conduct, begins): (&Stop, &RunOptions, &Start),
        mut observe: impl FnMut(&Second),
    ) -> Result<Outcome> {
        if tls.roots.is_some() {
            return Err(wrong(
                "--roots names a file of this machine; name one on each agent, `bench agent --roots FILE`",
            ));
        }
        if prepare.text.len() > MOST_SCENARIO {
            return Err(anyhow!("a scenario for agents has at most {MOST_SCENARIO} bytes"));
        }
        prepare.is_insecure = tls.insecure;
        prepare.tls_resume = u32::from(tls.tls_resume);
        prepare.tls_version.clone_from(&tls.tls_version);
        prepare.tls_classical = tls.tls_classical;
        let security = self.security.security(Side::Controller)?;
        let (sender, inbox) = channel();
        let sender: Inbox = Arc::new(move |event| {
            // Where the receiver is gone the run is over.
            let _ = sender.send(event);
        });
        let place = self.place()?;
        let agents = self.count()?;
        let network = self.network(place, security, sender)?;
        let live = conduct.live(plan);
        let observe = |progress: Progress, second: &Second| {
            live.show(progress);
            observe(second);
        };
        let orders = Orders { scenario, prepare, agents, patience: self.agents_patience };
        let controller = Controller::new(orders, monotonic_ns(), observe);
        let outcome = drive(controller, &inbox, (stop, begins), conduct.quiet);
        live.clear();
        drop(network);
        outcome
    }

    fn network(&self, place: Place, security: Security, inbox: Inbox) -> Result<Network> {
        let patience = self.agents_patience;
        match place {
            Place::Listen(address, count) => {
                let listener = super::bind(address, &security)?;
                let at = listener.local_addr().context("cannot find the own address")?;
                complain(&format!("tidegate bench: waiting for {count} agents on {at}\n"));
                Network::start(async move {
                    match tokio::net::TcpListener::from_std(listener) {
                        Ok(listener) => rpc::listen(listener, security, inbox).await,
                        Err(error) => inbox(Net::Failed(format!("cannot listen: {error}"))),
                    }
                })
            }
            Place::Dial(addresses) => {
                for address in &addresses {
                    address.to_socket_addrs().with_context(|| format!("--agents {address}"))?;
                }
                Network::start(async move {
                    for address in addresses {
                        tokio::spawn(rpc::dial(address, security.clone(), patience, inbox.clone()));
                    }
                })
            }
        }
    }
}

/// Links, and who is behind them.
type Links = HashMap<u64, mpsc::Sender<Frame>>;

fn drive<O: FnMut(Progress, &Second)>(
    mut controller: Controller<'_, O>,
    inbox: &Receiver<Net>,
    (stop, begins): (&Stop, &Start),
    is_quiet: bool,
) -> Result<Outcome> {
    let mut links = Links::new();
    let result = loop {
        let told = match inbox.recv_timeout(TICK) {
            Ok(event) => take(&mut controller, &mut links, event),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("the links have ended")),
        };
        let told = told.and_then(|()| Ok(controller.tick(monotonic_ns(), stop.is_stopped())?));
        let told = told.and(send(&mut controller, &mut links));
        if let Some(start) = controller.start() {
            begins.get_or_init(|| start);
        }
        for sentence in controller.said() {
            if !is_quiet {
                complain(&format!("tidegate bench: {sentence}\n"));
            }
        }
        match told {
            Err(error) => break Err(error),
            Ok(()) if controller.is_over() => break Ok(()),
            Ok(()) => {}
        }
    };
    // What was still to be said, such as why not.
    let _ = send(&mut controller, &mut links);
    result?;
    controller.finish().ok_or_else(|| anyhow!("nothing was run"))
}

fn take<O: FnMut(Progress, &Second)>(
    controller: &mut Controller<'_, O>,
    links: &mut Links,
    event: Net,
) -> Result<()> {
    let now = monotonic_ns();
    match event {
        Net::Joined { link, peer, sender } => {
            links.insert(link, sender);
            controller.joined(link, peer, now);
        }
        Net::Frame(link, frame, permit) => {
            controller.frame(link, frame, now)?;
            drop(permit);
        }
        Net::Closed(link, reason) => {
            links.remove(&link);
            controller.closed(link, &reason, now)?;
        }
        Net::Refused(reason) => complain(&format!("tidegate bench: {reason}\n")),
        Net::Failed(reason) => return Err(anyhow!("{reason}; nothing was run")),
    }
    Ok(())
}

fn send<O: FnMut(Progress, &Second)>(controller: &mut Controller<'_, O>, links: &mut Links) -> Result<()> {
    loop {
        let sends = controller.sends();
        if sends.is_empty() {
            return Ok(());
        }
        let mut stuck = Vec::new();
        for send in sends {
            match send {
                Send::Frame(link, frame) => {
                    if links.get(&link).is_some_and(|sender| sender.try_send(frame).is_err()) {
                        stuck.push(link);
                    }
                }
                Send::Close(link) => drop(links.remove(&link)),
            }
        }
        for link in stuck {
            controller.closed(link, "it takes no more messages", monotonic_ns())?;
        }
    }
}
