//! What is said of pools between the supervisor in the master and the workers, in a form that can be sent over a link between
//! processes: [`PoolUpdate`]s one way, [`PoolDemand`]s the other.

use super::places::Demand;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_io::connect::Address;

/// Where a pool, or one process of it, listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PoolAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl From<PoolAddress> for Address {
    fn from(address: PoolAddress) -> Address {
        match address {
            PoolAddress::Tcp(address) => Address::Tcp(address),
            PoolAddress::Unix(path) => Address::Unix(path.into()),
        }
    }
}

impl From<Address> for PoolAddress {
    fn from(address: Address) -> PoolAddress {
        match address {
            Address::Tcp(address) => PoolAddress::Tcp(address),
            Address::Unix(path) => PoolAddress::Unix(path.to_path_buf()),
        }
    }
}

impl fmt::Display for PoolAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Address::from(self.clone()).fmt(f)
    }
}

/// How a pool is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolPhase {
    /// Its first processes are on their way.
    Starting,
    /// It serves.
    Up,
    /// No process runs, and one is started when somebody asks.
    Idle,
    /// Its processes end as soon as they are started; the next attempt is a while away.
    Failing,
    /// It is being ended.
    Stopping,
}

impl PoolPhase {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            PoolPhase::Starting => "starting",
            PoolPhase::Up => "up",
            PoolPhase::Idle => "idle",
            PoolPhase::Failing => "failing",
            PoolPhase::Stopping => "stopping",
        }
    }
}

/// A process of a pool, or several that share a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMember {
    /// Where it listens; no two members of a pool have the same.
    pub address: PoolAddress,
    /// Requests that it takes at once: of all server processes, and in what one of them is told of this one.
    pub places: usize,
    /// Those of all server processes.
    #[serde(default)]
    pub whole: usize,
}

/// What the supervisor says of a pool: all of it, each time something has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUpdate {
    /// Its name in the settings.
    pub name: String,
    /// Rises with each update; demands say which one they know.
    pub sequence: u64,
    /// Rises with each division of the places among server processes that this one is told of, and goes back with its demands.
    pub division: u64,
    /// Those that take requests now. One that is left out gets no further ones and ends those it has.
    pub members: Vec<PoolMember>,
    /// Its processes are started here, and one that has ended is replaced.
    #[serde(default)]
    pub is_supervised: bool,
    /// Places that it may come to have of all server processes: those of as many processes as there may be. 0 where that is not known.
    #[serde(default)]
    pub most_places: usize,
    /// A member that has left a request without an answer until its deadline is ended: it gets no further ones.
    pub ends_hung: bool,
    /// Sockets of its own that no process accepts connections on: what waits in their backlogs is dropped before another
    /// process gets them.
    pub unattended: Vec<PoolAddress>,
    /// Requests that may wait before it.
    pub queue_length: usize,
    /// How long one may wait.
    pub queue_age: Duration,
    /// How it is.
    pub phase: PoolPhase,
    /// Set while it is down: when the next attempt is due.
    pub retry_after: Option<Duration>,
}

/// What the workers want of a pool, and what they know of its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDemand {
    /// Its name.
    pub name: String,
    /// The last update taken in.
    pub sequence: u64,
    /// The last division of the places taken in.
    pub division: u64,
    /// What is wanted.
    pub demand: Demand,
    /// Each member, and each that was left out and still has requests.
    pub members: Vec<MemberDemand>,
}

impl PoolDemand {
    /// Adds what the workers of another process want. The update that both know is the older one.
    pub fn merge(&mut self, other: &PoolDemand) {
        self.sequence = self.sequence.min(other.sequence);
        self.demand.merge(&other.demand);
        for theirs in &other.members {
            match self.members.iter_mut().find(|member| member.address == theirs.address) {
                Some(member) => {
                    member.in_use += theirs.in_use;
                    member.requests += theirs.requests;
                    member.answered += theirs.answered;
                    member.hung += theirs.hung;
                }
                None => self.members.push(theirs.clone()),
            }
        }
    }
}

/// What the workers know of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDemand {
    /// Where it listens.
    pub address: PoolAddress,
    /// Requests under way.
    pub in_use: usize,
    /// Requests taken to it since it was named first.
    pub requests: u64,
    /// Requests that it has answered.
    pub answered: u64,
    /// Requests that it has left without an answer until their deadline.
    pub hung: u64,
}
