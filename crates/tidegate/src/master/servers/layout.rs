//! What server processes are made of, and which settings need others.

use super::super::access::AccessState;
use super::super::rates::Rates;
use super::super::{cache_folders, parts, sealing, users};
use super::{CertificateWatch, Logs, Sockets};
use crate::link::{Found, Identity, Inode};
use crate::server::privileges;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_config::settings::pool::Sealed;
use tidegate_config::{Settings, WrittenSettings};
use tidegate_core::tls::TlsFiles;
use tidegate_modules::gateway::supervise::seal;

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
    /// What applications of the same user do not reach and links must not lead to, and what lies beside the ways there.
    pub sealed: Option<(Vec<PathBuf>, Vec<Seen>)>,
    /// Where they may put what has to be complete before it is passed on; `None`: nowhere.
    pub spill: Option<PathBuf>,
    /// Where they may store responses, with device and inode.
    pub caches: Vec<Seen>,
}

/// A path, and device and inode of what lay there.
type Seen = (PathBuf, Inode);

/// In place of what lies where server processes do not get, though their master does.
const UNREACHED: Inode = Some((u64::MAX, u64::MAX));

fn seen(path: PathBuf) -> Seen {
    let there = privileges::inode_of(&path);
    (path, there)
}

/// Whether all of these are among those. There may be two for every site.
fn holds_all<'a>(present: &[Seen], wanted: impl IntoIterator<Item = &'a Seen>) -> bool {
    let present: HashSet<&Seen> = present.iter().collect();
    wanted.into_iter().all(|path| present.contains(path))
}

/// Whether processes that may read the one may read the other: what is new in a folder that they may read, and that is the same
/// still, goes with it. Where a link leads to is wanted as well, beside the link. What was there and is another one now is opened by
/// other processes, which find what it leads to.
fn reads_all(present: &[Seen], wanted: &[Seen]) -> bool {
    let known: HashSet<&Path> = present.iter().map(|(path, _)| path.as_path()).collect();
    let present: HashSet<&Seen> = present.iter().collect();
    let held = wanted.iter().filter(|seen| present.contains(seen));
    let held: HashSet<&Path> = held.map(|(path, _)| path.as_path()).collect();
    let is_new =
        |path: &Path| !known.contains(path) && path.parent().is_some_and(|folder| held.contains(folder));
    wanted.iter().all(|(path, _)| held.contains(path.as_path()) || is_new(path))
}

impl Layout {
    /// As the settings ask for, with what lies at the paths now. Asks file systems, which may hang: not for the master's
    /// thread while it serves.
    pub fn of(settings: &Settings, workers: usize, identity: Option<Identity>) -> Layout {
        let readable = || privileges::readable(settings).into_iter().map(seen).collect();
        // What they may not reach is as good as not there; once they may, others can.
        let is_reached =
            |path: &PathBuf| identity.as_ref().is_none_or(|user| users::may_write(path, user).is_ok());
        let look = |path: PathBuf| match seen(path) {
            (path, Some(_)) if !is_reached(&path) => (path, UNREACHED),
            seen => seen,
        };
        let caches: Vec<Seen> = cache_folders::paths(settings).into_iter().map(look).collect();
        Layout {
            workers,
            processes: usize::from(settings.processes),
            identity,
            readable: settings.sandbox.then(readable),
            sealed: None,
            spill: privileges::spill(settings),
            caches,
        }
    }

    /// The same with what these settings, which have been sealed, keep from applications. An application can make a link to
    /// it, so that whoever follows links anywhere must not reach it either.
    pub fn sealed(self, settings: &Settings) -> Layout {
        let reads_everything = |paths: &Vec<Seen>| paths.iter().any(|(path, _)| path == Path::new("/"));
        let sealed = sealing::of(settings).filter(|_| self.readable.as_ref().is_some_and(reads_everything));
        let sealed = sealed.map(|sealed| {
            let (paths, beside) = without_caches(settings, sealed);
            (paths, beside.into_iter().map(seen).collect())
        });
        Layout { sealed, ..self }
    }

    /// A process of this layout has begun, with what it has found at the paths.
    pub(super) fn has_found(&mut self, found: Found) {
        if let Some(readable) = &mut self.readable {
            readable.iter_mut().zip(found.readable).for_each(|((_, there), found)| *there = found);
        }
        let caches = self.caches.iter_mut().zip(found.caches).filter(|((_, there), _)| *there != UNREACHED);
        caches.for_each(|((_, there), found)| *there = found);
        if let Some((_, beside)) = &mut self.sealed {
            *beside = found.beside;
        }
    }

    /// All workers of all processes.
    pub fn total(&self) -> usize {
        self.workers * self.processes
    }

    /// Whether processes made for this can serve what `next` is for.
    pub fn suits(&self, next: &Layout) -> bool {
        (self.workers, self.processes) == (next.workers, next.processes) && self.reaches(next)
    }

    /// Whether they reach all that processes made for `next` reach, as these do.
    pub fn reaches(&self, next: &Layout) -> bool {
        let may_read = match (&self.readable, &next.readable) {
            (Some(present), Some(wanted)) => reads_all(present, wanted),
            (present, wanted) => present.is_none() == wanted.is_none(),
        };
        let may_follow = match (&self.sealed, &next.sealed) {
            (Some((present, beside)), Some((sealed, wanted))) => {
                present == sealed && holds_all(beside, wanted)
            }
            (present, sealed) => present.is_none() == sealed.is_none(),
        };
        self.identity == next.identity
            && (next.spill.is_none() || self.spill == next.spill)
            && holds_all(&self.caches, next.caches.iter().filter(|(_, there)| *there != UNREACHED))
            && may_read
            && may_follow
    }
}

/// What server processes are kept from, and what lies beside the ways there: all that applications are kept from but the
/// responses that are stored.
fn without_caches(settings: &Settings, sealed: &Sealed) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let caches: HashSet<PathBuf> =
        cache_folders::of(settings).flat_map(|disk| seal::with_ways(&disk.path)).collect();
    if caches.is_empty() {
        return (sealed.paths.clone(), sealed.beside.clone());
    }
    let paths: Vec<PathBuf> = sealed.paths.iter().filter(|path| !caches.contains(*path)).cloned().collect();
    let beside = seal::beside(&paths);
    (paths, beside)
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
    /// What access asks of files.
    pub access: AccessState,
    /// Open.
    pub logs: Logs,
    /// What limits have counted.
    pub rates: Rates,
    /// Of the processes.
    pub layout: Layout,
    /// Which user pools have, as it was said.
    pub assigned: Vec<users::Assigned>,
    /// What the warnings that they give are known by.
    pub warnings: HashSet<String>,
    /// The settings as they were written.
    pub written: Arc<WrittenSettings>,
}

impl Revision {
    /// The settings as one process gets them.
    pub fn fitted(&self) -> Arc<Settings> {
        self.fitted_to(&self.layout)
    }

    /// The same for processes of a layout of before, which end by them: each has the share of one of those.
    pub fn fitted_to(&self, layout: &Layout) -> Arc<Settings> {
        let mut fitted = self.sockets.fit(&self.settings, self.layout.total());
        if *layout != self.layout {
            let fitted = Arc::make_mut(&mut fitted);
            fitted.workers = u16::try_from(layout.workers).ok();
            fitted.processes = u16::try_from(layout.processes).unwrap_or(u16::MAX);
        }
        if fitted.processes > 1 {
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
            sealed: None,
            spill: None,
            caches: Vec::new(),
        };
        assert!(layout(2, &["/a", "/b"]).suits(&layout(2, &["/b"])));
        assert!(!layout(2, &["/a"]).suits(&layout(2, &["/a", "/b"])));
        assert!(!layout(2, &["/a"]).suits(&layout(3, &["/a"])));
        // Beside it, in a folder that may be read; deeper in nothing that may be.
        let one = layout(2, &["/w", "/w/a"]);
        assert!(one.suits(&layout(2, &["/w", "/w/b"])) && !one.suits(&layout(2, &["/w", "/w/b/c"])));
        assert!(!layout(2, &["/w/a"]).suits(&layout(2, &["/w", "/w/a"])));
        assert!(!one.suits(&layout(2, &["/w", "/w/b", "/x/c"])), "a link that leads elsewhere");
        let replaced = |path: &str| {
            let mut readable = one.readable.clone().unwrap();
            readable
                .iter_mut()
                .filter(|(known, _)| known == Path::new(path))
                .for_each(|seen| seen.1 = Some((1, 9)));
            Layout { readable: Some(readable), ..one.clone() }
        };
        assert!(!one.suits(&replaced("/w/a")) && !one.suits(&replaced("/w")), "it is another one");
        let elsewhere = vec![("/w".into(), Some((1, 9))), ("/w/b".into(), Some((1, 2)))];
        assert!(!one.suits(&Layout { readable: Some(elsewhere), ..one.clone() }), "so is the folder");
        let caches = |there| Layout { caches: vec![("/c".into(), there)], ..layout(2, &["/a"]) };
        assert!(caches(Some((1, 2))).suits(&layout(2, &["/a"])), "one that is not needed any more");
        assert!(caches(None).suits(&caches(None)) && !layout(2, &["/a"]).suits(&caches(Some((1, 2)))));
        assert!(!caches(None).suits(&caches(Some((1, 2)))), "it has been made since");
        let open = Layout { readable: None, ..layout(2, &[]) };
        let sealed = |beside: &[&str]| {
            let beside = beside.iter().map(|path| (PathBuf::from(path), Some((1, 2)))).collect();
            Layout { sealed: Some((vec!["/k".into()], beside)), ..layout(2, &["/"]) }
        };
        assert!(sealed(&["/a", "/b"]).suits(&sealed(&["/a"])) && !sealed(&["/a"]).suits(&sealed(&["/b"])));
        assert!(!layout(2, &["/"]).suits(&sealed(&[])) && !sealed(&[]).suits(&layout(2, &["/"])));
        assert!(!open.suits(&layout(2, &[])) && !layout(2, &[]).suits(&open) && open.suits(&open));
    }

    /// Applications of the same user are kept from what is stored, the processes that store it are not.
    #[test]
    fn server_processes_reach_what_they_store() {
        let folder = std::env::temp_dir().join(format!("tidegate-layout-{}", std::process::id()));
        let [cache, keys] = ["cache", "keys"].map(|name| folder.join(name));
        [&cache, &keys].iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
        let text = format!(
            "listen \":1\"\ncache \"main\" {{ disk \"{}\" size=\"1MiB\" }}\nsite {{ respond 200 }}\n",
            cache.display()
        );
        let loaded =
            tidegate_config::load_str("a", &text, Path::new("/"), &tidegate_config::ProcessEnvironment);
        let paths = [&cache, &keys].map(|path| seal::with_ways(path)).concat();
        let (paths, beside) = without_caches(
            &loaded.settings.unwrap(),
            &Sealed { beside: seal::beside(&paths), paths, ..Sealed::default() },
        );
        assert!(paths.contains(&keys) && !paths.contains(&cache), "{paths:?}");
        assert!(beside.contains(&cache.canonicalize().unwrap()), "{beside:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
