//! The admin API, as the master sees it: a process of its own that speaks HTTP, and what it may have the master do.
//!
//! A thread starts the process, watches it and starts it again; the master's own thread only tells it which settings are in force.
//! The process inherits its listening sockets, so that who connects while it is started again waits. It hears the connections of
//! server processes from the master alone ([`Door`]): there is no path that anybody else could connect to.
//!
//! `commands` carries out what it asks for, `editor` changes settings, `files` writes them, `history` keeps the revisions,
//! `unconfirmed` puts back what nobody has confirmed, `helper` runs programs that look at texts.

mod commands;
mod editor;
mod files;
mod helper;
pub mod history;
mod sockets;
mod unconfirmed;

use super::control::beside;
use super::status_registry::StatusRegistry;
use super::{Event, sealing, upgrade, users};
use crate::admin::messages::{Begin, FromAdmin, ToAdmin};
use crate::link::{Identity, Link, OF_THE_MASTER};
use crate::revision::{ServeOptions, SettingsFrom};
use anyhow::{Context, Result};
pub use editor::CONFIRM_MAX;
use editor::Editor;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sockets::{Key, Sockets};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::settings::{Action, Admin};
use tidegate_config::{Settings, WrittenSettings};
use tidegate_core::log;
use tidegate_io::passing;

/// First and last pause before a process that has ended is started again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long what runs goes on with settings that are no longer in force: who has changed them is to be told.
const RENEWAL: Duration = Duration::from_secs(1);
/// One that has served for so long was sound.
const SOUND: Duration = Duration::from_secs(60);

/// The admin API of this server.
pub struct AdminApi {
    editor: Arc<Editor>,
    door: Arc<Door>,
    status_registry: Arc<StatusRegistry>,
    events: Sender<Event>,
    /// There is none as long as no settings have asked for an API.
    thread: Mutex<Option<Sender<Told>>>,
}

/// What the thread is told.
enum Told {
    Adopted(Arc<Settings>),
    /// The process of this number has ended.
    Gone(u64),
    /// It is over.
    End(Sender<()>),
}

/// Where server processes get connections to the process.
#[derive(Default)]
pub struct Door {
    link: Mutex<Option<Arc<Link>>>,
    /// A route of the settings in force may change things.
    is_for_servers: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    /// A connection of a server process. `None`: there is no process, or no route for it.
    pub fn connect(&self) -> Option<OwnedFd> {
        if !self.is_for_servers.load(Relaxed) {
            return None;
        }
        let link = lock(&self.link).clone()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        link.send(&ToAdmin::Connection, vec![theirs]).then_some(ours)
    }

    fn set(&self, link: Option<Arc<Link>>) {
        *lock(&self.link) = link;
    }

    fn tell(&self, message: &ToAdmin) {
        let link = lock(&self.link).clone();
        if let Some(link) = link {
            link.send(message, Vec::new());
        }
    }
}

impl AdminApi {
    /// Of a server that starts.
    pub fn new(
        options: &ServeOptions,
        status_registry: &Arc<StatusRegistry>,
        events: &Sender<Event>,
    ) -> AdminApi {
        let main = match &options.settings {
            SettingsFrom::File(path) => Some(path.as_path()),
            SettingsFrom::Folder { .. } => None,
        };
        let door = Arc::<Door>::default();
        status_registry.set_admin(door.clone());
        AdminApi {
            editor: Editor::new(events.clone(), main),
            door,
            status_registry: status_registry.clone(),
            events: events.clone(),
            thread: Mutex::default(),
        }
    }

    /// A revision is in force.
    pub fn adopt(&self, number: u64, settings: &Arc<Settings>, written: &WrittenSettings) {
        let mut thread = lock(&self.thread);
        if settings.admin.is_none() && thread.is_none() {
            return;
        }
        self.editor.adopt(number, settings, written);
        self.door.is_for_servers.store(may_change(settings), Relaxed);
        if thread.is_none() {
            let (sender, told) = channel();
            let keeper = Keeper {
                editor: self.editor.clone(),
                door: self.door.clone(),
                status_registry: self.status_registry.clone(),
                events: self.events.clone(),
                own: sender.clone(),
                wanted: None,
                sockets: None,
                running: None,
                last: 0,
                next_try: None,
                pause: PAUSES.0,
                is_stale: false,
            };
            match std::thread::Builder::new().name("tidegate-admin".into()).spawn(move || keeper.run(&told)) {
                Ok(_) => *thread = Some(sender),
                Err(error) => log::error(format_args!("there is no admin API: no thread: {error}")),
            }
        }
        if let Some(thread) = &*thread {
            let _ = thread.send(Told::Adopted(settings.clone()));
        }
    }

    /// A sentence, where a revision waits to be confirmed, or is being made: nothing else takes over until then.
    pub fn waits(&self) -> Option<&'static str> {
        if self.is_changing() {
            return Some("the settings are being changed: try again when that is done");
        }
        self.editor.waits().then_some(
            "a revision of the settings waits to be confirmed: confirm it first, or put another back",
        )
    }

    /// Whether a change of the settings is under way, which may wait for the master.
    pub fn is_changing(&self) -> bool {
        self.editor.is_changing()
    }

    /// A new program is about to take over, or is not: whether changes are begun.
    pub fn set_upgrading(&self, is_upgrading: bool) {
        self.editor.set_upgrading(is_upgrading);
    }

    /// What nobody has confirmed goes from the disk, also what was under way when that was done first. Waits for disks.
    pub fn last_look(&self) -> impl FnOnce() + Send + 'static {
        let editor = self.editor.clone();
        move || editor.end()
    }

    /// The server ends: what nobody has confirmed goes from the disk, and nobody is served any more. Waits for disks.
    pub fn ending(&self) -> impl FnOnce() + Send + 'static {
        let (editor, thread) = (self.editor.clone(), lock(&self.thread).take());
        move || {
            editor.end();
            let (done, is_done) = channel();
            if thread.is_some_and(|thread| thread.send(Told::End(done)).is_ok()) {
                let _ = is_done.recv();
            }
        }
    }
}

/// Whether a route lets whom it lets in change things.
fn may_change(settings: &Settings) -> bool {
    let mut routes = settings.sites.iter().flat_map(|site| &site.routes);
    routes.any(|route| matches!(route.action, Action::Console { may_change: true, .. }))
}

/// Has the process run that the settings ask for.
struct Keeper {
    editor: Arc<Editor>,
    door: Arc<Door>,
    status_registry: Arc<StatusRegistry>,
    events: Sender<Event>,
    own: Sender<Told>,
    wanted: Option<(Admin, Key)>,
    /// What was opened for which settings.
    sockets: Option<Sockets>,
    running: Option<Running>,
    /// The number of the process that was started last.
    last: u64,
    next_try: Option<Instant>,
    pause: Duration,
    /// What runs is of settings that are no longer in force.
    is_stale: bool,
}

struct Running {
    id: u64,
    link: Arc<Link>,
    begun: Instant,
}

impl Keeper {
    fn run(mut self, told: &Receiver<Told>) {
        loop {
            let next = match self.next_try {
                Some(next) => told.recv_timeout(next.saturating_duration_since(Instant::now())),
                None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(Told::Adopted(settings)) => self.adopt(&settings),
                Ok(Told::Gone(id)) => self.gone(id),
                Ok(Told::End(done)) => {
                    self.stop();
                    self.sockets = None;
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.renew(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn adopt(&mut self, settings: &Arc<Settings>) {
        let wanted = settings.admin.as_ref().map(|admin| (admin.clone(), Key::of(admin, settings)));
        let is_same = match (&self.wanted, &wanted) {
            (Some((_, present)), Some((_, next))) => present == next,
            (present, next) => present.is_none() && next.is_none(),
        };
        self.wanted = wanted;
        if !is_same {
            self.is_stale = true;
            match self.running {
                // Who has changed this is to hear so first.
                Some(_) => self.next_try = Some(Instant::now() + RENEWAL),
                None => self.renew(),
            }
        }
        let described = self.editor.describe();
        for info in described.into_iter().chain(self.editor.in_force()).take(1) {
            self.door.tell(&ToAdmin::Revision(info));
        }
    }

    /// Starts the process, with other sockets where the settings say so.
    fn renew(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.stop();
            self.sockets = None;
            self.pause = PAUSES.0;
        }
        self.start();
    }

    fn stop(&mut self) {
        self.door.set(None);
        self.next_try = None;
        if let Some(running) = self.running.take() {
            running.link.close();
        }
    }

    fn gone(&mut self, id: u64) {
        let Some(running) = self.running.take_if(|running| running.id == id) else { return };
        self.door.set(None);
        if running.begun.elapsed() > SOUND {
            self.pause = PAUSES.0;
        }
        log::warn(format_args!(
            "the process of the admin API has ended; it is started again in {} s, and nothing else is concerned",
            self.pause.as_secs()
        ));
        self.try_again();
    }

    fn try_again(&mut self) {
        self.next_try = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    fn start(&mut self) {
        self.next_try = None;
        let Some((admin, key)) = self.wanted.clone() else { return };
        match self.begin(&admin, &key) {
            Ok(running) => {
                self.door.set(Some(running.link.clone()));
                self.running = Some(running);
            }
            Err(error) => {
                log::error(format_args!(
                    "there is no admin API for now: {error:#}; this is tried again in {} s",
                    self.pause.as_secs()
                ));
                self.try_again();
            }
        }
    }

    fn begin(&mut self, admin: &Admin, key: &Key) -> Result<Running> {
        let identity = identity(admin)?;
        if self.sockets.is_none() {
            self.sockets = Some(Sockets::open(key)?);
        }
        let sockets = self.sockets.as_ref().context("nothing is open")?;
        let (ours, theirs) = passing::pair().context("no descriptors are left")?;
        self.last += 1;
        let (id, lost) = (self.last, self.own.clone());
        let (gives, given) = channel::<Child>();
        let office = commands::Office::new(&self.editor, &self.status_registry, &self.events);
        let link = Link::start(
            ours,
            move |link, message: FromAdmin, _| office.hear(link, message),
            move |_| {
                if let Ok(mut child) = given.recv() {
                    // Nobody hears it any more.
                    let _ = child.kill();
                    let _ = child.wait();
                }
                let _ = lost.send(Told::Gone(id));
            },
        )
        .context("cannot start a thread")?;
        let begin = Begin {
            identity,
            owner: rustix::process::geteuid().as_raw(),
            sandbox: key.sandbox,
            sockets: sockets.named(),
        };
        link.order(&begin, sockets.copies()?);
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tidegate").arg("admin").stdin(Stdio::from(theirs)).env_remove(upgrade::VARIABLE);
        for name in OF_THE_MASTER {
            command.env_remove(name);
        }
        let child = command.spawn().context("cannot start its process")?;
        let _ = gives.send(child);
        Ok(Running { id, link, begun: Instant::now() })
    }
}

/// Whom the process becomes.
fn identity(admin: &Admin) -> Result<Option<Identity>> {
    match &admin.user {
        Some(user) => Ok(users::identity(Some(user))?
            .0
            .map(|identity| Identity { groups: vec![identity.gid], ..identity })),
        None if users::can_be_anybody() => {
            Ok(Some(Identity { uid: NOBODY, gid: NOBODY, groups: vec![NOBODY] }))
        }
        None => Ok(None),
    }
}

/// The user and the group that own nothing, by number on every Linux.
const NOBODY: u32 = 65534;
