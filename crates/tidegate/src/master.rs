//! The main thread: it owns the listening sockets, the settings and the workers, and obeys signals and the
//! control socket. Nothing on it touches a byte of a client, so nothing here is ever in a request's way.
//!
//! `reload` and `upgrade` are parts of it with a file each. The order of the start matters: what can fail
//! comes first, what others can see comes last.

use crate::control::{self, ControlSocket, Draft, Reply, Request, Responder};
use crate::descriptors;
use crate::pid_file::PidFile;
use crate::pools::Pools;
use crate::registry::Registry;
use crate::revision::{self, ServeOptions};
use crate::sockets::Sockets;
use crate::status_source::StatusSource;
use crate::upgrade::{self, Handover};
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::getppid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_config::settings::{ListenAddress, LogTarget};
use tidegate_core::log::{self, Writer};
use tidegate_core::worker::{self, Command, Handle, MakeRegistry};
use tidegate_io::file::{Patience, Root, is_openat2_missing};

/// How often the master looks whether a worker has ended by mistake.
const WATCH: Duration = Duration::from_secs(1);
/// How often it looks whether the workers have ended as they should.
const DRAIN_WATCH: Duration = Duration::from_millis(10);
/// How long a worker that was told to end now may take.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// What the master waits for.
pub enum Event {
    /// A signal has come.
    Signal(i32),
    /// An operator wants something.
    Order(Request, Responder),
    /// The new program serves, and has this process number; or why it does not.
    Upgraded(Result<u32, String>),
}

/// The server, but for its workers' threads.
pub struct Master {
    pub(crate) options: ServeOptions,
    /// In force, fitted to the sockets.
    pub(crate) settings: Arc<Settings>,
    pub(crate) sockets: Sockets,
    pub(crate) workers: Vec<Handle>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) source: Arc<StatusSource>,
    pub(crate) pid_file: Option<PidFile>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) revision: u64,
    make: MakeRegistry,
    control: Option<ControlSocket>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// An upgrade is under way, and perhaps somebody waits to hear how it ends.
    upgrade: Option<Option<Responder>>,
}

/// How the server ends.
struct Ending {
    /// Whether connections between requests are closed at once.
    close_idle: bool,
    /// Whether nothing is waited for.
    now: bool,
    /// Whether a new process has taken over what is on the disk.
    has_successor: bool,
    /// Who waits for the end.
    waiting: Vec<Responder>,
}

impl Ending {
    fn drain() -> Ending {
        Ending { close_idle: true, now: false, has_successor: false, waiting: Vec::new() }
    }

    fn now() -> Ending {
        Ending { now: true, ..Ending::drain() }
    }
}

impl Master {
    /// Opens logs and sockets, starts the workers, and takes the control socket and the pid file. When this
    /// returns the server serves; an error is a sentence that says what to do.
    pub fn start(options: ServeOptions, settings: Settings, handover: Option<&Handover>) -> Result<Master> {
        let limit = descriptors::raise_limit();
        let count = revision::workers(&settings);
        let writer = Writer::start().context("cannot start the log thread")?;
        open_logs(&writer, &settings)?;
        let nothing = Sockets::default();
        let sockets = Sockets::open(&settings, count, handover.map_or(&nothing, |left| &left.sockets))?;
        let draft = bind_control(&options, &settings, handover.is_some())?;
        let (sender, events) = channel();
        watch_signals(sender.clone())?;
        use_error_log(&writer, &settings)?;
        say_what_is_missing(&settings, count, limit);

        let source = StatusSource::new();
        source.set_writer(writer.clone());
        let pools =
            Arc::new(Pools::start(source.board().clone()).context("cannot start the supervisor of pools")?);
        source.set_pools(pools.clone());
        let make = Registry::maker(source.clone());
        let settings = sockets.fit(&settings, count);
        pools.adopt(&settings);
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            let listeners = sockets.for_worker(number, count).context("cannot copy a socket")?;
            let started = worker::start(number, settings.clone(), listeners, make.clone(), writer.clone());
            workers.push(started.map_err(|error| anyhow!("cannot start a worker: {error}"))?);
        }
        source.set_workers(&workers);
        let control = draft.map(|draft| draft.install(source.clone(), sender.clone())).transpose()?;
        let pid_file = settings.pid_file.as_deref().map(PidFile::write).transpose()?;
        let mut master = Master {
            options,
            settings,
            sockets,
            workers,
            writer,
            source,
            pid_file,
            pools,
            revision: 0,
            make,
            control,
            events,
            sender,
            upgrade: None,
        };
        master.revision = master.source.next_revision(&master.settings, master.listening());
        Ok(master)
    }

    /// Every address that is listened on, as a reader would type it.
    pub fn listening(&self) -> Vec<String> {
        self.sockets.taken().map(url_of).collect()
    }

    /// Serves until told to end.
    pub fn run(mut self) {
        let ending = loop {
            let event = match self.events.recv_timeout(WATCH) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    self.replace_ended_workers();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break Ending::drain(), // we hold a sender: never
            };
            if let Some(ending) = self.obey(event) {
                break ending;
            }
        };
        self.end(ending);
    }

    /// Ends at once, without a word to clients: for a server that must not have started.
    pub fn abandon(self) {
        self.end(Ending::now());
    }

    fn obey(&mut self, event: Event) -> Option<Ending> {
        match event {
            Event::Signal(SIGHUP) => {
                self.reload_and_log();
            }
            Event::Signal(SIGUSR1) => self.reopen_logs(),
            Event::Signal(SIGUSR2) => self.begin_upgrade(None, None),
            Event::Signal(SIGINT) => return Some(Ending::now()),
            Event::Signal(_) => return Some(Ending::drain()),
            Event::Order(Request::Reload, responder) => {
                let reply = self.reload_and_log();
                responder.send(reply);
            }
            Event::Order(Request::Stop { now }, responder) => {
                return Some(Ending { now, waiting: vec![responder], ..Ending::drain() });
            }
            Event::Order(Request::Upgrade(path), responder) => self.begin_upgrade(path, Some(responder)),
            Event::Order(Request::Status(_) | Request::Cache(_), responder) => {
                responder.send(Reply::failed("this is not for the master to answer"));
            }
            Event::Upgraded(outcome) => return self.finish_upgrade(outcome),
        }
        None
    }

    fn reload_and_log(&mut self) -> Reply {
        let reply = self.reload();
        let said = reply.text.trim_end();
        if reply.is_ok {
            log::info(said)
        } else {
            log::error(said)
        }
        reply
    }

    fn reopen_logs(&self) {
        let failures = self.writer.reopen();
        if failures.is_empty() {
            log::info("the logs were opened anew");
        }
        for failure in failures {
            log::error(failure);
        }
    }

    fn begin_upgrade(&mut self, executable: Option<PathBuf>, responder: Option<Responder>) {
        let executable = executable.unwrap_or_else(|| self.options.executable.clone());
        let begun = match self.upgrade {
            Some(_) => Err(anyhow!("an upgrade is under way already")),
            None => upgrade::launch(&executable, &self.options.arguments, &self.sockets, self.sender.clone()),
        };
        match begun {
            Ok(()) => {
                log::info(format_args!("upgrade: starting {}", executable.display()));
                self.upgrade = Some(responder);
            }
            Err(error) => report_failed_upgrade(&format!("{error:#}"), responder),
        }
    }

    fn finish_upgrade(&mut self, outcome: Result<u32, String>) -> Option<Ending> {
        let responder = self.upgrade.take().flatten();
        match outcome {
            Ok(successor) => {
                let said = format!(
                    "process {successor} serves; process {} finishes what is open, for {} s at most",
                    std::process::id(),
                    self.settings.drain_timeout.as_secs()
                );
                log::info(format_args!("upgrade: {said}"));
                if let Some(responder) = responder {
                    responder.send_and_wait(Reply::ok(said + "\n"));
                }
                Some(Ending { close_idle: false, has_successor: true, ..Ending::drain() })
            }
            Err(why) => {
                report_failed_upgrade(&why, responder);
                None
            }
        }
    }

    /// A worker ends only when told to. One that has ended all the same is replaced, on the same sockets, so
    /// that who waits in them is served.
    fn replace_ended_workers(&mut self) {
        let count = self.workers.len();
        for number in 0..count {
            if !self.workers.get(number).is_some_and(Handle::is_finished) {
                continue;
            }
            let started = self.sockets.for_worker(number, count).and_then(|listeners| {
                let (settings, writer) = (self.settings.clone(), self.writer.clone());
                worker::start(number, settings, listeners, self.make.clone(), writer)
            });
            match started {
                Ok(handle) => {
                    log::error(format_args!("worker {number} has ended by mistake; another took its place"));
                    self.workers[number] = handle;
                    self.source.set_workers(&self.workers);
                }
                Err(error) => log::error(format_args!("worker {number} has ended, and no other: {error}")),
            }
        }
    }

    fn end(mut self, mut ending: Ending) {
        self.source.set_draining();
        if ending.has_successor {
            self.control = None; // its place is the successor's
        } else {
            self.sockets.remove_files(&Sockets::default());
        }
        // With the workers' copies these are the last: from here on connecting is refused.
        self.sockets = Sockets::default();
        let open = self.drain(&mut ending);
        let said = match open {
            0 => "ended; nothing was open any more".to_owned(),
            1 => "ended; 1 connection was cut".to_owned(),
            open => format!("ended; {open} connections were cut"),
        };
        self.pools.end();
        log::info(&said);
        self.writer.flush();
        if let Some(control) = &self.control {
            control.remove();
        }
        if let Some(pid_file) = &self.pid_file {
            pid_file.remove();
        }
        for responder in ending.waiting {
            responder.send_and_wait(Reply::ok(format!("{said}\n")));
        }
    }

    /// Waits for the workers; how many connections had to be cut.
    fn drain(&mut self, ending: &mut Ending) -> u64 {
        let patience = self.settings.drain_timeout;
        let deadline = Instant::now() + if ending.now { Duration::ZERO } else { patience };
        if !ending.now {
            log::info(format_args!("ending: requests in flight have {} s", patience.as_secs()));
            self.tell_workers(|| Command::Drain { close_idle: ending.close_idle });
        }
        while !ending.now && Instant::now() < deadline && !self.workers.iter().all(Handle::is_finished) {
            match self.events.recv_timeout(DRAIN_WATCH) {
                Ok(Event::Signal(SIGTERM | SIGINT)) => ending.now = true,
                Ok(Event::Signal(SIGUSR1)) => self.reopen_logs(),
                Ok(Event::Order(Request::Stop { now }, responder)) => {
                    ending.now |= now;
                    ending.waiting.push(responder);
                }
                Ok(Event::Order(_, responder)) => responder.send(Reply::failed("the server is ending")),
                Ok(Event::Signal(_) | Event::Upgraded(_)) | Err(_) => {}
            }
        }
        let open = self.source.snapshot().connections.current;
        if self.workers.iter().all(Handle::is_finished) {
            return 0;
        }
        self.tell_workers(|| Command::Stop);
        let deadline = Instant::now() + STOP_PATIENCE;
        while Instant::now() < deadline && !self.workers.iter().all(Handle::is_finished) {
            let _ = self.events.recv_timeout(DRAIN_WATCH);
        }
        open
    }

    fn tell_workers(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            worker.send(command());
        }
    }
}

fn report_failed_upgrade(why: &str, responder: Option<Responder>) {
    let said = format!("the upgrade failed, and process {} goes on: {why}", std::process::id());
    log::error(&said);
    if let Some(responder) = responder {
        responder.send(Reply::failed(said + "\n"));
    }
}

/// An address as a reader would type it.
pub fn url_of(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => format!("http://{address}"),
        ListenAddress::Unix(_) => address.to_string(),
    }
}

/// Opens every log that the settings name, so that one that cannot be written is known before anything has
/// changed.
pub(crate) fn open_logs(writer: &Writer, settings: &Settings) -> Result<()> {
    let of_sites = settings.sites.iter().filter_map(|site| site.access_log.as_ref());
    let access = of_sites.chain([&settings.access_log]).flatten().map(|log| &log.target);
    let all = access.map(|target| (target, "access-log"));
    for (target, directive) in all.chain([(&settings.error_log.target, "error-log")]) {
        writer.sink(target).map_err(|error| anyhow!(unwritable(target, directive, &error)))?;
    }
    Ok(())
}

fn unwritable(target: &LogTarget, directive: &str, error: &std::io::Error) -> String {
    let LogTarget::File(path) = target else { return format!("cannot write to {target}: {error}") };
    let folder = path.parent().unwrap_or(path);
    let what = match error.kind() {
        std::io::ErrorKind::NotFound => format!("the folder {} does not exist; make it", folder.display()),
        std::io::ErrorKind::PermissionDenied => format!(
            "the user that runs tidegate may not write it; give that permission (to the folder {} if the \
             file does not exist)",
            folder.display()
        ),
        std::io::ErrorKind::IsADirectory => "it is a folder; name a file in it".to_owned(),
        _ => error.to_string(),
    };
    format!("cannot write the log {}: {what}, or name another path with `{directive}`", path.display())
}

/// Sends what the server has to say where the settings want it.
pub(crate) fn use_error_log(writer: &Arc<Writer>, settings: &Settings) -> Result<()> {
    let sink = writer.sink(&settings.error_log.target).context("cannot write the error log")?;
    log::set_error_log(writer.clone(), sink, settings.error_log.level);
    Ok(())
}

/// Where the control socket goes, unless a living server has it: an error where it was asked for, a notice
/// where it is only the default. A predecessor gives it up.
fn bind_control(options: &ServeOptions, settings: &Settings, has_predecessor: bool) -> Result<Option<Draft>> {
    let (path, is_fixed) = match &options.control {
        Some(path) => (std::path::absolute(path).unwrap_or_else(|_| path.clone()), true),
        None => control::path_for(Some(settings)),
    };
    let predecessor = getppid().filter(|_| has_predecessor).map(|pid| pid.as_raw_nonzero().get());
    if let Some(pid) = control::owner(&path).filter(|pid| Some(*pid) != predecessor) {
        let said = format!("the control socket {} is process {pid}'s", path.display());
        if is_fixed {
            bail!("{said}, which runs; stop it, or name another with --control");
        }
        notice(&format!("{said}: this server runs without; give it one of its own with --control"));
        return Ok(None);
    }
    match Draft::bind(&path) {
        Ok(draft) => Ok(Some(draft)),
        Err(error) if is_fixed => Err(error.context(advice(&path))),
        Err(error) => {
            notice(&format!("{error:#}: this server runs without; name another with --control"));
            Ok(None)
        }
    }
}

fn advice(path: &Path) -> String {
    let folder = path.parent().unwrap_or(path);
    if folder.is_dir() {
        format!(
            "let the user that runs tidegate write into {}, or name another with --control",
            folder.display()
        )
    } else {
        format!("make the folder {}, or name another with --control", folder.display())
    }
}

/// What the operator at the terminal should know before the log takes over.
fn notice(said: &str) {
    eprintln!("tidegate: {said}");
}

fn say_what_is_missing(settings: &Settings, workers: usize, limit: Option<u64>) {
    if let Some(shortage) = descriptors::shortage(settings, workers, limit) {
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
