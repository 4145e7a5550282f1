//! The admin API: where it is reached, and whom its process becomes.

use super::{Origin, User};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `admin { … }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Admin {
    /// A unix socket for the server's own user and root.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub socket: Option<PathBuf>,
    /// Whom its process becomes where the server is started as root.
    pub user: Option<User>,
    /// Addresses of this machine, each with its token.
    pub listeners: Vec<AdminListener>,
    /// Where it was written.
    pub origin: Origin,
}

/// `listen "127.0.0.1:9443" token-file="/etc/tidegate/admin.token"`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminListener {
    /// A loopback address.
    pub address: SocketAddr,
    /// What every request has to show stands in its first line. The token itself is no part of the settings, which server
    /// processes have.
    #[serde(with = "crate::path_encoding::path")]
    pub token_file: PathBuf,
}

/// The least bytes of a token.
pub const TOKEN_LEAST: usize = 32;

/// The token in a file: its first line, without what surrounds it. `None`: it is shorter than [`TOKEN_LEAST`], or holds what no
/// field of HTTP does.
pub fn read_token(bytes: &[u8]) -> Option<&[u8]> {
    let token = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    (token.len() >= TOKEN_LEAST && token.iter().all(u8::is_ascii_graphic)).then_some(token)
}
