//! The load generator: puts load on an HTTP server, measures what comes of it and says whether the figures
//! can be trusted.
//!
//! `tidegate bench` is the command over it. It stands on `tidegate-io` and `tidegate-wire` and uses nothing of
//! the server. The parts, from the wire up: [`target`], [`urls`] and [`request`] say what is asked,
//! [`schedule`] when, [`plan`] all of it; `connection`, `http2` and `worker` ask it, one thread per worker, each with
//! its own reactor; [`record`] holds what was measured, [`run`] joins the workers and [`processes`] the
//! processes, [`agent`] the machines, [`verdict`] judges, [`report`] shows, [`runs`] keeps, [`queue`] makes many; [`systems`] starts, watches and
//! stops machines beside the load. [`inputs`] makes what is asked for, [`disk`] says how fast it can be read.

pub mod agent;
pub mod check;
mod clock;
pub mod compare;
mod connection;
pub mod disk;
pub mod host;
mod http2;
pub mod inputs;
pub mod live;
pub mod peak;
pub mod plan;
pub mod preflight;
mod proc;
pub mod processes;
pub mod quantity;
pub mod queue;
mod random;
pub mod record;
pub mod report;
pub mod request;
mod response;
pub mod run;
pub mod runs;
pub mod scenario;
pub mod schedule;
pub mod statistics;
pub mod sweep;
pub mod systems;
pub mod target;
#[cfg(test)]
mod truth;
pub mod urls;
pub mod verdict;
mod worker;
mod workers;

pub use clock::monotonic_ns;
