//! What the admin API listens on. The master opens it and keeps it, so that a process that is started again has the same.

use super::{beside, sealing};
use crate::admin::messages::Socket;
use anyhow::{Context, Result, bail};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tidegate_config::Settings;
use tidegate_config::settings::{Admin, User, read_token};
use tidegate_core::log;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// What a process and its sockets are made for.
#[derive(Clone, PartialEq)]
pub struct Key {
    socket: Option<PathBuf>,
    listeners: Vec<(SocketAddr, Result<String, String>)>,
    user: Option<(String, Option<String>)>,
    /// Whether it gives up what the kernel can take from it.
    pub sandbox: bool,
}

impl Key {
    /// As the settings say, with the tokens as they stand in their files now. Asks file systems.
    pub fn of(admin: &Admin, settings: &Settings) -> Key {
        let named = |user: &User| (user.name.clone(), user.group.clone());
        let token = |path: &Path| {
            let bytes =
                fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            let token = read_token(&bytes).and_then(|token| String::from_utf8(token.to_vec()).ok());
            token.ok_or_else(|| format!("there is no token in {}", path.display()))
        };
        let listeners = admin.listeners.iter();
        Key {
            socket: admin.socket.clone().filter(|path| is_for_operators_alone(path, settings)),
            listeners: listeners.map(|listener| (listener.address, token(&listener.token_file))).collect(),
            user: admin.user.as_ref().map(named),
            sandbox: settings.sandbox,
        }
    }
}

/// Where applications have the user of the server itself, a socket for that user is one for them.
fn is_for_operators_alone(path: &Path, settings: &Settings) -> bool {
    let is_alone = super::users::can_be_anybody() || !sealing::starts_something(settings);
    if !is_alone {
        log::warn(format_args!(
            "the admin socket {} is not opened: what this server starts has the same user and could use it; start the \
             server as root, or write a `listen` with a token in `admin`",
            path.display()
        ));
    }
    is_alone
}

/// Open sockets.
pub struct Sockets {
    list: Vec<(Socket, OwnedFd)>,
    /// The file of the unix socket, and what it is: a successor's stays.
    file: Option<(PathBuf, Option<(u64, u64)>)>,
}

impl Sockets {
    /// Opens them.
    pub fn open(key: &Key) -> Result<Sockets> {
        let mut sockets = Sockets { list: Vec::new(), file: None };
        for (address, token) in &key.listeners {
            let token = token.clone().map_err(anyhow::Error::msg)?;
            let listener =
                TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            sockets.list.push((Socket::Tcp { address, token }, listener.into()));
        }
        if let Some(path) = &key.socket {
            let at = || format!("cannot make the admin socket {}", path.display());
            let socket = open_unix(path).with_context(at)?;
            sockets.list.push((Socket::Unix, socket));
            sockets.file = Some((path.clone(), identity(path)));
        }
        let said: Vec<String> = sockets
            .list
            .iter()
            .map(|(socket, _)| match socket {
                Socket::Unix => {
                    key.socket.as_ref().map_or_else(String::new, |path| format!("unix:{}", path.display()))
                }
                Socket::Tcp { address, .. } => format!("http://{address}"),
            })
            .collect();
        log::info(match said.is_empty() {
            true => "the admin API is there for routes with `console { change }`".to_owned(),
            false => format!("the admin API listens on {}", said.join(", ")),
        });
        Ok(sockets)
    }

    /// What each of them is.
    pub fn named(&self) -> Vec<Socket> {
        self.list.iter().map(|(socket, _)| socket.clone()).collect()
    }

    /// Copies, in the same order.
    pub fn copies(&self) -> Result<Vec<OwnedFd>> {
        let copy = |(_, socket): &(Socket, OwnedFd)| socket.as_fd().try_clone_to_owned();
        self.list.iter().map(copy).collect::<Result<_, _>>().context("no descriptors are left")
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        if let Some((path, own)) = &self.file
            && own.is_some()
            && identity(path) == *own
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// A socket for this user alone, in the place of whatever socket lies there.
fn open_unix(path: &Path) -> Result<OwnedFd> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        bail!("something that is no socket lies there");
    }
    let draft = beside(path);
    let _ = fs::remove_file(&draft);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let made = (|| {
        bind(&socket, &SocketAddrUnix::new(&draft)?)?;
        // Nobody can connect before `listen`, so there is no moment at which others may.
        rustix::fs::chmod(&draft, Mode::RUSR | Mode::WUSR)?;
        listen(&socket, BACKLOG)?;
        fs::rename(&draft, path)
    })();
    if made.is_err() {
        let _ = fs::remove_file(&draft);
    }
    made?;
    Ok(socket)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino()))
}
