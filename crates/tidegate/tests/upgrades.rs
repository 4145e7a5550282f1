//! Upgrades that do not come to their end: the server is told to end, to reload or is killed while the new program starts.
//!
//! The new program is a script that says when it runs, and goes on when the test says so.

mod running;

use running::{BINARY, Folder, Outcome, Server, wait_for};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_testkit::WAIT;

/// The new program: its script, and the way to have it go on.
struct NewProgram {
    path: String,
    started: PathBuf,
    go: File,
}

impl NewProgram {
    fn new(folder: &Folder, then: &str) -> NewProgram {
        let (started, go) = (folder.path("started"), folder.path("go"));
        mknodat(CWD, &go, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let lines = format!(
            "#!/bin/sh\necho $$ > {0}.new && mv {0}.new {0}\nread line < {1}\n{then}\n",
            started.display(),
            go.display()
        );
        let path = folder.write("new", &lines);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // For both: opening does not wait for a reader then.
        let go = OpenOptions::new().read(true).write(true).open(go).unwrap();
        NewProgram { path, started, go }
    }

    fn real(folder: &Folder) -> NewProgram {
        NewProgram::new(folder, &format!("exec {BINARY} \"$@\""))
    }

    /// Waits until it runs: its process.
    fn process(&self) -> Pid {
        let said = wait_for(|| fs::read_to_string(&self.started).ok(), "the new program to start");
        Pid::from_raw(said.trim().parse().unwrap()).unwrap()
    }

    fn goes_on(&mut self) {
        self.go.write_all(b"go\n").unwrap();
    }
}

/// An order that is under way.
struct Telling(Child);

impl Telling {
    fn the(server: &Server<'_>, arguments: &[&str]) -> Telling {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--control", server.control.as_deref().unwrap()]);
        Telling(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn outcome(mut self) -> Outcome {
        let status = wait_for(|| self.0.try_wait().unwrap(), "the order to be carried out");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Outcome { code: status.code(), stdout, stderr }
    }
}

/// A backend that answers when it is told to.
struct Backend(TcpListener);

impl Backend {
    fn new() -> Backend {
        Backend(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn settings(&self, folder: &Folder) -> String {
        format!(
            "workers 1\nlisten \"127.0.0.1:0\"\nlisten \"unix:{}\"\npid-file \"{}\"\nsite {{ proxy \"http://{}\" }}\n",
            folder.path("web.sock").display(),
            folder.path("pid").display(),
            self.0.local_addr().unwrap()
        )
    }

    /// A request that has reached it: the client's connection and the one to it.
    fn request(&self, address: &str) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(WAIT)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let (backend, _) = self.0.accept().unwrap();
        backend.set_read_timeout(Some(WAIT)).unwrap();
        let mut lines = BufReader::new(&backend).lines();
        while !lines.next().unwrap().unwrap().is_empty() {}
        (client, backend)
    }
}

fn answer((mut client, mut backend): (TcpStream, TcpStream)) {
    backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer:?}");
}

/// Nothing is left of a server: no process, no socket, no file.
fn assert_gone(server: &mut Server<'_>, folder: &Folder, process: Pid) {
    assert!(server.wait().success());
    assert!(test_kill_process(process).is_err(), "the new program is left");
    // Those that the old one has started end by themselves, and nobody listens any more.
    let refused = || TcpStream::connect(&server.address).err();
    let error = wait_for(refused, "nobody to listen");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    for name in ["web.sock", "pid", "control"] {
        assert!(!folder.path(name).exists(), "{name} is left");
    }
}

const NOT_SERVED: &str = "the server was told to end before the new program served";

#[test]
fn a_server_that_is_told_to_end_while_it_is_upgraded_leaves_nobody_who_serves() {
    for now in [false, true] {
        let folder = Folder::new("stop-upgrade");
        let backend = Backend::new();
        let mut server = Server::with_config(&folder, &backend.settings(&folder));
        let mut new = NewProgram::real(&folder);
        let open = backend.request(&server.address);
        let upgrade = Telling::the(&server, &["upgrade", "--binary", &new.path]);
        let process = new.process();
        let stop = Telling::the(&server, if now { &["stop", "--now"] } else { &["stop"] });
        let upgrade = upgrade.outcome();
        assert_eq!(upgrade.code, Some(1));
        assert!(upgrade.stderr.contains(NOT_SERVED), "{}", upgrade.stderr);
        // Whoever were left of it would serve while the one before drains.
        new.goes_on();
        let cut = if now {
            "ended; 1 connection was cut\n"
        } else {
            answer(open);
            "ended; nothing was open any more\n"
        };
        let stop = stop.outcome();
        assert_eq!((stop.code, &*stop.stdout), (Some(0), cut), "{}", stop.stderr);
        assert_gone(&mut server, &folder, process);
    }
}

/// The sockets lie unread in its standard input: whoever has that keeps the address, whichever process it is.
#[test]
fn a_new_program_that_hangs_keeps_no_address_of_a_server_that_ended() {
    for script in ["exec sleep 1000", "sleep 1000\n:"] {
        let folder = Folder::new("stop-hung-upgrade");
        let backend = Backend::new();
        let mut server = Server::with_config(&folder, &backend.settings(&folder));
        let mut new = NewProgram::new(&folder, script);
        let upgrade = Telling::the(&server, &["upgrade", "--binary", &new.path]);
        let process = new.process();
        new.goes_on();
        wait_for(|| is_run_by(process, "sleep").then_some(()), "it to hang");
        server.signal(Signal::TERM);
        assert!(upgrade.outcome().stderr.contains(NOT_SERVED));
        assert_gone(&mut server, &folder, process);
    }
}

/// Whether a process, or a child of it, is this program.
fn is_run_by(process: Pid, program: &str) -> bool {
    let number = process.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children")).unwrap_or_default();
    let all = children.split_ascii_whitespace().map(str::to_owned).chain([number.to_string()]);
    all.into_iter().any(|number| {
        fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name.trim() == program)
    })
}

#[test]
fn a_reload_waits_for_an_upgrade_that_starts_and_is_done_when_that_has_failed() {
    let folder = Folder::new("reload-upgrade");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite { respond 200 \"one\" }\n";
    let server = Server::with_config(&folder, text);
    let mut new = NewProgram::new(&folder, "exit 7");
    let upgrade = Telling::the(&server, &["upgrade", "--binary", &new.path]);
    new.process();
    folder.write("tidegate.kdl", &text.replace("one", "two"));
    let reload = Telling::the(&server, &["reload"]);
    new.goes_on();
    let upgrade = upgrade.outcome();
    assert_eq!(upgrade.code, Some(1));
    assert!(upgrade.stderr.contains("it ended before it served (exit status: 7)"), "{}", upgrade.stderr);
    assert_eq!(reload.outcome().code, Some(0));
    assert_eq!(server.body("/"), "two");
}

/// Nobody has asked for a server that nobody watches.
#[test]
fn a_new_program_of_a_server_that_was_killed_does_not_serve_by_itself() {
    let folder = Folder::new("kill-upgrade");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite { respond 200 }\n";
    let mut server = Server::with_config(&folder, text);
    let mut new = NewProgram::real(&folder);
    let _upgrade = Telling::the(&server, &["upgrade", "--binary", &new.path]);
    let process = new.process();
    server.signal(Signal::KILL);
    assert!(!server.wait().success());
    new.goes_on();
    let said = server.line("has ended before it handed over");
    assert!(said.contains("the predecessor, process "), "{said}");
    wait_for(
        || (!Path::new(&format!("/proc/{}/exe", process.as_raw_nonzero())).exists()).then_some(()),
        "its end",
    );
    // Those that the old one has started end by themselves, and nobody listens any more.
    let refused = || TcpStream::connect(&server.address).err();
    let error = wait_for(refused, "nobody to listen");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// Those who wait for a limit are kept as well, beside those whom the new program lets wait.
#[test]
fn who_waits_for_a_limit_is_served_after_an_upgrade() {
    let (folder, backend) = (Folder::new("upgrade-of-a-queue"), Backend::new());
    let limit = "  limit \"r\" concurrent=1 queue=4 age=\"10m\" by=\"all\"\n";
    let settings = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nsite {{\n{limit}  proxy \"http://{}\"\n}}\n",
        backend.0.local_addr().unwrap()
    );
    let server = Server::with_config(&folder, &settings);
    let waiting = |count: u64| {
        let waits = || server.status()["limits"][0]["queue"]["waiting"].as_u64() == Some(count);
        wait_for(|| waits().then_some(()), "requests to wait");
    };
    let ask = |path: &str| {
        let mut client = TcpStream::connect(&server.address).unwrap();
        client.set_read_timeout(Some(WAIT)).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let first = backend.request(&server.address);
    let second = ask("/second");
    waiting(1);
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    waiting(1);
    let third = ask("/third");
    waiting(2);
    answer(first);
    let mut clients = vec![("GET /second ", second), ("GET /third ", third)];
    for left in [1, 0] {
        let (reached, _) = backend.0.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&reached).read_line(&mut line).unwrap();
        waiting(left);
        let at = clients.iter().position(|(path, _)| line.starts_with(path)).expect("one of them");
        answer((clients.remove(at).1, reached));
    }
    assert_eq!(server.status()["limits"][0]["queue"]["served"].as_u64(), Some(2));
}

/// A server that logs, of which a request waits for each program: its log and the one of before.
fn logging(folder: &Folder, backend: &Backend, processes: u32) -> (String, [PathBuf; 2]) {
    let log = format!("processes {processes}\naccess-log \"access\" format=\"{{status}}\"\n");
    (log + &backend.settings(folder), ["access", "access.1"].map(|name| folder.path(name)))
}

fn lines(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.lines().count())
}

/// A rotation reaches what still drains of all programs before.
#[test]
fn what_drains_after_upgrades_logs_to_the_new_file() {
    for is_signal in [false, true] {
        let (folder, backend) = (Folder::new("upgrade-rotation"), Backend::new());
        let (settings, [log, old]) = logging(&folder, &backend, 2);
        let mut server = Server::with_config(&folder, &settings);
        let mut open = vec![backend.request(&server.address)];
        for _ in 0..2 {
            assert_eq!(server.tell(&["upgrade"]).code, Some(0));
            open.push(backend.request(&server.address));
        }
        fs::rename(&log, &old).unwrap();
        if is_signal {
            let pid = fs::read_to_string(folder.path("pid")).unwrap();
            kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::USR1).unwrap();
        } else {
            assert_eq!(server.tell(&["logs", "reopen"]).code, Some(0));
        }
        (0..3).for_each(|_| drop(server.line("the logs were opened anew")));
        open.into_iter().for_each(answer);
        wait_for(|| (lines(&log) == 3).then_some(()), "the lines");
        assert_eq!(lines(&old), 0);
    }
}

/// It may have its logs open by then, and cannot be told: the program before tells it once it serves.
#[test]
fn a_rotation_while_the_new_program_starts_reaches_it() {
    let folder = Folder::new("rotation-in-upgrade");
    let mut server =
        Server::with_config(&folder, "workers 1\nlisten \"127.0.0.1:0\"\nsite { respond 200 }\n");
    let told = folder.path("told");
    let script =
        format!("sleep 60 &\ntrap 'kill $!; echo > {}; exit' USR1\necho ready >&0\nwait", told.display());
    let mut new = NewProgram::new(&folder, &script);
    let upgrade = Telling::the(&server, &["upgrade", "--binary", &new.path]);
    new.process();
    server.signal(Signal::USR1);
    server.line("the logs were opened anew");
    new.goes_on();
    assert_eq!(upgrade.outcome().code, Some(0));
    wait_for(|| told.exists().then_some(()), "the new program to be told");
    assert!(server.wait().success());
}
