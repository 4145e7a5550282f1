//! The keeper of one process of a pool: a small process between the supervisor and the application, which ends all that the
//! application has started when the application ends.
//!
//! An application may start what it likes, in groups and sessions of its own, and let it lose its parent (`nohup`, a double
//! `fork`). The keeper is a subreaper, so that it becomes the parent of all of that (`descendants`), and it ends
//! only when nothing is left below it. It has the master's user, which an application's is usually not, and where it is,
//! landlock keeps the application's signals from it (`seal`).
//!
//! - `TERM` goes on to the application. `END_ALL` kills all of it.
//! - It ends as the application has ended: with its status, or by the same signal.
//! - When its parent, the master, is killed, the guard (`guard`) sees to the pools. Should the guard be gone as well, the
//!   keeper ends the application by itself, later than the guard would.
//! - Should the keeper be killed, so is the application (`PR_SET_PDEATHSIG`, `launch`).
//!
//! Standard input and standard output are for the application, whose standard error is its standard output; the keeper's
//! own standard error is a pipe on which it says the number of the application.

use super::descendants;
use super::launch::{Launch, OURSELVES};
use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitStatus, getppid, kill_process, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use signal_hook::low_level::{emulate_default_handler, raise};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What has a keeper kill the application and all that it has started.
pub(super) const END_ALL: Signal = Signal::QUIT;
/// What the kernel sends when the parent has gone.
const ORPHANED: Signal = Signal::USR1;
/// How long the guard of a master that was killed has before the keeper acts by itself: the two do the same.
const GUARD_PATIENCE: Duration = Duration::from_secs(3);
/// How long an application that has lost its server may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often what does not die is killed again.
const AGAIN: Duration = Duration::from_millis(100);

/// What a keeper has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeper {
    /// Its parent, the supervisor's process.
    pub parent: u32,
    /// How long server processes without a master may take: applications are needed for that.
    pub patience: Duration,
}

impl Keeper {
    /// The command that runs a program so, kept: this program, which starts it by way of `launch`.
    pub(super) fn command<S: AsRef<std::ffi::OsStr>>(&self, launch: &Launch, argv: &[S]) -> Command {
        let mut command = Command::new(OURSELVES);
        command.arg("keep").arg(self.parent.to_string()).arg(self.patience.as_secs().to_string());
        command.arg(launch.to_argument()).arg("--").args(argv);
        command
    }

    /// The keeper itself. Returns the status that the application has ended with, where it was not ended by a signal.
    ///
    /// # Errors
    /// The application cannot be started, or not be watched.
    pub fn run(&self, launch: Launch, argv: &[OsString]) -> io::Result<u8> {
        descendants::adopt_orphans()?;
        let signals = signals()?;
        set_parent_process_death_signal(Some(ORPHANED))?;
        let child = start(launch, argv)?;
        release_streams(child)?;
        let mut watch = Watch { keeper: *self, child, ended: None, phase: Phase::Running };
        watch.advance(Instant::now()); // the parent may have gone before the signal was asked for
        loop {
            poll_for(&signals, watch.due())?;
            while let Some(signal) = signals.read_signal()? {
                watch.heard(Signal::from_named_raw(signal.ssi_signo.cast_signed()));
            }
            loop {
                match descendants::reap() {
                    Ok(Some((pid, status))) if pid == child => watch.ended = Some(status),
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return Ok(end_as(watch.ended)),
                }
            }
            watch.advance(Instant::now());
        }
    }
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The parent has gone; the application is told to end then.
    Orphaned {
        until: Instant,
    },
    /// It was told so by the keeper; all of it is killed then.
    Told {
        until: Instant,
    },
    /// Whatever is left is killed.
    Ending,
}

struct Watch {
    keeper: Keeper,
    child: Pid,
    /// How the application has ended, once it has.
    ended: Option<WaitStatus>,
    phase: Phase,
}

impl Watch {
    fn heard(&mut self, signal: Option<Signal>) {
        match signal {
            Some(Signal::TERM | Signal::INT | Signal::HUP) => self.tell(),
            Some(END_ALL) => self.phase = Phase::Ending,
            _ => {} // a child has ended, or the parent: both are looked at anyway
        }
    }

    fn tell(&self) {
        if self.ended.is_none() {
            let _ = kill_process(self.child, Signal::TERM);
        }
    }

    /// Does what is due.
    fn advance(&mut self, now: Instant) {
        let parent = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
        if self.phase == Phase::Running && parent != Some(self.keeper.parent) {
            self.phase = Phase::Orphaned { until: now + self.keeper.patience + GUARD_PATIENCE };
        }
        if self.ended.is_some() {
            self.phase = Phase::Ending;
        }
        match self.phase {
            Phase::Orphaned { until } if now >= until => {
                self.tell();
                self.phase = Phase::Told { until: now + STOP_PATIENCE };
            }
            Phase::Told { until } if now >= until => self.phase = Phase::Ending,
            _ => {}
        }
        if self.phase == Phase::Ending {
            descendants::kill_children();
        }
    }

    /// When something is due although nothing has happened.
    fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => None,
            Phase::Orphaned { until } | Phase::Told { until } => Some(until),
            Phase::Ending => Some(Instant::now() + AGAIN),
        }
    }
}

/// The signals that are read, and reach this process in no other way.
fn signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for number in
        [Number::SIGCHLD, Number::SIGTERM, Number::SIGINT, Number::SIGHUP, Number::SIGQUIT, Number::SIGUSR1]
    {
        set.add(number);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn poll_for(signals: &SignalFd, due: Option<Instant>) -> io::Result<()> {
    let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
    let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
    let mut fds = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn start(mut launch: Launch, argv: &[OsString]) -> io::Result<Pid> {
    launch.keeper = Some(std::process::id());
    let mut command = launch.command(argv);
    // Both of its streams are one pipe.
    command.stderr(Stdio::from(io::stdout().as_fd().try_clone_to_owned()?));
    command.process_group(0);
    Ok(Pid::from_child(&command.spawn()?))
}

/// Says which process the application is, and lets go of the streams, which are the application's alone.
fn release_streams(child: Pid) -> io::Result<()> {
    writeln!(io::stderr(), "{}", child.as_raw_nonzero())?;
    let nothing = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}

/// Ends as the application has: by the same signal, or with the status that is returned.
fn end_as(status: Option<WaitStatus>) -> u8 {
    let Some(status) = status else { return 1 };
    if let Some(signal) = status.terminating_signal() {
        // The application has left its memory behind, where it may; this process's says nothing. A limit would not do: a core
        // dump that goes to a program (core(5)) knows none.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = SigSet::empty().thread_set_mask();
        // The runtime of Rust handles SEGV and BUS, and ignores PIPE.
        if emulate_default_handler(signal).is_err() {
            let _ = raise(signal); // one that it does not know, such as a real-time signal, has kept its default
        }
        return 1;
    }
    status.exit_status().and_then(|status| u8::try_from(status).ok()).unwrap_or(1)
}
