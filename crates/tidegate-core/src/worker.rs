//! One worker: poller, connections, timers and ready queue on one thread, sharing nothing on the hot path.
//!
//! The binary starts workers and talks to them through a [`Handle`]; what they serve comes from a
//! [`Registry`], made on the worker's own thread, so that handlers may hold `Rc` and `RefCell`. `accept` lets
//! connections in or turns them away, `reclaim` closes those that go first when there is too much.

mod accept;
mod in_flight;
mod reclaim;

use crate::admission::Shared;
use crate::conn::{Connection, Next};
use crate::context::{Ctx, MAPPED, head_limits, samples};
use crate::engine::Engine;
use crate::listen::Listener;
use crate::log::{self, AccessBuffers, Writer};
pub use crate::registry::{LogSet, MakeRegistry, Registry};
use crate::spare;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_config::settings::{ListenAddress, Settings};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::poller::EVENTS;
use tidegate_io::runtime::Runtime;
use tidegate_io::wheel::TICK;
use tidegate_io::{Key, Kind, Poller, Ready, Remote, Slab};
use tidegate_stats::{Flush, ListenerCounts, ListenerNumber, Worker as Stats};

/// What a poller can wait for at least.
const TICK_OF_POLL: Duration = Duration::from_millis(1);
/// Access lines wait this long at most.
const LOG_DELAY: Duration = Duration::from_secs(1);
/// What nobody uses is given back to the system so much later.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// What a worker may be told.
pub enum Command {
    /// Get ready to take up settings and the listeners that go with them, in their order; the reply says
    /// whether that can be done. Nothing changes yet, and the next `Prepare` takes the place of this one. Without listeners the
    /// worker accepts nobody from then on: it drains next, and answers by these settings what still comes.
    Prepare(Arc<Settings>, Option<Vec<Listener>>, Sender<io::Result<()>>),
    /// Take up what was prepared. Connections stay. Nothing happens where nothing was prepared.
    Commit(Sender<io::Result<()>>),
    /// Forget what was prepared.
    Discard(Sender<io::Result<()>>),
    /// Accept from these sockets from now on, with the settings in force: for a worker that was started
    /// without any.
    Listen(Vec<Listener>, Sender<io::Result<()>>),
    /// Accept no more, finish what is under way, and end when nothing is open.
    Drain {
        /// Whether connections between requests are closed at once. Otherwise their next answer says
        /// `Connection: close`.
        close_idle: bool,
    },
    /// End now.
    Stop,
    /// See [`Registry::ask`].
    Ask(String, Sender<String>),
}

/// The way to a running worker.
pub struct Handle {
    commands: Sender<Command>,
    remote: Arc<Remote>,
    thread: Option<JoinHandle<()>>,
    /// Counted by the worker, read by anyone.
    pub stats: Arc<Stats>,
}

impl Handle {
    /// Sends a command; a worker that has ended ignores it.
    pub fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.remote.notify();
        }
    }

    /// Has it look at what it keeps.
    pub fn wake(&self) {
        self.remote.notify();
    }

    /// A way to send commands that can be given away.
    pub fn asker(&self) -> Asker {
        Asker { commands: self.commands.clone(), remote: self.remote.clone() }
    }

    /// Whether its thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asks a worker questions.
#[derive(Clone)]
pub struct Asker {
    commands: Sender<Command>,
    remote: Arc<Remote>,
}

impl Asker {
    /// Asks; the answer comes through the receiver, or never if the worker has ended.
    pub fn ask(&self, question: &str) -> Receiver<String> {
        let (sender, answer) = channel();
        if self.commands.send(Command::Ask(question.into(), sender)).is_ok() {
            self.remote.notify();
        }
        answer
    }
}

/// Called on a worker's thread when that ends, also by a panic.
pub type OnEnd = Box<dyn FnOnce() + Send>;

struct CallOnDrop(Option<OnEnd>);

impl Drop for CallOnDrop {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// Starts a worker and waits until it serves. It shares its limits with those that are given the same `shared`. `on_end`
/// is called when it has ended, whyever.
///
/// # Errors
/// The system has no thread or no descriptor left for it, its sockets cannot be watched, or the registry can
/// make no engine out of the settings.
pub fn start(
    shared: Arc<Shared>,
    number: usize,
    settings: Arc<Settings>,
    listeners: Vec<Listener>,
    make: MakeRegistry,
    writer: Arc<Writer>,
    on_end: OnEnd,
) -> io::Result<Handle> {
    let stats = Arc::new(Stats::default());
    let (commands, inbox) = channel();
    let (started, outcome) = channel();
    let counted = stats.clone();
    let thread = std::thread::Builder::new().name(format!("tidegate-{number}")).spawn(move || {
        let _ended = CallOnDrop(Some(on_end));
        match Worker::new(shared, number, inbox, &make, counted, writer, &settings, listeners) {
            Err(error) => drop(started.send(Err(error))),
            Ok(mut worker) => {
                let _ = started.send(Ok(worker.runtime.remote()));
                if let Err(error) = worker.run() {
                    log::error(format_args!("worker {number} has ended: {error}"));
                }
            }
        }
    })?;
    let remote = outcome.recv().unwrap_or_else(|_| Err(io::Error::other("the worker ended at once")))?;
    Ok(Handle { commands, remote, thread: Some(thread), stats })
}

struct Worker {
    number: usize,
    shared: Arc<Shared>,
    poller: Poller,
    runtime: Rc<Runtime>,
    registry: Box<dyn Registry>,
    writer: Arc<Writer>,
    inbox: Receiver<Command>,
    /// In the order of the settings; none where it is about to drain.
    listeners: Vec<OpenListener>,
    connections: Slab<Connection>,
    cx: Ctx,
    again: Vec<Key>,
    /// Settings that wait for their `Commit`.
    prepared: Option<(Arc<Settings>, Engine, LogSet, Listening)>,
    /// Accepting rests until then, monotonic nanoseconds.
    accept_after: u64,
    /// No descriptor is left since then, monotonic nanoseconds; 0 where there is one.
    exhausted_since: u64,
    /// When descriptors had run out, as far as this worker has done something about it.
    spared_at: u64,
    /// When something open has lacked one, as far as this worker has done something about it.
    lacked_at: u64,
    /// When it is tried again to free some.
    free_after: u64,
    /// Stuck connections are not looked through again before, monotonic nanoseconds.
    relieve_after: u64,
    /// Who came a moment ago.
    newcomers: reclaim::Newcomers,
    began: u64,
    /// The present turn began, monotonic nanoseconds.
    now: u64,
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.shared.placement.close(self.number)); // whyever it ends
        self.runtime.end();
    }
}

struct OpenListener {
    listener: Listener,
    key: Key,
    is_ready: bool,
    counts: Arc<ListenerCounts>,
}

/// What a worker listens on by settings that it has prepared.
enum Listening {
    /// These, in the order of the settings.
    On(Vec<Listener>),
    /// Nothing any more. Those of the settings that it has listened on have these numbers.
    NoMore(Vec<Option<ListenerNumber>>),
}

fn numbers_of(listeners: &[OpenListener]) -> Vec<Option<ListenerNumber>> {
    listeners.iter().map(|open| Some(open.counts.number())).collect()
}

impl Worker {
    #[expect(clippy::too_many_arguments, reason = "what a worker is made of")]
    fn new(
        shared: Arc<Shared>,
        number: usize,
        inbox: Receiver<Command>,
        make: &MakeRegistry,
        stats: Arc<Stats>,
        writer: Arc<Writer>,
        settings: &Arc<Settings>,
        listeners: Vec<Listener>,
    ) -> io::Result<Worker> {
        let poller = Poller::new()?;
        let runtime = Runtime::install(poller.registry()?)?;
        let mut registry = make(stats.clone());
        let mut logs = LogSet::new(writer.clone());
        let engine = registry.engine(settings, &mut logs)?;
        registry.in_force(settings);
        let log = AccessBuffers::new(writer.clone()).naming(registry.client_names());
        let cx = Ctx::new(number, engine, stats, log, shared.clone());
        let now = monotonic_ns();
        spare::keep();
        let mut worker = Worker {
            number,
            shared,
            poller,
            runtime,
            registry,
            writer,
            inbox,
            listeners: Vec::new(),
            connections: Slab::with_capacity(MAPPED / Slab::<Connection>::SLOT_SIZE),
            cx,
            again: Vec::new(),
            prepared: None,
            accept_after: 0,
            exhausted_since: 0,
            spared_at: 0,
            lacked_at: 0,
            free_after: 0,
            relieve_after: 0,
            newcomers: reclaim::Newcomers::default(),
            began: now,
            now,
        };
        let listeners = worker.listen(listeners)?;
        worker.take_up(logs, (numbers_of(&listeners), listeners), None);
        worker.cx.admission.join(&worker.runtime.remote());
        Ok(worker)
    }

    fn prepare(&mut self, settings: Arc<Settings>, listeners: Option<Vec<Listener>>) -> io::Result<()> {
        let listening = match listeners {
            Some(listeners) => Listening::On(listeners),
            None => {
                // Those who take over listen already; making an engine may take its time.
                let number_of = |address: &ListenAddress| {
                    let open = self.listeners.iter().find(|open| open.listener.address == *address)?;
                    Some(open.counts.number())
                };
                let numbers =
                    settings.listeners.iter().map(|listener| number_of(&listener.address)).collect();
                self.take_the_last();
                self.close_listeners();
                Listening::NoMore(numbers)
            }
        };
        let mut logs = LogSet::new(self.writer.clone());
        let engine = self.registry.engine(&settings, &mut logs)?;
        self.prepared = Some((settings, engine, logs, listening));
        Ok(())
    }

    fn commit(&mut self) -> io::Result<()> {
        let Some((settings, engine, logs, listening)) = self.prepared.take() else { return Ok(()) };
        let (numbers, listeners) = match listening {
            Listening::On(listeners) => {
                let listeners = self.listen(listeners)?; // what can fail comes first, and changes nothing where it does
                (numbers_of(&listeners), listeners)
            }
            Listening::NoMore(numbers) => (numbers, Vec::new()),
        };
        self.take_the_last();
        // What the routes before hold, such as connections to applications, is there to be inherited until then.
        let before = std::mem::replace(&mut self.cx.engine, Rc::new(engine));
        self.registry.in_force(&settings);
        self.take_up(logs, (numbers, listeners), Some(before));
        Ok(())
    }

    /// Has the poller watch these beside those that are there. Where that fails it watches none of them.
    fn listen(&self, listeners: Vec<Listener>) -> io::Result<Vec<OpenListener>> {
        let mut keys = Slab::default();
        let mut opened = Vec::with_capacity(listeners.len());
        for listener in listeners {
            let key = keys.insert(());
            let counts = self.cx.stats.latency.of(&listener.address.to_string());
            let counts = counts.ok_or_else(|| io::Error::other("too many addresses are in use"))?;
            opened.push(OpenListener { listener, key, is_ready: true, counts });
        }
        let registry = self.runtime.registry();
        for (at, new) in opened.iter().enumerate() {
            if let Err(error) = registry.add_readable(new.listener.fd.as_fd(), Kind::Listener, new.key) {
                let added = opened.iter().take(at);
                added.for_each(|added| drop(registry.remove(added.listener.fd.as_fd())));
                return Err(error);
            }
        }
        Ok(opened)
    }

    fn close_listeners(&mut self) {
        for old in self.listeners.drain(..) {
            let _ = self.runtime.registry().remove(old.listener.fd.as_fd()); // closing it does the same
            old.counts.close();
        }
    }

    /// What goes with a new engine: listeners, and the numbers that those of the settings have. Nothing here fails: the old listeners
    /// are gone after it.
    fn take_up(
        &mut self,
        logs: LogSet,
        (numbers, listeners): (Vec<Option<ListenerNumber>>, Vec<OpenListener>),
        before: Option<Rc<Engine>>,
    ) {
        // Sockets of addresses that stay are copies of the same one: the old copies close, no connection
        // that waits in them is lost.
        self.close_listeners();
        for (new, settings) in listeners.iter().zip(&self.cx.engine.settings.listeners) {
            new.counts.open(settings.backlog.into());
        }
        self.cx.engine.number(&numbers, before.as_deref());
        drop(before);
        self.cx.listeners = self.cx.stats.latency.all();
        self.listeners = listeners;
        if !self.listeners.is_empty() {
            let settings = self.cx.engine.settings.clone();
            self.shared.placement.open(self.number, self.runtime.remote(), settings);
            self.mind_the_crowd();
        }
        self.cx.engine.begin();
        self.cx.admission.adopt(&self.cx.engine.settings, self.number);
        self.cx.admission.on_empty(None);
        self.bound_unsent();
        for (sink, log) in logs.opened {
            self.cx.log.add(sink, &log);
        }
        self.cx.head_limits = head_limits(&self.cx.engine.settings);
        self.cx.samples = samples(&self.cx.engine.settings, &self.cx.stats);
    }

    fn run(&mut self) -> io::Result<()> {
        let (mut ready, mut expired) = (Vec::<Ready>::new(), Vec::new());
        let (mut woken, mut granted) = (Vec::new(), Vec::new());
        self.cx.tick();
        loop {
            ready.clear();
            let timeout = self.timeout();
            self.poller.wait(timeout, &mut ready)?;
            self.begin_turn(ready.len() >= EVENTS, &mut expired);
            // What tells of changes comes first: a file that changed before a request was sent is seen to
            // have changed by that request.
            let mut has_commands = false;
            self.spare_descriptors();
            for event in &ready {
                match event.kind() {
                    Kind::Io => self.runtime.on_io(event),
                    Kind::Remote => {
                        self.runtime.on_remote();
                        self.cx.admission.on_wake();
                        has_commands = true;
                    }
                    Kind::Connection | Kind::Listener => {}
                }
            }
            self.runtime.run_tasks();
            self.run_woken(&mut woken, &mut granted);
            for event in &ready {
                match event.kind() {
                    Kind::Connection => self.on_connection(event),
                    Kind::Listener => {
                        for open in self.listeners.iter_mut().filter(|open| open.key == event.key()) {
                            open.is_ready = true;
                        }
                    }
                    Kind::Io | Kind::Remote => {}
                }
            }
            self.accept();
            if has_commands {
                self.take_in();
            }
            // One pass: what they queue in turn runs after the next poll.
            for key in std::mem::take(&mut self.again) {
                self.run_again(key);
            }
            for index in expired.drain(..) {
                // A deadline that was set anew in this turn has not passed.
                if let Some(key) = self.connections.key_of(index)
                    && !self.cx.wheel.is_armed(index)
                {
                    self.on_timer(key);
                }
            }
            self.relieve();
            if has_commands && self.obey() {
                return Ok(());
            }
            if self.cx.draining && self.connections.is_empty() && !self.runtime.has_awaited() {
                self.settle();
                return Ok(());
            }
        }
    }

    /// No connection is left: neither is a request.
    fn settle(&mut self) {
        let counted = || self.cx.stats.snapshot();
        debug_assert_eq!(
            counted().requests_under_way(),
            0,
            "invariant: each is counted once, {:?}",
            counted()
        );
        self.cx.log.flush();
    }

    /// One reading of the clock serves the whole turn. The wheel moves first, so that what is armed in the
    /// turn counts from now, however long the wait was.
    #[inline]
    fn begin_turn(&mut self, is_full: bool, expired: &mut Vec<u32>) {
        self.now = monotonic_ns();
        let second = self.cx.now;
        self.cx.tick();
        if self.cx.now != second {
            self.cx.admission.on_second();
            self.newcomers.on_second(self.cx.turn);
        }
        self.cx.turn = self.cx.turn.wrapping_add(1);
        self.runtime.expire(self.now);
        let tick = (self.now - self.began) / TICK.as_nanos() as u64;
        self.cx.wheel.advance(tick as u32, expired);
        if self.cx.admission.begin_turn(self.now, is_full) {
            self.runtime.remote().notify();
        }
    }

    /// Connections that something has come for from elsewhere, from an application most often. They go before
    /// whatever clients want: each may free a place, and who has waited for that place goes next, before the answer
    /// that has freed it is written, so that no application stands idle while that is done, or while a crowd is told
    /// that it cannot be served. What those free in turn is for the next turn.
    fn run_woken(&mut self, woken: &mut Vec<Key>, granted: &mut Vec<Key>) {
        self.runtime.take_ready(woken);
        for key in woken.drain(..) {
            self.drive(key);
            self.runtime.take_ready(granted);
            if granted.is_empty() {
                continue;
            }
            for key in granted.drain(..) {
                self.drive(key);
            }
            if let Some(at) = self.again.iter().rposition(|again| *again == key) {
                self.again.swap_remove(at);
                self.run_again(key);
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let may_accept = self.listeners.iter().any(|open| open.is_ready);
        if !self.again.is_empty() || self.runtime.has_ready() || (may_accept && self.accept_after == 0) {
            return Some(Duration::ZERO);
        }
        let timers = self.cx.wheel.next().map(|ticks| TICK * ticks);
        let log = self.cx.log.is_waiting().then_some(LOG_DELAY);
        let pause = Duration::from_nanos(self.accept_after.saturating_sub(self.now)).max(TICK_OF_POLL);
        let accept = may_accept.then_some(pause);
        // Rounded up to the millisecond that epoll counts in: a deadline is never early.
        let deadline = self
            .runtime
            .next_deadline()
            .map(|at| Duration::from_millis(at.saturating_sub(monotonic_ns()).div_ceil(1_000_000)));
        let reclaim = self.wants_reclaim().then_some(reclaim::PAUSE);
        let trim = self.cx.admission.keeps_what_is_free().then_some(TRIM_DELAY);
        timers.into_iter().chain(reclaim).chain(trim).chain(log).chain(accept).chain(deadline).min()
    }

    #[inline]
    fn on_connection(&mut self, event: &Ready) {
        let Some(connection) = self.connections.get_mut(event.key()) else { return };
        if event.dead {
            return self.close(event.key());
        }
        let is_readable = event.readable || event.read_closed;
        connection.on_edge(event.readable, event.read_closed);
        if !connection.is_queued && connection.wants(is_readable) {
            self.drive(event.key());
        }
    }

    #[inline]
    fn drive(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            let next = connection.drive(key, &mut self.cx);
            self.follow(key, next);
        }
    }

    fn run_again(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.is_queued = false;
            self.drive(key);
        }
    }

    fn on_timer(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            let next = connection.on_timer(key, &mut self.cx);
            self.follow(key, next);
        }
    }

    #[inline]
    fn follow(&mut self, key: Key, next: Next) {
        debug_assert!(self.cx.batch_memory.is_home(), "invariant: output belongs to one connection alone");
        match next {
            Next::Wait => {}
            // Once, however many events come: a turn for each of them would be taken from the others.
            Next::Again => {
                let connection = self.connections.get_mut(key);
                if connection.is_some_and(|connection| !std::mem::replace(&mut connection.is_queued, true)) {
                    self.again.push(key);
                }
            }
            Next::Close => self.close(key),
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(mut connection) = self.connections.remove(key) {
            connection.on_close(key, &mut self.cx);
            self.cx.admission.leave(connection.entry(), connection.admitted());
            self.mind_the_crowd();
            self.cx.stats.connections.sub(1);
            if let Some(listener) = self.cx.listener(connection.listener()) {
                listener.connections.sub(1);
            }
            self.cx.stats.connections_closed.add(1);
            self.accept_after = 0; // a descriptor is free again
            spare::keep();
        }
    }

    /// Carries out what was asked; whether to end.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Prepare(settings, listeners, reply) => {
                    self.prepared = None;
                    let _ = reply.send(self.prepare(settings, listeners));
                }
                Command::Commit(reply) => {
                    let _ = reply.send(self.commit());
                }
                Command::Discard(reply) => {
                    self.prepared = None;
                    let _ = reply.send(Ok(()));
                }
                Command::Listen(listeners, reply) => {
                    let opened = self.listen(listeners);
                    let logs = LogSet::new(self.writer.clone());
                    let _ = reply
                        .send(opened.map(|opened| self.take_up(logs, (numbers_of(&opened), opened), None)));
                }
                Command::Ask(question, reply) => {
                    let own = self.answer(&question);
                    let _ = reply.send(own.unwrap_or_else(|| self.registry.ask(&question)));
                }
                Command::Drain { close_idle } => self.drain(close_idle),
                Command::Stop => {
                    // What was under way has its line, too.
                    let keys: Vec<Key> = self.connections.keys().collect();
                    for key in keys {
                        self.close(key);
                    }
                    self.settle();
                    return true;
                }
            }
        }
        false
    }

    fn drain(&mut self, close_idle: bool) {
        self.cx.draining = true;
        self.registry.draining();
        self.cx.closes_idle = close_idle;
        if close_idle {
            // Those who wait in the queues have been promised an answer.
            for open in &mut self.listeners {
                open.is_ready = true;
            }
            self.accept();
        }
        self.take_the_last();
        self.close_listeners();
        let keys: Vec<Key> = self.connections.keys().collect();
        for key in keys {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if close_idle && connection.is_between_requests() {
                if connection.is_delivered() {
                    self.flush(key, Flush::Drain);
                } else {
                    connection.end_keep_alive(); // its last answer is with the kernel alone
                    self.drive(key);
                }
            } else if connection.is_multiplexed() {
                self.drive(key); // it has to be told, however long its streams go on
            }
        }
    }
}
