//! What the binary gives a worker: a [`Registry`] that makes engines out of settings, with the handlers of the modules.

use crate::client_names::ClientNames;
use crate::engine::Engine;
use crate::log::{self, Writer};
use std::io;
use std::sync::Arc;
use tidegate_config::settings::{AccessLog, Settings};
use tidegate_stats::Worker as Stats;

/// Makes engines out of settings, on a worker's thread, and keeps what its handlers share there.
pub trait Registry {
    /// The engine for a revision, and the logs its sites write.
    fn engine(&mut self, settings: &Arc<Settings>, logs: &mut LogSet) -> io::Result<Engine>;

    /// An engine of this registry is in force from now on: what its handlers share follows these settings.
    /// Not every engine comes so far: a reload that fails elsewhere is given up.
    fn in_force(&mut self, _settings: &Arc<Settings>) {}

    /// What clients are called, for the lines of logs.
    fn client_names(&self) -> Arc<ClientNames> {
        Arc::default()
    }

    /// The worker accepts no more, and ends when nothing is open.
    fn draining(&mut self) {}

    /// Gives up descriptors that are only kept in case somebody asks, since there are no others. Returns how many.
    fn spare_descriptors(&mut self) -> usize {
        0
    }

    /// Answers a question of the operator about what this worker holds, such as its file cache.
    fn ask(&mut self, question: &str) -> String;
}

/// The logs of an engine, collected while it is made.
pub struct LogSet {
    writer: Arc<Writer>,
    pub(crate) opened: Vec<(log::Sink, AccessLog)>,
}

impl LogSet {
    pub(crate) fn new(writer: Arc<Writer>) -> LogSet {
        LogSet { writer, opened: Vec::new() }
    }

    /// Opens a log, or finds it open, and remembers that the revision writes it.
    ///
    /// # Errors
    /// As [`Writer::sink`].
    pub fn open(&mut self, log: &AccessLog) -> io::Result<log::Sink> {
        let sink = self.writer.sink(&log.target)?;
        self.opened.push((sink, log.clone()));
        Ok(sink)
    }
}

/// Makes a worker's registry on its thread.
pub type MakeRegistry = Arc<dyn Fn(Arc<Stats>) -> Box<dyn Registry> + Send + Sync>;
