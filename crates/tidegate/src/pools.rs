//! The pools of the server: the supervisor beside the master, and the board that its workers look at.

use std::io;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_modules::gateway::board::Board;
use tidegate_modules::gateway::supervise::status::PoolStatus;
use tidegate_modules::gateway::supervise::{Ends, Supervisor};

/// Both ends, wired to each other.
pub struct Pools {
    board: Arc<Board>,
    supervisor: Supervisor,
}

impl Pools {
    /// Starts the supervisor, without pools. What it says appears on the board.
    ///
    /// # Errors
    /// No thread, no descriptor.
    pub fn start(board: Arc<Board>) -> io::Result<Pools> {
        let (told, asked) = (board.clone(), board.clone());
        let ends = Ends {
            publish: Box::new(move |update| told.apply(update)),
            demands: Some(Box::new(move || asked.demands())),
        };
        let supervisor = Supervisor::start(ends)?;
        let waker = supervisor.waker();
        board.on_pressure(move || waker.wake());
        Ok(Pools { board, supervisor })
    }

    /// Takes up the pools of a revision.
    pub fn adopt(&self, settings: &Settings) {
        self.supervisor.adopt(&settings.pools);
        self.board.retain(|name| settings.pools.iter().any(|pool| pool.name == name));
    }

    /// Ends their processes, and waits for that.
    pub fn end(&self) {
        self.supervisor.end();
    }

    /// How they stand.
    pub fn status(&self) -> Vec<PoolStatus> {
        self.supervisor.status()
    }
}
