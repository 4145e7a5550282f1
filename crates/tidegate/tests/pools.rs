//! Pools with real processes: started, killed, failing, replaced by a reload, and gone without a trace.
//!
//! The applications are CGI scripts, which any system can run. Nothing here sleeps and hopes: every wait is
//! for something to be seen, and ends after `WAIT`.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use tidegate_testkit::{InTime, WAIT, wait_for};

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

/// A server in a folder of its own.
struct Server {
    folder: PathBuf,
    child: Child,
    address: String,
}

impl Server {
    /// Serves these pools, and `cgi-bin` through one of them.
    fn start(name: &str, pools: &str, route: &str) -> Server {
        Server::start_with(name, pools, route, &[])
    }

    /// The same with scripts that are there from the beginning.
    fn start_with(name: &str, pools: &str, route: &str, scripts: &[(&str, &str)]) -> Server {
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("cgi-bin")).unwrap();
        for (name, text) in scripts {
            let path = folder.join("cgi-bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Server::write(&folder, pools, route);
        let mut child = Command::new(BINARY)
            .args(["serve", "--config", "tidegate.kdl", "--control", "control"])
            .current_dir(&folder)
            .env("XDG_RUNTIME_DIR", &folder)
            .env("RUNTIME_DIRECTORY", &folder)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, listening) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("listening on http://") {
                    let _ = sender.send(address.to_owned());
                }
            }
        });
        let address = listening.recv_timeout(WAIT).expect("it listens");
        Server { folder, child, address }
    }

    fn write(folder: &Path, pools: &str, route: &str) {
        let text = format!(
            "listen \"127.0.0.1:0\"\n{pools}\nsite {{ respond 200 \"fine\"\n route \"/cgi-bin/*\" {{ {route} }} }}\n"
        );
        fs::write(folder.join("tidegate.kdl"), text).unwrap();
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.folder.join("cgi-bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn tell(&self, arguments: &[&str]) -> String {
        let output = Command::new(BINARY)
            .args(arguments)
            .args(["--control", "control"])
            .current_dir(&self.folder)
            .output_in_time();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    /// What is told of the only pool.
    fn pool(&self) -> serde_json::Value {
        let status: serde_json::Value = serde_json::from_str(&self.tell(&["status", "--json"])).unwrap();
        status["pools"][0].clone()
    }

    fn processes(&self) -> BTreeSet<u64> {
        let pool = self.pool();
        let all = pool["processes"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|process| process["pid"].as_u64()).collect()
    }

    /// So many, once they are there: the server serves before the last of them is.
    fn all(&self, count: usize) -> BTreeSet<u64> {
        wait_for(|| Some(self.processes()).filter(|all| all.len() == count), "all processes")
    }

    fn get(&self, path: &str) -> (u16, String) {
        get(&self.address, path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tell(&["stop", "--now"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
}

/// Ends the load of a test also when the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn is_running(pid: u64) -> bool {
    tidegate_testkit::is_running(pid as u32)
}

fn kill(pid: u64) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    let _ = kill_process(pid, Signal::KILL);
}

/// Scripts of these tests write into a folder of whoever runs the tests.
const POOL: &str =
    "pool \"scripts\" { user \"root\"; cgi-stubs; processes min=3 max=3; queue length=100 age=\"10s\" }";
const ROUTE: &str = "cgi \"scripts\"; alias \"cgi-bin\"";

#[test]
fn scripts_are_run_and_nothing_is_left_behind() {
    let server = Server::start("run", POOL, ROUTE);
    server.script("hello", "echo 'Content-Type: text/plain'; echo; echo \"hello $PATH_INFO\"");
    let (status, answer) = server.get("/cgi-bin/hello/world");
    assert!(status == 200 && answer.contains("hello /world"), "{answer}");
    assert_eq!(server.get("/cgi-bin/missing").0, 404);
    let processes = server.all(3);
    let folder = server.folder.clone();
    drop(server);
    for pid in processes {
        wait_for(|| (!is_running(pid)).then_some(()), "a stub to be gone");
    }
    assert!(!folder.exists());
}

#[test]
fn killed_processes_cost_only_what_they_had_in_hand() {
    let server = Server::start("kill", POOL, ROUTE);
    server.script("hello", "echo 'Content-Type: text/plain'; echo; echo hello");
    let (is_over, failed, answered) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut killed = 0;
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let (status, _) = get(&server.address, "/cgi-bin/hello");
                    let counter = if status == 200 { &answered } else { &failed };
                    counter.fetch_add(1, SeqCst);
                }
            });
        }
        for round in 1..=6 {
            wait_for(|| (answered.load(SeqCst) >= round * 5).then_some(()), "answers");
            let victim = server.processes().into_iter().next().expect("there are some");
            kill(victim);
            killed += 1;
            wait_for(|| (!server.processes().contains(&victim)).then_some(()), "the dead to be noticed");
        }
        is_over.store(true, SeqCst);
    });
    // A stub that is killed may have had one request in hand; nobody else loses anything.
    assert!(failed.load(SeqCst) <= killed, "{} failed, {killed} were killed", failed.load(SeqCst));
    server.all(3);
}

#[test]
fn a_restart_by_command_replaces_all_and_loses_nothing() {
    let server = Server::start("restart", POOL, ROUTE);
    server.script("hello", "echo 'Content-Type: text/plain'; echo; echo hello");
    let before = server.all(3);
    let (is_over, failed, answered) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let (status, _) = get(&server.address, "/cgi-bin/hello");
                    let counter = if status == 200 { &answered } else { &failed };
                    counter.fetch_add(1, SeqCst);
                }
            });
        }
        wait_for(|| (answered.load(SeqCst) >= 5).then_some(()), "answers");
        let said = server.tell(&["pool", "restart", "scripts"]);
        assert_eq!(said, "the processes of scripts are being replaced, one by one\n");
        let is_new = |all: &BTreeSet<u64>| all.len() == 3 && all.is_disjoint(&before);
        wait_for(|| Some(server.processes()).filter(is_new), "three others");
        let until = answered.load(SeqCst) + 5;
        wait_for(|| (answered.load(SeqCst) >= until).then_some(()), "answers of the others");
        is_over.store(true, SeqCst);
    });
    assert_eq!(failed.load(SeqCst), 0);
}

#[test]
fn who_crashes_again_and_again_is_answered_for_at_once() {
    let pool = "pool \"scripts\" { command \"sh\" \"-c\" \"printf 'no luck\\\\033[31m' >&2; exit 3\" }";
    let server = Server::start("crash", pool, "proxy \"scripts\"");
    server.script("hello", "true");
    wait_for(|| (server.pool()["state"] == "failing").then_some(()), "the pool to fail");
    let (status, answer) = server.get("/cgi-bin/hello");
    assert!(status == 503 && answer.contains("Retry-After: "), "{answer}");
    let pool = server.pool();
    assert!(pool["last_failure"].as_str().unwrap().contains("no luck?[31m"), "{pool}"); // no colours
    let is_counted = || server.pool()["refused"]["down"].as_u64() >= Some(1);
    wait_for(|| is_counted().then_some(()), "the refusal to be told");
    assert_eq!(server.get("/").0, 200);
}

/// Rust handles the first two itself, and ignores the third; the keeper is Rust.
#[test]
fn the_signal_that_has_ended_a_process_is_told() {
    for (name, number) in [("SEGV", 11), ("BUS", 7), ("PIPE", 13), ("TERM", 15)] {
        let pool = format!("pool \"scripts\" {{ command \"sh\" \"-c\" \"kill -{name} $$\" }}");
        let server = Server::start(&format!("signal-{name}"), &pool, "proxy \"scripts\"");
        let told = wait_for(|| server.pool()["last_failure"].as_str().map(str::to_owned), "a failure");
        assert_eq!(told, format!("was ended by signal {number}"));
    }
}

/// The socket is the server's: connecting succeeds, and nobody ever accepts.
#[test]
fn who_waits_before_processes_that_end_is_answered_as_soon_as_the_pool_fails() {
    for (name, pool) in [
        ("at-once", "command \"sh\" \"-c\" \"exit 1\"; processes min=0"),
        ("soon", "command \"sh\" \"-c\" \"sleep 0.7; exit 1\"; socket auto pass=descriptor"),
        ("late", "command \"sh\" \"-c\" \"sleep 1.3; exit 1\"; processes min=0; socket auto pass=stdin"),
        ("shared", "command \"sh\" \"-c\" \"sleep 0.7; exit 1\"; socket \"unix:shared.sock\""),
    ] {
        let pool = format!("pool \"scripts\" {{ user \"root\"; {pool} }}");
        let server = Server::start(&format!("boot-{name}"), &pool, "proxy \"scripts\" { timeout \"15s\" }");
        for _ in 0..2 {
            let (status, answer) = server.get("/cgi-bin/hello");
            assert!(status == 503 && answer.contains("Retry-After: "), "{name}: {answer}");
        }
        wait_for(|| (server.pool()["in_use"] == 0).then_some(()), "the places to be free");
    }
}

/// Answers what comes on descriptor 3, and writes down how often. Where `FAILS` holds it ends once somebody waits.
const LISTENER: &str = "import os, select, socket, sys\n\
    listener = socket.socket(fileno=3)\n\
    if FAILS:\n    select.select([listener], [], [])\n    sys.exit(1)\n\
    while True:\n    connection, _ = listener.accept()\n    request = b''\n\
    \x20   while not request.endswith(b'content'):\n\
    \x20       piece = connection.recv(65536)\n\
    \x20       if not piece: break\n\
    \x20       request += piece\n\
    \x20   if not request: continue\n\
    \x20   os.write(os.open('answered', os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'.')\n\
    \x20   connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok')\n\
    \x20   connection.close()\n";

fn listener(name: &str, processes: usize, fails: &str) -> Server {
    let pool = format!(
        "pool \"scripts\" {{ user \"root\"; command \"python3\" \"main\"; folder \"cgi-bin\"; queue age=\"30s\"\n\
         socket auto pass=descriptor; processes min={processes} max={processes} }}"
    );
    let text = LISTENER.replace("FAILS", fails);
    Server::start_with(name, &pool, "proxy \"scripts\" { timeout \"15s\" }", &[("main", &text)])
}

fn post(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let head =
        "POST /cgi-bin/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 7\r\n\r\n";
    write!(stream, "{head}content").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn who_waits_while_the_next_process_boots_is_served() {
    // The first one fails, and whatever is not safe may be given to the next: nobody has begun with it.
    let fails = "not os.path.exists('failed') and not os.close(os.open('failed', os.O_CREAT))";
    let server = listener("boot-again", 1, fails);
    let answer = post(&server.address);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(server.folder.join("cgi-bin/failed").exists());
    assert_eq!(server.pool()["restarts"], 1);
}

#[test]
fn who_asks_for_what_was_put_right_while_the_pool_was_idle_is_served() {
    let text = LISTENER.replace("FAILS", "not os.path.exists('right')");
    let pool = "pool \"scripts\" { user \"root\"; command \"python3\" \"main\"; folder \"cgi-bin\"; queue age=\"30s\"\n\
                socket auto pass=descriptor; processes min=0 max=1 idle=\"100ms\" }";
    let route = "proxy \"scripts\" { timeout \"15s\" }";
    let server = Server::start_with("put-right", pool, route, &[("main", &text)]);
    assert!(post(&server.address).starts_with("HTTP/1.1 503"));
    wait_for(|| (server.pool()["state"] == "idle").then_some(()), "nobody to want a process");
    server.script("right", "");
    wait_for(|| post(&server.address).starts_with("HTTP/1.1 200").then_some(()), "an answer");
}

#[test]
fn who_waits_before_one_that_ends_is_given_to_one_that_lives() {
    let server = listener("boot-one", 2, "listener.getsockname().endswith('-1.sock')");
    let count = 12;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..count).map(|_| scope.spawn(|| post(&server.address))).collect();
        for answer in all.into_iter().map(|one| one.join().unwrap()) {
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    });
    // None was carried out twice, neither at once nor by the one that comes next.
    wait_for(|| (server.pool()["restarts"].as_u64() >= Some(2)).then_some(()), "one to have failed");
    assert_eq!(fs::read(server.folder.join("cgi-bin/answered")).unwrap().len(), count);
}

/// The socket is the server's, so that anybody can connect before the program has booted, which takes longer than the second
/// that proves a program that boots at once.
#[test]
fn a_definition_that_fails_while_it_boots_leaves_the_old_processes_serving() {
    for (name, socket) in
        [("own", "socket auto pass=descriptor"), ("shared", "socket \"unix:shared.sock\" pass=descriptor")]
    {
        let text = |command: &str| {
            format!(
                "pool \"scripts\" {{ user \"root\"; folder \"cgi-bin\"; {command}; {socket}; processes min=1 max=2; stop-timeout \"1s\" }}"
            )
        };
        let route = "proxy \"scripts\" { timeout \"15s\" }";
        let good = "command \"python3\" \"main\"";
        let main = LISTENER.replace("FAILS", "False").replace("b'content'", "b'\\r\\n\\r\\n'");
        let server = Server::start_with(&format!("late-{name}"), &text(good), route, &[("main", &main)]);
        let before = server.all(1);
        assert_eq!(server.get("/cgi-bin/x").0, 200);
        Server::write(&server.folder, &text("command \"sh\" \"-c\" \"sleep 1.3; exit 1\""), route);
        server.tell(&["reload"]);
        for restarts in 1..=2 {
            wait_for(
                || (server.pool()["restarts"].as_u64() >= Some(restarts)).then_some(()),
                "one to have ended",
            );
            let (status, answer) = server.get("/cgi-bin/x");
            assert_eq!(status, 200, "{name}: {answer}");
        }
        let pool = server.pool();
        assert_eq!((&pool["state"], &pool["last_failure"]), (&"up".into(), &"ended with status 1".into()));
        assert!(server.processes().is_superset(&before), "{name}: {pool}");
        // One that works takes over, also where nobody asks for anything.
        Server::write(&server.folder, &text(&format!("{good} \"again\"")), route);
        server.tell(&["reload"]);
        let is_new = |all: &BTreeSet<u64>| all.len() == 1 && all.is_disjoint(&before);
        wait_for(|| Some(server.processes()).filter(is_new), "the new one alone");
        assert_eq!(server.get("/cgi-bin/x").0, 200);
    }
}

#[test]
fn a_reload_touches_only_what_it_changes() {
    let server = Server::start("reload", POOL, ROUTE);
    server.script("hello", "echo 'Content-Type: text/plain'; echo; echo $COLOUR");
    let before = server.all(3);
    server.tell(&["reload"]);
    assert_eq!(server.processes(), before);
    let changed = POOL.replace("cgi-stubs;", "cgi-stubs; environment { COLOUR \"blue\" };");
    Server::write(&server.folder, &changed, ROUTE);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        let load = scope.spawn(|| {
            let mut failed = Vec::new();
            while !is_over.load(SeqCst) {
                let (status, answer) = get(&server.address, "/cgi-bin/hello");
                if status != 200 {
                    failed.push(answer);
                }
            }
            failed
        });
        server.tell(&["reload"]);
        wait_for(
            || {
                let now = server.processes();
                (now.is_disjoint(&before) && now.len() == 3).then_some(())
            },
            "all to be replaced",
        );
        is_over.store(true, SeqCst);
        let failed = load.join().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
    });
    assert!(server.get("/cgi-bin/hello").1.contains("blue"));
}

#[test]
fn scripts_that_take_too_long_are_killed_with_all_they_have_started() {
    let pool = "pool \"scripts\" { user \"root\"; cgi-stubs expiration=\"1s\" }";
    let server = Server::start("expire", pool, ROUTE);
    server.script("stuck", "sleep 1234 & echo $! > child; echo $$ > self; wait");
    let (status, _) = server.get("/cgi-bin/stuck");
    assert_eq!(status, 502);
    for name in ["child", "self"] {
        let pid = fs::read_to_string(server.folder.join("cgi-bin").join(name)).unwrap();
        let pid = pid.trim().parse().unwrap();
        wait_for(|| (!is_running(pid)).then_some(()), name);
    }
}

#[test]
fn a_client_that_goes_away_takes_its_script_along() {
    let server = Server::start("away", POOL, ROUTE);
    server.script("stuck", "echo 'Content-Type: text/plain'; echo; echo $$ > self; sleep 1234 & wait");
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "GET /cgi-bin/stuck HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let path = server.folder.join("cgi-bin/self");
    let pid = wait_for(|| fs::read_to_string(&path).ok()?.trim().parse().ok(), "the script to begin");
    drop(stream);
    wait_for(|| (!is_running(pid)).then_some(()), "the script to be gone");
}

#[test]
fn a_process_that_hangs_is_ended_with_all_it_has_started_and_replaced() {
    let route = "cgi \"scripts\" { timeout \"500ms\" }; alias \"cgi-bin\"";
    let server = Server::start("hang", POOL, route);
    server.script("stuck", "echo $$ > self; sleep 1234 & echo $! > child; wait");
    server.script("hello", "echo 'Content-Type: text/plain'; echo; echo hello");
    let before = server.all(3);
    assert_eq!(server.get("/cgi-bin/stuck").0, 504);
    for name in ["self", "child"] {
        let pid = fs::read_to_string(server.folder.join("cgi-bin").join(name)).unwrap();
        let pid = pid.trim().parse().unwrap();
        wait_for(|| (!is_running(pid)).then_some(()), name);
    }
    // One of them is gone, and the others have gone on.
    let is_replaced = |now: BTreeSet<u64>| now.len() == 3 && now.intersection(&before).count() == 2;
    wait_for(|| is_replaced(server.processes()).then_some(()), "another process in its place");
    assert_eq!(server.get("/cgi-bin/hello").0, 200);
}

/// Neither what is not safe nor what has ended its process is begun again (FAULTS 62).
#[test]
fn a_script_that_crashes_is_run_once() {
    let server = Server::start("crashing", POOL, ROUTE);
    server.script("crash", "echo $REQUEST_METHOD >> runs; kill -9 $$");
    for method in ["GET", "HEAD", "PUT", "DELETE", "POST"] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let head = format!("{method} /cgi-bin/crash HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    }
    let runs = fs::read_to_string(server.folder.join("cgi-bin/runs")).unwrap();
    assert_eq!(runs.lines().collect::<Vec<_>>(), ["GET", "HEAD", "PUT", "DELETE", "POST"]);
}

/// FAULTS 65: nothing that a process writes is taken for a repetition, cut, or lost with its end, and nothing comes twice.
#[test]
fn every_line_that_a_process_writes_arrives_once_and_in_order() {
    let wanted: Vec<String> =
        (0..500).map(|n| format!("line {n} {}", "x".repeat(n % 70))).chain(["last words".into()]).collect();
    let script = "import sys, time\nfor n in range(500): print('line', n, 'x' * (n % 70), flush=True)\n\
                  sys.stderr.write('last words'); sys.stderr.flush(); sys.exit(3)\n";
    for (name, log) in [("own", "output \"app.log\""), ("shared", "")] {
        let pool = format!(
            "error-log \"error.log\"\npool \"scripts\" {{ user \"root\"; command \"python3\" \"app.py\"; {log} }}"
        );
        let folder = std::env::temp_dir().join(format!("tidegate-{}-lines-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("app.py"), script).unwrap();
        let pool = pool.replace("app.py", &folder.join("app.py").display().to_string());
        let server = Server::start(&format!("lines-{name}"), &pool, "proxy \"scripts\"");
        let path = server.folder.join(if log.is_empty() { "error.log" } else { "app.log" });
        // The lines of the first process of several: each says its number.
        let lines = || {
            let text = fs::read_to_string(&path).ok()?;
            let of = |line: &str| {
                let (_, rest) = line.split_once("warn: pool scripts [")?;
                let (pid, line) = rest.split_once("]: ")?;
                Some((pid.to_owned(), line.to_owned()))
            };
            let all: Vec<(String, String)> = text.lines().filter_map(of).collect();
            let first = all.first()?.0.clone();
            let lines: Vec<String> =
                all.into_iter().filter(|(pid, _)| *pid == first).map(|(_, line)| line).collect();
            lines.contains(&"last words".to_owned()).then_some(lines)
        };
        let got = wait_for(lines, "the last words");
        let trimmed: Vec<&str> = wanted.iter().map(|line| line.trim_end()).collect();
        assert_eq!(got, trimmed, "{name}");
    }
}

/// What goes beyond the bound is counted, and the sum is right.
#[test]
fn what_an_application_writes_beyond_its_bound_is_counted() {
    let folder = std::env::temp_dir().join(format!("tidegate-{}-bound", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("app.py"),
        "import sys, time\nfor n in range(2000): print('line', n)\nsys.stdout.flush()\ntime.sleep(1e6)\n",
    )
    .unwrap();
    let pool = format!(
        "pool \"scripts\" {{ user \"root\"; command \"python3\" \"{}\"; output \"app.log\" limit=\"10KiB\" }}",
        folder.join("app.py").display()
    );
    let server = Server::start("bound", &pool, "proxy \"scripts\"");
    let path = server.folder.join("app.log");
    let counted = || {
        let text = fs::read_to_string(&path).ok()?;
        let written = text.lines().filter(|line| line.contains("]: line ")).count();
        let left_out: usize = text
            .lines()
            .filter_map(|line| {
                line.split_once("warn: scripts: ")?.1.split_once(" line")?.0.parse::<usize>().ok()
            })
            .sum();
        (left_out > 0 && written + left_out >= 2000).then_some((written, left_out))
    };
    let (written, left_out) = wait_for(counted, "the count");
    assert_eq!(written + left_out, 2000);
    assert!(written > 10, "{written}");
}

/// Nobody is there any more who could end what the master has started, and nothing that is under way may be lost by it.
#[test]
fn a_master_that_is_killed_leaves_nothing_and_what_is_in_flight_is_finished() {
    let mut server = Server::start("master", POOL, ROUTE);
    server.script(
        "slow",
        "echo $$ > self; sleep 1234 & echo $! > child; setsid sleep 1234 & echo $! > apart\n\
         echo 'Content-Type: text/plain'; echo; echo begun; until test -e go; do sleep 0.05; done; echo finished",
    );
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    write!(stream, "GET /cgi-bin/slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    while !answer.contains("begun") {
        assert!(reader.read_line(&mut answer).unwrap() > 0, "{answer}");
    }
    let place = server.folder.join("cgi-bin");
    let read =
        |name: &str| wait_for(|| fs::read_to_string(place.join(name)).ok()?.trim().parse::<u64>().ok(), name);
    let mut all: Vec<u64> = ["self", "child", "apart"].into_iter().map(read).collect();
    all.extend(server.all(3));
    let folders = || {
        let entries = fs::read_dir(&server.folder).unwrap().filter_map(Result::ok);
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("tidegate-")).count()
    };
    assert_eq!(folders(), 1);
    let master = u64::from(server.child.id());
    kill(master);
    wait_for(|| TcpStream::connect(&server.address).is_err().then_some(()), "the last listener to close");
    // The server process has heard of it by now, and the application goes on all the same.
    assert!(all.iter().all(|pid| is_running(*pid)));
    fs::write(place.join("go"), "").unwrap();
    reader.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("finished"), "{answer}");
    for pid in all {
        wait_for(|| (!is_running(pid)).then_some(()), "what was started to be gone");
    }
    wait_for(|| (folders() == 0).then_some(()), "the folder to be gone");
    server.child.wait().unwrap();
}

/// A line of a script that leaves a daemon behind: in a session of its own, without a parent, deaf to what it may be deaf to,
/// its streams closed. Its number is in `NAME`.
fn daemon(name: &str) -> String {
    format!(
        "(setsid sh -c 'trap \"\" HUP TERM INT; (nohup setsid sh -c \"trap \\\"\\\" HUP TERM INT; echo \\$\\$ > {name}.new; \
         mv {name}.new {name}; while :; do sleep 1; done\" </dev/null >/dev/null 2>&1 &)' </dev/null >/dev/null 2>&1 &)\n\
         until test -e {name}; do sleep 0.01; done"
    )
}

/// The number that a daemon has written, and that it has no parent of the script's any more.
fn daemon_of(place: &Path, name: &str) -> u64 {
    let read = || fs::read_to_string(place.join(name)).ok()?.trim().parse::<u64>().ok();
    wait_for(read, name)
}

#[test]
fn what_a_script_has_made_a_daemon_ends_with_the_request() {
    let server = Server::start("daemon-cgi", POOL, ROUTE);
    server.script("leaves", &format!("{}\necho 'Content-Type: text/plain'; echo; echo left", daemon("left")));
    let place = server.folder.join("cgi-bin");
    let (status, answer) = server.get("/cgi-bin/leaves");
    assert_eq!(status, 200, "{answer}");
    let pid = daemon_of(&place, "left");
    wait_for(|| (!is_running(pid)).then_some(()), "the daemon to be gone");
    // The stub goes on.
    let processes = server.all(3);
    fs::remove_file(place.join("left")).unwrap();
    assert_eq!(server.get("/cgi-bin/leaves").0, 200);
    assert_eq!(server.processes(), processes);
}

/// A pool whose process leaves a daemon and then runs on.
fn daemonising(server: &Server) -> u64 {
    daemon_of(&server.folder.join("cgi-bin"), "left")
}

const SLEEPER: &str = "drain-timeout \"1s\"\n\
    pool \"scripts\" { user \"root\"; command \"sh\" \"main\"; folder \"cgi-bin\"; processes min=1 max=1 }";

fn sleeper(name: &str) -> Server {
    let text = format!("#!/bin/sh\n{}\nwhile :; do sleep 1; done\n", daemon("left"));
    Server::start_with(name, SLEEPER, ROUTE_TO_SLEEPER, &[("main", &text)])
}

const ROUTE_TO_SLEEPER: &str = "fastcgi \"scripts\" { mount \"/cgi-bin\" }";

#[test]
fn what_a_process_has_made_a_daemon_ends_with_it_and_with_the_server() {
    let mut server = sleeper("daemon-pool");
    let place = server.folder.join("cgi-bin");
    let first = daemonising(&server);
    assert!(is_running(first));
    // Its process is killed: the daemon goes, too, and the successor leaves another one.
    let processes = server.all(1);
    fs::remove_file(place.join("left")).unwrap();
    kill(*processes.iter().next().unwrap());
    wait_for(|| (!is_running(first)).then_some(()), "the first daemon to be gone");
    let second = daemonising(&server);
    assert_ne!(first, second);
    assert!(is_running(second));
    // The server is stopped.
    server.tell(&["stop"]);
    server.child.wait().unwrap();
    assert!(!is_running(second), "the server has ended, and the daemon has not");
}

#[test]
fn what_a_process_has_made_a_daemon_ends_when_the_master_is_killed() {
    let mut server = sleeper("daemon-killed");
    let daemon = daemonising(&server);
    kill(u64::from(server.child.id()));
    server.child.wait().unwrap();
    wait_for(|| (!is_running(daemon)).then_some(()), "the daemon to be gone");
}

/// Then nobody is left but the keepers themselves.
#[test]
fn what_a_process_has_made_a_daemon_ends_when_master_and_guard_are_killed() {
    let mut server = sleeper("daemon-alone");
    let daemon = daemonising(&server);
    let master = u64::from(server.child.id());
    let guard = wait_for(|| guard_of(master), "the guard");
    // Stopped first: the one could replace, the other act.
    let stop = |pid: u64| {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
    };
    stop(master);
    stop(guard);
    kill(guard);
    kill(master);
    server.child.wait().unwrap();
    wait_for(|| (!is_running(daemon)).then_some(()), "the daemon to be gone");
}

/// A keeper that is killed takes its process along; a daemon of that is nobody's then.
#[test]
fn a_keeper_that_is_killed_leaves_no_process() {
    let server = sleeper("keeper");
    let daemon = daemonising(&server);
    let processes = server.all(1);
    let process = *processes.iter().next().unwrap();
    let keeper = parent_of(process).unwrap();
    assert_ne!(keeper, u64::from(server.child.id()));
    kill(keeper);
    wait_for(|| (!is_running(process)).then_some(()), "the process to be gone");
    kill(daemon);
    wait_for(|| server.processes().iter().any(|pid| *pid != process).then_some(()), "its successor");
}

fn parent_of(pid: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// The guard of a master.
fn guard_of(master: u64) -> Option<u64> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    all.filter_map(|name| name.parse::<u64>().ok()).find(|pid| {
        let is_guard = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default() == b"tidegate\0guard\0";
        is_guard && parent_of(*pid) == Some(master)
    })
}

/// A guard that is killed is replaced, and knows all that the one before knew.
#[test]
fn a_guard_that_is_killed_has_a_successor() {
    let mut server = Server::start("guard", POOL, ROUTE);
    server.script("hello", "echo 'Content-Type: text/plain'; echo; echo hello");
    let guard = || guard_of(u64::from(server.child.id()));
    let first = wait_for(guard, "the guard");
    // It is there before the first process is.
    let processes = server.all(3);
    kill(first);
    // Its last message may have gone to the one that was dying.
    kill(*processes.iter().next().unwrap());
    wait_for(|| guard().filter(|pid| *pid != first), "the next guard");
    wait_for(
        || (server.processes().len() == 3 && server.processes() != processes).then_some(()),
        "all three",
    );
    let all = server.processes();
    kill(u64::from(server.child.id()));
    for pid in all {
        wait_for(|| (!is_running(pid)).then_some(()), "what was started to be gone");
    }
    server.child.wait().unwrap();
}
