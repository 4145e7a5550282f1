//! What descends from this process and has no other parent any more: found, ended and reaped.
//!
//! A process that is a subreaper (`PR_SET_CHILD_SUBREAPER`, prctl(2)) becomes the parent of every orphan below it, whatever
//! groups and sessions the orphan has made: a program that daemonises cannot leave. The keeper of a process of a pool is one,
//! and so is a stub of CGI scripts. Killing the children makes theirs this process's children, and so on down.

use super::process_table;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open, set_child_subreaper,
    wait,
};
use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

/// Makes this process the parent of every orphan below it.
///
/// # Errors
/// The kernel refuses it.
pub(in crate::gateway) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A child that has ended is reaped and returned, if there is one. `Err` when there are no children at all.
pub(in crate::gateway) fn reap() -> Result<Option<(Pid, WaitStatus)>, rustix::io::Errno> {
    rustix::io::retry_on_intr(|| wait(WaitOptions::NOHANG))
}

/// Kills all children of this process; how many there were.
pub(in crate::gateway) fn kill_children() -> usize {
    let children = children();
    for child in &children {
        let _ = kill_process(*child, Signal::KILL);
    }
    children.len()
}

/// What was killed and has not ended: the kernel ends it when a file system answers. It is waited for once.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Left(HashSet<Pid>);

impl Left {
    /// Kills whatever descends from this process, and reaps it: all of it, or what could be ended within `patience`.
    ///
    /// Whether there is anything costs one system call.
    pub(in crate::gateway) fn end_all(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            match reap() {
                Ok(Some((pid, _))) => {
                    self.0.remove(&pid);
                    continue;
                }
                Ok(None) => {}
                Err(_) => return self.0.clear(),
            }
            let children: Vec<Pid> = children().into_iter().filter(|child| !self.0.contains(child)).collect();
            if children.is_empty() {
                return;
            }
            if deadline <= Instant::now() {
                return self.0.extend(children);
            }
            for child in children {
                let _ = kill_process(child, Signal::KILL);
                // Nobody else reaps it, so the number is its own for as long as it is looked at.
                let Ok(ended) = pidfd_open(child, PidfdFlags::empty()) else { continue };
                let timeout = deadline.saturating_duration_since(Instant::now());
                let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
                let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout));
            }
        }
    }
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let children = process_table::children_of(getpid().as_raw_nonzero().get());
    children.into_iter().filter_map(Pid::from_raw).collect()
}
