//! Sockets that a service manager has opened (sd_listen_fds(3)): descriptors from 3 on, counted in
//! `LISTEN_FDS`, meant for the process that `LISTEN_PID` names, named in `LISTEN_FDNAMES`.
//!
//! They are used for the `listen` addresses that they fit, as if this server had opened them.

use super::sockets::{OpenAddress, Sockets};
use tidegate_core::listen;
use tidegate_io::socket::inherited;

/// The first descriptor, by contract.
const FIRST: i32 = 3;
/// More than anybody means.
const MOST: i32 = 4096;

/// The sockets given to this process, and sentences on those that cannot be used.
pub fn take() -> (Sockets, Vec<String>) {
    let number = |name: &str| std::env::var(name).ok()?.parse::<i32>().ok();
    let is_meant = number("LISTEN_PID").is_some_and(|pid| pid.unsigned_abs() == std::process::id());
    let count = number("LISTEN_FDS").filter(|_| is_meant).unwrap_or(0).clamp(0, MOST);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let (mut open, mut said): (Vec<OpenAddress>, Vec<String>) = (Vec::new(), Vec::new());
    for number in FIRST..FIRST + count {
        let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned();
        let taken = inherited(number).and_then(|fd| Ok((listen::adopt(std::os::fd::AsFd::as_fd(&fd))?, fd)));
        match taken {
            Ok((address, fd)) => match open.iter_mut().find(|known| known.taken == address) {
                Some(known) => known.sockets.push(fd),
                None => open.push(OpenAddress::given(address, fd, name)),
            },
            Err(error) => said.push(format!(
                "the socket {name} (descriptor {number}) that the service manager gave cannot be used: {error}"
            )),
        }
    }
    (Sockets::new(open), said)
}

/// What is said of sockets that no `listen` asks for.
pub fn unused(given: &Sockets, used: &Sockets) -> Vec<String> {
    let is_used = |open: &OpenAddress| used.taken().any(|taken| *taken == open.taken);
    let left = given.iter().filter(|open| !is_used(open));
    left.map(|open| {
        let (name, address) = (open.given.as_deref().unwrap_or("unknown"), &open.taken);
        format!(
            "the socket {name} that the service manager gave is for {address}, and no `listen` fits: add \
             listen \"{address}\", or take it out of the socket unit"
        )
    })
    .collect()
}
