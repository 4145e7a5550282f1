//! Waiting for sockets: what the small servers and clients of the benches have in common.

use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event};
use rustix::io::Errno;

/// Waits until something is ready. `events` holds what is, as many as it has room for; none where a signal came.
pub fn wait(poller: &OwnedFd, events: &mut Vec<Event>) -> Result<()> {
    events.clear();
    match epoll::wait(poller, spare_capacity(events), None) {
        Err(Errno::INTR) => {}
        waited => {
            waited?;
        }
    }
    Ok(())
}
