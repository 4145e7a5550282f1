//! One process: how it is started, what it says, and how all of it is ended.
//!
//! Between it and the supervisor is its keeper (`keeper`), which ends as the process does, and only when all has ended that
//! the process has started.

use super::keeper::{END_ALL, Keeper};
use super::launch::{Launch, OURSELVES, identity_of, search_path};
use super::machine::KILLED;
use super::opcache::{self, Opcache};
use super::php::{self, Found};
use super::process_table::{Handle, reap_apart};
use super::sockets::{Folder, Listening, free_port};
use super::temporary;
use super::warm_up::WarmingUp;
use crate::gateway::complaints::Lines;
use crate::gateway::pool_directory::PoolAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_config::settings::pool::{Pass, Pool, Processes, Program};
use tidegate_core::log::{self, Level};
use tidegate_io::connect::{Connecting, connect};
use tidegate_io::descriptors::is_exhaustion;
use tidegate_io::socket::Stream;

/// Characters of the last line of output that are said of a process that failed.
const LAST: usize = 500;
/// How long a connection may be on its way until another is made.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);

/// How a process gets to its requests.
pub(super) enum Way {
    /// A socket that is open already: requests may come at once.
    Socket(Arc<Listening>),
    /// It binds this itself, and is asked until it has.
    Own(PoolAddress),
}

impl Way {
    pub(super) fn address(&self) -> &PoolAddress {
        match self {
            Way::Socket(listening) => &listening.address,
            Way::Own(address) => address,
        }
    }
}

/// A process.
pub(super) struct Child {
    /// The keeper, until it is dropped.
    process: Option<std::process::Child>,
    /// Where the keeper says which process is the application.
    report: OwnedFd,
    /// Its number, once it was read.
    number: Cell<Option<u32>>,
    /// Readable once it has ended, with all that it has started.
    pub(super) ended: Handle,
    /// What it writes to standard output and standard error; `None` once it has closed both.
    pub(super) output: Option<OwnedFd>,
    lines: Lines,
    /// The last line that it has written.
    pub(super) last_line: String,
    pub(super) way: Way,
    probe: Probe,
    /// A connection was made to the socket that it was passed.
    is_asked: bool,
    pub(super) pool: Arc<Pool>,
    /// The requests that it gets before it takes work, once they are under way.
    pub(super) warming_up: Option<Arc<WarmingUp>>,
    /// Of PHP: who tells of the cache of compiled scripts.
    pub(super) opcache: Option<Opcache>,
}

/// What a process in a slot of a pool needs to be started.
pub(super) struct Start<'a> {
    pub(super) pool: &'a Arc<Pool>,
    pub(super) processes: &'a Processes,
    pub(super) slot: usize,
    /// How often the pool has started one: makes names differ.
    pub(super) number: u64,
    pub(super) folder: &'a Folder,
    pub(super) sweeper: &'a temporary::Sweeper,
    /// How long it may be needed after the master was killed.
    pub(super) patience: Duration,
    /// The socket of the slot, or the shared one; made where a program wants one passed.
    pub(super) socket: &'a mut dyn FnMut() -> io::Result<Arc<Listening>>,
}

/// Why a process was not started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartError {
    /// There are no descriptors for it: no fault of its program.
    NoRoom,
    /// Anything else; a sentence's end: `cannot be started: …`.
    Failed(String),
}

impl From<String> for StartError {
    fn from(problem: String) -> StartError {
        StartError::Failed(format!("cannot be started: {problem}"))
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        if is_exhaustion(&error) { StartError::NoRoom } else { error.to_string().into() }
    }
}

/// Starts a process.
///
/// # Errors
/// See [`StartError`].
pub(super) fn start(mut start: Start<'_>) -> Result<Child, StartError> {
    let prepared = prepare(&mut start)?;
    Ok(spawn(&start, prepared)?)
}

fn spawn(start: &Start<'_>, prepared: Prepared) -> io::Result<Child> {
    let Prepared { argv, launch, environment, way, stdin, opcache } = prepared;
    let owner = owner_of(start.processes).unwrap_or_default();
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    if let Some((user, group)) = owner {
        // Whoever runs there may open it by name (`/dev/stderr`), as php-fpm does.
        let _ = std::os::unix::fs::fchown(&write, Some(user), Some(group));
    }
    let (report, reported) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&report, true)?;
    let keeper = Keeper { parent: std::process::id(), patience: start.patience };
    let mut command = keeper.command(&launch, &argv);
    command.env_clear().envs(environment);
    command.stdin(stdin).stdout(Stdio::from(write)).stderr(Stdio::from(reported));
    command.process_group(0);
    let mut process = command.spawn()?;
    let ended = match Handle::of_child(&process) {
        Ok(ended) => ended,
        // Nobody else knows of it. Its application goes with it.
        Err(error) => {
            let _ = process.kill();
            reap_apart(process);
            return Err(error);
        }
    };
    let pool = start.pool.clone();
    let output = Some(read);
    Ok(Child {
        process: Some(process),
        report,
        number: Cell::new(None),
        ended,
        output,
        lines: Lines::default(),
        last_line: String::new(),
        way,
        probe: Probe::default(),
        is_asked: false,
        pool,
        warming_up: None,
        opcache,
    })
}

struct Prepared {
    argv: Vec<OsString>,
    launch: Launch,
    environment: Vec<(String, String)>,
    way: Way,
    stdin: Stdio,
    opcache: Option<Opcache>,
}

fn prepare(start: &mut Start<'_>) -> Result<Prepared, StartError> {
    let Start { pool, processes, slot, number, folder, sweeper, socket, patience: _ } = start;
    let mut launch = Launch {
        folder: processes.folder.clone(),
        user: processes.user.clone(),
        group: processes.group.clone(),
        umask: processes.umask,
        sealed: processes.sealed.paths.clone(),
        ports: processes.sealed.ports.clone(),
        ..Launch::default()
    }
    .with_resources(&processes.resources);
    let mut environment = processes.environment.clone();
    if !environment.iter().any(|(name, _)| name == "PATH") {
        environment.push(("PATH".into(), search_path()));
    }
    let mut stdin = Stdio::null();
    let own_path = |suffix: &str| -> Result<PathBuf, StartError> {
        let owner = owner_of(processes)?;
        Ok(folder.for_user(&pool.name, owner)?.join(format!("{number}{suffix}")))
    };
    let mut pass = |stdin: &mut Stdio| -> Result<Way, StartError> {
        let listening = socket()?;
        *stdin = Stdio::from(listening.fd.try_clone()?);
        Ok(Way::Socket(listening))
    };
    // Without it nothing is told, and all else works.
    let script = || folder.public_file("tidegate-opcache.php", opcache::SCRIPT).ok();
    let mut opcache = None;
    let (argv, way) = match &processes.program {
        Program::Command(argv) => {
            let way = match processes.socket.pass {
                Pass::Stdin => pass(&mut stdin)?,
                Pass::Descriptor => {
                    launch.listens_on_three = true;
                    pass(&mut stdin)?
                }
                Pass::Port => Way::Own(PoolAddress::Tcp(free_port()?)),
                Pass::Path => Way::Own(PoolAddress::Unix(own_path(".sock")?)),
            };
            let (port, path) = match way.address() {
                PoolAddress::Tcp(address) => (address.port().to_string(), String::new()),
                PoolAddress::Unix(path) => (String::new(), path.to_string_lossy().into_owned()),
            };
            match processes.socket.pass {
                Pass::Port => environment.push(("PORT".into(), port.clone())),
                Pass::Path => environment.push(("SOCKET".into(), path.clone())),
                Pass::Stdin | Pass::Descriptor => {}
            }
            let fill = |text: &String| text.replace("{port}", &port).replace("{socket}", &path).into();
            (argv.iter().map(fill).collect(), way)
        }
        Program::Cgi { expiration } => {
            let seconds = expiration.as_secs().max(1).to_string();
            let argv = vec![OURSELVES.into(), "cgi-stub".into(), seconds.into()];
            (argv, pass(&mut stdin)?)
        }
        Program::Php(wanted) => {
            let temporary = temporary::make(&pool.name, &processes.temporary, owner_of(processes)?, sweeper);
            // PHP has places of its own for both.
            let temporary = temporary.unwrap_or_else(|problem| {
                log::warn(format_args!("pool {}: {problem}; PHP's own settings hold", pool.name));
                None
            });
            let values = temporary.as_ref().map(php::values_of).unwrap_or_default();
            match php::find(*wanted)? {
                Found::Cgi(program) => {
                    // One more than the places: what the server asks finds one, also behind kept connections.
                    let children = processes.max.max(1).saturating_add(1);
                    environment.push(("PHP_FCGI_CHILDREN".into(), children.to_string()));
                    // 0 is without bound: a child that ended by itself would be missed by a request.
                    let requests = processes.requests.unwrap_or(0);
                    environment.push(("PHP_FCGI_MAX_REQUESTS".into(), requests.to_string()));
                    let way = pass(&mut stdin)?;
                    opcache = script().map(|script| Opcache::new(way.address().clone(), script));
                    let mut argv: Vec<OsString> = vec![program.into()];
                    for (name, value) in &values {
                        argv.extend(["-d".into(), format!("{name}={value}").into()]);
                    }
                    (argv, way)
                }
                Found::Fpm(program) => {
                    // The parent is the pool's user as well: what it loads before it has children is the application's.
                    let (socket, aside) = (own_path(".sock")?, own_path("-aside.sock")?);
                    let settings = php::fpm_settings(&socket, &aside, processes, &values);
                    let settings = folder.public_file(&format!("{}-{slot}.conf", pool.name), &settings)?;
                    opcache = script().map(|script| Opcache::new(PoolAddress::Unix(aside), script));
                    let argv = vec![
                        program.into(),
                        "--nodaemonize".into(),
                        "--fpm-config".into(),
                        settings.into_os_string(),
                    ];
                    (argv, Way::Own(PoolAddress::Unix(socket)))
                }
            }
        }
    };
    Ok(Prepared { argv, launch, environment, way, stdin, opcache })
}

/// The user and group that a pool runs as, where it is not the server's own.
fn owner_of(processes: &Processes) -> Result<Option<(u32, u32)>, String> {
    identity_of(processes.user.as_deref(), processes.group.as_deref())
}

impl Child {
    /// Its process number; its keeper's, while that has not started it.
    pub(super) fn number(&self) -> u32 {
        self.application().unwrap_or_else(|| self.keeper())
    }

    /// Its process number, once its keeper has started it.
    pub(super) fn application(&self) -> Option<u32> {
        if self.number.get().is_none() {
            let mut text = [0; 16];
            let count = rustix::io::read(&self.report, &mut text).unwrap_or(0);
            let text = text.get(..count).and_then(|text| std::str::from_utf8(text).ok());
            self.number.set(text.and_then(|text| text.trim().parse().ok()));
        }
        self.number.get()
    }

    /// The number of its keeper.
    pub(super) fn keeper(&self) -> u32 {
        self.ended.number().unsigned_abs()
    }

    /// Whether it takes connections now. To a socket that it was passed anybody can connect: with `must_accept` it has to
    /// accept what was connected there first.
    pub(super) fn answers(&mut self, must_accept: bool) -> bool {
        match &self.way {
            Way::Socket(open) if must_accept => {
                let has_accepted = self.is_asked && !open.has_waiting();
                self.is_asked = self.is_asked || self.probe.connects(&open.address);
                has_accepted
            }
            Way::Socket(_) => true,
            Way::Own(address) => self.probe.connects(address),
        }
    }

    /// Tells the process to end. It tells those that it has started.
    pub(super) fn terminate(&self) {
        self.ended.signal(Signal::TERM);
    }

    /// Kills the process and all that it has started.
    pub(super) fn kill(&self) {
        self.ended.signal(END_ALL);
    }

    /// Kills the keeper, which does not do what it is told or waits for what the kernel does not end. The application is
    /// killed with it.
    pub(super) fn kill_keeper(&self) {
        self.ended.signal(Signal::KILL);
    }

    /// Reaps it once it has ended. How it has ended: `ended with status 1`.
    pub(super) fn reap(&mut self) -> Option<String> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.process.as_mut()?.try_wait().ok().flatten()?;
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with status {code}"),
            (None, Some(9)) => KILLED.to_owned(),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".into(),
        };
        Some(if self.last_line.is_empty() || status.success() {
            how
        } else {
            let last: String = self.last_line.chars().take(LAST).collect();
            format!("{how} (`{last}`)")
        })
    }

    /// Reads what it has written: the lines that are complete.
    pub(super) fn read(&mut self) -> Vec<(Level, String)> {
        let mut buffer = [0; 4096];
        let mut lines = Vec::new();
        // Bounded: whoever writes without end must not keep all others waiting. It is what a pipe holds.
        for _ in 0..16 {
            let Some(output) = &self.output else { break };
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => {
                    self.output = None;
                    lines.extend(self.lines.end());
                }
                Ok(count) => lines.extend(self.lines.push(buffer.get(..count).unwrap_or_default())),
                Err(_) => break,
            }
        }
        if let Some((_, last)) = lines.last() {
            self.last_line.clone_from(last);
        }
        lines
    }

    /// Its last words, once it has ended: all that is in the pipe, with or without a line end.
    pub(super) fn read_rest(&mut self) -> Vec<(Level, String)> {
        let mut lines = self.read();
        lines.extend(self.lines.end());
        if let Some((_, last)) = lines.last() {
            self.last_line.clone_from(last);
        }
        lines
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Whoever is dropped alive is not to be left behind, nor as a zombie. It is not waited for here: all pools would wait.
        if let Some(process) = self.process.take() {
            self.kill();
            reap_apart(process);
        }
        if let Way::Own(PoolAddress::Unix(path)) = &self.way {
            super::sockets::remove_socket(path);
            if let Some(Opcache { address: PoolAddress::Unix(path), .. }) = &self.opcache {
                super::sockets::remove_socket(path);
            }
        }
    }
}

/// A connection that shows whether a process takes any. It is never waited for: one thread looks after all pools.
#[derive(Default)]
struct Probe {
    /// On its way, since then.
    pending: Option<(Stream, Instant)>,
}

impl Probe {
    /// Whether there is one by now. A queue that is full does not take it: the next look sees what has become of it.
    fn connects(&mut self, address: &PoolAddress) -> bool {
        // The kernel tries again later and later.
        let pending = self.pending.take().filter(|(_, since)| since.elapsed() < PROBE_PATIENCE);
        let (stream, since) = match pending {
            Some(pending) => pending,
            None => match connect(&address.clone().into(), None) {
                Ok((_, Connecting::Done)) => return true,
                Ok((stream, Connecting::Pending)) => (stream, Instant::now()),
                Err(_) => return false,
            },
        };
        let mut fds = [PollFd::new(&stream, PollFlags::OUT)];
        if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0) {
            return stream.connect_result().is_ok();
        }
        self.pending = Some((stream, since));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::sockets::free_port;
    use super::*;
    use rustix::net::{SocketFlags, accept_with};
    use tidegate_testkit::wait_for;

    #[test]
    fn want_of_descriptors_is_told_from_what_is_wrong_with_a_program() {
        for (code, expected) in [
            (24, StartError::NoRoom), // EMFILE
            (23, StartError::NoRoom), // ENFILE
            (2, StartError::Failed("cannot be started: No such file or directory (os error 2)".into())),
        ] {
            assert_eq!(StartError::from(io::Error::from_raw_os_error(code)), expected);
        }
    }

    #[test]
    fn a_connection_that_a_full_queue_does_not_take_is_looked_at_again() {
        let address = PoolAddress::Tcp(free_port().expect("one is free"));
        let mut probe = Probe::default();
        assert!(!probe.connects(&address), "nobody listens");
        assert!(probe.pending.is_none());
        let open = Listening::open(address.clone(), 0).expect("can be bound");
        assert!(probe.connects(&address));
        let mut waiting = Vec::new();
        while probe.connects(&address) {
            waiting.push(connect(&address.clone().into(), None).expect("can be begun"));
        }
        assert!(probe.pending.is_some(), "it is on its way, and nobody has waited for it");
        wait_for(
            || {
                rustix::io::ioctl_fionbio(&open.fd, true).expect("is a socket");
                while accept_with(&open.fd, SocketFlags::CLOEXEC).is_ok() {}
                probe.connects(&address).then_some(())
            },
            "the queue to take it",
        );
    }
}
