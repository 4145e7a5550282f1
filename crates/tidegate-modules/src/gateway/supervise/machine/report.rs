//! What the state machine of a pool says of itself: when it has something to do, who takes requests, how it stands.

use super::process::{Process, Shown, Stage};
use super::{Down, Machine, PROOF, Slot};
use crate::gateway::pool_directory::PoolPhase;
use std::time::Duration;

impl Machine {
    /// When [`Machine::advance`] has something to do at the latest.
    pub(in crate::gateway::supervise) fn next(&self) -> Option<Duration> {
        let of_processes = self.processes.values().filter_map(|process| match process.stage {
            Stage::Starting { not_before } if process.ready_at.is_some() => Some(not_before),
            Stage::Starting { .. } => Some(process.patience_until),
            Stage::Draining { until, .. } => Some(until),
            Stage::Stopping { kill_at } => kill_at,
            Stage::Serving { .. } => process.proving_since().map(|since| since + self.proof()),
        });
        let start = self.start_due.filter(|_| !self.is_stopping);
        let surplus = self.surplus_since.map(|since| since + self.rules.idle);
        of_processes.chain(start).chain(surplus.filter(|_| !self.is_stopping)).min()
    }

    /// Goes on with the numbers of updates from here.
    pub(in crate::gateway::supervise) fn follow(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    /// Those that have not said yet that they take requests.
    pub(in crate::gateway::supervise) fn unready(&self) -> impl Iterator<Item = Slot> + '_ {
        let is_unready = |process: &Process| process.is_starting() && process.ready_at.is_none();
        self.processes.iter().filter(move |(_, process)| is_unready(process)).map(|(slot, _)| *slot)
    }

    /// Whether something waits for the next report.
    pub(in crate::gateway::supervise) fn is_moving(&self) -> bool {
        self.processes.values().any(|process| matches!(process.stage, Stage::Draining { .. }))
    }

    /// Those that take requests.
    pub(in crate::gateway::supervise) fn serving(&self) -> impl Iterator<Item = Slot> + '_ {
        self.processes.iter().filter(|(_, process)| process.is_serving()).map(|(slot, _)| *slot)
    }

    /// Whether a process that has not answered in time is ended: where they share a socket nobody knows which one it was.
    pub(in crate::gateway::supervise) fn ends_hung(&self) -> bool {
        !self.rules.is_shared
    }

    /// Places of as many processes as there may be.
    pub(in crate::gateway::supervise) fn most_places(&self) -> usize {
        self.rules.max.saturating_mul(self.rules.places)
    }

    pub(in crate::gateway::supervise) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(in crate::gateway::supervise) fn phase(&self) -> PoolPhase {
        if self.is_stopping {
            return PoolPhase::Stopping;
        }
        if self.processes.values().any(Process::is_serving) {
            return PoolPhase::Up;
        }
        if self.target == 0 {
            return PoolPhase::Idle;
        }
        let is_being_tried = self.processes.values().any(Process::is_starting);
        match self.down {
            Some(Down::Failing) => PoolPhase::Failing,
            Some(Down::NoRoom | Down::Untried) if !is_being_tried => PoolPhase::Failing,
            Some(Down::NoRoom | Down::Untried) | None => PoolPhase::Starting,
        }
    }

    /// While it is down: how long until it may be up again.
    pub(in crate::gateway::supervise) fn retry_after(&self, now: Duration) -> Option<Duration> {
        match self.phase() {
            PoolPhase::Failing => Some((self.next_start.saturating_sub(now) + PROOF).max(PROOF)),
            PoolPhase::Stopping => Some(PROOF),
            _ => None,
        }
    }

    pub(in crate::gateway::supervise) fn restarts(&self) -> u64 {
        self.restarts
    }

    pub(in crate::gateway::supervise) fn last_failure(&self) -> Option<&str> {
        self.last_failure.as_deref()
    }

    pub(in crate::gateway::supervise) fn shown(&self) -> impl Iterator<Item = Shown> + '_ {
        self.processes.iter().map(|(slot, process)| Shown {
            slot: *slot,
            stage: match process.stage {
                Stage::Starting { .. } => "starting",
                Stage::Serving { .. } if process.is_worn => "being replaced",
                Stage::Serving { .. } if process.in_use > 0 => "busy",
                Stage::Serving { .. } => "idle",
                Stage::Draining { .. } => "draining",
                Stage::Stopping { .. } => "stopping",
            },
            started: process.started,
            requests: process.requests / 1000,
        })
    }
}
