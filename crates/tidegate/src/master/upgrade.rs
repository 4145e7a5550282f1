//! Replacing the program without closing its door: the new one inherits the listening sockets, says when it
//! serves, and only then does the old one accept no more.
//!
//! The old process calls [`launch`], the new one [`Handover::take`]. What passes between them: open
//! descriptors, a JSON object in the environment that names them, and a pipe on which the new process says
//! `ready` or why it cannot serve.

use super::Event;
use super::roster::Roster;
use super::sockets::{OpenAddress, Sockets};
use crate::link::Figures;
use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::dup;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tidegate_config::settings::ListenAddress;
use tidegate_io::{passing, socket};

/// The variable that names the descriptors. It means nothing to any process but the direct child.
pub const VARIABLE: &str = "TIDEGATE_LISTENERS";

/// How long a new program may take until it serves.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the new program may say: a few diagnostics.
const SAID: u64 = 64 << 10;

/// Starts `executable` with copies of the sockets. `names` are those that it has to serve as well. What becomes of it arrives as an [`Event::Upgraded`].
pub fn launch(
    executable: &Path,
    arguments: &[OsString],
    sockets: &Sockets,
    tickets: &[u8],
    names: Option<&[String]>,
    events: Sender<Event>,
) -> Result<()> {
    let (hear, tell) = passing::pair().context("cannot open a link to the new program")?;
    // Keys are no matter for the environment, which others may read.
    passing::send(hear.as_fd(), tickets, &[]).context("cannot speak to the new program")?;
    // Copies made by `dup` stay open in the child; ours are closed at the end of this function.
    let mut copies: Vec<OwnedFd> = Vec::new();
    let mut copy = |fd: &OwnedFd| -> Result<RawFd> {
        let copy = dup(fd).context("cannot copy a socket")?;
        let number = copy.as_raw_fd();
        copies.push(copy);
        Ok(number)
    };
    let mut listeners = Vec::new();
    for open in sockets.iter() {
        let numbers = open.sockets.iter().map(&mut copy).collect::<Result<Vec<RawFd>>>()?;
        listeners.push(json!({
            "requested": open.requested.to_string(),
            "taken": open.taken.to_string(),
            "sockets": numbers,
            "given": open.given,
            "file": open.file,
        }));
    }
    let tell = copy(&tell)?;
    // As a file: thousands of names do not fit the environment.
    let names = names.map(|names| copy(&file_of_names(names)?)).transpose()?;
    let handover = json!({
        "from": std::process::id(), "tell": tell, "listeners": listeners, "tickets": true, "names": names,
    });
    let child = Command::new(executable)
        .args(arguments)
        .env(VARIABLE, handover.to_string())
        .spawn()
        .with_context(|| format!("cannot start {}", executable.display()))?;
    drop(copies);
    std::thread::Builder::new()
        .name("tidegate-upgrade".into())
        .spawn(move || {
            let outcome = listen_to(child, hear, PATIENCE);
            let _ = events.send(Event::Upgraded(outcome));
        })
        .context("cannot start a thread")?;
    Ok(())
}

fn file_of_names(names: &[String]) -> Result<OwnedFd> {
    let file = memfd_create("tidegate-names", MemfdFlags::CLOEXEC).context("cannot make a file in memory")?;
    let mut file = std::fs::File::from(file);
    file.write_all(names.join("\n").as_bytes())
        .and_then(|()| file.rewind())
        .context("cannot write a file in memory")?;
    Ok(file.into())
}

/// Waits until the child says that it serves, or why not; its process number once it serves. After `patience` it is given
/// up, whatever it does or does not do.
fn listen_to(mut child: Child, hear: OwnedFd, patience: Duration) -> Result<Successor, String> {
    let deadline = Instant::now() + patience;
    let said = hear_out(&hear, deadline);
    if said.as_deref() == Ok(READY) {
        return Ok(Successor { pid: child.id(), link: hear });
    }
    // Who has said its last word ends soon. One that does not, or says nothing, would hold up every later upgrade.
    let pid = Pid::from_child(&child);
    let ended = pidfd_open(pid, PidfdFlags::empty());
    let ends = said.is_ok() && ended.is_ok_and(|ended| matches!(wait_for(&ended, deadline), Ok(true)));
    if !ends {
        let _ = child.kill();
    }
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    match (said, ends) {
        (Err(why), _) => Err(why),
        (Ok(said), _) if !said.trim_ascii().is_empty() => {
            Err(String::from_utf8_lossy(said.trim_ascii_end()).into_owned())
        }
        (Ok(_), true) => Err(format!("it ended before it served ({status})")),
        (Ok(_), false) => Err(given_up(patience)),
    }
    .map_err(|why| if why.is_empty() { given_up(patience) } else { why })
}

fn given_up(patience: Duration) -> String {
    format!("it did not serve within {} s and was ended", patience.as_secs_f32())
}

/// What the child says until it serves or closes its end. An empty reason: it took too long.
fn hear_out(hear: &OwnedFd, deadline: Instant) -> Result<Vec<u8>, String> {
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match wait_for(hear, deadline) {
            Ok(true) => {}
            Ok(false) => return Err(String::new()),
            Err(error) => return Err(format!("it cannot be heard: {error}")),
        }
        let count = rustix::io::read(hear, &mut buffer).unwrap_or(0);
        said.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if count == 0 || said == READY {
            return Ok(said);
        }
        if said.len() as u64 > SAID {
            return Err("it says too much, and was ended".into());
        }
    }
}

/// Whether there is something to read before the deadline.
fn wait_for(fd: &OwnedFd, deadline: Instant) -> rustix::io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.map(|count| count > 0),
        }
    }
}

/// What the new process says when it serves.
const READY: &[u8] = b"ready\n";

/// A new process that serves.
#[derive(Debug)]
pub struct Successor {
    /// Its process number.
    pub pid: u32,
    link: OwnedFd,
}

impl Successor {
    /// Tells it what has been counted until now, so that its reports go on from there.
    pub fn tell(&self, figures: &Figures) {
        if let Ok(bytes) = serde_json::to_vec(figures) {
            let _ = passing::send(self.link.as_fd(), &bytes, &[]);
        }
    }
}

/// What a predecessor has left for this process.
pub struct Handover {
    /// Its sockets.
    pub sockets: Sockets,
    /// The keys of its TLS session tickets.
    pub tickets: Option<Vec<u8>>,
    /// The names that it serves and that may not be lost.
    pub names: Vec<String>,
    link: OwnedFd,
}

impl Handover {
    /// Takes over what the predecessor has left; `None` where there is no predecessor.
    pub fn take() -> Result<Option<Handover>> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
        let handover: Value = serde_json::from_str(&text).unwrap_or_default();
        // The variable outlives its purpose in the environment: only the child it was made for may use it.
        let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        if handover["from"].as_i64() != Some(i64::from(parent)) {
            return Ok(None);
        }
        let link = inherit(&handover["tell"])?;
        // Who does not say that there are any sends none, and waiting for them would be for ever.
        let tickets = (handover["tickets"] == true).then(|| passing::receive(link.as_fd()).ok().flatten());
        let tickets = tickets.flatten().map(|(bytes, _)| bytes);
        let mut addresses = Vec::new();
        for open in handover["listeners"].as_array().into_iter().flatten() {
            let sockets = open["sockets"].as_array().into_iter().flatten().map(inherit);
            addresses.push(OpenAddress {
                requested: address(&open["requested"])?,
                taken: address(&open["taken"])?,
                sockets: sockets.collect::<Result<Vec<OwnedFd>>>()?,
                given: open["given"].as_str().map(str::to_owned),
                file: serde_json::from_value(open["file"].clone()).unwrap_or_default(),
            });
        }
        let names = match &handover["names"] {
            Value::Null => Vec::new(),
            number => {
                let mut text = String::new();
                let mut file = std::fs::File::from(inherit(number)?);
                file.read_to_string(&mut text).context("cannot read which names are served")?;
                text.lines().map(str::to_owned).collect()
            }
        };
        Ok(Some(Handover { sockets: Sockets::new(addresses), tickets, names, link }))
    }

    /// Tells the predecessor that this process serves. `false`: it has ended meanwhile, because it was told
    /// to, and so should this one.
    pub fn ready(self, roster: &Arc<Roster>) -> bool {
        let mut link = std::fs::File::from(self.link);
        if link.write_all(READY).is_err() {
            return false;
        }
        // What it has counted comes now, and once more at its end.
        let roster = roster.clone();
        let hearing = std::thread::Builder::new().name("tidegate-before".into());
        let _ = hearing.spawn(move || {
            while let Ok(Some((bytes, _))) = passing::receive(link.as_fd()) {
                if let Ok(figures) = serde_json::from_slice(&bytes) {
                    roster.set_before(figures);
                }
            }
        });
        true
    }

    /// Tells the predecessor why this process cannot serve.
    pub fn failed(self, why: &str) {
        let _ = std::fs::File::from(self.link).write_all(why.as_bytes());
    }
}

fn inherit(number: &Value) -> Result<OwnedFd> {
    let number = number.as_i64().and_then(|number| RawFd::try_from(number).ok());
    let number = number.filter(|number| *number > 2).ok_or_else(|| anyhow!("{VARIABLE} is malformed"))?;
    socket::inherited(number).with_context(|| format!("descriptor {number} was not handed over"))
}

fn address(text: &Value) -> Result<ListenAddress> {
    let text = text.as_str().unwrap_or_default();
    match (text.strip_prefix("unix:"), text.parse()) {
        (Some(path), _) => Ok(ListenAddress::Unix(path.into())),
        (None, Ok(address)) => Ok(ListenAddress::Tcp(address)),
        (None, Err(_)) => bail!("{VARIABLE} is malformed: `{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;
    use std::sync::mpsc::channel;

    fn outcome(script: &str, patience: Duration) -> Result<Successor, String> {
        let (hear, tell) = passing::pair().unwrap();
        let child = Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::from(tell)).spawn().unwrap();
        listen_to(child, hear, patience)
    }

    #[test]
    fn hears_ready_a_reason_and_a_crash() {
        let outcome = |script| outcome(script, PATIENCE);
        assert!(outcome("echo ready; exec sleep 0.1").is_ok());
        assert_eq!(outcome("echo cannot listen; exit 1").unwrap_err(), "cannot listen");
        let crash = outcome("exit 3").unwrap_err();
        assert!(crash.contains("exit status: 3"), "{crash}");
    }

    /// However it hangs: without a word, in the middle of one, or with its end of the link closed.
    #[test]
    fn a_program_that_hangs_is_given_up() {
        for script in ["exec sleep 1000", "printf rea; exec sleep 1000", "exec >&-; exec sleep 1000"] {
            let why = outcome(script, Duration::from_millis(300)).unwrap_err();
            assert_eq!(why, "it did not serve within 0.3 s and was ended", "{script}");
        }
        let why = outcome("echo cannot listen; exec >&-; exec sleep 1000", Duration::from_millis(300));
        assert_eq!(why.unwrap_err(), "cannot listen");
        let why = outcome("exec yes ready", PATIENCE).unwrap_err();
        assert_eq!(why, "it says too much, and was ended");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_at_once() {
        let (events, _) = channel();
        let error =
            launch(Path::new("/no/such/program"), &[], &Sockets::default(), &[], None, events).unwrap_err();
        assert!(format!("{error:#}").contains("cannot start /no/such/program"));
    }

    #[test]
    fn addresses_survive_the_way() {
        for text in ["127.0.0.1:80", "[::1]:0", "unix:/run/a b;=,.sock"] {
            assert_eq!(address(&json!(text)).unwrap().to_string(), text);
        }
    }
}
