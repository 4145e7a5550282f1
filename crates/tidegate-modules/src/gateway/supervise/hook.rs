//! Hooks: something is done when a queue, or the number of requests under way, crosses a threshold (R16).
//!
//! Whether it is time is decided without a clock of its own. A hook that was set off is not again until the
//! measure has come back across its other bound, and not more often than the settings allow: a number that
//! trembles around the threshold sets off one.

use super::launch::Launch;
use crate::gateway::complaints::Lines;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::time::Duration;
use tidegate_config::settings::pool::{Hook, HookAction, Measure, Threshold};
use tidegate_core::log;

/// How long a called address may take for each step.
const PATIENCE: Duration = Duration::from_secs(5);

/// A hook and where it stands.
pub(super) struct Watch {
    hook: Hook,
    is_armed: bool,
    last: Option<Duration>,
    is_running: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new(hook: Hook) -> Watch {
        // What waits for a fall has to see a rise first.
        let is_armed = matches!(hook.threshold, Threshold::Above { .. });
        Watch { hook, is_armed, last: None, is_running: Arc::default() }
    }

    /// Looks at the numbers of a pool, and does what the settings say when it is time.
    pub(super) fn look(&mut self, pool: &str, waiting: usize, in_use: usize, now: Duration) {
        let value = match self.hook.measure {
            Measure::Queue => waiting,
            Measure::Concurrency => in_use,
        };
        if self.is_due(value, now) {
            self.act(pool, value);
        }
    }

    fn is_due(&mut self, value: usize, now: Duration) -> bool {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        let (is_across, is_back) = match self.hook.threshold {
            Threshold::Above { limit, rearm } => (value > limit, value <= rearm),
            Threshold::Below { limit, rearm } => (value < limit, value >= rearm),
        };
        self.is_armed |= is_back && !is_across;
        let is_early = self.last.is_some_and(|last| now.saturating_sub(last) < self.hook.every);
        if !is_across || !self.is_armed || is_early {
            return false;
        }
        self.is_armed = false;
        self.last = Some(now);
        true
    }

    fn act(&self, pool: &str, value: usize) {
        let measure = match self.hook.measure {
            Measure::Queue => "queue",
            Measure::Concurrency => "concurrency",
        };
        let event = match self.hook.threshold {
            Threshold::Above { .. } => "above",
            Threshold::Below { .. } => "below",
        };
        log::info(format_args!("pool {pool}: {measure} is {value}: hook for `{event}` begins"));
        if self.is_running.swap(true, AcqRel) {
            log::warn(format_args!("pool {pool}: the hook still runs from the last time; not started again"));
            return;
        }
        let (action, pool, is_running) = (self.hook.action.clone(), pool.to_owned(), self.is_running.clone());
        let job = move || {
            let outcome = match &action {
                HookAction::Run { command, user, group, sealed } => {
                    let (user, group) = (user.clone(), group.clone());
                    let launch = Launch { user, group, ..Launch::default() }.keeping(sealed);
                    run(command, launch, &pool, measure, event, value)
                }
                HookAction::Call(url) => call(url, &pool, measure, event, value),
            };
            if let Err(problem) = outcome {
                log::warn(format_args!("pool {pool}: hook: {problem}"));
            }
            is_running.store(false, std::sync::atomic::Ordering::Release);
        };
        // A thread of its own: what a hook does may take its time.
        if let Err(problem) = std::thread::Builder::new().name("tidegate-hook".into()).spawn(job) {
            log::warn(format_args!("a hook cannot be started: {problem}"));
            self.is_running.store(false, std::sync::atomic::Ordering::Release);
        }
    }
}

fn run(
    argv: &[String],
    launch: Launch,
    pool: &str,
    measure: &str,
    event: &str,
    value: usize,
) -> Result<(), String> {
    let Some(program) = argv.first() else { return Err("no program is named".into()) };
    let mut command = if launch.user.is_some() || !launch.sealed.is_empty() {
        launch.command(argv)
    } else {
        let mut command = Command::new(program);
        command.args(argv.get(1..).unwrap_or_default());
        command
    };
    let fail = |error: io::Error| format!("`{program}` cannot be run: {error}");
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| fail(error.into()))?;
    command
        .env("TIDEGATE_POOL", pool)
        .env("TIDEGATE_MEASURE", measure)
        .env("TIDEGATE_EVENT", event)
        .env("TIDEGATE_VALUE", value.to_string())
        .stdin(Stdio::null())
        .stdout(write.try_clone().map_err(fail)?)
        .stderr(write);
    let mut child = command.spawn().map_err(fail)?;
    drop(command); // and with it our ends of the pipe
    let status = finish(pool, &mut child, read).map_err(fail)?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` failed: {status}")) }
}

/// Waits for a hook whether or not what it writes can be logged: nobody else does.
fn finish(pool: &str, child: &mut Child, output: OwnedFd) -> io::Result<ExitStatus> {
    if let Err(error) = log_output(pool, child, &output) {
        let pid = child.id();
        log::warn(format_args!("pool {pool}: hook: what process {pid} writes is not logged: {error}"));
    }
    drop(output); // one that writes on fails at it, and does not wait for a reader
    child.wait()
}

/// What a hook writes goes to the log of its pool, line by line, until it has ended: what it may have left running in the
/// background holds the pipe, too, and is not waited for.
fn log_output(pool: &str, child: &Child, output: &OwnedFd) -> io::Result<()> {
    let about = format!("pool {pool}: hook");
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    rustix::io::ioctl_fionbio(output, true)?;
    let mut lines = Lines::default();
    let mut buffer = [0; 4096];
    let mut is_open = true;
    loop {
        let mut fds = vec![PollFd::new(&ended, PollFlags::IN)];
        if is_open {
            fds.push(PollFd::new(output, PollFlags::IN));
        }
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        // Looked at first: what it wrote before it ended is in the pipe by now.
        let has_ended = !fds[0].revents().is_empty();
        // Bounded: one that goes on writing in the background is not listened to without end. It is what a pipe holds.
        for _ in 0..if has_ended { 16 } else { 1 } {
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => is_open = false,
                Ok(count) => {
                    let complete = lines.push(buffer.get(..count).unwrap_or_default());
                    log::application(pool, &about, &complete);
                    continue;
                }
                Err(_) => {}
            }
            break;
        }
        if has_ended {
            log::application(pool, &about, &lines.end());
            return Ok(());
        }
    }
}

fn call(url: &str, pool: &str, measure: &str, event: &str, value: usize) -> Result<(), String> {
    let fail = |error: io::Error| format!("{url} cannot be called: {error}");
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let target = if has_port { authority.to_owned() } else { format!("{authority}:80") };
    let address = target.to_socket_addrs().map_err(fail)?.next();
    let address = address.ok_or_else(|| format!("{authority} has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(fail)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(fail)?;
    let body = serde_json::json!({"pool": pool, "measure": measure, "event": event, "value": value});
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(fail)?;
    let mut head = Vec::new();
    stream.take(12).read_to_end(&mut head).map_err(fail)?;
    match head.get(9..12) {
        Some([b'2', _, _]) => Ok(()),
        Some(status) => Err(format!("{url} answered {}", String::from_utf8_lossy(status))),
        None => Err(format!("{url} did not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn watch(threshold: Threshold) -> Watch {
        let action =
            HookAction::Run { command: vec!["true".into()], user: None, group: None, sealed: Arc::default() };
        Watch::new(Hook { measure: Measure::Queue, threshold, action, every: Duration::from_secs(10) })
    }

    /// Values at seconds, and whether each sets the hook off.
    fn holds(threshold: Threshold, cases: &[(u64, usize, bool)]) {
        let mut watch = watch(threshold);
        for (second, value, expected) in cases {
            let is_due = watch.is_due(*value, Duration::from_secs(*second));
            assert_eq!(is_due, *expected, "{value} at {second} s");
        }
    }

    #[test]
    fn a_rise_sets_off_one_until_the_number_has_fallen() {
        let threshold = Threshold::Above { limit: 100, rearm: 80 };
        holds(
            threshold,
            &[
                (0, 100, false),
                (1, 101, true),
                (2, 99, false),
                (20, 150, false), // has not been down to 80
                (30, 80, false),
                (31, 101, true),
                (32, 10, false),
                (33, 200, false), // ready, but too early
                (41, 200, true),
            ],
        );
    }

    #[test]
    fn a_fall_wants_a_rise_before_it() {
        let threshold = Threshold::Below { limit: 10, rearm: 20 };
        holds(
            threshold,
            &[(0, 0, false), (1, 15, false), (2, 5, false), (3, 20, false), (4, 9, true), (60, 0, false)],
        );
    }

    #[test]
    fn a_hook_is_waited_for_when_its_output_cannot_be_read() {
        // Nothing can be read from it, nor can it be made not to wait.
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let output = rustix::fs::open("/", flags, rustix::fs::Mode::empty()).expect("it is there");
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        let status = finish("php", &mut child, output).expect("it is waited for");
        assert_eq!(status.code(), Some(3));
        assert_eq!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH), "it is reaped");
    }

    #[test]
    fn an_address_is_sent_what_happened() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}/grow", listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let mut stream = tidegate_testkit::accept(&listener, "a call");
            let mut text = Vec::new();
            let mut buffer = [0; 1024];
            while !text.ends_with(b"}") {
                let count = stream.read(&mut buffer).expect("it is sent");
                text.extend_from_slice(&buffer[..count]);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it listens");
            String::from_utf8(text).expect("it is text")
        });
        assert_eq!(call(&url, "php", "queue", "above", 7), Ok(()));
        let text = tidegate_testkit::join(server, "the end of the call");
        assert!(text.starts_with("POST /grow HTTP/1.1\r\n"), "{text}");
        assert!(text.contains(r#""value":7"#), "{text}");
    }
}
