//! What a run has found: promises that the server has not kept, each with what led there.

use std::sync::{Mutex, PoisonError};

/// A promise that is examined. The names are those of `--without`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// Every answer belongs to its request, byte for byte, and follows the protocol.
    Answer,
    /// A request that does nothing wrong, to an application that does nothing wrong, gets its answer.
    Service,
    /// A reader above `send-rate` is not cut.
    SlowReader,
    /// What `explain` says is what is served.
    Explain,
    /// A limit of requests lets in as many as it says, no more and no fewer.
    Limit,
    /// Memory stays within its limit, and is given back.
    Memory,
    /// No process ends, nothing panics.
    Process,
    /// Descriptors return to what they were.
    Descriptors,
    /// The counters of the status report add up.
    Counters,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Invariant; 9] = [
        Invariant::Answer,
        Invariant::Service,
        Invariant::SlowReader,
        Invariant::Explain,
        Invariant::Limit,
        Invariant::Memory,
        Invariant::Process,
        Invariant::Descriptors,
        Invariant::Counters,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Invariant::Answer => "answer",
            Invariant::Service => "service",
            Invariant::SlowReader => "slow-reader",
            Invariant::Explain => "explain",
            Invariant::Limit => "limit",
            Invariant::Memory => "memory",
            Invariant::Process => "process",
            Invariant::Descriptors => "descriptors",
            Invariant::Counters => "counters",
        }
    }
}

/// One promise that was not kept.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Which.
    pub invariant: Invariant,
    /// Who saw it, and what.
    pub text: String,
    /// The last exchanges of the connection, oldest first; empty where it is about no connection.
    pub history: Vec<String>,
}

/// Where all threads of a run report.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Mutex<Vec<Finding>>,
    ignored: Vec<Invariant>,
}

impl Findings {
    pub(super) fn ignoring(ignored: &[Invariant]) -> Findings {
        Findings { found: Mutex::default(), ignored: ignored.to_vec() }
    }

    /// Takes it; whether the round is to end for it.
    pub(super) fn report(&self, finding: Finding) -> bool {
        let counts = !self.ignored.contains(&finding.invariant);
        if counts {
            self.found.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
        }
        counts
    }

    pub(super) fn report_text(&self, invariant: Invariant, text: impl Into<String>) -> bool {
        self.report(Finding { invariant, text: text.into(), history: Vec::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(super) fn take(&self) -> Vec<Finding> {
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
