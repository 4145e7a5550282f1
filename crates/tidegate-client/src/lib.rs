//! Outgoing connections on the reactor: what the gateway and the load generator share.
//!
//! A [`Pool`] holds the idle connections of one worker to one address; a [`Peer`] is what all workers of the
//! process know of that address, so that connections kept by one never starve another. [`Connection`] sends
//! and receives. `http1` reads answers. Nothing here knows a route or a setting.

mod connection;
mod end_mark;
pub mod http1;
pub mod http2;
mod peer;
mod pool;

pub use connection::{Connection, PeerTls};
pub use end_mark::mark_end;
pub use peer::{Peer, Peers, Starving};
pub use pool::{Pool, PoolLimits};
