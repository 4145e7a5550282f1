//! The listening sockets of pools, and the folder that they lie in.
//!
//! A socket belongs to a place in a pool and outlives the process there: what waits in its backlog when a
//! process dies is served by the successor.

use super::clients::Clients;
use crate::gateway::pool_directory::PoolAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, mkdir};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, ipproto, listen, socket_with,
    sockopt,
};
use rustix::process::{getpid, getuid};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Connections that wait at most: more than ever should, since requests wait before the pool.
pub const BACKLOG: i32 = 1024;

/// A socket that processes accept connections on.
#[derive(Debug)]
pub struct Listening {
    /// The socket; blocking.
    pub fd: OwnedFd,
    /// Where it listens.
    pub address: PoolAddress,
    /// The file of a unix socket: somebody else may have put another in its place since.
    file: Option<(u64, u64)>,
    /// The workers were told that no process holds it.
    is_unattended: AtomicBool,
}

impl Listening {
    /// Binds and listens. A unix socket that is there already is replaced.
    ///
    /// # Errors
    /// The address is taken, or not ours to take.
    pub fn open(address: PoolAddress, backlog: i32) -> io::Result<Listening> {
        let flags = SocketFlags::CLOEXEC;
        let (fd, address) = match address {
            PoolAddress::Tcp(socket) => {
                let family = if socket.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
                sockopt::set_socket_reuseaddr(&fd, true)?;
                // A successor of this server may bind it while this one still serves.
                sockopt::set_socket_reuseport(&fd, true)?;
                bind(&fd, &socket)?;
                (fd, PoolAddress::Tcp(socket))
            }
            PoolAddress::Unix(path) => {
                let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                remove_socket(&path);
                bind(&fd, &SocketAddrUnix::new(&path)?)?;
                (fd, PoolAddress::Unix(path))
            }
        };
        listen(&fd, backlog)?;
        let file = file_of(&address);
        Ok(Listening { fd, address, file, is_unattended: AtomicBool::new(false) })
    }

    /// Whether connections wait in its backlog.
    pub(super) fn has_waiting(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// No process holds it, and the workers are told so. Where it is.
    pub(super) fn leave(&self) -> PoolAddress {
        self.is_unattended.store(true, Relaxed);
        self.address.clone()
    }

    /// A process gets it. What the workers were told that nobody accepts is dropped first: they may have sent the request
    /// elsewhere, and it must not be carried out twice.
    ///
    /// # Errors
    /// The system does not let go of what waits.
    pub(super) fn attend(self: &Arc<Self>) -> io::Result<Arc<Listening>> {
        if self.is_unattended.swap(false, Relaxed) {
            // No process shares these flags now.
            rustix::io::ioctl_fionbio(&self.fd, true)?;
            let emptied = loop {
                match accept_with(&self.fd, SocketFlags::CLOEXEC) {
                    Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(Errno::AGAIN) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            rustix::io::ioctl_fionbio(&self.fd, false)?;
            if let Err(error) = emptied {
                self.is_unattended.store(true, Relaxed);
                return Err(error.into());
            }
        }
        Ok(self.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let PoolAddress::Unix(path) = &self.address
            && file_of(&self.address) == self.file
        {
            remove_socket(path);
        }
    }
}

fn file_of(address: &PoolAddress) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let PoolAddress::Unix(path) = address else { return None };
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Removes a socket, and nothing else that might lie there.
pub(super) fn remove_socket(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        let _ = std::fs::remove_file(path);
    }
}

/// A port of 127.0.0.1 that nobody listens on just now.
pub(super) fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The folder for the sockets of this process; removed with its contents at the end.
#[derive(Debug)]
pub(super) struct Folder(PathBuf, Clients);

impl Folder {
    /// Makes it, for this user alone, and for `clients` where those are others.
    pub(super) fn make(clients: Clients) -> io::Result<Folder> {
        let base = base_folder();
        let mut problem = io::Error::other("no name is free");
        for attempt in 0..100 {
            let path = base.join(format!("tidegate-{}-{attempt}", getpid().as_raw_nonzero()));
            // Fails if anything is there, so nobody can have prepared it for us.
            match mkdir(&path, Mode::RWXU) {
                Ok(()) => {
                    clients.enter(&path)?;
                    return Ok(Folder(path, clients));
                }
                Err(error) => problem = error.into(),
            }
            if problem.kind() != io::ErrorKind::AlreadyExists {
                break;
            }
        }
        Err(io::Error::new(
            problem.kind(),
            format!("cannot make a folder for the sockets of pools in {}: {problem}", base.display()),
        ))
    }

    /// Where it is.
    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// A path in it for a pool. The name of a pool has no `/`.
    pub(super) fn path(&self, pool: &str, slot: usize, suffix: &str) -> PathBuf {
        self.0.join(format!("{pool}-{slot}{suffix}"))
    }

    /// Writes a file that whoever a pool runs as may read, and no other than this process may write.
    pub(super) fn public_file(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, text)?;
        rustix::fs::chmod(&path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)?;
        if getuid().is_root() {
            // The way there is open to others as well; names in between cannot be listed.
            rustix::fs::chmod(&self.0, Mode::RWXU | Mode::XGRP | Mode::XOTH)?;
        }
        Ok(path)
    }

    /// Gives a socket to those who connect, and to nobody else who may reach the folder, whatever the umask was.
    pub(super) fn give(&self, socket: &Path) {
        self.1.give(socket);
    }

    /// A folder in it that belongs to the user that a pool runs as, who makes sockets there itself.
    pub(super) fn for_user(&self, pool: &str, owner: Option<(u32, u32)>) -> io::Result<PathBuf> {
        let path = self.0.join(format!("{pool}.own"));
        match mkdir(&path, Mode::RWXU) {
            Err(error) if error != Errno::EXIST => return Err(error.into()),
            _ => {}
        }
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(&path, Some(user), Some(group))?;
            // The way there is open to it as well; names in between cannot be listed.
            rustix::fs::chmod(&self.0, Mode::RWXU | Mode::XGRP | Mode::XOTH)?;
            rustix::fs::chmod(&path, Mode::RWXU | Mode::XGRP | Mode::XOTH)?;
        }
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn base_folder() -> PathBuf {
    // A service manager's, which may be the only one that can be written to.
    let given = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
    if let Some(folder) = given.filter(|folder| folder.is_absolute() && folder.is_dir()) {
        return folder;
    }
    if getuid().is_root() && Path::new("/run").is_dir() {
        return "/run".into();
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    own.unwrap_or_else(std::env::temp_dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    #[test]
    fn sockets_are_made_anew_and_removed_with_their_folder() {
        let folder = Folder::make(Clients::default()).expect("a folder can be made");
        let path = folder.path("app", 0, ".sock");
        let first = Listening::open(PoolAddress::Unix(path.clone()), 9).expect("can be bound");
        let second = Listening::open(PoolAddress::Unix(path.clone()), 9).expect("replaces the first");
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
        // A file of somebody's is left alone.
        std::fs::write(&path, "precious").expect("can be written");
        assert!(Listening::open(PoolAddress::Unix(path.clone()), 9).is_err());
        assert!(path.exists());
        let base = folder.0.clone();
        drop(folder);
        assert!(!base.exists());
    }

    #[test]
    fn a_socket_is_for_those_who_connect_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::make(Clients::default()).expect("a folder can be made");
        let path = folder.path("app", 0, ".sock");
        let _listening = Listening::open(PoolAddress::Unix(path.clone()), 9).expect("can be bound");
        rustix::fs::chmod(&path, Mode::RWXU | Mode::RWXG | Mode::RWXO).expect("it is ours");
        folder.give(&path);
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn tcp_sockets_take_connections_before_anybody_accepts() {
        let address = free_port().expect("one is free");
        let listening = Listening::open(PoolAddress::Tcp(address), 9).expect("can be bound");
        assert!(TcpStream::connect(address).is_ok());
        drop(listening);
        assert!(TcpStream::connect(address).is_err());
    }

    /// The workers have sent elsewhere what waits before nobody.
    #[test]
    fn a_successor_gets_what_waits_unless_the_workers_were_told_that_nobody_does() {
        use std::io::Read;
        let path = std::env::temp_dir().join(format!("tidegate-backlog-{}", std::process::id()));
        let open = Arc::new(Listening::open(PoolAddress::Unix(path.clone()), BACKLOG).expect("can be bound"));
        assert!(!open.has_waiting());
        let mut client = UnixStream::connect(&path).expect("can connect");
        open.attend().expect("a process may get it");
        assert!(open.has_waiting());
        assert_eq!(open.leave(), open.address);
        open.attend().expect("a process may get it");
        assert!(!open.has_waiting());
        assert!(matches!(client.read(&mut [0; 1]), Ok(0)), "the connection is closed");
        let _next = UnixStream::connect(&path).expect("can connect");
        open.attend().expect("a process may get it");
        assert!(open.has_waiting());
        let flags = rustix::fs::fcntl_getfl(&open.fd).expect("has flags");
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "processes get a blocking one");
    }
}
