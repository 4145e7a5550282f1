//! Users of a directory (LDAP): threads that ask it, and which of its servers is asked.
//!
//! | part | what it does |
//! | --- | --- |
//! | `message` | what is said, as bytes (RFC 4511) |
//! | `connection` | a connection to a server, everything on it by a deadline |
//! | `session` | what is asked: search, bind, groups |
//! | `name` | distinguished names |
//! | `ways` | TLS with each server |
//!
//! A directory may take seconds, or for ever. It is asked by threads that do nothing else, a few for each directory and never a
//! worker; how many logins wait for them is bounded, and so is how long one may take. A server that fails is left alone for
//! a while: then one login tries it, and the others do not wait.

mod connection;
mod message;
mod name;
mod session;
#[cfg(test)]
mod tests;
mod ways;

#[cfg(test)]
pub use message::length as message_length;
pub use session::{Asked, Found};

use connection::Fault;
use session::Session;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::settings;
use tidegate_core::log;
use tidegate_core::tls::TlsStore;
use tidegate_io::blocking::Overloaded;
use tidegate_io::locking::lock;
use ways::Ways;

/// Logins that wait for a thread.
const WAITING: usize = 256;
/// How long a server that has failed is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(10);
/// How long a thread without work keeps its connections.
const IDLE: Duration = Duration::from_secs(30);

type Job = Box<dyn FnOnce(&mut Seat) + Send>;

/// A directory. When it is dropped its threads end.
pub struct Directory(Arc<Inner>);

struct Inner {
    settings: settings::Directory,
    ways: Ways,
    servers: Vec<Mutex<Health>>,
    queue: Mutex<Queue>,
    work: Condvar,
    searches: AtomicU64,
    binds: AtomicU64,
    failures: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: u32,
    idle: u32,
    is_closed: bool,
}

/// What is known of a server.
#[derive(Debug, Clone, Copy, Default)]
struct Health {
    /// It has failed, and is asked no more until then.
    until: Option<Instant>,
}

/// No server can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// When it is worth another try.
    pub retry_after: Duration,
}

/// The figures of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// What it was asked.
    pub asked: Asked,
    /// Times that a server has failed.
    pub failures: u64,
}

impl Directory {
    /// A directory that nobody has asked yet.
    pub fn new(settings: &settings::Directory, tls: Arc<TlsStore>) -> Directory {
        Directory(Arc::new(Inner {
            ways: Ways::new(settings, tls),
            settings: settings.clone(),
            servers: settings.servers.iter().map(|_| Mutex::default()).collect(),
            queue: Mutex::default(),
            work: Condvar::new(),
            searches: AtomicU64::new(0),
            binds: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }))
    }

    /// New settings say the same as those that it was made for; who signs the certificates of its servers may be new.
    pub fn renew(&self) {
        self.0.ways.renew(&self.0.settings);
    }

    /// Whether no server can be asked now, as far as is known.
    pub fn away(&self) -> Option<Away> {
        self.0.away(Instant::now())
    }

    /// The longest that somebody has to wait for what is asked now. With more in front that is not long enough, and the
    /// login has to be tried again.
    pub fn patience(&self) -> Duration {
        let servers = u32::try_from(self.0.settings.servers.len()).unwrap_or(u32::MAX);
        self.0.settings.timeout.saturating_mul(servers.saturating_add(1))
    }

    /// What has been asked since it was last told.
    pub fn take_figures(&self) -> Figures {
        let take = |figure: &AtomicU64| figure.swap(0, Ordering::Relaxed);
        let Inner { searches, binds, failures, .. } = &*self.0;
        Figures { asked: Asked { searches: take(searches), binds: take(binds) }, failures: take(failures) }
    }

    /// Runs something on a thread that may ask the directory.
    ///
    /// # Errors
    /// Too many wait already, or no thread can be started.
    pub fn run(&self, job: impl FnOnce(&mut Seat) + Send + 'static) -> Result<(), Overloaded> {
        let mut queue = lock(&self.0.queue);
        if queue.jobs.len() >= WAITING {
            return Err(Overloaded);
        }
        if queue.jobs.len() >= usize::try_from(queue.idle).unwrap_or(usize::MAX)
            && queue.threads < self.0.settings.connections
        {
            let inner = self.0.clone();
            let thread = std::thread::Builder::new().name("tidegate-ldap".into());
            match thread.spawn(move || Seat { inner, session: None, progress: Vec::new() }.work_off()) {
                Ok(_) => queue.threads += 1,
                Err(_) if queue.threads == 0 => return Err(Overloaded),
                Err(_) => {} // those that are there take it
            }
        }
        queue.jobs.push_back(Box::new(job));
        drop(queue);
        self.0.work.notify_one();
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        lock(&self.0.queue).is_closed = true;
        self.0.work.notify_all();
    }
}

impl Inner {
    fn away(&self, now: Instant) -> Option<Away> {
        let mut soonest: Option<Duration> = None;
        for server in &self.servers {
            let left = lock(server).until?.checked_duration_since(now).filter(|left| !left.is_zero())?;
            soonest = Some(soonest.map_or(left, |soonest| soonest.min(left)));
        }
        soonest.map(|retry_after| Away { retry_after })
    }

    /// Whether a server may be asked now. One that has failed before is tried by one login at a time.
    fn may_ask(&self, server: usize, now: Instant) -> bool {
        let Some(health) = self.servers.get(server) else { return false };
        let mut health = lock(health);
        match health.until {
            None => true,
            Some(until) if until > now => false,
            Some(_) => {
                health.until = now.checked_add(self.settings.timeout);
                true
            }
        }
    }

    /// A server has answered.
    fn answers(&self, server: usize) {
        let Some(health) = self.servers.get(server) else { return };
        if lock(health).until.take().is_some() {
            log::info(format_args!("the directory {} answers again", self.name(server)));
        }
    }

    /// A server has failed.
    fn fails(&self, server: usize, fault: &Fault) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let Some(health) = self.servers.get(server) else { return };
        let was_well = {
            let mut health = lock(health);
            let was_well = health.until.is_none();
            health.until = Instant::now().checked_add(LEFT_ALONE);
            was_well
        };
        if was_well {
            let (name, origin) = (self.name(server), &self.settings.origin);
            log::error(format_args!(
                "the directory {name} ({origin}) fails: {fault}; it is tried again every {} seconds",
                LEFT_ALONE.as_secs()
            ));
        }
    }

    fn name(&self, server: usize) -> &str {
        self.settings.servers.get(server).map_or("", |server| &server.url)
    }
}

/// A thread that asks a directory, with its connections.
pub struct Seat {
    inner: Arc<Inner>,
    session: Option<Session>,
    /// Of each server, once this login has asked it something.
    progress: Vec<Option<Progress>>,
}

/// How far a login has come with a server.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// By when all has to be answered.
    deadline: Instant,
    /// Something was answered: the server is there, though it may take long over this user.
    has_answered: bool,
}

impl Seat {
    fn work_off(mut self) {
        let inner = self.inner.clone();
        let mut queue = lock(&inner.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                self.progress = vec![None; inner.servers.len()];
                job(&mut self);
                queue = lock(&inner.queue);
                continue;
            }
            if queue.is_closed {
                break;
            }
            queue.idle += 1;
            let (woken, timeout) =
                inner.work.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    /// Who goes by a name.
    ///
    /// # Errors
    /// No server can say.
    pub fn find(&mut self, name: &str) -> Result<Option<Found>, Away> {
        let inner = self.inner.clone();
        self.ask(|session| session.find(&inner.settings, name))
    }

    /// Whether a password is somebody's.
    ///
    /// # Errors
    /// No server can say.
    pub fn is_password(&mut self, user: &Found, password: &[u8]) -> Result<bool, Away> {
        let inner = self.inner.clone();
        self.ask(|session| session.is_password(&inner.settings, &inner.ways, user, password))
    }

    /// The groups of somebody, sorted.
    ///
    /// # Errors
    /// No server can say.
    pub fn groups(&mut self, user: &Found) -> Result<Vec<String>, Away> {
        let inner = self.inner.clone();
        self.ask(|session| session.groups(&inner.settings, user))
    }

    /// Asks the first server that can be asked; when it fails, the next.
    fn ask<T>(&mut self, mut question: impl FnMut(&mut Session) -> Result<T, Fault>) -> Result<T, Away> {
        let inner = self.inner.clone();
        for server in 0..inner.servers.len() {
            if !inner.may_ask(server, Instant::now()) {
                continue;
            }
            match self.ask_server(server, &mut question) {
                Ok(answer) => {
                    inner.answers(server);
                    return Ok(answer);
                }
                Err(fault) if fault.is_of_server() && !self.is_of_user(server, &fault) => {
                    inner.fails(server, &fault);
                }
                Err(fault) => {
                    inner.answers(server);
                    inner.failures.fetch_add(1, Ordering::Relaxed);
                    log::error(format_args!("the directory {}: {fault}", inner.name(server)));
                }
            }
        }
        Err(inner.away(Instant::now()).unwrap_or(Away { retry_after: Duration::from_secs(1) }))
    }

    /// Whether it says nothing of the server: it takes too long over somebody, and has answered before that.
    fn is_of_user(&self, server: usize, fault: &Fault) -> bool {
        let progress = self.progress.get(server).copied().flatten();
        matches!(fault, Fault::Silent) && progress.is_some_and(|progress| progress.has_answered)
    }

    fn ask_server<T>(
        &mut self,
        server: usize,
        question: &mut impl FnMut(&mut Session) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let inner = self.inner.clone();
        let latest = Instant::now() + inner.settings.timeout;
        let fresh = Progress { deadline: latest, has_answered: false };
        let progress = self.progress.get_mut(server).map_or(fresh, |known| *known.get_or_insert(fresh));
        let deadline = progress.deadline;
        // One that was kept may have been closed meanwhile; that says nothing of the server.
        if let Some(mut session) = self.session.take().filter(|session| session.server() == server) {
            session.set_deadline(deadline);
            match self.ask_session(session, question) {
                Err(fault) if fault.may_be_age() => {}
                other => return other,
            }
        }
        let session = Session::open(&inner.settings, &inner.ways, server, deadline)?;
        self.ask_session(session, question)
    }

    /// A connection on which something went wrong is not used again.
    fn ask_session<T>(
        &mut self,
        mut session: Session,
        question: &mut impl FnMut(&mut Session) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let answer = question(&mut session);
        let Asked { searches, binds } = session.take_asked();
        self.inner.searches.fetch_add(searches, Ordering::Relaxed);
        self.inner.binds.fetch_add(binds, Ordering::Relaxed);
        if let Some(Some(progress)) = self.progress.get_mut(session.server()) {
            progress.has_answered |= session.has_answered();
        }
        if answer.as_ref().map_or_else(Fault::leaves_connection, |_| true) {
            self.session = Some(session);
        }
        answer
    }
}
