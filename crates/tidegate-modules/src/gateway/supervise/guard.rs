//! The guard of pools: a small process beside the master that ends what a master that was killed has left behind.
//!
//! While the master lives the guard is told, line by line, which processes there are, and does nothing. When the master
//! has gone without a word, server processes finish what is in flight, and applications are needed for that: so the guard
//! waits for the server processes, as long as they may take, then ends every application with all that it has started, and
//! removes the folder of the sockets. A master that ends as it should leaves nothing for it to do.
//!
//! ```text
//! + PID, - PID      a process of a pool          folder PATH        removed at the end
//! server PID ...    all server processes         patience SECONDS   how long they may take
//! ```

use super::launch::OURSELVES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, test_kill_process,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_core::log;

/// How long applications may take to end when told to.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked at what applications have started, while they go on without a master.
const LOOK: Duration = Duration::from_millis(200);

/// What the guard has to know, in the master.
#[derive(Debug, Default)]
struct Known {
    processes: BTreeSet<u32>,
    servers: Vec<u32>,
    folder: Option<PathBuf>,
    patience: Duration,
}

impl Known {
    fn lines(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(folder) = &self.folder {
            out.extend_from_slice(&folder_line(folder));
        }
        out.extend_from_slice(&patience_line(self.patience));
        out.extend_from_slice(&server_line(&self.servers));
        for pid in &self.processes {
            out.extend_from_slice(format!("+ {pid}\n").as_bytes());
        }
        out
    }
}

fn folder_line(folder: &Path) -> Vec<u8> {
    [b"folder ", folder.as_os_str().as_bytes(), b"\n"].concat()
}

fn patience_line(patience: Duration) -> Vec<u8> {
    format!("patience {}\n", patience.as_secs()).into_bytes()
}

fn server_line(servers: &[u32]) -> Vec<u8> {
    let list: Vec<String> = servers.iter().map(u32::to_string).collect();
    format!("server {}\n", list.join(" ")).into_bytes()
}

/// The master's end.
#[derive(Debug, Default)]
pub(super) struct Guard {
    known: RefCell<Known>,
    process: RefCell<Option<(UnixStream, Child)>>,
}

impl Guard {
    /// Has it remove this folder in the end.
    pub(super) fn folder(&self, folder: &Path) {
        self.known.borrow_mut().folder = Some(folder.to_owned());
        self.tell(&folder_line(folder));
    }

    /// How long server processes without a master may take.
    pub(super) fn patience(&self, patience: Duration) {
        self.known.borrow_mut().patience = patience;
        self.tell(&patience_line(patience));
    }

    /// The server processes there are.
    pub(super) fn servers(&self, servers: Vec<u32>) {
        let line = server_line(&servers);
        self.known.borrow_mut().servers = servers;
        self.tell(&line);
    }

    /// A process was started.
    pub(super) fn started(&self, pid: u32) {
        self.known.borrow_mut().processes.insert(pid);
        self.tell(format!("+ {pid}\n").as_bytes());
    }

    /// A process has ended. Comes before it is reaped: until then its number is nobody else's.
    pub(super) fn ended(&self, pid: u32) {
        self.known.borrow_mut().processes.remove(&pid);
        self.tell(format!("- {pid}\n").as_bytes());
    }

    /// Tells it; one that is not there, or has been killed, is started and told all.
    fn tell(&self, line: &[u8]) {
        let mut process = self.process.borrow_mut();
        if let Some((stream, _)) = &mut *process
            && stream.write_all(line).is_ok()
        {
            return;
        }
        if let Some((stream, mut child)) = process.take() {
            // Killed before the stream ends: to one that is only slow the end would mean that the master has gone.
            let _ = child.kill();
            drop(stream);
            let _ = child.wait();
        }
        let (has_pools, lines) = {
            let known = self.known.borrow();
            (known.folder.is_some(), known.lines())
        };
        if !has_pools {
            return;
        }
        match start(&lines) {
            Ok(started) => *process = Some(started),
            Err(error) => log::error(format_args!(
                "the guard of pools cannot be started: {error}; should this process be killed, its pools go on"
            )),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((stream, mut child)) = self.process.take() {
            drop(stream); // it has nothing to do any more
            let _ = child.wait();
        }
    }
}

fn start(lines: &[u8]) -> io::Result<(UnixStream, Child)> {
    let (mut ours, theirs) = UnixStream::pair()?;
    // Never waits for it: one that does not read is replaced.
    ours.set_write_timeout(Some(Duration::from_secs(1)))?;
    let mut command = Command::new(OURSELVES);
    command.arg0("tidegate").arg("guard").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    command.env_clear().current_dir("/").process_group(0);
    let child = command.spawn()?;
    drop(command);
    ours.write_all(lines)?;
    Ok((ours, child))
}

/// A process, and whether it has ended.
struct Handle {
    pid: Pid,
    ended: OwnedFd,
}

impl Handle {
    fn open(pid: u32) -> Option<Handle> {
        let pid = Pid::from_raw(pid.cast_signed())?;
        Some(Handle { pid, ended: pidfd_open(pid, PidfdFlags::empty()).ok()? })
    }

    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.ended, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }
}

/// The guard itself: reads what the master tells, on standard input, until that ends.
///
/// # Errors
/// Standard input cannot be read.
pub fn run() -> io::Result<()> {
    let mut told = Told::default();
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    let mut stdin = io::stdin().lock();
    loop {
        let count = match stdin.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        };
        for byte in buffer.iter().take(count) {
            match byte {
                b'\n' => told.take(&std::mem::take(&mut line)),
                byte => line.push(*byte),
            }
        }
    }
    told.end();
    Ok(())
}

#[derive(Default)]
struct Told {
    processes: BTreeMap<u32, Handle>,
    servers: BTreeMap<u32, Handle>,
    folder: Option<PathBuf>,
    patience: Duration,
}

impl Told {
    fn take(&mut self, line: &[u8]) {
        if let Some(folder) = line.strip_prefix(b"folder ") {
            self.folder = Some(std::ffi::OsString::from_vec(folder.to_vec()).into());
            return;
        }
        let line = String::from_utf8_lossy(line);
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let number = rest.parse::<u32>().ok();
        match (word, number) {
            ("+", Some(pid)) => drop(Handle::open(pid).map(|handle| self.processes.insert(pid, handle))),
            ("-", Some(pid)) => drop(self.processes.remove(&pid)),
            ("patience", Some(seconds)) => self.patience = Duration::from_secs(seconds.into()),
            ("server", _) => {
                let now: Vec<u32> = rest.split(' ').filter_map(|pid| pid.parse().ok()).collect();
                self.servers.retain(|pid, _| now.contains(pid));
                for pid in now {
                    if !self.servers.contains_key(&pid)
                        && let Some(handle) = Handle::open(pid)
                    {
                        self.servers.insert(pid, handle);
                    }
                }
            }
            _ => {}
        }
    }

    /// The master has gone.
    fn end(mut self) {
        self.processes.retain(|_, handle| !handle.has_ended());
        let mut family = BTreeMap::new();
        if !self.processes.is_empty() {
            let servers: Vec<&Handle> = self.servers.values().collect();
            self.wait(&servers, self.patience, &mut family);
            self.look(&mut family);
            // The number of one that has ended meanwhile may be somebody else's.
            for handle in self.processes.values().filter(|handle| !handle.has_ended()) {
                let _ = kill_process(handle.pid, Signal::TERM);
            }
            let leaders: Vec<&Handle> = self.processes.values().collect();
            self.wait(&leaders, STOP_PATIENCE, &mut family);
            for handle in self.processes.values() {
                let _ = kill_process_group(handle.pid, Signal::KILL);
            }
            // What they had started in groups of its own: scripts, and what those have started.
            for (pid, began) in &family {
                if began_at(*pid) == Some(*began)
                    && let Some(pid) = Pid::from_raw(*pid)
                    && test_kill_process(pid).is_ok()
                {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }

    /// Waits until all of these have ended, no longer than `patience`, and sees meanwhile what pools start.
    fn wait(&self, handles: &[&Handle], patience: Duration, family: &mut BTreeMap<i32, u64>) {
        let deadline = Instant::now() + patience;
        loop {
            self.look(family);
            let left = deadline.saturating_duration_since(Instant::now());
            let open: Vec<&&Handle> = handles.iter().filter(|handle| !handle.has_ended()).collect();
            if open.is_empty() || left.is_zero() {
                return;
            }
            let mut fds: Vec<PollFd<'_>> =
                open.iter().map(|handle| PollFd::new(&handle.ended, PollFlags::IN)).collect();
            let timeout = Timespec::try_from(left.min(LOOK)).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            let _ = poll(&mut fds, Some(&timeout));
        }
    }

    /// Finds all that the processes of pools have started, by number and time of start.
    fn look(&self, family: &mut BTreeMap<i32, u64>) {
        let mut parents: BTreeMap<i32, (i32, u64)> = BTreeMap::new();
        let Ok(entries) = std::fs::read_dir("/proc") else { return };
        for pid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()) {
            if let Some((parent, began)) = stat(pid) {
                parents.insert(pid, (parent, began));
            }
        }
        let leaders = self.processes.values().filter(|handle| !handle.has_ended());
        let leaders: BTreeSet<i32> = leaders.map(|handle| handle.pid.as_raw_nonzero().get()).collect();
        family.retain(|pid, began| parents.get(pid).is_some_and(|(_, now)| now == began));
        loop {
            let mut is_new = false;
            for (pid, (parent, began)) in &parents {
                if (leaders.contains(parent) || family.contains_key(parent)) && !family.contains_key(pid) {
                    family.insert(*pid, *began);
                    is_new = true;
                }
            }
            if !is_new {
                return;
            }
        }
    }
}

/// Parent and time of start of a process (proc_pid_stat(5)).
fn stat(pid: i32) -> Option<(i32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = text.get(text.rfind(')')? + 2..)?.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    let began = fields.nth(17)?.parse().ok()?;
    Some((parent, began))
}

fn began_at(pid: i32) -> Option<u64> {
    stat(pid).map(|(_, began)| began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_with_its_parent_and_start() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("it can be run");
        let pid = child.id().cast_signed();
        let (parent, began) = stat(pid).expect("it runs");
        assert_eq!((parent, began_at(pid)), (std::process::id().cast_signed(), Some(began)));
        assert!(began > 0);
        let handle = Handle::open(child.id()).expect("it runs");
        assert!(!handle.has_ended());
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        assert!(handle.has_ended());
    }
}
