//! The control socket: a unix socket of mode 0600 on which an operator's commands arrive.
//!
//! One connection is one request: a line from the client (`status json`, `reload`, `stop now`), then the
//! reply, whose first line is `ok` or `failed` and whose rest is text to show. Questions about the state are
//! answered on the connection's own thread, orders go to the master. A client that dawdles costs a thread,
//! of which there are few, and never holds up the master.

mod request;

use super::Event;
use super::proof::{self, Operator, Proof, Proven};
use super::sealing;
use super::status_registry::StatusRegistry;
use super::stores;
use crate::revision::ServeOptions;
use anyhow::{Context, Result, bail};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{geteuid, getppid, getuid};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_io::descriptors::is_exhaustion;
use tidegate_modules::status::Format;

pub use request::{Request, Subject, is_request_id};

/// The longest request line, bytes.
const LINE: u64 = 8 << 10;
/// How long a client may take to send its line and its proof together, and to take each piece of the reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// Commands carried out at once.
const COMMANDS: usize = 16;
/// Connections of whom it is not known yet that they may command: anyone of this user may make some. With one more the
/// oldest goes.
const STRANGERS: usize = 16;
/// How long the master waits for a last reply to leave.
const FAREWELL: Duration = Duration::from_secs(1);

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Whether all of it was done.
    pub is_ok: bool,
    /// What to show.
    pub text: String,
}

impl Reply {
    /// It was done.
    pub fn ok(text: impl Into<String>) -> Reply {
        Reply { is_ok: true, text: text.into() }
    }

    /// It was not done, or not all of it; the text says why.
    pub fn failed(text: impl Into<String>) -> Reply {
        Reply { is_ok: false, text: text.into() }
    }
}

/// The way back to whoever asked.
pub struct Responder {
    reply: Sender<Reply>,
    sent: Receiver<()>,
}

impl Responder {
    /// Answers.
    pub fn send(self, reply: Reply) {
        let _ = self.reply.send(reply);
    }

    /// Answers, and waits until the reply has left: for the last words of a process.
    pub fn send_and_wait(self, reply: Reply) {
        if self.reply.send(reply).is_ok() {
            let _ = self.sent.recv_timeout(FAREWELL);
        }
    }
}

/// Where the control socket of these settings is when nobody says otherwise, and whether the settings fix
/// it: beside the pid file, else in the folder that the system has for such things.
pub fn path_for(settings: Option<&Settings>) -> (PathBuf, bool) {
    if let Some(path) = settings.and_then(|settings| settings.control.clone()) {
        return (path, true);
    }
    if let Some(folder) = settings.and_then(|settings| settings.pid_file.as_deref()).and_then(Path::parent) {
        return (folder.join(NAME), true);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let path = match runtime {
        Some(folder) => folder.join(NAME),
        None if getuid().is_root() => Path::new("/run").join(NAME),
        None => std::env::temp_dir().join(format!("tidegate-{}.sock", getuid().as_raw())),
    };
    (path, false)
}

const NAME: &str = "tidegate.sock";

/// Where the control socket goes, unless a living server has it: an error where it was asked for, a notice
/// where it is only the default. A predecessor gives it up.
pub fn open(options: &ServeOptions, settings: &Settings, has_predecessor: bool) -> Result<Option<Draft>> {
    let (path, is_fixed) = match &options.control {
        Some(path) => (std::path::absolute(path).unwrap_or_else(|_| path.clone()), true),
        None => path_for(Some(settings)),
    };
    let predecessor = getppid().filter(|_| has_predecessor).map(|pid| pid.as_raw_nonzero().get());
    if let Some(pid) = owner(&path).filter(|pid| Some(*pid) != predecessor) {
        let said = format!("the control socket {} is process {pid}'s", path.display());
        if is_fixed {
            bail!("{said}, which runs; stop it, or name another with --control");
        }
        notice(&format!("{said}: this server runs without; give it one of its own with --control"));
        return Ok(None);
    }
    match Draft::bind(&path) {
        Ok(draft) => {
            let is_inherited = has_predecessor && Operator::of(&path).is_asked();
            // Also where `sandbox` is off: a reload may switch it on.
            let proof = sealing::is_possible().then(|| Proof::make(&path, has_predecessor)).flatten();
            let mut draft = draft.with_proof(proof, is_inherited);
            (draft.is_fixed, draft.predecessor) = (is_fixed, predecessor);
            Ok(Some(draft))
        }
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
    let _ = writeln!(io::stderr(), "tidegate: {said}"); // which a full disk may not take
}

/// A bound control socket, not yet in its place. Dropped, it leaves nothing.
pub struct Draft {
    /// Until it is in its place.
    listener: Option<UnixListener>,
    draft: PathBuf,
    path: PathBuf,
    /// What is asked for where applications are the same user.
    proof: Option<Arc<Proof>>,
    /// The secret is that of a predecessor, who goes on with it should this process fail.
    is_inherited: bool,
    /// Without its place there is no server, for it was asked for.
    is_fixed: bool,
    /// Whose place it takes.
    predecessor: Option<i32>,
}

/// A control socket in its place.
pub struct ControlSocket {
    path: PathBuf,
    proof: Option<Arc<Proof>>,
    /// Device and inode, so that a successor's socket is not removed.
    identity: Option<(u64, u64)>,
}

/// A name beside `path` that no other process takes, for what is to be moved there when it is ready.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// The process that answers on a control socket, if one does.
pub fn owner(path: &Path) -> Option<i32> {
    let stream = UnixStream::connect(path).ok()?;
    Some(socket_peercred(&stream).map_or(0, |owner| owner.pid.as_raw_nonzero().get()))
}

impl Draft {
    /// Binds beside `path`. The name in its place is still free, stale, or a predecessor's.
    pub fn bind(path: &Path) -> Result<Draft> {
        let draft = beside(path);
        let bind_and_listen = || -> io::Result<UnixListener> {
            let _ = fs::remove_file(&draft);
            let address = SocketAddrUnix::new(&draft)?;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            bind(&socket, &address)?;
            // Nobody can connect before `listen`, so there is no moment at which others may.
            rustix::fs::chmod(&draft, Mode::RUSR | Mode::WUSR)?;
            listen(&socket, 16)?;
            Ok(UnixListener::from(socket))
        };
        let listener = bind_and_listen()
            .inspect_err(|_| drop(fs::remove_file(&draft)))
            .with_context(|| format!("cannot make the control socket {}", path.display()))?;
        let (listener, path) = (Some(listener), path.to_owned());
        Ok(Draft {
            listener,
            draft,
            path,
            proof: None,
            is_inherited: false,
            is_fixed: true,
            predecessor: None,
        })
    }

    /// Has everybody but root show a proof, which is a predecessor's or this process's own.
    pub fn with_proof(mut self, proof: Option<Proof>, is_inherited: bool) -> Draft {
        self.proof = proof.map(Arc::new);
        self.is_inherited = is_inherited;
        self
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The proof that is asked for.
    pub fn proof(&self) -> Option<&Path> {
        self.proof.as_ref().map(|proof| proof.path())
    }

    /// Moves it to its place, where a predecessor's or a stale one may lie, and serves it. `None`: another server that has
    /// started meanwhile has the place, and nobody has asked for it.
    pub fn install(
        mut self,
        status_registry: Arc<StatusRegistry>,
        events: Sender<Event>,
    ) -> Result<Option<ControlSocket>> {
        let at = || format!("cannot make the control socket {}", self.path.display());
        let _alone = lock_folder(&self.path);
        let own = std::process::id().cast_signed();
        let other = owner(&self.path).filter(|pid| *pid != own && Some(*pid) != self.predecessor);
        if let Some(pid) = other {
            let said = format!("the control socket {} has just become process {pid}'s", self.path.display());
            if self.is_fixed {
                bail!("{said}, which has started at the same moment; name another with --control");
            }
            notice(&format!("{said}: this server runs without; give it one of its own with --control"));
            return Ok(None);
        }
        if fs::symlink_metadata(&self.path).is_ok_and(|there| !is_socket(&there)) {
            bail!("{}: something that is no socket lies there", at());
        }
        let (gives, given) = channel();
        let proof = self.proof.clone();
        // Before anything is seen of it: where there is no thread nothing has changed.
        std::thread::Builder::new()
            .name("tidegate-control".into())
            .spawn(move || {
                if let Ok(listener) = given.recv() {
                    accept(&listener, proof.as_ref(), &status_registry, &events);
                }
            })
            .with_context(at)?;
        fs::rename(&self.draft, &self.path).with_context(at)?;
        if self.proof.is_none() {
            proof::forget(&self.path);
        }
        if let Some(listener) = self.listener.take() {
            let _ = gives.send(listener);
        }
        let (path, proof) = (self.path.clone(), self.proof.take());
        Ok(Some(ControlSocket { identity: identity(&path), path, proof }))
    }
}

/// How long another server may be taking a place in the same folder, which takes it a moment.
const TAKING: Duration = Duration::from_secs(1);

/// Keeps others that take a place in the same folder from doing so at the same moment. Where it cannot be had the place is taken
/// without: everybody may lock a folder such as `/tmp`, and nobody is to keep a server from starting by that.
fn lock_folder(path: &Path) -> Option<File> {
    let folder = File::open(path.parent()?).ok()?;
    let deadline = Instant::now() + TAKING;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            Err(_) => return None, // it is held all the time, or the file system knows no such lock
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.listener.is_none() {
            return; // it is in its place
        }
        let _ = fs::remove_file(&self.draft);
        if let Some(proof) = self.proof.as_ref().filter(|_| !self.is_inherited) {
            proof.remove();
        }
    }
}

impl ControlSocket {
    /// Where it is, and which one it is.
    pub fn place(&self) -> (PathBuf, Option<(u64, u64)>) {
        (self.path.clone(), self.identity)
    }

    /// Removes it from its place with its proof, unless a successor's lies there, which has taken the proof over.
    pub fn remove(&self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
            if let Some(proof) = &self.proof {
                proof.remove();
            }
        }
    }
}

/// A control socket whose place somebody else may take who does not stay.
pub struct HeldSocket {
    path: PathBuf,
    held: Option<PathBuf>,
    identity: Option<(u64, u64)>,
}

impl HeldSocket {
    /// Gives the socket at a place a second name, before a successor puts its own there.
    pub fn hold((path, identity): (PathBuf, Option<(u64, u64)>)) -> HeldSocket {
        let held = beside(&path);
        let _ = fs::remove_file(&held);
        let is_held = fs::hard_link(&path, &held).is_ok();
        HeldSocket { path, held: is_held.then_some(held), identity }
    }

    /// Puts it back in its place, unless it is there, or another server answers there.
    pub fn put_back(mut self) {
        let is_gone = identity(&self.path) != self.identity && owner(&self.path).is_none();
        if let Some(held) = self.held.take_if(|_| is_gone)
            && fs::rename(&held, &self.path).is_err()
        {
            self.held = Some(held);
        }
    }
}

impl Drop for HeldSocket {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            let _ = fs::remove_file(held);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

fn is_socket(there: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    there.file_type().is_socket()
}

fn accept(
    listener: &UnixListener,
    proof: Option<&Arc<Proof>>,
    status_registry: &Arc<StatusRegistry>,
    events: &Sender<Event>,
) {
    let guests = Arc::new(Guests::default());
    // Given up for a command where there is no other: most need none beside, and the others say that there is none left.
    let mut spare = None;
    loop {
        spare = spare.or_else(|| eventfd(0, EventfdFlags::CLOEXEC).ok());
        let accepted = match listener.accept() {
            Err(error) if is_exhaustion(&error) && spare.take().is_some() => listener.accept(),
            accepted => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => Arc::new(stream),
            // Out of descriptors or memory: try again shortly, without spinning.
            Err(_) => {
                std::thread::park_timeout(Duration::from_millis(100));
                continue;
            }
        };
        if let Some(oldest) = guests.come(&stream) {
            refuse_all_at_once(&oldest);
            let _ = oldest.shutdown(Shutdown::Both); // its thread ends
        }
        let (status_registry, events, own) = (status_registry.clone(), events.clone(), guests.clone());
        let (proof, served) = (proof.cloned(), stream.clone());
        let serving = std::thread::Builder::new().name("tidegate-command".into()).spawn(move || {
            serve(&served, proof.as_deref(), (&status_registry, &events), &own);
            own.leave(&served);
        });
        if serving.is_err() {
            guests.leave(&stream);
        }
    }
}

/// Who is connected.
#[derive(Default)]
struct Guests {
    /// Of whom it is not known yet that they may command, the oldest first.
    strangers: Mutex<VecDeque<Arc<UnixStream>>>,
    /// Commands that are carried out.
    commands: AtomicUsize,
}

impl Guests {
    /// One more has come. Who has to go for it.
    fn come(&self, stream: &Arc<UnixStream>) -> Option<Arc<UnixStream>> {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if strangers.len() < STRANGERS { None } else { strangers.pop_front() };
        strangers.push_back(stream.clone());
        oldest
    }

    /// It is no stranger any longer.
    fn leave(&self, stream: &Arc<UnixStream>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|known| !Arc::ptr_eq(known, stream));
    }

    /// A place for a command of one who may command.
    fn take_place(&self) -> Option<Place<'_>> {
        let taken =
            self.commands.fetch_update(Relaxed, Relaxed, |open| (open < COMMANDS).then_some(open + 1));
        taken.ok().map(|_| Place(&self.commands))
    }
}

struct Place<'g>(&'g AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn refuse_all_at_once(stream: &UnixStream) {
    respond(stream, None, &Reply::failed("too many commands at once; try again"));
}

/// Reads until a deadline, however small the pieces are.
struct Until<'s> {
    stream: &'s UnixStream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// Whether it is root or this process's own user: the mode of the file says the same, but a folder may have been opened
/// to others, or the file given to them.
fn may_command(
    Until { stream, deadline }: Until<'_>,
    proof: Option<&Proof>,
    command: &str,
) -> Result<Option<Proven>, Reply> {
    match socket_peercred(stream) {
        Ok(peer) if peer.uid.is_root() => Ok(None),
        Ok(peer) if peer.uid == geteuid() => {
            let ask = |proof: &Proof| proof.ask(stream, Until { stream, deadline }, command);
            proof.map(ask).transpose().map_err(Reply::failed)
        }
        Ok(peer) => Err(Reply::failed(format!(
            "user {} may not command this server: only root and user {} may",
            peer.uid.as_raw(),
            geteuid().as_raw()
        ))),
        Err(error) => Err(Reply::failed(format!("who commands cannot be seen: {error}"))),
    }
}

fn serve(
    stream: &Arc<UnixStream>,
    proof: Option<&Proof>,
    (status_registry, events): (&StatusRegistry, &Sender<Event>),
    guests: &Guests,
) {
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let deadline = Instant::now() + PATIENCE;
    let mut line = String::new();
    if BufReader::new(Until { stream, deadline }.take(LINE)).read_line(&mut line).is_err() {
        return;
    }
    let Some(line) = line.strip_suffix('\n') else { return };
    let proven = match may_command(Until { stream, deadline }, proof, line) {
        Ok(proven) => proven,
        Err(refusal) => return respond(stream, None, &refusal),
    };
    guests.leave(stream);
    let Some(_place) = guests.take_place() else { return refuse_all_at_once(stream) };
    let respond = |reply: &Reply| respond(stream, proven.as_ref(), reply);
    let Some(request) = Request::parse(line) else {
        return respond(&Reply::failed("the server does not know this command"));
    };
    let request = match answer(request, status_registry) {
        Ok(reply) => return respond(&reply),
        Err(order) => *order,
    };
    let (reply, replies) = channel();
    let (sent, is_sent) = channel();
    if events.send(Event::Order(request, Responder { reply, sent: is_sent })).is_err() {
        return respond(&Reply::failed("the server is ending"));
    }
    // The master answers, or ends and drops the sender.
    match replies.recv() {
        Ok(reply) => respond(&reply),
        Err(_) => respond(&Reply::failed("the server has ended before this was done")),
    }
    let _ = sent.send(());
}

/// Answers a question about the state; an order comes back, which is for the master.
pub fn answer(request: Request, status_registry: &StatusRegistry) -> Result<Reply, Box<Request>> {
    let told = |(is_ok, text)| Reply { is_ok, text };
    Ok(match request {
        Request::Status(form) => Reply::ok(status_registry.report(form)),
        Request::Cache(question) => {
            let (question, format) = match question.strip_suffix("json") {
                Some(question) => (question.trim_end(), Format::Json),
                None => (question.as_str(), Format::Text),
            };
            told(status_registry.cache(question, format))
        }
        Request::Show(subject, format) => Reply::ok(status_registry.show(subject, format)),
        Request::Cancel { id, is_rehearsal } => told(status_registry.cancel(&id, is_rehearsal)),
        Request::CancelAll { selection, is_rehearsal } => {
            told(status_registry.cancel_all(&selection, is_rehearsal))
        }
        Request::Tail { name, selection } => told(status_registry.tail(&name, selection.as_ref())),
        Request::Stores(order) => told(stores::carry_out(status_registry, &order)),
        Request::Bans => Reply::ok(status_registry.rates().bans()),
        Request::LiftAll => Reply::ok(status_registry.lift_all()),
        Request::Lift(address) => told(status_registry.lift(address)),
        order => return Err(Box::new(order)),
    })
}

/// Has the master carry out an order, and waits until it is done.
pub fn order(events: &Sender<Event>, request: Request) -> Reply {
    let (reply, replies) = channel();
    let (_sent, is_sent) = channel();
    if events.send(Event::Order(request, Responder { reply, sent: is_sent })).is_err() {
        return Reply::failed("the server is ending");
    }
    replies.recv().unwrap_or_else(|_| Reply::failed("the server has ended before this was done"))
}

fn respond(mut stream: &UnixStream, proven: Option<&Proven>, reply: &Reply) {
    let word = if reply.is_ok { "ok" } else { "failed" };
    let reply = format!("{word}\n{}", reply.text);
    let proof = proven.map(|proven| proven.line_before(reply.as_bytes())).unwrap_or_default();
    let _ = stream.write_all((proof + &reply).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_takes_the_place_of_a_stale_one_and_leaves_a_successors() {
        let folder = std::env::temp_dir().join(format!("tidegate-control-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control");
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(owner(&path), None, "nobody answers on a stale one");
        let (events, _orders) = channel();
        let first =
            Draft::bind(&path).unwrap().install(StatusRegistry::new(), events.clone()).unwrap().unwrap();
        assert_eq!(owner(&path), Some(std::process::id().cast_signed()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let second = Draft::bind(&path).unwrap().install(StatusRegistry::new(), events).unwrap().unwrap();
        first.remove();
        assert!(path.exists());
        second.remove();
        assert!(!path.exists());
        fs::write(&path, "not a socket").unwrap();
        let (events, _orders) = channel();
        assert!(Draft::bind(&path).unwrap().install(StatusRegistry::new(), events).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn whoever_locks_the_folder_keeps_no_server_from_starting() {
        let folder = std::env::temp_dir().join(format!("tidegate-locked-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let held = File::open(&folder).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let path = folder.join("control");
        assert!(lock_folder(&path).is_none());
        let (events, _orders) = channel();
        let socket = Draft::bind(&path).unwrap().install(StatusRegistry::new(), events).unwrap().unwrap();
        assert_eq!(owner(&path), Some(std::process::id().cast_signed()));
        socket.remove();
        drop(held);
        assert!(lock_folder(&path).is_some());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A server that has a secret already, or has none, goes on as before when its successor fails late.
    #[test]
    fn a_draft_that_is_given_up_leaves_nothing_of_its_own() {
        let folder = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let folder = folder.join(format!("control-draft-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control");
        let names = || fs::read_dir(&folder).unwrap().count();
        let own = |has_predecessor| {
            let is_inherited = has_predecessor && Operator::of(&path).is_asked();
            let proof = Proof::make(&path, has_predecessor).expect("nobody else writes there");
            let file = proof.path().to_owned();
            (Draft::bind(&path).unwrap().with_proof(Some(proof), is_inherited), file)
        };
        drop(Draft::bind(&path).unwrap());
        assert_eq!(names(), 0);
        let (draft, file) = own(true);
        assert!(file.exists());
        drop(draft);
        assert!(!file.exists() && names() == 0, "its predecessor asks for none");
        let kept = Proof::make(&path, false).unwrap();
        let (draft, file) = own(true);
        assert_eq!(kept.path(), file);
        drop(draft);
        assert!(file.exists(), "its predecessor asks for it");
        kept.remove();
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Whoever has this user and does not know the secret holds the socket for a moment at most.
    #[test]
    fn strangers_keep_nobody_from_commanding() {
        let folder = std::env::temp_dir().join(format!("tidegate-strangers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control");
        let (events, _orders) = channel();
        let socket = Draft::bind(&path).unwrap().install(StatusRegistry::new(), events).unwrap().unwrap();
        let mut strangers: Vec<UnixStream> =
            (0..STRANGERS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let patience = Some(tidegate_testkit::WAIT);
        strangers.iter().for_each(|stream| stream.set_read_timeout(patience).unwrap());
        strangers.iter_mut().for_each(|stream| stream.write_all(b"s").unwrap());
        let mut operator = UnixStream::connect(&path).unwrap();
        operator.set_read_timeout(patience).unwrap();
        operator.write_all(b"nothing\n").unwrap();
        let mut said = String::new();
        operator.read_to_string(&mut said).unwrap();
        assert!(said.contains("does not know this command"), "{said}");
        // The oldest has gone for it, and hears why.
        let mut said = Vec::new();
        let _ = strangers[0].read_to_end(&mut said);
        assert!(String::from_utf8_lossy(&said).contains("too many commands at once"));
        // Another one is served to the end of its line.
        strangers[1].write_all(b"ome command\n").unwrap();
        let mut said = String::new();
        strangers[1].read_to_string(&mut said).unwrap();
        assert!(said.contains("does not know this command"), "{said}");
        socket.remove();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn small_pieces_have_no_more_time() {
        let (client, server) = UnixStream::pair().unwrap();
        (&client).write_all(b"s").unwrap();
        let now = Instant::now();
        let mut reader = Until { stream: &server, deadline: now };
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        let mut reader = Until { stream: &server, deadline: now + PATIENCE };
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1);
        assert!(server.read_timeout().unwrap().is_some_and(|left| left <= PATIENCE));
    }
}
