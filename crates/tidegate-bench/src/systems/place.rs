//! Where a system is, and how a command gets there: this machine, or one that ssh reaches without a question.

use crate::proc;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, waitid,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a command is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Where a system is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// This machine.
    Here,
    /// One that `ssh` reaches.
    Ssh {
        /// As ssh takes it: `user@host`, or a name of its configuration.
        host: String,
        /// Tidegate on it.
        program: String,
    },
}

impl Place {
    /// Tidegate there, with these arguments.
    ///
    /// # Errors
    /// The system does not say where this program is.
    pub fn tidegate(&self, arguments: &[String]) -> io::Result<Command> {
        match self {
            Place::Here => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(arguments);
                Ok(command)
            }
            Place::Ssh { host, program } => {
                let words: Vec<String> =
                    [program].into_iter().chain(arguments).map(|word| quoted(word)).collect();
                Ok(ssh(host, &words.join(" ")))
            }
        }
    }

    /// A program there, with its arguments.
    pub(super) fn program(&self, words: &[&str]) -> Command {
        match self {
            Place::Here => {
                let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            Place::Ssh { host, .. } => {
                let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                ssh(host, &words.join(" "))
            }
        }
    }

    /// A text for `sh` there, which gets no input.
    pub(super) fn shell(&self, text: &str) -> Command {
        let mut command = self.program(&["sh", "-c", text]);
        command.stdin(Stdio::null());
        command
    }

    /// The same of a text that works at a file: `$1`.
    pub(super) fn shell_of(&self, text: &str, path: &str) -> Command {
        let mut command = self.program(&["sh", "-c", text, "configure", path]);
        command.stdin(Stdio::null());
        command
    }

    /// The same for one that may stay, whose input is a pipe. By ssh it ends with its input. Here it does nothing before [`Group::go`], so
    /// that who has to end it knows of it first.
    pub(super) fn lasting(&self, text: &str) -> Command {
        let mut command = match self {
            Place::Here => self.program(&["sh", "-c", WAITING, text]),
            Place::Ssh { .. } => self.program(&["sh", "-c", LASTING, text]),
        };
        command.stdin(Stdio::piped());
        command
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Here => f.write_str("this machine"),
            Place::Ssh { host, .. } => write!(f, "by ssh {host}"),
        }
    }
}

/// A command that ends, with all that it has started, when its input does: what is left of it by ssh ends with the run. A group of
/// its own (`setsid`), so that what it starts is reached; the descriptor 3, since `sh` gives what goes on beside it no input.
const LASTING: &str = "exec 3<&0; setsid sh -c \"$0\" </dev/null 3<&- & p=$!; \
                       (cat <&3 >/dev/null 2>&1; kill -s TERM -- -$p) >/dev/null 2>&1 & w=$!; \
                       wait $p; s=$?; kill $w 2>/dev/null; exit $s";

/// A command that begins with a line of its input, and does nothing where that ends before. All that it starts has its [`MARK`].
const WAITING: &str = "read -r go && export TIDEGATE_BENCH_START=$$ && exec sh -c \"$0\" </dev/null";

/// The variable that names the process group of a `start`, in the environment of whatever it has started: one that has left the group
/// (`setsid`) is found by it.
const MARK: &str = "TIDEGATE_BENCH_START";

fn ssh(host: &str, text: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, text]);
    command
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A process group, by its number; of a `start` on this machine with all that it has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupId(pub u32);

impl GroupId {
    /// The processes of it that have not ended.
    fn processes(self) -> impl Iterator<Item = u32> {
        let mark = format!("{MARK}={}", self.0);
        proc::all_processes().into_iter().filter(move |process| {
            let stat = proc::text(format!("/proc/{process}/stat"));
            let of = proc::state_and_group(&stat).filter(|(state, _)| !matches!(state, 'Z' | 'X'));
            of.is_some_and(|(_, of)| of == self.0 || proc::has_variable(*process, &mark))
        })
    }

    /// Whether any process of it is there that has not ended.
    pub fn has_members(self) -> bool {
        self.processes().next().is_some()
    }

    /// Name and number of each of them, of ten at most.
    pub fn members(self) -> Vec<String> {
        let name =
            |process: u32| proc::text(format!("/proc/{process}/comm")).trim().escape_debug().to_string();
        self.processes().take(10).map(|process| format!("{} {process}", name(process))).collect()
    }

    /// Sends the group a signal.
    pub fn signal(self, signal: Signal) {
        if let Some(group) = pid(self.0) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Sends one to each process of it, wherever it has gone.
    pub fn signal_all(self, signal: Signal) {
        self.signal(signal);
        for process in self.processes().filter_map(pid) {
            if getpgid(Some(process)).is_ok_and(|group| Some(group) != pid(self.0)) {
                let _ = kill_process(process, signal);
            }
        }
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// How a command has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// Its exit status, where no signal has ended it.
    pub code: Option<i32>,
    words: String,
}

impl Status {
    /// Whether it has ended well.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// How a command went.
pub(super) enum Ending {
    /// By itself.
    Ended(Status),
    /// Not in time.
    Late,
    /// Somebody wants the run to end.
    Interrupted,
}

/// A child with all that it starts; it ends with its owner.
#[derive(Debug)]
pub(crate) struct Group(pub Child);

impl Group {
    /// Starts a command as the leader of a process group, so that an interrupt from the terminal does not reach it.
    pub fn start(command: &mut Command) -> io::Result<Group> {
        command.process_group(0).spawn().map(Group)
    }

    /// The number of the group.
    pub fn id(&self) -> GroupId {
        GroupId(self.0.id())
    }

    /// Lets one of [`Place::lasting`] on this machine begin.
    pub fn go(&mut self) {
        // One that has ended already says so by its status.
        let _ = self.0.stdin.take().map(|mut input| input.write_all(b"\n"));
    }

    /// How the one that was started has ended, if it has. It is not reaped, so that its number stays that of the group.
    pub fn status(&self) -> Option<Status> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.0)), options) {
            Ok(None) => None,
            Ok(Some(status)) => {
                let code = status.exit_status();
                let words = match (code, status.terminating_signal()) {
                    (Some(code), _) => format!("exit status {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => "no status".to_owned(),
                };
                Some(Status { code, words })
            }
            Err(error) => Some(Status { code: None, words: error.to_string() }),
        }
    }
}

/// Starts a command whose output goes into a file, where there is one.
pub(super) fn begin(command: &mut Command, log: Option<&Path>) -> io::Result<Group> {
    match log {
        Some(log) => {
            log.parent().map_or(Ok(()), fs::create_dir_all)?;
            let file = File::options().append(true).create(true).open(log)?;
            command.stdout(file.try_clone()?).stderr(file);
        }
        None => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    Group::start(command)
}

/// Waits until a command has ended.
pub(super) fn end(of: &Group, within: Duration, is_interrupted: impl Fn() -> bool) -> Ending {
    let until = Instant::now() + within;
    loop {
        if let Some(status) = of.status() {
            return Ending::Ended(status);
        }
        if is_interrupted() {
            return Ending::Interrupted;
        }
        if Instant::now() >= until {
            return Ending::Late;
        }
        rest(LOOK);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.id().signal(Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Lets a time pass, all of it.
pub(super) fn rest(time: Duration) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left); // nobody unparks it
    }
}

/// A command whose output is read by us.
pub(crate) fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// A line without its end, at most `most` bytes of it, the rest of it passed over; `None` at the end or where reading fails.
pub(crate) fn line(from: &mut impl BufRead, most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let read = from.by_ref().take(most as u64).read_until(b'\n', &mut out).ok()?;
    if read == 0 {
        return None;
    }
    if out.last() == Some(&b'\n') {
        out.pop();
        return Some(out);
    }
    loop {
        let (passed, is_end) = match from.fill_buf() {
            Ok([]) | Err(_) => return Some(out),
            Ok(bytes) => match memchr::memchr(b'\n', bytes) {
                Some(at) => (at + 1, true),
                None => (bytes.len(), false),
            },
        };
        from.consume(passed);
        if is_end {
            return Some(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("/usr/bin/tidegate"), "/usr/bin/tidegate");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn the_command_that_ssh_gets() {
        let place = Place::Ssh { host: "user@db".into(), program: "/opt/tide gate".into() };
        let command = place.tidegate(&["bench".into(), "--process=a b".into()]).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(command.get_program(), "ssh");
        assert_eq!(words[..2], ["-o", "BatchMode=yes"]);
        assert_eq!(words[4..], ["user@db", "'/opt/tide gate' bench '--process=a b'"]);
    }

    /// Of a run that is killed before its guard knows of a command nothing is left.
    #[test]
    fn what_lasts_begins_when_it_is_told_to() {
        let folder = std::env::temp_dir().join(format!("tidegate-lasting-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let started = folder.join("started");
        let text = format!("touch '{}'", started.display());
        for is_told in [false, true] {
            let mut group = Group::start(&mut Place::Here.lasting(&text)).unwrap();
            if is_told {
                group.go();
            }
            drop(group.0.stdin.take());
            let Ending::Ended(status) = end(&group, Duration::from_secs(30), || false) else {
                panic!("it does not end")
            };
            assert_eq!((status.is_success(), started.exists()), (is_told, is_told));
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn long_lines_are_cut() {
        let mut from = io::BufReader::with_capacity(4, &b"short\nmuch too long\n\nlast"[..]);
        let lines: Vec<String> =
            std::iter::from_fn(|| line(&mut from, 6)).map(|line| String::from_utf8(line).unwrap()).collect();
        assert_eq!(lines, ["short", "much t", "", "last"]);
    }
}
