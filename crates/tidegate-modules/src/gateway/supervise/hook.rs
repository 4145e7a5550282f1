//! Hooks: something is done when a load crosses a threshold (R16): of a pool, or what else the master measures.
//!
//! Whether it is time is decided without a clock of its own. A hook that was set off is not again until the
//! measure has come back across its other bound, and not more often than the settings allow: a number that
//! trembles around the threshold sets off one.

use super::launch::{Launch, environment_of_hook};
use crate::gateway::complaints::Lines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel};
use std::time::{Duration, Instant};
use tidegate_client::http1::HeadReader;
use tidegate_config::settings::pool::{Hook, HookAction, Measure, Threshold};
use tidegate_core::log;
use tidegate_wire::h1::HeadLimits;

/// How long a called address may take for each step.
const PATIENCE: Duration = Duration::from_secs(5);
/// Hooks that run at once.
const AT_ONCE: usize = 8;
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// What a hook looks at the load of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// `server`, `site`, `upstream` or `pool`.
    pub kind: &'static str,
    /// Which; nothing for the server.
    pub name: String,
}

impl Subject {
    /// Whose log gets what a program writes; of no pool, the error log.
    fn log(&self) -> String {
        // No name of a pool has a space.
        if self.kind == "pool" { self.name.clone() } else { self.to_string() }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => f.write_str(self.kind),
            name => write!(f, "{} {name}", self.kind),
        }
    }
}

/// A hook and where it stands.
pub struct Watch {
    hook: Hook,
    is_armed: bool,
    last: Option<Duration>,
    is_running: Arc<AtomicBool>,
}

/// What has set a hook off.
struct Occasion {
    subject: Subject,
    measure: &'static str,
    event: &'static str,
    threshold: u32,
    value: u64,
}

/// One of those that run; a place for another when it is dropped.
struct Place(Arc<AtomicBool>);

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, AcqRel);
        self.0.store(false, std::sync::atomic::Ordering::Release);
    }
}

impl Watch {
    /// Begins to watch.
    pub fn new(hook: Hook) -> Watch {
        // What waits for a fall has to see a rise first.
        let is_armed = matches!(hook.threshold, Threshold::Above { .. });
        Watch { hook, is_armed, last: None, is_running: Arc::default() }
    }

    /// What it looks at.
    pub fn measure(&self) -> Measure {
        self.hook.measure
    }

    /// What it does, and when.
    pub fn hook(&self) -> &Hook {
        &self.hook
    }

    /// Looks at the load, `now` by any clock that only goes forward, and does what the settings say when it is time.
    pub fn look(&mut self, subject: &Subject, value: u64, now: Duration) {
        if self.is_due(value, now) {
            self.act(subject, value);
        }
    }

    fn is_due(&mut self, value: u64, now: Duration) -> bool {
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

    fn act(&mut self, subject: &Subject, value: u64) {
        let measure = match self.hook.measure {
            Measure::Queue => "queue",
            Measure::Concurrency => "concurrency",
            Measure::Rate => "rate",
            Measure::Cpu => "cpu",
        };
        let (event, threshold) = match self.hook.threshold {
            Threshold::Above { limit, .. } => ("above", limit),
            Threshold::Below { limit, .. } => ("below", limit),
        };
        log::info(format_args!("{subject}: {measure} is {value}: hook for `{event}` begins"));
        if self.is_running.swap(true, AcqRel) {
            log::warn(format_args!("{subject}: the hook still runs from the last time; not started again"));
            return;
        }
        let is_full = RUNNING.fetch_add(1, AcqRel) >= AT_ONCE;
        let place = Place(self.is_running.clone());
        if is_full {
            log::warn(format_args!(
                "{subject}: {AT_ONCE} hooks run already; not started, tried again in {:?} if the load stays",
                self.hook.every
            ));
            self.is_armed = true;
            return;
        }
        let (action, timeout) = (self.hook.action.clone(), self.hook.timeout);
        let occasion = Occasion { subject: subject.clone(), measure, event, threshold, value };
        let job = move || {
            let _place = place;
            let outcome = match &action {
                HookAction::Run { command, user, group, sealed } => {
                    let (user, group) = (user.clone(), group.clone());
                    let launch = Launch { user, group, ..Launch::default() }.keeping(sealed);
                    run(command, launch, &occasion, timeout)
                }
                HookAction::Call(url) => call(url, &occasion, PATIENCE),
            };
            if let Err(problem) = outcome {
                log::warn(format_args!("{}: hook: {problem}", occasion.subject));
            }
        };
        // A thread of its own: what a hook does may take its time.
        if let Err(problem) = std::thread::Builder::new().name("tidegate-hook".into()).spawn(job) {
            log::warn(format_args!("a hook cannot be started: {problem}"));
        }
    }
}

fn run(argv: &[String], launch: Launch, occasion: &Occasion, timeout: Duration) -> Result<(), String> {
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
    let Occasion { subject, measure, event, threshold, value } = occasion;
    command.env_clear().envs(environment_of_hook(launch.user.as_deref()));
    if subject.kind == "pool" {
        command.env("TIDEGATE_POOL", &subject.name);
    }
    command
        .env("TIDEGATE_OF", subject.kind)
        .env("TIDEGATE_NAME", &subject.name)
        .env("TIDEGATE_MEASURE", measure)
        .env("TIDEGATE_EVENT", event)
        .env("TIDEGATE_THRESHOLD", threshold.to_string())
        .env("TIDEGATE_VALUE", value.to_string())
        .stdin(Stdio::null())
        .stdout(write.try_clone().map_err(fail)?)
        .stderr(write)
        .process_group(0); // to be ended with what it starts
    let mut child = command.spawn().map_err(fail)?;
    drop(command); // and with it our ends of the pipe
    let (status, is_over) = finish(subject, &mut child, read, timeout).map_err(fail)?;
    match (is_over, status.success()) {
        (true, _) => Err(format!("`{program}` took longer than {timeout:?} and was killed")),
        (false, true) => Ok(()),
        (false, false) => Err(format!("`{program}` failed: {status}")),
    }
}

/// Waits for a hook whether or not what it writes can be logged: nobody else does. Whether it had to be killed.
fn finish(
    subject: &Subject,
    child: &mut Child,
    output: OwnedFd,
    timeout: Duration,
) -> io::Result<(ExitStatus, bool)> {
    let has_ended = log_output(subject, child, &output, timeout).unwrap_or_else(|error| {
        let pid = child.id();
        log::warn(format_args!("{subject}: hook: what process {pid} writes is not logged: {error}"));
        true
    });
    if !has_ended {
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        let _ = child.kill(); // one that leads another group now
    }
    drop(output); // one that writes on fails at it, and does not wait for a reader
    Ok((child.wait()?, !has_ended))
}

/// What a hook writes goes to the log of its pool, line by line, until it has ended: what it may have left running in the
/// background holds the pipe, too, and is not waited for. `false`: it has not ended in time.
fn log_output(subject: &Subject, child: &Child, output: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let (about, log) = (format!("{subject}: hook"), subject.log());
    let deadline = Instant::now() + timeout;
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
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            log::application(&log, &about, &lines.end());
            return Ok(false);
        }
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&left)))?;
        // Looked at first: what it wrote before it ended is in the pipe by now.
        let has_ended = !fds[0].revents().is_empty();
        // Bounded: one that goes on writing in the background is not listened to without end. It is what a pipe holds.
        for _ in 0..if has_ended { 16 } else { 1 } {
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => is_open = false,
                Ok(count) => {
                    let complete = lines.push(buffer.get(..count).unwrap_or_default());
                    log::application(&log, &about, &complete);
                    continue;
                }
                Err(_) => {}
            }
            break;
        }
        if has_ended {
            log::application(&log, &about, &lines.end());
            return Ok(true);
        }
    }
}

/// Each step takes as long as `patience` at most: to connect, to take the call, and all of the answer's head.
fn call(url: &str, occasion: &Occasion, patience: Duration) -> Result<(), String> {
    let fail = |error: io::Error| format!("{url} cannot be called: {error}");
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let target = if has_port { authority.to_owned() } else { format!("{authority}:80") };
    let address = target.to_socket_addrs().map_err(fail)?.next();
    let address = address.ok_or_else(|| format!("{authority} has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, patience).map_err(fail)?;
    stream.set_write_timeout(Some(patience)).map_err(fail)?;
    let Occasion { subject, measure, event, threshold, value } = occasion;
    let mut body = serde_json::json!({
        "of": subject.kind, "name": subject.name, "measure": measure, "event": event, "threshold": threshold, "value": value
    });
    if subject.kind == "pool" {
        body["pool"] = subject.name.as_str().into();
    }
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let silent = |what: &str| format!("{url} was called and did not {what} within {patience:?}");
    stream.write_all(request.as_bytes()).map_err(|error| match is_late(&error) {
        true => silent("take the call"),
        false => fail(error),
    })?;
    match status_of(&mut stream, Instant::now() + patience) {
        Ok(200..=299) => Ok(()),
        Ok(status) => Err(format!("{url} answered {status}")),
        Err(error) if is_late(&error) => Err(silent("answer")),
        Err(error) => Err(format!("{url} was called and did not answer: {error}")),
    }
}

/// The status of the final answer: interim ones come before it (RFC 9110 section 15.2). What is behind its head is not read.
fn status_of(stream: &mut TcpStream, deadline: Instant) -> io::Result<u16> {
    let (mut reader, mut buffer) = (HeadReader::default(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            let what = if reader.is_empty() { "it closed the connection" } else { "its answer breaks off" };
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        let bytes = buffer.get(..count).unwrap_or_default();
        let status = reader.push(bytes, &HeadLimits::default(), "POST", |_| (), |head| head.status);
        if let Some(status) = status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            return Ok(status);
        }
    }
}

/// A timeout of a socket is EAGAIN to the kernel.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn watch(threshold: Threshold) -> Watch {
        let action =
            HookAction::Run { command: vec!["true".into()], user: None, group: None, sealed: Arc::default() };
        let (every, timeout) = (Duration::from_secs(10), Duration::from_secs(60));
        Watch::new(Hook {
            measure: Measure::Queue,
            threshold,
            action,
            every,
            timeout,
            origin: Default::default(),
        })
    }

    /// Values at seconds, and whether each sets the hook off.
    fn holds(threshold: Threshold, cases: &[(u64, u64, bool)]) {
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
        let (status, is_over) = finish(&php(), &mut child, output, PATIENCE).expect("it is waited for");
        assert_eq!((status.code(), is_over), (Some(3), false));
        assert_eq!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH), "it is reaped");
    }

    #[test]
    fn a_hook_that_takes_too_long_is_killed_with_what_it_has_started() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("there is a pipe");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(write).process_group(0);
        let mut child = command.spawn().expect("it starts");
        drop(command);
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            assert_eq!(rustix::io::read(&read, &mut byte), Ok(1));
            line.extend_from_slice(&byte);
        }
        let started: i32 = String::from_utf8(line).expect("text").trim().parse().expect("a number");
        let (_, is_over) = finish(&php(), &mut child, read, Duration::ZERO).expect("it is waited for");
        assert!(is_over);
        let started = Pid::from_raw(started).expect("it is one");
        // It is nobody's child here: it is gone, or a zombie that whoever adopts orphans has not reaped yet.
        let deadline = Instant::now() + tidegate_testkit::WAIT;
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", started.as_raw_nonzero()));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !is_gone() {
            assert!(Instant::now() < deadline, "it still runs");
            std::thread::yield_now();
        }
    }

    fn php() -> Subject {
        Subject { kind: "pool", name: "php".into() }
    }

    /// All of a call.
    fn heard(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        let mut buffer = [0; 1024];
        while !text.ends_with(b"}") {
            let count = stream.read(&mut buffer).expect("it is sent");
            text.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8(text).expect("it is text")
    }

    #[test]
    fn an_address_is_sent_what_happened() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}/grow", listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let mut stream = tidegate_testkit::accept(&listener, "a call");
            let text = heard(&mut stream);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it listens");
            text
        });
        let occasion = Occasion { subject: php(), measure: "queue", event: "above", threshold: 5, value: 7 };
        assert_eq!(call(&url, &occasion, tidegate_testkit::WAIT), Ok(()));
        let text = tidegate_testkit::join(server, "the end of the call");
        assert!(text.starts_with("POST /grow HTTP/1.1\r\n"), "{text}");
        assert!(text.contains(r#""value":7"#), "{text}");
    }

    /// What comes of a call that is answered with this; `None`: with nothing.
    fn called(answer: Option<Vec<u8>>, patience: Duration) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = std::thread::spawn(move || {
            let mut stream = tidegate_testkit::accept(&listener, "a call");
            heard(&mut stream);
            match answer {
                Some(answer) => drop(stream.write_all(&answer)), // who has heard enough closes
                None => drop(stream.read_to_end(&mut Vec::new())),
            }
        });
        let occasion = Occasion { subject: php(), measure: "queue", event: "above", threshold: 5, value: 7 };
        let outcome = call(&format!("http://{address}/"), &occasion, patience);
        tidegate_testkit::join(server, "the end of the call");
        outcome.map_err(|said| said.replace(&address, "A"))
    }

    #[test]
    fn what_an_address_answers_is_what_its_final_head_says() {
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        for (answer, expected) in [
            (format!("{hint}HTTP/1.1 204 No Content\r\n\r\n"), Ok(())),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".into(), Ok(())),
            (format!("{hint}HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), Err("http://A/ answered 500")),
            (hint.into(), Err("http://A/ was called and did not answer: it closed the connection")),
            ("HTTP/1.1 200".into(), Err("http://A/ was called and did not answer: its answer breaks off")),
            (String::new(), Err("http://A/ was called and did not answer: it closed the connection")),
            (hint.repeat(5000), Err("http://A/ was called and did not answer: too many interim responses")),
            (
                "y".repeat(64 << 10),
                Err("http://A/ was called and did not answer: the response does not begin with HTTP/1.1"),
            ),
        ] {
            let outcome = called(Some(answer.clone().into_bytes()), tidegate_testkit::WAIT);
            assert_eq!(outcome, expected.map_err(str::to_owned), "{:.60}", answer);
        }
    }

    #[test]
    fn an_address_that_is_silent_was_called() {
        let outcome = called(None, Duration::from_millis(10));
        assert_eq!(outcome, Err("http://A/ was called and did not answer within 10ms".into()));
    }
}
