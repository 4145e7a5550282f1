//! The random client: random settings, files, applications and clients against a real server, and promises that are
//! examined all the while. `docs/testing.md` says how to run it.
//!
//! One seed is one round: [`run_seed`] generates settings (`settings::Plan`) from it, starts the applications inside this
//! process and the server as another, plays waves of clients with silence between them, and looks at what was
//! promised (`findings::Invariant`). What is generated follows from the seed alone; when what happens does not.

mod answer;
mod application;
mod client;
mod content;
mod explain;
mod findings;
mod follow;
mod frames;
mod generator;
mod origin;
mod pause;
mod plan;
mod round;
mod routes;
mod server;
mod session;
mod settings;
mod socket;
mod tree;
mod variant;

pub use application::run_application;
pub use findings::{Finding, Invariant};
pub use round::{Options, Report, run_seed};
