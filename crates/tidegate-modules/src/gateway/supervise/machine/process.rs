//! One process as the state machine of its pool sees it.

use super::Slot;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// On its way; takes requests when it is ready, and after a failure not before it has proved itself.
    Starting { not_before: Duration },
    /// Takes requests since the update of this number.
    Serving { since: u64 },
    /// Takes none since the update of this number.
    Draining { since: u64, until: Duration },
    /// Was told to end; is killed at this time, or has been.
    Stopping { kill_at: Option<Duration> },
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) stage: Stage,
    pub(super) started: Duration,
    /// When it could take requests.
    pub(super) ready_at: Option<Duration>,
    /// While it starts: how long it may.
    pub(super) patience_until: Duration,
    /// It takes connections, and gets requests of the server's own first.
    pub(super) has_opened: bool,
    /// When it began to get requests, where its definition was on trial then: it has to go on with them.
    pub(super) trial_since: Option<Duration>,
    pub(super) is_proved: bool,
    pub(super) is_worn: bool,
    /// Its definition is not the newest: what becomes of it says nothing about that one.
    pub(super) is_former: bool,
    /// Failures in a row when it was started.
    pub(super) failures_before: u32,
    /// Requests answered at its address when that was told last.
    pub(super) answered: Option<u64>,
    /// It has answered a request itself.
    pub(super) has_answered: bool,
    /// Who takes which request is not known of it.
    pub(super) is_shared: bool,
    /// Thousandths, where they are shared out among processes.
    pub(super) requests: u64,
    pub(super) in_use: usize,
}

impl Process {
    pub(super) fn is_serving(&self) -> bool {
        matches!(self.stage, Stage::Serving { .. })
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Starting { .. })
    }

    /// Since when it has been showing that the newest definition works; `None`: it has, has not begun, or shows nothing of that.
    pub(super) fn proving_since(&self) -> Option<Duration> {
        self.trial_since.or(self.ready_at).filter(|_| !self.is_proved && !self.is_former)
    }

    pub(super) fn is_current(&self) -> bool {
        !self.is_worn && (self.is_serving() || self.is_starting())
    }
}

/// A process as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway::supervise) struct Shown {
    pub slot: Slot,
    pub stage: &'static str,
    pub started: Duration,
    pub requests: u64,
}
