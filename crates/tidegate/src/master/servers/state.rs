//! How far a server process is, and who misses it when it ends.

/// What has become of a server process, for whoever waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It has got ready for the settings that it was told of last.
    Prepared(u64),
    /// It cannot take them up.
    Failed(u64, String),
    /// They are in force in it.
    Committed {
        /// The process.
        id: u64,
        /// The place that it has.
        place: usize,
        /// They are those of the revision in force.
        is_current: bool,
    },
    /// It uses the logs that it was given last.
    LogsInUse(u64),
    /// It goes on with the logs of before, for this reason.
    LogsRefused(u64, String),
    /// The process goes by all that it was told before the mark of this number.
    Marked(u64, u64),
    /// It was told to drain, and accepts no more.
    AcceptsNoMore(u64),
    /// It has ended, or will say nothing more.
    Ended(u64),
}

/// A process that was told to prepare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The place that it has.
    pub place: usize,
    /// Its number for an operator.
    pub pid: u32,
}

/// What a process is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A reload, or the start of the server: it commits when all have prepared, and is given up when one cannot.
    ForReload,
    /// To take the place of one that has ended, or of one that has to: it commits as soon as it is ready.
    Recovery { replaces: Option<u64> },
}

/// How far a process is.
///
/// ```text
/// Starting ──Commit──▶ Committing ──Committed──▶ Serving ──Drain──▶ Draining
/// ```
///
/// From `Committing` on a process is missed when it ends by mistake, whatever it was started for: others rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It gets ready.
    Starting(Start),
    /// It is ready and was told to take its first settings up.
    Committing(Start),
    Serving,
    /// It was told to end, or has ended.
    Draining,
}

impl State {
    /// It does not serve yet.
    pub fn is_early(self) -> bool {
        matches!(self, State::Starting(_) | State::Committing(_))
    }

    /// One that ends in this state has to be replaced. A reload that waits for the start of a process is refused in its place.
    pub(super) fn is_missed(self) -> bool {
        match self {
            State::Starting(Start::Recovery { .. }) | State::Committing(_) | State::Serving => true,
            State::Starting(Start::ForReload) | State::Draining => false,
        }
    }
}
