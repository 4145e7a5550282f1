//! A server process alone, and a master that is played here: what it says of orders that it cannot read.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use tidegate_io::passing;
use tidegate_testkit::join;

/// Ends what a test has started, also where it fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> (Process, OwnedFd) {
    let (ours, theirs) = passing::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("server").stdin(Stdio::from(theirs)).stderr(Stdio::null());
    let process = Process(command.spawn().unwrap());
    tell(
        &ours,
        r#"{"identity":null,"readable":null,"sealed":[],"is_recovery":false,"spill":null,"caches":[],"server":1}"#,
    );
    (process, ours)
}

fn tell(link: &OwnedFd, message: &str) {
    passing::send(link.as_fd(), message.as_bytes(), &[]).unwrap();
}

/// The next message that begins so; others are of no interest here.
fn hear(link: &OwnedFd, beginning: &str) -> String {
    loop {
        let (frame, _) = passing::receive(link.as_fd()).unwrap().expect("the process is there");
        let text = String::from_utf8(frame).unwrap();
        if text.starts_with(beginning) {
            return text;
        }
    }
}

#[test]
fn a_frame_that_cannot_be_read_fails_a_prepare_and_ends_nothing() {
    let (mut process, link) = start();
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    tell(&link, &format!(r#"{{"Prepare":{{"number":7,"settings":{nested}}}}}"#));
    let said = hear(&link, r#"{"Failed""#);
    assert!(said.starts_with(r#"{"Failed":[7,"#), "{said}");
    assert!(said.contains("cannot read what the master has sent"), "{said}");
    // What is wrong with something else is said when it is counted on.
    tell(&link, &format!(r#"{{"Tls":{nested}}}"#));
    tell(&link, r#""Discard""#);
    tell(&link, r#"{"Prepare":{"number":8,"settings":7}}"#);
    assert!(hear(&link, r#"{"Failed""#).starts_with(r#"{"Failed":[8,"#));
    tell(&link, r#""Stop""#);
    hear(&link, r#"{"Ended""#);
    tell(&link, r#""Stop""#);
    assert!(process.0.wait().unwrap().success());
}

/// Logs by these numbers, with a descriptor each.
fn give_logs(link: &OwnedFd, numbers: std::ops::Range<u32>) {
    let nothing = File::open("/dev/null").unwrap();
    let targets: Vec<String> = numbers.map(|number| format!(r#"{{"File":"/log-{number}"}}"#)).collect();
    let files: Vec<BorrowedFd<'_>> = targets.iter().map(|_| nothing.as_fd()).collect();
    let message = format!(r#"{{"Logs":[{}]}}"#, targets.join(","));
    passing::send(link.as_fd(), message.as_bytes(), &files).unwrap();
}

/// Whatever there is no room for, what comes behind it is heard at once.
#[test]
fn descriptors_that_do_not_fit_hold_up_nothing() {
    const TIMES: u32 = 30;
    const LIMIT: u32 = 40;
    let (mut process, link) = start();
    give_logs(&link, 0..LIMIT);
    hear(&link, r#""LogsInUse""#);
    // It has a reserve now, of higher numbers. With all below the limit in use there is room for nothing, whatever is let go of.
    let limit = Rlimit { current: Some(LIMIT.into()), maximum: Some(LIMIT.into()) };
    prlimit(Some(Pid::from_child(&process.0)), Resource::Nofile, limit).unwrap();
    let listening = std::thread::spawn(move || {
        for turn in 0..TIMES {
            give_logs(&link, LIMIT..LIMIT + 20);
            hear(&link, r#"{"LogsRefused""#);
            tell(&link, &format!(r#"{{"Mark":{turn}}}"#));
            hear(&link, r#"{"Marked""#);
        }
        tell(&link, r#""Stop""#);
        hear(&link, r#"{"Ended""#);
        tell(&link, r#""Stop""#);
    });
    join(listening, "all of it to be heard");
    assert!(process.0.wait().unwrap().success());
}
