//! The guard of pools: a small process beside the master that ends what a master that was killed has left behind.
//!
//! While the master lives the guard is told, line by line, which processes there are, and does nothing. When the master
//! has gone without a word, server processes finish what is in flight, and applications are needed for that: so the guard
//! waits for the server processes, as long as they may take, then ends every application with all that it has started, and
//! removes the folder of the sockets. A master that ends as it should leaves nothing for it to do.
//!
//! ```text
//! + PID, - PID      a keeper (`keeper`)          folder PATH        removed at the end
//! server PID ...    all server processes         patience SECONDS   how long they may take
//! ```

use super::keeper::END_ALL;
use super::launch::OURSELVES;
use super::process_table::{self, Handle, Stat, reap_apart};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_core::log;

/// How long applications may take to end when told to, and keepers to end what is left.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// A guard that has lived so long has not ended of itself.
const SOUND: Duration = Duration::from_secs(1);
/// How often what is left is looked for and ended.
const ROUNDS: u32 = 10;
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
    process: RefCell<Option<Running>>,
}

/// The guard's process as the master has it.
#[derive(Debug)]
struct Running {
    stream: UnixStream,
    child: Child,
    ended: Arc<Handle>,
    since: Instant,
}

impl Guard {
    /// Has it remove this folder in the end.
    pub(super) fn folder(&self, folder: &Path) {
        self.known.borrow_mut().folder = Some(folder.to_owned());
        self.tell(&folder_line(folder));
    }

    /// How long server processes without a master may take.
    pub(super) fn known_patience(&self) -> Duration {
        self.known.borrow().patience
    }

    /// The same, from now on.
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

    /// A process was started, with this keeper.
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
        let is_told = process.as_mut().is_some_and(|running| running.stream.write_all(line).is_ok());
        drop(process);
        if !is_told {
            self.replace();
        }
    }

    /// Readable once the guard has ended.
    pub(super) fn end(&self) -> Option<Arc<Handle>> {
        self.process.borrow().as_ref().map(|running| running.ended.clone())
    }

    /// It has ended, and nobody has told it to: what it was told last may have gone to one that was dying. One that ends
    /// at once again and again is missed with the next change only.
    pub(super) fn has_ended(&self) {
        let was_sound = self.process.borrow().as_ref().map(|running| running.since.elapsed() >= SOUND);
        match was_sound {
            Some(true) => self.replace(),
            Some(false) => self.reap(),
            None => {}
        }
    }

    fn reap(&self) {
        if let Some(Running { stream, mut child, .. }) = self.process.take() {
            // Killed before the stream ends: to one that is only slow the end would mean that the master has gone.
            let _ = child.kill();
            drop(stream);
            reap_apart(child);
        }
    }

    /// Starts one in the place of the one before, and tells it all.
    fn replace(&self) {
        self.reap();
        let (has_pools, lines) = {
            let known = self.known.borrow();
            (known.folder.is_some(), known.lines())
        };
        if !has_pools {
            return;
        }
        match start(&lines) {
            Ok(started) => *self.process.borrow_mut() = Some(started),
            Err(error) => log::error(format_args!(
                "the guard of pools cannot be started: {error}; should this process be killed, its pools go on"
            )),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(Running { stream, mut child, ended, .. }) = self.process.take() else { return };
        drop(stream);
        if !self.known.borrow().processes.is_empty() {
            return; // it ends what is left, and then itself
        }
        // It has nothing to do any more. One that was stopped never does it.
        if !ended.ends_within(STOP_PATIENCE) {
            let _ = child.kill();
        }
        reap_apart(child);
    }
}

fn start(lines: &[u8]) -> io::Result<Running> {
    let (mut ours, theirs) = UnixStream::pair()?;
    // Never waits for it: one that does not read is replaced.
    ours.set_write_timeout(Some(Duration::from_secs(1)))?;
    let mut command = Command::new(OURSELVES);
    command.arg0("tidegate").arg("guard").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    command.env_clear().current_dir("/").process_group(0);
    let mut child = command.spawn()?;
    drop(command);
    let told = Handle::of_child(&child).and_then(|ended| ours.write_all(lines).map(|()| ended));
    match told {
        Ok(ended) => Ok(Running { stream: ours, child, ended: Arc::new(ended), since: Instant::now() }),
        Err(error) => {
            // Before the stream ends, as in `reap`.
            let _ = child.kill();
            drop(ours);
            reap_apart(child);
            Err(error)
        }
    }
}

/// The guard itself: reads what the master tells, on standard input, until that ends.
///
/// # Errors
/// Standard input cannot be read.
pub fn run() -> io::Result<()> {
    let mut table = ProcessTable::default();
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
                b'\n' => table.take(&std::mem::take(&mut line)),
                byte => line.push(*byte),
            }
        }
    }
    table.end();
    Ok(())
}

#[derive(Default)]
struct ProcessTable {
    processes: BTreeMap<u32, Handle>,
    servers: BTreeMap<u32, Handle>,
    folder: Option<PathBuf>,
    patience: Duration,
}

impl ProcessTable {
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
            let keepers: Vec<&Handle> = self.processes.values().collect();
            keepers.iter().for_each(|handle| handle.signal(Signal::TERM));
            self.wait(&keepers, STOP_PATIENCE, &mut family);
            // A keeper ends when nothing is left of what its process has started, whatever that has made of itself.
            keepers.iter().for_each(|handle| handle.signal(END_ALL));
            self.wait(&keepers, STOP_PATIENCE, &mut family);
            // What has lost its keeper, as far as it could be seen. What one starts while it is ended is found by the next
            // look.
            for _ in 0..ROUNDS {
                self.look(&mut family);
                if family.is_empty() && keepers.iter().all(|handle| handle.has_ended()) {
                    break;
                }
                let alive: Vec<Handle> =
                    family.iter().filter_map(|(pid, known)| Handle::of(*pid, known.began)).collect();
                alive.iter().for_each(|handle| handle.signal(Signal::KILL));
                self.wait(&alive.iter().collect::<Vec<_>>(), LOOK, &mut family);
            }
            keepers.iter().for_each(|handle| handle.signal(Signal::KILL));
        }
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }

    /// Waits until all of these have ended, no longer than `patience`, and sees meanwhile what pools start.
    fn wait(&self, handles: &[&Handle], patience: Duration, family: &mut BTreeMap<i32, Stat>) {
        let deadline = Instant::now() + patience;
        loop {
            self.look(family);
            let left = deadline.saturating_duration_since(Instant::now());
            let open: Vec<&&Handle> = handles.iter().filter(|handle| !handle.has_ended()).collect();
            if open.is_empty() || left.is_zero() {
                return;
            }
            let mut fds: Vec<PollFd<'_>> =
                open.iter().map(|handle| PollFd::new(handle.ended(), PollFlags::IN)).collect();
            let timeout = Timespec::try_from(left.min(LOOK)).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            let _ = poll(&mut fds, Some(&timeout));
        }
    }

    /// Finds all that the processes of pools have started and that has not ended, by number and time of start: what
    /// descends from them, and what is in the group of any.
    fn look(&self, family: &mut BTreeMap<i32, Stat>) {
        let all = process_table::all();
        let table = self.processes.values();
        let table = table.map(|handle| (handle.number(), !handle.has_ended())).collect();
        find_family(&table, &all, family);
    }
}

/// Adds to `family` whatever of `all` belongs to it, and takes out what has gone. `table` are the processes of pools, each
/// with whether it is alive: it leads a group, whose number is nobody else's while the group has a member. What is
/// in a group that no process of a pool has made is not touched: a script may join any.
fn find_family(table: &BTreeMap<i32, bool>, all: &BTreeMap<i32, Stat>, family: &mut BTreeMap<i32, Stat>) {
    family.retain(|pid, known| all.get(pid).is_some_and(|now| now.began == known.began));
    let is_alive = |pid: &i32| table.get(pid) == Some(&true);
    loop {
        let made = |group: &i32| table.contains_key(group) || family.contains_key(group);
        let groups = family.values().map(|known| known.group).filter(made);
        let groups: BTreeSet<i32> = groups.chain(table.keys().copied().filter(|pid| is_alive(pid))).collect();
        let is_ours = |known: &Stat| {
            is_alive(&known.parent) || family.contains_key(&known.parent) || groups.contains(&known.group)
        };
        let is_new = |pid: &i32| !family.contains_key(pid) && !is_alive(pid);
        let new = all.iter().filter(|(pid, known)| is_new(pid) && is_ours(known));
        let new: Vec<(i32, Stat)> = new.map(|(pid, known)| (*pid, *known)).collect();
        if new.is_empty() {
            return;
        }
        family.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that has gone to somebody else is left alone, and so is its group.
    #[test]
    fn the_family_is_what_pools_have_started_and_nobody_else() {
        let known = |parent, group, began| Stat { parent, group, began, has_ended: false };
        let before = BTreeMap::from([
            (100, known(1, 100, 5)),
            (101, known(100, 100, 6)),
            (102, known(101, 102, 7)), // a script in a group of its own
            (103, known(101, 200, 7)), // one that has joined others
            (200, known(1, 200, 5)),
        ]);
        let mut family = BTreeMap::new();
        find_family(&BTreeMap::from([(100, true)]), &before, &mut family);
        assert_eq!(family.keys().copied().collect::<Vec<_>>(), [101, 102, 103]);
        // The leader has ended, and its number is another's by now; its child is an orphan, and has started one more.
        let after = BTreeMap::from([
            (100, known(1, 77, 90)),
            (101, known(1, 100, 6)),
            (102, known(1, 102, 80)), // this number, too
            (104, known(1, 100, 81)),
            (200, known(1, 200, 5)),
            (201, known(100, 77, 91)),
        ]);
        find_family(&BTreeMap::from([(100, false)]), &after, &mut family);
        assert_eq!(family.keys().copied().collect::<Vec<_>>(), [101, 104]);
        let gone = BTreeMap::from([(100, known(1, 100, 90)), (201, known(100, 100, 91))]);
        find_family(&BTreeMap::from([(100, false)]), &gone, &mut family);
        assert!(family.is_empty(), "{family:?}");
    }
}
