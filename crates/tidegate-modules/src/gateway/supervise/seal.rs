//! What a program that has the server's own user may not reach: private keys, their storage, the control socket and the
//! proof that goes with it (FAULTS 61).
//!
//! A path is resolved once, by [`with_ways`], when settings come in force.
//!
//! Landlock(7) only allows, so everything is allowed but what is sealed: whatever lies beside the way to a sealed path.
//! A folder on the way itself is listed and entered as before, but nothing is made, moved or removed right in it, and
//! what somebody else makes there later is not seen. A process that is confined so cannot trace or look into processes
//! that are not, and where the kernel has it (6.12) sends signals to none but those that it has started.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags, access, fstat, open};
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// What is kept from the programs, and the oldest kernel that has it without taking more: without `Refer` (5.19) no file
/// can be moved between folders. Listing and running are left alone.
fn handled() -> BitFlags<AccessFs> {
    AccessFs::from_all(ABI::V3) & !(AccessFs::ReadDir | AccessFs::Execute)
}

/// Whether this kernel can seal.
pub fn is_possible() -> bool {
    let refer = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    refer.handle_access(AccessFs::Refer).and_then(Ruleset::create).is_ok()
}

/// The names that are sealed in each folder on the way; `None` for a path that is no file's.
fn names(path: &Path) -> Option<Vec<(PathBuf, OsString)>> {
    let mut folder = PathBuf::from("/");
    let mut steps = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => {
                steps.push((folder.clone(), name.to_owned()));
                folder.push(name);
            }
            _ => return None,
        }
    }
    Some(steps).filter(|steps| !steps.is_empty())
}

/// Whether this kernel can keep ports from programs.
pub fn can_keep_ports() -> bool {
    let bind = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    bind.handle_access(AccessNet::BindTcp).and_then(Ruleset::create).is_ok()
}

/// Links that are followed at most, as by the kernel.
const LINKS: usize = 40;

/// A path as the kernel resolves it, as far as there is something, with every symbolic link on the way that this user could
/// replace: whoever leads one elsewhere has the path mean another file.
fn places(path: &Path) -> BTreeSet<PathBuf> {
    let mut places = BTreeSet::new();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parts = |path: &Path| -> Vec<OsString> {
        let parts =
            path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        parts.map(|part| part.as_os_str().to_owned()).rev().collect()
    };
    let (mut at, mut pending, mut links) = (PathBuf::from("/"), parts(&absolute), 0);
    while let Some(part) = pending.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        match fs::read_link(&next) {
            Ok(target) if links < LINKS => {
                links += 1;
                if may_change(&at) {
                    places.insert(next);
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                pending.extend(parts(&target));
            }
            _ => at = next,
        }
    }
    places.insert(at);
    places
}

/// Whether this user could put something else into a folder, by its mode or by changing that.
fn may_change(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|there| there.uid() == geteuid().as_raw())
        || access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A path that is to be sealed with all that leads there now. Resolved once and kept, so that an application which leads a
/// link elsewhere later changes nothing.
pub fn with_ways(path: &Path) -> Vec<PathBuf> {
    places(path).into_iter().chain([path.to_owned()]).collect()
}

/// The folder for everybody that a path leads through, where there is one: to seal the path would take it away. One that
/// this process's user owns is none, whatever its mode: an application can change that (chmod(2) is not in landlock).
pub fn shared_folder(path: &Path) -> Option<PathBuf> {
    shared_folder_for(geteuid().as_raw(), path)
}

fn shared_folder_for(uid: u32, path: &Path) -> Option<PathBuf> {
    let is_shared = |folder: &&Path| {
        fs::metadata(folder).is_ok_and(|there| there.uid() != uid && there.mode() & 0o002 != 0)
    };
    folders_to(path).into_iter().find(|folder| is_shared(&folder.as_path()))
}

/// The folder of this process's user on the way to a path that everybody may write to, where there is one.
pub fn open_folder(path: &Path) -> Option<PathBuf> {
    let own = geteuid().as_raw();
    let is_open = |folder: &PathBuf| {
        fs::metadata(folder).is_ok_and(|there| there.uid() == own && there.mode() & 0o002 != 0)
    };
    folders_to(path).into_iter().find(is_open)
}

fn folders_to(path: &Path) -> Vec<PathBuf> {
    let places = places(path);
    places.iter().flat_map(|place| place.ancestors().skip(1)).map(Path::to_owned).collect()
}

/// For each folder on the ways to the sealed paths the names in it that lead there.
fn ways(sealed: &[PathBuf]) -> Result<BTreeMap<PathBuf, BTreeSet<OsString>>, String> {
    let mut ways: BTreeMap<PathBuf, BTreeSet<OsString>> = BTreeMap::new();
    for place in sealed.iter().flat_map(|path| places(path)) {
        let steps = names(&place).ok_or_else(|| format!("{} cannot be kept apart", place.display()))?;
        for (folder, name) in steps {
            ways.entry(folder).or_default().insert(name);
        }
    }
    // What lies in a sealed folder is sealed with it.
    let whole: Vec<PathBuf> = sealed.iter().flat_map(|path| places(path)).collect();
    ways.retain(|folder, _| !whole.iter().any(|sealed| folder.starts_with(sealed)));
    Ok(ways)
}

/// The folders beside the ways to the sealed paths. Where they change, who was confined before does not see the new ones.
pub fn beside(sealed: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for (folder, names) in ways(sealed).unwrap_or_default() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let entries = entries.filter(|entry| !names.contains(&entry.file_name()));
        folders.extend(entries.map(|entry| entry.path()));
    }
    folders.sort();
    folders
}

/// Confines the calling process, which has one thread, and all that it starts. `ports` are those that the server listens
/// on: where the kernel has it (6.7) none of them can be bound.
///
/// # Errors
/// A sentence: nothing must run then.
pub fn confine(sealed: &[PathBuf], ports: &[u16]) -> Result<(), String> {
    let fail = |problem: &dyn std::fmt::Display| {
        format!("cannot keep keys and the control socket of the server out of its reach: {problem}")
    };
    let mut rules = Vec::new();
    for (folder, names) in ways(sealed).map_err(|problem| fail(&problem))? {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Nothing is there yet, and nothing can be made there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // A folder that may be entered and not listed (0710 and another's). Rules only allow: without them nothing in
            // it is within reach.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(error) => return Err(fail(&format_args!("{}: {error}", folder.display()))),
        };
        for entry in entries.flatten().filter(|entry| !names.contains(&entry.file_name())) {
            rules.extend(allow(&entry.path()).map(Ok::<_, landlock::RulesetError>));
        }
    }
    // Rules only allow, one port each: some 60 ms and 4 MB of the kernel for all of them.
    let is_bound = !ports.is_empty() && can_keep_ports();
    let free = (0..=u16::MAX).filter(|port| is_bound && !ports.contains(port));
    let free = free.map(|port| NetPort::new(port, AccessNet::BindTcp));
    let confined = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)
        .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
        .and_then(|ruleset| ruleset.handle_access(handled()))
        .and_then(|ruleset| ruleset.scope(Scope::Signal))
        .and_then(|ruleset| if is_bound { ruleset.handle_access(AccessNet::BindTcp) } else { Ok(ruleset) })
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(rules))
        .and_then(|ruleset| ruleset.add_rules(free.map(Ok::<_, landlock::RulesetError>)))
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|error| fail(&error))?;
    if confined.ruleset == RulesetStatus::NotEnforced {
        return Err(fail(&"this kernel has no landlock"));
    }
    Ok(())
}

/// All that is handled, for one entry of a folder and what lies below. A symbolic link is none: what it leads to has a
/// place of its own.
fn allow(path: &Path) -> Option<PathBeneath<std::os::fd::OwnedFd>> {
    // Gone since, or not for this user, or to wait for.
    tidegate_io::unanswered::examine(path).ok()?;
    let fd = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let access = match FileType::from_raw_mode(fstat(&fd).ok()?.st_mode) {
        FileType::Directory => handled(),
        FileType::Symlink => return None,
        _ => handled() & AccessFs::from_file(ABI::V3),
    };
    Some(PathBeneath::new(fd, access))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(name: &str) -> PathBuf {
        let executable = std::env::current_exe().unwrap();
        tidegate_testkit::folder_apart(executable.parent().unwrap(), &format!("seal-{name}"))
    }

    #[test]
    fn what_is_sealed_is_out_of_reach_and_all_else_is_as_before() {
        let folder = folder("reach");
        for path in ["keys", "data", "data/below"] {
            fs::create_dir(folder.join(path)).unwrap();
        }
        for path in ["keys/key", "data/file", "control", "beside", "certificate"] {
            fs::write(folder.join(path), "text").unwrap();
        }
        symlink("keys/key", folder.join("link")).unwrap();
        symlink("/", folder.join("all")).unwrap();
        let sealed = vec![folder.join("link"), folder.join("control"), folder.join("none/yet")];
        assert_eq!(sealed.iter().find_map(|path| shared_folder(path)), None, "{}", folder.display());
        let at = folder.clone();
        let confined = std::thread::spawn(move || {
            if !is_possible() {
                eprintln!("SKIPPED: this kernel has no landlock");
                return;
            }
            confine(&sealed, &[]).unwrap();
            for path in ["keys/key", "link", "control"] {
                assert!(fs::read(at.join(path)).is_err(), "reads {path}");
                assert!(fs::write(at.join(path), "").is_err(), "writes {path}");
            }
            assert!(fs::read(at.join("all").join(at.strip_prefix("/").unwrap()).join("control")).is_err());
            for path in ["keys/key", "link", "control"] {
                assert!(fs::remove_file(at.join(path)).is_err(), "removes {path}");
                assert!(fs::rename(at.join(path), at.join("data/moved")).is_err(), "moves {path}");
            }
            assert!(fs::rename(at.join("keys"), at.join("elsewhere")).is_err(), "moves the folder");
            assert!(fs::rename(at.join("data"), at.join("keys")).is_err(), "puts another in its place");
            assert!(fs::hard_link(at.join("keys/key"), at.join("data/hard")).is_err(), "links");
            assert!(fs::write(at.join("keys/new"), "").is_err(), "makes one beside the key");
            assert!(fs::create_dir(at.join("none")).is_err(), "makes the way");
            // The rest, and what is made there.
            assert_eq!(fs::read_to_string(at.join("beside")).unwrap(), "text");
            fs::write(at.join("beside"), "new").unwrap();
            fs::write(at.join("data/made"), "made").unwrap();
            fs::rename(at.join("data/made"), at.join("data/below/made")).unwrap();
            assert_eq!(fs::read_to_string(at.join("data/below/made")).unwrap(), "made");
            fs::remove_file(at.join("data/below/made")).unwrap();
            let temporary = std::env::temp_dir().join(format!("seal-{}", std::process::id()));
            fs::write(&temporary, "made").unwrap();
            assert_eq!(fs::read_to_string(&temporary).unwrap(), "made");
            fs::remove_file(&temporary).unwrap();
            assert!(std::process::Command::new("/bin/true").status().unwrap().success());
            assert!(fs::read("/etc/passwd").is_ok() && fs::read_dir(&at).is_ok());
        });
        confined.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    /// As `/etc/ssl/private` of Debian is, which is 0710 and root's: the group enters it and does not list it.
    #[test]
    fn a_folder_that_cannot_be_listed_is_out_of_reach_and_the_rest_is_as_before() {
        let folder = folder("entered");
        fs::create_dir(folder.join("private")).unwrap();
        for path in ["private/key", "private/other", "beside"] {
            fs::write(folder.join(path), "text").unwrap();
        }
        let at = folder.clone();
        let confined = std::thread::spawn(move || {
            if !is_possible() {
                eprintln!("SKIPPED: this kernel has no landlock");
                return;
            }
            // The test owns it: without listing for the owner, and without what root has beyond modes.
            fs::set_permissions(at.join("private"), fs::Permissions::from_mode(0o310)).unwrap();
            let mut ours = rustix::thread::capabilities(None).unwrap();
            ours.effective = rustix::thread::CapabilitySet::empty();
            rustix::thread::set_capabilities(None, ours).unwrap();
            assert!(fs::read_dir(at.join("private")).is_err(), "it is not listed");
            assert_eq!(fs::read_to_string(at.join("private/key")).unwrap(), "text");
            confine(&[at.join("private/key")], &[]).unwrap();
            assert!(fs::read(at.join("private/key")).is_err() && fs::read(at.join("private/other")).is_err());
            assert!(fs::write(at.join("private/key"), "").is_err(), "writes");
            assert!(fs::rename(at.join("private"), at.join("elsewhere")).is_err(), "moves the folder");
            assert_eq!(fs::read_to_string(at.join("beside")).unwrap(), "text");
        });
        confined.join().unwrap();
        fs::set_permissions(folder.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    /// What is sealed is what the path led to at first, and no link on the way can be led elsewhere.
    #[test]
    fn links_on_the_way_are_sealed_and_what_they_led_to_stays_so() {
        let folder = folder("ways").canonicalize().unwrap();
        for path in ["keys", "dep", "data", "other"] {
            fs::create_dir(folder.join(path)).unwrap();
        }
        fs::write(folder.join("keys/key"), "text").unwrap();
        symlink("../keys", folder.join("dep/tls")).unwrap();
        symlink("dep/../dep/tls", folder.join("current")).unwrap();
        let named = folder.join("current/key");
        let sealed = with_ways(&named);
        for path in ["keys/key", "dep/tls", "current", "current/key"] {
            assert!(sealed.contains(&folder.join(path)), "{path} in {sealed:?}");
        }
        let confined = |sealed: Vec<PathBuf>, attempt: fn(&Path)| {
            let at = folder.clone();
            let thread = std::thread::spawn(move || {
                if !is_possible() {
                    return eprintln!("SKIPPED: this kernel has no landlock");
                }
                confine(&sealed, &[]).unwrap();
                attempt(&at);
            });
            thread.join().unwrap();
        };
        confined(sealed.clone(), |at| {
            for link in ["dep/tls", "current"] {
                assert!(fs::remove_file(at.join(link)).is_err(), "removes {link}");
                assert!(fs::rename(at.join(link), at.join("data/moved")).is_err(), "moves {link}");
            }
            assert!(fs::rename(at.join("dep"), at.join("data/dep")).is_err(), "moves its folder");
            fs::write(at.join("data/made"), "made").unwrap();
        });
        // Should it be led elsewhere by somebody else, who starts later does not reach the key either, nor the new place.
        fs::remove_file(folder.join("dep/tls")).unwrap();
        symlink("../other", folder.join("dep/tls")).unwrap();
        fs::write(folder.join("other/key"), "text").unwrap();
        confined(sealed, |at| {
            for key in ["keys/key", "other/key", "current/key"] {
                assert!(fs::read(at.join(key)).is_err(), "reads {key}");
            }
        });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_way_through_a_folder_for_everybody_is_said() {
        let folder = folder("shared");
        let open = folder.join("open");
        fs::create_dir_all(open.join("in")).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        let (own, other) = (geteuid().as_raw(), geteuid().as_raw() + 1);
        let shared = |path: &str| shared_folder_for(other, &folder.join(path));
        assert_eq!(shared("open/in/control"), Some(open.clone()));
        assert_eq!(shared("open/not/yet"), Some(open.clone()));
        assert_eq!(shared("open"), None, "itself may be");
        symlink(open.join("in"), folder.join("link")).unwrap();
        assert_eq!(shared("link/control"), Some(open.clone()));
        // The owner's own: an application could have made it so.
        assert_eq!(shared_folder_for(own, &open.join("in/control")), None);
        assert_eq!(open_folder(&open.join("in/control")), Some(open));
        fs::create_dir(folder.join("beside")).unwrap();
        assert!(beside(&[folder.join("open")]).contains(&folder.join("beside")));
        assert!(!beside(&[folder.join("open")]).contains(&folder.join("open")));
        fs::remove_dir_all(&folder).unwrap();
    }
}
