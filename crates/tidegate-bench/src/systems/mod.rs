//! The machines beside the load: what is watched of them, and what is done before and after a run.
//!
//! A scenario names them ([`System`]). `conduct` configures, starts, resets and stops them, by `configure` and `undo`, which also has the
//! guard that does it for a run that was killed. `monitor` is what runs on such a machine (`tidegate bench monitor`): the figures of its kernel
//! (`figures`) and of services (`services`). `watch` is the other end of it, in the run: lines as they come, stamped by its clock, into
//! the folder of the run (`table`). `place` says how a command gets there: started here, or by ssh. No monitor ends or delays a run.

mod ask;
mod conduct;
mod configure;
mod figures;
mod monitor;
mod place;
mod services;
mod table;
mod undo;
mod watch;

pub use conduct::{Conducted, SystemError};
pub(crate) use conduct::{LOGS, SETTINGS, STEPS};
pub(crate) use figures::plain;
pub use figures::{Figures, Processes};
pub(crate) use monitor::monitor_while;
pub use monitor::{Watched, monitor};
pub use place::Place;
pub use services::Service;
pub use table::Tables;
pub(crate) use table::is_name;
pub use undo::{GUARD, guard};
pub use watch::{Start, Watch};

use crate::quantity::{show_bytes, show_duration};
use crate::target::Url;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A machine beside the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// What files and charts call it.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// What is watched of it, where something is.
    pub watched: Option<Watched>,
    /// What is done to it before a run, in order.
    pub before: Vec<Before>,
    /// What is done to it after a run, whatever became of it.
    pub stop: Option<Stopped>,
    /// Files of it that are copied into the folder of the run.
    pub collect: Vec<String>,
}

impl System {
    /// Whether anything is done to it before or after a run.
    pub fn is_conducted(&self) -> bool {
        !self.before.is_empty() || self.stop.is_some() || !self.collect.is_empty()
    }
}

/// What is done to a system before a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// A file that is written for the time of the run.
    Configure {
        /// On that machine.
        path: String,
        /// What is written, its variables filled in.
        text: Arc<str>,
        /// The same without.
        template: Arc<str>,
        /// How long that may take.
        within: Duration,
    },
    /// A command that puts data back as they were.
    Reset {
        /// For `sh`.
        command: String,
        /// How long it may take.
        within: Duration,
    },
    /// A command that starts it.
    Start {
        /// For `sh`.
        command: String,
        /// What answers when it can be used. Without it the command has to end; with it it may stay, and ends after the run.
        ready: Option<Probe>,
        /// How long that may take.
        within: Duration,
    },
}

impl Before {
    /// The directive.
    pub fn step(&self) -> &'static str {
        match self {
            Before::Configure { .. } => "configure",
            Before::Reset { .. } => "reset",
            Before::Start { .. } => "start",
        }
    }
}

/// What answers when a system can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// With a status below 400.
    Url(Url),
    /// By taking a connection: `host:port`.
    Tcp(String),
}

/// The command that stops a system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// For `sh`.
    pub command: String,
    /// How long it may take.
    pub within: Duration,
}

/// In one line, for plans.
impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.place)?;
        if let Some(watched) = &self.watched {
            write!(f, ", watched each {}", show_duration(watched.interval))?;
        }
        for before in &self.before {
            write!(f, "; {}: ", before.step())?;
            match before {
                Before::Configure { path, text, .. } => {
                    write!(f, "{path}, {}", show_bytes(text.len() as f64))?
                }
                Before::Reset { command, .. } | Before::Start { command, .. } => f.write_str(command)?,
            }
        }
        match &self.stop {
            Some(stop) => write!(f, "; stop: {}", stop.command),
            None => Ok(()),
        }
    }
}
