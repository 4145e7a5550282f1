//! The machines beside the load: what is watched of them, and what is done before and after a run.
//!
//! A scenario names them ([`System`]). `monitor` is what runs on such a machine (`tidegate bench monitor`): the figures of its kernel
//! (`figures`) and of services (`services`). `watch` is the other end of it, in the run: lines as they come, stamped by its clock, into
//! the folder of the run. `place` says how a command gets there: started here, or by ssh. No monitor ends or delays a run.

mod figures;
mod monitor;
mod place;
mod services;
mod watch;

pub(crate) use figures::plain;
pub use figures::{Figures, Processes};
pub use monitor::{Watched, monitor};
pub use place::Place;
pub use services::Service;
pub use watch::{Start, Watch};

use crate::quantity::show_duration;
use std::fmt;

/// A machine beside the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// What files and charts call it.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// What is watched of it, where something is.
    pub watched: Option<Watched>,
}

/// In one line, for plans.
impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.place)?;
        match &self.watched {
            Some(watched) => write!(f, ", watched each {}", show_duration(watched.interval)),
            None => Ok(()),
        }
    }
}
