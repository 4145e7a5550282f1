//! What a controller knows of one agent: its link, how far it has come, what it has told, and what its machine was like.

use super::messages::{Figures, Frame, Kind, Totals};
use super::offset::Offset;
use super::record::{self, Bounds, RecordError};
use crate::record::Times;
use crate::scenario::SecondOfWorker;
use crate::scenario::record::{Agent, AgentHost};
use sha2::{Digest, Sha256};

/// How far an agent has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Connected, and has said nothing.
    Silent,
    /// Was there, and its link was lost before the start.
    Away,
    /// Has said who it is.
    There,
    Preparing,
    Pinged(u32),
    Measured,
    Running,
    /// Has told everything, and does not know yet that all was taken in.
    Done,
    /// Knows it, or was silent for too long.
    Left,
    Lost,
}

/// What links of an agent name, of which no agent can tell that of another.
pub(super) fn session(secret: u64, index: u32) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(secret.to_be_bytes());
    hasher.update(index.to_be_bytes());
    hasher.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The link to an agent.
#[derive(Debug)]
pub(super) enum Link {
    /// There is one: its number, and the monotonic nanoseconds since when.
    Up(u64, u64),
    /// It was lost, and why.
    Down(String),
}

/// An agent.
#[derive(Debug)]
pub(super) struct Member {
    pub link: Link,
    /// Where it is.
    pub peer: String,
    pub name: String,
    pub index: Option<u32>,
    pub stage: Stage,
    /// What another link of its run names.
    pub session: u64,
    /// How often its link was lost under load.
    pub breaks: u32,
    /// How often it was lost before.
    pub rejoins: u32,
    /// Monotonic nanoseconds since which it is away, before the start.
    pub away: Option<u64>,
    pub threads: u32,
    pub tls: Option<String>,
    /// Monotonic nanoseconds at which it was heard last.
    pub heard: u64,
    pub is_suspect: bool,
    pub offset: Offset,
    pub bounds: Bounds,
    pub totals: Totals,
    /// Numbered frames of it that are taken in: the number of the next.
    pub taken: u64,
    pub memory: u64,
    lateness: Times,
    /// Requests that failed for want of its descriptors or ports.
    starved: u64,
    host: Option<HostSum>,
}

/// What its machine was like, added up.
#[derive(Debug, Clone, Copy, Default)]
struct HostSum {
    /// Nanoseconds from the start of the run of what was told last.
    at: u64,
    count: u32,
    busy: f64,
    run_queue: f64,
    retransmits: f64,
}

impl Member {
    pub fn new(link: u64, peer: String, operations: Vec<usize>, now: u64) -> Member {
        Member {
            link: Link::Up(link, now),
            peer,
            name: String::new(),
            index: None,
            stage: Stage::Silent,
            session: 0,
            breaks: 0,
            rejoins: 0,
            away: None,
            threads: 0,
            tls: None,
            heard: now,
            is_suspect: false,
            offset: Offset::default(),
            bounds: Bounds { first_worker: 0, seconds: Vec::new(), operations, users: 0, open: 0, length: 0 },
            totals: Totals::default(),
            taken: 0,
            memory: 0,
            lateness: Times::default(),
            starved: 0,
            host: None,
        }
    }

    /// The link that there is.
    pub fn link(&self) -> Option<u64> {
        match &self.link {
            Link::Up(link, _) => Some(*link),
            Link::Down(_) => None,
        }
    }

    /// Monotonic nanoseconds since which nothing was heard of it over the link that there is.
    pub fn quiet_since(&self) -> u64 {
        match &self.link {
            Link::Up(_, since) => self.heard.max(*since),
            Link::Down(_) => self.heard,
        }
    }

    pub fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    /// Whether its link is of use after the start: it tells, or waits to be told that all was taken in.
    pub fn needs_link(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Done)
    }

    /// Whether it has said who it is, though its link may be away.
    pub fn has_come(&self) -> bool {
        self.stage != Stage::Silent || self.away.is_some()
    }

    /// Takes part again, over another link, as if it had not been there before; its number stays its own.
    pub fn rejoin(&mut self, link: u64, peer: String, now: u64) {
        self.link = Link::Up(link, now);
        (self.peer, self.heard, self.stage) = (peer, now, Stage::Silent);
        self.offset = Offset::default();
    }

    /// What reports call it.
    pub fn title(&self) -> String {
        let number = self.index.map_or_else(|| "agent".to_owned(), |index| format!("agent {}", index + 1));
        if self.name.is_empty() {
            return format!("{number} at {}", self.peer);
        }
        format!("{number} ({}, {})", self.name, self.peer)
    }

    /// What files of its machine's figures are called.
    pub fn system(&self) -> String {
        let number = self.index.unwrap_or(0) + 1;
        let name = if self.name.is_empty() { &self.peer } else { &self.name };
        format!("agent-{number}-{name}")
    }

    /// Adds a second that it has told; `None` where it is more than a run can have.
    pub fn add(&mut self, second: &SecondOfWorker) -> Option<()> {
        self.totals.add(second)?;
        self.lateness.add(&second.requests.lateness);
        let failures = second.requests.counts.failures.iter();
        let starved = failures.filter(|(kind, _)| kind.is_ours()).map(|(_, count)| *count);
        self.starved = starved.fold(self.starved, u64::saturating_add);
        Some(())
    }

    /// Adds figures of its machine. Gives when they were taken, seconds from the start of the run, and all of them.
    pub fn watch(&mut self, figures: Figures) -> Result<(f64, crate::systems::Figures), RecordError> {
        let before = self.host.unwrap_or_default();
        let at = figures.at;
        let figures = record::figures(figures, self.bounds.length)?;
        let of = |name: &str| figures.iter().find(|figure| figure.0 == name).map_or(0.0, |figure| figure.1);
        let idle =
            figures.iter().filter(|(name, _)| name.starts_with("cpu.") && name.ends_with(".idle_share"));
        let (count, idle) = idle.fold((0u32, 0.0), |(count, sum), figure| (count + 1, sum + figure.1));
        let busy = if count == 0 { 0.0 } else { (1.0 - idle / f64::from(count)).clamp(0.0, 1.0) };
        let seconds = at.saturating_sub(before.at) as f64 / 1e9;
        self.host = Some(HostSum {
            at,
            count: before.count.saturating_add(1),
            busy: before.busy + busy,
            run_queue: before.run_queue.max(of("tasks.running")),
            retransmits: before.retransmits + of("tcp.retransmits").max(0.0) * seconds,
        });
        Ok((at as f64 / 1e9, figures))
    }

    /// A frame for it, where there is a link.
    pub fn frame(&self, kind: Kind) -> Option<(u64, Frame)> {
        Some((self.link()?, kind.into()))
    }

    /// What the record of the run has of it.
    pub fn told(&self) -> Agent {
        Agent {
            title: self.title(),
            first_worker: self.bounds.first_worker,
            threads: self.threads,
            operations: self.totals.operations,
            round_trip: self.offset.round_trip(),
            lateness: self.lateness.clone(),
            starved: self.starved,
            host: self.host.filter(|host| host.count > 0).map(|host| AgentHost {
                busy: host.busy / f64::from(host.count),
                run_queue: host.run_queue as u64,
                retransmits: host.retransmits.round() as u64,
            }),
        }
    }
}
