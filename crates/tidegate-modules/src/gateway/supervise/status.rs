//! How pools stand, for the operator.

use crate::gateway::places::Demand;
use crate::gateway::pool_directory::{PoolAddress, PoolPhase};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A pool as the supervisor sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name in the settings.
    pub name: String,
    /// How it is.
    pub phase: PoolPhase,
    /// Its processes; none for an application that is not ours to watch.
    pub processes: Vec<ProcessStatus>,
    /// Processes that ended without being asked to, or had to be ended.
    pub restarts: u64,
    /// How the last of them ended.
    pub last_failure: Option<String>,
    /// While it is down: when it may be up again.
    pub retry_after: Option<Duration>,
    /// What the workers have told of it last.
    pub demand: Demand,
    /// Of a pool of PHP that serves: its cache of compiled scripts.
    pub opcache: Option<OpcacheStatus>,
}

/// The cache of compiled scripts that the processes of PHP share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpcacheStatus {
    /// How it is, in a word.
    pub state: OpcacheState,
    /// What is the matter where it is [`OpcacheState::Unknown`].
    pub why: Option<String>,
    /// Its figures, where it tells them.
    pub figures: Option<OpcacheFigures>,
    /// How long ago it was told.
    pub age: Duration,
}

/// How OPcache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpcacheState {
    /// It is in use.
    On,
    /// It is there and not in use (`opcache.enable`).
    Off,
    /// PHP has none, or its functions are disabled.
    Absent,
    /// It tells nobody (`opcache.restrict_api`).
    Restricted,
    /// It could not be asked.
    Unknown,
}

impl OpcacheState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            OpcacheState::On => "on",
            OpcacheState::Off => "off",
            OpcacheState::Absent => "absent",
            OpcacheState::Restricted => "restricted",
            OpcacheState::Unknown => "unknown",
        }
    }
}

/// What OPcache tells of itself, since the parent of its processes was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpcacheFigures {
    /// Bytes in use.
    pub used: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes of scripts that have changed since: lost until it restarts.
    pub wasted: u64,
    /// Scripts found in it.
    pub hits: u64,
    /// Scripts that had to be compiled.
    pub misses: u64,
    /// Scripts in it.
    pub scripts: u64,
    /// Times that it was emptied for want of memory.
    pub restarts_out_of_memory: u64,
    /// Times that it was emptied since it had no room for another name.
    pub restarts_hash: u64,
    /// Times that a script had it emptied.
    pub restarts_manual: u64,
}

/// A process of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Process number; `None`: its keeper is about to start it.
    pub pid: Option<u32>,
    /// What it does, in a word or two.
    pub state: String,
    /// Since it was started.
    pub age: Duration,
    /// Requests taken to it; a share where processes have one socket.
    pub requests: u64,
    /// Where it listens.
    pub address: PoolAddress,
}
