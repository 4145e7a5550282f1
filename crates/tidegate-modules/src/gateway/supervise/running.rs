//! One pool as it runs: its machine, its processes and their sockets. Carries out what the machine decides.

use super::child::{self, Child, Start, StartError};
use super::definition::{account, places_of, pool_address, rules_of, warm_up_of};
use super::driver::Waker;
use super::guard::Guard;
use super::hook::{Subject, Watch};
use super::machine::{Action, Machine, Slot, Usage};
use super::opcache::Opcache;
use super::sockets::{BACKLOG, Folder, Listening};
use super::status::{PoolStatus, ProcessStatus};
use super::temporary::Sweeper;
use super::warm_up::WarmingUp;
use crate::gateway::pool_directory::{PoolAddress, PoolDemand, PoolMember, PoolPhase, PoolUpdate};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::pool::{Application, Measure, Pool, Processes};
use tidegate_core::log;
use tidegate_io::descriptors;

/// Descriptors that a process costs for as long as it is there, and one.
const PER_PROCESS: u64 = 5;

/// What carrying out needs.
pub(super) struct Effects<'a> {
    pub(super) folder: &'a Folder,
    pub(super) guard: &'a Guard,
    pub(super) sweeper: &'a Sweeper,
    pub(super) publish: &'a dyn Fn(PoolUpdate),
    pub(super) now: Duration,
    pub(super) waker: &'a Waker,
    /// Descriptors that are not for pools.
    pub(super) kept_back: u64,
}

impl Effects<'_> {
    fn has_room(&self) -> bool {
        descriptors::has_room(PER_PROCESS + self.kept_back)
    }

    /// A sentence where there is none.
    fn no_room(&self) -> String {
        let limit = descriptors::limit().map_or("no more".to_owned(), |limit| limit.to_string());
        format!(
            "no further process can be started: process {} may hold {limit} descriptors, and {} are kept back for commands, logs \
             and settings; raise the limit (`ulimit -Hn`, or LimitNOFILE= of the service), or lower `processes max`",
            std::process::id(),
            self.kept_back
        )
    }
}

/// A pool.
pub(super) struct Running {
    pub(super) pool: Arc<Pool>,
    /// `None` for an application that is not ours.
    machine: Option<Machine>,
    pub(super) children: BTreeMap<Slot, Child>,
    /// Those of the slots; they outlive processes.
    sockets: BTreeMap<Slot, Arc<Listening>>,
    /// The one that all share.
    shared: Option<Arc<Listening>>,
    started: u64,
    hooks: Vec<Watch>,
    last: Option<PoolDemand>,
    external_sequence: u64,
    /// Another of this name tells the workers how the pool is.
    is_silent: bool,
    /// When all end: when the process, and when its keeper was killed.
    killed: BTreeMap<Slot, (Duration, Option<Duration>)>,
}

impl Running {
    pub(super) fn new(pool: Arc<Pool>, seed: u64, effects: &Effects<'_>) -> Running {
        let mut running = Running::silent(pool, seed, effects);
        running.is_silent = false;
        running.publish(effects);
        running.advance(effects);
        running
    }

    /// One that nobody has been told of.
    fn silent(pool: Arc<Pool>, seed: u64, effects: &Effects<'_>) -> Running {
        let machine = rules_of(&pool).map(|rules| Machine::new(rules, seed, effects.now));
        let hooks = pool.hooks.iter().cloned().map(Watch::new).collect();
        Running {
            pool,
            machine,
            children: BTreeMap::new(),
            sockets: BTreeMap::new(),
            shared: None,
            started: 0,
            hooks,
            last: None,
            external_sequence: 0,
            is_silent: true,
            killed: BTreeMap::new(),
        }
    }

    /// Takes up another definition. Nothing happens where it says the same.
    pub(super) fn redefine(&mut self, pool: Arc<Pool>, effects: &Effects<'_>) {
        if self.pool.is_same_as(&pool) {
            self.pool = pool;
            return;
        }
        if self.pool.hooks != pool.hooks {
            self.hooks = pool.hooks.iter().cloned().map(Watch::new).collect();
        }
        let is_run_the_same = self.pool.application == pool.application && self.pool.places == pool.places;
        let before = self.pool.clone();
        self.pool = pool;
        let rules = rules_of(&self.pool);
        match (self.machine.take(), rules) {
            (Some(machine), Some(_)) if is_run_the_same => self.machine = Some(machine),
            (Some(mut machine), Some(rules)) => {
                let name = &self.pool.name;
                let mut actions = Vec::new();
                if before.account() == self.pool.account() {
                    log::info(format_args!("pool {name}: its settings have changed; processes are replaced"));
                    machine.replace(rules, effects.now, &mut actions);
                } else {
                    let (user, before) = (account(&self.pool), account(&before));
                    log::info(format_args!(
                        "pool {name}: it runs as {user} now; processes that run as {before} get no further requests, and \
                         end"
                    ));
                    machine.restart(rules, effects.now, &mut actions);
                }
                self.machine = Some(machine);
                self.carry_out(actions, effects);
            }
            // One that runs elsewhere now is another: `move_away`.
            (Some(machine), None) => self.machine = Some(machine),
            (None, Some(rules)) => {
                let mut machine = Machine::new(rules, self.started, effects.now);
                machine.follow(self.external_sequence);
                self.machine = Some(machine);
            }
            (None, None) => {}
        }
        self.publish(effects);
        self.advance(effects);
    }

    /// An operator wants new processes; whether they are run here.
    pub(super) fn replace(&mut self, effects: &Effects<'_>) -> bool {
        let Some(rules) = rules_of(&self.pool).filter(|_| self.machine.is_some()) else { return false };
        log::info(format_args!("pool {}: processes are replaced, as an operator has asked", self.pool.name));
        self.with_machine(effects, |machine, now, actions| machine.replace(rules, now, actions));
        true
    }

    /// Ends the processes once they are done.
    pub(super) fn stop(&mut self, effects: &Effects<'_>) {
        self.with_machine(effects, |machine, now, actions| machine.stop(now, actions));
    }

    /// Ends the processes at once.
    pub(super) fn stop_now(&mut self, effects: &Effects<'_>) {
        self.with_machine(effects, |machine, now, actions| machine.stop_now(now, actions));
    }

    /// It is wanted again before it has ended.
    ///
    /// `sequence` is that of the last update of the pool where another has told of it meanwhile.
    pub(super) fn resume(&mut self, pool: Arc<Pool>, sequence: Option<u64>, effects: &Effects<'_>) {
        self.is_silent = false;
        if let (Some(machine), Some(sequence)) = (&mut self.machine, sequence) {
            machine.follow(sequence);
        }
        self.with_machine(effects, |machine, now, actions| machine.resume(now, actions));
        self.redefine(pool, effects);
    }

    /// It runs elsewhere now: the processes are ended once they are done, and what tells of the pool from now on is returned.
    pub(super) fn move_away(&mut self, pool: Arc<Pool>, effects: &Effects<'_>) -> Running {
        // The workers are told of the new address at once, and of no moment without one.
        self.is_silent = true;
        self.stop(effects);
        let mut elsewhere = Running::silent(pool, 0, effects);
        elsewhere.external_sequence = self.sequence();
        elsewhere.is_silent = false;
        elsewhere.publish(effects);
        elsewhere
    }

    /// The number of the last update.
    pub(super) fn sequence(&self) -> u64 {
        self.machine.as_ref().map_or(self.external_sequence, Machine::sequence)
    }

    /// Whether it has processes of this server.
    pub(super) fn has_processes(&self) -> bool {
        self.machine.is_some()
    }

    /// All end: what was killed, and does not end within `patience`, is killed with its keeper. Whether all that is left was in
    /// vain; `left` names it.
    pub(super) fn give_up(&mut self, now: Duration, patience: Duration, left: &mut Vec<String>) -> bool {
        let mut is_vain = true;
        for (slot, child) in &self.children {
            match self.killed.get_mut(slot) {
                Some((_, Some(at))) if now >= *at + patience => {
                    left.push(format!("{} of pool {}", child.number(), self.pool.name));
                    continue;
                }
                Some((at, keeper @ None)) if now >= *at + patience => {
                    *keeper = Some(now);
                    log::error(format_args!(
                        "pool {}: process {} was killed and has not ended; it is left with what it has started: look for a \
                         file system that does not answer",
                        self.pool.name,
                        child.number()
                    ));
                    child.kill_keeper();
                }
                _ => {}
            }
            is_vain = false;
        }
        is_vain
    }

    /// Whether nothing of it runs any more, having been told to end.
    pub(super) fn has_ended(&self) -> bool {
        self.machine.as_ref().is_none_or(Machine::has_ended)
    }

    /// Does what is due.
    pub(super) fn advance(&mut self, effects: &Effects<'_>) {
        self.with_machine(effects, |machine, now, actions| machine.advance(now, actions));
        for slot in self.unready() {
            if self.is_ready(slot, effects) {
                self.with_machine(effects, |machine, now, actions| machine.ready(slot, now, actions));
            }
        }
    }

    /// Whether a process takes connections by now, and has had what it gets first.
    fn is_ready(&mut self, slot: Slot, effects: &Effects<'_>) -> bool {
        let must_accept = self.must_accept();
        let Some(child) = self.children.get_mut(&slot) else { return false };
        if let Some(warming_up) = &child.warming_up {
            if warming_up.is_done() {
                for complaint in warming_up.complaints() {
                    log::warn(format_args!("pool {} [{}]: {complaint}", self.pool.name, child.number()));
                }
            }
            return warming_up.is_done();
        }
        if !child.answers(must_accept) {
            return false;
        }
        if let PoolAddress::Unix(path) = child.way.address() {
            effects.folder.give(path);
        }
        let Some(warm_up) = warm_up_of(&child.pool) else { return true };
        match WarmingUp::begin(warm_up.clone(), child.way.address().clone(), effects.waker.clone()) {
            Ok(warming_up) => {
                child.warming_up = Some(warming_up);
                if let Some(machine) = &mut self.machine {
                    machine.opened(slot, effects.now);
                }
                false
            }
            Err(error) => {
                log::warn(format_args!("pool {}: `warm-up` cannot be done: {error}", self.pool.name));
                true
            }
        }
    }

    fn must_accept(&self) -> bool {
        self.machine.as_ref().is_some_and(Machine::must_accept)
    }

    /// Processes that are asked whether they take requests yet.
    fn unready(&self) -> Vec<Slot> {
        self.machine.as_ref().map(|machine| machine.unready().collect()).unwrap_or_default()
    }

    /// Whether it has to be looked at often.
    pub(super) fn is_restless(&self) -> bool {
        let is_asked =
            self.last.as_ref().is_some_and(|last| last.demand.waiting > 0 || last.demand.in_use > 0);
        is_asked || !self.unready().is_empty() || self.machine.as_ref().is_some_and(Machine::is_moving)
    }

    /// When it has to be looked at, at the latest.
    pub(super) fn next(&self) -> Option<Duration> {
        self.machine.as_ref().and_then(Machine::next)
    }

    /// Takes in what the workers want.
    pub(super) fn demand(&mut self, demand: PoolDemand, effects: &Effects<'_>) {
        let (waiting, in_use) = (demand.demand.waiting, demand.demand.in_use);
        if !self.hooks.is_empty() {
            let subject = Subject { kind: "pool", name: self.pool.name.clone() };
            for hook in &mut self.hooks {
                let value = if hook.measure() == Measure::Queue { waiting } else { in_use };
                hook.look(&subject, value as u64, effects.now);
            }
        }
        let usage: Vec<Usage> = demand
            .members
            .iter()
            .filter_map(|member| {
                let slot = self.children.iter().find(|(_, child)| *child.way.address() == member.address);
                let (slot, _) = slot?;
                Some(Usage {
                    slot: *slot,
                    in_use: member.in_use,
                    requests: member.requests,
                    answered: member.answered,
                    hung: member.hung,
                })
            })
            .collect();
        self.with_machine(effects, |machine, now, actions| {
            machine.demand(demand.sequence, &demand.demand, &usage, now, actions);
        });
        self.last = Some(demand);
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, slot: Slot, effects: &Effects<'_>) {
        let Some(child) = self.children.get_mut(&slot) else { return };
        let name = format_args!("pool {} [{}]", self.pool.name, child.number()).to_string();
        // Nothing is left of what it has started, so nobody writes on.
        log::application(&self.pool.name, &name, &child.read_rest());
        effects.guard.ended(child.keeper());
        let Some(how) = child.reap() else { return };
        let is_awaited = matches!(&child.way, child::Way::Socket(open) if open.has_waiting());
        self.children.remove(&slot);
        self.killed.remove(&slot);
        self.with_machine(effects, |machine, now, actions| {
            machine.exited(slot, &how, is_awaited, now, actions);
        });
    }

    /// A process has written something.
    pub(super) fn written(&mut self, slot: Slot) {
        let Some(child) = self.children.get_mut(&slot) else { return };
        let about = format_args!("pool {} [{}]", self.pool.name, child.number()).to_string();
        log::application(&self.pool.name, &about, &child.read());
    }

    fn with_machine(
        &mut self,
        effects: &Effects<'_>,
        f: impl FnOnce(&mut Machine, Duration, &mut Vec<Action>),
    ) {
        let Some(machine) = &mut self.machine else { return };
        let mut actions = Vec::new();
        f(machine, effects.now, &mut actions);
        self.carry_out(actions, effects);
    }

    fn carry_out(&mut self, actions: Vec<Action>, effects: &Effects<'_>) {
        let mut actions = std::collections::VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Start(slot) => {
                    let outcome = self.start(slot, effects);
                    let Some(machine) = &mut self.machine else { return };
                    let mut more = Vec::new();
                    match outcome {
                        Ok(true) => machine.ready(slot, effects.now, &mut more),
                        Ok(false) => {}
                        Err(StartError::NoRoom) => {
                            machine.postponed(slot, &effects.no_room(), effects.now, &mut more);
                        }
                        Err(StartError::Failed(problem)) => {
                            machine.exited(slot, &problem, false, effects.now, &mut more);
                        }
                    }
                    actions.extend(more);
                }
                Action::Terminate(slot) => {
                    if let Some(child) = self.children.get(&slot) {
                        child.terminate();
                    }
                }
                Action::Kill(slot) => {
                    if let Some(child) = self.children.get(&slot) {
                        child.kill();
                        self.killed.insert(slot, (effects.now, None));
                    }
                }
                Action::Publish => self.publish(effects),
                Action::Say(what) => log::warn(format_args!("pool {}: {what}", self.pool.name)),
            }
        }
    }

    /// Starts a process; whether it takes requests at once.
    fn start(&mut self, slot: Slot, effects: &Effects<'_>) -> Result<bool, StartError> {
        let pool = self.pool.clone();
        let Application::Processes(processes) = &pool.application else {
            return Err(StartError::Failed("is not ours to start".into()));
        };
        if !effects.has_room() {
            return Err(StartError::NoRoom);
        }
        let (sockets, shared) = (&mut self.sockets, &mut self.shared);
        let mut socket = || slot_socket(&pool, processes, slot, sockets, shared, effects.folder);
        let number = self.started;
        self.started += 1;
        let start = Start {
            pool: &pool,
            processes,
            slot,
            number,
            folder: effects.folder,
            sweeper: effects.sweeper,
            patience: effects.guard.known_patience(),
            socket: &mut socket,
        };
        let child = child::start(start)?;
        effects.guard.started(child.keeper());
        let is_warmed_up = warm_up_of(&pool).is_some();
        if is_warmed_up {
            effects.waker.wake(); // it may begin at once
        }
        let is_ready = matches!(child.way, child::Way::Socket(_)) && !is_warmed_up && !self.must_accept();
        self.children.insert(slot, child);
        Ok(is_ready)
    }

    fn publish(&mut self, effects: &Effects<'_>) {
        if self.is_silent {
            return;
        }
        let mut members: Vec<PoolMember> = Vec::new();
        let unattended = self.unattended();
        let (sequence, phase, retry_after) = match (&self.machine, &self.pool.application) {
            (Some(machine), _) => {
                for child in machine.serving().filter_map(|slot| self.children.get(&slot)) {
                    let address = child.way.address().clone();
                    let places = places_of(&child.pool);
                    match members.iter_mut().find(|member| member.address == address) {
                        Some(member) => {
                            (member.places, member.whole) = (member.places + places, member.whole + places)
                        }
                        None => members.push(PoolMember { address, places, whole: places }),
                    }
                }
                (machine.sequence(), machine.phase(), machine.retry_after(effects.now))
            }
            (None, Application::External(address)) => {
                let address = pool_address(address);
                let places = places_of(&self.pool);
                members.push(PoolMember { address, places, whole: places });
                self.external_sequence += 1;
                (self.external_sequence, PoolPhase::Up, None)
            }
            (None, Application::Processes(_)) => return,
        };
        (effects.publish)(PoolUpdate {
            name: self.pool.name.clone(),
            sequence,
            division: 0,
            is_supervised: self.machine.is_some(),
            most_places: self.machine.as_ref().map_or(0, Machine::most_places),
            ends_hung: self.machine.as_ref().is_some_and(Machine::ends_hung),
            members,
            unattended,
            queue_length: self.pool.queue.length as usize,
            queue_age: self.pool.queue.age,
            phase,
            retry_after,
        });
    }

    /// The addresses of sockets that no process holds. The workers take what waits there elsewhere, so it is not for a
    /// process that is started later.
    fn unattended(&self) -> Vec<PoolAddress> {
        let is_held =
            |open: &Listening| self.children.values().any(|child| *child.way.address() == open.address);
        let sockets = self.sockets.values().chain(&self.shared).filter(|open| !is_held(open));
        sockets.map(|open| open.leave()).collect()
    }

    /// Who tells of PHP's cache of compiled scripts.
    pub(super) fn opcache(&self) -> Option<Opcache> {
        let mut serving = self.machine.as_ref()?.serving();
        serving.find_map(|slot| self.children.get(&slot)?.opcache.clone())
    }

    /// How it stands, but for what its processes would have to be asked.
    pub(super) fn status(&self, now: Duration) -> PoolStatus {
        let mut status = PoolStatus {
            name: self.pool.name.clone(),
            phase: PoolPhase::Up,
            processes: Vec::new(),
            restarts: 0,
            last_failure: None,
            retry_after: None,
            demand: self.last.as_ref().map(|last| last.demand).unwrap_or_default(),
            opcache: None,
        };
        let Some(machine) = &self.machine else { return status };
        status.phase = machine.phase();
        status.restarts = machine.restarts();
        status.last_failure = machine.last_failure().map(str::to_owned);
        status.retry_after = machine.retry_after(now);
        status.processes = machine
            .shown()
            .filter_map(|shown| {
                let child = self.children.get(&shown.slot)?;
                Some(ProcessStatus {
                    pid: child.application(),
                    state: match &child.warming_up {
                        Some(warming_up) if !warming_up.is_done() => "warming up",
                        _ => shown.stage,
                    }
                    .to_owned(),
                    age: now.saturating_sub(shown.started),
                    requests: shown.requests,
                    address: child.way.address().clone(),
                })
            })
            .collect();
        status
    }
}

/// The socket that a process of a slot is passed: the slot's, or the one that all share.
fn slot_socket(
    pool: &Pool,
    processes: &Processes,
    slot: Slot,
    sockets: &mut BTreeMap<Slot, Arc<Listening>>,
    shared: &mut Option<Arc<Listening>>,
    folder: &Folder,
) -> io::Result<Arc<Listening>> {
    let Some(address) = &processes.socket.address else {
        return match sockets.entry(slot) {
            std::collections::btree_map::Entry::Occupied(open) => open.get().attend(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let path = folder.path(&pool.name, slot, ".sock");
                let open = Listening::open(PoolAddress::Unix(path.clone()), BACKLOG)?;
                folder.give(&path);
                Ok(free.insert(Arc::new(open)).clone())
            }
        };
    };
    let address = pool_address(address);
    match shared {
        Some(open) if open.address == address => open.attend(),
        _ => {
            let open = Arc::new(Listening::open(address.clone(), BACKLOG).map_err(|error| {
                if descriptors::is_exhaustion(&error) {
                    return error;
                }
                io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
            })?);
            if let PoolAddress::Unix(path) = &address {
                folder.give(path);
            }
            Ok(shared.insert(open).clone())
        }
    }
}
