//! Pools: starts, sizes, watches and replaces the processes of applications.
//!
//! Runs on a thread of its own in the master, away from clients. It says how pools are in
//! [`PoolUpdate`](super::pool_directory::PoolUpdate)s and is told what is wanted in
//! [`PoolDemand`](super::pool_directory::PoolDemand)s. `definition` reads the settings, `machine` decides, `driver` and `running` do, `child` is one
//! process, `keeper` ends what that has started, `launch` is what happens inside it before the program runs, `guard` what remains should the master be killed. `ask` makes requests of the server's own, for
//! `warm_up` and `opcache`.

mod ask;
mod child;
mod clients;
mod definition;
pub(super) mod descendants;
mod driver;
pub mod guard;
pub mod hook;
pub mod keeper;
pub mod launch;
mod machine;
mod opcache;
mod pace;
mod php;
pub mod process_table;
mod running;
pub mod seal;
pub mod sockets;
pub mod status;
mod temporary;
mod warm_up;

pub use clients::{Clients, User};
pub use driver::{Ends, Supervisor, Waker};
