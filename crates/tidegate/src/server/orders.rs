//! What a server process does with what it is told: settings in two steps, logs, and its end.

use super::view::StatusView;
use super::{Event, Members};
use crate::descriptors;
use crate::link::{Extent, Link, ToMaster, ToServer};
use crate::master::logs::use_pool_logs;
use crate::registry::{Registry, Stores};
use crate::server::privileges;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_config::settings::{ListenAddress, LogTarget};
use tidegate_core::admission::Shared;
use tidegate_core::listen::Listener;
use tidegate_core::log::{self, Writer};
use tidegate_core::rate::TablePlace;
use tidegate_core::series;
use tidegate_core::tls::TlsFiles;
use tidegate_core::worker::{self, Command, Handle};
use tidegate_io::descriptors::{Filled, Lease, Reserve, are_lacking, is_exhaustion};
use tidegate_io::off_limits;
use tidegate_modules::gateway::spill::Spill;

/// How often it is tried to fill the reserve of descriptors.
const RESERVE_PAUSE: Duration = Duration::from_secs(1);
/// How long a worker may take to do what it is told.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a worker that was told to end now may take.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// How often a process that is about to end tries to write lines that a disk has not taken.
const LOG_PAUSE: Duration = Duration::from_millis(100);
/// How long the process waits for its last words to be read.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long disks of caches have to take what is to be kept; without it, the next process reads what it finds.
const SAVE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a request has that has come when a drain was about to end.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The process, but for its workers' threads.
pub(super) struct Server {
    link: Arc<Link>,
    writer: Arc<Writer>,
    members: Arc<Members>,
    stores: Stores,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// In force.
    settings: Option<Arc<Settings>>,
    /// Prepared, not yet in force; until they are they still need what the reserve has let go of.
    next: Option<(Arc<Settings>, Option<Lease>)>,
    /// What no root leads to, under the settings in force and under those that were prepared.
    off_limits: Vec<PathBuf>,
    next_off_limits: Vec<PathBuf>,
    workers: Vec<Handle>,
    /// What each worker will listen on when the first settings are in force.
    waiting: Vec<Vec<Listener>>,
    ended: usize,
    is_leaving: bool,
    /// Said once there is a log to say it in.
    warning: Option<String>,
    /// Something that the master has said cannot be read: what comes next may count on it.
    unreadable: Option<String>,
    /// For what the master sends.
    reserve: Arc<Reserve>,
    is_reserve_short: bool,
    /// What access asks of files has come without its descriptors, and comes once more: why.
    lacking: Option<String>,
    /// Those that wait for that.
    marks: Vec<u64>,
    /// The master has told it to end now.
    is_stopped: bool,
    /// The settings that it was to end with could not be prepared.
    is_behind: bool,
}

/// How the process ends.
enum End {
    Drain { close_idle: bool, is_orphan: bool },
    Now,
}

/// Where the tables of limits lie, in so many memories.
type Tables<'a> = (&'a [TablePlace], usize);

impl Server {
    pub(super) fn new(
        link: Arc<Link>,
        writer: Arc<Writer>,
        members: Arc<Members>,
        stores: Stores,
        (sender, events): (Sender<Event>, Receiver<Event>),
        (reserve, warning): (Arc<Reserve>, Option<String>),
    ) -> Server {
        off_limits::tell_with(|root| {
            log::error(format_args!(
                "the root {} leads to what is kept from applications and clients now, and is not followed there: whoever did \
                 this is of this server's user, as its applications are",
                root.display()
            ));
        });
        Server {
            link,
            writer,
            members,
            stores,
            sender,
            events,
            settings: None,
            next: None,
            off_limits: Vec::new(),
            next_off_limits: Vec::new(),
            workers: Vec::new(),
            waiting: Vec::new(),
            ended: 0,
            is_leaving: false,
            warning,
            unreadable: None,
            reserve,
            is_reserve_short: false,
            lacking: None,
            marks: Vec::new(),
            is_stopped: false,
            is_behind: false,
        }
    }

    /// Serves until told to end.
    pub(super) fn run(mut self) {
        let end = loop {
            match self.next_event() {
                Some(Event::Said(order, descriptors, lease)) => {
                    if let Some(end) = self.obey(order, descriptors, lease) {
                        break end;
                    }
                    self.fill_reserve();
                }
                Some(Event::WorkerEnded(number)) => {
                    self.ended += 1;
                    log::error(format_args!(
                        "worker {number} has ended by mistake: another process takes over"
                    ));
                    self.leave();
                }
                Some(Event::Answers(mount)) => {
                    log::info(format_args!(
                        "the file system at {} answers again: another process serves what lies there",
                        mount.display()
                    ));
                    self.leave();
                }
                Some(Event::Terminate) => self.leave(),
                Some(Event::Orphaned) | None => {
                    break End::Drain { close_idle: true, is_orphan: true };
                }
            }
        };
        self.end(end);
    }

    /// What happens next; `None`: nothing any more. While the reserve is not full those who keep descriptors in case somebody asks
    /// are made to give them up.
    fn next_event(&mut self) -> Option<Event> {
        while self.is_reserve_short {
            match self.events.recv_timeout(RESERVE_PAUSE) {
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.fill_reserve();
            if self.is_reserve_short {
                are_lacking();
                self.workers.iter().for_each(Handle::wake);
            }
        }
        self.events.recv().ok()
    }

    fn fill_reserve(&mut self) {
        self.is_reserve_short = self.reserve.fill() == Filled::Short;
    }

    fn tell(&self, message: &ToMaster) {
        self.link.send(message, Vec::new());
    }

    /// The master puts another process in this one's place before it tells this one to drain: nobody who
    /// connects meanwhile has to wait.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.tell(&ToMaster::Leaving);
        }
    }

    fn obey(&mut self, order: ToServer, descriptors: Vec<OwnedFd>, lease: Option<Lease>) -> Option<End> {
        match order {
            ToServer::Prepare {
                number,
                settings,
                is_recovery,
                logs,
                tables,
                memories,
                listeners,
                off_limits,
            } => {
                off_limits::add(&off_limits);
                self.next_off_limits = off_limits;
                let is_last = listeners.is_none();
                if is_last {
                    self.stores.caches.ends();
                }
                // Looked at first, since it is told best here.
                let spill = if is_recovery { Ok(()) } else { may_spill(&settings) };
                let is_read =
                    self.unreadable.take().map_or(Ok(()), |why| Err(io::Error::other(unreadable(&why))));
                let is_read = is_read.and(match &self.lacking {
                    Some(why) => Err(io::Error::other(why.clone())),
                    None => Ok(()),
                });
                let prepared = is_read.and(spill).and_then(|()| {
                    self.prepare(&settings, (&logs, (&tables, memories), listeners), descriptors)
                });
                let told = match prepared {
                    Ok(()) => {
                        self.next = Some((settings, lease));
                        self.is_behind = false;
                        ToMaster::Prepared(number)
                    }
                    Err(error) => {
                        self.is_behind = is_last;
                        let why = if is_exhaustion(&error) {
                            none_left("get ready for the settings", None)
                        } else {
                            error.to_string()
                        };
                        ToMaster::Failed(number, why)
                    }
                };
                self.tell(&told);
            }
            ToServer::Tls(update) => {
                for wrong in self.stores.tls.apply(&update) {
                    log::error(format_args!(
                        "a certificate that the master has sent cannot be used: {wrong}"
                    ));
                }
            }
            ToServer::Credentials(renewed) => {
                for credential in &renewed {
                    for settings in self.settings.iter_mut().chain(self.next.as_mut().map(|(next, _)| next)) {
                        settings.renew(credential);
                    }
                    self.stores.logins.renew(credential);
                }
            }
            ToServer::Mark(number) if self.lacking.is_some() => self.marks.push(number),
            ToServer::Mark(number) => self.tell(&ToMaster::Marked(number)),
            ToServer::Access(places) => {
                for (path, error) in self.stores.access.provide(&places, &descriptors) {
                    let path = path.display();
                    log::error(format_args!("what the master has read of {path} cannot be used: {error}"));
                }
                self.lacking = None;
                for number in std::mem::take(&mut self.marks) {
                    self.tell(&ToMaster::Marked(number));
                }
            }
            ToServer::Commit => self.commit(),
            ToServer::Discard => {
                self.next = None;
                off_limits::set(self.off_limits.clone());
                // Workers let go of theirs first: what is left then is nobody's.
                if let Err(error) = self.tell_workers(Command::Discard) {
                    log::error(format_args!("settings that were given up may still be there: {error}"));
                }
                if let Some(settings) = self.settings.clone() {
                    self.let_go(&settings);
                    self.writer.discard();
                }
            }
            ToServer::Logs(targets) => {
                for (target, file) in targets.iter().zip(descriptors) {
                    if let Err(error) = self.writer.provide(target, File::from(file)) {
                        log::error(format_args!("cannot change the log {target}: {error}"));
                    }
                }
                self.tell(&ToMaster::LogsInUse);
            }
            ToServer::Lacking(order, count) => self.lacks(*order, count),
            ToServer::LogLevel(level) => log::set_level(level),
            ToServer::Unreadable { prepare: Some(number), why } => {
                self.unreadable = None;
                self.is_behind = true; // it may have been the last one; another one that is prepared makes up for it
                self.tell(&ToMaster::Failed(number, unreadable(&why)));
            }
            ToServer::Unreadable { prepare: None, why } => {
                log::error(unreadable(&why));
                self.unreadable = Some(why);
            }
            ToServer::Drain { close_idle } => return Some(End::Drain { close_idle, is_orphan: false }),
            ToServer::Stop => return Some(End::Now),
            // The reader has answered these.
            ToServer::Question(..)
            | ToServer::Answer(..)
            | ToServer::Pool(_)
            | ToServer::LetGo(_)
            | ToServer::Upstreams(_)
            | ToServer::Lifted { .. } => {}
        }
        None
    }

    /// An order has come without its descriptors, so many: what is in force stays.
    fn lacks(&mut self, order: ToServer, count: usize) {
        match order {
            ToServer::Prepare { number, listeners, .. } => {
                self.unreadable = None;
                self.is_behind = listeners.is_none();
                self.tell(&ToMaster::Failed(number, none_left("take up the settings", Some(count))));
            }
            ToServer::Logs(_) => {
                let why = none_left("write to the logs that were opened anew", Some(count));
                self.tell(&ToMaster::LogsRefused(format!(
                    "{why}; it goes on with the files of before until the logs are opened anew once more"
                )));
            }
            ToServer::Access(_) => {
                let why = none_left("take up lists that have changed", Some(count));
                let is_again = self.lacking.replace(why.clone()).is_some();
                let why = format!("{why}; it goes by the lists of before until it has some");
                self.tell(&ToMaster::AccessRefused { why, is_again });
            }
            _ => log::error(none_left("do what the master has said", Some(count))),
        }
    }

    fn prepare(
        &mut self,
        settings: &Arc<Settings>,
        (logs, (tables, memories), listeners): (&[LogTarget], Tables<'_>, Option<Vec<Vec<ListenAddress>>>),
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        if self.settings.is_some() {
            self.writer.discard(); // of one that failed on the way here
        }
        let mut descriptors = descriptors.into_iter();
        for (target, file) in logs.iter().zip(descriptors.by_ref()) {
            self.writer.provide(target, File::from(file))?;
        }
        let memories: Vec<OwnedFd> = descriptors.by_ref().take(memories).collect();
        self.stores.rates.provide(tables, &memories)?;
        drop(memories);
        let mut of_worker = |addresses: Vec<ListenAddress>| -> Vec<Listener> {
            let given = addresses.into_iter().zip(descriptors.by_ref());
            given.map(|(address, fd)| Listener { fd, address }).collect()
        };
        let of_workers: Option<Vec<Vec<Listener>>> =
            listeners.map(|of_workers| of_workers.into_iter().map(&mut of_worker).collect());
        if self.settings.is_none() {
            return self.start_workers(settings, of_workers.unwrap_or_default());
        }
        let mut of_workers = of_workers.map(Vec::into_iter);
        self.tell_workers(|reply| {
            let listeners = of_workers.as_mut().map(|of_workers| of_workers.next().unwrap_or_default());
            Command::Prepare(settings.clone(), listeners, reply)
        })
    }

    /// The first settings: workers that listen to nobody yet show that the settings can be served.
    fn start_workers(&mut self, settings: &Arc<Settings>, listeners: Vec<Vec<Listener>>) -> io::Result<()> {
        let make = Registry::maker(StatusView::new(self.link.clone()), self.stores.clone());
        let counts = Shared::of(listeners.len());
        for number in 0..listeners.len() {
            let sender = self.sender.clone();
            let on_end = Box::new(move || drop(sender.send(Event::WorkerEnded(number))));
            let (settings, writer) = (settings.clone(), self.writer.clone());
            let worker =
                worker::start(counts.clone(), number, settings, Vec::new(), make.clone(), writer, on_end)?;
            self.workers.push(worker);
        }
        if let Ok(mut members) = self.members.workers.write() {
            *members = self.workers.iter().map(|worker| (worker.asker(), worker.stats.clone())).collect();
        }
        self.waiting = listeners;
        Ok(())
    }

    fn commit(&mut self) {
        // The lease is dropped at the end, and the reserve filled after that.
        let Some((settings, lease)) = self.next.take() else { return };
        self.off_limits = std::mem::take(&mut self.next_off_limits);
        off_limits::set(self.off_limits.clone());
        self.use_error_log(&settings);
        self.stores.access.names().adopt(&settings.dns);
        let outcome = if self.settings.is_none() {
            drop(lease);
            self.fill_reserve(); // before anybody who connects takes what it is made of
            let mut listeners = std::mem::take(&mut self.waiting).into_iter();
            self.tell_workers(|reply| Command::Listen(listeners.next().unwrap_or_default(), reply))
        } else {
            self.tell_workers(Command::Commit)
        };
        self.let_go(&settings);
        self.writer.settle();
        if self.settings.replace(settings).is_none() {
            // What only the start has needed.
            tidegate_io::process::let_go_of_code();
            tidegate_io::allocator::trim();
        }
        if let Some(warning) = self.warning.take() {
            log::warn(warning);
        }
        if let Err(error) = outcome {
            // What was prepared does not fail but for want of memory. A fresh process is the way out.
            log::error(format_args!("settings could not be taken up, another process does: {error}"));
            self.leave();
        }
        self.tell(&ToMaster::Committed);
    }

    /// What belongs to no settings but `present` goes, but for what requests under way use.
    fn let_go(&self, present: &Settings) {
        self.stores.caches.keep(present);
        self.stores.directory.keep(present);
        self.stores.tls.settle(&TlsFiles::default());
        self.stores.access.settle(present);
        self.stores.rates.settle(present);
        self.stores.logins.settle(present);
        self.stores.series.settle(&series::names(present));
    }

    fn use_error_log(&self, settings: &Settings) {
        match self.writer.sink(&settings.error_log.target) {
            Ok(sink) => log::set_error_log(self.writer.clone(), sink, settings.error_log.level),
            Err(error) => log::error(format_args!("cannot write the error log: {error}")),
        }
        if let Err(error) = use_pool_logs(&self.writer, settings) {
            log::error(format_args!("cannot write the log of a pool: {error}"));
        }
    }

    /// Tells every worker the same, and waits until all have done it.
    fn tell_workers(&self, mut command: impl FnMut(Sender<io::Result<()>>) -> Command) -> io::Result<()> {
        let mut answers = Vec::with_capacity(self.workers.len());
        for worker in &self.workers {
            let (reply, answer) = channel();
            worker.send(command(reply));
            answers.push(answer);
        }
        let deadline = Instant::now() + PATIENCE;
        let mut outcome = Ok(());
        for (number, answer) in answers.iter().enumerate() {
            match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => outcome = Err(error),
                Err(_) => outcome = Err(io::Error::other(format!("worker {number} does not answer"))),
            }
        }
        outcome
    }

    fn end(mut self, end: End) {
        let mut deadline = None;
        self.is_stopped = matches!(end, End::Now);
        if let End::Drain { close_idle, is_orphan } = end {
            if is_orphan {
                // Nobody else would set an end to it.
                let patience =
                    self.settings.as_ref().map_or(Duration::ZERO, |settings| settings.drain_timeout);
                log::error(format_args!(
                    "the master has ended: process {} accepts no more, finishes what is open within {} s and ends",
                    std::process::id(),
                    patience.as_secs()
                ));
                deadline = Some(Instant::now() + patience);
            }
            self.waiting.clear();
            self.workers.iter().for_each(|worker| worker.send(Command::Drain { close_idle }));
            if self.is_behind {
                // By settings that are not in force any more nobody is answered who has not asked yet.
                self.workers.iter().for_each(|worker| worker.send(Command::Drain { close_idle: true }));
            }
            // What may have been prepared is given up. The answers say that the workers have come past the order to drain; one
            // that has ended by it does not answer.
            self.next = None;
            self.reserve.be_modest();
            let _ = self.tell_workers(Command::Discard);
            self.stores.rates.drain();
            self.tell(&ToMaster::AcceptsNoMore);
            self.wait_for_workers(deadline);
            if !close_idle && self.ended < self.workers.len() {
                // Until now clients could use the connections they had. A request that came in the last moment has one
                // more; there are no further ones.
                self.workers.iter().for_each(|worker| worker.send(Command::Drain { close_idle: true }));
                self.wait_for_workers(Some(Instant::now() + LAST_MOMENT));
            }
        }
        let cut = if self.ended < self.workers.len() {
            self.members.figures().counted.connections.current
        } else {
            0
        };
        self.workers.iter().for_each(|worker| worker.send(Command::Stop));
        self.wait_for_workers(Some(Instant::now() + STOP_PATIENCE));
        self.stores.caches.save(SAVE_PATIENCE);
        self.hold_lines(deadline);
        let unwritten = self.writer.flush();
        let figures = Box::new(self.members.figures_to(Extent::Whole));
        self.tell(&ToMaster::Ended { figures, cut, unwritten });
        // The master answers `Stop` when it has heard that.
        let deadline = Instant::now() + FAREWELL;
        while let Ok(event) = self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if matches!(event, Event::Orphaned | Event::Said(ToServer::Stop, ..)) {
                return;
            }
        }
    }

    /// A disk that is full has for its lines the time that a drain has for its connections.
    fn hold_lines(&mut self, mut deadline: Option<Instant>) {
        while !self.is_stopped && !self.writer.retry() {
            let until = Instant::now() + LOG_PAUSE;
            if deadline.is_some_and(|deadline| deadline < until) {
                return;
            }
            let event = self.events.recv_timeout(until.saturating_duration_since(Instant::now()));
            match event {
                Ok(Event::Orphaned) if deadline.is_none() => {
                    let patience = self.settings.as_ref().map(|settings| settings.drain_timeout);
                    deadline = Some(Instant::now() + patience.unwrap_or_default());
                }
                Ok(Event::Said(ToServer::Stop, ..)) => self.is_stopped = true,
                Ok(Event::Said(order @ (ToServer::Logs(_) | ToServer::Lacking(..)), files, lease)) => {
                    let _ = self.obey(order, files, lease);
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Until all workers have ended, the time is over, or somebody says that it is.
    fn wait_for_workers(&mut self, mut deadline: Option<Instant>) {
        while self.ended < self.workers.len() {
            let event = match deadline {
                Some(deadline) => {
                    self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
                }
                None => self.events.recv().ok(),
            };
            match event {
                None => return,
                Some(Event::Said(ToServer::Stop, ..)) => {
                    self.is_stopped = true;
                    return;
                }
                Some(Event::WorkerEnded(_)) => self.ended += 1,
                Some(Event::Orphaned) if deadline.is_none() => {
                    let patience = self.settings.as_ref().map(|settings| settings.drain_timeout);
                    deadline = Some(Instant::now() + patience.unwrap_or_default());
                }
                // Who is still served is told of both.
                Some(Event::Said(
                    order @ (ToServer::Logs(_)
                    | ToServer::LogLevel(_)
                    | ToServer::Credentials(_)
                    | ToServer::Access(_)
                    | ToServer::Lacking(..)
                    | ToServer::Tls(_)
                    | ToServer::Mark(_)),
                    files,
                    lease,
                )) => {
                    let _ = self.obey(order, files, lease);
                }
                // The settings that it ends by are not in force any more, or the server is stopped.
                Some(Event::Said(ToServer::Drain { close_idle: true }, ..)) => {
                    self.workers.iter().for_each(|worker| worker.send(Command::Drain { close_idle: true }));
                }
                Some(_) => {}
            }
        }
    }
}

/// A server process cannot read what its own master has written: what is in force stays.
fn unreadable(why: &str) -> String {
    format!(
        "server process {} cannot read what the master has sent: {why}; this is a mistake of the server, please report it",
        std::process::id()
    )
}

/// A folder that this user may not write to would fail each request that has to be kept, and none before.
fn may_spill(settings: &Settings) -> io::Result<()> {
    let Some(folder) = privileges::spill(settings) else { return Ok(()) };
    Spill::new(&settings.spill).probe().map_err(|error| {
        let (folder, user) = (folder.display(), rustix::process::geteuid().as_raw());
        let said = format!(
            "cannot keep content of requests in the folder {folder}: {error}; let user {user}, whom the server processes \
             run as, write there, or name another folder with `spill`"
        );
        io::Error::new(error.kind(), said)
    })
}

/// This process may hold no more descriptors.
fn none_left(what_for: &str, needed: Option<usize>) -> String {
    descriptors::none_left("server process", what_for, needed.map(|count| format!("{count} more are needed")))
}
