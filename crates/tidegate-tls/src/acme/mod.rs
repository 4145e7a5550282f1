//! Certificates that get and renew themselves (RFC 8555), in the master alone.
//!
//! `schedule` decides what is due and when to try again, as plain values on a clock of the caller's. `manager`
//! carries it out. `authority` speaks to an ACME server by way of `http_client`, `local` is an authority of our own for names that no
//! other may vouch for. `acceptance` says whether what was issued may be used; `storage` keeps it, with locks, so
//! that several nodes can share it.
//! `solvers` are the ways to show that a name is ours, of which `dns`
//! puts records where an authority wants to see them. Nothing here waits for any of it before serving: a name
//! without a certificate yet fails its handshakes, and the others are served.

mod acceptance;
pub mod authority;
pub mod dns;
pub mod dns_update;
mod http_client;
pub mod local;
pub mod manager;
pub mod schedule;
mod solvers;
pub mod storage;

pub use authority::{AcmeAuthority, AcmeOptions};
pub use local::LocalAuthority;
pub use manager::{Clock, Issue, IssueError, Manager, Order, Outcome};
pub use schedule::{Schedule, Task, Window};
pub use solvers::{ChallengeKind, ChallengeServers};
pub use storage::Storage;
