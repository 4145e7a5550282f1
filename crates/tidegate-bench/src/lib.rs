//! The load generator: puts load on an HTTP server, measures what comes of it and says whether the figures
//! can be trusted.
//!
//! `tidegate bench` is the command over it. It stands on `tidegate-io` and `tidegate-wire` and uses nothing of
//! the server. The parts, from the wire up: [`target`], [`urls`] and [`request`] say what is asked,
//! [`schedule`] when; `connection` and `worker` ask it, one thread per worker, each with its own reactor;
//! [`record`] holds what was measured, [`run`] joins the workers, [`statistics`] and [`verdict`] judge,
//! [`report`] shows.

pub mod check;
mod clock;
mod connection;
pub mod plan;
pub mod record;
pub mod quantity;
mod random;
pub mod request;
mod response;
pub mod run;
pub mod schedule;
pub mod target;
pub mod urls;
pub mod verdict;
mod worker;
