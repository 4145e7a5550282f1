//! What server processes are made of, and which settings need others.

use super::super::{parts, users};
use super::{CertificateWatch, Logs, Sockets};
use crate::link::Identity;
use crate::server::privileges;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_core::tls::TlsFiles;

/// What server processes are made of. Where it changes, they are replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct Layout {
    /// Workers of each.
    pub workers: usize,
    /// How many.
    pub processes: usize,
    /// Whom they become.
    pub identity: Option<Identity>,
    /// What they may read beside files of the system, with device and inode at the time: a folder that was
    /// replaced is another one. `None`: everything.
    pub readable: Option<Vec<Seen>>,
    /// Where they may put what has to be complete before it is passed on; `None`: nowhere.
    pub spill: Option<PathBuf>,
}

/// A path, and device and inode of what lay there.
type Seen = (PathBuf, Option<(u64, u64)>);

fn seen(path: PathBuf) -> Seen {
    let there = std::fs::metadata(&path).ok().map(|there| (there.dev(), there.ino()));
    (path, there)
}

impl Layout {
    /// As the settings ask for.
    pub fn of(settings: &Settings, workers: usize, identity: Option<Identity>) -> Layout {
        let readable = || privileges::readable(settings).into_iter().map(seen).collect();
        Layout {
            workers,
            processes: usize::from(settings.processes),
            identity,
            readable: settings.sandbox.then(readable),
            spill: privileges::spill(settings),
        }
    }

    /// The same with what lies at the paths now, as a process that starts now may read it.
    pub(super) fn seen_now(&self) -> Layout {
        let readable = self.readable.as_ref();
        let readable = readable.map(|paths| paths.iter().map(|(path, _)| seen(path.clone())).collect());
        Layout { readable, ..self.clone() }
    }

    /// All workers of all processes.
    pub fn total(&self) -> usize {
        self.workers * self.processes
    }

    /// Whether processes made for this can serve what `next` is for.
    pub fn suits(&self, next: &Layout) -> bool {
        let may_read = match (&self.readable, &next.readable) {
            (Some(present), Some(wanted)) => wanted.iter().all(|path| present.contains(path)),
            (present, wanted) => present.is_none() == wanted.is_none(),
        };
        (self.workers, self.processes, &self.identity) == (next.workers, next.processes, &next.identity)
            && (next.spill.is_none() || self.spill == next.spill)
            && may_read
    }
}

/// Settings with all that goes with them.
pub struct Revision {
    /// From 1.
    pub number: u64,
    /// As written, but for what the arguments say.
    pub settings: Arc<Settings>,
    /// Open.
    pub sockets: Sockets,
    /// Read.
    pub tls: TlsFiles,
    /// The state of those files just before they were read.
    pub seen: CertificateWatch,
    /// Open.
    pub logs: Logs,
    /// Of the processes.
    pub layout: Layout,
    /// Which user pools have, as it was said.
    pub assigned: Vec<users::Assigned>,
    /// What the warnings that they give are known by.
    pub warnings: HashSet<String>,
}

impl Revision {
    /// The settings as one process gets them.
    pub fn fitted(&self) -> Arc<Settings> {
        let mut fitted = self.sockets.fit(&self.settings, self.layout.total());
        if self.settings.processes > 1 {
            parts::divide(Arc::make_mut(&mut fitted));
        }
        fitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_suit_what_asks_for_no_more() {
        let layout = |workers, paths: &[&str]| Layout {
            workers,
            processes: 1,
            identity: None,
            readable: Some(paths.iter().map(|path| (PathBuf::from(path), Some((1, 2)))).collect()),
            spill: None,
        };
        assert!(layout(2, &["/a", "/b"]).suits(&layout(2, &["/b"])));
        assert!(!layout(2, &["/a"]).suits(&layout(2, &["/a", "/b"])));
        assert!(!layout(2, &["/a"]).suits(&layout(3, &["/a"])));
        let open = Layout { readable: None, ..layout(2, &[]) };
        assert!(!open.suits(&layout(2, &[])) && !layout(2, &[]).suits(&open) && open.suits(&open));
    }
}
