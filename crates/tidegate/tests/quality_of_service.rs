//! Limits of what is under way, bandwidth and bans, as they hold over processes that are killed, reloads and upgrades.

mod running;

use running::{Folder, KeepAlive, Server, WAIT, get, wait_for};
use rustix::process::{Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// A connection that has asked for what is limited, if it was let in.
fn asked(address: &str) -> Option<KeepAlive> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream.write_all(b"GET /few HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut connection = BufReader::new(stream);
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        connection.read_line(&mut answer).ok().filter(|count| *count > 0)?;
    }
    answer.starts_with("HTTP/1.1 200").then_some(KeepAlive(connection))
}

/// What a killed process had under way is given back; what others have is not.
#[test]
fn a_killed_process_gives_back_what_it_had() {
    let folder = Folder::new("held");
    let config = "workers 2\nprocesses 2\nlisten \"127.0.0.1:0\"\nsite {\n  respond 404\n\
                  route \"/few\" { limit \"few\" connections=8; respond 200 \"few\" }\n\
                  route \"/status\" { status }\n}\n";
    let server = Server::with_config(&folder, config);
    let mut held: Vec<KeepAlive> = (0..8).map(|_| KeepAlive::new(&server.address)).collect();
    for connection in &mut held {
        assert_eq!(connection.get("/few"), ("few".into(), true));
    }
    assert!(get(&server.address, "/few").is_err(), "there are as many as there may be");
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert!(get(&server.address, "/few").is_err(), "also after a reload");
    for process in server.processes() {
        kill_process(process, Signal::KILL).unwrap();
    }
    // The connections are open on this side, and counted by nobody any more.
    let mut again: Vec<KeepAlive> = Vec::new();
    wait_for(
        || {
            again.extend(asked(&server.address));
            (again.len() == 8).then_some(())
        },
        "the places to be free again",
    );
    assert!(get(&server.address, "/few").is_err(), "and no more of them than before");
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    assert!(get(&server.address, "/few").is_err(), "who is served by the predecessor counts");
    drop((held, again));
    wait_for(|| get(&server.address, "/few").ok(), "the places of those who have gone");
}

/// Who is banned stays so, whatever becomes of processes and settings, until that is lifted.
#[test]
fn a_ban_outlives_processes_reloads_and_upgrades() {
    let folder = Folder::new("banned");
    let config = "workers 2\nprocesses 2\nlisten \"127.0.0.1:0\"\nsite {\n  ban \"b\" statuses=\"404\" count=6\n  respond 404\n\
                  route \"/here\" { respond 200 \"here\" }\n  route \"/free\" { ban off; respond 200 \"free\" }\n}\n";
    let server = Server::with_config(&folder, config);
    // Six in all, whichever process has which.
    for _ in 0..5 {
        assert!(get(&server.address, "/none").is_err());
        assert!(get(&server.address, "/here").is_ok());
    }
    assert!(get(&server.address, "/none").is_err());
    let is_banned = || get(&server.address, "/here").is_err();
    assert!((0..20).all(|_| is_banned()), "by all processes");
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert!(is_banned(), "after a reload");
    let killed = server.processes();
    for process in &killed {
        kill_process(*process, Signal::KILL).unwrap();
    }
    wait_for(|| get(&server.address, "/free").ok(), "processes in place of those that were killed");
    assert!(is_banned(), "by processes that have not seen it");
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    assert!(is_banned(), "after an upgrade");
    let told = server.tell(&["bans"]);
    assert!(told.stdout.starts_with("127.0.0.1 for ") && told.stdout.contains("`b`"), "{}", told.stdout);
    assert_eq!(server.tell(&["bans", "lift", "127.0.0.1"]).code, Some(0));
    assert!((0..20).all(|_| !is_banned()), "lifted for all processes");
    assert_eq!(server.tell(&["bans"]).stdout, "Nobody is banned.\n");
}

#[test]
fn who_is_banned_stays_so_over_a_stop_where_a_file_keeps_it() {
    let folder = Folder::new("kept-bans");
    let config = "workers 1\nlisten \"127.0.0.1:0\"\nbans-file \"bans\"\nsite {\n  ban \"b\" statuses=\"404\" count=1\n\
                  respond 404\n  route \"/here\" { respond 200 \"here\" }\n}\n";
    let mut server = Server::with_config(&folder, config);
    assert!(get(&server.address, "/here").is_ok() && get(&server.address, "/none").is_err());
    assert!(get(&server.address, "/here").is_err());
    assert_eq!(server.tell(&["upgrade"]).code, Some(0), "a successor has the table itself");
    assert!(!folder.path("bans").exists());
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    server.wait();
    let kept = std::fs::read_to_string(folder.path("bans")).unwrap();
    assert!(kept.starts_with("[\"b\",\"127.0.0.1\",") && kept.lines().count() == 1, "{kept}");
    std::fs::write(folder.path("bans"), format!("{kept}[\"b\",\"192.0.2.1\",9000000000]\nnonsense\n"))
        .unwrap();
    let mut server = Server::with_config(&folder, config);
    assert!(get(&server.address, "/here").is_err(), "as before the stop");
    let is_said = |text: &str| server.seen.iter().any(|line| line.contains(text));
    assert!(is_said("1 lines of") && is_said("banned as before the stop: 2"), "{:?}", server.seen);
    let told = server.tell(&["bans"]).stdout;
    assert!(told.contains("192.0.2.1 for 365 d 23 h"), "no longer than a ban lasts at most: {told}");
    wait_for(|| (!folder.path("bans").exists()).then_some(()), "the file to be gone");
    assert_eq!(server.tell(&["bans", "lift", "127.0.0.1"]).code, Some(0));
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    server.wait();
    let server = Server::with_config(&folder, config);
    assert!(get(&server.address, "/here").is_ok(), "it was lifted");
}
