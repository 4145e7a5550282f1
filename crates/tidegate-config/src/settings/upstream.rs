//! Upstream groups: servers elsewhere that answer for one application, and how requests are spread over them.

use super::gateway::{BackendTls, Destination, Proxy};
use super::pool::{Hook, Queue};
use super::{Action, Origin, Settings};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A group of servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Upstream {
    /// What routes call it; unique, also among the pools.
    pub name: String,
    /// In source order; one at least.
    pub members: Vec<Member>,
    /// How a member is chosen.
    pub balance: Balance,
    /// The cookie that brings a client back to its member.
    pub sticky: Option<String>,
    /// Requests that may wait when all places are taken.
    pub queue: Queue,
    /// How members are asked whether they are well; `None` asks nobody.
    pub check: Option<Check>,
    /// When a member that fails requests is put aside.
    pub eject: Eject,
    /// How long a member that came back takes to get its whole share.
    pub slow_start: Duration,
    /// How often a request is tried on a further member.
    pub retry: Retry,
    /// What is done when its load crosses a threshold.
    pub hooks: Vec<Hook>,
    /// Where it was written.
    pub origin: Origin,
}

impl Upstream {
    /// Whether two revisions say the same of it, wherever it stands: then what is known of its members stays.
    pub fn is_same_as(&self, other: &Upstream) -> bool {
        let plain = |upstream: &Upstream| {
            let origin = Origin::default();
            let members = upstream.members.iter().cloned();
            let members = members.map(|member| Member { origin: Origin::default(), ..member }).collect();
            Upstream { origin, members, hooks: Vec::new(), ..upstream.clone() }
        };
        plain(self) == plain(other)
    }
}

impl Upstream {
    /// The routes that pass requests on to it by HTTP.
    pub fn proxies<'s>(&'s self, settings: &'s Settings) -> impl Iterator<Item = &'s Proxy> {
        let routes = settings.sites.iter().flat_map(|site| &site.routes);
        routes.filter_map(|route| match &route.action {
            Action::Proxy(proxy) => Some(&**proxy)
                .filter(|proxy| matches!(&proxy.gateway.to, Destination::Named(name) if *name == self.name)),
            _ => None,
        })
    }

    /// TLS with its members, as the first route with any says; what they are checked with.
    pub fn tls<'s>(&'s self, settings: &'s Settings) -> Option<&'s BackendTls> {
        self.proxies(settings).find_map(|proxy| proxy.gateway.tls.as_ref())
    }
}

/// A server of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// As written.
    pub name: String,
    /// Where it is.
    pub address: MemberAddress,
    /// Its share of the requests.
    pub weight: u32,
    /// Whether it is asked only when none of the others can be.
    pub is_backup: bool,
    /// Requests that it takes at once; `None` is without bound.
    pub places: Option<u32>,
    /// Where it was written.
    pub origin: Origin,
}

/// Where a member is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A unix socket; absolute.
    Unix(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// A name that is looked up, again and again as its records say.
    Name {
        /// Lower case, without a dot at its end.
        host: String,
        /// Not 0.
        port: u16,
    },
}

/// How a member is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Balance {
    /// Each in its turn, by weight.
    RoundRobin,
    /// The one with the fewest requests for its weight.
    LeastConnections,
    /// The less loaded of two drawn at random.
    TwoChoices,
    /// The same key goes to the same member.
    Hash {
        /// What the hash is of.
        key: HashKey,
        /// A member with more requests in hand than so many percent of its share is passed over, for the next one of the
        /// key; above 100. `None` passes over nobody.
        percent: Option<u32>,
    },
}

/// What a hash is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// The path, without its query.
    Path,
    /// The host as the client has said it, the path and the query.
    Url,
    /// The value of a field.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
}

/// How members are asked whether they are well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is asked.
    pub kind: CheckKind,
    /// How often.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Good answers in a row that bring a member back.
    pub rise: u32,
    /// Bad ones in a row that take it out.
    pub fall: u32,
}

/// What a check asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckKind {
    /// Whether it accepts a connection.
    Tcp,
    /// `GET` of a path: 200 to 399 is well.
    Http {
        /// From its `/`.
        path: String,
        /// The `Host` field.
        host: String,
    },
    /// Whether it answers `FCGI_GET_VALUES`.
    FastCgi,
}

/// When a member that fails requests is put aside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Eject {
    /// Failures in a row; `None` never puts one aside.
    pub failures: Option<u32>,
    /// How long the first time; twice as long each further time.
    pub time: Duration,
    /// But no longer than this.
    pub most: Duration,
}

/// How often a request is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Members after the first.
    pub times: u32,
    /// Percent of all requests.
    pub budget: u32,
}
