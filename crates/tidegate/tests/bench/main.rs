//! `tidegate bench` as an operator has it: against Tidegate, against nginx, and against peers that misbehave by
//! script.
//!
//! Figures of time are never asserted; counts, words and exit codes are.

mod peers;

mod agents;
mod arguments;
mod commands;
mod failures;
mod http2;
mod nginx;
mod queue;
mod runs;
mod scenario_http2;
mod scenarios;
mod scripts;
mod systems;
mod verdicts;
mod visits;
