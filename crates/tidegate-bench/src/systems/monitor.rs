//! A monitor: what `tidegate bench monitor` does on the machine that is watched.

use super::figures::{Figures, Processes, Reading};
use super::place::rest;
use super::services::{self, Service};
use crate::clock::{monotonic_ns, ns};
use crate::runs::FIGURES;
use std::io;
use std::time::Duration;

/// What is watched of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// From one line to the next.
    pub interval: Duration,
    /// Whose figures are told beside those of the machine.
    pub processes: Vec<Processes>,
    /// Who is asked for figures of its own.
    pub services: Vec<Service>,
}

impl Watched {
    /// The command line of it, behind the name of the program.
    pub fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> = ["bench", "monitor", "--stdio"].map(str::to_owned).to_vec();
        words.push(format!("--interval={}ms", self.interval.as_millis()));
        for processes in &self.processes {
            words.push(match processes {
                Processes::Named(name) => format!("--process={name}"),
                Processes::Tree(root) => format!("--process={root}"),
            });
        }
        for service in &self.services {
            words.push(match service {
                Service::Url(url) => format!("--url={url}"),
                Service::Memcached(address) => format!("--memcached={address}"),
                Service::Mariadb(options) => format!("--mariadb={options}"),
            });
        }
        words
    }
}

/// Tells the figures of this machine each interval until `tell` fails; `complain` gets what services do not answer.
///
/// # Errors
/// What `tell` gives, or no thread can be started.
pub fn monitor(
    watched: &Watched,
    tell: impl FnMut(&Figures) -> io::Result<()>,
    complain: impl FnMut(String),
) -> io::Result<()> {
    let wait = |time| {
        rest(time);
        true
    };
    monitor_while(watched, wait, tell, complain)
}

/// The same for as long as `wait`, which lets a time pass, says so.
///
/// # Errors
/// As [`monitor`].
pub(crate) fn monitor_while(
    watched: &Watched,
    mut wait: impl FnMut(Duration) -> bool,
    mut tell: impl FnMut(&Figures) -> io::Result<()>,
    mut complain: impl FnMut(String),
) -> io::Result<()> {
    let services = services::Asked::begin(&watched.services, watched.interval)?;
    let mut before = Reading::take(&watched.processes, monotonic_ns());
    let mut next = monotonic_ns();
    loop {
        next = next.saturating_add(ns(watched.interval));
        // Behind by more than an interval, as after a suspended machine: what was missed is not made up for.
        let now = monotonic_ns();
        next = if next.saturating_add(ns(watched.interval)) < now { now } else { next };
        if !wait(Duration::from_nanos(next.saturating_sub(now))) {
            return Ok(());
        }
        let now = Reading::take(&watched.processes, monotonic_ns());
        let mut figures = services.figures(&mut complain);
        // Those of the processors are last: they are what is cut where there are too many.
        figures.append(&mut now.since(&before));
        figures.truncate(FIGURES);
        tell(&figures)?;
        before = now;
    }
}
