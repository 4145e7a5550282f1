//! `limit-store`: where several servers count together.

use super::Origin;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A Redis or Valkey in which servers tell each other what they have let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitStore {
    /// Where it listens.
    pub address: SocketAddr,
    /// The number of its database.
    pub database: u32,
    /// As whom the server logs in there; `None`: as nobody in particular.
    pub user: Option<String>,
    /// With which password; `None`: without.
    pub password: Option<String>,
    /// Where it was read.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub password_file: Option<PathBuf>,
    /// What all keys there begin with. Servers with the same one count together.
    pub prefix: String,
    /// How many servers there are, as long as the store has not said.
    pub nodes: u32,
    /// Where it was written.
    pub origin: Origin,
}

impl LimitStore {
    /// Whether two say the same, wherever they stand.
    pub fn is_same_as(&self, other: &LimitStore) -> bool {
        Self { origin: other.origin.clone(), ..self.clone() } == *other
    }
}
