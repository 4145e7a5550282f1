//! What the service manager is told (sd_notify(3)): that the server is ready, reloads, stops, lives, and which
//! process is the main one after an upgrade.
//!
//! One datagram to the socket named in `NOTIFY_SOCKET`, whose name begins with `@` where it is abstract. Without
//! the variable nothing is said.

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The way to the service manager.
pub struct Notifier {
    to: Option<(OwnedFd, SocketAddrUnix)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment says.
    pub fn from_environment() -> Notifier {
        let watchdog = || -> Option<Duration> {
            let meant: Option<u32> = std::env::var("WATCHDOG_PID").ok().and_then(|pid| pid.parse().ok());
            if meant.is_some_and(|pid| pid != std::process::id()) && std::env::var_os(SUCCESSOR).is_none() {
                return None;
            }
            let micros: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
            // Twice in the time that may pass.
            Some(Duration::from_micros(micros / 2)).filter(|every| !every.is_zero())
        };
        Notifier { to: std::env::var_os("NOTIFY_SOCKET").and_then(|name| open(&name)), watchdog: watchdog() }
    }

    /// How often [`Notifier::alive`] is to be said.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.to.is_some())
    }

    /// It serves.
    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}"));
    }

    /// It takes up new settings; `ready` follows, whatever comes of it.
    pub fn reloading(&self) {
        let now = tidegate_io::clock::monotonic_ns() / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS=taking up settings"));
    }

    /// Another process is the main one, and serves.
    pub fn succeeded_by(&self, pid: u32) {
        self.say(&format!("MAINPID={pid}\nREADY=1\nSTATUS=process {pid} has taken over"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=finishing what is open");
    }

    /// It lives.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    fn say(&self, text: &str) {
        if let Some((socket, address)) = &self.to {
            let _ = sendto(socket, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT, address);
        }
    }
}

/// Tells a successor's process apart, whose number the watchdog's variable does not name.
const SUCCESSOR: &str = super::upgrade::VARIABLE;

fn open(name: &OsStr) -> Option<(OwnedFd, SocketAddrUnix)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name).ok()?,
        [b'/', ..] => SocketAddrUnix::new(name).ok()?,
        _ => return None,
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    Some((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    #[test]
    fn speaks_to_paths_and_abstract_names() {
        let name = format!("tidegate-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}")),
        ] {
            let notifier = Notifier { to: open(OsStr::new(&address)), watchdog: None };
            notifier.succeeded_by(7);
            let mut heard = [0; 256];
            let count = socket.recv(&mut heard).unwrap();
            let heard = String::from_utf8_lossy(&heard[..count]);
            assert!(heard.starts_with("MAINPID=7\nREADY=1\n"), "{heard}");
            notifier.reloading();
            let mut heard = [0; 256];
            let count = socket.recv(&mut heard).unwrap();
            assert!(String::from_utf8_lossy(&heard[..count]).contains("\nMONOTONIC_USEC="));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(open(OsStr::new("relative")).is_none());
    }
}
