//! Replacing the program without closing its door: the new one inherits the listening sockets, says when it
//! serves, and only then does the old one accept no more.
//!
//! The old process calls [`launch`], the new one [`Handover::take`]. Between them is one socket, which the new process has
//! as standard input: over it go the listening sockets, the keys of session tickets and the names that are served, and back
//! comes `ready`, or why it cannot serve. No descriptor is ever without close-on-exec: other threads start applications at
//! any moment, and those must get none of it (FAULTS 61).

use super::Event;
use super::rates::Rates;
use super::sockets::{OpenAddress, Sockets};
use super::status_registry::StatusRegistry;
use crate::link::Figures;
use crate::revision::lost_names;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_config::settings::ListenAddress;
use tidegate_core::log;
use tidegate_core::rate::{self, TablePlace};
use tidegate_io::passing;
use tidegate_modules::gateway::supervise::process_table::{Handle, children_of_thread};
use tidegate_modules::status::OtlpReport;
use tidegate_stats::history::SentHistory;

/// The variable that says whose successor a process is. It means nothing to any process but the direct child.
pub const VARIABLE: &str = "TIDEGATE_PREDECESSOR";

/// How long a new program may take until it serves.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a new program that is not wanted any more may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long one that was killed is waited for.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked for meanwhile, while it is about to be started.
const LOOK: Duration = Duration::from_millis(50);

/// What the new program may say: a few diagnostics.
const SAID: u64 = 64 << 10;

/// What a new program is told, with the sockets of all listeners, one after the other.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    listeners: Vec<ToldListener>,
    /// The tables of limits, whose memories come behind the sockets.
    #[serde(default)]
    tables: Vec<TablePlace>,
    /// Whether the memory of what applications purge comes last.
    #[serde(default)]
    has_purges: bool,
    /// What programs of before say instead, whose tables each have a memory of its own.
    #[serde(default, skip_serializing)]
    rates: Vec<rate::Identity>,
    /// The keys of session tickets.
    tickets: Vec<u8>,
    /// Those that are served.
    names: Vec<String>,
    /// Whether names and addresses may go.
    allows_loss: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct ToldListener {
    requested: ListenAddress,
    taken: ListenAddress,
    /// How many sockets it has.
    sockets: usize,
    given: Option<String>,
    file: Option<(u64, u64)>,
}

/// What a new program gets.
pub struct Estate<'a> {
    /// Copies of these.
    pub sockets: &'a Sockets,
    /// What limits have counted.
    pub rates: &'a Rates,
    /// How stores of responses hear of what applications purge.
    pub purges: Option<&'a Arc<OwnedFd>>,
    /// The keys of session tickets.
    pub tickets: Vec<u8>,
    /// Those that are served.
    pub names: Vec<String>,
    /// Whether names and addresses may go.
    pub allows_loss: bool,
}

/// A new program that starts. It is known from its first moment on, so that a server that is told to end leaves none behind.
pub struct Starting {
    state: Arc<Mutex<Progress>>,
    /// Ends with the thread that starts it.
    thread: Receiver<()>,
}

/// How far it is.
enum Progress {
    /// Nobody has started it.
    Waits,
    /// This thread does, and may hang in it: the file may be on a file system that does not answer.
    Executes(Pid),
    Runs(Handle),
    /// What came of it.
    Over(Result<Successor, String>),
    /// It is wanted no more, or what came of it has been taken.
    GivenUp,
}

impl Starting {
    fn lock(state: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Progress {
        std::mem::replace(&mut *Starting::lock(&self.state), Progress::GivenUp)
    }

    /// What came of it, once it is known.
    pub fn outcome(self) -> Option<Result<Successor, String>> {
        match self.take() {
            Progress::Over(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Ends it, and waits until it has ended. One that has just said that it serves is left, and returned.
    pub fn give_up(self, is_hurried: bool) -> Option<Successor> {
        let patience = if is_hurried { Duration::ZERO } else { GRACE };
        let mut which = String::new();
        let thread = match self.take() {
            Progress::Over(outcome) => return outcome.ok(),
            Progress::Waits | Progress::GivenUp => None,
            Progress::Executes(thread) => Some(thread),
            Progress::Runs(child) => {
                which = format!(" {}", child.number());
                child.end_with_descendants(patience);
                None
            }
        };
        let until = Instant::now() + END_PATIENCE;
        loop {
            if let Some(thread) = thread {
                children_of_thread(thread).iter().for_each(|child| child.signal(Signal::KILL));
            }
            if self.thread.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
                return None;
            }
            if until <= Instant::now() {
                log::error(format_args!(
                    "the new program{which} cannot be ended, and is left with the sockets of this server: look for a file \
                     system that does not answer"
                ));
                return None;
            }
        }
    }
}

/// Starts `executable` and hands it what this process has. An [`Event::Upgraded`] says that there is an outcome.
pub fn launch(
    executable: &Path,
    arguments: &[OsString],
    estate: Estate<'_>,
    events: Sender<Event>,
) -> Result<Starting> {
    let Estate { sockets, rates, purges, tickets, names, allows_loss } = estate;
    let (hear, theirs) = passing::pair().context("cannot open a link to the new program")?;
    let (mut listeners, mut copies) = (Vec::new(), Vec::<OwnedFd>::new());
    for open in sockets.iter() {
        for socket in &open.sockets {
            copies.push(socket.try_clone().context("cannot copy a socket")?);
        }
        listeners.push(ToldListener {
            requested: open.requested.clone(),
            taken: open.taken.clone(),
            sockets: open.sockets.len(),
            given: open.given.clone(),
            file: open.file,
        });
    }
    let (tables, memories) = rates.copies().context("cannot copy the memory of limits")?;
    copies.extend(memories);
    let has_purges = purges.is_some();
    let purges = purges.map(|memory| memory.try_clone()).transpose();
    copies.extend(purges.context("cannot copy the memory of purges")?);
    let told = Told { listeners, tables, has_purges, rates: Vec::new(), tickets, names, allows_loss };
    let told = serde_json::to_vec(&told)?;
    let mut command = Command::new(executable);
    command.args(arguments).env(VARIABLE, std::process::id().to_string()).stdin(Stdio::from(theirs));
    let cannot = format!("cannot start {}", executable.display());
    let state = Arc::new(Mutex::new(Progress::Waits));
    let (lives, thread) = channel::<()>();
    let own = state.clone();
    // The thread is there before the program, which nobody would wait for otherwise.
    std::thread::Builder::new()
        .name("tidegate-upgrade".into())
        .spawn(move || {
            let _lives = lives;
            let told = (told, copies);
            let outcome =
                start(command, &own, hear, told).unwrap_or_else(|error| Err(format!("{cannot}: {error}")));
            let mut state = Starting::lock(&own);
            if !matches!(*state, Progress::GivenUp) {
                *state = Progress::Over(outcome);
                let _ = events.send(Event::Upgraded);
            }
        })
        .context("cannot start a thread")?;
    Ok(Starting { state, thread })
}

/// Starts it, hands over, and waits until it serves or has ended.
fn start(
    mut command: Command,
    state: &Mutex<Progress>,
    hear: OwnedFd,
    (told, copies): (Vec<u8>, Vec<OwnedFd>),
) -> std::io::Result<Result<Successor, String>> {
    let given_up = || Ok(Err("it was given up".to_owned()));
    match &mut *Starting::lock(state) {
        Progress::GivenUp => return given_up(),
        state => *state = Progress::Executes(rustix::thread::gettid()),
    }
    let mut child = command.spawn()?;
    drop(command); // with it our copy of their end
    let handle = Handle::open(child.id()).ok_or_else(std::io::Error::last_os_error);
    let handle = handle.inspect_err(|_| end(&mut child))?;
    match &mut *Starting::lock(state) {
        Progress::GivenUp => {
            end(&mut child);
            return given_up();
        }
        state => *state = Progress::Runs(handle),
    }
    // One that does not read is given up like one that says nothing; what comes of it is heard below.
    let _ = set_socket_timeout(&hear, Timeout::Send, Some(PATIENCE));
    let borrowed: Vec<BorrowedFd<'_>> = copies.iter().map(AsFd::as_fd).collect();
    let _ = passing::send(hear.as_fd(), &told, &borrowed);
    drop(copies);
    Ok(listen_to(child, hear, PATIENCE))
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits until the child says that it serves, or why not; its process number once it serves. After `patience` it is given
/// up, whatever it does or does not do.
fn listen_to(mut child: Child, hear: OwnedFd, patience: Duration) -> Result<Successor, String> {
    let deadline = Instant::now() + patience;
    let said = hear_out(&hear, deadline);
    if let Some(notes) = said.as_deref().ok().and_then(notes_before_ready) {
        let notes = String::from_utf8_lossy(notes).into_owned();
        return Ok(Successor { pid: child.id(), process: Handle::open(child.id()), notes, link: hear });
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
        if count == 0 || notes_before_ready(&said).is_some() {
            return Ok(said);
        }
        if said.len() as u64 > SAID {
            return Err("it says too much, and was ended".into());
        }
    }
}

/// What was said before the last line, when that one is [`READY`]: a note may end with the word as well.
fn notes_before_ready(said: &[u8]) -> Option<&[u8]> {
    said.strip_suffix(READY).filter(|notes| notes.is_empty() || notes.ends_with(b"\n"))
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

/// What the new process says when it serves, behind what else there is to say.
const READY: &[u8] = b"ready\n";

/// A new process that serves.
#[derive(Debug)]
pub struct Successor {
    /// Its process number.
    pub pid: u32,
    /// What has changed with it, in lines.
    pub notes: String,
    process: Option<Handle>,
    link: OwnedFd,
}

impl Successor {
    /// Tells it to end as this process does.
    pub fn end(&self, is_hurried: bool) {
        self.signal(if is_hurried { Signal::INT } else { Signal::TERM });
    }

    /// Tells it to open the logs anew, which it tells this process in turn.
    pub fn reopen_logs(&self) {
        self.signal(Signal::USR1);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// Whether it has ended by then.
    pub fn has_ended(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        self.process.as_ref().is_none_or(|process| process.ends_within(left))
    }

    /// Tells it what has been counted until now, so that its reports go on from there, and the first time what there was. `false`: it
    /// hears nothing any more.
    pub fn tell(&self, figures: &Figures, otlp: Option<OtlpReport>, history: Option<SentHistory>) -> bool {
        // Each program passes over what it does not know.
        #[derive(Serialize)]
        struct Words<'w> {
            #[serde(flatten)]
            figures: &'w Figures,
            #[serde(skip_serializing_if = "Option::is_none")]
            otlp: Option<OtlpReport>,
            #[serde(skip_serializing_if = "Option::is_none")]
            history: Option<SentHistory>,
        }
        let words = serde_json::to_vec(&Words { figures, otlp, history });
        words.is_ok_and(|bytes| passing::send(self.link.as_fd(), &bytes, &[]).is_ok())
    }
}

/// What a predecessor has left for this process.
pub struct Handover {
    /// Its sockets.
    pub sockets: Sockets,
    /// What its limits have counted.
    pub rates: Rates,
    /// How stores of responses hear of what applications purge.
    pub purges: Option<Arc<OwnedFd>>,
    /// The keys of its TLS session tickets.
    pub tickets: Vec<u8>,
    /// The names that it serves.
    names: Vec<String>,
    /// Whether names and addresses may go.
    pub allows_loss: bool,
    process: Handle,
    link: OwnedFd,
}

impl Handover {
    /// Takes over what the predecessor has left; `None` where there is no predecessor.
    pub fn take() -> Result<Option<Handover>> {
        let Ok(from) = std::env::var(VARIABLE) else { return Ok(None) };
        // The variable outlives its purpose in the environment: only the child it was made for may use it.
        let process = getppid().and_then(|pid| Handle::open(pid.as_raw_nonzero().get().unsigned_abs()));
        // Looked at behind the opening: this is the process that is open.
        let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        if from.parse() != Ok(parent) {
            let made_by = socket_peercred(std::io::stdin()).map(|peer| peer.pid.as_raw_nonzero().get());
            if made_by.is_ok_and(|pid| from.parse() == Ok(pid)) {
                bail!("the predecessor, process {from}, has ended before it handed over");
            }
            return Ok(None);
        }
        let process = process.context("cannot watch the predecessor")?;
        let link = std::io::stdin().as_fd().try_clone_to_owned().context("cannot take the link")?;
        let nothing = File::open("/dev/null").context("cannot open /dev/null")?;
        rustix::stdio::dup2_stdin(&nothing).context("cannot replace standard input")?;
        let received = passing::receive(link.as_fd()).context("cannot hear the predecessor")?;
        let (bytes, descriptors) = received.context("the predecessor has ended before it handed over")?;
        let told: Told = serde_json::from_slice(&bytes).context("the predecessor is not understood")?;
        let mut descriptors = descriptors.into_iter();
        let mut addresses = Vec::new();
        for ToldListener { requested, taken, sockets: count, given, file } in told.listeners {
            let sockets: Vec<OwnedFd> = descriptors.by_ref().take(count).collect();
            if sockets.len() < count {
                bail!("the predecessor has handed over fewer sockets than it said");
            }
            addresses.push(OpenAddress { requested, taken, sockets, given, file });
        }
        // What still drains there hears of what is purged here.
        let purges = if told.has_purges { descriptors.next_back() } else { None };
        let memories = descriptors.collect();
        let rates = match told.tables.is_empty() {
            true => Rates::inherit_each(told.rates, memories),
            false => Rates::inherit(told.tables, memories),
        };
        Ok(Some(Handover {
            sockets: Sockets::new(addresses),
            rates,
            purges: purges.map(Arc::new),
            tickets: told.tickets,
            names: told.names,
            allows_loss: told.allows_loss,
            process,
            link,
        }))
    }

    /// What these settings take away, as ends of a sentence.
    pub fn lost(&self, settings: &Settings) -> Vec<String> {
        let names = lost_names(&self.names, settings);
        let addresses = self.sockets.unlisted(settings);
        [("serve", names), ("listen on", addresses)]
            .into_iter()
            .filter(|(_, lost)| !lost.is_empty())
            .map(|(what, lost)| format!("{what} {}", lost.join(", ")))
            .collect()
    }

    /// Tells the predecessor that this process serves, and what whoever asked for it should know: its process. `None`: it has
    /// ended meanwhile, because it was told to, and so should this one.
    pub fn ready(
        self,
        notes: &str,
        status_registry: &Arc<StatusRegistry>,
        events: Sender<Event>,
    ) -> Option<Handle> {
        let mut link = File::from(self.link);
        if link.write_all(&[notes.as_bytes(), READY].concat()).is_err() {
            return None;
        }
        #[derive(Deserialize)]
        struct ToldOfCollector {
            otlp: Option<OtlpReport>,
        }
        // What it has counted comes now, and once more at its end.
        let status_registry = status_registry.clone();
        let hearing = std::thread::Builder::new().name("tidegate-before".into());
        let _ = hearing.spawn(move || {
            while let Ok(Some((bytes, _))) = passing::receive(link.as_fd()) {
                if let Ok(figures) = serde_json::from_slice(&bytes) {
                    status_registry.set_before(figures);
                }
                if let Ok(ToldOfCollector { otlp: Some(otlp) }) = serde_json::from_slice(&bytes) {
                    status_registry.set_otlp_before(otlp);
                }
                status_registry.history.inherit(&bytes);
            }
            status_registry.history.predecessor_has_ended();
            // Nobody hears it where this server has ended.
            let _ = events.send(Event::PredecessorEnded);
        });
        Some(self.process)
    }

    /// Tells the predecessor why this process cannot serve.
    pub fn failed(self, why: &str) {
        let _ = File::from(self.link).write_all(why.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn estate<'a>(sockets: &'a Sockets, rates: &'a Rates) -> Estate<'a> {
        Estate {
            sockets,
            rates,
            purges: None,
            tickets: vec![7; 100],
            names: vec!["a.test".into()],
            allows_loss: false,
        }
    }

    fn outcome(script: &str, patience: Duration) -> Result<Successor, String> {
        let (hear, tell) = passing::pair().unwrap();
        let child = Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::from(tell)).spawn().unwrap();
        listen_to(child, hear, patience)
    }

    #[test]
    fn hears_ready_a_reason_and_a_crash() {
        let outcome = |script| outcome(script, PATIENCE);
        assert_eq!(outcome("echo ready; exec sleep 0.1").unwrap().notes, "");
        assert_eq!(
            outcome("echo a name is gone; echo ready; exec sleep 0.1").unwrap().notes,
            "a name is gone\n"
        );
        let why = outcome("echo the pool is not ready; exit 1").unwrap_err();
        assert_eq!(why, "the pool is not ready", "a line of its own, not the end of another");
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
        let why = outcome("exec yes read", PATIENCE).unwrap_err();
        assert_eq!(why, "it says too much, and was ended");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_at_once() {
        let (events, said) = channel();
        let (sockets, rates) = (Sockets::default(), Rates::default());
        let starting = launch(Path::new("/no/such/program"), &[], estate(&sockets, &rates), events).unwrap();
        let Ok(Event::Upgraded) = said.recv_timeout(PATIENCE) else { panic!("it is heard of") };
        let why = starting.outcome().unwrap().unwrap_err();
        assert!(why.contains("cannot start /no/such/program"), "{why}");
    }

    /// FAULTS 61: the new program gets what it needs by way of its standard input, and nothing is open for others.
    #[test]
    fn no_descriptor_is_left_open_for_what_is_started() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("tidegate-upgrade-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (script, out) = (folder.join("new"), folder.join("out"));
        let lines = format!("#!/bin/sh\nreadlink /proc/$$/fd/* > {}\necho done >&0\n", out.display());
        std::fs::write(&script, lines).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let settings = tidegate_config::from_folder(Path::new("/"), &["127.0.0.1:0".to_owned()]).unwrap();
        let sockets = Sockets::open(&settings, 3, &Sockets::default()).unwrap();
        let (events, said) = channel();
        let starting = launch(&script, &[], estate(&sockets, &Rates::default()), events).unwrap();
        let Ok(Event::Upgraded) = said.recv_timeout(PATIENCE) else { panic!("it ends") };
        let why = starting.outcome().unwrap().unwrap_err();
        assert_eq!(why, "done");
        let open = std::fs::read_to_string(&out).unwrap();
        assert_eq!(open.lines().filter(|target| target.starts_with("socket:")).count(), 1, "{open}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
