//! Giving up what a server process does not need, while it has a single thread: root, the right to gain
//! rights, and files beyond the roots (landlock).
//!
//! The master resolves names to numbers and says what may be read; the process does it to itself, first of
//! all, so that nothing it does later can be undone by a client.

use crate::link::{Begin, Found, Identity, Inode};
use anyhow::{Context, Result};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate_config::settings::gateway::Script;
use tidegate_config::settings::{Action, Symlinks};
use tidegate_io::unanswered;
use tidegate_modules::gateway::supervise::seal;

/// What lies at the paths that `begin` names. Before it gives anything up a process sees what the master would, whose part
/// it does: a file system that hangs is to stop one process at most. What is replaced between this and
/// [`give_up`] is found to be another one later.
pub fn look(begin: &Begin) -> Found {
    let beside = if begin.sealed.is_empty() { Vec::new() } else { seal::beside(&begin.sealed) };
    Found {
        readable: begin.readable.iter().flatten().map(|path| inode_of(path)).collect(),
        caches: begin.caches.iter().map(|path| inode_of(path)).collect(),
        beside: beside
            .into_iter()
            .map(|path| (inode_of(&path), path))
            .map(|(inode, path)| (path, inode))
            .collect(),
    }
}

/// What lies at a path.
pub fn inode_of(path: &Path) -> Inode {
    unanswered::examine(path).ok()?;
    std::fs::metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

/// Gives up what `begin` says. An error must end the process. The sentence is a warning.
pub fn give_up(begin: &Begin) -> Result<Option<String>> {
    if let Some(identity) = &begin.identity {
        become_user(identity)?;
    }
    rustix::thread::set_no_new_privs(true).context("cannot give up gaining privileges")?;
    if !begin.sealed.is_empty() {
        seal::confine(&begin.sealed, &[]).map_err(anyhow::Error::msg)?;
    }
    match &begin.readable {
        Some(readable) => {
            let answers = |path: &&PathBuf| unanswered::examine(path).is_ok();
            let readable = readable.iter().filter(answers).cloned().collect();
            let spill = begin.spill.as_deref().filter(|path| unanswered::examine(path).is_ok());
            let caches = begin.caches.iter().filter(answers).map(PathBuf::as_path);
            confine(&outermost(readable), spill, caches)
        }
        None => Ok(None),
    }
}

/// Keys of certificates lie in the memory of master and server processes: others of the same user, applications among
/// them, are not to look into it (ptrace(2), `PR_SET_DUMPABLE`).
pub fn close_memory() {
    // Where it fails all is as it would have been.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Becomes a user for good.
pub fn become_user(identity: &Identity) -> Result<()> {
    let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).context("cannot give up groups")?;
    setgid(Gid::from_raw(identity.gid)).context("cannot take on the group")?;
    setuid(Uid::from_raw(identity.uid)).context("cannot take on the user")?;
    // With the user's last root identity gone there is no way back; believe it only when seen.
    let is_root_again = identity.uid != 0 && setuid(Uid::from_raw(0)).is_ok();
    anyhow::ensure!(!is_root_again, "the process could still become root");
    Ok(())
}

/// Reads below `readable`, writes files without a name in `spill`, makes and removes what lies below `caches`, connects, and nothing else that landlock knows. What this kernel does not have of
/// it is left out; a kernel without landlock is worth a word.
fn confine<'p>(
    readable: &[PathBuf],
    spill: Option<&Path>,
    caches: impl Iterator<Item = &'p Path>,
) -> Result<Option<String>> {
    let read = AccessFs::from_read(ABI::V5) & !AccessFs::Execute;
    // Opened one after the other: there may be more of them than descriptors.
    let readable = readable.iter().filter_map(|path| {
        // What is not there, or may not be looked at by this user, cannot be served either.
        let fd = PathFd::new(path).ok()?;
        let access = if path.is_dir() { read } else { AccessFs::ReadFile.into() };
        Some(Ok::<_, landlock::RulesetError>(PathBeneath::new(fd, access)))
    });
    let spill = spill.and_then(|path| PathFd::new(path).ok()).map(|fd| {
        // A file without a name is opened in the folder, which counts as making one there.
        let access = read | AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::RemoveFile;
        Ok(PathBeneath::new(fd, access))
    });
    let caches = caches.filter_map(|path| {
        let files = AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::RemoveFile | AccessFs::Truncate;
        let folders = AccessFs::MakeDir | AccessFs::RemoveDir | AccessFs::Refer;
        Some(Ok(PathBeneath::new(PathFd::new(path).ok()?, read | files | folders)))
    });
    let rules = readable.chain(spill).chain(caches);
    let confined = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::BindTcp))
        .and_then(|ruleset| ruleset.scope(Scope::Signal))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(rules))
        .and_then(landlock::RulesetCreated::restrict_self);
    match confined {
        Ok(status) if status.ruleset == RulesetStatus::NotEnforced => Ok(Some(
            "this kernel has no landlock, or it is switched off: server processes are confined by the \
                     permissions of their user alone; `sandbox off` says that this is meant"
                .into(),
        )),
        Ok(_) => Ok(None),
        Err(error) => Ok(Some(format!(
            "server processes could not be confined by landlock, and go on without: {error}"
        ))),
    }
}

/// What of the system a server process reads: name resolution, certificates of authorities, its own state.
pub const SYSTEM: &[&str] = &[
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
    "/usr/lib",
    "/lib",
    "/run/systemd/resolve",
    "/proc",
    "/sys/fs/cgroup",
    "/sys/devices/system",
];

/// What server processes may read under these settings, beside [`SYSTEM`].
///
/// Of a root the folder it lies in too, and that of the folder it leads to where it is a symbolic link: a root
/// that is replaced as a whole, as deployments do, is another folder under the same name. The root folder of
/// the system is never opened that way.
pub fn readable(settings: &tidegate_config::Settings) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut seen: HashSet<&Path> = HashSet::new();
    let mut add = |path: &Path| {
        paths.push(path.to_owned());
        if let Some(parent) = path.parent().filter(|parent| parent.parent().is_some()) {
            paths.push(parent.to_owned());
        }
    };
    for route in settings.sites.iter().flat_map(|site| &site.routes) {
        // Links may lead anywhere.
        let symlinks = match &route.action {
            Action::Files(files) => files.symlinks,
            Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
                application.symlinks
            }
            _ => Symlinks::Beneath,
        };
        if symlinks != Symlinks::Beneath {
            return vec![PathBuf::from("/")];
        }
        for folder in folders(&route.action).into_iter().filter(|folder| seen.insert(folder)) {
            add(folder);
            if let Ok(real) = folder.canonicalize() {
                add(&real);
            }
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

/// Those of the paths that are needed to read all of them: what lies in another one goes with it, so that ten thousand sites
/// side by side are one folder. A symbolic link leads elsewhere, and stays.
fn outermost(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let all: HashSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let goes_along = |path: &Path| {
        path.parent().is_some_and(|parent| all.contains(parent))
            && path.symlink_metadata().is_ok_and(|there| !there.is_symlink())
    };
    let is_needed: Vec<bool> = paths.iter().map(|path| !goes_along(path)).collect();
    let needed = paths.into_iter().zip(is_needed).filter(|(_, is_needed)| *is_needed);
    needed.map(|(path, _)| path).collect()
}

/// Where server processes may put what has to be complete before an application gets it; `None` where no route
/// needs that.
pub fn spill(settings: &tidegate_config::Settings) -> Option<PathBuf> {
    let needs = |action: &Action| matches!(action, Action::Fastcgi(_) | Action::Scgi(_) | Action::Cgi(_));
    let mut routes = settings.sites.iter().flat_map(|site| &site.routes);
    routes.any(|route| needs(&route.action)).then(|| settings.spill.folder.clone())
}

/// What a route reads: whoever adds a kind of answer that reads files names them here.
fn folders(action: &Action) -> Vec<&Path> {
    match action {
        Action::Files(files) => vec![&files.root],
        Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
            let script = match &application.script {
                Script::File(file) => Some(file.as_path()),
                Script::Suffixes(_) | Script::FirstFile { .. } | Script::Mounted(_) => None,
            };
            let root = Some(application.root.as_path()).filter(|root| root.is_absolute());
            let sent = application.gateway.sendfile.iter().map(|folder| folder.root.as_path());
            root.into_iter().chain(script).chain(sent).collect()
        }
        Action::Proxy(proxy) => proxy.gateway.sendfile.iter().map(|folder| folder.root.as_path()).collect(),
        Action::HandTo { .. } | Action::Redirect { .. } | Action::Respond { .. } | Action::Close => {
            Vec::new()
        }
        Action::Status | Action::Console { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Landlock holds for the thread that asks for it, so a test may.
    #[test]
    fn a_confined_thread_reads_below_its_folders_and_does_nothing_else() {
        let folder = std::env::temp_dir().join(format!("tidegate-confined-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("f"), "here").unwrap();
        let cache = folder.with_extension("cache");
        std::fs::create_dir_all(&cache).unwrap();
        let (made, kept) = (cache.join("made"), cache.clone());
        let allowed = vec![folder.clone(), PathBuf::from("/no/such/folder")];
        let confined = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            if let Some(warning) = confine(&allowed, None, [kept.as_path()].into_iter()).unwrap() {
                eprintln!("SKIPPED: {warning}");
                return;
            }
            assert_eq!(std::fs::read_to_string(allowed[0].join("f")).unwrap(), "here");
            std::fs::create_dir(&made).unwrap();
            std::fs::write(kept.join("aside"), "stored").unwrap();
            std::fs::rename(kept.join("aside"), made.join("f")).unwrap();
            assert_eq!(std::fs::read_to_string(made.join("f")).unwrap(), "stored");
            std::fs::remove_file(made.join("f")).unwrap();
            std::fs::remove_dir(&made).unwrap();
            assert!(std::fs::read("/etc/passwd").is_err(), "reads elsewhere");
            assert!(std::fs::write(allowed[0].join("g"), "").is_err(), "writes");
            assert!(std::fs::remove_file(allowed[0].join("f")).is_err(), "removes");
            assert!(std::process::Command::new("/bin/true").spawn().is_err(), "runs a program");
            assert!(TcpListener::bind("127.0.0.1:0").is_err(), "opens a port");
        });
        confined.join().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn a_root_may_be_read_with_the_folder_it_lies_in_but_never_all() {
        let text = "listen \":1\"\nsite { root \"/usr/share\"; route \"/x/*\" { root \"/tmp\" } }\n";
        let loaded =
            tidegate_config::load_str("a", text, Path::new("/"), &tidegate_config::ProcessEnvironment);
        let paths = readable(&loaded.settings.unwrap());
        for path in ["/usr/share", "/usr", "/tmp"] {
            assert!(paths.contains(&PathBuf::from(path)), "{path}");
        }
        assert!(!paths.contains(&PathBuf::from("/")));
        assert_eq!(outermost(paths), [PathBuf::from("/tmp"), PathBuf::from("/usr")]);
    }

    #[test]
    fn what_a_link_leads_to_may_be_read_beside_the_link() {
        let folder = std::env::temp_dir().join(format!("tidegate-readable-{}", std::process::id()));
        for name in ["v1/site", "other"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("v1/site", folder.join("current")).unwrap();
        let (there, other) = (folder.join("current"), folder.join("other/gone"));
        let text = format!(
            "listen \":1\"\nsite {{ root \"{}\"; route \"/x/*\" {{ root \"{}\" }} }}\n",
            there.display(),
            folder.join("other").display()
        );
        let loaded =
            tidegate_config::load_str("a", &text, Path::new("/"), &tidegate_config::ProcessEnvironment);
        let paths = outermost(readable(&loaded.settings.unwrap()));
        assert!(paths.contains(&there), "where it leads next: {paths:?}");
        for path in [&folder.join("v1/site/a"), &other] {
            assert!(paths.iter().any(|may| path.starts_with(may)), "{path:?} in {paths:?}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
