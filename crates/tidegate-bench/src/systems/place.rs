//! Where a system is, and how a command gets there: this machine, or one that ssh reaches without a question.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::io::{self, BufRead, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

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
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Here => f.write_str("this machine"),
            Place::Ssh { host, .. } => write!(f, "by ssh {host}"),
        }
    }
}

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
