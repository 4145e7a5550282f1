//! Settings and programs that are replaced under load, and what becomes of requests meanwhile.
//!
//! FAULTS 44 and 45. Nothing here sleeps and hopes: every wait is for a line, a process or an answer.

mod running;

use running::posts::{Posts, is_running, serving};
use running::{BINARY, Folder, KeepAlive, Load, Server, WAIT, run, wait_for};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tidegate_testkit::InTime;

fn site(lines: &str, body: &str) -> String {
    format!("{lines}\nlisten \"127.0.0.1:0\"\nsite {{ respond 200 \"{body}\" }}\n")
}

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

/// The server processes and the master.
fn with_master(server: &Server<'_>) -> Vec<Pid> {
    let master = Pid::from_raw(i32::try_from(server.child.id()).unwrap()).unwrap();
    server.processes().into_iter().chain([master]).collect()
}

/// How many descriptors a process holds.
fn descriptors(pid: &Pid) -> usize {
    fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count()
}

/// Settings that name other users and lists, further addresses, limits, logs and applications, and that no process can take
/// up: nothing of them is left, and nothing of them is in force.
#[test]
fn refused_reloads_leave_nothing() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only for root a folder that cannot be written is found so late");
        return;
    }
    let folder = Folder::new("refused");
    folder.write("a.users", "anna:$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0\n");
    folder.write("b.users", "ben:$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0\n");
    folder.write("a.list", "192.0.2.1\n");
    folder.write("b.list", "127.0.0.0/8\n");
    let text = |lines: &str, files: &str, routes: &str| {
        format!(
            "workers 1\nprocesses 2\nlisten \"127.0.0.1:0\"\n{lines}\nusers \"staff\" {{ htpasswd \"{files}.users\" }}\n\
             site {{\n deny list=\"{files}.list\"\n respond 200 \"x\"\n\
             route \"/staff\" {{ login basic \"staff\"; respond 200 \"in\" }}\n{routes}\n}}\n"
        )
    };
    let server = Server::with_config(&folder, &text("", "a", ""));
    let servers = server.processes();
    let pids = with_master(&server);
    let as_before = |path: &str| {
        let outcome = running::get(&server.address, path).map_err(|error| error.to_string());
        match path {
            "/" => assert_eq!(outcome.as_deref(), Ok("x")),
            _ => assert!(outcome.is_err_and(|error| error.contains("HTTP/1.1 401 ")), "{path}"),
        }
    };
    as_before("/");
    let before: Vec<usize> = pids.iter().map(descriptors).collect();
    let lines =
        "listen \"unix:other.sock\"\nspill \"/proc\"\npool \"other\" { cgi-stubs; processes min=1 max=1 }";
    for number in 0..40 {
        let routes = format!(
            "access-log \"{number}.log\"\nroute \"/other/*\" {{ limit \"{number}\" requests=\"1/h\" keys=1000; \
             root \".\"; fastcgi \"127.0.0.1:9\" }}\nroute \"/cgi/*\" {{ root \".\"; cgi \"other\" }}"
        );
        folder.write("tidegate.kdl", &text(lines, "b", &routes));
        let outcome = server.tell(&["reload"]);
        assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
        assert!(outcome.stderr.contains("in the folder /proc"), "{}", outcome.stderr);
    }
    as_before("/");
    as_before("/staff");
    assert_eq!(server.processes(), servers);
    for (pid, before) in pids.iter().zip(before) {
        let is_as_before = || (descriptors(pid) <= before + 2).then_some(());
        wait_for(is_as_before, "descriptors to be as many as before");
    }
    let is_gone = || (!folder.path("other.sock").exists()).then_some(());
    wait_for(is_gone, "the file of a socket that nobody listens on to go");
    assert_eq!(server.status()["pools"].as_array().map(Vec::len), Some(0));
    // Who is let in: the user of the settings that are in force, and not the one whom the refused ones name.
    for (user, status) in [("anna", "200"), ("ben", "401")] {
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u", &format!("{user}:hello")];
        let mut curl = Command::new("curl");
        let output = curl.args(arguments).arg(format!("http://{}/staff", server.address)).output_in_time();
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{user}");
    }
    // And the next ones come into force.
    folder.write("tidegate.kdl", &text("", "b", "").replace("b.list", "a.list"));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    as_before("/");
}

/// Limits that come and go with each reload: neither the master nor the server process holds on to what they were counted in.
#[test]
fn limits_of_hundreds_of_reloads_leave_nothing() {
    let folder = Folder::new("limits-come-and-go");
    let text = |number: usize| {
        let limit = |name: String| {
            format!("route \"/{name}\" {{ limit \"{name}\" requests=\"1/h\" keys=1000; respond 200 }}\n")
        };
        // Each tenth stays.
        let limits: String = (0..number / 10).map(|number| limit(format!("stays{number}"))).collect();
        let renamed = limit(format!("renamed{number}"));
        format!("workers 1\nlisten \"127.0.0.1:0\"\nsite {{\n respond 200 \"x\"\n{limits}{renamed} }}\n")
    };
    let server = Server::with_config(&folder, &text(1));
    let servers = server.processes();
    let pids = with_master(&server);
    let held = |pid: &Pid| {
        let path = |what: &str| format!("/proc/{}/{what}", pid.as_raw_nonzero());
        let maps = fs::read_to_string(path("maps")).unwrap();
        let open = fs::read_dir(path("fd")).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let of_limits = |file: &std::path::PathBuf| {
            fs::read_link(file).is_ok_and(|to| to.to_string_lossy().contains("tidegate-limits"))
        };
        let open: Vec<_> = open.collect();
        let memories = open.iter().filter(|file| of_limits(file));
        let bytes: u64 =
            memories.filter_map(|file| fs::metadata(file).ok()).map(|file| file.blocks() * 512).sum();
        (open.len(), maps.matches("tidegate-limits").count(), bytes)
    };
    let before: Vec<_> = pids.iter().map(held).collect();
    for number in 2..=500 {
        folder.write("tidegate.kdl", &text(number));
        let outcome = server.tell(&["reload"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    }
    assert_eq!(server.processes(), servers);
    for (pid, before) in pids.iter().zip(before) {
        let now = wait_for(
            || Some(held(pid)).filter(|(open, ..)| *open <= before.0 + 4),
            "descriptors to be as many as before",
        );
        // 51 limits are there, each counted in a page or two.
        assert!(now.1 <= 2 * 51 + 2 && now.2 <= 51 * 4 * 4096, "{before:?} {now:?}");
    }
    let get = |path: &str| running::get(&server.address, path);
    assert!(get("/stays3").is_ok() && get("/stays49").is_ok());
    assert!(get("/stays3").unwrap_err().to_string().contains("HTTP/1.1 429 "));
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
