//! CGI stubs: small processes that start CGI scripts (RFC 3875), one at a time each (R12).
//!
//! Starting a program from the server would cost the server; a stub is small, waits beside it, and many of
//! them start programs on many processors. The supervisor keeps them as a pool whose command is
//! `tidegate cgi-stub`. A worker speaks SCGI to a stub; the stub reads the variables and gives the
//! connection itself to the script, as standard input and standard output: what the script writes goes to
//! the worker without another hand in between. Standard error is the stub's, and goes to the error log.
//!
//! The stub keeps its end of the connection to see when the other is gone: then, and when the script has
//! run for as long as it may, the script's whole process group is killed. It reaps what it has started.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, accept_with, recv, shutdown};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_wire::scgi;

/// Bytes of variables that a request may have.
const VARIABLES: usize = 1 << 20;
/// Digits of a length.
const DIGITS: usize = 8;

/// Serves a listening socket until it is told to end. A script may run for `expiration`.
///
/// # Errors
/// The socket is of no use.
pub fn serve(listener: &OwnedFd, expiration: Duration) -> io::Result<()> {
    loop {
        let connection = match accept_with(listener, rustix::net::SocketFlags::CLOEXEC) {
            Ok(connection) => UnixStream::from(connection),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Err(problem) = serve_one(connection, expiration) {
            eprintln!("cgi: {problem}");
        }
    }
}

fn serve_one(mut connection: UnixStream, expiration: Duration) -> Result<(), String> {
    let head = match read_variables(&mut connection) {
        Ok(Some(head)) => head,
        Ok(None) => return Ok(()), // somebody looked whether we are there
        Err(error) => return Err(format!("a request could not be read: {error}")),
    };
    let variables = match scgi::parse_request(&head, VARIABLES) {
        Ok(Some(request)) => request.variables,
        Ok(None) => return Err("a request is not complete".into()),
        Err(error) => return Err(format!("a request is malformed: {error}")),
    };
    let script = variables.iter().find(|(name, _)| *name == b"SCRIPT_FILENAME");
    let Some((_, script)) = script else { return Err("a request names no script".into()) };
    let script = Path::new(OsStr::from_bytes(script));
    let child = match start(script, &variables, &connection) {
        Ok(child) => child,
        Err(error) => {
            let (status, why) = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    ("403 Forbidden", "it may not be run: `chmod +x` it".into())
                }
                _ => ("500 Internal Server Error", error.to_string()),
            };
            let answer = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n{}\n", &status[4..]);
            let _ = connection.write_all(answer.as_bytes());
            return Err(format!("{}: {why}", script.display()));
        }
    };
    watch(child, &connection, expiration).map_err(|why| format!("{}: {why}", script.display()))
}

/// Reads the variables and not a byte of what follows: that is the script's to read. `None` at the end of
/// the connection.
fn read_variables(connection: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut front = [0; DIGITS + 1];
    let (seen, _) = recv(&*connection, &mut front, RecvFlags::PEEK)?;
    if seen == 0 {
        return Ok(None);
    }
    let front = front.get(..seen).unwrap_or_default();
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "it does not begin with a length");
    let colon = front.iter().position(|byte| *byte == b':').ok_or_else(malformed)?;
    let digits = std::str::from_utf8(front.get(..colon).unwrap_or_default()).map_err(|_| malformed())?;
    let length: usize = digits.parse().map_err(|_| malformed())?;
    if length > VARIABLES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its variables are too long"));
    }
    let mut head = vec![0; colon + 1 + length + 1];
    connection.read_exact(&mut head)?;
    Ok(Some(head))
}

fn start(script: &Path, variables: &[(&[u8], &[u8])], connection: &UnixStream) -> io::Result<Child> {
    let mut command = Command::new(script);
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    // What the pool's settings name is in our environment; what the request says comes on top.
    command.envs(std::env::vars_os());
    for (name, value) in variables {
        // `SCGI` is between the server and this process, and a length of 0 is no content (section 4.1.2).
        let is_ours = *name == b"SCGI" || (*name == b"CONTENT_LENGTH" && *value == b"0");
        let is_sound = !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0);
        if !is_ours && is_sound {
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
    }
    if let Some(folder) = script.parent() {
        command.current_dir(folder);
    }
    // Without anything to be run between fork and exec, so that the system's fast way is taken.
    command.process_group(0);
    command.stdin(Stdio::from(OwnedFd::from(connection.try_clone()?)));
    command.stdout(Stdio::from(OwnedFd::from(connection.try_clone()?)));
    command.spawn()
}

/// Waits for the script to end, and ends it when nobody waits for it or it has had its time.
fn watch(mut child: Child, connection: &UnixStream, expiration: Duration) -> Result<(), String> {
    let pid = Pid::from_child(&child);
    let deadline = Instant::now() + expiration;
    let ended = pidfd_open(pid, PidfdFlags::empty());
    let outcome = match &ended {
        Ok(ended) => wait(ended, connection, deadline),
        Err(error) => Err(format!("it cannot be watched: {error}")),
    };
    if outcome.is_err() {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    // What it has left running does not hold up the answer.
    let _ = shutdown(connection, Shutdown::Write);
    match outcome {
        Ok(()) if status.success() => Ok(()),
        Ok(()) => Err(format!("it ended with {status}")),
        Err(why) if why.is_empty() => Ok(()), // the client went away: nothing to tell
        Err(why) => Err(why),
    }
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
