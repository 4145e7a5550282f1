//! The main process: it owns the listening sockets, the settings, the logs and the server processes, and obeys
//! signals and the control socket. It never touches client traffic, so nothing here is ever in a request's way.
//!
//! `servers` starts and replaces the server processes, `status_registry` is what the whole server tells of itself,
//! `reload` and `upgrade` change settings and program. The order of the start matters: what can fail comes
//! first, what others can see comes last.

pub mod access;
mod acme;
mod activation;
pub mod admin;
mod announcements;
pub mod cache_folders;
mod changes;
pub mod control;
mod credentials;
mod disk;
mod ending;
mod findings;
mod history;
mod kept_bans;
mod kept_file;
mod load;
pub mod logs;
mod looks;
mod notify;
mod otlp;
mod parts;
mod pid_file;
mod pools;
pub mod proof;
pub mod rates;
mod reload;
mod rotation;
pub mod sealing;
pub mod servers;
mod sockets;
mod status_registry;
mod stores;
mod tls;
mod totals;
pub mod upgrade;
mod upstreams;
pub mod users;
mod wanted;

pub use acme::default_storage;

use crate::certificates::CertificateWatch;
use crate::descriptors;
use crate::link::{ToMaster, Wellness};
use crate::revision::{self, ServeOptions, SettingsFrom};
use crate::server::privileges;
use access::{AccessReading, AccessState};
use admin::AdminApi;
use anyhow::{Context, Result};
use changes::{Change, Order, Upgrade};
use control::{ControlSocket, Reply, Request, Responder};
use disk::Disk;
use ending::Ending;
use findings::FindingsWatch;
use history::HistoryTicker;
use load::LoadHooks;
use logs::Logs;
use looks::Looks;
use notify::Notifier;
use otlp::Teller;
use pid_file::PidFile;
use pools::Pools;
use rates::Rates;
use rotation::Rotation;
use sealing::ControlPaths;
use servers::{Layout, News, Revision, Servers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use sockets::Sockets;
use status_registry::StatusRegistry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tidegate_config::settings::{ListenAddress, LogTarget};
use tidegate_config::{Diagnostic, Settings, WrittenSettings};
use tidegate_core::admission::{save_address_space, shortage_of_address_space};
use tidegate_core::log::{self, Writer};
use tidegate_core::tls::{PairKey, TlsFiles};
use tidegate_io::file::{Patience, Root, is_openat2_missing};
use tidegate_io::off_limits;
use tidegate_modules::cache::CacheDirectory;
use tidegate_modules::gateway::supervise::process_table::Handle;
use tidegate_tls::Pair;
use tls::Tls;
use upgrade::Handover;
use upstreams::Upstreams;
use wanted::Wanted;

/// How long server processes may take to do what they are told.
const PATIENCE: Duration = Duration::from_secs(10);
/// Orders that wait for the one under way; the others are turned away.
const WAITING: usize = 8;

/// What the master waits for.
pub enum Event {
    /// A signal has come.
    Signal(i32),
    /// An operator wants something.
    Order(Request, Responder),
    /// It is known what has become of the new program.
    Upgraded,
    /// The thread of this number has read what a reload takes up.
    Read(u64, Box<reload::Read>),
    /// A log was opened anew, or a sentence says why not.
    Reopened(LogTarget, Result<Logs, String>),
    /// Files of TLS were looked at.
    Looked(Box<tls::Looked>),
    /// Files of logins were looked at.
    Credentials(Box<credentials::Looked>),
    /// Files that access asks were looked at.
    LookedAtAccess(Box<access::Looked>),
    /// The thread for automatic certificates has said something.
    Acme(acme::AcmeEvent),
    /// A server process has said something.
    FromServer(u64, ToMaster),
    /// A server process has said how it is.
    Wellness(u64, Wellness),
    /// The link to a server process is broken.
    Lost(u64),
    /// A server process has ended, and how.
    Gone(u64, String),
    /// The process that an upgrade has replaced by this one has said its last word.
    PredecessorEnded,
}

/// What was read with the first settings.
pub struct Read {
    /// Certificates that can be served.
    pub pairs: HashMap<PairKey, Pair>,
    /// The state of the files of TLS just before they were read.
    pub seen: CertificateWatch,
    /// What access asks of files.
    pub access: AccessReading,
    /// Warnings that were found.
    pub warnings: Vec<Diagnostic>,
    /// The settings as they were written.
    pub written: WrittenSettings,
}

/// The server, but for its server processes.
pub struct Master {
    options: ServeOptions,
    /// In force.
    current: Revision,
    servers: Servers,
    tls: Tls,
    credentials: credentials::Credentials,
    announcements: announcements::Announcements,
    access: Looks,
    acme: acme::Acme,
    status_registry: Arc<StatusRegistry>,
    writer: Arc<Writer>,
    /// What of the control socket is sealed.
    sealed_control: Option<Arc<ControlPaths>>,
    pid_file: Option<PidFile>,
    pools: Arc<Pools>,
    upstreams: Arc<Upstreams>,
    load_hooks: LoadHooks,
    findings: FindingsWatch,
    admin: AdminApi,
    otlp: Teller,
    history: HistoryTicker,
    control: Option<ControlSocket>,
    notifier: Notifier,
    next_alive: Option<Instant>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// What came while the first processes were waited for.
    deferred: VecDeque<Event>,
    /// What is under way. Everything else goes on meanwhile.
    change: Option<Change>,
    /// What waits for its end.
    waiting: VecDeque<Order>,
    /// What reads the files of reloads.
    readers: reload::Readers,
    /// What writes and removes files.
    disk: Disk,
    /// Logs that are opened anew.
    rotation: Rotation,
    /// The program before this one, as long as it finishes what is open there.
    predecessor: Option<Handle>,
}

impl Master {
    /// Opens logs and sockets, starts the server processes, and takes the control socket and the pid file. When
    /// this returns the server serves; an error is a sentence that says what to do.
    pub fn start(
        options: ServeOptions,
        mut settings: Settings,
        read: Read,
        handover: Option<&Handover>,
    ) -> Result<Master> {
        privileges::close_memory();
        save_address_space();
        let limit = descriptors::raise_limit();
        let notifier = Notifier::from_environment();
        let workers = revision::workers(&settings);
        let (identity, warning) = users::identity(settings.user.as_ref())?;
        let assigned = users::assign(&mut settings, users::can_be_anybody())?;
        let without_folder = cache_folders::make(&settings, identity.as_ref());
        let layout = Layout::of(&settings, workers, identity);
        let logs = Logs::open(&settings, &HashSet::new(), &Wanted::default())?;
        let files = TlsFiles::read(&settings, &TlsFiles::default(), &read.pairs)?;
        let seen = read.seen;
        let access = read.access.complete(&settings, &AccessState::default())?;
        let (given, mut warnings) = activation::take();
        let present = handover.map_or(&given, |left| &left.sockets);
        let sockets = Sockets::open(&settings, layout.total(), present)?;
        warnings.extend(activation::unused(&given, &sockets));
        warnings.extend(without_folder);
        let none = Rates::default();
        let rates = Rates::open(&settings, handover.map_or(&none, |left| &left.rates))?;
        let draft = control::open(&options, &settings, handover.is_some())?;
        let control = draft.as_ref().map(|draft| Arc::new(ControlPaths::of(draft)));
        warnings.extend(sealing::seal(&mut settings, control.as_deref()));
        sealing::keep_ports(&mut settings, &sockets);
        off_limits::set(sealing::paths_of(&settings));
        logs.examine()?;
        let layout = layout.sealed(&settings);
        let (sender, events) = channel();
        watch_signals(sender.clone())?;
        let writer = Writer::start().context("cannot start the log thread")?;
        use_error_log(&writer, &logs, &settings)?;
        // At the terminal it has been said.
        if settings.error_log.target != LogTarget::Stderr {
            read.warnings.iter().map(Diagnostic::in_a_line).for_each(log::warn);
        }
        // A folder that somebody serves for a moment needs no such advice.
        warnings.extend(warning.filter(|_| matches!(options.settings, SettingsFrom::File(_))));
        assigned.iter().for_each(|assigned| log::info(assigned));
        let status_registry = StatusRegistry::new();
        let clients = layout.identity.as_ref().map(|identity| (identity.uid, identity.gid));
        let pools = Pools::start(clients)?;
        pools.adopt(&settings);
        let upstreams = Arc::new(Upstreams::default());
        status_registry.set_pools(pools.clone());
        let mut servers = Servers::new(
            status_registry.clone(),
            (pools.clone(), upstreams.clone()),
            sender.clone(),
            &options.executable,
        );
        servers.purges = match handover.and_then(|left| left.purges.clone()) {
            Some(purges) => Some(purges),
            None => match CacheDirectory::new_purges() {
                Ok(purges) => Some(Arc::new(purges)),
                Err(error) => {
                    log::warn(format_args!(
                        "what an application changes reaches the cache of one server process alone: there is no memory to share it: {error}"
                    ));
                    None
                }
            },
        };
        let current = Revision {
            number: 1,
            settings: Arc::new(settings),
            sockets,
            tls: files,
            seen,
            access,
            logs,
            rates,
            layout,
            assigned,
            warnings: read.warnings.iter().map(Diagnostic::identity).collect(),
            written: Arc::new(read.written),
        };
        let tls = Tls::new(handover.map(|left| left.tickets.as_slice()))?;
        if handover.is_some() {
            status_registry.history.await_predecessor();
        }
        warnings.extend(shortage_of_address_space(current.settings.limits.memory));
        say_what_is_missing(&current.fitted(), limit, &warnings);
        let admin = AdminApi::new(&options, &status_registry, &sender);
        let mut master = Master {
            options,
            current,
            servers,
            tls,
            credentials: credentials::Credentials::default(),
            announcements: announcements::Announcements::default(),
            access: Looks::new("lists of networks and countries"),
            acme: acme::Acme::default(),
            status_registry,
            writer,
            sealed_control: control,
            pid_file: None,
            pools,
            upstreams,
            load_hooks: LoadHooks::default(),
            findings: FindingsWatch::default(),
            admin,
            otlp: Teller::default(),
            history: HistoryTicker::default(),
            control: None,
            next_alive: notifier.watchdog().map(|every| Instant::now() + every),
            notifier,
            events,
            sender,
            deferred: VecDeque::new(),
            change: None,
            waiting: VecDeque::new(),
            readers: reload::Readers::default(),
            disk: Disk::default(),
            rotation: Rotation::default(),
            predecessor: None,
        };
        master.begin_tls()?;
        master.adopt_access();
        master.upstreams.adopt(&master.current.settings, master.tls.store());
        // A successor has the tables themselves.
        let bans_file = master.current.settings.bans_file.clone().filter(|_| handover.is_none());
        if let Some(path) = &bans_file {
            kept_bans::ban_again(path, &master.current.rates);
        }
        master.start_servers()?;
        let (status_registry, sender) = (master.status_registry.clone(), master.sender.clone());
        let path = master.current.settings.pid_file.clone();
        let last =
            draft.map(|draft| draft.install(status_registry, sender)).transpose().and_then(|control| {
                master.control = control.flatten();
                path.as_deref().map(PidFile::write).transpose()
            });
        match last {
            Ok(pid_file) => master.pid_file = pid_file,
            Err(error) => {
                master.cut_servers();
                return Err(error);
            }
        }
        if let Some(path) = bans_file {
            master.disk.run("the file of bans", move || kept_bans::remove(&path));
        }
        master.take_number();
        Ok(master)
    }

    /// A new revision is in force: its number.
    fn take_number(&mut self) {
        if self.servers.log_level.is_some() {
            self.set_log_level(None);
        }
        let (addresses, total) = (self.listening(), self.current.layout.total());
        self.acme.adopt(&self.current.settings, &self.sender);
        self.history.adopt(&self.current.settings, &self.status_registry);
        self.adopt_credentials();
        self.current.number = self.status_registry.next_revision(&self.current.settings, addresses, total);
        self.status_registry.set_rates(self.current.rates.clone());
        self.status_registry.set_written(self.current.written.clone());
        self.load_hooks.adopt(&self.current.settings, &self.status_registry);
        self.status_registry.set_certificates(self.tls.certificates(&self.current.settings));
        self.findings.adopt(&self.current.settings, &self.status_registry);
        self.admin.adopt(self.current.number, &self.current.settings, &self.current.written);
        self.otlp.adopt(&self.current.settings, &self.status_registry);
    }

    /// Every address that is listened on, as a reader would type it.
    pub fn listening(&self) -> Vec<String> {
        let listeners = self.current.sockets.taken().zip(&self.current.settings.listeners);
        listeners.map(|(taken, listener)| url_of(taken, listener.tls.is_some())).collect()
    }

    /// The program that this one replaces hears that it serves. `false`: it has ended meanwhile, and so should this one.
    pub fn take_over(&mut self, handover: Handover, notes: &str) -> bool {
        self.predecessor = handover.ready(notes, &self.status_registry, self.sender.clone());
        self.predecessor.is_some()
    }

    /// Serves until told to end.
    pub fn run(mut self) {
        tidegate_io::process::let_go_of_code();
        tidegate_io::allocator::trim();
        // The service manager hears from a predecessor who is ready.
        if self.predecessor.is_none() {
            self.notifier.ready(&format!("listening on {}", self.listening().join(", ")));
        }
        let ending = loop {
            self.look_at_tls();
            self.look_at_credentials();
            self.look_at_access();
            let event = self.deferred.pop_front().or_else(|| self.next_event(None));
            if let Some(ending) = event.and_then(|event| self.obey(event)) {
                break ending;
            }
            if let Some(ending) = self.advance() {
                break ending;
            }
        };
        self.end(ending);
    }

    /// Ends at once, without a word to clients: for a server that must not have started.
    pub fn abandon(self) {
        self.end(Ending::now());
    }

    /// The next event, or nothing when it was time for something else: for what `servers` has to do, for the
    /// watchdog, for a change that is under way, or for what the caller waits for.
    fn next_event(&mut self, until: Option<Instant>) -> Option<Event> {
        let looks = [&self.tls.looks, &self.access, &self.credentials.looks];
        let look = looks.iter().filter_map(|looks| looks.next()).min().filter(|_| !self.servers.is_ending);
        let change = self.change.as_ref().and_then(Change::deadline);
        let logs = self.rotation.deadline();
        let next = [until, self.servers.next_tick(), self.next_alive, look, change, logs];
        let event = match next.into_iter().flatten().min() {
            Some(next) => self.events.recv_timeout(next.saturating_duration_since(Instant::now())).ok(),
            None => self.events.recv().ok(),
        };
        if let (Some(at), Some(every)) = (self.next_alive, self.notifier.watchdog())
            && at <= Instant::now()
        {
            self.notifier.alive();
            self.next_alive = Some(Instant::now() + every);
        }
        self.servers.tick(&self.current);
        event
    }

    /// Takes in what has become of server processes, and what was not waited for any longer.
    fn advance(&mut self) -> Option<Ending> {
        while let Some(news) = self.servers.next_news() {
            self.advance_reload(&news);
            self.announcements.advance(&news);
            if let News::LogsRefused(_, why) = &news {
                self.rotation.was_refused(why);
            }
            if let (
                Some(Change::Upgrade(Upgrade::HandingOver { waits_for, .. })),
                News::AcceptsNoMore(id) | News::Ended(id),
            ) = (&mut self.change, &news)
            {
                waits_for.remove(id);
            }
        }
        let now = Instant::now();
        self.look_at_reload(now);
        self.look_at_logs(now);
        self.look_at_upgrade(now)
    }

    /// Goes on with server processes alone, until there is news of one. `None`: the time is over.
    fn next_news(&mut self, until: Instant) -> Option<News> {
        loop {
            if let Some(news) = self.servers.next_news() {
                return Some(news);
            }
            if until <= Instant::now() {
                return None;
            }
            if let Some(event) = self.next_event(Some(until))
                && let Some(other) = self.obey_servers(event)
            {
                self.deferred.push_back(other);
            }
        }
    }

    /// What server processes say and do; what is none of that comes back.
    fn obey_servers(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Acme(said) => self.hear_acme(said),
            Event::FromServer(id, message) => self.servers.said(id, message, &self.current),
            Event::Wellness(id, wellness) => self.servers.has_wellness(id, &wellness, &self.current),
            Event::Lost(id) => {
                self.servers.lost(id);
                self.servers.tick(&self.current); // the next one is due at once
            }
            Event::Gone(id, how) => {
                self.servers.gone(id, &how);
                self.current.rates.give_back();
            }
            Event::Reopened(target, outcome) => self.have_reopened(&target, outcome),
            Event::Looked(looked) => self.have_looked(*looked),
            Event::Credentials(looked) => self.have_looked_at_credentials(*looked),
            Event::LookedAtAccess(looked) => self.have_looked_at_access(*looked),
            Event::PredecessorEnded => self.predecessor = None,
            other => return Some(other),
        }
        None
    }

    fn obey(&mut self, event: Event) -> Option<Ending> {
        match event {
            Event::Signal(SIGHUP) => self.ask_for(Order::Reload { allows_loss: false, responder: None }),
            Event::Signal(SIGUSR1) => self.reopen_logs(),
            Event::Signal(SIGUSR2) => {
                self.ask_for(Order::Upgrade { executable: None, allows_loss: false, responder: None });
            }
            Event::Signal(SIGINT) => return Some(Ending::now()),
            Event::Signal(_) => return Some(Ending::drain()),
            Event::Order(
                Request::Reload { config: Some(other), .. } | Request::Stop { config: Some(other), .. },
                responder,
            ) if !self.options.is_from(&other) => responder.send(self.not_meant(&other)),
            Event::Order(Request::Of(config), responder) => {
                responder.send(if self.options.is_from(&config) {
                    Reply::ok("")
                } else {
                    self.not_meant(&config)
                });
            }
            Event::Order(Request::Reload { allows_loss, .. }, responder) => {
                self.ask_for(Order::Reload { allows_loss, responder: Some(responder) });
            }
            Event::Order(Request::Stop { now, .. }, responder) => {
                return Some(Ending { now, waiting: vec![responder], ..Ending::drain() });
            }
            Event::Order(Request::Upgrade { binary, allows_loss }, responder) => {
                self.ask_for(Order::Upgrade { executable: binary, allows_loss, responder: Some(responder) });
            }
            Event::Order(Request::Steer { group, member, order }, responder) => {
                responder.send(match self.upstreams.steer(&group, &member, &order) {
                    Ok(()) => Reply::ok(""),
                    Err(why) => Reply::failed(why),
                });
            }
            Event::Order(Request::RestartPool(name), responder) => self.restart_pool(name, responder),
            Event::Order(Request::LogLevel(level), responder) => {
                self.set_log_level(Some(level));
                responder.send(Reply::ok(format!("the error log takes `{level}` until the next reload\n")));
            }
            Event::Order(Request::ReopenLogs, responder) => {
                self.reopen_logs();
                responder
                    .send(Reply::ok("the logs are being opened anew; the error log says when they are\n"));
            }
            Event::Order(
                Request::Status(_)
                | Request::Cache(_)
                | Request::Show(..)
                | Request::Bans
                | Request::Lift(_)
                | Request::LiftAll,
                responder,
            ) => {
                responder.send(Reply::failed("this is not for the master to answer"));
            }
            Event::Upgraded => self.has_upgraded(),
            Event::Read(number, read) => self.take_read(number, *read),
            other => drop(self.obey_servers(other)),
        }
        None
    }

    /// The supervisor may be busy with a file system, and the master waits for nobody.
    fn restart_pool(&self, name: String, responder: Responder) {
        let pools = self.pools.clone();
        let started = std::thread::Builder::new().name("tidegate-restart".into()).spawn(move || {
            responder.send(if pools.restart(&name) {
                Reply::ok("")
            } else {
                Reply::failed(format!("no pool of processes is named {name}; `tidegate status` lists them"))
            });
        });
        if let Err(error) = started {
            log::error(format_args!("a pool cannot be restarted: no thread: {error}"));
        }
    }

    /// The answer to an operator who means the server of another settings file.
    fn not_meant(&self, other: &Path) -> Reply {
        Reply::failed(format!(
            "nothing was done: this server has its settings from {}, not from {}; leave out `--config`, or name the \
             other server with `--control`",
            self.options.settings,
            other.display()
        ))
    }

    /// Whether what a look at files has found counts. What is about to be replaced by what a reload has read, which the server
    /// processes were given, is found again when that is over.
    fn takes_what_is_found(&self) -> bool {
        let is_given = matches!(&self.change, Some(Change::Reload(reload)) if reload.is_given());
        !is_given && !self.servers.is_ending
    }
}

/// An address as a reader would type it.
pub fn url_of(address: &ListenAddress, is_tls: bool) -> String {
    match address {
        ListenAddress::Tcp(address) if is_tls => format!("https://{address}"),
        ListenAddress::Tcp(address) => format!("http://{address}"),
        ListenAddress::Unix(_) => address.to_string(),
    }
}

/// Sends what the master has to say where the settings want it.
fn use_error_log(writer: &Arc<Writer>, logs: &Logs, settings: &Settings) -> Result<()> {
    let target = &settings.error_log.target;
    if let Some(file) = logs.file(target) {
        writer.provide(target, file.try_clone()?).context("cannot write the error log")?;
    }
    let sink = writer.sink(target).context("cannot write the error log")?;
    log::set_error_log(writer.clone(), sink, settings.error_log.level);
    for target in settings.pools.iter().filter_map(|pool| pool.log.target.as_ref()) {
        if let Some(file) = logs.file(target) {
            writer.provide(target, file.try_clone()?).context("cannot write the log of a pool")?;
        }
    }
    logs::use_pool_logs(writer, settings).context("cannot write the log of a pool")?;
    Ok(())
}

fn say_what_is_missing(settings: &Settings, limit: Option<u64>, warnings: &[String]) {
    warnings.iter().for_each(log::warn);
    if let Some(shortage) = descriptors::shortage(settings, limit) {
        log::warn(shortage);
    }
    // Any look-up tells; this one touches nothing.
    let _ = Root::open(Path::new("/")).and_then(|root| root.open_folder(b"", Patience::Wait));
    if is_openat2_missing() {
        log::warn("kernel: openat2 is missing or forbidden; symbolic links below the roots are not followed");
    }
}

fn watch_signals(events: Sender<Event>) -> Result<()> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2]).context("cannot watch signals")?;
    std::thread::Builder::new()
        .name("tidegate-signal".into())
        .spawn(move || {
            for signal in signals.forever() {
                if events.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}
