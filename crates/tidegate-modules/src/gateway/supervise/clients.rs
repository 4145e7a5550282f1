//! Who connects to pools: the users of the server processes, and the sockets that are theirs.
//!
//! A reload may change the user of server processes. For a while there are processes of both, and the sockets of pools are
//! for both: the newest user owns them, and an access list (acl(5)) names the others. Where the file system has no access
//! lists, the group of the last user before may connect for that while.

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_core::log;
use tidegate_io::locking::lock;

/// A user and its group.
pub type User = (u32, u32);

/// How long [`Clients::set`] waits for the file systems that sockets lie on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those who connect, where they are not this process's own user. Copies are the same.
///
/// No lock is held while a file system is asked that others need to go on: one may hang.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    known: Arc<Mutex<Known>>,
    /// Held while all sockets are given to the users of the moment.
    giving: Arc<Mutex<()>>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    /// The newest first.
    users: Vec<User>,
    /// Counts how often they have changed.
    changes: u64,
    /// The folder of the sockets, once there is one.
    folder: Option<PathBuf>,
    /// The sockets that were given to them.
    sockets: BTreeSet<PathBuf>,
}

impl Clients {
    /// Of one user, or this process's own.
    pub fn of(user: Option<User>) -> Clients {
        let clients = Clients::default();
        lock(&clients.known).users.extend(user);
        clients
    }

    /// These are the users now, the newest first. When this returns they reach every socket there is, unless a file system does
    /// not answer: that is said, and waited for elsewhere.
    pub fn set(&self, users: Vec<User>) {
        {
            let mut known = lock(&self.known);
            if known.users == users {
                return;
            }
            known.users = users;
            known.changes += 1;
        }
        let (own, (done, is_done)) = (self.clone(), channel::<()>());
        let giving = std::thread::Builder::new().name("tidegate-give".into()).spawn(move || {
            own.give_all();
            drop(done);
        });
        match giving {
            Err(_) => self.give_all(),
            Ok(_) if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) => log::error(
                "the sockets of pools could not be given to the user of server processes yet: look for a file system that \
                 does not answer",
            ),
            Ok(_) => {}
        }
    }

    /// Gives everything to the users of the moment.
    fn give_all(&self) {
        let _giving = lock(&self.giving);
        let mut known = lock(&self.known).clone();
        loop {
            if let Some(folder) = &known.folder {
                let _ = open(folder, &known.users);
            }
            for socket in &known.sockets {
                let _ = give(socket, &known.users);
            }
            let now = lock(&self.known).clone();
            if now.changes == known.changes {
                return;
            }
            known = now;
        }
    }

    /// Sockets lie in this folder: the way there is open to those who connect.
    pub(super) fn enter(&self, folder: &Path) -> io::Result<()> {
        let users = {
            let mut known = lock(&self.known);
            known.folder = Some(folder.to_owned());
            known.users.clone()
        };
        open(folder, &users)
    }

    /// Gives a socket to those who connect, and to nobody else who may reach the folder, whatever the umask was.
    pub(super) fn give(&self, socket: &Path) {
        let mut known = {
            let mut known = lock(&self.known);
            known.sockets.insert(socket.to_owned());
            known.clone()
        };
        let has_gone = |socket: &&PathBuf| socket.symlink_metadata().is_err();
        let gone: Vec<PathBuf> = known.sockets.iter().filter(has_gone).cloned().collect();
        lock(&self.known).sockets.retain(|socket| !gone.contains(socket));
        loop {
            // Where this fails nobody gets in, which the workers say.
            let _ = give(socket, &known.users);
            let now = lock(&self.known).clone();
            if now.changes == known.changes {
                return;
            }
            known = now;
        }
    }
}

fn open(folder: &Path, users: &[User]) -> io::Result<()> {
    if !users.is_empty() {
        rustix::fs::chmod(folder, Mode::RWXU | Mode::XGRP | Mode::XOTH)?;
    }
    Ok(())
}

/// Makes a socket, and nothing that was put in its place, one of these users alone; of this process's with none.
fn give(socket: &Path, users: &[User]) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(socket, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("it is no socket"));
    }
    // What is opened by its path alone has no other way to its permissions.
    let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
    let chmod = |mode: Mode| rustix::fs::chmod(&path, mode);
    let own = Mode::RUSR | Mode::WUSR;
    let chown = |(user, _): User, group: u32| {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        rustix::fs::chownat(&socket, "", Some(user), Some(group), AtFlags::EMPTY_PATH)
    };
    let (newest, before) = users.split_first().map_or((None, users), |(first, rest)| (Some(*first), rest));
    if let Some(newest) = newest
        && !before.is_empty()
        // One list takes the place of the other, and names the owner to be as well: who is named by both is never without.
        && rustix::fs::setxattr(&path, ACCESS_LIST, &access_list(users), XattrFlags::empty()).is_ok()
    {
        return Ok(chown(newest, newest.1)?);
    }
    chmod(own)?;
    // A list that it had would come into force again with the permissions of a group.
    match rustix::fs::removexattr(&path, ACCESS_LIST) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    let Some(newest) = newest else { return Ok(()) };
    match before.first() {
        None => chown(newest, newest.1)?,
        Some((_, previous)) => {
            chown(newest, *previous)?;
            chmod(own | Mode::RGRP | Mode::WGRP)?;
        }
    }
    Ok(())
}

/// Where a file system keeps the list of acl(5).
const ACCESS_LIST: &str = "system.posix_acl_access";

/// The owner and these users read and write, and nobody else: as the kernel takes it (`posix_acl_xattr.h`).
fn access_list(users: &[User]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    const READ_WRITE: u16 = 6;
    let mut named: Vec<u32> = users.iter().map(|(user, _)| *user).collect();
    named.sort_unstable();
    named.dedup();
    let named = named.into_iter().map(|user| (0x02, READ_WRITE, user));
    let entries = std::iter::once((0x01, READ_WRITE, NOBODY)).chain(named).chain([
        (0x04, 0, NOBODY),
        (0x10, READ_WRITE, NOBODY),
        (0x20, 0, NOBODY),
    ]);
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        let (tag, permissions): (u16, u16) = (tag, permissions);
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::pool_directory::PoolAddress;
    use crate::gateway::supervise::sockets::{BACKLOG, Folder, Listening};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    fn reaches(user: User, socket: &Path) -> bool {
        let (user, group) = (format!("--reuid={}", user.0), format!("--regid={}", user.1));
        let mut command = Command::new("setpriv");
        command.args([&user, &group, "--clear-groups", "python3", "-c"]);
        command.arg("import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])").arg(socket);
        command.env("PATH", "/usr/bin:/bin");
        command.stderr(Stdio::null()).status().expect("setpriv is there").success()
    }

    #[test]
    fn sockets_are_for_server_processes_of_both_users_until_the_first_have_ended() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give sockets to others");
            return;
        }
        let (first, second, third, stranger) =
            ((61001, 61001), (61002, 61002), (61003, 61003), (61004, 61002));
        let clients = Clients::of(Some(first));
        let folder = Folder::make(clients.clone()).expect("a folder can be made");
        let path = folder.path("app", 0, ".sock");
        let _listening = Listening::open(PoolAddress::Unix(path.clone()), BACKLOG).expect("can be bound");
        folder.give(&path);
        for (users, reached) in [
            (vec![first], [true, false, false]),
            (vec![second, first], [true, true, false]),
            (vec![third, second, first], [true, true, true]),
            (vec![third, second], [false, true, true]),
            (vec![third], [false, false, true]),
        ] {
            clients.set(users.clone());
            assert_eq!([first, second, third].map(|user| reaches(user, &path)), reached, "{users:?}");
            assert!(!reaches(stranger, &path), "{users:?}");
        }
    }

    /// A look from a thread that has become the user, while the sockets are given to others and back.
    #[test]
    fn whoever_stays_reaches_the_sockets_all_the_while() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give sockets to others");
            return;
        }
        let (first, second, third) = ((61001, 61001), (61002, 61002), (61003, 61003));
        let clients = Clients::of(Some(first));
        let folder = Folder::make(clients.clone()).expect("a folder can be made");
        let path = folder.path("app", 0, ".sock");
        let _listening = Listening::open(PoolAddress::Unix(path.clone()), BACKLOG).expect("can be bound");
        folder.give(&path);
        clients.set(vec![second, first]);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let end = tidegate_testkit::OverWhenDropped(&is_over);
            let lookers = [first, second].map(|(user, _)| {
                let (path, is_over) = (&path, &is_over);
                scope.spawn(move || {
                    let user = Uid::from_raw(user);
                    rustix::thread::set_thread_res_uid(user, user, user).expect("it may");
                    let mut refused = 0;
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
                        refused += usize::from(rustix::fs::access(path, access).is_err());
                    }
                    refused
                })
            });
            for _ in 0..2000 {
                clients.set(vec![third, second, first]);
                clients.set(vec![second, first]);
            }
            drop(end);
            let refused = lookers.map(|looker| looker.join().expect("it looks"));
            assert_eq!(refused, [0, 0], "of the first user and of the second");
        });
    }

    /// As where a file system takes no more of it: what it says is nothing to whoever is given the socket next.
    #[test]
    fn a_list_that_is_over_does_not_come_back() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give sockets to others");
            return;
        }
        let (first, second) = ((61001, 61001), (61002, 61002));
        let clients = Clients::of(Some(first));
        let folder = Folder::make(clients.clone()).expect("a folder can be made");
        let path = folder.path("app", 0, ".sock");
        let _listening = Listening::open(PoolAddress::Unix(path.clone()), BACKLOG).expect("can be bound");
        folder.give(&path);
        clients.set(vec![second, first]);
        clients.set(vec![second]);
        rustix::fs::chmod(&path, Mode::RWXU | Mode::RWXG).expect("it is ours");
        assert!(!reaches(first, &path) && reaches(second, &path));
    }

    #[test]
    fn what_lies_in_the_place_of_a_socket_is_left_alone() {
        let folder = Folder::make(Clients::default()).expect("a folder can be made");
        let (file, link) = (folder.path("app", 0, ".txt"), folder.path("app", 0, ".sock"));
        std::fs::write(&file, "precious").expect("can be written");
        rustix::fs::chmod(&file, Mode::from_raw_mode(0o644)).expect("it is ours");
        std::os::unix::fs::symlink(&file, &link).expect("can be made");
        folder.give(&link);
        folder.give(&file);
        assert_eq!(std::fs::metadata(&file).expect("it is there").mode() & 0o777, 0o644);
    }
}
