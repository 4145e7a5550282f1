//! The server processes: started, watched, replaced.
//!
//! A process comes up in two steps, so that settings are in force in all processes or in none: it prepares, and
//! when all have, it commits. One that ends by mistake gets a successor at once, on the same sockets, in which
//! clients wait meanwhile; when that ends too within a second of serving, the next waits longer and longer, and
//! never for good. Nothing here polls: links that break and processes that end are events.

mod allocator;
mod end;
mod giving;
mod layout;
mod pause;
mod publish;
mod pulse;
mod state;
#[cfg(test)]
mod tests;

pub use layout::{Layout, Revision};
pub use state::{Asked, News, Start, State};

use super::Event;
use super::pools::Pools;
use super::sealing;
use super::sockets::Sockets;
use super::status_registry::{self, StatusRegistry};
use super::upstreams::Upstreams;
use super::{logs::Logs, upgrade};
use crate::certificates::CertificateWatch;
use crate::link::{Answer, Begin, Link, OF_THE_MASTER, Question, ToMaster, ToServer, Wellness};
use crate::server::privileges;
use anyhow::{Context, Result};
use end::watch_end;
use giving::Given;
use pause::{ordinal, pause};
use pulse::{Due, Pulse};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tidegate_config::settings::Level;
use tidegate_core::log;
use tidegate_core::tls::TlsUpdate;
use tidegate_io::passing;
use tidegate_modules::gateway::via;

/// How long who could not take the lists of access is left until it is given them again.
const ACCESS_PAUSE: Duration = Duration::from_secs(1);
/// How long a process may take until it is ready for settings.
pub const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long a process that has prepared may take to take that up: somewhat longer than it gives its own workers.
pub const COMMIT_PATIENCE: Duration = Duration::from_secs(15);
/// How long a process that was told to end now may take.
const STOP_PATIENCE: Duration = Duration::from_secs(6);
/// A process that has served so long is no part of a series of failures.
const SOUND: Duration = Duration::from_secs(1);
/// One that has served so long and crashes as the one before it did is no part of a series either.
const STEADY: Duration = Duration::from_secs(20);
/// An end that comes from outside: to serve on at once is all that can be done about it.
const KILLED: &str = "signal 9";

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
    /// The one that it serves by, while it has been told of another that it has not been told to take up.
    before: Option<u64>,
    /// Times that it was given logs and has not said yet that it uses them.
    logs_given: u32,
    /// When it is given once more what access asks of files, which it could not take.
    access_due: Option<Instant>,
    pub layout: Layout,
    /// It has said its last words, or will say none.
    pub has_ended: bool,
    /// Connections that its end has cut.
    pub cut: u64,
    link: Arc<Link>,
    handle: Option<OwnedFd>,
    started: i64,
    serving_since: Option<Instant>,
    /// While it serves.
    pulse: Option<Pulse>,
    /// How long it has served before it ended.
    served: Duration,
    /// When it must be done with what it does.
    deadline: Option<Instant>,
    /// It was told to end now.
    is_told: bool,
    /// It was ended by force because it did not.
    is_killed: bool,
    /// Nobody has told it to end, and nobody else says that it has.
    is_end_news: bool,
    /// It has said before it served that it has to end. It says so once.
    has_to_leave: bool,
}

#[derive(Default)]
struct Place {
    restarts: u64,
    /// Processes that ended by mistake one after the other, soon after their start.
    failures: u32,
    /// Processes that crashed in the same way one after the other, each within [`STEADY`].
    crashes: u32,
    /// How the last one has ended.
    last_end: String,
    next_try: Option<Instant>,
}

/// All of them.
pub struct Servers {
    pub list: Vec<Server>,
    places: Vec<Place>,
    last_id: u64,
    /// Times that a process was told to prepare.
    prepared: u64,
    /// What the error log takes in place of what the settings say.
    pub log_level: Option<Level>,
    status_registry: Arc<StatusRegistry>,
    pools: Arc<Pools>,
    upstreams: Arc<Upstreams>,
    events: Sender<Event>,
    executable: PathBuf,
    /// What tells this server from all others.
    name: u64,
    /// By which stores of responses in all processes hear of what applications have changed.
    pub purges: Option<Arc<OwnedFd>>,
    /// What every process is told of TLS, but for the files of the settings.
    pub tls: TlsUpdate,
    /// Nothing is started again.
    pub is_ending: bool,
    /// Those that have served and were ended by force: nobody knows what was open there.
    pub forced: Vec<u32>,
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
            log_level: None,
            status_registry,
            pools,
            upstreams,
            events,
            executable,
            name: via::new_server(),
            purges: None,
            tls: TlsUpdate::default(),
            is_ending: false,
            forced: Vec::new(),
            news: VecDeque::new(),
        }
    }

    /// The next thing that has happened.
    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Starts a process and has it prepare.
    pub fn start(&mut self, place: usize, revision: &Revision, start: Start) -> Result<u64> {
        let (ours, theirs) = passing::pair().context("cannot open a link to a server process")?;
        // What lies there is for the process to find out: the master asks no file system, which may hang.
        let layout = &revision.layout;
        let readable = layout.readable.as_ref().map(|paths| {
            let system = privileges::SYSTEM.iter().map(PathBuf::from);
            paths.iter().map(|(path, _)| path.clone()).chain(system).collect()
        });
        let begin = Begin {
            identity: layout.identity.clone(),
            readable,
            sealed: layout.sealed.as_ref().map(|(paths, _)| paths.clone()).unwrap_or_default(),
            is_recovery: matches!(start, Start::Recovery { .. }),
            spill: layout.spill.clone(),
            caches: layout.caches.iter().map(|(path, _)| path.clone()).collect(),
            server: self.name,
        };
        let purges = self.purges.as_ref().map(|memory| memory.try_clone()).transpose();
        let purges = purges.context("cannot copy the memory of purges")?;
        let (id, link, gives) = self.watch(ours)?;
        link.order(&begin, purges.into_iter().collect());
        let mut command = Command::new(&self.executable);
        command.arg0("tidegate").arg("server").stdin(Stdio::from(theirs));
        command
            .env(allocator::VARIABLE, allocator::tunables(std::env::var_os(allocator::VARIABLE).as_deref()));
        for name in OF_THE_MASTER {
            command.env_remove(name);
        }
        let child = command.env_remove(upgrade::VARIABLE).spawn().context("cannot start a server process")?;
        drop(command); // with it our copy of their end
        self.take_in(id, (place, start), (child, link, gives), revision).map(|()| id)
    }

    /// The number of a process that is about to be started, and the link to it; who listens to it waits for the process
    /// itself. There is no process yet that could be left behind where one of this fails.
    fn watch(&mut self, ours: OwnedFd) -> Result<(u64, Arc<Link>, Sender<Child>)> {
        self.last_id += 1;
        let id = self.last_id;
        let (gives, given) = channel();
        let (status_registry, heard, lost) =
            (self.status_registry.clone(), self.events.clone(), self.events.clone());
        let link = Link::start(
            ours,
            move |link, message, _| {
                if let Some(message) = status_registry::take_answers(&status_registry, link, message) {
                    let _ = heard.send(Event::FromServer(id, message));
                }
            },
            move |outcome| {
                if let Ok(child) = given.recv() {
                    watch_end(id, child, outcome, &lost);
                }
            },
        )
        .context("cannot start a thread")?;
        Ok((id, link, gives))
    }

    /// A process has been started: it is watched from now on, and told to prepare.
    fn take_in(
        &mut self,
        id: u64,
        (place, start): (usize, Start),
        (child, link, gives): (Child, Arc<Link>, Sender<Child>),
        revision: &Revision,
    ) -> Result<()> {
        let pid = child.id();
        let handle =
            Pid::from_raw(pid.cast_signed()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let _ = gives.send(child);
        let server = Server {
            id,
            place,
            pid,
            state: State::Starting(start),
            asked: 0,
            revision: revision.number,
            before: None,
            logs_given: 0,
            access_due: None,
            layout: revision.layout.clone(),
            has_ended: false,
            cut: 0,
            link,
            handle,
            started: tidegate_io::clock::wall_seconds(),
            serving_since: None,
            pulse: None,
            served: Duration::ZERO,
            deadline: Some(Instant::now() + START_PATIENCE),
            is_told: false,
            is_killed: false,
            is_end_news: false,
            has_to_leave: false,
        };
        self.list.push(server);
        let is_recovery = matches!(start, Start::Recovery { .. });
        let what_for = if is_recovery { Given::Recover } else { Given::Serve };
        let prepared = self.send_settings(id, revision, what_for);
        let prepared = self.or_end(id, prepared);
        self.publish();
        prepared
    }

    /// Nobody knows of a process whose start has failed: it is ended.
    fn or_end(&mut self, id: u64, started: Result<()>) -> Result<()> {
        started.inspect_err(|_| self.kill(id))
    }

    /// Has these prepare. Where one cannot be told, those that were told already forget it.
    pub fn prepare(&mut self, ids: &[u64], revision: &Revision) -> Result<()> {
        self.prepare_with(ids, |servers, id| servers.send_settings(id, revision, Given::Serve))
    }

    fn prepare_with(
        &mut self,
        ids: &[u64],
        mut prepare: impl FnMut(&mut Servers, u64) -> Result<()>,
    ) -> Result<()> {
        let outcome = ids.iter().try_for_each(|id| prepare(self, *id));
        if outcome.is_err() {
            ids.iter().for_each(|id| self.discard(*id));
        }
        outcome
    }

    /// Has a process forget what it has prepared.
    pub fn discard(&mut self, id: u64) {
        if let Some(server) = self.list.iter_mut().find(|server| server.id == id)
            && let Some(before) = server.before.take()
        {
            server.revision = before;
        }
        self.order(id, &ToServer::Discard);
    }

    /// Has a process that has prepared take that up. One that does not within [`COMMIT_PATIENCE`] is ended and replaced.
    pub fn commit(&mut self, id: u64) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        match server.state {
            State::Starting(start) => server.state = State::Committing(start),
            State::Serving => {}
            State::Committing(_) | State::Draining => return,
        }
        server.before = None;
        server.deadline = Some(Instant::now() + COMMIT_PATIENCE);
        self.order(id, &ToServer::Commit);
    }

    fn order(&self, id: u64, order: &ToServer) {
        if let Some(server) = self.list.iter().find(|server| server.id == id) {
            server.order(order, Vec::new());
        }
    }

    /// Has a process end when nothing is open any more, within `patience`.
    pub fn drain(&mut self, id: u64, close_idle: bool, patience: Duration) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        server.state = State::Draining;
        server.deadline = Some(Instant::now() + patience);
        server.order(&ToServer::Drain { close_idle }, Vec::new());
        self.publish();
    }

    /// Has a process end that another has taken the place of, as [`Servers::drain`] does. What comes until then on connections that
    /// are open is answered by the settings in force. Where it does not reach what they name, or cannot be told, connections between
    /// requests are closed.
    pub fn retire(&mut self, id: u64, revision: &Revision) {
        let Some(server) = self.list.iter().find(|server| server.id == id) else { return };
        let is_behind = server.revision < revision.number;
        let may_take_them = is_behind && server.layout.reaches(&revision.layout);
        let has_them = may_take_them && self.send_settings(id, revision, Given::Retire).is_ok();
        if has_them {
            self.order(id, &ToServer::Commit);
        }
        self.drain(id, false, revision.settings.drain_timeout);
        if is_behind && !has_them {
            self.order(id, &ToServer::Drain { close_idle: true });
        }
    }

    /// A revision is in force: those that drain by one before close connections between requests.
    pub fn leave_behind(&self, number: u64) {
        let is_behind = |server: &&Server| {
            server.state == State::Draining && !server.has_ended && server.revision < number
        };
        for server in self.list.iter().filter(is_behind) {
            server.order(&ToServer::Drain { close_idle: true }, Vec::new());
        }
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

    /// Those that serve.
    pub fn serving(&self) -> Vec<u64> {
        self.ids(|state| state == State::Serving)
    }

    /// Those that do not serve yet.
    pub fn starting(&self) -> Vec<u64> {
        self.ids(State::is_early)
    }

    fn ids(&self, is_meant: impl Fn(State) -> bool) -> Vec<u64> {
        self.list.iter().filter(|server| is_meant(server.state)).map(|server| server.id).collect()
    }

    /// These, each with its place and the number of its process.
    pub fn numbers(&self, ids: &[u64]) -> Vec<(u64, Asked)> {
        let of = self.list.iter().filter(|server| ids.contains(&server.id));
        of.map(|server| (server.id, Asked { place: server.place, pid: server.pid })).collect()
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
            place.crashes = 0;
        }
        self.publish();
    }

    /// A process has said something.
    pub fn said(&mut self, id: u64, message: ToMaster, revision: &Revision) {
        let Some(index) = self.list.iter().position(|server| server.id == id) else { return };
        let Some(server) = self.list.get_mut(index) else { return };
        match message {
            ToMaster::Found(found) => return server.layout.has_found(found),
            // To an earlier one, which was given up.
            ToMaster::Prepared(number) | ToMaster::Failed(number, _) if number != server.asked => {}
            ToMaster::Prepared(_) => {
                self.news.push_back(News::Prepared(id));
                if matches!(server.state, State::Starting(Start::Recovery { .. })) {
                    self.commit(id);
                }
            }
            ToMaster::Failed(_, why) => {
                match server.state {
                    State::Starting(Start::Recovery { .. }) => {
                        log::error(format_args!("server process {} cannot serve: {why}", server.pid));
                        server.is_told = true;
                        server.kill();
                    }
                    State::Draining => log::info(format_args!(
                        "server process {} closes connections between requests, since it cannot end by the new settings: {why}",
                        server.pid
                    )),
                    _ => {}
                }
                self.news.push_back(News::Failed(id, why));
            }
            ToMaster::Committed => self.committed(index, revision),
            ToMaster::LogsInUse => {
                server.logs_given = server.logs_given.saturating_sub(1);
                self.news.push_back(News::LogsInUse(id));
            }
            ToMaster::LogsRefused(why) => {
                server.logs_given = server.logs_given.saturating_sub(1);
                self.news.push_back(News::LogsRefused(id, why));
            }
            ToMaster::AccessRefused { why, is_again } => {
                if !is_again {
                    log::error(why);
                }
                server.access_due = Some(Instant::now() + ACCESS_PAUSE);
            }
            ToMaster::Marked(number) => self.news.push_back(News::Marked(id, number)),
            ToMaster::AcceptsNoMore => self.news.push_back(News::AcceptsNoMore(id)),
            ToMaster::Leaving => match server.state {
                State::Serving => self.replace(id, revision),
                State::Starting(_) | State::Committing(_) => server.has_to_leave = true,
                State::Draining => {}
            },
            ToMaster::Ended { figures, cut, unwritten } => {
                end::say_unwritten(server.pid, &unwritten);
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
        let is_current = server.revision == revision.number;
        self.news.push_back(News::Committed { id: server.id, place: server.place, is_current });
        if server.state == State::Draining {
            return; // what it has to be done with now is its end
        }
        server.deadline = None;
        let State::Committing(start) = server.state else { return };
        server.state = State::Serving;
        server.serving_since = Some(Instant::now());
        server.pulse = Some(Pulse::new(Instant::now()));
        let (id, place, own) = (server.id, server.place, server.revision);
        if let Start::Recovery { replaces } = start {
            log::info(format_args!("server process {} serves", server.pid));
            // Another of this place may have come up meanwhile, by a reload: the one with the older settings goes.
            let is_there = |other: &&Server| {
                let is_relied_on = matches!(other.state, State::Serving | State::Committing(_));
                other.id != id && other.place == place && is_relied_on
            };
            let twins = self.list.iter().filter(is_there);
            let (older, newer): (Vec<&Server>, Vec<&Server>) = twins.partition(|twin| twin.revision <= own);
            let is_needless = !newer.is_empty();
            let mut leaving: Vec<u64> = older.iter().map(|twin| twin.id).collect();
            leaving.extend(replaces.filter(|old| !leaving.contains(old)));
            leaving.extend(is_needless.then_some(id));
            for leaving in leaving {
                self.retire(leaving, revision);
            }
        }
        let has_to_leave = |server: &Server| server.state == State::Serving && server.has_to_leave;
        if self.list.iter().any(|server| server.id == id && has_to_leave(server)) {
            self.replace(id, revision);
        }
    }

    /// The link to a process is broken: it ends, or has ended. Its clients in line wait for the next.
    pub fn lost(&mut self, id: u64) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        let is_mistake = !server.has_ended && server.state.is_missed();
        server.has_ended = true;
        server.is_end_news = is_mistake && !server.is_told;
        server.state = State::Draining;
        self.news.push_back(News::Ended(id));
        let place = server.place;
        server.served = server.serving_since.map(|since| since.elapsed()).unwrap_or_default();
        let (was_sound, pid) = (server.was_sound(), server.pid);
        self.status_registry.has_ended(id, None);
        if is_mistake
            && !self.is_ending
            && let Some(place) = self.places.get_mut(place)
        {
            place.missed(was_sound);
            self.status_registry.process_replaced(pid);
        }
        self.publish();
    }

    /// A process has ended, and this is how.
    pub fn gone(&mut self, id: u64, how: &str) {
        let Some(index) = self.list.iter().position(|server| server.id == id) else { return };
        let server = self.list.remove(index);
        if server.is_end_news && !self.is_ending {
            let mut said = format!("server process {} has ended ({how})", server.pid);
            if let Some(place) = self.places.get_mut(server.place) {
                let wait = pause(place.failures.max(place.crashes)).as_secs_f32();
                let is_crash = server.served < STEADY && how != KILLED;
                place.crashes = match is_crash {
                    true if place.last_end == how => place.crashes + 1,
                    is_first => is_first.into(),
                };
                how.clone_into(&mut place.last_end);
                if place.failures > 1 {
                    let count = ordinal(place.failures);
                    said += &format!(", the {count} in a row that served for less than a second");
                } else if place.crashes > 2 {
                    let (count, limit) = (ordinal(place.crashes), STEADY.as_secs());
                    said +=
                        &format!(", the {count} in a row that ended so and served for less than {limit} s");
                }
                if place.failures > 1 || place.crashes > 2 {
                    said += &format!("; the next one waits {wait:.1} s");
                }
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
        self.give_access_again(now, revision);
        let mut late = Vec::new();
        for server in &mut self.list {
            if server.deadline.is_some_and(|deadline| deadline <= now) {
                late.push(server.id);
            }
        }
        for id in late {
            self.hurry(id);
        }
        self.look_at_pulses(now);
    }

    /// It is told to end now, unless it has been: who has been told has its time all the same, however often that is asked for.
    pub fn stop_now(&mut self, id: u64) {
        if self.list.iter().any(|server| server.id == id && !server.is_told && !server.is_killed) {
            self.hurry(id);
        }
    }

    /// Its time is over: it is told to end, and when that was in vain it is ended.
    fn hurry(&mut self, id: u64) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        if server.state == State::Draining && !server.is_told {
            server.is_told = true;
            server.deadline = Some(Instant::now() + STOP_PATIENCE);
            server.link.send(&ToServer::Stop, Vec::new());
            return;
        }
        if std::mem::replace(&mut server.is_killed, true) {
            return self.give_up(id);
        }
        log::error(format_args!("server process {} does not react and is ended", server.pid));
        if server.serving_since.is_some() {
            self.forced.push(server.pid);
        }
        server.deadline = Some(Instant::now() + STOP_PATIENCE);
        server.kill();
    }

    /// One that the kernel does not end, because it waits for a file system: nobody waits for it any longer.
    fn give_up(&mut self, id: u64) {
        self.lost(id);
        if let Some(index) = self.list.iter().position(|server| server.id == id) {
            let server = self.list.remove(index);
            log::error(format_args!(
                "server process {} cannot be ended, and is left: look for a file system that does not answer",
                server.pid
            ));
        }
        self.publish();
    }

    /// When [`Servers::tick`] is next needed.
    pub fn next_tick(&self) -> Option<Instant> {
        let tries = self.places.iter().filter_map(|place| place.next_try).filter(|_| !self.is_ending);
        let looks = self.list.iter().filter_map(Server::next_look);
        let lists = self.list.iter().filter_map(|server| server.access_due);
        tries.chain(lists).chain(self.list.iter().filter_map(|server| server.deadline)).chain(looks).min()
    }

    /// Asks those how they are that have not been asked for a while, and ends those that have not answered for long.
    fn look_at_pulses(&mut self, now: Instant) {
        for server in self.list.iter_mut().filter(|server| server.next_look().is_some()) {
            match server.pulse.as_mut().map_or(Due::Nothing, |pulse| pulse.look(now)) {
                Due::Nothing => {}
                Due::Ask => {
                    let (id, events) = (server.id, self.events.clone());
                    server.link.ask(ToServer::Question, Question::Wellness, move |answer| {
                        if let Answer::Wellness(wellness) = answer {
                            let _ = events.send(Event::Wellness(id, wellness));
                        }
                    });
                }
                Due::Dead => {
                    log::error(format_args!(
                        "server process {} has answered nothing for {} s and is ended",
                        server.pid,
                        Pulse::patience().as_secs()
                    ));
                    server.pulse = None;
                    server.kill();
                }
            }
        }
    }

    /// A process has said how it is: one that is not well is replaced.
    pub fn has_wellness(&mut self, id: u64, wellness: &Wellness, revision: &Revision) {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return };
        let (pid, is_looked_at) = (server.pid, server.next_look().is_some());
        let Some(pulse) = server.pulse.as_mut() else { return };
        // One that answers while it takes up settings is as alive as any.
        let has_to_go = pulse.answered(Instant::now(), wellness.silent == 0);
        if !is_looked_at {
            return;
        }
        if let Some(limit) = &wellness.lowered {
            log::error(format_args!(
                "the limit of {limit} of server process {pid} was lowered from outside, and another takes its place: whoever \
                 did this is root or of its user"
            ));
        } else if has_to_go {
            log::error(format_args!(
                "{} of the workers of server process {pid} do not answer, and another takes its place",
                wellness.silent
            ));
        } else {
            return;
        }
        server.pulse = None;
        self.replace(id, revision);
    }

    /// A revision is in force: those that have started meanwhile with the one before, in the place of one that has
    /// ended, are replaced.
    pub fn catch_up(&mut self, revision: &Revision) {
        let is_behind = |server: &&Server| {
            server.revision < revision.number && !server.has_ended && server.state != State::Draining
        };
        let behind = self.list.iter().filter(is_behind).map(|server| (server.id, server.place, server.state));
        for (id, place, state) in behind.collect::<Vec<_>>() {
            match state {
                State::Starting(Start::Recovery { replaces })
                | State::Committing(Start::Recovery { replaces }) => {
                    self.kill(id);
                    self.start_again(place, replaces, revision);
                }
                _ => self.start_again(place, Some(id), revision),
            }
        }
    }

    /// One that serves has to end: it is told to drain when another serves in its place, which comes at once unless
    /// several have had to end soon after their start.
    fn replace(&mut self, id: u64, revision: &Revision) {
        let Some(server) = self.list.iter().find(|server| server.id == id) else { return };
        if let Some(place) = self.places.get_mut(server.place).filter(|_| !self.is_ending) {
            place.missed(server.was_sound());
            self.status_registry.process_replaced(server.pid);
            self.tick(revision);
        }
    }

    fn start_again(&mut self, place: usize, replaces: Option<u64>, revision: &Revision) {
        if let Err(error) = self.start(place, revision, Start::Recovery { replaces }) {
            log::error(format_args!("{error:#}; trying again shortly"));
            if let Some(place) = self.places.get_mut(place) {
                place.failures += 1;
                place.next_try = Some(Instant::now() + pause(place.failures.max(2)));
            }
        }
    }
}

impl Place {
    /// Its process ends, or has to: another is due.
    fn missed(&mut self, was_sound: bool) {
        self.restarts += 1;
        self.failures = if was_sound { 0 } else { self.failures + 1 };
        self.next_try = Some(Instant::now() + pause(self.failures.max(self.crashes)));
    }
}

impl Server {
    /// It has served for long enough to be no part of a series of failures.
    fn was_sound(&self) -> bool {
        self.serving_since.is_some_and(|since| since.elapsed() >= SOUND)
    }

    /// Tells it what it may not miss.
    fn order(&self, order: &ToServer, descriptors: Vec<OwnedFd>) -> bool {
        self.told(|link| link.order(order, descriptors))
    }

    /// Whether it was told. One that has taken in nothing for so long that no more fits is ended, and replaced by one that
    /// knows: it would go on with what it was told before.
    fn told(&self, tell: impl FnOnce(&Link) -> bool) -> bool {
        let is_listening = self.link.is_open();
        let is_told = tell(&self.link);
        if !is_told && !self.has_ended && is_listening {
            log::error(format_args!("server process {} takes no orders and is ended", self.pid));
            self.kill();
        }
        is_told
    }

    /// When its pulse is looked at next: while it serves and nothing else has an end to its patience.
    fn next_look(&self) -> Option<Instant> {
        let is_meant = self.state == State::Serving && self.deadline.is_none() && !self.has_ended;
        self.pulse.filter(|_| is_meant).map(|pulse| pulse.next())
    }

    fn kill(&self) {
        if let Some(handle) = &self.handle {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}
