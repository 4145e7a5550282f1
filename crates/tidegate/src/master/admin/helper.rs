//! Programs of this server's own that look at settings for the admin API: what strangers have written is parsed by a process that
//! can be ended, and not by the master.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most that it may say, bytes.
const SAID_MAX: u64 = 16 << 20;

/// What it has said, and whether it was content.
pub struct Said {
    /// It has ended with 0.
    pub is_ok: bool,
    /// Its standard output.
    pub text: String,
    /// Its standard error.
    pub complaint: String,
}

/// Runs this program with these arguments and this input.
///
/// # Errors
/// A sentence: it could not be started, or took too long and was ended.
pub fn run(arguments: &[&str], input: Vec<u8>) -> Result<Said, String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).env_remove(crate::master::upgrade::VARIABLE);
    for name in crate::link::OF_THE_MASTER {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("no process can be started: {error}"))?;
    let said = listen(&mut child, input);
    let Some((text, complaint)) = said else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it took longer than {} s, or had more to say than fits", PATIENCE.as_secs()));
    };
    let status = child.wait().map_err(|error| format!("nothing is known of its end: {error}"))?;
    Ok(Said { is_ok: status.success(), text, complaint })
}

/// Writes what it is given and reads what it says, to their ends; `None` where that takes too long.
fn listen(child: &mut Child, input: Vec<u8>) -> Option<(String, String)> {
    let (mut to, from, complains) = (child.stdin.take()?, child.stdout.take()?, child.stderr.take()?);
    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.into()).spawn(work).ok().map(drop)
    };
    start("tidegate-give", Box::new(move || drop(to.write_all(&input))))?;
    let (complaint, complained) = channel();
    start("tidegate-hear", Box::new(move || drop(complaint.send(read(complains)))))?;
    let (text, told) = channel();
    start("tidegate-hear", Box::new(move || drop(text.send(read(from)))))?;
    let text = told.recv_timeout(PATIENCE).ok()??;
    let complaint = complained.recv_timeout(PATIENCE).ok()??;
    Some((text, complaint))
}

fn read(from: impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    from.take(SAID_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= SAID_MAX).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
