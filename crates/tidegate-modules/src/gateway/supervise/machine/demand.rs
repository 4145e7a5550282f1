//! What the workers want of a pool and know of its processes: how many there should be, who is worn out, hangs or is done.

use super::process::{Process, Stage};
use super::{Action, Machine, Slot};
use crate::gateway::places::Demand;
use std::time::Duration;

/// What the workers know of a process.
#[derive(Debug, Clone, Copy)]
pub(in crate::gateway::supervise) struct Usage {
    pub slot: Slot,
    pub in_use: usize,
    pub requests: u64,
    pub answered: u64,
    pub hung: u64,
}

impl Machine {
    /// What the workers want and know, as of an update.
    pub(in crate::gateway::supervise) fn demand(
        &mut self,
        sequence: u64,
        demand: &Demand,
        usage: &[Usage],
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        self.take_usage(sequence, demand, usage, now, out);
        let places = self.rules.places.max(1);
        let current = self.count(Process::is_current);
        let starting = self.count(|process| process.is_current() && process.is_starting());
        let wants = demand.waiting.div_ceil(places).saturating_sub(starting);
        let is_late = demand.oldest_wait.max(demand.longest_wait) >= self.rules.grow_after;
        if current == 0 && demand.waiting > 0 {
            self.target = self.target.max(wants.clamp(1, self.rules.max.max(1)));
        } else if is_late && wants > 0 {
            // At most twice as many at once: what waits may be gone by the time they serve.
            let grown = (current + wants).min(2 * current + 1).min(self.rules.max);
            self.target = self.target.max(grown);
        }
        self.needed = if demand.waiting == 0 { demand.peak_in_use.div_ceil(places) } else { usize::MAX };
        self.advance(now, out);
    }

    fn take_usage(
        &mut self,
        sequence: u64,
        demand: &Demand,
        usage: &[Usage],
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        let seen = demand.requests.saturating_sub(self.requests_seen);
        self.requests_seen = demand.requests;
        if self.rules.is_shared {
            let serving = self.count(Process::is_serving).max(1) as u64;
            for process in self.processes.values_mut().filter(|process| process.is_serving()) {
                process.requests += seen * 1000 / serving;
            }
        }
        let ends_hung = self.ends_hung();
        let mut hung = Vec::new();
        let mut drained = Vec::new();
        for (slot, process) in &mut self.processes {
            let known = usage.iter().find(|usage| usage.slot == *slot);
            process.in_use = known.map_or(0, |usage| usage.in_use);
            // Of a shared socket any of them may be the one that has answered.
            let told = known.or(usage.first().filter(|_| self.rules.is_shared)).map(|usage| usage.answered);
            process.has_answered |= process.answered.zip(told).is_some_and(|(before, now)| now > before);
            process.answered = told.or(process.answered);
            match (process.stage, known) {
                (Stage::Serving { since }, Some(usage)) if sequence >= since => {
                    if !self.rules.is_shared {
                        process.requests = usage.requests * 1000;
                    }
                    if usage.hung > 0 && ends_hung {
                        hung.push(*slot);
                    }
                }
                (Stage::Draining { since, .. }, _) if sequence >= since && process.in_use == 0 => {
                    drained.push(*slot);
                }
                _ => {}
            }
        }
        for slot in hung {
            out.push(Action::Say("a process has not answered in time; it is ended".into()));
            self.last_failure = Some("has not answered in time".into());
            self.restarts += 1;
            // What others have in hand there may still be answered.
            self.retire(slot, now, out);
        }
        for slot in drained {
            self.terminate(slot, now, out);
        }
        let Some(most) = self.rules.requests else { return };
        for process in self.processes.values_mut().filter(|process| process.is_serving()) {
            process.is_worn |= process.requests / 1000 >= most;
        }
    }
}
