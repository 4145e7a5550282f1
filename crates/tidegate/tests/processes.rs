//! Master and server processes as an operator has them: killed, replaced, confined.
//!
//! FAULTS 43, 47, 51; `reloads.rs` has 44 and 45. Nothing here sleeps and hopes: every wait is for a line, a process or an answer.

mod running;

use running::posts::{Posts, is_running, serving};
use running::{BINARY, Folder, KeepAlive, Load, Server, WAIT, exchange, wait_for};
use rustix::process::{Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

fn site(lines: &str, body: &str) -> String {
    format!("{lines}\nlisten \"127.0.0.1:0\"\nsite {{ respond 200 \"{body}\" }}\n")
}

// ---------------------------------------------------------------- workers

/// The kernel's hash alone gives one of four workers 20 or more of 64 connections, in most runs.
#[test]
fn few_connections_are_shared_evenly() {
    let folder = Folder::new("even");
    let server = Server::with_config(&folder, &site("workers 4", "x"));
    let mut clients: Vec<KeepAlive> = (0..64).map(|_| KeepAlive::new(&server.address)).collect();
    clients.iter_mut().for_each(|client| drop(client.get("/")));
    let workers = server.status()["workers"].as_array().unwrap().clone();
    let has = |worker: &serde_json::Value| worker["connections"].as_u64().unwrap();
    let (least, most) = (workers.iter().map(has).min(), workers.iter().map(has).max());
    assert!(workers.len() == 4 && most.unwrap() - least.unwrap() <= 2, "{workers:?}");
}

// ---------------------------------------------------------------- processes that end

/// FAULTS 43.
#[test]
fn killing_a_server_process_loses_what_is_in_flight_and_refuses_nobody() {
    let folder = Folder::new("kill");
    let mut server = Server::with_config(&folder, &site("workers 2\nprocesses 2", "x"));
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
    assert_eq!(restarts, KILLS as u64, "{}", server.log());
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
    assert!(outcome.stderr.contains("tidegate.kdl:6:8: error: cannot open the root"), "{}", outcome.stderr);
    // Also of a site that another mistake costs.
    folder.write("tidegate.kdl", &text.replace("root \".\"", "root \"closed\"; fastcgi \"nobody\""));
    let outcome = server.tell(&["reload"]);
    assert!(outcome.stderr.contains("is named `nobody`"), "{}", outcome.stderr);
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
    let mut server = Server::through(&folder, &text, |mut command| {
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script, "sh", BINARY]).args(arguments).current_dir(&folder.0);
        shell.stdin(Stdio::from(OwnedFd::from(given))).stdout(Stdio::from(OwnedFd::from(other)));
        std::mem::swap(&mut command, &mut shell);
        command
    });
    assert_eq!(server.address, address.to_string());
    assert_eq!(server.body("/"), "given");
    let said = server.said("spare");
    assert!(said.contains(&unused.to_string()), "{said}");
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
        bounded.args(["-c", "ulimit -f 64; exec \"$0\" \"$@\""]);
        bounded.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            bounded.env(name, value);
        }
        bounded
    });
    for _ in 0..LINES {
        running::get(&server.address, &format!("/{}", "q".repeat(3000))).unwrap();
    }
    let said = server.line("access.log cannot be written");
    assert!(said.contains("the limit of file sizes is reached (`ulimit -f`, LimitFSIZE=)"), "{said}");
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

/// The limit of file sizes ends no process of the server, and what the server runs as it would without it.
#[test]
fn scripts_have_signals_by_default() {
    let folder = Folder::new("signals");
    fs::create_dir(folder.path("run")).unwrap();
    let ends = |signal: &str| format!("sh -c 'kill -{signal} $$'; echo {signal} $?\n");
    let script = format!(
        "#!/bin/sh\necho Content-Type: text/plain; echo Content-Length: 18; echo\n{}{}",
        ends("XFSZ"),
        ends("PIPE")
    );
    let path = folder.write("run/script", &script);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let run = folder.path("run");
    let text = format!(
        "listen \"127.0.0.1:0\"\nsite {{ respond 404; route \"/run/*\" {{ alias {run:?}; cgi }} }}\n"
    );
    let server = Server::with_config(&folder, &text);
    assert_eq!(running::get(&server.address, "/run/script").unwrap(), "XFSZ 153\nPIPE 141\n");
}

/// FAULTS 47, by construction: whatever measures time or sets a timer reads the monotonic clock, so that a
/// wall clock that jumps makes none of them early or late. The wall clock is read for dates alone, in these
/// files.
#[test]
fn the_wall_clock_is_read_for_dates_alone() {
    const MAY: &[&str] = &[
        "tidegate-core/src/log/",               // the time in a line
        "tidegate-core/src/context.rs",         // `Date`, and the time of access lines
        "tidegate-io/src/clock.rs",             // reads it
        "tidegate-modules/src/",                // ages of files against their modification times
        "tidegate/src/cli/",                    // tools
        "tidegate/src/preflight.rs",            // how long certificates are good
        "tidegate/src/master/admin/",           // when revisions were made, told
        "tidegate/src/master/otlp/",            // when what is told was counted
        "tidegate/src/master/acme.rs",          // how long certificates are good
        "tidegate/src/master/tls.rs",           // the same
        "tidegate/src/master/kept_bans.rs",     // until when they hold, over a stop
        "tidegate/src/master/status_registry/", // when it was started, told
        "tidegate/src/master/history.rs",       // which second it was; looks just behind a full one
        "tidegate/src/master/totals.rs",        // which day it is
        "tidegate/src/master/servers/",         // when they were started, told
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

// ---------------------------------------------------------------- beginnings

#[test]
fn of_two_that_start_at_once_one_has_the_control_socket() {
    let folder = Folder::new("one-control");
    fs::write(folder.path("tidegate.kdl"), site("control \"control\"", "x")).unwrap();
    for _ in 0..3 {
        let start = || {
            let mut command = Command::new(BINARY);
            command.args(["serve", "--config", "tidegate.kdl"]).current_dir(folder.path(""));
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut both = [start(), start()];
        let ended = || both.iter_mut().position(|child| child.try_wait().unwrap().is_some());
        let loser = wait_for(ended, "one to give up");
        let mut said = String::new();
        both[loser].stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("the control socket"), "{said}");
        let winner = &mut both[1 - loser];
        kill_process(rustix::process::Pid::from_child(winner), Signal::TERM).unwrap();
        assert!(winner.wait().unwrap().success());
    }
}

/// A socket of its own, which nobody listens on any more, and one that every process makes for itself.
#[test]
fn who_comes_as_the_only_process_of_a_pool_dies_waits_for_the_next() {
    const APPLICATION: &str = "import http.server, os, signal\n\
        class Answer(http.server.BaseHTTPRequestHandler):\n\
        \x20   def do_POST(self): os.kill(os.getpid(), signal.SIGKILL)\n\
        \x20   def do_GET(self):\n\
        \x20       self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers()\n\
        \x20       self.wfile.write(b'ok')\n\
        http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Answer).serve_forever()\n";
    let folder = Folder::new("dies");
    fs::write(folder.path("main.py"), APPLICATION).unwrap();
    let pool = format!(
        "pool \"app\" {{ command \"python3\" \"main.py\"; folder {:?}; user \"root\"; socket auto pass=port\n\
         processes min=1 max=1; queue age=\"30s\" }}",
        folder.path("")
    );
    let text = format!("{pool}\nlisten \"127.0.0.1:0\"\nsite {{ proxy \"app\" {{ timeout \"15s\" }} }}\n");
    let server = Server::with_config(&folder, &text);
    assert_eq!(server.body("/"), "ok");
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    for _ in 0..5 {
        assert_eq!(server.body("/"), "ok");
    }
}
