//! Roots that many have: each is one [`Root`] for the whole process, and only some of them are held open.
//!
//! A site of a hoster has a root of its own, and most sites are not asked for most of the time. Beyond [`HELD_OPEN`] roots
//! the one that nobody has used lately is closed; `file` opens it anew, by its path, when somebody asks for what is below.

use crate::file::{Links, Root};
use crate::locking::lock;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// Roots that are held open at once.
const HELD_OPEN: usize = 256;
/// From so many shared roots on, those that nobody has any more are looked for whenever their number doubles.
const ROOTS_SWEPT: usize = 64;

static ROOTS: Mutex<BTreeMap<(PathBuf, Links), Weak<Root>>> = Mutex::new(BTreeMap::new());
/// Those that are open, in the order in which they were opened or spared.
static OPEN: Mutex<VecDeque<Weak<Root>>> = Mutex::new(VecDeque::new());

/// The root of this path, as all others of this process have it; opened where nobody has it.
///
/// # Errors
/// As [`Root::with_links`].
pub(crate) fn find_or_open(path: &Path, links: Links) -> io::Result<(Arc<Root>, bool)> {
    let key = (path.to_owned(), links);
    let known = |roots: &BTreeMap<_, Weak<Root>>| roots.get(&key).and_then(Weak::upgrade);
    let there = known(&lock(&ROOTS));
    if let Some(root) = there {
        return Ok((root, false));
    }
    // Without the lock: the file system of this one may hang, and others ask for theirs.
    let root = Root::shared_by_all(path, links)?;
    let mut roots = lock(&ROOTS);
    if let Some(root) = known(&roots) {
        return Ok((root, false)); // somebody else was sooner
    }
    if roots.len() >= ROOTS_SWEPT && roots.len().is_power_of_two() {
        roots.retain(|_, root| root.strong_count() > 0);
    }
    roots.insert(key, Arc::downgrade(&root));
    drop(roots);
    has_opened(Arc::downgrade(&root));
    Ok((root, true))
}

/// A shared root was opened: others are closed where there are too many.
pub(crate) fn has_opened(root: Weak<Root>) {
    let mut open = lock(&OPEN);
    open.push_back(root);
    // Once around takes the second chances away.
    for _ in 0..2 * open.len() {
        if open.len() <= HELD_OPEN {
            return;
        }
        let Some(oldest) = open.pop_front() else { return };
        if oldest.upgrade().is_some_and(|root| !root.close_unless_used()) {
            open.push_back(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Patience;
    use std::fs;

    #[test]
    fn of_many_roots_some_are_open_and_all_are_served() {
        let folder = std::env::temp_dir().join(format!("tidegate-roots-{}", std::process::id()));
        let path = |number: usize| folder.join(number.to_string());
        for number in 0..HELD_OPEN + 200 {
            fs::create_dir_all(path(number)).unwrap();
            fs::write(path(number).join("a"), number.to_string()).unwrap();
        }
        let roots: Vec<Arc<Root>> =
            (0..HELD_OPEN + 200).map(|number| Root::shared(&path(number), Links::Beneath).unwrap()).collect();
        let open = || roots.iter().filter(|root| !root.is_closed()).count();
        assert!((1..=HELD_OPEN).contains(&open()), "{} are open", open());
        for _ in 0..2 {
            for (number, root) in roots.iter().enumerate() {
                let meta = root.open_file(b"a", Patience::Wait).unwrap().meta;
                assert_eq!(meta.len, number.to_string().len() as u64, "{number}");
                assert_eq!(root.generation(), 0, "the same folder as before");
            }
        }
        assert!((1..=HELD_OPEN).contains(&open()), "{} are open", open());
        // One that is replaced while it is closed is another one.
        let first = &roots[0];
        assert!(first.is_closed(), "the others have come after it");
        fs::rename(path(0), folder.join("old")).unwrap();
        assert_eq!(first.open_file(b"a", Patience::Wait).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(path(0)).unwrap();
        fs::write(path(0).join("b"), "new").unwrap();
        assert!(first.open_file(b"b", Patience::Wait).is_ok());
        assert_eq!(first.generation(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
