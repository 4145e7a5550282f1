//! CGI stubs: small processes that start CGI scripts (RFC 3875), one at a time each (R12).
//!
//! Starting a program from the server would cost the server; a stub is small, waits beside it, and many of
//! them start programs on many processors. The supervisor keeps them as a pool whose command is
//! `tidegate cgi-stub`. A worker speaks SCGI to a stub; the stub reads the variables and gives the
//! connection itself to the script, as standard input and standard output: what the script writes goes to
//! the worker without another hand in between. Standard error is the stub's, and goes to the error log.
//!
//! The stub keeps its end of the connection to see when the other is gone: then, and when the script has
//! run for as long as it may, the script's whole process group is killed. When a script has ended, so does all that it has
//! left running, also what has made itself a daemon: the stub is a subreaper (`supervise/descendants.rs`).
//!
//! An answer ends where its script does. When a script has ended by itself the stub says so on the same connection, behind
//! what has been written ([`mark_end`]). Without that the answer is broken off: the script was killed, by the stub or by
//! somebody else's signal, or the stub was.

use super::script_fault::fault_of;
use super::supervise::descendants;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, accept_with, recv, send, shutdown};
use rustix::process::{Signal, WaitOptions, kill_process_group, waitpid};
use std::ffi::{CStr, CString, FromBytesWithNulError, NulError, OsStr};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tidegate_client::mark_end;
use tidegate_http::Status;
use tidegate_io::spawn::{Program, Spawner, Started};
use tidegate_wire::scgi;

/// Bytes of variables that a request may have.
const VARIABLES: usize = 1 << 20;
/// Digits of a length.
const DIGITS: usize = 8;
/// Bytes that are kept from one request to the next.
const KEPT: usize = 64 << 10;

/// Answers whose end waits to be marked; the one beyond makes all others wait.
const UNTOLD_MAX: usize = 64;
/// Before it is tried again where the system has no memory for it.
const UNTOLD_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long what a script has left running may take to be dead; the keeper of the stub sees to the rest.
const LEFT_PATIENCE: Duration = Duration::from_secs(1);

/// Serves a listening socket until it is told to end. A script may run for `expiration`.
///
/// # Errors
/// The socket is of no use.
pub fn serve(listener: &OwnedFd, expiration: Duration) -> io::Result<()> {
    descendants::adopt_orphans()?;
    let mut stub = Stub::new(expiration);
    loop {
        stub.endings.tell_until_asked(listener)?;
        let connection = match accept_with(listener, rustix::net::SocketFlags::CLOEXEC) {
            Ok(connection) => UnixStream::from(connection),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Err(problem) = stub.serve_one(connection) {
            eprintln!("cgi: {problem}");
        }
    }
}

struct Stub {
    spawner: Spawner,
    /// What the pool's settings name, which is this process's own environment: the length of the name, `NAME=value`.
    own: Vec<(usize, CString)>,
    /// The variables of a request as they come.
    head: Vec<u8>,
    /// The same as an environment.
    entries: Entries,
    endings: Endings,
}

/// How scripts end.
struct Endings {
    /// How long one may run.
    expiration: Duration,
    /// What scripts have left and cannot be ended.
    left: descendants::Left,
    /// Answers whose end is to be marked when there is room behind what has been written of them.
    untold: Vec<UnixStream>,
}

/// `NAME=value` one after another, each with a NUL behind it.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Entries {
    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.ends.clear();
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b"=", value, b"\0"] {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = Result<&CStr, FromBytesWithNulError>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let entries = starts.zip(&self.ends);
        entries.map(|(start, end)| CStr::from_bytes_with_nul(self.bytes.get(start..*end).unwrap_or_default()))
    }
}

impl Stub {
    fn new(expiration: Duration) -> Stub {
        let own = std::env::vars_os().filter_map(|(name, value)| {
            let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
            Some((name.len(), CString::new(entry).ok()?))
        });
        Stub {
            spawner: Spawner::default(),
            own: own.collect(),
            head: Vec::new(),
            entries: Entries::default(),
            endings: Endings { expiration, left: descendants::Left::default(), untold: Vec::new() },
        }
    }

    fn serve_one(&mut self, mut connection: UnixStream) -> Result<(), String> {
        match read_variables(&mut connection, &mut self.head) {
            Ok(true) => {}
            Ok(false) => return Ok(()), // somebody looked whether we are there
            Err(error) => return Err(format!("a request could not be read: {error}")),
        }
        let variables = match scgi::parse_request(&self.head, VARIABLES) {
            Ok(Some(request)) => request.variables,
            Ok(None) => return Err("a request is not complete".into()),
            Err(error) => return Err(format!("a request is malformed: {error}")),
        };
        let script = variables.iter().find(|(name, _)| *name == b"SCRIPT_FILENAME");
        let Some(&(_, script)) = script else { return Err("a request names no script".into()) };
        self.entries.clear();
        for (name, value) in &variables {
            // `SCGI` is between the server and this process, and a length of 0 is no content (section 4.1.2).
            let is_ours = *name == b"SCGI" || (*name == b"CONTENT_LENGTH" && *value == b"0");
            let is_sound =
                !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0);
            if !is_ours && is_sound {
                self.entries.push(name, value);
            }
        }
        // What the request says is in place of what the settings say.
        let own = self.own.iter().filter(|(len, entry)| {
            let name = entry.to_bytes().get(..*len).unwrap_or_default();
            !variables.iter().any(|(other, _)| *other == name)
        });
        let own = own.map(|(_, entry)| Ok(entry.as_c_str()));
        let started = environment(own.chain(self.entries.iter()))
            .and_then(|environment| start(&mut self.spawner, script, &environment, &connection));
        let (file, script) = (Path::new(OsStr::from_bytes(script)), String::from_utf8_lossy(script));
        match started {
            Ok(started) => {
                let ended = self.endings.watch(&started, connection);
                // The next script writes to the same pipe, and no line of it begins with what this one has left.
                let _ = io::stderr().write_all(b"\n");
                ended.map_err(|why| {
                    // An interpreter that env(1) does not find is said by its status alone.
                    fault_of(file).filter(|_| !why.is_empty()).map_or(why, |fault| fault.why)
                })
            }
            Err(error) => {
                let (status, why) = match (fault_of(file), error.kind()) {
                    (Some(fault), _) if fault.status == Status::FORBIDDEN => ("403 Forbidden", fault.why),
                    (Some(fault), _) => ("500 Internal Server Error", fault.why),
                    (None, io::ErrorKind::PermissionDenied) => {
                        ("403 Forbidden", "the pool's user may not run it: `chmod +x` it".into())
                    }
                    (None, _) => ("500 Internal Server Error", error.to_string()),
                };
                let answer =
                    format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n{}\n", &status[4..]);
                let _ = send(&connection, answer.as_bytes(), SendFlags::NOSIGNAL);
                self.endings.mark(connection);
                Err(why)
            }
        }
        .map_err(|why| format!("{script}: {why}"))
    }
}

impl Endings {
    /// Marks the ends that could not be marked at once, until somebody asks for a script.
    fn tell_until_asked(&mut self, listener: &OwnedFd) -> io::Result<()> {
        let mut is_short = false;
        while !self.untold.is_empty() {
            // Where the system had no memory for it, room for it says nothing.
            let (told, pause) =
                if is_short { (&[][..], Some(&UNTOLD_PAUSE)) } else { (&self.untold[..], None) };
            let mut fds: Vec<_> = told.iter().map(|answer| PollFd::new(answer, PollFlags::OUT)).collect();
            let room = fds.len();
            if self.untold.len() < UNTOLD_MAX {
                fds.push(PollFd::new(listener, PollFlags::IN));
            }
            match poll(&mut fds, pause) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_asked = fds.get(room).is_some_and(|listener| !listener.revents().is_empty());
            let before = self.untold.len();
            self.untold.retain(|answer| !mark_end(answer));
            is_short = self.untold.len() == before;
            if is_asked {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the end of a script, and says how it was.
    fn watch(&mut self, script: &Started, connection: UnixStream) -> Result<(), String> {
        let (outcome, is_whole) = watch(script, &connection, self.expiration);
        if is_whole {
            self.mark(connection);
        } else {
            // What it has left running does not hold up the end.
            let _ = shutdown(&connection, Shutdown::Write);
        }
        self.left.end_all(LEFT_PATIENCE);
        outcome
    }

    /// The answer is whole.
    fn mark(&mut self, answer: UnixStream) {
        if !mark_end(&answer) {
            self.untold.push(answer);
        }
    }
}

fn environment<'e>(
    entries: impl Iterator<Item = Result<&'e CStr, FromBytesWithNulError>>,
) -> io::Result<Vec<&'e CStr>> {
    entries.map(|entry| entry.map_err(io::Error::other)).collect()
}

fn start(
    spawner: &mut Spawner,
    script: &[u8],
    environment: &[&CStr],
    connection: &UnixStream,
) -> io::Result<Started> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|error: NulError| io::Error::other(error));
    let folder = match script.iter().rposition(|byte| *byte == b'/') {
        Some(at) => script.get(..at.max(1)).unwrap_or_default(),
        None => b".",
    };
    let (path, folder) = (text(script)?, text(folder)?);
    spawner.start(&Program { path: &path, environment, folder: &folder, stdio: connection.as_fd() })
}

/// Reads the variables and not a byte of what follows: that is the script's to read. `false` at the end of
/// the connection.
fn read_variables(connection: &mut UnixStream, head: &mut Vec<u8>) -> io::Result<bool> {
    let mut front = [0; DIGITS + 1];
    let (seen, _) = recv(&*connection, &mut front, RecvFlags::PEEK)?;
    if seen == 0 {
        return Ok(false);
    }
    let front = front.get(..seen).unwrap_or_default();
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "it does not begin with a length");
    let colon = front.iter().position(|byte| *byte == b':').ok_or_else(malformed)?;
    let digits = std::str::from_utf8(front.get(..colon).unwrap_or_default()).map_err(|_| malformed())?;
    let length: usize = digits.parse().map_err(|_| malformed())?;
    if length > VARIABLES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its variables are too long"));
    }
    head.clear();
    head.shrink_to(KEPT);
    head.resize(colon + 1 + length + 1, 0);
    connection.read_exact(head)?;
    Ok(true)
}

/// Waits for the script to end, and ends it when nobody waits for it or it has had its time. Whether it has ended by itself, so
/// that what it has written is an answer.
fn watch(script: &Started, connection: &UnixStream, expiration: Duration) -> (Result<(), String>, bool) {
    let outcome = wait(&script.ended, connection, Instant::now() + expiration);
    if outcome.is_err() {
        let _ = kill_process_group(script.pid, Signal::KILL);
    }
    let ended = loop {
        match waitpid(Some(script.pid), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return (Err(error.to_string()), false),
            Ok(ended) => break ended,
        }
    };
    let status = ExitStatus::from_raw(ended.map_or(0, |(_, status)| status.as_raw()));
    let is_whole = outcome.is_ok() && status.signal().is_none();
    let outcome = match outcome {
        Ok(()) if status.success() => Ok(()),
        Ok(()) => Err(format!("it ended with {status}; run it by hand as its user to see why")),
        Err(why) if why.is_empty() => Ok(()), // the client went away: nothing to tell
        Err(why) => Err(why),
    };
    (outcome, is_whole)
}

fn wait(ended: &OwnedFd, connection: &UnixStream, deadline: Instant) -> Result<(), String> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("it took too long and was killed".into());
        }
        // No event is asked of the connection: that the other end is gone is told all the same.
        let mut fds = [
            PollFd::new(ended, PollFlags::IN),
            PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::empty()),
        ];
        let timeout = Timespec::try_from(left).map_err(|error| error.to_string())?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) if fds[0].revents().contains(PollFlags::IN) => return Ok(()),
            Ok(_) if fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR) => {
                return Err(String::new());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("it cannot be watched: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_end_of_an_answer_is_marked_once_there_is_room_while_others_ask() {
        let folder = std::env::temp_dir().join(format!("tidegate-untold-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("stub.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (mut answer, mut reader) = UnixStream::pair().unwrap();
        answer.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = answer.write(&[b'x'; 4096]) {
            written += count;
        }
        assert!(!mark_end(&answer));
        let left = descendants::Left::default();
        let mut endings = Endings { expiration: Duration::ZERO, left, untold: vec![answer] };
        let listener = OwnedFd::from(listener);
        // Somebody asks: that is not held up by whoever reads slowly.
        let asking = UnixStream::connect(&path).unwrap();
        endings.tell_until_asked(&listener).unwrap();
        assert_eq!(endings.untold.len(), 1);
        drop((accept_with(&listener, rustix::net::SocketFlags::CLOEXEC).unwrap(), asking));
        std::fs::remove_dir_all(&folder).unwrap();
        // Nobody does, and it is read.
        let telling =
            std::thread::spawn(move || endings.tell_until_asked(&listener).map(|()| endings.untold.len()));
        let mut read = vec![0; written];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(telling.join().unwrap().unwrap(), 0);
        let mut sign = Vec::new();
        reader.read_to_end(&mut sign).unwrap();
        assert_eq!(sign, b".");
    }
}
