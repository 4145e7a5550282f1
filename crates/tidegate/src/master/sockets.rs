//! The listening sockets. The master owns them: workers get copies, so that neither a reload, nor a worker
//! that ended, nor an upgrade loses a connection that waits in one.
//!
//! Called at the start, on reload and for an upgrade.

use super::users;
use super::wanted::Wanted;
use anyhow::{Context, Result, anyhow};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::{ListenAddress, Listener as ListenerSettings};
use tidegate_core::listen::{self, Listener};

/// How often, and how far apart, an address that is in use is tried: a server that was killed is a moment
/// still about letting go of it.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// The sockets of all addresses, in the order of the settings.
#[derive(Default)]
pub struct Sockets(Vec<OpenAddress>);

/// The sockets of one address.
pub struct OpenAddress {
    /// As the settings have it; port 0 stays 0, so that a reload finds it again.
    pub requested: ListenAddress,
    /// The address that was really taken.
    pub taken: ListenAddress,
    /// One for each worker there was when they were opened.
    pub sockets: Vec<OwnedFd>,
    /// What the service manager calls them, where it has opened them: nothing of them is ours to remove.
    pub given: Option<String>,
    /// Device and inode of a unix socket's file, so that nobody else's is removed.
    pub file: Option<(u64, u64)>,
}

impl Sockets {
    /// Sockets that another process has handed over.
    pub fn new(addresses: Vec<OpenAddress>) -> Sockets {
        Sockets(addresses)
    }

    /// The sockets for `settings`: copies of those in `present` where an address stays, new ones for the
    /// rest. When one cannot be opened nothing has changed, and the error is a sentence.
    pub fn open(settings: &Settings, workers: usize, present: &Sockets) -> Result<Sockets> {
        NewSockets::open(settings, workers, &present.addresses(), &Wanted::default())?
            .joined(settings, workers, present)
    }

    /// What is listened on, without a descriptor: for a thread that may hang, and would keep an address taken.
    pub fn addresses(&self) -> Addresses {
        Addresses(
            self.0
                .iter()
                .map(|open| (open.requested.clone(), open.taken.clone(), open.given.is_some()))
                .collect(),
        )
    }

    /// The addresses that `settings` have no `listen` for.
    pub fn unlisted(&self, settings: &Settings) -> Vec<String> {
        let mut is_used = vec![false; self.0.len()];
        for listener in &settings.listeners {
            let _ = self.claim(&listener.address, &mut is_used);
        }
        let left = self.0.iter().zip(is_used).filter(|(open, is_used)| !is_used && open.given.is_none());
        left.map(|(open, _)| open.taken.to_string()).collect()
    }

    fn claim(&self, address: &ListenAddress, is_used: &mut [bool]) -> Option<usize> {
        let fits = |open: &OpenAddress| open.requested == *address || open.taken == *address;
        let index = self.0.iter().zip(&*is_used).position(|(open, used)| !used && fits(open))?;
        is_used[index] = true;
        Some(index)
    }

    /// What one of `workers` workers listens on, in the order of [`Sockets::fit`]'s listeners.
    pub fn for_worker(&self, worker: usize, workers: usize) -> io::Result<Vec<Listener>> {
        let mut listeners = Vec::with_capacity(self.0.len() * self.rounds(workers));
        for round in 0..self.rounds(workers) {
            for open in &self.0 {
                // Where there are fewer sockets than workers, several accept from one.
                let index = (worker + round * workers) % open.sockets.len().max(1);
                let Some(socket) = open.sockets.get(index) else { continue };
                listeners.push(Listener { fd: socket.try_clone()?, address: open.taken.clone() });
            }
        }
        Ok(listeners)
    }

    /// The settings with the addresses that were really taken, and a listener for every socket that a worker
    /// serves.
    ///
    /// After an upgrade to fewer workers there are more sockets than workers. None may be closed, since
    /// connections wait in each: workers then serve several sockets of one address.
    pub fn fit(&self, settings: &Settings, workers: usize) -> Arc<Settings> {
        let mut settings = settings.clone();
        for (listener, open) in settings.listeners.iter_mut().zip(&self.0) {
            listener.address = open.taken.clone(); // port 0 is known by now
        }
        let once = settings.listeners.clone();
        for _ in 1..self.rounds(workers) {
            settings.listeners.extend(once.iter().cloned());
        }
        Arc::new(settings)
    }

    fn rounds(&self, workers: usize) -> usize {
        self.0.iter().map(|open| open.sockets.len().div_ceil(workers.max(1))).max().unwrap_or(1).max(1)
    }

    /// The addresses that were really taken.
    pub fn taken(&self) -> impl Iterator<Item = &ListenAddress> {
        self.0.iter().map(|open| &open.taken)
    }

    /// Everything, for handing it over.
    pub fn iter(&self) -> std::slice::Iter<'_, OpenAddress> {
        self.0.iter()
    }

    /// The files of unix sockets that `successor` does not listen on.
    pub fn files_beside(&self, successor: &Sockets) -> SocketFiles {
        let mut files = Vec::new();
        for open in &self.0 {
            if let ListenAddress::Unix(path) = &open.taken
                && open.given.is_none()
                && !successor.taken().any(|taken| *taken == open.taken)
            {
                files.push((path.clone(), open.file));
            }
        }
        SocketFiles(files)
    }
}

/// Files of unix sockets, each with its device and inode.
pub struct SocketFiles(Vec<(PathBuf, Option<(u64, u64)>)>);

impl SocketFiles {
    /// Removes them, unless somebody else's lie there by now. Asks file systems, which may hang.
    pub fn remove(&self) {
        for (path, file) in &self.0 {
            if file.is_none_or(|ours| file_of(path) == Some(ours)) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl OpenAddress {
    /// A socket that the service manager has opened.
    pub fn given(address: ListenAddress, socket: OwnedFd, name: String) -> OpenAddress {
        let (requested, taken) = (address.clone(), address);
        OpenAddress { requested, taken, sockets: vec![socket], given: Some(name), file: None }
    }

    /// Once more, for these settings and workers. Asks no file system.
    fn copy(&self, listener: &ListenerSettings, workers: usize) -> Result<OpenAddress> {
        let copies: io::Result<Vec<OwnedFd>> = self.sockets.iter().map(OwnedFd::try_clone).collect();
        let mut sockets = copies.with_context(|| format!("cannot copy the sockets of {}", self.taken))?;
        // For more workers than before; where one cannot be had, several accept from one.
        while self.given.is_none() && sockets.len() < workers {
            match listen::one_more(&self.taken, listener.backlog) {
                Ok(Some(socket)) => sockets.push(socket),
                Ok(None) | Err(_) => break,
            }
        }
        for socket in &sockets {
            // The queue goes on as it was where this fails.
            let _ = rustix::net::listen(socket, i32::try_from(listener.backlog).unwrap_or(i32::MAX));
            listen::bound_buffers(socket.as_fd(), listener.send_buffer, listener.receive_buffer);
        }
        let (requested, taken) = (listener.address.clone(), self.taken.clone());
        Ok(OpenAddress { requested, taken, sockets, given: self.given.clone(), file: self.file })
    }
}

/// Addresses that are listened on: as requested, as taken, and whether the service manager has opened it.
#[derive(Default)]
pub struct Addresses(Vec<(ListenAddress, ListenAddress, bool)>);

impl Addresses {
    fn claim(&self, address: &ListenAddress, is_used: &mut [bool]) -> Option<usize> {
        let fits = |(requested, taken, _): &(ListenAddress, ListenAddress, _)| {
            requested == address || taken == address
        };
        let index = self.0.iter().zip(&*is_used).position(|(open, used)| !used && fits(open))?;
        is_used[index] = true;
        Some(index)
    }
}

/// The sockets of addresses that were not listened on before; one for each `listen`, nothing where it stays. Dropped, they leave
/// no file.
pub struct NewSockets(Vec<Option<OpenAddress>>);

impl NewSockets {
    /// Opens what is not in `present`, as long as it is wanted. Asks file systems, which may hang: not for the master's thread
    /// while it serves.
    pub fn open(
        settings: &Settings,
        workers: usize,
        present: &Addresses,
        wanted: &Wanted,
    ) -> Result<NewSockets> {
        let mut is_used = vec![false; present.0.len()];
        // A kept address is claimed first: a new one may not be opened while an old one is in its way.
        let listeners = &settings.listeners;
        let kept: Vec<Option<usize>> =
            listeners.iter().map(|listener| present.claim(&listener.address, &mut is_used)).collect();
        let mut sockets = NewSockets(Vec::with_capacity(kept.len()));
        for (listener, kept) in listeners.iter().zip(kept) {
            wanted.ask()?;
            sockets.0.push(match kept.and_then(|index| present.0.get(index)) {
                Some((_, ListenAddress::Unix(path), false)) => {
                    let granted = users::grant(path, &listener.access);
                    granted.map_err(|error| anyhow!(sentence(listener, &error, &Addresses::default())))?;
                    None
                }
                Some(_) => None,
                None => Some(open_new(listener, workers, present, wanted)?),
            });
        }
        Ok(sockets)
    }

    /// With copies of those in `present` where an address stays.
    pub fn joined(mut self, settings: &Settings, workers: usize, present: &Sockets) -> Result<Sockets> {
        let mut is_used = vec![false; present.0.len()];
        let mut sockets = Vec::with_capacity(self.0.len());
        for (listener, new) in settings.listeners.iter().zip(&mut self.0) {
            if new.is_none() {
                let open =
                    present.claim(&listener.address, &mut is_used).and_then(|index| present.0.get(index));
                let open =
                    open.with_context(|| format!("{} is not listened on any more", listener.address))?;
                sockets.push(Some(open.copy(listener, workers)?));
            } else {
                sockets.push(None);
            }
        }
        // Nothing fails from here on.
        let new = std::mem::take(&mut self.0);
        Ok(Sockets(sockets.into_iter().zip(new).filter_map(|(kept, new)| kept.or(new)).collect()))
    }
}

impl Drop for NewSockets {
    fn drop(&mut self) {
        let sockets = Sockets(std::mem::take(&mut self.0).into_iter().flatten().collect());
        sockets.files_beside(&Sockets::default()).remove();
    }
}

fn open_new(
    listener: &ListenerSettings,
    workers: usize,
    present: &Addresses,
    wanted: &Wanted,
) -> Result<OpenAddress> {
    let mut tries = 0;
    let opened = loop {
        tries += 1;
        wanted.ask()?;
        let grant = |path: &Path| users::grant(path, &listener.access);
        match listen::open(&listener.address, listener.backlog, workers, &grant) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && tries < TRIES => {
                thread::park_timeout(PAUSE)
            }
            opened => break opened,
        }
    };
    let (sockets, taken) = opened.map_err(|error| anyhow!(sentence(listener, &error, present)))?;
    for socket in &sockets {
        listen::bound_buffers(socket.as_fd(), listener.send_buffer, listener.receive_buffer);
    }
    let file = match &taken {
        ListenAddress::Tcp(_) => None,
        ListenAddress::Unix(path) => file_of(path),
    };
    Ok(OpenAddress { requested: listener.address.clone(), taken, sockets, given: None, file })
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Why an address cannot be listened on, and what to do.
fn sentence(listener: &ListenerSettings, error: &io::Error, present: &Addresses) -> String {
    let is_argument = listener.origin.line == 0;
    let other = if is_argument { "--listen" } else { "`listen`" };
    let mut said = format!("cannot listen on {}", listener.address);
    if !is_argument {
        let _ = write!(said, " ({})", listener.origin);
    }
    let why = match (&listener.address, error.kind()) {
        (ListenAddress::Tcp(address), ErrorKind::AddrInUse) => {
            let in_the_way = present.0.iter().map(|(_, taken, _)| taken).find(|taken| match taken {
                ListenAddress::Tcp(taken) => taken.port() == address.port(),
                ListenAddress::Unix(_) => false,
            });
            match in_the_way {
                Some(own) => format!(
                    "this server itself listens on {own}; take that one out first and reload, then add this \
                     one, or restart the server"
                ),
                None => format!(
                    "another program is using that port; find it with \"ss -tanp 'sport = :{}'\" or choose \
                     another with {other}",
                    address.port()
                ),
            }
        }
        (ListenAddress::Tcp(address), ErrorKind::PermissionDenied) if address.port() < 1024 => format!(
            "ports below 1024 need a permission; run as root, or give it to the program once with \
             \"setcap cap_net_bind_service=+ep {}\", or choose a port from 1024 up with {other}",
            program()
        ),
        (ListenAddress::Tcp(SocketAddr::V6(_)), ErrorKind::AddrNotAvailable | ErrorKind::Unsupported) => {
            format!("this machine has no such IPv6 address; \"ip -6 address\" lists those it has; {error}")
        }
        (ListenAddress::Tcp(_), ErrorKind::AddrNotAvailable) => {
            "this machine has no such address; \"ip address\" lists those it has, and 0.0.0.0 takes all of them"
                .to_owned()
        }
        (ListenAddress::Tcp(SocketAddr::V6(_)), _) if error.raw_os_error() == Some(AFNOSUPPORT) => {
            "IPv6 is switched off on this machine; choose an IPv4 address such as 0.0.0.0".to_owned()
        }
        (ListenAddress::Unix(_), ErrorKind::AddrInUse) => {
            format!("another program listens there; choose another path with {other}")
        }
        (ListenAddress::Unix(path), ErrorKind::PermissionDenied) => format!(
            "the user that runs tidegate may not write into {}; give that permission or choose another path \
             with {other}",
            path.parent().unwrap_or(path).display()
        ),
        (ListenAddress::Unix(path), ErrorKind::NotFound) => format!(
            "the folder {} does not exist; make it or choose another path with {other}",
            path.parent().unwrap_or(path).display()
        ),
        _ => error.to_string(),
    };
    format!("{said}: {why}")
}

/// `EAFNOSUPPORT`, the same on all Linux architectures served.
const AFNOSUPPORT: i32 = 97;

fn program() -> String {
    std::env::current_exe().map_or_else(|_| "tidegate".to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::from_folder;

    fn settings(listen: &[&str]) -> Settings {
        let listen: Vec<String> = listen.iter().map(ToString::to_string).collect();
        from_folder(Path::new("/"), &listen).unwrap()
    }

    #[test]
    fn addresses_that_stay_keep_their_sockets_also_those_of_port_0() {
        let two = settings(&["127.0.0.1:0", "[::1]:0"]);
        let present = Sockets::open(&two, 2, &Sockets::default()).unwrap();
        let first = present.taken().next().cloned().unwrap();
        // The other one is gone, and the first is written with its number now.
        let one = settings(&[&first.to_string()]);
        let next = Sockets::open(&one, 2, &present).unwrap();
        assert_eq!(next.taken().collect::<Vec<_>>(), [&first]);
        drop(present);
        let again = Sockets::open(&settings(&["127.0.0.1:0"]), 2, &next).unwrap();
        assert_ne!(again.taken().next(), None);
    }

    #[test]
    fn no_socket_is_left_without_a_worker() {
        let text = "listen \"127.0.0.1:0\"\nlisten \"127.0.0.1:0\"\nsite { respond 204 }\n";
        let loaded = tidegate_config::load_str("a", text, "/".as_ref(), &tidegate_config::ProcessEnvironment);
        let settings = loaded.settings.unwrap();
        let sockets = Sockets::open(&settings, 5, &Sockets::default()).unwrap();
        for workers in [1, 2, 3, 5, 8] {
            let fitted = sockets.fit(&settings, workers);
            let mut served = std::collections::HashSet::new();
            for worker in 0..workers {
                let listeners = sockets.for_worker(worker, workers).unwrap();
                assert_eq!(listeners.len(), fitted.listeners.len());
                for round in 0..listeners.len() / 2 {
                    served.insert((worker + round * workers) % 5);
                }
            }
            assert_eq!(served.len(), 5, "{workers} workers");
        }
    }

    /// FAULTS 67: as of a thread that hung, and was given up meanwhile.
    #[test]
    fn what_nobody_wants_is_not_opened_and_what_nobody_takes_leaves_no_file() {
        let path = std::env::temp_dir().join(format!("tidegate-wanted-{}.sock", std::process::id()));
        let settings = settings(&[&format!("unix:{}", path.display())]);
        let wanted = Wanted::default();
        let opened = NewSockets::open(&settings, 1, &Addresses::default(), &wanted).unwrap();
        assert!(path.exists());
        drop(opened);
        assert!(!path.exists());
        wanted.give_up();
        assert!(NewSockets::open(&settings, 1, &Addresses::default(), &wanted).is_err());
        assert!(!path.exists());
    }

    #[test]
    fn a_failure_says_what_to_do() {
        let one = settings(&["127.0.0.1:0"]);
        let present = Sockets::open(&one, 1, &Sockets::default()).unwrap();
        let taken = present.taken().next().unwrap().to_string();
        let foreign = Sockets::open(&settings(&[&taken]), 1, &Sockets::default()).err().unwrap().to_string();
        assert!(foreign.contains("ss -tanp 'sport = :") && foreign.contains("--listen"), "{foreign}");
        let clash = format!("0.0.0.0:{}", taken.rsplit(':').next().unwrap());
        let own = Sockets::open(&settings(&[&clash]), 1, &present).err().unwrap().to_string();
        assert!(own.contains("this server itself"), "{own}");
    }
}
