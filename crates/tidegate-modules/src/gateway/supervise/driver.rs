//! The supervisor's thread: waits for ended processes, for what they write, for settings and for demands,
//! and lets the pools do what is due.

use super::clients::{Clients, User};
use super::guard::Guard;
use super::opcache::Opcache;
use super::running::{Effects, Running};
use super::sockets::Folder;
use super::status::PoolStatus;
use super::temporary::Sweeper;
use crate::gateway::pool_directory::{PoolDemand, PoolUpdate};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_config::settings::pool::{Application, Pool};
use tidegate_core::log;
use tidegate_io::locking::lock;

/// How often the workers are asked while there is something to see.
const BUSY: Duration = Duration::from_millis(50);
/// How often otherwise.
const QUIET: Duration = Duration::from_secs(1);
/// How long an answer to the operator may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a process, and then its keeper, may take to end once it was killed, when all end.
const KILL_PATIENCE: Duration = Duration::from_secs(3);
/// How long the thread may take beyond what its processes do.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The ways out of the supervisor, and in.
pub struct Ends {
    /// Tells the workers how a pool is.
    pub publish: Box<dyn Fn(PoolUpdate) + Send>,
    /// Asks the workers what they want. Where this is `None`, [`Supervisor::report`] brings it.
    pub demands: Option<Box<dyn Fn() -> Vec<PoolDemand> + Send>>,
    /// The user and group that connect to pools, where they are not this process's: sockets are theirs.
    pub clients: Clients,
}

enum Message {
    Adopt(Vec<Arc<Pool>>),
    Report(Vec<PoolDemand>),
    Status(Sender<Vec<PoolStatus>>),
    Servers(Vec<u32>),
    Patience(Duration),
    KeepBack(u64),
    Restart(String, Sender<bool>),
}

/// A handle to the thread that runs the pools. Dropping it ends all their processes and waits for that, but not for what the
/// kernel does not end.
pub struct Supervisor {
    sender: Mutex<Option<Sender<Message>>>,
    event: Arc<OwnedFd>,
    clients: Clients,
    /// The longest of all pools that there were.
    stop_timeout: Mutex<Duration>,
    /// Ends with the thread.
    thread: Mutex<Option<Receiver<()>>>,
}

/// Wakes the supervisor from any thread: somebody waits before a pool.
#[derive(Clone)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// Has it ask for demands now.
    pub fn wake(&self) {
        // A full counter means that it is awake already.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }
}

impl Supervisor {
    /// Starts the thread, without pools.
    ///
    /// # Errors
    /// No thread, no descriptor.
    pub fn start(ends: Ends) -> io::Result<Supervisor> {
        let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (sender, messages) = channel();
        let clients = ends.clients.clone();
        let driver = Driver {
            ends,
            messages,
            waker: Waker { event: event.clone() },
            begun: Instant::now(),
            folder: None,
            guard: Guard::default(),
            sweeper: Sweeper::default(),
            pools: BTreeMap::new(),
            leaving: Vec::new(),
            asked: Duration::ZERO,
            kept_back: 0,
        };
        let (lives, thread) = channel::<()>();
        std::thread::Builder::new().name("tidegate-pools".into()).spawn(move || {
            driver.run();
            drop(lives);
        })?;
        let (sender, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Supervisor { sender, event, clients, stop_timeout: Mutex::default(), thread })
    }

    /// Takes up the pools of a revision of the settings: those that say the same are left alone.
    pub fn adopt(&self, pools: &[Pool]) {
        let timeouts = pools.iter().filter_map(|pool| match &pool.application {
            Application::Processes(processes) => Some(processes.stop_timeout),
            Application::External(_) => None,
        });
        {
            let mut longest = lock(&self.stop_timeout);
            *longest = timeouts.fold(*longest, Duration::max);
        }
        self.send(Message::Adopt(pools.iter().cloned().map(Arc::new).collect()));
    }

    /// Brings what the workers want.
    pub fn report(&self, demands: Vec<PoolDemand>) {
        self.send(Message::Report(demands));
    }

    /// The server processes there are, by number: should this process be killed, pools end after them.
    pub fn set_servers(&self, servers: Vec<u32>) {
        self.send(Message::Servers(servers));
    }

    /// The users that connect to pools now, the newest first: when this returns they reach all sockets.
    pub fn set_clients(&self, users: Vec<User>) {
        self.clients.set(users);
    }

    /// How long server processes may take then.
    pub fn set_patience(&self, patience: Duration) {
        self.send(Message::Patience(patience));
    }

    /// Descriptors of this process that pools leave to others.
    pub fn keep_back(&self, descriptors: u64) {
        self.send(Message::KeepBack(descriptors));
    }

    /// Replaces the processes of a pool one by one, each when its requests are done. Whether there is such a pool that this
    /// supervisor runs.
    pub fn restart(&self, name: &str) -> bool {
        let (answer, told) = channel();
        self.send(Message::Restart(name.to_owned(), answer));
        told.recv_timeout(PATIENCE).unwrap_or_default()
    }

    /// How all pools stand, by name.
    pub fn status(&self) -> Vec<PoolStatus> {
        let (answer, told) = channel();
        self.send(Message::Status(answer));
        told.recv_timeout(PATIENCE).unwrap_or_default()
    }

    /// What wakes it.
    pub fn waker(&self) -> Waker {
        Waker { event: self.event.clone() }
    }

    fn send(&self, message: Message) {
        if let Some(sender) = &*lock(&self.sender) {
            let _ = sender.send(message);
            self.waker().wake();
        }
    }

    /// Ends all processes and waits until they have ended, as long as that can be had. Nothing can be asked of it after that.
    pub fn end(&self) {
        let stop_timeout = self.send_end();
        let thread = lock(&self.thread).take();
        let until = stop_timeout + 2 * KILL_PATIENCE + END_PATIENCE;
        if thread.is_some_and(|thread| thread.recv_timeout(until) == Err(RecvTimeoutError::Timeout)) {
            log::error(
                "the supervisor of pools does not react, and is left with their processes, which their guard ends: look for \
                 a file system that does not answer",
            );
        }
    }

    /// Has it end. How long processes may take then before they are killed.
    fn send_end(&self) -> Duration {
        *lock(&self.sender) = None;
        self.waker().wake();
        *lock(&self.stop_timeout)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

/// Answers how pools stand. Where PHP has to be asked a thread of its own does: the pools go on.
fn tell(mut status: Vec<PoolStatus>, opcaches: Vec<Option<Opcache>>, answer: Sender<Vec<PoolStatus>>) {
    let due: Vec<Opcache> = opcaches.iter().flatten().filter(|opcache| opcache.is_due()).cloned().collect();
    let finish = move || {
        for (pool, opcache) in status.iter_mut().zip(opcaches) {
            pool.opcache = opcache.map(|opcache| opcache.status());
        }
        let _ = answer.send(status);
    };
    if due.is_empty() {
        return finish();
    }
    // Without a thread nobody is answered, and whoever waits gives up.
    let _ = std::thread::Builder::new().name("tidegate-opcache".into()).spawn(move || {
        std::thread::scope(|scope| {
            for opcache in &due {
                let _ = std::thread::Builder::new().spawn_scoped(scope, || opcache.refresh());
            }
        });
        finish();
    });
}

struct Driver {
    ends: Ends,
    messages: Receiver<Message>,
    waker: Waker,
    begun: Instant,
    /// Made with the first pool.
    folder: Option<Folder>,
    /// Dropped behind the folder.
    guard: Guard,
    sweeper: Sweeper,
    pools: BTreeMap<String, Running>,
    /// In no settings any more, with processes that still end.
    leaving: Vec<Running>,
    /// When demands were last asked for.
    asked: Duration,
    /// Descriptors that are not for pools.
    kept_back: u64,
}

impl Driver {
    fn run(mut self) {
        let mut is_ending = false;
        loop {
            is_ending |= !self.take_messages();
            if is_ending {
                self.each(Running::stop_now);
                if self.is_given_up() {
                    return;
                }
            } else {
                self.ask();
            }
            self.each(Running::advance);
            for gone in self.leaving.extract_if(.., |pool| pool.has_ended()) {
                // One of that name may have come again.
                if !self.pools.contains_key(&gone.pool.name) {
                    self.sweeper.forget(&gone.pool.name);
                }
            }
            if is_ending && self.leaving.is_empty() && self.pools.values().all(Running::has_ended) {
                return;
            }
            self.wait();
        }
    }

    /// All end. What has been killed and does not end is killed with its keeper, and then left: to the guard, which ends
    /// what it can when this process has gone. Whether nothing else is left.
    fn is_given_up(&mut self) -> bool {
        let now = self.begun.elapsed();
        let mut all_given_up = true;
        let mut left = Vec::new();
        for pool in self.pools.values_mut().chain(&mut self.leaving) {
            all_given_up &= pool.give_up(now, KILL_PATIENCE, &mut left);
        }
        if left.is_empty() || !all_given_up {
            return false;
        }
        log::error(format_args!(
            "the keepers of these processes cannot be ended, and are left to the guard: {}",
            left.join(", ")
        ));
        true
    }

    /// Whether there is still somebody who may send.
    fn take_messages(&mut self) -> bool {
        loop {
            match self.messages.try_recv() {
                Ok(Message::Adopt(pools)) => self.adopt(pools),
                Ok(Message::Report(demands)) => self.take_demands(demands),
                Ok(Message::Servers(servers)) => self.guard.servers(servers),
                Ok(Message::Patience(patience)) => self.guard.patience(patience),
                Ok(Message::KeepBack(descriptors)) => self.kept_back = descriptors,
                Ok(Message::Restart(name, answer)) => {
                    let is_ours = self.effects().is_some_and(|(effects, running, _)| {
                        running.get_mut(&name).is_some_and(|pool| pool.replace(&effects))
                    });
                    let _ = answer.send(is_ours);
                }
                Ok(Message::Status(answer)) => {
                    let now = self.begun.elapsed();
                    let status = self.pools.values().map(|pool| pool.status(now)).collect();
                    let opcaches = self.pools.values().map(Running::opcache).collect();
                    tell(status, opcaches, answer);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn adopt(&mut self, pools: Vec<Arc<Pool>>) {
        if self.folder.is_none() && !pools.is_empty() {
            match Folder::make(self.ends.clients.clone()) {
                Ok(folder) => {
                    self.guard.folder(folder.root());
                    self.folder = Some(folder);
                }
                Err(problem) => {
                    log::error(format_args!("{problem}; no pool can be run"));
                    return;
                }
            }
        }
        let Some((effects, running, leaving)) = self.effects() else { return };
        let gone: Vec<String> =
            running.keys().filter(|name| !pools.iter().any(|pool| pool.name == **name)).cloned().collect();
        for name in gone {
            if let Some(mut pool) = running.remove(&name) {
                pool.stop(&effects);
                leaving.push(pool);
            }
        }
        for pool in pools {
            let is_ours = matches!(pool.application, Application::Processes(_));
            if let Some(index) = leaving.iter().position(|leaving| is_ours && leaving.pool.name == pool.name)
            {
                let mut resumed = leaving.swap_remove(index);
                // Meanwhile it may have run elsewhere.
                let sequence = running.get(&pool.name).map(Running::sequence);
                resumed.resume(pool.clone(), sequence, &effects);
                running.insert(pool.name.clone(), resumed);
            }
            // It runs elsewhere now: ours are drained, as those of a pool that is gone.
            let moved = running.get(&pool.name).is_some_and(|known| !is_ours && known.has_processes());
            if moved && let Some(before) = running.remove(&pool.name) {
                leaving.push(before);
            }
            if let Some(before) = leaving.iter_mut().find(|before| !is_ours && before.pool.name == pool.name)
                && !running.contains_key(&pool.name)
            {
                running.insert(pool.name.clone(), before.move_away(pool, &effects));
                continue;
            }
            match running.get_mut(&pool.name) {
                Some(known) => known.redefine(pool, &effects),
                None => {
                    let seed = u64::from(std::process::id()) << 32 | u64::from(effects.now.subsec_nanos());
                    running.insert(pool.name.clone(), Running::new(pool, seed, &effects));
                }
            }
        }
    }

    /// Asks the workers, where that is how it goes, and not more often than is of use.
    fn ask(&mut self) {
        let Some(demands) = &self.ends.demands else { return };
        if self.pools.is_empty() && self.leaving.is_empty() {
            return;
        }
        self.asked = self.begun.elapsed();
        let demands = demands();
        self.take_demands(demands);
    }

    fn take_demands(&mut self, demands: Vec<PoolDemand>) {
        let Some((effects, running, leaving)) = self.effects() else { return };
        for demand in demands {
            if let Some(pool) = running.get_mut(&demand.name) {
                pool.demand(demand.clone(), &effects);
            }
            if let Some(pool) = leaving.iter_mut().find(|pool| pool.pool.name == demand.name) {
                pool.demand(demand, &effects);
            }
        }
    }

    /// What carrying out needs, and the pools that it is done with: those of the settings, and those that end.
    fn effects(&mut self) -> Option<(Effects<'_>, &mut BTreeMap<String, Running>, &mut Vec<Running>)> {
        let effects = Effects {
            folder: self.folder.as_ref()?,
            guard: &self.guard,
            sweeper: &self.sweeper,
            publish: &*self.ends.publish,
            now: self.begun.elapsed(),
            waker: &self.waker,
            kept_back: self.kept_back,
        };
        Some((effects, &mut self.pools, &mut self.leaving))
    }

    fn each(&mut self, mut f: impl FnMut(&mut Running, &Effects<'_>)) {
        let Some((effects, running, leaving)) = self.effects() else { return };
        for pool in running.values_mut().chain(leaving) {
            f(pool, &effects);
        }
    }

    /// Waits for something to happen, and takes it in.
    fn wait(&mut self) {
        let timeout = self.timeout();
        let guard = self.guard.end();
        let mut fds = vec![PollFd::new(&*self.waker.event, PollFlags::IN)];
        fds.extend(guard.as_deref().map(|guard| PollFd::new(guard.ended(), PollFlags::IN)));
        let ours = fds.len();
        // In the order of `fds`: pool, slot, and whether it is what was written.
        let mut whose: Vec<(usize, usize, bool)> = Vec::new();
        for (index, pool) in self.pools.values().chain(&self.leaving).enumerate() {
            for (slot, child) in &pool.children {
                fds.push(PollFd::new(child.ended.ended(), PollFlags::IN));
                whose.push((index, *slot, false));
                if let Some(output) = &child.output {
                    fds.push(PollFd::new(output, PollFlags::IN));
                    whose.push((index, *slot, true));
                }
            }
        }
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        if poll(&mut fds, Some(&timeout)).is_err() {
            return; // a signal came in between
        }
        let guard_has_ended = guard.is_some() && fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        let happened: Vec<(usize, usize, bool)> = fds
            .iter()
            .skip(ours)
            .zip(whose)
            .filter(|(fd, _)| !fd.revents().is_empty())
            .map(|(_, whose)| whose)
            .collect();
        drop(fds);
        let _ = rustix::io::read(&*self.waker.event, &mut [0; 8]);
        if guard_has_ended {
            self.guard.has_ended();
        }
        let Some((effects, running, leaving)) = self.effects() else { return };
        let mut pools: Vec<&mut Running> = running.values_mut().chain(leaving).collect();
        // What was written first: it may say why a process has ended.
        for (index, slot, _) in happened.iter().filter(|(_, _, is_output)| *is_output) {
            pools[*index].written(*slot);
        }
        for (index, slot, _) in happened.iter().filter(|(_, _, is_output)| !is_output) {
            pools[*index].ended(*slot, &effects);
        }
    }

    fn timeout(&self) -> Duration {
        let now = self.begun.elapsed();
        let all = || self.pools.values().chain(&self.leaving);
        let at_most = if all().any(Running::is_restless) { BUSY } else { QUIET };
        let due = all().filter_map(Running::next).min().map(|due| due.saturating_sub(now));
        // A deadline that has passed has been dealt with before; a moment's rest rules out a busy loop.
        due.map_or(at_most, |due| due.clamp(Duration::from_millis(1), at_most))
    }
}
