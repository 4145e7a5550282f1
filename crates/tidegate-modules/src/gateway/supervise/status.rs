//! How pools stand, for the operator.

use crate::gateway::board::{PoolAddress, PoolPhase};
use crate::gateway::places::Demand;
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
}

/// A process of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Process number.
    pub pid: u32,
    /// What it does, in a word or two.
    pub state: String,
    /// Since it was started.
    pub age: Duration,
    /// Requests taken to it; a share where processes have one socket.
    pub requests: u64,
    /// Where it listens.
    pub address: PoolAddress,
}
