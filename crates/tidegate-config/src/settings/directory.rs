//! `ldap`: a directory that knows users (RFC 4511).

use super::gateway::BackendTls;
use super::{Filter, Origin};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A directory, as `ldap "ldaps://a.example" { … }` names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directory {
    /// Servers with the same content, best first; one at least.
    pub servers: Vec<DirectoryServer>,
    /// The DN below which users are.
    pub base: String,
    /// What finds a user by name.
    pub filter: Filter,
    /// The attribute with the name that a user goes by.
    pub name: String,
    /// Who searches; `None` searches without a name.
    pub bind: Option<DirectoryBind>,
    /// Where groups are; without it nobody is in any.
    pub groups: Option<DirectoryGroups>,
    /// How long a server may take for all that a login asks.
    pub timeout: Duration,
    /// Logins that are looked up at the same time.
    pub connections: u32,
    /// Where it was written.
    pub origin: Origin,
}

impl Directory {
    /// TLS with its servers.
    pub fn tls(&self) -> impl Iterator<Item = &BackendTls> {
        self.servers.iter().filter_map(|server| server.security.tls())
    }

    /// Whether two say the same, wherever they stand.
    pub fn is_same_as(&self, other: &Directory) -> bool {
        let plain = |directory: &Directory| {
            let mut plain = Directory { origin: Origin::default(), ..directory.clone() };
            for server in &mut plain.servers {
                match &mut server.security {
                    DirectorySecurity::None => {}
                    DirectorySecurity::Tls(tls) | DirectorySecurity::StartTls(tls) => {
                        tls.origin = Origin::default();
                    }
                }
            }
            plain
        };
        plain(self) == plain(other)
    }
}

/// One of the servers of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectoryServer {
    /// As written.
    pub url: String,
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is kept from others.
    pub security: DirectorySecurity,
}

/// How a connection to a directory is kept from others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DirectorySecurity {
    /// Not at all.
    None,
    /// By TLS from its first byte.
    Tls(BackendTls),
    /// By TLS that is begun before anything else is said (RFC 4511 section 4.14).
    StartTls(BackendTls),
}

impl DirectorySecurity {
    /// The terms of TLS.
    pub fn tls(&self) -> Option<&BackendTls> {
        match self {
            DirectorySecurity::None => None,
            DirectorySecurity::Tls(tls) | DirectorySecurity::StartTls(tls) => Some(tls),
        }
    }
}

/// Who searches in a directory.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryBind {
    /// Of the entry that stands for this server.
    pub dn: String,
    /// Never empty.
    pub password: String,
    /// Where it was read.
    #[serde(with = "crate::path_encoding::path")]
    pub file: PathBuf,
}

impl std::fmt::Debug for DirectoryBind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A password is nothing for a log.
        f.debug_struct("DirectoryBind").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// Where a directory has its groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectoryGroups {
    /// The DN below which groups are: nothing else is one.
    pub base: String,
    /// How those of a user are found.
    pub found_by: GroupsBy,
    /// The attribute that has the name of a group.
    pub name: String,
    /// Whether groups that belong to groups count.
    pub is_nested: bool,
}

/// How the groups of a user are found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GroupsBy {
    /// By a search among the groups.
    Search(Filter),
    /// By an attribute of the user that holds their DNs: `memberOf`.
    Attribute(String),
}
