//! Agents that `ssh` starts for one run: `tidegate bench agent --stdio` there gets its keys by standard input, says on standard output which
//! version it is and where it listens, and ends with its input, whatever becomes of the controller.

use super::keys::{Pem, Security, Side};
use super::places::SshHost;
use super::rpc::Peer;
use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_bench::run::Stop;
use tidegate_bench::systems::Place;

/// Bytes of a line that is read of the other side.
const LINE: u64 = 64 << 10;

/// Lines that a login may print before the agent says where it is.
const GREETING: usize = 1_000;

/// For a look whether an address can be reached.
const PROBE: Duration = Duration::from_secs(2);

/// How long what an agent that has ended complained of may be on its way.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long agents have to end once their input has.
const END: Duration = Duration::from_secs(5);

/// What an agent says when it listens.
#[derive(Serialize, Deserialize)]
pub struct Announcement {
    /// The version of its program.
    pub version: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// How agents are started.
pub struct Orders<'o> {
    /// Tidegate there.
    pub program: &'o str,
    /// Where relative paths of scenarios begin there.
    pub folder: Option<&'o str>,
    /// The time that all of them have.
    pub patience: Duration,
    /// An interrupt.
    pub stop: &'o Stop,
}

/// Agents that were started; they end with this.
pub struct Started(Vec<Remote>);

/// One of them.
struct Remote {
    host: SshHost,
    child: Child,
    /// Held open: its end is the end of the agent.
    input: Option<ChildStdin>,
    announced: Receiver<Announcement>,
    /// What it, or ssh, complained of last.
    complaint: Arc<Mutex<String>>,
    /// Ends when nothing more is complained of.
    complaining: Receiver<()>,
}

/// Starts an agent on each host. Gives them, and where to dial them.
pub fn start(hosts: &[SshHost], orders: &Orders<'_>) -> Result<(Started, Vec<Peer>)> {
    let (ours, theirs) = super::keys::for_one_run(hosts.len())?;
    let security = ours.security(Side::Controller, |name| format!("{name} of this run"))?;
    let mut started = Started(Vec::with_capacity(hosts.len()));
    for (host, keys) in hosts.iter().zip(&theirs) {
        let remote = Remote::start(host, keys, orders);
        started.0.push(remote.with_context(|| format!("ssh:{}: the agent cannot be started", host.text))?);
    }
    let until = Instant::now() + orders.patience;
    let peers: Result<Vec<Peer>> =
        started.0.iter().map(|remote| remote.peer(&security, until, orders)).collect();
    Ok((started, peers?))
}

impl Remote {
    fn start(host: &SshHost, keys: &Pem, orders: &Orders<'_>) -> Result<Remote> {
        let mut words = ["bench", "agent", "--stdio"].map(str::to_owned).to_vec();
        words.extend(orders.folder.map(|folder| format!("--folder={folder}")));
        let place = Place::Ssh { host: host.destination.clone(), program: orders.program.to_owned() };
        // A group of its own, so that an interrupt from the terminal does not reach it.
        let mut child = place
            .tidegate(&words)?
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run ssh")?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (announce, announced) = channel();
        let complaint = Arc::new(Mutex::new(String::new()));
        let shared = complaint.clone();
        let (is_complaining, complaining) = channel();
        let mut remote = Remote { host: host.clone(), child, input, announced, complaint, complaining };
        let listen = move || {
            let mut lines = output.map(BufReader::new);
            for _ in 0..GREETING {
                let Some(line) = lines.as_mut().and_then(line) else { return };
                if let Ok(announcement) = serde_json::from_slice(&line) {
                    let _ = announce.send(announcement);
                    break;
                }
            }
            drop(announce);
            while lines.as_mut().and_then(line).is_some() {}
        };
        thread::Builder::new().name("agent-ssh".to_owned()).spawn(listen)?;
        let complain = move || {
            let _is_complaining: Sender<()> = is_complaining;
            let mut lines = errors.map(BufReader::new);
            while let Some(line) = lines.as_mut().and_then(line) {
                let text = String::from_utf8_lossy(&line);
                let text: String =
                    text.trim().chars().filter(|letter| !letter.is_control()).take(400).collect();
                if !text.is_empty() {
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = text;
                }
            }
        };
        thread::Builder::new().name("agent-ssh-err".to_owned()).spawn(complain)?;
        let mut text = serde_json::to_string(keys)?;
        text.push('\n');
        // One that has ended already says why by itself.
        let _ = remote.input.as_mut().map(|input| input.write_all(text.as_bytes()));
        Ok(remote)
    }

    /// Waits until it says where it is, and looks which of its addresses can be reached.
    fn peer(&self, security: &Security, until: Instant, orders: &Orders<'_>) -> Result<Peer> {
        let host = &self.host;
        let announcement = loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.announced.recv_timeout(left.min(Duration::from_millis(100))) {
                Ok(announcement) => break announcement,
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if orders.stop.is_stopped() => {
                    return Err(anyhow!("interrupted before the start; nothing was run"));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(anyhow!(
                        "ssh:{}: no agent was there after {}{}; nothing was run",
                        host.text,
                        tidegate_bench::quantity::show_duration(orders.patience),
                        self.complaint()
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let own = env!("CARGO_PKG_VERSION");
        if announcement.version != own {
            return Err(anyhow!(
                "ssh:{}: the agent is of version {}, and this controller of version {own}; use one version on all machines",
                host.text,
                announcement.version.escape_debug()
            ));
        }
        let port = announcement.address.port();
        let named = if host.host.contains(':') { format!("[{}]", host.host) } else { host.host.clone() };
        // Where ssh came to; behind a translation of addresses, what it was told.
        let places = [announcement.address.to_string(), format!("{named}:{port}")];
        let reached = places.iter().find(|place| {
            let found = place.to_socket_addrs().into_iter().flatten();
            found.take(4).any(|address| TcpStream::connect_timeout(&address, PROBE).is_ok())
        });
        let address = reached.ok_or_else(|| {
            anyhow!(
                "ssh:{}: the agent listens on {}, which cannot be reached from here; let TCP through, or start agents that \
                 dial (`--listen-agents`)",
                host.text,
                announcement.address
            )
        })?;
        Ok(Peer { address: address.clone(), security: security.clone() })
    }

    fn ended(&self) -> anyhow::Error {
        let _ = self.complaining.recv_timeout(LAST_WORDS);
        anyhow!(
            "ssh:{}: the agent ended before it was there{}; is Tidegate {} there (--agents-program)?",
            self.host.text,
            self.complaint(),
            env!("CARGO_PKG_VERSION")
        )
    }

    fn complaint(&self) -> String {
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        if complaint.is_empty() { String::new() } else { format!(": {complaint}") }
    }
}

/// All inputs end first, so that agents end at the same time; who does not is left to its own patience, and its ssh is ended.
impl Drop for Started {
    fn drop(&mut self) {
        for remote in &mut self.0 {
            drop(remote.input.take());
        }
        let until = Instant::now() + END;
        for remote in &mut self.0 {
            while matches!(remote.child.try_wait(), Ok(None)) {
                if Instant::now() >= until {
                    let _ = kill_process_group(Pid::from_child(&remote.child), Signal::KILL);
                    let _ = remote.child.wait();
                    break;
                }
                thread::park_timeout(Duration::from_millis(10)); // nobody unparks it
            }
        }
    }
}

/// A line, cut where it is too long; `None` at the end.
fn line(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let read = from.by_ref().take(LINE).read_until(b'\n', &mut out).ok()?;
    (read > 0).then_some(out)
}
