//! A server process whose descriptors are all in use, and a log whose disk is full: what goes on, and what is said.

mod running;

use running::{Folder, KeepAlive, Server, WAIT, wait_for};
use rustix::process::{Resource, Rlimit, prlimit};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Connections stay, however long a busy machine takes.
const PATIENT: &str = "limits { keep-alive-timeout \"10m\"; head-timeout \"10m\"; overload-delay \"1m\" }\n";

/// A server that may hold so many descriptors, as each of its processes.
fn bounded<'a>(folder: &'a Folder, limit: u32, settings: &str) -> Server<'a> {
    Server::through(folder, &format!("{PATIENT}{settings}"), |command| {
        let mut bounded = Command::new("sh");
        bounded.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]).arg(command.get_program());
        bounded.args(command.get_args()).current_dir(folder.path(""));
        bounded
    })
}

/// More connections than there are descriptors: those that were let in, each of which has had an answer.
fn crowd(address: &str, count: usize) -> Vec<KeepAlive> {
    let mut all: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut all {
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    let mut kept = Vec::new();
    for mut stream in all {
        let mut front = [0; 12];
        stream.read_exact(&mut front).unwrap();
        if front.starts_with(b"HTTP/1.1 200") {
            let mut answer = Vec::new();
            let mut byte = [0];
            while !answer.ends_with(b"here") {
                stream.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
            kept.push(KeepAlive(BufReader::new(stream)));
        }
    }
    assert!(kept.len() < count, "there is no descriptor left");
    kept
}

/// A status and the fields, in small letters.
fn head(connection: &mut KeepAlive, path: &str) -> String {
    let stream = connection.0.get_mut();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    answered(connection)
}

/// The same of a request that was sent.
fn answered(connection: &mut KeepAlive) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && connection.0.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

/// What the master sends gets through in a crowd: it is kept room for.
#[test]
fn a_crowd_keeps_no_reload_and_no_rotation_from_a_server_process() {
    let folder = Folder::new("fds-crowd");
    folder.write("list", "127.9.0.1\n");
    let text = "listen \"127.0.0.1:0\"\nworkers 1\naccess-log \"access\"\n\
                site { respond 200 \"here\"; route \"/dl\" { deny list=\"list\"; respond 200 \"dl\" } }\n";
    let mut server = bounded(&folder, 64, text);
    let before = server.processes();
    let mut kept = crowd(&server.address, 70);
    for orders in [&["reload"][..], &["reload"], &["logs", "reopen"], &["reload"]] {
        let outcome = server.tell(orders);
        assert_eq!(outcome.code, Some(0), "{orders:?}: {}", outcome.stderr);
    }
    folder.write("list", "127.9.0.1\n127.9.0.2\n");
    server.line("has changed and is in use: 2 networks");
    assert_eq!(server.processes(), before);
    for connection in &mut kept {
        assert_eq!(connection.get("/").0, "here");
    }
    assert!(!server.log().contains("has no descriptors left"));
}

/// Connections that are never idle, each of which asks an application that does not answer, and one for the console again and again:
/// all of them want a descriptor, and none has what orders of the master need.
#[test]
fn neither_applications_nor_the_console_have_what_a_reload_needs() {
    const LIMIT: u32 = 128;
    const BASIC: &str = "Authorization: Basic YW5uYTpzZWNyZXQ=\r\n";
    let folder = Folder::new("fds-asking");
    folder.write("staff", "anna:$apr1$Jl7kt8fa$jdyeSnOjE4sek6wrJ17JX.\n");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let application = silent.local_addr().unwrap();
    std::thread::spawn(move || silent.incoming().collect::<Vec<_>>()); // holds them
    let text = format!(
        "listen \"127.0.0.1:0\"\nworkers 1\nadmin {{ }}\nusers \"staff\" {{ htpasswd \"staff\" }}\n\
         site {{\n respond 200 \"here\"\n\
         route \"/slow\" {{ proxy \"http://{application}\" {{ timeout \"10m\"; connections 1000 }} }}\n\
         route \"/.console/*\" {{ console {{ change }}; login basic \"staff\" }}\n}}\n"
    );
    let mut server = bounded(&folder, LIMIT, &text);
    let before = server.processes();
    let mut all: Vec<KeepAlive> = (0..78).map(|_| KeepAlive::new(&server.address)).collect();
    all.iter_mut().for_each(|connection| assert_eq!(connection.get("/").0, "here"));
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::new(AtomicUsize::new(0));
    for (number, connection) in all.iter().enumerate() {
        let is_of_the_console = number < 8;
        let path = if is_of_the_console { "/.console/api/v1/session" } else { "/slow" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{BASIC}\r\n");
        let mut stream = connection.0.get_ref().try_clone().unwrap();
        let (is_over, told) = (is_over.clone(), told.clone());
        std::thread::spawn(move || {
            let (front, rest) = request.split_at(4);
            let mut answer = [0; 4096];
            let _ = stream.write_all(front.as_bytes());
            // With the beginning of the next request behind it: it is never between two.
            while !is_over.load(SeqCst)
                && stream.write_all(format!("{rest}{front}").as_bytes()).is_ok()
                && stream.read(&mut answer).is_ok_and(|count| count > 0)
            {
                told.fetch_add(usize::from(is_of_the_console), SeqCst);
            }
        });
    }
    server.line("was not asked: process");
    let before_that = told.load(SeqCst);
    wait_for(|| (told.load(SeqCst) > before_that + 8).then_some(()), "the console to answer in the crowd");
    for orders in [&["status"][..], &["reload"], &["status"], &["reload"], &["logs", "reopen"], &["reload"]] {
        let outcome = server.tell(orders);
        assert_eq!(outcome.code, Some(0), "{orders:?}: {}", outcome.stderr);
    }
    is_over.store(true, SeqCst);
    assert_eq!(server.processes(), before);
    drop(all);
    assert!(!server.log().contains("has no descriptors left"));
}

/// One that is to end claims no descriptors for orders that will not come: those who are still there have what is free.
#[test]
fn a_process_that_finishes_what_it_has_opens_files_after_a_shortage() {
    const LIMIT: u32 = 64;
    const STAYING: usize = 6;
    let folder = Folder::new("fds-draining");
    fs::create_dir(folder.path("www")).unwrap();
    folder.write("www/index.html", "here");
    for number in 0..STAYING {
        folder.write(&format!("www/{number}"), "new");
    }
    let text = |more: usize| {
        let more: String = (0..more)
            .map(|n| format!("listen \"unix:{}\"\n", folder.path(&format!("l{n}")).display()))
            .collect();
        format!("listen \"127.0.0.1:0\"\n{more}workers 1\ndrain-timeout \"5m\"\nsite {{ root \"www\" }}\n")
    };
    let mut server = bounded(&folder, LIMIT, &text(0));
    let before = server.processes()[0];
    let mut all: Vec<KeepAlive> = (0..36).map(|_| KeepAlive::new(&server.address)).collect();
    for connection in &mut all {
        assert_eq!(connection.get("/").0, "here");
        connection.0.get_mut().write_all(b"GET /").unwrap(); // it is never idle
    }
    // The reserve should grow, and there is nothing for it.
    folder.write("tidegate.kdl", &format!("{PATIENT}control {:?}\n{}", folder.path("control"), text(8)));
    let held = || fs::read_dir(format!("/proc/{}/fd", before.as_raw_nonzero())).unwrap().count();
    for orders in ["reload", "upgrade"] {
        let outcome = server.tell(&[orders]);
        assert_eq!(outcome.code, Some(0), "{orders}: {}", outcome.stderr);
        if orders == "reload" {
            wait_for(|| (held() + 1 >= LIMIT as usize).then_some(()), "the reserve to take what there is");
        }
    }
    all.truncate(STAYING);
    wait_for(|| (held() < LIMIT as usize / 2).then_some(()), "the others to have gone");
    for (number, connection) in all.iter_mut().enumerate() {
        write!(connection.0.get_mut(), "{number} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let answer = answered(connection);
        assert!(answer.starts_with("http/1.1 200"), "{answer}{}", server.log());
    }
}

/// What does not fit is refused, and said of whom; nothing changes, and it works when there are some.
#[test]
fn settings_that_need_more_descriptors_than_are_left_are_refused() {
    const LIMIT: u32 = 256;
    let folder = Folder::new("fds-refused");
    let site = |logs: usize| {
        let own = |n: usize| format!("site \"s{n}.test\" {{ access-log \"log-{n}\"; respond 200 \"s\" }}\n");
        let sites: String = (0..logs).map(own).collect();
        let control = folder.path("control");
        format!(
            "listen \"127.0.0.1:0\"\ncontrol {control:?}\nworkers 1\nsite {{ respond 200 \"here\" }}\n{sites}"
        )
    };
    let server = bounded(&folder, LIMIT, &site(0));
    let before = server.processes();
    let mut kept = crowd(&server.address, LIMIT as usize + 10);
    folder.write("tidegate.kdl", &format!("{PATIENT}{}", site(30)));
    let outcome = server.tell(&["reload"]);
    let said = outcome.stdout + &outcome.stderr;
    let pid = before[0].as_raw_nonzero();
    for expected in [
        &format!("server process {pid} has no descriptors left to take up the settings: it may hold {LIMIT}"),
        "more are needed; raise the limit",
        "nothing has changed: revision 1 stays in force",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!((outcome.code, server.processes()), (Some(1), before.clone()));
    for connection in &mut kept {
        assert_eq!(connection.get("/").0, "here");
    }
    drop(kept);
    wait_for(|| (server.tell(&["reload"]).code == Some(0)).then_some(()), "the same settings to be taken up");
    assert_eq!(server.processes(), before);
}

/// A folder that cannot be opened for want of descriptors is no folder that has gone.
#[test]
fn a_reload_that_cannot_open_all_folders_is_refused() {
    const LIMIT: u32 = 256;
    const ROOTS: usize = 40;
    let folder = Folder::new("fds-folders");
    for n in 0..ROOTS {
        fs::create_dir_all(folder.path(&format!("root-{n}/{n}"))).unwrap();
        folder.write(&format!("root-{n}/{n}/f"), "file");
    }
    // What the processes may read does not change.
    let settings = |roots: usize| {
        let route = |n: usize| format!("route \"/{n}/*\" {{ root \"root-{n}\" }}\n");
        let routes: String = (0..roots).map(route).collect();
        let control = folder.path("control");
        format!(
            "listen \"127.0.0.1:0\"\ncontrol {control:?}\nworkers 1\nsite {{ respond 200 \"here\"\n\
            route \"/all/*\" {{ root \".\" }}\n{routes} }}\n"
        )
    };
    let server = bounded(&folder, LIMIT, &settings(0));
    let before = server.processes();
    let kept = crowd(&server.address, LIMIT as usize + 10);
    folder.write("tidegate.kdl", &format!("{PATIENT}{}", settings(ROOTS)));
    let outcome = server.tell(&["reload"]);
    let said = outcome.stdout + &outcome.stderr;
    let pid = before[0].as_raw_nonzero();
    let expected = format!("server process {pid} has no descriptors left to get ready for the settings");
    let stays = "nothing has changed: revision 1 stays in force";
    assert!(said.contains(&expected) && said.contains(stays), "{said}");
    assert_eq!(outcome.code, Some(1));
    drop(kept);
    wait_for(|| (server.tell(&["reload"]).code == Some(0)).then_some(()), "the same settings to be taken up");
    assert_eq!(server.processes(), before);
    assert_eq!(server.body("/39/f"), "file");
}

/// Where one listens that answers `app`, one request for each connection.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\napp";
                let _ = stream.write_all(answer);
            }
        }
    });
    address
}

/// Whoever lacks a descriptor of this process does not blame an application, and idle connections make room.
#[test]
fn want_of_descriptors_is_no_fault_of_an_application() {
    let folder = Folder::new("fds-application");
    let members = [application(), application()];
    let text = format!(
        "listen \"127.0.0.1:0\"\nworkers 1\n\
         upstream \"u\" {{ member \"{}\"; member \"{}\"; eject failures=1 time=\"60s\" }}\n\
         site {{ respond 200 \"here\"; route \"/p\" {{ proxy \"u\" }} }}\n",
        members[0], members[1]
    );
    let mut server = bounded(&folder, 64, &text);
    let mut kept = crowd(&server.address, 70);
    let mut asking = kept.swap_remove(0);
    let refused = head(&mut asking, "/p");
    assert!(refused.starts_with("http/1.1 503") && refused.contains("retry-after: 1"), "{refused}");
    server.line("was not asked: process");
    let flushed = || {
        let stats = &server.status()["stats"];
        stats["keep_alive_flush_reasons"]["descriptors"].as_u64().filter(|count| *count > 0)
    };
    wait_for(flushed, "idle connections to make room");
    assert_eq!(running::get(&server.address, "/p").unwrap(), "app", "nobody is ejected");
    let stats = &server.status()["stats"];
    assert_eq!(stats["gateway_failures"]["unreachable"], 0);
}

/// Content of unknown length, which is kept in a file for an application of SCGI, is not refused for ever: the disk is not full.
#[test]
fn content_that_finds_no_descriptor_may_come_again() {
    const CONTENT: usize = 256 << 10;
    let folder = Folder::new("fds-content");
    let text = format!(
        "listen \"127.0.0.1:0\"\nworkers 1\nspill {:?}\n\
         site {{ respond 200 \"here\"; route \"/p/*\" {{ scgi \"{}\" }} }}\n",
        folder.path(""),
        application()
    );
    let mut server = bounded(&folder, 64, &text);
    let mut kept = crowd(&server.address, 70);
    let mut asking = kept.swap_remove(0);
    let stream = asking.0.get_mut();
    write!(
        stream,
        "POST /p/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{CONTENT:x}\r\n"
    )
    .unwrap();
    let _ = stream.write_all(&vec![b'x'; CONTENT]);
    let _ = stream.write_all(b"\r\n0\r\n\r\n");
    let refused = answered(&mut asking);
    assert!(refused.starts_with("http/1.1 503") && refused.contains("retry-after: "), "{refused}");
    server.line("content of a request is not kept: process");
}

/// However many workers accept, whoever waits is told that there is no room: none of them takes what another has given up for it.
#[test]
fn those_who_wait_are_told_whichever_worker_they_wait_for() {
    const LIMIT: usize = 64;
    let folder = Folder::new("fds-workers");
    for _ in 0..3 {
        let text = "listen \"127.0.0.1:0\"\nworkers 4\nsite { respond 200 \"here\" }\n";
        let server = bounded(&folder, LIMIT as u32, text);
        let connect = || TcpStream::connect(&server.address).unwrap();
        let mut holding: Vec<TcpStream> = (0..LIMIT + 8).map(|_| connect()).collect();
        for stream in &mut holding {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
        }
        let mut asking: Vec<TcpStream> = (0..16).map(|_| connect()).collect();
        let mut refused = 0;
        for stream in &mut asking {
            let mut front = [0; 12];
            stream.set_read_timeout(Some(WAIT)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream.read_exact(&mut front).expect("it is told");
            refused += usize::from(&front == b"HTTP/1.1 503");
        }
        assert!(refused > 0, "there is no descriptor left");
        drop(holding);
        wait_for(
            || running::get(&server.address, "/").is_ok_and(|body| body == "here").then_some(()),
            "room",
        );
    }
}

#[test]
fn a_start_with_too_few_descriptors_says_who_needs_how_many() {
    let folder = Folder::new("fds-start");
    let settings = folder.write("tidegate.kdl", "listen \"127.0.0.1:0\"\nworkers 4\nsite { respond 200 }\n");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 16; exec \"$0\" serve --config \"$1\"", running::BINARY, &settings]);
    let output = command.current_dir(folder.path("")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for expected in ["it may hold 16, and these settings need about ", "raise the limit (`ulimit -Hn`"] {
        assert!(said.contains(expected), "{said}");
    }
}

/// A disk of its own, of 256 KiB; `None` where none may be mounted.
struct Disk<'a>(&'a Folder);

impl<'a> Disk<'a> {
    fn mount(folder: &'a Folder) -> Option<Disk<'a>> {
        let at = folder.path("disk");
        fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=777", "tidegate-test"]).arg(&at);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Disk(folder));
        }
        eprintln!("SKIPPED: only root can mount a file system");
        None
    }

    /// Fills it, but for so many bytes.
    fn fill(&self, left: u64) {
        let mut fill = fs::File::create(self.0.path("disk/fill")).unwrap();
        while fill.write_all(&[0; 1024]).is_ok() {}
        fill.set_len(fill.metadata().unwrap().len() - left).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.0.path("disk/fill")).unwrap();
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path("disk/access")).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path("disk")).status();
    }
}

/// Each process costs the master some.
#[test]
fn pools_leave_the_master_what_commands_need() {
    let folder = Folder::new("fds-pools");
    let text = "listen \"127.0.0.1:0\"\nworkers 1\naccess-log \"access\"\n\
                pool \"many\" { command \"sleep\" \"1000\"; processes min=20 max=20 }\n\
                site { respond 200 \"here\"; route \"/app\" { proxy \"http://many\" } }\n";
    let mut server = bounded(&folder, 64, text);
    server.said("pool many: no further process can be started: process ");
    for orders in
        [&["status"][..], &["reload"], &["logs", "reopen"], &["pool", "restart", "many"], &["reload"]]
    {
        let outcome = server.tell(orders);
        assert_eq!(outcome.code, Some(0), "{orders:?}: {}", outcome.stderr);
    }
    let pool = &server.status()["pools"][0];
    assert_eq!((&pool["restarts"], &pool["state"]), (&0.into(), &"up".into()), "{pool}");
}

/// A pool that starts nothing until somebody asks serves as soon as a process of another has made room, which one of a pool that
/// is gone from the settings does when it has no requests.
#[test]
fn who_asks_once_there_is_room_for_a_process_is_served() {
    let folder = Folder::new("fds-room");
    fs::create_dir(folder.path("cgi-bin")).unwrap();
    folder.write("cgi-bin/hello", "#!/bin/sh\necho 'Content-Type: text/plain'; echo; echo ok\n");
    fs::set_permissions(folder.path("cgi-bin/hello"), fs::Permissions::from_mode(0o755)).unwrap();
    let text = |pools: &str| {
        format!(
            "listen \"127.0.0.1:0\"\nworkers 1\n{pools}pool \"lazy\" {{ cgi-stubs; processes min=0 max=1 idle=\"1s\" }}\n\
             site {{ respond 404; route \"/cgi-bin/*\" {{ cgi \"lazy\"; alias \"cgi-bin\" }} }}\n"
        )
    };
    let many = "pool \"many\" { command \"sleep\" \"1000\"; processes min=20 max=20 }\n";
    let mut server = bounded(&folder, 64, &text(many));
    server.said("pool many: no further process can be started: process ");
    let ask = || head(&mut KeepAlive::new(&server.address), "/cgi-bin/hello");
    let state = || server.status()["pools"][0]["state"].clone();
    assert!(ask().contains(" 503 "));
    wait_for(|| (state() == "idle").then_some(()), "nobody to want a process");
    assert!(ask().contains(" 503 "));
    folder.write("tidegate.kdl", &format!("{PATIENT}{}", text("")));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    wait_for(|| ask().contains(" 200 ").then_some(()), "an answer");
}

/// One is kept for a command; what needs another says that there is none left, and what to do.
#[test]
fn a_master_without_descriptors_answers_commands() {
    let folder = Folder::new("fds-master");
    let server = Server::with_config(
        &folder,
        "listen \"127.0.0.1:0\"\naccess-log \"access\"\nsite { respond 200 \"here\" }\n",
    );
    let pid = server.pid();
    let held = || {
        let held = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|one| one.unwrap().file_name());
        held.filter_map(|name| name.to_str()?.parse().ok()).collect::<BTreeSet<u64>>()
    };
    // One that is open for a moment only would be free later.
    assert_eq!(server.tell(&["status"]).code, Some(0));
    let all = wait_for(|| Some(held()).filter(|all| (0..99).all(|_| held() == *all)), "nothing to be opened");
    let least = (0..).find(|number| !all.contains(number));
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: least, maximum: least }).unwrap();
    let outcome = server.tell(&["reload"]);
    let said = outcome.stdout + &outcome.stderr;
    assert!(
        outcome.code != Some(0) && said.contains("raise the limit") && !said.contains("--config"),
        "{said}"
    );
    for _ in 0..3 {
        assert_eq!(server.tell(&["status"]).code, Some(0));
    }
}

fn log_on_disk(drain: &str) -> String {
    format!(
        "listen \"127.0.0.1:0\"\nworkers 1\ndrain-timeout \"{drain}\"\n\
         access-log \"disk/access\" format=\"{{target}} is the target\"\nsite {{ respond 200 \"here\" }}\n"
    )
}

fn ask(server: &Server<'_>, count: usize) {
    let mut connection = KeepAlive::new(&server.address);
    for number in 0..count {
        assert_eq!(connection.get(&format!("/{number:0>100}")).0, "here");
    }
}

fn are_whole(lines: &[String]) -> bool {
    lines.iter().enumerate().all(|(at, line)| *line == format!("/{at:0>100} is the target"))
}

#[test]
fn a_line_that_a_full_disk_has_taken_in_part_is_completed() {
    const LINES: usize = 200;
    let folder = Folder::apart("fds-torn");
    let Some(disk) = Disk::mount(&folder) else { return };
    let mut server = Server::with_config(&folder, &log_on_disk("60s"));
    disk.fill(8 << 10);
    ask(&server, LINES);
    server.line("cannot be written");
    assert!(!fs::read(folder.path("disk/access")).unwrap().ends_with(b"\n"), "a line is torn");
    disk.free();
    assert!(server.line("can be written again").contains("; 0 lines were lost"));
    let lines = wait_for(|| Some(disk.lines()).filter(|lines| lines.len() >= LINES), "all lines");
    assert!(lines.len() == LINES && are_whole(&lines), "{lines:?}");
}

/// A server with a torn line, whose log was renamed and opened anew since; its log and the one of before.
fn rotated<'f>(folder: &'f Folder, disk: &Disk<'_>, lines: usize) -> (Server<'f>, [PathBuf; 2]) {
    let (log, old) = (folder.path("disk/access"), folder.path("disk/access.1"));
    let mut server = Server::with_config(folder, &log_on_disk("60s"));
    disk.fill(8 << 10);
    ask(&server, lines);
    server.line("cannot be written");
    fs::rename(&log, &old).unwrap();
    assert_eq!(server.tell(&["logs", "reopen"]).code, Some(0));
    server.line("the logs were opened anew");
    assert!(!fs::read(&old).unwrap().ends_with(b"\n"), "a line is torn");
    (server, [log, old])
}

#[test]
fn a_torn_line_is_completed_in_its_file_after_a_rotation() {
    const LINES: usize = 200;
    let folder = Folder::apart("fds-rotated");
    let Some(disk) = Disk::mount(&folder) else { return };
    let (mut server, [log, old]) = rotated(&folder, &disk, LINES);
    disk.free();
    assert!(server.line("can be written again").contains("; 0 lines were lost"));
    let old = fs::read_to_string(old).unwrap();
    assert!(old.ends_with('\n'), "{old}");
    let all = || old.lines().map(str::to_owned).chain(disk.lines()).collect::<Vec<_>>();
    let lines = wait_for(|| Some(all()).filter(|lines| lines.len() >= LINES), "all lines");
    assert!(lines.len() == LINES && are_whole(&lines), "{lines:?}");
    assert!(log.metadata().unwrap().len() > 0);
}

/// A file that waits for the rest of a line keeps no room when it is removed, by which there may be some.
#[test]
fn a_torn_line_is_given_up_with_its_file() {
    let folder = Folder::apart("fds-rotated-away");
    let Some(disk) = Disk::mount(&folder) else { return };
    let (mut server, [_, old]) = rotated(&folder, &disk, 100);
    fs::remove_file(old).unwrap();
    assert!(server.line("stays torn").ends_with("; 1 line was lost"));
    assert!(server.line("can be written again").contains("; 0 lines were lost"));
}

/// A process that drains keeps its lines for a disk that is full.
#[test]
fn an_upgrade_loses_no_line_while_a_disk_is_full() {
    const LINES: usize = 200;
    let folder = Folder::apart("fds-disk");
    let Some(disk) = Disk::mount(&folder) else { return };
    let mut server = Server::with_config(&folder, &log_on_disk("60s"));
    disk.fill(0);
    ask(&server, LINES);
    server.line("cannot be written");
    let outcome = server.tell(&["upgrade"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    ask(&server, 1);
    disk.free();
    let lines = wait_for(|| Some(disk.lines()).filter(|lines| lines.len() > LINES), "all lines");
    assert!(are_whole(&lines[..LINES]), "{lines:?}");
}

#[test]
fn what_a_full_disk_has_cost_until_the_end_is_said() {
    let folder = Folder::apart("fds-lost");
    let Some(disk) = Disk::mount(&folder) else { return };
    let mut server = Server::with_config(&folder, &log_on_disk("1s"));
    disk.fill(0);
    ask(&server, 150);
    server.line("cannot be written");
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    let said = server.line("are lost: it could not be written until server process");
    assert!(said.contains("lines of the log "), "{said}");
    assert!(server.wait().success());
}
