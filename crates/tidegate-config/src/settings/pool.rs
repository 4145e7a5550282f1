//! Pools: applications that are started and watched by the server, or run elsewhere and are named here.

use super::{ListenAddress, LogTarget, Origin};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An application behind the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// What routes call it; unique.
    pub name: String,
    /// What it is.
    pub application: Application,
    /// Requests that one process, or the address, takes at once; `None` is 1 for processes and 16 for an
    /// address.
    pub places: Option<u32>,
    /// Requests that may wait before it.
    pub queue: Queue,
    /// Where what it writes goes.
    pub log: PoolLog,
    /// What is done when the queue, or the number of requests under way, crosses a threshold.
    pub hooks: Vec<Hook>,
    /// Where it was written.
    pub origin: Origin,
}

impl Pool {
    /// Whether two revisions say the same of it, wherever it stands: then its processes stay.
    pub fn is_same_as(&self, other: &Pool) -> bool {
        let Pool { name, application, places, queue, hooks, log: _, origin: _ } = self;
        (name, application, places, queue, hooks)
            == (&other.name, &other.application, &other.places, &other.queue, &other.hooks)
    }

    /// The user and group of its processes, where the server runs them; `None` of either is whose the server is.
    pub fn account(&self) -> Option<(Option<&str>, Option<&str>)> {
        match &self.application {
            Application::Processes(processes) => {
                Some((processes.user.as_deref(), processes.group.as_deref()))
            }
            Application::External(_) => None,
        }
    }
}

/// What stands behind a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Application {
    /// Runs already, and is not ours to watch.
    External(ListenAddress),
    /// Processes that the server runs.
    Processes(Box<Processes>),
}

/// Processes that the server runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Processes {
    /// What is run.
    pub program: Program,
    /// How many there are at least; 0 starts the first when somebody asks.
    pub min: u32,
    /// How many there are at most.
    pub max: u32,
    /// How long a process above the least number may have nothing to do.
    pub idle: Duration,
    /// How long requests wait before another process is started.
    pub grow_after: Duration,
    /// How they get to their requests.
    pub socket: Socket,
    /// Requests after which a process is replaced; `None` keeps it.
    pub requests: Option<u64>,
    /// The folder it starts in; `None` is `/`.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub folder: Option<PathBuf>,
    /// The user it runs as; `None` is the server's `user`.
    pub user: Option<String>,
    /// The group it runs as; `None` is that of `user`.
    pub group: Option<String>,
    /// Its file mode mask; `None` is the server's.
    pub umask: Option<u32>,
    /// All of its environment but for what the pool itself adds: name and value.
    pub environment: Vec<(String, String)>,
    /// What it may use.
    pub resources: Resources,
    /// How long a process may take after its start until it takes requests.
    pub start_timeout: Duration,
    /// How long a process may take to end when told to, before it is killed.
    pub stop_timeout: Duration,
    /// Where PHP puts uploads and sessions.
    pub temporary: Temporary,
    /// What each gets before it takes work.
    pub warm_up: Option<WarmUp>,
    /// What is kept out of its reach. Not written: whoever starts it knows.
    #[serde(skip)]
    pub sealed: Arc<Sealed>,
}

/// What is kept out of reach of a program that has the server's own user: keys, their storage, the control socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Files and folders, which need not be there yet, with the links that led there; empty where nothing is kept from it.
    pub paths: Vec<PathBuf>,
    /// TCP ports that the server listens on.
    pub ports: Vec<u16>,
    /// The folders beside the ways there, as they were: who has been started does not see others.
    pub beside: Vec<PathBuf>,
}

/// Requests that a process gets before it takes work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUp {
    /// What is asked for, in order: paths from their `/`, with queries perhaps.
    pub targets: Vec<String>,
    /// The folder that scripts lie in, where they are files.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub root: Option<PathBuf>,
    /// The host that is asked for.
    pub host: String,
    /// What the process speaks.
    pub protocol: WarmUpProtocol,
    /// How long all of them may take together.
    pub timeout: Duration,
}

/// What a process speaks that is warmed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmUpProtocol {
    /// FastCGI.
    FastCgi,
    /// SCGI.
    Scgi,
    /// HTTP.
    Http,
}

/// Where PHP puts uploads and sessions, and how much of it there may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temporary {
    /// Where.
    pub place: Place,
    /// Bytes of all files together.
    pub size: u64,
}

/// Where temporary files lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A folder of the server's, on disk.
    Auto,
    /// A folder of the server's, in memory.
    Memory,
    /// A folder in this one.
    Folder(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// PHP's own settings hold.
    Off,
}

/// What a pool runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Program {
    /// A program and its arguments; `{port}` and `{socket}` in them are filled in.
    Command(Vec<String>),
    /// PHP, by the program of that name that is found.
    Php(Php),
    /// The processes that start CGI scripts.
    Cgi {
        /// How long a script may run.
        expiration: Duration,
    },
}

/// How PHP is run. Either way its processes share one cache of compiled scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Php {
    /// php-fpm where there is one, else php-cgi.
    Any,
    /// php-fpm, with settings of ours.
    Fpm,
    /// php-cgi: one parent with children.
    Cgi,
}

/// How processes get to their requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// A socket that all share; `None` is one for each process, in a folder of the server.
    pub address: Option<ListenAddress>,
    /// How a process is told.
    pub pass: Pass,
}

/// How a process is told what to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// The listening socket is its standard input (FastCGI).
    Stdin,
    /// The listening socket is descriptor 3, as systemd does it (`LISTEN_FDS`).
    Descriptor,
    /// It binds the port of 127.0.0.1 in the variable `PORT`.
    Port,
    /// It binds the path in the variable `SOCKET`.
    Path,
}

/// What a process may use; `None` is what the server may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Open descriptors.
    pub descriptors: Option<u64>,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Core dumps, bytes.
    pub core: Option<u64>,
    /// Priority for the processor: 1 to 19, a larger one gives way to others.
    pub nice: Option<u8>,
    /// Priority for disks.
    pub io: Option<IoPriority>,
}

/// Priority for disks (`ioprio_set(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IoPriority {
    /// Best effort, behind all others of that class.
    Low,
    /// Only when nobody else wants the disk.
    Idle,
}

/// Where what an application writes to its standard error, and a process to its standard output, goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolLog {
    /// A log of its own; `None` is the error log.
    pub target: Option<LogTarget>,
    /// Bytes a second that are written; what goes beyond is counted.
    pub limit: u64,
}

/// The queue before an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Requests that may wait.
    pub length: u32,
    /// How long one may wait.
    pub age: Duration,
}

/// What is done when a threshold is crossed (R16). Two are equal wherever they are written: one whose line has moved is the
/// same, and goes on as it was.
#[derive(Debug, Clone, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// What is looked at.
    pub measure: Measure,
    /// When it is done.
    pub threshold: Threshold,
    /// What is done.
    pub action: HookAction,
    /// How long nothing is done after it was.
    pub every: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// Where it was written.
    pub origin: Origin,
}

impl PartialEq for Hook {
    fn eq(&self, other: &Hook) -> bool {
        let Hook { measure, threshold, action, every, timeout, origin: _ } = self;
        (measure, threshold, action, every, timeout)
            == (&other.measure, &other.threshold, &other.action, &other.every, &other.timeout)
    }
}

/// What a hook looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Requests that wait.
    Queue,
    /// Requests under way.
    Concurrency,
    /// Requests in each second.
    Rate,
    /// Of all processor time that the workers could have, hundredths.
    Cpu,
}

/// A threshold. A hook that has been set off waits for the measure to come back across `rearm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Threshold {
    /// Rises above `limit`; ready again at `rearm` or below.
    Above {
        /// The threshold.
        limit: u32,
        /// Not above it.
        rearm: u32,
    },
    /// Falls below `limit`, having been at `rearm` or above.
    Below {
        /// The threshold.
        limit: u32,
        /// Not below it.
        rearm: u32,
    },
}

/// What a hook does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookAction {
    /// Runs a program.
    Run {
        /// The program and its arguments.
        command: Vec<String>,
        /// The user it runs as; `None` is that of the pool's processes.
        user: Option<String>,
        /// The group it runs as; `None` is that of `user`.
        group: Option<String>,
        /// What is kept out of its reach.
        #[serde(skip)]
        sealed: Arc<Sealed>,
    },
    /// Sends a `POST` to a URL of scheme `http`.
    Call(String),
}
