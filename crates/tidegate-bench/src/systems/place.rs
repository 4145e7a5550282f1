//! Where a system is, and how a command gets there: this machine, or one that ssh reaches without a question.

use crate::proc;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::fmt;
use std::io::{self, BufRead, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where a system is.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// The same for one that may stay. By ssh it ends with its input, which is a pipe.
    pub(super) fn lasting(&self, text: &str) -> Command {
        match self {
            Place::Here => self.shell(text),
            Place::Ssh { .. } => {
                let mut command = self.program(&["sh", "-c", LASTING, text]);
                command.stdin(Stdio::piped());
                command
            }
        }
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

/// A child with all that it starts; it ends with its owner.
#[derive(Debug)]
pub(crate) struct Group(pub Child);

impl Group {
    /// Starts a command as the leader of a process group, so that an interrupt from the terminal does not reach it.
    pub fn start(command: &mut Command) -> io::Result<Group> {
        command.process_group(0).spawn().map(Group)
    }

    /// Whether any process of it is there that has not ended.
    pub fn has_members(&self) -> bool {
        let group = self.0.id();
        let is_member = |process| {
            let stat = proc::text(format!("/proc/{process}/stat"));
            proc::state_and_group(&stat).is_some_and(|(state, of)| of == group && !matches!(state, 'Z' | 'X'))
        };
        proc::all_processes().into_iter().any(is_member)
    }

    /// How the one that was started has ended, if it has: whether well, and in words. It is not reaped, so that its number stays
    /// that of the group.
    pub fn status(&self) -> Option<(bool, String)> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.0)), options) {
            Ok(None) => None,
            Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => (code == 0, format!("exit status {code}")),
                (None, Some(signal)) => (false, format!("signal {signal}")),
                (None, None) => (false, "no status".to_owned()),
            }),
            Err(error) => Some((false, error.to_string())),
        }
    }

    /// Sends all of it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.0), signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
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

    #[test]
    fn long_lines_are_cut() {
        let mut from = io::BufReader::with_capacity(4, &b"short\nmuch too long\n\nlast"[..]);
        let lines: Vec<String> =
            std::iter::from_fn(|| line(&mut from, 6)).map(|line| String::from_utf8(line).unwrap()).collect();
        assert_eq!(lines, ["short", "much t", "", "last"]);
    }
}
