//! Processes as the kernel lists them (proc(5)): what one has started, and a handle on one that is never another's.
//!
//! The guard, a keeper and the upgrade of the server end what others have started, and find it here.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The process that it is a child of.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// When it began, in ticks since the machine did.
    pub began: u64,
    /// Nobody has taken note of its end yet.
    pub has_ended: bool,
}

impl Stat {
    /// From the kernel (proc_pid_stat(5)).
    pub fn of(pid: i32) -> Option<Stat> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let mut fields = text.get(text.rfind(')')? + 2..)?.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let began = fields.nth(16)?.parse().ok()?;
        Some(Stat { parent, group, began, has_ended })
    }
}

/// Every process that this one may see and that has not ended.
pub(super) fn all() -> BTreeMap<i32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let known = numbers.filter_map(|pid| Some((pid, Stat::of(pid)?)));
    known.filter(|(_, known)| !known.has_ended).collect()
}

/// The children of a process. The kernel's own list shows those of other users as well where `/proc` hides them
/// (`hidepid`); a kernel without that list is asked for all processes.
pub(super) fn children_of(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists: Option<Vec<Vec<i32>>> = threads.map(|thread| listed(&thread.path())).collect();
    match lists {
        Some(lists) => lists.concat(),
        None => all().into_iter().filter(|(_, known)| known.parent == pid).map(|(child, _)| child).collect(),
    }
}

/// The children that a thread of this process has started; nothing where the kernel has no such list.
pub fn children_of_thread(thread: Pid) -> Vec<Handle> {
    let path = format!("/proc/self/task/{}", thread.as_raw_nonzero());
    let children = listed(Path::new(&path)).unwrap_or_default();
    children.into_iter().filter_map(|child| Handle::open(child.unsigned_abs())).collect()
}

/// The list of a thread; `None` where the kernel has none.
fn listed(thread: &Path) -> Option<Vec<i32>> {
    match fs::read_to_string(thread.join("children")) {
        Ok(list) => Some(list.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()),
        // The thread has ended meanwhile.
        Err(_) if !thread.exists() => Some(Vec::new()),
        Err(_) => None,
    }
}

/// A process, and whether it has ended. What is done to it is done to this one, and never to a later one of its number.
#[derive(Debug)]
pub struct Handle {
    pid: Pid,
    ended: OwnedFd,
}

impl Handle {
    /// Of the process that has this number now.
    pub fn open(pid: u32) -> Option<Handle> {
        let pid = Pid::from_raw(pid.cast_signed())?;
        Some(Handle { pid, ended: pidfd_open(pid, PidfdFlags::empty()).ok()? })
    }

    /// Of a child that has not been reaped.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn of_child(child: &Child) -> io::Result<Handle> {
        let pid = Pid::from_child(child);
        Ok(Handle { pid, ended: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// One that is known by its number and by when it began.
    pub(super) fn of(pid: i32, began: u64) -> Option<Handle> {
        let handle = Handle::open(pid.unsigned_abs())?;
        // Looked at behind the opening: what is open is what is looked at.
        (Stat::of(pid)?.began == began).then_some(handle)
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Readable once it has ended.
    pub(super) fn ended(&self) -> &OwnedFd {
        &self.ended
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.ended, signal);
    }

    /// Whether it has.
    pub fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Waits for its end, so long at most; whether it has ended.
    pub fn ends_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            match poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                outcome => return outcome.is_ok_and(|count| count > 0),
            }
        }
    }

    /// Tells it to end, and kills it after `patience`, with all that descends from it, but for what has lost its parent
    /// before. Does not wait for what is killed.
    pub fn end_with_descendants(&self, patience: Duration) {
        let mut family = self.descendants(false);
        if !patience.is_zero() {
            self.signal(Signal::TERM);
        }
        if !self.ends_within(patience) {
            // One that has been stopped starts nothing more.
            self.signal(Signal::STOP);
            family.extend(self.descendants(true));
        }
        self.signal(Signal::KILL);
        family.iter().for_each(|handle| handle.signal(Signal::KILL));
    }

    /// What descends from it.
    fn descendants(&self, is_stopped: bool) -> Vec<Handle> {
        let mut family: Vec<Handle> = Vec::new();
        let mut seen = BTreeSet::from([self.number()]);
        let mut next = vec![self.number()];
        while let Some(parent) = next.pop() {
            for child in children_of(parent) {
                let Some(handle) = Handle::open(child.unsigned_abs()) else { continue };
                // Both looked at behind the opening: they are no later ones of their numbers.
                let is_child = Stat::of(child).is_some_and(|known| known.parent == parent);
                let is_alive = family.iter().chain([self]).any(|of| of.number() == parent && !of.has_ended());
                if is_child && is_alive && seen.insert(child) {
                    if is_stopped {
                        handle.signal(Signal::STOP);
                    }
                    next.push(child);
                    family.push(handle);
                }
            }
        }
        family
    }
}

/// Reaps a child that has ended, or is about to: where it is not at once, by a thread. The kernel may not end it before a
/// file system answers.
pub(super) fn reap_apart(mut child: Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // Where there is no thread the child stays a zombie, which is no more than a number.
        let _ = std::thread::Builder::new().name("tidegate-reap".into()).spawn(move || child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_found_with_its_parent_and_start() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("it can be run");
        let pid = child.id().cast_signed();
        let known = Stat::of(pid).expect("it runs");
        assert_eq!((known.parent, known.has_ended), (std::process::id().cast_signed(), false));
        assert!(known.began > 0);
        assert!(Handle::of(pid, known.began).is_some() && Handle::of(pid, known.began + 1).is_none());
        assert!(children_of(std::process::id().cast_signed()).contains(&pid));
        let own = rustix::thread::gettid();
        assert!(children_of_thread(own).iter().any(|child| child.number() == pid));
        let handle = Handle::open(child.id()).expect("it runs");
        assert!(!handle.has_ended());
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        assert!(handle.has_ended());
    }

    #[test]
    fn descendants_are_killed_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'sleep 1000 & echo $!; wait' & wait"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it can be run");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut said).expect("it says a number");
        let last = Handle::open(said.trim().parse().expect("a number")).expect("it runs");
        let first = Handle::open(child.id()).expect("it runs");
        first.end_with_descendants(Duration::ZERO);
        let patience = Duration::from_secs(60);
        assert!(first.ends_within(patience) && last.ends_within(patience));
        child.wait().expect("it is ours");
    }
}
