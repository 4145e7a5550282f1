//! `dns`: who is asked for names and addresses, and what is remembered of clients' names.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Who is asked, and how much is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Name servers, in order; where there are none, those of the machine (`/etc/resolv.conf`).
    pub servers: Vec<SocketAddr>,
    /// How long a client's name may take, with all that is asked for it.
    pub timeout: Duration,
    /// How long an answer about a client is remembered at most.
    pub lifetime: Duration,
    /// Clients that are remembered in each server process.
    pub entries: usize,
    /// Clients that are being asked for at once in each server process.
    pub queries: usize,
}

impl Default for Dns {
    fn default() -> Dns {
        Dns {
            servers: Vec::new(),
            timeout: Duration::from_secs(2),
            lifetime: Duration::from_secs(600),
            entries: 10_000,
            queries: 256,
        }
    }
}
