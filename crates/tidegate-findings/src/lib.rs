//! Findings: rules over what the server counts and what the machine tells, which say what limits the server and what to change.
//!
//! Called by the master, which takes a [`Sample`] every ten seconds, and by its tests. Knows neither clock nor server: time is
//! part of a sample, so that every rule is tested by samples that are replayed. Only [`Host::read`] opens files.
//!
//! `engine` decides when something is raised and when it goes; `window` has the arithmetic of samples; `rules/` has the rules,
//! one function each; `busiest` names who or what a finding comes from most; `turned_away` remembers which limits have turned somebody away. What each finding means is
//! `docs/findings.md`.

mod busiest;
mod engine;
mod host;
mod rules;
mod turned_away;
mod window;

pub use busiest::name_busiest;
pub use engine::{Engine, Windows};
pub use host::{
    Asked, Cgroup, Folder, Host, NetworkLink, Pressure, ProcessUse, ProcessorTimes, TcpCounts, ThreadUse,
};
pub use rules::{PAGE, names};
pub use turned_away::TurnedAwayLog;
pub use window::Sample;
