//! Master and server processes as an operator has them: killed, replaced, reloaded and upgraded under load.
//!
//! FAULTS 43 to 45, 47, 51. Nothing here sleeps and hopes: every wait is for a line, a process or an answer.

mod running;

use running::{BINARY, Folder, KeepAlive, Load, Server, WAIT, exchange, run, wait_for};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use tidegate_testkit::InTime;

fn site(lines: &str, body: &str) -> String {
    format!("{lines}\nlisten \"127.0.0.1:0\"\nsite {{ respond 200 \"{body}\" }}\n")
}

// ---------------------------------------------------------------- clients that do not stop

/// What became of the requests of one client.
#[derive(Default, Debug)]
struct Tally {
    answers: usize,
    /// Connections that could not be made.
    refused: Vec<String>,
    /// Requests that were under way on a connection.
    broken: Vec<String>,
}

/// Sends POST after POST on one connection, and makes another when it has ended or the server says that it
/// will.
struct Posts {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Tally>>,
}

impl Posts {
    fn on(address: &str, clients: usize) -> Posts {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let (over, address) = (is_over.clone(), address.to_owned());
            std::thread::spawn(move || post_until(&over, &address))
        };
        Posts { threads: (0..clients).map(start).collect(), is_over }
    }

    fn end(self) -> Tally {
        self.is_over.store(true, SeqCst);
        let mut all = Tally::default();
        for thread in self.threads {
            let tally = running::join(thread, "a client to leave");
            all.answers += tally.answers;
            all.refused.extend(tally.refused);
            all.broken.extend(tally.broken);
        }
        assert!(all.answers > 0);
        all
    }

    /// None may have failed.
    fn end_whole(self) {
        let tally = self.end();
        assert!(tally.refused.is_empty() && tally.broken.is_empty(), "{tally:?}");
    }
}

fn post_until(is_over: &AtomicBool, address: &str) -> Tally {
    let mut tally = Tally::default();
    let mut kept: Option<BufReader<TcpStream>> = None;
    while !is_over.load(SeqCst) {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => match TcpStream::connect(address) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(WAIT)).unwrap();
                    BufReader::new(stream)
                }
                Err(error) => {
                    tally.refused.push(error.to_string());
                    continue;
                }
            },
        };
        match post(&mut connection) {
            Ok(stays) => {
                tally.answers += 1;
                kept = stays.then_some(connection);
            }
            Err(error) => tally.broken.push(error.to_string()),
        }
    }
    tally
}

/// Whether the connection stays.
fn post(connection: &mut BufReader<TcpStream>) -> std::io::Result<bool> {
    connection.get_mut().write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")?;
    let (mut length, mut stays, mut line) = (0, true, String::new());
    loop {
        line.clear();
        if connection.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().map_err(Error::other)?,
            Some(("connection", value)) => stays = value != "close",
            Some(_) => {}
            None if line == "\r\n" => break,
            None if line.starts_with("HTTP/1.1 200") => {}
            None => return Err(Error::other(line)),
        }
    }
    connection.read_exact(&mut vec![0; length])?;
    Ok(stays)
}

fn is_running(pid: Pid) -> bool {
    tidegate_testkit::is_running(pid.as_raw_nonzero().get() as u32)
}

/// Waits until `count` processes serve, none of them `not`.
fn serving(server: &Server<'_>, count: usize, not: &[Pid]) -> Vec<Pid> {
    let serve = || {
        let all = server.status()["server"]["processes"].as_array().unwrap().clone();
        let serve = all.iter().filter(|process| process["state"] == "serving");
        let pids: Vec<Pid> = serve.filter_map(|p| Pid::from_raw(p["pid"].as_i64()? as i32)).collect();
        (pids.len() == count && !pids.iter().any(|pid| not.contains(pid))).then_some(pids)
    };
    wait_for(serve, "the server processes to serve")
}

// ---------------------------------------------------------------- processes that end

/// FAULTS 43.
#[test]
fn killing_a_server_process_loses_what_is_in_flight_and_refuses_nobody() {
    let folder = Folder::new("kill");
    let server = Server::with_config(&folder, &site("workers 2\nprocesses 2", "x"));
    const CLIENTS: usize = 4;
    const KILLS: usize = 6;
    let posts = Posts::on(&server.address, CLIENTS);
    let mut pids = serving(&server, 2, &[]);
    for kill in 0..KILLS {
        let killed = pids[kill % 2];
        kill_process(killed, Signal::KILL).unwrap();
        pids = serving(&server, 2, &[killed]);
        assert_eq!(server.body("/"), "x");
    }
    let status = server.status();
    let processes = status["server"]["processes"].as_array().unwrap().iter();
    let restarts: u64 = processes.map(|process| process["restarts"].as_u64().unwrap()).sum();
    assert_eq!(restarts, KILLS as u64);
    let tally = posts.end();
    assert_eq!(tally.refused, Vec::<String>::new());
    assert!(tally.broken.len() <= CLIENTS * KILLS, "{tally:?}");
}

#[test]
fn a_crash_loop_is_slowed_down_said_and_survived() {
    let folder = Folder::new("loop");
    let mut server = Server::with_config(&folder, &site("workers 1", "x"));
    let mut killed = Vec::new();
    for _ in 0..4 {
        let pid = serving(&server, 1, &killed)[0];
        kill_process(pid, Signal::KILL).unwrap();
        killed.push(pid);
    }
    let line = server.line("in a row");
    assert!(line.contains("signal 9") && line.contains("the next one waits"), "{line}");
    serving(&server, 1, &killed);
    assert_eq!(server.body("/"), "x");
    assert_eq!(server.status()["server"]["processes"][0]["restarts"], 4);
}

#[test]
fn a_root_that_has_gone_costs_its_route_alone_when_a_process_is_replaced() {
    let folder = Folder::new("gone");
    fs::create_dir(folder.path("www")).unwrap();
    folder.write("www/f", "file");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\n\
                site { respond 200 \"x\"; route \"/f\" { root \"www\" } }\n";
    let mut server = Server::with_config(&folder, text);
    assert_eq!(server.body("/f"), "file");
    fs::rename(folder.path("www"), folder.path("away")).unwrap();
    let pid = server.processes()[0];
    kill_process(pid, Signal::KILL).unwrap();
    serving(&server, 1, &[pid]);
    assert_eq!(server.body("/"), "x");
    assert!(running::get(&server.address, "/f").unwrap_err().to_string().contains("503"));
    server.line("answers 503 until the next reload");
    fs::rename(folder.path("away"), folder.path("www")).unwrap();
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!(server.body("/f"), "file");
}

#[test]
fn a_server_process_that_is_told_to_end_is_replaced_first() {
    let folder = Folder::new("term");
    let server = Server::with_config(&folder, &site("workers 1", "x"));
    let posts = Posts::on(&server.address, 2);
    let load = Load::on(&server.address);
    for _ in 0..3 {
        let pid = serving(&server, 1, &[])[0];
        for ignored in [Signal::HUP, Signal::INT, Signal::USR1, Signal::USR2] {
            kill_process(pid, ignored).unwrap();
        }
        assert_eq!(server.body("/"), "x");
        assert_eq!(serving(&server, 1, &[]), [pid], "these signals are the master's");
        kill_process(pid, Signal::TERM).unwrap();
        serving(&server, 1, &[pid]);
    }
    load.end();
    posts.end_whole();
}

#[test]
fn nobody_holds_the_port_when_the_master_is_killed() {
    let folder = Folder::new("orphans");
    let mut server =
        Server::with_config(&folder, &site("workers 1\nprocesses 2\ndrain-timeout \"20s\"", "x"));
    let mut idle = KeepAlive::new(&server.address);
    assert_eq!(idle.get("/").0, "x");
    let mut half = TcpStream::connect(&server.address).unwrap();
    half.set_read_timeout(Some(WAIT)).unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
    wait_for(|| (server.status()["stats"]["connections"]["current"] == 2).then_some(()), "both connections");
    let pids = server.processes();
    server.signal(Signal::KILL);
    server.wait();
    assert!(idle.is_closed_by_the_server());
    half.write_all(b"\r\n").unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nx"), "what was under way is finished: {answer:?}");
    wait_for(|| pids.iter().all(|pid| !is_running(*pid)).then_some(()), "the server processes to end");
    assert!(TcpStream::connect(&server.address).is_err());
    server.control = None;
}

/// However often it is told: who has been told has its time, and what it says is the truth (FAULTS 72).
#[test]
fn a_server_that_is_told_again_and_again_to_end_says_what_it_has_cut() {
    let folder = Folder::new("impatient");
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let error_log = folder.path("error.log");
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nerror-log \"{}\"\nsite {{ proxy \"http://{}\" }}\n",
        error_log.display(),
        backend.local_addr().unwrap()
    );
    let mut server = Server::with_config(&folder, &text);
    let mut client = TcpStream::connect(&server.address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let _open = backend.accept().unwrap();
    let ended = wait_for(
        || {
            server.signal(Signal::TERM);
            server.child.try_wait().unwrap()
        },
        "the server to end",
    );
    assert!(ended.success());
    let said = fs::read_to_string(error_log).unwrap();
    assert!(said.contains("ended; 1 connection was cut") && !said.contains("does not react"), "{said}");
}

// ---------------------------------------------------------------- reload and upgrade

/// FAULTS 44 and 45, scaled down.
#[test]
fn reloads_and_upgrades_fail_no_request() {
    let folder = Folder::new("nothing-lost");
    let text = site("workers 2\nprocesses 2", "x");
    let server = Server::with_config(&folder, &text);
    let posts = Posts::on(&server.address, 3);
    let load = Load::on(&server.address);
    let crashes = folder.write("crashes", "#!/bin/sh\nexit 7\n");
    fs::set_permissions(&crashes, fs::Permissions::from_mode(0o755)).unwrap();
    for round in 0..3 {
        for _ in 0..5 {
            assert_eq!(server.tell(&["reload"]).code, Some(0));
        }
        folder.write("tidegate.kdl", &text.replace("site", "siet"));
        assert_eq!(server.tell(&["reload"]).code, Some(1));
        folder.write("tidegate.kdl", &text);
        assert_eq!(server.tell(&["upgrade", "--binary", &crashes]).code, Some(1));
        let outcome = server.tell(&["upgrade"]);
        assert_eq!(outcome.code, Some(0), "round {round}: {}", outcome.stderr);
    }
    load.end();
    posts.end_whole();
}

/// The first still finishes what is open when the third serves: what it counts then is told by the second.
#[test]
fn what_is_counted_while_one_upgrade_follows_another_is_kept() {
    let folder = Folder::new("counted");
    let server = Server::with_config(&folder, &site("workers 1\ndrain-timeout \"60s\"", "x"));
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(WAIT)).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
    let stats = || server.status()["stats"].clone();
    wait_for(|| (stats()["connections"]["current"] == 1).then_some(()), "the connection");
    let first = server.processes();
    for _ in 0..2 {
        let outcome = server.tell(&["upgrade"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    }
    assert!(first.iter().all(|pid| is_running(*pid)), "the first has a request to finish");
    assert_eq!(stats()["requests"], 0);
    slow.write_all(b"Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nx"), "{answer:?}");
    wait_for(|| (stats()["requests"] == 1).then_some(()), "the request to be counted");
    assert_eq!(stats()["responses"]["total"], 1);
}

#[test]
fn other_numbers_of_workers_and_processes_are_taken_up_without_a_failed_request() {
    let folder = Folder::new("numbers");
    let server = Server::with_config(&folder, &site("workers 1", "x"));
    let posts = Posts::on(&server.address, 2);
    let load = Load::on(&server.address);
    for (workers, processes) in [(2, 1), (1, 3), (2, 2), (1, 1)] {
        let pids = server.processes();
        folder.write("tidegate.kdl", &site(&format!("workers {workers}\nprocesses {processes}"), "x"));
        let outcome = server.tell(&["reload"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.contains(" took over; the previous"), "{}", outcome.stdout);
        serving(&server, processes, &pids);
        assert_eq!(server.status()["server"]["workers"], workers * processes);
    }
    let requests = server.status()["stats"]["requests"].as_u64().unwrap();
    load.end();
    let answered = server.status()["stats"]["requests"].as_u64().unwrap();
    assert!(requests > 0 && answered >= requests, "counts outlive their process");
    posts.end_whole();
}

#[test]
fn one_process_that_cannot_take_settings_up_leaves_all_as_they_were() {
    let folder = Folder::new("all-or-none");
    let server = Server::with_config(&folder, &site("workers 1\nprocesses 2", "one"));
    let pids = server.processes();
    // One of the two does not answer: it is stopped.
    kill_process(pids[1], Signal::STOP).unwrap();
    let control = server.control.clone().unwrap();
    folder.write("tidegate.kdl", &site("workers 1\nprocesses 2", "two"));
    let reload = std::thread::spawn(move || {
        Command::new(BINARY).args(["reload", "--control", &control]).output_in_time()
    });
    // It is killed before it has answered, and its successor begins with what is in force by then.
    kill_process(pids[1], Signal::KILL).unwrap();
    let outcome = running::join(reload, "the reload to end");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    serving(&server, 2, &pids[1..]);
    for _ in 0..10 {
        assert_eq!(server.body("/"), "two");
    }
}

/// A server whose reload waits for a process that was stopped; whoever is told of reloads has heard that it has begun.
fn waiting_reload<'a>(folder: &'a Folder, socket: &UnixDatagram) -> (Server<'a>, Vec<Pid>, Child) {
    socket.set_read_timeout(Some(WAIT)).unwrap();
    let path = folder.path("notify");
    let text = site("workers 1\nprocesses 2", "one");
    let server = Server::through(folder, &text, |mut command| {
        command.env("NOTIFY_SOCKET", &path);
        command
    });
    let heard = |word: &[u8]| {
        let mut heard = [0; 512];
        let count = socket.recv(&mut heard).unwrap();
        assert!(heard[..count].starts_with(word), "{:?}", String::from_utf8_lossy(&heard[..count]));
    };
    heard(b"READY=1");
    let pids = server.processes();
    kill_process(pids[1], Signal::STOP).unwrap();
    folder.write("tidegate.kdl", &site("workers 1\nprocesses 2", "two"));
    let reload = tell_later(&server, &["reload"]);
    heard(b"RELOADING=1");
    (server, pids, reload)
}

fn tell_later(server: &Server<'_>, arguments: &[&str]) -> Child {
    let mut command = Command::new(BINARY);
    command.args(arguments).args(["--control", server.control.as_deref().unwrap()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// One process that hangs holds up a reload for ten seconds. Everything else goes on.
#[test]
fn orders_logs_and_deaths_are_dealt_with_while_a_reload_waits() {
    let folder = Folder::new("meanwhile");
    let socket = UnixDatagram::bind(folder.path("notify")).unwrap();
    let (mut server, pids, mut reload) = waiting_reload(&folder, &socket);
    let mut second = tell_later(&server, &["reload"]);
    let other = folder.write("other.kdl", &site("control \"control\"", "other"));
    let answered = run(&folder, &["reload", "--config", &other]);
    assert!(
        answered.stderr.contains("nothing was done: this server has its settings from"),
        "{}",
        answered.stderr
    );
    assert!(reload.try_wait().unwrap().is_none() && second.try_wait().unwrap().is_none(), "both wait");
    // One that serves dies: its successor serves before the reload is over.
    kill_process(pids[0], Signal::KILL).unwrap();
    let line = server.line(" serves");
    let before: i32 = line.rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!(reload.try_wait().unwrap().is_none(), "it waits for the other");
    kill_process(pids[1], Signal::KILL).unwrap();
    // Nobody who was asked is left: who knows whether the settings did it.
    let outcome = reload.output_in_time();
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(said.contains("every server process has ended while it got ready"), "{said}");
    let outcome = second.output_in_time();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    wait_for(|| (server.body("/") == "two").then_some(()), "the new settings everywhere");
    for _ in 0..10 {
        assert_eq!(server.body("/"), "two");
    }
    assert!(server.processes().iter().any(|pid| before == pid.as_raw_nonzero().get()), "it stays");
    server.line("revision 2 is in force");
}

#[test]
fn a_server_can_be_stopped_while_a_reload_waits() {
    let folder = Folder::new("stopped-meanwhile");
    let socket = UnixDatagram::bind(folder.path("notify")).unwrap();
    let (mut server, pids, reload) = waiting_reload(&folder, &socket);
    let mut stop = tell_later(&server, &["stop"]);
    server.line("ending: requests in flight have");
    kill_process(pids[1], Signal::CONT).unwrap();
    assert!(stop.wait().unwrap().success());
    let outcome = reload.output_in_time();
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(
        !outcome.status.success() && said.contains("the server was told to end before this was done"),
        "{said}"
    );
    server.wait();
}

/// What is prepared when the server is told to end is not taken up: that would listen again.
#[test]
fn who_drains_does_not_accept_again_because_of_a_reload() {
    let folder = Folder::new("no-comeback");
    let text = |body| site("workers 1\nprocesses 2\ndrain-timeout \"60s\"", body);
    let mut server = Server::with_config(&folder, &text("one"));
    // So many that both processes have some.
    let half = |_| {
        let mut half = TcpStream::connect(&server.address).unwrap();
        half.set_read_timeout(Some(WAIT)).unwrap();
        half.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
        half
    };
    let halves: Vec<TcpStream> = (0..40).map(half).collect();
    wait_for(|| (server.status()["stats"]["connections"]["current"] == 40).then_some(()), "all connections");
    let pids = server.processes();
    kill_process(pids[1], Signal::STOP).unwrap();
    folder.write("tidegate.kdl", &text("two").replace("site {", "site { access-log \"two.log\"; "));
    let reload = tell_later(&server, &["reload"]);
    // From here on the master does nothing else before it has told both to prepare.
    wait_for(|| Path::new(&folder.path("two.log")).exists().then_some(()), "the log of the new settings");
    let stop = tell_later(&server, &["stop"]);
    server.line("ending: requests in flight have");
    let outcome = reload.output_in_time();
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(said.contains("told to end before this was done: revision 1 stays in force"), "{said}");
    kill_process(pids[1], Signal::KILL).unwrap();
    wait_for(|| TcpStream::connect(&server.address).err(), "nobody to listen");
    // Whoever answers has come past all orders.
    let mut answered = 0;
    for (index, mut half) in halves.into_iter().enumerate() {
        let mut answer = String::new();
        let is_sent = half.write_all(b"\r\n").is_ok();
        if is_sent && half.read_to_string(&mut answer).is_ok() && !answer.is_empty() {
            assert!(answer.ends_with("\r\n\r\none"), "{answer}");
            answered += 1;
        }
        if index < 39 {
            assert!(TcpStream::connect(&server.address).is_err(), "it listens again");
        }
    }
    assert!(answered > 0);
    assert!(stop.output_in_time().status.success());
    server.wait();
}

/// In the place of one that has died meanwhile another starts with what was in force then: it does not keep that.
#[test]
fn who_starts_while_a_reload_waits_has_the_new_settings_in_the_end() {
    let folder = Folder::new("catch-up");
    let socket = UnixDatagram::bind(folder.path("notify")).unwrap();
    let (server, pids, reload) = waiting_reload(&folder, &socket);
    kill_process(pids[1], Signal::KILL).unwrap();
    let outcome = reload.output_in_time();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    let all_two = || (0..20).all(|_| server.body("/") == "two").then_some(());
    wait_for(all_two, "the new settings everywhere");
    serving(&server, 2, &pids[1..]);
}

/// An application that serves one connection at a time, as long as it is open.
fn serial_application(folder: &Folder) -> String {
    let path = folder.path("serial.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                if line == "\r\n" {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                    reader.get_mut().write_all(answer).unwrap();
                }
                line.clear();
            }
        }
    });
    format!("route \"/*\" {{ proxy \"http://unix:{}\" {{ keep-timeout \"1h\" }} }}", path.display())
}

/// What one process keeps is let go of when another needs it: with 150 reloads under load requests to applications once stood
/// still for ten seconds, which is how long an idle connection was kept.
#[test]
fn idle_connections_of_one_process_starve_no_other() {
    let folder = Folder::new("starving");
    let route = serial_application(&folder);
    let text = |workers: usize, processes: usize| {
        format!("workers {workers}\nprocesses {processes}\nlisten \"127.0.0.1:0\"\nsite {{ {route} }}\n")
    };
    let server = Server::with_config(&folder, &text(1, 2));
    let mut clients: Vec<KeepAlive> = (0..12).map(|_| KeepAlive::new(&server.address)).collect();
    for _ in 0..2 {
        for client in &mut clients {
            assert_eq!(client.get("/").0, "hello");
        }
    }
    // Clients that stay keep the processes before alive, and those keep nothing that others need.
    folder.write("tidegate.kdl", &text(2, 1));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(server.body("/"), "hello");
    assert_eq!(clients[0].get("/").0, "hello");
    assert_eq!(server.body("/"), "hello");
}

#[test]
fn figures_outlive_an_upgrade() {
    let folder = Folder::new("figures");
    let server = Server::with_config(&folder, &site("workers 1", "x"));
    for _ in 0..5 {
        server.body("/");
    }
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    let requests = || (server.status()["stats"]["requests"] == 5).then_some(());
    wait_for(requests, "what the predecessor has counted");
    server.body("/");
    assert_eq!(server.status()["stats"]["requests"], 6);
}

// ---------------------------------------------------------------- confinement

#[test]
fn a_root_that_a_reload_adds_is_served_by_processes_that_may_read_it() {
    let folder = Folder::new("roots");
    for name in ["a/one", "b/two"] {
        fs::create_dir_all(folder.path(name)).unwrap();
    }
    folder.write("a/one/f", "first");
    folder.write("b/two/f", "second");
    let text = |root: &str| format!("workers 1\nlisten \"127.0.0.1:0\"\nsite {{ root \"{root}\" }}\n");
    let server = Server::with_config(&folder, &text("a/one"));
    assert_eq!(server.body("/f"), "first");
    let pids = server.processes();
    let status = fs::read_to_string(format!("/proc/{}/status", pids[0].as_raw_nonzero())).unwrap();
    assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
    let load = Load::on_path(&server.address, "/f");
    folder.write("tidegate.kdl", &text("b/two"));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(server.body("/f"), "second");
    // Back again: that needs no more than was allowed, or other processes, and works either way.
    folder.write("tidegate.kdl", &text("a/one"));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!(server.body("/f"), "first");
    load.end();
    // A root that is replaced as a whole is followed, though it is another folder now.
    fs::create_dir_all(folder.path("a/next")).unwrap();
    folder.write("a/next/f", "third");
    fs::rename(folder.path("a/one"), folder.path("a/old")).unwrap();
    fs::rename(folder.path("a/next"), folder.path("a/one")).unwrap();
    wait_for(|| (server.body("/f") == "third").then_some(()), "the new root");
    folder.write("tidegate.kdl", &format!("sandbox off\n{}", text("a/one")));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!(server.body("/f"), "third");
}

#[test]
fn servers_become_the_user_that_is_named() {
    if !geteuid().is_root() || !fs::read_to_string("/etc/passwd").unwrap().contains("\nwww-data:") {
        eprintln!("SKIPPED: this takes root and a user www-data");
        return;
    }
    let folder = Folder::new("user");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    folder.write("f", "open");
    let text = "user \"www-data\"\nworkers 1\nlisten \"127.0.0.1:0\"\nlisten \"unix:web.sock\" { mode \"0660\"; \
                group \"www-data\" }\naccess-log \"access.log\"\nsite { root \".\" }\n";
    let server = Server::with_config(&folder, text);
    assert_eq!(server.body("/f"), "open");
    let status =
        fs::read_to_string(format!("/proc/{}/status", server.processes()[0].as_raw_nonzero())).unwrap();
    assert!(
        status.contains("\nUid:\t33\t33\t33\t33\n") && status.contains("\nGid:\t33\t33\t33\t33\n"),
        "{status}"
    );
    assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
    let there = fs::metadata(folder.path("web.sock")).unwrap();
    assert_eq!((there.mode() & 0o777, there.gid()), (0o660, 33));
    // The log is root's, and written all the same: the master has opened it.
    let log = || fs::read_to_string(folder.path("access.log")).ok()?.contains("GET /f").then_some(());
    wait_for(log, "the access line");
    // What the user may not read is said, and nothing has changed.
    fs::create_dir(folder.path("closed")).unwrap();
    fs::set_permissions(folder.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    folder.write("tidegate.kdl", &text.replace("root \".\"", "root \"closed\""));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("cannot open the root"), "{}", outcome.stderr);
    assert_eq!(server.body("/f"), "open");
}

// ---------------------------------------------------------------- sockets

#[test]
fn a_unix_socket_has_its_mode_is_kept_over_an_upgrade_and_removed_at_the_end() {
    let folder = Folder::new("unix");
    let text =
        |mode: &str| format!("listen \"unix:web.sock\" {{ mode \"{mode}\" }}\n{}", site("workers 1", "x"));
    let path = folder.path("web.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap()); // a stale one
    let server = Server::with_config(&folder, &text("0600"));
    let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    folder.write("tidegate.kdl", &text("0666"));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!(mode(), 0o666);
    let inode = fs::metadata(&path).unwrap().ino();
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    assert_eq!(exchange(UnixStream::connect(&path).unwrap(), "/").unwrap(), "x");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    assert!(!path.exists());
}

#[test]
fn sockets_that_the_service_manager_gives_are_used_and_handed_on() {
    let folder = Folder::new("activation");
    let (given, other) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, unused) = (given.local_addr().unwrap(), other.local_addr().unwrap());
    let text = format!("workers 2\nlisten \"{address}\"\nsite {{ respond 200 \"given\" }}\n");
    let script =
        "exec 3<&0 4<&1 1>&2 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:spare exec \"$@\"";
    let server = Server::through(&folder, &text, |mut command| {
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script, "sh", BINARY]).args(arguments).current_dir(&folder.0);
        shell.stdin(Stdio::from(OwnedFd::from(given))).stdout(Stdio::from(OwnedFd::from(other)));
        std::mem::swap(&mut command, &mut shell);
        command
    });
    assert_eq!(server.address, address.to_string());
    assert_eq!(server.body("/"), "given");
    let said = server.seen.join("\n");
    assert!(said.contains("spare") && said.contains(&unused.to_string()), "{said}");
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    assert_eq!(server.body("/"), "given");
}

#[test]
fn the_service_manager_hears_what_happens() {
    let folder = Folder::new("notify");
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    let hear = || {
        let mut heard = [0; 512];
        let count = socket.recv(&mut heard).unwrap();
        String::from_utf8_lossy(&heard[..count]).into_owned()
    };
    let mut server = Server::through(&folder, &site("workers 1", "x"), |mut command| {
        command.env("NOTIFY_SOCKET", &path);
        command
    });
    assert!(hear().starts_with("READY=1\n"));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    let reloading = hear();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert!(hear().starts_with("READY=1\n"));
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    let successor = server.status()["server"]["pid"].as_u64().unwrap();
    let main = hear();
    assert!(main.starts_with(&format!("MAINPID={successor}\nREADY=1\n")), "{main}");
    server.wait();
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    assert!(hear().starts_with("STOPPING=1\n"), "of the successor, and nothing of the predecessor");
}

// ---------------------------------------------------------------- logs and clocks

/// FAULTS 51.
#[test]
fn a_full_disk_below_a_log_stops_nobody_and_is_said() {
    let folder = Folder::new("full");
    let text = site("workers 1\naccess-log \"/dev/full\"", "x");
    let mut server = Server::with_config(&folder, &text);
    for _ in 0..3 {
        assert_eq!(server.body("/"), "x");
    }
    server.line("/dev/full cannot be written");
    assert_eq!(server.body("/"), "x");
}

/// FAULTS 38, 51: what a disk has taken in part is never gone on with, since that would begin a line where a client chose.
#[test]
fn a_line_that_a_full_disk_has_torn_is_lost_and_begins_no_other() {
    const LINES: usize = 20;
    let folder = Folder::new("torn");
    let log = folder.path("access.log");
    let text = site(&format!("workers 1\naccess-log \"{}\"", log.display()), "x");
    // Behind 32 KiB a file takes no more.
    let mut server = Server::through(&folder, &text, |command| {
        let mut bounded = Command::new("/bin/sh");
        bounded.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]);
        bounded.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            bounded.env(name, value);
        }
        bounded
    });
    for _ in 0..LINES {
        running::get(&server.address, &format!("/{}", "q".repeat(3000))).unwrap();
    }
    server.line("access.log cannot be written");
    let full = fs::read_to_string(&log).unwrap();
    assert!(!full.ends_with('\n'), "a line is torn");
    // Room again, behind a line that is whole.
    let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(full.find('\n').unwrap() as u64 + 1).unwrap();
    let line = server.line("access.log can be written again");
    assert!(line.contains("1 line was lost"), "{line}");
    let text = fs::read_to_string(&log).unwrap();
    let kept = full.matches('\n').count();
    assert_eq!(text.lines().count(), 1 + LINES - kept - 1);
    assert!(text.lines().all(|line| line.starts_with("127.0.0.1 ")), "{text}");
}

/// FAULTS 47, by construction: whatever measures time or sets a timer reads the monotonic clock, so that a
/// wall clock that jumps makes none of them early or late. The wall clock is read for dates alone, in these
/// files.
#[test]
fn the_wall_clock_is_read_for_dates_alone() {
    const MAY: &[&str] = &[
        "tidegate-core/src/log/",                 // the time in a line
        "tidegate-core/src/context.rs",           // `Date`, and the time of access lines
        "tidegate-io/src/clock.rs",               // reads it
        "tidegate-modules/src/",                  // ages of files against their modification times
        "tidegate/src/cli/",                      // tools
        "tidegate/src/preflight.rs",              // how long certificates are good
        "tidegate/src/master/acme.rs",            // the same
        "tidegate/src/master/tls.rs",             // the same
        "tidegate/src/master/status_registry.rs", // when it was started, told
        "tidegate/src/master/servers/",           // when they were started, told
    ];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for part in ["tidegate-core", "tidegate-io", "tidegate-wire", "tidegate-modules", "tidegate"] {
        let mut folders = vec![crates.join(part).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                let reads = ["SystemTime::now", "wall_seconds", "clock::wall(", "Realtime"];
                let shown = path.strip_prefix(&crates).unwrap().display().to_string();
                let may = MAY.iter().any(|prefix| shown.starts_with(prefix));
                assert!(may || !reads.iter().any(|read| text.contains(read)), "{shown} reads the wall clock");
            }
        }
    }
}

/// Until its time is over, a process that has been replaced serves the connections it has: what came in the last moment is
/// not cut with those that nobody uses.
#[test]
fn a_request_in_the_last_moment_of_a_drain_is_answered() {
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new("last-moment");
    let text = |workers| {
        let to = application.local_addr().unwrap();
        format!(
            "workers {workers}\ndrain-timeout \"1s\"\nlisten \"127.0.0.1:0\"\nsite {{ proxy \"http://{to}\" }}\n"
        )
    };
    let server = Server::with_config(&folder, &text(1));
    let connect = || {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream
    };
    let ask = |stream: &mut TcpStream| stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let answer = |backend: &mut BufReader<TcpStream>| {
        backend.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine").unwrap();
    };
    let accept = || {
        let mut backend = BufReader::new(application.accept().unwrap().0);
        while std::iter::once(()).any(|()| {
            let mut line = String::new();
            backend.read_line(&mut line).unwrap() > 2
        }) {}
        backend
    };
    let read = |stream: &mut TcpStream| {
        let mut got = Vec::new();
        while !got.ends_with(b"fine") {
            let mut buffer = [0; 1024];
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "cut after {:?}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&buffer[..count]);
        }
    };
    let (mut idle, mut late) = (connect(), connect());
    ask(&mut late);
    let mut busy = accept();
    ask(&mut idle);
    answer(&mut accept());
    read(&mut idle);
    folder.write("tidegate.kdl", &text(2));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // Connections that nobody uses are closed first, at the end of the drain.
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    answer(&mut busy);
    read(&mut late);
}
