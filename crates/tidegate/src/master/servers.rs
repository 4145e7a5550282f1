//! The server processes: started, watched, replaced.
//!
//! A process comes up in two steps, so that settings are in force in all processes or in none: it prepares, and
//! when all have, it commits. One that ends by mistake gets a successor at once, on the same sockets, in which
//! clients wait meanwhile; when that ends too within a second of serving, the next waits longer and longer, and
//! never for good. Nothing here polls: links that break and processes that end are events.

use super::Event;
use super::pools::{Pools, Served};
use super::sockets::Sockets;
use super::status_registry::{self, Member, StatusRegistry};
use super::upstreams::Upstreams;
use super::{logs::Logs, sealing, upgrade, users};
use crate::certificates::CertificateWatch;
use crate::link::{Begin, Figures, Identity, Link, ToMaster, ToServer};
use crate::server::privileges;
use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_core::log;
use tidegate_core::tls::{TlsFiles, TlsUpdate};
use tidegate_io::passing;
use tidegate_modules::gateway::supervise::seal;
use tidegate_modules::status::ProcessInfo;

/// How long a process may take until it is ready for settings.
pub const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long a process that was told to end now may take.
const STOP_PATIENCE: Duration = Duration::from_secs(6);
/// A process that has served so long is no part of a series of failures.
const SOUND: Duration = Duration::from_secs(1);
/// The pause before the third try of a series; it doubles with each.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What server processes are made of. Where it changes, they are replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct Layout {
    /// Workers of each.
    pub workers: usize,
    /// How many.
    pub processes: usize,
    /// Whom they become.
    pub identity: Option<Identity>,
    /// What they may read beside files of the system, with device and inode at the time: a folder that was
    /// replaced is another one. `None`: everything.
    pub readable: Option<Vec<Seen>>,
    /// What applications of the same user do not reach and links must not lead to, and what lies beside the ways there.
    pub sealed: Option<(Vec<PathBuf>, Vec<Seen>)>,
    /// Where they may put what has to be complete before it is passed on; `None`: nowhere.
    pub spill: Option<PathBuf>,
}

/// A path, and device and inode of what lay there.
type Seen = (PathBuf, Option<(u64, u64)>);

fn seen(path: PathBuf) -> Seen {
    let there = std::fs::metadata(&path).ok().map(|there| (there.dev(), there.ino()));
    (path, there)
}

impl Layout {
    /// As the settings ask for.
    pub fn of(settings: &Settings, workers: usize, identity: Option<Identity>) -> Layout {
        let readable = || privileges::readable(settings).into_iter().map(seen).collect();
        Layout {
            workers,
            processes: usize::from(settings.processes),
            identity,
            readable: settings.sandbox.then(readable),
            sealed: None,
            spill: privileges::spill(settings),
        }
    }

    /// The same with what these settings, which have been sealed, keep from applications. An application can make a link to
    /// it, so that whoever follows links anywhere must not reach it either.
    pub fn sealed(self, settings: &Settings) -> Layout {
        let reads_all = |paths: &Vec<Seen>| paths.iter().any(|(path, _)| path == Path::new("/"));
        let sealed = sealing::of(settings).filter(|_| self.readable.as_ref().is_some_and(reads_all));
        let sealed =
            sealed.map(|sealed| (sealed.paths.clone(), sealed.beside.iter().cloned().map(seen).collect()));
        Layout { sealed, ..self }
    }

    /// The same with what lies at the paths now, as a process that starts now may read it.
    fn seen_now(&self) -> Layout {
        let readable = self.readable.as_ref();
        let readable = readable.map(|paths| paths.iter().map(|(path, _)| seen(path.clone())).collect());
        let sealed = self
            .sealed
            .as_ref()
            .map(|(paths, _)| (paths.clone(), seal::beside(paths).into_iter().map(seen).collect()));
        Layout { readable, sealed, ..self.clone() }
    }

    /// All workers of all processes.
    pub fn total(&self) -> usize {
        self.workers * self.processes
    }

    /// Whether processes made for this can serve what `next` is for.
    pub fn suits(&self, next: &Layout) -> bool {
        let may_read = match (&self.readable, &next.readable) {
            (Some(present), Some(wanted)) => wanted.iter().all(|path| present.contains(path)),
            (present, wanted) => present.is_none() == wanted.is_none(),
        };
        let may_follow = match (&self.sealed, &next.sealed) {
            (Some((present, beside)), Some((sealed, wanted))) => {
                present == sealed && wanted.iter().all(|path| beside.contains(path))
            }
            (present, sealed) => present.is_none() == sealed.is_none(),
        };
        (self.workers, self.processes, &self.identity) == (next.workers, next.processes, &next.identity)
            && (next.spill.is_none() || self.spill == next.spill)
            && may_read
            && may_follow
    }
}

/// Settings with all that goes with them.
pub struct Revision {
    /// From 1.
    pub number: u64,
    /// As written, but for what the arguments say.
    pub settings: Arc<Settings>,
    /// Open.
    pub sockets: Sockets,
    /// Read.
    pub tls: TlsFiles,
    /// The state of those files just before they were read.
    pub seen: CertificateWatch,
    /// Open.
    pub logs: Logs,
    /// Of the processes.
    pub layout: Layout,
    /// Which user pools have, as it was said.
    pub assigned: Vec<users::Assigned>,
}

impl Revision {
    /// The settings as one process gets them.
    pub fn fitted(&self) -> Arc<Settings> {
        let mut fitted = self.sockets.fit(&self.settings, self.layout.total());
        if self.settings.processes > 1 {
            super::parts::divide(Arc::make_mut(&mut fitted));
        }
        fitted
    }
}

/// What has become of a server process, for whoever waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It has got ready for the settings that it was told of last.
    Prepared(u64),
    /// It cannot take them up.
    Failed(u64, String),
    /// They are in force in it.
    Committed(u64),
    /// It uses the logs that it was given last.
    LogsInUse(u64),
    /// It was told to drain, and accepts no more.
    AcceptsNoMore(u64),
    /// It has ended, or will say nothing more.
    Ended(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Starting,
    Serving,
    Draining,
}

/// A server process.
pub struct Server {
    pub id: u64,
    pub place: usize,
    pub pid: u32,
    pub state: State,
    /// The number of the last `Prepare`.
    asked: u64,
    /// The revision that it was told of then.
    pub revision: u64,
    /// Times that it was given logs and has not said yet that it uses them.
    logs_given: u32,
    pub layout: Layout,
    /// It has said its last words, or will say none.
    pub has_ended: bool,
    /// Connections that its end has cut.
    pub cut: u64,
    link: Arc<Link>,
    handle: Option<OwnedFd>,
    started: i64,
    serving_since: Option<Instant>,
    /// It commits as soon as it is ready, and then takes the place of this one.
    replaces: Option<Option<u64>>,
    /// When it must be done with what it does.
    deadline: Option<Instant>,
    /// It was told to end now.
    is_told: bool,
}

#[derive(Default)]
struct Place {
    restarts: u64,
    /// Processes that ended by mistake one after the other, soon after their start.
    failures: u32,
    next_try: Option<Instant>,
}

/// All of them.
pub struct Servers {
    pub list: Vec<Server>,
    places: Vec<Place>,
    last_id: u64,
    /// Times that a process was told to prepare.
    prepared: u64,
    status_registry: Arc<StatusRegistry>,
    pools: Arc<Pools>,
    upstreams: Arc<Upstreams>,
    events: Sender<Event>,
    executable: PathBuf,
    /// What every process is told of TLS, but for the files of the settings.
    pub tls: TlsUpdate,
    /// Nothing is started again.
    pub is_ending: bool,
    /// What has happened and nobody has looked at yet.
    news: VecDeque<News>,
}

impl Servers {
    pub fn new(
        status_registry: Arc<StatusRegistry>,
        (pools, upstreams): (Arc<Pools>, Arc<Upstreams>),
        events: Sender<Event>,
        executable: &Path,
    ) -> Servers {
        // The program that runs now, also when another lies in its place by the time it is needed.
        let own = Path::new("/proc/self/exe");
        let executable = if own.exists() { own } else { executable }.to_owned();
        Servers {
            list: Vec::new(),
            places: Vec::new(),
            last_id: 0,
            prepared: 0,
            status_registry,
            pools,
            upstreams,
            events,
            executable,
            tls: TlsUpdate::default(),
            is_ending: false,
            news: VecDeque::new(),
        }
    }

    /// The next thing that has happened.
    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Starts a process and has it prepare.
    pub fn start(&mut self, place: usize, revision: &Revision, is_recovery: bool) -> Result<u64> {
        let (ours, theirs) = passing::pair().context("cannot open a link to a server process")?;
        let layout = revision.layout.seen_now();
        let readable = layout.readable.as_ref().map(|paths| {
            let system = privileges::SYSTEM.iter().map(PathBuf::from);
            paths.iter().map(|(path, _)| path.clone()).chain(system).collect()
        });
        let begin = serde_json::to_vec(&Begin {
            identity: layout.identity.clone(),
            readable,
            sealed: layout.sealed.as_ref().map(|(paths, _)| paths.clone()).unwrap_or_default(),
            spill: layout.spill.clone(),
        })?;
        passing::send(ours.as_fd(), &begin, &[]).context("cannot speak to a server process")?;
        let mut command = Command::new(&self.executable);
        command.arg0("tidegate").arg("server").stdin(Stdio::from(theirs));
        for name in
            ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"]
        {
            command.env_remove(name);
        }
        let child = command.env_remove(upgrade::VARIABLE).spawn().context("cannot start a server process")?;
        drop(command); // with it our copy of their end
        let pid = child.id();
        self.last_id += 1;
        let id = self.last_id;
        let handle =
            Pid::from_raw(pid.cast_signed()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let (status_registry, heard, lost) =
            (self.status_registry.clone(), self.events.clone(), self.events.clone());
        let link = Link::start(
            ours,
            move |link, message, _| {
                if let Some(message) = status_registry::take_answers(&status_registry, link, message) {
                    let _ = heard.send(Event::AcmeEvent(id, message));
                }
            },
            move |outcome| watch_end(id, child, outcome, &lost),
        )
        .context("cannot start a thread")?;
        let server = Server {
            id,
            place,
            pid,
            state: State::Starting,
            asked: 0,
            revision: revision.number,
            logs_given: 0,
            layout,
            has_ended: false,
            cut: 0,
            link,
            handle,
            started: tidegate_io::clock::wall_seconds(),
            serving_since: None,
            replaces: None,
            deadline: Some(Instant::now() + START_PATIENCE),
            is_told: false,
        };
        self.list.push(server);
        let prepared = self.send_settings(id, revision, is_recovery);
        self.publish();
        prepared.map(|()| id)
    }

    /// Sends settings with all that goes with them.
    pub fn prepare(&mut self, id: u64, revision: &Revision) -> Result<()> {
        self.send_settings(id, revision, false)
    }

    fn send_settings(&mut self, id: u64, revision: &Revision, is_recovery: bool) -> Result<()> {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return Ok(()) };
        self.prepared += 1;
        server.asked = self.prepared;
        server.revision = revision.number;
        let number = server.asked;
        let (logs, mut descriptors) = revision.logs.copies().context("cannot copy a log")?;
        let layout = &revision.layout;
        let mut listeners = Vec::with_capacity(layout.workers);
        for worker in 0..layout.workers {
            let index = server.place * layout.workers + worker;
            let open = revision.sockets.for_worker(index, layout.total()).context("cannot copy a socket")?;
            listeners.push(open.iter().map(|listener| listener.address.clone()).collect());
            descriptors.extend(open.into_iter().map(|listener| listener.fd));
        }
        let update = TlsUpdate { files: revision.tls.clone(), ..self.tls.clone() };
        let settings = revision.fitted();
        let is_told = server.link.send(&ToServer::Tls(update), Vec::new());
        let message = ToServer::Prepare { number, settings, is_recovery, logs, listeners };
        if !is_told || !server.link.send(&message, descriptors) {
            self.news.push_back(News::Failed(id, format!("server process {} takes no orders", server.pid)));
        }
        Ok(())
    }

    /// Has the process commit as soon as it is ready, and drain the one it replaces.
    fn commit_when_ready(&mut self, id: u64, replaces: Option<u64>) {
        if let Some(server) = self.list.iter_mut().find(|server| server.id == id) {
            server.replaces = Some(replaces);
        }
    }

    /// Tells a process something without descriptors.
    pub fn tell(&mut self, id: u64, message: &ToServer) {
        if let Some(server) = self.list.iter_mut().find(|server| server.id == id) {
            server.link.send(message, Vec::new());
        }
    }

    /// Tells every process what has changed of TLS.
    pub fn give_tls(&mut self, update: &TlsUpdate) {
        for server in self.list.iter().filter(|server| !server.has_ended) {
            server.link.send(&ToServer::Tls(update.clone()), Vec::new());
        }
    }

    /// Gives every process the logs that were opened anew.
    pub fn give_logs(&mut self, logs: &Logs) -> io::Result<()> {
        for server in &mut self.list {
            let (targets, files) = logs.copies()?;
            server.logs_given += u32::from(server.link.send(&ToServer::Logs(targets), files));
        }
        Ok(())
    }

    /// Has a process end when nothing is open any more, within `patience`.
    pub fn drain(&mut self, id: u64, close_idle: bool, patience: Duration) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        server.state = State::Draining;
        server.deadline = Some(Instant::now() + patience);
        server.link.send(&ToServer::Drain { close_idle }, Vec::new());
        self.publish();
    }

    /// Ends a process that is not wanted.
    pub fn kill(&mut self, id: u64) {
        if let Some(server) = self.list.iter_mut().find(|server| server.id == id) {
            server.state = State::Draining;
            server.has_ended = true;
            server.kill();
            self.news.push_back(News::Ended(id));
        }
        self.publish();
    }

    /// Those in this state.
    pub fn in_state(&self, state: State) -> Vec<u64> {
        self.list.iter().filter(|server| server.state == state).map(|server| server.id).collect()
    }

    /// These, each with the number of its process.
    pub fn numbers(&self, ids: &[u64]) -> Vec<(u64, u32)> {
        let of = self.list.iter().filter(|server| ids.contains(&server.id));
        of.map(|server| (server.id, server.pid)).collect()
    }

    /// Those that have been given logs and have not said yet that they use them.
    pub fn slow_with_logs(&self) -> usize {
        self.list.iter().filter(|server| server.logs_given > 0 && !server.has_ended).count()
    }

    /// How many places there are; those beyond lose their wait for a process.
    pub fn set_places(&mut self, count: usize) {
        self.places.truncate(count);
        self.places.resize_with(count, Place::default);
        for place in &mut self.places {
            place.next_try = None;
            place.failures = 0;
        }
        self.publish();
    }

    /// A process has said something.
    pub fn said(&mut self, id: u64, message: ToMaster, revision: &Revision) {
        let Some(index) = self.list.iter().position(|server| server.id == id) else { return };
        let Some(server) = self.list.get_mut(index) else { return };
        match message {
            // To an earlier one, which was given up.
            ToMaster::Prepared(number) | ToMaster::Failed(number, _) if number != server.asked => {}
            ToMaster::Prepared(_) => {
                self.news.push_back(News::Prepared(id));
                if server.replaces.is_some() {
                    server.link.send(&ToServer::Commit, Vec::new());
                }
            }
            ToMaster::Failed(_, why) => {
                let is_own_start = server.replaces.is_some();
                if is_own_start {
                    log::error(format_args!("server process {} cannot serve: {why}", server.pid));
                    server.is_told = true;
                    server.kill();
                }
                self.news.push_back(News::Failed(id, why));
            }
            ToMaster::Committed => self.committed(index, revision),
            ToMaster::LogsInUse => {
                server.logs_given = server.logs_given.saturating_sub(1);
                self.news.push_back(News::LogsInUse(id));
            }
            ToMaster::AcceptsNoMore => self.news.push_back(News::AcceptsNoMore(id)),
            ToMaster::Leaving => {
                let place = server.place;
                if server.state == State::Serving && !self.is_ending {
                    self.replace(place, id, revision);
                }
            }
            ToMaster::Ended { figures, cut } => {
                server.has_ended = true;
                server.cut = cut;
                server.link.send(&ToServer::Stop, Vec::new());
                self.news.push_back(News::Ended(id));
                self.status_registry.has_ended(id, Some(*figures));
            }
            ToMaster::Pools(demands) => return self.pools.heard(id, demands),
            ToMaster::Starving(addresses) => {
                let message = ToServer::LetGo(addresses);
                let others = self.list.iter().filter(|server| server.id != id && !server.has_ended);
                for other in others {
                    other.link.send(&message, Vec::new());
                }
                return;
            }
            ToMaster::Upstream(finding) => return self.upstreams.heard(id, finding),
            ToMaster::Question(..) | ToMaster::Answer(..) => {} // the status registry's
        }
        self.publish();
    }

    fn committed(&mut self, index: usize, revision: &Revision) {
        let Some(server) = self.list.get_mut(index) else { return };
        self.news.push_back(News::Committed(server.id));
        if server.state != State::Starting {
            return;
        }
        server.state = State::Serving;
        server.deadline = None;
        server.serving_since = Some(Instant::now());
        let (pid, place) = (server.pid, server.place);
        if let Some(replaced) = server.replaces.take() {
            log::info(format_args!("server process {pid} serves"));
            if let Some(old) = replaced {
                self.drain(old, false, revision.settings.drain_timeout);
            }
            // Another of this place may have come up meanwhile, by a reload.
            let own = self.list.get(index).map(|server| server.id);
            let twins: Vec<u64> = self
                .list
                .iter()
                .filter(|other| {
                    other.place == place && other.state == State::Serving && Some(other.id) != own
                })
                .map(|other| other.id)
                .collect();
            for twin in twins {
                self.drain(twin, false, revision.settings.drain_timeout);
            }
        }
    }

    /// The link to a process is broken: it ends, or has ended. Its clients in line wait for the next.
    pub fn lost(&mut self, id: u64) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        let is_mistake = !server.has_ended;
        server.has_ended = true;
        self.news.push_back(News::Ended(id));
        let (place, state) = (server.place, server.state);
        let was_sound = server.serving_since.is_some_and(|since| since.elapsed() >= SOUND);
        let is_own_start = server.replaces.is_some();
        server.state = State::Draining;
        let is_missed = state == State::Serving || (state == State::Starting && is_own_start);
        if is_mistake && is_missed && !server.is_told {
            server.deadline = None; // so that its end is told
        }
        self.status_registry.has_ended(id, None);
        if is_mistake
            && is_missed
            && !self.is_ending
            && let Some(place) = self.places.get_mut(place)
        {
            place.restarts += 1;
            place.failures = if was_sound { 0 } else { place.failures + 1 };
            place.next_try = Some(Instant::now() + pause(place.failures));
        }
        self.publish();
    }

    /// A process has ended, and this is how.
    pub fn gone(&mut self, id: u64, how: &str) {
        let Some(index) = self.list.iter().position(|server| server.id == id) else { return };
        let server = self.list.remove(index);
        let is_expected = server.state == State::Draining && server.deadline.is_some();
        if !is_expected && !self.is_ending {
            let mut said = format!("server process {} has ended ({how})", server.pid);
            if let Some(place) = self.places.get(server.place).filter(|place| place.failures > 1) {
                let wait = pause(place.failures).as_secs_f32();
                said +=
                    &format!(", the {} in a row that served for less than a second", ordinal(place.failures));
                said += &format!("; the next one waits {wait:.1} s");
            }
            log::error(said);
        }
        self.publish();
    }

    /// Starts the processes whose time has come, and ends those that take too long.
    pub fn tick(&mut self, revision: &Revision) {
        let now = Instant::now();
        for place in 0..self.places.len() {
            let is_due = |place: &mut Place| place.next_try.take_if(|at| *at <= now).is_some();
            if !self.is_ending && self.places.get_mut(place).is_some_and(is_due) {
                self.start_again(place, None, revision);
            }
        }
        let mut late = Vec::new();
        for server in &mut self.list {
            if server.deadline.is_some_and(|deadline| deadline <= now) {
                late.push(server.id);
            }
        }
        for id in late {
            self.hurry(id);
        }
    }

    /// Its time is over: it is told to end, and when that was in vain it is ended.
    pub fn hurry(&mut self, id: u64) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        if server.state == State::Draining && !server.is_told {
            server.is_told = true;
            server.deadline = Some(Instant::now() + STOP_PATIENCE);
            server.link.send(&ToServer::Stop, Vec::new());
            return;
        }
        log::error(format_args!("server process {} does not react and is ended", server.pid));
        server.deadline = Some(Instant::now() + STOP_PATIENCE);
        server.kill();
    }

    /// When [`Servers::tick`] is next needed.
    pub fn next_tick(&self) -> Option<Instant> {
        let tries = self.places.iter().filter_map(|place| place.next_try).filter(|_| !self.is_ending);
        tries.chain(self.list.iter().filter_map(|server| server.deadline)).min()
    }

    /// A revision is in force: those that have started meanwhile with the one before, in the place of one that has
    /// ended, are replaced.
    pub fn catch_up(&mut self, revision: &Revision) {
        let is_behind = |server: &&Server| {
            server.revision < revision.number && !server.has_ended && server.state != State::Draining
        };
        let behind: Vec<(u64, usize, Option<Option<u64>>)> = self
            .list
            .iter()
            .filter(is_behind)
            .map(|server| {
                (
                    server.id,
                    server.place,
                    (server.state == State::Starting).then_some(server.replaces).flatten(),
                )
            })
            .collect();
        for (id, place, replaces) in behind {
            match replaces {
                Some(before) => {
                    self.kill(id);
                    self.start_again(place, before, revision);
                }
                None => self.start_again(place, Some(id), revision),
            }
        }
    }

    fn replace(&mut self, place: usize, old: u64, revision: &Revision) {
        if let Some(place) = self.places.get_mut(place) {
            place.restarts += 1;
        }
        self.start_again(place, Some(old), revision);
    }

    fn start_again(&mut self, place: usize, replaces: Option<u64>, revision: &Revision) {
        match self.start(place, revision, true) {
            Ok(id) => self.commit_when_ready(id, replaces),
            Err(error) => {
                log::error(format_args!("{error:#}; trying again shortly"));
                if let Some(place) = self.places.get_mut(place) {
                    place.failures += 1;
                    place.next_try = Some(Instant::now() + pause(place.failures.max(2)));
                }
            }
        }
    }

    /// Tells the status registry how things are.
    fn publish(&self) {
        let now = tidegate_io::clock::wall_seconds();
        let mut members: Vec<Member> = Vec::new();
        for server in self.list.iter().filter(|server| !server.has_ended) {
            let state = match server.state {
                State::Starting => "starting",
                State::Serving => "serving",
                State::Draining => "draining",
            };
            members.push(Member {
                id: server.id,
                info: ProcessInfo {
                    pid: server.pid,
                    state: state.into(),
                    started: server.started,
                    workers: server.layout.workers,
                    restarts: self.places.get(server.place).map_or(0, |place| place.restarts),
                },
                link: Some(server.link.clone()),
                last: Figures::default(),
            });
        }
        for place in self.places.iter().filter(|place| place.next_try.is_some()) {
            let (state, restarts) = ("waiting".to_owned(), place.restarts);
            let info = ProcessInfo { pid: 0, state, started: now, workers: 0, restarts };
            members.push(Member { id: 0, info, link: None, last: Figures::default() });
        }
        let links: Vec<Served> = members
            .iter()
            .filter_map(|member| {
                let is_draining = member.info.state == "draining";
                let server = self.list.iter().find(|server| server.id == member.id)?;
                let user = server.layout.identity.as_ref().map(|identity| (identity.uid, identity.gid));
                let (pid, link) = (member.info.pid, member.link.clone()?);
                Some(Served { id: member.id, pid, user, link, is_draining })
            })
            .collect();
        self.upstreams.set_servers(&links);
        self.pools.set_servers(links);
        self.status_registry.set_members(members);
    }
}

impl Server {
    fn kill(&self) {
        if let Some(handle) = &self.handle {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// None after the first failure, then longer and longer.
fn pause(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => PAUSE.saturating_mul(1 << (more - 2).min(10)).min(LONGEST_PAUSE),
    }
}

fn ordinal(count: u32) -> String {
    let ending = match (count % 10, count % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{count}{ending}")
}

/// The link has ended: the process ends, or has.
fn watch_end(id: u64, mut child: Child, outcome: io::Result<()>, events: &Sender<Event>) {
    let _ = events.send(Event::Lost(id));
    let mut how = String::new();
    if let Err(error) = outcome {
        how = format!("it could not be understood: {error}; ");
        let _ = child.kill();
    }
    how += &child.wait().map_or_else(|error| error.to_string(), describe);
    let _ = events.send(Event::Gone(id, how));
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_growing() {
        assert_eq!([0, 1, 2, 3, 4].map(|n| pause(n).as_millis()), [0, 0, 100, 200, 400]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn processes_suit_what_asks_for_no_more() {
        let layout = |workers, paths: &[&str]| Layout {
            workers,
            processes: 1,
            identity: None,
            readable: Some(paths.iter().map(|path| (PathBuf::from(path), Some((1, 2)))).collect()),
            sealed: None,
            spill: None,
        };
        assert!(layout(2, &["/a", "/b"]).suits(&layout(2, &["/b"])));
        assert!(!layout(2, &["/a"]).suits(&layout(2, &["/a", "/b"])));
        assert!(!layout(2, &["/a"]).suits(&layout(3, &["/a"])));
        let open = Layout { readable: None, ..layout(2, &[]) };
        let sealed = |beside: &[&str]| {
            let beside = beside.iter().map(|path| (PathBuf::from(path), Some((1, 2)))).collect();
            Layout { sealed: Some((vec!["/k".into()], beside)), ..layout(2, &["/"]) }
        };
        assert!(sealed(&["/a", "/b"]).suits(&sealed(&["/a"])) && !sealed(&["/a"]).suits(&sealed(&["/b"])));
        assert!(!layout(2, &["/"]).suits(&sealed(&[])) && !sealed(&[]).suits(&layout(2, &["/"])));
        assert!(!open.suits(&layout(2, &[])) && !layout(2, &[]).suits(&open) && open.suits(&open));
    }
}
