//! Whether a disk answers. One on which a call has been outstanding for too long is stalled: it is done without until it answers.
//!
//! A call that hangs cannot be ended, and whoever made it waits. What can be done is to make no more: of a stalled disk
//! nothing is found and nothing is opened, so that applications are asked, and nothing is stored there. The pool knows how long its threads have been
//! waiting ([`blocking::outstanding`]), whoever they wait for: who looks things up, writes, looks after the disk, or sends an open file.
//! So nobody has to wait to find out, and the end of that wait says that the disk is back.

use super::{Disk, Disks};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_io::blocking;

/// A disk on which a call is outstanding for so long is stalled.
const STALLED_AFTER: Duration = Duration::from_secs(5);
/// It answers again once none has been outstanding for longer than so.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// What is known of the answers of a disk.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Whoever has the disk in use looks here as well.
    pub(super) is_stalled: Arc<AtomicBool>,
    /// Unix seconds.
    since: AtomicI64,
}

/// A disk has begun to be stalled, or answers again: something that an operator has to be told, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StallNotice {
    /// Which disk.
    pub folder: PathBuf,
    /// How long it did not answer, seconds; `None`: it does not.
    pub ended_after: Option<u64>,
}

impl fmt::Display for StallNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        match self.ended_after {
            None => write!(
                f,
                "cache folder {folder} is stalled: a call to its disk has been waiting for {}s; applications are asked for what \
                 lies there, and nothing is stored there, until it answers",
                STALLED_AFTER.as_secs()
            ),
            Some(seconds) => {
                write!(f, "cache folder {folder} answers again, after {seconds}s, and is used again")
            }
        }
    }
}

impl Disks {
    /// Once a second, for each disk: whether it answers. Returns what an operator has to be told. Touches no disk.
    pub fn watch(&self, disk: u16, now: i64) -> Option<StallNotice> {
        let at = self.disks.get(usize::from(disk))?;
        let keys = [Some(&at.opening_key), at.queue_key.get()];
        let waits = keys.into_iter().flatten().map(|key| blocking::outstanding(key.device));
        at.judge(waits.max().unwrap_or_default(), now)
    }

    /// Whether a disk does not answer. Touches no disk.
    pub fn is_stalled(&self, disk: u16) -> bool {
        self.disks.get(usize::from(disk)).is_some_and(|disk| disk.answers.is_stalled.load(Relaxed))
    }
}

impl Disk {
    /// A call has been outstanding for so long, and none for longer.
    pub(super) fn judge(&self, outstanding: Duration, now: i64) -> Option<StallNotice> {
        let Answers { is_stalled, since } = &self.answers;
        let folder = self.folder.clone();
        if self.is_closed.load(Relaxed) {
            is_stalled.store(false, Relaxed);
            return None;
        }
        match is_stalled.load(Relaxed) {
            false if outstanding >= STALLED_AFTER => {
                since.store(now.saturating_sub(outstanding.as_secs() as i64), Relaxed);
                is_stalled.store(true, Relaxed);
                Some(StallNotice { folder, ended_after: None })
            }
            true if outstanding < ANSWERS_WITHIN => {
                is_stalled.store(false, Relaxed);
                let ended_after = u64::try_from(now.saturating_sub(since.load(Relaxed))).unwrap_or(0);
                Some(StallNotice { folder, ended_after: Some(ended_after) })
            }
            _ => None,
        }
    }

    /// Since when it has not answered, Unix seconds; `None`: it does.
    pub(super) fn stalled_since(&self) -> Option<i64> {
        self.answers.is_stalled.load(Relaxed).then(|| self.answers.since.load(Relaxed))
    }
}
