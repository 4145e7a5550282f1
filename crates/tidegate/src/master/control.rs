//! The control socket: a unix socket of mode 0600 on which an operator's commands arrive.
//!
//! One connection is one request: a line from the client (`status json`, `reload`, `stop now`), then the
//! reply, whose first line is `ok` or `failed` and whose rest is text to show. Questions about the state are
//! answered on the connection's own thread, orders go to the master. A client that dawdles costs a thread,
//! of which there are few, and never holds up the master.

use super::Event;
use super::proof::{self, Proof, Proven};
use super::sealing;
use super::status_registry::StatusRegistry;
use crate::revision::ServeOptions;
use anyhow::{Context, Result, bail};
use rustix::fs::Mode;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{geteuid, getppid, getuid};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_modules::status::Format;

/// The longest request line, bytes.
const LINE: u64 = 8 << 10;
/// How long a client may take to send its line, and to take each piece of the reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections served at once.
const CONNECTIONS: usize = 16;
/// How long the master waits for a last reply to leave.
const FAREWELL: Duration = Duration::from_secs(1);

/// What an operator asks of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A report.
    Status(Format),
    /// A question to every worker about its file cache: `report`, `list`, `start`, `stop`, `restart`, each
    /// also with ` json` behind it.
    Cache(String),
    /// Take up new settings.
    Reload {
        /// Whether names that the files no longer hold may go.
        allows_loss: bool,
        /// The settings file that the operator means; `None` is the server's, whatever it is.
        config: Option<PathBuf>,
    },
    /// End; `now` cuts what is in flight.
    Stop {
        /// Whether to wait for nothing.
        now: bool,
        /// The settings file of the server that is meant.
        config: Option<PathBuf>,
    },
    /// Hand over to a new program.
    Upgrade {
        /// `None` is the one that was started.
        binary: Option<PathBuf>,
        /// Whether names that the files no longer hold may go.
        allows_loss: bool,
    },
}

impl Request {
    /// As a line, without its end.
    pub fn to_line(&self) -> String {
        match self {
            Request::Status(Format::Text | Format::Html) => "status text".into(),
            Request::Status(Format::Json) => "status json".into(),
            Request::Status(Format::Prometheus) => "status prometheus".into(),
            Request::Cache(question) => format!("cache {question}").trim_end().into(),
            Request::Reload { allows_loss, config } => {
                line("reload", ("allow-loss", *allows_loss), ("of", config.as_deref()))
            }
            Request::Stop { now, config } => line("stop", ("now", *now), ("of", config.as_deref())),
            Request::Upgrade { binary, allows_loss } => {
                line("upgrade", ("allow-loss", *allows_loss), ("to", binary.as_deref()))
            }
        }
    }

    /// Reads a line.
    pub fn parse(line: &str) -> Option<Request> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match (word, rest) {
            ("status", "" | "text") => Request::Status(Format::Text),
            ("status", "json") => Request::Status(Format::Json),
            ("status", "prometheus") => Request::Status(Format::Prometheus),
            ("cache", question) => Request::Cache(question.into()),
            ("reload", rest) => {
                let (allows_loss, config) = parse_order(rest, "allow-loss", "of")?;
                Request::Reload { allows_loss, config }
            }
            ("stop", rest) => {
                let (now, config) = parse_order(rest, "now", "of")?;
                Request::Stop { now, config }
            }
            ("upgrade", rest) => {
                let (allows_loss, binary) = parse_order(rest, "allow-loss", "to")?;
                Request::Upgrade { binary, allows_loss }
            }
            _ => return None,
        })
    }
}

/// An order with its word and its path, each of which may be left out; the path is last and may hold spaces.
fn line(order: &str, (word, is_said): (&str, bool), (what, path): (&str, Option<&Path>)) -> String {
    let word = if is_said { format!(" {word}") } else { String::new() };
    let path = path.map(|path| format!(" {what} {}", path.display())).unwrap_or_default();
    format!("{order}{word}{path}")
}

fn parse_order(rest: &str, word: &str, what: &str) -> Option<(bool, Option<PathBuf>)> {
    let (is_said, rest) = match rest.strip_prefix(word) {
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => (true, rest.trim_start()),
        _ => (false, rest),
    };
    match rest.split_once(' ') {
        None if rest.is_empty() => Some((is_said, None)),
        Some((before, path)) if before == what && !path.is_empty() => Some((is_said, Some(path.into()))),
        _ => None,
    }
}

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
            let proof = sealing::is_needed(settings).then(|| Proof::make(&path, has_predecessor)).flatten();
            Ok(Some(draft.with_proof(proof)))
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
    eprintln!("tidegate: {said}");
}

/// A bound control socket, not yet in its place.
pub struct Draft {
    listener: UnixListener,
    draft: PathBuf,
    path: PathBuf,
    /// What is asked for where applications are the same user.
    proof: Option<Arc<Proof>>,
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
        Ok(Draft { listener, draft, path: path.to_owned(), proof: None })
    }

    /// Has everybody but root show a proof.
    pub fn with_proof(mut self, proof: Option<Proof>) -> Draft {
        self.proof = proof.map(Arc::new);
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

    /// Moves it to its place, where a predecessor's or a stale one may lie, and serves it.
    pub fn install(
        self,
        status_registry: Arc<StatusRegistry>,
        events: Sender<Event>,
    ) -> Result<ControlSocket> {
        let at = || format!("cannot make the control socket {}", self.path.display());
        if fs::symlink_metadata(&self.path).is_ok_and(|there| !is_socket(&there)) {
            let _ = fs::remove_file(&self.draft);
            bail!("{}: something that is no socket lies there", at());
        }
        fs::rename(&self.draft, &self.path)
            .inspect_err(|_| drop(fs::remove_file(&self.draft)))
            .with_context(at)?;
        if self.proof.is_none() {
            proof::forget(&self.path);
        }
        let (listener, proof) = (self.listener, self.proof.clone());
        std::thread::Builder::new()
            .name("tidegate-control".into())
            .spawn(move || accept(&listener, proof.as_ref(), &status_registry, &events))
            .with_context(at)?;
        Ok(ControlSocket { identity: identity(&self.path), path: self.path, proof: self.proof })
    }
}

impl ControlSocket {
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
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // Out of descriptors or memory: try again shortly, without spinning.
            Err(_) => {
                std::thread::park_timeout(Duration::from_millis(100));
                continue;
            }
        };
        if open.load(Relaxed) >= CONNECTIONS {
            respond(&stream, None, &Reply::failed("too many commands at once; try again"));
            continue;
        }
        open.fetch_add(1, Relaxed);
        let (status_registry, events, counted) = (status_registry.clone(), events.clone(), open.clone());
        let proof = proof.cloned();
        let served = std::thread::Builder::new().name("tidegate-command".into()).spawn(move || {
            serve(&stream, proof.as_deref(), &status_registry, &events);
            counted.fetch_sub(1, Relaxed);
        });
        if served.is_err() {
            open.fetch_sub(1, Relaxed);
        }
    }
}

/// Whether it is root or this process's own user: the mode of the file says the same, but a folder may have been opened
/// to others, or the file given to them.
fn may_command(stream: &UnixStream, proof: Option<&Proof>, command: &str) -> Result<Option<Proven>, Reply> {
    match socket_peercred(stream) {
        Ok(peer) if peer.uid.is_root() => Ok(None),
        Ok(peer) if peer.uid == geteuid() => {
            proof.map(|proof| proof.ask(stream, command)).transpose().map_err(Reply::failed)
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
    stream: &UnixStream,
    proof: Option<&Proof>,
    status_registry: &StatusRegistry,
    events: &Sender<Event>,
) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let mut line = String::new();
    if BufReader::new(stream.take(LINE)).read_line(&mut line).is_err() {
        return;
    }
    let Some(line) = line.strip_suffix('\n') else { return };
    let proven = match may_command(stream, proof, line) {
        Ok(proven) => proven,
        Err(refusal) => return respond(stream, None, &refusal),
    };
    let respond = |reply: &Reply| respond(stream, proven.as_ref(), reply);
    let request = match Request::parse(line) {
        None => return respond(&Reply::failed("the server does not know this command")),
        Some(Request::Status(form)) => return respond(&Reply::ok(status_registry.report(form))),
        Some(Request::Cache(question)) => {
            let (question, format) = match question.strip_suffix("json") {
                Some(question) => (question.trim_end(), Format::Json),
                None => (question.as_str(), Format::Text),
            };
            let (is_ok, text) = status_registry.cache(question, format);
            return respond(&Reply { is_ok, text });
        }
        Some(order) => order,
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
    fn requests_survive_their_line() {
        for request in [
            Request::Status(Format::Text),
            Request::Status(Format::Json),
            Request::Status(Format::Prometheus),
            Request::Cache("list".into()),
            Request::Cache(String::new()),
            Request::Reload { allows_loss: false, config: None },
            Request::Reload { allows_loss: true, config: None },
            Request::Reload { allows_loss: true, config: Some("/etc/of a/b.kdl".into()) },
            Request::Stop { now: false, config: None },
            Request::Stop { now: true, config: Some("/etc/b.kdl".into()) },
            Request::Upgrade { binary: None, allows_loss: false },
            Request::Upgrade { binary: Some("/opt/a b/tidegate".into()), allows_loss: true },
        ] {
            assert_eq!(Request::parse(&request.to_line()), Some(request.clone()), "{request:?}");
        }
        assert_eq!(Request::parse("reload everything"), None);
        assert_eq!(Request::parse("reload of"), None);
        assert_eq!(Request::parse("stop nowhere"), None);
        assert_eq!(Request::parse(""), None);
    }

    #[test]
    fn a_socket_takes_the_place_of_a_stale_one_and_leaves_a_successors() {
        let folder = std::env::temp_dir().join(format!("tidegate-control-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control");
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(owner(&path), None, "nobody answers on a stale one");
        let (events, _orders) = channel();
        let first = Draft::bind(&path).unwrap().install(StatusRegistry::new(), events.clone()).unwrap();
        assert_eq!(owner(&path), Some(std::process::id().cast_signed()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let second = Draft::bind(&path).unwrap().install(StatusRegistry::new(), events).unwrap();
        first.remove();
        assert!(path.exists());
        second.remove();
        assert!(!path.exists());
        fs::write(&path, "not a socket").unwrap();
        let (events, _orders) = channel();
        assert!(Draft::bind(&path).unwrap().install(StatusRegistry::new(), events).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
