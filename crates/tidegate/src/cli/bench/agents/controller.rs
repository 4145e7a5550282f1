//! `tidegate bench run --agents`: the controller, on the links of its agents.

use super::super::super::complain;
use super::super::load::TlsManner;
use super::super::output::RunOptions;
use super::super::wrong;
use super::Network;
use super::keys::{Security, SecurityOptions, Side};
use super::places::{self, Place, SshHost};
use super::rpc::{self, Inbox, Net, Peer};
use super::ssh;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tidegate_bench::agent::MOST_SCENARIO;
use tidegate_bench::agent::controller::{Controller, Orders, Send};
use tidegate_bench::agent::messages::{Frame, Prepare};
use tidegate_bench::monotonic_ns;
use tidegate_bench::plan::Plan;
use tidegate_bench::quantity;
use tidegate_bench::run::{Progress, Stop};
use tidegate_bench::scenario::record::{Outcome, Second};
use tidegate_bench::scenario::{Load, Scenario};
use tidegate_bench::systems::{Start, Tables};
use tokio::sync::mpsc;

/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(50);

/// The machines that make the load.
#[derive(Args, Clone)]
#[command(next_help_heading = "Several machines")]
pub struct AgentOptions {
    /// Agents to dial, `host1:7400,host2:7400`, or to start by ssh, `ssh:user@host3`; with --listen-agents their number
    #[arg(long, value_name = "AGENTS", value_delimiter = ',')]
    agents: Vec<String>,
    /// Wait on this address for agents that dial
    #[arg(long, value_name = "ADDRESS", requires = "agents")]
    listen_agents: Option<SocketAddr>,
    /// How long agents are waited for
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::duration, requires = "agents")]
    agents_patience: Duration,
    /// Tidegate on hosts that ssh reaches
    #[arg(long, value_name = "PROGRAM", default_value = "tidegate", requires = "agents")]
    agents_program: String,
    /// Where relative paths of the scenario begin there [default: where ssh comes to, the home]
    #[arg(long, value_name = "FOLDER", requires = "agents")]
    agents_folder: Option<String>,
    #[command(flatten)]
    security: SecurityOptions,
}

/// What is around a run.
pub struct Around<'a> {
    /// An interrupt.
    pub stop: &'a Stop,
    /// What is shown meanwhile.
    pub conduct: &'a RunOptions,
    /// Told when it begins.
    pub begins: &'a Start,
    /// The folder of the run, where there is one.
    pub folder: Option<&'a Path>,
}

impl AgentOptions {
    /// Whether there are any.
    pub fn are_wanted(&self) -> bool {
        !self.agents.is_empty()
    }

    /// Where this machine makes the load, that nothing speaks of agents.
    pub fn are_not_meant(&self) -> Result<()> {
        let option = match &self.security {
            SecurityOptions { keys: Some(_), .. } => "--keys",
            SecurityOptions { insecure_loopback: true, .. } => "--insecure-loopback",
            _ => return Ok(()),
        };
        Err(wrong(format!(
            "{option} is of agents, and there are none: name them with --agents, or leave it out"
        )))
    }

    /// So many.
    pub fn count(&self) -> Result<usize> {
        match self.listen_agents {
            Some(_) => places::number(&self.agents),
            None => Ok(places::dialled(&self.agents)?.len()),
        }
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

    /// Runs a scenario on the agents. `observe` gets each second.
    pub fn run(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        (mut prepare, tls): (Prepare, &TlsManner),
        around: &Around<'_>,
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
        let agents = self.count()?;
        let (sender, inbox) = channel();
        let sender: Inbox = Arc::new(move |event| {
            // Where the receiver is gone the run is over.
            let _ = sender.send(event);
        });
        // They end after the links, which are declared behind them.
        let (_started, peers) = self.peers(around.stop)?;
        let network = Network::start(sender)?;
        if let Some(address) = self.listen_agents {
            let security = self.security.security(Side::Controller)?;
            let listener = super::bind(address, &security)?;
            let at = listener.local_addr().context("cannot find the own address")?;
            complain(&format!("tidegate bench: waiting for {agents} agents on {at}\n"));
            network.listen(listener, security);
        }
        for peer in &peers {
            network.spawn(|hub| rpc::dial(peer.clone(), self.agents_patience, hub));
        }
        let live = around.conduct.live(plan);
        let observe = |progress: Progress, second: &Second| {
            live.show(progress);
            observe(second);
        };
        let orders = Orders {
            scenario,
            prepare,
            agents,
            patience: self.agents_patience,
            dialled: peers.iter().map(|peer| peer.address.clone()).collect(),
            secret: RandomState::new().hash_one(monotonic_ns()),
        };
        let mut links = Links { network: &network, peers: &peers, senders: HashMap::new() };
        let controller = Controller::new(orders, monotonic_ns(), observe);
        let tables = around.folder.map(|folder| Tables::new(folder, &scenario.systems));
        let outcome = drive(controller, &inbox, &mut links, around, tables);
        live.clear();
        outcome
    }

    /// Whom to dial, in the order of the list. Those that ssh starts are there by then, and end with what is given beside.
    fn peers(&self, stop: &Stop) -> Result<(Option<ssh::Started>, Vec<Peer>)> {
        if self.listen_agents.is_some() {
            return Ok((None, Vec::new()));
        }
        let places = places::dialled(&self.agents)?;
        let is_address = |place: &Place| matches!(place, Place::Address(_));
        let security =
            places.iter().any(is_address).then(|| self.security.security(Side::Controller)).transpose()?;
        let hosts: Vec<SshHost> = places
            .iter()
            .filter_map(|place| match place {
                Place::Ssh(host) => Some(host.clone()),
                Place::Address(_) => None,
            })
            .collect();
        for (number, place) in places.iter().enumerate() {
            let Place::Address(address) = place else { continue };
            if places.iter().take(number).any(|before| before == place) {
                return Err(wrong(format!("--agents has {address} twice")));
            }
            let at = address.to_socket_addrs().with_context(|| format!("--agents {address}"))?;
            if matches!(security, Some(Security::Plain)) {
                super::only_of_this_machine(at, address)?;
            }
        }
        let (started, by_ssh) = if hosts.is_empty() {
            (None, Vec::new())
        } else {
            let orders = ssh::Orders {
                program: &self.agents_program,
                folder: self.agents_folder.as_deref(),
                patience: self.agents_patience,
                stop,
            };
            let (started, peers) = ssh::start(&hosts, &orders)?;
            (Some(started), peers)
        };
        let mut by_ssh = by_ssh.into_iter();
        let peers = places.into_iter().filter_map(|place| match place {
            Place::Ssh(_) => by_ssh.next(),
            Place::Address(address) => security.clone().map(|security| Peer { address, security }),
        });
        Ok((started, peers.collect()))
    }
}

/// Links, who is behind them, and who can be dialled again.
struct Links<'n> {
    network: &'n Network,
    peers: &'n [Peer],
    senders: HashMap<u64, mpsc::Sender<Frame>>,
}

fn drive<O: FnMut(Progress, &Second)>(
    mut controller: Controller<'_, O>,
    inbox: &Receiver<Net>,
    links: &mut Links<'_>,
    around: &Around<'_>,
    mut tables: Option<Tables>,
) -> Result<Outcome> {
    let result = loop {
        let told = match inbox.recv_timeout(TICK) {
            Ok(event) => take(&mut controller, links, event),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("the links have ended")),
        };
        let told = told.and_then(|()| Ok(controller.tick(monotonic_ns(), around.stop.is_stopped())?));
        let told = told.and(send(&mut controller, links));
        if let Some(start) = controller.start() {
            around.begins.get_or_init(|| start);
        }
        for watched in controller.watched() {
            if let Some(tables) = &mut tables {
                tables.add(&watched.system, watched.at, &watched.figures);
            }
        }
        for sentence in controller.said() {
            if !around.conduct.quiet {
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
    let _ = send(&mut controller, links);
    // Each ends when the agent has taken in what was sent.
    links.senders.clear();
    result?;
    let mut outcome = controller.finish().ok_or_else(|| anyhow!("nothing was run"))?;
    outcome.notes.extend(tables.map(Tables::finish).unwrap_or_default());
    Ok(outcome)
}

fn take<O: FnMut(Progress, &Second)>(
    controller: &mut Controller<'_, O>,
    links: &mut Links<'_>,
    event: Net,
) -> Result<()> {
    let now = monotonic_ns();
    match event {
        Net::Joined { link, peer, session, sender } => {
            links.senders.insert(link, sender);
            controller.joined(link, peer, session, now);
        }
        Net::Frame(link, frame, permit) => {
            controller.frame(link, frame, now)?;
            drop(permit);
        }
        Net::Closed(link, reason) => {
            links.senders.remove(&link);
            controller.closed(link, &reason, now)?;
        }
        Net::Refused(reason) => complain(&format!("tidegate bench: {reason}\n")),
        Net::Failed(reason) => return Err(anyhow!("{reason}; nothing was run")),
    }
    Ok(())
}

fn send<O: FnMut(Progress, &Second)>(
    controller: &mut Controller<'_, O>,
    links: &mut Links<'_>,
) -> Result<()> {
    loop {
        let sends = controller.sends();
        if sends.is_empty() {
            return Ok(());
        }
        let mut stuck = Vec::new();
        for send in sends {
            match send {
                Send::Frame(link, frame) => {
                    if links.senders.get(&link).is_some_and(|sender| sender.try_send(frame).is_err()) {
                        stuck.push(link);
                    }
                }
                Send::Close(link) => drop(links.senders.remove(&link)),
                Send::Dial { peer, session } => {
                    if let Some(peer) = links.peers.iter().find(|known| known.address == peer).cloned() {
                        links.network.spawn(|hub| rpc::dial_again(peer, session, Net::Refused, hub));
                    }
                }
            }
        }
        for link in stuck {
            controller.closed(link, "it takes no more messages", monotonic_ns())?;
        }
    }
}
